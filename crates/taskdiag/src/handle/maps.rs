//! Mappings: which source answers, and through which connection to the broker.

use std::os::fd::OwnedFd;

#[cfg(doc)]
use taskdiag_core::error::ErrorKind;
use taskdiag_core::error::Result;
use taskdiag_core::set::Set;
use taskdiag_core::snapshot::SourceId;

use super::Handle;
use crate::maps::{Filter, MachineMappings, MapField, Maps, Settings, Wants};

impl Handle {
    /// Opens the mappings of a process. This needs the right to trace it (ptrace(2),
    /// `PTRACE_MODE_READ_FSCREDS`): the same user, or `CAP_SYS_PTRACE`. The broker, which needs the
    /// same right, is used only if it was chosen ([`with_source`](Handle::with_source)). The
    /// [`Maps`] can be used without the handle, and keep its source and patience.
    ///
    /// If the first thread of the process has ended, uses another of its threads: they share their
    /// memory.
    ///
    /// # Errors
    ///
    /// - [`NoSuchTask`](ErrorKind::NoSuchTask), [`Denied`](ErrorKind::Denied), or
    ///   [`NoAnswer`](ErrorKind::NoAnswer) if the process blocked the opening of its maps file for
    ///   the patience of the handle ([`with_patience`](Handle::with_patience)). The broker applies
    ///   its own.
    /// - [`System`](ErrorKind::System) or [`Malformed`](ErrorKind::Malformed) if the broker fails.
    ///
    /// A process without memory can be opened: later calls then fail with
    /// [`NoMemory`](ErrorKind::NoMemory). So do they with [`Unsupported`](ErrorKind::Unsupported)
    /// if the chosen source can't answer them.
    pub fn maps(&mut self, pid: u32) -> Result<Maps> {
        Maps::open(&self.maps_settings()?, pid)
    }

    /// Reads the mappings of an open `/proc/PID/maps`. Whoever has such a descriptor can see them.
    ///
    /// The [`Maps`] lack everything that needs the process id: BPF as a source, resident sizes, and
    /// build ids that the kernel does not find.
    pub fn maps_of_fd(&self, file: OwnedFd) -> Maps {
        let settings = Settings {
            proc: self.proc().clone(),
            forced: self
                .maps_source
                .or(self.source)
                .filter(|&source| source != SourceId::Broker),
            broker: None,
            patience: self.patience_of_calls(),
        };
        Maps::from_fd(&settings, file)
    }

    /// Lists all mappings that pass `filter`, of all processes whose mappings the caller may see.
    /// The ioctl answers only about single processes; the broker is used only if it was chosen.
    ///
    /// ```
    /// use taskdiag::maps::{MapField, Perms};
    /// use taskdiag::Handle;
    ///
    /// let answer = Handle::new().all_maps(Perms::EXEC, MapField::Name)?;
    /// println!("{} mappings by {}, {} processes denied", answer.mappings.len(), answer.mappings.source(), answer.denied);
    /// # Ok::<(), taskdiag::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Unsupported`](ErrorKind::Unsupported) for [`MapField::RssBytes`] and
    ///   [`MapField::DirtyBytes`], which are available only for single processes.
    /// - [`Denied`](ErrorKind::Denied) or [`Unsupported`](ErrorKind::Unsupported) if the source of
    ///   [`with_source`](Handle::with_source) can't answer.
    /// - [`System`](ErrorKind::System) if `/proc` can't be listed, or the broker does not answer;
    ///   [`Malformed`](ErrorKind::Malformed) if the listener is not a broker.
    pub fn all_maps(&mut self, filter: impl Into<Filter>, fields: impl Into<Set<MapField>>) -> Result<MachineMappings> {
        let settings = self.maps_settings()?;
        self.machine.list(&settings, filter.into(), Wants::of(fields))
    }

    /// Prepares the source that answers about mappings, even if one question alone would not be
    /// worth it: loads the BPF program for [`all_maps`](Handle::all_maps), or connects to the
    /// broker if that was chosen. The ioctl and procfs need nothing. Loading needs `CAP_BPF` and
    /// `CAP_PERFMON` (Linux 6.11).
    ///
    /// # Errors
    ///
    /// As [`prepare`](Handle::prepare).
    pub fn prepare_maps(&mut self) -> Result<()> {
        match self.forced_for_maps()? {
            None | Some(SourceId::Bpf) => self.machine.prepare(),
            Some(SourceId::Broker) => self.sources.file_opener().map(drop),
            Some(_) => Ok(()),
        }
    }

    fn maps_settings(&mut self) -> Result<Settings> {
        let (forced, broker) = match self.forced_for_maps()? {
            Some(SourceId::Broker) => (None, Some(self.sources.file_opener()?)),
            forced => {
                // Its ids may be those of other processes.
                self.sources.procfs()?;
                (forced, None)
            }
        };
        Ok(Settings {
            proc: self.proc().clone(),
            forced,
            broker,
            patience: self.patience_of_calls(),
        })
    }

    /// The only source that may answer about mappings.
    fn forced_for_maps(&self) -> Result<Option<SourceId>> {
        self.maps_source
            .map_or_else(|| self.forced(), |source| Ok(Some(source)))
    }
}
