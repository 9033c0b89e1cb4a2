//! Inside the helper process: how an animal is created, reports, is kept, and is removed.
//!
//! One helper ("keeper") looks after one animal. It has a single thread, so forking is safe there,
//! while the tests that ask for animals have many threads. It is the subreaper of all processes
//! that it starts. When its input ends, because the guard was dropped or the test died in any way,
//! it kills and reaps them. If the keeper itself is killed, the parent death signal kills its
//! children too.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libc::pid_t;
use rustix::process::Resource;
use serde::{Deserialize, Serialize};

use crate::arg_area::joined;
use crate::facts::Facts;
use crate::{sys, titles, Role};

/// The environment variable that makes the zoo binary play a role instead of reading its arguments.
///
/// It is not an argument, because many animals are about arguments.
pub(crate) const ROLE: &str = "ZOO_ROLE";
/// The descriptor on which a freshly exec'd animal reports. It is fixed, so that no environment
/// variable is needed for it and the environment is exactly known.
const REPORT: RawFd = 100;
/// The descriptors of an obedient animal: the source of its commands, and the destination of its
/// answers.
const COMMANDS: RawFd = 101;
const ANSWERS: RawFd = 102;

/// How long an expected state may take to appear on an overloaded machine before it counts as a
/// failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// Adds to an error what was being done, and keeps its kind.
pub(crate) trait Doing<T> {
    fn doing(self, what: &str) -> io::Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: &str) -> io::Result<T> {
        let error = |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
        self.map_err(|cause| error(cause.into()))
    }
}

/// What a child or a helper says of an animal, in a line of JSON.
#[derive(Serialize, Deserialize)]
enum Message {
    /// It is as it should be.
    Ready(Box<Facts>),
    /// The host does not allow it.
    Refused(String),
    /// This code is mistaken.
    Failed(String),
}

/// Says what is known of an animal, or why there is none.
pub(crate) fn say(to: &mut impl io::Write, made: io::Result<Facts>) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, NotFound, PermissionDenied, ReadOnlyFilesystem, StorageFull, Unsupported};
    let message = made.map_or_else(
        |error| match error.kind() {
            InvalidInput | NotFound | PermissionDenied | ReadOnlyFilesystem | StorageFull | Unsupported => {
                Message::Refused(error.to_string())
            }
            _ => Message::Failed(error.to_string()),
        },
        |facts| Message::Ready(Box::new(facts)),
    );
    let line = serde_json::to_string(&message)? + "\n";
    to.write_all(line.as_bytes())?;
    to.flush()
}

/// Waits for what a child or a helper says.
pub(crate) fn hear(from: &mut impl io::BufRead) -> io::Result<Facts> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the helper process ended without a word",
        ));
    }
    match serde_json::from_str(&line).doing("the zoo binary says something else: is it out of date?")? {
        Message::Ready(facts) => Ok(*facts),
        Message::Refused(reason) => Err(io::Error::new(io::ErrorKind::Unsupported, reason)),
        Message::Failed(reason) => Err(io::Error::other(reason)),
    }
}

/// The child's side of its creation: the facts that it knows about itself, and the pipe to report
/// them.
#[derive(Debug)]
pub(crate) struct Report {
    pipe: File,
    pub(crate) facts: Facts,
}

impl Report {
    /// Sets the name of the process.
    pub(crate) fn set_comm(&mut self, name: &[u8]) -> io::Result<()> {
        self.facts.comm = Some(name.to_vec());
        sys::set_comm(name)
    }

    /// Reports the facts, and that the animal is as it should be. Afterwards the process must only
    /// rest.
    pub(crate) fn ready(&mut self) -> io::Result<()> {
        say(&mut self.pipe, Ok(self.facts.clone()))
    }

    /// Reports readiness, and sleeps until killed. This is the end for a process that must not
    /// return.
    pub(crate) fn rest(&mut self, result: io::Result<()>) -> ! {
        let told = match result.and_then(|()| sys::die_with_parent()) {
            Ok(()) => self.ready(),
            Err(error) => {
                let _ = say(&mut self.pipe, Err(error));
                sys::exit(1)
            }
        };
        if told.is_err() {
            sys::exit(1);
        }
        sys::rest()
    }

    /// The report of a process that was started with [`exec`].
    fn inherited() -> io::Result<Report> {
        let comm = std::env::current_exe()?.file_name().map(comm_of);
        let args: Vec<Vec<u8>> = std::env::args_os().map(OsString::into_vec).collect();
        let cmdline_raw = Some(joined(&args));
        let facts = Facts {
            pid: sys::getpid(),
            comm,
            cmdline: Some(args),
            cmdline_raw,
            ..Facts::default()
        };
        Ok(Report {
            pipe: sys::file(REPORT),
            facts,
        })
    }
}

/// Forks a child that runs `body` and then sleeps. Returns once the child sleeps or is about to.
///
/// The returned facts are those that `body` wrote into its report. Their pid is the child's own,
/// unless `body` (or a process that it forked or exec'd) named another process as the animal.
pub(crate) fn fork_child(body: impl FnOnce(&mut Report) -> io::Result<()>) -> io::Result<Facts> {
    let (read, write) = sys::pipe()?;
    match sys::fork().doing("fork")? {
        None => {
            drop(read);
            let mut report = Report {
                pipe: write,
                facts: Facts::default(),
            };
            let result = sys::die_with_parent().and_then(|()| body(&mut report));
            report.rest(result)
        }
        Some(pid) => {
            drop(write);
            match hear(&mut BufReader::new(read)) {
                Ok(mut facts) => {
                    if facts.pid == 0 {
                        facts.pid = pid;
                    }
                    Ok(facts)
                }
                Err(error) => {
                    let _ = sys::kill(pid, libc::SIGKILL);
                    let _ = sys::wait(pid, 0);
                    Err(error)
                }
            }
        }
    }
}

/// Replaces the process with the zoo binary at `program` (None: this one) in the given role.
/// Returns only on failure.
pub(crate) fn exec(
    report: &mut Report,
    role: &str,
    program: Option<&Path>,
    args: &[Vec<u8>],
    env: &[Vec<u8>],
) -> io::Error {
    let program = match program {
        Some(path) => path.to_owned(),
        None => match std::env::current_exe() {
            Ok(path) => path,
            Err(error) => return error,
        },
    };
    let ready_to_exec = sys::dup_to(report.pipe.as_raw_fd(), REPORT)
        // A quarter of the stack limit, and never more than 6 MiB, may be used for arguments.
        .and_then(|()| sys::raise_limit(Resource::Stack, 32 << 20))
        .and_then(|()| Ok(CString::new(program.into_os_string().into_vec())?));
    match ready_to_exec {
        Ok(path) => sys::exec(&path, args, &environment(&Role::Animal(role.to_owned()), env)),
        Err(error) => error,
    }
}

/// The environment of a process in `role`: the wanted variables, and the role.
pub(crate) fn environment(role: &Role, wanted: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let role = serde_json::to_string(role).expect("roles have JSON");
    [wanted, &[format!("{ROLE}={role}").into_bytes()]].concat()
}

/// An environment with room for titles that are longer than the arguments, or even than a page.
pub(crate) fn roomy_environment() -> Vec<Vec<u8>> {
    vec![[b"PADDING=".as_slice(), &vec![b'p'; 2 * sys::page_size()]].concat()]
}

/// Forks a child that execs the zoo binary in `role` with these arguments.
pub(crate) fn exec_child(role: &str, program: Option<&Path>, args: &[Vec<u8>], env: &[Vec<u8>]) -> io::Result<Facts> {
    fork_child(|report| Err(exec(report, role, program, args, env)).doing("exec"))
}

/// The state of a task: the letter after the name in its stat file.
fn state_of(tid: pid_t) -> io::Result<char> {
    let stat = fs::read(format!("/proc/{tid}/stat"))?;
    let after_name = stat.iter().rposition(|&byte| byte == b')').map_or(0, |at| at + 2);
    Ok(stat.get(after_name).map_or('?', |&byte| byte as char))
}

/// Waits until the task is in a state. This polls, because the task itself can't act once it is in
/// the state.
pub fn settle(tid: pid_t, state: char) -> io::Result<()> {
    let start = Instant::now();
    loop {
        let now = state_of(tid).doing(&format!("waiting for task {tid} to be in state {state}"))?;
        if now == state {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!(
                "task {tid} is in state {now}, and not {state} as it should be"
            )));
        }
        std::thread::yield_now();
    }
}

/// Waits until a thread of the process is in a state.
pub(crate) fn settle_one_of(pid: pid_t, state: char) -> io::Result<()> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let tid = task?.file_name().to_string_lossy().parse::<pid_t>();
            if tid.is_ok_and(|tid| state_of(tid).is_ok_and(|now| now == state)) {
                return Ok(());
            }
        }
        std::thread::yield_now();
    }
    Err(io::Error::other(format!(
        "no thread of process {pid} comes to be in state {state}"
    )))
}

/// The children of a process, by their ids in the reader's namespace.
pub(crate) fn children_of(pid: pid_t) -> io::Result<Vec<pid_t>> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("children"))?;
        children.extend(
            text.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<pid_t>().ok()),
        );
    }
    children.sort_unstable();
    Ok(children)
}

/// The one child of a process.
pub(crate) fn only_child_of(pid: pid_t) -> io::Result<pid_t> {
    match children_of(pid)?[..] {
        [child] => Ok(child),
        ref other => Err(io::Error::other(format!(
            "process {pid} has the children {other:?} and not one"
        ))),
    }
}

/// Kills and reaps every descendant. As subreaper, this process becomes the parent of descendants
/// whose parent dies.
pub(crate) fn kill_descendants() {
    loop {
        for child in children_of(sys::getpid()).unwrap_or_default() {
            let _ = sys::kill(child, libc::SIGKILL);
        }
        // Wait for at least one, then take all that are ready, because listing a farm's children
        // takes time.
        let mut options = libc::__WALL;
        loop {
            match sys::wait(-1, options) {
                Ok(0) => break,
                Ok(_) => options |= libc::WNOHANG,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

/// Reports processes, or why there are none, and keeps them until the input ends.
pub(crate) fn keep_all(pids: io::Result<Vec<pid_t>>) -> ! {
    let facts = |pids| Facts {
        children: Some(pids),
        ..Facts::default()
    };
    if say(&mut io::stdout(), pids.map(facts)).is_ok() {
        let _ = io::stdin().lock().skip_until(b'\0');
    }
    kill_descendants();
    sys::exit(0)
}

/// What an animal needs in addition to processes. It is removed after the animal is gone.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    dir: Option<PathBuf>,
    cgroups: Vec<PathBuf>,
    line: Option<Line>,
}

/// The connection to an animal that obeys commands.
#[derive(Debug)]
struct Line {
    to: File,
    from: BufReader<File>,
}

impl Keeper {
    /// A directory for this animal alone.
    pub(crate) fn dir(&mut self) -> io::Result<&Path> {
        if self.dir.is_none() {
            let name = format!("taskdiag-zoo-{}", sys::getpid());
            let made = |place: PathBuf| {
                let dir = place.join(&name);
                fs::create_dir(&dir).map(|()| dir)
            };
            // An initramfs may not have /tmp.
            let dir = made(std::env::temp_dir())
                .or_else(|_| made("/run".into()))
                .or_else(|_| made("/".into()));
            self.dir = Some(dir.doing("making a temporary directory")?);
        }
        Ok(self.dir.as_deref().unwrap_or(Path::new("/")))
    }

    /// Makes a cgroup directory.
    pub(crate) fn make_cgroup(&mut self, path: PathBuf) -> io::Result<()> {
        fs::create_dir(&path).doing(&format!("making the cgroup {path:?}"))?;
        self.cgroups.push(path);
        Ok(())
    }

    /// Starts an exec'd animal that obeys commands: see [`obey`].
    pub(crate) fn exec_obedient(&mut self, role: &str, args: &[Vec<u8>]) -> io::Result<Facts> {
        let (command_read, command_write) = sys::pipe()?;
        let (answer_read, answer_write) = sys::pipe()?;
        self.line = Some(Line {
            to: command_write,
            from: BufReader::new(answer_read),
        });
        fork_child(|report| {
            sys::dup_to(command_read.as_raw_fd(), COMMANDS)?;
            sys::dup_to(answer_write.as_raw_fd(), ANSWERS)?;
            Err(exec(report, role, None, args, &roomy_environment())).doing("exec")
        })
    }

    /// Passes a command on and waits for the answer.
    fn command(&mut self, text: &str) -> io::Result<Facts> {
        let line = self
            .line
            .as_mut()
            .ok_or_else(|| io::Error::other("this animal obeys no commands"))?;
        line.to.write_all(format!("{text}\n").as_bytes())?;
        hear(&mut line.from)
    }

    fn clear(&mut self) {
        for cgroup in self.cgroups.drain(..).rev() {
            // A cgroup counts as busy for a moment after its last process was reaped.
            let start = Instant::now();
            while let Err(error) = fs::remove_dir(&cgroup) {
                if error.raw_os_error() != Some(libc::EBUSY) || start.elapsed() > PATIENCE {
                    eprintln!("zoo: {cgroup:?} could not be removed: {error}");
                    break;
                }
                std::thread::yield_now();
            }
        }
        if let Some(dir) = self.dir.take() {
            if let Err(error) = fs::remove_dir_all(&dir) {
                eprintln!("zoo: {dir:?} could not be removed: {error}");
            }
        }
    }
}

/// Waits until an animal sleeps (or is in the state that it is made for), with all its threads.
fn settle_all(facts: &Facts) -> io::Result<()> {
    settle(facts.pid, facts.state.unwrap_or('S'))?;
    for &tid in facts.tids.iter().flatten().filter(|&&tid| tid != facts.pid) {
        settle(tid, 'S')?;
    }
    Ok(())
}

/// The life of a keeper: creates the animal, serves its commands until the input ends, and removes
/// it.
pub(crate) fn keep(birth: impl FnOnce(&mut Keeper) -> io::Result<Facts>) -> ! {
    let mut keeper = Keeper::default();
    let born = sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0)
        .and_then(|()| birth(&mut keeper))
        .and_then(|facts| settle_all(&facts).map(|()| facts));
    if say(&mut io::stdout(), born).is_ok() {
        for line in io::stdin().lock().lines() {
            let answer = line
                .and_then(|line| keeper.command(&line))
                .and_then(|facts| settle_all(&facts).map(|()| facts));
            if say(&mut io::stdout(), answer).is_err() {
                break;
            }
        }
    }
    kill_descendants();
    keeper.clear();
    sys::exit(0)
}

/// The life of an animal that obeys commands, each a word and its arguments in JSON: `title` rewrites
/// its title, `exec` replaces it.
///
/// The answer is sent when the command has taken effect. For exec, the new process image sends it,
/// which runs this function again.
pub(crate) fn obey(mut report: Report, answer_first: bool) -> ! {
    let mut answers = Report {
        pipe: sys::file(ANSWERS),
        facts: report.facts.clone(),
    };
    let result = if answer_first { answers.ready() } else { report.ready() };
    if result.is_err() {
        sys::exit(1);
    }
    for command in BufReader::new(sys::file(COMMANDS)).lines() {
        let done = command.and_then(|command| {
            let (word, args): (String, Vec<Vec<u8>>) = serde_json::from_str(&command)?;
            match (word.as_str(), &args[..]) {
                ("title", [title]) => {
                    // The former arguments are now one string of bytes that may or may not look
                    // like a list.
                    answers.facts.cmdline = None;
                    answers.facts.cmdline_raw = Some(titles::write_in_place(title)?);
                    Ok(())
                }
                ("exec", [_, ..]) => Err(exec(&mut report, "obey-again", None, &args, &roomy_environment())),
                _ => Err(io::Error::other(format!("unknown command {command:?}"))),
            }
        });
        let told = match done {
            Ok(()) => answers.ready(),
            Err(error) => say(&mut answers.pipe, Err(error)),
        };
        if told.is_err() {
            break;
        }
    }
    sys::exit(0)
}

/// Plays the role of an exec'd animal.
pub(crate) fn play(role: &str) -> ! {
    let mut report = match Report::inherited() {
        Ok(report) => report,
        Err(error) => {
            eprintln!("zoo: role {role:?}: {error}");
            sys::exit(1)
        }
    };
    match role {
        "rest" => report.rest(Ok(())),
        "obey" => obey(report, false),
        "obey-again" => obey(report, true),
        _ => {
            let result = titles::rewrite(role, &mut report.facts);
            report.rest(result)
        }
    }
}

/// The name that exec gives to a process.
fn comm_of(file_name: &std::ffi::OsStr) -> Vec<u8> {
    file_name.as_bytes().iter().copied().take(15).collect()
}
