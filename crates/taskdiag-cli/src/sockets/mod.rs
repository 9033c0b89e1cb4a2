//! `taskdiag sockets`.

mod report;
mod row;
mod sums;

use clap::Args as ClapArgs;
use taskdiag::sockets::{Filter, Kind, Request, Row, Socket, SocketField, State};
use taskdiag::{Field, Fields, Query, Set, Snapshot};
use taskdiag_core::socket::state_named;

use crate::choice::{Chosen, SortBy, SumKey};
use crate::listing::{Answers, Format};
use crate::outcome::{Failure, Outcome};
use crate::output::cell::is_number;
use crate::output::format::OutputOptions;
use crate::output::named::{self, write_value};
use crate::output::table::Align;
use crate::quantity;
use crate::selection::{own, without, Processes, OF_PROCESSES};
use crate::source::SourceOptions;
use crate::users;
use report::Report;
pub use row::{cell, KEYS};
pub use sums::{By, Sum};

/// List the sockets of the machine, in all network namespaces, with the processes that have them
///
/// It takes root, or CAP_SYS_ADMIN, to look into other network namespaces, and CAP_SYS_PTRACE to
/// see the descriptors of another user's process.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    taskdiag sockets -l --tcp --udp\n  \
    taskdiag sockets --port 443\n  \
    taskdiag sockets 1234\n  \
    taskdiag sockets --tcp --state close-wait --by program\n  \
    taskdiag sockets --where \"comm == 'nginx' and recv_queue_bytes > 1M\"\n  \
    taskdiag sockets --tcp --info --sort -rtt_ns --limit 10")]
pub struct Args {
    /// Only sockets that these processes have [default: all]
    #[arg(value_name = "PID", value_parser = quantity::pid, conflicts_with_all = OF_PROCESSES)]
    named: Vec<u32>,
    #[command(flatten)]
    selection: Processes,
    /// Only sockets that wait for a peer: they listen, or receive from anybody
    #[arg(short = 'l', long)]
    listening: bool,
    #[command(flatten)]
    kinds: KindOptions,
    /// Only sockets of IP with one of these ports, at either end
    #[arg(long = "port", value_name = "N,…", value_delimiter = ',')]
    ports: Vec<u16>,
    /// Only these states: ESTAB, LISTEN, UNCONN, TIME-WAIT and so on, in any case
    #[arg(long = "state", value_name = "STATE,…", value_delimiter = ',', value_parser = state_named)]
    states: Vec<State>,
    /// Only sockets for which this is true, as in `ps --where`, over the fields of sockets and the
    /// pid, comm and fd of an owner
    #[arg(long = "where", value_name = "EXPR")]
    expression: Option<String>,
    /// Only those of the caller's own network namespace
    #[arg(long)]
    own_netns: bool,
    /// What TCP knows of the connections, too: round trip times, windows, what was sent again
    #[arg(long, conflicts_with = "by")]
    info: bool,
    /// Add up by this
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Sort by these fields; a minus in front puts the largest first [default: as the kernel lists
    /// them]
    #[arg(long, value_name = "[-]FIELD,…", allow_hyphen_values = true)]
    sort: Vec<String>,
    /// At most this many rows, after sorting
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Fields to show, in this order; `all` for all: those of docs/sockets.md; a plus in front adds
    /// to those shown without
    #[arg(short = 'o', long = "fields", value_name = "[+]FIELD,…", help_heading = "Output")]
    fields: Vec<String>,
    #[command(flatten)]
    from: SourceOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Which kinds of sockets; several add up.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct KindOptions {
    /// TCP; this and the following options add up [default: all kinds]
    #[arg(long)]
    tcp: bool,
    /// UDP
    #[arg(long)]
    udp: bool,
    /// Other protocols over IP
    #[arg(long)]
    raw: bool,
    /// UNIX sockets
    #[arg(long)]
    unix: bool,
    /// Netlink sockets
    #[arg(long)]
    netlink: bool,
    /// Packet sockets
    #[arg(long)]
    packet: bool,
    /// Sockets of virtual machines
    #[arg(long)]
    vsock: bool,
}

impl KindOptions {
    /// The kinds that were requested.
    fn named(&self) -> Set<Kind> {
        let each = [
            (self.tcp, Kind::Tcp),
            (self.udp, Kind::Udp),
            (self.raw, Kind::Raw),
            (self.unix, Kind::Unix),
            (self.netlink, Kind::Netlink),
            (self.packet, Kind::Packet),
            (self.vsock, Kind::Vsock),
        ];
        each.into_iter().filter(|one| one.0).map(|one| one.1).collect()
    }
}

/// What to show.
enum Shown {
    /// Sockets: the columns of a table, or the keys for machine-readable output.
    Sockets {
        columns: Vec<Column>,
        keys: Vec<usize>,
        sort: Vec<SortBy<usize>>,
    },
    /// Sums.
    Sums(By, Vec<SortBy<SumKey>>),
}

/// A column of the table.
#[derive(Clone, Copy, Debug)]
struct Column {
    heading: &'static str,
    show: Show,
    /// Omitted if there is only one network namespace.
    is_for_many: bool,
}

#[derive(Clone, Copy, Debug)]
enum Show {
    Key(usize),
    /// The protocol, or the family with type or protocol.
    Protocol,
    /// The receive queue: unread bytes, or the number of waiting connections.
    RecvQueue,
    /// The send queue: unacknowledged bytes, or the maximum number of waiting connections.
    SendQueue,
    /// The local address.
    Local,
    /// The peer's address.
    Peer,
}

const fn key_of(field: SocketField) -> usize {
    field as usize
}

impl Column {
    const fn new(heading: &'static str, show: Show) -> Column {
        Column {
            heading,
            show,
            is_for_many: false,
        }
    }

    fn of(key: usize) -> Column {
        Column::new(KEYS[key].name, Show::Key(key))
    }

    fn align(&self) -> Align {
        match self.show {
            Show::Key(key) if is_number(KEYS[key].kind) => Align::Right,
            Show::RecvQueue | Show::SendQueue => Align::Right,
            _ => Align::Left,
        }
    }

    fn write(&self, out: &mut Vec<u8>, row: &Row<'_>, socket: &Socket<'_>, exact: bool) {
        match self.show {
            Show::Protocol => row::protocol(out, socket),
            Show::RecvQueue => row::recv_queue(out, socket),
            Show::SendQueue => row::send_queue(out, socket),
            Show::Local => row::local(out, row, socket),
            Show::Peer => row::peer(out, socket),
            Show::Key(key) => match row::cell(row, SocketField::ALL[key]) {
                Ok(taskdiag::Value::Unsigned(ns)) if KEYS[key].kind == taskdiag::Kind::Nanoseconds && !exact => {
                    row::duration(out, ns);
                }
                value => write_value(out, &KEYS[key], value, exact),
            },
        }
    }
}

/// The default columns.
fn usual_columns(info: bool) -> Vec<Column> {
    const INFO: [(&str, SocketField); 5] = [
        ("RTT", SocketField::RttNs),
        ("CWND", SocketField::CwndCount),
        ("RETRANS", SocketField::RetransmittedCount),
        ("SENT", SocketField::SentBytes),
        ("RECEIVED", SocketField::ReceivedBytes),
    ];
    let mut columns = vec![
        Column::new("PROTO", Show::Protocol),
        Column::new("STATE", Show::Key(key_of(SocketField::State))),
        Column::new("RECV-Q", Show::RecvQueue),
        Column::new("SEND-Q", Show::SendQueue),
        Column::new("LOCAL", Show::Local),
        Column::new("PEER", Show::Peer),
    ];
    if info {
        columns.extend(INFO.map(|(heading, field)| Column::new(heading, Show::Key(key_of(field)))));
    }
    columns.push(Column {
        is_for_many: true,
        ..Column::new("NETNS", Show::Key(key_of(SocketField::Netns)))
    });
    columns.push(Column::new("OWNERS", Show::Key(key_of(SocketField::Owners))));
    columns
}

/// The default keys for machine-readable output.
fn usual_keys(info: bool) -> Vec<usize> {
    let usual = Request::default().fields;
    let is_usual = |&key: &usize| {
        let field = SocketField::ALL[key];
        usual.contains(field) || info && field.is_of_tcp()
    };
    (0..KEYS.len()).filter(is_usual).collect()
}

impl Shown {
    fn new(args: &Args) -> Result<Shown, Failure> {
        if let Some(by) = args.by {
            if !args.fields.is_empty() {
                return Err(Failure::Unanswered(
                    "-o chooses fields of sockets; --by always shows the same sums".to_owned(),
                ));
            }
            return Ok(Shown::Sums(by, sums::sort_keys(&args.sort, by)?));
        }
        let chosen: Chosen<usize> = named::chosen(&args.fields, &KEYS)?;
        Ok(Shown::Sockets {
            columns: chosen.columns(usual_columns(args.info), Column::of),
            keys: chosen.keys(&usual_keys(args.info)),
            sort: named::sort_keys(&args.sort, &KEYS)?,
        })
    }

    /// The fields that are shown or sorted by.
    fn fields(&self, format: Format) -> Set<SocketField> {
        let Shown::Sockets { columns, keys, sort } = self else {
            return SocketField::Owners.into();
        };
        let of_column = |column: &Column| match column.show {
            Show::Key(key) => Some(key),
            _ => None,
        };
        let shown: Vec<usize> = match format {
            Format::Table => columns.iter().filter_map(of_column).collect(),
            Format::Machine(_) => keys.clone(),
        };
        let sorted = sort.iter().map(|by| by.key);
        shown
            .into_iter()
            .chain(sorted)
            .map(|key| SocketField::ALL[key])
            .collect()
    }
}

impl Args {
    fn is_selected(&self) -> bool {
        !self.named.is_empty() || self.selection.is_given()
    }

    /// The query for processes that may be owners. A filter that reads their names does not find
    /// this command.
    fn query(&self, shown: &Shown, request: &Request) -> Result<Query, Failure> {
        let mut fields = Field::StartNs | Field::Comm;
        if let Shown::Sums(by, _) = shown {
            fields |= by.grouping().fields.iter().copied().collect::<Fields>();
        }
        let query = if self.named.is_empty() {
            let looks_at = request.filter.as_ref().map(Filter::fields).unwrap_or_default();
            let query = self.selection.query(false)?;
            if looks_at.contains(&SocketField::Comm) && !query.scope.is_listed() {
                without(query, &own(false))?
            } else {
                query
            }
        } else {
            Query::these(self.named.iter().copied())
        };
        Ok(query.fields(fields))
    }

    fn request(&self, fields: Set<SocketField>) -> Result<Request, Failure> {
        let mut request = Request::default();
        let kinds = self.kinds.named();
        if kinds != Set::NONE {
            request.kinds = kinds;
        }
        if !self.states.is_empty() {
            request.states = self.states.iter().copied().collect();
        }
        request.listening = self.listening;
        request.ports.clone_from(&self.ports);
        request.owned = self.is_selected();
        if let Some(text) = &self.expression {
            let filter = Filter::parse_with_names(text, &users::user_named);
            let filter = filter.map_err(|error| Failure::Unanswered(format!("--where: {error}")))?;
            request.filter = Some(filter);
        }
        request.own_namespace = self.own_netns;
        request.fields = fields;
        Ok(request)
    }

    /// The fields that were requested by name, but that this kernel does not have.
    fn asked_and_unsupported(&self, unsupported: &[&'static str]) -> impl Iterator<Item = &'static str> {
        let unsupported = unsupported.to_vec();
        let asked = self.kinds.named().iter().map(Kind::name);
        asked.filter(move |name| unsupported.contains(name))
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<Outcome, Failure> {
    let shown = Shown::new(&args)?;
    let format = args.output.format();
    let request = args.request(shown.fields(format))?;
    let query = args.query(&shown, &request)?;
    let mut handle = args.from.handle();
    // An older broker lists processes, but not their descriptors: report that before querying.
    handle.prepare_files(&Snapshot::default())?;
    let processes = if request.has_owners() {
        Answers::ask(&mut handle, &query)?
    } else {
        Answers::default()
    };
    let mut report = Report::new(&args, &request, &processes);
    let answer = match &shown {
        Shown::Sockets { columns, keys, sort } => match format {
            Format::Table => report.table(&mut handle, columns, sort)?,
            Format::Machine(machine) => report.rows(&mut handle, machine, keys, sort)?,
        },
        Shown::Sums(by, sort) => report.sums(&mut handle, format, *by, sort)?,
    };
    let outcome = processes
        .report(&[])
        .and(args.selection.check_cgroup(&handle, &processes));
    Ok(outcome.and(report.report(&answer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only fields that are shown or sorted by are read.
    #[test]
    fn only_what_is_shown_is_asked_for() {
        let shown = |fields: &[usize], sort: &[usize]| Shown::Sockets {
            columns: usual_columns(false),
            keys: fields.to_vec(),
            sort: sort.iter().map(|&key| SortBy { key, descending: false }).collect(),
        };
        let json = Format::Machine(crate::listing::Machine::Json);
        let fields = [
            SocketField::State,
            SocketField::Owners,
            SocketField::RttNs,
            SocketField::Peers,
        ];
        let [state, owners, rtt, peers] = fields.map(key_of);
        assert_eq!(shown(&[state], &[]).fields(json), fields[0].into());
        assert_eq!(shown(&[state], &[rtt]).fields(json), fields[0] | fields[2]);
        assert_eq!(shown(&[owners], &[]).fields(json), fields[1].into());
        assert_eq!(shown(&[state, peers], &[]).fields(json), fields[0] | fields[3]);
        assert!(!usual_keys(true).contains(&peers));
        let table = shown(&[state], &[]).fields(Format::Table);
        assert!(table.contains(SocketField::Owners) && !table.contains(SocketField::Peers));
        assert!(!table.iter().any(SocketField::is_of_tcp));
        assert!(!usual_keys(false).contains(&rtt) && usual_keys(true).contains(&rtt));
    }
}
