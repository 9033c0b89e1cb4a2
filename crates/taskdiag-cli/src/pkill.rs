//! `taskdiag pkill`.

use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clap::Args as ClapArgs;
use rustix::io::Errno;
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use rustix::termios::isatty;
use taskdiag_core::names;
use taskdiag_sys::signals;

use crate::outcome::{self, say, Failure, Outcome};
use crate::output::Output;
use crate::pgrep::{fatal, finish, Criteria, Match, Wanted};
use crate::proc;
use crate::ps::position_of;

/// Signal processes by name and other criteria
///
/// Sends a signal, TERM by default, to the processes that match all criteria. Takes the options of
/// pkill(1), including -HUP and -9. Signals a process through a pidfd, after checking that it is
/// the one that matched, so a process that reuses the id is never signalled. Asks first if more
/// than one process matches and there is a terminal, unless it was started through a link named pkill.
///
/// The exit status is 0 if at least one process was signalled, 1 if none was, 2 for wrong usage, 3
/// if processes could not be read.
#[derive(Debug, ClapArgs)]
#[command(
    infer_long_args = true,
    after_help = "Examples:\n  taskdiag pkill -HUP -x rsyslogd\n  taskdiag pkill -u www-data --where 'rss_bytes > 2G' --dry-run\n  \
    taskdiag pkill --yes -f 'python.*worker'"
)]
pub struct Args {
    /// Print the name and id of each process that is signalled
    #[arg(short = 'e', long)]
    echo: bool,
    /// Queue the signal with this number, as sigqueue(3) does
    #[arg(short = 'q', long, value_name = "NUMBER", allow_hyphen_values = true)]
    queue: Option<i32>,
    /// Free the memory of the process at once, after the signal that ends it
    #[arg(short = 'm', long)]
    mrelease: bool,
    /// Print what would be signalled, but send no signal
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    criteria: Criteria,
}

/// The number of a signal. 0 is EXIT, as for pkill(1): nobody gets it.
pub fn signal(name: &str) -> Result<u32, Failure> {
    let wrong = || Failure::Unanswered(format!("--signal: {name:?} is not a signal: `kill -l` lists them"));
    by_name(name).ok_or_else(wrong)
}

fn by_name(name: &str) -> Option<u32> {
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    let is_zero = !short.is_empty() && short.bytes().all(|byte| byte == b'0');
    if is_zero || short == "EXIT" {
        Some(0)
    } else {
        names::signal(name)
    }
}

/// Turns `-HUP` and `-9` of pkill into `--signal`, which clap can parse.
pub fn with_signal(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(command) = position_of("pkill", &arguments) else {
        return arguments;
    };
    for index in command + 1..arguments.len() {
        let Some(name) = arguments[index].to_str().and_then(|word| word.strip_prefix('-')) else {
            continue;
        };
        // The pattern follows.
        if name == "-" {
            break;
        }
        // In `-q -5`, `-5` is a value. A single letter is an option. As with pkill, `-io` is a
        // signal.
        let is_value = arguments[index - 1] == "-q" || arguments[index - 1] == "--queue";
        let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = name.len() > 1 && by_name(name).is_some() || is_like_signal(name);
        if !is_value && (is_number || is_name) {
            arguments[index] = format!("--signal={name}").into();
            break;
        }
    }
    arguments
}

/// Whether a word is meant as a signal, which it may not be: then the error says so.
fn is_like_signal(name: &str) -> bool {
    // No option of one letter begins with these.
    let is_word = name.starts_with(['B', 'I', 'K', 'S', 'T', 'W', 'X']);
    name.len() > 3
        && is_word
        && name
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// The number of processes that are opened at a time.
const AT_ONCE: usize = 256;

pub fn run(args: Args) -> Result<Outcome, Failure> {
    if args.criteria.print_version()? {
        return Ok(Outcome::Complete);
    }
    let number = signal(&args.criteria.signal)?;
    let wanted = Wanted::default();
    if !args.dry_run {
        proc::chosen().check_ids("signals can't be sent")?;
    }
    let mut handle = args.criteria.from.handle();
    let matches = args.criteria.matches(&mut handle, &wanted)?;
    if args.criteria.count {
        outcome::print(format!("{}\n", matches.len())).map_err(fatal)?;
    }
    if matches.is_empty() {
        return Ok(Outcome::Partial);
    }
    if args.dry_run {
        print(&matches, "would be signalled")?;
        return Ok(Outcome::Complete);
    }
    if matches.len() > 1
        && !args.yes
        && !outcome::is_procps()
        && isatty(io::stdin())
        && !confirms(&matches, &args.criteria.signal)?
    {
        say("nothing was signalled");
        return Ok(Outcome::Partial);
    }
    let is_kept = Cell::new(false);
    let deliver = |found: &Match, process: BorrowedFd<'_>| {
        signals::send(process, number as i32, args.queue)?;
        match args.mrelease.then(|| signals::release_memory(process)) {
            Some(Err(errno)) if errno != Errno::SRCH => {
                say(format_args!(
                    "pid {}: its memory could not be freed: {errno}",
                    found.pid
                ));
                is_kept.set(true);
            }
            _ => {}
        }
        Ok(())
    };
    let mut signalled = Vec::new();
    for matches in matches.chunks(AT_ONCE) {
        let again = |pids| args.criteria.matches(&mut handle, &Wanted { pids, ..wanted.clone() });
        signalled.extend(send(matches, again, deliver)?);
    }
    if args.echo {
        print(&signalled, "killed")?;
    }
    Ok(Outcome::partial_if(is_kept.get() || signalled.is_empty()))
}

/// Sends the signal with `deliver` to the matching processes that still exist and match: `again`
/// finds those among some processes. Returns those that got it.
fn send(
    matches: &[Match],
    again: impl FnOnce(Vec<u32>) -> Result<Vec<Match>, Failure>,
    deliver: impl Fn(&Match, BorrowedFd<'_>) -> Result<(), Errno>,
) -> Result<Vec<Match>, Failure> {
    let open = |found: &Match| -> Option<(Match, OwnedFd)> {
        let pid = Pid::from_raw(found.pid as i32)?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => Some((found.clone(), process)),
            Err(Errno::SRCH) => None,
            Err(errno) => {
                say(format_args!("pid {}: {errno}", found.pid));
                None
            }
        }
    };
    let opened: Vec<(Match, OwnedFd)> = matches.iter().filter_map(open).collect();
    // If a process has ended in between, its id is unused or belongs to a process that started
    // later, perhaps in the same tick, which may not match.
    let still = match opened.len() {
        0 => Vec::new(),
        _ => again(opened.iter().map(|(found, _)| found.pid).collect())?,
    };
    let is_same = |found: &Match| still.iter().any(|task| task.identity == found.identity);
    let mut reached = Vec::new();
    for (found, process) in opened {
        if !is_same(&found) {
            continue;
        }
        match deliver(&found, process.as_fd()) {
            Ok(()) => reached.push(found),
            Err(Errno::SRCH) => {}
            Err(Errno::PERM) => say(format_args!("pid {}: you may not signal it", found.pid)),
            Err(errno) => say(format_args!("pid {}: {errno}", found.pid)),
        }
    }
    Ok(reached)
}

fn print(matches: &[Match], what: &str) -> Result<(), Failure> {
    let mut output = Output::default();
    for found in matches {
        let out = &mut output.buffer;
        out.extend_from_slice(&found.name);
        out.extend_from_slice(format!(" {what} (pid {})\n", found.pid).as_bytes());
        output.row_ended()?;
    }
    finish(output)
}

/// Asks at the terminal for confirmation.
fn confirms(matches: &[Match], signal: &str) -> Result<bool, Failure> {
    const SHOWN: usize = 20;
    let mut text = Vec::new();
    for found in matches.iter().take(SHOWN) {
        found.write(&mut text, true, false);
        text.push(b'\n');
    }
    if matches.len() > SHOWN {
        text.extend_from_slice(format!("and {} more\n", matches.len() - SHOWN).as_bytes());
    }
    text.extend_from_slice(format!("Send {signal} to these {} processes? [y/N] ", matches.len()).as_bytes());
    io::stderr().write_all(&text)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use taskdiag::{Field, Handle, Identity, Query};
    use taskdiag_core::identity::TICK_NS;
    use taskdiag_core::record::Header;

    use super::*;

    /// Check that a process is not signalled if it has the id of the one that matched but another
    /// start time, or if it does not match any more.
    #[test]
    fn another_process_with_the_number_is_left_alone() {
        let mut child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut handle = Handle::new();
        let query = Query::these([child.id()]).fields(Field::StartNs);
        let snapshot = handle.query(&query).expect("an answer");
        let start_ns = snapshot.task(0).start_ns().expect("it lives");
        let pid = child.id();
        let started_at = |start_ns: i64| Match {
            pid,
            tid: pid,
            identity: Identity::of(&Header {
                tid: pid.into(),
                start_ns: (start_ns as u64).into(),
                ..Header::default()
            }),
            start_ns,
            name: b"sleep".to_vec(),
            cmdline: Vec::new(),
        };
        let (found, earlier) = (started_at(start_ns), started_at(start_ns - TICK_NS as i64));
        let kill = |_: &Match, process: BorrowedFd<'_>| signals::send(process, libc::SIGKILL, None);
        let signalled = |found: &Match| {
            let is_there = std::fs::read(format!("/proc/{}/stat", found.pid)).is_ok();
            let again = |_| Ok(is_there.then(|| started_at(start_ns)).into_iter().collect());
            send(std::slice::from_ref(found), again, kill)
        };
        assert_eq!(signalled(&earlier).expect("an answer"), []);
        let nothing = |_| Ok(Vec::new());
        let matches = std::slice::from_ref(&found);
        assert_eq!(send(matches, nothing, kill).expect("an answer"), []);
        assert!(child.try_wait().expect("a child").is_none());
        assert_eq!(
            signalled(&found).expect("an answer").as_slice(),
            std::slice::from_ref(&found)
        );
        child.wait().expect("it was killed");
        assert_eq!(signalled(&found).expect("an answer"), []);
    }

    /// Check which words are taken as signals, and that other commands keep their arguments.
    #[test]
    fn some_words_are_signals() {
        let line = |words: &str| {
            let arguments = with_signal(words.split(' ').map(OsString::from).collect());
            let arguments: Vec<String> = arguments
                .into_iter()
                .filter_map(|word| word.into_string().ok())
                .collect();
            arguments.join(" ")
        };
        for (words, expected) in [
            ("taskdiag pkill -9 x", "taskdiag pkill --signal=9 x"),
            (
                "taskdiag --color never pkill -HUP x",
                "taskdiag --color never pkill --signal=HUP x",
            ),
            ("taskdiag pkill -x -HUP x", "taskdiag pkill -x --signal=HUP x"),
            ("taskdiag pkill -SIGTERM x", "taskdiag pkill --signal=SIGTERM x"),
            ("taskdiag pkill -SIG0 x", "taskdiag pkill --signal=SIG0 x"),
            ("taskdiag pkill -exit x", "taskdiag pkill --signal=exit x"),
            ("taskdiag pkill -SIG x", "taskdiag pkill -SIG x"),
            ("taskdiag pkill -TREM x", "taskdiag pkill --signal=TREM x"),
            ("taskdiag pkill -SIGFOO x", "taskdiag pkill --signal=SIGFOO x"),
            ("taskdiag pkill -q -5 -INT x", "taskdiag pkill -q -5 --signal=INT x"),
            ("taskdiag pkill -f -- -", "taskdiag pkill -f -- -"),
            ("taskdiag pkill -f -- -9", "taskdiag pkill -f -- -9"),
            ("taskdiag pkill -hup x", "taskdiag pkill --signal=hup x"),
            ("taskdiag pkill -sigterm x", "taskdiag pkill --signal=sigterm x"),
            ("taskdiag pkill -io x", "taskdiag pkill --signal=io x"),
            ("taskdiag pkill -ix x", "taskdiag pkill -ix x"),
            ("taskdiag pkill x -u root", "taskdiag pkill x -u root"),
            ("taskdiag pgrep -9 x", "taskdiag pgrep -9 x"),
            ("taskdiag", "taskdiag"),
        ] {
            assert_eq!(line(words), expected);
        }
    }
}
