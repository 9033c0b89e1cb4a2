//! Which source answers which group. Pure: facts in, decision out.

use crate::absent::Absent;
use crate::error::{Error, ErrorKind, Result};
use crate::field::{Files, Group, Groups};
use crate::query::{Query, Scope};
use crate::snapshot::SourceId;
use crate::support::{refusal_kind, Fact, Support, Verdict};

/// A way to run a BPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BpfWay {
    /// A program that this handle has loaded.
    Loaded,
    /// A program that somebody pinned.
    Pinned,
    /// A program that this handle has yet to load.
    ToLoad,
}

/// What a plan depends on besides the query and the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Only this source may answer.
    pub forced: Option<SourceId>,
    /// Only this source may answer [`Group::Rollup`].
    pub forced_rollup: Option<SourceId>,
    /// The groups that the loaded program can answer, if one is loaded.
    pub loaded: Option<Groups>,
    /// How much time earlier queries of the handle lost because BPF was not loaded for them. Once that exceeds what loading
    /// takes, loading is worth it: this bounds the total loss to twice the best choice, whatever comes.
    pub regret_ns: u64,
    /// There will be no other query: nothing is worth being remembered.
    pub is_last: bool,
}

/// What things take on an ordinary machine, in nanoseconds: only the proportions matter. `docs/benchmarks.md` has the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Loading a program.
    pub load_ns: u64,
    /// Each group that it can be asked for.
    pub load_group_ns: u64,
    /// Getting hold of a pinned program.
    pub open_pinned_ns: u64,
    /// Making an iterator of all tasks and ending it.
    pub pass_ns: u64,
    /// Pointing one at a process, and ending it.
    pub point_ns: u64,
    /// Visiting a task.
    pub visit_ns: u64,
    /// What a visit takes longer where the kernel calls the program for each task.
    pub called_ns: u64,
    /// Finding a process in `/proc`.
    pub list_ns: u64,
    /// How many files are read in the time of ten where two readers share them.
    pub shared_files: u64,
    /// Asking the broker, and being heard.
    pub broker_ns: u64,
    /// So many processes are asked of the broker one by one rather than sought among all.
    pub broker_targets: u64,
}

impl Default for Cost {
    fn default() -> Cost {
        Cost {
            load_ns: 8_500_000,
            load_group_ns: 800_000,
            open_pinned_ns: 60_000,
            pass_ns: 10_000,
            point_ns: 5_000,
            visit_ns: 200,
            called_ns: 400,
            list_ns: 300,
            shared_files: 19,
            broker_ns: 30_000,
            broker_targets: 64,
        }
    }
}

/// What a group takes longer than the visit itself.
fn group_ns(group: Group) -> u64 {
    match group {
        Group::Paths => 2_200,
        Group::Cpu => 400,
        Group::Signals | Group::Oom | Group::Mem | Group::Fds => 250,
        Group::Namespaces => 120,
        _ => 50,
    }
}

/// What opening, reading, parsing and closing files takes, for who reads them for the first time.
fn files_ns(files: Files) -> u64 {
    let one = |bit: u32| match Files(1 << bit) {
        Files::STAT | Files::CGROUP => 12_000,
        Files::STATUS => 17_000,
        Files::CMDLINE | Files::ENVIRON => 10_000,
        Files::LIMITS => 14_500,
        Files::NS => 30_000,
        Files::IO => 7_700,
        Files::EXE | Files::FD => 4_000,
        Files::CWD | Files::ROOT => 2_500,
        _ => 6_000,
    };
    (0..u32::BITS).filter(|bit| files.0 >> bit & 1 != 0).map(one).sum()
}

/// Who answers what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Groups that BPF answers, and how its program is come by. BPF then also says which tasks there are.
    pub bpf: Option<(BpfWay, Groups)>,
    /// Whether BPF also tells of each process what shows that its arguments can't have changed.
    pub run: bool,
    /// Groups that procfs answers, of the tasks that another source found if there is one.
    pub procfs: Groups,
    /// Groups that the broker answers, which then also says which tasks there are.
    pub broker: Option<Groups>,
    /// Whether the BPF program is given tests, so that tasks which are not meant have no records.
    pub tested: bool,
    /// Whether BPF visits the processes that are asked about one by one, rather than all tasks.
    pub one_by_one: bool,
    /// Who answers [`Group::Rollup`], which is read after all others, if it is asked for.
    pub rollup: Option<SourceId>,
    /// Groups that nobody can answer on this host.
    pub unanswered: Groups,
    /// What the query loses by BPF not being loaded, to be added to [`State::regret_ns`].
    pub regret_ns: u64,
}

/// How a query is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Who reads what.
    pub plan: Plan,
    /// The part of the filter that is decided before the rest of a task is read: with BPF in the kernel, with procfs on the
    /// files that it takes.
    pub first: Option<String>,
    /// The filter, which is then decided on what was read of the tasks that are left.
    pub last: Option<String>,
}

impl Plan {
    /// Who says which tasks there are, and the groups that it answers.
    pub fn first(&self) -> (SourceId, Groups) {
        match (self.bpf, self.broker) {
            (Some((_, groups)), _) => (SourceId::Bpf, groups),
            (_, Some(groups)) => (SourceId::Broker, groups),
            _ => (SourceId::Procfs, self.procfs),
        }
    }

    /// Who answers a group of the query.
    pub fn answer(&self, group: Group) -> Option<std::result::Result<SourceId, Absent>> {
        match self.bpf {
            _ if self.unanswered.contains(group) => Some(Err(Absent::Unsupported)),
            _ if group == Group::Rollup => self.rollup.map(Ok),
            Some((_, groups)) if groups.contains(group) => Some(Ok(SourceId::Bpf)),
            _ if self.broker.is_some_and(|groups| groups.contains(group)) => Some(Ok(SourceId::Broker)),
            _ if self.procfs.contains(group) => Some(Ok(SourceId::Procfs)),
            _ => None,
        }
    }
}

/// Decides who answers `query`.
pub fn plan(query: &Query, support: &Support, state: &State, cost: &Cost) -> Result<Plan> {
    let mut groups = query.fields_read().groups();
    let mut unanswered = Groups::NONE;
    if groups.contains(Group::Cgroup) && support.cgroup2.verdict == Verdict::No {
        unanswered = unanswered.with(Group::Cgroup);
        groups = groups.without(unanswered);
    }
    // What lies in the memory of processes is read from /proc, whoever says which processes there are.
    // So is what programs can't know on this host.
    let mut left_to_procfs = groups.and(Groups::FROM_USER_MEMORY);
    if support.plain_times.verdict == Verdict::No {
        left_to_procfs = left_to_procfs.or(groups.and(Groups::NONE.with(Group::Cpu)));
    }
    if support.procfs.verdict == Verdict::No {
        unanswered = unanswered.or(left_to_procfs);
        groups = groups.without(left_to_procfs);
        left_to_procfs = Groups::NONE;
    }
    let mut rollup = None;
    if groups.contains(Group::Rollup) {
        rollup = rollup_source(support, state.forced_rollup)?;
        let alone = Groups::NONE.with(Group::Rollup);
        groups = groups.without(alone);
        if rollup.is_none() {
            unanswered = unanswered.or(alone);
        }
    }
    let has_run = left_to_procfs.contains(Group::Args) && !state.is_last && !query.scope.is_threads();
    let ways = Ways { support, state, cost };
    let mut of_bpf = groups.without(left_to_procfs);
    if has_run {
        of_bpf = of_bpf.with(Group::Args);
    }
    let by_bpf = ways.bpf(query, of_bpf, left_to_procfs);
    let by_procfs = match support.procfs.verdict {
        Verdict::No => Err(&support.procfs),
        _ => Ok(ways.procfs_ns(query, groups)),
    };
    let bpf_plan = |choice: Choice| Plan {
        bpf: Some((choice.way, groups.without(left_to_procfs))),
        run: has_run,
        procfs: left_to_procfs,
        broker: None,
        one_by_one: choice.one_by_one,
        tested: is_tested(query),
        rollup,
        unanswered,
        regret_ns: 0,
    };
    let procfs_plan = |regret_ns| Plan {
        bpf: None,
        run: false,
        procfs: groups,
        broker: None,
        one_by_one: false,
        tested: false,
        rollup,
        unanswered,
        regret_ns,
    };
    let broker_plan = || Plan {
        bpf: None,
        run: false,
        procfs: left_to_procfs,
        broker: Some(groups.without(left_to_procfs)),
        one_by_one: targets(query).is_some_and(|targets| targets <= cost.broker_targets),
        tested: false,
        rollup,
        unanswered,
        regret_ns: 0,
    };
    // It shows no task that the caller may not trace, but in the groups that it says: where procfs shows more it is no substitute.
    let is_as_good = support.procfs.verdict == Verdict::No
        || support.procfs_complete.verdict == Verdict::No
        || support.broker_shows.covers(groups);
    let by_broker = support.broker.is_yes() && is_as_good;
    let broker_pays = |procfs_ns: u64| {
        let tasks = targets(query).unwrap_or(ways.tasks(query));
        let rest_ns = ways.shared_ns(files_ns(files_read(query, left_to_procfs)));
        cost.broker_ns + tasks * (cost.visit_ns * 3 + rest_ns) < procfs_ns
    };
    // Sources of rollups answer nothing else.
    let forced = state
        .forced
        .filter(|source| matches!(source, SourceId::Bpf | SourceId::Procfs | SourceId::Broker));
    match (forced, by_bpf, by_procfs) {
        (Some(SourceId::Bpf), Ok(choice), _) => Ok(bpf_plan(choice)),
        (Some(SourceId::Bpf), Err(fact), _) => Err(refused(SourceId::Bpf, fact)),
        (Some(SourceId::Procfs), _, Ok(_)) => Ok(procfs_plan(0)),
        (Some(SourceId::Procfs), _, Err(fact)) => Err(refused(SourceId::Procfs, fact)),
        (Some(SourceId::Broker), ..) => match support.broker.verdict {
            Verdict::No => Err(refused(SourceId::Broker, &support.broker)),
            _ => Ok(broker_plan()),
        },
        (_, Err(_), Err(_)) if by_broker => Ok(broker_plan()),
        (_, Err(_), Ok(procfs_ns)) if by_broker && broker_pays(procfs_ns) => Ok(broker_plan()),
        (_, Ok(choice), Err(_)) => Ok(bpf_plan(choice)),
        (_, Err(_), Ok(_)) => Ok(procfs_plan(0)),
        (_, Err(bpf), Err(procfs)) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("nothing can answer: {}; {}", procfs.sentence(), bpf.sentence()),
        )),
        (_, Ok(choice), Ok(procfs_ns)) => {
            let regret_ns = procfs_ns.saturating_sub(choice.pass_ns);
            if choice.entry_ns <= regret_ns.saturating_add(state.regret_ns) && regret_ns > 0 {
                Ok(bpf_plan(choice))
            } else {
                Ok(procfs_plan(regret_ns))
            }
        }
    }
}

/// Who answers [`Group::Rollup`]: nobody where the kernel tells nothing of the kind.
fn rollup_source(support: &Support, forced: Option<SourceId>) -> Result<Option<SourceId>> {
    let facts = [
        (SourceId::SmapsRollup, &support.smaps_rollup),
        (SourceId::Smaps, &support.smaps),
    ];
    let has = |fact: &Fact| fact.verdict != Verdict::No && support.procfs.verdict != Verdict::No;
    match forced {
        None => Ok(facts.into_iter().find(|(_, fact)| has(fact)).map(|(source, _)| source)),
        Some(forced) => match facts.into_iter().find(|(source, _)| *source == forced) {
            Some((_, fact)) if !has(fact) => Err(refused(forced, fact)),
            _ => Ok(Some(forced)),
        },
    }
}

/// The cheapest way to run BPF: what it takes to begin, and what each pass takes.
struct Choice {
    way: BpfWay,
    one_by_one: bool,
    entry_ns: u64,
    pass_ns: u64,
}

impl Choice {
    fn total_ns(&self) -> u64 {
        self.entry_ns.saturating_add(self.pass_ns)
    }
}

struct Ways<'a> {
    support: &'a Support,
    state: &'a State,
    cost: &'a Cost,
}

impl<'a> Ways<'a> {
    /// How BPF would answer `groups`, with `rest` read from procfs of what it finds, or the fact that stands in its way.
    fn bpf(&self, query: &Query, groups: Groups, rest: Groups) -> std::result::Result<Choice, &'a Fact> {
        let support = self.support;
        let can_point = support.iterator_by_pid.verdict != Verdict::No;
        if matches!(query.scope, Scope::Process(_) | Scope::ThreadsOf(_)) && !can_point {
            return Err(&support.iterator_by_pid);
        }
        let needed = if is_tested(query) {
            groups.or(Groups::TESTABLE)
        } else {
            groups
        };
        if self.state.loaded.is_some_and(|loaded| loaded.covers(needed)) {
            return Ok(self.bpf_choice(query, groups, rest, BpfWay::Loaded));
        }
        let needs = [
            &support.bpf_built,
            &support.btf,
            &support.bpf_load,
            &support.task_iterator,
        ];
        let refusal = needs.into_iter().find(|fact| fact.verdict == Verdict::No);
        let to_load = match refusal {
            None => Ok(self.bpf_choice(query, groups, rest, BpfWay::ToLoad)),
            Some(fact) => Err(fact),
        };
        if !support.pinned.is_yes() {
            return to_load;
        }
        let pinned = self.bpf_choice(query, groups, rest, BpfWay::Pinned);
        Ok(match to_load {
            Ok(to_load) if to_load.total_ns() < pinned.total_ns() => to_load,
            _ => pinned,
        })
    }

    /// What BPF would take in one way.
    fn bpf_choice(&self, query: &Query, groups: Groups, rest: Groups, way: BpfWay) -> Choice {
        let Ways { support, cost, .. } = self;
        let can_point = support.iterator_by_pid.verdict != Verdict::No;
        let is_called = way == BpfWay::Pinned || !support.task_walk.is_yes();
        let entry_ns = match way {
            BpfWay::Loaded => 0,
            BpfWay::Pinned => cost.open_pinned_ns,
            BpfWay::ToLoad => {
                let groups = groups.or(self.state.loaded.unwrap_or_default());
                cost.load_ns + cost.load_group_ns * groups.len()
            }
        };
        let mut visit_ns = cost.visit_ns + groups.iter().map(group_ns).sum::<u64>();
        if is_called {
            visit_ns += cost.called_ns;
        }
        // Arguments that are remembered need not be read again, but nobody knows yet of how many processes that is true.
        visit_ns += self.shared_ns(files_ns(files_read(query, rest)));
        let all_ns = cost.pass_ns + self.tasks(query) * visit_ns;
        let one_by_one_ns = match targets(query) {
            Some(targets) if can_point => targets * (self.cost.point_ns + visit_ns),
            _ => u64::MAX,
        };
        let one_by_one = one_by_one_ns <= all_ns || matches!(query.scope, Scope::Process(_) | Scope::ThreadsOf(_));
        Choice {
            way,
            one_by_one,
            entry_ns,
            pass_ns: if one_by_one { one_by_one_ns } else { all_ns },
        }
    }

    /// What procfs would take.
    fn procfs_ns(&self, query: &Query, groups: Groups) -> u64 {
        let files_ns = files_ns(files_read(query, groups).anchored());
        match targets(query) {
            Some(targets) => targets * files_ns,
            None => self.tasks(query) * (self.cost.list_ns + self.shared_ns(files_ns)),
        }
    }

    /// What files take where there are many of them, which several readers share.
    fn shared_ns(&self, files_ns: u64) -> u64 {
        match self.support.processors {
            0 | 1 => files_ns,
            _ => files_ns * 10 / self.cost.shared_files,
        }
    }

    /// How many tasks there are. Where nobody knows, few: procfs is the safe choice then.
    fn tasks(&self, query: &Query) -> u64 {
        let counted = if query.scope.is_threads() {
            self.support.tasks
        } else {
            self.support.processes.or(self.support.tasks)
        };
        counted.unwrap_or(100).into()
    }
}

/// Whether it is left to the source which tasks are meant: of processes that are listed, those that are missing have to be told
/// from those that are not meant.
fn is_tested(query: &Query) -> bool {
    targets(query).is_none() && (query.filter.is_some() || query.changed)
}

/// How many processes are asked about, if it is said which.
fn targets(query: &Query) -> Option<u64> {
    match query.scope {
        Scope::Process(_) | Scope::ThreadsOf(_) => Some(1),
        Scope::Listed | Scope::ThreadsOfListed => Some(query.pids.len() as u64),
        _ => None,
    }
}

/// The files of each task that procfs would read.
fn files_read(query: &Query, groups: Groups) -> Files {
    let fields = query
        .fields_read()
        .iter()
        .filter(|field| groups.contains(field.group()))
        .collect();
    crate::field::files_for(fields)
}

fn refused(source: SourceId, fact: &Fact) -> Error {
    let message = format!("the source {source} can't answer: {}", fact.sentence());
    Error::new(refusal_kind(&[fact]), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;
    use crate::filter::Filter;

    fn host() -> Support {
        let yes = || Fact::yes("");
        Support {
            procfs: yes(),
            procfs_complete: yes(),
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

    fn decide(query: &Query, support: &Support, state: State) -> Plan {
        plan(query, support, &state, &Cost::default()).unwrap()
    }

    /// Check that a one-shot command on a small machine does not load BPF, and on a large one does.
    #[test]
    fn loading_has_to_be_worth_it() {
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
            Some((BpfWay::ToLoad, everything().fields.groups().without(args)))
        );
        // What lies in the memory of processes no program reads.
        assert_eq!((plan.procfs, plan.run), (args, true));
        let last = State {
            is_last: true,
            ..State::default()
        };
        assert!(!decide(&everything(), &large, last).run);
    }

    /// Check that times are left to procfs where programs can't know them, and nothing else is.
    #[test]
    fn times_without_ticks_are_procfs() {
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

    /// Check that a handle that keeps asking on a small machine ends up loading, after losing about what loading takes.
    #[test]
    fn repeated_queries_come_to_load() {
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

    /// Check that what is loaded or pinned is used even for few tasks, but not for a program it is not.
    #[test]
    fn what_is_there_is_used() {
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

    /// Check that a program which finds its tasks is loaded for very many of them although others are pinned.
    #[test]
    fn walking_is_worth_loading() {
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
            bpf_load: Fact::no("CAP_BPF is missing", "run as root"),
            ..host()
        };
        assert_eq!(way(30_000, denied), BpfWay::Pinned);
    }

    /// Check that each missing fact about BPF leads to procfs, and to an error that gives it where BPF is forced.
    #[test]
    fn without_bpf_there_is_procfs() {
        let missing = || Fact::no("CAP_BPF is missing", "run as root");
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
            let error = super::plan(&everything(), &support, &forced, &Cost::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied);
            assert!(
                error.to_string().contains("CAP_BPF is missing (run as root)"),
                "{error}"
            );
        }
    }

    /// Check that without procfs BPF answers even few tasks, and that without both the error names both.
    #[test]
    fn without_procfs_there_is_bpf() {
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
        let error = super::plan(&everything(), &nothing, &State::default(), &Cost::default()).unwrap_err();
        assert!(error.to_string().contains("/proc is not mounted; no BTF"), "{error}");
    }

    /// Check that the broker answers who may not load BPF, if procfs hides no less, and nobody else.
    #[test]
    fn the_broker_is_no_less_than_procfs() {
        let restricted = |hides: bool| Support {
            bpf_load: Fact::no("CAP_BPF is missing", ""),
            broker: Fact::yes(""),
            procfs_complete: if hides { Fact::no("hidepid", "") } else { Fact::yes("") },
            ..host()
        };
        let query = everything();
        let by = |support: &Support| decide(&query, support, State::default()).answer(Group::Base);
        assert_eq!(by(&restricted(true)), Some(Ok(SourceId::Broker)));
        assert_eq!(by(&restricted(false)), Some(Ok(SourceId::Procfs)));
        let observed = Support {
            broker_shows: query.fields.groups(),
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
        let error = plan(&query, &absent, &forced, &Cost::default()).unwrap_err();
        assert!(error.to_string().contains("as root: taskdiagd"), "{error}");
        let capable = Support {
            bpf_load: Fact::yes(""),
            tasks: Some(100_000),
            ..restricted(true)
        };
        assert_eq!(by(&capable), Some(Ok(SourceId::Bpf)));
        // Small things are done before the broker has heard.
        assert_eq!(
            decide(&Query::process(1), &restricted(true), State::default()).broker,
            None
        );
    }

    /// Check that one process is asked of procfs unless BPF can be pointed at it.
    #[test]
    fn one_process_is_not_a_walk() {
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
        assert!(super::plan(&query, &old, &forced, &Cost::default()).is_err());
        assert!(super::plan(&query, &host(), &forced, &Cost::default()).is_ok());
    }

    /// Check that without the unified hierarchy its group is answered by nobody, and the rest as ever.
    #[test]
    fn no_cgroup2_leaves_that_group_out() {
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

    /// Check that rollups are read from smaps_rollup, else from smaps, else by nobody, and that BPF is not asked for them.
    #[test]
    fn rollups_have_sources_of_their_own() {
        let query = Query::processes().fields(Field::PssBytes | Field::Comm);
        let loaded = State {
            loaded: Some(Groups::ALL),
            ..State::default()
        };
        let plan = decide(&query, &host(), loaded);
        assert_eq!(plan.answer(Group::Rollup), Some(Ok(SourceId::SmapsRollup)));
        // What the price of a walk is estimated from is read before.
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
        assert!(super::plan(&query, &old, &forced, &Cost::default()).is_err());
        let neither = Support {
            smaps: Fact::no("CONFIG_PROC_PAGE_MONITOR", ""),
            ..old
        };
        let plan = decide(&query, &neither, loaded);
        assert_eq!(plan.answer(Group::Rollup), Some(Err(Absent::Unsupported)));
        assert_eq!(plan.answer(Group::Base), Some(Ok(SourceId::Bpf)));
    }

    /// Check what is added up of which prices.
    #[test]
    fn prices_add_up() {
        let (support, cost, nothing) = (host(), Cost::default(), State::default());
        let ways = Ways {
            support: &support,
            state: &nothing,
            cost: &cost,
        };
        let all = Query::processes().fields(Field::Comm | Field::Uid);
        let groups = all.fields.groups();
        let visit = 200 + 50 + 50;
        let price = |ways: &Ways<'_>, query: &Query, way| {
            let choice = ways.bpf_choice(query, groups, Groups::NONE, way);
            (choice.entry_ns, choice.pass_ns, choice.one_by_one)
        };
        let load = 8_500_000 + 2 * 800_000;
        assert_eq!(price(&ways, &all, BpfWay::ToLoad), (load, 10_000 + 100 * visit, false));
        assert_eq!(price(&ways, &all, BpfWay::Loaded), (0, 10_000 + 100 * visit, false));
        let called = 10_000 + 100 * (visit + 400);
        assert_eq!(price(&ways, &all, BpfWay::Pinned), (60_000, called, false));
        assert_eq!(
            price(&ways, &Query::process(1), BpfWay::Loaded),
            (0, 5_000 + visit, true)
        );
        let few = Query::these([1, 2, 3]).fields(Field::Comm | Field::Uid);
        assert_eq!(price(&ways, &few, BpfWay::Loaded), (0, 3 * (5_000 + visit), true));
        // One more than it pays to point at, which is 40,000 / 5,300.
        assert!(price(&ways, &Query::these(1..8), BpfWay::Loaded).2);
        assert!(!price(&ways, &Query::these(1..9), BpfWay::Loaded).2);
        let choice = ways.bpf_choice(&all, groups, Groups::NONE, BpfWay::ToLoad);
        assert_eq!(choice.total_ns(), load + 10_000 + 100 * visit);
        // What else is read of each task is shared by two.
        let args = Query::processes().fields(Field::Comm | Field::Uid | Field::Cmdline);
        let rest = Groups::NONE.with(Group::Args);
        let choice = ways.bpf_choice(&args, groups, rest, BpfWay::Loaded);
        assert_eq!(choice.pass_ns, 10_000 + 100 * (visit + 10_000 * 10 / 19));
        // A program that is loaded for more groups is loaded for all of them.
        let loaded = State {
            loaded: Some(Groups::NONE.with(Group::Mem)),
            ..nothing
        };
        let more = Ways { state: &loaded, ..ways };
        assert_eq!(price(&more, &all, BpfWay::ToLoad).0, load + 800_000);
        let old = Support {
            task_walk: Fact::no("Linux 6.1; it came with 6.2", ""),
            iterator_by_pid: Fact::no("Linux 6.1 is needed", ""),
            processors: 1,
            ..host()
        };
        let old = Ways { support: &old, ..ways };
        assert_eq!(price(&old, &all, BpfWay::Loaded), (0, called, false));
        assert_eq!(price(&old, &few, BpfWay::Loaded), (0, called, false));
        let read = files_ns(files_read(&all, groups).anchored());
        assert_eq!(old.procfs_ns(&all, groups), 100 * (300 + read));
        assert_eq!(ways.procfs_ns(&all, groups), 100 * (300 + read * 10 / 19));
        assert_eq!(ways.procfs_ns(&few, groups), 3 * read);
        assert!(read > 10_000);
    }

    /// Check how many tasks a scope is taken to have.
    #[test]
    fn tasks_are_counted_by_scope() {
        let (cost, state) = (Cost::default(), State::default());
        let tasks = |tasks, processes, query: &Query| {
            let support = Support {
                tasks,
                processes,
                ..host()
            };
            let ways = Ways {
                support: &support,
                state: &state,
                cost: &cost,
            };
            ways.tasks(query)
        };
        assert_eq!(tasks(Some(70), Some(30), &Query::processes()), 30);
        assert_eq!(tasks(Some(70), Some(30), &Query::threads()), 70);
        assert_eq!(tasks(Some(70), None, &Query::processes()), 70);
        assert_eq!(tasks(None, None, &Query::threads()), 100);
    }

    /// Check from when on things pay, to the nanosecond.
    #[test]
    fn what_pays_is_decided_to_the_nanosecond() {
        let query = Query::processes().fields(Field::Comm | Field::Uid | Field::Cmdline);
        let support = Support {
            bpf_load: Fact::no("CAP_BPF is missing", ""),
            broker: Fact::yes(""),
            procfs_complete: Fact::no("hidepid", ""),
            processors: 1,
            ..host()
        };
        let (state, cost) = (State::default(), Cost::default());
        let ways = Ways {
            support: &support,
            state: &state,
            cost: &cost,
        };
        let procfs_ns = ways.procfs_ns(&query, query.fields.groups());
        let equal = procfs_ns - 100 * (3 * 200 + 10_000);
        for (broker_ns, pays) in [(equal - 1, true), (equal, false), (equal + 1, false)] {
            let cost = Cost {
                broker_ns,
                ..Cost::default()
            };
            let plan = plan(&query, &support, &state, &cost).unwrap();
            assert_eq!(plan.broker.is_some(), pays, "{broker_ns}");
        }
        // As fast as a program that is loaded: what need not be begun is not.
        let loaded = State {
            loaded: Some(Groups::ALL),
            ..State::default()
        };
        let host = host();
        let base = Query::processes().fields(Field::Comm);
        let ways = Ways {
            support: &host,
            state: &loaded,
            cost: &cost,
        };
        let equal = ways.procfs_ns(&base, base.fields.groups()) - 100 * (200 + 50);
        for (pass_ns, by_bpf) in [(equal - 1, true), (equal, false)] {
            let cost = Cost {
                pass_ns,
                ..Cost::default()
            };
            let plan = plan(&base, &host, &loaded, &cost).unwrap();
            assert_eq!(plan.bpf.is_some(), by_bpf, "{pass_ns}");
        }
    }

    /// Check that few processes are asked of the broker one by one, and that it answers where nothing else can.
    #[test]
    fn the_broker_answers_alone() {
        let support = Support {
            procfs: Fact::no("/proc is not mounted", ""),
            bpf_load: Fact::no("CAP_BPF is missing", ""),
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

    /// Check that programs are given tests where there is something to be tested, and not where processes are listed.
    #[test]
    fn programs_test_what_is_not_listed() {
        let loaded = State {
            loaded: Some(Groups::ALL.or(Groups::TESTABLE)),
            ..State::default()
        };
        let tested = |query: Query| decide(&query.fields(Field::Comm), &host(), loaded).tested;
        let filter = || Filter::parse("pid == 1").unwrap();
        assert!(!tested(Query::processes()));
        assert!(tested(Query::processes().filter(filter())));
        assert!(tested(Query::processes().only_changed()));
        assert!(!tested(Query::these([1, 2]).filter(filter())));
        assert!(!tested(Query::process(1).only_changed()));
    }

    /// Check that sources of rollups that can answer can be forced, and that nobody is said not to answer what was not asked.
    #[test]
    fn forced_rollups_are_read() {
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
}
