//! A line that is being typed: a filter, a number, a signal.

/// A line with a cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    text: String,
    /// A byte index, at the start of a character.
    cursor: usize,
    /// Whether the text is a suggestion, which what is typed replaces.
    is_suggestion: bool,
}

/// What a key does to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Inserts a character.
    Insert(char),
    /// Removes the character before the cursor.
    Backspace,
    /// Removes the character at the cursor.
    Delete,
    /// Removes everything before the cursor.
    Clear,
    /// Removes the word before the cursor.
    Word,
    /// Moves one character left.
    Left,
    /// Moves one character right.
    Right,
    /// Moves to the beginning.
    Home,
    /// Moves to the end.
    End,
}

/// The maximum length of a line, in bytes. Longer lines are pasted by mistake.
const MAX_LINE_BYTES: usize = 4096;

impl Line {
    /// A line with this text, and the cursor after it.
    pub fn new(text: impl Into<String>) -> Line {
        let text = text.into();
        Line {
            cursor: text.len(),
            text,
            is_suggestion: false,
        }
    }

    /// A line with a text that what is typed replaces, unless the text is edited first.
    pub fn suggestion(text: impl Into<String>) -> Line {
        Line {
            is_suggestion: true,
            ..Line::new(text)
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text before the cursor.
    pub fn before(&self) -> &str {
        &self.text[..self.cursor]
    }

    /// The name before the cursor, in a list with commas and signs.
    fn name(&self) -> &str {
        let name = self.before().rsplit(',').next().unwrap_or_default();
        name.trim_start_matches(['+', '-', ' '])
    }

    /// The names that may be meant: first those that begin with what was typed.
    pub fn meant<'n>(&self, names: &'n [String]) -> Vec<&'n str> {
        let name = self.name();
        let mut meant: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|known| known.contains(name))
            .collect();
        meant.sort_by_key(|known| !known.starts_with(name));
        meant
    }

    /// Completes the name as far as all that begin with it agree.
    pub fn complete(&mut self, names: &[String]) {
        let mut begun = names.iter().filter_map(|known| known.strip_prefix(self.name()));
        let Some(first) = begun.next() else { return };
        let common = |first: &str, other: &str| first.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
        let count = begun.map(|other| common(first, other)).min().unwrap_or(usize::MAX);
        for character in first.chars().take(count) {
            self.edit(Edit::Insert(character));
        }
    }

    /// Applies an edit.
    pub fn edit(&mut self, edit: Edit) {
        if std::mem::take(&mut self.is_suggestion) && matches!(edit, Edit::Insert(_)) {
            self.remove(0);
        }
        let previous = self.before().char_indices().next_back().map_or(0, |(index, _)| index);
        let next = self.text[self.cursor..].chars().next().map_or(0, char::len_utf8) + self.cursor;
        match edit {
            Edit::Insert(character) if character.is_control() || self.text.len() >= MAX_LINE_BYTES => {}
            Edit::Insert(character) => {
                self.text.insert(self.cursor, character);
                self.cursor += character.len_utf8();
            }
            Edit::Backspace => self.remove(previous),
            Edit::Delete => {
                self.text.replace_range(self.cursor..next, "");
            }
            Edit::Clear => self.remove(0),
            Edit::Word => {
                let word = self.before().trim_end().rfind(' ').map_or(0, |index| index + 1);
                self.remove(word);
            }
            Edit::Left => self.cursor = previous,
            Edit::Right => self.cursor = next,
            Edit::Home => self.cursor = 0,
            Edit::End => self.cursor = self.text.len(),
        }
    }

    /// Removes the text between an index and the cursor.
    fn remove(&mut self, from: usize) {
        self.text.replace_range(from..self.cursor, "");
        self.cursor = from;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_edit() -> impl Strategy<Value = Edit> {
        prop_oneof![
            any::<char>().prop_map(Edit::Insert),
            Just(Edit::Backspace),
            Just(Edit::Delete),
            Just(Edit::Clear),
            Just(Edit::Word),
            Just(Edit::Left),
            Just(Edit::Right),
            Just(Edit::Home),
            Just(Edit::End),
        ]
    }

    /// Check what each edit does.
    #[test]
    fn lines_are_edited() {
        let mut line = Line::new("größe");
        for edit in [Edit::Left, Edit::Left, Edit::Backspace, Edit::Insert('o'), Edit::Delete] {
            line.edit(edit);
        }
        assert_eq!((line.text(), line.before()), ("groe", "gro"));
        line.edit(Edit::Home);
        line.edit(Edit::Backspace);
        line.edit(Edit::Insert('x'));
        assert_eq!((line.text(), line.before()), ("xgroe", "x"));
        line.edit(Edit::Insert('\x1b'));
        line.edit(Edit::End);
        line.edit(Edit::Delete);
        line.edit(Edit::Right);
        assert_eq!((line.text(), line.before()), ("xgroe", "xgroe"));
        let mut line = Line::new("a == b ");
        line.edit(Edit::Word);
        assert_eq!(line.text(), "a == ");
        line.edit(Edit::Clear);
        assert_eq!(line.text(), "");
    }

    /// Check that what is typed replaces a suggestion, and that a suggestion can be edited.
    #[test]
    fn suggestions_are_replaced() {
        for (edits, text) in [
            (&[Edit::Insert('9')][..], "9"),
            (&[Edit::Insert('1'), Edit::Insert('5')], "15"),
            (&[Edit::Backspace, Edit::Insert('P')], "TERP"),
            (&[Edit::Left], "TERM"),
            (&[], "TERM"),
        ] {
            let mut line = Line::suggestion("TERM");
            edits.iter().for_each(|&edit| line.edit(edit));
            assert_eq!(line.text(), text);
        }
    }

    /// Check which names are meant, and that one is completed as far as there is no choice.
    #[test]
    fn names_are_completed() {
        let names = ["rss_bytes", "rss_file_bytes", "pid", "ppid"].map(str::to_owned);
        for (typed, meant, completed) in [
            ("-rs", &["rss_bytes", "rss_file_bytes"][..], "-rss_"),
            ("pid,+rss_f", &["rss_file_bytes"], "pid,+rss_file_bytes"),
            ("pi", &["pid", "ppid"], "pid"),
            ("bytes", &["rss_bytes", "rss_file_bytes"], "bytes"),
            ("pid,x", &[], "pid,x"),
        ] {
            let mut line = Line::new(typed);
            assert_eq!(line.meant(&names), meant, "{typed}");
            line.complete(&names);
            assert_eq!(line.text(), completed);
        }
        let mut line = Line::new("ppi,comm");
        (0..5).for_each(|_| line.edit(Edit::Left));
        line.complete(&names);
        assert_eq!(line.text(), "ppid,comm");
    }

    proptest! {
        /// Check that no sequence of edits causes a panic, and that the cursor stays within the
        /// text.
        #[test]
        fn edits_are_safe(edits in prop::collection::vec(any_edit(), 0..50)) {
            let mut line = Line::default();
            for edit in edits {
                line.edit(edit);
                prop_assert!(line.text().starts_with(line.before()));
            }
        }
    }
}
