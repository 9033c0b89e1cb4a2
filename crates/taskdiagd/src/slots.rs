//! A table whose entries are found by ids that are not reused. Used for clients and helpers; their
//! ids are also the tokens of their events.

/// Identifies an entry: the index of its slot, and how many entries were added before it, modulo
/// 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId {
    index: u32,
    generation: u32,
}

impl SlotId {
    /// The id as one number. Bit 31 is never set: indexes are smaller.
    pub fn to_bits(self) -> u64 {
        u64::from(self.index) | u64::from(self.generation) << 32
    }

    /// The inverse of [`to_bits`](SlotId::to_bits).
    pub fn from_bits(bits: u64) -> SlotId {
        SlotId {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// The table.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Option<(u32, T)>>,
    free: Vec<u32>,
    last_generation: u32,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots {
            slots: Vec::new(),
            free: Vec::new(),
            last_generation: 0,
        }
    }
}

impl<T> Slots<T> {
    /// Adds an entry.
    pub fn insert(&mut self, value: T) -> SlotId {
        self.last_generation = self.last_generation.wrapping_add(1);
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let generation = self.last_generation;
        self.slots[index as usize] = Some((generation, value));
        SlotId { index, generation }
    }

    /// Removes an entry. `None` if it was already removed.
    pub fn remove(&mut self, id: SlotId) -> Option<T> {
        self.get(id)?;
        self.free.push(id.index);
        let (_, value) = self.slots[id.index as usize].take()?;
        Some(value)
    }

    /// An entry, unless it was removed.
    pub fn get(&self, id: SlotId) -> Option<&T> {
        match self.slots.get(id.index as usize)? {
            Some((generation, value)) if *generation == id.generation => Some(value),
            _ => None,
        }
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        match self.slots.get_mut(id.index as usize)? {
            Some((generation, value)) if *generation == id.generation => Some(value),
            _ => None,
        }
    }

    /// All entries with their ids, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (SlotId, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let (generation, value) = slot.as_ref()?;
            let id = SlotId {
                index: index as u32,
                generation: *generation,
            };
            Some((id, value))
        })
    }

    /// All entries, by slot.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a slot is reused, and that the id of its earlier entry finds nothing.
    #[test]
    fn ids_are_not_reused() {
        let mut slots = Slots::default();
        let [first, second] = ["first", "second"].map(|name| slots.insert(name));
        assert_eq!(slots.remove(first), Some("first"));
        assert_eq!(slots.remove(first), None);
        let third = slots.insert("third");
        assert_eq!((third.index, slots.get(first)), (first.index, None));
        assert_eq!((slots.get(third), slots.get(second)), (Some(&"third"), Some(&"second")));
        assert_eq!(slots.get_mut(first), None);
        let all: Vec<_> = slots.iter().collect();
        assert_eq!(all, [(third, &"third"), (second, &"second")]);
    }

    /// Check that converting an id to an event's token and back keeps it.
    #[test]
    fn ids_are_tokens() {
        let mut slots = Slots::default();
        let ids = [(); 3].map(|()| slots.insert(()));
        for id in ids {
            assert_eq!(SlotId::from_bits(id.to_bits()), id);
        }
    }
}
