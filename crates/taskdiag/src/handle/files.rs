//! Which source answers about the files of processes.

use taskdiag_core::error::{ErrorKind, Result};
use taskdiag_core::field::Groups;
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::snapshot::{Snapshot, SourceId};
use taskdiag_core::support::{refusal_kind, Support, Verdict};
use taskdiag_sys::host::is_initial_pid_namespace;

use super::Handle;
use crate::files::{self, Answer, Each, OtherEnds, Request};

impl Handle {
    /// Whether this source hides some processes.
    pub(crate) fn hides_processes(&mut self, source: SourceId) -> bool {
        // Those outside of the pid namespace have no number in it.
        if !is_initial_pid_namespace() && !self.sources.proc().is_outer() {
            return true;
        }
        match source {
            SourceId::Broker => !self.sources.broker().is_ok_and(|broker| broker.sees_all()),
            SourceId::Procfs => self.facts().procfs_complete.verdict == Verdict::No,
            _ => false,
        }
    }

    /// Passes on the files of processes, like [`files`](Handle::files). `other_ends` is given if
    /// the request asks for them.
    pub(crate) fn read_files(
        &mut self,
        processes: &Snapshot,
        request: &Request,
        other_ends: Option<&dyn OtherEnds>,
        each: &mut Each<'_>,
    ) -> Result<Answer> {
        let patience = self.patience_of_calls();
        let via = match self.prepare_files(processes)? {
            SourceId::Broker => files::Via::Broker(self.sources.broker()?),
            source => files::Via::Own(source),
        };
        files::answer(&mut self.files, via, processes, request, other_ends, patience, each)
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Handle {
    /// Returns the source that will answer [`files`](Handle::files) about these processes, and
    /// loads what it needs. Fails like [`files`](Handle::files).
    pub fn prepare_files(&mut self, processes: &Snapshot) -> Result<SourceId> {
        let source = self.files.prepare(self.forced()?, processes.len())?;
        self.sources.procfs()?;
        if source == SourceId::Broker {
            self.sources.broker()?.check_files()?;
        }
        Ok(source)
    }

    /// Whether the source of a query about many tasks does not find those that the procfs hides from
    /// the caller.
    pub fn lacks_hidden(&mut self, query: &Query) -> bool {
        let is_of_many = !query.scope.is_listed() && !matches!(query.scope, Scope::Process(_) | Scope::ThreadsOf(_));
        let is_denied = |support: &Support| refusal_kind(&[&support.procfs_complete]) == ErrorKind::Denied;
        is_of_many
            && self.past.is_none()
            && is_denied(self.facts())
            && self.proc().hidden_by().is_some()
            && match self.plan_of(query).map(|plan| plan.first().0) {
                Ok(SourceId::Broker) => {
                    let broker = self.sources.broker();
                    !broker.is_ok_and(|broker| broker.sees_all() || broker.shows_of_all() != Groups::NONE)
                }
                Ok(source) => source == SourceId::Procfs,
                Err(_) => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Check that files and sockets are read with the patience of a query, if it has one, and later
    /// ones with that of the handle.
    #[test]
    fn a_query_may_have_its_own_patience() {
        let [of_handle, of_query] = [7, 3].map(Duration::from_secs);
        let mut handle = Handle::new().with_patience(of_handle);
        let query = Query::processes();
        for (query, patience) in [(query.clone().patience(of_query), of_query), (query, of_handle)] {
            let during = handle.with_patience_of(&query, |handle| handle.patience_of_calls());
            assert_eq!((during, handle.patience_of_calls()), (patience, of_handle));
        }
    }
}
