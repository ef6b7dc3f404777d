//! All lanes of a recording in time order, read and unpacked by threads that run ahead of the consumer of the records.
//!
//! A lane is read by one thread at a time: it copies whole sub-buffers into a batch and notes where their records lie.
//! Which lane is read next is decided by a queue of lanes that have room for a batch, so that no thread waits for room.

use crate::formats::recorded::merge::{Head, Lane, Raw, merge_heads};
use crate::ring::Missed;
use crate::ring::schema::Layout;
use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Batches that wait for a lane's turn; one more is being made, and one taken apart.
const WAITING: usize = 2;
/// Bytes of sub-buffers in a batch; its index of records takes up to twice as much.
const BATCH: usize = 64 << 10;
/// What all batches of all lanes take at most, about.
const MEMORY: usize = 12 << 20;

/// Bytes of one batch where so many lanes are read; `None` where there is no memory for batches of whole sub-buffers.
pub(crate) fn batch_size(lanes: usize, largest_page: u64) -> Option<usize> {
    let size = (MEMORY / (lanes.max(1) * (WAITING + 2) * 3)).min(BATCH);
    (size >= 4096 && size as u64 >= largest_page).then_some(size)
}

/// As [`crate::formats::recorded::merge::merge`], with the same result, by so many threads beside the caller's.
pub(crate) fn merge_ahead(
    layout: &Layout,
    lanes: &mut [Lane],
    threads: usize,
    batch: usize,
    f: impl FnMut(Raw<'_>),
) -> io::Result<()> {
    let numbers: Vec<(u16, u16)> = lanes.iter().map(|lane| (lane.cpu, lane.buffer)).collect();
    let shared = Shared {
        layout: *layout,
        batch,
        filled: lanes.iter().map(|_| Condvar::new()).collect(),
        jobs: Mutex::new(Jobs { lanes: (0..lanes.len()).collect(), over: false }),
        work: Condvar::new(),
        slots: lanes.iter_mut().map(|lane| Mutex::new(Slot::new(lane))).collect(),
    };
    std::thread::scope(|scope| {
        // Ends them however this ends: an error, or a panic of `f`.
        let _over = Over(&shared);
        for _ in 0..threads {
            scope.spawn(|| shared.work());
        }
        let mut heads: Vec<Ahead<'_, '_>> = numbers
            .iter()
            .enumerate()
            .map(|(lane, &(cpu, buffer))| Ahead {
                shared: &shared,
                lane,
                cpu,
                buffer,
                batch: Batch::default(),
                next: 0,
                gap: 0,
                time: 0,
            })
            .collect();
        merge_heads(layout, &mut heads, f)
    })
}

/// Some records of a lane.
#[derive(Default)]
struct Batch {
    /// Sub-buffers side by side.
    data: Vec<u8>,
    /// Time, and where the record lies in `data`.
    records: Vec<(u64, u32, u32)>,
    /// What is missing before a record, by its place in `records`.
    gaps: Vec<(usize, Missed)>,
    /// Reading failed behind the last record.
    failed: Option<io::Error>,
}

/// A lane that is read.
struct Slot<'l> {
    /// `None`: a thread has it, or it was read to its end.
    reader: Option<Reader<'l>>,
    ready: VecDeque<Batch>,
    empty: Vec<Batch>,
    over: bool,
}

impl<'l> Slot<'l> {
    fn new(lane: &'l mut Lane) -> Slot<'l> {
        Slot {
            reader: Some(Reader { lane, carried: false, queued: true }),
            ready: VecDeque::with_capacity(WAITING),
            empty: Vec::new(),
            over: false,
        }
    }
}

struct Reader<'l> {
    lane: &'l mut Lane,
    /// The lane's current record was not put into the batch before.
    carried: bool,
    /// It is in the queue already.
    queued: bool,
}

impl Reader<'_> {
    /// Fills a batch with whole sub-buffers; true at the lane's end.
    fn fill(&mut self, layout: &Layout, size: usize, batch: &mut Batch) -> bool {
        batch.data.clear();
        batch.records.clear();
        batch.gaps.clear();
        let (mut page, mut base) = (None, 0);
        loop {
            if !std::mem::take(&mut self.carried) {
                match self.lane.advance(layout) {
                    Ok(true) => {}
                    Ok(false) => return true,
                    Err(e) => {
                        batch.failed = Some(e);
                        return true;
                    }
                }
            }
            if page != Some(self.lane.pages_walked()) {
                let bytes = self.lane.page();
                if page.is_some() && batch.data.len() + bytes.len() > size {
                    self.carried = true;
                    return false;
                }
                page = Some(self.lane.pages_walked());
                base = batch.data.len();
                batch.data.extend_from_slice(bytes);
            }
            let (time, begin, end, missed) = self.lane.take();
            if missed != Missed::Nothing {
                batch.gaps.push((batch.records.len(), missed));
            }
            batch.records.push((time, (base + begin) as u32, (base + end) as u32));
        }
    }
}

struct Shared<'l> {
    layout: Layout,
    batch: usize,
    slots: Vec<Mutex<Slot<'l>>>,
    /// A batch of this lane is ready, or it has come to its end.
    filled: Vec<Condvar>,
    jobs: Mutex<Jobs>,
    work: Condvar,
}

struct Jobs {
    /// Lanes that have room for a batch.
    lanes: VecDeque<usize>,
    over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left nothing half done that the others would read.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared<'_> {
    /// What a thread does.
    fn work(&self) {
        while let Some(lane) = self.job() {
            let mut slot = lock(&self.slots[lane]);
            let Some(mut reader) = slot.reader.take() else { continue };
            let mut batch = slot.empty.pop().unwrap_or_default();
            drop(slot);
            // Whoever waits for this lane must not wait for ever.
            let bail = Bail { shared: self, lane };
            let over = reader.fill(&self.layout, self.batch, &mut batch);
            std::mem::forget(bail);
            let mut slot = lock(&self.slots[lane]);
            slot.ready.push_back(batch);
            slot.over = over;
            if !over {
                reader.queued = slot.ready.len() < WAITING;
                let again = reader.queued;
                slot.reader = Some(reader);
                if again {
                    self.queue(lane);
                }
            }
            drop(slot);
            self.filled[lane].notify_one();
        }
    }

    fn queue(&self, lane: usize) {
        lock(&self.jobs).lanes.push_back(lane);
        self.work.notify_one();
    }

    fn job(&self) -> Option<usize> {
        let mut jobs = lock(&self.jobs);
        loop {
            if jobs.over {
                return None;
            }
            if let Some(lane) = jobs.lanes.pop_front() {
                return Some(lane);
            }
            jobs = self.work.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next batch of a lane in exchange for one that was taken apart; `None` at its end.
    fn next(&self, lane: usize, done: Batch) -> Option<Batch> {
        let mut slot = lock(&self.slots[lane]);
        slot.empty.push(done);
        loop {
            if let Some(batch) = slot.ready.pop_front() {
                if let Some(reader) = &mut slot.reader
                    && !std::mem::replace(&mut reader.queued, true)
                {
                    self.queue(lane);
                }
                return Some(batch);
            }
            if slot.over {
                return None;
            }
            slot = self.filled[lane].wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct Over<'s, 'l>(&'s Shared<'l>);

impl Drop for Over<'_, '_> {
    fn drop(&mut self) {
        lock(&self.0.jobs).over = true;
        self.0.work.notify_all();
    }
}

/// Says that a lane is at its end, should the thread that reads it panic; the panic itself reaches the thread that joins it.
struct Bail<'s, 'l> {
    shared: &'s Shared<'l>,
    lane: usize,
}

impl Drop for Bail<'_, '_> {
    fn drop(&mut self) {
        lock(&self.shared.slots[self.lane]).over = true;
        self.shared.filled[self.lane].notify_one();
    }
}

/// A lane as who merges sees it.
struct Ahead<'s, 'l> {
    shared: &'s Shared<'l>,
    lane: usize,
    cpu: u16,
    buffer: u16,
    batch: Batch,
    /// The record behind the current one, and the first gap that was not handed on.
    next: usize,
    gap: usize,
    time: u64,
}

impl Head for Ahead<'_, '_> {
    #[inline]
    fn advance(&mut self, _layout: &Layout) -> io::Result<bool> {
        loop {
            if let Some(&(time, ..)) = self.batch.records.get(self.next) {
                self.next += 1;
                self.time = time;
                return Ok(true);
            }
            if let Some(e) = self.batch.failed.take() {
                return Err(e);
            }
            match self.shared.next(self.lane, std::mem::take(&mut self.batch)) {
                Some(batch) => (self.batch, self.next, self.gap) = (batch, 0, 0),
                None => return Ok(false),
            }
        }
    }

    #[inline]
    fn time(&self) -> u64 {
        self.time
    }

    #[inline]
    fn raw(&mut self) -> Raw<'_> {
        let at = self.next - 1;
        let (time, begin, end) = self.batch.records[at];
        let missed = match self.batch.gaps.get(self.gap) {
            Some(&(before, missed)) if before == at => {
                self.gap += 1;
                missed
            }
            _ => Missed::Nothing,
        };
        let data = &self.batch.data[begin as usize..end as usize];
        Raw { time, cpu: self.cpu, buffer: self.buffer, missed, data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_whole_sub_buffers_or_there_are_none() {
        assert_eq!(batch_size(1, 4096), Some(BATCH));
        assert_eq!(batch_size(16, 65_536), Some(BATCH));
        assert_eq!(batch_size(1, 65_537), None);
        assert_eq!(batch_size(64, 4096), Some(16 << 10));
        assert_eq!(batch_size(64, 16_385), None);
        assert_eq!(batch_size(8192, 64), None);
    }
}
