//! What of a report is split by file, by device or by call: `report --by`.

use crate::block::{BlockReport, Group, GroupBy, SyncCall};
use crate::calls::{CallGroup, SlowCall};
use crate::flash::FileWear;
use crate::{FileUse, FlashReport, LossCount};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of [`SplitReport`] as JSON.
pub const SPLIT_REPORT_SCHEMA: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitBy {
    File,
    Device,
    Call,
}

/// The parts of a report that are split so; those that it has nothing of are empty.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct SplitReport {
    pub schema: u32,
    pub title: String,
    pub by: SplitBy,
    /// Block I/O by file, or by device and operation.
    pub block: Vec<Group>,
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
            SplitBy::File => (report.names.files.clone(), report.found.wear.by_file.clone()),
            SplitBy::Device | SplitBy::Call => Default::default(),
        };
        SplitReport { files, wear, ..empty }.with_calls(&report.calls)
    }

    fn new(title: &str, by: SplitBy, losses: &[LossCount]) -> SplitReport {
        SplitReport {
            schema: SPLIT_REPORT_SCHEMA,
            title: title.to_owned(),
            by,
            block: Vec::new(),
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

    /// Whether the trace has nothing that is split so.
    pub fn is_empty(&self) -> bool {
        let Self { block, files, wear, calls, syncs, .. } = self;
        block.is_empty() && files.is_empty() && wear.is_empty() && calls.is_empty() && syncs.is_empty()
    }
}
