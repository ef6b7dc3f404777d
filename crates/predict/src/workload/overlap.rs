//! Tasks whose calls of one file overlap.
//!
//! Under another window their calls may come in another order, which no recording shows. They are played in the order in which they
//! began, and have an error bound of their own ([`super::ErrorBar::of_overlap`]).

use std::collections::{HashMap, HashSet};

use flashscope_trace::{FileId, TaskId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::workload::Call;

/// How many tasks and files have such calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Overlap {
    pub tasks: usize,
    pub files: usize,
}

/// `None` where no call of a file begins while another task's call of the same file goes on.
pub fn overlap(calls: &[Call]) -> Option<Overlap> {
    let mut latest: HashMap<FileId, (TaskId, u64)> = HashMap::new();
    let (mut tasks, mut files) = (HashSet::new(), HashSet::new());
    for call in calls {
        if let Some(&(tid, end)) = latest.get(&call.file)
            && tid != call.tid
            && call.began_ns < end
        {
            tasks.extend([tid, call.tid]);
            files.insert(call.file);
        }
        if let Some(end) = call.ended_ns()
            && latest.get(&call.file).is_none_or(|&(_, last)| end > last)
        {
            latest.insert(call.file, (call.tid, end));
        }
    }
    (!files.is_empty()).then_some(Overlap { tasks: tasks.len(), files: files.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::Device;

    fn call(tid: TaskId, inode: u64, began_ns: u64, duration_ns: u64) -> Call {
        let file = FileId { device: Some(Device(1)), inode };
        Call { duration_ns: Some(duration_ns), ..Call::new(tid, file, false, began_ns) }
    }

    #[test]
    fn calls_of_one_file_by_two_tasks_overlap() {
        assert_eq!(overlap(&[]), None);
        assert_eq!(overlap(&[call(TaskId(1), 5, 0, 10), call(TaskId(2), 5, 10, 10)]), None, "one after the other");
        assert_eq!(overlap(&[call(TaskId(1), 5, 0, 10), call(TaskId(2), 6, 5, 10)]), None, "of two files");
        assert_eq!(overlap(&[call(TaskId(1), 5, 0, 10), call(TaskId(1), 5, 5, 10)]), None, "of one task");
        let calls = [
            call(TaskId(1), 5, 0, 100),
            call(TaskId(3), 6, 5, 10),
            call(TaskId(1), 5, 20, 5),
            call(TaskId(2), 5, 50, 10),
        ];
        assert_eq!(overlap(&calls), Some(Overlap { tasks: 2, files: 1 }));
    }
}
