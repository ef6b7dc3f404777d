//! The device: the cost of a request, and the number of requests it works on at once.

use schemars::JsonSchema;
use serde::Serialize;

use crate::least_squares::Sums;

/// Largest queue depth that is tried.
const MAX_DEPTH: usize = 64;
/// The fit holds for requests up to this many times longer than the longest recorded one, as tests/readahead_queue.rs checks.
const MOST_TIMES_LONGER: u64 = 8;
const KIB: f64 = 1024.0;

/// Time from the issue of a read request to its completion: a part for each request, and a part for each KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DeviceCost {
    /// For each request.
    pub request_ns: f64,
    /// For each KiB.
    pub kib_ns: f64,
    /// Requests that the device serves in parallel.
    pub depth: usize,
    /// Read requests that were fitted: those that had the device to themselves, unless only the others differ in length.
    pub requests: u64,
    /// Mean of the absolute differences, in per cent of the mean time.
    pub residual_percent: f64,
    /// All requests were of one length: what a KiB costs is not known, and no time is predicted of longer ones.
    pub degenerate: bool,
    /// The longest that was seen.
    pub largest_bytes: u64,
}

/// A read request, from its issue on; its time is 0 until it completes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) issued_ns: u64,
    pub(super) took_ns: u64,
    pub(super) bytes: u64,
    pub(super) alone: bool,
}

impl Sample {
    fn kib(&self) -> f64 {
        self.bytes as f64 / KIB
    }
}

impl DeviceCost {
    /// `None` where there are no samples.
    pub(super) fn fit(samples: &[Sample], most_at_once: usize) -> Option<DeviceCost> {
        let alone: Vec<&Sample> = samples.iter().filter(|sample| sample.alone).collect();
        let all: Vec<&Sample> = samples.iter().collect();
        let differ = |of: &[&Sample]| of.iter().any(|sample| sample.bytes != of[0].bytes);
        let fitted = if alone.is_empty() || !differ(&alone) && differ(&all) { all } else { alone };
        let mut sums = Sums::<2>::default();
        fitted.iter().for_each(|sample| sums.add([1.0, sample.kib()], sample.took_ns as f64));
        let Sums { n, y, xy: [_, xy], xx: [_, [_, xx]], .. } = sums;
        if fitted.is_empty() || y <= 0.0 {
            return None;
        }
        let solved = sums.solve();
        let [request_ns, kib_ns] = match solved {
            // A negative cost is noise.
            Some([request_ns, kib_ns]) if request_ns < 0.0 && kib_ns >= 0.0 => [0.0, xy / xx],
            Some(costs @ [_, kib_ns]) if kib_ns >= 0.0 => costs,
            _ => [y / n, 0.0],
        };
        let off = |sample: &&Sample| (sample.took_ns as f64 - request_ns - kib_ns * sample.kib()).abs();
        let mut cost = DeviceCost {
            request_ns,
            kib_ns,
            depth: 1,
            requests: fitted.len() as u64,
            residual_percent: fitted.iter().map(off).sum::<f64>() / y * 100.0,
            degenerate: solved.is_none(),
            largest_bytes: samples.iter().map(|sample| sample.bytes).max().unwrap_or(0),
        };
        // The smallest depth that best explains the completion times of requests that overlapped others.
        let depths = 1..=most_at_once.clamp(1, MAX_DEPTH);
        let errors: Vec<(usize, f64)> = depths.map(|depth| (depth, cost.off_with(depth, samples))).collect();
        let least = errors.iter().map(|&(_, off)| off).fold(f64::INFINITY, f64::min);
        cost.depth = errors.iter().find(|&&(_, off)| off <= least * 1.01).map_or(1, |&(depth, _)| depth);
        Some(cost)
    }

    /// The longest request for which a time is predicted, bytes.
    pub fn known_bytes(&self) -> u64 {
        self.largest_bytes.saturating_mul(if self.degenerate { 1 } else { MOST_TIMES_LONGER })
    }

    fn off_with(&self, depth: usize, samples: &[Sample]) -> f64 {
        let mut device = Servers::new(self, depth);
        let of = |sample: &Sample| {
            let done = device.submit(sample.issued_ns as f64, sample.bytes);
            (done - (sample.issued_ns + sample.took_ns) as f64).abs()
        };
        samples.iter().map(of).sum()
    }
}

/// The device in virtual time: takes requests and returns their completion times.
pub(super) struct Servers {
    request_ns: f64,
    kib_ns: f64,
    /// For each request the device works on at once: issue and completion of the last one.
    places: Vec<(f64, f64)>,
}

impl Servers {
    pub(super) fn new(cost: &DeviceCost, depth: usize) -> Servers {
        Servers { request_ns: cost.request_ns, kib_ns: cost.kib_ns, places: vec![(0.0, 0.0); depth.max(1)] }
    }

    pub(super) fn submit(&mut self, issued: f64, bytes: u64) -> f64 {
        // Tasks are replayed one call after the other: a request that another task issued later in virtual time does not delay this one.
        let free_at = |&(last_issued, done): &(f64, f64)| if last_issued > issued { issued } else { done };
        let free = self.places.iter().map(free_at);
        let (first, free) = free.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, issued));
        let done = issued.max(free) + self.request_ns + self.kib_ns * bytes as f64 / KIB;
        let place = &mut self.places[first];
        *place = (place.0.max(issued), place.1.max(done));
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(issued_ns: u64, took_ns: u64, kib: u64, alone: bool) -> Sample {
        Sample { issued_ns, took_ns, bytes: kib << 10, alone }
    }

    #[test]
    fn how_many_at_once_is_what_explains_the_requests_that_met() {
        let alone = [sample(0, 104, 4, true), sample(1000, 116, 16, true)];
        let together = [sample(2000, 104, 4, false), sample(2000, 104, 4, false)];
        let one_by_one = [sample(2000, 104, 4, false), sample(2000, 208, 4, false)];
        let depth = |met: &[Sample]| DeviceCost::fit(&[&alone, met].concat(), 2).unwrap();
        assert_eq!((depth(&together).depth, depth(&one_by_one).depth), (2, 1));
        let fit = depth(&together);
        assert!((fit.request_ns - 100.0).abs() < 1e-9 && (fit.kib_ns - 1.0).abs() < 1e-9, "{fit:?}");
        assert!(fit.residual_percent < 1e-9 && fit.requests == 2);
        assert!(DeviceCost::fit(&[], 0).is_none());
        assert!(DeviceCost::fit(&together, 2).unwrap().degenerate);
    }
}
