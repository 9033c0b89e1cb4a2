//! `taskdiag pgrep`, and the criteria that it shares with `pkill`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use regex::bytes::{Regex, RegexBuilder};
use rustix::fs::{fstatfs, OFlags};
use rustix::time::ClockId;
use taskdiag::{Absent, Arguments, Field, Fields, Filter, Handle, Identity, Query, Task, Value};
use taskdiag_sys::host::now_ns;

use crate::file;
use crate::listing::Answers;
use crate::outcome::{self, lacking, lacks, message, say, say_missing_denied, Failure, Outcome, WhoMay};
use crate::output::{text, Output};
use crate::pkill;
use crate::proc;
use crate::ps;
use crate::selection;
use crate::source::SourceOptions;
use crate::users;
use crate::version;

/// The criteria of pgrep(1). A process matches if it meets all of them.
#[derive(Clone, Debug, ClapArgs)]
pub struct Criteria {
    /// Print the number of matching processes instead of their ids; pkill also signals them
    #[arg(short, long)]
    pub count: bool,
    /// Match the whole command line rather than the name
    #[arg(short, long)]
    full: bool,
    /// Only of these process groups; 0 is that of this command
    #[arg(short = 'g', long, value_name = "PGID,…", value_delimiter = ',')]
    pgroup: Vec<u32>,
    /// Only of these real groups, by name or number
    #[arg(short = 'G', long, value_name = "GROUP,…", value_delimiter = ',')]
    group: Vec<String>,
    /// Match without regard to case
    #[arg(short, long)]
    ignore_case: bool,
    /// Only the one that started last
    #[arg(short, long, conflicts_with_all = ["oldest", "inverse"])]
    newest: bool,
    /// Only the one that started first
    #[arg(short, long, conflicts_with = "inverse")]
    oldest: bool,
    /// Only those that started at least this many seconds ago
    #[arg(short = 'O', long, value_name = "SECONDS")]
    older: Option<u64>,
    /// Only children of these processes
    #[arg(short = 'P', long, value_name = "PID,…", value_delimiter = ',')]
    parent: Vec<u32>,
    /// Only of these sessions; 0 is that of this command
    #[arg(short, long, value_name = "SID,…", value_delimiter = ',', allow_hyphen_values = true)]
    session: Vec<i64>,
    /// Only on these terminals: pts/0, tty1
    #[arg(short, long, value_name = "TERMINAL,…", value_delimiter = ',')]
    terminal: Vec<String>,
    /// Only of these effective users, by name or number
    #[arg(short = 'u', long, value_name = "USER,…", value_delimiter = ',')]
    euid: Vec<String>,
    /// Only of these real users, by name or number
    #[arg(short = 'U', long, value_name = "USER,…", value_delimiter = ',')]
    uid: Vec<String>,
    /// Select the processes that do not match
    #[arg(long)]
    pub inverse: bool,
    /// Match the whole name or command line
    #[arg(short = 'x', long)]
    exact: bool,
    /// Only these processes
    #[arg(
        short = 'p',
        long,
        value_name = "PID,…",
        value_delimiter = ',',
        conflicts_with = "pidfile"
    )]
    pid: Vec<u32>,
    /// Only those started with one of these environment variables, or with this value of it
    #[arg(long, value_name = "NAME[=VALUE],…", value_delimiter = ',')]
    env: Vec<OsString>,
    /// Only those that have a handler for the signal
    #[arg(short = 'H', long)]
    require_handler: bool,
    /// The signal, by name or number; pkill sends it and also takes -NAME and -NUMBER
    #[arg(long, value_name = "SIGNAL", default_value = "TERM")]
    pub signal: String,
    /// Print names and command lines in quotes for a shell: with -l, -a or -e
    #[arg(short = 'Q', long)]
    shell_quote: bool,
    /// Only the process whose id is in this file; - for standard input
    #[arg(short = 'F', long, value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Fail if no process has locked that file, as the running process should
    #[arg(short = 'L', long, requires = "pidfile")]
    logpidfile: bool,
    /// Only in these states: R, S, D, I, T, t, Z …
    #[arg(short, long, value_name = "STATE,…")]
    runstates: Option<String>,
    /// Leave out this command's own ancestors
    #[arg(short = 'A', long)]
    ignore_ancestors: bool,
    /// Only in these cgroups of the unified hierarchy; paths as in the field cgroup
    #[arg(long, value_name = "PATH,…", value_delimiter = ',')]
    cgroup: Vec<OsString>,
    /// Only in the same namespaces as this process
    #[arg(long, value_name = "PID")]
    ns: Option<u32>,
    /// With --ns: compare only these namespaces: ipc, mnt, net, pid, user, uts, cgroup, time
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "ns")]
    nslist: Vec<String>,
    /// Only those for which this expression is true: see `taskdiag ps`
    #[arg(long = "where", value_name = "EXPR")]
    filter: Option<String>,
    /// Print the version
    #[arg(short = 'V', long)]
    version: bool,
    /// A regular expression for the name
    pattern: Option<String>,
    #[command(flatten)]
    pub from: SourceOptions,
}

/// A task that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The process id.
    pub pid: u32,
    /// The thread id; for a process, the same as `pid`.
    pub tid: u32,
    /// The identity of the task.
    pub identity: Identity,
    /// When it started, in nanoseconds since boot.
    pub start_ns: i64,
    /// Its name, escaped or in quotes.
    pub name: Vec<u8>,
    /// The command line, escaped or in quotes; or the name in brackets, if the task has no command
    /// line or none was requested.
    pub cmdline: Vec<u8>,
}

/// What to read besides the matching processes.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only these processes, whether they are the newest or oldest or not. Empty for all.
    pub pids: Vec<u32>,
    /// Threads rather than processes.
    pub threads: bool,
    /// Command lines.
    pub cmdline: bool,
}

/// The kernel keeps at most this many bytes of a name, except for kernel threads.
const LONGEST_NAME: usize = 15;

impl Criteria {
    /// Prints the version if requested. Returns whether it was.
    pub fn print_version(&self) -> Result<bool, Failure> {
        if self.version {
            outcome::print(version::text())?;
        }
        Ok(self.version)
    }

    /// The matching tasks, in order of their ids.
    pub fn matches(&self, handle: &mut Handle, wanted: &Wanted) -> Result<Vec<Match>, Failure> {
        let pattern = self.pattern()?;
        let signal = pkill::signal(&self.signal)?;
        let pid = match &self.pidfile {
            Some(path) => match pid_in(path, self.logpidfile) {
                Ok(pid) => Some(pid),
                Err(message) => {
                    say(message);
                    return Ok(Vec::new());
                }
            },
            None => None,
        };
        let namespaces = match self.ns {
            Some(pid) => match same_namespaces(handle, pid, &self.nslist)? {
                Some(expressions) => expressions,
                None => {
                    say(format_args!("--ns: {}", lacking(pid)));
                    return Ok(Vec::new());
                }
            },
            None => Vec::new(),
        };
        let filter = self.filter(handle, pid, namespaces)?;
        let is_any = self.newest || self.oldest || self.require_handler || !self.env.is_empty();
        if pattern.is_none() && filter.is_none() && !is_any {
            let message = "no matching criteria specified: give a pattern, or an option such as -u";
            return Err(message.into());
        }
        let mut fields = Field::Comm | Field::StartNs;
        if self.full || wanted.cmdline {
            fields |= Field::Cmdline | Field::State;
        }
        if self.require_handler {
            fields |= Field::SigCaught;
        }
        if !self.env.is_empty() {
            fields |= Field::Environ;
        }
        let is_of_all = wanted.pids.is_empty();
        let mut query = match wanted.threads {
            true => Query::threads(),
            false if is_of_all => Query::processes(),
            false => Query::these(wanted.pids.iter().copied()),
        };
        query = query.fields(fields);
        // --inverse also needs the tasks that do not match the filter.
        match (&filter, self.inverse) {
            (Some(filter), false) => query = query.filter(filter.clone()),
            (Some(filter), true) => query = query.with_fields_read(filter.fields()),
            (None, _) => {}
        }
        let answers = Answers::ask(handle, &query).map_err(fatal)?;
        let tasks = answers.tasks();
        let tested = [
            (self.full || wanted.cmdline, Field::Cmdline, "command lines"),
            (!self.env.is_empty(), Field::Environ, "environments"),
            (self.require_handler, Field::SigCaught, "signal handlers"),
        ];
        let tested: Vec<_> = tested.into_iter().filter(|tested| tested.0).collect();
        // A part of the matches would look like all of them.
        for &(_, field, what) in &tested {
            let has = |reason| tasks.iter().any(|task| task.value(field).err() == Some(reason));
            let mut groups = answers.snapshot.answers();
            let why = if has(Absent::NoThread) {
                taskdiag::Error::NO_THREAD.to_owned()
            } else if groups.any(|(group, source)| group == field.group() && source.is_err()) {
                let procfs = &handle.support().procfs;
                [procfs.why.as_ref(), procfs.remedy.as_ref()].join(": ")
            } else {
                continue;
            };
            return Err(Failure::Fatal(format!("{what}: {why}")));
        }
        let left_out = selection::own(self.ignore_ancestors);
        let is_match = |task: &&Task<'_>| {
            let pid = task.record().header().pid.get();
            let by_filter = match (&filter, self.inverse) {
                (Some(filter), true) => filter.decide(*task) == Some(true),
                _ => true,
            };
            let by_pattern = pattern.as_ref().is_none_or(|pattern| self.has(pattern, task));
            let by_signal = !self.require_handler || has_handler(task, signal);
            let is_found = by_filter && by_pattern && by_signal && self.by_environment(task);
            !left_out.contains(&pid) && is_found != self.inverse
        };
        let mut matches: Vec<Match> = tasks
            .iter()
            .filter(is_match)
            .map(|task| Match::of(task, self.shell_quote))
            .collect();
        // Threads behind their process, as in pgrep; BPF returns all in the order of their ids.
        matches.sort_by_key(|found| found.pid);
        let by_start = |found: &Match| (found.start_ns, found.tid);
        if self.newest && is_of_all {
            matches = matches.into_iter().max_by_key(by_start).into_iter().collect();
        }
        if self.oldest && is_of_all {
            matches = matches.into_iter().min_by_key(by_start).into_iter().collect();
        }
        // As in pgrep, the exit status only says whether anything matched, if that is known.
        let mut outcome = Outcome::Complete;
        if is_of_all {
            outcome = answers.report(&[]);
            for &(_, field, what) in tested.iter().filter(|_| !outcome::is_procps()) {
                let is_denied = |task: &&Task<'_>| {
                    let is_named = self.full || pattern.as_ref().is_none_or(|pattern| self.has(pattern, task));
                    is_named && task.value(field).err() == Some(Absent::Denied)
                };
                let count = tasks.iter().filter(is_denied).count() as u64;
                let text = format!("{what}: denied for {{}}");
                outcome = outcome.and(say_missing_denied(lacks! { count, "task" => text.as_str(); }));
            }
        }
        if outcome == Outcome::Partial && matches.is_empty() && !outcome::is_procps() {
            let unknown = "none of the processes that could be read matches";
            return Err(Failure::Fatal(unknown.to_owned()));
        }
        Ok(matches)
    }

    fn pattern(&self) -> Result<Option<Regex>, Failure> {
        let Some(pattern) = &self.pattern else { return Ok(None) };
        if pattern.len() > LONGEST_NAME
            && !self.full
            && pattern
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        {
            say(format_args!(
                "pattern that searches for process name longer than {LONGEST_NAME} characters will result in zero matches, but for kernel \
                 threads\nTry `pgrep -f' option to match against the complete command line."
            ));
        }
        let whole = if self.exact {
            format!("^(?:{pattern})$")
        } else {
            pattern.clone()
        };
        let regex = RegexBuilder::new(&whole)
            .case_insensitive(self.ignore_case)
            .dot_matches_new_line(true)
            .build();
        regex
            .map(Some)
            .map_err(|error| Failure::Unanswered(format!("{pattern:?} is not a regular expression: {error}")))
    }

    /// Whether the pattern matches the name or, with --full, the command line.
    fn has(&self, pattern: &Regex, task: &Task<'_>) -> bool {
        if self.full {
            return pattern.is_match(&cmdline(task));
        }
        task.comm().is_ok_and(|name| pattern.is_match(name))
    }

    /// Whether the task was started with one of the environment variables.
    fn by_environment(&self, task: &Task<'_>) -> bool {
        let Ok(Value::Texts(variables)) = task.value(Field::Environ) else {
            return self.env.is_empty();
        };
        let is_wanted = |variable: &[u8]| {
            self.env.iter().any(|wanted| {
                let rest = variable.strip_prefix(wanted.as_bytes());
                rest.is_some_and(|rest| rest.is_empty() || !wanted.as_bytes().contains(&b'=') && rest[0] == b'=')
            })
        };
        self.env.is_empty() || variables.iter().any(is_wanted)
    }

    /// The filter for all criteria except the pattern. `None` if there are none. `pid` is the id
    /// from the pid file; `expressions` are the filters of --ns.
    fn filter(
        &self,
        handle: &mut Handle,
        pid: Option<u32>,
        mut expressions: Vec<String>,
    ) -> Result<Option<Filter>, Failure> {
        let mut filters = Vec::new();
        let mut one_of = |field: Field, numbers: Vec<u32>| {
            if !numbers.is_empty() {
                filters.push(Filter::one_of(field, &numbers));
            }
        };
        one_of(Field::Pgid, or_own(handle, Field::Pgid, &self.pgroup)?);
        // As in pgrep, a number below zero is that of no session.
        let sessions: Vec<u32> = self
            .session
            .iter()
            .map(|&id| id.try_into().unwrap_or(u32::MAX))
            .collect();
        one_of(Field::Sid, or_own(handle, Field::Sid, &sessions)?);
        one_of(Field::Ppid, self.parent.clone());
        one_of(Field::Euid, users::users(&self.euid)?);
        one_of(Field::Uid, users::users(&self.uid)?);
        let groups: Result<Vec<u32>, String> = self.group.iter().map(|name| users::group(name)).collect();
        one_of(Field::Gid, groups?);
        // As in pgrep, an unknown one is that of no process.
        let terminal = |name: &String| match ps::terminal(name) {
            Err(_) if outcome::is_procps() => Ok(u32::MAX),
            terminal => terminal,
        };
        let terminals: Result<Vec<u32>, String> = self.terminal.iter().map(terminal).collect();
        one_of(Field::TtyNr, terminals?);
        one_of(Field::Pid, pid.into_iter().chain(self.pid.iter().copied()).collect());
        expressions.extend(self.runstates.as_deref().map(in_states).transpose()?);
        if let Some(seconds) = self.older {
            let now = now_ns(ClockId::Boottime) / 1_000_000_000;
            let boundary = now.saturating_sub(seconds);
            expressions.push(format!("start_ns <= {}", boundary.saturating_mul(1_000_000_000)));
        }
        for expression in expressions {
            filters.push(Filter::parse(&expression).map_err(|error| error.to_string())?);
        }
        if !self.cgroup.is_empty() {
            filters.push(in_cgroups(&self.cgroup)?);
        }
        if let Some(expression) = &self.filter {
            filters.push(selection::checked(selection::filter(expression, false)?, false));
        }
        Ok(filters.into_iter().reduce(Filter::and))
    }
}

impl Match {
    fn of(task: &Task<'_>, quoted: bool) -> Match {
        let header = task.record().header();
        let (mut name, mut line) = (Vec::new(), Vec::new());
        let comm = task.comm().unwrap_or_default();
        match (quoted, task.value(Field::Cmdline)) {
            (false, _) => {
                write_text(&mut name, comm);
                // procps prints an argument of several lines in one.
                let text = cmdline(task);
                let is_break = |byte: &u8| *byte == b'\n' && outcome::is_procps();
                let text: Vec<u8> = text
                    .iter()
                    .map(|byte| if is_break(byte) { b' ' } else { *byte })
                    .collect();
                write_text(&mut line, &text);
            }
            (true, arguments) => {
                text::quote_for_shell(&mut name, comm);
                if let Ok(Value::Texts(arguments)) = arguments {
                    for argument in arguments.iter() {
                        if !line.is_empty() {
                            line.push(b' ');
                        }
                        text::quote_for_shell(&mut line, argument);
                    }
                }
                // As in pgrep.
                if line.is_empty() {
                    line.push(b'-');
                }
            }
        }
        Match {
            pid: header.pid.get(),
            tid: header.tid.get(),
            identity: Identity::of(header),
            start_ns: header.start_ns.get() as i64,
            name,
            cmdline: line,
        }
    }
}

/// Appends text that a process chose; through a link, as procps prints it.
fn write_text(out: &mut Vec<u8>, bytes: &[u8]) {
    if outcome::is_procps() {
        ps::plain(out, bytes, text::locale_is_utf8());
    } else {
        text::escape(out, bytes);
    }
}

/// Whether a task catches a signal. Nothing catches signal 0.
fn has_handler(task: &Task<'_>, signal: u32) -> bool {
    match (task.value(Field::SigCaught), signal.checked_sub(1)) {
        (Ok(Value::Mask(caught)), Some(bit)) => caught >> bit & 1 != 0,
        _ => false,
    }
}

/// The command line. As in pgrep, empty arguments at the end are left out, and a task without one
/// has its name in brackets.
fn cmdline(task: &Task<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    if let Ok(Value::Texts(arguments)) = task.value(Field::Cmdline) {
        let bytes = arguments.as_bytes();
        let len = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        Arguments::new(&bytes[..len]).join(&mut line);
    }
    if !line.is_empty() {
        return line;
    }
    let end: &[u8] = match task.value(Field::State) {
        Ok(Value::Letter('Z')) => b"] <defunct>",
        _ => b"]",
    };
    [b"[", task.comm().unwrap_or_default(), end].concat()
}

/// Reads the id in a file. With `must_be_locked`, fails unless another process has locked the file.
fn pid_in(path: &Path, must_be_locked: bool) -> Result<u32, String> {
    let refused = |reason: String| format!("--pidfile {path:?}: {reason}");
    let is_input = path.as_os_str() == "-";
    let mut options = fs::OpenOptions::new();
    let file = if is_input {
        io::stdin().as_fd().try_clone_to_owned().map(fs::File::from)
    } else {
        file::open(path, options.read(true))
    };
    let file = file.map_err(|error| refused(message(&error)))?;
    if is_input {
        // What the caller wants to be read.
    } else if is_unnamed_pipe(&file) {
        // What the caller writes to it may be late.
        rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(|errno| refused(message(&errno)))?;
    } else if !file.metadata().is_ok_and(|about| about.is_file()) {
        return Err(refused("this is not a regular file".to_owned()));
    }
    // This may be any file: read no more than an id needs.
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(&file, 64), &mut text).map_err(|error| refused(message(&error)))?;
    // C programs may write the terminating NUL of their string.
    let mut words = text.split(|c: char| c == '\0' || c.is_whitespace());
    let pid = words.find(|word| !word.is_empty()).and_then(|word| word.parse().ok());
    let Some(pid @ 1..) = pid else {
        return Err(refused("it contains no process id".to_owned()));
    };
    if must_be_locked && !is_locked(&file) {
        return Err(refused("it is not locked, so its process may have ended".to_owned()));
    }
    Ok(pid)
}

/// Whether a file is a pipe without a name: of the caller, such as that of `<(…)`.
fn is_unnamed_pipe(file: &fs::File) -> bool {
    const PIPEFS_MAGIC: u64 = 0x5049_5045;
    fstatfs(file).is_ok_and(|kind| kind.f_type as u64 == PIPEFS_MAGIC)
}

/// Whether another process holds a lock on a file, by flock(2) or fcntl(2).
fn is_locked(file: &fs::File) -> bool {
    use rustix::fs::{flock, FlockOperation};
    let by_flock = flock(file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK);
    by_flock || taskdiag_sys::lock::is_locked(file.as_fd())
}

/// Ids of process groups or sessions, in which 0 stands for the command's own. The own id is also 0
/// if the leader is outside of the command's pid namespace.
fn or_own(handle: &mut Handle, field: Field, ids: &[u32]) -> Result<Vec<u32>, Failure> {
    if !ids.contains(&0) {
        return Ok(ids.to_vec());
    }
    let pid = proc::own_pid();
    let snapshot = handle.query(&Query::these([pid]).fields(field))?;
    let own = match snapshot.tasks().next().map(|task| task.value(field)) {
        Some(Ok(Value::Unsigned(id))) => id as u32,
        _ => return Err(format!("the {field} of this command is not known").into()),
    };
    Ok(ids.iter().map(|&id| if id == 0 { own } else { id }).collect())
}

/// A filter expression for these states. They are letters, with or without commas.
fn in_states(states: &str) -> Result<String, String> {
    let is_state = |state: &char| state.is_ascii_alphabetic();
    let states: Vec<char> = states.chars().filter(|&state| state != ',').collect();
    match states.iter().find(|state| !is_state(state)) {
        None if states.is_empty() => {
            Err("--runstates: no state is given: states are letters such as R, S and Z".to_owned())
        }
        None => {
            let tests = states.iter().map(|state| format!("state == '{state}'"));
            // As in procps, no process is in a state that does not exist.
            let tests: Vec<String> = tests.filter(|test| Filter::parse(test).is_ok()).collect();
            Ok([tests, vec!["pid == 0".to_owned()]].concat().join(" or "))
        }
        Some(state) => Err(format!(
            "--runstates: {state:?} is not a state: states are letters such as R, S and Z"
        )),
    }
}

/// Filter expressions for the namespaces of a process. `None` if there is no such process.
fn same_namespaces(handle: &mut Handle, pid: u32, names: &[String]) -> Result<Option<Vec<String>>, Failure> {
    /// The names of the fields have `ns_` in front.
    const NAMES: [&str; 8] = ["ipc", "mnt", "net", "pid", "user", "uts", "cgroup", "time"];
    let field = |name: &str| {
        let known = NAMES.iter().find(|&&known| known == name);
        let field = known.and_then(|known| format!("ns_{known}").parse::<Field>().ok());
        field.ok_or_else(|| {
            format!(
                "--nslist: {name:?} is not a namespace: namespaces are ipc, mnt, net, pid, user, uts, cgroup and time"
            )
        })
    };
    // Without a list, the namespaces that pgrep compares.
    let fields: Result<Vec<Field>, String> = match names {
        [] => NAMES[..6].iter().map(|name| field(name)).collect(),
        names => names.iter().map(|name| field(name)).collect(),
    };
    let fields = fields?;
    let wanted: Fields = fields.iter().copied().collect();
    let snapshot = handle
        .query(&Query::these([pid]).fields(wanted))
        .map_err(|error| fatal(error.into()))?;
    let Some(task) = snapshot.tasks().next() else {
        return Ok(None);
    };
    let expression = |field: &Field| match task.value(*field) {
        Ok(Value::Unsigned(inode)) => Ok(format!("{field} == {inode}")),
        Ok(_) => Err(Absent::Unsupported),
        Err(reason) => Err(reason),
    };
    let expressions: Result<Vec<String>, Absent> = fields.iter().map(expression).collect();
    expressions.map(Some).map_err(|reason| {
        Failure::Fatal(format!(
            "--ns {pid}: its namespaces: {reason} ({})",
            WhoMay::see_denied()
        ))
    })
}

/// A filter for processes that are directly in one of these cgroups.
fn in_cgroups(paths: &[OsString]) -> Result<Filter, Failure> {
    let expression = |path: &OsString| match path.to_str().filter(|text| !text.contains('\'')) {
        Some(text) => Ok(format!("cgroup == '{text}'")),
        None => Err(format!("--cgroup {path:?}: use --where for names with quotes")),
    };
    let expressions: Result<Vec<String>, String> = paths.iter().map(expression).collect();
    Ok(Filter::parse(&expressions?.join(" or ")).map_err(|error| error.to_string())?)
}

/// Find processes by name and other criteria
///
/// Prints the ids of the processes that match all criteria. Takes the options of pgrep(1). The
/// options -d -l -a -v and -w exist only here; pkill has all others. The exit status is 0 if any
/// process matches, 1 if none does, 2 for wrong usage, 3 if processes could not be read.
#[derive(Debug, ClapArgs)]
#[command(
    infer_long_args = true,
    after_help = "Examples:\n  taskdiag pgrep -u root sshd\n  taskdiag pgrep -a -f 'python.*worker'\n  \
    taskdiag pgrep --where 'rss_bytes > 1G' -l"
)]
pub struct Args {
    /// The text between ids
    #[arg(short, long, default_value = "\n", value_name = "TEXT", hide_default_value = true)]
    delimiter: String,
    /// Print the name after the id
    #[arg(short, long)]
    list_name: bool,
    /// Print the command line after the id
    #[arg(short = 'a', long)]
    list_full: bool,
    /// Select the processes that do not match
    #[arg(short = 'v', conflicts_with_all = ["newest", "oldest"])]
    is_inverse: bool,
    /// Match threads instead of processes
    #[arg(short = 'w', long)]
    lightweight: bool,
    /// Print nothing: the exit status says whether any matches
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    criteria: Criteria,
}

pub fn run(mut args: Args) -> Result<Outcome, Failure> {
    args.criteria.inverse |= args.is_inverse;
    let wanted = Wanted {
        threads: args.lightweight,
        cmdline: args.list_full,
        ..Wanted::default()
    };
    if args.criteria.print_version()? {
        return Ok(Outcome::Complete);
    }
    let mut handle = args.criteria.from.handle();
    let matches = args.criteria.matches(&mut handle, &wanted)?;
    let mut output = Output::default();
    let out = &mut output.buffer;
    if args.criteria.count {
        out.extend_from_slice(format!("{}\n", matches.len()).as_bytes());
    } else if !args.quiet {
        for (index, found) in matches.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(args.delimiter.as_bytes());
            }
            found.write(out, args.list_name, args.list_full);
        }
        if !matches.is_empty() {
            out.push(b'\n');
        }
    }
    finish(output)?;
    Ok(Outcome::partial_if(matches.is_empty()))
}

/// Errors other than wrong usage have their own exit status.
pub fn fatal(failure: Failure) -> Failure {
    match failure {
        Failure::Unanswered(message) => Failure::Fatal(message),
        Failure::Output(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Failure::Fatal(format!("writing the output: {}", message(&error)))
        }
        failure => failure,
    }
}

/// Writes the rest of the output.
pub fn finish(output: Output) -> Result<(), Failure> {
    output.finish().map_err(|error| fatal(error.into()))
}

impl Match {
    /// Appends the id, followed by the name or the command line if requested.
    pub fn write(&self, out: &mut Vec<u8>, name: bool, cmdline: bool) {
        out.extend_from_slice(self.tid.to_string().as_bytes());
        if name || cmdline {
            out.push(b' ');
            out.extend_from_slice(if cmdline { &self.cmdline } else { &self.name });
        }
    }
}
