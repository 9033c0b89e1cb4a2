//! Adapts the programs of a recipe to a kernel. No I/O: the kernel's BTF in, instructions out.
//!
//! The rules are those of libbpf (`bpf_core_calc_relo_insn`, `bpf_core_patch_insn`). An instruction
//! that refers to something the kernel lacks becomes a call that the verifier refuses. So a program
//! fails to load only if it can reach that instruction.

use std::fmt;
use std::os::fd::AsRawFd as _;
use std::os::fd::BorrowedFd;

use crate::btf::{BtfError, Field, FieldFact, Kind, Kinds, LoadClass, Location, Step, TypeId, Types, Wanted};
use crate::instruction::{Form, Instruction, Meaning};
use crate::recipe::{EnumeratorFact, FieldAccess, Program, Recipe, Relocation, Root, Target, TypeFact};

/// Why an instruction could not be adapted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelocationError {
    /// The kernel's type information can't be used for it.
    Btf(BtfError),
    /// The kernel has several types with this name, which differ.
    Ambiguous,
    /// The caller has no map with this name.
    NoSuchMap,
    /// The kernel lacks the variable or function, which the program does not declare as weak.
    NoSuchSymbol,
    /// The value does not fit into the instruction.
    TooLarge(u64),
    /// The kernel's field has a size for which there is no load or store.
    SizeDiffers {
        /// The size of the program's access.
        compiled: u32,
        /// The size of the kernel's field.
        kernel: u32,
    },
    /// The instruction can't hold such a value.
    BadInstruction,
}

impl From<BtfError> for RelocationError {
    fn from(error: BtfError) -> Self {
        Self::Btf(error)
    }
}

impl fmt::Display for RelocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Btf(error) => write!(f, "{error}"),
            Self::Ambiguous => write!(f, "the kernel has several types with this name, which differ"),
            Self::NoSuchMap => write!(f, "the caller supplies no map with this name"),
            Self::NoSuchSymbol => write!(f, "the kernel does not have it"),
            Self::TooLarge(value) => write!(f, "the value {value} does not fit into the instruction"),
            Self::SizeDiffers { compiled, kernel } => {
                write!(f, "it has {kernel} bytes in the kernel and {compiled} in the program")
            }
            Self::BadInstruction => write!(f, "the instruction can't be adapted"),
        }
    }
}

/// What a target is on this kernel.
enum Answer {
    Value(u64),
    /// A field's offset, with the measures that a load or store of it needs.
    Offset(Field),
    /// The kernel lacks it.
    Missing,
}

/// Adapts a recipe to a kernel.
#[derive(Debug)]
pub struct Linker<'a> {
    recipe: &'static Recipe,
    types: Types<'a>,
    /// For each root, the kernel types with its name and kind. If some of them lack a field that
    /// others have, they are removed.
    candidates: Vec<Vec<TypeId>>,
    /// For each field, its location in each candidate of its root.
    locations: Vec<Option<Vec<Location>>>,
    symbols: Vec<Option<TypeId>>,
    attach_types: Vec<Option<TypeId>>,
}

impl<'a> Linker<'a> {
    /// Looks up all names of a recipe in one pass over the kernel's BTF.
    pub fn new(recipe: &'static Recipe, btf: &'a [u8]) -> Result<Self, BtfError> {
        let wanted: Vec<_> = wanted_names(recipe).collect();
        let (types, mut candidates) = Types::scan(btf, &wanted)?;
        let first = |ids: Vec<TypeId>| ids.first().copied();
        let programs_at = recipe.roots.len() + recipe.kernel_symbols.len();
        let attach_types = candidates.drain(programs_at..).map(first).collect();
        let symbols = candidates.drain(recipe.roots.len()..).map(first).collect();
        Ok(Self {
            recipe,
            types,
            candidates,
            locations: vec![None; recipe.fields.len()],
            symbols,
            attach_types,
        })
    }

    /// The recipe.
    pub fn recipe(&self) -> &'static Recipe {
        self.recipe
    }

    /// The type in the kernel's BTF for what a program is attached to. `program` is an index in the
    /// recipe. `None` if the kernel lacks it.
    pub fn attach_type(&self, program: usize) -> Result<Option<TypeId>, BtfError> {
        match self.attach_types.get(program).copied().flatten() {
            None => self.types.stopped_by().map_or(Ok(None), Err),
            found => Ok(found),
        }
    }

    /// Treats all weak kernel variables as missing. Returns false if all were missing already. A
    /// kernel without `CONFIG_KALLSYMS_ALL` has the types of variables but not their addresses.
    pub fn forget_weak_variables(&mut self) -> bool {
        let declared = self.recipe.kernel_symbols.iter();
        let mut forgot = false;
        for (symbol, found) in declared.zip(&mut self.symbols) {
            if symbol.weak && symbol.kind == Kind::Variable {
                forgot |= found.take().is_some();
            }
        }
        forgot
    }

    /// The instructions of a program for this kernel, or the relocation that failed.
    pub fn relocate<'m>(
        &mut self,
        program: &Program,
        maps: &dyn Fn(&str) -> Option<BorrowedFd<'m>>,
    ) -> Result<Vec<u64>, (Relocation, RelocationError)> {
        let mut instructions = program.instructions.to_vec();
        for relocation in program.relocations {
            self.apply(&mut instructions, relocation, maps)
                .map_err(|error| (*relocation, error))?;
        }
        Ok(instructions)
    }

    fn apply<'m>(
        &mut self,
        instructions: &mut [u64],
        relocation: &Relocation,
        maps: &dyn Fn(&str) -> Option<BorrowedFd<'m>>,
    ) -> Result<(), RelocationError> {
        let rest = instructions
            .get_mut(relocation.instruction as usize..)
            .ok_or(RelocationError::BadInstruction)?;
        let recipe = self.recipe;
        let map_fd = |name| {
            maps(name)
                .map(|fd| fd.as_raw_fd() as u32)
                .ok_or(RelocationError::NoSuchMap)
        };
        match relocation.target {
            Target::Map(map) => {
                let fd = map_fd(recipe.maps[usize::from(map)])?;
                set_wide(rest, Meaning::MapFd, u64::from(fd))
            }
            Target::Variable { data, offset } => {
                let fd = map_fd(recipe.data[usize::from(data)].name)?;
                let address = u64::from(fd) | u64::from(offset) << 32;
                set_wide(rest, Meaning::MapValue, address)
            }
            Target::KernelSymbol(symbol) => match self.symbol(symbol)? {
                Some(id) => set_wide(rest, Meaning::KernelSymbol, u64::from(id)),
                None => set_wide(rest, Meaning::Number, 0),
            },
            Target::KernelCall(symbol) => {
                let called = self.symbol(symbol)?;
                rest[0] = match called {
                    Some(id) => Instruction(rest[0]).calling_kernel(id as i32),
                    None => Instruction::poisoned(),
                }
                .0;
                Ok(())
            }
            Target::Field { field, fact } => {
                let answer = self.field(usize::from(field), fact)?;
                patch(rest, answer, &recipe.fields[usize::from(field)])
            }
            Target::Type { root, fact } => {
                let answer = self.type_fact(usize::from(root), fact)?;
                patch_number(rest, answer)
            }
            Target::Enumerator { root, name, fact } => {
                let answer = self.enumerator(usize::from(root), name, fact)?;
                patch_number(rest, answer)
            }
        }
    }

    fn symbol(&self, symbol: u16) -> Result<Option<TypeId>, RelocationError> {
        let symbol = usize::from(symbol);
        match self.symbols[symbol] {
            None if !self.recipe.kernel_symbols[symbol].weak => Err(match self.types.stopped_by() {
                Some(error) => error.into(),
                None => RelocationError::NoSuchSymbol,
            }),
            found => Ok(found),
        }
    }

    fn field(&mut self, field: usize, fact: FieldFact) -> Result<Answer, RelocationError> {
        let locations = match self.locations[field].take() {
            Some(known) => known,
            None => self.locate(&self.recipe.fields[field])?,
        };
        let answer = self.answer_at(&locations, fact);
        self.locations[field] = Some(locations);
        answer
    }

    /// The location of a field in each candidate that has it. Removes the other candidates.
    fn locate(&mut self, access: &FieldAccess) -> Result<Vec<Location>, RelocationError> {
        let mut locations: Vec<Location> = Vec::with_capacity(1);
        let mut remaining = Vec::with_capacity(1);
        for &id in &self.candidates[usize::from(access.root)] {
            if let Some(location) = self.types.locate(id, &access.path)? {
                locations.push(location);
                remaining.push(id);
            }
        }
        let differ = |pair: &[Location]| pair[0].bit_offset() != pair[1].bit_offset();
        if locations.windows(2).any(differ) {
            return Err(RelocationError::Ambiguous);
        }
        if !remaining.is_empty() {
            self.candidates[usize::from(access.root)] = remaining;
        }
        Ok(locations)
    }

    fn answer_at(&self, locations: &[Location], fact: FieldFact) -> Result<Answer, RelocationError> {
        if fact == FieldFact::Exists {
            return Ok(Answer::Value(u64::from(!locations.is_empty())));
        }
        let mut agreed: Option<(u64, Field)> = None;
        for location in locations {
            let field = self.types.measure(location)?;
            let value = field.value(fact)?;
            match agreed {
                Some((other, _)) if other != value => return Err(RelocationError::Ambiguous),
                Some(_) => {}
                None => agreed = Some((value, field)),
            }
        }
        Ok(match agreed {
            None => Answer::Missing,
            Some((_, field)) if fact == FieldFact::ByteOffset => Answer::Offset(field),
            Some((value, _)) => Answer::Value(value),
        })
    }

    fn type_fact(&self, root: usize, fact: TypeFact) -> Result<Answer, RelocationError> {
        let shape = &self.recipe.roots[root].shape;
        let mut agreed = None;
        for &id in &self.candidates[root] {
            if !self.types.has_shape(id, shape)? {
                continue;
            }
            let value = match fact {
                TypeFact::Exists => 1,
                TypeFact::Size => self.types.size_of(id)?,
                TypeFact::Id => id,
            };
            agree(&mut agreed, u64::from(value))?;
        }
        Ok(match (agreed, fact) {
            (Some(value), _) => Answer::Value(value),
            (None, TypeFact::Exists) => Answer::Value(0),
            (None, TypeFact::Size | TypeFact::Id) => Answer::Missing,
        })
    }

    fn enumerator(&self, root: usize, name: &str, fact: EnumeratorFact) -> Result<Answer, RelocationError> {
        let mut agreed = None;
        for &id in &self.candidates[root] {
            if let Some(value) = self.types.enumerator(id, name)? {
                let answer = match fact {
                    EnumeratorFact::Exists => 1,
                    EnumeratorFact::Value => value,
                };
                agree(&mut agreed, answer)?;
            }
        }
        Ok(match (agreed, fact) {
            (Some(value), _) => Answer::Value(value),
            (None, EnumeratorFact::Exists) => Answer::Value(0),
            (None, EnumeratorFact::Value) => Answer::Missing,
        })
    }
}

/// All names of a recipe: the roots, the kernel symbols, and what the programs are attached to.
fn wanted_names(recipe: &Recipe) -> impl Iterator<Item = Wanted<'static>> {
    let root = |root: &Root| Wanted {
        name: root.name,
        kinds: Kinds::compatible_with(root.kind),
    };
    let symbols = recipe.kernel_symbols.iter().map(|symbol| Wanted {
        name: symbol.name,
        kinds: Kinds::compatible_with(symbol.kind),
    });
    let attach = recipe.programs.iter().map(|program| Wanted {
        name: program.attach.name(),
        kinds: Kinds::compatible_with(program.attach.kind()),
    });
    recipe.roots.iter().map(root).chain(symbols).chain(attach)
}

/// Records the value of one candidate. All candidates must have the same value.
fn agree(agreed: &mut Option<u64>, value: u64) -> Result<(), RelocationError> {
    match agreed.replace(value) {
        Some(other) if other != value => Err(RelocationError::Ambiguous),
        _ => Ok(()),
    }
}

/// The name of a target, for messages.
pub fn describe(recipe: &Recipe, target: &Target) -> String {
    let root_name = |root: u16| recipe.roots[usize::from(root)].name;
    match *target {
        Target::Map(map) => format!("map {}", recipe.maps[usize::from(map)]),
        Target::Variable { data, offset } => {
            format!("{}+{offset}", recipe.data[usize::from(data)].name)
        }
        Target::KernelSymbol(symbol) | Target::KernelCall(symbol) => {
            recipe.kernel_symbols[usize::from(symbol)].name.to_owned()
        }
        Target::Field { field, .. } => {
            let access = &recipe.fields[usize::from(field)];
            let mut text = root_name(access.root).to_owned();
            for step in access.path.steps {
                match step {
                    Step::Member { name, .. } => text.extend([".", name]),
                    Step::Element(index) => text.push_str(&format!("[{index}]")),
                }
            }
            text
        }
        Target::Type { root, .. } => root_name(root).to_owned(),
        Target::Enumerator { root, name, .. } => format!("{}::{name}", root_name(root)),
    }
}

fn patch(instructions: &mut [u64], answer: Answer, access: &FieldAccess) -> Result<(), RelocationError> {
    let form = first(instructions)?.form();
    match (answer, form) {
        (Answer::Offset(field), Form::Memory) => patch_memory(instructions, &field, access),
        (Answer::Offset(field), _) => patch_number(instructions, Answer::Value(field.byte_offset)),
        (Answer::Value(_), Form::Memory) => Err(RelocationError::BadInstruction),
        (answer, _) => patch_number(instructions, answer),
    }
}

/// Puts a value into an instruction that takes a number, or poisons the instruction.
fn patch_number(instructions: &mut [u64], answer: Answer) -> Result<(), RelocationError> {
    let instruction = first(instructions)?;
    let value = match answer {
        Answer::Value(value) => value,
        Answer::Offset(field) => field.byte_offset,
        Answer::Missing => return poison(instructions),
    };
    match instruction.form() {
        Form::Immediate => {
            let number = i32::try_from(value as i64)
                .or_else(|_| u32::try_from(value).map(|value| value as i32))
                .map_err(|_| RelocationError::TooLarge(value))?;
            instructions[0] = instruction.with_immediate(number).0;
            Ok(())
        }
        Form::Wide => set_wide(instructions, Meaning::Number, value),
        Form::Memory | Form::Other => Err(RelocationError::BadInstruction),
    }
}

fn patch_memory(instructions: &mut [u64], field: &Field, access: &FieldAccess) -> Result<(), RelocationError> {
    let instruction = first(instructions)?;
    let offset = i16::try_from(field.byte_offset).map_err(|_| RelocationError::TooLarge(field.byte_offset))?;
    let moved = instruction.with_offset(offset);
    let size = field.load_size();
    let patched = if size == access.load_size {
        moved
    } else {
        let differs = RelocationError::SizeDiffers {
            compiled: access.load_size,
            kernel: size,
        };
        let may_change = access.load_class == field.load_class && field.load_class != LoadClass::Fixed;
        if !may_change {
            return poison(instructions);
        }
        if instruction.access_size() != access.load_size {
            return Err(differs);
        }
        moved.with_access_size(size).ok_or(differs)?
    };
    instructions[0] = patched.0;
    Ok(())
}

/// Replaces an instruction by one that the verifier refuses if it can reach it.
fn poison(instructions: &mut [u64]) -> Result<(), RelocationError> {
    let len = match first(instructions)?.form() {
        Form::Wide => 2,
        _ => 1,
    };
    let poisoned = instructions.get_mut(..len).ok_or(RelocationError::BadInstruction)?;
    poisoned.fill(Instruction::poisoned().0);
    Ok(())
}

fn first(instructions: &[u64]) -> Result<Instruction, RelocationError> {
    instructions
        .first()
        .map(|word| Instruction(*word))
        .ok_or(RelocationError::BadInstruction)
}

/// Sets the number of a 64-bit load, and its meaning.
fn set_wide(instructions: &mut [u64], meaning: Meaning, value: u64) -> Result<(), RelocationError> {
    let [low, high, ..] = instructions else {
        return Err(RelocationError::BadInstruction);
    };
    if Instruction(*low).form() != Form::Wide {
        return Err(RelocationError::BadInstruction);
    }
    let half = |shift: u32| (value >> shift) as i32;
    *low = Instruction(*low).with_meaning(meaning).with_immediate(half(0)).0;
    *high = Instruction(*high).with_immediate(half(32)).0;
    Ok(())
}

#[cfg(test)]
mod tests;
