//! The loop. Its inputs are keys, signals and samples; its outputs are pictures.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use taskdiag::{Filter, Identity, Snapshot, Task};

use super::bursts::News;
use super::canvas::Spot;
use super::control::{self, ControlKind};
use super::details::{Details, Inquiry};
use super::draw::{self, layout, Layout, Memory, Palette, Scene};
use super::input::{Code, Decoder, READ_BYTES};
use super::keys::Action;
use super::model::Model;
use super::rows::{Id, Target};
use super::sampler::{Order, Report, Sampler};
use super::screen::Screen;
use super::settings;
use super::source::{RecordingPosition, Sample, Samples, Tag};
use super::spec::Spec;
use super::terminal::{is_in_background, suspend, wait, Guard, Notice, Signals};
use super::view::{self, one_line, Effect, Table as _, View};
use crate::history;
use crate::host::Host;
use crate::listing::silent;
use crate::outcome::{lacking, no_answer_from, say, say_silent, Failure, Outcome};
use crate::output::Output;
use crate::ps::pid_digits;
use crate::rhythm::Rhythm;
use crate::selection::Selection;
use crate::watch::SampleTime;

/// How long a picture waits for the close look at rows that have just come into view.
const LOOK: Duration = Duration::from_millis(20);

/// How many rows one turn of the wheel moves.
const WHEEL: usize = 3;

/// The size of the screen whose header samples have that are printed.
const HEADER_HEIGHT: u16 = 24;

/// What the program starts with.
pub struct Start<'a> {
    pub view: View,
    pub selection: &'a Selection,
    pub sampler: Sampler,
    /// Ends after this many samples.
    pub count: u64,
    pub exact: bool,
    pub named: bool,
    pub palette: Palette,
}

/// The last orders, so that orders are given only when something changes.
struct Ordered {
    spec: Spec,
    serial: u64,
    /// The filter of the last order that is decided once rates are known.
    rated: Option<Filter>,
    delay: Duration,
    paused: bool,
    inquiry: Option<Inquiry>,
    look: Vec<(u32, Identity)>,
}

/// The program.
pub struct App<'a> {
    start: Start<'a>,
    model: Model,
    ordered: Ordered,
    /// The filter over rates that decided the rows on the screen.
    rated: Option<Filter>,
    /// Whether the rows on the screen are a selection of all tasks.
    is_selected: bool,
    host: Host,
    before: Option<Host>,
    /// When the last two surveys were taken.
    moments: [Option<SampleTime>; 2],
    news: News,
    /// The position in a recording.
    at: Option<Box<RecordingPosition>>,
    details: Option<Box<Details>>,
    failure: Option<String>,
    memory: Memory,
    decoder: Decoder,
    /// Where clicks on the last picture have an effect.
    spots: Vec<Spot>,
    samples: u64,
    /// Since when a close look has been awaited.
    awaited: Option<Instant>,
    is_changed: bool,
    is_over: bool,
}

impl<'a> App<'a> {
    /// Orders the first survey.
    pub fn new(start: Start<'a>) -> Result<App<'a>, Failure> {
        let spec = Spec::of(&start.view);
        let (query, rated) = spec.query(start.selection)?;
        let tag = Tag {
            rows: spec.rows,
            serial: 1,
        };
        start.sampler.order(Order::Survey(tag, Box::new(query)));
        Ok(App {
            ordered: Ordered {
                spec,
                serial: 1,
                rated: rated.clone(),
                delay: start.view.delay,
                paused: start.view.paused,
                inquiry: None,
                look: Vec::new(),
            },
            model: Model::default(),
            rated,
            is_selected: false,
            host: Host::default(),
            before: None,
            moments: [None; 2],
            news: News::NotYet,
            at: None,
            details: None,
            failure: None,
            memory: Memory::new(start.exact, start.named, pid_digits()),
            decoder: Decoder::default(),
            spots: Vec::new(),
            samples: 0,
            awaited: None,
            is_changed: true,
            is_over: false,
            start,
        })
    }

    /// Runs until the user, a signal or the number of samples ends it.
    pub fn run(mut self, signals: &Signals) -> Result<Outcome, Failure> {
        // This comes before the terminal is taken, so that a failure is an ordinary message.
        self.next()?;
        let mut guard = Some(Guard::enter()?);
        let mut screen = Screen::default();
        screen.begin()?;
        loop {
            self.look_closer();
            let rest = self.awaited.map(|since| LOOK.saturating_sub(since.elapsed()));
            let is_waiting = rest.is_some_and(|rest| !rest.is_zero());
            // A slow terminal gets fewer pictures.
            if self.is_changed && !is_waiting && guard.is_some() && !screen.is_left() {
                self.draw(&mut screen)?;
                // Only now is it known how many rows fit.
                self.look_closer();
            }
            let is_left = screen.is_left();
            if self.is_over || self.samples >= self.start.count && !self.is_changed && !is_left {
                return Ok(Outcome::Complete);
            }
            let timeout = rest.filter(|_| self.is_changed && is_waiting);
            let timeout = timeout.map(|rest| Timespec::try_from(rest).unwrap_or_default());
            let sampler = std::os::fd::AsFd::as_fd(&self.start.sampler);
            let ready = wait(signals, sampler, is_left, timeout)?;
            if ready.lost {
                return Ok(Outcome::Complete);
            }
            if ready.output {
                screen.flush()?;
            }
            while let Some(notice) = ready.signals.then(|| signals.take()).flatten() {
                match notice {
                    Notice::End => self.is_over = true,
                    Notice::Resized => self.is_changed = true,
                    Notice::Suspend => self.suspend(&mut guard, &mut screen)?,
                    Notice::Resumed => self.resume(&mut guard, &mut screen)?,
                }
            }
            // A signal may have stopped this process since the keys were there. Keys come before
            // reports: they are about the rows of the last picture.
            if ready.keys && !ready.signals {
                for effect in self.keys()? {
                    match effect {
                        Effect::Suspend => self.suspend(&mut guard, &mut screen)?,
                        Effect::Redraw => screen.clear(),
                        effect => self.perform(effect),
                    }
                }
                self.is_changed = true;
                self.order();
            }
            if ready.reports {
                while let Some(report) = self.start.sampler.report()? {
                    self.take(report);
                }
            }
        }
    }

    /// Waits for the next report, and takes it.
    fn next(&mut self) -> Result<(), Failure> {
        match self.start.sampler.wait() {
            Report::Failed(message) => return Err(message.into()),
            report => self.take(report),
        }
        Ok(())
    }

    /// Prints samples as text, in lines of this width.
    pub fn print(mut self, width: Option<usize>) -> Result<Outcome, Failure> {
        let is_past = self.start.view.is_past;
        let count = if is_past { 1 } else { self.start.count };
        let mut rhythm = Rhythm::new(self.start.view.delay);
        self.start.sampler.order(Order::Pause(true));
        self.next()?;
        for sample in 0..count {
            self.model.height = usize::MAX;
            if sample > 0 {
                rhythm.wait();
            }
            if !is_past {
                // The first one has no rates.
                self.start.sampler.order(Order::Now);
                self.next()?;
            }
            self.look_closer();
            while self.awaited.is_some() {
                self.next()?;
            }
            let lines = self.with_scene((draw::bars_width(width), HEADER_HEIGHT), |scene, layout, memory| {
                draw::lines(scene, layout, memory, width)
            });
            let mut output = Output::default();
            let end = if sample + 1 < count { "\n\n" } else { "\n" };
            output.buffer.extend_from_slice((lines.join("\n") + end).as_bytes());
            output.finish()?;
        }
        let missing = self.model.snapshot.missing();
        missing.iter().for_each(|&pid| say(lacking(pid)));
        let tasks: Vec<Task<'_>> = self.model.look.tasks().collect();
        let silent = silent(&tasks);
        if is_past && !silent.is_empty() {
            say(format_args!("{} when it was recorded", no_answer_from(&silent)));
            return Ok(Outcome::Partial);
        }
        Ok(say_silent(&silent).and(Outcome::partial_if(!missing.is_empty())))
    }

    /// Restores the terminal and stops the process until SIGCONT arrives.
    fn suspend(&mut self, guard: &mut Option<Guard>, screen: &mut Screen) -> Result<(), Failure> {
        drop(guard.take());
        suspend()?;
        self.resume(guard, screen)
    }

    /// Takes the terminal again. Whoever stopped this process may have changed its modes. If this
    /// continues in the background, it stops again, like any program that uses the terminal, and the
    /// signal that continues it comes here.
    fn resume(&mut self, guard: &mut Option<Guard>, screen: &mut Screen) -> Result<(), Failure> {
        drop(guard.take());
        if self.is_over {
            return Ok(());
        }
        if is_in_background() {
            return Ok(suspend()?);
        }
        *guard = Some(Guard::enter()?);
        screen.begin()?;
        self.is_changed = true;
        Ok(())
    }

    /// Reads the keys that were pressed.
    fn keys(&mut self) -> Result<Vec<Effect>, Failure> {
        let mut bytes = [0; READ_BYTES];
        let count = match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
            Ok(0) => {
                self.is_over = true;
                0
            }
            Ok(count) => count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => 0,
            Err(errno) => return Err(io::Error::from(errno).into()),
        };
        let mut effects = Vec::new();
        for key in self.decoder.feed(&bytes[..count]) {
            let view = &mut self.start.view;
            match key.code {
                Code::Click(x, y) => {
                    let is_there = |spot: &&Spot| spot.line == y && spot.columns.contains(&x);
                    let action = self.spots.iter().find(is_there).map(|spot| spot.action);
                    effects.extend(action.and_then(|action| view.click(action, &self.model)));
                    // After others, the next click may mean what is not on the screen yet.
                    if !matches!(action, None | Some(Action::Choose(_))) {
                        self.spots.clear();
                    }
                }
                Code::WheelUp | Code::WheelDown => {
                    effects.extend((0..WHEEL).filter_map(|_| view.press(key, &self.model)));
                }
                _ => effects.extend(view.press(key, &self.model)),
            }
            if !key.pasted {
                self.arrange();
            }
        }
        Ok(effects)
    }

    fn arrange(&mut self) {
        self.model.arrange(&self.start.view, self.rated.as_ref());
        self.start.view.settle(&self.model);
    }

    /// Takes a report of the sampler.
    fn take(&mut self, report: Report) {
        match report {
            Report::Survey(tag, samples) => self.survey(tag, *samples),
            Report::Look(look) => {
                let before = self.model.look(*look);
                self.start.sampler.order(Order::Reuse(Box::new(before)));
                self.awaited = None;
            }
            Report::Details(details) => {
                self.model.note(&details);
                self.details = Some(details);
            }
            Report::Failed(message) => {
                self.failure = Some(message);
                self.awaited = None;
            }
        }
        self.is_changed = true;
    }

    fn survey(&mut self, tag: Tag, samples: Samples) {
        self.failure = None;
        self.samples += 1;
        if samples.restarts {
            self.model.forget();
            self.moments = [None; 2];
        }
        if let Some(mut at) = samples.at {
            history::show(at.moment.clone());
            self.memory.forget_names(self.start.exact, self.start.named);
            if let Some((text, is_error)) = at.said.take() {
                self.start.view.say(text, is_error);
            }
            self.at = Some(at);
            // The rows must show nothing of another sample.
            self.model.look(Snapshot::default());
        }
        if tag.serial == self.ordered.serial {
            self.rated.clone_from(&self.ordered.rated);
            self.is_selected = self.is_selected();
        }
        for sample in samples.samples {
            self.sample(sample, tag);
        }
        self.arrange();
        if tag.serial == self.ordered.serial {
            self.start.view.seek(&self.model);
        }
        if let Some(prompt) = &mut self.start.view.prompt {
            let targets = prompt.subject().map(|(_, targets)| targets.iter().collect::<Vec<_>>());
            if let Some(refusals) = targets.map(|targets| control::refusals(&targets)) {
                prompt.refuse(refusals);
            }
        }
        self.check_tags();
        // The rows must show values of this sample.
        self.ordered.look.clear();
    }

    /// Ends the tags of what has ended, and says so.
    fn check_tags(&mut self) {
        let view = &mut self.start.view;
        let is_gone = |tag: &&Target| self.model.position(&Id::Task(tag.identity)).is_none();
        let missing: Vec<&Target> = view.tags.iter().filter(is_gone).collect();
        if missing.is_empty() {
            return;
        }
        let refusals = control::refusals(&missing).into_iter().zip(missing);
        let ended: Vec<u32> = refusals.filter_map(|(refusal, tag)| refusal.map(|_| tag.tid)).collect();
        view.tags.retain(|tag| !ended.contains(&tag.tid));
        if !ended.is_empty() {
            let ids: Vec<String> = ended.iter().map(u32::to_string).collect();
            view.say(format!("tagged, and ended: {}", ids.join(", ")), false);
        }
    }

    fn sample(&mut self, sample: Sample, tag: Tag) {
        let before = std::mem::replace(&mut self.host, sample.host);
        self.before = self.moments[1].is_some().then_some(before);
        self.moments = [self.moments[1], Some(sample.moment)];
        self.news = sample.news;
        let before = self
            .model
            .survey(tag.rows, sample.snapshot, sample.moment, self.rated.as_ref());
        self.start.sampler.order(Order::Reuse(Box::new(before)));
    }

    /// Orders a close look at the rows on the screen, if there was none.
    fn look_closer(&mut self) {
        if self.start.view.screen != view::Screen::Table {
            self.awaited = None;
            return;
        }
        let tasks = self.model.visible(self.start.view.first);
        if tasks.is_empty() || tasks == self.ordered.look {
            return;
        }
        let query = self.ordered.spec.close_look(&tasks);
        self.start.sampler.order(Order::Look(Box::new(query)));
        self.ordered.look = tasks;
        self.awaited = Some(Instant::now());
    }

    /// Gives the orders that the current view needs.
    fn order(&mut self) {
        let view = &mut self.start.view;
        let spec = Spec::of(view);
        if spec != self.ordered.spec {
            match spec.query(self.start.selection) {
                Ok((query, rated)) => {
                    self.ordered.serial += 1;
                    let tag = Tag {
                        rows: spec.rows,
                        serial: self.ordered.serial,
                    };
                    self.start.sampler.order(Order::Survey(tag, Box::new(query)));
                    self.ordered.rated = rated;
                    self.ordered.spec = spec;
                    self.ordered.look.clear();
                }
                Err(failure) => {
                    view.say(one_line(&failure), true);
                    view.rows = self.ordered.spec.rows;
                    view.filter.clone_from(&self.ordered.spec.filter);
                    view.users.clone_from(&self.ordered.spec.users);
                }
            }
        }
        let inquiry = match &view.screen {
            view::Screen::Details(target, page, _) => Some(Inquiry {
                target: target.clone(),
                page: *page,
            }),
            _ => None,
        };
        if inquiry != self.ordered.inquiry {
            self.start.sampler.order(Order::Inspect(inquiry.clone()));
            self.ordered.inquiry = inquiry;
        }
        if view.delay != self.ordered.delay {
            self.start.sampler.order(Order::Delay(view.delay));
            self.ordered.delay = view.delay;
        }
        if view.paused != self.ordered.paused {
            self.start.sampler.order(Order::Pause(view.paused));
            self.ordered.paused = view.paused;
        }
    }

    /// Does what a key requested outside the view.
    fn perform(&mut self, effect: Effect) {
        let view = &mut self.start.view;
        match effect {
            Effect::Quit => self.is_over = true,
            Effect::Now => {
                // With this, the tests check that a panic restores the terminal.
                assert!(
                    !cfg!(debug_assertions) || std::env::var_os("TASKDIAG_TEST_PANIC").is_none(),
                    "a test asked for a panic"
                );
                self.start.sampler.order(Order::Now);
            }
            Effect::Control(control, targets) => {
                let is_signal = control.kind == ControlKind::Signal;
                let id = |target: &Target| if is_signal { target.pid } else { target.tid };
                let done = |target: &Target| {
                    let failed = control.apply(target).err()?;
                    Some(format!("{}: {failed}", id(target)))
                };
                let failed: Vec<String> = targets.iter().filter_map(done).collect();
                let whom = match targets.as_slice() {
                    [one] => id(one).to_string(),
                    _ => format!("{} that were tagged", targets.len() - failed.len()),
                };
                let done = (failed.len() < targets.len()).then(|| control.done(&whom));
                let said: Vec<String> = done.into_iter().chain(failed.iter().cloned()).collect();
                view.say(said.join("; "), !failed.is_empty());
            }
            Effect::Save(path) => match settings::save(&path, view) {
                Ok(()) => view.say(format!("{} was written", path.display()), false),
                Err(what) => view.say(format!("{}{what}", path.display()), true),
            },
            Effect::Go(step) => self.start.sampler.order(Order::Go(step)),
            Effect::Suspend | Effect::Redraw => {}
        }
    }

    fn draw(&mut self, screen: &mut Screen) -> io::Result<()> {
        self.is_changed = false;
        screen.listen(self.start.view.mouse);
        let mut canvas = Screen::canvas();
        let size = (canvas.area.width, canvas.area.height);
        let drawn = self.with_scene(size, |scene, layout, memory| {
            draw::draw(&mut canvas, scene, layout, memory)
        });
        self.spots = std::mem::take(&mut canvas.spots);
        screen.draw(canvas, drawn.cursor)?;
        screen.flush()?;
        if let view::Screen::Help(scroll) | view::Screen::Setup(scroll) | view::Screen::Details(_, _, scroll) =
            &mut self.start.view.screen
        {
            *scroll = (*scroll).min(drawn.last_scroll);
        }
        Ok(())
    }

    /// Draws everything for a screen of this size.
    fn with_scene<T>(
        &mut self,
        (width, height): (u16, u16),
        draw: impl FnOnce(&Scene<'_>, &Layout, &mut Memory) -> T,
    ) -> T {
        let shown = self.start.view.shown();
        let interval = match self.moments {
            [Some(before), Some(now)] => Some(now.since(&before)),
            _ => None,
        };
        let (parts, each) = (&self.start.view.header, self.start.view.each_processor);
        let layout = layout(
            (width, height),
            self.host.stat.each.len(),
            parts,
            each,
            self.at.is_some(),
        );
        self.model.height = layout.rows.into();
        self.start.view.settle(&self.model);
        let scene = Scene {
            view: &self.start.view,
            model: &self.model,
            shown: &shown,
            host: &self.host,
            before: self.before.as_ref(),
            interval,
            news: &self.news,
            at: self.at.as_deref(),
            details: self.details.as_deref(),
            failure: self.failure.as_deref(),
            is_selected: self.is_selected,
            palette: Palette {
                light: self.start.view.light,
                ..self.start.palette
            },
        };
        draw(&scene, &layout, &mut self.memory)
    }

    /// Whether the order is for a selection of all tasks.
    fn is_selected(&self) -> bool {
        let spec = &self.ordered.spec;
        self.start.selection.is_given() || !spec.filter.is_empty() || !spec.users.is_empty()
    }
}
