//! Mappings: all sources give the same answer, equal to the kernel's own text, about processes of
//! every kind; processes that are gone, denied or running have defined results; addresses become
//! places in files.

mod changing;
mod files;
mod machine;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use taskdiag::maps::{BuildId, Filter, MapField, Mapping, Mappings, Maps, Normalizer, Outcome, Perms};
use taskdiag::{Absent, ErrorKind, Field, Handle, Query, Set, SourceId, Verdict};
use taskdiag_testkit::temporary::Directory;
use taskdiag_testkit::{
    animal,
    child::{self, Proc, World, CAP_BPF, CAP_PERFMON, NOBODY},
    everything, kernel, scaled, test_name,
};
use taskdiag_zoo::Zoo;

/// The sources of this kernel. If the ioctl is missing, the error must say so, and the kernel must
/// be older than it.
fn sources() -> Vec<SourceId> {
    let mut handle = Handle::new();
    let fact = handle.support().procmap_query.clone();
    let expected = if kernel() >= (6, 11) { Verdict::Yes } else { Verdict::No };
    assert_eq!(fact.verdict, expected, "Linux {:?}: {fact:?}", kernel());
    let mut sources = vec![SourceId::Procfs];
    if fact.is_yes() {
        sources.push(SourceId::Procmap)
    } else {
        assert_eq!(refusal(SourceId::Procmap), Some(ErrorKind::Unsupported))
    }
    // Root can load BPF, so a missing source is no reason to skip it. Others can't, unless they
    // have the capabilities.
    match refusal(SourceId::Bpf) {
        None => sources.push(SourceId::Bpf),
        Some(ErrorKind::Unsupported) if kernel() < (6, 11) => {}
        Some(kind) => assert!(
            kind == ErrorKind::Denied && !is_root(),
            "these tests need BPF: {kind:?}"
        ),
    }
    sources
}

/// Why a source does not answer about this process, if it does not.
fn refusal(source: SourceId) -> Option<ErrorKind> {
    let mut maps = Handle::new()
        .with_source(source)
        .maps(std::process::id())
        .expect("our own");
    let listed = maps.list(Filter::default(), MapField::Name);
    listed.err().map(|error| error.kind())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// On a busy machine, a process that holds no reader may take long to answer.
const PATIENCE: Duration = Duration::from_secs(5);

fn open(pid: u32) -> taskdiag::Result<Maps> {
    handle().maps(pid)
}

fn handle() -> Handle {
    Handle::new().with_patience(PATIENCE)
}

fn maps(pid: u32, source: SourceId) -> Maps {
    let maps = handle().with_source(source).maps(pid);
    maps.unwrap_or_else(|error| panic!("{pid}: {error}"))
}

/// The values of a mapping that every source provides.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Common {
    range: (u64, u64),
    perms: String,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    name: Result<String, Absent>,
}

impl Common {
    fn new(mapping: &Mapping<'_>) -> Common {
        Common {
            range: (mapping.start, mapping.end),
            perms: mapping.perms.to_string(),
            offset: mapping.offset_bytes,
            device: (mapping.device.major, mapping.device.minor),
            inode: mapping.inode,
            name: mapping.name.map(|name| name.escape_ascii().to_string()),
        }
    }

    fn passes(&self, filter: Filter) -> bool {
        let (letters, perms) = (self.perms.as_bytes(), filter.perms);
        (!perms.contains(Perms::READ) || letters[0] == b'r')
            && (!perms.contains(Perms::WRITE) || letters[1] == b'w')
            && (!perms.contains(Perms::EXEC) || letters[2] == b'x')
            && (!perms.contains(Perms::SHARED) || letters[3] == b's')
            && (!filter.file_backed || self.inode != 0 || self.device != (0, 0))
    }
}

fn common(mappings: &Mappings) -> Vec<Common> {
    mappings.iter().map(|mapping| Common::new(&mapping)).collect()
}

/// The kernel's own text, parsed by code of this test.
fn text(path: &str) -> Vec<Common> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let line = |line: &[u8]| {
        let words: Vec<&[u8]> = line.splitn(6, |&byte| byte == b' ').collect();
        let word = |index: usize| std::str::from_utf8(words[index]).expect("ASCII");
        let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        let (start, end) = word(0).split_once('-').expect("a range");
        let (major, minor) = word(3).split_once(':').expect("a device");
        let name = words.get(5).map_or(&b""[..], |name| name.trim_ascii_start());
        Common {
            range: (hex(start), hex(end)),
            perms: word(1).to_owned(),
            offset: hex(word(2)),
            device: (hex(major) as u32, hex(minor) as u32),
            inode: word(4).parse().expect("a number"),
            // `escape_ascii` makes two backslashes of each.
            name: Ok(name.escape_ascii().to_string().replace("\\\\012", "\\n")),
        }
    };
    let lines = bytes
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(line);
    lines.filter(|line| line.name.as_deref() != Ok("[vsyscall]")).collect()
}

fn filters() -> [Filter; 6] {
    let of_files = |perms: Perms| {
        let mut filter = Filter::from(perms);
        filter.file_backed = true;
        filter
    };
    [
        Filter::default(),
        Perms::EXEC.into(),
        of_files(Perms::empty()),
        Perms::SHARED.into(),
        of_files(Perms::WRITE),
        of_files(Perms::READ | Perms::EXEC),
    ]
}

/// Check that each source's answer about each process equals its text, whatever the filter, and
/// that sources that report page sizes agree on them. Zombies and kernel threads have no memory,
/// whichever source is used.
#[test]
fn sources_agree_on_every_animal() {
    let animals = everything();
    let (mut compared, mut without_memory, mut huge) = (0, 0, 0);
    let mut pids: Vec<(String, u32)> = animals
        .iter()
        .map(|animal| (animal.name.to_owned(), animal.pid as u32))
        .collect();
    pids.push(("kernel thread".to_owned(), 2));
    for (name, pid) in &pids {
        // A process whose first thread has ended has the memory of its other threads.
        let other = fs::read_dir(format!("/proc/{pid}/task")).expect("threads").last();
        let other = other.expect("a thread").expect("a thread").file_name();
        let expected = text(&format!("/proc/{pid}/task/{}/maps", other.to_string_lossy()));
        let mut page_sizes = BTreeSet::new();
        for source in sources() {
            let mut maps = maps(*pid, source);
            if expected.is_empty() {
                let error = maps.list(Filter::default(), MapField::Name).expect_err("no memory");
                assert_eq!(error.kind(), ErrorKind::NoMemory, "{name} {source}: {error}");
                assert!(error.to_string().contains(&format!("pid {pid}: no memory")), "{error}");
                without_memory += 1;
                continue;
            }
            for filter in filters() {
                let expected: Vec<Common> = expected.iter().filter(|line| line.passes(filter)).cloned().collect();
                let listed = maps.list(filter, MapField::Name | MapField::PageSizeBytes);
                let listed = listed.unwrap_or_else(|error| panic!("{name} {source}: {error}"));
                assert_eq!(listed.source(), source);
                let ours = common(&listed);
                let wrong = expected.iter().zip(&ours).find(|(theirs, ours)| theirs != ours);
                assert!(
                    wrong.is_none() && expected.len() == ours.len(),
                    "{name} {source} {filter:?}: {} instead of {} mappings, {wrong:?}",
                    ours.len(),
                    expected.len()
                );
                compared += ours.len();
            }
            if source != SourceId::Procfs {
                let listed = maps.list(Filter::default(), MapField::PageSizeBytes).expect("mappings");
                let sizes: Vec<u64> = listed
                    .iter()
                    .map(|mapping| {
                        mapping
                            .page_size_bytes
                            .unwrap_or_else(|_| panic!("{source} {name}: {mapping:?}"))
                    })
                    .collect();
                huge += sizes.iter().filter(|&&size| size > 4096).count();
                page_sizes.insert(sizes);
            }
        }
        assert!(page_sizes.len() <= 1, "{name}: page sizes differ");
    }
    println!("{compared} mappings of {} processes, {huge} of huge pages", pids.len());
    assert!(
        compared > 5000 && pids.len() > 40 && without_memory >= 2 * sources().len(),
        "{compared} {without_memory}"
    );
}

/// The known mappings of the animal `mappings`.
fn known(animal: &taskdiag_zoo::Animal) -> Vec<(u64, u64, String, u64, Vec<u8>)> {
    let hex = |word: &[u8]| u64::from_str_radix(std::str::from_utf8(word).expect("ASCII"), 16).expect("a number");
    let facts = animal.facts.mappings.as_ref().expect("known mappings");
    let known = facts.iter().map(|fact| {
        let words: Vec<&[u8]> = fact.splitn(4, |&byte| byte == b' ').collect();
        let dash = words[0].iter().position(|&byte| byte == b'-').expect("a range");
        let (start, end) = (hex(&words[0][..dash]), hex(&words[0][dash + 1..]));
        let perms = String::from_utf8(words[1].to_vec()).expect("ASCII");
        (start, end, perms, hex(words[2]), words[3].to_vec())
    });
    known.collect()
}

/// Check that known mappings are found by address, even by their first and last one, and that
/// nothing is found in gaps.
#[test]
fn known_mappings_are_found_by_address() {
    let animal = animal("mappings");
    let known = known(&animal);
    assert!(known.len() >= 12);
    for source in sources() {
        let mut maps = maps(animal.pid as u32, source);
        for (start, end, perms, offset, name) in &known {
            for address in [*start, end - 1] {
                let found = maps
                    .at(address, Filter::default(), MapField::Name)
                    .expect("an answer")
                    .expect("a mapping");
                assert_eq!((found.start, found.end), (*start, *end), "{source}");
                assert_eq!(
                    (found.perms.to_string(), found.offset_bytes),
                    (perms.clone(), *offset),
                    "{source}"
                );
                assert_eq!(
                    found.name.map(<[u8]>::escape_ascii).map(|name| name.to_string()),
                    Ok(name.escape_ascii().to_string())
                );
                assert_eq!(found.perms.contains(Perms::SHARED), perms.ends_with('s'));
            }
            let is_written = perms.contains('w');
            let writable = maps.at(*start, Perms::WRITE, Set::NONE).expect("an answer");
            assert_eq!(writable.is_some(), is_written, "{source}: a filter");
            let is_gap_before = !known.iter().any(|other| other.1 == *start);
            if is_gap_before {
                assert_eq!(
                    maps.at(start - 1, Filter::default(), Set::NONE).expect("an answer"),
                    None,
                    "{source}"
                );
                let next = maps.at_or_after(start - 1, Filter::default(), Set::NONE);
                assert_eq!(
                    next.expect("an answer").map(|next| next.start),
                    Some(*start),
                    "{source}"
                );
            }
        }
        let shared = maps
            .at_or_after(known[0].0, Perms::SHARED, MapField::Name)
            .expect("an answer")
            .expect("shared memory");
        assert!(shared.perms.contains(Perms::SHARED) && shared.start > known[0].0);
        let last = maps
            .at_or_after(1 << 63, Filter::default(), MapField::Name)
            .expect("an answer");
        assert_eq!(last, None, "{source}: the kernel's half");
    }
}

/// Check that addresses in any order, repeated, at edges and in gaps, have the same result as
/// single look-ups.
#[test]
fn many_addresses_are_as_single_ones() {
    let animal = animal("mappings");
    let lines = text(&format!("/proc/{}/maps", animal.pid));
    let mut addresses: Vec<u64> = lines
        .iter()
        .flat_map(|line| {
            [
                line.range.0,
                line.range.0 - 1,
                line.range.1 - 1,
                line.range.1,
                line.range.0,
            ]
        })
        .collect();
    addresses.extend([0, 1 << 63, u64::MAX]);
    // Shuffled, in the same way at each run.
    addresses.sort_by_key(|address| address.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let expected: Vec<Option<&Common>> = addresses
        .iter()
        .map(|address| lines.iter().find(|line| (line.range.0..line.range.1).contains(address)))
        .collect();
    for source in sources() {
        let found = maps(animal.pid as u32, source)
            .at_each(&addresses, MapField::Name)
            .expect("an answer");
        let ours: Vec<Option<Common>> = found
            .places
            .iter()
            .map(|place| place.map(|index| Common::new(&found.mappings.get(index))))
            .collect();
        assert!(ours.iter().map(Option::as_ref).eq(expected.iter().copied()), "{source}");
        assert!(found.mappings.len() <= lines.len());
    }
}

/// Check that each source lists a process with 40,000 mappings completely, and that a few addresses
/// in it are looked up rather than listed.
#[test]
fn tens_of_thousands_of_mappings() {
    let count = scaled(40_000).max(5_000);
    let animal = Zoo::new().expect("a zoo").with_mappings(count).expect("a process");
    let expected = text(&format!("/proc/{}/maps", animal.pid));
    assert!(expected.len() >= count);
    let addresses: Vec<u64> = expected
        .iter()
        .step_by(expected.len() / 60)
        .map(|line| line.range.0 + 1)
        .collect();
    for source in sources() {
        let mut maps = maps(animal.pid as u32, source);
        assert!(
            common(&maps.list(Filter::default(), MapField::Name).expect("mappings")) == expected,
            "{source}"
        );
        let exec = common(&maps.list(Perms::EXEC, MapField::Name).expect("mappings"));
        assert!(
            exec.iter()
                .eq(expected.iter().filter(|line| line.passes(Perms::EXEC.into()))),
            "{source}"
        );
        let found = maps.at_each(&addresses, Set::NONE).expect("an answer");
        assert!(found.places.iter().all(Option::is_some) && found.mappings.len() <= addresses.len());
    }
    // The library itself reads no text if the ioctl exists.
    let mut free = open(animal.pid as u32).expect("a process");
    let has_ioctl = sources().contains(&SourceId::Procmap);
    let expected = if has_ioctl { SourceId::Procmap } else { SourceId::Procfs };
    assert_eq!(
        free.at_each(&addresses, MapField::Name)
            .expect("an answer")
            .mappings
            .source(),
        expected
    );
    assert_eq!(
        free.list(Filter::default(), MapField::Name).expect("mappings").source(),
        expected
    );
}

/// Check that a handle stays with the memory that it was opened on: after execve(2) it fails, and
/// never answers about the new memory.
#[test]
fn replaced_memory_is_gone() {
    for source in sources() {
        let mut animal = animal("title-changer");
        let mut before = maps(animal.pid as u32, source);
        let mut untouched = maps(animal.pid as u32, source);
        before.list(Filter::default(), MapField::Name).expect("mappings");
        animal.exec_with(&[b"another"]).expect("exec");
        for maps in [&mut before, &mut untouched] {
            let error = maps.list(Filter::default(), MapField::Name).expect_err("gone");
            assert_eq!(error.kind(), ErrorKind::NoMemory, "{source}: {error}");
            let error = maps.at(0x1000, Filter::default(), MapField::Name).expect_err("gone");
            assert_eq!(error.kind(), ErrorKind::NoMemory, "{source}: {error}");
        }
        let mut after = maps(animal.pid as u32, source);
        assert!(!after
            .list(Filter::default(), MapField::Name)
            .expect("mappings")
            .is_empty());
        drop(animal);
        let error = after.list(Filter::default(), MapField::Name).expect_err("ended");
        assert_eq!(error.kind(), ErrorKind::NoMemory, "{source}: {error}");
    }
    let error = open(4_000_000_000).expect_err("no such process");
    assert_eq!(error.kind(), ErrorKind::NoSuchTask);
}

/// A mapping of this process.
struct Mapped(*mut libc::c_void, usize);

impl Mapped {
    fn of(file: &fs::File, len: usize, protection: i32) -> Mapped {
        // SAFETY: a new mapping at an address of the kernel's choice; nobody reads what is in it.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Mapped(at, len)
    }

    fn address(&self) -> u64 {
        self.0 as u64
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing refers to.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

/// Check that every source truncates a name that is longer than a page.
#[test]
fn names_can_be_too_long() {
    let scratch = Directory::new("maps-long");
    let part = "d".repeat(250);
    let mut dir = fs::File::open(&*scratch).expect("a directory");
    for _ in 0..17 {
        rustix::fs::mkdirat(&dir, &part, 0o700.into()).expect("a directory");
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        dir = rustix::fs::openat(&dir, &part, flags, rustix::fs::Mode::empty())
            .expect("a directory")
            .into();
    }
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CREATE | rustix::fs::OFlags::CLOEXEC;
    let file: fs::File = rustix::fs::openat(&dir, "file", flags, 0o600.into())
        .expect("a file")
        .into();
    file.set_len(4096).expect("a page");
    let mapped = Mapped::of(&file, 4096, libc::PROT_READ);
    for source in sources() {
        let mut maps = maps(std::process::id(), source);
        let found = maps
            .at(mapped.address(), Filter::default(), MapField::Name)
            .expect("an answer")
            .expect("a mapping");
        assert_eq!(found.name, Err(Absent::Truncated), "{source}");
        assert_eq!(found.start, mapped.address());
        let normalized = Normalizer::new()
            .build_ids(false)
            .normalize(&mut maps, &[mapped.address() + 5])
            .expect("an answer");
        assert_eq!(normalized.outcomes, [Outcome::InFile { file: 0, offset: 5 }]);
        assert_eq!(normalized.files[0].path, Err(Absent::Truncated));
    }
}

/// Check that resident and dirty sizes are there, and that page sizes come with them.
#[test]
fn usage_is_that_of_smaps() {
    let animal = animal("memory-anon");
    let mut maps = open(animal.pid as u32).expect("a process");
    let listed = maps
        .list(Filter::default(), MapField::Name | MapField::RssBytes)
        .expect("mappings");
    assert_eq!(common(&listed), text(&format!("/proc/{}/maps", animal.pid)));
    let dirty = |mapping: &Mapping<'_>| mapping.dirty_bytes.expect("a size");
    let large = listed
        .iter()
        .filter(|mapping| mapping.inode == 0)
        .map(|mapping| dirty(&mapping))
        .max();
    assert!(large >= animal.facts.anon_at_least_bytes, "{large:?}");
    assert!(listed.iter().all(|mapping| mapping.page_size_bytes == Ok(4096)));
    let dead_leader = taskdiag_testkit::animal("dead-leader");
    let listed_of_others = open(dead_leader.pid as u32)
        .and_then(|mut maps| maps.list(Filter::default(), MapField::Name | MapField::RssBytes))
        .expect("the memory of the other threads");
    assert!(listed_of_others.iter().any(|mapping| dirty(&mapping) > 0));
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", animal.pid)).expect("smaps");
    let rss = smaps.lines().filter_map(|line| {
        line.strip_prefix("Rss:")?
            .trim()
            .strip_suffix(" kB")?
            .parse::<u64>()
            .ok()
    });
    let ours: u64 = listed.iter().map(|mapping| mapping.rss_bytes.expect("a size")).sum();
    assert_eq!(ours, rss.sum::<u64>() * 1024);
}

/// Check that a caller without rights sees its own mappings and those of descriptors passed to it,
/// and is denied others.
#[test]
fn descriptors_can_be_handed_on() {
    const HANDED: &str = "TASKDIAG_TEST_MAPS_FD";
    let test = test_name!();
    if child::part().is_none() {
        if !is_root() {
            println!("not root, so there is nobody to hand a descriptor to");
            return;
        }
        let animal = animal("mappings");
        let maps = open(animal.pid as u32).expect("a process");
        let handed = rustix::io::fcntl_dupfd_cloexec(maps.fd().expect("memory"), 300).expect("a descriptor");
        rustix::io::fcntl_setfd(&handed, rustix::io::FdFlags::empty()).expect("it is ours");
        let world = World {
            user: Some(NOBODY),
            ..World::default()
        };
        let output = child::command(test, "nobody", world)
            .env(HANDED, format!("{} {}", handed.as_raw_fd(), animal.pid))
            .output()
            .expect("starting the second process");
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.contains("part nobody is done"),
            "{said}"
        );
        let count = text(&format!("/proc/{}/maps", animal.pid)).len();
        assert!(said.contains(&format!("{count} mappings")), "{said}");
        return;
    }
    child::run(test, "nobody", World::default(), || {
        let handed = std::env::var(HANDED).expect("a descriptor");
        let (fd, pid) = handed.split_once(' ').expect("two numbers");
        // SAFETY: inherited for this purpose, and owned by no other object.
        let fd = unsafe { OwnedFd::from_raw_fd(fd.parse().expect("a number")) };
        let mut handed_on = Handle::new().maps_of_fd(fd);
        let listed = handed_on
            .list(Filter::default(), MapField::Name | MapField::BuildId)
            .expect("mappings");
        println!("{} mappings", listed.len());
        let exec = listed
            .iter()
            .find(|mapping| mapping.perms.contains(Perms::EXEC))
            .expect("a program");
        let normalized = Normalizer::new()
            .normalize(&mut handed_on, &[exec.start + 1])
            .expect("an answer");
        assert!(
            matches!(normalized.outcomes[..], [Outcome::InFile { .. }]),
            "{normalized:?}"
        );
        let pid = pid.parse().expect("a number");
        let error = open(pid).expect_err("another user's");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("try sudo"), "{error}");
        let mut own = Handle::new().maps(std::process::id()).expect("our own");
        let normalized = Normalizer::new()
            .normalize(&mut own, &[sources as *const () as u64])
            .expect("an answer");
        assert!(
            matches!(normalized.outcomes[..], [Outcome::InFile { .. }]),
            "{normalized:?}"
        );
        let error = maps(std::process::id(), SourceId::Bpf)
            .list(Filter::default(), MapField::Name)
            .expect_err("no capabilities");
        let refused = if kernel() < (6, 11) {
            ErrorKind::Unsupported
        } else {
            ErrorKind::Denied
        };
        assert_eq!(error.kind(), refused, "{error}");
        let all = handle()
            .all_maps(Perms::EXEC, MapField::Name)
            .expect("what may be seen");
        let singly = if kernel() < (6, 11) {
            SourceId::Procfs
        } else {
            SourceId::Procmap
        };
        assert!(all.denied > 0 && all.mappings.source() == singly);
        assert!(all
            .mappings
            .iter()
            .any(|mapping| mapping.pid == Some(std::process::id())));
    });
}

/// Check that a descriptor of another file is refused.
#[test]
fn other_files_are_no_maps() {
    for path in ["/proc/self/status", "/proc/self/cmdline", "/etc/passwd"] {
        let mut maps = Handle::new().maps_of_fd(fs::File::open(path).expect("a file").into());
        let error = maps.list(Filter::default(), MapField::Name).expect_err("no maps file");
        assert_eq!(error.kind(), ErrorKind::Malformed, "{path}: {error}");
    }
}

/// Check that the calling thread gives the same answers as a reader.
#[test]
fn waiting_does_not_change_answers() {
    let animal = animal("mappings");
    let pid = animal.pid as u32;
    let list = |mut maps: Maps| maps.list(Perms::EXEC, MapField::Name);
    let read = list(maps(pid, SourceId::Procfs)).expect("an answer");
    let waited = list(maps(pid, SourceId::Procfs).in_calling_thread()).expect("an answer");
    assert!(!read.is_empty() && read.iter().eq(waited.iter()));
    let exec = read.get(0);
    let mut waiting = open(pid).expect("it lives").in_calling_thread();
    let at = waiting
        .at(exec.start, Filter::default(), MapField::Name)
        .expect("an answer");
    assert_eq!(
        at.map(|mapping| (mapping.start, mapping.name)),
        Some((exec.start, exec.name))
    );
}

/// Check that the ioctl, as the chosen source, answers about mappings of single processes, and
/// leaves the source of tasks free.
#[test]
fn the_ioctl_is_a_source_of_mappings_alone() {
    let own = std::process::id();
    let mut handle = handle().with_source(SourceId::Procmap);
    let tasks = handle
        .query(&Query::process(own).fields(Field::Comm))
        .expect("other sources");
    assert!(tasks.answers().all(|(_, answer)| answer.is_ok()));
    let listed = handle
        .maps(own)
        .and_then(|mut maps| maps.list(Filter::default(), MapField::Name));
    match listed {
        Ok(listed) => assert_eq!(listed.source(), SourceId::Procmap),
        Err(error) => assert!(error.kind() == ErrorKind::Unsupported && kernel() < (6, 11), "{error}"),
    }
    let error = handle.all_maps(Perms::EXEC, MapField::Name).expect_err("a refusal");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
