//! Processes below their parents.

use std::collections::HashMap;

use taskdiag::{Field, Kind, Snapshot, Value};

use crate::column::Builder;
use crate::query;
use crate::table::Table;

/// A table in which each process comes behind its parent, with its depth: below `root`, or below
/// all whose parent is not among them. `None` if there is no process `root`.
pub fn table(snapshot: &Snapshot, fields: &[Field], root: Option<u32>) -> Option<Table> {
    let lines = lines(snapshot, root)?;
    let tasks = lines.iter().map(|&(row, _)| snapshot.task(row));
    let mut columns = query::columns(tasks, lines.len(), fields);
    let mut depths = Builder::new("depth", Kind::Count, lines.len());
    lines
        .iter()
        .for_each(|&(_, depth)| depths.push(Ok(Value::Unsigned(depth))));
    columns.push(depths.finish());
    Some(Table::new(columns, lines.len(), query::about(snapshot)))
}

/// The rows in their order, each with its depth.
fn lines(snapshot: &Snapshot, root: Option<u32>) -> Option<Vec<(usize, u64)>> {
    let pairs: Vec<(u32, u32)> = snapshot
        .tasks()
        .map(|task| (task.pid().unwrap_or(0), task.ppid().unwrap_or(0)))
        .collect();
    let row_of: HashMap<u32, usize> = pairs.iter().map(|&(pid, _)| pid).zip(0..).collect();
    let mut children: HashMap<u32, Vec<usize>> = HashMap::new();
    for (row, &(_, parent)) in pairs.iter().enumerate() {
        children.entry(parent).or_default().push(row);
    }
    let mut roots: Vec<usize> = match root {
        Some(pid) => vec![*row_of.get(&pid)?],
        None => (0..pairs.len())
            .filter(|&row| pairs[row].0 == pairs[row].1 || !row_of.contains_key(&pairs[row].1))
            .collect(),
    };
    if root.is_none() {
        // Ids are used again, so parents read at different times can form a cycle. What is not
        // reached comes at the end.
        roots.extend(0..pairs.len());
    }
    let mut is_seen = vec![false; pairs.len()];
    let mut lines = Vec::with_capacity(pairs.len());
    for root in roots {
        // Without recursion: chains of processes can be thousands long.
        let mut stack = vec![(root, 0)];
        while let Some((row, depth)) = stack.pop() {
            if std::mem::replace(&mut is_seen[row], true) {
                continue;
            }
            lines.push((row, depth));
            let below = children.get(&pairs[row].0).into_iter().flatten().rev();
            stack.extend(below.map(|&child| (child, depth + 1)));
        }
    }
    Some(lines)
}
