//! Exports for other tools: JSON lines of every record, CSV of the typed events, Perfetto, Parquet.

pub mod dat;
pub mod flashmon;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
mod parquet_table;
mod perfetto;
mod perfetto_contested;
mod perfetto_more;
mod proto;
mod table;
mod text;

#[cfg(feature = "parquet")]
pub use parquet::{PARQUET_COLUMNS, PARQUET_SCHEMA, ParquetWritten, parquet};
#[cfg(feature = "parquet")]
pub use parquet_table::ParquetTable;
pub use perfetto::{PerfettoWritten, perfetto};
pub use perfetto_more::{Note as PerfettoNote, PerfettoTracks, Slice as PerfettoSlice, perfetto_with};
pub use table::{Cell, Column, ColumnType, TableWriter, TableWritten, TextTable};
pub use text::{text, text_merged};

use crate::error::Error;
use crate::events::{Event, EventKind, FlashOp, TimeNs};
use crate::merged::MergedTrace;
use crate::record::Record;
use crate::ring::Missed;
use crate::ring::schema::Value;
use crate::trace::Trace;
use std::io::{self, Write};
use std::path::Path;

/// The columns of [`csv`], in order. A cell is empty if the event has no such value.
pub const CSV_COLUMNS: [&str; 13] = [
    "time_ns", "cpu", "tid", "comm", "kind", "operation", "page", "offset_bytes", "length_bytes", "chip", "address",
    "duration_ns", "name",
];

/// Writes every record as one JSON object per line: `time_ns`, `cpu`, `tid`, `comm` (null if unknown), `buffer` (empty for the main one),
/// `system`, `event`, `missed`, and `fields` in the format's order. `missed` is the number of events missing before the record, or true if
/// the kernel does not tell the number; it is absent if none are missing. Bytes that are neither text nor integers become an array of
/// numbers. Returns the number of lines.
pub fn json_lines(trace: &Trace, out: &mut dyn Write) -> Result<u64, Error> {
    let mut line = Vec::new();
    let mut sink = Sink { out, failed: None, lines: 0 };
    trace.for_each_record(&mut |record| {
        if sink.failed.is_none() {
            line.clear();
            json_record(&mut line, record, trace.comm(record.tid(), record.time));
            sink.line(&line);
        }
    })?;
    sink.finish(trace.path())
}

/// Like [`json_lines`], for several traces in order of time. Each object ends with `source`, the path of its trace.
pub fn json_lines_merged(merged: &MergedTrace, out: &mut dyn Write) -> Result<u64, Error> {
    let ends: Vec<Vec<u8>> = paths(merged)
        .map(|path| {
            let mut end = b",\"source\":".to_vec();
            json_text(&mut end, &path);
            end.push(b'}');
            end
        })
        .collect();
    let mut line = Vec::new();
    let mut sink = Sink { out, failed: None, lines: 0 };
    merged.for_each_record(&mut |source, record| {
        if sink.failed.is_none() {
            line.clear();
            json_record(&mut line, record, merged.comm(source, record.tid(), record.time));
            line.pop();
            line.extend_from_slice(&ends[source]);
            sink.line(&line);
        }
    })?;
    sink.finish(first_path(merged))
}

/// Writes the typed events as CSV (RFC 4180, lines end with a line feed): a heading of [`CSV_COLUMNS`], then one line per event. `kind` is
/// flash, flash_done, mtd, block, phase_begin, phase_end, mark or other; `operation` is read, program or erase; `name` is the phase's name,
/// or system and name of another event. Text that a spreadsheet would take for a formula gets an apostrophe in front
/// ([`flashscope_output::cell`]). Returns the number of lines without the heading.
pub fn csv(trace: &Trace, out: &mut dyn Write) -> Result<u64, Error> {
    csv_as(trace, false, out)
}

/// Like [`csv`]. With `raw`, text that a spreadsheet would take for a formula is written unchanged.
pub fn csv_as(trace: &Trace, raw: bool, out: &mut dyn Write) -> Result<u64, Error> {
    let mut sink = Sink { out, failed: None, lines: 0 };
    let mut line = CSV_COLUMNS.join(",").into_bytes();
    sink.line(&line);
    sink.lines = 0;
    trace.for_each(&mut |event| {
        if sink.failed.is_none() {
            line.clear();
            csv_event(&mut line, raw, event, trace.comm(event.tid, event.time));
            sink.line(&line);
        }
    })?;
    sink.finish(trace.path())
}

/// Like [`csv_as`], for several traces in order of time, with one more column: `source`, the path of the event's trace.
pub fn csv_merged_as(merged: &MergedTrace, raw: bool, out: &mut dyn Write) -> Result<u64, Error> {
    let ends: Vec<Vec<u8>> = paths(merged)
        .map(|path| {
            let mut end = b",".to_vec();
            csv_text(&mut end, raw, &path);
            end
        })
        .collect();
    let mut sink = Sink { out, failed: None, lines: 0 };
    let mut line = [CSV_COLUMNS.join(","), "source".to_string()].join(",").into_bytes();
    sink.line(&line);
    sink.lines = 0;
    merged.for_each(&mut |source, event| {
        if sink.failed.is_none() {
            line.clear();
            csv_event(&mut line, raw, event, merged.comm(source, event.tid, event.time));
            line.extend_from_slice(&ends[source]);
            sink.line(&line);
        }
    })?;
    sink.finish(first_path(merged))
}

/// The paths of the sources.
fn paths(merged: &MergedTrace) -> impl Iterator<Item = String> + '_ {
    merged.sources().iter().map(|s| s.trace.path().display().to_string())
}

/// The path in error messages.
fn first_path(merged: &MergedTrace) -> &Path {
    merged.sources().first().map_or(Path::new(""), |s| s.trace.path())
}

/// Writes lines up to the first error.
struct Sink<'a> {
    out: &'a mut dyn Write,
    failed: Option<io::Error>,
    lines: u64,
}

impl Sink<'_> {
    fn line(&mut self, line: &[u8]) {
        match self.out.write_all(line).and_then(|()| self.out.write_all(b"\n")) {
            Ok(()) => self.lines += 1,
            Err(e) => self.failed = Some(e),
        }
    }

    fn finish(mut self, path: &Path) -> Result<u64, Error> {
        match self.failed.take().map_or_else(|| self.out.flush(), Err) {
            Ok(()) => Ok(self.lines),
            Err(e) => Err(Error::io(path, "write the export of", e)),
        }
    }
}

/// Appends an integer; writing to memory cannot fail.
fn put(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    let _ = write!(out, "{value}");
}

fn json_text(out: &mut Vec<u8>, text: &str) {
    // Writing to memory cannot fail, and every text has a JSON form.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        let _ = serde_json::to_writer(&mut *out, text);
        return;
    }
    let json = serde_json::to_string(text).unwrap_or_default();
    out.extend_from_slice(flashscope_output::escaped_json(&json).as_bytes());
}

fn json_record(out: &mut Vec<u8>, record: &Record<'_>, comm: Option<&str>) {
    let TimeNs(time) = record.time;
    let _ = write!(out, "{{\"time_ns\":{time},\"cpu\":{},\"tid\":{},\"comm\":", record.cpu, record.tid());
    match comm {
        Some(comm) => json_text(out, comm),
        None => out.extend_from_slice(b"null"),
    }
    for (key, text) in [("buffer", record.buffer), ("system", &*record.schema.system), ("event", &*record.schema.name)]
    {
        let _ = write!(out, ",\"{key}\":");
        json_text(out, text);
    }
    match record.missed {
        Missed::Nothing => {}
        Missed::Events(n) => put(out, format_args!(",\"missed\":{n}")),
        Missed::Unknown => out.extend_from_slice(b",\"missed\":true"),
    }
    out.extend_from_slice(b",\"fields\":");
    json_fields(out, record);
    out.push(b'}');
}

/// The fields of a record as one JSON object, without the common fields.
fn json_fields(out: &mut Vec<u8>, record: &Record<'_>) {
    out.push(b'{');
    let mut first = true;
    for (field, value) in record.fields().filter(|(f, _)| !f.common) {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        json_text(out, &field.name);
        out.push(b':');
        match value {
            Some(value) => json_value(out, value),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
}

fn json_value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Unsigned(v) => put(out, v),
        Value::Signed(v) => put(out, v),
        Value::Text(text) => json_text(out, &String::from_utf8_lossy(text)),
        Value::Bytes(bytes) => json_list(out, bytes.iter().map(|&b| Value::Unsigned(u64::from(b)))),
        Value::Array(array) => json_list(out, (0..array.len()).filter_map(|i| array.get(i))),
    }
}

fn json_list<'a>(out: &mut Vec<u8>, values: impl Iterator<Item = Value<'a>>) {
    out.push(b'[');
    for (i, value) in values.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        json_value(out, value);
    }
    out.push(b']');
}

fn csv_event(out: &mut Vec<u8>, raw: bool, event: &Event, comm: Option<&str>) {
    let TimeNs(time) = event.time;
    let _ = write!(out, "{time},{},{},", event.cpu, event.tid);
    csv_text(out, raw, comm.unwrap_or(""));
    out.push(b',');
    let operation = |op: &FlashOp| op.name();
    let or_empty = |v: Option<u32>| v.map_or(String::new(), |v| v.to_string());
    match &event.kind {
        EventKind::Flash(a) => {
            let (offset, length) = (or_empty(a.offset_bytes), or_empty(a.length_bytes));
            put(out, format_args!("flash,{},{},{offset},{length},{},,,", operation(&a.op), a.page, a.chip));
        }
        EventKind::FlashDone { op, duration_ns } => {
            put(out, format_args!("flash_done,{},,,,,,{duration_ns},", operation(op)));
        }
        EventKind::Mtd { op, address, length_bytes } => {
            put(out, format_args!("mtd,{},,,{length_bytes},,{address},,", operation(op)));
        }
        EventKind::Block(b) => {
            put(out, format_args!("block,{},,,", b.action.name()));
            match b.place() {
                Some((sector, bytes)) => put(out, format_args!("{bytes},,{},,", sector.saturating_mul(512))),
                None => out.extend_from_slice(b",,,,"),
            }
            csv_text(out, raw, &format!("{} {}", b.device, b.flags));
        }
        EventKind::File(e) => {
            put(out, format_args!("file,{},,,{},,{},,", e.step.name(), e.bytes, e.offset));
            let device = e.device.map_or_else(|| "-".to_owned(), |device| device.to_string());
            csv_text(out, raw, &format!("{device} inode {}", e.inode));
        }
        EventKind::PhaseBegin { name } => csv_named(out, raw, "phase_begin", name),
        EventKind::PhaseEnd { name } => csv_named(out, raw, "phase_end", name),
        EventKind::Mark { name } => csv_named(out, raw, "mark", name),
        EventKind::Recording => csv_named(out, raw, "recording", ""),
        EventKind::Other { system, name, .. } => {
            out.extend_from_slice(b"other,,,,,,,,");
            csv_text(out, raw, &format!("{system}:{name}"));
        }
    }
}

fn csv_named(out: &mut Vec<u8>, raw: bool, kind: &str, name: &str) {
    put(out, format_args!("{kind},,,,,,,,"));
    csv_text(out, raw, name);
}

/// Writes a text cell: quoted if needed, terminal control characters as `\u{…}`, and formulas disarmed unless `raw`.
fn csv_text(out: &mut Vec<u8>, raw: bool, text: &str) {
    use flashscope_output::{acts, cell};
    if !text.chars().any(acts) {
        out.extend_from_slice(cell(text, raw).as_bytes());
        return;
    }
    let mut clean = String::new();
    for c in text.chars() {
        if acts(c) { clean.extend(c.escape_unicode()) } else { clean.push(c) }
    }
    out.extend_from_slice(cell(&clean, raw).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TaskId;

    #[test]
    fn csv_text_is_one_field_whatever_it_holds() {
        for (text, want) in [
            ("cat", "cat"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("a\nb\x1b[2J", "a\\u{a}b\\u{1b}[2J"),
            ("txt\u{202e}gpj", "txt\\u{202e}gpj"),
            ("=1+1", "\"'=1+1\""),
            ("-5", "-5"),
            ("", ""),
        ] {
            let mut out = vec![];
            csv_text(&mut out, false, text);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }

    #[test]
    fn every_kind_has_every_column() {
        use crate::events::FlashAccess;
        let access = FlashAccess { op: FlashOp::Erase, page: 64, offset_bytes: Some(5), length_bytes: None, chip: 1 };
        let name = "a, b".to_string();
        for (kind, want) in [
            (EventKind::Flash(access), "7,1,2,c,flash,erase,64,5,,1,,,"),
            (EventKind::FlashDone { op: FlashOp::Read, duration_ns: 9 }, "7,1,2,c,flash_done,read,,,,,,9,"),
            (
                EventKind::Mtd { op: FlashOp::Program, address: 4096, length_bytes: 2048 },
                "7,1,2,c,mtd,program,,,2048,,4096,,",
            ),
            (EventKind::PhaseBegin { name: name.clone() }, "7,1,2,c,phase_begin,,,,,,,,\"a, b\""),
            (EventKind::PhaseEnd { name: name.clone() }, "7,1,2,c,phase_end,,,,,,,,\"a, b\""),
            (EventKind::Mark { name }, "7,1,2,c,mark,,,,,,,,\"a, b\""),
            (EventKind::Recording, "7,1,2,c,recording,,,,,,,,"),
            (
                EventKind::Other { system: "block".into(), name: "x".into(), result: None },
                "7,1,2,c,other,,,,,,,,block:x",
            ),
        ] {
            let mut out = vec![];
            csv_event(&mut out, false, &Event { time: TimeNs(7), cpu: 1, tid: TaskId(2), kind }, Some("c"));
            let line = String::from_utf8(out).unwrap();
            assert_eq!(line, want);
            assert_eq!(line.replace("\"a, b\"", "").matches(',').count(), CSV_COLUMNS.len() - 1, "{line}");
        }
    }
}
