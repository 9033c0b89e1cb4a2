//! Settings as callers of the C and the Python library write them. Errors name the setting.

use std::fmt::Display;
use std::time::Duration;

use crate::error::{named, Error, ErrorKind, Result};
use crate::snapshot::SourceId;

/// The sources of tasks that can be chosen.
pub const TASK_SOURCES: [SourceId; 3] = [SourceId::Bpf, SourceId::Procfs, SourceId::Broker];

/// The sources of mappings that can be chosen.
pub const MAP_SOURCES: [SourceId; 4] = [SourceId::Procmap, SourceId::Bpf, SourceId::Procfs, SourceId::Broker];

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// Parses the name of a value. The parser's error says which names are known.
pub fn known<T, E: Display>(
    setting: &str,
    name: &str,
    parse: impl FnOnce(&str) -> std::result::Result<T, E>,
) -> Result<T> {
    parse(name).map_err(|known| invalid(format!("{setting}: unknown name {name:?}; {known}")))
}

/// The one of these values that has this name.
pub fn one_of<T: Copy>(setting: &str, name: &str, values: &[T], name_of: fn(T) -> &'static str) -> Result<T> {
    let names = values.iter().map(|&value| (name_of(value), value));
    known(setting, name, |name| named(name, names))
}

/// The one of these sources to use. `None`, whose name is `auto`: the library chooses.
pub fn source<S: Copy>(name: &str, sources: &[S], name_of: fn(S) -> &'static str) -> Result<Option<S>> {
    let names = sources.iter().map(|&source| (name_of(source), Some(source)));
    known("source", name, |name| {
        named(name, [("auto", None)].into_iter().chain(names))
    })
}

/// A time in seconds: at most some decades, so that a multiple of it can be added to any time.
pub fn seconds(setting: &str, seconds: f64) -> Result<Duration> {
    const MAX_TIME: Duration = Duration::from_secs(1_000_000_000);
    let time = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|&time| time <= MAX_TIME);
    time.ok_or_else(|| invalid(format!("{setting}: {seconds:?} is not a time in seconds")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    /// Check that names and numbers are parsed, and that errors name the setting and what is known.
    #[test]
    fn errors_name_the_setting() {
        let source = |name| source(name, &TASK_SOURCES, SourceId::name);
        assert_eq!(source("auto").expect("it is known"), None);
        assert_eq!(source("broker").expect("it is known"), Some(SourceId::Broker));
        assert_eq!(
            source("smaps").expect_err("it can't be chosen").to_string(),
            "source: unknown name \"smaps\"; known are auto, bpf, procfs, broker"
        );
        let kind = |name: &str| known("kinds", name, str::parse::<EventKind>);
        assert_eq!(kind("exec").expect("it is known"), EventKind::Exec);
        let error = kind("start").expect_err("it is not a kind");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            error.to_string(),
            "kinds: unknown name \"start\"; known are fork, exec, exit"
        );
        assert_eq!(
            seconds("patience", 0.5).expect("half a second"),
            Duration::from_millis(500)
        );
        seconds("patience", 1e9).expect("some decades");
        for time in [-1.0, f64::NAN, f64::INFINITY, 1e300, 1e19, 1.1e9] {
            let error = seconds("patience", time).expect_err("it is not a time").to_string();
            assert_eq!(error, format!("patience: {time:?} is not a time in seconds"));
        }
    }
}
