//! The record as a C header, which the BPF programs include. The build script of `taskdiag-bpf`
//! writes it.

use std::fmt::Write as _;

use super::c::{Constant, Structure};
use super::layout::{CONSTANTS, ENUMERATIONS, STRUCTURES};
use crate::field::Groups;

/// All constants of [`text`].
pub fn constants() -> impl Iterator<Item = Constant> {
    let enumerated = ENUMERATIONS.iter().flat_map(|enumeration| enumeration.members);
    CONSTANTS.iter().chain(enumerated).copied()
}

/// All structures of [`text`].
pub fn structures() -> &'static [Structure] {
    STRUCTURES
}

/// The header.
pub fn text() -> String {
    let mut text = "/* Made from crates/taskdiag-core/src/record/layout.rs, which has the meanings. */\n".to_owned();
    // Writing to a String never fails.
    let _ = write_header(&mut text);
    text
}

fn write_header(text: &mut String) -> std::fmt::Result {
    for constant in CONSTANTS {
        comment(text, "", constant.docs)?;
        // Flags are easier to read as bits.
        let (value, suffix) = (constant.value, constant.suffix);
        match value.trailing_zeros() {
            bit if value.is_power_of_two() && suffix == "u" => {
                writeln!(text, "#define {} (1u << {bit})", constant.name)?;
            }
            _ => writeln!(text, "#define {} {value}{suffix}", constant.name)?,
        }
    }
    text.push_str("\n/* Groups of fields, as bits of td_config.groups and td_defer.groups. */\n");
    for group in Groups::ALL.iter() {
        let name = group.name().to_uppercase();
        writeln!(text, "#define TD_GROUP_{name} (1u << {})", group as u32)?;
    }
    for enumeration in ENUMERATIONS {
        text.push('\n');
        comment(text, "", enumeration.docs)?;
        writeln!(text, "enum {} {{", enumeration.name)?;
        for member in enumeration.members {
            comment(text, "\t", member.docs)?;
            writeln!(text, "\t{} = {},", member.name, member.value)?;
        }
        text.push_str("};\n");
    }
    for structure in STRUCTURES {
        text.push('\n');
        comment(text, "", structure.docs)?;
        writeln!(text, "struct {} {{", structure.name)?;
        for member in structure.members {
            comment(text, "\t", member.docs)?;
            let count = member.count.map_or(String::new(), |count| format!("[{count}]"));
            writeln!(text, "\t{} {}{count};", member.ty, member.name)?;
        }
        text.push_str("};\n");
    }
    Ok(())
}

fn comment(text: &mut String, indent: &str, docs: &[&str]) -> std::fmt::Result {
    let last = docs.len().saturating_sub(1);
    for (index, line) in docs.iter().enumerate() {
        let start = if index == 0 { "/*" } else { " *" };
        let end = if index == last { " */" } else { "" };
        writeln!(text, "{indent}{start}{line}{end}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that everything is in the header, in C.
    #[test]
    fn header_has_everything() {
        let header = text();
        for wanted in [
            "#define TD_NO_MM (1u << 1)\n",
            "#define TD_TESTABLE (1u << 31)\n",
            "#define TD_NO_NUMBER 18446744073709551615ull\n",
            "#define TD_GROUP_TEXT (1u << 20)\n",
            "\n/* The types of attributes. */\nenum td_attr_type {\n\tTD_ATTR_BASE = 1,\n",
            "\n/* Signal sets: signal N is bit N - 1. */\nstruct td_signals {\n\t__u64 sig_pending;\n",
            "\tchar comm[16];\n",
            "\t__u64 security[32];\n};\n",
        ] {
            assert!(header.contains(wanted), "{wanted}: {header}");
        }
        assert!(!header.contains("TD_GROUP_DERIVED"));
        let defined = constants().filter(|constant| header.contains(constant.name)).count();
        assert_eq!(
            defined,
            CONSTANTS.len() + ENUMERATIONS.iter().map(|each| each.members.len()).sum::<usize>()
        );
    }

    /// Check that structures have no padding.
    #[test]
    fn structures_have_no_padding() {
        for structure in structures() {
            let mut end = 0;
            for member in structure.members {
                let number = match member.ty {
                    "__u8" | "char" => 1,
                    "__u16" => 2,
                    "__u32" | "__s32" => 4,
                    _ => 8,
                };
                assert!(
                    member.offset == end && end % number == 0,
                    "{}.{}",
                    structure.name,
                    member.name
                );
                end += number * member.count.unwrap_or(1);
            }
            assert_eq!(structure.size, end, "{}", structure.name);
        }
    }
}
