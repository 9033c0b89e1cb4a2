//! Assigns actions to keys. The help page is made from this table.

use taskdiag::Field;

use super::column::SortKey;
use super::control::ControlKind;
use super::input::{Code, Key};
use super::page::Page;
use super::prompt::Edit;
use super::source::Step;
use crate::watch::Rate;

/// Where to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// A screenful up.
    PageUp,
    /// A screenful down.
    PageDown,
    /// To the first row.
    Home,
    /// To the last row.
    End,
}

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Quit,
    Suspend,
    Redraw,
    Help,
    Close,
    Details,
    NextPage,
    PreviousPage,
    Move(Motion),
    /// A click on a row.
    Choose(usize),
    /// A click on the name of a page.
    Open(Page),
    ShiftLeft,
    ShiftRight,
    Sort(SortKey),
    NextColumn,
    PreviousColumn,
    Reverse,
    /// Asks for the value of a setting.
    AskSetting(&'static str),
    MemoryColumns,
    Tree,
    Threads,
    Kernel,
    Command,
    By,
    AskUsers,
    AskSearch,
    SearchNext,
    Follow,
    /// Asks what to do to the process, or to all that are tagged.
    Ask(ControlKind),
    Tag,
    TagFamily,
    Untag,
    Now,
    Pause,
    Processors,
    AskSave,
    Setup,
    /// In the setup, removes a column.
    Remove,
    Go(Step),
    AskTime,
}

impl Action {
    /// Why the action is not possible in a recording; `None` if it is.
    pub fn refusal_in_past(self) -> Option<&'static str> {
        match self {
            Action::Ask(ControlKind::Signal) => {
                Some("what was recorded can't be signalled: `taskdiag top` without --history shows now")
            }
            Action::Ask(_) => Some("what was recorded can't be changed: `taskdiag top` without --history shows now"),
            Action::Tag | Action::TagFamily | Action::Untag => {
                Some("tags are for signals and priorities: `taskdiag top` without --history shows now")
            }
            Action::Threads => Some("a recording has processes, not their threads"),
            Action::AskSetting("delay") | Action::Now | Action::Pause => {
                Some("samples of a recording do not come by themselves: Left and Right go through them")
            }
            _ => None,
        }
    }
}

/// Keys with the same action.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    pub keys: &'static [Code],
    /// Their action.
    pub action: Action,
    /// The action in words.
    pub help: &'static str,
}

const fn bind(keys: &'static [Code], action: Action, help: &'static str) -> Binding {
    Binding { keys, action, help }
}

use Action::Move;
use Code::{BackTab, Char, Enter, Esc, Tab, F};

/// All keys, except those for recordings.
#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    bind(&[Char('q'), F(10)], Action::Quit, "quit; in details and help: back"),
    bind(&[Char('?'), Char('h'), F(1)], Action::Help, "this help"),
    bind(&[Code::Up, Code::WheelUp], Move(Motion::Up), "one row up"),
    bind(&[Code::Down, Code::WheelDown], Move(Motion::Down), "one row down"),
    bind(&[Code::PageUp], Move(Motion::PageUp), "one page up"),
    bind(&[Code::PageDown], Move(Motion::PageDown), "one page down"),
    bind(&[Code::Home], Move(Motion::Home), "to the first row, whichever process is there"),
    bind(&[Code::End], Move(Motion::End), "to the last row"),
    bind(&[Code::Left], Action::ShiftLeft, "show the beginning of long commands, and of lines of details"),
    bind(&[Code::Right], Action::ShiftRight, "show more of them"),
    bind(&[Enter], Action::Details, "details of the process; of a unit, container, user or program: its processes"),
    bind(&[Tab], Action::NextPage, "in details: the next page; in a question about fields or users: complete the name"),
    bind(&[BackTab], Action::PreviousPage, "in details: the page before"),
    bind(&[Esc], Action::Close, "back to the table; from the processes of a sum, to the sums"),
    bind(&[Char('P')], Action::Sort(SortKey::Rate(Rate::Cpu)), "sort by processor time since the last sample"),
    bind(&[Char('M')], Action::Sort(SortKey::Field(Field::RssBytes)), "sort by resident memory"),
    bind(&[Char('T')], Action::Sort(SortKey::Time), "sort by processor time in all"),
    bind(&[Char('N')], Action::Sort(SortKey::Field(Field::Pid)), "sort by process id"),
    bind(&[Char('<'), Char(',')], Action::PreviousColumn, "sort by the column to the left"),
    bind(&[Char('>'), Char('.')], Action::NextColumn, "sort by the column to the right"),
    bind(&[Char('R'), Char('I')], Action::Reverse, "reverse the order"),
    bind(&[Char('o'), F(6)], Action::AskSetting("sort"), "sort by any field: a minus in front puts the largest first"),
    bind(&[Char('f')], Action::AskSetting("columns"), "choose the columns: fields with commas between them"),
    bind(&[Char('m')], Action::MemoryColumns, "proportional and unique memory (PSS, USS), read within a budget"),
    bind(&[Char('t'), Char('V'), F(5)], Action::Tree, "processes below their parents"),
    bind(&[Char('H')], Action::Threads, "threads"),
    bind(&[Char('K')], Action::Kernel, "show kernel threads, or hide them"),
    bind(&[Char('p')], Action::Command, "in the column of commands: command line, path of the program, name"),
    bind(&[Char('b')], Action::By, "one row for each unit, container, user, program"),
    bind(&[Char('\\'), F(4)], Action::AskSetting("filter"), "show what an expression is true of, as --where takes it"),
    bind(&[Char('u')], Action::AskUsers, "show the processes of some users"),
    bind(&[Char('/'), Char('L'), F(3)], Action::AskSearch, "search for a name, a command line, a user, an id"),
    bind(&[Char('n'), Char('&')], Action::SearchNext, "search on"),
    bind(&[Char('F')], Action::Follow, "let the cursor stay on its line, whichever process is there; again: on its process"),
    bind(&[Char('k'), F(9)], Action::Ask(ControlKind::Signal), "send a signal to the process"),
    bind(&[Char('r')], Action::Ask(ControlKind::Nice), "change the nice value, as renice(1): of the first thread, or of the thread that is shown"),
    bind(&[Char('i')], Action::Ask(ControlKind::Io), "change the I/O priority, as ionice(1): none, idle, best-effort 0 to 7, realtime 0 to 7"),
    bind(&[Char('a')], Action::Ask(ControlKind::Affinity), "change the processors on which it may run, as taskset(1): 0-3,5"),
    bind(&[Char('d'), Char('s')], Action::AskSetting("delay"), "change the time between samples"),
    bind(&[Char(' ')], Action::Tag, "tag the process, or end its tag: k, r, i and a are about all that are tagged"),
    bind(&[Char('c')], Action::TagFamily, "tag the process and those below it"),
    bind(&[Char('U')], Action::Untag, "end all tags"),
    bind(&[Char('=')], Action::Now, "take a sample now"),
    bind(&[Char('Z')], Action::Pause, "stop taking samples, and go on"),
    bind(&[Char('1')], Action::Processors, "a bar for each processor, or one for all"),
    bind(&[Char('S'), Char('C'), F(2)], Action::Setup, "settings, lines of the header, columns: Enter changes, < and > move a column"),
    bind(&[Code::Delete, Code::Backspace], Action::Remove, "in the settings: remove the column"),
    bind(&[Char('W')], Action::AskSave, "write the settings to their file"),
];

/// Keys that have a different action in a recording.
#[rustfmt::skip]
const PAST_BINDINGS: &[Binding] = &[
    bind(&[Code::Left], Action::Go(Step::Samples(-1)), "the sample before"),
    bind(&[Code::Right], Action::Go(Step::Samples(1)), "the next sample"),
    bind(&[Char('[')], Action::Go(Step::Seconds(-60)), "a minute back"),
    bind(&[Char(']')], Action::Go(Step::Seconds(60)), "a minute on"),
    bind(&[Char('{')], Action::Go(Step::Seconds(-3600)), "an hour back"),
    bind(&[Char('}')], Action::Go(Step::Seconds(3600)), "an hour on"),
    bind(&[Char('j')], Action::Go(Step::Spike(true)), "the next spike of processors or memory"),
    bind(&[Char('J')], Action::Go(Step::Spike(false)), "the spike before"),
    bind(&[Char('g')], Action::AskTime, "go to a time, as --at takes it"),
    bind(&[Char('a')], Action::Go(Step::First), "the first sample"),
    bind(&[Char('z')], Action::Go(Step::Last), "the last sample"),
    bind(&[Char('(')], Action::ShiftLeft, "show the beginning of long commands"),
    bind(&[Char(')')], Action::ShiftRight, "show more of long commands"),
];

/// The bindings: in a recording, or live.
pub fn bindings(is_past: bool) -> impl Iterator<Item = &'static Binding> {
    let past = if is_past { PAST_BINDINGS } else { &[] };
    let is_hidden = move |binding: &&Binding| {
        let has_other = past.iter().any(|other| other.keys[0] == binding.keys[0]);
        has_other || is_past && binding.action.refusal_in_past().is_some()
    };
    past.iter()
        .chain(BINDINGS.iter().filter(move |binding| !is_hidden(binding)))
}

/// Keys pressed with Ctrl, to which terminals give the same meaning everywhere.
pub const CONTROLS: &[(char, Action, &str)] = &[
    ('c', Action::Quit, "quit"),
    ('z', Action::Suspend, "suspend; fg resumes"),
    ('l', Action::Redraw, "draw the screen anew"),
];

/// The action of a key outside a line that is being typed.
pub fn action(key: Key, is_past: bool) -> Option<Action> {
    if key.control {
        let Code::Char(letter) = key.code else { return None };
        let found = CONTROLS.iter().find(|(control, ..)| *control == letter);
        return found.map(|(_, action, _)| *action);
    }
    let past = if is_past { PAST_BINDINGS } else { &[] };
    let mut bindings = past.iter().chain(BINDINGS);
    let binding = bindings.find(|binding| binding.keys.contains(&key.code))?;
    Some(binding.action)
}

/// What the mouse does.
pub const MOUSE: (&str, &str) = (
    "Click",
    "on a row: the cursor goes there, again: its details; on a heading: sort by it, again: reverse; on the bars of \
     processors, a key of the last line or a page: its key. With Shift the terminal selects text",
);

/// The effect of a key in a line that is being typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typed {
    Edit(Edit),
    /// Completes the name.
    Complete,
    Done,
    Cancel,
    Suspend,
}

/// The effect of a key in a line that is being typed.
pub fn typed(key: Key) -> Option<Typed> {
    let control = key.control;
    Some(Typed::Edit(match key.code {
        Code::Char('c' | 'g') if control => return Some(Typed::Cancel),
        Code::Char('z') if control => return Some(Typed::Suspend),
        Code::Char('u') if control => Edit::Clear,
        Code::Char('w') if control => Edit::Word,
        Code::Char('a') if control => Edit::Home,
        Code::Char('e') if control => Edit::End,
        Code::Char('h') if control => Edit::Backspace,
        Code::Char(_) if control => return None,
        Code::Char(character) => Edit::Insert(character),
        Code::Backspace => Edit::Backspace,
        Code::Delete => Edit::Delete,
        Code::Left => Edit::Left,
        Code::Right => Edit::Right,
        Code::Home => Edit::Home,
        Code::End => Edit::End,
        Tab => return Some(Typed::Complete),
        Code::Enter => return Some(Typed::Done),
        Code::Esc => return Some(Typed::Cancel),
        _ => return None,
    }))
}

/// The name of a key.
pub fn label(key: Code) -> String {
    match key {
        Char(' ') => "Space".to_owned(),
        Char(letter) => letter.to_string(),
        F(number) => format!("F{number}"),
        BackTab => "Shift-Tab".to_owned(),
        key => format!("{key:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Check that no key has two actions, and that each binding has its own action.
    #[test]
    fn keys_have_one_meaning() {
        let mut seen = HashSet::new();
        for binding in BINDINGS {
            for &code in binding.keys {
                assert!(seen.insert(code), "{code:?}");
                assert_eq!(action(Key::plain(code), false), Some(binding.action));
            }
        }
        for is_past in [false, true] {
            assert_eq!(action(Key::control('c'), is_past), Some(Action::Quit));
            assert_eq!(action(Key::control('q'), is_past), None);
        }
    }

    /// Check that in a recording all keys do what its help says, that none has two actions, and
    /// that those keys, except the arrows, do nothing live.
    #[test]
    fn recordings_have_keys() {
        let mut seen = HashSet::new();
        for binding in bindings(true) {
            assert_eq!(binding.action.refusal_in_past(), None);
            for &code in binding.keys {
                assert!(seen.insert(code), "{code:?}");
                assert_eq!(action(Key::plain(code), true), Some(binding.action));
            }
        }
        for binding in PAST_BINDINGS.iter().filter(|binding| matches!(binding.keys, [Char(_)])) {
            // Live, `a` is that of htop.
            let live = (binding.keys[0] == Char('a')).then_some(Action::Ask(ControlKind::Affinity));
            assert_eq!(action(Key::plain(binding.keys[0]), false), live);
        }
        assert_eq!(action(Key::plain(Code::Left), false), Some(Action::ShiftLeft));
        assert_eq!(bindings(false).count(), BINDINGS.len());
        for key in ['k', 'r', 'i', 'H', 'd', ' ', 'c', 'U', '=', 'Z'] {
            let action = action(Key::plain(Char(key)), true).expect("a meaning");
            assert!(action.refusal_in_past().is_some(), "{key}");
        }
    }

    /// Check which keys type letters, and which end a line.
    #[test]
    fn lines_are_typed() {
        assert_eq!(typed(Key::plain(Char('q'))), Some(Typed::Edit(Edit::Insert('q'))));
        assert_eq!(typed(Key::plain(Enter)), Some(Typed::Done));
        assert_eq!(typed(Key::control('c')), Some(Typed::Cancel));
        assert_eq!(typed(Key::control('x')), None);
        assert_eq!(typed(Key::plain(F(4))), None);
    }
}
