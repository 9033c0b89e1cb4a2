//! The items of the page of settings, and what keys do to them.

use super::column::TopColumn;
use super::draw::HeaderPart;
use super::keys::Action;
use super::settings::SETTINGS;
use super::view::{Screen, View};

/// What the cursor of the page can be on. The settings that are lists have an item for each element.
#[derive(Clone, Copy)]
pub enum Item {
    /// A setting, by its place.
    Setting(usize),
    /// A line of the header, which is there or not.
    Header(HeaderPart),
    /// A column of the table, by its place.
    Column(usize),
}

/// The items, with this many columns.
pub fn items(columns: usize) -> Vec<Item> {
    let is_list = |place: &usize| ["header", "columns"].contains(&SETTINGS[*place].key);
    let settings = (0..SETTINGS.len()).filter(|place| !is_list(place)).map(Item::Setting);
    let header = HeaderPart::ALL.into_iter().map(Item::Header);
    settings.chain(header).chain((0..columns).map(Item::Column)).collect()
}

impl View {
    /// Performs the action of a key while the page of settings is shown. Returns whether it was one for
    /// the item under the cursor.
    pub fn set_up(&mut self, action: Action) -> bool {
        let mut columns: Vec<&str> = self.shown().into_iter().map(TopColumn::name).collect();
        let items = items(columns.len());
        let Screen::Setup(cursor) = &mut self.screen else {
            return false;
        };
        *cursor = (*cursor).min(items.len() - 1);
        let action = match action {
            Action::Choose(index) if index == *cursor => Action::Details,
            Action::Choose(index) => {
                *cursor = index;
                return true;
            }
            other => other,
        };
        match (action, items[*cursor]) {
            (Action::Details | Action::Tag, Item::Setting(place)) => {
                let setting = &SETTINGS[place];
                let value = (setting.get)(self);
                match setting
                    .choices
                    .iter()
                    .cycle()
                    .skip_while(|choice| **choice != value)
                    .nth(1)
                {
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
                *cursor -= 1;
                self.columns = columns.join(",");
            }
            (Action::NextColumn, Item::Column(place)) if place + 1 < columns.len() => {
                columns.swap(place, place + 1);
                *cursor += 1;
                self.columns = columns.join(",");
            }
            (Action::Remove, Item::Column(place)) if columns.len() > 1 => {
                columns.remove(place);
                self.columns = columns.join(",");
            }
            _ => return false,
        }
        true
    }
}
