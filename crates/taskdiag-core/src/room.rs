//! Memory that is used for one answer after another.

/// Lists smaller than this are left as they are.
const MIN_ROOM: usize = 1 << 12;

/// Empties a list that is filled again and again. Of memory for more than twice what was in it, half
/// is given back: what one large answer took does not stay for ever.
pub fn empty<T>(list: &mut Vec<T>) {
    let room = (2 * list.len()).max(list.capacity() / 2).max(MIN_ROOM);
    list.clear();
    list.shrink_to(room);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that memory shrinks to what is needed, and that what is needed each time is kept.
    #[test]
    fn memory_is_given_back() {
        let mut list = vec![0_u8; 1 << 24];
        let full = list.capacity();
        empty(&mut list);
        assert_eq!((list.len(), list.capacity()), (0, full));
        for _ in 0..20 {
            list.resize(10_000, 0);
            empty(&mut list);
        }
        assert!((10_000..=20_000).contains(&list.capacity()), "{}", list.capacity());
        for _ in 0..20 {
            empty(&mut list);
        }
        assert!(list.capacity() <= 2 * MIN_ROOM, "{}", list.capacity());
    }
}
