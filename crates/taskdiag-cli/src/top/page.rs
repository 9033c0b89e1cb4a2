//! The pages about one process.

/// A page about a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Page {
    /// Who it is and where: credentials, cgroup, files, namespaces.
    #[default]
    Process,
    /// Resource limits.
    Limits,
    /// Mappings, added up by file.
    Maps,
    /// Threads.
    Threads,
    /// What it did in the last minutes.
    History,
}

impl Page {
    /// All pages in order.
    pub const ALL: [Page; 5] = [Page::Process, Page::Limits, Page::Maps, Page::Threads, Page::History];

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Page::Process => "Process",
            Page::Limits => "Limits",
            Page::Maps => "Maps",
            Page::Threads => "Threads",
            Page::History => "History",
        }
    }

    fn moved(self, by: usize) -> Page {
        let index = Page::ALL.iter().position(|&page| page == self).unwrap_or(0);
        Page::ALL[(index + by) % Page::ALL.len()]
    }

    /// The page after it; after the last one the first.
    pub fn next(self) -> Page {
        self.moved(1)
    }

    /// The page before it.
    pub fn previous(self) -> Page {
        self.moved(Page::ALL.len() - 1)
    }
}
