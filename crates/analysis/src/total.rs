//! Sums of times and bytes. Those of a hostile trace may each be half of the largest number.

pub(crate) trait Total {
    /// The sum, or the largest number where it is larger.
    fn total(self) -> u64;
}

impl<I: Iterator<Item = u64>> Total for I {
    fn total(self) -> u64 {
        self.fold(0, u64::saturating_add)
    }
}
