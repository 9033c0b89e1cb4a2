//! `taskdiag tree`.

use clap::Args as ClapArgs;
use taskdiag::{Field, Fields, Query, Task, Value};

use crate::listing::{Answers, Format, Listing, Options};
use crate::outcome::{say, Failure, Outcome};
use crate::output::cell::{self, Cells, Column, Show};
use crate::output::table::terminal_width;
use crate::output::text::locale_is_utf8;
use crate::output::{Absences, Output};
use crate::selection;

/// Show processes below their parents
///
/// Children are in the order of their ids. The roots are the processes whose parent is not to be seen: init, kthreadd, and
/// in a container whatever was started from outside. In JSON and CSV a row has its depth, and comes after its parent's.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Only this process and what is below it
    pid: Option<u32>,
    /// Draw with ASCII characters only [default: if the locale is not UTF-8]
    #[arg(long)]
    ascii: bool,
    #[command(flatten)]
    options: Options,
}

/// The fields for programs without `-o`.
const FIELDS: [Field; 5] = [Field::Pid, Field::Ppid, Field::State, Field::Comm, Field::Cmdline];

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let options = &args.options;
    let chosen = selection::fields(&options.fields)?;
    let columns = columns(&chosen);
    let (fields, asked): (Vec<Field>, Fields) = match options.format() {
        Format::Table => (chosen, columns.iter().flat_map(Column::fields).copied().collect()),
        Format::Machine(_) if chosen.is_empty() => (FIELDS.to_vec(), FIELDS.into_iter().collect()),
        Format::Machine(_) => (chosen.clone(), chosen.into_iter().collect()),
    };
    let query = Query::processes().fields(asked | Field::Ppid);
    let answers = Answers::ask(&mut options.from.handle(), &query)?;
    let all = answers.tasks();
    let forest = Forest::new(&all);
    let lines = match args.pid {
        None => forest.lines(),
        Some(pid) => forest
            .find(pid)
            .map(|root| forest.lines_below(root))
            .unwrap_or_default(),
    };

    let mut missing = Absences::new();
    match options.format() {
        Format::Table => {
            let branches = if args.ascii || !locale_is_utf8() { &ASCII } else { &UTF8 };
            let mut table = Column::table(&columns, lines.len(), !options.no_header);
            let mut cells = Cells::new(options.bytes, options.names);
            let mut drawing = Drawing::default();
            for line in &lines {
                let task = &all[line.task];
                for &column in &columns {
                    match column.show {
                        Show::Command => table.cell(|out| {
                            drawing.line(out, line, branches);
                            cell::command(out, task, &mut missing);
                        }),
                        _ => table.cell(|out| cells.write(out, column, task, &mut missing)),
                    }
                }
            }
            let mut output = Output::new();
            table.write(&mut output, terminal_width())?;
            output.finish()?;
        }
        Format::Machine(machine) => {
            let tasks: Vec<Task<'_>> = lines.iter().map(|line| all[line.task]).collect();
            let depths: Vec<u32> = lines.iter().map(|line| line.depth).collect();
            let listing = Listing {
                fields: &fields,
                tasks: &tasks,
                depths: Some(&depths),
                sample: None,
                total: None,
                header: !options.no_header,
                names: options.names,
            };
            answers.write("tree", machine, listing, &mut missing)?;
        }
    }
    if options.stats {
        answers.say_stats(lines.len());
    }
    let outcome = answers.report(&[(&missing, lines.len())]);
    match args.pid {
        Some(pid) if lines.is_empty() => {
            say(format_args!("pid {pid}: no such process"));
            Ok(Outcome::Partial)
        }
        _ => Ok(outcome),
    }
}

/// The columns of the table: the id, what was chosen, and the tree itself.
fn columns(chosen: &[Field]) -> Vec<Column> {
    let id = Column {
        heading: "PID",
        show: Show::Field(Field::Pid),
    };
    let tree = Column {
        heading: "COMMAND",
        show: Show::Command,
    };
    let chosen = chosen
        .iter()
        .copied()
        .filter(|&field| field != Field::Pid)
        .map(Column::of);
    std::iter::once(id).chain(chosen).chain([tree]).collect()
}

/// Processes and their parents.
#[derive(Debug)]
struct Forest {
    /// The id of each process.
    pids: Vec<u32>,
    /// The ids of parents, each with the index of a child; ascending.
    children: Vec<(u32, usize)>,
    /// Indices of the processes whose parent is not among them.
    roots: Vec<usize>,
}

/// A process at its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    /// Its index.
    task: usize,
    /// How many ancestors it has in the tree.
    depth: u32,
    /// Whether it is the last child of its parent.
    last: bool,
}

impl Forest {
    fn new(tasks: &[Task<'_>]) -> Forest {
        let number = |task: &Task<'_>, field| match task.value(field) {
            Ok(Value::Unsigned(number)) => number as u32,
            _ => 0,
        };
        let pair = |task: &Task<'_>| (number(task, Field::Pid), number(task, Field::Ppid));
        Forest::of(tasks.iter().map(pair))
    }

    /// The forest of processes given by their id and their parent's.
    fn of(pairs: impl Iterator<Item = (u32, u32)>) -> Forest {
        let (pids, parents): (Vec<u32>, Vec<u32>) = pairs.unzip();
        let mut sorted = pids.clone();
        sorted.sort_unstable();
        let mut children: Vec<(u32, usize)> = parents.iter().copied().zip(0..).collect();
        children.sort_unstable_by_key(|&(parent, index)| (parent, pids[index]));
        let is_root = |&index: &usize| parents[index] == pids[index] || sorted.binary_search(&parents[index]).is_err();
        let mut roots: Vec<usize> = (0..pids.len()).filter(is_root).collect();
        roots.sort_unstable_by_key(|&index| pids[index]);
        Forest { pids, children, roots }
    }

    fn find(&self, pid: u32) -> Option<usize> {
        self.pids.iter().position(|&has| has == pid)
    }

    /// All processes, each after its parent.
    fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::with_capacity(self.pids.len());
        let mut seen = vec![false; self.pids.len()];
        self.roots
            .iter()
            .for_each(|&root| self.descend(root, &mut seen, &mut lines));
        // A process that got a new parent while the kernel was asked can't be below itself, but ids are used again: whatever
        // was not reached goes to the end rather than missing.
        for index in 0..self.pids.len() {
            if !seen[index] {
                self.descend(index, &mut seen, &mut lines);
            }
        }
        lines
    }

    /// A process and all below it, each after its parent.
    fn lines_below(&self, root: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        self.descend(root, &mut vec![false; self.pids.len()], &mut lines);
        lines
    }

    /// Appends `root` and what is below it. Without recursion: chains of processes can be thousands long.
    fn descend(&self, root: usize, seen: &mut [bool], lines: &mut Vec<Line>) {
        seen[root] = true;
        let mut stack = vec![Line {
            task: root,
            depth: 0,
            last: true,
        }];
        while let Some(line) = stack.pop() {
            lines.push(line);
            let pid = self.pids[line.task];
            let from = self.children.partition_point(|&(parent, _)| parent < pid);
            let children = self.children[from..].iter().take_while(|&&(parent, _)| parent == pid);
            let first = stack.len();
            for &(_, task) in children {
                if !std::mem::replace(&mut seen[task], true) {
                    stack.push(Line {
                        task,
                        depth: line.depth + 1,
                        last: false,
                    });
                }
            }
            if let Some(last) = stack[first..].last_mut() {
                last.last = true;
            }
            stack[first..].reverse();
        }
    }
}

/// What branches are drawn with.
struct Branches {
    /// An ancestor has more children further down.
    passing: &'static str,
    /// It has not.
    none: &'static str,
    /// A child that is not the last.
    child: &'static str,
    /// The last child.
    last: &'static str,
}

const UTF8: Branches = Branches {
    passing: "│ ",
    none: "  ",
    child: "├─",
    last: "└─",
};

const ASCII: Branches = Branches {
    passing: "| ",
    none: "  ",
    child: "|-",
    last: "`-",
};

/// Processes deeper than this have their depth in front instead of so many branches.
const DRAWN: u32 = 100;

/// Draws the branches in front of processes that come one after the other.
#[derive(Debug, Default)]
struct Drawing {
    /// Of each ancestor below the root: whether it is the last child.
    last: Vec<bool>,
}

impl Drawing {
    fn line(&mut self, out: &mut Vec<u8>, line: &Line, branches: &Branches) {
        let Some(above) = line.depth.checked_sub(1) else {
            return self.last.clear();
        };
        self.last.truncate(above as usize);
        let shown = if line.depth > DRAWN {
            cell::formatted(out, format_args!("({}) ", line.depth));
            &[]
        } else {
            self.last.as_slice()
        };
        for &last in shown {
            out.extend_from_slice(if last { branches.none } else { branches.passing }.as_bytes());
        }
        out.extend_from_slice(if line.last { branches.last } else { branches.child }.as_bytes());
        self.last.push(line.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(pairs: &[(u32, u32)]) -> Vec<String> {
        let forest = Forest::of(pairs.iter().copied());
        let mut drawing = Drawing::default();
        let draw = |line: &Line| {
            let mut out = Vec::new();
            drawing.line(&mut out, line, &UTF8);
            format!("{}{}", String::from_utf8_lossy(&out), forest.pids[line.task])
        };
        forest.lines().iter().map(draw).collect()
    }

    /// Check branches, the order of children, and a root whose parent is not there.
    #[test]
    fn children_are_below_their_parents() {
        let pairs = [(1, 0), (7, 1), (3, 1), (4, 3), (5, 3), (6, 4), (9, 8)];
        assert_eq!(drawn(&pairs), ["1", "├─3", "│ ├─4", "│ │ └─6", "│ └─5", "└─7", "9"]);
    }

    /// Check that cycles, which ids used again could make, lose nobody and end.
    #[test]
    fn cycles_end() {
        assert_eq!(drawn(&[(2, 3), (3, 2), (4, 4)]), ["4", "2", "└─3"]);
    }

    /// Check that a long chain of processes overflows no stack and no line.
    #[test]
    fn deep_chains_are_drawn() {
        let pairs: Vec<(u32, u32)> = (1..=10_000).map(|pid| (pid, pid - 1)).collect();
        let lines = drawn(&pairs);
        assert_eq!(lines.len(), 10_000);
        assert_eq!(lines[9_999], "(9999) └─10000");
    }
}
