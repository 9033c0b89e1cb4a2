//! A loaded program: its two forms, how it gets its settings, and how it is run.

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::buffer::spare_capacity;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::Groups;
use taskdiag_core::query::Scope;
use taskdiag_core::record::walk::{Config, Constants};
use taskdiag_core::snapshot::{Indexer, Snapshot};
use taskdiag_sys::bpf::{self, Map, MapFlags, MapKind, MapSpec, TaskScope};
use taskdiag_sys::host::proc_file;
use taskdiag_sys::owner::Owner;
use zerocopy::IntoBytes as _;

use crate::iterator;
use crate::load::{built, find, kernel_btf, load_error, not_created, NamedMap};
use crate::network::{self, TABLE};
use crate::reader::{constants_of_this_host, CALLED_SIZE};
use crate::recipe::{self, DataSection, Recipe};
use crate::relocate::Linker;
use crate::walk::{self, Walk};

/// The name of the program in every recipe.
const PROGRAM: &str = "task_record";

/// The section that starts with `td_constants`.
const CONSTANTS: &str = ".rodata";

const READER_KEY_SIZE: u32 = 8;
const SEEN_SIZE: u32 = 24;

/// The number of tasks whose processor time is remembered. Tasks whose ids are equal modulo this
/// number share an entry, and always count as changed.
pub(super) const SEEN_ENTRIES: u32 = 1 << 16;

/// The size of the buffer in which the kernel collects records for a read of an iterator. A read
/// with less room would end within a record.
fn read_size() -> usize {
    8 * rustix::param::page_size()
}

/// A loaded program.
#[derive(Debug)]
pub(super) struct Program {
    program: OwnedFd,
    /// The groups that it can read.
    pub(super) groups: Groups,
    pub(super) form: Form,
    /// The link for all passes: over all tasks or, for a walk, over any task.
    pub(super) link: OwnedFd,
    /// The process that loaded it. A child must not use it, because both would write to one
    /// `td_reader`.
    owner: Owner,
    /// The key of the only thread that uses it, if only one does.
    pub(super) reader: Option<[u32; 2]>,
}

/// The form of a program, and the memory through which it gets its settings.
#[derive(Debug)]
pub(super) enum Form {
    /// It finds the tasks itself.
    Walk(Walk),
    /// The kernel calls it for each task. The map has a `td_reader` for each thread.
    Called(Map),
}

impl Program {
    /// Loads the program that reads `groups` fastest on this kernel.
    pub(super) fn load(groups: Groups, network: Option<BorrowedFd<'_>>) -> Result<Program> {
        let btf = kernel_btf()?;
        if walk::is_possible() {
            match Program::load_walk(groups, btf.bytes(), network) {
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                result => return result,
            }
        }
        Program::load_called(groups, btf.bytes(), network)
    }

    pub(super) fn load_called(groups: Groups, btf: &[u8], network: Option<BorrowedFd<'_>>) -> Result<Program> {
        let (program, readers) = load_called(groups, btf, network)?;
        Program::new(program, groups, Form::Called(readers))
    }

    pub(super) fn load_walk(groups: Groups, btf: &[u8], network: Option<BorrowedFd<'_>>) -> Result<Program> {
        let recipe = built(&recipe::TASK_WALK)?;
        let mut linker = Linker::new(recipe, btf).map_err(load_error)?;
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
        let memory = memory.ok_or_else(|| {
            Error::new(
                ErrorKind::Malformed,
                "the variables of the BPF program do not match record.h",
            )
        })?;
        let find = |name: &str| network.filter(|_| name == TABLE).or_else(|| find(&maps, name));
        let program = linker.load(PROGRAM, &find).map_err(load_error)?;
        let mut program = Program::new(program, groups, Form::Walk(Walk::new(memory)))?;
        if let Form::Walk(walk) = &mut program.form {
            if !walk.finds_tasks(program.link.as_fd())? {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the BPF program can't read this kernel's IDR of pid numbers",
                ));
            }
        }
        Ok(program)
    }

    pub(super) fn pinned(directory: &Path) -> Result<Program> {
        let path = |name: &str| {
            let path = directory.join(name);
            let text = CString::new(path.as_os_str().as_bytes()).expect("the path has no NUL");
            (path, text)
        };
        let (program_path, program) = path(PINNED);
        let program =
            bpf::object_get(&program).map_err(|error| Error::io(program_path.display().to_string(), error))?;
        let (readers_path, readers) = path(READERS);
        let readers = Map::open(&readers).map_err(|error| Error::io(readers_path.display().to_string(), error))?;
        Program::new(program, Groups::ALL.or(Groups::TESTABLE), Form::Called(readers))
    }

    fn new(program: OwnedFd, groups: Groups, form: Form) -> Result<Program> {
        let scope = match form {
            Form::Walk(_) => TaskScope::Thread(std::process::id()),
            Form::Called(_) => TaskScope::All,
        };
        let link =
            bpf::link_tasks(program.as_fd(), scope).map_err(|error| Error::io("attaching a BPF iterator", error))?;
        Ok(Program {
            program,
            groups,
            form,
            link,
            owner: Owner::this_process(),
            reader: None,
        })
    }

    /// Whether this process may use the program.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.form, Form::Called(_)) || self.owner.is_this_process()
    }

    /// Sets what the next pass reads.
    pub(super) fn configure(&mut self, config: Config) -> Result<Reader> {
        match &mut self.form {
            Form::Walk(walk) => {
                walk.configure(config);
                Ok(Reader { key: None })
            }
            Form::Called(readers) => {
                let key = match self.reader {
                    Some(reader) => reader,
                    None => reader_key()?,
                };
                let mut value = vec![0; CALLED_SIZE as usize];
                value[..size_of::<Config>()].copy_from_slice(config.as_bytes());
                readers
                    .update(key.as_bytes(), &value)
                    .map_err(|error| Error::io("adding this thread to the readers of the BPF program", error))?;
                // If there is only one reader, its next pass replaces the entry.
                Ok(Reader {
                    key: Some(key).filter(|_| self.reader.is_none()),
                })
            }
        }
    }

    /// Makes a pass over a scope, or over the processes in `pids`, and appends its records and rows
    /// to `snapshot`.
    pub(super) fn pass(&mut self, scope: Scope, pids: &[u32], most: usize, snapshot: &mut Snapshot) -> Result<()> {
        let narrow = |pid| {
            if scope.is_threads() {
                Scope::ThreadsOf(pid)
            } else {
                Scope::Process(pid)
            }
        };
        match (&mut self.form, scope) {
            (Form::Walk(walk), Scope::Process(pid) | Scope::ThreadsOf(pid)) => {
                walk.run(self.link.as_fd(), scope.is_threads(), &[pid], most, snapshot)
            }
            (Form::Walk(walk), _) => walk.run(self.link.as_fd(), scope.is_threads(), pids, most, snapshot),
            _ if pids.is_empty() => self.iterate(scope, most, snapshot),
            _ => pids
                .iter()
                .try_for_each(|&pid| self.iterate(narrow(pid), most, snapshot)),
        }
    }

    /// Reads an iterator; the kernel calls the program for each task.
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
        let pass = iterator::start(link.as_fd())?;
        let read_size = read_size();
        loop {
            let start = snapshot.records.len();
            snapshot.records.reserve(read_size);
            snapshot.counters.count_read();
            match iterator::read(&pass, spare_capacity(&mut snapshot.records))? {
                Some(0) => return Ok(()),
                // Indexes the records at once, while they are in the processor's cache.
                Some(_) => {
                    let (records, mut indexer) = Indexer::split(snapshot);
                    indexer.index(&records[start..], start)?;
                    // A process has only one record.
                    if matches!(scope, Scope::Process(_)) || snapshot.rows.len() >= most {
                        return Ok(());
                    }
                }
                None => {}
            }
        }
    }
}

/// The entry of this thread in the map of readers.
pub(super) struct Reader {
    /// The key, if the entry must be removed after the pass.
    key: Option<[u32; 2]>,
}

impl Reader {
    pub(super) fn remove(self, program: &Program) {
        if let (Form::Called(readers), Some(key)) = (&program.form, self.key) {
            // A failure does no harm: a later thread with the same id replaces the entry.
            let _ = readers.delete(key.as_bytes());
        }
    }
}

/// The `struct td_reader_key` of this thread: the inode number of its pid namespace, and its thread
/// id there.
pub(super) fn reader_key() -> Result<[u32; 2]> {
    let namespace = rustix::fs::stat(proc_file("self/ns/pid")).map_err(|error| {
        Error::io(
            "/proc/self/ns/pid, by which pinned BPF programs identify their readers",
            error,
        )
    })?;
    Ok([
        namespace.st_ino as u32,
        rustix::thread::gettid().as_raw_nonzero().get() as u32,
    ])
}

/// The name of the pinned map of readers.
pub(crate) const READERS: &str = "readers";
/// The name of the pinned program.
pub(crate) const PINNED: &str = "task";

/// Loads the program that the kernel calls for each task, with its map of readers. Both can be
/// pinned. `network` is the table of traffic, if somebody counts it.
pub(crate) fn load_called(groups: Groups, btf: &[u8], network: Option<BorrowedFd<'_>>) -> Result<(OwnedFd, Map)> {
    let recipe = built(&recipe::TASK_CALLED)?;
    let readers = Map::create(&MapSpec {
        kind: MapKind::Hash,
        name: READERS,
        key_size: READER_KEY_SIZE,
        value_size: CALLED_SIZE,
        max_entries: 1024,
        flags: MapFlags::NO_PREALLOCATION,
    })
    .map_err(not_created)?;
    let mut linker = Linker::new(recipe, btf).map_err(load_error)?;
    let mut maps = maps(recipe, false)?;
    for data in recipe.data {
        maps.push((data.name, data_map(data, groups)?));
    }
    let find = |name: &str| match name {
        READERS => Some(readers.as_fd()),
        TABLE if network.is_some() => network,
        _ => find(&maps, name),
    };
    let program = linker.load(PROGRAM, &find).map_err(load_error)?;
    Ok((program, readers))
}

/// Creates the map of a section of variables.
fn data_map(data: &DataSection, groups: Groups) -> Result<Map> {
    let mut content = data.content.to_vec();
    if data.name == CONSTANTS {
        let constants = constants_of_this_host(groups);
        content[..size_of::<Constants>()].copy_from_slice(constants.as_bytes());
    }
    data.create(&content).map_err(not_created)
}

/// Creates the maps that belong to one loaded program.
fn maps(recipe: &Recipe, is_testable: bool) -> Result<Vec<NamedMap>> {
    let create = |name: &&'static str| {
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
            TABLE => network::table(1),
            _ => return None,
        };
        Some(map.map(|map| (name, map)).map_err(not_created))
    };
    recipe.maps.iter().filter_map(create).collect()
}
