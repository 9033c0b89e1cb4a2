//! The page of keys.

use super::pen::Pen;
use super::status::wrapped;
use super::Scene;
use crate::top::canvas::{Area, Canvas, Style};
use crate::top::keys::{bindings, label, CONTROLS, MOUSE};

/// The keys and what they do.
fn lines(is_past: bool) -> Vec<(String, &'static str)> {
    let bindings = bindings(is_past).map(|binding| {
        let keys: Vec<String> = binding.keys.iter().map(|&key| label(key)).collect();
        (keys.join(" "), binding.help)
    });
    let controls = CONTROLS
        .iter()
        .map(|(letter, _, help)| (format!("Ctrl-{}", letter.to_ascii_uppercase()), *help));
    let mouse = std::iter::once((MOUSE.0.to_owned(), MOUSE.1));
    bindings.chain(controls).chain(mouse).collect()
}

/// Draws the page, beginning at a line. Returns the last line at which the screen can begin.
pub fn draw(canvas: &mut Canvas, area: Area, scroll: usize, scene: &Scene<'_>) -> usize {
    let palette = scene.palette;
    Pen::new(canvas, area, 0).title("Keys of taskdiag top", "arrows: scroll", palette);
    let lines = lines(scene.view.is_past);
    let width = lines.iter().map(|(keys, _)| keys.len()).max().unwrap_or(0);
    let broken = |(keys, help): &(String, &str)| {
        let parts = wrapped(help, usize::from(area.width).saturating_sub(width + 2));
        let first = std::iter::once(keys.clone()).chain(std::iter::repeat(String::new()));
        first.zip(parts).collect::<Vec<_>>()
    };
    let lines: Vec<(String, String)> = lines.iter().flat_map(broken).collect();
    let room = usize::from(area.height.saturating_sub(2));
    let last = lines.len().saturating_sub(room);
    for (number, (keys, help)) in (2..area.height).zip(lines.iter().skip(scroll.min(last))) {
        Pen::new(canvas, area, number)
            .put(&format!("{keys:width$}  "), palette.label())
            .put(help, Style::new());
    }
    last
}
