//! The page cache of files.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use pyo3::prelude::*;
use taskdiag::pagecache::{Found, Quantity, Seen, Source, Totals, Usage, Walk};
use taskdiag::{is_interrupted, Absent, Kind, Value};
use taskdiag_core::column::reason;
use taskdiag_core::setting;

use crate::errors;
use crate::fork;
use crate::query;
use crate::rows::{key, Rows};
use crate::table::{About, Table};

/// A file: its path, its size, and its page cache.
type File = (Vec<u8>, Result<u64, Absent>, Result<Usage, Absent>);

/// Return the page cache of a file, or of each regular file below a directory, in the order of
/// paths.
#[pyfunction]
#[pyo3(signature = (path, *, one_file_system = false, source = "auto"))]
pub fn cachestat(py: Python<'_>, path: &Bound<'_, PyAny>, one_file_system: bool, source: &str) -> PyResult<Table> {
    let path = query::path(path)?;
    let chosen = setting::source(source, &[Source::Cachestat, Source::Mincore], Source::name);
    let source = errors::checked(chosen)?.unwrap_or_else(Source::of_this_host);
    let walk = Walk::new().source(source).one_file_system(one_file_system);
    let answer = fork::ask(py, || {
        let mut files: Vec<File> = Vec::new();
        let mut visit = |found: Found<'_>| {
            match found {
                Found::File(file) => files.push((file.path.to_vec(), file.size_bytes, file.usage)),
                Found::Tick(_) if is_interrupted() => return ControlFlow::Break(()),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let totals = walk.run(&path, &mut Seen::default(), &AtomicBool::new(false), &mut visit)?;
        files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(table(&files, &totals, source))
    })?;
    answer.map_err(|error| errors::of(&error))
}

fn table(files: &[File], totals: &Totals, source: Source) -> Table {
    let mut keys = vec![key("path", Kind::Text)];
    keys.extend(Quantity::ALL.iter().map(|quantity| key(quantity.name(), Kind::Bytes)));
    let all: Vec<usize> = (0..keys.len()).collect();
    let mut rows = Rows::new(&keys, &all);
    for (path, size_bytes, usage) in files {
        rows.push(|key| {
            let Some(quantity) = key.checked_sub(1) else {
                return Ok(Value::Text(path));
            };
            let bytes = match Quantity::ALL[quantity] {
                Quantity::Size => *size_bytes,
                counted => usage.and_then(|usage| usage.bytes(counted)),
            };
            bytes.map(Value::Unsigned).map_err(reason)
        });
    }
    rows.finish(About {
        sources: vec![("pagecache", source.name())],
        counters: totals.named().collect(),
        missing: Vec::new(),
    })
}
