//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use taskdiag_protocol::wire;

use crate::log::Level;
use crate::passwd;
use crate::quotas::Limits;

/// The longest patience in seconds: a day.
const MAX_PATIENCE: usize = 24 * 60 * 60;

/// What `--help` prints.
pub const HELP: &str = "\
Answers requests about processes over a local socket, in task_diag's message format. Shows each
client only what /proc mounted with hidepid=2 would show it.

Usage: taskdiagd [OPTIONS]

Options:
      --socket PATH         Listen on this socket, unless systemd passes one
                            [default: /run/taskdiag/taskdiag.sock]
      --observers GROUP     Show members of this group base, cred, cpu, faults and mem of every task
      --user NAME           Become this user, if started by root [default: taskdiag, or id 65519]
      --max-clients N       Clients at a time [default: 256]
      --max-user-clients N  Clients of one user at a time, at most 3/8 of all [default: 96]
      --memory MIB          Memory for answers that are not read yet, at most a third of it for one
                            user [default: 512]
      --patience SECONDS    Time that a client may take to read an answer, and a second more for
                            each MiB that it has read, at most a day [default: 10]
      --count-network       Count what processes send and receive through sockets; root, and those who
                            may trace a process, get it
      --no-sharing          Make a pass for each request, to measure what sharing saves
      --no-sandbox          Do without seccomp and Landlock, to look for errors
      --log-level LEVEL     error, warning, info or debug [default: info]
  -h, --help                Print this help
  -V, --version             Print the version

taskdiagd needs CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE, or root.
";

/// How to run.
#[derive(Debug)]
pub struct Options {
    /// Where to listen, unless systemd passes a socket.
    pub socket: PathBuf,
    /// The group of observers.
    pub observers: Option<u32>,
    /// The user and group to become.
    pub user: Option<(u32, u32)>,
    /// What clients may use.
    pub limits: Limits,
    /// Whether to count network traffic.
    pub count_network: bool,
    /// Whether to use seccomp and Landlock.
    pub is_confined: bool,
    /// Which messages to log.
    pub log_level: Level,
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Command {
    /// Run.
    Run(Options),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// Parses the command line, the program's name included.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        socket: PathBuf::from(wire::SOCKET),
        observers: None,
        user: None,
        limits: Limits::default(),
        count_network: false,
        is_confined: true,
        log_level: Level::Info,
    };
    let limits = &mut options.limits;
    let mut parser = lexopt::Parser::from_iter(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("socket") => {
                // With an empty path, the kernel would choose a name that no client knows.
                let path = Some(parser.value()?).filter(|path| !path.is_empty());
                options.socket = path.ok_or("--socket takes a path")?.into();
            }
            Long("observers") => {
                let name = parser.value()?.string()?;
                let group = passwd::group(&name);
                options.observers = Some(group.ok_or_else(|| format!("there is no group {name:?}"))?);
            }
            Long("user") => {
                let name = parser.value()?.string()?;
                let id = || name.parse().ok().map(|id| (id, id));
                let user = passwd::user(&name).or_else(id).filter(|user| user.0 != 0);
                options.user = Some(user.ok_or_else(|| format!("{name:?} is root, or no user"))?);
            }
            Long("memory") => {
                limits.answer_bytes = at_least_one("--memory", &mut parser)?.saturating_mul(1 << 20);
            }
            Long("max-clients") => limits.max_clients = at_least_one("--max-clients", &mut parser)?,
            Long("max-user-clients") => {
                limits.max_clients_per_user = at_least_one("--max-user-clients", &mut parser)?;
            }
            Long("patience") => {
                let seconds = Some(at_least_one("--patience", &mut parser)?).filter(|&seconds| seconds <= MAX_PATIENCE);
                let seconds =
                    seconds.ok_or_else(|| format!("--patience takes at most {MAX_PATIENCE} seconds, a day"))?;
                limits.patience = Duration::from_secs(seconds as u64);
            }
            Long("count-network") => options.count_network = true,
            Long("no-sharing") => limits.share_passes = false,
            Long("no-sandbox") => options.is_confined = false,
            Long("log-level") => {
                let level = Level::parse(&parser.value()?.string()?);
                options.log_level = level.ok_or("--log-level takes error, warning, info or debug")?;
            }
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => return Ok(Command::Version),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Command::Run(options))
}

/// The number of an option, at least 1: with 0 the broker would serve nobody.
fn at_least_one(option: &str, parser: &mut lexopt::Parser) -> Result<usize, lexopt::Error> {
    use lexopt::ValueExt as _;
    let text = parser.value()?.string()?;
    let number = text.parse().ok().filter(|&number| number > 0);
    Ok(number.ok_or_else(|| format!("{option} takes a number above 0, not {text:?}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command, lexopt::Error> {
        parse(line.split(' ').map(OsString::from))
    }

    /// Check each option, and the defaults.
    #[test]
    fn options_are_parsed() {
        let line = "taskdiagd --socket /s --observers 7 --user 1000 --max-clients 4 --max-user-clients 2 \
                    --memory 3 --patience 5 --no-sharing --no-sandbox --log-level debug";
        let Ok(Command::Run(options)) = parse_line(line) else {
            panic!("a valid line");
        };
        assert_eq!((options.socket, options.observers), (PathBuf::from("/s"), Some(7)));
        assert_eq!((options.user, options.is_confined), (Some((1000, 1000)), false));
        assert_eq!(options.log_level, Level::Debug);
        let limits = options.limits;
        assert_eq!((limits.max_clients, limits.max_clients_per_user), (4, 2));
        assert_eq!(
            (limits.answer_bytes, limits.patience),
            (3 << 20, Duration::from_secs(5))
        );
        assert!(!limits.share_passes);
        let Ok(Command::Run(defaults)) = parse_line("taskdiagd") else {
            panic!("no options");
        };
        assert_eq!(defaults.socket, PathBuf::from("/run/taskdiag/taskdiag.sock"));
        assert!(defaults.is_confined && defaults.user.is_none() && defaults.observers.is_none());
        assert!(matches!(parse_line("taskdiagd --help"), Ok(Command::Help)));
        assert!(matches!(parse_line("taskdiagd -V"), Ok(Command::Version)));
    }

    /// Check that invalid command lines are refused: root as the user, limits that would serve
    /// nobody, and unknown options.
    #[test]
    fn invalid_options_are_refused() {
        for line in [
            "--user 0",
            "--user root",
            "--user no-such-user",
            "--observers no-such-group",
            "--max-clients 0",
            "--max-clients x",
            "--max-user-clients 0",
            "--memory 0",
            "--patience 0",
            "--patience -1",
            "--patience 86401",
            "--log-level loud",
            "--socket",
            "--socket ",
            "--unknown",
            "operand",
        ] {
            assert!(parse_line(&format!("taskdiagd {line}")).is_err(), "{line}");
        }
    }

    /// Check that the manual page has the options of the help, and no others.
    #[test]
    fn manual_page_has_all_options() {
        let long_options = |text: &str| -> std::collections::BTreeSet<String> {
            let words = text.split(|character: char| !character.is_ascii_lowercase() && character != '-');
            words
                .filter(|word| word.starts_with("--") && word.len() > 2)
                .map(str::to_owned)
                .collect()
        };
        let page = include_str!("../taskdiagd.8").replace("\\-", "-");
        let heads: String = page
            .lines()
            .filter(|line| line.starts_with(".B") && line.contains("--") && !line.contains("systemctl"))
            .map(|line| format!("{line}\n"))
            .collect();
        let mut documented = long_options(&heads);
        // An option of another command, `taskdiag`.
        documented.remove("--source");
        assert_eq!(documented, long_options(HELP));
    }
}
