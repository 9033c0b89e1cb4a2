//! Examines one process: everything that is cheap, its threads, its mappings.

use std::time::Instant;

use taskdiag::{ErrorKind, Field, Fields, Handle, Identity, Query, Snapshot};

use super::page::Page;
use super::rows::Target;
use crate::maps::{by_file, FileSum};
use crate::watch::{Activity, LastSamples, SampleTime};

/// What to examine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The process.
    pub target: Target,
    /// The page on the screen.
    pub page: Page,
}

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
    /// Its threads and what they did, if that page is shown.
    pub threads: Option<Result<(Snapshot, Vec<Activity>), Reason>>,
    /// Its mappings by file, the largest first, if that page is shown.
    pub maps: Option<Result<Vec<FileSum>, Reason>>,
}

/// Mappings are read again only after this many times the time that reading them took. A process
/// that wants to change its mappings waits while they are read.
const REST: u32 = 20;

/// What is remembered about the examined process.
struct Subject {
    identity: Identity,
    history: LastSamples,
    threads: LastSamples,
    maps: Option<(Instant, Result<Vec<FileSum>, Reason>)>,
}

/// Where the examined processes are.
pub enum System {
    /// This machine, now. The handle reads mappings.
    Machine(Box<Handle>),
    /// A recording.
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

    fn maps(&mut self, pid: u32) -> Result<Vec<FileSum>, Reason> {
        match self {
            System::Machine(handle) => by_file(pid, handle).map_err(|error| format!("{error:#}")),
            System::Recording => Err("a recording has no mappings".to_owned()),
        }
    }
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

/// The fields of threads.
fn thread_fields() -> Fields {
    Field::StartNs | Field::State | Field::Comm | Field::UtimeNs | Field::StimeNs | Field::Processor | Field::Nice
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
                history: LastSamples::new(false),
                threads: LastSamples::new(false),
                maps: None,
            });
        }
        let mut details = Details {
            target: inquiry.target.clone(),
            process: Err(String::new()),
            activity: None,
            threads: None,
            maps: None,
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
        details.activity = subject.history.add(snapshot, moment).first().copied();
        match inquiry.page {
            Page::Threads => details.threads = Some(threads(ask, inquiry.target.pid, &mut subject.threads)),
            Page::Maps => {
                let maps = match subject.maps.take() {
                    Some((due, maps)) if Instant::now() < due => (due, maps),
                    _ => {
                        let began = Instant::now();
                        let maps = self.system.maps(inquiry.target.pid);
                        (Instant::now() + began.elapsed() * REST, maps)
                    }
                };
                details.maps = Some(maps.1.clone());
                subject.maps = Some(maps);
            }
            Page::Process | Page::Limits | Page::History => {}
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

fn threads(ask: Ask<'_>, pid: u32, history: &mut LastSamples) -> Result<(Snapshot, Vec<Activity>), Reason> {
    let (answer, moment) = ask(&Query::threads_of(pid).fields(thread_fields()));
    let snapshot = answer.map_err(|error| format!("{error:#}"))?;
    let activities = history.add(&snapshot, moment);
    Ok((snapshot, activities))
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
        let maps = details.maps.expect("asked for").expect("own mappings");
        let own = maps.iter().find(|sum| sum.name.starts_with(b"/") && sum.mappings > 1);
        assert!(
            own.is_some_and(|sum| sum.rss_bytes.is_ok_and(|bytes| bytes > 0)),
            "{maps:?}"
        );
        let details = inspector.details(&mut ask, &inquiry(Page::Threads));
        let (snapshot, activities) = details.threads.expect("asked for").expect("own threads");
        assert!(!snapshot.is_empty() && activities.len() == snapshot.len());
        assert!(details.maps.is_none());
        let mut other = inquiry(Page::Process);
        let parent = std::os::unix::process::parent_id();
        (other.target.pid, other.target.tid) = (parent, parent);
        let details = inspector.details(&mut ask, &other);
        assert_eq!(details.process.err().as_deref(), Some("it has ended"));
    }
}
