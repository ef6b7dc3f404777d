//! What we write, Debian's trace-cmd reads: the same events, names, times and fields, and not one warning.

use crate::common::report::{Compared, compare, compare_text, trace_cmd};
use crate::common::*;
use flashscope_trace::{Encoder, Endian, Loss, Missed, Session, TaskId, Trace, Value, dat};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn boards_in_trace_cmd() {
    let dir = TempDir::new("trace-cmd-boards");
    for (board, counts) in
        [("armv7-5.10", [35, 16]), ("armv7-6.1", [35, 16]), ("armv7-7.2", [35, 16]), ("x86_64-6.1", [35, 16])]
    {
        let session = Session::open(&data(&format!("stream/{board}.port"))).unwrap();
        for (i, want) in counts.into_iter().enumerate() {
            let trace = session.recording(i).unwrap();
            let file = dir.0.join("t.dat");
            dat::write(&trace, &file).unwrap();
            if let Some(done) = compare(&trace, &file) {
                assert_eq!(done.events, want, "{board}, recording {i}");
            }
        }
    }
}

/// Files that trace-cmd itself recorded (`tests/data/trace_dat/ORIGIN.md`).
#[test]
fn its_own_files_as_it_reads_them() {
    let dir = TempDir::new("trace-cmd-own");
    for (name, want) in [
        ("armv7-6.1-v6", 330),
        ("armv7-6.1-v6-instances-date", 34),
        ("armv7-6.1-v6-graph", 96),
        ("armv7-6.1-v7-none", 30),
        ("armv7-6.1-v7-zstd", 359),
    ] {
        let file = data(&format!("trace_dat/{name}.dat"));
        let trace = Trace::open(&file).unwrap();
        if let Some(done) = compare(&trace, &file) {
            assert_eq!(done.events, want, "{name}");
        }
        // Written by us, trace-cmd still reads the same.
        let again = dir.0.join("again.dat");
        dat::write(&trace, &again).unwrap();
        let rewritten = Trace::open(&again).unwrap();
        assert_eq!(records(&rewritten), records(&trace), "{name}");
        if compare(&rewritten, &again).is_some() {
            let text = |f: &Path| trace_cmd(&["-t"], f).unwrap();
            assert_eq!(text(&again), text(&file), "{name}");
        }
    }
}

/// Recorded by trace-cmd on every board with every kernel, from its versions 2.9.1 to 3.4 (`tests/data/trace_dat/ORIGIN.md`).
fn recorded_on_boards() -> Vec<String> {
    let mut all = vec![];
    for board in ["armv7", "x86_64"] {
        for kernel in ["5.10", "6.1", "6.12", "7.2"] {
            all.extend(["io", "kinds", "graph", "lost"].map(|kind| format!("{board}-{kernel}-{kind}")));
        }
    }
    // Too large to keep.
    all.retain(|name| name != "armv7-5.10-lost");
    all
}

#[test]
fn every_board_and_kernel_as_trace_cmd_reads_it() {
    let dir = TempDir::new("trace-cmd-recorded");
    for name in recorded_on_boards() {
        let file = data(&format!("trace_dat/{name}.dat"));
        let trace = Trace::open(&file).unwrap();
        let again = dir.0.join("again.dat");
        dat::write(&trace, &again).unwrap();
        let rewritten = Trace::open(&again).unwrap();
        assert_eq!(records(&rewritten), records(&trace), "{name}");
        let Some(done) = compare(&trace, &file) else { continue };
        println!(
            "{name}: {} events, {} fields, {} gaps, renamed {:?}",
            done.events, done.fields, done.gaps, done.renamed
        );
        let expected: &[&str] = match name.rsplit('-').next().unwrap() {
            "io" => {
                &["sys_enter_openat", "sys_exit_read", "sys_enter_write", "sys_exit_fsync", "block_rq_issue", "print"]
            }
            "kinds" => &["fields", "back", "ext4_sync_file_enter", "sched_switch", "timer_start"],
            "graph" => &["funcgraph_entry", "funcgraph_exit", "sched_switch"],
            _ => &["sys_enter", "sys_exit"],
        };
        let missing: Vec<_> = expected.iter().filter(|kind| !done.kinds.contains(**kind)).collect();
        assert!(missing.is_empty(), "{name}: {missing:?} of {:?}", done.kinds);
        assert_eq!(done.gaps > 0, name.ends_with("lost"), "{name}");
        let losses = trace.losses();
        let others = losses.iter().filter(|(loss, n)| {
            *n > 0
                && !matches!(
                    loss,
                    Loss::EventsMissedAtGaps | Loss::EventsOverwritten | Loss::EventsNotDelivered | Loss::ClocksOfCpus
                )
        });
        assert_eq!(others.map(|(loss, n)| (loss.name(), n)).collect::<Vec<_>>(), [], "{name}");
        // trace-cmd's one name of a task is now the last that the events have.
        let done = Compared { renamed: BTreeSet::new(), ..done };
        assert_eq!(compare(&rewritten, &again).unwrap(), done, "{name}, written by us");
    }
}

/// A task is called what the events that run under its number call it, also before the first that changes it.
#[test]
fn names_are_those_of_their_time() {
    let mut seen = (0, 0);
    let names = recorded_on_boards().into_iter().chain(["armv7-6.1-v6", "armv7-6.1-v7-zstd"].map(String::from));
    for name in names {
        let trace = Trace::open(&data(&format!("trace_dat/{name}.dat"))).unwrap();
        trace
            .for_each_record(&mut |r| {
                let text = |field| match r.get(field) {
                    Some(Value::Text(t)) => String::from_utf8_lossy(t).into_owned(),
                    other => panic!("{name}: {field} is {other:?}"),
                };
                if r.schema.name == "sched_switch" && r.tid() != TaskId(0) {
                    assert_eq!(trace.comm(r.tid(), r.time), Some(&*text("prev_comm")), "{name} at {}", r.time.0);
                    seen.0 += 1;
                } else if r.schema.name == "task_rename" {
                    let before = flashscope_trace::TimeNs(r.time.0 - 1);
                    assert_eq!(trace.comm(r.tid(), before), Some(&*text("oldcomm")), "{name} at {}", r.time.0);
                    seen.1 += 1;
                }
            })
            .unwrap();
    }
    assert!(seen.0 > 200 && seen.1 > 1, "{seen:?}");
}

/// Files that Debian 12's trace-cmd cannot read, beside what the one that wrote them printed.
#[test]
fn files_with_their_own_report() {
    let dir = TempDir::new("trace-cmd-report");
    for (name, want) in [("armv7-7.2-v7-zlib", 320), ("armv7-7.2-v7-subbuf16k", 315)] {
        let trace = Trace::open(&data(&format!("trace_dat/{name}.dat"))).unwrap();
        let text = std::fs::read_to_string(data(&format!("trace_dat/{name}.txt"))).unwrap();
        assert_eq!(compare_text(&trace, &text).events, want, "{name}");
        let again = dir.0.join("again.dat");
        dat::write(&trace, &again).unwrap();
        let rewritten = Trace::open(&again).unwrap();
        assert_eq!(compare_text(&rewritten, &text).events, want, "{name}");
        compare(&rewritten, &again);
    }
}

#[test]
fn every_layout_in_trace_cmd() {
    let dir = TempDir::new("trace-cmd-layouts");
    for endian in [Endian::Little, Endian::Big] {
        for long in [4, 8] {
            for subbuf in [4096, 8192, 65536] {
                let trace = Trace::open(&dir.file("s", &example(endian, long, subbuf).bytes)).unwrap();
                let file = dir.0.join("t.dat");
                dat::write(&trace, &file).unwrap();
                if let Some(done) = compare(&trace, &file) {
                    assert_eq!(done.events, 600 + 307 + 3, "{endian:?} {long} {subbuf}");
                }
            }
        }
    }
}

#[test]
fn statistics_uname_and_clock() {
    let dir = TempDir::new("trace-cmd-options");
    let trace = Trace::open(&dir.file("s", &example(Endian::Little, 4, 4096).bytes)).unwrap();
    let file = dir.0.join("t.dat");
    dat::write(&trace, &file).unwrap();
    let Some(stat) = trace_cmd(&["--stat"], &file) else { return };
    assert!(stat.contains("CPU: 1\nentries: 0\noverrun: 11\n"), "{stat}");
    assert!(stat.contains("Buffer: tasks"), "{stat}");
    let uname = trace_cmd(&["--uname"], &file).unwrap();
    assert!(uname.contains("Linux 6.1.0-test #1 SMP armv7l"), "{uname}");
    let version = trace_cmd(&["--version"], &file).unwrap();
    assert!(version.contains("flashscope 0."), "{version}");
    // Six decimals are what trace-cmd prints for clocks that it knows to count nanoseconds.
    let plain = trace_cmd(&[], &file).unwrap();
    assert!(plain.contains(" 0.001000: task_newtask:"), "{plain}");
}

#[test]
fn missing_events_are_said_by_both() {
    let dir = TempDir::new("trace-cmd-missed");
    let mut s = Stream::new(Endian::Little, 4, 4096);
    s.begin(0, 1, &nand_facts());
    let mut e = Encoder::new(s.layout);
    let mut pages = vec![];
    for (i, missed) in [Missed::Nothing, Missed::Events(7), Missed::Unknown].into_iter().enumerate() {
        e.missed(missed);
        pages.extend(e.record(1000 + i as u64, &s.nand(READ, 1, 5)).unwrap());
    }
    pages.extend(e.finish());
    for p in pages {
        s.page(0, 0, 0, &p);
    }
    let trace = Trace::open(&dir.file("s", &s.bytes)).unwrap();
    let mut missed = vec![];
    trace.for_each_record(&mut |r| missed.push(r.missed)).unwrap();
    assert_eq!(missed, [Missed::Nothing, Missed::Events(7), Missed::Unknown]);
    let file = dir.0.join("t.dat");
    dat::write(&trace, &file).unwrap();
    let Some(text) = trace_cmd(&[], &file) else { return };
    assert!(text.contains("CPU:0 [7 EVENTS DROPPED]"), "{text}");
    assert!(text.contains("CPU:0 [EVENTS DROPPED]"), "{text}");
}
