//! The types of one BTF.

use super::names::{starts_with_name, NameFilter};
use super::sections::{kind_number, sections, Lengths, Sections, TYPE_HEADER_LEN};
use super::{read_u32, without_flavour, BtfError, Kind, Type, TypeId, Wanted, MAX_DEPTH};

/// How many types there are for each remembered offset. Few enough to walk over, and enough for the
/// offsets to stay in the first-level cache.
const TYPES_PER_CHECKPOINT: u32 = 16;

const POINTER_BYTES: u32 = 8;

/// All types of one BTF, by their ids.
#[derive(Debug)]
pub struct Types<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    lengths: Lengths,
    /// The offset of every [`TYPES_PER_CHECKPOINT`]th type, from type 1 on.
    pub(super) checkpoints: Vec<u32>,
    count: u32,
    /// Why no types after the last one are known, if there are more.
    stopped_by: Option<BtfError>,
}

impl<'a> Types<'a> {
    /// Walks over `bytes` once. Returns the types, and for each of `wanted` the ids of the types
    /// that match it, ascending.
    ///
    /// Only programs use a `___flavour`: a kernel type whose name had one would not be found.
    ///
    /// A type of unknown length ends the walk: see [`Types::stopped_by`].
    pub fn scan(bytes: &'a [u8], wanted: &[Wanted<'_>]) -> Result<(Self, Vec<Vec<TypeId>>), BtfError> {
        let Sections {
            types,
            strings,
            lengths,
        } = sections(bytes)?;
        let names = NameFilter::new(wanted);
        let mut found = vec![Vec::new(); wanted.len()];
        let mut checkpoints = Vec::with_capacity(types.len() / TYPE_HEADER_LEN / TYPES_PER_CHECKPOINT as usize + 1);
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

    /// The number of types, without `void`.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Why the walk ended early, if it did. There may then be more types than [`Types::count`],
    /// including wanted ones.
    pub fn stopped_by(&self) -> Option<BtfError> {
        self.stopped_by
    }

    /// The type with an id other than that of `void`.
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

    /// The name at an offset of the string section; empty if there is none.
    pub fn name(&self, offset: u32) -> &'a [u8] {
        let rest = self.strings.get(offset as usize..).unwrap_or(&[]);
        let len = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
        &rest[..len]
    }

    /// The type without typedefs and qualifiers. `None` if it is `void`.
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

    /// The size of a type in bytes.
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

    pub(super) fn name_is(&self, offset: u32, name: &[u8]) -> bool {
        starts_with_name(self.strings, offset, name)
    }

    /// The value of an enumerator of the enumeration `id`. `None` if it does not have it.
    pub fn enumerator(&self, id: TypeId, name: &str) -> Result<Option<u64>, BtfError> {
        Ok(self.resolve(id)?.and_then(|found| {
            found
                .enumerators()
                .find(|(offset, _)| without_flavour(self.name(*offset)) == name.as_bytes())
                .map(|(_, value)| value)
        }))
    }
}
