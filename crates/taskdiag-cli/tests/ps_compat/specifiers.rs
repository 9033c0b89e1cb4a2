//! Each specifier compared with ps.

use std::collections::BTreeMap;

use crate::beside::{animals, by_pid, is_answered, lines, list, normalized, ours, ps, zoo_with_age};

/// The number of cells to compare for each specifier.
const CELLS: usize = 40;

/// Whether everything about a process may be read. Other values are 0 in ps, and missing in
/// taskdiag.
fn may_be_read(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok()
}

/// Whether `value` lies between `before` and `after`, or differs from that range by at most one in
/// the last digit.
fn is_between(specifier: &str, before: &str, value: &str, after: &str) -> bool {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let decimals = value.trim().split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let last_digit = 10_f64.powi(-i32::try_from(decimals).unwrap_or(0)) * 1.000_001;
    let slack = match specifier {
        // Any process that maps the same file changes how pages are shared; in KiB.
        "pss" | "uss" => 64.0,
        // ps multiplies the uptime as a fraction, and may lose one clock tick.
        "cuc" | "cuu" => {
            let value = number(value).unwrap_or(0.0);
            last_digit + value * 0.01 / zoo_with_age().1.elapsed().as_secs_f64()
        }
        _ => last_digit,
    };
    match (number(before), number(value), number(after)) {
        (Some(before), Some(value), Some(after)) => {
            (before.min(after) - slack..=before.max(after) + slack).contains(&value)
        }
        _ => false,
    }
}

/// Like [`is_between`], for times with colons.
fn is_later(before: &str, value: &str, after: &str) -> bool {
    let seconds = |text: &str| {
        let (days, rest) = text.trim().split_once('-').unwrap_or(("0", text.trim()));
        let mut within = 0;
        for part in rest.split(':') {
            within = within * 60 + part.parse::<u64>().ok()?;
        }
        Some(days.parse::<u64>().ok()? * 86_400 + within)
    };
    match (seconds(before), seconds(value), seconds(after)) {
        (Some(before), Some(value), Some(after)) => (before.min(after)..=after.max(before) + 1).contains(&value),
        _ => false,
    }
}

/// Whether the number changes even for an idle process.
fn moves(specifier: &str) -> bool {
    const MOVING: [&str; 47] = [
        "%cpu", "%mem", "atime", "bsdtime", "c", "cp", "cputime", "cputimes", "cuc", "cuu", "etime", "etimes", "m_drs",
        "m_size", "maj_flt", "majflt", "min_flt", "minflt", "oom", "pagein", "pcpu", "pmem", "pss", "rbytes", "rchars",
        "rops", "rss", "rssize", "rsz", "sgi_rss", "size", "sz", "time", "times", "uss", "util", "vsize", "vsz",
        "wbytes", "wcbytes", "wchars", "wops", "drs", "dsiz", "trs", "fds", "nlwp",
    ];
    MOVING.contains(&specifier)
}

/// Specifiers of `ps L` that taskdiag lacks, and why.
fn lacks(specifier: &str) -> Option<&'static str> {
    match specifier {
        "ag_id" | "ag_nice" => Some("no field has the scheduler's groups of sessions"),
        "eip" | "esp" => Some("the kernel gives a number in a process that dumps core only, and 0 otherwise"),
        name if name.starts_with('_') => Some("a test of ps itself"),
        _ => None,
    }
}

/// The specifiers that ps lists, with their headers.
fn specifiers() -> Vec<(String, String)> {
    let listed = lines(&ps(&["L"]));
    let specifiers: Vec<(String, String)> = listed
        .iter()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        })
        .collect();
    assert!(specifiers.len() > 150, "{}", specifiers.len());
    specifiers
}

/// How many specifiers that do not change share a line: equal lines have equal cells.
const ON_ONE_LINE: usize = 10;

/// The result of a comparison: the number of cells equal to ps, and the differences.
type Compared = (usize, Vec<String>);

/// Compares the values of some specifiers for all animals.
fn compare(specifiers: &[&str]) -> Compared {
    let columns = specifiers
        .iter()
        .flat_map(|specifier| ["-o".to_owned(), format!("{specifier}=")]);
    let pids = list(animals());
    let args: Vec<String> = ["-p", &pids, "-o", "pid="]
        .map(str::to_owned)
        .into_iter()
        .chain(columns)
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let name = specifiers.join(",");
    let (before, mine, after) = (by_pid(&ps(&args)), ours(&args), by_pid(&ps(&args)));
    assert!(is_answered(&mine), "{name}: {}", mine.stderr);
    let mine = by_pid(&mine);
    assert_eq!(
        (mine.keys().collect::<Vec<_>>(), before.len()),
        (before.keys().collect(), after.len()),
        "{name}"
    );
    let (mut compared, mut wrong) = (0, Vec::new());
    for (pid, shown) in mine.iter().filter(|(pid, _)| may_be_read(**pid)) {
        let (before, after) = (&before[pid], &after[pid]);
        let texts = [before, shown, after].map(|text| normalized(&name, text));
        let is_right = texts[1] == texts[0]
            || texts[1] == texts[2]
            || moves(&name) && (is_between(&name, before, shown, after) || is_later(before, shown, after));
        if is_right {
            compared += specifiers.len();
        } else {
            let cut = |text: &str| text.chars().take(200).collect::<String>();
            let (shown, before, after) = (cut(shown), cut(before), cut(after));
            wrong.push(format!("{name}: {pid}: {shown:?}, ps {before:?} {after:?}"));
        }
    }
    wrong.truncate(5);
    (compared, wrong)
}

/// Check that each specifier shows what ps shows.
#[test]
fn specifiers_show_what_ps_shows() {
    let listed = specifiers();
    let there: Vec<&str> = listed
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| lacks(name).is_none())
        .collect();
    let is_alone = |name: &&str| moves(name) || normalized(name, "4:memory:/a") != "4:memory:/a";
    let (alone, still): (Vec<&str>, Vec<&str>) = there.iter().partition(|name| is_alone(name));
    let mut failures = Vec::new();
    let mut cells = 0;
    let mut count = |name: &str, least: usize, (compared, wrong): Compared| {
        if compared < least {
            failures.push(format!("{name}: only {compared} cells compared"));
        }
        cells += compared;
        failures.extend(wrong);
    };
    for group in still.chunks(ON_ONE_LINE) {
        let (compared, wrong) = compare(group);
        if wrong.is_empty() {
            count(&group.join(","), CELLS * group.len(), (compared, wrong));
        } else {
            // Find the specifier that differs.
            group.iter().for_each(|name| count(name, CELLS, compare(&[name])));
        }
    }
    alone.iter().for_each(|name| count(name, CELLS, compare(&[name])));
    println!("{cells} cells of {} specifiers compared", there.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(cells > 150 * CELLS, "{cells}");
}

/// Check that every specifier that ps lists exists here, except known omissions, with the same
/// header.
#[test]
fn all_specifiers_are_there() {
    let mine: BTreeMap<String, String> = lines(&ours(&["L"]))
        .iter()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        })
        .collect();
    for (specifier, header) in specifiers() {
        match (mine.get(&specifier), lacks(&specifier)) {
            (Some(mine), _) => assert_eq!(*mine, header, "{specifier}"),
            (None, reason) => assert!(reason.is_some(), "{specifier} is missing"),
        }
    }
}

/// Check that in JSON and CSV, specifiers stand for taskdiag's fields, and that a name of both
/// means the field.
#[test]
fn specifiers_are_fields_for_programs() {
    let own = std::process::id().to_string();
    let csv = ours(&["-p", &own, "-o", "pid,rss,vsz,uid,stat", "--csv"]).complete();
    let header = csv.lines().next().expect("a header");
    assert!(header.starts_with("pid,rss_bytes,vsize_bytes,uid,"), "{header}");
    let rows = ours(&["aux", "--json"]).json();
    let row = &rows["rows"].as_array().expect("rows")[0];
    assert!(row["pid"].is_u64(), "{row}");
    let sorted = ours(&["-e", "-o", "rss", "--sort=-rss", "--csv", "--no-header"]).complete();
    let sizes: Vec<u64> = sorted.lines().map(|line| line.parse().unwrap_or(0)).collect();
    assert!(
        sizes.len() > 10 && sizes[0] > 0 && sizes.is_sorted_by(|a, b| a >= b),
        "{sizes:?}"
    );
}
