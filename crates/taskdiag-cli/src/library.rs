//! Handles as commands make them.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};
use taskdiag::{Handle, SourceId};

/// What `--source` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// Whatever answers best on this host
    #[default]
    Auto,
    /// BPF, or fail
    Bpf,
    /// The files of /proc
    Procfs,
    /// The broker, taskdiagd, which shows what you may trace
    Broker,
}

/// Options that are about who answers.
#[derive(Clone, Debug, Args)]
pub struct SourceOptions {
    /// What is to answer
    #[arg(
        long,
        value_enum,
        default_value_t,
        default_value_if("socket", ArgPredicate::IsPresent, "broker")
    )]
    source: Source,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    broker: BrokerOptions,
}

/// How long processes are waited for.
#[derive(Clone, Copy, Debug, Args)]
pub struct Patience {
    /// How long a process may keep its reader waiting before it goes without an answer
    #[arg(long, value_name = "SECONDS", default_value = "0.2", env = "TASKDIAG_PATIENCE", value_parser = patience)]
    pub patience: Duration,
}

/// What `--patience` takes.
pub fn patience(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it takes seconds, like 0.2")?;
    let wait = Duration::try_from_secs_f64(seconds).map_err(|_| "it takes seconds, like 0.2")?;
    if wait < Duration::from_millis(10) {
        Err("less than 0.01 seconds gives nobody a chance to answer".to_owned())
    } else {
        Ok(wait)
    }
}

/// Options that are about the broker. Whoever takes `--source` beside them has the broker for its default where they are given.
#[derive(Clone, Debug, Args)]
pub struct BrokerOptions {
    /// Ask the broker, which listens there [default: /run/taskdiag/taskdiag.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl SourceOptions {
    /// A handle for what one command asks: nothing is remembered for a next one.
    pub fn handle(&self) -> Handle {
        self.handle_for_many().one_shot()
    }

    /// A handle for many queries.
    pub fn handle_for_many(&self) -> Handle {
        let handle = Handle::new().with_patience(self.patience.patience);
        let handle = match &self.broker.socket {
            Some(path) => handle.with_socket(path),
            None => handle,
        };
        match self.source {
            Source::Broker => handle.with_source(SourceId::Broker),
            Source::Auto => handle,
            Source::Bpf => handle.with_source(SourceId::Bpf),
            Source::Procfs => handle.with_source(SourceId::Procfs),
        }
    }
}
