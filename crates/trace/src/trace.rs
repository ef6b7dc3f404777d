//! A trace of any format, behind one face.

use crate::decode::Geometry;
use crate::decode::names::Names;
use crate::decode::reads::{self, Reads};
use crate::error::Error;
use crate::events::layer::Crossings;
use crate::events::phase::{Mark, Phase, Phases};
use crate::events::shown::CacheShown;
use crate::events::{Event, TimeNs};
use crate::facts::Facts;
use crate::formats::blktrace::{self, Found};
use crate::formats::recorded::{Blob, Ring};
use crate::formats::stream::Session;
use crate::formats::{self, flashmon};
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A trace that can be read as often as one likes, in bounded memory.
#[derive(Debug)]
pub struct Trace {
    pub(crate) path: PathBuf,
    pub(crate) kind: TraceKind,
    pub(crate) facts: Value,
    pub(crate) known: OnceLock<Facts>,
    pub(crate) stats: Value,
    pub(crate) phases: Phases,
    pub(crate) source: Box<dyn Source>,
    /// Of the source: a pass has met a record behind others that are missing.
    gap: Option<Arc<AtomicBool>>,
    /// What was lost before the events were decoded.
    pub(crate) base_losses: Losses,
    /// All of it, once a pass has been made.
    losses: OnceLock<Losses>,
    pub(crate) names: OnceLock<Names>,
    reads: OnceLock<Reads>,
    pub(crate) processes: OnceLock<Processes>,
    pub(crate) initial_names: Names,
}

impl Trace {
    /// Opens a trace of any format that is known; its contents say which it is, not its name.
    ///
    /// A stream with more than one recording is refused: open it as a [`crate::Session`].
    /// Of blktrace's files of each CPU any one stands for all of them, and so does their common name (`sda` for
    /// `sda.blktrace.0` …) or a directory that holds them. `-` is standard input; that and pipes hold blktrace streams or
    /// any other trace, and are kept in a nameless temporary file.
    pub fn open(path: &Path) -> Result<Trace, Error> {
        match blktrace::find(path)? {
            Found::Parts(parts) => return Ok(Trace::of_opened(path, blktrace::of_parts(path, &parts)?)),
            Found::Spooled(input) => return Trace::of(path, input),
            Found::File => {}
        }
        Trace::of(path, Input::open(path).map_err(|e| Error::io(path, "open", e))?)
    }

    /// Which of these names are of one trace, by their places: blktrace's files of each CPU named one by one, and its sets of
    /// several devices in one directory. Everything else is a trace of its own.
    pub fn sets(paths: &[PathBuf]) -> Vec<Vec<usize>> {
        blktrace::sets(paths)
    }

    /// Opens what names of one trace stand for ([`Trace::sets`]).
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

    /// Reads what blktrace's files of each CPU hold, CPU 0's first. Messages name them `path`.
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

    /// The ring buffers, where it is made of them: a trace.dat can be written.
    pub(crate) fn ring(&self) -> Option<&Ring> {
        self.source_as()
    }

    /// What a format has opened.
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
            source,
            base_losses: losses,
            losses: OnceLock::new(),
            names: OnceLock::new(),
            reads: OnceLock::new(),
            processes: OnceLock::new(),
            initial_names: names,
        }
    }

    /// A Flashmon log of a chip whose blocks have so many pages; `None`: 64, as the paper's, which the facts say then.
    pub fn from_flashmon(path: &Path, pages_per_block: Option<u64>) -> Result<Trace, Error> {
        let input = Input::open(path).map_err(|e| Error::io(path, "open", e))?;
        Ok(Trace::of_opened(path, flashmon::open(path, input, pages_per_block)?))
    }

    /// Lets so many threads read, unpack and take apart sub-buffers ahead of the consumer of the records; none does all in the
    /// caller's thread. Records, their order and what is counted are the same. Without this a file that is packed
    /// (trace.dat of version 7 with zlib or zstd) is read so where there is more than one core, and no other: what that
    /// gains and what it does not says docs/explanation/measurement.md. Traces that are not of ring buffers, and those whose
    /// sub-buffers are too large or whose CPUs too many for bounded memory, are read in the caller's thread.
    pub fn set_threads(&mut self, threads: usize) {
        self.source.set_threads(threads);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn kind(&self) -> TraceKind {
        self.kind
    }

    /// What was known about board, kernel, chips and recorder; what the trace does not carry is unknown.
    pub fn facts(&self) -> &Facts {
        self.known.get_or_init(|| Facts::of(&self.facts))
    }

    /// The same as the recorder wrote it (`docs/reference/agent.md`, "Facts"), for exports; null where there is none.
    pub fn facts_json(&self) -> &Value {
        &self.facts
    }

    /// The kernel's counts at the end of the recording (`docs/reference/agent-protocol.md`, `FS_STATS`); null where there are none.
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

    /// The clock of all times, as the kernel names it: `mono` for what flashscope records; `flashmon` counts from the
    /// moment Flashmon was loaded.
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

    /// Whether events are missing, as far as is known before the trace is read; a text says nothing of lines that somebody
    /// left out.
    pub fn may_miss_events(&self) -> bool {
        let losses = self.losses.get().unwrap_or(&self.base_losses);
        let data = |loss: &Loss| loss.severity() == Severity::Data && losses.get(*loss) > 0;
        !self.source.counts_missing() || self.met_gap() || Loss::ALL.iter().any(data)
    }

    /// Whether events may be missing that nothing in the trace counts: blktrace's kernel side gives those that it drops no number
    /// (`__blk_add_trace`), and only blktrace's own output says how many they were.
    pub fn has_uncounted_drops(&self) -> bool {
        self.source.has_uncounted_drops()
    }

    /// Whether a pass that reads the trace has met a record behind others that are missing (blktrace counts its records).
    #[inline]
    pub fn met_gap(&self) -> bool {
        self.gap.as_ref().is_some_and(|gap| gap.load(Ordering::Relaxed))
    }

    /// Everything that is known to be missing, zero counts included. Reads the whole trace once, unless `for_each` did.
    pub fn losses(&self) -> Losses {
        if let Some(losses) = self.losses.get() {
            return losses.clone();
        }
        if let Err(_io) = self.for_each(&mut |_| {}) {
            // What can be read was counted; the rest is as good as cut.
            let mut losses = self.base_losses.clone();
            losses.add(Loss::DataCut, 1);
            return losses;
        }
        self.losses.get().unwrap_or(&self.base_losses).clone()
    }

    /// Hands every event to `f`, oldest first, phases among them. The event is valid during the call only.
    pub fn for_each<F: FnMut(&Event) + ?Sized>(&self, f: &mut F) -> Result<(), Error> {
        // The loop over its records is made anew for each `f`: a call for each of them would cost as much as decoding it.
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

    /// How its events cross the kernel's layers.
    pub fn crossings(&self) -> Crossings {
        Crossings::of(self.facts(), self.schemas(), || self.symbols())
    }

    /// Whether its events show splits of bios. blktrace has no choice of single events.
    pub fn shows_splits(&self) -> bool {
        self.source_as::<blktrace::Log>().is_some() || self.schemas().any(|schema| schema.name == "block_split")
    }

    /// What its events show of the page cache.
    pub fn cache_shown(&self) -> CacheShown {
        CacheShown::of(self.schemas())
    }

    /// Reads that are known by the kernel's own event alone, all or those that our probes do not see; the first call reads the whole trace once.
    pub(crate) fn reads(&self) -> &Reads {
        self.reads.get_or_init(|| {
            let needed = reads::are_needed(self.schemas());
            if needed == reads::Needed::Nothing {
                return Reads::default();
            }
            let page = Geometry::from_facts(self.facts()).page_size.unwrap_or(4096);
            let mut finder = reads::Finder::new(page, needed == reads::Needed::Unprobed);
            // An error leaves the reads that were found before it.
            let _ = self.for_each_record(&mut |record| finder.record(record));
            finder.finish()
        })
    }

    /// Keeps what a whole pass has found.
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

    /// What a thread was called at a time; `None` where the trace does not know. Untrusted text: who prints it escapes
    /// it. For a trace without flashscope's own task events the first call reads the whole trace once.
    pub fn comm(&self, tid: TaskId, time: TimeNs) -> Option<&str> {
        self.names().get(tid, time.0)
    }

    /// What the thread was called last, whatever its name at that time: an `exec` gives a process another name, and it is the
    /// same process. Only where the trace has the change itself (`task_rename`, `sched_process_exec`).
    pub fn last_name(&self, tid: TaskId, time: TimeNs) -> Option<&str> {
        self.names().last_of_task(tid, time.0)
    }

    /// Which of the tasks that had this number and this last name it is, from 1: the kernel gives a number again once its task has
    /// ended. Only where the trace has clones (`task_newtask`, `sched_process_fork`).
    pub fn task_ordinal(&self, tid: TaskId, time: TimeNs) -> u32 {
        self.names().ordinal(tid, time.0)
    }

    /// From when until when what a thread is called, first and last, is as at a time: up to, and not including, the end.
    pub fn names_hold(&self, tid: TaskId, time: TimeNs) -> Range<u64> {
        self.names().hold(tid, time.0)
    }

    /// The names that the thread had before its last one, `last`.
    pub fn former_names(&self, tid: TaskId, last: &str) -> Vec<&str> {
        self.names().former_of_task(tid, last)
    }

    /// Every thread that the trace names, with its last name, by number.
    pub fn tasks(&self) -> Vec<(TaskId, &str)> {
        self.names().last()
    }

    /// Threads that are no kernel threads, because the trace has their clone or their `exec`.
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
    /// The process of a thread at a time, and its application; `None` where the trace does not show it.
    pub fn process(&self, tid: TaskId, time: TimeNs) -> Option<Process<'_>> {
        self.processes().get(self.names(), tid, time)
    }

    /// Paths of the files that the recording touched.
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
            let mut reader = ProcessReader::new(&self.facts, ring.map(|ring| &*ring.schemas));
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
    /// Hands every record with its event to `f`, oldest first, and phases among them. What it borrows is valid during the
    /// call only.
    pub fn for_each_pair(&self, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        self.pairs(&Reads::default(), f)
    }

    /// As [`Trace::for_each_pair`], and reads of files beside them that only `mm_filemap_get_pages` shows, as events without a record.
    pub fn for_each_access(&self, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        self.pairs(self.reads(), f)
    }

    fn pairs(&self, reads: &Reads, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        let (geometry, facts) = (Geometry::from_facts(self.facts()), self.facts_json());
        let beside = Beside { geometry, facts, reads, phases: &self.phases };
        let decoded = self.source.for_each_pair(&beside, f).map_err(|e| Error::io(&self.path, "read", e))?;
        self.set_losses(&decoded);
        Ok(())
    }
}
