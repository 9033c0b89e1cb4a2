//! What is compared: a case has a stage, contenders, and targets. Suites are lists of cases.

use std::any::Any;
use std::time::{Duration, Instant};

use crate::tools::Tools;
use crate::Result;

/// Some figures that are compared in one run, and their table in the report.
pub struct Case {
    /// The heading of the report. The stage may add to it.
    pub title: String,
    /// What to know about the table.
    pub note: String,
    /// What a row of an answer is, for the columns of figures of each; none, if rows are not counted.
    pub row: &'static str,
    /// What is counted besides time.
    pub counts: Counts,
    /// Starts what the contenders look at.
    pub stage: Box<dyn Fn() -> Result<Stage>>,
    /// Who takes part.
    pub contenders: Vec<Contender>,
    /// What is wanted.
    pub targets: Vec<Target>,
}

impl Case {
    /// A case of which times, system calls and memory are shown.
    pub fn new(title: impl Into<String>, stage: impl Fn() -> Result<Stage> + 'static) -> Case {
        Case {
            title: title.into(),
            note: String::new(),
            row: "",
            counts: Counts::All,
            stage: Box::new(stage),
            contenders: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// The case with these contenders and targets.
    pub fn of(mut self, contenders: Vec<Contender>, targets: Vec<Target>) -> Case {
        (self.contenders, self.targets) = (contenders, targets);
        self
    }

    /// The case with what is counted, and what a row is.
    pub fn counting(mut self, counts: Counts, row: &'static str) -> Case {
        (self.counts, self.row) = (counts, row);
        self
    }
}

/// What is counted in runs of their own, because counting takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// System calls and memory.
    All,
    /// Memory: so many system calls would take too long to count.
    Memory,
    /// Nothing: contenders run for a long time and know their memory.
    Nothing,
}

/// What the contenders look at, as long as this lives.
#[derive(Default)]
pub struct Stage {
    /// What the contenders need to know of it, such as a process's id.
    pub subject: String,
    /// The end of the heading.
    pub title: String,
    /// How many rows an answer has, for contenders that do not count them.
    pub rows: usize,
    /// How many rows an answer has at least.
    pub least: usize,
    /// Ends it when dropped.
    pub kept: Vec<Box<dyn Any>>,
}

impl Stage {
    /// Keeps something until the end.
    pub fn keep(mut self, thing: impl Any) -> Stage {
        self.kept.push(Box::new(thing));
        self
    }

    /// Names the subject.
    pub fn subject(self, subject: impl ToString) -> Stage {
        Stage {
            subject: subject.to_string(),
            ..self
        }
    }
}

/// The result of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// How long it took, without the preparation.
    pub took: Duration,
    /// The number of rows; 0 if unknown.
    pub rows: usize,
    /// The bytes of the answer; 0 if unknown.
    pub bytes: u64,
    /// The peak memory of the program so far, in KiB, if the run knows it; 0 if not.
    pub peak_kib: u64,
}

/// Runs a contender once.
pub type Runner = Box<dyn FnMut() -> Result<Run>>;

/// A runner that measures the time of a call, which returns the number of rows.
pub fn timed(mut call: impl FnMut() -> Result<usize> + 'static) -> Result<Runner> {
    Ok(Box::new(move || {
        let start = Instant::now();
        let rows = call()?;
        let took = start.elapsed();
        Ok(Run {
            took,
            rows,
            ..Run::default()
        })
    }))
}

/// What contenders know when they prepare.
#[derive(Clone, Debug)]
pub struct Context {
    /// The programs.
    pub tools: Tools,
    /// The subject of the stage.
    pub subject: String,
    /// The command that runs a contender of this case in a process of its own, without its name.
    pub serve: Vec<String>,
}

impl Context {
    /// A number of the subject.
    pub fn number(&self, index: usize) -> Result<u32> {
        let words = self.subject.split(' ').nth(index);
        Ok(words.and_then(|word| word.parse().ok()).ok_or("no such number")?)
    }
}

/// Prepares a contender that is code of this program. An error says why it can't take part.
pub type Prepare = Box<dyn Fn(&Context) -> Result<Runner>>;

/// How to run a contender.
pub enum Way {
    /// In this process.
    Call(Prepare),
    /// In a process of this program that belongs to another user.
    CallAs(u32, Prepare),
    /// As a command. `taskdiag` is the measured one, `SUBJECT` is the subject of the stage.
    Command(Vec<String>),
    /// In a running Python with psutil that measures the time itself.
    Psutil(&'static str),
}

/// A contender.
pub struct Contender {
    /// Its name in the case.
    pub name: String,
    /// What it does.
    pub about: &'static str,
    /// How to run it.
    pub way: Way,
}

impl Contender {
    /// A contender that runs in this way.
    pub fn new(name: impl Into<String>, about: &'static str, way: Way) -> Contender {
        let name = name.into();
        Contender { name, about, way }
    }
}

/// A contender that is code of this program.
pub fn call(
    name: impl Into<String>,
    about: &'static str,
    prepare: impl Fn(&Context) -> Result<Runner> + 'static,
) -> Contender {
    Contender::new(name, about, Way::Call(Box::new(prepare)))
}

/// A contender that is a command.
pub fn command(name: impl Into<String>, about: &'static str, words: &str) -> Contender {
    let words = words.split(' ').map(str::to_owned);
    Contender::new(name, about, Way::Command(words.collect()))
}

/// A contender whose name is the command.
pub fn whole(words: &str) -> Contender {
    command(format!("command: {words}"), "", words)
}

/// A contender that is psutil.
pub fn psutil(name: &str, about: &'static str, what: &'static str) -> Contender {
    Contender::new(name, about, Way::Psutil(what))
}

/// A figure of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Milliseconds.
    Time,
    /// The slowest round as a multiple of the median.
    Slowest,
    /// System calls.
    Calls,
    /// System calls for each row.
    CallsPerRow,
    /// Rows.
    Rows,
    /// Bytes of an answer.
    Bytes,
    /// Bytes for each row.
    BytesPerRow,
    /// Peak memory, in MiB.
    Peak,
}

/// The range in which a figure must lie.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// Anything: the figure is shown.
    Any,
}

/// What is wanted.
pub struct Target {
    /// What is claimed.
    pub claim: String,
    /// The figure.
    pub value: Value,
    /// Whose: that of the fastest of these.
    pub of: Vec<String>,
    /// If there are any: as a multiple of the figure of the fastest of these.
    pub against: Vec<String>,
    /// What is wanted.
    pub bound: Bound,
    /// The case in which it is wanted, if the figure is only shown for comparison here.
    pub elsewhere: Option<String>,
}

/// A figure of one contender.
pub fn single(claim: impl Into<String>, value: Value, of: &str, bound: Bound) -> Target {
    Target {
        claim: claim.into(),
        value,
        of: vec![of.to_owned()],
        against: Vec::new(),
        bound,
        elsewhere: None,
    }
}

/// A figure as a multiple of that of others.
pub fn ratio(claim: impl Into<String>, value: Value, of: &str, against: &[&str], bound: Bound) -> Target {
    Target {
        against: against.iter().map(|&name| name.to_owned()).collect(),
        ..single(claim, value, of, bound)
    }
}

/// How many times as fast a contender must be as another one.
pub fn times(claim: impl Into<String>, slow: &str, fast: &str, least: f64) -> Target {
    ratio(claim, Value::Time, slow, &[fast], Bound::AtLeast(least))
}
