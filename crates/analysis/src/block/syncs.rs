//! Waits of `fsync` and similar calls: the task's own data, the journal, the device's flushes.
//!
//! A call begins and ends with its system call's events, or with the file system's own (`ext4_sync_file_enter`). Each moment
//! of it belongs to a flush in the device, else to a bio of the journal, else to a bio that the task itself queued. For `sync`, which
//! writes the changes of all programs, it belongs to any bio that writes. The rest is time of the processor, of locks and of other
//! threads. Only bios that completed before the call returned count.

use super::counts::Unit;
use super::in_flight::{Bio, NEVER};
use super::lacks::{Lacks, known};
use super::watch::Watch;
use crate::evidence::{Evidence, Unknown};
use crate::latency::{LatencyHistogram, LatencyNs};
use flashscope_trace::{BlockAction, BlockEvent, Device, RequestFlags, RequestKind, TaskId};
use foldhash::{HashMap, HashSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Most calls in the list: the longest ones.
const MAX_LISTED: usize = 64;
/// Most tasks whose calls are counted separately; further ones share one row.
const MAX_TASKS: usize = 4096;
/// Most calls at one time, and most owners of journals; below: most bios of one call.
const MAX_OPEN: usize = 4096;
const MAX_WAITS: usize = 4096;
/// Most writes of metadata that a later write of the same block is compared with.
const MAX_PAST: usize = 256;

/// The kind of I/O that a call waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncWait {
    Data,
    Journal,
    Flush,
}

/// The bio that a call waited longest for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct LongestWait {
    pub how: SyncWait,
    pub device: String,
    pub sector: u64,
    pub bytes: u64,
    /// Letters of RWBS.
    pub flags: String,
    pub queued_ns: u64,
    pub q2c_ns: u64,
    /// Time in the device; `null` where its issue is not in the trace.
    pub d2c_ns: Option<u64>,
}

/// Nanoseconds of a call, or of all calls, by the kind of wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct SyncTimes {
    pub data_ns: u64,
    /// Flushes that the trace does not show separately are in the bios that requested them.
    pub journal_ns: u64,
    pub flush_ns: Evidence<u64>,
    pub rest_ns: u64,
    pub longest: Option<LongestWait>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct SyncCall {
    /// `fsync`, `ext4_sync_file`, …
    pub call: String,
    /// Number among all calls in the trace, from 1, by begin.
    pub number: u64,
    pub task: String,
    pub begin_ns: u64,
    pub duration_ns: u64,
    pub waits: Evidence<SyncTimes>,
}

/// Number of calls of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct SyncTask {
    pub task: String,
    pub calls: u64,
}

/// All calls that began and ended in the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct SyncsFound {
    pub durations: LatencyNs,
    /// Sums of all calls; unknown where there are none, or where the trace does not show the bios that they waited for.
    pub data_ns: Evidence<u64>,
    pub journal_ns: Evidence<u64>,
    pub flush_ns: Evidence<u64>,
    pub rest_ns: Evidence<u64>,
    /// Tasks with most calls first.
    #[serde(default)]
    pub by_task: Vec<SyncTask>,
    /// The longest first.
    pub calls: Vec<SyncCall>,
}

#[derive(Clone, Copy)]
struct Span {
    from: u64,
    to: u64,
    how: SyncWait,
}

struct Open {
    name: String,
    number: u64,
    owner: u32,
    begin: u64,
    spans: Vec<Span>,
    longest: Option<(SyncWait, Bio, u64)>,
}

impl Open {
    /// A wait that begins where the last one of its kind ended extends that one.
    fn wait(&mut self, span: Span) {
        let mut last = self.spans.iter_mut().rev().take(3);
        if let Some(last) = last.find(|last| last.how == span.how && span.from <= last.to) {
            (last.from, last.to) = (last.from.min(span.from), last.to.max(span.to));
        } else if self.spans.len() < MAX_WAITS {
            self.spans.push(span);
        }
    }
}

/// A write of metadata that ended while a call was open.
struct Past {
    device: u16,
    sectors: (u64, u64),
    tid: TaskId,
    queued: u64,
    completed: u64,
}

struct Closed {
    open: Open,
    duration: u64,
    /// Data, journal, flush.
    times: [u64; 3],
}

#[derive(Default)]
pub(super) struct Syncs {
    open: HashMap<TaskId, Open>,
    journals: HashSet<u32>,
    begun: u64,
    /// Flushes were seen; below: bios that request one were seen.
    flushes: bool,
    bios_flush: bool,
    /// Devices that were issued a write with FUA: they need no flush after it (`blk_flush_policy` in block/blk-flush.c).
    keep_fua: HashSet<u16>,
    /// The last [`MAX_PAST`] of them.
    past: VecDeque<Past>,
    durations: LatencyHistogram,
    times: [u64; 3],
    /// Calls by owner; below: those of further owners.
    counts: HashMap<u32, u64>,
    further: u64,
    closed: Vec<Closed>,
}

/// The call of an event's name, and whether the event is its begin.
fn call(name: &str) -> Option<(&str, bool)> {
    if let Some(call) = name.strip_prefix("sys_enter_") {
        return is_sync(call).then_some((call, true));
    }
    if let Some(call) = name.strip_prefix("sys_exit_") {
        return is_sync(call).then_some((call, false));
    }
    match name.strip_suffix("_enter") {
        Some(call) => call.ends_with("_sync_file").then_some((call, true)),
        None => name.strip_suffix("_exit").filter(|call| call.ends_with("_sync_file")).map(|call| (call, false)),
    }
}

fn is_sync(call: &str) -> bool {
    matches!(call, "fsync" | "fdatasync" | "sync" | "syncfs" | "msync" | "sync_file_range")
}

/// Whether an event of this name begins a call of `fsync` or similar.
pub fn begins_sync(name: &str) -> bool {
    call(name).is_some_and(|(_, begins)| begins)
}

impl Syncs {
    /// Whether a call is open, so that bios of a journal matter.
    pub fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Bios of this owner are the file system's own, whichever thread carries them.
    pub fn is_journal(&mut self, owner: u32) {
        if self.journals.len() < MAX_OPEN {
            self.journals.insert(owner);
        }
    }

    /// Takes an event of any name; `owner` returns the number of its task, if that task's calls are shown.
    pub fn event(&mut self, name: &str, tid: TaskId, now: u64, owner: impl FnOnce() -> Option<u32>) {
        let Some((call, begins)) = call(name) else { return };
        if begins {
            // The file system's own call is within the system call.
            if self.open.len() < MAX_OPEN && !self.open.contains_key(&tid) {
                self.begun += 1;
                let Some(owner) = owner() else { return };
                let name = call.to_owned();
                let open = Open { name, number: self.begun, owner, begin: now, spans: Vec::new(), longest: None };
                self.open.insert(tid, open);
            }
        } else if self.open.get(&tid).is_some_and(|open| open.name == call)
            && let Some(open) = self.open.remove(&tid)
        {
            self.close(open, now);
        }
    }

    fn close(&mut self, open: Open, now: u64) {
        let duration = now.saturating_sub(open.begin);
        self.durations.add(duration);
        match self.counts.len() < MAX_TASKS || self.counts.contains_key(&open.owner) {
            true => *self.counts.entry(open.owner).or_default() += 1,
            false => self.further += 1,
        }
        let times = shares(&open.spans);
        for (sum, time) in self.times.iter_mut().zip(times) {
            *sum += time;
        }
        self.closed.push(Closed { open, duration, times });
        if self.closed.len() > 2 * MAX_LISTED {
            self.keep_longest();
        }
    }

    fn keep_longest(&mut self) {
        self.closed.sort_by_key(|one| (std::cmp::Reverse(one.duration), one.open.number));
        self.closed.truncate(MAX_LISTED);
    }

    /// Time of flushes; unknown where bios request flushes and the trace shows none.
    fn flush_time(&self, ns: u64) -> Evidence<u64> {
        if self.flushes || !self.bios_flush {
            return ns.into();
        }
        Evidence::unknown(
            "the trace shows no flush request: flushes are in the times of the bios that requested them",
            "record all events of the block group, on a kernel that traces flushes",
        )
    }

    pub fn finish(
        mut self,
        unit: Unit,
        lacks: &Lacks,
        devices: &[Device],
        owner: impl Fn(u32) -> String,
    ) -> SyncsFound {
        self.keep_longest();
        let queueing = (unit == Unit::Request).then(|| {
            Unknown::new(
                "the trace lacks block_bio_queue, so the requests that a call waited for are unknown",
                "record block:block_bio_queue too",
            )
        });
        let none = (self.durations.finish().n == 0)
            .then(|| Unknown::new("no call of fsync or similar began and ended in the trace", ""));
        let bios = [&queueing, &lacks.completions, &lacks.ends, &lacks.files];
        let of_all = |ns: Evidence<u64>| match known((), &[&[&none], &bios[..]].concat()) {
            Evidence::Known(()) => ns,
            Evidence::Unknown(why) => Evidence::Unknown(why),
        };
        let calls = self.closed.iter().map(|one| SyncCall {
            call: one.open.name.clone(),
            number: one.open.number,
            task: owner(one.open.owner),
            begin_ns: one.open.begin,
            duration_ns: one.duration,
            waits: known((), &bios).map(|()| one.waits(devices, |ns| self.flush_time(ns))),
        });
        let [data_ns, journal_ns, flush_ns] = self.times;
        let durations = self.durations.finish();
        let all = self.durations.total_ns();
        let mut by_task: Vec<SyncTask> =
            self.counts.iter().map(|(&one, &calls)| SyncTask { task: owner(one), calls }).collect();
        by_task.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.task.cmp(&b.task)));
        if self.further > 0 {
            by_task.push(SyncTask { task: "(further tasks)".to_owned(), calls: self.further });
        }
        SyncsFound {
            durations,
            data_ns: of_all(data_ns.into()),
            journal_ns: of_all(journal_ns.into()),
            flush_ns: of_all(self.flush_time(flush_ns)),
            rest_ns: of_all(all.saturating_sub(data_ns + journal_ns + flush_ns).into()),
            by_task,
            calls: calls.collect(),
        }
    }
}

impl Closed {
    fn waits(&self, devices: &[Device], flush_time: impl Fn(u64) -> Evidence<u64>) -> SyncTimes {
        let [data_ns, journal_ns, flush_ns] = self.times;
        let longest = self.open.longest.as_ref().map(|(how, bio, completed)| LongestWait {
            how: *how,
            device: devices[usize::from(bio.device)].to_string(),
            sector: if bio.kind == RequestKind::Flush { 0 } else { bio.sector },
            bytes: bio.whole_bytes(),
            flags: bio.flags.to_string(),
            queued_ns: bio.queued,
            q2c_ns: completed.saturating_sub(bio.queued),
            d2c_ns: (bio.issued != NEVER).then(|| completed.saturating_sub(bio.issued)),
        });
        let rest_ns = self.duration.saturating_sub(data_ns + journal_ns + flush_ns);
        SyncTimes { data_ns, journal_ns, flush_ns: flush_time(flush_ns), rest_ns, longest }
    }
}

/// Time under each kind of wait, each moment once: a flush counts before the journal, the journal before data.
fn shares(spans: &[Span]) -> [u64; 3] {
    let mut edges: Vec<u64> = spans.iter().flat_map(|span| [span.from, span.to]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut sums = [0; 3];
    let mut last: Vec<Span> = spans.to_vec();
    last.sort_by_key(|span| span.from);
    let (mut next, mut here): (usize, Vec<Span>) = (0, Vec::new());
    for pair in edges.windows(2) {
        here.retain(|span| span.to > pair[0]);
        while let Some(span) = last.get(next).filter(|span| span.from <= pair[0]) {
            here.push(*span);
            next += 1;
        }
        if let Some(how) = here.iter().filter(|span| span.to > pair[0]).map(|span| span.how).max() {
            sums[how as usize] += pair[1] - pair[0];
        }
    }
    sums
}

impl Watch for Syncs {
    fn begins_again(&mut self) {
        self.open.clear();
        self.past.clear();
    }

    #[inline(always)]
    fn event(&mut self, device: u16, block: &BlockEvent, _now: u64, _shown: bool) {
        if block.action == BlockAction::Issue && block.flags.has(RequestFlags::FUA) {
            self.keep_fua.insert(device);
        }
    }

    #[inline(always)]
    fn ended(&mut self, _at: u32, bio: &Bio, completed: u64) {
        if !self.open.is_empty() && completed != NEVER {
            self.waited(bio, completed);
        }
    }
}

impl Syncs {
    /// A block of metadata is locked while it is written: a call that writes it again waits for the other's write first
    /// (`lock_buffer` in `__sync_dirty_buffer`, fs/buffer.c).
    fn metadata(&mut self, bio: &Bio, completed: u64) {
        let sectors = (bio.sector, bio.sector.saturating_add(bio.whole_bytes() / 512));
        if let Some(open) = self.open.get_mut(&bio.tid) {
            let same = |past: &&Past| {
                past.device == bio.device
                    && past.sectors.0 < sectors.1
                    && sectors.0 < past.sectors.1
                    && past.tid != bio.tid
            };
            for past in self.past.iter().filter(same).filter(|past| past.completed <= bio.queued) {
                let from = past.queued.max(open.begin);
                if from < past.completed {
                    open.wait(Span { from, to: past.completed, how: SyncWait::Data });
                }
            }
        }
        if self.past.len() == MAX_PAST {
            self.past.pop_front();
        }
        self.past.push_back(Past { device: bio.device, sectors, tid: bio.tid, queued: bio.queued, completed });
    }

    #[cold]
    fn waited(&mut self, bio: &Bio, completed: u64) {
        let from = if bio.is_request() { bio.issued } else { bio.queued };
        let journal = self.journals.contains(&bio.owner);
        let writes = bio.flags.has(RequestFlags::WRITE);
        self.flushes |= bio.kind == RequestKind::Flush;
        let flushes_behind = bio.flags.has(RequestFlags::FUA) && !self.keep_fua.contains(&bio.device);
        self.bios_flush |= bio.flags.has(RequestFlags::FLUSH) || flushes_behind;
        if writes && bio.flags.has(RequestFlags::META) && !bio.is_request() {
            self.metadata(bio, completed);
        }
        for (tid, open) in &mut self.open {
            let how = match bio.kind {
                RequestKind::Flush => SyncWait::Flush,
                _ if bio.is_request() => continue,
                _ if bio.tid == *tid => SyncWait::Data,
                _ if journal => SyncWait::Journal,
                _ if open.name == "sync" && writes => SyncWait::Data,
                _ => continue,
            };
            // Clocks of CPUs differ: a completion may be stamped before the bio was queued.
            let from = from.max(open.begin);
            if completed <= from {
                continue;
            }
            open.wait(Span { from, to: completed, how });
            let longest = open.longest.as_ref().map_or(0, |(_, bio, completed)| completed - bio.queued.max(open.begin));
            if !bio.is_request() && completed - from > longest {
                open.longest = Some((how, *bio, completed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_flight::InFlight;
    use super::*;

    #[test]
    fn no_moment_is_waited_twice() {
        let span = |from, to, how| Span { from, to, how };
        use SyncWait::*;
        assert_eq!(shares(&[]), [0; 3]);
        let spans =
            [span(0, 10, Data), span(5, 30, Journal), span(8, 12, Flush), span(8, 9, Flush), span(40, 50, Data)];
        assert_eq!(shares(&spans), [15, 21, 4]);
    }

    #[test]
    fn waits_that_meet_are_one() {
        let span = |from, to, how| Span { from, to, how };
        use SyncWait::*;
        let mut open = Open { name: "sync".into(), number: 1, owner: 0, begin: 0, spans: Vec::new(), longest: None };
        (0..2 * MAX_WAITS as u64).for_each(|n| open.wait(span(10 * n, 10 * n + 12, Data)));
        open.wait(span(5, 8, Flush));
        assert_eq!((open.spans.len(), shares(&open.spans)), (2, [20 * MAX_WAITS as u64 - 1, 0, 3]));
    }

    #[test]
    fn sync_waits_for_the_writes_of_others_and_fsync_does_not() {
        for (call, data) in [("sync", 50), ("fsync", 0)] {
            let mut syncs = Syncs::default();
            syncs.event(&format!("sys_enter_{call}"), TaskId(7), 0, || Some(1));
            for (letters, kind, queued, completed) in
                [(b"W", RequestKind::Write, 10, 60), (b"R", RequestKind::Read, 70, 90)]
            {
                let flags = RequestFlags::from_letters(letters);
                syncs.ended(1, &InFlight::bio(0, (flags, kind), 8, 8, (2, TaskId(9)), queued), completed);
            }
            syncs.event(&format!("sys_exit_{call}"), TaskId(7), 100, || Some(1));
            assert_eq!(syncs.times, [data, 0, 0], "{call}");
        }
    }

    /// Clocks of CPUs differ.
    #[test]
    fn a_bio_that_completed_before_it_was_queued_is_no_wait() {
        let mut syncs = Syncs::default();
        syncs.event("sys_enter_fsync", TaskId(7), 10, || Some(1));
        let flags = RequestFlags::from_letters(b"W");
        for (queued, completed) in [(60, 40), (NEVER, 50), (70, 90)] {
            let bio = InFlight::bio(0, (flags, RequestKind::Write), 8, 8, (2, TaskId(7)), queued);
            syncs.ended(1, &bio, completed);
        }
        syncs.event("sys_exit_fsync", TaskId(7), 100, || Some(1));
        assert_eq!(syncs.times, [20, 0, 0]);
    }

    /// A worker of the kernel wrote the block of inodes from 20 to 80; the call writes it again from 85 to 90.
    #[test]
    fn a_block_of_metadata_that_another_writes_first_is_waited_for() {
        for (flags, sector, data) in [(&b"WM"[..], 8, 65), (b"W", 8, 5), (b"WM", 16, 5)] {
            let mut syncs = Syncs::default();
            syncs.event("sys_enter_fsync", TaskId(7), 10, || Some(1));
            let of = |flags, sector, tid, queued| {
                InFlight::bio(
                    0,
                    (RequestFlags::from_letters(flags), RequestKind::Write),
                    sector,
                    8,
                    (2, TaskId(tid)),
                    queued,
                )
            };
            syncs.ended(1, &of(flags, sector, 9, 20), 80);
            syncs.ended(1, &of(b"WSM", 8, 7, 85), 90);
            syncs.event("sys_exit_fsync", TaskId(7), 100, || Some(1));
            assert_eq!(syncs.times, [data, 0, 0], "{flags:?} {sector}");
        }
    }

    #[test]
    fn calls_by_their_events() {
        assert_eq!(call("sys_enter_fdatasync"), Some(("fdatasync", true)));
        assert_eq!(call("sys_exit_fsync"), Some(("fsync", false)));
        assert_eq!(call("ext4_sync_file_enter"), Some(("ext4_sync_file", true)));
        assert_eq!(call("f2fs_sync_file_exit"), Some(("f2fs_sync_file", false)));
        assert_eq!([call("sys_enter_read"), call("ext4_da_write_enter"), call("")], [None; 3]);
    }
}
