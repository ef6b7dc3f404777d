//! Long reads and writes without a storage event: their waits are in no other table.
//!
//! Input: calls without an event of storage, and the bios of kernel workers. A limit of a cgroup holds a bio back, and a worker
//! queues it later (block/blk-throttle.c, blk_throtl_dispatch_work_fn()): the call then shows no bio of its own. A bio of a worker
//! that was queued within the call and completed right before its end counts as evidence. It is no proof for a single call, since
//! no event links the two. Where workers complete bios all the time, as those of a loop device do, one of them ends near the end of
//! any call, even of a read of a pipe: then it is no evidence.

use crate::bounded::{BoundedMap, Full};
use flashscope_trace::{BlockAction, BlockEvent, Device, RequestKind, TimeNs};
use foldhash::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Shorter calls do not count as waits, nanoseconds.
pub const MIN_LONG_NS: u64 = 1_000_000;
/// Longest time from the completion of a bio to the return of its call, nanoseconds: the interrupt, and the wait for a processor.
pub const MAX_RETURN_NS: u64 = 1_000_000;
/// With this chance or more that another worker's bio completes right before the call's end, it is no evidence, per cent.
const MAX_CHANCE_PERCENT: u64 = 50;
/// Most bios of workers in flight, and most completed ones that are kept.
const MAX_UNDER_WAY: usize = 1 << 12;
const MAX_DONE: usize = 64;
/// Groups by call and process.
const MAX_GROUPS: usize = 1 << 12;

/// Long calls of one kind by one process that show no storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct UnseenCalls {
    pub call: String,
    /// `NAME (THREAD)`
    pub name: String,
    pub n: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
    /// Of these, calls with evidence: a worker queued a bio within the call, and it completed right before the call's end.
    pub with_worker_bio: u64,
    /// Total time of those bios.
    pub worker_bios_ns: u64,
}

#[derive(Clone, Copy)]
struct Done {
    is_read: bool,
    queued: u64,
    completed: u64,
}

pub(crate) struct Unseen {
    under_way: BoundedMap<(Device, u64), (bool, u64)>,
    done: VecDeque<Done>,
    groups: HashMap<(String, String), UnseenCalls>,
    /// Calls without such a bio, where only calls with one are kept.
    elsewhere: HashMap<(String, String), u64>,
    /// Keeps only calls with a bio of a worker: the trace has one device, and a call's file may lie elsewhere.
    pub only_with_bio: bool,
}

/// Whether a bio is a read; `None` where it is neither a read nor a write.
fn is_read(block: &BlockEvent) -> Option<bool> {
    match block.kind() {
        RequestKind::Read => Some(true),
        RequestKind::Write => Some(false),
        _ => None,
    }
}

impl Default for Unseen {
    fn default() -> Unseen {
        let under_way = BoundedMap::new(MAX_UNDER_WAY, Full::Refuse);
        Unseen {
            under_way,
            done: VecDeque::new(),
            groups: HashMap::default(),
            only_with_bio: false,
            elsewhere: Default::default(),
        }
    }
}

impl Unseen {
    /// Bios of this recording end no call of another one.
    pub fn recording_ends(&mut self) {
        self.under_way.clear();
        self.done.clear();
    }

    /// A kernel worker queued a bio.
    pub fn queued(&mut self, block: &BlockEvent, time: TimeNs) {
        if let Some(is_read) = is_read(block) {
            self.under_way.insert((block.device, block.sector), (is_read, time.0));
        }
    }

    pub fn completed(&mut self, block: &BlockEvent, time: TimeNs) {
        if block.action == BlockAction::Complete
            && !self.under_way.is_empty()
            && let Some((is_read, queued)) = self.under_way.remove(&(block.device, block.sector))
            // Clocks of CPUs differ: a completion may be stamped before the bio was queued.
            && queued <= time.0
        {
            if self.done.len() == MAX_DONE {
                self.done.pop_front();
            }
            self.done.push_back(Done { is_read, queued, completed: time.0 });
        }
    }

    /// A call without storage ended.
    pub fn add(&mut self, call: &str, is_read: bool, name: String, begin: u64, end: u64) {
        let mut key = (call.to_owned(), name);
        let known = self.groups.contains_key(&key) || self.elsewhere.contains_key(&key);
        if !known && self.groups.len() + self.elsewhere.len() >= MAX_GROUPS {
            key.1 = "(further ones)".to_owned();
        }
        let of_call = |done: &&Done| {
            let near = done.completed <= end && end - done.completed <= MAX_RETURN_NS;
            done.is_read == is_read && done.queued >= begin && near
        };
        let bio = self.done.iter().rev().find(of_call).map(|done| done.completed - done.queued);
        let bio = bio.filter(|_| !self.is_chance(is_read, begin, end));
        if self.only_with_bio && bio.is_none() {
            *self.elsewhere.entry(key).or_default() += 1;
            return;
        }
        let (call, name) = key.clone();
        let group = self.groups.entry(key).or_insert_with(|| UnseenCalls { call, name, ..UnseenCalls::default() });
        let took = end.saturating_sub(begin);
        group.n += 1;
        group.total_ns = group.total_ns.saturating_add(took);
        group.longest_ns = group.longest_ns.max(took);
        group.with_worker_bio += u64::from(bio.is_some());
        group.worker_bios_ns = group.worker_bios_ns.saturating_add(bio.unwrap_or(0));
    }

    /// Whether so many bios of workers completed within the call that one would be near its end by chance.
    fn is_chance(&self, is_read: bool, begin: u64, end: u64) -> bool {
        // Nothing is known of bios that completed before the kept ones.
        let first = if self.done.len() == MAX_DONE { self.done[0].completed } else { 0 };
        let known = end.saturating_sub(begin.max(first));
        let within = |done: &&Done| done.is_read == is_read && (begin..=end).contains(&done.completed);
        let others = (self.done.iter().filter(within).count() as u64).saturating_sub(1);
        others * MAX_RETURN_NS * 100 > known.saturating_mul(MAX_CHANCE_PERCENT)
    }

    /// Groups with most time first.
    pub fn finish(mut self) -> Vec<UnseenCalls> {
        // Where a comparable number of calls ends without one, the bios are chance.
        self.groups.retain(|key, group| self.elsewhere.get(key).is_none_or(|&n| n * 4 <= group.n));
        let mut groups: Vec<UnseenCalls> = self.groups.into_values().collect();
        groups.sort_by(|a, b| (Reverse(a.total_ns), &a.call, &a.name).cmp(&(Reverse(b.total_ns), &b.call, &b.name)));
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bio_that_completed_before_it_was_queued_is_not_taken() {
        let block = |action| crate::testing::block(action, Device::new(8, 0), "R", 0, 4096);
        let mut unseen = Unseen::default();
        for (queued, completed) in [(60, 40), (70, 90)] {
            unseen.queued(&block(BlockAction::Queue), TimeNs(queued));
            unseen.completed(&block(BlockAction::Complete), TimeNs(completed));
        }
        assert_eq!(unseen.done.iter().map(|done| (done.queued, done.completed)).collect::<Vec<_>>(), [(70, 90)]);
    }

    /// Calls of 20 ms, and so many bios of workers within each, the last one right before its end.
    fn with_worker_bio(bios: u64) -> u64 {
        let mut unseen = Unseen::default();
        for call in 0..20 {
            let begin = call * 20_000_000;
            for bio in 1..=bios {
                let completed = begin + bio * 20_000_000 / bios - 50_000;
                unseen.done.push_back(Done { is_read: true, queued: completed - 40_000, completed });
                if unseen.done.len() > MAX_DONE {
                    unseen.done.pop_front();
                }
            }
            unseen.add("read", true, "reader (7)".to_owned(), begin, begin + 20_000_000);
        }
        unseen.finish()[0].with_worker_bio
    }

    #[test]
    fn of_a_recording_of_one_device_calls_elsewhere_are_counted_as_well() {
        for (elsewhere, told) in [(5, 1), (6, 0), (60, 0)] {
            let mut unseen = Unseen { only_with_bio: true, ..Unseen::default() };
            for call in 0..20 + elsewhere {
                let (begin, end) = (call * 20_000_000, call * 20_000_000 + 19_000_000);
                if call < 20 {
                    unseen.done.push_back(Done { is_read: true, queued: end - 90_000, completed: end - 50_000 });
                }
                unseen.add("read", true, "reader (7)".to_owned(), begin, end);
            }
            assert_eq!(unseen.finish().len(), told, "{elsewhere}");
        }
    }

    #[test]
    fn a_worker_that_reads_all_the_time_tells_nothing_of_a_call() {
        // A limit of 50 reads a second, and of several programs that share it.
        assert_eq!((with_worker_bio(1), with_worker_bio(5)), (20, 20));
        // A loop device beside a program that waits at a pipe; beyond what is kept, too.
        assert_eq!((with_worker_bio(20), with_worker_bio(200)), (0, 0));
    }
}
