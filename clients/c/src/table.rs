//! Tables: the answers, as columns.

use std::ffi::CStr;
use std::ops::ControlFlow;

use taskdiag::sockets::{self, Owner, Row as SocketRow};
use taskdiag::{Absent, Group, Handle, Known, Snapshot, SourceId, Task, Value};

use crate::column::{reason, Column, Reason, NONE};
use crate::error::Result;
use crate::field::{self, Of, Part, FIRST_OF_SOCKETS};

/// An answer: `td_table`. Nothing changes it but another answer that is put into its place.
#[derive(Debug, Default)]
pub struct Table {
    len: usize,
    columns: Vec<Column>,
    ids: Vec<u32>,
    /// For each id, counted from the first of the scope, the place of its column plus one.
    places: Vec<u16>,
    missing: Vec<u32>,
    sources: Vec<(Group, SourceId)>,
    counters: Vec<(&'static str, u64)>,
}

/// The place of an id in [`Table::places`].
fn place(id: u32) -> usize {
    (if id < FIRST_OF_SOCKETS {
        id
    } else {
        id - FIRST_OF_SOCKETS
    }) as usize
}

impl Table {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The ids of the columns, in the order in which they were asked for.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The column of a field.
    pub fn column(&self, id: u32) -> Option<&Column> {
        let place = usize::from(*self.places.get(place(id))?).checked_sub(1)?;
        let column = self.columns.get(place)?;
        (column.field == id).then_some(column)
    }

    /// Processes that were asked for and are not there.
    pub fn missing(&self) -> &[u32] {
        &self.missing
    }

    /// The name of the source that was asked for a field of tasks, or `None`.
    pub fn source(&self, id: u32) -> Option<&'static CStr> {
        let Of::Task(field) = field::row(id)?.of else {
            return None;
        };
        let (_, source) = self.sources.iter().find(|(group, _)| *group == field.group())?;
        Some(source_name(*source))
    }

    /// A number that says what was lost on the way.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let found = self.counters.iter().find(|(known, _)| *known == name);
        found.map(|(_, count)| *count)
    }

    /// Removes all rows, and makes columns of these fields.
    pub fn clear(&mut self, ids: &[u32]) {
        self.len = 0;
        self.missing.clear();
        self.sources.clear();
        self.counters.clear();
        if self.ids == ids {
            self.columns.iter_mut().for_each(Column::clear);
            return;
        }
        self.ids = ids.to_vec();
        self.columns.clear();
        self.places.clear();
        for (&id, number) in ids.iter().zip(1..) {
            let Some(row) = field::row(id) else { continue };
            self.columns.push(Column::new(id, row.value_type()));
            let place = place(id);
            self.places.resize(self.places.len().max(place + 1), 0);
            self.places[place] = number;
        }
    }

    /// Takes the tasks of a snapshot as rows.
    pub fn fill(&mut self, snapshot: &Snapshot, ids: &[u32]) {
        self.clear(ids);
        let fields: Vec<Of> = ids.iter().filter_map(|&id| Some(field::row(id)?.of)).collect();
        for task in snapshot.tasks() {
            for (column, &of) in self.columns.iter_mut().zip(&fields) {
                column.push(of_task(&task, of));
            }
        }
        self.len = snapshot.len();
        self.missing.extend_from_slice(snapshot.missing());
        let answered = |(group, answer): (Group, Known<SourceId>)| Some((group, answer.ok()?));
        self.sources.extend(snapshot.answers().filter_map(answered));
        self.counters.extend(snapshot.counters().named());
    }

    /// Takes sockets as rows, with their owners among the tasks of a snapshot.
    ///
    /// # Errors
    ///
    /// Those of the library.
    pub fn fill_with_sockets(
        &mut self,
        handle: &mut Handle,
        snapshot: &Snapshot,
        request: &sockets::Request,
        ids: &[u32],
    ) -> Result<()> {
        self.clear(ids);
        let fields: Vec<Of> = ids.iter().filter_map(|&id| Some(field::row(id)?.of)).collect();
        let answer = handle.sockets(snapshot, request, |socket| {
            let row = SocketRow::new(socket);
            for (column, &of) in self.columns.iter_mut().zip(&fields) {
                put_of_socket(column, &row, of);
            }
            self.len += 1;
            ControlFlow::Continue(())
        })?;
        self.missing.extend_from_slice(snapshot.missing());
        self.counters.extend([
            ("sockets", answer.sockets),
            ("namespaces", answer.namespaces),
            ("namespaces_denied", answer.namespaces_denied),
            ("processes_hidden", answer.processes_hidden),
            ("processes_denied", answer.processes_denied),
            ("undecided", answer.undecided),
            ("interrupted", answer.interrupted),
            ("failed", answer.failed),
            ("no_answer", answer.silent),
            ("malformed", answer.malformed),
            ("unsupported", answer.unsupported.len() as u64),
        ]);
        Ok(())
    }
}

fn of_task<'a>(task: &Task<'a>, of: Of) -> std::result::Result<Value<'a>, Reason> {
    match of {
        Of::Task(field) => task.value(field).map_err(reason),
        Of::Socket(_) | Of::Descriptors(..) => Err(reason(Absent::NotAsked)),
    }
}

fn put_of_socket(column: &mut Column, row: &SocketRow<'_>, of: Of) {
    let (field, part) = match of {
        Of::Socket(field) => {
            let value = row.value(field).map_err(reason);
            return column.push(value.and_then(|value| value.ok_or(NONE)));
        }
        Of::Descriptors(field, part) => (field, part),
        Of::Task(_) => return column.push(Err(reason(Absent::NotAsked))),
    };
    let owners: std::result::Result<&[Owner], Reason> = match row.descriptors(field) {
        Some(owners) => owners.map_err(reason).and_then(|owners| owners.ok_or(NONE)),
        None => Err(reason(Absent::Unsupported)),
    };
    match part {
        Part::Pids => column.push_ids(owners.map(|owners| owners.iter().map(|owner| owner.pid))),
        Part::Fds => column.push_ids(owners.map(|owners| owners.iter().map(|owner| owner.fd))),
        // The query of the processes asks for names, so that each owner has one.
        Part::Comms => {
            column.push_texts(owners.map(|owners| owners.iter().map(|owner| owner.comm.as_deref().unwrap_or_default())))
        }
    }
}

/// The name of a source.
fn source_name(source: SourceId) -> &'static CStr {
    match source {
        SourceId::Bpf => c"bpf",
        SourceId::Procfs => c"procfs",
        SourceId::Broker => c"broker",
        SourceId::SmapsRollup => c"smaps_rollup",
        SourceId::Smaps => c"smaps",
        _ => c"another",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{parse, Scope};

    /// Check that sources have the names that the library gives them.
    #[test]
    fn sources_are_named_as_in_the_library() {
        for source in [
            SourceId::Bpf,
            SourceId::Procfs,
            SourceId::Broker,
            SourceId::SmapsRollup,
            SourceId::Smaps,
        ] {
            assert_eq!(source_name(source).to_str(), Ok(source.name()));
        }
    }

    /// Check that a table finds the columns that it has, and no others, also when it is used again.
    #[test]
    fn tables_find_their_columns() {
        let mut table = Table::default();
        for (scope, names) in [
            (Scope::Processes, "pid,pss_bytes,comm"),
            (Scope::Sockets, "uid,owner_pids"),
            (Scope::Threads, "tid"),
        ] {
            let ids = parse(scope, names).expect("these are fields");
            table.clear(&ids);
            assert_eq!(table.ids(), ids);
            for id in (0..300)
                .chain(FIRST_OF_SOCKETS..FIRST_OF_SOCKETS + 300)
                .chain([u32::MAX])
            {
                assert_eq!(
                    table.column(id).map(|column| column.field),
                    ids.contains(&id).then_some(id)
                );
            }
        }
    }
}
