//! `taskdiag`: asks a Linux kernel about its processes, for people and for scripts.
//!
//! Each command has its own module. A command parses all its options before it runs a query, so
//! that wrong usage never costs one. [`listing`] has the common parts of commands that list tasks;
//! [`output`] writes rows.

#![deny(unsafe_code)]
// Some of what commands share is for those alone whose features may be off.
#![cfg_attr(
    not(all(feature = "history", feature = "metrics", feature = "top")),
    allow(dead_code, unused_imports)
)]

#[cfg(not(all(feature = "history", feature = "metrics", feature = "top")))]
#[macro_use]
mod without;

mod cache;
mod choice;
mod complete;
mod doctor;
mod events;
mod fields;
mod file;
mod files;
mod grouping;
mod habit;
#[cfg(feature = "history")]
mod history;
mod host;
mod inspect;
mod limits;
mod listing;
mod manual;
mod maps;
mod mem;
#[cfg(feature = "metrics")]
mod metrics;
mod normalize;
mod outcome;
mod output;
mod pgrep;
mod pin;
mod pkill;
mod proc;
mod ps;
mod quantity;
#[cfg(feature = "history")]
mod record;
#[cfg(feature = "history")]
mod report;
mod rhythm;
mod schema;
mod selection;
mod sockets;
mod source;
#[cfg(feature = "top")]
mod top;
mod tree;
mod users;
mod version;
mod watch;

#[cfg(not(feature = "metrics"))]
use without::metrics;
#[cfg(not(feature = "top"))]
use without::top;
#[cfg(not(feature = "history"))]
use without::{history, record, report};

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use outcome::{Failure, Outcome};
use output::terminal::{choose_color, Color};
use output::{check_open, text};
use rustix::process::{getrlimit, Resource};
use taskdiag_sys::signals::SignalsBlocked;

/// Ask a Linux kernel about its processes, their memory, and the page cache
///
/// BPF programs answer where they are allowed, /proc elsewhere; both give the same values.
#[derive(Debug, Parser)]
#[command(
    name = "taskdiag",
    disable_version_flag = true,
    arg_required_else_help = true,
    after_help = "Exit status: 0 complete answer; 1 something requested was missing or could not be read (the rest is \
                  printed, the reason is on standard error); 2 wrong usage, or no answer."
)]
struct Cli {
    /// Print the version, the commit and the features
    #[arg(short = 'V', long)]
    version: bool,
    /// Colours in tables
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        help_heading = "Output",
        display_order = 900
    )]
    color: Color,
    /// Read the procfs mounted at DIR, such as the host's in a container [default: $HOST_PROC or /proc]
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        help_heading = "Source",
        display_order = 900
    )]
    proc: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    Ps(ps::PsArgs),
    Tree(tree::Args),
    Watch(watch::Args),
    Top(top::Args),
    Cache(cache::Args),
    Events(events::Args),
    Files(files::Args),
    Inspect(inspect::Args),
    Maps(maps::Args),
    Mem(mem::Args),
    Metrics(metrics::Args),
    Net(watch::net::Args),
    Normalize(normalize::Args),
    Sockets(sockets::Args),
    Pgrep(pgrep::Args),
    Pkill(pkill::Args),
    Record(record::Args),
    History(history::Args),
    Report(report::Args),
    Fields(fields::Args),
    Doctor(doctor::Args),
    Pin(pin::PinArgs),
    Unpin(pin::UnpinArgs),
    Schema(schema::Args),
    Man(manual::Args),
    Completions(complete::Args),
}

/// The commands that run when a link has their name.
const LINKS: [&str; 4] = ["ps", "pgrep", "pkill", "top"];

/// The arguments, with the command that the link is named after; and whether the program was
/// started through a link.
fn through_link(mut arguments: Vec<OsString>) -> (Vec<OsString>, bool) {
    let name = arguments.first().and_then(|program| Path::new(program).file_name());
    let link = LINKS.into_iter().find(|link| name == Some(OsStr::new(link)));
    if let Some(link) = link {
        outcome::start_through(link);
        // top has no such option, as a command.
        let is_version = arguments.get(1).is_some_and(|word| word == "-V" || word == "--version");
        let command = Some(link.into()).filter(|_| !is_version);
        arguments.splice(..1, [Some("taskdiag".into()), command].into_iter().flatten());
    }
    (arguments, link.is_some())
}

/// Parses the arguments. The options of a command are defined only when the command is named:
/// defining those of all commands takes as long as reading some hundred processes. Help and errors
/// may need all of them.
fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(arguments).or_else(|_| Cli::from_arg_matches(&whole_command().try_get_matches_from(arguments)?))
}

/// What getopt(3) says of an unknown option.
fn unknown_option(error: &clap::Error) -> Option<String> {
    let option = error.get(clap::error::ContextKind::InvalidArg)?.to_string();
    (error.kind() == clap::error::ErrorKind::UnknownArgument).then(|| match option.strip_prefix("--") {
        Some(_) => format!("unrecognized option '{option}'"),
        None => format!("invalid option -- '{}'", option.trim_start_matches('-')),
    })
}

/// What is wrong with the arguments, and how to go on: a line for each.
fn usage(wrong: &clap::Error, arguments: &[OsString]) -> String {
    use clap::error::{ContextKind, ErrorKind};
    let text = wrong.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    if wrong.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return text.to_owned();
    }
    let of = |kind| wrong.get(kind).map(ToString::to_string).unwrap_or_default();
    let refused = match wrong.kind() {
        ErrorKind::UnknownArgument => of(ContextKind::InvalidArg),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => of(ContextKind::InvalidValue),
        ErrorKind::InvalidSubcommand => of(ContextKind::InvalidSubcommand),
        _ => String::new(),
    };
    // A negative number may be meant as the value of the option before it.
    let is_negative = |word: &OsString| word.to_string_lossy().parse().is_ok_and(|number: f64| number < 0.0);
    let is_value = |pair: &[OsString]| pair[0].as_bytes().starts_with(b"-") && is_negative(&pair[1]);
    if let (Some(at), ErrorKind::UnknownArgument) = (arguments.windows(2).position(is_value), wrong.kind()) {
        let mut joined = arguments.to_vec();
        let value = joined.remove(at + 1);
        joined[at].push("=");
        joined[at].push(value);
        match parse(&joined) {
            Err(wrong) if wrong.kind() == ErrorKind::ValueValidation => return usage(&wrong, &joined),
            _ => {}
        }
    }
    let is_pid = of(ContextKind::InvalidArg).contains("PID") && !refused.is_empty();
    let cli = whole_command();
    let command = ps::command_at(arguments).and_then(|at| cli.find_subcommand(&arguments[at]));
    let has_pids =
        || command.is_some_and(|command| command.get_arguments().any(|option| option.get_short() == Some('p')));
    let name = command.map(clap::Command::get_name);
    let tip = match habit::hint(arguments, Some(&refused)) {
        None if wrong.kind() == ErrorKind::InvalidSubcommand => {
            let near = taskdiag_core::field::near(&refused, cli.get_subcommands().map(clap::Command::get_name));
            near.first().map(|name| format!("did you mean `taskdiag {name}`?"))
        }
        None if refused == "--port" && name == Some("metrics") => {
            Some("--listen :9256 chooses the port, for other machines, too".to_owned())
        }
        None if wrong.kind() == ErrorKind::UnknownArgument && refused.starts_with("--") => {
            commands_with(&cli, &refused[2..])
        }
        None if wrong.kind() == ErrorKind::MissingRequiredArgument && name == Some("maps") => {
            Some("-u USER, --where EXPRESSION and the like choose processes, --all takes all".to_owned())
        }
        None if text.contains("'--history <DIR>' cannot be used with '--source") => {
            Some("a recording has one source: what was recorded".to_owned())
        }
        None if of(ContextKind::InvalidArg).starts_with("--by") && ["pid", "process"].contains(&refused.as_str()) => {
            Some("ps, top, mem and net have a row for each process: `taskdiag ps -o pid,fd_count,comm`".to_owned())
        }
        None if is_pid => Some(instead_of_pid(name.unwrap_or_default(), &refused)),
        None if wrong.kind() == ErrorKind::UnknownArgument && has_pids() && refused.parse::<u32>().is_ok() => {
            Some(format!("-p {refused} chooses a process"))
        }
        hint => hint,
    };
    let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let message = message.replace("invalid digit found in string", "not a whole number");
    let message = message.replace("number too large to fit in target type", "too large");
    let mut lines = vec![message];
    // It may be about an option, and says how to give what begins with a dash.
    let own = rest.lines().filter_map(|line| line.strip_prefix("  tip: "));
    let own = own.filter(|other| tip.is_none() && !other.starts_with("to pass "));
    lines.extend(tip.as_deref().into_iter().chain(own).map(|tip| format!("tip: {tip}")));
    lines.push(match name {
        Some(name) if name != "help" => format!("`taskdiag {name} --help` lists the options"),
        _ => "`taskdiag help` lists the commands".to_owned(),
    });
    lines.join("\n")
}

/// Which commands have an option, if some do.
fn commands_with(cli: &clap::Command, option: &str) -> Option<String> {
    let is_it = |names: Vec<&str>| names.contains(&option);
    let has_it = |command: &&clap::Command| {
        let mut arguments = command.get_arguments();
        arguments.any(|argument| argument.get_long_and_visible_aliases().is_some_and(is_it))
    };
    let commands = cli.get_subcommands().filter(has_it).map(clap::Command::get_name);
    let names = commands.collect::<Vec<_>>().join(", ");
    let more = ["", "; `watch -n 1 taskdiag COMMAND …` repeats any command"][usize::from(option == "watch")];
    (!names.is_empty()).then(|| format!("--{option} is an option of {names}{more}"))
}

/// What to type instead of a word that is no process id.
fn instead_of_pid(command: &str, word: &str) -> String {
    if let Some(port) = word
        .strip_prefix(':')
        .or(word.strip_suffix("/tcp"))
        .or(word.strip_suffix("/udp"))
    {
        return format!("the sockets with a port: `taskdiag sockets --port {port}`");
    }
    if word.contains('/') || Path::new(word).exists() {
        let word = text::written(|out| text::quote_for_shell(out, word.as_bytes()));
        return format!("who has a file open: `taskdiag files --path {word}`");
    }
    if word.split(',').all(|word| word.parse::<u32>().is_ok()) {
        return format!("-p {word} chooses these processes, but in inspect, which shows one");
    }
    if command == "sockets" && taskdiag_core::socket::state_named(word).is_ok() {
        return format!("the sockets in a state: `taskdiag sockets --state {word}`");
    }
    match selection::pids_named(word).as_slice() {
        [] if matches!(command, "files" | "maps" | "sockets") && users::user_named(word.as_bytes()).is_some() => {
            format!("those of a user: `taskdiag {command} -u {word}`")
        }
        [] if matches!(command, "files" | "sockets") => {
            format!("those of processes by their name: `taskdiag {command} --where \"comm ~ '{word}'\"`")
        }
        [] => format!("process ids by a part of the name: `taskdiag pgrep {word}`"),
        pids => format!("the processes named {word}: {}", pids.join(", ")),
    }
}

/// The command with the options of all commands.
fn whole_command() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// What each command finds room in: the options of all commands take most of it.
const STACK: usize = 1 << 20;

fn main() -> ExitCode {
    check_zone_file();
    let limit = getrlimit(Resource::Stack).current;
    if limit.is_some_and(|limit| limit < STACK as u64) {
        if let Ok(thread) = thread::Builder::new().stack_size(STACK).spawn(answer) {
            // Signals are for that thread, those that come last, too.
            std::mem::forget(SignalsBlocked::begin());
            return thread.join().unwrap_or(ExitCode::from(101));
        }
    }
    answer()
}

/// The time zone's file is read whole, and a device has no end: without a regular file of usual size the
/// time zone is UTC, as for other programs.
fn check_zone_file() {
    const MAX_BYTES: u64 = 1 << 20;
    let zone = std::env::var_os("TZ").unwrap_or_default();
    let name = zone.as_bytes();
    let path = Path::new(OsStr::from_bytes(name.strip_prefix(b":").unwrap_or(name)));
    let is_usual = |file: Metadata| file.is_file() && file.len() <= MAX_BYTES;
    if path.is_absolute() && !path.metadata().is_ok_and(is_usual) {
        std::env::set_var("TZ", "UTC");
    }
}

/// Parses the arguments, and runs the command.
fn answer() -> ExitCode {
    if complete::answer(whole_command) {
        return ExitCode::SUCCESS;
    }
    let (arguments, is_link) = through_link(std::env::args_os().collect());
    let line = ps::CommandLine::new(habit::replaced(pkill::with_signal(arguments)), is_link);
    let result = line.and_then(|line| {
        let cli = match parse(&line.arguments) {
            Ok(cli) => cli,
            // The message quotes arguments, which a script may have from others.
            Err(wrong) if wrong.use_stderr() => {
                if let (true, Some(option)) = (outcome::is_procps(), unknown_option(&wrong)) {
                    return Err(option.into());
                }
                let shown = line
                    .arguments
                    .iter()
                    .map(|text| text::message(&text.to_string_lossy()).into());
                let shown: Vec<OsString> = shown.collect();
                let wrong = parse(&shown).err().unwrap_or(wrong);
                return Err(usage(&wrong, &shown).into());
            }
            Err(help) => {
                check_open()?;
                help.print()?;
                return Ok(Outcome::Complete);
            }
        };
        choose_color(match cli.color {
            Color::Auto if outcome::is_procps() => Color::Never,
            color => color,
        });
        proc::choose(cli.proc.clone())?;
        run(cli, line.ps_options).map_err(|failure| match habit::hint(&line.arguments, None) {
            Some(hint) => failure.with(&format!("\ntip: {hint}")),
            None => failure,
        })
    });
    outcome::exit_code(result)
}

fn run(cli: Cli, ps_options: ps::PsOptions) -> Result<Outcome, Failure> {
    if cli.version {
        return outcome::print(version::text());
    }
    let Some(command) = cli.command else {
        let usage = Cli::command().render_usage();
        return Err(Failure::Unanswered(format!(
            "no command is given\n{usage}\n`taskdiag help` lists the commands"
        )));
    };
    match command {
        Command::Ps(args) => ps::run(args, ps_options, watch::of_ps),
        Command::Tree(args) => tree::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Net(args) => watch::net::run(args),
        Command::Top(args) => top::run(args),
        Command::Cache(args) => cache::run(args),
        Command::Events(args) => events::run(args),
        Command::Files(args) => files::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Maps(args) => maps::run(args),
        Command::Mem(args) => mem::run(args),
        Command::Metrics(args) => metrics::run(args),
        Command::Normalize(args) => normalize::run(args),
        Command::Sockets(args) => sockets::run(args),
        Command::Pgrep(args) => pgrep::run(args),
        Command::Pkill(args) => pkill::run(args),
        Command::Record(args) => record::run(args),
        Command::History(args) => history::run(args),
        Command::Report(args) => report::run(&args),
        Command::Fields(args) => fields::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Pin(args) => pin::pin(args),
        Command::Unpin(args) => pin::unpin(args),
        Command::Schema(args) => schema::run(args),
        Command::Man(args) => manual::run(args, Cli::command()),
        Command::Completions(args) => complete::run(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a link selects its command in any directory, and that other names do not.
    #[test]
    fn links_stand_for_commands() {
        let line = |words: &[&str]| {
            let (arguments, is_link) = through_link(words.iter().map(OsString::from).collect());
            let arguments: Vec<String> = arguments
                .into_iter()
                .filter_map(|word| word.into_string().ok())
                .collect();
            (arguments.join(" "), is_link)
        };
        assert_eq!(
            line(&["/usr/local/bin/ps", "aux"]),
            ("taskdiag ps aux".to_owned(), true)
        );
        assert_eq!(line(&["pkill", "-9", "x"]), ("taskdiag pkill -9 x".to_owned(), true));
        assert_eq!(line(&["top", "-d1"]), ("taskdiag top -d1".to_owned(), true));
        assert_eq!(line(&["./taskdiag", "ps"]), ("./taskdiag ps".to_owned(), false));
        assert_eq!(line(&["ps/tool", "ps"]), ("ps/tool ps".to_owned(), false));
        assert_eq!(line(&[]), (String::new(), false));
    }
}
