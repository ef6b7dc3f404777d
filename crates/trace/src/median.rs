//! A running median, for the usual duration of requests, and what it says of a completion that may belong to one of two requests.

/// The newer request's time has to be this factor nearer to the usual time: of requests that were issued together both are near.
const NEARER: f64 = 1.3;
/// A request has lost its completion if it is in the device this many times longer than usual, once a newer one of the same sectors was
/// completed.
const OVERDUE: u64 = 4;

/// Whether a request has been in the device far longer than usual.
pub fn is_overdue(took: u64, usual: u64) -> bool {
    took > OVERDUE.saturating_mul(usual)
}

/// How far a time is from the usual one, as a factor of 1 or more.
pub fn factor_from_usual(took: u64, usual: u64) -> f64 {
    let ratio = took.max(1) as f64 / usual.max(1) as f64;
    ratio.max(1.0 / ratio)
}

/// Whether a completion belongs to the newer of two requests, by the times that they would have taken.
pub fn is_of_newer(older: u64, newer: u64, usual: u64) -> bool {
    factor_from_usual(newer, usual) * NEARER < factor_from_usual(older, usual)
}

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
