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
    let handle = Handle::new().one_shot();
    match source {
        Source::Auto => handle,
        Source::Bpf => handle.with_source(SourceId::Bpf),
        Source::Procfs => handle.with_source(SourceId::Procfs),
    }
}
