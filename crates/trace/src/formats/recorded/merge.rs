//! Merges all lanes of a recording by time, in bounded memory.

use crate::formats::recorded::pages::Pages;
use crate::ring::schema::Layout;
use crate::ring::{Missed, Walked, Walker};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

/// One CPU of one ring buffer.
pub(crate) struct Lane {
    pub cpu: u16,
    /// Index into the recording's buffers.
    pub buffer: u16,
    pages: Pages,
    walker: Walker,
    /// The next record.
    time: u64,
    begin: usize,
    end: usize,
    missed: Missed,
    /// Number of sub-buffers that were entered.
    walked: u64,
    pub counts: LaneCounts,
}

/// Counts of one pass over a lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneCounts {
    pub records: u64,
    pub damaged: u64,
    pub backwards: u64,
    pub missed_events: u64,
    pub gaps_of_unknown_size: u64,
}

impl Lane {
    pub fn new(cpu: u16, buffer: u16, pages: Pages) -> Lane {
        Lane {
            cpu,
            buffer,
            pages,
            walker: Walker::default(),
            time: 0,
            begin: 0,
            end: 0,
            missed: Missed::Nothing,
            walked: 0,
            counts: LaneCounts::default(),
        }
    }

    /// Changes whenever the current record is in a new sub-buffer.
    pub fn pages_walked(&self) -> u64 {
        self.walked
    }

    pub fn page(&self) -> &[u8] {
        self.pages.page()
    }

    /// The current record: its time, its range in the sub-buffer, and events missing before it.
    pub fn take(&mut self) -> (u64, usize, usize, Missed) {
        (self.time, self.begin, self.end, std::mem::take(&mut self.missed))
    }

    /// Goes to the next record; false at the end.
    #[inline]
    pub fn advance(&mut self, layout: &Layout) -> io::Result<bool> {
        loop {
            match self.walker.next(layout, self.pages.page()) {
                Walked::Record { time, begin, end } => {
                    if time < self.time {
                        self.counts.backwards += 1;
                    }
                    (self.time, self.begin, self.end) = (time, begin, end);
                    self.counts.records += 1;
                    return Ok(true);
                }
                Walked::Damaged => self.counts.damaged += 1,
                Walked::End => {}
            }
            if !self.next_page(layout)? {
                return Ok(false);
            }
        }
    }

    #[cold]
    fn next_page(&mut self, layout: &Layout) -> io::Result<bool> {
        loop {
            if !self.pages.advance()? {
                self.counts.damaged += std::mem::take(&mut self.pages.damaged);
                return Ok(false);
            }
            let Some(walker) = Walker::start(layout, self.pages.page()) else {
                self.counts.damaged += 1;
                continue;
            };
            if walker.cut {
                self.counts.damaged += 1;
            }
            match walker.missed {
                Missed::Nothing => {}
                Missed::Events(n) => {
                    self.counts.missed_events = self.counts.missed_events.saturating_add(n);
                }
                Missed::Unknown => self.counts.gaps_of_unknown_size += 1,
            }
            self.missed = match (self.missed, walker.missed) {
                (m, Missed::Nothing) | (Missed::Nothing, m) => m,
                (Missed::Events(a), Missed::Events(b)) => Missed::Events(a.saturating_add(b)),
                _ => Missed::Unknown,
            };
            self.walker = walker;
            self.walked += 1;
            return Ok(true);
        }
    }
}

/// One undecoded record during a pass.
pub(crate) struct Raw<'a> {
    pub time: u64,
    pub cpu: u16,
    pub buffer: u16,
    /// Events missing on this lane before this record.
    pub missed: Missed,
    pub data: &'a [u8],
}

/// A sequence of records that the merge reads.
pub(crate) trait Head {
    /// Goes to the next record; false at the end.
    fn advance(&mut self, layout: &Layout) -> io::Result<bool>;
    /// Time of the current record.
    fn time(&self) -> u64;
    /// The current record. Events missing before it are reported only once.
    fn raw(&mut self) -> Raw<'_>;
}

impl Head for Lane {
    #[inline]
    fn advance(&mut self, layout: &Layout) -> io::Result<bool> {
        Lane::advance(self, layout)
    }

    #[inline]
    fn time(&self) -> u64 {
        self.time
    }

    #[inline]
    fn raw(&mut self) -> Raw<'_> {
        let missed = std::mem::take(&mut self.missed);
        let data = &self.pages.page()[self.begin..self.end];
        Raw { time: self.time, cpu: self.cpu, buffer: self.buffer, missed, data }
    }
}

/// Passes every record of all lanes to `f`, oldest first; at equal times in the order of the lanes. A lane whose times run backwards keeps
/// its own order.
pub(crate) fn merge(layout: &Layout, lanes: &mut [Lane], f: impl FnMut(Raw<'_>)) -> io::Result<()> {
    merge_heads(layout, lanes, f)
}

pub(crate) fn merge_heads<H: Head>(layout: &Layout, lanes: &mut [H], mut f: impl FnMut(Raw<'_>)) -> io::Result<()> {
    let mut heads = BinaryHeap::with_capacity(lanes.len());
    for (i, lane) in lanes.iter_mut().enumerate() {
        if lane.advance(layout)? {
            heads.push(Reverse((lane.time(), i)));
        }
    }
    while let Some(Reverse((_, i))) = heads.pop() {
        let lane = &mut lanes[i];
        // While this lane is the oldest, no other lane is checked.
        let until = heads.peek().map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
        loop {
            f(lane.raw());
            if !lane.advance(layout)? {
                break;
            }
            if (lane.time(), i) > until {
                heads.push(Reverse((lane.time(), i)));
                break;
            }
        }
    }
    Ok(())
}
