//! What sizes of memory may cost.

use std::time::Duration;

#[cfg(doc)]
use crate::field::Group;
use crate::field::{Field, Fields};

/// How much a query for [`Group::Rollup`] may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How long the whole query may take; what has not been read by then is left out. None: as long as it takes.
    pub deadline: Option<Duration>,
    /// Processes with more resident memory than this, in bytes, are left out: this bounds for how long one of them may have
    /// to wait. None: however long.
    pub max_rss_bytes: Option<u64>,
    /// How old the values of a process without a sign of change may be. Zero: every process is walked every time.
    pub max_age: Duration,
}

impl Default for Budget {
    /// 5 seconds, 16 GiB, and values that are 10 seconds old at most.
    fn default() -> Budget {
        Budget {
            deadline: Some(Duration::from_secs(5)),
            max_rss_bytes: Some(16 << 30),
            max_age: Duration::from_secs(10),
        }
    }
}

impl Budget {
    /// Reads everything, whatever it takes, and nothing from memory.
    pub const UNLIMITED: Budget = Budget {
        deadline: None,
        max_rss_bytes: None,
        max_age: Duration::ZERO,
    };

    /// What has to be known of tasks before their page tables are walked.
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
