//! The pages about one process.

taskdiag_core::named_enum! {
    /// A page about a process.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Page {
        /// Who it is and where: credentials, cgroup, files, namespaces.
        #[default]
        Process => "Process",
        /// Resource limits.
        Limits => "Limits",
        /// Use and limits of its cgroup.
        Cgroup => "Cgroup",
        /// What it has open.
        Files => "Files",
        /// Its sockets.
        Sockets => "Sockets",
        /// Mappings, added up by file.
        Maps => "Maps",
        /// Threads.
        Threads => "Threads",
        /// The environment that it was started with, which may hold secrets.
        Environment => "Environ",
        /// What it did in the last minutes.
        History => "History",
    }
    /// All pages in order.
    pub const ALL;
    pub fn title;
}

impl Page {
    fn moved(self, by: usize) -> Page {
        Page::ALL[(self as usize + by) % Page::ALL.len()]
    }

    /// The next page; the first one after the last.
    pub fn next(self) -> Page {
        self.moved(1)
    }

    pub fn previous(self) -> Page {
        self.moved(Page::ALL.len() - 1)
    }
}
