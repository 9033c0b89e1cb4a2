//! The thread that takes samples, so that keys never wait for them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{eventfd, EventfdFlags};
use taskdiag::{Query, Snapshot};

use super::details::{Details, Inquiry};
use super::source::{Samples, Source, Step, Tag};
use crate::rhythm::Rhythm;

/// A report of the thread.
pub enum Report {
    /// A survey of all tasks, and the values of the header at that time, for an order.
    Survey(Tag, Box<Samples>),
    /// A close look at the tasks on the screen.
    Look(Box<Snapshot>),
    Details(Box<Details>),
    /// A query that failed.
    Failed(String),
}

/// An order to the thread.
pub enum Order {
    /// Makes this query at once and from now on.
    Survey(Tag, Box<Query>),
    /// Makes this query once.
    Look(Box<Query>),
    /// Examines one process, at once and with each survey.
    Inspect(Option<Inquiry>),
    /// The time between two surveys.
    Delay(Duration),
    /// Whether to wait for [`Order::Now`] rather than for the time.
    Pause(bool),
    /// Makes a survey at once.
    Now,
    /// Moves to another sample, and makes a survey.
    Go(Step),
    /// The memory of an answer that is no longer needed.
    Reuse(Box<Snapshot>),
}

/// What is said if the thread has ended.
const ENDED: &str = "the thread that asks the kernel has ended";

/// Wakes whoever waits for reports, also at the end of the thread.
struct Wake(Arc<OwnedFd>);

impl Wake {
    fn wake(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.wake();
    }
}

/// The other end of the thread.
pub struct Sampler {
    orders: Sender<Order>,
    reports: Receiver<Report>,
    wake: Arc<OwnedFd>,
}

impl Sampler {
    /// Starts the thread.
    pub fn start(source: Box<dyn Source>, delay: Duration) -> io::Result<Sampler> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (orders, received) = channel();
        let (sent, reports) = channel();
        let worker = Worker {
            source,
            reports: sent,
            wake: Wake(wake.clone()),
            survey: None,
            look: None,
            inquiry: None,
            steps: Vec::new(),
            is_due: false,
            is_inquiry_due: false,
            is_paused: false,
            rhythm: Rhythm::new(delay),
            surveyed: None,
            memory: Vec::new(),
        };
        thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || worker.run(&received))?;
        Ok(Sampler { orders, reports, wake })
    }

    /// Gives an order. If the thread has ended, [`Sampler::report`] says so.
    pub fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    /// Takes a report, if there is one. Fails if the thread has ended, which only a panic causes.
    pub fn report(&self) -> io::Result<Option<Report>> {
        use std::sync::mpsc::TryRecvError;
        let mut count = [0; 8];
        // Nonblocking. What was there is already in the channel.
        let _ = rustix::io::read(&*self.wake, &mut count);
        match self.reports.try_recv() {
            Ok(report) => Ok(Some(report)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(io::Error::other(ENDED)),
        }
    }

    pub fn wait(&self) -> Report {
        let report = self.reports.recv();
        report.unwrap_or_else(|_| Report::Failed(ENDED.to_owned()))
    }
}

/// Readable when there may be reports.
impl AsFd for Sampler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// The shortest time between two surveys of a machine, unless a shorter interval is asked for. Times of
/// processors and tasks grow in ticks of some milliseconds, so rates of less time would be of ticks.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// The most snapshots to keep for their memory: one for a survey, one for a close look.
const KEPT: usize = 2;

struct Worker {
    source: Box<dyn Source>,
    reports: Sender<Report>,
    /// Dropped after `reports`: whoever is woken at the end finds no further report.
    wake: Wake,
    survey: Option<(Tag, Box<Query>)>,
    look: Option<Box<Query>>,
    inquiry: Option<Inquiry>,
    /// Steps to take before the next survey.
    steps: Vec<Step>,
    is_due: bool,
    is_inquiry_due: bool,
    is_paused: bool,
    rhythm: Rhythm,
    /// When the last survey was.
    surveyed: Option<Instant>,
    memory: Vec<Snapshot>,
}

/// Nobody takes reports any more.
struct Over;

impl Worker {
    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let received = match self.rest() {
                Some(rest) => orders.recv_timeout(rest),
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match received {
                Ok(order) => {
                    self.obey(order);
                    // Of several orders of the same kind only the last one matters.
                    while let Ok(order) = orders.try_recv() {
                        self.obey(order);
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.is_due = true,
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.serve().is_err() {
                return;
            }
        }
    }

    /// The time until the next survey, if one is due without an order.
    fn rest(&self) -> Option<Duration> {
        if self.is_due {
            return Some(self.rest_of_min_interval());
        }
        let is_regular = !self.is_paused && self.survey.is_some() && self.source.is_live();
        is_regular.then(|| self.rhythm.rest())
    }

    /// The time until another survey has rates that mean something.
    fn rest_of_min_interval(&self) -> Duration {
        let Some(surveyed) = self.surveyed.filter(|_| self.source.is_live()) else {
            return Duration::ZERO;
        };
        MIN_INTERVAL.min(self.rhythm.every()).saturating_sub(surveyed.elapsed())
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Survey(tag, query) => {
                self.survey = Some((tag, query));
                self.is_due = true;
            }
            Order::Look(query) => self.look = Some(query),
            Order::Inspect(inquiry) => {
                self.inquiry = inquiry;
                self.is_inquiry_due = true;
            }
            Order::Delay(delay) => self.rhythm.set_interval(delay),
            Order::Pause(is_paused) => self.is_paused = is_paused,
            Order::Now => self.is_due = true,
            Order::Go(step) => {
                self.go(step);
                self.is_due = true;
            }
            Order::Reuse(snapshot) => {
                if self.memory.len() < KEPT {
                    self.memory.push(*snapshot);
                }
            }
        }
    }

    /// Adds a step. Repeated steps of a key that is held down are joined.
    fn go(&mut self, step: Step) {
        match (self.steps.last_mut(), step) {
            (Some(Step::Samples(all)), Step::Samples(more)) => *all += more,
            (Some(Step::Seconds(all)), Step::Seconds(more)) => *all = all.saturating_add(more),
            _ => self.steps.push(step),
        }
    }

    /// Does what is due. What a key waits for comes first.
    fn serve(&mut self) -> Result<(), Over> {
        if let Some(query) = self.look.take() {
            let memory = self.memory(false);
            let answer = self.source.look(&query, memory);
            self.send(answer.map(|snapshot| Report::Look(Box::new(snapshot))))?;
        }
        if self.is_inquiry_due {
            self.inspect()?;
        }
        if self.is_due && self.rest_of_min_interval().is_zero() {
            self.is_due = false;
            for step in std::mem::take(&mut self.steps) {
                self.source.go(step);
            }
            let memory = self.memory(true);
            if let Some((tag, query)) = &self.survey {
                let answer = self.source.survey(*tag, query, memory);
                let survey = |samples| Report::Survey(*tag, Box::new(samples));
                self.send(answer.map(survey))?;
                self.inspect()?;
            }
            self.rhythm.advance();
            self.surveyed = Some(Instant::now());
        }
        Ok(())
    }

    fn inspect(&mut self) -> Result<(), Over> {
        self.is_inquiry_due = false;
        let Some(inquiry) = &self.inquiry else { return Ok(()) };
        let details = self.source.details(inquiry);
        self.send(Ok(Report::Details(Box::new(details))))
    }

    /// The memory of an earlier answer. A survey gets the largest.
    fn memory(&mut self, is_survey: bool) -> Snapshot {
        let capacity = |snapshot: &Snapshot| snapshot.records.capacity();
        self.memory.sort_by_key(capacity);
        let memory = if is_survey { self.memory.pop() } else { None };
        let memory = memory.or_else(|| (!self.memory.is_empty()).then(|| self.memory.remove(0)));
        memory.unwrap_or_default()
    }

    fn send(&self, report: Result<Report, String>) -> Result<(), Over> {
        let report = report.unwrap_or_else(Report::Failed);
        self.reports.send(report).map_err(|_| Over)?;
        self.wake.wake();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{poll, PollFd, PollFlags, Timespec};
    use taskdiag::{Field, Handle};

    use super::super::details::{Inspector, System};
    use super::super::machine::Machine;
    use super::super::rows::Rows;
    use super::super::source::Sample;
    use super::*;

    fn wait_for_survey(sampler: &Sampler) -> Sample {
        loop {
            match sampler.wait() {
                Report::Survey(_, mut samples) => return samples.samples.pop().expect("a sample"),
                Report::Failed(message) => panic!("{message}"),
                Report::Look(_) | Report::Details(_) => {}
            }
        }
    }

    /// A thread that takes samples of this machine. The first one has been ordered.
    fn begin(delay: Duration) -> Sampler {
        let for_maps = Handle::new().with_patience(Duration::from_secs(5));
        let inspector = Inspector::new(System::Machine(Box::new(for_maps)));
        let source = Box::new(Machine::new(Handle::new(), inspector));
        let sampler = Sampler::start(source, delay).expect("a thread");
        let query = Query::processes().fields(Field::StartNs);
        let tag = Tag {
            rows: Rows::Processes,
            serial: 1,
        };
        sampler.order(Order::Survey(tag, Box::new(query)));
        sampler
    }

    /// A source that panics.
    struct Broken;

    impl Source for Broken {
        fn is_live(&self) -> bool {
            true
        }

        fn survey(&mut self, _: Tag, _: &Query, _: Snapshot) -> Result<Samples, String> {
            panic!("a test asked for a panic")
        }

        fn look(&mut self, _: &Query, _: Snapshot) -> Result<Snapshot, String> {
            Ok(Snapshot::default())
        }

        fn details(&mut self, _: &Inquiry) -> Details {
            unreachable!("no test asks")
        }

        fn go(&mut self, _: Step) {}
    }

    /// Check that the end of the thread is noticed.
    #[test]
    fn an_end_is_told() {
        let sampler = Sampler::start(Box::new(Broken), Duration::from_secs(1)).expect("a thread");
        sampler.order(Order::Look(Box::new(Query::processes())));
        assert!(matches!(sampler.wait(), Report::Look(_)));
        let tag = Tag {
            rows: Rows::Processes,
            serial: 1,
        };
        sampler.order(Order::Survey(tag, Box::new(Query::processes())));
        let end = Timespec::try_from(Duration::from_secs(60)).expect("a time");
        let error = loop {
            let woken = poll(&mut [PollFd::new(&sampler, PollFlags::IN)], Some(&end));
            assert_eq!(woken, Ok(1));
            match sampler.report() {
                Ok(report) => assert!(report.is_none()),
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), ENDED);
    }

    /// Check that a requested sample begins a new interval, and delays the next one by no more than that.
    #[test]
    fn a_sample_that_is_asked_for_begins_an_interval() {
        let delay = Duration::from_millis(300);
        let sampler = begin(delay);
        wait_for_survey(&sampler);
        for _ in 0..20 {
            sampler.order(Order::Now);
            wait_for_survey(&sampler);
        }
        let asked = Instant::now();
        wait_for_survey(&sampler);
        assert!(asked.elapsed() < 10 * delay, "{:?}", asked.elapsed());
    }

    /// Check that surveys that keys ask for, one right after the other, are of times long enough for
    /// rates.
    #[test]
    fn surveys_are_not_of_instants() {
        let sampler = begin(Duration::from_secs(1000));
        let times = [(); 3].map(|()| {
            sampler.order(Order::Now);
            wait_for_survey(&sampler);
            Instant::now()
        });
        let spans = times.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(
            spans.clone().all(|span| span >= MIN_INTERVAL / 2),
            "{:?}",
            spans.collect::<Vec<_>>()
        );
    }

    /// Check that samples arrive regularly, at once when requested, and not while paused.
    #[test]
    fn samples_come_in_time() {
        let delay = Duration::from_millis(50);
        let began = Instant::now();
        let sampler = begin(delay);
        for _ in 0..4 {
            let survey = wait_for_survey(&sampler);
            assert!(survey.snapshot.len() > 1);
            sampler.order(Order::Reuse(Box::new(survey.snapshot)));
        }
        assert!(began.elapsed() >= 3 * delay, "{:?}", began.elapsed());
        sampler.order(Order::Delay(Duration::from_secs(1000)));
        sampler.order(Order::Pause(true));
        let own = Box::new(Query::these([std::process::id()]).fields(Field::Comm | Field::StartNs));
        sampler.order(Order::Look(own));
        loop {
            match sampler.wait() {
                Report::Look(look) => break assert_eq!(look.len(), 1),
                Report::Failed(message) => panic!("{message}"),
                _ => {}
            }
        }
        thread::sleep(2 * delay);
        assert!(matches!(sampler.report(), Ok(None)));
        sampler.order(Order::Now);
        assert!(wait_for_survey(&sampler).snapshot.len() > 1);
    }
}
