//! The table of the fields of sockets: names, kinds and meanings, and how each value is read from a
//! socket.

use std::cell::OnceCell;
use std::fmt::{self, Write as _};

use super::{NetlinkGroups, Owner, Queues, Socket, TcpInfo};
use crate::absent::{Absent, Known};
use crate::field::UnknownField;
use crate::set::Set;
use crate::value::{Ids, Value};

crate::row_fields! {
    SocketField: "A field of sockets: a key of a row.";
    Family "family" Text "The family of its addresses: inet, inet6, unix, netlink, packet, vsock.";
    Type "type" Text "stream, dgram, raw, seqpacket, packet (obsolete), other.";
    Protocol "protocol" Text "The protocol by its name, such as tcp, udp, icmp, or route of netlink, or by its number.";
    State "state" Text "The state, as ss(8) has it: ESTAB, LISTEN, UNCONN, TIME-WAIT and so on.";
    Shutdown "shutdown" Text "Which directions are closed, by shutdown(2) or by the other side: receive, send, both; empty for none.";
    LocalAddr "local_addr" Text "The address that it is bound to; of vsock the number of the machine.";
    LocalPort "local_port" Id "The port that it is bound to; of netlink the port id.";
    RemoteAddr "remote_addr" Text "The address that it is connected to.";
    RemotePort "remote_port" Id "The port that it is connected to.";
    Ipv6Only "ipv6_only" Flag "Of IPv6, not connected: whether it takes IPv6 only (IPV6_V6ONLY), or IPv4 as well.";
    Interface "interface" Text "The network interface that it is bound to.";
    Path "path" Text "The name of a UNIX socket. An abstract name begins with @ in place of its first NUL; a path that begins with @ is written as ./@.";
    PeerInode "peer_inode" Id "The inode number of the UNIX socket at the other end.";
    NetlinkGroups "netlink_groups" Ids "The numbers of the multicast groups that a netlink socket has joined.";
    Inode "inode" Id "The inode number, which readlink(2) shows of its descriptors.";
    Uid "uid" User "The user who created it.";
    Netns "netns" Id "The inode number of its network namespace.";
    RecvQueueBytes "recv_queue_bytes" Bytes "What was received and not read.";
    SendQueueBytes "send_queue_bytes" Bytes "What was sent, and not confirmed or not taken by the other side.";
    BacklogCount "backlog_count" Count "Of a socket that listens: the number of connections that were not accepted.";
    BacklogLimitCount "backlog_limit_count" Count "Of a socket that listens: the number of connections that can wait.";
    Timer "timer" Text "The timer that runs, as ss(8) has it: on (sending again), keepalive, timewait, persist.";
    TimerNs "timer_ns" Nanoseconds "The time that is left of the timer.";
    RetransmitsCount "retransmits_count" Count "How often the timer has run out in a row.";
    Mark "mark" Mask "The mark of its packets (SO_MARK). It takes CAP_NET_ADMIN to see it.";
    CgroupId "cgroup_id" Id "The id of the cgroup that it was created in.";
    RttNs "rtt_ns" Nanoseconds "TCP: the round trip time, smoothed.";
    RttVarNs "rtt_var_ns" Nanoseconds "TCP: how much the round trip time varies.";
    MinRttNs "min_rtt_ns" Nanoseconds "TCP: the shortest round trip time.";
    RtoNs "rto_ns" Nanoseconds "TCP: how long it waits for a confirmation before it sends again.";
    MssBytes "mss_bytes" Bytes "TCP: the length of what it sends in one packet.";
    CwndCount "cwnd_count" Count "TCP: the congestion window, in packets.";
    SsthreshCount "ssthresh_count" Count "TCP: the slow start threshold, in packets.";
    UnackedCount "unacked_count" Count "TCP: packets that were sent and not confirmed.";
    LostCount "lost_count" Count "TCP: packets that are thought to be lost.";
    RetransmittedCount "retransmitted_count" Count "TCP: packets that were sent again, in all.";
    SentBytes "sent_bytes" Bytes "TCP: what was sent, also again.";
    RetransmittedBytes "retransmitted_bytes" Bytes "TCP: what was sent again.";
    AckedBytes "acked_bytes" Bytes "TCP: what the other side has confirmed.";
    ReceivedBytes "received_bytes" Bytes "TCP: what was received.";
    NotsentBytes "notsent_bytes" Bytes "TCP: what it was given and has not sent.";
    DeliveryRateBytes "delivery_rate_bytes" Bytes "TCP: how much arrived at the other side in a second.";
    Congestion "congestion" Text "TCP: the algorithm of congestion control.";
    Peers "peers" Texts "The descriptors of the socket at the other end: pid, comm and fd of each. With -o peers.";
    Owners "owners" Texts "The descriptors that processes have of it: pid, comm and fd of each.";
    Pid "pid" Id "A process that has a descriptor of it.";
    Comm "comm" Text "The name of that process.";
    Fd "fd" Id "The number of the descriptor.";
}

impl SocketField {
    /// All fields of rows. Filters also have the fields of an owner.
    pub const ALL: &'static [SocketField] = SocketField::EVERY.split_at(SocketField::EVERY.len() - 3).0;
}

/// For the other crates of this project.
#[doc(hidden)]
impl SocketField {
    /// The fields of a request by default: all except those that need the descriptors of all
    /// processes, and those that only TCP has.
    pub fn usual() -> Set<SocketField> {
        let all = SocketField::ALL.iter().copied();
        all.filter(|&field| field != SocketField::Peers && !field.is_of_tcp())
            .collect()
    }

    /// Whether it is information about a TCP connection.
    pub fn is_of_tcp(self) -> bool {
        (SocketField::RttNs..=SocketField::Congestion).contains(&self)
    }

    /// The field with this name, for a filter.
    pub fn of_filter(name: &str) -> Result<SocketField, UnknownField> {
        // Owners are compared by their own fields.
        let is_list = |field: &SocketField| matches!(field, SocketField::Owners | SocketField::Peers);
        let fields = || SocketField::EVERY.iter().copied().filter(|field| !is_list(field));
        // Headings of the listing are names, too: `STATE`, `RTT`.
        let heading = name.to_ascii_lowercase();
        let unit = |field: &SocketField| field.name().strip_prefix(heading.as_str());
        let found = fields().find(|field| unit(field).is_some_and(|unit| ["", "_ns", "_bytes"].contains(&unit)));
        found.ok_or_else(|| UnknownField::new(name, fields().map(SocketField::name)))
    }
}

/// A socket as a row: its values by field.
#[derive(Debug)]
pub struct Row<'a> {
    socket: &'a Socket<'a>,
    owner: Option<&'a Owner>,
    protocol: OnceCell<String>,
    local: OnceCell<String>,
    remote: OnceCell<String>,
    path: OnceCell<Vec<u8>>,
    groups: OnceCell<Vec<u8>>,
}

impl<'a> Row<'a> {
    /// A socket as a row.
    pub fn new(socket: &'a Socket<'a>) -> Row<'a> {
        Row {
            socket,
            owner: None,
            protocol: OnceCell::new(),
            local: OnceCell::new(),
            remote: OnceCell::new(),
            path: OnceCell::new(),
            groups: OnceCell::new(),
        }
    }

    /// A socket with one of its owners.
    #[doc(hidden)]
    pub fn with_owner(socket: &'a Socket<'a>, owner: Option<&'a Owner>) -> Row<'a> {
        Row {
            owner,
            ..Row::new(socket)
        }
    }

    /// The value of a field. [`Absent::NotApplicable`] if such a socket has none.
    pub fn value(&self, field: SocketField) -> Known<Value<'_>> {
        let socket = self.socket;
        let word = |word: &'static str| Some(Value::Text(word.as_bytes()));
        let value = match field {
            SocketField::Family => word(socket.family.name()),
            SocketField::Type => word(socket.socket_type.name()),
            SocketField::Protocol => written(&self.protocol, socket.protocol),
            SocketField::State => word(socket.state.name()),
            SocketField::Shutdown => socket.shutdown?.and_then(|closed| word(closed.name())),
            SocketField::LocalAddr => written(&self.local, socket.local.addr),
            SocketField::LocalPort => socket.local.port.map(Value::from),
            SocketField::RemoteAddr => written(&self.remote, socket.remote.addr),
            SocketField::RemotePort => socket.remote.port.map(Value::from),
            SocketField::Ipv6Only => socket.ipv6_only?.map(Value::Flag),
            SocketField::Interface => socket.interface?.map(Value::Text),
            SocketField::Path => socket.path.map(|path| Value::Text(self.path(path))),
            SocketField::PeerInode => socket.peer_inode.map(Value::from),
            SocketField::NetlinkGroups => socket.netlink_groups.map(|groups| Value::Ids(self.groups(groups))),
            SocketField::Inode => socket.inode.map(Value::from),
            SocketField::Uid => Some(socket.uid?.into()),
            SocketField::Netns if socket.netns == 0 => return Err(Absent::Unsupported),
            SocketField::Netns => Some(socket.netns.into()),
            SocketField::RecvQueueBytes | SocketField::SendQueueBytes => self.data(field)?,
            SocketField::BacklogCount | SocketField::BacklogLimitCount => self.backlog(field)?,
            SocketField::Timer => socket.timer.and_then(|timer| word(timer.kind.name())),
            SocketField::TimerNs => socket.timer.map(|timer| timer.left_ns.into()),
            SocketField::RetransmitsCount => socket.timer.map(|timer| timer.retransmits.into()),
            SocketField::Mark => socket.mark?.map(|mark| Value::Mask(mark.into())),
            SocketField::CgroupId => socket.cgroup_id?.map(Value::Unsigned),
            SocketField::Owners => socket.owners?.map(Value::Owners),
            SocketField::Peers => socket.peers?.map(Value::Owners),
            SocketField::Pid | SocketField::Comm | SocketField::Fd => self.of_owner(field)?,
            _ => socket
                .info
                .as_ref()
                .map_err(|&reason| reason)?
                .as_ref()
                .and_then(|info| of_info(info, field)),
        };
        value.ok_or(Absent::NotApplicable)
    }

    fn groups(&self, groups: NetlinkGroups<'_>) -> Ids<'_> {
        Ids::new(
            self.groups
                .get_or_init(|| groups.iter().flat_map(u32::to_ne_bytes).collect()),
        )
    }

    /// The name of a UNIX socket as text.
    fn path(&self, path: &'a [u8]) -> &[u8] {
        match path {
            [0, name @ ..] => self.path.get_or_init(|| [b"@", name].concat()),
            // The same path, but not the same text as an abstract name.
            [b'@', ..] => self.path.get_or_init(|| [b"./", path].concat()),
            path => path,
        }
    }

    fn data(&self, field: SocketField) -> Known<Option<Value<'_>>> {
        let is_send = field == SocketField::SendQueueBytes;
        Ok(match self.socket.queues? {
            Queues::Data { send_bytes, .. } if is_send => Some(send_bytes.into()),
            Queues::Data { recv_bytes, .. } => Some(recv_bytes.into()),
            Queues::Backlog { .. } => None,
        })
    }

    fn backlog(&self, field: SocketField) -> Known<Option<Value<'_>>> {
        let is_limit = field == SocketField::BacklogLimitCount;
        Ok(match self.socket.queues {
            Ok(Queues::Backlog { limit, .. }) if is_limit => Some(limit.into()),
            Ok(Queues::Backlog { count, .. }) => Some(count.into()),
            Ok(Queues::Data { .. }) => None,
            Err(reason) if self.socket.state == super::State::Listen => return Err(reason),
            Err(_) => None,
        })
    }

    fn of_owner(&self, field: SocketField) -> Known<Option<Value<'_>>> {
        let Some(owner) = self.owner else {
            return match self.socket.owners {
                Err(reason) => Err(reason),
                Ok(_) => Ok(None),
            };
        };
        match (field, &owner.comm) {
            (SocketField::Pid, _) => Ok(Some(owner.pid.into())),
            (SocketField::Fd, _) => Ok(Some(owner.fd.into())),
            (_, Ok(comm)) => Ok(Some(Value::Text(comm))),
            (_, Err(reason)) => Err(*reason),
        }
    }
}

/// A value as text, which is made only once.
fn written(cell: &OnceCell<String>, value: Option<impl fmt::Display>) -> Option<Value<'_>> {
    let value = value?;
    let text = cell.get_or_init(|| {
        let mut text = String::new();
        // Writing into memory can't fail.
        let _ = write!(text, "{value}");
        text
    });
    Some(Value::Text(text.as_bytes()))
}

/// The value of a field of TCP_INFO.
fn of_info(info: &TcpInfo, field: SocketField) -> Option<Value<'_>> {
    match field {
        SocketField::RttNs => info.rtt_ns.map(Value::from),
        SocketField::RttVarNs => info.rtt_var_ns.map(Value::from),
        SocketField::MinRttNs => info.min_rtt_ns.map(Value::from),
        SocketField::RtoNs => info.rto_ns.map(Value::from),
        SocketField::MssBytes => info.mss_bytes.map(Value::from),
        SocketField::CwndCount => info.cwnd_count.map(Value::from),
        SocketField::SsthreshCount => info.ssthresh_count.map(Value::from),
        SocketField::UnackedCount => info.unacked_count.map(Value::from),
        SocketField::LostCount => info.lost_count.map(Value::from),
        SocketField::RetransmittedCount => info.retransmitted_count.map(Value::from),
        SocketField::SentBytes => info.sent_bytes.map(Value::from),
        SocketField::RetransmittedBytes => info.retransmitted_bytes.map(Value::from),
        SocketField::AckedBytes => info.acked_bytes.map(Value::from),
        SocketField::ReceivedBytes => info.received_bytes.map(Value::from),
        SocketField::NotsentBytes => info.notsent_bytes.map(Value::from),
        SocketField::DeliveryRateBytes => info.delivery_rate_bytes.map(Value::from),
        SocketField::Congestion => info.congestion().map(Value::Text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::{Address, Endpoint, Family, Protocol, State, Type};
    use super::*;

    fn text<'a>(row: &'a Row<'_>, field: SocketField) -> Option<&'a [u8]> {
        match row.value(field) {
            Ok(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Check that names are unique, and which fields belong to owners.
    #[test]
    fn fields_have_names() {
        let all = SocketField::EVERY;
        for (index, field) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other.name() != field.name()), "{field}");
            assert!(!field.meaning().is_empty());
        }
        let of_owner = &all[SocketField::ALL.len()..];
        assert_eq!(of_owner, [SocketField::Pid, SocketField::Comm, SocketField::Fd]);
        assert_eq!(SocketField::ALL.last(), Some(&SocketField::Owners));
    }

    /// Check that values are texts and numbers, and that a socket has no value for what does not
    /// apply to it.
    #[test]
    fn rows_have_values() {
        let mut socket = Socket::new(Family::Inet6, Type::Stream, State::Listen, 0);
        socket.protocol = Some(Protocol::Ip(6));
        socket.local = Endpoint {
            addr: Some(Address::Ip(IpAddr::from([0; 16]))),
            port: Some(80),
        };
        socket.queues = Ok(Queues::Backlog { count: 1, limit: 128 });
        let row = Row::new(&socket);
        assert_eq!(text(&row, SocketField::Protocol), Some(&b"tcp"[..]));
        assert_eq!(text(&row, SocketField::LocalAddr), Some(&b"::"[..]));
        assert_eq!(row.value(SocketField::LocalPort), Ok(Value::Unsigned(80)));
        assert_eq!(row.value(SocketField::RemoteAddr), Err(Absent::NotApplicable));
        assert_eq!(row.value(SocketField::RecvQueueBytes), Err(Absent::NotApplicable));
        assert_eq!(row.value(SocketField::BacklogLimitCount), Ok(Value::Unsigned(128)));
        assert_eq!(row.value(SocketField::Pid), Err(Absent::NotAsked));
        assert_eq!(row.value(SocketField::Uid), Err(Absent::Unsupported));
        assert_eq!(row.value(SocketField::Netns), Err(Absent::Unsupported));
        socket.info = Err(Absent::NoAnswer);
        assert_eq!(Row::new(&socket).value(SocketField::RttNs), Err(Absent::NoAnswer));
    }

    /// Check that abstract names begin with an @, and that no path and no other name has the same
    /// text.
    #[test]
    fn abstract_names_begin_with_an_at() {
        let mut socket = Socket::new(Family::Unix, Type::Stream, State::Listen, 0);
        socket.path = Some(b"\0a\0b");
        assert_eq!(text(&Row::new(&socket), SocketField::Path), Some(&b"@a\0b"[..]));
        socket.path = Some(b"\0a@b");
        assert_eq!(text(&Row::new(&socket), SocketField::Path), Some(&b"@a@b"[..]));
        socket.path = Some(b"@a@b");
        assert_eq!(text(&Row::new(&socket), SocketField::Path), Some(&b"./@a@b"[..]));
        socket.path = Some(b"/run/x\xff");
        assert_eq!(text(&Row::new(&socket), SocketField::Path), Some(&b"/run/x\xff"[..]));
    }

    /// Check the values of an owner, and that a socket without an owner has none.
    #[test]
    fn owners_are_rows_of_their_own() {
        let owner = Owner::new(7, 3, Ok(b"nginx"));
        let socket = Socket {
            owners: Ok(Some(&[])),
            ..Socket::new(Family::Unix, Type::Stream, State::Listen, 0)
        };
        let row = Row::with_owner(&socket, Some(&owner));
        assert_eq!(row.value(SocketField::Pid), Ok(Value::Unsigned(7)));
        assert_eq!(text(&row, SocketField::Comm), Some(&b"nginx"[..]));
        assert_eq!(
            Row::with_owner(&socket, None).value(SocketField::Fd),
            Err(Absent::NotApplicable)
        );
    }
}
