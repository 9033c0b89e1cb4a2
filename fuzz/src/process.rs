//! The texts of `/proc/PID`: any bytes can be parsed. The parsed values stay the same if they are
//! printed as the kernel prints them and parsed again.

use std::fmt::Write as _;

use taskdiag_core::text::process::{self, Line, Lines, Positions, Status, Word};

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
    let Some(stat) = process::stat(text, Positions::ALL) else {
        return;
    };
    let mut printed = b"1 (".to_vec();
    printed.extend_from_slice(stat.comm);
    printed.extend_from_slice(b") ");
    printed.push(stat.state);
    let number = |position| stat.number(position).unwrap_or(0);
    let mut numbers = String::new();
    for position in 4..Word::ALL.len() {
        let number = number(position);
        // The others have no sign.
        if let 4..=23 | 38..=41 = position {
            write!(numbers, " {}", number as i64).expect("memory is written");
        } else {
            write!(numbers, " {number}").expect("memory is written");
        }
    }
    printed.extend_from_slice(numbers.as_bytes());
    printed.push(b'\n');
    let again = process::stat(&printed, Positions::ALL).expect("what the kernel prints");
    assert_eq!((again.comm, again.state), (stat.comm, stat.state));
    assert!((4..Word::ALL.len()).all(|position| again.number(position) == Some(number(position))));
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
const LINES: [(Line, Form); 18] = [
    (Line::State, Form::Letter),
    (Line::PPid, Form::Number),
    (Line::Uid, Form::Ids),
    (Line::Gid, Form::Ids),
    (Line::Groups, Form::Ids),
    (Line::NSpid, Form::Ids),
    (Line::VmPeak, Form::Kilobytes),
    (Line::VmSwap, Form::Kilobytes),
    (Line::HugetlbPages, Form::Kilobytes),
    (Line::Threads, Form::Number),
    (Line::CapEff, Form::Mask),
    (Line::SigQ, Form::Number),
    (Line::SigCgt, Form::Mask),
    (Line::Umask, Form::Octal),
    (Line::Seccomp, Form::Number),
    (Line::Cpus_allowed, Form::Processors),
    (Line::voluntary_ctxt_switches, Form::Number),
    (Line::nonvoluntary_ctxt_switches, Form::Number),
];

/// `proc_pid_status()` of fs/proc/array.c.
fn status(text: &[u8]) {
    let wanted = Lines::of(&LINES.map(|(line, _)| line));
    let status = process::status(text, wanted);
    assert!(status.found().is_subset(wanted));
    let mut printed = String::new();
    for (line, form) in LINES {
        let key = Line::NAMES[line as usize];
        if status.found().contains(line) {
            write!(printed, "{key}:\t").expect("memory is written");
            value(&status, line, form, &mut printed);
            printed.push('\n');
        }
    }
    let again = process::status(printed.as_bytes(), wanted);
    assert_eq!(again.found(), status.found());
    for (line, _) in LINES {
        assert_eq!(again.number(line), status.number(line));
    }
    for line in [Line::Uid, Line::Gid, Line::Groups, Line::NSpid] {
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
