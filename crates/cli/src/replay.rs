//! Makes the script of `bench replay` (docs/reference/replay-script.md) from the file reads and faults in a trace.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use flashscope_study::replays::{self, Call, ScriptError, Task, Verb};
use flashscope_trace::{EventKind, FileEvent, FileId, FileStep, TaskId, TimeNs, Trace, Value};

use crate::args::BenchReplayArgs;
use crate::failure::Failure;

/// Largest script that the agent accepts (agent/bench/bench_replay.c).
pub const MAX_SCRIPT_BYTES: usize = 16 << 20;
const MAX_TASKS: usize = 256;
const MAX_READ_BYTES: u64 = 256 << 20;
const MAX_READS: usize = 1_000_000;

/// The selected reads.
#[derive(Debug, Default)]
pub struct Wanted<'a> {
    pub process: Option<&'a str>,
    /// `MAJOR:MINOR`.
    pub device: Option<&'a str>,
    /// Bytes after the last known byte of a file whose end the trace does not show.
    pub beyond: u64,
}

/// A script, and counts of what it lacks.
#[derive(Debug, PartialEq, Eq)]
pub struct Script {
    pub text: String,
    pub reads: usize,
    /// Faults on pages of mapped files.
    pub faults: usize,
    /// Files of unknown size, which is at least what was read.
    pub open_ended: usize,
    /// Reads that got nothing, because they were at the end of the file or failed.
    pub empty: usize,
    /// Reads for which the trace has only the requested size.
    pub unconfirmed: usize,
}

/// One call, as the page cache saw it.
#[derive(Clone, Copy, Debug)]
struct Read {
    time: TimeNs,
    tid: TaskId,
    file: FileId,
    offset: u64,
    requested: u64,
    /// The return value of the call; `None` if the trace does not have it.
    got: Option<u64>,
}

/// A page of a mapped file that a task touched.
#[derive(Clone, Copy, Debug)]
struct Fault {
    time: TimeNs,
    tid: TaskId,
    file: FileId,
    offset: u64,
    /// The page became dirty.
    writes: bool,
}

/// File accesses in a trace.
#[derive(Default)]
struct Found {
    reads: Vec<Read>,
    faults: Vec<Fault>,
    /// End of the last page of each file that entered the cache.
    cached: HashMap<FileId, u64>,
    /// File sizes from events of faults.
    sizes: HashMap<FileId, u64>,
    /// Index of the last fault, by task and inode.
    last: HashMap<(TaskId, u64), usize>,
}

impl Found {
    fn is_full(&self) -> bool {
        self.reads.len() + self.faults.len() == MAX_READS
    }

    fn fault(&mut self, fault: Fault) {
        self.last.insert((fault.tid, fault.file.inode), self.faults.len());
        self.faults.push(fault);
    }

    /// A page became dirty outside of a call: the task wrote to a mapped file. The event names the whole disk, so the file is the one with
    /// this inode number that the task has mapped.
    fn dirtied(&mut self, tid: TaskId, time: TimeNs, event: &FileEvent) {
        let Some(&at) = self.last.get(&(tid, event.inode)) else { return };
        let Fault { file, offset, .. } = self.faults[at];
        if offset == event.offset {
            self.faults[at].writes = true;
        } else if !self.is_full() {
            self.fault(Fault { time, tid, file, offset: event.offset, writes: true });
        }
    }
}

/// Invalid scripts are refused before a board is booted.
impl From<ScriptError> for Failure {
    fn from(error: ScriptError) -> Self {
        Failure::usage(error.to_string())
    }
}

/// The files that a replay reads.
pub fn inputs(args: &BenchReplayArgs) -> Vec<PathBuf> {
    let beside = args.beside.iter().map(|beside| beside.rsplit_once('@').map_or(beside.as_str(), |(path, _)| path));
    beside.map(PathBuf::from).chain([args.trace.clone()]).collect()
}

/// The checked script; with `--beside`, including the other scripts' tasks.
pub fn with_neighbours(args: &BenchReplayArgs, text: &str) -> Result<String, Failure> {
    let mut whole = flashscope_study::replays::Script::parse(&args.trace.display().to_string(), text)?;
    if args.beside.is_empty() {
        return Ok(text.to_owned());
    }
    for beside in &args.beside {
        let (path, start_ns) = match beside.rsplit_once('@') {
            None => (beside.as_str(), 0),
            Some((path, seconds)) => match seconds.parse::<f64>() {
                Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => (path, (seconds * 1e9) as u64),
                _ => return Err(Failure::usage(format!("--beside {beside}: after the @ come seconds, 0 to 86400"))),
            },
        };
        let text = flashscope_targets::read_text(Path::new(path), MAX_SCRIPT_BYTES as u64)
            .map_err(|error| Failure::new(format!("{path}: {error}")))?;
        whole.beside(flashscope_study::replays::Script::parse(path, &text)?, start_ns);
    }
    let text = whole.text();
    // Checks the limits of the sums too.
    flashscope_study::replays::Script::parse("--beside", &text)?;
    Ok(text)
}

/// Reads the trace and writes the script.
pub fn script(trace: &Trace, wanted: &Wanted<'_>) -> Result<Script, Failure> {
    let in_ram = devices_in_ram(trace);
    let mut found = Found::default();
    // Indexes in `reads` of the reads in a task's current call: sendfile() and similar calls read in pieces.
    let mut inside: HashMap<TaskId, Vec<usize>> = HashMap::new();
    // Tasks in a call, if the trace has calls: pages that they make dirty belong to the call.
    let mut calling: Option<HashSet<TaskId>> = None;
    let mut too_many = false;
    trace.for_each_access(&mut |pair| {
        if let Some(record) = pair.record
            && record.schema.name.starts_with("sys_")
        {
            // The first return after a read belongs to the read: a task is in one call at a time.
            let of_call = inside.remove(&record.tid()).unwrap_or_default();
            let calling = calling.get_or_insert_default();
            if record.schema.name.starts_with("sys_enter") {
                calling.insert(record.tid());
            } else {
                calling.remove(&record.tid());
            }
            if record.schema.name.starts_with("sys_exit") {
                let ret = match record.get("ret") {
                    Some(Value::Signed(ret)) => Some(u64::try_from(ret).unwrap_or(0)),
                    // A 32-bit kernel's `long`, or a format that calls it unsigned: an error is above every length.
                    Some(Value::Unsigned(ret)) => Some(if ret > u64::from(u32::MAX) - 4096 { 0 } else { ret }),
                    _ => None,
                };
                if let Some(ret) = ret {
                    returned(&mut found.reads, &of_call, ret);
                }
            }
        }
        let Some(event) = pair.event else { return };
        let EventKind::File(file) = &event.kind else { return };
        let id = file.file();
        let wanted = || {
            let device = file.device.map(|device| device.to_string());
            let of_device = match wanted.device {
                Some(wanted) => device.as_deref() == Some(wanted),
                None => device.is_none_or(|device| !in_ram.contains(&device)),
            };
            of_device && wanted.process.is_none_or(|name| trace.last_name(event.tid, event.time) == Some(name))
        };
        match file.step {
            FileStep::Cached => {
                let end = found.cached.entry(id).or_default();
                *end = (*end).max(file.offset.saturating_add(file.bytes));
            }
            FileStep::Dirtied if calling.as_ref().is_some_and(|calling| !calling.contains(&event.tid)) => {
                found.dirtied(event.tid, event.time, file);
            }
            FileStep::Read if !wanted() || file.bytes == 0 => drop(inside.remove(&event.tid)),
            FileStep::Fault if !wanted() => {}
            FileStep::Read | FileStep::Fault if found.is_full() => too_many = true,
            FileStep::Read => {
                inside.entry(event.tid).or_default().push(found.reads.len());
                let (offset, requested) = (file.offset, file.bytes);
                found.reads.push(Read { time: event.time, tid: event.tid, file: id, offset, requested, got: None });
            }
            FileStep::Fault => {
                if let Some(size) = file.size {
                    let known = found.sizes.entry(id).or_default();
                    *known = (*known).max(size);
                }
                let (time, tid, offset) = (event.time, event.tid, file.offset);
                found.fault(Fault { time, tid, file: id, offset, writes: false });
            }
            _ => {}
        }
    })?;
    if too_many {
        return Err(Failure::new(format!(
            "{}: more than {MAX_READS} reads and faults; take a part with --process or --device",
            trace.path().display()
        )));
    }
    if found.reads.is_empty() && found.faults.is_empty() {
        return Err(Failure::new(format!(
            "{}: it holds no such reads or faults of files; record with --events cache (and syscall), and see --process and --device",
            trace.path().display()
        )));
    }
    write(found, wanted.beyond, |tid, time| trace.last_name(tid, time))
}

/// File systems in memory: reading them again shows nothing about storage.
pub fn devices_in_ram(trace: &Trace) -> HashSet<String> {
    let mounts = trace.facts().mounts.iter();
    mounts
        .filter(|mount| {
            let kind = mount.kind.as_deref().unwrap_or_default();
            matches!(kind, "rootfs" | "ramfs" | "tmpfs" | "devtmpfs" | "proc" | "sysfs" | "tracefs" | "debugfs")
        })
        .filter_map(|mount| mount.device.clone())
        .collect()
}

/// A call returned the sum of its reads. Each read but the last one got all that it requested; otherwise there would be no next one.
fn returned(reads: &mut [Read], of_call: &[usize], ret: u64) {
    let mut left = ret;
    for &at in of_call {
        let got = left.min(reads[at].requested);
        reads[at].got = Some(got);
        left -= got;
    }
    // A value above the total request does not belong to these reads: an address, or another kind of count.
    if left > 0 {
        of_call.iter().for_each(|&at| reads[at].got = None);
    }
}

/// If the trace lacks return values, a later read of the same task and file that begins inside the previous one shows where that one ended:
/// at the end of the file.
fn infer(reads: &mut [Read]) {
    let mut last: HashMap<(TaskId, FileId), usize> = HashMap::new();
    for at in 0..reads.len() {
        let next = reads[at];
        if let Some(before) = last.insert((next.tid, next.file), at) {
            let before = &mut reads[before];
            let within = next.offset.checked_sub(before.offset).filter(|&got| 0 < got && got < before.requested);
            if before.got.is_none() && within.is_some() {
                before.got = within;
            }
        }
    }
}

/// The last known byte of each file, and the known sizes.
struct Sizes {
    ends: BTreeMap<FileId, u64>,
    known: HashMap<FileId, u64>,
}

/// A read that got less than it requested reached the end of its file. If the end is known, a read at or after it got nothing.
fn sizes(found: &mut Found) -> Sizes {
    let (mut ends, mut known) = (BTreeMap::<FileId, u64>::new(), std::mem::take(&mut found.sizes));
    for read in &found.reads {
        let got = read.got.unwrap_or(read.requested);
        if read.got.is_some_and(|got| 0 < got && got < read.requested) {
            known.insert(read.file, read.offset.saturating_add(got));
        }
        let end = ends.entry(read.file).or_default();
        *end = (*end).max(if got == 0 { 0 } else { read.offset.saturating_add(got) });
    }
    for read in &mut found.reads {
        if let (None, Some(&end)) = (read.got, known.get(&read.file)) {
            read.got = Some(end.saturating_sub(read.offset).min(read.requested));
            ends.insert(read.file, end);
        }
    }
    for fault in &found.faults {
        let end = ends.entry(fault.file).or_default();
        *end = (*end).max(fault.offset.saturating_add(1));
    }
    Sizes { ends, known }
}

/// A task's access to a file at a time.
type Step = (TimeNs, TaskId, FileId, Verb);

/// Successful reads and faults in order of time. A read is limited to the size of the agent's calls; a larger one becomes several.
fn steps(found: &Found) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for read in &found.reads {
        let (mut offset, mut left) = (read.offset, read.got.unwrap_or(read.requested));
        while left > 0 {
            let length = left.min(MAX_READ_BYTES);
            steps.push((read.time, read.tid, read.file, Verb::Read { offset, length }));
            offset = offset.saturating_add(length);
            left -= length;
        }
    }
    for fault in &found.faults {
        let verb = if fault.writes { Verb::FaultWrite(fault.offset) } else { Verb::Fault(fault.offset) };
        steps.push((fault.time, fault.tid, fault.file, verb));
    }
    steps.sort_by_key(|(time, ..)| *time);
    steps
}

fn write<'t>(
    mut found: Found,
    beyond: u64,
    comm: impl Fn(TaskId, TimeNs) -> Option<&'t str>,
) -> Result<Script, Failure> {
    infer(&mut found.reads);
    let Sizes { ends, known } = sizes(&mut found);
    let empty = found.reads.iter().filter(|read| read.got == Some(0)).count();
    found.reads.retain(|read| read.got != Some(0));
    let unconfirmed = found.reads.iter().filter(|read| read.got.is_none()).count();

    let mut script = replays::Script::default();
    let mut files: HashMap<FileId, usize> = HashMap::new();
    let mut tasks: HashMap<TaskId, usize> = HashMap::new();
    let mut open_ended = 0;
    let steps = steps(&found);
    let begin = steps.first().map_or(0, |(time, ..)| time.0);
    for (time, tid, file, verb) in steps {
        let file = *files.entry(file).or_insert_with(|| {
            let end = ends.get(&file).copied().unwrap_or_default();
            let size = match known.get(&file) {
                Some(&size) => size.max(end),
                None => {
                    open_ended += 1;
                    end.max(found.cached.get(&file).copied().unwrap_or_default()).saturating_add(beyond)
                }
            };
            let device = file.device.map_or_else(|| "?".to_owned(), |d| d.to_string());
            script.files.push(replays::File { size: Some(size), label: format!("{device}:{}", file.inode) });
            script.files.len() - 1
        });
        let task = *tasks.entry(tid).or_insert_with(|| {
            script.tasks.push(Task { name: comm(tid, time).unwrap_or("?").to_owned(), ..Task::default() });
            script.tasks.len() - 1
        });
        script.calls.push(Call { time_ns: time.0.saturating_sub(begin), took_ns: 0, task, file, verb });
    }
    if tasks.len() > MAX_TASKS {
        return Err(Failure::new(format!(
            "{} tasks read, at most {MAX_TASKS} are replayed; take a part with --process",
            tasks.len()
        )));
    }
    let text = script.text();
    if text.len() > MAX_SCRIPT_BYTES {
        return Err(Failure::new("the script becomes larger than 16 MiB; take a part with --process or --device"));
    }
    Ok(Script { text, reads: found.reads.len(), faults: found.faults.len(), open_ended, empty, unconfirmed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::Device;

    fn read(time: u64, tid: TaskId, inode: u64, offset: u64, requested: u64, got: Option<u64>) -> Read {
        Read { time: TimeNs(time), tid, file: FileId { device: Some(Device(31 << 20)), inode }, offset, requested, got }
    }

    fn of(reads: Vec<Read>, cached: &[(u64, u64)], beyond: u64) -> Script {
        let cached =
            cached.iter().map(|&(inode, end)| (FileId { device: Some(Device(31 << 20)), inode }, end)).collect();
        write(Found { reads, cached, ..Found::default() }, beyond, |_, _| Some("cat")).unwrap()
    }

    #[test]
    fn what_calls_returned_makes_sizes_and_lengths() {
        let reads = vec![
            read(100, TaskId(7), 1, 0, 4096, Some(4096)),
            read(150, TaskId(8), 2, 10, 5, Some(5)),
            read(200, TaskId(7), 1, 4096, 4096, Some(904)),
            read(300, TaskId(7), 1, 5000, 4096, Some(0)),
        ];
        let script = of(reads, &[(2, 8192)], 1000);
        assert_eq!(
            script.text,
            "flashscope-replay 2\nfile 5000 31:0:1\nfile 9192 31:0:2\ntask cat\ntask cat\n\
             read 0 0 0 0 4096\nread 50 1 1 10 5\nread 100 0 0 4096 904\n"
        );
        assert_eq!((script.reads, script.open_ended, script.empty, script.unconfirmed), (3, 1, 1, 0));
    }

    /// `cat` without events of its calls: a read ends where the next one begins.
    #[test]
    fn a_next_read_tells_where_the_file_ended() {
        let reads = vec![read(0, TaskId(7), 1, 0, 131_072, None), read(9, TaskId(7), 1, 5000, 131_072, None)];
        let script = of(reads, &[(1, 8192)], 1 << 20);
        assert_eq!(script.text, "flashscope-replay 2\nfile 5000 31:0:1\ntask cat\nread 0 0 0 0 5000\n");
        assert_eq!((script.reads, script.open_ended, script.empty, script.unconfirmed), (1, 0, 1, 0));
    }

    /// BusyBox's cat: sendfile() reads in pieces of a pipe's size, the last one at the end of the file.
    #[test]
    fn a_call_of_several_reads_returns_their_sum() {
        let piece = |at: u64| read(at, TaskId(7), 1, at * 65_536, 65_536, None);
        let got = |ret: u64| -> Vec<Option<u64>> {
            let mut reads: Vec<Read> = (0..3).map(piece).collect();
            returned(&mut reads, &[0, 1, 2], ret);
            reads.iter().map(|read| read.got).collect()
        };
        assert_eq!(got(100_000), [Some(65_536), Some(34_464), Some(0)]);
        assert_eq!(got(131_072), [Some(65_536), Some(65_536), Some(0)]);
        assert_eq!(got(0), [Some(0), Some(0), Some(0)]);
        assert_eq!(got(196_609), [None, None, None]);
        assert_eq!(got(u64::MAX), [None, None, None]);
        returned(&mut [], &[], 7);
    }

    /// A page that becomes dirty after its fault was written; so was another page of the file that had been read before.
    #[test]
    fn faults_stand_between_reads_and_those_that_write_are_told_apart() {
        let (tid, file) = (TaskId(7), FileId { device: Some(Device(31 << 20)), inode: 3 });
        let fault = |time, offset| Fault { time: TimeNs(time), tid, file, offset, writes: false };
        let mut found = Found {
            reads: vec![read(250, TaskId(7), 1, 0, 4096, Some(4096))],
            sizes: HashMap::from([(file, 9000)]),
            ..Found::default()
        };
        found.fault(fault(100, 0));
        found.fault(fault(200, 8192));
        let dirtied = |inode, offset| FileEvent {
            step: FileStep::Dirtied,
            device: None,
            inode,
            offset,
            bytes: 4096,
            size: None,
            got: None,
            block: 0,
        };
        found.dirtied(tid, TimeNs(210), &dirtied(3, 8192));
        found.dirtied(tid, TimeNs(300), &dirtied(3, 0));
        found.dirtied(tid, TimeNs(310), &dirtied(4, 0));
        found.dirtied(TaskId(8), TimeNs(320), &dirtied(3, 0));
        let script = write(found, 0, |_, _| Some("a player")).unwrap();
        assert_eq!(
            script.text,
            "flashscope-replay 2\nfile 9000 31:0:3\nfile 4096 31:0:1\ntask a%20player\n\
             fault 0 0 0 0\nfault-write 100 0 0 8192\nread 150 0 1 0 4096\nfault-write 200 0 0 0\n"
        );
        assert_eq!((script.reads, script.faults, script.open_ended), (1, 3, 1));
        replays::Script::parse("s", &script.text).unwrap();
    }

    #[test]
    fn huge_and_odd_numbers_make_a_script_or_an_error() {
        let reads = vec![read(5, TaskId(7), 1, u64::MAX - 1, 1 << 30, None), read(3, TaskId(7), 1, 0, 1, None)];
        let script = of(reads, &[], u64::MAX);
        assert_eq!(script.reads, 2);
        let reads = (0..300).map(|tid| read(0, TaskId(tid), 1, 0, 1, None)).collect();
        let many = Found { reads, ..Found::default() };
        assert!(write(many, 0, |_, _| None).unwrap_err().to_string().contains("300 tasks"));
    }
}
