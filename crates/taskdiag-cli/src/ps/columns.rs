//! The names that `-o` takes: format specifiers of ps(1), fields, and groups of fields.
//!
//! Some names are both a specifier and a field. In tables and their sort keys they mean the
//! specifier, in JSON and CSV the field.

use taskdiag::{Field, Fields};

use super::host::pid_digits;
use super::lines::ColumnLayout;
use super::options::PsOptions;
use super::specifiers::{self, Justify, Specifier, Width, SET};
use crate::choice::distinct;
use crate::outcome::{is_procps, Failure};
use crate::output::listing::ListingColumn;
use crate::output::table::Align;
use crate::output::tasks;
use crate::output::text::line;
use crate::selection;

/// The meaning of a name that is both a specifier and a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    /// The specifier of ps(1): in tables.
    Ps,
    /// The field: in JSON and CSV.
    Fields,
}

#[derive(Clone, Copy, Debug)]
pub enum ColumnContent {
    /// What ps shows for a specifier.
    Specifier(&'static Specifier),
    /// The content of a column in other tables of taskdiag.
    Native(ListingColumn),
}

impl ColumnContent {
    pub fn needs(&self) -> Fields {
        match self {
            ColumnContent::Specifier(specifier) => specifier.needs().collect(),
            ColumnContent::Native(shown) => tasks::fields([shown]),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Column {
    pub header: String,
    /// The width that was asked for.
    pub width: Option<usize>,
    pub shows: ColumnContent,
    /// Whether `-o` named it. Values that are missing in a predefined format are not reported.
    pub is_named: bool,
}

/// A column of this project's own tables.
impl From<ListingColumn> for Column {
    fn from(shown: ListingColumn) -> Column {
        Column::of(ColumnContent::Native(shown))
    }
}

impl Column {
    fn of(shows: ColumnContent) -> Column {
        Column {
            header: match shows {
                ColumnContent::Specifier(specifier) => specifier.header.to_owned(),
                ColumnContent::Native(shown) => shown.heading.to_owned(),
            },
            width: None,
            shows,
            is_named: true,
        }
    }

    /// Whether it shows a set of signals.
    pub fn is_of_signals(&self) -> bool {
        matches!(self.shows, ColumnContent::Specifier(specifier) if specifier.width == Width::Signals)
    }

    /// Its place on a line.
    pub fn place(&self, ps_options: &PsOptions, pid_digits: usize) -> ColumnLayout {
        match self.shows {
            ColumnContent::Specifier(specifier) => {
                let usual = match specifier.width {
                    Width::Fixed(width) => width,
                    Width::Signals => SET,
                    Width::Pid => pid_digits,
                };
                let is_number = match specifier.justify {
                    Justify::Name => ps_options.modifiers.numeric,
                    Justify::Right | Justify::RightIn(_) => true,
                    Justify::Left | Justify::Whole => false,
                };
                let width = self.width.unwrap_or(usual.max(self.header.chars().count()));
                ColumnLayout {
                    justify: if is_number { Justify::Right } else { specifier.justify },
                    width: Some(width),
                }
            }
            ColumnContent::Native(shown) => ColumnLayout {
                justify: match shown.align(&tasks::RELATION) {
                    Align::Left => Justify::Left,
                    Align::Right => Justify::Right,
                },
                width: self.width,
            },
        }
    }
}

/// The columns that `-o` options name, in order. A list that begins with `+` adds to the `usual`
/// ones.
pub fn named(
    lists: &[String],
    vocabulary: Vocabulary,
    usual: impl Fn() -> Vec<Column>,
) -> Result<Vec<Column>, Failure> {
    let mut columns = Vec::new();
    for list in lists {
        let list = list.strip_prefix('+').unwrap_or(list);
        if let Some(names) = aix_names(list) {
            columns.extend(names.into_iter().map(|name| Column::of(ColumnContent::Specifier(name))));
            continue;
        }
        check_aix(list)?;
        for item in items(list)? {
            columns.extend(column(item, vocabulary)?);
        }
    }
    if lists.first().is_some_and(|list| list.starts_with('+')) {
        let mut all = usual();
        // The last column of a table has the longest text.
        let end = match vocabulary {
            Vocabulary::Ps => all.len().saturating_sub(1),
            Vocabulary::Fields => all.len(),
        };
        all.splice(end..end, columns);
        return Ok(all);
    }
    Ok(columns)
}

/// Whether all names in a list are known.
pub fn is_list(list: &str) -> bool {
    named(&[list.to_owned()], Vocabulary::Ps, Vec::new).is_ok()
}

/// The items of a list, separated by commas or blanks. A comma may follow the last one.
fn items(list: &str) -> Result<Vec<&str>, Failure> {
    let mut items = Vec::new();
    for part in list.strip_suffix(',').unwrap_or(list).split(',') {
        let mut words = part.split_whitespace().peekable();
        if words.peek().is_none() {
            return Err(wrong(format!("-o {list:?}: a name is missing between commas")));
        }
        items.extend(words);
    }
    Ok(items)
}

/// The columns of an item: `name`, `name:width`, `name=header` or `name:width=header`. A group of
/// fields has several columns.
fn column(item: &str, vocabulary: Vocabulary) -> Result<Vec<Column>, Failure> {
    let (name, header) = match item.split_once('=') {
        Some((name, header)) => (name, Some(header)),
        None => (item, None),
    };
    let (name, width) = match name.split_once(':') {
        Some((name, width)) => match width.parse() {
            Ok(width @ 1..=MAX_WIDTH) => (name, Some(width)),
            _ => {
                return Err(wrong(format!(
                    "-o {item}: {width:?} is not a width: it is a number from 1 to {MAX_WIDTH}"
                )))
            }
        },
        None => (name, None),
    };
    let shown = resolve(name, vocabulary)?;
    let columns = shown.into_iter().map(|shows| {
        let mut column = Column::of(shows);
        if let Some(header) = header {
            column.header = if is_procps() { header.to_owned() } else { line(header) };
        }
        column.width = width;
        column
    });
    Ok(columns.collect())
}

/// The greatest width of a column.
const MAX_WIDTH: usize = 10_000;

/// What a name refers to.
fn resolve(name: &str, vocabulary: Vocabulary) -> Result<Vec<ColumnContent>, Failure> {
    let specifier = Specifier::named(name).map(ColumnContent::Specifier);
    let field = name
        .parse::<Field>()
        .ok()
        .map(|field| ColumnContent::Native(tasks::shown(field)));
    let one = match vocabulary {
        Vocabulary::Ps => specifier.or(field),
        Vocabulary::Fields => field.or(specifier),
    };
    match one {
        Some(shows) => Ok(vec![shows]),
        None => {
            let fields = selection::fields(&[name.to_owned()])?.into_iter();
            Ok(fields.map(|field| ColumnContent::Native(tasks::shown(field))).collect())
        }
    }
}

/// The failure for a name that is neither a field nor a specifier.
pub fn unknown(name: &str) -> Failure {
    let error = specifiers::unknown(name);
    format!("{error}\n`taskdiag fields` lists all fields and groups, `taskdiag ps L` the format specifiers of ps")
        .into()
}

/// The specifiers of a list of AIX format descriptors, such as `%p %y %x %c` or `%p%c`. `None` for
/// any other list.
fn aix_names(list: &str) -> Option<Vec<&'static Specifier>> {
    let mut names = Vec::new();
    let mut rest = list.trim_matches([',', ' ']);
    while !rest.is_empty() {
        let mut characters = rest.strip_prefix('%')?.chars();
        names.push(aix(characters.next()?)?);
        rest = characters.as_str().trim_start_matches([',', ' ']);
    }
    (!names.is_empty()).then_some(names)
}

/// Fails for a list that begins with an AIX format descriptor and has something else, with the words
/// of ps. `%cpu` and `%mem` are specifiers.
fn check_aix(list: &str) -> Result<(), Failure> {
    let mut rest = list;
    let is_word = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    let begins = list.strip_prefix('%').and_then(|rest| rest.chars().next());
    if begins.and_then(aix).is_none() || is_word(&list[2..]) {
        return Ok(());
    }
    let what = loop {
        rest = rest.trim_start_matches([',', ' ']);
        let Some(descriptor) = rest.strip_prefix('%') else {
            break "improper";
        };
        match descriptor.chars().next() {
            None | Some('%' | ' ') => break "missing",
            Some(letter) if aix(letter).is_none() => break "unknown",
            Some(letter) => rest = &descriptor[letter.len_utf8()..],
        }
    };
    Err(wrong(format!(
        "-o {list:?}: error: {what} AIX field descriptor at {rest:?}"
    )))
}

fn aix(letter: char) -> Option<&'static Specifier> {
    Specifier::named(match letter {
        'C' => "pcpu",
        'G' => "group",
        'P' => "ppid",
        'U' => "user",
        'a' => "args",
        'c' => "comm",
        'g' => "rgroup",
        'n' => "nice",
        'p' => "pid",
        'r' => "pgid",
        't' => "etime",
        'u' => "ruser",
        'x' => "time",
        'y' => "tname",
        'z' => "vsz",
        _ => return None,
    })
}

/// The columns of the predefined format.
pub fn preset(ps_options: &PsOptions) -> Vec<Column> {
    let named = |(name, width): (&str, Option<usize>)| {
        let shows = ColumnContent::Specifier(Specifier::named(name)?);
        Some(Column {
            width,
            is_named: false,
            ..Column::of(shows)
        })
    };
    ps_options
        .preset
        .columns(ps_options.is_bsd)
        .into_iter()
        .filter_map(named)
        .collect()
}

/// The fields that columns represent, each once.
pub fn fields(columns: &[Column]) -> Vec<Field> {
    distinct(columns.iter().flat_map(|column| match &column.shows {
        ColumnContent::Specifier(specifier) => specifier.stands_for.to_vec(),
        ColumnContent::Native(shown) => shown.content.needs().map(|column| Field::ALL[column]).collect(),
    }))
}

/// The places of columns on a line.
pub fn places(columns: &[Column], ps_options: &PsOptions) -> Vec<ColumnLayout> {
    let digits = pid_digits();
    columns.iter().map(|column| column.place(ps_options, digits)).collect()
}

fn wrong(message: String) -> Failure {
    Failure::Unanswered(format!("{message}\n`taskdiag ps --help` has examples"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lists: &[&str], vocabulary: Vocabulary) -> Result<Vec<String>, String> {
        let lists: Vec<String> = lists.iter().map(|&list| list.to_owned()).collect();
        let columns =
            named(&lists, vocabulary, || preset(&PsOptions::default())).map_err(|failure| format!("{failure:?}"))?;
        Ok(columns.into_iter().map(|column| column.header).collect())
    }

    fn ps(lists: &[&str]) -> Result<Vec<String>, String> {
        headers(lists, Vocabulary::Ps)
    }

    fn is(names: &[&str]) -> Result<Vec<String>, String> {
        Ok(names.iter().map(|&name| name.to_owned()).collect())
    }

    /// Check that lists have commas and blanks between names, and that names carry headers and
    /// widths.
    #[test]
    fn lists_name_columns() {
        assert_eq!(ps(&["pid,comm"]), is(&["PID", "COMMAND"]));
        assert_eq!(ps(&["pid comm", "%cpu,"]), is(&["PID", "COMMAND", "%CPU"]));
        assert_eq!(ps(&["pid=X,comm=", "user:20=NAME"]), is(&["X", "", "NAME"]));
        assert_eq!(ps(&["%p %y,%c"]), is(&["PID", "TTY", "COMMAND"]));
        assert_eq!(ps(&["%p%y%c"]), is(&["PID", "TTY", "COMMAND"]));
        assert_eq!(ps(&["%cpu,%mem"]), is(&["%CPU", "%MEM"]));
        assert_eq!(ps(&["+rss"]), is(&["PID", "TTY", "TIME", "RSS", "CMD"]));
        for wrong in [
            "pid,,comm",
            ",pid",
            "",
            "pid:",
            "pid:0",
            "pid:x",
            "pid:-3",
            "nosuch",
            "%q",
            "pid:99999999999",
        ] {
            assert!(ps(&[wrong]).is_err(), "{wrong}");
        }
    }

    /// Check that a name that is both a specifier and a field means the specifier in tables and the
    /// field elsewhere, and what it represents.
    #[test]
    fn names_of_both_are_told_apart() {
        let stands_for = |name: &str, vocabulary| {
            let columns = named(&[name.to_owned()], vocabulary, Vec::new).expect("a name");
            fields(&columns)
        };
        for (name, in_tables, elsewhere) in [
            ("uid", Field::Euid, Field::Uid),
            ("gid", Field::Egid, Field::Gid),
            ("rss", Field::RssBytes, Field::RssBytes),
            ("rss_bytes", Field::RssBytes, Field::RssBytes),
        ] {
            assert_eq!(stands_for(name, Vocabulary::Ps), [in_tables], "{name}");
            assert_eq!(stands_for(name, Vocabulary::Fields), [elsewhere], "{name}");
        }
        assert_eq!(
            stands_for("time,%cpu", Vocabulary::Fields),
            [Field::UtimeNs, Field::StimeNs, Field::CpuPercent]
        );
        assert!(stands_for("cred", Vocabulary::Ps).len() > 10);
    }

    /// Check widths: the usual width, but at least the header's, or the width that was asked for.
    #[test]
    fn widths_make_room_for_headers_unless_they_are_given() {
        let width = |item: &str| {
            let columns = named(&[item.to_owned()], Vocabulary::Ps, Vec::new).expect("a column");
            columns[0].place(&PsOptions::default(), 7).width
        };
        assert_eq!(width("pid"), Some(7));
        assert_eq!(width("comm"), Some(15));
        assert_eq!(width("comm:3"), Some(3));
        assert_eq!(width("pending"), Some(9));
        assert_eq!(width("pending:20"), Some(20));
        assert_eq!(width("policy=ABCDEFGHI"), Some(9));
        assert_eq!(width("policy:2=ABCDEFGHI"), Some(2));
        assert_eq!(width("rss_bytes"), None);
    }
}
