//! Flashmon's logs (`tests/data/flashmon/ORIGIN.md`).

use crate::common::*;
use flashscope_trace::{EventKind, FlashAccess, FlashOp, Loss, TaskId, TimeNs, Trace, TraceKind, Value};

#[test]
fn the_papers_example() {
    let trace = Trace::open(&data("flashmon/paper.log")).unwrap();
    assert_eq!(trace.kind(), TraceKind::FlashmonLog);
    let access = |op, page| EventKind::Flash(FlashAccess { op, page, offset_bytes: None, length_bytes: None, chip: 0 });
    let all = events(&trace);
    let got: Vec<_> = all.iter().map(|e| (e.time.0, e.kind.clone(), trace.comm(e.tid, e.time).unwrap())).collect();
    assert_eq!(
        got,
        [
            (13_551_048_336, access(FlashOp::Read, 22655), "cat"),
            (13_552_904_998, access(FlashOp::Program, 6935), "sync_supers"),
            (13_563_917_567, access(FlashOp::Erase, 1025 * 64), "jffs2_gcd_mtd6"),
        ]
    );
    assert_eq!(trace.facts_json()["flashmon"]["pages_per_block_assumed"], 64);
    assert!(trace.losses().is_empty());

    let mut again = vec![];
    flashscope_trace::flashmon::write_log(&trace, 0, &mut again).unwrap();
    assert_eq!(again, std::fs::read(data("flashmon/paper.log")).unwrap());
}

#[test]
fn the_extended_format_has_threads_processors_and_durations() {
    let dir = std::env::temp_dir().join(format!("flashscope-extended-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("extended.log");
    let text = "1.000000000;R;7;dd;100;145000;0;0\n\
                1.000100000;E;3;sync;101;2000000;1;0\n\
                1.000200000;C;7;dd;100;0;0;1\n\
                1.010000000;W;8;cat;100;400000;0;2\n";
    std::fs::write(&path, text).unwrap();
    let trace = Trace::open(&path).unwrap();
    let all = events(&trace);
    let (mut times, mut ends) = (vec![], vec![]);
    for event in &all {
        times.push(event.time.0);
        if let EventKind::FlashDone { op, duration_ns } = event.kind {
            ends.push((op, duration_ns, event.tid.0, event.cpu));
        }
    }
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(
        ends,
        [(FlashOp::Read, 145_000, 100, 0), (FlashOp::Erase, 2_000_000, 101, 1), (FlashOp::Program, 400_000, 100, 0)]
    );
    assert_eq!(trace.comm(TaskId(100), TimeNs(1_000_000_000)), Some("dd"));
    assert_eq!(trace.comm(TaskId(100), TimeNs(1_010_000_000)), Some("cat"), "the thread has another name by then");
    assert_eq!(trace.comm(TaskId(101), TimeNs(1_000_100_000)), Some("sync"));
    assert_eq!(trace.cpus(), 2);
    assert!(trace.losses().is_empty());
    // Side by side with their records: the same events.
    let mut paired = vec![];
    trace.for_each_pair(&mut |pair| paired.extend(pair.event.cloned())).unwrap();
    assert_eq!(paired, all);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn variants_and_what_is_no_line() {
    let trace = Trace::open(&data("flashmon/variants.log")).unwrap();
    let mut lines = vec![];
    trace
        .for_each_record(&mut |r| {
            let Some(Value::Text(task)) = r.get("task") else { panic!("no task") };
            let Some(Value::Text(operation)) = r.get("operation") else { panic!("no operation") };
            lines.push((r.time, operation.escape_ascii().to_string(), task.escape_ascii().to_string()));
        })
        .unwrap();
    let line = |time, operation: &str, task: &str| (TimeNs(time), operation.to_string(), task.to_string());
    assert_eq!(
        lines,
        [
            line(1, "R", "cat"),
            line(500_000_000, "C", "cat"),
            line(250_000_000, "W", ""),
            line(1_000_000_000, "E", "a;b"),
            line(2_000_000_000, "R", "cat"),
        ]
    );
    let all = events(&trace);
    assert_eq!(all[1].kind, EventKind::Other { system: "flashmon".into(), name: "mtd_cache_hit".into(), result: None });
    let losses = trace.losses();
    assert_eq!((losses.get(Loss::LinesMalformed), losses.get(Loss::TimesBackwards)), (2, 1));
}

/// A log that was cut within its last line says less than was written, and never another number.
#[test]
fn a_last_line_that_is_cut_is_counted_as_that() {
    let dir = TempDir::new("flashmon-cut");
    for text in [
        "1.000000000;R;7;dd\n1.000100000;R;22655;cat\n",
        "1.000000000;R;7;dd;100;145000;0;0\n1.000100000;E;3;sync;101;2000000;1;12345\n",
    ] {
        let first = text.find('\n').unwrap() + 1;
        for end in first..text.len() {
            let trace = Trace::open(&dir.file("cut", &text.as_bytes()[..end])).unwrap();
            let cut = u64::from(end > first);
            assert_eq!(trace.losses().get(Loss::LinesMalformed), cut, "{:?}", &text[..end]);
            let records = events(&trace).iter().filter(|e| !matches!(e.kind, EventKind::FlashDone { .. })).count();
            assert_eq!(records, 1, "{:?}", &text[..end]);
        }
        assert!(Trace::open(&dir.file("whole", text.as_bytes())).unwrap().losses().is_empty());
    }
    let view = |text: &str| flashscope_trace::flashmon::read_spatial(&dir.file("view", text.as_bytes()));
    assert_eq!(view("1 2 3\n4 5 60\n").unwrap().len(), 2);
    assert!(view("1 2 3\n4 5 6").unwrap_err().to_string().contains("the line's end"));
}

#[test]
fn a_line_without_end_and_any_bytes() {
    let dir = TempDir::new("flashmon");
    let mut long = b"1.0;R;5;".to_vec();
    long.resize(1 << 20, b'x');
    long.extend(b"\n2.0;R;6;cat\n");
    let trace = Trace::open(&dir.file("long", &long)).unwrap();
    assert_eq!((events(&trace).len(), trace.losses().get(Loss::LinesMalformed)), (1, 1));
    let mut log = b"0.5;R;4;sh\n".to_vec();
    log.extend(&long);
    let trace = Trace::open(&dir.file("long", &log)).unwrap();
    assert_eq!((events(&trace).len(), trace.losses().get(Loss::LinesMalformed)), (2, 1));

    let base = std::fs::read(data("flashmon/variants.log")).unwrap();
    let mut rng = Rng(3);
    for _ in 0..500 {
        let mut b = base.clone();
        for _ in 0..1 + rng.below(5) {
            let at = rng.below(b.len());
            b[at] = rng.next() as u8;
        }
        b.truncate(1 + rng.below(b.len()));
        if let Ok(trace) = Trace::open(&dir.file("f", &b)) {
            trace.for_each(&mut |_| {}).unwrap();
        }
        let _ = flashscope_trace::flashmon::read_spatial(&dir.0.join("f"));
    }
}
