//! The table of the options of ps(1).

use clap::{Arg, ArgAction};
use taskdiag::Field;

use super::given::Given;
use super::lists::{groups, ids, names, size, terminals, users};
use super::ps_options::{Branches, Instead, List, Threads};
use crate::ps::presets;

/// What an option of ps takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    /// A value. This is its name in the help.
    Value(&'static str),
    /// A list of terminals, or nothing: the next argument is the list if it names terminals.
    Terminal,
}

/// The effect of an option with its value.
type Does = fn(&mut Given, &str) -> Result<(), String>;

#[derive(Clone, Copy, Debug)]
pub struct PsOption {
    /// Its letter with a dash.
    pub unix: Option<char>,
    /// Its letter without a dash.
    pub bsd: Option<char>,
    /// Its long names.
    pub long: &'static [&'static str],
    pub takes: Takes,
    /// What it means, for the help.
    pub help: &'static str,
    pub(super) does: Does,
}

/// A blank for `unix` or `bsd` means that there is no such letter.
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

#[rustfmt::skip]
pub static OPTIONS: &[PsOption] = &[
    option('e', ' ', &[], NOTHING, "All processes", |g, _| { g.ps_options.choice.all = true; Ok(()) }),
    option('A', ' ', &[], NOTHING, "All processes", |g, _| { g.ps_options.choice.all = true; Ok(()) }),
    option('a', ' ', &[], NOTHING, "Processes on a terminal, leaders of sessions excepted", |g, _| { g.ps_options.choice.others_on_terminals = true; Ok(()) }),
    option('d', ' ', &[], NOTHING, "All processes but leaders of sessions", |g, _| { g.ps_options.choice.others = true; Ok(()) }),
    option(' ', 'a', &[], NOTHING, "Processes on a terminal; with x all", |g, _| { g.ps_options.choice.on_terminals = true; Ok(()) }),
    option(' ', 'x', &[], NOTHING, "The caller's processes; with a all", |g, _| { g.ps_options.choice.own = true; Ok(()) }),
    option(' ', 'g', &[], NOTHING, "Leaders of sessions, too: they always are there", |_, _| Ok(())),
    option(' ', 'T', &[], NOTHING, "Processes on this terminal", |g, _| g.list(List::OwnTerminal)),
    option(' ', 'r', &[], NOTHING, "Only those that run", |g, _| { g.ps_options.choice.running = true; Ok(()) }),
    option('N', ' ', &["deselect"], NOTHING, "All but those that are selected", |g, _| { g.ps_options.choice.is_negated = true; Ok(()) }),
    option('p', 'p', &["pid"], LIST, "These processes, by id", |g, v| g.list(List::OneOf(Field::Pid, ids(v)?))),
    option('q', 'q', &["quick-pid"], LIST, "These processes, by id and in this order", |g, v| g.quick(v)),
    option(' ', ' ', &["ppid"], LIST, "Children of these processes", |g, v| g.list(List::OneOf(Field::Ppid, ids(v)?))),
    option('s', ' ', &["sid"], LIST, "These sessions", |g, v| g.list(List::OneOf(Field::Sid, ids(v)?))),
    option('g', ' ', &[], LIST, "These sessions, or these effective groups by name", |g, v| g.sessions_or_groups(v)),
    option('G', ' ', &["Group"], LIST, "These real groups, by name or number", |g, v| g.list(List::OneOf(Field::Gid, groups(v)?))),
    option(' ', ' ', &["group"], LIST, "These effective groups, by name or number", |g, v| g.list(List::OneOf(Field::Egid, groups(v)?))),
    option('u', 'U', &["user"], LIST, "These effective users, by name or number", |g, v| g.list(List::OneOf(Field::Euid, users(v)?))),
    option('U', ' ', &["User"], LIST, "These real users, by name or number", |g, v| g.list(List::OneOf(Field::Uid, users(v)?))),
    option('t', ' ', &["tty"], LIST, "These terminals (pts/0, tty1, /dev/ttyS0); - for none", |g, v| g.list(List::OneOf(Field::TtyNr, terminals(v)?))),
    option(' ', 't', &[], Takes::Terminal, "These terminals; this one if none is named", |g, v| g.terminals_or_own(v)),
    option('C', ' ', &[], LIST, "These names", |g, v| g.list(List::Names(names(v)?))),

    option('f', ' ', &[], NOTHING, "Full format", |g, _| g.unix_format(|f| f.full = true)),
    option('F', ' ', &[], NOTHING, "Extra full format", |g, _| g.unix_format(|f| { f.full = true; f.extra = true; })),
    option('l', ' ', &[], NOTHING, "Long format", |g, _| g.unix_format(|f| f.long = true)),
    option('j', ' ', &[], NOTHING, "Format of jobs: with group and session", |g, _| g.unix_format(|f| f.jobs = true)),
    option('y', ' ', &[], NOTHING, "With -l: no flags, rss instead of addr", |g, _| g.unix_format(|f| f.short_long = true)),
    option('c', ' ', &[], NOTHING, "With the scheduling class", |g, _| g.unix_format(|f| f.class = true)),
    option('P', ' ', &[], NOTHING, "With the processor", |g, _| g.unix_format(|f| f.processor = true)),
    option('M', 'Z', &[], NOTHING, "With the security label", |g, _| g.unix_format(|f| f.label = true)),
    option('Z', ' ', &[], NOTHING, "With the security label", |g, _| g.unix_format(|f| f.label = true)),
    option(' ', ' ', &["context"], NOTHING, "Format of security labels", |g, _| g.bsd_format(presets::Bsd::Context)),
    option(' ', 'u', &[], NOTHING, "Format for users", |g, _| g.bsd_format(presets::Bsd::User)),
    option(' ', 'l', &[], NOTHING, "Long format of BSD", |g, _| g.bsd_format(presets::Bsd::Long)),
    option(' ', 'j', &[], NOTHING, "Format of jobs of BSD", |g, _| g.bsd_format(presets::Bsd::Jobs)),
    option(' ', 'v', &[], NOTHING, "Format of virtual memory", |g, _| g.bsd_format(presets::Bsd::Memory)),
    option(' ', 's', &[], NOTHING, "Format of signals", |g, _| g.bsd_format(presets::Bsd::Signals)),
    option('X', 'X', &[], NOTHING, "Format of registers", |g, _| g.bsd_format(presets::Bsd::Registers)),
    option('o', 'o', &["format"], Takes::Value("FORMAT"), "These columns: specifier[:width][=header],…", |g, v| g.format(v)),
    option('O', ' ', &[], Takes::Value("FORMAT"), "These columns among the usual ones", |g, v| g.preloaded(v, "command")),
    option(' ', 'O', &[], Takes::Value("ORDER"), "Like -O; or the order in letters", |g, v| g.order_or_preloaded(v)),

    option('L', ' ', &[], NOTHING, "A row for each thread, with LWP", |g, _| { g.ps_options.preset.lwp = true; g.threads(Threads::Rows) }),
    option('T', ' ', &[], NOTHING, "A row for each thread, with SPID", |g, _| { g.ps_options.preset.spid = true; g.threads(Threads::Rows) }),
    option(' ', 'H', &[], NOTHING, "A row for each thread", |g, _| g.threads(Threads::Rows)),
    option('m', 'm', &[], NOTHING, "A row for each thread below its process", |g, _| g.threads(Threads::Below)),

    option('H', ' ', &[], NOTHING, "Processes indented below their parents", |g, _| { g.ps_options.forest = Some(Branches::Indented); Ok(()) }),
    option(' ', 'f', &["forest"], NOTHING, "Processes below their parents", |g, _| { g.ps_options.forest = Some(Branches::Drawn); Ok(()) }),
    option(' ', 'c', &[], NOTHING, "Names instead of command lines", |g, _| { g.ps_options.modifiers.true_name = true; Ok(()) }),
    option(' ', 'e', &[], NOTHING, "The environment behind the command line", |g, _| { g.ps_options.modifiers.environment = true; Ok(()) }),
    option(' ', 'n', &[], NOTHING, "Users and groups by number", |g, _| { g.ps_options.modifiers.numeric = true; Ok(()) }),
    option(' ', 'S', &["cumulative"], NOTHING, "Times and faults include those of children that have ended", |g, _| { g.ps_options.modifiers.cumulative = true; Ok(()) }),
    option(' ', 'k', &["sort"], Takes::Value("[-]SPEC,…"), "Sort by these", |g, v| g.sort(v)),
    option('w', 'w', &[], NOTHING, "Wider lines; twice for lines of any length", |g, _| { g.ps_options.wider += 1; Ok(()) }),
    option(' ', ' ', &["cols", "columns", "width"], NUMBER, "So many characters a line", |g, v| { g.ps_options.columns = Some(size(v)?); Ok(()) }),
    option(' ', ' ', &["rows", "lines"], NUMBER, "So many lines a page", |g, v| { g.ps_options.rows = Some(size(v)?); Ok(()) }),
    option(' ', 'h', &["no-headers", "no-header", "no-heading", "no-headings", "noheaders", "noheader", "noheading", "noheadings"], NOTHING, "No header", |g, _| g.own("--no-header")),
    option(' ', ' ', &["headers", "header", "heading", "headings"], NOTHING, "A header on each page", |g, _| { g.ps_options.has_pages = true; Ok(()) }),
    option(' ', 'L', &[], NOTHING, "List the format specifiers", |g, _| g.instead(Instead::Specifiers)),
    option('V', 'V', &["version"], NOTHING, "Print the version", |g, _| g.instead(Instead::Version)),
];

impl PsOption {
    /// The option for clap's help and completion. clap never sees it among the arguments. `None` if
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
