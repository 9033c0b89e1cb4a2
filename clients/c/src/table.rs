//! Tables: answers in columns.

use std::ffi::CStr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use taskdiag::maps::Mappings;
use taskdiag::pagecache::{Quantity, Seen, Totals, Walk};
use taskdiag::{files, maps, pagecache, sockets, Absent, Events, Group, Handle, Known, Snapshot, SourceId, Value};
use taskdiag_core::column::reason;

use crate::error::Result;
use crate::field::{self, place};
use crate::row::{FieldRef, Row};

/// The values of one field.
pub type Column = taskdiag_core::column::Column<u64>;

/// An answer: `td_table`. It changes only when another answer is put into it.
#[derive(Debug, Default)]
pub struct Table {
    /// The number of rows.
    pub len: usize,
    columns: Vec<Column>,
    /// The ids of the columns, in the order in which they were requested.
    pub ids: Vec<u32>,
    /// For each id, counted from the first of the scope, the index of its column plus one.
    places: Vec<u16>,
    /// Requested processes that do not exist.
    pub missing: Vec<u32>,
    sources: Vec<(Group, SourceId)>,
    /// The source that answered, if the rows are not tasks.
    source: Option<&'static CStr>,
    counters: Vec<(&'static str, u64)>,
}

impl Table {
    /// The column of a field.
    pub fn column(&self, id: u32) -> Option<&Column> {
        let place = usize::from(*self.places.get(place(id))?).checked_sub(1)?;
        self.columns.get(place).filter(|_| self.ids[place] == id)
    }

    /// The name of the source of a field's values, or `None`.
    pub fn source(&self, id: u32) -> Option<&'static CStr> {
        self.column(id)?;
        let FieldRef::Task(field) = field::row(id)?.of else {
            return self.source;
        };
        let (_, source) = self.sources.iter().find(|(group, _)| *group == field.group())?;
        Some(source_name(source.name()))
    }

    /// A counter of what was lost on the way.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let found = self.counters.iter().find(|(known, _)| *known == name);
        found.map(|(_, count)| *count)
    }

    /// Removes all rows, and makes columns for these fields.
    pub fn clear(&mut self, ids: &[u32]) {
        self.len = 0;
        self.missing.clear();
        self.sources.clear();
        self.source = None;
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
            self.columns.push(Column::new(row.value_type(), 0));
            let place = place(id);
            self.places.resize(self.places.len().max(place + 1), 0);
            self.places[place] = number;
        }
    }

    /// Fills the table with the tasks of a snapshot.
    pub fn fill(&mut self, snapshot: &Snapshot, ids: &[u32]) {
        self.clear(ids);
        let fields: Vec<FieldRef> = rows(ids).into_iter().map(|row| row.of).collect();
        for task in snapshot.tasks() {
            for (column, &of) in self.columns.iter_mut().zip(&fields) {
                column.push(match of {
                    FieldRef::Task(field) => task.value(field).map_err(reason),
                    _ => Err(reason(Absent::NotAsked)),
                });
            }
        }
        self.len = snapshot.len();
        self.missing.extend_from_slice(snapshot.missing());
        let answered = |(group, answer): (Group, Known<SourceId>)| Some((group, answer.ok()?));
        self.sources.extend(snapshot.answers().filter_map(answered));
        self.counters.extend(snapshot.counters().named());
    }

    /// Appends a row. `find` returns what it has for a field.
    fn push<'a>(&mut self, rows: &[&'static Row], find: impl Fn(FieldRef) -> Known<Value<'a>>) {
        for (column, row) in self.columns.iter_mut().zip(rows) {
            match (find(row.of), row.part) {
                (Ok(Value::Owners(owners)), Some(part)) => part.push(owners, column),
                (found, _) => column.push(found.map_err(reason)),
            }
        }
        self.len += 1;
    }

    /// Fills the table with sockets. Their owners are among the tasks of the snapshot.
    ///
    /// # Errors
    ///
    /// Errors of the library.
    pub fn fill_with_sockets(
        &mut self,
        handle: &mut Handle,
        snapshot: &Snapshot,
        request: &sockets::Request,
        ids: &[u32],
    ) -> Result<()> {
        self.clear(ids);
        let rows = rows(ids);
        let answer = handle.sockets(snapshot, request, |socket| {
            let socket = sockets::Row::new(socket);
            self.push(&rows, |of| match of {
                FieldRef::Socket(field) => socket.value(field),
                _ => Err(Absent::NotAsked),
            });
            ControlFlow::Continue(())
        })?;
        self.missing.extend_from_slice(snapshot.missing());
        self.counters.extend(answer.named());
        Ok(())
    }

    /// Fills the table with the files that the tasks of a snapshot use.
    ///
    /// # Errors
    ///
    /// Errors of the library.
    pub fn fill_with_files(
        &mut self,
        handle: &mut Handle,
        snapshot: &Snapshot,
        request: &files::Request,
        ids: &[u32],
    ) -> Result<()> {
        self.clear(ids);
        let rows = rows(ids);
        let answer = handle.files(snapshot, request, |task, file| {
            let file = files::Row::new(task, file);
            self.push(&rows, |of| match of {
                FieldRef::File(field) => file.value(field),
                _ => Err(Absent::NotAsked),
            });
            ControlFlow::Continue(())
        })?;
        self.source = Some(source_name(answer.source.name()));
        self.missing.extend_from_slice(snapshot.missing());
        self.counters.extend(answer.named());
        Ok(())
    }

    /// Fills the table with the mappings of a process.
    pub fn fill_with_mappings(&mut self, mappings: &Mappings, ids: &[u32]) {
        self.clear(ids);
        let rows = rows(ids);
        for mapping in mappings {
            let mapped = maps::Row::new(mapping);
            self.push(&rows, |of| match of {
                FieldRef::Map(field) => mapped.value(field),
                _ => Err(Absent::NotAsked),
            });
        }
        self.source = Some(source_name(mappings.source().name()));
        self.counters.push(("mappings", mappings.len() as u64));
    }

    /// Fills the table with the page cache of files: these, and the regular files below these
    /// directories.
    ///
    /// # Errors
    ///
    /// If one of the paths does not exist.
    pub fn fill_with_cache(&mut self, paths: &[PathBuf], ids: &[u32]) -> Result<()> {
        self.clear(ids);
        let rows = rows(ids);
        let source = pagecache::Source::of_this_host();
        let (mut seen, mut totals) = (Seen::default(), Totals::default());
        for path in paths {
            let mut files = Vec::new();
            let mut visit = |found: pagecache::Found<'_>| {
                if let pagecache::Found::File(file) = found {
                    files.push((file.path.to_vec(), file.size_bytes, file.usage));
                }
                ControlFlow::Continue(())
            };
            totals += Walk::new()
                .source(source)
                .run(path, &mut seen, &AtomicBool::new(false), &mut visit)?;
            files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            for (path, size_bytes, usage) in &files {
                self.push(&rows, |of| {
                    Ok(match of {
                        FieldRef::Cache(None) => Value::Text(path),
                        FieldRef::Cache(Some(Quantity::Size)) => Value::Unsigned((*size_bytes)?),
                        FieldRef::Cache(Some(quantity)) => Value::Unsigned((*usage)?.bytes(quantity)?),
                        _ => return Err(Absent::NotAsked),
                    })
                });
            }
        }
        self.source = Some(source_name(source.name()));
        self.counters.extend(totals.named());
        Ok(())
    }

    /// Fills the table with events, at most `most`.
    ///
    /// # Errors
    ///
    /// Errors of the library.
    pub fn fill_with_events(&mut self, events: &mut Events, most: usize, ids: &[u32]) -> Result<()> {
        self.clear(ids);
        let rows = rows(ids);
        for event in events.read()?.take(most) {
            self.push(&rows, |of| match of {
                FieldRef::Event(field) => event.value(field),
                _ => Err(Absent::NotAsked),
            });
        }
        // Events that were read count as unread for poll(2) until their memory is given back. An
        // error here is the next call's.
        let _ = events.wait(Some(Duration::ZERO), None);
        self.source = Some(source_name(events.source().name()));
        let lost = events.lost();
        let is_exact = u64::from(lost.is_exact);
        self.counters.extend([
            ("events", self.len as u64),
            ("lost", lost.count),
            ("lost_is_exact", is_exact),
        ]);
        Ok(())
    }
}

/// The descriptions of these fields.
fn rows(ids: &[u32]) -> Vec<&'static Row> {
    ids.iter().filter_map(|&id| field::row(id)).collect()
}

/// The name of a source, for C.
fn source_name(name: &str) -> &'static CStr {
    const NAMES: [&CStr; 9] = [
        c"bpf",
        c"procfs",
        c"broker",
        c"smaps_rollup",
        c"smaps",
        c"procmap",
        c"cachestat",
        c"mincore",
        c"connector",
    ];
    let known = NAMES.into_iter().find(|known| known.to_bytes() == name.as_bytes());
    known.unwrap_or(c"another")
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use taskdiag::events::EventSource;

    use super::*;
    use crate::field::{parse, Scope, TABLE};

    /// Check that C has a name for every source of the library.
    #[test]
    fn sources_have_names() {
        let caches = [pagecache::Source::Cachestat, pagecache::Source::Mincore];
        let names = SourceId::ALL
            .map(SourceId::name)
            .into_iter()
            .chain(caches.map(pagecache::Source::name));
        for name in names.chain(EventSource::ALL.map(EventSource::name)) {
            assert_eq!(source_name(name).to_str(), Ok(name));
        }
        assert_eq!(source_name("oracle"), c"another");
    }

    /// Check that a table finds its columns and no others, also when it is used again.
    #[test]
    fn tables_find_their_columns() {
        let mut table = Table::default();
        for (scope, names) in [
            (Scope::Processes, "pid,pss_bytes,comm"),
            (Scope::Sockets, "uid,owner_pids"),
            (Scope::Files, "pid,peer_comms"),
            (Scope::Threads, "tid"),
        ] {
            let ids = parse(scope, names).expect("these are fields");
            table.clear(&ids);
            assert_eq!(table.ids, ids);
            let all = (0..7).flat_map(|table| table * TABLE..table * TABLE + 300);
            for id in all.chain([u32::MAX]) {
                let place = ids.iter().position(|&known| known == id);
                assert_eq!(
                    table.column(id).map(ptr::from_ref),
                    place.map(|place| ptr::from_ref(&table.columns[place]))
                );
            }
        }
    }
}
