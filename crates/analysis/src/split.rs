//! The parts of a report that `report --by` shows: by file, by device or by call.

use crate::block::{BlockReport, Group, GroupBy, SyncCall};
use crate::calls::{CallGroup, SlowCall};
use crate::flash::{FileWear, OpCounts};
use crate::{FileUse, FlashReport, LossCount};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of [`SplitReport`] in JSON.
pub const SPLIT_REPORT_SCHEMA: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitBy {
    File,
    Device,
    Call,
}

/// Operations of one chip of raw flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct ChipOps {
    /// `null`: of a chip of unknown shape, or of blocks beyond those that are kept apart.
    pub chip: Option<u16>,
    #[serde(flatten)]
    pub counts: OpCounts,
}

/// The parts of a report that are split so; those that it has nothing of are empty.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct SplitReport {
    pub schema: u32,
    pub title: String,
    pub by: SplitBy,
    /// Block I/O by file, or by device and operation.
    pub block: Vec<Group>,
    /// Operations of raw flash by chip.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chips: Vec<ChipOps>,
    /// Who used which file.
    pub files: Vec<FileUse>,
    /// Pages of raw flash that were programmed for a file.
    pub wear: Vec<FileWear>,
    /// Latencies of calls: by kind of call, or by call and file.
    pub calls: Vec<CallGroup>,
    /// Latencies of calls, by kind of call and process.
    pub calls_by_process: Vec<CallGroup>,
    pub slowest_calls: Vec<SlowCall>,
    /// The longest calls of fsync and similar calls, and what each waited for.
    pub syncs: Vec<SyncCall>,
    pub losses: Vec<LossCount>,
}

impl SplitReport {
    pub fn of_block(report: &BlockReport, by: SplitBy) -> SplitReport {
        let group = match by {
            SplitBy::File => Some(GroupBy::File),
            SplitBy::Device => Some(GroupBy::Device),
            SplitBy::Call => None,
        };
        let block = report.found.groups.iter().filter(|one| Some(one.by) == group).cloned().collect();
        let files = if by == SplitBy::File { report.names.files.clone() } else { Vec::new() };
        let empty = SplitReport::new(&report.title, by, &report.losses);
        let syncs = if by == SplitBy::Call { report.found.syncs.calls.clone() } else { Vec::new() };
        SplitReport { block, files, syncs, ..empty }.with_calls(&report.calls)
    }

    pub fn of_flash(report: &FlashReport, by: SplitBy) -> SplitReport {
        let empty = SplitReport::new(&report.title, by, &report.losses);
        let (files, wear) = match by {
            SplitBy::File => (
                report.names.files.clone(),
                report.found.wear.known().map_or_else(Vec::new, |wear| wear.by_file.clone()),
            ),
            SplitBy::Device | SplitBy::Call => Default::default(),
        };
        let chips = if by == SplitBy::Device { chips(report) } else { Vec::new() };
        SplitReport { chips, files, wear, ..empty }.with_calls(&report.calls)
    }

    fn new(title: &str, by: SplitBy, losses: &[LossCount]) -> SplitReport {
        SplitReport {
            schema: SPLIT_REPORT_SCHEMA,
            title: title.to_owned(),
            by,
            block: Vec::new(),
            chips: Vec::new(),
            files: Vec::new(),
            wear: Vec::new(),
            calls: Vec::new(),
            calls_by_process: Vec::new(),
            slowest_calls: Vec::new(),
            syncs: Vec::new(),
            losses: losses.to_vec(),
        }
    }

    fn with_calls(mut self, calls: &crate::calls::CallsFound) -> SplitReport {
        match self.by {
            SplitBy::File => self.calls = calls.by_file.clone(),
            SplitBy::Device => {}
            SplitBy::Call => {
                self.calls = calls.by_call.clone();
                self.calls_by_process = calls.by_process.clone();
                self.slowest_calls = calls.slowest.clone();
            }
        }
        self
    }

    /// Whether the trace has nothing to show by this.
    pub fn is_empty(&self) -> bool {
        let Self { block, chips, files, wear, calls, syncs, .. } = self;
        block.is_empty()
            && chips.is_empty()
            && files.is_empty()
            && wear.is_empty()
            && calls.is_empty()
            && syncs.is_empty()
    }
}

/// Operations by chip; those without a block come last.
fn chips(report: &FlashReport) -> Vec<ChipOps> {
    let mut chips: Vec<ChipOps> = Vec::new();
    // Blocks are sorted by chip.
    for block in &report.found.blocks.blocks {
        match chips.last_mut().filter(|last| last.chip == Some(block.chip)) {
            Some(last) => last.counts += block.counts,
            None => chips.push(ChipOps { chip: Some(block.chip), counts: block.counts }),
        }
    }
    let unplaced = report.found.blocks.not_placed;
    if unplaced.sum() > 0 {
        chips.push(ChipOps { chip: None, counts: unplaced });
    }
    chips
}
