//! Rows of named values, for commands whose rows are no tasks.

use std::io;

use taskdiag::Value;

use super::{cell, csv, json, Output};
use crate::listing::Machine;

/// A value, or in a word why there is none.
pub type Cell<'a> = Result<Value<'a>, &'static str>;

/// What rows add up to, as a row of its own keys.
pub type Total<'a> = Option<(&'a [&'static str], &'a [Cell<'a>])>;

/// What stands in a JSON document before its rows.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    /// The command.
    pub command: &'a str,
    /// Who answered what.
    pub sources: Vec<(&'a str, &'a str)>,
    /// What was counted.
    pub counters: Vec<(&'a str, u64)>,
}

/// Rows that are being written, all with the same keys.
#[derive(Debug)]
pub struct Rows {
    machine: Machine,
    keys: Vec<&'static str>,
    is_first: bool,
    output: Output,
}

impl Rows {
    /// Begins to write. `header` says whether there is one above CSV.
    pub fn begin(machine: Machine, head: &Head<'_>, keys: Vec<&'static str>, header: bool) -> Rows {
        let mut output = Output::new();
        let out = output.buffer();
        match machine {
            Machine::Json => {
                cell::formatted(
                    out,
                    format_args!("{{\"schema\":1,\"command\":\"{}\",\"sources\":", head.command),
                );
                json::object(out, &head.sources, |(what, source)| {
                    (what, move |out: &mut Vec<u8>| json::string(out, source))
                });
                out.extend_from_slice(b",\"counters\":");
                json::object(out, &head.counters, |(name, count)| {
                    (name, move |out: &mut Vec<u8>| {
                        cell::formatted(out, format_args!("{count}"))
                    })
                });
                out.extend_from_slice(b",\"rows\":[");
            }
            Machine::Csv if header => {
                out.extend_from_slice(keys.join(",").as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Machine::Csv | Machine::Jsonl => {}
        }
        Rows {
            machine,
            keys,
            is_first: true,
            output,
        }
    }

    /// Writes a row: a cell for each key.
    pub fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        let out = self.output.buffer();
        match self.machine {
            Machine::Csv => csv::named_row(out, cells),
            Machine::Jsonl => {
                json::named_row(out, &self.keys, cells);
                out.push(b'\n');
            }
            Machine::Json => {
                out.extend_from_slice(if self.is_first { b"\n" } else { b",\n" });
                json::named_row(out, &self.keys, cells);
            }
        }
        self.is_first = false;
        self.output.row_ended()
    }

    /// Writes the end.
    pub fn finish(self) -> io::Result<()> {
        self.finish_with(None)
    }

    /// Writes the end; that of a JSON document has what the rows add up to.
    pub fn finish_with(mut self, total: Total<'_>) -> io::Result<()> {
        if self.machine == Machine::Json {
            json::end_document(self.output.buffer(), total);
        }
        self.output.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(machine: Machine) -> String {
        let head = Head {
            command: "maps",
            sources: vec![("maps", "procfs")],
            counters: vec![("denied", 2)],
        };
        let mut rows = Rows::begin(machine, &head, vec!["start", "name", "inode"], true);
        rows.row(&[Ok(Value::Mask(0x1000)), Ok(Value::Text(b"a,\"b\"")), Err("denied")])
            .expect("nothing is written yet");
        rows.row(&[Ok(Value::Mask(0)), Ok(Value::Text(b"\xff")), Ok(Value::Unsigned(3))])
            .expect("nothing is written yet");
        if machine == Machine::Json {
            rows.output.buffer().extend_from_slice(b"\n]}\n");
        }
        String::from_utf8_lossy(rows.output.buffer()).into_owned()
    }

    /// Check the three forms, with values that are missing, need quotes, or are no UTF-8.
    #[test]
    fn rows_have_three_forms() {
        assert_eq!(
            written(Machine::Csv),
            "start,name,inode\r\n0x1000,\"a,\"\"b\"\"\",\r\n0x0,\u{fffd},3\r\n"
        );
        let lines = "{\"start\":\"0x1000\",\"name\":\"a,\\\"b\\\"\",\"absent\":{\"inode\":\"denied\"}}\n\
                     {\"start\":\"0x0\",\"name\":{\"base64\":\"/w==\"},\"inode\":3}\n";
        assert_eq!(written(Machine::Jsonl), lines);
        let document: serde_json::Value = serde_json::from_str(&written(Machine::Json)).expect("JSON");
        let rows: Vec<serde_json::Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let expected = serde_json::json!({
            "schema": 1, "command": "maps", "sources": {"maps": "procfs"}, "counters": {"denied": 2}, "rows": rows,
        });
        assert_eq!(document, expected);
    }
}
