//! Files that a thread writes into, by thread and device.
//!
//! Input: pages that become dirty. Limit: at most [`MAX_FILES`] pairs of a thread and a file; further ones are counted as lost.

use crate::bounded::{BoundedMap, Full};
use flashscope_trace::{Device, FileEvent, TaskId};
use std::collections::BTreeMap;

const MAX_FILES: usize = 1 << 16;
/// Most threads in the result: those with most files.
const MAX_LISTED: usize = 64;

/// Files of one device that a thread writes into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFiles {
    pub device: String,
    pub tid: TaskId,
    pub files: u64,
    /// Bytes of the pages that became dirty.
    pub bytes: u64,
    /// Some files were not followed, because there were too many.
    pub at_least: bool,
}

/// By thread, device and inode: bytes of dirty pages.
pub(crate) struct WrittenFiles(BoundedMap<(TaskId, Device, u64), u64>);

impl Default for WrittenFiles {
    fn default() -> WrittenFiles {
        WrittenFiles(BoundedMap::new(MAX_FILES, Full::Refuse))
    }
}

impl WrittenFiles {
    pub fn dirtied(&mut self, file: &FileEvent, tid: TaskId) {
        let Some(device) = file.device else { return };
        // The page cache of a block device, which has its number for an inode: metadata of a file system.
        if u32::try_from(file.inode) == Ok(device.0) {
            return;
        }
        if let Some(bytes) = self.0.entry((tid, device, file.inode), || 0) {
            *bytes = bytes.saturating_add(file.bytes);
        }
    }

    /// Most files first.
    pub fn finish(&self) -> Vec<TaskFiles> {
        let mut tasks: BTreeMap<(TaskId, Device), (u64, u64)> = BTreeMap::new();
        for (&(tid, device, _), &bytes) in self.0.iter() {
            let (files, sum) = tasks.entry((tid, device)).or_default();
            (*files, *sum) = (*files + 1, sum.saturating_add(bytes));
        }
        let one = |((tid, device), (files, bytes)): ((TaskId, Device), (u64, u64))| TaskFiles {
            device: device.to_string(),
            tid,
            files,
            bytes,
            at_least: self.0.lost() > 0,
        };
        let mut all: Vec<TaskFiles> = tasks.into_iter().map(one).collect();
        all.sort_by_key(|task| std::cmp::Reverse(task.files));
        all.truncate(MAX_LISTED);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::FileStep;

    #[test]
    fn files_of_each_thread_are_counted_once() {
        let mut files = WrittenFiles::default();
        let disk = Device::new(8, 0);
        for (tid, inode) in [(7, 12), (7, 12), (7, 13), (8, 12), (7, u64::from(disk.0))] {
            let (step, device) = (FileStep::Dirtied, Some(disk));
            let file = FileEvent { step, device, inode, offset: 0, bytes: 4096, size: None, block: 0, got: None };
            files.dirtied(&file, TaskId(tid));
        }
        let of =
            |tid, files, bytes| TaskFiles { device: "8:0".into(), tid: TaskId(tid), files, bytes, at_least: false };
        assert_eq!(files.finish(), [of(7, 2, 12_288), of(8, 1, 4096)]);
    }
}
