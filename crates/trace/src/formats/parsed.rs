//! Makes records from events of other formats: lines of text, or messages of a protobuf.
//!
//! An event becomes a record with a generated schema: `text` (all text after the time), `flags`, and a field for each value that was found.
//! Two events with equal names, and equal names and types of fields, share one schema.

use super::parts::{CpuParts, FAR_BACK_NS, Parts};
use super::repeated::{Backwards, Repeated, Step, range};
use crate::bytes::Endian;
use crate::decode::lives::CloneStep;
use crate::decode::names::Names;
use crate::error::Error;
use crate::events::TimeNs;
use crate::ids::{MAX_CPUS, TaskId};
use crate::kind::TraceKind;
use crate::lanes;
use crate::losses::{Loss, Losses};
use crate::record::Record;
use crate::ring::Missed;
use crate::ring::schema::{MAX_FORMATS_MEMORY, Schema};
use crate::source::{Opened, Source};
use serde_json::json;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// gzip's first bytes in base64: Chrome's trace viewer packs its JSON in this form.
pub(crate) const PACKED: &[u8] = b"H4sI";
/// Largest number of generated schemas; an event above this, or above [`MAX_FORMATS_MEMORY`], keeps its text only.
const MAX_SCHEMAS: usize = 4096;

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub(crate) enum Value<'a> {
    Signed(i64),
    Unsigned(u64),
    Text(&'a [u8]),
}

/// One event's name and fields.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Parsed<'a> {
    pub system: &'a str,
    pub name: String,
    pub fields: Vec<(&'a str, Value<'a>)>,
}

/// An item that a parser reports.
pub(crate) enum Item<'a> {
    Event {
        cpu: u16,
        /// `None`: the format has no time for it.
        time: Option<u64>,
        tid: TaskId,
        flags: &'a [u8],
        text: &'a [u8],
        parsed: &'a Parsed<'a>,
    },
    Task {
        tid: TaskId,
        comm: &'a [u8],
        time: u64,
    },
    /// This thread belongs to another thread's process, so it is not a kernel thread.
    UserTask {
        tid: TaskId,
    },
    /// Events are missing on this CPU before its next one; `None`: the number is unknown.
    Lost {
        cpu: u16,
        events: Option<u64>,
    },
    /// The text of another recording begins, or of this one once more (pasted twice).
    Recording,
    /// Another loss that the format reports.
    Loss(Loss, u64),
    /// The previous event has a sequence number, so missing events are known (blkparse).
    Numbered,
    /// A line or message that was not understood.
    Malformed(&'a [u8]),
}

/// The usual reason why a text has no event.
pub(crate) const NOTHING_RECORDED: &str = "nothing was recorded, or its events were not switched on; record again";

/// An input format whose events become records with generated schemas. For text use [`super::text_file::Text`].
pub(crate) trait Parser: Debug + Send + Sync {
    fn kind(&self) -> TraceKind;
    /// The kernel's name of the clock; `unknown` if the format does not have it.
    fn clock(&self) -> &str;
    /// The key of the format's facts.
    fn key(&self) -> &'static str;
    /// The format's name in messages: "ftrace's text".
    fn title(&self) -> &'static str;

    /// Why a trace may have no event, and what to do.
    fn why_no_event(&self) -> &'static str {
        NOTHING_RECORDED
    }
    /// Reports all items, in the order in which they are to be read.
    fn walk(&self, f: &mut dyn FnMut(Item<'_>)) -> io::Result<()>;
    /// Reports the items of a part of the input, as it has them alone.
    fn walk_part(&self, _part: Range<u64>, f: &mut dyn FnMut(Item<'_>)) -> io::Result<()> {
        self.walk(f)
    }

    /// Where the current item stands in the input; `None` where parts cannot be read alone.
    fn position(&self) -> Option<u64> {
        None
    }

    /// The same for an event, which may be reported with a later line.
    fn event_position(&self) -> Option<u64> {
        self.position()
    }

    /// Whether times that fall back by far are another recording's.
    fn is_in_order(&self) -> bool {
        false
    }

    /// Adds facts of the format's own.
    fn facts(&self, _into: &mut serde_json::Value) {}
}

/// A trace of such a format.
#[derive(Debug)]
pub(crate) struct Log {
    parser: Box<dyn Parser>,
    schemas: Vec<Arc<Schema>>,
    by_signature: HashMap<Vec<u8>, usize>,
    cpus: u32,
    /// Every event has a sequence number.
    is_numbered: bool,
    backwards: Backwards,
    /// Where the parts of the CPUs stand, if they come one after the other (`per_cpu/cpu*/trace`): they are merged by time.
    cpu_parts: Option<CpuParts>,
    /// A recording of the last pass began before the latest time of those before.
    falls_back: AtomicBool,
    /// Further recordings that the current pass has met.
    recordings: Arc<AtomicU64>,
}

/// Index of the schema for events beyond [`MAX_SCHEMAS`].
const REST: usize = 0;
/// Fewest times from which their unit follows.
const MIN_TIMES: u64 = 12;
/// And fewest different ones.
const MIN_JIFFIES: u64 = 4;
/// A jiffy, where a kernel has 250 or 100 of them a second.
const JIFFIES_NS: [u64; 2] = [4_000_000, 10_000_000];
/// Number of characters that a message shows of a malformed line.
const SHOWN: usize = 60;

/// The results of the first pass.
struct Survey {
    schemas: Vec<Arc<Schema>>,
    by_signature: HashMap<Vec<u8>, usize>,
    /// Bytes left for schemas.
    memory: usize,
    names: Names,
    losses: Losses,
    parts: Parts,
    /// The last time of each CPU.
    last: Vec<u64>,
    backwards: Backwards,
    with_time: u64,
    without_time: u64,
    numbered: u64,
    /// Resolution of the times in ns: 1, or 1000 if all times are whole microseconds.
    finest: u64,
    highest_cpu: u16,
    /// Times in whole jiffies of each of [`JIFFIES_NS`]; below: times equal to the one of the event before; that one's.
    whole_jiffies: [u64; 2],
    equal: u64,
    time_before: Option<u64>,
    malformed: u64,
    /// Of these: lines after the first event that may be the end of an I/O.
    lines_of_ends: u64,
    first_malformed: Option<String>,
    scratch: Vec<u8>,
}

impl Survey {
    fn new() -> Survey {
        let mut scratch = Vec::new();
        let rest = Parsed { system: "text", name: "text".to_string(), fields: Vec::new() };
        Survey {
            by_signature: HashMap::from([(signature(&rest, &mut scratch).to_vec(), REST)]),
            schemas: vec![made_up(&rest, REST)],
            memory: MAX_FORMATS_MEMORY,
            names: Names::default(),
            losses: Losses::new(),
            parts: Parts::default(),
            last: vec![0],
            backwards: Backwards::default(),
            with_time: 0,
            without_time: 0,
            numbered: 0,
            finest: 1000,
            highest_cpu: 0,
            whole_jiffies: [0; 2],
            equal: 0,
            time_before: None,
            malformed: 0,
            lines_of_ends: 0,
            first_malformed: None,
            scratch,
        }
    }

    fn take(&mut self, item: Item<'_>, position: Option<u64>, event_position: Option<u64>) {
        match item {
            Item::Malformed(line) => {
                self.malformed += 1;
                let in_events = self.with_time + self.without_time > 0;
                self.lines_of_ends += u64::from(in_events && may_be_an_end(line));
                if self.first_malformed.is_none() {
                    let shown = line.trim_ascii();
                    self.first_malformed = Some(shown[..shown.len().min(SHOWN)].escape_ascii().to_string());
                }
            }
            Item::Lost { events: Some(n), .. } => self.losses.add(Loss::EventsMissedAtGaps, n),
            Item::Lost { events: None, .. } => self.losses.add(Loss::GapsOfUnknownSize, 1),
            Item::Loss(loss, count) => self.losses.add(loss, count),
            Item::Numbered => self.numbered += 1,
            Item::Recording => self.parts.header(position),
            Item::Task { tid, comm, time } => {
                if comm != b"<...>" && tid != TaskId(0) {
                    let time = if self.names.knows(tid) { time } else { 0 };
                    self.names.set(tid, time, comm);
                }
            }
            Item::UserTask { tid } => self.names.executed(tid),
            Item::Event { cpu, time, parsed, tid, text, .. } => {
                note_tasks(&mut self.names, parsed, tid, time);
                self.parts.event(cpu, time, event_position, || hash(cpu, time, tid, text));
                self.event(cpu, time, parsed);
            }
        }
    }

    fn event(&mut self, cpu: u16, time: Option<u64>, parsed: &Parsed<'_>) {
        self.highest_cpu = self.highest_cpu.max(cpu);
        match time {
            None => self.without_time += 1,
            Some(time) => {
                self.with_time += 1;
                self.backwards.time(time);
                if time % 1000 != 0 {
                    self.finest = 1;
                }
                for (count, jiffy) in self.whole_jiffies.iter_mut().zip(JIFFIES_NS) {
                    *count += u64::from(time % jiffy == 0);
                }
                self.equal += u64::from(self.time_before.replace(time) == Some(time));
                let at = usize::from(cpu.min(MAX_CPUS - 1));
                if self.last.len() <= at {
                    self.last.resize(at + 1, 0);
                }
                if time < self.last[at] {
                    self.losses.add(Loss::TimesBackwards, 1);
                }
                self.last[at] = time;
            }
        }
        let signature = signature(parsed, &mut self.scratch);
        if self.by_signature.contains_key(signature) {
            return;
        }
        let known = self.schemas.len();
        let schema = (self.memory > 0 && known < MAX_SCHEMAS).then(|| made_up(parsed, known));
        let left = schema.as_ref().and_then(|s| self.memory.checked_sub(s.memory() + signature.len() + 64));
        if let (Some(schema), Some(left)) = (schema, left) {
            self.memory = left;
            self.by_signature.insert(signature.to_vec(), known);
            self.schemas.push(schema);
        } else {
            self.memory = 0;
            self.losses.add(Loss::FieldsNotRead, 1);
        }
    }

    /// Whether the clock counts jiffies: a bio's steps follow one another in microseconds, so most of them have one time.
    fn counts_jiffies(&self) -> bool {
        self.with_time >= MIN_TIMES
            && self.whole_jiffies.contains(&self.with_time)
            && self.equal * 2 > self.with_time
            && self.with_time - self.equal >= MIN_JIFFIES
    }

    /// Why there is nothing to report; `None` if there are events.
    fn nothing(&self, title: &str, why: &str) -> Option<String> {
        if self.with_time + self.without_time > 0 {
            return None;
        }
        Some(match &self.first_malformed {
            Some(line) if line.as_bytes().starts_with(PACKED) => format!(
                "is {title} that holds its trace packed alone (gzip in base64, as Chrome's trace viewer saves it), which flashscope does \
                 not read; give the text that atrace or the kernel wrote (/sys/kernel/tracing/trace), or a trace of Perfetto"
            ),
            Some(line) => format!(
                "looks like {title}, but none of its {} lines is an event that flashscope understands (the first: \"{line}\"); \
                 `flashscope report --help` lists what is read",
                self.malformed
            ),
            None => format!("is {title} without an event: {why}"),
        })
    }
}

/// Why a text whose times are jiffies is refused.
const JIFFIES: &str = "has times in whole jiffies of 4 or 10 ms (its clock is uptime, or the board has no finer one), longer than most I/O \
     takes: no duration follows from them; record with another clock (`echo mono > trace_clock`, trace-cmd record -C mono)";

/// Whether a line that was not understood may be the end of an I/O: it names no other step. Its name may be cut.
fn may_be_an_end(line: &[u8]) -> bool {
    const STEP: &[u8] = b"block_";
    let Some(at) = line.windows(STEP.len()).position(|word| word == STEP) else {
        // A line of blkparse: device, CPU, number, seconds, process, step.
        let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).take(7).collect();
        let is_step = words.first().is_some_and(|device| device.contains(&b',')) && words.len() == 7;
        return !is_step || words[5].contains(&b'C');
    };
    let rest = &line[at + STEP.len()..];
    let name = &rest[..rest.iter().position(|b| !b.is_ascii_lowercase() && *b != b'_').unwrap_or(rest.len())];
    let is_cut = name.len() == rest.trim_ascii_end().len();
    let ends: [&[u8]; 2] = [b"rq_complete", b"bio_complete"];
    ends.iter().any(|end| *end == name || is_cut && end.starts_with(name))
}

/// Notes the task names in an event of a clone, an `exec` or a rename, like `crate::decode::tasks` for records.
fn note_tasks(names: &mut Names, parsed: &Parsed<'_>, by: TaskId, time: Option<u64>) {
    let task = |name: &str| match parsed.fields.iter().find(|(key, _)| *key == name)?.1 {
        Value::Unsigned(n) => Some(TaskId(u32::try_from(n).ok()?)),
        _ => None,
    };
    let mut cloned = |pid: &str, comm: &str, step: CloneStep| {
        let Some(tid) = task(pid) else { return };
        names.forked(tid, by);
        let name = parsed.fields.iter().find(|(key, _)| *key == comm);
        if let Some(time) = time
            && names.cloned(tid, step, time)
            && names.knows(tid)
            && let Some((_, Value::Text(name))) = name
        {
            names.begin(tid, time, name);
        }
    };
    match parsed.name.as_str() {
        "task_newtask" => cloned("pid", "comm", CloneStep::NewTask),
        "sched_process_fork" => cloned("child_pid", "child_comm", CloneStep::Fork),
        "sched_process_exit" | "sched_process_free" => task("pid").into_iter().for_each(|tid| names.ended(tid)),
        "sched_process_exec" => task("pid").into_iter().for_each(|tid| names.executed(tid)),
        "task_rename" => {
            let new = parsed.fields.iter().find(|(key, _)| *key == "newcomm");
            if let (Some(tid), Some((_, Value::Text(new))), Some(time)) = (task("pid"), new, time) {
                names.rename(tid, time, new);
            }
        }
        _ => {}
    }
}

/// Reads everything once: schemas, task names, losses. A file without any understood event is refused.
pub(crate) fn open(path: &Path, parser: Box<dyn Parser>) -> Result<Opened, Error> {
    let mut survey = Survey::new();
    parser
        .walk(&mut |item| survey.take(item, parser.position(), parser.event_position()))
        .map_err(|e| Error::io(path, "read", e))?;
    if let Some(what) = survey.nothing(parser.title(), parser.why_no_event()) {
        return Err(Error::Unsupported { path: path.to_path_buf(), what });
    }
    if survey.counts_jiffies() {
        return Err(Error::Unsupported { path: path.to_path_buf(), what: JIFFIES.to_owned() });
    }
    let is_numbered = survey.numbered == survey.with_time + survey.without_time;
    let Survey { schemas, by_signature, names, mut losses, backwards, parts, .. } = survey;
    losses.add(Loss::LinesMalformed, survey.malformed);
    losses.add_lines_of_ends(survey.lines_of_ends);
    losses.add(Loss::TimesMissing, survey.without_time);
    losses.add(Loss::NamesDropped, names.dropped);
    let times = match (survey.with_time, survey.without_time) {
        (0, 1..) => "none: events are in the file's order; record with the option funcgraph-abstime".to_string(),
        _ if parser.clock() == "unknown" => {
            format!("to {} ns; which clock it was the text does not say", survey.finest)
        }
        _ => format!("to {} ns", survey.finest),
    };
    let mut own = json!({"best_effort": true, "times": times});
    parser.facts(&mut own);
    let facts = json!({parser.key(): own});
    let cpus = u32::from(survey.highest_cpu) + 1;
    let kind = parser.kind();
    let mut cpu_parts = parts.of_cpus();
    if let Some(CpuParts { again, .. }) = &cpu_parts
        && !again.is_empty()
        && !occur_twice(&*parser, again).map_err(|e| Error::io(path, "read", e))?
    {
        cpu_parts = None;
    }
    let recordings = Arc::default();
    let log = Log {
        parser,
        schemas,
        by_signature,
        cpus,
        is_numbered,
        backwards,
        cpu_parts,
        falls_back: AtomicBool::new(false),
        recordings,
    };
    Ok(Opened { facts, losses, names, ..Opened::of(kind, log) })
}

fn hash(cpu: u16, time: Option<u64>, tid: TaskId, text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (cpu, time, tid, text).hash(&mut hasher);
    hasher.finish()
}

/// Whether each of these events is in the text twice or more.
fn occur_twice(parser: &dyn Parser, events: &[u64]) -> io::Result<bool> {
    let mut times = vec![0; events.len()];
    parser.walk(&mut |item| {
        if let Item::Event { cpu, time, tid, text, .. } = item {
            let this = hash(cpu, time, tid, text);
            events.iter().zip(&mut times).filter(|(event, _)| **event == this).for_each(|(_, times)| *times += 1);
        }
    })?;
    Ok(times.iter().all(|&times| times > 1))
}

impl Source for Log {
    fn clock(&self) -> &str {
        self.parser.clock()
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn schemas(&self) -> Box<dyn Iterator<Item = &Arc<Schema>> + '_> {
        Box::new(self.schemas.iter())
    }

    /// Text does not show lines that were deleted.
    fn counts_missing(&self) -> bool {
        self.is_numbered
    }

    fn has_uncounted_drops(&self) -> bool {
        true
    }

    fn recordings(&self) -> Option<Arc<AtomicU64>> {
        Some(Arc::clone(&self.recordings))
    }

    fn recordings_fall_back(&self) -> bool {
        // An error leaves what was found before it.
        let _ = self.backwards.are_there().then(|| self.for_each_record(&mut |_| {}));
        self.falls_back.load(Ordering::Relaxed)
    }

    /// Records in the parser's order, those of CPUs' parts by time; repeated events only once.
    fn for_each_record(&self, f: &mut dyn FnMut(&Record<'_>)) -> io::Result<Losses> {
        if let Some(parts) = &self.cpu_parts {
            return self.for_each_of_cpus(parts, f);
        }
        let (mut scratch, mut data) = (Vec::new(), Vec::new());
        let mut repeated = Repeated::new(self.backwards);
        let mut missed: HashMap<u16, Missed> = HashMap::new();
        let (mut next, mut latest) = (Next::SameRecording, 0);
        let in_order = self.parser.is_in_order();
        self.recordings.store(0, Ordering::Relaxed);
        self.parser.walk(&mut |item| match item {
            Item::Lost { cpu, events } => {
                missed.insert(cpu, events.map_or(Missed::Unknown, Missed::Events));
            }
            Item::Recording => next = Next::Undecided(None),
            Item::Event { cpu, time, tid, flags, text, parsed } => {
                let is_repeated =
                    time.is_some_and(|time| repeated.is(time, (cpu, tid, flags, Said { text, parsed }), step(parsed)));
                let is_far_back = in_order && time.is_some_and(|time| time.saturating_add(FAR_BACK_NS) < latest);
                if is_far_back && !is_repeated && matches!(next, Next::SameRecording) {
                    next = Next::FarBack;
                }
                // blkparse counts from the first step: two recordings may begin with equal ones, at 0.
                let hold = matches!(next, Next::Undecided(None)) && time == Some(0);
                if is_repeated && !hold {
                    next = Next::SameRecording;
                    return;
                }
                let at = self.by_signature.get(signature(parsed, &mut scratch)).copied().unwrap_or(REST);
                let schema = &self.schemas[at];
                let fields = if at == REST { &[][..] } else { &parsed.fields[..] };
                encode(&mut data, schema.id, tid, text, flags, fields);
                if is_repeated {
                    next = Next::Undecided(Some((cpu, at, std::mem::take(&mut data))));
                    return;
                }
                let mut emit = |cpu: u16, time: u64, schema: &Arc<Schema>, data: &[u8]| {
                    let missed = missed.remove(&cpu).unwrap_or_default();
                    f(&Record { time: TimeNs(time), cpu, buffer: "", missed, schema, data });
                };
                let begins = std::mem::replace(&mut next, Next::SameRecording);
                if !matches!(begins, Next::SameRecording) {
                    self.recordings.fetch_add(1, Ordering::Relaxed);
                    self.falls_back.fetch_or(time.is_some_and(|time| time < latest), Ordering::Relaxed);
                    latest = 0;
                }
                latest = latest.max(time.unwrap_or(0));
                if let Next::Undecided(held) = begins {
                    repeated.begin_again(u64::from(held.is_some()));
                    if let Some((cpu, at, data)) = held {
                        emit(cpu, 0, &self.schemas[at], &data);
                    }
                }
                emit(cpu, time.unwrap_or(0), schema, &data);
            }
            _ => {}
        })?;
        let mut losses = Losses::new();
        losses.add(Loss::EventsRepeated, repeated.count);
        losses.add(Loss::RecordingsJoined, self.recordings.load(Ordering::Relaxed));
        Ok(losses)
    }
}

/// An event of a CPU's part, ready to be merged.
struct Ready {
    cpu: u16,
    time: u64,
    missed: Missed,
    /// Index of its schema, and its record.
    at: usize,
    data: Vec<u8>,
    step: Step,
}

impl Log {
    /// Records of the CPUs' parts of one recording, by time.
    fn for_each_of_cpus(&self, parts: &CpuParts, f: &mut dyn FnMut(&Record<'_>)) -> io::Result<Losses> {
        self.recordings.store(0, Ordering::Relaxed);
        let mut repeated = Repeated::new(Backwards::default());
        let mut copies = (!parts.again.is_empty()).then(Copies::default);
        let produce = |part: &Range<u64>, hand: &mut dyn FnMut(Ready)| {
            let (mut scratch, mut missed) = (Vec::new(), Missed::default());
            self.parser.walk_part(part.clone(), &mut |item| match item {
                Item::Lost { events, .. } => missed = events.map_or(Missed::Unknown, Missed::Events),
                Item::Event { cpu, time, tid, flags, text, parsed } => {
                    let at = self.by_signature.get(signature(parsed, &mut scratch)).copied().unwrap_or(REST);
                    let fields = if at == REST { &[][..] } else { &parsed.fields[..] };
                    let mut data = Vec::new();
                    encode(&mut data, self.schemas[at].id, tid, text, flags, fields);
                    let (time, missed) = (time.unwrap_or(0), std::mem::take(&mut missed));
                    hand(Ready { cpu, time, missed, at, data, step: step(parsed) });
                }
                _ => {}
            })
        };
        let parts = &parts.places[..];
        lanes::merge(parts, produce, (|one: &Ready| one.time, |one: &Ready| one.data.len()), |part, one| {
            let Ready { cpu, time, missed, at, data, step } = one;
            let is_copy = copies.as_mut().is_some_and(|copies| copies.is(part, time, (cpu, &data)));
            if !is_copy && !repeated.is(time, (cpu, &data), step) {
                f(&Record { time: TimeNs(time), cpu, buffer: "", missed, schema: &self.schemas[at], data: &data });
            }
        })?;
        let mut losses = Losses::new();
        losses.add(Loss::EventsRepeated, repeated.count + copies.map_or(0, |copies| copies.count));
        Ok(losses)
    }
}

/// Finds events of a CPU that several parts have.
#[derive(Default)]
struct Copies {
    time: u64,
    /// Events of this time: hash, part, and how often they occurred in it.
    events: Vec<(u64, usize, u32)>,
    count: u64,
}

impl Copies {
    /// Whether another part had this event as often before.
    fn is(&mut self, part: usize, time: u64, event: impl Hash) -> bool {
        if time != self.time {
            self.time = time;
            self.events.clear();
        }
        let mut hasher = DefaultHasher::new();
        event.hash(&mut hasher);
        let hash = hasher.finish();
        let at = self.events.iter().position(|one| (one.0, one.1) == (hash, part)).unwrap_or_else(|| {
            self.events.push((hash, part, 0));
            self.events.len() - 1
        });
        self.events[at].2 += 1;
        let own = self.events[at].2;
        let is_copy = self.events.iter().any(|one| one.0 == hash && one.1 != part && one.2 >= own);
        self.count += u64::from(is_copy);
        is_copy
    }
}

/// What the next event belongs to.
enum Next {
    SameRecording,
    /// Another recording, without a header: its times fall back by far. Some of its events may still be copies.
    FarBack,
    /// Another recording, or a copy of this one: the first event that is not a repetition decides. With a first event that is one: its
    /// CPU, its schema and its record.
    Undecided(Option<(u16, usize, Vec<u8>)>),
}

/// All that a source tells of an event: its text and its fields. blkparse prints the device before the time, so the text lacks it.
struct Said<'a> {
    text: &'a [u8],
    parsed: &'a Parsed<'a>,
}

impl Hash for Said<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parsed.name.hash(state);
        self.text.hash(state);
        self.parsed.fields.hash(state);
    }
}

/// How often the event can occur at one time. Most steps of bios and requests with sectors occur once; those of zone appends may repeat.
fn step(parsed: &Parsed<'_>) -> Step {
    let field = |name: &str| parsed.fields.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let has_a_place = ["nr_sector", "new_sector"].iter().any(|name| matches!(field(name), Some(Value::Unsigned(1..))));
    let once = parsed.name.starts_with("block_")
        && has_a_place
        && matches!(field("rwbs"), Some(Value::Text(letters)) if !letters.starts_with(b"ZA"));
    let sectors = || range(["dev", "sector", "nr_sector"].map(field));
    match (once, parsed.name.as_str()) {
        (false, _) => Step::Any,
        (true, "block_rq_issue") => Step::Issued(sectors()),
        (true, "block_rq_complete") => Step::Completed(sectors()),
        (true, _) => Step::Once,
    }
}

/// System, name, and the names and types of the fields.
fn signature<'s>(parsed: &Parsed<'_>, scratch: &'s mut Vec<u8>) -> &'s [u8] {
    scratch.clear();
    scratch.extend_from_slice(parsed.system.as_bytes());
    scratch.push(b':');
    scratch.extend_from_slice(parsed.name.as_bytes());
    for (key, value) in &parsed.fields {
        scratch.push(match value {
            Value::Signed(_) => b'-',
            Value::Unsigned(_) => b'+',
            Value::Text(_) => b'"',
        });
        scratch.extend_from_slice(key.as_bytes());
    }
    scratch
}

/// A format text like the kernel's, for a generated schema.
fn format_text(parsed: &Parsed<'_>, id: u16) -> String {
    let mut out = format!(
        "name: {}\nID: {id}\nformat:\n\
         \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
         \tfield:__data_loc char[] text;\toffset:8;\tsize:4;\tsigned:0;\n\
         \tfield:__data_loc char[] flags;\toffset:12;\tsize:4;\tsigned:0;\n",
        parsed.name
    );
    let mut at = 16;
    for (key, value) in &parsed.fields {
        let (kind, size, signed) = match value {
            Value::Signed(_) => ("s64", 8, 1),
            Value::Unsigned(_) => ("u64", 8, 0),
            Value::Text(_) => ("__data_loc char[]", 4, 0),
        };
        out += &format!("\tfield:{kind} {key};\toffset:{at};\tsize:{size};\tsigned:{signed};\n");
        at += size;
    }
    out += "\nprint fmt: \"%s\", __get_str(text)\n";
    out
}

/// The generated schema with index `at`.
fn made_up(parsed: &Parsed<'_>, at: usize) -> Arc<Schema> {
    let text = format_text(parsed, at as u16 + 1);
    // Generated text always parses. If it did not, a placeholder keeps the index, because later indexes depend on it.
    Arc::new(Schema::parse(parsed.system, &text, Endian::Little, 8).unwrap_or(Schema::unknown(Endian::Little)))
}

/// Encodes a record with a generated schema.
fn encode(out: &mut Vec<u8>, id: u16, tid: TaskId, text: &[u8], flags: &[u8], fields: &[(&str, Value<'_>)]) {
    let fixed: usize = 16 + fields.iter().map(|(_, v)| if matches!(v, Value::Text(_)) { 4 } else { 8 }).sum::<usize>();
    out.clear();
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&tid.0.to_le_bytes());
    let mut dynamic = fixed;
    let mut place = |out: &mut Vec<u8>, text: &[u8]| {
        out.extend_from_slice(&((text.len() as u32) << 16 | dynamic as u32).to_le_bytes());
        dynamic += text.len();
    };
    place(out, text);
    place(out, flags);
    for (_, value) in fields {
        match value {
            Value::Signed(n) => out.extend_from_slice(&n.to_le_bytes()),
            Value::Unsigned(n) => out.extend_from_slice(&n.to_le_bytes()),
            Value::Text(text) => place(out, text),
        }
    }
    out.extend_from_slice(text);
    out.extend_from_slice(flags);
    for (_, value) in fields {
        if let Value::Text(text) = value {
            out.extend_from_slice(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_names_another_step_is_no_end() {
        for (line, may_be) in [
            ("     tar-512 [000] ..... 5.5: block_rq_issue: 8,0 R 131072 () 4352 + 25", false),
            ("  <idle>-0 [000] ..... 5.5: block_rq_complete: 8,0 R () 4352 + 25", true),
            ("  <idle>-0 [000] ..... 5.5: block_bio_complete: 8,0", true),
            ("  <idle>-0 [000] ..... 5.5: block_rq_co", true),
            ("  <idle>-0 [000] ..... 5.5: block_rq_iss", false),
            ("  <idle>-0 [000] ..... 5.5", true),
            ("88 + 8 [tar]", true),
            ("[further lines left out]", true),
            ("  8,0    1       77     0.010000000   12  D   R 4352 + 2", false),
            ("  8,0    1       77     0.010000000   12  C   R 4352 +", true),
            ("  8,0    1       77     0.01", true),
        ] {
            assert_eq!(may_be_an_end(line.as_bytes()), may_be, "{line}");
        }
    }

    #[test]
    fn steps_that_come_once_at_a_time_are_all_but_zone_appends_and_those_without_sectors() {
        let of = |letters: &'static str, sectors: u64| Parsed {
            system: "block",
            name: "block_bio_queue".to_owned(),
            fields: vec![("rwbs", Value::Text(letters.as_bytes())), ("nr_sector", Value::Unsigned(sectors))],
        };
        let once = ["R", "WS", "D", "DE", "WZ", "WZS", "ZR"].map(|letters| step(&of(letters, 8)));
        assert_eq!(once, [Step::Once; 7]);
        assert_eq!([step(&of("ZA", 8)), step(&of("FWS", 0))], [Step::Any; 2]);
    }
}
