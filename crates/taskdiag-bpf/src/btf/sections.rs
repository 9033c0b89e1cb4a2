//! The sections of a BTF, and the lengths of its types.

use super::{read_u32, BtfError, Kind};

const MAGIC: u16 = 0xeb9f;
/// The length of the oldest header. Newer ones are longer, and give their length in `hdr_len`.
const HEADER_LEN: usize = 24;
/// The length of a header with a layout section, which gives the length of types of each kind.
const HEADER_LEN_WITH_LAYOUT: usize = 32;
/// The length of `struct btf_layout`: the length of what always follows a type of the kind, the
/// length of each element, flags.
pub(super) const LAYOUT_LEN: usize = 4;
/// The length of `struct btf_type`: name offset, info word, size or type.
pub(super) const TYPE_HEADER_LEN: usize = 12;

/// The sections of a BTF.
pub(super) struct Sections<'a> {
    pub(super) types: &'a [u8],
    pub(super) strings: &'a [u8],
    pub(super) lengths: Lengths,
}

/// Finds the sections.
pub(super) fn sections(bytes: &[u8]) -> Result<Sections<'_>, BtfError> {
    let too_short = BtfError::Header("it is shorter than its header");
    let magic = bytes.get(..2).ok_or(too_short)?;
    if magic != MAGIC.to_ne_bytes() {
        return Err(BtfError::Header("it has no magic number"));
    }
    if bytes.get(2) != Some(&1) {
        return Err(BtfError::Header("its version is not 1"));
    }
    let word = |offset| read_u32(bytes, offset).map(|word| word as usize);
    let header_len = word(4).ok_or(too_short)?;
    if header_len < HEADER_LEN {
        return Err(BtfError::Header("its header is too short"));
    }
    let section = |at: usize| -> Option<&[u8]> {
        let start = header_len.checked_add(word(at)?)?;
        bytes.get(start..start.checked_add(word(at + 4)?)?)
    };
    let outside = BtfError::Header("a section is not within the bytes");
    let layout = if header_len < HEADER_LEN_WITH_LAYOUT {
        &[]
    } else {
        section(24).ok_or(outside)?
    };
    Ok(Sections {
        types: section(8).ok_or(outside)?,
        strings: section(16).ok_or(outside)?,
        lengths: Lengths::new(layout),
    })
}

/// The kind in an info word. The newest kernels use 7 bits for the kind and 24 for the number of
/// elements; older ones used 5 and 16, and the other bits were 0.
pub(super) fn kind_number(info: u32) -> u32 {
    info >> 24 & (KIND_NUMBERS as u32 - 1)
}

/// The number of elements in an info word.
pub(super) fn element_count(info: u32) -> u32 {
    info & 0xff_ffff
}

const KIND_NUMBERS: usize = 128;

/// For each kind, the length of the header with what always follows it, and the length of an
/// element. 0 if neither we nor the BTF know the kind.
#[derive(Debug)]
pub(super) struct Lengths([(u32, u32); KIND_NUMBERS]);

impl Lengths {
    /// `layout` is the BTF's own description of each kind; empty if it has none.
    fn new(layout: &[u8]) -> Self {
        let mut described = layout
            .chunks_exact(LAYOUT_LEN)
            .map(|entry| (entry[0].into(), entry[1].into()));
        Self(std::array::from_fn(|number| {
            let described = described.next().filter(|_| number != 0);
            let trailer = Kind::from_number(number as u32).map(Kind::trailer).or(described);
            trailer.map_or((0, 0), |(fixed, each)| (TYPE_HEADER_LEN as u32 + fixed, each))
        }))
    }

    /// The length of a type with its trailer. `None` if neither we nor the BTF know its kind.
    #[inline(always)]
    pub(super) fn of(&self, info: u32) -> Option<usize> {
        let (fixed, each) = self.0[kind_number(info) as usize];
        (fixed != 0).then(|| fixed as usize + each as usize * element_count(info) as usize)
    }
}
