//! The record as a C header, `record_gen.h` of `taskdiag-bpf`, which the BPF programs include.

use std::fmt::Write as _;

use super::c::{Constant, Enumeration, Structure};
use super::{events, files, layout, mappings, walk};
use crate::field::Groups;

/// What a module defines for Rust and C.
#[derive(Debug)]
struct Definitions(&'static [Constant], &'static [Enumeration], &'static [Structure]);

impl Definitions {
    fn constants(&self) -> impl Iterator<Item = Constant> {
        let enumerated = self.1.iter().flat_map(|enumeration| enumeration.members);
        self.0.iter().chain(enumerated).copied()
    }
}

const RECORDS: Definitions = Definitions(layout::CONSTANTS, layout::ENUMERATIONS, layout::STRUCTURES);

const ALL: [Definitions; 5] = [
    RECORDS,
    Definitions(events::CONSTANTS, &[], events::STRUCTURES),
    Definitions(files::CONSTANTS, files::ENUMERATIONS, files::STRUCTURES),
    Definitions(mappings::CONSTANTS, mappings::ENUMERATIONS, mappings::STRUCTURES),
    Definitions(walk::CONSTANTS, walk::ENUMERATIONS, walk::STRUCTURES),
];

/// The constants of records.
pub fn constants() -> impl Iterator<Item = Constant> {
    RECORDS.constants()
}

/// The structures of records.
pub fn structures() -> &'static [Structure] {
    RECORDS.2
}

/// All constants of [`text`], and all structures.
pub fn all() -> (Vec<Constant>, Vec<Structure>) {
    let constants = ALL.iter().flat_map(Definitions::constants);
    (
        constants.collect(),
        ALL.iter().flat_map(|each| each.2).copied().collect(),
    )
}

/// The header.
pub fn text() -> String {
    let mut text = "/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */\n/* Made by `make records` from crates/taskdiag-core/src/record, which has the meanings. */\n".to_owned();
    text.push_str("\n/* Groups of fields, as bits of td_config.groups and td_defer.groups. */\n");
    // Writing to a String never fails.
    for group in Groups::ALL.iter() {
        let name = group.name().to_uppercase();
        let _ = writeln!(text, "#define TD_GROUP_{name} (1u << {})", group as u32);
    }
    for definitions in ALL {
        let _ = write_definitions(&mut text, &definitions);
    }
    text
}

fn write_definitions(text: &mut String, definitions: &Definitions) -> std::fmt::Result {
    let Definitions(constants, enumerations, structures) = definitions;
    text.push('\n');
    for constant in *constants {
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
    for enumeration in *enumerations {
        text.push('\n');
        comment(text, "", enumeration.docs)?;
        writeln!(text, "enum {} {{", enumeration.name)?;
        for member in enumeration.members {
            comment(text, "\t", member.docs)?;
            writeln!(text, "\t{} = {},", member.name, member.value)?;
        }
        text.push_str("};\n");
    }
    for structure in *structures {
        text.push('\n');
        comment(text, "", structure.docs)?;
        writeln!(text, "struct {} {{", structure.name)?;
        for (_, member) in structure.members() {
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
        let (constants, structures) = all();
        assert!(constants.iter().all(|constant| header.contains(constant.name)));
        assert!(structures
            .iter()
            .all(|structure| header.contains(&format!("struct {} {{", structure.name))));
    }

    /// Check that structures have no padding.
    #[test]
    fn structures_have_no_padding() {
        for structure in structures() {
            let mut end = 0;
            for (offset, member) in structure.members() {
                let number = match member.ty {
                    "__u8" | "char" => 1,
                    "__u16" => 2,
                    "__u32" | "__s32" => 4,
                    _ => 8,
                };
                assert!(offset == end && end % number == 0, "{}.{}", structure.name, member.name);
                end += number * member.count.unwrap_or(1);
            }
            assert_eq!(structure.size(), end, "{}", structure.name);
        }
    }
}
