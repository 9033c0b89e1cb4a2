//! Finds processes that map none of some files. BPF reports them quickly, and nothing of them need
//! be read.

use std::collections::HashSet;

use taskdiag_bpf::files::{Match, MATCHES};
use taskdiag_bpf::vma;
use taskdiag_bpf::vma_walk::VmaWalk;
use taskdiag_core::error::Result;

/// The processes that map none of these files. What the other processes map is not known: the
/// program may not see a process, or may leave it to the text of `maps`.
pub(super) fn map_others(walk: &mut VmaWalk, files: &[Match]) -> Result<HashSet<u32>> {
    let (mut others, mut doubtful) = (HashSet::new(), HashSet::new());
    if files.len() > MATCHES {
        return Ok(others);
    }
    walk.begin_search(files);
    walk.machine(|record, _| {
        if record.flags & vma::NO_OTHER != 0 {
            others.insert(record.pid);
        } else {
            doubtful.insert(record.pid);
        }
    })?;
    others.retain(|pid| !doubtful.contains(pid));
    Ok(others)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// Check that this process maps its program, and not another file.
    #[test]
    fn processes_map_their_programs() {
        // This needs rights, and Linux 6.11.
        let Ok(Some(mut walk)) = VmaWalk::load() else {
            eprintln!("BPF can't walk over mappings here: nothing tested");
            return;
        };
        let file = |path: &str| {
            let stat = std::fs::metadata(path).expect("its stat");
            Match {
                dev_major: libc::major(stat.dev()),
                dev_minor: libc::minor(stat.dev()),
                inode: stat.ino(),
            }
        };
        let (program, version) = (file("/proc/self/exe"), file("/proc/version"));
        let own = std::process::id();
        let mut maps_others = |files: &[Match]| map_others(&mut walk, files).expect("an answer").contains(&own);
        assert!(maps_others(&[version]));
        // With so many files some would be left out, and the process may map one of them.
        assert!(!maps_others(&[version; MATCHES + 1]));
        assert!(!maps_others(&[program]) && !maps_others(&[version, program]));
    }
}
