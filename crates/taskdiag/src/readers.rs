//! Threads that read what a process can keep from being read.
//!
//! The kernel reads a process's arguments, environment, mappings and page tables under locks of that process, and a process can
//! hold those for as long as it likes: with a page of a file system that never answers, for one. Who reads then waits, and only a
//! fatal signal ends that. So the thread that asks reads nothing of the kind. It gives the work to readers, and watches them: one
//! that has not come back from a system call within the patience, and is not running either, is given up. What it was at is
//! told to the [`Job`], other readers do the rest. The thread itself is left where it is, and ends when it comes back.
//!
//! How many may be left like that is bounded ([`MOST_LOST`], in a process). From half of that on, processes of users who hold some are
//! read no more as far as that can wait, so that one user can't take all; with all of them lost, nobody's are, until some have come back. Which processes hold readers is known to the whole process, and so are the readers that have nothing to do.

use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::Write as _;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use taskdiag_sys::owner::Owner;

/// So many readers may be lost in a process.
pub(crate) const MOST_LOST: usize = 48;

/// More readers than this only wait for each other.
const MOST_READERS: usize = 8;

/// How often readers are looked at.
const TICK: Duration = Duration::from_millis(10);

/// A reader that has been quiet for so long is likely to be held: another one takes over what waits behind it.
const QUIET: Duration = Duration::from_millis(20);

/// Readers of this process that have been given up and have not come back.
static LOST: AtomicUsize = AtomicUsize::new(0);

/// A lock whose holder panicked guards nothing that could be half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What readers are to do, item by item.
pub(crate) trait Job: Send + Sync + 'static {
    /// What is done by one reader in one go.
    type Item: Send + Sync + 'static;
    /// What comes of an item. It is added to while the item is being read: what is there when its reader is given up is kept.
    type Done: Default + Send + 'static;
    /// What a reader keeps from one item to the next.
    type Tools;

    /// What a reader begins with.
    fn tools(&self) -> Self::Tools;

    /// The next item behind those that are known, if there is one. It must not wait.
    fn more(&self) -> Option<Self::Item> {
        None
    }

    /// Reads an item.
    fn read(&self, item: &Self::Item, tools: &mut Self::Tools, pulse: &Pulse, done: &Mutex<Self::Done>);

    /// What is left of an item whose reader was given up where its pulse was last marked.
    fn go_on_behind(&self, item: &Self::Item, mark: u64, hold: &Hold, done: &mut Self::Done) -> Vec<Self::Item>;

    /// Does what can be done of an item without a reader.
    fn without_reader(&self, item: &Self::Item, done: &mut Self::Done);
}

/// That a reader is held.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    has_ended: Arc<AtomicBool>,
    /// Whose reader: after fork(2) the child has none.
    owner: Owner,
}

impl Hold {
    /// Whether the reader has come back.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Acquire) || !self.owner.is_this_process()
    }
}

/// A sign of life of a reader.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    beats: AtomicU64,
    mark: AtomicU64,
    /// The reader's thread id; the process that reads in its place, while one does.
    tid: AtomicU32,
    other: AtomicU32,
}

impl Pulse {
    /// To be called before each system call that may wait, and behind the last one.
    pub(crate) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Says where in its item the reader is.
    pub(crate) fn mark(&self, mark: u64) {
        self.mark.store(mark, Ordering::Relaxed);
        self.beat();
    }

    /// Says that another process does the reading; 0: no more.
    pub(crate) fn is_read_by(&self, pid: u32) {
        self.other.store(pid, Ordering::Relaxed);
        self.beat();
    }

    /// Whether the reader, or the process in its place, is running or waits for a processor: it is slow then, not held.
    fn is_running(&self) -> bool {
        match self.other.load(Ordering::Relaxed) {
            0 => is_in_state_r(format_args!(
                "/proc/self/task/{}/stat",
                self.tid.load(Ordering::Relaxed)
            )),
            pid => is_running(pid),
        }
    }
}

/// Whether a process is running or waits for a processor.
pub(crate) fn is_running(pid: u32) -> bool {
    is_in_state_r(format_args!("/proc/{pid}/stat"))
}

/// Readers are looked at while a query waits for them, so this takes no memory.
fn is_in_state_r(path: fmt::Arguments<'_>) -> bool {
    const ROOM: usize = 48;
    let (mut name, mut stat) = ([0; ROOM], [0; 128]);
    let mut rest = &mut name[..];
    let is_named = rest.write_fmt(path).is_ok();
    let len = ROOM - rest.len();
    let read = || {
        let file = rustix::fs::open(&name[..len], OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        rustix::io::read(file, &mut stat).ok()
    };
    let Some(len) = is_named.then(read).flatten() else {
        return false;
    };
    let stat = &stat[..len];
    let behind_name = stat.iter().rposition(|&byte| byte == b')');
    behind_name.and_then(|at| stat.get(at + 2)) == Some(&b'R')
}

thread_local! {
    static OWN: OnceCell<Arc<Pulse>> = const { OnceCell::new() };
}

/// The same as [`Pulse::beat`], for code that does not know whether it is run by a reader.
pub(crate) fn beat() {
    OWN.with(|own| {
        if let Some(pulse) = own.get() {
            pulse.beat();
        }
    });
}

/// What a pool can be given to do.
trait Work: Send + Sync {
    fn work(&self, pulse: &Pulse);
}

struct Batch<J: Job> {
    job: Arc<J>,
    state: Mutex<State<J>>,
    changed: Condvar,
}

struct State<J: Job> {
    waiting: VecDeque<J::Item>,
    /// By the number that was given to it when it was taken.
    under_way: HashMap<u64, Arc<UnderWay<J>>>,
    done: Vec<J::Done>,
    next_ticket: u64,
    /// There are no more items than those that wait.
    is_exhausted: bool,
    /// Nobody waits for it any more.
    is_closed: bool,
}

struct UnderWay<J: Job> {
    item: J::Item,
    done: Mutex<J::Done>,
    /// Who reads it.
    tid: u32,
}

impl<J: Job> State<J> {
    fn is_done(&self) -> bool {
        self.is_exhausted && self.waiting.is_empty() && self.under_way.is_empty()
    }

    fn has_more(&self) -> bool {
        !self.waiting.is_empty() || !self.is_exhausted
    }

    /// The next item to be read.
    fn take(&mut self, job: &J) -> Option<J::Item> {
        if let Some(item) = self.waiting.pop_front() {
            return Some(item);
        }
        if self.is_exhausted {
            return None;
        }
        let item = job.more();
        self.is_exhausted = item.is_none();
        item
    }
}

impl<J: Job> Work for Batch<J> {
    fn work(&self, pulse: &Pulse) {
        let mut tools = self.job.tools();
        let tid = pulse.tid.load(Ordering::Relaxed);
        loop {
            let (ticket, taken) = {
                let mut state = lock(&self.state);
                if state.is_closed {
                    return;
                }
                let Some(item) = state.take(&self.job) else {
                    if state.is_done() {
                        self.changed.notify_all();
                    }
                    return;
                };
                let taken = Arc::new(UnderWay {
                    item,
                    done: Mutex::default(),
                    tid,
                });
                let ticket = state.next_ticket;
                state.next_ticket += 1;
                state.under_way.insert(ticket, Arc::clone(&taken));
                (ticket, taken)
            };
            pulse.beat();
            self.job.read(&taken.item, &mut tools, pulse, &taken.done);
            pulse.beat();
            let mut state = lock(&self.state);
            // It was given up meanwhile: others have done it.
            if state.under_way.remove(&ticket).is_none() {
                return;
            }
            let done = std::mem::take(&mut *lock(&taken.done));
            state.done.push(done);
            if state.is_done() {
                self.changed.notify_all();
            }
        }
    }
}

/// A reader.
struct Seat {
    batches: Sender<Arc<dyn Work>>,
    pulse: Arc<Pulse>,
    is_lost: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
}

/// Readers that have nothing to do, and whose threads those are: after fork(2) the child has none.
struct Idle {
    seats: Vec<Seat>,
    owner: Option<Owner>,
}

static IDLE: Mutex<Idle> = Mutex::new(Idle {
    seats: Vec::new(),
    owner: None,
});

/// So long a reader waits for something to do before it ends.
const IDLE_FOR: Duration = Duration::from_secs(10);

impl Idle {
    /// Those of this process.
    fn of_this_process() -> MutexGuard<'static, Idle> {
        let mut idle = lock(&IDLE);
        let own = Some(Owner::this_process());
        if idle.owner != own {
            // Locks within may be held by threads which the child does not have.
            std::mem::forget(std::mem::take(&mut idle.seats));
            idle.owner = own;
            LOST.store(0, Ordering::Relaxed);
        }
        idle
    }
}

impl Seat {
    /// One that has nothing to do, or a new one.
    fn take() -> Option<Seat> {
        let idle = Idle::of_this_process().seats.pop();
        idle.or_else(Seat::start)
    }

    /// Puts it where others find it.
    fn give_back(self) {
        let mut idle = Idle::of_this_process();
        if idle.seats.len() < MOST_READERS {
            idle.seats.push(self);
        }
    }

    fn start() -> Option<Seat> {
        let (batches, received) = channel::<Arc<dyn Work>>();
        let pulse = Arc::new(Pulse::default());
        let is_lost = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::new(AtomicBool::new(false));
        let (own, is_given_up, ended) = (Arc::clone(&pulse), Arc::clone(&is_lost), Arc::clone(&has_ended));
        let (tell, told) = channel();
        let started = thread::Builder::new()
            .name("taskdiag-reader".to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                own.tid.store(tid, Ordering::Relaxed);
                OWN.with(|pulse| pulse.set(Arc::clone(&own)).ok());
                let _ = tell.send(());
                loop {
                    match received.recv_timeout(IDLE_FOR) {
                        Ok(batch) => batch.work(&own),
                        Err(RecvTimeoutError::Disconnected) => break,
                        Err(RecvTimeoutError::Timeout) => {
                            let mut idle = Idle::of_this_process();
                            let is_own = |seat: &Seat| Arc::ptr_eq(&seat.pulse, &own);
                            // Else it has just been taken.
                            if let Some(at) = idle.seats.iter().position(is_own) {
                                idle.seats.swap_remove(at);
                                break;
                            }
                        }
                    }
                    if is_given_up.load(Ordering::Acquire) {
                        break;
                    }
                }
                ended.store(true, Ordering::Release);
                if is_given_up.load(Ordering::Acquire) {
                    LOST.fetch_sub(1, Ordering::Relaxed);
                }
            });
        started.ok()?;
        // Who watches it knows its number.
        told.recv().ok()?;
        Some(Seat {
            batches,
            pulse,
            is_lost,
            has_ended,
        })
    }

    fn tid(&self) -> u32 {
        self.pulse.tid.load(Ordering::Relaxed)
    }
}

/// A process that holds a reader.
struct Holder {
    pid: u32,
    /// What of it is not to be read, in whatever terms the readers of it agree on.
    what: u32,
    hold: Hold,
}

static HOLDERS: Mutex<Vec<Holder>> = Mutex::new(Vec::new());

/// What of a process hangs a reader still, from those that [`holds`] told of: 0 if nothing does.
pub(crate) fn held(pid: u32) -> u32 {
    let mut holders = lock(&HOLDERS);
    if holders.is_empty() {
        return 0;
    }
    holders.retain(|holder| !holder.hold.is_over());
    let of_process = holders.iter().filter(|holder| holder.pid == pid);
    of_process.fold(0, |all, holder| all | holder.what)
}

/// Tells everybody that a process holds a reader.
pub(crate) fn holds(pid: u32, what: u32, hold: &Hold) {
    lock(&HOLDERS).push(Holder {
        pid,
        what,
        hold: hold.clone(),
    });
}

/// Of what [`holds`] tells: the mappings of a process, and what is in its memory, which some kernels read without the lock and some do
/// not. The other bits are those of [`Files`](taskdiag_core::field::Files).
pub(crate) const MAPPINGS: u32 = 1 << 31;
pub(crate) const MEMORY: u32 = 1 << 30;

/// How long a reader may be held unless somebody says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// How long the texts of one task may take in all, while each piece of them comes in time.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// Users whose processes hold readers.
static HOLDING_USERS: Mutex<Vec<(u32, Hold)>> = Mutex::new(Vec::new());

/// Tells everybody that a process of a user holds a reader.
pub(crate) fn user_holds(user: u32, hold: &Hold) {
    lock(&HOLDING_USERS).push((user, hold.clone()));
}

/// Whether so many readers are lost that those who hold some get no more: the rest is for everybody else.
pub(crate) fn are_scarce() -> bool {
    LOST.load(Ordering::Relaxed) >= MOST_LOST / 2
}

/// Whether a process of this user holds a reader.
pub(crate) fn does_user_hold(user: u32) -> bool {
    let mut users = lock(&HOLDING_USERS);
    users.retain(|(_, hold)| !hold.is_over());
    users.iter().any(|&(other, _)| other == user)
}

/// How long readers are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// For one that is held.
    pub patience: Duration,
    /// For all of them.
    pub deadline: Option<Instant>,
}

/// What a reader looked like when it was last looked at.
#[derive(Default)]
struct Seen {
    beats: u64,
    /// So long it has waited in a system call since. When it ran, or waited for a processor, it was slow and not held.
    quiet: Duration,
    has_stand_in: bool,
}

/// Has a job done, and returns what came of its items, in no particular order. What is not done at the deadline is left out.
/// `items` are the first ones, [`Job::more`] has the others; there are about `expected` of them.
pub(crate) fn run<J: Job>(job: &Arc<J>, items: Vec<J::Item>, expected: usize, wait: Wait) -> Vec<J::Done> {
    let wanted = thread::available_parallelism().map_or(1, |count| count.get());
    let wanted = wanted.min(MOST_READERS).min(expected.max(1));
    let batch = Arc::new(Batch {
        job: Arc::clone(job),
        state: Mutex::new(State {
            waiting: items.into(),
            under_way: HashMap::new(),
            done: Vec::new(),
            next_ticket: 0,
            is_exhausted: false,
            is_closed: false,
        }),
        changed: Condvar::new(),
    });
    let mut watch = Watch {
        batch: &batch,
        engaged: Vec::new(),
        wait,
    };
    for _ in 0..wanted {
        watch.engage();
    }
    watch.go_on();
    let mut state = lock(&batch.state);
    std::mem::take(&mut state.done)
}

/// Something to be done about each of many processes.
struct Each<T, R, F> {
    /// The process that may hold a reader, 0 if it is not known, and what there is of it.
    about: Vec<(u32, T)>,
    what: u32,
    work: F,
    result: PhantomData<fn() -> R>,
    /// Users whose processes hold readers. As one process can have many like it, theirs come when all others are done.
    users: Mutex<Vec<u32>>,
    has_users: AtomicBool,
}

/// What came of some processes.
struct Done<R> {
    results: Vec<(usize, Option<R>)>,
    postponed: Vec<usize>,
}

impl<R> Default for Done<R> {
    fn default() -> Done<R> {
        Done {
            results: Vec::new(),
            postponed: Vec::new(),
        }
    }
}

/// So many processes are seen to by one reader in one go.
const PART: usize = 64;

impl<T, R, F> Each<T, R, F> {
    fn is_suspect(&self, pid: u32) -> bool {
        let has_users = self.has_users.load(Ordering::Relaxed);
        has_users && user(pid).is_some_and(|user| lock(&self.users).contains(&user))
    }
}

/// The real user of a process. Its files say another one where it may not be traced.
fn user(pid: u32) -> Option<u32> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

impl<T, R, F> Job for Each<T, R, F>
where
    T: Send + Sync + 'static,
    R: Send + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
{
    type Item = Vec<usize>;
    type Done = Done<R>;
    type Tools = ();

    fn tools(&self) {}

    fn read(&self, indexes: &Vec<usize>, (): &mut (), pulse: &Pulse, done: &Mutex<Done<R>>) {
        for (place, &index) in indexes.iter().enumerate() {
            let (pid, about) = &self.about[index];
            // What comes alone is not put off again.
            if indexes.len() > 1 && self.is_suspect(*pid) {
                lock(done).postponed.push(index);
                continue;
            }
            pulse.mark(place as u64);
            let is_held = held(*pid) & self.what != 0;
            let result = (!is_held).then(|| (self.work)(about));
            lock(done).results.push((index, result));
        }
    }

    fn go_on_behind(&self, indexes: &Vec<usize>, mark: u64, hold: &Hold, done: &mut Done<R>) -> Vec<Vec<usize>> {
        let place = mark as usize;
        let pid = self.about[indexes[place]].0;
        if pid != 0 {
            holds(pid, self.what, hold);
        }
        if let Some(user) = user(pid) {
            lock(&self.users).push(user);
            self.has_users.store(true, Ordering::Relaxed);
        }
        done.results.push((indexes[place], None));
        let rest = &indexes[place + 1..];
        if rest.is_empty() {
            Vec::new()
        } else {
            vec![rest.to_vec()]
        }
    }

    fn without_reader(&self, indexes: &Vec<usize>, done: &mut Done<R>) {
        done.results.extend(indexes.iter().map(|&index| (index, None)));
    }
}

/// Does something about each of many processes, each being its number and what `work` takes of it, that waits for them. What came of
/// them is in their order. `None`: it was not done in time, or not tried, for the process holds another reader or there is none
/// left. [`held`] tells from now on of `what` of those that hold readers.
pub(crate) fn each<T, R, F>(about: Vec<(u32, T)>, what: u32, patience: Duration, work: F) -> Vec<Option<R>>
where
    T: Send + Sync + 'static,
    R: Send + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
{
    let count = about.len();
    let part = (count / (4 * MOST_READERS)).clamp(1, PART);
    let job = Arc::new(Each {
        about,
        what,
        work,
        result: PhantomData,
        users: Mutex::default(),
        has_users: AtomicBool::new(false),
    });
    let wait = Wait {
        patience,
        deadline: None,
    };
    let indexes: Vec<usize> = (0..count).collect();
    let mut items: Vec<Vec<usize>> = indexes.chunks(part).map(<[usize]>::to_vec).collect();
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    while !items.is_empty() {
        let expected = items.len();
        let mut postponed = Vec::new();
        for done in run(&job, items, expected, wait) {
            for (index, result) in done.results {
                results[index] = result;
            }
            postponed.extend(done.postponed.into_iter().map(|index| vec![index]));
        }
        items = postponed;
    }
    results
}

/// Does one thing that waits for a process, 0 if its number is not known, as [`each`] does it for many.
pub(crate) fn call<T, W>(pid: u32, what: u32, patience: Duration, work: W) -> Option<T>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let once = Mutex::new(Some(work));
    let work = |once: &Mutex<Option<W>>| lock(once).take().map(|work| work());
    each(vec![(pid, once)], what, patience, work).pop()??
}

/// Looks after the readers of a batch.
struct Watch<'b, J: Job> {
    batch: &'b Arc<Batch<J>>,
    engaged: Vec<(Seat, Seen)>,
    wait: Wait,
}

impl<J: Job> Watch<'_, J> {
    /// Has one more reader work on the batch. False if there is none to be had.
    fn engage(&mut self) -> bool {
        // Who waits behind a quiet reader can be held as well. So not all are tried before it is known who holds.
        let most = if are_scarce() { MOST_LOST } else { MOST_LOST / 2 };
        if LOST.load(Ordering::Relaxed) + self.engaged.len() >= most + MOST_READERS {
            return false;
        }
        let mut given = None;
        // One that has just ended can't be given anything.
        for _ in 0..MOST_READERS {
            let Some(seat) = Seat::take() else { return false };
            if seat.batches.send(Arc::clone(self.batch) as Arc<dyn Work>).is_ok() {
                given = Some(seat);
                break;
            }
        }
        self.engaged.extend(given.map(|seat| (seat, Seen::default())));
        true
    }

    /// Waits until the batch is done, and sees to it that it gets done. Readers that come back in time are kept for the next one.
    fn go_on(&mut self) {
        let mut last_look = Instant::now();
        loop {
            let tick = match self.wait.deadline {
                Some(deadline) => TICK.min(deadline.saturating_duration_since(Instant::now())),
                None => TICK,
            };
            let state = lock(&self.batch.state);
            if state.is_done() || tick.is_zero() {
                break;
            }
            let waited = self.batch.changed.wait_timeout(state, tick);
            let state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_done() {
                break;
            }
            let is_more = state.has_more();
            drop(state);
            // No more than a tick, if we were kept from looking ourselves.
            let passed = last_look.elapsed().min(2 * TICK);
            last_look = Instant::now();
            self.look_after(passed, is_more);
            if self.engaged.is_empty() {
                read_without(self.batch);
                break;
            }
        }
        let mut state = lock(&self.batch.state);
        state.is_closed = true;
        for (seat, _) in self.engaged.drain(..) {
            if state.under_way.values().any(|taken| taken.tid == seat.tid()) {
                lose(&seat)
            } else {
                seat.give_back()
            }
        }
        state.under_way.clear();
    }

    /// Gives up who is held, and puts others in their place.
    fn look_after(&mut self, passed: Duration, is_more: bool) {
        let patience = self.wait.patience;
        let mut vacant = 0;
        let mut index = 0;
        while let Some((seat, seen)) = self.engaged.get_mut(index) {
            let beats = seat.pulse.beats.load(Ordering::Relaxed);
            if beats != seen.beats {
                *seen = Seen {
                    beats,
                    ..Seen::default()
                };
            } else if !seat.pulse.is_running() {
                seen.quiet += passed;
            }
            if seen.quiet >= patience {
                if give_up(self.batch, seat) {
                    lose(seat);
                    vacant += usize::from(!seen.has_stand_in);
                    self.engaged.swap_remove(index);
                    continue;
                }
                // It had done all there was. What others were given up at may have come since, and nobody else may be left to do it.
                seen.quiet = Duration::ZERO;
                if lock(&self.batch.state).has_more() {
                    let _ = seat.batches.send(Arc::clone(self.batch) as Arc<dyn Work>);
                }
            } else if seen.quiet >= QUIET.min(patience) && is_more && !seen.has_stand_in {
                seen.has_stand_in = true;
                vacant += 1;
            }
            index += 1;
        }
        // Stand-ins were not to be had for all of them.
        for _ in 0..vacant.max(usize::from(self.engaged.is_empty())) {
            if !lock(&self.batch.state).has_more() {
                break;
            }
            self.engage();
        }
    }
}

/// Leaves a reader to itself.
fn lose(seat: &Seat) {
    LOST.fetch_add(1, Ordering::Relaxed);
    seat.is_lost.store(true, Ordering::Release);
}

/// Takes from a reader what it is at, and has the rest done by others. False if it is at nothing.
fn give_up<J: Job>(batch: &Batch<J>, seat: &Seat) -> bool {
    let mut state = lock(&batch.state);
    let found = state.under_way.iter().find(|(_, taken)| taken.tid == seat.tid());
    let Some((&ticket, _)) = found else {
        return false;
    };
    let Some(taken) = state.under_way.remove(&ticket) else {
        return false;
    };
    let mark = seat.pulse.mark.load(Ordering::Relaxed);
    let mut done = std::mem::take(&mut *lock(&taken.done));
    let hold = Hold {
        has_ended: Arc::clone(&seat.has_ended),
        owner: Owner::this_process(),
    };
    for item in batch
        .job
        .go_on_behind(&taken.item, mark, &hold, &mut done)
        .into_iter()
        .rev()
    {
        state.waiting.push_front(item);
    }
    state.done.push(done);
    true
}

/// Does the rest of a batch as far as that takes no reader: there is none left.
fn read_without<J: Job>(batch: &Batch<J>) {
    let mut state = lock(&batch.state);
    while let Some(item) = state.take(&batch.job) {
        let mut done = J::Done::default();
        batch.job.without_reader(&item, &mut done);
        state.done.push(done);
    }
}
