//! The names of maps and programs of bpf(2).

use std::collections::hash_map::{Entry, HashMap};

use rustix::io::Errno;
use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::open_file::members;
use taskdiag_sys::bpf::ObjectId;

use super::procfs::absent;
use crate::source::procfs::is_exhausted;

/// The names of a pass. Each object is asked once.
#[derive(Debug, Default)]
pub(super) struct BpfNames(HashMap<ObjectId, Known<Vec<u8>>>);

impl BpfNames {
    /// The name of the object with these lines of `fdinfo`, if it has one. Fails if this process
    /// ran out of a resource.
    pub(super) fn of_object(&mut self, detail: Known<Option<&[u8]>>) -> Result<Known<Option<&[u8]>>, Errno> {
        let id = match detail {
            Ok(detail) => detail.and_then(object_id),
            Err(reason) => return Ok(Err(reason)),
        };
        let Some(id) = id else { return Ok(Ok(None)) };
        let name = match self.0.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => match id.name().map_err(|error| Errno::from_io_error(&error)) {
                Err(Some(errno)) if is_exhausted(errno) => return Err(errno),
                Err(errno) => vacant.insert(Err(errno.map_or(Absent::Unsupported, absent))),
                Ok(name) => vacant.insert(Ok(name)),
            },
        };
        Ok(name
            .as_deref()
            .map(|name| Some(name).filter(|name| !name.is_empty()))
            .map_err(|reason| *reason))
    }
}

/// The map or program that these lines describe. Those of a link have the number of its program,
/// too.
fn object_id(detail: &[u8]) -> Option<ObjectId> {
    let id = |key: &[u8]| {
        let (_, digits) = members(detail).find(|member| member.0 == key)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    members(detail).find_map(|(key, _)| match key {
        b"map_type" => id(b"map_id").map(ObjectId::Map),
        b"prog_type" => id(b"prog_id").map(ObjectId::Program),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that maps and programs have numbers, and that links and other files have none.
    #[test]
    fn maps_and_programs_have_numbers() {
        for (detail, expected) in [
            (
                "map_type:\t2\nkey_size:\t4\nmap_id:\t7\nfrozen:\t0\n",
                Some(ObjectId::Map(7)),
            ),
            (
                "lock:\t1: FLOCK\nprog_type:\t1\nprog_id:\t9\n",
                Some(ObjectId::Program(9)),
            ),
            ("link_type:\ttracing\nlink_id:\t3\nprog_id:\t9\n", None),
            ("map_type:\t2\n", None),
            ("map_type:\t2\nmap_id:\t4294967296\n", None),
            ("eventfd-count: 1\n", None),
            ("", None),
        ] {
            assert_eq!(object_id(detail.as_bytes()), expected, "{detail}");
        }
    }
}
