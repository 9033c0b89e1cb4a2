//! Collects everything that the page about a process shows.

use std::ops::ControlFlow;

use taskdiag::files::{self, Kind};
use taskdiag::sockets::{self, Row, SocketField};
use taskdiag::{
    Absent, Error, ErrorKind, Field, Fields, Filter, Handle, Identity, Query, Snapshot, SourceId, Task, Verdict,
};

use super::page::{Cell, Facts, OfKind, Reason};
use super::sections::{fields_of_process, Section, NAMESPACES, SOCKET_FIELDS};
use super::{cgroup, unit};
use taskdiag_sys::host::{is_initial_pid_namespace, kernel_version, INITIAL_USER_NAMESPACE};

use crate::outcome::{lacking, Failure};
use crate::output::owned::OwnedValue;
use crate::output::relation;
use crate::source::SourceOptions;
use crate::{maps, proc};

/// No process has more ancestors than this. A loop is possible where ids were reused.
const MAX_PARENTS: usize = 256;

/// Collects facts about one process.
pub struct Inspector<'a> {
    handle: Handle,
    from: &'a SourceOptions,
    pid: u32,
}

/// Why a section is missing.
fn reason(error: &Error) -> Reason {
    match error.kind() {
        ErrorKind::NoSuchTask => "gone",
        kind => kind.as_str(),
    }
}

/// How many threads the process's real user has. The limit `nproc` counts these.
pub fn user_threads(handle: &mut Handle, task: &Task<'_>) -> Result<u64, Reason> {
    let uid = task.uid().map_err(Absent::as_str)?;
    let namespace = task.ns_user().map_err(Absent::as_str)?;
    let mut filter = format!("uid == {uid}");
    // Each user namespace has its own counts (Linux 5.14). What a user has in those below also
    // counts: all others are below the initial one.
    let counts_apart = kernel_version().is_none_or(|version| version >= (5, 14));
    if counts_apart && namespace != INITIAL_USER_NAMESPACE {
        filter += &format!(" and ns_user == {namespace}");
    }
    let filter = Filter::parse(&filter).map_err(|_| "unsupported")?;
    let query = Query::threads().filter(filter).fields(Field::Tid | Field::Uid);
    let threads = handle.query(&query).map_err(|error| reason(&error))?;
    if threads.counters().undecided.total() > 0 {
        return Err("denied");
    }
    // A caller who does not see all threads can't count them. The user may have others outside of
    // the pid namespace, which no right shows in it.
    if !is_initial_pid_namespace() && !proc::chosen().is_outer() {
        return Err("unsupported");
    }
    let is_by = |source| threads.answers().any(|(_, answer)| answer == Ok(source));
    if is_by(SourceId::Bpf) {
        return Ok(threads.len() as u64);
    }
    match handle.support().procfs_complete.verdict {
        _ if !is_by(SourceId::Procfs) => Err("unsupported"),
        Verdict::Yes => Ok(threads.len() as u64),
        _ => Err("denied"),
    }
}

impl<'a> Inspector<'a> {
    /// An inspector of a process.
    pub fn new(from: &'a SourceOptions, pid: u32) -> Inspector<'a> {
        Inspector {
            handle: from.handle_for_many(),
            from,
            pid,
        }
    }

    /// Collects everything. `environ` has the names of the requested variables, if any were
    /// requested.
    pub fn facts(&mut self, environ: Option<Vec<String>>) -> Result<Facts, Failure> {
        let mut fields = fields_of_process() | Field::Cgroups;
        if environ.is_some() {
            fields |= Field::Environ;
        }
        let process = match self.handle.query(&Query::process(self.pid).fields(fields)) {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NoSuchTask => return Err(lacking(self.pid).into()),
            Err(error) => return Err(error.into()),
        };
        let Some(task) = process.tasks().next() else {
            return Err(lacking(self.pid).into());
        };
        let files = self.files(&process);
        // Who hides the descriptors hides the sockets, too.
        let sockets = files.as_ref().map_err(|reason| *reason);
        let sockets = sockets.and_then(|_| self.sockets(&process));
        let facts = Facts {
            own: self.query(
                Query::process(proc::own_pid()),
                NAMESPACES.map(|(_, field)| field).into_iter().collect(),
            ),
            parents: self.parents(&task),
            threads: self.query(
                Query::threads_of(self.pid),
                fields_of(Section::Threads) | Field::StartNs,
            ),
            user_threads: user_threads(&mut self.handle, &task),
            cgroup: self.cgroup(&task),
            settings: settings(&task),
            mappings: self.mappings(),
            files,
            sockets,
            environ,
            process,
        };
        self.check_identity(&facts)?;
        Ok(facts)
    }

    /// All values must be of the same process, though each was queried by id.
    fn check_identity(&mut self, facts: &Facts) -> Result<(), Failure> {
        let identity = |snapshot: &Snapshot| snapshot.tasks().next().and_then(|task| task.identity().ok());
        let again = self.query(Query::process(self.pid), Field::StartNs.into());
        if again.ok().as_ref().and_then(identity) == identity(&facts.process) {
            return Ok(());
        }
        Err(format!("pid {}: it ended while it was read", self.pid).into())
    }

    fn query(&mut self, query: Query, fields: Fields) -> Result<Snapshot, Reason> {
        let answer = self.handle.query(&query.fields(fields));
        answer.map_err(|error| reason(&error))
    }

    /// The ancestors, as far as the caller can see them.
    fn parents(&mut self, task: &Task<'_>) -> Vec<Snapshot> {
        let fields = fields_of(Section::Parents) | Field::Ppid | Field::StartNs;
        let mut parents: Vec<Snapshot> = Vec::new();
        let (mut next, mut child) = (task.ppid(), task.identity());
        while let (Ok(pid @ 1..), Ok(younger)) = (next, child) {
            let Ok(parent) = self.query(Query::process(pid), fields) else {
                break;
            };
            let Some(found) = parent.tasks().next() else { break };
            (next, child) = (found.ppid(), found.identity());
            // A process is not older than its parent; if it is, the id was reused.
            if !child.is_ok_and(|older: Identity| older.start_ticks() <= younger.start_ticks()) {
                break;
            }
            parents.push(parent);
            if parents.len() == MAX_PARENTS {
                break;
            }
        }
        parents
    }

    fn cgroup(&self, task: &Task<'_>) -> Vec<cgroup::Text> {
        let files = cgroup::files();
        match task.cgroups() {
            Ok(lines) => self.handle.cgroup_files(lines, &files),
            Err(reason) => files.iter().map(|_| Err(reason)).collect(),
        }
    }

    fn mappings(&self) -> Result<Vec<maps::FileSum>, Reason> {
        let found = maps::by_file(self.pid, &mut self.from.handle_for_maps());
        found.map_err(|error| reason(&error))
    }

    fn files(&mut self, process: &Snapshot) -> Result<Vec<OfKind>, Reason> {
        let mut kinds: Vec<OfKind> = Vec::new();
        let mut request = files::Request::default();
        request.uses = files::Use::Fd.into();
        request.fields = files::FileField::Kind.into();
        let answer = self.handle.files(process, &request, |_, file| {
            // Those that threads have for themselves are no descriptors of the process.
            if file.tid.is_some() {
                return ControlFlow::Continue(());
            }
            let kind = match file.kind {
                Ok(Kind::Anon(kind)) => Ok(kind.name()),
                kind => kind.map(Kind::name).map_err(Absent::as_str),
            };
            let deleted = file.is_deleted().map(u64::from).map_err(Absent::as_str);
            match kinds.iter_mut().find(|of| of.kind == kind) {
                Some(of) => {
                    of.count += 1;
                    of.deleted = of.deleted.and_then(|count| Ok(count + deleted?));
                }
                None => kinds.push(OfKind {
                    kind,
                    count: 1,
                    deleted,
                }),
            }
            ControlFlow::Continue(())
        });
        let changed = match answer.map_err(|error| reason(&error))? {
            answer if answer.denied > 0 => return Err("denied"),
            answer if answer.no_thread > 0 => return Err(Absent::NoThread.as_str()),
            answer => answer.changed,
        };
        if changed > 0 {
            let gone = Absent::Gone.as_str();
            kinds.push(OfKind {
                kind: Err(gone),
                count: changed,
                deleted: Err(gone),
            });
        }
        kinds.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.kind.cmp(&b.kind)));
        Ok(kinds)
    }

    fn sockets(&mut self, process: &Snapshot) -> Result<Vec<Vec<Cell>>, Reason> {
        let mut request = sockets::Request::default();
        request.owned = true;
        request.fields = SocketField::Owners | SocketField::Peers;
        request.fields |= SocketField::AckedBytes | SocketField::ReceivedBytes;
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        let answer = self.handle.sockets(process, &request, |socket| {
            let row = Row::new(socket);
            let cell = |field: SocketField| relation::Row::cell(&row, field as usize).map(OwnedValue::new);
            rows.push(SOCKET_FIELDS.map(cell).into());
            ControlFlow::Continue(())
        });
        let answer = answer.map_err(|error| reason(&error))?;
        let why = why_unlisted(&answer).as_str();
        rows.extend(answer.unlisted.iter().flatten().map(|unlisted| {
            let cell = |field| match (field, &unlisted.protocol) {
                (SocketField::Inode, _) => Ok(OwnedValue::Unsigned(unlisted.inode)),
                (SocketField::Owners, _) => Ok(OwnedValue::Owners(unlisted.owners.clone())),
                (SocketField::Protocol, Ok(name)) => Ok(OwnedValue::Text(name.as_bytes().into())),
                _ => Err(why),
            };
            SOCKET_FIELDS.map(cell).into()
        }));
        Ok(rows)
    }
}

/// Why a socket is in no list.
fn why_unlisted(answer: &sockets::Answer) -> Absent {
    match answer {
        answer if answer.no_thread > 0 => Absent::NoThread,
        answer if answer.namespaces_denied > 0 || answer.processes_hidden > 0 => Absent::Denied,
        answer if answer.silent > 0 => Absent::NoAnswer,
        answer if answer.interrupted + answer.failed + answer.malformed > 0 => Absent::Truncated,
        _ => Absent::Unsupported,
    }
}

fn fields_of(section: Section) -> Fields {
    section.fields().iter().copied().collect()
}

/// The settings of the unit of a process.
fn settings(task: &Task<'_>) -> Result<Vec<taskdiag_core::text::unit::Setting>, Reason> {
    let is_none = |unit: &[u8]| unit.is_empty();
    match (task.user_unit(), task.unit()) {
        (Err(reason), _) | (_, Err(reason)) => Err(reason.as_str()),
        (Ok(unit), _) if !is_none(unit) => unit::read(unit, true).map_err(|_| "no unit file"),
        (_, Ok(unit)) if !is_none(unit) => unit::read(unit, false).map_err(|_| "no unit file"),
        _ => Err("no unit"),
    }
}
