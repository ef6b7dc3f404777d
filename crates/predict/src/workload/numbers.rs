//! Numbers the files and tasks of a workload, so that sums are kept in lists instead of maps.

use std::collections::HashSet;

use flashscope_trace::{FileId, TaskId};

use crate::workload::Workload;

/// Files and tasks sorted by identity; an index is the number.
pub struct Numbers {
    pub files: Vec<FileId>,
    pub tasks: Vec<TaskId>,
    /// Numbers of the file and task of each step.
    pub of_steps: Vec<(u32, u32)>,
}

impl Numbers {
    /// Numbers the files and tasks of a complete workload.
    pub fn of(workload: &Workload) -> Numbers {
        let steps = &workload.steps;
        let before = workload.cached_before.iter().map(|(file, _)| *file);
        let files = steps.iter().map(|step| step.file).chain(workload.sizes.keys().copied()).chain(before);
        let files = in_order(files.collect());
        let tasks = in_order(steps.iter().map(|step| step.tid).collect());
        let place = |at: Result<usize, usize>| at.unwrap_or_else(|next| next) as u32;
        let of_step = |file: FileId, tid: TaskId| (place(files.binary_search(&file)), place(tasks.binary_search(&tid)));
        let of_steps = steps.iter().map(|step| of_step(step.file, step.tid)).collect();
        Numbers { files, tasks, of_steps }
    }

    pub fn file(&self, file: FileId) -> Option<usize> {
        self.files.binary_search(&file).ok()
    }
}

fn in_order<T: Ord>(set: HashSet<T>) -> Vec<T> {
    let mut list: Vec<T> = set.into_iter().collect();
    list.sort_unstable();
    list
}
