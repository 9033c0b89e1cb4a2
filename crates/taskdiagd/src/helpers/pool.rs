//! The loop's view of the helpers: readers, which do jobs for clients, and closers. The loop waits
//! for none of them. A helper that makes no progress for a while is killed and replaced.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SendFlags;
use zerocopy::IntoBytes as _;

use super::keeper::{Keeper, Report};
use super::messages::{Job, Role, CLOSE, CONNECTION, KILL};
use crate::quotas::Account;
use crate::slots::{SlotId, Slots};
use crate::sys;

/// The most readers at a time.
const MAX_READERS: usize = 12;

/// The most closers at a time.
const MAX_CLOSERS: usize = 4;

/// The most readers at a time that work for one account.
const MAX_READERS_PER_ACCOUNT: usize = 3;

/// When this many killed helpers of one account have not ended, its jobs are refused.
const MAX_KILLED_PER_ACCOUNT: usize = 4;

/// How long a reader may make no progress where the kernel waits only for locks.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// How long a reader may make no progress where the kernel walks all page tables of a process; also
/// the limit for any helper that waits only for a processor.
pub const SMAPS_PATIENCE: Duration = Duration::from_secs(2);

/// How long closing a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(30);

/// How long the keeper may take to start a helper.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// When to retry what could not be done.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// A client: its slot at the server.
pub type ClientId = SlotId;

/// A helper: its slot here.
pub type HelperId = SlotId;

/// What a helper does.
#[derive(Debug)]
enum Work {
    Nothing,
    Job { client: ClientId, account: Account },
    Closing { account: Account },
}

/// A helper.
#[derive(Debug)]
pub struct Helper {
    /// The socket to it.
    pub socket: OwnedFd,
    pid: u32,
    role: Role,
    work: Work,
    /// When it is killed unless it makes progress. `None` while it has no work, or waits for the
    /// loop.
    deadline: Option<Deadline>,
    /// Since when it has been waiting for the loop, which waits for its client to read.
    paused_since: Option<Instant>,
}

/// How long a helper may make no progress.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    /// When to check whether it waits for something.
    at: Instant,
    patience: Duration,
    /// When its time is up even if it only waited for a processor.
    last: Instant,
}

impl Deadline {
    fn after(patience: Duration) -> Deadline {
        let now = Instant::now();
        Deadline {
            at: now + patience,
            patience,
            last: now + patience.max(SMAPS_PATIENCE),
        }
    }

    /// The next deadline, if the helper has only waited for a processor. `None` if its time is up
    /// even so.
    fn extended(self, now: Instant) -> Option<Deadline> {
        let at = now + self.patience;
        (now < self.last).then_some(Deadline { at, ..self })
    }
}

/// A job waiting for a reader.
#[derive(Debug)]
struct QueuedJob {
    client: ClientId,
    account: Account,
    job: Job,
    patience: Duration,
}

/// What the server must know.
#[derive(Debug)]
pub enum Event {
    /// A helper was started: watch its socket.
    Started(HelperId),
    /// The reader that worked for a client was killed, or has ended.
    ReaderLost(ClientId),
    /// A connection is closed.
    Closed,
}

/// All helpers, and the work that waits for them.
#[derive(Debug)]
pub struct Pool {
    pub keeper: Keeper,
    helpers: Slots<Helper>,
    jobs: VecDeque<QueuedJob>,
    connections: VecDeque<(OwnedFd, Account)>,
    /// Helpers that were asked for, and when they are overdue.
    due: Vec<(Role, Instant)>,
    /// Helpers that were killed at work and have not ended: their pids, and the accounts that they
    /// worked for.
    killed: Vec<(u32, Account)>,
    /// Helpers to kill, about which the keeper could not be told yet.
    unsent_kills: Vec<u32>,
}

impl Pool {
    /// A pool without helpers.
    pub fn new(keeper: Keeper) -> Pool {
        Pool {
            keeper,
            helpers: Slots::default(),
            jobs: VecDeque::new(),
            connections: VecDeque::new(),
            due: Vec::new(),
            killed: Vec::new(),
            unsent_kills: Vec::new(),
        }
    }

    /// A helper, unless it was killed.
    pub fn helper(&self, id: HelperId) -> Option<&Helper> {
        self.helpers.get(id)
    }

    /// The client that a reader works for.
    pub fn client_of(&self, id: HelperId) -> Option<ClientId> {
        match self.helper(id)?.work {
            Work::Job { client, .. } => Some(client),
            _ => None,
        }
    }

    /// Whether a reader works that does not wait for the loop.
    pub fn has_jobs_at_work(&self) -> bool {
        let works = |helper: &Helper| matches!(helper.work, Work::Job { .. }) && helper.deadline.is_some();
        self.helpers.values().any(works)
    }

    /// The reader that works for a client.
    pub fn reader_of(&self, client: ClientId) -> Option<HelperId> {
        let works_for = |helper: &Helper| matches!(helper.work, Work::Job { client: of, .. } if of == client);
        self.find(works_for)
    }

    /// Queues a job for a client. `EBUSY` if too many readers were killed at work for this account
    /// and have not ended.
    pub fn queue_job(&mut self, client: ClientId, account: Account, job: Job, patience: Duration) -> Result<(), Errno> {
        if self.killed.iter().filter(|(_, of)| *of == account).count() >= MAX_KILLED_PER_ACCOUNT {
            return Err(Errno::BUSY);
        }
        self.jobs.push_back(QueuedJob {
            client,
            account,
            job,
            patience,
        });
        Ok(())
    }

    /// Drops the jobs of a client that has left. A reader that works for it is killed.
    pub fn cancel_jobs(&mut self, client: ClientId) {
        self.jobs.retain(|job| job.client != client);
        if let Some(id) = self.reader_of(client) {
            self.kill(id);
        }
    }

    /// Queues a connection for a closer.
    pub fn queue_close(&mut self, connection: OwnedFd, account: Account) {
        self.connections.push_back((connection, account));
    }

    /// Records that a reader has sent something: it continues its job, or is done with it.
    pub fn reader_progressed(&mut self, id: HelperId, is_done: bool, patience: Duration) {
        if let Some(helper) = self.helpers.get_mut(id) {
            helper.deadline = Some(Deadline::after(patience));
            if is_done {
                (helper.work, helper.deadline, helper.paused_since) = (Work::Nothing, None, None);
            }
        }
    }

    /// Records that the loop does not listen to a reader until the reader's client has read
    /// something.
    pub fn pause(&mut self, id: HelperId) {
        if let Some(helper) = self.helpers.get_mut(id) {
            helper.deadline = None;
            helper.paused_since.get_or_insert_with(Instant::now);
        }
    }

    /// Records that the loop listens to a reader again. Returns whether it was paused.
    pub fn resume(&mut self, id: HelperId, patience: Duration) -> bool {
        let Some(helper) = self.helpers.get_mut(id) else {
            return false;
        };
        helper.deadline.get_or_insert_with(|| Deadline::after(patience));
        helper.paused_since.take().is_some()
    }

    /// The client whose reader has been paused the longest, and longer than the patience. `None`
    /// unless others wait for a reader and none is free.
    pub fn client_to_drop(&self, now: Instant) -> Option<ClientId> {
        if self.next_job().is_none()
            || self.idle_helper(Role::Reader).is_some()
            || self.count_of(Role::Reader) < MAX_READERS
        {
            return None;
        }
        let paused = self.helpers.values().filter_map(|helper| match helper.work {
            Work::Job { client, .. } => Some((helper.paused_since?, client)),
            _ => None,
        });
        let (since, client) = paused.min_by_key(|(since, _)| *since)?;
        (now.duration_since(since) >= PATIENCE).then_some(client)
    }

    /// Records that a closer is done. Returns whether it had a connection.
    pub fn closer_finished(&mut self, id: HelperId) -> bool {
        let Some(helper) = self.helpers.get_mut(id) else {
            return false;
        };
        helper.deadline = None;
        let work = std::mem::replace(&mut helper.work, Work::Nothing);
        matches!(work, Work::Closing { .. })
    }

    /// Kills a helper. Returns the event for the client that it worked for.
    pub fn kill(&mut self, id: HelperId) -> Option<Event> {
        let helper = self.helpers.remove(id)?;
        if self.keeper.send(KILL, helper.pid).is_err() {
            self.unsent_kills.push(helper.pid);
        }
        match helper.work {
            Work::Nothing => None,
            Work::Job { client, account } => {
                self.killed.push((helper.pid, account));
                Some(Event::ReaderLost(client))
            }
            Work::Closing { account } => {
                self.killed.push((helper.pid, account));
                Some(Event::Closed)
            }
        }
    }

    /// Takes the keeper's reports. An error means that the keeper has ended.
    pub fn take_reports(&mut self) -> Result<Vec<Event>, Errno> {
        let mut events = Vec::new();
        while let Some(report) = self.keeper.receive()? {
            match report {
                Report::Started(role, helper) => {
                    self.due.retain(|(of, _)| *of != role);
                    events.extend(helper.map(|(pid, socket)| {
                        Event::Started(self.helpers.insert(Helper {
                            socket,
                            pid,
                            role,
                            work: Work::Nothing,
                            deadline: None,
                            paused_since: None,
                        }))
                    }));
                }
                Report::Ended(pid) => self.killed.retain(|(killed, _)| *killed != pid),
            }
        }
        Ok(events)
    }

    /// Gives queued jobs and connections to idle helpers, and asks for more helpers where there are
    /// too few.
    pub fn assign(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(next) = self.next_job() {
            let Some(id) = self.idle_helper(Role::Reader) else {
                self.start(Role::Reader);
                break;
            };
            if let Some(job) = self.jobs.remove(next) {
                events.extend(self.assign_job(id, &job));
            }
        }
        while let Some(next) = self.next_connection() {
            let Some(id) = self.idle_helper(Role::Closer) else {
                self.start(Role::Closer);
                break;
            };
            let Some((connection, account)) = self.connections.remove(next) else {
                break;
            };
            match self.assign_connection(id, &connection, account) {
                // The closer keeps its descriptor until it is told to close it. So this one is not
                // the last, and closing it does not wait.
                Ok(()) => {
                    drop(connection);
                    if self.send_to(id, CLOSE).is_err() {
                        events.extend(self.kill(id));
                    }
                }
                Err(errno) => {
                    self.connections.push_back((connection, account));
                    // Too many descriptors are in flight: later.
                    if matches!(errno, Errno::AGAIN | Errno::TOOMANYREFS) {
                        break;
                    }
                    events.extend(self.kill(id));
                }
            }
        }
        events
    }

    fn assign_job(&mut self, id: HelperId, queued: &QueuedJob) -> Option<Event> {
        let helper = self.helpers.get_mut(id)?;
        helper.work = Work::Job {
            client: queued.client,
            account: queued.account,
        };
        helper.deadline = Some(Deadline::after(queued.patience));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&helper.socket, queued.job.as_bytes(), flags) {
            Ok(_) => None,
            Err(_) => self.kill(id),
        }
    }

    fn assign_connection(&mut self, id: HelperId, connection: &OwnedFd, account: Account) -> Result<(), Errno> {
        let helper = self.helpers.get_mut(id).ok_or(Errno::SRCH)?;
        let file = Some(connection.as_fd());
        sys::send_with_file(helper.socket.as_fd(), &[CONNECTION], file, SendFlags::DONTWAIT)?;
        helper.work = Work::Closing { account };
        helper.deadline = Some(Deadline::after(CLOSE_TIMEOUT));
        Ok(())
    }

    fn send_to(&self, id: HelperId, message: u8) -> Result<(), Errno> {
        let helper = self.helpers.get(id).ok_or(Errno::SRCH)?;
        sys::send_with_file(helper.socket.as_fd(), &[message], None, SendFlags::DONTWAIT)
    }

    /// The next job: one of the account with the fewest readers at work.
    fn next_job(&self) -> Option<usize> {
        let readers = |account| self.count(|work| matches!(work, Work::Job { account: of, .. } if *of == account));
        let jobs = self.jobs.iter().enumerate();
        let (readers, index) = jobs.map(|(index, job)| (readers(job.account), index)).min()?;
        (readers < MAX_READERS_PER_ACCOUNT).then_some(index)
    }

    /// The next connection: one of the account with the fewest closers at work.
    fn next_connection(&self) -> Option<usize> {
        let closers = |account| self.count(|work| matches!(work, Work::Closing { account: of } if *of == account));
        let connections = self.connections.iter().enumerate();
        let queued = connections.map(|(index, (_, account))| (closers(*account), index));
        queued.min().map(|(_, index)| index)
    }

    fn count(&self, is: impl Fn(&Work) -> bool) -> usize {
        self.helpers.values().filter(|helper| is(&helper.work)).count()
    }

    fn find(&self, is: impl Fn(&Helper) -> bool) -> Option<HelperId> {
        self.helpers.iter().find(|(_, helper)| is(helper)).map(|(id, _)| id)
    }

    fn idle_helper(&self, role: Role) -> Option<HelperId> {
        self.find(|helper| helper.role == role && matches!(helper.work, Work::Nothing))
    }

    fn count_of(&self, role: Role) -> usize {
        self.helpers.values().filter(|helper| helper.role == role).count()
    }

    /// Asks for one more helper, unless there are enough or one is on its way.
    fn start(&mut self, role: Role) {
        let most = match role {
            Role::Reader => MAX_READERS,
            Role::Closer => MAX_CLOSERS,
        };
        let is_needed = self.count_of(role) < most && self.due.iter().all(|(of, _)| *of != role);
        if is_needed && self.keeper.send(role as u32, 0).is_ok() {
            self.due.push((role, Instant::now() + START_TIMEOUT));
        }
    }

    /// Kills helpers whose deadline has passed. Those that only wait for a processor, according to
    /// `is_running`, get more time.
    pub fn check_deadlines(&mut self, now: Instant, mut is_running: impl FnMut(u32) -> bool) -> Vec<Event> {
        let keeper = &self.keeper;
        self.unsent_kills.retain(|&pid| keeper.send(KILL, pid).is_err());
        self.due.retain(|(_, due)| *due > now);
        let is_late = |helper: &Helper| helper.deadline.is_some_and(|deadline| deadline.at <= now);
        let late = self.helpers.iter().filter(|(_, helper)| is_late(helper));
        let late: Vec<HelperId> = late.map(|(id, _)| id).collect();
        let mut events = Vec::new();
        for id in late {
            let Some(helper) = self.helpers.get_mut(id) else {
                continue;
            };
            let extended = helper.deadline.and_then(|deadline| deadline.extended(now));
            if extended.is_some() && is_running(helper.pid) {
                helper.deadline = extended;
            } else {
                events.extend(self.kill(id));
            }
        }
        events
    }

    /// When there is work to do even if no event comes.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = self.helpers.values().filter_map(|helper| Some(helper.deadline?.at));
        let has_queued = !self.connections.is_empty() || !self.unsent_kills.is_empty() || !self.jobs.is_empty();
        let retry = has_queued.then(|| Instant::now() + RETRY_AFTER);
        let due = self.due.iter().map(|(_, due)| *due);
        deadlines.chain(due).chain(retry).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a helper that waits for a processor gets more time, up to two seconds in total,
    /// and no more time where the deadline is two seconds anyway.
    #[test]
    fn deadlines_are_extended_up_to_a_limit() {
        let began = Instant::now();
        let (mut deadline, mut times) = (Deadline::after(PATIENCE), 0);
        while let Some(next) = deadline.extended(deadline.at) {
            assert_eq!(next.at, deadline.at + PATIENCE);
            (deadline, times) = (next, times + 1);
        }
        assert_eq!(times, 9);
        assert!(deadline.at >= began + SMAPS_PATIENCE);
        let sizes = Deadline::after(SMAPS_PATIENCE);
        assert!(sizes.extended(sizes.at).is_none());
    }
}
