//! Counts of pages by the reason they were brought in and by their use: the result of [`super::Accuracy`].

use flashscope_trace::{Device, TaskId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Brought {
    /// Pages of the read or fault itself.
    pub requested: u64,
    pub ahead: u64,
    /// Of the pages read ahead: those touched while cached.
    pub ahead_used: u64,
    /// Of the pages used: those still in flight when the read or fault began. `None` where the trace does not show the device.
    pub ahead_late: Option<u64>,
    /// Of the pages read ahead: those that left the cache untouched. `None` where no event shows that pages leave.
    pub ahead_evicted_unused: Option<u64>,
    /// Of the pages read ahead: those never touched and not known to have left. Where the trace shows departures, they are still cached.
    pub ahead_left_unused: u64,
    /// Of those left, in counts of files: pages behind the last read of a task that had not ended. It may have read them later.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ahead_awaited: u64,
    /// Of the pages read ahead: those not known to be touched, of a mapped file, where no event shows touches. Where no event shows faults,
    /// any file may have been mapped.
    pub mapped: u64,
    /// Pages that no read requested, where no event shows writes: read ahead or written. In no other count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub origin_unknown: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Brought {
    /// Whether no page was followed.
    pub fn is_empty(&self) -> bool {
        self.requested == 0 && self.ahead == 0 && self.origin_unknown == 0
    }

    pub fn ahead_unused(&self) -> u64 {
        self.ahead_evicted_unused.unwrap_or(0).saturating_add(self.ahead_left_unused)
    }

    /// Unused pages, without those that a task may have read after the trace.
    pub fn ahead_wasted(&self) -> u64 {
        self.ahead_unused().saturating_sub(self.ahead_awaited)
    }

    pub(super) fn left_unused(&mut self) -> &mut u64 {
        &mut self.ahead_left_unused
    }

    pub(super) fn add(&mut self, other: &Brought) {
        self.requested = self.requested.saturating_add(other.requested);
        self.ahead = self.ahead.saturating_add(other.ahead);
        self.ahead_used = self.ahead_used.saturating_add(other.ahead_used);
        let sum = |(ours, theirs): (u64, u64)| ours.saturating_add(theirs);
        self.ahead_late = self.ahead_late.zip(other.ahead_late).map(sum);
        self.ahead_evicted_unused = self.ahead_evicted_unused.zip(other.ahead_evicted_unused).map(sum);
        self.ahead_left_unused = self.ahead_left_unused.saturating_add(other.ahead_left_unused);
        self.ahead_awaited = self.ahead_awaited.saturating_add(other.ahead_awaited);
        self.mapped = self.mapped.saturating_add(other.mapped);
        self.origin_unknown = self.origin_unknown.saturating_add(other.origin_unknown);
    }
}

/// Counts of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct FileBrought {
    pub device: Option<Device>,
    pub inode: u64,
    /// The path, marked if the file was deleted or renamed: `/data/a (deleted)`; where the recording has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(flatten)]
    pub pages: Brought,
}

/// Pages that one task brought in, whichever task used them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct TaskBrought {
    pub tid: TaskId,
    /// The task's name, where the trace has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(flatten)]
    pub pages: Brought,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct AccuracyFindings {
    pub total: Brought,
    /// Files with most unused pages first.
    pub files: Vec<FileBrought>,
    pub tasks: Vec<TaskBrought>,
    /// Pages that came in no call, or in a write to another file: the file system's own. In no other count.
    #[serde(default)]
    pub file_systems_own: u64,
    /// Pages beyond the most that are followed. In no other count.
    pub not_followed: u64,
    /// Tasks that were in a call or had requested pages, and were forgotten because there were too many: their later pages may be in a
    /// wrong count.
    #[serde(default)]
    pub tasks_forgotten: u64,
    /// Pages in flight whose completion was not seen: whether they were late is unknown.
    #[serde(default)]
    pub arrival_unknown: u64,
    /// No event shows faults: pages that no read touched may have been used through a mapping.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub faults_not_shown: bool,
    /// Further files and tasks are counted together under inode 0 and task 0.
    pub folded: bool,
}
