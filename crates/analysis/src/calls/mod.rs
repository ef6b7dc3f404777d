//! Durations of calls by process and by file: reads, writes, syncs, opens, removals, renames, and faults of mapped files.
//!
//! A call begins with `sys_enter_NAME` and ends with `sys_exit_NAME` of its thread; a fault with the probes `file_fault` and
//! `file_fault_end` of flashscope. A read or write counts if it touches storage: its thread has a file event of the page cache, a bio
//! or a flash operation within it. Calls on pipes and sockets have none, and are counted separately. A call's file is that of its
//! first file event. `unseen` keeps long calls that touch no storage.

mod commits;
mod former;
mod found;
mod kinds;
mod refused;
mod sums;
mod unseen;

use crate::kernel_threads::{home, is_worker};
use crate::{Analysis, Lookup, Named, clip, split_task_label, task_label};
use commits::Commits;
use flashscope_trace::{
    BlockAction, BlockEvent, Event, EventKind, FileEvent, FileId, FileNames, FileStep, Layer, TaskId, TimeNs,
};
use foldhash::{HashMap, HashMapExt as _};
use former::Former;
use kinds::{followed, may_be_elsewhere, submits};
use refused::{Refused, no_room};
use std::cmp::Reverse;
use sums::{Key, MAX_GROUPS, Sums};
use unseen::{MIN_LONG_NS, Unseen};

pub use crate::bounded::FURTHER;
pub use former::FormerCalls;
pub use found::{AsynchronousCalls, CallsFound, SlowCall};
pub use kinds::{FAULT, is_at_offset, is_copy, is_read, is_sync, is_write, opens, syncs_or_renames};
pub use refused::RefusedCalls;
pub use sums::CallGroup;
pub use unseen::UnseenCalls;

/// Most calls in the list of the slowest ones.
const MAX_LISTED: usize = 64;
/// Most threads that are in a call at one time.
const MAX_OPEN: usize = 1 << 14;

struct Open {
    name: String,
    number: u64,
    begin: u64,
    counts: bool,
    file: Option<FileId>,
    /// The file's path, where several files had its inode number in turn.
    path: Option<String>,
    read_bytes: u64,
    written_bytes: u64,
    /// The written file, with the range of bytes counted so far.
    written: Option<(FileId, u64, u64)>,
    touched: bool,
    bios: u64,
}

impl Open {
    /// The bytes requested. A copy reads as many as it writes, and counts them once.
    fn bytes(&self) -> u64 {
        self.read_bytes.max(self.written_bytes)
    }

    /// Sets the bytes from the return value, where the events have whole pages, as those of a copy, or show no read or write, as with
    /// O_DIRECT, btrfs, and reads on kernels whose events do not show them. Otherwise the events know more: which of the bytes belong to a file.
    fn returns(&mut self, result: Option<i64>) {
        let Some(bytes) = result.and_then(|n| u64::try_from(n).ok()) else { return };
        if is_copy(&self.name) {
            (self.read_bytes, self.written_bytes) = (bytes, bytes);
        } else if is_write(&self.name) && self.written_bytes == 0 {
            self.written_bytes = bytes;
        } else if is_read(&self.name) && self.read_bytes == 0 {
            self.read_bytes = bytes;
        }
    }

    /// Two events may report one write: the probe of flashscope, and the file system's event when it takes a page
    /// (`ext4_da_write_begin`). Bytes within the range counted so far are not counted again.
    fn writes(&mut self, event: &FileEvent) {
        let (begin, end) = (event.offset, event.offset.saturating_add(event.bytes));
        let id = FileId { device: event.device, inode: event.inode };
        let (from, to) = match self.written {
            Some((file, from, to)) if file == id && (from..=to).contains(&begin) => (from, to),
            _ => (begin, begin),
        };
        self.written_bytes = self.written_bytes.saturating_add(end.saturating_sub(to));
        self.written = Some((id, from, to.max(end)));
    }
}

struct Listed {
    open: Open,
    tid: TaskId,
    task: String,
    duration: u64,
}

impl Listed {
    fn call(&self) -> SlowCall {
        SlowCall {
            number: self.open.number,
            call: self.open.name.clone(),
            task: self.task.clone(),
            tid: self.tid,
            begin_ns: self.open.begin,
            duration_ns: self.duration,
            file: self.open.file.as_ref().map(FileId::to_string),
            path: self.open.path.clone(),
            bytes: self.open.bytes(),
        }
    }
}

/// Follows calls. `lookup` returns a thread's name at a time.
pub struct Calls<L> {
    lookup: L,
    only: Option<String>,
    reused: FileNames,
    /// The recording has only the events of some devices.
    is_of_device: bool,
    /// Whether calls that begin now are shown.
    pub counts: bool,
    open: HashMap<TaskId, Open>,
    faults: HashMap<TaskId, Open>,
    most_open: usize,
    not_followed: u64,
    begun: u64,
    by_call: Sums,
    by_process: Sums,
    former: Former,
    by_file: Sums,
    listed: Vec<Listed>,
    without_storage: u64,
    unseen: Unseen,
    commits: Commits,
    not_of_device: u64,
    not_of_device_syncs: u64,
    asynchronous: HashMap<(String, String), u64>,
    refused: Refused,
    sync_bios: HashMap<String, u64>,
    cut: u64,
    number: Option<u64>,
    wanted: Option<SlowCall>,
    each: Option<Each>,
}

/// Receives every counted call when it ends.
pub type Each = Box<dyn FnMut(SlowCall)>;

impl<L: Lookup<Name: Named>> Calls<L> {
    pub fn new(lookup: L) -> Self {
        Calls {
            lookup,
            only: None,
            reused: FileNames::default(),
            is_of_device: false,
            counts: true,
            open: HashMap::new(),
            faults: HashMap::new(),
            most_open: MAX_OPEN,
            not_followed: 0,
            begun: 0,
            by_call: Sums::default(),
            by_process: Sums::default(),
            former: Former::default(),
            by_file: Sums::default(),
            listed: Vec::new(),
            without_storage: 0,
            unseen: Unseen::default(),
            commits: Commits::default(),
            not_of_device: 0,
            not_of_device_syncs: 0,
            asynchronous: HashMap::new(),
            sync_bios: HashMap::new(),
            refused: Refused::default(),
            cut: 0,
            number: None,
            wanted: None,
            each: None,
        }
    }

    /// Keeps the call with this number, even if it is short.
    pub fn wanted(mut self, number: u64) -> Self {
        self.number = Some(number);
        self
    }

    /// Distinguishes files that had one inode number in turn.
    pub fn files(mut self, files: &FileNames) -> Self {
        self.reused = files.reused();
        self
    }

    /// Also passes every call to `each`.
    pub fn each(mut self, each: Each) -> Self {
        self.each = Some(each);
        self
    }

    /// Where the recording is `of_device`: counts only calls with an event of the recorded device.
    pub fn of_device(mut self, of_device: bool) -> Self {
        self.is_of_device = of_device;
        self.unseen.only_with_bio = of_device;
        self
    }

    /// Counts only calls of processes with this name.
    pub fn only(mut self, process: Option<&str>) -> Self {
        self.only = process.map(str::to_owned);
        self
    }

    /// `NAME (THREAD)`; `None`: calls of this process are not shown.
    fn task(&mut self, tid: TaskId, time: TimeNs) -> Option<String> {
        self.task_and_former(tid, time).map(|(task, _)| task)
    }

    /// The same with its name at this time, where it has another one later.
    fn task_and_former(&mut self, tid: TaskId, time: TimeNs) -> Option<(String, Option<String>)> {
        let named = (self.lookup)(tid, time);
        let name = named.as_ref().map(Named::name);
        if self.only.is_some() && self.only.as_deref() != name {
            return None;
        }
        let (Some(name), Some(named)) = (name, &named) else { return Some((format!("tid {tid}"), None)) };
        // The user may have requested it by its label.
        let is_label = self.only.is_some() && split_task_label(name).is_some_and(|(_, number, _)| number == tid);
        let task = if is_label { name.to_owned() } else { task_label(clip::clip(name), tid, named.ordinal()) };
        Some((task, named.former_name().map(|former| clip::clip(former).to_owned())))
    }

    fn block(&mut self, block: &BlockEvent, tid: TaskId, time: TimeNs) {
        match block.action {
            BlockAction::Queue if self.open.is_empty() && self.faults.is_empty() => {}
            BlockAction::Queue if self.open.contains_key(&tid) || self.faults.contains_key(&tid) => {
                self.touch(tid, None, None);
                if let Some(open) = self.open.get_mut(&tid) {
                    open.bios += 1;
                }
            }
            BlockAction::Queue if !self.open.is_empty() => {
                let named = (self.lookup)(tid, time);
                let name = named.as_ref().map_or("", Named::name);
                if is_worker(name) {
                    self.unseen.queued(block, time);
                } else if self.is_of_device && home(name) == Some(Layer::FileSystem) {
                    self.commits.queued(block, tid, time);
                }
            }
            BlockAction::Complete => {
                self.unseen.completed(block, time);
                self.commits.completed(block, time);
            }
            _ => {}
        }
    }

    fn begins(&mut self, name: &str, at: u64) -> Open {
        self.begun += 1;
        let counts = self.counts;
        Open {
            name: name.to_owned(),
            number: self.begun,
            begin: at,
            counts,
            file: None,
            path: None,
            read_bytes: 0,
            written_bytes: 0,
            written: None,
            touched: false,
            bios: 0,
        }
    }

    fn refuses(&mut self, open: &Open, error: &'static str, tid: TaskId, time: TimeNs) {
        if !open.counts || (self.is_of_device && !open.touched) {
            return;
        }
        let Some(task) = self.task(tid, time) else { return };
        self.refused.add(&open.name, (task, tid), error, open.file);
    }

    fn ends(&mut self, mut open: Open, tid: TaskId, time: TimeNs) {
        if !open.counts {
            return;
        }
        if !open.touched && may_be_elsewhere(&open.name) {
            self.without_storage += 1;
            if time.0.saturating_sub(open.begin) >= MIN_LONG_NS
                && let Some(task) = self.task(tid, time)
            {
                self.unseen.add(&open.name, !is_write(&open.name), task, open.begin, time.0);
            }
            return;
        }
        // The kernel cannot filter calls by the device of a file: an event within the call has to show the device.
        let waits = || is_sync(&open.name) && self.commits.is_awaited(&open.name, open.begin, time.0);
        if !open.touched && self.is_of_device && !waits() {
            self.not_of_device += 1;
            self.not_of_device_syncs += u64::from(is_sync(&open.name));
            return;
        }
        let Some((task, former)) = self.task_and_former(tid, time) else { return };
        let duration = time.0.saturating_sub(open.begin);
        if is_sync(&open.name) && open.bios > 0 && self.sync_bios.len() < MAX_GROUPS {
            *self.sync_bios.entry(task.clone()).or_default() += open.bios;
        }
        self.by_call.add(Key::new(&open.name, "(all)".to_owned()), open.bytes(), duration);
        self.by_process.add(Key::new(&open.name, task.clone()), open.bytes(), duration);
        if let Some(former) = former {
            self.former.add(&open.name, &task, former, duration);
        }
        if let Some(file) = open.file {
            open.path = self.reused.display_at(file, TimeNs(open.begin));
            let key = Key { path: open.path.clone(), ..Key::new(&open.name, file.to_string()) };
            self.by_file.add(key, open.bytes(), duration);
        }
        let listed = Listed { open, tid, task, duration };
        if Some(listed.open.number) == self.number {
            self.wanted = Some(listed.call());
        }
        if let Some(each) = &mut self.each {
            each(listed.call());
        }
        self.listed.push(listed);
        if self.listed.len() > 4 * MAX_LISTED {
            self.keep_slowest();
        }
    }

    fn keep_slowest(&mut self) {
        self.listed.sort_by_key(|one| (Reverse(one.duration), one.open.number));
        self.listed.truncate(MAX_LISTED);
    }

    fn call(&mut self, name: &str, result: Option<i64>, tid: TaskId, time: TimeNs) {
        if let Some(call) = name.strip_prefix("sys_enter_") {
            if followed(call) && self.open.len() >= self.most_open && !self.open.contains_key(&tid) {
                self.not_followed += 1;
            } else if followed(call) {
                let open = self.begins(call, time.0);
                self.cut += u64::from(self.open.insert(tid, open).is_some());
            } else if submits(call)
                && self.counts
                && let Some(task) = self.task(tid, time)
            {
                // Processes beyond the most groups are counted in one.
                let group = (call.to_owned(), task);
                let has_room = self.asynchronous.len() < MAX_GROUPS || self.asynchronous.contains_key(&group);
                let group = if has_room { group } else { (group.0, FURTHER.to_owned()) };
                *self.asynchronous.entry(group).or_default() += 1;
            }
        } else if let Some(call) = name.strip_prefix("sys_exit_") {
            match self.open.remove(&tid) {
                Some(mut open) if open.name == call => {
                    open.returns(result);
                    if let Some(error) = no_room(result) {
                        self.refuses(&open, error, tid, time);
                    }
                    self.ends(open, tid, time);
                }
                Some(_) => self.cut += 1,
                None => self.cut += u64::from(followed(call)),
            }
        } else if name == "jbd2_end_commit" {
            self.commits.ended(tid, time);
        } else if name == "file_fault_end"
            && let Some(open) = self.faults.remove(&tid)
        {
            self.ends(open, tid, time);
        }
    }

    /// No call goes on after the end of a recording.
    fn recording_ends(&mut self) {
        self.cut += (self.open.len() + self.faults.len()) as u64;
        self.open.clear();
        self.faults.clear();
        self.unseen.recording_ends();
        self.commits = Commits::default();
        self.refused.recording_ends();
    }

    fn touch(&mut self, tid: TaskId, file: Option<FileId>, event: Option<&FileEvent>) {
        let is = |step: FileStep| event.filter(|event| event.step == step);
        for open in [self.open.get_mut(&tid), self.faults.get_mut(&tid)].into_iter().flatten() {
            open.touched = true;
            open.file = open.file.or(file);
            let read = is(FileStep::Read).map_or(0, FileEvent::bytes_read);
            open.read_bytes = open.read_bytes.saturating_add(read);
            if let Some(write) = event.filter(|event| event.step.writes()) {
                open.writes(write);
            }
        }
    }
}

impl<L: Lookup<Name: Named>> Analysis for Calls<L> {
    type Output = CallsFound;

    fn event(&mut self, event: &Event) {
        let tid = event.tid;
        match &event.kind {
            EventKind::Other { name, result, .. } => self.call(name, *result, tid, event.time),
            EventKind::File(file) => {
                if file.step == FileStep::Fault {
                    if self.faults.len() >= self.most_open && !self.faults.contains_key(&tid) {
                        self.not_followed += 1;
                    } else {
                        let open = self.begins(FAULT, event.time.0);
                        self.faults.insert(tid, open);
                    }
                }
                if (file.step.writes() || file.step == FileStep::Dirtied) && self.open.contains_key(&tid) {
                    self.refused.writes(tid, file.device);
                }
                if !matches!(file.step, FileStep::Extent | FileStep::Uncached | FileStep::WritebackEnd) {
                    self.touch(tid, Some(file.file()), Some(file));
                }
            }
            EventKind::Block(block) => self.block(block, tid, event.time),
            EventKind::Flash(_) => self.touch(tid, None, None),
            EventKind::Recording => self.recording_ends(),
            _ => {}
        }
    }

    fn finish(mut self) -> CallsFound {
        self.recording_ends();
        self.keep_slowest();
        let any = self.begun + self.cut > 0 || !self.asynchronous.is_empty();
        let count = |n: u64| any.then_some(n);
        let mut asynchronous: Vec<AsynchronousCalls> = Vec::new();
        for ((call, name), &n) in &self.asynchronous {
            asynchronous.push(AsynchronousCalls { call: call.clone(), name: name.clone(), n });
        }
        asynchronous.sort_by(|a, b| (Reverse(a.n), &a.name, &a.call).cmp(&(Reverse(b.n), &b.name, &b.call)));
        CallsFound {
            asynchronous,
            sync_bios: self.sync_bios,
            writes_not_followed: self.refused.not_followed(),
            refused: self.refused.finish(),
            by_call: self.by_call.finish(),
            by_process: self.by_process.finish(),
            under_former_names: self.former.finish(),
            by_file: self.by_file.finish(),
            slowest: self.listed.iter().map(Listed::call).collect(),
            without_storage: count(self.without_storage),
            long_without_storage: self.unseen.finish(),
            not_of_device: count(self.not_of_device),
            not_of_device_syncs: count(self.not_of_device_syncs),
            cut: count(self.cut),
            not_followed: self.not_followed,
            wanted: self.wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block, call, event};
    use flashscope_trace::Device;
    use std::cell::RefCell;
    use std::rc::Rc;

    fn other(name: &str) -> EventKind {
        call(name, None)
    }

    fn file(step: FileStep, inode: u64, bytes: u64) -> EventKind {
        EventKind::File(crate::testing::file(step, Some(Device::new(8, 1)), inode, 0, bytes))
    }

    #[test]
    fn calls_that_submit_io_are_told_apart() {
        let mut calls = Calls::new(|_, _| Some("app"));
        for (time, name) in
            [(0, "sys_enter_io_uring_enter"), (5, "sys_exit_io_uring_enter"), (9, "sys_enter_io_uring_enter")]
        {
            calls.event(&event(time, 7, other(name)));
        }
        calls.event(&event(20, 8, other("sys_enter_io_submit")));
        let found = calls.finish();
        let of = |call: &str, name: &str, n| AsynchronousCalls { call: call.into(), name: name.into(), n };
        assert_eq!(found.asynchronous, [of("io_uring_enter", "app (7)", 2), of("io_submit", "app (8)", 1)]);
        assert!(found.is_empty() && found.cut == Some(0), "{found:?}");
    }

    #[test]
    fn calls_of_other_devices_are_left_out_of_a_recording_of_one() {
        let mut calls = Calls::new(|_, _| Some("app")).of_device(true);
        for (time, kind) in [
            (0, other("sys_enter_openat")),
            (10, other("sys_exit_openat")),
            (20, other("sys_enter_fsync")),
            (900, other("sys_exit_fsync")),
            (1000, other("sys_enter_fsync")),
            (1010, file(FileStep::WritebackBegin, 12, 0)),
            (1500, other("sys_exit_fsync")),
            (1600, other("sys_enter_read")),
            (1700, other("sys_exit_read")),
        ] {
            calls.event(&event(time, 7, kind));
        }
        let found = calls.finish();
        assert_eq!((found.by_process.len(), found.by_process[0].total_ns), (1, 500));
        assert_eq!(
            (found.not_of_device, found.not_of_device_syncs, found.without_storage),
            (Some(2), Some(1), Some(1))
        );
    }

    #[test]
    fn what_too_many_threads_call_at_once_is_counted() {
        let mut calls = Calls::new(|_, _| Some("app"));
        calls.most_open = 2;
        for tid in 1..=5 {
            calls.event(&event(10, tid, other("sys_enter_fsync")));
            calls.event(&event(20, tid, file(FileStep::Fault, 13, 0)));
        }
        for tid in 1..=2 {
            calls.event(&event(30, tid, other("file_fault_end")));
            calls.event(&event(40, tid, other("sys_exit_fsync")));
        }
        let found = calls.finish();
        let counted: Vec<_> = found.by_call.iter().map(|group| (group.call.as_str(), group.ns.n)).collect();
        assert_eq!((counted, found.not_followed), (vec![("fsync", 2), (FAULT, 2)], 6));
        assert_eq!(found.losses()[0].count, 6);
    }

    #[test]
    fn calls_have_their_process_and_file() {
        let mut calls = Calls::new(|tid, _| (tid == TaskId(7)).then_some("logger"));
        let queued = EventKind::Block(crate::testing::block(BlockAction::Queue, Device::new(8, 1), "WS", 0, 4096));
        for (time, tid, kind) in [
            (0, 7, other("sys_exit_read")),
            (100, 7, other("sys_enter_write")),
            (110, 7, file(FileStep::Write, 12, 80)),
            (150, 7, other("sys_exit_write")),
            // A pipe.
            (160, 8, other("sys_enter_read")),
            (170, 7, other("sys_enter_fsync")),
            (180, 8, other("sys_exit_read")),
            (190, 7, file(FileStep::Synced, 12, 0)),
            (200, 7, queued.clone()),
            (1170, 7, other("sys_exit_fsync")),
            (1200, 7, file(FileStep::Fault, 13, 0)),
            (1300, 7, other("file_fault_end")),
            (1400, 7, other("sys_enter_unlinkat")),
        ] {
            calls.event(&event(time, tid, kind));
        }
        let found = calls.finish();
        let first: Vec<_> = found.by_process.iter().map(|g| (g.call.as_str(), g.name.as_str(), g.total_ns)).collect();
        assert_eq!(first, [("fsync", "logger (7)", 1000), (FAULT, "logger (7)", 100), ("write", "logger (7)", 50)]);
        assert_eq!((found.by_file[0].name.as_str(), found.by_process[2].bytes), ("8:1 inode 12", 80));
        assert_eq!(found.sync_bios, HashMap::from_iter([("logger (7)".to_owned(), 1)]));
        assert_eq!((found.without_storage, found.cut), (Some(1), Some(2)));
        let slow = &found.slowest[0];
        assert_eq!((slow.number, slow.call.as_str(), slow.file.as_deref()), (3, "fsync", Some("8:1 inode 12")));
        assert_eq!(found.total(is_sync), (1, 1000));
    }

    fn bio(action: BlockAction, sector: u64) -> EventKind {
        EventKind::Block(block(action, Device::new(8, 0), "R", sector, 4096))
    }

    #[test]
    fn long_calls_without_storage_are_kept_with_the_bios_of_workers() {
        const MS: u64 = 1_000_000;
        let mut calls = Calls::new(|tid, _| Some(if tid == TaskId(9) { "kworker/0:1" } else { "reader" }));
        for (time, tid, kind) in [
            // A limit: a worker queues the bio later.
            (0, 7, other("sys_enter_pread64")),
            (80 * MS, 9, bio(BlockAction::Queue, 8)),
            (90 * MS, 9, bio(BlockAction::Complete, 8)),
            (90 * MS + 5, 7, other("sys_exit_pread64")),
            // Another's bio that was queued before, and one that completed long before the end.
            (100 * MS, 9, bio(BlockAction::Queue, 16)),
            (101 * MS, 7, other("sys_enter_pread64")),
            (102 * MS, 9, bio(BlockAction::Queue, 24)),
            (103 * MS, 9, bio(BlockAction::Complete, 24)),
            (120 * MS, 9, bio(BlockAction::Complete, 16)),
            (120 * MS + 5, 7, other("sys_exit_pread64")),
            // Short, and one with a bio of its own.
            (130 * MS, 7, other("sys_enter_read")),
            (130 * MS + 9, 7, other("sys_exit_read")),
            (140 * MS, 7, other("sys_enter_pread64")),
            (141 * MS, 7, bio(BlockAction::Queue, 32)),
            (149 * MS, 9, bio(BlockAction::Complete, 32)),
            (150 * MS, 7, other("sys_exit_pread64")),
        ] {
            calls.event(&event(time, tid, kind));
        }
        let found = calls.finish();
        let [long] = &found.long_without_storage[..] else { panic!("{:?}", found.long_without_storage) };
        assert_eq!((long.call.as_str(), long.name.as_str(), long.n), ("pread64", "reader (7)", 2));
        assert_eq!((long.total_ns, long.longest_ns), (109 * MS + 10, 90 * MS + 5));
        assert_eq!((long.with_worker_bio, long.worker_bios_ns), (1, 10 * MS));
        assert_eq!((found.without_storage, found.by_process[0].ns.n), (Some(3), 1));
    }

    #[test]
    fn calls_that_are_not_shown_keep_their_numbers() {
        let mut calls = Calls::new(|_, _| None::<&str>);
        calls.counts = false;
        for (time, name) in
            [(1, "sys_enter_fsync"), (2, "sys_exit_fsync"), (3, "sys_enter_fsync"), (9, "sys_exit_fsync")]
        {
            calls.counts = time > 2;
            calls.event(&event(time, 5, other(name)));
        }
        let found = calls.finish();
        assert_eq!(found.slowest.iter().map(|one| one.number).collect::<Vec<_>>(), [2]);
        assert_eq!(found.by_process[0].name, "tid 5");
    }

    #[test]
    fn a_read_is_of_no_more_than_its_file_has() {
        let mut calls = Calls::new(|_, _| Some("dd"));
        for (time, offset) in [(100, 0), (200, 8192), (300, 10_000)] {
            let file = crate::testing::file(FileStep::Read, Some(Device::new(8, 1)), 12, offset, 8192);
            let read = FileEvent { size: Some(10_000), ..file };
            calls.event(&event(time, 7, other("sys_enter_read")));
            calls.event(&event(time + 10, 7, EventKind::File(read)));
            calls.event(&event(time + 20, 7, other("sys_exit_read")));
        }
        let found = calls.finish();
        assert_eq!((found.by_process[0].ns.n, found.by_process[0].bytes), (3, 10_000));
    }

    fn at(place: u64, kind: EventKind) -> EventKind {
        match kind {
            EventKind::File(file) => EventKind::File(FileEvent { offset: place, ..file }),
            kind => kind,
        }
    }

    /// Our probe reports the whole write, and then ext4 each page of it.
    #[test]
    fn a_write_that_two_events_tell_of_counts_once() {
        let mut calls = Calls::new(|_, _| Some("app"));
        for (time, kind) in [
            (100, other("sys_enter_write")),
            (110, at(4000, file(FileStep::Write, 12, 8192))),
            (120, at(4000, file(FileStep::Write, 12, 96))),
            (130, at(4096, file(FileStep::Write, 12, 4096))),
            (140, at(8192, file(FileStep::Write, 12, 4000))),
            (150, other("sys_exit_write")),
            // Pages alone, and the same place again in another call.
            (160, other("sys_enter_write")),
            (170, at(0, file(FileStep::Write, 12, 4096))),
            (180, at(4096, file(FileStep::Write, 12, 904))),
            (190, other("sys_exit_write")),
            // Two places.
            (200, other("sys_enter_pwritev")),
            (210, at(0, file(FileStep::Write, 12, 10))),
            (220, at(9000, file(FileStep::Write, 12, 10))),
            (230, other("sys_exit_pwritev")),
        ] {
            calls.event(&event(time, 7, kind));
        }
        let found = calls.finish();
        let bytes = |call: &str| found.by_process.iter().find(|group| group.call == call).map(|group| group.bytes);
        assert_eq!((bytes("write"), bytes("pwritev")), (Some(8192 + 5000), Some(20)));
    }

    #[test]
    fn a_copy_is_of_what_it_copies() {
        let mut calls = Calls::new(|_, _| Some("cp"));
        for (time, kind) in [
            (100, other("sys_enter_copy_file_range")),
            (110, file(FileStep::Read, 12, 4096)),
            (120, file(FileStep::Write, 13, 4096)),
            (130, file(FileStep::Read, 12, 1000)),
            (140, at(4096, file(FileStep::Write, 13, 1000))),
            (150, other("sys_exit_copy_file_range")),
        ] {
            calls.event(&event(time, 7, kind));
        }
        let found = calls.finish();
        assert_eq!((found.by_process[0].bytes, found.slowest[0].bytes), (5096, 5096));
    }

    /// XFS has no event that says how much of a page is written; ext4 has, and says it of the file alone. None tells of a read with O_DIRECT.
    #[test]
    fn a_call_without_such_an_event_is_of_what_it_returns() {
        let mut calls = Calls::new(|_, _| Some("app"));
        let returns = |name: &str, n| call(name, Some(n));
        for (time, kind) in [
            (100, other("sys_enter_write")),
            (110, file(FileStep::Cached, 12, 4096)),
            (120, returns("sys_exit_write", 3000)),
            (130, other("sys_enter_pwrite64")),
            (140, file(FileStep::Write, 13, 96)),
            (150, returns("sys_exit_pwrite64", 100)),
            (160, other("sys_enter_writev")),
            (170, file(FileStep::Cached, 12, 4096)),
            (180, returns("sys_exit_writev", -28)),
            (190, other("sys_enter_read")),
            (200, file(FileStep::Cached, 12, 4096)),
            (210, returns("sys_exit_read", 4000)),
            (220, other("sys_enter_pread64")),
            (230, file(FileStep::Read, 13, 96)),
            (240, returns("sys_exit_pread64", 100)),
        ] {
            calls.event(&event(time, 7, kind));
        }
        let found = calls.finish();
        let bytes = |call: &str| found.by_process.iter().find(|group| group.call == call).map(|group| group.bytes);
        assert_eq!(["write", "pwrite64", "writev"].map(bytes), [Some(3000), Some(96), Some(0)]);
        assert_eq!(["read", "pread64"].map(bytes), [Some(4000), Some(96)]);
    }

    /// An inode number goes from one file to the next: each call is of the file that had it when it began.
    #[test]
    fn files_of_one_inode_number_are_told_apart() {
        let row = |path: &str, until: Option<u64>| {
            let mut row = serde_json::json!({ "device": "8:1", "inode": 7, "path": path });
            if let Some(ns) = until {
                row["until_ns"] = ns.into();
            }
            row
        };
        let files = [row("/db-journal", Some(1500)), row("/db-journal", Some(2500)), row("/a.tgz", None)];
        let names = FileNames::of_facts(&serde_json::json!({ "names": { "files": files } }));
        let each: Rc<RefCell<Vec<SlowCall>>> = Rc::default();
        let sink = Rc::clone(&each);
        let mut calls =
            Calls::new(|_, _| Some("app")).files(&names).each(Box::new(move |call| sink.borrow_mut().push(call)));
        for (at, call) in [(1000, "fdatasync"), (2000, "fdatasync"), (3000, "fdatasync"), (3200, "write")] {
            calls.event(&event(at, 7, other(&format!("sys_enter_{call}"))));
            calls.event(&event(at + 1, 7, file(FileStep::Dirtied, 7, 4096)));
            calls.event(&event(at + 100, 7, other(&format!("sys_exit_{call}"))));
        }
        let mut found = calls.finish();
        each.borrow_mut().iter_mut().for_each(|call| crate::name_call(call, &names));
        let paths: Vec<_> = each.borrow().iter().map(|call| call.path.clone().unwrap_or_default()).collect();
        assert_eq!(paths, ["/db-journal (deleted)", "/db-journal (deleted)", "/a.tgz", "/a.tgz"]);
        crate::name_calls(&mut found, &names);
        let rows = found.by_file.iter().map(|group| (group.call.as_str(), group.path.as_deref(), group.ns.n));
        assert_eq!(
            rows.collect::<Vec<_>>(),
            [
                ("fdatasync", Some("/db-journal (deleted)"), 2),
                ("fdatasync", Some("/a.tgz"), 1),
                ("write", Some("/a.tgz"), 1)
            ]
        );
        let slowest = found.slowest.iter().map(|call| call.path.as_deref());
        assert_eq!(
            slowest.collect::<Vec<_>>(),
            [Some("/db-journal (deleted)"), Some("/db-journal (deleted)"), Some("/a.tgz"), Some("/a.tgz")]
        );
    }
}
