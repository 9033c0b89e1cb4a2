//! The parts of a memory mapping's description.

use std::fmt;

use bitflags::bitflags;

bitflags! {
    /// The permissions of a mapping.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Perms: u8 {
        /// It can be read.
        const READ = 1;
        /// It can be written.
        const WRITE = 2;
        /// It can be executed.
        const EXEC = 4;
        /// It is shared (`MAP_SHARED`) rather than private.
        const SHARED = 8;
    }
}

impl Perms {
    /// Parses the four letters of `/proc/PID/maps`: `r-xp`.
    #[doc(hidden)]
    pub fn parse(letters: &[u8]) -> Option<Perms> {
        let choices = [
            (b'r', b'-', Perms::READ),
            (b'w', b'-', Perms::WRITE),
            (b'x', b'-', Perms::EXEC),
            (b's', b'p', Perms::SHARED),
        ];
        let mut perms = Perms::empty();
        for (&letter, (yes, no, flag)) in letters.iter().zip(choices) {
            match letter {
                letter if letter == yes => perms |= flag,
                letter if letter == no => {}
                _ => return None,
            }
        }
        Some(perms)
    }

    /// The four letters of `/proc/PID/maps`.
    #[doc(hidden)]
    pub fn letters(self) -> [u8; 4] {
        let letter = |flag, yes, no| if self.contains(flag) { yes } else { no };
        [
            letter(Perms::READ, b'r', b'-'),
            letter(Perms::WRITE, b'w', b'-'),
            letter(Perms::EXEC, b'x', b'-'),
            letter(Perms::SHARED, b's', b'p'),
        ]
    }
}

/// Displays the four letters of `/proc/PID/maps`: `r-xp`.
impl fmt::Display for Perms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.letters().escape_ascii().fmt(f)
    }
}

/// The device that a file is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

impl Device {
    /// Converts from the form of stat(2), `st_dev`.
    pub fn from_raw(device: u64) -> Device {
        Device {
            major: libc::major(device),
            minor: libc::minor(device),
        }
    }

    /// Converts to the form of stat(2), `st_dev`.
    pub fn to_raw(self) -> u64 {
        libc::makedev(self.major, self.minor)
    }
}

/// How much of a mapping is in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident bytes: `Rss` of smaps.
    pub rss_bytes: u64,
    /// Resident bytes that were modified: `Shared_Dirty` and `Private_Dirty` of smaps.
    pub dirty_bytes: u64,
    /// Resident pages of hugetlbfs: `Shared_Hugetlb` and `Private_Hugetlb` of smaps.
    pub hugetlb_bytes: u64,
}
