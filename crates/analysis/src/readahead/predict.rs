//! One workload under many settings.

use std::collections::BTreeMap;

use flashscope_readahead::{Access, Cause, FileId, Kernel, PAGE_BYTES, PageStep, Settings, Simulator};
use serde::Serialize;

use super::cost::Cost;
use super::validated::ErrorBar;
use super::workload::Workload;

pub const PREDICTION_SCHEMA: u32 = 2;

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
}

impl Tally {
    pub fn pages(&self) -> u64 {
        self.pages_requested + self.pages_ahead
    }

    fn add(&mut self, other: &Tally) {
        self.calls += other.calls;
        self.pages_requested += other.pages_requested;
        self.pages_ahead += other.pages_ahead;
        self.pages_unused += other.pages_unused;
        self.pages_in_calls += other.pages_in_calls;
        self.faults += other.faults;
        self.pages_in_faults += other.pages_in_faults;
    }

    pub fn wasted_bytes(&self) -> u64 {
        self.pages_unused * PAGE_BYTES
    }
}

/// One setting.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub readahead_kib: u64,
    /// All files were read with `POSIX_FADV_RANDOM`.
    pub random: bool,
    pub tally: Tally,
    pub wasted_bytes: u64,
    /// `None` where the trace has no flash reads to fit them.
    pub flash_reads: Option<f64>,
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
    /// Of calls whose end is known.
    pub time_ns: u64,
    pub timed_calls: u64,
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
    /// What times and flash reads may be off by; `None` where none are predicted.
    pub error: Option<ErrorBar>,
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
}

/// What the files are read under.
#[derive(Clone, Debug)]
pub struct Storage {
    pub kernel: Kernel,
    /// The device's best request (`bdi->io_pages`): 0 on MTD.
    pub io_pages: u64,
    pub budget_pages: usize,
    /// Block sizes of file systems that are squashfs, bytes, by device number.
    pub squashfs: BTreeMap<u32, u64>,
}

impl Storage {
    /// Flash without a block layer, and a cache of 1 GiB.
    pub fn new(kernel: Kernel) -> Storage {
        Storage { kernel, io_pages: 0, budget_pages: 1 << 18, squashfs: BTreeMap::new() }
    }
}

impl<'a> Predictor<'a> {
    pub fn new(workload: &'a Workload, storage: Storage) -> Predictor<'a> {
        let cost = Cost::fit(workload.calls.iter().filter(|call| !call.is_fault));
        let fault_cost = Cost::fit(workload.calls.iter().filter(|call| call.is_fault));
        Predictor { workload, storage, cost, fault_cost }
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

    pub fn cost(&self) -> Option<Cost> {
        self.cost
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

    pub(super) fn kernel(&self) -> Kernel {
        self.storage.kernel
    }

    pub(super) fn budget_pages(&self) -> usize {
        self.storage.budget_pages
    }

    /// `own`: the window is the one of the recording, and every fault of it happens.
    pub(super) fn simulator(&self, readahead_kib: u64, own: bool) -> Simulator {
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
                simulator.set_squashfs_block(file, bytes);
            }
        }
        for &(file, page) in &self.workload.cached_before {
            simulator.preload(file, page);
        }
        simulator
    }

    /// Every page that reads and faults bring in, in order, under the window that was recorded.
    pub fn pages(&self, readahead_kib: u64) -> Vec<(FileId, u64)> {
        let mut simulator = self.simulator(readahead_kib, true);
        let mut pages = Vec::new();
        for step in &self.workload.steps {
            simulator.apply(step.file, step.open, step.access, &mut |event| {
                if event.is_read() {
                    pages.push((event.file, event.page));
                }
            });
        }
        pages
    }

    /// One setting; `random` names the files that are read with `POSIX_FADV_RANDOM`.
    pub fn row(&self, readahead_kib: u64, random: &dyn Fn(FileId) -> bool) -> Row {
        self.row_of(readahead_kib, random, false)
    }

    fn row_of(&self, readahead_kib: u64, random: &dyn Fn(FileId) -> bool, own: bool) -> Row {
        let mut simulator = self.simulator(readahead_kib, own);
        let mut by_file: BTreeMap<FileId, Tally> = BTreeMap::new();
        let mut by_task: BTreeMap<u32, Tally> = BTreeMap::new();
        let mut opened = std::collections::HashSet::new();
        for step in &self.workload.steps {
            let open = step.open;
            if random(step.file) && opened.insert((step.file, open)) {
                simulator.apply(step.file, open, Access::AdviseRandom, &mut |_| {});
            }
            let task = by_task.entry(step.tid).or_default();
            let in_fault = matches!(step.access, Access::Fault { .. });
            let in_call = step.call.is_some() && !in_fault;
            for tally in [&mut *task, by_file.entry(step.file).or_default()] {
                tally.calls += u64::from(in_call);
                tally.faults += u64::from(in_fault);
            }
            simulator.apply(step.file, open, step.access, &mut |event| {
                let file = by_file.entry(event.file).or_default();
                match event.step {
                    PageStep::Added { cause: Cause::Write } => {}
                    PageStep::Added { cause } => {
                        for tally in [&mut *file, &mut *task] {
                            match cause {
                                Cause::Request => tally.pages_requested += 1,
                                _ => tally.pages_ahead += 1,
                            }
                            tally.pages_in_calls += u64::from(in_call);
                            tally.pages_in_faults += u64::from(in_fault);
                        }
                    }
                    PageStep::Dropped { used } | PageStep::Evicted { used } | PageStep::TakenBack { used } => {
                        file.pages_unused += u64::from(!used);
                    }
                }
            });
        }
        for (file, pages) in simulator.unused() {
            by_file.entry(file).or_default().pages_unused += pages;
        }
        let mut tally = Tally::default();
        by_file.values().for_each(|of_file| tally.add(of_file));
        let (flash_reads, time_ns) = (self.flash_reads(&tally), self.time_ns(&tally));
        Row {
            readahead_kib,
            random: false,
            wasted_bytes: tally.wasted_bytes(),
            flash_reads,
            time_ns,
            energy_uj: None,
            tally,
            by_file,
            by_task,
        }
    }

    /// Reads by their fit, faults by theirs; what has none (all of it was cached when it was recorded) by the other's pages.
    pub fn time_ns(&self, tally: &Tally) -> Option<f64> {
        let reads = self.cost.or(self.fault_cost.map(Cost::of_pages))?;
        let faults = self.fault_cost.unwrap_or(reads.of_pages());
        Some(reads.time_ns(tally.calls, tally.pages_in_calls) + faults.time_ns(tally.faults, tally.pages_in_faults))
    }

    fn flash_reads(&self, tally: &Tally) -> Option<f64> {
        let reads = self.cost.or(self.fault_cost)?.flash_reads_per_page;
        let faults = self.fault_cost.or(self.cost)?.flash_reads_per_page;
        let rest = tally.pages() - tally.pages_in_faults;
        Some(reads * rest as f64 + faults * tally.pages_in_faults as f64)
    }

    /// What the recording shows, and which of `settings` (KiB) it was made with, as far as the pages tell.
    pub fn recorded(&self, settings: &[u64]) -> Recorded {
        let recorded = &self.workload.pages_added;
        let off = |row: &Row| -> u64 {
            let model = |file: &FileId| row.by_file.get(file).map_or(0, Tally::pages);
            recorded.iter().map(|(file, &pages)| model(file).abs_diff(pages)).sum()
        };
        let rows = settings.iter().map(|&kib| {
            let row = self.row_of(kib, &|_| false, true);
            (off(&row), kib, row.tally.pages())
        });
        let rows: Vec<(u64, u64, u64)> = rows.collect();
        let (least, fits, pages) = rows.iter().copied().min().unwrap_or_default();
        let fits_alone = rows.iter().filter(|&&(off, ..)| off == least).count() == 1;
        let timed = || self.workload.calls.iter().filter_map(|call| call.duration_ns);
        Recorded {
            pages: recorded.values().sum(),
            flash_reads: self.workload.flash_reads,
            time_ns: timed().fold(0, u64::saturating_add),
            timed_calls: timed().count() as u64,
            fits_readahead_kib: fits,
            predicted_pages: pages,
            fits_alone,
        }
    }
}
