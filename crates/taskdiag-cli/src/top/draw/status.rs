//! The line of questions, messages and the current view, and the line of keys.

use taskdiag::SourceId;

use super::pen::Pen;
use super::{Palette, Scene};
use crate::output::text;
use crate::proc::hidden_by;
use crate::top::canvas::{self, Area, Canvas, Style};
use crate::top::column::{Set, SortKey};
use crate::top::control::ControlKind;
use crate::top::groups::COLUMNS;
use crate::top::input::{Code, Key};
use crate::top::keys::action;
use crate::top::rows::{Rows, Target};
use crate::top::view::{Effect, Prompt, Question};

/// The label before a line that is being typed.
fn label(question: &Question) -> String {
    match question {
        Question::Users => "users: ".to_owned(),
        Question::Search => "search: ".to_owned(),
        Question::Time => "time: ".to_owned(),
        Question::Setting(key) => format!("{key}: "),
        Question::About(kind, targets) => format!("{} {}: ", kind.label(), whom(*kind, targets)),
        Question::Confirm(effect) => format!("{} [y/N] ", confirmation(effect)),
    }
}

/// A process or thread. A signal is for the whole process.
fn who(kind: ControlKind, target: &Target) -> String {
    let (name, pid, tid) = (named(target), target.pid, target.tid);
    match kind {
        _ if tid == pid => format!("{pid} {name}"),
        ControlKind::Signal => format!("process {pid} of thread {tid} {name}"),
        _ => format!("thread {tid} of {pid} {name}"),
    }
}

fn whom(kind: ControlKind, targets: &[Target]) -> String {
    let has_threads = targets.iter().any(|target| target.tid != target.pid);
    match targets {
        [one] => who(kind, one),
        many if has_threads && kind == ControlKind::Signal => format!("the {} processes of tagged threads", many.len()),
        many => format!("{} tagged", many.len()),
    }
}

/// The name of a process or thread, and its user.
fn named(target: &Target) -> String {
    text::written(|out| {
        text::escape(out, &target.name);
        if !target.user.is_empty() {
            out.extend_from_slice(b" (");
            text::escape(out, &target.user);
            out.push(b')');
        }
    })
}

fn confirmation(effect: &Effect) -> String {
    match effect {
        Effect::Control(control, targets) => {
            let (before, after) = control.question();
            let whom = match (control.kind, targets.as_slice()) {
                (ControlKind::Signal, [one]) if one.tid == one.pid => format!("process {}", who(control.kind, one)),
                _ => whom(control.kind, targets),
            };
            format!("{before} {whom}{after}?")
        }
        Effect::Save(path) => format!("write the settings to {}?", text::escaped(&path.display().to_string())),
        Effect::Quit | Effect::Suspend | Effect::Redraw | Effect::Now | Effect::Go(_) => String::new(),
    }
}

/// The least room for an answer behind a question.
const MIN_ANSWER: usize = 8;

/// The most lines below a question.
const MAX_BELOW: usize = 5;

/// The most processes that a question names. There is no room for more.
const MAX_NAMED: usize = 100;

/// A text in lines of this width, broken between words.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = text::wrapped(text, width);
    if lines.len() > MAX_BELOW {
        // There must be room to say that there is more.
        let rest = lines.split_off(MAX_BELOW - 1).join(" ");
        let last = text::wrapped(&rest, width.saturating_sub(2)).swap_remove(0);
        lines.push(format!("{last} …"));
    }
    lines
}

/// Draws lines over what is there.
fn put_lines(canvas: &mut Canvas, area: Area, first: u16, lines: &[String], style: Style) {
    for (number, text) in (first..).zip(lines) {
        let mut pen = Pen::new(canvas, area, number);
        pen.put(text, style);
        let rest = pen.room();
        pen.put(&" ".repeat(rest), Style::new());
    }
}

/// Draws a question. Returns the position of the cursor. An error is written after the answer if
/// there is room, otherwise below; without one, the names that may be meant.
pub fn prompt(canvas: &mut Canvas, area: Area, line: u16, prompt: &Prompt, palette: Palette) -> (u16, u16) {
    let label = label(&prompt.question);
    let (before, text) = (prompt.line.before(), prompt.line.text());
    let width = usize::from(area.width);
    let error = prompt
        .refusal
        .as_ref()
        .or(prompt.error.as_ref().map(|(message, _)| message));
    let error = error.map(text::escaped);
    let used = canvas::width(&label) + canvas::width(text);
    let below = match &error {
        Some(message) if used + canvas::width(message) + 2 < width => Vec::new(),
        Some(message) => wrapped(message, width),
        None => match prompt.subject() {
            Some((kind, targets @ [_, _, ..])) => {
                let named = targets.iter().take(MAX_NAMED).map(|target| who(kind, target));
                wrapped(&named.collect::<Vec<_>>().join(", "), width)
            }
            _ if prompt.names.is_empty() => Vec::new(),
            _ => wrapped(&prompt.line.meant(&prompt.names).join(" "), width),
        },
    };
    // The end of a question has room for an answer.
    let room = MIN_ANSWER.max(canvas::width(text) + 1).min(width / 2);
    let mut above = text::wrapped(label.trim_end(), width.saturating_sub(room + 1));
    let label = above.pop().unwrap_or_default() + " ";
    let lines = (above.len() + 1 + below.len()) as u16;
    let line = line.min(area.height.saturating_sub(lines));
    put_lines(canvas, area, line, &above, palette.label());
    let line = line + above.len() as u16;
    put_lines(canvas, area, line, &[String::new()], Style::new());
    let mut pen = Pen::new(canvas, area, line);
    pen.put(&label, palette.label());
    // The end of a long answer is shown, where the cursor is.
    let room = pen.room().saturating_sub(1);
    let mut begin = 0;
    while canvas::width(&before[begin..]) > room {
        begin += before[begin..].chars().next().map_or(1, char::len_utf8);
    }
    let start = pen.x;
    let wrong = prompt.error.as_ref().and_then(|(_, column)| *column);
    let wrong = wrong.and_then(|column| text.char_indices().nth(column.saturating_sub(1)));
    let wrong = wrong.map_or(text.len(), |(index, _)| index).max(begin);
    pen.put(&text[begin..wrong], palette.value());
    pen.put(&text[wrong..], palette.error());
    let cursor = start.saturating_add(u16::try_from(canvas::width(&before[begin..])).unwrap_or(u16::MAX));
    match error {
        Some(message) if below.is_empty() => {
            pen.skip(2).put(&message, palette.error());
        }
        Some(_) => put_lines(canvas, area, line + 1, &below, palette.error()),
        None => put_lines(canvas, area, line + 1, &below, palette.label()),
    }
    (cursor.min(area.width.saturating_sub(1)), area.y + line)
}

/// Draws a message, or else the current view.
pub fn status(canvas: &mut Canvas, area: Area, line: u16, scene: &Scene<'_>) {
    let (view, palette) = (scene.view, scene.palette);
    if let Some(message) = &view.message {
        let style = if message.is_error {
            palette.error()
        } else {
            palette.value()
        };
        let text = text::escaped(&message.text);
        let lines = wrapped(&text, usize::from(area.width));
        let line = line.min(area.height.saturating_sub(lines.len() as u16));
        return put_lines(canvas, area, line, &lines, style);
    }
    if let Some(failure) = scene.failure {
        let text = text::escaped(&failure.replace('\n', "; "));
        let lines = wrapped(&text, usize::from(area.width));
        return put_lines(canvas, area, line, &lines, palette.error());
    }
    let mut words: Vec<(String, Style)> = Vec::new();
    let (warning, plain) = (palette.warning(), Style::new());
    if let missing @ [_, ..] = scene.model.snapshot.missing() {
        let ids: Vec<String> = missing.iter().map(u32::to_string).collect();
        words.push((format!("no process {}", ids.join(", ")), warning));
    }
    let tagged = || (format!("{} tagged", view.tags.len()), palette.tag());
    let lost = || ("what the cursor was on is not among the rows".to_owned(), warning);
    words.extend((!view.tags.is_empty()).then(tagged));
    words.extend(view.is_lost.then(lost));
    match view.rows {
        Rows::Processes => {}
        Rows::Tree => words.push(("tree".to_owned(), plain)),
        Rows::Threads => words.push(("threads".to_owned(), plain)),
        rows @ Rows::By(_) => words.push((format!("by {}", rows.name()), plain)),
    }
    for (name, chosen) in [("filter", &view.filter), ("users", &view.users)] {
        words.extend((!chosen.is_empty()).then(|| (format!("{name} {chosen}"), warning)));
    }
    let arrow = if view.order.descending {
        "largest first"
    } else {
        "smallest first"
    };
    let key = view.order.key;
    let is_rate = matches!(key, SortKey::Rate(_));
    let has_order = is_rate || !matches!(view.rows, Rows::By(_)) || COLUMNS.iter().any(|(_, of)| *of == Some(key));
    let order = if has_order {
        format!("sorted by {}, {arrow}", view.order.key.name())
    } else {
        format!("in the order of names: sums have no {}", view.order.key.name())
    };
    words.push((order, plain));
    for (is_so, word) in [(view.follow, "following"), (view.paused, "paused")] {
        words.extend(is_so.then(|| (word.to_owned(), warning)));
    }
    words.extend(left_out(scene).map(|text| (text, warning)));
    // A recording is not read within a budget.
    if view.set == Set::Memory && scene.at.is_none() {
        words.push((budget(scene), plain));
    }
    let mut pen = Pen::new(canvas, area, line);
    for (index, (word, style)) in words.iter().enumerate() {
        let separator = if index > 0 { " | " } else { "" };
        pen.put(separator, palette.dim()).put(&text::escaped(word), *style);
    }
}

/// What is missing from the rows although it was asked for.
fn left_out(scene: &Scene<'_>) -> Option<String> {
    let snapshot = &scene.model.snapshot;
    let counters = snapshot.counters();
    let mut sources = snapshot.answers();
    let is_by_procfs =
        scene.at.is_none() && sources.all(|(_, answer)| !matches!(answer, Ok(SourceId::Bpf | SourceId::Broker)));
    match counters.denied + counters.undecided.total() {
        0 => hidden_by()
            .filter(|_| is_by_procfs)
            .map(|option| format!("others left out: {option}")),
        count => Some(format!("{count} left out: they may not be seen")),
    }
}

/// How far reading proportional set sizes got within its budget.
fn budget(scene: &Scene<'_>) -> String {
    let surveyed = scene.model.snapshot.counters();
    let looked = scene.model.look.counters();
    let walked = surveyed.walked + looked.walked;
    let unchanged = surveyed.unchanged + looked.unchanged;
    let over = surveyed.over_budget + looked.over_budget;
    let seconds = scene.view.pss_budget.as_secs_f64();
    let over = match over {
        0 => String::new(),
        over => format!(", {over} left out"),
    };
    format!("PSS: {walked} read, {unchanged} unchanged{over}; at most {seconds} s a sample")
}

/// Draws the most important keys.
pub fn keys(canvas: &mut Canvas, area: Area, line: u16, scene: &Scene<'_>) {
    const PAST_KEYS: &[(&str, &str)] = &[
        ("?", "help"),
        ("q", "quit"),
        ("Left Right", "sample"),
        ("[ ]", "minute"),
        ("{ }", "hour"),
        ("j J", "spike"),
        ("g", "time"),
        ("a z", "ends"),
        ("\\", "filter"),
        ("/", "search"),
        ("t", "tree"),
        ("b", "by"),
        ("Enter", "details"),
        ("f", "columns"),
    ];
    const KEYS: &[(&str, &str)] = &[
        ("?", "help"),
        ("q", "quit"),
        ("P M T N", "sort"),
        ("\\", "filter"),
        ("/", "search"),
        ("t", "tree"),
        ("H", "threads"),
        ("b", "by"),
        ("m", "PSS"),
        ("Enter", "details"),
        ("k", "signal"),
        ("r", "nice"),
        ("u", "users"),
        ("f", "columns"),
        ("F", "follow"),
        ("d", "delay"),
        ("S", "setup"),
    ];
    let palette = scene.palette;
    let shown = if scene.view.is_past { PAST_KEYS } else { KEYS };
    let mut pen = Pen::new(canvas, area, line);
    for (key, help) in shown {
        if pen.room() < key.len() + help.len() + 1 {
            break;
        }
        for name in key.split(' ') {
            let begin = pen.x;
            pen.put(name, palette.value()).put(" ", Style::new());
            if !key.contains(' ') {
                pen.put(help, palette.label());
            }
            let code = match name {
                "Enter" => Code::Enter,
                "Left" => Code::Left,
                "Right" => Code::Right,
                letter => Code::Char(letter.chars().next().unwrap_or_default()),
            };
            let action = action(Key::plain(code), scene.view.is_past);
            action.into_iter().for_each(|action| pen.spot(begin, action));
        }
        if key.contains(' ') {
            pen.put(help, palette.label());
        }
        pen.put("  ", Style::new());
    }
}
