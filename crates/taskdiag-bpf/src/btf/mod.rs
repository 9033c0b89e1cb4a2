//! The kernel's type information (BTF), read in one pass.
//!
//! A vmlinux BTF describes some 130,000 types in 3 MB, with 2 MB of names. A program that adapts itself to the kernel
//! (CO-RE) needs perhaps 30 of them, and start-up time is spent on finding those. So nothing is copied or built here:
//! [`Types::scan`] walks over the bytes once, notes where every 16th type begins, and compares only eight bytes of each
//! name. Everything else is looked up in place when asked for.
//!
//! The meaning of a field path is libbpf's (`relo_core.c`): what libbpf finds compatible, this does, and no more.
//! Bytes come from outside, so no input may cause a panic, an endless loop or a large allocation.

use std::fmt;

/// Number of a type within one BTF; 0 is `void`.
pub type TypeId = u32;

const MAGIC: u16 = 0xeb9f;
/// Shortest header there is; newer ones are longer and say so in `hdr_len`.
const HEADER_LEN: usize = 24;
/// The header that has a layout section: how long types of each kind are.
const HEADER_LEN_WITH_LAYOUT: usize = 32;
/// `struct btf_layout`: length of what always follows a type of the kind, of each element, flags.
const LAYOUT_LEN: usize = 4;
/// `struct btf_type`: name offset, info word, size or type.
const TYPE_HEADER_LEN: usize = 12;
const MEMBER_LEN: usize = 12;
const POINTER_BYTES: u32 = 8;

/// One remembered offset for so many types: small enough to walk, sparse enough to stay in the first-level cache.
const TYPES_PER_CHECKPOINT: u32 = 16;

/// Longest chain of typedefs, qualifiers, array dimensions or anonymous members followed (libbpf: 32 and 64).
const MAX_DEPTH: u32 = 32;
/// Most members looked at for one field: far above any real structure, and an end to hostile ones.
const MAX_MEMBERS_VISITED: u32 = 1 << 17;

/// What a type is: the kernel's `BTF_KIND_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // the names are the documentation
pub enum Kind {
    Integer = 1,
    Pointer = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Enum = 6,
    Forward = 7,
    Typedef = 8,
    Volatile = 9,
    Const = 10,
    Restrict = 11,
    Function = 12,
    FunctionPrototype = 13,
    Variable = 14,
    DataSection = 15,
    Float = 16,
    DeclarationTag = 17,
    TypeTag = 18,
    Enum64 = 19,
}

impl Kind {
    const ALL: [Self; 19] = [
        Self::Integer,
        Self::Pointer,
        Self::Array,
        Self::Struct,
        Self::Union,
        Self::Enum,
        Self::Forward,
        Self::Typedef,
        Self::Volatile,
        Self::Const,
        Self::Restrict,
        Self::Function,
        Self::FunctionPrototype,
        Self::Variable,
        Self::DataSection,
        Self::Float,
        Self::DeclarationTag,
        Self::TypeTag,
        Self::Enum64,
    ];

    fn from_number(number: u32) -> Option<Self> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    /// Bytes that follow a type's header: (always, for each of `vlen` elements).
    const fn trailer(self) -> (u32, u32) {
        match self {
            Self::Integer | Self::Variable | Self::DeclarationTag => (4, 0),
            Self::Array => (12, 0),
            Self::Struct | Self::Union | Self::DataSection | Self::Enum64 => (0, 12),
            Self::Enum | Self::FunctionPrototype => (0, 8),
            Self::Pointer
            | Self::Forward
            | Self::Typedef
            | Self::Volatile
            | Self::Const
            | Self::Restrict
            | Self::Function
            | Self::Float
            | Self::TypeTag => (0, 0),
        }
    }

    fn is_composite(self) -> bool {
        matches!(self, Self::Struct | Self::Union)
    }

    fn is_enum(self) -> bool {
        matches!(self, Self::Enum | Self::Enum64)
    }
}

/// Why type information could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BtfError {
    /// The header is not one of BTF in this machine's byte order, or its sections lie outside the bytes.
    Header(&'static str),
    /// The type that begins here runs past the end of the type section.
    Truncated {
        /// Offset within the type section.
        offset: usize,
    },
    /// A kind newer than this reader, and BTF does not say how long it is: nothing after it can be read.
    UnknownKind {
        /// The type that has it.
        id: TypeId,
        /// Its `BTF_KIND_*`.
        kind: u32,
    },
    /// A reference to a type that does not exist.
    NoSuchType(TypeId),
    /// A chain or nesting of types too deep or too wide to be real.
    TooComplex,
    /// A size or an offset does not fit.
    TooLarge,
    /// The type has no size (a function, `void`, a forward declaration).
    Unsized(TypeId),
    /// Only a named member has this fact, not an array element.
    NotAMember,
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(what) => write!(f, "not usable type information: {what}"),
            Self::Truncated { offset } => {
                write!(f, "type information cut off at offset {offset}")
            }
            Self::UnknownKind { id, kind } => {
                write!(f, "type {id} is of kind {kind}, which this version does not know")
            }
            Self::NoSuchType(id) => write!(f, "reference to type {id}, which does not exist"),
            Self::TooComplex => write!(f, "types nested too deeply or in a circle"),
            Self::TooLarge => write!(f, "a size or an offset is too large"),
            Self::Unsized(id) => write!(f, "type {id} has no size"),
            Self::NotAMember => {
                write!(f, "an array element has neither sign nor shifts of its own")
            }
        }
    }
}

impl std::error::Error for BtfError {}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// The kinds that can stand for a type of kind `kind`: itself, and for enumerations both widths.
    pub const fn compatible_with(kind: Kind) -> Self {
        match kind {
            Kind::Enum | Kind::Enum64 => Self(1 << Kind::Enum as u32 | 1 << Kind::Enum64 as u32),
            other => Self(1 << other as u32),
        }
    }

    const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has_number(self, kind: u32) -> bool {
        self.0.checked_shr(kind).is_some_and(|bits| bits & 1 != 0)
    }
}

/// A type to look for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'n> {
    /// Its name, without a `___flavour`.
    pub name: &'n str,
    /// What it may be.
    pub kinds: Kinds,
}

/// One type: a view into the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Type<'a> {
    id: TypeId,
    kind: Kind,
    name_offset: u32,
    info: u32,
    size_or_type: u32,
    trailer: &'a [u8],
}

/// A member of a struct or union.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Where its name begins in the string section; anonymous if that name is empty.
    pub name_offset: u32,
    /// Its type.
    pub type_id: TypeId,
    bit_offset: u32,
    /// 0 for a member that is not a bit field.
    bit_field_size: u32,
}

impl<'a> Type<'a> {
    /// What this type is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where its name begins in the string section.
    pub fn name_offset(&self) -> u32 {
        self.name_offset
    }

    /// The type this one refers to, for kinds that refer to one (pointers, typedefs, qualifiers, variables).
    pub fn referred(&self) -> TypeId {
        self.size_or_type
    }

    /// Number of members, enumerators or parameters.
    fn vlen(&self) -> u32 {
        element_count(self.info)
    }

    /// How many parameters a prototype has.
    pub fn parameters(&self) -> usize {
        self.vlen() as usize
    }

    /// The info word's top bit: bit fields in the members of a struct, signedness of an enumeration.
    fn kind_flag(&self) -> bool {
        self.info >> 31 != 0
    }

    fn word(&self, index: usize) -> Option<u32> {
        read_u32(self.trailer, index.checked_mul(4)?)
    }

    fn integer_encoding(&self) -> u32 {
        self.word(0).unwrap_or(0) >> 24 & 0xf
    }

    /// Nonzero only for a deprecated way to describe bit fields.
    fn integer_bit_offset(&self) -> u32 {
        self.word(0).unwrap_or(0) >> 16 & 0xff
    }

    /// (element type, number of elements) of an array.
    pub fn array(&self) -> Option<(TypeId, u32)> {
        if self.kind != Kind::Array {
            return None;
        }
        Some((self.word(0)?, self.word(2)?))
    }

    /// A member of a struct or union.
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

    /// (name offset, value) of each enumerator; 32-bit values are sign-extended, as libbpf does.
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

/// The type of a member as far as compatibility cares: libbpf lets a program compiled against one type read another
/// where these agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape<'n> {
    /// Number of array dimensions around the base.
    pub dimensions: u8,
    /// What the innermost element is, typedefs and qualifiers removed.
    pub base: Base<'n>,
}

/// Innermost part of a [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base<'n> {
    /// Struct or union: any agrees with any.
    Composite,
    /// Pointer to anything.
    Pointer,
    /// Floating point number of any size.
    Float,
    /// Integer of any size and sign.
    Integer,
    /// Enumeration of this name (without flavour); an empty name agrees with all.
    Enum(&'n str),
    /// Agrees with nothing.
    Other,
}

/// One step from a type to a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step<'n> {
    /// To a member, through anonymous structs and unions where need be.
    Member {
        /// Its name.
        name: &'n str,
        /// What the program takes it for.
        shape: Shape<'n>,
    },
    /// To an element of an array.
    Element(u32),
}

/// The way from a type to the field meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath<'n> {
    /// Index when the root is used as an array, nearly always 0.
    pub root_index: u32,
    /// Steps from the root.
    pub steps: &'n [Step<'n>],
}

/// Where a field was found: its offset, and its last step.
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
    /// Distance from the start of the root type.
    pub fn bit_offset(&self) -> u64 {
        self.bit_offset
    }
}

/// How a load of a field may be widened or narrowed when its size differs between kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadClass {
    /// Pointer: always.
    Pointer,
    /// Integer without a sign: zero extension keeps its value.
    Unsigned,
    /// Anything else: not at all.
    Fixed,
}

/// What a program can ask about a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the documentation
pub enum FieldFact {
    ByteOffset,
    ByteSize,
    Exists,
    Signed,
    /// Left shift that removes what is above a bit field in a 64-bit word.
    LeftShift,
    /// Right shift after it, that removes what is below.
    RightShift,
}

/// A field measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset of the (aligned) unit to load.
    pub byte_offset: u64,
    /// Size of the unit to load.
    pub byte_size: u32,
    /// The field is part of a unit only.
    pub is_bit_field: bool,
    /// How a load may be adjusted.
    pub load_class: LoadClass,
    /// Sign and shifts; an array element has none.
    member: Option<MemberFacts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemberFacts {
    is_signed: bool,
    bit_offset_in_unit: u64,
    bit_size: u32,
}

impl Field {
    /// Size of the memory access this field calls for; 0 for a bit field, whose access is never adjusted.
    pub fn load_size(&self) -> u32 {
        if self.is_bit_field {
            0
        } else {
            self.byte_size
        }
    }

    /// The value of a fact; [`FieldFact::Exists`] is always 1 here.
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

/// All types of one BTF, found by number.
#[derive(Debug)]
pub struct Types<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    lengths: Lengths<'a>,
    /// Offset of every [`TYPES_PER_CHECKPOINT`]th type, from type 1 on.
    checkpoints: Vec<u32>,
    count: u32,
    /// Why what is behind the last one is not known, if there is more.
    stopped_by: Option<BtfError>,
}

impl<'a> Types<'a> {
    /// Walks over `bytes` once. Returns the types, and for each of `wanted` the numbers of the types that match it, in
    /// order.
    ///
    /// Names in the bytes are taken as they are: a `___flavour` belongs to programs, and a kernel's type that had one
    /// would not be found.
    ///
    /// A type whose length nobody tells ends the walk: see [`Types::stopped_by`].
    pub fn scan(bytes: &'a [u8], wanted: &[Wanted<'_>]) -> Result<(Self, Vec<Vec<TypeId>>), BtfError> {
        let Sections {
            types,
            strings,
            lengths,
        } = sections(bytes)?;
        let names = NameFilter::new(wanted);
        let mut found = vec![Vec::new(); wanted.len()];
        let mut checkpoints = Vec::with_capacity(types.len() / TYPE_HEADER_LEN / 16 + 1);
        let mut stopped_by = None;
        let mut offset = 0;
        let mut id: TypeId = 1;
        while offset < types.len() {
            let header = types
                .get(offset..offset + TYPE_HEADER_LEN)
                .ok_or(BtfError::Truncated { offset })?;
            let info = read_u32(header, 4).unwrap_or(0);
            let kind = kind_number(info);
            let Some(len) = lengths.of(info) else {
                stopped_by = Some(BtfError::UnknownKind { id, kind });
                break;
            };
            if (id - 1) % TYPES_PER_CHECKPOINT == 0 {
                checkpoints.push(u32::try_from(offset).map_err(|_| BtfError::TooLarge)?);
            }
            if names.kinds.has_number(kind) {
                let name_offset = read_u32(header, 0).unwrap_or(0);
                if names.may_match(strings, name_offset) {
                    names.note_matches(strings, name_offset, kind, id, &mut found);
                }
            }
            offset += len;
            id += 1;
        }
        if offset > types.len() {
            return Err(BtfError::Truncated { offset: types.len() });
        }
        let all = Self {
            types,
            strings,
            lengths,
            checkpoints,
            count: id - 1,
            stopped_by,
        };
        Ok((all, found))
    }

    /// Number of types, `void` not counted.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Why there may be more types than [`Types::count`], among them such that were looked for and not found.
    pub fn stopped_by(&self) -> Option<BtfError> {
        self.stopped_by
    }

    /// The type with this number, which must not be `void`.
    pub fn get(&self, id: TypeId) -> Result<Type<'a>, BtfError> {
        let missing = BtfError::NoSuchType(id);
        let slot = id.checked_sub(1).ok_or(missing)?;
        if slot >= self.count {
            return Err(self.stopped_by.unwrap_or(missing));
        }
        let checkpoint = self
            .checkpoints
            .get((slot / TYPES_PER_CHECKPOINT) as usize)
            .ok_or(missing)?;
        let mut offset = *checkpoint as usize;
        for _ in 0..slot % TYPES_PER_CHECKPOINT {
            let info = read_u32(self.types, offset + 4).ok_or(missing)?;
            offset += self.lengths.of(info).ok_or(missing)?;
        }
        self.view(id, offset).unwrap_or(Err(missing))
    }

    fn view(&self, id: TypeId, offset: usize) -> Option<Result<Type<'a>, BtfError>> {
        let info = read_u32(self.types, offset + 4)?;
        let number = kind_number(info);
        let Some(kind) = Kind::from_number(number) else {
            return Some(Err(BtfError::UnknownKind { id, kind: number }));
        };
        Some(Ok(Type {
            id,
            kind,
            name_offset: read_u32(self.types, offset)?,
            info,
            size_or_type: read_u32(self.types, offset + 8)?,
            trailer: self
                .types
                .get(offset + TYPE_HEADER_LEN..offset + self.lengths.of(info)?)?,
        }))
    }

    /// The name that begins at this offset of the string section; empty if there is none.
    pub fn name(&self, offset: u32) -> &'a [u8] {
        let rest = self.strings.get(offset as usize..).unwrap_or(&[]);
        let len = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
        &rest[..len]
    }

    /// The type behind typedefs and qualifiers; `None` if it is `void`.
    pub fn resolve(&self, id: TypeId) -> Result<Option<Type<'a>>, BtfError> {
        let mut id = id;
        for _ in 0..MAX_DEPTH {
            if id == 0 {
                return Ok(None);
            }
            let found = self.get(id)?;
            match found.kind {
                Kind::Typedef | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag => {
                    id = found.referred();
                }
                _ => return Ok(Some(found)),
            }
        }
        Err(BtfError::TooComplex)
    }

    /// Size in bytes.
    pub fn size_of(&self, id: TypeId) -> Result<u32, BtfError> {
        let mut elements: u32 = 1;
        let mut current = id;
        for _ in 0..MAX_DEPTH {
            let inner = self.resolve(current)?.ok_or(BtfError::Unsized(id))?;
            let size = match inner.kind {
                Kind::Pointer => POINTER_BYTES,
                Kind::Integer
                | Kind::Struct
                | Kind::Union
                | Kind::Enum
                | Kind::Enum64
                | Kind::Float
                | Kind::DataSection => inner.size_or_type,
                Kind::Array => {
                    let (element, count) = inner.array().ok_or(BtfError::Unsized(id))?;
                    elements = elements.checked_mul(count).ok_or(BtfError::TooLarge)?;
                    current = element;
                    continue;
                }
                _ => return Err(BtfError::Unsized(id)),
            };
            return elements.checked_mul(size).ok_or(BtfError::TooLarge);
        }
        Err(BtfError::TooComplex)
    }

    /// Follows `path` from the type `root`; `None` if there is no such field here, or one of another shape.
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

    /// Element `index` of the array type `id`, and the element's type. The last member of a structure may be an array of
    /// length 0, which has as many elements as one likes.
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

    /// The member `name` of the composite type `id`, looked for inside anonymous members too, and its type.
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

    fn name_is(&self, offset: u32, name: &[u8]) -> bool {
        starts_with_name(self.strings, offset, name)
    }

    /// Whether a program that takes a member for `shape` may use one of type `id`.
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
            Base::Enum(name) => base.kind.is_enum() && self.enum_names_agree(&base, name),
            Base::Other => false,
        })
    }

    fn enum_names_agree(&self, found: &Type<'_>, name: &str) -> bool {
        let found_name = without_flavour(self.name(found.name_offset));
        name.is_empty() || found_name.is_empty() || name.as_bytes() == found_name
    }

    /// Size, sign and place of a field.
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

    /// The value of an enumerator of the enumeration `id`; `None` if there is no such one.
    pub fn enumerator(&self, id: TypeId, name: &str) -> Result<Option<u64>, BtfError> {
        Ok(self.resolve(id)?.and_then(|found| {
            found
                .enumerators()
                .find(|(offset, _)| without_flavour(self.name(*offset)) == name.as_bytes())
                .map(|(_, value)| value)
        }))
    }
}

/// The unit of memory that holds a bit field: the smallest aligned one, at least as large as its declared type.
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

/// A name without its `___flavour`: the part of a program's type name that is not the kernel's.
pub fn without_flavour(name: &[u8]) -> &[u8] {
    let is_separator = |window: &[u8]| window[0] != b'_' && &window[1..4] == b"___" && window[4] != b'_';
    match name.windows(5).rposition(is_separator) {
        Some(position) => &name[..=position],
        None => name,
    }
}

/// What a header tells of.
struct Sections<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    lengths: Lengths<'a>,
}

fn sections(bytes: &[u8]) -> Result<Sections<'_>, BtfError> {
    let too_short = BtfError::Header("shorter than its header");
    let magic = bytes.get(..2).ok_or(too_short)?;
    if magic != MAGIC.to_ne_bytes() {
        return Err(BtfError::Header("no BTF magic number"));
    }
    if bytes.get(2) != Some(&1) {
        return Err(BtfError::Header("version is not 1"));
    }
    let word = |offset| read_u32(bytes, offset).map(|word| word as usize);
    let header_len = word(4).ok_or(too_short)?;
    if header_len < HEADER_LEN {
        return Err(BtfError::Header("header length too small"));
    }
    let section = |at: usize| -> Option<&[u8]> {
        let start = header_len.checked_add(word(at)?)?;
        bytes.get(start..start.checked_add(word(at + 4)?)?)
    };
    let outside = BtfError::Header("a section lies outside the bytes");
    let layout = if header_len < HEADER_LEN_WITH_LAYOUT {
        &[]
    } else {
        section(24).ok_or(outside)?
    };
    Ok(Sections {
        types: section(8).ok_or(outside)?,
        strings: section(16).ok_or(outside)?,
        lengths: Lengths { layout },
    })
}

/// The bits of the info word, as the newest kernels divide it: older ones used five for the kind and sixteen for the
/// number of elements, and the bits between were zero.
fn kind_number(info: u32) -> u32 {
    info >> 24 & (KIND_NUMBERS as u32 - 1)
}

fn element_count(info: u32) -> u32 {
    info & 0xff_ffff
}

const KIND_NUMBERS: usize = 128;

/// How long types are.
#[derive(Clone, Copy, Debug)]
struct Lengths<'a> {
    /// What BTF says of each kind itself; empty where it does not.
    layout: &'a [u8],
}

impl Lengths<'_> {
    /// Length of a type with its trailer; `None` if neither we nor BTF know the kind.
    #[inline(always)]
    fn of(&self, info: u32) -> Option<usize> {
        let (fixed, each) = TRAILERS[kind_number(info) as usize];
        if fixed != 0 {
            return Some(fixed as usize + each as usize * element_count(info) as usize);
        }
        self.of_new_kind(info)
    }

    #[cold]
    fn of_new_kind(&self, info: u32) -> Option<usize> {
        let kind = kind_number(info) as usize;
        if kind == 0 {
            return None;
        }
        let entry = self.layout.get(kind * LAYOUT_LEN..)?.get(..LAYOUT_LEN)?;
        let (fixed, each) = (usize::from(entry[0]), usize::from(entry[1]));
        Some(TYPE_HEADER_LEN + fixed + each * element_count(info) as usize)
    }
}

/// By kind number: (header and what always follows it, bytes per element); 0 for kinds that this reader does not know.
static TRAILERS: [(u32, u32); KIND_NUMBERS] = {
    let mut table = [(0, 0); KIND_NUMBERS];
    let mut index = 0;
    while index < Kind::ALL.len() {
        let kind = Kind::ALL[index];
        let (fixed, each) = kind.trailer();
        table[kind as usize] = (TYPE_HEADER_LEN as u32 + fixed, each);
        index += 1;
    }
    table
};

fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

/// Whether exactly `name` stands at `offset`, ended by a zero byte.
fn starts_with_name(strings: &[u8], offset: u32, name: &[u8]) -> bool {
    strings
        .get(offset as usize..)
        .and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| rest.first() == Some(&0))
}

/// Tells quickly that a name is none of those wanted: nearly all are none.
#[derive(Debug)]
struct NameFilter<'w> {
    wanted: &'w [Wanted<'w>],
    kinds: Kinds,
    /// One bit for each hash of a wanted name's first eight bytes; 512 bytes, so always in the cache.
    bits: [u64; FILTER_WORDS],
}

const FILTER_WORDS: usize = 64;

impl<'w> NameFilter<'w> {
    fn new(wanted: &'w [Wanted<'w>]) -> Self {
        let mut filter = Self {
            wanted,
            kinds: Kinds(0),
            bits: [0; FILTER_WORDS],
        };
        for one in wanted {
            filter.kinds = filter.kinds.union(one.kinds);
            let mut head = [0; 8];
            let len = one.name.len().min(8);
            head[..len].copy_from_slice(&one.name.as_bytes()[..len]);
            let (word, bit) = Self::position(u64::from_le_bytes(head));
            filter.bits[word] |= 1 << bit;
        }
        filter
    }

    /// Where the bit for a name's head is.
    fn position(head: u64) -> (usize, u32) {
        let hash = head.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        ((hash >> 6) as usize, (hash & 63) as u32)
    }

    #[inline(always)]
    fn may_match(&self, strings: &[u8], name_offset: u32) -> bool {
        let (word, bit) = Self::position(name_head(strings, name_offset as usize));
        self.bits[word] >> bit & 1 != 0
    }

    #[cold]
    fn note_matches(&self, strings: &[u8], name_offset: u32, kind: u32, id: TypeId, found: &mut [Vec<TypeId>]) {
        for (one, ids) in self.wanted.iter().zip(found) {
            if one.kinds.has_number(kind) && starts_with_name(strings, name_offset, one.name.as_bytes()) {
                ids.push(id);
            }
        }
    }
}

/// The first eight bytes of a name, zero from its end on.
#[inline(always)]
fn name_head(strings: &[u8], offset: usize) -> u64 {
    let head = match strings.get(offset..).and_then(|rest| rest.first_chunk()) {
        Some(head) => u64::from_le_bytes(*head),
        None => {
            let mut head = [0; 8];
            let rest = strings.get(offset..).unwrap_or(&[]);
            head[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(head)
        }
    };
    // The lowest bit set here is the top bit of the first zero byte; bits above it mean nothing.
    let zeros = head.wrapping_sub(0x0101_0101_0101_0101) & !head & 0x8080_8080_8080_8080;
    if zeros == 0 {
        return head;
    }
    let first_zero_byte = (zeros & zeros.wrapping_neg()) >> 7;
    head & (first_zero_byte - 1)
}

#[cfg(test)]
pub(crate) mod tests;
