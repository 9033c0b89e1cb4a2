//! The unprivileged client: a separate process, of a user with many idle processes. It runs what it
//! is asked for, and reports how long it took.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{sched_setaffinity, CpuSet};
use taskdiag::{Field, Fields, Group, Handle, Query, Snapshot, SourceId};
use taskdiag_zoo::Farm;

use crate::loops::{self, Visit};
use crate::Result;

/// A user id that nothing else uses.
pub const USER: u32 = 61_235;

/// The number of clients that ask at the same time.
const CROWD: usize = 16;

/// The number of round trips per time measurement.
const ROUND_TRIPS: u32 = 300;

pub fn fields() -> Fields {
    let fields = Field::ALL.iter().copied();
    fields
        .filter(|field| matches!(field.group(), Group::Base | Group::Cred))
        .collect()
}

/// The client's report: a time, or answers per second; and the number of rows.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    pub value: f64,
    pub rows: usize,
}

/// The client process, as the benchmark sees it.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Starts the client and its idle processes.
    pub fn start(processes: usize) -> Result<Client> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("--broker-client").arg(processes.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).uid(USER).gid(USER);
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut client = Client { child, input, output };
        client.hear()?;
        Ok(client)
    }

    /// The client's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Runs a command in the client.
    pub fn ask(&mut self, what: &str, socket: &Path) -> Result<Said> {
        writeln!(self.input.as_mut().ok_or("no input")?, "{what} {}", socket.display())?;
        self.hear()
    }

    fn hear(&mut self) -> Result<Said> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["ok", value, rows] => Ok(Said {
                value: value.parse()?,
                rows: rows.parse()?,
            }),
            _ => Err(format!("the broker's client: {line:?}").into()),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// The time to send a request's length to another thread and back, in seconds: the lower bound for
/// any broker.
pub fn echo(there: &CpuSet, here: &CpuSet) -> Result<f64> {
    use rustix::net::{recv, send, socketpair, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let put = |socket: &OwnedFd| send(socket, &[0; 48], SendFlags::NOSIGNAL);
    let take = |socket: &OwnedFd| recv(socket, &mut [0; 48][..], RecvFlags::empty());
    let took = thread::scope(|scope| -> rustix::io::Result<Duration> {
        let other = scope.spawn(|| {
            sched_setaffinity(None, there)?;
            (0..ROUND_TRIPS).try_for_each(|_| take(&far).and_then(|_| put(&far)).map(drop))
        });
        let own = scope.spawn(|| {
            sched_setaffinity(None, here)?;
            let start = Instant::now();
            (0..ROUND_TRIPS).try_for_each(|_| put(&near).and_then(|_| take(&near)).map(drop))?;
            Ok(start.elapsed())
        });
        other.join().unwrap_or(Err(rustix::io::Errno::IO))?;
        own.join().unwrap_or(Err(rustix::io::Errno::IO))
    })?;
    Ok(took.as_secs_f64() / f64::from(ROUND_TRIPS))
}

/// The rate of the same crowd for answers of `bytes` that one thread has ready and sends in
/// packets: the upper bound that such sockets allow.
pub fn crowd_of_packets(bytes: usize) -> Result<f64> {
    use rustix::event::{poll, PollFd, PollFlags};
    use rustix::net::{recv, send, socketpair, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
    use taskdiag_protocol::wire::PACKET;

    /// How much the broker leaves in a socket and sends to one client before it serves the next.
    const SOCKET: usize = 192 << 10;
    const TURN: usize = 256 << 10;

    let pairs: Vec<(OwnedFd, OwnedFd)> = (0..CROWD)
        .map(|_| {
            let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            rustix::net::sockopt::set_socket_send_buffer_size(&pair.1, SOCKET)?;
            Ok(pair)
        })
        .collect::<rustix::io::Result<_>>()?;
    let (near, far): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let (stop, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    thread::scope(|scope| -> rustix::io::Result<()> {
        let server = scope.spawn(move || -> rustix::io::Result<()> {
            let packet = vec![1; PACKET];
            let mut left = [0; CROWD];
            let mut open = [true; CROWD];
            while open.contains(&true) {
                let events = |index: usize| if left[index] > 0 { PollFlags::OUT } else { PollFlags::IN };
                let mut polled: Vec<PollFd<'_>> = (0..CROWD)
                    .filter(|&index| open[index])
                    .map(|index| PollFd::new(&far[index], events(index)))
                    .collect();
                poll(&mut polled, None)?;
                let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
                let indices: Vec<usize> = (0..CROWD).filter(|&index| open[index]).collect();
                for (index, _) in indices.into_iter().zip(ready).filter(|(_, ready)| *ready) {
                    if left[index] == 0 {
                        let (len, _) = recv(&far[index], &mut [0; 48][..], RecvFlags::empty())?;
                        open[index] = len > 0;
                        left[index] = if len > 0 { bytes } else { 0 };
                    }
                    let mut turn = TURN;
                    while left[index] > 0 && turn > 0 {
                        let len = PACKET.min(left[index]);
                        match send(&far[index], &packet[..len], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                            Ok(_) => left[index] -= len,
                            Err(rustix::io::Errno::AGAIN) => break,
                            Err(errno) => return Err(errno),
                        }
                        turn = turn.saturating_sub(len);
                    }
                }
            }
            Ok(())
        });
        let clients: Vec<_> = near
            .into_iter()
            .map(|socket| {
                let (stop, answers) = (&stop, &answers);
                scope.spawn(move || -> rustix::io::Result<()> {
                    let mut room = vec![0; bytes + PACKET];
                    while !stop.load(Ordering::Relaxed) {
                        send(&socket, &[0; 48], SendFlags::NOSIGNAL)?;
                        let mut received = 0;
                        while received < bytes {
                            received += recv(&socket, &mut room[received..], RecvFlags::empty())?.0;
                        }
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        let ends = clients
            .into_iter()
            .map(|client| client.join().unwrap_or(Err(rustix::io::Errno::IO)));
        let ends: rustix::io::Result<Vec<()>> = ends.collect();
        server.join().unwrap_or(Err(rustix::io::Errno::IO))?;
        ends.map(drop)
    })?;
    Ok(answers.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
}

/// The client's main loop.
pub fn serve(processes: usize) -> Result<()> {
    let _farm = Farm::start(processes, 1)?;
    println!("ok 0 {processes}");
    let mut worker = Worker::default();
    for line in io::stdin().lines() {
        let line = line?;
        let (what, socket) = line.split_once(' ').ok_or("what?")?;
        let said = match worker.work(what, Path::new(socket)) {
            Ok(said) => format!("ok {} {}", said.value, said.rows),
            Err(error) => format!("error {error:#}"),
        };
        println!("{said}");
        io::stdout().flush()?;
    }
    Ok(())
}

#[derive(Default)]
struct Worker {
    socket: PathBuf,
    handle: Option<Handle>,
    snapshot: Snapshot,
}

impl Worker {
    fn work(&mut self, what: &str, socket: &Path) -> Result<Said> {
        if self.socket != socket {
            self.handle = Some(handle(socket));
            self.socket = socket.to_owned();
        }
        let all = Query::processes().fields(fields());
        match what {
            "status" => {
                let run = loops::processes(&[Visit::Read("status")])()?;
                Ok(Said {
                    value: run.took.as_secs_f64(),
                    rows: run.rows,
                })
            }
            "broker" => timed(self.handle.as_mut().ok_or("no handle")?, &all, &mut self.snapshot),
            "one" => {
                let handle = self.handle.as_mut().ok_or("no handle")?;
                let query = Query::process(std::process::id()).fields(fields());
                let start = Instant::now();
                for _ in 0..ROUND_TRIPS {
                    handle.query_into(&query, &mut self.snapshot)?;
                }
                Ok(Said {
                    value: start.elapsed().as_secs_f64() / f64::from(ROUND_TRIPS),
                    rows: self.snapshot.len(),
                })
            }
            "crowd" => crowd(socket, &all),
            _ => Err(format!("{what:?} is unknown").into()),
        }
    }
}

fn handle(socket: &Path) -> Handle {
    Handle::new().with_source(SourceId::Broker).with_socket(socket)
}

fn timed(handle: &mut Handle, query: &Query, snapshot: &mut Snapshot) -> Result<Said> {
    let start = Instant::now();
    handle.query_into(query, snapshot)?;
    crate::library::read_rows(snapshot, false);
    Ok(Said {
        value: start.elapsed().as_secs_f64(),
        rows: snapshot.len(),
    })
}

/// Lets many clients ask for everything repeatedly. Returns answers per second.
fn crowd(socket: &Path, query: &Query) -> Result<Said> {
    let (stop, answers, rows) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CROWD)
            .map(|_| {
                scope.spawn(|| -> taskdiag::Result<()> {
                    let (mut handle, mut snapshot) = (handle(socket), Snapshot::default());
                    while !stop.load(Ordering::Relaxed) {
                        handle.query_into(query, &mut snapshot)?;
                        answers.fetch_add(1, Ordering::Relaxed);
                        rows.store(snapshot.len() as u64, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .try_for_each(|client| client.join().map_err(|_| "a client failed")?.map_err(Into::into))
    })
    .map_err(|error: Box<dyn std::error::Error>| error)?;
    Ok(Said {
        value: answers.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64(),
        rows: rows.load(Ordering::Relaxed) as usize,
    })
}
