//! Events from tracepoints: loads and attaches the programs, and reads their ring.

use std::mem::offset_of;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::event::wire::{Reader, State};
use taskdiag_core::event::{EventKind, Options};
use taskdiag_sys::bpf::{self, Map, MapFlags, MapKind, MapSpec, SharedMemory, TaskScope};
use taskdiag_sys::ring::{Broken, RingBuffer};
use zerocopy::IntoBytes as _;

use crate::iterator;
use crate::load::{attach_to_tracepoints, built, find, kernel_btf, load_error, not_created, NamedMap};
use crate::network;
use crate::recipe;
use crate::relocate::Linker;

/// The number of entries of `ended`: far more than the processes that exit at the same time.
const ENDED_ENTRIES: u32 = 1024;

/// The attached programs and their ring.
#[derive(Debug)]
pub struct Tracing {
    ring: RingBuffer,
    state: SharedMemory,
    programs: Vec<OwnedFd>,
    /// Closing these detaches the programs.
    _links: Vec<OwnedFd>,
}

impl Tracing {
    /// Loads and attaches the programs.
    pub fn open(options: &Options) -> Result<Tracing> {
        let network = options.network.as_ref().map(|table| table.as_fd());
        let recipe = built(&recipe::EVENTS)?;
        let btf = kernel_btf()?;
        let mut linker = Linker::new(recipe, btf.bytes()).map_err(load_error)?;
        let data = |writable: bool| {
            let mut sections = recipe.data.iter();
            let section = sections.find(|data| data.writable == writable);
            section.ok_or_else(|| Error::new(ErrorKind::Malformed, "the BPF programs lack a section of variables"))
        };
        let ring = RingBuffer::create("events", options.ring_bytes).map_err(not_created)?;
        let bss = data(true)?;
        let state = bss.create(bss.content).map_err(not_created)?;
        let shared = state
            .share(size_of::<State>())
            .map_err(|error| Error::io("mapping a BPF map", error))?;
        let mut maps: Vec<NamedMap> = vec![(bss.name, state), ("ended", ended().map_err(not_created)?)];
        if network.is_none() {
            maps.push((network::TABLE, network::table(1).map_err(not_created)?));
        }

        let constants = data(false)?;
        let reader = find_reader(&mut linker, &maps, &shared, options)?;
        maps.push((
            constants.name,
            constants.create(reader.as_bytes()).map_err(not_created)?,
        ));
        let find = |name: &str| match name {
            "events" => Some(ring.as_fd()),
            network::TABLE if network.is_some() => network,
            _ => find(&maps, name),
        };
        let programs = [
            (EventKind::Fork, "on_fork"),
            (EventKind::Exec, "on_exec"),
            (EventKind::Exit, "on_exit"),
        ];
        let programs = programs
            .into_iter()
            .filter(|(kind, _)| options.kinds.contains(*kind))
            .map(|(_, name)| linker.load(name, &find).map_err(load_error))
            .collect::<Result<Vec<_>>>()?;
        Ok(Tracing {
            ring,
            state: shared,
            _links: attach_to_tracepoints(&programs)?,
            programs,
        })
    }

    /// A descriptor that is readable when there are events.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Gives the memory of the events that were read back to the ring, and makes new events
    /// available.
    pub fn turn(&mut self) {
        self.ring.turn();
    }

    /// The bytes of the next event that was available at the last turn().
    pub fn next(&self) -> Option<std::result::Result<&[u8], Broken>> {
        self.ring.next()
    }

    /// The number of events that the programs could not write, and whether it is exact. Before
    /// Linux 5.12 the kernel does not count runs that it skips.
    pub fn lost(&self) -> (u64, bool) {
        let no_room = self.state.read::<u64>(offset_of!(State, lost)).unwrap_or(0);
        let missed: std::io::Result<u64> = self
            .programs
            .iter()
            .map(|program| bpf::missed_runs(program.as_fd()))
            .sum();
        match missed {
            Ok(missed) => (no_room + missed, true),
            Err(_) => (no_room, false),
        }
    }
}

fn ended() -> std::io::Result<Map> {
    Map::create(&MapSpec {
        kind: MapKind::LruHash,
        name: "ended",
        key_size: 16,
        value_size: 8,
        max_entries: ENDED_ENTRIES,
        flags: MapFlags::empty(),
    })
}

/// Finds this process's namespaces in the kernel by running a program in this process.
fn find_reader(linker: &mut Linker<'_>, maps: &[NamedMap], state: &SharedMemory, options: &Options) -> Result<Reader> {
    let program = linker
        .load("find_reader", &|name| find(maps, name))
        .map_err(load_error)?;
    let link = bpf::link_tasks(program.as_fd(), TaskScope::All);
    let link = link.map_err(|error| Error::io("attaching a BPF iterator", error))?;
    let pass = iterator::start(link.as_fd())?;
    // The program writes nothing, so one read visits all tasks, or the first million, and the
    // program runs at least once, at the end.
    iterator::read(&pass, &mut [0; 8][..])?;
    let reader: Option<Reader> = state.read(0);
    let reader = reader.ok_or_else(|| Error::new(ErrorKind::Malformed, "a BPF map is too small"))?;
    Ok(Reader {
        threads: u32::from(options.threads).into(),
        ..reader
    })
}
