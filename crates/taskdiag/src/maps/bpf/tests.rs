use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MapFlags, ProtFlags};
use taskdiag_sys::host;
use taskdiag_testkit::Stop;

use super::super::{MapField, Maps};
use super::*;
use crate::Handle;

const PATIENCE: Duration = Duration::from_secs(5);

/// `None` on kernels before 6.11, and for users without the needed capabilities. Root must be
/// able to load it on later kernels.
fn loaded() -> Option<Bpf> {
    match Bpf::load() {
        Ok(bpf) => Some(bpf),
        Err(error) if host::kernel_version() < Some((6, 11)) => {
            assert!(
                matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Denied),
                "{error}"
            );
            None
        }
        Err(error) => {
            assert!(!rustix::process::geteuid().is_root(), "these tests need BPF: {error}");
            None
        }
    }
}

fn lines(maps: &mut Maps) -> Vec<(u64, u64, String, Vec<u8>)> {
    let listed = maps.list(Filter::default(), MapField::Name).expect("mappings");
    rows(&listed)
}

fn row(mapping: Mapping<'_>) -> (u64, u64, String, Vec<u8>) {
    let name = mapping.name.expect("a name").to_vec();
    (mapping.start, mapping.end, mapping.perms.to_string(), name)
}

fn rows(listed: &Mappings) -> Vec<(u64, u64, String, Vec<u8>)> {
    listed.iter().map(row).collect()
}

/// Check that a walk answers about a process, by list and by address, and about all processes.
#[test]
fn walks_answer_where_they_can() {
    let Some(mut bpf) = loaded() else { return };
    let mut child = process::Command::new("sleep").arg("1000").spawn().expect("a process");
    let pid = child.id();
    // A sleeping process has mapped its libraries.
    while !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(" S ")) {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(50));
    let maps = Handle::new().maps(pid).expect("our child");
    let fd = maps.fd().expect("memory");
    let expected = lines(
        &mut Handle::new()
            .with_source(SourceId::Procfs)
            .maps(pid)
            .expect("our child"),
    );
    let all = bpf
        .process(fd, pid, MappingSelection::Passing(0), Wants::NAMES)
        .expect("an answer")
        .expect("nothing changes there");
    assert_eq!(rows(&all), expected);
    let addresses: Vec<u64> = expected.iter().step_by(3).map(|line| line.1 - 1).collect();
    let some = bpf
        .process(fd, pid, MappingSelection::At(&addresses), Wants::NAMES)
        .expect("an answer")
        .expect("nothing changes there");
    assert!(rows(&some).iter().eq(expected.iter().step_by(3)));
    let pass = bpf
        .machine(Filter::default(), Wants::NAMES, PATIENCE)
        .expect("an answer");
    assert!(pass.deferred.binary_search(&pid).is_err());
    let ours = (0..pass.mappings.len()).filter(|&index| pass.mappings.pid(index) == pid);
    assert!(ours.map(|index| row(pass.mappings.get(index))).eq(expected));
    child.kill().expect("our child");
    child.wait().expect("our child");
}

/// Check that a mapping that is continuously replaced is reported as it was at one moment, or
/// not at all: file, offset and name belong together. Something is mapped there at every
/// moment.
#[test]
fn torn_walks_are_not_answers() {
    const LEN: usize = 64 << 10;
    let Some(mut bpf) = loaded() else { return };
    let names = ["one", "two"].map(|name| std::env::temp_dir().join(format!("taskdiag-torn-{}-{name}", process::id())));
    let files: Vec<(File, u64)> = names
        .iter()
        .zip([0x1000, 0x5000])
        .map(|(path, offset)| {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(path);
            let file = file.expect("a file");
            file.set_len(1 << 20).expect("room");
            (file, offset)
        })
        .collect();
    let map = |at: usize, turn: usize, flags: MapFlags| {
        let (file, offset) = &files[turn % 2];
        // SAFETY: a mapping of our own at a place of the kernel's choice, or in place of that
        // one; nobody reads there.
        let at = unsafe {
            rustix::mm::mmap(
                at as *mut _,
                LEN,
                ProtFlags::READ,
                MapFlags::PRIVATE | flags,
                file,
                *offset,
            )
        };
        at.expect("a mapping") as usize
    };
    let at = map(0, 0, MapFlags::empty());
    let done = AtomicBool::new(false);
    let (mut whole, mut seen) = (0, [0; 2]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0;
            while !done.load(Ordering::Relaxed) {
                turn += 1;
                map(at, turn, MapFlags::FIXED);
                if turn % 63 == 0 {
                    std::thread::sleep(std::time::Duration::from_micros(50));
                }
            }
        });
        let _stop = Stop(&done);
        let own = Handle::new().maps(process::id()).expect("our own");
        let fd = own.fd().expect("memory");
        for round in 0..3000 {
            let asked = match round % 2 {
                0 => MappingSelection::Passing(Filter::from(Perms::READ).flags().bits() as u32),
                _ => MappingSelection::At(&[at as u64, (at + LEN - 1) as u64]),
            };
            let answer = bpf.process(fd, process::id(), asked, Wants::NAMES).expect("an answer");
            let Some(listed) = answer else { continue };
            whole += 1;
            let met = listed
                .iter()
                .find(|mapping| mapping.start <= at as u64 && mapping.end > at as u64);
            let met = met.expect("something is always mapped there");
            let turn = usize::from(met.offset_bytes - (at as u64 - met.start) != files[0].1);
            let (file, offset) = &files[turn];
            assert_eq!(met.offset_bytes, *offset + (at as u64 - met.start));
            assert_eq!(met.inode, file.metadata().expect("a file").ino());
            assert_eq!(met.name, Ok(names[turn].as_os_str().as_encoded_bytes()));
            seen[turn] += 1;
        }
    });
    println!("{whole} of 3000 walks were whole, {seen:?}");
    assert!(whole > 0);
    // SAFETY: our own mapping, which nothing refers to.
    unsafe { rustix::mm::munmap(at as *mut _, LEN) }.expect("our own");
    names
        .iter()
        .for_each(|path| std::fs::remove_file(path).expect("our own"));
}
