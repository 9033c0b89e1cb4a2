//! The table of the options of ps(1).

use clap::{Arg, ArgAction};

use super::lists::{groups, ids, names, size, terminals, users};
use super::meant::{Branches, Instead, List, Threads};
use super::parser::Parser;
use crate::ps::presets;

/// What an option of ps takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// A value, with this name in the help.
    Value(&'static str),
    /// A list of terminals, or nothing: the next argument is the list if it names terminals.
    Terminal,
}

/// What an option does with its value.
type Does = fn(&mut Parser, &str) -> Result<(), String>;

/// An option of ps.
#[derive(Clone, Copy, Debug)]
pub struct PsOption {
    /// Its letter with a dash.
    pub unix: Option<char>,
    /// Its letter without a dash.
    pub bsd: Option<char>,
    /// Its long names.
    pub long: &'static [&'static str],
    /// What it takes.
    pub takes: Takes,
    /// What it means, for the help.
    pub help: &'static str,
    pub(super) does: Does,
}

/// A blank for `unix` or `bsd` says that there is no such letter.
const fn option(
    unix: char,
    bsd: char,
    long: &'static [&'static str],
    takes: Takes,
    help: &'static str,
    does: Does,
) -> PsOption {
    PsOption {
        unix: if unix == ' ' { None } else { Some(unix) },
        bsd: if bsd == ' ' { None } else { Some(bsd) },
        long,
        takes,
        help,
        does,
    }
}

pub(super) const NOTHING: Takes = Takes::Nothing;
const LIST: Takes = Takes::Value("LIST");
const NUMBER: Takes = Takes::Value("N");

/// All options of ps.
#[rustfmt::skip]
pub static OPTIONS: &[PsOption] = &[
    option('e', ' ', &[], NOTHING, "All processes", |p, _| { p.meant.choice.all = true; Ok(()) }),
    option('A', ' ', &[], NOTHING, "All processes", |p, _| { p.meant.choice.all = true; Ok(()) }),
    option('a', ' ', &[], NOTHING, "Processes on a terminal, leaders of sessions excepted", |p, _| { p.meant.choice.others_on_terminals = true; Ok(()) }),
    option('d', ' ', &[], NOTHING, "All processes but leaders of sessions", |p, _| { p.meant.choice.others = true; Ok(()) }),
    option(' ', 'a', &[], NOTHING, "Processes on a terminal; with x all", |p, _| { p.meant.choice.on_terminals = true; Ok(()) }),
    option(' ', 'x', &[], NOTHING, "The caller's processes; with a all", |p, _| { p.meant.choice.own = true; Ok(()) }),
    option(' ', 'g', &[], NOTHING, "Leaders of sessions, too: they always are there", |_, _| Ok(())),
    option(' ', 'T', &[], NOTHING, "Processes on this terminal", |p, _| p.list(List::OwnTerminal)),
    option(' ', 'r', &[], NOTHING, "Only those that run", |p, _| { p.meant.choice.running = true; Ok(()) }),
    option('N', ' ', &["deselect"], NOTHING, "All but those that are selected", |p, _| { p.meant.choice.is_negated = true; Ok(()) }),
    option('p', 'p', &["pid"], LIST, "These processes, by id", |p, v| p.list(List::Pids(ids(v)?))),
    option('q', 'q', &["quick-pid"], LIST, "These processes, by id and in this order", |p, v| p.quick(v)),
    option(' ', ' ', &["ppid"], LIST, "Children of these processes", |p, v| p.list(List::Parents(ids(v)?))),
    option('s', ' ', &["sid"], LIST, "These sessions", |p, v| p.list(List::Sessions(ids(v)?))),
    option('g', ' ', &[], LIST, "These sessions, or these effective groups by name", |p, v| p.sessions_or_groups(v)),
    option('G', ' ', &["Group"], LIST, "These real groups, by name or number", |p, v| p.list(List::RealGroups(groups(v)?))),
    option(' ', ' ', &["group"], LIST, "These effective groups, by name or number", |p, v| p.list(List::Groups(groups(v)?))),
    option('u', 'U', &["user"], LIST, "These effective users, by name or number", |p, v| p.list(List::Users(users(v)?))),
    option('U', ' ', &["User"], LIST, "These real users, by name or number", |p, v| p.list(List::RealUsers(users(v)?))),
    option('t', ' ', &["tty"], LIST, "These terminals (pts/0, tty1, /dev/ttyS0); - for none", |p, v| p.list(List::Terminals(terminals(v)?))),
    option(' ', 't', &[], Takes::Terminal, "These terminals; this one if none is named", |p, v| p.terminals_or_own(v)),
    option('C', ' ', &[], LIST, "These names", |p, v| p.list(List::Names(names(v)?))),

    option('f', ' ', &[], NOTHING, "Full format", |p, _| p.unix_format(|f| f.full = true)),
    option('F', ' ', &[], NOTHING, "Extra full format", |p, _| p.unix_format(|f| { f.full = true; f.extra = true; })),
    option('l', ' ', &[], NOTHING, "Long format", |p, _| p.unix_format(|f| f.long = true)),
    option('j', ' ', &[], NOTHING, "Format of jobs: with group and session", |p, _| p.unix_format(|f| f.jobs = true)),
    option('y', ' ', &[], NOTHING, "With -l: no flags, rss instead of addr", |p, _| p.unix_format(|f| f.short_long = true)),
    option('c', ' ', &[], NOTHING, "With the scheduling class", |p, _| p.unix_format(|f| f.class = true)),
    option('P', ' ', &[], NOTHING, "With the processor", |p, _| p.unix_format(|f| f.processor = true)),
    option('M', 'Z', &[], NOTHING, "With the security label", |p, _| p.unix_format(|f| f.label = true)),
    option('Z', ' ', &[], NOTHING, "With the security label", |p, _| p.unix_format(|f| f.label = true)),
    option(' ', ' ', &["context"], NOTHING, "Format of security labels", |p, _| p.bsd_format(presets::Bsd::Context)),
    option(' ', 'u', &[], NOTHING, "Format for users", |p, _| p.bsd_format(presets::Bsd::User)),
    option(' ', 'l', &[], NOTHING, "Long format of BSD", |p, _| p.bsd_format(presets::Bsd::Long)),
    option(' ', 'j', &[], NOTHING, "Format of jobs of BSD", |p, _| p.bsd_format(presets::Bsd::Jobs)),
    option(' ', 'v', &[], NOTHING, "Format of virtual memory", |p, _| p.bsd_format(presets::Bsd::Memory)),
    option(' ', 's', &[], NOTHING, "Format of signals", |p, _| p.bsd_format(presets::Bsd::Signals)),
    option('X', 'X', &[], NOTHING, "Format of registers", |p, _| p.bsd_format(presets::Bsd::Registers)),
    option('o', 'o', &["format"], Takes::Value("FORMAT"), "These columns: specifier[:width][=header],…", |p, v| p.format(v)),
    option('O', ' ', &[], Takes::Value("FORMAT"), "These columns among the usual ones", |p, v| p.preloaded(v, "command")),
    option(' ', 'O', &[], Takes::Value("ORDER"), "Like -O; or the order in letters", |p, v| p.order_or_preloaded(v)),

    option('L', ' ', &[], NOTHING, "A row for each thread, with LWP", |p, _| { p.meant.preset.lwp = true; p.threads(Threads::Rows) }),
    option('T', ' ', &[], NOTHING, "A row for each thread, with SPID", |p, _| { p.meant.preset.spid = true; p.threads(Threads::Rows) }),
    option(' ', 'H', &[], NOTHING, "A row for each thread", |p, _| p.threads(Threads::Rows)),
    option('m', 'm', &[], NOTHING, "A row for each thread below its process", |p, _| p.threads(Threads::Below)),

    option('H', ' ', &[], NOTHING, "Processes indented below their parents", |p, _| { p.meant.forest = Some(Branches::Indented); Ok(()) }),
    option(' ', 'f', &["forest"], NOTHING, "Processes below their parents", |p, _| { p.meant.forest = Some(Branches::Drawn); Ok(()) }),
    option(' ', 'c', &[], NOTHING, "Names instead of command lines", |p, _| { p.meant.modifiers.true_name = true; Ok(()) }),
    option(' ', 'e', &[], NOTHING, "The environment behind the command line", |p, _| { p.meant.modifiers.environment = true; Ok(()) }),
    option(' ', 'n', &[], NOTHING, "Users and groups by number", |p, _| { p.meant.modifiers.numeric = true; Ok(()) }),
    option(' ', 'S', &["cumulative"], NOTHING, "Times and faults include those of children that have ended", |p, _| { p.meant.modifiers.cumulative = true; Ok(()) }),
    option(' ', 'k', &["sort"], Takes::Value("[-]SPEC,…"), "Sort by these", |p, v| p.sort(v)),
    option('w', 'w', &[], NOTHING, "Wider lines; twice for lines of any length", |p, _| { p.meant.wider += 1; Ok(()) }),
    option(' ', ' ', &["cols", "columns", "width"], NUMBER, "So many characters a line", |p, v| { p.meant.columns = Some(size(v)?); Ok(()) }),
    option(' ', ' ', &["rows", "lines"], NUMBER, "So many lines a page", |p, v| { p.meant.rows = Some(size(v)?); Ok(()) }),
    option(' ', 'h', &["no-headers", "no-header", "no-heading", "no-headings", "noheaders", "noheader", "noheading", "noheadings"], NOTHING, "No header", |p, _| p.own("--no-header")),
    option(' ', ' ', &["headers", "header", "heading", "headings"], NOTHING, "A header on each page", |p, _| { p.meant.has_pages = true; Ok(()) }),
    option(' ', 'L', &[], NOTHING, "List the format specifiers", |p, _| p.instead(Instead::Specifiers)),
    option('V', 'V', &["version"], NOTHING, "Print the version", |p, _| p.instead(Instead::Version)),
];

impl PsOption {
    /// The option for clap's help and completion; clap never sees it among the arguments. `None` if
    /// clap has the same option, and for letters without a dash.
    fn for_clap(&self, own: &clap::Command) -> Option<Arg> {
        let names = |arg: &Arg| -> Vec<String> {
            let names = arg.get_long_and_visible_aliases().unwrap_or_default();
            names.into_iter().map(str::to_owned).collect()
        };
        let has = |short: Option<char>, long: Option<&str>| {
            own.get_arguments().any(|arg| {
                let is_long = long.is_some_and(|long| names(arg).iter().any(|name| name == long));
                is_long || short.is_some() && arg.get_short() == short
            })
        };
        let unix = self.unix.filter(|&letter| !has(Some(letter), None));
        let long = self.long.first().copied().filter(|&name| !has(None, Some(name)));
        if unix.is_none() && long.is_none() {
            return None;
        }
        let mut arg = Arg::new(format!("ps {}{}", unix.unwrap_or('-'), long.unwrap_or_default()));
        arg = arg.help(self.help).help_heading("Options of ps(1)");
        if let Some(letter) = unix {
            arg = arg.short(letter);
        }
        if let Some(name) = long {
            arg = arg.long(name);
        }
        Some(match self.takes {
            Takes::Nothing => arg.action(ArgAction::SetTrue),
            Takes::Value(name) => arg.action(ArgAction::Append).value_name(name),
            Takes::Terminal => arg.action(ArgAction::Append).value_name("LIST"),
        })
    }
}

/// All options for clap's help and completion.
pub fn for_clap(own: &clap::Command) -> Vec<Arg> {
    OPTIONS.iter().filter_map(|option| option.for_clap(own)).collect()
}

/// The options without a dash, for the help.
pub fn bsd_help() -> String {
    let mut text = "Options of ps(1) without a dash (aux, axjf, ax -o pid,comm):\n".to_owned();
    for option in OPTIONS {
        if let Some(letter) = option.bsd {
            let value = match option.takes {
                Takes::Nothing => String::new(),
                Takes::Value(name) => format!(" {name}"),
                Takes::Terminal => " [LIST]".to_owned(),
            };
            text.push_str(&format!("  {:<14} {}\n", format!("{letter}{value}"), option.help));
        }
    }
    text.push_str("  123            These processes, by id");
    text
}
