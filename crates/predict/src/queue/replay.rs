//! Replays calls in virtual time, with a device that works in parallel.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use flashscope_cachesim::PAGE_BYTES;
use flashscope_trace::{FileId, TaskId};

use super::device::Servers;
use super::{Extents, ProcessorCost, QueueCost, Requested};

/// Most pages of a bio.
const BIO_PAGES: u64 = 256;
/// `BLK_DEF_MAX_SECTORS` (include/linux/blkdev.h): the limit of a queue's requests unless its driver sets a lower one.
const DEFAULT_REQUEST_BYTES: u64 = 2560 * 512;
/// Fewest stretches for a fit of the processor's parts: nine parts are not determined by fewer.
const ENOUGH_STRETCHES: u64 = 18;
/// Most pages in flight.
const MAX_COMING: usize = 1 << 16;

#[derive(Clone, Copy)]
struct Coming {
    /// When its bio is complete, with all processor time for it.
    at: f64,
    /// The call that requested it.
    by: u64,
}

/// A task's time in the replay, and its time in the recording.
#[derive(Clone, Copy)]
struct Clock {
    virtual_ns: f64,
    recorded_ns: Option<u64>,
}

/// Replays calls in recorded order.
pub struct Replay<'a> {
    cost: ProcessorCost,
    extents: &'a Extents,
    device: Servers,
    request_bytes: u64,
    tasks: HashMap<TaskId, Clock>,
    coming: HashMap<(FileId, u64), Coming>,
    /// Completion times of bios (bits of a positive number sort as the number does), and their pages.
    completions: BinaryHeap<Reverse<(u64, u64)>>,
    /// Pages that are allocated and not requested yet.
    run: Option<(FileId, u64, u64)>,
    now: f64,
    began: f64,
    /// How much later than recorded the last call ended: a task that begins after it may have waited for it.
    drift: f64,
    task: TaskId,
    call: u64,
    requested: Requested,
    longest_bytes: u64,
    /// The longest request for which the device's fit holds, bytes.
    known_bytes: u64,
    /// Time in calls, and in advice that requests pages.
    in_calls: Stretches,
}

/// Most stretches of time that are kept separately.
const MOST_STRETCHES: usize = 1 << 16;

/// The time in which any task is in a call.
#[derive(Default)]
struct Stretches {
    kept: Vec<(f64, f64)>,
    /// Sum of the stretches that are no longer kept.
    before_ns: f64,
}

impl Stretches {
    fn add(&mut self, from: f64, to: f64) {
        self.kept.push((from, to));
        if self.kept.len() >= MOST_STRETCHES {
            self.put_together();
            // Tasks are replayed in recorded order, so a new stretch lies near the end.
            let most = self.kept.len().saturating_sub(MOST_STRETCHES / 2);
            self.before_ns += self.kept.drain(..most).map(|(from, to)| to - from).sum::<f64>();
        }
    }

    fn put_together(&mut self) {
        self.kept.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        self.kept.dedup_by(|next, last| {
            let meets = next.0 <= last.1;
            if meets {
                last.1 = last.1.max(next.1);
            }
            meets
        });
    }

    fn total_ns(mut self) -> f64 {
        self.put_together();
        self.before_ns + self.kept.iter().map(|(from, to)| to - from).sum::<f64>()
    }
}

impl Replay<'_> {
    /// `request_bytes`: the longest request of the queue; 0 where it is not known.
    pub fn new<'a>(cost: &QueueCost, request_bytes: u64, extents: &'a Extents) -> Replay<'a> {
        let request_bytes = match request_bytes {
            0 => DEFAULT_REQUEST_BYTES.max(cost.device.largest_bytes),
            bytes => bytes,
        };
        Replay {
            cost: cost.processor,
            extents,
            device: Servers::new(&cost.device, cost.device.depth),
            request_bytes,
            tasks: HashMap::new(),
            coming: HashMap::new(),
            completions: BinaryHeap::new(),
            run: None,
            now: 0.0,
            began: 0.0,
            drift: 0.0,
            task: TaskId(0),
            call: 0,
            requested: Requested::default(),
            longest_bytes: 0,
            known_bytes: if cost.processor.calls < ENOUGH_STRETCHES { 0 } else { cost.device.known_bytes() },
            in_calls: Stretches::default(),
        }
    }

    /// Begins a call that was recorded from `began_ns` to `ended_ns`.
    pub fn begin(&mut self, tid: TaskId, began_ns: u64, ended_ns: Option<u64>) {
        let clock = self.tasks.get(&tid).copied();
        self.now = match clock {
            // Its pause lasts as long as recorded.
            Some(Clock { virtual_ns, recorded_ns: Some(ended) }) => virtual_ns + began_ns.saturating_sub(ended) as f64,
            Some(Clock { virtual_ns, recorded_ns: None }) => virtual_ns,
            None => (began_ns as f64 + self.drift).max(0.0),
        };
        self.tasks.insert(tid, Clock { virtual_ns: self.now, recorded_ns: ended_ns });
        (self.task, self.began) = (tid, self.now);
        self.call += 1;
        // Completions in the pause did not delay the call.
        self.skip_completions();
        self.spend(self.cost.call_ns);
    }

    /// Begins advice that reads, which is no call: it starts at its task's current time.
    pub fn beside(&mut self, tid: TaskId, asks_for_pages: bool) {
        self.call += 1;
        self.now = self.tasks.get(&tid).map_or(self.now, |clock| clock.virtual_ns);
        (self.task, self.began) = (tid, self.now);
        if asks_for_pages {
            self.spend(self.cost.call_ns);
        }
    }

    /// Adds processor time of the task; completions meanwhile add theirs.
    fn spend(&mut self, ns: f64) {
        let mut until = self.now + ns;
        while let Some(&Reverse((at, pages))) = self.completions.peek()
            && f64::from_bits(at) <= until
        {
            self.completions.pop();
            until += self.cost.done_ns + self.cost.done_page_ns * pages as f64;
        }
        self.now = until;
    }

    fn skip_completions(&mut self) {
        while let Some(&Reverse((at, _))) = self.completions.peek()
            && f64::from_bits(at) <= self.now
        {
            self.completions.pop();
        }
    }

    /// A page was added to the cache.
    pub fn added(&mut self, file: FileId, page: u64) {
        match &mut self.run {
            Some((of, first, pages))
                if *of == file && first.saturating_add(*pages) == page && !self.extents.breaks(file, page) =>
            {
                *pages += 1;
            }
            _ => {
                self.ask();
                self.run = Some((file, page, 1));
            }
        }
        self.spend(self.cost.added_ns);
    }

    /// Requests the added pages from the device.
    fn ask(&mut self) {
        let Some((file, first, pages)) = self.run.take() else { return };
        // No call waits for pages that are complete.
        if self.coming.len() >= MAX_COMING {
            let now = self.now;
            self.coming.retain(|_, coming| coming.at > now);
            if self.coming.len() >= MAX_COMING {
                self.coming.clear();
            }
        }
        let mut at = first;
        let mut left = pages;
        while left > 0 {
            let in_bio = left.min(BIO_PAGES);
            self.spend(self.cost.bio_ns + self.cost.bio_page_ns * in_bio as f64);
            let mut bytes = in_bio * PAGE_BYTES;
            let mut done = self.now;
            while bytes > 0 {
                let length = bytes.min(self.request_bytes);
                done = done.max(self.device.submit(self.now, length));
                self.requested.requests += 1;
                self.longest_bytes = self.longest_bytes.max(length);
                bytes -= length;
            }
            self.requested.kib += in_bio * (PAGE_BYTES / 1024);
            self.completions.push(Reverse((done.max(0.0).to_bits(), in_bio)));
            let there = done + self.cost.done_page_ns * in_bio as f64;
            for page in at..at.saturating_add(in_bio) {
                self.coming.insert((file, page), Coming { at: there, by: self.call });
            }
            self.spend(self.cost.driver_page_ns * in_bio as f64);
            at = at.saturating_add(in_bio);
            left -= in_bio;
        }
    }

    /// The reader uses a page, and waits where it is in flight.
    pub fn used(&mut self, file: FileId, page: u64) {
        self.ask();
        if let Some(coming) = self.coming.remove(&(file, page)) {
            self.requested.pages_late += u64::from(coming.by != self.call && coming.at > self.began);
            if coming.at > self.now {
                self.now = coming.at;
                self.skip_completions();
                self.spend(self.cost.wait_ns);
            }
        }
        self.spend(self.cost.page_ns);
    }

    /// Ends the access; `timed`: it is a call with a recorded end.
    pub fn end(&mut self, timed: bool) {
        self.ask();
        self.in_calls.add(self.began, self.now);
        if timed && let Some(clock) = self.tasks.get_mut(&self.task) {
            clock.virtual_ns = self.now;
            if let Some(ended) = clock.recorded_ns {
                self.drift = self.now - ended as f64;
            }
        }
    }

    /// Time in all calls, and the requests to the device. `None` for the time where a request was longer than the fit holds for.
    pub fn finish(self) -> (Option<f64>, Requested) {
        let known = self.longest_bytes <= self.known_bytes;
        (known.then(|| self.in_calls.total_ns()), self.requested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::DeviceCost;
    use flashscope_trace::Device;

    const FILE: FileId = FileId { device: Some(Device(7)), inode: 5 };

    fn cost(depth: usize) -> QueueCost {
        let (request_ns, kib_ns, largest_bytes) = (100.0, 1.0, 4096);
        let device = DeviceCost { request_ns, kib_ns, depth, requests: 9, largest_bytes, ..DeviceCost::default() };
        let processor = ProcessorCost {
            call_ns: 5.0,
            added_ns: 3.0,
            bio_ns: 7.0,
            wait_ns: 11.0,
            page_ns: 2.0,
            driver_page_ns: 1.0,
            done_page_ns: 4.0,
            done_ns: 6.0,
            calls: ENOUGH_STRETCHES,
            ..ProcessorCost::default()
        };
        QueueCost { device, processor }
    }

    #[test]
    fn a_pause_hides_what_is_read_ahead_and_without_one_it_is_late() {
        let extents = Extents::default();
        for (pause, waits, late) in [(1000, false, 0), (0, true, 1)] {
            let mut replay = Replay::new(&cost(1), 0, &extents);
            replay.begin(TaskId(1), 0, Some(100));
            replay.added(FILE, 0);
            replay.used(FILE, 0);
            // 5 + 3 + 7, the device's 104, 4 when it is back, 11 to wake, 2 for the page.
            assert_eq!(replay.now, 136.0);
            replay.added(FILE, 1);
            replay.added(FILE, 2);
            replay.end(true);
            // 2 · 3 + 7, and the driver's 2 beside the device.
            assert_eq!(replay.now, 151.0);
            replay.begin(TaskId(1), 100 + pause, Some(300 + pause));
            replay.used(FILE, 1);
            replay.end(true);
            let began = 151.0 + pause as f64;
            // Requested for at 149, 108 for the device, 2 · 4 for two pages.
            let ended = if waits { 149.0 + 108.0 + 8.0 + 11.0 + 2.0 } else { began + 5.0 + 2.0 };
            assert_eq!(replay.now, ended);
            let (time, requested) = replay.finish();
            assert_eq!(time, Some(151.0 + ended - began));
            assert_eq!(requested, Requested { requests: 2, kib: 12, pages_late: late });
        }
    }

    #[test]
    fn what_comes_back_while_the_reader_is_busy_takes_its_time() {
        let extents = Extents::default();
        let mut replay = Replay::new(&cost(1), 0, &extents);
        replay.begin(TaskId(1), 0, Some(100));
        replay.added(FILE, 9);
        replay.ask();
        // Issued at 15, back at 119: six and four on top.
        replay.spend(200.0);
        assert_eq!(replay.now, 15.0 + 1.0 + 200.0 + 10.0);
    }

    #[test]
    fn long_runs_are_cut_and_served_as_many_at_once_as_the_device_does() {
        let extents = Extents::default();
        let done = |depth: usize| {
            let mut replay = Replay::new(&cost(depth), 8192, &extents);
            replay.begin(TaskId(1), 0, None);
            (0..4).for_each(|page| replay.added(FILE, page));
            replay.used(FILE, 0);
            assert_eq!(replay.requested.requests, 2);
            replay.now
        };
        // One after the other, the second one's 108 come on top.
        assert_eq!(done(1) - done(2), 108.0);
    }

    /// A program that is run after another reads what that one has brought in.
    #[test]
    fn what_comes_after_a_task_that_takes_longer_comes_later() {
        let extents = Extents::default();
        let mut replay = Replay::new(&cost(1), 0, &extents);
        replay.begin(TaskId(1), 0, Some(10));
        replay.added(FILE, 0);
        replay.used(FILE, 0);
        replay.end(true);
        assert_eq!(replay.now, 136.0);
        replay.begin(TaskId(2), 30, Some(40));
        assert_eq!(replay.began, 136.0 + 20.0);
        replay.used(FILE, 0);
        assert_eq!((replay.now, replay.requested.pages_late), (156.0 + 5.0 + 2.0, 0));
        // What is issued later is not in the way of what is issued before it.
        let mut device = Servers::new(&cost(1).device, 1);
        assert_eq!((device.submit(500.0, 4096), device.submit(100.0, 4096)), (604.0, 204.0));
        assert_eq!(device.submit(550.0, 4096), 708.0);
    }

    /// Where requests of one length were seen, longer ones are unknown.
    #[test]
    fn what_was_not_seen_is_not_told() {
        let extents = Extents::default();
        let mut cost = cost(1);
        cost.device.degenerate = true;
        let time = |pages: u64| {
            let mut replay = Replay::new(&cost, 0, &extents);
            replay.begin(TaskId(1), 0, Some(100));
            (0..pages).for_each(|page| replay.added(FILE, page));
            replay.used(FILE, 0);
            replay.end(true);
            replay.finish().0
        };
        assert!(time(1).is_some() && time(2).is_none());
        cost.device.degenerate = false;
        assert_eq!((cost.device.known_bytes(), cost.device.largest_bytes), (8 * 4096, 4096));
    }

    #[test]
    fn nonsense_is_no_panic() {
        let extents = Extents::default();
        let mut replay = Replay::new(&cost(1), 1, &extents);
        replay.begin(TaskId(1), u64::MAX, Some(0));
        (0..3).for_each(|page| replay.added(FILE, u64::MAX - page));
        replay.used(FILE, u64::MAX);
        replay.end(true);
        replay.beside(TaskId(9), true);
        replay.end(false);
    }

    /// Two tasks wait for the device at the same time.
    #[test]
    fn time_in_which_several_are_in_a_call_counts_once() {
        let extents = Extents::default();
        let mut replay = Replay::new(&cost(2), 0, &extents);
        for (tid, page) in [(1, 0), (2, 9)] {
            replay.begin(TaskId(tid), 0, Some(100));
            replay.added(FILE, page);
            replay.used(FILE, page);
            replay.end(true);
            replay.drift = 0.0;
        }
        assert_eq!(replay.finish().0, Some(136.0));
        let mut in_calls = Stretches::default();
        (0..200_000)
            .for_each(|n| in_calls.add(f64::from(n) * 10.0, f64::from(n) * 10.0 + if n % 2 == 0 { 4.0 } else { 15.0 }));
        // Each second one holds the next.
        assert_eq!(in_calls.total_ns(), 4.0 + 100_000.0 * 15.0);
    }

    /// What lies elsewhere on the device is a bio of its own.
    #[test]
    fn a_run_ends_where_its_file_goes_on_elsewhere() {
        let requests = |extents: &Extents| {
            let mut replay = Replay::new(&cost(1), 0, extents);
            replay.begin(TaskId(1), 0, None);
            (0..4).for_each(|page| replay.added(FILE, page));
            replay.used(FILE, 0);
            replay.requested.requests
        };
        let mut extents = Extents::default();
        assert_eq!(requests(&extents), 1);
        extents.seen(FILE, &[0, 1, 2], 100);
        extents.seen(FILE, &[3, 4], 900);
        assert_eq!(requests(&extents), 2);
    }
}
