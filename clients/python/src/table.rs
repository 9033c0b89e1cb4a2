//! Tables, and their columns and rows.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyIterator, PyList, PySlice, PyString, PyTuple};
use taskdiag::{Kind, Value};
use taskdiag_core::column::Type;

use crate::arrow::{self, Form};
use crate::buffer;
use crate::column;
use crate::errors;
use crate::value::{self, Look};

/// The facts about an answer besides its rows.
#[derive(Debug, Default)]
pub struct About {
    /// For each group, the source that answered, or why none did.
    pub sources: Vec<(&'static str, &'static str)>,
    /// Counters.
    pub counters: Vec<(&'static str, u64)>,
    /// Requested processes that were not found.
    pub missing: Vec<u32>,
}

/// An answer: columns of equal length.
#[pyclass(frozen, module = "taskdiag", sequence)]
#[derive(Debug)]
pub struct Table {
    columns: Vec<Arc<column::Column>>,
    places: HashMap<&'static str, usize>,
    len: usize,
    about: About,
}

impl Table {
    /// A table with these columns, each with `len` values.
    pub fn new(columns: Vec<column::Column>, len: usize, about: About) -> Table {
        Table {
            places: columns.iter().map(|column| column.name).zip(0..).collect(),
            columns: columns.into_iter().map(Arc::new).collect(),
            len,
            about,
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.len
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn find(&self, name: &str) -> PyResult<&Arc<column::Column>> {
        match self.places.get(name) {
            Some(&place) => Ok(&self.columns[place]),
            None => Err(errors::no_column(name, self.columns.iter().map(|column| column.name))),
        }
    }

    fn keys<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyString>> {
        let intern = |column: &Arc<column::Column>| PyString::intern(py, column.name);
        self.columns.iter().map(intern).collect()
    }

    fn dict<'py>(&self, py: Python<'py>, row: usize, keys: &[Bound<'py, PyString>]) -> PyResult<Bound<'py, PyDict>> {
        value::row(py, self.columns.iter().map(Arc::as_ref).zip(keys), row)
    }
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.len
    }

    /// Return a row; for a slice, a list of rows.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let row = |index| {
            let table = slf.clone().unbind();
            Bound::new(slf.py(), Row { index, table })
        };
        match sliced(index, slf.get().len)? {
            Some(places) => {
                let rows = places.map(row).collect::<PyResult<Vec<_>>>()?;
                Ok(PyList::new(slf.py(), rows)?.into_any())
            }
            None => Ok(row(place(index, slf.get().len, "table")?)?.into_any()),
        }
    }

    fn __iter__(slf: &Bound<'_, Self>) -> Rows {
        Rows {
            next: std::sync::atomic::AtomicUsize::new(0),
            table: slf.clone().unbind(),
        }
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&'static str> {
        self.columns.iter().map(|column| column.name).collect()
    }

    /// Return a column. `absent` is a number to use for missing values.
    #[pyo3(signature = (name, *, absent = None))]
    fn column(&self, name: &str, absent: Option<&Bound<'_, PyAny>>) -> PyResult<Column> {
        let column = self.find(name)?;
        match absent {
            Some(stand_in) => Ok(Column::new(Arc::new(filled(column, stand_in)?))),
            None => Ok(Column::new(Arc::clone(column))),
        }
    }

    /// Return the rows as in the command's JSON: a missing value has no key, and its reason is in
    /// `absent`.
    fn to_dicts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys = self.keys(py);
        let rows = (0..self.len).map(|row| self.dict(py, row, &keys));
        PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
    }

    /// The source that answered each group of fields, or why none did.
    #[getter]
    fn sources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        pairs(py, &self.about.sources)
    }

    /// Counters of what was lost, left out or read again.
    #[getter]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        pairs(py, &self.about.counters)
    }

    /// Requested processes that do not exist or are hidden.
    #[getter]
    fn missing(&self) -> Vec<u32> {
        self.about.missing.clone()
    }

    /// The number of bytes that the columns take.
    #[getter]
    fn nbytes(&self) -> usize {
        self.columns.iter().map(|column| column.bytes()).sum()
    }

    /// Return the table for Arrow: with a column NAME_absent for the reasons for each column's
    /// missing values, or with texts as exact bytes.
    #[pyo3(signature = (*, reasons = false, binary = false))]
    fn arrow(slf: &Bound<'_, Self>, reasons: bool, binary: bool) -> Export {
        Export {
            table: slf.clone().unbind(),
            form: Form { binary, reasons },
        }
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // Casting is left to the consumer, as the interface allows.
        let _ = requested_schema;
        arrow::stream(py, &self.columns, self.len, Form::default())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema(py, &self.columns, self.len, Form::default())
    }

    fn __repr__(&self) -> String {
        format!("<taskdiag.Table of {} rows: {}>", self.len, self.columns().join(", "))
    }
}

/// The indexes that a slice selects; `None` if `index` is not a slice.
fn sliced(index: &Bound<'_, PyAny>, len: usize) -> PyResult<Option<impl Iterator<Item = usize>>> {
    let Ok(slice) = index.cast::<PySlice>() else {
        return Ok(None);
    };
    let places = slice.indices(len as isize)?;
    let place = move |number: usize| (places.start + places.step * number as isize) as usize;
    Ok(Some((0..places.slicelength).map(place)))
}

/// The row at an index of Python, which counts from the end if it is negative.
fn place(index: &Bound<'_, PyAny>, len: usize, whole: &str) -> PyResult<usize> {
    let index: isize = index.extract()?;
    let row = if index < 0 { index + len as isize } else { index };
    let row = usize::try_from(row).ok().filter(|&row| row < len);
    row.ok_or_else(|| PyIndexError::new_err(format!("there is no row {index}: the {whole} has {len}")))
}

fn pairs<'py, T: IntoPyObject<'py> + Copy>(
    py: Python<'py>,
    pairs: &[(&'static str, T)],
) -> PyResult<Bound<'py, PyDict>> {
    let made = PyDict::new(py);
    for &(name, value) in pairs {
        made.set_item(name, value)?;
    }
    Ok(made)
}

/// A copy of a column with the caller's value in place of missing ones.
fn filled(column: &column::Column, stand_in: &Bound<'_, PyAny>) -> PyResult<column::Column> {
    let bits = match column.memory.of {
        Type::U64 => stand_in.extract::<u64>()?,
        Type::I64 => stand_in.extract::<i64>()? as u64,
        Type::F64 => stand_in.extract::<f64>()?.to_bits(),
        Type::U8 => stand_in.extract::<bool>()?.into(),
        _ => {
            let message = format!(
                "{} has no numbers: its absent values are None in to_list()",
                column.name
            );
            return Err(PyTypeError::new_err(message));
        }
    };
    let mut filled = column.clone();
    for row in (0..column.len).filter(|&row| column.is_absent(row)) {
        match column.memory.of {
            Type::U8 => filled.memory.bytes[row] = bits as u8,
            _ => filled.memory.numbers[row] = bits,
        }
    }
    filled.memory.reasons = Vec::new();
    filled.memory.missing = 0;
    Ok(filled)
}

/// A table for Arrow, in the form that the caller chose.
#[pyclass(frozen, module = "taskdiag", name = "ArrowExport")]
#[derive(Debug)]
pub struct Export {
    table: Py<Table>,
    form: Form,
}

#[pymethods]
impl Export {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let table = self.table.get();
        arrow::stream(py, &table.columns, table.len, self.form)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let table = self.table.get();
        arrow::schema(py, &table.columns, table.len, self.form)
    }
}

/// The values of one field.
#[pyclass(frozen, module = "taskdiag", sequence)]
#[derive(Debug)]
pub struct Column {
    values: Arc<column::Column>,
    /// The number of values and the size of one, for consumers that read the memory.
    layout: [isize; 2],
}

impl Column {
    fn new(values: Arc<column::Column>) -> Column {
        Column {
            layout: [values.len as isize, buffer::item_size(&values)],
            values,
        }
    }
}

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.values.len
    }

    /// Return a value; for a slice, a list of values.
    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = index.py();
        if let Some(places) = sliced(index, self.values.len)? {
            let values = places.map(|row| value::value(py, &self.values, row, Look::Native));
            return Ok(Some(PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?.into_any()));
        }
        let row = place(index, self.values.len, "column")?;
        value::value(py, &self.values, row, Look::Native)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.to_list(py)?.try_iter()
    }

    /// The name of the field.
    #[getter]
    fn name(&self) -> &'static str {
        self.values.name
    }

    /// The kind of the values, with their unit.
    #[getter]
    fn kind(&self) -> &'static str {
        self.values.kind.as_str()
    }

    /// The number of missing values.
    #[getter]
    fn absent_count(&self) -> usize {
        self.values.memory.missing
    }

    /// A column that is true where there is a value.
    #[getter]
    fn valid(&self) -> Column {
        let values = &self.values;
        let mut valid = column::Column::new(values.name, Kind::Flag, Type::U8, values.len);
        for row in 0..values.len {
            valid.memory.push(Ok(Value::Flag(!values.is_absent(row))));
        }
        Column::new(Arc::new(valid.finish()))
    }

    /// Return why values are missing: a reason for each row, or None where there is a value.
    fn reasons<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let reason = |row| self.values.reason(row).map(|reason| PyString::intern(py, reason));
        PyList::new(py, (0..self.values.len).map(reason))
    }

    /// Return the values; None for a missing one.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let values = (0..self.values.len).map(|row| value::value(py, &self.values, row, Look::Native));
        PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
    }

    /// # Safety
    ///
    /// Python's rules for getbufferproc.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        // SAFETY: `view` is Python's. The column is frozen and keeps both.
        unsafe { buffer::export(slf.as_any(), &this.values, &this.layout, view, flags) }
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema;
        arrow::capsules(py, &self.values, Form::default())
    }

    fn __repr__(&self) -> String {
        let absent = match self.values.memory.missing {
            0 => String::new(),
            count => format!(", {count} absent"),
        };
        let column = &self.values;
        format!(
            "<taskdiag.Column {}: {} ({}{absent})>",
            column.name,
            column.kind.as_str(),
            column.len
        )
    }
}

/// One row of a table. A value becomes an object when it is accessed.
#[pyclass(frozen, module = "taskdiag")]
#[derive(Debug)]
pub struct Row {
    table: Py<Table>,
    index: usize,
}

impl Row {
    /// The row at an index, which must be valid.
    pub fn new(table: Py<Table>, index: usize) -> Row {
        Row { table, index }
    }
}

#[pymethods]
impl Row {
    /// Return a field, or otherwise an attribute of every object. The default order would search
    /// the object's attributes first, which takes longer than making most values.
    fn __getattribute__<'py>(slf: &Bound<'py, Self>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let this = slf.get();
        let table = this.table.get();
        if let Some(&place) = table.places.get(name.to_str()?) {
            let value = value::value(py, &table.columns[place], this.index, Look::Native)?;
            return Ok(value.unwrap_or_else(|| py.None().into_bound(py)));
        }
        py.get_type::<PyAny>().getattr("__getattribute__")?.call1((slf, name))
    }

    /// Fail: neither a field nor another attribute has this name.
    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        let columns = self.table.get().columns.iter();
        Err(errors::no_attribute(name, columns.map(|column| column.name)))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let column = self.table.get().find(name)?;
        value::value(py, column, self.index, Look::Native)
    }

    /// The reasons for missing values, by field.
    #[getter]
    fn absent<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let absent = PyDict::new(py);
        for column in &self.table.get().columns {
            if let Some(reason) = column.reason(self.index) {
                absent.set_item(column.name, reason)?;
            }
        }
        Ok(absent)
    }

    /// Return the row as in the command's JSON.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = self.table.get();
        table.dict(py, self.index, &table.keys(py))
    }

    fn __dir__(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = self.table.get().columns();
        names.extend(["absent", "to_dict"]);
        names
    }

    fn __repr__(&self) -> String {
        let table = self.table.get();
        let values = table.columns.iter().map(|column| column.written(self.index));
        format!("<taskdiag.Row {}>", values.collect::<Vec<_>>().join(" "))
    }
}

/// An iterator over the rows of a table.
#[pyclass(frozen, module = "taskdiag")]
#[derive(Debug)]
pub struct Rows {
    table: Py<Table>,
    next: std::sync::atomic::AtomicUsize,
}

#[pymethods]
impl Rows {
    fn __iter__(slf: &Bound<'_, Self>) -> Py<Rows> {
        slf.clone().unbind()
    }

    fn __next__(&self, py: Python<'_>) -> Option<Row> {
        let index = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        (index < self.table.get().len).then(|| Row {
            table: self.table.clone_ref(py),
            index,
        })
    }

    fn __length_hint__(&self) -> usize {
        let next = self.next.load(std::sync::atomic::Ordering::Relaxed);
        self.table.get().len.saturating_sub(next)
    }
}
