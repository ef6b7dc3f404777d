//! Several traces in one order of time.
//!
//! Times of two traces compare only if something ties their clocks together: one clock of one boot, an offset from the caller, or a marker
//! in both traces. Nothing else is guessed.

use crate::error::Error;
use crate::events::{Event, TimeNs};
use crate::identity::Process;
use crate::ids::TaskId;
use crate::kind::TraceKind;
use crate::lanes;
use crate::losses::Losses;
use crate::record::Record;
use crate::ring::Missed;
use crate::ring::schema::{Schema, Value};
use crate::trace::Trace;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// How a trace's clock is tied to the clock of the first trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// One clock of one boot, or a marker that begins with [`SYNC`] and occurs once in each trace. Otherwise the merge is refused.
    Auto,
    /// This offset is added to the trace's times.
    OffsetNs(i64),
}

/// Prefix of the markers that [`Alignment::Auto`] looks for: `echo flashscope-sync-1 > …/trace_marker` while every trace records.
pub const SYNC: &str = "flashscope-sync";

/// Traces in one merge.
const MAX_SOURCES: usize = 64;
/// Different markers of one trace.
const MAX_MARKERS: usize = 10_000;

/// Several traces, their times on the clock of the first.
#[derive(Debug)]
pub struct MergedTrace {
    sources: Vec<Source>,
}

/// One trace of a merge.
#[derive(Debug)]
pub struct Source {
    pub trace: Trace,
    /// Added to the trace's times; 0 for the first.
    pub offset_ns: i64,
    /// The largest difference between the offsets of several shared markers: clock drift, or a marker that was written late.
    pub spread_ns: u64,
}

impl Source {
    /// Converts a time of this trace to the clock of the first.
    pub fn time(&self, time: TimeNs) -> TimeNs {
        time.shifted(self.offset_ns)
    }

    /// Converts a time on the first trace's clock to this trace's clock.
    pub fn own_time(&self, time: TimeNs) -> TimeNs {
        time.shifted(self.offset_ns.saturating_neg())
    }
}

impl MergedTrace {
    /// Merges traces, each with its alignment to the first. The first one's own offset counts from zero; `Auto` is 0 there.
    pub fn new(traces: Vec<(Trace, Alignment)>) -> Result<MergedTrace, Error> {
        let mut sources: Vec<Source> = Vec::with_capacity(traces.len());
        for (trace, alignment) in traces {
            if sources.len() == MAX_SOURCES {
                return Err(refused(
                    &trace,
                    format!("is one more than the {MAX_SOURCES} traces that are merged at once"),
                ));
            }
            if let Some(first) = sources.first() {
                several_clocks([&first.trace, &trace])?;
            }
            let (offset_ns, spread_ns) = match (sources.first(), alignment) {
                (_, Alignment::OffsetNs(offset)) => (offset, 0),
                (None, _) => (0, 0),
                (Some(first), Alignment::Auto) if one_clock(&first.trace, &trace) => (first.offset_ns, 0),
                (Some(first), Alignment::Auto) => by_markers(first, &trace)?
                    .ok_or_else(|| {
                        refused(
                            &trace,
                            format!(
                                "its times cannot be compared with those of {}: nothing connects their clocks; write a \
                                 marker that begins with {SYNC} into both, or give an offset: --offset NAME=NANOSECONDS",
                                first.trace.path().display()
                            ),
                        )
                    })?,
            };
            sources.push(Source { trace, offset_ns, spread_ns });
        }
        Ok(MergedTrace { sources })
    }

    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The name of a source's thread at a time of the merged trace.
    pub fn comm(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<&str> {
        let source = self.sources.get(source)?;
        source.trace.comm(tid, source.own_time(time))
    }

    /// The thread's last name, like [`Trace::last_name`].
    pub fn last_name(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<&str> {
        let source = self.sources.get(source)?;
        source.trace.last_name(tid, source.own_time(time))
    }

    /// The ordinal among tasks with the same number and name, like [`Trace::task_ordinal`].
    pub fn task_ordinal(&self, source: usize, tid: TaskId, time: TimeNs) -> u32 {
        self.sources.get(source).map_or(1, |source| source.trace.task_ordinal(tid, source.own_time(time)))
    }

    /// The process of a thread at a time, like [`Trace::process`].
    pub fn process(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<Process<'_>> {
        let source = self.sources.get(source)?;
        source.trace.process(tid, source.own_time(time))
    }

    /// The losses of all sources together; those of one source are `sources()[i].trace.losses()`.
    pub fn losses(&self) -> Losses {
        let mut losses = Losses::new();
        for source in &self.sources {
            losses.merge(&source.trace.losses());
        }
        losses
    }

    /// Hands every event to `f`, oldest first, with the index of its source. At equal times the first source comes first. Each source is
    /// read by its own thread.
    pub fn for_each(&self, f: &mut dyn FnMut(usize, &Event)) -> Result<(), Error> {
        self.merge(
            |source, hand| {
                source.trace.for_each(&mut |event| {
                    let mut event = event.clone();
                    event.time = source.time(event.time);
                    hand(event);
                })
            },
            (|event: &Event| event.time.0, |_: &Event| 0),
            |source, event| f(source, &event),
        )
    }

    /// Hands every record to `f`, like `for_each`.
    pub fn for_each_record(&self, f: &mut dyn FnMut(usize, &Record<'_>)) -> Result<(), Error> {
        self.merge(
            |source, hand| {
                let mut known = Known::new(&source.trace);
                source.trace.for_each_record(&mut |record| {
                    let mut owned = known.owned(record);
                    owned.time = source.time(record.time);
                    hand(owned);
                })
            },
            (|record: &OwnedRecord| record.time.0, |record: &OwnedRecord| record.data.len()),
            |source, record| f(source, &record.borrow()),
        )
    }

    fn merge<T: Send>(
        &self,
        produce: impl Fn(&Source, &mut dyn FnMut(T)) -> Result<(), Error> + Sync,
        of: (impl Fn(&T) -> u64, impl Fn(&T) -> usize + Sync),
        consume: impl FnMut(usize, T),
    ) -> Result<(), Error> {
        lanes::merge(&self.sources, produce, of, consume).map(drop)
    }
}

/// A copy of a record that outlives the pass over its trace.
struct OwnedRecord {
    time: TimeNs,
    cpu: u16,
    buffer: Arc<str>,
    missed: Missed,
    schema: Arc<Schema>,
    data: Box<[u8]>,
}

impl OwnedRecord {
    fn borrow(&self) -> Record<'_> {
        Record {
            time: self.time,
            cpu: self.cpu,
            buffer: &self.buffer,
            missed: self.missed,
            schema: &self.schema,
            data: &self.data,
        }
    }
}

/// Formats and buffer names that were seen, shared so that a record does not copy them.
struct Known {
    schemas: HashMap<u16, Arc<Schema>>,
    others: Vec<Arc<Schema>>,
    buffers: HashMap<String, Arc<str>>,
}

impl Known {
    fn new(trace: &Trace) -> Known {
        let schemas = trace.schemas().map(|s| (s.id, Arc::clone(s))).collect();
        Known { schemas, others: Vec::new(), buffers: HashMap::new() }
    }

    fn owned(&mut self, record: &Record<'_>) -> OwnedRecord {
        let schema = match self.schemas.get(&record.schema.id) {
            Some(known) if std::ptr::eq(&**known, record.schema) => Arc::clone(known),
            // The placeholder for formats that the trace does not have.
            _ => match self.others.iter().find(|known| ***known == *record.schema) {
                Some(known) => Arc::clone(known),
                None => {
                    let new = Arc::new(record.schema.clone());
                    self.others.push(Arc::clone(&new));
                    new
                }
            },
        };
        let buffer = match self.buffers.get(record.buffer) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = record.buffer.into();
                self.buffers.insert(record.buffer.to_string(), Arc::clone(&new));
                new
            }
        };
        OwnedRecord {
            time: record.time,
            cpu: record.cpu,
            buffer,
            missed: record.missed,
            schema,
            data: record.data.into(),
        }
    }
}

/// Refuses a text whose recordings have clocks of their own: one offset cannot hold for all of them.
fn several_clocks(traces: [&Trace; 2]) -> Result<(), Error> {
    match traces.into_iter().find(|trace| trace.recordings_fall_back()) {
        None => Ok(()),
        Some(trace) => Err(refused(
            trace,
            "has several recordings, and the times of a later one are earlier, so no offset holds for all of them; give each recording in a \
             file of its own (it begins with a header, or where the times fall back)"
                .to_owned(),
        )),
    }
}

fn refused(trace: &Trace, what: String) -> Error {
    Error::Unsupported { path: trace.path().to_path_buf(), what }
}

/// Whether two traces share one clock: recordings of one stream, or of one boot if their facts name it.
fn one_clock(a: &Trace, b: &Trace) -> bool {
    let same_name = a.clock() == b.clock();
    let one_stream = a.kind() == TraceKind::AgentStream && b.kind() == a.kind() && a.path() == b.path();
    let boot = |t: &Trace| t.facts().kernel.boot_id.clone();
    same_name && (one_stream || boot(a).is_some_and(|id| boot(b) == Some(id)))
}

/// The offset from shared markers and the largest difference between them; `None` without shared markers.
fn by_markers(first: &Source, trace: &Trace) -> Result<Option<(i64, u64)>, Error> {
    let (ours, theirs) = (markers(&first.trace)?, markers(trace)?);
    let mut offsets: Vec<i64> = Vec::new();
    for (text, time) in &ours {
        if let (Some(ours), Some(Some(theirs))) = (time, theirs.get(text)) {
            let ours = i128::from(first.time(TimeNs(*ours)).0);
            offsets.push((ours - i128::from(*theirs)).clamp(i128::from(i64::MIN + 1), i128::from(i64::MAX)) as i64);
        }
    }
    offsets.sort_unstable();
    let (Some(least), Some(most)) = (offsets.first(), offsets.last()) else { return Ok(None) };
    Ok(Some((offsets[offsets.len() / 2], most.abs_diff(*least))))
}

/// Marks and texts from trace_marker. The time is `None` for a text that occurs more than once.
fn markers(trace: &Trace) -> Result<BTreeMap<String, Option<u64>>, Error> {
    let mut found: BTreeMap<String, Option<u64>> = BTreeMap::new();
    let mut take = |text: &str, time: u64| {
        if !text.starts_with(SYNC) {
            return;
        }
        let full = found.len() >= MAX_MARKERS;
        match found.get_mut(text) {
            Some(known) => *known = None,
            None if full => {}
            None => drop(found.insert(text.to_string(), Some(time))),
        }
    };
    for mark in trace.marks() {
        take(&mark.name, mark.time_ns);
    }
    if trace.schemas().any(|s| s.system == "ftrace" && s.name == "print") {
        trace.for_each_record(&mut |record| {
            if record.schema.name == "print"
                && record.schema.system == "ftrace"
                && let Some(Value::Text(text)) = record.get("buf")
            {
                take(String::from_utf8_lossy(text).trim(), record.time.0);
            }
        })?;
    }
    Ok(found)
}
