use super::price::{files_ns, files_read};
use super::*;
use crate::error::ErrorKind;
use crate::field::Field;
use crate::filter::Filter;
use std::time::Duration;

fn host() -> Support {
    let yes = || Fact::yes("");
    Support {
        procfs: yes(),
        procfs_complete: yes(),
        may_trace: yes(),
        bpf_built: yes(),
        btf: yes(),
        bpf_load: yes(),
        task_iterator: Fact::unknown("not tried yet"),
        iterator_by_pid: yes(),
        task_walk: yes(),
        pinned: Fact::no("nothing is pinned", ""),
        broker: Fact::no("no socket", ""),
        broker_shows: Groups::NONE,
        cgroup2: yes(),
        cachestat: yes(),
        procmap_query: Fact::yes(""),
        smaps_rollup: yes(),
        smaps: yes(),
        plain_times: yes(),
        tasks: Some(100),
        processes: None,
        processors: 2,
    }
}

fn everything() -> Query {
    Query::processes().fields(Field::Comm | Field::Uid | Field::Cmdline)
}

fn plan_of(query: &Query, support: &Support, state: &State, cost: &Cost) -> Result<Plan> {
    plan(&Preparation::new(query, Duration::ZERO, false)?, support, state, cost)
}

fn decide(query: &Query, support: &Support, state: State) -> Plan {
    plan_of(query, support, &state, &Cost::default()).unwrap()
}

/// Check that a single query loads a program on a large machine but not on a small one.
#[test]
fn one_query_loads_on_large_machines_only() {
    let small = host();
    assert_eq!(decide(&everything(), &small, State::default()).bpf, None);
    let large = Support {
        tasks: Some(10_000),
        ..host()
    };
    let plan = decide(&everything(), &large, State::default());
    let args = Groups::NONE.with(Group::Args);
    assert_eq!(
        plan.bpf,
        Some((BpfWay::ToLoad, Groups::of(everything().fields).without(args)))
    );
    // No program reads the memory of processes.
    assert_eq!((plan.procfs, plan.run), (args, true));
    let last = State {
        is_last: true,
        ..State::default()
    };
    assert!(!decide(&everything(), &large, last).run);
}

/// Check that procfs answers exactly the times where programs can't know them.
#[test]
fn procfs_answers_times_without_ticks() {
    let support = Support {
        plain_times: Fact::no("processors 1 run without ticks (nohz_full)", ""),
        tasks: Some(10_000),
        ..host()
    };
    let query = Query::processes().fields(Field::Comm | Field::UtimeNs);
    let forced = State {
        forced: Some(SourceId::Bpf),
        ..State::default()
    };
    let plan = decide(&query, &support, forced);
    assert_eq!(plan.answer(Group::Cpu), Some(Ok(SourceId::Procfs)));
    assert_eq!(plan.answer(Group::Base), Some(Ok(SourceId::Bpf)));
}

/// Check that a handle on a small machine loads a program after some queries, once it has lost
/// about as much time as loading takes.
#[test]
fn repeated_queries_load() {
    let support = host();
    let mut state = State::default();
    let mut queries = 0;
    loop {
        let plan = decide(&everything(), &support, state);
        if plan.bpf.is_some() {
            break;
        }
        state.regret_ns += plan.regret_ns;
        queries += 1;
    }
    assert!((2..100).contains(&queries), "{queries}");
    assert!(state.regret_ns < 2 * Cost::default().load_ns);
}

/// Check that a loaded or pinned program is used even for few tasks, if it can answer the groups.
#[test]
fn available_programs_are_used() {
    let support = host();
    let loaded = State {
        loaded: Some(Groups::NONE.with(Group::Base).with(Group::Cred)),
        ..State::default()
    };
    let plain = Query::processes().fields(Field::Comm | Field::Uid);
    assert_eq!(decide(&plain, &support, loaded).bpf.unwrap().0, BpfWay::Loaded);
    assert_eq!(decide(&everything(), &support, loaded).bpf, None);
    let pinned = Support {
        pinned: Fact::yes(""),
        ..host()
    };
    assert_eq!(
        decide(&everything(), &pinned, State::default()).bpf.unwrap().0,
        BpfWay::Pinned
    );
}

/// Check that for very many tasks, a program that finds them itself is loaded even where one is
/// pinned.
#[test]
fn many_tasks_are_worth_loading_a_walk() {
    let way = |tasks, support| {
        let support = Support {
            tasks: Some(tasks),
            pinned: Fact::yes(""),
            ..support
        };
        decide(&everything(), &support, State::default()).bpf.unwrap().0
    };
    assert_eq!(way(1_000, host()), BpfWay::Pinned);
    assert_eq!(way(30_000, host()), BpfWay::ToLoad);
    let old = Support {
        task_walk: Fact::no("Linux 6.1; it came with 6.2", ""),
        ..host()
    };
    assert_eq!(way(30_000, old), BpfWay::Pinned);
    let denied = Support {
        bpf_load: Fact::denied("CAP_BPF is missing", "run as root"),
        ..host()
    };
    assert_eq!(way(30_000, denied), BpfWay::Pinned);
}

/// Check that procfs answers if any fact prevents BPF, and that the error names the fact if BPF is
/// forced.
#[test]
fn procfs_answers_without_bpf() {
    let missing = || Fact::denied("CAP_BPF is missing", "run as root");
    let large = || Support {
        tasks: Some(100_000),
        ..host()
    };
    for support in [
        Support {
            bpf_built: missing(),
            ..large()
        },
        Support {
            btf: missing(),
            ..large()
        },
        Support {
            bpf_load: missing(),
            ..large()
        },
        Support {
            task_iterator: missing(),
            ..large()
        },
    ] {
        let plan = decide(&everything(), &support, State::default());
        assert_eq!(plan.answer(Group::Args), Some(Ok(SourceId::Procfs)));
        let forced = State {
            forced: Some(SourceId::Bpf),
            ..State::default()
        };
        let error = plan_of(&everything(), &support, &forced, &Cost::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(
            error.to_string().contains("CAP_BPF is missing (run as root)"),
            "{error}"
        );
    }
}

/// Check that without procfs, BPF answers even for few tasks, and that the error without both names
/// both.
#[test]
fn bpf_answers_without_procfs() {
    let support = Support {
        procfs: Fact::no("/proc is not mounted", ""),
        ..host()
    };
    assert_eq!(
        decide(&everything(), &support, State::default()).bpf.unwrap().0,
        BpfWay::ToLoad
    );
    let nothing = Support {
        btf: Fact::no("no BTF", ""),
        ..support
    };
    let error = plan_of(&everything(), &nothing, &State::default(), &Cost::default()).unwrap_err();
    assert!(error.to_string().contains("/proc is not mounted; no BTF"), "{error}");
}

/// Check that BPF answers what procfs denies a caller who may load programs but not trace others,
/// even if that takes longer.
#[test]
fn bpf_answers_what_procfs_denies() {
    let capable = Support {
        may_trace: Fact::no("CAP_SYS_PTRACE is missing", ""),
        ..host()
    };
    let way = |query: &Query, support: &Support| decide(query, support, State::default()).bpf.map(|(way, _)| way);
    for field in [
        Field::Exe,
        Field::NsNet,
        Field::ReadBytes,
        Field::FdCount,
        Field::StartCode,
    ] {
        let query = Query::process(1).fields(Field::Comm | field);
        assert_eq!(way(&query, &capable), Some(BpfWay::ToLoad), "{field:?}");
        assert_eq!(way(&query, &host()), None, "{field:?}");
        let incapable = Support {
            bpf_load: Fact::no("CAP_BPF is missing", ""),
            ..capable.clone()
        };
        assert_eq!(way(&query, &incapable), None, "{field:?}");
    }
    let open = Query::process(1).fields(Field::Comm | Field::Uid | Field::Cmdline | Field::RssBytes);
    assert_eq!(way(&open, &capable), None);
    // Another user's process may be hidden completely.
    let hidden = Support {
        procfs_complete: Fact::no("hidepid", ""),
        ..capable
    };
    assert_eq!(way(&open, &hidden), Some(BpfWay::ToLoad));
}

/// Check that the broker answers callers that may not load BPF programs, if it shows as much as
/// procfs.
#[test]
fn the_broker_answers_if_it_shows_as_much() {
    let restricted = |hides: bool| Support {
        bpf_load: Fact::denied("CAP_BPF is missing", ""),
        broker: Fact::yes(""),
        procfs_complete: if hides { Fact::no("hidepid", "") } else { Fact::yes("") },
        ..host()
    };
    let query = everything();
    let by = |support: &Support| decide(&query, support, State::default()).answer(Group::Base);
    assert_eq!(by(&restricted(true)), Some(Ok(SourceId::Broker)));
    assert_eq!(by(&restricted(false)), Some(Ok(SourceId::Procfs)));
    let observed = Support {
        broker_shows: Groups::of(query.fields),
        ..restricted(false)
    };
    assert_eq!(by(&observed), Some(Ok(SourceId::Broker)));
    let absent = Support {
        broker: Fact::no("no socket", "as root: taskdiagd"),
        ..restricted(true)
    };
    assert_eq!(by(&absent), Some(Ok(SourceId::Procfs)));
    let forced = State {
        forced: Some(SourceId::Broker),
        ..State::default()
    };
    let error = plan_of(&query, &absent, &forced, &Cost::default()).unwrap_err();
    assert!(error.to_string().contains("as root: taskdiagd"), "{error}");
    let capable = Support {
        bpf_load: Fact::yes(""),
        tasks: Some(100_000),
        ..restricted(true)
    };
    assert_eq!(by(&capable), Some(Ok(SourceId::Bpf)));
    // Procfs reads one process faster than the broker answers.
    assert_eq!(
        decide(&Query::process(1), &restricted(true), State::default()).broker,
        None
    );
}

/// Check that BPF answers for one process only where an iterator can be limited to it.
#[test]
fn one_process_needs_an_iterator_of_it() {
    let query = Query::process(1).fields(Field::Comm | Field::Uid);
    let old = Support {
        iterator_by_pid: Fact::no("Linux 6.1 is needed", ""),
        ..host()
    };
    let state = State {
        loaded: Some(Groups::ALL),
        ..State::default()
    };
    assert_eq!(decide(&query, &old, state).bpf, None);
    let forced = State {
        forced: Some(SourceId::Bpf),
        ..state
    };
    assert!(plan_of(&query, &old, &forced, &Cost::default()).is_err());
    assert!(plan_of(&query, &host(), &forced, &Cost::default()).is_ok());
}

/// Check that without the unified hierarchy only the cgroup is unsupported.
#[test]
fn cgroups_need_the_unified_hierarchy() {
    let support = Support {
        cgroup2: Fact::no("no unified hierarchy", ""),
        ..host()
    };
    let query = Query::processes().fields(Field::Cgroup | Field::Comm);
    let plan = decide(&query, &support, State::default());
    assert_eq!(plan.answer(Group::Cgroup), Some(Err(Absent::Unsupported)));
    assert_eq!(plan.answer(Group::Base), Some(Ok(SourceId::Procfs)));
    assert_eq!(plan.answer(Group::Mem), None);
}

/// Check that rollups are read from smaps_rollup, else from smaps, and never from BPF.
#[test]
fn rollups_have_sources_of_their_own() {
    let query = Query::processes().fields(Field::PssBytes | Field::Comm);
    let loaded = State {
        loaded: Some(Groups::ALL),
        ..State::default()
    };
    let plan = decide(&query, &host(), loaded);
    assert_eq!(plan.answer(Group::Rollup), Some(Ok(SourceId::SmapsRollup)));
    // The budget needs values of this group before page tables are walked.
    assert_eq!(plan.answer(Group::Mem), Some(Ok(SourceId::Bpf)));
    assert!(!plan.bpf.unwrap().1.contains(Group::Rollup));
    let old = Support {
        smaps_rollup: Fact::no("it came with 4.14", ""),
        ..host()
    };
    assert_eq!(
        decide(&query, &old, loaded).answer(Group::Rollup),
        Some(Ok(SourceId::Smaps))
    );
    let forced = State {
        forced_rollup: Some(SourceId::SmapsRollup),
        ..loaded
    };
    assert!(plan_of(&query, &old, &forced, &Cost::default()).is_err());
    let neither = Support {
        smaps: Fact::no("CONFIG_PROC_PAGE_MONITOR", ""),
        ..old
    };
    let plan = decide(&query, &neither, loaded);
    assert_eq!(plan.answer(Group::Rollup), Some(Err(Absent::Unsupported)));
    assert_eq!(plan.answer(Group::Base), Some(Ok(SourceId::Bpf)));
}

/// Check how costs add up to prices.
#[test]
fn prices_add_up() {
    let (support, cost, nothing) = (host(), Cost::default(), State::default());
    let prices = Prices {
        support: &support,
        state: &nothing,
        cost: &cost,
    };
    let all = Query::processes().fields(Field::Comm | Field::Uid);
    let groups = Groups::of(all.fields);
    let visit = 200 + 50 + 50;
    let price = |prices: &Prices<'_>, query: &Query, way| {
        let price = prices.bpf_by(query, groups, Groups::NONE, way);
        (price.entry_ns, price.pass_ns, price.one_by_one)
    };
    let load = 8_500_000 + 2 * 800_000;
    assert_eq!(
        price(&prices, &all, BpfWay::ToLoad),
        (load, 10_000 + 100 * visit, false)
    );
    assert_eq!(price(&prices, &all, BpfWay::Loaded), (0, 10_000 + 100 * visit, false));
    let called = 10_000 + 100 * (visit + 400);
    assert_eq!(price(&prices, &all, BpfWay::Pinned), (60_000, called, false));
    assert_eq!(
        price(&prices, &Query::process(1), BpfWay::Loaded),
        (0, 5_000 + visit, true)
    );
    let few = Query::these([1, 2, 3]).fields(Field::Comm | Field::Uid);
    assert_eq!(price(&prices, &few, BpfWay::Loaded), (0, 3 * (5_000 + visit), true));
    // The break-even point is 40,000 / 5,300.
    assert!(price(&prices, &Query::these(1..8), BpfWay::Loaded).2);
    assert!(!price(&prices, &Query::these(1..9), BpfWay::Loaded).2);
    let to_load = prices.bpf_by(&all, groups, Groups::NONE, BpfWay::ToLoad);
    assert_eq!(to_load.total_ns(0), load + 10_000 + 100 * visit);
    // Two readers share the files that are read for each task.
    let args = Query::processes().fields(Field::Comm | Field::Uid | Field::Cmdline);
    let rest = Groups::NONE.with(Group::Args);
    let loaded = prices.bpf_by(&args, groups, rest, BpfWay::Loaded);
    assert_eq!(loaded.pass_ns, 10_000 + 100 * (visit + 10_000 * 10 / 19));
    // A new program replaces the loaded one, so it has the groups of both.
    let loaded = State {
        loaded: Some(Groups::NONE.with(Group::Mem)),
        ..nothing
    };
    let more = Prices {
        state: &loaded,
        ..prices
    };
    assert_eq!(price(&more, &all, BpfWay::ToLoad).0, load + 800_000);
    let old = Support {
        task_walk: Fact::no("Linux 6.1; it came with 6.2", ""),
        iterator_by_pid: Fact::no("Linux 6.1 is needed", ""),
        processors: 1,
        ..host()
    };
    let old = Prices {
        support: &old,
        ..prices
    };
    assert_eq!(price(&old, &all, BpfWay::Loaded), (0, called, false));
    assert_eq!(price(&old, &few, BpfWay::Loaded), (0, called, false));
    let read = files_ns(files_read(&all, groups).anchored());
    assert_eq!(old.procfs_ns(&all, groups), 100 * (300 + read));
    assert_eq!(prices.procfs_ns(&all, groups), 100 * (300 + read * 10 / 19));
    assert_eq!(prices.procfs_ns(&few, groups), 3 * read);
    assert!(read > 10_000);
}

/// Check how many tasks a scope is estimated to have.
#[test]
fn scopes_have_tasks_or_processes() {
    let (cost, state) = (Cost::default(), State::default());
    let tasks = |tasks, processes, query: &Query| {
        let support = Support {
            tasks,
            processes,
            ..host()
        };
        let prices = Prices {
            support: &support,
            state: &state,
            cost: &cost,
        };
        prices.tasks(query)
    };
    assert_eq!(tasks(Some(70), Some(30), &Query::processes()), 30);
    assert_eq!(tasks(Some(70), Some(30), &Query::threads()), 70);
    assert_eq!(tasks(Some(70), None, &Query::processes()), 70);
    assert_eq!(tasks(None, None, &Query::threads()), 100);
}

/// Check the break-even points of the broker and BPF to the nanosecond.
#[test]
fn break_even_points_are_exact() {
    let query = Query::processes().fields(Field::Comm | Field::Uid | Field::Cmdline);
    let support = Support {
        bpf_load: Fact::denied("CAP_BPF is missing", ""),
        broker: Fact::yes(""),
        procfs_complete: Fact::no("hidepid", ""),
        processors: 1,
        ..host()
    };
    let (state, cost) = (State::default(), Cost::default());
    let prices = Prices {
        support: &support,
        state: &state,
        cost: &cost,
    };
    let procfs_ns = prices.procfs_ns(&query, Groups::of(query.fields));
    let equal = procfs_ns - 100 * (3 * 200 + 10_000);
    for (broker_ns, pays) in [(equal - 1, true), (equal, false), (equal + 1, false)] {
        let cost = Cost {
            broker_ns,
            ..Cost::default()
        };
        let plan = plan_of(&query, &support, &state, &cost).unwrap();
        assert_eq!(plan.broker.is_some(), pays, "{broker_ns}");
    }
    // Procfs answers if a loaded program is no faster.
    let loaded = State {
        loaded: Some(Groups::ALL),
        ..State::default()
    };
    let host = host();
    let base = Query::processes().fields(Field::Comm);
    let prices = Prices {
        support: &host,
        state: &loaded,
        cost: &cost,
    };
    let equal = prices.procfs_ns(&base, Groups::of(base.fields)) - 100 * (200 + 50);
    for (pass_ns, by_bpf) in [(equal - 1, true), (equal, false)] {
        let cost = Cost {
            pass_ns,
            ..Cost::default()
        };
        let plan = plan_of(&base, &host, &loaded, &cost).unwrap();
        assert_eq!(plan.bpf.is_some(), by_bpf, "{pass_ns}");
    }
}

/// Check that the broker answers where no other source can, and one by one for few listed
/// processes.
#[test]
fn the_broker_answers_alone() {
    let support = Support {
        procfs: Fact::no("/proc is not mounted", ""),
        bpf_load: Fact::denied("CAP_BPF is missing", ""),
        broker: Fact::yes(""),
        ..host()
    };
    for (pids, one_by_one) in [(64, true), (65, false)] {
        let query = Query::these(1..=pids).fields(Field::Comm);
        let plan = decide(&query, &support, State::default());
        assert_eq!(plan.answer(Group::Base), Some(Ok(SourceId::Broker)));
        assert_eq!(plan.one_by_one, one_by_one, "{pids}");
    }
}

/// Check that programs are given tests for filters and changes, unless processes are listed.
#[test]
fn listed_processes_are_not_tested() {
    let loaded = State {
        loaded: Some(Groups::ALL.or(Groups::TESTABLE)),
        ..State::default()
    };
    let tested = |query: Query| decide(&query.fields(Field::Comm), &host(), loaded).tested;
    let filter = || Filter::parse("pid == 1").unwrap();
    assert!(!tested(Query::processes()));
    assert!(tested(Query::processes().filter(filter())));
    assert!(tested(Query::processes().only_changed()));
    // The kernel has no test of this field: a program without tests does.
    let large = || Filter::parse("rss_bytes > 1M").unwrap();
    assert!(!tested(Query::processes().filter(large())));
    assert!(tested(Query::processes().filter(large()).only_changed()));
    assert!(!tested(Query::these([1, 2]).filter(filter())));
    assert!(!tested(Query::process(1).only_changed()));
}

/// Check that a source of rollups can be forced, and that a group that was not asked for has no
/// answer.
#[test]
fn sources_of_rollups_can_be_forced() {
    let query = Query::processes().fields(Field::PssBytes);
    let forced = State {
        forced_rollup: Some(SourceId::Smaps),
        ..State::default()
    };
    let plan = decide(&query, &host(), forced);
    assert_eq!(plan.answer(Group::Rollup), Some(Ok(SourceId::Smaps)));
    let support = Support {
        cgroup2: Fact::no("no unified hierarchy", ""),
        ..host()
    };
    assert_eq!(decide(&query, &support, forced).answer(Group::Cgroup), None);
}

/// Check that BPF visits few listed processes one by one, and many in a pass over all.
#[test]
fn few_processes_are_visited_one_by_one() {
    let support = Support {
        tasks: Some(1000),
        ..host()
    };
    let state = || State {
        loaded: Some(Groups::ALL),
        forced: Some(SourceId::Bpf),
        ..State::default()
    };
    for (pids, one_by_one) in [(1, true), (1000, false)] {
        let query = Query::these(1..=pids).fields(Field::Comm);
        let plan = decide(&query, &support, state());
        assert_eq!((plan.bpf.is_some(), plan.one_by_one), (true, one_by_one), "{pids}");
    }
}

/// Check that the source that finds the tasks comes first: a program, else the broker, else procfs.
#[test]
fn what_finds_the_tasks_comes_first() {
    let query = Query::processes().fields(Field::Comm | Field::Cmdline);
    let groups = Groups::of(query.fields);
    let others = groups.without(Groups::NONE.with(Group::Args));
    let forced = |source| State {
        loaded: Some(Groups::ALL),
        forced: Some(source),
        ..State::default()
    };
    let support = Support {
        broker: Fact::yes(""),
        broker_shows: groups,
        ..host()
    };
    for (source, answered) in [
        (SourceId::Bpf, others),
        (SourceId::Broker, others),
        (SourceId::Procfs, groups),
    ] {
        assert_eq!(decide(&query, &support, forced(source)).first(), (source, answered));
    }
}
