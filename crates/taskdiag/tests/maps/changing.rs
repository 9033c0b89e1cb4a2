//! Processes that change or end while they are read.

use super::*;

const PAGES: u64 = 64;

/// Changes parts of a mapping until it is stopped: the permissions of single pages change, so that
/// mappings split and merge; the pages of the middle third are unmapped and mapped again, and are
/// elsewhere for a while.
fn disturb(base: u64, file: &fs::File, stop: &AtomicBool) -> u64 {
    const PAGE: u64 = 4096;
    let page = |index: u64| (base + index * PAGE) as *mut libc::c_void;
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let at = rounds % PAGES;
        let protection =
            [libc::PROT_READ, libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE][(rounds / PAGES % 3) as usize];
        let (third, len) = (PAGES / 3, (PAGES / 3 * PAGE) as usize);
        // SAFETY: pages of a mapping that was made for this and whose content nobody reads.
        unsafe {
            assert_eq!(libc::mprotect(page(at), PAGE as usize, protection), 0);
            if rounds % 7 == 0 {
                assert_eq!(libc::munmap(page(third), len), 0);
                let offset = (third * PAGE) as libc::off_t;
                let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
                let again = libc::mmap(page(third), len, libc::PROT_READ, flags, file.as_raw_fd(), offset);
                assert_eq!(again, page(third));
            }
            if rounds % 11 == 0 {
                let away = libc::mremap(
                    page(third),
                    PAGE as usize,
                    PAGE as usize,
                    libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                    page(2 * PAGES),
                );
                assert_eq!(away, page(2 * PAGES));
                let back = libc::mremap(
                    away,
                    PAGE as usize,
                    PAGE as usize,
                    libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                    page(third),
                );
                assert_eq!(back, page(third));
            }
        }
        rounds += 1;
    }
    rounds
}

/// Our own pages of a file, most of which change all the time.
struct Changing {
    _scratch: Directory,
    file: fs::File,
    inode: u64,
    base: u64,
}

const PAGE: u64 = 4096;
const THIRD: u64 = PAGES / 3;

impl Changing {
    fn new(name: &str, base: u64) -> Changing {
        let scratch = Directory::new(&format!("maps-{name}"));
        let path = scratch.join("file");
        fs::write(&path, vec![1; (PAGES * PAGE) as usize]).expect("a file");
        let file = fs::File::open(&path).expect("the file");
        // SAFETY: nothing is mapped there yet.
        let at = unsafe {
            libc::mmap(
                base as *mut libc::c_void,
                (PAGES * PAGE) as usize,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE,
                file.as_raw_fd(),
                0,
            )
        };
        assert_eq!(at as u64, base);
        Changing {
            inode: std::os::unix::fs::MetadataExt::ino(&file.metadata().expect("its inode")),
            _scratch: scratch,
            file,
            base,
        }
    }

    /// Runs `ask` while the pages change.
    fn beside(&self, ask: impl FnOnce()) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| disturb(self.base, &self.file, &stop));
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask));
            stop.store(true, Ordering::Relaxed);
            let rounds = worker.join().expect("the worker");
            println!("{rounds} changes");
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
            assert!(rounds > 100, "only {rounds} changes");
        });
    }

    /// Whether a page is always mapped.
    fn is_steady(&self, address: u64) -> bool {
        !(THIRD..THIRD * 2).contains(&((address - self.base) / PAGE))
    }

    /// Check that a mapping, if it is of these pages, has the file at its own offset.
    fn check(&self, mapping: &Mapping<'_>) {
        let (start, end) = (mapping.start.max(self.base), mapping.end.min(self.base + PAGES * PAGE));
        if start < end && mapping.inode == self.inode {
            assert_eq!(
                mapping.offset_bytes + (start - mapping.start),
                start - self.base,
                "{mapping:x?}"
            );
        }
    }

    /// Check that a list is ascending and has no page twice. Returns how many of the always-mapped
    /// pages are missing.
    fn lacking<'a>(&self, list: impl IntoIterator<Item = Mapping<'a>>) -> u64 {
        let (mut end, mut steady) = (0, 0);
        for mapping in list {
            assert!(
                mapping.start >= end && mapping.start < mapping.end,
                "{mapping:x?} after {end:#x}"
            );
            end = mapping.end;
            self.check(&mapping);
            for first in [0, THIRD * 2] {
                let start = self.base + first * PAGE;
                let (from, to) = (mapping.start.max(start), mapping.end.min(start + THIRD * PAGE));
                steady += to.saturating_sub(from) / PAGE;
            }
        }
        THIRD * 2 - steady
    }
}

/// Check that every answer is true while a process changes its mappings: a page is at its own
/// offset of its own file or nowhere, lists are ascending and have no page twice, and pages that
/// are always mapped are in all of them.
#[test]
fn a_changing_process_is_read_truly() {
    // Other mappings are placed where there is room below, so nothing else is mapped into a gap.
    let changing = Changing::new("race", 0x2100_0000_0000);
    let base = changing.base;
    changing.beside(|| {
        for source in sources() {
            let mut maps = maps(std::process::id(), source);
            let mut missed = Vec::new();
            let rounds = scaled(if source == SourceId::Bpf { 60 } else { 300 });
            for round in 0..rounds {
                let addresses: Vec<u64> = (0..PAGES)
                    .map(|index| base + (index * 37 + round as u64) % PAGES * PAGE + 9)
                    .collect();
                let found = maps.at_each(&addresses, MapField::Name).expect("an answer");
                let mut lost = Vec::new();
                for (address, place) in addresses.iter().zip(&found.places) {
                    let mapping = place.map(|index| found.mappings.get(index));
                    if mapping.is_none() && changing.is_steady(*address) {
                        lost.push(*address);
                    }
                    if let Some(mapping) = mapping {
                        assert!((mapping.start..mapping.end).contains(address));
                        changing.check(&mapping);
                    }
                }
                if !lost.is_empty() {
                    missed.push(format!("{source} {round}: {lost:#x?}"));
                }
                let listed = maps.list(Filter::default(), MapField::Name).expect("mappings");
                match changing.lacking(&listed) {
                    0 => {}
                    pages => missed.push(format!("{source} {round}: {pages} pages not in a list")),
                }
            }
            println!("{source}: always mapped, but missed: {missed:?}");
            // The text is made without the lock since 6.17 (fs/proc/task_mmu.c), and the kernel
            // leaves mappings out of it: another program, which did nothing but read the text
            // beside these changes, missed pages in 127 of 849,615 readings. One is tolerated,
            // and printed.
            let allowed = usize::from(source == SourceId::Procfs);
            assert!(missed.len() <= allowed, "{source}: {missed:?}");
        }
    });
}

/// Check the same for a process among all others.
#[test]
fn a_changing_process_is_listed_truly() {
    let changing = Changing::new("machine-race", 0x2200_0000_0000);
    let mut machine = handle();
    if sources().contains(&SourceId::Bpf) {
        machine.prepare_maps().expect("BPF");
    }
    changing.beside(|| {
        let mut deferred = 0;
        for round in 0..scaled(100) {
            let all = machine.all_maps(Filter::default(), MapField::Name).expect("mappings");
            let is_ours = |mapping: &Mapping<'_>| mapping.pid == Some(std::process::id());
            let lacking = changing.lacking(all.mappings.iter().filter(is_ours));
            assert_eq!(lacking, 0, "{round}: {}", all.mappings.source());
            deferred += all.deferred;
        }
        println!("{deferred} times a process was asked singly");
    });
}

/// Check that a process that starts, calls execve(2) or ends while it is read has an answer or a
/// defined reason.
#[test]
fn processes_that_end_meanwhile_have_reasons() {
    let mut answers = BTreeMap::new();
    for source in sources() {
        for round in 0..scaled(100) {
            let mut child = Command::new("cat")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a process");
            let mut stdin = child.stdin.take().expect("a pipe");
            let mut stdout = child.stdout.take().expect("a pipe");
            // A new process exists before it has memory of its own. Until then it has ours.
            stdin.write_all(b"?").expect("it reads");
            stdout.read_exact(&mut [0]).expect("it writes");
            let opened = handle().with_source(source).maps(child.id());
            drop(stdin);
            if round % 2 == 0 {
                stdout.read_to_end(&mut Vec::new()).expect("it ends");
            }
            let answer =
                opened.and_then(|mut maps| maps.list(Filter::default(), MapField::Name).map(|listed| listed.len()));
            let kind = match answer {
                Ok(len) => {
                    assert!(len > 0);
                    "answered".to_owned()
                }
                Err(error) => {
                    assert!(
                        matches!(error.kind(), ErrorKind::NoMemory | ErrorKind::NoSuchTask),
                        "{source}: {error}"
                    );
                    format!("{:?}", error.kind())
                }
            };
            *answers.entry(format!("{source} {kind}")).or_insert(0) += 1;
            child.wait().expect("it ends");
        }
    }
    println!("{answers:?}");
    assert!(answers.keys().any(|key| key.contains("NoMemory")), "{answers:?}");
}
