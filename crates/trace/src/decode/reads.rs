//! File reads on kernels without kprobes, from `mm_filemap_get_pages` (Linux 6.12 and later).
//!
//! The event gives the pages of a file that a read needs. It fires once they are cached (mm/filemap.c, filemap_get_pages(), 6.12), so after
//! the events of pages that were added for the read. A read in several rounds has one event per round, all with the same last page. So one
//! pass finds all reads, and the next pass reports each read where it began: at its call, or at the first page added for it.
//!
//! If the call's event gives the length (for pread() also the offset), the read has these values; otherwise it has whole pages. A read()
//! begins where the last read of the descriptor ended, if that fits its pages. A read at the end of the file needs no page and has no
//! event: it is found by its call, which returned 0.
//!
//! If our own probe of reads is also in the trace, events that lie inside a probed read of the same call belong to that read. The other
//! events are from splice() and sendfile(), in recordings without our probe for them (`file_splice_read`).
//!
//! `mm_filemap_fault` fires at the beginning of a fault, `mm_filemap_map_pages` when pages are mapped: both are reported in place.

use crate::events::file::{FileEvent, FileStep};
use crate::events::{Event, EventKind, TimeNs};
use crate::ids::{Device, FileId, TaskId};
use crate::record::{Record, tid};
use crate::ring::schema::{Schema, Value};
use foldhash::HashMap;
use std::sync::Arc;

/// Largest number of reads (88 bytes each).
const MAX_READS: usize = 4_000_000;
/// Largest number of tasks, and of descriptors, that are followed at once.
const MAX_TASKS: usize = 1 << 16;

/// Which reads only this event shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    Nothing,
    /// Reads that our probe does not see: splice() and sendfile() do not call `filemap_read` (`filemap_splice_read`, 6.5).
    Unprobed,
    All,
}

pub(crate) fn are_needed<'a>(schemas: impl Iterator<Item = &'a Arc<Schema>>) -> Needed {
    let (mut pages, mut probes) = (false, false);
    for schema in schemas {
        pages |= schema.name == "mm_filemap_get_pages";
        probes |= schema.name == "file_read";
    }
    match (pages, probes) {
        (false, _) => Needed::Nothing,
        (true, true) => Needed::Unprobed,
        (true, false) => Needed::All,
    }
}

/// A record at which a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct At {
    /// Number of the recording in a text of several.
    recording: u32,
    time: u64,
    cpu: u16,
    tid: TaskId,
    /// Index of the record among those with the same time, CPU and task, from 0.
    same: u32,
}

/// Counts records of one time, CPU and task.
#[derive(Debug, Default)]
struct Counter {
    /// The last record of each CPU.
    last: Vec<Option<At>>,
    recording: u32,
}

impl Counter {
    fn at(&mut self, record: &Record<'_>) -> At {
        let (recording, tid) = (self.recording, tid(record.schema, record.data));
        let mut at = At { recording, time: record.time.0, cpu: record.cpu, tid, same: 0 };
        let cpu = usize::from(at.cpu);
        if self.last.len() <= cpu {
            self.last.resize(cpu + 1, None);
        }
        if let Some(last) = self.last[cpu].replace(at)
            && (last.recording, last.time, last.tid) == (at.recording, at.time, at.tid)
        {
            at.same = last.same + 1;
            self.last[cpu] = Some(at);
        }
        at
    }
}

#[derive(Clone, Copy)]
struct Read {
    file: FileId,
    first: u64,
    last: u64,
}

/// State of a task.
#[derive(Default)]
struct Task {
    /// Where the task's next read begins: at its call, or where the first page of this file was added.
    begin: Option<(At, Option<FileId>)>,
    call: Option<Call>,
    current: Option<Read>,
    /// The last read of this call from our probe.
    probed: Option<Read>,
    /// Index in `reads` of the call's read.
    read: Option<usize>,
}

impl Task {
    fn is_in_a_read(&self) -> bool {
        self.call.is_some() || self.current.is_some()
    }
}

#[derive(Clone, Copy)]
struct Call {
    at: At,
    fd: u64,
    count: Option<u64>,
    pos: Option<u64>,
}

/// The reads that one pass finds, for the next pass to report.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    reads: Vec<(At, FileEvent)>,
    /// Reads and faults that exceeded the limit, and calls and descriptors that were dropped because too many were open at once: such a
    /// read has no offset of its own, or no end.
    pub not_followed: u64,
}

/// The pass that finds the reads.
#[derive(Default)]
pub(crate) struct Finder {
    page: u64,
    /// The trace has our own probes.
    probes: bool,
    counter: Counter,
    tasks: HashMap<TaskId, Task>,
    /// File and end offset of the last read, by task and descriptor.
    ends: HashMap<(TaskId, u64), (FileId, u64)>,
    reads: Vec<(At, FileEvent)>,
    limits: Limits,
    not_followed: u64,
}

/// Limits for the kept state.
#[derive(Clone, Copy)]
struct Limits {
    reads: usize,
    tasks: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { reads: MAX_READS, tasks: MAX_TASKS }
    }
}

fn number(record: &Record<'_>, name: &str) -> Option<u64> {
    match record.get(name)? {
        Value::Unsigned(value) => Some(value),
        Value::Signed(value) => u64::try_from(value).ok(),
        _ => None,
    }
}

/// Calls that read from a descriptor into memory.
fn reads_by_descriptor(call: &str) -> bool {
    matches!(call, "read" | "pread64" | "readv" | "preadv" | "preadv2")
}

impl Finder {
    /// `page`: page size in bytes; `probes`: the trace has our own read events too.
    pub fn new(page: u64, probes: bool) -> Finder {
        Finder { page: page.max(1), probes, ..Finder::default() }
    }

    /// No read or descriptor of the recording before goes on.
    pub fn recording_begins(&mut self) {
        self.counter.recording += 1;
        self.tasks.clear();
        self.ends.clear();
    }

    pub fn record(&mut self, record: &Record<'_>) {
        let at = self.counter.at(record);
        if self.tasks.len() >= self.limits.tasks && !self.tasks.contains_key(&at.tid) {
            // A task outside of a call loses nothing.
            self.not_followed += self.tasks.values().filter(|task| task.is_in_a_read()).count() as u64;
            self.tasks.clear();
        }
        let name = record.schema.name.as_str();
        if let Some(call) = name.strip_prefix("sys_enter_") {
            let by_descriptor = reads_by_descriptor(call);
            let wide = record.schema.field("fd").is_some_and(|fd| fd.size == 8);
            let call = by_descriptor.then(|| Call {
                at,
                fd: number(record, "fd").unwrap_or(u64::MAX),
                count: number(record, "count"),
                // 32-bit kernels show only half of the offset (agent/record/groups.c).
                pos: number(record, "pos").filter(|_| call == "pread64" && wide),
            });
            let begin = by_descriptor.then_some((at, None));
            self.tasks.insert(at.tid, Task { begin, call, ..Task::default() });
        } else if name.starts_with("sys_exit_") {
            self.returned(at.tid, record);
        } else if name == "mm_filemap_add_to_page_cache" {
            let (Some(device), Some(inode)) = (number(record, "s_dev"), number(record, "i_ino")) else { return };
            let file = Some(FileId::on(Device(device as u32), inode));
            let begin = &mut self.tasks.entry(at.tid).or_default().begin;
            // Pages of another file, such as a copy's target, are not part of the read.
            if begin.is_none_or(|(_, of)| of.is_some() && of != file) {
                *begin = Some((at, file));
            }
        } else if name == "mm_filemap_get_pages" {
            self.got_pages(at, record);
        } else if matches!(name, "file_read" | "file_splice_read") {
            self.probed(at.tid, record);
        } else if self.probes {
            // Our own probes report the faults.
        } else if name == "mm_filemap_fault" {
            self.mapped(FileStep::Fault, at, record);
        } else if name == "mm_filemap_map_pages" {
            self.mapped(FileStep::Mapped, at, record);
        }
    }

    /// Whether the limit of reads is reached; counts the read that is dropped.
    fn is_full(&mut self) -> bool {
        let full = self.reads.len() >= self.limits.reads;
        self.not_followed += u64::from(full);
        full
    }

    fn mapped(&mut self, step: FileStep, at: At, record: &Record<'_>) {
        let get = |name: &str| number(record, name);
        let (Some(device), Some(inode), Some(first)) = (get("s_dev"), get("i_ino"), get("index")) else { return };
        if self.is_full() {
            return;
        }
        let pages = get("last_index").map_or(0, |last| last.saturating_add(1).saturating_sub(first));
        let (device, offset) = (Some(Device(device as u32)), first.saturating_mul(self.page));
        let bytes = pages.saturating_mul(self.page);
        self.reads.push((at, FileEvent { step, device, inode, offset, bytes, size: None, block: 0, got: None }));
    }

    /// A read from our probe: `dev`, `ino`, `pos` and `count` (agent/record/files.c).
    fn probed(&mut self, tid: TaskId, record: &Record<'_>) {
        let get = |name: &str| number(record, name);
        let task = self.tasks.entry(tid).or_default();
        task.current = None;
        task.probed = match (get("dev"), get("ino"), get("pos"), get("count")) {
            (Some(device), Some(inode), Some(pos), Some(count)) => {
                let last = pos.saturating_add(count.saturating_sub(1)) / self.page;
                Some(Read { file: FileId::on(Device(device as u32), inode), first: pos / self.page, last })
            }
            _ => None,
        };
    }

    fn got_pages(&mut self, at: At, record: &Record<'_>) {
        let get = |name: &str| number(record, name);
        let (Some(device), Some(inode), Some(first), Some(last)) =
            (get("s_dev"), get("i_ino"), get("index"), get("last_index"))
        else {
            return;
        };
        let file = FileId::on(Device(device as u32), inode);
        let task = self.tasks.entry(at.tid).or_default();
        let begin = task.begin.take().filter(|(_, of)| of.is_none_or(|of| of == file)).map(|(at, _)| at);
        let shown = |probed: &Read| probed.file == file && first >= probed.first && last <= probed.last;
        if task.probed.as_ref().is_some_and(shown) {
            return;
        }
        let goes_on = |read: &Read| read.file == file && read.last == last && first > read.first;
        if task.current.as_ref().is_some_and(goes_on) || first > last {
            return;
        }
        if self.reads.len() >= self.limits.reads {
            self.not_followed += 1;
            return;
        }
        let call = task.call.filter(|_| task.read.is_none());
        let page = self.page;
        let (low, high) = (first.saturating_mul(page), last.saturating_add(1).saturating_mul(page));
        let (offset, bytes) = match call.and_then(|call| Some((call, call.count?))) {
            Some((call, count)) if count > 0 => {
                let before = self.ends.get(&(at.tid, call.fd)).filter(|(of, _)| *of == file).map(|(_, end)| *end);
                // The read begins in the first page and ends in the last one. Without other knowledge, take the earliest offset that fits.
                let least = low.max(high.saturating_sub(page).saturating_add(1).saturating_sub(count));
                let most = low.saturating_add(page - 1).min(high.saturating_sub(count));
                let fits = |offset: &u64| (least..=most).contains(offset);
                let offset = call.pos.or(before).filter(fits).unwrap_or(least);
                (offset, count.min(high.saturating_sub(offset)))
            }
            _ => (low, high - low),
        };
        task.current = Some(Read { file, first, last });
        if task.call.is_some() && task.read.is_none() {
            task.read = Some(self.reads.len());
        }
        self.push(begin.unwrap_or(at), file, offset, bytes);
    }

    fn push(&mut self, at: At, file: FileId, offset: u64, bytes: u64) {
        let FileId { device, inode } = file;
        let read = FileEvent { step: FileStep::Read, device, inode, offset, bytes, size: None, block: 0, got: None };
        self.reads.push((at, read));
    }

    fn returned(&mut self, tid: TaskId, record: &Record<'_>) {
        let Some(task) = self.tasks.remove(&tid) else { return };
        let (Some(call), Some(got)) = (task.call, number(record, "ret")) else { return };
        // A negative error, if the format calls the field unsigned.
        if got > u64::from(u32::MAX) - 4096 {
            return;
        }
        let key = (tid, call.fd);
        match task.read.and_then(|at| self.reads.get_mut(at)) {
            Some((_, read)) => {
                read.got = (got < read.bytes).then_some(got);
                if self.ends.len() >= self.limits.tasks && !self.ends.contains_key(&key) {
                    self.not_followed += self.ends.len() as u64;
                    self.ends.clear();
                }
                self.ends.insert(key, (read.file(), read.offset.saturating_add(got)));
            }
            None => {
                let Some(&(file, end)) = self.ends.get(&key) else { return };
                let at_end = call.pos.is_none_or(|pos| pos == end);
                match call.count.filter(|_| got == 0 && at_end) {
                    Some(count) if count > 0 => {
                        if self.is_full() {
                            return;
                        }
                        self.push(call.at, file, end, count);
                        if let Some((_, read)) = self.reads.last_mut() {
                            read.got = Some(0);
                        }
                    }
                    // The descriptor now reads another file or position.
                    _ => drop(self.ends.remove(&key)),
                }
            }
        }
    }

    pub fn finish(mut self) -> Reads {
        self.reads.sort_by_key(|(at, _)| *at);
        Reads { reads: self.reads, not_followed: self.not_followed }
    }
}

/// The pass that reports the reads.
pub(crate) struct Cursor<'a> {
    reads: &'a [(At, FileEvent)],
    counter: Counter,
    event: Event,
}

impl Reads {
    pub fn cursor(&self) -> Cursor<'_> {
        let kind = EventKind::Mark { name: String::new() };
        let event = Event { time: TimeNs(0), cpu: 0, tid: TaskId(0), kind };
        Cursor { reads: &self.reads, counter: Counter::default(), event }
    }
}

impl Cursor<'_> {
    pub fn recording_begins(&mut self) {
        self.counter.recording += 1;
    }

    /// Reports this record and the reads that begin at it: after a call's event, before a page's event.
    pub fn around(&mut self, record: &Record<'_>, f: &mut dyn FnMut(Option<&Event>)) {
        if self.reads.is_empty() {
            return f(None);
        }
        let at = self.counter.at(record);
        let before = !record.schema.name.starts_with("sys_enter");
        if !before {
            f(None);
        }
        // Records of several CPUs may be slightly out of order.
        while let Some((due, read)) = self.reads.first().filter(|(due, _)| *due <= at) {
            let (time, cpu) = (TimeNs(due.time), due.cpu);
            self.event = Event { time, cpu, tid: due.tid, kind: EventKind::File(*read) };
            self.reads = &self.reads[1..];
            f(Some(&self.event));
        }
        if before {
            f(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Endian;
    use crate::ring::Missed;

    /// An event of a system call or of the page cache, with fields of eight bytes.
    fn schema(name: &str, fields: &[&str]) -> Schema {
        let field =
            |(at, name): (usize, &&str)| format!("\tfield:u64 {name};\toffset:{};\tsize:8;\tsigned:0;\n", 8 + 8 * at);
        let fields: String = fields.iter().enumerate().map(field).collect();
        let text = format!(
            "name: {name}\nID: 300\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n{fields}"
        );
        Schema::parse("any", &text, Endian::Little, 8).unwrap()
    }

    /// Calls of read() by so many tasks, all at once, of one page each and of four bytes.
    fn found(limits: Limits, tasks: u32) -> (usize, u64) {
        let enter = schema("sys_enter_read", &["fd", "count"]);
        let pages = schema("mm_filemap_get_pages", &["s_dev", "i_ino", "index", "last_index"]);
        let exit = schema("sys_exit_read", &["ret"]);
        let mut finder = Finder { limits, ..Finder::new(4096, false) };
        let mut time = 0;
        for (schema, values) in [(&enter, &[3, 4][..]), (&pages, &[5, 6, 0, 0]), (&exit, &[4])] {
            for tid in 1..=tasks {
                let mut data = vec![0; 8];
                data[4..].copy_from_slice(&tid.to_le_bytes());
                values.iter().for_each(|value: &u64| data.extend_from_slice(&value.to_le_bytes()));
                time += 10;
                let (time, missed) = (TimeNs(time), Missed::default());
                finder.record(&Record { time, cpu: 0, buffer: "", missed, schema, data: &data });
            }
        }
        let reads = finder.finish();
        (reads.reads.len(), reads.not_followed)
    }

    #[test]
    fn what_is_not_followed_is_counted() {
        let limits = |reads, tasks| Limits { reads, tasks };
        assert_eq!(found(limits(9, 9), 4), (4, 0));
        // Two reads are beyond the most.
        assert_eq!(found(limits(2, 9), 4), (2, 2));
        // Each task that comes when two are known takes both away, in their calls and then in their reads.
        assert_eq!(found(limits(9, 2), 3), (3, 6));
    }
}
