//! The table of animals.

use std::io;

use crate::facts::Facts;
use crate::keeper::Keeper;

/// A table of animals, a line for each: its name, what is strange about it, and how it is created.
macro_rules! species {
    ($($name:literal: $about:literal => $birth:expr;)*) => {
        &[$(Species { name: $name, about: $about, birth: $birth }),*]
    };
}

mod arguments;
mod credentials;
mod descriptors;
mod files;
mod holders;
pub(crate) mod mappings;
mod memory;
mod namespaces;
mod scheduling;
mod tasks;

pub use files::cgroup_mount;

/// A kind of animal.
#[derive(Debug)]
pub(crate) struct Species {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Creates it, in the keeper.
    pub(crate) birth: fn(&mut Keeper) -> io::Result<Facts>,
}

/// All animals except holders, in the order of the files that define them.
pub(crate) fn all() -> impl Iterator<Item = &'static Species> {
    [
        tasks::NAMES,
        arguments::SPECIES,
        tasks::SPECIES,
        namespaces::SPECIES,
        credentials::SPECIES,
        scheduling::SPECIES,
        memory::SPECIES,
        files::SPECIES,
        descriptors::SPECIES,
        mappings::SPECIES,
    ]
    .into_iter()
    .flatten()
}

/// The holders, which make others wait. They are not part of `all`, because whoever looks at all
/// animals would wait for ever.
pub(crate) fn holders() -> impl Iterator<Item = &'static Species> {
    holders::SPECIES.iter()
}

/// The species with this name.
pub(crate) fn find(name: &str) -> Option<&'static Species> {
    all().chain(holders()).find(|species| species.name == name)
}
