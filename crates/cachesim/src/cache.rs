//! The page cache: the cached pages of all files in order of use, never more than the budget.

use foldhash::HashMap;

const NONE: u32 = u32::MAX;

/// One cached page, linked in two lists: all pages by their last use, and the pages of its file.
#[derive(Clone, Copy)]
struct Slot {
    file: u32,
    page: u64,
    newer: u32,
    older: u32,
    next_of_file: u32,
    previous_of_file: u32,
    /// PG_readahead: the next read-ahead begins when this page is used.
    marked: bool,
    /// Not PG_uptodate: the page is in the cache, and its first reader reads it from the device.
    empty: bool,
    /// A fault mapped it, or the fault-around of another page did.
    mapped: bool,
    used: bool,
}

/// Flags of a cached page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    pub marked: bool,
    pub empty: bool,
    pub mapped: bool,
}

/// A page that left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    pub file: u32,
    pub page: u64,
    pub used: bool,
}

pub struct PageCache {
    by_page: HashMap<(u32, u64), u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    /// The first page of each file's list.
    of_file: Vec<u32>,
    budget: usize,
}

impl PageCache {
    pub fn new(budget_pages: usize) -> PageCache {
        PageCache {
            by_page: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            of_file: Vec::new(),
            budget: budget_pages.clamp(1, NONE as usize - 1),
        }
    }

    pub fn budget(&self) -> usize {
        self.budget
    }

    pub fn has(&self, file: u32, page: u64) -> bool {
        self.by_page.contains_key(&(file, page))
    }

    /// Marks the page as used just now. Returns whether it is cached.
    pub fn touch(&mut self, file: u32, page: u64) -> bool {
        let Some(&slot) = self.by_page.get(&(file, page)) else { return false };
        self.slots[slot as usize].used = true;
        if self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
        true
    }

    /// `None` where the page is not cached.
    pub fn flags(&self, file: u32, page: u64) -> Option<Flags> {
        let Slot { marked, empty, mapped, .. } = self.slots[*self.by_page.get(&(file, page))? as usize];
        Some(Flags { marked, empty, mapped })
    }

    pub fn set_mapped(&mut self, file: u32, page: u64) {
        if let Some(&slot) = self.by_page.get(&(file, page)) {
            self.slots[slot as usize].mapped = true;
        }
    }

    pub fn set_empty(&mut self, file: u32, page: u64, empty: bool) {
        if let Some(&slot) = self.by_page.get(&(file, page)) {
            self.slots[slot as usize].empty = empty;
        }
    }

    pub fn clear_mark(&mut self, file: u32, page: u64) {
        if let Some(&slot) = self.by_page.get(&(file, page)) {
            self.slots[slot as usize].marked = false;
        }
    }

    /// Adds a page that is not cached yet. Returns the page that was evicted for it.
    pub fn insert(&mut self, file: u32, page: u64, marked: bool) -> Option<Removed> {
        debug_assert!(!self.has(file, page));
        let removed = if self.by_page.len() >= self.budget { self.remove_slot(self.oldest) } else { None };
        if self.of_file.len() <= file as usize {
            self.of_file.resize(file as usize + 1, NONE);
        }
        let next = self.of_file[file as usize];
        let new = Slot {
            file,
            page,
            newer: NONE,
            older: NONE,
            next_of_file: next,
            previous_of_file: NONE,
            marked,
            empty: false,
            mapped: false,
            used: false,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                (self.slots.len() - 1) as u32
            }
        };
        if next != NONE {
            self.slots[next as usize].previous_of_file = slot;
        }
        self.of_file[file as usize] = slot;
        self.by_page.insert((file, page), slot);
        self.link_newest(slot);
        removed
    }

    pub fn remove(&mut self, file: u32, page: u64) -> Option<Removed> {
        let slot = *self.by_page.get(&(file, page))?;
        self.remove_slot(slot)
    }

    /// Any cached page of the file, for a caller that removes them all.
    pub fn any_of(&self, file: u32) -> Option<u64> {
        let slot = *self.of_file.get(file as usize)?;
        (slot != NONE).then(|| self.slots[slot as usize].page)
    }

    /// Calls `page` for every cached page, with its file and whether it was used.
    pub fn each(&self, mut page: impl FnMut(u32, bool)) {
        for &slot in self.by_page.values() {
            let slot = &self.slots[slot as usize];
            page(slot.file, slot.used);
        }
    }

    fn remove_slot(&mut self, slot: u32) -> Option<Removed> {
        if slot == NONE {
            return None;
        }
        self.unlink(slot);
        let Slot { file, page, next_of_file, previous_of_file, used, .. } = self.slots[slot as usize];
        match previous_of_file {
            NONE => self.of_file[file as usize] = next_of_file,
            previous => self.slots[previous as usize].next_of_file = next_of_file,
        }
        if next_of_file != NONE {
            self.slots[next_of_file as usize].previous_of_file = previous_of_file;
        }
        self.by_page.remove(&(file, page));
        self.free.push(slot);
        Some(Removed { file, page, used })
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { newer, older, .. } = self.slots[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let before = self.newest;
        let link = &mut self.slots[slot as usize];
        link.newer = NONE;
        link.older = before;
        match before {
            NONE => self.oldest = slot,
            before => self.slots[before as usize].newer = slot,
        }
        self.newest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_that_was_used_longest_ago_leaves_first() {
        let mut cache = PageCache::new(2);
        assert_eq!(cache.insert(0, 1, false), None);
        assert_eq!(cache.insert(0, 2, true), None);
        assert!(cache.touch(0, 1) && cache.flags(0, 2).is_some_and(|flags| flags.marked));
        assert_eq!(cache.insert(3, 9, false), Some(Removed { file: 0, page: 2, used: false }));
        assert_eq!(cache.insert(3, 8, false), Some(Removed { file: 0, page: 1, used: true }));
        assert!(!cache.has(0, 1) && cache.any_of(0).is_none());
    }

    #[test]
    fn a_file_s_pages_are_found_and_removed() {
        let mut cache = PageCache::new(100);
        for page in 0..10 {
            cache.insert(page as u32 % 2, page, false);
        }
        cache.remove(1, 5).unwrap();
        let mut left = vec![];
        while let Some(page) = cache.any_of(1) {
            left.push(cache.remove(1, page).unwrap().page);
        }
        left.sort_unstable();
        assert_eq!(left, [1, 3, 7, 9]);
        assert!(cache.remove(1, 1).is_none() && cache.has(0, 4));
        // Slots are used again.
        cache.insert(1, 77, false);
        assert_eq!(cache.slots.len(), 10);
    }
}
