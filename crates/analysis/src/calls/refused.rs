//! Calls that a file system refused because it was full or a quota was exceeded, by process.
//!
//! Input: the name and the result of each call. Limitation: results of asynchronous calls (io_uring, io_submit) are in no event.

use crate::bounded::FURTHER;
use flashscope_trace::{Device, FileId, TaskId};
use foldhash::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Most groups by call, process and error; further processes share one group for each call and error.
const MAX_GROUPS: usize = 1024;
/// Most threads that write; the device of further ones is unknown.
const MAX_THREADS: usize = 1 << 14;

/// Calls of one kind by one process that ended with an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct RefusedCalls {
    pub call: String,
    /// `NAME (THREAD)`
    pub name: String,
    /// `ENOSPC` or `EDQUOT`
    pub error: String,
    /// `DEVICE inode N` of the last call whose file the trace shows.
    pub file: Option<String>,
    /// Without such a file: the device of all files that the thread wrote, if there is only one.
    pub device: Option<String>,
    pub n: u64,
}

/// The error name of a call that found no space; numbers of include/uapi/asm-generic/errno.h, and of MIPS.
pub(crate) fn no_room(result: Option<i64>) -> Option<&'static str> {
    match result? {
        -28 => Some("ENOSPC"),
        -122 | -1133 => Some("EDQUOT"),
        _ => None,
    }
}

/// Call, process and error.
type Group = (String, String, &'static str);

#[derive(Default)]
struct Last {
    file: Option<FileId>,
    device: Option<Device>,
    n: u64,
}

#[derive(Default)]
pub(crate) struct Refused {
    groups: HashMap<Group, Last>,
    /// By thread: the device of the files that it wrote; `None`: several devices.
    writes: HashMap<TaskId, Option<Device>>,
    /// Writes of threads that had no room in `writes`.
    not_followed: u64,
}

impl Refused {
    /// A thread writes to a file, or makes a page of it dirty.
    pub(crate) fn writes(&mut self, tid: TaskId, device: Option<Device>) {
        if self.writes.len() < MAX_THREADS || self.writes.contains_key(&tid) {
            let of = self.writes.entry(tid).or_insert(device);
            if *of != device {
                *of = None;
            }
        } else {
            self.not_followed += 1;
        }
    }

    /// In another recording a thread of this number may be another one.
    pub(crate) fn recording_ends(&mut self) {
        self.writes.clear();
    }

    /// Writes of threads whose device is unknown, because there were too many threads.
    pub(crate) fn not_followed(&self) -> u64 {
        self.not_followed
    }

    pub(crate) fn add(&mut self, call: &str, (task, tid): (String, TaskId), error: &'static str, of: Option<FileId>) {
        let key = (call.to_owned(), task, error);
        let has_room = self.groups.len() < MAX_GROUPS || self.groups.contains_key(&key);
        let key = if has_room { key } else { (key.0, FURTHER.to_owned(), error) };
        let last = self.groups.entry(key).or_default();
        last.n += 1;
        last.file = of.or(last.file);
        last.device = self.writes.get(&tid).copied().flatten();
    }

    /// Groups with most calls first.
    pub(crate) fn finish(self) -> Vec<RefusedCalls> {
        let group = |((call, name, error), last): (Group, Last)| {
            let (error, file) = (error.to_owned(), last.file.as_ref().map(FileId::to_string));
            let device = last.device.filter(|_| file.is_none()).map(|device| device.to_string());
            RefusedCalls { call, name, error, file, device, n: last.n }
        };
        let mut all: Vec<RefusedCalls> = self.groups.into_iter().map(group).collect();
        all.sort_by(|a, b| (Reverse(a.n), &a.name, &a.call).cmp(&(Reverse(b.n), &b.name, &b.call)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Analysis as _;
    use crate::calls::Calls;
    use crate::testing::{call, event, file};
    use flashscope_trace::{EventKind, FileStep};

    #[test]
    fn calls_without_room_have_their_process_and_file() {
        let mut calls = Calls::new(|_, _| Some("app"));
        let write = file(FileStep::Write, Some(Device::new(8, 1)), 12, 0, 80);
        for (time, name, result) in [(0, "write", -28), (100, "write", 80), (200, "write", -28), (300, "openat", -122)]
        {
            calls.event(&event(time, 7, call(&format!("sys_enter_{name}"), None)));
            if time == 0 {
                calls.event(&event(time + 1, 7, EventKind::File(write)));
            }
            calls.event(&event(time + 9, 7, call(&format!("sys_exit_{name}"), Some(result))));
        }
        // Not allowed, and not there, are something else.
        for result in [Some(-13), Some(-2), None] {
            calls.event(&event(400, 8, call("sys_enter_openat", None)));
            calls.event(&event(409, 8, call("sys_exit_openat", result)));
        }
        let found = calls.finish().refused;
        let of = |call: &str, error: &str, file: Option<&str>, device: Option<&str>, n| RefusedCalls {
            call: call.into(),
            name: "app (7)".into(),
            error: error.into(),
            file: file.map(str::to_owned),
            device: device.map(str::to_owned),
            n,
        };
        assert_eq!(
            found,
            [of("write", "ENOSPC", Some("8:1 inode 12"), None, 2), of("openat", "EDQUOT", None, Some("8:1"), 1)]
        );
    }

    #[test]
    fn a_copy_has_as_many_bytes_as_it_returns() {
        let mut calls = Calls::new(|_, _| Some("cp"));
        let read = file(FileStep::Read, Some(Device::new(8, 1)), 12, 0, 4096);
        for (time, kind) in [
            (0, call("sys_enter_copy_file_range", None)),
            (1, EventKind::File(read)),
            (9, call("sys_exit_copy_file_range", Some(1000))),
        ] {
            calls.event(&event(time, 7, kind));
        }
        assert_eq!(calls.finish().by_file[0].bytes, 1000);
    }

    #[test]
    fn processes_without_a_group_count_together() {
        let mut refused = Refused::default();
        for process in 0..MAX_GROUPS + 3 {
            refused.add("write", (process.to_string(), TaskId(process as u32)), "ENOSPC", None);
        }
        let found = refused.finish();
        assert_eq!((found.len(), found[0].name.as_str(), found[0].n), (MAX_GROUPS + 1, FURTHER, 3));
    }

    #[test]
    fn writes_of_further_threads_are_counted() {
        let mut refused = Refused::default();
        for tid in 0..MAX_THREADS as u32 + 2 {
            refused.writes(TaskId(tid), Some(Device::new(8, 1)));
        }
        refused.writes(TaskId(0), Some(Device::new(8, 1)));
        assert_eq!(refused.not_followed(), 2);
    }

    #[test]
    fn of_a_thread_that_writes_to_two_devices_none_is_named() {
        let mut refused = Refused::default();
        for (minor, device) in [(1, Some("8:1")), (1, Some("8:1")), (2, None), (1, None)] {
            refused.writes(TaskId(7), Some(Device::new(8, minor)));
            refused.add("write", ("app (7)".to_owned(), TaskId(7)), "ENOSPC", None);
            let last = refused.groups.values().next().and_then(|last| last.device).map(|device| device.to_string());
            assert_eq!(last.as_deref(), device);
        }
    }
}
