//! The mappings of all processes.

use super::*;

/// Check that BPF and the text report the same mappings of all processes, each once, including
/// those of hidden processes.
#[test]
fn machine_sources_agree() {
    // This one has more mappings than the program can hold at once.
    let large = Zoo::new().expect("a zoo").with_mappings(12_000).expect("a process");
    let animals: Vec<_> = everything().iter().chain([&large]).collect();
    let mut bpf = handle().with_source(SourceId::Bpf);
    if !sources().contains(&SourceId::Bpf) {
        let error = bpf.all_maps(Perms::EXEC, MapField::Name).expect_err("a refusal");
        let said = match error.kind() {
            ErrorKind::Denied => "CAP_BPF and CAP_PERFMON are missing",
            _ => "it takes Linux 6.11",
        };
        assert!(error.to_string().contains(said), "{error}");
        let listed = handle().all_maps(Perms::EXEC, MapField::Name).expect("mappings");
        assert!(listed
            .mappings
            .iter()
            .any(|mapping| mapping.pid == Some(std::process::id())));
        return;
    }
    for filter in [Perms::EXEC.into(), Filter::default(), Perms::EXEC.into()] {
        let list_first = || {
            open(1)
                .and_then(|mut maps| maps.list(filter, MapField::Name))
                .map(|listed| common(&listed))
        };
        let before = list_first();
        let by_bpf = bpf.all_maps(filter, MapField::Name).expect("mappings");
        let by_text = handle()
            .with_source(SourceId::Procfs)
            .all_maps(filter, MapField::Name)
            .expect("mappings");
        // The first process, one whose leader has ended, and those that are mapping something right
        // now.
        assert!(by_bpf.deferred < 100, "{} processes were deferred", by_bpf.deferred);
        assert!(
            by_bpf.hidden < 10,
            "{} processes are hidden from iterators",
            by_bpf.hidden
        );
        let rows = |all: &Mappings| -> BTreeMap<u32, Vec<Common>> {
            let mut rows: BTreeMap<u32, Vec<Common>> = BTreeMap::new();
            let pids: Vec<u32> = all.iter().filter_map(|mapping| mapping.pid).collect();
            assert!(pids.is_sorted());
            for (pid, row) in pids.into_iter().zip(common(all)) {
                rows.entry(pid).or_default().push(row);
            }
            rows
        };
        let (ours, theirs) = (rows(&by_bpf.mappings), rows(&by_text.mappings));
        let mut compared = 0;
        for animal in &animals {
            let pid = animal.pid as u32;
            assert_eq!(ours.get(&pid), theirs.get(&pid), "{} {filter:?}", animal.name);
            compared += usize::from(ours.contains_key(&pid));
        }
        assert!(compared > 40, "{compared} animals have memory");
        // The first process belongs to the machine, and may change its mappings meanwhile.
        match (before, list_first()) {
            (Ok(before), Ok(after)) => {
                let mut stayed = before.iter().filter(|mapping| after.contains(mapping)).peekable();
                assert!(stayed.peek().is_some(), "{before:?} {after:?}");
                let lacking: Vec<_> = stayed.filter(|mapping| !ours[&1].contains(mapping)).collect();
                assert!(lacking.is_empty(), "{lacking:?}");
                if before == after {
                    assert_eq!(ours[&1].len(), after.len(), "process 1");
                }
            }
            (Err(error), _) | (_, Err(error)) => assert_eq!(error.kind(), ErrorKind::Denied, "{error}"),
        }
    }
}

/// Check that processes have the ids of the reader's pid namespace, and that a caller who may load
/// BPF but not trace processes gets all mappings with their names.
#[test]
fn machines_are_listed_from_everywhere() {
    if child::part().is_none() && !is_root() {
        println!("not root, so there is no other place to list from");
        return;
    }
    let world = World {
        pid_namespace: true,
        proc: Proc::New(c""),
        ..World::default()
    };
    child::run(test_name!(), "namespace", world, || {
        let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("a process");
        let pid = sleeper.id();
        while !fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|place| place.contains("nanosleep")) {
            std::thread::yield_now();
        }
        let by_bpf = if kernel() < (6, 11) {
            SourceId::Procfs
        } else {
            SourceId::Bpf
        };
        let listed = [by_bpf, SourceId::Procfs].map(|source| {
            let listed = handle().with_source(source).all_maps(Filter::default(), MapField::Name);
            let all = listed.expect("mappings").mappings;
            let pids: BTreeSet<u32> = all.iter().filter_map(|mapping| mapping.pid).collect();
            let of_sleeper = all.iter().filter(|mapping| mapping.pid == Some(pid));
            let of_sleeper: Vec<Common> = of_sleeper.map(|mapping| Common::new(&mapping)).collect();
            (pids, of_sleeper)
        });
        assert_eq!(listed[0], listed[1]);
        assert!(listed[0].0.len() == 2 && !listed[0].1.is_empty());
        sleeper.kill().expect("our child");
        sleeper.wait().expect("our child");
    });
    let world = World {
        user: Some(NOBODY),
        capabilities: 1 << CAP_BPF | 1 << CAP_PERFMON,
        ..World::default()
    };
    child::run(test_name!(), "two capabilities", world, || {
        if kernel() < (6, 11) {
            return;
        }
        let is_roots = |pid: u32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|directory| directory.uid() == 0);
        let mut machine = handle().with_source(SourceId::Bpf);
        for _ in 0..2 {
            let all = machine
                .all_maps(Perms::EXEC, MapField::Name)
                .expect("mappings")
                .mappings;
            // Before Linux 6.15 CAP_PERFMON is not enough to open their maps files.
            let is_named = |mapping: &Mapping<'_>| match mapping.name {
                Err(reason) => reason == Absent::Denied && kernel() < (6, 15),
                Ok(name) => name.starts_with(b"/"),
            };
            assert!(all
                .iter()
                .any(|mapping| mapping.pid.is_some_and(is_roots) && is_named(&mapping)));
        }
    });
}
