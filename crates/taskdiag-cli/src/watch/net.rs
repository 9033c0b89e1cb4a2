//! `taskdiag net`: the processes that use the network.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args as ClapArgs;
use taskdiag::{Absent, Field, Fields, Group, Identity, Known, Snapshot, Task, Value};

use super::remotes::is_of_remotes;
use super::{run_watch, Preset, Rate, RatedTask, RowArgs, Watch};
use crate::choice::OrderOptions;
use crate::grouping::{self, sum_columns, Grouping, Groupings, Name, SumLayout};
use crate::history::{self, RangeOptions};
use crate::outcome::{counted, say, Failure, Outcome};
use crate::output::listing::ListingColumn;
use crate::output::people;
use crate::output::relation::{ColumnInfo, Row as _};
use crate::output::tasks::{self, shown_as};
use crate::quantity;
use crate::sockets;

/// Show who uses the network: what each process sends and receives
///
/// Counts for a second, or as --watch says, and lists the processes that have sent or received
/// since counting began. `taskdiag pin --net` counts always: then there are totals from before,
/// too. What counts is payload, at the call that moves it: of TCP, UDP and all other sockets of IP
/// that lead to other machines. Traffic within this machine (loopback_…) and of UNIX sockets
/// (unix_…) are fields of their own: those of the group net in `taskdiag fields`. Needs root, or
/// CAP_BPF and CAP_PERFMON, and Linux 6.3; or a broker that counts.
///
/// With --history, who used the network in a period of a recording: rates are what a process moved
/// in it, by its length.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag net\n  \
    taskdiag net --watch 1 --limit 10\n  \
    taskdiag net --by unit\n  \
    taskdiag net --by remote_addr,program\n  \
    taskdiag net --history /var/lib/taskdiag --from 03:00 --to 03:30\n  \
    taskdiag net -o pid,comm,loopback_sent_bytes,unix_sent_bytes --csv")]
pub struct Args {
    /// Show this again and again, with the rates since the last time
    #[arg(short = 'd', long, value_name = "SECONDS", value_parser = quantity::interval, conflicts_with = "RangeOptions")]
    watch: Option<Duration>,
    /// End after this many samples; with --watch
    #[arg(short = 'n', long, value_name = "N", value_parser = quantity::count, requires = "watch")]
    count: Option<u64>,
    /// Show sums: by program, script, user, unit, container, pod, cgroup, protocol, remote_addr,
    /// remote_port, or several of them with commas between
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', value_parser = grouping::by_parser(GROUPINGS))]
    by: Vec<&'static Grouping>,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    past: RangeOptions,
}

/// What `--by` takes.
const GROUPINGS: &Groupings = &grouping::with::<10>(&sockets::OF_REMOTES);

static NET: Preset = Preset {
    command: "net",
    table: |_| usual(),
    columns,
    sort: "-net_bytes_per_s,-net_received_bytes,-net_sent_bytes",
    is_of_network: true,
};

pub fn run(args: Args) -> Result<Outcome, Failure> {
    let delay = args.watch.unwrap_or(Duration::from_secs(1));
    let count = if args.watch.is_some() { args.count } else { Some(1) };
    let order = &args.rows.order;
    let sums = || SumLayout::new::<Sum>(&args.by, order, "-net_sent_bytes_per_s,-net_received_bytes_per_s");
    let sums = (!args.by.is_empty()).then(sums).transpose()?;
    if sums.is_some() {
        grouping::only_sums(&args.rows.options.fields, "processes")?;
    }
    if args.past.is_given() && is_of_remotes(&args.by) {
        let message = "recordings do not have the other ends: --by protocol, remote_addr and remote_port are about now";
        return Err(message.into());
    }
    run_watch(Watch {
        preset: &NET,
        order: if sums.is_some() {
            OrderOptions::default()
        } else {
            order.clone()
        },
        sums,
        ..Watch::new(&args.rows, &args.past, (delay, count), false)?
    })
}

/// What processes moved to and from other machines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// `None` if it is not known.
    pub processes: Option<u64>,
    /// Sent and received per second.
    pub per_s: [u64; 2],
    /// Sent and received.
    pub total: [u64; 2],
}

impl Sum {
    fn add(&mut self, row: &RatedTask<'_>) {
        let number = |column: usize| match row.cell(column) {
            Ok(Value::Unsigned(number)) => number,
            Ok(Value::Float(number)) => number as u64,
            _ => 0,
        };
        *self.processes.get_or_insert(0) += 1;
        for (sum, rate) in self.per_s.iter_mut().zip([Rate::NetSentBytes, Rate::NetReceivedBytes]) {
            *sum += number(rate.column());
        }
        for (sum, field) in self
            .total
            .iter_mut()
            .zip([Field::NetSentBytes, Field::NetReceivedBytes])
        {
            *sum += number(field as usize);
        }
    }
}

impl grouping::Sum for Sum {
    const COLUMNS: &'static [(ColumnInfo, &'static str)] = sum_columns! {
        "processes_count": Count, "PROCESSES", "The number of processes with traffic. Not asked for, if all sums are by what is at the other end.";
        "net_sent_bytes_per_s": Bytes, "SENT/s", "Sent to other machines since the last sample.";
        "net_received_bytes_per_s": Bytes, "RECEIVED/s", "Received from other machines since the last sample.";
        "net_sent_bytes": Bytes, "SENT", "Sent to other machines.";
        "net_received_bytes": Bytes, "RECEIVED", "Received from other machines.";
    };

    fn numbers(&self) -> Vec<Known<u64>> {
        let processes = self.processes.ok_or(Absent::NotAsked);
        let moved = self.per_s.into_iter().chain(self.total);
        [processes].into_iter().chain(moved.map(Ok)).collect()
    }

    fn has(&self, column: usize) -> bool {
        self.numbers()[column].is_ok()
    }
}

/// The sums of all groups, and that of all rows.
pub(super) fn sums(rows: &[RatedTask<'_>], layout: &SumLayout) -> (HashMap<Vec<Name>, Sum>, Sum) {
    let (mut sums, mut total) = (HashMap::<Vec<Name>, Sum>::new(), Sum::default());
    for row in rows {
        let names = layout.names(&row.task, |_| Name::None(Absent::Unsupported.as_str()));
        sums.entry(names).or_default().add(row);
        total.add(row);
    }
    (sums, total)
}

/// The table without `-o`.
fn usual() -> Vec<ListingColumn> {
    let rate = |rate: Rate| ListingColumn::column(rate.heading(), rate.column());
    vec![
        ListingColumn::made("USER", &tasks::USER),
        shown_as("PID", Field::Pid),
        rate(Rate::NetSentBytes),
        rate(Rate::NetReceivedBytes),
        shown_as("SENT", Field::NetSentBytes),
        shown_as("RECEIVED", Field::NetReceivedBytes),
        ListingColumn::made("COMMAND", &tasks::COMMAND),
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
        say(format_args!(
            "{}{} lived between two samples and moved {}: `taskdiag events --history DIR --kind exit -o +net_sent_bytes,net_received_bytes` has them",
            if unseen.left_out > 0 { "at least " } else { "" },
            counted(unseen.count, "process"),
            people::size_text(unseen.moved)
        ));
    }
}

/// Says where the traffic is if no row has any, and there was some within this machine. Whether there was.
pub(super) fn say_loopback(snapshot: &Snapshot, sums: bool) -> bool {
    let has_moved = |task: Task<'_>| task.loopback_sent_bytes().is_ok_and(|sent| sent > 0);
    let is_local = snapshot.tasks().any(has_moved);
    if is_local {
        say(format_args!(
            "no traffic with other machines, but within this one: -o +loopback_sent_bytes_per_s,loopback_received_bytes_per_s{} shows who",
            if sums { " without --by" } else { "" }
        ));
    }
    is_local
}

/// When counting began, as one process has it.
pub(super) type Since = (Identity, u64);

/// Whether counting began again after an earlier sample: what was counted before is lost.
pub(super) fn began_again(since: &mut Option<Since>, snapshot: &Snapshot) -> bool {
    let of = |task: &Task<'_>| Some((task.identity().ok()?, task.net_since_ns().ok()?));
    let all = || snapshot.tasks().filter_map(|task| of(&task));
    let same = since.and_then(|(identity, _)| all().find(|(known, _)| *known == identity));
    let before = std::mem::replace(since, all().next());
    matches!((before, same), (Some((_, before)), Some((_, now))) if before != now)
}

/// Fails if nothing of any process is known. Of a period, says if that is so of most at its end.
pub(super) fn check(snapshot: &Snapshot, is_past: bool) -> Result<(), Failure> {
    let count = snapshot.tasks().count();
    let missing = snapshot.tasks().filter(|task| task.net_sent_bytes().is_err()).count();
    let why = if is_past {
        "the recording has no network traffic of that time: `taskdiag history DIR` may say why"
    } else {
        "nobody counts network traffic any more (taskdiag unpin): start again"
    };
    if count > 0 && missing == count {
        return Err(why.into());
    }
    if is_past && missing > count / 2 {
        say(format_args!(
            "{missing} of {count} processes have no network traffic at the end of that period: it was not counted any more"
        ));
    }
    Ok(())
}
