//! Reads trace.dat files: flashscope's own and trace-cmd's.

use super::own::{self, Own};
use super::{MAGIC, option};
use crate::bytes::Endian;
use crate::error::Error;
use crate::format::{Layout, MAX_SUBBUF, Schema, Schemas};
use crate::losses::{Loss, Losses};
use crate::names::Names;
use crate::pages::PageSource;
use crate::phase::Phases;
use crate::trace::{Blob, Ring, RingBuffer, Trace, TraceKind, count_statistics};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Longest single text of the header that is read, and all of them together.
const MAX_TEXT: u64 = 4 << 20;
const MAX_TEXTS: u64 = 64 << 20;
/// Formats of one file.
const MAX_EVENTS: u32 = 1 << 16;
const MAX_CPUS: u32 = 8192;
const MAX_BUFFERS: usize = 256;
const MAX_OPTIONS: usize = 1 << 17;

pub(crate) fn looks_like_dat(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Opens a trace.dat. One whose CPU data was cut opens with what is left; a header that was cut is an error.
pub(crate) fn open(path: &Path) -> Result<Trace, Error> {
    let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let size = file.metadata().map_err(|e| Error::io(path, "read", e))?.len();
    let mut c = Cursor { file: &file, path, at: 0, size, endian: Endian::Little, budget: MAX_TEXTS };
    if c.bytes(10, "trace.dat's magic")? != MAGIC {
        return Err(c.bad("trace.dat's magic", "something else"));
    }
    let version = c.string("the version's number")?;
    match version.as_str() {
        "6" => {}
        _ => {
            return Err(Error::Unsupported {
                path: path.to_path_buf(),
                what: format!(
                    "trace.dat of version {}: version 6 is read; \"trace-cmd convert --file-version 6\" makes one",
                    version.escape_debug()
                ),
            });
        }
    }
    let head = c.bytes(2, "byte order and size of long")?;
    c.endian = match head[0] {
        0 => Endian::Little,
        1 => Endian::Big,
        other => return Err(c.bad("byte order 0 or 1", format!("{other}"))),
    };
    let long_size = head[1];
    if !matches!(long_size, 4 | 8) {
        return Err(c.bad("a long of 4 or 8 bytes", format!("{long_size}")));
    }
    let page_size = c.u32("the page size")?;
    if !(64..=MAX_SUBBUF).contains(&page_size) {
        return Err(c.bad(format!("a page size from 64 to {MAX_SUBBUF}"), format!("{page_size}")));
    }
    let header = read_header(&mut c, long_size, page_size)?;
    finish(path, &file, size, header)
}

/// A cursor over the header; every length is held against the file's size and a budget before it is believed.
struct Cursor<'a> {
    file: &'a File,
    path: &'a Path,
    at: u64,
    size: u64,
    endian: Endian,
    budget: u64,
}

impl Cursor<'_> {
    fn bad(&self, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::malformed(self.path, self.at, expected, found)
    }

    fn check(&self, length: u64, what: &str) -> Result<(), Error> {
        let left = self.size.saturating_sub(self.at);
        if length > left {
            return Err(self
                .bad(format!("{what} ({length} bytes)"), format!("the end of the file {left} bytes on: it was cut")));
        }
        Ok(())
    }

    fn bytes(&mut self, length: u64, what: &str) -> Result<Vec<u8>, Error> {
        self.check(length, what)?;
        if length > MAX_TEXT.max(u64::from(MAX_CPUS) * 16) || length > self.budget {
            return Err(self.bad(format!("{what} of a size that makes sense"), format!("{length} bytes")));
        }
        self.budget -= length;
        let mut out = vec![0; length as usize];
        self.file.read_exact_at(&mut out, self.at).map_err(|e| Error::io(self.path, "read", e))?;
        self.at += length;
        Ok(out)
    }

    fn skip(&mut self, length: u64, what: &str) -> Result<Blob, Error> {
        self.check(length, what)?;
        let blob = Blob { offset: self.at, size: length };
        self.at += length;
        Ok(blob)
    }

    fn u16(&mut self, what: &str) -> Result<u16, Error> {
        let b = self.bytes(2, what)?;
        Ok(self.endian.u16(&b, 0).unwrap_or(0))
    }

    fn u32(&mut self, what: &str) -> Result<u32, Error> {
        let b = self.bytes(4, what)?;
        Ok(self.endian.u32(&b, 0).unwrap_or(0))
    }

    fn u64(&mut self, what: &str) -> Result<u64, Error> {
        let b = self.bytes(8, what)?;
        Ok(self.endian.u64(&b, 0).unwrap_or(0))
    }

    /// Up to a NUL, at most 256 bytes.
    fn string(&mut self, what: &str) -> Result<String, Error> {
        let length = self.size.saturating_sub(self.at).min(256);
        let begin = self.at;
        let bytes = self.bytes(length, what)?;
        let Some(end) = bytes.iter().position(|&b| b == 0) else {
            self.at = begin;
            return Err(self.bad(format!("{what}, ended by a NUL within 256 bytes"), "none"));
        };
        self.budget += length - end as u64;
        self.at = begin + end as u64 + 1;
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// A text with its size before it.
    fn text8(&mut self, what: &str) -> Result<String, Error> {
        let length = self.u64(&format!("the size of {what}"))?;
        Ok(String::from_utf8_lossy(&self.bytes(length, what)?).into_owned())
    }

    fn expect(&mut self, tag: &[u8], what: &str) -> Result<(), Error> {
        let begin = self.at;
        let found = self.bytes(tag.len() as u64, what)?;
        if found != tag {
            self.at = begin;
            return Err(self.bad(what, format!("\"{}\"", found.escape_ascii())));
        }
        Ok(())
    }
}

/// What the header says.
struct Header {
    layout: Layout,
    schemas: Schemas,
    header_page: String,
    header_event: String,
    kallsyms: Option<Blob>,
    printk: Option<Blob>,
    cmdlines: String,
    cpus: u32,
    clock: String,
    time_offset: i64,
    uname: String,
    version: String,
    /// CPUSTAT texts, in order.
    cpustat: Vec<String>,
    buffers: Vec<(String, Vec<(u64, u64)>)>,
    own: Option<Own>,
    losses: Losses,
}

fn read_header(c: &mut Cursor<'_>, long_size: u8, page_size: u32) -> Result<Header, Error> {
    let mut losses = Losses::new();
    c.expect(b"header_page\0", "\"header_page\"")?;
    let header_page = c.text8("header_page")?;
    c.expect(b"header_event\0", "\"header_event\"")?;
    let header_event = c.text8("header_event")?;
    // The kernel's long can differ from the one of the tool that recorded: header_page knows.
    let layout = Layout::parse(&header_page, c.endian, long_size, page_size);

    let mut schemas = Schemas::new();
    let mut add = |system: &str, text: &str, losses: &mut Losses| match Schema::parse(
        system,
        text,
        layout.endian,
        layout.long_size,
    ) {
        Ok(schema) => schemas.insert(schema),
        Err(_) => losses.add(Loss::FormatsDropped, 1),
    };
    let mut events = 0u32;
    let count = c.u32("the number of ftrace's formats")?;
    for _ in 0..count {
        let text = c.text8("a format of ftrace")?;
        add("ftrace", &text, &mut losses);
        events += 1;
        if events > MAX_EVENTS {
            return Err(c.bad(format!("at most {MAX_EVENTS} formats"), "more"));
        }
    }
    let systems = c.u32("the number of event systems")?;
    for _ in 0..systems {
        let system = c.string("the name of an event system")?;
        let count = c.u32("the number of a system's events")?;
        events = events.saturating_add(1);
        for _ in 0..count {
            let text = c.text8("an event's format")?;
            add(&system, &text, &mut losses);
            events += 1;
            if events > MAX_EVENTS {
                return Err(c.bad(format!("at most {MAX_EVENTS} formats"), "more"));
            }
        }
        if events > MAX_EVENTS {
            return Err(c.bad(format!("at most {MAX_EVENTS} event systems"), "more"));
        }
    }
    let length = u64::from(c.u32("the size of kallsyms")?);
    let kallsyms = Some(c.skip(length, "kallsyms")?).filter(|b| b.size > 0);
    let length = u64::from(c.u32("the size of printk_formats")?);
    let printk = Some(c.skip(length, "printk_formats")?).filter(|b| b.size > 0);
    let cmdlines = c.text8("saved_cmdlines")?;
    let mut cpus = c.u32("the number of CPUs")?;

    let mut tag = c.bytes(10, "\"options\", \"flyrecord\" or \"latency\"")?;
    let (mut buffers, mut cpustat) = (Vec::new(), Vec::new());
    let (mut has_clock, mut time_offset) = (false, 0i64);
    let (mut uname, mut version) = (String::new(), String::new());
    if tag.starts_with(b"options") {
        for n in 0.. {
            let id = c.u16("an option's number")?;
            if id == option::DONE {
                break;
            }
            if n == MAX_OPTIONS {
                return Err(c.bad(format!("at most {MAX_OPTIONS} options"), "more"));
            }
            let length = u64::from(c.u32("an option's size")?);
            if !matches!(
                id,
                option::DATE
                    | option::CPUSTAT
                    | option::BUFFER
                    | option::TRACECLOCK
                    | option::UNAME
                    | option::OFFSET
                    | option::CPUCOUNT
                    | option::VERSION
            ) {
                c.skip(length, "an option")?;
                continue;
            }
            let at = c.at;
            let bytes = c.bytes(length, "an option")?;
            let text = String::from_utf8_lossy(crate::bytes::until_nul(&bytes)).into_owned();
            match id {
                option::CPUSTAT => cpustat.push(text),
                option::TRACECLOCK => has_clock = true,
                option::UNAME => uname = text,
                option::VERSION => version = text,
                // Microseconds, as trace-cmd writes them, to be added to every time.
                option::DATE => time_offset = time_offset.wrapping_add(number(&text).wrapping_mul(1000)),
                option::OFFSET => time_offset = time_offset.wrapping_add(number(&text)),
                option::CPUCOUNT => cpus = c.endian.u32(&bytes, 0).unwrap_or(cpus),
                option::BUFFER => {
                    let Some(offset) = c.endian.u64(&bytes, 0) else {
                        c.at = at;
                        return Err(c.bad("a buffer's offset and name", format!("{length} bytes")));
                    };
                    let name = String::from_utf8_lossy(crate::bytes::until_nul(&bytes[8..])).into_owned();
                    if buffers.len() == MAX_BUFFERS {
                        return Err(c.bad(format!("at most {MAX_BUFFERS} buffers"), "more"));
                    }
                    buffers.push((offset, name));
                }
                _ => {}
            }
        }
        tag = c.bytes(10, "\"flyrecord\" or \"latency\"")?;
    }
    if cpus > MAX_CPUS {
        return Err(c.bad(format!("at most {MAX_CPUS} CPUs"), format!("{cpus}")));
    }
    if tag.starts_with(b"latency") {
        return Err(Error::Unsupported {
            path: c.path.to_path_buf(),
            what: "holds the text of a latency tracer, not ring-buffer data".to_string(),
        });
    }
    if !tag.starts_with(b"flyrecord") {
        return Err(c.bad("\"flyrecord\" or \"latency\"", format!("\"{}\"", tag.escape_ascii())));
    }
    let mut all = vec![(String::new(), table(c, cpus)?)];
    let mut clock = "local".to_string();
    if has_clock {
        // trace-cmd itself falls back to "local" where this text is damaged.
        if let Ok(text) = c.text8("the clock's text") {
            clock = clock_name(&text).unwrap_or(clock);
        }
    }
    let own = read_own(c, &mut losses);
    for (offset, name) in buffers {
        c.at = offset;
        if offset >= c.size {
            losses.add(Loss::DataCut, 1);
            continue;
        }
        c.expect(b"flyrecord\0", "a buffer's \"flyrecord\"")?;
        all.push((name, table(c, cpus)?));
    }
    Ok(Header {
        layout,
        schemas,
        header_page,
        header_event,
        kallsyms,
        printk,
        cmdlines,
        cpus,
        clock,
        time_offset,
        uname,
        version,
        cpustat,
        buffers: all,
        own,
        losses,
    })
}

/// Offsets and sizes of each CPU's data.
fn table(c: &mut Cursor<'_>, cpus: u32) -> Result<Vec<(u64, u64)>, Error> {
    let bytes = c.bytes(u64::from(cpus) * 16, "the table of CPU data")?;
    let e = c.endian;
    Ok((0..cpus as usize)
        .map(|i| (e.u64(&bytes, i * 16).unwrap_or(0), e.u64(&bytes, i * 16 + 8).unwrap_or(0)))
        .collect())
}

/// The clock in brackets: "local global [mono] boot".
fn clock_name(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (name, _) = rest.split_once(']')?;
    Some(name.trim().to_string())
}

/// As C's strtoll with base 0.
fn number(text: &str) -> i64 {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap_or(0) as i64,
        None => digits.parse::<i64>().unwrap_or(0),
    };
    if negative { value.wrapping_neg() } else { value }
}

fn read_own(c: &mut Cursor<'_>, losses: &mut Losses) -> Option<Own> {
    let mut head = [0; own::HEADER];
    c.file.read_exact_at(&mut head, c.at).ok()?;
    let (length, crc) = own::header(&head)?;
    let read = || {
        let left = c.size.saturating_sub(c.at + own::HEADER as u64);
        if length > left || length > own::MAX {
            return None;
        }
        let mut json = vec![0; length as usize];
        c.file.read_exact_at(&mut json, c.at + own::HEADER as u64).ok()?;
        own::decode(&json, crc)
    };
    let own = read();
    if own.is_none() {
        losses.add(Loss::OwnSectionDamaged, 1);
    }
    own
}

fn finish(path: &Path, file: &File, size: u64, header: Header) -> Result<Trace, Error> {
    let mut losses = header.losses;
    let page = header.layout.subbuf_size;
    let mut buffers = Vec::new();
    for (name, table) in header.buffers {
        let mut lanes = Vec::new();
        for (cpu, (offset, length)) in table.into_iter().enumerate() {
            if length == 0 {
                continue;
            }
            let there = size.saturating_sub(offset).min(length);
            if there < length {
                losses.add(Loss::DataCut, 1);
            }
            if there > 0 {
                lanes.push((cpu as u16, PageSource::Flat { offset, size: there, page }));
            }
        }
        buffers.push(RingBuffer { name, lanes });
    }
    let mut names = Names::default();
    let (facts, stats, phases, mut clock) = match header.own {
        Some(own) => {
            losses.merge(&own.losses);
            for (tid, comm) in &own.tasks {
                names.set(*tid, 0, comm.as_bytes());
            }
            (own.facts, own.stats, own.phases, own.clock)
        }
        None => {
            for line in header.cmdlines.lines() {
                if let Some((pid, comm)) = line.trim_start().split_once(' ')
                    && let Ok(pid) = pid.parse()
                {
                    names.set(pid, 0, comm.as_bytes());
                }
            }
            let stats = cpu_statistics(&header.cpustat);
            count_statistics(&stats, &mut losses);
            if stats.is_null() {
                losses.add(Loss::StatisticsMissing, 1);
            }
            let facts = json!({"trace_dat": {
                "version": 6, "uname": header.uname, "recorded_by": header.version,
            }});
            (facts, stats, Phases::default(), String::new())
        }
    };
    if clock.is_empty() {
        clock = header.clock;
    }
    let ring = Ring {
        file: Arc::new(file.try_clone().map_err(|e| Error::io(path, "open", e))?),
        layout: header.layout,
        schemas: Arc::new(header.schemas),
        buffers,
        header_page: header.header_page,
        header_event: header.header_event,
        clock,
        cpus: header.cpus,
        time_offset: header.time_offset,
        kallsyms: header.kallsyms,
        printk: header.printk,
        uname: header.uname,
    };
    Trace::from_ring(path, TraceKind::TraceDat, ring, facts, stats, phases, losses, names)
}

/// CPUSTAT texts into the shape of FS_STATS. Other tools' counts are taken for losses, not for what was delivered: they
/// are read before the last sub-buffers are.
fn cpu_statistics(texts: &[String]) -> Value {
    let mut instances: Vec<Vec<Value>> = vec![Vec::new()];
    for text in texts {
        if text.trim_start().starts_with("Buffer:") {
            instances.push(Vec::new());
            continue;
        }
        let mut cpu = serde_json::Map::new();
        for line in text.lines() {
            let Some((label, value)) = line.split_once(':') else { continue };
            let key = match label.trim() {
                "CPU" => "cpu",
                "overrun" => "overrun",
                "commit overrun" => "commit_overrun",
                "dropped events" => "dropped",
                _ => continue,
            };
            if let Ok(n) = value.trim().parse::<u64>() {
                cpu.insert(key.to_string(), n.into());
            }
        }
        if cpu.contains_key("cpu")
            && let Some(list) = instances.last_mut()
        {
            list.push(Value::Object(cpu));
        }
    }
    if instances.iter().all(Vec::is_empty) {
        return Value::Null;
    }
    let instances: Vec<Value> =
        instances.into_iter().enumerate().map(|(i, cpu)| json!({"instance": i, "cpu": cpu})).collect();
    json!({ "instances": instances })
}
