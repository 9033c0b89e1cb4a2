//! The columns of the table, and the sort keys of rows.

use taskdiag::{Field, Fields, Group};

use crate::choice::{distinct, SortBy};
use crate::outcome::Failure;
use crate::output::cell::is_number;
use crate::output::listing::{CompositeCell, Content, ListingColumn};
use crate::output::table::Align;
use crate::output::tasks::{self, shown_as};
use crate::ps::specifiers::{self, field_of};
use crate::selection;
use crate::watch::Rate;

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TopColumn {
    /// A value of the task.
    Cell(ListingColumn),
    /// A rate of the task.
    Rate(Rate),
    /// Processor time in the last samples, as a sparkline.
    Trend,
}

/// The number of samples in a sparkline.
pub const TREND_WIDTH: usize = 10;

/// Headings that are shorter than the names of their fields.
const HEADINGS: &[(Field, &str)] = &[
    (Field::Pid, "PID"),
    (Field::Tid, "TID"),
    (Field::Ppid, "PPID"),
    (Field::User, "USER"),
    (Field::Euid, "EUID"),
    (Field::State, "S"),
    (Field::Nice, "NI"),
    (Field::Priority, "PRI"),
    (Field::ThreadsCount, "THR"),
    (Field::Processor, "CPU"),
    (Field::VsizeBytes, "VIRT"),
    (Field::RssBytes, "RSS"),
    (Field::SwapBytes, "SWAP"),
    (Field::MemPercent, "%MEM"),
    (Field::PssBytes, "PSS"),
    (Field::UssBytes, "USS"),
    (Field::SwapPssBytes, "SWAP-PSS"),
    (Field::NetSentBytes, "SENT"),
    (Field::NetReceivedBytes, "RECEIVED"),
    (Field::RollupAgeNs, "AGE"),
    (Field::Comm, "NAME"),
    (Field::Exe, "PATH"),
    (Field::Tty, "TTY"),
    (Field::Unit, "UNIT"),
    (Field::ContainerName, "CONTAINER"),
];

/// Names of columns that are not fields, with their contents.
static WORDS: [(&str, TopColumn); 3] = [
    ("time", TopColumn::Cell(ListingColumn::made("TIME", &tasks::TIME))),
    ("command", COMMAND),
    ("trend", TopColumn::Trend),
];

const COMMAND: TopColumn = TopColumn::Cell(ListingColumn::made("COMMAND", &tasks::COMMAND));

impl TopColumn {
    /// The column of a field, with a short heading.
    pub fn of(field: Field) -> TopColumn {
        if field == Field::CpuPercent {
            // While watching, it refers to the time since the previous sample.
            return TopColumn::Rate(Rate::Cpu);
        }
        let short = HEADINGS.iter().find(|(known, _)| *known == field);
        let heading = short.map_or(field.name(), |(_, heading)| heading);
        TopColumn::Cell(shown_as(heading, field))
    }

    /// What a name refers to: a field, a group of fields, a rate, a word of this command or of ps(1).
    pub fn named(name: &str) -> Result<Vec<TopColumn>, Failure> {
        if let Some((_, show)) = WORDS.iter().find(|(word, _)| *word == name) {
            return Ok(vec![*show]);
        }
        if let Some(rate) = Rate::named(name) {
            return Ok(vec![TopColumn::Rate(rate)]);
        }
        match selection::fields(&[name.to_owned()]) {
            Ok(fields) => Ok(fields.into_iter().map(TopColumn::of).collect()),
            // The headings of others are in capitals.
            Err(failure) => match name.to_lowercase() {
                lower if lower != name => TopColumn::named(&lower).map_err(|_| with_words(failure)),
                _ => Err(with_words(failure)),
            },
        }
    }

    /// The name that refers to it.
    pub fn name(self) -> &'static str {
        match self {
            TopColumn::Rate(rate) => rate.name(),
            TopColumn::Cell(ListingColumn {
                content: Content::Column(column),
                ..
            }) => Field::ALL[column].name(),
            show => WORDS
                .iter()
                .find(|(_, known)| *known == show)
                .map_or("command", |(word, _)| word),
        }
    }

    pub fn heading(self) -> &'static str {
        match self {
            TopColumn::Cell(shown) => shown.heading,
            TopColumn::Rate(rate) => rate.heading(),
            TopColumn::Trend => "TREND",
        }
    }

    /// The fields that its cells need.
    pub fn fields(self) -> Fields {
        match self {
            TopColumn::Cell(shown) => tasks::fields([&shown]),
            TopColumn::Rate(rate) => rate.fields().iter().copied().collect(),
            TopColumn::Trend => Fields::NONE,
        }
    }

    /// The side on which it is aligned.
    pub fn align(self) -> Align {
        match self {
            TopColumn::Cell(shown) => shown.align(&tasks::RELATION),
            // The last sample is on the right.
            TopColumn::Rate(_) | TopColumn::Trend => Align::Right,
        }
    }

    /// The width that it has even with shorter cells, so that other columns keep their places. Ids are
    /// at most `id_width` wide.
    pub fn least_width(self, id_width: usize) -> usize {
        match self {
            TopColumn::Trend => TREND_WIDTH,
            TopColumn::Rate(Rate::Cpu) => 5,
            TopColumn::Cell(ListingColumn {
                content: Content::Column(column),
                ..
            }) => match Field::ALL[column] {
                Field::Pid | Field::Tid | Field::Ppid => id_width,
                Field::Nice => 3,
                _ => 0,
            },
            _ => 0,
        }
    }

    /// The sort key of rows that are sorted by this column.
    pub fn sort_key(self) -> SortKey {
        match self {
            TopColumn::Rate(rate) => SortKey::Rate(rate),
            TopColumn::Trend => SortKey::Rate(Rate::Cpu),
            TopColumn::Cell(shown) => match shown.content {
                Content::Column(column) => SortKey::Field(Field::ALL[column]),
                Content::Composite(made) => sort_key_of(made),
            },
        }
    }
}

/// The sort key of something made: by its time, or its first field that names it.
fn sort_key_of(made: &'static CompositeCell) -> SortKey {
    let key = Content::Composite(made);
    if key == Content::Composite(&tasks::TIME) {
        SortKey::Time
    } else if key == Content::Composite(&tasks::COMMAND) {
        SortKey::Field(Field::Comm)
    } else {
        made.needs
            .first()
            .map_or(SortKey::Time, |&field| SortKey::Field(Field::ALL[field]))
    }
}

/// The names of columns: also those of ps(1) that stand for one field.
pub fn names() -> Vec<String> {
    let own = WORDS.map(|(word, _)| word).into_iter().chain(Rate::ALL.map(Rate::name));
    let of_ps = specifiers::TABLE.iter().map(|one| one.name);
    let of_ps = of_ps.filter(|name| field_of(name).is_some_and(|field| field.is_ok()));
    let names = Field::ALL.iter().map(|field| field.name()).chain(own).chain(of_ps);
    let names = distinct(names.filter(|name| SortKey::named(name).is_ok()));
    names.into_iter().map(str::to_owned).collect()
}

/// Adds the names that are not fields to a message.
fn with_words(failure: Failure) -> Failure {
    failure.with(&format!(
        "\nother columns are {}, {}",
        WORDS.map(|(word, _)| word).join(", "),
        Rate::ALL.map(Rate::name).join(", ")
    ))
}

/// Predefined sets of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Set {
    /// Processor time and memory.
    #[default]
    Usual,
    /// Proportional and unique set sizes, for which page tables are walked.
    Memory,
}

/// The columns of a set, for processes or for threads.
pub fn usual(set: Set, threads: bool) -> Vec<TopColumn> {
    let fields: &[Field] = match set {
        Set::Memory => &[Field::SwapBytes, Field::UssBytes, Field::PssBytes, Field::RssBytes],
        Set::Usual => &[Field::Nice, Field::State],
    };
    let ids: &[Field] = if threads {
        &[Field::Pid, Field::Tid, Field::User]
    } else {
        &[Field::Pid, Field::User]
    };
    let mut shown: Vec<TopColumn> = ids.iter().chain(fields).copied().map(TopColumn::of).collect();
    shown.push(TopColumn::Rate(Rate::Cpu));
    shown.push(TopColumn::Trend);
    if set == Set::Usual {
        shown.extend([Field::RssBytes, Field::MemPercent].map(TopColumn::of));
        shown.extend(TopColumn::named("time").unwrap_or_default());
    }
    shown.push(commands(threads)[0]);
    shown
}

/// What can stand for the command. The threads of a process have the same command line but their own
/// names.
pub fn commands(threads: bool) -> [TopColumn; 3] {
    let [path, name] = [Field::Exe, Field::Comm].map(TopColumn::of);
    if threads {
        [name, COMMAND, path]
    } else {
        [COMMAND, path, name]
    }
}

/// The sort key of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    Rate(Rate),
    Field(Field),
    /// Time on processors.
    Time,
}

impl SortKey {
    pub fn named(name: &str) -> Result<SortKey, Failure> {
        match TopColumn::named(name)?.as_slice() {
            [show] => Ok(show.sort_key()),
            several => {
                let names: Vec<&str> = several.iter().map(|show| show.name()).collect();
                let names = names.join(", ");
                Err(format!("{name} stands for several fields: sort by one of {names}").into())
            }
        }
    }

    /// The name that refers to it.
    pub fn name(self) -> &'static str {
        match self {
            SortKey::Rate(rate) => rate.name(),
            SortKey::Field(field) => field.name(),
            SortKey::Time => "time",
        }
    }

    /// The fields that it needs.
    pub fn fields(self) -> Fields {
        match self {
            SortKey::Rate(rate) => rate.fields().iter().copied().collect(),
            SortKey::Field(field) => field.into(),
            SortKey::Time => Field::UtimeNs | Field::StimeNs,
        }
    }

    /// Whether most people want the largest first: true for amounts, but not for ids and texts.
    pub fn is_descending(self) -> bool {
        match self {
            SortKey::Rate(_) | SortKey::Time => true,
            SortKey::Field(field) => {
                is_number(field.info().kind)
                    && field != Field::Nice
                    && !(field.group() == Group::Base && field != Field::ThreadsCount)
            }
        }
    }
}

/// An order of rows.
pub type Order = SortBy<SortKey>;

impl Default for Order {
    /// The busiest first.
    fn default() -> Order {
        Order::by(SortKey::Rate(Rate::Cpu))
    }
}

impl Order {
    /// The order by a key, in the direction that most people want.
    pub fn by(key: SortKey) -> Order {
        Order {
            key,
            descending: key.is_descending(),
        }
    }

    /// Parses a name, with a minus before it if the largest comes first.
    pub fn named(text: &str) -> Result<Order, Failure> {
        SortBy::one(text, SortKey::named)
    }

    /// What top(1) means by one of its headings, which are in capitals, after `-o`. A plus in front puts
    /// the largest first, a minus the smallest.
    pub fn of_top(text: &str) -> Option<Order> {
        let heading = text.trim_start_matches(['+', '-']);
        if heading.to_uppercase() != heading || heading.to_lowercase() == heading {
            return None;
        }
        let name = match heading {
            "RES" => "rss".to_owned(),
            "VIRT" => "vsz".to_owned(),
            "TIME+" => "time".to_owned(),
            heading => heading.to_lowercase(),
        };
        let order = Order::by(SortKey::named(&name).ok()?);
        let descending = order.descending && !text.starts_with('-') || text.starts_with('+');
        Some(Order { descending, ..order })
    }

    /// The text that [`named`](Order::named) accepts.
    pub fn text(self) -> String {
        let sign = if self.descending { "-" } else { "" };
        format!("{sign}{}", self.key.name())
    }
}

/// The minimum width of a last column of text.
const MIN_LAST: usize = 12;

/// Widths with which a row is no longer than `limit`. No column but the last takes more than half of
/// it: one long text must not hide the others. Columns that do not fit are left out: those of the highest
/// rank, and of these those just before the last one, go first. The last one gets the remaining width.
pub fn fit(widths: &[usize], limit: usize, rank: impl Fn(usize) -> u8) -> Vec<Option<usize>> {
    let mut fitted = vec![None; widths.len()];
    let Some((&last, others)) = widths.split_last() else {
        return fitted;
    };
    let reserved = last.min(MIN_LAST).min(limit);
    let mut rest = limit - reserved;
    let mut places: Vec<usize> = (0..others.len()).collect();
    places.sort_by_key(|&place| rank(place));
    for place in places {
        let width = others[place].min(limit / 2);
        // Including the space after it.
        match rest.checked_sub(width + 1) {
            Some(left) => {
                rest = left;
                fitted[place] = Some(width);
            }
            None => break,
        }
    }
    if let Some(fitted) = fitted.last_mut() {
        *fitted = Some(rest + reserved);
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every column of the usual tables has a name that refers to it, and that every
    /// field can be a column.
    #[test]
    fn columns_have_names() {
        let sets = [Set::Usual, Set::Memory].map(|set| [usual(set, false), usual(set, true)]);
        let fields = Field::ALL.iter().map(|&field| TopColumn::of(field));
        for show in sets.into_iter().flatten().flatten().chain(fields) {
            assert_eq!(
                TopColumn::named(show.name()).expect("a column"),
                [show],
                "{}",
                show.name()
            );
            let key = show.sort_key();
            let again = SortKey::named(key.name()).expect("a key");
            assert_eq!(again, key);
        }
        for (name, show) in [
            ("rss", TopColumn::of(Field::RssBytes)),
            ("%cpu", TopColumn::Rate(Rate::Cpu)),
            ("ni", TopColumn::of(Field::Nice)),
            ("time", WORDS[0].1),
        ] {
            assert_eq!(TopColumn::named(name).expect("a word of ps"), [show], "{name}");
        }
        for name in names() {
            assert!(SortKey::named(&name).is_ok(), "{name}");
        }
        let wrong = format!("{:?}", TopColumn::named("cpu_percents"));
        assert!(wrong.contains("other columns are time, command, trend"), "{wrong}");
        assert!(SortKey::named("cred").is_err());
    }

    /// Check the directions of orders, and that an order is the same after it was written and
    /// parsed.
    #[test]
    fn orders_have_directions() {
        assert!(Order::default().descending);
        for (name, descending) in [
            ("pid", false),
            ("rss_bytes", true),
            ("time", true),
            ("comm", false),
            ("nice", false),
            ("threads_count", true),
        ] {
            let order = Order::by(SortKey::named(name).expect("a key"));
            assert_eq!(order.descending, descending, "{name}");
            assert_eq!(Order::named(&order.text()).expect("an order"), order);
        }
    }

    /// Check that headings of top(1) are orders, and that columns are none.
    #[test]
    fn headings_of_top_are_orders() {
        for (heading, order) in [
            ("%MEM", Some("-mem_percent")),
            ("+%MEM", Some("-mem_percent")),
            ("-RES", Some("rss_bytes")),
            ("TIME+", Some("-time")),
            ("PID", Some("pid")),
            ("+PID", Some("-pid")),
            ("pid", None),
            ("NOSUCH", None),
            ("PID,USER", None),
            ("+", None),
        ] {
            let found = Order::of_top(heading).map(Order::text);
            assert_eq!(found.as_deref(), order, "{heading}");
        }
    }

    /// Check that a row is never longer than the limit, and that the last column is kept.
    #[test]
    fn columns_fit() {
        assert_eq!(fit(&[5, 8, 30], 40, |_| 0), [Some(5), Some(8), Some(25)]);
        assert_eq!(fit(&[5, 8, 30], 20, |_| 0), [Some(5), None, Some(14)]);
        assert_eq!(fit(&[5, 8, 30], 4, |_| 0), [None, None, Some(4)]);
        assert_eq!(fit(&[5], 0, |_| 0), [Some(0)]);
        assert_eq!(fit(&[3000, 5, 30], 40, |_| 0), [Some(20), Some(5), Some(13)]);
        assert_eq!(fit(&[], 10, |_| 0), []);
        let ranks = |place: usize| [0, 2, 1, 0, 1][place];
        assert_eq!(
            fit(&[5, 3, 8, 5, 30], 32, ranks),
            [Some(5), None, None, Some(5), Some(20)]
        );
        assert_eq!(
            fit(&[5, 3, 8, 5, 30], 34, ranks),
            [Some(5), None, Some(8), Some(5), Some(13)]
        );
        for limit in 0..100 {
            let fitted = fit(&[5, 8, 1, 6, 30], limit, |_| 0);
            let used: usize = fitted.iter().flatten().map(|width| width + 1).sum();
            assert!(used <= limit + 1, "{fitted:?} in {limit}");
        }
    }
}
