//! `taskdiag metrics`: an exporter for Prometheus.
//!
//! One thread serves ([`server`]), one queries the kernel ([`sampler`]), one receives events
//! ([`ended`]). The rest does no I/O: the configuration ([`config`], [`template`], [`matcher`]),
//! which process is in which group ([`tracker`]), sums and which of them are shown ([`totals`]),
//! the table of metrics ([`families`]) and their text ([`exposition`]).

mod by;
mod config;
mod ended;
mod exposition;
mod facts;
mod families;
mod listen;
mod matcher;
mod own;
mod pagecache;
mod reading;
mod sampler;
mod server;
mod state;
mod template;
mod totals;
mod tracker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args as ClapArgs;
use jiff::Timestamp;
use rustix::time::ClockId;
use taskdiag::Query;
use taskdiag_sys::host::now_ns;

use crate::choice::distinct;
use crate::events::listener::Listening;
use crate::events::stop::Stop;
use crate::host::Stat;
use crate::outcome::{message, no_thread, say, say_hidden, Failure, Outcome};
use crate::quantity;
use crate::source::SourceOptions;
use by::By;
use config::Config;
use ended::Ended;
use listen::{Address, Listener};
use pagecache::Directories;
use sampler::{Plan, PssBudget, Sampler, Worker};
use server::Server;
use state::{Shared, State};
use totals::{Grouping, Limits};
use tracker::Tracker;

/// Serve metrics about groups of processes to Prometheus
///
/// Names of metrics, configuration and the options that decide about groups are those of
/// process-exporter, so that its dashboards keep working. Counters do not fall when processes end;
/// where BPF programs may be loaded, they also have what ran and ended between two scrapes.
///
/// A scrape is answered in time: if the kernel or a process takes too long, with the values of the
/// scrape before, and the metric taskdiag_metrics_stale says so.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag metrics\n  \
    taskdiag metrics --config /etc/process-exporter/all.yaml --listen 127.0.0.1:9256\n  \
    taskdiag metrics --by unit --by container --listen /run/taskdiag/metrics.sock")]
pub struct Args {
    /// Where to listen: ADDR:PORT, :PORT for all addresses of this host, or the path of a UNIX
    /// socket
    #[arg(long, value_name = "ADDR:PORT|PATH", default_value = "127.0.0.1:9256", value_parser = listen::parse)]
    listen: Address,
    /// Which processes belong to which group: a YAML file as process-exporter has it [default: all
    /// programs, by name]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Groups of these kinds as well
    #[arg(long, value_enum, value_name = "WHAT,…", value_delimiter = ',')]
    by: Vec<By>,
    /// Processes that are in no group are in that of their parent
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = clap::ArgAction::Set)]
    children: bool,
    /// Metrics of threads, by their names
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = clap::ArgAction::Set)]
    threads: bool,
    /// Look at processes that are in no group again at each scrape
    #[arg(long)]
    recheck: bool,
    /// Forget groups that have no processes any more
    #[arg(long)]
    remove_empty_groups: bool,
    /// What threads wait for in the kernel, too
    #[arg(long)]
    wchan: bool,
    /// Leave out network traffic, and do not count it
    #[arg(long)]
    no_network: bool,
    /// Proportional sizes (PSS), for which page tables may be walked for so long: a time for each
    /// scrape, or a part of all time; at most half of --deadline
    #[arg(long, value_name = "TIME|PERCENT", value_parser = pss_budget)]
    pss_budget: Option<PssBudget>,
    /// The page cache of the files below this directory, on its file system
    #[arg(long, value_name = "DIR")]
    cache: Vec<PathBuf>,
    /// How often directories are walked, at most
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = quantity::interval)]
    cache_every: Duration,
    /// So many groups of a kind have metrics of their own: those that use most. The rest is added
    /// up as "other"
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    top: u32,
    /// At most about so many series. Groups, and then names of threads, that find no room are added
    /// up as "other"
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1_000..=5_000_000))]
    max_series: u32,
    /// How long a scrape waits for new values
    #[arg(long, value_name = "SECONDS", default_value = "8", value_parser = deadline)]
    deadline: Duration,
    /// Values that are younger than this are new enough for another scrape; 0: each scrape takes a sample
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = quantity::duration)]
    fresh_for: Duration,
    #[command(flatten)]
    from: SourceOptions,
}

/// Parses the budget for walking page tables.
fn pss_budget(text: &str) -> Result<PssBudget, String> {
    if text.ends_with('%') {
        return Ok(PssBudget::Share(quantity::percentage(text)? / 100.0));
    }
    Ok(PssBudget::Time(quantity::duration(text)?))
}

/// Parses a deadline.
fn deadline(text: &str) -> Result<Duration, String> {
    let deadline = quantity::interval(text)?;
    if deadline > Duration::from_secs(3600) {
        return Err("the longest time is one hour".to_owned());
    }
    Ok(deadline)
}

impl Args {
    /// The limits on groups and thread names with their own series.
    fn limits(&self) -> Limits {
        let (of_group, of_thread) = families::series();
        let kinds = self.by.len() + 1;
        let most = self.max_series as usize / kinds;
        // What a group has besides: its other threads, and kernel functions.
        let of_others = if self.threads { of_thread } else { 0 };
        let of_wchans = if self.wchan { totals::MAX_WCHANS + 1 } else { 0 };
        let of_group = of_group + of_others + of_wchans;
        // One of the groups is the rest.
        let groups = (self.top as usize).min((most / of_group).saturating_sub(1)).max(1);
        Limits {
            groups,
            thread_names: most.saturating_sub((groups + 1) * of_group) / of_thread,
            remove_empty: self.remove_empty_groups,
        }
    }

    fn tracker(&self) -> Tracker {
        let options = tracker::Options {
            children: self.children,
            recheck: self.recheck,
        };
        let groupings = (0..=self.by.len()).map(|_| Grouping::new(self.limits()));
        Tracker::new(options, groupings.collect(), now_ns(ClockId::Boottime))
    }
}

pub fn run(mut args: Args) -> Result<Outcome, Failure> {
    args.by = distinct(args.by);
    args.cache = distinct(args.cache);
    let config = match &args.config {
        Some(path) => Config::read(path)?,
        None => Config::usual(),
    };
    if let Some(path) = &args.config {
        for warning in &config.warnings {
            say(format_args!("{}: {warning}", path.display()));
        }
    }
    let stop = Stop::at_signals()?;
    let listener = Listener::open(&args.listen)?;
    let rules = Arc::new(config.rules);
    let boot = Stat::read()
        .boot_s
        .and_then(|seconds| Timestamp::from_second(seconds as i64).ok());
    let mut handle = args.from.handle_for_many();
    let plan = Plan {
        network: !args.no_network && handle.count_network().is_ok(),
        rules: rules.clone(),
        kinds: args.by.clone(),
        threads: args.threads,
        wchan: args.wchan,
        pss: args.pss_budget,
        deadline: args.deadline,
        boot: boot.unwrap_or(Timestamp::UNIX_EPOCH),
    };
    // An exporter queries often: the fastest source is loaded, unless the user chose one. If this is
    // denied, another source answers, as the metric taskdiag_metrics_sources reports.
    if args.from.is_choice_free() {
        let _ = handle.prepare(Worker::fields(&plan));
    }
    if handle.lacks_hidden(&Query::processes()) {
        say_hidden();
    }
    let shared = Arc::new(Shared::new(State {
        tracker: args.tracker(),
        ..State::default()
    }));
    let ended = Ended::new(shared.clone(), rules, args.by.clone(), plan.boot);
    let directories = Directories::begin(args.cache.clone(), args.cache_every).map_err(no_thread)?;
    let of_ended = handle.events_with_network(ended::options())?;
    let mut worker = Worker::new(handle, plan, shared, directories);
    let _listening = Listening::begin(of_ended, ended).map_err(no_thread)?;
    let picture = worker.sample()?;
    let sampler = Sampler::start(worker, picture).map_err(no_thread)?;
    say(format_args!("listening: {}", listener.place()));
    let options = server::Options {
        deadline: args.deadline,
        fresh_for: args.fresh_for,
    };
    let served = Server::new(listener, sampler, options).run(&stop);
    served.map_err(|error| format!("serving metrics: {}", message(&error)))?;
    Ok(Outcome::Complete)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        let command = Command::try_parse_from([&["metrics"], args].concat());
        command.map(|command| command.args)
    }

    /// Check that what groups may have fits into the limit, with all that can be asked for.
    #[test]
    fn series_are_bounded() {
        let (of_group, of_thread) = families::series();
        for (args, most) in [
            (&["--wchan"][..], 50_000),
            (&["--threads=false"], 50_000),
            (&["--wchan", "--by", "unit,user", "--max-series", "1000"], 333),
        ] {
            let limits = parse(args).expect("options").limits();
            let is_given = |option| args.contains(&option);
            let of_wchans = if is_given("--wchan") { totals::MAX_WCHANS + 1 } else { 0 };
            let others = if is_given("--threads=false") { 0 } else { of_thread };
            let series = (limits.groups + 1) * (of_group + of_wchans + others) + limits.thread_names * of_thread;
            assert!(series <= most && limits.groups > 0, "{args:?}: {series}, {limits:?}");
        }
    }

    /// Check that a deadline has an end, and that a directory that is given twice counts once.
    #[test]
    fn options_have_limits() {
        for text in ["1e19", "10000000000000000000", "3601"] {
            assert!(parse(&["--deadline", text]).is_err(), "{text}");
        }
        assert!(parse(&["--deadline", "1h"]).is_ok());
        let args = parse(&["--cache", "/x", "--cache", "/y", "--cache", "/x"]).expect("options");
        assert_eq!(distinct(args.cache), [PathBuf::from("/x"), PathBuf::from("/y")]);
    }
}
