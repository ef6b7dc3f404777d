//! A trace of any format, behind one face.

use crate::decode::Geometry;
use crate::decode::names::Names;
use crate::decode::reads::{self, Reads};
use crate::error::Error;
use crate::events::phase::{Mark, Phase, Phases};
use crate::events::{Event, TimeNs};
use crate::facts::Facts;
use crate::formats::blktrace::{self, Found};
use crate::formats::flashmon::{self, Looks};
use crate::formats::packed::{self, Packing};
use crate::formats::parsed;
use crate::formats::text::Text;
use crate::formats::{self, Chosen, Head};
use crate::identity::Processes;
use crate::input::Input;
use crate::kind::TraceKind;
use crate::losses::{Loss, Losses, Severity};
use crate::record::Record;
use crate::ring::schema::Schema;
use crate::source::Source;
use serde_json::Value;
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
            Found::Parts(parts) => return Ok(blktrace::trace_of(path, blktrace::of_parts(path, &parts)?)),
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
                Ok(blktrace::trace_of(&name, blktrace::of_parts(&name, &parts)?))
            }
        }
    }

    /// Reads a trace that is in memory. Messages name it `path`, which need not exist.
    pub fn from_bytes(path: &Path, bytes: Arc<[u8]>) -> Result<Trace, Error> {
        Trace::of(path, Input::Memory(bytes))
    }

    /// Reads what blktrace's files of each CPU hold, CPU 0's first. Messages name them `path`.
    pub fn from_blktrace_parts(path: &Path, parts: &[Arc<[u8]>]) -> Result<Trace, Error> {
        Ok(blktrace::trace_of(path, blktrace::of_memory(path, parts)?))
    }

    fn of(path: &Path, input: Input) -> Result<Trace, Error> {
        let head = Head::read(&input).map_err(|e| Error::io(path, "read", e))?;
        let Some(packing) = Packing::of(head.bytes()) else { return Trace::of_plain(path, input, &head) };
        let unpacked = packed::unpack(path, &input, packing, 1, |head| Trace::is_known(path, head))?;
        let head = Head::read(&unpacked.input).map_err(|e| Error::io(path, "read", e))?;
        let mut trace = Trace::of_plain(path, unpacked.input, &head)?;
        if unpacked.cut {
            trace.base_losses.add(Loss::DataCut, 1);
        }
        Ok(trace)
    }

    /// Whether it is worth reading on in what begins so: a trace, or a packed file that may hold one.
    pub(crate) fn begins_as_known(path: &Path, head: Head) -> Result<(), Error> {
        let spatial = flashmon::looks_like(head.bytes()) == Looks::Spatial;
        if spatial || Packing::of(head.bytes()).is_some() { Ok(()) } else { Trace::is_known(path, &head) }
    }

    /// Whether what begins so is a trace, or is refused for what it is.
    fn is_known(path: &Path, head: &Head) -> Result<(), Error> {
        if formats::of_bytes(head).is_some() || !matches!(formats::choose(head), Chosen::None) {
            return Ok(());
        }
        Err(Trace::unknown(path, head))
    }

    fn unknown(path: &Path, head: &Head) -> Error {
        let path = path.to_path_buf();
        match (Packing::of(head.bytes()), formats::refusal(head)) {
            (Some(packing), _) => {
                let what = format!("is packed twice, with {} inside; unpack it once", packing.name());
                Error::Unsupported { path, what }
            }
            (None, Some(what)) => Error::Unsupported { path, what },
            (None, None) => Error::Unrecognised { path, hint: "its beginning looks like none of them" },
        }
    }

    fn of_plain(path: &Path, input: Input, head: &Head) -> Result<Trace, Error> {
        if let Some(open) = formats::of_bytes(head) {
            return open(path, input);
        }
        match formats::choose(head) {
            Chosen::Dialect(dialect) => parsed::trace_of(path, Box::new(Text { input: Arc::new(input), dialect })),
            Chosen::Latency => Err(Error::Unsupported {
                path: path.to_path_buf(),
                what: "is the text of a latency tracer, whose times count from its own beginning; record with \
                       trace-cmd or flashscope"
                    .to_string(),
            }),
            Chosen::None => Err(Trace::unknown(path, head)),
        }
    }

    /// A trace without statistics and phases.
    pub(crate) fn new(
        path: &Path,
        kind: TraceKind,
        source: Box<dyn Source>,
        facts: Value,
        base_losses: Losses,
        initial_names: Names,
    ) -> Trace {
        Trace {
            path: path.to_path_buf(),
            kind,
            facts,
            known: OnceLock::new(),
            stats: Value::Null,
            phases: Phases::default(),
            gap: source.gap(),
            source,
            base_losses,
            losses: OnceLock::new(),
            names: OnceLock::new(),
            reads: OnceLock::new(),
            processes: OnceLock::new(),
            initial_names,
        }
    }

    /// A Flashmon log of a chip whose blocks have so many pages; `None`: 64, as the paper's, which the facts say then.
    pub fn from_flashmon(path: &Path, pages_per_block: Option<u64>) -> Result<Trace, Error> {
        let input = Input::open(path).map_err(|e| Error::io(path, "open", e))?;
        flashmon::open(path, input, pages_per_block)
    }

    /// Lets so many threads read, unpack and take apart sub-buffers ahead of who takes the records; none does all in the
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
        let ring = self.source.ring()?;
        let text = crate::formats::dat::carried(&ring.file, &ring.kallsyms).ok()?;
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
        if let Some(log) = self.source.blktrace() {
            let decoded = log.for_each(f).map_err(|e| Error::io(&self.path, "read", e))?;
            self.set_losses(&decoded);
            return Ok(());
        }
        self.for_each_of_any(&mut |event: &Event| f(event))
    }

    fn for_each_of_any(&self, f: &mut dyn FnMut(&Event)) -> Result<(), Error> {
        self.for_each_access(&mut |pair| pair.event.into_iter().for_each(&mut *f))
    }

    /// Whether the trace shows what is used of files: reads, by our own probes or by the kernel's events of 6.12 and later.
    pub fn shows_reads(&self) -> bool {
        self.schemas().any(|schema| matches!(schema.name.as_str(), "file_read" | "mm_filemap_get_pages"))
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
        let _ = self.losses.set(losses);
    }

    /// Hands every record to `f`, oldest first. The record is valid during the call only.
    pub fn for_each_record(&self, f: &mut dyn FnMut(&Record<'_>)) -> Result<(), Error> {
        self.source.for_each_record(f).map_err(|e| Error::io(&self.path, "read", e)).map(drop)
    }

    /// What a thread was called at a time; `None` where the trace does not know. Untrusted text: who prints it escapes
    /// it. For a trace without flashscope's own task events the first call reads the whole trace once.
    pub fn comm(&self, tid: u32, time: TimeNs) -> Option<&str> {
        self.names().get(tid, time.0)
    }

    /// What the thread was called last, whatever its name at that time: an `exec` gives a process another name, and it is the
    /// same process. Only where the trace has the change itself (`task_rename`, `sched_process_exec`).
    pub fn last_name(&self, tid: u32, time: TimeNs) -> Option<&str> {
        self.names().last_of_task(tid, time.0)
    }

    /// The names that the thread had before its last one, `last`.
    pub fn former_names(&self, tid: u32, last: &str) -> Vec<&str> {
        self.names().former_of_task(tid, last)
    }

    /// Every thread that the trace names, with its last name, by number.
    pub fn tasks(&self) -> Vec<(u32, &str)> {
        self.names().last()
    }

    /// Threads that are no kernel threads, because the trace has their clone or their `exec`.
    pub fn user_tasks(&self) -> &std::collections::HashSet<u32> {
        self.names().users()
    }

    pub(crate) fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let mut names = self.initial_names.clone();
            self.source.names(&mut names);
            names
        })
    }
}
