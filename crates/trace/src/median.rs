//! A running median, for the usual duration of requests.

/// A running median of times, in ns. A far outlier moves it no further than a near one.
#[derive(Clone, Copy, Default)]
pub struct RunningMedian {
    n: u64,
    ns: u64,
}

impl RunningMedian {
    /// The smallest step is this share of the median, as a power of two: 1/16.
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

    /// The median of this kind. If this kind has no values: the median of the kind with most values.
    pub fn of_kind(kinds: &[Self], kind: usize) -> Option<u64> {
        let own = &kinds[kind];
        let most = if own.n > 0 { Some(own) } else { kinds.iter().max_by_key(|median| median.n) };
        most.filter(|median| median.n > 0).map(|median| median.ns)
    }
}
