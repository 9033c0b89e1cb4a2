//! Lists of file names.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// Longer than any path that the kernel accepts: a list that is separated by NULs has one within
/// this many bytes.
const LOOK: u64 = 8 << 10;

/// The names in a list. Each is ended by a NUL if the list contains one, else by a newline. Empty
/// names are skipped. Only a piece of the list is in memory at a time.
pub fn names<R: Read>(mut input: R) -> io::Result<impl Iterator<Item = io::Result<PathBuf>>> {
    let mut head = Vec::new();
    (&mut input).take(LOOK).read_to_end(&mut head)?;
    let separator = if head.contains(&0) { 0 } else { b'\n' };
    let names = BufReader::new(io::Cursor::new(head).chain(input)).split(separator);
    let is_name = |name: &io::Result<Vec<u8>>| !name.as_ref().is_ok_and(Vec::is_empty);
    Ok(names
        .filter(is_name)
        .map(|name| name.map(|name| OsString::from_vec(name).into())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use proptest::prelude::*;

    fn names(list: &[u8]) -> Vec<Vec<u8>> {
        super::names(list)
            .expect("memory can be read")
            .map(|name| name.expect("memory can be read").as_os_str().as_bytes().to_vec())
            .collect()
    }

    /// Check both separators, with and without one at the end.
    #[test]
    fn lists_end_their_names_in_either_way() {
        assert_eq!(names(b""), Vec::<Vec<u8>>::new());
        assert_eq!(names(b"a\nb c\n\nd"), [&b"a"[..], b"b c", b"d"]);
        assert_eq!(names(b"a\nb\0\xff\0"), [&b"a\nb"[..], b"\xff"]);
        assert_eq!(names(b"a\0b"), [b"a", b"b"]);
    }

    proptest! {
        /// Check that long lists are returned completely, whatever the sizes of the reads.
        #[test]
        fn long_lists_are_whole(
            list in prop::collection::vec(prop::collection::vec(1..=255_u8, 1..3000), 0..30),
            nul in any::<bool>(),
        ) {
            let separator = if nul { 0 } else { b'\n' };
            let list: Vec<Vec<u8>> = list
                .into_iter()
                .map(|name| name.into_iter().map(|byte| if byte == separator { b'x' } else { byte }).collect())
                .collect();
            let text: Vec<u8> = list.iter().flat_map(|name| name.iter().copied().chain([separator])).collect();
            prop_assert_eq!(names(&text), list);
        }
    }
}
