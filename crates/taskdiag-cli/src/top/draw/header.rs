//! The lines about the machine.

use super::layout::{HeaderLine, HeaderPart};
use super::pen::{bar, Pen};
use super::{Palette, Scene};
use crate::history;
use crate::host::{Host, Times, Usage, PRESSURES};
use crate::output::{people, text};
use crate::top::bursts::{News, Tally};
use crate::top::canvas::{Area, Canvas, Style};
use crate::top::keys::Action;
use crate::top::model::States;

pub fn draw(canvas: &mut Canvas, area: Area, number: u16, line: HeaderLine, scene: &Scene<'_>) {
    let mut pen = Pen::new(canvas, area, number);
    let palette = scene.palette;
    match line {
        HeaderLine::Recorded => recorded(&mut pen, scene),
        HeaderLine::Part(HeaderPart::Load) => machine(&mut pen, scene.host, palette),
        HeaderLine::Part(HeaderPart::Processes) => tasks(&mut pen, scene, palette),
        HeaderLine::Processors { first, columns } => processors(&mut pen, scene, first, columns),
        HeaderLine::Part(HeaderPart::Processors) => {
            all_processors(&mut pen, scene);
            pen.spot(0, Action::Processors);
        }
        HeaderLine::Part(HeaderPart::Memory) => {
            let half = pen.room() / 2;
            memory(&mut pen.part(half), scene.host, palette);
            pen.skip(1);
            swap(&mut pen, scene.host, palette);
        }
        HeaderLine::ProcessorsAndMemory => {
            let half = pen.room() / 2;
            all_processors(&mut pen.part(half), scene);
            pen.skip(1);
            memory(&mut pen, scene.host, palette);
        }
        HeaderLine::Part(HeaderPart::Pressure) => {
            pressure(&mut pen, scene.host, palette);
            births(&mut pen, scene, palette);
        }
        HeaderLine::Part(HeaderPart::Devices) => devices(&mut pen, scene, palette),
        HeaderLine::Part(HeaderPart::Ended) => ended(&mut pen, scene.news, palette),
    }
}

/// The moment of a recording, and remarks about it.
fn recorded(pen: &mut Pen<'_>, scene: &Scene<'_>) {
    let (Some(at), palette) = (scene.at, scene.palette) else {
        return;
    };
    pen.fact("recorded ", &history::precise(at.moment.time.wall_ns), palette);
    pen.fact(" on ", &text::escaped(&at.moment.about.host), palette);
    pen.fact("  tier ", at.tier, palette);
    if let Some(interval) = scene.interval {
        let seconds = format!("{:.1} s", interval.as_secs_f64());
        pen.fact("  since the sample before ", &seconds, palette);
    }
    for note in &at.notes {
        pen.put("  ", Style::new()).put(&text::escaped(note), palette.warning());
    }
}

fn machine(pen: &mut Pen<'_>, host: &Host, palette: Palette) {
    if let Some(load) = &host.load {
        pen.fact("load ", &load.averages.join(" "), palette);
        let mut separator = "  runnable ";
        if let Some(threads) = load.threads {
            pen.fact("  threads ", &threads.to_string(), palette);
            separator = ", runnable ";
        }
        pen.fact(separator, &load.runnable.to_string(), palette);
    }
    if let Some(seconds) = host.uptime_s {
        let up = text::written(|out| people::duration(out, seconds.saturating_mul(1_000_000_000)));
        pen.fact("  up ", &up, palette);
    }
    let (total, count) = (host.memory.map(|memory| memory.total), host.stat.each.len());
    let memory = host.limits.memory.filter(|&limit| Some(limit) < total);
    let processors = host.limits.processors.filter(|&limit| limit < count as f64);
    let memory = memory.map(|limit| format!("{} memory", people::size_text(limit)));
    let processors = processors.map(|limit| format!("{limit:.2} processors"));
    let limits: Vec<String> = memory.into_iter().chain(processors).collect();
    if !limits.is_empty() {
        pen.fact("  limits ", &limits.join(", "), palette);
    }
}

fn tasks(pen: &mut Pen<'_>, scene: &Scene<'_>, palette: Palette) {
    let States {
        tasks,
        running,
        sleeping,
        uninterruptible,
        idle,
        stopped,
        zombie,
    } = scene.model.states;
    let what = if scene.model.rows == crate::top::rows::Rows::Threads {
        "threads "
    } else {
        "processes "
    };
    let selected = if scene.is_selected { "selected " } else { "" };
    let note = if scene.view.hides_kernel() {
        "  kernel threads hidden"
    } else {
        ""
    };
    pen.fact(&format!("{selected}{what}"), &tasks.to_string(), palette);
    let mut separator = ": ";
    // Those that tell most come first: there may be no room for all.
    for (count, name, style) in [
        (running, "running", palette.green()),
        (zombie, "zombie", palette.red()),
        (stopped, "stopped", palette.label()),
        (uninterruptible, "uninterruptible", palette.warning()),
        (sleeping, "sleeping", Style::new()),
        (idle, "idle", Style::new()),
    ] {
        if count > 0 {
            pen.put(separator, Style::new()).put(&format!("{count} {name}"), style);
            separator = ", ";
        }
    }
    if note.len() <= pen.room() {
        pen.put(note, palette.dim());
    }
}

/// A bar of what processors did since the previous sample.
fn usage(pen: &mut Pen<'_>, label: &str, usage: Option<Usage>, palette: Palette) {
    let text = usage.map_or_else(|| "-".to_owned(), |usage| format!("{:.1}%", usage.busy() * 100.0));
    let usage = usage.unwrap_or_default();
    let parts = [
        (usage.nice, palette.blue()),
        (usage.user, palette.green()),
        (usage.system, palette.red()),
        (usage.other, palette.magenta()),
    ];
    bar(pen, (label, palette.label()), &parts, &text);
}

fn all_processors(pen: &mut Pen<'_>, scene: &Scene<'_>) {
    let (now, before) = (&scene.host.stat, scene.before.map(|host| &host.stat));
    // A recording has only the total.
    let label = match now.each.len() {
        count @ 1.. if scene.palette.utf8 => format!("CPU×{count} "),
        _ => "CPU ".to_owned(),
    };
    let since = before.map(|before| now.all.since(&before.all));
    usage(pen, &label, since, scene.palette);
}

fn processors(pen: &mut Pen<'_>, scene: &Scene<'_>, first: usize, columns: usize) {
    let each = &scene.host.stat.each;
    let digits = each.last().map_or(1, |(number, _)| number.to_string().len());
    let before = |number: u32| -> Option<Times> {
        let before = &scene.before?.stat.each;
        let index = before.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(before[index].1)
    };
    let width = (pen.room() + 1) / columns;
    for (number, times) in each.iter().skip(first).take(columns) {
        let since = before(*number).map(|before| times.since(&before));
        let mut part = pen.part(width.saturating_sub(1));
        usage(&mut part, &format!("{number:>digits$}"), since, scene.palette);
        pen.skip(1);
    }
    pen.spot(0, Action::Processors);
}

fn memory(pen: &mut Pen<'_>, host: &Host, palette: Palette) {
    let Some(memory) = host.memory else {
        bar(pen, ("Mem", palette.label()), &[], "-");
        return;
    };
    let share = |bytes: u64| bytes as f64 / memory.total.max(1) as f64;
    let parts = [
        (share(memory.used), palette.green()),
        (share(memory.cache), palette.blue()),
    ];
    let mut text = format!("{}/{}", people::size_text(memory.used), people::size_text(memory.total));
    if pen.room() > 30 {
        text = format!("{text} cache {}", people::size_text(memory.cache));
    }
    bar(pen, ("Mem", palette.label()), &parts, &text);
}

fn swap(pen: &mut Pen<'_>, host: &Host, palette: Palette) {
    let (used, total) = host
        .memory
        .map_or((0, 0), |memory| (memory.swap_used, memory.swap_total));
    let share = used as f64 / total.max(1) as f64;
    let text = if total == 0 {
        "none".to_owned()
    } else {
        format!("{}/{}", people::size_text(used), people::size_text(total))
    };
    bar(pen, ("Swp", palette.label()), &[(share, palette.red())], &text);
}

fn pressure(pen: &mut Pen<'_>, host: &Host, palette: Palette) {
    pen.put("pressure", palette.label());
    for (name, pressure) in PRESSURES.iter().zip(host.pressure) {
        pen.put(&format!(" {name} "), Style::new());
        match pressure {
            None => pen.put("-", palette.dim()),
            Some(percent) if percent >= 10.0 => pen.put(&format!("{percent:.1}%"), palette.warning()),
            Some(percent) => pen.put(&format!("{percent:.1}%"), palette.value()),
        };
    }
}

/// What disks and network interfaces move in a second.
fn devices(pen: &mut Pen<'_>, scene: &Scene<'_>, palette: Palette) {
    let seconds = scene.interval.map_or(0.0, |interval| interval.as_secs_f64());
    let grown = |of: &dyn Fn(&Host) -> Option<u64>| {
        let rate = of(scene.host)?.checked_sub(of(scene.before?)?)? as f64 / seconds;
        rate.is_finite().then_some(rate)
    };
    let disk = |index: usize| grown(&|host| Some(host.disks?[index]));
    let network = |index: usize| grown(&|host| Some(host.interfaces?[index]));
    for (label, rate) in [
        ("disks read ", disk(0)),
        ("  written ", disk(1)),
        ("  network received ", network(0)),
        ("  sent ", network(1)),
    ] {
        let rate = rate.map_or_else(
            || "-".to_owned(),
            |rate| format!("{}/s", people::size_text(rate as u64)),
        );
        pen.put(label, palette.label()).put(&rate, palette.value());
    }
    if let Some(errors) = network(2).filter(|errors| *errors > 0.0) {
        pen.put(&format!("  errors {errors:.1}/s"), palette.warning());
    }
}

/// Forks and exits a second. Where there are no events, the forks of `/proc/stat` are used, which
/// include threads.
fn births(pen: &mut Pen<'_>, scene: &Scene<'_>, palette: Palette) {
    let seconds = scene.interval.map(|interval| interval.as_secs_f64());
    let rate = |count: u64| match seconds {
        Some(seconds) if seconds > 0.0 => format!("{:.1}/s", count as f64 / seconds),
        _ => "-".to_owned(),
    };
    match scene.news {
        News::Tally(tally, lost) => {
            pen.fact("  forks ", &rate(tally.forks), palette);
            pen.fact("  exits ", &rate(tally.exits), palette);
            if *lost > 0 {
                pen.put(&format!("  {lost} events lost"), palette.warning());
            }
        }
        News::None(_) | News::NotYet => {
            let forks = scene.host.stat.forks;
            let forks = forks.zip(scene.before.and_then(|before| before.stat.forks));
            let forks = forks.map_or_else(|| "-".to_owned(), |(now, before)| rate(now.saturating_sub(before)));
            pen.fact("  forks, of threads too ", &forks, palette);
        }
    }
}

/// What ran and ended between two samples.
fn ended(pen: &mut Pen<'_>, news: &News, palette: Palette) {
    pen.put("ran and ended ", palette.label());
    let tally: &Tally = match news {
        News::NotYet => return,
        News::None(reason) => {
            let reason = text::escaped(reason.lines().next().unwrap_or_default());
            pen.put(&format!("not known: {reason}"), palette.dim());
            return;
        }
        News::Tally(tally, _) => tally,
    };
    let ended = tally.ended();
    if ended.is_empty() {
        pen.put("nothing", palette.dim());
        return;
    }
    for (index, (name, count, runtime_ns)) in ended.into_iter().enumerate() {
        let name = match name {
            // A program may have none, and not every source of events tells it.
            [] => "(no name)".to_owned(),
            name => text::escaped(name),
        };
        let separator = if index > 0 { ", " } else { "" };
        pen.put(separator, Style::new()).put(&name, palette.value());
        if count > 1 {
            pen.put(&format!(" {count}"), Style::new());
        }
        if runtime_ns >= 10_000_000 {
            pen.put(&format!(" ({:.2} s)", runtime_ns as f64 / 1e9), Style::new());
        }
    }
    if tally.others > 0 {
        pen.put(&format!(" and {} others", tally.others), Style::new());
    }
}
