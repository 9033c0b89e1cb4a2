//! Mappings of a process, and what its addresses mean.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use taskdiag::maps::{
    Broker, BuildId, Filter, MapField, Mappings, Maps, Normalized, Normalizer, Outcome, Reason, Row, Source, Wants,
};
use taskdiag::{Kind, Known, Value};

use crate::errors;
use crate::fork;
use crate::query;
use crate::rows::{key, keys, Cell, Key, Rows};
use crate::table::{About, Table};

const KEYS: [Key; MapField::ALL.len()] = keys!(MapField);

const ADDRESS_KEYS: [Key; 5] = [
    key("addr", Kind::Address),
    key("file_offset", Kind::Bytes),
    key("name", Kind::Text),
    key("build_id", Kind::Text),
    key("deleted", Kind::Flag),
];

/// Who opens and answers.
#[derive(Debug)]
struct From {
    source: Option<Source>,
    socket: Option<PathBuf>,
    is_broker: bool,
    patience: Option<Duration>,
}

impl From {
    fn new(source: &str, socket: Option<PathBuf>, patience: Option<f64>) -> PyResult<From> {
        let patience = patience
            .map(|patience| query::seconds("patience", patience))
            .transpose()?;
        let (is_broker, source) = match source {
            "auto" => (socket.is_some(), None),
            "broker" => (true, None),
            "procmap" => (false, Some(Source::Procmap)),
            "bpf" => (false, Some(Source::Bpf)),
            "procfs" => (false, Some(Source::Procfs)),
            _ => {
                let known = "sources are auto, procmap, bpf, procfs and broker";
                return Err(errors::invalid(format!("source: {source:?} is none; {known}")));
            }
        };
        Ok(From {
            source,
            socket,
            is_broker,
            patience,
        })
    }

    fn open(&self, pid: u32) -> taskdiag::Result<Maps> {
        let mut maps = match self.patience {
            _ if self.is_broker => Broker::connect(self.socket.as_deref())?.open(pid)?,
            Some(patience) => Maps::open_within(pid, patience)?,
            None => Maps::open(pid)?,
        };
        if let Some(patience) = self.patience {
            maps = maps.with_patience(patience);
        }
        Ok(match self.source {
            Some(source) => maps.with_source(source),
            None => maps,
        })
    }

    fn name(&self, source: Source) -> &'static str {
        if self.is_broker {
            "broker"
        } else {
            source.name()
        }
    }
}

/// The mappings of a process.
#[pyfunction]
#[pyo3(signature = (pid, *, build_ids = false, usage = false, executable = false, file_backed = false,
                    source = "auto", socket = None, patience = None))]
#[allow(clippy::too_many_arguments)] // They are Python's, each with its name.
pub fn maps(
    py: Python<'_>,
    pid: &Bound<'_, PyAny>,
    build_ids: bool,
    usage: bool,
    executable: bool,
    file_backed: bool,
    source: &str,
    socket: Option<PathBuf>,
    patience: Option<f64>,
) -> PyResult<Table> {
    let pid = query::pid(pid)?;
    let from = From::new(source, socket, patience)?;
    let mut wants = Wants::NAMES | Wants::PAGE_SIZES;
    wants.set(Wants::BUILD_IDS, build_ids);
    wants.set(Wants::USAGE, usage);
    let mut filter = Filter::empty();
    filter.set(Filter::EXECUTABLE, executable);
    filter.set(Filter::FILE_BACKED, file_backed);
    let is_usual = |&index: &usize| match MapField::ALL[index] {
        MapField::SizeBytes => false,
        field => wants.contains(field.into()),
    };
    let chosen: Vec<usize> = (0..KEYS.len()).filter(is_usual).collect();
    let answer = fork::ask(py, || {
        let mappings = from.open(pid)?.list(filter, wants)?;
        Ok(list(&mappings, pid, &chosen, from.name(mappings.source())))
    })?;
    answer.map_err(|error| errors::of(&error))
}

fn list(mappings: &Mappings, pid: u32, chosen: &[usize], source: &'static str) -> Table {
    let mut rows = Rows::new(&KEYS, chosen);
    for mapping in mappings {
        let row = Row::new(pid, mapping);
        rows.push_with(|column, index| column.push_found(None, row.value(MapField::ALL[index])));
    }
    let about = About {
        sources: vec![("maps", source)],
        counters: vec![("mappings", mappings.len() as u64)],
        missing: Vec::new(),
    };
    rows.finish(about)
}

fn written(id: Known<Option<BuildId>>) -> String {
    match id {
        Ok(Some(id)) => id.to_string(),
        _ => String::new(),
    }
}

fn build_id_cell(id: Known<Option<BuildId>>, written: &str) -> Cell<'_> {
    match id {
        Ok(Some(_)) => Ok(Value::Text(written.as_bytes())),
        Ok(None) => Err("none"),
        Err(reason) => Err(reason.as_str()),
    }
}

/// Addresses: a buffer of 64-bit numbers, or a list of numbers.
fn addresses(addresses: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    if let Ok(buffer) = PyBuffer::<u64>::get(addresses) {
        return buffer.to_vec(addresses.py());
    }
    let address = |address: Bound<'_, PyAny>| {
        let known = address.extract::<u64>();
        known.map_err(|_| errors::invalid(format!("addresses: {address} is no address")))
    };
    addresses.try_iter()?.map(|each| address(each?)).collect()
}

/// Where addresses of a process are in files.
#[pyfunction]
#[pyo3(signature = (pid, addresses, *, build_ids = true, source = "auto", socket = None, patience = None))]
pub fn normalize(
    py: Python<'_>,
    pid: &Bound<'_, PyAny>,
    addresses: &Bound<'_, PyAny>,
    build_ids: bool,
    source: &str,
    socket: Option<PathBuf>,
    patience: Option<f64>,
) -> PyResult<Table> {
    let pid = query::pid(pid)?;
    let from = From::new(source, socket, patience)?;
    let addresses = self::addresses(addresses)?;
    let answer = fork::ask(py, || {
        let mut normalizer = Normalizer::new().build_ids(build_ids);
        let normalized = normalizer.normalize(&mut from.open(pid)?, &addresses)?;
        Ok(places(&normalized, &addresses, from.name(normalized.source)))
    })?;
    answer.map_err(|error| errors::of(&error))
}

fn places(normalized: &Normalized, addresses: &[u64], source: &'static str) -> Table {
    let mut rows = Rows::new(&ADDRESS_KEYS, &[0, 1, 2, 3, 4]);
    for (&address, &place) in addresses.iter().zip(&normalized.outcomes) {
        let nowhere = |reason: &'static str| (Err(reason), Err(reason), Err(reason), Err(reason));
        let (offset, name, build_id, deleted) = match place {
            Outcome::InFile { file, offset } => {
                let file = &normalized.files[file];
                let name = file.path.as_deref().map_err(|reason| reason.as_str());
                (Ok(offset), name, Ok(file.build_id), Ok(file.deleted))
            }
            Outcome::Nowhere(Reason::Vdso { build_id, .. }) => {
                (Err("vdso"), Ok(&b"[vdso]"[..]), Ok(build_id), Err("vdso"))
            }
            Outcome::Nowhere(Reason::Unmapped) => nowhere("unmapped"),
            Outcome::Nowhere(Reason::Anonymous) => nowhere("anonymous"),
            Outcome::Nowhere(_) => nowhere("special"),
        };
        let text = build_id.map_or_else(|_: &str| String::new(), written);
        rows.push(|key| match key {
            0 => Ok(Value::Mask(address)),
            1 => offset.map(Value::Unsigned),
            2 => name.map(Value::Text),
            3 => build_id_cell(build_id?, &text),
            _ => deleted.map(Value::Flag),
        });
    }
    let about = About {
        sources: vec![("maps", source)],
        counters: vec![
            ("addresses", addresses.len() as u64),
            ("mappings", normalized.mappings as u64),
            ("files", normalized.files.len() as u64),
        ],
        missing: Vec::new(),
    };
    rows.finish(about)
}
