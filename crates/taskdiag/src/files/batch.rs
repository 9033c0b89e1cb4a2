//! Files of a process in three pieces of memory: the files, their names, their details.

use taskdiag_core::absent::{Absent, Known};

use super::OpenFile;

/// Files of one process.
#[derive(Debug, Default)]
pub(super) struct Batch {
    entries: Vec<Entry>,
    texts: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    /// Without its texts.
    file: OpenFile<'static>,
    name: Known<Text>,
    detail: Known<Option<Text>>,
}

/// Where a text is.
#[derive(Clone, Copy, Debug)]
struct Text {
    start: usize,
    len: usize,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keeps the first files.
    pub(super) fn truncate(&mut self, len: usize) {
        self.entries.truncate(len);
    }

    pub(super) fn push(&mut self, file: &OpenFile<'_>) {
        let name = file.name.map(|name| self.text(name));
        let detail = file.detail.map(|detail| detail.map(|detail| self.text(detail)));
        self.entries.push(Entry {
            file: OpenFile {
                name: Err(Absent::NotAsked),
                detail: Err(Absent::NotAsked),
                peers: Err(Absent::NotAsked),
                bpf_name: Err(Absent::NotAsked),
                ..*file
            },
            name,
            detail,
        });
    }

    fn text(&mut self, text: &[u8]) -> Text {
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        Text { start, len: text.len() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = OpenFile<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }

    pub(super) fn get(&self, index: usize) -> OpenFile<'_> {
        let entry = &self.entries[index];
        let text = |text: Text| &self.texts[text.start..][..text.len];
        OpenFile {
            name: entry.name.map(text),
            detail: entry.detail.map(|detail| detail.map(text)),
            ..entry.file
        }
    }
}
