//! Directories with the sums of their files.

use std::collections::BTreeMap;
use std::path::Path;

use taskdiag::pagecache::Sum;

/// The sums of the directories below a path, down to some level.
pub struct Directories {
    root: Vec<u8>,
    depth: usize,
    sums: BTreeMap<Vec<u8>, Sum>,
}

impl Directories {
    /// Starts without directories. Those down to `depth` levels below `root` get rows.
    pub fn new(root: &Path, depth: usize) -> Directories {
        Directories {
            root: root.as_os_str().as_encoded_bytes().to_vec(),
            depth,
            sums: BTreeMap::new(),
        }
    }

    /// Adds the files of a directory to its row, or to the row of its nearest ancestor that has
    /// one.
    pub fn add(&mut self, path: &[u8], depth: usize, sum: Sum) {
        let mut path = path;
        for _ in self.depth..depth {
            path = above(&self.root, path);
        }
        *self.sums.entry(path.to_vec()).or_default() += sum;
    }

    /// The rows in the order of their paths, each including the directories below it.
    pub fn add_up(mut self) -> Vec<(Vec<u8>, Sum)> {
        let mut rows = Vec::with_capacity(self.sums.len());
        // Backwards: the descendants of a directory come after it.
        while let Some((path, sum)) = self.sums.pop_last() {
            if path != self.root {
                let above = above(&self.root, &path).to_vec();
                *self.sums.entry(above).or_default() += sum;
            }
            rows.push((path, sum));
        }
        rows.reverse();
        rows
    }
}

/// The path of the parent directory; for the root, the root itself.
fn above<'a>(root: &'a [u8], path: &'a [u8]) -> &'a [u8] {
    let below = &path[root.len().min(path.len())..];
    match below.iter().rposition(|&byte| byte == b'/') {
        Some(slash @ 1..) => &path[..root.len() + slash],
        _ => root,
    }
}

#[cfg(test)]
mod tests {
    use taskdiag::Absent;

    use super::*;

    fn sums(root: &str, depth: usize, directories: &[(&str, usize)]) -> Vec<(String, u64)> {
        let mut sums = Directories::new(Path::new(root), depth);
        for (path, depth) in directories {
            let mut sum = Sum::default();
            sum.add(Ok(1), Err(Absent::Denied));
            sums.add(path.as_bytes(), *depth, sum);
        }
        sums.add_up()
            .into_iter()
            .map(|(path, sum)| (String::from_utf8(path).expect("made of UTF-8"), sum.files))
            .collect()
    }

    /// Check that directories include everything below them, for several roots and levels.
    #[test]
    fn directories_add_up() {
        let tree = [("r", 0), ("r/a", 1), ("r/a.b", 1), ("r/a/c", 2), ("r/a/c/d", 3)];
        let expect = |rows: &[(&str, u64)]| {
            rows.iter()
                .map(|(path, files)| ((*path).to_owned(), *files))
                .collect::<Vec<_>>()
        };
        assert_eq!(sums("r", 0, &tree), expect(&[("r", 5)]));
        assert_eq!(sums("r", 1, &tree), expect(&[("r", 5), ("r/a", 3), ("r/a.b", 1)]));
        assert_eq!(
            sums("r", 9, &tree),
            expect(&[("r", 5), ("r/a", 3), ("r/a.b", 1), ("r/a/c", 2), ("r/a/c/d", 1)])
        );
        let tree = [("/a/b", 2), ("/", 0), ("/a", 1)];
        assert_eq!(sums("/", 1, &tree), expect(&[("/", 3), ("/a", 2)]));
        let tree = [("r/", 0), ("r/a/b", 2), ("r/a", 1)];
        assert_eq!(sums("r/", 1, &tree), expect(&[("r/", 3), ("r/a", 2)]));
    }
}
