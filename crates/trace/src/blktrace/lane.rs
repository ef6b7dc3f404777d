//! Records out of one file, or out of the parts of a file that one CPU wrote.

use super::record::{HEADER_MAX, Header, NOTIFY, Raw, header, kind};
use crate::bytes::Endian;
use crate::input::Input;
use std::io;
use std::sync::Arc;

/// Read ahead in all lanes together; a lane reads at least `SMALLEST` at once.
const READ_AHEAD: usize = 4 << 20;
const SMALLEST: usize = 16 << 10;
const LARGEST: usize = 128 << 10;
/// Different (device, CPU) pairs of one lane whose records are counted.
const MAX_COUNTERS: usize = 4096;
/// A jump in the numbers beyond this is another recording, or damage: no count of what is missing.
const MAX_GAP: u32 = 1 << 24;

/// Where a lane's records lie.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub input: Arc<Input>,
    pub endian: Endian,
    /// Parts in order; none: the whole file.
    pub runs: Option<Arc<[Run]>>,
}

/// Whole records of one CPU, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub begin: u64,
    pub length: u64,
}

/// What was met on the way through a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Numbers of records that never came.
    pub missing: u64,
    pub backwards: u64,
    /// Records whose PDU reaches into the next one.
    pub malformed: u64,
    /// Bytes between records that belong to none.
    pub skipped: u64,
    /// The file ends inside a record.
    pub cut: u64,
}

pub(super) struct Lane {
    input: Arc<Input>,
    endian: Endian,
    runs: Option<Arc<[Run]>>,
    next_run: usize,
    /// Bytes of the file from `base` on; what was handed out ends at `at`.
    buffer: Vec<u8>,
    base: u64,
    at: usize,
    filled: usize,
    /// Where the file or run ends.
    end: u64,
    /// The record that comes next.
    pub head: Header,
    pub missing: u32,
    /// Where the search goes on if the record behind `head` is none.
    retry: u64,
    numbers: Numbers,
    pub counts: Counts,
}

impl Lane {
    pub fn new(source: &Source, lanes: usize) -> Lane {
        let size = (READ_AHEAD / lanes.max(1)).clamp(SMALLEST, LARGEST);
        // Of a small file no more than there is; a device says that it has nothing.
        let size = match source.input.size().ok().and_then(|n| usize::try_from(n).ok()) {
            Some(there @ 1..) => size.min(there.max(HEADER_MAX)),
            _ => size,
        };
        Lane {
            input: Arc::clone(&source.input),
            endian: source.endian,
            runs: source.runs.clone(),
            next_run: 0,
            buffer: vec![0; size],
            base: 0,
            at: 0,
            filled: 0,
            end: if source.runs.is_some() { 0 } else { u64::MAX },
            head: Header::default(),
            missing: 0,
            retry: 0,
            numbers: Numbers::default(),
            counts: Counts::default(),
        }
    }

    fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// The record that comes next, whole.
    #[inline]
    pub fn raw(&self) -> Raw<'_> {
        Raw {
            header: &self.head,
            endian: self.endian,
            missing: self.missing,
            bytes: &self.buffer[self.at..self.at + self.head.total()],
        }
    }

    /// Where it lies.
    pub fn position(&self) -> (u64, u64) {
        (self.offset(), self.head.total() as u64)
    }

    /// Goes to the first record.
    pub fn start(&mut self) -> io::Result<bool> {
        self.retry = 0;
        self.settle()
    }

    /// Goes to the next record; false at the end.
    #[inline]
    pub fn advance(&mut self) -> io::Result<bool> {
        let last = self.head.time;
        self.retry = self.offset() + u64::from(self.head.size);
        self.at += self.head.total();
        // What is almost always so: the next record is here, whole.
        if let Some(found) = header(self.endian, &self.buffer[self.at..self.filled])
            && found.total() <= self.filled - self.at
        {
            self.take(found);
        } else if !self.settle()? {
            return Ok(false);
        }
        if self.head.time < last {
            self.counts.backwards += 1;
        }
        Ok(true)
    }

    #[inline(always)]
    fn take(&mut self, found: Header) {
        self.head = found;
        self.missing = 0;
        // The kernel numbers what happens to I/O, not its notes.
        if found.action & NOTIFY == 0 {
            self.missing = self.numbers.gap(&found);
            self.counts.missing += u64::from(self.missing);
        }
    }

    /// Makes `wanted` bytes from `at` on available, as far as there are so many; returns how many there are.
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

    /// Finds the record at `at` or behind it.
    #[cold]
    fn settle(&mut self) -> io::Result<bool> {
        loop {
            if self.fill(HEADER_MAX)? == 0 {
                if self.next_run() {
                    continue;
                }
                return Ok(false);
            }
            let here = self.offset();
            if let Some(found) = header(self.endian, &self.buffer[self.at..self.filled]) {
                if self.fill(found.total())? >= found.total() {
                    self.take(found);
                    return Ok(true);
                }
                // It is cut, or its PDU's length lies and what follows is in there.
                match self.search(here + u64::from(found.size))? {
                    true => self.counts.malformed += 1,
                    false => self.counts.cut += 1,
                }
            } else if self.filled - self.at < 4 || is(self.endian, &self.buffer[self.at..self.filled]) {
                self.counts.cut += 1;
                self.at = self.filled;
            } else {
                // The record before may have lied about its PDU: then what follows lies inside of it.
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
        // What is in the buffer behind the last run's end was not read for this one.
        (self.base, self.at, self.filled) = (begin, 0, 0);
        true
    }

    /// Goes to the first magic at `from` or behind it, else to the end.
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
#[derive(Default)]
struct Numbers {
    last: usize,
    next: Vec<((u32, u32), u32)>,
}

impl Numbers {
    /// Records missing before this one.
    #[inline(always)]
    fn gap(&mut self, header: &Header) -> u32 {
        let key = (header.device, header.cpu);
        let following = header.sequence.wrapping_add(1);
        if let Some((last, next)) = self.next.get_mut(self.last)
            && *last == key
        {
            let gap = header.sequence.wrapping_sub(*next);
            *next = following;
            return if gap < MAX_GAP { gap } else { 0 };
        }
        self.other(key, header.sequence)
    }

    fn other(&mut self, key: (u32, u32), sequence: u32) -> u32 {
        let at = self.next.iter().position(|(k, _)| *k == key);
        if at.is_none() && self.next.len() == MAX_COUNTERS {
            return 0;
        }
        self.last = at.unwrap_or_else(|| {
            // The kernel counts from 1.
            self.next.push((key, 1));
            self.next.len() - 1
        });
        let next = &mut self.next[self.last].1;
        let gap = sequence.wrapping_sub(*next);
        *next = sequence.wrapping_add(1);
        if gap < MAX_GAP { gap } else { 0 }
    }
}
