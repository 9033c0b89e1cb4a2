//! `taskdiag sockets`.

mod report;
mod row;
mod sums;

use clap::Args as ClapArgs;
use taskdiag::sockets::{Filter, Kind, Request, SocketField, State};
use taskdiag::{Field, Query, Set, Snapshot};
use taskdiag_core::socket::state_named;

use crate::choice::OrderOptions;
use crate::grouping::{self, Grouping, Groupings, SumLayout};
use crate::listing::{Answers, Format};
use crate::outcome::{say_hidden, Failure, Outcome};
use crate::output::format::OutputOptions;
use crate::output::listing::{DefaultColumns, Layout, ListingColumn};
use crate::quantity;
use crate::selection::{all_of, own, without, Processes, OF_PROCESSES};
use crate::source::SourceOptions;
use crate::users;
use report::Report;
pub use row::RELATION;
pub use sums::{of_end, Sum, OF_REMOTES, PORT, REMOTE_ADDR, REMOTE_PORT, STATE};

/// List the sockets of the machine, in all network namespaces, with the processes that have them
///
/// It takes root, or CAP_SYS_ADMIN, to look into other network namespaces, and CAP_SYS_PTRACE to
/// see the descriptors of another user's process. Rows are in the kernel's order.
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
    #[arg(long = "port", value_name = "N,…", value_delimiter = ',', value_parser = port)]
    ports: Vec<u16>,
    /// Only these states: ESTAB, LISTEN, UNCONN, TIME-WAIT and so on, in any case; or groups of states
    /// of ss: connected, synchronized, bucket, big, all
    #[arg(long = "state", value_name = "STATE,…", value_delimiter = ',', value_parser = states)]
    states: Vec<Set<State>>,
    /// Only sockets for which this is true, as in `ps --where`, over the fields of sockets and the
    /// pid, comm and fd of an owner. Several must all be true
    #[arg(long = "where", value_name = "EXPR")]
    expressions: Vec<String>,
    /// Only those of the caller's own network namespace
    #[arg(long)]
    own_netns: bool,
    /// What TCP knows of the connections, too: round trip times, windows, what was sent again. With
    /// --by, what those that live have moved; `taskdiag net` counts all, also UDP
    #[arg(long)]
    info: bool,
    /// Add up by these
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', value_parser = grouping::by_parser(GROUPINGS))]
    by: Vec<&'static Grouping>,
    #[command(flatten)]
    order: OrderOptions,
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

/// The states of a name: one, or a group as in ss(8).
fn states(name: &str) -> Result<Set<State>, String> {
    let is_connected = |state| !matches!(state, State::Unconn | State::Listen);
    let is_bucket = |state| matches!(state, State::SynRecv | State::TimeWait);
    let members = |is_in: &dyn Fn(State) -> bool| Ok(State::ALL.into_iter().filter(|&state| is_in(state)).collect());
    match name.to_ascii_lowercase().as_str() {
        "all" => members(&|_| true),
        "connected" => members(&is_connected),
        "synchronized" => members(&|state| is_connected(state) && state != State::SynSent),
        "bucket" => members(&is_bucket),
        "big" => members(&|state| !is_bucket(state)),
        _ => state_named(name)
            .map(Set::from)
            .map_err(|known| format!("{known}; groups are connected, synchronized, bucket, big, all")),
    }
}

/// The number of a port.
fn port(text: &str) -> Result<u16, String> {
    let known = "a port is a number from 0 to 65535, as `getent services NAME` says; several with commas: 80,443";
    text.parse().map_err(|_| known.to_owned())
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

/// What `--by` takes.
const GROUPINGS: &Groupings = &grouping::with::<12>(&[
    ("port", &sums::PORT, "Local port, with the protocol"),
    ("state", &sums::STATE, "State, with the family"),
    OF_REMOTES[0],
    OF_REMOTES[1],
    OF_REMOTES[2],
]);

/// What to show.
enum Content {
    Sockets(Layout),
    /// The sums, and the fields that they need.
    Sums(SumLayout, Set<SocketField>),
}

/// The column that is left out if there is only one network namespace.
const NETNS: ListingColumn = row::shown_as("NETNS", SocketField::Netns);

/// What is shown without `-o`.
pub fn usual(info: bool) -> DefaultColumns {
    let mut table = vec![
        ListingColumn::made("PROTO", &row::PROTOCOL),
        row::shown_as("STATE", SocketField::State),
        ListingColumn::made("RECV-Q", &row::RECV_QUEUE),
        ListingColumn::made("SEND-Q", &row::SEND_QUEUE),
        ListingColumn::made("LOCAL", &row::LOCAL).keeping_end(),
        ListingColumn::made("PEER", &row::PEER).keeping_end(),
    ];
    if info {
        table.extend(row::INFO);
    }
    table.extend([NETNS, row::shown_as("OWNERS", SocketField::Owners)]);
    let cheap = Request::default().fields;
    let is_usual = |field: &&SocketField| cheap.contains(**field) || info && field.is_of_tcp();
    let rows = SocketField::ALL.iter().filter(is_usual);
    DefaultColumns {
        table,
        rows: rows.map(|&field| field as usize).collect(),
    }
}

impl Content {
    fn new(args: &Args) -> Result<Content, Failure> {
        if !args.by.is_empty() {
            grouping::only_sums(&args.fields, "sockets")?;
            let layout = SumLayout::new::<Sum>(&args.by, &args.order, "-sockets_count")?;
            let mut needs: Set<SocketField> = SocketField::Owners.into();
            if args.info {
                needs |= SocketField::AckedBytes | SocketField::ReceivedBytes;
            }
            return Ok(Content::Sums(layout, needs));
        }
        let usual = usual(args.info);
        let layout = Layout::new(&RELATION, &args.fields, &args.order, usual, row::shown)?;
        Ok(Content::Sockets(layout))
    }

    /// The fields to read.
    fn needs(&self, format: Format) -> Set<SocketField> {
        match self {
            Content::Sums(_, needs) => *needs,
            Content::Sockets(layout) => {
                let needs = layout.needs(format).into_iter();
                needs.map(|column| SocketField::ALL[column]).collect()
            }
        }
    }
}

impl Args {
    fn is_selected(&self) -> bool {
        !self.named.is_empty() || self.selection.is_given()
    }

    /// The query for processes that may be owners. A filter that reads their names does not find
    /// this command.
    fn query(&self, content: &Content, request: &Request) -> Result<Query, Failure> {
        let mut fields = Field::StartNs | Field::Comm;
        if let Content::Sums(layout, _) = content {
            fields |= grouping::fields(&layout.by);
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
        if let Some(text) = all_of(&self.expressions) {
            let filter = Filter::parse_with_names(&text, &users::user_named);
            let filter = filter.map_err(|error| format!("--where: {error}"))?;
            request.filter = Some(filter);
        }
        request.own_namespace = self.own_netns;
        request.fields = fields;
        Ok(request)
    }
}

pub fn run(args: Args) -> Result<Outcome, Failure> {
    let content = Content::new(&args)?;
    let request = args.request(content.needs(args.output.format()))?;
    let query = args.query(&content, &request)?;
    let mut handle = args.from.handle();
    // An older broker lists processes, but not their descriptors: report that before querying.
    handle.prepare_files(&Snapshot::default())?;
    let processes = if request.has_owners() {
        Answers::ask(&mut handle, &query)?
    } else {
        Answers::default()
    };
    let mut report = Report::new(&args, &request, &processes);
    let answer = match &content {
        Content::Sockets(layout) => report.sockets(&mut handle, layout)?,
        Content::Sums(layout, _) => report.sums(&mut handle, layout)?,
    };
    let mut outcome = Outcome::Complete;
    // Hidden processes may be in other network namespaces.
    if !request.has_owners() && !request.own_namespace && handle.lacks_hidden(&Query::processes()) {
        outcome = say_hidden();
    }
    let outcome = outcome
        .and(processes.report(&[]))
        .and(args.selection.check_found(&mut handle, &processes));
    Ok(outcome.and(report.report(&answer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only fields that are shown or sorted by are read.
    #[test]
    fn only_what_is_shown_is_asked_for() {
        let needs = |fields: &str, sort: &[&str], format| {
            let fields: Vec<String> = fields.split_whitespace().map(str::to_owned).collect();
            let layout = Layout::new(
                &RELATION,
                &fields,
                &OrderOptions::sorted_by(sort),
                usual(false),
                row::shown,
            );
            Content::Sockets(layout.expect("columns")).needs(format)
        };
        let json = Format::Machine(crate::listing::Machine::Json);
        let rtt = SocketField::RttNs;
        assert_eq!(needs("state", &[], json), SocketField::State.into());
        assert_eq!(needs("state", &["rtt_ns"], json), SocketField::State | rtt);
        assert_eq!(needs("owners", &[], json), SocketField::Owners.into());
        assert_eq!(needs("state,peers", &[], json), SocketField::State | SocketField::Peers);
        let table = needs("", &[], Format::Table);
        assert!(table.contains(SocketField::Owners) && !table.contains(SocketField::Peers));
        assert!(!table.iter().any(SocketField::is_of_tcp));
        let has = |info, field: SocketField| usual(info).rows.contains(&(field as usize));
        assert!(!has(true, SocketField::Peers) && !has(false, rtt) && has(true, rtt));
    }
}
