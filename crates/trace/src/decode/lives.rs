//! Distinguishes tasks that had the same thread number one after the other: the kernel reuses the number of a task that ended.
//!
//! A clone has two events, in this order (copy_process and kernel_clone in kernel/fork.c, Linux 6.1): `task_newtask` and
//! `sched_process_fork`. An event belongs to a new task if the task before it ended (`sched_process_exit`, `sched_process_free`), or if it
//! is not the second event of the same clone: two tasks never have one number at the same time. Without these events there is one task.

/// One of the two events of a clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CloneStep {
    NewTask,
    Fork,
}

/// The tasks that had one number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lives {
    /// Start times of the tasks, without the first task's.
    begins: Vec<u64>,
    last: Option<(CloneStep, u64)>,
    ended: bool,
}

impl Lives {
    /// A clone event for this number. Returns whether it begins another task. An event that is not later than the last one comes from a
    /// copy of the trace and is ignored.
    pub fn begin(&mut self, step: CloneStep, time: u64) -> bool {
        if self.last.is_some_and(|(_, before)| time <= before) {
            return false;
        }
        let is_another = self.ended || self.last.is_some_and(|(before, _)| step <= before);
        (self.last, self.ended) = (Some((step, time)), false);
        if is_another {
            self.begins.push(time);
        }
        is_another
    }

    /// The task ended.
    pub fn end(&mut self) {
        self.ended = true;
    }

    pub fn begins(&self) -> &[u64] {
        &self.begins
    }
}

#[cfg(test)]
mod tests {
    use super::CloneStep::{Fork, NewTask};
    use super::*;

    #[test]
    fn a_clone_is_of_another_task_than_the_one_that_ended() {
        let mut lives = Lives::default();
        let begins = [(NewTask, 10), (Fork, 11)].map(|(step, time)| lives.begin(step, time));
        assert_eq!(begins, [false, false]);
        lives.end();
        assert_eq!([(NewTask, 20), (Fork, 21)].map(|(step, time)| lives.begin(step, time)), [true, false]);
        // Its end is not in the trace; then the text was pasted twice.
        assert_eq!(
            [(NewTask, 30), (Fork, 31), (NewTask, 30)].map(|(step, time)| lives.begin(step, time)),
            [true, false, false]
        );
        assert_eq!(lives.begins(), [20, 30]);
        // It was there before the recording.
        let mut lives = Lives::default();
        lives.end();
        assert!(lives.begin(Fork, 5) && !lives.begin(Fork, 5) && lives.begin(Fork, 9));
    }
}
