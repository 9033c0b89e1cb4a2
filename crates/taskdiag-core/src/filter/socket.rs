//! Selects sockets: the same expressions, over fields of sockets.

use std::fmt;

use super::{Column, Filter, HasFields, ParseError};
use crate::absent::Absent;
use crate::counters::Undecided;
use crate::field::Field;
use crate::socket::{Row, Socket, SocketField};
use crate::value::Value;

/// What is said to those who ask for the name of a user.
const UID_HAS_NAMES: &str = ": uid has names, as in uid == 'root'";

/// An expression over fields of sockets, such as `state == 'ESTAB' and remote_port in (80, 443)`.
///
/// The language is that of [`Filter::parse`]. `pid`, `comm` and `fd` are fields of an owner: the
/// expression must be true for one owner.
///
/// ```
/// # mod taskdiag { pub mod sockets { pub use taskdiag_core::filter::SocketFilter as Filter; } pub use taskdiag_core::filter::ParseError; }
/// use taskdiag::sockets::Filter;
///
/// let filter = Filter::parse("comm == 'nginx' and state == 'CLOSE-WAIT' and recv_queue_bytes > 1M")?;
/// # Ok::<(), taskdiag::ParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SocketFilter(Filter);

impl SocketFilter {
    /// Parses an expression.
    pub fn parse(text: &str) -> Result<SocketFilter, ParseError> {
        SocketFilter::parse_with_names(text, &|_| None)
    }

    /// Parses an expression in which quoted names of users stand for their numbers.
    pub fn parse_with_names(text: &str, user: &dyn Fn(&[u8]) -> Option<u32>) -> Result<SocketFilter, ParseError> {
        let column = |word: &str| {
            let field = SocketField::of_filter(word).map(Column::from);
            let hint = if word == "user" { UID_HAS_NAMES } else { "" };
            Some(field.map_err(|error| format!("{error}{hint}")))
        };
        Filter::parse_with_columns(text, &|_, name| user(name), &|_| None, &column).map(SocketFilter)
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl SocketFilter {
    /// The fields that it reads.
    pub fn fields(&self) -> Vec<SocketField> {
        self.0.columns().into_iter().map(SocketField::of_index).collect()
    }

    /// Whether it is true for a socket with one of its owners. `None` if that depends on an absent
    /// value.
    fn decide(&self, socket: &Socket<'_>) -> Option<bool> {
        let owners = match socket.owners {
            Ok(Some(owners)) => owners,
            _ => &[],
        };
        let mut decided = self.0.decide(&Row::with_owner(socket, owners.first()));
        for owner in owners.iter().skip(1) {
            match (decided, self.0.decide(&Row::with_owner(socket, Some(owner)))) {
                (Some(true), _) => break,
                (_, Some(true)) => decided = Some(true),
                (Some(false), None) => decided = None,
                _ => {}
            }
        }
        decided
    }

    /// Whether it is true for a socket. Counts one about which absent values leave that open.
    pub fn admits(&self, socket: &Socket<'_>, undecided: &mut Undecided) -> bool {
        self.decide(socket).unwrap_or_else(|| {
            let row = Row::new(socket);
            let fields = self.fields().into_iter();
            let lacks = fields.filter_map(|field| Some((row.value(field).err()?, field.name())));
            // The kernel does not tell it of sockets of such a kind or state.
            undecided.count(lacks.filter(|&(reason, _)| reason != Absent::Unsupported));
            false
        })
    }
}

/// Writes an expression that parses to the same filter.
impl fmt::Display for SocketFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl HasFields for Row<'_> {
    fn value(&self, _: Field) -> Result<Value<'_>, Absent> {
        Err(Absent::NotAsked)
    }

    fn column_value(&self, index: usize) -> Result<Value<'_>, Absent> {
        Row::value(self, SocketField::of_index(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::tests::listener;
    use crate::socket::{Address, Endpoint, Owner};

    fn decide(text: &str, socket: &Socket<'_>) -> Option<bool> {
        SocketFilter::parse(text)
            .unwrap_or_else(|error| panic!("{error}"))
            .decide(socket)
    }

    /// Check comparisons of texts, numbers and sizes, and that a comparison with a value that a
    /// socket does not have is neither true nor false.
    #[test]
    fn sockets_are_compared() {
        let socket = listener();
        for text in [
            "state == 'LISTEN'",
            "local_port == 80 and local_addr ~ '^127'",
            "uid != 7 or state != 'LISTEN'",
            "backlog_limit_count >= 128",
            "protocol in ('tcp', 'udp')",
            "not local_port in (1, 2)",
            "inode > netns",
        ] {
            assert_eq!(decide(text, &socket), Some(true), "{text}");
        }
        assert_eq!(decide("local_port < 80", &socket), Some(false));
        for text in ["remote_port == 1", "recv_queue_bytes > 1M", "pid == 1", "not pid == 1"] {
            assert_eq!(decide(text, &socket), None, "{text}");
        }
    }

    /// Check that addresses are in networks, that IPv4 within IPv6 is IPv4, and that other texts are
    /// not addresses.
    #[test]
    fn addresses_are_in_networks() {
        let at = |text: &str| Socket {
            local: Endpoint {
                addr: Some(Address::Ip(text.parse().expect("an address"))),
                port: None,
            },
            ..listener()
        };
        for (addr, expression, expected) in [
            ("10.1.2.3", "local_addr in '10.0.0.0/8'", true),
            ("::ffff:10.1.2.3", "local_addr in '10.0.0.0/8'", true),
            ("::ffff:10.1.2.3", "local_addr not in '10.0.0.0/8'", false),
            ("::ffff:10.1.2.3", "local_addr == '10.1.2.3'", true),
            ("::ffff:10.1.2.3", "local_addr != '10.1.2.3'", false),
            ("10.1.2.3", "local_addr == '::ffff:10.1.2.3'", true),
            ("10.1.2.3", "local_addr in '::ffff:10.0.0.0/104'", true),
            ("10.1.2.3", "local_addr in '0.0.0.0/0'", true),
            ("10.1.2.3", "local_addr in '::/0'", false),
            ("11.1.2.3", "local_addr in '10.0.0.0/8'", false),
            ("11.1.2.3", "local_addr in '10.0.0.0/7'", true),
            ("11.1.2.3", "local_addr in ('10.0.0.0/8', '11.1.2.3/32')", true),
            ("fe80::1", "local_addr in 'fe80::/10'", true),
            ("fe80::1", "local_addr in '0.0.0.0/0'", false),
            ("fe80::1", "local_addr == 'FE80:0::1'", true),
            ("::ffff:10.1.2.3", "local_addr in '::/0'", true),
            ("10.1.2.3", "local_addr ~ '^10'", true),
            ("9.1.2.3", "local_addr < '10.0.0.0'", true),
            (
                "10.1.2.3",
                "local_addr == local_addr and local_addr >= local_addr",
                true,
            ),
            ("10.1.2.3", "local_addr == '2'", false),
        ] {
            assert_eq!(decide(expression, &at(addr)), Some(expected), "{addr}: {expression}");
        }
        let machine = Socket {
            local: Endpoint {
                addr: Some(Address::Cid(2)),
                port: None,
            },
            ..listener()
        };
        for (expression, expected) in [
            ("local_addr == '2'", Some(true)),
            ("local_addr == local_addr", Some(true)),
            ("local_addr in '0.0.0.0/0'", Some(false)),
            ("local_addr != '10.0.0.1'", Some(true)),
            ("local_addr < '10.0.0.1'", None),
        ] {
            assert_eq!(decide(expression, &machine), expected, "{expression}");
        }
        for text in [
            "''",
            "'x'",
            "'10.0.0.0/33'",
            "'10.0.0.0/'",
            "'::/129'",
            "'10.0.0.0/-1'",
            "10",
            "path",
        ] {
            assert!(SocketFilter::parse(&format!("local_addr == {text}")).is_err(), "{text}");
        }
        let text = "local_addr not in '10.0.0.0/8'";
        let filter = SocketFilter::parse(text).expect("a filter").to_string();
        assert_eq!(SocketFilter::parse(&filter).expect("a filter").to_string(), filter);
    }

    /// Check that one owner is enough, and that the values are taken from the same owner.
    #[test]
    fn one_owner_is_enough() {
        let owners = [
            Owner::new(7, 3, Ok(b"nginx")),
            Owner::new(8, 4, Ok(b"sh")),
            Owner::new(9, 4, Err(Absent::NotAsked)),
        ];
        let socket = Socket {
            owners: Ok(Some(&owners)),
            ..listener()
        };
        assert_eq!(decide("pid == 8 and comm == 'sh'", &socket), Some(true));
        assert_eq!(decide("comm == 'nginx' and fd == 3", &socket), Some(true));
        assert_eq!(decide("pid == 7 and fd == 4", &socket), Some(false));
        assert_eq!(decide("pid == 9 and comm == 'x'", &socket), None);
    }

    /// Check that errors are reported, and that names of users are known.
    #[test]
    fn mistakes_are_named() {
        let message = |text| SocketFilter::parse(text).expect_err(text).to_string();
        assert!(message("loca_port == 1").contains("local_port"));
        assert!(message("owners == 1").contains("unknown field"));
        assert!(message("rss_bytes > 1").contains("unknown field"));
        assert!(message("state == 1").contains("text in quotes"));
        assert!(message("limits.nofile.soft == 1").contains("unknown field"));
        let filter = SocketFilter::parse_with_names("uid == 'www'", &|name| (name == b"www").then_some(33));
        let filter = filter.expect("a name");
        assert_eq!(filter.decide(&listener()), Some(true));
        assert_eq!(
            (filter.fields(), filter.to_string()),
            (vec![SocketField::Uid], "uid == 'www'".to_owned())
        );
    }

    /// Check that values that may not be seen are distinguished from values that do not exist.
    #[test]
    fn denied_values_are_kept_back() {
        let filter = |text| SocketFilter::parse(text).expect("a filter");
        let socket = Socket {
            owners: Err(Absent::Denied),
            ..listener()
        };
        let undecided = |text| {
            let mut counts = Undecided::default();
            filter(text).admits(&socket, &mut counts);
            (counts.total(), counts.of(Absent::Denied))
        };
        assert_eq!(undecided("pid == 1"), (1, 1));
        assert_eq!(undecided("remote_port == 1"), (0, 0));
    }
}
