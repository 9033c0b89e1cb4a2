//! The server: one thread, a bounded number of connections, and a deadline for every step of a
//! client.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::exposition::{Format, Picture, Single};
use super::families::{Kind, Number};
use super::listen::{Listener, Stream};
use super::request::{self, Page, Parsed, Request, Status};
use super::sampler::Sampler;
use crate::events::stop::Stop;

/// The maximum number of connections. A further one replaces the least useful.
const MOST_CONNECTIONS: usize = 32;

/// The maximum number of connections that wait for a sample. There is always another one that can
/// be replaced.
const MOST_WAITING: usize = 24;

/// How long a client may take to send its request.
const TIME_TO_ASK: Duration = Duration::from_secs(5);

/// How long a client may take to receive its answer.
const TIME_TO_TAKE: Duration = Duration::from_secs(10);

/// How long closing a connection may take, and how many bytes the client may send meanwhile.
const TIME_TO_END: Duration = Duration::from_secs(1);
const MOST_AFTER: usize = 64 << 10;

/// How long a text is reused, so that slow clients keep few different texts in memory.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// How long the server stops accepting when it is out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// How to answer scrapes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a scrape waits for a new sample.
    pub deadline: Duration,
    /// A sample up to this age counts as new.
    pub fresh_for: Duration,
}

/// The server.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    sampler: Sampler,
    options: Options,
    connections: Vec<Connection>,
    picture: Arc<Picture>,
    /// Whether an ordered sample is outstanding.
    is_sampling: bool,
    /// Why the last sample failed.
    failure: Option<String>,
    /// The last text made.
    made: Option<Made>,
    accept_after: Option<Instant>,
    counts: Counts,
}

/// Counters of connections.
#[derive(Debug, Default)]
struct Counts {
    answers: BTreeMap<u16, u64>,
    dropped: BTreeMap<&'static str, u64>,
    stale: u64,
}

/// A text, which several connections can send.
#[derive(Debug)]
struct Made {
    at: Instant,
    of: Arc<Picture>,
    format: Format,
    is_stale: bool,
    text: Arc<[u8]>,
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    phase: Phase,
    /// The deadline of the phase.
    until: Instant,
}

#[derive(Debug)]
enum Phase {
    /// Receiving the request; its bytes so far.
    Asking(Vec<u8>),
    /// Waiting for a sample.
    Waiting(Request),
    Taking {
        head: Vec<u8>,
        body: Arc<[u8]>,
        sent: usize,
    },
    /// All is sent. Discards this much more input, because closing a socket with unread input could
    /// reset the connection before the answer arrives.
    Ending(usize),
    Over,
}

impl Server {
    /// Creates a server that starts with `picture`.
    pub fn new(listener: Listener, sampler: Sampler, picture: Arc<Picture>, options: Options) -> Server {
        Server {
            listener,
            sampler,
            options,
            connections: Vec::new(),
            picture,
            is_sampling: false,
            failure: None,
            made: None,
            accept_after: None,
            counts: Counts::default(),
        }
    }

    /// Serves until a signal arrives.
    pub fn run(mut self, stop: &Stop) -> io::Result<()> {
        loop {
            let (has_clients, ready) = self.wait(stop.as_fd())?;
            if stop.was_asked()? {
                return Ok(());
            }
            if self.sampler.has_ended() {
                return Err(io::Error::other("the thread that asks the kernel has ended"));
            }
            for (index, ready) in ready.into_iter().enumerate().filter(|(_, ready)| !ready.is_empty()) {
                self.step(index, ready);
            }
            while let Some(sampled) = self.sampler.sampled() {
                self.is_sampling = false;
                match sampled {
                    Ok(picture) => {
                        self.picture = picture;
                        self.failure = None;
                    }
                    Err(reason) => self.note_failure(reason),
                }
                self.answer_waiting(self.failure.is_some(), |_| true);
            }
            if has_clients {
                self.accept();
            }
            let now = Instant::now();
            self.answer_waiting(true, |connection| connection.until <= now);
            self.end_late(now);
            self.connections
                .retain(|connection| !matches!(connection.phase, Phase::Over));
        }
    }

    /// Waits for something to do. Returns whether a client connects, and what each connection is
    /// ready for.
    fn wait(&mut self, stop: BorrowedFd<'_>) -> io::Result<(bool, Vec<PollFlags>)> {
        let now = Instant::now();
        self.accept_after = self.accept_after.filter(|after| *after > now);
        let mut fds = vec![
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::new(&self.sampler, PollFlags::IN),
        ];
        let accepts = if self.accept_after.is_none() {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        fds.push(PollFd::new(&self.listener, accepts));
        for connection in &self.connections {
            let flags = match connection.phase {
                Phase::Asking(_) | Phase::Ending(_) => PollFlags::IN,
                Phase::Taking { .. } => PollFlags::OUT,
                Phase::Waiting(_) | Phase::Over => PollFlags::empty(),
            };
            fds.push(PollFd::new(&connection.stream, flags));
        }
        let ends = self.connections.iter().map(|connection| connection.until);
        let next = ends.chain(self.accept_after).min();
        let timeout = next.map(|next| {
            // Round up to whole milliseconds, the unit of poll(2).
            let rest = next.saturating_duration_since(now) + Duration::from_millis(1);
            Timespec::try_from(rest).unwrap_or_default()
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        Ok((ready[2].contains(PollFlags::IN), ready[3..].to_vec()))
    }

    fn note_failure(&mut self, reason: String) {
        if self.failure.as_ref() != Some(&reason) {
            crate::outcome::say(format_args!("a sample failed, the last good one is shown: {reason}"));
        }
        self.failure = Some(reason);
    }

    /// Accepts waiting connections.
    fn accept(&mut self) {
        // The number is limited, so that other clients are served in between.
        for _ in 0..MOST_CONNECTIONS {
            match self.listener.accept() {
                Ok(stream) => {
                    if self.connections.len() >= MOST_CONNECTIONS {
                        self.make_room();
                    }
                    self.connections.push(Connection {
                        stream,
                        phase: Phase::Asking(Vec::new()),
                        until: Instant::now() + TIME_TO_ASK,
                    });
                    // Most clients send their request at once.
                    self.step(self.connections.len() - 1, PollFlags::IN);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client is gone already.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.drop_for("no descriptors");
                    self.accept_after = Some(Instant::now() + PAUSE);
                    return;
                }
            }
        }
    }

    fn drop_for(&mut self, reason: &'static str) {
        *self.counts.dropped.entry(reason).or_default() += 1;
    }

    /// Ends the least useful connection: one that is over, otherwise the one that has been sending
    /// its request for longest, otherwise the one that has been receiving its answer for longest.
    /// Not all wait for a sample.
    fn make_room(&mut self) {
        let rank = |connection: &Connection| match connection.phase {
            Phase::Over => 0,
            Phase::Ending(_) => 1,
            Phase::Asking(_) => 2,
            Phase::Taking { .. } => 3,
            Phase::Waiting(_) => 4,
        };
        let slowest = (0..self.connections.len()).min_by_key(|&index| {
            let connection = &self.connections[index];
            (rank(connection), connection.until)
        });
        if let Some(index) = slowest {
            let connection = self.connections.swap_remove(index);
            if !matches!(connection.phase, Phase::Ending(_) | Phase::Over) {
                self.drop_for("too many connections");
            }
        }
    }

    /// Performs what a connection is ready for.
    fn step(&mut self, index: usize, ready: PollFlags) {
        let connection = &mut self.connections[index];
        match &mut connection.phase {
            Phase::Asking(bytes) => match receive(&mut connection.stream, bytes) {
                Received::Nothing => {}
                Received::End => connection.phase = Phase::Over,
                Received::Bytes => self.hear(index),
            },
            Phase::Taking { .. } => connection.send(),
            Phase::Ending(rest) => {
                let mut bytes = [0; 4096];
                match connection.stream.read(&mut bytes) {
                    Ok(count) if count > 0 && count <= *rest => *rest -= count,
                    Err(error) if is_transient(&error) => {}
                    _ => connection.phase = Phase::Over,
                }
            }
            // The client is gone.
            Phase::Waiting(_) if ready.intersects(PollFlags::ERR | PollFlags::HUP) => connection.phase = Phase::Over,
            Phase::Waiting(_) | Phase::Over => {}
        }
    }

    /// Parses what has arrived of a request.
    fn hear(&mut self, index: usize) {
        let Phase::Asking(bytes) = &self.connections[index].phase else {
            return;
        };
        match request::parse(bytes) {
            Parsed::Partial => {}
            Parsed::Refused(status) => {
                self.answer(index, status, "text/plain; charset=utf-8", status.1.as_bytes(), false)
            }
            Parsed::Request(request) => match request.page {
                Page::Index => {
                    self.answer(
                        index,
                        request::OK,
                        "text/html; charset=utf-8",
                        request::INDEX.as_bytes(),
                        request.is_head,
                    );
                }
                Page::Healthy => {
                    self.answer(
                        index,
                        request::OK,
                        "text/plain; charset=utf-8",
                        b"OK\n",
                        request.is_head,
                    );
                }
                Page::Metrics => self.scrape(index, request),
            },
        }
    }

    /// Answers with a new sample, or waits for one.
    fn scrape(&mut self, index: usize, request: Request) {
        let now = Instant::now();
        let connection = &mut self.connections[index];
        connection.phase = Phase::Waiting(request);
        let is_waiting = |connection: &&Connection| matches!(connection.phase, Phase::Waiting(_));
        let has_room = self.connections.iter().filter(is_waiting).count() <= MOST_WAITING;
        if self.failure.is_none() && now.duration_since(self.picture.at) < self.options.fresh_for {
            return self.answer_metrics(index, false);
        }
        if !has_room {
            return self.answer_metrics(index, true);
        }
        // Leave some time for receiving the answer.
        let patience = request.timeout.map_or(self.options.deadline, |timeout| {
            self.options.deadline.min(timeout.mul_f64(0.9))
        });
        self.connections[index].until = now + patience;
        if !self.is_sampling {
            self.is_sampling = true;
            self.sampler.order();
        }
    }

    fn answer_waiting(&mut self, is_stale: bool, is_due: impl Fn(&Connection) -> bool) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            if matches!(connection.phase, Phase::Waiting(_)) && is_due(connection) {
                self.answer_metrics(index, is_stale);
            }
        }
    }

    fn answer_metrics(&mut self, index: usize, is_stale: bool) {
        let Phase::Waiting(request) = self.connections[index].phase else {
            return;
        };
        self.counts.stale += u64::from(is_stale);
        match self.text(request.format, is_stale) {
            Ok(text) => self.answer_shared(index, request::OK, request.format.content_type(), text, request.is_head),
            Err(_) => self.answer(
                index,
                request::UNAVAILABLE,
                "text/plain; charset=utf-8",
                b"no text\n",
                false,
            ),
        }
    }

    /// The text of the picture. A text made a moment ago is reused.
    fn text(&mut self, format: Format, is_stale: bool) -> Result<Arc<[u8]>, std::fmt::Error> {
        let is_same = |made: &&Made| {
            Arc::ptr_eq(&made.of, &self.picture)
                && (made.format, made.is_stale) == (format, is_stale)
                && made.at.elapsed() < self.options.fresh_for.min(SHARED_FOR)
        };
        if let Some(made) = self.made.as_ref().filter(is_same) {
            return Ok(made.text.clone());
        }
        let text: Arc<[u8]> = self.picture.text(format, self.own(is_stale))?.into_bytes().into();
        self.made = Some(Made {
            at: Instant::now(),
            of: self.picture.clone(),
            format,
            is_stale,
            text: text.clone(),
        });
        Ok(text)
    }

    /// The metrics about answers.
    fn own(&self, is_stale: bool) -> Vec<Single> {
        let single = |name, kind, help, value| Single::new(name, kind, help, value);
        let labelled = |name, help, series| Single {
            name,
            kind: Kind::Counter,
            help,
            series,
        };
        let answers = self.counts.answers.iter();
        let answers = answers.map(|(code, &count)| (vec![("code", code.to_string())], Number::Whole(count)));
        let dropped = self.counts.dropped.iter();
        let dropped = dropped.map(|(reason, &count)| (vec![("reason", (*reason).to_owned())], Number::Whole(count)));
        vec![
            single(
                "taskdiag_metrics_stale",
                Kind::Gauge,
                "1 if no new sample came in time or it failed, and these values are of an earlier one",
                Number::Whole(is_stale.into()),
            ),
            single(
                "taskdiag_metrics_sample_age_seconds",
                Kind::Gauge,
                "Time since these values were read",
                Number::Real(self.picture.at.elapsed().as_secs_f64()),
            ),
            single(
                "taskdiag_metrics_stale_answers",
                Kind::Counter,
                "Answers that had values of an earlier sample",
                Number::Whole(self.counts.stale),
            ),
            labelled("taskdiag_metrics_answers", "Answers by status", answers.collect()),
            labelled(
                "taskdiag_metrics_dropped_connections",
                "Connections that were dropped before they had an answer",
                dropped.collect(),
            ),
        ]
    }

    fn answer(&mut self, index: usize, status: Status, content_type: &str, body: &[u8], is_head: bool) {
        self.answer_shared(index, status, content_type, body.into(), is_head);
    }

    fn answer_shared(&mut self, index: usize, status: Status, content_type: &str, body: Arc<[u8]>, is_head: bool) {
        *self.counts.answers.entry(status.0).or_default() += 1;
        let connection = &mut self.connections[index];
        let head = request::head(status, content_type, body.len());
        let body = if is_head { Arc::from([]) } else { body };
        connection.phase = Phase::Taking { head, body, sent: 0 };
        connection.until = Instant::now() + TIME_TO_TAKE;
        connection.send();
    }

    /// Ends connections past their deadline.
    fn end_late(&mut self, now: Instant) {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if connection.until > now {
                continue;
            }
            let reason = match connection.phase {
                Phase::Asking(_) => "slow to ask",
                Phase::Taking { .. } => "slow to take",
                Phase::Waiting(_) | Phase::Ending(_) | Phase::Over => "",
            };
            if !matches!(connection.phase, Phase::Waiting(_)) {
                connection.phase = Phase::Over;
            }
            if !reason.is_empty() {
                self.drop_for(reason);
            }
        }
    }
}

enum Received {
    Nothing,
    Bytes,
    End,
}

/// Receives a part of a request.
fn receive(stream: &mut Stream, bytes: &mut Vec<u8>) -> Received {
    let mut part = [0; request::MOST_BYTES];
    let room = request::MOST_BYTES.saturating_sub(bytes.len()).max(1);
    match stream.read(&mut part[..room]) {
        Ok(0) => Received::End,
        Ok(count) => {
            bytes.extend_from_slice(&part[..count]);
            Received::Bytes
        }
        Err(error) if is_transient(&error) => Received::Nothing,
        Err(_) => Received::End,
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Connection {
    /// Sends as much as the client has room for.
    fn send(&mut self) {
        let Phase::Taking { head, body, sent } = &mut self.phase else {
            return;
        };
        loop {
            let rest = match sent.checked_sub(head.len()) {
                None => &head[*sent..],
                Some(of_body) => &body[of_body..],
            };
            if rest.is_empty() {
                let _ = self.stream.shutdown();
                self.phase = Phase::Ending(MOST_AFTER);
                self.until = Instant::now() + TIME_TO_END;
                return;
            }
            match self.stream.write(rest) {
                Ok(count) if count > 0 => *sent += count,
                Err(error) if is_transient(&error) => return,
                _ => {
                    self.phase = Phase::Over;
                    return;
                }
            }
        }
    }
}
