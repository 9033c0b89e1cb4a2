//! What a handle would do with a query.

use std::fmt;

use taskdiag_core::absent::Known;
use taskdiag_core::field::Group;
use taskdiag_core::filter::Filter;
use taskdiag_core::plan::Plan;
use taskdiag_core::query::Query;
use taskdiag_core::snapshot::SourceId;

use crate::source::procfs;

/// How a query would be answered: made by [`Handle::explain`](super::Handle::explain).
#[derive(Clone, Debug)]
pub struct Explanation {
    plan: Plan,
    first: Option<String>,
    filter: Option<String>,
}

impl Explanation {
    pub(super) fn new(query: &Query, plan: Plan) -> Explanation {
        let filter = query.filter.as_ref();
        let first = filter.and_then(|filter| match plan.first().0 {
            SourceId::Bpf if plan.tested => Some(filter.kernel_tests(&|path| procfs::cgroup_id(path)).to_string()),
            SourceId::Procfs => Some(filter.cheap_part()?.to_string()),
            _ => None,
        });
        Explanation {
            plan,
            first: first.filter(|part| !part.is_empty()),
            filter: filter.map(Filter::to_string),
        }
    }

    /// The source that finds the tasks.
    pub fn source(&self) -> SourceId {
        self.plan.first().0
    }

    /// The groups that the query needs, each with the source that answers it, or why none does.
    pub fn answers(&self) -> impl Iterator<Item = (Group, Known<SourceId>)> + '_ {
        Group::ALL
            .into_iter()
            .filter_map(|group| Some((group, self.plan.answer(group)?)))
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Explanation {
    /// The part of the filter that is decided before the rest of a task is read: BPF decides it in
    /// the kernel, procfs after reading a few files.
    pub fn decided_first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// The filter, which is decided once the remaining tasks are read.
    pub fn filter(&self) -> Option<&str> {
        self.filter.as_deref()
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// One line for the source and the groups it answers, and one for each part of the filter.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tasks by {}", self.source())?;
        for (group, answer) in self.answers() {
            match answer {
                Ok(source) => write!(f, ", {} by {source}", group.name())?,
                Err(reason) => write!(f, ", {} {reason}", group.name())?,
            }
        }
        if let Some(first) = &self.first {
            write!(f, "\nevaluated first: {first}")?;
        }
        if let Some(filter) = &self.filter {
            write!(f, "\nevaluated last: {filter}")?;
        }
        Ok(())
    }
}
