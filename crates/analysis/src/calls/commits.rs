//! Commits that a sync waits for: `fsync` of a directory, or of a file whose data is written, may queue no bio itself.
//!
//! Input: bios of the file system's own threads, and completions. A sync counts as one of the recorded device if such a bio was queued
//! within the call, and it, or a flush of its device after it, completed right before the call's end. No event links the two. `sync`
//! goes on to other file systems, so it may end later. Another sync waits for the commit under way and its own at most: one within
//! which more commits end waits for another device.

use super::unseen::MAX_RETURN_NS;
use crate::bounded::{BoundedMap, Full};
use flashscope_trace::{BlockEvent, Device, TaskId, TimeNs};

/// Most bios of journals in flight; below: most devices with a commit.
const MAX_UNDER_WAY: usize = 1 << 10;
const MAX_DEVICES: usize = 1 << 8;
/// Commits that end within a sync of the same journal: the one under way, its own, and one more where it returns late.
const MAX_WITHIN: usize = 3;

#[derive(Clone, Copy)]
struct Done {
    /// The journal's thread.
    tid: TaskId,
    queued: u64,
    completed: u64,
}

pub(crate) struct Commits {
    /// Who queued them and when, by device and sector.
    under_way: BoundedMap<(Device, u64), (TaskId, u64)>,
    /// The last commit of each device.
    last: BoundedMap<Device, Done>,
    /// By journal's thread: ends of its latest commits, the latest first; 0 before there were so many.
    ends: BoundedMap<TaskId, [u64; MAX_WITHIN + 1]>,
}

impl Default for Commits {
    fn default() -> Commits {
        Commits {
            under_way: BoundedMap::new(MAX_UNDER_WAY, Full::ForgetOldest),
            last: BoundedMap::new(MAX_DEVICES, Full::ForgetOldest),
            ends: BoundedMap::new(MAX_DEVICES, Full::ForgetOldest),
        }
    }
}

impl Commits {
    /// A journal's thread queued a bio.
    pub fn queued(&mut self, block: &BlockEvent, tid: TaskId, time: TimeNs) {
        self.under_way.insert((block.device, block.sector), (tid, time.0));
    }

    pub fn completed(&mut self, block: &BlockEvent, time: TimeNs) {
        if let Some((tid, queued)) = self.under_way.remove(&(block.device, block.sector)) {
            self.last.insert(block.device, Done { tid, queued, completed: time.0 });
        } else if block.bytes == 0
            && let Some(last) = self.last.get_mut(&block.device)
        {
            // The flush after the commit's record.
            last.completed = time.0;
        }
    }

    /// `jbd2_end_commit`: on busy processors the journal's thread goes on long after its last bio. The journals of other devices have
    /// threads of their own.
    pub fn ended(&mut self, tid: TaskId, time: TimeNs) {
        if let Some(ends) = self.ends.entry(tid, Default::default) {
            ends.rotate_right(1);
            ends[0] = time.0;
        }
        let devices: Vec<Device> =
            self.last.iter().filter(|(_, last)| last.tid == tid).map(|(device, _)| *device).collect();
        for device in devices {
            if let Some(last) = self.last.get_mut(&device) {
                last.completed = time.0;
            }
        }
    }

    /// Whether a call that syncs waited for a commit.
    pub fn is_awaited(&self, call: &str, begin: u64, end: u64) -> bool {
        let is_of_other = |tid| self.ends.get(&tid).is_some_and(|ends| ends[MAX_WITHIN] > begin);
        let near = |last: &Done| {
            let returns = || end - last.completed <= MAX_RETURN_NS && !is_of_other(last.tid);
            last.completed <= end && (call == "sync" || returns())
        };
        self.last.iter().any(|(_, last)| last.queued >= begin && near(last))
    }
}

#[cfg(test)]
mod tests {
    use crate::Analysis as _;
    use crate::calls::Calls;
    use crate::testing::{block, call, event};
    use flashscope_trace::BlockAction::{Complete, Queue};
    use flashscope_trace::{BlockAction, Device, EventKind, TaskId};

    const MS: u64 = 1_000_000;

    /// `fsync` of a directory: the journal's thread writes the commit, and a flush follows.
    /// The journals of two devices commit at once: each sync waits for its own, and ends right after it.
    #[test]
    fn commits_of_two_devices_are_followed_side_by_side() {
        let bio = |action: BlockAction, device, sector| {
            EventKind::Block(block(action, Device::new(7, device), "WFS", sector, 1024))
        };
        let events = [
            (MS, 7, call("sys_enter_fsync", None)),
            (MS, 8, call("sys_enter_fsync", None)),
            (2 * MS, 9, bio(Queue, 0, 800)),
            (2 * MS, 10, bio(Queue, 1, 800)),
            (5 * MS, 0, bio(Complete, 0, 800)),
            (5 * MS + 1, 0, bio(Complete, 1, 800)),
            // The first journal's thread waits for a processor.
            (20 * MS, 9, call("jbd2_end_commit", None)),
            (20 * MS + 1, 7, call("sys_exit_fsync", Some(0))),
            (30 * MS, 10, call("jbd2_end_commit", None)),
            (30 * MS + 1, 8, call("sys_exit_fsync", Some(0))),
        ];
        let journal = |tid: TaskId, _| Some(["sync", "jbd2/loop0-8"][usize::from(tid.0 > 8)]);
        let mut calls = Calls::new(journal).of_device(true);
        events.iter().for_each(|(time, tid, kind)| calls.event(&event(*time, *tid, kind.clone())));
        let found = calls.finish();
        let times: Vec<_> = found.by_process.iter().map(|group| (group.name.as_str(), group.total_ns)).collect();
        assert_eq!(times, [("sync (8)", 29 * MS + 1), ("sync (7)", 19 * MS + 1)]);
        assert_eq!(found.not_of_device, Some(0));
    }

    #[test]
    fn a_sync_that_waits_for_a_commit_is_one_of_the_device() {
        let bio = |action: BlockAction, sector, bytes| {
            EventKind::Block(block(action, Device::new(7, 0), "WFS", sector, bytes))
        };
        let events = [
            (MS, 7, call("sys_enter_fsync", None)),
            (MS, 8, call("sys_enter_fsync", None)),
            (MS, 10, call("sys_enter_openat", None)),
            (MS, 13, call("sys_enter_sync", None)),
            (2 * MS, 9, bio(Queue, 800, 1024)),
            (3 * MS, 0, bio(Complete, 800, 1024)),
            // It begins after the commit.
            (4 * MS, 11, call("sys_enter_fsync", None)),
            (8 * MS, 0, bio(Complete, 0, 0)),
            (8 * MS + MS / 2, 7, call("sys_exit_fsync", Some(0))),
            (8 * MS + MS / 2, 10, call("sys_exit_openat", Some(3))),
            (8 * MS + MS / 2, 11, call("sys_exit_fsync", Some(0))),
            (10 * MS, 12, call("sys_enter_sync", None)),
            (12 * MS, 12, call("sys_exit_sync", Some(0))),
            // They end long after: `fsync` is of another device.
            (12 * MS, 8, call("sys_exit_fsync", Some(0))),
            (12 * MS, 13, call("sys_exit_sync", Some(0))),
            // The journal's thread waits for a processor.
            (20 * MS, 14, call("sys_enter_fsync", None)),
            (21 * MS, 9, bio(Queue, 900, 1024)),
            (22 * MS, 0, bio(Complete, 900, 1024)),
            (29 * MS, 9, call("jbd2_end_commit", None)),
            (29 * MS + MS / 4, 14, call("sys_exit_fsync", Some(0))),
            // A commit of another device ends.
            (30 * MS, 15, call("sys_enter_fsync", None)),
            (31 * MS, 9, bio(Queue, 900, 1024)),
            (32 * MS, 0, bio(Complete, 900, 1024)),
            (39 * MS, 16, call("jbd2_end_commit", None)),
            (39 * MS + MS / 4, 15, call("sys_exit_fsync", Some(0))),
        ];
        let of = |journal: &'static str| {
            let mut calls = Calls::new(|tid, _| Some(if tid == TaskId(9) { journal } else { "sync" })).of_device(true);
            events.iter().for_each(|(time, tid, kind)| calls.event(&event(*time, *tid, kind.clone())));
            let found = calls.finish();
            let times: Vec<_> = found.by_process.iter().map(|group| (group.name.clone(), group.total_ns)).collect();
            (times, found.not_of_device, found.not_of_device_syncs)
        };
        let waited = [("sync (13)", 11 * MS), ("sync (14)", 9 * MS + MS / 4), ("sync (7)", 7 * MS + MS / 2)];
        let waited = waited.map(|(name, ns)| (name.to_owned(), ns));
        assert_eq!(of("jbd2/loop0-8"), (waited.into(), Some(5), Some(4)));
        assert_eq!(of("dd"), (Vec::new(), Some(8), Some(7)));
    }

    /// A journal commits every 4 ms. A sync of another device takes 33 ms, and ends by chance right after one of these commits.
    #[test]
    fn a_sync_within_which_many_commits_end_is_of_another_device() {
        let of = |begin: u64| {
            let mut calls = Calls::new(|tid, _| Some(["dd", "jbd2/loop0-8"][usize::from(tid == TaskId(9))]));
            calls = calls.of_device(true);
            let mut step = |time, tid, kind| calls.event(&event(time, tid, kind));
            let bio =
                |action: BlockAction, sector| EventKind::Block(block(action, Device::new(7, 0), "WFS", sector, 1024));
            for commit in 0..10 {
                let at = commit * 4 * MS;
                if at == begin {
                    step(at, 7, call("sys_enter_fsync", None));
                }
                step(at + MS, 9, bio(Queue, 800 + commit));
                step(at + 3 * MS, 0, bio(Complete, 800 + commit));
                step(at + 3 * MS, 9, call("jbd2_end_commit", None));
            }
            step(39 * MS + MS / 2, 7, call("sys_exit_fsync", Some(0)));
            calls.finish().not_of_device_syncs
        };
        assert_eq!((of(4 * MS), of(32 * MS)), (Some(1), Some(0)));
    }
}
