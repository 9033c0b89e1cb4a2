//! The mappings of one process, added up by file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use taskdiag::maps::{Broker, Filter, Maps, Wants};
use taskdiag::Absent;

/// The mappings of a file, or those without a file that have the same name, added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSum {
    /// The kernel's own text.
    pub name: Vec<u8>,
    /// How many mappings.
    pub mappings: u64,
    /// Their size.
    pub size_bytes: u64,
    /// What of it is resident; why that is not known of some.
    pub rss_bytes: Result<u64, Absent>,
    /// What of it was written to since it was read.
    pub dirty_bytes: Result<u64, Absent>,
}

/// The mappings of a process by file.
///
/// # Errors
///
/// If they can't be read.
pub fn by_file(pid: u32, broker: &Option<Option<PathBuf>>, patience: Duration) -> taskdiag::Result<Vec<FileSum>> {
    let maps = match broker {
        None => Maps::open_within(pid, patience),
        Some(path) => Broker::connect(path.as_deref()).and_then(|broker| broker.open(pid)),
    };
    let mut maps = maps?.with_patience(patience);
    let mappings = maps.list(Filter::default(), Wants::NAMES | Wants::USAGE)?;
    let mut sums: HashMap<Vec<u8>, FileSum> = HashMap::new();
    for mapping in &mappings {
        let name = match mapping.name {
            Ok(b"") => b"[anonymous]",
            Ok(name) => name,
            Err(_) => b"[unknown]",
        };
        let sum = sums.entry(name.to_vec()).or_insert_with(|| FileSum {
            name: name.to_vec(),
            mappings: 0,
            size_bytes: 0,
            rss_bytes: Ok(0),
            dirty_bytes: Ok(0),
        });
        sum.mappings += 1;
        sum.size_bytes = sum.size_bytes.saturating_add(mapping.end.saturating_sub(mapping.start));
        let usage = mapping.usage.as_ref().map_err(|reason| *reason);
        sum.rss_bytes = sum.rss_bytes.and_then(|sum| Ok(sum.saturating_add(usage?.rss_bytes)));
        sum.dirty_bytes = sum
            .dirty_bytes
            .and_then(|sum| Ok(sum.saturating_add(usage?.dirty_bytes)));
    }
    let mut sums: Vec<FileSum> = sums.into_values().collect();
    sums.sort_by(|a, b| {
        let key = |sum: &FileSum| (sum.rss_bytes.ok(), sum.size_bytes);
        key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
    });
    Ok(sums)
}
