//! Names of terminals.

use std::collections::HashMap;
use std::path::Path;

use rustix::fs::FileType;
use taskdiag_core::absent::Absent;
use taskdiag_core::text::terminals;
use taskdiag_sys::host::proc_file;

/// Finds the names of terminals by their device numbers, as ps(1) does: the kernel reports which
/// driver has the number, and `/dev` must have a file of that name and number. Unlike ps, it does
/// not look at the open files of the process.
#[derive(Debug, Default)]
pub(super) struct Terminals {
    /// The text of `/proc/tty/drivers`.
    drivers: Option<Vec<u8>>,
    names: HashMap<u32, Vec<u8>>,
}

/// The drivers of most machines, for a `/proc` that is mounted with `subset=pid`.
const USUAL_DRIVERS: &[u8] = b"\
x /dev/console 5 1
x /dev/tty 4 0-63
x /dev/ttyS 4 64-255
x /dev/pts 136 0-1048575
";

impl Terminals {
    /// Forgets names: pseudo-terminals come and go.
    pub(super) fn clear(&mut self) {
        self.names.clear();
    }

    /// Looks up a terminal, unless it is known.
    pub(super) fn learn(&mut self, device: u32) {
        if device == 0 || self.names.contains_key(&device) {
            return;
        }
        let drivers = self
            .drivers
            .get_or_insert_with(|| std::fs::read(proc_file("tty/drivers")).unwrap_or_else(|_| USUAL_DRIVERS.to_vec()));
        if let Some(name) = find(drivers, device) {
            self.names.insert(device, name);
        }
    }

    /// The name of a terminal. [`Absent::Gone`] if no file in `/dev` has its number: it belongs to
    /// another container, or to a driver that was removed.
    pub(super) fn name(&self, device: u32) -> Result<&[u8], Absent> {
        self.names.get(&device).map(Vec::as_slice).ok_or(Absent::Gone)
    }
}

fn find(drivers: &[u8], device: u32) -> Option<Vec<u8>> {
    // The encoding of proc_pid_stat(5).
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let mut found = None;
    terminals::names(drivers, major, minor, |name| {
        let Ok(text) = std::str::from_utf8(name) else {
            return false;
        };
        let is_it = rustix::fs::stat(Path::new("/dev").join(text)).is_ok_and(|file| {
            let number = file.st_rdev;
            FileType::from_raw_mode(file.st_mode) == FileType::CharacterDevice
                && (rustix::fs::major(number), rustix::fs::minor(number)) == (major, minor)
        });
        if is_it {
            found = Some(name.to_vec());
        }
        is_it
    });
    found
}
