//! User and group ids as a user namespace shows them. No I/O.

/// How a namespace shows an id that it does not map: the default of `/proc/sys/kernel/overflowuid`
/// and `overflowgid`.
const OVERFLOW: u32 = 65534;

/// The id map of a user namespace: `/proc/PID/uid_map` or `gid_map`, read in the initial namespace
/// (user_namespaces(7)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct IdMap {
    /// First id inside, first id outside, length. `None`: ids are the same inside and outside.
    extents: Option<Vec<[u32; 3]>>,
}

impl IdMap {
    /// Parses the text of the file. `None` if a line is not three numbers.
    pub fn parse(text: &str) -> Option<IdMap> {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace().map(|word| word.parse().ok());
            let extent = [words.next()??, words.next()??, words.next()??];
            words.next().is_none().then_some(extent)
        };
        let extents = text.lines().map(line).collect::<Option<Vec<_>>>()?;
        Some(IdMap { extents: Some(extents) })
    }

    /// Whether all ids are the same inside and outside.
    pub fn is_identity(&self) -> bool {
        self.extents.is_none()
    }

    /// Whether the file can't change any more: a map is empty until it is written, and is written
    /// only once.
    pub fn is_written(&self) -> bool {
        self.extents.as_ref().is_some_and(|extents| !extents.is_empty())
    }

    /// Translates an id outside to the id inside, if it is mapped.
    pub fn get(&self, id: u32) -> Option<u32> {
        let Some(extents) = &self.extents else {
            return Some(id);
        };
        extents.iter().find_map(|&[inside, outside, count]| {
            let offset = id.checked_sub(outside).filter(|&offset| offset < count)?;
            inside.checked_add(offset)
        })
    }

    /// The id inside, or the overflow id, as the kernel's `from_kuid_munged()` returns.
    pub fn munged(&self, id: u32) -> u32 {
        self.get(id).unwrap_or(OVERFLOW)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Check ids in each extent of a map, ids that are not mapped, and invalid text.
    #[test]
    fn ids_are_mapped() {
        let map = IdMap::parse("         0       1000          1\n         1     100000      65536\n").unwrap();
        assert_eq!(map.get(1000), Some(0));
        assert_eq!(map.get(100_000), Some(1));
        assert_eq!(map.get(165_535), Some(65_536));
        assert_eq!(map.get(165_536), None);
        assert_eq!(map.munged(0), 65_534);
        assert_eq!(IdMap::default().munged(7), 7);
        assert_eq!(IdMap::parse("").unwrap().get(0), None);
        assert_eq!(IdMap::parse("0 1"), None);
    }

    proptest! {
        /// Check that no text causes a panic.
        #[test]
        fn any_text_is_parsed(text: String, id: u32) {
            if let Some(map) = IdMap::parse(&text) {
                map.munged(id);
            }
        }

        /// Check that no numbers cause a panic, including those at the ends of the range.
        #[test]
        fn any_map_is_applied(extent: [u32; 3], id: u32) {
            let map = IdMap::parse(&format!("{} {} {}", extent[0], extent[1], extent[2])).unwrap();
            map.munged(id);
        }
    }
}
