//! The settings file: lines of the form `KEY = VALUE`.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{major, minor};
use taskdiag::Field;

use super::column::{Order, Set, SortKey};
use super::draw::HeaderPart;
use super::rows::Rows;
use super::view::{chosen_columns, View};
use crate::choice::unknown;
use crate::file;
use crate::history;
use crate::outcome::{self, Failure};
use crate::quantity;
use crate::selection;

pub struct Setting {
    /// Its name in the file.
    pub key: &'static str,
    /// Its meaning.
    pub about: &'static str,
    /// All its values, if they are few.
    pub choices: &'static [&'static str],
    /// Its value as text, which may be empty.
    pub get: fn(&View) -> String,
    /// Sets it to one of the choices, or returns the error.
    put: fn(&mut View, &str) -> Result<(), String>,
}

impl Setting {
    /// Sets it, or returns the error.
    pub fn set(&self, view: &mut View, text: &str) -> Result<(), String> {
        if !self.choices.is_empty() && !self.choices.contains(&text) {
            return Err(unknown("choice", text, self.choices.iter().copied()).message());
        }
        (self.put)(view, text)
    }
}

/// A setting that is one of two words, of which the first stands for true.
macro_rules! either {
    ($key:literal, $about:literal, $member:ident: $yes:literal or $no:literal) => {
        Setting {
            key: $key,
            about: $about,
            choices: &[$yes, $no],
            get: |view| if view.$member { $yes } else { $no }.to_owned(),
            put: |view, text| {
                view.$member = text == $yes;
                Ok(())
            },
        }
    };
}

fn seconds(duration: Duration) -> String {
    duration.as_secs_f64().to_string()
}

/// What a text means, or the message that it means nothing.
fn meant<T>(found: Result<T, Failure>) -> Result<T, String> {
    found.map_err(|failure| failure.message())
}

/// All settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "delay",
        about: "seconds between two samples",
        choices: &[],
        get: |view| seconds(view.delay),
        put: |view, text| quantity::interval(text).map(|delay| view.delay = delay),
    },
    Setting {
        key: "rows",
        about: "processes, tree, threads, or sums: what --by takes",
        choices: &[],
        get: |view| view.rows.name(),
        put: |view, text| meant(Rows::named(text)).map(|rows| view.rows = rows),
    },
    Setting {
        key: "sort",
        about: "a field, with a minus in front if the largest comes first",
        choices: &[],
        get: |view| view.order.text(),
        put: |view, text| {
            view.order = meant(Order::named(text))?;
            if view.order.key == SortKey::Field(Field::Processor) {
                view.say(selection::SORTED_BY_PROCESSOR, false);
            }
            Ok(())
        },
    },
    Setting {
        key: "column_set",
        about: "usual, or memory: proportional and unique sizes",
        choices: &["usual", "memory"],
        get: |view| if view.set == Set::Memory { "memory" } else { "usual" }.to_owned(),
        put: |view, text| {
            view.set = if text == "memory" { Set::Memory } else { Set::Usual };
            Ok(())
        },
    },
    Setting {
        key: "columns",
        about: "fields with commas between them; empty: those of the set",
        choices: &[],
        get: |view| view.columns.clone(),
        put: |view, text| {
            let text = text.strip_suffix(',').unwrap_or(text);
            meant(chosen_columns(text, Vec::new())).map(|_| view.columns = text.to_owned())
        },
    },
    Setting {
        key: "filter",
        about: "an expression as --where takes it; empty: all",
        choices: &[],
        get: |view| view.filter.clone(),
        put: |view, text| {
            if !text.is_empty() {
                let is_past = history::shown().is_some();
                let filter = selection::parse_filter(text, is_past).map_err(|error| error.to_string())?;
                view.say_doubts(&filter, is_past);
            }
            view.filter = text.to_owned();
            Ok(())
        },
    },
    either!("kernel_threads", "shown, or hidden", kernel: "shown" or "hidden"),
    Setting {
        key: "header",
        about: "the lines about the machine, with commas between them",
        choices: &[],
        get: |view| view.header.iter().map(|part| part.name()).collect::<Vec<_>>().join(","),
        put: |view, text| {
            let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
            let parts: Result<Vec<HeaderPart>, String> = names.map(header_part).collect();
            parts.map(|parts| view.header = parts)
        },
    },
    either!("processors", "each: a bar for each processor; all: one for all", each_processor: "each" or "all"),
    either!("theme", "light, or dark: colours that can be read on that background", light: "light" or "dark"),
    either!("mouse", "yes: clicks and the wheel; no: the terminal selects text without Shift", mouse: "yes" or "no"),
    Setting {
        key: "pss_budget",
        about: "seconds that reading proportional sizes may take for each sample",
        choices: &[],
        get: |view| seconds(view.pss_budget),
        put: |view, text| quantity::interval(text).map(|budget| view.pss_budget = budget),
    },
];

/// The setting with this key, which there is.
pub fn setting(key: &str) -> &'static Setting {
    let found = SETTINGS.iter().find(|setting| setting.key == key);
    found.expect("a key of the table")
}

/// The path of the settings file: `$XDG_CONFIG_HOME/taskdiag/top.conf`, or below `~/.config`.
pub fn usual_path() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let directory = directory.or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(directory.join("taskdiag/top.conf"))
}

/// What is said of a wrong value with the sign of a comment, which may also be part of a filter.
const LONE_COMMENT: &str = " (a comment has a line of its own)";

/// Applies the settings in a text. An error has its line number.
fn parse(text: &str, view: &mut View) -> Result<(), (usize, String)> {
    let text = text.trim_start_matches('\u{feff}');
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |message: String| (index + 1, message);
        let (key, value) = line
            .split_once('=')
            .ok_or_else(|| wrong(format!("{line:?} is not KEY = VALUE")))?;
        let (key, value) = (key.trim(), value.trim());
        let setting = SETTINGS.iter().find(|setting| setting.key == key);
        let known = || unknown("setting", key, SETTINGS.iter().map(|setting| setting.key)).message();
        let setting = setting.ok_or_else(|| wrong(known()))?;
        setting.set(view, value).map_err(|message| {
            wrong(format!(
                "{key}: {message}{}",
                if value.contains('#') { LONE_COMMENT } else { "" }
            ))
        })?;
    }
    Ok(())
}

/// A line of the header by its name.
fn header_part(name: &str) -> Result<HeaderPart, String> {
    let found = HeaderPart::ALL.into_iter().find(|part| part.name() == name);
    found.ok_or_else(|| unknown("line of the header", name, HeaderPart::ALL.map(HeaderPart::name)).message())
}

/// The settings in the form of a file that had this text: its other lines stay as they are.
fn text(before: &str, view: &View) -> String {
    let mut lines: Vec<String> = before.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        lines.push("# Settings of `taskdiag top`. The key W writes them to this file.".to_owned());
    }
    for setting in SETTINGS {
        let line = format!("{} = {}", setting.key, (setting.get)(view))
            .trim_end()
            .to_owned();
        let is_it = |line: &String| line.split_once('=').is_some_and(|(key, _)| key.trim() == setting.key);
        match lines.iter().rposition(is_it) {
            Some(place) => lines[place] = line,
            None => lines.extend([String::new(), format!("# {}", setting.about), line]),
        }
    }
    lines.join("\n") + "\n"
}

/// The maximum size of a settings file, in KiB.
const MAX_KIB: u64 = 64;

/// The most characters of a message about a line, which can be as long as the file.
const MAX_MESSAGE_CHARS: usize = 600;

/// Reads the settings from an open file, and returns its text.
fn read(file: &File, view: &mut View) -> Result<String, String> {
    let bytes = file::read(file, MAX_KIB).map_err(|what| format!(": {what}"))?;
    let text = String::from_utf8(bytes).map_err(|_| ": this is not text in UTF-8".to_owned())?;
    parse(&text, view).map_err(|(line, message)| format!(":{line}: {}", shortened(&message)))?;
    Ok(text)
}

/// Shortens a message to a length that people may want to read.
fn shortened(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

/// Whether this is `/dev/null`, which stands for a file without settings.
fn is_null(metadata: &fs::Metadata) -> bool {
    let device = (major(metadata.rdev()), minor(metadata.rdev()));
    metadata.file_type().is_char_device() && device == (1, 3)
}

/// Reads a settings file. Returns whether it exists. One that may not be read is as good as none, but
/// the view says so.
pub fn load(path: &Path, view: &mut View) -> Result<bool, Failure> {
    let failed = |what: String| Failure::Unanswered(format!("{}{what}", path.display()));
    let file = match file::open(path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let reason = outcome::message(&error);
            view.say(
                format!("{}: {reason}: settings are as without it", path.display()),
                true,
            );
            return Ok(true);
        }
        Err(error) => return Err(failed(format!(": {}", outcome::message(&error)))),
    };
    if !file.metadata().is_ok_and(|metadata| is_null(&metadata)) {
        read(&file, view).map_err(|what| {
            failed(format!(
                "{what}\nChange or remove that, or take other settings: --config FILE"
            ))
        })?;
    }
    Ok(true)
}

/// Writes the settings to a file. An existing file keeps its owner, permissions, links and comments,
/// and is changed only if it contains settings: the name can lead to another file than at the start.
pub fn save(path: &Path, view: &View) -> Result<(), String> {
    let failed = |error: io::Error| format!(": {}", outcome::message(&error));
    let path = &file::target(path).map_err(failed)?;
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    let mut options = OpenOptions::new();
    let file = file::open(path, options.read(true).write(true).create(true)).map_err(failed)?;
    let text = text(&read(&file, &mut View::default())?, view);
    // The order matters: if the disk is full, the old content is still there.
    file.write_all_at(text.as_bytes(), 0).map_err(failed)?;
    file.set_len(text.len() as u64).map_err(failed)?;
    file.sync_all().map_err(failed)
}

#[cfg(test)]
mod tests {
    use taskdiag_testkit::temporary::Directory;

    use super::*;

    fn changed() -> View {
        View {
            delay: Duration::from_millis(500),
            rows: Rows::by(&[&crate::grouping::UNIT, &crate::grouping::USER]),
            order: Order::named("-rss_bytes").expect("an order"),
            set: Set::Memory,
            columns: "pid,comm".to_owned(),
            filter: "uid == 0 and comm != '='".to_owned(),
            each_processor: false,
            header: vec![HeaderPart::Memory, HeaderPart::Ended],
            light: true,
            mouse: false,
            kernel: true,
            pss_budget: Duration::from_secs(1),
            ..View::default()
        }
    }

    /// Check that settings are read as they were written.
    #[test]
    fn settings_are_kept() {
        for view in [View::default(), changed()] {
            let mut read = View::default();
            assert_eq!(parse(&text("", &view), &mut read), Ok(()));
            assert_eq!(format!("{read:?}"), format!("{view:?}"));
        }
    }

    /// Check that errors have their line, and name what would be valid.
    #[test]
    fn mistakes_have_lines() {
        for (text, line, said) in [
            ("delay = 1\nsort=x\n", 2, "sort: unknown field"),
            (
                "# x\n\ndelai = 1",
                3,
                "unknown setting \"delai\"; near it are: delay; known are delay, rows",
            ),
            ("delay", 1, "\"delay\" is not KEY = VALUE"),
            ("delay = 0", 1, "delay: the shortest time"),
            ("rows = unit,x", 1, "known are processes, tree, threads, program"),
            ("filter = uid =", 1, "filter: "),
            ("columns = pid,,", 1, "columns: "),
            ("processors = 3", 1, "known are each, all"),
        ] {
            let (at, message) = parse(text, &mut View::default()).expect_err(text);
            assert!(at == line && message.contains(said), "{text:?}: {at}: {message}");
        }
    }

    /// Check that what is written is read back, that a missing file has no settings, and that a
    /// message names file and line.
    #[test]
    fn files_are_written_and_read() {
        let directory = Directory::new("settings-written");
        let path = directory.join("a/top.conf");
        assert!(load(&path, &mut View::default()).is_ok_and(|is_there| !is_there));
        save(&path, &changed()).expect("a file");
        let mut view = View::default();
        assert!(load(&path, &mut view).is_ok_and(|is_there| is_there));
        assert_eq!(format!("{view:?}"), format!("{:?}", changed()));
        // A shorter text leaves nothing of a longer one.
        save(&path, &View::default()).expect("a file");
        assert_eq!(
            fs::read_to_string(&path).expect("it is there"),
            text("", &View::default())
        );
        let bad = "delay = 1\nx = 1\n";
        fs::write(&path, bad).expect("a file");
        let failure = format!("{:?}", load(&path, &mut view));
        assert!(failure.contains("top.conf:2: unknown setting"), "{failure}");
        assert!(save(&path, &changed()).is_err_and(|message| message.contains(":2: unknown setting")));
        assert_eq!(fs::read_to_string(&path).expect("it is there"), bad);
    }

    /// Check that comments, blank lines and the order of lines stay, and that what is not there yet is
    /// added with its meaning.
    #[test]
    fn other_lines_stay() {
        let before = "# mine\n\nmouse=no\n  # delay = 9\nsort = pid\n";
        let mut view = View::default();
        parse(before, &mut view).expect("settings");
        let text = text(before, &view);
        assert!(
            text.starts_with(
                "# mine\n\nmouse = no\n  # delay = 9\nsort = pid\n\n# seconds between two samples\ndelay = 2\n"
            ),
            "{text}"
        );
        assert_eq!(text.matches("mouse =").count(), 1);
        assert_eq!(super::text(&text, &view), text);
    }

    /// Check that the target of a link is written, and that the link remains, even if the target
    /// does not exist yet.
    #[test]
    fn links_are_followed() {
        let directory = Directory::new("settings-links");
        let (path, file) = (directory.join("top.conf"), directory.join("file"));
        std::os::unix::fs::symlink("file", &path).expect("a link");
        for view in [View::default(), changed()] {
            save(&path, &view).expect("a file");
            assert_eq!(fs::read_to_string(&file).expect("it is there"), text("", &view));
            assert_eq!(fs::read_link(&path).expect("a link"), Path::new("file"));
        }
    }

    /// Check that FIFOs, devices, directories and endless files are neither read nor written, and
    /// that nothing waits for them.
    #[test]
    fn only_files_of_settings() {
        let directory = Directory::new("settings-only");
        let in_it = |name: &str| directory.join(name);
        let (fifo, link, endless, line) = (in_it("fifo"), in_it("link"), in_it("endless"), in_it("line"));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("a fifo");
        std::os::unix::fs::symlink("/dev/zero", &link).expect("a link");
        let file = File::create(&endless).expect("a file");
        file.set_len(1 << 40).expect("a sparse file");
        fs::write(&line, "x".repeat(60_000)).expect("a file");
        for (path, said) in [
            (&fifo, "not a regular file"),
            (&link, "not a regular file"),
            (&directory.to_path_buf(), "a directory"),
            (&endless, "larger than 64 KiB"),
            (&line, ":1: \"xxx"),
        ] {
            let Err(Failure::Unanswered(message)) = load(path, &mut View::default()) else {
                panic!("{path:?} has settings");
            };
            let is_right = message.contains(said) || **path == *directory && message.contains("not a regular file");
            assert!(is_right && message.chars().count() < 1000, "{message}");
            assert!(save(path, &changed()).is_err(), "{path:?}");
        }
        assert_eq!(fs::read_link(&link).expect("a link"), Path::new("/dev/zero"));
        // This one stands for no settings, but it can't store any.
        let null = in_it("null");
        std::os::unix::fs::symlink("/dev/null", &null).expect("a link");
        assert!(load(&null, &mut View::default()).is_ok());
        assert!(save(&null, &changed()).is_err_and(|message| message.contains("not a regular file")));
        assert_eq!(fs::read_link(&null).expect("a link"), Path::new("/dev/null"));
    }
}
