//! `taskdiag schema`: the JSON Schemas of the documents that commands write, as in `docs/schema/`.
//!
//! They are made from the same tables as the documents: fields, events, and the keys of other rows.

use std::iter;

use clap::Args as ClapArgs;
use serde_json::{json, Map, Value};
use taskdiag::{Field, Kind};

use crate::choice::unknown;
use crate::grouping::{self, Grouping, Sum};
use crate::inspect::{self, Shape};
use crate::outcome::{print, Failure, Outcome};
use crate::output::names::NameKind;
use crate::output::relation::ColumnInfo;
use crate::watch::{net, Rate};
use crate::{cache, doctor, events, fields, files, maps, mem, normalize, sockets};

/// Print a JSON Schema, or the names of all schemas
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The name of a schema
    #[arg(value_name = "SCHEMA")]
    name: Option<String>,
}

pub fn run(args: Args) -> Result<Outcome, Failure> {
    let schemas = schemas();
    let names = schemas.iter().map(|(name, _)| *name);
    let Some(wanted) = &args.name else {
        return print(names.map(|name| format!("{name}\n")).collect::<String>());
    };
    let schema = schemas.iter().find(|(name, _)| name == wanted);
    let (_, schema) = schema.ok_or_else(|| unknown("schema", wanted, names))?;
    let text = serde_json::to_string_pretty(schema).expect("a JSON value can be written");
    print(text + "\n")
}

/// All schemas, by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let mem = total::<mem::Sum>("The sum of all processes, including those beyond --limit.");
    let files = total::<files::Sum>("The sum of all files, including those beyond --limit; with --by and --deleted.");
    let sockets = total::<sockets::Sum>("The sum of all sockets, including those beyond --limit.");
    let held = total::<cache::Sum>("The sum of all files, each once, including those beyond --limit.");
    let none = || json!({});
    let of = |command, row| (command, document(&[command], row, &none()));
    let cached = of_row(of_columns(&cache::RELATION), "A file, or a directory with its files.");
    let runs = of_row(run_keys(), "Consecutive pages of a file in the same state.");
    let cache_by = of_row(group_keys::<cache::Sum>(&[]), "Files that processes hold, added up.");
    let of_files = files::OWN.map(|(_, by, _)| by);
    let files_by = of_row(group_keys::<files::Sum>(&of_files), "Files added up.");
    let mem_by = of_row(group_keys::<mem::Sum>(&[]), "Processes added up.");
    let remotes = sockets::OF_REMOTES.map(|(_, by, _)| by);
    let net_by = of_row(group_keys::<net::Sum>(&remotes), "Network traffic added up.");
    let of_sockets = [[&sockets::PORT, &sockets::STATE].as_slice(), &remotes].concat();
    let sockets_by = of_row(group_keys::<sockets::Sum>(&of_sockets), "Sockets added up.");
    let each_socket = of_row(of_columns(&sockets::RELATION), "A socket.");
    let tasks = of_row(task_keys(), "A task.");
    let [doctor, system] = [&doctor::RELATION[..], &mem::SYSTEM_RELATION].map(of_keys);
    vec![
        ("tasks", document(&["ps", "tree", "mem", "watch", "net"], tasks, &mem)),
        of("cache", cached),
        ("cache-by", document(&["cache"], cache_by, &held)),
        ("cache-map", document(&["cache"], runs, &none())),
        ("doctor", document(&["doctor"], doctor, &doctor_members())),
        of("events", of_row(with_names(events::RELATION.into_iter()), "An event.")),
        of("fields", of_keys(&fields::RELATION)),
        ("files", document(&["files"], of_keys(&files::RELATION), &files)),
        ("files-by", document(&["files"], files_by, &files)),
        of("inspect", of_row(inspect_keys(), "A process.")),
        of("maps", of_keys(&maps::RELATION)),
        ("mem-by", document(&["mem"], mem_by, &mem)),
        ("mem-system", document(&["mem"], system, &none())),
        ("net-by", document(&["net"], net_by, &none())),
        of("normalize", of_keys(&normalize::RELATION)),
        ("sample", sample()),
        of("sockets", each_socket),
        ("sockets-by", document(&["sockets"], sockets_by, &sockets)),
    ]
}

/// The member of a document with the sum of all rows.
fn total<S: Sum>(meaning: &str) -> Value {
    json!({"total": of_row(of_columns(&S::columns()), meaning)})
}

/// The members of `doctor --json` other than its rows.
fn doctor_members() -> Value {
    json!({
        "version": {"type": "string", "description": "The version of taskdiag."},
        "machine": {"type": "string", "description": "The architecture, as uname(2) has it."},
        "euid": {"type": "integer", "description": "The effective user id of the caller."},
        "capabilities": {
            "type": "array", "items": {"type": "string"},
            "description": "The caller's effective capabilities that matter here.",
        },
        "unanswered": {
            "type": "object", "additionalProperties": {"type": "string"},
            "description": "Why groups could not be answered.",
        },
    })
}

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The schema of a document with these rows and further members.
fn document(commands: &[&str], row: Value, members: &Value) -> Value {
    let mut document = json!({
        "$schema": DRAFT,
        "$comment": "Made by `taskdiag schema`. The rows of --jsonl are #/$defs/row. Later versions may add keys.",
        "type": "object",
        "properties": {
            "schema": {"const": 1, "description": "Raised when a key is removed or changes its meaning."},
            "command": {"enum": commands},
            "time": {"type": "string", "format": "date-time", "description": "When it was written, in UTC."},
            "host": {"$ref": "#/$defs/text", "description": "The host name, as uname(2) has it."},
            "boot_id": {
                "type": "string",
                "description": "The id of this boot of the kernel; absent if /proc/sys is not mounted.",
            },
            "kernel": {"$ref": "#/$defs/text", "description": "The kernel release, as uname(2) has it."},
            "sources": {
                "type": "object", "additionalProperties": {"type": "string"},
                "description": "The source of each requested group of fields.",
            },
            "counters": {
                "type": "object", "additionalProperties": {"type": ["integer", "boolean"]},
                "description": "Counts of rows, and of what was lost, left out or read again.",
            },
            "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        },
        "required": ["schema", "command", "time", "host", "kernel", "sources", "counters", "rows"],
        "additionalProperties": false,
        "$defs": {
            "row": row,
            "text": {
                "description": "Bytes: a string if they are UTF-8.",
                "oneOf": [
                    {"type": "string"},
                    {
                        "type": "object", "required": ["base64"], "additionalProperties": false,
                        "properties": {"base64": {"type": "string", "contentEncoding": "base64"}},
                    },
                ],
            },
        },
    });
    for (name, schema) in members.as_object().into_iter().flatten() {
        document["properties"][name] = schema.clone();
    }
    document
}

/// The line that precedes the rows of a sample in JSON lines.
fn sample() -> Value {
    json!({
        "$schema": DRAFT,
        "$comment": "Made by `taskdiag schema`. The rows behind this line are #/$defs/row of tasks or mem-by.",
        "type": "object",
        "properties": {
            "sample": {"type": "integer", "minimum": 0, "description": "The number of the sample."},
            "time": {"type": "string", "format": "date-time", "description": "When it was taken, in UTC."},
            "rows": {"type": "integer", "minimum": 0, "description": "The number of its rows. No row has this key."},
        },
        "required": ["sample", "time", "rows"],
        "additionalProperties": false,
    })
}

/// A key with the schema of its values.
type Property = (String, Value);

/// A row with these keys. Each may be missing; `absent` has the reason.
fn of_row(properties: Vec<Property>, description: &str) -> Value {
    let mut properties: Map<String, Value> = properties.into_iter().collect();
    let absent = json!({
        "type": "object", "additionalProperties": {"type": "string"},
        "description": "Why values are missing.",
    });
    properties.insert("absent".to_owned(), absent);
    json!({
        "type": "object", "description": description, "properties": properties, "additionalProperties": false,
    })
}

fn of_keys(columns: &[ColumnInfo]) -> Value {
    of_row(of_columns(columns), "A row.")
}

fn of_columns(columns: &[ColumnInfo]) -> Vec<Property> {
    columns.iter().map(of_column).collect()
}

/// The keys of fields, and the other keys of task rows.
fn task_keys() -> Vec<Property> {
    let mut keys = with_names(Field::ALL.iter().map(|&field| ColumnInfo::of_task(field)));
    keys.extend([count("depth", "The number of its ancestors in the tree.")]);
    keys.extend(of_sample());
    for rate in Rate::ALL {
        let schema = json!({"type": "number", "description": "Since the last sample."});
        keys.push((rate.name().to_owned(), schema));
    }
    keys
}

/// The keys of fields, and of their names.
fn with_names(fields: impl Iterator<Item = ColumnInfo>) -> Vec<Property> {
    fields
        .flat_map(|field| iter::once(of_field(field)).chain(names(&field)))
        .collect()
}

/// The key of the names of a field.
fn names(column: &ColumnInfo) -> Option<Property> {
    let schema = match column.names()? {
        NameKind::User | NameKind::Group => json!({"$ref": "#/$defs/text"}),
        NameKind::Groups | NameKind::Capabilities | NameKind::Signals => {
            json!({"type": "array", "items": {"type": "string"}})
        }
    };
    Some((column.names_column()?, described(schema, "With --names.")))
}

fn run_keys() -> Vec<Property> {
    let mut keys = of_columns(&cache::RUN_RELATION);
    for (name, schema) in &mut keys {
        if name == "state" {
            *schema = json!({"enum": ["uncached", "cached", "clean", "dirty", "writeback", "mixed"]});
        }
    }
    keys
}

/// The keys of sums by anything that processes have in common, or by one of these.
fn group_keys<S: Sum>(own: &[&Grouping]) -> Vec<Property> {
    let mut keys = of_columns(&S::columns());
    keys.extend(of_sample());
    let of_processes = grouping::OF_PROCESSES.iter().map(|(_, by, _)| *by);
    keys.extend(
        of_processes
            .chain(own.iter().copied())
            .flat_map(|by| of_columns(by.columns)),
    );
    keys
}

/// The sections of a process's page.
fn inspect_keys() -> Vec<Property> {
    let of_fields = |fields: &[Field], meaning: &str| {
        let property = |&field: &Field| of_field(ColumnInfo::of_task(field));
        of_row(fields.iter().map(property).collect(), meaning)
    };
    let of_keys = |keys: &[ColumnInfo], meaning: &str| {
        let mut properties = of_columns(keys);
        for (name, schema) in &mut properties {
            if inspect::LIMITED.contains(&name.as_str()) {
                let meaning = schema["description"].as_str().unwrap_or_default().to_owned();
                let number = json!({"type": "number", "minimum": 0});
                *schema = described(json!({"oneOf": [number, {"const": "unlimited"}]}), &meaning);
            }
        }
        of_row(properties, meaning)
    };
    let property = |(_, info): &(inspect::Section, inspect::Info)| {
        let list = |rows: Value| described(json!({"type": "array", "items": rows}), info.meaning);
        let schema = match info.shape {
            Shape::Fields(fields) => of_fields(fields, info.meaning),
            Shape::Values(keys) => of_keys(keys, info.meaning),
            Shape::Tasks(fields) => list(of_fields(fields, "A task.")),
            Shape::List(keys) => list(of_keys(keys, "A row.")),
        };
        (info.key.to_owned(), schema)
    };
    inspect::SECTIONS.iter().map(property).collect()
}

fn of_sample() -> [Property; 2] {
    let time =
        json!({"type": "string", "format": "date-time", "description": "When its sample was taken, in a document."});
    [
        count("sample", "The number of its sample, when watching."),
        ("time".to_owned(), time),
    ]
}

fn count(key: &str, meaning: &str) -> Property {
    (key.to_owned(), of_kind(Kind::Count, meaning))
}

/// The key of a field of tasks or events.
fn of_field(field: ColumnInfo) -> Property {
    // A task may be older than the zero of its reader's clock.
    if field.name == Field::StartNs.name() {
        return (field.name.to_owned(), of_kind(Kind::Signed, field.meaning));
    }
    of_column(&field)
}

/// The key of a column.
fn of_column(column: &ColumnInfo) -> Property {
    let schema = match column.name {
        "owners" | "peers" => {
            let descriptor = json!({
                "type": "object",
                "properties": {
                    "pid": {"type": "integer", "minimum": 0},
                    "comm": {"$ref": "#/$defs/text"},
                    "fd": {"type": "integer", "minimum": 0},
                },
                "required": ["pid", "fd"], "additionalProperties": false,
            });
            described(json!({"type": "array", "items": descriptor}), column.meaning)
        }
        _ => of_kind(column.kind, column.meaning),
    };
    (column.name.to_owned(), schema)
}

/// The schema of values of a kind.
fn of_kind(kind: Kind, meaning: &str) -> Value {
    let schema = match kind {
        Kind::Id | Kind::User | Kind::GroupId | Kind::Count | Kind::Bytes | Kind::Nanoseconds | Kind::Mode => {
            json!({"type": "integer", "minimum": 0})
        }
        Kind::Signed => json!({"type": "integer"}),
        Kind::Percent => json!({"type": "number", "minimum": 0}),
        Kind::Time => json!({"type": "string", "format": "date-time"}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Letter => json!({"type": "string", "minLength": 1, "maxLength": 1}),
        Kind::Text => json!({"$ref": "#/$defs/text"}),
        Kind::Texts => json!({"type": "array", "items": {"$ref": "#/$defs/text"}}),
        Kind::Capabilities | Kind::Signals | Kind::Mask | Kind::Address => {
            json!({"type": "string", "pattern": "^0x[0-9a-f]+$"})
        }
        Kind::Ids => json!({"type": "array", "items": {"type": "integer", "minimum": 0}}),
        Kind::Cpus => json!({"type": "string"}),
        Kind::Limits => {
            let limit = json!({"oneOf": [{"type": "integer", "minimum": 0}, {"const": "unlimited"}]});
            json!({
                "type": "object",
                "additionalProperties": {
                    "type": "object", "properties": {"soft": limit.clone(), "hard": limit},
                    "required": ["soft", "hard"], "additionalProperties": false,
                },
            })
        }
    };
    described(schema, meaning)
}

fn described(mut schema: Value, meaning: &str) -> Value {
    if let (Some(schema), false) = (schema.as_object_mut(), meaning.is_empty()) {
        schema.insert("description".to_owned(), meaning.into());
    }
    schema
}
