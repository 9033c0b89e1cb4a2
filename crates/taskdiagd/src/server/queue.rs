//! A fair queue of clients. No I/O.

use std::collections::VecDeque;

use crate::helpers::pool::ClientId;

/// Waiting clients by key: an account or a process. Keys take turns, however many clients wait
/// under each.
#[derive(Debug)]
pub(super) struct FairQueue<K>(VecDeque<(K, VecDeque<ClientId>)>);

impl<K> Default for FairQueue<K> {
    fn default() -> FairQueue<K> {
        FairQueue(VecDeque::new())
    }
}

impl<K: Copy + Eq> FairQueue<K> {
    /// Adds a client, unless it waits already.
    pub(super) fn push(&mut self, key: K, client: ClientId) {
        match self.0.iter_mut().find(|(of, _)| *of == key) {
            Some((_, clients)) if clients.contains(&client) => {}
            Some((_, clients)) => clients.push_back(client),
            None => self.0.push_back((key, VecDeque::from([client]))),
        }
    }

    /// Removes the client whose turn it is.
    pub(super) fn pop(&mut self) -> Option<ClientId> {
        self.pop_where(|_| true)
    }

    /// Removes the client whose turn it is among the keys that `may_have_turn` accepts. The other
    /// keys keep their turns.
    pub(super) fn pop_where(&mut self, may_have_turn: impl Fn(K) -> bool) -> Option<ClientId> {
        let next = self.0.iter().position(|(key, _)| may_have_turn(*key))?;
        let (key, mut clients) = self.0.remove(next)?;
        let first = clients.pop_front();
        if !clients.is_empty() {
            self.0.push_back((key, clients));
        }
        first
    }

    /// Removes a client from anywhere in the queue.
    pub(super) fn remove(&mut self, client: ClientId) {
        for (_, clients) in &mut self.0 {
            clients.retain(|&other| other != client);
        }
        self.0.retain(|(_, clients)| !clients.is_empty());
    }

    /// The keys under which clients wait.
    pub(super) fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.0.iter().map(|(key, _)| *key)
    }

    /// All clients that wait.
    pub(super) fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.0.iter().flat_map(|(_, clients)| clients).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(_, clients)| clients.len()).sum()
    }

    /// The last client of the key with the most clients, if it has more than one.
    pub(super) fn last_of_largest(&self) -> Option<ClientId> {
        let (_, clients) = self.0.iter().max_by_key(|(_, clients)| clients.len())?;
        clients.back().copied().filter(|_| clients.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::SlotId;

    /// Some clients, and a queue of them under these keys.
    fn queue<const N: usize>(keys: [char; N]) -> (FairQueue<char>, [ClientId; N]) {
        let mut queue = FairQueue::default();
        let mut number = 0;
        let clients = keys.map(|key| {
            let client = SlotId::from_bits(number);
            number += 1;
            queue.push(key, client);
            client
        });
        (queue, clients)
    }

    /// Check that keys take turns, however many clients wait under each.
    #[test]
    fn keys_take_turns() {
        let (mut queue, [a1, a2, a3, b1, c1, b2]) = queue(['a', 'a', 'a', 'b', 'c', 'b']);
        assert_eq!(queue.len(), 6);
        let order: Vec<ClientId> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [a1, b1, c1, a2, b2, a3]);
        assert!(queue.is_empty());
    }

    /// Check that a client that is added again has one turn.
    #[test]
    fn a_client_has_one_turn() {
        let (mut queue, [a1, a2]) = queue(['a', 'a']);
        queue.push('a', a1);
        queue.push('a', a2);
        assert_eq!(queue.len(), 2);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(a1), Some(a2), None));
    }

    /// Check that a key that may not have a turn keeps it, and delays no other.
    #[test]
    fn a_key_that_has_to_wait_keeps_its_turn() {
        let (mut queue, [a1, b1, b2, a2]) = queue(['a', 'b', 'b', 'a']);
        let others: Vec<ClientId> = std::iter::from_fn(|| queue.pop_where(|key| key != 'a')).collect();
        assert_eq!(others, [b1, b2]);
        assert_eq!(queue.keys().collect::<Vec<_>>(), ['a']);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(a1), Some(a2), None));
    }

    /// Check that a removed client gets no turn, and that only a key with more than one client can
    /// lose its last.
    #[test]
    fn removed_clients_have_no_turn() {
        let (mut queue, [a1, b1, b2]) = queue(['a', 'b', 'b']);
        assert_eq!(queue.last_of_largest(), Some(b2));
        queue.remove(b2);
        queue.remove(SlotId::from_bits(7));
        assert_eq!(queue.last_of_largest(), None);
        assert_eq!(queue.clients().collect::<Vec<_>>(), [a1, b1]);
        queue.remove(a1);
        assert_eq!((queue.pop(), queue.pop()), (Some(b1), None));
    }
}
