//! The text of `/proc/tty/drivers`: bytes in, names of terminals out.

/// Calls `try_name` with possible names under `/dev` for a terminal's device number, until it
/// returns true. First come the names that ps(1) makes from the driver's name and the minor number,
/// then names with numbers from 0 for each driver.
pub fn names(drivers: &[u8], major: u32, minor: u32, mut try_name: impl FnMut(&[u8]) -> bool) -> bool {
    let mut name = Vec::new();
    drivers.split(|&byte| byte == b'\n').any(|line| {
        let Some(driver) = driver(line).filter(|driver| driver.has(major, minor)) else {
            return false;
        };
        let mut is_name = |separator: &[u8], number: Option<u32>| {
            name.clear();
            name.extend_from_slice(driver.name);
            name.extend_from_slice(separator);
            if let Some(number) = number {
                name.extend_from_slice(number.to_string().as_bytes());
            }
            try_name(&name)
        };
        is_name(b"", Some(minor))
            || is_name(b"/", Some(minor))
            || is_name(b"", None)
            || is_name(b"", Some(minor - driver.first))
    })
}

/// A line, such as `serial /dev/ttyS 4 64-95 serial`.
struct Driver<'a> {
    name: &'a [u8],
    major: u32,
    first: u32,
    last: u32,
}

impl Driver<'_> {
    fn has(&self, major: u32, minor: u32) -> bool {
        self.major == major && (self.first..=self.last).contains(&minor)
    }
}

fn driver(line: &[u8]) -> Option<Driver<'_>> {
    let line = std::str::from_utf8(line).ok()?;
    // The driver's own name comes first and may contain spaces.
    let (_, rest) = line.split_once(" /dev/")?;
    let mut words = rest.split_ascii_whitespace();
    let name = words.next()?;
    let major = words.next()?.parse().ok()?;
    let minors = words.next()?;
    let (first, last) = minors.split_once('-').unwrap_or((minors, minors));
    Some(Driver {
        name: name.as_bytes(),
        major,
        first: first.parse().ok()?,
        last: last.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DRIVERS: &[u8] = b"\
/dev/tty             /dev/tty        5       0 system:/dev/tty
/dev/console         /dev/console    5       1 system:console
/dev/ptmx            /dev/ptmx       5       2 system
/dev/vc/0            /dev/vc/0       4       0 system:vtmaster
serial               /dev/ttyS       4 64-95 serial
pty_slave            /dev/pts      136 0-1048575 pty:slave
pty_master           /dev/ptm      128 0-1048575 pty:master
unknown              /dev/tty        4 1-63 console
";

    /// The first name that is a file, if these files exist.
    fn first(major: u32, minor: u32, files: &[&str]) -> Option<String> {
        let mut found = None;
        names(DRIVERS, major, minor, |name| {
            let name = std::str::from_utf8(name).unwrap();
            if files.contains(&name) {
                found = Some(name.to_owned());
            }
            found.is_some()
        });
        found
    }

    /// Check the names of common terminals, and that a name whose file does not exist is not taken.
    #[test]
    fn drivers_have_names() {
        for (major, minor, files, expected) in [
            (136, 3, &["pts", "pts/3"][..], Some("pts/3")),
            (4, 1, &["tty", "tty1"], Some("tty1")),
            (4, 64, &["ttyS0", "ttyS1"], Some("ttyS0")),
            (4, 65, &["ttyS0", "ttyS1"], Some("ttyS1")),
            (5, 1, &["console", "tty1"], Some("console")),
            (136, 3, &["pts/4"], None),
            (200, 3, &["pts/3"], None),
        ] {
            assert_eq!(first(major, minor, files).as_deref(), expected, "{major}:{minor}");
        }
    }

    proptest! {
        /// Check that any text can be parsed.
        #[test]
        fn any_text_is_looked_at(text in proptest::collection::vec(any::<u8>(), 0..200), major in 0..300_u32, minor: u32) {
            prop_assert!(!names(&text, major, minor, |_| false));
        }

        /// Check the same with lines that are nearly right.
        #[test]
        fn nearly_right_lines_are_looked_at(line in "[a-z ]{0,4} /dev/[a-z/]{0,4} {1,2}[0-9]{0,11} [0-9]{0,11}-?[0-9]{0,11} x?", minor: u32) {
            names(line.as_bytes(), 4, minor, |_| false);
        }
    }
}
