//! Passes over tasks: runs the programs and takes in their records.

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::{Group, Groups};
use taskdiag_core::plan::BpfWay;
use taskdiag_core::query::Scope;
use taskdiag_core::record::{self, attr, KernelTest, Record, TESTS};
use taskdiag_core::snapshot::{Found, Snapshot};
use taskdiag_sys::bpf::{self, KernelBtf, Map, MapFlags, MapKind, MapSpec, TaskScope};
use taskdiag_sys::host;
use taskdiag_sys::owner::Owner;
use zerocopy::{Immutable, IntoBytes};

use super::load::LoadError;
use super::recipe::{self, DataSection, Recipe};
use super::relocate::Linker;
use super::walk::{self, Walk};

/// The name of the program in every recipe.
const PROGRAM: &str = "task_record";

/// The section of `td_constants`, which it begins with.
const CONSTANTS: &str = ".rodata";

/// `struct td_constants` of `bpf/record.h`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct Constants {
    groups: u32,
    page_shift: u32,
}

impl Constants {
    fn of_this_host(groups: Groups) -> Constants {
        Constants {
            groups: groups.0,
            page_shift: rustix::param::page_size().trailing_zeros(),
        }
    }
}

const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// `struct td_config` of `bpf/record.h`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct Config {
    groups: u32,
    threads: u32,
    ppid: u32,
    rss_sum: u32,
    cpus: u32,
    full_names: u32,
    total_pages: u64,
    tests_count: u32,
    changed: u32,
    changed_epoch: u32,
    seen_mask: u32,
    landlock: u32,
    reserved: u32,
    as_task: u64,
    tests: [KernelTest; TESTS],
}

/// The most processors whose parts of memory counters programs add up: `TD_CPUS_MAX`.
const CPUS_MAX: usize = 512;

/// Where `scratch` stands in `struct td_reader`.
pub const BEFORE_SCRATCH: usize = size_of::<Config>() + 8 + 8 + 8 * 4 + 8 + (5 * 4 * 8 + 8) + 8 + CPUS_MAX * 8;

/// The size of `struct td_reader` of the program that is called for each task.
pub const READER_SIZE: u32 = (BEFORE_SCRATCH + 0x8000 + 0x2000 + 1024 + 256 + 256) as u32;

const READER_KEY_SIZE: u32 = 8;
const SEEN_SIZE: u32 = 24;

/// Tasks whose processor time is remembered. Two whose numbers are alike modulo this take turns.
const SEEN_ENTRIES: u32 = 1 << 16;

/// The most that one read of an iterator returns.
const READ_SIZE: usize = 32 << 10;

/// The BPF source of one handle.
#[derive(Debug, Default)]
pub struct Bpf {
    program: Option<Program>,
    host: Option<HostFacts>,
    /// What was seen of tasks under another number is forgotten.
    changed_epoch: u32,
}

/// What a pass is to bring.
#[derive(Clone, Copy, Debug)]
pub struct PassRequest<'a> {
    /// Which tasks.
    pub scope: Scope,
    /// If not empty, the processes to visit, each with an iterator of its own.
    pub pids: &'a [u32],
    /// The groups of fields that are asked for.
    pub groups: Groups,
    /// What the program decides about a task itself.
    pub tests: &'a [KernelTest],
    /// Only tasks that used processor time since the last pass that asked so.
    pub changed: bool,
    /// In whose namespaces the answer is.
    pub standpoint: Standpoint,
    /// It ends early once there are so many tasks, or some more.
    pub most: usize,
}

/// Whose numbers and paths a pass is to answer in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Standpoint {
    /// The address of a task, as a record of it has it; 0 for the reader.
    pub task: u64,
    /// `td_config.landlock`.
    pub landlock: u32,
}

impl PassRequest<'_> {
    /// Which tasks there are in this scope, and nothing about them.
    pub fn ids(scope: Scope) -> PassRequest<'static> {
        PassRequest {
            scope,
            pids: &[],
            groups: Groups::NONE,
            tests: &[],
            changed: false,
            standpoint: Standpoint::default(),
            most: usize::MAX,
        }
    }
}

/// What the programs have to be told of this host.
#[derive(Clone, Copy, Debug)]
struct HostFacts {
    cpus: u32,
    full_names: bool,
    rss_sum: bool,
}

/// A program in the kernel, and how to tell it what to do.
#[derive(Debug)]
struct Program {
    program: OwnedFd,
    /// The groups that it can be asked for.
    groups: Groups,
    settings: Settings,
    /// The link for passes over all tasks, which can be used again; for walks over any.
    link: OwnedFd,
    /// The process that loaded it. A child of it must not use it: both would write one `td_reader`.
    owner: Owner,
    /// The thread that alone uses it, if one does.
    reader: Option<[u32; 2]>,
}

#[derive(Debug)]
enum Settings {
    /// The memory of a program that goes from task to task itself.
    Walk(Walk),
    /// The map of readers of a program that is called for each task.
    Called(Map),
}

impl Bpf {
    /// The groups that can be answered without loading anything; `None` if nothing is loaded.
    pub fn loaded(&self) -> Option<Groups> {
        let program = self.program.as_ref().filter(|program| program.is_ours())?;
        Some(program.groups)
    }

    /// Gets hold of a program that can answer `groups`, and what could be answered so far.
    pub fn prepare(&mut self, way: BpfWay, groups: Groups, pinned: &Path) -> Result<()> {
        let groups = groups.or(self.loaded().unwrap_or_default());
        self.program = Some(match way {
            BpfWay::Loaded => return Ok(()),
            BpfWay::Pinned => Program::pinned(pinned)?,
            BpfWay::ToLoad => Program::load(groups)?,
        });
        Ok(())
    }

    /// From now on this thread alone uses what is loaded, and need not be looked up for each pass.
    pub fn keep_to_this_thread(&mut self) -> Result<()> {
        if let Some(program) = &mut self.program {
            program.reader = Some(reader_key()?);
        }
        Ok(())
    }

    /// Whether the loaded program is one that finds its tasks itself.
    pub fn finds_tasks_itself(&self) -> bool {
        let program = self.program.as_ref().filter(|program| program.is_ours());
        program.is_some_and(|program| matches!(program.settings, Settings::Walk(_)))
    }

    /// Whether the loaded program itself leaves out tasks that have not changed.
    pub fn knows_changes(&self) -> bool {
        let program = self.program.as_ref().filter(|program| program.is_ours());
        program.is_some_and(|program| {
            matches!(program.settings, Settings::Walk(_)) && program.groups.covers(Groups::TESTABLE)
        })
    }

    /// Appends the records and rows of one pass to `snapshot`.
    pub fn read(&mut self, request: &PassRequest<'_>, snapshot: &mut Snapshot) -> Result<()> {
        let PassRequest { scope, groups, .. } = *request;
        let host = *self.host.get_or_insert_with(|| HostFacts {
            cpus: host::possible_cpus(),
            full_names: host::kernel_version().is_some_and(|version| version >= (6, 11)),
            rss_sum: host::sums_memory_counters(),
        });
        let program = match &mut self.program {
            Some(program) if program.is_ours() => program,
            _ => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "no BPF program is loaded in this process",
                ))
            }
        };
        let mut config = Config {
            groups: groups.0,
            threads: scope.is_threads().into(),
            ppid: match scope {
                Scope::ChildrenOf(pid) => pid,
                _ => 0,
            },
            rss_sum: host.rss_sum.into(),
            cpus: host.cpus,
            full_names: host.full_names.into(),
            total_pages: if groups.contains(Group::Oom) {
                host::total_pages()
            } else {
                0
            },
            tests_count: 0,
            changed: request.changed.into(),
            changed_epoch: self.changed_epoch + 1,
            seen_mask: SEEN_ENTRIES - 1,
            landlock: request.standpoint.landlock,
            reserved: 0,
            as_task: request.standpoint.task,
            tests: [KernelTest::default(); TESTS],
        };
        // Without them more tasks come, no fewer.
        if program.groups.covers(Groups::TESTABLE) {
            config.tests_count = request.tests.len() as u32;
            config.tests[..request.tests.len()].copy_from_slice(request.tests);
        }
        let reader = program.configure(config)?;
        let result = program.pass(scope, request.pids, request.most, snapshot);
        reader.forget(program);
        if result.is_err() {
            // Of what the program remembers not all has come through.
            self.changed_epoch += 1;
        }
        result
    }
}

impl Program {
    /// Loads the program that answers `groups` fastest on this kernel.
    fn load(groups: Groups) -> Result<Program> {
        let btf = kernel_btf()?;
        if walk::is_possible() {
            match Program::load_walk(groups, btf.bytes()) {
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                result => return result,
            }
        }
        Program::load_called(groups, btf.bytes())
    }

    fn load_called(groups: Groups, btf: &[u8]) -> Result<Program> {
        let (program, readers) = load_called(groups, btf)?;
        Program::new(program, groups, Settings::Called(readers))
    }

    fn load_walk(groups: Groups, btf: &[u8]) -> Result<Program> {
        let recipe = built(&recipe::TASK_WALK)?;
        let mut linker = Linker::new(recipe, btf).map_err(|error| load_error(error.into()))?;
        let mut maps = maps(recipe, groups.covers(Groups::TESTABLE))?;
        let mut memory = None;
        for data in recipe.data {
            let map = data_map(data, groups)?;
            if data.size == walk::READER_SIZE {
                let shared = map.share(walk::READER_SIZE as usize);
                memory = Some(shared.map_err(|error| Error::io("mapping a BPF map", error))?);
            }
            maps.push((data.name, map));
        }
        let memory = memory
            .ok_or_else(|| Error::new(ErrorKind::Malformed, "the BPF program is not laid out as record.h says"))?;
        let program = linker.load(PROGRAM, &|name| find(&maps, name)).map_err(load_error)?;
        let mut program = Program::new(program, groups, Settings::Walk(Walk::new(memory)))?;
        if let Settings::Walk(walk) = &mut program.settings {
            if !walk.finds_tasks(program.link.as_fd())? {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the kernel's tree of process numbers was not found",
                ));
            }
        }
        Ok(program)
    }

    fn pinned(directory: &Path) -> Result<Program> {
        let path = |name: &str| {
            let path = directory.join(name);
            let text = CString::new(path.as_os_str().as_bytes()).expect("our own paths have no NUL");
            (path, text)
        };
        let (program_path, program) = path(PINNED);
        let program =
            bpf::object_get(&program).map_err(|error| Error::io(program_path.display().to_string(), error))?;
        let (readers_path, readers) = path(READERS);
        let readers = Map::open(&readers).map_err(|error| Error::io(readers_path.display().to_string(), error))?;
        Program::new(program, Groups::ALL.or(Groups::TESTABLE), Settings::Called(readers))
    }

    fn new(program: OwnedFd, groups: Groups, settings: Settings) -> Result<Program> {
        let scope = match settings {
            Settings::Walk(_) => TaskScope::Thread(std::process::id()),
            _ => TaskScope::All,
        };
        let link =
            bpf::link_tasks(program.as_fd(), scope).map_err(|error| Error::io("attaching a BPF iterator", error))?;
        Ok(Program {
            program,
            groups,
            settings,
            link,
            owner: Owner::this_process(),
            reader: None,
        })
    }

    fn is_ours(&self) -> bool {
        matches!(self.settings, Settings::Called(_)) || self.owner.is_this_process()
    }

    /// Tells the program what to do.
    fn configure(&mut self, config: Config) -> Result<Reader> {
        match &mut self.settings {
            Settings::Walk(walk) => {
                walk.configure(config);
                Ok(Reader { key: None })
            }
            Settings::Called(readers) => {
                let key = match self.reader {
                    Some(reader) => reader,
                    None => reader_key()?,
                };
                let mut value = vec![0; READER_SIZE as usize];
                value[..size_of::<Config>()].copy_from_slice(config.as_bytes());
                readers
                    .update(key.as_bytes(), &value)
                    .map_err(|error| Error::io("registering with the BPF program", error))?;
                // The next pass of the only reader replaces its entry.
                Ok(Reader {
                    key: Some(key).filter(|_| self.reader.is_none()),
                })
            }
        }
    }

    /// Makes a pass over a scope, or over the processes listed in `pids`, and appends what it brings to `snapshot`.
    fn pass(&mut self, scope: Scope, pids: &[u32], most: usize, snapshot: &mut Snapshot) -> Result<()> {
        let narrow = |pid| {
            if scope.is_threads() {
                Scope::ThreadsOf(pid)
            } else {
                Scope::Process(pid)
            }
        };
        match (&mut self.settings, scope) {
            (Settings::Walk(walk), Scope::Process(pid) | Scope::ThreadsOf(pid)) => {
                walk.run(self.link.as_fd(), scope.is_threads(), &[pid], most, snapshot)
            }
            (Settings::Walk(walk), _) => walk.run(self.link.as_fd(), scope.is_threads(), pids, most, snapshot),
            _ if pids.is_empty() => self.iterate(scope, most, snapshot),
            _ => pids
                .iter()
                .try_for_each(|&pid| self.iterate(narrow(pid), most, snapshot)),
        }
    }

    /// Has the kernel call the program for each task.
    fn iterate(&self, scope: Scope, most: usize, snapshot: &mut Snapshot) -> Result<()> {
        let narrowed = match scope {
            Scope::Process(pid) => Some(TaskScope::Thread(pid)),
            Scope::ThreadsOf(pid) => Some(TaskScope::Process(pid)),
            _ => None,
        };
        let narrowed = match narrowed.map(|scope| bpf::link_tasks(self.program.as_fd(), scope)) {
            Some(Err(error)) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            link => link
                .transpose()
                .map_err(|error| Error::io("attaching a BPF iterator", error))?,
        };
        let link = narrowed.as_ref().unwrap_or(&self.link);
        let pass = bpf::iterate(link.as_fd()).map_err(|error| Error::io("starting a BPF iterator", error))?;
        loop {
            let start = snapshot.records.len();
            snapshot.records.reserve(READ_SIZE);
            snapshot.counters.reads += 1;
            match rustix::io::read(&pass, spare_capacity(&mut snapshot.records)) {
                Ok(0) => return Ok(()),
                // While the records are in the cache.
                Ok(_) => {
                    let (records, mut found) = Found::of(snapshot);
                    found.index(&records[start..], start)?;
                    // There is no other record of one process.
                    if matches!(scope, Scope::Process(_)) || snapshot.rows.len() >= most {
                        return Ok(());
                    }
                }
                // The kernel pauses after a million tasks without a record.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(Error::io("reading a BPF iterator", error)),
            }
        }
    }
}

/// A reader's entry with a program that many use.
struct Reader {
    key: Option<[u32; 2]>,
}

impl Reader {
    fn forget(self, program: &Program) {
        if let (Settings::Called(readers), Some(key)) = (&program.settings, self.key) {
            // Nothing depends on it: the entry is replaced when a thread of the same number comes.
            let _ = readers.delete(key.as_bytes());
        }
    }
}

/// Who reads: the inode of its pid namespace, and its thread id there.
fn reader_key() -> Result<[u32; 2]> {
    let namespace = rustix::fs::stat("/proc/self/ns/pid").map_err(|error| {
        Error::io(
            "/proc/self/ns/pid, which pinned BPF programs know their readers by",
            error,
        )
    })?;
    Ok([
        namespace.st_ino as u32,
        rustix::thread::gettid().as_raw_nonzero().get() as u32,
    ])
}

/// Names of the pinned objects.
pub const READERS: &str = "readers";
/// The name of the pinned program.
pub const PINNED: &str = "task";

/// The type information of the kernel that runs.
pub fn kernel_btf() -> Result<KernelBtf> {
    KernelBtf::open().map_err(|error| Error::io(KERNEL_BTF, error))
}

/// Loads the program that is called for each task, with its map of readers: it can be pinned.
pub fn load_called(groups: Groups, btf: &[u8]) -> Result<(OwnedFd, Map)> {
    let recipe = built(&recipe::TASK_CALLED)?;
    let readers = Map::create(&MapSpec {
        kind: MapKind::Hash,
        name: READERS,
        key_size: READER_KEY_SIZE,
        value_size: READER_SIZE,
        max_entries: 1024,
        flags: MapFlags::NO_PREALLOCATION,
    })
    .map_err(|error| Error::io("making a BPF map", error))?;
    let mut linker = Linker::new(recipe, btf).map_err(|error| load_error(error.into()))?;
    let mut maps = maps(recipe, false)?;
    for data in recipe.data {
        maps.push((data.name, data_map(data, groups)?));
    }
    let find = |name: &str| {
        if name == READERS {
            Some(readers.as_fd())
        } else {
            find(&maps, name)
        }
    };
    let program = linker.load(PROGRAM, &find).map_err(load_error)?;
    Ok((program, readers))
}

/// Makes the map of a program's variables.
fn data_map(data: &DataSection, groups: Groups) -> Result<Map> {
    let mut content = data.content.to_vec();
    if data.name == CONSTANTS {
        let constants = Constants::of_this_host(groups);
        content[..size_of::<Constants>()].copy_from_slice(constants.as_bytes());
    }
    data.create(&content)
        .map_err(|error| Error::io("making a BPF map", error))
}

/// The recipe, if the build made one.
pub fn built(recipe: &'static std::result::Result<Recipe, &str>) -> Result<&'static Recipe> {
    let built = recipe.as_ref();
    built.map_err(|why| Error::new(ErrorKind::Unsupported, format!("built without the BPF programs: {why}")))
}

/// A map and its name in the programs.
pub type NamedMap = (&'static str, Map);

/// The map of that name.
pub fn find<'a>(maps: &'a [NamedMap], name: &str) -> Option<BorrowedFd<'a>> {
    let (_, map) = maps.iter().find(|(other, _)| *other == name)?;
    Some(map.as_fd())
}

/// Makes the maps that every load has of its own.
pub fn maps(recipe: &Recipe, is_testable: bool) -> Result<Vec<NamedMap>> {
    let make = |name: &&'static str| {
        let name = *name;
        let map = match name {
            "per_cpu" => Map::create(&MapSpec {
                kind: MapKind::PerCpuArray,
                name,
                key_size: 4,
                value_size: 8,
                max_entries: 1,
                flags: MapFlags::empty(),
            }),
            "seen" => Map::create(&MapSpec {
                kind: MapKind::Array,
                name,
                key_size: 4,
                value_size: SEEN_SIZE,
                max_entries: if is_testable { SEEN_ENTRIES } else { 1 },
                flags: MapFlags::empty(),
            }),
            _ => return None,
        };
        Some(
            map.map(|map| (name, map))
                .map_err(|error| Error::io("making a BPF map", error)),
        )
    };
    recipe.maps.iter().filter_map(make).collect()
}

/// An error of the loader, as the library says it.
pub fn load_error(error: LoadError) -> Error {
    let kind = match &error {
        LoadError::Denied { .. } => ErrorKind::Denied,
        _ => ErrorKind::Unsupported,
    };
    Error::new(kind, error.to_string())
}

/// The groups of a record that procfs has to be asked for.
pub fn deferred(record: Record<'_>) -> Groups {
    match record.get::<record::Defer>(attr::DEFER) {
        Some(defer) if record.has(record::DEFERRED) => Groups(defer.groups.get()),
        _ => Groups::NONE,
    }
}

/// What the tests of [`walk`](super::walk) need of a program.
#[cfg(test)]
pub(crate) struct WalkingProgram(Program);

#[cfg(test)]
impl WalkingProgram {
    pub(crate) fn load(groups: Groups) -> WalkingProgram {
        WalkingProgram(Program::load_walk(groups, kernel_btf().unwrap().bytes()).unwrap())
    }

    /// The walk, and the link that it is run by.
    pub(crate) fn walk(&mut self) -> (&mut Walk, BorrowedFd<'_>) {
        match &mut self.0.settings {
            Settings::Walk(walk) => (walk, self.0.link.as_fd()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn pass(&mut self, scope: Scope, pids: &[u32], groups: Groups) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let config = Config {
            groups: groups.0,
            threads: scope.is_threads().into(),
            ..Config::default()
        };
        self.0.configure(config).unwrap();
        self.0.pass(scope, pids, usize::MAX, &mut snapshot).unwrap();
        snapshot
    }
}

#[cfg(test)]
mod tests;
