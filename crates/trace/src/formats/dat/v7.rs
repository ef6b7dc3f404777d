//! Version 7: sections, packed or not, that options point to, and CPU data in packed chunks.

use super::cursor::Cursor;
use super::option;
use super::parts::{
    Formats, Header, MAX_BUFFERS, MAX_LANES, MAX_OPTIONS, Options, header_info, is_needed, long_text, place,
};
use super::{CUT_BEFORE_EVENTS, recover};
use crate::error::Error;
use crate::formats::recorded::Blob;
use crate::formats::recorded::pages::PageSource;
use crate::ids::MAX_CPUS;
use crate::input::Input;
use crate::losses::{Loss, Losses};
use crate::ring::codec::{Codec, MAX_UNPACKED};
use crate::ring::schema::{Layout, MAX_SUBBUF};
use std::cell::Cell;
use std::collections::BTreeSet;

/// A section's header: id, flags, description, size.
const SECTION_HEADER: u64 = 16;
/// Flag: packed.
const PACKED: u16 = 1;
/// Largest total size of unpacked sections; a kernel's formats and symbols have a tenth of it.
const MOST_OF_SECTIONS: u64 = 64 << 20;
/// Largest number of option sections; trace-cmd writes a few.
const MAX_OPTION_SECTIONS: usize = 1000;

/// Sections that the options point to.
#[derive(Default)]
struct Places {
    header_info: Option<u64>,
    ftrace: Option<u64>,
    events: Option<u64>,
    kallsyms: Option<u64>,
    printk: Option<u64>,
    cmdlines: Option<u64>,
    buffers: Vec<Buffer>,
}

struct Buffer {
    offset: u64,
    name: String,
    clock: String,
    page: Option<u32>,
    /// CPU, offset, size.
    cpus: Vec<(u32, u64, u64)>,
}

/// The codec of this file; the name is for messages.
struct Packing {
    name: String,
    codec: Option<Codec>,
    /// Bytes left for unpacking sections.
    left: Cell<u64>,
}

/// Reads everything after the page size.
pub(super) fn read(c: &mut Cursor<'_>, file: &Input, long_size: u8, page_size: u32) -> Result<Header, Error> {
    let mut losses = Losses::new();
    let name = c.string("the name of the compression")?;
    c.string("the version of the compression")?;
    let packing = Packing { codec: Codec::named(&name), name, left: Cell::new(MOST_OF_SECTIONS) };
    let first = c.u64("the offset of the first options")?;
    let sections = c.at;
    let mut options = Options::default();
    let (mut places, whole) = read_options(c, file, &packing, first, &mut options)?;
    if !whole {
        losses.add(Loss::DataCut, 1);
    }
    if !whole && places.buffers.is_empty() {
        places.buffers.push(main_buffer(c, file, sections, page_size)?);
    }
    if places.buffers.is_empty() {
        return Err(Error::Unsupported { path: c.path().to_path_buf(), what: "holds no ring-buffer data".to_string() });
    }

    let Some(at) = places.header_info else {
        return Err(c.bad("an option that says where header_page is", "none"));
    };
    let (header_page, header_event) = in_section(c, file, &packing, at, option::HEADER_INFO, header_info)?;
    let main_page = places.buffers.iter().find_map(|b| b.page).filter(|p| (64..=MAX_SUBBUF).contains(p));
    let layout = Layout::parse(&header_page, c.endian, long_size, main_page.unwrap_or(page_size));
    let mut formats = Formats::new(&layout);
    if let Some(at) = places.ftrace {
        in_section(c, file, &packing, at, option::FTRACE_EVENTS, |s| formats.ftrace(s, &mut losses))?;
    }
    if let Some(at) = places.events {
        in_section(c, file, &packing, at, option::EVENT_FORMATS, |s| formats.systems(s, &mut losses))?;
    }
    let schemas = formats.schemas;
    let mut kallsyms = None;
    if let Some(at) = places.kallsyms {
        kallsyms = carried(c, file, &packing, at, option::KALLSYMS, "kallsyms")?;
    }
    let mut printk = None;
    if let Some(at) = places.printk {
        printk = carried(c, file, &packing, at, option::PRINTK, "printk_formats")?;
    }
    let mut cmdlines = String::new();
    if let Some(at) = places.cmdlines {
        cmdlines = in_section(c, file, &packing, at, option::CMDLINES, |s| s.text8("saved_cmdlines"))?;
    }

    let clock = clock_of(c, &places.buffers)?;
    let mut cpus = options.cpus.unwrap_or(0).min(MAX_CPUS.into());
    let mut buffers = vec![(String::new(), Vec::new())];
    if places.buffers.iter().map(|buffer| buffer.cpus.len()).sum::<usize>() > MAX_LANES {
        return Err(c.bad(format!("at most {MAX_LANES} CPUs of all buffers"), "more"));
    }
    for buffer in places.buffers {
        if buffer.page.is_some_and(|p| p != layout.subbuf_size) {
            return Err(Error::Unsupported {
                path: c.path().to_path_buf(),
                what: "its buffers have sub-buffers of different sizes".to_string(),
            });
        }
        if buffer.offset.saturating_add(SECTION_HEADER) > c.size {
            losses.add(Loss::DataCut, 1);
            continue;
        }
        let lanes = lanes_of(c, &packing, &buffer, layout.subbuf_size, &mut losses)?;
        cpus = buffer.cpus.iter().fold(cpus, |most, (cpu, ..)| most.max(cpu + 1));
        if buffer.name.is_empty() {
            buffers[0].1 = lanes;
        } else {
            buffers.push((buffer.name, lanes));
        }
    }
    Ok(Header {
        version: 7,
        layout,
        schemas,
        header_page,
        header_event,
        kallsyms,
        printk,
        cmdlines,
        cpus: cpus.max(1),
        clock: clock.unwrap_or_else(|| "local".to_string()),
        options,
        buffers,
        own: None,
        losses,
    })
}

/// The main buffer of a file that was cut before the places of its buffers.
fn main_buffer(c: &Cursor<'_>, file: &Input, sections: u64, page_size: u32) -> Result<Buffer, Error> {
    let found = recover::data(c, file, sections, page_size).map_err(|e| Error::io(c.path(), "read", e))?;
    let Some(found) = found else {
        return Err(Error::Unsupported { path: c.path().to_path_buf(), what: CUT_BEFORE_EVENTS.to_string() });
    };
    let (name, clock) = (String::new(), String::new());
    Ok(Buffer { offset: found.offset, name, clock, page: Some(page_size), cpus: found.cpus })
}

/// The clock of all buffers; different clocks are an error. The clock of a buffer without data is ignored.
fn clock_of(c: &Cursor<'_>, buffers: &[Buffer]) -> Result<Option<String>, Error> {
    let has_data = |b: &&Buffer| b.cpus.iter().any(|(_, _, length)| *length > 0);
    let clocks: BTreeSet<&str> =
        buffers.iter().filter(has_data).map(|b| b.clock.as_str()).filter(|c| !c.is_empty()).collect();
    if clocks.len() > 1 {
        return Err(Error::Unsupported {
            path: c.path().to_path_buf(),
            what: format!(
                "has buffers with different clocks ({}), whose times cannot be compared; record all of them with the same -C, as \
                 \"trace-cmd record -C mono -e block -B NAME -C mono -e sched\"",
                clocks.into_iter().collect::<Vec<_>>().join(", ").escape_debug()
            ),
        });
    }
    Ok(clocks.first().map(|clock| clock.to_string()))
}

/// The sub-buffers of each CPU.
fn lanes_of(
    c: &Cursor<'_>,
    packing: &Packing,
    buffer: &Buffer,
    page: u32,
    losses: &mut Losses,
) -> Result<Vec<(u16, PageSource)>, Error> {
    let mut section = c.of_part(buffer.offset, SECTION_HEADER);
    section.u16("a section's number")?;
    let packed = section.u16("a section's flags")? & PACKED != 0;
    let mut lanes: Vec<(u16, PageSource)> = Vec::new();
    for &(cpu, offset, length) in &buffer.cpus {
        if cpu >= u32::from(MAX_CPUS) {
            return Err(c.bad(format!("a CPU below {MAX_CPUS}"), format!("{cpu}")));
        }
        if let Some((offset, size)) = place(offset, length, c.size, losses) {
            let source = match packing.codec.filter(|_| packed) {
                Some(codec) => PageSource::Chunks { offset, size, page, codec, endian: c.endian },
                None if packed => return Err(unknown(c, packing)),
                None => PageSource::Flat { offset, size, page },
            };
            lanes.push((cpu as u16, source));
        }
    }
    Ok(lanes)
}

fn unknown(c: &Cursor<'_>, packing: &Packing) -> Error {
    Error::Unsupported {
        path: c.path().to_path_buf(),
        what: format!(
            "is compressed with \"{}\": zlib and zstd are read; \"trace-cmd convert --compression none\" unpacks it",
            packing.name.escape_debug()
        ),
    }
}

/// Passes the unpacked contents of a section to `f`.
fn in_section<T>(
    c: &Cursor<'_>,
    file: &Input,
    packing: &Packing,
    at: u64,
    id: u16,
    f: impl FnOnce(&mut Cursor<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut head = c.of_part(at, u64::MAX);
    let found = head.u16("a section's number")?;
    if found != id {
        head.at = at;
        return Err(head.bad(format!("section {id}"), format!("section {found}")));
    }
    let flags = head.u16("a section's flags")?;
    head.u32("a section's description")?;
    let length = head.u64("a section's size")?;
    if flags & PACKED == 0 {
        return f(&mut c.of_part(head.at, length));
    }
    let codec = packing.codec.ok_or_else(|| unknown(c, packing))?;
    let packed = head.u32("a section's packed size")?;
    let unpacked = head.u32("a section's unpacked size")?;
    if unpacked > MAX_UNPACKED || packed > MAX_UNPACKED || u64::from(packed) > head.size.saturating_sub(head.at) {
        return Err(head.bad(
            format!("a packed section that is there and unpacks to at most {MAX_UNPACKED} bytes"),
            format!("{packed} bytes that unpack to {unpacked}"),
        ));
    }
    let Some(left) = packing.left.get().checked_sub(u64::from(unpacked)) else {
        return Err(head.bad(format!("sections that unpack to at most {MOST_OF_SECTIONS} bytes"), "more"));
    };
    packing.left.set(left);
    let mut bytes = vec![0; packed as usize];
    file.read_exact_at(&mut bytes, head.at).map_err(|e| Error::io(c.path(), "read", e))?;
    let mut out = vec![0; unpacked as usize];
    if !codec.unpack(&bytes, &mut out) {
        return Err(head.bad(format!("{unpacked} bytes packed with {}", packing.name), "something else"));
    }
    f(&mut c.of_memory(&out, at))
}

/// A text that is only copied. If it is packed, it is unpacked at that time.
fn carried(
    c: &Cursor<'_>,
    file: &Input,
    packing: &Packing,
    at: u64,
    id: u16,
    what: &str,
) -> Result<Option<Blob>, Error> {
    let mut head = c.of_part(at, u64::MAX);
    let packed_section = (head.u16("a section's number")?, head.u16("a section's flags")? & PACKED);
    if packed_section != (id, PACKED) {
        return in_section(c, file, packing, at, id, |s| long_text(s, what));
    }
    let codec = packing.codec.ok_or_else(|| unknown(c, packing))?;
    head.skip(12, "a section's description and size")?;
    let packed = head.u32("a section's packed size")?;
    let unpacked = head.u32("a section's unpacked size")?;
    let offset = head.at;
    head.skip(u64::from(packed), what)?;
    Ok(Some(Blob::Packed { offset, packed, unpacked, codec }))
}

/// Follows the chain of option sections; false if the file ends before the next one.
fn read_options(
    c: &Cursor<'_>,
    file: &Input,
    packing: &Packing,
    first: u64,
    options: &mut Options,
) -> Result<(Places, bool), Error> {
    let mut places = Places::default();
    let mut at = first;
    let mut left = MAX_OPTIONS;
    for _ in 0..MAX_OPTION_SECTIONS {
        if at == 0 {
            return Ok((places, true));
        }
        // The file is cut here: the options before this place are kept.
        if at != first && at.saturating_add(SECTION_HEADER) > c.size {
            return Ok((places, false));
        }
        at = in_section(c, file, packing, at, option::DONE, |s| {
            // The size of an options section may be missing: its last option ends it.
            if s.size <= s.at {
                s.size = c.size;
            }
            one_options(s, options, &mut places, &mut left)
        })?;
    }
    Err(c.bad(format!("at most {MAX_OPTION_SECTIONS} option sections"), "more: they may point to each other"))
}

/// Returns the offset of the next options; 0: none.
fn one_options(s: &mut Cursor<'_>, options: &mut Options, places: &mut Places, left: &mut usize) -> Result<u64, Error> {
    loop {
        let id = s.u16("an option's number")?;
        let length = u64::from(s.u32("an option's size")?);
        *left = left.checked_sub(1).ok_or_else(|| s.bad(format!("at most {MAX_OPTIONS} options"), "more"))?;
        let place = match id {
            option::DONE => return if length >= 8 { s.u64("the offset of more options") } else { Ok(0) },
            option::HEADER_INFO => &mut places.header_info,
            option::FTRACE_EVENTS => &mut places.ftrace,
            option::EVENT_FORMATS => &mut places.events,
            option::KALLSYMS => &mut places.kallsyms,
            option::PRINTK => &mut places.printk,
            option::CMDLINES => &mut places.cmdlines,
            _ if !is_needed(id) => {
                s.skip(length, "an option")?;
                continue;
            }
            _ => {
                let bytes = s.bytes(length, "an option")?;
                if !options.take(s, id, &bytes) {
                    if places.buffers.len() == MAX_BUFFERS {
                        return Err(s.bad(format!("at most {MAX_BUFFERS} buffers"), "more"));
                    }
                    places.buffers.push(buffer(s, &bytes)?);
                }
                continue;
            }
        };
        *place = s.endian.u64(&s.bytes(length, "a section's offset")?, 0);
    }
}

fn buffer(s: &Cursor<'_>, bytes: &[u8]) -> Result<Buffer, Error> {
    let parse = || {
        let e = s.endian;
        let offset = e.u64(bytes, 0)?;
        let mut strings = bytes.get(8..)?.splitn(3, |&b| b == 0);
        let (name, clock, rest) = (strings.next()?, strings.next()?, strings.next()?);
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        // Early files of this version have no page size here: the length shows it.
        let count = |at: usize| {
            let n = e.u32(rest, at)? as usize;
            (n.checked_mul(20)? == rest.len().checked_sub(at + 4)?).then_some(n)
        };
        let (page, table, n) = match count(4) {
            Some(n) => (e.u32(rest, 0), 8, n),
            None => (None, 4, count(0)?),
        };
        let cpus = (0..n)
            .map(|i| table + i * 20)
            .map(|at| Some((e.u32(rest, at)?, e.u64(rest, at + 4)?, e.u64(rest, at + 12)?)));
        Some(Buffer { offset, name: text(name), clock: text(clock), page, cpus: cpus.collect::<Option<_>>()? })
    };
    parse().ok_or_else(|| {
        s.bad("a buffer's offset, name, clock and CPUs", format!("{} bytes that do not hold them", bytes.len()))
    })
}
