//! Examines one process: everything that is cheap, and what the page on the screen shows.

use std::ops::ControlFlow;
use std::time::Instant;

use taskdiag::files::{self, FileField};
use taskdiag::sockets::{self, SocketField};
use taskdiag::{Absent, ErrorKind, Field, Fields, Handle, Identity, Query, Snapshot, Task};

use super::column::TopColumn;
use super::page::Page;
use super::rows::Target;
use crate::inspect::{self, texts, Section, Texts};
use crate::maps::by_file;
use crate::output::cell::Cells;
use crate::output::listing::ListingColumn;
use crate::output::relation::{Absences, ColumnInfo, Row};
use crate::output::table::Align;
use crate::output::{tasks, text};
use crate::watch::{LastSamples, Rate, Rates, SampleTime};

/// What to examine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The process.
    pub target: Target,
    /// The page on the screen.
    pub page: Page,
}

/// The rates of a process, or why there are none.
pub type Activity = [Result<f64, &'static str>; Rate::ALL.len()];

/// Why there is nothing to show.
pub type Reason = String;

/// The facts about a process.
pub struct Details {
    /// The process.
    pub target: Target,
    /// The task, if it still exists.
    pub process: Result<Snapshot, Reason>,
    /// What it did since the last time.
    pub activity: Option<Activity>,
    /// What the page has, if it shows lists.
    pub lists: Option<Result<Lists, Reason>>,
}

/// The lists of a page.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    pub lists: Vec<Texts>,
    /// What is missing in them.
    pub missing: String,
}

impl Lists {
    fn of(texts: Texts) -> Lists {
        Lists {
            lists: vec![texts],
            missing: String::new(),
        }
    }
}

/// Lists are read again only after this many times the time that reading them took. A process that
/// wants to change its mappings waits while they are read.
const REST: u32 = 20;

/// The most rows of files or sockets.
const MAX_ROWS: usize = 10_000;

/// What is remembered about the examined process.
struct Subject {
    identity: Identity,
    history: LastSamples,
    threads: LastSamples,
    lists: Option<(Page, Instant, Result<Lists, Reason>)>,
}

/// Where the examined processes are.
pub enum System {
    /// This machine, now. The handle reads lists.
    Machine(Box<Handle>),
    Recording,
}

impl System {
    /// Why a process does not exist.
    fn gone(&self) -> Reason {
        match self {
            System::Machine(_) => "it has ended".to_owned(),
            System::Recording => "it is not in this sample".to_owned(),
        }
    }

    /// The lists of a page about a process.
    fn lists(&mut self, page: Page, process: &Snapshot) -> Result<Lists, Reason> {
        if page == Page::Limits {
            let task = process.task(0);
            let threads = match self {
                System::Machine(handle) => inspect::user_threads(handle, &task),
                System::Recording => Err(Absent::NotAsked.as_str()),
            };
            let rows = inspect::limits(&task, threads).map_err(|reason| format!("limits: {reason}"))?;
            return Ok(Lists::of(texts(Section::Limits, &rows, false)));
        }
        let System::Machine(handle) = self else {
            return Err(format!("a recording has no {}", contents(page)));
        };
        let said = |error: taskdiag::Error| format!("{error:#}");
        let task = process.task(0);
        let pid = task.record().header().pid.get();
        let sums = match page {
            Page::Files => return opened(handle, process).map_err(said),
            Page::Sockets => return connected(handle, process).map_err(said),
            Page::Environment | Page::Cgroup => {
                let field = if page == Page::Cgroup {
                    Field::Cgroups
                } else {
                    Field::Environ
                };
                let answer = handle
                    .query(&Query::process(pid).fields(Field::StartNs | field))
                    .map_err(said)?;
                let found = answer.tasks().find(|found| found.identity() == task.identity());
                let found = found.ok_or("it has ended")?;
                return of_task(&found, page, handle).map_err(|reason| format!("{}: {reason}", contents(page)));
            }
            _ => by_file(pid, handle).map_err(said)?,
        };
        Ok(Lists::of(texts(Section::Mappings, &inspect::mappings(&sums), false)))
    }
}

/// The environment of a process, or the figures of its cgroup.
fn of_task(task: &Task<'_>, page: Page, handle: &Handle) -> Result<Lists, Absent> {
    if page == Page::Environment {
        let variables = inspect::variables(task.environ()?, &[]);
        return Ok(Lists::of(texts(Section::Environ, &variables, false)));
    }
    let files = handle.cgroup_files(task.cgroups()?, &inspect::cgroup_files());
    let mut lists = Lists::of(texts(Section::CgroupUse, &[inspect::cgroup_use(&files)], false));
    match inspect::pressures(&files) {
        Ok(rows) => lists.lists.push(texts(Section::Pressure, &rows, false)),
        Err(reason) => lists.missing = format!("pressure {reason}"),
    }
    Ok(lists)
}

fn contents(page: Page) -> &'static str {
    match page {
        Page::Files => "files",
        Page::Sockets => "sockets",
        Page::Environment => "environments",
        Page::Cgroup => "limits of cgroups",
        _ => "mappings",
    }
}

/// Makes a list of the rows of a relation.
struct Lister {
    relation: &'static [ColumnInfo],
    shown: Vec<ListingColumn>,
    cells: Cells,
    rows: Vec<Vec<String>>,
}

impl Lister {
    fn new(relation: &'static [ColumnInfo], shown: Vec<ListingColumn>) -> Lister {
        Lister {
            relation,
            shown,
            cells: Cells::new(false, false),
            rows: Vec::new(),
        }
    }

    /// The columns that it needs.
    fn needs(&self) -> impl Iterator<Item = usize> + '_ {
        self.shown.iter().flat_map(|shown| shown.content.needs())
    }

    fn row(&mut self, row: &dyn Row) -> ControlFlow<()> {
        if self.rows.len() == MAX_ROWS {
            return ControlFlow::Break(());
        }
        let (relation, cells, mut absences) = (self.relation, &mut self.cells, Absences::default());
        let mut cell =
            |shown: &ListingColumn| text::written(|out| shown.write(out, relation, row, cells, &mut absences));
        self.rows.push(self.shown.iter().map(&mut cell).collect());
        ControlFlow::Continue(())
    }

    /// The list, and what an answer's counters say is missing. The others count what was done.
    fn lists(self, counters: impl Iterator<Item = (&'static str, u64)>) -> Lists {
        const DONE: [&str; 6] = [
            "files",
            "sockets",
            "namespaces",
            "unsupported",
            "deferred",
            "longest_run_ns",
        ];
        let missing = counters.filter(|(name, count)| *count > 0 && !DONE.contains(name));
        let most = (self.rows.len() == MAX_ROWS).then(|| format!("at most {MAX_ROWS} rows"));
        let missing = missing.map(|(name, count)| match name {
            "denied" | "processes_denied" => "you may not see them".to_owned(),
            "maps_denied" => "you may not see mapped files".to_owned(),
            _ => format!("{count} {}", name.replace('_', " ")),
        });
        let missing = missing.chain(most);
        let columns = self.shown.iter().map(|shown| {
            let is_number = shown.align(self.relation) == Align::Right;
            (shown.heading, is_number)
        });
        Lists {
            missing: missing.collect::<Vec<_>>().join(", "),
            ..Lists::of((columns.collect(), self.rows))
        }
    }
}

/// The files of a process, as `taskdiag files` lists them without its id and name.
fn opened(handle: &mut Handle, process: &Snapshot) -> taskdiag::Result<Lists> {
    let shown = crate::files::usual(false).table.split_off(2);
    let mut lister = Lister::new(&crate::files::RELATION, shown);
    let mut request = files::Request::default();
    request.fields = lister.needs().map(|column| FileField::ALL[column]).collect();
    let answer = handle.files(process, &request, |task, file| lister.row(&files::Row::new(task, file)))?;
    Ok(lister.lists(answer.named()))
}

/// The sockets of a process, as `taskdiag sockets` lists them.
fn connected(handle: &mut Handle, process: &Snapshot) -> taskdiag::Result<Lists> {
    let mut lister = Lister::new(&crate::sockets::RELATION, crate::sockets::usual(false).table);
    let mut request = sockets::Request::default();
    request.owned = true;
    request.fields = lister.needs().map(|column| SocketField::ALL[column]).collect();
    let answer = handle.sockets(process, &request, |socket| lister.row(&sockets::Row::new(socket)))?;
    Ok(lister.lists(answer.named()))
}

/// Examines processes.
pub struct Inspector {
    system: System,
    subject: Option<Subject>,
}

/// Answers a query, and returns the moment of the answer.
pub type Ask<'a> = &'a mut dyn FnMut(&Query) -> (taskdiag::Result<Snapshot>, SampleTime);

/// The fields of the pages.
fn fields() -> Fields {
    Fields::all() | Field::User | Field::Group | Field::ContainerName | Field::ContainerRuntime
}

/// The columns of threads.
fn columns() -> Vec<TopColumn> {
    let [tid, state, nice, processor, name] =
        [Field::Tid, Field::State, Field::Nice, Field::Processor, Field::Comm].map(TopColumn::of);
    let time = TopColumn::named("time").unwrap_or_default().into_iter();
    [tid, state, TopColumn::Rate(Rate::Cpu), nice, processor]
        .into_iter()
        .chain(time)
        .chain([name])
        .collect()
}

impl Inspector {
    /// An examiner of processes on `system`.
    pub fn new(system: System) -> Inspector {
        Inspector { system, subject: None }
    }

    /// Forgets what it saw, because the next answer does not follow the last one in time.
    pub fn forget(&mut self) {
        self.subject = None;
    }

    /// Answers an inquiry.
    pub fn details(&mut self, ask: Ask<'_>, inquiry: &Inquiry) -> Details {
        let identity = inquiry.target.identity;
        if self.subject.as_ref().is_none_or(|subject| subject.identity != identity) {
            self.subject = Some(Subject {
                identity,
                history: LastSamples::default(),
                threads: LastSamples::default(),
                lists: None,
            });
        }
        let mut details = Details {
            target: inquiry.target.clone(),
            process: Err(String::new()),
            activity: None,
            lists: None,
        };
        let (answer, moment) = ask(&Query::process(inquiry.target.pid).fields(fields()));
        details.process = match answer {
            // For a thread, its process is shown.
            Ok(snapshot) if is_of(&snapshot, &inquiry.target) => Ok(snapshot),
            Ok(_) => Err(self.system.gone()),
            Err(error) if error.kind() == ErrorKind::NoSuchTask => Err(self.system.gone()),
            Err(error) => Err(format!("{error:#}")),
        };
        let (Ok(snapshot), Some(subject)) = (&details.process, &mut self.subject) else {
            return details;
        };
        let rates = subject.history.add(snapshot, moment);
        let of_first = rates.first().zip(snapshot.tasks().next());
        details.activity = of_first.map(|(rates, task)| Rate::ALL.map(|rate| rates.of(rate, &task)));
        match inquiry.page {
            Page::Threads => details.lists = Some(threads(ask, inquiry.target.pid, &mut subject.threads)),
            Page::Process | Page::History => {}
            page => {
                let lists = match subject.lists.take() {
                    Some(read) if read.0 == page && Instant::now() < read.1 => read,
                    _ => {
                        let began = Instant::now();
                        let lists = self.system.lists(page, snapshot);
                        (page, Instant::now() + began.elapsed() * REST, lists)
                    }
                };
                details.lists = Some(lists.2.clone());
                subject.lists = Some(lists);
            }
        }
        details
    }
}

/// Whether the task of an answer is the selected one, or the process of the selected thread.
fn is_of(snapshot: &Snapshot, target: &Target) -> bool {
    snapshot
        .tasks()
        .any(|task| target.tid != target.pid || task.identity() == Ok(target.identity))
}

/// The threads of a process, the busiest first. Equal ones are in the order of their ids.
fn threads(ask: Ask<'_>, pid: u32, history: &mut LastSamples) -> Result<Lists, Reason> {
    let columns = columns();
    let fields = columns
        .iter()
        .fold(Field::StartNs.into(), |fields: Fields, show| fields | show.fields());
    let (answer, moment) = ask(&Query::threads_of(pid).fields(fields));
    let snapshot = answer.map_err(|error| format!("{error:#}"))?;
    let rates = history.add(&snapshot, moment);
    let mut threads: Vec<(&Rates, Task<'_>)> = rates.iter().zip(snapshot.tasks()).collect();
    let cpu = |rates: &Rates| rates.get(Rate::Cpu).unwrap_or(f64::NEG_INFINITY);
    threads.sort_by(|(a, _), (b, _)| cpu(b).total_cmp(&cpu(a)));
    let (mut cells, mut absences) = (Cells::new(false, false), Absences::default());
    let mut cell = |show: &TopColumn, (rates, task): &(&Rates, Task<'_>)| {
        text::written(|out| match show {
            TopColumn::Rate(rate) => rate.write(out, rates.get(*rate), &mut cells),
            TopColumn::Cell(shown) => shown.write(out, &tasks::RELATION, task, &mut cells, &mut absences),
            TopColumn::Trend => {}
        })
    };
    let mut row = |thread| columns.iter().map(|show| cell(show, thread)).collect();
    let rows = threads.iter().map(&mut row).collect();
    let headings = columns
        .iter()
        .map(|show| (show.heading(), show.align() == Align::Right));
    Ok(Lists::of((headings.collect(), rows)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn inquiry(page: Page) -> Inquiry {
        let pid = std::process::id();
        let query = Query::process(pid).fields(Field::StartNs);
        let snapshot = Handle::new().query(&query).expect("an answer");
        Inquiry {
            target: Target {
                pid,
                tid: pid,
                identity: snapshot.task(0).identity().expect("a start time"),
                name: b"test".to_vec(),
                user: Vec::new(),
                nice: None,
            },
            page,
        }
    }

    /// Check that a page has its content, and that a process that got the same id is not mistaken
    /// for the selected one.
    #[test]
    fn pages_have_details() {
        let for_maps = Handle::new().with_patience(Duration::from_secs(5));
        let mut inspector = Inspector::new(System::Machine(Box::new(for_maps)));
        let mut handle = Handle::new();
        let mut ask = |query: &Query| SampleTime::of(|| handle.query(query));
        let details = inspector.details(&mut ask, &inquiry(Page::Maps));
        let maps = details
            .lists
            .expect("asked for")
            .expect("own mappings")
            .lists
            .remove(0)
            .1;
        // The last cell is the name, and the first is what is resident.
        let own = maps.iter().find(|row| row[5].starts_with('/') && row[4] != "1");
        assert!(own.is_some_and(|row| row[0].ends_with(['K', 'M', 'G'])), "{maps:?}");
        let details = inspector.details(&mut ask, &inquiry(Page::Threads));
        let lists = details.lists.expect("asked for").expect("own threads").lists;
        let own = std::process::id().to_string();
        assert!(lists[0].1.iter().any(|row| row[0] == own), "{lists:?}");
        // The limit on threads is next to how many the user has.
        let details = inspector.details(&mut ask, &inquiry(Page::Limits));
        let limits = details.lists.expect("asked for").expect("own limits").lists.remove(0).1;
        let threads = limits.iter().find(|row| row[0] == "nproc").map(|row| row[3].parse());
        assert!(matches!(threads, Some(Ok(1u64..))), "{limits:?}");
        let details = inspector.details(&mut ask, &inquiry(Page::History));
        assert!(details.process.is_ok() && details.lists.is_none());
        let mut other = inquiry(Page::Process);
        let parent = std::os::unix::process::parent_id();
        (other.target.pid, other.target.tid) = (parent, parent);
        let details = inspector.details(&mut ask, &other);
        assert_eq!(details.process.err().as_deref(), Some("it has ended"));
    }
}
