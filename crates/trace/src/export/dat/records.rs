//! Writes a trace.dat from selected records of one trace, or from several traces.
//!
//! The sub-buffers are encoded again. There are two passes over the records: the first computes the size of each CPU's data, because the
//! header states it; the second writes. Only one sub-buffer per CPU is in memory.

use super::write::{Place, header, inputs_of, own_section, publish_error, put_places, write_error};
use crate::decode::names::Names;
use crate::error::Error;
use crate::events::phase::{Mark, Phase, Phases};
use crate::formats::recorded::{Delivered, Ring, RingBuffer, TASKS_BUFFER};
use crate::kind::TraceKind;
use crate::losses::{Loss, Losses};
use crate::merged::MergedTrace;
use crate::record::Record;
use crate::ring::schema::{Layout, Schemas};
use crate::ring::{Encoder, Missed};
use crate::source::Opened;
use crate::trace::Trace;
use flashscope_output::{Output, Rules};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A CPU of one of the file's buffers.
type BufferAndCpu = (usize, u16);

/// Takes the next whole sub-buffer of a CPU.
type PageSink<'a> = dyn FnMut(BufferAndCpu, &[u8]) -> Result<(), Error> + 'a;

/// Counts of written and dropped records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordsWritten {
    pub bytes: u64,
    pub records: u64,
    /// Records that the filter excluded.
    pub left_out: u64,
    /// Records that do not fit into a sub-buffer; the file counts them as `events_not_delivered`.
    pub too_large: u64,
}

/// Writes the records of a trace for which `keep` is true. `keep` is called twice per record and must return the same each time. The events
/// that flashscope recorded for task names are always kept. The facts state how many records were left out.
pub fn write_filtered(trace: &Trace, path: &Path, keep: &dyn Fn(&Record<'_>) -> bool) -> Result<RecordsWritten, Error> {
    write_from(&[(trace, 0)], path, &|_, record| keep(record))
}

/// Writes the records of several traces for which `keep` is true, on the clock of the first trace. Every other trace becomes buffer
/// instances of its own (`trace1`, `trace1-NAME` …), so that CPUs of different machines stay apart. trace.dat has one name for a thread id:
/// if two traces use the same id, the name from the first one is kept.
pub fn write_merged(
    merged: &MergedTrace,
    path: &Path,
    keep: &dyn Fn(usize, &Record<'_>) -> bool,
) -> Result<RecordsWritten, Error> {
    let sources: Vec<_> = merged.sources().iter().map(|s| (&s.trace, s.offset_ns)).collect();
    write_from(&sources, path, keep)
}

/// One input trace of the file.
struct From<'a> {
    trace: &'a Trace,
    ring: &'a Ring,
    offset_ns: i64,
    /// Event ids in the input → ids in the file, if they differ.
    ids: HashMap<u16, u16>,
    /// Names of the input's buffers → indexes in the file.
    buffers: HashMap<&'a str, usize>,
}

/// The sources, their formats together, and the names of the file's buffers.
type Joined<'a> = (Vec<From<'a>>, Schemas, Vec<String>);

fn join<'a>(sources: &[(&'a Trace, i64)]) -> Result<Joined<'a>, Error> {
    let refused = |trace: &Trace, what: String| Error::Unsupported { path: trace.path().to_path_buf(), what };
    let mut from: Vec<From<'a>> = Vec::with_capacity(sources.len());
    let (mut schemas, mut buffers) = (Schemas::new(), Vec::new());
    for (index, &(trace, offset_ns)) in sources.iter().enumerate() {
        let Some(ring) = trace.ring() else {
            let what = "holds no ring-buffer data, which a trace.dat is made of; export it to csv, json or perfetto";
            return Err(refused(trace, what.to_string()));
        };
        if let Some(first) = from.first() {
            let (a, b) = (&first.ring.layout, &ring.layout);
            let same = |l: &Layout| (l.endian, l.long_size, l.commit_offset, l.commit_size, l.data_offset);
            if same(a) != same(b) {
                let path = first.trace.path().display();
                let what =
                    format!("was recorded with another byte order or word size than {path}: one trace.dat has one");
                return Err(refused(trace, what));
            }
        }
        let ids = take_schemas(&mut schemas, ring).ok_or_else(|| {
            refused(trace, "has more kinds of events than one trace.dat can number (65536)".to_string())
        })?;
        let mut numbers = HashMap::new();
        for (b, buffer) in ring.buffers.iter().enumerate() {
            // The first trace's main buffer is always written.
            if !buffer.lanes.is_empty() || (index == 0 && b == 0) {
                numbers.insert(buffer.name.as_str(), buffers.len());
                buffers.push(match (index, buffer.name.as_str()) {
                    (0, name) => name.to_string(),
                    (_, "") => format!("trace{index}"),
                    (_, name) => format!("trace{index}-{name}"),
                });
            }
        }
        from.push(From { trace, ring, offset_ns, ids, buffers: numbers });
    }
    Ok((from, schemas, buffers))
}

fn write_from(
    sources: &[(&Trace, i64)],
    path: &Path,
    keep: &dyn Fn(usize, &Record<'_>) -> bool,
) -> Result<RecordsWritten, Error> {
    let (from, schemas, buffers) = join(sources)?;
    let Some(first) = from.first() else {
        return Err(Error::Unsupported { path: path.to_path_buf(), what: "there is no trace to write".to_string() });
    };
    let mut layout = first.ring.layout;
    layout.subbuf_size = from.iter().map(|f| f.ring.layout.subbuf_size).max().unwrap_or(layout.subbuf_size);

    // The number of sub-buffers for each CPU of each buffer.
    let mut pages: BTreeMap<BufferAndCpu, u64> = BTreeMap::new();
    let mut written = pass(&from, layout, keep, &mut |lane, _| {
        *pages.entry(lane).or_default() += 1;
        Ok(())
    })?;
    let head = synthetic(&from, layout, schemas, &buffers, &written, path)?;
    let Some(ring) = head.ring() else { unreachable!("it was made of one") };

    let failed = |e: io::Error| write_error(first.trace, path, e);
    let own = own_section(&head, ring, None).map_err(|e| failed(io::Error::other(e)))?;
    let names: Vec<&str> = buffers.iter().map(String::as_str).collect();
    let page = u64::from(layout.subbuf_size);
    let mut places: Vec<Vec<Place>> = buffers.iter().map(|_| Vec::new()).collect();
    let mut tables = vec![0u64; buffers.len()];
    let table_size = 16 * u64::from(ring.cpus);
    let mut at = header(&head, ring, &names, &places, &tables).map_err(failed)?.len() as u64 + table_size;
    at += own.len() as u64;
    for b in 0..buffers.len() {
        if b > 0 {
            tables[b] = at;
            at += 10 + table_size;
        }
        for cpu in 0..ring.cpus {
            let size = pages.get(&(b, cpu as u16)).copied().unwrap_or(0) * page;
            let offset = at.next_multiple_of(page.max(4096));
            if size > 0 {
                at = offset + size;
            }
            places[b].push(Place { offset, size });
        }
    }

    let traces: Vec<&Trace> = sources.iter().map(|&(trace, _)| trace).collect();
    let inputs = inputs_of(&traces, &[]);
    let private = flashscope_output::is_root();
    let output = Output::create(path, Rules { inputs: &inputs, positions: true, private, ..Rules::default() })?;
    let file = output.file();
    let mut begin = header(&head, ring, &names, &places, &tables).map_err(failed)?;
    begin.extend_from_slice(&own);
    file.write_all_at(&begin, 0).map_err(failed)?;
    for b in 1..buffers.len() {
        let mut table = b"flyrecord\0".to_vec();
        put_places(&mut table, layout.endian, &places[b]);
        file.write_all_at(&table, tables[b]).map_err(failed)?;
    }
    let mut next: BTreeMap<BufferAndCpu, u64> = BTreeMap::new();
    pass(&from, layout, keep, &mut |lane, bytes| {
        let place = &places[lane.0][usize::from(lane.1)];
        let count = next.entry(lane).or_default();
        if (*count + 1) * page > place.size {
            return Err(Error::io(path, "write", io::Error::other("`keep` answered another time than before")));
        }
        file.write_all_at(bytes, place.offset + *count * page).map_err(failed)?;
        *count += 1;
        Ok(())
    })?;
    // The last sub-buffer is padded to its full size.
    file.set_len(at).map_err(failed)?;
    output.publish().map_err(|e| publish_error(first.trace, e))?;
    written.bytes = at;
    Ok(written)
}

/// Adds a trace's formats. An event that has the same fields in both keeps one id; another event gets a free id. `None`: no id is free.
fn take_schemas(all: &mut Schemas, ring: &Ring) -> Option<HashMap<u16, u16>> {
    let mut ids = HashMap::new();
    // KernelShark keeps ids in signed 16 bits (`struct kshark_entry`): larger ids have no name there.
    let mut free = (1..=0x7fff).rev().chain(0x8000..=u16::MAX);
    for schema in ring.schemas.iter() {
        let same = all.iter().find(|s| s.system == schema.system && s.name == schema.name && s.fields == schema.fields);
        if let Some(same) = same {
            if same.id != schema.id {
                ids.insert(schema.id, same.id);
            }
            continue;
        }
        let mut schema = (**schema).clone();
        if all.get(schema.id).is_some() {
            let id = free.find(|&id| all.get(id).is_none() && ring.schemas.get(id).is_none())?;
            ids.insert(schema.id, id);
            schema.text = schema.text.replacen(&format!("ID: {}", schema.id), &format!("ID: {id}"), 1);
            schema.id = id;
        }
        all.insert(schema);
    }
    Some(ids)
}

/// One pass over all records. Passes on every full sub-buffer, padded to its full size.
fn pass(
    from: &[From<'_>],
    layout: Layout,
    keep: &dyn Fn(usize, &Record<'_>) -> bool,
    page: &mut PageSink<'_>,
) -> Result<RecordsWritten, Error> {
    let mut written = RecordsWritten::default();
    for (index, source) in from.iter().enumerate() {
        let mut lanes: BTreeMap<BufferAndCpu, Encoder> = BTreeMap::new();
        let mut missed: HashMap<BufferAndCpu, Missed> = HashMap::new();
        let mut failed = None;
        let mut data = Vec::new();
        let mut hand = |lane: BufferAndCpu, mut bytes: Vec<u8>| {
            bytes.resize(layout.subbuf_size as usize, 0);
            page(lane, &bytes)
        };
        source.trace.for_each_record(&mut |record| {
            let Some(&buffer) = source.buffers.get(record.buffer) else { return };
            if failed.is_some() {
                return;
            }
            let lane = (buffer, record.cpu);
            // Events missing before a record that is left out are missing before the next record.
            let gap = missed.entry(lane).or_default();
            *gap = match (*gap, record.missed) {
                (m, Missed::Nothing) | (Missed::Nothing, m) => m,
                (Missed::Events(a), Missed::Events(b)) => Missed::Events(a.saturating_add(b)),
                _ => Missed::Unknown,
            };
            let mut shifted = *record;
            shifted.time = record.time.shifted(source.offset_ns);
            if record.buffer != TASKS_BUFFER && !keep(index, &shifted) {
                written.left_out += 1;
                return;
            }
            let encoder = lanes.entry(lane).or_insert_with(|| Encoder::new(layout));
            data.clear();
            data.extend_from_slice(record.data);
            // An event without a format must not get the id of another trace's event.
            let known = index == 0 || source.ring.schemas.get(record.id()).is_some();
            let id = if known { source.ids.get(&record.id()) } else { Some(&0) };
            if let Some(&id) = id
                && data.len() >= 2
            {
                let mut number = Vec::with_capacity(2);
                layout.endian.put_u16(&mut number, id);
                data[..2].copy_from_slice(&number);
            }
            if data.len() > encoder.room() {
                written.too_large += 1;
                return;
            }
            if *gap != Missed::Nothing {
                encoder.missed(std::mem::take(gap));
            }
            match encoder.record(shifted.time.0, &data) {
                Ok(full) => {
                    written.records += 1;
                    if let Some(bytes) = full {
                        failed = hand(lane, bytes).err();
                    }
                }
                Err(_too_large) => written.too_large += 1,
            }
        })?;
        if let Some(e) = failed {
            return Err(e);
        }
        for (lane, mut encoder) in lanes {
            if let Some(bytes) = encoder.finish() {
                hand(lane, bytes)?;
            }
        }
    }
    Ok(written)
}

/// A trace without data that has the contents of the header and of flashscope's own section.
fn synthetic(
    from: &[From<'_>],
    layout: Layout,
    schemas: Schemas,
    buffers: &[String],
    written: &RecordsWritten,
    path: &Path,
) -> Result<Trace, Error> {
    let first = &from[0];
    let mut losses = Losses::new();
    let mut phases = Phases::default();
    let mut initial = first.trace.initial_names.clone();
    let mut names = Names::default();
    for (index, source) in from.iter().enumerate() {
        let mut lost = source.trace.losses();
        // Losses that the reader of the file will count again.
        for again in [
            Loss::EventsMissedAtGaps,
            Loss::GapsOfUnknownSize,
            Loss::TimesBackwards,
            Loss::RecordsOfUnknownType,
            Loss::RecordsMalformed,
            Loss::ReturnsUnmatched,
            Loss::ProgramsNotSeen,
            Loss::ErasesNotSeen,
        ] {
            lost.set(again, 0);
        }
        losses.merge(&lost);
        let shift = |time: u64| time.saturating_add_signed(source.offset_ns);
        phases.phases.extend(source.trace.phases().iter().map(|p| Phase {
            begin_ns: shift(p.begin_ns),
            end_ns: p.end_ns.map(shift),
            ..p.clone()
        }));
        phases.marks.extend(source.trace.marks().iter().map(|m| Mark { time_ns: shift(m.time_ns), ..m.clone() }));
        let own_tasks = source.ring.buffers.iter().any(|b| b.name == TASKS_BUFFER && !b.lanes.is_empty());
        for (tid, comm) in source.trace.names().last() {
            if !names.knows(tid) {
                names.set(tid, 0, comm.as_bytes());
            }
            // The file has the first trace's events that name tasks.
            let in_events = index == 0 && own_tasks;
            if !in_events && !initial.knows(tid) {
                initial.set(tid, 0, comm.as_bytes());
            }
        }
    }
    losses.add(Loss::EventsNotDelivered, written.too_large);
    phases.sort();
    let mut facts = if first.trace.facts.is_object() { first.trace.facts.clone() } else { json!({}) };
    let others: Vec<Value> = from[1..]
        .iter()
        .map(|f| json!({"facts": f.trace.facts, "clock": f.trace.clock(), "offset_ns": f.offset_ns}))
        .collect();
    facts["written_from"] = json!({"records_left_out": written.left_out, "merged_with": others});
    let cpus = from.iter().map(|f| f.ring.cpus).max().unwrap_or(1);
    let one_layout = from.iter().all(|f| f.ring.layout == layout);
    let ring = Ring {
        file: Arc::clone(&first.ring.file),
        layout,
        schemas: Arc::new(schemas),
        buffers: buffers.iter().map(|name| RingBuffer { name: name.clone(), lanes: Vec::new() }).collect(),
        header_page: if one_layout { first.ring.header_page.clone() } else { String::new() },
        header_event: first.ring.header_event.clone(),
        clock: first.ring.clock.clone(),
        cpus,
        time_offset: 0,
        kallsyms: first.ring.kallsyms.clone(),
        printk: first.ring.printk.clone(),
        uname: first.ring.uname.clone(),
        read: Delivered::default(),
        threads: None,
    };
    let opened = Opened { facts, phases, losses, names: initial, ..Opened::of(TraceKind::TraceDat, ring) };
    let trace = Trace::of_opened(path, opened);
    let _ = trace.names.set(names);
    Ok(trace)
}
