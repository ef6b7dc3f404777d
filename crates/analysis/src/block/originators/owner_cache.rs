//! A cache of the owners of threads: almost every bio is of one of a few threads.

use super::Who;
use flashscope_trace::TaskId;
use std::ops::Range;

/// Slots of the cache.
const SLOTS: usize = 64;

#[derive(Clone)]
struct Answer {
    tid: TaskId,
    /// The times for which it is the answer.
    holds: Range<u64>,
    who: Who,
}

pub(super) struct OwnerCache(Vec<Answer>);

impl Default for OwnerCache {
    fn default() -> OwnerCache {
        OwnerCache(vec![Answer { tid: TaskId(0), holds: 0..0, who: Who::default() }; SLOTS])
    }
}

impl OwnerCache {
    #[inline(always)]
    pub fn get(&self, tid: TaskId, time: u64) -> Option<Who> {
        let answer = &self.0[tid.0 as usize % SLOTS];
        (answer.tid == tid && answer.holds.contains(&time)).then_some(answer.who)
    }

    pub fn put(&mut self, tid: TaskId, holds: Range<u64>, who: Who) {
        self.0[tid.0 as usize % SLOTS] = Answer { tid, holds, who };
    }

    pub fn forget(&mut self, tid: TaskId) {
        self.put(tid, 0..0, Who::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_its_thread_and_its_times() {
        let mut cache = OwnerCache::default();
        let who = |owner, carries| Who { owner, carries, former: 0 };
        assert_eq!(cache.get(TaskId(0), 0), None);
        cache.put(TaskId(7), 10..20, who(3, true));
        cache.put(TaskId(8), 0..u64::MAX, who(4, false));
        assert_eq!(
            (cache.get(TaskId(7), 9), cache.get(TaskId(7), 10), cache.get(TaskId(7), 20)),
            (None, Some(who(3, true)), None)
        );
        assert_eq!((cache.get(TaskId(71), 10), cache.get(TaskId(8), 5)), (None, Some(who(4, false))));
        cache.forget(TaskId(7));
        assert_eq!(cache.get(TaskId(7), 10), None);
    }
}
