//! Columns as Arrow arrays, and the capsules of Arrow's PyCapsule interface.

use std::sync::Arc;

use arrow_array::ffi::{to_ffi, FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, ListArray, PrimitiveArray, RecordBatch, RecordBatchIterator,
    RecordBatchOptions, StringArray, StructArray, UInt32Array, UInt64Array,
};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, OffsetBuffer, ToByteSlice as _};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use taskdiag_core::column::{Column as Memory, Type};
use taskdiag_core::record::LIMITS;

use crate::column::Column;

/// The form of an export.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    /// Export texts as exact bytes; otherwise as UTF-8, with U+FFFD for invalid bytes.
    pub binary: bool,
    /// After each column, add one with the reasons for its missing values.
    pub reasons: bool,
}

/// A part of a column's memory, which it keeps alive.
struct Part<T>(Arc<Column>, fn(&Memory<i32>) -> &[T]);

impl<T: ArrowNativeType> AsRef<[u8]> for Part<T> {
    fn as_ref(&self) -> &[u8] {
        (self.1)(&self.0.memory).to_byte_slice()
    }
}

/// Shares a part of a column's memory.
fn part<T: ArrowNativeType>(column: &Arc<Column>, pick: fn(&Memory<i32>) -> &[T]) -> Buffer {
    Buffer::from(Bytes::from_owner(Part(Arc::clone(column), pick)))
}

fn offsets(column: &Arc<Column>, pick: fn(&Memory<i32>) -> &[i32]) -> OffsetBuffer<i32> {
    OffsetBuffer::new(part(column, pick).into())
}

fn numbers<T: ArrowPrimitiveType>(column: &Arc<Column>) -> Result<ArrayRef, ArrowError> {
    let bits = part(column, |memory| &memory.numbers);
    Ok(Arc::new(PrimitiveArray::<T>::try_new(bits.into(), column.validity())?))
}

/// The values of a column.
pub fn array(column: &Arc<Column>, form: Form) -> Result<ArrayRef, ArrowError> {
    let memory = &column.memory;
    let lists = |items: ArrayRef, offsets| {
        let item = Arc::new(Field::new_list_field(items.data_type().clone(), false));
        Ok(Arc::new(ListArray::try_new(item, offsets, items, column.validity())?) as ArrayRef)
    };
    let items = |items| lists(items, offsets(column, |memory| &memory.ends));
    match memory.of {
        Type::U64 => numbers::<UInt64Type>(column),
        Type::I64 => numbers::<Int64Type>(column),
        Type::F64 => numbers::<Float64Type>(column),
        Type::U8 => {
            let flags = memory.bytes.iter().map(|&flag| flag != 0).collect();
            Ok(Arc::new(BooleanArray::new(flags, column.validity())))
        }
        Type::Text => text_array(column, |memory| &memory.ends, column.validity(), form),
        Type::Texts => items(text_array(column, |memory| &memory.texts, None, form)?),
        Type::Ids => items(Arc::new(UInt32Array::try_new(
            part(column, |memory| &memory.ids).into(),
            None,
        )?)),
        Type::Limits => {
            let rows = || {
                (0..column.len)
                    .filter(|&row| !column.is_absent(row))
                    .map(|row| column.limits(row))
            };
            let limits = || rows().flat_map(|limits| limits.iter());
            let names: StringArray = limits().map(|(name, ..)| Some(name)).collect();
            let softs: UInt64Array = limits().map(|(_, soft, _)| soft).collect();
            let hards: UInt64Array = limits().map(|(.., hard)| hard).collect();
            let fields: Fields = vec![
                Field::new("name", DataType::Utf8, false),
                Field::new("soft", DataType::UInt64, true),
                Field::new("hard", DataType::UInt64, true),
            ]
            .into();
            let arrays: Vec<ArrayRef> = vec![Arc::new(names), Arc::new(softs), Arc::new(hards)];
            let counts = (0..column.len).map(|row| if column.is_absent(row) { 0 } else { LIMITS });
            let structs = StructArray::try_new(fields, arrays, None)?;
            lists(Arc::new(structs), OffsetBuffer::from_lengths(counts))
        }
        Type::Owners => {
            let comms = text_array(column, |memory| &memory.texts, None, form)?;
            let every_other = |first| -> ArrayRef {
                let numbers = memory.ids.iter().skip(first).step_by(2);
                Arc::new(numbers.copied().collect::<UInt32Array>())
            };
            let fields: Fields = vec![
                Field::new("pid", DataType::UInt32, false),
                Field::new("comm", comms.data_type().clone(), false),
                Field::new("fd", DataType::UInt32, false),
            ]
            .into();
            let structs = StructArray::try_new(fields, vec![every_other(0), comms, every_other(1)], None)?;
            items(Arc::new(structs))
        }
    }
}

fn text_array(
    column: &Arc<Column>,
    ends: fn(&Memory<i32>) -> &[i32],
    nulls: Option<NullBuffer>,
    form: Form,
) -> Result<ArrayRef, ArrowError> {
    let bytes = part(column, |memory| &memory.bytes);
    let binary = BinaryArray::try_new(offsets(column, ends), bytes.clone(), nulls.clone())?;
    if form.binary {
        return Ok(Arc::new(binary));
    }
    if let Ok(array) = StringArray::try_new(binary.offsets().clone(), bytes, nulls) {
        return Ok(Arc::new(array));
    }
    let replaced = binary.iter().map(|text| text.map(String::from_utf8_lossy));
    Ok(Arc::new(replaced.collect::<StringArray>()))
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
pub fn capsules<'py>(py: Python<'py>, column: &Arc<Column>, form: Form) -> PyResult<Bound<'py, PyTuple>> {
    let array = py.detach(|| array(column, form)).map_err(failed)?;
    let field = Field::new(column.name, array.data_type().clone(), true);
    let schema = FFI_ArrowSchema::try_from(&field).map_err(failed)?;
    let (array, _): (FFI_ArrowArray, FFI_ArrowSchema) = to_ffi(&array.to_data()).map_err(failed)?;
    let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
    let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
    PyTuple::new(py, [schema, array])
}
