//! A trace of any format, behind one face.

use crate::decode::Geometry;
use crate::decode::names::Names;
use crate::decode::reads::{self, Reads};
use crate::decode::tasks::TaskReader;
use crate::error::Error;
use crate::events::phase::{Mark, Phase, Phases};
use crate::events::{Event, EventKind, TimeNs};
use crate::facts::{Facts, Kernel};
use crate::formats::blktrace::{self, Found};
use crate::formats::flashmon::{self, Looks};
use crate::formats::packed::{self, Packing};
use crate::formats::parsed::{self, Source};
use crate::formats::stream::SourceState;
use crate::formats::text::Text;
use crate::formats::{self, Chosen, Head};
use crate::identity::{self, Processes};
use crate::input::Input;
use crate::kind::TraceKind;
use crate::losses::{Loss, Losses, Severity, TASKS, count_statistics, stats_by_cpu};
use crate::record::Record;
use crate::ring::merge::{Lane, LaneCounts, Raw, merge};
use crate::ring::pages::PageSource;
use crate::ring::parallel::{batch_size, merge_ahead};
use crate::ring::schema::{Layout, Schema, Schemas};
use crate::ring::twice::Twice;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
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
    pub(crate) body: Body,
    /// What was lost before the events were decoded.
    pub(crate) base_losses: Losses,
    /// All of it, once a pass has been made.
    losses: OnceLock<Losses>,
    pub(crate) names: OnceLock<Names>,
    reads: OnceLock<Reads>,
    pub(crate) processes: OnceLock<Processes>,
    pub(crate) initial_names: Names,
    /// Threads that read ahead; `None`: as many as pay.
    threads: Option<usize>,
}

#[derive(Debug)]
pub(crate) enum Body {
    Ring(Ring),
    Flashmon(flashmon::Log),
    Blktrace(blktrace::Log),
    Parsed(parsed::Log),
}

/// Ring buffers in a file.
#[derive(Debug)]
pub(crate) struct Ring {
    pub file: Arc<Input>,
    pub layout: Layout,
    pub schemas: Arc<Schemas>,
    pub buffers: Vec<RingBuffer>,
    pub header_page: String,
    pub header_event: String,
    /// The kernel's name of the clock.
    pub clock: String,
    pub cpus: u32,
    /// Added to every time: what trace-cmd's DATE and OFFSET options ask for.
    pub time_offset: i64,
    /// Texts of another tool's file that are carried along, as they lie in the file.
    pub kallsyms: Option<Blob>,
    pub printk: Option<Blob>,
    pub uname: String,
}

/// A text that is carried along.
#[derive(Clone, Debug)]
pub(crate) enum Blob {
    /// Where it lies in the file.
    File { offset: u64, size: u64 },
    /// Packed: its size (u32) comes before it when it is unpacked.
    Packed { offset: u64, packed: u32, unpacked: u32, codec: crate::formats::dat::codec::Codec },
    /// It was unpacked.
    Memory(Arc<[u8]>),
}

impl Blob {
    pub fn size(&self) -> u64 {
        match self {
            Blob::File { size, .. } => *size,
            Blob::Packed { unpacked, .. } => u64::from(*unpacked).saturating_sub(4),
            Blob::Memory(bytes) => bytes.len() as u64,
        }
    }
}

/// One ring buffer: the main one (without a name) or an instance.
#[derive(Debug)]
pub(crate) struct RingBuffer {
    pub name: String,
    /// By CPU.
    pub lanes: Vec<(u16, PageSource)>,
}

/// Name of the buffer that holds the names of tasks (`FS_INSTANCE_TASKS`).
pub(crate) const TASKS_BUFFER: &str = "tasks";
/// `FS_INSTANCE_REQUESTS`: requests of a recording by task, whose issue and completion come in anyone's name.
const REQUESTS_INSTANCE: u16 = 2;

impl Trace {
    /// Opens a trace of any format that is known; its contents say which it is, not its name.
    ///
    /// A stream with more than one recording is refused: open it as a [`crate::Session`].
    /// Of blktrace's files of each CPU any one stands for all of them, and so does their common name (`sda` for
    /// `sda.blktrace.0` …) or a directory that holds them. `-` is standard input; that and pipes hold blktrace streams or
    /// any other trace, and are kept in a nameless temporary file.
    pub fn open(path: &Path) -> Result<Trace, Error> {
        match blktrace::find(path)? {
            Found::Parts(parts) => return Trace::of_blktrace(path, blktrace::of_parts(path, &parts)?),
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
                Trace::of_blktrace(&name, blktrace::of_parts(&name, &parts)?)
            }
        }
    }

    /// Reads a trace that is in memory. Messages name it `path`, which need not exist.
    pub fn from_bytes(path: &Path, bytes: Arc<[u8]>) -> Result<Trace, Error> {
        Trace::of(path, Input::Memory(bytes))
    }

    /// Reads what blktrace's files of each CPU hold, CPU 0's first. Messages name them `path`.
    pub fn from_blktrace_parts(path: &Path, parts: &[Arc<[u8]>]) -> Result<Trace, Error> {
        Trace::of_blktrace(path, blktrace::of_memory(path, parts)?)
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
            Chosen::Dialect(dialect) => Trace::of_parsed(path, Box::new(Text { input: Arc::new(input), dialect })),
            Chosen::Latency => Err(Error::Unsupported {
                path: path.to_path_buf(),
                what: "is the text of a latency tracer, whose times count from its own beginning; record with \
                       trace-cmd or flashscope"
                    .to_string(),
            }),
            Chosen::None => Err(Trace::unknown(path, head)),
        }
    }

    pub(crate) fn from_stream(
        path: &Path,
        file: &Arc<Input>,
        source: &SourceState,
        phases: &Phases,
        session_losses: &Losses,
    ) -> Result<Trace, Error> {
        let mut losses = session_losses.clone();
        losses.merge(&source.losses);
        let mut json = |text: &Option<String>| match text {
            None => Value::Null,
            Some(t) => serde_json::from_str(t).unwrap_or_else(|_| {
                losses.add(Loss::FramesMalformed, 1);
                Value::Null
            }),
        };
        let mut facts = json(&source.facts);
        let stats = json(&source.stats);
        let mut buffers = vec![
            RingBuffer { name: String::new(), lanes: Vec::new() },
            RingBuffer { name: TASKS_BUFFER.to_string(), lanes: Vec::new() },
        ];
        if source.lanes.keys().any(|&(instance, _)| instance == REQUESTS_INSTANCE) {
            buffers.push(RingBuffer { name: "requests".to_string(), lanes: Vec::new() });
        }
        for (&(instance, cpu), index) in &source.lanes {
            buffers[usize::from(instance)].lanes.push((cpu, PageSource::Runs(Arc::clone(index))));
        }
        let highest = source.lanes.keys().map(|&(_, cpu)| u32::from(cpu) + 1).max();
        let said = source.hello.map_or(0, |h| h.cpus.min(8192));
        let mut names = Names::default();
        for (pid, tgid, comm) in &source.tasks {
            names.set(*pid, 0, crate::bytes::until_nul(comm));
            // A kernel thread is its own process.
            if tgid != pid {
                names.executed(*pid);
            }
        }
        if let Some(mut named) = identity::merged(&source.names) {
            let threads = source.tasks.iter().filter(|(tid, tgid, _)| tid != tgid);
            named["threads"] = threads.map(|(tid, tgid, _)| serde_json::json!([tid, tgid])).collect();
            if !facts.is_object() {
                facts = serde_json::json!({});
            }
            facts["names"] = named;
        }
        let clock = facts["recording"]["clock"].as_str().unwrap_or("mono").to_string();
        let ring = Ring {
            file: Arc::clone(file),
            layout: source.layout(),
            schemas: Arc::clone(&source.schemas),
            buffers,
            header_page: source.header_page.clone().unwrap_or_default(),
            header_event: source.header_event.clone().unwrap_or_default(),
            clock,
            cpus: said.max(highest.unwrap_or(0)).max(1),
            time_offset: 0,
            kallsyms: None,
            printk: None,
            uname: uname(&Facts::of(&facts).kernel),
        };
        if stats.is_null() {
            losses.add(Loss::StatisticsMissing, 1);
        } else {
            count_statistics(&stats, &mut losses);
        }
        let mut trace = Trace::new(path, TraceKind::AgentStream, Body::Ring(ring), facts, losses, names);
        trace.stats = stats;
        trace.phases = phases.clone();
        Ok(trace)
    }

    /// A trace without statistics and phases.
    pub(crate) fn new(
        path: &Path,
        kind: TraceKind,
        body: Body,
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
            body,
            base_losses,
            losses: OnceLock::new(),
            names: OnceLock::new(),
            reads: OnceLock::new(),
            processes: OnceLock::new(),
            initial_names,
            threads: None,
        }
    }

    /// A Flashmon log of a chip whose blocks have so many pages; `None`: 64, as the paper's, which the facts say then.
    pub fn from_flashmon(path: &Path, pages_per_block: Option<u64>) -> Result<Trace, Error> {
        let input = Input::open(path).map_err(|e| Error::io(path, "open", e))?;
        Trace::of_flashmon(path, input, pages_per_block)
    }

    pub(crate) fn of_flashmon(path: &Path, input: Input, pages_per_block: Option<u64>) -> Result<Trace, Error> {
        let (log, names, losses) = flashmon::Log::open(path, input, pages_per_block)?;
        let mut facts = serde_json::json!({"flashmon": {}});
        let key = if pages_per_block.is_some() { "pages_per_block" } else { "pages_per_block_assumed" };
        facts["flashmon"][key] = pages_per_block.unwrap_or(crate::decode::ASSUMED_PAGES_PER_BLOCK).into();
        Ok(Trace::new(path, TraceKind::FlashmonLog, Body::Flashmon(log), facts, losses, names))
    }

    pub(crate) fn of_blktrace(path: &Path, opened: blktrace::Opened) -> Result<Trace, Error> {
        let body = Body::Blktrace(opened.log);
        Ok(Trace::new(path, TraceKind::Blktrace, body, opened.facts, opened.losses, Names::default()))
    }

    /// A trace of a format whose events become records of made-up formats.
    pub(crate) fn of_parsed(path: &Path, source: Box<dyn Source>) -> Result<Trace, Error> {
        let opened = parsed::Log::open(path, source)?;
        let kind = opened.log.kind();
        Ok(Trace::new(path, kind, Body::Parsed(opened.log), opened.facts, opened.losses, opened.names))
    }

    /// Lets so many threads read, unpack and take apart sub-buffers ahead of who takes the records; none does all in the
    /// caller's thread. Records, their order and what is counted are the same. Without this a file that is packed
    /// (trace.dat of version 7 with zlib or zstd) is read so where there is more than one core, and no other: what that
    /// gains and what it does not says docs/explanation/measurement.md. Traces that are not of ring buffers, and those whose
    /// sub-buffers are too large or whose CPUs too many for bounded memory, are read in the caller's thread.
    pub fn set_threads(&mut self, threads: usize) {
        self.threads = Some(threads);
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
        match &self.body {
            Body::Ring(ring) => &ring.clock,
            Body::Flashmon(_) => "flashmon",
            Body::Blktrace(log) => log.clock,
            Body::Parsed(log) => log.clock(),
        }
    }

    /// CPUs of the recorded machine.
    pub fn cpus(&self) -> u32 {
        match &self.body {
            Body::Ring(ring) => ring.cpus,
            Body::Flashmon(log) => u32::from(log.cpus),
            Body::Blktrace(log) => log.cpus,
            Body::Parsed(log) => log.cpus,
        }
    }

    /// The formats of the trace's events.
    pub fn schemas(&self) -> impl Iterator<Item = &Arc<Schema>> + '_ {
        let (ring, log) = match &self.body {
            Body::Ring(ring) => (Some(ring.schemas.iter()), &[][..]),
            Body::Flashmon(log) => (None, std::slice::from_ref(log.schema())),
            Body::Blktrace(log) => (None, log.schemas()),
            Body::Parsed(log) => (None, log.schemas()),
        };
        ring.into_iter().flatten().chain(log)
    }

    /// The kernel's symbols, as `/proc/kallsyms` has them; `None` where the trace does not carry them.
    pub fn symbols(&self) -> Option<String> {
        match &self.body {
            Body::Ring(ring) => {
                let text = crate::formats::dat::carried(&ring.file, &ring.kallsyms).ok()?;
                (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
            }
            _ => None,
        }
    }

    /// Whether events are missing, as far as is known before the trace is read; a text says nothing of lines that somebody
    /// left out.
    pub fn may_miss_events(&self) -> bool {
        let losses = self.losses.get().unwrap_or(&self.base_losses);
        let data = |loss: &Loss| loss.severity() == Severity::Data && losses.get(*loss) > 0;
        let counted = match &self.body {
            Body::Ring(_) | Body::Blktrace(_) => true,
            Body::Parsed(log) => log.is_numbered,
            Body::Flashmon(_) => false,
        };
        !counted || self.met_gap() || Loss::ALL.iter().any(data)
    }

    /// Whether events may be missing that nothing in the trace counts: blktrace's kernel side gives those that it drops no number
    /// (`__blk_add_trace`), and only blktrace's own output says how many they were.
    pub fn has_uncounted_drops(&self) -> bool {
        matches!(self.body, Body::Blktrace(_) | Body::Parsed(_))
    }

    /// Whether a pass that reads the trace has met a record behind others that are missing (blktrace counts its records).
    #[inline]
    pub fn met_gap(&self) -> bool {
        matches!(&self.body, Body::Blktrace(log) if log.gap.load(Ordering::Relaxed))
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
        match &self.body {
            // The loop over its records is made anew for each `f`: a call for each of them would cost as much as decoding it.
            Body::Blktrace(log) => {
                let decoded = log.for_each(f).map_err(|e| Error::io(&self.path, "read", e))?;
                PhaseEvents::new(&self.phases).rest(&mut |event: &Event| f(event));
                self.set_losses(&decoded);
                Ok(())
            }
            _ => self.for_each_of_any(&mut |event: &Event| f(event)),
        }
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
        let _ = self.losses.set(losses);
    }

    /// Hands every record to `f`, oldest first. The record is valid during the call only.
    pub fn for_each_record(&self, f: &mut dyn FnMut(&Record<'_>)) -> Result<(), Error> {
        match &self.body {
            Body::Ring(ring) => self.run(ring, f).map(drop),
            Body::Flashmon(log) => log.for_each_record(f).map_err(|e| Error::io(&self.path, "read", e)),
            Body::Blktrace(log) => {
                log.for_each_pair(&mut |record, _| f(record)).map_err(|e| Error::io(&self.path, "read", e)).map(drop)
            }
            Body::Parsed(log) => log.for_each_record(f).map_err(|e| Error::io(&self.path, "read", e)).map(drop),
        }
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
            match &self.body {
                Body::Flashmon(_) | Body::Parsed(_) => {}
                Body::Blktrace(log) => log.names(&mut names),
                Body::Ring(ring) => {
                    let mut reader = TaskReader::new(&ring.schemas);
                    if reader.is_useful() {
                        let only = ring.buffers.iter().position(|b| b.name == TASKS_BUFFER && !b.lanes.is_empty());
                        // An error leaves the names that were read before it.
                        let _ = self.run_buffers(ring, only, |record| {
                            reader.record(record.time.0, record.schema, record.data, &mut names);
                        });
                    }
                }
            }
            names
        })
    }

    pub(crate) fn run(&self, ring: &Ring, mut f: impl FnMut(&Record<'_>)) -> Result<Losses, Error> {
        let with_events = ring.buffers.iter().filter(|b| b.name != TASKS_BUFFER && !b.lanes.is_empty());
        if with_events.count() < 2 {
            return self.run_buffers(ring, None, f);
        }
        let mut twice = Twice::default();
        let mut losses = self.run_buffers(ring, None, |record| {
            if !twice.is(record) {
                f(record);
            }
        })?;
        losses.add(Loss::EventsRepeated, twice.count);
        Ok(losses)
    }

    /// Threads that read ahead, and the size of what they hand on; `None`: the caller's thread does it all.
    fn ahead(&self, ring: &Ring, only: Option<usize>) -> Option<(usize, usize)> {
        let buffers = ring.buffers.iter().enumerate().filter(|(b, _)| only.is_none_or(|o| o == *b));
        let sources = || buffers.clone().flat_map(|(_, buffer)| buffer.lanes.iter().map(|(_, pages)| pages));
        let lanes = sources().count();
        let threads = match self.threads {
            Some(threads) => threads,
            None if sources().any(PageSource::is_packed) => cores() - 1,
            None => 0,
        };
        let batch = batch_size(lanes, sources().map(PageSource::largest).max().unwrap_or(0))?;
        Some((threads.min(lanes), batch)).filter(|&(threads, _)| threads > 0)
    }

    /// One pass over all buffers, or one of them. Returns what was lost in decoding.
    pub(crate) fn run_buffers(
        &self,
        ring: &Ring,
        only: Option<usize>,
        mut f: impl FnMut(&Record<'_>),
    ) -> Result<Losses, Error> {
        let count: usize = ring.buffers.iter().map(|b| b.lanes.len()).sum();
        let mut lanes = Vec::with_capacity(count);
        for (b, buffer) in ring.buffers.iter().enumerate() {
            if only.is_none_or(|o| o == b) {
                for (cpu, pages) in &buffer.lanes {
                    lanes.push(Lane::new(*cpu, b as u16, pages.open(&ring.file, count)));
                }
            }
        }
        let mut reader =
            Reader { ring, unknown: Schema::unknown(ring.layout.endian), without_format: 0, short: 0, odd_times: 0 };
        // Two closures, not one for both: each is then compiled into its own merge.
        match self.ahead(ring, only) {
            Some((threads, batch)) => {
                merge_ahead(&ring.layout, &mut lanes, threads, batch, |raw| reader.hand(raw, &mut f))
            }
            None => merge(&ring.layout, &mut lanes, |raw| reader.hand(raw, &mut f)),
        }
        .map_err(|e| Error::io(&self.path, "read", e))?;

        let mut losses = Losses::new();
        losses.add(Loss::RecordsOfUnknownType, reader.without_format);
        losses.add(Loss::RecordsMalformed, reader.short);
        losses.add(Loss::TimesImpossible, reader.odd_times);
        let read = events_read(&self.stats);
        let is_ours = stats_by_cpu(&self.stats).any(|(instance, _)| instance == TASKS);
        for lane in &lanes {
            let LaneCounts { records, damaged, backwards, missed_events, gaps_of_unknown_size } = lane.counts;
            losses.add(Loss::SubBuffersDamaged, damaged);
            losses.add(Loss::TimesBackwards, backwards);
            // Of names, the kernel's own count says how many: they are no events of I/O.
            if !(is_ours && u64::from(lane.buffer) == TASKS) {
                losses.add(Loss::EventsMissedAtGaps, missed_events);
                losses.add(Loss::GapsOfUnknownSize, gaps_of_unknown_size);
            }
            if let Some(&read) = read.get(&(u64::from(lane.buffer), u64::from(lane.cpu))) {
                losses.add(Loss::EventsNotDelivered, read.saturating_sub(records));
            }
        }
        if only.is_none() {
            for ((buffer, cpu), read) in read {
                if !lanes.iter().any(|l| (u64::from(l.buffer), u64::from(l.cpu)) == (buffer, cpu)) {
                    losses.add(Loss::EventsNotDelivered, read);
                }
            }
        }
        losses.add(Loss::NamesDropped, self.names.get().map_or(0, |n| n.dropped));
        Ok(losses)
    }
}

/// Gives bytes of a ring their format.
struct Reader<'r> {
    ring: &'r Ring,
    unknown: Schema,
    without_format: u64,
    short: u64,
    /// Records whose time no clock gives.
    odd_times: u64,
}

impl Reader<'_> {
    #[inline(always)]
    fn hand(&mut self, raw: Raw<'_>, f: &mut impl FnMut(&Record<'_>)) {
        let ring = self.ring;
        let time = TimeNs(raw.time.wrapping_add_signed(ring.time_offset));
        if !time.is_possible() {
            self.odd_times += 1;
            return;
        }
        let id = ring.layout.endian.u16(raw.data, 0).unwrap_or(0);
        let schema = match ring.schemas.get(id) {
            Some(schema) => &**schema,
            None => {
                self.without_format += 1;
                &self.unknown
            }
        };
        if raw.data.len() < schema.min_size as usize {
            self.short += 1;
        }
        f(&Record {
            time,
            cpu: raw.cpu,
            buffer: &ring.buffers[usize::from(raw.buffer)].name,
            missed: raw.missed,
            schema,
            data: raw.data,
        });
    }
}

/// Cores that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What `uname -srvm` would have said.
fn uname(kernel: &Kernel) -> String {
    if *kernel == Kernel::default() {
        return String::new();
    }
    let [release, version, machine] =
        [&kernel.release, &kernel.version, &kernel.machine].map(|said| said.as_deref().unwrap_or("?"));
    format!("Linux {release} {version} {machine}")
}

/// Events read from the ring by (instance, CPU), as `FS_STATS` has it.
fn events_read(stats: &Value) -> HashMap<(u64, u64), u64> {
    let mut out = HashMap::new();
    for (instance, cpu) in stats_by_cpu(stats) {
        if let (Some(c), Some(read)) = (cpu["cpu"].as_u64(), cpu["read"].as_u64()) {
            out.insert((instance, c), read);
        }
    }
    out
}

/// Phases and marks as events, between the others.
pub(crate) struct PhaseEvents {
    /// Oldest last; true: comes before events of the same time.
    waiting: Vec<(u64, bool, Event)>,
}

impl PhaseEvents {
    pub fn new(phases: &Phases) -> PhaseEvents {
        let mut waiting = Vec::new();
        let event = |time: u64, pid: u32, kind: EventKind| Event { time: TimeNs(time), cpu: 0, tid: pid, kind };
        for p in &phases.phases {
            let name = p.name.clone();
            waiting.push((p.begin_ns, true, event(p.begin_ns, p.pid, EventKind::PhaseBegin { name })));
            if let Some(end) = p.end_ns {
                let name = p.name.clone();
                waiting.push((end, false, event(end, p.pid, EventKind::PhaseEnd { name })));
            }
        }
        for m in &phases.marks {
            let name = m.name.clone();
            waiting.push((m.time_ns, true, event(m.time_ns, m.pid, EventKind::Mark { name })));
        }
        // Stable: a phase's begin stays before its end where both are at one time.
        waiting.sort_by_key(|&(time, first, _)| (time, !first));
        waiting.reverse();
        PhaseEvents { waiting }
    }

    #[inline]
    pub fn before(&mut self, time: TimeNs, f: &mut dyn FnMut(&Event)) {
        while let Some((t, first, event)) = self.waiting.last()
            && (*t < time.0 || (*t == time.0 && *first))
        {
            f(event);
            self.waiting.pop();
        }
    }

    pub fn rest(&mut self, f: &mut dyn FnMut(&Event)) {
        while let Some((_, _, event)) = self.waiting.pop() {
            f(&event);
        }
    }
}
