//! Estimates of the time that each source takes to answer a query.

use super::{BpfWay, State};
use crate::field::{Field, Files, Group, Groups};
use crate::query::{Query, Scope};
use crate::support::{Fact, Support, Verdict};

/// The time of single steps on an ordinary machine, in nanoseconds. Only the proportions matter.
/// `docs/benchmarks.md` has the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Loading a program.
    pub load_ns: u64,
    /// Loading it: the additional time for each group that it can answer.
    pub load_group_ns: u64,
    /// Opening a pinned program.
    pub open_pinned_ns: u64,
    /// Starting and ending an iterator over all tasks.
    pub pass_ns: u64,
    /// Starting and ending an iterator over one process.
    pub point_ns: u64,
    /// Visiting a task.
    pub visit_ns: u64,
    /// The additional time of a visit if the kernel calls the program for each task.
    pub called_ns: u64,
    /// Finding a process in `/proc`.
    pub list_ns: u64,
    /// How many files two readers together read in the time in which one reads ten.
    pub shared_files: u64,
    /// Sending the broker a request and receiving its answer.
    pub broker_ns: u64,
    /// Running a program that walks over all processes, and checking what it gave.
    pub walk_ns: u64,
    /// How much longer procfs takes for the open files of a process: some ten system calls for each.
    pub files_ns: u64,
    /// The same for its mappings: opening, reading and closing a file, and parsing some thirty lines.
    pub mappings_ns: u64,
    /// The same for whether it maps some files.
    pub mapped_ns: u64,
    /// One mapping, asked for by ioctl.
    pub map_ns: u64,
    /// Its name.
    pub map_name_ns: u64,
    /// A mapping that the ioctl skips because of a filter.
    pub map_skipped_ns: u64,
    /// A run of the BPF program over the mappings of one process, and the check afterwards.
    pub map_walk_ns: u64,
    /// A mapping that it returns, and its share of the names that are queried.
    pub map_walked_ns: u64,
    /// A mapping that it skips.
    pub map_passed_ns: u64,
    /// The maximum number of listed processes for which the broker is asked one by one rather than
    /// for all tasks.
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
            walk_ns: 200_000,
            files_ns: 160_000,
            mappings_ns: 10_000,
            mapped_ns: 20_000,
            map_ns: 240,
            map_name_ns: 160,
            map_skipped_ns: 35,
            map_walk_ns: 2_000,
            map_walked_ns: 200,
            map_passed_ns: 25,
            broker_targets: 64,
        }
    }
}

/// The time to read a group, in addition to the visit.
fn group_ns(group: Group) -> u64 {
    match group {
        Group::Paths => 2_200,
        Group::Cpu => 400,
        Group::Signals | Group::Oom | Group::Mem | Group::Fds => 250,
        Group::Namespaces => 120,
        _ => 50,
    }
}

/// The time to open, read, parse and close files that were not open before.
pub(super) fn files_ns(files: Files) -> u64 {
    let one = |bit: u32| match Files::from_bits_retain(1 << bit) {
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
    (0..u32::BITS).filter(|bit| files.bits() >> bit & 1 != 0).map(one).sum()
}

/// The cost of one way to run BPF.
pub(super) struct BpfPrice {
    pub(super) way: BpfWay,
    /// Whether the listed processes are visited one by one.
    pub(super) one_by_one: bool,
    /// The time to get the program, once.
    pub(super) entry_ns: u64,
    /// The time of each pass.
    pub(super) pass_ns: u64,
}

impl BpfPrice {
    /// The time of a pass, and of the entry as far as earlier queries have not paid for it.
    pub(super) fn total_ns(&self, paid_ns: u64) -> u64 {
        self.pass_ns.saturating_add(self.entry_ns.saturating_sub(paid_ns))
    }
}

/// Computes the costs for a host and the state of a handle.
pub(super) struct Prices<'a> {
    pub(super) support: &'a Support,
    pub(super) state: &'a State,
    pub(super) cost: &'a Cost,
}

impl<'a> Prices<'a> {
    /// The cheapest way in which BPF can answer `groups` while procfs answers `rest` for the tasks
    /// that BPF finds. `tested`: the program must be able to test tasks. Fails with the fact that
    /// prevents it.
    pub(super) fn bpf(
        &self,
        query: &Query,
        tested: bool,
        groups: Groups,
        rest: Groups,
    ) -> std::result::Result<BpfPrice, &'a Fact> {
        let support = self.support;
        let can_point = support.iterator_by_pid.verdict != Verdict::No;
        if matches!(query.scope, Scope::Process(_) | Scope::ThreadsOf(_)) && !can_point {
            return Err(&support.iterator_by_pid);
        }
        let needed = if tested { groups.or(Groups::TESTABLE) } else { groups };
        if self.state.loaded.is_some_and(|loaded| loaded.covers(needed)) {
            return Ok(self.bpf_by(query, groups, rest, BpfWay::Loaded));
        }
        let needs = [
            &support.bpf_built,
            &support.btf,
            &support.bpf_load,
            &support.task_iterator,
        ];
        let refusal = needs.into_iter().find(|fact| fact.verdict == Verdict::No);
        let to_load = match refusal {
            None => Ok(self.bpf_by(query, groups, rest, BpfWay::ToLoad)),
            Some(fact) => Err(fact),
        };
        if !support.pinned.is_yes() {
            return to_load;
        }
        let pinned = self.bpf_by(query, groups, rest, BpfWay::Pinned);
        Ok(match to_load {
            Ok(to_load) if to_load.total_ns(0) < pinned.total_ns(0) => to_load,
            _ => pinned,
        })
    }

    /// The cost of one way to run BPF.
    pub(super) fn bpf_by(&self, query: &Query, groups: Groups, rest: Groups, way: BpfWay) -> BpfPrice {
        let Prices { support, cost, .. } = self;
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
        // Remembered arguments are not read again, but the planner can't know how many there are.
        visit_ns += self.shared_ns(files_ns(files_read(query, rest)));
        let all_ns = cost.pass_ns + self.tasks(query) * visit_ns;
        let one_by_one_ns = match targets(query) {
            Some(targets) if can_point => targets * (cost.point_ns + visit_ns),
            _ => u64::MAX,
        };
        let one_by_one = one_by_one_ns <= all_ns || matches!(query.scope, Scope::Process(_) | Scope::ThreadsOf(_));
        BpfPrice {
            way,
            one_by_one,
            entry_ns,
            pass_ns: if one_by_one { one_by_one_ns } else { all_ns },
        }
    }

    /// The time that procfs takes.
    pub(super) fn procfs_ns(&self, query: &Query, groups: Groups) -> u64 {
        let files_ns = files_ns(files_read(query, groups).anchored());
        match targets(query) {
            Some(targets) => targets * files_ns,
            None => self.tasks(query) * (self.cost.list_ns + self.shared_ns(files_ns)),
        }
    }

    /// The time that the broker takes, while procfs answers `rest` for the tasks that the broker
    /// finds.
    pub(super) fn broker_ns(&self, query: &Query, rest: Groups) -> u64 {
        let tasks = targets(query).unwrap_or(self.tasks(query));
        let rest_ns = self.shared_ns(files_ns(files_read(query, rest)));
        self.cost.broker_ns + tasks * (self.cost.visit_ns * 3 + rest_ns)
    }

    /// The time to read the files of many tasks. With several processors, several reader threads
    /// share the work.
    fn shared_ns(&self, files_ns: u64) -> u64 {
        match self.support.processors {
            0 | 1 => files_ns,
            _ => files_ns * 10 / self.cost.shared_files,
        }
    }

    /// The number of tasks on the host. If unknown, it is taken to be small, because procfs is then
    /// the safe choice.
    pub(super) fn tasks(&self, query: &Query) -> u64 {
        let counted = if query.scope.is_threads() {
            self.support.tasks
        } else {
            self.support.processes.or(self.support.tasks)
        };
        counted.unwrap_or(100).into()
    }
}

/// The number of processes that a query lists, if it lists any.
pub(super) fn targets(query: &Query) -> Option<u64> {
    match query.scope {
        Scope::Process(_) | Scope::ThreadsOf(_) => Some(1),
        Scope::Listed | Scope::ThreadsOfListed => Some(query.pids.len() as u64),
        _ => None,
    }
}

/// The files of each task that procfs would read.
pub(super) fn files_read(query: &Query, groups: Groups) -> Files {
    let is_wanted = |field: &Field| groups.contains(field.group());
    crate::field::files_for(query.fields.iter().filter(is_wanted).collect())
}
