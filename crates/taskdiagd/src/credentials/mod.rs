//! Decides what a client may see, from which process it is, its credentials and namespaces, and the
//! security modules of this kernel.

mod facts;
mod id_map;
mod landlock;
mod peer;
mod proc;
mod security_modules;
mod viewer;

pub use facts::{ClientFinder, Facts, Vantage};
pub use id_map::IdMap;
pub use landlock::find_domain_word as find_landlock_word;
pub use peer::Peer;
pub use proc::{ProcFacts, RawProcFacts};
pub use security_modules::SecurityModules;
pub use viewer::{observed_groups, Viewer, OBSERVED_BITS};
