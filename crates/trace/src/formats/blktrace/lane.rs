//! Reads records from one file, or from the parts of a file that one CPU wrote.

use super::record::{HEADER_MAX, HEADER_MIN, Header, Raw, kind};
use crate::bytes::Endian;
use crate::events::TimeNs;
use crate::input::Input;
use std::io;
use std::sync::Arc;

/// Bytes read ahead by all lanes together; one lane reads at least `SMALLEST` bytes at once.
const READ_AHEAD: usize = 4 << 20;
const SMALLEST: usize = 16 << 10;
const LARGEST: usize = 128 << 10;
/// Largest number of pairs of device and CPU whose records are counted, per lane or text.
pub(super) const MAX_COUNTERS: usize = 4096;
/// A larger jump in the numbers is another recording or damage, and does not count as missing records.
pub(super) const MAX_GAP: u32 = 1 << 24;

/// The place of a lane's records.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub input: Arc<Input>,
    pub endian: Endian,
    /// Parts in order; `None`: the whole file.
    pub runs: Option<Arc<[Run]>>,
    /// `blkparse -d` wrote the file: times of steps count from the first step, times of notes are the kernel's. A note then gets the time
    /// of the record before it.
    pub rebased: bool,
    /// Number of the recording in the file, from 0. A recording comes after the one before it, whatever its times.
    pub recording: u32,
}

/// Adjacent whole records of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub begin: u64,
    pub length: u64,
}

/// Counts of one pass over a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Missing records, by the gaps in their numbers.
    pub missing: u64,
    pub backwards: u64,
    /// Records with a time that no clock can have: they are left out.
    pub odd_times: u64,
    /// Records whose PDU overlaps the next record.
    pub malformed: u64,
    /// Bytes between records.
    pub skipped: u64,
    /// The file ends inside a record.
    pub cut: u64,
}

/// Receiver of records. A closure is one; a type with its own method allows inlining.
pub(super) trait Sink {
    fn record(&mut self, raw: &Raw<'_>);
}

impl<F: FnMut(&Raw<'_>)> Sink for F {
    #[inline]
    fn record(&mut self, raw: &Raw<'_>) {
        self(raw);
    }
}

pub(super) struct Lane {
    input: Arc<Input>,
    endian: Endian,
    runs: Option<Arc<[Run]>>,
    rebased: bool,
    next_run: usize,
    /// Bytes of the file from `base` on; the bytes before `at` are used.
    buffer: Vec<u8>,
    base: u64,
    at: usize,
    filled: usize,
    /// End of the file or run.
    end: u64,
    /// Time of the next record, if `start` or `hand_out` returned true. Where the search continues if no record follows the last one.
    pub time: u64,
    /// Where the search goes on if what follows the last record is none.
    retry: u64,
    numbers: Numbers,
    pub counts: Counts,
}

impl Lane {
    pub fn new(source: &Part, lanes: usize) -> Lane {
        let size = (READ_AHEAD / lanes.max(1)).clamp(SMALLEST, LARGEST);
        // No more than a small file's size; for a device the size is 0.
        let size = match source.input.size().ok().and_then(|n| usize::try_from(n).ok()) {
            Some(there @ 1..) => size.min(there.max(HEADER_MAX)),
            _ => size,
        };
        Lane {
            input: Arc::clone(&source.input),
            endian: source.endian,
            runs: source.runs.clone(),
            rebased: source.rebased,
            next_run: 0,
            buffer: vec![0; size],
            base: 0,
            at: 0,
            filled: 0,
            end: if source.runs.is_some() { 0 } else { u64::MAX },
            time: 0,
            retry: 0,
            numbers: Numbers::default(),
            counts: Counts::default(),
        }
    }

    fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Goes to the first record; false if there is none.
    pub fn start(&mut self) -> io::Result<bool> {
        self.retry = 0;
        let found = self.find_record()?;
        if let Some(first) = Header::read(self.endian, &self.buffer[self.at..self.filled], &mut [0; HEADER_MIN]) {
            // A first time that is impossible, or that counts from elsewhere, must not delay the lane.
            let elsewhere = self.rebased && first.is_notify();
            self.time = Some(first.time()).filter(|&time| TimeNs(time).is_possible() && !elsewhere).unwrap_or(0);
        }
        Ok(found)
    }

    /// Passes on records as long as the next one's time fulfils `goes_on`; false at the end.
    #[inline(always)]
    pub fn hand_out(&mut self, mut goes_on: impl FnMut(u64) -> bool, sink: &mut impl Sink) -> io::Result<bool> {
        loop {
            let little = self.endian == Endian::Little && !self.rebased;
            let plain = little && Header::plain(&self.buffer[self.at..self.filled]).is_some();
            let stopped = match plain {
                true => self.hand_out_buffer::<true>(&mut goes_on, sink),
                false => self.hand_out_other(&mut goes_on, sink),
            };
            if stopped {
                return Ok(true);
            }
            if !self.find_record()? {
                return Ok(false);
            }
        }
    }

    /// Records that are not plain; kept out of the main loop.
    #[inline(never)]
    fn hand_out_other(&mut self, goes_on: &mut impl FnMut(u64) -> bool, sink: &mut impl Sink) -> bool {
        self.hand_out_buffer::<false>(goes_on, sink)
    }

    /// Passes on the records in the buffer, or only as far as they are plain. Returns true if a time did not fulfil `goes_on`.
    #[inline(always)]
    fn hand_out_buffer<const PLAIN: bool>(
        &mut self,
        goes_on: &mut impl FnMut(u64) -> bool,
        sink: &mut impl Sink,
    ) -> bool {
        let (mut last, mut pdu_len) = (self.time, 0);
        let mut rest = &self.buffer[self.at..self.filled];
        let (mut anew, mut moved) = ([0; HEADER_MIN], [0; HEADER_MIN]);
        while let Some(header) = if PLAIN { Header::plain(rest) } else { Header::read(self.endian, rest, &mut anew) }
            && let Some((bytes, behind)) = rest.split_at_checked(header.total())
        {
            let header = match header {
                note if !PLAIN && self.rebased && note.is_notify() => note.at(last, &mut moved),
                other => other,
            };
            let time = header.time();
            if !TimeNs(time).is_possible() {
                self.counts.odd_times += 1;
                (pdu_len, rest) = (header.pdu_len(), behind);
                continue;
            }
            if time < last {
                self.counts.backwards += 1;
            }
            last = time;
            if !goes_on(time) {
                (self.at, self.time) = (self.filled - rest.len(), time);
                return true;
            }
            let endian = if PLAIN { Endian::Little } else { self.endian };
            let position = self.base + (self.filled - rest.len()) as u64;
            let mut raw = Raw { header, endian, position, missing: 0, bytes };
            // The kernel numbers steps, but not its notes.
            if !header.is_notify() && !self.numbers.goes_on(header.counter(), header.sequence()) {
                raw.missing = self.numbers.gap(header.counter(), header.sequence(), raw.origin());
                self.counts.missing += u64::from(raw.missing);
            }
            pdu_len = header.pdu_len();
            rest = behind;
            sink.record(&raw);
        }
        (self.at, self.time) = (self.filled - rest.len(), last);
        self.retry = self.offset() - u64::from(pdu_len);
        false
    }

    /// Reads until `wanted` bytes from `at` on are available, or the input ends; returns the number of available bytes.
    fn fill(&mut self, wanted: usize) -> io::Result<usize> {
        let have = self.filled - self.at;
        if have >= wanted {
            return Ok(have);
        }
        self.base += self.at as u64;
        self.buffer.copy_within(self.at..self.filled, 0);
        (self.at, self.filled) = (0, have);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let begin = self.base + have as u64;
        let room = self.end.saturating_sub(begin).min((self.buffer.len() - have) as u64) as usize;
        self.filled += self.input.fill_at(&mut self.buffer[have..have + room], begin)?;
        Ok(self.filled - self.at)
    }

    fn seek(&mut self, to: u64) {
        match to.checked_sub(self.base) {
            Some(at) if at <= self.filled as u64 => self.at = at as usize,
            _ => (self.base, self.at, self.filled) = (to, 0, 0),
        }
    }

    /// Finds the record at `at` or after it.
    #[cold]
    fn find_record(&mut self) -> io::Result<bool> {
        loop {
            if self.fill(HEADER_MAX)? == 0 {
                if self.next_run() {
                    continue;
                }
                return Ok(false);
            }
            let here = self.offset();
            let mut anew = [0; HEADER_MIN];
            if let Some(found) = Header::read(self.endian, &self.buffer[self.at..self.filled], &mut anew) {
                let (size, total) = (found.size() as u64, found.total());
                if self.fill(total)? >= total {
                    return Ok(true);
                }
                // The record is cut, or its PDU's length is wrong and hides the next records.
                match self.search(here + size)? {
                    true => self.counts.malformed += 1,
                    false => self.counts.cut += 1,
                }
            } else if self.filled - self.at < 4 || is(self.endian, &self.buffer[self.at..self.filled]) {
                self.counts.cut += 1;
                self.at = self.filled;
            } else {
                // The PDU length of the record before may be wrong: then the next records are inside it.
                let from = std::mem::replace(&mut self.retry, here).min(here);
                self.search(from)?;
                self.counts.malformed += u64::from(self.offset() < here);
                self.counts.skipped += self.offset().saturating_sub(here);
            }
        }
    }

    fn next_run(&mut self) -> bool {
        let Some(&Run { begin, length }) = self.runs.as_ref().and_then(|runs| runs.get(self.next_run)) else {
            return false;
        };
        self.next_run += 1;
        self.end = begin.saturating_add(length);
        self.retry = begin;
        // The rest of the buffer is beyond the last run's end and is not for this run.
        (self.base, self.at, self.filled) = (begin, 0, 0);
        true
    }

    /// Goes to the first magic at `from` or after it, else to the end.
    fn search(&mut self, from: u64) -> io::Result<bool> {
        self.seek(from);
        loop {
            let have = self.fill(4)?;
            let bytes = &self.buffer[self.at..self.filled];
            if let Some(n) =
                bytes.windows(4).position(|w| w[1..3] == MIDDLE[self.endian as usize] && is(self.endian, w))
            {
                self.at += n;
                return Ok(true);
            }
            if have < 4 {
                self.at = self.filled;
                return Ok(false);
            }
            self.at = self.filled - 3;
        }
    }
}

/// The two middle bytes of a magic, by byte order.
const MIDDLE: [[u8; 2]; 2] = [[0x74, 0x61], [0x61, 0x74]];

fn is(endian: Endian, bytes: &[u8]) -> bool {
    kind(bytes).is_some_and(|(e, _)| e == endian)
}

/// The next number of each device and CPU.
struct Numbers {
    /// Device and CPU of the previous record, and the next number there.
    counter: u64,
    next: u32,
    /// Index in `known`; `next` there is not up to date.
    at: usize,
    known: Vec<(u64, u32)>,
}

impl Default for Numbers {
    fn default() -> Numbers {
        let (counter, next) = (0, Numbers::FIRST);
        Numbers { counter, next, at: 0, known: vec![(counter, next)] }
    }
}

impl Numbers {
    /// The kernel's numbers begin with 1.
    const FIRST: u32 = 1;

    /// True if no record is missing before this one and it has the device and CPU of the previous record.
    #[inline(always)]
    fn goes_on(&mut self, counter: u64, sequence: u32) -> bool {
        let goes_on = (counter, sequence) == (self.counter, self.next);
        if goes_on {
            self.next = sequence.wrapping_add(1);
        }
        goes_on
    }

    /// The number of records missing before any other record. In the output of `blkparse -d`, a remap of a partition's trace has the disk's
    /// device and the partition's number; `origin` is the device it came from.
    #[inline(never)]
    fn gap(&mut self, counter: u64, sequence: u32, origin: Option<u64>) -> u32 {
        let before = |next: u32| sequence.wrapping_sub(next);
        let own = self.expected(counter).unwrap_or(Numbers::FIRST);
        let fits = |origin: &u64| self.expected(*origin).is_some_and(|next| before(next) < before(own));
        let counter = match origin {
            Some(origin) if fits(&origin) => origin,
            // The first such record may belong to either trace: nothing is missing, whichever continues here.
            Some(origin) if self.expected(origin).is_none() && self.known.len() < MAX_COUNTERS => {
                self.known.push((origin, sequence.wrapping_add(1)));
                counter
            }
            _ => counter,
        };
        if counter != self.counter && !self.change(counter) {
            return 0;
        }
        let gap = sequence.wrapping_sub(self.next);
        self.next = sequence.wrapping_add(1);
        if gap < MAX_GAP { gap } else { 0 }
    }

    /// The next number for this device and CPU; `None` if it had no record.
    fn expected(&self, counter: u64) -> Option<u32> {
        if counter == self.counter {
            return Some(self.next);
        }
        self.known.iter().find(|known| known.0 == counter).map(|known| known.1)
    }

    /// Switches to another device or CPU; false if there are too many.
    fn change(&mut self, to: u64) -> bool {
        let at = self.known.iter().position(|&(counter, _)| counter == to);
        if at.is_none() && self.known.len() == MAX_COUNTERS {
            return false;
        }
        self.known[self.at].1 = self.next;
        self.at = at.unwrap_or_else(|| {
            self.known.push((to, Numbers::FIRST));
            self.known.len() - 1
        });
        (self.counter, self.next) = self.known[self.at];
        true
    }
}
