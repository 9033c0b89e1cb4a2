//! The arguments of `taskdiag ps`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args as ClapArgs, FromArgMatches};

use super::options::{self, PsOptions};
use crate::choice::OrderOptions;
use crate::history::PastOptions;
use crate::listing::Options;
use crate::outcome::Failure;
use crate::quantity;
use crate::selection::Selection;

/// List processes or threads
///
/// Takes the options of ps(1), with and without a dash, and its format specifiers: `ps aux`, `ps
/// -ef`, `ps axjf`, `ps -C bash -o pid=`, `ps -eo pid,user:20,%cpu,lstart,args --sort=-rss`. Then
/// the output is that of ps. Without any of them, a table shows what most people look for.
///
/// Rows are sorted by id; with --watch the busiest come first. --sort also takes specifiers.
///
/// If no option selects processes, `taskdiag ps` lists all; ps lists those of your terminal. A link
/// with the name ps behaves like ps.
///
/// JSON and CSV have the fields that columns are made from. With -o, only the fields that are
/// shown, sorted by or filtered by are read from the kernel. Scripts should use -o with --json,
/// --jsonl or --csv: the default columns may change.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    pub selection: Selection,
    /// A row for each thread rather than for each process
    #[arg(short = 'T', long)]
    pub threads: bool,
    /// Say on standard error who read what, and which part of the filter was evaluated where
    #[arg(long)]
    pub explain: bool,
    #[command(flatten)]
    pub order: OrderOptions,
    /// Show those that do something every so many seconds, with what they do: see `taskdiag watch`
    #[arg(long, value_name = "SECONDS", conflicts_with = "MomentOptions", value_parser = quantity::interval)]
    pub watch: Option<Duration>,
    /// When watching: end after so many samples
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub count: Option<u64>,
    #[command(flatten)]
    pub past: PastOptions,
    #[command(flatten)]
    pub options: Options,
    /// The options of ps(1).
    #[arg(skip)]
    pub ps_options: PsOptions,
}

/// The arguments of `taskdiag ps` for clap: those that it parses, and those of ps(1), which it only
/// documents.
#[derive(Clone, Debug)]
pub struct PsArgs(pub Args);

impl ClapArgs for PsArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let command = Args::augment_args(command);
        let options = options::for_clap(&command);
        command.args(options).after_help(format!(
            "{}\n\nExamples:\n  \
             taskdiag ps aux\n  \
             taskdiag ps -C sshd -o pid,user:20,etime,args --sort -rss\n  \
             taskdiag ps --sort -rss_bytes --limit 10\n  \
             taskdiag ps -u www-data -o pid,rss_bytes,cmdline\n  \
             taskdiag ps -p 1,$$ -o cred --json\n  \
             taskdiag ps --where \"uid == 0 and not kernel_thread and comm ~ '^ssh'\"\n  \
             taskdiag ps -T -p 1234 -o tid,comm,utime_ns,stime_ns",
            options::bsd_help()
        ))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        PsArgs::augment_args(command)
    }
}

impl FromArgMatches for PsArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<PsArgs, clap::Error> {
        Args::from_arg_matches(matches).map(PsArgs)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// A command line whose options of ps(1) are parsed.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// The other arguments, for clap.
    pub arguments: Vec<OsString>,
    /// The options of ps(1).
    pub ps_options: PsOptions,
}

impl CommandLine {
    /// Parses the options of ps(1) if the command is `taskdiag ps`. `is_link` means that it was
    /// called through a link with the name ps.
    pub fn new(mut arguments: Vec<OsString>, is_link: bool) -> Result<CommandLine, Failure> {
        let Some(command) = position_of("ps", &arguments) else {
            return Ok(CommandLine {
                arguments,
                ps_options: PsOptions::default(),
            });
        };
        let own = Args::augment_args(clap::Command::new("ps"));
        let takes_value = |name: &str| {
            let is_it = |argument: &&clap::Arg| {
                let names = argument.get_long_and_visible_aliases().unwrap_or_default();
                names.contains(&name)
            };
            let known = own.get_arguments().find(is_it);
            let takes =
                |argument: &clap::Arg| argument.get_action().takes_values() && !argument.is_require_equals_set();
            match name {
                "help" | "version" => Some(false),
                name if GLOBAL.contains(&name) => Some(true),
                _ => known.map(takes),
            }
        };
        let (mut ps_options, left) = options::take(arguments.drain(command + 1..), takes_value, is_link)?;
        ps_options.is_given |= is_link;
        arguments.extend(left);
        Ok(CommandLine { arguments, ps_options })
    }
}

/// The options of all commands that take a value.
const GLOBAL: [&str; 2] = ["color", "proc"];

/// The position of the command's name, if it is this one.
pub fn position_of(command: &str, arguments: &[OsString]) -> Option<usize> {
    command_at(arguments).filter(|&at| arguments[at] == command)
}

/// The position of the command's name.
pub fn command_at(arguments: &[OsString]) -> Option<usize> {
    let mut position = 1;
    loop {
        let word = arguments.get(position)?.as_encoded_bytes();
        let option = |name: &&str| word.strip_prefix(b"--")?.strip_prefix(name.as_bytes());
        match GLOBAL.iter().find_map(option) {
            Some(b"") => position += 2,
            Some([b'=', ..]) => position += 1,
            _ => return Some(position),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_line(words: &[&str], is_link: bool) -> (String, PsOptions) {
        let words = words.iter().map(|&word| OsString::from(word)).collect();
        let CommandLine { arguments, ps_options } = CommandLine::new(words, is_link).expect("words");
        let arguments: Vec<String> = arguments
            .into_iter()
            .map(|word| word.into_string().expect("UTF-8"))
            .collect();
        (arguments.join(" "), ps_options)
    }

    /// Check that other commands are unaffected, and that a link called ps has the grammar of ps.
    #[test]
    fn only_ps_has_the_grammar_of_ps() {
        let (arguments, ps_options) = command_line(&["taskdiag", "tree", "-aux"], false);
        assert_eq!(
            (arguments.as_str(), ps_options),
            ("taskdiag tree -aux", PsOptions::default())
        );
        let (arguments, ps_options) = command_line(&["taskdiag", "ps", "-e", "--json"], true);
        assert_eq!(arguments, "taskdiag ps --json");
        assert!(ps_options.is_called_ps && ps_options.is_given && ps_options.choice.all);
        let (arguments, ps_options) = command_line(&["taskdiag", "ps", "aux", "--where", "aux", "--limit=3"], false);
        assert_eq!(arguments, "taskdiag ps --where aux --limit=3");
        assert!(!ps_options.is_called_ps && ps_options.choice.own && ps_options.choice.on_terminals);
        for words in [
            &["taskdiag", "--color", "never", "ps", "-e"][..],
            &["taskdiag", "--color=never", "ps", "-e"],
            &["taskdiag", "--proc", "/host/proc", "--color=never", "ps", "-e"],
        ] {
            assert!(command_line(words, false).1.choice.all, "{words:?}");
        }
        let (arguments, ps_options) = command_line(&["taskdiag", "--color", "ps", "-e"], false);
        assert_eq!(
            (arguments.as_str(), ps_options),
            ("taskdiag --color ps -e", PsOptions::default())
        );
        let (arguments, ps_options) = command_line(&["taskdiag", "ps", "--color", "always", "-e"], false);
        assert_eq!(
            (arguments.as_str(), ps_options.choice.all),
            ("taskdiag ps --color always", true)
        );
    }

    /// Check that the options of ps that clap documents do not clash with our own.
    #[test]
    fn clap_knows_all_options() {
        let command = PsArgs::augment_args(clap::Command::new("ps"));
        command.clone().debug_assert();
        for long in ["forest", "ppid", "cols", "deselect", "cumulative"] {
            assert!(
                command.get_arguments().any(|arg| arg.get_long() == Some(long)),
                "{long}"
            );
        }
    }
}
