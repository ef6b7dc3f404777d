//! Parts of a header that versions 6 and 7 share.

use super::cursor::Cursor;
use super::option;
use super::own::Own;
use crate::bytes::until_nul;
use crate::error::Error;
use crate::formats::recorded::Blob;
use crate::formats::recorded::pages::PageSource;
use crate::losses::{Loss, Losses};
use crate::ring::schema::{Layout, MAX_FORMATS_MEMORY, Schema, Schemas};

/// Largest number of event formats in a file.
const MAX_EVENTS: u32 = 1 << 16;
/// Largest number of CPUs with data, over all buffers.
pub(super) const MAX_LANES: usize = 8192;
pub(super) const MAX_BUFFERS: usize = 256;
pub(super) const MAX_OPTIONS: usize = 1 << 17;
/// Largest number of texts with CPU statistics, and their total size; the kernel's have below 300 bytes.
const MAX_CPUSTATS: usize = MAX_LANES + MAX_BUFFERS;
const MAX_CPUSTATS_BYTES: usize = 4 << 20;

/// The contents of a header.
pub(super) struct Header {
    pub version: u8,
    pub layout: Layout,
    pub schemas: Schemas,
    pub header_page: String,
    pub header_event: String,
    pub kallsyms: Option<Blob>,
    pub printk: Option<Blob>,
    pub cmdlines: String,
    pub cpus: u32,
    pub clock: String,
    pub options: Options,
    /// Name and sub-buffers by CPU of each buffer, the main one first.
    pub buffers: Vec<(String, Vec<(u16, PageSource)>)>,
    pub own: Option<Own>,
    pub losses: Losses,
}

/// Options that concern the whole file.
#[derive(Default)]
pub(super) struct Options {
    pub time_offset: i64,
    pub uname: String,
    pub recorded_by: String,
    pub cpustat: Vec<String>,
    cpustat_bytes: usize,
    /// Number of texts above the limit.
    pub cpustat_dropped: u64,
    pub cpus: Option<u32>,
    pub has_clock: bool,
    /// Times are counter ticks, and the file tells how to convert them to ns.
    pub ticks: bool,
}

impl Options {
    /// Reads a known option; returns false for others.
    pub fn take(&mut self, c: &Cursor<'_>, id: u16, bytes: &[u8]) -> bool {
        let text = || String::from_utf8_lossy(until_nul(bytes)).into_owned();
        match id {
            option::CPUSTAT => {
                let fits = self.cpustat.len() < MAX_CPUSTATS && self.cpustat_bytes + bytes.len() <= MAX_CPUSTATS_BYTES;
                if fits {
                    self.cpustat_bytes += bytes.len();
                    self.cpustat.push(text());
                } else {
                    self.cpustat_dropped += 1;
                }
            }
            option::TRACECLOCK => self.has_clock = true,
            option::UNAME => self.uname = text(),
            option::VERSION => self.recorded_by = text(),
            // In trace-cmd's files: microseconds to be added to every time.
            option::DATE => self.time_offset = self.time_offset.wrapping_add(number(&text()).wrapping_mul(1000)),
            option::OFFSET => self.time_offset = self.time_offset.wrapping_add(number(&text())),
            option::CPUCOUNT => self.cpus = c.endian.u32(bytes, 0),
            option::TSC2NSEC => self.ticks = true,
            _ => return false,
        }
        true
    }
}

/// Whether an option's contents are read; others are skipped, whatever their size.
pub(super) fn is_needed(id: u16) -> bool {
    matches!(
        id,
        option::DATE
            | option::CPUSTAT
            | option::BUFFER
            | option::TRACECLOCK
            | option::UNAME
            | option::OFFSET
            | option::CPUCOUNT
            | option::VERSION
            | option::TSC2NSEC
    )
}

/// Parses a number like C's strtoll with base 0.
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

/// Reads header_page and header_event.
pub(super) fn header_info(c: &mut Cursor<'_>) -> Result<(String, String), Error> {
    c.expect(b"header_page\0", "\"header_page\"")?;
    let header_page = c.text8("header_page")?;
    c.expect(b"header_event\0", "\"header_event\"")?;
    Ok((header_page, c.text8("header_event")?))
}

/// Collects the event formats.
pub(super) struct Formats<'a> {
    pub schemas: Schemas,
    layout: &'a Layout,
    count: u32,
    /// Bytes left for further formats.
    memory: usize,
}

impl<'a> Formats<'a> {
    pub fn new(layout: &'a Layout) -> Formats<'a> {
        Formats { schemas: Schemas::new(), layout, count: 0, memory: MAX_FORMATS_MEMORY }
    }

    fn one(&mut self, c: &mut Cursor<'_>, system: &str, losses: &mut Losses) -> Result<(), Error> {
        let text = c.text8("an event's format")?;
        let added = match Schema::parse(system, &text, self.layout.endian, self.layout.long_size) {
            Ok(schema) => self.schemas.insert_within(schema, &mut self.memory),
            Err(_) => false,
        };
        losses.add(Loss::FormatsDropped, u64::from(!added));
        self.more(c)
    }

    fn more(&mut self, c: &Cursor<'_>) -> Result<(), Error> {
        self.count += 1;
        if self.count > MAX_EVENTS {
            return Err(c.bad(format!("at most {MAX_EVENTS} formats"), "more"));
        }
        Ok(())
    }

    pub fn ftrace(&mut self, c: &mut Cursor<'_>, losses: &mut Losses) -> Result<(), Error> {
        for _ in 0..c.u32("the number of ftrace's formats")? {
            self.one(c, "ftrace", losses)?;
        }
        Ok(())
    }

    pub fn systems(&mut self, c: &mut Cursor<'_>, losses: &mut Losses) -> Result<(), Error> {
        for _ in 0..c.u32("the number of event systems")? {
            let system = c.string("the name of an event system")?;
            self.more(c)?;
            for _ in 0..c.u32("the number of a system's events")? {
                self.one(c, &system, losses)?;
            }
        }
        Ok(())
    }
}

/// kallsyms or printk_formats.
pub(super) fn long_text(c: &mut Cursor<'_>, what: &str) -> Result<Option<Blob>, Error> {
    let length = u64::from(c.u32(&format!("the size of {what}"))?);
    c.blob(length, what)
}

/// Clips a range from a header to the size of the file. `None` if all of it is beyond the end.
pub(super) fn place(offset: u64, length: u64, size: u64, losses: &mut Losses) -> Option<(u64, u64)> {
    if length == 0 {
        return None;
    }
    let there = size.saturating_sub(offset).min(length);
    if there < length {
        losses.add(Loss::DataCut, 1);
    }
    (there > 0).then_some((offset, there))
}
