//! What clients may take, and who has a place. Pure.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use crate::accounts::Account;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub clients: usize,
    /// Of one user.
    pub clients_per_user: usize,
    /// Bytes of records that answers which have not been taken are made of. A user may have a third of it.
    pub bytes: usize,
    /// How long a client may leave an answer where it is.
    pub patience: Duration,
    /// Whether clients that ask the same share a pass.
    pub shares: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients: 256,
            clients_per_user: Limits::of_one_user(256),
            bytes: 512 << 20,
            patience: Duration::from_secs(10),
            shares: true,
        }
    }
}

impl Limits {
    /// Connections that are kept for root.
    pub(super) const OF_ROOT: usize = 16;

    /// Descriptors of a connection: its socket, its process, a file for it.
    const DESCRIPTORS: usize = 3;

    /// Descriptors for all else, connections that wait to be let in among it.
    const OWN: usize = 96 + 2 * super::admission::ARRIVALS;

    /// Of so many connections, those that one user may have.
    pub const fn of_one_user(clients: usize) -> usize {
        match clients * 3 / 8 {
            0 => 1,
            some => some,
        }
    }

    /// How many clients so many descriptors are enough for.
    pub fn clients_for(descriptors: u64) -> usize {
        (descriptors as usize).saturating_sub(Limits::OWN) / Limits::DESCRIPTORS
    }
}

/// The connections of each account. One that is being closed counts until it is closed.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<Account, usize>);

impl Places {
    pub(super) fn of(&self, account: Account) -> usize {
        self.0.get(&account).copied().unwrap_or(0)
    }

    pub(super) fn take(&mut self, account: Account) {
        *self.0.entry(account).or_default() += 1;
    }

    pub(super) fn give_back(&mut self, account: Account) {
        if let Some(count) = self.0.get_mut(&account) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&account);
            }
        }
    }

    /// Whether an account has all the connections that one may have. Root may have any number.
    pub(super) fn are_all_taken(&self, account: Account, limits: &Limits) -> bool {
        !account.is_root() && self.of(account) >= limits.clients_per_user
    }

    /// Whether there is room for another connection of an account. Some is kept for root.
    pub(super) fn has_room(&self, account: Account, limits: &Limits) -> bool {
        let all: usize = self.0.values().sum();
        if account.is_root() {
            return all < limits.clients;
        }
        let kept = Limits::OF_ROOT.min(limits.clients / 2);
        all + kept < limits.clients && !self.are_all_taken(account, limits)
    }

    /// The accounts whose connections may be ended to make room for one of an account, in this order: itself if it has all that
    /// one may have, else the others from the one that has the most; root's for root alone, and last.
    pub(super) fn to_end_for(&self, account: Account, limits: &Limits) -> Vec<Account> {
        if self.are_all_taken(account, limits) {
            return vec![account];
        }
        let mut accounts: Vec<Account> = self.0.keys().copied().filter(|of| !of.is_root()).collect();
        accounts.sort_by_key(|of| Reverse(self.of(*of)));
        accounts.extend(Some(account).filter(|account| account.is_root()));
        accounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Account = Account::User(0);
    const ALICE: Account = Account::User(1000);
    const BOB: Account = Account::User(1001);

    fn places(taken: &[(Account, usize)]) -> Places {
        let mut places = Places::default();
        for &(account, count) in taken {
            (0..count).for_each(|_| places.take(account));
        }
        places
    }

    /// Check that no user gets more places than one may have, that all users together leave some, and that those are root's.
    #[test]
    fn some_places_are_kept() {
        let limits = Limits::default();
        let most = limits.clients_per_user;
        assert!(places(&[(ALICE, most - 1)]).has_room(ALICE, &limits));
        let full = places(&[(ALICE, most)]);
        assert!(!full.has_room(ALICE, &limits) && full.has_room(BOB, &limits) && full.has_room(ROOT, &limits));
        let users = limits.clients - Limits::OF_ROOT;
        let crowd = places(&[(ALICE, most), (BOB, most), (Account::Unknown, users - 2 * most)]);
        let other = Account::User(1002);
        assert!(
            !crowd.has_room(other, &limits) && !crowd.are_all_taken(other, &limits) && crowd.has_room(ROOT, &limits)
        );
        let rest = places(&[(Account::Unknown, users), (ROOT, Limits::OF_ROOT)]);
        assert!(!rest.has_room(ROOT, &limits));
    }

    /// Check that a place that is given back is another's.
    #[test]
    fn places_come_back() {
        let limits = Limits {
            clients: 4,
            clients_per_user: 1,
            ..Limits::default()
        };
        let mut places = places(&[(ALICE, 1)]);
        assert!(!places.has_room(ALICE, &limits));
        places.give_back(ALICE);
        assert!(places.has_room(ALICE, &limits) && places.of(ALICE) == 0);
        // One that had none.
        places.give_back(BOB);
        assert_eq!(places.of(BOB), 0);
    }

    /// Check that who has all of its own loses its own, that others lose from the one that has the most, and root only to root.
    #[test]
    fn who_has_the_most_makes_room() {
        let limits = Limits {
            clients: 8,
            clients_per_user: 3,
            ..Limits::default()
        };
        let places = places(&[(ALICE, 3), (BOB, 1), (ROOT, 4)]);
        assert_eq!(places.to_end_for(ALICE, &limits), [ALICE]);
        assert_eq!(places.to_end_for(Account::Unknown, &limits), [ALICE, BOB]);
        assert_eq!(places.to_end_for(ROOT, &limits), [ALICE, BOB, ROOT]);
    }
}
