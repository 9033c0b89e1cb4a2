//! The options of ps(1).
//!
//! ps takes options in three styles: clusters with a dash (`-ef`), clusters without one (`aux`),
//! and long options. clap can't parse this grammar. [`take`] parses it, and leaves the project's
//! own long options to clap. Both use the table [`OPTIONS`]: clap uses it for help and completion.

mod given;
mod lists;
mod parser;
mod ps_options;
mod table;
#[cfg(test)]
mod tests;

pub use lists::terminal;
pub use parser::take;
pub use ps_options::{Branches, Choice, Instead, List, PsOptions, Threads};
pub use table::{bsd_help, for_clap, Takes, OPTIONS};
