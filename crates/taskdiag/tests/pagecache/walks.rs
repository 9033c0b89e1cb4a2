//! Walks over trees: unusual ones, changing ones, and parts that the caller may not read.

use super::*;

type Bytes = Result<u64, Absent>;

/// The result of a walk.
#[derive(Debug, Default)]
struct Harvest {
    /// By path: sizes and cached bytes.
    files: BTreeMap<Vec<u8>, (Bytes, Bytes)>,
    twice: Vec<Vec<u8>>,
    directories: BTreeMap<Vec<u8>, (usize, u64, u64)>,
    /// By path: the numbers of errors.
    failed: BTreeMap<Vec<u8>, Option<i32>>,
    most_descriptors: usize,
}

fn harvest(walk: Walk, root: &Path) -> (Harvest, Totals) {
    let mut harvest = Harvest::default();
    let totals = walk
        .run(root, &mut Seen::default(), &AtomicBool::new(false), &mut |found| {
            match found {
                Found::File(file) => {
                    let cached = file.usage.and_then(|usage| usage.bytes(Quantity::Cached));
                    let before = harvest.files.insert(file.path.to_vec(), (file.size_bytes, cached));
                    if before.is_some() {
                        harvest.twice.push(file.path.to_vec());
                    }
                }
                Found::Directory { path, depth, sum, .. } => {
                    let entry = (depth, sum.files, sum.size_bytes);
                    harvest.directories.insert(path.to_vec(), entry);
                }
                Found::Failed { path, error, .. } => {
                    harvest.failed.insert(path.to_vec(), errno(error));
                }
                Found::Tick(_) => harvest.most_descriptors = harvest.most_descriptors.max(descriptors()),
                other => panic!("{other:?}"),
            }
            ControlFlow::Continue(())
        })
        .expect("a root");
    assert!(harvest.twice.is_empty(), "{:?}", harvest.twice);
    (harvest, totals)
}

/// How many descriptors are open in the largest table that a thread of this process has.
fn descriptors() -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("our own");
    let tables = threads.flatten().map(|thread| fs::read_dir(thread.path().join("fd")));
    // A thread may have ended meanwhile.
    tables.flatten().map(Iterator::count).max().unwrap_or(0)
}

/// Check that every regular file is found once with its size and page cache, that nothing else is
/// opened or followed, and that the walk does not wait.
#[test]
fn strange_trees_are_walked() {
    let scratch = Scratch::in_memory("strange");
    let root = &scratch.0;
    let names: [&[u8]; 6] = [
        b"plain",
        b"new\nline",
        b"\xff\xfe",
        b" ",
        b"\x1b[31m",
        "größe".as_bytes(),
    ];
    fs::create_dir_all(root.join("a/b/c")).expect("directories");
    for (index, name) in names.iter().enumerate() {
        fs::write(root.join("a/b").join(OsStr::from_bytes(name)), vec![0; index + 1]).expect("a file");
    }
    fs::write(root.join("a/linked"), [0; 100]).expect("a file");
    fs::hard_link(root.join("a/linked"), root.join("another name")).expect("a link");
    symlink("..", root.join("a/up")).expect("a link");
    symlink("linked", root.join("a/link to a file")).expect("a link");
    for kind in [libc::S_IFIFO, libc::S_IFSOCK] {
        let path = root.join(format!("a/{kind:o}"));
        let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: the path ends with a NUL.
        assert_eq!(unsafe { libc::mknod(path.as_ptr(), kind | 0o600, 0) }, 0);
    }
    let (harvest_of_files, totals) = harvest(Walk::new(), root);
    let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        let path = root.join("a/b").join(OsStr::from_bytes(name));
        expected.insert(path.into_os_string().into_vec(), index as u64 + 1);
    }
    let mut linked = 0;
    for (path, &(size, cached)) in &harvest_of_files.files {
        if size == Ok(100) {
            linked += 1;
        } else {
            assert_eq!(
                size.ok(),
                expected.remove(path),
                "{}",
                OsStr::from_bytes(path).display()
            );
        }
        assert_eq!(cached, Ok(page_size()));
    }
    assert!(
        expected.is_empty() && harvest_of_files.failed.is_empty(),
        "{expected:?}"
    );
    assert_eq!(
        (linked, totals.linked, totals.sum.files, totals.directories),
        (1, 1, 7, 4)
    );
    assert_eq!((totals.gone, totals.failed, totals.sum.size_bytes), (0, 0, 121));

    let walk = Walk::new().each_file(false);
    let (of_directories, again) = harvest(walk, root);
    assert!(of_directories.files.is_empty());
    assert_eq!(again, totals);
    let path = |name: &str| root.join(name).into_os_string().into_vec();
    assert_eq!(of_directories.directories[&path("a/b")], (2, 6, 21));
    assert_eq!(of_directories.directories[&path("a/b/c")], (3, 0, 0));
    assert_eq!(of_directories.directories.values().map(|entry| entry.1).sum::<u64>(), 7);

    // The path may be a link, but must lead to a file or a directory.
    symlink("a", root.join("link")).expect("a link");
    assert_eq!(harvest(Walk::new(), &root.join("link")).1.sum.files, 7);
    let refused = |path: &Path| {
        let result = Walk::new().run(path, &mut Seen::default(), &AtomicBool::new(false), &mut |_| {
            ControlFlow::Continue(())
        });
        result.expect_err("a refusal")
    };
    let fifo = refused(&root.join(format!("a/{:o}", libc::S_IFIFO)));
    assert_eq!(fifo.kind(), ErrorKind::InvalidInput);
    assert_eq!(refused(Path::new("/dev/null")).kind(), ErrorKind::InvalidInput);
    assert_eq!(errno(&refused(&root.join("missing"))), Some(libc::ENOENT));
}

/// Check that trees deeper than the longest path, and wider than any list of directories, are
/// walked completely with few descriptors.
#[test]
fn deep_and_wide_trees_are_walked_whole() {
    const DEEP: usize = 72;
    const SIDES: usize = 140;
    let wide = scaled(6000).max(1000);
    let scratch = Scratch::in_memory("deep");
    let name = "n".repeat(60);
    // At each level there are more directories than may wait. In one of the two trees, depending on
    // the kernel, the directory that goes deeper is listed last, when the list is full: a thread
    // then descends into it as far as it may.
    for is_first in [true, false] {
        let tree = scratch.0.join(format!("first-{is_first}"));
        fs::create_dir(&tree).expect("a directory");
        let mut directory = OwnedFd::from(File::open(&tree).expect("our own"));
        for _ in 0..DEEP {
            if is_first {
                make_directory(&directory, &name);
            }
            for side in 0..SIDES {
                make_directory(&directory, &side.to_string());
            }
            if !is_first {
                make_directory(&directory, &name);
            }
            directory = open_directory(&directory, &name);
            let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
            rustix::fs::openat(&directory, "file", flags, 0o644.into()).expect("a file");
        }
    }
    let wide_root = scratch.0.join("wide");
    for index in 0..wide {
        let path = wide_root.join(index.to_string()).join("x");
        fs::create_dir_all(&path).expect("directories");
        fs::write(path.join("file"), b"").expect("a file");
    }
    for threads in [1, 2, 5] {
        let walk = Walk::new().threads(threads);
        let started_with = descriptors();
        let (found, totals) = harvest(walk, &scratch.0);
        assert_eq!((found.failed.len(), totals.gone), (0, 0), "{:?}", found.failed);
        assert_eq!(found.files.len(), 2 * DEEP + wide);
        let directories = 1 + 2 * (1 + DEEP * (1 + SIDES)) + 1 + 2 * wide;
        assert_eq!(totals.directories as usize, directories);
        assert!(found.files.keys().any(|path| path.len() > DEEP * name.len()));
        let most = found.most_descriptors.saturating_sub(started_with);
        println!("{threads} threads: at most {most} descriptors");
        // All directories that may wait, and for each thread the levels that it descends and the
        // files that it closes together. Other tests of this process open some too.
        assert!(most < 128 + threads * (20 + 16) + 100, "{most} descriptors");
    }
}

fn make_directory(above: &impl AsFd, name: &str) {
    rustix::fs::mkdirat(above, name, 0o755.into()).expect("a directory");
}

fn open_directory(above: &impl AsFd, name: &str) -> OwnedFd {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, 0.into()).expect("a directory")
}

/// Check that directories mounted into themselves are read once, that other file systems are left
/// out on request, and `/proc` always.
#[test]
fn mounts_make_no_loops() {
    child::run(test_name!(), "mounts", World::default(), || {
        let scratch = Scratch::in_memory("mounts");
        let root = &scratch.0;
        for name in ["a/loop", "a/b", "other", "proc"] {
            fs::create_dir_all(root.join(name)).expect("directories");
        }
        fs::write(root.join("a/b/file"), b"x").expect("a file");
        let mount = |source: &Path, target: &str, kind: &std::ffi::CStr, flags| {
            let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("no NUL");
            let (source, target) = (text(source), text(&root.join(target)));
            // SAFETY: all texts end with a NUL.
            let result = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, ptr::null()) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        };
        mount(Path::new("tmpfs"), "other", c"tmpfs", 0);
        mount(Path::new("proc"), "proc", c"proc", 0);
        fs::write(root.join("other/file"), b"x").expect("a file");
        mount(root, "a/loop", c"none", libc::MS_BIND | libc::MS_REC);
        let (found, totals) = harvest(Walk::new(), root);
        assert_eq!(found.files.len(), 2, "{found:?}");
        assert_eq!((totals.sum.files, totals.again), (2, 1));
        assert!(totals.other_file_systems >= 1, "{totals:?}");
        let walk = Walk::new().one_file_system(true);
        let (found, totals) = harvest(walk, root);
        assert_eq!((found.files.len(), totals.other_file_systems), (1, 2), "{totals:?}");
        for name in ["a/loop", "other", "proc"] {
            unmount(&root.join(name));
        }
    });
}

/// Check that what the caller may not read is reported, and that the rest is found.
#[test]
fn unreadable_parts_are_reported() {
    let scratch = Scratch::shared("unreadable");
    let root = &scratch.0;
    if child::part().is_none() {
        for name in ["open", "closed"] {
            fs::create_dir(root.join(name)).expect("a directory");
            fs::write(root.join(name).join("file"), b"abc").expect("a file");
        }
        fs::write(root.join("open/secret"), b"secret").expect("a file");
        fs::set_permissions(root.join("open/secret"), Permissions::from_mode(0o600)).expect("our own");
        fs::set_permissions(root.join("closed"), Permissions::from_mode(0o700)).expect("our own");
        fs::write(root.join("open/own"), b"x").expect("a file");
        std::os::unix::fs::chown(root.join("open/own"), Some(NOBODY), None).expect("root may");
    }
    let world = World {
        user: Some(NOBODY),
        ..World::default()
    };
    child::run(test_name!(), "nobody", world, || {
        let (found, totals) = harvest(Walk::new(), root);
        let path = |name: &str| root.join(name).into_os_string().into_vec();
        assert_eq!(found.failed, [(path("closed"), Some(libc::EACCES))].into());
        let denied = |size| (Ok(size), Err(Absent::Denied));
        let expected = [
            (path("open/file"), denied(3)),
            (path("open/own"), (Ok(1), Ok(page_size()))),
            (path("open/secret"), denied(6)),
        ];
        assert_eq!(found.files, expected.into());
        assert_eq!((totals.sum.denied, totals.sum.answered, totals.failed), (2, 1, 1));
        assert_eq!(
            totals
                .sum
                .usage(Source::of_this_host())
                .map(|usage| usage.cached_pages()),
            Ok(1)
        );
    });
}

/// Check that in a continuously changing tree the files that stay are found, each once, and that no
/// walk fails or blocks.
#[test]
fn changing_trees_keep_what_stays() {
    const STEADY: usize = 200;
    let scratch = Scratch::in_memory("changing");
    let root = &scratch.0;
    for index in 0..STEADY {
        let directory = root.join(format!("steady/{}", index % 10));
        fs::create_dir_all(&directory).expect("directories");
        fs::write(directory.join(index.to_string()), b"x").expect("a file");
    }
    let stop = AtomicBool::new(false);
    let changes = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (stop, changes) = (&stop, &changes);
            scope.spawn(move || {
                for turn in 0.. {
                    let directory = root.join(format!("steady/{}/moving-{thread}-{}", turn % 10, turn % 7));
                    let _ = fs::create_dir_all(directory.join("deeper"));
                    let file = directory.join("deeper/file");
                    let _ = fs::write(&file, b"y");
                    let _ = fs::remove_file(&file);
                    // This name belonged to a file and is a FIFO now. Opening it would wait for a
                    // writer.
                    let path = CString::new(file.as_os_str().as_bytes()).expect("no NUL");
                    // SAFETY: the path ends with a NUL.
                    unsafe { libc::mkfifo(path.as_ptr(), 0o600) };
                    let _ = fs::rename(&directory, root.join(format!("renamed-{thread}")));
                    let _ = fs::remove_dir_all(root.join(format!("renamed-{thread}")));
                    let _ = fs::remove_dir_all(&directory);
                    changes.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let stopping = Stop(&stop);
        let mut gone = 0;
        for _ in 0..scaled(200) {
            let (found, totals) = harvest(Walk::new(), root);
            gone += totals.gone;
            assert!(found.failed.is_empty(), "{:?}", found.failed);
            let is_steady = |path: &&Vec<u8>| !path.ends_with(b"file");
            assert_eq!(found.files.keys().filter(is_steady).count(), STEADY);
        }
        drop(stopping);
        println!(
            "{} changes, {gone} files and directories went while they were looked at",
            changes.load(Ordering::Relaxed)
        );
    });
    assert!(changes.load(Ordering::Relaxed) > 0);
}

/// Check that the threads of a walk keep none of the caller's files open, and nothing of the tree
/// after the walk has ended.
#[test]
fn walks_hold_nothing_of_the_caller() {
    let world = World::default();
    child::run(test_name!(), "mounts", world, || {
        let scratch = Scratch::in_memory("held");
        let root = scratch.0.join("mounted");
        fs::create_dir(&root).expect("a directory");
        let target = CString::new(root.as_os_str().as_bytes()).expect("no NUL");
        for turn in 0..20 {
            // SAFETY: all texts end with a NUL.
            let result = unsafe { libc::mount(c"tmpfs".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, ptr::null()) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
            for index in 0..500 {
                let directory = root.join((index / 50).to_string());
                fs::create_dir_all(&directory).expect("directories");
                fs::write(directory.join(index.to_string()), b"").expect("a file");
            }
            let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).expect("a pipe");
            let mut writer = Some(writer);
            let mut left = None;
            let walk = Walk::new().threads(4);
            let totals = walk.run(&root, &mut Seen::default(), &AtomicBool::new(false), &mut |_| {
                // End of file shows that nobody has the pipe open for writing.
                if writer.take().is_some() {
                    left = Some(rustix::io::read(&reader, &mut [0; 1]));
                }
                ControlFlow::Continue(())
            });
            assert_eq!(totals.expect("a root").sum.files, 500);
            assert_eq!(left, Some(Ok(0)), "turn {turn}");
            // Fails while anything in it is open.
            rustix::mount::unmount(&root, rustix::mount::UnmountFlags::empty()).expect("nothing open");
        }
    });
}

/// Check that a tree is walked completely even if only the calling thread finds its root by the
/// path.
#[test]
fn only_the_caller_may_know_the_root() {
    let scratch = Scratch::in_memory("alone");
    for index in 0..100 {
        let directory = scratch.0.join((index % 10).to_string());
        fs::create_dir_all(&directory).expect("directories");
        fs::write(directory.join(index.to_string()), b"").expect("a file");
    }
    let root = File::open(&scratch.0).expect("our own");
    let path = PathBuf::from(format!("/proc/thread-self/fd/{}", root.as_raw_fd()));
    for threads in [1, 4] {
        let (found, totals) = harvest(Walk::new().threads(threads), &path);
        assert_eq!((found.files.len(), totals.directories), (100, 11), "{totals:?}");
    }
}

/// Check that a walk that is cancelled, or whose caller breaks, ends with the files found until
/// then.
#[test]
fn walks_can_be_ended() {
    let scratch = Scratch::in_memory("ended");
    // More than one thread finds before it waits for the caller, however long that takes.
    let count = 20_000;
    for index in 0..count {
        let directory = scratch.0.join((index / 100).to_string());
        fs::create_dir_all(&directory).expect("directories");
        fs::write(directory.join(index.to_string()), b"").expect("a file");
    }
    let cancel = AtomicBool::new(false);
    let mut told = 0_u64;
    let totals = Walk::new()
        .threads(1)
        .run(&scratch.0, &mut Seen::default(), &cancel, &mut |found| {
            told += u64::from(matches!(found, Found::File(_)));
            cancel.store(true, Ordering::Relaxed);
            ControlFlow::Continue(())
        })
        .expect("a root");
    // Files that the threads find before they notice are still reported.
    assert_eq!(totals.sum.files, told);
    assert!(told > 0 && told < count as u64, "{told} of {count}");

    let mut told = 0;
    let totals = Walk::new()
        .threads(1)
        .run(
            &scratch.0,
            &mut Seen::default(),
            &AtomicBool::new(false),
            &mut |found| {
                told += u64::from(matches!(found, Found::File(_)));
                match told {
                    10.. => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            },
        )
        .expect("a root");
    assert_eq!(told, 10);
    assert!(totals.sum.files < count as u64, "{totals:?}");
}
