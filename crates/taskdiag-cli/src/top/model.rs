//! The rows of the table: the last samples, in the order in which they are shown.

use std::cmp::Reverse;
use std::collections::HashMap;

use taskdiag::{Absent, Field, Filter, Identity, Snapshot, Task, Value};
use taskdiag_core::forest::{Forest, Line};

use super::column::{Order, SortKey};
use super::details::Details;
use super::groups::{self, Group};
use super::rows::{Id, Rows, Target};
use super::trend::{tenths, Trends};
use super::view::{Table, View};
use crate::choice::{self, Key};
use crate::grouping::Name;
use crate::output::names::Names;
use crate::output::relation::{Cell, Row};
use crate::watch::{is_true_of, LastSamples, Rate, Rates, SampleTime};

/// Tasks by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct States {
    /// All of them.
    pub tasks: u64,
    /// R
    pub running: u64,
    /// S
    pub sleeping: u64,
    /// D
    pub uninterruptible: u64,
    /// I
    pub idle: u64,
    /// T and t
    pub stopped: u64,
    /// Z and X
    pub zombie: u64,
}

impl States {
    fn add(&mut self, state: Option<char>) {
        self.tasks += 1;
        match state {
            Some('R') => self.running += 1,
            Some('S') => self.sleeping += 1,
            Some('D') => self.uninterruptible += 1,
            Some('I') => self.idle += 1,
            Some('T' | 't') => self.stopped += 1,
            Some('Z' | 'X') => self.zombie += 1,
            _ => {}
        }
    }
}

/// What is known about the rows.
#[derive(Default)]
pub struct Model {
    /// The survey.
    pub snapshot: Snapshot,
    /// What each task of the survey did.
    rates: Vec<Rates>,
    /// The kind of the survey's rows.
    pub rows: Rows,
    last: LastSamples,
    /// The processor time of tasks.
    pub trends: Trends<Identity>,
    /// The resident sets of the tasks that were on the screen, in KiB; 0 where unknown.
    pub sizes: Trends<Identity, u32>,
    /// What the examined processes read and wrote, in KiB a second; 0 where unknown.
    pub reads: Trends<Identity, u32>,
    pub writes: Trends<Identity, u32>,
    /// The processor time of groups.
    pub group_trends: Trends<Vec<Name>>,
    names: Names,
    /// The tasks of the rows by their states.
    pub states: States,
    groups: Vec<Group>,
    /// The rows in order: indices of tasks or groups, with their places in the tree.
    pub lines: Vec<Line>,
    /// The close look.
    pub look: Snapshot,
    /// The indices of the tasks of the close look.
    looked_at: HashMap<Identity, usize>,
    /// The number of rows that fit on the screen.
    pub height: usize,
}

/// A task on the screen, with its values from the survey and from the close look.
#[derive(Clone, Copy)]
pub struct ShownTask<'a> {
    /// From the survey.
    pub task: Task<'a>,
    /// From the close look, if there was one.
    pub look: Option<Task<'a>>,
    /// What it did.
    pub rates: &'a Rates,
    /// Its place in the tree.
    pub line: &'a Line,
}

impl Row for ShownTask<'_> {
    fn cell(&self, column: usize) -> Cell<'_> {
        match (self.task.value(Field::ALL[column]), &self.look) {
            // The values that rows are sorted by are those that are shown.
            (Err(Absent::NotAsked), Some(look)) => look.cell(column),
            (value, _) => value.map_err(Absent::as_str),
        }
    }
}

impl Model {
    /// Forgets earlier samples, because the next one does not follow the last one in time.
    pub fn forget(&mut self) {
        (self.last, self.trends, self.group_trends, self.names) = Default::default();
        (self.sizes, self.reads, self.writes) = Default::default();
    }

    /// Takes a sample with such rows, and returns the memory of the last one. Sums and states are of the
    /// tasks for which a filter over rates is true.
    pub fn survey(&mut self, rows: Rows, snapshot: Snapshot, moment: SampleTime, rated: Option<&Filter>) -> Snapshot {
        if (self.rows == Rows::Threads) != (rows == Rows::Threads) {
            // The times of a leader are not those of its process.
            (self.last, self.trends, self.sizes) = Default::default();
        }
        let before = std::mem::replace(&mut self.snapshot, snapshot);
        self.rows = rows;
        self.rates = self.last.add(&self.snapshot, moment);
        self.states = States::default();
        self.trends.begin();
        for (task, rates) in self.snapshot.tasks().zip(&self.rates) {
            if is_wanted(rated, &task, rates) {
                self.states.add(task.state().ok());
            }
            if let Some(percent) = rates.get(Rate::Cpu).filter(|percent| *percent > 0.0) {
                self.trends.add(Identity::of(task.record().header()), tenths(percent));
            }
        }
        for trends in [&mut self.sizes, &mut self.reads, &mut self.writes] {
            trends.begin();
        }
        self.add_up(rated);
        before
    }

    /// Sums groups, if the rows are groups.
    fn add_up(&mut self, rated: Option<&Filter>) {
        self.groups.clear();
        let Rows::By(by) = self.rows else {
            self.group_trends = Trends::default();
            return;
        };
        let tasks = self.snapshot.tasks().zip(&self.rates);
        let tasks = tasks.filter(|(task, rates)| is_wanted(rated, task, rates));
        self.groups = groups::groups(by, tasks, &mut self.names);
        self.group_trends.begin();
        for group in &self.groups {
            self.group_trends.add(
                group.names.clone(),
                tenths(group.rates[Rate::Cpu as usize].unwrap_or(0.0)),
            );
        }
    }

    /// Takes a close look, and returns the memory of the last one.
    pub fn look(&mut self, look: Snapshot) -> Snapshot {
        let before = std::mem::replace(&mut self.look, look);
        self.looked_at.clear();
        for (index, task) in self.look.tasks().enumerate() {
            let identity = Identity::of(task.record().header());
            self.looked_at.insert(identity, index);
            if let Ok(bytes) = task.rss_bytes() {
                self.sizes.add(identity, kibibytes(bytes));
            }
        }
        before
    }

    /// Puts the rows in order.
    pub fn arrange(&mut self, view: &View, rated: Option<&Filter>) {
        if let Rows::By(_) = self.rows {
            let key = |group: usize, key| self.groups[group].key(key).ok_or(());
            self.lines = flat(choice::order(self.groups.len(), &[view.order], key));
            return;
        }
        let order = self.sorted(view.order, rated);
        if view.rows != Rows::Tree || self.rows == Rows::Threads {
            self.lines = flat(order);
            return;
        }
        let mut lines = Forest::of(order.iter().map(|&index| self.place(index))).lines();
        for line in &mut lines {
            line.task = order[line.task];
        }
        self.lines = lines;
    }

    /// The ids of a task and its parent.
    fn place(&self, index: usize) -> (u32, u32) {
        let task = self.snapshot.task(index);
        (task.record().header().pid.get(), task.ppid().unwrap_or(0))
    }

    /// The indices of the tasks for which a filter over rates is true, in order.
    fn sorted(&self, order: Order, rated: Option<&Filter>) -> Vec<usize> {
        let is_shown = |&index: &usize| is_wanted(rated, &self.snapshot.task(index), &self.rates[index]);
        let mut shown: Vec<usize> = (0..self.rates.len()).filter(is_shown).collect();
        // Of equal tasks, those come first that have used processor time last; then those with the
        // lowest ids.
        let last = |&index: &usize| {
            self.trends
                .last(&Identity::of(self.snapshot.task(index).record().header()))
        };
        shown.sort_by_cached_key(|index| Reverse(last(index)));
        let places = choice::order(shown.len(), &[order], |place, key| {
            let task = self.snapshot.task(shown[place]);
            let key = match key {
                SortKey::Rate(rate) => self.rates[shown[place]].get(rate).map(Key::Float),
                SortKey::Field(field) => task.value(field).ok().map(Key::from),
                SortKey::Time => time_ns(&task).map(|ns| Key::Number(ns.into())),
            };
            key.ok_or(())
        });
        places.into_iter().map(|place| shown[place]).collect()
    }

    /// The tasks on the screen, starting at a row, which need a close look.
    pub fn visible(&self, first: usize) -> Vec<(u32, Identity)> {
        if let Rows::By(_) = self.rows {
            return Vec::new();
        }
        let lines = self.lines.iter().skip(first).take(self.height);
        let task = |line: &Line| {
            let task = self.snapshot.task(line.task);
            let header = task.record().header();
            (header.pid.get(), Identity::of(header))
        };
        lines.map(task).collect()
    }

    pub fn row(&self, index: usize) -> Option<ShownTask<'_>> {
        if let Rows::By(_) = self.rows {
            return None;
        }
        let line = self.lines.get(index)?;
        let task = self.snapshot.task(line.task);
        let looked_at = self.looked_at.get(&Identity::of(task.record().header()));
        Some(ShownTask {
            task,
            look: looked_at.map(|&index| self.look.task(index)),
            rates: &self.rates[line.task],
            line,
        })
    }

    /// A row that is a sum.
    pub fn group(&self, index: usize) -> Option<&Group> {
        let Rows::By(_) = self.rows else { return None };
        self.groups.get(self.lines.get(index)?.task)
    }

    /// Takes the amounts of the examined process.
    pub fn note(&mut self, details: &Details) {
        let identity = details.target.identity;
        let Ok(snapshot) = &details.process else { return };
        if let Some(bytes) = snapshot.tasks().next().and_then(|task| task.rss_bytes().ok()) {
            self.sizes.add(identity, kibibytes(bytes));
        }
        let rate = |rate: Rate| details.activity?[rate as usize].ok();
        let kib = |bytes: f64| kibibytes(bytes as u64);
        self.reads.add(identity, rate(Rate::ReadBytes).map_or(0, kib));
        self.writes.add(identity, rate(Rate::WriteBytes).map_or(0, kib));
    }
}

/// Whether a filter over rates is true for a task.
fn is_wanted(rated: Option<&Filter>, task: &Task<'_>, rates: &Rates) -> bool {
    rated.is_none_or(|filter| is_true_of(filter, task, rates.get(Rate::Cpu)))
}

fn kibibytes(bytes: u64) -> u32 {
    u32::try_from(bytes / 1024).unwrap_or(u32::MAX)
}

fn time_ns(task: &Task<'_>) -> Option<u64> {
    Some(task.utime_ns().ok()?.saturating_add(task.stime_ns().ok()?))
}

/// Rows that are not in a tree.
fn flat(order: Vec<usize>) -> Vec<Line> {
    let line = |task| Line {
        task,
        depth: 0,
        last: true,
    };
    order.into_iter().map(line).collect()
}

impl Table for Model {
    fn len(&self) -> usize {
        self.lines.len()
    }

    fn height(&self) -> usize {
        self.height
    }

    fn id(&self, index: usize) -> Option<Id> {
        if let Some(group) = self.group(index) {
            return Some(Id::Group(group.names.clone()));
        }
        let row = self.row(index)?;
        Some(Id::Task(Identity::of(row.task.record().header())))
    }

    fn position(&self, id: &Id) -> Option<usize> {
        let is_same = |line: &Line| match id {
            Id::Group(names) => self.groups.get(line.task).is_some_and(|group| group.names == *names),
            Id::Task(identity) => Identity::of(self.snapshot.task(line.task).record().header()) == *identity,
        };
        if matches!(id, Id::Group(_)) != matches!(self.rows, Rows::By(_)) {
            return None;
        }
        self.lines.iter().position(is_same)
    }

    fn target(&self, index: usize) -> Option<Target> {
        let row = self.row(index)?;
        let header = row.task.record().header();
        Some(Target {
            pid: header.pid.get(),
            tid: header.tid.get(),
            identity: Identity::of(header),
            name: row.task.comm().unwrap_or_default().to_vec(),
            user: match row.cell(Field::User as usize) {
                Ok(Value::Text(name)) => name.to_vec(),
                _ => Vec::new(),
            },
            nice: match row.cell(Field::Nice as usize) {
                Ok(Value::Signed(nice)) => Some(nice),
                _ => None,
            },
        })
    }

    fn family(&self, index: usize) -> Vec<usize> {
        if self.rows == Rows::Threads {
            return vec![index];
        }
        let lines = Forest::of(self.lines.iter().map(|line| self.place(line.task))).lines();
        let mut below = lines.iter().skip_while(|line| line.task != index);
        let Some(first) = below.next() else { return Vec::new() };
        let below = below.take_while(|line| line.depth > first.depth);
        std::iter::once(first).chain(below).map(|line| line.task).collect()
    }

    fn has_text(&self, index: usize, text: &str) -> bool {
        let has = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes)
                .to_lowercase()
                .contains(&text.to_lowercase())
        };
        if let Some(group) = self.group(index) {
            return group.drawn.iter().any(|name| has(name.as_bytes()));
        }
        let Some(row) = self.row(index) else { return false };
        let header = row.task.record().header();
        if text
            .parse()
            .is_ok_and(|id: u32| id == header.pid.get() || id == header.tid.get())
        {
            return true;
        }
        let names = [Field::Comm, Field::Cmdline, Field::User];
        names.into_iter().any(|field| match row.cell(field as usize) {
            Ok(Value::Text(bytes)) => has(bytes),
            Ok(Value::Texts(arguments)) => has(&arguments
                .as_bytes()
                .iter()
                .map(|&byte| byte.max(b' '))
                .collect::<Vec<_>>()),
            _ => false,
        })
    }
}
