//! Perfetto's traces: a recorded one, and messages made by hand.

use crate::common::data;
use flashscope_trace::{EventKind, FileStep, Loss, TaskId, Trace, TraceKind, Value};
use std::collections::BTreeMap;

fn varint(mut n: u64) -> Vec<u8> {
    let mut out = vec![];
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

/// A field with a number.
fn n(field: u32, value: u64) -> Vec<u8> {
    [varint(u64::from(field << 3)), varint(value)].concat()
}

/// A field with bytes: a text, or a message of these parts.
fn b(field: u32, parts: &[&[u8]]) -> Vec<u8> {
    let bytes = parts.concat();
    [varint(u64::from(field << 3 | 2)), varint(bytes.len() as u64), bytes].concat()
}

fn packet(parts: &[&[u8]]) -> Vec<u8> {
    b(1, parts)
}

/// A bundle of events of a CPU, in a packet.
fn bundle(cpu: u64, parts: &[&[u8]]) -> Vec<u8> {
    packet(&[&b(1, &[&n(1, cpu), &parts.concat()])])
}

/// One event in a bundle.
fn event(time: u64, pid: u64, kind: u32, fields: &[&[u8]]) -> Vec<u8> {
    b(2, &[&n(1, time), &n(2, pid), &b(kind, fields)])
}

fn of(bytes: &[u8]) -> Result<Trace, String> {
    Trace::from_bytes("given".as_ref(), bytes.into()).map_err(|e| e.to_string())
}

fn lost(trace: &Trace) -> Vec<(Loss, u64)> {
    trace.losses().iter().filter(|&(_, n)| n > 0).collect()
}

fn steps(trace: &Trace) -> Vec<String> {
    let mut out = vec![];
    trace
        .for_each(&mut |e: &flashscope_trace::Event| {
            if let EventKind::Block(s) = &e.kind {
                let name = trace.comm(e.tid, e.time).unwrap_or("?");
                let (letters, device, flags) = (s.action.letters(), s.device, s.flags);
                out.push(format!(
                    "{} {} {letters} {device} {flags} {}+{} {name} {}",
                    e.time.0,
                    e.cpu,
                    s.sector,
                    s.bytes / 512,
                    s.error
                ));
            }
        })
        .unwrap();
    out
}

#[test]
fn what_perfetto_recorded_is_what_its_own_package_counts() {
    let trace = Trace::open(&data("perfetto/loop.pftrace")).unwrap();
    assert_eq!((trace.kind(), trace.clock(), trace.cpus()), (TraceKind::Perfetto, "boot", 2));
    assert_eq!(lost(&trace), []);
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    trace
        .for_each_record(&mut |r| *kinds.entry(format!("{}:{}", r.schema.system, r.schema.name)).or_default() += 1)
        .unwrap();
    let want = [
        ("block:block_bio_backmerge", 10),
        ("block:block_bio_queue", 33),
        ("block:block_getrq", 23),
        ("block:block_io_done", 26),
        ("block:block_io_start", 23),
        ("block:block_rq_complete", 26),
        ("block:block_rq_insert", 2),
        ("block:block_rq_issue", 25),
        ("ext4:ext4_da_write_begin", 8),
        ("ext4:ext4_sync_file_enter", 1),
        // 215 rows; who left the CPU at the first of each CPU is not said.
        ("sched:sched_switch", 213),
        ("writeback:writeback_dirty_folio", 35),
    ];
    assert_eq!(kinds, want.iter().map(|(k, n)| (k.to_string(), *n)).collect());
    let queued: Vec<String> = steps(&trace).into_iter().filter(|s| s.contains(" Q ")).collect();
    assert_eq!(queued[0], "3527450981305 1 Q 7:0 RM 4628+2 dd 0");
    assert_eq!(queued[32], "3527460334733 1 Q 7:0 RS 18930+16 dd 0");
    let of_dd = queued.iter().filter(|s| s.contains(" RS ") && s.contains(" dd ")).count();
    let of_journal = queued.iter().filter(|s| s.contains("jbd2/loop0-8")).count();
    assert_eq!((of_dd, of_journal), (16, 10));
    let (mut dirtied, mut written) = (0, 0);
    trace
        .for_each(&mut |e: &flashscope_trace::Event| match &e.kind {
            EventKind::File(file) if file.step == FileStep::Dirtied => dirtied += 1,
            EventKind::File(file) if file.step == FileStep::WriteBegin => written += file.bytes,
            _ => {}
        })
        .unwrap();
    assert_eq!((dirtied, written), (35, 128 << 10));
}

/// 8:16 as programs number it, and 259:65537.
const SDB: u64 = 8 << 8 | 16;
const NVME: u64 = (259 << 8) | (65537 & 0xff) | (65537 & 0xffff_ff00) << 12;

fn two_cpus() -> Vec<u8> {
    let queue = event(1000, 7, 119, &[&n(1, SDB), &n(2, 64), &n(3, 8), &b(4, &[b"WS"]), &b(5, &[b"cat"])]);
    // Sector 0 is not written.
    let issue = event(1300, 7, 45, &[&n(1, NVME), &n(3, 8), &n(4, 4096), &b(5, &[b"R"]), &b(6, &[b"cat"])]);
    let done = event(1200, 0, 125, &[&n(1, SDB), &n(2, 64), &n(3, 8), &n(7, -5i64 as u64), &b(5, &[b"WS"])]);
    [bundle(0, &[&queue, &issue]), bundle(1, &[&done])].concat()
}

#[test]
fn bundles_of_two_cpus_in_order_of_time_with_devices_and_errors() {
    let trace = of(&two_cpus()).unwrap();
    let want = ["1000 0 Q 8:16 WS 64+8 cat 0", "1200 1 C 8:16 WS 64+8 <idle> -5", "1300 0 D 259:65537 R 0+8 cat 0"];
    assert_eq!(steps(&trace), want);
    assert_eq!(lost(&trace), []);
    // Packed by Perfetto itself: zlib, of stored blocks.
    let plain = two_cpus();
    let mut zlib = vec![0x78, 0x01, 1];
    zlib.extend((plain.len() as u16).to_le_bytes());
    zlib.extend((!(plain.len() as u16)).to_le_bytes());
    zlib.extend(&plain);
    let (s1, s2) =
        plain.iter().fold((1u32, 0u32), |(a, b), &x| ((a + u32::from(x)) % 65521, (b + a + u32::from(x)) % 65521));
    zlib.extend((s2 << 16 | s1).to_be_bytes());
    let packed = [packet(&[&n(8, 5)]), packet(&[&b(50, &[&zlib])])].concat();
    assert_eq!(steps(&of(&packed).unwrap()), want);
    // Cut anywhere: what came before, and the loss.
    let first = plain.len()
        - bundle(1, &[&event(1200, 0, 125, &[&n(1, SDB), &n(2, 64), &n(3, 8), &n(7, -5i64 as u64), &b(5, &[b"WS"])])])
            .len();
    for cut in (1..plain.len()).filter(|&cut| cut != first) {
        let Ok(trace) = of(&plain[..cut]) else { continue };
        assert!(steps(&trace).len() < 3 && lost(&trace).contains(&(Loss::DataCut, 1)), "{cut}: {:?}", lost(&trace));
    }
    assert_eq!(steps(&of(&plain[..plain.len() - 3]).unwrap()).len(), 2);
}

#[test]
fn columns_names_probes_and_events_that_perfetto_does_not_know() {
    let packed = |field, values: &[u64]| b(field, &[&values.iter().flat_map(|&v| varint(v)).collect::<Vec<_>>()]);
    let compact = b(
        4,
        &[
            &b(5, &[b"sh"]),
            &b(5, &[b"my prog"]),
            &packed(1, &[900, 100, 50]),
            &packed(2, &[0, 1, 0]),
            &packed(3, &[7, 9, 7]),
            &packed(4, &[120, 120, 120]),
            &packed(6, &[0, 1, 0]),
        ],
    );
    // A description: `flashscope:file_read` with field `pos`, signed, and `ino`.
    let described = b(
        11,
        &[
            &n(1, 65_540),
            &b(3, &[b"flashscope"]),
            &b(
                2,
                &[
                    &b(1, &[b"file_read"]),
                    &b(2, &[&b(1, &[b"pos"]), &n(3, 1), &n(5, 3)]),
                    &b(2, &[&b(1, &[b"ino"]), &n(3, 2), &n(5, 4)]),
                ],
            ),
        ],
    );
    let read = event(960, 9, 65_540, &[&n(1, 4096), &n(2, 12)]);
    let generic = event(
        970,
        9,
        327,
        &[
            &b(1, &[b"block_rq_issue"]),
            &b(2, &[&b(1, &[b"dev"]), &n(5, SDB)]),
            &b(2, &[&b(1, &[b"sector"]), &n(5, 8)]),
            &b(2, &[&b(1, &[b"nr_sector"]), &n(5, 8)]),
            &b(2, &[&b(1, &[b"rwbs"]), &b(3, &[b"R"])]),
        ],
    );
    let probe = event(980, 9, 542, &[&b(1, &[b"submit_bio"]), &n(2, 3)]);
    let unknown = event(990, 9, 60_000, &[&n(1, 1)]);
    let no_kind = b(2, &[&n(1, 995), &n(2, 9)]);
    let lost_events = n(3, 1);
    let stats = |phase, over| packet(&[&b(34, &[&n(1, phase), &b(2, &[&n(1, 0), &n(3, over), &n(8, 2)])])]);
    let tree = packet(&[&b(
        2,
        &[&b(1, &[&n(1, 50), &b(3, &[b"/usr/bin/a-very-long-program"])]), &b(2, &[&n(1, 51), &b(2, &[b"worker"])])],
    )]);
    let bytes = [
        stats(1, 10),
        tree,
        bundle(0, &[&lost_events, &compact, &described, &read, &generic, &probe, &unknown, &no_kind]),
        stats(2, 17),
    ]
    .concat();
    let trace = of(&bytes).unwrap();
    let mut seen = vec![];
    trace
        .for_each_record(&mut |r| {
            let field = |name| match r.get(name) {
                Some(Value::Text(t)) => String::from_utf8_lossy(t).into_owned(),
                Some(Value::Signed(n)) => n.to_string(),
                Some(Value::Unsigned(n)) => n.to_string(),
                _ => String::new(),
            };
            let values = ["pos", "ino", "dev", "prev_pid", "next_comm"].map(field).join(" ");
            seen.push(format!("{} {}:{} {} {}", r.time.0, r.schema.system, r.schema.name, r.tid(), values.trim()));
        })
        .unwrap();
    assert_eq!(
        seen,
        [
            "960 flashscope:file_read 9 4096 12",
            "970 block:block_rq_issue 9 8388624",
            "980 text:submit_bio 9 ",
            "1000 sched:sched_switch 7 7 my prog",
            "1050 sched:sched_switch 9 9 sh",
        ]
        .map(|s| s.to_string())
    );
    assert_eq!(
        lost(&trace),
        [
            (Loss::EventsOverwritten, 7),
            (Loss::GapsOfUnknownSize, 1),
            (Loss::RecordsOfUnknownType, 1),
            (Loss::RecordsMalformed, 1)
        ]
    );
    let at = flashscope_trace::TimeNs(990);
    let names = [7, 9, 50, 51].map(|tid| trace.comm(TaskId(tid), at).unwrap_or("?"));
    assert_eq!(names, ["sh", "my prog", "a-very-long-pro", "worker"]);
}

/// Bundles of one CPU in another order than their events, and two with clocks that differ.
#[test]
fn bundles_of_one_cpu_in_any_order() {
    let issue = event(1300, 7, 45, &[&n(1, SDB), &n(2, 64), &n(3, 8), &n(4, 4096), &b(5, &[b"R"]), &b(6, &[b"cat"])]);
    let done = event(1500, 0, 125, &[&n(1, SDB), &n(2, 64), &n(3, 8), &b(5, &[b"R"])]);
    let again = event(1500, 0, 125, &[&n(1, SDB), &n(2, 72), &n(3, 8), &b(5, &[b"R"])]);
    let first_of_columns = b(4, &[&b(5, &[b"sh"]), &b(1, &[&varint(1200)]), &b(3, &[&[7]]), &b(6, &[&[0]])]);
    let trace = of(&[bundle(0, &[&done, &again]), bundle(0, &[&issue, &first_of_columns])].concat()).unwrap();
    let want = ["1300 0 D 8:16 R 64+8 cat 0", "1500 0 C 8:16 R 64+8 <idle> 0", "1500 0 C 8:16 R 72+8 <idle> 0"];
    assert_eq!((steps(&trace), lost(&trace)), (want.map(str::to_owned).to_vec(), vec![]));
    assert_eq!(trace.clock(), "boot");
    let mixed = [bundle(0, &[&n(5, 2), &issue]), bundle(1, &[&n(5, 3), &done])].concat();
    assert_eq!(of(&mixed).unwrap().clock(), "unknown");
    assert_eq!(of(&bundle(0, &[&n(5, 2), &issue])).unwrap().clock(), "global");
}

/// A guest's devices and threads have the numbers of its host's: they are not read as one machine's.
#[test]
fn packets_of_other_machines_are_left_out() {
    let of_guest = |id| {
        packet(&[
            &b(1, &[&n(1, 0), &event(1400, 7, 45, &[&n(1, SDB), &n(2, 8), &n(3, 8), &b(5, &[b"W"])])]),
            &n(98, id),
        ])
    };
    let trace = of(&[two_cpus(), of_guest(77)].concat()).unwrap();
    assert_eq!((steps(&trace).len(), lost(&trace)), (3, vec![(Loss::OtherMachines, 1)]));
    assert_eq!(steps(&of(&[two_cpus(), of_guest(0)].concat()).unwrap()).len(), 4);
    let error = of(&of_guest(77)).unwrap_err();
    assert!(error.contains("other machines") && error.contains("record on the guest"), "{error}");
}

/// A packed packet that is damaged costs itself, wherever it stands, and is counted.
#[test]
fn a_damaged_packed_packet_costs_itself() {
    let plain = two_cpus();
    let stored = |bytes: &[u8]| {
        [&[0x78, 0x01, 1][..], &(bytes.len() as u16).to_le_bytes(), &(!(bytes.len() as u16)).to_le_bytes(), bytes]
            .concat()
    };
    // Of the first, a packet and a half come out.
    let half = &plain[..plain.len() - 3];
    for (damaged, events) in [(stored(half), 2), (b"\x78\x9c\xff\xff\xff".to_vec(), 0)] {
        let bytes = [packet(&[&n(8, 5)]), packet(&[&b(50, &[&damaged])]), plain.clone()].concat();
        let trace = of(&bytes).unwrap();
        // Those that come out are there again in the whole packet, at earlier times: they count once.
        let again = [(Loss::EventsRepeated, events), (Loss::TimesBackwards, events.min(1))];
        assert_eq!(steps(&trace).len(), 3);
        let mut lost = lost(&trace);
        lost.sort();
        let mut want: Vec<_> = again.into_iter().chain([(Loss::DataCut, 1)]).filter(|(_, n)| *n > 0).collect();
        want.sort();
        assert_eq!(lost, want);
    }
    let error = of(&[packet(&[&n(8, 5)]), packet(&[&b(50, &[b"\x78\x9c\xff\xff\xff"])])].concat()).unwrap_err();
    assert!(error.contains("cut or damaged") && error.contains("copy it again"), "{error}");
    let error = of(&plain[..20]).unwrap_err();
    assert!(error.contains("cut or damaged") && error.contains("copy it again"), "{error}");
    // A first packet that is larger than what formats are told by.
    let many: Vec<u8> = (0..4000)
        .flat_map(|at| event(at * 1000 + 1, 7, 45, &[&n(1, SDB), &n(2, at * 8), &n(3, 8), &b(5, &[b"R"])]))
        .collect();
    assert!(many.len() > 64 << 10);
    assert_eq!(steps(&of(&bundle(0, &[&many])).unwrap()).len(), 4000);
}

#[test]
fn a_trace_without_kernel_events_says_what_to_record() {
    let bytes = [packet(&[&n(8, 5)]), packet(&[&b(33, &[&n(1, 1)])])].concat();
    let error = of(&bytes).unwrap_err();
    assert!(error.contains("none of which has kernel events") && error.contains("linux.ftrace"), "{error}");
}

/// Perfetto's service marks the packet behind those that it dropped, and the first one of each sequence.
#[test]
fn packets_that_perfetto_dropped_are_a_loss() {
    let queue =
        |time: u64, sector: u64| event(time, 7, 119, &[&n(1, 8 << 20), &n(2, sector), &n(3, 8), &b(4, &[b"R"])]);
    let part = |sequence: u64, dropped: u64, time: u64| {
        let events = b(1, &[&n(1, 0), &queue(time, time)]);
        packet(&[&events, &n(10, sequence), &n(42, dropped)])
    };
    let whole = [part(1, 1, 100), part(1, 0, 200), part(2, 1, 300)].concat();
    assert_eq!(lost(&of(&whole).unwrap()), []);
    let torn = [part(1, 1, 100), part(1, 1, 200), part(2, 1, 300)].concat();
    assert_eq!(lost(&of(&torn).unwrap()), [(Loss::GapsOfUnknownSize, 1)]);
    assert_eq!(steps(&of(&torn).unwrap()).len(), 3);
}
