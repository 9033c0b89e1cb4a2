//! Recipes: BPF programs in the form that the library embeds, which needs no parsing.
//!
//! The build script (`build/`) compiles `bpf/*.bpf.c` and writes recipes as constants. They refer
//! to types by name, so the object's own BTF is not needed at run time.

use std::ffi::CStr;

use crate::btf::{FieldFact, FieldPath, Kind, LoadClass, Shape};

/// An object file.
#[derive(Debug)]
pub struct Recipe {
    /// The name in the build script's table.
    pub name: &'static str,
    /// The licence, which decides which helpers the kernel allows.
    pub licence: &'static CStr,
    /// The programs.
    pub programs: &'static [Program],
    /// The names of the maps that the programs use.
    pub maps: &'static [&'static str],
    /// The sections of global variables.
    pub data: &'static [DataSection],
    /// The kernel types that the programs are adapted to.
    pub roots: &'static [Root],
    /// The fields of these types that the programs use.
    pub fields: &'static [FieldAccess],
    /// The kernel variables and functions that the programs use.
    pub kernel_symbols: &'static [KernelSymbol],
}

/// A BPF program.
#[derive(Debug)]
pub struct Program {
    /// The name of its C function.
    pub name: &'static str,
    /// What it is attached to.
    pub attach: Attach,
    /// Its instructions, followed by those of its subprograms.
    pub instructions: &'static [u64],
    /// The instructions to change when it is loaded.
    pub relocations: &'static [Relocation],
    /// Its functions, if it passes one of them to the kernel as a callback.
    pub functions: Option<Functions>,
}

/// What a program is attached to, with the name that stands for it in the kernel's BTF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// An iterator; the name is that of a function, such as `bpf_iter_task`.
    Iterator(&'static str),
    /// A tracepoint; the name is that of a typedef, such as `btf_trace_sched_process_fork`.
    Tracepoint(&'static str),
    /// Nothing: a system call runs it.
    Nothing,
}

impl Attach {
    /// The name, which may be empty.
    pub fn name(self) -> &'static str {
        match self {
            Attach::Iterator(name) | Attach::Tracepoint(name) => name,
            Attach::Nothing => "",
        }
    }

    /// The kind of the type with that name.
    pub fn kind(self) -> Kind {
        match self {
            Attach::Iterator(_) | Attach::Nothing => Kind::Function,
            Attach::Tracepoint(_) => Kind::Typedef,
        }
    }
}

/// The functions of a program, for the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// A BTF with the functions.
    pub btf: &'static [u8],
    /// The first instruction and the type of each function: `struct bpf_func_info`.
    pub records: &'static [[u32; 2]],
}

/// A section of global variables, which is a map with one value.
#[derive(Debug)]
pub struct DataSection {
    /// The name: `.bss`, `.data` or `.rodata`.
    pub name: &'static str,
    /// Whether programs may write to it.
    pub writable: bool,
    /// Its size in bytes.
    pub size: u32,
    /// Its initial content; empty if that is all zeros.
    pub content: &'static [u8],
}

/// A kernel type.
#[derive(Debug)]
pub struct Root {
    /// The name, without flavour.
    pub name: &'static str,
    /// The kind: struct, union, enumeration or typedef.
    pub kind: Kind,
    /// The shape in the program.
    pub shape: Shape<'static>,
}

/// A field of a kernel type.
#[derive(Debug)]
pub struct FieldAccess {
    /// The type, an index in [`Recipe::roots`].
    pub root: u16,
    /// The path from the type to the field.
    pub path: FieldPath<'static>,
    /// The size of the loads and stores in the program.
    pub load_size: u32,
    /// Whether that size may change.
    pub load_class: LoadClass,
}

/// A kernel variable or function.
#[derive(Debug)]
pub struct KernelSymbol {
    /// The name.
    pub name: &'static str,
    /// [`Kind::Variable`] or [`Kind::Function`].
    pub kind: Kind,
    /// Whether it may be missing. Its address is then 0.
    pub weak: bool,
}

/// An instruction to change.
#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    /// The index of the instruction.
    pub instruction: u32,
    /// What it refers to.
    pub target: Target,
}

/// What an instruction refers to. Numbers are indexes in the recipe's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A map.
    Map(u16),
    /// The address of a global variable.
    Variable {
        /// The section.
        data: u16,
        /// The offset in the section.
        offset: u32,
    },
    /// The address of a kernel variable or function.
    KernelSymbol(u16),
    /// A call of a kernel function.
    KernelCall(u16),
    /// A fact about a field.
    Field {
        /// The field.
        field: u16,
        /// The fact.
        fact: FieldFact,
    },
    /// A fact about a type.
    Type {
        /// The type.
        root: u16,
        /// The fact.
        fact: TypeFact,
    },
    /// A fact about an enumerator.
    Enumerator {
        /// The enumeration.
        root: u16,
        /// The name of the enumerator, without flavour.
        name: &'static str,
        /// The fact.
        fact: EnumeratorFact,
    },
}

/// What a program can ask about a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeFact {
    /// Whether the kernel has it.
    Exists,
    /// The size in bytes.
    Size,
    /// The id in the kernel's BTF.
    Id,
}

/// What a program can ask about an enumerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnumeratorFact {
    /// Whether the kernel has it.
    Exists,
    /// The value.
    Value,
}

/// The constants that the build script wrote.
#[allow(unused_imports)] // a build without clang needs none of them
mod compiled {
    use super::*;
    use crate::btf::Base::*;
    use crate::btf::Step::*;

    include!(concat!(env!("OUT_DIR"), "/recipes.rs"));
}

pub use compiled::*;
