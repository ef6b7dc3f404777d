//! Streams that boards wrote (`tests/data/stream/ORIGIN.md`): what the plan did is what the trace says.

use crate::common::*;
use flashscope_trace::{EventKind, FlashOp, Loss, Session, Trace, dat};

const BOARDS: [&str; 4] = ["armv7-5.10", "armv7-6.1", "armv7-7.2", "x86_64-6.1"];

fn session(board: &str) -> Session {
    Session::open(&data(&format!("stream/{board}.port"))).unwrap()
}

/// Operation, page and task of every flash access.
fn accesses(trace: &Trace) -> Vec<(FlashOp, u64, String)> {
    let mut all = vec![];
    trace
        .for_each(&mut |e| {
            if let EventKind::Flash(a) = e.kind {
                all.push((a.op, a.page, trace.comm(e.tid, e.time).unwrap_or("?").to_string()));
            }
        })
        .unwrap();
    all
}

fn no_losses(trace: &Trace, board: &str) {
    let losses = trace.losses();
    let lost: Vec<_> = losses.iter().filter(|&(_, n)| n > 0).map(|(l, n)| (l.name(), n)).collect();
    assert_eq!(lost, [], "{board}");
}

#[test]
fn a_plan_is_seen_as_it_was_done() {
    for board in BOARDS {
        let session = session(board);
        assert!(session.complete, "{board}");
        assert_eq!(session.recordings.len(), 2, "{board}");
        let trace = session.recording(0).unwrap();
        let page = |op, pages: std::ops::Range<u64>, task: &'static str| pages.map(move |p| (op, p, task.to_string()));
        let want: Vec<_> = [(FlashOp::Erase, 192, "init".to_string()), (FlashOp::Erase, 256, "init".to_string())]
            .into_iter()
            .chain(page(FlashOp::Program, 192..196, "init"))
            .chain(page(FlashOp::Read, 0..12, "agent"))
            .chain(page(FlashOp::Read, 4096..4099, "agent"))
            .collect();
        assert_eq!(accesses(&trace), want, "{board}");
        no_losses(&trace, board);

        // Erases and programs lie in the phase that the plan put around them.
        let phase = &trace.phases()[0];
        assert_eq!(phase.name, "erase and write");
        let inside = events(&trace)
            .iter()
            .filter(|e| (phase.begin_ns..=phase.end_ns.unwrap()).contains(&e.time.0))
            .filter(|e| matches!(e.kind, EventKind::Flash(_)))
            .count();
        assert_eq!(inside, 6, "{board}");
    }
}

#[test]
fn details_and_durations() {
    for board in BOARDS {
        let session = session(board);
        let trace = session.recording(1).unwrap();
        let mut durations = vec![];
        for e in events(&trace) {
            match e.kind {
                EventKind::Flash(a) => {
                    assert_eq!((a.offset_bytes, a.length_bytes, a.chip), (Some(0), Some(2048), 0), "{board}");
                }
                EventKind::FlashDone { op, duration_ns } => {
                    assert_eq!(op, FlashOp::Read);
                    durations.push(duration_ns);
                }
                _ => {}
            }
        }
        assert_eq!(durations.len(), 6, "{board}");
        // nandsim: 25 µs access and 2,048 cycles of 50 ns make 127 µs of busy waiting; the rest is the kernel's.
        assert!(durations.iter().all(|&d| (127_000..2_000_000).contains(&d)), "{board}: {durations:?}");
        no_losses(&trace, board);
    }
}

#[test]
fn steps_output_and_files_of_a_board() {
    for board in BOARDS {
        let session = session(board);
        let raw = session.step("raw").unwrap();
        assert_eq!(raw.status, Some(0));
        let json: serde_json::Value = serde_json::from_slice(&raw.stdout).unwrap();
        assert!(json.is_object(), "{board}: {json}");
        assert!(raw.end_ns > raw.begin_ns);
        let get = session.step("get").unwrap();
        let text = session.read_file(&get.files[0], 4096).unwrap();
        assert_eq!(get.files[0].path, "/proc/version");
        assert!(text.starts_with(b"Linux version "), "{board}");
    }
}

#[test]
fn through_a_trace_dat_and_back() {
    let dir = TempDir::new("boards");
    for board in BOARDS {
        let session = session(board);
        for i in 0..2 {
            let trace = session.recording(i).unwrap();
            let path = dir.0.join(format!("{board}-{i}.dat"));
            dat::write(&trace, &path).unwrap();
            let back = Trace::open(&path).unwrap();
            assert_eq!(records(&back), records(&trace), "{board}");
            assert_eq!(events(&back), events(&trace), "{board}");
            assert_eq!(back.facts_json(), trace.facts_json());
            assert_eq!(back.losses(), trace.losses());
        }
    }
}

#[test]
fn flashmon_formats_of_a_board() {
    let dir = TempDir::new("flashmon-board");
    let session = session("armv7-6.1");
    let trace = session.recording(0).unwrap();
    let mut log = vec![];
    let written = flashscope_trace::flashmon::write_log(&trace, 0, &mut log).unwrap();
    assert_eq!((written.lines, written.other_chips), (21, 0));
    let text = String::from_utf8(log.clone()).unwrap();
    assert_eq!(text.lines().next(), Some("4.398803200;E;3;init"));
    assert!(text.ends_with(";R;4098;agent\n"));
    // Read again, the log has the same operations, times and tasks.
    let back = Trace::open(&dir.file("log", &log)).unwrap();
    assert_eq!(accesses(&back), accesses(&trace));
    assert_eq!(back.losses().get(Loss::LinesMalformed), 0);

    let mut spatial = vec![];
    flashscope_trace::flashmon::write_spatial(&trace, 0, &mut spatial).unwrap();
    let blocks = flashscope_trace::flashmon::read_spatial(&dir.file("spatial", &spatial)).unwrap();
    assert_eq!(blocks.len(), 2048, "every block of the chip has its line");
    let at = |i: usize| (blocks[i].reads, blocks[i].writes, blocks[i].erases);
    assert_eq!((at(0), at(3), at(4), at(64), at(5)), ((12, 0, 0), (0, 4, 1), (0, 0, 1), (3, 0, 0), (0, 0, 0)));
    assert!(Trace::open(&dir.0.join("spatial")).unwrap_err().to_string().contains("spatial view"));
}
