//! What only `/proc` says about a client. Readers open and read these files, because that takes
//! locks that the client can hold.

use std::fs::{self, File};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use rustix::io::pread;
use zerocopy::native_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::security_modules::is_unconfined;
use super::IdMap;

/// What `/proc` says about a client.
#[derive(Debug)]
pub struct ProcFacts {
    /// The inode number of the user namespace that the maps belong to.
    pub user_ns: u32,
    /// The user ids of that namespace.
    pub users: IdMap,
    /// Its group ids.
    pub groups: IdMap,
    /// `attr/apparmor/current`. Reading it takes no lock of the client.
    label: Option<OwnedFd>,
}

/// The same as a reader sends it, before parsing.
#[derive(Debug)]
pub struct RawProcFacts {
    user_ns: u32,
    uid_map: Vec<u8>,
    gid_map: Vec<u8>,
    label: Option<File>,
}

/// The start of its message. The texts of both maps follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    user_ns: U32,
    uid_map_len: U32,
}

impl RawProcFacts {
    /// Reads the files of a process. `None` if it has ended, or changed its user namespace in
    /// between.
    pub fn read(pid: u32) -> Option<RawProcFacts> {
        let user_ns = || Some(fs::metadata(format!("/proc/{pid}/ns/user")).ok()?.ino() as u32);
        let map = |name| fs::read(format!("/proc/{pid}/{name}")).ok();
        let before = user_ns()?;
        let (uid_map, gid_map) = (map("uid_map")?, map("gid_map")?);
        let label = File::open(format!("/proc/{pid}/attr/apparmor/current")).ok();
        (user_ns()? == before).then(|| RawProcFacts {
            user_ns: before,
            uid_map,
            gid_map,
            label,
        })
    }

    /// The file that is sent with the message.
    pub fn label(&self) -> Option<BorrowedFd<'_>> {
        self.label.as_ref().map(|label| label.as_fd())
    }

    /// The message that [`ProcFacts::parse`] reads.
    pub fn encode(&self) -> Vec<u8> {
        let header = Header {
            user_ns: U32::new(self.user_ns),
            uid_map_len: U32::new(self.uid_map.len() as u32),
        };
        [header.as_bytes(), &self.uid_map, &self.gid_map].concat()
    }
}

impl ProcFacts {
    /// Parses the message of a reader. `None` if it is malformed.
    pub fn parse(bytes: &[u8], label: Option<OwnedFd>) -> Option<ProcFacts> {
        let (header, maps) = Header::ref_from_prefix(bytes).ok()?;
        let (uid_map, gid_map) = maps.split_at_checked(header.uid_map_len.get() as usize)?;
        let map = |text| IdMap::parse(std::str::from_utf8(text).ok()?);
        Some(ProcFacts {
            user_ns: header.user_ns.get(),
            users: map(uid_map)?,
            groups: map(gid_map)?,
            label,
        })
    }

    /// Whether AppArmor confines the client now, or may.
    pub fn is_confined(&self) -> bool {
        let mut text = [0; 64];
        let read = |label| pread(label, &mut text, 0).ok();
        let label = self.label.as_ref().and_then(read);
        !label.is_some_and(|len| is_unconfined(&text[..len]))
    }

    /// Whether the maps can't change as long as the client is in this user namespace.
    pub fn is_final(&self) -> bool {
        self.users.is_written() && self.groups.is_written()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn header(uid_map_len: usize) -> Vec<u8> {
        let header = Header {
            user_ns: U32::new(7),
            uid_map_len: U32::new(uid_map_len as u32),
        };
        header.as_bytes().to_vec()
    }

    /// Check that the label is read again each time, and that only the one word means unconfined.
    #[test]
    fn labels_are_read_anew() {
        let file = File::from(rustix::fs::memfd_create("label", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        let label = file.try_clone().unwrap().into();
        let facts = ProcFacts::parse(&header(0), Some(label)).unwrap();
        let long = format!("unconfined{}", "x".repeat(100));
        for (text, confined) in [
            ("unconfined\n", false),
            ("docker-default (enforce)\n", true),
            ("unconfined", false),
            ("", true),
            ("unconfined (complain)\n", true),
            (&*long, true),
        ] {
            file.set_len(0).unwrap();
            file.write_all_at(text.as_bytes(), 0).unwrap();
            assert_eq!(facts.is_confined(), confined, "{text:?}");
        }
        assert!(ProcFacts::parse(&header(0), None).unwrap().is_confined());
    }

    /// Check that maps are final once both are written.
    #[test]
    fn maps_are_final_once_written() {
        let map = "0 1000 1\n";
        for (users, groups, is_final) in [("", "", false), (map, "", false), ("", map, false), (map, map, true)] {
            let message = [&*header(users.len()), users.as_bytes(), groups.as_bytes()].concat();
            assert_eq!(ProcFacts::parse(&message, None).unwrap().is_final(), is_final);
        }
        assert!(ProcFacts::parse(&header(1), None).is_none() && ProcFacts::parse(b"1", None).is_none());
    }
}
