//! Version 6: one header up to the table of CPU data.

use super::cursor::Cursor;
use super::option;
use super::own::{self, Own};
use super::parts::{
    Formats, Header, MAX_BUFFERS, MAX_LANES, MAX_OPTIONS, Options, header_info, is_needed, long_text, place,
};
use crate::error::Error;
use crate::formats::recorded::pages::PageSource;
use crate::ids::MAX_CPUS;
use crate::input::Input;
use crate::losses::{Loss, Losses};
use crate::ring::schema::Layout;

/// Reads everything after the page size.
pub(super) fn read(c: &mut Cursor<'_>, file: &Input, long_size: u8, page_size: u32) -> Result<Header, Error> {
    let mut losses = Losses::new();
    let (header_page, header_event) = header_info(c)?;
    // The kernel's `long` may differ from the recording tool's: header_page tells its size.
    let layout = Layout::parse(&header_page, c.endian, long_size, page_size);
    let mut formats = Formats::new(&layout);
    formats.ftrace(c, &mut losses)?;
    formats.systems(c, &mut losses)?;
    let schemas = formats.schemas;
    let kallsyms = long_text(c, "kallsyms")?;
    let printk = long_text(c, "printk_formats")?;
    let cmdlines = c.text8("saved_cmdlines")?;
    let mut cpus = c.u32("the number of CPUs")?;

    let mut tag = c.bytes(10, "\"options\", \"flyrecord\" or \"latency\"")?;
    let mut options = Options::default();
    let mut instances = Vec::new();
    if tag.starts_with(b"options") {
        instances = read_options(c, &mut options)?;
        tag = c.bytes(10, "\"flyrecord\" or \"latency\"")?;
    }
    cpus = options.cpus.unwrap_or(cpus);
    if cpus > u32::from(MAX_CPUS) {
        return Err(c.bad(format!("at most {MAX_CPUS} CPUs"), format!("{cpus}")));
    }
    if tag.starts_with(b"latency") {
        return Err(Error::Unsupported {
            path: c.path().to_path_buf(),
            what: "holds the text of a latency tracer, not ring-buffer data".to_string(),
        });
    }
    if !tag.starts_with(b"flyrecord") {
        return Err(c.bad("\"flyrecord\" or \"latency\"", format!("\"{}\"", tag.escape_ascii())));
    }
    let page = layout.subbuf_size;
    let mut buffers = vec![(String::new(), table(c, cpus, page, &mut losses)?)];
    let mut clock = "local".to_string();
    if options.has_clock {
        // trace-cmd falls back to "local" if this text is damaged.
        if let Ok(text) = c.text8("the clock's text") {
            clock = clock_name(&text).unwrap_or(clock);
        }
    }
    let own = read_own(c, file, &mut losses);
    for (offset, name) in instances {
        c.at = offset;
        if offset >= c.size {
            losses.add(Loss::DataCut, 1);
            continue;
        }
        c.expect(b"flyrecord\0", "a buffer's \"flyrecord\"")?;
        buffers.push((name, table(c, cpus, page, &mut losses)?));
        if buffers.iter().map(|(_, lanes)| lanes.len()).sum::<usize>() > MAX_LANES {
            return Err(c.bad(format!("at most {MAX_LANES} CPUs with data"), "more"));
        }
    }
    Ok(Header {
        version: 6,
        layout,
        schemas,
        header_page,
        header_event,
        kallsyms,
        printk,
        cmdlines,
        cpus,
        clock,
        options,
        buffers,
        own,
        losses,
    })
}

/// Fills `options`; returns offset and name of each instance.
fn read_options(c: &mut Cursor<'_>, options: &mut Options) -> Result<Vec<(u64, String)>, Error> {
    let mut instances = Vec::new();
    for _ in 0..MAX_OPTIONS {
        let id = c.u16("an option's number")?;
        if id == option::DONE {
            return Ok(instances);
        }
        let length = u64::from(c.u32("an option's size")?);
        if !is_needed(id) {
            c.skip(length, "an option")?;
            continue;
        }
        let at = c.at;
        let bytes = c.bytes(length, "an option")?;
        if !options.take(c, id, &bytes) {
            let Some(offset) = c.endian.u64(&bytes, 0) else {
                c.at = at;
                return Err(c.bad("a buffer's offset and name", format!("{length} bytes")));
            };
            if instances.len() == MAX_BUFFERS {
                return Err(c.bad(format!("at most {MAX_BUFFERS} buffers"), "more"));
            }
            instances.push((offset, String::from_utf8_lossy(crate::bytes::until_nul(&bytes[8..])).into_owned()));
        }
    }
    Err(c.bad(format!("at most {MAX_OPTIONS} options"), "more"))
}

/// Offset and size of each CPU's data.
fn table(c: &mut Cursor<'_>, cpus: u32, page: u32, losses: &mut Losses) -> Result<Vec<(u16, PageSource)>, Error> {
    let bytes = c.bytes(u64::from(cpus) * 16, "the table of CPU data")?;
    let number = |at: usize| c.endian.u64(&bytes, at).unwrap_or(0);
    let mut lanes = Vec::new();
    for cpu in 0..cpus as usize {
        if let Some((offset, size)) = place(number(cpu * 16), number(cpu * 16 + 8), c.size, losses) {
            lanes.push((cpu as u16, PageSource::Flat { offset, size, page }));
        }
    }
    Ok(lanes)
}

/// The clock in brackets: "local global [mono] boot".
fn clock_name(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (name, _) = rest.split_once(']')?;
    Some(name.trim().to_string())
}

/// flashscope's own section, directly after the header.
fn read_own(c: &Cursor<'_>, file: &Input, losses: &mut Losses) -> Option<Own> {
    let mut head = [0; own::HEADER];
    file.read_exact_at(&mut head, c.at).ok()?;
    let (length, crc) = own::header(&head)?;
    let at = c.at + own::HEADER as u64;
    let read = || {
        if length > c.size.saturating_sub(at) || length > own::MAX {
            return None;
        }
        let mut json = vec![0; length as usize];
        file.read_exact_at(&mut json, at).ok()?;
        own::decode(&json, crc)
    };
    let own = read();
    if own.is_none() {
        losses.add(Loss::OwnSectionDamaged, 1);
    }
    own
}
