//! Columns as Arrow arrays, and the capsules of Arrow's PyCapsule interface.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::ffi::{to_ffi, FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, ListArray, PrimitiveArray, RecordBatch, RecordBatchIterator,
    RecordBatchOptions, StringArray, StructArray, UInt64Array,
};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::column::{Column, Data, Texts};

/// The form of an export.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    /// Export texts as exact bytes; otherwise as UTF-8, with U+FFFD for invalid bytes.
    pub binary: bool,
    /// After each column, add one with the reasons for its missing values.
    pub reasons: bool,
}

/// The values of a column.
pub fn array(column: &Column, form: Form) -> Result<ArrayRef, ArrowError> {
    let nulls = column.validity();
    Ok(match &column.data {
        Data::Unsigned(values) | Data::Mask(values) => {
            Arc::new(PrimitiveArray::<UInt64Type>::try_new(values.clone(), nulls)?)
        }
        Data::Signed(values) => Arc::new(PrimitiveArray::<Int64Type>::try_new(values.clone(), nulls)?),
        Data::Float(values) => Arc::new(PrimitiveArray::<Float64Type>::try_new(values.clone(), nulls)?),
        Data::Flag(values) => Arc::new(BooleanArray::new(values.iter().map(|&flag| flag != 0).collect(), nulls)),
        Data::Text(texts) => text_array(texts, nulls, form)?,
        Data::TextLists(offsets, texts) => {
            let items = text_array(texts, None, form)?;
            list(items, offsets.clone(), nulls)?
        }
        Data::NumberLists(offsets, numbers) => {
            let items = Arc::new(PrimitiveArray::<UInt32Type>::try_new(numbers.clone(), None)?);
            list(items, offsets.clone(), nulls)?
        }
        Data::LimitLists(offsets, names, [softs, hards]) => {
            let names: StringArray = names.iter().copied().map(Some).collect();
            let limits = |limits: &[Option<u64>]| Arc::new(limits.iter().copied().collect::<UInt64Array>()) as ArrayRef;
            let fields: Fields = vec![
                Field::new("name", DataType::Utf8, false),
                Field::new("soft", DataType::UInt64, true),
                Field::new("hard", DataType::UInt64, true),
            ]
            .into();
            let items = StructArray::try_new(fields, vec![Arc::new(names), limits(softs), limits(hards)], None)?;
            list(Arc::new(items), offsets.clone(), nulls)?
        }
        Data::OwnerLists(offsets, owners) => {
            let comms = text_array(&owners.comms, None, form)?;
            let numbers = |numbers: &ScalarBuffer<u32>| {
                PrimitiveArray::<UInt32Type>::try_new(numbers.clone(), None).map(|array| Arc::new(array) as ArrayRef)
            };
            let fields: Fields = vec![
                Field::new("pid", DataType::UInt32, false),
                Field::new("comm", comms.data_type().clone(), false),
                Field::new("fd", DataType::UInt32, false),
            ]
            .into();
            let arrays = vec![numbers(&owners.pids)?, comms, numbers(&owners.fds)?];
            let items = StructArray::try_new(fields, arrays, None)?;
            list(Arc::new(items), offsets.clone(), nulls)?
        }
    })
}

fn list(
    items: ArrayRef,
    offsets: arrow_buffer::OffsetBuffer<i32>,
    nulls: Option<arrow_buffer::NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let item = Arc::new(Field::new_list_field(items.data_type().clone(), false));
    Ok(Arc::new(ListArray::try_new(item, offsets, items, nulls)?))
}

fn text_array(texts: &Texts, nulls: Option<arrow_buffer::NullBuffer>, form: Form) -> Result<ArrayRef, ArrowError> {
    let binary = BinaryArray::try_new(texts.offsets.clone(), texts.bytes.clone(), nulls)?;
    if form.binary {
        return Ok(Arc::new(binary));
    }
    let (offsets, bytes, nulls) = binary.into_parts();
    if let Ok(array) = StringArray::try_new(offsets.clone(), bytes.clone(), nulls.clone()) {
        return Ok(Arc::new(array));
    }
    let mut builder = StringBuilder::with_capacity(offsets.len() - 1, bytes.len());
    for index in 0..offsets.len() - 1 {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(index)) {
            builder.append_null();
        } else {
            builder.append_value(String::from_utf8_lossy(texts.get(index)));
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// The reasons for a column's missing values.
fn reasons(column: &Column) -> StringArray {
    (0..column.len).map(|row| column.reason(row)).collect()
}

/// All columns as one record batch.
fn batch(columns: &[Arc<Column>], rows: usize, form: Form) -> Result<RecordBatch, ArrowError> {
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    let mut add = |name: String, array: ArrayRef| {
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(array);
    };
    for column in columns {
        add(column.name.to_owned(), array(column, form)?);
        if form.reasons {
            add(format!("{}_absent", column.name), Arc::new(reasons(column)));
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
}

fn failed(error: ArrowError) -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err(error.to_string())
}

/// The columns as a stream of one record batch.
pub fn stream<'py>(
    py: Python<'py>,
    columns: &[Arc<Column>],
    rows: usize,
    form: Form,
) -> PyResult<Bound<'py, PyCapsule>> {
    let batch = py.detach(|| batch(columns, rows, form)).map_err(failed)?;
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
}

/// The types of the columns.
pub fn schema<'py>(
    py: Python<'py>,
    columns: &[Arc<Column>],
    rows: usize,
    form: Form,
) -> PyResult<Bound<'py, PyCapsule>> {
    let batch = py.detach(|| batch(columns, rows, form)).map_err(failed)?;
    let schema = FFI_ArrowSchema::try_from(batch.schema().as_ref()).map_err(failed)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

/// The type of a column, and its values.
pub fn capsules<'py>(py: Python<'py>, column: &Column, form: Form) -> PyResult<Bound<'py, PyTuple>> {
    let array = py.detach(|| array(column, form)).map_err(failed)?;
    let field = Field::new(column.name, array.data_type().clone(), true);
    let schema = FFI_ArrowSchema::try_from(&field).map_err(failed)?;
    let (array, _): (FFI_ArrowArray, FFI_ArrowSchema) = to_ffi(&array.to_data()).map_err(failed)?;
    let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
    let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
    PyTuple::new(py, [schema, array])
}
