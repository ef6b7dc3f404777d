//! Tables of bounded size; entries without room are counted.
//!
//! [`BoundedMap`] is the one table, with a rule for a full one. [`Ranges`] keeps runs of pages or blocks in it: a range of any length
//! is one entry. Each operation takes log n of the entries kept. One that changes several entries takes that for each, and changes
//! at most [`MOST_PIECES`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Range, RangeBounds};

/// Most entries that one change of a range visits; beyond, the rest of the range is unchanged.
pub const MOST_PIECES: usize = 1024;

/// Name of the group of all entries without a group of their own.
pub const FURTHER: &str = "(further ones)";

/// What a full table does with a further entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The new entry is not taken.
    Refuse,
    /// The oldest entry is removed.
    ForgetOldest,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// Insertion number.
    since: u64,
}

/// A map of at most `most` entries.
#[derive(Debug)]
pub struct BoundedMap<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    /// Keys in order of insertion, some of them removed since. Empty where new entries are refused.
    order: VecDeque<(K, u64)>,
    most: usize,
    full: Full,
    put_in: u64,
    lost: u64,
}

impl<K: Ord + Copy, V> BoundedMap<K, V> {
    pub fn new(most: usize, full: Full) -> BoundedMap<K, V> {
        BoundedMap { entries: BTreeMap::new(), order: VecDeque::new(), most, full, put_in: 0, lost: 0 }
    }

    /// Entries that were refused.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Entries in order of keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }

    pub fn range(&self, range: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.entries.range(range).map(|(key, entry)| (key, &entry.value))
    }

    /// Inserts or replaces a value. Returns the entry without room: the oldest one, or this one.
    pub fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.value = value;
            return None;
        }
        let mut without_room = None;
        if self.entries.len() >= self.most {
            self.lost += 1;
            if self.full == Full::Refuse || self.most == 0 {
                return Some((key, value));
            }
            without_room = self.forget_oldest();
        }
        self.put_in += 1;
        self.entries.insert(key, Entry { value, since: self.put_in });
        if self.full == Full::ForgetOldest {
            self.order.push_back((key, self.put_in));
            self.tidy();
        }
        without_room
    }

    /// The value of a key, created where it is missing; `None` where there is no room, which is counted.
    pub fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> Option<&mut V> {
        if !self.contains_key(&key) {
            if self.full == Full::Refuse && self.entries.len() >= self.most {
                self.lost += 1;
                return None;
            }
            self.insert(key, make());
        }
        self.get_mut(&key)
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key).map(|entry| entry.value)
    }

    /// Removes all entries; what had no room stays counted.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    /// Removes the oldest entry of a table that forgets. The caller counts it.
    pub fn forget_oldest(&mut self) -> Option<(K, V)> {
        while let Some((key, since)) = self.order.pop_front() {
            if self.entries.get(&key).is_some_and(|entry| entry.since == since) {
                return self.remove(&key).map(|value| (key, value));
            }
        }
        None
    }

    /// Removes dead keys from the order, once they are most of it.
    fn tidy(&mut self) {
        if self.order.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.order.retain(|(key, since)| entries.get(key).is_some_and(|entry| entry.since == *since));
        }
    }
}

/// Runs of numbers with a value each, separate for each key: pages of files, blocks of chips.
#[derive(Debug)]
pub struct Ranges<K, V> {
    /// By key and first number: the number behind the last, and the value. Runs do not overlap, and adjacent ones differ in value.
    runs: BoundedMap<(K, u64), (u64, V)>,
}

impl<K: Ord + Copy, V: Copy + PartialEq> Ranges<K, V> {
    pub fn new(most: usize, full: Full) -> Ranges<K, V> {
        Ranges { runs: BoundedMap::new(most, full) }
    }

    /// Runs that were refused.
    #[cfg(test)]
    fn lost(&self) -> u64 {
        self.runs.lost()
    }

    /// The run that contains a number.
    pub fn run(&self, of: K, at: u64) -> Option<(Range<u64>, V)> {
        let (&(_, begin), &(end, value)) = self.runs.range((of, 0)..=(of, at)).next_back()?;
        (at < end).then_some((begin..end, value))
    }

    #[cfg(test)]
    pub fn get(&self, of: K, at: u64) -> Option<V> {
        self.run(of, at).map(|(_, value)| value)
    }

    /// All runs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (K, Range<u64>, V)> {
        self.runs.iter().map(|(&(of, begin), &(end, value))| (of, begin..end, value))
    }

    /// Visits the gaps and runs of a range in order: `change` returns the new value of each. `lost` gets runs without room. Returns the
    /// number up to which this was done: the range's end, unless it has more than [`MOST_PIECES`] pieces.
    pub fn update(
        &mut self,
        of: K,
        range: Range<u64>,
        mut change: impl FnMut(Range<u64>, Option<V>) -> Option<V>,
        mut lost: impl FnMut(K, Range<u64>, V),
    ) -> u64 {
        if range.is_empty() {
            return range.end;
        }
        // The pieces, cut at the range's ends. Most changes are within one run and change nothing.
        let mut parts: Vec<(Range<u64>, Option<V>)> = Vec::new();
        let first = self.run(of, range.start).map_or(range.start, |(run, _)| run.start);
        let mut at = range.start;
        let mut there = Vec::new();
        for (&(_, begin), &(end, value)) in self.runs.range((of, first)..(of, range.end)).take(MOST_PIECES) {
            if begin > at {
                parts.push((at..begin, None));
            }
            at = end.min(range.end);
            parts.push((begin.max(range.start)..at, Some(value)));
            there.push((begin, end, value));
        }
        if at < range.end && there.len() < MOST_PIECES {
            parts.push((at..range.end, None));
            at = range.end;
        }
        let mut same = true;
        for (part, value) in &mut parts {
            let next = change(part.clone(), *value);
            same &= next == *value;
            *value = next;
        }
        if same {
            return at;
        }
        self.replace(of, &there, range.start..at, &parts, &mut lost);
        at
    }

    /// Replaces the runs in `there` by `parts`; the first and the last of them may reach beyond the range.
    fn replace(
        &mut self,
        of: K,
        there: &[(u64, u64, V)],
        range: Range<u64>,
        parts: &[(Range<u64>, Option<V>)],
        lost: &mut impl FnMut(K, Range<u64>, V),
    ) {
        let mut runs: Vec<(Range<u64>, V)> = Vec::new();
        let mut add = |run: Range<u64>, value: V| match runs.last_mut() {
            _ if run.is_empty() => {}
            Some((last, of_last)) if last.end == run.start && *of_last == value => last.end = run.end,
            _ => runs.push((run, value)),
        };
        let before = match range.start.checked_sub(1) {
            Some(before) => self.run(of, before),
            None => None,
        };
        let after = self.run(of, range.end);
        if let Some((run, value)) = &before {
            add(run.start..range.start, *value);
        }
        for (part, value) in parts {
            if let Some(value) = value {
                add(part.clone(), *value);
            }
        }
        if let Some((run, value)) = &after {
            add(range.end..run.end, *value);
        }
        for begin in
            there.iter().map(|&(begin, ..)| begin).chain([&before, &after].into_iter().flatten().map(|r| r.0.start))
        {
            self.runs.remove(&(of, begin));
        }
        for (run, value) in runs {
            if let Some(((of, begin), (end, value))) = self.runs.insert((of, run.start), (run.end, value)) {
                lost(of, begin..end, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_map_refuses_or_forgets_and_counts() {
        let mut refuses = BoundedMap::new(2, Full::Refuse);
        let mut forgets = BoundedMap::new(2, Full::ForgetOldest);
        for key in [1, 2, 3] {
            refuses.insert(key, key * 10);
            forgets.insert(key, key * 10);
        }
        assert_eq!(refuses.iter().collect::<Vec<_>>(), [(&1, &10), (&2, &20)]);
        assert_eq!(forgets.iter().collect::<Vec<_>>(), [(&2, &20), (&3, &30)]);
        assert_eq!((refuses.lost(), forgets.lost()), (1, 1));
        assert_eq!((refuses.entry(9, || 1).copied(), refuses.lost()), (None, 2));
        assert_eq!((forgets.entry(9, || 1).copied(), forgets.lost()), (Some(1), 2));
        // One that left and came again is as new as that.
        forgets.remove(&3);
        forgets.insert(3, 0);
        assert_eq!(forgets.insert(4, 0), Some((9, 1)));
        // What is there takes another value.
        assert_eq!((refuses.insert(1, 5), refuses.get(&1), refuses.lost()), (None, Some(&5), 2));
    }

    #[test]
    fn the_order_does_not_grow_with_what_left() {
        let mut map = BoundedMap::new(10, Full::ForgetOldest);
        for key in 0..10_000 {
            map.insert(key, ());
            map.remove(&(key - 3));
        }
        assert!(map.order.len() < 100 && map.lost() == 0, "{}", map.order.len());
    }

    /// Random changes of ranges do to the runs what they do to single numbers.
    #[test]
    fn runs_are_what_single_numbers_would_be() {
        let mut ranges: Ranges<u8, u8> = Ranges::new(1000, Full::ForgetOldest);
        let mut single = vec![None; 64];
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (a, b) = (random % 64, random / 64 % 65);
            let (begin, end) = (a.min(b), a.max(b));
            let (value, only_gaps) = ((random / 8192 % 4) as u8, (random / 65_536).is_multiple_of(3));
            let change = |_: Range<u64>, old: Option<u8>| match (value, old) {
                (0, _) => None,
                (_, Some(old)) if only_gaps => Some(old),
                (value, _) => Some(value),
            };
            assert_eq!(ranges.update(7, begin..end, change, |_, _, _| panic!("there is room")), end);
            for old in &mut single[begin as usize..end as usize] {
                *old = change(0..0, *old);
            }
            let now: Vec<Option<u8>> = (0..64).map(|at| ranges.get(7, at)).collect();
            assert_eq!(now, single);
        }
        let runs: Vec<_> = ranges.runs.iter().map(|(&(_, begin), &(end, value))| (begin, end, value)).collect();
        assert!(runs.windows(2).all(|two| two[0].1 < two[1].0 || two[0].1 == two[1].0 && two[0].2 != two[1].2));
        assert_eq!((ranges.get(6, 3), ranges.lost()), (None, 0));
    }

    #[test]
    fn a_range_of_any_length_is_one_run_and_too_many_pieces_are_left() {
        let mut ranges: Ranges<u8, u8> = Ranges::new(1 << 12, Full::ForgetOldest);
        let set = |value: u8| move |_: Range<u64>, _: Option<u8>| Some(value);
        assert_eq!(ranges.update(0, 0..u64::MAX, set(1), |_, _, _| {}), u64::MAX);
        assert_eq!(ranges.update(0, 10..20, set(2), |_, _, _| {}), 20);
        assert_eq!((ranges.run(0, 15), ranges.run(0, u64::MAX - 1)), (Some((10..20, 2)), Some((20..u64::MAX, 1))));
        ranges.update(0, 0..u64::MAX, set(1), |_, _, _| {});
        assert_eq!(ranges.runs.len(), 1);
        // Every second number is of its own.
        let end = 4 * MOST_PIECES as u64;
        for at in (0..end).step_by(2) {
            ranges.update(1, at..at + 1, set(2), |_, _, _| {});
        }
        let reached = ranges.update(1, 0..end, set(3), |_, _, _| {});
        assert_eq!(reached, 2 * MOST_PIECES as u64 - 1);
        assert_eq!(
            (ranges.get(1, reached - 1), ranges.get(1, reached), ranges.get(1, reached + 1)),
            (Some(3), None, Some(2))
        );
        let mut lost = 0;
        for at in (0..3 * end).step_by(2) {
            ranges.update(2, at..at + 1, set(4), |_, _, _| lost += 1);
        }
        assert!(lost > 0 && ranges.lost() > 0 && ranges.runs.len() == 1 << 12);
    }
}
