//! Lists of file names.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// Longer than any path that the kernel accepts: a list that is separated by NULs has one within
/// this many bytes.
const LOOK: usize = 8 << 10;

/// The names in a list. Each is ended by a NUL if the list contains one, else by a newline. Empty
/// names are skipped. Only a piece of the list is in memory at a time.
pub struct Names<R> {
    input: R,
    buffer: Vec<u8>,
    /// How much of the buffer has been returned.
    used: usize,
    separator: Option<u8>,
    ended: bool,
}

impl<R: Read> Names<R> {
    /// The names in `input`.
    pub fn new(input: R) -> Names<R> {
        Names {
            input,
            buffer: Vec::new(),
            used: 0,
            separator: None,
            ended: false,
        }
    }

    fn read(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.used);
        self.used = 0;
        let read = (&mut self.input).take(LOOK as u64).read_to_end(&mut self.buffer)?;
        self.ended = read < LOOK;
        Ok(())
    }

    fn next_name(&mut self) -> io::Result<Option<PathBuf>> {
        loop {
            if self.separator.is_none() {
                self.read()?;
                let has_nul = self.buffer.contains(&0);
                self.separator = Some(if has_nul { 0 } else { b'\n' });
            }
            let rest = &self.buffer[self.used..];
            let end = rest.iter().position(|&byte| Some(byte) == self.separator);
            let name = match end {
                Some(end) => {
                    self.used += end + 1;
                    &rest[..end]
                }
                None if self.ended => {
                    self.used = self.buffer.len();
                    rest
                }
                None => {
                    self.read()?;
                    continue;
                }
            };
            if !name.is_empty() {
                return Ok(Some(OsString::from_vec(name.to_vec()).into()));
            }
            if self.ended && self.used == self.buffer.len() {
                return Ok(None);
            }
        }
    }
}

impl<R: Read> Iterator for Names<R> {
    type Item = io::Result<PathBuf>;

    fn next(&mut self) -> Option<io::Result<PathBuf>> {
        self.next_name().transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use proptest::prelude::*;

    use super::*;

    fn names(list: &[u8]) -> Vec<Vec<u8>> {
        Names::new(list)
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
