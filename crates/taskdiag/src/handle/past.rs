//! Answers from a recording instead of the kernel.

use std::time::Duration;

use taskdiag_core::derived::{Context, Maker};
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::field::{has_group, Field, Group};
use taskdiag_core::identity::Identity;
use taskdiag_core::query::{Preparation, Query, Scope};
use taskdiag_core::snapshot::Snapshot;

use super::scope;

/// The recorded state of one moment.
pub trait Past: Send {
    /// Puts every process of the moment into an empty snapshot, whose fields say what to read.
    ///
    /// # Errors
    ///
    /// If the recording can't be read.
    fn read(&mut self, snapshot: &mut Snapshot) -> Result<()>;

    /// The inputs of a process's derived values at that moment.
    fn context(&self, process: Identity) -> Context<'_>;
}

/// Answers a query from a recording.
///
/// # Errors
///
/// As [`Handle::query`](super::Handle::query).
pub fn answer_past(past: &mut dyn Past, query: &Query, snapshot: &mut Snapshot) -> Result<()> {
    let fields = Preparation::new(query, Duration::ZERO, true)?.fields;
    if query.scope.is_threads() {
        let message = "a recording has processes, not their threads: leave out the option that asks for threads";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let mut read = fields | Field::Ppid | Field::StartNs;
    if fields.contains(Field::Cgroup) {
        // Derived fields need them if the recording has hierarchies of version 1.
        read |= Field::Cgroups;
    }
    snapshot.clear(read);
    past.read(snapshot)?;
    snapshot.sort();
    scope::retain(query, snapshot)?;
    if has_group(fields, Group::Derived) {
        derive(past, snapshot);
    }
    snapshot.fields = fields;
    let has_rows = !snapshot.is_empty();
    if let Some(filter) = &query.filter {
        filter.retain(snapshot);
    }
    snapshot.counters.tasks = snapshot.rows.len() as u64;
    match query.scope {
        Scope::Process(pid) if !has_rows => Err(Error::no_such_process(pid)),
        _ => Ok(()),
    }
}

/// Adds derived values.
fn derive(past: &dyn Past, snapshot: &mut Snapshot) {
    let mut maker = Maker::default();
    maker.begin(snapshot.fields);
    let (mut records, mut offsets) = (Vec::new(), Vec::with_capacity(snapshot.rows.len()));
    for task in snapshot.tasks() {
        let context = past.context(scope::identity(&task));
        offsets.push(maker.put(&task, &context, &mut records));
    }
    super::derived::attach(&records, &offsets, snapshot);
}
