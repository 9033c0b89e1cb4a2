//! Writes recipes as Rust constants.

use super::program::{Described, Program, Recipe};
use super::Source;

/// The constant for a source: its recipe, or the reason why it has none.
pub fn recipe(source: &Source, recipe: &Result<Recipe, String>) -> String {
    let attribute = if source.only_for_tests { "#[cfg(test)]\n" } else { "" };
    let head = format!(
        "/// `{}` with {:?}, or why it could not be compiled.\n{attribute}pub static {}: Result<Recipe, &str> = ",
        source.file, source.defines, source.name
    );
    match recipe {
        Ok(recipe) => format!("{head}Ok({});\n", value(source.name, recipe)),
        Err(reason) => format!("{head}Err({reason:?});\n"),
    }
}

fn value(name: &str, recipe: &Recipe) -> String {
    let tables = &recipe.tables;
    let programs: Vec<_> = recipe.programs.iter().map(program).collect();
    let roots: Vec<_> = tables.roots.iter().map(|(_, text)| text.clone()).collect();
    format!(
        "Recipe {{ name: {name:?}, licence: c\"{}\", programs: {}, maps: {}, data: {}, roots: {}, fields: {}, \
         kernel_symbols: {} }}",
        recipe
            .licence
            .strip_suffix(b"\0")
            .unwrap_or(&recipe.licence)
            .escape_ascii(),
        list(&programs),
        list(&tables.maps),
        list(&tables.data),
        list(&roots),
        list(&tables.fields),
        list(&tables.kernel_symbols),
    )
}

fn list(items: &[String]) -> String {
    format!("&[{}]", items.join(",\n"))
}

fn program(program: &Program) -> String {
    let instructions: Vec<_> = program
        .instructions
        .iter()
        .map(|instruction| format!("{instruction:#x}"))
        .collect();
    let relocations: Vec<_> = program
        .relocations
        .iter()
        .map(|(at, target)| format!("Relocation {{ instruction: {at}, target: {target} }}"))
        .collect();
    format!(
        "Program {{ name: {:?}, attach: {}, instructions: {}, relocations: {}, functions: {} }}",
        program.name,
        program.attach,
        list(&instructions),
        list(&relocations),
        program
            .functions
            .as_ref()
            .map_or("None".to_owned(), |functions| functions_text(functions)),
    )
}

/// Ids of the types that function_types() writes: the prototype without arguments, `long`, the
/// prototypes with one and more arguments, and the functions.
const PROTOTYPE: u32 = 2;
const LONG: u32 = 3;
const GLOBAL_PROTOTYPE: u32 = 4;
const MAX_ARGUMENTS: usize = 5;
const FIRST_FUNCTION: u32 = GLOBAL_PROTOTYPE + MAX_ARGUMENTS as u32;

fn functions_text(functions: &[Described]) -> String {
    let records: Vec<_> = functions
        .iter()
        .zip(FIRST_FUNCTION..)
        .map(|(function, id)| format!("[{}, {id}]", function.start))
        .collect();
    format!(
        "Some(Functions {{ btf: b\"{}\", records: {} }})",
        function_types(functions).escape_ascii(),
        list(&records)
    )
}

/// A BTF with nothing but the functions. The kernel must know which functions are global: it
/// verifies those separately, for any numbers as arguments.
fn function_types(functions: &[Described]) -> Vec<u8> {
    const INTEGER: u32 = 1;
    let mut strings = b"\0int\0long\0".to_vec();
    let (int_name, long_name) = (1, 5);
    let mut types: Vec<u32> = Vec::new();
    types.extend([int_name, 1 << 24, 4, 1 << 24 | 32]);
    types.extend([0, 13 << 24, INTEGER]);
    types.extend([long_name, 1 << 24, 8, 64]);
    for arguments in 1..=MAX_ARGUMENTS {
        types.extend([0, 13 << 24 | arguments as u32, INTEGER]);
        // Each argument must have a name.
        (0..arguments).for_each(|_| types.extend([long_name, LONG]));
    }
    for function in functions {
        let (is_global, prototype) = match function.arguments {
            None => (0, PROTOTYPE),
            Some(0) => (1, PROTOTYPE),
            Some(arguments) => (1, GLOBAL_PROTOTYPE + arguments as u32 - 1),
        };
        types.extend([strings.len() as u32, 12 << 24 | is_global, prototype]);
        strings.extend(function.name.bytes());
        strings.push(0);
    }
    let types_len = types.len() as u32 * 4;
    let magic_and_version = 0x0001_eb9f;
    let header = [magic_and_version, 24, 0, types_len, types_len, strings.len() as u32];
    let words = header.into_iter().chain(types).flat_map(u32::to_le_bytes);
    words.chain(strings).collect()
}
