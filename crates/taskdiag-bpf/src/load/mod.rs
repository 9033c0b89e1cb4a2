//! Loads the programs of a recipe into the running kernel.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use taskdiag_core::error::{Error, ErrorKind};
use taskdiag_core::support::Verdict;
use taskdiag_sys::bpf::{
    self, AttachType, FunctionInfo, KernelBtf, Map, MapFlags, MapKind, MapSpec, ProgramSpec, SharedMemory,
};

use crate::btf::BtfError;
use crate::instruction::POISON_IN_LOG;
use crate::recipe::{Attach, DataSection, Program, Recipe};
use crate::relocate::{describe, Linker, RelocationError};
use crate::rights;

const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Why a program could not be loaded.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The recipe has no program with this name.
    NoSuchProgram(String),
    /// The kernel's type information can't be used.
    Btf(BtfError),
    /// The kernel lacks the hook that the program is attached to: it is older, or built without it.
    NoAttachPoint(&'static str),
    /// An instruction could not be adapted to this kernel.
    Relocation {
        /// The program.
        program: &'static str,
        /// The index of the instruction.
        instruction: u32,
        /// The field, type, symbol or map that it refers to.
        subject: String,
        /// Why not.
        reason: RelocationError,
    },
    /// The program can reach an instruction that uses something this kernel lacks.
    Unresolved {
        /// The program.
        program: &'static str,
        /// The index of the instruction.
        instruction: u32,
        /// What the kernel lacks.
        subject: String,
    },
    /// This thread may not load programs.
    Denied {
        /// The needed capabilities that this thread lacks. Empty if something else forbids it.
        missing: Vec<&'static str>,
    },
    /// The kernel refused the program.
    Rejected {
        /// The program.
        program: &'static str,
        /// The error.
        error: io::Error,
        /// The verifier's log, which may be long. Its end says why.
        log: String,
    },
    /// The kernel refused the BTF of the program's functions.
    Functions(io::Error),
}

impl From<BtfError> for LoadError {
    fn from(error: BtfError) -> Self {
        Self::Btf(error)
    }
}

/// How many lines of the verifier's log a message shows. The last line says why the program was
/// refused, the lines before it say where.
const LOG_LINES_SHOWN: usize = 12;

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchProgram(name) => write!(f, "there is no BPF program {name}"),
            Self::Btf(error) => write!(f, "{KERNEL_BTF}: {error}"),
            Self::NoAttachPoint(name) => {
                write!(
                    f,
                    "this kernel has no {name}, to which the BPF program would be attached"
                )
            }
            Self::Relocation {
                program,
                instruction,
                subject,
                reason,
            } => write!(
                f,
                "BPF program {program}, instruction {instruction}, {subject}: {reason}"
            ),
            Self::Unresolved {
                program,
                instruction,
                subject,
            } => write!(
                f,
                "BPF program {program}, instruction {instruction}: this kernel has no {subject}"
            ),
            Self::Denied { missing } if missing.is_empty() => write!(
                f,
                "the kernel forbids loading BPF programs although this thread has CAP_BPF and CAP_PERFMON \
                 (check the user namespace, lockdown, security modules, and RLIMIT_MEMLOCK before Linux 5.11)"
            ),
            Self::Denied { missing } => {
                write!(f, "loading BPF programs needs {}; run as root", missing.join(" and "))
            }
            Self::Rejected { program, error, log } => {
                let lines: Vec<_> = log.trim_end().lines().collect();
                let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
                write!(f, "the kernel refused BPF program {program}: {error}")?;
                shown.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
            Self::Functions(error) => write!(f, "the kernel refused the BTF of a BPF program's functions: {error}"),
        }
    }
}

/// The error that users of the library see. It is not `impl From<LoadError> for Error` because that
/// would be visible in the library's interface.
pub(crate) fn load_error(error: impl Into<LoadError>) -> Error {
    let error = error.into();
    let kind = match &error {
        LoadError::Denied { .. } => ErrorKind::Denied,
        _ => ErrorKind::Unsupported,
    };
    Error::new(kind, error.to_string())
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Btf(error) => Some(error),
            Self::Rejected { error, .. } | Self::Functions(error) => Some(error),
            _ => None,
        }
    }
}

/// A recipe, if the build has it.
pub fn built(recipe: &'static Result<Recipe, &str>) -> Result<&'static Recipe, Error> {
    let built = recipe.as_ref();
    built.map_err(|why| {
        Error::new(
            ErrorKind::Unsupported,
            format!("taskdiag was built without BPF programs: {why}"),
        )
    })
}

/// A map with its name in the programs.
pub type NamedMap = (&'static str, Map);

/// The map with a name.
pub fn find<'a>(maps: &'a [NamedMap], name: &str) -> Option<BorrowedFd<'a>> {
    let (_, map) = maps.iter().find(|(other, _)| *other == name)?;
    Some(map.as_fd())
}

/// The type information of the running kernel.
pub fn kernel_btf() -> Result<KernelBtf, Error> {
    KernelBtf::open().map_err(|error| Error::io(KERNEL_BTF, error))
}

/// The error for a map that could not be created.
pub(crate) fn not_created(error: io::Error) -> Error {
    Error::io("creating a BPF map", error)
}

/// Attaches programs to the tracepoints that they were loaded for, until their links are closed.
pub(crate) fn attach_to_tracepoints(programs: &[OwnedFd]) -> Result<Vec<OwnedFd>, Error> {
    let attach = |program: &OwnedFd| bpf::attach_tracepoint(program.as_fd());
    let links = programs.iter().map(attach).collect::<io::Result<_>>();
    links.map_err(|error| Error::io("attaching a BPF program to a tracepoint", error))
}

/// Fails if this thread may not load programs.
pub(crate) fn check_rights() -> Result<(), Error> {
    let right = rights::bpf_load();
    if right.verdict == Verdict::No {
        let message = format!("BPF programs can't be loaded: {}", right.sentence());
        return Err(Error::new(ErrorKind::Denied, message));
    }
    Ok(())
}

/// Loads the program `name` of a recipe whose variables are one section of `size` bytes. This
/// process maps the section: the program reads its settings there and leaves its records there.
/// `maps` are the other maps that the program uses.
pub(crate) fn load_sharing(
    recipe: &'static Result<Recipe, &str>,
    name: &str,
    size: usize,
    maps: &[MapSpec<'static>],
) -> Result<(OwnedFd, SharedMemory), Error> {
    let recipe = built(recipe)?;
    check_rights()?;
    let btf = kernel_btf()?;
    let mut linker = Linker::new(recipe, btf.bytes()).map_err(load_error)?;
    let create = |spec: &MapSpec<'static>| Ok((spec.name, Map::create(spec)?));
    let created: io::Result<Vec<NamedMap>> = maps.iter().map(create).collect();
    let mut maps = created.map_err(not_created)?;
    let section = match recipe.data {
        [section] if section.size as usize == size => section,
        _ => {
            let message = format!("the variables of the BPF program {name} do not match its header");
            return Err(Error::new(ErrorKind::Malformed, message));
        }
    };
    let data = section.create(section.content).map_err(not_created)?;
    let memory = data.share(size).map_err(not_created)?;
    maps.push((section.name, data));
    let program = linker.load(name, &|name| find(&maps, name)).map_err(load_error)?;
    Ok((program, memory))
}

impl Linker<'_> {
    /// Loads the program `name`. `maps` returns the map for each name in the recipe's `maps` and
    /// `data`.
    pub fn load<'m>(
        &mut self,
        name: &str,
        maps: &dyn Fn(&str) -> Option<BorrowedFd<'m>>,
    ) -> Result<OwnedFd, LoadError> {
        let recipe = self.recipe();
        let (index, program) = recipe
            .programs
            .iter()
            .enumerate()
            .find(|(_, program)| program.name == name)
            .ok_or_else(|| LoadError::NoSuchProgram(name.to_owned()))?;
        let attach_to = match program.attach {
            Attach::Nothing => 0,
            attach => self
                .attach_type(index)
                .map_err(LoadError::Btf)?
                .ok_or(LoadError::NoAttachPoint(attach.name()))?,
        };
        let function_btf = program
            .functions
            .map(|functions| bpf::btf_load(functions.btf))
            .transpose()
            .map_err(LoadError::Functions)?;
        let functions = function_info(program, function_btf.as_ref());
        loop {
            let instructions = self.adapt(program, maps)?;
            let spec = ProgramSpec {
                name: program.name,
                licence: recipe.licence,
                instructions: &instructions,
                attach: match program.attach {
                    Attach::Iterator(_) => AttachType::TraceIterator,
                    Attach::Tracepoint(_) => AttachType::RawTracepoint,
                    Attach::Nothing => AttachType::Nothing,
                },
                attach_to,
                functions,
            };
            match bpf::load(&spec) {
                Ok(loaded) => return Ok(loaded),
                // One meaning of ENOENT is that a variable has no address.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) && self.forget_weak_variables() => {}
                Err(error) => return Err(self.explain(program, &spec, error)),
            }
        }
    }

    /// Adapts a program to this kernel, or says what failed.
    fn adapt<'m>(
        &mut self,
        program: &Program,
        maps: &dyn Fn(&str) -> Option<BorrowedFd<'m>>,
    ) -> Result<Vec<u64>, LoadError> {
        let recipe = self.recipe();
        self.relocate(program, maps)
            .map_err(|(relocation, reason)| LoadError::Relocation {
                program: program.name,
                instruction: relocation.instruction,
                subject: describe(recipe, &relocation.target),
                reason,
            })
    }

    /// Finds out why the kernel refused a program: loads it again with the verifier's log.
    fn explain(&self, program: &Program, spec: &ProgramSpec<'_>, error: io::Error) -> LoadError {
        if error.raw_os_error() == Some(libc::EPERM) {
            return LoadError::Denied {
                missing: rights::missing_capabilities(),
            };
        }
        let log = bpf::verifier_log(spec);
        let unresolved = poisoned_instruction(&log).and_then(|instruction| {
            program
                .relocations
                .iter()
                .find(|relocation| relocation.instruction == instruction)
        });
        match unresolved {
            Some(relocation) => LoadError::Unresolved {
                program: program.name,
                instruction: relocation.instruction,
                subject: describe(self.recipe(), &relocation.target),
            },
            None => LoadError::Rejected {
                program: program.name,
                error,
                log,
            },
        }
    }
}

/// The description of a program's functions for the kernel. `btf` has their types.
fn function_info<'a>(program: &Program, btf: Option<&'a OwnedFd>) -> Option<FunctionInfo<'a>> {
    let functions = program.functions?;
    Some(FunctionInfo {
        btf: btf?.as_fd(),
        records: functions.records,
    })
}

/// The instruction at which the verifier stopped, if it is a poisoned one.
fn poisoned_instruction(log: &str) -> Option<u32> {
    log.lines()
        .rev()
        .find_map(|line| {
            line.split_once(": ")
                .filter(|(_, rest)| rest.starts_with(POISON_IN_LOG))
        })
        .and_then(|(number, _)| number.trim().parse().ok())
}

impl DataSection {
    /// Creates the map of these variables with their initial content. If programs may not write to
    /// it, the map is frozen: the verifier then treats its values as constants and removes dead
    /// branches.
    pub fn create(&self, content: &[u8]) -> io::Result<Map> {
        let map = Map::create(&MapSpec {
            kind: MapKind::Array,
            name: self.name,
            key_size: 4,
            value_size: self.size,
            max_entries: 1,
            flags: if self.writable {
                MapFlags::MMAPABLE
            } else {
                MapFlags::READ_ONLY_PROGRAM
            },
        })?;
        if content.iter().any(|byte| *byte != 0) {
            map.update(&0_u32.to_ne_bytes(), content)?;
        }
        if !self.writable {
            map.freeze()?;
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests;
