//! Handles as commands make them.

use std::path::Path;

use clap::ValueEnum;
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

/// A handle for what one command asks: nothing is remembered for a next one.
pub fn handle(source: Source, socket: Option<&Path>) -> Handle {
    handle_for_many(source, socket).one_shot()
}

/// A handle for many queries.
pub fn handle_for_many(source: Source, socket: Option<&Path>) -> Handle {
    let handle = match socket {
        Some(path) => Handle::new().with_socket(path),
        None => Handle::new(),
    };
    match source {
        Source::Broker => handle.with_source(SourceId::Broker),
        Source::Auto => handle,
        Source::Bpf => handle.with_source(SourceId::Bpf),
        Source::Procfs => handle.with_source(SourceId::Procfs),
    }
}
