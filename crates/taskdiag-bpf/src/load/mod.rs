//! Loads a recipe's programs into the running kernel.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use taskdiag_sys::bpf::{self, AttachType, FunctionInfo, Map, MapFlags, MapKind, MapSpec, ProgramSpec};

use super::instruction::POISON_IN_LOG;
use super::recipe::{Attach, DataSection, Program};
use super::relocate::{describe, Linker, RelocationError};
use crate::btf::BtfError;
use crate::rights;

/// Why a program is not in the kernel.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The recipe has no program of that name.
    NoSuchProgram(String),
    /// The kernel's type information cannot be read.
    Btf(BtfError),
    /// The kernel lacks what the program would be attached to: it is older than that, or built without it.
    NoAttachPoint(&'static str),
    /// One instruction could not be fitted to this kernel.
    Relocation {
        /// The program.
        program: &'static str,
        /// Index of the instruction.
        instruction: u32,
        /// The field, type, symbol or map it refers to.
        subject: String,
        /// What was wrong.
        reason: RelocationError,
    },
    /// The program uses something this kernel does not have, in a place that can be reached.
    Unresolved {
        /// The program.
        program: &'static str,
        /// Index of the instruction.
        instruction: u32,
        /// What is missing.
        subject: String,
    },
    /// Not permitted.
    Denied {
        /// Those of the two capabilities it takes that this thread lacks; none of them if something else forbids it.
        missing: Vec<&'static str>,
    },
    /// The kernel refused the program.
    Rejected {
        /// The program.
        program: &'static str,
        /// Its error.
        error: io::Error,
        /// The verifier's explanation; may be long, the end matters.
        log: String,
    },
    /// The kernel refused the type information of the program's own functions.
    Functions(io::Error),
}

impl From<BtfError> for LoadError {
    fn from(error: BtfError) -> Self {
        Self::Btf(error)
    }
}

/// Lines of the verifier's log that a message shows: the last one names the mistake, the ones before the place.
const LOG_LINES_SHOWN: usize = 12;

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchProgram(name) => write!(f, "there is no BPF program {name}"),
            Self::Btf(error) => write!(f, "the kernel's BTF: {error}"),
            Self::NoAttachPoint(name) => {
                write!(
                    f,
                    "this kernel has no {name}: what the program is attached to is not there"
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
                "the kernel forbids to load BPF programs although CAP_BPF and CAP_PERFMON are held \
                 (user namespace, lockdown, security module, or RLIMIT_MEMLOCK before Linux 5.11)"
            ),
            Self::Denied { missing } => {
                write!(f, "{} missing to load BPF programs", missing.join(" and "))
            }
            Self::Rejected { program, error, log } => {
                let lines: Vec<_> = log.trim_end().lines().collect();
                let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
                write!(f, "the kernel refused BPF program {program}: {error}")?;
                shown.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
            Self::Functions(error) => write!(f, "the kernel refused the functions' BTF: {error}"),
        }
    }
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

impl Linker<'_> {
    /// Loads the program `name`. `maps` gives the map for each name in the recipe's `maps` and `data`.
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
            let instructions = self.fit(program, maps)?;
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
                // A variable without address, among other things.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) && self.forget_weak_variables() => {}
                Err(error) => return Err(self.explain(program, &spec, error)),
            }
        }
    }

    /// Relocates a program, and names what failed.
    fn fit<'m>(
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

    /// Finds out why the kernel refused a program, by loading it again with the verifier's log on.
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

/// What the kernel is told of a program's functions, `btf` being their types.
fn function_info<'a>(program: &Program, btf: Option<&'a OwnedFd>) -> Option<FunctionInfo<'a>> {
    let functions = program.functions?;
    Some(FunctionInfo {
        btf: btf?.as_fd(),
        records: functions.records,
    })
}

/// The instruction the verifier stopped at, if it is one spoilt because its target does not exist.
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
    /// Creates the map of these variables, `content` being their first value. One that programs may not write is
    /// frozen: the verifier takes its values for constants and drops the branches they rule out.
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
