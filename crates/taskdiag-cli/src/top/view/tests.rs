//! Tests of the effects of keys.

use taskdiag::{Field, Identity};
use taskdiag_core::record::Header;

use super::super::input::Decoder;
use super::super::settings::SETTINGS;
use super::*;
use crate::watch::Rate;

/// Rows with these ids. The name of each is `p` followed by its id.
struct Fake {
    pids: Vec<u32>,
    height: usize,
}

fn identity(pid: u32) -> Identity {
    Identity::of(&Header {
        pid: pid.into(),
        tid: pid.into(),
        start_ns: 0.into(),
        ..Header::default()
    })
}

impl Table for Fake {
    fn len(&self) -> usize {
        self.pids.len()
    }

    fn height(&self) -> usize {
        self.height
    }

    fn id(&self, index: usize) -> Option<Id> {
        self.pids.get(index).map(|&pid| Id::Task(identity(pid)))
    }

    fn position(&self, id: &Id) -> Option<usize> {
        self.pids.iter().position(|&pid| Id::Task(identity(pid)) == *id)
    }

    fn target(&self, index: usize) -> Option<Target> {
        self.pids.get(index).map(|&pid| Target {
            pid,
            tid: pid,
            identity: identity(pid),
            name: format!("p{pid}").into(),
            user: b"root".to_vec(),
            nice: Some(0),
        })
    }

    fn family(&self, index: usize) -> Vec<usize> {
        // Each is the child of the one before.
        (index..self.pids.len()).collect()
    }

    fn has_text(&self, index: usize, text: &str) -> bool {
        format!("p{}", self.pids[index]).contains(text)
    }
}

fn targets(view: &View) -> &[Target] {
    view.prompt
        .as_ref()
        .and_then(Prompt::subject)
        .map_or(&[], |(_, targets)| targets)
}

fn control(kind: ControlKind, answer: &str) -> ProcessControl {
    kind.parse(answer).expect("an answer")
}

fn fake(count: u32) -> Fake {
    Fake {
        pids: (1..=count).collect(),
        height: 10,
    }
}

/// Presses keys, as a terminal sends them. Returns the resulting actions outside the view.
fn press(view: &mut View, table: &Fake, bytes: &[u8]) -> Vec<Effect> {
    let keys = Decoder::default().feed(bytes);
    let mut effects = Vec::new();
    for key in keys {
        effects.extend(view.press(key, table));
        view.settle(table);
    }
    effects
}

/// Check that the cursor stays among the rows and on the screen.
#[test]
fn the_cursor_stays_on_the_screen() {
    let (mut view, table) = (View::default(), fake(25));
    let mut after = |keys: &[u8]| {
        press(&mut view, &table, keys);
        (view.cursor, view.first)
    };
    assert_eq!(after(b"\x1b[A"), (0, 0));
    assert_eq!(after(b"\x1b[B"), (1, 0));
    assert_eq!(after(b"\x1b[6~"), (11, 2));
    assert_eq!(after(b"\x1b[F"), (24, 15));
    assert_eq!(after(b"\x1b[B"), (24, 15));
    assert_eq!(after(b"\x1b[5~"), (14, 14));
    assert_eq!(after(b"\x1b[H"), (0, 0));
    view.cursor = 24;
    view.settle(&fake(3));
    assert_eq!((view.cursor, view.first), (2, 0));
    view.settle(&fake(0));
    assert_eq!((view.cursor, view.at.clone()), (0, None));
}

/// Check that the cursor stays on the row that a key has chosen, wherever that goes, until it has
/// ended: then the cursor stays at its place. Before any key, after Home and after `F` it stays on
/// its line.
#[test]
fn the_cursor_belongs_to_a_process() {
    let turned = Fake {
        pids: (1..=25).rev().collect(),
        height: 10,
    };
    for (keys, chosen, line) in [
        (&b"\x1b[B\x1b[B"[..], 3, 22_usize),
        (b"/p7\r", 7, 18),
        (b"/p1\rn", 10, 15),
        (b"k\x07", 1, 24),
        (b"F", 1, 24),
    ] {
        let mut view = View::default();
        view.settle(&turned);
        view.settle(&fake(25));
        assert_eq!((view.cursor, view.first), (0, 0));
        press(&mut view, &fake(25), keys);
        view.settle(&turned);
        assert_eq!((view.cursor, view.first), (line, line.saturating_sub(9)), "{keys:?}");
        // Every key acts on it.
        press(&mut view, &turned, b"k");
        assert_eq!(targets(&view).first().map(|target| target.pid), Some(chosen));
        press(&mut view, &turned, b"\x07\r");
        assert!(matches!(&view.screen, Screen::Details(target, ..) if target.pid == chosen));
        press(&mut view, &turned, b"q");
        // No row at all, as with a filter that is being changed, is no end of it.
        view.settle(&fake(0));
        view.settle(&turned);
        assert_eq!((view.cursor, view.follow), (line, true));
        let others = Fake {
            pids: (101..=150).collect(),
            height: 10,
        };
        view.settle(&others);
        assert_eq!((view.cursor, view.follow), (line, false));
        assert!(view.is_lost, "{keys:?}");
        view.settle(&turned);
        assert_eq!(view.cursor, line);
    }
    for keys in ["\x1b[B\x1b[H", "\x1b[BF\x1b[H", "FF"] {
        let mut view = View::default();
        press(&mut view, &fake(25), keys.as_bytes());
        view.settle(&turned);
        assert_eq!(view.cursor, 0, "{keys:?}");
    }
}

/// Check that a question about a process that has ended says so, stays, and is refused.
#[test]
fn a_question_outlives_its_process() {
    let (mut view, table) = (View::default(), fake(9));
    for keys in [&b"k"[..], b"k\r", b"r"] {
        press(&mut view, &table, keys);
        assert_eq!(targets(&view).first().map(|target| target.pid), Some(1));
        view.prompt.as_mut().expect("a question").refusal = Some("it has ended".to_owned());
        press(&mut view, &table, b"\x08");
        if keys == b"k\r" {
            continue;
        }
        assert!(view.prompt.is_some(), "what is typed becomes keys");
        assert_eq!(press(&mut view, &table, b"1\r"), []);
        assert!(view.prompt.is_none() && view.message.as_ref().is_some_and(|said| said.text == "it has ended"));
    }
}

/// Check that a key without a meaning says so until the next key, and that what is pasted says nothing.
#[test]
fn keys_without_meaning_are_told() {
    let (mut view, table) = (View::default(), fake(3));
    for (keys, said) in [
        (&b"y"[..], true),
        (b"\x02", true),
        (b"yM", false),
        (b"\x1b[200~y\x1b[201~", false),
    ] {
        press(&mut view, &table, keys);
        let message = view.message.as_ref().map(|message| message.text.as_str());
        assert_eq!(message == Some("no such key; h is help"), said, "{keys:?}");
    }
}

/// Check the orders that keys select, and that pressing the same key again reverses the order.
#[test]
fn keys_sort() {
    let (mut view, table) = (View::default(), fake(3));
    let mut after = |keys: &[u8]| {
        press(&mut view, &table, keys);
        view.order.text()
    };
    assert_eq!(after(b"M"), "-rss_bytes");
    assert_eq!(after(b"M"), "rss_bytes");
    assert_eq!(after(b"N"), "pid");
    assert_eq!(after(b"T"), "-time");
    assert_eq!(after(b"P"), "-cpu_percent");
    assert_eq!(after(b"R"), "cpu_percent");
    assert_eq!(after(b">"), "-rss_bytes");
    assert_eq!(after(b"<<"), "state");
    assert_eq!(after(b"<<<<<<"), "pid");
    assert_eq!(after(b"o\x15-threads_count\r"), "-threads_count");
    // The column of the order is before the last one.
    assert_eq!(after(b">"), "comm");
}

/// Check the rows that keys select, and that pressing the same key again returns to processes.
#[test]
fn keys_choose_rows() {
    let (mut view, table) = (View::default(), fake(3));
    let mut after = |keys: &[u8]| {
        press(&mut view, &table, keys);
        view.rows.name()
    };
    assert_eq!(after(b"t"), "tree");
    assert_eq!(after(b"H"), "threads");
    assert_eq!(after(b"H"), "processes");
    let names: Vec<String> = (0..5).map(|_| after(b"b")).collect();
    assert_eq!(names, ["unit", "container", "user", "program", "processes"]);
}

/// Check that an invalid filter is not accepted: it stays in its line with the error and its
/// position, and can be corrected.
#[test]
fn a_wrong_filter_stays() {
    let (mut view, table) = (View::default(), fake(3));
    press(&mut view, &table, b"\\uid = 0\r");
    let prompt = view.prompt.clone().expect("it is not done");
    assert_eq!(prompt.line.text(), "uid = 0");
    let (message, column) = prompt.error.expect("it is wrong");
    assert!(message.contains("=="), "{message}");
    assert_eq!(column, Some(5));
    assert_eq!(view.filter, "");
    press(&mut view, &table, b"\x1b[D\x1b[D=\r");
    assert_eq!((view.filter.as_str(), view.prompt.as_ref()), ("uid == 0", None));
    // Another one is given up.
    press(&mut view, &table, b"\\ and comm");
    press(&mut view, &table, b"\x1b");
    assert_eq!((view.filter.as_str(), view.prompt.as_ref()), ("uid == 0", None));
    press(&mut view, &table, b"\\\x15\r");
    assert_eq!(view.filter, "");
}

/// Check that signals and nice values must be confirmed, and apply to the process that was under
/// the cursor when they were requested.
#[test]
fn what_can_not_be_undone_is_confirmed() {
    let (mut view, table) = (View::default(), fake(9));
    let target = table.target(1).expect("a row");
    assert_eq!(press(&mut view, &table, b"\x1b[Bk\r"), []);
    let question = &view.prompt.as_ref().expect("a question").question;
    assert_eq!(
        *question,
        Question::Confirm(Effect::Control(
            control(ControlKind::Signal, "TERM"),
            vec![target.clone()]
        ))
    );
    // Other processes have taken its place.
    let other = Fake {
        pids: (100..200).collect(),
        height: 10,
    };
    assert_eq!(
        press(&mut view, &other, b"y"),
        [Effect::Control(
            control(ControlKind::Signal, "TERM"),
            vec![target.clone()]
        )]
    );
    for refusal in [&b"n"[..], b"\r", b"\x1b"] {
        assert_eq!(press(&mut view, &table, b"k\x15hup\r"), []);
        assert_eq!(press(&mut view, &table, refusal), []);
        assert_eq!(view.prompt, None);
    }
    press(&mut view, &table, b"k\x15nosuch\r");
    assert!(view.prompt.take().is_some_and(|prompt| prompt.error.is_some()));
    assert_eq!(press(&mut view, &table, b"r\x1520\r"), []);
    assert!(view.prompt.as_ref().is_some_and(|prompt| prompt.error.is_some()));
    assert_eq!(
        press(&mut view, &table, b"\x15-5\ry"),
        [Effect::Control(control(ControlKind::Nice, "-5"), vec![target.clone()])]
    );
    let affinity = control(ControlKind::Affinity, "0-0,0");
    assert_eq!(
        press(&mut view, &table, b"a\x150-0,0\ry"),
        [Effect::Control(affinity, vec![target.clone()])]
    );
    let io = control(ControlKind::Io, "be 2");
    assert_eq!(
        press(&mut view, &table, b"i\x15be 2\ry"),
        [Effect::Control(io, vec![target])]
    );
    assert_eq!(press(&mut view, &table, b"Wy"), []);
    view.file = Some("top.conf".into());
    assert_eq!(press(&mut view, &table, b"Wy"), [Effect::Save("top.conf".into())]);
    // There is no process in an empty table.
    press(&mut view, &fake(0), b"k");
    assert!(view.prompt.is_none() && view.message.is_some_and(|message| message.is_error));
}

/// Check that the page of settings changes what is under its cursor: choices, values that are typed,
/// lines of the header, columns and their places; and that the cursor stays within it.
#[test]
fn settings_are_set_up() {
    let (mut view, table) = (View::default(), fake(3));
    let columns = |view: &View| view.shown().into_iter().map(TopColumn::name).collect::<Vec<_>>();
    let before = columns(&view);
    // The first one is the delay, the second one the rows.
    press(&mut view, &table, b"S\r\x159\r\x1b[B\r\x15nosuch\r");
    assert_eq!(view.delay, Duration::from_secs(9));
    assert!(view.prompt.as_ref().is_some_and(|prompt| prompt.error.is_some()));
    press(&mut view, &table, b"\x15threads\r");
    assert_eq!(view.rows, Rows::Threads);
    press(&mut view, &table, b"\r\x15processes\r\x1b[A\x1b[A\x1b[A");
    assert_eq!(view.screen, Screen::Setup(0));
    let settings = SETTINGS
        .iter()
        .filter(|setting| !["header", "columns"].contains(&setting.key));
    let theme = settings.take_while(|setting| setting.key != "theme").count();
    press(&mut view, &table, &b"\x1b[B".repeat(theme));
    press(&mut view, &table, b" ");
    assert!(view.light);
    press(&mut view, &table, b"\r");
    assert!(!view.light);
    // From the end on: the last column, which is moved by two places and then removed.
    let last = *before.last().expect("columns");
    press(&mut view, &table, b"\x1b[F<<");
    assert_eq!(columns(&view)[before.len() - 3], last);
    press(&mut view, &table, b">\x1b[3~");
    assert_eq!(columns(&view).len(), before.len() - 1);
    assert!(!columns(&view).contains(&last));
    for _ in 0..before.len() + 3 {
        press(&mut view, &table, b"\x1b[F\x7f");
    }
    assert_eq!(columns(&view), before[..1]);
    press(&mut view, &table, b"\x1b[A\r");
    assert_eq!(view.header, HeaderPart::ALL[..6]);
    press(&mut view, &table, b"\r");
    assert_eq!(view.header, HeaderPart::ALL);
    press(&mut view, &table, b"q");
    assert_eq!(view.screen, Screen::Table);
}

/// Check that no letter of a text that is pasted is a key, that a question takes it without what ends
/// a line, and that it confirms nothing.
#[test]
fn what_is_pasted_is_text() {
    let (mut view, table) = (View::default(), fake(3));
    assert_eq!(press(&mut view, &table, b"\x1b[200~kq\r\x01\x1b[201~"), []);
    assert!(view.prompt.is_none() && view.screen == Screen::Table);
    assert_eq!(press(&mut view, &table, b"/\x1b[200~p2\nq\x1b[201~"), []);
    assert!(view.prompt.as_ref().is_some_and(|prompt| prompt.line.text() == "p2q"));
    assert_eq!(press(&mut view, &table, b"\x07k\r\x1b[200~y\x1b[201~"), []);
    assert!(view.prompt.is_some());
    // Nor does it end itself.
    assert_eq!(press(&mut view, &table, b"n\x1b[200~q\x03q\x1b\x1b[0mk15\ryq"), []);
    assert_eq!(press(&mut view, &table, b"q"), [Effect::Quit]);
}

/// Check that tags belong to processes, wherever these go, that keys act on all that are tagged, and
/// on the row under the cursor once there are none.
#[test]
fn tags_belong_to_processes() {
    let (mut view, table) = (View::default(), fake(9));
    let pids = |targets: &[Target]| targets.iter().map(|target| target.pid).collect::<Vec<_>>();
    press(&mut view, &table, b"  \x1b[B ");
    assert_eq!((pids(&view.tags), view.cursor), (vec![1, 2, 4], 4));
    press(&mut view, &table, b"\x1b[H ");
    assert_eq!(pids(&view.tags), [2, 4]);
    let turned = Fake {
        pids: (1..=25).rev().collect(),
        height: 10,
    };
    view.settle(&turned);
    let effects = press(&mut view, &turned, b"k\ry");
    let [Effect::Control(_, meant)] = effects.as_slice() else {
        panic!("{effects:?}")
    };
    assert_eq!(pids(meant), [2, 4]);
    // A page is about its process.
    press(&mut view, &turned, b"\x1b[F\rk");
    assert_eq!(pids(targets(&view)), [1]);
    press(&mut view, &turned, b"\x07qU\x1b[Hr");
    assert_eq!((view.tags.len(), pids(targets(&view))), (0, vec![25]));
    press(&mut view, &table, b"\x07\x1b[F\x1b[Ac");
    assert_eq!(pids(&view.tags), [8, 9]);
    // A signal is for the process of tagged threads, once; a priority is for each thread.
    for tag in &mut view.tags {
        tag.pid = 7;
    }
    let table = fake(0);
    press(&mut view, &table, b"k");
    assert_eq!(pids(targets(&view)), [7]);
    press(&mut view, &table, b"\x07r");
    assert_eq!(pids(targets(&view)), [7, 7]);
    // One that ended is left out, and the last one is refused.
    let prompt = view.prompt.as_mut().expect("a question");
    prompt.refuse(vec![None, Some("it has ended".to_owned())]);
    assert_eq!(
        (prompt.subject().map(|(_, left)| left.len()), &prompt.refusal),
        (Some(1), &None)
    );
    prompt.refuse(vec![Some("it has ended".to_owned())]);
    assert_eq!(prompt.refusal.as_deref(), Some("it has ended"));
}

/// Check that a first search that finds nothing is repeated with the next sample.
#[test]
fn a_search_waits_for_what_it_lacks() {
    for count in [5, 20] {
        let (mut view, table) = (View::default(), fake(5));
        press(&mut view, &table, b"/p15\r");
        assert!(
            view.message.as_ref().is_some_and(|message| !message.is_error),
            "{:?}",
            view.message
        );
        view.seek(&fake(count));
        assert_eq!(view.cursor, if count == 20 { 14 } else { 0 });
        assert_eq!(
            view.message.as_ref().is_some_and(|message| message.is_error),
            count == 5
        );
        press(&mut view, &table, b"/\r");
        assert_eq!((view.search.as_str(), view.message), ("", None));
    }
}

/// Check that a search continues from the cursor, and wraps around.
#[test]
fn searches_go_round() {
    let (mut view, table) = (View::default(), fake(25));
    press(&mut view, &table, b"/p2\r");
    assert_eq!(view.cursor, 1);
    press(&mut view, &table, b"n");
    assert_eq!(view.cursor, 19);
    press(&mut view, &table, b"nnnnnn");
    assert_eq!(view.cursor, 1);
    press(&mut view, &table, b"/nothing\r");
    assert_eq!(view.cursor, 1);
    assert!(view.message.is_some_and(|message| message.is_error));
}

/// Check that details are about the process under the cursor, that their pages cycle, and that
/// leaving them does not end the program.
#[test]
fn details_have_pages() {
    let (mut view, table) = (View::default(), fake(25));
    press(&mut view, &table, b"\x1b[B\r");
    let target = table.target(1).expect("a row");
    assert_eq!(view.screen, Screen::Details(target.clone(), Page::Process, 0));
    press(&mut view, &table, b"\x1b[B\t");
    assert_eq!(view.screen, Screen::Details(target.clone(), Page::Limits, 0));
    press(&mut view, &table, b"\x1b[Z\x1b[Z\x1b[6~");
    assert_eq!(view.screen, Screen::Details(target.clone(), Page::History, 10));
    assert_eq!(
        press(&mut view, &table, b"k\ry"),
        [Effect::Control(control(ControlKind::Signal, "TERM"), vec![target])]
    );
    assert_eq!(press(&mut view, &table, b"q"), []);
    assert_eq!(view.screen, Screen::Table);
    press(&mut view, &table, b"?");
    assert_eq!(view.screen, Screen::Help(0));
    assert_eq!(press(&mut view, &table, b"q"), []);
    assert_eq!(press(&mut view, &table, b"q"), [Effect::Quit]);
}

/// Check that valid columns and delays are accepted, and that the memory columns replace the chosen
/// ones.
#[test]
fn columns_and_delays_are_typed() {
    let (mut view, table) = (View::default(), fake(3));
    press(&mut view, &table, b"f\x15pid,comm,write_bytes_per_s\r");
    let shown = [
        TopColumn::of(Field::Pid),
        TopColumn::of(Field::Comm),
        TopColumn::Rate(Rate::WriteBytes),
    ];
    assert_eq!(view.shown(), shown);
    press(&mut view, &table, b"f\x15pid,nosuch\r");
    assert!(view.prompt.take().is_some_and(|prompt| prompt.error.is_some()));
    assert_eq!(view.shown(), shown);
    // What is typed follows the columns that are there, or nothing does.
    press(&mut view, &table, b"frss\r");
    assert_eq!(view.shown(), [&shown[..], &[TopColumn::of(Field::RssBytes)]].concat());
    press(&mut view, &table, b"f\r");
    assert_eq!(view.columns, "pid,comm,write_bytes_per_s,rss_bytes");
    press(&mut view, &table, b"m");
    assert!(view.shown().contains(&TopColumn::of(Field::PssBytes)));
    press(&mut view, &table, b"d\x150.5\r");
    assert_eq!(view.delay, Duration::from_millis(500));
    press(&mut view, &table, b"d\x150\r");
    assert!(view.prompt.is_some_and(|prompt| prompt.error.is_some()));
    assert_eq!(view.delay, Duration::from_millis(500));
}

/// Check that the last column is shown from its beginning where its text is another.
#[test]
fn another_last_column_is_not_scrolled() {
    let table = fake(3);
    for keys in [&b"p"[..], b"m", b"t", b"H", b"b", b"f\x15pid\r", b"SS"] {
        let mut view = View::default();
        press(&mut view, &table, b"\x1b[C\x1b[C");
        assert!(view.shift > 0);
        press(&mut view, &table, b"\x1b[B");
        assert!(view.shift > 0);
        press(&mut view, &table, keys);
        assert_eq!(view.shift, 0, "{}", keys.escape_ascii());
    }
}

/// Check that an order by the number of a processor says what else may be meant.
#[test]
fn an_order_by_cpu_says_what_that_is() {
    let (mut view, table) = (View::default(), fake(3));
    press(&mut view, &table, b"o\x15-cpu\r");
    assert!(view.message.is_some_and(|message| message.text.contains("cpu_percent")));
}
