//! The options `--source`, `--socket` and `--patience`: which source to use, and how long to wait.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{ArgPredicate, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::Args;
use taskdiag::{Group, Handle, Query, SourceId};
use taskdiag_core::field::has_group;

use crate::{proc, quantity};

/// The values of an option such as `--source`: name, meaning, and a line of help.
pub type Choices<S> = [(&'static str, S, &'static str)];

/// The one source that may answer; `None` leaves the choice to the library. Not an `Option`,
/// because clap treats an `Option` as an optional argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForcedSource<S>(pub Option<S>);

/// The parser of such an option.
pub fn parser<S: Copy + Send + Sync + 'static>(choices: &'static Choices<S>) -> impl TypedValueParser<Value = S> {
    let value = |&(name, _, help): &(&'static str, S, &'static str)| PossibleValue::new(name).help(help);
    let names = PossibleValuesParser::new(choices.iter().map(value));
    names.try_map(|name| {
        let choice = choices.iter().find(|(known, ..)| *known == name);
        choice.map(|&(_, source, _)| source).ok_or("no such source")
    })
}

/// What a command's `--source` takes, a line for each: its name, the source, and the help.
macro_rules! sources {
    ("auto", $auto:literal; $($name:literal: $source:expr, $help:literal;)*) => {
        &[
            ("auto", $crate::source::ForcedSource(None), $auto),
            $(($name, $crate::source::ForcedSource(Some($source)), $help)),*
        ]
    };
}
pub(crate) use sources;

const TASK_SOURCES: &Choices<ForcedSource<SourceId>> = sources! {
    "auto", "Whichever is fastest here";
    "bpf": SourceId::Bpf, "BPF programs; needs CAP_BPF and CAP_PERFMON";
    "procfs": SourceId::Procfs, "The files of /proc";
    "broker": SourceId::Broker, "taskdiagd, which shows what you may trace";
};

/// Options about sources of tasks. If a socket is given, the broker is the default.
#[derive(Clone, Debug, Args)]
pub struct SourceOptions {
    /// The source to use; an error if it can't answer
    #[arg(
        long,
        value_name = "SOURCE",
        value_parser = parser(TASK_SOURCES),
        default_value = "auto",
        default_value_if("socket", ArgPredicate::IsPresent, "broker")
    )]
    source: ForcedSource<SourceId>,
    #[command(flatten)]
    patience: Patience,
    /// Use the broker that listens on this socket [default: /run/taskdiag/taskdiag.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// How long to wait for processes.
#[derive(Clone, Copy, Debug, Args)]
pub struct Patience {
    /// How long a system call about one process may make no progress before its values count as "no
    /// answer"
    #[arg(long, value_name = "SECONDS", default_value = "0.2", env = "TASKDIAG_PATIENCE", value_parser = quantity::interval)]
    pub patience: Duration,
}

impl SourceOptions {
    /// How long to wait for processes.
    pub fn patience(&self) -> Duration {
        self.patience.patience
    }

    /// A handle for a single query: it keeps nothing for another one.
    pub fn handle(&self) -> Handle {
        self.handle_for_many().one_shot()
    }

    /// Whether the broker has to answer.
    pub fn is_broker(&self) -> bool {
        self.source == ForcedSource(Some(SourceId::Broker))
    }

    /// Whether the library chooses the source.
    pub fn is_choice_free(&self) -> bool {
        self.source == ForcedSource(None)
    }

    /// A handle for many queries.
    pub fn handle_for_many(&self) -> Handle {
        self.handle_of(self.source.0)
    }

    /// A handle for mappings. The sources of tasks do not have all values of mappings, so only the
    /// broker is an obligatory source.
    pub fn handle_for_maps(&self) -> Handle {
        self.handle_of(self.is_broker().then_some(SourceId::Broker))
    }

    fn handle_of(&self, source: Option<SourceId>) -> Handle {
        let mut handle = proc::handle().with_patience(self.patience());
        if let Some(path) = &self.socket {
            handle = handle.with_socket(path);
        }
        if let Some(source) = source {
            handle = handle.with_source(source);
        }
        handle
    }
}

/// Lets the handle count network traffic, if the query is about it.
pub fn count_network_for(handle: &mut Handle, query: &Query) -> taskdiag::Result<()> {
    if has_group(query.fields_read(), Group::Net) {
        handle.count_network()?;
    }
    Ok(())
}
