//! The forest of `ps --forest` and `ps -H`.

use taskdiag::Task;
use taskdiag_core::forest::{Forest, Line};

use super::options::Branches;

/// What a forest adds to its tasks, in their order.
#[derive(Debug)]
pub struct Tree {
    /// How many ancestors each has in the forest.
    pub depths: Vec<u32>,
    /// The branches before each task's name.
    pub branches: Vec<String>,
}

/// Branches are drawn up to this depth.
const DRAWN: usize = 100;

impl Tree {
    /// Puts tasks below their parents. Siblings keep their order. With `youngest_first`, the roots
    /// are in reverse order, as in ps unless it sorts.
    pub fn new(tasks: &mut Vec<Task<'_>>, branches: Branches, youngest_first: bool) -> Tree {
        let pid_of = |task: &Task<'_>| task.record().header().pid.get();
        let pairs = tasks.iter().map(|task| (pid_of(task), task.ppid().unwrap_or(0)));
        let forest = Forest::of(pairs);
        let forest = if youngest_first {
            forest.with_reversed_roots()
        } else {
            forest
        };
        let lines = forest.lines();
        *tasks = lines.iter().map(|line| tasks[line.task]).collect();
        // For each ancestor with branches: whether it is the last child.
        let mut above: Vec<bool> = Vec::new();
        let mut is_below_init = false;
        let mut drawn = |(line, task): (&Line, &Task<'_>)| {
            if line.depth == 0 {
                // ps does not indent the children of init in a drawn forest.
                is_below_init = branches == Branches::Drawn && pid_of(task) == 1;
            }
            let depth = (line.depth as usize).saturating_sub(is_below_init.into());
            let Some(over) = depth.checked_sub(1) else {
                above.clear();
                return String::new();
            };
            above.truncate(over);
            let mut text = match branches {
                Branches::Indented => "  ".repeat(depth.min(DRAWN)),
                Branches::Drawn => above
                    .iter()
                    .take(DRAWN)
                    .map(|&last| if last { "    " } else { " |  " })
                    .collect(),
            };
            if branches == Branches::Drawn {
                text.push_str(" \\_ ");
            }
            above.push(line.last);
            text
        };
        Tree {
            branches: lines.iter().zip(tasks.iter()).map(&mut drawn).collect(),
            depths: lines.iter().map(|line| line.depth).collect(),
        }
    }
}
