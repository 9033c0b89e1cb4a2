//! User and group ids as a client's user namespace has them. Pure.

/// `/proc/sys/kernel/overflowuid`: what stands for an id that a namespace has none for. Also the kernel's default for groups.
const OVERFLOW: u32 = 65534;

/// The map of a user namespace, from `/proc/PID/uid_map` or `gid_map` as the initial namespace sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct IdMap {
    /// First id inside, first outside, how many. None: ids are what they are.
    extents: Option<Vec<[u32; 3]>>,
}

impl IdMap {
    /// What a text says; `None` if it makes no sense.
    pub fn parse(text: &str) -> Option<IdMap> {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace().map(|word| word.parse().ok());
            let extent = [words.next()??, words.next()??, words.next()??];
            words.next().is_none().then_some(extent)
        };
        let extents = text.lines().map(line).collect::<Option<Vec<_>>>()?;
        Some(IdMap { extents: Some(extents) })
    }

    /// Whether ids are what they are.
    pub fn is_identity(&self) -> bool {
        self.extents.is_none()
    }

    /// An id inside, if it has one.
    pub fn get(&self, id: u32) -> Option<u32> {
        let Some(extents) = &self.extents else {
            return Some(id);
        };
        extents.iter().find_map(|&[inside, outside, count]| {
            let offset = id.checked_sub(outside).filter(|&offset| offset < count)?;
            inside.checked_add(offset)
        })
    }

    /// An id inside, or what stands for one that is not there: `from_kuid_munged()`.
    pub fn munged(&self, id: u32) -> u32 {
        self.get(id).unwrap_or(OVERFLOW)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Check the two ways of a map: through its parts, and to the overflow id.
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
        /// Check that any text is survived.
        #[test]
        fn any_text_is_survived(text: String, id: u32) {
            if let Some(map) = IdMap::parse(&text) {
                map.munged(id);
            }
        }

        /// Check that ids at the ends of the range are.
        #[test]
        fn any_map_is_survived(extent: [u32; 3], id: u32) {
            let map = IdMap::parse(&format!("{} {} {}", extent[0], extent[1], extent[2])).unwrap();
            map.munged(id);
        }
    }
}
