//! The mappings of a process, and the files behind its addresses.

use std::path::PathBuf;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use taskdiag::maps::{BuildId, Filter, MapField, Mappings, Normalized, Normalizer, Outcome, Perms, Row};
use taskdiag::{Absent, Kind, Known, Set, SourceId, Value};
use taskdiag_core::column::{reason, Reason};
use taskdiag_core::setting::{self, MAP_SOURCES};

use crate::column::{ANONYMOUS, SPECIAL, UNMAPPED, VDSO};
use crate::errors;
use crate::fork;
use crate::handle::Settings;
use crate::query;
use crate::rows::{key, keys, Cell, Key, Rows};
use crate::table::{About, Table};

const KEYS: [Key; MapField::ALL.len()] = keys!(MapField);

const ADDRESS_KEYS: [Key; 7] = [
    key("addr", Kind::Address),
    key("file_offset", Kind::Bytes),
    key("name", Kind::Text),
    key("build_id", Kind::Text),
    key("deleted", Kind::Flag),
    key("elf_address", Kind::Address),
    key("segment_address", Kind::Address),
];

/// The settings that the arguments of a call describe.
fn settings(source: &str, socket: Option<PathBuf>, patience: Option<f64>) -> PyResult<Settings> {
    let source = errors::checked(setting::source(source, &MAP_SOURCES, SourceId::name))?;
    Settings::new(source, socket, patience)
}

/// Return the mappings of a process, by address.
#[pyfunction]
#[pyo3(signature = (pid, *, build_ids = false, go_build_ids = false, usage = false, executable = false,
                    file_backed = false, source = "auto", socket = None, patience = None))]
#[allow(clippy::too_many_arguments)] // They are Python's, each with its name.
pub fn maps(
    py: Python<'_>,
    pid: &Bound<'_, PyAny>,
    build_ids: bool,
    go_build_ids: bool,
    usage: bool,
    executable: bool,
    file_backed: bool,
    source: &str,
    socket: Option<PathBuf>,
    patience: Option<f64>,
) -> PyResult<Table> {
    let pid = query::pid(pid)?;
    let settings = settings(source, socket, patience)?;
    let mut fields = Set::from_iter(MapField::ALL.iter().copied()).without(MapField::SizeBytes);
    if !build_ids {
        fields = fields.without(MapField::BuildId);
    }
    if !go_build_ids {
        fields = fields.without(MapField::GoBuildId);
    }
    if !usage {
        fields = fields.without(MapField::RssBytes | MapField::DirtyBytes | MapField::HugetlbBytes);
    }
    let mut filter = Filter::default();
    filter.perms.set(Perms::EXEC, executable);
    filter.file_backed = file_backed;
    let is_chosen = |&index: &usize| fields.contains(MapField::ALL[index]);
    let chosen: Vec<usize> = (0..KEYS.len()).filter(is_chosen).collect();
    let answer = fork::ask(py, || {
        let mappings = settings.handle().maps(pid)?.list(filter, fields)?;
        Ok(list(&mappings, &chosen))
    })?;
    answer.map_err(|error| errors::of(&error))
}

fn list(mappings: &Mappings, chosen: &[usize]) -> Table {
    let mut rows = Rows::new(&KEYS, chosen);
    for mapping in mappings {
        let row = Row::new(mapping);
        rows.push_with(|column, index| column.push(row.value(MapField::ALL[index]).map_err(reason)));
    }
    let about = About {
        sources: vec![("maps", mappings.source().name())],
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
        Ok(None) => Err(reason(Absent::NotApplicable)),
        Err(absent) => Err(reason(absent)),
    }
}

/// Parses addresses: a buffer of 64-bit numbers, or a list of numbers.
fn addresses(addresses: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    if let Ok(buffer) = PyBuffer::<u64>::get(addresses) {
        return buffer.to_vec(addresses.py());
    }
    let address = |address: Bound<'_, PyAny>| {
        let known = address.extract::<u64>();
        known.map_err(|_| errors::invalid(format!("addresses: {address} is not an address")))
    };
    addresses.try_iter()?.map(|each| address(each?)).collect()
}

/// Translate addresses of a process to offsets in files.
#[pyfunction]
#[pyo3(signature = (pid, addresses, *, build_ids = true, segments = false, source = "auto", socket = None,
                    patience = None))]
#[allow(clippy::too_many_arguments)] // They are Python's, each with its name.
pub fn normalize(
    py: Python<'_>,
    pid: &Bound<'_, PyAny>,
    addresses: &Bound<'_, PyAny>,
    build_ids: bool,
    segments: bool,
    source: &str,
    socket: Option<PathBuf>,
    patience: Option<f64>,
) -> PyResult<Table> {
    let pid = query::pid(pid)?;
    let settings = settings(source, socket, patience)?;
    let addresses = self::addresses(addresses)?;
    let answer = fork::ask(py, || {
        let mut normalizer = Normalizer::new().build_ids(build_ids).segments(segments);
        let normalized = normalizer.normalize(&mut settings.handle().maps(pid)?, &addresses)?;
        Ok(places(&normalized, &addresses, segments))
    })?;
    answer.map_err(|error| errors::of(&error))
}

fn places(normalized: &Normalized, addresses: &[u64], segments: bool) -> Table {
    let columns = [0, 1, 2, 3, 4, 5, 6];
    let mut rows = Rows::new(&ADDRESS_KEYS, if segments { &columns } else { &columns[..5] });
    for (&address, &place) in addresses.iter().zip(&normalized.outcomes) {
        let nowhere = |reason: Reason| (Err(reason), Err(reason), Err(reason), Err(reason), Err(reason));
        let (offset, name, build_id, deleted, elf_address) = match place {
            Outcome::InFile { file, offset } => {
                let file = &normalized.files[file];
                let name = file.path.as_deref().map_err(|&absent| reason(absent));
                let elf_address = file.elf_address(offset).map_err(reason);
                let elf_address = elf_address.and_then(|found| found.ok_or(reason(Absent::NotApplicable)));
                (Ok(offset), name, Ok(file.build_id), Ok(file.deleted), elf_address)
            }
            Outcome::Vdso { build_id, .. } => (Err(VDSO), Ok(&b"[vdso]"[..]), Ok(build_id), Err(VDSO), Err(VDSO)),
            Outcome::Unmapped => nowhere(UNMAPPED),
            Outcome::Anonymous => nowhere(ANONYMOUS),
            _ => nowhere(SPECIAL),
        };
        let text = build_id.map_or_else(|_: Reason| String::new(), written);
        rows.push(|key| match key {
            0 => Ok(Value::Mask(address)),
            1 => offset.map(Value::Unsigned),
            2 => name.map(Value::Text),
            3 => build_id_cell(build_id?, &text),
            4 => deleted.map(Value::Flag),
            5 => elf_address.map(|(address, _)| Value::Mask(address)),
            _ => elf_address.map(|(_, segment)| Value::Mask(segment.address)),
        });
    }
    let about = About {
        sources: vec![("maps", normalized.source.name())],
        counters: vec![
            ("addresses", addresses.len() as u64),
            ("mappings", normalized.mappings as u64),
            ("files", normalized.files.len() as u64),
        ],
        missing: Vec::new(),
    };
    rows.finish(about)
}
