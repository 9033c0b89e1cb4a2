//! Names that derived fields need: of users, groups, terminals and containers.
//!
//! The user database may query the network, and the files of container runtimes may be on a file
//! system that does not answer. So names are looked up only if a field needs them, each once, by a
//! separate thread. A query waits for that thread only for a while. Names that are not there by
//! then are absent, and come with a later answer.

mod containers;
mod terminals;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use taskdiag_core::absent::Absent;
use taskdiag_core::cgroup::{self, Runtime};
use taskdiag_core::derived;
use taskdiag_core::field::{Field, Fields};
use taskdiag_core::snapshot::{Snapshot, Task};
use taskdiag_sys::lookup::{local_name, Lookup, Worker};
use uzers::os::unix::UserExt as _;

use containers::{ContainerFacts, Wanted};
use terminals::Terminals;

/// Names are looked up again after this time: users are added and renamed.
const KEPT: Duration = Duration::from_secs(300);

/// All names that a handle knows.
#[derive(Debug, Default)]
pub(crate) struct Names {
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
    containers: HashMap<Vec<u8>, ContainerFacts>,
    terminals: Terminals,
    /// When the first of the names of users, groups and containers were looked up.
    since: Option<Instant>,
    lookup: Lookup<Question, Answer>,
}

/// A name to look up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Question {
    User(u32),
    Group(u32),
    Container(Wanted),
}

#[derive(Clone, Debug)]
enum Answer {
    Name(Vec<u8>),
    Container(ContainerFacts),
}

impl Names {
    /// Looks up what the derived fields among `fields` need for the tasks of a snapshot, and waits
    /// at most `patience`. `has_cgroup1` is that of [`derived::Context`].
    pub(crate) fn learn(&mut self, snapshot: &Snapshot, fields: Fields, has_cgroup1: bool, patience: Duration) {
        if self.since.is_some_and(|since| since.elapsed() > KEPT) {
            self.users.clear();
            self.groups.clear();
            self.containers.clear();
            self.since = None;
        }
        self.terminals.clear();
        let mut questions = HashSet::new();
        for task in snapshot.tasks() {
            self.add_questions(&task, fields, has_cgroup1, &mut questions);
        }
        if !questions.is_empty() {
            self.ask(questions, patience, || Worker::new(look_up));
        }
    }

    fn add_questions(&mut self, task: &Task<'_>, fields: Fields, has_cgroup1: bool, questions: &mut HashSet<Question>) {
        if fields.contains(Field::Tty) {
            if let Ok(device) = task.tty_nr() {
                self.terminals.learn(device);
            }
        }
        if fields.contains(Field::User) {
            let unknown = task.euid().ok().filter(|uid| !self.users.contains_key(uid));
            questions.extend(unknown.map(Question::User));
        }
        if fields.contains(Field::Group) {
            let unknown = task.egid().ok().filter(|gid| !self.groups.contains_key(gid));
            questions.extend(unknown.map(Question::Group));
        }
        let (wants_name, wants_runtime) = (
            fields.contains(Field::ContainerName),
            fields.contains(Field::ContainerRuntime),
        );
        if wants_name || wants_runtime {
            let find = |path| Some((cgroup::container(path)?, cgroup::owner(path)));
            let Ok(Some((container, owner))) = derived::of_cgroup(|field| task.value(field), has_cgroup1, find) else {
                return;
            };
            if container.is_name {
                return;
            }
            let needs_files = wants_name || container.runtime.is_none();
            if needs_files && !self.containers.contains_key(container.id) {
                questions.insert(Question::Container(Wanted {
                    id: String::from_utf8_lossy(container.id).into_owned(),
                    runtime: container.runtime,
                    owner,
                }));
            }
        }
    }

    /// Why a name is missing.
    fn reason(&self) -> Absent {
        if self.lookup.lacks_thread() {
            Absent::NoThread
        } else {
            Absent::NoAnswer
        }
    }

    /// Asks the worker; `start` makes one if there is none.
    fn ask(
        &mut self,
        questions: HashSet<Question>,
        patience: Duration,
        start: impl FnOnce() -> Option<Worker<Question, Answer>>,
    ) {
        let mut answers = self.lookup.ask(questions.clone(), patience, start);
        if self.lookup.lacks_thread() {
            answers.extend(
                questions
                    .into_iter()
                    .filter_map(|question| Some((question.clone(), in_file(&question)?))),
            );
        }
        for (question, answer) in answers {
            self.since.get_or_insert_with(Instant::now);
            match (question, answer) {
                (Question::User(uid), Answer::Name(name)) => drop(self.users.insert(uid, name)),
                (Question::Group(gid), Answer::Name(name)) => drop(self.groups.insert(gid, name)),
                (Question::Container(wanted), Answer::Container(found)) => {
                    self.containers.insert(wanted.id.into_bytes(), found);
                }
                _ => {}
            }
        }
    }
}

impl derived::Names for Names {
    fn user(&self, uid: u32) -> Result<&[u8], Absent> {
        self.users.get(&uid).map(Vec::as_slice).ok_or(self.reason())
    }

    fn group(&self, gid: u32) -> Result<&[u8], Absent> {
        self.groups.get(&gid).map(Vec::as_slice).ok_or(self.reason())
    }

    fn terminal(&self, device: u32) -> Result<&[u8], Absent> {
        self.terminals.name(device)
    }

    fn container_runtime(&self, id: &[u8]) -> Result<Runtime, Absent> {
        self.containers
            .get(id)
            .map_or(Err(self.reason()), |found| found.runtime)
    }

    fn container_name(&self, id: &[u8]) -> Result<&[u8], Absent> {
        match self.containers.get(id) {
            Some(found) => found.name.as_deref().map_err(|&reason| reason),
            None => Err(self.reason()),
        }
    }
}

/// The answer without a thread: names in the local files.
fn in_file(question: &Question) -> Option<Answer> {
    let name = match *question {
        Question::User(uid) => local_name("/etc/passwd", uid),
        Question::Group(gid) => local_name("/etc/group", gid),
        Question::Container(_) => None,
    };
    name.map(Answer::Name)
}

fn look_up(question: &Question) -> Answer {
    match question {
        Question::User(uid) => {
            let user = uzers::get_user_by_uid(*uid);
            let name = user.map(|user| user.name().as_encoded_bytes().to_vec());
            Answer::Name(name.unwrap_or_else(|| uid.to_string().into_bytes()))
        }
        Question::Group(gid) => {
            let group = uzers::get_group_by_gid(*gid);
            let name = group.map(|group| group.name().as_encoded_bytes().to_vec());
            Answer::Name(name.unwrap_or_else(|| gid.to_string().into_bytes()))
        }
        Question::Container(wanted) => {
            let home = |uid| uzers::get_user_by_uid(uid).map(|user| user.home_dir().to_owned());
            Answer::Container(containers::look_up(Path::new("/"), wanted, &home))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use taskdiag_core::derived::Names as _;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(50);

    fn users(uids: impl IntoIterator<Item = u32>) -> HashSet<Question> {
        uids.into_iter().map(Question::User).collect()
    }

    /// Check that a user database that does not answer delays no query by more than its patience,
    /// and later queries not at all; that its answers are used once they come; and that each name
    /// is looked up once.
    #[test]
    fn slow_answers_hold_nobody() {
        let gate = Arc::new(Mutex::new(()));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let closed = gate.lock().expect("a gate");
        let start = {
            let (gate, asked) = (gate.clone(), asked.clone());
            move || {
                Worker::new(move |question: &Question| {
                    asked.lock().expect("a list").push(question.clone());
                    drop(gate.lock().expect("a gate"));
                    Answer::Name(b"somebody".to_vec())
                })
            }
        };
        let nobody = || -> Option<Worker<Question, Answer>> { panic!("there is one") };
        let mut names = Names::default();
        let began = Instant::now();
        names.ask(users([7]), PATIENCE, start);
        let first = began.elapsed();
        assert!(first >= PATIENCE, "{first:?}");
        assert_eq!(names.user(7), Err(Absent::NoAnswer));
        let began = Instant::now();
        for _ in 0..100 {
            names.ask(users([7, 8]), Duration::from_secs(100), nobody);
        }
        assert!(began.elapsed() < Duration::from_secs(50));
        assert_eq!(names.user(8), Err(Absent::NoAnswer));
        drop(closed);
        let deadline = Instant::now() + Duration::from_secs(100);
        while names.user(8).is_err() && Instant::now() < deadline {
            let unknown = [7, 8].into_iter().filter(|&uid| names.user(uid).is_err());
            let questions = users(unknown);
            names.ask(questions, PATIENCE, nobody);
        }
        assert_eq!(names.user(7), Ok(&b"somebody"[..]));
        assert_eq!(names.user(8), Ok(&b"somebody"[..]));
        // It was asked once about each.
        assert_eq!(*asked.lock().expect("a list"), [Question::User(7), Question::User(8)]);
    }

    /// Check that a look-up that panics leaves names absent, and that another thread does the next
    /// one.
    #[test]
    fn lost_threads_are_replaced() {
        let mut names = Names::default();
        names.ask(users([7]), Duration::from_secs(100), || {
            Worker::new(|_| std::panic::resume_unwind(Box::new("no answer")))
        });
        assert_eq!(names.user(7), Err(Absent::NoAnswer));
        names.ask(users([7]), Duration::from_secs(100), || {
            Worker::new(|_| Answer::Name(b"x".to_vec()))
        });
        assert_eq!(names.user(7), Ok(&b"x"[..]));
    }

    /// Check that an id without a name is shown as its number.
    #[test]
    fn unknown_numbers_stand_for_themselves() {
        let mut names = Names::default();
        let questions = [
            Question::User(0),
            Question::User(123_456_789),
            Question::Group(123_456_789),
        ];
        names.ask(questions.into_iter().collect(), Duration::from_secs(100), || {
            Worker::new(look_up)
        });
        assert_eq!(names.user(0), Ok(&b"root"[..]));
        assert_eq!(names.user(123_456_789), Ok(&b"123456789"[..]));
        assert_eq!(names.group(123_456_789), Ok(&b"123456789"[..]));
    }
}
