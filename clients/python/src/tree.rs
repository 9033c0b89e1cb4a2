//! Processes below their parents.

use taskdiag::{Field, Kind, Snapshot, Task, Value};
use taskdiag_core::column::Type;
use taskdiag_core::forest::Forest;

use crate::column::Column;
use crate::query;
use crate::table::Table;

/// A table in which each process follows its parent, with its depth: below `root`, or below every
/// process whose parent is not in the answer. `None` if there is no process `root`.
pub fn table(snapshot: &Snapshot, fields: &[Field], root: Option<u32>) -> Option<Table> {
    let tasks: Vec<Task<'_>> = snapshot.tasks().collect();
    let forest = Forest::new(&tasks);
    let lines = match root {
        Some(pid) => forest.lines_below(forest.find(pid)?),
        None => forest.lines(),
    };
    let tasks = lines.iter().map(|line| tasks[line.task]);
    let mut columns = query::columns(tasks, lines.len(), fields);
    let mut depths = Column::new("depth", Kind::Count, Type::U64, lines.len());
    lines
        .iter()
        .for_each(|line| depths.memory.push(Ok(Value::Unsigned(line.depth.into()))));
    columns.push(depths.finish());
    Some(Table::new(columns, lines.len(), query::about(snapshot)))
}
