//! Sums of times and bytes that saturate: each in a hostile trace may be half of the largest number.

pub(crate) trait Total {
    /// The sum, at most `u64::MAX`.
    fn total(self) -> u64;
}

impl<I: Iterator<Item = u64>> Total for I {
    fn total(self) -> u64 {
        self.fold(0, u64::saturating_add)
    }
}
