//! The table of input formats, their recognition, and a module for each format.

pub(crate) mod blktrace;
pub mod dat;
#[cfg(test)]
mod example;
pub mod flashmon;
pub(crate) mod ftrace;
pub(crate) mod packed;
pub(crate) mod parsed;
mod parts;
mod perf;
pub(crate) mod perfetto;
pub(crate) mod recorded;
mod refused;
mod repeated;
pub(crate) mod stream;
pub(crate) mod text;
pub(crate) mod text_file;
pub(crate) mod wrapped;

pub(crate) use refused::is_archive;
use refused::refusal;

use crate::error::Error;
use crate::input::Input;
use crate::losses::Loss;
use crate::source::Opened;
use flashmon::Looks;
use ftrace::Header;
use packed::Packing;
use std::io;
use std::path::Path;
use std::sync::Arc;
use text::Dialect;
use text_file::Text;
use wrapped::{Understood, Wrap};

/// A format, as listed in help texts and docs/reference/formats.md.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub name: &'static str,
    /// `yes`, `no`, or how much of the format is read.
    pub read: &'static str,
    pub written: &'static str,
    /// How the format is recognised; empty for formats that are only written.
    pub recognised_by: &'static str,
    pub(crate) reader: Reader,
}

/// The reader of a format.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// Recognised by the first bytes.
    Bytes { is: fn(&[u8]) -> bool, open: Open },
    /// Text, recognised by the number of its first lines that the dialect understands.
    Lines(Dialect),
    /// Not read, or read by the reader of another row.
    None,
}

pub(crate) type Open = fn(&Path, Input) -> Result<Opened, Error>;

/// Every format that is read or written. A new format is registered here only. If two dialects understand equally many lines, the first one
/// is taken. `make reference` writes this table to docs/reference.
pub const TABLE: &[Format] = &[
    stream::FORMAT,
    dat::VERSION_6,
    dat::VERSION_7,
    blktrace::FORMAT,
    ftrace::FORMAT,
    ftrace::systrace::FORMAT,
    blktrace::blkparse::FORMAT,
    perf::FORMAT,
    perfetto::FORMAT,
    flashmon::LOG,
    flashmon::SPATIAL,
    packed::FORMAT,
    Format { name: "JSON lines, CSV", read: "no", written: "yes", recognised_by: "", reader: Reader::None },
    Format { name: "Parquet", read: "no", written: "yes", recognised_by: "", reader: Reader::None },
];

/// The formats that are read, one line each, for a help text.
pub fn help() -> String {
    let read = TABLE.iter().filter(|format| format.read != "no");
    let line = |format: &Format| {
        let how = if format.read == "yes" { String::new() } else { format!(" ({})", format.read) };
        format!("  {}{how}\n", format.name.replace('`', ""))
    };
    read.map(line).collect()
}

/// The table in docs/reference/formats.md: heading, and one row per format.
pub fn table() -> String {
    let row =
        |f: &Format| format!("| {} | {} | {} | {} |\n", f.name, f.read, f.written, f.recognised_by.replace('|', "\\|"));
    let rows: String = TABLE.iter().map(row).collect();
    format!("| format | read | written | recognised by |\n|---|---|---|---|\n{}", rows.replace("|  |", "| |"))
}

/// Opens the text with one dialect, without trying the others.
#[cfg(test)]
fn trace_of(format: &Format, text: &[u8]) -> crate::Trace {
    let Reader::Lines(dialect) = format.reader else { panic!("{} is not read as lines", format.name) };
    let text = Text::new(Input::Memory(text.into()).into(), dialect, Wrap::Not, false);
    let opened = parsed::open("fixture".as_ref(), Box::new(text)).expect("it opens");
    crate::Trace::of_opened("fixture".as_ref(), opened)
}

/// The beginning of a file.
pub(crate) struct Head {
    bytes: Vec<u8>,
    /// The first lines of a text, in the form in which the tool printed them.
    text: Vec<u8>,
    /// All lines have numbers before them, which `text` is without.
    numbered: bool,
}

impl Head {
    /// Number of bytes that recognition looks at.
    pub const SIZE: usize = 64 << 10;

    /// The first bytes of an input: `SIZE` of them, or all.
    pub fn of(bytes: Vec<u8>) -> Head {
        let whole = bytes.len() < Head::SIZE;
        let mut lines: Vec<&[u8]> = text::without_mark(&bytes).split_inclusive(|&b| b == b'\n').take(256).collect();
        let cut = lines.last().is_some_and(|line| !line.ends_with(b"\n")) && !whole;
        if cut && lines.len() > 1 {
            lines.pop();
        }
        let lines: Vec<&[u8]> = lines.into_iter().map(text::without_end).collect();
        let numbered = text::are_numbered(&lines);
        let mut text = Vec::new();
        for line in lines {
            text.extend_from_slice(&text::plain(if numbered { text::without_number(line) } else { line }));
            text.push(b'\n');
        }
        Head { bytes, text, numbered }
    }

    pub fn read(input: &Input) -> io::Result<Head> {
        let mut bytes = vec![0; Head::SIZE];
        let n = input.fill_at(&mut bytes, 0)?;
        bytes.truncate(n);
        Ok(Head::of(bytes))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whole lines, without line ends.
    fn lines(&self) -> Vec<&[u8]> {
        self.text.split_inclusive(|&b| b == b'\n').map(text::without_end).collect()
    }
}

/// The reader for these first bytes; `None` if no format is recognised by its bytes.
fn of_bytes(head: &Head) -> Option<Open> {
    TABLE.iter().find_map(|format| match format.reader {
        Reader::Bytes { is, open } => is(head.bytes()).then_some(open),
        _ => None,
    })
}

/// The kind of a text.
enum Chosen {
    Dialect(Dialect, Wrap),
    /// Text of a latency tracer.
    Latency,
    None,
}

/// Chooses the dialect that understands most of the first lines. Fewer than four times as many other lines may be among them, as in text
/// pasted from a terminal.
fn choose(head: &Head) -> Chosen {
    // An archive's headings cut its text, and not all of the text belongs to the trace.
    if is_archive(head) || text::has_lone_returns(head.bytes()) {
        return Chosen::None;
    }
    if ftrace::systrace::is_page(head.bytes()) {
        return Chosen::Dialect(ftrace::systrace::DIALECT, Wrap::Not);
    }
    let lines = head.lines();
    let header = ftrace::header(if head.numbered { &head.text } else { head.bytes() });
    if header == Header::Latency {
        return Chosen::Latency;
    }
    let dialects = || {
        TABLE.iter().filter_map(|format| match format.reader {
            Reader::Lines(dialect) => Some(dialect),
            _ => None,
        })
    };
    let most =
        |a: (Dialect, Wrap, Understood), b: (Dialect, Wrap, Understood)| if b.2.events > a.2.events { b } else { a };
    let plain = |dialect| {
        let of = Understood::of(&dialect, Wrap::Not, &lines);
        (of.events > 0 && of.malformed <= of.events * 4).then_some((dialect, Wrap::Not, of))
    };
    if perf::has_deltas(&lines) || ftrace::of_several_files(&lines) {
        return Chosen::None;
    }
    let has_changed_columns = blktrace::blkparse::has_changed_columns(&lines);
    let best = if has_changed_columns { None } else { dialects().filter_map(plain).reduce(most) };
    let events = best.map_or(0, |best| best.2.events);
    let wrapped = |dialect| {
        let (wrap, of) = wrapped::found(&dialect, &lines)?;
        (of.events > events).then_some((dialect, wrap, of))
    };
    let joined = match best {
        Some((.., of)) if of.malformed == 0 => None,
        _ => dialects().filter_map(wrapped).reduce(most),
    };
    let parted = |dialect| {
        let (wrap, of) = wrapped::several(&dialect, &lines)?;
        let events = joined.map_or(events, |(_, _, joined)| joined.events.max(events));
        (of.events > events).then_some((dialect, wrap, of))
    };
    let parted = dialects().filter_map(parted).reduce(most);
    match (parted.or(joined).or(best), header) {
        (Some((dialect, wrap, _)), _) => Chosen::Dialect(dialect, wrap),
        _ if has_changed_columns || ftrace::of_raw_clock(&lines) || text::has_decimal_commas(&lines) => Chosen::None,
        (None, Header::Text) => Chosen::Dialect(ftrace::DIALECT, Wrap::Not),
        (None, _) => Chosen::None,
    }
}

/// Opens a file, packed or not, by its contents.
pub(crate) fn open(path: &Path, input: Input) -> Result<Opened, Error> {
    let head = Head::read(&input).map_err(|e| Error::io(path, "read", e))?;
    let Some(packing) = Packing::of(head.bytes()) else { return open_plain(path, input, &head) };
    let unpacked = packed::unpack(path, &input, packing, 0, |head| is_known(path, head))?;
    let head = Head::read(&unpacked.input).map_err(|e| Error::io(path, "read", e))?;
    let mut opened = open_plain(path, unpacked.input, &head)?;
    if unpacked.cut {
        opened.losses.add(Loss::DataCut, 1);
    }
    Ok(opened)
}

fn open_plain(path: &Path, input: Input, head: &Head) -> Result<Opened, Error> {
    if let Some(open) = of_bytes(head) {
        return open(path, input);
    }
    match choose(head) {
        Chosen::Dialect(dialect, wrap) => {
            let text = Text::new(Arc::new(input), dialect, wrap, head.numbered);
            parsed::open(path, Box::new(text))
        }
        Chosen::Latency => Err(Error::Unsupported {
            path: path.to_path_buf(),
            what:
                "is the text of a latency tracer, whose times count from its own beginning; record with trace-cmd or \
                   flashscope"
                    .to_string(),
        }),
        Chosen::None => Err(unknown(path, head)),
    }
}

/// Whether to read on after this beginning: it is a trace, or a packed file that may contain one.
pub(crate) fn begins_as_known(path: &Path, head: Head) -> Result<(), Error> {
    let spatial = flashmon::looks_like(head.bytes()) == Looks::Spatial;
    if spatial || Packing::of(head.bytes()).is_some() { Ok(()) } else { is_known(path, &head) }
}

/// Ok if this beginning is a trace; otherwise an error that names the kind of file.
fn is_known(path: &Path, head: &Head) -> Result<(), Error> {
    if of_bytes(head).is_some() || !matches!(choose(head), Chosen::None) {
        return Ok(());
    }
    Err(unknown(path, head))
}

fn unknown(path: &Path, head: &Head) -> Error {
    let path = path.to_path_buf();
    match (Packing::of(head.bytes()), refusal(head)) {
        (Some(packing), _) => {
            let what = format!("is packed twice, with {} inside; unpack it once", packing.name());
            Error::Unsupported { path, what }
        }
        (None, Some(what)) => Error::Unsupported { path, what },
        (None, None) => Error::Unrecognised { path, hint: "its beginning looks like none of them" },
    }
}
