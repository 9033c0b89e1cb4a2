//! Sends signals and sets priorities and processors, for the selected processes or threads and no
//! others.

use std::os::fd::AsFd as _;

use rustix::io::Errno;
use rustix::process::{pidfd_open, setpriority_process, Pid, PidfdFlags};
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use taskdiag::{Field, Filter, Query};
use taskdiag_core::names;
use taskdiag_sys::host::possible_cpus;
use taskdiag_sys::{priority, signals};

use super::rows::Target;
use crate::outcome::WhoMay;
use crate::proc;

/// What can be done to processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    Signal,
    Nice,
    Io,
    Affinity,
}

/// What is done to processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessControl {
    pub kind: ControlKind,
    /// The number of the signal, the nice value, or the I/O priority as the kernel has it.
    number: i32,
    /// The same in words, or the list of processors.
    text: String,
}

/// The classes of I/O priorities, with other names.
const IO_CLASSES: [(&str, &str); 4] = [
    ("none", "none"),
    ("realtime", "rt"),
    ("best-effort", "be"),
    ("idle", "idle"),
];

/// Where the class is in an I/O priority.
const IO_CLASS_SHIFT: i32 = 13;

/// An I/O priority in words.
fn io_text(priority: i32) -> String {
    let (class, level) = (priority >> IO_CLASS_SHIFT, priority & 7);
    match IO_CLASSES.get(class as usize) {
        Some((name, _)) if class == 1 || class == 2 => format!("{name} {level}"),
        Some((name, _)) => (*name).to_owned(),
        None => priority.to_string(),
    }
}

fn io_priority(text: &str) -> Option<i32> {
    // `be 7`, `be7`, and `2 7` as ionice(1) counts.
    let class = text.strip_suffix(|last: char| last.is_ascii_digit()).unwrap_or(text);
    let (class, level) = match class {
        "" => (text, ""),
        class => (class.trim_end(), &text[class.len()..]),
    };
    let is_class = |(number, (name, other)): (usize, &(&str, &str))| {
        [name, other].contains(&&class) || class == number.to_string()
    };
    let class = IO_CLASSES.iter().enumerate().position(is_class)? as i32;
    let level = match (level, class) {
        ("", 1 | 2) => 4,
        ("", _) => 0,
        (level, 1 | 2) => level.parse().ok().filter(|level| (0..8).contains(level))?,
        _ => return None,
    };
    Some(class << IO_CLASS_SHIFT | level)
}

/// The processors of a list such as `0-3,5`, of which none has a higher number than this.
fn processors(text: &str, most: usize) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last > most {
            return None;
        }
        (first..=last).for_each(|cpu| set.set(cpu));
    }
    Some(set)
}

impl ControlKind {
    fn noun(self) -> &'static str {
        match self {
            ControlKind::Signal => "signal",
            ControlKind::Nice => "nice value",
            ControlKind::Io => "I/O priority",
            ControlKind::Affinity => "processors",
        }
    }

    /// What a question about it begins with.
    pub fn label(self) -> String {
        format!(
            "{} {}",
            self.noun(),
            if self == ControlKind::Signal { "for" } else { "of" }
        )
    }

    /// What an answer means, or what it can be.
    pub fn parse(self, text: &str) -> Result<ProcessControl, String> {
        let text = text.trim();
        let last = possible_cpus() - 1;
        let is_nice = |nice: &i32| (-20..=19).contains(nice);
        let (meant, known) = match self {
            ControlKind::Signal => (
                names::signal(text).map(|number| (number as i32, signal_name(number))),
                "not a signal: a name such as TERM or HUP, or a number".to_owned(),
            ),
            ControlKind::Nice => (
                text.parse().ok().filter(is_nice).map(|nice| (nice, nice.to_string())),
                "a nice value is a number from -20 to 19".to_owned(),
            ),
            ControlKind::Io => (
                io_priority(text).map(|priority| (priority, io_text(priority))),
                "an I/O priority is none, idle, or best-effort or realtime with a level from 0 to 7: be 4".to_owned(),
            ),
            ControlKind::Affinity => (
                processors(text, last as usize).map(|_| (0, text.to_owned())),
                format!("processors are a list of numbers from 0 to {last}, such as 0-{last}"),
            ),
        };
        let (number, text) = meant.ok_or(known)?;
        Ok(ProcessControl {
            kind: self,
            number,
            text,
        })
    }

    /// What a process has now, as an answer; empty if that is not known.
    pub fn now(self, target: &Target) -> String {
        let known = match self {
            ControlKind::Signal => return "TERM".to_owned(),
            ControlKind::Nice => target.nice.map(|nice| nice.to_string()),
            _ if proc::chosen().is_outer() => None,
            ControlKind::Io => {
                let thread = pid(target.tid).ok();
                thread
                    .and_then(|thread| priority::io_priority(thread).ok())
                    .map(io_text)
            }
            ControlKind::Affinity => {
                let query = query(&[target]).fields(Field::StartNs | Field::Affinity);
                let answer = proc::handle().one_shot().query(&query).ok();
                let of = |tasks: taskdiag::Snapshot| Some(tasks.tasks().next()?.affinity().ok()?.to_string());
                answer.and_then(of)
            }
        };
        known.unwrap_or_default()
    }
}

fn signal_name(number: u32) -> String {
    let name = names::SIGNALS.get(number as usize - 1);
    name.map_or_else(|| number.to_string(), |name| format!("SIG{name}"))
}

impl ProcessControl {
    /// The words before and after those to whom it is done, in a question.
    pub fn question(&self) -> (String, String) {
        match self.kind {
            ControlKind::Signal => (format!("send {} to", self.text), String::new()),
            kind => (format!("set the {} of", kind.noun()), format!(" to {}", self.text)),
        }
    }

    /// That it is done to these.
    pub fn done(&self, whom: &str) -> String {
        let (noun, text) = (self.kind.noun(), &self.text);
        match self.kind {
            ControlKind::Signal => format!("{} was sent to {whom}", self.text),
            ControlKind::Affinity => format!("the {noun} of {whom} are {text} now"),
            _ => format!("the {noun} of {whom} is {text} now"),
        }
    }

    /// Does it to a process or a thread. The descriptor is opened before the check, so that a signal
    /// does not hit a process that gets the same id later. Priorities and processors are those of the
    /// thread; for a process, of its leader, like renice(1). No such system call takes a descriptor,
    /// so there is a check before and after.
    pub fn apply(&self, target: &Target) -> Result<(), String> {
        let none = format!("no {}", self.kind.noun());
        proc::chosen().check_ids(&none).map_err(|error| error.to_string())?;
        let thread = pid(target.tid)?;
        let process = pidfd_open(pid(target.pid)?, PidfdFlags::empty()).map_err(said)?;
        check(target)?;
        match self.kind {
            ControlKind::Signal => return signals::send(process.as_fd(), self.number, None).map_err(said),
            ControlKind::Nice => setpriority_process(Some(thread), self.number).map_err(|errno| match errno {
                Errno::ACCESS => "you may not lower nice values (CAP_SYS_NICE may)".to_owned(),
                errno => said(errno),
            }),
            ControlKind::Io => priority::set_io_priority(thread, self.number).map_err(said),
            ControlKind::Affinity => {
                let set = processors(&self.text, CpuSet::MAX_CPU - 1).unwrap_or_default();
                sched_setaffinity(Some(thread), &set).map_err(|errno| match errno {
                    Errno::INVAL => "none of these processors is there for it".to_owned(),
                    errno => said(errno),
                })?;
                match sched_getaffinity(Some(thread)) {
                    Ok(kept) if kept != set => {
                        return Err(format!(
                            "it may use {} now: the others are not there for it",
                            self.kind.now(target)
                        ))
                    }
                    _ => Ok(()),
                }
            }
        }?;
        check(target)
    }
}

fn pid(number: u32) -> Result<Pid, String> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| "it is not a process of this pid namespace".to_owned())
}

fn said(errno: Errno) -> String {
    match errno {
        Errno::SRCH => "it has ended".to_owned(),
        Errno::PERM => format!("you may not ({})", WhoMay::see_denied()),
        errno => errno.to_string(),
    }
}

/// The tasks with the ids of these.
fn query(targets: &[&Target]) -> Query {
    let pids = targets.iter().map(|target| target.pid);
    if targets.iter().all(|target| target.tid == target.pid) {
        return Query::these(pids);
    }
    let tids: Vec<u32> = targets.iter().map(|target| target.tid).collect();
    Query::threads_of_these(pids).filter(Filter::one_of(Field::Tid, &tids))
}

/// Why each of these can't be meant: it has ended, or its id belongs to another task by now. One that
/// started in the same tick has, at least, the same name; those of kernel threads change with their
/// work.
pub fn refusals(targets: &[&Target]) -> Vec<Option<String>> {
    let query = query(targets).fields(Field::StartNs | Field::Comm | Field::KernelThread);
    let snapshot = match proc::handle().one_shot().query(&query) {
        Ok(snapshot) => snapshot,
        Err(error) => return targets.iter().map(|_| Some(format!("{error:#}"))).collect(),
    };
    let found = |target: &Target| snapshot.tasks().find(|task| task.identity() == Ok(target.identity));
    let refusal = |target: &&Target| match found(target) {
        None => Some(said(Errno::SRCH)),
        Some(task) if task.comm() == Ok(target.name.as_slice()) || task.kernel_thread() == Ok(true) => None,
        Some(_) => Some("it has another name by now: select it again".to_owned()),
    };
    targets.iter().map(refusal).collect()
}

fn check(target: &Target) -> Result<(), String> {
    refusals(&[target]).into_iter().flatten().next().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::getpriority_process;

    use super::*;
    use taskdiag::Handle;

    fn sleeper() -> (Child, Target) {
        let child = Command::new("sleep").arg("1000").spawn().expect("sleep exists");
        let snapshot = Handle::new().query(&Query::process(child.id()).fields(Field::StartNs));
        let target = Target {
            pid: child.id(),
            tid: child.id(),
            identity: snapshot.expect("an answer").task(0).identity().expect("a start time"),
            name: b"sleep".to_vec(),
            user: Vec::new(),
            nice: None,
        };
        (child, target)
    }

    fn control(kind: ControlKind, text: &str) -> ProcessControl {
        kind.parse(text).expect("an answer")
    }

    fn controls() -> [ProcessControl; 4] {
        [
            control(ControlKind::Signal, "TERM"),
            control(ControlKind::Nice, "7"),
            control(ControlKind::Io, "idle"),
            control(ControlKind::Affinity, "0"),
        ]
    }

    /// Check which answers have a meaning, and that what a process has is an answer.
    #[test]
    fn answers_have_a_meaning() {
        for (kind, text, meant) in [
            (
                ControlKind::Io,
                "be 7",
                Some((2 << IO_CLASS_SHIFT | 7, "best-effort 7")),
            ),
            (ControlKind::Io, "realtime 0", Some((1 << IO_CLASS_SHIFT, "realtime 0"))),
            (
                ControlKind::Io,
                "best-effort",
                Some((2 << IO_CLASS_SHIFT | 4, "best-effort 4")),
            ),
            (ControlKind::Io, "idle", Some((3 << IO_CLASS_SHIFT, "idle"))),
            (ControlKind::Io, "none", Some((0, "none"))),
            (ControlKind::Io, "rt7", Some((1 << IO_CLASS_SHIFT | 7, "realtime 7"))),
            (ControlKind::Io, "2 7", Some((2 << IO_CLASS_SHIFT | 7, "best-effort 7"))),
            (ControlKind::Io, "3", Some((3 << IO_CLASS_SHIFT, "idle"))),
            (ControlKind::Io, "idle3", None),
            (ControlKind::Io, "9 1", None),
            (ControlKind::Io, "idle 3", None),
            (ControlKind::Io, "be 8", None),
            (ControlKind::Io, "", None),
            (ControlKind::Affinity, " 0-0,0 ", Some((0, "0-0,0"))),
            (ControlKind::Affinity, "0,1023", None),
            (ControlKind::Affinity, "3-0", None),
            (ControlKind::Affinity, "0-99999999999", None),
            (ControlKind::Affinity, "", None),
            (ControlKind::Signal, "hup", Some((1, "SIGHUP"))),
            (ControlKind::Signal, "0", None),
            (ControlKind::Nice, "-20", Some((-20, "-20"))),
            (ControlKind::Nice, "-21", None),
        ] {
            let control = kind.parse(text).ok();
            let found = control.as_ref().map(|control| (control.number, control.text.as_str()));
            assert_eq!(found, meant, "{text}");
            assert!(
                control.is_none_or(|control| kind.parse(&control.text) == Ok(control)),
                "{text}"
            );
        }
    }

    /// Check that actions reach the selected process, and not another process with the same id.
    #[test]
    fn only_the_one_that_is_meant() {
        let (mut child, target) = sleeper();
        let (mut other, another) = sleeper();
        let wrong = Target {
            identity: another.identity,
            ..target.clone()
        };
        let ended = Err("it has ended".to_owned());
        for control in controls() {
            assert_eq!(control.apply(&wrong), ended, "{control:?}");
        }
        for control in &controls()[1..] {
            assert_eq!(control.apply(&target), Ok(()), "{control:?}");
        }
        assert_eq!(getpriority_process(Some(Pid::from_child(&child))), Ok(7));
        assert!(child.try_wait().expect("a child").is_none());
        let thread = Pid::from_child(&child);
        assert_eq!(priority::io_priority(thread).map(io_text), Ok("idle".to_owned()));
        assert_eq!(ControlKind::Io.now(&target), "idle");
        assert_eq!(ControlKind::Affinity.now(&target), "0");
        // The kernel takes what is there, and does not say what it left out.
        let mut some = control(ControlKind::Affinity, "0");
        some.text.push_str(",1023");
        let some = some.apply(&target);
        assert!(some.is_err_and(|said| said.starts_with("it may use 0 now")));
        assert_eq!(control(ControlKind::Signal, "TERM").apply(&target), Ok(()));
        child.wait().expect("it ends");
        for control in controls() {
            assert_eq!(control.apply(&target), ended, "{control:?}");
        }
        let renamed = Target {
            name: b"slept".to_vec(),
            ..another
        };
        assert!(control(ControlKind::Signal, "TERM")
            .apply(&renamed)
            .is_err_and(|said| said.contains("another name")));
        assert_eq!(other.try_wait().expect("a child"), None);
        other.kill().expect("it is ours");
        other.wait().expect("it ends");
    }
}
