//! Lookups in a separate thread, so that one that does not answer blocks nobody.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::owner::Owner;
use crate::signals::SignalsBlocked;

/// Runs lookups in a thread that is started with the first question.
#[derive(Debug)]
pub struct Lookup<Q, A> {
    worker: Option<Worker<Q, A>>,
    lacks_thread: bool,
}

impl<Q, A> Default for Lookup<Q, A> {
    fn default() -> Lookup<Q, A> {
        Lookup {
            worker: None,
            lacks_thread: false,
        }
    }
}

impl<Q: Clone + Eq + Hash + Send + 'static, A: Send + 'static> Lookup<Q, A> {
    /// Asks the thread, which `start` makes if there is none. Returns the answers that arrive
    /// within `patience`, including answers to earlier questions. A question that is still open is
    /// not asked again. Once an answer has been late, later calls do not wait until all answers are
    /// there.
    pub fn ask(
        &mut self,
        questions: HashSet<Q>,
        patience: Duration,
        start: impl FnOnce() -> Option<Worker<Q, A>>,
    ) -> Vec<(Q, A)> {
        // In a child after fork(2) the thread does not exist, and it may have held locks of the
        // channels.
        std::mem::forget(self.worker.take_if(|worker| !worker.owner.is_this_process()));
        let worker = self.worker.take().or_else(start);
        self.lacks_thread = worker.is_none();
        let mut answers = Vec::new();
        // It is dropped if its thread has ended.
        let Some(mut worker) = worker else { return answers };
        let began = Instant::now();
        for question in questions {
            if worker.open.insert(question.clone()) && worker.questions.send(question).is_err() {
                return answers;
            }
        }
        while !worker.open.is_empty() {
            let left = if worker.is_late {
                Duration::ZERO
            } else {
                patience.saturating_sub(began.elapsed())
            };
            match worker.answers.recv_timeout(left) {
                Ok((question, answer)) => {
                    worker.open.remove(&question);
                    answers.push((question, answer));
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return answers,
            }
        }
        worker.is_late = !worker.open.is_empty();
        self.worker = Some(worker);
        answers
    }

    /// Whether no thread could be started for the last questions.
    pub fn lacks_thread(&self) -> bool {
        self.lacks_thread
    }

    /// Whether an answer was late and answers are still missing.
    pub fn is_late(&self) -> bool {
        self.worker.as_ref().is_some_and(|worker| worker.is_late)
    }
}

/// The name of a user or group in a local file (passwd(5), group(5)). Reading it does not wait for a
/// network, so it needs no thread.
pub fn local_name(path: &str, id: u32) -> Option<Vec<u8>> {
    let text = std::fs::read_to_string(path).ok()?;
    let name = text.lines().find_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        (parts.nth(1)?.parse() == Ok(id)).then_some(name)
    });
    name.map(|name| name.as_bytes().to_vec())
}

/// A thread that looks things up one by one. It ends when its channel of questions is closed.
#[derive(Debug)]
pub struct Worker<Q, A> {
    owner: Owner,
    questions: Sender<Q>,
    answers: Receiver<(Q, A)>,
    /// Questions without an answer yet.
    open: HashSet<Q>,
    /// An answer was late.
    is_late: bool,
}

impl<Q: Clone + Eq + Hash + Send + 'static, A: Send + 'static> Worker<Q, A> {
    /// Starts the thread. None if no thread can be created.
    pub fn new(look_up: impl Fn(&Q) -> A + Send + 'static) -> Option<Worker<Q, A>> {
        let (questions, asked) = channel();
        let (answer, answers) = channel();
        let work = move || {
            for question in asked {
                let answered = look_up(&question);
                if answer.send((question, answered)).is_err() {
                    break;
                }
            }
        };
        // The thread inherits this: the caller's signals are for the caller's threads.
        let _blocked = SignalsBlocked::begin();
        let thread = thread::Builder::new().name("taskdiag-lookup".to_owned()).spawn(work);
        thread.ok().map(|_| Worker {
            owner: Owner::this_process(),
            questions,
            answers,
            open: HashSet::new(),
            is_late: false,
        })
    }
}
