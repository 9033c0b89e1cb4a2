//! CO-RE relocations: replaces the type ids of the object's own BTF with names.

use crate::btf::{
    without_flavour, Base, Field, FieldFact, FieldPath, Kind, LoadClass, Shape, Step, Type, TypeId, Types,
};

/// A record of `.BTF.ext`: `struct bpf_core_relo`.
#[derive(Clone, Copy, Debug)]
pub struct Record<'d> {
    /// The index of the instruction in its section.
    pub instruction: usize,
    pub type_id: TypeId,
    pub access: &'d str,
    pub kind: u32,
}

/// What a record asks for, with names instead of type ids.
#[derive(Debug)]
pub enum Question<'d> {
    Field {
        root: Root<'d>,
        path: Path<'d>,
        fact: FieldFact,
        /// The field in the object; `None` if it has no size.
        compiled: Option<Field>,
    },
    Type {
        root: Root<'d>,
        fact: &'static str,
    },
    Enumerator {
        root: Root<'d>,
        name: &'d str,
        fact: &'static str,
    },
}

/// The type that a record starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root<'d> {
    /// The id in the object's BTF. Two flavours of one kernel type have different ids.
    pub id: TypeId,
    pub name: &'d str,
    pub kind: Kind,
    pub shape: Shape<'d>,
}

/// An owned [`FieldPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'d> {
    pub root_index: u32,
    pub steps: Vec<Step<'d>>,
}

/// Reads the CO-RE records of the section `section` from `.BTF.ext`.
pub fn records<'d>(ext: &[u8], strings: &Strings<'d>, section: &str) -> Result<Vec<Record<'d>>, String> {
    const RECORD_LEN: usize = 16;
    let truncated = || ".BTF.ext is incomplete".to_owned();
    let word = |offset: usize| -> Result<usize, String> {
        let bytes = ext
            .get(offset..)
            .and_then(|rest| rest.first_chunk())
            .ok_or_else(truncated)?;
        Ok(u32::from_le_bytes(*bytes) as usize)
    };
    let header_len = word(4)?;
    let (start, len) = (header_len + word(24)?, word(28)?);
    if len == 0 {
        return Ok(Vec::new());
    }
    let record_len = word(start)?;
    if record_len < RECORD_LEN {
        return Err("the records of .BTF.ext are too short".to_owned());
    }
    let mut found = Vec::new();
    let mut offset = start + 4;
    while offset < start + len {
        let (name, count) = (strings.at(word(offset)?)?, word(offset + 4)?);
        offset += 8;
        if name == section {
            for at in (offset..).step_by(record_len).take(count) {
                found.push(Record {
                    instruction: word(at)? / super::object_file::INSTRUCTION_LEN,
                    type_id: word(at + 4)? as TypeId,
                    access: strings.at(word(at + 8)?)?,
                    kind: word(at + 12)? as u32,
                });
            }
        }
        offset += count * record_len;
    }
    Ok(found)
}

/// The strings of `.BTF`.
pub struct Strings<'d>(&'d [u8]);

impl<'d> Strings<'d> {
    pub fn of(btf: &'d [u8]) -> Result<Self, String> {
        let word = |offset: usize| {
            btf.get(offset..)
                .and_then(|rest| rest.first_chunk())
                .map(|bytes| u32::from_le_bytes(*bytes) as usize)
        };
        let start = || Some(word(4)? + word(16)?);
        start()
            .and_then(|start| btf.get(start..))
            .map(Self)
            .ok_or_else(|| ".BTF is incomplete".to_owned())
    }

    fn at(&self, offset: usize) -> Result<&'d str, String> {
        let rest = self.0.get(offset..).unwrap_or(&[]);
        let len = rest.iter().position(|byte| *byte == 0);
        text(&rest[..len.unwrap_or(0)])
    }
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| error.to_string())
}

/// Translates a record. Its kind is a number of `enum bpf_core_relo_kind`.
pub fn question<'d>(types: &Types<'d>, record: &Record<'d>) -> Result<Question<'d>, String> {
    let root = root(types, record.type_id)?;
    let numbers = access_numbers(record.access)?;
    match record.kind {
        0 => field(types, root, &numbers, FieldFact::ByteOffset),
        1 => field(types, root, &numbers, FieldFact::ByteSize),
        2 => field(types, root, &numbers, FieldFact::Exists),
        3 => field(types, root, &numbers, FieldFact::Signed),
        4 => field(types, root, &numbers, FieldFact::LeftShift),
        5 => field(types, root, &numbers, FieldFact::RightShift),
        7 => Ok(Question::Type { root, fact: "Id" }),
        8 => Ok(Question::Type { root, fact: "Exists" }),
        9 => Ok(Question::Type { root, fact: "Size" }),
        10 => enumerator(types, root, &numbers, "Exists"),
        11 => enumerator(types, root, &numbers, "Value"),
        other => Err(format!("CO-RE relocation of kind {other} is not supported")),
    }
    .map_err(|error| format!("{}, access {}: {error}", root.name, record.access))
}

fn access_numbers(access: &str) -> Result<Vec<u32>, String> {
    access
        .split(':')
        .map(|number| number.parse().map_err(|_| format!("invalid access string {access:?}")))
        .collect()
}

fn root<'d>(types: &Types<'d>, id: TypeId) -> Result<Root<'d>, String> {
    let found = types.get(id).map_err(|error| error.to_string())?;
    let name = text(without_flavour(types.name(found.name_offset())))?;
    let nameable = matches!(
        found.kind(),
        Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Typedef
    );
    if !nameable || name.is_empty() {
        return Err(format!(
            "a relocation refers to type {id}, a {:?} with the name {name:?}, which can't be found by name",
            found.kind()
        ));
    }
    Ok(Root {
        id,
        name,
        kind: found.kind(),
        shape: shape(types, id)?,
    })
}

fn shape<'d>(types: &Types<'d>, id: TypeId) -> Result<Shape<'d>, String> {
    let mut dimensions: u8 = 0;
    let mut current = resolve(types, id)?;
    while let Some((element, _)) = current.and_then(|array| array.array()) {
        dimensions = dimensions.checked_add(1).ok_or("too many array dimensions")?;
        current = resolve(types, element)?;
    }
    let base = match current.map(|base| (base, base.kind())) {
        Some((_, Kind::Struct | Kind::Union)) => Base::Composite,
        Some((_, Kind::Pointer)) => Base::Pointer,
        Some((_, Kind::Float)) => Base::Float,
        Some((_, Kind::Integer)) => Base::Integer,
        Some((base, Kind::Enum | Kind::Enum64)) => Base::Enum(text(without_flavour(types.name(base.name_offset())))?),
        _ => Base::Other,
    };
    Ok(Shape { dimensions, base })
}

fn resolve<'d>(types: &Types<'d>, id: TypeId) -> Result<Option<Type<'d>>, String> {
    types.resolve(id).map_err(|error| error.to_string())
}

fn field<'d>(types: &Types<'d>, root: Root<'d>, numbers: &[u32], fact: FieldFact) -> Result<Question<'d>, String> {
    let path = path(types, root.id, numbers)?;
    let borrowed = FieldPath {
        root_index: path.root_index,
        steps: &path.steps,
    };
    let location = types
        .locate(root.id, &borrowed)
        .map_err(|error| error.to_string())?
        .ok_or("the type in the object lacks the field")?;
    let compiled = types.measure(&location).ok();
    Ok(Question::Field {
        root,
        path,
        fact,
        compiled,
    })
}

/// Replaces the indexes of members with their names. Leaves out anonymous members, because other
/// kernels may nest them differently.
fn path<'d>(types: &Types<'d>, root: TypeId, numbers: &[u32]) -> Result<Path<'d>, String> {
    let (root_index, rest) = numbers.split_first().ok_or("the access string is empty")?;
    let mut steps = Vec::new();
    let mut current = root;
    for &number in rest {
        let owner = resolve(types, current)?.ok_or("void has no members")?;
        if let Some((element, _)) = owner.array() {
            steps.push(Step::Element(number));
            current = element;
            continue;
        }
        let member = owner.member(number).ok_or("the member does not exist")?;
        let name = text(types.name(member.name_offset))?;
        if !name.is_empty() {
            let shape = shape(types, member.type_id)?;
            steps.push(Step::Member { name, shape });
        }
        current = member.type_id;
    }
    Ok(Path {
        root_index: *root_index,
        steps,
    })
}

fn enumerator<'d>(
    types: &Types<'d>,
    root: Root<'d>,
    numbers: &[u32],
    fact: &'static str,
) -> Result<Question<'d>, String> {
    let owner = resolve(types, root.id)?.ok_or("void has no enumerators")?;
    let number = *numbers.first().ok_or("the access string is empty")? as usize;
    let (name_offset, _) = owner.enumerators().nth(number).ok_or("the enumerator does not exist")?;
    Ok(Question::Enumerator {
        root,
        name: text(without_flavour(types.name(name_offset)))?,
        fact,
    })
}

/// The size and class of the loads of a field.
pub fn load(compiled: Option<&Field>) -> (u32, LoadClass) {
    compiled.map_or((0, LoadClass::Fixed), |field| (field.load_size(), field.load_class))
}
