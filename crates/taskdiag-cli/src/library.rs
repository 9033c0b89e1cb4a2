//! Handles as commands make them.

use std::path::PathBuf;

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
    #[arg(long, value_enum, default_value_t)]
    source: Source,
    #[command(flatten)]
    broker: BrokerOptions,
}

/// Options that are about the broker.
#[derive(Clone, Debug, Args)]
pub struct BrokerOptions {
    /// Where the broker listens [default: /run/taskdiag/taskdiag.sock]
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
        let handle = self.broker.handle();
        match self.source {
            Source::Broker => handle.with_source(SourceId::Broker),
            Source::Auto => handle,
            Source::Bpf => handle.with_source(SourceId::Bpf),
            Source::Procfs => handle.with_source(SourceId::Procfs),
        }
    }
}

impl BrokerOptions {
    /// A handle that would ask the broker there.
    pub fn handle(&self) -> Handle {
        match &self.socket {
            Some(path) => Handle::new().with_socket(path),
            None => Handle::new(),
        }
    }
}
