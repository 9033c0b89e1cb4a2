//! A job that does the same work for each of many processes.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taskdiag_core::absent::Absent;
use taskdiag_core::text::process::{status, Line, Lines};

use super::{held, holds, run, Hold, Job, Pulse, Suspects, Wait, MAX_READERS};
use crate::mutex::lock;
use crate::source::procfs::Proc;

/// This many processes are read by one reader in one go.
const PROCESSES_AT_ONCE: usize = 64;

struct Each<T, R, F> {
    proc: Proc,
    /// The process that may block a reader, 0 if it is not known, and the input of `work`.
    about: Vec<(u32, T)>,
    what: u32,
    work: F,
    result: PhantomData<fn() -> R>,
    suspects: Suspects,
}

/// The results of some processes, by their indexes. `None`: it is postponed.
type Results<R> = Vec<(usize, Option<Result<R, Absent>>)>;

impl<T, R, F> Each<T, R, F> {
    /// The real user of a process. The owner of its files in `/proc` differs if it may not be traced.
    fn user(&self, pid: u32) -> Option<u32> {
        let text = std::fs::read(self.proc.join(format!("{pid}/status"))).ok()?;
        let status = status(&text, Lines::of(&[Line::Uid]));
        let mut ids = status.ids(Line::Uid);
        ids.next()
    }
}

impl<T, R, F> Job for Each<T, R, F>
where
    T: Send + Sync + 'static,
    R: Send + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
{
    type Item = Vec<usize>;
    type Done = Results<R>;
    type Tools = ();

    fn tools(&self) {}

    fn read(&self, indexes: &Vec<usize>, (): &mut (), pulse: &Pulse, done: &Mutex<Results<R>>) {
        for (place, &index) in indexes.iter().enumerate() {
            let (pid, about) = &self.about[index];
            // A process that comes alone has been postponed before.
            let is_postponed = indexes.len() > 1 && self.suspects.has(|| self.user(*pid));
            pulse.beat();
            let is_held = held(*pid) & self.what != 0;
            let result = if is_postponed {
                None
            } else if is_held {
                Some(Err(Absent::NoAnswer))
            } else {
                Some(Ok((self.work)(about)))
            };
            let mut done = lock(done);
            done.push((index, result));
            pulse.mark(place as u64 + 1);
        }
    }

    fn rest_of(&self, indexes: &Vec<usize>, mark: u64, hold: &Hold, done: &mut Results<R>) -> Vec<Vec<usize>> {
        let place = mark as usize;
        let Some(&index) = indexes.get(place) else {
            return Vec::new();
        };
        let pid = self.about[index].0;
        if pid != 0 {
            holds(pid, self.what, hold);
        }
        if let Some(user) = self.user(pid) {
            self.suspects.add(user);
        }
        done.push((index, Some(Err(Absent::NoAnswer))));
        let rest = &indexes[place + 1..];
        if rest.is_empty() {
            Vec::new()
        } else {
            vec![rest.to_vec()]
        }
    }

    fn without_reader(&self, indexes: &Vec<usize>, reason: Absent, done: &mut Results<R>) {
        done.extend(indexes.iter().map(|&index| (index, Some(Err(reason)))));
    }
}

/// Does `work`, which may wait for a process, for each of many: `about` has the id of each process
/// in `proc`, and the input of `work`. The results are in the same order. `NoAnswer`: `work` did not return within
/// the patience, or was not tried, because the process blocks another reader, or no reader is left.
/// `NoThread`: no reader could be started.
/// From then on, [`held`] reports that the process blocks readers by `what`.
pub(crate) fn each<T, R, F>(
    proc: &Proc,
    about: Vec<(u32, T)>,
    what: u32,
    patience: Duration,
    work: F,
) -> Vec<Result<R, Absent>>
where
    T: Send + Sync + 'static,
    R: Send + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
{
    let count = about.len();
    let part = (count / (4 * MAX_READERS)).clamp(1, PROCESSES_AT_ONCE);
    let job = Arc::new(Each {
        proc: proc.clone(),
        about,
        what,
        work,
        result: PhantomData,
        suspects: Suspects::default(),
    });
    let wait = Wait {
        patience,
        deadline: None,
    };
    let indexes: Vec<usize> = (0..count).collect();
    let mut items: Vec<Vec<usize>> = indexes.chunks(part).map(<[usize]>::to_vec).collect();
    let mut results: Vec<Result<R, Absent>> = (0..count).map(|_| Err(Absent::NoAnswer)).collect();
    while !items.is_empty() {
        let expected = items.len();
        let mut postponed = Vec::new();
        for (index, result) in run(&job, items, expected, wait).into_iter().flatten() {
            match result {
                Some(result) => results[index] = result,
                None => postponed.push(vec![index]),
            }
        }
        items = postponed;
    }
    results
}

/// Does `work`, which may wait for a process; `pid` is 0 if that is not known. Like [`each`] for
/// one process.
pub(crate) fn call<T, W>(proc: &Proc, pid: u32, what: u32, patience: Duration, work: W) -> Result<T, Absent>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let once = Mutex::new(Some(work));
    let work = |once: &Mutex<Option<W>>| lock(once).take().map(|work| work());
    let result = each(proc, vec![(pid, once)], what, patience, work).pop();
    result.unwrap_or(Err(Absent::NoAnswer))?.ok_or(Absent::NoAnswer)
}
