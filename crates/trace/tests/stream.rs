//! The agent's stream: what is read, and what any damage costs.

use crate::common::*;
use flashscope_trace::{
    Endian, Error, EventKind, FlashAccess, FlashOp, Loss, Losses, Session, SessionOptions, TaskId, TimeNs, Trace, dat,
};

/// Losses above zero, by name.
fn lost(losses: &Losses) -> Vec<(&'static str, u64)> {
    losses.iter().filter(|&(_, n)| n > 0).map(|(l, n)| (l.name(), n)).collect()
}

#[test]
fn every_layout_gives_the_same_events() {
    let dir = TempDir::new("layouts");
    let mut first = None;
    for endian in [Endian::Little, Endian::Big] {
        for long in [4, 8] {
            for subbuf in [1024, 4096, 65536] {
                let path = dir.file("s", &example(endian, long, subbuf).bytes);
                let trace = Trace::open(&path).unwrap();
                let all = events(&trace);
                assert_eq!(flash_count(&all), 603);
                assert!(all.is_sorted_by_key(|e| e.time), "in time order");
                // Two MTD erases of two blocks each, beside three of the chip; 302 pages written, 300 programmed.
                // The kernel says it read one event more on CPU 1 than there is.
                let want = [
                    ("events_overwritten", 11),
                    ("probe_misses", 2),
                    ("events_not_delivered", 3),
                    ("programs_not_seen", 2),
                    ("erases_not_seen", 3),
                ];
                assert_eq!(lost(&trace.losses()), want);
                assert_eq!(first.get_or_insert_with(|| all.clone()), &all, "{endian:?} {long} {subbuf}");
            }
        }
    }
    let all = first.unwrap();
    assert_eq!(all[0].kind, EventKind::PhaseBegin { name: "read it".into() });
    let read = all.iter().find(|e| matches!(e.kind, EventKind::Flash(_))).unwrap();
    assert_eq!((read.time, read.cpu, read.tid.0), (TimeNs(1_000_150), 0, 20));
    let access = FlashAccess { op: FlashOp::Read, page: 4096, offset_bytes: None, length_bytes: None, chip: 0 };
    assert_eq!(read.kind, EventKind::Flash(access));
    let done = all.iter().find(|e| matches!(e.kind, EventKind::FlashDone { .. })).unwrap();
    assert_eq!(done.kind, EventKind::FlashDone { op: FlashOp::Read, duration_ns: 145 });
    // An erase's block becomes the block's first page.
    let erases: Vec<u64> = all
        .iter()
        .filter_map(|e| match e.kind {
            EventKind::Flash(FlashAccess { op: FlashOp::Erase, page, .. }) => Some(page),
            _ => None,
        })
        .collect();
    assert_eq!(erases, [0, 6400, 12800]);
}

#[test]
fn names_hold_at_their_time() {
    let dir = TempDir::new("names");
    let trace = Trace::open(&dir.file("s", &example(Endian::Little, 4, 4096).bytes)).unwrap();
    assert_eq!(trace.comm(TaskId(7), TimeNs(0)), Some("sh"));
    assert_eq!(trace.comm(TaskId(20), TimeNs(1_000_099)), None);
    assert_eq!(trace.comm(TaskId(20), TimeNs(1_000_150)), Some("sh"));
    assert_eq!(trace.comm(TaskId(20), TimeNs(1_000_200)), Some("cat"));
    assert_eq!(trace.comm(TaskId(21), TimeNs(u64::MAX)), Some("sh"));
    assert_eq!(trace.comm(TaskId(0), TimeNs(5)), Some("<idle>"));
}

#[test]
fn a_session_has_steps_output_and_files() {
    let dir = TempDir::new("session");
    let mut s = Stream::new(Endian::Little, 4, 4096);
    let hello = |s: &mut Stream, source| {
        let mut p = vec![1, 0, 0, 4, 0, 16, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        p.extend(b"0.1.0");
        s.frame(1, source, &p);
    };
    hello(&mut s, 0);
    for (source, name) in [(3, "mount"), (4, "cell-a")] {
        hello(&mut s, source);
        s.frame(14, source, name.as_bytes());
    }
    s.output(4, 1, b"{\"total_ns\": 5}");
    s.output(4, 2, b"warned\n");
    s.file(4, "/etc/fstab", 3, b"def");
    s.file(4, "/etc/fstab", 0, b"abc");
    s.exit(4, 100, 200, 3);
    s.end(4, 0);
    s.exit(3, 50, 60, 0);
    s.end(3, 0);
    s.end(0, 0);
    let session = Session::open(&dir.file("s", &s.bytes)).unwrap();
    assert!(session.complete, "{:?}", lost(&session.losses));
    assert_eq!(session.steps.len(), 2);
    let step = session.step("cell-a").unwrap();
    assert_eq!((step.source, step.status, step.begin_ns, step.end_ns), (4, Some(3), Some(100), Some(200)));
    assert_eq!((step.stdout.as_slice(), step.stderr.as_slice()), (&b"{\"total_ns\": 5}"[..], &b"warned\n"[..]));
    assert_eq!((step.files[0].path.as_str(), step.files[0].mode), ("/etc/fstab", 0o644));
    assert_eq!(session.read_file(&step.files[0], 100).unwrap(), b"abcdef");
    assert!(session.read_file(&step.files[0], 5).is_err());
    assert!(session.recordings.is_empty());
    assert!(matches!(Trace::open(session.path()), Err(Error::NoRecording { .. })));

    // Little memory for output: what is beyond is counted.
    let options = SessionOptions { output_bytes_per_step: 4, output_bytes: 6, goes_on: false };
    let session = Session::open_with(session.path(), options).unwrap();
    let step = session.step("cell-a").unwrap();
    assert_eq!((step.stdout.as_slice(), step.stderr.as_slice()), (&b"{\"to"[..], &b"wa"[..]));
    assert_eq!(step.output_dropped, 16);
    assert_eq!(session.losses.get(Loss::OutputBytesDropped), 16);
}

#[test]
fn a_stream_behind_a_stream_is_a_second_recording() {
    let dir = TempDir::new("twice");
    let one = example(Endian::Little, 4, 4096).bytes;
    let path = dir.file("s", &[one.clone(), one].concat());
    let session = Session::open(&path).unwrap();
    assert_eq!(session.recordings.len(), 2);
    assert!(session.complete, "{:?}", lost(&session.losses));
    assert!(matches!(Trace::open(&path), Err(Error::SeveralRecordings { count: 2, .. })));
    for i in 0..2 {
        assert_eq!(flash_count(&events(&session.recording(i).unwrap())), 603);
    }
    assert!(matches!(session.recording(2), Err(Error::NoSuchRecording { .. })));
}

#[test]
fn cut_anywhere_keeps_what_came_before() {
    let dir = TempDir::new("cut");
    let s = example(Endian::Little, 4, 1024);
    let whole = records(&Trace::open(&dir.file("whole", &s.bytes)).unwrap());
    let mut before = 0;
    for cut in (1..s.bytes.len()).step_by(97).chain(s.frames.iter().copied().filter(|&f| f > 0)) {
        let path = dir.file("cut", &s.bytes[..cut]);
        let session = match Session::open(&path) {
            Ok(session) => session,
            Err(e) => {
                assert!(cut < s.frames[1], "{cut}: {e}");
                continue;
            }
        };
        assert!(!session.complete);
        assert_eq!(session.losses.get(Loss::SourcesUnfinished), 1);
        assert_eq!(session.losses.get(Loss::StreamCut), u64::from(!s.frames.contains(&cut)), "{cut}");
        for l in [Loss::BytesSkipped, Loss::FramesBadCrc, Loss::FramesMissing, Loss::FramesMalformed] {
            assert_eq!(session.losses.get(l), 0, "{cut} {}", l.name());
        }
        let trace = session.recording(0).unwrap();
        let mut got = 0;
        trace.for_each_record(&mut |_| got += 1).unwrap();
        assert!(got <= whole.len());
        before = before.max(got);
    }
    assert_eq!(before, whole.len(), "without its end the stream still has every event");
}

#[test]
fn damage_is_counted_by_its_kind() {
    let dir = TempDir::new("damage");
    let s = example(Endian::Little, 4, 1024);
    let open = |bytes: &[u8]| Session::open(&dir.file("d", bytes)).unwrap().losses;
    let at = s.frames[20];

    let mut b = s.bytes.clone();
    b[at + 30] ^= 0x40;
    assert_eq!(lost(&open(&b)), [("frames_bad_crc", 1)]);

    let mut b = s.bytes.clone();
    b.drain(at..s.frames[21]);
    assert_eq!(lost(&open(&b)), [("frames_missing", 1)]);

    let mut b = s.bytes.clone();
    b.splice(at..at, *b"noise");
    assert_eq!(lost(&open(&b)), [("bytes_skipped", 5)]);

    let mut t = example(Endian::Little, 4, 1024);
    t.frame(99, 0, b"from a newer agent");
    // An instance that does not exist, a task list that is no list, a phase of no kind.
    t.frame(6, 0, &[0, 0, 9, 0, 1, 2, 3]);
    t.frame(7, 0, &[1; 25]);
    t.frame(8, 0, &[7; 20]);
    t.phase(0, 1, 1, "never begun");
    let l = open(&t.bytes);
    assert_eq!(lost(&l), [("frames_malformed", 3), ("frames_unknown_type", 1), ("phases_unmatched", 1)]);
}

#[test]
fn an_unknown_event_is_kept_and_counted() {
    let dir = TempDir::new("unknown");
    let mut s = Stream::new(Endian::Big, 4, 4096);
    s.begin(0, 1, &nand_facts());
    let records = vec![(5, s.nand(7777, 1, 2)), (6, s.nand(READ, 1, 2)), (4, s.nand(READ, 1, 3)), (9, vec![5, 121])];
    s.records(0, 0, 0, &records);
    let trace = Trace::open(&dir.file("s", &s.bytes)).unwrap();
    let mut seen = vec![];
    trace.for_each_record(&mut |r| seen.push((r.id(), r.schema.name.clone()))).unwrap();
    assert_eq!(seen.len(), 4);
    assert_eq!(seen[0], (7777, "unknown".to_string()));
    let l = trace.losses();
    assert_eq!(l.get(Loss::RecordsOfUnknownType), 1);
    assert_eq!(l.get(Loss::TimesBackwards), 1);
    assert_eq!(l.get(Loss::StatisticsMissing), 1);
    // Two bytes with the id of nand_read: counted as too short, once by the record and once by its typed form.
    assert!(l.get(Loss::RecordsMalformed) >= 1);
}

#[test]
fn a_trace_dat_of_a_stream_has_the_same_in_it() {
    let dir = TempDir::new("same");
    for (endian, long, subbuf) in [(Endian::Little, 4, 4096), (Endian::Little, 8, 8192), (Endian::Big, 4, 1024)] {
        let stream = Trace::open(&dir.file("s", &example(endian, long, subbuf).bytes)).unwrap();
        let path = dir.0.join("t.dat");
        dat::write(&stream, &path).unwrap();
        let back = Trace::open(&path).unwrap();
        assert_eq!(records(&back), records(&stream));
        assert_eq!(events(&back), events(&stream));
        assert_eq!(back.losses(), stream.losses());
        assert_eq!(back.facts_json(), stream.facts_json());
        assert_eq!(back.stats(), stream.stats());
        assert_eq!(back.phases(), stream.phases());
        assert_eq!((back.clock(), back.cpus()), ("mono", 2));
        // And once more, from the file: byte for byte the same.
        let again = dir.0.join("u.dat");
        dat::write(&back, &again).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(&again).unwrap());
        assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 3, "no partial file is left");
    }
}

/// Any bytes: no panic, and no more events than bytes.
#[test]
fn damaged_streams_and_files_never_panic() {
    let dir = TempDir::new("fuzz");
    let s = example(Endian::Little, 4, 1024);
    let stream = s.bytes;
    let path = dir.file("s", &stream);
    let dat_path = dir.0.join("t.dat");
    dat::write(&Trace::open(&path).unwrap(), &dat_path).unwrap();
    let read = |name: &str| std::fs::read(data(&format!("trace_dat/{name}.dat"))).unwrap();
    let bases = [
        stream,
        std::fs::read(&dat_path).unwrap(),
        read("armv7-6.1-v6-graph"),
        read("armv7-6.1-v7-none"),
        read("armv7-6.1-v7-zstd"),
        read("armv7-7.2-v7-zlib"),
    ];
    let mut rng = Rng(42);
    let (mut opened, rounds) = (0, 900);
    for round in 0..rounds {
        let mut b = bases[round % bases.len()].clone();
        for _ in 0..1 + rng.below(6) {
            let at = rng.below(b.len());
            match rng.below(5) {
                0 => b[at] = rng.next() as u8,
                1 => b[at] ^= 1 << rng.below(8),
                // A length that lies.
                2 if at + 8 < b.len() => b[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes()),
                3 => b.truncate(at.max(1)),
                _ => {
                    let from = rng.below(b.len());
                    let piece = b[from..(from + rng.below(64)).min(b.len())].to_vec();
                    b.splice(at..at, piece);
                }
            }
        }
        // Frames whose contents are damaged and whose checksum fits: half of the streams.
        if round % 12 == 0 {
            fix_crcs(&mut b);
        }
        let path = dir.file("f", &b);
        if let Ok(trace) = Trace::open(&path) {
            opened += 1;
            let mut n = 0;
            trace
                .for_each_record(&mut |r| {
                    n += 1;
                    for (_, value) in r.fields() {
                        std::hint::black_box(value);
                    }
                })
                .unwrap();
            // A packed file can hold more than its bytes, but not without bound.
            assert!(n <= 64 * b.len());
            trace.for_each(&mut |_| {}).unwrap();
            trace.comm(TaskId(20), TimeNs(5));
            let _ = dat::write(&trace, &dir.0.join("w.dat")).unwrap();
            let again = Trace::open(&dir.0.join("w.dat")).unwrap();
            let mut m = 0;
            again.for_each_record(&mut |_| m += 1).unwrap();
            assert_eq!(n, m, "round {round}: a damaged trace is written with every event that it has");
        }
    }
    // A damaged header is an error; a damaged stream or damaged data never is.
    assert!(opened > rounds / 4, "much damage leaves something: {opened}");
}

fn fix_crcs(b: &mut [u8]) {
    let mut at = 0;
    while at + 20 <= b.len() {
        if &b[at..at + 4] != b"FSC1" {
            at += 1;
            continue;
        }
        let length = u32::from_le_bytes(b[at + 12..at + 16].try_into().unwrap()) as usize;
        if length > b.len() - at - 20 {
            at += 1;
            continue;
        }
        let fixed = flashscope_trace::encode_frame(0, 0, 0, &b[at + 20..at + 20 + length]);
        b[at + 16..at + 20].copy_from_slice(&fixed[16..20]);
        at += 20 + length;
    }
}
