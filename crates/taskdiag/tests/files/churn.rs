//! Files that are opened and closed by the thousand while they are listed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use taskdiag_testkit::temporary::Directory;
use taskdiag_testkit::{scaled, Stop};

use super::*;

/// Check that files that are open all the time are in each answer, with their own names, and that
/// no name is combined with the inode number of another file.
#[test]
fn steady_files_are_in_each_answer() {
    let directory = Directory::new("files");
    let names: Vec<PathBuf> = (0..16).map(|index| directory.join(format!("churn {index}"))).collect();
    let mut inodes: HashMap<Vec<u8>, u64> = HashMap::new();
    for name in &names {
        fs::write(name, b"x").expect("a file");
        let inode = fs::metadata(name).expect("its stat").ino();
        inodes.insert(name.as_os_str().as_bytes().to_vec(), inode);
    }
    let steady: Vec<File> = (0..64)
        .map(|index| {
            let path = directory.join(format!("steady {index}"));
            fs::write(&path, b"x").expect("a file");
            File::open(&path).expect("the file")
        })
        .collect();
    let (is_over, opened) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for churner in 0..2 {
            let (is_over, opened, names) = (&is_over, &opened, &names);
            scope.spawn(move || {
                let mut at = churner;
                while !is_over.load(Ordering::Relaxed) {
                    // Descriptors of several kinds reuse each other's numbers.
                    let files: Vec<File> = (0..8)
                        .map(|index| File::open(&names[(at + index) % names.len()]).expect("a file"))
                        .collect();
                    let pair = UnixStream::pair().expect("sockets");
                    opened.fetch_add(10, Ordering::Relaxed);
                    drop(files);
                    drop(pair);
                    at += 3;
                }
            });
        }
        let _stop = Stop(&is_over);
        let own = std::process::id();
        for source in SOURCES {
            let mut handle = handle(source);
            let mut changed = 0;
            let answers = scaled(200);
            let before = opened.load(Ordering::Relaxed);
            for _ in 0..answers {
                let wants = Request::default().fields;
                let (rows, answer) = list(&mut handle, &Query::these([own]), &request(wants));
                changed += answer.changed;
                let found: HashMap<u32, &Row> = rows.iter().filter_map(|row| Some((row.fd?, row))).collect();
                for (index, file) in steady.iter().enumerate() {
                    let fd = file.as_raw_fd() as u32;
                    let row = found.get(&fd).unwrap_or_else(|| panic!("{source}: {fd} is missing"));
                    let name = directory.join(format!("steady {index}"));
                    assert_eq!(row.name.as_deref(), Ok(name.as_os_str().as_bytes()), "{source}");
                    assert_eq!(
                        row.inode,
                        file.metadata().map(|stat| stat.ino()).map_err(|_| Absent::Gone),
                        "{source}"
                    );
                }
                for row in &rows {
                    let Ok(name) = &row.name else { continue };
                    if let Some(inode) = inodes.get(name) {
                        assert_eq!((row.inode, row.kind), (Ok(*inode), Ok(Kind::File)), "{source}: {row:?}");
                        assert_eq!(
                            row.open_flags.map(|flags| flags.map(|flags| flags & 3)),
                            Ok(Some(0)),
                            "{source}: {row:?}"
                        );
                    }
                    if name.starts_with(b"socket:[") {
                        assert_eq!(row.kind, Ok(Kind::Socket), "{source}: {row:?}");
                        let text = format!("socket:[{}]", row.inode.expect("its number"));
                        assert_eq!(name, text.as_bytes(), "{source}: {row:?}");
                    }
                }
            }
            let opened = opened.load(Ordering::Relaxed) - before;
            println!("{source}: {answers} answers, {opened} descriptors opened meanwhile, {changed} left out");
            assert!(opened > 1000, "{source}: {opened}");
        }
    });
}

/// Check that a file with two mappings is in each answer, though the first of them comes and goes.
///
/// In a process of its own: since Linux 6.17 the kernel's text may lack a mapping if others appear and
/// disappear around it, as they do where other tests start threads.
#[test]
fn files_are_found_by_other_mappings() {
    child::run(test_name!(), "alone", child::World::default(), || {
        let directory = Directory::new("mapped");
        let path = directory.join("file");
        fs::write(&path, b"x").expect("a file");
        let file = File::open(&path).expect("the file");
        let map = |address: usize, flags| {
            let address = std::ptr::with_exposed_provenance_mut(address);
            let fd = if flags & libc::MAP_ANONYMOUS == 0 {
                file.as_raw_fd()
            } else {
                -1
            };
            // SAFETY: a new mapping; with MAP_FIXED it takes the place of one that nobody reads.
            let mapped = unsafe { libc::mmap(address, 4096, libc::PROT_READ, flags, fd, 0) };
            assert_ne!(mapped, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            mapped.expose_provenance()
        };
        let (one, other) = (map(0, libc::MAP_SHARED), map(0, libc::MAP_SHARED));
        let first = one.min(other);
        let mut request = request(FileField::Name | FileField::Inode);
        request.uses = Use::Map.into();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    map(first, libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS);
                    map(first, libc::MAP_SHARED | libc::MAP_FIXED);
                }
            });
            let _stop = Stop(&is_over);
            let mut handle = handle(SourceId::Procfs);
            let mut missing = 0;
            for _ in 0..scaled(1000) {
                let (rows, _) = list(&mut handle, &Query::these([std::process::id()]), &request);
                let is_it = |row: &&Row| row.name.as_deref() == Ok(path.as_os_str().as_bytes());
                missing += u32::from(rows.iter().filter(is_it).count() != 1);
            }
            assert_eq!(missing, 0);
        });
    });
}
