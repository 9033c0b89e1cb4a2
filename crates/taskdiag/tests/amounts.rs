//! Rollups report known amounts of a process's memory: private, shared, of files, huge, lazily
//! freed, swapped out.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Mutex;
use taskdiag::{Budget, Field, Fields, Group, Handle, Query, SourceId, Value};
use taskdiag_testkit::storage::HugePages;
use taskdiag_testkit::{
    child::{self, World},
    test_name, SOURCES,
};

const KIB: i64 = 1 << 10;
const MIB: i64 = 1 << 20;
fn page_size() -> i64 {
    rustix::param::page_size() as i64
}

/// The maximum number of processes that share memory.
const SHARERS: usize = 50;

/// The sizes of the fixture's memory.
const PRIVATE: i64 = 4 * MIB;
const SHARED: i64 = MIB;
const FROM_FILE: i64 = MIB;
const LAZY: i64 = 2 * MIB;
const HUGE: i64 = 2 * MIB;

/// A process that takes memory on command, and does nothing else.
struct Fixture {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Fixture {
    fn start(test: &str) -> Fixture {
        let mut process = child::command(test, "fixture", World::default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the fixture");
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let mut fixture = Fixture {
            process,
            input: input.expect("a pipe"),
            output: BufReader::new(output.expect("a pipe")),
        };
        fixture.hear();
        // The memory that the first command itself needs is allocated then.
        for _ in 0..3 {
            fixture.tell(b'n').expect("nothing");
        }
        fixture
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The fixture's reply: empty, or an errno.
    fn hear(&mut self) -> Option<i32> {
        let mut line = String::new();
        loop {
            line.clear();
            let len = self.output.read_line(&mut line).expect("a word");
            assert_ne!(len, 0, "the fixture has ended");
            if let Some(word) = line.trim_end().strip_prefix("done ") {
                return word.parse().ok().filter(|&errno| errno != 0);
            }
        }
    }

    /// Sends it a command. Fails if this kernel does not support it.
    fn tell(&mut self, what: u8) -> Result<(), std::io::Error> {
        self.input.write_all(&[what]).expect("the fixture listens");
        self.hear()
            .map_or(Ok(()), |errno| Err(std::io::Error::from_raw_os_error(errno)))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Memory of the fixture.
struct Area(*mut libc::c_void, usize);

impl Area {
    fn map(len: i64, flags: i32, file: i32) -> Result<Area, i32> {
        let protection = if file < 0 {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len as usize, protection, flags, file, 0) };
        if at == libc::MAP_FAILED {
            Err(errno())
        } else {
            Ok(Area(at, len as usize))
        }
    }

    fn advise(&self, advice: i32) -> Result<(), i32> {
        // SAFETY: our own mapping; what is in it does not matter.
        match unsafe { libc::madvise(self.0, self.1, advice) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }

    /// Reads or writes the pages of the first `len` bytes.
    fn touch(&self, len: usize, write: bool) {
        for offset in (0..len.min(self.1)).step_by(page_size() as usize) {
            // SAFETY: within the mapping, which is writable if it is to be written.
            unsafe {
                let byte = self.0.cast::<u8>().add(offset);
                if write {
                    byte.write_volatile(7);
                } else {
                    byte.read_volatile();
                }
            }
        }
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Reads or writes one byte.
fn read_byte(fd: i32) -> Option<u8> {
    let mut byte = 0_u8;
    // SAFETY: one byte, which outlives the call.
    (unsafe { libc::read(fd, (&raw mut byte).cast(), 1) } == 1).then_some(byte)
}

fn write_bytes(fd: i32, bytes: &[u8]) {
    // SAFETY: the bytes outlive the call.
    unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
}

fn pipe() -> (i32, i32) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    (ends[0], ends[1])
}

/// A process that shares memory with the fixture, and touches it on command.
fn sharer(shared: &Area, commands: i32, answers: i32) -> ! {
    while let Some(command) = read_byte(commands) {
        shared.touch(if command == b'n' { 0 } else { SHARED as usize }, true);
        write_bytes(answers, &[command]);
    }
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Reads all of this program and its libraries into memory. Otherwise code that the fixture runs
/// for the first time would be read meanwhile and, if files themselves are in memory, would count
/// as memory that the fixture takes.
fn touch_files() {
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    for line in maps.lines().filter(|line| line.contains(" r") && line.contains('/')) {
        let (range, _) = line.split_once(' ').expect("a range");
        let (start, end) = range.split_once('-').expect("two addresses");
        let [start, end] = [start, end].map(|address| usize::from_str_radix(address, 16).expect("an address"));
        // SAFETY: our own mapping, which is only read. What lies beyond the end of the file can't
        // be read.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_POPULATE_READ) };
    }
}

/// The main loop of the fixture.
fn live(file: &File) {
    touch_files();
    let shared = Area::map(SHARED, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1).expect("a mapping");
    let (answers, answer) = pipe();
    let mut sharers = Vec::new();
    for _ in 1..SHARERS {
        let (commands, command) = pipe();
        // SAFETY: the child makes system calls and touches memory, and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: no pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            sharer(&shared, commands, answer);
        }
        assert!(pid > 0);
        sharers.push(command);
    }
    let mut areas: [Option<Area>; 4] = [const { None }; 4];
    let mut sharing = 0;
    write_bytes(1, b"\ndone 0\n");
    while let Some(command) = read_byte(0) {
        let done = match command {
            b'n' => sharers.iter().try_for_each(|&sharer| {
                write_bytes(sharer, b"n");
                read_byte(answers).map(drop).ok_or(libc::EPIPE)
            }),
            b'p' | b'l' => private(if command == b'p' { PRIVATE } else { LAZY })
                .map(|area| areas[usize::from(command == b'l')] = Some(area)),
            b'L' => areas[1]
                .as_ref()
                .map_or(Err(libc::EINVAL), |area| area.advise(libc::MADV_FREE)),
            b'o' => areas[0]
                .as_ref()
                .map_or(Err(libc::EINVAL), |area| area.advise(libc::MADV_PAGEOUT)),
            b's' => {
                shared.touch(SHARED as usize, true);
                Ok(())
            }
            // One more process.
            b'+' => {
                write_bytes(sharers[sharing], b"t");
                sharing += 1;
                read_byte(answers).map(drop).ok_or(libc::EPIPE)
            }
            b'f' => Area::map(FROM_FILE, libc::MAP_PRIVATE, file.as_raw_fd()).map(|area| {
                area.touch(FROM_FILE as usize, false);
                areas[2] = Some(area);
            }),
            b'h' => {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
                Area::map(HUGE, flags, -1).map(|area| {
                    area.touch(1, true);
                    areas[3] = Some(area);
                })
            }
            _ => Err(libc::EINVAL),
        };
        match done {
            Ok(()) => write_bytes(1, b"done 0\n"),
            Err(errno) => {
                // Allocates nothing: that would be memory beyond what the command asks for.
                let digits = [
                    b'0' + (errno / 100 % 10) as u8,
                    b'0' + (errno / 10 % 10) as u8,
                    b'0' + (errno % 10) as u8,
                ];
                write_bytes(1, &[b"done ", &digits[..], b"\n"].concat());
            }
        }
    }
}

fn private(len: i64) -> Result<Area, i32> {
    let area = Area::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    // A kernel without huge pages refuses.
    let _ = area.advise(libc::MADV_NOHUGEPAGE);
    area.touch(len as usize, true);
    Ok(area)
}

/// The fixture's rollup: bytes by field.
struct Sizes([Option<i64>; 256]);

impl Sizes {
    fn of(handle: &mut Handle, pid: u32) -> Sizes {
        let query = Query::process(pid)
            .fields(Fields::of_group(Group::Rollup))
            .budget(Budget::UNLIMITED);
        let snapshot = handle.query(&query).expect("an answer");
        let task = snapshot.task(0);
        let mut sizes = [None; 256];
        for field in Fields::of_group(Group::Rollup).iter() {
            if let Ok(Value::Unsigned(bytes)) = task.value(field) {
                sizes[field as usize] = Some(bytes as i64);
            }
        }
        Sizes(sizes)
    }

    /// How much a field has grown. `None` if the kernel lacks the field.
    fn growth(&self, before: &Sizes, field: Field) -> Option<i64> {
        Some(self.0[field as usize]? - before.0[field as usize]?)
    }

    /// Fails unless each field has grown by the given amount. Fields that are not listed must not
    /// have grown, with some exceptions.
    fn expect(&self, before: &Sizes, what: &str, growths: &[(Field, i64)], unclear: &[Field]) -> Result<(), String> {
        let clean = [Field::SharedCleanBytes, Field::PrivateCleanBytes].map(|field| self.growth(before, field));
        let clean: i64 = clean.into_iter().flatten().sum();
        let mut wrong = Vec::new();
        for field in Fields::of_group(Group::Rollup).iter() {
            // The kernel sets and clears referenced bits at any time.
            if [Field::RollupAgeNs, Field::ReferencedBytes].contains(&field) || unclear.contains(&field) {
                continue;
            }
            let Some(mut growth) = self.growth(before, field) else {
                continue;
            };
            // Other processes that map the same libraries start and end, and code is read into
            // memory page by page as the fixture runs it.
            growth -= match field {
                Field::RollupRssBytes if !unclear.contains(&Field::PrivateCleanBytes) => clean,
                Field::PssFileBytes | Field::SharedCleanBytes | Field::PrivateCleanBytes => continue,
                Field::PssBytes => self.growth(before, Field::PssFileBytes).unwrap_or(0),
                Field::UssBytes => self.growth(before, Field::PrivateCleanBytes).unwrap_or(0),
                _ => 0,
            };
            let wanted = growths
                .iter()
                .find(|(of, _)| *of == field)
                .map_or(0, |(_, bytes)| *bytes);
            let is_proportional = field.name().contains("pss");
            let slack = match (is_proportional, is_program_in_memory()) {
                (false, _) => 0,
                // Proportional sizes are rounded down to KiB, before and after.
                (true, false) => 2 * KIB,
                // Pages of the program count as the fixture's own, and other processes share them.
                (true, true) => 32 * KIB,
            };
            if (growth - wanted).abs() > slack {
                wrong.push(format!("{field} has grown by {growth} instead of {wanted}"));
            }
        }
        if wrong.is_empty() {
            println!("{what}: {growths:?}");
            Ok(())
        } else {
            Err(format!("{what}:\n{}", wrong.join("\n")))
        }
    }
}

/// Whether this program's file is on a file system whose pages are shared memory: the root of a
/// virtual machine.
fn is_program_in_memory() -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    let program = rustix::fs::statfs("/proc/self/exe").expect("this program");
    [TMPFS, RAMFS].contains(&(program.f_type as i64))
}

/// Check for each kind of memory that the rollup grows by what a process takes, and by nothing
/// else.
#[test]
fn amounts_are_exact() {
    if child::part().is_some() {
        let file = File::open(std::env::var("TASKDIAG_TEST_FILE").expect("a file")).expect("a file");
        return live(&file);
    }
    let path = std::env::temp_dir().join(format!("taskdiag-amounts-{}", std::process::id()));
    let mut file = File::create(&path).expect("a file");
    file.write_all(&vec![7; FROM_FILE as usize]).expect("room");
    file.sync_all().expect("a disk");
    // The fixtures inherit it. Nothing else in this process reads it.
    std::env::set_var("TASKDIAG_TEST_FILE", &path);
    let test = test_name!();
    quietly(|| {
        SOURCES
            .into_iter()
            .try_for_each(|source| take_and_compare(source, test))
    });
    fs::remove_file(&path).expect("our own file");
}

/// Repeats an attempt until nothing has interfered. Other processes share pages with the fixture,
/// such as those of this test's program, and change its proportional sizes.
fn quietly(mut attempt: impl FnMut() -> Result<(), String>) {
    const TRIES: usize = 25;
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
    // Pages not yet written to disk would become clean meanwhile.
    let program = File::open("/proc/self/exe").and_then(|program| program.sync_all());
    program.expect("a disk");
    let mut last = String::new();
    let is_so = (0..TRIES).any(|_| match attempt() {
        Ok(()) => true,
        Err(why) => {
            println!("disturbed: {why}");
            last = why;
            false
        }
    });
    assert!(is_so, "{last}");
}

fn take_and_compare(source: SourceId, test: &str) -> Result<(), String> {
    let mut handle = taskdiag_testkit::handle(source);
    let mut fixture = Fixture::start(test);
    let pid = fixture.pid();
    let mut before = Sizes::of(&mut handle, pid);
    let mut step = |fixture: &mut Fixture, what: u8| -> Result<(Sizes, Sizes), std::io::Error> {
        fixture.tell(what)?;
        let now = Sizes::of(&mut handle, pid);
        let then = std::mem::replace(&mut before, Sizes::of(&mut handle, pid));
        Ok((then, now))
    };
    let dirty = |bytes: i64| {
        vec![
            (Field::RollupRssBytes, bytes),
            (Field::PssBytes, bytes),
            (Field::UssBytes, bytes),
            (Field::PssDirtyBytes, bytes),
            (Field::PssAnonBytes, bytes),
            (Field::PrivateDirtyBytes, bytes),
            (Field::AnonymousBytes, bytes),
        ]
    };
    let (then, now) = step(&mut fixture, b'p').expect("memory");
    now.expect(&then, &format!("{source}: private"), &dirty(PRIVATE), &[])?;

    let (alone, now) = step(&mut fixture, b's').expect("memory");
    let mut growths = dirty(SHARED);
    growths.retain(|(field, _)| ![Field::PssAnonBytes, Field::AnonymousBytes].contains(field));
    growths.push((Field::PssShmemBytes, SHARED));
    now.expect(&alone, &format!("{source}: shared memory, one process"), &growths, &[])?;
    for sharers in 2..=SHARERS {
        let (_, now) = step(&mut fixture, b'+').expect("memory");
        let part = SHARED / sharers as i64;
        let growths = [
            (Field::RollupRssBytes, SHARED),
            (Field::PssBytes, part),
            (Field::PssDirtyBytes, part),
            (Field::PssShmemBytes, part),
            (Field::SharedDirtyBytes, SHARED),
        ];
        if [2, 3, 10, SHARERS].contains(&sharers) {
            now.expect(&alone, &format!("{source}: shared by {sharers}"), &growths, &[])?;
        }
    }

    let (then, now) = step(&mut fixture, b'f').expect("memory");
    // On tmpfs, files are shared memory, and never clean.
    let kinds = [
        Field::PssBytes,
        Field::UssBytes,
        Field::PssShmemBytes,
        Field::PssDirtyBytes,
        Field::PrivateCleanBytes,
        Field::PrivateDirtyBytes,
    ];
    now.expect(
        &then,
        &format!("{source}: of a file"),
        &[(Field::RollupRssBytes, FROM_FILE)],
        &kinds,
    )?;
    let sum = |fields: &[Field]| fields.iter().filter_map(|&field| now.growth(&then, field)).sum::<i64>();
    let (clean, dirty_ones) = (
        sum(&[Field::PrivateCleanBytes, Field::SharedCleanBytes]),
        sum(&[Field::PrivateDirtyBytes]),
    );
    if clean + dirty_ones != FROM_FILE {
        return Err(format!("{clean} bytes are clean and {dirty_ones} dirty"));
    }
    // Other processes that map the libraries start and end. Their share is small.
    for fields in [
        &[Field::UssBytes][..],
        &[Field::PssBytes],
        &[Field::PssFileBytes, Field::PssShmemBytes],
    ] {
        let growth = sum(fields);
        assert!((growth - FROM_FILE).abs() <= 256 * KIB, "{source}: {fields:?} {growth}");
    }

    let (then, now) = step(&mut fixture, b'l').expect("memory");
    now.expect(&then, &format!("{source}: private again"), &dirty(LAZY), &[])?;
    let (then, now) = step(&mut fixture, b'L').expect("MADV_FREE");
    let lazy = now
        .growth(&then, Field::LazyfreeBytes)
        .expect("LazyFree is as old as the rollup");
    // The kernel marks the last pages later: at most 31 for each processor.
    let waiting = 31 * page_size() * std::thread::available_parallelism().map_or(1, |count| count.get() as i64);
    assert!(
        (LAZY - waiting..=LAZY).contains(&lazy),
        "{source}: {lazy} bytes are lazily freed"
    );
    println!("{source}: lazily freed: {lazy}");

    let huge = HugePages::add(1);
    match huge.as_ref().map(|_| step(&mut fixture, b'h')) {
        Ok(Ok((then, now))) => {
            let growths = [(Field::PrivateHugetlbBytes, HUGE)];
            // These may be marked by now.
            now.expect(&then, &format!("{source}: hugetlb"), &growths, &[Field::LazyfreeBytes])?;
        }
        Ok(Err(error)) => println!("{source}: not on this host: hugetlb: {error}"),
        Err(error) => println!("{source}: not on this host: hugetlb: {error}"),
    }
    Ok(())
}

/// Check that swapped-out memory is in the swap sizes and in no others, if swap can be turned on.
#[test]
fn swapped_memory_counts_as_swapped() {
    if child::part().is_some() {
        return live(&File::open("/proc/self/exe").expect("this program"));
    }
    let swap = match Swap::on() {
        Ok(swap) => swap,
        Err(why) => return println!("not on this host: swap: {why}"),
    };
    let test = test_name!();
    quietly(|| {
        SOURCES
            .into_iter()
            .try_for_each(|source| swap_and_compare(source, test, &swap.place))
    });
}

fn swap_and_compare(source: SourceId, test: &str, place: &str) -> Result<(), String> {
    let mut handle = taskdiag_testkit::handle(source);
    let mut fixture = Fixture::start(test);
    let pid = fixture.pid();
    fixture.tell(b'p').expect("memory");
    let before = Sizes::of(&mut handle, pid);
    let mut swapped = 0;
    let mut after = Sizes::of(&mut handle, pid);
    // Pages in per-processor lists are skipped. The next attempt swaps them out.
    for _ in 0..50 {
        if let Err(error) = fixture.tell(b'o') {
            println!("not on this host: MADV_PAGEOUT came with Linux 5.4: {error}");
            return Ok(());
        }
        after = Sizes::of(&mut handle, pid);
        swapped = after.growth(&before, Field::RollupSwapBytes).expect("Swap");
        if swapped == PRIVATE {
            break;
        }
    }
    println!("{source}: {swapped} of {PRIVATE} bytes swapped out, to {}", place);
    assert!(swapped > PRIVATE / 2, "{source}: only {swapped} bytes were swapped out");
    let gone = [
        Field::RollupRssBytes,
        Field::PssBytes,
        Field::PssAnonBytes,
        Field::AnonymousBytes,
    ];
    let mut growths: Vec<(Field, i64)> = gone.map(|field| (field, -swapped)).to_vec();
    growths.extend([(Field::RollupSwapBytes, swapped), (Field::SwapPssBytes, swapped)]);
    // A page that was written to swap but is still in memory is clean.
    let kinds = [
        Field::PssDirtyBytes,
        Field::PrivateDirtyBytes,
        Field::PrivateCleanBytes,
        Field::UssBytes,
    ];
    after.expect(&before, &format!("{source}: swapped"), &growths, &kinds)?;
    let sums = [
        Field::PrivateDirtyBytes,
        Field::PrivateCleanBytes,
        Field::SharedCleanBytes,
    ];
    let sum: i64 = sums.iter().filter_map(|&field| after.growth(&before, field)).sum();
    if sum == -swapped {
        Ok(())
    } else {
        Err(format!("{sum} bytes more are private"))
    }
}

/// Swap that was turned on for a test.
struct Swap {
    place: String,
    undo: Undo,
}

enum Undo {
    Nothing,
    Zram,
    File,
}

impl Swap {
    const BYTES: usize = 64 << 20;

    /// Adds swap: on a compressed memory device, or in a file.
    fn on() -> Result<Swap, String> {
        let swaps = fs::read_to_string("/proc/swaps").map_err(|error| format!("/proc/swaps: {error}"))?;
        if let Some(line) = swaps.lines().nth(1) {
            return Ok(Swap {
                place: line.to_owned(),
                undo: Undo::Nothing,
            });
        }
        Swap::on_zram().or_else(|zram| Swap::in_file().map_err(|file| format!("{zram}; {file}")))
    }

    fn on_zram() -> Result<Swap, String> {
        let said = |path: &str, error: std::io::Error| format!("{path}: {error}");
        let size = fs::read_to_string("/sys/block/zram0/disksize").map_err(|error| said("zram0", error))?;
        if size.trim() != "0" {
            return Err("zram0 is in use".to_owned());
        }
        fs::write("/sys/block/zram0/disksize", Swap::BYTES.to_string()).map_err(|error| said("zram0", error))?;
        let mut swap = Swap {
            place: "/dev/zram0".to_owned(),
            undo: Undo::Zram,
        };
        if !std::path::Path::new(&swap.place).exists() {
            swap.place = std::env::temp_dir().join("taskdiag-zram0").display().to_string();
            let numbers = fs::read_to_string("/sys/block/zram0/dev").map_err(|error| said("zram0", error))?;
            let (major, minor) = numbers.trim().split_once(':').ok_or("zram0 has no number")?;
            let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
            let device = libc::makedev(number(major)?, number(minor)?);
            let path = std::ffi::CString::new(swap.place.clone()).map_err(|error| error.to_string())?;
            // SAFETY: the path ends with a NUL.
            if unsafe { libc::mknod(path.as_ptr(), libc::S_IFBLK | 0o600, device) } != 0 {
                return Err(said("mknod", std::io::Error::last_os_error()));
            }
        }
        swap.turn_on()?;
        Ok(swap)
    }

    fn in_file() -> Result<Swap, String> {
        let path = std::env::temp_dir().join(format!("taskdiag-swap-{}", std::process::id()));
        fs::write(&path, vec![0; Swap::BYTES]).map_err(|error| format!("{}: {error}", path.display()))?;
        let swap = Swap {
            place: path.display().to_string(),
            undo: Undo::File,
        };
        swap.turn_on()?;
        Ok(swap)
    }

    /// Writes what mkswap(8) writes, and turns the swap on.
    fn turn_on(&self) -> Result<(), String> {
        let said = |what: &str| format!("{what} {}: {}", self.place, std::io::Error::last_os_error());
        let mut head = vec![0; page_size() as usize];
        head[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
        head[1028..1032].copy_from_slice(&((Swap::BYTES / page_size() as usize - 1) as u32).to_ne_bytes());
        head[4086..].copy_from_slice(b"SWAPSPACE2");
        let mut file = fs::OpenOptions::new()
            .write(true)
            .open(&self.place)
            .map_err(|error| format!("{}: {error}", self.place))?;
        file.write_all(&head)
            .and_then(|()| file.sync_all())
            .map_err(|error| format!("{}: {error}", self.place))?;
        let path = std::ffi::CString::new(self.place.clone()).map_err(|error| error.to_string())?;
        // SAFETY: the path ends with a NUL.
        match unsafe { libc::swapon(path.as_ptr(), 0) } {
            0 => Ok(()),
            _ => Err(said("swapon")),
        }
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        if let Undo::Nothing = self.undo {
            return;
        }
        if let Ok(path) = std::ffi::CString::new(self.place.clone()) {
            // SAFETY: the path ends with a NUL.
            unsafe { libc::swapoff(path.as_ptr()) };
        }
        if let Undo::Zram = self.undo {
            let _ = fs::write("/sys/block/zram0/reset", "1");
        }
        if !self.place.starts_with("/dev/") {
            let _ = fs::remove_file(&self.place);
        }
    }
}
