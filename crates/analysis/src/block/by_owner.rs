//! A table of numbers by owner, without a search: owners are numbered from 0.

/// Owners from this number on have no entry, and values from here on cannot be stored.
pub(super) const MAX_OWNERS: u32 = NONE as u32;
const NONE: u16 = u16::MAX;

#[derive(Default)]
pub(super) struct ByOwner(Vec<u16>);

impl ByOwner {
    #[inline(always)]
    pub fn get(&self, owner: u32) -> Option<u16> {
        self.0.get(owner as usize).copied().filter(|&number| number != NONE)
    }

    pub fn set(&mut self, owner: u32, number: u16) {
        if owner >= MAX_OWNERS {
            return;
        }
        let owner = owner as usize;
        if self.0.len() <= owner {
            self.0.resize(owner + 1, NONE);
        }
        self.0[owner] = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_that_were_not_set_have_no_number() {
        let mut numbers = ByOwner::default();
        numbers.set(3, 0);
        numbers.set(7, 41);
        numbers.set(7, 42);
        numbers.set(u32::MAX, 1);
        assert_eq!([3, 7, 0, 8, u32::MAX].map(|owner| numbers.get(owner)), [Some(0), Some(42), None, None, None]);
    }
}
