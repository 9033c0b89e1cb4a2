//! The planner: whole commands that choose the source, and the same commands with a fixed source.

use taskdiag_zoo::Farm;

use crate::case::{command, ratio, Bound, Case, Counts, Stage, Value};
use crate::Sizes;

const SIZES: [usize; 3] = [100, 1_000, 10_000];

/// The queries: a name, and the options.
const QUERIES: [(&str, &str); 6] = [
    ("base+cred", " -o pid,ppid,state,comm,uid,euid,gid,cap_effective"),
    ("default", ""),
    ("args", " -o pid,cmdline"),
    ("io", " -o pid,read_bytes,write_bytes"),
    ("fds", " -o pid,fd_count"),
    ("all", " -o all"),
];

const SOURCES: [&str; 3] = ["auto", "bpf", "procfs"];

pub fn cases(sizes: &Sizes) -> Vec<Case> {
    let case = |size: usize| {
        let title = format!("The planner: whole commands, {size} idle processes");
        let mut case = Case::new(title, move || Ok(Stage::default().keep(Farm::start(size, 1)?)));
        case.counts = Counts::Nothing;
        for (name, options) in QUERIES {
            let of = |source: &str| format!("{name}: {source}");
            let words = |source| format!("taskdiag ps --csv --source {source}{options}");
            case.contenders
                .extend(SOURCES.map(|source| command(of(source), "", &words(source))));
            let (better, claim) = ([&*of("bpf"), &of("procfs")], "auto as a multiple of the better source");
            let bound = Bound::AtMost(1.25);
            case.targets.push(ratio(
                format!("{name}: {claim}"),
                Value::Time,
                &of("auto"),
                &better,
                bound,
            ));
        }
        case
    };
    sizes.or(&SIZES).into_iter().map(case).collect()
}
