//! The task on each processor, as far as events show it.
//!
//! Input: every event's processor and task, in order of time. Output: the task that had a processor for most of a stretch of time.
//! Between two events of one task on one processor the task ran there, if the trace has every switch, or if they are less than
//! [`NEAR_NS`] apart. Limit: only the newest [`RUNS`] runs of each processor are kept.

use flashscope_trace::TaskId;

/// Events of one task this near show that it ran in between: on most devices sleeping and waking takes longer.
const NEAR_NS: u64 = 500_000;
const RUNS: usize = 8;

#[derive(Clone, Copy, Default)]
struct Run {
    task: TaskId,
    from: u64,
    to: u64,
}

#[derive(Clone, Default)]
struct Processor {
    runs: [Run; RUNS],
    newest: usize,
    /// Time of its last switch.
    switched: Option<u64>,
}

#[derive(Default)]
pub(in crate::block) struct Processors {
    /// By processor number. Numbers have 16 bits, so all entries take at most 14 MB.
    all: Vec<Processor>,
    /// Processor of the current event.
    pub current: u16,
}

impl Processors {
    /// `switches`: the task leaves the processor with this event.
    #[inline(always)]
    pub fn seen(&mut self, processor: u16, task: TaskId, now: u64, switches: bool) {
        let Some(one) = self.all.get_mut(usize::from(processor)) else {
            return self.first_seen(processor, task, now, switches);
        };
        let run = &mut one.runs[one.newest];
        if run.task == task && (now < run.to.saturating_add(NEAR_NS) || one.switched.is_some()) {
            run.to = now;
        } else {
            one.newest = (one.newest + 1) % RUNS;
            one.runs[one.newest] = Run { task, from: one.switched.unwrap_or(now).max(run.to), to: now };
        }
        if switches {
            one.switched = Some(now);
        }
    }

    /// Tasks of another recording are others.
    pub fn begin_again(&mut self) {
        self.all.clear();
    }

    #[cold]
    fn first_seen(&mut self, processor: u16, task: TaskId, now: u64, switches: bool) {
        self.all.resize_with(usize::from(processor) + 1, Processor::default);
        self.seen(processor, task, now, switches);
    }

    /// The task that had the current processor for at least half of this stretch; `None` where no task had it so long, as far as is known.
    pub fn most_of(&self, from: u64, to: u64) -> Option<TaskId> {
        let runs = &self.all.get(usize::from(self.current))?.runs;
        let had = |task: TaskId| {
            let of_task = runs.iter().filter(|run| run.task == task);
            of_task.map(|run| run.to.min(to).saturating_sub(run.from.max(from))).sum::<u64>()
        };
        let most = runs.iter().map(|run| run.task).filter(|task| *task != TaskId(0)).max_by_key(|task| had(*task))?;
        (had(most).saturating_mul(2) >= to.saturating_sub(from)).then_some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    /// Task 7 has the processor from 100 to 400 µs, as its events show, then task 9.
    #[test]
    fn events_near_each_other_show_who_ran() {
        let mut processors = Processors::default();
        for at in [100, 200, 300, 400] {
            processors.seen(0, TaskId(7), at * US, false);
        }
        processors.seen(0, TaskId(9), 450 * US, false);
        assert_eq!(processors.most_of(100 * US, 450 * US), Some(TaskId(7)));
        assert_eq!(processors.most_of(0, 450 * US), Some(TaskId(7)), "300 of 450");
        assert_eq!(processors.most_of(0, 601 * US), None, "300 of 601");
        processors.current = 1;
        assert_eq!(processors.most_of(100 * US, 450 * US), None, "nothing is known of that processor");
    }

    #[test]
    fn no_processor_is_too_high() {
        let mut processors = Processors { current: u16::MAX, ..Processors::default() };
        [100, 200, 300].into_iter().for_each(|at| processors.seen(u16::MAX, TaskId(7), at * US, false));
        assert_eq!(processors.most_of(100 * US, 300 * US), Some(TaskId(7)));
    }

    #[test]
    fn events_far_apart_show_it_where_every_switch_is_recorded() {
        let far = |switches: bool| {
            let mut processors = Processors::default();
            if switches {
                processors.seen(0, TaskId(0), 90 * US, true);
            }
            processors.seen(0, TaskId(7), 100 * US, false);
            processors.seen(0, TaskId(7), 5000 * US, switches);
            processors.seen(0, TaskId(9), 5010 * US, false);
            processors.most_of(100 * US, 5010 * US)
        };
        assert_eq!((far(false), far(true)), (None, Some(TaskId(7))));
    }

    #[test]
    fn the_idle_task_has_nothing() {
        let mut processors = Processors::default();
        (1..9).for_each(|at| processors.seen(0, TaskId(0), at * 100 * US, false));
        assert_eq!(processors.most_of(100 * US, 800 * US), None);
    }
}
