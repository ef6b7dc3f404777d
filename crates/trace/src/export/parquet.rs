//! A trace as one Parquet table: a row for every record and every phase's beginning and end.
//!
//! docs/reference/formats.md, "Parquet", has the schema. It only grows: a column keeps its name, type and meaning. [`PARQUET_SCHEMA`] is
//! its version.

use super::json_fields;
use crate::error::Error;
use crate::events::EventKind;
use crate::losses::Loss;
use crate::pairs::Pair;
use crate::ring::Missed;
use crate::trace::Trace;
use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// Version of the table's schema, stored in the file's metadata as `flashscope.schema`.
pub const PARQUET_SCHEMA: u32 = 1;

/// The table's columns in Parquet's own schema language.
pub const PARQUET_COLUMNS: &str = "message flashscope {
  required int64 time_ns;
  required int32 cpu (INTEGER(16,false));
  required int32 tid (INTEGER(32,false));
  optional binary comm (STRING);
  required binary buffer (STRING);
  required binary system (STRING);
  required binary event (STRING);
  required binary kind (STRING);
  optional binary operation (STRING);
  optional int64 page;
  optional int64 offset_bytes;
  optional int64 length_bytes;
  optional int32 chip;
  optional int64 address;
  optional int64 duration_ns;
  optional binary device (STRING);
  optional int64 sector;
  optional binary rwbs (STRING);
  optional int32 error;
  optional binary name (STRING);
  optional int64 missed;
  optional binary fields (STRING);
}";

/// A row group is written at this number of rows, or at this number of bytes of JSON.
const ROWS: usize = 64 << 10;
const JSON_BYTES: usize = 8 << 20;
/// Largest number of different texts kept for reuse.
const MAX_TEXTS: usize = 1 << 16;

/// Counts of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParquetWritten {
    pub rows: u64,
    /// Numbers beyond 2⁶³ − 1, which no kernel writes. The table has 2⁶³ − 1 instead; `fields` has the number itself.
    pub clamped: u64,
}

/// Writes a trace as a Parquet file, one row group after the other, with about 64 MiB in memory at most.
///
/// The file's metadata has `flashscope.schema`, `flashscope.clock`, `flashscope.facts` (JSON) and `flashscope.losses` (JSON by name,
/// without zero counts).
pub fn parquet(trace: &Trace, out: &mut (dyn Write + Send)) -> Result<ParquetWritten, Error> {
    write(trace, out).map_err(|e| match e {
        Failed::Trace(e) => e,
        Failed::Parquet(e) => Error::io(trace.path(), "write the export of", into_io(e)),
    })
}

enum Failed {
    Trace(Error),
    Parquet(ParquetError),
}

impl From<ParquetError> for Failed {
    fn from(e: ParquetError) -> Failed {
        Failed::Parquet(e)
    }
}

pub(super) fn into_io(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}

fn write(trace: &Trace, out: &mut (dyn Write + Send)) -> Result<ParquetWritten, Failed> {
    let schema = Arc::new(parse_message_type(PARQUET_COLUMNS)?);
    let (time, fields) = (ColumnPath::from("time_ns"), ColumnPath::from("fields"));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("flashscope ", env!("CARGO_PKG_VERSION")).to_string())
        // The footer stays in memory until the end, so it must not grow with the pages.
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_column_statistics_enabled(fields.clone(), EnabledStatistics::None)
        .set_column_dictionary_enabled(time.clone(), false)
        .set_column_encoding(time, Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(fields, false)
        .build();
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let mut table = Table::default();
    let mut failed = None;
    trace
        .for_each_pair(&mut |pair| {
            if failed.is_none() {
                table.row(trace, pair);
                if table.rows >= ROWS || table.json_bytes >= JSON_BYTES {
                    failed = table.flush(&mut file).err();
                }
            }
        })
        .map_err(Failed::Trace)?;
    if let Some(e) = failed {
        return Err(e.into());
    }
    table.flush(&mut file)?;
    let losses = trace.losses();
    let losses: serde_json::Map<String, serde_json::Value> =
        losses.iter().filter(|&(_, n)| n > 0).map(|(l, n): (Loss, u64)| (l.name().to_string(), n.into())).collect();
    for (key, value) in [
        ("flashscope.schema", PARQUET_SCHEMA.to_string()),
        ("flashscope.clock", trace.clock().to_string()),
        ("flashscope.facts", trace.facts_json().to_string()),
        ("flashscope.losses", serde_json::Value::Object(losses).to_string()),
    ] {
        file.append_key_value_metadata(KeyValue::new(key.to_string(), value));
    }
    file.close()?;
    Ok(table.written)
}

/// A column with a value in every row.
type Required<T> = Vec<T>;

/// A column with missing values: the existing values, and a level for each row (1: it has a value).
#[derive(Default)]
pub(super) struct Optional<T> {
    pub values: Vec<T>,
    pub levels: Vec<i16>,
}

impl<T> Optional<T> {
    pub fn push(&mut self, value: Option<T>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }

    pub fn clear(&mut self) {
        self.values.clear();
        self.levels.clear();
    }
}

/// The rows of one row group, by column.
#[derive(Default)]
struct Table {
    rows: usize,
    json_bytes: usize,
    written: ParquetWritten,
    texts: HashMap<String, ByteArray>,
    json: Vec<u8>,
    time_ns: Required<i64>,
    cpu: Required<i32>,
    tid: Required<i32>,
    comm: Optional<ByteArray>,
    buffer: Required<ByteArray>,
    system: Required<ByteArray>,
    event: Required<ByteArray>,
    kind: Required<ByteArray>,
    operation: Optional<ByteArray>,
    page: Optional<i64>,
    offset_bytes: Optional<i64>,
    length_bytes: Optional<i64>,
    chip: Optional<i32>,
    address: Optional<i64>,
    duration_ns: Optional<i64>,
    device: Optional<ByteArray>,
    sector: Optional<i64>,
    rwbs: Optional<ByteArray>,
    error: Optional<i32>,
    name: Optional<ByteArray>,
    missed: Optional<i64>,
    fields: Optional<ByteArray>,
}

/// Values that only some kinds of events have.
#[derive(Default)]
struct Typed<'a> {
    kind: &'static str,
    operation: Option<&'static str>,
    page: Option<u64>,
    offset_bytes: Option<u64>,
    length_bytes: Option<u64>,
    chip: Option<u16>,
    address: Option<u64>,
    duration_ns: Option<u64>,
    device: Option<String>,
    sector: Option<u64>,
    rwbs: Option<String>,
    error: Option<i32>,
    name: Option<&'a str>,
}

fn typed<'a>(pair: &Pair<'a>) -> Typed<'a> {
    let none = Typed { kind: "other", ..Typed::default() };
    let Some(event) = pair.event else { return none };
    match &event.kind {
        EventKind::Flash(a) => Typed {
            kind: "flash",
            operation: Some(a.op.name()),
            page: Some(a.page),
            offset_bytes: a.offset_bytes.map(u64::from),
            length_bytes: a.length_bytes.map(u64::from),
            chip: Some(a.chip),
            ..none
        },
        EventKind::FlashDone { op, duration_ns } => {
            Typed { kind: "flash_done", operation: Some(op.name()), duration_ns: Some(*duration_ns), ..none }
        }
        EventKind::Mtd { op, address, length_bytes } => Typed {
            kind: "mtd",
            operation: Some(op.name()),
            address: Some(*address),
            length_bytes: Some(*length_bytes),
            ..none
        },
        EventKind::Block(b) => Typed {
            kind: "block",
            operation: Some(b.action.name()),
            length_bytes: b.place().map(|(_, bytes)| bytes),
            device: Some(b.device.to_string()),
            sector: b.place().map(|(sector, _)| sector),
            rwbs: Some(b.flags.to_string()),
            error: b.result(),
            ..none
        },
        EventKind::File(e) => Typed {
            kind: "file",
            operation: Some(e.step.name()),
            length_bytes: Some(e.bytes),
            address: Some(e.offset),
            device: e.device.map(|device| device.to_string()),
            ..none
        },
        EventKind::PhaseBegin { name } => Typed { kind: "phase_begin", name: Some(name), ..none },
        EventKind::PhaseEnd { name } => Typed { kind: "phase_end", name: Some(name), ..none },
        EventKind::Mark { name } => Typed { kind: "mark", name: Some(name), ..none },
        EventKind::Recording => Typed { kind: "recording", ..none },
        EventKind::Other { .. } => none,
    }
}

impl Table {
    /// Equal texts share their memory.
    fn text(&mut self, text: &str) -> ByteArray {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        if self.texts.len() >= MAX_TEXTS {
            self.texts.clear();
        }
        let value = ByteArray::from(text);
        self.texts.insert(text.to_string(), value.clone());
        value
    }

    fn signed(&mut self, value: u64) -> i64 {
        i64::try_from(value).unwrap_or_else(|_| {
            self.written.clamped += 1;
            i64::MAX
        })
    }

    fn row(&mut self, trace: &Trace, pair: Pair<'_>) {
        let (time, tid) = (pair.time(), pair.tid());
        let of = typed(&pair);
        let value = self.signed(time.0);
        self.time_ns.push(value);
        self.cpu.push(i32::from(pair.cpu()));
        // UINT_32 is stored with the same bits.
        self.tid.push(tid.0 as i32);
        let value = trace.comm(tid, time).map(|comm| self.text(comm));
        self.comm.push(value);
        let (buffer, system, event) = match pair.record {
            Some(r) => (r.buffer, &*r.schema.system, &*r.schema.name),
            None => ("", "flashscope", of.kind),
        };
        let value = self.text(buffer);
        self.buffer.push(value);
        let value = self.text(system);
        self.system.push(value);
        let value = self.text(event);
        self.event.push(value);
        let value = self.text(of.kind);
        self.kind.push(value);
        let value = of.operation.map(|v| self.text(v));
        self.operation.push(value);
        let value = of.page.map(|v| self.signed(v));
        self.page.push(value);
        let value = of.offset_bytes.map(|v| self.signed(v));
        self.offset_bytes.push(value);
        let value = of.length_bytes.map(|v| self.signed(v));
        self.length_bytes.push(value);
        self.chip.push(of.chip.map(i32::from));
        let value = of.address.map(|v| self.signed(v));
        self.address.push(value);
        let value = of.duration_ns.map(|v| self.signed(v));
        self.duration_ns.push(value);
        let value = of.device.map(|v| self.text(&v));
        self.device.push(value);
        let value = of.sector.map(|v| self.signed(v));
        self.sector.push(value);
        let value = of.rwbs.map(|v| self.text(&v));
        self.rwbs.push(value);
        self.error.push(of.error);
        let value = of.name.map(|v| self.text(v));
        self.name.push(value);
        let missed = match pair.record.map_or(Missed::Nothing, |r| r.missed) {
            Missed::Nothing => None,
            Missed::Events(n) => Some(self.signed(n)),
            Missed::Unknown => Some(-1),
        };
        self.missed.push(missed);
        let fields = pair.record.map(|record| {
            self.json.clear();
            json_fields(&mut self.json, record);
            self.json_bytes += self.json.len();
            ByteArray::from(self.json.clone())
        });
        self.fields.push(fields);
        self.rows += 1;
        self.written.rows += 1;
    }

    /// Writes the buffered rows as a row group.
    fn flush(&mut self, file: &mut SerializedFileWriter<&mut (dyn Write + Send)>) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = file.next_row_group()?;
        let mut index = 0;
        while let Some(mut column) = group.next_column()? {
            let writer = column.untyped();
            match index {
                0 => int64(writer, &mut self.time_ns, None)?,
                1 => int32(writer, &mut self.cpu, None)?,
                2 => int32(writer, &mut self.tid, None)?,
                3 => optional_text(writer, &mut self.comm)?,
                4 => text(writer, &mut self.buffer, None)?,
                5 => text(writer, &mut self.system, None)?,
                6 => text(writer, &mut self.event, None)?,
                7 => text(writer, &mut self.kind, None)?,
                8 => optional_text(writer, &mut self.operation)?,
                9 => optional_int64(writer, &mut self.page)?,
                10 => optional_int64(writer, &mut self.offset_bytes)?,
                11 => optional_int64(writer, &mut self.length_bytes)?,
                12 => optional_int32(writer, &mut self.chip)?,
                13 => optional_int64(writer, &mut self.address)?,
                14 => optional_int64(writer, &mut self.duration_ns)?,
                15 => optional_text(writer, &mut self.device)?,
                16 => optional_int64(writer, &mut self.sector)?,
                17 => optional_text(writer, &mut self.rwbs)?,
                18 => optional_int32(writer, &mut self.error)?,
                19 => optional_text(writer, &mut self.name)?,
                20 => optional_int64(writer, &mut self.missed)?,
                21 => optional_text(writer, &mut self.fields)?,
                _ => return Err(ParquetError::General("a column without values".to_string())),
            }
            column.close()?;
            index += 1;
        }
        group.close()?;
        self.rows = 0;
        self.json_bytes = 0;
        Ok(())
    }
}

fn mismatch() -> ParquetError {
    ParquetError::General("a column of another type than its values".to_string())
}

fn int64(writer: &mut ColumnWriter<'_>, values: &mut Vec<i64>, levels: Option<&[i16]>) -> Result<(), ParquetError> {
    let ColumnWriter::Int64ColumnWriter(w) = writer else { return Err(mismatch()) };
    w.write_batch(values, levels, None)?;
    values.clear();
    Ok(())
}

fn int32(writer: &mut ColumnWriter<'_>, values: &mut Vec<i32>, levels: Option<&[i16]>) -> Result<(), ParquetError> {
    let ColumnWriter::Int32ColumnWriter(w) = writer else { return Err(mismatch()) };
    w.write_batch(values, levels, None)?;
    values.clear();
    Ok(())
}

fn text(
    writer: &mut ColumnWriter<'_>,
    values: &mut Vec<ByteArray>,
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let ColumnWriter::ByteArrayColumnWriter(w) = writer else { return Err(mismatch()) };
    w.write_batch(values, levels, None)?;
    values.clear();
    Ok(())
}

fn optional_int64(writer: &mut ColumnWriter<'_>, column: &mut Optional<i64>) -> Result<(), ParquetError> {
    int64(writer, &mut column.values, Some(&column.levels))?;
    column.clear();
    Ok(())
}

fn optional_int32(writer: &mut ColumnWriter<'_>, column: &mut Optional<i32>) -> Result<(), ParquetError> {
    int32(writer, &mut column.values, Some(&column.levels))?;
    column.clear();
    Ok(())
}

fn optional_text(writer: &mut ColumnWriter<'_>, column: &mut Optional<ByteArray>) -> Result<(), ParquetError> {
    text(writer, &mut column.values, Some(&column.levels))?;
    column.clear();
    Ok(())
}
