//! The parts of a header that both versions have.

use super::cursor::Cursor;
use super::option;
use super::own::Own;
use crate::bytes::until_nul;
use crate::error::Error;
use crate::formats::recorded::Blob;
use crate::formats::recorded::pages::PageSource;
use crate::losses::{Loss, Losses};
use crate::ring::schema::{Layout, MAX_FORMATS_MEMORY, Schema, Schemas};

/// Formats of one file.
const MAX_EVENTS: u32 = 1 << 16;
/// CPUs with data, of all buffers together.
pub(super) const MAX_LANES: usize = 8192;
pub(super) const MAX_BUFFERS: usize = 256;
pub(super) const MAX_OPTIONS: usize = 1 << 17;
/// Texts of the CPUs' counts, and bytes of all of them: the kernel's have below 300.
const MAX_CPUSTATS: usize = MAX_LANES + MAX_BUFFERS;
const MAX_CPUSTATS_BYTES: usize = 4 << 20;

/// What a header says.
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
    /// Name, and sub-buffers by CPU; the main one first.
    pub buffers: Vec<(String, Vec<(u16, PageSource)>)>,
    pub own: Option<Own>,
    pub losses: Losses,
}

/// Options that say something about the whole file.
#[derive(Default)]
pub(super) struct Options {
    pub time_offset: i64,
    pub uname: String,
    pub recorded_by: String,
    pub cpustat: Vec<String>,
    cpustat_bytes: usize,
    /// Those beyond what is kept.
    pub cpustat_dropped: u64,
    pub cpus: Option<u32>,
    pub has_clock: bool,
    /// Times are ticks of a counter, and the file says how to turn them into nanoseconds.
    pub ticks: bool,
}

impl Options {
    /// Takes one that it knows; false for others.
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
            // Microseconds, as trace-cmd writes them, to be added to every time.
            option::DATE => self.time_offset = self.time_offset.wrapping_add(number(&text()).wrapping_mul(1000)),
            option::OFFSET => self.time_offset = self.time_offset.wrapping_add(number(&text())),
            option::CPUCOUNT => self.cpus = c.endian.u32(bytes, 0),
            option::TSC2NSEC => self.ticks = true,
            _ => return false,
        }
        true
    }
}

/// Options whose contents are read; others are skipped, whatever their size.
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

/// header_page and header_event.
pub(super) fn header_info(c: &mut Cursor<'_>) -> Result<(String, String), Error> {
    c.expect(b"header_page\0", "\"header_page\"")?;
    let header_page = c.text8("header_page")?;
    c.expect(b"header_event\0", "\"header_event\"")?;
    Ok((header_page, c.text8("header_event")?))
}

/// Collects formats.
pub(super) struct Formats<'a> {
    pub schemas: Schemas,
    layout: &'a Layout,
    count: u32,
    /// What is left for more of them.
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

/// A place that the file promises, as far as it is there. `None` where nothing is.
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
