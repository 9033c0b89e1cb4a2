//! Values that are more than a number: all borrow from the snapshot.

use std::fmt;

use zerocopy::FromBytes;

use crate::field::Mask;
use crate::record::Limit;

/// A value of any field.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Flag(bool),
    Letter(char),
    Mask(u64),
    Text(&'a [u8]),
    Texts(Arguments<'a>),
    Ids(Ids<'a>),
    Cpus(CpuSet<'a>),
    Limits(Limits<'a>),
}

macro_rules! from {
    ($($ty:ty => $variant:ident($value:ident) $make:expr;)*) => { $(
        impl<'a> From<$ty> for Value<'a> {
            fn from($value: $ty) -> Value<'a> {
                Value::$variant($make)
            }
        }
    )* };
}

from! {
    u32 => Unsigned(v) v.into();
    u64 => Unsigned(v) v;
    i32 => Signed(v) v.into();
    bool => Flag(v) v;
    char => Letter(v) v;
    Mask => Mask(v) v.0;
    &'a [u8] => Text(v) v;
    Arguments<'a> => Texts(v) v;
    Ids<'a> => Ids(v) v;
    CpuSet<'a> => Cpus(v) v;
    Limits<'a> => Limits(v) v;
}

/// A command line or an environment: byte strings, as the process left them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// The arguments in the bytes of `/proc/PID/cmdline` or `environ`, each ended by a NUL; the last NUL may be missing.
    pub fn new(bytes: &'a [u8]) -> Arguments<'a> {
        Arguments { bytes }
    }

    /// The bytes as the kernel gives them.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The arguments one by one.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + Clone {
        let text = self.bytes.strip_suffix(b"\0").unwrap_or(self.bytes);
        let limit = if self.bytes.is_empty() { 0 } else { usize::MAX };
        text.split(|&byte| byte == 0).take(limit)
    }
}

/// A list of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids<'a> {
    bytes: &'a [u8],
}

impl<'a> Ids<'a> {
    /// The ids in an array of `u32` in host byte order.
    #[doc(hidden)]
    pub fn new(bytes: &'a [u8]) -> Ids<'a> {
        Ids { bytes }
    }

    /// The ids one by one.
    pub fn iter(&self) -> impl Iterator<Item = u32> + 'a {
        self.bytes
            .chunks_exact(4)
            .map(|id| u32::from_ne_bytes(id.try_into().expect("chunks of four")))
    }
}

/// The resource limits of getrlimit(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits<'a> {
    bytes: &'a [u8],
}

impl<'a> Limits<'a> {
    /// Their names, by the numbers of `RLIMIT_CPU` to `RLIMIT_RTTIME`. `data`, `stack`, `core`, `rss`, `memlock`, `as`, `fsize`
    /// and `msgqueue` are in bytes, `cpu` in seconds, `rttime` in microseconds; the others are counts.
    pub const NAMES: [&'static str; crate::record::LIMITS] = [
        "cpu",
        "fsize",
        "data",
        "stack",
        "core",
        "rss",
        "nproc",
        "nofile",
        "memlock",
        "as",
        "locks",
        "sigpending",
        "msgqueue",
        "nice",
        "rtprio",
        "rttime",
    ];

    /// The limits in an array of `struct rlimit`, all ones being no limit.
    #[doc(hidden)]
    pub fn new(bytes: &'a [u8]) -> Limits<'a> {
        Limits { bytes }
    }

    /// Name, soft and hard limit, one by one; `None` is unlimited.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Option<u64>, Option<u64>)> + 'a {
        let limits = <[Limit]>::ref_from_prefix_with_elems(self.bytes, self.bytes.len() / size_of::<Limit>());
        let limits = limits.map_or(&[][..], |(limits, _)| limits);
        let value = |value: u64| (value != u64::MAX).then_some(value);
        let named = Limits::NAMES.into_iter().zip(limits);
        named.map(move |(name, limit)| (name, value(limit.soft.get()), value(limit.hard.get())))
    }
}

/// Displays like `nofile=1024:524288`, with commas between limits.
impl fmt::Display for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |f: &mut fmt::Formatter<'_>, value: Option<u64>| match value {
            Some(value) => write!(f, "{value}"),
            None => f.write_str("unlimited"),
        };
        for (index, (name, soft, hard)) in self.iter().enumerate() {
            write!(f, "{}{name}=", if index > 0 { "," } else { "" })?;
            write(f, soft)?;
            f.write_str(":")?;
            write(f, hard)?;
        }
        Ok(())
    }
}

/// A set of processors. Displays like the kernel's lists: `0-3,7`.
#[derive(Clone, Copy, Debug)]
pub struct CpuSet<'a> {
    mask: &'a [u8],
}

impl<'a> CpuSet<'a> {
    /// The set in an array of `u64` in host byte order, processor 0 being the lowest bit of the first.
    #[doc(hidden)]
    pub fn new(mask: &'a [u8]) -> CpuSet<'a> {
        CpuSet { mask }
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.word(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 != 0)
    }

    /// The processors one by one.
    pub fn iter(self) -> impl Iterator<Item = usize> + 'a {
        (0..self.mask.len() / 8 * 64).filter(move |&cpu| self.contains(cpu))
    }

    fn word(&self, index: usize) -> Option<u64> {
        let word = self.mask.get(index * 8..index * 8 + 8)?;
        Some(u64::from_ne_bytes(word.try_into().ok()?))
    }
}

/// Sets are equal that have the same processors in them, however long their masks are.
impl PartialEq for CpuSet<'_> {
    fn eq(&self, other: &CpuSet<'_>) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Display for CpuSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?
            } else {
                write!(f, "{separator}{first}-{last}")?
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that command lines divide as the kernel joined them, with and without the last NUL.
    #[test]
    fn arguments_divide_at_nuls() {
        let split = |bytes: &'static [u8]| Arguments::new(bytes).iter().collect::<Vec<_>>();
        assert_eq!(split(b""), Vec::<&[u8]>::new());
        assert_eq!(split(b"\0"), [b""]);
        assert_eq!(split(b"a\0b\0"), [b"a", b"b"]);
        assert_eq!(split(b"a\0\0"), [b"a".as_slice(), b""]);
        assert_eq!(split(b"title"), [b"title"]);
    }

    /// Check that processor sets print as the kernel's lists do.
    #[test]
    fn processor_sets_print_as_lists() {
        let text = |words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            CpuSet::new(&bytes).to_string()
        };
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[0b1]), "0");
        assert_eq!(text(&[0b1000_1111]), "0-3,7");
        assert_eq!(text(&[1 << 63, 1]), "63-64");
    }
}
