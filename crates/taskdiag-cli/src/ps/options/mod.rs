//! The options of ps(1).
//!
//! ps takes options in three styles: clusters with a dash (`-ef`), clusters without one (`aux`),
//! and long options. clap can't parse this grammar. [`take`] parses it, and leaves the project's
//! own long options to clap. Both use the table [`OPTIONS`]: clap uses it for help and completion.

mod given;
mod lists;
mod meant;
mod parser;
mod table;
#[cfg(test)]
mod tests;

pub use lists::terminal;
pub use meant::{Branches, Choice, Instead, List, Meant, Threads};
pub use parser::take;
pub use table::{bsd_help, for_clap, Takes, OPTIONS};
