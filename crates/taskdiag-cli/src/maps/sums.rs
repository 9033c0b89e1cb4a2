//! Sums over the mappings of one process, by file.

use std::collections::HashMap;

use taskdiag::maps::{Filter, MapField};
use taskdiag::{Absent, Handle};

/// The sum over the mappings of a file, or over those without a file that have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSum {
    /// The name, as the kernel writes it.
    pub name: Vec<u8>,
    /// The number of mappings.
    pub mappings: u64,
    /// Their size.
    pub size_bytes: u64,
    /// The resident part without pages of hugetlbfs, or why it is not known for some mapping.
    pub rss_bytes: Result<u64, Absent>,
    /// The part written to since it was read, or why that is not known for some mapping.
    pub dirty_bytes: Result<u64, Absent>,
    /// The resident part of mappings of hugetlbfs, or why that is not known.
    pub hugetlb_bytes: Result<u64, Absent>,
}

/// The mappings of a process by file.
///
/// # Errors
///
/// Fails if they can't be read.
pub fn by_file(pid: u32, handle: &mut Handle) -> taskdiag::Result<Vec<FileSum>> {
    let mut maps = handle.maps(pid)?;
    let mappings = maps.list(Filter::default(), MapField::Name | MapField::RssBytes)?;
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
            hugetlb_bytes: Ok(0),
        });
        sum.mappings += 1;
        sum.size_bytes = sum.size_bytes.saturating_add(mapping.end.saturating_sub(mapping.start));
        for (sum, bytes) in [
            (&mut sum.rss_bytes, mapping.rss_bytes),
            (&mut sum.dirty_bytes, mapping.dirty_bytes),
            (&mut sum.hugetlb_bytes, mapping.hugetlb_bytes),
        ] {
            *sum = sum.and_then(|sum| Ok(sum.saturating_add(bytes?)));
        }
    }
    let mut sums: Vec<FileSum> = sums.into_values().collect();
    sums.sort_by(|a, b| {
        let resident = |sum: &FileSum| Some(sum.rss_bytes.ok()?.saturating_add(sum.hugetlb_bytes.ok()?));
        let key = |sum: &FileSum| (resident(sum), sum.size_bytes);
        key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
    });
    Ok(sums)
}
