use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::Value;

use super::names::name_head;
use super::one_type::MEMBER_LEN;
use super::sections::{LAYOUT_LEN, TYPE_HEADER_LEN};
use super::*;

/// Builds a BTF.
#[derive(Default, Debug)]
pub(crate) struct Builder {
    types: Vec<u32>,
    strings: Vec<u8>,
    count: u32,
}

const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const ENUM: u32 = 6;
const FORWARD: u32 = 7;
const TYPEDEF: u32 = 8;
const CONST: u32 = 10;
const KIND_FLAG: u32 = 1 << 31;
/// A kind that the reader does not know.
const NEWER: u32 = 77;

impl Builder {
    fn name(&mut self, name: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        if name.is_empty() {
            return 0;
        }
        let offset = self.strings.len() as u32;
        self.strings.extend(name.bytes().chain([0]));
        offset
    }

    pub(crate) fn add(&mut self, kind: u32, name: &str, vlen: u32, size_or_type: u32, trailer: &[u32]) -> u32 {
        let name = self.name(name);
        self.types.extend([name, kind << 24 | vlen, size_or_type]);
        self.types.extend(trailer);
        self.count += 1;
        self.count
    }

    pub(crate) fn integer(&mut self, name: &str, size: u32, signed: bool) -> u32 {
        self.add(INT, name, 0, size, &[(u32::from(signed) << 24) | (size * 8)])
    }

    /// Adds a structure with members of (name, type, bit offset).
    pub(crate) fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let trailer: Vec<u32> = members
            .iter()
            .flat_map(|(name, id, offset)| [self.name(name), *id, *offset])
            .collect();
        self.add(STRUCT, name, members.len() as u32, size, &trailer)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let types_len = self.types.len() as u32 * 4;
        let strings_len = self.strings.len() as u32;
        let header = [0x0001_eb9f, 24, 0, types_len, types_len, strings_len];
        let words = header.iter().chain(&self.types);
        let mut bytes: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(&self.strings);
        bytes
    }

    /// The bytes in the newer form, with a layout section, which gives the lengths of types.
    fn bytes_with(&self, layout: &[u8]) -> Vec<u8> {
        let types_len = self.types.len() as u32 * 4;
        let strings_len = self.strings.len() as u32;
        let header = [0x0001_eb9f, 32, 0, types_len, types_len, strings_len];
        let place = [types_len + strings_len, layout.len() as u32];
        let words = header.iter().chain(&place).chain(&self.types);
        let mut bytes: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(&self.strings);
        bytes.extend(layout);
        bytes
    }
}

/// The offsets of the type section and of the string section.
fn starts(bytes: &[u8]) -> (usize, usize) {
    let word = |at| read_u32(bytes, at).unwrap() as usize;
    (word(4) + word(8), word(4) + word(16))
}

/// Renames a member of a structure, so that it is not found. `None` if the structure has no such
/// member.
pub(crate) fn without_member(bytes: &[u8], owner: &str, name: &str) -> Option<Vec<u8>> {
    let (types, found) = Types::scan(bytes, &[wanted(owner, Kind::Struct)]).unwrap();
    let members = types.get(*found[0].first()?).unwrap().trailer;
    let is_named = |member: &&[u8]| types.name(read_u32(member, 0).unwrap()) == name.as_bytes();
    let member = members.chunks_exact(MEMBER_LEN).find(is_named)?;
    let at = member.as_ptr() as usize - bytes.as_ptr() as usize;
    let mut changed = bytes.to_vec();
    // Not the empty name, which would make it an anonymous member.
    changed[at..at + 4].copy_from_slice(&1_u32.to_ne_bytes());
    Some(changed)
}

/// Appends a type of an unknown kind and length.
pub(crate) fn with_unknown_type(bytes: &[u8]) -> Vec<u8> {
    let unknown = [0, NEWER << 24 | 3, 0, 1, 2, 3, 4, 5];
    let unknown: Vec<u8> = unknown.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
    let (types_at, strings_at) = starts(bytes);
    let types_len = read_u32(bytes, 12).unwrap() as usize;
    let strings_len = read_u32(bytes, 20).unwrap() as usize;
    let types = &bytes[types_at..types_at + types_len];
    let strings = &bytes[strings_at..strings_at + strings_len];
    let all_len = (types_len + unknown.len()) as u32;
    let header = [0x0001_eb9f, 24, 0, all_len, all_len, strings_len as u32];
    let header: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    [&header, types, &unknown, strings].concat()
}

const ANY_INTEGER: Shape<'static> = Shape {
    dimensions: 0,
    base: Base::Integer,
};
const ANY_STRUCT: Shape<'static> = Shape {
    dimensions: 0,
    base: Base::Composite,
};

fn member<'n>(name: &'n str, shape: Shape<'n>) -> Step<'n> {
    Step::Member { name, shape }
}

fn wanted(name: &str, kind: Kind) -> Wanted<'_> {
    Wanted {
        name,
        kinds: Kinds::compatible_with(kind),
    }
}

fn measured(types: &Types<'_>, root: TypeId, steps: &[Step<'_>]) -> Option<Field> {
    let path = FieldPath { root_index: 0, steps };
    let location = types.locate(root, &path).unwrap()?;
    Some(types.measure(&location).unwrap())
}

/// A structure with everything that makes a path difficult, and its id.
fn difficult() -> (Vec<u8>, TypeId) {
    let mut btf = Builder::default();
    let int = btf.integer("int", 4, true);
    let unsigned = btf.integer("unsigned int", 4, false);
    let qualified = btf.add(CONST, "", 0, unsigned, &[]);
    let number = btf.add(TYPEDEF, "number_t", 0, qualified, &[]);
    let pointer = btf.add(POINTER, "", 0, 0, &[]);
    let array = btf.add(ARRAY, "", 0, 0, &[number, int, 5]);
    let flexible = btf.add(ARRAY, "", 0, 0, &[int, int, 0]);
    let colour = btf.add(ENUM, "colour", 2, 4, &[0, 3, 0, u32::MAX]);
    let inner = btf.structure("", 8, &[("deep", number, 32)]);
    let named = btf.structure("named", 4, &[("x", number, 0)]);
    let bits = btf.structure(
        "bits",
        8,
        &[
            ("low", unsigned, 3 << 24),
            ("high", int, 5 << 24 | 35),
            ("wide", unsigned, 20 << 24 | 20),
        ],
    );
    // The members of `bits` are bit fields.
    let position = btf.types.len() - 9 - 2;
    btf.types[position] |= KIND_FLAG;
    let members = [
        ("first", int, 0),
        ("", inner, 64),
        ("array", array, 128),
        ("pointer", pointer, 320),
        ("colour", colour, 384),
        ("sub", named, 416),
        ("bits", bits, 448),
        ("tail", flexible, 512),
    ];
    let root = btf.structure("root", 64, &members);
    btf.add(FORWARD, "root", 0, 0, &[]);
    (btf.bytes(), root)
}

/// Check that types are found by name and kind, except forward declarations.
#[test]
fn scan_finds_names() {
    let (bytes, root) = difficult();
    let names = [
        wanted("root", Kind::Struct),
        wanted("number_t", Kind::Typedef),
        wanted("number_t", Kind::Struct),
        wanted("roo", Kind::Struct),
        wanted("named", Kind::Struct),
    ];
    let (types, found) = Types::scan(&bytes, &names).unwrap();
    assert_eq!(found, [vec![root], vec![4], vec![], vec![], vec![10]]);
    assert_eq!(types.count(), 13);
    assert_eq!(types.name(types.get(root).unwrap().name_offset()), b"root");
}

/// Check offsets and sizes through anonymous members, arrays, typedefs and a flexible array.
#[test]
fn fields_are_measured() {
    let (bytes, root) = difficult();
    let (types, _) = Types::scan(&bytes, &[]).unwrap();
    let place = |steps: &[Step<'_>]| measured(&types, root, steps).map(|field| (field.byte_offset, field.byte_size));
    let array = Shape {
        dimensions: 1,
        base: Base::Integer,
    };
    assert_eq!(place(&[member("first", ANY_INTEGER)]), Some((0, 4)));
    assert_eq!(place(&[member("deep", ANY_INTEGER)]), Some((12, 4)));
    assert_eq!(place(&[member("array", array)]), Some((16, 20)));
    let third = [member("array", array), Step::Element(2)];
    assert_eq!(place(&third), Some((24, 4)));
    assert_eq!(place(&[member("array", array), Step::Element(5)]), None);
    assert_eq!(place(&[member("tail", array), Step::Element(7)]), Some((92, 4)));
    let sub = [member("sub", ANY_STRUCT), member("x", ANY_INTEGER)];
    assert_eq!(place(&sub), Some((52, 4)));
    assert_eq!(place(&[member("missing", ANY_INTEGER)]), None);
    assert_eq!(place(&[member("first", ANY_STRUCT)]), None);
    let colour = |name| {
        let base = Base::Enum(name);
        member("colour", Shape { dimensions: 0, base })
    };
    assert_eq!(place(&[colour("colour")]), Some((48, 4)));
    assert_eq!(place(&[colour("")]), Some((48, 4)));
    assert_eq!(place(&[colour("color")]), None);
}

/// Check the unit, shifts and sign of bit fields. One of them extends past a unit of its declared
/// type.
#[test]
fn bit_fields_are_measured() {
    let (bytes, _) = difficult();
    let (types, found) = Types::scan(&bytes, &[wanted("bits", Kind::Struct)]).unwrap();
    let facts = |name| {
        let field = measured(&types, found[0][0], &[member(name, ANY_INTEGER)]).unwrap();
        [
            FieldFact::ByteOffset,
            FieldFact::ByteSize,
            FieldFact::LeftShift,
            FieldFact::RightShift,
            FieldFact::Signed,
        ]
        .map(|fact| field.value(fact).unwrap())
    };
    assert_eq!(facts("low"), [0, 4, 61, 61, 0]);
    assert_eq!(facts("high"), [4, 4, 56, 59, 1]);
    assert_eq!(facts("wide"), [0, 8, 24, 44, 0]);
}

/// Check that a structure that contains itself, and one of exponential width, are errors.
#[test]
fn circles_are_errors() {
    let mut btf = Builder::default();
    let own_id = 1;
    btf.structure("loop", 4, &[("", own_id, 0), ("", own_id, 0)]);
    let own_id = 2;
    btf.add(TYPEDEF, "loop_t", 0, own_id, &[]);
    let bytes = btf.bytes();
    let (types, _) = Types::scan(&bytes, &[]).unwrap();
    let path = FieldPath {
        root_index: 0,
        steps: &[member("x", ANY_INTEGER)],
    };
    assert_eq!(types.locate(1, &path).unwrap_err(), BtfError::TooComplex);
    assert_eq!(types.size_of(2).unwrap_err(), BtfError::TooComplex);

    let mut btf = Builder::default();
    for level in 0..30 {
        btf.structure("", 4, &[("", level, 0), ("", level, 0), ("", level, 0)]);
    }
    let bytes = btf.bytes();
    let (types, _) = Types::scan(&bytes, &[]).unwrap();
    assert_eq!(types.locate(30, &path).unwrap_err(), BtfError::TooComplex);
}

/// Check that only a flavour is removed from a name.
#[test]
fn flavours_are_stripped() {
    let cases: [(&[u8], &[u8]); 6] = [
        (b"task_struct___old", b"task_struct"),
        (b"task_struct", b"task_struct"),
        (b"a___b___c", b"a___b"),
        (b"___a", b"___a"),
        (b"a___", b"a___"),
        (b"", b""),
    ];
    for (name, expected) in cases {
        assert_eq!(without_flavour(name), expected);
    }
}

/// Check the first eight bytes of shorter, longer and equal names, also at the end of the section.
#[test]
fn name_heads() {
    let strings = b"\0abc\0abcdefgh\0abcdefghi\0xyz\0";
    assert_eq!(name_head(strings, 1), name_head(b"abc\0zzzzzz", 0));
    assert_eq!(name_head(strings, 5), u64::from_le_bytes(*b"abcdefgh"));
    assert_eq!(name_head(strings, 14), u64::from_le_bytes(*b"abcdefgh"));
    assert_eq!(name_head(strings, 24), u64::from_le_bytes(*b"xyz\0\0\0\0\0"));
    assert_eq!(name_head(strings, 0), 0);
    assert_eq!(name_head(strings, 99), 0);
}

fn bytes_of_host() -> Vec<u8> {
    fs::read("/sys/kernel/btf/vmlinux").expect("this test needs a kernel with BTF")
}

/// All types as bpftool prints them, by id. Running bpftool takes seconds, so all tests share the
/// result.
static TYPES_BY_BPFTOOL: LazyLock<HashMap<u64, Value>> = LazyLock::new(types_by_bpftool);

fn types_by_bpftool() -> HashMap<u64, Value> {
    let arguments = ["btf", "dump", "-j", "file", "/sys/kernel/btf/vmlinux"];
    let output = ["bpftool", "/usr/sbin/bpftool"]
        .into_iter()
        .find_map(|program| Command::new(program).args(arguments).output().ok())
        .expect("this test needs bpftool");
    assert!(output.status.success(), "bpftool failed");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let types = all["types"].as_array().unwrap().iter().cloned();
    types.map(|one| (one["id"].as_u64().unwrap(), one)).collect()
}

/// The bit offset and type of a member, found by a plain search in bpftool's output.
fn member_by_bpftool(all: &HashMap<u64, Value>, owner: u64, name: &str) -> Option<(u64, u64)> {
    let owner = &all[&through_modifiers(all, owner)];
    for member in owner["members"].as_array()? {
        let (offset, id) = (
            member["bits_offset"].as_u64().unwrap(),
            member["type_id"].as_u64().unwrap(),
        );
        if member["name"] == name {
            return Some((offset, id));
        }
        if member["name"] == "(anon)" {
            if let Some((inner, id)) = member_by_bpftool(all, id, name) {
                return Some((offset + inner, id));
            }
        }
    }
    None
}

fn through_modifiers(all: &HashMap<u64, Value>, id: u64) -> u64 {
    match all[&id]["kind"].as_str().unwrap() {
        "TYPEDEF" | "CONST" | "VOLATILE" | "RESTRICT" | "TYPE_TAG" => {
            through_modifiers(all, all[&id]["type_id"].as_u64().unwrap())
        }
        _ => id,
    }
}

fn size_by_bpftool(all: &HashMap<u64, Value>, id: u64) -> u64 {
    let inner = &all[&through_modifiers(all, id)];
    match inner["kind"].as_str().unwrap() {
        "PTR" => 8,
        "ARRAY" => {
            let elements = inner["nr_elems"].as_u64().unwrap();
            elements * size_by_bpftool(all, inner["type_id"].as_u64().unwrap())
        }
        _ => inner["size"].as_u64().unwrap(),
    }
}

/// The shape that a program would have if it was compiled with this type.
fn shape_of(types: &Types<'_>, id: TypeId) -> Shape<'static> {
    let mut dimensions = 0;
    let mut current = types.resolve(id).unwrap().unwrap();
    while let Some((element, _)) = current.array() {
        dimensions += 1;
        current = types.resolve(element).unwrap().unwrap();
    }
    let base = match current.kind() {
        Kind::Struct | Kind::Union => Base::Composite,
        Kind::Pointer => Base::Pointer,
        Kind::Integer => Base::Integer,
        Kind::Enum | Kind::Enum64 => Base::Enum(""),
        _ => Base::Other,
    };
    Shape { dimensions, base }
}

/// Check that offsets and sizes on this kernel are those that bpftool prints.
#[test]
fn host_agrees_with_bpftool() {
    const FIELDS: &[(&str, &[&str])] = &[
        ("task_struct", &["pid"]),
        ("task_struct", &["comm"]),
        ("task_struct", &["__state"]),
        ("task_struct", &["cpus_mask"]),
        ("task_struct", &["se", "sum_exec_runtime"]),
        ("task_struct", &["thread_pid"]),
        ("task_struct", &["in_execve"]),
        ("task_struct", &["sched_remote_wakeup"]),
        ("mm_struct", &["arg_start"]),
        ("mm_struct", &["exe_file"]),
        ("mm_struct", &["total_vm"]),
        ("mm_struct", &["rss_stat"]),
        ("cred", &["uid", "val"]),
        ("cred", &["cap_effective"]),
        ("signal_struct", &["rlim"]),
        ("signal_struct", &["group_exit_code"]),
        ("signal_struct", &["is_child_subreaper"]),
        ("pid", &["level"]),
        ("pid", &["numbers"]),
        ("upid", &["ns"]),
        ("file", &["f_path", "dentry"]),
        ("nsproxy", &["time_ns"]),
        ("css_set", &["dfl_cgrp"]),
        ("kernfs_node", &["id"]),
        ("files_struct", &["fdt"]),
        ("page", &["mapping"]),
        ("seq_file", &["private"]),
        ("io_context", &["ioprio"]),
        ("vm_area_struct", &["vm_start"]),
    ];
    let bytes = bytes_of_host();
    let names: Vec<_> = FIELDS.iter().map(|(name, _)| wanted(name, Kind::Struct)).collect();
    let (types, found) = Types::scan(&bytes, &names).unwrap();
    let all = &*TYPES_BY_BPFTOOL;
    assert_eq!(types.count() as usize, all.len());
    let mut compared = 0;
    for ((root_name, names), ids) in FIELDS.iter().zip(found) {
        let named = all
            .values()
            .filter(|one| one["kind"] == "STRUCT" && one["name"] == *root_name);
        let mut expected_ids: Vec<_> = named.map(|one| one["id"].as_u64().unwrap()).collect();
        expected_ids.sort_unstable();
        assert_eq!(expected_ids, ids.iter().map(|id| u64::from(*id)).collect::<Vec<_>>());
        for root in ids {
            compared += u32::from(compare_field(&types, all, root, names));
        }
    }
    assert!(compared >= 20, "only {compared} fields could be compared");
}

/// Compares one field. Returns false if this kernel lacks it; both must agree on that.
fn compare_field(types: &Types<'_>, all: &HashMap<u64, Value>, root: TypeId, names: &[&str]) -> bool {
    let expected = names.iter().try_fold((0, u64::from(root)), |(offset, id), name| {
        let (inner, id) = member_by_bpftool(all, id, name)?;
        Some((offset + inner, id))
    });
    let Some((bit_offset, id)) = expected else {
        let steps: Vec<_> = names.iter().map(|name| member(name, ANY_INTEGER)).collect();
        assert_eq!(measured(types, root, &steps), None, "{names:?}");
        return false;
    };
    let last_shape = shape_of(types, id as TypeId);
    let steps: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let is_last = index + 1 == names.len();
            member(name, if is_last { last_shape } else { ANY_STRUCT })
        })
        .collect();
    let path = FieldPath {
        root_index: 0,
        steps: &steps,
    };
    let location = types.locate(root, &path).unwrap().expect("bpftool has it");
    assert_eq!(location.bit_offset(), bit_offset, "{names:?}");
    let field = types.measure(&location).unwrap();
    if !field.is_bit_field {
        assert_eq!(u64::from(field.byte_size), size_by_bpftool(all, id), "{names:?}");
    }
    true
}

/// Check that types of this kernel are found by their ids.
#[test]
fn host_types_by_id() {
    let bytes = bytes_of_host();
    let (types, _) = Types::scan(&bytes, &[]).unwrap();
    let all = &*TYPES_BY_BPFTOOL;
    for id in (1..=types.count()).step_by(97) {
        let found = types.get(id).unwrap();
        let expected = all[&u64::from(id)]["name"].as_str().unwrap();
        let expected = expected.strip_prefix("(anon)").unwrap_or(expected);
        assert_eq!(types.name(found.name_offset()), expected.as_bytes());
    }
    assert!(types.get(types.count() + 1).is_err());
    assert!(types.get(0).is_err());
}

/// Check that types before one of unknown length are found, and that types after it are not
/// reported as missing.
#[test]
fn unknown_kinds_end_the_walk() {
    let mut btf = Builder::default();
    let int = btf.integer("int", 4, true);
    let first = btf.structure("first", 4, &[("x", int, 0)]);
    let pointer = btf.add(POINTER, "", 0, 5, &[]);
    let unknown = btf.add(NEWER, "", 1, 0, &[7, 8, 9]);
    btf.structure("last", 4, &[("x", int, 0)]);
    let bytes = btf.bytes();
    let names = [wanted("first", Kind::Struct), wanted("last", Kind::Struct)];
    let (types, found) = Types::scan(&bytes, &names).unwrap();
    assert_eq!(found, [vec![first], vec![]]);
    let stop = BtfError::UnknownKind {
        id: unknown,
        kind: NEWER,
    };
    assert_eq!(types.stopped_by(), Some(stop));
    assert_eq!(types.count(), 3);
    assert_eq!(types.get(unknown).unwrap_err(), stop);
    let referred = types.get(pointer).unwrap().referred();
    assert_eq!(types.size_of(referred).unwrap_err(), stop);
}

/// Check that a type of an unknown kind is skipped if the BTF has its length.
#[test]
fn layouts_have_lengths() {
    let mut btf = Builder::default();
    let int = btf.integer("int", 4, true);
    let unknown = btf.add(NEWER, "", 2, 0, &[7, 8, 9, 10, 11]);
    // More elements than 16 bits can count.
    let many: Vec<_> = (0..70_000).map(|_| ("", int, 0)).collect();
    let wide = btf.structure("wide", 4, &many);
    let last = btf.structure("last", 4, &[("x", int, 0)]);
    let mut layout = vec![0; (NEWER as usize + 1) * LAYOUT_LEN];
    layout[NEWER as usize * LAYOUT_LEN..].copy_from_slice(&[4, 8, 0, 0]);
    let bytes = btf.bytes_with(&layout);
    let names = [wanted("wide", Kind::Struct), wanted("last", Kind::Struct)];
    let (types, found) = Types::scan(&bytes, &names).unwrap();
    assert_eq!(found, [vec![wide], vec![last]]);
    assert_eq!((types.stopped_by(), types.count()), (None, last));
    let error = BtfError::UnknownKind {
        id: unknown,
        kind: NEWER,
    };
    assert_eq!(types.get(unknown).unwrap_err(), error);
    let x = member("x", ANY_INTEGER);
    assert_eq!(measured(&types, last, &[x]).unwrap().byte_size, 4);
    let cut = &bytes[..bytes.len() - 1];
    assert!(matches!(Types::scan(cut, &names), Err(BtfError::Header(_))));
}

/// Calls all functions.
fn exercise(bytes: &[u8]) {
    let names = [
        wanted("root", Kind::Struct),
        wanted("colour", Kind::Enum),
        wanted("", Kind::Struct),
    ];
    let Ok((types, found)) = Types::scan(bytes, &names) else {
        return;
    };
    let found_count: usize = found.iter().map(Vec::len).sum();
    assert!(found_count <= names.len() * bytes.len() / TYPE_HEADER_LEN);
    assert!(types.checkpoints.capacity() <= bytes.len());
    let names = [
        "first", "deep", "array", "pointer", "colour", "sub", "low", "high", "wide", "tail",
    ];
    let facts = [FieldFact::LeftShift, FieldFact::RightShift, FieldFact::Signed];
    for id in 0..=types.count() + 1 {
        let _ = types.size_of(id);
        let _ = types.enumerator(id, "red");
        for name in names {
            for base in [Base::Integer, Base::Composite, Base::Pointer, Base::Enum("colour")] {
                for dimensions in [0, 1] {
                    let steps = [member(name, Shape { dimensions, base }), Step::Element(1)];
                    for steps in [&steps[..1], &steps[..]] {
                        let path = FieldPath {
                            root_index: id % 3,
                            steps,
                        };
                        let Ok(Some(location)) = types.locate(id, &path) else {
                            continue;
                        };
                        let Ok(field) = types.measure(&location) else {
                            continue;
                        };
                        for fact in facts {
                            let _ = field.value(fact);
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Check that no bytes cause a panic.
    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise(&bytes);
    }

    /// Check that no types and strings cause a panic.
    #[test]
    fn arbitrary_sections(
        types in prop::collection::vec(prop_oneof![0_u32..20, (1_u32..20).prop_map(|kind| kind << 24 | 2), any::<u32>()], 0..100),
        strings in prop::collection::vec(any::<u8>(), 0..50),
        layout in prop::collection::vec(any::<u8>(), 0..500),
    ) {
        let builder = Builder { types, strings, count: 0 };
        exercise(&builder.bytes());
        exercise(&builder.bytes_with(&layout));
    }

    /// Check that no damage to correct bytes causes a panic.
    #[test]
    fn damaged_bytes(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let (mut bytes, _) = difficult();
        for (index, value) in damage {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        exercise(&bytes);
    }
}
