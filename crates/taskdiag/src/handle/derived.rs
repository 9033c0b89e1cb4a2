//! Derived fields: computed after all other values except rollups are there.

use std::time::Duration;

use rustix::time::{clock_gettime, ClockId, Timespec};
use taskdiag_core::derived::{Context, Maker};
use taskdiag_core::snapshot::{Place, Snapshot};
use taskdiag_core::text::process::hierarchies;
use taskdiag_sys::host::proc_file;

use crate::names::Names;

const SECOND_NS: i64 = 1_000_000_000;

/// How many times longer than for a process a query waits for the user database and the files of
/// container runtimes.
const LONGER: u32 = 10;

/// What a handle keeps for derived fields.
#[derive(Debug, Default)]
pub(super) struct Derived {
    names: Names,
    /// Set once it is known.
    has_cgroup1: Option<bool>,
    maker: Maker,
    /// The records of an answer while they are made, and the offset of each. Kept to reuse the
    /// memory.
    records: Vec<u8>,
    offsets: Vec<usize>,
}

impl Derived {
    /// As [`has_cgroup1`].
    pub(super) fn has_cgroup1(&mut self) -> bool {
        *self.has_cgroup1.get_or_insert_with(has_cgroup1)
    }

    /// Adds the requested derived values to each row, or why they are absent.
    pub(super) fn add(&mut self, patience: Duration, snapshot: &mut Snapshot) {
        let fields = snapshot.fields;
        let has_cgroup1 = self.has_cgroup1();
        let patience = patience.saturating_mul(LONGER);
        self.names.learn(snapshot, fields, has_cgroup1, patience);
        let context = Context {
            now_ns: snapshot.read_ns,
            boot_ns: boot_ns(),
            tick_ns: SECOND_NS as u64 / rustix::param::clock_ticks_per_second(),
            memory_bytes: memory_bytes(),
            has_cgroup1,
            part: None,
            names: &self.names,
        };
        let (maker, records) = (&mut self.maker, &mut self.records);
        maker.begin(fields);
        records.clear();
        self.offsets.clear();
        let places = snapshot.tasks().map(|task| maker.put(&task, &context, records));
        self.offsets.extend(places);
        attach(records, &self.offsets, snapshot);
    }
}

/// Adds records of derived values, which are at these offsets, to the rows of a snapshot.
pub(super) fn attach(records: &[u8], offsets: &[usize], snapshot: &mut Snapshot) {
    let start = snapshot.records.len();
    snapshot.records.extend_from_slice(records);
    for (row, offset) in snapshot.rows.iter_mut().zip(offsets) {
        row.more(&mut snapshot.more).derived = Some(Place::own(start + offset));
    }
}

/// The wall-clock time of the boot by the clock as it is set now, in nanoseconds. Makes several
/// attempts and takes the fastest, so that two answers agree.
fn boot_ns() -> i64 {
    const TRIES: usize = 3;
    let ns = |clock| {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
        tv_sec.saturating_mul(SECOND_NS).saturating_add(tv_nsec)
    };
    let tries = (0..TRIES).map(|_| {
        let before = ns(ClockId::Boottime);
        let now = ns(ClockId::Realtime);
        let after = ns(ClockId::Boottime);
        (after - before, now - (before + after) / 2)
    });
    tries.min().unwrap_or_default().1
}

/// Whether a hierarchy of version 1 is in use.
pub(crate) fn has_cgroup1() -> bool {
    let text = std::fs::read(proc_file("self/cgroup")).unwrap_or_default();
    let mut hierarchies = hierarchies(&text);
    hierarchies.any(|(controllers, _)| !controllers.is_empty())
}

/// The memory of the machine: MemTotal of `/proc/meminfo`.
fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}
