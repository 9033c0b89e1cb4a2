//! Handles as commands make them.

use clap::ValueEnum;
use taskdiag::{Handle, SourceId};

/// What `--source` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// Whatever answers best on this host
    #[default]
    Auto,
    /// BPF task iterators, or fail
    Bpf,
    /// The files of /proc
    Procfs,
}

/// A handle for what one command asks: nothing is remembered for a next one.
pub fn handle(source: Source) -> Handle {
    handle_for_many(source).one_shot()
}

/// A handle for many queries.
pub fn handle_for_many(source: Source) -> Handle {
    let handle = Handle::new();
    match source {
        Source::Auto => handle,
        Source::Bpf => handle.with_source(SourceId::Bpf),
        Source::Procfs => handle.with_source(SourceId::Procfs),
    }
}
