//! Decides whether the parts of a text are the CPUs of one recording: `cat per_cpu/cpu*/trace`, or `trace-cmd report --cpu` for each.
//!
//! A part begins with a header, where times fall back by far, or where times fall back and the CPU changes. Evidence for one recording: each
//! part has one CPU, and their times overlap. Two parts may have the same CPU if the later one begins with an event of the earlier one: then
//! one buffer was read twice. Everything else is several recordings, or one text pasted twice.

use std::ops::Range;

/// Times that fall back by this are of another recording or of another part. Tracers print slightly out of order at most.
pub(super) const FAR_BACK_NS: u64 = 1_000_000_000;

/// Most parts that are merged: each is read by a thread with buffers of its own. More are several recordings.
const MAX_PARTS: usize = 64;

struct Part {
    cpu: u16,
    /// Offset in the text.
    begin: u64,
    first: u64,
    last: u64,
}

/// The CPUs of one recording.
#[derive(Debug, PartialEq)]
pub(super) struct CpuParts {
    /// The place of each part in the text.
    pub places: Vec<Range<u64>>,
    /// Hashes of the first events of parts whose CPU has another part: each must occur twice.
    pub again: Vec<u64>,
}

/// The parts of a text so far.
#[derive(Default)]
pub(super) struct Parts {
    before: Vec<Part>,
    now: Option<Part>,
    /// Where the last header stands, if no event came since.
    header: Option<u64>,
    again: Vec<u64>,
    /// A part has several CPUs or no times or places, or two parts of one CPU do not overlap.
    mixed: bool,
}

impl Parts {
    /// A header, at this offset.
    pub fn header(&mut self, at: Option<u64>) {
        self.before.extend(self.now.take());
        self.header = at;
    }

    /// An event, with the offset of its line if that is known, and its hash.
    pub fn event(&mut self, cpu: u16, time: Option<u64>, at: Option<u64>, hash: impl FnOnce() -> u64) {
        let (Some(time), false) = (time, self.mixed) else {
            self.mixed = true;
            return;
        };
        match &mut self.now {
            Some(part) if part.cpu == cpu && time.saturating_add(FAR_BACK_NS) >= part.last => {
                part.last = part.last.max(time);
            }
            Some(part) if time >= part.last => self.mixed = true,
            _ => {
                self.before.extend(self.now.take());
                let text = self.before.is_empty().then_some(0);
                let Some(begin) = self.header.take().or(at).or(text) else {
                    self.mixed = true;
                    return;
                };
                let same: Vec<&Part> = self.before.iter().filter(|part| part.cpu == cpu).collect();
                let overlaps = same.iter().all(|part| (part.first..=part.last).contains(&time));
                self.mixed = self.before.len() >= MAX_PARTS || !overlaps;
                if !same.is_empty() {
                    self.again.push(hash());
                }
                self.now = Some(Part { cpu, begin, first: time, last: time });
            }
        }
    }

    /// `None` unless the parts are CPUs of one recording.
    pub fn of_cpus(mut self) -> Option<CpuParts> {
        self.before.extend(self.now.take());
        if self.mixed || self.before.len() < 2 {
            return None;
        }
        let mut spans: Vec<(u64, u64)> = self.before.iter().map(|part| (part.first, part.last)).collect();
        spans.sort_unstable();
        let mut end = spans[0].1;
        for (first, last) in spans {
            if first > end.saturating_add(FAR_BACK_NS) {
                return None;
            }
            end = end.max(last);
        }
        let ends = self.before.iter().skip(1).map(|part| part.begin).chain([u64::MAX]);
        let places = self.before.iter().zip(ends).map(|(part, end)| part.begin..end).collect();
        Some(CpuParts { places, again: self.again })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Parts with headers, at offsets 100, 200, …: CPU and time of each event.
    fn with_headers(parts: &[&[(u16, u64)]]) -> Option<Vec<Range<u64>>> {
        let found = parts_of(parts)?;
        assert!(found.again.is_empty());
        Some(found.places)
    }

    fn parts_of(parts: &[&[(u16, u64)]]) -> Option<CpuParts> {
        let mut found = Parts::default();
        for (i, part) in parts.iter().enumerate() {
            let at = 100 * (i as u64 + 1);
            found.header(Some(at));
            part.iter().for_each(|&(cpu, time)| found.event(cpu, Some(time), Some(at + 1), || time));
        }
        found.of_cpus()
    }

    #[test]
    fn parts_of_one_cpu_each_whose_times_overlap_are_cpus() {
        assert_eq!(with_headers(&[&[(0, S), (0, 9 * S)], &[], &[(1, 2 * S)]]), Some(vec![100..300, 300..u64::MAX]));
        // The third begins within a second of the others' end.
        let third = 9 * S + S / 2;
        assert!(with_headers(&[&[(2, S), (2, 9 * S)], &[(1, 2 * S)], &[(0, third)]]).is_some());
        // Another time, the same CPU, several CPUs in a part, a single part.
        assert_eq!(with_headers(&[&[(0, S), (0, 9 * S)], &[(1, 20 * S)]]), None);
        assert_eq!(with_headers(&[&[(0, 20 * S), (0, 29 * S)], &[(1, S), (1, 2 * S)]]), None);
        assert_eq!(with_headers(&[&[(0, S)], &[(0, 2 * S)]]), None);
        assert_eq!(with_headers(&[&[(0, S), (1, S)], &[(2, S)]]), None);
        assert_eq!(with_headers(&[&[(0, S)]]), None);
        let cpus: Vec<_> = (0..=64).map(|cpu| [(cpu, S)]).collect();
        let parts: Vec<&[_]> = cpus.iter().map(|part| &part[..]).collect();
        assert_eq!(with_headers(&parts[1..]).map(|places| places.len()), Some(64));
        assert_eq!(with_headers(&parts), None);
    }

    #[test]
    fn a_cpu_comes_twice_if_the_times_overlap() {
        let parts: [&[_]; 3] = [&[(0, S), (0, 5 * S)], &[(1, S)], &[(0, 3 * S), (0, 9 * S)]];
        let found = parts_of(&parts).expect("the CPUs of one recording");
        assert_eq!((found.places.len(), found.again), (3, vec![3 * S]));
        let later: [&[_]; 3] = [&[(0, S), (0, 5 * S)], &[(1, S)], &[(0, 5 * S + 1)]];
        assert_eq!(parts_of(&later), None);
    }

    #[test]
    fn the_place_of_a_part_is_that_of_its_header() {
        let mut found = Parts::default();
        found.event(0, Some(S), None, || 0);
        found.header(Some(20));
        found.event(1, Some(S), None, || 0);
        assert_eq!(found.of_cpus().map(|found| found.places), Some(vec![0..20, 20..u64::MAX]));
        let mut without = Parts::default();
        [(0, 2 * S), (1, S)].into_iter().for_each(|(cpu, time)| without.event(cpu, Some(time), None, || 0));
        assert_eq!(without.of_cpus(), None);
    }

    #[test]
    fn without_headers_times_that_fall_back_begin_the_next_cpu() {
        let of = |events: &[(u16, u64)]| {
            let mut found = Parts::default();
            events.iter().enumerate().for_each(|(i, &(cpu, time))| found.event(cpu, Some(time), Some(i as u64), || 0));
            found.of_cpus().map(|found| found.places)
        };
        assert_eq!(of(&[(0, 10), (0, 30), (1, 20), (1, 40)]), Some(vec![0..2, 2..u64::MAX]));
        // An ordinary text, and one that is slightly out of order.
        assert_eq!(of(&[(0, 10), (1, 20), (0, 30)]), None);
        assert_eq!(of(&[(0, 10), (0, 30), (1, 20), (0, 40)]), None);
        let mut without_time = Parts::default();
        [(0, Some(5)), (1, None)].into_iter().for_each(|(cpu, time)| without_time.event(cpu, time, Some(0), || 0));
        assert_eq!(without_time.of_cpus(), None);
    }
}
