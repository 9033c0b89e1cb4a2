//! The plan: which source answers which group. It is a pure function of query, support, state and
//! costs.

mod choice;
mod price;
#[cfg(test)]
mod tests;

use crate::absent::Absent;
use crate::error::Result;
use crate::field::{Group, Groups};
use crate::filter::Filter;
use crate::query::{Preparation, Query};
use crate::snapshot::SourceId;
use crate::support::{Fact, Support, Verdict};

pub use choice::{choose, WalkChoice, LAST};
pub use price::Cost;
use price::{targets, Prices};

/// A way to run a BPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BpfWay {
    /// This handle has loaded the program.
    Loaded,
    /// The program is pinned.
    Pinned,
    /// This handle would have to load the program.
    ToLoad,
}

/// What a plan depends on in addition to the query and the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The only source that may answer, if the caller chose one.
    pub forced: Option<SourceId>,
    /// The only source that may answer [`Group::Rollup`], if the caller chose one.
    pub forced_rollup: Option<SourceId>,
    /// The groups that the loaded program can answer, if one is loaded.
    pub loaded: Option<Groups>,
    /// How much time earlier queries of the handle lost because no program was loaded for them.
    /// Loading pays off once this exceeds the time that loading takes. So the total loss is at most
    /// twice that of the best choice, whatever queries follow.
    pub regret_ns: u64,
    /// The source that knows network traffic, if somebody counts it: BPF or the broker.
    pub network: Option<SourceId>,
    /// Whether the handle will get no more queries, so that it need not remember anything.
    pub is_last: bool,
}

/// Which source answers which group of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The groups that BPF answers, and how to run its program. BPF then also finds the tasks.
    pub bpf: Option<(BpfWay, Groups)>,
    /// Whether BPF also records a process's run time and context switches (`TD_ATTR_RUN`). They
    /// show that its arguments can't have changed.
    pub run: bool,
    /// The groups that procfs answers. It also finds the tasks if no other source does.
    pub procfs: Groups,
    /// The groups that the broker answers. The broker then also finds the tasks.
    pub broker: Option<Groups>,
    /// Whether the BPF program may be given tests, so that it makes no records for tasks that the
    /// query excludes. A filter can have no part that a program can test: then there are none.
    pub tested: bool,
    /// Whether the listed processes are visited one by one, rather than all tasks.
    pub one_by_one: bool,
    /// The source of [`Group::Rollup`], which is read after all others, if the query asks for it.
    pub rollup: Option<SourceId>,
    /// The groups that no source on this host can answer.
    pub unanswered: Groups,
    /// How much time the query loses because no program is loaded. It is added to
    /// [`State::regret_ns`].
    pub regret_ns: u64,
}

impl Plan {
    /// The source that finds the tasks, and the groups that it answers.
    pub fn first(&self) -> (SourceId, Groups) {
        match (self.bpf, self.broker) {
            (Some((_, groups)), _) => (SourceId::Bpf, groups),
            (_, Some(groups)) => (SourceId::Broker, groups),
            _ => (SourceId::Procfs, self.procfs),
        }
    }

    /// The source that answers a group, or why none does. `None` if the query does not need the
    /// group.
    pub fn answer(&self, group: Group) -> Option<std::result::Result<SourceId, Absent>> {
        match self.bpf {
            _ if self.unanswered.contains(group) => Some(Err(match group {
                Group::Net => Absent::NotCounted,
                _ => Absent::Unsupported,
            })),
            _ if group == Group::Rollup => self.rollup.map(Ok),
            Some((_, groups)) if groups.contains(group) => Some(Ok(SourceId::Bpf)),
            _ if self.broker.is_some_and(|groups| groups.contains(group)) => Some(Ok(SourceId::Broker)),
            _ if self.procfs.contains(group) => Some(Ok(SourceId::Procfs)),
            _ => None,
        }
    }
}

/// Decides which source answers which group of a query.
pub fn plan(prepared: &Preparation, support: &Support, state: &State, cost: &Cost) -> Result<Plan> {
    let query = &prepared.query;
    let asked = Asked::of(query, support, state)?;
    let run = asked.only_procfs.contains(Group::Args) && !state.is_last && !query.scope.is_threads();
    let others = asked.groups.without(asked.only_procfs);
    let common = asked.common_plan();
    let tested = is_tested(query);
    let prices = Prices { support, state, cost };
    let by_bpf = prices.bpf(
        query,
        tested,
        if run { others.with(Group::Args) } else { others },
        asked.only_procfs,
    );
    let procfs_ns = prices.procfs_ns(query, asked.groups);
    let of_network = state.network.filter(|_| asked.groups.contains(Group::Net));
    let forced = state.forced.or(of_network);
    // The broker shows only tasks that the caller may trace, except in the groups that it shows for
    // every task. Where procfs shows more tasks, the broker can't replace it.
    let broker_is_as_good = support.procfs.verdict == Verdict::No
        || support.procfs_complete.verdict == Verdict::No
        || support.broker_shows.covers(asked.groups);
    let has_broker = by_bpf.is_err() && support.broker.is_yes() && broker_is_as_good;
    let bpf_ns = by_bpf.as_ref().map_err(|&fact| fact).map(|price| {
        if procfs_denies(support, others) {
            0
        } else {
            price.total_ns(state.regret_ns)
        }
    });
    let broker_ns = prices.broker_ns(query, asked.only_procfs);
    let candidates = [
        (SourceId::Procfs, able(&support.procfs).map(|()| procfs_ns)),
        (SourceId::Bpf, bpf_ns),
        (SourceId::Broker, able(&support.broker).map(|()| broker_ns)),
    ];
    let possible = match forced {
        Some(_) => &candidates[..],
        None => &candidates[..2 + usize::from(has_broker)],
    };
    match (choose("answer", forced, possible)?, by_bpf) {
        (SourceId::Bpf, Ok(price)) => Ok(Plan {
            bpf: Some((price.way, others)),
            run,
            tested,
            one_by_one: price.one_by_one,
            ..common
        }),
        (SourceId::Broker, _) => Ok(Plan {
            broker: Some(others),
            one_by_one: targets(query).is_some_and(|targets| targets <= cost.broker_targets),
            ..common
        }),
        (_, by_bpf) => Ok(Plan {
            procfs: asked.groups,
            regret_ns: match by_bpf {
                Ok(price) if forced.is_none() => procfs_ns.saturating_sub(price.pass_ns),
                _ => 0,
            },
            ..common
        }),
    }
}

/// Fails with the fact that a source can't answer.
fn able(fact: &Fact) -> std::result::Result<(), &Fact> {
    match fact.verdict {
        Verdict::No => Err(fact),
        _ => Ok(()),
    }
}

/// Whether procfs denies the caller something that BPF shows: values of these groups, or tasks.
fn procfs_denies(support: &Support, groups: Groups) -> bool {
    let hides = support.procfs_complete.verdict == Verdict::No;
    support.may_trace.verdict == Verdict::No && (hides || groups.intersects(Groups::TRACED))
}

/// The groups of a query, divided by the sources on this host that can answer them.
struct Asked {
    /// The groups that some source can answer, without [`Group::Rollup`].
    groups: Groups,
    /// Those of `groups` that only procfs can answer, whichever source finds the tasks.
    only_procfs: Groups,
    /// The source of [`Group::Rollup`], if the query asks for it and there is one.
    rollup: Option<SourceId>,
    /// The groups that no source can answer.
    unanswered: Groups,
}

impl Asked {
    fn of(query: &Query, support: &Support, state: &State) -> Result<Asked> {
        let mut groups = Groups::of(query.fields);
        let mut unanswered = Groups::NONE;
        if state.network.is_none() || state.forced.is_some_and(|forced| Some(forced) != state.network) {
            unanswered = groups.and(Groups::NONE.with(Group::Net));
            groups = groups.without(unanswered);
        }
        if groups.contains(Group::Cgroup) && support.cgroup2.verdict == Verdict::No {
            unanswered = unanswered.with(Group::Cgroup);
            groups = groups.without(unanswered);
        }
        // BPF programs do not know the times of tasks on hosts with nohz_full.
        let mut only_procfs = groups.and(Groups::ONLY_PROCFS);
        if support.plain_times.verdict == Verdict::No {
            only_procfs = only_procfs.or(groups.and(Groups::NONE.with(Group::Cpu)));
        }
        if support.procfs.verdict == Verdict::No {
            unanswered = unanswered.or(only_procfs);
            groups = groups.without(only_procfs);
            only_procfs = Groups::NONE;
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
        Ok(Asked {
            groups,
            only_procfs,
            rollup,
            unanswered,
        })
    }

    /// The part that all plans have in common. No source is set for the groups that several sources
    /// can answer.
    fn common_plan(&self) -> Plan {
        Plan {
            procfs: self.only_procfs,
            rollup: self.rollup,
            unanswered: self.unanswered,
            ..Plan::default()
        }
    }
}

/// The source of [`Group::Rollup`]. `None` if this kernel has none.
fn rollup_source(support: &Support, forced: Option<SourceId>) -> Result<Option<SourceId>> {
    let cost = |fact| able(&support.procfs).and(able(fact)).map(|()| 0);
    let candidates = [
        (SourceId::SmapsRollup, cost(&support.smaps_rollup)),
        (SourceId::Smaps, cost(&support.smaps)),
    ];
    match choose("answer", forced, &candidates) {
        Err(error) if forced.is_some() => Err(error),
        chosen => Ok(chosen.ok()),
    }
}

/// Whether the BPF program may decide which tasks get a record. Not for listed processes: one
/// without a record would be taken for one that does not exist.
fn is_tested(query: &Query) -> bool {
    let has_tests = || query.filter.as_ref().is_some_and(Filter::has_kernel_tests);
    targets(query).is_none() && (query.changed || has_tests())
}
