//! The result: a row for each setting, and the measurements that it rests on.

use std::collections::BTreeMap;

use flashscope_analysis::Evidence;
use flashscope_cachesim::BulkReads;
use flashscope_trace::{FileId, TaskId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cost::Cost;
use crate::queue::{QueueCost, Requested};
use crate::settings::{FilesystemOptions, Tally};
use crate::validated::ErrorBar;

/// The prediction for one setting.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Read-ahead window, KiB.
    pub readahead_kib: u64,
    /// All files are read with `POSIX_FADV_RANDOM`.
    pub random: bool,
    #[serde(flatten)]
    pub options: FilesystemOptions,
    /// Bulk reads of UBIFS.
    pub bulk: BulkReads,
    /// Pages of all files.
    pub tally: Tally,
    /// Bytes that were read ahead and that nothing used.
    pub wasted_bytes: u64,
    /// Page reads of raw NAND; `None` if the trace has no flash reads to fit them.
    pub flash_reads: Option<f64>,
    /// Requests to the block queue; `None` if the trace has none, or if the reader itself reads the flash.
    pub queue: Option<Requested>,
    /// Time in which at least one task is in a read, a fault or advice that brings pages in. `None` if the trace has nothing to fit it,
    /// or none of the requests that this setting makes.
    pub time_ns: Option<f64>,
    /// Energy by a power profile; `None` without a profile, or if the profile does not know such work.
    pub energy_uj: Option<f64>,
    #[serde(serialize_with = "list")]
    #[schemars(with = "Vec<OfFile>")]
    pub by_file: BTreeMap<FileId, Tally>,
    pub by_task: BTreeMap<TaskId, Tally>,
}

/// An entry of `by_file` as it is written.
#[derive(Serialize, JsonSchema)]
struct OfFile {
    #[serde(flatten)]
    file: FileId,
    #[serde(flatten)]
    tally: Tally,
}

/// Maps with keys that are no text become lists.
fn list<S: serde::Serializer>(map: &BTreeMap<FileId, Tally>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(map.iter().map(|(&file, &tally)| OfFile { file, tally }))
}

/// Figures of the recording itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Recorded {
    /// Pages that came into the page cache.
    pub pages: u64,
    /// Page reads of raw NAND.
    pub flash_reads: Evidence<u64>,
    /// Time in which at least one task was in a read, a fault or advice with a known end.
    pub time_ns: Evidence<u64>,
    /// Calls with a known end.
    pub timed_calls: u64,
    /// Page faults of mapped files.
    pub faults: Evidence<u64>,
    /// Time in which calls waited for the CPU because other tasks ran; not part of `time_ns`.
    pub cpu_wait_ns: Evidence<u64>,
    /// The setting whose predicted pages are nearest to the recorded ones, KiB.
    pub fits_readahead_kib: u64,
    /// Pages predicted for that setting.
    pub predicted_pages: u64,
    /// No other of the settings tried explains the pages as well.
    pub fits_alone: bool,
}

/// Why a figure is missing, and how to record it.
pub(crate) type Missing = (&'static str, &'static str);

pub(crate) const NO_FLASH: Missing =
    ("the trace has no event of raw NAND", "on raw NAND record with --events flash,cache,syscall");
pub(crate) const NO_ENDS: Missing = (
    "the trace shows the end of no read: it has no system calls",
    "record with --events block,cache,syscall (flash,cache,syscall on raw NAND)",
);
pub(crate) const NO_FAULTS: Missing = (
    "the trace has no event that shows faults of mapped files (filemap:mm_filemap_fault, flashscope:file_fault)",
    "record with --events cache",
);
pub(crate) const NO_SWITCHES: Missing = (
    "the trace has no sched:sched_switch: who had the processor is unknown",
    "record with --events sched:sched_switch too",
);

/// A figure that needs events of one kind; unknown where the trace has none.
pub(crate) fn shown(is: bool, figure: u64, (missing, next): Missing) -> Evidence<u64> {
    match is {
        true => figure.into(),
        false => Evidence::unknown(missing, next),
    }
}

impl Recorded {
    /// Whether the pages prove another window than the knob's: that one predicts every page, and no third one does.
    pub fn shows_another_than(&self, knob_kib: u64) -> bool {
        let exact = self.predicted_pages == self.pages && self.pages > 0;
        knob_kib != self.fits_readahead_kib && exact && self.fits_alone
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
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
    pub error_other_options: Option<ErrorBar>,
    /// Name of the power profile.
    pub power: Option<String>,
    pub rows: Vec<Row>,
    /// What bounds the prediction.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::Recorded;

    #[test]
    fn pages_outweigh_the_knob_only_where_one_window_explains_them_all() {
        let seen = Recorded {
            pages: 1249,
            flash_reads: 0.into(),
            time_ns: 0.into(),
            timed_calls: 0,
            faults: 0.into(),
            cpu_wait_ns: 0.into(),
            fits_readahead_kib: 64,
            predicted_pages: 1249,
            fits_alone: true,
        };
        assert!(seen.shows_another_than(8192));
        assert!(!seen.shows_another_than(64));
        assert!(
            !Recorded { predicted_pages: 1240, ..seen.clone() }.shows_another_than(8192),
            "the model explains most of them"
        );
        assert!(!Recorded { fits_alone: false, ..seen.clone() }.shows_another_than(8192));
        assert!(!Recorded { pages: 0, predicted_pages: 0, ..seen.clone() }.shows_another_than(8192));
    }
}
