//! These tests load programs. They need CAP_BPF and CAP_PERFMON, and a kernel with BTF.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::process;
use std::thread;

use rustix::thread::CapabilitySet;
use taskdiag_sys::bpf::{KernelBtf, SharedMemory, TaskScope};

use super::*;
use crate::recipe::{self, Recipe};

/// The offsets of variables in `.bss` of loader.bpf.c.
const TASKS_SEEN: usize = 0;
const LOOP_SUM: usize = 8;
const FACTS: usize = 16;

fn compiled(recipe: &'static Result<Recipe, &'static str>) -> &'static Recipe {
    recipe.as_ref().expect("the build had clang, which this test needs")
}

/// The maps of a recipe, by name.
struct Maps(HashMap<&'static str, Map>);

impl Maps {
    fn of(recipe: &Recipe) -> Self {
        let data = recipe
            .data
            .iter()
            .map(|section| (section.name, section.create(section.content).unwrap()));
        Self(data.collect())
    }

    fn add(&mut self, name: &'static str, kind: MapKind, value_size: u32) {
        let spec = MapSpec {
            kind,
            name,
            key_size: 4,
            value_size,
            max_entries: 1,
            flags: MapFlags::empty(),
        };
        self.0.insert(name, Map::create(&spec).unwrap());
    }

    fn get(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.0.get(name).map(Map::as_fd)
    }
}

fn loader_test_maps(recipe: &Recipe) -> Maps {
    let mut maps = Maps::of(recipe);
    maps.add("counter", MapKind::Array, 8);
    maps
}

fn share_bss(maps: &Maps) -> SharedMemory {
    maps.0[".bss"].share(80).unwrap()
}

/// Runs a program on the tasks of a scope, and returns the records that it wrote.
fn records(program: BorrowedFd<'_>, scope: TaskScope) -> Vec<[u32; 4]> {
    let link = bpf::link_tasks(program, scope).unwrap();
    let mut bytes = Vec::new();
    bpf::iterate(link.as_fd()).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() % 16, 0);
    let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap());
    bytes
        .chunks_exact(16)
        .map(|record| [0, 4, 8, 12].map(|at| word(&record[at..at + 4])))
        .collect()
}

/// Check that a program that uses everything that the loader supports runs, and writes correct
/// values.
#[test]
fn program_reads_tasks() {
    let recipe = compiled(&recipe::LOADER_TEST);
    let btf = KernelBtf::open().unwrap();
    let mut linker = Linker::new(recipe, btf.bytes()).unwrap();
    let maps = loader_test_maps(recipe);
    let program = linker.load("ids", &|name| maps.get(name)).unwrap();
    let mut bss = share_bss(&maps);

    let all = records(program.as_fd(), TaskScope::All);
    let own = process::id();
    let parent = std::os::unix::process::parent_id();
    let uid = rustix::process::geteuid().as_raw();
    assert!(
        all.contains(&[own, own, parent, uid]),
        "{own} of {parent} not in {all:?}"
    );
    // When the iterator's buffer is full, the task whose record did not fit is visited again.
    let (written, buffers) = (all.len() as u64, all.len() as u64 * 16 / (32 << 10));
    let seen = bss.read::<u64>(TASKS_SEEN).unwrap();
    assert!((written..=written + buffers).contains(&seen), "{seen} of {written}");
    assert_eq!(bss.read::<u64>(LOOP_SUM), Some(45), "bpf_loop with a callback");
    let mut count = [0; 8];
    assert!(maps.0["counter"].lookup(&[0; 4], &mut count).unwrap());
    assert_eq!(u64::from_ne_bytes(count), seen);
    check_facts(&bss, btf.bytes());

    bss.write(TASKS_SEEN, 1_000_u64).unwrap();
    let mine = records(program.as_fd(), TaskScope::Process(own));
    assert!(!mine.is_empty() && mine.iter().all(|record| record[1] == own));
    assert!(bss.read::<u64>(TASKS_SEEN).unwrap() > 1_001);
}

/// A constant of `enum bpf_map_type`.
const BPF_MAP_TYPE_TASK_STORAGE: u32 = 29;

fn check_facts(bss: &SharedMemory, btf: &[u8]) {
    use crate::btf::{Kind, Kinds, Types, Wanted};

    let name = Wanted {
        name: "task_struct",
        kinds: Kinds::compatible_with(Kind::Struct),
    };
    let (types, found) = Types::scan(btf, &[name]).unwrap();
    let facts: [u32; 16] = bss.read(FACTS).unwrap();
    let [_, left, right, signed, pid, nowhere, exists, lacks, size, storage, has, lacks_enumerator, comm, element, cpu, variable] =
        facts;
    // The field is one bit wide, so 63 bits are shifted out.
    assert_eq!(right, 63);
    assert!(left < 64);
    assert_eq!([signed, pid, nowhere, exists, lacks], [1, 1, 0, 1, 1]);
    assert_eq!(size, types.size_of(found[0][0]).unwrap());
    assert_eq!([storage, has, lacks_enumerator], [BPF_MAP_TYPE_TASK_STORAGE, 1, 1]);
    assert_eq!(comm, 16);
    assert!(element > 3 && element < size);
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    let has_address = symbols.lines().any(|line| line.ends_with(" this_cpu_off"));
    assert_eq!([cpu, variable], [u32::from(has_address), 1]);
}

/// Check that the program sees a constant that was set before loading.
#[test]
fn constants_are_set_before_loading() {
    let recipe = compiled(&recipe::LOADER_TEST);
    let btf = KernelBtf::open().unwrap();
    let mut linker = Linker::new(recipe, btf.bytes()).unwrap();
    let mut maps = loader_test_maps(recipe);
    let rodata = recipe.data.iter().find(|data| !data.writable).unwrap();
    let own = process::id().to_ne_bytes();
    maps.0.insert(rodata.name, rodata.create(&own).unwrap());
    let program = linker.load("ids", &|name| maps.get(name)).unwrap();
    let seen = records(program.as_fd(), TaskScope::All);
    assert!(!seen.is_empty() && seen.iter().all(|record| record[1] == process::id()));
    assert!(maps.0[rodata.name].update(&[0; 4], &own).is_err(), "the map is frozen");
}

/// Check that each error says what failed.
#[test]
fn errors_say_what_failed() {
    let recipe = compiled(&recipe::LOADER_TEST);
    let btf = KernelBtf::open().unwrap();
    let mut linker = Linker::new(recipe, btf.bytes()).unwrap();
    let maps = loader_test_maps(recipe);
    let mut error = |name| linker.load(name, &|name| maps.get(name)).unwrap_err();

    let missing = error("reads_what_is_not_there");
    assert_eq!(
        missing.to_string(),
        "BPF program reads_what_is_not_there, instruction 2: this kernel has no task_struct.no_such_field"
    );
    let refused = error("is_refused").to_string();
    assert!(refused.contains("R1 invalid mem access"), "{refused}");
    assert!(matches!(error("no such"), LoadError::NoSuchProgram(_)));
    let no_map = linker.load("ids", &|_| None).unwrap_err();
    assert!(
        no_map
            .to_string()
            .ends_with("the caller supplies no map with this name"),
        "{no_map}"
    );
    let no_btf = Linker::new(recipe, b"\x7fELF").unwrap_err();
    assert!(matches!(no_btf, BtfError::Header(_)));
}

/// Check that the error names the missing capabilities. A separate thread drops its privileges.
#[test]
fn errors_name_missing_capabilities() {
    let recipe = compiled(&recipe::LOADER_TEST);
    let without_privileges = thread::spawn(move || {
        let nothing = rustix::thread::CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, nothing).unwrap();
        let btf = KernelBtf::open().unwrap();
        let mut linker = Linker::new(recipe, btf.bytes()).unwrap();
        linker.load("does_nothing", &|_| None).unwrap_err().to_string()
    });
    assert_eq!(
        without_privileges.join().unwrap(),
        "loading BPF programs needs CAP_BPF and CAP_PERFMON; run as root"
    );
}

/// Check that a pinned map can be opened, and keeps the sizes of its keys and values.
#[test]
fn maps_are_pinned() {
    let path = format!("/sys/fs/bpf/taskdiag-test-{}", process::id());
    let c_path = std::ffi::CString::new(path.as_str()).unwrap();
    let recipe = compiled(&recipe::LOADER_TEST);
    let maps = loader_test_maps(recipe);
    let counter = &maps.0["counter"];
    counter.update(&[0; 4], &7_u64.to_ne_bytes()).unwrap();
    crate::pin::mount_bpf_fs().unwrap();
    bpf::object_pin(counter.as_fd(), &c_path).unwrap();
    let again = Map::open(&c_path);
    fs::remove_file(&path).unwrap();
    let again = again.unwrap();
    assert_ne!(again.as_fd().as_raw_fd(), counter.as_fd().as_raw_fd());
    let mut value = [0; 8];
    assert!(again.lookup(&[0; 4], &mut value).unwrap());
    assert_eq!(u64::from_ne_bytes(value), 7);
    assert!(again.lookup(&[0; 4], &mut [0; 4]).is_err(), "the size is checked");
}

/// Check that each way of reading the kernel's BTF gives the same bytes.
#[test]
fn btf_is_the_same_however_it_is_read() {
    let read = fs::read("/sys/kernel/btf/vmlinux").unwrap();
    assert_eq!(KernelBtf::open().unwrap().bytes(), read);
    assert_eq!(KernelBtf::copy(read.len()).unwrap().bytes(), read);
}
