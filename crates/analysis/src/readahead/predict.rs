//! One workload under many settings.

use std::collections::BTreeMap;

use flashscope_readahead::{Access, Cause, FileId, Kernel, OpenId, PAGE_BYTES, PageStep, Settings, Simulator};
use serde::Serialize;

use super::cost::Cost;
use super::workload::Workload;

pub const PREDICTION_SCHEMA: u32 = 1;

/// What one setting brings in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub calls: u64,
    pub pages_requested: u64,
    pub pages_ahead: u64,
    /// Of those ahead, the ones that nothing used, whether they were evicted or are there still.
    pub pages_unused: u64,
    /// Pages that calls of `read()` brought in: what their time is made of. The rest came by faults and advice.
    pub pages_in_calls: u64,
}

impl Tally {
    pub fn pages(&self) -> u64 {
        self.pages_requested + self.pages_ahead
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
    pub rows: Vec<Row>,
    /// What bounds the prediction.
    pub notes: Vec<String>,
}

/// Runs settings over a workload.
pub struct Predictor<'a> {
    workload: &'a Workload,
    kernel: Kernel,
    io_pages: u64,
    budget_pages: usize,
    cost: Option<Cost>,
}

impl<'a> Predictor<'a> {
    pub fn new(workload: &'a Workload, kernel: Kernel, io_pages: u64, budget_pages: usize) -> Predictor<'a> {
        let cost = Cost::fit(workload.calls.iter());
        Predictor { workload, kernel, io_pages, budget_pages, cost }
    }

    pub fn cost(&self) -> Option<Cost> {
        self.cost
    }

    /// One setting; `random` names the files that are read with `POSIX_FADV_RANDOM`.
    pub fn row(&self, readahead_kib: u64, random: &dyn Fn(FileId) -> bool) -> Row {
        let settings = Settings {
            readahead_pages: readahead_kib / (PAGE_BYTES / 1024),
            io_pages: self.io_pages,
            budget_pages: self.budget_pages,
        };
        let mut simulator = Simulator::new(self.kernel, settings);
        for (&file, &size) in &self.workload.sizes {
            simulator.set_size(file, size);
        }
        for &(file, page) in &self.workload.cached_before {
            simulator.preload(file, page);
        }
        let mut by_file: BTreeMap<FileId, Tally> = BTreeMap::new();
        let mut by_task: BTreeMap<u32, Tally> = BTreeMap::new();
        let mut opened = std::collections::HashSet::new();
        for step in &self.workload.steps {
            let open = OpenId(u64::from(step.tid));
            if random(step.file) && opened.insert((step.file, step.tid)) {
                simulator.apply(step.file, open, Access::AdviseRandom, &mut |_| {});
            }
            let task = by_task.entry(step.tid).or_default();
            let in_call = step.call.is_some();
            task.calls += u64::from(in_call);
            by_file.entry(step.file).or_default().calls += u64::from(in_call);
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
                        }
                    }
                    PageStep::Dropped { used } | PageStep::Evicted { used } => {
                        file.pages_unused += u64::from(!used);
                    }
                }
            });
        }
        for (file, pages) in simulator.unused() {
            by_file.entry(file).or_default().pages_unused += pages;
        }
        let mut tally = Tally::default();
        for of_file in by_file.values() {
            tally.calls += of_file.calls;
            tally.pages_requested += of_file.pages_requested;
            tally.pages_ahead += of_file.pages_ahead;
            tally.pages_unused += of_file.pages_unused;
            tally.pages_in_calls += of_file.pages_in_calls;
        }
        Row {
            readahead_kib,
            random: false,
            wasted_bytes: tally.wasted_bytes(),
            flash_reads: self.cost.map(|cost| cost.flash_reads_per_page * tally.pages() as f64),
            time_ns: self.cost.map(|cost| cost.time_ns(tally.calls, tally.pages_in_calls)),
            tally,
            by_file,
            by_task,
        }
    }

    /// What the recording shows, and which of `settings` (KiB) it was made with, as far as the pages tell.
    pub fn recorded(&self, settings: &[u64]) -> Recorded {
        let recorded = &self.workload.pages_added;
        let off = |row: &Row| -> u64 {
            let model = |file: &FileId| row.by_file.get(file).map_or(0, Tally::pages);
            recorded.iter().map(|(file, &pages)| model(file).abs_diff(pages)).sum()
        };
        let rows = settings.iter().map(|&kib| {
            let row = self.row(kib, &|_| false);
            (off(&row), kib, row.tally.pages())
        });
        let (_, fits, pages) = rows.min().unwrap_or_default();
        let timed = || self.workload.calls.iter().filter_map(|call| call.duration_ns);
        Recorded {
            pages: recorded.values().sum(),
            flash_reads: self.workload.flash_reads,
            time_ns: timed().fold(0, u64::saturating_add),
            timed_calls: timed().count() as u64,
            fits_readahead_kib: fits,
            predicted_pages: pages,
        }
    }
}
