//! `taskdiag top`: the interactive command.
//!
//! Pure code decides: [`view`] what keys do, [`spec`] what to query, [`model`] what the rows are,
//! [`draw`] how they look, on a [`canvas`]. [`sampler`] is a thread that takes samples of a [`source`]: this
//! [`machine`], or a [`recording`]. [`bursts`] is a thread that counts events, [`terminal`] and
//! [`screen`] handle the terminal, and [`app`] connects all of them.

mod app;
mod bursts;
mod canvas;
mod column;
mod control;
mod details;
mod draw;
mod groups;
mod input;
mod keys;
mod machine;
mod model;
mod page;
mod prompt;
#[cfg(feature = "history")]
mod recording;
mod rows;
mod sampler;
mod screen;
mod settings;
mod setup;
mod source;
mod spec;
mod terminal;
mod trend;
mod view;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use rustix::termios::isatty;

use crate::grouping::{self, Grouping};
use crate::history::MomentOptions;
use crate::outcome::{no_thread, say, Failure, Outcome};
use crate::output::table::terminal_width;
use crate::output::terminal::{from_environment, is_colored};
use crate::output::text::locale_is_utf8;
use crate::quantity;
use crate::selection::{self, Selection};
use crate::source::SourceOptions;
use app::{App, Start};
use column::Order;
use details::{Inspector, System};
use draw::Palette;
use machine::Machine;
use rows::Rows;
use sampler::Sampler;
use source::Source;
use terminal::Signals;
use view::{chosen_columns, View};

/// Watch processes, look into them, signal them: interactive
///
/// The table has all processes, the busiest first, and above it is what the machine does: load,
/// processors, memory, pressure, and the processes that ran and ended between two samples. Keys are
/// those of top and htop where these agree; ? lists all of them. \ asks for a filter, as --where
/// takes it. Enter shows details of a process: credentials, limits, mappings, threads, history.
///
/// Of all processes, only what they are sorted and filtered by is read from the kernel; everything
/// else only of those on the screen. So there is no harm in leaving it running.
///
/// With --history it shows a recording (`taskdiag record`): Left and Right go from sample to
/// sample, [ ] a minute and { } an hour back and on, j and J to the next spike of processors or
/// memory and to the one before, g to a time.
///
/// W writes the settings to a file, which is read at the start: $XDG_CONFIG_HOME/taskdiag/top.conf,
/// or ~/.config/taskdiag/top.conf. Options come before settings.
///
/// For files and pipes there are -b, which prints what is on the screen, and `taskdiag watch`, which
/// has JSON and CSV, too.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag top\n  \
    taskdiag top -d 1 -u www-data\n  \
    taskdiag top -b -n 1 --sort -rss_bytes\n  \
    taskdiag top --tree --where 'not kernel_thread'\n  \
    taskdiag top --by unit,user --sort -rss_bytes\n  \
    taskdiag top --history /var/lib/taskdiag --at '2026-11-23 03:12'\n  \
    taskdiag top -o pid,user,read_bytes_per_s,write_bytes_per_s,command --sort -read_bytes_per_s")]
pub struct Args {
    /// The time between two samples [default: 2]
    #[arg(short = 'd', long, value_name = "SECONDS", conflicts_with = "MomentOptions", value_parser = quantity::interval)]
    delay: Option<Duration>,
    /// End after this many samples
    #[arg(short = 'n', long, value_name = "N", value_parser = quantity::count)]
    count: Option<u64>,
    #[command(flatten)]
    selection: Selection,
    /// One row for each thread
    #[arg(short = 'T', long, conflicts_with_all = ["tree", "by"])]
    threads: bool,
    /// Processes below their parents
    #[arg(long, conflicts_with = "by")]
    tree: bool,
    /// One row for each of these
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', value_parser = grouping::by_parser(&grouping::OF_PROCESSES))]
    by: Vec<&'static Grouping>,
    /// Sort by this field or rate; a minus in front puts the largest first [default: -cpu_percent]
    #[arg(long, value_name = "[-]FIELD", allow_hyphen_values = true)]
    sort: Option<String>,
    /// Columns, in this order: fields, groups of fields, rates as `taskdiag watch` has them, time,
    /// command, trend; a plus in front adds to those shown without. A heading of top in capitals, as
    /// in -o %MEM, sorts
    #[arg(short = 'o', long = "fields", value_name = "[+]FIELD,…", help_heading = "Output")]
    fields: Option<String>,
    /// Exact numbers: bytes and nanoseconds
    #[arg(long, help_heading = "Output")]
    bytes: bool,
    /// Names of users, groups, capabilities and signals instead of numbers
    #[arg(long, help_heading = "Output")]
    names: bool,
    /// Leave the mouse to the terminal, which selects text with it
    #[arg(long)]
    no_mouse: bool,
    /// Read and write settings in this file; it need not be there yet
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print samples as text, with all rows, into files and pipes, too; -n says how many. Lines are as
    /// wide as the terminal or as COLUMNS says, elsewhere as long as they need to be
    #[arg(short = 'b', long)]
    batch: bool,
    #[command(flatten)]
    past: MomentOptions,
    #[command(flatten)]
    from: SourceOptions,
}

/// The commands to use without a terminal.
const WITHOUT_TERMINAL: &str = "`taskdiag top -b` prints samples as text, `taskdiag watch` for programs, too";

pub fn run(args: Args) -> Result<Outcome, Failure> {
    if !args.batch {
        check_terminal()?;
    }
    let mut view = View {
        file: args.config.clone().or_else(settings::usual_path),
        ..View::default()
    };
    if let Some(path) = &view.file.clone() {
        if !settings::load(path, &mut view)? && args.config.is_some() {
            view.say(format!("{} is not there yet: W writes it", path.display()), false);
        }
    }
    if let Some(message) = view.message.take_if(|message| args.batch && message.is_error) {
        say(message.text);
    }
    args.apply(&mut view)?;
    let signals = if args.batch {
        None
    } else {
        terminal::wait_for_foreground()?;
        // Other threads must not receive the signals.
        Some(Signals::block()?)
    };
    let source = args.source()?;
    view.is_past = !source.is_live();
    let expression = args.selection.expression().filter(|_| !args.batch);
    if let Some(filter) = expression.and_then(|text| selection::parse_filter(&text, view.is_past).ok()) {
        view.say_doubts(&filter, view.is_past);
    }
    if view.is_past && view.rows == Rows::Threads && !args.threads {
        // The settings ask for it, and a recording has none.
        view.rows = Rows::Processes;
    }
    let sampler = Sampler::start(source, view.delay).map_err(no_thread)?;
    let app = App::new(Start {
        view,
        selection: &args.selection,
        sampler,
        count: args.count.unwrap_or(u64::MAX),
        exact: args.bytes,
        named: args.names,
        palette: Palette {
            colored: is_colored(),
            light: false,
            utf8: locale_is_utf8(),
        },
    })?;
    match signals {
        Some(signals) => app.run(&signals),
        None => app.print(from_environment("COLUMNS").or_else(terminal_width)),
    }
}

/// Fails if there is no terminal to draw on, and says what to do instead.
fn check_terminal() -> Result<(), Failure> {
    let fail = |what: &str| Err(format!("top: {what}\n{WITHOUT_TERMINAL}").into());
    if !isatty(rustix::stdio::stdout()) {
        return fail("standard output is not a terminal");
    }
    if !isatty(rustix::stdio::stdin()) {
        return fail("standard input is not a terminal, so that keys can't be read");
    }
    match std::env::var_os("TERM") {
        Some(term) if !term.is_empty() && term != "dumb" => Ok(()),
        _ => fail("TERM says that the terminal can't move its cursor"),
    }
}

impl Args {
    /// The source of the samples.
    fn source(&self) -> Result<Box<dyn Source>, Failure> {
        #[cfg(feature = "history")]
        if let Some((library, decoder, damages)) = self.past.open(crate::listing::Format::Table)? {
            return Ok(Box::new(recording::Recording::new(library, &decoder, &damages)?));
        }
        let inspector = Inspector::new(System::Machine(Box::new(self.from.handle_for_maps())));
        Ok(Box::new(Machine::new(self.from.handle_for_many(), inspector)))
    }

    /// Applies the options to the view. They take precedence over settings.
    fn apply(&self, view: &mut View) -> Result<(), Failure> {
        if let Some(delay) = self.delay {
            view.delay = delay;
        }
        match (self.threads, self.tree, self.by.as_slice()) {
            (true, ..) => view.rows = Rows::Threads,
            (_, true, _) => view.rows = Rows::Tree,
            (.., []) => {}
            (.., by) => view.rows = Rows::by(by),
        }
        view.mouse &= !self.no_mouse;
        view.kernel |= self.selection.may_mean_kernel();
        if let Some(order) = &self.sort {
            settings::setting("sort").set(view, order)?;
        }
        if let Some(order) = self.fields.as_deref().and_then(Order::of_top) {
            view.order = order;
        } else if let Some(columns) = &self.fields {
            chosen_columns(columns, Vec::new())?;
            view.columns.clone_from(columns);
        }
        Ok(())
    }
}
