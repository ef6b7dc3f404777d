//! Flash operations of each task.

use super::OpCounts;
use crate::{Analysis, Lookup};
use flashscope_trace::{Event, EventKind, TaskId, TimeNs};
use foldhash::{HashMap, HashMapExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most distinct names; operations of further ones count for [`OTHER_TASKS`].
pub const MAX_TASKS: usize = 4096;
/// Name for the operations of all tasks beyond [`MAX_TASKS`].
pub const OTHER_TASKS: &str = "(further tasks)";

/// Operations of all tasks with one name at the time of the operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct TaskOps {
    pub task: String,
    pub counts: OpCounts,
}

/// Counts by task name. The name is looked up at each operation, because thread ids are reused and an exec changes the name.
/// Where the recording has no name, the task is called "tid N".
#[derive(Debug)]
pub struct ByTask<L> {
    lookup: L,
    tasks: HashMap<String, OpCounts>,
    unnamed: HashMap<TaskId, OpCounts>,
    others: OpCounts,
}

impl<L: Lookup<Name: AsRef<str>>> ByTask<L> {
    pub fn new(lookup: L) -> Self {
        Self { lookup, tasks: HashMap::new(), unnamed: HashMap::new(), others: OpCounts::default() }
    }

    fn slot(&mut self, tid: TaskId, time: TimeNs) -> &mut OpCounts {
        let room = self.tasks.len() + self.unnamed.len() < MAX_TASKS;
        match (self.lookup)(tid, time) {
            Some(name) => {
                let name = name.as_ref();
                if self.tasks.contains_key(name) || room {
                    if !self.tasks.contains_key(name) {
                        self.tasks.insert(name.to_owned(), OpCounts::default());
                    }
                    return self.tasks.get_mut(name).unwrap_or(&mut self.others);
                }
            }
            None => {
                if room || self.unnamed.contains_key(&tid) {
                    return self.unnamed.entry(tid).or_default();
                }
            }
        }
        &mut self.others
    }
}

impl<L: Lookup<Name: AsRef<str>>> Analysis for ByTask<L> {
    /// Busiest first, then by name.
    type Output = Vec<TaskOps>;

    fn event(&mut self, event: &Event) {
        if let EventKind::Flash(access) = &event.kind {
            self.slot(event.tid, event.time).add(access.op);
        }
    }

    fn finish(self) -> Vec<TaskOps> {
        let named = self.tasks.into_iter();
        let unnamed = self.unnamed.into_iter().map(|(tid, counts)| (format!("tid {tid}"), counts));
        let others = (self.others.sum() > 0).then(|| (OTHER_TASKS.to_owned(), self.others));
        let mut tasks: Vec<TaskOps> =
            named.chain(unnamed).chain(others).map(|(task, counts)| TaskOps { task, counts }).collect();
        tasks.sort_by(|a, b| (b.counts.sum().cmp(&a.counts.sum())).then_with(|| a.task.cmp(&b.task)));
        tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{access, flash};
    use flashscope_trace::FlashOp::{Program, Read};

    #[test]
    fn names_at_the_time_of_the_operation() {
        // Thread 7 is sh until it becomes cat at time 10; nobody knows 9.
        let mut fold = ByTask::new(|tid, time: TimeNs| match tid {
            TaskId(7) if time.0 < 10 => Some("sh"),
            TaskId(7) | TaskId(8) => Some("cat"),
            _ => None,
        });
        for (time, tid, op) in [(1, 7, Read), (10, 7, Read), (11, 8, Read), (12, 8, Program), (13, 9, Read)] {
            fold.event(&flash(time, tid, access(op, 0)));
        }
        let counts = |reads, programs| OpCounts { reads, programs, erases: 0 };
        let found: Vec<(String, OpCounts)> = fold.finish().into_iter().map(|t| (t.task, t.counts)).collect();
        assert_eq!(
            found,
            [("cat".to_owned(), counts(2, 1)), ("sh".to_owned(), counts(1, 0)), ("tid 9".to_owned(), counts(1, 0)),]
        );
    }

    #[test]
    fn endless_names_stay_bounded_and_nothing_is_lost() {
        let mut fold = ByTask::new(|tid, _| Some(format!("task {tid}")));
        for tid in 0..MAX_TASKS as u32 + 10 {
            fold.event(&flash(1, tid, access(Read, 0)));
        }
        fold.event(&flash(1, 3, access(Read, 0)));
        let found = fold.finish();
        assert_eq!(found.len(), MAX_TASKS + 1);
        assert_eq!(found[0].task, OTHER_TASKS);
        assert_eq!(found[0].counts.reads, 10);
        assert_eq!(found[1].task, "task 3");
        assert_eq!(found[1].counts.reads, 2);
    }
}
