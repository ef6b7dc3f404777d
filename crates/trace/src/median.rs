//! How long something usually takes.

/// A running median: one time that is far off moves it as little as one that is near.
#[derive(Clone, Copy, Default)]
pub struct RunningMedian {
    n: u64,
    ns: u64,
}

impl RunningMedian {
    /// By how much it moves at least, as a power of two.
    const STEP: u32 = 4;

    #[inline(always)]
    pub fn add(&mut self, ns: u64) {
        self.n += 1;
        let step = if self.n < 1 << Self::STEP { self.ns / self.n } else { self.ns >> Self::STEP };
        self.ns = match ns {
            _ if self.n == 1 => ns,
            _ if ns > self.ns => self.ns.saturating_add(step + 1).min(ns),
            _ => self.ns.saturating_sub(step).max(ns),
        };
    }

    /// The value of this kind; where there was none of it, that of the kind that was most.
    pub fn of_kind(kinds: &[Self], kind: usize) -> Option<u64> {
        let own = &kinds[kind];
        let most = if own.n > 0 { Some(own) } else { kinds.iter().max_by_key(|median| median.n) };
        most.filter(|median| median.n > 0).map(|median| median.ns)
    }
}
