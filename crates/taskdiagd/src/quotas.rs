//! What clients may use, and on whose account: connections, and memory for answers. No I/O.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

/// How many connections may wait to be admitted.
pub const MAX_ARRIVALS: usize = 32;

/// The user whom a client's use is charged to. A client in a user namespace is charged to the user
/// who made the outermost one. Subordinate ids have no account of their own, in a namespace or
/// outside, because every user can have thousands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Account {
    /// A user id of the initial user namespace.
    User(u32),
    /// All clients whose user is not known.
    Unknown,
}

const ROOT: Account = Account::User(0);

impl Account {
    /// Whether it is root's account. Some connections are reserved for root.
    pub fn is_root(self) -> bool {
        self == ROOT
    }
}

/// Ids from here on are users only if something names them: containers and subordinate ids have
/// them. Systemd's services have ids below that no file names.
const FIRST_UNKNOWN: u32 = 65_536;

/// Whose account an id belongs to. A process with a subordinate id (subuid(5)) may be in no user
/// namespace: any user can make a set-uid program with such an owner.
#[derive(Debug, Default)]
pub struct Users {
    named: HashSet<u32>,
    /// The first id, the count, and the user.
    subordinate: Vec<[u32; 3]>,
    /// Other services than files name users, too (nsswitch.conf(5)).
    has_more: bool,
}

impl Users {
    /// Parses the texts of passwd(5), subuid(5) and nsswitch.conf(5).
    pub fn parse(passwd: &str, subuid: &str, nsswitch: &str) -> Users {
        let user = |line: &str| -> Option<(String, u32)> {
            let mut fields = line.split(':');
            Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
        };
        let users: HashMap<String, u32> = passwd.lines().filter_map(user).collect();
        let range = |line: &str| -> Option<[u32; 3]> {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let user = users.get(name).copied().or_else(|| name.parse().ok())?;
            Some([fields.next()?.parse().ok()?, fields.next()?.parse().ok()?, user])
        };
        let services = nsswitch.lines().filter_map(|line| line.strip_prefix("passwd:"));
        let mut services = services.flat_map(str::split_ascii_whitespace);
        Users {
            // What root's containers use is not root's.
            subordinate: subuid.lines().filter_map(range).filter(|range| range[2] != 0).collect(),
            named: users.into_values().collect(),
            has_more: services
                .any(|word| !word.contains('=') && !["files", "compat", "altfiles", "systemd"].contains(&word)),
        }
    }

    /// The account of a client: its user's, or that of the owner of its outermost user namespace if
    /// it is in one. In namespaces that root made (containers), clients count by their own user id.
    pub fn account(&self, user: u32, owner: Option<u32>) -> Account {
        match owner {
            Some(owner) if owner != 0 => self.account_of(owner),
            // Root of a container is not root.
            Some(_) if user == 0 => Account::Unknown,
            _ => self.account_of(user),
        }
    }

    fn account_of(&self, id: u32) -> Account {
        let has = |range: &&[u32; 3]| id.checked_sub(range[0]).is_some_and(|offset| offset < range[1]);
        if self.named.contains(&id) {
            return Account::User(id);
        }
        match self.subordinate.iter().find(has) {
            Some(range) => Account::User(range[2]),
            None if id >= FIRST_UNKNOWN && !self.has_more => Account::Unknown,
            None => Account::User(id),
        }
    }
}

/// The limits of one broker.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub max_clients: usize,
    /// Connections of one account.
    pub max_clients_per_user: usize,
    /// Bytes of records kept for answers that clients have not read yet. One account may use a
    /// third of them.
    pub answer_bytes: usize,
    /// How long a client may take to read an answer.
    pub patience: Duration,
    /// Whether clients with the same request share a pass.
    pub share_passes: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_clients: 256,
            max_clients_per_user: Limits::clients_per_user(256),
            answer_bytes: 512 << 20,
            patience: Duration::from_secs(10),
            share_passes: true,
        }
    }
}

impl Limits {
    /// How many connections are reserved for root. Root's own take these first.
    fn reserved_for_root(&self) -> usize {
        (self.max_clients / 2).min(16)
    }

    /// Descriptors of one connection: its socket, its pidfd, its label, a file to send, and another
    /// socket that is being closed.
    const DESCRIPTORS_PER_CLIENT: usize = 5;

    /// Descriptors for everything else, arriving connections included.
    const OTHER_DESCRIPTORS: usize = 96 + 2 * MAX_ARRIVALS;

    /// How many of `clients` connections one account may have.
    pub const fn clients_per_user(clients: usize) -> usize {
        match clients * 3 / 8 {
            0 => 1,
            some => some,
        }
    }

    /// How many clients `descriptors` descriptors can serve.
    pub fn clients_for(descriptors: u64) -> usize {
        (descriptors as usize).saturating_sub(Limits::OTHER_DESCRIPTORS) / Limits::DESCRIPTORS_PER_CLIENT
    }
}

/// How many connections each account has.
#[derive(Debug, Default)]
pub struct Connections {
    open: HashMap<Account, usize>,
    /// Connections that closers are closing. They count for nobody, but still use descriptors.
    closing: usize,
}

impl Connections {
    /// How many an account has.
    pub fn count(&self, account: Account) -> usize {
        self.open.get(&account).copied().unwrap_or(0)
    }

    /// Counts one more.
    pub fn add(&mut self, account: Account) {
        *self.open.entry(account).or_default() += 1;
    }

    /// Counts one less.
    pub fn remove(&mut self, account: Account) {
        if let Some(count) = self.open.get_mut(&account) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&account);
            }
        }
    }

    /// Records that a closer is to close a connection, whether it was counted or not.
    pub fn begin_closing(&mut self) {
        self.closing += 1;
    }

    /// Records that one is closed.
    pub fn closed(&mut self) {
        self.closing = self.closing.saturating_sub(1);
    }

    /// Whether so many are being closed that no more can be accepted.
    pub fn are_too_many_closing(&self, limits: &Limits) -> bool {
        self.closing >= limits.max_clients
    }

    /// Whether an account has reached its limit. Root has none.
    pub fn is_at_limit(&self, account: Account, limits: &Limits) -> bool {
        !account.is_root() && self.count(account) >= limits.max_clients_per_user
    }

    /// Whether an account may have one more. Some are reserved for root.
    pub fn has_room(&self, account: Account, limits: &Limits) -> bool {
        let all: usize = self.open.values().sum();
        let of_root = self.count(ROOT);
        let unused = limits.reserved_for_root().saturating_sub(of_root);
        let kept = if account.is_root() { 0 } else { unused };
        all + kept < limits.max_clients && !self.is_at_limit(account, limits)
    }

    /// Whose idle connections to close for a new one of an account, in order. An account at its
    /// limit loses its own. Otherwise the other accounts lose theirs, the largest first, and root
    /// last: for root, or if it has more than are reserved for it.
    pub fn eviction_order(&self, account: Account, limits: &Limits) -> Vec<Account> {
        if self.is_at_limit(account, limits) {
            return vec![account];
        }
        let mut accounts: Vec<Account> = self.open.keys().copied().filter(|of| !of.is_root()).collect();
        accounts.sort_by_key(|of| Reverse(self.count(*of)));
        if account.is_root() || self.count(ROOT) > limits.reserved_for_root() {
            accounts.push(ROOT);
        }
        accounts
    }
}

/// The sum of charges, in bytes of records that are kept.
#[derive(Clone, Debug, Default)]
pub struct Usage(Rc<Cell<usize>>);

impl Usage {
    /// Charges an amount, unless the sum would exceed `limit`.
    pub fn try_charge(&self, amount: usize, limit: usize) -> Option<Charge> {
        let sum = self.0.get().checked_add(amount).filter(|&sum| sum <= limit)?;
        self.0.set(sum);
        Some(Charge {
            usage: self.clone(),
            amount,
        })
    }

    /// The sum.
    pub fn charged(&self) -> usize {
        self.0.get()
    }
}

/// A charge, until it is dropped.
#[derive(Debug)]
pub struct Charge {
    usage: Usage,
    amount: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.usage.0.set(self.usage.0.get().saturating_sub(self.amount));
    }
}

/// The usage of each account.
#[derive(Debug, Default)]
pub struct UsageByAccount(HashMap<Account, Usage>);

impl UsageByAccount {
    /// The usage of an account.
    pub fn of(&mut self, account: Account) -> &Usage {
        // Do not keep accounts without charges for ever.
        if self.0.len() > 1024 {
            self.0.retain(|_, usage| usage.charged() > 0);
        }
        self.0.entry(account).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Account = Account::User(1000);
    const BOB: Account = Account::User(1001);

    fn connections(counts: &[(Account, usize)]) -> Connections {
        let mut connections = Connections::default();
        for &(account, count) in counts {
            (0..count).for_each(|_| connections.add(account));
        }
        connections
    }

    /// Check that subordinate ids count for their owner, in user namespaces and outside, and that
    /// root of a container is not root.
    #[test]
    fn subordinate_ids_count_for_their_owner() {
        let passwd = "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nfar:x:100005:7::/:/bin/sh\n";
        let subuid = "alice:100000:65536\n1001:165536:65536\nroot:1000000:65536\n#\nnobody:\n:5:7\n";
        let users = Users::parse(passwd, subuid, "group: ldap\npasswd: files [NOTFOUND=return] systemd\n");
        let is = |user, owner, account| assert_eq!(users.account(user, owner), account, "{user} {owner:?}");
        is(0, None, ROOT);
        is(0, Some(0), Account::Unknown);
        is(0, Some(1000), ALICE);
        is(100_007, Some(1000), ALICE);
        is(100_000, None, ALICE);
        is(165_535, None, ALICE);
        is(165_536, None, BOB);
        is(165_536, Some(0), BOB);
        is(1002, Some(165_536), BOB);
        is(231_072, None, Account::Unknown);
        // A container of root's.
        is(1_000_000, Some(0), Account::Unknown);
        // An account, although the file gives its id away.
        is(100_005, None, Account::User(100_005));
        // A service of systemd's.
        is(65_519, None, Account::User(65_519));
        // An id of another service may be an account.
        let more = Users::parse(passwd, subuid, "passwd: files sss\n");
        assert_eq!(more.account(231_072, None), Account::User(231_072));
        assert_eq!(more.account(100_000, None), ALICE);
        assert_eq!(Users::default().account(u32::MAX, None), Account::Unknown);
    }

    /// Check that charges never exceed the limit, and that dropping a charge returns it.
    #[test]
    fn charges_are_limited_and_given_back() {
        let mut by_account = UsageByAccount::default();
        let usage = by_account.of(Account::User(1)).clone();
        let first = usage.try_charge(7, 10).unwrap();
        assert!(usage.try_charge(4, 10).is_none() && usage.try_charge(usize::MAX, 10).is_none());
        let second = usage.try_charge(3, 10).unwrap();
        assert_eq!(by_account.of(Account::User(1)).charged(), 10);
        assert!(by_account.of(Account::User(2)).try_charge(1, 10).is_some());
        drop(first);
        assert_eq!(usage.charged(), 3);
        drop(second);
        assert_eq!(usage.charged(), 0);
    }

    /// Check that an account gets no more connections than its limit, that all users together leave
    /// some, and that root gets those.
    #[test]
    fn some_connections_are_reserved() {
        let limits = Limits::default();
        let most = limits.max_clients_per_user;
        assert!(connections(&[(ALICE, most - 1)]).has_room(ALICE, &limits));
        let full = connections(&[(ALICE, most)]);
        assert!(!full.has_room(ALICE, &limits) && full.has_room(BOB, &limits) && full.has_room(ROOT, &limits));
        let reserved = limits.reserved_for_root();
        let users = limits.max_clients - reserved;
        let crowd = connections(&[(ALICE, most), (BOB, most), (Account::Unknown, users - 2 * most)]);
        let other = Account::User(1002);
        assert!(!crowd.has_room(other, &limits) && !crowd.is_at_limit(other, &limits));
        assert!(crowd.has_room(ROOT, &limits));
        let rest = connections(&[(Account::Unknown, users), (ROOT, reserved)]);
        assert!(!rest.has_room(ROOT, &limits));
        // Root's own connections are the reserved ones first.
        assert!(connections(&[(BOB, 1), (ROOT, reserved)]).has_room(ALICE, &limits));
        assert!(connections(&[(Account::Unknown, users - 1), (ROOT, reserved)]).has_room(ALICE, &limits));
    }

    /// Check that a closed connection makes room for another.
    #[test]
    fn closed_connections_make_room() {
        let limits = Limits {
            max_clients: 4,
            max_clients_per_user: 1,
            ..Limits::default()
        };
        let mut connections = connections(&[(ALICE, 1)]);
        assert!(!connections.has_room(ALICE, &limits));
        connections.remove(ALICE);
        assert!(connections.has_room(ALICE, &limits) && connections.count(ALICE) == 0);
        // An account without connections.
        connections.remove(BOB);
        assert_eq!(connections.count(BOB), 0);
        (0..4).for_each(|_| connections.begin_closing());
        assert!(connections.has_room(ALICE, &limits) && connections.are_too_many_closing(&limits));
        connections.closed();
        assert!(!connections.are_too_many_closing(&limits));
    }

    /// Check that an account at its limit loses its own connections, that other accounts lose
    /// theirs in order of size, and that root loses last: to root, or what is not reserved for it.
    #[test]
    fn the_largest_account_is_evicted_first() {
        let limits = Limits {
            max_clients: 8,
            max_clients_per_user: 3,
            ..Limits::default()
        };
        let more = connections(&[(BOB, 1), (ROOT, 7)]);
        assert_eq!(more.eviction_order(ALICE, &limits), [BOB, ROOT]);
        let connections = connections(&[(ALICE, 3), (BOB, 1), (ROOT, 4)]);
        assert_eq!(connections.eviction_order(ALICE, &limits), [ALICE]);
        assert_eq!(connections.eviction_order(Account::Unknown, &limits), [ALICE, BOB]);
        assert_eq!(connections.eviction_order(ROOT, &limits), [ALICE, BOB, ROOT]);
    }
}
