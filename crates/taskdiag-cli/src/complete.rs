//! Completion in shells, and `taskdiag completions`, which prints the script that a shell loads.
//!
//! The script runs taskdiag itself for each completion, with [`VARIABLE`] set. Options come from
//! clap's definition of the command line, fields from the field table, and users, processes and
//! units from the running processes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::builder::StyledStr;
use clap::{Arg, Args as ClapArgs, Command, ValueEnum, ValueHint};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Shells, Zsh};
use taskdiag::{Field, Group, Kind, Query, Value};
use taskdiag_core::names;
use taskdiag_core::open_file::Use;
use taskdiag_core::socket::State;

use crate::outcome::{print, say, Failure, Outcome};
use crate::output::relation::ColumnInfo;
use crate::output::{tasks, text};
use crate::ps::specifiers::{self, Specifier};
use crate::watch::Rate;
use crate::{cache, events, fields, files, maps, normalize, proc, schema, sockets, users};

/// Print a shell's completion script for taskdiag
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// A shell with completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    /// A file in /usr/share/bash-completion/completions, or ~/.bashrc
    Bash,
    /// _taskdiag in a directory of $fpath
    Zsh,
    /// A file in ~/.config/fish/completions
    Fish,
}

/// The variable that a script sets to ask for completions. Its value is the name of the shell.
const VARIABLE: &str = "TASKDIAG_COMPLETE";

const NAME: &str = "taskdiag";

/// Runs `taskdiag completions`.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?;
    if args.shell == Shell::Bash {
        // bash quotes the names of files that it completes itself, and none of ours.
        let text = String::from_utf8_lossy(&script).replace("-o bashdefault", "-o bashdefault -o default");
        script = text.into_bytes();
    }
    if args.shell == Shell::Zsh {
        // zsh loads the script at the first completion, and runs it as the completion function.
        let call = b"[ \"$funcstack[1]\" = \"_taskdiag\" ] && _clap_dynamic_completer_taskdiag \"$@\"\n";
        script.extend_from_slice(call);
    }
    print(script)
}

/// Answers a shell's script. Returns whether a script asked.
pub fn answer(command: impl Fn() -> Command) -> bool {
    let shells = Shells(&[&Bash, &Fish, &Zsh]);
    let is_bash = std::env::var_os(VARIABLE).is_some_and(|shell| shell == "bash");
    let environment = CompleteEnv::with_factory(|| with_values(command(), is_bash))
        .var(VARIABLE)
        .bin(NAME)
        .completer(NAME)
        .shells(shells);
    let directory = std::env::current_dir().ok();
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if is_bash {
        join_values(&mut arguments);
    }
    environment
        .try_complete(arguments, directory.as_deref())
        .unwrap_or_else(|error| {
            let message = error.to_string();
            say(format_args!(
                "{VARIABLE}: {}",
                message.trim_start_matches("error: ").trim_end()
            ));
            std::process::exit(2)
        })
}

/// bash splits `--sort=pid` into three words, because `=` breaks words. Removes the `=`.
fn join_values(arguments: &mut Vec<OsString>) {
    /// The variable in which bash passes the index of the completed word, counted from the word
    /// after `--`.
    const INDEX: &str = "_CLAP_COMPLETE_INDEX";
    let index = std::env::var(INDEX).ok().and_then(|text| text.parse::<usize>().ok());
    let (Some(begin), Some(mut index)) = (arguments.iter().position(|word| word == "--"), index) else {
        return;
    };
    let mut position = begin + 2;
    while position + 1 < arguments.len() && position < begin + 1 + index {
        let is_option = arguments[position - 1].as_bytes().starts_with(b"--");
        if is_option && arguments[position] == "=" {
            arguments.remove(position);
            index -= 1;
        }
        position += 1;
    }
    std::env::set_var(INDEX, index.to_string());
}

/// What a value stands for.
#[derive(Clone, Copy, Debug)]
enum Values {
    /// What one of these fields is in a running process.
    Running(&'static [Field]),
    /// One of these.
    Word(fn() -> Vec<&'static str>),
    /// A column of the command.
    Column,
    /// A field, for a filter.
    Field,
}

/// What a value stands for, by the option's name, or else by the value's name in the help.
#[rustfmt::skip]
const VALUES: &[(&str, Values)] = &[
    ("--cgroup", Values::Running(&[Field::Cgroup])),
    ("--container", Values::Running(&[Field::ContainerName])),
    ("--unit", Values::Running(&[Field::Unit, Field::UserUnit])),
    ("--group", Values::Running(&[Field::Egid])),
    ("--Group", Values::Running(&[Field::Egid])),
    ("--User", Values::Running(&[Field::Euid])),
    ("--ppid", Values::Running(&[Field::Pid])),
    ("--quick-pid", Values::Running(&[Field::Pid])),
    ("-C", Values::Running(&[Field::Comm])),
    ("-O FORMAT", Values::Column),
    ("PID", Values::Running(&[Field::Pid])),
    ("USER", Values::Running(&[Field::Euid])),
    ("SIGNAL", Values::Word(|| names::SIGNALS.to_vec())),
    ("--use", Values::Word(|| Use::ALL.iter().map(|one| one.name()).chain(["all"]).collect())),
    ("STATE", Values::Word(|| State::ALL.iter().map(|state| state.name()).collect())),
    ("SCHEMA", Values::Word(|| schema::schemas().iter().map(|(name, _)| *name).collect())),
    ("FIELD", Values::Column),
    ("KEY", Values::Column),
    ("EXPR", Values::Field),
    ("PATTERN", Values::Running(&[Field::Comm])),
];

impl Values {
    /// What an option or operand takes, if its values can be listed.
    fn of(arg: &Arg) -> Option<Values> {
        // clap completes these itself.
        if !arg.get_possible_values().is_empty() {
            return None;
        }
        let value = arg.get_value_names().and_then(<[_]>::first);
        let value = value.map_or(arg.get_id().as_str(), |name| name.as_str());
        let value = value
            .trim_start_matches(['[', '+', '-', ']'])
            .trim_end_matches([',', '…']);
        let long = arg.get_long().map(|name| format!("--{name}"));
        let short = arg.get_short().map(|letter| format!("-{letter}"));
        let both = short.as_ref().map(|short| format!("{short} {value}"));
        let names = [long, both, short, Some(value.to_uppercase())];
        names.into_iter().flatten().find_map(|name| {
            let (_, values) = VALUES.iter().find(|(wanted, _)| *wanted == name)?;
            Some(*values)
        })
    }

    /// The candidates, each with a short description.
    fn list(self, command: &str) -> Vec<(String, String)> {
        match self {
            Values::Running(fields) => fields.iter().flat_map(|&field| running(field)).collect(),
            Values::Word(words) => words().iter().map(|&word| (word.to_owned(), String::new())).collect(),
            Values::Column => columns(command),
            Values::Field => of_rows(&tasks::RELATION),
        }
    }
}

/// What completes a partly typed value. Lists are completed member by member, each once.
fn complete(candidates: Vec<(String, String)>, is_column: bool, begun: &OsStr) -> Vec<CompletionCandidate> {
    let Some(begun) = begun.to_str() else {
        return Vec::new();
    };
    let (before, member) = begun
        .rsplit_once(',')
        .map_or(("", begun), |(before, member)| (&begun[..=before.len()], member));
    let sign = usize::from(is_column && member.starts_with(['+', '-']));
    let (sign, member) = member.split_at(sign);
    let is_new = |value: &str| {
        before
            .split(',')
            .all(|given| given.trim_start_matches(['+', '-']) != value)
    };
    candidates
        .into_iter()
        .filter(|(value, _)| value.starts_with(member) && is_safe(value) && is_new(value))
        .filter(|_| before.is_empty() || is_safe(&before.replace(',', "")))
        .map(|(value, help)| {
            let help = (!help.is_empty()).then(|| StyledStr::from(help));
            CompletionCandidate::new(format!("{before}{sign}{value}")).help(help)
        })
        .collect()
}

/// Whether a word is safe unquoted. Any user can choose the names of processes, units and
/// containers, and bash inserts candidates unquoted, so other words are left out.
fn is_safe(word: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+".contains(&byte);
    !word.is_empty() && !word.starts_with('-') && word.bytes().all(is_safe)
}

/// The command line with completion for its values. `is_bash` leaves files to the shell.
fn with_values(command: Command, is_bash: bool) -> Command {
    command.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        let command = with_values(command, is_bash);
        command.mut_args(|arg| {
            let (values, name) = (Values::of(&arg), name.clone());
            let known = arg.get_possible_values().into_iter();
            let known = known.filter(|_| arg.get_value_delimiter().is_some());
            let known = known.map(|one| (one.get_name().to_owned(), one.get_help().map(ToString::to_string)));
            let known: Vec<_> = known.map(|(name, help)| (name, help.unwrap_or_default())).collect();
            if values.is_none() && known.is_empty() {
                let is_path = is_bash && arg.get_value_hint() != ValueHint::Unknown;
                return if is_path { arg.value_hint(ValueHint::Other) } else { arg };
            }
            let completer = move |begun: &OsStr| {
                let list = values.map_or_else(|| known.clone(), |values| values.list(&name));
                complete(list, matches!(values, Some(Values::Column)), begun)
            };
            // Otherwise clap would not tell which members of a list there are.
            arg.value_delimiter(None).add(ArgValueCompleter::new(completer))
        })
    })
}

/// The names that `-o` and `--sort` of a command take.
fn columns(command: &str) -> Vec<(String, String)> {
    match command {
        "cache" => of_rows(&cache::RELATION),
        "events" => of_rows(&events::RELATION),
        "files" => of_rows(&files::RELATION),
        "maps" => of_rows(&maps::RELATION),
        "normalize" => of_rows(&normalize::RELATION),
        "sockets" => of_rows(&sockets::RELATION),
        "fields" => of_rows(&fields::RELATION),
        _ => {
            let mut all = of_rows(&tasks::RELATION);
            let named = |name: &str, help: String| (name.to_owned(), help);
            match command {
                "ps" => {
                    let specifier = |one: &Specifier| named(one.name, "as ps(1) shows it".to_owned());
                    all.extend(specifiers::TABLE.iter().map(specifier));
                }
                "watch" | "net" => all.extend(Rate::ALL.iter().map(|rate| named(rate.name(), "rate".to_owned()))),
                _ => {}
            }
            for group in Group::ALL {
                all.push(named(group.name(), "group of fields".to_owned()));
            }
            all.push(named("all", "every cheap field".to_owned()));
            // If a name has several meanings, the first one counts.
            let mut seen = std::collections::HashSet::new();
            all.retain(|(name, _)| seen.insert(name.clone()));
            all
        }
    }
}

/// The columns of a relation, each with the first sentence of its meaning.
fn of_rows(relation: &[ColumnInfo]) -> Vec<(String, String)> {
    let candidate = |column: &ColumnInfo| {
        let sentence = column.meaning.split(". ").next().unwrap_or_default();
        (column.name.to_owned(), sentence.trim_end_matches('.').to_owned())
    };
    relation.iter().map(candidate).collect()
}

/// The values of a field in the running processes, without duplicates; process ids come with names.
/// Nothing if the processes can't be read: a shell can't show a message.
pub fn running(field: Field) -> Vec<(String, String)> {
    let query = Query::processes().fields(Field::Comm | Field::Pid | field);
    let Ok(snapshot) = proc::handle().query(&query) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for task in snapshot.tasks() {
        let Ok(value) = task.value(field) else {
            continue;
        };
        let word = match (value, field.info().kind) {
            (Value::Unsigned(id), Kind::User) => name_or_number(id, users::user_name),
            (Value::Unsigned(id), Kind::GroupId) => name_or_number(id, users::group_name),
            (Value::Unsigned(number), _) => number.to_string(),
            (Value::Text(bytes), _) => String::from_utf8_lossy(bytes).into_owned(),
            _ => continue,
        };
        let help = match (field, task.comm()) {
            (Field::Pid, Ok(comm)) => text::escaped(comm),
            _ => String::new(),
        };
        found.push((word, help));
    }
    if field != Field::Pid {
        found.sort();
        found.dedup();
    }
    found
}

fn name_or_number(id: u64, name: impl Fn(u32) -> Option<Vec<u8>>) -> String {
    let name = u32::try_from(id)
        .ok()
        .and_then(name)
        .and_then(|name| String::from_utf8(name).ok());
    name.unwrap_or_else(|| id.to_string())
}
