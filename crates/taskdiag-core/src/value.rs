//! Values of fields. Values other than numbers borrow from the snapshot.

use std::fmt::{self, Write as _};
use std::iter::Zip;
use std::slice::{self, ChunksExact};

use zerocopy::FromBytes;

use crate::absent::{Absent, Known};
use crate::record::Limit;
use crate::socket::Owner;

/// A bit mask, such as a capability set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(pub u64);

/// A value of any field. [`Kind`](crate::field::Kind) gives its meaning and unit.
///
/// Displays in one line, with control characters escaped.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A number that can't be negative.
    Unsigned(u64),
    /// A number that can be negative.
    Signed(i64),
    /// A number with a fraction.
    Float(f64),
    /// Yes or no.
    Flag(bool),
    /// One letter.
    Letter(char),
    /// Bits, written in hexadecimal.
    Mask(u64),
    /// Any bytes, usually text.
    Text(&'a [u8]),
    /// A list of byte strings.
    Texts(Arguments<'a>),
    /// A list of ids.
    Ids(Ids<'a>),
    /// A set of processors.
    Cpus(CpuSet<'a>),
    /// Resource limits.
    Limits(Limits<'a>),
    /// Descriptors of processes. Displays as `PID/COMM:FD`, with commas between them.
    Owners(&'a [Owner]),
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
    f64 => Float(v) v;
    bool => Flag(v) v;
    char => Letter(v) v;
    Mask => Mask(v) v.0;
    &'a [u8] => Text(v) v;
    Arguments<'a> => Texts(v) v;
    Ids<'a> => Ids(v) v;
    CpuSet<'a> => Cpus(v) v;
    Limits<'a> => Limits(v) v;
    &'a [Owner] => Owners(v) v;
}

/// A number that is rarely negative.
impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        u64::try_from(value).map_or(Value::Signed(value), Value::Unsigned)
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(value) => value.fmt(f),
            Value::Signed(value) => value.fmt(f),
            Value::Float(value) => value.fmt(f),
            Value::Flag(value) => value.fmt(f),
            Value::Letter(value) => value.fmt(f),
            Value::Mask(value) => write!(f, "{value:#x}"),
            Value::Text(bytes) => write_escaped(f, bytes),
            Value::Texts(texts) => texts.fmt(f),
            Value::Ids(ids) => ids.fmt(f),
            Value::Cpus(cpus) => cpus.fmt(f),
            Value::Limits(limits) => limits.fmt(f),
            Value::Owners(owners) => write_owners(f, owners),
        }
    }
}

/// The value itself: a number, a quoted text, a list.
impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Letter(letter) => write!(f, "{letter:?}"),
            Value::Text(bytes) => Quoted(bytes).fmt(f),
            Value::Texts(texts) => texts.fmt(f),
            Value::Ids(ids) => ids.fmt(f),
            Value::Owners(owners) => owners.fmt(f),
            Value::Unsigned(_)
            | Value::Signed(_)
            | Value::Float(_)
            | Value::Flag(_)
            | Value::Mask(_)
            | Value::Cpus(_)
            | Value::Limits(_) => fmt::Display::fmt(self, f),
        }
    }
}

fn write_owners(f: &mut fmt::Formatter<'_>, owners: &[Owner]) -> fmt::Result {
    for (index, owner) in owners.iter().enumerate() {
        write!(f, "{}{}/", if index > 0 { "," } else { "" }, owner.pid)?;
        write_escaped(f, owner.comm.as_deref().unwrap_or_default())?;
        write!(f, ":{}", owner.fd)?;
    }
    Ok(())
}

/// Writes bytes as text. Control characters and bytes that are not UTF-8 are escaped.
fn write_escaped(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() {
                write!(f, "{}", letter.escape_default())?;
            } else {
                f.write_char(letter)?;
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

/// Writes a row as `Debug` does a structure: each field with its value, or the reason why it is absent.
/// Leaves out what was not asked for, and what such a row does not have.
pub fn debug_row<'v>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    cells: impl Iterator<Item = (&'static str, Known<Value<'v>>)>,
) -> fmt::Result {
    let mut row = f.debug_struct(name);
    for (field, value) in cells {
        match value {
            Ok(value) => row.field(field, &value),
            Err(Absent::NotApplicable | Absent::NotAsked) => &mut row,
            Err(reason) => row.field(field, &format_args!("{reason}")),
        };
    }
    row.finish()
}

/// Bytes whose `Debug` is a quoted text.
struct Quoted<'a>(&'a [u8]);

impl fmt::Debug for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        write_escaped(f, self.0)?;
        f.write_char('"')
    }
}

macro_rules! into_iter {
    ($($ty:ident: $iter:ident of $item:ty;)*) => { $(
        impl<'a> IntoIterator for $ty<'a> {
            type Item = $item;
            type IntoIter = $iter<'a>;

            fn into_iter(self) -> $iter<'a> {
                self.iter()
            }
        }
    )* };
}

into_iter! {
    Arguments: ArgumentsIter of &'a [u8];
    Ids: IdsIter of u32;
    Limits: LimitsIter of (&'static str, Option<u64>, Option<u64>);
    CpuSet: CpuSetIter of usize;
}

/// A command line or an environment: byte strings, as the process left them. Displays with blanks
/// between them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// The bytes as the kernel gives them.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The arguments one by one.
    ///
    /// A program that writes a title over its arguments fills the rest of them with NULs. So if
    /// nothing but NULs follows the first one, it is the only one.
    pub fn iter(&self) -> ArgumentsIter<'a> {
        let first = self
            .bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(self.bytes.len());
        let (title, rest) = self.bytes.split_at(first);
        let is_title = rest.iter().all(|&byte| byte == 0);
        let text = self.bytes.strip_suffix(b"\0").unwrap_or(self.bytes);
        ArgumentsIter {
            rest: (!self.bytes.is_empty()).then_some(if is_title { title } else { text }),
        }
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl<'a> Arguments<'a> {
    /// The arguments in the bytes of `/proc/PID/cmdline` or `environ` (proc_pid_cmdline(5)), each
    /// ended by a NUL; the last NUL may be missing.
    pub fn new(bytes: &'a [u8]) -> Arguments<'a> {
        Arguments { bytes }
    }

    /// Appends the arguments with spaces between them.
    pub fn join(&self, out: &mut Vec<u8>) {
        for (index, argument) in self.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b" " } else { b"" });
            out.extend_from_slice(argument);
        }
    }
}

/// Byte strings one by one.
#[derive(Clone, Debug)]
pub struct ArgumentsIter<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for ArgumentsIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let Some(end) = rest.iter().position(|&byte| byte == 0) else {
            return Some(rest);
        };
        self.rest = Some(&rest[end + 1..]);
        Some(&rest[..end])
    }
}

impl fmt::Display for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, argument) in self.iter().enumerate() {
            f.write_str(if index > 0 { " " } else { "" })?;
            write_escaped(f, argument)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(Quoted)).finish()
    }
}

/// A list of ids. Displays with commas between them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ids<'a> {
    bytes: &'a [u8],
}

impl<'a> Ids<'a> {
    /// The ids in the bytes of an array of `u32` in host byte order.
    #[doc(hidden)]
    pub fn new(bytes: &'a [u8]) -> Ids<'a> {
        Ids { bytes }
    }

    /// The ids one by one.
    pub fn iter(&self) -> IdsIter<'a> {
        IdsIter(self.bytes.chunks_exact(4))
    }
}

/// Ids one by one.
#[derive(Clone, Debug)]
pub struct IdsIter<'a>(ChunksExact<'a, u8>);

impl Iterator for IdsIter<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let id = self.0.next()?;
        Some(u32::from_ne_bytes(id.try_into().expect("chunks of four")))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for IdsIter<'_> {}

impl fmt::Display for Ids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, id) in self.iter().enumerate() {
            write!(f, "{}{id}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Ids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The resource limits of getrlimit(2), in the order of `RLIMIT_CPU` to `RLIMIT_RTTIME`. `data`,
/// `stack`, `core`, `rss`, `memlock`, `as`, `fsize` and `msgqueue` are in bytes, `cpu` in seconds,
/// `rttime` in microseconds; the others are counts.
///
/// Displays like `nofile=1024:524288`, soft and hard, with commas between limits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Limits<'a> {
    bytes: &'a [u8],
}

impl<'a> Limits<'a> {
    pub(crate) const NAMES: [&'static str; crate::record::LIMITS] = [
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

    /// The limits in the bytes of an array of `struct rlimit`. All bits set means no limit.
    #[doc(hidden)]
    pub fn new(bytes: &'a [u8]) -> Limits<'a> {
        Limits { bytes }
    }

    /// Name, soft limit and hard limit, one by one; `None` is unlimited.
    pub fn iter(&self) -> LimitsIter<'a> {
        let limits = <[Limit]>::ref_from_prefix_with_elems(self.bytes, self.bytes.len() / size_of::<Limit>());
        let limits = limits.map_or(&[][..], |(limits, _)| limits);
        LimitsIter(Limits::NAMES.iter().zip(limits))
    }
}

/// Limits one by one.
#[derive(Clone, Debug)]
pub struct LimitsIter<'a>(Zip<slice::Iter<'static, &'static str>, slice::Iter<'a, Limit>>);

impl Iterator for LimitsIter<'_> {
    type Item = (&'static str, Option<u64>, Option<u64>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, limit) = self.0.next()?;
        let value = |value: u64| (value != u64::MAX).then_some(value);
        Some((name, value(limit.soft.get()), value(limit.hard.get())))
    }
}

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

impl fmt::Debug for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A set of processors. Displays like the kernel's lists (cpuset(7)): `0-3,7`.
#[derive(Clone, Copy)]
pub struct CpuSet<'a> {
    mask: &'a [u8],
}

impl<'a> CpuSet<'a> {
    /// The set in the bytes of an array of `u64` in host byte order. Processor 0 is the lowest bit
    /// of the first.
    #[doc(hidden)]
    pub fn new(mask: &'a [u8]) -> CpuSet<'a> {
        CpuSet { mask }
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.word(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 != 0)
    }

    /// The processors one by one, ascending.
    pub fn iter(&self) -> CpuSetIter<'a> {
        CpuSetIter { set: *self, next: 0 }
    }

    fn word(&self, index: usize) -> Option<u64> {
        let word = self.mask.get(index * 8..index * 8 + 8)?;
        Some(u64::from_ne_bytes(word.try_into().ok()?))
    }
}

/// Processors one by one.
#[derive(Clone, Debug)]
pub struct CpuSetIter<'a> {
    set: CpuSet<'a>,
    next: usize,
}

impl Iterator for CpuSetIter<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while let Some(word) = self.set.word(self.next / 64) {
            let rest = word >> (self.next % 64);
            if rest != 0 {
                let found = self.next + rest.trailing_zeros() as usize;
                self.next = found + 1;
                return Some(found);
            }
            self.next = (self.next / 64 + 1) * 64;
        }
        None
    }
}

/// Sets are equal if they have the same processors, whatever the lengths of their masks.
impl PartialEq for CpuSet<'_> {
    fn eq(&self, other: &CpuSet<'_>) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for CpuSet<'_> {}

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

impl fmt::Debug for CpuSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A value that can be read from the bytes of a [`DERIVED`](crate::record::attr::DERIVED)
/// attribute.
pub trait FromDerived<'a>: Sized {
    /// `None` if the bytes are not such a value.
    fn from_bytes(bytes: &'a [u8]) -> Option<Self>;
}

impl<'a> FromDerived<'a> for &'a [u8] {
    fn from_bytes(bytes: &'a [u8]) -> Option<&'a [u8]> {
        Some(bytes)
    }
}

impl FromDerived<'_> for u64 {
    fn from_bytes(bytes: &[u8]) -> Option<u64> {
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

impl FromDerived<'_> for f64 {
    fn from_bytes(bytes: &[u8]) -> Option<f64> {
        Some(f64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::absent::Absent;

    /// Check that arguments are split at NULs, with and without the last NUL, and that the NULs
    /// behind a title are none.
    #[test]
    fn arguments_are_split_at_nuls() {
        let split = |bytes: &'static [u8]| Arguments::new(bytes).iter().collect::<Vec<_>>();
        assert_eq!(split(b""), Vec::<&[u8]>::new());
        assert_eq!(split(b"\0"), [b""]);
        assert_eq!(split(b"a\0b\0"), [b"a", b"b"]);
        assert_eq!(split(b"a\0b\0\0"), [b"a".as_slice(), b"b", b""]);
        assert_eq!(split(b"\0\0b\0"), [b"".as_slice(), b"", b"b"]);
        for padded in [&b"a title\0"[..], b"a title\0\0", b"a title\0\0\0\0\0\0"] {
            assert_eq!(split(padded), [b"a title"]);
        }
        assert_eq!(split(b"\0\0\0"), [b""]);
        let mut joined = b"> ".to_vec();
        Arguments::new(b"a\0\0b\0\0").join(&mut joined);
        assert_eq!(joined, b"> a  b ");
        assert_eq!(split(b"title"), [b"title"]);
    }

    /// Check that processor sets print as the kernel prints CPU lists.
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
        assert_eq!(text(&[0, 0, 5]), "128,130");
    }

    /// Check that a processor is listed exactly if it is in the set, also at the edges of words.
    #[test]
    fn processor_sets_list_what_they_contain() {
        let words = [1 | 1 << 63, 0, 1 << 63 | 1 << 31, 1];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        let set = CpuSet::new(&bytes);
        let contained = (0..300).filter(|&cpu| set.contains(cpu));
        assert!(set.iter().eq(contained));
        assert!(set.iter().eq([0, 63, 159, 191, 192]));
    }

    /// Check that values print on one line, and that no process can send control characters to a
    /// terminal.
    #[test]
    fn values_print_harmlessly() {
        let texts = Arguments::new("é\x1b[2J\0-x\0".as_bytes());
        let limits = [7_u64, u64::MAX].map(u64::to_ne_bytes).concat();
        for (value, text, debug) in [
            (Value::Unsigned(5), "5", "5"),
            (Value::Signed(-5), "-5", "-5"),
            (Value::Float(12.5), "12.5", "12.5"),
            (Value::Flag(true), "true", "true"),
            (Value::Letter('S'), "S", "'S'"),
            (Value::Mask(0x1ff), "0x1ff", "0x1ff"),
            (Value::Text(b"a\n\xff"), "a\\n\\xff", "\"a\\n\\xff\""),
            (Value::Texts(texts), "é\\u{1b}[2J -x", "[\"é\\u{1b}[2J\", \"-x\"]"),
            (Value::Ids(Ids::new(&[0; 8])), "0,0", "[0, 0]"),
            (
                Value::Limits(Limits::new(&limits)),
                "cpu=7:unlimited",
                "cpu=7:unlimited",
            ),
            (Value::Cpus(CpuSet::new(&[0; 8])), "", ""),
        ] {
            assert_eq!(value.to_string(), text);
            assert_eq!(format!("{value:?}"), debug);
        }
        let owners = [Owner::new(7, 3, Ok(b"a\n")), Owner::new(8, 4, Err(Absent::NotAsked))];
        assert_eq!(Value::Owners(&owners).to_string(), "7/a\\n:3,8/:4");
    }
}
