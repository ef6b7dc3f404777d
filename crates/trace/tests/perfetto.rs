//! What the Perfetto export says, read back with a reader of the wire format that shares nothing with the writer.

use crate::common::*;
use flashscope_trace::{Endian, EventKind, Session, Trace, export};
use std::collections::BTreeMap;
use std::path::Path;

/// One field of a message.
#[derive(Debug)]
enum Wire {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message in order; panics where it is none.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Wire)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let (&byte, rest) = bytes.split_first().expect("a varint ends");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
            assert!(shift < 70);
        }
    }
    let mut out = vec![];
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)),
            2 => {
                let n = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(n);
                bytes = rest;
                Wire::Bytes(value.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        out.push((tag >> 3, value));
    }
    out
}

fn number(of: &[(u64, Wire)], field: u64) -> Option<u64> {
    of.iter().find_map(|(f, w)| match w {
        Wire::Number(n) if *f == field => Some(*n),
        _ => None,
    })
}

fn bytes(of: &[(u64, Wire)], field: u64) -> Option<&[u8]> {
    of.iter().find_map(|(f, w)| match w {
        Wire::Bytes(b) if *f == field => Some(b.as_slice()),
        _ => None,
    })
}

fn text(of: &[(u64, Wire)], field: u64) -> String {
    String::from_utf8(bytes(of, field).unwrap_or_default().to_vec()).unwrap()
}

/// A slice or an instant, as the trace processor would have it in its table.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slice {
    time: u64,
    duration: Option<u64>,
    track: String,
    category: String,
    name: String,
    notes: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct Read {
    slices: Vec<Slice>,
    /// Values of each counter in order.
    counters: BTreeMap<String, Vec<(u64, i64)>>,
    clock: Option<u64>,
}

/// Reads a file the way the trace processor does: sorted by time, equal times in the file's order, ends close the
/// innermost slice of their track.
fn read(file: &[u8]) -> Read {
    let mut out = Read::default();
    let mut tracks = BTreeMap::new();
    let mut events = vec![];
    for (field, packet) in fields(file) {
        let (1, Wire::Bytes(packet)) = (field, packet) else { panic!("not a packet") };
        let packet = fields(&packet);
        assert_eq!(number(&packet, 10), Some(1));
        if let Some(snapshot) = bytes(&packet, 6) {
            out.clock = number(&fields(snapshot), 2);
        }
        if let Some(descriptor) = bytes(&packet, 60) {
            let d = fields(descriptor);
            let name = match bytes(&d, 4) {
                Some(thread) => {
                    let t = fields(thread);
                    assert_eq!(number(&t, 1), number(&t, 2));
                    format!("{} {}", text(&t, 5), number(&t, 2).unwrap())
                }
                None => text(&d, 2),
            };
            assert!(tracks.insert(number(&d, 1).unwrap(), name).is_none(), "a track is declared once");
        }
        if let Some(event) = bytes(&packet, 11) {
            assert_eq!(number(&packet, 58), out.clock);
            events.push((number(&packet, 8).unwrap(), fields(event)));
        }
    }
    events.sort_by_key(|(time, _)| *time);
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (time, event) in events {
        let track = number(&event, 11).unwrap();
        let name = tracks[&track].clone();
        match number(&event, 9).unwrap() {
            4 => out.counters.entry(name).or_default().push((time, number(&event, 30).unwrap() as i64)),
            2 => {
                let at = open.get_mut(&track).and_then(Vec::pop).expect("an end has its beginning");
                out.slices[at].duration = Some(time - out.slices[at].time);
            }
            kind @ (1 | 3) => {
                let notes = event.iter().filter(|(f, _)| *f == 4).map(|(_, note)| {
                    let Wire::Bytes(note) = note else { panic!() };
                    let note = fields(note);
                    let value = number(&note, 3).map_or_else(|| text(&note, 6), |n| n.to_string());
                    (text(&note, 10), value)
                });
                if kind == 1 {
                    open.entry(track).or_default().push(out.slices.len());
                }
                out.slices.push(Slice {
                    time,
                    duration: (kind == 3).then_some(0),
                    track: name,
                    category: text(&event, 22),
                    name: text(&event, 23),
                    notes: notes.collect(),
                });
            }
            other => panic!("type {other}"),
        }
    }
    out
}

fn exported(trace: &Trace) -> (Read, export::PerfettoWritten) {
    let mut out = vec![];
    let written = export::perfetto(trace, &mut out).unwrap();
    let read = read(&out);
    let values: usize = read.counters.values().map(Vec::len).sum();
    assert_eq!(read.slices.len() as u64, written.slices + written.instants);
    assert_eq!(values as u64, written.counts);
    (read, written)
}

#[test]
fn a_board_s_operations_are_slices_with_their_durations() {
    for name in ["armv7-5.10", "armv7-6.1", "armv7-7.2", "x86_64-6.1"] {
        let session = Session::open(&data(&format!("stream/{name}.port"))).unwrap();
        for index in 0..session.recordings.len() {
            let trace = session.recording(index).unwrap();
            let (read, written) = exported(&trace);
            assert_eq!(read.clock, Some(3));
            // tests/data/stream/ORIGIN.md: the second recording has durations.
            let mut want = vec![];
            let mut begun = BTreeMap::new();
            let all = events(&trace);
            for e in &all {
                let comm = trace.comm(e.tid, e.time).unwrap_or("<...>").to_string();
                match &e.kind {
                    EventKind::Flash(a) => {
                        begun.insert(format!("{:?} {}", a.op, e.tid), (e.time.0, a.page, comm));
                        if index == 0 {
                            want.push((e.time.0, 0, a.page));
                        }
                    }
                    EventKind::FlashDone { op, duration_ns } => {
                        let (time, page, _) = &begun[&format!("{op:?} {}", e.tid)];
                        assert_eq!(time + duration_ns, e.time.0);
                        want.push((*time, *duration_ns, *page));
                    }
                    _ => {}
                }
            }
            let got: Vec<_> = read.slices.iter().filter(|s| s.category == "flash").collect();
            let page = |s: &Slice| s.notes["page"].parse::<u64>().unwrap();
            assert_eq!(got.iter().map(|s| (s.time, s.duration.unwrap(), page(s))).collect::<Vec<_>>(), want, "{name}");
            if index == 1 {
                assert!(got.iter().all(|s| s.duration.unwrap() > 100_000), "130 µs a page: {got:?}");
                assert!(got[0].notes.contains_key("offset_bytes"));
            } else {
                let erase = &read.counters["chip 0 erases"];
                assert_eq!(erase.iter().map(|&(_, n)| n).collect::<Vec<_>>(), [1, 2]);
                assert_eq!(read.counters["chip 0 reads"].last().unwrap().1, 15);
            }
            assert!(got.iter().all(|s| s.track.starts_with("agent ") || s.track == "init 1"), "{got:?}");
            let phases: Vec<_> =
                read.slices.iter().filter(|s| s.category == "phase").map(|s| s.name.as_str()).collect();
            assert!(phases.contains(&"erase and write"), "{phases:?}");
            assert_eq!(written.unmatched, 0);
        }
    }
}

#[test]
fn block_requests_are_slices_on_their_device_and_a_depth() {
    let trace = Trace::open(&data("trace_dat/armv7-6.1-v6.dat")).unwrap();
    let (mut issued, mut completed, mut others) = (vec![], 0, 0);
    trace
        .for_each_record(&mut |r| match r.schema.name.as_str() {
            "block_rq_issue" => issued.push(r.time.0),
            "block_rq_complete" => completed += 1,
            _ => others += 1,
        })
        .unwrap();
    let (read, written) = exported(&trace);
    let requests: Vec<_> = read.slices.iter().filter(|s| s.track == "requests").collect();
    assert!(!issued.is_empty());
    assert_eq!(requests.iter().map(|s| s.time).collect::<Vec<_>>(), issued);
    assert_eq!(requests.iter().filter(|s| s.duration.is_some()).count() as u64, completed - written.unmatched);
    assert!(requests.iter().all(|s| s.name == "RA" && s.notes["comm"] == "busybox"), "{requests:?}");
    let (name, depth) = read.counters.first_key_value().unwrap();
    assert!(name.ends_with(" in flight"));
    assert_eq!(depth.len() as u64, issued.len() as u64 + completed - written.unmatched);
    assert!(depth.iter().all(|&(_, n)| n >= 0) && depth.iter().any(|&(_, n)| n > 0));
    // Every other record is there too, and what is missing.
    assert_eq!(written.instants, others + u64::from(!trace.losses().is_empty()));
}

#[test]
fn nested_operations_unmatched_ones_and_losses() {
    let dir = TempDir::new("perfetto");
    let mut s = Stream::new(Endian::Little, 8, 4096);
    s.begin(0, 1, &nand_facts());
    s.tasks(0, &[(7, "a\"b\n"), (9, "gc")]);
    s.records(
        0,
        0,
        0,
        &[
            (1_000, s.nand(READ, 7, 1)),
            (2_000, s.nand(READ, 9, 2)),
            (3_000, s.done(7)),
            (3_500, s.done(7)),
            (4_000, s.nand(READ, 9, 3)),
            (5_000, s.done(9)),
        ],
    );
    s.phase(0, 500, 0, "never ended");
    s.phase(0, 600, 2, "here");
    s.end(0, 0);
    let trace = Trace::open(&dir.file("s", &s.bytes)).unwrap();
    let (read, written) = exported(&trace);
    let of = |category: &str| {
        read.slices
            .iter()
            .filter(|s| s.category == category)
            .map(|s| (s.time, s.duration, s.name.as_str(), s.track.as_str()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of("flash"),
        [
            (1_000, Some(2_000), "read", "a\"b\n 7"),
            // Its return was not recorded.
            (2_000, Some(0), "read", "gc 9"),
            (4_000, Some(1_000), "read", "gc 9"),
        ]
    );
    assert_eq!(of("phase"), [(500, None, "never ended", "phases")]);
    assert_eq!(of("mark"), [(600, Some(0), "here", "marks")]);
    assert_eq!(written.slices, 3);
    // The return without its beginning is shown as the event that it is, and counted.
    let losses = read.slices.iter().find(|s| s.name == "losses").unwrap();
    assert_eq!(losses.notes["returns_unmatched"], "1");
    assert_eq!(losses.notes["statistics_missing"], "1");
}

/// Reads of one sector by two threads, 98 µs each in the device; of the third pair one completion is lost. Of each of the others both
/// have their own time; of the third none has an end, as in the report.
#[test]
fn requests_of_one_sector_have_their_own_ends_or_none() {
    let case = "../../tests/cases/reads-of-one-sector-completion-lost/input";
    let trace = Trace::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join(case)).unwrap();
    let (read, written) = exported(&trace);
    let requests = read.slices.iter().filter(|s| s.track == "requests");
    let times: Vec<_> = requests.map(|s| s.duration.map(|ns| ns / 1000)).collect();
    assert_eq!((written.requests, written.unmatched), (14, 0));
    assert_eq!(times.iter().filter(|&&us| us == Some(98)).count(), 14, "{times:?}");
    assert_eq!(times.iter().filter(|us| us.is_none()).count(), 2, "{times:?}");
}
