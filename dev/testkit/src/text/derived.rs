//! Derived fields, according to the text.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

use rustix::time::{clock_gettime, ClockId};
use taskdiag::{Absent, Field};

use super::{Plain, Said, Side, Text, TICK_NS};

impl Text {
    /// The value of a derived field according to the text.
    pub(super) fn says_derived(&self, field: Field) -> Said {
        match field {
            Field::User => Ok(named("/etc/passwd", self.words("Uid")?[1])),
            Field::Group => Ok(named("/etc/group", self.words("Gid")?[1])),
            Field::CpuPercent => {
                let elapsed_ns = (self.read_ns - self.start_ns()).max(1);
                Ok(Plain::Number(self.used_ns()? * 100_000 / elapsed_ns))
            }
            Field::MemPercent => match self.memory("VmRSS")? {
                Plain::Number(bytes) => Ok(Plain::Number((bytes * 100_000 + memory_bytes() / 2) / memory_bytes())),
                other => panic!("VmRSS is {other:?}"),
            },
            // The start is known only in ticks.
            Field::ElapsedNs => match self.side {
                Side::Before => Ok(Plain::Number(self.read_ns - self.start_ns() - i128::from(TICK_NS))),
                Side::After => Ok(Plain::Number(self.read_ns - self.start_ns())),
            },
            Field::StartTime => {
                let started_ns = clock_ns(ClockId::Realtime) - since_boot_ns() + self.start_ns();
                Ok(Plain::Number(started_ns.div_euclid(1_000_000_000)))
            }
            Field::Stat => self.letters(),
            Field::Tty => terminal(self.stat(7)? as u32),
            Field::Unit => self.unit(0),
            Field::UserUnit => self.unit(1),
            Field::Slice => self.unit(2),
            Field::ContainerId | Field::ContainerName | Field::ContainerRuntime | Field::PodUid => self.container(),
            field => panic!("{field} is not derived"),
        }
    }

    fn start_ns(&self) -> i128 {
        i128::from(self.start_ticks()) * i128::from(TICK_NS)
    }

    fn used_ns(&self) -> Result<i128, Absent> {
        Ok((self.stat(14)? + self.stat(15)?) * i128::from(TICK_NS))
    }

    /// The column STAT of ps(1).
    fn letters(&self) -> Said {
        let mut letters = self.word(3)?.to_owned();
        let nice = self.stat(19)?;
        letters.push_str(if nice < 0 { "<" } else { "" });
        letters.push_str(if nice > 0 { "N" } else { "" });
        let locked = self.shared().line("VmLck")?.is_some_and(|line| line.trim() != "0 kB");
        letters.push_str(if locked { "L" } else { "" });
        letters.push_str(if self.words("Tgid")? == [self.word(6)?] {
            "s"
        } else {
            ""
        });
        letters.push_str(if self.stat(20)? > 1 { "l" } else { "" });
        letters.push_str(if self.stat(5)? == self.stat(8)? { "+" } else { "" });
        Ok(Plain::Bytes(letters.into_bytes()))
    }

    /// The paths of the unified hierarchy, of systemd's, and of all others.
    fn cgroup_paths(&self) -> Result<Vec<&str>, Absent> {
        let text = std::str::from_utf8(self.file("cgroup")?).expect("the path of a cgroup is ASCII");
        let mut paths: Vec<(&str, &str)> = text
            .lines()
            .map(|line| {
                line.split_once(':')
                    .and_then(|(_, rest)| rest.split_once(':'))
                    .expect("three parts")
            })
            .collect();
        paths.sort_by_key(|(list, _)| match *list {
            "" => 0,
            "name=systemd" => 1,
            _ => 2,
        });
        Ok(paths.into_iter().map(|(_, path)| path).collect())
    }

    /// The unit, the user's unit and the slice, each from the first path that has one.
    fn units(&self) -> Result<[Vec<u8>; 3], Absent> {
        let mut found = [const { Vec::new() }; 3];
        for path in self.cgroup_paths()? {
            for (found, here) in found.iter_mut().zip(units_of(path)) {
                if found.is_empty() {
                    *found = here;
                }
            }
        }
        if found[2].is_empty() {
            found[2] = b"-.slice".to_vec();
        }
        Ok(found)
    }

    /// One of [`units`](Text::units).
    fn unit(&self, index: usize) -> Said {
        let units = self.units()?;
        Ok(Plain::Bytes(units[index].clone()))
    }

    /// These tests run nothing in a separate container.
    fn container(&self) -> Said {
        let is_id = |name: &str| name.len() >= 64 && name.bytes().rev().take(64).all(|byte| byte.is_ascii_hexdigit());
        for path in self.cgroup_paths()? {
            assert!(!path.split(['/', '.']).any(is_id), "a container: {path}");
        }
        Ok(Plain::Bytes(Vec::new()))
    }
}

/// The unit, the user's unit and the slice, from a path made by systemd.
fn units_of(path: &str) -> [Vec<u8>; 3] {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let is_unit = |name: &&str| {
        [".service", ".scope", ".mount", ".socket", ".swap"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let names: Vec<&str> = path
        .split('/')
        .filter(|name| !name.is_empty() && *name != "..")
        .collect();
    let slices = names.iter().take_while(|name| name.ends_with(".slice")).count();
    let slice = names[..slices].last().copied().unwrap_or_default();
    let unit = names.get(slices).copied().filter(is_unit).unwrap_or_default();
    let is_manager = unit.starts_with("user@") || unit.starts_with("session-");
    let mut behind = names
        .iter()
        .skip(slices + 1)
        .skip_while(|name| name.ends_with(".slice"));
    let user_unit = behind
        .next()
        .copied()
        .filter(|name| is_manager && is_unit(name))
        .unwrap_or_default();
    [unit, user_unit, slice].map(Vec::from)
}

/// The possible values of [`Field::CpuPercent`] between two texts, in thousandths. Each time in
/// ticks is rounded down.
pub fn possible_cpu_percent(before: &Text, after: &Text) -> std::ops::RangeInclusive<i128> {
    let tick_ns = i128::from(TICK_NS);
    let used = |text: &Text| text.used_ns().expect("stat can be read");
    let longest_ns = (after.read_ns - after.start_ns()).max(1);
    let least = used(before) * 100_000 / longest_ns - 1;
    let most = match before.read_ns - before.start_ns() - tick_ns {
        shortest_ns @ 1.. => (used(after) + 2 * tick_ns) * 100_000 / shortest_ns + 1,
        _ => i128::MAX,
    };
    least..=most
}

fn clock_ns(clock: ClockId) -> i128 {
    let now = clock_gettime(clock);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

pub fn since_boot_ns() -> i128 {
    clock_ns(ClockId::Boottime)
}

fn memory_bytes() -> i128 {
    // SAFETY: no pointers.
    let [pages, size] = [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| unsafe { libc::sysconf(name) });
    i128::from(pages) * i128::from(size)
}

/// The name of an id in a file such as `/etc/passwd`; the id if it has none.
fn named(file: &str, id: &str) -> Plain {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.split(':').nth(2) == Some(id));
    let name = line.and_then(|line| line.split(':').next()).unwrap_or(id);
    Plain::Bytes(name.into())
}

/// The terminal with a device number: the file in `/dev` that has it.
fn terminal(device: u32) -> Said {
    use std::os::unix::fs::FileTypeExt as _;

    if device == 0 {
        return Ok(Plain::Bytes(Vec::new()));
    }
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    for directory in ["", "pts/"] {
        for entry in fs::read_dir(format!("/dev/{directory}"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.file_type().is_char_device() && metadata.rdev() == libc::makedev(major, minor) {
                let name = [directory.as_bytes(), entry.file_name().as_bytes()].concat();
                return Ok(Plain::Bytes(name));
            }
        }
    }
    Err(Absent::Gone)
}

/// The seconds since 1970 of a time such as `2026-11-23T03:12:05Z`.
pub(super) fn seconds(time: &[u8]) -> i128 {
    let text = std::str::from_utf8(time).expect("ASCII");
    assert!(
        text.len() == 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T',
        "{text}"
    );
    let number = |range| {
        text.get(range)
            .and_then(|digits: &str| digits.parse::<i128>().ok())
            .expect("digits")
    };
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let is_leap = |year: i128| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let of_years: i128 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let lengths = [
        31,
        if is_leap(year) { 29 } else { 28 },
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let of_months: i128 = lengths[..month as usize - 1].iter().sum();
    let days = of_years + of_months + day - 1;
    ((days * 24 + number(11..13)) * 60 + number(14..16)) * 60 + number(17..19)
}
