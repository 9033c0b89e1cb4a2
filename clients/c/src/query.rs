//! Queries: the scope, the fields, and which rows.

use std::mem::discriminant;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use taskdiag::events::Options;
use taskdiag::files::{self, Kind, PathMatch, Use};
use taskdiag::maps::MapField;
use taskdiag::{sockets, EventKind, Field, Fields, Filter, Set};
use taskdiag_core::{query, setting};

use crate::error::{Error, Result};
use crate::field::{self, Scope};
use crate::row::FieldRef;

/// Which files of the processes.
#[derive(Clone, Debug, Default)]
struct Files {
    uses: Option<Set<Use>>,
    kinds: Option<Set<Kind>>,
    is_deleted: bool,
    paths: Vec<PathBuf>,
}

/// A query under construction: `td_query`.
#[derive(Clone, Debug)]
pub struct Query {
    /// What the rows are about.
    pub scope: Scope,
    /// The ids of the fields, in the order in which they were added.
    pub fields: Vec<u32>,
    /// Which tasks. For sockets: the processes that may be owners. For files: the processes that use
    /// them.
    pub tasks: taskdiag::Query,
    socket_filter: Option<sockets::Filter>,
    files: Files,
    event_kinds: Set<EventKind>,
    has_threads: bool,
}

/// The patience of a handle for which none was set.
const PATIENCE: Duration = Duration::from_millis(200);

/// Parses a list of names, separated by commas.
fn each<T: FromStr<Err = taskdiag::Error>, L: FromIterator<T>>(names: &str, what: &str) -> Result<L> {
    let names = names.split(',').map(str::trim);
    Ok(names
        .map(|name| setting::known(what, name, str::parse))
        .collect::<taskdiag::Result<L>>()?)
}

/// A process id.
fn pid(pid: u32) -> Result<u32> {
    match i32::try_from(pid) {
        Ok(_) => Ok(pid),
        Err(_) => Err(Error::invalid(format!("{pid} is not a process id"))),
    }
}

/// A timeout in seconds. Infinity means no timeout.
///
/// # Errors
///
/// If it is negative, not a number, or too long.
pub fn until(what: &str, seconds: f64) -> Result<Option<Duration>> {
    if seconds == f64::INFINITY {
        Ok(None)
    } else {
        Ok(Some(setting::seconds(what, seconds)?))
    }
}

impl Query {
    /// A query for all rows, without columns yet.
    pub fn new(scope: Scope) -> Query {
        Query {
            scope,
            fields: Vec::new(),
            tasks: match scope {
                Scope::Threads => taskdiag::Query::threads(),
                _ => taskdiag::Query::processes(),
            },
            socket_filter: None,
            files: Files::default(),
            event_kinds: Set::NONE,
            has_threads: false,
        }
    }

    /// Adds the fields that these names stand for.
    ///
    /// # Errors
    ///
    /// If a name is unknown.
    pub fn add_fields(&mut self, names: &str) -> Result<()> {
        for id in field::parse(self.scope, names)? {
            self.add(id);
        }
        Ok(())
    }

    /// Adds a field.
    ///
    /// # Errors
    ///
    /// If the id does not belong to this scope.
    pub fn add_field(&mut self, id: u32) -> Result<()> {
        if !field::is_in(self.scope, id) {
            return Err(Error::invalid(format!(
                "rows of this query have no field with the id {id}"
            )));
        }
        self.add(id);
        Ok(())
    }

    fn add(&mut self, id: u32) {
        if !self.fields.contains(&id) {
            self.fields.push(id);
        }
    }

    /// Adds a condition: rows must satisfy this expression, too.
    ///
    /// # Errors
    ///
    /// If the text is not a filter.
    pub fn add_condition(&mut self, expression: &str) -> Result<()> {
        match self.scope {
            // Filters over sockets cannot be combined.
            Scope::Sockets if self.socket_filter.is_some() => {
                return Err(Error::invalid(
                    "a query of sockets has one filter: join expressions with and",
                ));
            }
            Scope::Sockets => self.socket_filter = Some(sockets::Filter::parse(expression)?),
            Scope::Processes | Scope::Threads | Scope::Files => {
                self.tasks = self.tasks.clone().filter(Filter::parse(expression)?);
            }
            Scope::Maps | Scope::Cache | Scope::Events => return Err(self.no_such_choice("expressions")),
        }
        Ok(())
    }

    /// Selects these processes, or their threads, in place of those selected by number before.
    ///
    /// # Errors
    ///
    /// If a number is not a process id, if the rows do not belong to processes, or if the query is
    /// about children or descendants.
    pub fn these(&mut self, pids: &[u32]) -> Result<()> {
        if matches!(self.scope, Scope::Cache | Scope::Events) {
            return Err(self.no_such_choice("processes"));
        }
        for &each in pids {
            pid(each)?;
        }
        let pids = pids.iter().copied();
        self.select(match self.scope {
            Scope::Threads => taskdiag::Query::threads_of_these(pids),
            _ => taskdiag::Query::these(pids),
        })
    }

    /// Selects the children of a process.
    ///
    /// # Errors
    ///
    /// If the number is not a process id, if the rows are threads, or if processes were selected in
    /// another way.
    pub fn children_of(&mut self, parent: u32) -> Result<()> {
        self.check_has_children()?;
        self.select(taskdiag::Query::children_of(pid(parent)?))
    }

    /// Selects the children of a process, their children, and so on.
    ///
    /// # Errors
    ///
    /// As for [`Query::children_of`].
    pub fn descendants_of(&mut self, ancestor: u32) -> Result<()> {
        self.check_has_children()?;
        self.select(taskdiag::Query::descendants_of(pid(ancestor)?))
    }

    /// Selects tasks. Another selection of the same kind replaces the one before.
    fn select(&mut self, tasks: taskdiag::Query) -> Result<()> {
        if self.has_selection() && discriminant(&self.tasks.scope) != discriminant(&tasks.scope) {
            return Err(Error::invalid(
                "a query takes only one of td_query_pids(), td_query_children_of() and td_query_descendants_of()",
            ));
        }
        (self.tasks.scope, self.tasks.pids) = (tasks.scope, tasks.pids);
        Ok(())
    }

    fn has_selection(&self) -> bool {
        !matches!(self.tasks.scope, query::Scope::Processes | query::Scope::Threads)
    }

    fn check_has_children(&self) -> Result<()> {
        match self.scope {
            Scope::Threads => Err(Error::invalid("threads have no children: ask for processes")),
            Scope::Processes | Scope::Sockets | Scope::Files => Ok(()),
            Scope::Maps | Scope::Cache | Scope::Events => Err(self.no_such_choice("children")),
        }
    }

    /// Selects files with these uses.
    ///
    /// # Errors
    ///
    /// If a name is not a use, or if the rows are not files.
    pub fn add_uses(&mut self, names: &str) -> Result<()> {
        let found = self.of_files_alone("uses")?.uses.get_or_insert_default();
        *found |= each::<Set<Use>, Set<Use>>(names, "use")?;
        Ok(())
    }

    /// Selects files, or events, of these kinds.
    ///
    /// # Errors
    ///
    /// If a name is not a kind, or if the rows are neither files nor events.
    pub fn add_kinds(&mut self, names: &str) -> Result<()> {
        if self.scope == Scope::Events {
            self.event_kinds |= each::<EventKind, Set<EventKind>>(names, "kind")?;
            return Ok(());
        }
        let found = self.of_files_alone("kinds")?.kinds.get_or_insert_default();
        *found |= each::<Set<Kind>, Set<Kind>>(names, "kind")?;
        Ok(())
    }

    /// Selects files without a name.
    ///
    /// # Errors
    ///
    /// If the rows are not files.
    pub fn only_deleted(&mut self) -> Result<()> {
        self.of_files_alone("deleted files")?.is_deleted = true;
        Ok(())
    }

    /// Selects the file at this path, and files below it. For the page cache: adds the path.
    ///
    /// # Errors
    ///
    /// If the rows are not files.
    pub fn add_path(&mut self, path: PathBuf) -> Result<()> {
        match self.scope {
            Scope::Cache | Scope::Files => self.files.paths.push(path),
            _ => return Err(self.no_such_choice("paths")),
        }
        Ok(())
    }

    fn of_files_alone(&mut self, what: &str) -> Result<&mut Files> {
        match self.scope {
            Scope::Files => Ok(&mut self.files),
            _ => Err(self.no_such_choice(what)),
        }
    }

    fn no_such_choice(&self, what: &str) -> Error {
        Error::invalid(format!("a query of {} can't be narrowed by {what}", self.scope.rows()))
    }

    /// Includes events of single threads.
    ///
    /// # Errors
    ///
    /// If the rows are not events.
    pub fn add_threads(&mut self) -> Result<()> {
        match self.scope {
            Scope::Events => {
                self.has_threads = true;
                Ok(())
            }
            _ => Err(self.no_such_choice("threads of events")),
        }
    }

    /// Selects only tasks that changed since the handle's last such query.
    ///
    /// # Errors
    ///
    /// If the rows are neither tasks nor files of tasks. Sockets have their owners among all
    /// processes.
    pub fn only_changed(&mut self) -> Result<()> {
        if !matches!(self.scope, Scope::Processes | Scope::Threads | Scope::Files) {
            return Err(self.no_such_choice("changes of tasks"));
        }
        self.tasks.changed = true;
        Ok(())
    }

    /// The query for tasks, with the fields that the rows need.
    pub fn of_tasks(&self) -> taskdiag::Query {
        self.tasks.clone().fields(self.task_fields())
    }

    /// The sources of the fields' values.
    fn sources(&self) -> impl Iterator<Item = FieldRef> + use<'_> {
        self.fields.iter().filter_map(|&id| Some(field::row(id)?.of))
    }

    fn task_fields(&self) -> Fields {
        let field = |of: FieldRef| match of {
            FieldRef::Task(field) => Some(field),
            FieldRef::File(field) => field.of_tasks(),
            FieldRef::Socket(_) | FieldRef::Map(_) | FieldRef::Cache(_) | FieldRef::Event(_) => None,
        };
        let fields: Fields = self.sources().filter_map(field).collect();
        match self.scope {
            Scope::Processes | Scope::Threads => fields,
            // These identify a process, and the owner of a descriptor.
            Scope::Sockets => Field::StartNs | Field::Comm,
            Scope::Files => fields | Field::StartNs,
            Scope::Maps | Scope::Cache | Scope::Events => fields,
        }
    }

    /// The request for sockets.
    pub fn of_sockets(&self) -> sockets::Request {
        let mut request = sockets::Request::default();
        let field = |of| match of {
            FieldRef::Socket(field) => Some(field),
            _ => None,
        };
        request.fields = self.sources().filter_map(field).collect();
        request.filter.clone_from(&self.socket_filter);
        // With a selection of processes, only sockets that they own.
        request.owned = self.has_selection();
        request
    }

    /// The patience of the query, or otherwise of the handle.
    pub fn patience(&self, of_handle: Option<Duration>) -> Duration {
        self.tasks.patience.or(of_handle).unwrap_or(PATIENCE)
    }

    /// The process whose mappings are requested, and their fields.
    ///
    /// # Errors
    ///
    /// If it is not exactly one process.
    pub fn of_maps(&self) -> Result<(u32, Set<MapField>)> {
        let field = |of| match of {
            FieldRef::Map(field) => Some(field),
            _ => None,
        };
        match self.tasks.pids[..] {
            [pid] => Ok((pid, self.sources().filter_map(field).collect())),
            _ => Err(Error::invalid(
                "a query of mappings is about one process: name it with td_query_pids()",
            )),
        }
    }

    /// The files and directories whose page cache is asked for.
    ///
    /// # Errors
    ///
    /// If there are none.
    pub fn of_cache(&self) -> Result<&[PathBuf]> {
        match self.files.paths.as_slice() {
            [] => Err(Error::invalid(
                "a query of the page cache needs a path: name it with td_query_path()",
            )),
            paths => Ok(paths),
        }
    }

    /// The options for events.
    ///
    /// # Errors
    ///
    /// If the rows are not events.
    pub fn of_events(&self) -> Result<Options> {
        if self.scope != Scope::Events {
            return Err(Error::invalid(format!(
                "the query is one of {}, and not of events",
                self.scope.rows()
            )));
        }
        let options = Options::default().threads(self.has_threads);
        Ok(if self.event_kinds == Set::NONE {
            options
        } else {
            options.kinds(self.event_kinds.iter())
        })
    }

    /// The request for files. Resolves the paths; a file system may delay this for `patience`,
    /// unless the query has its own.
    ///
    /// # Errors
    ///
    /// If a path does not exist.
    pub fn of_files(&self, patience: Option<Duration>) -> Result<files::Request> {
        let mut request = files::Request::default();
        let field = |of| match of {
            FieldRef::File(field) => Some(field),
            _ => None,
        };
        request.fields = self.sources().filter_map(field).collect();
        let asked = &self.files;
        if let Some(uses) = asked.uses {
            request.uses = uses;
        } else if asked.is_deleted || !asked.paths.is_empty() {
            request.uses = Use::ALL.into();
        }
        request.kinds = asked.kinds;
        request.deleted = asked.is_deleted;
        let patience = self.patience(patience);
        for path in &asked.paths {
            request.paths.push(PathMatch::new(path, patience)?);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use taskdiag::files::FileField;
    use taskdiag::sockets::SocketField;

    use super::*;

    /// Check that invalid arguments are refused.
    #[test]
    fn nonsense_is_refused() {
        let mut query = Query::new(Scope::Threads);
        assert!(query.these(&[1, u32::MAX]).is_err());
        assert!(query.children_of(1).is_err() && query.descendants_of(1).is_err());
        assert!(query.add_field(0).is_err() && query.add_field(field::TABLE).is_err());
        assert!(query.add_condition("pid = 1").is_err());
        assert!(query.add_condition("pid == 1").is_ok() && query.add_condition("tid > 1").is_ok());
        let mut sockets = Query::new(Scope::Sockets);
        assert!(sockets.add_condition("local_port == 1").is_ok());
        assert!(sockets.add_condition("local_port == 1").is_err());
        for time in [-1.0, f64::NAN, 1e300] {
            assert!(until("budget", time).is_err(), "{time}");
        }
        assert_eq!(until("budget", f64::INFINITY).expect("it is no limit"), None);
    }

    /// Check that the request for files has what the columns need, and the selection.
    #[test]
    fn files_are_asked_for_what_columns_need() {
        let mut query = Query::new(Scope::Files);
        query.add_fields("pid,comm,name,peer_fds").expect("these are fields");
        let request = query.of_files(None).expect("there is no path");
        let needed = FileField::Pid | FileField::Comm | FileField::Name | FileField::Peers;
        assert_eq!(request.fields, needed);
        assert_eq!(request.uses, files::Request::default().uses);
        assert_eq!(query.task_fields(), Field::StartNs | Field::Pid | Field::Comm);
        query.add_path("/".into()).expect("it is of files");
        assert_eq!(query.of_files(None).expect("/ is there").uses, Use::ALL.into());
        query.add_kinds("file, epoll").expect("these are kinds");
        query.add_uses("fd").expect("it is a use");
        query.add_uses("map").expect("it is a use");
        let request = query.of_files(None).expect("/ is there");
        assert_eq!((request.uses, request.paths.len()), (Use::Fd | Use::Map, 1));
        assert_eq!(request.kinds.map(|kinds| kinds.iter().count()), Some(2));
        assert!(query.add_kinds("file,").is_err() && query.add_uses("mem").is_err());
        query.add_path("/nonexistent/file".into()).expect("it is of files");
        assert!(query.of_files(None).is_err());
        assert!(query.add_condition("pid == 1").is_ok() && query.children_of(1).is_ok());
        let mut others = Query::new(Scope::Processes);
        assert!(others.only_deleted().is_err() && others.add_kinds("file").is_err());
    }

    /// Check that arguments that do not fit the scope are refused, and what the requests of other
    /// scopes contain.
    #[test]
    fn other_rows_have_their_own_choices() {
        let mut maps = Query::new(Scope::Maps);
        maps.add_fields("pid,name,rss_bytes").expect("these are fields");
        assert!(maps.of_maps().is_err() && maps.add_condition("pid == 1").is_err() && maps.only_changed().is_err());
        maps.these(&[1, 2]).expect("these are pids");
        assert!(maps.of_maps().is_err());
        maps.these(&[1]).expect("it is a pid");
        let expected = (1, MapField::Pid | MapField::Name | MapField::RssBytes);
        assert_eq!(maps.of_maps().expect("it is one process"), expected);
        let mut cache = Query::new(Scope::Cache);
        assert!(cache.of_cache().is_err() && cache.these(&[1]).is_err() && cache.children_of(1).is_err());
        cache.add_path("/".into()).expect("it takes paths");
        assert_eq!(cache.of_cache().expect("it has a path"), ["/"].map(PathBuf::from));
        let mut events = Query::new(Scope::Events);
        assert!(events.add_kinds("exec,exits").is_err() && events.add_kinds("exec, exit").is_ok());
        assert!(events.these(&[1]).is_err() && events.add_path("/".into()).is_err() && events.add_threads().is_ok());
        assert!(events.of_events().is_ok() && cache.of_events().is_err() && cache.add_threads().is_err());
    }

    /// Check that the request for sockets has what the columns need.
    #[test]
    fn sockets_are_asked_for_what_columns_need() {
        for (names, fields) in [
            ("local_port,uid", SocketField::LocalPort | SocketField::Uid),
            ("owner_pids", SocketField::Owners.into()),
            ("peer_comms,rtt_ns", SocketField::Peers | SocketField::RttNs),
        ] {
            let mut query = Query::new(Scope::Sockets);
            query.add_fields(names).expect("these are fields");
            assert_eq!(query.of_sockets().fields, fields, "{names}");
            assert!(!query.of_sockets().owned);
        }
    }
}
