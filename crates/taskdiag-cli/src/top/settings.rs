//! The file of settings: lines of `KEY = VALUE`.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::column::{Order, Set};
use super::view::{chosen_columns, Rows, View};
use crate::choice::unknown;
use crate::outcome::{self, Failure};
use crate::quantity;
use crate::selection;

/// A setting.
struct Setting {
    key: &'static str,
    about: &'static str,
    /// Its value, if it is not the usual one of an empty text.
    get: fn(&View) -> String,
    /// Sets it, or says what is wrong.
    set: fn(&mut View, &str) -> Result<(), String>,
}

/// What a failure says.
fn message(failure: Failure) -> String {
    match failure {
        Failure::Unanswered(message) | Failure::Fatal(message) => message,
        Failure::Output(error) => outcome::message(&error),
    }
}

fn seconds(duration: Duration) -> String {
    duration.as_secs_f64().to_string()
}

/// Finds a value by its name.
fn named<T: Copy>(what: &str, name: &str, all: impl Iterator<Item = (&'static str, T)>) -> Result<T, String> {
    let all: Vec<(&str, T)> = all.collect();
    let found = all.iter().find(|(known, _)| *known == name);
    let names = all.iter().map(|(known, _)| *known);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| message(unknown(what, name, names)))
}

const SETS: [(&str, Set); 2] = [("usual", Set::Usual), ("memory", Set::Memory)];
const BARS: [(&str, bool); 2] = [("each", true), ("all", false)];

/// All settings.
const SETTINGS: &[Setting] = &[
    Setting {
        key: "delay",
        about: "seconds between two samples",
        get: |view| seconds(view.delay),
        set: |view, text| quantity::interval(text).map(|delay| view.delay = delay),
    },
    Setting {
        key: "rows",
        about: "processes, tree, threads, unit, container, user or program",
        get: |view| view.rows.name().to_owned(),
        set: |view, text| {
            let all = Rows::all().map(|rows| (rows.name(), rows));
            named("kind of rows", text, all).map(|rows| view.rows = rows)
        },
    },
    Setting {
        key: "sort",
        about: "a field, with a minus in front if the largest comes first",
        get: |view| view.order.text(),
        set: |view, text| Order::parse(text).map(|order| view.order = order).map_err(message),
    },
    Setting {
        key: "column_set",
        about: "usual, or memory: proportional and unique sizes",
        get: |view| {
            let found = SETS.iter().find(|(_, set)| *set == view.set);
            found.map_or("usual", |(name, _)| name).to_owned()
        },
        set: |view, text| named("set of columns", text, SETS.into_iter()).map(|set| view.set = set),
    },
    Setting {
        key: "columns",
        about: "fields with commas between them; empty: those of the set",
        get: |view| view.columns.clone(),
        set: |view, text| {
            chosen_columns(text, Vec::new()).map_err(message)?;
            view.columns = text.to_owned();
            Ok(())
        },
    },
    Setting {
        key: "filter",
        about: "an expression as --where takes it; empty: all",
        get: |view| view.filter.clone(),
        set: |view, text| {
            if !text.is_empty() {
                selection::parse_filter(text).map_err(|error| error.to_string())?;
            }
            view.filter = text.to_owned();
            Ok(())
        },
    },
    Setting {
        key: "processors",
        about: "each: a bar for each processor; all: one for all",
        get: |view| if view.each_processor { "each" } else { "all" }.to_owned(),
        set: |view, text| named("kind of bars", text, BARS.into_iter()).map(|each| view.each_processor = each),
    },
    Setting {
        key: "pss_budget",
        about: "seconds that reading proportional sizes may take for each sample",
        get: |view| seconds(view.pss_budget),
        set: |view, text| quantity::interval(text).map(|budget| view.pss_budget = budget),
    },
];

/// Where the settings are: `$XDG_CONFIG_HOME/taskdiag/top.conf`, or below `~/.config`.
pub fn usual_path() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let directory = directory.or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(directory.join("taskdiag/top.conf"))
}

/// Takes the settings of a text. An error has the number of its line.
fn parse(text: &str, view: &mut View) -> Result<(), (usize, String)> {
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |message: String| (index + 1, message);
        let (key, value) = line
            .split_once('=')
            .ok_or_else(|| wrong(format!("{line:?} is not KEY = VALUE")))?;
        let setting = SETTINGS.iter().map(|setting| (setting.key, setting.set));
        let set = named("setting", key.trim(), setting).map_err(wrong)?;
        set(view, value.trim()).map_err(|message| wrong(format!("{}: {message}", key.trim())))?;
    }
    Ok(())
}

/// The text of the settings.
fn text(view: &View) -> String {
    let mut text = "# Settings of `taskdiag top`. The key W writes this file.\n".to_owned();
    for setting in SETTINGS {
        let value = (setting.get)(view);
        let line = format!("\n# {}\n{} = {value}", setting.about, setting.key);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Reads a file of settings. A file that is not there has none, unless it `must_exist`.
pub fn load(path: &Path, must_exist: bool, view: &mut View) -> Result<(), Failure> {
    let failed = |what: String| Failure::Unanswered(format!("{}{what}", path.display()));
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => return Ok(()),
        Err(error) => return Err(failed(format!(": {}", outcome::message(&error)))),
    };
    let text = String::from_utf8(bytes).map_err(|_| failed(": this is not text in UTF-8".to_owned()))?;
    parse(&text, view).map_err(|(line, message)| {
        failed(format!(
            ":{line}: {message}\nChange or remove that line, or take other settings: --config FILE"
        ))
    })
}

/// Writes the settings to a file, whole or not at all.
pub fn save(path: &Path, view: &View) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(&beside)?;
    file.write_all(text(view).as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::super::groups::By;
    use super::*;

    fn changed() -> View {
        View {
            delay: Duration::from_millis(500),
            rows: Rows::By(By::Unit),
            order: Order::parse("-rss_bytes").expect("an order"),
            set: Set::Memory,
            columns: "pid,+comm".replace('+', ""),
            filter: "uid == 0 and comm != '='".to_owned(),
            each_processor: false,
            pss_budget: Duration::from_secs(1),
            ..View::default()
        }
    }

    /// Check that settings that are written are read as they were.
    #[test]
    fn settings_are_kept() {
        for view in [View::default(), changed()] {
            let mut read = View::default();
            assert_eq!(parse(&text(&view), &mut read), Ok(()));
            assert_eq!(format!("{read:?}"), format!("{view:?}"));
        }
    }

    /// Check that what is wrong is said with its line, and what would be right.
    #[test]
    fn mistakes_have_lines() {
        for (text, line, said) in [
            ("delay = 1\nsort=x\n", 2, "sort: unknown field"),
            (
                "# x\n\ndelai = 1",
                3,
                "unknown setting \"delai\"; known are delay, rows",
            ),
            ("delay", 1, "\"delay\" is not KEY = VALUE"),
            ("delay = 0", 1, "delay: the shortest time"),
            ("rows = x", 1, "known are processes, tree, threads, unit"),
            ("filter = uid =", 1, "filter: "),
            ("columns = pid,,", 1, "columns: "),
            ("processors = 3", 1, "known are each, all"),
        ] {
            let (at, message) = parse(text, &mut View::default()).expect_err(text);
            assert!(at == line && message.contains(said), "{text:?}: {at}: {message}");
        }
    }

    /// Check that a file is replaced as a whole, that one that is not there is no error unless it
    /// was named, and that a message names file and line.
    #[test]
    fn files_are_written_whole() {
        let directory = env::temp_dir().join(format!("taskdiag-settings-{}", std::process::id()));
        let path = directory.join("a/top.conf");
        assert!(load(&path, false, &mut View::default()).is_ok());
        assert!(load(&path, true, &mut View::default()).is_err());
        save(&path, &changed()).expect("a file");
        let mut view = View::default();
        load(&path, true, &mut view).expect("settings");
        assert_eq!(format!("{view:?}"), format!("{:?}", changed()));
        fs::write(&path, "delay = 1\nx = 1\n").expect("a file");
        let failure = format!("{:?}", load(&path, true, &mut view));
        assert!(failure.contains("top.conf:2: unknown setting"), "{failure}");
        fs::remove_dir_all(&directory).expect("it is ours");
    }
}
