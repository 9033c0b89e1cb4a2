//! The items of the page of settings, and what keys do to them.

use super::column::TopColumn;
use super::draw::HeaderPart;
use super::keys::Action;
use super::settings::{Setting, SETTINGS};
use super::view::{Screen, View};

/// What the cursor of the page can be on. The settings that are lists have an item for each element.
#[derive(Clone, Copy)]
pub enum Item {
    Setting(&'static Setting),
    /// A line of the header, which is there or not.
    Header(HeaderPart),
    /// A column of the table, by its place.
    Column(usize),
}

/// The items, with this many columns.
pub fn items(columns: usize) -> Vec<Item> {
    let is_list = |setting: &&Setting| ["header", "columns"].contains(&setting.key);
    let settings = SETTINGS.iter().filter(|setting| !is_list(setting)).map(Item::Setting);
    let header = HeaderPart::ALL.into_iter().map(Item::Header);
    settings.chain(header).chain((0..columns).map(Item::Column)).collect()
}

impl View {
    /// Performs the action of a key while the page of settings is shown. Returns whether it was one for
    /// the item under the cursor.
    pub fn set_up(&mut self, action: Action) -> bool {
        let Screen::Setup(cursor) = self.screen else {
            return false;
        };
        let mut columns: Vec<&str> = self.chosen_or_usual().into_iter().map(TopColumn::name).collect();
        let items = items(columns.len());
        let mut cursor = cursor.min(items.len() - 1);
        // After `End`, it is beyond the last item.
        self.screen = Screen::Setup(cursor);
        let action = match action {
            Action::Choose(index) if index == cursor => Action::Details,
            other => other,
        };
        match (action, items[cursor]) {
            (Action::Choose(index), _) => cursor = index,
            (Action::Details | Action::Tag, Item::Setting(setting)) => {
                let value = (setting.get)(self);
                let place = setting.choices.iter().position(|choice| *choice == value);
                match place.and_then(|place| setting.choices.iter().cycle().nth(place + 1)) {
                    Some(next) => setting
                        .set(self, next)
                        .unwrap_or_else(|message| self.say(message, true)),
                    None => self.ask_setting(setting.key),
                }
            }
            (Action::Details | Action::Tag, Item::Header(part)) => {
                let mut parts = HeaderPart::ALL.to_vec();
                parts.retain(|other| self.header.contains(other) != (*other == part));
                self.header = parts;
            }
            (Action::Details | Action::Tag, Item::Column(_)) => self.ask_setting("columns"),
            (Action::PreviousColumn, Item::Column(place)) if place > 0 => {
                columns.swap(place, place - 1);
                cursor -= 1;
                self.columns = columns.join(",");
            }
            (Action::NextColumn, Item::Column(place)) if place + 1 < columns.len() => {
                columns.swap(place, place + 1);
                cursor += 1;
                self.columns = columns.join(",");
            }
            (Action::Remove, Item::Column(place)) if columns.len() > 1 => {
                columns.remove(place);
                self.columns = columns.join(",");
            }
            _ => return false,
        }
        self.screen = Screen::Setup(cursor);
        true
    }
}
