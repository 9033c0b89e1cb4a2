//! BPF instructions: the few properties relocation needs.

const CLASS_MASK: u8 = 0x07;
const CLASS_LD: u8 = 0x00;
const CLASS_LDX: u8 = 0x01;
const CLASS_ST: u8 = 0x02;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU: u8 = 0x04;
const CLASS_ALU64: u8 = 0x07;
const SOURCE_REGISTER: u8 = 0x08;
const SIZE_MASK: u8 = 0x18;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const CALL: u8 = 0x85;

/// What the second operand register says of the number in a 64-bit load or a call (`BPF_PSEUDO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Meaning {
    /// A plain number (or, in a call, a helper's).
    Number = 0,
    /// A map's file descriptor.
    MapFd = 1,
    /// A map's file descriptor, and an offset into its first value; in a call, a subprogram.
    MapValue = 2,
    /// The number of a kernel variable's type.
    KernelType = 3,
}

/// In a call: the number is that of a kernel function's type (`BPF_PSEUDO_KFUNC_CALL`).
const KERNEL_CALL: u8 = 2;

/// Number of a helper that does not exist. Only when the verifier reaches such a call does it refuse the program.
const POISON: i32 = 0x0bad_2310;
/// How the verifier's log shows a poisoned instruction.
pub const POISON_IN_LOG: &str = "(85) call unknown#195896080";

/// One instruction, as the kernel reads it on a little-endian machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction(pub u64);

/// What kind of instruction a number is put into, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Arithmetic with a 32-bit number.
    Immediate,
    /// Load or store: the number is an offset.
    Memory,
    /// First half of a load of a 64-bit number.
    Wide,
    /// Nothing that takes a number.
    Other,
}

impl Instruction {
    const fn opcode(self) -> u8 {
        self.0 as u8
    }

    pub fn form(self) -> Form {
        let opcode = self.opcode();
        match opcode & CLASS_MASK {
            CLASS_ALU | CLASS_ALU64 if opcode & SOURCE_REGISTER == 0 => Form::Immediate,
            CLASS_LDX | CLASS_ST | CLASS_STX => Form::Memory,
            CLASS_LD if opcode == LOAD_IMMEDIATE_64 => Form::Wide,
            _ => Form::Other,
        }
    }

    pub fn with_immediate(self, immediate: i32) -> Self {
        Self(self.0 & 0xffff_ffff | u64::from(immediate as u32) << 32)
    }

    pub fn with_offset(self, offset: i16) -> Self {
        Self(self.0 & !0xffff_0000 | u64::from(offset as u16) << 16)
    }

    /// A 64-bit load whose number means something.
    pub fn with_meaning(self, meaning: Meaning) -> Self {
        self.with_source_register(meaning as u8)
    }

    /// A call of the kernel function of this type.
    pub fn calling_kernel(self, function: i32) -> Self {
        self.with_source_register(KERNEL_CALL)
            .with_offset(0)
            .with_immediate(function)
    }

    fn with_source_register(self, register: u8) -> Self {
        Self(self.0 & !0xf000 | u64::from(register & 0xf) << 12)
    }

    /// Size of a load or store in bytes.
    pub fn access_size(self) -> u32 {
        match self.opcode() & SIZE_MASK {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    /// The same load or store of another size; `None` if no instruction has that size.
    pub fn with_access_size(self, size: u32) -> Option<Self> {
        let bits: u64 = match size {
            4 => 0x00,
            2 => 0x08,
            1 => 0x10,
            8 => 0x18,
            _ => return None,
        };
        Some(Self(self.0 & !u64::from(SIZE_MASK) | bits))
    }

    /// A call that no verifier accepts.
    pub fn poisoned() -> Self {
        Self(u64::from(CALL)).with_immediate(POISON)
    }
}
