//! Tests of the options of ps(1).

use std::ffi::OsString;

use taskdiag::Field;

use super::*;
use crate::outcome::Failure;
use crate::ps::presets;

fn parsed(words: &[&str]) -> Result<(PsOptions, Vec<String>), String> {
    let words = words.iter().map(|&word| OsString::from(word));
    let takes_value = |name: &str| match name {
        "unknown" => None,
        name => Some(["where", "limit", "source"].contains(&name)),
    };
    let (ps_options, left) = take(words, takes_value, false).map_err(|failure| match failure {
        Failure::Unanswered(message) => message,
        failure => format!("{failure:?}"),
    })?;
    Ok((
        ps_options,
        left.into_iter()
            .map(|word| word.into_string().expect("UTF-8"))
            .collect(),
    ))
}

fn ps_options(words: &str) -> PsOptions {
    let words: Vec<&str> = words.split(' ').collect();
    parsed(&words).unwrap_or_else(|error| panic!("{words:?}: {error}")).0
}

fn left(words: &[&str]) -> Vec<String> {
    parsed(words).unwrap_or_else(|error| panic!("{words:?}: {error}")).1
}

/// Check that clusters mean the same in any order and style.
#[test]
fn clusters_are_options() {
    assert_eq!(ps_options("aux"), ps_options("a u x"));
    assert_eq!(ps_options("aux"), ps_options("axu"));
    assert_eq!(ps_options("-ef"), ps_options("-e -f"));
    assert_eq!(ps_options("-aux"), ps_options("aux"));
    assert_eq!(ps_options("-ax"), ps_options("ax"));
    assert_ne!(ps_options("-a"), ps_options("a"));
    // ps has these only without a dash.
    assert_eq!(ps_options("-r"), ps_options("r"));
    assert_eq!(ps_options("-en"), ps_options("en"));
    let aux = ps_options("aux");
    assert!(aux.is_bsd && aux.is_given && aux.choice.own && aux.choice.on_terminals);
    assert_eq!(aux.preset.bsd, Some(presets::Bsd::User));
    let axjf = ps_options("axjf");
    assert_eq!(
        (axjf.preset.bsd, axjf.forest),
        (Some(presets::Bsd::Jobs), Some(Branches::Drawn))
    );
    let full = ps_options("-eF");
    assert!(full.preset.unix.full && full.preset.unix.extra && full.choice.all && !full.is_bsd);
}

/// Check lists: attached, as the next argument, with commas and blanks, repeated, and as separate
/// arguments.
#[test]
fn lists_can_be_given_in_many_ways() {
    let pids = |words: &[&str]| parsed(words).expect("lists").0.choice.lists;
    let list = |ids: &[u32]| List::OneOf(Field::Pid, ids.to_vec());
    assert_eq!(pids(&["-p", "1,2"]), [list(&[1, 2])]);
    assert_eq!(pids(&["-p1,2"]), [list(&[1, 2])]);
    assert_eq!(pids(&["-p", "1 2"]), [list(&[1, 2])]);
    assert_eq!(pids(&["--pid=1", "--pid", "2"]), [list(&[1]), list(&[2])]);
    assert_eq!(pids(&["p", "1,2"]), [list(&[1, 2])]);
    assert_eq!(pids(&["1", "2"]), [list(&[1]), list(&[2])]);
    assert_eq!(pids(&["-1"]), [list(&[1])]);
    assert_eq!(pids(&["u", "7"]), [list(&[7])]);
    assert_eq!(
        pids(&["-C", "a,b c"]),
        [List::Names(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()])]
    );
    assert_eq!(pids(&["-g", "5"]), [List::OneOf(Field::Sid, vec![5])]);
    assert_eq!(pids(&["-g", "root"]), [List::OneOf(Field::Egid, vec![0])]);
    assert_eq!(
        pids(&["-u", "root,12345678"]),
        [List::OneOf(Field::Euid, vec![0, 12_345_678])]
    );
    assert_eq!(pids(&["t"]), [List::OwnTerminal]);
    assert_eq!(pids(&["t", "-"]), [List::OneOf(Field::TtyNr, vec![0])]);
    assert_eq!(pids(&["t", "aux"]), [List::OwnTerminal]);
    assert_eq!(ps_options("-q 3,1,3").choice.quick, [3, 1, 3]);
}

/// Check that columns, sort keys and the project's own options are left to clap, in their order.
#[test]
fn what_is_ours_is_left() {
    assert_eq!(
        left(&["-eo", "pid,comm=", "-o", "args"]),
        ["--fields=pid,comm=", "--fields=args"]
    );
    assert_eq!(left(&["axo", "pid", "k-rss"]), ["--fields=pid", "--sort=-rss"]);
    assert_eq!(left(&["--sort", "-rss", "--sort=pid"]), ["--sort=-rss", "--sort=pid"]);
    assert_eq!(left(&["h", "--noheader"]), ["--no-header", "--no-header"]);
    assert_eq!(left(&["--where", "aux", "aux", "--json"]), ["--where", "aux", "--json"]);
    assert_eq!(left(&["--where=x", "--nosuch", "-e"]), ["--where=x", "--nosuch"]);
    assert_eq!(left(&["axOpr"]), ["--sort=pid,rss"]);
    assert_eq!(left(&["-h"]), ["-h"]);
    assert!(!parsed(&["--sort", "pid", "--json"]).expect("ours").0.is_given);
    assert!(!parsed(&["-o", "pid"]).expect("ours").0.is_given);
    assert!(parsed(&["-w"]).expect("ps's").0.is_given);
    for (words, list) in [
        ("axO rss,vsz", "pid,rss,vsz,state,tname,time,comm"),
        ("axO rss", "pid,rss,state,tname,time,comm"),
        ("-eO rss", "pid,rss,state,tname,time,command"),
    ] {
        assert_eq!(ps_options(words).preset.preloaded.as_deref(), Some(list), "{words}");
    }
    assert_eq!(left(&["axO", "s"]), ["--sort=size"]);
    assert_eq!(left(&["axO-c"]), ["--sort=-cmd"]);
}

/// Check that -h is an option of ps for a link with that name, and requests help otherwise.
#[test]
fn h_with_a_dash_is_for_links() {
    let words = ["-p1", "-h"].map(OsString::from);
    let (ps_options, left) = take(words, |_| Some(false), true).expect("options of ps");
    assert!(ps_options.is_called_ps && ps_options.is_bsd);
    assert_eq!(left, ["--no-header"]);
}

/// Check that -L and -T leave the rows of -m unchanged, in either order.
#[test]
fn columns_of_threads_go_with_rows_below_processes() {
    for words in ["-e -m -L", "-e -L -m", "-eTm", "-emT"] {
        assert_eq!(ps_options(words).threads, Threads::Below, "{words}");
    }
}

/// Check that errors name what is wrong.
#[test]
fn what_is_wrong_is_named() {
    for (words, named) in [
        (&["-eQ"][..], "\"-Q\" (of \"-eQ\")"),
        (&["-Q"], "\"-Q\""),
        (&["axQ"], "\"Q\" (of \"axQ\")"),
        (&["-"], "\"-\""),
        (&["--"], "\"--\""),
        (&["-e", "--", "1"], "\"--\""),
        (&[""], "\"\""),
        (&["-p"], "-p"),
        (&["-p", "0"], "\"0\""),
        (&["-p", "1,x"], "\"x\""),
        (&["-p", ","], "empty"),
        (&["1x"], "\"1x\""),
        (&["-unosuchuser"], "nosuchuser"),
        (&["-u", "nosuchuser"], "nosuchuser"),
        (&["--group", "nosuchgroup"], "nosuchgroup"),
        (&["-t", "nosuchtty"], "nosuchtty"),
        (&["--cols", "-1"], "\"-1\""),
        (&["--forest=1"], "--forest"),
        (&["--ppid"], "--ppid"),
        (&["-o", ""], "-o"),
        (&["-y"], "-y"),
        (&["-f", "u"], "-f"),
        (&["ul"], "format"),
        (&["u", "-o", "pid"], "format"),
        (&["-o", "pid", "-O", "rss"], "-O"),
        (&["axHf"], "forest"),
        (&["-q1", "-q2"], "-q"),
        (&["-q1", "-e"], "-q"),
        (&["-Nq1"], "-q"),
        (&["-C", "init", "-q1"], "-q"),
    ] {
        let error = parsed(words).expect_err(&format!("{words:?}"));
        assert!(error.contains(named), "{words:?}: {error}");
    }
}

/// Check that no letter and no name has two meanings.
#[test]
fn options_are_unique() {
    for (index, option) in OPTIONS.iter().enumerate() {
        for other in &OPTIONS[index + 1..] {
            assert!(
                option.unix.is_none() || option.unix != other.unix,
                "{option:?} {other:?}"
            );
            assert!(option.bsd.is_none() || option.bsd != other.bsd, "{option:?} {other:?}");
            assert!(
                option.long.iter().all(|name| !other.long.contains(name)),
                "{option:?} {other:?}"
            );
        }
    }
}

/// Check that any arguments lead to a meaning or an error.
#[test]
fn any_words_are_parsed() {
    use proptest::prelude::*;
    proptest!(|(words in proptest::collection::vec("-{0,2}[a-zA-Z0-9,=% -]{0,6}", 0..5))| {
        let _ = parsed(&words.iter().map(String::as_str).collect::<Vec<_>>());
    });
}
