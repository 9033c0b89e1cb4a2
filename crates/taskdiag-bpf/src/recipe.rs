//! What the build makes of a BPF object file: everything a program needs at run time, and nothing that has to be parsed.
//!
//! The build script (`build/`) compiles `bpf/*.bpf.c` and writes these as constants. Types are named, not numbered, so
//! the program's own type information is not needed any more.

use std::ffi::CStr;

use crate::btf::{FieldFact, FieldPath, Kind, LoadClass, Shape};

/// One object file, compiled with one set of definitions.
#[derive(Debug)]
pub struct Recipe {
    /// The name in the build script's table.
    pub name: &'static str,
    /// The object's licence, which decides what helpers the kernel allows it.
    pub licence: &'static CStr,
    /// Its programs.
    pub programs: &'static [Program],
    /// Names of the maps its programs refer to.
    pub maps: &'static [&'static str],
    /// Its global variables.
    pub data: &'static [DataSection],
    /// Kernel types its programs adapt themselves to.
    pub roots: &'static [Root],
    /// Fields of those.
    pub fields: &'static [FieldAccess],
    /// Kernel variables and functions they use.
    pub kernel_symbols: &'static [KernelSymbol],
}

/// One BPF program.
#[derive(Debug)]
pub struct Program {
    /// Name of its C function.
    pub name: &'static str,
    /// What it is attached to.
    pub attach: Attach,
    /// Instructions, its subprograms' after its own.
    pub instructions: &'static [u64],
    /// What to change in them.
    pub relocations: &'static [Relocation],
    /// Needed only by programs that hand a subprogram to the kernel.
    pub functions: Option<Functions>,
}

/// What a program is attached to: the name of what stands for it in the kernel's BTF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// An iterator, a function such as `bpf_iter_task`.
    Iterator(&'static str),
    /// A raw tracepoint, a typedef such as `btf_trace_sched_process_fork`.
    Tracepoint(&'static str),
    /// Nothing: a system call runs it.
    Nothing,
}

impl Attach {
    /// The name; empty where there is none.
    pub fn name(self) -> &'static str {
        match self {
            Attach::Iterator(name) | Attach::Tracepoint(name) => name,
            Attach::Nothing => "",
        }
    }

    /// What the name is of.
    pub fn kind(self) -> Kind {
        match self {
            Attach::Iterator(_) | Attach::Nothing => Kind::Function,
            Attach::Tracepoint(_) => Kind::Typedef,
        }
    }
}

/// Type information that tells the kernel which functions a program is made of.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// A BTF of its own.
    pub btf: &'static [u8],
    /// (first instruction, type) of each function: the kernel's `struct bpf_func_info`.
    pub records: &'static [[u32; 2]],
}

/// Global variables of one kind, kept in a map with a single value.
#[derive(Debug)]
pub struct DataSection {
    /// `.bss`, `.data`, `.rodata` …; the name the map is asked for by.
    pub name: &'static str,
    /// Programs may write to it.
    pub writable: bool,
    /// Its length.
    pub size: u32,
    /// First value; empty when that is all zero.
    pub content: &'static [u8],
}

/// A kernel type, by name.
#[derive(Debug)]
pub struct Root {
    /// Name without flavour.
    pub name: &'static str,
    /// Struct, union, enumeration or typedef.
    pub kind: Kind,
    /// What the program takes it for.
    pub shape: Shape<'static>,
}

/// A part of a kernel type, and what the compiler took it for.
#[derive(Debug)]
pub struct FieldAccess {
    /// Index into [`Recipe::roots`].
    pub root: u16,
    /// The way from there.
    pub path: FieldPath<'static>,
    /// Size of the loads and stores the compiler made of it.
    pub load_size: u32,
    /// Whether those may change.
    pub load_class: LoadClass,
}

/// A kernel variable or function.
#[derive(Debug)]
pub struct KernelSymbol {
    /// Its name.
    pub name: &'static str,
    /// [`Kind::Variable`] or [`Kind::Function`].
    pub kind: Kind,
    /// May be missing: its address is 0 then.
    pub weak: bool,
}

/// A place to change, and how.
#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    /// Index of the instruction.
    pub instruction: u32,
    /// What belongs there.
    pub target: Target,
}

/// What belongs in an instruction. Numbers are indices into the recipe's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A map.
    Map(u16),
    /// The address of a global variable.
    Variable {
        /// Its section.
        data: u16,
        /// Where it is in there.
        offset: u32,
    },
    /// Address of a kernel variable or function.
    KernelSymbol(u16),
    /// Call of a kernel function.
    KernelCall(u16),
    /// A fact about a field.
    Field {
        /// The field.
        field: u16,
        /// What is asked about it.
        fact: FieldFact,
    },
    /// A fact about a type.
    Type {
        /// The type.
        root: u16,
        /// What is asked about it.
        fact: TypeFact,
    },
    /// A fact about an enumerator.
    Enumerator {
        /// The enumeration.
        root: u16,
        /// The enumerator, without flavour.
        name: &'static str,
        /// What is asked about it.
        fact: EnumeratorFact,
    },
}

/// What a program can ask about a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeFact {
    /// Whether there is such a type.
    Exists,
    /// Its size in bytes.
    Size,
    /// Its number in the kernel's BTF.
    Id,
}

/// What a program can ask about an enumerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnumeratorFact {
    /// Whether there is such an enumerator.
    Exists,
    /// Its value.
    Value,
}

/// The build script's constants.
#[allow(unused_imports)] // needed only by recipes that could be compiled
mod compiled {
    use super::*;
    use crate::btf::Base::*;
    use crate::btf::Step::*;

    include!(concat!(env!("OUT_DIR"), "/recipes.rs"));
}

pub use compiled::*;
