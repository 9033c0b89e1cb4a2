//! Processes below their parents.

use crate::field::Field;
use crate::snapshot::Task;
use crate::value::Value;

/// Processes and their parents.
#[derive(Debug)]
pub struct Forest {
    /// The id of each process.
    pids: Vec<u32>,
    /// The ids of parents, each with the index of a child; sorted.
    children: Vec<(u32, usize)>,
    /// Indices of the processes whose parent is not among them.
    roots: Vec<usize>,
}

/// A process at its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its index.
    pub task: usize,
    /// How many ancestors it has in the tree.
    pub depth: u32,
    /// Whether it is the last child of its parent.
    pub last: bool,
}

impl Forest {
    /// The forest of these processes.
    pub fn new(tasks: &[Task<'_>]) -> Forest {
        let number = |task: &Task<'_>, field| match task.value(field) {
            Ok(Value::Unsigned(number)) => number as u32,
            _ => 0,
        };
        let pair = |task: &Task<'_>| (number(task, Field::Pid), number(task, Field::Ppid));
        Forest::of(tasks.iter().map(pair))
    }

    /// The forest of processes given as pairs of their id and their parent's id, in the order in
    /// which children are to be listed.
    pub fn of(pairs: impl Iterator<Item = (u32, u32)>) -> Forest {
        let (pids, parents): (Vec<u32>, Vec<u32>) = pairs.unzip();
        let mut sorted = pids.clone();
        sorted.sort_unstable();
        let mut children: Vec<(u32, usize)> = parents.iter().copied().zip(0..).collect();
        children.sort_unstable();
        let is_root = |&index: &usize| parents[index] == pids[index] || sorted.binary_search(&parents[index]).is_err();
        let roots: Vec<usize> = (0..pids.len()).filter(is_root).collect();
        Forest { pids, children, roots }
    }

    /// The same with its roots in reverse order.
    pub fn with_reversed_roots(mut self) -> Forest {
        self.roots.reverse();
        self
    }

    /// The index of a process.
    pub fn find(&self, pid: u32) -> Option<usize> {
        self.pids.iter().position(|&has| has == pid)
    }

    /// All processes, each after its parent.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::with_capacity(self.pids.len());
        let mut seen = vec![false; self.pids.len()];
        self.roots
            .iter()
            .for_each(|&root| self.descend(root, &mut seen, &mut lines));
        // Ids are reused, so parents read at different times can form a cycle. Processes that were
        // not reached come at the end.
        for index in 0..self.pids.len() {
            if !seen[index] {
                self.descend(index, &mut seen, &mut lines);
            }
        }
        lines
    }

    /// A process and all its descendants, each after its parent.
    pub fn lines_below(&self, root: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        self.descend(root, &mut vec![false; self.pids.len()], &mut lines);
        lines
    }

    /// Appends `root` and its descendants. Without recursion: chains of processes can be thousands
    /// long.
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
