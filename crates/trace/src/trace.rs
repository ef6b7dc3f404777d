//! A trace of any format, behind one interface.

use crate::decode::Geometry;
use crate::decode::commands::Commands;
use crate::decode::names::Names;
use crate::decode::reads::{self, Reads};
use crate::error::Error;
use crate::events::layer::Crossings;
use crate::events::phase::{Mark, Phase, Phases};
use crate::events::shown::CacheShown;
use crate::events::{Event, TimeNs};
use crate::facts::Facts;
use crate::formats;
use crate::formats::blktrace::{self, Found};
use crate::formats::recorded::{Blob, Ring};
use crate::formats::stream::Session;
use crate::identity::{DeviceNames, FileNames, Process, ProcessReader, Processes};
use crate::ids::TaskId;
use crate::input::Input;
use crate::kind::TraceKind;
use crate::losses::{Loss, Losses, Severity};
use crate::pairs::Pair;
use crate::record::Record;
use crate::ring::schema::Schema;
use crate::source::{Beside, Opened, Source};
use serde_json::Value;
use std::any::Any;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A trace. It can be read any number of times, in bounded memory.
#[derive(Debug)]
pub struct Trace {
    pub(crate) path: PathBuf,
    pub(crate) kind: TraceKind,
    pub(crate) facts: Value,
    pub(crate) known: OnceLock<Facts>,
    pub(crate) stats: Value,
    pub(crate) phases: Phases,
    pub(crate) source: Box<dyn Source>,
    /// Set by the source when a pass meets a record before which others are missing.
    gap: Option<Arc<AtomicBool>>,
    /// Counted by the source when a pass meets the beginning of another recording.
    recordings: Option<Arc<AtomicU64>>,
    /// Losses before the events were decoded.
    pub(crate) base_losses: Losses,
    /// All losses, known after the first pass.
    losses: OnceLock<Losses>,
    pub(crate) names: OnceLock<Names>,
    reads: OnceLock<Reads>,
    commands: OnceLock<Option<Commands>>,
    /// Bytes of a logical block, for drivers' events that do not tell it.
    block_bytes: Option<u64>,
    pub(crate) processes: OnceLock<Processes>,
    pub(crate) initial_names: Names,
}

impl Trace {
    /// Opens a trace of any known format. The contents decide the format, not the file name.
    ///
    /// A stream with more than one recording is refused: open it as a [`crate::Session`]. For blktrace's per-CPU files, any one file, their
    /// common name (`sda` for `sda.blktrace.0` …) or their directory opens all of them. `-` is standard input. Standard input and pipes may
    /// hold any trace; they are kept in a nameless temporary file.
    pub fn open(path: &Path) -> Result<Trace, Error> {
        match blktrace::find(path)? {
            Found::Parts(parts) => return Ok(Trace::of_opened(path, blktrace::of_parts(path, &parts)?)),
            Found::Spooled(input) => return Trace::of(path, input),
            Found::File => {}
        }
        Trace::of(path, Input::open(path).map_err(|e| Error::io(path, "open", e))?)
    }

    /// Groups these names by trace, by their location: blktrace's per-CPU files that are named one by one, and its sets for several devices
    /// in one directory, are one trace. Every other file is a trace of its own.
    pub fn sets(paths: &[PathBuf]) -> Vec<Vec<usize>> {
        blktrace::sets(paths)
    }

    /// Opens the files of one trace, as [`Trace::sets`] grouped them.
    pub fn open_set(paths: &[PathBuf]) -> Result<Trace, Error> {
        match paths {
            [one] => Trace::open(one),
            several => {
                let (name, parts) = blktrace::find_all(several)?;
                Ok(Trace::of_opened(&name, blktrace::of_parts(&name, &parts)?))
            }
        }
    }

    /// Reads a trace that is in memory. Messages name it `path`, which need not exist.
    pub fn from_bytes(path: &Path, bytes: Arc<[u8]>) -> Result<Trace, Error> {
        Trace::of(path, Input::Memory(bytes))
    }

    /// Reads the contents of blktrace's per-CPU files, CPU 0's first. Messages name them `path`.
    pub fn from_blktrace_parts(path: &Path, parts: &[Arc<[u8]>]) -> Result<Trace, Error> {
        Ok(Trace::of_opened(path, blktrace::of_memory(path, parts)?))
    }

    fn of(path: &Path, input: Input) -> Result<Trace, Error> {
        Ok(Trace::of_opened(path, formats::open(path, input)?))
    }

    fn source_as<S: Source>(&self) -> Option<&S> {
        let source: &dyn Any = &*self.source;
        source.downcast_ref()
    }

    /// The ring buffers; `None` for formats without them. A trace.dat can be written only from ring buffers.
    pub(crate) fn ring(&self) -> Option<&Ring> {
        self.source_as()
    }

    /// Makes a trace of what a format has opened.
    pub(crate) fn of_opened(path: &Path, opened: Opened) -> Trace {
        let Opened { kind, source, facts, stats, phases, losses, names } = opened;
        Trace {
            path: path.to_path_buf(),
            kind,
            facts,
            known: OnceLock::new(),
            stats,
            phases,
            gap: source.gap(),
            recordings: source.recordings(),
            source,
            base_losses: losses,
            losses: OnceLock::new(),
            names: OnceLock::new(),
            reads: OnceLock::new(),
            commands: OnceLock::new(),
            block_bytes: None,
            processes: OnceLock::new(),
            initial_names: names,
        }
    }

    /// Sets how many threads read, unpack and split sub-buffers ahead of the consumer of the records. 0: the caller's thread does all of
    /// it. Records, their order and all counts stay the same. Without this call, only packed files (trace.dat version 7 with zlib or zstd)
    /// are read ahead, and only if there is more than one core: docs/explanation/measurement.md gives the gain. The caller's thread reads
    /// traces without ring buffers, and those whose sub-buffers or number of CPUs are too large for bounded memory.
    pub fn set_threads(&mut self, threads: usize) {
        self.source.set_threads(threads);
    }

    /// Sets the bytes of a logical block, for events of drivers that do not tell it; before the trace is read.
    pub fn set_block_size(&mut self, bytes: u64) {
        self.block_bytes = Some(bytes);
    }

    /// The drivers' commands that are the requests of a trace without any step of the block layer; `None` for other traces. The first call
    /// reads the whole trace once, if it has such events.
    pub fn commands(&self) -> Option<&Commands> {
        let of = || {
            Commands::of(self.schemas(), self.block_bytes, |f| {
                // An error leaves the commands that were found before it.
                let _ = self.for_each_record(&mut |record| f(record));
            })
        };
        self.commands.get_or_init(of).as_ref()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn kind(&self) -> TraceKind {
        self.kind
    }

    /// Facts about board, kernel, chips and recorder. A fact that the trace does not carry is unknown.
    pub fn facts(&self) -> &Facts {
        self.known.get_or_init(|| Facts::of(&self.facts))
    }

    /// The facts as the recorder wrote them (`docs/reference/agent.md`, "Facts"), for exports; null if there are none.
    pub fn facts_json(&self) -> &Value {
        &self.facts
    }

    /// The kernel's counts at the end of the recording (`docs/reference/agent-protocol.md`, `FS_STATS`); null if there are none.
    pub fn stats(&self) -> &Value {
        &self.stats
    }

    /// Phases in order of their beginning.
    pub fn phases(&self) -> &[Phase] {
        &self.phases.phases
    }

    pub fn marks(&self) -> &[Mark] {
        &self.phases.marks
    }

    /// The clock of all times, by the kernel's name: `mono` for flashscope's recordings. `flashmon` counts from when Flashmon was loaded.
    pub fn clock(&self) -> &str {
        self.source.clock()
    }

    /// CPUs of the recorded machine.
    pub fn cpus(&self) -> u32 {
        self.source.cpus()
    }

    /// The formats of the trace's events.
    pub fn schemas(&self) -> impl Iterator<Item = &Arc<Schema>> + '_ {
        self.source.schemas()
    }

    /// The kernel's symbols, as `/proc/kallsyms` has them; `None` where the trace does not carry them.
    pub fn symbols(&self) -> Option<String> {
        let ring = self.ring()?;
        let text = Blob::read(ring.kallsyms.as_ref(), &ring.file).ok()?;
        (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    /// Whether events are missing, as far as is known before the trace is read. Text cannot show that somebody deleted lines.
    pub fn may_miss_events(&self) -> bool {
        let losses = self.losses.get().unwrap_or(&self.base_losses);
        let data = |loss: &Loss| loss.severity() == Severity::Data && losses.get(*loss) > 0;
        !self.source.counts_missing() || self.met_gap() || Loss::ALL.iter().any(data)
    }

    /// Whether events may be missing that the trace does not count. The kernel's side of blktrace does not number the events that it drops
    /// (`__blk_add_trace`); only blktrace's own output says how many there were.
    pub fn has_uncounted_drops(&self) -> bool {
        self.source.has_uncounted_drops()
    }

    /// Whether a pass has met a record before which others are missing (blktrace numbers its records).
    #[inline]
    pub fn met_gap(&self) -> bool {
        self.gap.as_ref().is_some_and(|gap| gap.load(Ordering::Relaxed))
    }

    /// How many further recordings a pass over a text has met: nothing that was in flight before one began can end in it.
    #[inline]
    pub fn recordings_met(&self) -> u64 {
        self.recordings.as_ref().map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Whether a later recording in the text has earlier times than one before, so that they have no clock in common. Reads the whole trace
    /// where it may be so.
    pub(crate) fn recordings_fall_back(&self) -> bool {
        self.source.recordings_fall_back()
    }

    /// All known losses, zero counts included. Reads the whole trace once, unless `for_each` has done so.
    pub fn losses(&self) -> Losses {
        if let Some(losses) = self.losses.get() {
            return losses.clone();
        }
        if let Err(_io) = self.for_each(&mut |_| {}) {
            // The readable part was counted; an unreadable rest counts as cut.
            let mut losses = self.base_losses.clone();
            losses.add(Loss::DataCut, 1);
            return losses;
        }
        self.losses.get().unwrap_or(&self.base_losses).clone()
    }

    /// Hands every event to `f`, oldest first, phases among them. The event is valid during the call only.
    pub fn for_each<F: FnMut(&Event) + ?Sized>(&self, f: &mut F) -> Result<(), Error> {
        // The loop over blktrace's records is compiled for each `f`: a call for each record would cost as much as decoding it.
        if let Some(log) = self.source_as::<blktrace::Log>() {
            let decoded = log.for_each(f).map_err(|e| Error::io(&self.path, "read", e))?;
            self.set_losses(&decoded);
            return Ok(());
        }
        self.for_each_of_any(&mut |event: &Event| f(event))
    }

    fn for_each_of_any(&self, f: &mut dyn FnMut(&Event)) -> Result<(), Error> {
        self.for_each_access(&mut |pair| pair.event.into_iter().for_each(&mut *f))
    }

    /// The boundaries between kernel layers that the trace's events show.
    pub fn crossings(&self) -> Crossings {
        Crossings::of(self.facts(), self.schemas(), || self.symbols())
    }

    /// Whether the trace shows splits of bios. blktrace cannot select single events, so it always does.
    pub fn shows_splits(&self) -> bool {
        self.source_as::<blktrace::Log>().is_some() || self.schemas().any(|schema| schema.name == "block_split")
    }

    /// Which events of the page cache the trace has.
    pub fn cache_shown(&self) -> CacheShown {
        CacheShown::of(self.schemas())
    }

    /// File reads that only the kernel's `mm_filemap_get_pages` shows: all reads, or those that our probes do not see. The first call reads
    /// the whole trace once.
    pub(crate) fn reads(&self) -> &Reads {
        self.reads.get_or_init(|| {
            let needed = reads::are_needed(self.schemas());
            if needed == reads::Needed::Nothing {
                return Reads::default();
            }
            let page = Geometry::from_facts(self.facts()).page_size.unwrap_or(4096);
            let mut finder = reads::Finder::new(page, needed == reads::Needed::Unprobed);
            let mut met = 0;
            // An error leaves the reads that were found before it.
            let _ = self.for_each_record(&mut |record| {
                if self.recordings_met() > met {
                    met = self.recordings_met();
                    finder.recording_begins();
                }
                finder.record(record);
            });
            finder.finish()
        })
    }

    /// Keeps the losses of a whole pass.
    pub(crate) fn set_losses(&self, decoded: &Losses) {
        let mut losses = self.base_losses.clone();
        losses.merge(decoded);
        let further = self.names.get().map_or(0, |names| names.dropped.saturating_sub(self.initial_names.dropped));
        losses.add(Loss::NamesDropped, further);
        losses.add(Loss::ReadsNotFollowed, self.reads.get().map_or(0, |reads| reads.not_followed));
        let _ = self.losses.set(losses);
    }

    /// Hands every record to `f`, oldest first. The record is valid during the call only.
    pub fn for_each_record(&self, f: &mut dyn FnMut(&Record<'_>)) -> Result<(), Error> {
        self.source.for_each_record(f).map_err(|e| Error::io(&self.path, "read", e)).map(drop)
    }

    /// A thread's name at a time; `None` if the trace does not know it. The text is untrusted: escape it before printing. For a trace
    /// without flashscope's own task events, the first call reads the whole trace once.
    pub fn comm(&self, tid: TaskId, time: TimeNs) -> Option<&str> {
        self.names().get(tid, time.0)
    }

    /// The last name of the thread that has this number at this time: an `exec` renames a process and does not make another one. Needs the
    /// event of the change (`task_rename`, `sched_process_exec`).
    pub fn last_name(&self, tid: TaskId, time: TimeNs) -> Option<&str> {
        self.names().last_of_task(tid, time.0)
    }

    /// The ordinal, from 1, among the tasks that had this number and this last name: the kernel reuses the number of a task that ended.
    /// Needs events of clones (`task_newtask`, `sched_process_fork`).
    pub fn task_ordinal(&self, tid: TaskId, time: TimeNs) -> u32 {
        self.names().ordinal(tid, time.0)
    }

    /// The range of time around `time` in which the thread's name and last name do not change; the end is exclusive.
    pub fn names_hold(&self, tid: TaskId, time: TimeNs) -> Range<u64> {
        self.names().hold(tid, time.0)
    }

    /// Earlier names of the thread whose last name is `last`.
    pub fn former_names(&self, tid: TaskId, last: &str) -> Vec<&str> {
        self.names().former_of_task(tid, last)
    }

    /// Every thread that has a name in the trace, with its last name, ordered by number.
    pub fn tasks(&self) -> Vec<(TaskId, &str)> {
        self.names().last()
    }

    /// Threads that are not kernel threads: the trace has their clone or their `exec`.
    pub fn user_tasks(&self) -> &std::collections::HashSet<TaskId> {
        self.names().users()
    }

    pub(crate) fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let mut names = self.initial_names.clone();
            self.source.names(&mut names);
            names.number_tasks();
            names
        })
    }
}

impl Session {
    /// The trace of one of `recordings`.
    pub fn recording(&self, index: usize) -> Result<Trace, Error> {
        Ok(Trace::of_opened(self.path(), self.opened(index)?))
    }
}

/// Names and processes.
impl Trace {
    /// The process of a thread at a time, with its application; `None` if the trace does not show it.
    pub fn process(&self, tid: TaskId, time: TimeNs) -> Option<Process<'_>> {
        self.processes().get(self.names(), tid, time)
    }

    /// Paths of the files in the recording.
    pub fn file_names(&self) -> FileNames {
        FileNames::of_facts(&self.facts)
    }

    /// Names of the machine's devices.
    pub fn device_names(&self) -> DeviceNames {
        DeviceNames::of_facts(&self.facts)
    }

    fn processes(&self) -> &Processes {
        self.processes.get_or_init(|| {
            let ring = self.ring();
            let command = self.phases().iter().find(|phase| phase.name == "command" && phase.pid.0 != 0);
            let command = command.map(|phase| phase.pid.into());
            let mut reader = ProcessReader::new(&self.facts, ring.map(|ring| &*ring.schemas), command);
            if reader.is_useful()
                && let Some(ring) = ring
            {
                // An error leaves what was read before it.
                let _ = ring.for_each_of_tasks(|record| reader.record(record.time.0, record.schema, record.data));
            }
            reader.finish()
        })
    }
}

/// Records beside their events.
impl Trace {
    /// Hands every record with its event to `f`, oldest first, phases among them. Both are valid during the call only.
    pub fn for_each_pair(&self, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        self.pairs(&Reads::default(), f)
    }

    /// Like [`Trace::for_each_pair`], plus file reads that only `mm_filemap_get_pages` shows, as events without a record.
    pub fn for_each_access(&self, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        self.pairs(self.reads(), f)
    }

    fn pairs(&self, reads: &Reads, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        let (geometry, facts) = (Geometry::from_facts(self.facts()), self.facts_json());
        let beside = Beside { geometry, facts, reads, phases: &self.phases, commands: self.commands() };
        let decoded = self.source.for_each_pair(&beside, f).map_err(|e| Error::io(&self.path, "read", e))?;
        self.set_losses(&decoded);
        Ok(())
    }
}
