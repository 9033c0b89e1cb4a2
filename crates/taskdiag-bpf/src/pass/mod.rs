//! Passes over tasks: runs the programs, and appends their records to a snapshot.

mod program;
#[cfg(test)]
pub(crate) mod tests;

use std::os::fd::BorrowedFd;
use std::path::Path;

use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::{Group, Groups};
use taskdiag_core::plan::BpfWay;
use taskdiag_core::query::Scope;
use taskdiag_core::record::walk::Config;
use taskdiag_core::record::{self, attr, KernelTest, Record, TESTS};
use taskdiag_core::snapshot::Snapshot;
use taskdiag_sys::host;

use crate::network::Network;
use program::{reader_key, Form, Program, SEEN_ENTRIES};

pub(crate) use program::{load_called, PINNED, READERS};

/// The BPF source of one handle.
#[derive(Debug, Default)]
pub struct Bpf {
    program: Option<Program>,
    /// Who counts network traffic, if somebody does.
    network: Option<Network>,
    host: Option<HostFacts>,
    /// The current `td_config.changed_epoch`, minus one.
    changed_epoch: u32,
}

/// What a pass reads.
#[derive(Clone, Copy, Debug)]
pub struct PassRequest<'a> {
    /// Which tasks it visits.
    pub scope: Scope,
    /// The processes to visit, each with a separate iterator; if empty, all in the scope.
    pub pids: &'a [u32],
    /// The groups of fields that it reads.
    pub groups: Groups,
    /// The tests that a task must pass to have a record.
    pub tests: &'a [KernelTest],
    /// Whether only tasks that used processor time since the last pass with this set have a record.
    pub changed: bool,
    /// From whose point of view ids and paths are given.
    pub standpoint: Standpoint,
    /// It ends early once there are this many tasks, or a few more.
    pub most: usize,
}

/// The task whose namespaces and root a pass uses for ids and paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Standpoint {
    /// The address of the task, from its record's view; 0 for the reader.
    pub task: u64,
    /// `td_config.landlock`.
    pub landlock: u32,
}

impl PassRequest<'_> {
    /// Reads only the ids of the tasks in a scope.
    pub fn ids(scope: Scope) -> PassRequest<'static> {
        PassRequest {
            scope,
            pids: &[],
            groups: Groups::NONE,
            tests: &[],
            changed: false,
            standpoint: Standpoint::default(),
            most: usize::MAX,
        }
    }
}

/// The facts about this host that programs need.
#[derive(Clone, Copy, Debug)]
struct HostFacts {
    cpus: u32,
    full_names: bool,
    rss_sum: bool,
}

impl Bpf {
    /// The groups that can be read without loading a program. `None` if none is loaded.
    pub fn loaded(&self) -> Option<Groups> {
        let program = self.program.as_ref().filter(|program| program.is_ours())?;
        Some(program.groups)
    }

    /// Loads or opens a program that can read `groups` in addition to all groups that could be read
    /// before.
    pub fn prepare(&mut self, way: BpfWay, groups: Groups, pinned: &Path) -> Result<()> {
        let groups = groups.or(self.loaded().unwrap_or_default());
        if way != BpfWay::Loaded && self.network.is_none() {
            self.network = Network::pinned(pinned);
        }
        self.program = Some(match way {
            BpfWay::Loaded => return Ok(()),
            // It reads the pinned table, if there is one.
            BpfWay::Pinned if !self.counts_network() => Program::pinned(pinned)?,
            BpfWay::Pinned | BpfWay::ToLoad => {
                let network = self.network.as_ref().map(Network::table);
                Program::load(groups, network)?
            }
        });
        Ok(())
    }

    /// Begins to count network traffic, unless a pinned program does: until this is dropped.
    pub fn count_network(&mut self, pinned: &Path) -> Result<()> {
        if !self.knows_network(pinned) {
            self.network = Some(Network::count()?);
            self.program = None;
        }
        Ok(())
    }

    /// Whether somebody counts network traffic for this.
    pub fn knows_network(&mut self, pinned: &Path) -> bool {
        if self.network.is_none() && self.loaded().is_none() {
            self.network = Network::pinned(pinned);
        }
        self.network.is_some()
    }

    /// The table of network traffic, if somebody counts it for this.
    pub fn network_table(&self) -> Option<BorrowedFd<'_>> {
        self.network.as_ref().map(Network::table)
    }

    /// Whether it counts network traffic itself.
    fn counts_network(&self) -> bool {
        self.network.as_ref().is_some_and(|network| !network.links.is_empty())
    }

    /// Promises that only this thread will use the loaded program, so its key is computed only
    /// once.
    pub fn keep_to_this_thread(&mut self) -> Result<()> {
        if let Some(program) = &mut self.program {
            program.reader = Some(reader_key()?);
        }
        Ok(())
    }

    /// Whether the loaded program finds its tasks itself.
    pub fn finds_tasks_itself(&self) -> bool {
        let program = self.program.as_ref().filter(|program| program.is_ours());
        program.is_some_and(|program| matches!(program.form, Form::Walk(_)))
    }

    /// Whether the loaded program can leave out tasks that have not changed.
    pub fn knows_changes(&self) -> bool {
        let program = self.program.as_ref().filter(|program| program.is_ours());
        program.is_some_and(|program| matches!(program.form, Form::Walk(_)) && program.groups.covers(Groups::TESTABLE))
    }

    /// Makes a pass, and appends its records and rows to `snapshot`.
    pub fn read(&mut self, request: &PassRequest<'_>, snapshot: &mut Snapshot) -> Result<()> {
        let PassRequest { scope, groups, .. } = *request;
        let host = *self.host.get_or_insert_with(|| HostFacts {
            cpus: host::possible_cpus(),
            full_names: host::kernel_version().is_some_and(|version| version >= (6, 11)),
            rss_sum: host::sums_memory_counters(),
        });
        let program = match &mut self.program {
            Some(program) if program.is_ours() => program,
            _ => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "this process has loaded no BPF program",
                ))
            }
        };
        let mut config = Config {
            groups: groups.0,
            threads: scope.is_threads().into(),
            ppid: match scope {
                Scope::ChildrenOf(pid) => pid,
                _ => 0,
            },
            rss_sum: host.rss_sum.into(),
            cpus: host.cpus,
            full_names: host.full_names.into(),
            total_pages: if groups.contains(Group::Oom) {
                host::total_pages()
            } else {
                0
            },
            tests_count: 0,
            changed: request.changed.into(),
            changed_epoch: self.changed_epoch + 1,
            seen_mask: SEEN_ENTRIES - 1,
            landlock: request.standpoint.landlock,
            reserved: 0,
            as_task: request.standpoint.task,
            tests: [KernelTest::default(); TESTS],
        };
        // Without tests there are more records, never fewer.
        if program.groups.covers(Groups::TESTABLE) {
            config.tests_count = request.tests.len() as u32;
            config.tests[..request.tests.len()].copy_from_slice(request.tests);
        }
        let reader = program.configure(config)?;
        let result = program.pass(scope, request.pids, request.most, snapshot);
        reader.remove(program);
        if result.is_err() {
            // The program has recorded visits of tasks whose records were lost.
            self.changed_epoch += 1;
        }
        result
    }
}

/// The groups of a record that are deferred to procfs.
pub fn deferred(record: Record<'_>) -> Groups {
    match record.get::<record::Defer>(attr::DEFER) {
        Some(defer) if record.has(record::DEFERRED) => Groups(defer.groups.get()),
        _ => Groups::NONE,
    }
}
