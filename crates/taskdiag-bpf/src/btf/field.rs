//! Fields: paths to them, and where they are on this kernel.

use super::{without_flavour, BtfError, Kind, Member, Type, TypeId, Types, MAX_DEPTH};

/// The maximum number of members visited to find one field: far more than any real structure has.
const MAX_MEMBERS_VISITED: u32 = 1 << 17;

/// What two types must have in common to be compatible: then a program compiled with one may read
/// the other, as in libbpf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape<'n> {
    /// The number of array dimensions.
    pub dimensions: u8,
    /// The innermost element, without typedefs and qualifiers.
    pub base: Base<'n>,
}

/// The innermost element of a [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base<'n> {
    /// A struct or union, compatible with any other.
    Composite,
    /// A pointer to anything.
    Pointer,
    /// A floating point number of any size.
    Float,
    /// An integer of any size and sign.
    Integer,
    /// An enumeration with this name, without flavour. An empty name is compatible with any.
    Enum(&'n str),
    /// A type that is compatible with none.
    Other,
}

/// A step from a type to a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step<'n> {
    /// To a member, which may be in an anonymous struct or union.
    Member {
        /// Its name.
        name: &'n str,
        /// Its shape in the program.
        shape: Shape<'n>,
    },
    /// To an element of an array.
    Element(u32),
}

/// The path from a type to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath<'n> {
    /// The index if the root is used as an array; nearly always 0.
    pub root_index: u32,
    /// The steps from the root.
    pub steps: &'n [Step<'n>],
}

/// Where a field is.
#[derive(Clone, Copy, Debug)]
pub struct Location {
    bit_offset: u64,
    last: LastStep,
}

#[derive(Clone, Copy, Debug)]
enum LastStep {
    Element(TypeId),
    Member { owner_is_last: bool, member: Member },
}

impl Location {
    /// The offset from the start of the root type, in bits.
    pub fn bit_offset(&self) -> u64 {
        self.bit_offset
    }
}

/// Whether the size of a load may change if the size of the field differs on this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadClass {
    /// It may, because the field is a pointer.
    Pointer,
    /// It may, because the field is an unsigned integer, whose value zero extension keeps.
    Unsigned,
    /// It may not.
    Fixed,
}

/// What a program can ask about a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // enum bpf_field_info_kind of libbpf has the meanings
pub enum FieldFact {
    ByteOffset,
    ByteSize,
    Exists,
    Signed,
    /// The left shift that removes the bits above a bit field from a 64-bit word.
    LeftShift,
    /// The right shift that then removes the bits below it.
    RightShift,
}

/// The measures of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The offset of the aligned unit of memory that has the field.
    pub byte_offset: u64,
    /// The size of that unit.
    pub byte_size: u32,
    /// Whether the field is only a part of that unit.
    pub is_bit_field: bool,
    /// Whether the size of a load may change.
    pub load_class: LoadClass,
    /// Its sign and shifts, which array elements do not have.
    member: Option<MemberFacts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemberFacts {
    is_signed: bool,
    bit_offset_in_unit: u64,
    bit_size: u32,
}

impl Field {
    /// The size of a load of the field; 0 for a bit field, whose load size never changes.
    pub fn load_size(&self) -> u32 {
        if self.is_bit_field {
            0
        } else {
            self.byte_size
        }
    }

    /// The value of a fact. [`FieldFact::Exists`] is always 1.
    pub fn value(&self, fact: FieldFact) -> Result<u64, BtfError> {
        let member = self.member.ok_or(BtfError::NotAMember);
        match fact {
            FieldFact::ByteOffset => Ok(self.byte_offset),
            FieldFact::ByteSize => Ok(u64::from(self.byte_size)),
            FieldFact::Exists => Ok(1),
            FieldFact::Signed => Ok(u64::from(member?.is_signed)),
            FieldFact::LeftShift => {
                let member = member?;
                64_u64
                    .checked_sub(member.bit_offset_in_unit + u64::from(member.bit_size))
                    .ok_or(BtfError::TooLarge)
            }
            FieldFact::RightShift => 64_u64
                .checked_sub(u64::from(member?.bit_size))
                .ok_or(BtfError::TooLarge),
        }
    }
}

impl Types<'_> {
    /// Follows `path` from the type `root`. `None` if this kernel lacks the field, or has one of
    /// another shape.
    pub fn locate(&self, root: TypeId, path: &FieldPath<'_>) -> Result<Option<Location>, BtfError> {
        let mut current = root;
        let mut budget = MAX_MEMBERS_VISITED;
        let mut location = Location {
            bit_offset: self.element_offset(root, path.root_index)?,
            last: LastStep::Element(root),
        };
        for step in path.steps {
            let next = match step {
                Step::Member { name, shape } => self.find_member(current, name, shape, MAX_DEPTH, &mut budget)?,
                Step::Element(index) => self.find_element(current, *index, &location.last)?,
            };
            let Some((next, next_type)) = next else {
                return Ok(None);
            };
            location.last = next.last;
            location.bit_offset = location
                .bit_offset
                .checked_add(next.bit_offset)
                .ok_or(BtfError::TooLarge)?;
            current = next_type;
        }
        Ok(Some(location))
    }

    fn element_offset(&self, element: TypeId, index: u32) -> Result<u64, BtfError> {
        if index == 0 {
            return Ok(0);
        }
        let bits = u64::from(self.size_of(element)?) * 8;
        bits.checked_mul(u64::from(index)).ok_or(BtfError::TooLarge)
    }

    /// Element `index` of the array type `id`, and the element's type. If the last member of a
    /// structure is an array of length 0, it is a flexible array member, which has any number of
    /// elements.
    fn find_element(
        &self,
        id: TypeId,
        index: u32,
        reached_by: &LastStep,
    ) -> Result<Option<(Location, TypeId)>, BtfError> {
        let Some(array) = self.resolve(id)? else {
            return Ok(None);
        };
        let Some((element, count)) = array.array() else {
            return Ok(None);
        };
        let is_flexible = count == 0
            && matches!(
                reached_by,
                LastStep::Member {
                    owner_is_last: true,
                    ..
                }
            );
        if index >= count && !is_flexible {
            return Ok(None);
        }
        let location = Location {
            bit_offset: self.element_offset(element, index)?,
            last: LastStep::Element(element),
        };
        Ok(Some((location, element)))
    }

    /// The member `name` of the composite type `id` or of its anonymous members, and the member's
    /// type.
    fn find_member(
        &self,
        id: TypeId,
        name: &str,
        shape: &Shape<'_>,
        depth: u32,
        budget: &mut u32,
    ) -> Result<Option<(Location, TypeId)>, BtfError> {
        let depth = depth.checked_sub(1).ok_or(BtfError::TooComplex)?;
        let Some(owner) = self.resolve(id)? else {
            return Ok(None);
        };
        for index in 0..owner.vlen() {
            let Some(member) = owner.member(index) else {
                break;
            };
            *budget = budget.checked_sub(1).ok_or(BtfError::TooComplex)?;
            if self.name_is(member.name_offset, b"") {
                let inner = self.find_member(member.type_id, name, shape, depth, budget)?;
                if let Some((mut location, inner_type)) = inner {
                    location.bit_offset += u64::from(member.bit_offset);
                    return Ok(Some((location, inner_type)));
                }
            } else if self.name_is(member.name_offset, name.as_bytes()) {
                let location = Location {
                    bit_offset: u64::from(member.bit_offset),
                    last: LastStep::Member {
                        owner_is_last: index + 1 == owner.vlen(),
                        member,
                    },
                };
                let fits = self.has_shape(member.type_id, shape)?;
                return Ok(fits.then_some((location, member.type_id)));
            }
        }
        Ok(None)
    }

    /// Whether the type `id` is compatible with `shape`.
    pub fn has_shape(&self, id: TypeId, shape: &Shape<'_>) -> Result<bool, BtfError> {
        let mut id = id;
        for _ in 0..shape.dimensions {
            match self.resolve(id)?.and_then(|outer| outer.array()) {
                Some((element, _)) => id = element,
                None => return Ok(false),
            }
        }
        let Some(base) = self.resolve(id)? else {
            return Ok(false);
        };
        Ok(match shape.base {
            Base::Composite => base.kind.is_composite(),
            Base::Pointer => base.kind == Kind::Pointer,
            Base::Float => base.kind == Kind::Float,
            Base::Integer => base.kind == Kind::Integer && base.integer_bit_offset() == 0,
            Base::Enum(name) => base.kind.is_enum() && self.enum_names_match(&base, name),
            Base::Other => false,
        })
    }

    fn enum_names_match(&self, found: &Type<'_>, name: &str) -> bool {
        let found_name = without_flavour(self.name(found.name_offset));
        name.is_empty() || found_name.is_empty() || name.as_bytes() == found_name
    }

    /// Measures the field at `location`.
    pub fn measure(&self, location: &Location) -> Result<Field, BtfError> {
        match &location.last {
            LastStep::Element(element) => Ok(Field {
                byte_offset: location.bit_offset / 8,
                byte_size: self.size_of(*element)?,
                is_bit_field: false,
                load_class: self.resolve(*element)?.map_or(LoadClass::Fixed, load_class),
                member: None,
            }),
            LastStep::Member { member, .. } => self.measure_member(location.bit_offset, member),
        }
    }

    fn measure_member(&self, bit_offset: u64, member: &Member) -> Result<Field, BtfError> {
        let inner = self.resolve(member.type_id)?.ok_or(BtfError::Unsized(member.type_id))?;
        let is_bit_field = member.bit_field_size != 0;
        let (byte_offset, byte_size, bit_size) = if is_bit_field {
            let (offset, size) = bit_field_unit(bit_offset, member.bit_field_size, &inner)?;
            (offset, size, member.bit_field_size)
        } else {
            let size = self.size_of(inner.id)?;
            (bit_offset / 8, size, size.saturating_mul(8))
        };
        Ok(Field {
            byte_offset,
            byte_size,
            is_bit_field,
            load_class: if is_bit_field {
                LoadClass::Fixed
            } else {
                load_class(inner)
            },
            member: Some(MemberFacts {
                is_signed: is_signed(&inner),
                bit_offset_in_unit: bit_offset - byte_offset * 8,
                bit_size,
            }),
        })
    }
}

/// The offset and size of the unit of memory that holds a bit field: the smallest aligned one that
/// is at least as large as the declared type.
fn bit_field_unit(bit_offset: u64, bit_size: u32, inner: &Type<'_>) -> Result<(u64, u32), BtfError> {
    let mut size = match inner.kind {
        Kind::Integer | Kind::Enum | Kind::Enum64 => inner.size_or_type,
        _ => return Err(BtfError::Unsized(inner.id)),
    };
    while (1..=8).contains(&size) {
        let offset = bit_offset / 8 / u64::from(size) * u64::from(size);
        if bit_offset + u64::from(bit_size) <= (offset + u64::from(size)) * 8 {
            return Ok((offset, size));
        }
        size *= 2;
    }
    Err(BtfError::TooLarge)
}

const ENCODING_SIGNED: u32 = 1;

fn is_signed(inner: &Type<'_>) -> bool {
    match inner.kind {
        Kind::Integer => inner.integer_encoding() & ENCODING_SIGNED != 0,
        Kind::Enum | Kind::Enum64 => inner.kind_flag(),
        _ => false,
    }
}

fn load_class(inner: Type<'_>) -> LoadClass {
    match inner.kind {
        Kind::Pointer => LoadClass::Pointer,
        Kind::Integer if inner.integer_encoding() != ENCODING_SIGNED => LoadClass::Unsigned,
        _ => LoadClass::Fixed,
    }
}
