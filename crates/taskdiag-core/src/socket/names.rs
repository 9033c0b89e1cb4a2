//! Names of protocols.

use std::collections::BTreeSet;

use super::Protocol;

/// The name of a protocol, if it has one.
pub(super) fn protocol(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Ip(number) => ip(number),
        Protocol::Netlink(number) => netlink(number),
        Protocol::Ether(number) => ether(number),
    }
}

/// All names of protocols.
pub(crate) fn protocols() -> Vec<&'static str> {
    let numbers = 0..=u16::MAX;
    let of = |number| [ip(number), u8::try_from(number).ok().and_then(netlink), ether(number)];
    let names: BTreeSet<&str> = numbers.flat_map(of).flatten().collect();
    names.into_iter().collect()
}

/// Whether this is the name or number of a protocol. Netlink has 32.
pub(crate) fn is_protocol(text: &str) -> bool {
    use Protocol::{Ether, Ip, Netlink};
    let of = |number| [Ip(number), Netlink(number as u8 % 32), Ether(number)];
    (0..=u16::MAX).flat_map(of).any(|protocol| protocol.to_string() == text)
}

/// `IPPROTO_*` of `linux/in.h`, with the names of protocols(5).
fn ip(number: u16) -> Option<&'static str> {
    Some(match number {
        0 => "ip",
        1 => "icmp",
        2 => "igmp",
        4 => "ipencap",
        6 => "tcp",
        17 => "udp",
        41 => "ipv6",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "ipv6-icmp",
        89 => "ospf",
        103 => "pim",
        112 => "vrrp",
        132 => "sctp",
        136 => "udplite",
        255 => "raw",
        262 => "mptcp",
        _ => return None,
    })
}

/// `NETLINK_*` of `linux/netlink.h`, with the names of netlink(7).
fn netlink(number: u8) -> Option<&'static str> {
    Some(match number {
        0 => "route",
        2 => "usersock",
        3 => "firewall",
        4 => "sock_diag",
        5 => "nflog",
        6 => "xfrm",
        7 => "selinux",
        8 => "iscsi",
        9 => "audit",
        10 => "fib_lookup",
        11 => "connector",
        12 => "netfilter",
        13 => "ip6_fw",
        15 => "kobject_uevent",
        16 => "generic",
        18 => "scsitransport",
        19 => "ecryptfs",
        20 => "rdma",
        21 => "crypto",
        22 => "smc",
        _ => return None,
    })
}

/// `ETH_P_*` of `linux/if_ether.h`.
fn ether(number: u16) -> Option<&'static str> {
    Some(match number {
        3 => "all",
        0x0800 => "ip",
        0x0806 => "arp",
        0x8100 => "802.1q",
        0x86dd => "ipv6",
        0x8863 => "pppoe-discovery",
        0x8864 => "pppoe-session",
        0x888e => "pae",
        0x88cc => "lldp",
        _ => return None,
    })
}
