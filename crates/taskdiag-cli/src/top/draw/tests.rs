//! Draws on a canvas.

use std::time::Duration;

use taskdiag::{Handle, Query, Snapshot};

use super::super::column::{Order, Set};
use super::super::control::ControlKind;
use super::super::details::{Inquiry, Inspector, System};
use super::super::input::{Code, Key};
use super::super::model::States;
use super::super::page::Page;
use super::super::prompt::Line;
use super::super::rows::{Rows, Target};
use super::super::spec::Spec;
use super::super::view::{Effect, Prompt, Question, Screen, Table as _};
use super::*;
use crate::grouping::{OF_PROCESSES, PROGRAM, USER};
use crate::selection::Selection;
use crate::watch::{Rate, SampleTime};

/// Two samples of this machine for the view, and a close look.
fn model(view: &mut View, height: u16) -> Model {
    let mut model = Model::default();
    let mut handle = Handle::new();
    let spec = Spec::of(view);
    let (query, rated) = spec.query(&Selection::default()).expect("a query");
    for _ in 0..2 {
        let (snapshot, moment) = SampleTime::of(|| handle.query(&query).expect("an answer"));
        model.survey(spec.rows, snapshot, moment, rated.as_ref());
        std::thread::sleep(Duration::from_millis(20));
    }
    model.height = height.into();
    model.arrange(view, rated.as_ref());
    view.settle(&model);
    let looked = model.visible(view.first);
    if !looked.is_empty() {
        model.look(handle.query(&spec.close_look(&looked)).expect("an answer"));
    }
    model
}

/// Draws on a screen of this size.
fn drawn(view: &mut View, model: &mut Model, details: Option<&Details>, (width, height): (u16, u16)) -> Vec<String> {
    let mut canvas = Canvas::new(width, height);
    let host = Host::read();
    let shown = view.shown();
    let layout = layout((width, height), host.stat.each.len(), &HeaderPart::ALL, true, false);
    model.height = layout.rows.into();
    view.settle(model);
    let scene = Scene {
        view,
        model,
        shown: &shown,
        host: &host,
        before: Some(&host),
        interval: Some(Duration::from_secs(1)),
        news: &News::NotYet,
        at: None,
        details,
        failure: None,
        is_selected: false,
        palette: Palette {
            colored: true,
            light: false,
            utf8: true,
        },
    };
    let mut memory = Memory::new(false, false, 7);
    draw(&mut canvas, &scene, &layout, &mut memory);
    canvas.lines()
}

const SIZES: [(u16, u16); 3] = [(40, 10), (80, 24), (300, 100)];

/// Check that at every size the headings, this test's own process, and the requested kinds of rows
/// are drawn.
#[test]
fn every_size_has_a_table() {
    let own = std::process::id().to_string();
    for size in SIZES {
        let mut view = View {
            filter: format!("pid == {own}"),
            ..View::default()
        };
        let mut model = model(&mut view, size.1);
        let lines = drawn(&mut view, &mut model, None, size);
        let heading = lines
            .iter()
            .position(|line| line.contains("PID") && line.contains("%CPU"));
        let row = &lines[heading.unwrap_or_else(|| panic!("{lines:#?}")) + 1];
        assert!(row.contains(&own), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("processes 1")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("Mem[")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("filter pid ==")), "{lines:#?}");
    }
}

/// Check that columns are where they will be: ids have the width of the highest one, and the trend has
/// that of all its samples.
#[test]
fn columns_have_their_places_from_the_start() {
    let mut view = View {
        filter: format!("pid == {}", std::process::id()),
        ..View::default()
    };
    for rows in [Rows::Processes, Rows::Threads, Rows::by(&[&USER])] {
        view.rows = rows;
        let mut model = model(&mut view, 24);
        let lines = drawn(&mut view, &mut model, None, (100, 24));
        let heading = lines.iter().find(|line| line.contains("%CPU")).expect("a heading");
        let ends = |word: &str| heading.find(word).map(|at| at + word.len());
        assert_eq!(
            ends("TREND").zip(ends("%CPU")).map(|(trend, cpu)| trend - cpu),
            Some(11),
            "{heading}"
        );
        if !matches!(rows, Rows::By(_)) {
            assert_eq!(ends("PID"), Some(7), "{heading}");
        }
    }
}

/// Check that of processes with equal values, that comes first which has used processor time last,
/// then the one with the lowest id.
#[test]
fn the_last_that_moved_comes_first() {
    let mut sleepers: Vec<_> = (0..3)
        .map(|_| {
            std::process::Command::new("sleep")
                .arg("1000")
                .spawn()
                .expect("sleep exists")
        })
        .collect();
    let mut busy = std::process::Command::new("sh")
        .args(["-c", "while [ -d /proc/$PPID ]; do :; done"])
        .spawn()
        .expect("sh exists");
    let mut pids: Vec<u32> = sleepers.iter().map(std::process::Child::id).collect();
    let list = format!("pid in ({}, {}, {}, {})", pids[0], pids[1], pids[2], busy.id());
    let mut view = View {
        filter: list,
        // All of them have this group.
        order: Order::named("pgid").expect("a field"),
        ..View::default()
    };
    let shown: Vec<u32> = loop {
        let model = model(&mut view, 24);
        let targets: Vec<_> = (0..4).filter_map(|index| model.target(index)).collect();
        let has_moved = |target: &&Target| model.trends.of(&target.identity, 1) > vec![0];
        let moved: Vec<u32> = targets.iter().filter(has_moved).map(|target| target.pid).collect();
        // It may have got no processor between the samples.
        if moved == [busy.id()] {
            break targets.iter().map(|target| target.pid).collect();
        }
    };
    for child in sleepers.iter_mut().chain([&mut busy]) {
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    }
    pids.sort_unstable();
    pids.insert(0, busy.id());
    assert_eq!(shown, pids);
}

/// Check that help is shown whole, however narrow the screen is.
#[test]
fn help_is_whole() {
    let mut view = View {
        screen: Screen::Help(0),
        ..View::default()
    };
    let mut model = Model::default();
    for width in [50, 80, 200] {
        let lines = drawn(&mut view, &mut model, None, (width, 100));
        let text = lines.concat().split_whitespace().collect::<Vec<_>>().join(" ");
        for binding in super::super::keys::bindings(false) {
            assert!(text.contains(binding.help), "{}: {lines:#?}", binding.help);
        }
    }
}

/// Check that all kinds of rows and sets of columns are drawn at all sizes, including small ones.
#[test]
fn all_rows_are_drawn() {
    let by = OF_PROCESSES.iter().map(|(_, by, _)| Rows::by(&[*by, &USER]));
    for rows in [Rows::Processes, Rows::Tree, Rows::Threads].into_iter().chain(by) {
        // Walking page tables takes long.
        let sets = if rows == Rows::by(&[&USER]) {
            &[Set::Usual, Set::Memory][..]
        } else {
            &[Set::Usual]
        };
        for &set in sets {
            let mut view = View {
                rows,
                set,
                order: Order::named("-rss_bytes").expect("an order"),
                ..View::default()
            };
            let mut model = model(&mut view, 100);
            for size in SIZES.into_iter().chain([(1, 1), (7, 3), (20, 5)]) {
                let lines = drawn(&mut view, &mut model, None, size);
                assert_eq!(lines.len(), usize::from(size.1));
                if size.0 >= 40 {
                    let by = if let Rows::By(by) = rows {
                        by[by.len() - 1].heading
                    } else {
                        "PID"
                    };
                    assert!(lines.iter().any(|line| line.contains(by)), "{rows:?}: {lines:#?}");
                }
            }
        }
    }
}

/// Check that a process is drawn without control characters and within its columns, whatever its
/// name and arguments.
#[test]
fn hostile_names_are_harmless() {
    let name = "\x1b[2J\u{202e}日本語\u{200b}\n";
    let mut child = std::os::unix::process::CommandExt::arg0(&mut std::process::Command::new("sleep"), name)
        .arg("1000")
        .spawn()
        .expect("sleep exists");
    let mut view = View {
        filter: format!("pid == {} and cmdline ~ '1000'", child.id()),
        ..View::default()
    };
    while Query::process(child.id())
        .filter(crate::selection::filter(&view.filter, false).expect("a filter"))
        .pipe(|query| Handle::new().query(&query))
        .is_ok_and(|snapshot| snapshot.is_empty())
    {
        std::thread::yield_now();
    }
    let mut model = model(&mut view, 24);
    for size in SIZES {
        let lines = drawn(&mut view, &mut model, None, size);
        // The filter contains it too.
        let row = lines.iter().rev().find(|line| line.contains(&child.id().to_string()));
        let row = row.unwrap_or_else(|| panic!("{lines:#?}"));
        assert!(row.contains("\\x1b") || size.0 < 80, "{row:?}");
        assert!(!lines.concat().contains(['\x1b', '\u{202e}', '\n']), "{lines:#?}");
    }
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
}

/// Runs a function on a value.
trait Pipe: Sized {
    fn pipe<T>(self, run: impl FnOnce(Self) -> T) -> T {
        run(self)
    }
}

impl Pipe for Query {}

/// Check that questions are drawn with their errors at all sizes, and the position of the cursor.
#[test]
fn questions_are_drawn() {
    for size in SIZES {
        let mut view = View::default();
        let mut model = model(&mut view, size.1);
        view.prompt = Some(Prompt {
            question: Question::Setting("filter"),
            line: Line::new("uid = 0"),
            error: Some(("not an operator".to_owned(), Some(5))),
            refusal: None,
            names: Vec::new(),
        });
        let lines = drawn(&mut view, &mut model, None, size);
        assert!(lines.iter().any(|line| line.contains("filter: uid = 0")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("not an operator")), "{lines:#?}");
        view.prompt = Some(Prompt {
            question: Question::Setting("filter"),
            line: Line::new("x".repeat(500)),
            error: Some(("no".to_owned(), None)),
            refusal: None,
            names: Vec::new(),
        });
        drawn(&mut view, &mut model, None, size);
    }
}

/// Check that a narrow screen shows all of a question, with room for the answer, and nothing of the
/// page beneath beside it.
#[test]
fn questions_are_whole() {
    let mut view = View {
        filter: format!("pid == {}", std::process::id()),
        ..View::default()
    };
    let mut model = model(&mut view, 24);
    let target = model.target(0).expect("this process");
    let signal = ControlKind::Signal.parse("TERM").expect("a signal");
    for (question, answer, words) in [
        (
            Question::Confirm(Effect::Control(signal, vec![target.clone()])),
            "",
            &["(root)?", "[y/N]"][..],
        ),
        (
            Question::About(ControlKind::Signal, vec![target.clone()]),
            "TERM",
            &["(root): TERM"],
        ),
        (
            Question::Confirm(Effect::Save("/directory".repeat(9).into())),
            "",
            &["/directory/directory", "[y/N]"],
        ),
        (Question::Setting("sort"), "-pid", &["sort: -pid"]),
    ] {
        for screen in [Screen::Table, Screen::Setup(99)] {
            view.screen = screen;
            view.prompt = Some(Prompt {
                question: question.clone(),
                line: Line::new(answer),
                error: None,
                refusal: None,
                names: vec!["pid_one ".repeat(20)],
            });
            let lines = drawn(&mut view, &mut model, None, (40, 24));
            let text = lines.join("\n");
            assert!(words.iter().all(|word| text.contains(word)), "{lines:#?}");
            let last = words[words.len() - 1];
            assert!(lines.iter().any(|line| line.trim_end().ends_with(last)), "{lines:#?}");
        }
    }
}

/// Check that each page about this process has the content of its title, and that help lists keys.
#[test]
fn pages_are_drawn() {
    let pid = std::process::id();
    let mut view = View {
        filter: format!("pid == {pid}"),
        ..View::default()
    };
    let mut model = model(&mut view, 24);
    let target = model.target(0).expect("this process");
    let for_maps = Handle::new().with_patience(Duration::from_secs(5));
    let mut inspector = Inspector::new(System::Machine(Box::new(for_maps)));
    for (page, said) in [
        (Page::Process, "Credentials"),
        (Page::Limits, "nofile"),
        (Page::Cgroup, "CGROUP_USE"),
        (Page::Files, "ACCESS"),
        (Page::Sockets, "RECV-Q"),
        (Page::Maps, "taskdiag"),
        (Page::Environment, "PATH"),
        (Page::Threads, "TID"),
        (Page::History, "resident memory"),
    ] {
        let inquiry = Inquiry {
            target: target.clone(),
            page,
        };
        let mut ask = |query: &Query| SampleTime::of(|| Handle::new().query(query));
        let details = inspector.details(&mut ask, &inquiry);
        model.note(&details);
        for size in SIZES {
            view.screen = Screen::Details(target.clone(), page, 0);
            let lines = drawn(&mut view, &mut model, Some(&details), size);
            let fits = size.1 >= 100 || page == Page::Threads;
            assert!(
                !fits || lines.iter().any(|line| line.contains(said)),
                "{page:?}: {lines:#?}"
            );
            assert!(lines[1].contains(&format!(" {} ", page.title())), "{lines:#?}");
            let is_long = page == Page::Process && size.1 < 100;
            assert!(!is_long || lines.concat().contains("lines 1 to "), "{lines:#?}");
            // The names of files are there, also where their directories are not.
            let headings = ["RSS", "SIZE", "DIRTY", "HUGETLB", "MAPPINGS", "NAME"].join(" ");
            let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                page != Page::Maps || size.0 < 80 || words(&lines[2]) == headings,
                "{lines:#?}"
            );
            let has_name = lines.iter().any(|line| line.trim_end().ends_with("/libc.so.6"));
            assert!(page != Page::Maps || size.0 < 80 || has_name, "{lines:#?}");
        }
    }
    let inquiry = Inquiry {
        target: target.clone(),
        page: Page::History,
    };
    let mut ask = |query: &Query| SampleTime::of(|| Handle::new().query(query));
    let mut details = inspector.details(&mut ask, &inquiry);
    details.activity = Some([Err("denied"); Rate::ALL.len()]);
    view.screen = Screen::Details(target, Page::History, 0);
    let lines = drawn(&mut view, &mut model, Some(&details), (100, 100));
    for title in ["read from storage", "written to storage"] {
        let heading = format!("{title}, a second: denied");
        assert!(lines.iter().any(|line| line.contains(&heading)), "{lines:#?}");
    }
    view.screen = Screen::Help(0);
    for size in SIZES {
        let lines = drawn(&mut view, &mut model, None, size);
        assert!(lines.iter().any(|line| line.contains("quit")), "{lines:#?}");
    }
}

/// Check that a page with more lines than the screen says which ones are shown, and another one nothing.
#[test]
fn long_pages_say_where_they_are() {
    for (screen, said) in [
        (Screen::Help(0), "lines 1 to 7 of "),
        (Screen::Help(3), "lines 4 to 10 of "),
        (Screen::Setup(0), "lines 1 to 7 of "),
        (Screen::Setup(9), "lines 4 to 10 of "),
    ] {
        let mut view = View {
            screen,
            ..View::default()
        };
        let mut model = Model::default();
        let lines = drawn(&mut view, &mut model, None, (80, 10));
        assert!(lines[9].starts_with(said), "{lines:#?}");
        let lines = drawn(&mut view, &mut model, None, (200, 100));
        assert_eq!(lines[99].trim(), "");
        view.say("no such key", true);
        let lines = drawn(&mut view, &mut model, None, (80, 10));
        assert_eq!(lines[9].trim(), "no such key");
    }
}

/// Check that rows that are sums show how many processes they include, in the requested order.
#[test]
fn sums_are_in_order() {
    let mut view = View {
        rows: Rows::by(&[&PROGRAM, &USER]),
        order: Order::named("-rss_bytes").expect("an order"),
        ..View::default()
    };
    let model = model(&mut view, 24);
    let sizes: Vec<u64> = (0..model.len())
        .filter_map(|index| Some(model.group(index)?.rss_bytes))
        .collect();
    assert!(sizes.len() > 1 && sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
}

/// Check that the processes of a sum are those that the filter also selects.
#[test]
fn a_sum_is_opened_within_the_filter() {
    let own = format!("pid == {}", std::process::id());
    let mut view = View {
        rows: Rows::by(&[&PROGRAM, &USER]),
        filter: own.clone(),
        ..View::default()
    };
    let model = model(&mut view, 24);
    assert_eq!(view.press(Key::plain(Code::Enter), &model), None);
    assert!(view.filter.starts_with(&format!("({own}) and (")), "{}", view.filter);
    assert_eq!(view.rows, Rows::Processes);
    let opened = view.clone();
    assert_eq!(view.press(Key::plain(Code::Esc), &model), None);
    assert_eq!((&view.filter, view.rows), (&own, Rows::by(&[&PROGRAM, &USER])));
    // What was typed since is not lost.
    view = opened;
    view.filter += " and uid == 0";
    let filter = view.filter.clone();
    view.press(Key::plain(Code::Esc), &model);
    assert_eq!((&view.filter, view.rows), (&filter, Rows::Processes));
    Spec::of(&view).query(&Selection::default()).expect("a filter");
}

/// Check that the states that tell most are seen at 80 columns, whatever the others are.
#[test]
fn stopped_tasks_and_zombies_are_seen() {
    let mut view = View::default();
    let mut model = model(&mut view, 24);
    model.states = States {
        tasks: 12345,
        running: 123,
        sleeping: 4567,
        uninterruptible: 345,
        idle: 678,
        stopped: 24,
        zombie: 61,
    };
    let lines = drawn(&mut view, &mut model, None, (80, 24));
    let words = "processes 12345: 123 running, 61 zombie, 24 stopped, 345 uninterruptible";
    assert!(lines[1].starts_with(words), "{lines:#?}");
    assert!(!lines[1].contains("kernel"), "{lines:#?}");
    let lines = drawn(&mut view, &mut model, None, (300, 24));
    assert!(
        lines[1].trim_end().ends_with("678 idle  kernel threads hidden"),
        "{lines:#?}"
    );
}

/// Check that the page of settings has the chosen columns, and not what the table has besides.
#[test]
fn columns_of_the_order_are_not_set_up() {
    let mut view = View {
        order: Order::named("-fd_count").expect("an order"),
        ..View::default()
    };
    let mut model = model(&mut view, 100);
    assert!(drawn(&mut view, &mut model, None, (200, 100))
        .concat()
        .contains("fd_count COMMAND"));
    view.screen = Screen::Setup(0);
    let lines = drawn(&mut view, &mut model, None, (200, 100));
    assert_eq!(lines.concat().matches("fd_count").count(), 1, "{lines:#?}");
}

/// Check that an empty answer is drawn.
#[test]
fn nothing_is_drawn() {
    let mut view = View {
        filter: "pid == 0".to_owned(),
        ..View::default()
    };
    let mut model = model(&mut view, 24);
    model.look(Snapshot::default());
    for size in SIZES {
        let lines = drawn(&mut view, &mut model, None, size);
        assert!(lines.iter().any(|line| line.contains("PID")), "{lines:#?}");
    }
    assert_eq!(model.target(0), None);
}
