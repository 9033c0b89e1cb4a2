//! Files that processes hold.

use super::*;

fn held_files(pid: u32, seen: &mut Seen, each: &mut dyn FnMut(pagecache::File<'_>)) -> Result<(), taskdiag::Error> {
    let patience = std::time::Duration::from_secs(5);
    Finder::new(Source::of_this_host(), ByteRange::ALL, patience).held_files(pid, seen, each)
}

/// Check that all files that a process holds are found: open, only mapped, deleted, in memory; with
/// and without the right to follow its mappings. Anything but regular files is left out.
#[test]
fn held_files_are_found() {
    let world = |user| World {
        user,
        ..World::default()
    };
    for (name, user) in [("root", None), ("nobody", Some(NOBODY))] {
        child::run(test_name!(), name, world(user), || {
            let scratch = Scratch::in_memory(&format!("held-{name}"));
            let open = scratch.file("open\nfile");
            write_pages(&open, 0, 2);
            let deleted = scratch.file("deleted");
            write_pages(&deleted, 0, 3);
            fs::remove_file(scratch.0.join("deleted")).expect("our own");
            let memory = rustix::fs::memfd_create(c"memory", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
            write_pages(&File::from(memory.try_clone().expect("a copy")), 0, 4);
            let mapped = scratch.file("mapped");
            write_pages(&mapped, 0, 5);
            // SAFETY: a new mapping, which stays.
            let start = unsafe {
                let len = 5 * page_size() as usize;
                libc::mmap(
                    ptr::null_mut(),
                    len,
                    libc::PROT_READ,
                    libc::MAP_SHARED,
                    mapped.as_raw_fd(),
                    0,
                )
            };
            assert_ne!(start, libc::MAP_FAILED);
            drop(mapped);
            // SAFETY: a new descriptor, or an error.
            let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
            // SAFETY: nobody else has it.
            let _event = (event >= 0).then(|| unsafe { OwnedFd::from_raw_fd(event) });
            let mut found = BTreeMap::new();
            let mut seen = Seen::default();
            held_files(std::process::id(), &mut seen, &mut |held| {
                let cached = held.usage.map(|usage| usage.cached_pages());
                let before = found.insert(held.path.to_vec(), cached);
                assert!(before.is_none(), "{} twice", OsStr::from_bytes(held.path).display());
            })
            .expect("our own files");
            let path = |name: &str| scratch.0.join(name).into_os_string().into_vec();
            for (path, pages) in [
                (path("open\nfile"), 2),
                (path("deleted (deleted)"), 3),
                (b"/memfd:memory (deleted)".to_vec(), 4),
                (path("mapped"), 5),
            ] {
                assert_eq!(
                    found.get(&path),
                    Some(&Ok(pages)),
                    "{}: {found:?}",
                    OsStr::from_bytes(&path).display()
                );
            }
            assert!(!found.keys().any(|path| path.starts_with(b"anon_inode")));
            // The ids of all files come with each call, and what is known of them with the first.
            let ids = |seen: &mut Seen| {
                let patience = std::time::Duration::from_secs(5);
                let mut finder = Finder::new(Source::of_this_host(), ByteRange::ALL, patience);
                let (mut ids, mut known) = (BTreeSet::new(), 0);
                finder
                    .all_held_files(std::process::id(), seen, &mut |id, file| {
                        ids.insert(id);
                        known += usize::from(file.is_some_and(|file| file.usage.is_ok()));
                    })
                    .expect("our own files");
                (ids, known)
            };
            let (first, again) = (ids(&mut Seen::default()), ids(&mut seen));
            assert_eq!((first.0.len(), again), (found.len(), (first.0.clone(), 0)));
            let is_known = |usage: &&Result<u64, Absent>| usage.is_ok();
            assert_eq!(first.1, found.values().filter(is_known).count());
            // Several calls do not report a file twice, either.
            let mut again = 0;
            held_files(std::process::id(), &mut seen, &mut |held| {
                again += usize::from(held.usage.is_ok())
            })
            .expect("again");
            assert_eq!(again, 0);
        });
    }
    // A kernel thread has none, although it exists.
    if child::part().is_none() {
        assert_eq!(fs::read("/proc/2/comm").expect("a process"), b"kthreadd\n");
        held_files(2, &mut Seen::default(), &mut |held| panic!("{held:?}")).expect("no files");
    }
    let error = held_files(u32::MAX, &mut Seen::default(), &mut |_| {}).expect_err("no such process");
    assert_eq!(error.kind(), ErrorKind::NoSuchTask);
}

/// Check that the files of another user's process are denied.
#[test]
fn files_of_others_are_denied() {
    let world = World {
        user: Some(NOBODY),
        ..World::default()
    };
    child::run(test_name!(), "nobody", world, || {
        let root = std::os::unix::process::parent_id();
        let owner = fs::metadata(format!("/proc/{root}")).expect("the parent").uid();
        assert_ne!(owner, NOBODY);
        let error = held_files(root, &mut Seen::default(), &mut |_| {}).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    });
}
