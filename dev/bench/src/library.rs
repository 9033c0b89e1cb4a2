//! taskdiag as a library. All runs read the rows, so that the time includes decoding.

use std::hint::black_box;
use std::time::Instant;

use taskdiag::{Field, Fields, Filter, Group, Handle, Query, Snapshot, SourceId};
use taskdiag_zoo::Farm;

use crate::run::{Run, Runner};
use crate::Result;

/// A query.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The source.
    pub source: SourceId,
    /// One row per thread.
    pub threads: bool,
    /// Include the arguments.
    pub args: bool,
}

impl Ask {
    fn fields(self) -> Fields {
        let is_wanted = |group| match group {
            Group::Base | Group::Cred => true,
            Group::Args => self.args,
            _ => false,
        };
        Field::ALL
            .iter()
            .copied()
            .filter(|field| is_wanted(field.group()))
            .collect()
    }

    fn query(self) -> Query {
        let query = if self.threads {
            Query::threads()
        } else {
            Query::processes()
        };
        query.fields(self.fields())
    }

    /// A handle that has loaded everything for the query, but read nothing.
    fn prepared(self) -> Result<Handle> {
        let mut handle = self.handle();
        if self.source == SourceId::Bpf {
            handle.prepare(self.fields())?;
        }
        Ok(handle)
    }

    fn handle(self) -> Handle {
        Handle::new().with_source(self.source)
    }

    fn timed(self, handle: &mut Handle, snapshot: &mut Snapshot) -> Result<Run> {
        let start = Instant::now();
        handle.query_into(&self.query(), snapshot)?;
        read_rows(snapshot, self.args);
        let mut run = Run::new(start.elapsed(), snapshot.len());
        run.record_bytes = snapshot.counters().record_bytes;
        Ok(run)
    }
}

/// Repeats the query, reusing the memory of the previous answer.
pub fn again(ask: Ask) -> Result<Runner> {
    let (mut handle, mut snapshot) = (ask.prepared()?, Snapshot::default());
    ask.timed(&mut handle, &mut snapshot)?;
    Ok(Box::new(move || ask.timed(&mut handle, &mut snapshot)))
}

/// Repeats the query, with new memory for each answer, which is freed within the measured time.
pub fn fresh_snapshot(ask: Ask) -> Result<Runner> {
    let mut handle = ask.prepared()?;
    ask.timed(&mut handle, &mut Snapshot::default())?;
    Ok(Box::new(move || {
        let start = Instant::now();
        let mut snapshot = Snapshot::default();
        let mut run = ask.timed(&mut handle, &mut snapshot)?;
        drop(snapshot);
        run.took = start.elapsed();
        Ok(run)
    }))
}

/// Queries once, with a handle whose programs are loaded but which has read nothing yet. With
/// `one_shot`, it keeps nothing for another query.
pub fn first_query(ask: Ask, one_shot: bool) -> Result<Runner> {
    let prepared = move || {
        ask.prepared()
            .map(|handle| if one_shot { handle.one_shot() } else { handle })
    };
    let mut ready = Some(prepared()?);
    Ok(Box::new(move || {
        let mut handle = ready.take().map_or_else(prepared, Ok)?;
        ask.timed(&mut handle, &mut Snapshot::default())
    }))
}

/// Queries once with a new handle. The time includes loading.
pub fn first_query_and_loading(ask: Ask) -> Result<Runner> {
    ask.prepared()?;
    Ok(Box::new(move || ask.timed(&mut ask.handle(), &mut Snapshot::default())))
}

/// A handle that has loaded everything for a query, and has run it once.
fn warm(query: &Query) -> Result<(Handle, Snapshot)> {
    let mut handle = Handle::new().with_source(SourceId::Bpf);
    let mut snapshot = Snapshot::default();
    handle.query_into(query, &mut snapshot)?;
    Ok((handle, snapshot))
}

/// Repeats any query of BPF.
pub fn any_again(query: Query) -> Result<Runner> {
    let (mut handle, mut snapshot) = warm(&query)?;
    Ok(Box::new(move || {
        let start = Instant::now();
        handle.query_into(&query, &mut snapshot)?;
        read_rows(&snapshot, true);
        let mut run = Run::new(start.elapsed(), snapshot.len());
        run.record_bytes = snapshot.counters().record_bytes;
        Ok(run)
    }))
}

/// All groups.
pub fn all_groups() -> Result<Runner> {
    any_again(Query::processes().fields(Fields::all()))
}

/// Only the group base.
pub fn base() -> Result<Runner> {
    any_again(Query::processes().fields(of_group(Group::Base)))
}

/// The processes of a user that owns one in a hundred, with command lines and I/O counters.
pub fn one_user() -> Result<Runner> {
    let fields = of_group(Group::Base) | Field::Cmdline | of_group(Group::Io);
    let filter = Filter::parse(&format!("uid == {}", Farm::OTHER_USER))?;
    any_again(Query::processes().fields(fields).filter(filter))
}

/// Ten processes by id.
pub fn ten() -> Result<Runner> {
    let pids = some_pids(10)?;
    any_again(Query::these(pids).fields(of_group(Group::Base) | of_group(Group::Cred)))
}

/// The query of `taskdiag watch` while 200 processes are active: for all processes, or those that
/// changed.
pub fn watch(only_changed: bool) -> Result<Runner> {
    let active = some_pids(200)?;
    let mut query = Query::processes().fields(
        of_group(Group::Base)
            | of_group(Group::Cred)
            | of_group(Group::Faults)
            | of_group(Group::Io)
            | of_group(Group::Cpu),
    );
    query.changed = only_changed;
    let mut run = any_again(query)?;
    Ok(Box::new(move || {
        // Stopping and continuing a process counts as activity.
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            for &pid in &active {
                // SAFETY: no pointers.
                unsafe { libc::kill(pid as i32, signal) };
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        run()
    }))
}

fn of_group(group: Group) -> Fields {
    let fields = Field::ALL.iter().copied();
    fields.filter(|field| field.group() == group).collect()
}

/// Processes of the farm, spread over it; if there are too few, any processes.
fn some_pids(count: usize) -> Result<Vec<u32>> {
    let snapshot = Handle::new().query(&Query::processes().filter(Filter::parse("comm == 'zoo'")?))?;
    let pids: Vec<u32> = snapshot.tasks().filter_map(|task| task.pid().ok()).collect();
    if pids.len() < count {
        return Err(format!("there are no {count} processes to choose from").into());
    }
    Ok((0..count).map(|index| pids[index * pids.len() / count]).collect())
}

/// Reads part of every row.
pub fn read_rows(snapshot: &Snapshot, args: bool) {
    let first = |bytes: &[u8]| bytes.first().map_or(0, |&byte| u64::from(byte));
    let mut sum = 0_u64;
    for task in snapshot.tasks() {
        let numbers = [task.pid(), task.uid(), task.ppid()];
        sum = numbers
            .into_iter()
            .flatten()
            .fold(sum, |sum, number| sum.wrapping_add(number.into()));
        sum = sum.wrapping_add(task.comm().map_or(0, first));
        if args {
            sum = sum.wrapping_add(task.cmdline().map_or(0, |args| first(args.as_bytes())));
        }
    }
    black_box(sum);
}
