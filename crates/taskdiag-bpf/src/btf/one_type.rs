//! One type of a BTF.

use super::sections::element_count;
use super::{read_u32, Kind, TypeId};

/// The length of `struct btf_member`.
pub(super) const MEMBER_LEN: usize = 12;

/// One type, a view into the bytes of the BTF.
#[derive(Clone, Copy, Debug)]
pub struct Type<'a> {
    pub(super) id: TypeId,
    pub(super) kind: Kind,
    pub(super) name_offset: u32,
    pub(super) info: u32,
    pub(super) size_or_type: u32,
    pub(super) trailer: &'a [u8],
}

/// A member of a struct or union.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The offset of its name in the string section. The name of an anonymous member is empty.
    pub name_offset: u32,
    /// Its type.
    pub type_id: TypeId,
    pub(super) bit_offset: u32,
    /// The size of a bit field in bits; 0 for another member.
    pub(super) bit_field_size: u32,
}

impl<'a> Type<'a> {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The offset of its name in the string section.
    pub fn name_offset(&self) -> u32 {
        self.name_offset
    }

    /// The type it refers to, if it is a pointer, typedef, qualifier, function or variable.
    pub fn referred(&self) -> TypeId {
        self.size_or_type
    }

    /// The number of its members, enumerators or parameters.
    pub(super) fn vlen(&self) -> u32 {
        element_count(self.info)
    }

    /// The number of parameters of a prototype.
    pub fn parameters(&self) -> usize {
        self.vlen() as usize
    }

    /// The top bit of the info word. Set for a struct whose members can be bit fields, and for a
    /// signed enumeration.
    pub(super) fn kind_flag(&self) -> bool {
        self.info >> 31 != 0
    }

    fn word(&self, index: usize) -> Option<u32> {
        read_u32(self.trailer, index.checked_mul(4)?)
    }

    pub(super) fn integer_encoding(&self) -> u32 {
        self.word(0).unwrap_or(0) >> 24 & 0xf
    }

    /// The bit offset of an integer. It is not 0 only in an old way to describe bit fields.
    pub(super) fn integer_bit_offset(&self) -> u32 {
        self.word(0).unwrap_or(0) >> 16 & 0xff
    }

    /// The element type and the number of elements of an array.
    pub fn array(&self) -> Option<(TypeId, u32)> {
        if self.kind != Kind::Array {
            return None;
        }
        Some((self.word(0)?, self.word(2)?))
    }

    /// The member at `index` of a struct or union.
    pub fn member(&self, index: u32) -> Option<Member> {
        if !self.kind.is_composite() || index >= self.vlen() {
            return None;
        }
        let first_word = usize::try_from(index).ok()? * (MEMBER_LEN / 4);
        let offset = self.word(first_word + 2)?;
        let has_bit_fields = self.kind_flag();
        Some(Member {
            name_offset: self.word(first_word)?,
            type_id: self.word(first_word + 1)?,
            bit_offset: if has_bit_fields { offset & 0xff_ffff } else { offset },
            bit_field_size: if has_bit_fields { offset >> 24 } else { 0 },
        })
    }

    /// The name offset and value of each enumerator. Values of 32 bits are sign-extended, as in
    /// libbpf.
    pub fn enumerators(&self) -> impl Iterator<Item = (u32, u64)> + 'a {
        let wide = self.kind == Kind::Enum64;
        let trailer = if self.kind.is_enum() { self.trailer } else { &[] };
        trailer
            .chunks_exact(if wide { 12 } else { 8 })
            .filter_map(move |entry| {
                let low = read_u32(entry, 4)?;
                let value = if wide {
                    u64::from(low) | u64::from(read_u32(entry, 8)?) << 32
                } else {
                    i64::from(low as i32) as u64
                };
                Some((read_u32(entry, 0)?, value))
            })
    }
}
