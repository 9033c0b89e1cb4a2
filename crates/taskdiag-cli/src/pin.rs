//! `taskdiag pin` and `taskdiag unpin`.

use clap::Args;

use crate::outcome::{print, say, Failure, Outcome};

/// Load the BPF programs now and keep them in the BPF file system
///
/// Loading them takes tens of milliseconds. Pinned programs can be used at once, until the machine
/// restarts or `taskdiag unpin` removes them. Needs root, or CAP_BPF, CAP_PERFMON and a writable
/// BPF file system.
#[derive(Debug, Args)]
pub struct PinArgs {
    /// Also count what processes send and receive through sockets, from now on: for the fields of
    /// the group net. Needs Linux 6.3
    #[arg(long)]
    net: bool,
}

/// Remove the BPF programs that `taskdiag pin` left in the BPF file system
#[derive(Debug, Args)]
pub struct UnpinArgs {}

/// Runs `taskdiag pin`.
pub fn pin(args: PinArgs) -> Result<Outcome, Failure> {
    let pin = if args.net {
        taskdiag::pin::pin_with_network
    } else {
        taskdiag::pin::pin
    };
    let directory = pin().map_err(|error| {
        format!(
            "{error:#}\nNothing was pinned: root may. Commands work without, but `taskdiag net` only as root; \
             `taskdiag doctor` says what is missing"
        )
    })?;
    print(format!(
        "Pinned the BPF programs in {}: taskdiag uses them from now on.\nTo undo it: taskdiag unpin\n",
        directory.display()
    ))
}

/// Runs `taskdiag unpin`.
pub fn unpin(_args: UnpinArgs) -> Result<Outcome, Failure> {
    let removed = taskdiag::pin::unpin().map_err(|error| {
        format!("{error:#}\nThe user who pinned the programs can unpin them, usually root: sudo taskdiag unpin")
    })?;
    let Some(directory) = removed else {
        say("nothing is pinned");
        return Ok(Outcome::Complete);
    };
    print(format!(
        "Removed the pinned BPF programs from {}.\n",
        directory.display()
    ))
}
