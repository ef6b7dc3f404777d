//! The formats that traces come in: one table of them, who tells them apart, and a module for each that is read through
//! [`made`].

pub(crate) mod blktrace;
pub mod dat;
pub mod flashmon;
pub(crate) mod ftrace;
pub(crate) mod made;
pub(crate) mod packed;
mod perf;
pub(crate) mod perfetto;
mod refused;
mod repeated;
pub(crate) mod stream;
pub(crate) mod text;

pub(crate) use refused::{is_archive, refusal};

use crate::input::Input;
use ftrace::Header;
use made::Item;
use std::io;
use text::Dialect;

/// A format, as help texts and docs/reference/formats.md list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    pub name: &'static str,
    /// `yes`, `no`, or how far.
    pub read: &'static str,
    pub written: &'static str,
    /// What it is told by; empty for one that is only written.
    pub told_by: &'static str,
}

/// Every format that is read or written. `report --help` and docs/reference/formats.md list the same; a test holds them equal.
pub const TABLE: &[Format] = &[
    Format {
        name: "the agent's stream (`agent/protocol.h`, docs/reference/agent-protocol.md)",
        read: "yes",
        written: "by the agent",
        told_by: "the bytes `FSC1`",
    },
    Format {
        name: "trace.dat of trace-cmd, version 6",
        read: "yes",
        written: "yes",
        told_by: "`17 08 44 \"tracing\"`, then `\"6\"`",
    },
    Format {
        name: "trace.dat of trace-cmd, version 7 (none, zlib, zstd)",
        read: "yes",
        written: "no",
        told_by: "the same, then `\"7\"`",
    },
    Format {
        name: "blktrace, versions 7 and 8: per-CPU files, `blktrace -o -`, `blkparse -d`",
        read: "yes",
        written: "no",
        told_by: "0x65617407 or 0x65617408, either byte order",
    },
    Format {
        name: "blkparse's text (not of `-f`)",
        read: "yes",
        written: "no",
        told_by: "lines `MAJOR,MINOR CPU NUMBER SECONDS PID STEP …`",
    },
    Format {
        name: "ftrace's text: `trace`, `trace_pipe`, latency-format, the `blk` tracer, `trace-cmd report` (also `-l`, `-t`, `-R`)",
        read: "best effort",
        written: "no",
        told_by: "`# tracer:`, or lines `COMM-TID [CPU] … TIME: …`",
    },
    Format {
        name: "systrace and atrace: text and HTML",
        read: "best effort",
        written: "no",
        told_by: "the same; a page of HTML with such text inside",
    },
    Format {
        name: "`perf script` text of trace points",
        read: "best effort",
        written: "no",
        told_by: "lines `COMM PID [CPU] TIME: SYSTEM:EVENT: …`",
    },
    Format {
        name: "Flashmon's temporal log",
        read: "yes",
        written: "yes",
        told_by: "a first line `seconds.decimals;R\\|W\\|E\\|C;address[;task]`",
    },
    Format {
        name: "Flashmon's spatial view",
        read: "counts of each block, by the library",
        written: "yes",
        told_by: "a first line of three numbers",
    },
    Format {
        name: "Perfetto's traces of Android and Linux (protobuf): kernel events, names of tasks",
        read: "yes",
        written: "yes",
        told_by: "packets of TracePacket one behind the other",
    },
    Format {
        name: "any of them packed with gzip, xz or zstd",
        read: "yes",
        written: "no",
        told_by: "`1f 8b`, `fd \"7zXZ\"`, `28 b5 2f fd`",
    },
    Format { name: "JSON lines, CSV", read: "no", written: "yes", told_by: "" },
    Format { name: "Parquet", read: "no", written: "yes", told_by: "" },
];

/// The formats that are read, for a help text: a line each.
pub fn help() -> String {
    let read = TABLE.iter().filter(|format| format.read != "no");
    let line = |format: &Format| {
        let how = if format.read == "yes" { String::new() } else { format!(" ({})", format.read) };
        format!("  {}{how}\n", format.name.replace('`', ""))
    };
    read.map(line).collect()
}

/// The beginning of a file.
pub(crate) struct Head {
    bytes: Vec<u8>,
    /// It is the whole file.
    whole: bool,
}

impl Head {
    /// Bytes by which formats are distinguished.
    pub const SIZE: usize = 64 << 10;

    /// The first bytes of something: `SIZE` of them, or all.
    pub fn of(bytes: Vec<u8>) -> Head {
        Head { whole: bytes.len() < Head::SIZE, bytes }
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

    /// Whole lines, without their ends.
    fn lines(&self) -> Vec<&[u8]> {
        let text = text::without_mark(&self.bytes);
        let mut lines: Vec<&[u8]> = text.split_inclusive(|&b| b == b'\n').take(256).collect();
        let cut = lines.last().is_some_and(|line| !line.ends_with(b"\n")) && !self.whole;
        if cut && lines.len() > 1 {
            lines.pop();
        }
        lines.into_iter().map(text::without_end).collect()
    }
}

/// What a text is.
pub(crate) enum Chosen {
    Dialect(Dialect),
    /// Of a latency tracer.
    Latency,
    None,
}

/// Text is in the dialect that understands most of its first lines. Others may stand among them, as in what is pasted from
/// a terminal, but not four times as many.
pub(crate) fn choose(head: &Head) -> Chosen {
    // The text of an archive is cut by its heads, and not all of it is the trace's.
    if is_archive(head) {
        return Chosen::None;
    }
    if ftrace::systrace::is_page(head.bytes()) {
        return Chosen::Dialect(ftrace::systrace::DIALECT);
    }
    let lines = head.lines();
    if blktrace::blkparse::has_changed_columns(&lines) {
        return Chosen::None;
    }
    let header = ftrace::header(head.bytes());
    if header == Header::Latency {
        return Chosen::Latency;
    }
    let count = |dialect: &Dialect| {
        let (mut events, mut malformed) = (0usize, 0usize);
        let mut reader = (dialect.lines)();
        for line in lines.iter().filter(|line| line.len() <= text::MAX_LINE) {
            reader.line(line, &mut |item| match item {
                Item::Event { .. } | Item::Lost { .. } => events += 1,
                Item::Malformed(_) => malformed += 1,
                _ => {}
            });
        }
        (events > 0 && malformed <= events * 4).then_some(events)
    };
    let dialects = [ftrace::DIALECT, blktrace::blkparse::DIALECT, perf::DIALECT];
    let best = dialects.into_iter().filter_map(|d| Some((count(&d)?, d))).reduce(|a, b| if b.0 > a.0 { b } else { a });
    match (best, header) {
        (Some((_, dialect)), _) => Chosen::Dialect(dialect),
        _ if ftrace::of_raw_clock(&lines) => Chosen::None,
        (None, Header::Text) => Chosen::Dialect(ftrace::DIALECT),
        (None, _) => Chosen::None,
    }
}
