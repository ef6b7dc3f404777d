//! One workload under many settings.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use flashscope_cachesim::{Access, BulkReads, FileId, Kernel, PAGE_BYTES, PageEvent, Settings, Simulator};
use serde::Serialize;

use super::accounts::{Accounts, Played};
use super::cost::{Busy, Cost, NodeCost};
use super::index::DEPTH;
use super::overlap::{Overlap, overlap};
use super::queue::{Asked, QueueCost, Replay};
use super::validated::ErrorBar;
use super::workload::{Step, Workload};

pub const PREDICTION_SCHEMA: u32 = 2;

/// Windows that a recording is tried with to find which it was made with, KiB.
pub const TRIED_KIB: [u64; 10] = [0, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// What one setting brings in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub calls: u64,
    pub pages_requested: u64,
    pub pages_ahead: u64,
    /// Of those ahead, the ones that nothing used, whether they were evicted or are there still.
    pub pages_unused: u64,
    /// Pages that calls of `read()` brought in: what their time is made of.
    pub pages_in_calls: u64,
    pub faults: u64,
    pub pages_in_faults: u64,
    /// Pages that `readahead()` and advice asked for.
    pub pages_in_advice: u64,
}

impl Tally {
    pub fn pages(&self) -> u64 {
        self.pages_requested + self.pages_ahead
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.calls += other.calls;
        self.pages_requested += other.pages_requested;
        self.pages_ahead += other.pages_ahead;
        self.pages_unused += other.pages_unused;
        self.pages_in_calls += other.pages_in_calls;
        self.faults += other.faults;
        self.pages_in_faults += other.pages_in_faults;
        self.pages_in_advice += other.pages_in_advice;
    }

    pub fn wasted_bytes(&self) -> u64 {
        self.pages_unused * PAGE_BYTES
    }
}

/// What is set beside the window; `None`: as it was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Made {
    /// UBIFS mounted with, or without, `bulk_read`.
    pub bulk_read: Option<bool>,
    /// squashfs with blocks of so many bytes.
    pub squashfs_block: Option<u64>,
}

/// One setting.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub readahead_kib: u64,
    /// All files were read with `POSIX_FADV_RANDOM`.
    pub random: bool,
    #[serde(flatten)]
    pub made: Made,
    /// What bulk reads did.
    pub bulk: BulkReads,
    pub tally: Tally,
    pub wasted_bytes: u64,
    /// `None` where the trace has no flash reads to fit them.
    pub flash_reads: Option<f64>,
    /// What a block queue is asked for; `None` where the trace has none, or flash is read by the reader itself.
    pub queue: Option<Asked>,
    /// In which any task is in a read, a fault or advice that brings pages in. `None` where the trace has nothing to fit it, or none of
    /// the requests that this setting makes.
    pub time_ns: Option<f64>,
    /// Time by a power profile; `None` where none was asked for, or it does not know such work.
    pub energy_uj: Option<f64>,
    #[serde(serialize_with = "list")]
    pub by_file: BTreeMap<FileId, Tally>,
    pub by_task: BTreeMap<u32, Tally>,
}

/// Maps whose keys are no text become lists.
fn list<S: serde::Serializer>(map: &BTreeMap<FileId, Tally>, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct One<'a> {
        #[serde(flatten)]
        file: &'a FileId,
        #[serde(flatten)]
        tally: &'a Tally,
    }
    to.collect_seq(map.iter().map(|(file, tally)| One { file, tally }))
}

/// What the recording itself shows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Recorded {
    pub pages: u64,
    pub flash_reads: u64,
    /// In which any task was in a read, a fault or advice whose end is known.
    pub time_ns: u64,
    pub timed_calls: u64,
    /// In which calls could not go on because others ran: not in `time_ns`. 0 where the recording has no `sched_switch`.
    pub held_ns: u64,
    /// The setting whose prediction is nearest to the pages that came, and that prediction.
    pub fits_readahead_kib: u64,
    pub predicted_pages: u64,
    /// No other of the settings tried explains the pages as well.
    pub fits_alone: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    pub schema: u32,
    pub model: &'static str,
    pub model_source: &'static str,
    /// The recording's kernel is of the model's line.
    pub model_exact: bool,
    pub recorded: Recorded,
    /// `None` where the trace has no timed reads that read flash.
    pub cost: Option<Cost>,
    /// Of a device behind a block queue, where calls were seen to wait for one.
    pub queue: Option<QueueCost>,
    /// What times and flash reads may be off by; `None` where none are predicted.
    pub error: Option<ErrorBar>,
    /// The same of rows of another mount or image.
    pub error_made: Option<ErrorBar>,
    /// Name of the power profile.
    pub power: Option<String>,
    pub rows: Vec<Row>,
    /// What bounds the prediction.
    pub notes: Vec<String>,
}

/// Runs settings over a workload.
pub struct Predictor<'a> {
    workload: &'a Workload,
    storage: Storage,
    cost: Option<Cost>,
    fault_cost: Option<Cost>,
    advice_cost: Option<Cost>,
    busy_ns: u64,
    mean_page_ns: f64,
    queue: Option<QueueCost>,
    nodes: Option<NodeCost>,
    /// On UBIFS, where pages were read one by one: what a page takes that was not read.
    one_by_one: Option<NodeCost>,
    /// What a read of flash takes more than when it was recorded.
    more_a_read_ns: f64,
    /// `None` behind a block queue, whose replay has each task's pauses.
    overlap: Option<Overlap>,
    /// What the model does under the recording's own window.
    own: OnceCell<Own>,
}

/// What the model does under the recording's own window, which is what predictions are calibrated by.
#[derive(Default)]
struct Own {
    /// Reads of flash for a page of a block of squashfs that nothing is known of; `None` where not all that was read lies on squashfs.
    block_rate: Option<f64>,
    /// On UBIFS: for which pages the index was read, and how many reads those were.
    index: HashMap<(FileId, u64), u64>,
    /// Reads of flash that a recording with `bulk_read` has more than the model, below 0: nodes of the index that were in memory.
    more_reads: f64,
}

/// What the files are read under.
#[derive(Clone, Debug)]
pub struct Storage {
    pub kernel: Kernel,
    /// The device's best request (`bdi->io_pages`): 0 on MTD.
    pub io_pages: u64,
    /// The longest request of its queue, bytes; 0 where it is not known.
    pub request_bytes: u64,
    pub budget_pages: usize,
    /// Block sizes of file systems that are squashfs, bytes, by device number.
    pub squashfs: BTreeMap<u32, u64>,
    /// UBIFS mounts with `bulk_read`, by device number.
    pub bulk_read: BTreeSet<u32>,
}

impl Storage {
    /// Flash without a block layer, and a cache of 1 GiB.
    pub fn new(kernel: Kernel) -> Storage {
        Storage {
            kernel,
            io_pages: 0,
            request_bytes: 0,
            budget_pages: 1 << 18,
            squashfs: BTreeMap::new(),
            bulk_read: BTreeSet::new(),
        }
    }
}

impl<'a> Predictor<'a> {
    pub fn new(workload: &'a Workload, storage: Storage) -> Predictor<'a> {
        let busy = Busy::of(workload);
        let [cost, fault_cost, advice_cost] = [&busy.reads, &busy.faults, &busy.advice].map(Cost::fit);
        // squashfs reads its blocks by bios of its own, which are not its pages'.
        let of_queue = cost.is_none() && fault_cost.is_none() && storage.squashfs.is_empty();
        let queue = workload.queued.cost.filter(|_| of_queue);
        let alone = workload.nodes.alone.filter(|_| storage.bulk_read.is_empty());
        let times = workload.flash_times.times();
        let fit = |single_reads: f64| NodeCost::fit(&busy, single_reads, times);
        let one_by_one = alone.and_then(fit);
        // Where no node was read alone: what one touches that lies anywhere, a page of flash more than it is long.
        let nodes = workload.nodes.flash_pages.and_then(|pages| fit(alone.unwrap_or(pages + 1.0)));
        let (busy_ns, mean_page_ns) = (busy.total_ns, workload.costs.mean_ns());
        let overlap = overlap(&workload.calls).filter(|_| queue.is_none());
        Predictor {
            workload,
            storage,
            cost,
            fault_cost,
            advice_cost,
            busy_ns,
            mean_page_ns,
            queue,
            nodes,
            one_by_one,
            more_a_read_ns: 0.0,
            overlap,
            own: OnceCell::new(),
        }
    }

    /// Times as where a read of flash takes so much more, or less. What the recording itself took stays as it was.
    pub fn on_another_chip(&mut self, more_a_read_ns: f64) {
        self.more_a_read_ns = more_a_read_ns;
    }

    /// Whether most reads begin where the task's last one of the file ended.
    pub fn is_sequential(&self) -> bool {
        let mut ends: BTreeMap<(u32, FileId), u64> = BTreeMap::new();
        let (mut reads, mut follow) = (0_u64, 0_u64);
        for step in &self.workload.steps {
            if let Access::Read { offset, length } = step.access {
                let end = ends.insert((step.tid, step.file), offset.saturating_add(length));
                reads += 1;
                follow += u64::from(end.unwrap_or(0) == offset);
            }
        }
        2 * follow > reads
    }

    /// Tasks whose calls of one file overlap.
    pub fn overlap(&self) -> Option<Overlap> {
        self.overlap
    }

    pub fn cost(&self) -> Option<Cost> {
        self.cost
    }

    /// `None` where reads bring their pages in themselves, or the trace has no block events.
    pub fn queue(&self) -> Option<QueueCost> {
        self.queue
    }

    /// A call without pages, a page in it, a fault without pages, a page in it: ns.
    pub(super) fn costs(&self) -> Option<[f64; 4]> {
        let reads = self.cost.or(self.fault_cost.map(Cost::of_pages))?;
        let faults = self.fault_cost.unwrap_or(reads.of_pages());
        Some([reads.call_ns, reads.page_ns, faults.call_ns, faults.page_ns])
    }

    pub(super) fn workload(&self) -> &'a Workload {
        self.workload
    }

    /// `own`: the window is the one of the recording, and every fault of it happens.
    pub(super) fn simulator(&self, readahead_kib: u64, own: bool) -> Simulator {
        self.simulator_of(readahead_kib, own, Made::default())
    }

    fn simulator_of(&self, readahead_kib: u64, own: bool, made: Made) -> Simulator {
        let settings = Settings {
            readahead_pages: readahead_kib / (PAGE_BYTES / 1024),
            io_pages: self.storage.io_pages,
            budget_pages: self.storage.budget_pages,
            faults_of_another: !own,
        };
        let mut simulator = Simulator::new(self.storage.kernel, settings);
        for (&file, &size) in &self.workload.sizes {
            if !self.workload.created.contains(&file) {
                simulator.set_size(file, size);
            }
            if let Some(&bytes) = file.device.and_then(|device| self.storage.squashfs.get(&device)) {
                simulator.set_squashfs_block(file, made.squashfs_block.unwrap_or(bytes));
            }
            let mounted = || file.device.is_some_and(|device| self.storage.bulk_read.contains(&device));
            if made.bulk_read.unwrap_or_else(mounted)
                && let Some(runs) = self.workload.nodes.runs_of(file)
            {
                simulator.set_bulk_read(file, runs);
            }
        }
        for (file, pages) in &self.workload.cached_before {
            pages.clone().for_each(|page| simulator.preload(*file, page));
        }
        simulator
    }

    /// Every page that reads and faults bring in, in order, under the window that was recorded.
    pub fn pages(&self, readahead_kib: u64) -> Vec<(FileId, u64)> {
        let mut simulator = self.simulator(readahead_kib, true);
        let mut pages = Vec::new();
        let mut take = |event: PageEvent| {
            if event.is_read() {
                pages.push((event.file, event.page));
            }
        };
        let steps = self.workload.steps.iter();
        steps.for_each(|step| simulator.apply(step.file, step.open, step.access, &mut take));
        pages
    }

    /// One setting; `random` names the files that are read with `POSIX_FADV_RANDOM`.
    pub fn row(&self, readahead_kib: u64, random: &dyn Fn(FileId) -> bool) -> Row {
        self.row_of(readahead_kib, random, Made::default())
    }

    /// One setting of a file system that is made or mounted otherwise.
    pub fn row_made(&self, readahead_kib: u64, made: Made) -> Row {
        self.row_of(readahead_kib, &|_| false, made)
    }

    /// The block size of the squashfs that files lie on; `None` where there is none, or several.
    pub fn squashfs_block(&self) -> Option<u64> {
        let mut sizes = self.storage.squashfs.values();
        sizes.next().filter(|first| sizes.all(|size| size == *first)).copied()
    }

    /// Whether files lie on UBIFS, and whether some of it was mounted with `bulk_read`.
    pub fn on_ubifs(&self) -> Option<bool> {
        (!self.workload.nodes.runs.is_empty()).then_some(!self.storage.bulk_read.is_empty())
    }

    /// What one setting does; `own` as for [`Predictor::simulator`]. Calls are played in the order in which they were recorded.
    fn play(&self, readahead_kib: u64, random: &dyn Fn(FileId) -> bool, own: bool, made: Made) -> Played {
        let mut simulator = self.simulator_of(readahead_kib, own, made);
        if !self.storage.squashfs.is_empty() {
            simulator.tell_blocks();
        }
        if self.queue.is_some() {
            simulator.tell_uses();
        }
        let mut accounts = Accounts::new(self, own, made);
        let mut opened = HashSet::new();
        let mut is_random = |step: &Step| random(step.file) && opened.insert((step.file, step.open));
        for step in &self.workload.steps {
            if is_random(step) {
                simulator.apply(step.file, step.open, Access::AdviseRandom, &mut |_| {});
            }
            accounts.begin(step);
            simulator.apply(step.file, step.open, step.access, &mut |event| accounts.event(step, event));
            accounts.end(step);
        }
        accounts.finish(&simulator)
    }

    fn row_of(&self, readahead_kib: u64, random: &dyn Fn(FileId) -> bool, made: Made) -> Row {
        let Played { tally, by_file, by_task, known, blocks, bulk, index_reads, replayed, .. } =
            self.play(readahead_kib, random, false, made);
        let of_bulk = bulk.reads > 0 || !self.storage.bulk_read.is_empty();
        let (flash_reads, mut time_ns) = match self.nodes.filter(|_| of_bulk) {
            Some(nodes) => {
                let (calls, pages) = (tally.calls + tally.faults, tally.pages());
                let (more_reads, more_ns) = nodes.of_index(self.own().more_reads);
                let reads = nodes.flash_reads(pages, bulk, index_reads) + more_reads;
                (Some(reads), Some(nodes.time_ns(calls, pages, bulk, index_reads) + more_ns))
            }
            // What a bulk read costs is not known without the places of nodes.
            None if bulk.reads > 0 => (None, None),
            None => {
                let of_pages = self.flash_reads(&tally).map(|reads| (reads + known.flash_reads).max(0.0));
                match self.own().block_rate.filter(|_| of_pages.is_some()) {
                    Some(rate) => {
                        let flash_reads = blocks.flash_reads(rate);
                        (Some(flash_reads), self.time_of_blocks_ns(&tally, flash_reads))
                    }
                    None => (of_pages, self.time_ns(&tally).map(|ns| (ns + known.ns).max(0.0))),
                }
            }
        };
        if let Some((ns, reads)) = time_ns.as_mut().zip(flash_reads) {
            *ns = (*ns + reads * self.more_a_read_ns).max(0.0);
        }
        if let Some((ns, _)) = replayed {
            time_ns = ns;
        }
        Row {
            readahead_kib,
            random: false,
            made,
            bulk,
            wasted_bytes: tally.wasted_bytes(),
            flash_reads,
            queue: replayed.map(|(_, asked)| asked),
            time_ns,
            energy_uj: None,
            tally,
            by_file,
            by_task,
        }
    }

    /// How large a file's blocks are, bytes, and whether they were when it was recorded.
    pub(super) fn block_bytes(&self, file: FileId, made: Made) -> Option<(u64, bool)> {
        let recorded = *file.device.and_then(|device| self.storage.squashfs.get(&device))?;
        let bytes = made.squashfs_block.unwrap_or(recorded);
        Some((bytes, bytes == recorded))
    }

    fn own(&self) -> &Own {
        self.own.get_or_init(|| {
            let on_ubifs = !self.workload.nodes.runs.is_empty();
            if self.storage.squashfs.is_empty() && !on_ubifs {
                return Own::default();
            }
            let fits = self.recorded(&TRIED_KIB).fits_readahead_kib;
            let own = self.play(fits, &|_| false, true, Made::default());
            let mut files = self.workload.pages_added.keys();
            let on_squashfs = |&file: &FileId| self.block_bytes(file, Made::default()).is_some();
            let only_squashfs = !self.storage.squashfs.is_empty() && files.all(on_squashfs);
            let recorded = self.workload.flash_reads;
            let of_bulk = self.nodes.filter(|_| !self.storage.bulk_read.is_empty());
            let more =
                |nodes: NodeCost| recorded as f64 - nodes.flash_reads(own.tally.pages(), own.bulk, own.index_reads);
            // Those on the way to each file's inode, which opening it brought in.
            let most = (DEPTH * self.workload.pages_added.len()) as f64;
            Own {
                block_rate: only_squashfs.then(|| own.blocks.rate(recorded)),
                index: own.index_of,
                more_reads: of_bulk.map_or(0.0, more).clamp(-most, 0.0),
            }
        })
    }

    /// When its call began when it was recorded, and when it ended, as far as that is known.
    pub(super) fn began_and_ended(&self, step: &Step) -> Option<(u64, Option<u64>)> {
        let call = self.workload.calls.get(step.call? as usize)?;
        Some((call.began_ns, call.ended_ns()))
    }

    pub(super) fn replay(&self) -> Option<Replay<'_>> {
        self.queue.map(|cost| Replay::new(&cost, self.storage.request_bytes, &self.workload.queued.extents))
    }

    /// Reads of the index that each page took when it was recorded; `None` where another kind of file system is read, and for that
    /// recording itself.
    pub(super) fn recorded_index(&self, own: bool) -> Option<&HashMap<(FileId, u64), u64>> {
        (!own && !self.workload.nodes.runs.is_empty()).then(|| &self.own().index)
    }

    pub(super) fn one_by_one(&self) -> Option<NodeCost> {
        self.one_by_one
    }

    /// What a call takes that brings nothing in.
    pub(super) fn call_ns(&self) -> f64 {
        self.costs().map_or(0.0, |[call_ns, ..]| call_ns)
    }

    pub(super) fn mean_page_ns(&self) -> f64 {
        self.mean_page_ns
    }

    /// Pages of the mean: reads by their fit, faults by theirs; what has none (all of it was cached when it was recorded) by the
    /// other's pages.
    pub fn time_ns(&self, tally: &Tally) -> Option<f64> {
        let reads = self.cost.or(self.fault_cost.map(Cost::of_pages))?;
        let faults = self.fault_cost.unwrap_or(reads.of_pages());
        let advice = self.advice_cost.unwrap_or(reads).page_ns * tally.pages_in_advice as f64;
        let calls = reads.time_ns(tally.calls, tally.pages_in_calls);
        Some(calls + faults.time_ns(tally.faults, tally.pages_in_faults) + advice)
    }

    /// On squashfs a block takes what was read for it, however many of its pages are kept.
    fn time_of_blocks_ns(&self, tally: &Tally, flash_reads: f64) -> Option<f64> {
        let calls_ns = |calls: usize| self.call_ns() * calls as f64;
        let of_blocks_ns = self.busy_ns as f64 - calls_ns(self.workload.calls.len());
        let each_ns = of_blocks_ns.max(0.0) / self.workload.flash_reads.max(1) as f64;
        (self.workload.flash_reads > 0).then(|| calls_ns((tally.calls + tally.faults) as usize) + each_ns * flash_reads)
    }

    fn flash_reads(&self, tally: &Tally) -> Option<f64> {
        let rest = tally.pages() - tally.pages_in_faults - tally.pages_in_advice;
        let parts = [rest, tally.pages_in_faults, tally.pages_in_advice];
        Some(self.flash_rates()?.iter().zip(parts).map(|(each, pages)| each * pages as f64).sum())
    }

    /// Reads of flash for a page in reads, in faults and in advice.
    pub(super) fn flash_rates(&self) -> Option<[f64; 3]> {
        let of = |cost: Option<Cost>| cost.map(|cost| cost.flash_reads_per_page);
        let reads = of(self.cost.or(self.fault_cost))?;
        Some([reads, of(self.fault_cost).unwrap_or(reads), of(self.advice_cost).unwrap_or(reads)])
    }

    /// What the recording shows, and which of `settings` (KiB) it was made with, as far as the pages tell.
    pub fn recorded(&self, settings: &[u64]) -> Recorded {
        let recorded = &self.workload.pages_added;
        let off = |played: &Played| -> u64 {
            let model = |file: &FileId| played.by_file.get(file).map_or(0, Tally::pages);
            recorded.iter().map(|(file, &pages)| model(file).abs_diff(pages)).fold(0, u64::saturating_add)
        };
        let rows = settings.iter().map(|&kib| {
            let played = self.play(kib, &|_| false, true, Made::default());
            (off(&played), kib, played.tally.pages())
        });
        let rows: Vec<(u64, u64, u64)> = rows.collect();
        let (least, fits, pages) = rows.iter().copied().min().unwrap_or_default();
        let fits_alone = rows.iter().filter(|&&(off, ..)| off == least).count() == 1;
        let calls = self.workload.calls.iter().chain(&self.workload.advice);
        Recorded {
            pages: recorded.values().copied().fold(0, u64::saturating_add),
            flash_reads: self.workload.flash_reads,
            time_ns: self.busy_ns,
            timed_calls: calls.filter(|call| call.duration_ns.is_some()).count() as u64,
            held_ns: self.workload.held_ns,
            fits_readahead_kib: fits,
            predicted_pages: pages,
            fits_alone,
        }
    }
}
