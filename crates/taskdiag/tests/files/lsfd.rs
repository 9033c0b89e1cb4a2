//! Comparison with lsfd, column by column: each of its values for a descriptor is equal to ours.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use taskdiag::files::{Access, Kind, Request, Use};
use taskdiag::{Query, Set};
use taskdiag_core::open_file::access;
use taskdiag_testkit::animal;

use super::{handle, list, request, Row, SOURCES};

/// The compared columns, besides those that identify the row. lsfd defines SIZE and NAME
/// differently for anything but files and directories, and POS for directories and programs.
const COLUMNS: &str = "ASSOC,FD,MODE,TYPE,DEV,DELETED,MNTID,POS,FLAGS,INODE,NLINK,SIZE,NAME";

/// Whether a process has inherited a descriptor from this test, whose output may go to a file that
/// grows meanwhile.
fn is_shared(fd: Option<u32>) -> bool {
    fd.is_some_and(|fd| fd <= 2)
}

/// What lsfd reports about the descriptors and other files of a process, without its namespaces.
fn rows_of_lsfd(pid: u32) -> BTreeMap<(Use, Option<u32>), Value> {
    let mut lsfd = Command::new("lsfd");
    let lsfd = lsfd.args(["-J", "-o", COLUMNS, "-p", &pid.to_string()]).output();
    let output = lsfd.expect("lsfd: dev/setup.sh installs it");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut rows = BTreeMap::new();
    for row in document["lsfd"].as_array().expect("rows") {
        let used_as = match row["assoc"].as_str().expect("a text") {
            "exe" => Use::Exe,
            "cwd" => Use::Cwd,
            "rtd" => Use::Root,
            _ if row["fd"].is_u64() => Use::Fd,
            _ => continue,
        };
        let fd = row["fd"].as_u64().map(|fd| fd as u32);
        if is_shared(fd) {
            continue;
        }
        assert!(rows.insert((used_as, fd), row.clone()).is_none(), "{row}");
    }
    rows
}

/// lsfd's word for a kind.
fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "REG",
        Kind::Dir => "DIR",
        Kind::Char => "CHR",
        Kind::Block => "BLK",
        Kind::Fifo => "FIFO",
        Kind::Socket => "SOCK",
        Kind::Link => "LINK",
        // lsfd shows the type in the inode, which is none or REG.
        _ => "UNKN",
    }
}

/// Whether a flag has the name in lsfd's column FLAGS.
const FLAGS: [(&str, i32); 7] = [
    ("append", libc::O_APPEND),
    ("nonblock", libc::O_NONBLOCK),
    ("cloexec", libc::O_CLOEXEC),
    ("directory", libc::O_DIRECTORY),
    ("direct", libc::O_DIRECT),
    ("noatime", libc::O_NOATIME),
    ("path", libc::O_PATH),
];

/// Compares a row, column by column, except those that differ by nature.
fn compare(theirs: &Value, ours: &Row) {
    let about = || format!("{theirs}\n{ours:?}");
    let number = |key: &str| theirs[key].as_u64().unwrap_or_else(|| panic!("{key}: {}", about()));
    let kind = ours.kind.expect("a kind");
    if let Kind::Anon(_) = kind {
        assert!(
            ["UNKN", "REG"].contains(&theirs["type"].as_str().expect("a text")),
            "{}",
            about()
        );
    } else {
        assert_eq!(theirs["type"], type_of(kind), "{}", about());
    }
    let device = ours.device.expect("a device");
    let device = format!("{}:{}", libc::major(device), libc::minor(device));
    assert_eq!(theirs["dev"], device, "{}", about());
    assert_eq!(number("inode"), ours.inode.expect("a number"), "{}", about());
    assert_eq!(number("nlink"), u64::from(ours.nlink.expect("a number")), "{}", about());
    assert_eq!(number("size"), ours.size.expect("a size"), "{}", about());
    let name = ours.name.as_deref().expect("a name");
    if matches!(kind, Kind::File | Kind::Dir | Kind::Char | Kind::Fifo) && !name.starts_with(b"pipe:") {
        assert_eq!(theirs["name"], String::from_utf8_lossy(name).as_ref(), "{}", about());
    }
    if ours.used_as != Use::Fd {
        return;
    }
    assert_eq!(number("mntid"), u64::from(ours.mnt_id.expect("a mount")), "{}", about());
    assert_eq!(theirs["pos"].as_i64(), ours.offset.expect("an offset"), "{}", about());
    let flags = ours.open_flags.expect("flags").expect("a descriptor");
    let access = match access(flags) {
        Access::Read => "r--",
        Access::Write => "-w-",
        Access::ReadWrite => "rw-",
        _ => "---",
    };
    assert_eq!(theirs["mode"], access, "{}", about());
    let words: Vec<&str> = theirs["flags"].as_str().unwrap_or_default().split(',').collect();
    for (word, flag) in FLAGS {
        assert_eq!(words.contains(&word), flags & flag as u32 != 0, "{word}: {}", about());
    }
}

/// Compares each row and column of lsfd: every kind of descriptor, and a process with 10,000
/// descriptors.
#[test]
fn lsfd_sees_the_same() {
    for (name, least) in [("descriptors", 40), ("files-10000", 10_000)] {
        let animal = animal(name);
        let pid = animal.pid as u32;
        let theirs = rows_of_lsfd(pid);
        assert!(theirs.len() > least, "{name}: {}", theirs.len());
        for source in SOURCES {
            let mut request = request(Request::default().fields);
            request.uses = Set::from(Use::ALL).without(Use::Map);
            let (rows, _) = list(&mut handle(source), &Query::these([pid]), &request);
            let ours: BTreeMap<(Use, Option<u32>), &Row> = rows
                .iter()
                .filter(|row| !is_shared(row.fd))
                .map(|row| ((row.used_as, row.fd), row))
                .collect();
            assert_eq!(
                ours.keys().collect::<Vec<_>>(),
                theirs.keys().collect::<Vec<_>>(),
                "{source}: {name}"
            );
            for (used_as, row) in &theirs {
                compare(row, ours[used_as]);
            }
        }
    }
}
