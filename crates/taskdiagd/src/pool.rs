//! The helpers, from the loop's side: readers that do jobs for clients, and closers. None of them is waited for. One that does not say
//! anything for a while is ended, and another one takes its place.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use zerocopy::IntoBytes as _;

use crate::accounts::Account;
use crate::job::{word, Job};
use crate::keeper::{Keeper, Said};
use crate::sys;

/// Readers and closers at a time.
const READERS: usize = 12;
const CLOSERS: usize = 4;

/// Readers that work for one account at a time.
const READERS_OF_ACCOUNT: usize = 3;

/// Helpers that were ended for what processes of one account did to them, and have not ended.
const LOST_OF_ACCOUNT: usize = 4;

/// How long a process may keep a reader waiting, where nothing but locks can.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// And where the kernel has all of its page tables to look at.
pub const LONG_PATIENCE: Duration = Duration::from_secs(2);

/// How long a connection may take to be closed.
const CLOSING: Duration = Duration::from_millis(30);

/// How long the keeper may take to start a helper.
const STARTING: Duration = Duration::from_secs(2);

/// When it is tried again what could not be done.
const LATER: Duration = Duration::from_millis(20);

/// For whom a reader works: the place of a client, and which one that was.
pub type For = (usize, u32);

/// What a helper does.
#[derive(Debug)]
enum Work {
    Nothing,
    Job { client: For, account: Account },
    Closing { account: Account },
}

/// A helper.
#[derive(Debug)]
pub struct Helper {
    /// Where it is heard and told.
    pub socket: OwnedFd,
    pid: u32,
    is_reader: bool,
    work: Work,
    /// When it is given up; none while it waits for the loop.
    until: Option<Instant>,
    /// Since when it waits for the loop, which waits for the reader's client.
    paused: Option<Instant>,
    /// Which of those that have had its place it is.
    pub generation: u32,
}

/// A job that waits for a reader.
#[derive(Debug)]
struct Waiting {
    client: For,
    account: Account,
    job: Job,
    patience: Duration,
}

/// All of them.
#[derive(Debug)]
pub struct Pool {
    keeper: Keeper,
    helpers: Vec<Option<Helper>>,
    generation: u32,
    jobs: VecDeque<Waiting>,
    connections: VecDeque<(OwnedFd, Account)>,
    /// Until when a reader, and a closer, is to have been started.
    starting: [Option<Instant>; 2],
    lost: Vec<(u32, Account)>,
    /// Helpers that the keeper could not be told to end.
    untold: Vec<u32>,
}

/// What became of something.
#[derive(Debug)]
pub enum Event {
    /// A helper has a place from now on.
    Began(usize),
    /// The reader of a client was held up, or ended.
    Held(For),
    /// A connection of an account is closed.
    Closed(Account),
}

impl Pool {
    /// Without helpers yet.
    pub fn new(keeper: Keeper) -> Pool {
        Pool {
            keeper,
            helpers: Vec::new(),
            generation: 0,
            jobs: VecDeque::new(),
            connections: VecDeque::new(),
            starting: [None, None],
            lost: Vec::new(),
            untold: Vec::new(),
        }
    }

    /// Who starts them.
    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// The one that has a place.
    pub fn helper(&self, place: usize) -> Option<&Helper> {
        self.helpers.get(place)?.as_ref()
    }

    /// For whom the reader at a place works.
    pub fn works_for(&self, place: usize) -> Option<For> {
        match self.helper(place)?.work {
            Work::Job { client, .. } => Some(client),
            _ => None,
        }
    }

    /// The reader that works for a client.
    pub fn reader_of(&self, client: For) -> Option<usize> {
        (0..self.helpers.len()).find(|&place| self.works_for(place) == Some(client))
    }

    /// Has a job done for a client. Fails at once where too many readers have been lost to processes of this account.
    pub fn ask(&mut self, client: For, account: Account, job: Job, patience: Duration) -> Result<(), Errno> {
        if self.lost.iter().filter(|(_, of)| *of == account).count() >= LOST_OF_ACCOUNT {
            return Err(Errno::BUSY);
        }
        self.jobs.push_back(Waiting {
            client,
            account,
            job,
            patience,
        });
        Ok(())
    }

    /// Forgets what a client waits for: it has left. A reader that is at it is ended.
    pub fn forget(&mut self, client: For) {
        self.jobs.retain(|job| job.client != client);
        if let Some(place) = self.reader_of(client) {
            self.end(place);
        }
    }

    /// Has a connection closed in which there may be descriptors of its client's.
    pub fn close(&mut self, connection: OwnedFd, account: Account) {
        self.connections.push_back((connection, account));
    }

    /// The reader has said something, and goes on with its job or is done with it.
    pub fn is_heard(&mut self, place: usize, is_done: bool, patience: Duration) {
        if let Some(Some(helper)) = self.helpers.get_mut(place) {
            helper.until = Some(Instant::now() + patience);
            if is_done {
                (helper.work, helper.until, helper.paused) = (Work::Nothing, None, None);
            }
        }
    }

    /// The loop does not listen to a reader for the time being, whose client has to take something first.
    pub fn pause(&mut self, place: usize) {
        if let Some(Some(helper)) = self.helpers.get_mut(place) {
            helper.until = None;
            helper.paused.get_or_insert_with(Instant::now);
        }
    }

    /// It listens again. Says whether it did not.
    pub fn resume(&mut self, place: usize, patience: Duration) -> bool {
        let Some(Some(helper)) = self.helpers.get_mut(place) else {
            return false;
        };
        helper.until.get_or_insert_with(|| Instant::now() + patience);
        helper.paused.take().is_some()
    }

    /// If others wait for a reader and none is to be had: for whom one works that has waited longer than any of those may keep it.
    pub fn sluggish(&self, now: Instant) -> Option<For> {
        if self.next_job().is_none() || self.idle(true).is_some() || self.count(|_| true) < READERS {
            return None;
        }
        let paused = self.helpers.iter().flatten().filter_map(|helper| match helper.work {
            Work::Job { client, .. } => Some((helper.paused?, client)),
            _ => None,
        });
        let first = paused.min_by_key(|(since, _)| *since)?;
        (now.duration_since(first.0) >= PATIENCE).then_some(first.1)
    }

    /// A closer has said that it is done.
    pub fn is_closed(&mut self, place: usize) -> Option<Account> {
        let helper = self.helpers.get_mut(place)?.as_mut()?;
        helper.until = None;
        match std::mem::replace(&mut helper.work, Work::Nothing) {
            Work::Closing { account } => Some(account),
            _ => None,
        }
    }

    /// Ends a helper. Says what that means for whom it worked.
    pub fn end(&mut self, place: usize) -> Option<Event> {
        let helper = self.helpers.get_mut(place)?.take()?;
        if self.keeper.ask(word::KILL, helper.pid).is_err() {
            self.untold.push(helper.pid);
        }
        match helper.work {
            Work::Nothing => None,
            Work::Job { client, account } => {
                self.lost.push((helper.pid, account));
                Some(Event::Held(client))
            }
            Work::Closing { account } => {
                self.lost.push((helper.pid, account));
                Some(Event::Closed(account))
            }
        }
    }

    /// What the keeper has said. An error is its end.
    pub fn hear_keeper(&mut self) -> Result<Vec<Event>, Errno> {
        let mut events = Vec::new();
        while let Some(said) = self.keeper.hear()? {
            match said {
                Said::Reader(helper) => events.extend(self.begin(helper, true)),
                Said::Closer(helper) => events.extend(self.begin(helper, false)),
                Said::Ended(pid) => self.lost.retain(|(lost, _)| *lost != pid),
            }
        }
        Ok(events)
    }

    fn begin(&mut self, helper: Option<(u32, OwnedFd)>, is_reader: bool) -> Option<Event> {
        self.starting[usize::from(is_reader)] = None;
        let (pid, socket) = helper?;
        self.generation = self.generation.wrapping_add(1);
        let place = self.helpers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.helpers.push(None);
            self.helpers.len() - 1
        });
        self.helpers[place] = Some(Helper {
            socket,
            pid,
            is_reader,
            work: Work::Nothing,
            until: None,
            paused: None,
            generation: self.generation,
        });
        Some(Event::Began(place))
    }

    /// Gives out what waits, as far as there are helpers, and has more of these started if there may be more. Returns whose readers could
    /// not be told.
    pub fn give_out(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(next) = self.next_job() {
            let Some(place) = self.idle(true) else {
                self.start(true);
                break;
            };
            let Some(Waiting {
                client,
                account,
                job,
                patience,
            }) = self.jobs.remove(next)
            else {
                break;
            };
            if let Some(Some(helper)) = self.helpers.get_mut(place) {
                helper.work = Work::Job { client, account };
                helper.until = Some(Instant::now() + patience);
                let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
                if rustix::net::send(&helper.socket, job.as_bytes(), flags).is_err() {
                    events.extend(self.end(place));
                }
            }
        }
        while let Some(next) = self.next_connection() {
            let Some(place) = self.idle(false) else {
                self.start(false);
                break;
            };
            let Some((connection, account)) = self.connections.remove(next) else {
                break;
            };
            if let Some(Some(helper)) = self.helpers.get_mut(place) {
                use std::os::fd::AsFd as _;
                match sys::send(helper.socket.as_fd(), &[1], Some(connection.as_fd()), true) {
                    // Ours is not the last descriptor of it now, so to close it takes no time.
                    Ok(()) => {
                        helper.work = Work::Closing { account };
                        helper.until = Some(Instant::now() + CLOSING);
                    }
                    Err(errno) => {
                        self.connections.push_back((connection, account));
                        match errno {
                            // Too many are under way: later.
                            Errno::AGAIN | Errno::TOOMANYREFS => break,
                            _ => events.extend(self.end(place)),
                        }
                    }
                }
            }
        }
        events
    }

    /// Of the accounts that wait, the one with the fewest readers comes first.
    fn next_job(&self) -> Option<usize> {
        let readers = |account| self.count(|work| matches!(work, Work::Job { account: of, .. } if *of == account));
        let waiting = self.jobs.iter().enumerate();
        let waiting = waiting.map(|(index, job)| (readers(job.account), index));
        let next = waiting.min()?;
        (next.0 < READERS_OF_ACCOUNT).then_some(next.1)
    }

    fn next_connection(&self) -> Option<usize> {
        let closers = |account| self.count(|work| matches!(work, Work::Closing { account: of } if *of == account));
        let waiting = self.connections.iter().enumerate();
        let waiting = waiting.map(|(index, (_, account))| (closers(*account), index));
        waiting.min().map(|(_, index)| index)
    }

    fn count(&self, is: impl Fn(&Work) -> bool) -> usize {
        self.helpers.iter().flatten().filter(|helper| is(&helper.work)).count()
    }

    fn idle(&self, is_reader: bool) -> Option<usize> {
        let is_idle = |helper: &Helper| helper.is_reader == is_reader && matches!(helper.work, Work::Nothing);
        self.helpers
            .iter()
            .position(|helper| helper.as_ref().is_some_and(is_idle))
    }

    fn start(&mut self, is_reader: bool) {
        let of_kind = self
            .helpers
            .iter()
            .flatten()
            .filter(|helper| helper.is_reader == is_reader);
        let (most, what) = if is_reader {
            (READERS, word::START_READER)
        } else {
            (CLOSERS, word::START_CLOSER)
        };
        let starting = &mut self.starting[usize::from(is_reader)];
        if of_kind.count() < most && starting.is_none() && self.keeper.ask(what, 0).is_ok() {
            *starting = Some(Instant::now() + STARTING);
        }
    }

    /// Gives up who has been quiet for too long.
    pub fn expire(&mut self, now: Instant) -> Vec<Event> {
        let keeper = &self.keeper;
        self.untold.retain(|&pid| keeper.ask(word::KILL, pid).is_err());
        for starting in &mut self.starting {
            *starting = starting.filter(|until| *until > now);
        }
        let is_due = |helper: &Helper| helper.until.is_some_and(|until| until <= now);
        let due = |place: &usize| self.helpers[*place].as_ref().is_some_and(is_due);
        let due: Vec<usize> = (0..self.helpers.len()).filter(due).collect();
        due.into_iter().filter_map(|place| self.end(place)).collect()
    }

    /// When there is something to do without an event.
    pub fn next_end(&self) -> Option<Instant> {
        let helpers = self.helpers.iter().flatten().filter_map(|helper| helper.until);
        let waits = !self.connections.is_empty() || !self.untold.is_empty() || !self.jobs.is_empty();
        let soon = waits.then(|| Instant::now() + LATER);
        helpers.chain(self.starting.into_iter().flatten()).chain(soon).min()
    }
}
