//! How much time walking page tables may take.

use std::time::Duration;

#[cfg(doc)]
use crate::absent::Absent;
#[cfg(doc)]
use crate::field::Group;
use crate::field::{Field, Fields};

/// Limits what a query for [`Group::Rollup`] may cost. The kernel walks page tables for these
/// fields. A process that wants to change its mappings waits during the walk. What exceeds the
/// budget is [`Absent::OverBudget`].
///
/// ```
/// # mod taskdiag { pub use taskdiag_core::{budget::Budget, field::Field, query::Query}; }
/// use std::time::Duration;
/// use taskdiag::{Budget, Field, Query};
///
/// let budget = Budget::default().deadline(Some(Duration::from_secs(1))).max_rss_bytes(None);
/// let query = Query::processes().fields(Field::PssBytes).budget(budget);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    #[doc(hidden)]
    pub deadline: Option<Duration>,
    #[doc(hidden)]
    pub max_rss_bytes: Option<u64>,
    #[doc(hidden)]
    pub max_age: Duration,
}

impl Default for Budget {
    /// 5 seconds, 16 GiB, and values at most 10 seconds old.
    fn default() -> Budget {
        Budget {
            deadline: Some(Duration::from_secs(5)),
            max_rss_bytes: Some(16 << 30),
            max_age: Duration::from_secs(10),
        }
    }
}

impl Budget {
    /// No limit: reads every process, and reuses no earlier value.
    pub const UNLIMITED: Budget = Budget {
        deadline: None,
        max_rss_bytes: None,
        max_age: Duration::ZERO,
    };

    /// The longest time for the whole query. `None`: no limit.
    pub const fn deadline(mut self, deadline: Option<Duration>) -> Budget {
        self.deadline = deadline;
        self
    }

    /// Leaves out processes with a larger resident set than this, in bytes, which bounds how long a
    /// single process may have to wait. `None`: no limit.
    pub const fn max_rss_bytes(mut self, bytes: Option<u64>) -> Budget {
        self.max_rss_bytes = bytes;
        self
    }

    /// The greatest age of values that may be reused for a process that shows no sign of change.
    /// Zero: every process is read every time.
    pub const fn max_age(mut self, age: Duration) -> Budget {
        self.max_age = age;
        self
    }

    /// The fields that must be read before page tables are walked.
    #[doc(hidden)]
    pub fn fields(&self) -> Fields {
        let mut fields = Field::StartNs | Field::RssBytes | Field::SwapBytes | Field::PageTableBytes;
        if !self.max_age.is_zero() {
            fields |= Field::UtimeNs
                | Field::StimeNs
                | Field::MinFaults
                | Field::MajFaults
                | Field::VsizeBytes
                | Field::HugetlbBytes;
        }
        fields
    }
}
