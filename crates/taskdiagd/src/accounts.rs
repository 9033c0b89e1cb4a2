//! What clients may take, by the users who stand behind them. Pure.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// A user for whom things are counted. Who lives in user namespaces is counted as the user who made the outermost of them: subordinate ids,
/// of which everybody can have thousands, are nobody of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Account {
    /// A user id of the initial user namespace.
    User(u32),
    /// All about whom that can't be said.
    Unknown,
}

impl Account {
    /// That of a client, which has an owner if it lives in a user namespace. What root makes for others is theirs: containers.
    pub fn of(user: u32, owner: Option<u32>) -> Account {
        match owner {
            Some(owner) if owner != 0 => Account::User(owner),
            // Root of a container is not root.
            Some(_) if user == 0 => Account::Unknown,
            _ => Account::User(user),
        }
    }

    /// Whether places are kept for it.
    pub fn is_root(self) -> bool {
        self == Account::User(0)
    }
}

/// How much of something is taken.
#[derive(Clone, Debug, Default)]
pub struct Tally(Rc<Cell<usize>>);

impl Tally {
    /// Takes some, if no more than `limit` is taken then.
    pub fn take(&self, amount: usize, limit: usize) -> Option<Taken> {
        let sum = self.0.get().checked_add(amount).filter(|&sum| sum <= limit)?;
        self.0.set(sum);
        Some(Taken {
            from: self.clone(),
            amount,
        })
    }

    /// How much is.
    pub fn taken(&self) -> usize {
        self.0.get()
    }
}

/// What is taken, until it is dropped.
#[derive(Debug)]
pub struct Taken {
    from: Tally,
    amount: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.from.0.set(self.from.0.get().saturating_sub(self.amount));
    }
}

/// A tally for each account.
#[derive(Debug, Default)]
pub struct Tallies(HashMap<Account, Tally>);

impl Tallies {
    /// That of an account.
    pub fn of(&mut self, account: Account) -> &Tally {
        // Of those with nothing nothing is remembered.
        if self.0.len() > 1024 {
            self.0.retain(|_, tally| tally.taken() > 0);
        }
        self.0.entry(account).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that subordinate ids are their owner's, and that root of a container is not root.
    #[test]
    fn owners_stand_behind() {
        assert_eq!(Account::of(1000, None), Account::User(1000));
        assert_eq!(Account::of(100_007, Some(1000)), Account::User(1000));
        assert_eq!(Account::of(0, Some(1000)), Account::User(1000));
        assert_eq!(Account::of(100_007, Some(0)), Account::User(100_007));
        assert_eq!(Account::of(0, Some(0)), Account::Unknown);
        assert!(Account::of(0, None).is_root());
    }

    /// Check that no more is taken than there is, and that it comes back.
    #[test]
    fn what_is_taken_comes_back() {
        let mut tallies = Tallies::default();
        let tally = tallies.of(Account::User(1)).clone();
        let first = tally.take(7, 10).unwrap();
        assert!(tally.take(4, 10).is_none() && tally.take(usize::MAX, 10).is_none());
        let second = tally.take(3, 10).unwrap();
        assert_eq!(tallies.of(Account::User(1)).taken(), 10);
        assert!(tallies.of(Account::User(2)).take(1, 10).is_some());
        drop(first);
        assert_eq!(tally.taken(), 3);
        drop(second);
        assert_eq!(tally.taken(), 0);
    }
}
