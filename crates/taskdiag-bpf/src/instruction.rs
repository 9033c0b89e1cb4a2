//! The properties of BPF instructions that relocation needs.

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

/// The meaning of the number in a 64-bit load, as its source register gives it (`BPF_PSEUDO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Meaning {
    /// It is a plain number.
    Number = 0,
    /// It is the descriptor of a map.
    MapFd = 1,
    /// It is the descriptor of a map, and an offset in the map's first value.
    MapValue = 2,
    /// It is the BTF id of a kernel variable or function.
    KernelSymbol = 3,
}

/// The source register of a call whose number is the BTF id of a kernel function
/// (`BPF_PSEUDO_KFUNC_CALL`).
const KERNEL_CALL: u8 = 2;

/// The number of a helper that does not exist. The verifier refuses a program only if it can reach
/// a call of it.
const POISON: i32 = 0x0bad_2310;
/// A poisoned instruction in the verifier's log.
pub const POISON_IN_LOG: &str = "(85) call unknown#195896080";

/// One instruction, as the kernel reads it on a little-endian machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction(pub u64);

/// How an instruction holds a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Arithmetic with a number of 32 bits.
    Immediate,
    /// A load or store, with an offset.
    Memory,
    /// The first half of a load of a 64-bit number.
    Wide,
    /// Another instruction, without a number.
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

    /// The same 64-bit load with another meaning of its number.
    pub fn with_meaning(self, meaning: Meaning) -> Self {
        self.with_source_register(meaning as u8)
    }

    /// A call of the kernel function with this BTF id.
    pub fn calling_kernel(self, function: i32) -> Self {
        self.with_source_register(KERNEL_CALL)
            .with_offset(0)
            .with_immediate(function)
    }

    fn with_source_register(self, register: u8) -> Self {
        Self(self.0 & !0xf000 | u64::from(register & 0xf) << 12)
    }

    /// The size of a load or store in bytes.
    pub fn access_size(self) -> u32 {
        match self.opcode() & SIZE_MASK {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    /// The same load or store of another size. `None` if there is no instruction for that size.
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

    /// A call that the verifier refuses.
    pub fn poisoned() -> Self {
        Self(u64::from(CALL)).with_immediate(POISON)
    }
}
