//! The lower bound: a task iterator whose program does nothing. No program that visits every task
//! can be faster.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use taskdiag_bpf::btf::{self, Kinds, Types, Wanted};
use taskdiag_sys::bpf::{self, AttachType, KernelBtf, ProgramSpec, TaskScope};

use crate::run::{Run, Runner};
use crate::Result;

/// `r0 = 0; exit`, as two 64-bit instructions, correct in either byte order.
const NOTHING: [u64; 2] = [instruction(0xb7), instruction(0x95)];

const fn instruction(opcode: u8) -> u64 {
    u64::from_ne_bytes([opcode, 0, 0, 0, 0, 0, 0, 0])
}

/// Walks all tasks of the pid namespace, including threads: the kernel has no iterator over
/// processes.
pub fn walk() -> Result<Runner> {
    let link = attach()?;
    Ok(Box::new(move || {
        let start = Instant::now();
        let mut pass = bpf::iterate(link.as_fd())?;
        let mut buffer = [0; 4096];
        while pass.read(&mut buffer)? > 0 {}
        drop(pass);
        Ok(Run::new(start.elapsed(), 0))
    }))
}

fn attach() -> Result<OwnedFd> {
    let kernel = KernelBtf::open()?;
    let wanted = Wanted {
        name: "bpf_iter_task",
        kinds: Kinds::compatible_with(btf::Kind::Function),
    };
    let (_, found) = Types::scan(kernel.bytes(), &[wanted])?;
    let &attach_to = found[0]
        .first()
        .ok_or_else(|| io::Error::other("the kernel has no task iterator"))?;
    let program = bpf::load(&ProgramSpec {
        name: "nothing",
        licence: c"GPL",
        instructions: &NOTHING,
        attach: AttachType::TraceIterator,
        attach_to,
        functions: None,
    })?;
    Ok(bpf::link_tasks(program.as_fd(), TaskScope::All)?)
}
