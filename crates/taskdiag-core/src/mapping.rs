//! What the kernel says of a mapping.

use std::fmt;

use bitflags::bitflags;

bitflags! {
    /// What a mapping allows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Perms: u8 {
        /// To read.
        const READ = 1;
        /// To write.
        const WRITE = 2;
        /// To execute.
        const EXEC = 4;
        /// Changes are seen by others who map the same.
        const SHARED = 8;
    }
}

impl Perms {
    /// From the four letters of the text.
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
}

/// Four letters as in the text: `r-xp`.
impl fmt::Display for Perms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |flag, yes, no| if self.contains(flag) { yes } else { no };
        write!(
            f,
            "{}{}{}{}",
            letter(Perms::READ, 'r', '-'),
            letter(Perms::WRITE, 'w', '-'),
            letter(Perms::EXEC, 'x', '-'),
            letter(Perms::SHARED, 's', 'p'),
        )
    }
}

/// The device of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Its major number.
    pub major: u32,
    /// Its minor number.
    pub minor: u32,
}

impl Device {
    /// From the form that stat(2) has.
    pub fn from_raw(device: u64) -> Device {
        Device {
            major: libc::major(device),
            minor: libc::minor(device),
        }
    }

    /// In the form that stat(2) has.
    pub fn to_raw(self) -> u64 {
        libc::makedev(self.major, self.minor)
    }
}

/// How much of a mapping is in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident.
    pub rss_bytes: u64,
    /// Resident and changed since it was read from its file, or of no file and written to.
    pub dirty_bytes: u64,
}
