//! Counts what processes send and receive through sockets.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use taskdiag_core::error::{Error, Result};
use taskdiag_core::record::Net;
use taskdiag_sys::bpf::{self, Map, MapFlags, MapKind, MapSpec};
use zerocopy::{FromZeros as _, IntoBytes as _};

use crate::load::{attach_to_tracepoints, built, check_rights, kernel_btf, load_error, not_created};
use crate::recipe;
use crate::relocate::Linker;

/// The name of the table in the programs, and where it is pinned.
pub(crate) const TABLE: &str = "net";

/// The programs that count, each attached to its tracepoint (Linux 6.3).
pub(crate) const COUNTERS: [&str; 3] = ["on_send", "on_receive", "on_free"];

/// `struct td_net_key`.
const KEY_SIZE: usize = 16;

/// The maximum number of processes with traffic at a time. Of others nothing is known.
const MAX_PROCESSES: u32 = 1 << 17;

/// The attached programs and their table. It counts until this is dropped, or while it is pinned.
#[derive(Debug)]
pub struct Network {
    table: Map,
    /// Closing these detaches the programs. None, if these are pinned.
    pub(crate) links: Vec<OwnedFd>,
}

impl Network {
    /// Begins to count.
    pub fn count() -> Result<Network> {
        Network::with_room(MAX_PROCESSES)
    }

    pub(crate) fn with_room(entries: u32) -> Result<Network> {
        check_loading()?;
        let table = table(entries).map_err(not_created)?;
        table
            .update(&[0; KEY_SIZE], Net::new_zeroed().as_bytes())
            .map_err(not_created)?;
        let mut programs = load((TABLE, &table), COUNTERS.into_iter().chain(["begin_counting"]))?;
        let begin = programs.split_off(COUNTERS.len());
        let links = attach_to_tracepoints(&programs)?;
        bpf::run(begin[0].as_fd()).map_err(|error| Error::io("running a BPF program", error))?;
        Ok(Network { table, links })
    }

    /// The table of pinned programs, if they are there.
    pub(crate) fn pinned(directory: &Path) -> Option<Network> {
        let path = CString::new(directory.join(TABLE).into_os_string().into_vec()).ok()?;
        Some(Network {
            table: Map::open(&path).ok()?,
            links: Vec::new(),
        })
    }

    /// Lets those who have the table open know that nobody counts any more.
    pub(crate) fn end(&self) {
        // If it fails, somebody else was faster.
        let _ = self.table.delete(&[0; KEY_SIZE]);
    }

    /// What to pin, with names.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        let links = self.links.iter().map(|link| link.as_fd());
        COUNTERS.into_iter().zip(links).chain([(TABLE, self.table())])
    }

    /// The table, for programs that read it.
    pub(crate) fn table(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

/// Fails if this build or this thread can't load the programs.
pub(crate) fn check_loading() -> Result<()> {
    built(&recipe::NET)?;
    check_rights()
}

/// Loads programs that count in a table, which has this name in them.
pub(crate) fn load((name, table): (&str, &Map), programs: impl Iterator<Item = &'static str>) -> Result<Vec<OwnedFd>> {
    let btf = kernel_btf()?;
    let mut linker = Linker::new(built(&recipe::NET)?, btf.bytes()).map_err(load_error)?;
    let find = |map: &str| (map == name).then(|| table.as_fd());
    programs
        .map(|program| linker.load(program, &find).map_err(load_error))
        .collect()
}

/// A table without entries. A program that reads it finds that nobody counts.
pub(crate) fn table(max_entries: u32) -> io::Result<Map> {
    Map::create(&MapSpec {
        kind: MapKind::Hash,
        name: TABLE,
        key_size: KEY_SIZE as u32,
        value_size: size_of::<Net>() as u32,
        max_entries,
        flags: MapFlags::NO_PREALLOCATION,
    })
}
