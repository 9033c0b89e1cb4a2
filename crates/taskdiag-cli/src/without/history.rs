//! What a build without recordings has in place of the module `history`: no options, and a moment
//! that is never shown.

#[path = "../history/span.rs"]
mod span;
#[path = "../history/time.rs"]
mod time;

pub mod past {
    pub use super::MachineState;
}

use std::sync::Arc;

use taskdiag::{Handle, Identity, Snapshot};

use crate::listing::Format;
use crate::outcome::{Failure, Outcome};

pub use span::Life;
pub use time::{exact, moment, precise};

without!("history", "history");

/// No options, in the group that other options exclude.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("MomentOptions"))]
pub struct MomentOptions {}

/// The same.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("MomentOptions"))]
pub struct PastOptions {}

/// No options.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "RangeOptions")]
pub struct RangeOptions {}

impl RangeOptions {
    pub fn is_given(&self) -> bool {
        false
    }

    pub fn has_ends(&self) -> bool {
        false
    }

    pub fn handle(
        &self,
        _: Format,
        _: &mut dyn FnMut(u64, Option<u64>, &Snapshot),
    ) -> Result<(Handle, Outcome), Failure> {
        Ok((Handle::new(), Outcome::Complete))
    }
}

impl PastOptions {
    pub fn period(&self) -> Option<RangeOptions> {
        None
    }

    pub fn is_given(&self) -> bool {
        false
    }

    pub fn handle(&self, _: Format, now: impl FnOnce() -> Handle) -> Result<(Handle, Outcome), Failure> {
        Ok((now(), Outcome::Complete))
    }
}

/// The state of the machine at one sample.
#[derive(Debug)]
pub struct MachineState {
    pub time: Time,
    pub about: About,
    pub span: Option<span::Span>,
}

#[derive(Debug)]
pub struct Time {
    pub wall_ns: i64,
    pub boot_ns: u64,
}

#[derive(Debug)]
pub struct About {
    pub host: String,
    pub boot_id: String,
    pub kernel: String,
}

impl MachineState {
    pub fn memory_bytes(&self) -> u64 {
        0
    }

    pub fn life(&self, _: Identity) -> Option<Life> {
        None
    }

    pub fn numbers(&self, _: &str) -> Vec<(&[u8], u64)> {
        Vec::new()
    }

    pub fn name(&self, _: &str, _: u32) -> Option<&[u8]> {
        None
    }
}

pub fn show(_: Arc<MachineState>) {}

/// The recorded sample that is shown: none.
pub fn shown() -> Option<Arc<MachineState>> {
    None
}
