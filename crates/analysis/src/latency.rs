//! Distributions of times.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Distribution of the times of a set of calls, nanoseconds; percentiles by nearest rank. In JSON all but `n` are null where there
/// are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(into = "Written", from = "Written")]
pub struct LatencyNs {
    pub n: u64,
    pub min: u64,
    pub mean: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// Distribution of times, nanoseconds; percentiles by nearest rank; null where there are none.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LatencyNs")]
struct Written {
    n: u64,
    min: Option<u64>,
    mean: Option<u64>,
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    p999: Option<u64>,
    max: Option<u64>,
}

impl From<LatencyNs> for Written {
    fn from(LatencyNs { n, min, mean, p50, p90, p99, p999, max }: LatencyNs) -> Written {
        let [min, mean, p50, p90, p99, p999, max] =
            [min, mean, p50, p90, p99, p999, max].map(|time| (n > 0).then_some(time));
        Written { n, min, mean, p50, p90, p99, p999, max }
    }
}

impl From<Written> for LatencyNs {
    fn from(Written { n, min, mean, p50, p90, p99, p999, max }: Written) -> LatencyNs {
        let [min, mean, p50, p90, p99, p999, max] =
            [min, mean, p50, p90, p99, p999, max].map(Option::unwrap_or_default);
        LatencyNs { n, min, mean, p50, p90, p99, p999, max }
    }
}

impl LatencyNs {
    /// Exact figures of times in any order; all zero without times. The mean is rounded down.
    pub fn from_unsorted(mut times_ns: Vec<u64>) -> Self {
        times_ns.sort_unstable();
        let (Some(&min), Some(&max)) = (times_ns.first(), times_ns.last()) else {
            return Self::default();
        };
        let n = times_ns.len() as u64;
        let sum: u128 = times_ns.iter().map(|&t| u128::from(t)).sum();
        let rank = |permille| times_ns[(nearest_rank(n, permille) - 1) as usize];
        Self {
            n,
            min,
            mean: (sum / u128::from(n)) as u64,
            p50: rank(500),
            p90: rank(900),
            p99: rank(990),
            p999: rank(999),
            max,
        }
    }
}

/// The 1-based rank ⌈permille/1000 · n⌉ of the nearest-rank method; n ≥ 1.
fn nearest_rank(n: u64, permille: u64) -> u64 {
    (u128::from(n) * u128::from(permille)).div_ceil(1000) as u64
}

/// Buckets per power of two: a percentile is at most 1/128 (0.8 %) below the true value.
const SUB_BITS: u32 = 7;
const SUB: usize = 1 << SUB_BITS;

/// Number of times in one quarter of an octave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct LatencyRange {
    pub from_ns: u64,
    /// The first time that is longer.
    pub to_ns: u64,
    pub n: u64,
}

/// Begins of the quarters of an octave, in its 128ths: 128 · (2^(i/4) − 1), rounded. On a logarithmic axis they have the same width,
/// to within 1.3 %.
const QUARTERS: [u64; 5] = [0, 24, 53, 87, 128];

/// The quarter of an octave that contains a time: its first time, and the first one after it.
fn quarter(ns: u64) -> (u64, u64) {
    let Some(octave) = ns.checked_ilog2() else { return (0, 1) };
    let place = ((u128::from(ns) << SUB_BITS >> octave) as u64) % SUB as u64;
    let at = QUARTERS.iter().rposition(|&begin| begin <= place).unwrap_or(0);
    let bound = |begin: u64| {
        let bound = (u128::from(SUB as u64 + begin) << octave).div_ceil(SUB as u128);
        u64::try_from(bound).unwrap_or(u64::MAX)
    };
    (bound(QUARTERS[at]), bound(QUARTERS[at + 1]))
}

/// Buckets that are allocated together: few times that are far apart take a few of these.
const CHUNK: usize = 16;

/// Times that are kept one by one, before they are counted in buckets.
const FEW: usize = 128;

/// Distribution of any number of times in at most 60 KiB; one of up to 128 times takes 1 KiB at most. Count, minimum, mean and maximum
/// are exact, and so are percentiles of up to 128 times. Beyond that a percentile is the lower bound of its bucket: exact below 256 ns, at
/// most 0.8 % too small above.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    /// The first times, in any order; none once there are buckets.
    few: Vec<u64>,
    /// Where each chunk of buckets is in `counts`, from 1; 0: it has no times.
    chunks: Vec<u16>,
    counts: Vec<[u64; CHUNK]>,
    n: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { few: Vec::new(), chunks: Vec::new(), counts: Vec::new(), n: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(SUB_BITS + 1);
    shift as usize * SUB + (value >> shift) as usize
}

fn lower_bound(bucket: usize) -> u64 {
    let shift = (bucket / SUB).saturating_sub(1);
    ((bucket - shift * SUB) as u64) << shift
}

impl LatencyHistogram {
    #[inline]
    pub fn add(&mut self, time_ns: u64) {
        if self.counts.is_empty() {
            self.keep(time_ns);
        } else {
            self.count(bucket(time_ns), 1);
        }
        self.n += 1;
        self.sum += u128::from(time_ns);
        // Not `min` and `max`: that writes every time what almost never changes.
        if time_ns < self.min {
            self.min = time_ns;
        }
        if time_ns > self.max {
            self.max = time_ns;
        }
    }

    /// Keeps one of the first times, or moves all of them to buckets.
    fn keep(&mut self, time_ns: u64) {
        if self.few.len() < FEW {
            return self.few.push(time_ns);
        }
        self.spill();
        self.count(bucket(time_ns), 1);
    }

    #[cold]
    fn spill(&mut self) {
        for time in std::mem::take(&mut self.few) {
            self.count(bucket(time), 1);
        }
    }

    #[inline]
    fn count(&mut self, bucket: usize, n: u64) {
        let chunk = bucket / CHUNK;
        let known = self.chunks.get(chunk).copied().unwrap_or(0);
        let known = if known == 0 { self.chunk(chunk) } else { known };
        self.counts[usize::from(known) - 1][bucket % CHUNK] += n;
    }

    /// Makes room for the first time of a chunk.
    #[cold]
    fn chunk(&mut self, chunk: usize) -> u16 {
        if chunk >= self.chunks.len() {
            self.chunks.resize(chunk + 1, 0);
        }
        self.counts.push([0; CHUNK]);
        // There are fewer than 500 of them.
        self.chunks[chunk] = self.counts.len() as u16;
        self.chunks[chunk]
    }

    /// Buckets that hold any, shortest times first; none while times are kept one by one.
    fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        let known = self.chunks.iter().enumerate().filter(|(_, known)| **known > 0);
        known.flat_map(|(chunk, &known)| {
            let counts = self.counts[usize::from(known) - 1].iter().enumerate();
            counts.filter(|(_, n)| **n > 0).map(move |(at, &n)| (chunk * CHUNK + at, n))
        })
    }

    /// Takes in all times of another.
    pub fn merge(&mut self, other: &LatencyHistogram) {
        if self.n + other.n <= FEW as u64 {
            self.few.extend_from_slice(&other.few);
        } else {
            self.spill();
            other.few.iter().for_each(|&time| self.count(bucket(time), 1));
            other.buckets().for_each(|(bucket, n)| self.count(bucket, n));
        }
        self.n += other.n;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// All times together.
    pub fn total_ns(&self) -> u64 {
        u64::try_from(self.sum).unwrap_or(u64::MAX)
    }

    /// How many times are in each quarter of an octave that has any, shortest first.
    pub fn ranges(&self) -> Vec<LatencyRange> {
        let mut ranges: Vec<LatencyRange> = Vec::new();
        let mut few = self.few.clone();
        few.sort_unstable();
        let times = few.into_iter().map(|time| (time, 1));
        for (time, n) in times.chain(self.buckets().map(|(bucket, n)| (lower_bound(bucket), n))) {
            let (from_ns, to_ns) = quarter(time);
            match ranges.last_mut() {
                Some(last) if last.from_ns == from_ns => last.n += n,
                _ => ranges.push(LatencyRange { from_ns, to_ns, n }),
            }
        }
        ranges
    }

    pub fn finish(&self) -> LatencyNs {
        if self.n == 0 {
            return LatencyNs::default();
        }
        if !self.few.is_empty() {
            return LatencyNs::from_unsorted(self.few.clone());
        }
        let rank = |permille| {
            let wanted = nearest_rank(self.n, permille);
            if wanted == self.n {
                return self.max;
            }
            let mut seen = 0;
            let at = self.buckets().find(|(_, count)| {
                seen += count;
                seen >= wanted
            });
            lower_bound(at.map_or(0, |(at, _)| at)).clamp(self.min, self.max)
        };
        LatencyNs {
            n: self.n,
            min: self.min,
            mean: (self.sum / u128::from(self.n)) as u64,
            p50: rank(500),
            p90: rank(900),
            p99: rank(990),
            p999: rank(999),
            max: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank_by_hand() {
        // Five values: ranks ⌈2.5⌉ = 3, ⌈4.5⌉ = 5, ⌈4.95⌉ = 5.
        let five = LatencyNs::from_unsorted(vec![50, 15, 40, 20, 35]);
        assert_eq!(five, LatencyNs { n: 5, min: 15, mean: 32, p50: 35, p90: 50, p99: 50, p999: 50, max: 50 });
        // 1…200: ranks 100, 180, 198, ⌈199.8⌉.
        let many = LatencyNs::from_unsorted((1..=200).rev().collect());
        assert_eq!((many.p50, many.p90, many.p99, many.p999), (100, 180, 198, 200));
        assert_eq!(many.mean, 100); // 100.5, rounded down
    }

    #[test]
    fn one_and_none() {
        let one = LatencyNs::from_unsorted(vec![7]);
        assert_eq!((one.n, one.min, one.p50, one.p99, one.max), (1, 7, 7, 7, 7));
        assert_eq!(LatencyNs::from_unsorted(vec![]), LatencyNs::default());
        assert_eq!(LatencyHistogram::default().finish(), LatencyNs::default());
    }

    #[test]
    fn the_mean_of_huge_times_does_not_overflow() {
        assert_eq!(LatencyNs::from_unsorted(vec![u64::MAX; 3]).mean, u64::MAX);
    }

    #[test]
    fn bucket_bounds_are_consecutive_and_tight() {
        assert_eq!((bucket(0), bucket(255), bucket(256), bucket(257)), (0, 255, 256, 256));
        for b in 0..bucket(u64::MAX) {
            let (low, next) = (lower_bound(b), lower_bound(b + 1));
            assert_eq!(bucket(low), b);
            assert_eq!(bucket(next - 1), b);
            assert!(u128::from(next - low) * SUB as u128 <= u128::from(low).max(SUB as u128));
        }
        assert_eq!(bucket(u64::MAX), bucket(lower_bound(bucket(u64::MAX))));
    }

    #[test]
    fn quarters_of_octaves_follow_one_another_and_hold_whole_buckets() {
        let mut from = 0;
        for _ in 0..600 {
            let (begin, next) = quarter(from);
            assert_eq!(begin, from);
            assert_eq!((quarter(next - 1), bucket(next - 1) < bucket(next)), ((begin, next), next < u64::MAX));
            from = next;
            if next == u64::MAX {
                break;
            }
        }
        assert_eq!(from, u64::MAX);
        // The fourth root of two is 1.189, its third power 1.682.
        assert_eq!([1024, 1216, 1448, 1720].map(quarter), [(1024, 1216), (1216, 1448), (1448, 1720), (1720, 2048)]);
    }

    #[test]
    fn ranges_hold_every_time_once() {
        let mut histogram = LatencyHistogram::default();
        let times: Vec<u64> = (0..3000u64).map(|i| i * i * 37 % 5_000_011).collect();
        times.iter().for_each(|&t| histogram.add(t));
        let ranges = histogram.ranges();
        for range in &ranges {
            let within = times.iter().filter(|&&t| (range.from_ns..range.to_ns).contains(&t)).count() as u64;
            assert_eq!(range.n, within, "{range:?}");
        }
        assert_eq!(ranges.iter().map(|r| r.n).sum::<u64>(), 3000);
        assert_eq!(LatencyHistogram::default().ranges(), []);
    }

    #[test]
    fn few_times_far_apart_take_little_memory() {
        let mut histogram = LatencyHistogram::default();
        [1, 1 << 20, 1 << 40, u64::MAX].into_iter().for_each(|time| histogram.add(time));
        assert!(histogram.few.len() == 4 && histogram.few.capacity() <= FEW && histogram.counts.len() <= 4);
        assert_eq!((histogram.finish().p50, histogram.finish().max), (1 << 20, u64::MAX));
        (0..u64::BITS * 64).for_each(|i| histogram.add(u64::MAX >> (i / 64) & !(u64::from(i) << 40)));
        assert!(histogram.counts.len() <= histogram.chunks.len());
    }

    #[test]
    fn percentiles_of_few_times_are_exact_whichever_way_they_came() {
        // Not a lower bound of any bucket: 5,000,001 is in the one that begins with 4,980,736.
        let times: Vec<u64> = (1..=FEW as u64).map(|i| i * 78_125 + 1).collect();
        let (mut one, mut other) = (LatencyHistogram::default(), LatencyHistogram::default());
        times[..40].iter().for_each(|&t| one.add(t));
        times[40..].iter().rev().for_each(|&t| other.add(t));
        one.merge(&other);
        let exact = LatencyNs::from_unsorted(times.clone());
        assert_eq!((one.finish(), exact.p50), (exact, 5_000_001));
        // One more: buckets, whose highest ranks are still the longest time itself.
        one.add(7);
        let found = one.finish();
        assert_eq!((one.few.len(), found.n, found.min, found.p999, found.max), (0, 129, 7, exact.max, exact.max));
        assert!(found.p50 <= 5_000_001 && 5_000_001 - found.p50 <= 5_000_001 / 128);
        let mut many = LatencyHistogram::default();
        times.iter().chain(&[7]).for_each(|&t| many.add(t));
        let mut joined = LatencyHistogram::default();
        joined.merge(&many);
        assert_eq!((many.finish(), many.ranges()), (found, one.ranges()));
        assert_eq!((joined.finish(), joined.ranges()), (found, one.ranges()));
    }

    #[test]
    fn the_histogram_agrees_with_the_exact_figures() {
        let times: Vec<u64> = (0..5000u64).map(|i| 100_000 + i * i % 70_001).collect();
        let mut histogram = LatencyHistogram::default();
        times.iter().for_each(|&t| histogram.add(t));
        let (found, exact) = (histogram.finish(), LatencyNs::from_unsorted(times));
        assert_eq!((found.n, found.min, found.mean, found.max), (exact.n, exact.min, exact.mean, exact.max));
        for (f, e) in [(found.p50, exact.p50), (found.p90, exact.p90), (found.p99, exact.p99), (found.p999, exact.p999)]
        {
            assert!(f <= e && e - f <= e / 128, "{f} for {e}");
        }
    }
}
