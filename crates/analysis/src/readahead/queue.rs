//! Time behind a block queue, where the device works while the reader goes on.
//!
//! Two halves. [`Watch`] reads a recording: which bios a call asked for, when the device was done with them, and what the
//! processor's part of calls was; from that [`QueueCost`] is fitted. [`Replay`] runs the calls again in virtual time: a call
//! waits for the pages that it takes, pages that nobody waits for cost what it takes to ask for them, and the pauses between a
//! task's calls stay as they were recorded.
//!
//! What becomes a bio and a request: a run of contiguous pages is one bio of at most 256 pages (`BIO_MAX_VECS`,
//! include/linux/bio.h; fs/mpage.c, fs/ext4/readpage.c), cut into requests of at most `max_sectors_kb` (`bio_split_to_limits`,
//! block/blk-merge.c); its pages are there when all of it is (`bio_endio`). All of Linux 6.1. Files are taken to lie in one
//! piece on their device.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use flashscope_readahead::{FileId, PAGE_BYTES};
use flashscope_trace::{BlockAction, BlockEvent, Device, RequestFlags, RequestKind};
use serde::Serialize;

/// Pages of a bio at most.
const BIO_PAGES: u64 = 256;
/// `BLK_DEF_MAX_SECTORS` (include/linux/blkdev.h): what a queue's requests are bounded by unless its driver says less.
const DEFAULT_REQUEST_BYTES: u64 = 2560 * 512;
/// Requests that the device's fit is made of; tasks, bios and pages that are followed at once.
const MAX_SAMPLES: usize = 1 << 16;
const MAX_FOLLOWED: usize = 1 << 10;
/// Requests at once that a device is tried with.
const MAX_DEPTH: usize = 64;
/// How much longer than the longest recorded one a request may be: as far as tests/readahead_queue.rs holds it.
const MOST_TIMES_LONGER: u64 = 8;
const KIB: f64 = 1024.0;

/// What a request costs, and what the processor's part of a call does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueueCost {
    pub device: DeviceCost,
    pub processor: ProcessorCost,
}

/// From the issue of a read request to its completion: so much a request, so much a KiB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DeviceCost {
    pub request_ns: f64,
    pub kib_ns: f64,
    /// Requests that it works on at once.
    pub depth: usize,
    /// Read requests that were fitted: those that had the device to themselves, unless only the others differ in length.
    pub requests: u64,
    /// Mean of the absolute differences, in per cent of the mean time.
    pub residual_percent: f64,
    /// All requests were of one length: what a KiB costs is not known, and no time is told of longer ones.
    pub degenerate: bool,
    /// The longest that was seen.
    pub largest_bytes: u64,
}

/// The processor's part of a call, by what happens in it; least squares without negative parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessorCost {
    pub call_ns: f64,
    /// A page that is made room for.
    pub added_ns: f64,
    pub bio_ns: f64,
    /// To sleep and be woken.
    pub wait_ns: f64,
    /// A page that is given to the reader.
    pub page_ns: f64,
    /// A page of a bio that was issued: what the driver does before it lets the reader go on, beside the device.
    pub driver_page_ns: f64,
    /// A page and a bio that the device is done with.
    pub done_page_ns: f64,
    pub done_ns: f64,
    pub calls: u64,
    /// Root of the mean square, in per cent of the mean.
    pub residual_percent: f64,
}

const PARTS: usize = 8;

/// Sums of least squares: memory does not grow with the trace.
#[derive(Clone, Debug, Default)]
struct Sums {
    n: f64,
    y: f64,
    yy: f64,
    xy: [f64; PARTS],
    xx: [[f64; PARTS]; PARTS],
}

impl Sums {
    fn add(&mut self, x: [f64; PARTS], y: f64) {
        self.n += 1.0;
        self.y += y;
        self.yy += y * y;
        for i in 0..PARTS {
            self.xy[i] += x[i] * y;
            for k in 0..PARTS {
                self.xx[i][k] += x[i] * x[k];
            }
        }
    }

    /// Coordinate descent on the normal equations; every part is kept at 0 or above. Of parts that always come together the first
    /// gets what they cost.
    fn solve(&self) -> [f64; PARTS] {
        let mut parts = [0.0; PARTS];
        for _ in 0..50_000 {
            let mut moved = 0.0_f64;
            for i in 0..PARTS {
                if self.xx[i][i] == 0.0 {
                    continue;
                }
                let others: f64 = (0..PARTS).filter(|&k| k != i).map(|k| self.xx[i][k] * parts[k]).sum();
                let part = ((self.xy[i] - others) / self.xx[i][i]).max(0.0);
                moved = moved.max((part - parts[i]).abs());
                parts[i] = part;
            }
            if moved < 1e-6 {
                break;
            }
        }
        parts
    }

    fn fit(&self) -> Option<ProcessorCost> {
        if self.n == 0.0 || self.y <= 0.0 {
            return None;
        }
        let p = self.solve();
        let modelled: f64 = (0..PARTS).map(|i| p[i] * self.xy[i]).sum();
        let squares: f64 =
            (0..PARTS).flat_map(|i| (0..PARTS).map(move |k| (i, k))).map(|(i, k)| p[i] * p[k] * self.xx[i][k]).sum();
        let off = ((self.yy - 2.0 * modelled + squares).max(0.0) / self.n).sqrt();
        Some(ProcessorCost {
            call_ns: p[0],
            added_ns: p[1],
            bio_ns: p[2],
            wait_ns: p[3],
            page_ns: p[4],
            driver_page_ns: p[5],
            done_page_ns: p[6],
            done_ns: p[7],
            calls: self.n as u64,
            residual_percent: off / (self.y / self.n) * 100.0,
        })
    }
}

/// A read request, from its issue on.
#[derive(Clone, Copy, Debug)]
struct Sample {
    issued_ns: u64,
    took_ns: u64,
    bytes: u64,
    alone: bool,
}

impl Sample {
    fn kib(&self) -> f64 {
        self.bytes as f64 / KIB
    }
}

impl DeviceCost {
    /// `None` where there are none.
    fn fit(samples: &[Sample], most_at_once: usize) -> Option<DeviceCost> {
        let alone: Vec<&Sample> = samples.iter().filter(|sample| sample.alone).collect();
        let all: Vec<&Sample> = samples.iter().collect();
        let differ = |of: &[&Sample]| of.iter().any(|sample| sample.bytes != of[0].bytes);
        let fitted = if alone.is_empty() || !differ(&alone) && differ(&all) { all } else { alone };
        let n = fitted.len() as f64;
        let sum = |of: &dyn Fn(&Sample) -> f64| fitted.iter().map(|sample| of(sample)).sum::<f64>();
        let (x, y) = (sum(&|s| s.kib()), sum(&|s| s.took_ns as f64));
        let (xx, xy) = (sum(&|s| s.kib() * s.kib()), sum(&|s| s.kib() * s.took_ns as f64));
        if fitted.is_empty() || y <= 0.0 {
            return None;
        }
        let spread = n * xx - x * x;
        let degenerate = spread <= f64::EPSILON * n * xx;
        let (mut request_ns, mut kib_ns) = (y / n, 0.0);
        if !degenerate {
            kib_ns = (n * xy - x * y) / spread;
            request_ns = (y - kib_ns * x) / n;
            // A negative part is noise.
            if kib_ns < 0.0 {
                (request_ns, kib_ns) = (y / n, 0.0);
            } else if request_ns < 0.0 {
                (request_ns, kib_ns) = (0.0, xy / xx);
            }
        }
        let off = sum(&|s| (s.took_ns as f64 - request_ns - kib_ns * s.kib()).abs());
        let mut cost = DeviceCost {
            request_ns,
            kib_ns,
            depth: 1,
            requests: fitted.len() as u64,
            residual_percent: off / y * 100.0,
            degenerate,
            largest_bytes: samples.iter().map(|sample| sample.bytes).max().unwrap_or(0),
        };
        // How many at once explains best when requests that met others came back.
        let depths = 1..=most_at_once.clamp(1, MAX_DEPTH);
        let errors: Vec<(usize, f64)> = depths.map(|depth| (depth, cost.off_with(depth, samples))).collect();
        let least = errors.iter().map(|&(_, off)| off).fold(f64::INFINITY, f64::min);
        cost.depth = errors.iter().find(|&&(_, off)| off <= least * 1.01).map_or(1, |&(depth, _)| depth);
        Some(cost)
    }

    /// No time is told of longer requests.
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

/// Requests in, times of completion out.
struct Servers {
    request_ns: f64,
    kib_ns: f64,
    /// When the last request of each of its places was issued, and when it is done.
    places: Vec<(f64, f64)>,
}

impl Servers {
    fn new(cost: &DeviceCost, depth: usize) -> Servers {
        Servers { request_ns: cost.request_ns, kib_ns: cost.kib_ns, places: vec![(0.0, 0.0); depth.max(1)] }
    }

    fn submit(&mut self, issued: f64, bytes: u64) -> f64 {
        // Tasks are replayed one call after the other: what another has issued later in virtual time is not in the way.
        let free_at = |&(last_issued, done): &(f64, f64)| if last_issued > issued { issued } else { done };
        let free = self.places.iter().map(free_at);
        let (first, free) = free.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, issued));
        let done = issued.max(free) + self.request_ns + self.kib_ns * bytes as f64 / KIB;
        let place = &mut self.places[first];
        *place = (place.0.max(issued), place.1.max(done));
        done
    }
}

/// What the queue's side of a recording says.
#[derive(Clone, Debug, Default)]
pub struct Queued {
    /// `None` where no call was seen to wait for a block device.
    pub cost: Option<QueueCost>,
    /// Read requests of the devices that calls read from, and what they moved.
    pub requests: u64,
    pub kib: u64,
    /// Pages that an earlier call had read ahead, and that were not there yet when the call that asks for them began.
    pub pages_late: u64,
}

/// The longest request of the queue below a file system (`max_sectors_kb`), bytes, as a recording's facts have it.
pub fn request_bytes(facts: &serde_json::Value, device: Device) -> Option<u64> {
    let number = device.to_string();
    let mount = facts["mounts"].as_array()?.iter().find(|mount| mount["device"] == number.as_str())?;
    let source = mount["source"].as_str()?.rsplit('/').next()?;
    // A partition's name begins with its disk's.
    let of = |disk: &serde_json::Value| {
        let name = disk["name"].as_str().filter(|name| source.starts_with(name))?;
        Some((name.len(), disk["max_sectors_kb"].as_u64()?))
    };
    let (_, kib) = facts["block"].as_array()?.iter().filter_map(of).max()?;
    Some(kib.saturating_mul(1024)).filter(|&bytes| bytes > 0)
}

/// A call that a task is in.
#[derive(Clone, Debug)]
struct Inside {
    began_ns: u64,
    file: FileId,
    /// Pages that it asks for.
    first: u64,
    end: u64,
    is_fault: bool,
    added: u64,
    first_added_ns: u64,
    bios: u64,
    last_issue_ns: u64,
    /// The last that the task was seen to do in it.
    last_seen_ns: u64,
    waited: Option<Waited>,
    late: u64,
    /// Bios and pages that were done in it.
    done: (u64, u64),
}

/// The last bio of pages that a call asks for that came while it was under way.
#[derive(Clone, Copy, Debug)]
struct Waited {
    until_ns: u64,
    pages: u64,
    /// The call itself had asked for it.
    own: bool,
}

/// Pages on their way.
#[derive(Clone, Debug)]
struct Bio {
    end: u64,
    sectors_left: u64,
    file: Option<FileId>,
    pages: Vec<u64>,
    /// The task and the begin of its call.
    by: Option<(u32, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    issued_ns: u64,
    bytes: u64,
    alone: bool,
}

/// One disk.
#[derive(Debug, Default)]
struct Disk {
    /// By first sector.
    issued: BTreeMap<u64, Issued>,
    samples: Vec<Sample>,
    most_at_once: usize,
    requests: u64,
    bytes: u64,
    /// A call's pages came from it.
    read_by_calls: bool,
}

/// Reads events, in order of time.
#[derive(Debug, Default)]
pub struct Watch {
    found: Queued,
    inside: HashMap<u32, Inside>,
    /// Pages that a task has made room for and not asked the device for yet.
    pending: HashMap<u32, VecDeque<(FileId, u64)>>,
    /// By major number and first sector: a bio names its partition, a request its disk.
    bios: BTreeMap<(u32, u64), Bio>,
    disks: BTreeMap<u32, Disk>,
    sums: Sums,
}

/// Disks that are told apart.
const MAX_DISKS: usize = 64;
/// The longest bio in sectors, with room: how far before a request's first sector its bio may begin.
const BIO_SECTORS: u64 = 1 << 13;

impl Watch {
    /// A call begins: `end` is the page behind the last that it asks for.
    pub fn begin(&mut self, tid: u32, time_ns: u64, file: FileId, pages: (u64, u64), is_fault: bool) {
        if self.inside.len() >= MAX_FOLLOWED && !self.inside.contains_key(&tid) {
            return;
        }
        self.pending.remove(&tid);
        let (first, end) = pages;
        let new = Inside {
            began_ns: time_ns,
            file,
            first,
            end,
            is_fault,
            added: 0,
            first_added_ns: time_ns,
            bios: 0,
            last_issue_ns: 0,
            last_seen_ns: time_ns,
            waited: None,
            late: 0,
            done: (0, 0),
        };
        self.inside.insert(tid, new);
    }

    /// Pages came into the cache.
    pub fn added(&mut self, tid: u32, time_ns: u64, file: FileId, first: u64, pages: u64) {
        if let Some(inside) = self.inside.get_mut(&tid) {
            if inside.added == 0 {
                inside.first_added_ns = time_ns;
            }
            inside.added += pages;
            inside.last_seen_ns = time_ns;
        }
        if self.pending.len() >= MAX_FOLLOWED {
            self.pending.clear();
        }
        let pending = self.pending.entry(tid).or_default();
        for page in first..first.saturating_add(pages) {
            if pending.len() >= MAX_FOLLOWED {
                pending.pop_front();
            }
            pending.push_back((file, page));
        }
    }

    pub fn block(&mut self, time_ns: u64, tid: u32, event: &BlockEvent) {
        if event.flags.kind() != RequestKind::Read || !event.flags.has(RequestFlags::READ) {
            return;
        }
        match event.action {
            BlockAction::Queue => self.queue(tid, event),
            BlockAction::Issue => self.issue(time_ns, tid, event),
            BlockAction::Complete => self.complete(time_ns, event),
            _ => {}
        }
    }

    fn queue(&mut self, tid: u32, event: &BlockEvent) {
        // Metadata is waited for by the file system, and is of no page of a file.
        if event.flags.has(RequestFlags::META) {
            return;
        }
        // What is lost on its way would be in the way for ever.
        if self.bios.len() >= MAX_FOLLOWED {
            self.bios.clear();
        }
        let Some(pending) = self.pending.get_mut(&tid) else { return };
        let count = (event.bytes / PAGE_BYTES).min(pending.len() as u64) as usize;
        let mut pages = Vec::with_capacity(count);
        let mut file = None;
        for (of, page) in pending.drain(..count) {
            file = Some(of);
            pages.push(page);
        }
        // Advice that reads is no call.
        let mut by = None;
        if let Some(inside) = self.inside.get_mut(&tid) {
            inside.bios += 1;
            by = Some((tid, inside.began_ns));
        }
        let bio = Bio { end: event.end(), sectors_left: event.end() - event.sector, file, pages, by };
        self.bios.insert((event.device.major(), event.sector), bio);
    }

    fn issue(&mut self, time_ns: u64, tid: u32, event: &BlockEvent) {
        let (major, device) = (event.device.major(), event.device.0);
        if self.disks.len() >= MAX_DISKS && !self.disks.contains_key(&device) {
            return;
        }
        let of_call = !self.overlapping(major, event).is_empty();
        let disk = self.disks.entry(device).or_default();
        disk.read_by_calls |= of_call;
        disk.requests += 1;
        disk.bytes = disk.bytes.saturating_add(event.bytes);
        // What is lost on its way would be in the way for ever.
        if disk.issued.len() >= MAX_FOLLOWED {
            disk.issued.clear();
        }
        let alone = disk.issued.is_empty();
        // Where there are two, both know.
        if disk.issued.len() == 1 {
            disk.issued.values_mut().for_each(|other| other.alone = false);
        }
        disk.issued.insert(event.sector, Issued { issued_ns: time_ns, bytes: event.bytes, alone });
        disk.most_at_once = disk.most_at_once.max(disk.issued.len());
        if let Some(inside) = self.inside.get_mut(&tid) {
            inside.last_issue_ns = time_ns;
            inside.last_seen_ns = time_ns;
        }
    }

    /// First sectors of the bios that a request has a part of.
    fn overlapping(&self, major: u32, event: &BlockEvent) -> Vec<u64> {
        let (from, to) = (event.sector.saturating_sub(BIO_SECTORS), event.end());
        let of = self.bios.range((major, from)..(major, to.max(from)));
        of.filter(|(_, bio)| bio.end > event.sector).map(|(&(_, first), _)| first).collect()
    }

    fn complete(&mut self, time_ns: u64, event: &BlockEvent) {
        let major = event.device.major();
        if let Some(disk) = self.disks.get_mut(&event.device.0)
            && let Some(issued) = disk.issued.remove(&event.sector)
            && disk.samples.len() < MAX_SAMPLES
        {
            let took_ns = time_ns.saturating_sub(issued.issued_ns);
            disk.samples.push(Sample {
                issued_ns: issued.issued_ns,
                took_ns,
                bytes: issued.bytes,
                alone: issued.alone,
            });
        }
        for first in self.overlapping(major, event) {
            let Some(bio) = self.bios.get_mut(&(major, first)) else { continue };
            let sectors = event.end().min(bio.end) - event.sector.max(first).min(bio.end);
            bio.sectors_left = bio.sectors_left.saturating_sub(sectors);
            if bio.sectors_left == 0
                && let Some(bio) = self.bios.remove(&(major, first))
            {
                self.arrived(time_ns, &bio);
            }
        }
    }

    fn arrived(&mut self, time_ns: u64, bio: &Bio) {
        for (&tid, inside) in &mut self.inside {
            inside.done.0 += 1;
            inside.done.1 += bio.pages.len() as u64;
            if Some(inside.file) != bio.file {
                continue;
            }
            let asked = bio.pages.iter().filter(|&&page| (inside.first..inside.end).contains(&page)).count() as u64;
            if asked > 0 {
                let own = bio.by == Some((tid, inside.began_ns));
                inside.waited = Some(Waited { until_ns: time_ns, pages: bio.pages.len() as u64, own });
                inside.late += if own { 0 } else { asked };
            }
        }
    }

    /// The task is no longer in its call. For a fault, whose end nothing tells: when it was, as far as a wait tells.
    pub fn over(&mut self, tid: u32, ended_ns: Option<u64>) -> Option<u64> {
        let inside = self.inside.remove(&tid)?;
        self.pending.remove(&tid);
        self.found.pages_late += inside.late;
        if inside.is_fault {
            return inside.waited.map(|waited| waited.until_ns);
        }
        let ended_ns = ended_ns?;
        let number = |value: u64| value as f64;
        let since = |from: u64, to: u64| number(to.saturating_sub(from));
        let (added, bios) = (number(inside.added), number(inside.bios));
        let asked = number(inside.end.saturating_sub(inside.first));
        // Who went on to ask for more pages afterwards had not come to them, and found them there.
        let Some(waited) = inside.waited.filter(|waited| waited.until_ns >= inside.last_seen_ns) else {
            let done = (number(inside.done.0), number(inside.done.1));
            let parts = [1.0, added, bios, 0.0, asked, added, done.1, done.0];
            self.sums.add(parts, since(inside.began_ns, ended_ns));
            return None;
        };
        // Where the reader slept, only what comes before and after is the processor's.
        self.sums.add([0.0, 0.0, 0.0, 1.0, asked, 0.0, number(waited.pages), 0.0], since(waited.until_ns, ended_ns));
        if waited.own && inside.bios == 1 && inside.last_issue_ns >= inside.first_added_ns {
            let first = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
            self.sums.add(first, since(inside.began_ns, inside.first_added_ns));
            let rest = [0.0, added - 1.0, bios, 0.0, 0.0, 0.0, 0.0, 0.0];
            self.sums.add(rest, since(inside.first_added_ns, inside.last_issue_ns));
        }
        None
    }

    pub fn finish(self) -> Queued {
        let mut found = self.found;
        let read: Vec<&Disk> = self.disks.values().filter(|disk| disk.read_by_calls).collect();
        found.requests = read.iter().map(|disk| disk.requests).sum();
        found.kib = read.iter().map(|disk| disk.bytes).sum::<u64>() / 1024;
        // Of several disks, the one that was read most.
        let most = read.into_iter().max_by_key(|disk| disk.requests);
        let device = most.and_then(|disk| DeviceCost::fit(&disk.samples, disk.most_at_once));
        found.cost = device.zip(self.sums.fit()).map(|(device, processor)| QueueCost { device, processor });
        found
    }
}

/// What a setting asks of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Asked {
    pub requests: u64,
    pub kib: u64,
    /// Pages that an earlier call had read ahead, and that are not there yet when the call that asks for them begins.
    pub pages_late: u64,
}

#[derive(Clone, Copy)]
struct Coming {
    /// When its bio is done with, and all that the processor does for it.
    at: f64,
    /// Call that it came with.
    by: u64,
}

/// Where a task is in virtual time, and where it was when it was recorded.
#[derive(Clone, Copy)]
struct Clock {
    virtual_ns: f64,
    recorded_ns: Option<u64>,
}

/// Calls in virtual time, in the order in which they were recorded.
pub struct Replay {
    cost: ProcessorCost,
    device: Servers,
    request_bytes: u64,
    tasks: HashMap<u32, Clock>,
    coming: HashMap<(FileId, u64), Coming>,
    /// Bios that are done at a time (bits of a positive number order as it does), and their pages.
    completions: BinaryHeap<Reverse<(u64, u64)>>,
    /// Pages that are made room for and not asked for yet.
    run: Option<(FileId, u64, u64)>,
    now: f64,
    began: f64,
    /// How much later than recorded the last call ended: a task that begins after it may have waited for it.
    drift: f64,
    task: u32,
    call: u64,
    asked: Asked,
    longest_bytes: u64,
    /// The device's fit holds for requests up to this length.
    known_bytes: u64,
    time_ns: f64,
}

impl Replay {
    /// `request_bytes`: the longest request of the queue; 0 where it is not known.
    pub fn new(cost: &QueueCost, request_bytes: u64) -> Replay {
        let request_bytes = match request_bytes {
            0 => DEFAULT_REQUEST_BYTES.max(cost.device.largest_bytes),
            bytes => bytes,
        };
        Replay {
            cost: cost.processor,
            device: Servers::new(&cost.device, cost.device.depth),
            request_bytes,
            tasks: HashMap::new(),
            coming: HashMap::new(),
            completions: BinaryHeap::new(),
            run: None,
            now: 0.0,
            began: 0.0,
            drift: 0.0,
            task: 0,
            call: 0,
            asked: Asked::default(),
            longest_bytes: 0,
            known_bytes: cost.device.known_bytes(),
            time_ns: 0.0,
        }
    }

    /// A call begins, which was recorded from `began_ns` to `ended_ns`.
    pub fn begin(&mut self, tid: u32, began_ns: u64, ended_ns: Option<u64>) {
        let clock = self.tasks.get(&tid).copied();
        self.now = match clock {
            // Its pause, as it was.
            Some(Clock { virtual_ns, recorded_ns: Some(ended) }) => virtual_ns + began_ns.saturating_sub(ended) as f64,
            Some(Clock { virtual_ns, recorded_ns: None }) => virtual_ns,
            None => (began_ns as f64 + self.drift).max(0.0),
        };
        self.tasks.insert(tid, Clock { virtual_ns: self.now, recorded_ns: ended_ns });
        (self.task, self.began) = (tid, self.now);
        self.call += 1;
        // What was done in the pause did not keep the call.
        self.skip_completions();
        self.spend(self.cost.call_ns);
    }

    /// What is no call (advice that reads): where its task is now.
    pub fn beside(&mut self, tid: u32) {
        self.call += 1;
        self.now = self.tasks.get(&tid).map_or(self.now, |clock| clock.virtual_ns);
        (self.task, self.began) = (tid, self.now);
    }

    /// The processor works for the task; what the device is done with meanwhile comes on top.
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

    /// A page comes into the cache.
    pub fn added(&mut self, file: FileId, page: u64) {
        match &mut self.run {
            Some((of, first, pages)) if *of == file && first.saturating_add(*pages) == page => *pages += 1,
            _ => {
                self.ask();
                self.run = Some((file, page, 1));
            }
        }
        self.spend(self.cost.added_ns);
    }

    /// Asks the device for the pages that were added.
    fn ask(&mut self) {
        let Some((file, first, pages)) = self.run.take() else { return };
        // Nobody waits for what is there.
        if self.coming.len() >= MAX_SAMPLES {
            let now = self.now;
            self.coming.retain(|_, coming| coming.at > now);
            if self.coming.len() >= MAX_SAMPLES {
                self.coming.clear();
            }
        }
        let mut at = first;
        let mut left = pages;
        while left > 0 {
            let in_bio = left.min(BIO_PAGES);
            self.spend(self.cost.bio_ns);
            let mut bytes = in_bio * PAGE_BYTES;
            let mut done = self.now;
            while bytes > 0 {
                let length = bytes.min(self.request_bytes);
                done = done.max(self.device.submit(self.now, length));
                self.asked.requests += 1;
                self.longest_bytes = self.longest_bytes.max(length);
                bytes -= length;
            }
            self.asked.kib += in_bio * (PAGE_BYTES / 1024);
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

    /// The reader takes a page, and waits where it is on its way.
    pub fn used(&mut self, file: FileId, page: u64) {
        self.ask();
        if let Some(coming) = self.coming.remove(&(file, page)) {
            self.asked.pages_late += u64::from(coming.by != self.call && coming.at > self.began);
            if coming.at > self.now {
                self.now = coming.at;
                self.skip_completions();
                self.spend(self.cost.wait_ns);
            }
        }
        self.spend(self.cost.page_ns);
    }

    /// The access is over; `timed`: it is a call whose time counts.
    pub fn end(&mut self, timed: bool) {
        self.ask();
        if timed {
            self.time_ns += self.now - self.began;
            if let Some(clock) = self.tasks.get_mut(&self.task) {
                clock.virtual_ns = self.now;
                if let Some(ended) = clock.recorded_ns {
                    self.drift = self.now - ended as f64;
                }
            }
        }
    }

    /// Time in all calls, where the fit knows such requests, and what the device was asked for.
    pub fn finish(self) -> (Option<f64>, Asked) {
        (Some(self.time_ns).filter(|_| self.longest_bytes <= self.known_bytes), self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::BlockDetail;

    const FILE: FileId = FileId { device: Some(7), inode: 5 };
    const DISK: Device = Device(7);

    fn block(action: BlockAction, page: u64, pages: u64) -> BlockEvent {
        let (sector, bytes) = (1000 + page * 8, pages * PAGE_BYTES);
        let flags = RequestFlags::READ;
        BlockEvent { action, device: DISK, flags, sector, bytes, error: 0, cgroup: 0, detail: BlockDetail::None }
    }

    /// Pages come in and are asked for: a bio, a request.
    fn asks(watch: &mut Watch, at: u64, page: u64, pages: u64) {
        watch.added(1, at, FILE, page, pages);
        watch.block(at + 2, 1, &block(BlockAction::Queue, page, pages));
        watch.block(at + 3, 1, &block(BlockAction::Issue, page, pages));
    }

    #[test]
    fn calls_waits_and_late_pages_are_told_from_events() {
        let mut watch = Watch::default();
        // Waits for its own page; the next two are read ahead.
        watch.begin(1, 100, FILE, (0, 1), false);
        asks(&mut watch, 110, 0, 1);
        watch.block(213, 0, &block(BlockAction::Complete, 0, 1));
        watch.over(1, Some(220));
        // Finds its page not there yet, which an earlier call had asked for.
        watch.begin(1, 300, FILE, (0, 1), false);
        asks(&mut watch, 310, 1, 2);
        watch.over(1, Some(330));
        watch.begin(1, 340, FILE, (1, 2), false);
        watch.block(513, 0, &block(BlockAction::Complete, 1, 2));
        watch.over(1, Some(520));
        // There when it began.
        watch.begin(1, 600, FILE, (2, 3), false);
        watch.over(1, Some(605));
        let found = watch.finish();
        assert_eq!((found.requests, found.kib, found.pages_late), (2, 12, 1));
        let device = found.cost.unwrap().device;
        // 100 for 4 KiB, 200 for 8.
        assert!((device.kib_ns - 25.0).abs() < 1e-9 && device.request_ns.abs() < 1e-9, "{device:?}");
        assert_eq!((device.depth, device.requests, device.degenerate, device.largest_bytes), (1, 2, false, 8192));
    }

    #[test]
    fn a_request_that_is_cut_brings_its_pages_when_all_of_it_is_there() {
        let mut watch = Watch::default();
        watch.begin(1, 0, FILE, (0, 1), false);
        watch.added(1, 10, FILE, 0, 4);
        watch.block(11, 1, &block(BlockAction::Queue, 0, 4));
        watch.block(12, 1, &block(BlockAction::Issue, 0, 3));
        watch.block(13, 1, &block(BlockAction::Issue, 3, 1));
        watch.block(100, 0, &block(BlockAction::Complete, 0, 3));
        assert!(watch.inside[&1].waited.is_none());
        watch.block(150, 0, &block(BlockAction::Complete, 3, 1));
        assert_eq!(watch.inside[&1].waited.map(|waited| (waited.until_ns, waited.pages)), Some((150, 4)));
    }

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

    fn cost(depth: usize) -> QueueCost {
        let device = DeviceCost {
            request_ns: 100.0,
            kib_ns: 1.0,
            depth,
            requests: 9,
            residual_percent: 0.0,
            degenerate: false,
            largest_bytes: 4096,
        };
        let processor = ProcessorCost {
            call_ns: 5.0,
            added_ns: 3.0,
            bio_ns: 7.0,
            wait_ns: 11.0,
            page_ns: 2.0,
            driver_page_ns: 1.0,
            done_page_ns: 4.0,
            done_ns: 6.0,
            ..ProcessorCost::default()
        };
        QueueCost { device, processor }
    }

    #[test]
    fn a_pause_hides_what_is_read_ahead_and_without_one_it_is_late() {
        for (pause, waits, late) in [(1000, false, 0), (0, true, 1)] {
            let mut replay = Replay::new(&cost(1), 0);
            replay.begin(1, 0, Some(100));
            replay.added(FILE, 0);
            replay.used(FILE, 0);
            // 5 + 3 + 7, the device's 104, 4 when it is back, 11 to wake, 2 for the page.
            assert_eq!(replay.now, 136.0);
            replay.added(FILE, 1);
            replay.added(FILE, 2);
            replay.end(true);
            // 2 · 3 + 7, and the driver's 2 beside the device.
            assert_eq!(replay.now, 151.0);
            replay.begin(1, 100 + pause, Some(300 + pause));
            replay.used(FILE, 1);
            replay.end(true);
            let began = 151.0 + pause as f64;
            // Asked for at 149, 108 for the device, 2 · 4 for two pages.
            let ended = if waits { 149.0 + 108.0 + 8.0 + 11.0 + 2.0 } else { began + 5.0 + 2.0 };
            assert_eq!(replay.now, ended);
            let (time, asked) = replay.finish();
            assert_eq!(time, Some(151.0 + ended - began));
            assert_eq!(asked, Asked { requests: 2, kib: 12, pages_late: late });
        }
    }

    #[test]
    fn what_comes_back_while_the_reader_is_busy_takes_its_time() {
        let mut replay = Replay::new(&cost(1), 0);
        replay.begin(1, 0, Some(100));
        replay.added(FILE, 9);
        replay.ask();
        // Issued at 15, back at 119: six and four on top.
        replay.spend(200.0);
        assert_eq!(replay.now, 15.0 + 1.0 + 200.0 + 10.0);
    }

    #[test]
    fn long_runs_are_cut_and_served_as_many_at_once_as_the_device_does() {
        let done = |depth: usize| {
            let mut replay = Replay::new(&cost(depth), 8192);
            replay.begin(1, 0, None);
            (0..4).for_each(|page| replay.added(FILE, page));
            replay.used(FILE, 0);
            assert_eq!(replay.asked.requests, 2);
            replay.now
        };
        // One after the other, the second one's 108 come on top.
        assert_eq!(done(1) - done(2), 108.0);
    }

    /// A program that is run after another reads what that one has brought in.
    #[test]
    fn what_comes_after_a_task_that_takes_longer_comes_later() {
        let mut replay = Replay::new(&cost(1), 0);
        replay.begin(1, 0, Some(10));
        replay.added(FILE, 0);
        replay.used(FILE, 0);
        replay.end(true);
        assert_eq!(replay.now, 136.0);
        replay.begin(2, 30, Some(40));
        assert_eq!(replay.began, 136.0 + 20.0);
        replay.used(FILE, 0);
        assert_eq!((replay.now, replay.asked.pages_late), (156.0 + 5.0 + 2.0, 0));
        // What is issued later is not in the way of what is issued before it.
        let mut device = Servers::new(&cost(1).device, 1);
        assert_eq!((device.submit(500.0, 4096), device.submit(100.0, 4096)), (604.0, 204.0));
        assert_eq!(device.submit(550.0, 4096), 708.0);
    }

    /// Where requests of one length were seen, nothing is said of longer ones.
    #[test]
    fn what_was_not_seen_is_not_told() {
        let mut cost = cost(1);
        cost.device.degenerate = true;
        let time = |pages: u64| {
            let mut replay = Replay::new(&cost, 0);
            replay.begin(1, 0, Some(100));
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
    fn parts_that_are_told_apart_are_found_and_none_is_negative() {
        let mut sums = Sums::default();
        for (added, bios) in [(0.0, 0.0), (1.0, 1.0), (4.0, 1.0), (8.0, 2.0)] {
            sums.add([1.0, added, bios, 0.0, 0.0, 0.0, 0.0, 0.0], 5.0 + 3.0 * added + 7.0 * bios);
        }
        let fit = sums.fit().unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-3;
        assert!(near(fit.call_ns, 5.0) && near(fit.added_ns, 3.0) && near(fit.bio_ns, 7.0), "{fit:?}");
        assert!(fit.residual_percent < 0.1 && fit.calls == 4);
        let mut sums = Sums::default();
        sums.add([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 10.0);
        sums.add([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 4.0);
        assert!(sums.fit().unwrap().added_ns == 0.0);
        assert!(Sums::default().fit().is_none());
    }

    #[test]
    fn the_longest_request_is_of_the_disk_whose_partition_is_mounted() {
        let facts = serde_json::json!({
            "mounts": [{"device": "179:2", "source": "/dev/mmcblk0p2"}, {"device": "1:1", "source": "tmpfs"}],
            "block": [{"name": "mmcblk0", "max_sectors_kb": 512}, {"name": "mmcblk1", "max_sectors_kb": 4},
                      {"name": "mm", "max_sectors_kb": 8}],
        });
        assert_eq!(request_bytes(&facts, Device::new(179, 2)), Some(512 << 10));
        assert_eq!(request_bytes(&facts, Device::new(1, 1)), None);
        assert_eq!(request_bytes(&serde_json::Value::Null, Device::new(1, 1)), None);
    }

    #[test]
    fn nonsense_is_no_panic_and_memory_is_bounded() {
        let mut watch = Watch::default();
        for n in 0..3 * MAX_FOLLOWED as u64 {
            for action in [BlockAction::Complete, BlockAction::Queue, BlockAction::Issue] {
                let mut event = block(action, n, n % 5);
                if n % 7 == 0 {
                    (event.sector, event.bytes) = (u64::MAX - n, u64::MAX);
                }
                watch.begin(n as u32, n, FILE, (u64::MAX, 0), n % 2 == 0);
                watch.added(n as u32, n, FILE, u64::MAX - 1, 5);
                watch.block(n, n as u32, &event);
                watch.block(0, n as u32, &event);
            }
            if n % 3 == 0 {
                watch.over(n as u32, Some(0));
            }
        }
        assert!(watch.bios.len() <= MAX_FOLLOWED && watch.inside.len() <= MAX_FOLLOWED);
        assert!(watch.disks.values().all(|disk| disk.issued.len() <= MAX_FOLLOWED));
        watch.finish();
        let mut replay = Replay::new(&cost(1), 1);
        replay.begin(1, u64::MAX, Some(0));
        (0..3).for_each(|page| replay.added(FILE, u64::MAX - page));
        replay.used(FILE, u64::MAX);
        replay.end(true);
        replay.beside(9);
        replay.end(false);
    }
}
