//! Files whose pages belong to another file, as with overlayfs; and block devices.

use super::*;

/// The page cache of each file below a directory that a walk reports, and its totals.
fn walk(root: &Path, one_file_system: bool) -> (BTreeMap<PathBuf, Usage>, Totals) {
    let mut found = BTreeMap::new();
    let walk = Walk::new().one_file_system(one_file_system);
    let totals = walk.run(root, &mut Seen::default(), &AtomicBool::new(false), &mut |each| {
        if let Found::File(file) = each {
            let path = PathBuf::from(OsStr::from_bytes(file.path));
            found.insert(path, file.usage.expect("an answer"));
        }
        ControlFlow::Continue(())
    });
    (found, totals.expect("a directory"))
}

/// The page cache of a file that this process has open, and its size.
fn held(name: &Path) -> Option<(Result<u64, Absent>, Usage)> {
    let mut found = None;
    let patience = Duration::from_secs(5);
    let mut finder = Finder::new(Source::of_this_host(), ByteRange::ALL, patience);
    let answer = finder.held_files(std::process::id(), &mut Seen::default(), &mut |held| {
        if held.path == name.as_os_str().as_bytes() {
            found = Some((held.size_bytes, held.usage.expect("an answer")));
        }
    });
    answer.expect("our own files");
    found
}

#[track_caller]
fn check_only_cached(usage: &Usage, pages: u64) {
    assert_eq!(usage.bytes(Quantity::Cached), Ok(pages * page_size()));
    for quantity in &Quantity::ALL[2..] {
        assert_eq!(usage.bytes(*quantity), Err(Absent::Unsupported), "{quantity}");
    }
}

/// Check files that are read through an overlay, of which cachestat(2) counts no page: what is
/// cached of them is known, and nothing else. Files beside them lose nothing.
#[test]
fn overlays_have_the_pages_of_the_files_below() {
    child::run(test_name!(), "overlay", World::default(), || {
        let scratch = Scratch::in_memory("overlay");
        let lower = scratch.0.join("lower");
        fs::create_dir(&lower).expect("a directory");
        for (name, pages) in [("some", 20), ("none", 5), ("empty", 0)] {
            let file = scratch.file(&format!("lower/{name}"));
            file.set_len(pages * page_size()).expect("a sparse file");
        }
        let below = OpenOptions::new().write(true).open(lower.join("some")).expect("it");
        write_pages(&below, 3, 9);
        let merged = storage::overlay(&scratch.0, &lower, "");
        let file = File::open(merged.join("some")).expect("it");
        if has_cachestat() {
            assert_eq!(
                storage::cachestat(&file).expect("an answer"),
                [0; 5],
                "the reason for this test"
            );
        }
        let resident = resident(&file, 20);
        assert_eq!(
            (0..20).filter(|&page| resident[page]).collect::<Vec<_>>(),
            Vec::from_iter(3..12)
        );

        let source = Source::of_this_host();
        let ask = |name: &str, range| {
            let file = File::open(merged.join(name)).expect("it");
            source.ask(&file, range).expect("an answer")
        };
        check_only_cached(&ask("some", ByteRange::ALL), 9);
        check_only_cached(&ask("some", range(10, 10)), 2);
        check_only_cached(&ask("some", range(15, 2)), 0);
        check_only_cached(&ask("none", ByteRange::ALL), 0);
        assert_eq!(ask("empty", ByteRange::ALL).cached_pages(), 0);
        let part = residency(&file, range(10, 4)).expect("an answer");
        assert_eq!((part.cached_pages, part.pages), (2, 4));
        let mut runs = Vec::new();
        let answer = map(source, &file, ByteRange::ALL, 1, &mut |run| {
            assert_eq!(run.bytes(Quantity::Dirty), Err(Absent::Unsupported));
            runs.push((run.first_page, run.pages, run.state));
        });
        answer.expect("an answer");
        let expected = [(0, 3, State::Uncached), (3, 9, State::Cached), (12, 8, State::Uncached)];
        assert_eq!(runs, expected);
        let (size_bytes, usage) = held(&merged.join("some")).expect("it is open");
        assert_eq!(size_bytes, Ok(20 * page_size()));
        check_only_cached(&usage, 9);

        // A file that is changed is copied to the other directory.
        let copied = OpenOptions::new().write(true).open(merged.join("none")).expect("it");
        write_pages(&copied, 1, 2);
        check_only_cached(&ask("none", ByteRange::ALL), 2);

        let (found, totals) = walk(&merged, true);
        assert_eq!(found.len(), 3);
        check_only_cached(&found[&merged.join("some")], 9);
        check_only_cached(&totals.sum.usage(source).expect("an answer"), 11);
        let (found, _) = walk(&lower, true);
        let expected = if has_cachestat() {
            Ok(0)
        } else {
            Err(Absent::Unsupported)
        };
        assert_eq!(found[&lower.join("some")].bytes(Quantity::Dirty), expected);
    });
}

/// Check that a walk that stays on an overlay finds its files, although they have other devices
/// than their directory if they come from several file systems.
#[test]
fn overlays_of_several_file_systems_are_one() {
    child::run(test_name!(), "several", World::default(), || {
        let (scratch, below) = (Scratch::new("several"), Scratch::in_memory("several"));
        write_pages(&below.file("file"), 0, 4);
        let merged = storage::overlay(&scratch.0, &below.0, ",xino=off");
        let device = |path: &Path| fs::metadata(path).expect("it").dev();
        assert_ne!(
            device(&merged),
            device(&merged.join("file")),
            "the reason for this test"
        );
        let (found, totals) = walk(&merged, true);
        assert_eq!(totals.other_file_systems, 0);
        check_only_cached(&found[&merged.join("file")], 4);
    });
}

/// Check block devices: all their pages are found, and their size.
#[test]
fn block_devices_have_pages() {
    let scratch = Scratch::new("block");
    let content = scratch.file("content");
    write_pages(&content, 0, 500);
    content.sync_all().expect("writing to disk");
    let device = storage::BlockDevice::of(&content);
    let mut part = [0; 100];
    device
        .file
        .read_exact_at(&mut part, 100 * page_size())
        .expect("content");
    // Others may read new devices, as udev does.
    let bracketed = || {
        let seen = resident(&device.file, 500).into_iter().filter(|&page| page).count() as u64;
        let cached = if has_cachestat() {
            let counts = storage::cachestat(&device.file).expect("an answer");
            assert_eq!(counts[0], seen);
            counts[0]
        } else {
            seen
        };
        assert!((1..500).contains(&cached), "{cached}");
        cached
    };
    let source = Source::of_this_host();
    for attempt in 0.. {
        let before = bracketed();
        let residency = residency(&device.file, ByteRange::ALL).expect("an answer");
        let asked = source.ask(&device.file, ByteRange::ALL).expect("an answer");
        let mut mapped = (0, 0);
        let answer = map(source, &device.file, ByteRange::ALL, 1, &mut |run| {
            mapped.0 += run.pages;
            mapped.1 += if run.state == State::Uncached { 0 } else { run.pages };
        });
        answer.expect("an answer");
        let (walked, totals) = walk(&device.path, true);
        let held = held(&device.path).expect("it is open");
        if before != bracketed() {
            assert!(attempt < 10, "the device is read all the time");
            continue;
        }
        assert_eq!((residency.cached_pages, residency.pages), (before, 500));
        assert_eq!(mapped, (500, before));
        assert_eq!(asked.cached_pages(), before);
        assert_eq!(plain(mincore(&device.file, ByteRange::ALL)), Ok(before));
        assert_eq!(walked[&device.path], asked);
        assert_eq!(totals.sum.size_bytes, 500 * page_size());
        assert_eq!(held, (Ok(500 * page_size()), asked));
        if has_cachestat() {
            assert_eq!(asked.bytes(Quantity::Dirty), Ok(0));
        }
        break;
    }
    // A walk opens none of those that it finds.
    let directory = device.path.parent().expect("a directory");
    assert!(!walk(directory, true).0.contains_key(&device.path));
}
