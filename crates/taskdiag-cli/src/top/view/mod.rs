//! What the user looks at, and how. Keys change it. Nothing here does I/O, except that typed names
//! of users are looked up in the user database, and questions begin with what a process has now.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use taskdiag::{Field, Filter, Identity};

use super::column::{self, commands, usual, Order, Set, SortKey, TopColumn};
use super::control::{ControlKind, ProcessControl};
use super::draw::HeaderPart;
use super::groups::expression;
use super::input::{Code, Key};
use super::keys::{self, Action, Motion, Typed};
use super::page::Page;
use super::prompt::Line;
use super::rows::{Id, Rows, Target};
use super::settings::setting;
use super::source::Step;
use crate::choice::{distinct, Chosen};
use crate::complete;
use crate::history;
use crate::outcome::Failure;
use crate::selection;
use crate::users;

/// The rows, as far as keys depend on them.
pub trait Table {
    /// The number of rows.
    fn len(&self) -> usize;
    /// The number of rows that fit on the screen.
    fn height(&self) -> usize;
    /// The identity of a row.
    fn id(&self, index: usize) -> Option<Id>;
    /// The position of a row.
    fn position(&self, id: &Id) -> Option<usize>;
    /// The process or thread of a row.
    fn target(&self, index: usize) -> Option<Target>;
    /// The rows of a process and of those below it.
    fn family(&self, index: usize) -> Vec<usize>;
    /// Whether a row has this text in its names.
    fn has_text(&self, index: usize, text: &str) -> bool;
}

/// The purpose of a line that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    Users,
    Search,
    /// A moment of a recording.
    Time,
    /// The value of a setting, by its key.
    Setting(&'static str),
    /// What to do to processes.
    About(ControlKind, Vec<Target>),
    /// Whether to perform an action.
    Confirm(Effect),
}

/// A question, and the line in which it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    pub question: Question,
    /// What was typed.
    pub line: Line,
    /// The error in the answer, and the position of its character.
    pub error: Option<(String, Option<usize>)>,
    /// Why no answer is possible any more, such as that the process has ended. The question stays:
    /// what is typed for it must not become other keys.
    pub refusal: Option<String>,
    /// The names that the answer can have.
    pub names: Vec<String>,
}

impl Prompt {
    /// What it is about: the kind, and processes or threads.
    pub fn subject(&self) -> Option<(ControlKind, &[Target])> {
        match &self.question {
            Question::About(kind, targets) => Some((*kind, targets)),
            Question::Confirm(Effect::Control(control, targets)) => Some((control.kind, targets)),
            _ => None,
        }
    }

    /// Leaves out those of several that can't be meant any more, or else says why the one can't.
    pub fn refuse(&mut self, refusals: Vec<Option<String>>) {
        let (Question::About(_, targets) | Question::Confirm(Effect::Control(_, targets))) = &mut self.question else {
            return;
        };
        match refusals.iter().flatten().next() {
            Some(reason) if refusals.iter().all(Option::is_some) => self.refusal = Some(reason.clone()),
            _ => {
                let mut refusals = refusals.into_iter();
                targets.retain(|_| refusals.next().flatten().is_none());
            }
        }
    }
}

/// An action outside the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Quit,
    Suspend,
    Redraw,
    Now,
    Go(Step),
    /// Writes the settings to this file.
    Save(PathBuf),
    Control(ProcessControl, Vec<Target>),
}

/// What the screen shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Screen {
    Table,
    /// The help page, from this line on.
    Help(usize),
    /// The page of settings, with the cursor on this item.
    Setup(usize),
    /// A page about a process, from this line on.
    Details(Target, Page, usize),
}

/// A message to the user, shown until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub text: String,
    pub is_error: bool,
}

/// The state of the view.
#[derive(Clone, Debug)]
pub struct View {
    pub rows: Rows,
    /// The columns if none were chosen.
    pub set: Set,
    /// The chosen columns as typed. Empty: those of the set.
    pub columns: String,
    pub order: Order,
    /// An expression; empty for all tasks.
    pub filter: String,
    /// The sums whose processes were opened: their rows and filter, and then the filter of the processes.
    pub opened: Vec<(Rows, String, String)>,
    /// Names of users, separated by commas; empty for all users.
    pub users: String,
    pub delay: Duration,
    /// The lines about the machine.
    pub header: Vec<HeaderPart>,
    /// The file of the settings.
    pub file: Option<PathBuf>,
    /// How long reading proportional set sizes may take in each sample.
    pub pss_budget: Duration,
    pub each_processor: bool,
    /// Whether the colours are those for a bright background.
    pub light: bool,
    /// Whether clicks have effects.
    pub mouse: bool,
    /// Whether kernel threads are shown although nothing selects them.
    pub kernel: bool,
    /// Which of [`commands`] stands for the command.
    pub command: usize,
    /// Whether the cursor stays on its row, wherever that goes. It does not until a key has chosen a
    /// row, so that the first screen shows the first rows.
    pub follow: bool,
    /// Whether that row has gone since the last key.
    pub is_lost: bool,
    pub paused: bool,
    /// Whether the view is of a recording.
    pub is_past: bool,
    /// The row of the cursor.
    pub cursor: usize,
    /// The first row on the screen.
    pub first: usize,
    /// The row that the cursor was on.
    pub at: Option<Id>,
    /// How many characters of the last column are skipped.
    pub shift: usize,
    /// What is tagged.
    pub tags: Vec<Target>,
    pub screen: Screen,
    pub prompt: Option<Prompt>,
    pub message: Option<Message>,
    pub search: String,
    /// Whether a search that found nothing is repeated with the next sample, the first one with all
    /// that is searched.
    pub is_sought: bool,
}

impl Default for View {
    fn default() -> View {
        View {
            rows: Rows::default(),
            set: Set::default(),
            columns: String::new(),
            order: Order::default(),
            filter: String::new(),
            opened: Vec::new(),
            users: String::new(),
            delay: Duration::from_secs(2),
            header: HeaderPart::ALL.to_vec(),
            file: None,
            pss_budget: Duration::from_millis(250),
            each_processor: true,
            light: false,
            mouse: true,
            kernel: false,
            command: 0,
            follow: false,
            is_lost: false,
            paused: false,
            is_past: false,
            cursor: 0,
            first: 0,
            at: None,
            shift: 0,
            tags: Vec::new(),
            screen: Screen::Table,
            prompt: None,
            message: None,
            search: String::new(),
            is_sought: false,
        }
    }
}

const NO_PROCESS: &str = "choose a process first: Enter shows those of a row";

/// How many characters one key moves the last column.
const SHIFT: usize = 8;

/// The columns that a list of names selects, in the form of `-o`.
pub fn chosen_columns(list: &str, usual: Vec<TopColumn>) -> Result<Vec<TopColumn>, Failure> {
    let list = [list.to_owned()];
    let lists = if list[0].is_empty() { &[] } else { &list[..] };
    let chosen = Chosen::parse(lists, TopColumn::named)?;
    Ok(chosen.columns(usual, |show| show))
}

/// The message of a failure, on one line.
pub fn one_line(failure: &Failure) -> String {
    failure.message().replace('\n', "; ")
}

impl View {
    /// The columns of the table: before the last one also what rows are sorted by, if it was asked for.
    pub fn shown(&self) -> Vec<TopColumn> {
        let mut shown = self.chosen_or_usual();
        let key = self.order.key;
        let is_asked_for = self.columns.is_empty() || key != Order::default().key;
        if is_asked_for && shown.iter().all(|show| show.sort_key() != key) {
            let end = shown.len().saturating_sub(1);
            shown.splice(end..end, TopColumn::named(key.name()).unwrap_or_default());
        }
        shown
    }

    /// The columns that were chosen, or those of the set.
    pub fn chosen_or_usual(&self) -> Vec<TopColumn> {
        let usual = usual(self.set, self.rows == Rows::Threads);
        // They were parsed when they were chosen.
        let mut shown = chosen_columns(&self.columns, usual.clone()).unwrap_or(usual);
        let commands = commands(self.rows == Rows::Threads);
        for show in shown.iter_mut().filter(|show| **show == commands[0]) {
            *show = commands[self.command];
        }
        shown
    }

    /// Whether kernel threads are left out: not if the filter is about them.
    pub fn hides_kernel(&self) -> bool {
        !self.kernel && !self.filter.contains(Field::KernelThread.name())
    }

    /// Shows a message to the user.
    pub fn say(&mut self, text: impl Into<String>, is_error: bool) {
        self.message = Some(Message {
            text: text.into(),
            is_error,
        });
    }

    /// Says what may be meant otherwise in a filter.
    pub fn say_doubts(&mut self, filter: &Filter, is_past: bool) {
        if let Some(doubt) = selection::doubts(filter, is_past).pop() {
            self.say(doubt, false);
        }
    }

    /// Moves the cursor to where it belongs after the rows have changed.
    pub fn settle(&mut self, table: &dyn Table) {
        if self.follow {
            let found = self.at.as_ref().and_then(|id| table.position(id));
            if let Some(index) = found {
                self.cursor = index;
            } else if self.at.is_some() && table.len() > 0 {
                self.follow = false;
                self.is_lost = true;
            }
        }
        self.cursor = self.cursor.min(table.len().saturating_sub(1));
        let height = table.height().max(1);
        let last_first = table.len().saturating_sub(height);
        self.first = self.first.min(self.cursor).min(last_first);
        if self.cursor >= self.first + height {
            self.first = self.cursor + 1 - height;
        }
        if table.len() > 0 || !self.follow {
            self.at = table.id(self.cursor);
        }
    }

    /// Whether a process or thread is tagged.
    pub fn is_tagged(&self, identity: Identity) -> bool {
        self.tags.iter().any(|tag| tag.identity == identity)
    }

    /// Tags rows.
    fn tag(&mut self, rows: &[usize], table: &dyn Table) {
        for target in rows.iter().filter_map(|&row| table.target(row)) {
            if !self.is_tagged(target.identity) {
                self.tags.push(target);
            }
        }
    }

    /// What a key acts on: all that is tagged, or the row under the cursor. By now more may be known
    /// of those that are tagged.
    fn chosen(&self, table: &dyn Table) -> Vec<Target> {
        if self.tags.is_empty() {
            return table.target(self.cursor).into_iter().collect();
        }
        let now = |tag: &Target| table.target(table.position(&Id::Task(tag.identity))?);
        self.tags
            .iter()
            .map(|tag| now(tag).unwrap_or_else(|| tag.clone()))
            .collect()
    }

    /// Performs the action of a key.
    pub fn press(&mut self, key: Key, table: &dyn Table) -> Option<Effect> {
        // What was pasted is for questions: elsewhere each of its letters would be a key.
        let is_text = matches!(key.code, Code::Char(_)) && !key.control;
        let takes_text = |prompt: &Prompt| !matches!(prompt.question, Question::Confirm(_));
        if key.pasted && !(is_text && self.prompt.as_ref().is_some_and(takes_text)) {
            return None;
        }
        self.message = None;
        self.is_lost = false;
        if let Some(prompt) = self.prompt.take() {
            return self.answer(prompt, key, table);
        }
        let Some(action) = keys::action(key, self.is_past) else {
            self.say("no such key; h is help", true);
            return None;
        };
        self.perform(action, table)
    }

    /// Performs the action of a click, which is no answer to a question.
    pub fn click(&mut self, action: Action, table: &dyn Table) -> Option<Effect> {
        if self.prompt.is_some() {
            return None;
        }
        self.message = None;
        self.is_lost = false;
        self.perform(action, table)
    }

    fn perform(&mut self, action: Action, table: &dyn Table) -> Option<Effect> {
        if let Some(refusal) = self.is_past.then(|| action.refusal_in_past()).flatten() {
            self.say(refusal, true);
            return None;
        }
        match self.screen {
            Screen::Table => self.act(action, table),
            Screen::Help(_) | Screen::Details(..) | Screen::Setup(_) => self.act_on_page(action, table),
        }
    }

    /// Performs the action of a key while help or details are shown.
    fn act_on_page(&mut self, action: Action, table: &dyn Table) -> Option<Effect> {
        let height = table.height().max(1);
        if self.set_up(action) {
            return None;
        }
        let scroll = match &mut self.screen {
            Screen::Help(scroll) | Screen::Setup(scroll) | Screen::Details(_, _, scroll) => scroll,
            Screen::Table => return None,
        };
        match action {
            Action::Move(Motion::Up) => *scroll = scroll.saturating_sub(1),
            Action::Move(Motion::Down) => *scroll += 1,
            Action::Move(Motion::PageUp) => *scroll = scroll.saturating_sub(height),
            Action::Move(Motion::PageDown) => *scroll += height,
            Action::Move(Motion::Home) => *scroll = 0,
            Action::Move(Motion::End) => *scroll = usize::MAX / 2,
            Action::Quit | Action::Close | Action::Details => (self.screen, self.shift) = (Screen::Table, 0),
            Action::Help if matches!(self.screen, Screen::Help(_)) => self.screen = Screen::Table,
            Action::Setup if matches!(self.screen, Screen::Setup(_)) => self.screen = Screen::Table,
            Action::AskSave if matches!(self.screen, Screen::Setup(_)) => return self.act(action, table),
            Action::NextPage | Action::PreviousPage | Action::Open(_) => {
                if let Screen::Details(_, page, scroll) = &mut self.screen {
                    *page = match action {
                        Action::Open(other) => other,
                        Action::NextPage => page.next(),
                        _ => page.previous(),
                    };
                    *scroll = 0;
                }
            }
            Action::Ask(kind) => {
                if let Screen::Details(target, ..) = &self.screen {
                    let target = target.clone();
                    self.ask_about(kind, vec![target]);
                }
            }
            // The same as in the table.
            Action::Help | Action::Setup | Action::ShiftLeft | Action::ShiftRight => return self.act(action, table),
            Action::Suspend | Action::Redraw | Action::Now | Action::Pause => return self.act(action, table),
            Action::AskSetting("delay") | Action::AskTime | Action::Go(_) => return self.act(action, table),
            _ => {}
        }
        None
    }

    /// Performs the action of a key while the table is shown.
    fn act(&mut self, action: Action, table: &dyn Table) -> Option<Effect> {
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Suspend => return Some(Effect::Suspend),
            Action::Redraw => return Some(Effect::Redraw),
            Action::Now => return Some(Effect::Now),
            Action::Help => self.screen = Screen::Help(0),
            Action::Setup => (self.screen, self.shift) = (Screen::Setup(0), 0),
            Action::Close => self.close(),
            Action::Remove | Action::NextPage | Action::PreviousPage | Action::Open(_) => {}
            Action::Details => self.open(table),
            Action::Choose(row) if self.follow && self.cursor == row => self.open(table),
            Action::Choose(row) => self.choose(row, table),
            Action::Move(motion) => self.go(motion, table),
            Action::ShiftLeft => self.shift = self.shift.saturating_sub(SHIFT),
            Action::ShiftRight => self.shift += SHIFT,
            Action::Sort(key) => self.sort(key),
            Action::NextColumn => self.sort_by_neighbour(true),
            Action::PreviousColumn => self.sort_by_neighbour(false),
            Action::Reverse => self.order.descending = !self.order.descending,
            Action::MemoryColumns => {
                self.columns.clear();
                self.shift = 0;
                self.set = if self.set == Set::Memory {
                    Set::Usual
                } else {
                    Set::Memory
                };
            }
            Action::Tree => self.show_rows(self.rows.toggled(Rows::Tree)),
            Action::Threads => self.show_rows(self.rows.toggled(Rows::Threads)),
            Action::Kernel => self.kernel = !self.kernel,
            Action::Command => (self.command, self.shift) = ((self.command + 1) % commands(false).len(), 0),
            Action::By => self.show_rows(self.rows.next_by()),
            Action::Follow => self.follow = !self.follow,
            Action::Pause => self.paused = !self.paused,
            Action::Processors => self.each_processor = !self.each_processor,
            Action::SearchNext => self.search_from(self.cursor + 1, table),
            Action::AskSetting(key) => self.ask_setting(key),
            Action::AskUsers => self.ask(Question::Users, self.users.clone()),
            Action::AskSearch => self.ask(Question::Search, String::new()),
            Action::AskTime => self.ask(Question::Time, String::new()),
            Action::Go(step) => return Some(self.go_to(step)),
            Action::AskSave => self.ask_to_save(),
            Action::Ask(kind) => match self.chosen(table) {
                none if none.is_empty() && table.len() == 0 => self.say("there is no process", true),
                none if none.is_empty() => self.say(NO_PROCESS, true),
                targets => {
                    self.follow = true;
                    self.ask_about(kind, targets);
                }
            },
            Action::Tag | Action::TagFamily => {
                let Some(target) = table.target(self.cursor) else {
                    self.say(NO_PROCESS, true);
                    return None;
                };
                if action == Action::TagFamily {
                    self.tag(&table.family(self.cursor), table);
                } else if self.is_tagged(target.identity) {
                    self.tags.retain(|tag| tag.identity != target.identity);
                } else {
                    self.tag(&[self.cursor], table);
                }
                self.go(Motion::Down, table);
            }
            Action::Untag => self.tags.clear(),
        }
        None
    }

    /// Asks whether to write the settings, if there is a place for them.
    fn ask_to_save(&mut self) {
        match &self.file {
            None => self.say("there is no place for settings: HOME is not set", true),
            Some(path) => {
                let effect = Effect::Save(path.clone());
                self.ask(Question::Confirm(effect), String::new());
            }
        }
    }

    /// Asks for the value of a setting. Without columns of one's own, those of the set are there; more can
    /// follow.
    pub fn ask_setting(&mut self, key: &'static str) {
        let value = match key {
            "columns" => self
                .chosen_or_usual()
                .into_iter()
                .map(|column| format!("{},", column.name()))
                .collect(),
            _ => (setting(key).get)(self),
        };
        self.ask(Question::Setting(key), value);
    }

    /// Asks a question, with this text in its line.
    fn ask(&mut self, question: Question, text: String) {
        let names = match question {
            Question::Setting("columns" | "sort") => column::names(),
            // Those of a recording may be others.
            Question::Users if !self.is_past => complete::running(Field::User)
                .into_iter()
                .map(|(name, _)| name)
                .collect(),
            _ => Vec::new(),
        };
        self.prompt = Some(Prompt {
            line: match question {
                Question::Setting("columns" | "filter") => Line::new(text),
                Question::About(..) | Question::Setting(_) => Line::suggestion(text),
                _ => Line::new(text),
            },
            question,
            error: None,
            refusal: None,
            names,
        });
    }

    /// Shows other rows, whose last column may be another. A sum is none of the processes, nor of the sums
    /// by something else.
    fn show_rows(&mut self, rows: Rows) {
        self.follow &= !matches!((self.rows, rows), (Rows::By(_), _) | (_, Rows::By(_)));
        (self.rows, self.shift) = (rows, 0);
    }

    /// Asks about processes or threads. A signal is for processes, for each once.
    fn ask_about(&mut self, kind: ControlKind, mut targets: Vec<Target>) {
        if kind == ControlKind::Signal {
            let mut known = BTreeSet::new();
            targets.retain(|target| known.insert(target.pid));
        }
        let now = match targets.as_slice() {
            [_, _, ..] if kind != ControlKind::Signal => String::new(),
            targets => targets.first().map_or(String::new(), |target| kind.now(target)),
        };
        self.ask(Question::About(kind, targets), now);
    }

    /// Moves to another sample of a recording. Looking for a spike takes a while.
    fn go_to(&mut self, step: Step) -> Effect {
        if let Step::Spike(_) = step {
            self.say("looking for a spike", false);
        }
        Effect::Go(step)
    }

    fn go(&mut self, motion: Motion, table: &dyn Table) {
        let page = table.height().max(1);
        self.cursor = match motion {
            Motion::Up => self.cursor.saturating_sub(1),
            Motion::Down => self.cursor + 1,
            Motion::PageUp => self.cursor.saturating_sub(page),
            Motion::PageDown => self.cursor + page,
            Motion::Home => 0,
            Motion::End => table.len(),
        };
        self.cursor = self.cursor.min(table.len().saturating_sub(1));
        self.at = table.id(self.cursor);
        self.follow = motion != Motion::Home;
    }

    /// Moves the cursor to a row, and makes it stay there.
    fn choose(&mut self, row: usize, table: &dyn Table) {
        self.cursor = row;
        self.at = table.id(row);
        self.follow = true;
    }

    /// Opens the row under the cursor: the details of a process, or the processes of a sum.
    fn open(&mut self, table: &dyn Table) {
        if let Some(target) = table.target(self.cursor) {
            (self.screen, self.shift) = (Screen::Details(target, Page::default(), 0), 0);
            self.follow = true;
            return;
        }
        let (Rows::By(by), Some(Id::Group(names))) = (self.rows, table.id(self.cursor)) else {
            return;
        };
        match expression(by, &names) {
            Some(expression) => {
                let before = self.filter.clone();
                self.filter = if self.filter.is_empty() {
                    expression
                } else {
                    format!("({}) and ({expression})", self.filter)
                };
                self.opened.push((self.rows, before, self.filter.clone()));
                self.show_rows(Rows::Processes);
            }
            None => self.say("no expression can name these processes", true),
        }
    }

    /// Goes back from the processes of a sum to the sums, unless the filter has changed since.
    fn close(&mut self) {
        let opened = self.opened.pop();
        if let Some((rows, before, _)) = opened.filter(|(.., filter)| *filter == self.filter) {
            self.filter = before;
            self.show_rows(rows);
        }
    }

    fn sort(&mut self, key: SortKey) {
        if self.order.key == key {
            self.order.descending = !self.order.descending;
        } else {
            self.order = Order::by(key);
        }
    }

    /// Sorts by the column next to the current sort column.
    fn sort_by_neighbour(&mut self, next: bool) {
        let keys = distinct(self.shown().into_iter().map(TopColumn::sort_key));
        let here = keys.iter().position(|&key| key == self.order.key);
        let there = match (here, next) {
            (Some(here), true) => (here + 1).min(keys.len().saturating_sub(1)),
            (Some(here), false) => here.saturating_sub(1),
            (None, _) => 0,
        };
        if let (Some(&key), true) = (keys.get(there), here != Some(there)) {
            self.order = Order::by(key);
        }
    }

    /// Repeats a search, once the rows have all that is searched.
    pub fn seek(&mut self, table: &dyn Table) {
        if std::mem::take(&mut self.is_sought) {
            self.message = None;
            self.search_from(self.cursor, table);
        }
    }

    /// Moves the cursor to the next row that has the text, starting at a row and wrapping around.
    fn search_from(&mut self, from: usize, table: &dyn Table) {
        if self.search.is_empty() {
            return self.say("nothing to search for: / asks", true);
        }
        let from = from.min(table.len());
        let mut found = (from..table.len()).chain(0..from);
        match found.find(|&index| table.has_text(index, &self.search)) {
            Some(index) => {
                self.choose(index, table);
                self.is_sought = false;
            }
            None if self.is_sought => self.say(format!("looking for {:?}", self.search), false),
            None => self.say(format!("nothing has {:?} in it", self.search), true),
        }
    }

    /// Handles a key for a question.
    fn answer(&mut self, mut prompt: Prompt, key: Key, table: &dyn Table) -> Option<Effect> {
        if let Question::Confirm(effect) = &prompt.question {
            let is_meant = matches!(
                keys::typed(key),
                Some(Typed::Edit(super::prompt::Edit::Insert('y' | 'Y')))
            );
            if is_meant {
                return Some(effect.clone());
            }
            self.say("nothing was done", false);
            return None;
        }
        match keys::typed(key) {
            Some(Typed::Edit(edit)) => {
                prompt.line.edit(edit);
                self.typed(prompt, key.pasted);
                None
            }
            Some(Typed::Complete) => {
                prompt.line.complete(&prompt.names);
                self.typed(prompt, false);
                None
            }
            Some(Typed::Done) => self.done(prompt, table),
            Some(Typed::Cancel) => None,
            Some(Typed::Suspend) => {
                self.prompt = Some(prompt);
                Some(Effect::Suspend)
            }
            None => {
                self.prompt = Some(prompt);
                None
            }
        }
    }

    fn typed(&mut self, mut prompt: Prompt, is_pasted: bool) {
        // A text that is pasted is checked as a whole, by the next key. Looking up a user may take long,
        // and half a name is no mistake.
        let is_begun = is_pasted || prompt.question == Question::Users || !prompt.line.meant(&prompt.names).is_empty();
        prompt.error = if is_begun {
            None
        } else {
            check(&prompt.question, prompt.line.text())
        };
        self.prompt = Some(prompt);
    }

    /// Handles an answer. An invalid answer remains in its line, with the error.
    fn done(&mut self, mut prompt: Prompt, table: &dyn Table) -> Option<Effect> {
        if let Some(refusal) = prompt.refusal {
            self.say(refusal, true);
            return None;
        }
        let text = prompt.line.text().trim().to_owned();
        prompt.error = check(&prompt.question, &text);
        if prompt.error.is_some() {
            self.prompt = Some(prompt);
            return None;
        }
        match prompt.question {
            Question::Users => self.users = text,
            Question::Setting(key) => {
                self.shift = 0;
                let set = setting(key).set(self, &text);
                set.unwrap_or_else(|message| self.say(message, true));
            }
            Question::Search if text.is_empty() => self.search = text,
            Question::Search => {
                // With this, the next sample has what the rows that are not on the screen lack.
                self.is_sought |= self.search.is_empty() && !matches!(self.rows, Rows::By(_));
                self.search = text;
                self.search_from(self.cursor, table);
            }
            Question::About(kind, targets) => {
                let effect = kind.parse(&text).map(|control| Effect::Control(control, targets));
                effect
                    .into_iter()
                    .for_each(|effect| self.ask(Question::Confirm(effect), String::new()));
            }
            Question::Time => return history::moment(&text).ok().map(|wall_ns| Effect::Go(Step::To(wall_ns))),
            Question::Confirm(_) => {}
        }
        None
    }
}

/// The error in an answer, and the position of its character.
fn check(question: &Question, text: &str) -> Option<(String, Option<usize>)> {
    let text = text.trim_end();
    let failed = |failure: Failure| Some((one_line(&failure), None));
    match question {
        Question::Setting("filter") if !text.is_empty() => {
            let is_past = history::shown().is_some();
            let error = selection::parse_filter(text, is_past).err()?;
            Some((error.message.clone(), Some(error.column())))
        }
        Question::Setting(key) => setting(key)
            .set(&mut View::default(), text)
            .err()
            .map(|message| (message.replace('\n', "; "), None)),
        Question::Users if text.is_empty() => None,
        Question::Users => {
            let names: Vec<String> = text.split(',').map(str::to_owned).collect();
            users::users(&names).err().and_then(failed)
        }
        Question::Time => history::moment(text).err().map(|message| (message, None)),
        Question::About(kind, _) => kind.parse(text).err().map(|known| (known, None)),
        Question::Search | Question::Confirm(_) => None,
    }
}

#[cfg(test)]
mod tests;
