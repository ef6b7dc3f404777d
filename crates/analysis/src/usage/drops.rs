//! Pages that programs make the kernel drop: `posix_fadvise(POSIX_FADV_DONTNEED)` (mm/fadvise.c).
//!
//! Input: calls of `fadvise64`, and pages that leave the page cache within them. Output: bytes by thread, for at most
//! [`MAX_THREADS`]; those of further threads in one sum.

use crate::bounded::{BoundedMap, Full};
use flashscope_trace::TaskId;
use std::collections::BTreeMap;

const MAX_THREADS: usize = 4096;

pub(crate) struct Drops {
    /// Threads in such a call.
    advising: BoundedMap<TaskId, ()>,
    dropped: BoundedMap<TaskId, u64>,
    /// Bytes of threads without room in `dropped`.
    further_bytes: u64,
    left_bytes: u64,
}

/// Bytes dropped, and all bytes that left the page cache.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub by_thread: BTreeMap<TaskId, u64>,
    pub further_bytes: u64,
    pub left_bytes: u64,
}

impl Default for Drops {
    fn default() -> Drops {
        // A thread that ends within its call leaves its entry there.
        let advising = BoundedMap::new(MAX_THREADS, Full::ForgetOldest);
        Drops { advising, dropped: BoundedMap::new(MAX_THREADS, Full::Refuse), further_bytes: 0, left_bytes: 0 }
    }
}

impl Drops {
    /// Takes an event without a typed form, such as those of calls.
    #[inline]
    pub fn other(&mut self, name: &str, tid: TaskId) {
        let enters = name.strip_prefix("sys_enter_");
        // Names by architecture: fadvise64, fadvise64_64, arm_fadvise64_64.
        if enters.is_some_and(|call| call.trim_start_matches("arm_").starts_with("fadvise64")) {
            self.advising.insert(tid, ());
        } else if !self.advising.is_empty() && (enters.is_some() || name.starts_with("sys_exit_")) {
            self.advising.remove(&tid);
        }
    }

    /// No call goes on in another recording.
    pub fn recording_ends(&mut self) {
        self.advising.clear();
    }

    /// Pages leave the page cache, removed by this thread.
    pub fn left(&mut self, tid: TaskId, bytes: u64) {
        self.left_bytes = self.left_bytes.saturating_add(bytes);
        if self.advising.contains_key(&tid) {
            let sum = self.dropped.entry(tid, || 0).unwrap_or(&mut self.further_bytes);
            *sum = sum.saturating_add(bytes);
        }
    }

    pub fn finish(self) -> Dropped {
        let by_thread = self.dropped.iter().map(|(&tid, &bytes)| (tid, bytes)).collect();
        Dropped { by_thread, further_bytes: self.further_bytes, left_bytes: self.left_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_leave_within_the_call_are_dropped_by_its_thread() {
        let (reader, other) = (TaskId(7), TaskId(8));
        for call in ["fadvise64", "fadvise64_64", "arm_fadvise64_64"] {
            let mut drops = Drops::default();
            drops.left(reader, 4096);
            drops.other(&format!("sys_enter_{call}"), reader);
            drops.left(reader, 8192);
            drops.left(other, 4096);
            drops.other(&format!("sys_exit_{call}"), reader);
            drops.left(reader, 4096);
            let by_thread = BTreeMap::from([(reader, 8192)]);
            assert_eq!(drops.finish(), Dropped { by_thread, further_bytes: 0, left_bytes: 20_480 }, "{call}");
        }
    }

    /// Its end is not in the trace.
    #[test]
    fn a_call_ends_where_the_next_one_begins() {
        let mut drops = Drops::default();
        drops.other("sys_enter_fadvise64", TaskId(7));
        drops.other("sys_enter_read", TaskId(7));
        drops.left(TaskId(7), 4096);
        assert_eq!(drops.finish().by_thread, BTreeMap::new());
    }

    /// A script starts a program for each file.
    #[test]
    fn what_further_threads_drop_is_in_the_sum() {
        let mut drops = Drops::default();
        for tid in 1..=5000 {
            drops.other("sys_enter_fadvise64", TaskId(tid));
            drops.left(TaskId(tid), 4096);
        }
        let found = drops.finish();
        assert_eq!((found.by_thread.len(), found.further_bytes), (4096, 904 * 4096));
    }
}
