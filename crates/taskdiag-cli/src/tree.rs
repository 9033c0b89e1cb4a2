//! `taskdiag tree`.

use clap::Args as ClapArgs;
use taskdiag::{Field, Fields, Task};
use taskdiag_core::field::TREE_FIELDS;
use taskdiag_core::forest::{Forest, Line};

use crate::choice::{OrderOptions, SortBy};
use crate::history::PastOptions;
use crate::listing::{write_table, Answers, Format, LateTexts, Options, TaskRows};
use crate::outcome::{lacking, say, Failure, Outcome};
use crate::output::cell;
use crate::output::listing::{Content, ListingColumn};
use crate::output::relation::Absences;
use crate::output::tasks::{self, shown_as};
use crate::output::text::locale_is_utf8;
use crate::quantity;
use crate::selection::{self, Selection};

/// Show processes below their parents
///
/// The roots are the processes whose parent is not shown: init, kthreadd, and in a container any
/// process started from outside. In JSON and CSV each row has its `depth` and follows the row of
/// its parent. --sort is about the children of a process, which are in the order of their ids.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag tree 1234\n  \
    taskdiag tree -o euid,rss_bytes --sort -rss_bytes\n  \
    taskdiag tree --json")]
pub struct Args {
    /// Only this process and its descendants
    #[arg(value_name = "PID", value_parser = quantity::pid, conflicts_with_all = ["pids", "children", "descendants"])]
    root: Option<u32>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    order: OrderOptions,
    /// Draw with ASCII characters only [default: if the locale is not UTF-8]
    #[arg(long)]
    ascii: bool,
    #[command(flatten)]
    past: PastOptions,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: Args) -> Result<Outcome, Failure> {
    let options = &args.options;
    let chosen = selection::chosen_fields(&options.fields)?;
    let (columns, fields) = (columns(&chosen.items), chosen.keys(&TREE_FIELDS));
    let asked: Fields = match options.format() {
        Format::Table => tasks::fields(&columns),
        Format::Machine(_) => fields.iter().copied().collect(),
    };
    let mut sort = selection::sort_keys(&args.order.sort)?;
    selection::check_order(options.format(), sort.iter().map(|by| by.key));
    sort.push(SortBy {
        key: Field::Pid,
        descending: false,
    });
    let keys: Fields = sort.iter().map(|by| by.key).collect();
    let query = args
        .selection
        .query(false, args.past.is_given())?
        .fields(asked | keys | Field::Ppid);
    let (mut handle, whole) = args.past.handle(options.format(), || options.from.handle())?;
    let answers = Answers::ask(&mut handle, &query)?;
    let mut all = answers.tasks();
    let lines_of = |forest: &Forest| match args.root {
        None => forest.lines(),
        Some(pid) => forest
            .find(pid)
            .map(|root| forest.lines_below(root))
            .unwrap_or_default(),
    };
    if args.root.is_some() {
        // What is missing of the others was not asked for.
        let family = lines_of(&Forest::new(&all));
        all = family.iter().map(|line| all[line.task]).collect();
    }
    let is_missing = args.root.is_some() && all.is_empty();
    let mut sorted_by = Absences::default();
    selection::sort(&mut all, &sort, &mut sorted_by);
    let forest = Forest::new(&all);
    let mut lines = lines_of(&forest);
    lines.truncate(args.order.limit());

    let mut missing = Absences::default();
    let mut late = LateTexts::new(&mut handle, &query);
    match options.format() {
        Format::Table => {
            let branches = if args.ascii || !locale_is_utf8() { &ASCII } else { &UTF8 };
            let mut drawing = Drawing::default();
            let draw = |out: &mut Vec<u8>, row: usize, shown: &ListingColumn| {
                if shown.content == Content::Composite(&tasks::COMMAND) {
                    drawing.line(out, &lines[row], branches);
                }
            };
            let tasks = lines.iter().map(|line| &all[line.task]);
            write_table(options, &columns, tasks, &mut missing, &mut late, draw)?;
        }
        Format::Machine(machine) => {
            let tasks: Vec<Task<'_>> = lines.iter().map(|line| all[line.task]).collect();
            let depths: Vec<u32> = lines.iter().map(|line| line.depth).collect();
            let listing = TaskRows {
                fields: &fields,
                tasks: &tasks,
                depths: Some(&depths),
                sample: None,
                total: None,
                options,
            };
            answers.write("tree", machine, listing, &mut missing, &mut late)?;
        }
    }
    if options.stats {
        answers.say_stats(lines.len());
    }
    let keys: Vec<Field> = sort.iter().map(|by| by.key).collect();
    let shown = missing.without(&keys);
    let outcome = whole.and(answers.report_on(&all, &[(&sorted_by, all.len()), (&shown, lines.len())]));
    match args.root {
        Some(pid) if is_missing => {
            say(lacking(pid));
            Ok(Outcome::Partial)
        }
        _ => Ok(outcome.and(args.selection.processes.check_found(&mut handle, &answers))),
    }
}

/// The columns of the table: the id, the chosen fields, and the tree itself.
fn columns(chosen: &[Field]) -> Vec<ListingColumn> {
    let id = shown_as("PID", Field::Pid);
    let tree = ListingColumn::made("COMMAND", &tasks::COMMAND);
    let chosen = chosen
        .iter()
        .copied()
        .filter(|&field| field != Field::Pid)
        .map(tasks::shown);
    std::iter::once(id).chain(chosen).chain([tree]).collect()
}

/// The characters that branches are drawn with.
#[derive(Debug)]
pub struct Branches {
    /// An ancestor with more children below.
    passing: &'static str,
    /// An ancestor without more children.
    none: &'static str,
    /// A child, not the last one.
    child: &'static str,
    /// The last child.
    last: &'static str,
}

/// For terminals that understand UTF-8.
pub const UTF8: Branches = Branches {
    passing: "│ ",
    none: "  ",
    child: "├─",
    last: "└─",
};

/// For other terminals.
pub const ASCII: Branches = Branches {
    passing: "| ",
    none: "  ",
    child: "|-",
    last: "`-",
};

/// Deeper processes get the number of their depth instead of branches.
const DRAWN: u32 = 100;

/// Draws the branches in front of processes, line by line.
#[derive(Debug, Default)]
pub struct Drawing {
    /// For each ancestor below the root, whether it is the last child.
    last: Vec<bool>,
}

impl Drawing {
    /// Accounts for a line that is not drawn.
    pub fn pass(&mut self, line: &Line) {
        if self.above(line) {
            self.last.push(line.last);
        }
    }

    /// Drops the ancestors that this line does not have. Returns whether it has any.
    fn above(&mut self, line: &Line) -> bool {
        self.last.truncate(line.depth.saturating_sub(1) as usize);
        line.depth > 0
    }

    /// Appends the branches in front of a process.
    pub fn line(&mut self, out: &mut Vec<u8>, line: &Line, branches: &Branches) {
        if !self.above(line) {
            return;
        }
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
            format!("{}{}", String::from_utf8_lossy(&out), pairs[line.task].0)
        };
        forest.lines().iter().map(draw).collect()
    }

    /// Check the branches, that children keep their order, and that a process whose parent is
    /// missing is a root.
    #[test]
    fn children_are_below_their_parents() {
        let mut pairs = [(1, 0), (3, 1), (4, 3), (5, 3), (6, 4), (7, 1), (9, 8)];
        assert_eq!(drawn(&pairs), ["1", "├─3", "│ ├─4", "│ │ └─6", "│ └─5", "└─7", "9"]);
        pairs.reverse();
        assert_eq!(drawn(&pairs), ["9", "1", "├─7", "└─3", "  ├─5", "  └─4", "    └─6"]);
    }

    /// Check that cycles, which reused ids can cause, end, and that no process is lost.
    #[test]
    fn cycles_end() {
        assert_eq!(drawn(&[(2, 3), (3, 2), (4, 4)]), ["4", "2", "└─3"]);
    }

    /// Check that a long chain of processes overflows neither the stack nor a line.
    #[test]
    fn deep_chains_are_drawn() {
        let pairs: Vec<(u32, u32)> = (1..=10_000).map(|pid| (pid, pid - 1)).collect();
        let lines = drawn(&pairs);
        assert_eq!(lines.len(), 10_000);
        assert_eq!(lines[9_999], "(9999) └─10000");
    }
}
