use super::*;
use crate::btf::tests::Builder;
use crate::btf::{Base, FieldPath, Shape};
use crate::recipe::Attach;

const INTEGER: Shape<'static> = Shape {
    dimensions: 0,
    base: Base::Integer,
};
/// `r1 = *(u32 *)(r2 + 4)`
const LOAD: u64 = 0x0004_2161;
/// `r1 = 4`
const MOVE: u64 = 0x4_0000_01b7;
const POISON: u64 = 0x0bad_2310_0000_0085;

/// A program that was compiled with an unsigned `root.x` at offset 4. It loads the field, and moves
/// its offset and existence to a register.
static RECIPE: Recipe = Recipe {
    name: "TEST",
    licence: c"GPL",
    programs: &[PROGRAM],
    maps: &[],
    data: &[],
    roots: &[Root {
        name: "root",
        kind: Kind::Struct,
        shape: Shape {
            dimensions: 0,
            base: Base::Composite,
        },
    }],
    fields: &[FieldAccess {
        root: 0,
        path: FieldPath {
            root_index: 0,
            steps: &[Step::Member {
                name: "x",
                shape: INTEGER,
            }],
        },
        load_size: 4,
        load_class: LoadClass::Unsigned,
    }],
    kernel_symbols: &[],
};

const PROGRAM: Program = Program {
    name: "program",
    attach: Attach::Iterator("bpf_iter_task"),
    instructions: &[LOAD, MOVE, MOVE],
    relocations: &[
        at(0, FieldFact::ByteOffset),
        at(1, FieldFact::ByteOffset),
        at(2, FieldFact::Exists),
    ],
    functions: None,
};

const fn at(instruction: u32, fact: FieldFact) -> Relocation {
    let target = Target::Field { field: 0, fact };
    Relocation { instruction, target }
}

/// The program on a kernel with these structures `root`. Members are (name, size, signed, byte
/// offset).
fn relocated(roots: &[&[(&str, u32, bool, u32)]]) -> Result<Vec<u64>, RelocationError> {
    let mut btf = Builder::default();
    for members in roots {
        let members: Vec<_> = members
            .iter()
            .map(|(name, size, signed, offset)| (*name, btf.integer("integer", *size, *signed), offset * 8))
            .collect();
        btf.structure("root", 64, &members);
    }
    let bytes = btf.bytes();
    let mut linker = Linker::new(&RECIPE, &bytes).unwrap();
    linker.relocate(&PROGRAM, &|_| None).map_err(|(_, error)| error)
}

/// `MOVE` with another number.
fn move_of(number: u64) -> u64 {
    MOVE & 0xffff_ffff | number << 32
}

/// Check that the program gets the offset of the field on the kernel.
#[test]
fn offsets_change() {
    let expected = [0x0018_2161, move_of(24), move_of(1)];
    let found = relocated(&[&[("w", 8, false, 0), ("x", 4, false, 24)]]);
    assert_eq!(found.unwrap(), expected);
}

/// Check that a load gets the size of an unsigned field, and is poisoned if the field is signed.
#[test]
fn sizes_change() {
    let wide = relocated(&[&[("x", 8, false, 8)]]).unwrap();
    assert_eq!(wide, [0x0008_2179, move_of(8), move_of(1)]);
    let narrow = relocated(&[&[("x", 1, false, 8)]]).unwrap();
    assert_eq!(narrow, [0x0008_2171, move_of(8), move_of(1)]);
    let signed = relocated(&[&[("x", 8, true, 8)]]).unwrap();
    assert_eq!(signed, [POISON, move_of(8), move_of(1)]);
    let odd = relocated(&[&[("x", 3, false, 8)]]).unwrap_err();
    assert_eq!(odd, RelocationError::SizeDiffers { compiled: 4, kernel: 3 });
}

/// Check that a missing field poisons only the instructions that need it.
#[test]
fn missing_fields_poison() {
    for roots in [&[][..], &[&[("y", 4, false, 0)][..]][..]] {
        assert_eq!(relocated(roots).unwrap(), [POISON, POISON, move_of(0)]);
    }
}

/// Check that several types may have the same name if they agree, or if only one has the field.
#[test]
fn several_candidates() {
    let here = [("x", 4, false, 16)];
    let there = [("x", 4, false, 20)];
    let nowhere = [("y", 4, false, 16)];
    let expected = [0x0010_2161, move_of(16), move_of(1)];
    assert_eq!(relocated(&[&here, &here]).unwrap(), expected);
    assert_eq!(relocated(&[&nowhere, &here]).unwrap(), expected);
    let differ = relocated(&[&here, &there]).unwrap_err();
    assert_eq!(differ, RelocationError::Ambiguous);
}

/// Check that an offset that does not fit into a load is an error.
#[test]
fn offsets_can_be_too_large() {
    let far = relocated(&[&[("x", 4, false, 40_000)]]).unwrap_err();
    assert_eq!(far, RelocationError::TooLarge(40_000));
}
