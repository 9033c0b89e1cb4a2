//! The sources of a handle. Each is opened or loaded at the first need, and again in a child after
//! fork(2).

use std::path::{Path, PathBuf};
use std::time::Duration;

use taskdiag_bpf::pass::{Bpf, PassRequest};
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::Fields;
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::snapshot::{Snapshot, SourceId};
use taskdiag_protocol::wire;

use crate::maps;
use crate::readers;
use crate::source::broker::Broker;
use crate::source::procfs::{Proc, Procfs};
use crate::source::Source;

#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Loads and drops its programs itself.
    pub(super) bpf: Bpf,
    /// Which procfs is read.
    proc: Proc,
    /// The maximum memory of an answer with long texts, if it is not the default.
    pub(super) max_records: Option<usize>,
    procfs: Option<Procfs>,
    broker: Option<Broker>,
    /// A second connection, which opens files for readers of mappings: they must not wait for a long
    /// answer about tasks.
    file_opener: Option<maps::Broker>,
    pub(super) broker_path: Option<PathBuf>,
}

impl Sources {
    /// The source that answers for an id.
    pub(super) fn get(&mut self, source: SourceId) -> Result<&mut dyn Source> {
        match source {
            SourceId::Bpf => Ok(&mut self.bpf),
            SourceId::Broker => Ok(self.broker()?),
            SourceId::Procfs | SourceId::SmapsRollup | SourceId::Smaps => Ok(self.procfs()?),
            _ => Err(Error::new(
                ErrorKind::Unsupported,
                format!("nothing here asks the source {}", source.name()),
            )),
        }
    }

    pub(super) fn procfs(&mut self) -> Result<&mut Procfs> {
        let opened = self.procfs.take().filter(Procfs::is_ours);
        let mut procfs = opened.map_or_else(|| Procfs::open(&self.proc), Ok)?;
        if let Some(bytes) = self.max_records {
            procfs.max_records = bytes;
        }
        Ok(self.procfs.insert(procfs))
    }

    pub(super) fn procfs_and_bpf(&mut self) -> Result<(&Procfs, &mut Bpf)> {
        self.procfs()?;
        let procfs = self.procfs.as_ref().expect("it was opened just now");
        Ok((procfs, &mut self.bpf))
    }

    pub(super) fn broker(&mut self) -> Result<&mut Broker> {
        let opened = self.broker.take().filter(Broker::is_ours);
        let broker = opened.map_or_else(|| Broker::open(self.broker_path()), Ok)?;
        Ok(self.broker.insert(broker))
    }

    /// The broker, for opening files. It connects again by itself.
    pub(super) fn file_opener(&mut self) -> Result<maps::Broker> {
        let opened = self.file_opener.take().filter(maps::Broker::is_ours);
        let opener = opened.map_or_else(|| maps::Broker::connect(self.broker_path()), Ok)?;
        Ok(self.file_opener.insert(opener).clone())
    }

    /// Where the broker listens.
    pub(super) fn broker_path(&self) -> &Path {
        self.broker_path.as_deref().unwrap_or(Path::new(wire::SOCKET))
    }

    /// Which procfs is read.
    pub(super) fn proc(&self) -> &Proc {
        &self.proc
    }

    pub(super) fn set_proc(&mut self, proc: Proc) {
        self.proc = proc;
        self.procfs = None;
    }

    /// Reads tasks from procfs.
    pub(super) fn read_procfs(
        &mut self,
        query: &Query,
        fields: Fields,
        patience: Duration,
        snapshot: &mut Snapshot,
    ) -> Result<()> {
        self.procfs()?.read(query, fields, patience, snapshot)
    }
}

/// The ids of the tasks that BPF shows, in no particular order. A thread can be there twice.
pub(super) fn shown(bpf: &mut Bpf, scope: Scope) -> Result<Snapshot> {
    let mut shown = Snapshot::default();
    bpf.read(&PassRequest::ids(scope), &mut shown)?;
    // The ids of these passed to other tasks meanwhile.
    let again = std::mem::take(&mut shown.again);
    if !again.is_empty() {
        let query = if scope.is_threads() {
            Query::threads_of_these(again)
        } else {
            Query::these(again)
        };
        Procfs::open(&Proc::default())?.read(&query, Fields::NONE, readers::PATIENCE, &mut shown)?;
    }
    Ok(shown)
}

/// The ids of all tasks that BPF shows, sorted; `None` if this can't be found out.
pub(super) fn all_shown(bpf: &mut Bpf, threads: bool) -> Option<Snapshot> {
    let scope = if threads { Scope::Threads } else { Scope::Processes };
    let mut shown = shown(bpf, scope).ok()?;
    shown.sort();
    Some(shown)
}
