//! The Python client of taskdiag: `import taskdiag`.
//!
//! The library answers. [`column`] stores the answer in columns, [`table`] shows them to Python,
//! and [`buffer`] and [`arrow`] share them without copying. The functions of the module `taskdiag`
//! and its exceptions are written in Python.

mod arrow;
mod buffer;
mod column;
mod errors;
mod events;
mod files;
mod fork;
mod handle;
mod maps;
mod pagecache;
mod query;
mod rows;
mod sockets;
mod table;
mod tree;
mod value;

use pyo3::prelude::*;

#[pymodule]
mod _taskdiag {
    #[pymodule_export]
    use crate::events::Events;
    #[pymodule_export]
    use crate::fork::{_after_fork_in_child, _after_fork_in_parent, _before_fork};
    #[pymodule_export]
    use crate::handle::Handle;
    #[pymodule_export]
    use crate::maps::{maps, normalize};
    #[pymodule_export]
    use crate::pagecache::cachestat;
    #[pymodule_export]
    use crate::table::{Column, Export, Row, Rows, Table};
}
