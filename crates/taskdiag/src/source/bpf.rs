//! BPF programs as a source.

use taskdiag_bpf::pass::{Bpf, PassRequest, Standpoint};
use taskdiag_core::error::Result;
use taskdiag_core::query::Scope;
use taskdiag_core::snapshot::Snapshot;

use super::{Source, TaskRequest};

impl Source for Bpf {
    fn read_tasks(&mut self, request: &TaskRequest<'_>, snapshot: &mut Snapshot) -> Result<bool> {
        let query = request.query;
        let is_listed = query.scope.is_listed();
        let changed = request.changed && self.knows_changes();
        let pass = PassRequest {
            scope: match query.scope {
                Scope::Listed => Scope::Processes,
                Scope::ThreadsOfListed => Scope::Threads,
                scope => scope,
            },
            pids: if is_listed && request.one_by_one {
                &query.pids
            } else {
                &[]
            },
            groups: request.groups,
            tests: request.tests,
            changed,
            standpoint: Standpoint::default(),
            most: usize::MAX,
        };
        self.read(&pass, snapshot)?;
        Ok(changed)
    }
}
