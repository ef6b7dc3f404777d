//! Reads the text of ftrace (`trace`, `trace_pipe`, `trace-cmd report`): best effort.

pub mod systrace;

mod blk;
mod commands;
mod event;
mod fields;
mod files;
mod line;
mod tools;

pub(crate) use blk::event as blk_event;
pub(crate) use event::{of_event, system as system_of};
pub(crate) use line::{own_name, time};

use crate::formats::parsed::{Item, NOTHING_RECORDED, Parsed, Value};
use crate::formats::text::{Dialect, Lines};
use crate::formats::{Format, Reader as FormatReader};
use crate::ids::{MAX_CPUS, ProcessId, TaskId};
use crate::kind::TraceKind;
use crate::losses::Loss;
use line::{GraphPart, Head, Line};
use std::collections::HashMap;

pub(crate) const FORMAT: Format = Format {
    name: "ftrace's text: `trace`, `trace_pipe`, latency-format, the `blk` tracer, `trace-cmd report` (also `-l`, `-t`, `-R`)",
    read: "best effort",
    written: "no",
    recognised_by: "`# tracer:`, or lines `COMM-TID [CPU] … TIME: …` (block steps also without task and CPU)",
    reader: FormatReader::Lines(DIALECT),
};

pub(crate) const DIALECT: Dialect = Dialect {
    kind: TraceKind::FtraceText,
    key: "ftrace_text",
    title: "ftrace's text",
    clock: "unknown",
    why_no_event: NOTHING_RECORDED,
    lines: || Box::<Reader>::default(),
};

/// The kind of a text, by the comments at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// The comments name a tracer.
    Text,
    /// The comments name a latency tracer, whose output is one longest stretch with its own times.
    Latency,
    None,
}

pub(crate) fn header(head: &[u8]) -> Header {
    let mut found = Header::None;
    for text in head.split(|&b| b == b'\n').take(64) {
        let Some(comment) = text.trim_ascii().strip_prefix(b"#") else { continue };
        let comment = comment.trim_ascii();
        // With the option latency-format every tracer has this heading; the tracer's name before it decides.
        let latency_format = comment.windows(17).position(|w| w == b" latency trace v1").map(|at| &comment[..at]);
        match comment.strip_prefix(b"tracer: ").or(latency_format) {
            Some(tracer) if latency(tracer) => return Header::Latency,
            Some(_) => found = Header::Text,
            None => {}
        }
    }
    found
}

/// Tracers that look for the longest latency (`TRACE_FILE_LAT_FMT`: `trace_irqsoff.c`, `trace_sched_wakeup.c`).
fn latency(tracer: &[u8]) -> bool {
    let tracer = tracer.trim_ascii();
    matches!(tracer, b"irqsoff" | b"preemptoff" | b"preemptirqsoff" | b"wakeup" | b"wakeup_rt" | b"wakeup_dl")
}

/// Whether the line is of ftrace's text.
pub(crate) fn is_line(text: &[u8]) -> bool {
    !matches!(line::parse(text), Line::Unknown | Line::Nothing) || text.trim_ascii_start().starts_with(b"#")
}

/// Whether the text is from several recordings; their devices and threads have equal numbers.
pub(crate) fn of_several_files(lines: &[&[u8]]) -> bool {
    line::of_several_files(lines)
}

/// Whether most lines have a counter instead of a time.
pub(crate) fn of_raw_clock(lines: &[&[u8]]) -> bool {
    let events = lines.iter().filter(|line| !matches!(line::parse(line), Line::Nothing | Line::Lost { .. }));
    let (mut all, mut raw) = (0usize, 0usize);
    for line in events {
        all += 1;
        raw += usize::from(line::has_raw_count(line));
    }
    raw > 0 && raw * 2 > all
}

/// Reads lines of ftrace's text.
#[derive(Default)]
pub(crate) struct Reader {
    /// The running task of each CPU, from the function graph's own lines.
    running: HashMap<u16, TaskId>,
    /// The text has had an event.
    in_events: bool,
}

impl Lines for Reader {
    fn line(&mut self, text: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        match line::parse(text) {
            Line::Nothing if self.in_events && line::begins_text(text) => f(Item::Recording),
            Line::Nothing => {}
            Line::Unknown => f(Item::Malformed(text)),
            Line::Lost { cpu, events } => f(Item::Lost { cpu, events }),
            Line::Entries { shown, written } => f(Item::Loss(Loss::EventsOverwritten, written.saturating_sub(shown))),
            Line::Switch { cpu, tid, comm } => {
                if cpu < MAX_CPUS {
                    self.running.insert(cpu, tid);
                }
                f(Item::Task { tid, comm, time: 0 });
            }
            Line::Event(Head { comm, tid, tgid, cpu, flags, time_ns }, rest) => match event::parse(rest) {
                Some(parsed) => {
                    self.in_events = true;
                    // A kernel thread is its own process.
                    if tgid.is_some_and(|tgid| tgid != ProcessId::from(tid)) {
                        f(Item::UserTask { tid });
                    }
                    // In the latency format a name is cut to eight bytes, and pasted text may have something before the name. The kernel may have
                    // forgotten it. A step of the block layer contains the whole name of the task that runs.
                    let is_step = parsed.system == "block";
                    let told = parsed.fields.iter().find_map(|(key, value)| match value {
                        Value::Text(whole) if *key == "comm" => {
                            (is_told(comm, whole) || is_step && comm == NO_NAME).then_some(*whole)
                        }
                        _ => None,
                    });
                    f(Item::Task { tid, comm: told.unwrap_or(comm), time: time_ns });
                    f(Item::Event { cpu, time: Some(time_ns), tid, flags, text: rest, parsed: &parsed });
                }
                None => f(Item::Malformed(text)),
            },
            Line::WithoutTask { cpu, time_ns, event } => match event::parse(event) {
                Some(parsed) => self.without_task((cpu, time_ns, event), &parsed, f),
                None => f(Item::Malformed(text)),
            },
            Line::Graph(graph) => self.graph(text, graph, f),
        }
    }
}

impl Reader {
    /// The step itself names who queued or issued; a completion is nobody's.
    fn without_task(&mut self, (cpu, time, text): (u16, u64, &[u8]), parsed: &Parsed<'_>, f: &mut dyn FnMut(Item<'_>)) {
        self.in_events = true;
        let comm = parsed.fields.iter().find_map(|(key, value)| match value {
            Value::Text(comm) if *key == "comm" => Some(*comm),
            _ => None,
        });
        let tid = comm.map_or(TaskId::default(), TaskId::of_name);
        if let Some(comm) = comm {
            f(Item::Task { tid, comm, time });
        }
        f(Item::Event { cpu, time: Some(time), tid, flags: b"", text, parsed });
    }

    fn graph(&mut self, text: &[u8], graph: line::Graph<'_>, f: &mut dyn FnMut(Item<'_>)) {
        if let Some((tid, comm)) = graph.task {
            f(Item::Task { tid, comm, time: graph.time_ns.unwrap_or(0) });
        }
        let tid = graph.task.map(|(tid, _)| tid).or(self.running.get(&graph.cpu).copied()).unwrap_or_default();
        let parsed = match graph.what {
            GraphPart::Event(text) => event::parse(text),
            GraphPart::Entry(function) => Some(graph_fields("funcgraph_entry", function, &graph)),
            GraphPart::Exit(function) => Some(graph_fields("funcgraph_exit", function, &graph)),
        };
        let Some(parsed) = parsed else { return f(Item::Malformed(text)) };
        let text = match graph.what {
            GraphPart::Event(text) => text,
            _ => text.trim_ascii(),
        };
        f(Item::Event { cpu: graph.cpu, time: graph.time_ns, tid, flags: b"", text, parsed: &parsed });
    }
}

/// What the kernel prints for a task that is not among its saved names (`trace_find_cmdline`).
const NO_NAME: &[u8] = b"<...>";

/// Whether `whole` is a plausible full name: `comm` is its first eight bytes, or ends with it.
fn is_told(comm: &[u8], whole: &[u8]) -> bool {
    let cut = comm.len() == 8 && whole.starts_with(comm);
    let before = comm.strip_suffix(whole).and_then(<[u8]>::last);
    cut || before.is_some_and(|b| !whole.is_empty() && !b.is_ascii_alphanumeric())
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
