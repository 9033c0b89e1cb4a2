//! `taskdiag net`: the processes that use the network.

use std::time::Duration;

use clap::Args as ClapArgs;
use taskdiag::{Field, Fields, Group, Value};

use super::{run_watch, Preset, Rate, RatedTask, RowArgs, Watch};
use crate::history::{self, RangeOptions};
use crate::outcome::{counted, say, Failure, Outcome};
use crate::output::listing::Shown;
use crate::output::people;
use crate::output::relation::Row as _;
use crate::output::tasks::{self, shown_as};
use crate::quantity;

/// Show who uses the network: what each process sends and receives
///
/// Counts for a second, or as --watch says, and lists the processes that have sent or received
/// since counting began. `taskdiag pin --net` counts always: then there are totals from before,
/// too. What counts is payload, at the call that moves it: of TCP, UDP and all other sockets of IP
/// that lead to other machines. Traffic within this machine (loopback_…) and of UNIX sockets
/// (unix_…) are fields of their own: those of the group net in `taskdiag fields`. Needs root, or
/// CAP_BPF and CAP_PERFMON, and Linux 6.3.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag net\n  \
    taskdiag net --watch 1 --limit 10\n  \
    taskdiag net -o pid,comm,loopback_sent_bytes,unix_sent_bytes --csv")]
pub struct Args {
    /// Show this again and again, with the rates since the last time
    #[arg(short = 'd', long, value_name = "SECONDS", value_parser = quantity::interval, conflicts_with = "RangeOptions")]
    watch: Option<Duration>,
    /// End after this many samples; with --watch
    #[arg(short = 'n', long, value_name = "N", requires = "watch")]
    count: Option<u64>,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    past: RangeOptions,
}

static NET: Preset = Preset {
    command: "net",
    table: |_| usual(),
    columns,
    sort: "-net_bytes_per_s,-net_received_bytes,-net_sent_bytes",
    is_of_network: true,
};

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let delay = args.watch.unwrap_or(Duration::from_secs(1));
    let count = if args.watch.is_some() { args.count } else { Some(1) };
    run_watch(Watch {
        preset: &NET,
        ..Watch::new(&args.rows, &args.past, (delay, count), false)?
    })
}

/// The table without `-o`.
fn usual() -> Vec<Shown> {
    let rate = |rate: Rate| Shown::column(rate.heading(), rate.column());
    vec![
        Shown::made("USER", &tasks::USER),
        shown_as("PID", Field::Pid),
        rate(Rate::NetSentBytes),
        rate(Rate::NetReceivedBytes),
        shown_as("SENT", Field::NetSentBytes),
        shown_as("RECEIVED", Field::NetReceivedBytes),
        Shown::made("COMMAND", &tasks::COMMAND),
    ]
}

/// The fields and rates for programs without `-o`.
fn columns() -> (Vec<Field>, Vec<Rate>) {
    let fields = [Field::Pid, Field::StartNs, Field::Euid, Field::Comm].into_iter();
    let fields = fields.chain(Fields::of_group(Group::Net).iter()).collect();
    let is_of_network = |rate: &Rate| rate.fields()[0].group() == Group::Net;
    (fields, Rate::ALL.into_iter().filter(is_of_network).collect())
}

/// Whether a process has moved anything, according to these columns.
pub(super) fn has_traffic(task: &RatedTask<'_>, columns: &[usize]) -> bool {
    let has_moved = |&column: &usize| match task.cell(column) {
        Ok(Value::Unsigned(count)) => count > 0 && column != Field::NetSinceNs as usize,
        Ok(Value::Float(rate)) => rate > 0.0,
        _ => false,
    };
    columns.iter().any(has_moved)
}

/// Reports the traffic of processes that lived between two samples of a recording.
pub(super) fn say_unseen() {
    let moment = history::shown();
    let unseen = moment.and_then(|moment| Some(moment.span.as_ref()?.unseen));
    if let Some(unseen) = unseen.filter(|unseen| unseen.count > 0) {
        let mut moved = Vec::new();
        people::size(&mut moved, unseen.moved);
        say(format_args!(
            "{} lived between two samples and moved {}: `taskdiag events --history DIR --kind exit -o +net_sent_bytes,net_received_bytes` has them",
            counted(unseen.count, "process"),
            String::from_utf8_lossy(&moved)
        ));
    }
}
