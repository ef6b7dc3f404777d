//! Merges all lanes of a recording by time, with threads that read and unpack ahead of the consumer.
//!
//! One thread at a time reads a lane. It copies whole sub-buffers to a batch and notes the places of their records. A queue has the lanes
//! with room for a batch; a thread takes the next lane from it, so no thread waits for room.

use crate::formats::recorded::merge::{Head, Lane, Raw, merge_heads};
use crate::ring::Missed;
use crate::ring::schema::Layout;
use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Batches of a lane that wait; one more is being filled, and one is being read.
const WAITING: usize = 2;
/// Bytes of sub-buffers in a batch; its record index takes up to twice as much.
const BATCH: usize = 64 << 10;
/// Approximate memory limit for all batches of all lanes.
const MEMORY: usize = 12 << 20;

/// Bytes of one batch for this number of lanes; `None` if whole sub-buffers do not fit into the memory limit.
pub(crate) fn batch_size(lanes: usize, largest_page: u64) -> Option<usize> {
    let size = (MEMORY / (lanes.max(1) * (WAITING + 2) * 3)).min(BATCH);
    (size >= 4096 && size as u64 >= largest_page).then_some(size)
}

/// Like [`crate::formats::recorded::merge::merge`], with the same result, using additional threads.
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
        // Stops the threads at every exit: also after an error, or a panic of `f`.
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

/// Consecutive records of a lane.
#[derive(Default)]
struct Batch {
    /// Consecutive sub-buffers.
    data: Vec<u8>,
    /// Time, and the record's range in `data`.
    records: Vec<(u64, u32, u32)>,
    /// Events missing before a record, by its index in `records`.
    gaps: Vec<(usize, Missed)>,
    /// The read error after the last record.
    failed: Option<io::Error>,
}

/// One lane.
struct Slot<'l> {
    /// `None`: a thread has the reader, or the lane was read to its end.
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
    /// The lane's current record is not yet in a batch.
    carried: bool,
    /// The lane is in the queue.
    queued: bool,
}

impl Reader<'_> {
    /// Fills a batch with whole sub-buffers; true at the end of the lane.
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
    /// Signals that a batch of a lane is ready, or that the lane has ended.
    filled: Vec<Condvar>,
    jobs: Mutex<Jobs>,
    work: Condvar,
}

struct Jobs {
    /// Lanes with room for a batch.
    lanes: VecDeque<usize>,
    over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked leaves no half-written state that others would read.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared<'_> {
    /// The loop of a reader thread.
    fn work(&self) {
        while let Some(lane) = self.job() {
            let mut slot = lock(&self.slots[lane]);
            let Some(mut reader) = slot.reader.take() else { continue };
            let mut batch = slot.empty.pop().unwrap_or_default();
            drop(slot);
            // If this thread panics, the consumer of the lane must not wait for ever.
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

    /// Returns the next batch of a lane and takes back a used one; `None` at the end.
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

/// Marks a lane as ended if its reader thread panics. The panic itself reaches the thread that joins it.
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

/// A lane from the view of the merge.
struct Ahead<'s, 'l> {
    shared: &'s Shared<'l>,
    lane: usize,
    cpu: u16,
    buffer: u16,
    batch: Batch,
    /// Index of the record after the current one, and of the first gap that was not reported.
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
