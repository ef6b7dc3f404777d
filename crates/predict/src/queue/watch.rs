//! Reads the block events of a recording's calls.

use std::collections::{BTreeMap, HashMap};

use flashscope_trace::{BlockAction, BlockEvent, Device, FileId, RequestFlags, TaskId};

use super::device::Sample;
use super::processor::Sums;
use super::{DeviceCost, QueueCost, Queued};
use flashscope_analysis::cache::in_flight::{Bio, InFlight, MAX_FOLLOWED, is_read};

/// Most requests that the device is fitted to.
const MAX_SAMPLES: usize = 1 << 16;

/// A call that a task is in.
#[derive(Clone, Debug, Default)]
struct Inside {
    began_ns: u64,
    file: Option<FileId>,
    /// Pages that it requests, from `first` to before `end`.
    first: u64,
    end: u64,
    is_fault: bool,
    added: u64,
    first_added: Moment,
    /// `None` where the task has done something else since.
    last_added: Option<Moment>,
    /// Pages that were added directly after another, the time for them, and completions meanwhile.
    in_a_row: Stretch,
    bios: u64,
    last_issue: Option<Moment>,
    /// Time of the task's last event in the call.
    last_seen_ns: u64,
    waited: Option<Waited>,
    late: u64,
    /// Bios and pages completed while the call ran.
    done: Done,
}

/// Numbers of completed bios and pages.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    bios: u64,
    pages: u64,
}

impl Done {
    fn since(self, before: Done) -> Done {
        Done { bios: self.bios - before.bios, pages: self.pages - before.pages }
    }
}

/// The time of an event in a call, and the completions up to it.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    time_ns: u64,
    done: Done,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    pages: u64,
    ns: u64,
    done: Done,
}

impl Inside {
    fn now(&self, time_ns: u64) -> Moment {
        Moment { time_ns, done: self.done }
    }
}

/// The last bio with requested pages that completed while the call ran.
#[derive(Clone, Copy, Debug)]
struct Waited {
    until_ns: u64,
    pages: u64,
    /// The first page of the bio that the call requests.
    from: u64,
}

/// One disk.
#[derive(Debug, Default)]
struct Disk {
    /// Requests in flight by first sector.
    issued: BTreeMap<u64, Sample>,
    samples: Vec<Sample>,
    most_at_once: usize,
    requests: u64,
    metadata_requests: u64,
    bytes: u64,
    /// It holds pages that a call read.
    read_by_calls: bool,
}

/// Collects [`Queued`] from events in order of time.
#[derive(Debug, Default)]
pub struct QueueReader {
    found: Queued,
    inside: HashMap<TaskId, Inside>,
    /// Bios with the task that queued them and the begin of its call.
    in_flight: InFlight<Option<(TaskId, u64)>>,
    disks: BTreeMap<Device, Disk>,
    sums: Sums,
}

/// Most disks.
const MAX_DISKS: usize = 64;

impl QueueReader {
    /// A call begins: `pages` are the first page that it requests and the page behind the last.
    pub fn begin(&mut self, tid: TaskId, time_ns: u64, file: FileId, pages: (u64, u64), is_fault: bool) {
        if self.inside.len() >= MAX_FOLLOWED && !self.inside.contains_key(&tid) {
            self.found.calls_not_followed += 1;
            return;
        }
        self.in_flight.forget_pending(tid);
        let (first, end) = pages;
        let (began_ns, last_seen_ns, file) = (time_ns, time_ns, Some(file));
        self.inside.insert(tid, Inside { began_ns, file, first, end, is_fault, last_seen_ns, ..Inside::default() });
    }

    /// Pages were added to the cache.
    pub fn added(&mut self, tid: TaskId, time_ns: u64, file: FileId, first: u64, pages: u64) {
        if let Some(inside) = self.inside.get_mut(&tid) {
            let now = inside.now(time_ns);
            if inside.added == 0 {
                inside.first_added = now;
            }
            if let Some(before) = inside.last_added.replace(now) {
                let done = now.done.since(before.done);
                let row = &mut inside.in_a_row;
                row.pages += pages;
                row.ns = row.ns.saturating_add(time_ns.saturating_sub(before.time_ns));
                (row.done.bios, row.done.pages) = (row.done.bios + done.bios, row.done.pages + done.pages);
            }
            inside.added += pages;
            inside.last_seen_ns = time_ns;
        }
        self.in_flight.added(tid, file, first, pages);
    }

    pub fn block(&mut self, time_ns: u64, tid: TaskId, event: &BlockEvent) {
        if !is_read(event) {
            return;
        }
        match event.action {
            BlockAction::Queue => self.queue(tid, event),
            BlockAction::Issue => self.issue(time_ns, tid, event),
            BlockAction::Complete => self.complete(time_ns, event),
            _ => {}
        }
    }

    fn queue(&mut self, tid: TaskId, event: &BlockEvent) {
        // Advice that reads is no call.
        let inside = self.inside.get_mut(&tid);
        let by = inside.as_ref().map(|inside| (tid, inside.began_ns));
        let Some(bio) = self.in_flight.queued(tid, event, by) else { return };
        if let Some(file) = bio.file {
            self.found.extents.seen(file, &bio.pages, event.sector);
        }
        if let Some(inside) = inside {
            inside.bios += 1;
            // The pages after its first bio no longer form one row.
            if inside.bios > 1 {
                inside.last_added = None;
            }
        }
    }

    fn issue(&mut self, time_ns: u64, tid: TaskId, event: &BlockEvent) {
        if self.disks.len() >= MAX_DISKS && !self.disks.contains_key(&event.device) {
            self.found.requests_not_followed += 1;
            return;
        }
        let of_call = self.in_flight.has_part_of(event);
        let disk = self.disks.entry(event.device).or_default();
        disk.read_by_calls |= of_call;
        disk.requests += 1;
        disk.metadata_requests += u64::from(event.flags.has(RequestFlags::META));
        disk.bytes = disk.bytes.saturating_add(event.bytes);
        // A lost request would stay in flight for ever.
        if disk.issued.len() >= MAX_FOLLOWED {
            self.found.requests_not_followed += disk.issued.len() as u64;
            disk.issued.clear();
        }
        let alone = disk.issued.is_empty();
        // With two in flight, neither is alone.
        if disk.issued.len() == 1 {
            disk.issued.values_mut().for_each(|other| other.alone = false);
        }
        disk.issued.insert(event.sector, Sample { issued_ns: time_ns, took_ns: 0, bytes: event.bytes, alone });
        disk.most_at_once = disk.most_at_once.max(disk.issued.len());
        if let Some(inside) = self.inside.get_mut(&tid) {
            inside.last_issue = Some(inside.now(time_ns));
            inside.last_seen_ns = time_ns;
        }
    }

    fn complete(&mut self, time_ns: u64, event: &BlockEvent) {
        if let Some(disk) = self.disks.get_mut(&event.device)
            && let Some(issued) = disk.issued.remove(&event.sector)
            && disk.samples.len() < MAX_SAMPLES
        {
            disk.samples.push(Sample { took_ns: time_ns.saturating_sub(issued.issued_ns), ..issued });
        }
        for bio in self.in_flight.completed(event) {
            self.arrived(time_ns, &bio);
        }
    }

    fn arrived(&mut self, time_ns: u64, bio: &Bio<Option<(TaskId, u64)>>) {
        let mut pages = bio.pages.clone();
        pages.sort_unstable();
        for (&tid, inside) in &mut self.inside {
            inside.done.bios += 1;
            inside.done.pages += bio.pages.len() as u64;
            if inside.file != bio.file {
                continue;
            }
            let requested = &pages[pages.partition_point(|&page| page < inside.first)..];
            let requested = &requested[..requested.partition_point(|&page| page < inside.end)];
            if let Some(&from) = requested.first() {
                let own = bio.by == Some((tid, inside.began_ns));
                inside.late += if own { 0 } else { requested.len() as u64 };
                inside.waited = Some(Waited { until_ns: time_ns, pages: bio.pages.len() as u64, from });
            }
        }
    }

    /// A read returned the bytes before this page: its file may have ended there.
    pub fn got(&mut self, tid: TaskId, behind: u64) {
        if let Some(inside) = self.inside.get_mut(&tid).filter(|inside| !inside.is_fault) {
            inside.end = inside.end.min(behind.max(inside.first));
        }
    }

    /// The task left its call. Returns the end of a fault, which has no event: the end of its wait, where one was seen.
    pub fn over(&mut self, tid: TaskId, ended_ns: Option<u64>) -> Option<u64> {
        let inside = self.inside.remove(&tid)?;
        self.in_flight.forget_pending(tid);
        self.found.pages_late += inside.late;
        let until = inside.waited.map(|waited| waited.until_ns).filter(|_| inside.is_fault);
        let Some(ended_ns) = ended_ns else { return until };
        let number = |value: u64| value as f64;
        let since = |from: u64, to: u64| number(to.saturating_sub(from));
        let requested = number(inside.end.saturating_sub(inside.first));
        let waited = inside.waited.filter(|waited| waited.until_ns >= inside.last_seen_ns);
        // A call with one bio: the times between its events separate the parts, also where all bios have the same length.
        let last = inside.last_issue.zip(inside.last_added).filter(|_| inside.bios == 1);
        let begun = last.filter(|(issue, added)| issue.time_ns >= added.time_ns);
        if let Some((issue, last_added)) = begun {
            let first = inside.first_added;
            self.stretch([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0], since(inside.began_ns, first.time_ns), first.done);
            let row = inside.in_a_row;
            if row.pages > 0 {
                self.stretch([0.0, number(row.pages), 0.0, 0.0, 0.0, 0.0, 0.0], number(row.ns), row.done);
            }
            let done = issue.done.since(last_added.done);
            let to_issue = since(last_added.time_ns, issue.time_ns);
            self.stretch([0.0, 0.0, 1.0, 0.0, 0.0, 0.0, number(inside.added)], to_issue, done);
        }
        let added = number(inside.added);
        match (waited, begun) {
            // Where the reader slept, only the time before and after the sleep is the processor's.
            (Some(waited), _) => {
                let done = Done { bios: 0, pages: waited.pages };
                let left = number(inside.end.saturating_sub(waited.from).max(1));
                self.stretch([0.0, 0.0, 0.0, 1.0, left, 0.0, 0.0], since(waited.until_ns, ended_ns), done);
            }
            (None, Some((issue, _))) => {
                let done = inside.done.since(issue.done);
                self.stretch([0.0, 0.0, 0.0, 0.0, requested, added, 0.0], since(issue.time_ns, ended_ns), done);
            }
            // A call that requested more pages after the completion had not waited: it found them complete.
            (None, None) => {
                let parts = [1.0, added, number(inside.bios), 0.0, requested, added, added];
                self.stretch(parts, since(inside.began_ns, ended_ns), inside.done);
            }
        }
        until
    }

    /// Adds processor time, divided into its parts and the completions in it.
    fn stretch(&mut self, parts: [f64; 7], ns: f64, done: Done) {
        let [call, added, bios, waits, pages, driver, in_bios] = parts;
        let (done_pages, done_bios) = (done.pages as f64, done.bios as f64);
        self.sums.add([call, added, bios, waits, pages, driver, done_pages, done_bios, in_bios], ns);
    }

    pub fn finish(self) -> Queued {
        let mut found = self.found;
        let read: Vec<&Disk> = self.disks.values().filter(|disk| disk.read_by_calls).collect();
        found.requests = read.iter().map(|disk| disk.requests).sum();
        found.metadata_requests = read.iter().map(|disk| disk.metadata_requests).sum();
        found.kib = read.iter().fold(0, |sum: u64, disk| sum.saturating_add(disk.bytes)) / 1024;
        found.pages_given_up = self.in_flight.pages_given_up();
        // Of several disks, the one with most requests.
        let most = read.into_iter().max_by_key(|disk| disk.requests);
        let device = most.and_then(|disk| DeviceCost::fit(&disk.samples, disk.most_at_once));
        found.cost = device.zip(self.sums.fit()).map(|(device, processor)| QueueCost { device, processor });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_cachesim::PAGE_BYTES;
    use flashscope_trace::BlockDetail;

    const FILE: FileId = FileId { device: Some(Device(7)), inode: 5 };
    const DISK: Device = Device(7);

    fn block(action: BlockAction, page: u64, pages: u64) -> BlockEvent {
        let (sector, bytes) = (1000 + page * 8, pages * PAGE_BYTES);
        let flags = RequestFlags::READ;
        BlockEvent { action, device: DISK, flags, sector, bytes, error: 0, cgroup: 0, detail: BlockDetail::None }
    }

    /// Pages come in and are requested: a bio, a request.
    fn asks(watch: &mut QueueReader, at: u64, page: u64, pages: u64) {
        watch.added(TaskId(1), at, FILE, page, pages);
        watch.block(at + 2, TaskId(1), &block(BlockAction::Queue, page, pages));
        watch.block(at + 3, TaskId(1), &block(BlockAction::Issue, page, pages));
    }

    #[test]
    fn calls_waits_and_late_pages_are_told_from_events() {
        let mut watch = QueueReader::default();
        // Waits for its own page; the next two are read ahead.
        watch.begin(TaskId(1), 100, FILE, (0, 1), false);
        asks(&mut watch, 110, 0, 1);
        watch.block(213, TaskId(0), &block(BlockAction::Complete, 0, 1));
        watch.over(TaskId(1), Some(220));
        // Finds its page not there yet: an earlier call had requested it.
        watch.begin(TaskId(1), 300, FILE, (0, 1), false);
        asks(&mut watch, 310, 1, 2);
        watch.over(TaskId(1), Some(330));
        watch.begin(TaskId(1), 340, FILE, (1, 2), false);
        watch.block(513, TaskId(0), &block(BlockAction::Complete, 1, 2));
        watch.over(TaskId(1), Some(520));
        // There when it began.
        watch.begin(TaskId(1), 600, FILE, (2, 3), false);
        watch.over(TaskId(1), Some(605));
        let found = watch.finish();
        assert_eq!((found.requests, found.kib, found.pages_late), (2, 12, 1));
        let device = found.cost.unwrap().device;
        // 100 for 4 KiB, 200 for 8.
        assert!((device.kib_ns - 25.0).abs() < 1e-9 && device.request_ns.abs() < 1e-9, "{device:?}");
        assert_eq!((device.depth, device.requests, device.degenerate, device.largest_bytes), (1, 2, false, 8192));
    }

    #[test]
    fn what_is_too_much_to_follow_is_counted() {
        let (mut watch, most) = (QueueReader::default(), MAX_FOLLOWED as u64);
        (1..=most as u32 + 2).for_each(|tid| watch.begin(TaskId(tid), 100, FILE, (0, 1), false));
        // The last finds all others in flight, which nothing ended.
        (0..=most).for_each(|page| watch.block(200, TaskId(1), &block(BlockAction::Issue, page, 1)));
        // The first is the disk of those.
        for disk in (0..=MAX_DISKS as u32).filter(|&disk| Device(disk) != DISK) {
            watch.block(210, TaskId(1), &BlockEvent { device: Device(disk), ..block(BlockAction::Issue, 0, 1) });
        }
        let found = watch.finish();
        assert_eq!((found.calls_not_followed, found.requests_not_followed), (2, most + 1));
    }

    /// A stream in windows of four pages: 10 for a call, 6 for a page that is made room for, 12 for a bio and 1 for each page in it, 5
    /// for a page that is read, 7 for one in the driver.
    #[test]
    fn what_lies_between_events_tells_parts_apart_where_all_bios_are_alike() {
        let mut watch = QueueReader::default();
        for n in 0..50 {
            let at = n * 10_000;
            watch.begin(TaskId(1), at, FILE, (4 * n, 4 * n + 1), false);
            for page in 0..4 {
                watch.added(TaskId(1), at + 16 + 6 * page, FILE, 4 * n + page, 1);
            }
            watch.block(at + 40, TaskId(1), &block(BlockAction::Queue, 4 * n, 4));
            watch.block(at + 50, TaskId(1), &block(BlockAction::Issue, 4 * n, 4));
            watch.over(TaskId(1), Some(at + 50 + 4 * 7 + 5));
            watch.block(at + 1000, TaskId(0), &block(BlockAction::Complete, 4 * n, 4));
            for page in 1..4 {
                let at = at + 1000 * page + 500;
                watch.begin(TaskId(1), at, FILE, (4 * n + page, 4 * n + page + 1), false);
                watch.over(TaskId(1), Some(at + 15));
            }
        }
        let cpu = watch.finish().cost.unwrap().processor;
        let near = |a: f64, b: f64| (a - b).abs() < 0.01;
        assert!(near(cpu.call_ns, 10.0) && near(cpu.added_ns, 6.0), "{cpu:?}");
        assert!(near(cpu.page_ns, 5.0) && near(cpu.driver_page_ns, 7.0), "{cpu:?}");
        assert!(near(cpu.bio_ns + 4.0 * cpu.bio_page_ns, 16.0) && cpu.residual_percent < 0.1, "{cpu:?}");
    }

    #[test]
    fn a_request_that_is_cut_brings_its_pages_when_all_of_it_is_there() {
        let mut watch = QueueReader::default();
        watch.begin(TaskId(1), 0, FILE, (0, 1), false);
        watch.added(TaskId(1), 10, FILE, 0, 4);
        watch.block(11, TaskId(1), &block(BlockAction::Queue, 0, 4));
        watch.block(12, TaskId(1), &block(BlockAction::Issue, 0, 3));
        watch.block(13, TaskId(1), &block(BlockAction::Issue, 3, 1));
        watch.block(100, TaskId(0), &block(BlockAction::Complete, 0, 3));
        assert!(watch.inside[&TaskId(1)].waited.is_none());
        watch.block(150, TaskId(0), &block(BlockAction::Complete, 3, 1));
        assert_eq!(watch.inside[&TaskId(1)].waited.map(|waited| (waited.until_ns, waited.pages)), Some((150, 4)));
    }

    #[test]
    fn nonsense_is_no_panic_and_memory_is_bounded() {
        let mut watch = QueueReader::default();
        for n in 0..3 * MAX_FOLLOWED as u64 {
            for action in [BlockAction::Complete, BlockAction::Queue, BlockAction::Issue] {
                let mut event = block(action, n, n % 5);
                if n % 7 == 0 {
                    (event.sector, event.bytes) = (u64::MAX - n, u64::MAX);
                }
                watch.begin(TaskId(n as u32), n, FILE, (u64::MAX, 0), n % 2 == 0);
                watch.added(TaskId(n as u32), n, FILE, u64::MAX - 1, 5);
                watch.block(n, TaskId(n as u32), &event);
                watch.block(0, TaskId(n as u32), &event);
            }
            if n % 3 == 0 {
                watch.over(TaskId(n as u32), Some(0));
            }
        }
        assert!(watch.inside.len() <= MAX_FOLLOWED);
        assert!(watch.disks.values().all(|disk| disk.issued.len() <= MAX_FOLLOWED));
        watch.finish();
    }
}
