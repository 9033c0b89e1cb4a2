//! The page of settings.

use super::pen::Pen;
use super::Scene;
use crate::output::text;
use crate::top::canvas::{Area, Canvas};
use crate::top::column::TopColumn;
use crate::top::keys::Action;
use crate::top::settings::SETTINGS;
use crate::top::setup::{items, Item};

/// Draws the page, with the cursor on one of its items. Returns the last one.
pub fn draw(canvas: &mut Canvas, area: Area, cursor: usize, scene: &Scene<'_>) -> usize {
    let (view, palette) = (scene.view, scene.palette);
    Pen::new(canvas, area, 0).title("Setup", "Enter: change, W: save", palette);
    let shown: Vec<&str> = view.chosen_or_usual().into_iter().map(TopColumn::name).collect();
    let items = items(shown.len());
    let last = items.len().saturating_sub(1);
    let cursor = cursor.min(last);
    let room = usize::from(area.height.saturating_sub(2)).max(1);
    let first = (cursor + 1).saturating_sub(room);
    let width = SETTINGS.iter().map(|setting| setting.key.len()).max().unwrap_or(0);
    let mut before = "";
    for (index, item) in items.iter().enumerate() {
        let (label, value, about) = match *item {
            Item::Setting(setting) => (setting.key, (setting.get)(view), setting.about),
            Item::Header(part) => {
                let mark = if view.header.contains(&part) { "[x]" } else { "[ ]" };
                let about = "a line about the machine, which is there or not";
                ("header", format!("{mark} {}", part.name()), about)
            }
            Item::Column(column) => {
                let about = "< and > move the column, Delete removes it, Enter asks for all";
                ("columns", shown[column].to_owned(), about)
            }
        };
        let is_first = before != label || index == first;
        before = label;
        if !(first..first + room).contains(&index) {
            continue;
        }
        let line = (index - first + 2) as u16;
        let label = if is_first { label } else { "" };
        let mut pen = Pen::new(canvas, area, line);
        pen.put(&format!("{label:width$}  "), palette.label())
            .put(&text::escaped(&value), palette.value())
            .skip(usize::from(area.width))
            .spot(0, Action::Choose(index));
        if index == cursor {
            Pen::new(canvas, area, line).fill(palette.cursor());
            Pen::new(canvas, area, 1).put(about, palette.dim());
        }
    }
    last
}
