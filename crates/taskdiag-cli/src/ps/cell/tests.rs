//! Tests of the cells.

use taskdiag::{Absent, Arguments};

use super::*;
use crate::output::relation::tests::TestRow;
use crate::ps::host::Modifiers;
use crate::ps::specifiers::Specifier;

const HZ: u64 = 100;

/// The cell of a column for a row, 1000 seconds after boot on a machine with 1 GiB.
fn shown_with(name: &str, row: &TestRow<'_>, modifiers: Modifiers) -> String {
    let mut host = Host::new(modifiers);
    (host.now_ns, host.tick_ns) = (1000 * SECOND, SECOND / HZ);
    (host.page_bytes, host.memory_kib, host.is_utf8) = (4096, 1 << 20, true);
    let mut out = Vec::new();
    let specifier = Specifier::named(name).expect(name);
    (specifier.show)(&mut Cell {
        out: &mut out,
        task: row,
        host: &mut host,
        missing: None,
        branches: b"",
    });
    String::from_utf8(out).expect("cells are UTF-8")
}

fn shown(name: &str, row: &TestRow<'_>) -> String {
    shown_with(name, row, Modifiers::default())
}

/// A task that started `seconds` ago and has used `ticks` in user mode.
fn aged(seconds: u64, ticks: u64) -> TestRow<'static> {
    TestRow(vec![
        (Field::StartNs, Ok(Value::Unsigned((1000 - seconds) * SECOND))),
        (Field::UtimeNs, Ok(Value::Unsigned(ticks * SECOND / HZ))),
        (Field::StimeNs, Ok(Value::Unsigned(0))),
        (Field::CutimeNs, Ok(Value::Unsigned(5 * SECOND))),
        (Field::CstimeNs, Ok(Value::Unsigned(SECOND))),
    ])
}

/// Check the forms of processor time where the form changes.
#[test]
fn processor_time_has_several_forms() {
    for (seconds, time, bsd) in [
        (0, "00:00:00", "0:00"),
        (59, "00:00:59", "0:59"),
        (6000, "01:40:00", "100:00"),
        (60_000, "16:40:00", "1000:00"),
        (86_400, "1-00:00:00", "1440:00"),
        (8_640_000, "100-00:00:00", "144000:00"),
    ] {
        let row = aged(10, seconds * HZ + 99);
        assert_eq!(shown("time", &row), time);
        assert_eq!(shown("bsdtime", &row).trim_start(), bsd);
        assert_eq!(shown("cputimes", &row), seconds.to_string());
    }
    let cumulative = Modifiers {
        cumulative: true,
        ..Modifiers::default()
    };
    assert_eq!(shown_with("time", &aged(10, 100), cumulative), "00:00:07");
}

/// Check that user and system time are each rounded down, as in the kernel's texts.
#[test]
fn times_are_whole_ticks() {
    let row = TestRow(vec![
        (Field::UtimeNs, Ok(Value::Unsigned(599_999_999))),
        (Field::StimeNs, Ok(Value::Unsigned(409_999_999))),
    ]);
    assert_eq!(shown("times", &row), "0");
}

/// Check the shares of a processor, and their limits.
#[test]
fn shares_have_ends() {
    for (ticks, percent, whole, mille, fine) in [
        (0, "0.0", "0", "0", "0.000"),
        (11, "1.1", "1", "11", "1.100"),
        (999, "99.9", "99", "999", "99.900"),
        (1000, "100", "99", "999", "99.999"),
        (12_345, "1234", "99", "999", "99.999"),
    ] {
        let row = aged(10, ticks);
        assert_eq!(shown("%cpu", &row), percent);
        assert_eq!(shown("c", &row).trim_start(), whole);
        assert_eq!(shown("cp", &row).trim_start(), mille);
        assert_eq!(shown("cuu", &row), fine);
    }
    assert_eq!(shown("cuc", &aged(100, 100)), "7.000");
    // It has only just started. Nothing is divided by 0.
    assert_eq!(shown("%cpu", &aged(0, 1)), "0.0");
}

/// Check the time since the start, and that it is 0 if the clock is behind.
#[test]
fn elapsed_time_has_several_forms() {
    for (seconds, shown_as) in [(0, "00:00"), (59, "00:59"), (600, "10:00")] {
        assert_eq!(shown("etime", &aged(seconds, 0)), shown_as);
    }
    let future = TestRow(vec![(Field::StartNs, Ok(Value::Unsigned(2000 * SECOND)))]);
    assert_eq!(shown("etime", &future), "00:00");
    let mut out = Vec::new();
    for (seconds, shown_as) in [(3600, "01:00:00"), (86_399, "23:59:59"), (86_400, "1-00:00:00")] {
        out.clear();
        let row = TestRow(vec![]);
        let mut host = Host::new(Modifiers::default());
        let mut cell = Cell {
            out: &mut out,
            task: &row,
            host: &mut host,
            missing: None,
            branches: b"",
        };
        cell.span(seconds, false);
        assert_eq!(String::from_utf8_lossy(&out), shown_as);
    }
}

/// Check units and shares of memory, and that a task without memory has 0 rather than a dash.
#[test]
fn memory_is_in_units_of_ps() {
    let row = TestRow(vec![
        (Field::RssBytes, Ok(Value::Unsigned(20_000 << 10))),
        (Field::VsizeBytes, Ok(Value::Unsigned(41_234_432))),
        (Field::DataBytes, Ok(Value::Unsigned(224 << 10))),
        (Field::StackBytes, Ok(Value::Unsigned(132 << 10))),
        (Field::StartCode, Ok(Value::Mask(0x1000))),
        (Field::EndCode, Ok(Value::Mask(0x1000 + 17_929))),
        (Field::StartStack, Ok(Value::Mask(0x7fff_2a53_f220))),
        (Field::TextBytes, Ok(Value::Unsigned(20 << 10))),
    ]);
    for (name, expected) in [
        ("rss", "20000"),
        ("%mem", " 1.9"),
        ("sz", "10067"),
        ("m_size", "41234432"),
        ("size", "356"),
        ("trs", "17"),
        ("drs", "40250"),
        ("stackp", "00007fff2a53f220"),
    ] {
        assert_eq!(shown(name, &row), expected, "{name}");
    }
    let pages = TestRow(vec![(Field::TextBytes, Ok(Value::Unsigned(20 << 10)))]);
    assert_eq!(shown("trs", &pages), "20");
    let none = TestRow(row.0.iter().map(|&(field, _)| (field, Err(Absent::NoMemory))).collect());
    let denied = TestRow(row.0.iter().map(|&(field, _)| (field, Err(Absent::Denied))).collect());
    for name in ["rss", "sz", "m_size", "size", "trs", "drs"] {
        assert_eq!(shown(name, &none), "0", "{name}");
        assert_eq!(shown(name, &denied), "-", "{name}");
    }
    assert_eq!(
        (shown("%mem", &none), shown("%mem", &denied)),
        (" 0.0".to_owned(), "-".to_owned())
    );
    assert_eq!(shown("stackp", &none), "0000000000000000");
}

/// Check the classes, priorities and nice values of the scheduler.
#[test]
fn scheduling_is_shown_on_all_scales() {
    let row = |policy, priority, nice, rt| {
        TestRow(vec![
            (Field::Policy, Ok(Value::Unsigned(policy))),
            (Field::Priority, Ok(Value::Signed(priority))),
            (Field::Nice, Ok(Value::Signed(nice))),
            (Field::RtPriority, Ok(Value::Unsigned(rt))),
        ])
    };
    for (row, expected) in [
        (row(0, 20, 0, 0), "TS 19 80 20 0 21 120 -21 0 -"),
        (row(1, -11, 0, 10), "FF 50 49 -11 -31 -10 89 10 - 10"),
        (row(3, 25, 5, 0), "B 14 85 25 5 26 125 -26 5 0"),
        (row(5, 39, 19, 0), "IDL 0 99 39 19 40 139 -40 - 0"),
        (row(6, -101, 0, 0), "DLN 140 -41 -101 -121 -100 -1 100 - 0"),
        (row(7, 20, 0, 0), "#7 19 80 20 0 21 120 -21 - 0"),
    ] {
        let names = [
            "class", "pri", "opri", "priority", "pri_foo", "pri_bar", "pri_baz", "pri_api", "ni", "rtprio",
        ];
        let cells: Vec<String> = names.iter().map(|name| shown(name, &row)).collect();
        assert_eq!(cells.join(" "), expected);
    }
}

/// Check the letters after the state.
#[test]
fn states_have_letters_behind_them() {
    let plain = || {
        vec![
            (Field::State, Ok(Value::Letter('S'))),
            (Field::Nice, Ok(Value::Signed(0))),
            (Field::LockedBytes, Ok(Value::Unsigned(0))),
            (Field::Pid, Ok(Value::Unsigned(7))),
            (Field::Sid, Ok(Value::Unsigned(1))),
            (Field::ThreadsCount, Ok(Value::Unsigned(1))),
            (Field::Pgid, Ok(Value::Unsigned(7))),
            (Field::Tpgid, Ok(Value::Signed(-1))),
        ]
    };
    assert_eq!(shown("stat", &TestRow(plain())), "S");
    for (index, value, expected) in [
        (1, Value::Signed(-1), "S<"),
        (1, Value::Signed(1), "SN"),
        (2, Value::Unsigned(1), "SL"),
        (4, Value::Unsigned(7), "Ss"),
        (5, Value::Unsigned(2), "Sl"),
        (7, Value::Signed(7), "S+"),
    ] {
        let mut values = plain();
        values[index].1 = Ok(value);
        assert_eq!(shown("stat", &TestRow(values)), expected);
    }
}

/// Check which of the kernel's flags are shown.
#[test]
fn some_flags_are_shown() {
    for (flags, shown_as) in [
        (0x40, "1"),
        (0x100, "4"),
        (0x140, "5"),
        (0x0020_0000, "0"),
        (0xffff_ffff, "7"),
    ] {
        let row = TestRow(vec![(Field::Flags, Ok(Value::Mask(flags)))]);
        assert_eq!(shown("f", &row), shown_as);
    }
}

/// Check the name of a kernel function, and the cell if there is none.
#[test]
fn wait_channels_lack_underscores() {
    for (name, shown_as) in [(&b"do_wait"[..], "do_wait"), (b"__do_sys_pause", "do_sys_pause")] {
        let row = TestRow(vec![(Field::Wchan, Ok(Value::Text(name)))]);
        assert_eq!(shown("wchan", &row), shown_as);
    }
    for value in [Ok(Value::Text(b"")), Err(Absent::Denied)] {
        let row = TestRow(vec![(Field::Wchan, value)]);
        assert_eq!(shown("wchan", &row), "-");
    }
}

/// Check what is shown for the command, and that nothing in it can control a terminal.
#[test]
fn commands_are_harmless() {
    let row = |cmdline: &'static [u8]| {
        TestRow(vec![
            (Field::Cmdline, Ok(Value::Texts(Arguments::new(cmdline)))),
            (Field::Comm, Ok(Value::Text(b"a\x1b[31m"))),
            (Field::State, Ok(Value::Letter('Z'))),
            (Field::Environ, Ok(Value::Texts(Arguments::new(b"A=1\0B=2\0")))),
        ])
    };
    assert_eq!(shown("args", &row(b"cat\0a b\0\n\0")), "cat a b  ");
    assert_eq!(shown("args", &row(b"\0\0")), "?");
    assert_eq!(shown("args", &row(b"a \0\0b\0\0\0")), "a   b");
    assert_eq!(shown("args", &row(b"")), "[a?[31m] <defunct>");
    assert_eq!(shown("args", &row("\u{202e}\u{9b}größe\0".as_bytes())), "??größe");
    assert_eq!(shown("args", &row(b"\xff\xc3(\0")), "??(");
    assert_eq!(shown("comm", &row(b"")), "a?[31m");
    assert_eq!(shown("fname", &row(b"")), "a?[31m");
    let modifiers = Modifiers {
        environment: true,
        ..Modifiers::default()
    };
    assert_eq!(shown_with("args", &row(b"cat\0"), modifiers), "cat A=1 B=2");
    let modifiers = Modifiers {
        true_name: true,
        ..Modifiers::default()
    };
    assert_eq!(shown_with("args", &row(b"cat\0"), modifiers), "a?[31m");
    let mut out = Vec::new();
    plain(&mut out, "\x1b\n ~ü\x7f".as_bytes(), false);
    assert_eq!(String::from_utf8_lossy(&out), ".. ~??.");
}

/// Check that short names are cut between characters, by their width.
#[test]
fn short_names_have_whole_characters() {
    for (name, short) in [
        ("abcdefghij", "abcdefgh"),
        ("naïve-é-日本", "naïve-é-"),
        ("日本語日本語", "日本語日"),
        ("1234567日", "1234567"),
    ] {
        let row = TestRow(vec![(Field::Comm, Ok(Value::Text(name.as_bytes())))]);
        assert_eq!(shown("fname", &row), short);
    }
}

/// Check that every specifier has text for a task about which nothing is known.
#[test]
fn nothing_is_empty_for_lack_of_values() {
    use super::super::specifiers::TABLE;
    let row = TestRow(vec![]);
    for specifier in TABLE {
        assert!(!shown(specifier.name, &row).is_empty(), "{}", specifier.name);
    }
    assert!(TABLE.is_sorted_by(|a, b| a.name < b.name));
}
