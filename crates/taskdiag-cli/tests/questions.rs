//! The questions of docs/files.md and docs/sockets.md: all commands listed for a question are run,
//! and must give the same answer.
//!
//! The test starts processes with files and sockets of many kinds, in namespaces of the test's
//! thread. This needs root. dev/setup.sh installs the commands for comparison.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{copy_program, Sleeper};
use serde_json::Value;

/// A row of a table: a question, the commands of other projects, and taskdiag's.
#[derive(Debug)]
struct Question {
    text: String,
    theirs: Vec<String>,
    ours: Vec<String>,
}

/// The rows of the tables under "Questions" of a document.
fn questions(document: &str) -> Vec<Question> {
    let path = format!("{}/../../docs/{document}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let part = text.split("\n## ").find(|part| part.starts_with("Questions\n"));
    let rows = part.expect("a section").lines().filter(|line| line.starts_with("| "));
    let rows = rows.map(|row| {
        let cells: Vec<String> = row
            .replace("\\|", "\0")
            .split('|')
            .map(|cell| cell.trim().replace('\0', "|"))
            .collect();
        // The texts in backquotes.
        let commands = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Question {
            text: cells[1].clone(),
            theirs: commands(&cells[2]),
            ours: commands(&cells[3]),
        }
    });
    rows.filter(|row| row.text != "question").collect()
}

/// A use: a process, and a descriptor or another kind of use.
type Use = (u32, String);

/// The contents of an output.
#[derive(Debug)]
enum Answer {
    /// Only processes.
    Processes(BTreeSet<u32>),
    Uses(BTreeSet<Use>),
}

/// How a process uses a file, in taskdiag's words. `None` if the use does not count here.
fn used_for(word: &str) -> Option<String> {
    let digits = word.trim_end_matches(|end: char| !end.is_ascii_digit());
    let name = match word {
        "rtd" => "root",
        "txt" => "exe",
        "mem" | "DEL" | "shm" => "map",
        "cwd" | "root" | "exe" | "map" => word,
        _ if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => digits,
        _ => return None,
    };
    Some(name.to_owned())
}

/// The numbers after `before` and `between` wherever these occur in a text: `pid=1,fd=2`.
fn pairs(text: &str, before: &str, between: &str) -> BTreeSet<Use> {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let found = text.split(before).skip(1).filter_map(|rest| {
        let pid = number(rest);
        let fd = number(rest[pid.len()..].strip_prefix(between)?);
        Some((pid.parse().ok()?, fd))
    });
    found.collect()
}

/// The owners in a taskdiag table: `PID/COMM:FD`.
fn owners(text: &str) -> BTreeSet<Use> {
    let words = text.split_ascii_whitespace().filter_map(|word| {
        let (pid, rest) = word.split_once('/')?;
        let (_, fd) = rest.rsplit_once(':')?;
        fd.parse::<u32>().ok()?;
        Some((pid.parse().ok()?, fd.to_owned()))
    });
    words.collect()
}

/// The uses in taskdiag's JSON lines.
fn of_json(text: &str) -> BTreeSet<Use> {
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a row"));
    let uses = rows.map(|row| {
        let pid = row["pid"].as_u64().expect("a process") as u32;
        let used_for = row["fd"].as_u64().map(|fd| fd.to_string());
        (
            pid,
            used_for.unwrap_or_else(|| row["use"].as_str().expect("a use").to_owned()),
        )
    });
    uses.collect()
}

/// The uses in a table of files with a line of headings.
fn of_table(headings: &str, lines: &str) -> BTreeSet<Use> {
    // Threads have these, of which our processes have one.
    let of_threads = ["TID", "TASKCMD"];
    let headings = headings.split_ascii_whitespace();
    let headings: Vec<&str> = headings.filter(|word| !of_threads.contains(word)).collect();
    let column = |names: &[&str]| headings.iter().position(|heading| names.contains(heading));
    let pid = column(&["PID", "pid"]).expect("processes");
    let used_as = column(&["FD", "ASSOC", "fd"]).expect("uses");
    let beside = column(&["use"]);
    let uses = lines.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let word = match *words.get(used_as)? {
            "-" => words[beside?],
            word => word,
        };
        Some((words[pid].parse().ok()?, used_for(word)?))
    });
    uses.collect()
}

/// Parses the output of a command.
fn answer(command: &str, output: &Output) -> Answer {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let are_numbers = text.split_ascii_whitespace().all(|word| word.parse::<u32>().is_ok());
    if command.starts_with("ls ") {
        let pid = command
            .split('/')
            .nth(2)
            .and_then(|pid| pid.parse().ok())
            .expect("a process");
        let fds = rest
            .lines()
            .filter_map(|line| line.split_once(" -> ")?.0.rsplit(' ').next());
        return Answer::Uses(fds.map(|fd| (pid, fd.to_owned())).collect());
    }
    if command.starts_with("ss ") {
        return Answer::Uses(pairs(&text, "pid=", ",fd="));
    }
    // The command also lists the kernel, which is not a process.
    if command.starts_with("fuser ") || are_numbers && !text.is_empty() {
        let pids = text.split_ascii_whitespace().filter_map(|word| word.parse().ok());
        return Answer::Processes(pids.collect());
    }
    if text.starts_with('{') {
        return Answer::Uses(of_json(&text));
    }
    if first.contains("OWNERS") {
        return Answer::Uses(owners(rest));
    }
    if first.contains("PID") || first.contains("pid") {
        return Answer::Uses(of_table(first, rest));
    }
    assert!(text.is_empty(), "{command}: {output:?}");
    Answer::Uses(BTreeSet::new())
}

/// The part of an answer that is about the processes of the test.
fn about(ours: &BTreeMap<u32, &'static str>, answer: Answer) -> Answer {
    match answer {
        Answer::Processes(pids) => Answer::Processes(pids.into_iter().filter(|pid| ours.contains_key(pid)).collect()),
        Answer::Uses(uses) => Answer::Uses(uses.into_iter().filter(|(pid, _)| ours.contains_key(pid)).collect()),
    }
}

impl Answer {
    fn processes(&self) -> BTreeSet<u32> {
        match self {
            Answer::Processes(pids) => pids.clone(),
            Answer::Uses(uses) => uses.iter().map(|(pid, _)| *pid).collect(),
        }
    }

    /// Whether two answers agree, as far as both have details.
    fn agrees(&self, other: &Answer) -> bool {
        match (self, other) {
            (Answer::Uses(one), Answer::Uses(other)) => one == other,
            _ => self.processes() == other.processes(),
        }
    }
}

/// The processes of a test, and the meaning of the names in the documents.
struct World {
    directory: PathBuf,
    processes: Vec<(&'static str, Sleeper)>,
    /// Descriptors that no other process holds.
    stays: Vec<OwnedFd>,
    names: Vec<(&'static str, String)>,
}

impl World {
    /// Creates a directory that every user can enter, with a program of the same name.
    fn new(name: &str) -> World {
        let directory = std::env::temp_dir().join(format!("taskdiag-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory");
        let sleep = Command::new("sh")
            .args(["-c", "command -v sleep"])
            .output()
            .expect("a shell");
        let sleep = PathBuf::from(String::from_utf8(sleep.stdout).expect("a path").trim_end());
        copy_program(&sleep, &directory.join("nginx")).expect("a copy");
        World {
            directory,
            processes: Vec::new(),
            stays: Vec::new(),
            names: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Gives a name of the documents a meaning here.
    fn means(&mut self, name: &'static str, here: impl Into<String>) {
        self.names.push((name, here.into()));
    }

    /// Starts a process that alone has these descriptors. Returns their numbers in it.
    fn start(&mut self, about: &'static str, command: &mut Command, held: Vec<OwnedFd>) -> u32 {
        let fds: Vec<i32> = held.iter().map(|file| file.as_raw_fd()).collect();
        let keep = move || {
            for &fd in &fds {
                // SAFETY: a system call without pointers.
                if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: fcntl(2) may be called between fork and exec.
        unsafe { command.pre_exec(keep) };
        let sleeper = Sleeper::start(command.process_group(0).stdout(std::process::Stdio::null()));
        let pid = sleeper.pid().parse().expect("a number");
        self.processes.push((about, sleeper));
        pid
    }

    fn pids(&self) -> BTreeMap<u32, &'static str> {
        let pid = |(about, sleeper): &(&'static str, Sleeper)| (sleeper.pid().parse().expect("a number"), *about);
        self.processes.iter().map(pid).collect()
    }

    /// A command of a document, with its names replaced.
    fn meant(&self, command: &str) -> String {
        let (mut meant, mut rest) = (String::new(), command);
        while let Some(next) = rest.chars().next() {
            let named = self.names.iter().find(|(name, _)| rest.starts_with(name));
            let (len, here) = named.map_or((next.len_utf8(), None), |(name, here)| (name.len(), Some(here)));
            meant.push_str(here.map_or(&rest[..len], |here| here));
            rest = &rest[len..];
        }
        meant
    }

    /// Runs a command of a document.
    fn run(&self, command: &str) -> Output {
        let command = self.meant(command);
        let ours = Path::new(env!("CARGO_BIN_EXE_taskdiag")).parent().expect("a directory");
        let path = format!("{}:{}", ours.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).env("PATH", path).env("LC_ALL", "C.UTF-8");
        // On a busy machine, even a process that holds no lock may answer slowly.
        let output = shell.env("TASKDIAG_PATIENCE", "5").output().expect("a shell");
        assert_ne!(
            output.status.code(),
            Some(127),
            "{command}: {output:?}; dev/setup.sh installs it"
        );
        output
    }

    /// Compares the answers of the commands listed for a question. An error lists the differences,
    /// or says that no process was found.
    fn compare(&self, question: &Question) -> Result<(), String> {
        let pids = self.pids();
        let commands = question.theirs.iter().chain(&question.ours);
        // netstat uses the same interface as ss, and is in another package.
        let commands = commands.filter(|command| !command.starts_with("netstat "));
        let answers: Vec<(&String, Output, Answer)> = commands
            .map(|command| {
                let output = self.run(command);
                let said = about(&pids, answer(&self.meant(command), &output));
                (command, output, said)
            })
            .collect();
        let (_, _, ours) = answers.last().expect("a command of ours");
        if ours.processes().is_empty() {
            return Err(format!("nobody is named: {question:?}\n"));
        }
        for (command, output, theirs) in &answers {
            if !theirs.agrees(ours) {
                return Err(format!(
                    "{}\n{command}:\n{theirs:?}\n{:?}:\n{ours:?}\n{}{}\n",
                    question.text,
                    question.ours,
                    String::from_utf8_lossy(&output.stdout[..output.stdout.len().min(1500)]),
                    String::from_utf8_lossy(&output.stderr)
                ));
            }
        }
        Ok(())
    }

    /// Compares the answers to all questions of a document except `others`.
    fn compare_all(&self, document: &str, others: &[&str]) {
        let questions = questions(document);
        for other in others {
            assert!(questions.iter().any(|question| question.text == *other), "{other}");
        }
        let mut differences = Vec::new();
        for question in questions {
            if others.contains(&&question.text[..]) {
                continue;
            }
            assert!(!question.theirs.is_empty() && !question.ours.is_empty(), "{question:?}");
            differences.extend(self.compare(&question).err());
        }
        assert!(differences.is_empty(), "{}\n{:?}", differences.join("\n"), self.pids());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.processes.clear();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[track_caller]
fn checked(result: i32) -> i32 {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
    result
}

fn c_string(path: &Path) -> CString {
    CString::new(path.to_str().expect("UTF-8")).expect("no NUL")
}

/// Moves this thread into a new mount namespace, and mounts a file system on a directory.
fn mount_tmpfs(at: &Path) {
    // SAFETY: a system call without pointers.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS) });
    let mount = |kind: Option<&std::ffi::CStr>, at: &Path, flags| {
        let (at, kind) = (c_string(at), kind.map_or(std::ptr::null(), |kind| kind.as_ptr()));
        // SAFETY: the texts end with NUL.
        checked(unsafe { libc::mount(kind, at.as_ptr(), kind, flags, std::ptr::null()) });
    };
    mount(None, Path::new("/"), libc::MS_REC | libc::MS_PRIVATE);
    mount(Some(c"tmpfs"), at, 0);
}

const WWW_DATA: u32 = 33;

/// Starts processes with files of all kinds.
fn files() -> World {
    let mut world = World::new("files");
    let [srv, usb, log, library, gone] = ["srv", "usb", "log", "libfoo.so", "gone"].map(|name| world.path(name));
    fs::create_dir_all(srv.join("deep")).expect("a directory");
    fs::create_dir_all(&usb).expect("a directory");
    mount_tmpfs(&usb);
    for file in [
        &log,
        &gone,
        &srv.join("here"),
        &srv.join("deep/file"),
        &usb.join("file"),
    ] {
        fs::write(file, "some text").expect("a file");
    }
    let open = |path: &Path| OwnedFd::from(File::open(path).expect("a file"));
    let write = |path: &Path| OwnedFd::from(OpenOptions::new().append(true).open(path).expect("a file"));
    let plain = |world: &World| {
        let mut command = Command::new("sleep");
        command.current_dir(&world.directory);
        command
    };
    // Corresponds to descriptor 3 of the documents.
    let third = open(&log);
    // SAFETY: the number is that of a descriptor that nobody else in this program uses.
    let third = unsafe { OwnedFd::from_raw_fd(checked(libc::fcntl(third.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 60))) };
    let number = third.as_raw_fd();
    let reader = world.start(
        "reads the file",
        &mut plain(&world),
        vec![third, open(&srv.join("here"))],
    );
    let mut command = Command::new(world.path("nginx"));
    let command = command.uid(WWW_DATA).gid(WWW_DATA).current_dir(srv.join("deep"));
    let writer = world.start(
        "nginx of www-data writes to it",
        command,
        vec![write(&log), open(&usb.join("file"))],
    );
    world.start(
        "has deleted and large files, a device, a file below",
        &mut plain(&world),
        vec![
            open(&gone),
            OwnedFd::from(large(&world.path("large"))),
            open(Path::new("/dev/null")),
            open(&srv.join("deep/file")),
        ],
    );
    fs::remove_file(&gone).expect("our own file");
    let (one, other) = UnixStream::pair().expect("a pair");
    let fifo = world.path("fifo");
    // SAFETY: the text ends with NUL.
    checked(unsafe { libc::mkfifo(c_string(&fifo).as_ptr(), 0o600) });
    let fifo = OpenOptions::new().read(true).write(true).open(&fifo).expect("a fifo");
    world.start(
        "has a socket and a fifo",
        &mut plain(&world),
        vec![one.into(), fifo.into()],
    );
    world.stays.push(other.into());
    // Any library will do.
    let maps = fs::read_to_string("/proc/self/maps").expect("our own mappings");
    let mut names = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
    let libc = names.find(|name| name.contains("/libgcc_s")).expect("a library");
    fs::copy(libc, &library).expect("a copy");
    let mut command = plain(&world);
    let command = command.env("LD_PRELOAD", &library).current_dir(&srv);
    world.start("maps the library, and works in the directory", command, vec![]);
    let mut command = plain(&world);
    world.start("works on the file system", command.current_dir(&usb), vec![]);
    world.means("/var/log/syslog", log.to_str().expect("UTF-8"));
    world.means("/mnt/usb", usb.to_str().expect("UTF-8"));
    world.means("/usr/lib/libfoo.so", library.to_str().expect("UTF-8"));
    world.means("/srv", srv.to_str().expect("UTF-8"));
    world.means("1234", reader.to_string());
    world.means("5678", writer.to_string());
    world.means("-d 3", format!("-d {number}"));
    world.means("FD == 3", format!("FD == {number}"));
    world.means("fd == 3", format!("fd == {number}"));
    world
}

/// An empty file with a size of 20 MB.
fn large(path: &Path) -> File {
    let file = File::create(path).expect("a file");
    file.set_len(20_000_000).expect("a size");
    file
}

/// Check that lsof, fuser and lsfd answer the questions about files as taskdiag does.
#[test]
fn files_agree() {
    let world = files();
    world.compare_all(
        "files.md",
        &[
            // No other command answers these: see tests/files.rs and tests/filters.rs.
            "a unit's, a container's, all that a process has started?",
            "which file is open most often?",
            // The answers are exit statuses or ended processes: see below.
            "is it open, for a script?",
            "end who has it open",
            // This needs a mounted block device, a server, or NFS: the path is that of the mount
            // point.
            "by its device?",
            "what if its server does not answer?",
            "what is open on NFS?",
            // The formats of the answers differ: see tests/sockets/peers.rs of the library, and
            // tests/files.rs.
            "who is at the other end of pipes and sockets?",
            "what does an epoll wait for, what is in an eventfd, which process is a pidfd?",
            "who has most files open?",
            "how many are there of each kind?",
            "again and again",
            "for programs",
        ],
    );
}

/// Check that a script learns whether a file is open, and that the processes that have it open can
/// be ended.
#[test]
fn scripts_agree() {
    let mut world = World::new("scripts");
    let log = world.path("log");
    fs::write(&log, "x").expect("a file");
    world.means("/var/log/syslog", log.to_str().expect("UTF-8"));
    let questions = questions("files.md");
    let commands = |text: &str| {
        let found = questions.iter().find(|question| question.text == text);
        let question = found.expect("a question");
        [&question.theirs[..], &question.ours].concat()
    };
    let open = || OwnedFd::from(File::open(&log).expect("a file"));
    for command in commands("is it open, for a script?") {
        world.processes.clear();
        assert_eq!(world.run(&command).status.code(), Some(1), "{command}");
        world.start("has it open", &mut Command::new("sleep"), vec![open()]);
        assert_eq!(world.run(&command).status.code(), Some(0), "{command}");
    }
    for command in commands("end who has it open") {
        world.processes.clear();
        world.start("has it open", &mut Command::new("sleep"), vec![open()]);
        let ended = world.run(&command);
        assert_eq!(ended.status.code(), Some(0), "{command}: {ended:?}");
        let signal = world.processes.pop().expect("a process").1.ended();
        assert_eq!(signal, Some(libc::SIGTERM), "{command}");
    }
}

/// A socket of any kind.
fn socket(family: i32, kind: i32, protocol: i32) -> OwnedFd {
    // SAFETY: a system call without pointers.
    let fd = checked(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) });
    // SAFETY: the descriptor is new.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn set<T>(socket: &OwnedFd, option: i32, value: &T) {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is as long as it says.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const *value).cast(),
            len,
        )
    };
    checked(set);
}

/// Moves this thread into a new network namespace, with addresses.
fn enter_network() {
    // SAFETY: a system call without pointers.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) });
    for command in ["ip link set lo up", "ip addr add 10.0.0.1/8 dev lo"] {
        let set = Command::new("sh").args(["-c", command]).status().expect("a shell");
        assert!(set.success(), "{command}");
    }
}

/// Starts processes with sockets of all kinds.
fn sockets() -> World {
    let mut world = World::new("sockets");
    enter_network();
    let path = world.path("docker.sock");
    let mut nginx = Command::new(world.path("nginx"));
    let nginx = nginx.uid(WWW_DATA).gid(WWW_DATA);
    let sleep = || Command::new("sleep");
    let listener = TcpListener::bind("10.0.0.1:80").expect("a listener");
    let client = TcpStream::connect("10.0.0.1:80").expect("a connection");
    let (server, _) = listener.accept().expect("its other end");
    // The peer sends nothing more, and does not close the connection.
    let left = TcpStream::connect("10.0.0.1:80").expect("a connection");
    let (mut lazy, _) = listener.accept().expect("its other end");
    left.shutdown(std::net::Shutdown::Write).expect("one direction");
    assert_eq!(lazy.read(&mut [0]).expect("the end"), 0);
    let ssh = TcpListener::bind("[::]:22").expect("a listener");
    let to_ssh = TcpStream::connect("[::1]:22").expect("a connection");
    let (from_ssh, _) = ssh.accept().expect("its other end");
    // A client of IPv4.
    let to_both = TcpStream::connect("10.0.0.1:22").expect("a connection");
    let (from_both, _) = ssh.accept().expect("its other end");
    let server = world.start(
        "nginx listens",
        nginx,
        vec![listener.into(), server.into(), lazy.into()],
    );
    world.start("is connected to nginx", &mut sleep(), vec![client.into(), left.into()]);
    world.start("listens for SSH", &mut sleep(), vec![ssh.into(), from_ssh.into()]);
    world.start("has a client of IPv4", &mut sleep(), vec![from_both.into()]);
    world.start("is connected to SSH", &mut sleep(), vec![to_ssh.into(), to_both.into()]);
    let [bound, sender] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    sender.connect(bound.local_addr().expect("an address")).expect("a peer");
    let by_interface = OwnedFd::from(UdpSocket::bind("0.0.0.0:0").expect("a socket"));
    set(&by_interface, libc::SO_BINDTODEVICE, b"lo\0");
    let marked = OwnedFd::from(TcpListener::bind("127.0.0.1:85").expect("a listener"));
    set(&marked, libc::SO_MARK, &7_u32);
    world.start(
        "has UDP",
        &mut sleep(),
        vec![bound.into(), sender.into(), by_interface, marked],
    );
    let raw = socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP);
    let all = i32::from((libc::ETH_P_ALL as u16).to_be());
    let packet = socket(libc::AF_PACKET, libc::SOCK_RAW, all);
    world.start("has others", &mut sleep(), vec![raw, packet]);
    let unix = UnixListener::bind(&path).expect("a listener");
    let to_unix = UnixStream::connect(&path).expect("a connection");
    let (from_unix, _) = unix.accept().expect("its other end");
    world.start("listens by UNIX", &mut sleep(), vec![unix.into(), from_unix.into()]);
    let datagrams = UnixDatagram::bind(world.path("datagrams")).expect("a socket");
    world.start(
        "is connected by UNIX",
        &mut sleep(),
        vec![to_unix.into(), datagrams.into()],
    );
    let directory = world.directory.to_str().expect("UTF-8").to_owned();
    world.means("/run/docker", format!("{directory}/docker"));
    world.means("1234", server.to_string());
    world
}

/// Check that ss, lsof and fuser answer the questions about sockets as taskdiag does.
#[test]
fn sockets_agree() {
    let world = sockets();
    world.compare_all(
        "sockets.md",
        &[
            // No other command answers these: see tests/sockets.rs and tests/filters.rs.
            "a unit's, a container's?",
            "which has root created?",
            "which local ports have most connections?",
            // ss lists no owners of netlink sockets, and few kernels have the other kinds: see
            // tests/sockets/ of the library.
            "of netlink?",
            "of virtual machines?",
            // The answers are ended processes, sockets without an owner, or other namespaces: see
            // below, and tests/sockets/ of the library.
            "end who has it",
            "which wait for their end?",
            "what is in other network namespaces?",
            "in one of them?",
            "who is at the other end, on this machine?",
            // These show numbers, which tests/sockets/ of the library compares with the kernel's.
            "how many connections are in which state?",
            "who does not read, whose peer does not read?",
            "whose backlog is full?",
            "which connections are slow, or lose packets?",
            "who has most sockets?",
            "how many are there of each protocol?",
            "again and again",
            "for programs",
        ],
    );
}
