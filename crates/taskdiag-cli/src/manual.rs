//! `taskdiag man`: the manual pages, which `make install` installs.
//!
//! Names, synopses and options come from clap's definition of the command line. The last sections
//! of each page are written by hand, in `manual/`.

use clap::{Args as ClapArgs, Command};
use clap_mangen::roff::{bold, italic, roman, Roff};
use clap_mangen::Man;

use crate::choice::unknown;
use crate::outcome::{print, Failure, Outcome};
use crate::ps::options::{Takes, OPTIONS};

/// Print a manual page, or the names of all pages
///
/// To read one: taskdiag man ps | man -l -
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The name of a page, such as taskdiag-ps.1; the command's name is enough
    #[arg(value_name = "PAGE")]
    name: Option<String>,
}

/// The handwritten sections of a page.
struct Written {
    command: &'static str,
    /// Related pages of other projects.
    related: &'static [&'static str],
    /// Roff: sections such as EXAMPLES, FILES and ENVIRONMENT.
    sections: &'static str,
}

macro_rules! written {
    ($command:literal, [$($related:literal),*]) => {
        Written {
            command: $command,
            related: &[$($related),*],
            sections: include_str!(concat!("../manual/", $command, ".roff")),
        }
    };
}

const WRITTEN: &[Written] = &[
    written!("taskdiag", ["ps(1)", "bpf(2)", "proc(5)", "capabilities(7)"]),
    written!("ps", ["ps(1)", "proc(5)"]),
    written!("tree", ["pstree(1)"]),
    written!("watch", ["vmstat(8)"]),
    written!("top", ["top(1)", "htop(1)"]),
    written!("cache", ["fincore(1)", "mincore(2)"]),
    written!("record", ["atop(1)"]),
    written!("history", ["atop(1)"]),
    written!("report", ["atop(1)", "sar(1)"]),
    written!("events", ["strace(1)", "netlink(7)"]),
    written!("files", ["lsof(8)", "fuser(1)", "lsfd(1)", "proc(5)"]),
    written!("inspect", ["proc(5)", "ps(1)", "systemd.exec(5)", "cgroups(7)"]),
    written!("maps", ["pmap(1)", "proc(5)"]),
    written!("mem", ["free(1)", "smem(8)", "proc(5)"]),
    written!("metrics", ["prometheus(1)", "prometheus-process-exporter(1)"]),
    written!("normalize", ["addr2line(1)", "perf(1)"]),
    written!("sockets", ["ss(8)", "lsof(8)", "netstat(8)", "sock_diag(7)"]),
    written!("pgrep", ["pgrep(1)", "regex(7)"]),
    written!("pkill", ["pkill(1)", "pidfd_send_signal(2)", "signal(7)"]),
    written!("fields", ["proc(5)"]),
    written!("doctor", ["capabilities(7)"]),
    written!("pin", ["bpf(2)", "capabilities(7)"]),
    written!("unpin", ["bpf(2)"]),
];

/// The exit status, for commands whose sections do not describe their own.
const EXIT_STATUS: &str = "\
.SH \"EXIT STATUS\"
.TP
.B 0
The answer is complete.
.TP
.B 1
Something that was requested was missing or could not be read. The rest is printed, and the reason
is on standard error.
.TP
.B 2
Wrong usage, or no answer.
";

pub fn run(args: Args, cli: Command) -> Result<Outcome, Failure> {
    let pages = pages(cli);
    let names = pages.iter().map(|(name, _)| name.as_str());
    let Some(wanted) = &args.name else {
        return print(names.map(|name| format!("{name}\n")).collect::<String>());
    };
    let is_wanted =
        |name: &str| name == wanted || name == format!("{wanted}.1") || name == format!("taskdiag-{wanted}.1");
    let page = pages.iter().find(|(name, _)| is_wanted(name));
    let (_, text) = page.ok_or_else(|| unknown("manual page", wanted, names))?;
    print(text)
}

/// All pages, with their file names. One page is about `taskdiag`, each of the others about a
/// command.
fn pages(cli: Command) -> Vec<(String, String)> {
    let mut cli = cli
        .disable_help_subcommand(true)
        .subcommand_help_heading("COMMANDS")
        .subcommand_value_name("command");
    cli.build();
    let commands: Vec<Command> = cli.get_subcommands().cloned().collect();
    let names: Vec<String> = std::iter::once(&cli).chain(&commands).map(page_name).collect();
    std::iter::once(cli)
        .chain(commands)
        .map(|command| (format!("{}.1", page_name(&command)), page(command, &names)))
        .collect()
}

/// The name of a command's page, without its section.
fn page_name(command: &Command) -> String {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned()
}

/// One page. `pages` are the names of all pages.
fn page(mut command: Command, pages: &[String]) -> String {
    let name = page_name(&command);
    let written = WRITTEN.iter().find(|written| written.command == command.get_name());
    let sections = written.map_or("", |written| written.sections);
    // The synopsis of `--help`: one with all options would be longer than a page.
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let man = Man::new(with_aliases(command.clone()).override_usage(usage));
    // A title without a date, so that the same source gives the same pages.
    let mut text = format!(
        ".TH \"{}\" \"1\" \"\" \"taskdiag {}\" \"taskdiag\"\n",
        name.to_uppercase().replace('-', "\\-"),
        env!("CARGO_PKG_VERSION"),
    );
    text.push_str(&rendered(|out| {
        man.render_name_section(out)?;
        man.render_synopsis_section(out)?;
        man.render_description_section(out)
    }));
    // One section with subsections, not a section for each heading.
    let options = rendered(|out| man.render_options_section(out));
    text.push_str(".SH OPTIONS\n");
    text.push_str(&options.replace(".SH OPTIONS\n", "").replace("\n.SH ", "\n.SS "));
    if command.get_name() == "ps" {
        text.push_str(&without_dash());
    }
    if command.has_subcommands() {
        text.push_str(&rendered(|out| man.render_subcommands_section(out)));
    }
    if !sections.contains(".SH \"EXIT STATUS\"") {
        text.push_str(EXIT_STATUS);
    }
    text.push_str(sections);
    text.push_str(&see_also(&name, pages, written.map_or(&[], |written| written.related)));
    text
}

/// The output of `render`.
fn rendered(render: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    render(&mut out).expect("memory can be written to");
    let text = String::from_utf8(out).expect("help is UTF-8");
    // Formatters complain about two breaks; one empty line looks the same.
    text.replace("\n.br\n\n.br\n", "\n.sp\n")
}

/// The command, with the aliases of options added to their help: clap_mangen leaves them out.
fn with_aliases(command: Command) -> Command {
    let is_ps = command.get_name() == "ps";
    command.mut_args(|arg| {
        let long = arg.get_long();
        let letters = arg.get_visible_short_aliases().into_iter().flatten();
        let words = arg.get_visible_aliases().into_iter().flatten();
        let letters = letters.map(|letter| format!("-{letter}"));
        let mut names: Vec<String> = letters.chain(words.map(|name| format!("--{name}"))).collect();
        if let Some(option) = OPTIONS
            .iter()
            .find(|option| is_ps && long.is_some() && option.long.first().copied() == long)
        {
            names.extend(option.long[1..].iter().map(|name| format!("--{name}")));
        }
        names.dedup();
        match arg.get_long_help().or_else(|| arg.get_help()) {
            Some(help) if !names.is_empty() => {
                let help = format!(
                    "{}. The same: {}",
                    help.to_string().trim_end_matches('.'),
                    names.join(", ")
                );
                arg.long_help(help)
            }
            _ => arg,
        }
    })
}

/// The options of ps(1) without a dash, which clap does not know.
fn without_dash() -> String {
    let mut roff = Roff::new();
    roff.control("SS", ["OPTIONS OF PS(1) WITHOUT A DASH"]);
    for option in OPTIONS {
        let Some(letter) = option.bsd else {
            continue;
        };
        let mut head = vec![bold(letter.to_string())];
        match option.takes {
            Takes::Nothing => {}
            Takes::Value(name) => head.extend([roman(" "), italic(name)]),
            Takes::Terminal => head.extend([roman(" ["), italic("LIST"), roman("]")]),
        }
        roff.control("TP", []);
        roff.text(head);
        roff.text([roman(option.help)]);
    }
    roff.control("TP", []);
    roff.text([italic("PID"), roman("…")]);
    roff.text([roman("These processes, by id")]);
    rendered(|out| out.write_all(roff.render().as_bytes()))
}

/// The section of related pages: other pages of taskdiag, and pages of other projects.
fn see_also(name: &str, pages: &[String], related: &[&str]) -> String {
    let ours = pages
        .iter()
        .filter(|page| *page != name)
        .map(|page| (page.clone(), "1".to_owned()));
    // A command's page refers to the main page only, which has the list.
    let ours: Vec<(String, String)> = match name {
        "taskdiag" => ours.chain([("taskdiagd".to_owned(), "8".to_owned())]).collect(),
        _ => ours.take(1).collect(),
    };
    let related = related.iter().filter_map(|page| {
        let (name, section) = page.split_once('(')?;
        Some((name.to_owned(), section.trim_end_matches(')').to_owned()))
    });
    let all: Vec<(String, String)> = ours.into_iter().chain(related).collect();
    let mut text = ".SH \"SEE ALSO\"\n".to_owned();
    for (index, (name, section)) in all.iter().enumerate() {
        let comma = if index + 1 < all.len() { "," } else { "" };
        text.push_str(&format!(".BR {} ({section}){comma}\n", name.replace('-', "\\-")));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::{pkill, ps, Cli};

    /// Splits a line into words as a shell does. Removes both kinds of quotes.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quote = None;
        for character in line.chars() {
            match quote {
                Some(open) if character == open => quote = None,
                None if character == '"' || character == '\'' => quote = Some(character),
                None if character == ' ' => words.push(String::new()),
                _ => words.last_mut().expect("a word").push(character),
            }
        }
        words
    }

    fn plain(roff: &str) -> String {
        let mut text = roff.to_owned();
        for (escape, character) in [
            ("\\-", "-"),
            ("\\(aq", "'"),
            ("\\(dq", "\""),
            ("\\(ha", "^"),
            ("\\(ti", "~"),
        ] {
            text = text.replace(escape, character);
        }
        text
    }

    /// Check that all examples are valid command lines, and that every command has one.
    #[test]
    fn examples_are_valid() {
        for written in WRITTEN {
            let examples: Vec<String> = written
                .sections
                .lines()
                .skip_while(|line| *line != ".SH EXAMPLES")
                .skip(1)
                .take_while(|line| !line.starts_with(".SH"))
                .filter_map(|line| line.strip_prefix(".B "))
                .map(plain)
                .filter(|line| line.starts_with("taskdiag ") || line.starts_with("sudo "))
                .collect();
            assert!(!examples.is_empty(), "{}", written.command);
            for example in examples {
                let arguments = words(example.trim_start_matches("sudo "));
                let arguments = pkill::with_signal(arguments.into_iter().map(OsString::from).collect());
                let line =
                    ps::CommandLine::new(arguments, false).unwrap_or_else(|failure| panic!("{example}: {failure:?}"));
                let parsed = Cli::try_parse_from(&line.arguments);
                assert!(parsed.is_ok(), "{example}: {}", parsed.expect_err("checked"));
            }
        }
    }

    /// Check that each page has each of the usual sections once, and that handwritten sections
    /// belong to a command.
    #[test]
    fn pages_have_the_usual_sections() {
        let pages = pages(Cli::command());
        for (name, page) in &pages {
            for section in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "\"EXIT STATUS\"",
                "\"SEE ALSO\"",
            ] {
                let line = format!(".SH {section}");
                assert_eq!(page.lines().filter(|one| **one == line).count(), 1, "{name}: {line}");
            }
        }
        for written in WRITTEN {
            let name = match written.command {
                "taskdiag" => "taskdiag.1".to_owned(),
                command => format!("taskdiag-{command}.1"),
            };
            assert!(pages.iter().any(|(page, _)| *page == name), "{name}");
        }
    }
}
