//! Assembles programs. A program is a function of a program section, followed by the subprograms of
//! `.text` that it calls.

use object::SectionIndex;

use super::core_relocation::{self, Record, Strings};
use super::object_file::{Function, ObjectFile, Symbol};
use crate::btf::{Kind, Kinds, Types, Wanted};

/// A recipe before it is written as Rust text. `src/recipe.rs` has the same names.
pub struct Recipe {
    pub licence: Vec<u8>,
    pub programs: Vec<Program>,
    pub tables: Tables,
}

pub struct Program {
    pub name: String,
    /// What it is attached to, as Rust text.
    pub attach: String,
    pub instructions: Vec<u64>,
    /// The index of the instruction, and the `Target` as Rust text.
    pub relocations: Vec<(usize, String)>,
    /// The functions, if the kernel needs to know them.
    pub functions: Option<Vec<Described>>,
}

/// The description of a function for the kernel.
pub struct Described {
    /// The index of its first instruction.
    pub start: usize,
    pub name: String,
    /// The number of its arguments, if it is global.
    pub arguments: Option<usize>,
}

/// The tables that relocations refer to by index. Entries are Rust text, so that equal entries are
/// recognized and nothing borrows from the object file.
#[derive(Default)]
pub struct Tables {
    pub maps: Vec<String>,
    pub data: Vec<String>,
    pub roots: Vec<(u32, String)>,
    pub fields: Vec<String>,
    pub kernel_symbols: Vec<String>,
}

const CALL: u8 = 0x85;
const LOAD_IMMEDIATE_64: u8 = 0x18;
/// The source register of a call to a subprogram (`BPF_PSEUDO_CALL`).
const PSEUDO_CALL: u64 = 1;
/// The source register of a 64-bit load of a subprogram's address (`BPF_PSEUDO_FUNC`).
const PSEUDO_FUNC: u64 = 4;

pub fn opcode(instruction: u64) -> u8 {
    instruction as u8
}

fn source_register(instruction: u64) -> u64 {
    instruction >> 12 & 0xf
}

pub fn immediate(instruction: u64) -> i32 {
    (instruction >> 32) as i32
}

fn with_immediate(instruction: u64, value: i32) -> u64 {
    instruction & 0xffff_ffff | u64::from(value as u32) << 32
}

/// Makes the recipe of an object file.
pub fn recipe(bytes: &[u8]) -> Result<Recipe, String> {
    let object = ObjectFile::parse(bytes)?;
    let btf = object.section(".BTF")?;
    let (types, _) = Types::scan(btf, &[]).map_err(|error| error.to_string())?;
    let mut builder = Builder {
        functions: object.functions()?,
        object,
        btf,
        types,
        tables: Tables::default(),
    };
    let mut programs = Vec::new();
    for function in builder.functions.clone() {
        let section = builder.object.section_name(function.section)?;
        if let Some(attach) = program_section(section) {
            programs.push(builder.program(&function, attach)?);
        } else if section != ".text" {
            return Err(format!("{}: the section {section} is not supported", function.name));
        }
    }
    Ok(Recipe {
        licence: builder.object.section("license")?.to_vec(),
        programs,
        tables: builder.tables,
    })
}

/// What the programs of a section are attached to. The kernel's BTF has a function for each iterator
/// and a typedef for each tracepoint.
fn program_section(name: &str) -> Option<String> {
    match name.split_once('/') {
        None if name == "syscall" => Some("Attach::Nothing".to_owned()),
        Some(("iter", target)) => Some(format!("Attach::Iterator(\"bpf_iter_{target}\")")),
        Some(("tp_btf", target)) => Some(format!("Attach::Tracepoint(\"btf_trace_{target}\")")),
        _ => None,
    }
}

struct Builder<'d> {
    object: ObjectFile<'d>,
    btf: &'d [u8],
    types: Types<'d>,
    functions: Vec<Function>,
    tables: Tables,
}

/// A program that is being assembled.
#[derive(Default)]
struct Assembly {
    instructions: Vec<u64>,
    relocations: Vec<(usize, String)>,
    /// The functions, and the index of the first instruction of each.
    placed: Vec<(usize, Function)>,
    /// The instructions that refer to subprograms not yet placed, the next one last, and where
    /// these subprograms start in `.text`.
    references: Vec<(usize, usize)>,
    has_callbacks: bool,
}

impl<'d> Builder<'d> {
    fn program(&mut self, main: &Function, attach: String) -> Result<Program, String> {
        let mut assembly = Assembly::default();
        self.place(main, &mut assembly)?;
        // A subprogram directly follows its caller, as in libbpf, so that the instructions can be
        // compared.
        while let Some((from, target)) = assembly.references.pop() {
            let to = match assembly.position(target, main.section) {
                Some(position) => position,
                None => {
                    let subprogram = self.subprogram(target)?;
                    self.place(&subprogram, &mut assembly)?
                }
            };
            let distance = to as i32 - from as i32 - 1;
            assembly.instructions[from] = with_immediate(assembly.instructions[from], distance);
        }
        Ok(Program {
            name: main.name.clone(),
            attach,
            functions: if assembly.has_callbacks {
                Some(self.described(main, &assembly)?)
            } else {
                None
            },
            instructions: assembly.instructions,
            relocations: assembly.relocations,
        })
    }

    fn described(&self, main: &Function, assembly: &Assembly) -> Result<Vec<Described>, String> {
        let describe = |(start, function): &(usize, Function)| {
            let is_global = function.is_global && function.name != main.name;
            Ok(Described {
                start: *start,
                name: function.name.clone(),
                arguments: if is_global {
                    Some(self.arguments(&function.name)?)
                } else {
                    None
                },
            })
        };
        assembly.placed.iter().map(describe).collect()
    }

    /// The number of arguments that a function is declared with. function_types() declares them to
    /// the kernel as 64-bit numbers.
    fn arguments(&self, name: &str) -> Result<usize, String> {
        let wanted = Wanted {
            name,
            kinds: Kinds::compatible_with(Kind::Function),
        };
        let missing = || format!("the object's BTF has no function {name}");
        let (_, found) = Types::scan(self.btf, &[wanted]).map_err(|error| error.to_string())?;
        let id = *found[0].first().ok_or_else(missing)?;
        let prototype = self
            .types
            .get(id)
            .and_then(|function| self.types.get(function.referred()));
        Ok(prototype.map_err(|error| error.to_string())?.parameters())
    }

    fn subprogram(&self, start: usize) -> Result<Function, String> {
        self.functions
            .iter()
            .find(|function| {
                function.start == start && self.object.section_name(function.section).as_deref() == Ok(".text")
            })
            .cloned()
            .ok_or_else(|| format!("no function starts at instruction {start} of .text"))
    }

    /// Appends a function, and translates its references to anything outside it.
    fn place(&mut self, function: &Function, assembly: &mut Assembly) -> Result<usize, String> {
        let base = assembly.instructions.len();
        let code = self.object.instructions(function)?;
        let in_function = |index: &usize| (function.start..function.start + function.len).contains(index);
        let symbols = self.object.relocations(function.section)?;
        let waiting = assembly.references.len();
        assembly.instructions.extend(&code);
        for (index, instruction) in code.into_iter().enumerate() {
            let symbol = symbols.get(&(function.start + index));
            let at = base + index;
            if opcode(instruction) == CALL && source_register(instruction) == PSEUDO_CALL {
                self.call(function, index, symbol, at, assembly)?;
            } else if let Some(symbol) = symbol {
                if opcode(instruction) != LOAD_IMMEDIATE_64 {
                    return Err(format!(
                        "{}: an instruction with a relocation is not supported: {instruction:#x}",
                        function.name
                    ));
                }
                self.address(symbol, at, assembly)?;
            }
        }
        assembly.references[waiting..].reverse();
        let section = self.object.section_name(function.section)?.to_owned();
        for record in self.core_records(&section)? {
            if in_function(&record.instruction) {
                let at = base + record.instruction - function.start;
                let target = core_relocation::target(&self.types, &record, assembly.instructions[at], &mut self.tables)
                    .map_err(|error| format!("{}, instruction {at}: {error}", function.name))?;
                assembly.relocations.push((at, target));
            }
        }
        assembly.placed.push((base, function.clone()));
        Ok(base)
    }

    fn core_records(&self, section: &str) -> Result<Vec<Record<'d>>, String> {
        let ext = self.object.section(".BTF.ext")?;
        core_relocation::records(ext, &Strings::of(self.btf)?, section)
    }

    /// Translates a call of a subprogram or, if the symbol is not in the object, of a kernel
    /// function.
    fn call(
        &mut self,
        function: &Function,
        index: usize,
        symbol: Option<&Symbol>,
        at: usize,
        assembly: &mut Assembly,
    ) -> Result<(), String> {
        let relative = i64::from(immediate(assembly.instructions[at])) + 1;
        let target = match symbol {
            None => {
                if self.object.section_name(function.section)? != ".text" {
                    return Err(format!(
                        "{}: calls within a program section are not supported",
                        function.name
                    ));
                }
                (function.start + index) as i64 + relative
            }
            Some(symbol) if symbol.section.is_none() => {
                let number = self.kernel_symbol(symbol)?;
                assembly.relocations.push((at, format!("Target::KernelCall({number})")));
                return Ok(());
            }
            Some(symbol) => symbol.value as i64 / 8 + relative,
        };
        assembly.references.push((at, target as usize));
        Ok(())
    }

    /// Translates a 64-bit load of an address.
    fn address(&mut self, symbol: &Symbol, at: usize, assembly: &mut Assembly) -> Result<(), String> {
        let Some(section) = symbol.section else {
            let number = self.kernel_symbol(symbol)?;
            assembly
                .relocations
                .push((at, format!("Target::KernelSymbol({number})")));
            return Ok(());
        };
        let instruction = assembly.instructions[at];
        let place = (symbol.value as i64 + i64::from(immediate(instruction))) as usize;
        let target = match self.object.section_name(section)? {
            ".text" => {
                assembly.has_callbacks = true;
                assembly.instructions[at] = instruction & !0xf000 | PSEUDO_FUNC << 12;
                assembly.references.push((at, place / 8));
                return Ok(());
            }
            ".maps" if symbol.name.is_empty() => return Err("static maps are not supported".to_owned()),
            ".maps" => {
                let number = intern(&mut self.tables.maps, format!("{:?}", symbol.name));
                format!("Target::Map({number})")
            }
            _ => {
                let number = self.data_section(section)?;
                format!("Target::Variable {{ data: {number}, offset: {place} }}")
            }
        };
        assembly.relocations.push((at, target));
        Ok(())
    }

    fn data_section(&mut self, section: SectionIndex) -> Result<usize, String> {
        let data = self.object.data(section)?;
        let entry = format!(
            "DataSection {{ name: {:?}, writable: {}, size: {}, content: b\"{}\" }}",
            data.name,
            data.writable,
            data.size,
            data.content.escape_ascii()
        );
        Ok(intern(&mut self.tables.data, entry))
    }

    fn kernel_symbol(&mut self, symbol: &Symbol) -> Result<usize, String> {
        let kind = self
            .declared_kind(&symbol.name)
            .ok_or_else(|| format!("{} is neither defined nor a typed __ksym", symbol.name))?;
        let entry = format!(
            "KernelSymbol {{ name: {:?}, kind: Kind::{kind:?}, weak: {} }}",
            symbol.name, symbol.weak
        );
        Ok(intern(&mut self.tables.kernel_symbols, entry))
    }

    /// The kind of the kernel symbol that the object declares with this name. Variables without a
    /// type (`void`) do not count: they can only be found in `/proc/kallsyms`, which we do not
    /// read.
    fn declared_kind(&self, name: &str) -> Option<Kind> {
        let wanted = [Kind::Variable, Kind::Function].map(|kind| Wanted {
            name,
            kinds: Kinds::compatible_with(kind),
        });
        let (_, found) = Types::scan(self.btf, &wanted).ok()?;
        let (&id, kind) = match (found[0].first(), found[1].first()) {
            (Some(id), _) => (id, Kind::Variable),
            (None, Some(id)) => (id, Kind::Function),
            (None, None) => return None,
        };
        let declared = self.types.get(id).ok()?;
        let is_typed = self.types.resolve(declared.referred()).ok()?.is_some();
        is_typed.then_some(kind)
    }
}

impl Assembly {
    /// The position of the function that starts at `start` in `.text`, if it has been placed.
    fn position(&self, start: usize, main: SectionIndex) -> Option<usize> {
        self.placed
            .iter()
            .find(|(_, function)| function.section != main && function.start == start)
            .map(|(position, _)| *position)
    }
}

/// The index of an entry in a table. Adds the entry if the table lacks it.
pub fn intern<T: PartialEq>(table: &mut Vec<T>, entry: T) -> usize {
    table.iter().position(|known| *known == entry).unwrap_or_else(|| {
        table.push(entry);
        table.len() - 1
    })
}
