//! The texts of `/proc/PID`: any bytes can be parsed. The parsed values stay the same if they are
//! printed as the kernel prints them and parsed again.

use std::fmt::Write as _;

use taskdiag_core::text::process::{self, Line, Lines, Stat, Status};

pub fn run(data: &[u8]) {
    stat(data);
    status(data);
    small_files(data);
    limits(data);
    paths(data);
    fdinfo(data);
}

/// `seq_show()` of fs/proc/fd.c.
fn fdinfo(text: &[u8]) {
    let Some(info) = taskdiag_core::text::fdinfo::fdinfo(text) else {
        return;
    };
    let mut printed = format!("pos:\t{}\nflags:\t0{:o}\n", info.offset_bytes, info.flags);
    if let Some(id) = info.mnt_id {
        writeln!(printed, "mnt_id:\t{id}").expect("memory is written");
    }
    if let Some(inode) = info.inode {
        writeln!(printed, "ino:\t{inode}").expect("memory is written");
    }
    let mut printed = printed.into_bytes();
    printed.extend_from_slice(info.detail);
    // If one of these lines is missing, `detail` may contain one of that name.
    if info.mnt_id.is_some() && info.inode.is_some() {
        assert_eq!(taskdiag_core::text::fdinfo::fdinfo(&printed), Some(info));
    }
}

/// `do_task_stat()` of fs/proc/array.c.
fn stat(text: &[u8]) {
    let Some(stat) = process::stat(text) else {
        return;
    };
    let mut printed = b"1 (".to_vec();
    printed.extend_from_slice(stat.comm);
    printed.extend_from_slice(b") ");
    printed.push(stat.state);
    let mut numbers = String::new();
    // The ids are printed as int. The last 0 is itrealvalue.
    for number in [stat.ppid, stat.pgid, stat.sid, stat.tty_nr] {
        write!(numbers, " {}", number as i32).expect("memory is written");
    }
    write!(
        numbers,
        " {} {} {} {} {} {} {} {} {} {} {} {} {} 0",
        stat.tpgid,
        stat.flags,
        stat.min_faults,
        stat.child_min_faults,
        stat.maj_faults,
        stat.child_maj_faults,
        stat.utime_ticks,
        stat.stime_ticks,
        stat.cutime_ticks,
        stat.cstime_ticks,
        stat.priority,
        stat.nice,
        stat.threads_count
    )
    .expect("memory is written");
    write!(numbers, " {} {}", stat.start_ticks, stat.vsize_bytes).expect("memory is written");
    let late = stat.late_numbers();
    for number in 24..38 {
        write!(numbers, " {}", late.get(number).unwrap_or(0)).expect("memory is written");
    }
    write!(
        numbers,
        " {} {} {} {}",
        stat.exit_signal, stat.processor, stat.rt_priority, stat.policy
    )
    .expect("memory is written");
    for number in 42..=51 {
        if let Some(number) = late.get(number) {
            write!(numbers, " {number}").expect("memory is written");
        }
    }
    printed.extend_from_slice(numbers.as_bytes());
    printed.push(b'\n');
    let again = process::stat(&printed).expect("what the kernel prints");
    assert_eq!((again.comm, again.state), (stat.comm, stat.state));
    assert_eq!(all_numbers(&again), all_numbers(&stat));
    let late_again = again.late_numbers();
    assert!((24..38).all(|number| late_again.get(number) == Some(late.get(number).unwrap_or(0))));
}

fn all_numbers(stat: &Stat<'_>) -> [i128; 23] {
    [
        stat.ppid.into(),
        stat.pgid.into(),
        stat.sid.into(),
        stat.tty_nr.into(),
        stat.tpgid.into(),
        stat.flags.into(),
        stat.min_faults.into(),
        stat.child_min_faults.into(),
        stat.maj_faults.into(),
        stat.child_maj_faults.into(),
        stat.utime_ticks.into(),
        stat.stime_ticks.into(),
        stat.cutime_ticks.into(),
        stat.cstime_ticks.into(),
        stat.priority.into(),
        stat.nice.into(),
        stat.threads_count.into(),
        stat.start_ticks.into(),
        stat.vsize_bytes.into(),
        stat.exit_signal.into(),
        stat.processor.into(),
        stat.rt_priority.into(),
        stat.policy.into(),
    ]
}

/// How the kernel prints the value of a line of `status`.
#[derive(Clone, Copy)]
enum Form {
    Letter,
    Number,
    /// A number of kB.
    Kilobytes,
    /// Sixteen digits, in hexadecimal.
    Mask,
    Octal,
    Ids,
    /// 32 processors per word, the highest first.
    Processors,
}

/// Lines of each form; several for similar forms.
const LINES: [(Line, &str, Form); 18] = [
    (Line::State, "State", Form::Letter),
    (Line::Ppid, "PPid", Form::Number),
    (Line::Uid, "Uid", Form::Ids),
    (Line::Gid, "Gid", Form::Ids),
    (Line::Groups, "Groups", Form::Ids),
    (Line::NsPid, "NSpid", Form::Ids),
    (Line::VmPeak, "VmPeak", Form::Kilobytes),
    (Line::VmSwap, "VmSwap", Form::Kilobytes),
    (Line::Hugetlb, "HugetlbPages", Form::Kilobytes),
    (Line::Threads, "Threads", Form::Number),
    (Line::CapEff, "CapEff", Form::Mask),
    (Line::SigQ, "SigQ", Form::Number),
    (Line::SigCgt, "SigCgt", Form::Mask),
    (Line::Umask, "Umask", Form::Octal),
    (Line::Seccomp, "Seccomp", Form::Number),
    (Line::CpusAllowed, "Cpus_allowed", Form::Processors),
    (Line::Voluntary, "voluntary_ctxt_switches", Form::Number),
    (Line::Involuntary, "nonvoluntary_ctxt_switches", Form::Number),
];

/// `proc_pid_status()` of fs/proc/array.c.
fn status(text: &[u8]) {
    let wanted = Lines::of(&LINES.map(|(line, ..)| line));
    let status = process::status(text, wanted);
    assert!(status.found().is_subset(wanted));
    let mut printed = String::new();
    for (line, key, form) in LINES {
        if status.found().contains(line) {
            write!(printed, "{key}:\t").expect("memory is written");
            value(&status, line, form, &mut printed);
            printed.push('\n');
        }
    }
    let again = process::status(printed.as_bytes(), wanted);
    assert_eq!(again.found(), status.found());
    for (line, ..) in LINES {
        assert_eq!(again.number(line), status.number(line));
    }
    for line in [Line::Uid, Line::Gid, Line::Groups, Line::NsPid] {
        assert!(again.ids(line).eq(status.ids(line)));
    }
    assert!(again.processors().eq(status.processors()));
    if status.state().is_some_and(|state| state.is_ascii()) {
        assert_eq!(again.state(), status.state());
    }
}

fn value(status: &Status<'_>, line: Line, form: Form, out: &mut String) {
    match form {
        Form::Letter => write!(out, "{}", status.state().map_or(' ', char::from)),
        Form::Number => write!(out, "{}", status.number(line)),
        Form::Kilobytes => write!(out, "{:8} kB", status.number(line) / 1024),
        Form::Mask => write!(out, "{:016x}", status.number(line)),
        Form::Octal => write!(out, "{:04o}", status.number(line)),
        Form::Ids => status.ids(line).try_for_each(|id| write!(out, "{id}\t")),
        Form::Processors => {
            let words: Vec<u64> = status.processors().collect();
            let words = words
                .iter()
                .rev()
                .map(|word| format!("{:08x},{:08x}", word >> 32, word & 0xffff_ffff));
            write!(out, "{}", words.collect::<Vec<_>>().join(","))
        }
    }
    .expect("memory is written");
}

/// Files with a few numbers.
fn small_files(text: &[u8]) {
    if let Some(numbers @ [runtime, delay, slices]) = process::schedstat(text) {
        let printed = format!("{runtime} {delay} {slices}\n");
        assert_eq!(process::schedstat(printed.as_bytes()), Some(numbers));
    }
    if let Some(numbers @ [rchar, wchar, syscr, syscw, read, write, cancelled]) = process::io(text) {
        let printed = format!(
            "rchar: {rchar}\nwchar: {wchar}\nsyscr: {syscr}\nsyscw: {syscw}\nread_bytes: {read}\nwrite_bytes: {write}\n\
             cancelled_write_bytes: {cancelled}\n"
        );
        assert_eq!(process::io(printed.as_bytes()), Some(numbers));
    }
    if let Some(number) = process::number::<i64>(text) {
        assert_eq!(process::number(format!("{number}\n").as_bytes()), Some(number));
    }
    if let Some(mask) = process::mask(text) {
        assert_eq!(process::mask(format!("{mask:08x}\n").as_bytes()), Some(mask));
    }
    if let Some(id) = process::task_id(text) {
        assert_eq!(process::task_id(id.to_string().as_bytes()), Some(id));
    }
    if let Some(inode) = process::namespace(text) {
        assert_eq!(process::namespace(format!("pid:[{inode}]").as_bytes()), Some(inode));
    }
}

/// `proc_pid_limits()` of fs/proc/base.c.
fn limits(text: &[u8]) {
    let Some(limits) = process::limits(text) else {
        return;
    };
    let column = |limit: u64| {
        if limit == u64::MAX {
            "unlimited".to_owned()
        } else {
            limit.to_string()
        }
    };
    let mut printed = format!(
        "{:25} {:20} {:20} {:10}\n",
        "Limit", "Soft Limit", "Hard Limit", "Units"
    );
    for (soft, hard) in limits {
        writeln!(
            printed,
            "{:25} {:20} {:20} {:10}",
            "Max cpu time",
            column(soft),
            column(hard),
            "seconds"
        )
        .expect("memory is written");
    }
    assert_eq!(process::limits(printed.as_bytes()), Some(limits));
}

/// Paths in `cgroup` and `mountinfo`, which escapes some bytes (`mangle()` of fs/proc_namespace.c).
fn paths(text: &[u8]) {
    let lines = process::cgroups(text).split(|&byte| byte == b'\n').count();
    assert!(process::hierarchies(text).count() <= lines + 1);
    if let Some(path) = process::cgroup(text) {
        assert_eq!(process::cgroup(&[&b"0::"[..], path, b"\n"].concat()), Some(path));
    }
    let of_controller = process::cgroup_mounts(text, Some("memory"));
    for place in process::cgroup_mounts(text, None).chain(of_controller) {
        assert!(!place.contains(&b' ') && !place.contains(&b'\n'));
    }
    let name: Vec<u8> = process::unescape(text).collect();
    assert!(name.len() <= text.len());
    let escape = |&byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
        byte => vec![byte],
    };
    let escaped: Vec<u8> = name.iter().flat_map(escape).collect();
    assert!(process::unescape(&escaped).eq(name));
}
