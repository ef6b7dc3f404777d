//! Time in which calls waited for a CPU because other tasks ran. It is not the storage's time.
//!
//! A task in a call that is taken off its processor while it could run (`prev_state` of `sched_switch`) waits for a processor. While
//! that is all that the calls wait for, the clock that measures calls stands still. A task that sleeps waits for storage, or for a
//! task that reads for it: its time counts.

use flashscope_trace::TaskId;
use std::collections::HashSet;

/// `TASK_REPORT_MAX` (include/linux/sched.h; 0x100 from 4.14 on, 5.10 to 7.2 too): the task was preempted. The bits below are states
/// in which it sleeps or has ended; in none of them it can run.
const PREEMPTED: i64 = 0x100;

/// Whether a task with this `prev_state` of `sched_switch` could have continued to run.
pub fn can_run(prev_state: i64) -> bool {
    prev_state == 0 || prev_state & PREEMPTED != 0
}

/// The clock that stands still while calls wait for a CPU.
#[derive(Debug, Default)]
pub struct CpuWait {
    /// Tasks in a call that could run and do not.
    waiting: HashSet<TaskId>,
    since: Option<u64>,
    total_ns: u64,
}

impl CpuWait {
    /// A processor switched to `next`. `from`: the task before, if it could continue and is in a call. `in_calls`: number of tasks in one.
    pub fn switched(&mut self, time_ns: u64, from: Option<TaskId>, next: TaskId, in_calls: usize) {
        self.waiting.remove(&next);
        self.waiting.extend(from.filter(|&from| from != next));
        self.update(time_ns, in_calls);
    }

    /// A task began or ended a call: it runs.
    pub fn runs(&mut self, time_ns: u64, tid: TaskId, in_calls: usize) {
        self.waiting.remove(&tid);
        self.update(time_ns, in_calls);
    }

    fn update(&mut self, time_ns: u64, in_calls: usize) {
        let all_wait = in_calls > 0 && self.waiting.len() == in_calls;
        match self.since {
            None if all_wait => self.since = Some(time_ns),
            Some(since) if !all_wait => {
                self.total_ns = self.total_ns.saturating_add(time_ns.saturating_sub(since));
                self.since = None;
            }
            _ => {}
        }
    }

    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// For how long the clock has stood still before this time.
    pub fn before(&self, time_ns: u64) -> u64 {
        let standing = self.since.map_or(0, |since| time_ns.saturating_sub(since));
        self.total_ns.saturating_add(standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_stands_while_no_call_can_go_on() {
        let mut waits = CpuWait::default();
        waits.runs(0, TaskId(7), 1);
        waits.switched(100, Some(TaskId(7)), TaskId(9), 1);
        assert_eq!((waits.before(100), waits.before(150)), (0, 50));
        waits.switched(300, None, TaskId(7), 1);
        assert_eq!(waits.before(400), 200);
        // The one is preempted for the other, which is in a call too; then both are.
        waits.runs(400, TaskId(8), 2);
        waits.switched(500, Some(TaskId(7)), TaskId(8), 2);
        assert_eq!(waits.before(600), 200);
        waits.switched(600, Some(TaskId(8)), TaskId(9), 2);
        waits.switched(700, None, TaskId(7), 2);
        assert_eq!(waits.before(800), 300);
        // One that sleeps waits for storage; what others do counts then.
        waits.switched(800, None, TaskId(9), 2);
        waits.runs(900, TaskId(8), 1);
        assert_eq!((waits.before(1000), waits.total_ns()), (300, 300));
    }

    #[test]
    fn what_the_kernel_says_of_a_task() {
        // R, R+, S, D, and S of a kernel that gives the flag beside it.
        assert_eq!([0, 0x100, 1, 2, 0x101].map(can_run), [true, true, false, false, true]);
    }

    #[test]
    fn times_that_run_backwards_are_no_panic() {
        let mut waits = CpuWait::default();
        waits.switched(u64::MAX, Some(TaskId(7)), TaskId(9), 1);
        waits.runs(0, TaskId(7), 1);
        waits.switched(5, Some(TaskId(7)), TaskId(7), 1);
        assert_eq!(waits.before(3), 0);
    }
}
