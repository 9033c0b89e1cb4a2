use proptest::prelude::*;

use super::stat::tests::CAT;
use super::status::tests::{all, all_lines, TEXT};
use super::*;

const IO: &[u8] = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
    cancelled_write_bytes: 18446744073709551615\n";

/// Check that limits are read from their columns.
#[test]
fn limits_of_a_process() {
    let mut text = format!(
        "{:<25} {:<20} {:<20} {:<10}\n",
        "Limit", "Soft Limit", "Hard Limit", "Units"
    );
    for number in 0..LIMITS {
        let name = format!("Max open files {number}");
        text += &format!("{name:<25} {:<20} {:<20} {:<10}\n", number * 2, "unlimited", "");
    }
    let expected: Vec<_> = (0..LIMITS as u64).map(|number| (number * 2, u64::MAX)).collect();
    assert_eq!(limits(text.as_bytes()).map(|limits| limits.to_vec()), Some(expected));
    let (cut, _) = text.rsplit_once("Max").unwrap();
    assert_eq!((limits(cut.as_bytes()), limits(b"")), (None, None));
}

/// Check the small files.
#[test]
fn small_files() {
    assert_eq!(number(b"-1000\n"), Some(-1000));
    assert_eq!(number(b"666\n"), Some(666));
    assert_eq!(number(b"4294967295"), Some(u32::MAX));
    assert_eq!(number::<u32>(b"-1"), None);
    assert_eq!(
        (number::<i32>(b""), number::<i32>(b"-\n"), number::<i32>(b"1 2")),
        (None, None, None)
    );
    assert_eq!((mask(b"00040000\n"), mask(b"x")), (Some(0x40000), None));
    assert_eq!(io(IO), Some([1, 2, 3, 4, 5, 6, u64::MAX]));
    assert_eq!((io(b"rchar: 1\nwchar: \n"), io(b"")), (None, None));
    assert_eq!(schedstat(b"235881677 30486716 453\n"), Some([235881677, 30486716, 453]));
    assert_eq!(schedstat(b"1 2\n"), None);
    assert_eq!(cgroup(b"1:cpu:/x\n0::/a b (deleted)\n"), Some(&b"/a b (deleted)"[..]));
    assert_eq!(cgroup(b"10::/x\n"), None);
    assert_eq!(namespace(b"pid_for_children:[4026531836]"), Some(4026531836));
    assert_eq!(namespace(b"pid:[]"), None);
    assert_eq!((task_id(b"1"), task_id(b"self"), task_id(b"")), (Some(1), None, None));
}

proptest! {
    /// Check that no input makes the parsers panic.
    #[test]
    fn parsers_take_any_bytes(text in hostile()) {
        let _ = stat(&text, Positions::ALL);
        let status = status(&text, all_lines());
        for line in all() {
            let _ = (status.ids(line).count(), status.number(line), status.state());
        }
        let _ = (status.processors().count(), number::<i32>(&text), schedstat(&text), cgroup(&text), namespace(&text));
        let _ = (io(&text), limits(&text), mask(&text), wchan(&text), security_label(&text));
        let _ = (cgroup_mounts(&text, None).count(), unescape(&text).count(), task_id(&text));
    }
}

/// Any bytes, and the kernel's texts with some bytes changed.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let change = |text: &'static [u8]| {
        proptest::collection::vec((0..text.len(), any::<u8>()), 0..8).prop_map(move |changes| {
            let mut text = text.to_vec();
            changes.into_iter().for_each(|(at, byte)| text[at] = byte);
            text
        })
    };
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        change(CAT),
        change(IO),
        change(TEXT)
    ]
}

/// Check that `0` in `wchan` is not a name, and that a name that begins with it is.
#[test]
fn wchan_is_a_name_or_nothing() {
    for (text, name) in [
        ("0", ""),
        ("", ""),
        ("0\n", ""),
        ("do_wait", "do_wait"),
        ("0x1f", "0x1f"),
    ] {
        assert_eq!(wchan(text.as_bytes()), name.as_bytes(), "{text:?}");
    }
}

/// Check that labels end where their text ends.
#[test]
fn labels_have_no_line_end() {
    for (text, label) in [
        ("unconfined\n", "unconfined"),
        ("system_u:system_r:init_t:s0\0", "system_u:system_r:init_t:s0"),
        ("snap.x (enforce)\n", "snap.x (enforce)"),
        ("\n\0", ""),
        ("", ""),
    ] {
        assert_eq!(security_label(text.as_bytes()), label.as_bytes(), "{text:?}");
    }
}
