//! The list of values covers everything that this kernel reports about a task.

use std::fs;

use taskdiag_core::proc_values::{FILES, STAT, STATUS};
use taskdiag_testkit::animal;

fn read(pid: u32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).expect("a file of a task");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Check that the list has each line of `status` and `io`, and each word of `stat`, `statm` and
/// `schedstat`.
#[test]
fn every_value_is_a_field_or_explained() {
    let zombie = animal("zombie");
    for pid in [std::process::id(), 2, zombie.pid as u32] {
        for line in read(pid, "status").lines() {
            let (key, _) = line.split_once(':').expect("a colon");
            assert!(STATUS.iter().any(|(name, _)| *name == key), "status has {key}");
        }
        let parts = |file: &str| FILES.iter().filter(|(of, ..)| *of == file).count();
        for line in read(pid, "io").lines() {
            let (key, _) = line.split_once(':').expect("a colon");
            assert!(
                FILES.iter().any(|(file, name, _)| (*file, *name) == ("io", key)),
                "io has {key}"
            );
        }
        // A zombie and a kernel thread have none.
        for line in fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
            .unwrap_or_default()
            .lines()
            .skip(1)
        {
            let (key, _) = line.split_once(':').expect("a colon");
            assert!(
                FILES
                    .iter()
                    .any(|(file, name, _)| (*file, *name) == ("smaps_rollup", key)),
                "smaps_rollup has {key}"
            );
        }
        for file in ["statm", "schedstat"] {
            assert_eq!(read(pid, file).split_ascii_whitespace().count(), parts(file), "{file}");
        }
        let stat = read(pid, "stat");
        let behind_name = stat.rsplit_once(')').expect("a name").1;
        assert_eq!(behind_name.split_ascii_whitespace().count() + 2, STAT.len());
    }
}
