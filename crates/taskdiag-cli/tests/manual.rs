//! Manual pages and completions contain everything that `--help` contains.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use common::{command, copy_program, run};

/// Check that the pictures of README are of this release: `make pictures` renews them.
#[test]
fn pictures_are_of_this_release() {
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let top = std::fs::read_to_string(pictures.join("top.svg")).expect("a picture");
    let about = format!("<desc>taskdiag {}</desc>", env!("CARGO_PKG_VERSION"));
    assert!(top.contains(&about), "{about}");
}

/// The commands that `taskdiag --help` lists.
fn commands() -> Vec<String> {
    let help = run(&["--help"]).complete();
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<String> = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help")
        .map(str::to_owned)
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    commands
}

/// The options of a command, as its `--help` has them: `-o`, `--fields`.
fn options(name: &str) -> BTreeSet<String> {
    let help = run(&[name, "--help"]).complete();
    let heads = help.lines().filter(|line| line.trim_start().starts_with('-'));
    // An option line is indented less than its description.
    let heads = heads.filter(|line| (2..=6).contains(&(line.len() - line.trim_start().len())));
    let words = heads.flat_map(|line| line.split([' ', ',']).filter(|word| word.starts_with('-')));
    // Optional values are in brackets: `--environ[=<NAME,…>...]`.
    let names = words.filter_map(|word| word.split("[=").next());
    names.map(str::to_owned).collect()
}

/// Other names of options.
fn aliases(name: &str) -> Vec<String> {
    let help = run(&[name, "--help"]).complete();
    let aliases = help
        .lines()
        .filter_map(|line| line.trim().strip_prefix("[alias: ")?.strip_suffix(']'));
    aliases.map(str::to_owned).collect()
}

/// Check that each command has a page with all options of the command's `--help`, and that short
/// names select pages.
#[test]
fn each_command_has_a_page_with_its_options() {
    let names = run(&["man"]).complete();
    let mut expected = vec!["taskdiag.1".to_owned()];
    expected.extend(commands().iter().map(|name| format!("taskdiag-{name}.1")));
    assert_eq!(names.lines().collect::<Vec<_>>(), expected);
    for name in commands() {
        let page = run(&["man", &name]).complete();
        let heads: String = page
            .lines()
            .filter(|line| line.starts_with("\\fB") || line.contains("The same: "))
            .map(|line| line.replace("\\-", "-").replace("\\fB", " ").replace("\\fR", " ") + "\n")
            .collect();
        let words: BTreeSet<&str> = heads
            .split_whitespace()
            .map(|word| word.trim_end_matches(','))
            .collect();
        let mut options = options(&name);
        assert!(options.contains("--help"), "{name}: {options:?}");
        options.extend(aliases(&name));
        for option in options {
            assert!(words.contains(option.as_str()), "{name}: {option}");
        }
    }
    let wrong = run(&["man", "nothing"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("unknown manual page"), "{}", wrong.stderr);
}

/// The candidates for the last of these words, one per line.
fn candidates(shell: &str, words: &[&str]) -> Vec<String> {
    let mut command = command(&["--", "taskdiag"]);
    command.args(words).env("TASKDIAG_COMPLETE", shell);
    command
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let run = common::Run::new(command.output().expect("the binary runs"));
    run.complete().lines().map(str::to_owned).collect()
}

/// Check that a shell that is not known is told as other wrong usage is.
#[test]
fn shells_are_known() {
    let mut command = command(&["ps"]);
    command.env("TASKDIAG_COMPLETE", "foo");
    let run = common::Run::new(command.output().expect("the binary runs"));
    let said = "taskdiag: TASKDIAG_COMPLETE: unknown shell `foo`, expected one of `bash`, `fish`, `zsh`\n";
    assert_eq!((run.code, &run.stderr[..]), (Some(2), said));
}

/// Check that commands and all their options are completed.
#[test]
fn commands_and_options_are_completed() {
    let offered = candidates("bash", &[""]);
    for name in commands() {
        assert!(offered.contains(&name), "{name}");
        let mut offered = candidates("bash", &[&name, "--"]);
        offered.extend(candidates("bash", &[&name, "-"]));
        for option in options(&name) {
            assert!(offered.contains(&option), "{name}: {option}");
        }
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).complete();
        assert!(script.contains("TASKDIAG_COMPLETE"), "{script}");
        assert!(!candidates(shell, &["ps", "--so"]).is_empty(), "{shell}");
    }
}

/// Check that values are completed: fields in lists, sort orders, users, processes, signals.
#[test]
fn values_are_completed() {
    let has = |words: &[&str], expected: &str| {
        let offered = candidates("bash", words);
        assert!(
            offered.iter().any(|one| one == expected),
            "{words:?}: {expected}: {offered:?}"
        );
    };
    let own = std::process::id().to_string();
    has(&["ps", "-o", "pid,rss_b"], "pid,rss_bytes");
    has(&["ps", "-o", "+rss_b"], "+rss_bytes");
    has(&["ps", "--sort", "-rs"], "-rss");
    has(&["ps", "--sort=pid,-pc"], "--sort=pid,-pcpu");
    has(&["ps", "--sort", "=", "pid,-pc"], "pid,-pcpu");
    has(&["ps", "--color", "=", "never", "--sort", "=", "-pc"], "-pcpu");
    has(&["ps", "--where", "rss_b"], "rss_bytes");
    has(&["ps", "-p", ""], &own);
    has(&["ps", "-p", &format!("1,{}", &own[..1])], &format!("1,{own}"));
    has(&["tree", &own[..1]], &own);
    has(&["watch", "-o", "read_bytes_"], "read_bytes_per_s");
    has(&["maps", "-o", "per"], "perms");
    has(&["events", "--kind", "ex"], "exec");
    has(&["cache", "--sort", "-dir"], "-dirty_bytes");
    has(&["mem", "--scale", ""], "M");
    has(&["pkill", "--signal", "HU"], "HUP");
    has(&["files", "--use", "cwd,ro"], "cwd,root");
    has(&["sockets", "--state", "LIS"], "LISTEN");
    has(&["schema", "mem-s"], "mem-system");
    has(&["mem", "--by", "user,un"], "user,unit");
    for words in [
        ["mem", "--by", "user,"],
        ["ps", "-o", "+user,"],
        ["files", "--use", "user,"],
    ] {
        let offered = candidates("bash", &words);
        assert!(!offered.iter().any(|one| one.ends_with("user,user")), "{offered:?}");
    }
    let user = run(&["ps", "-p", &own, "-o", "user:40="]).complete();
    has(&["ps", "-u", ""], user.trim());
}

/// Check that bash is not offered names of files, which it would insert unquoted, and completes them
/// itself; and that other shells, which quote, are.
#[test]
fn bash_completes_files_itself() {
    let directory = tempfile_directory("files");
    for name in ["$(reboot)", "x;id", "only file", "*"] {
        std::fs::write(directory.join(name), "").expect("a file");
    }
    let offered = |shell: &str, words: &[&str]| {
        let mut command = command(&["--", "taskdiag"]);
        let command = command
            .args(words)
            .env("TASKDIAG_COMPLETE", shell)
            .env("_CLAP_IFS", "\n");
        let command = command
            .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
            .current_dir(&directory);
        common::Run::new(command.output().expect("the binary runs")).complete()
    };
    let path = format!("{}/", directory.display());
    let mut asked = vec![vec!["history".to_owned(), "export".to_owned()]];
    asked.extend(commands().into_iter().map(|name| vec![name]));
    for words in asked {
        for begun in ["", "$", "--dir=", "--config=", "--history=", "--socket=", "-o", &path] {
            let words: Vec<&str> = words.iter().map(String::as_str).chain([begun]).collect();
            let text = offered("bash", &words);
            let names = ["$(reboot)", "x;id", "only file", "*"];
            assert!(!names.iter().any(|name| text.contains(name)), "{words:?}: {text}");
        }
    }
    assert!(offered("fish", &["cache", "on"]).contains("only file"));
    std::fs::remove_dir_all(&directory).expect("it can be removed");
    let script = run(&["completions", "bash"]).complete();
    assert_eq!(script.matches("-o bashdefault -o default ").count(), 2, "{script}");
    assert_eq!(candidates("bash", &["ps", "-o", "$(reboot),pi"]), [""; 0]);
}

/// Check that names which a shell would interpret, or that control a terminal, are not offered.
/// Shells insert candidates unquoted.
#[test]
fn hostile_names_are_not_offered() {
    let directory = tempfile_directory("names");
    let mut processes = Vec::new();
    for name in ["$(reboot)", "a\nb", "tab\tx", "esc\x1b[2J", "plain-name"] {
        let program = directory.join(name);
        copy_program(Path::new("/bin/sleep"), &program).expect("a copy");
        let mut command = std::process::Command::new(&program);
        let process = command.arg("1000").stdin(Stdio::null()).spawn().expect("a process");
        processes.push((name, process));
    }
    let names = candidates("bash", &["pgrep", ""]);
    let ids = candidates("fish", &["ps", "-p", ""]);
    let mut numbers = Vec::new();
    for (_, process) in &mut processes {
        numbers.push(process.id());
        process.kill().expect("it can be killed");
        process.wait().expect("it ends");
    }
    std::fs::remove_dir_all(&directory).expect("it can be removed");
    assert!(names.iter().any(|name| name == "plain-name"), "{names:?}");
    let is_safe = |name: &String| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-./:@%+".contains(&byte))
    };
    assert!(names.iter().all(is_safe), "{names:?}");
    for ((name, _), number) in processes.iter().zip(numbers) {
        let line = ids
            .iter()
            .find(|line| line.split('\t').next() == Some(number.to_string().as_str()));
        let line = line.unwrap_or_else(|| panic!("{number} ({name}) in {ids:?}"));
        assert!(line.matches('\t').count() == 1 && !line.contains('\x1b'), "{line:?}");
    }
    assert!(
        ids.iter()
            .all(|line| line.starts_with(|first: char| first.is_ascii_digit() || first == '-')),
        "{ids:?}"
    );
}

fn tempfile_directory(name: &str) -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("taskdiag-manual-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    directory
}
