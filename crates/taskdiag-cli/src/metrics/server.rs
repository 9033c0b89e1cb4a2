//! The server: hyper, on one thread, with a bounded number of connections and a deadline for every
//! step of a client.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{poll_fn, Future};
use std::io::{self, ErrorKind};
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue, ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{copy, sink, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio::task::{spawn_local, yield_now, AbortHandle, LocalSet};
use tokio::time::{sleep, sleep_until, timeout, Instant};

use super::exposition::{Format, Picture, Single};
use super::families::{whole, Kind, Number};
use super::listen::{Listener, Stream};
use super::own::singles;
use super::sampler::Sampler;
use crate::events::stop::Stop;

/// The maximum number of connections. A further one replaces the least useful.
const MAX_CONNECTIONS: usize = 32;

/// The maximum number of connections that wait for a sample. There is always another one that can
/// be replaced.
const MAX_WAITING: usize = 24;

/// The maximum length of a request. hyper allows no less.
const MAX_BYTES: usize = 8 << 10;

/// How long a client may take to send its request.
const TIME_TO_ASK: Duration = Duration::from_secs(5);

/// How long a client may take to receive its answer.
const TIME_TO_TAKE: Duration = Duration::from_secs(10);

/// How long closing a connection may take, and how many bytes the client may send meanwhile.
const TIME_TO_END: Duration = Duration::from_secs(1);
const MAX_AFTER: u64 = 64 << 10;

/// How long a text is reused, so that slow clients keep few different texts in memory.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// How long the server stops accepting when it is out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The page for people.
const INDEX: &str =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>taskdiag metrics</title></head>\n\
    <body><h1>taskdiag metrics</h1><p><a href=\"/metrics\">Metrics</a></p></body></html>\n";

const PLAIN: &str = "text/plain; charset=utf-8";

/// How to answer scrapes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a scrape waits for a new sample.
    pub deadline: Duration,
    /// A sample up to this age counts as new.
    pub fresh_for: Duration,
}

#[derive(Debug)]
pub struct Server {
    listener: Listener,
    sampler: Sampler,
    options: Options,
    connections: RefCell<Vec<Connection>>,
    /// Room for scrapes that wait.
    room: Semaphore,
    /// The last text made.
    made: RefCell<Option<Made>>,
    counts: RefCell<Counts>,
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
    text: Bytes,
}

#[derive(Debug)]
struct Connection {
    progress: Rc<Progress>,
    task: AbortHandle,
}

/// The phase of a connection, and its deadline.
type Progress = Cell<(Phase, Instant)>;

/// The least useful first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// All is sent. Discards some more input, because closing a socket with unread input could
    /// reset the connection before the answer arrives.
    Ending,
    /// Receiving the request.
    Asking,
    /// Sending the answer.
    Taking,
    /// Waiting for a sample.
    Waiting,
}

impl Server {
    pub fn new(listener: Listener, sampler: Sampler, options: Options) -> Server {
        Server {
            listener,
            sampler,
            options,
            connections: RefCell::default(),
            room: Semaphore::new(MAX_WAITING),
            made: RefCell::default(),
            counts: RefCell::default(),
        }
    }

    /// Serves until a signal arrives.
    pub fn run(self, stop: &Stop) -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let server = Rc::new(self);
        let stop = stop.as_fd().try_clone_to_owned()?;
        let mut sampled = server.sampler.sampled.clone();
        let ends: [Pin<Box<dyn Future<Output = io::Result<()>>>>; 3] = [
            // No pipe, but all that matters is when it becomes readable.
            Box::pin(async { pipe::Receiver::from_owned_fd_unchecked(stop)?.readable().await }),
            Box::pin(async move {
                let _ = sampled.wait_for(|_| false).await;
                Err(io::Error::other("the thread that asks the kernel has ended"))
            }),
            Box::pin(server.accept()),
        ];
        LocalSet::new().block_on(&runtime, first(ends))
    }

    /// Accepts connections for ever.
    async fn accept(self: Rc<Server>) -> io::Result<()> {
        let accepting = self.listener.accepting()?;
        loop {
            match accepting.accept().await {
                Ok(stream) => self.begin(stream),
                // The client is gone already.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.drop_for("no descriptors");
                    sleep(PAUSE).await;
                }
            }
            // Most clients send their request at once.
            yield_now().await;
        }
    }

    /// Serves a new connection. If there are too many, the least useful one ends: one that is over,
    /// otherwise the one that has been sending its request for longest, otherwise the one that has
    /// been receiving its answer for longest. Not all wait for a sample.
    fn begin(self: &Rc<Server>, stream: Box<dyn Stream>) {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| !connection.task.is_finished());
        if connections.len() >= MAX_CONNECTIONS {
            let least = (0..connections.len()).min_by_key(|&index| connections[index].progress.get());
            let least = connections.swap_remove(least.expect("there are some"));
            least.task.abort();
            if least.progress.get().0 != Phase::Ending {
                self.drop_for("too many connections");
            }
        }
        let progress = Rc::new(Cell::new((Phase::Asking, Instant::now() + TIME_TO_ASK)));
        let task = spawn_local(self.clone().serve(stream, progress.clone())).abort_handle();
        connections.push(Connection { progress, task });
    }

    fn drop_for(&self, reason: &'static str) {
        *self.counts.borrow_mut().dropped.entry(reason).or_default() += 1;
    }

    fn count(&self, status: StatusCode) {
        *self.counts.borrow_mut().answers.entry(status.as_u16()).or_default() += 1;
    }

    /// Serves a connection to its end.
    async fn serve(self: Rc<Server>, stream: Box<dyn Stream>, progress: Rc<Progress>) {
        let service = service_fn(|request| self.answer(request, &progress));
        let mut connection = http1::Builder::new()
            .half_close(true)
            .keep_alive(false)
            .max_buf_size(MAX_BYTES)
            .title_case_headers(true)
            .serve_connection(TokioIo::new(stream), service);
        let mut late = pin!(sleep_until(progress.get().1));
        let served = poll_fn(|context| {
            if let Poll::Ready(served) = Pin::new(&mut connection).poll(context) {
                return Poll::Ready(Some(served));
            }
            let (phase, until) = progress.get();
            if phase == Phase::Waiting {
                return Poll::Pending;
            }
            late.as_mut().reset(until);
            late.as_mut().poll(context).map(|()| None)
        });
        match served.await {
            None if progress.get().0 == Phase::Asking => return self.drop_for("slow to ask"),
            None => return self.drop_for("slow to take"),
            Some(Err(error)) if error.is_parse_too_large() => self.count(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            Some(Err(error)) if error.is_parse() => self.count(StatusCode::BAD_REQUEST),
            Some(_) => {}
        }
        progress.set((Phase::Ending, Instant::now() + TIME_TO_END));
        let mut stream = connection.into_parts().io.into_inner();
        // hyper has done so, except after a request for a tunnel or for HTTP/2.
        let _ = stream.shutdown().await;
        let mut rest = stream.take(MAX_AFTER);
        let _ = timeout(TIME_TO_END, copy(&mut rest, &mut sink())).await;
    }

    /// Answers a request.
    async fn answer(
        &self,
        request: Request<Incoming>,
        progress: &Progress,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let (status, content_type, body) = match request.uri().path() {
            _ if !is_read => refusal(StatusCode::METHOD_NOT_ALLOWED),
            "/metrics" => self.scrape(request.headers(), progress).await,
            "/" => (StatusCode::OK, "text/html; charset=utf-8", INDEX.into()),
            "/-/healthy" => (StatusCode::OK, PLAIN, "OK\n".into()),
            _ => refusal(StatusCode::NOT_FOUND),
        };
        self.count(status);
        progress.set((Phase::Taking, Instant::now() + TIME_TO_TAKE));
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let mut put = |name, value| headers.insert(name, HeaderValue::from_static(value));
        put(CONTENT_TYPE, content_type);
        put(CACHE_CONTROL, "no-store");
        put(X_CONTENT_TYPE_OPTIONS, "nosniff");
        if !is_read {
            put(ALLOW, "GET, HEAD");
        }
        Ok(response)
    }

    /// Answers with a new sample, or after some time with an earlier one.
    async fn scrape(&self, headers: &HeaderMap, progress: &Progress) -> (StatusCode, &'static str, Bytes) {
        let text = |value: &HeaderValue| value.to_str().map(str::to_owned).ok();
        let accept: Vec<String> = headers.get_all(ACCEPT).iter().filter_map(text).collect();
        let format = Format::preferred(accept.iter().map(String::as_str));
        let is_stale = self.is_stale(headers, progress).await;
        self.counts.borrow_mut().stale += u64::from(is_stale);
        match self.text(format, is_stale) {
            Ok(text) => (StatusCode::OK, format.content_type(), text),
            Err(_) => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, "no text\n".into()),
        }
    }

    /// Waits for a new sample, unless there is one or too many wait. Returns whether there is none.
    async fn is_stale(&self, headers: &HeaderMap, progress: &Progress) -> bool {
        let mut sampled = self.sampler.sampled.clone();
        let is_fresh = {
            let last = sampled.borrow_and_update();
            last.failure.is_none() && last.picture.at.elapsed() < self.options.fresh_for
        };
        if is_fresh {
            return false;
        }
        let Ok(_room) = self.room.try_acquire() else {
            return true;
        };
        let seconds = headers.get("X-Prometheus-Scrape-Timeout-Seconds");
        let seconds = seconds.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let theirs = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        // Leave some time for receiving the answer.
        let patience = theirs.map_or(self.options.deadline, |theirs| {
            self.options.deadline.min(theirs.mul_f64(0.9))
        });
        progress.set((Phase::Waiting, Instant::now() + patience));
        self.sampler.order();
        match timeout(patience, sampled.changed()).await {
            Ok(Ok(())) => sampled.borrow().failure.is_some(),
            _ => true,
        }
    }

    /// The text of the last picture. A text made a moment ago is reused.
    fn text(&self, format: Format, is_stale: bool) -> Result<Bytes, std::fmt::Error> {
        let picture = self.sampler.sampled.borrow().picture.clone();
        let mut made = self.made.borrow_mut();
        let is_same = |made: &&Made| {
            Arc::ptr_eq(&made.of, &picture)
                && (made.format, made.is_stale) == (format, is_stale)
                && made.at.elapsed() < self.options.fresh_for.min(SHARED_FOR)
        };
        if let Some(made) = made.as_ref().filter(is_same) {
            return Ok(made.text.clone());
        }
        let text: Bytes = picture.text(format, self.own(&picture, is_stale))?.into();
        *made = Some(Made {
            at: Instant::now(),
            of: picture,
            format,
            is_stale,
            text: text.clone(),
        });
        Ok(text)
    }

    /// The metrics about answers.
    fn own(&self, picture: &Picture, is_stale: bool) -> Vec<Single> {
        let counts = self.counts.borrow();
        let age = Number::Real(picture.at.elapsed().as_secs_f64());
        let known = singles! {
            Gauge "taskdiag_metrics_stale",
                "1 if no new sample came in time or it failed, and these values are of an earlier one" =>
                whole(is_stale.into());
            Gauge "taskdiag_metrics_sample_age_seconds", "Time since these values were read" => Some(age);
            Counter "taskdiag_metrics_stale_answers", "Answers that had values of an earlier sample" =>
                whole(counts.stale);
            Counter "taskdiag_metrics_answers", "Answers by status", ["code"] =>
                counts.answers.iter().map(|(code, &count)| ([code], count));
            Counter "taskdiag_metrics_dropped_connections", "Connections that were dropped before they had an answer",
                ["reason"] => counts.dropped.iter().map(|(reason, &count)| ([reason], count));
        };
        known.into_iter().flatten().collect()
    }
}

/// An answer that has its status for a text.
fn refusal(status: StatusCode) -> (StatusCode, &'static str, Bytes) {
    (status, PLAIN, status.canonical_reason().unwrap_or_default().into())
}

/// The result of whichever ends first.
async fn first<T>(mut futures: [Pin<Box<dyn Future<Output = T> + '_>>; 3]) -> T {
    let poll = poll_fn(|context| {
        let mut polled = futures.iter_mut().map(|future| future.as_mut().poll(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    });
    poll.await
}
