//! Reads a BPF object file, an ELF.

use std::collections::BTreeMap;

use object::read::elf::{ElfFile64, FileHeader as _};
use object::{
    Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget, SectionFlags,
    SectionIndex, SymbolIndex, SymbolKind,
};

/// The size of an instruction in bytes.
pub const INSTRUCTION_LEN: usize = 8;

/// A BPF object.
pub struct ObjectFile<'d> {
    elf: ElfFile64<'d, Endianness>,
}

/// A function in a code section.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub section: SectionIndex,
    /// The index of its first instruction in the section.
    pub start: usize,
    /// The number of its instructions.
    pub len: usize,
    /// Whether it is not static. The kernel verifies each global function separately and once.
    pub is_global: bool,
}

/// What a relocation refers to.
#[derive(Clone, Debug)]
pub struct Symbol {
    pub name: String,
    /// Its section; `None` if it is not in the object.
    pub section: Option<SectionIndex>,
    /// Its offset in the section, in bytes.
    pub value: u64,
    pub weak: bool,
}

/// A section of variables.
pub struct Data<'d> {
    pub name: String,
    pub size: u64,
    pub writable: bool,
    /// Empty for `.bss`.
    pub content: &'d [u8],
}

impl<'d> ObjectFile<'d> {
    pub fn parse(bytes: &'d [u8]) -> Result<Self, String> {
        let elf = ElfFile64::parse(bytes).map_err(|error| error.to_string())?;
        let machine = elf.elf_header().e_machine(elf.endian());
        if machine != object::elf::EM_BPF {
            return Err(format!("not a BPF object (machine {machine})"));
        }
        Ok(Self { elf })
    }

    /// The content of the section `name`.
    pub fn section(&self, name: &str) -> Result<&'d [u8], String> {
        self.elf
            .section_by_name(name)
            .ok_or_else(|| format!("the object has no section {name}"))?
            .data()
            .map_err(|error| format!("section {name}: {error}"))
    }

    pub fn section_name(&self, section: SectionIndex) -> Result<&str, String> {
        self.elf
            .section_by_index(section)
            .and_then(|section| section.name())
            .map_err(|error| error.to_string())
    }

    /// All functions.
    pub fn functions(&self) -> Result<Vec<Function>, String> {
        self.elf
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .map(|symbol| {
                Ok(Function {
                    name: symbol.name().map_err(|error| error.to_string())?.to_owned(),
                    section: symbol.section_index().ok_or("a function has no section")?,
                    start: symbol.address() as usize / INSTRUCTION_LEN,
                    len: symbol.size() as usize / INSTRUCTION_LEN,
                    is_global: symbol.is_global(),
                })
            })
            .collect()
    }

    /// The instructions of a function.
    pub fn instructions(&self, function: &Function) -> Result<Vec<u64>, String> {
        let section = self.elf.section_by_index(function.section);
        let code = section
            .and_then(|section| section.data())
            .map_err(|error| error.to_string())?;
        let bytes = code
            .get(function.start * INSTRUCTION_LEN..)
            .and_then(|rest| rest.get(..function.len * INSTRUCTION_LEN))
            .ok_or_else(|| format!("function {} extends past the end of its section", function.name))?;
        let words = bytes
            .chunks_exact(INSTRUCTION_LEN)
            .filter_map(|word| word.first_chunk());
        Ok(words.map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// The symbols to which the relocations of a section refer, by the index of the instruction.
    pub fn relocations(&self, section: SectionIndex) -> Result<BTreeMap<usize, Symbol>, String> {
        let section = self.elf.section_by_index(section).map_err(|error| error.to_string())?;
        section
            .relocations()
            .map(|(offset, relocation)| {
                let RelocationTarget::Symbol(index) = relocation.target() else {
                    return Err("a relocation has no symbol".to_owned());
                };
                match relocation.flags() {
                    RelocationFlags::Elf {
                        r_type: object::elf::R_BPF_64_64 | object::elf::R_BPF_64_32,
                    } => Ok((offset as usize / INSTRUCTION_LEN, self.symbol(index)?)),
                    other => Err(format!("a relocation has an unknown type: {other:?}")),
                }
            })
            .collect()
    }

    fn symbol(&self, index: SymbolIndex) -> Result<Symbol, String> {
        let symbol = self.elf.symbol_by_index(index).map_err(|error| error.to_string())?;
        Ok(Symbol {
            name: symbol.name().map_err(|error| error.to_string())?.to_owned(),
            section: symbol.section_index(),
            value: symbol.address(),
            weak: symbol.is_weak(),
        })
    }

    /// A section of variables.
    pub fn data(&self, index: SectionIndex) -> Result<Data<'d>, String> {
        let section = self.elf.section_by_index(index).map_err(|error| error.to_string())?;
        let SectionFlags::Elf { sh_flags } = section.flags() else {
            return Err("a section is not of an ELF file".to_owned());
        };
        Ok(Data {
            name: self.section_name(index)?.to_owned(),
            size: section.size(),
            writable: sh_flags & u64::from(object::elf::SHF_WRITE) != 0,
            content: section.data().map_err(|error| error.to_string())?,
        })
    }
}
