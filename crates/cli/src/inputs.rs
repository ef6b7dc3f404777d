//! The input traces of a command: one, or several in order of time.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::PathBuf;

use flashscope_analysis::{LossCount, Member, OWN_RECORDING, task_name};
use flashscope_study::Pattern;
use flashscope_trace::{
    Alignment, Device, DeviceNames, Event, EventKind, FileId, FileNames, Loss, Losses, MergedTrace, Process, TaskId,
    TimeNs, Trace,
};

use crate::failure::Failure;

/// `--offset NAME=NANOSECONDS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offset {
    name: String,
    ns: i64,
}

/// Parses an offset.
pub fn offset(text: &str) -> Result<Offset, String> {
    let (name, ns) = text.rsplit_once('=').ok_or("a trace's name, an equals sign and nanoseconds are needed")?;
    let ns = ns.parse().map_err(|_| format!("\"{ns}\" is not a number of nanoseconds"))?;
    Ok(Offset { name: name.to_owned(), ns })
}

/// Parses the size of a logical block.
pub fn block_size(text: &str) -> Result<u64, String> {
    let bytes = text.parse().ok().filter(|&bytes: &u64| bytes.is_power_of_two() && (512..=65536).contains(&bytes));
    bytes.ok_or_else(|| "not the size of a logical block in bytes, such as 512 or 4096".to_owned())
}

/// Parses the pattern of `bench`.
pub fn pattern(text: &str) -> Result<Pattern, String> {
    match text {
        "sequential" => Ok(Pattern::Sequential),
        "random" => Ok(Pattern::Random),
        _ => Err("sequential or random".to_owned()),
    }
}

/// Traces on the clock of the first.
pub struct Inputs {
    merged: MergedTrace,
    /// For each source, the first source from the same machine.
    machines: Vec<usize>,
    /// For each source, the tasks of the recorder itself, from the recording's facts.
    own: Vec<Vec<TaskId>>,
    /// For each source, the files that a recording with `--device` is about.
    recorded: Vec<Option<RecordedFiles>>,
}

/// Events of writeback name a whole disk. So a recording of a partition, or of a loop device in a file, also has events of the disk's other
/// files, which do not belong to it.
struct RecordedFiles {
    devices: HashSet<Device>,
    /// Files of loop devices.
    backing: HashSet<FileId>,
}

impl RecordedFiles {
    fn of(trace: &Trace) -> Option<RecordedFiles> {
        let facts = trace.facts();
        let names = trace.device_names();
        let number = |name: &String| {
            let disk = facts.block.iter().find(|disk| disk.name.as_ref() == Some(name));
            disk.and_then(|disk| Device::parse(disk.device.as_deref()?)).or_else(|| names.find(name))
        };
        let devices: HashSet<Device> = facts.recording.filter.devices.iter().filter_map(number).collect();
        let loops = facts.block.iter().map(|disk| &disk.of_loop);
        let backing = loops.filter_map(|one| Some(FileId::on(Device::parse(one.device.as_deref()?)?, one.inode?)));
        (!devices.is_empty()).then(|| RecordedFiles { devices, backing: backing.collect() })
    }

    /// Whether an event belongs to the recording, and not to a file on another disk. File systems like btrfs have a device number without a
    /// device.
    fn has(&self, event: &Event) -> bool {
        let EventKind::File(file) = &event.kind else { return true };
        let Some(device) = file.device.filter(|device| device.major() > 0) else { return true };
        self.devices.contains(&device) || self.backing.contains(&FileId::on(device, file.inode))
    }
}

impl Inputs {
    /// Opens the given traces.
    #[cfg(test)]
    pub fn open(paths: &[PathBuf], offsets: &[Offset]) -> Result<Inputs, Failure> {
        Inputs::open_with(paths, offsets, None)
    }

    /// The error for traces of commands that count in logical blocks, if the size of these is not given.
    pub fn without_block_size(&self) -> Option<Failure> {
        let is_unsized =
            |trace: &&Trace| trace.commands().is_some_and(|commands| !commands.without_block_size.is_empty());
        let trace = self.traces().find(is_unsized)?;
        let events = trace.commands().map(|commands| commands.without_block_size.join(", ")).unwrap_or_default();
        Some(Failure::new(format!(
            "{}: has a driver's commands ({events}) and no events of the block layer. They count in logical blocks, whose size is not in the \
             trace: add --block-size with what /sys/block/DEVICE/queue/logical_block_size says on that machine (512 or 4096 on most). \
             A recording with block events tells more: `trace-cmd record -e block`, `flashscope record --events block`",
            trace.path().display()
        )))
    }

    /// Opens the given traces. Several traces are refused if nothing ties their clocks together.
    /// `block_bytes`: of a logical block, for drivers' events that count in blocks.
    pub fn open_with(paths: &[PathBuf], offsets: &[Offset], block_bytes: Option<u64>) -> Result<Inputs, Failure> {
        let mut alignments = vec![Alignment::Auto; paths.len()];
        for Offset { name, ns } in offsets {
            let called = |path: &PathBuf| path.as_os_str() == name.as_str() || path.file_name() == Some(name.as_ref());
            let found: Vec<usize> = (0..paths.len()).filter(|&i| called(&paths[i])).collect();
            match found[..] {
                [one] => alignments[one] = Alignment::OffsetNs(*ns),
                [] => return Err(Failure::usage(format!("--offset {name}: no trace has this name"))),
                _ => {
                    return Err(Failure::usage(format!(
                        "--offset {name}: several traces have this name; give the path instead"
                    )));
                }
            }
        }
        let open = |set: Vec<usize>| {
            let names: Vec<PathBuf> = set.iter().map(|&i| paths[i].clone()).collect();
            let given = set.iter().map(|&i| alignments[i].clone()).find(|alignment| *alignment != Alignment::Auto);
            let mut trace = Trace::open_set(&names)?;
            if let Some(bytes) = block_bytes {
                trace.set_block_size(bytes);
            }
            Ok((trace, given.unwrap_or(Alignment::Auto)))
        };
        let traces: Result<Vec<_>, flashscope_trace::Error> = Trace::sets(paths).into_iter().map(open).collect();
        Ok(Inputs::of(MergedTrace::new(traces?)?))
    }

    /// A single open trace.
    pub fn one(trace: Trace) -> Result<Inputs, Failure> {
        Ok(Inputs::of(MergedTrace::new(vec![(trace, Alignment::Auto)])?))
    }

    fn of(merged: MergedTrace) -> Inputs {
        let boot = |i: usize| merged.sources()[i].trace.facts().kernel.boot_id.as_deref();
        let machines = (0..merged.sources().len())
            .map(|i| (0..i).find(|&before| boot(before).is_some() && boot(before) == boot(i)).unwrap_or(i))
            .collect();
        let own = merged.sources().iter().map(|source| source.trace.facts().recording.own.tasks.clone()).collect();
        let recorded = merged.sources().iter().map(|source| RecordedFiles::of(&source.trace)).collect();
        Inputs { merged, machines, own, recorded }
    }

    pub fn merged(&self) -> &MergedTrace {
        &self.merged
    }

    /// The only trace; `None` if there are several.
    pub fn only(&self) -> Option<&Trace> {
        match self.merged.sources() {
            [one] if one.offset_ns == 0 => Some(&one.trace),
            _ => None,
        }
    }

    pub fn traces(&self) -> impl Iterator<Item = &Trace> + Clone {
        self.merged.sources().iter().map(|s| &s.trace)
    }

    /// The first trace from the same machine, by index.
    pub fn machine(&self, source: usize) -> usize {
        self.machines[source]
    }

    /// Whether the traces may be from different machines.
    pub fn of_several_machines(&self) -> bool {
        self.machines.iter().any(|&machine| machine > 0)
    }

    /// Every event with the index of its trace.
    pub fn for_each(&self, f: &mut dyn FnMut(usize, &Event)) -> Result<(), Failure> {
        if self.recorded.iter().all(Option::is_none) {
            return self.for_each_of_all(f);
        }
        self.for_each_of_all(&mut |source, event| {
            if self.recorded[source].as_ref().is_none_or(|recorded| recorded.has(event)) {
                f(source, event);
            }
        })
    }

    fn for_each_of_all(&self, f: &mut dyn FnMut(usize, &Event)) -> Result<(), Failure> {
        match self.only() {
            Some(trace) => trace.for_each(&mut |event| f(0, event))?,
            None => self.merged.for_each(f)?,
        }
        Ok(())
    }

    /// The last name of a thread, for all I/O of the thread under any name.
    pub fn comm(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<&str> {
        if self.recorder(source, tid).is_some() {
            Some(OWN_RECORDING)
        } else {
            self.merged.last_name(source, tid, time)
        }
    }

    /// The name of a thread at this time, where it has another one later (`exec`).
    pub fn former_name(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<&str> {
        let then = self.merged.comm(source, tid, time)?;
        (self.recorder(source, tid).is_none() && self.merged.last_name(source, tid, time) != Some(then)).then_some(then)
    }

    /// The ordinal, from 1, among the tasks with a thread's number and last name.
    pub fn task_ordinal(&self, source: usize, tid: TaskId, time: TimeNs) -> u32 {
        self.merged.task_ordinal(source, tid, time)
    }

    /// A thread for the tables of threads: its last name and its ordinal.
    pub fn thread(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<Member<'_>> {
        let name = Cow::Borrowed(self.comm(source, tid, time)?);
        let ordinal = self.task_ordinal(source, tid, time);
        let former_name = self.former_name(source, tid, time);
        Some(Member { name, key: None, ordinal, is_wanted: false, former_name, holds: 0..0 })
    }

    /// Earlier names of a task of the first machine. `name` may end with the task's number.
    pub fn former_names(&self, tid: TaskId, name: &str) -> Vec<String> {
        let name = task_name(name);
        let traces = self.traces().enumerate().filter(|(source, _)| self.machine(*source) == 0);
        let found = traces.map(|(_, trace)| trace.former_names(tid, name)).find(|names| !names.is_empty());
        found.unwrap_or_default().into_iter().map(str::to_owned).collect()
    }

    /// Whether only events of some devices were recorded (`record --device`).
    pub fn is_of_device(&self) -> bool {
        self.traces().any(|trace| !trace.facts().recording.filter.device.is_empty())
    }

    /// Whether any trace names the recorder's own threads.
    pub fn has_recorder(&self) -> bool {
        self.own.iter().any(|own| !own.is_empty())
    }

    /// The recorder's number, if the thread is one of the recorder's.
    pub fn recorder(&self, source: usize, tid: TaskId) -> Option<TaskId> {
        let own = self.own.get(source)?;
        own.contains(&tid).then(|| own[0])
    }

    /// The process of a thread; `None` if its trace does not show it.
    pub fn process(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<Process<'_>> {
        self.merged.process(source, tid, time)
    }

    /// Paths of files on the first trace's machine, and names of its devices.
    pub fn names(&self) -> (FileNames, DeviceNames) {
        let (mut files, mut devices) = (FileNames::default(), DeviceNames::default());
        for (source, trace) in self.traces().enumerate().filter(|(source, _)| self.machine(*source) == 0) {
            files.extend(trace.file_names().later_by(self.merged.sources()[source].offset_ns));
            devices.extend(trace.device_names());
        }
        (files, devices)
    }

    /// CPUs without a file in blktrace's sets.
    pub fn cpus_missing(&self) -> Vec<u64> {
        self.traces().flat_map(|trace| trace.facts().blktrace.cpus_missing.clone()).collect()
    }

    /// All loss counters of the traces together, zero counts included.
    pub fn losses(&self) -> Vec<LossCount> {
        let losses: Losses = self.merged.losses();
        let count = |(loss, count): (Loss, u64)| LossCount {
            name: loss.name().to_owned(),
            count,
            meaning: match (loss, self.cpus_missing().as_slice()) {
                (Loss::CpuFilesMissing, [_, ..]) => {
                    let cpus: Vec<String> = self.cpus_missing().iter().map(u64::to_string).collect();
                    format!("the file of CPU {} is not there: {}", cpus.join(", "), loss.meaning())
                }
                _ => loss.meaning().to_owned(),
            },
        };
        losses.iter().map(count).collect()
    }

    /// Names of the traces, and offsets of those with another clock.
    pub fn title(&self) -> String {
        let names = self.merged.sources().iter().map(|source| {
            let path = source.trace.path();
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            match (source.offset_ns, source.spread_ns) {
                (0, 0) => name.into_owned(),
                (offset, 0) => format!("{name} ({offset:+} ns)"),
                (offset, spread) => format!("{name} ({offset:+} ns, markers {spread} ns apart)"),
            }
        });
        names.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_a_name_and_nanoseconds() {
        let of = |name: &str, ns| Ok(Offset { name: name.to_owned(), ns });
        assert_eq!(offset("b.dat=-5"), of("b.dat", -5));
        assert_eq!(offset("run=2/b.dat=1000000000"), of("run=2/b.dat", 1_000_000_000));
        assert_eq!(offset("=0"), of("", 0));
        for bad in ["b.dat", "b.dat=", "b.dat=1s", "b.dat=1.5", "b.dat=9223372036854775808"] {
            assert!(offset(bad).is_err(), "{bad}");
        }
    }

    /// Lines of ftrace's text: a task that reads a page each second.
    fn text(dir: &std::path::Path, name: &str, begin: u32, marker: &str) -> PathBuf {
        let mut text = String::from("# tracer: nop\n");
        let line = |time: u32, what: &str| format!("         {name}-7       [000] .....     {time}.000000: {what}\n");
        text += &line(begin, &format!("tracing_mark_write: {marker}"));
        (1..4).for_each(|i| text += &line(begin + i, &format!("nand_read: page={i}")));
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn several_traces_need_a_marker_or_an_offset() {
        let dir = std::env::temp_dir().join(format!("flashscope-inputs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (a, b) = (text(&dir, "one", 10, "flashscope-sync 1"), text(&dir, "two", 100, "other"));
        let c = text(&dir, "six", 1000, "flashscope-sync 1");
        let pages = |inputs: &Inputs| {
            let mut times = Vec::new();
            inputs.for_each(&mut |source, event| times.push((source, event.time.0 / 1_000_000_000))).unwrap();
            times
        };

        let alone = Inputs::open(std::slice::from_ref(&a), &[]).unwrap();
        assert_eq!(pages(&alone), [(0, 10), (0, 11), (0, 12), (0, 13)]);
        let refused = Inputs::open(&[a.clone(), b.clone()], &[]).err().unwrap().to_string();
        assert!(refused.contains("two: its times cannot be compared with those of"), "{refused}");
        assert!(refused.contains("--offset NAME=NANOSECONDS"), "{refused}");

        let both = [a.clone(), b.clone()];
        let want = [(0, 10), (1, 10), (0, 11), (1, 11), (0, 12), (1, 12), (0, 13), (1, 13)];
        for name in ["two", b.to_str().unwrap()] {
            let by = offset(&format!("{name}=-90000000000")).unwrap();
            let inputs = Inputs::open(&both, std::slice::from_ref(&by)).unwrap();
            assert_eq!(pages(&inputs), want);
            assert_eq!(inputs.title(), "one, two (-90000000000 ns)");
            assert!(inputs.of_several_machines() && inputs.only().is_none());
            assert_eq!(inputs.comm(1, TaskId(7), TimeNs(11_000_000_000)), Some("two"));
        }
        let by_marker = Inputs::open(&[a.clone(), c], &[]).unwrap();
        assert_eq!(pages(&by_marker), want);
        for (name, says) in [("three", "no trace has this name"), ("one", "several traces have this name")] {
            let by = offset(&format!("{name}=1")).unwrap();
            let failed = Inputs::open(&[a.clone(), a.clone()], &[by]).err().unwrap().to_string();
            assert!(failed.contains(says), "{failed}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
