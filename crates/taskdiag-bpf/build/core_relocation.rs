//! CO-RE relocations: replaces the type ids of the object's own BTF with names.

use super::program::{immediate, intern, opcode, Tables};
use crate::btf::{
    read_u32, without_flavour, Base, FieldFact, FieldPath, Kind, LoadClass, Shape, Step, Type, TypeId, Types,
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

/// Reads the CO-RE records of the section `section` from `.BTF.ext`.
pub fn records<'d>(ext: &[u8], strings: &Strings<'d>, section: &str) -> Result<Vec<Record<'d>>, String> {
    const RECORD_LEN: usize = 16;
    let word = |offset| match read_u32(ext, offset) {
        Some(word) => Ok(word as usize),
        None => Err(".BTF.ext is incomplete".to_owned()),
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
        let word = |offset| read_u32(btf, offset).map(|word| word as usize);
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

/// Translates a record to the `Target` of its instruction, as Rust text. Its kind is a number of
/// `enum bpf_core_relo_kind`.
pub fn target(types: &Types<'_>, record: &Record<'_>, instruction: u64, tables: &mut Tables) -> Result<String, String> {
    let (name, entry) = root(types, record.type_id)?;
    let root = intern(&mut tables.roots, (record.type_id, entry));
    let numbers = access_numbers(record.access)?;
    let mut field = |fact| {
        let entry = field(types, (record.type_id, root), &numbers, (instruction, fact))?;
        let field = intern(&mut tables.fields, entry);
        Ok(format!("Target::Field {{ field: {field}, fact: FieldFact::{fact:?} }}"))
    };
    let of_type = |fact| Ok(format!("Target::Type {{ root: {root}, fact: TypeFact::{fact} }}"));
    let enumerator = |fact| {
        let name = enumerator(types, record.type_id, &numbers)?;
        Ok(format!(
            "Target::Enumerator {{ root: {root}, name: {name:?}, fact: EnumeratorFact::{fact} }}"
        ))
    };
    match record.kind {
        0 => field(FieldFact::ByteOffset),
        1 => field(FieldFact::ByteSize),
        2 => field(FieldFact::Exists),
        3 => field(FieldFact::Signed),
        4 => field(FieldFact::LeftShift),
        5 => field(FieldFact::RightShift),
        7 => of_type("Id"),
        8 => of_type("Exists"),
        9 => of_type("Size"),
        10 => enumerator("Exists"),
        11 => enumerator("Value"),
        other => Err(format!("CO-RE relocation of kind {other} is not supported")),
    }
    .map_err(|error| format!("{name}, access {}: {error}", record.access))
}

fn access_numbers(access: &str) -> Result<Vec<u32>, String> {
    access
        .split(':')
        .map(|number| number.parse().map_err(|_| format!("invalid access string {access:?}")))
        .collect()
}

/// The name of the type that a record starts from, and the `Root`, as Rust text. Two flavours of one
/// kernel type have different ids.
fn root<'d>(types: &Types<'d>, id: TypeId) -> Result<(&'d str, String), String> {
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
    let (kind, shape) = (found.kind(), shape(types, id)?);
    let entry = format!("Root {{ name: {name:?}, kind: Kind::{kind:?}, shape: {shape:?} }}");
    Ok((name, entry))
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

/// The `FieldAccess` of a field of a type, which is at this index among the roots, as Rust text.
fn field(
    types: &Types<'_>,
    (root, number): (TypeId, usize),
    numbers: &[u32],
    (instruction, fact): (u64, FieldFact),
) -> Result<String, String> {
    let (root_index, steps) = path(types, root, numbers)?;
    let path = FieldPath {
        root_index,
        steps: &steps,
    };
    let location = types
        .locate(root, &path)
        .map_err(|error| error.to_string())?
        .ok_or("the type in the object lacks the field")?;
    // Absent if the field has no size.
    let compiled = types.measure(&location).ok();
    if let Some(field) = compiled.as_ref().filter(|field| !field.is_bit_field) {
        // If a record was misread, only a wrong value on another kernel would show it.
        let expected = field.value(fact).map_err(|error| error.to_string())?;
        let found = match opcode(instruction) & 7 {
            1..=3 => (instruction >> 16) as i16 as u64,
            _ => immediate(instruction) as u64,
        };
        if expected != found {
            return Err(format!("{fact:?} is {expected}, but the instruction has {found}"));
        }
    }
    let load = compiled.map(|field| (field.load_size(), field.load_class));
    let (size, class) = load.unwrap_or((0, LoadClass::Fixed));
    Ok(format!(
        "FieldAccess {{ root: {number}, path: FieldPath {{ root_index: {root_index}, steps: &{steps:?} }}, \
         load_size: {size}, load_class: LoadClass::{class:?} }}"
    ))
}

/// Replaces the indexes of members with their names. Leaves out anonymous members, because other
/// kernels may nest them differently.
fn path<'d>(types: &Types<'d>, root: TypeId, numbers: &[u32]) -> Result<(u32, Vec<Step<'d>>), String> {
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
    Ok((*root_index, steps))
}

/// The name of an enumerator.
fn enumerator<'d>(types: &Types<'d>, root: TypeId, numbers: &[u32]) -> Result<&'d str, String> {
    let owner = resolve(types, root)?.ok_or("void has no enumerators")?;
    let number = *numbers.first().ok_or("the access string is empty")? as usize;
    let (name_offset, _) = owner.enumerators().nth(number).ok_or("the enumerator does not exist")?;
    text(without_flavour(types.name(name_offset)))
}
