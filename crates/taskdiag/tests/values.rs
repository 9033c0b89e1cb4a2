//! The list of values covers everything that this kernel reports about a task.

use std::fs;

use taskdiag_core::proc_values;
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
    let values = proc_values::all();
    let parts = |file: &str| values.iter().filter(|value| value.0 == file).count();
    let check = |file: &str, line: &str| {
        let (key, _) = line.split_once(':').expect("a colon");
        let is_listed = values.iter().any(|value| (value.0, value.1) == (file, key));
        assert!(is_listed, "{file} has {key}");
    };
    for pid in [std::process::id(), 2, zombie.pid as u32] {
        read(pid, "status").lines().for_each(|line| check("status", line));
        read(pid, "io").lines().for_each(|line| check("io", line));
        // A zombie and a kernel thread have none.
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        rollup.lines().skip(1).for_each(|line| check("smaps_rollup", line));
        for file in ["statm", "schedstat"] {
            assert_eq!(read(pid, file).split_ascii_whitespace().count(), parts(file), "{file}");
        }
        let stat = read(pid, "stat");
        let behind_name = stat.rsplit_once(')').expect("a name").1;
        assert_eq!(behind_name.split_ascii_whitespace().count() + 2, parts("stat"));
    }
}
