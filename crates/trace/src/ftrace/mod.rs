//! Text that ftrace prints (`trace`, `trace_pipe`, `trace-cmd report`), read as far as text can be: best effort.
//!
//! A line becomes a record whose format is made up from what the line says: `text` (all that stands behind the time),
//! `flags`, and a field for each value that was found. Two lines with the same event, names and kinds of values have one
//! format.

mod fields;
mod files;
mod line;

use crate::bytes::Endian;
use crate::error::Error;
use crate::event::TimeNs;
use crate::format::{MAX_FORMATS_MEMORY, Schema};
use crate::input::Input;
use crate::losses::{Loss, Losses};
use crate::names::Names;
use crate::record::Record;
use crate::ring::Missed;
use fields::{Parsed, Value};
use line::{Head, Line, Step};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

/// Longest line that is read; the kernel's own are below 8 KiB (`TRACE_SEQ_BUFFER_SIZE`, a page before 6.9).
const MAX_LINE: usize = 16 << 10;
/// Formats that are made up; a line beyond, or beyond [`MAX_FORMATS_MEMORY`], has its text only.
const MAX_SCHEMAS: usize = 4096;
/// CPUs that are told apart.
const MAX_CPUS: usize = 8192;

/// What the beginning of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    Text,
    /// Of a latency tracer, which has times of its own.
    Latency,
    Neither,
}

pub(crate) fn looks_like(head: &[u8], whole: bool) -> Looks {
    let mut lines: Vec<&[u8]> = head.split(|&b| b == b'\n').take(64).collect();
    // The last line of the head may be cut.
    if !whole && lines.len() > 1 {
        lines.pop();
    }
    for text in lines {
        let trimmed = text.trim_ascii();
        if let Some(comment) = trimmed.strip_prefix(b"#") {
            if find(comment, b" latency trace v") {
                return Looks::Latency;
            }
            if comment.starts_with(b" tracer: ") && !latency(&comment[9..]) {
                return Looks::Text;
            }
            continue;
        }
        match line::parse(text) {
            Line::Nothing => {}
            Line::Unknown | Line::Switch { .. } | Line::Entries { .. } => return Looks::Neither,
            Line::Event(..) | Line::Graph(_) | Line::Lost { .. } => return Looks::Text,
        }
    }
    Looks::Neither
}

/// Tracers that print in the latency format (`TRACE_FILE_LAT_FMT`: `trace_irqsoff.c`, `trace_sched_wakeup.c`).
fn latency(tracer: &[u8]) -> bool {
    let tracer = tracer.trim_ascii();
    matches!(tracer, b"irqsoff" | b"preemptoff" | b"preemptirqsoff" | b"wakeup" | b"wakeup_rt" | b"wakeup_dl")
}

fn find(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|w| w == what)
}

/// A text of ftrace's.
#[derive(Debug)]
pub(crate) struct Log {
    input: Arc<Input>,
    schemas: Vec<Arc<Schema>>,
    by_signature: HashMap<Vec<u8>, usize>,
    pub cpus: u32,
}

/// What opening has found.
pub(crate) struct Opened {
    pub log: Log,
    pub names: Names,
    pub losses: Losses,
    pub facts: serde_json::Value,
}

/// The format of lines beyond [`MAX_SCHEMAS`].
const REST: usize = 0;

impl Log {
    /// Reads the whole text once: formats, names of tasks, losses.
    pub fn open(path: &Path, input: Input) -> Result<Opened, Error> {
        let mut log = Log { input: Arc::new(input), schemas: Vec::new(), by_signature: HashMap::new(), cpus: 1 };
        let mut scratch = Vec::new();
        let rest = Parsed { system: "text", name: "text".to_string(), fields: Vec::new() };
        log.by_signature.insert(signature(&rest, &mut scratch).to_vec(), REST);
        log.schemas.push(made_up(&rest, REST));
        let mut memory = MAX_FORMATS_MEMORY;
        let mut names = Names::default();
        let mut losses = Losses::new();
        let mut last = vec![0u64; 1];
        let (mut with_time, mut without_time, mut finest) = (0u64, 0u64, 1000u64);
        let input = Arc::clone(&log.input);
        let (known, schemas) = (&mut log.by_signature, &mut log.schemas);
        let mut highest = 0u16;
        walk(&input, &mut |step| match step {
            Item::Malformed => losses.add(Loss::LinesMalformed, 1),
            Item::Lost { events: Some(n), .. } => losses.add(Loss::EventsMissedAtGaps, n),
            Item::Lost { events: None, .. } => losses.add(Loss::GapsOfUnknownSize, 1),
            Item::Entries { shown, written } => {
                losses.add(Loss::EventsOverwritten, written.saturating_sub(shown));
            }
            Item::Task { tid, comm, time } => {
                if comm != b"<...>" && tid != 0 {
                    let time = if names.knows(tid) { time } else { 0 };
                    names.set(tid, time, comm);
                }
            }
            Item::Event { cpu, time, parsed, .. } => {
                highest = highest.max(cpu);
                match time {
                    None => without_time += 1,
                    Some(time) => {
                        with_time += 1;
                        if time % 1000 != 0 {
                            finest = 1;
                        }
                        let at = usize::from(cpu).min(MAX_CPUS - 1);
                        if last.len() <= at {
                            last.resize(at + 1, 0);
                        }
                        if time < last[at] {
                            losses.add(Loss::TimesBackwards, 1);
                        }
                        last[at] = time;
                    }
                }
                let signature = signature(parsed, &mut scratch);
                if !known.contains_key(signature) {
                    let schema = (memory > 0 && known.len() < MAX_SCHEMAS).then(|| made_up(parsed, known.len()));
                    let left = schema.as_ref().and_then(|s| memory.checked_sub(s.memory() + signature.len() + 64));
                    if let (Some(schema), Some(left)) = (schema, left) {
                        memory = left;
                        known.insert(signature.to_vec(), schemas.len());
                        schemas.push(schema);
                    } else {
                        memory = 0;
                        losses.add(Loss::FieldsNotRead, 1);
                    }
                }
            }
        })
        .map_err(|e| Error::io(path, "read", e))?;
        log.cpus = u32::from(highest) + 1;
        losses.add(Loss::TimesMissing, without_time);
        losses.add(Loss::NamesDropped, names.dropped);
        let times = match (with_time, without_time) {
            (0, 1..) => "none: events are in the file's order; record with the option funcgraph-abstime".to_string(),
            _ => format!("to {finest} ns; which clock it was the text does not say"),
        };
        let facts = serde_json::json!({"ftrace_text": {"best_effort": true, "times": times}});
        Ok(Opened { log, names, losses, facts })
    }

    pub fn schemas(&self) -> &[Arc<Schema>] {
        &self.schemas
    }

    /// Hands every line that is an event to `f`, in the file's order.
    pub fn for_each_record(&self, f: &mut dyn FnMut(&Record<'_>)) -> io::Result<()> {
        let (mut scratch, mut data) = (Vec::new(), Vec::new());
        let mut missed: HashMap<u16, Missed> = HashMap::new();
        walk(&self.input, &mut |item| match item {
            Item::Lost { cpu, events } => {
                missed.insert(cpu, events.map_or(Missed::Unknown, Missed::Events));
            }
            Item::Event { cpu, time, tid, flags, text, parsed } => {
                let at = self.by_signature.get(signature(parsed, &mut scratch)).copied().unwrap_or(REST);
                let schema = &self.schemas[at];
                let fields = if at == REST { &[][..] } else { &parsed.fields[..] };
                encode(&mut data, schema.id, tid, text, flags, fields);
                f(&Record {
                    time: TimeNs(time.unwrap_or(0)),
                    cpu,
                    buffer: "",
                    missed: missed.remove(&cpu).unwrap_or_default(),
                    schema,
                    data: &data,
                });
            }
            _ => {}
        })
    }
}

/// What a pass over the text meets.
enum Item<'a> {
    Event { cpu: u16, time: Option<u64>, tid: u32, flags: &'a [u8], text: &'a [u8], parsed: &'a Parsed<'a> },
    Task { tid: u32, comm: &'a [u8], time: u64 },
    Lost { cpu: u16, events: Option<u64> },
    Entries { shown: u64, written: u64 },
    Malformed,
}

/// One pass.
fn walk(input: &Input, f: &mut dyn FnMut(Item<'_>)) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(64 << 10, Positioned { input, at: 0 });
    let mut buffer = Vec::new();
    // Who runs on a CPU, as the function graph's own lines say it.
    let mut running: HashMap<u16, u32> = HashMap::new();
    loop {
        buffer.clear();
        let n = io::Read::take(&mut reader, MAX_LINE as u64).read_until(b'\n', &mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        if n == MAX_LINE && buffer.last() != Some(&b'\n') {
            reader.skip_until(b'\n')?;
            f(Item::Malformed);
            continue;
        }
        let text = buffer.strip_suffix(b"\n").unwrap_or(&buffer);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        match line::parse(text) {
            Line::Nothing => {}
            Line::Unknown => f(Item::Malformed),
            Line::Lost { cpu, events } => f(Item::Lost { cpu, events }),
            Line::Entries { shown, written } => f(Item::Entries { shown, written }),
            Line::Switch { cpu, tid, comm } => {
                if usize::from(cpu) < MAX_CPUS {
                    running.insert(cpu, tid);
                }
                f(Item::Task { tid, comm, time: 0 });
            }
            Line::Event(Head { comm, tid, cpu, flags, time_ns }, rest) => {
                f(Item::Task { tid, comm, time: time_ns });
                match fields::parse(rest) {
                    Some(parsed) => {
                        f(Item::Event { cpu, time: Some(time_ns), tid, flags, text: rest, parsed: &parsed });
                    }
                    None => f(Item::Malformed),
                }
            }
            Line::Graph(graph) => {
                if let Some((tid, comm)) = graph.task {
                    f(Item::Task { tid, comm, time: graph.time_ns.unwrap_or(0) });
                }
                let tid = graph.task.map(|(tid, _)| tid).or(running.get(&graph.cpu).copied()).unwrap_or(0);
                let parsed = match graph.what {
                    Step::Event(text) => fields::parse(text),
                    Step::Entry(function) => Some(graph_fields("funcgraph_entry", function, &graph)),
                    Step::Exit(function) => Some(graph_fields("funcgraph_exit", function, &graph)),
                };
                match parsed {
                    Some(parsed) => f(Item::Event {
                        cpu: graph.cpu,
                        time: graph.time_ns,
                        tid,
                        flags: b"",
                        text: match graph.what {
                            Step::Event(text) => text,
                            _ => text.trim_ascii(),
                        },
                        parsed: &parsed,
                    }),
                    None => f(Item::Malformed),
                }
            }
        }
    }
}

fn graph_fields<'a>(name: &str, function: &'a [u8], graph: &line::Graph<'_>) -> Parsed<'a> {
    let mut fields = Vec::new();
    if !function.is_empty() {
        fields.push(("func", Value::Text(function)));
    }
    fields.push(("depth", Value::Unsigned(u64::from(graph.depth))));
    fields.extend(graph.duration_ns.map(|ns| ("duration_ns", Value::Unsigned(ns))));
    Parsed { system: "ftrace", name: name.to_string(), fields }
}

/// System, name, and the names and kinds of the fields.
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

/// The format that a kernel would have printed for such lines.
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

/// That format, at this place among all of them.
fn made_up(parsed: &Parsed<'_>, at: usize) -> Arc<Schema> {
    let text = format_text(parsed, at as u16 + 1);
    // What is made up here can be read; its place is kept if not: the numbers of those behind it count on it.
    Arc::new(Schema::parse(parsed.system, &text, Endian::Little, 8).unwrap_or(Schema::unknown(Endian::Little)))
}

/// A record of that format.
fn encode(out: &mut Vec<u8>, id: u16, tid: u32, text: &[u8], flags: &[u8], fields: &[(&str, Value<'_>)]) {
    let fixed: usize = 16 + fields.iter().map(|(_, v)| if matches!(v, Value::Text(_)) { 4 } else { 8 }).sum::<usize>();
    out.clear();
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&tid.to_le_bytes());
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

/// An input that is read at a position of its own.
struct Positioned<'a> {
    input: &'a Input,
    at: u64,
}

impl io::Read for Positioned<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read_at(into, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}
