//! Writes a trace.dat of version 6.

use super::anonymous::{Anonymizer, Key};
use crate::bytes::Endian;
use crate::error::Error;
use crate::formats::dat::own::{self, Own};
use crate::formats::dat::{MAGIC, option};
use crate::formats::recorded::pages::PageSource;
use crate::formats::recorded::{Blob, Ring};
use crate::ids::TaskId;
use crate::input::Input;
use crate::losses::Loss;
use crate::losses::stats_by_cpu;
use crate::ring::schema::{Layout, Schema};
use crate::ring::{Walked, Walker};
use crate::trace::Trace;
use flashscope_output::{HostFile, Output, OutputError, Rules};
use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Counts of the written file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub bytes: u64,
    pub sub_buffers: u64,
}

/// Writes a trace to `path`, for `trace-cmd report` and KernelShark. The file gets its name when it is complete. Until then it has a
/// temporary name in the same directory, and is removed if anything fails. `path` must not be the trace's own file, which is only read.
///
/// # Errors
/// A trace of text, a path that cannot be written, a full disk.
pub fn write(trace: &Trace, path: &Path) -> Result<Written, Error> {
    write_as(trace, path, Rules::default()).map(|(written, _)| written)
}

/// Like [`write()`], with the caller's rules for the output. Also returns the name of the file. The trace's own files count as inputs, in
/// addition to those of `rules`.
///
/// # Errors
/// As [`write()`].
pub fn write_as(trace: &Trace, path: &Path, rules: Rules<'_>) -> Result<(Written, PathBuf), Error> {
    write_with(trace, path, rules, None)
}

/// Like [`write_as()`], with pseudonyms for all names. Texts that another tool stored (kallsyms, printk formats) are left out.
///
/// # Errors
/// As [`write()`].
pub fn write_anonymized(trace: &Trace, path: &Path, rules: Rules<'_>, key: &Key) -> Result<(Written, PathBuf), Error> {
    write_with(trace, path, rules, Some(&Anonymizer::new(key.clone())))
}

fn write_with(
    trace: &Trace,
    path: &Path,
    rules: Rules<'_>,
    names: Option<&Anonymizer>,
) -> Result<(Written, PathBuf), Error> {
    let Some(ring) = trace.ring() else {
        return Err(Error::Unsupported {
            path: trace.path().to_path_buf(),
            what: "holds text, not the ring-buffer data that a trace.dat is made of".to_string(),
        });
    };
    let inputs = inputs_of(&[trace], rules.inputs);
    // A recording by root shows the activity of all users of the machine.
    let private = rules.private || flashscope_output::is_root();
    let output = Output::create(path, Rules { inputs: &inputs, private, ..rules })?;
    let failed = |e: io::Error| write_error(trace, path, e);
    let mut out = BufWriter::with_capacity(256 << 10, output.file());
    let written = write_all(trace, ring, names, &mut out).map_err(failed)?;
    out.flush().map_err(failed)?;
    drop(out);
    let named = output.publish().map_err(|e| publish_error(trace, e))?;
    Ok((written, named))
}

/// The files that the traces are read from, plus `more`.
pub(super) fn inputs_of(traces: &[&Trace], more: &[HostFile]) -> Vec<HostFile> {
    let files = traces.iter().flat_map(|trace| crate::files_of(trace.path()));
    files.filter_map(|file| HostFile::of(&file)).chain(more.iter().copied()).collect()
}

pub(super) fn publish_error(trace: &Trace, e: OutputError) -> Error {
    match e {
        OutputError::Io { path, source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
        {
            write_error(trace, &path, source)
        }
        e => e.into(),
    }
}

pub(super) fn write_error(trace: &Trace, path: &Path, e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::NoSpace { path: path.to_path_buf(), source_path: trace.path().to_path_buf() }
        }
        _ => Error::io(path, "write", e),
    }
}

/// The place of one CPU's data of one buffer.
pub(super) struct Place {
    pub offset: u64,
    pub size: u64,
}

fn write_all(trace: &Trace, ring: &Ring, names: Option<&Anonymizer>, out: &mut impl Write) -> io::Result<Written> {
    let layout = &ring.layout;
    let page = u64::from(layout.subbuf_size);
    let align = page.max(4096);
    // Statistics name a buffer by its position: one without data is left out only behind the last one that has some.
    let last = ring.buffers.iter().rposition(|b| !b.lanes.is_empty()).unwrap_or(0);
    let buffers: Vec<_> = ring.buffers.iter().take(last + 1).collect();
    let own = own_section(trace, ring, names).map_err(io::Error::other)?;

    // The offsets are in the header; its size does not depend on them.
    let mut places: Vec<Vec<Place>> = buffers.iter().map(|_| Vec::new()).collect();
    let mut tables = vec![0u64; buffers.len()];
    let called = buffers_of(&buffers, names);
    let called: Vec<&str> = called.iter().map(|name| &**name).collect();
    let header_size =
        header_of(trace, ring, &called, &places, &tables, names)?.len() as u64 + 16 * u64::from(ring.cpus);
    let mut at = header_size + own.len() as u64;
    for (b, buffer) in buffers.iter().enumerate() {
        if b > 0 {
            tables[b] = at;
            at += 10 + 16 * u64::from(ring.cpus);
        }
        for cpu in 0..ring.cpus {
            let mut pages = 0;
            for (_, source) in buffer.lanes.iter().filter(|(c, _)| u32::from(*c) == cpu) {
                pages += source.count(&ring.file)?;
            }
            let size = pages * page;
            let offset = at.next_multiple_of(align);
            if size > 0 {
                at = offset + size;
            }
            places[b].push(Place { offset, size });
        }
    }

    let mut out = Counted { out, at: 0 };
    out.write_all(&header_of(trace, ring, &called, &places, &tables, names)?)?;
    out.write_all(&own)?;
    let mut sub_buffers = 0;
    for (b, buffer) in buffers.iter().enumerate() {
        if b > 0 {
            out.pad_to(tables[b])?;
            let mut table = b"flyrecord\0".to_vec();
            put_places(&mut table, layout.endian, &places[b]);
            out.write_all(&table)?;
        }
        for (cpu, place) in places[b].iter().enumerate() {
            if place.size == 0 {
                continue;
            }
            out.pad_to(place.offset)?;
            for (_, source) in buffer.lanes.iter().filter(|(c, _)| usize::from(*c) == cpu) {
                let clean = |page: &mut [u8]| {
                    if let Some(names) = names {
                        names.page(layout, &ring.schemas, page);
                    }
                };
                sub_buffers += write_pages(&ring.file, layout, source, &clean, &mut out)?;
            }
            // Sub-buffers that were indexed but could not be read again leave a hole: trace-cmd needs whole pages.
            while out.at < place.offset + place.size {
                out.write_all(&empty_page(layout))?;
            }
        }
    }
    Ok(Written { bytes: out.at, sub_buffers })
}

fn buffers_of<'a>(
    buffers: &[&'a crate::formats::recorded::RingBuffer],
    names: Option<&Anonymizer>,
) -> Vec<Cow<'a, str>> {
    let name = |name: &'a str| names.map_or(name.into(), |names| names.buffer(name));
    buffers.iter().map(|b| name(&b.name)).collect()
}

/// Copies a lane's sub-buffers, each padded to its full size. A sub-buffer that was cut ends after its last whole record; flashscope's own
/// section counts the loss.
fn write_pages<W: Write>(
    file: &Arc<Input>,
    layout: &Layout,
    source: &PageSource,
    clean: &dyn Fn(&mut [u8]),
    out: &mut Counted<'_, W>,
) -> io::Result<u64> {
    let mut pages = source.open(file, 1);
    let size = layout.subbuf_size as usize;
    let mut copy = Vec::with_capacity(size);
    let mut count = 0;
    while pages.advance()? {
        count += 1;
        copy.clear();
        copy.extend_from_slice(&pages.page()[..pages.page().len().min(size)]);
        let Some(mut walker) = Walker::start(layout, &copy) else {
            out.write_all(&empty_page(layout))?;
            continue;
        };
        let mut good = layout.data_offset as usize;
        let whole = loop {
            match walker.next(layout, &copy) {
                Walked::Record { end, .. } => good = end,
                Walked::End => break !walker.cut,
                Walked::Damaged => break false,
            }
        };
        if !whole {
            copy.truncate(good);
            set_commit(layout, &mut copy, good - layout.data_offset as usize);
        }
        copy.resize(size, 0);
        clean(&mut copy);
        out.write_all(&copy)?;
    }
    Ok(count)
}

fn empty_page(layout: &Layout) -> Vec<u8> {
    vec![0; layout.subbuf_size as usize]
}

/// Sets the number of committed bytes. The kernel's flag for missing events before stays, without its count.
fn set_commit(layout: &Layout, page: &mut [u8], bytes: usize) {
    let (at, size) = (layout.commit_offset as usize, usize::from(layout.commit_size));
    let Some(old) = layout.endian.uint(page, at, size) else { return };
    let new = (old & (1 << 31)) | bytes as u64;
    let mut field = Vec::new();
    if size == 4 {
        layout.endian.put_u32(&mut field, new as u32);
    } else {
        layout.endian.put_u64(&mut field, new);
    }
    page[at..at + size].copy_from_slice(&field);
}

pub(super) fn own_section(trace: &Trace, ring: &Ring, anonymizer: Option<&Anonymizer>) -> serde_json::Result<Vec<u8>> {
    let mut losses = trace.base_losses.clone();
    // Damaged sub-buffers are written repaired, so a reader of the file will not see the damage.
    let all = trace.losses();
    losses.set(Loss::SubBuffersDamaged, all.get(Loss::SubBuffersDamaged));
    // A name without a time must not become the first name of a task that the events name.
    let (initial, names) = (&trace.initial_names, trace.names());
    let tasks = initial.last().into_iter().filter_map(|(tid, comm)| {
        let first = if initial.knows(tid) { Some(comm) } else { names.get(tid, 0) };
        Some((tid, first?.to_string()))
    });
    let mut own = Own {
        facts: trace.facts.clone(),
        stats: trace.stats.clone(),
        phases: trace.phases.clone(),
        losses,
        tasks: tasks.collect(),
        clock: ring.clock.clone(),
    };
    if let Some(anonymizer) = anonymizer {
        anonymizer.own(&mut own);
    }
    own::encode(&own)
}

/// Everything before flashscope's own section.
pub(super) fn header(
    trace: &Trace,
    ring: &Ring,
    names: &[&str],
    places: &[Vec<Place>],
    tables: &[u64],
) -> io::Result<Vec<u8>> {
    header_of(trace, ring, names, places, tables, None)
}

fn header_of(
    trace: &Trace,
    ring: &Ring,
    names: &[&str],
    places: &[Vec<Place>],
    tables: &[u64],
    anonymizer: Option<&Anonymizer>,
) -> io::Result<Vec<u8>> {
    let layout = &ring.layout;
    let e = layout.endian;
    let mut h = Vec::new();
    h.extend_from_slice(MAGIC);
    h.extend_from_slice(b"6\0");
    h.push(u8::from(e == Endian::Big));
    h.push(layout.long_size);
    // trace-cmd 3.1.6 reads CPU data in steps of this size: the sub-buffer's size, whatever the kernel's page size is.
    e.put_u32(&mut h, layout.subbuf_size);

    let header_page = if ring.header_page.is_empty() { header_page_text(layout) } else { ring.header_page.clone() };
    h.extend_from_slice(b"header_page\0");
    put_text(&mut h, e, header_page.as_bytes());
    h.extend_from_slice(b"header_event\0");
    let header_event = if ring.header_event.is_empty() { HEADER_EVENT } else { &ring.header_event };
    put_text(&mut h, e, header_event.as_bytes());

    let (ftrace, others): (Vec<&Arc<Schema>>, Vec<_>) = ring.schemas.iter().partition(|s| s.system == "ftrace");
    e.put_u32(&mut h, ftrace.len() as u32);
    for schema in ftrace {
        put_text(&mut h, e, schema.text.as_bytes());
    }
    let mut systems: Vec<&str> = others.iter().map(|s| s.system.as_str()).collect();
    systems.sort_unstable();
    systems.dedup();
    e.put_u32(&mut h, systems.len() as u32);
    for system in systems {
        h.extend_from_slice(system.replace('\0', "").as_bytes());
        h.push(0);
        let events: Vec<_> = others.iter().filter(|s| s.system == system).collect();
        e.put_u32(&mut h, events.len() as u32);
        for schema in events {
            put_text(&mut h, e, schema.text.as_bytes());
        }
    }
    for blob in [&ring.kallsyms, &ring.printk] {
        let text = if anonymizer.is_some() { Vec::new() } else { Blob::read(blob.as_ref(), &ring.file)? };
        e.put_u32(&mut h, text.len() as u32);
        h.extend_from_slice(&text);
    }
    put_text(&mut h, e, cmdlines(trace, anonymizer).as_bytes());
    e.put_u32(&mut h, ring.cpus);

    h.extend_from_slice(b"options  \0");
    for (instance, name) in names.iter().enumerate() {
        put_stats(&mut h, e, trace, instance as u64, name);
    }
    for (b, name) in names.iter().enumerate().skip(1) {
        let mut o = Vec::new();
        e.put_u64(&mut o, tables[b]);
        o.extend_from_slice(name.as_bytes());
        o.push(0);
        put_option(&mut h, e, option::BUFFER, &o);
    }
    // trace-cmd 3.1.6 reads this text as a string, although the clock follows once more below. Without its NUL it reads beyond the text and
    // sometimes takes another clock.
    put_option(&mut h, e, option::TRACECLOCK, format!("[{}]\n\0", ring.clock).as_bytes());
    // The text contains the machine's name.
    if !ring.uname.is_empty() && anonymizer.is_none() {
        put_option(&mut h, e, option::UNAME, text_option(&ring.uname).as_bytes());
    }
    if ring.time_offset != 0 {
        put_option(&mut h, e, option::OFFSET, format!("{}\0", ring.time_offset).as_bytes());
    }
    put_option(&mut h, e, option::VERSION, concat!("flashscope ", env!("CARGO_PKG_VERSION"), "\0").as_bytes());
    e.put_u16(&mut h, option::DONE);

    h.extend_from_slice(b"flyrecord\0");
    put_places(&mut h, e, &places[0]);
    put_text(&mut h, e, format!("[{}]\n", ring.clock).as_bytes());
    Ok(h)
}

/// The text of `events/header_event` on every kernel since 2.6.31; no tool reads it.
const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n\
    \tarray       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30\n\
    \ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

fn header_page_text(layout: &Layout) -> String {
    format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
         \tfield: local_t commit;\toffset:{};\tsize:{};\tsigned:1;\n\
         \tfield: int overwrite;\toffset:{};\tsize:1;\tsigned:1;\n\
         \tfield: char data;\toffset:{};\tsize:{};\tsigned:0;\n",
        layout.commit_offset,
        layout.commit_size,
        layout.commit_offset,
        layout.data_offset,
        layout.subbuf_size.saturating_sub(layout.data_offset),
    )
}

/// `pid comm` lines with the last name of every task. trace-cmd has one name for a task, flashscope one for each time.
fn cmdlines(trace: &Trace, anonymizer: Option<&Anonymizer>) -> String {
    let mut out = String::new();
    for (tid, comm) in trace.names().last() {
        // A name with a line break is left out, because each line is one entry.
        let comm = anonymizer.map_or(Cow::Borrowed(comm), |names| names.task(comm).into());
        let comm: String = comm.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        if tid != TaskId(0) && !comm.trim().is_empty() {
            out.push_str(&format!("{tid} {comm}\n"));
        }
    }
    out
}

/// Per-CPU statistics in the form of `per_cpu/cpuN/stats`, as `trace-cmd record` stores them.
fn put_stats(h: &mut Vec<u8>, e: Endian, trace: &Trace, instance: u64, name: &str) {
    let mut any = false;
    for (_, cpu) in stats_by_cpu(&trace.stats).filter(|(i, _)| *i == instance) {
        if instance > 0 && !any {
            put_option(h, e, option::CPUSTAT, format!("\nBuffer: {name}\n\n\0").as_bytes());
        }
        any = true;
        let mut text = format!("CPU: {}\n", cpu["cpu"].as_u64().unwrap_or(0));
        for (label, key) in [
            ("entries", "entries"),
            ("overrun", "overrun"),
            ("commit overrun", "commit_overrun"),
            ("bytes", "bytes"),
            ("dropped events", "dropped"),
            ("read events", "read"),
        ] {
            if let Some(n) = cpu[key].as_u64() {
                text.push_str(&format!("{label}: {n}\n"));
            }
        }
        text.push('\0');
        put_option(h, e, option::CPUSTAT, text.as_bytes());
    }
}

fn text_option(text: &str) -> String {
    format!("{}\0", text.replace('\0', "?"))
}

fn put_option(out: &mut Vec<u8>, e: Endian, id: u16, bytes: &[u8]) {
    e.put_u16(out, id);
    e.put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn put_text(out: &mut Vec<u8>, e: Endian, text: &[u8]) {
    e.put_u64(out, text.len() as u64);
    out.extend_from_slice(text);
}

pub(super) fn put_places(out: &mut Vec<u8>, e: Endian, places: &[Place]) {
    for place in places {
        e.put_u64(out, place.offset);
        e.put_u64(out, place.size);
    }
}

/// A writer that counts its bytes.
struct Counted<'a, W> {
    out: &'a mut W,
    at: u64,
}

impl<W: Write> Counted<'_, W> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn pad_to(&mut self, at: u64) -> io::Result<()> {
        const ZERO: [u8; 4096] = [0; 4096];
        while self.at < at {
            let n = (at - self.at).min(ZERO.len() as u64) as usize;
            self.write_all(&ZERO[..n])?;
        }
        Ok(())
    }
}
