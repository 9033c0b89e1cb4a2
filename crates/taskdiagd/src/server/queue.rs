//! Who waits, and whose turn it is. Pure.

use std::collections::VecDeque;

/// Who waits, by those on whose behalf, who take turns.
#[derive(Debug)]
pub(super) struct Queue<K>(VecDeque<(K, VecDeque<usize>)>);

impl<K> Default for Queue<K> {
    fn default() -> Queue<K> {
        Queue(VecDeque::new())
    }
}

impl<K: Copy + Eq> Queue<K> {
    pub(super) fn push(&mut self, account: K, index: usize) {
        match self.0.iter_mut().find(|(of, _)| *of == account) {
            Some((_, waiting)) => waiting.push_back(index),
            None => self.0.push_back((account, VecDeque::from([index]))),
        }
    }

    pub(super) fn pop(&mut self) -> Option<usize> {
        self.pop_where(|_| true)
    }

    /// The next whose turn it is of those on whose behalf this holds. The others keep their turns.
    pub(super) fn pop_where(&mut self, is_meant: impl Fn(K) -> bool) -> Option<usize> {
        let next = self.0.iter().position(|(account, _)| is_meant(*account))?;
        let (account, mut waiting) = self.0.remove(next)?;
        let first = waiting.pop_front();
        if !waiting.is_empty() {
            self.0.push_back((account, waiting));
        }
        first
    }

    pub(super) fn remove(&mut self, index: usize) {
        for (_, waiting) in &mut self.0 {
            waiting.retain(|&other| other != index);
        }
        self.0.retain(|(_, waiting)| !waiting.is_empty());
    }

    /// On whose behalf anybody waits.
    pub(super) fn accounts(&self) -> impl Iterator<Item = K> + '_ {
        self.0.iter().map(|(account, _)| *account)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flat_map(|(_, waiting)| waiting).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(_, waiting)| waiting.len()).sum()
    }

    /// The last of those on whose behalf the most wait, if that is more than one.
    pub(super) fn one_of_many(&self) -> Option<usize> {
        let (_, waiting) = self.0.iter().max_by_key(|(_, waiting)| waiting.len())?;
        waiting.back().copied().filter(|_| waiting.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that those take turns on whose behalf others wait, however many those are.
    #[test]
    fn accounts_take_turns() {
        let mut queue = Queue::default();
        for (account, index) in [('a', 0), ('a', 1), ('a', 2), ('b', 3), ('c', 4), ('b', 5)] {
            queue.push(account, index);
        }
        assert_eq!(queue.len(), 6);
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [0, 3, 4, 1, 5, 2]);
        assert!(queue.is_empty());
    }

    /// Check that an account that may not come now keeps its turn, and keeps nobody else from theirs.
    #[test]
    fn who_may_not_come_keeps_its_turn() {
        let mut queue = Queue::default();
        for (account, index) in [('a', 0), ('b', 1), ('b', 2), ('a', 3)] {
            queue.push(account, index);
        }
        let others: Vec<usize> = std::iter::from_fn(|| queue.pop_where(|account| account != 'a')).collect();
        assert_eq!(others, [1, 2]);
        assert_eq!(queue.accounts().collect::<Vec<_>>(), ['a']);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(0), Some(3), None));
    }

    /// Check that one that leaves is not waited for, and that only where more than one waits somebody gives way.
    #[test]
    fn who_leaves_is_forgotten() {
        let mut queue = Queue::default();
        for (account, index) in [('a', 0), ('b', 1), ('b', 2)] {
            queue.push(account, index);
        }
        assert_eq!(queue.one_of_many(), Some(2));
        queue.remove(2);
        queue.remove(7);
        assert_eq!(queue.one_of_many(), None);
        assert_eq!(queue.each().collect::<Vec<_>>(), [0, 1]);
        queue.remove(0);
        assert_eq!((queue.pop(), queue.pop()), (Some(1), None));
    }
}
