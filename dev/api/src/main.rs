//! Prints the public items of a library, sorted, from rustdoc's JSON: `taskdiag-api LIBRARY.json
//! BELOW.json...`
//!
//! The library re-exports items of the crates below it. They are listed by the paths that users
//! write.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use public_api::{Builder, PublicApi, PublicItem};
use serde_json::Value;

/// Paths of items of lower crates, with the paths that users write; longest first.
type Names = Vec<(String, String)>;

/// Methods that `bitflags!` adds to each type, which are not listed.
const OF_FLAGS: &str =
    "all bits complement contains difference empty from_bits from_bits_retain from_bits_truncate from_name insert \
    intersection intersects is_all is_empty iter iter_names remove set symmetric_difference toggle union \
    Bits Internal IntoIter Item Output Primitive";

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    match listing(&files) {
        Ok(listing) => {
            print!("{listing}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("api: {error}");
            ExitCode::FAILURE
        }
    }
}

fn listing(files: &[String]) -> Result<String, Box<dyn Error>> {
    let usage = "usage: taskdiag-api LIBRARY.json BELOW.json...";
    let (library, below) = files.split_first().ok_or(usage)?;
    let (name, names) = names(&serde_json::from_str(&fs::read_to_string(library)?)?)?;
    let mut items = Items {
        library: name,
        ..Items::default()
    };
    items.add(&read(library)?, &names);
    for file in below {
        items.add(&read(file)?, &names);
    }
    Ok(items.print())
}

fn read(file: &str) -> Result<PublicApi, Box<dyn Error>> {
    let api = Builder::from_rustdoc_json(file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build();
    let of_another = "was it made by another Rust than the one that the public-api in dev/api/Cargo.toml reads?";
    Ok(api.map_err(|error| format!("{file}: {error}; {of_another}"))?)
}

/// The name of the library, and its re-exports of other crates.
fn names(json: &Value) -> Result<(String, Names), Box<dyn Error>> {
    let index = json["index"].as_object().ok_or("an index is missing")?;
    let id = |value: &Value| value.to_string().trim_matches('"').to_owned();
    let path_of = |id: &str| {
        let parts = json["paths"][id]["path"].as_array()?;
        Some(parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("::"))
    };
    let library = path_of(&id(&json["root"])).ok_or("the library has no name")?;
    let own = format!("{library}::");
    let mut names = BTreeMap::new();
    for (module_id, module) in index {
        let (Some(members), Some(path)) = (module["inner"]["module"]["items"].as_array(), path_of(module_id)) else {
            continue;
        };
        for used in members.iter().filter_map(|member| index.get(&id(member))) {
            let used = &used["inner"]["use"];
            let (Some(source), Some(name)) = (used["source"].as_str(), used["name"].as_str()) else {
                continue;
            };
            // The path in the source, and the path of the definition.
            let below = [Some(source.to_owned()), path_of(&id(&used["id"]))];
            for below in below.into_iter().flatten() {
                if below.contains("::") && !below.starts_with(&own) {
                    names.insert(below, format!("{path}::{name}"));
                }
            }
        }
    }
    let mut names: Names = names.into_iter().collect();
    names.sort_by_key(|(below, _)| Reverse(below.len()));
    Ok((library, names))
}

/// Replaces whole paths.
fn renamed(text: &str, names: &[(String, String)]) -> String {
    let mut text = text.to_owned();
    for (below, name) in names {
        let mut rest = std::mem::take(&mut text);
        while let Some(at) = rest.find(below.as_str()) {
            let tail = rest.split_off(at);
            let behind = &tail[below.len()..];
            let is_whole = !behind.starts_with(is_word) && !rest.ends_with(|c| is_word(c) || c == ':');
            text.push_str(&rest);
            text.push_str(if is_whole { name } else { below });
            rest = behind.to_owned();
        }
        text.push_str(&rest);
    }
    text
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[derive(Default)]
struct Items {
    library: String,
    /// By path. An implementation has the path of its type, and follows the definition.
    lines: BTreeSet<(String, Place, String)>,
    /// The traits without parameters of each type, by the type's path and the line without them.
    traits: BTreeMap<(String, String), BTreeSet<String>>,
    /// Types made by `bitflags!`.
    flags: HashSet<String>,
    /// Re-exports, by path.
    uses: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Item,
    Implementation,
}

impl Items {
    /// Adds the items that users can name.
    fn add(&mut self, api: &PublicApi, names: &[(String, String)]) {
        let is_trait_impl = |item: &&PublicItem| {
            let text = item.to_string();
            text.starts_with("impl") && text.contains(" for ")
        };
        let trait_impls: HashSet<_> = api.items().filter(is_trait_impl).map(PublicItem::id).collect();
        for item in api.items() {
            let text = renamed(&item.to_string(), names);
            let is_of_trait = item.parent_id().is_some_and(|parent| trait_impls.contains(&parent));
            if text.starts_with("impl") {
                self.add_impl(&text);
            } else if !is_of_trait || text.starts_with("pub type ") {
                self.add_item(text);
            }
        }
    }

    fn add_item(&mut self, text: String) {
        // After attributes and keywords, the first path is that of the item.
        let declared = text.rsplit_once("] pub ").map_or(&text[..], |(_, rest)| rest);
        let declared = declared.trim_start_matches("pub ");
        let words = || declared.split([' ', '(']);
        let named = words().find(|word| word.contains("::")).or_else(|| words().nth(1));
        let path = path(named.unwrap_or_default());
        if !self.is_ours(&path) {
            return;
        }
        if declared.starts_with("use ") {
            self.uses.push((path, text));
            return;
        }
        self.lines.insert((path, Place::Item, text));
    }

    /// Adds `impl TRAIT for TYPE`. Implementations without a trait are not listed, but their
    /// methods are.
    fn add_impl(&mut self, text: &str) {
        let Some((head, subject)) = text.split_once(" for ") else {
            return;
        };
        let (generics, name) = match head.rsplit_once("> ") {
            Some((generics, name)) if head.starts_with("impl<") => (format!("{generics}> "), name),
            _ => ("impl ".to_owned(), head.trim_start_matches("impl ")),
        };
        let Some(at) = subject.find(&format!("{}::", self.library)) else {
            return;
        };
        let path = path(&subject[at..]);
        if name == "bitflags::traits::Flags" {
            self.flags.insert(path.clone());
        }
        let is_of_std = ["core::", "alloc::", "std::"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if name.starts_with("core::marker::Structural") || !is_of_std && !self.is_ours(name) {
            return;
        }
        if name.contains('<') {
            self.lines.insert((path, Place::Implementation, text.to_owned()));
        } else {
            let short = name.rsplit("::").next().unwrap_or(name).to_owned();
            let key = (path, format!("{generics}\0 for {subject}"));
            self.traits.entry(key).or_default().insert(short);
        }
    }

    fn is_ours(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&self.library);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    }

    fn print(mut self) -> String {
        self.settle();
        let mut text = "# Written by `make api`.\n\n".to_owned();
        let (mut nameless, below) = (BTreeSet::new(), format!("{}_", self.library));
        for (_, _, line) in &self.lines {
            let _ = writeln!(text, "{line}");
            nameless.extend(line.match_indices(&below).map(|(at, _)| path(&line[at..])));
        }
        if !nameless.is_empty() {
            let _ = writeln!(text, "\n# Users can't name these types, which items above have:");
            for path in nameless {
                let _ = writeln!(text, "# {path}");
            }
        }
        text
    }

    /// Finishes what needs the items of all crates.
    fn settle(&mut self) {
        for ((path, rest), traits) in std::mem::take(&mut self.traits) {
            let traits: Vec<String> = traits.into_iter().collect();
            let mut line = rest.replace('\0', &traits.join(" + "));
            if self.flags.contains(&path) {
                line.push_str(" // bitflags");
            }
            self.lines.insert((path, Place::Implementation, line));
        }
        let of_flags: HashSet<&str> = OF_FLAGS.split_whitespace().collect();
        self.lines.retain(|(path, place, _)| {
            let member = path.rsplit_once("::");
            *place == Place::Implementation
                || !member.is_some_and(|(of, name)| self.flags.contains(of) && of_flags.contains(name))
        });
        // A re-exported item is listed itself, unless its crate was not given.
        for (path, line) in std::mem::take(&mut self.uses) {
            if !self.lines.iter().any(|(listed, ..)| *listed == path) {
                self.lines.insert((path, Place::Item, line));
            }
        }
    }
}

/// The path at the start of `text`, without generics: `a::B::c` for `a::B<'_, T>::c(self)`.
fn path(text: &str) -> String {
    let (mut path, mut depth, mut before) = (String::new(), 0, ' ');
    for (at, c) in text.char_indices() {
        let is_separator = c == ':' && (before == ':' || text[at..].starts_with("::"));
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth > 0 => {}
            _ if is_word(c) || is_separator => path.push(c),
            _ => break,
        }
        before = c;
    }
    path.truncate(path.trim_end_matches(':').len());
    path
}
