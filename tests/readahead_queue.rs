//! Predictions behind a block queue against a board's timed disk: pages, and time in reads, of workloads of which each is recorded
//! with several windows and predicted from the recordings with the others.

use std::collections::BTreeMap;
use std::path::PathBuf;

use flashscope_analysis::Analysis;
use flashscope_analysis::cache::Accuracy;
use flashscope_cachesim::Kernel;
use flashscope_predict::{Collector, Predictor, Storage, Workload, request_bytes};
use flashscope_tests::{Plan, TempDir, nothing_lost, work};
use flashscope_trace::{Device, FileId, Session, Trace};

const WORKLOADS: [&str; 4] = ["sequential", "think", "random", "strided"];
const WINDOWS_KIB: [u64; 3] = [0, 16, 128];
const FILE_BYTES: u64 = 4 << 20;

/// The port's stream of a boot; with FLASHSCOPE_READAHEAD_KEEP it is kept there, and one that is there is taken instead of a boot.
fn session() -> Session {
    let kept = std::env::var_os("FLASHSCOPE_READAHEAD_KEEP").map(|dir| PathBuf::from(dir).join("6.1-ext4-queue.port"));
    if let Some(path) = kept.as_ref().filter(|path| path.exists()) {
        return Session::open(path).expect("a port file");
    }
    let dir = TempDir::new("queue");
    let mut plan = Plan::new("armv7-blk", "6.1");
    plan.files = vec![("/work", 0o755, work("armv7-blk", "readahead/queue.c", dir.path()))];
    let mut lines = vec![format!("create /mnt/data {FILE_BYTES} printable 1"), "sleep 3000".to_owned()];
    // Read at the end: who drains it meanwhile takes the board's one processor, and that is no call's time.
    lines.push("record-start --mode ring --events block,cache,syscall --ring 8192".to_owned());
    for kib in WINDOWS_KIB {
        for what in WORKLOADS {
            lines.push(format!("write /sys/block/nullb0/queue/read_ahead_kb {kib}"));
            lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
            lines.push(format!("run {what}{kib} /work {what} /mnt/data"));
        }
    }
    lines.push("record-stop".to_owned());
    plan.lines = lines;
    let booted = plan.boot();
    if let Some(path) = kept {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::copy(booted.outcome.port_file(), &path).expect("a recording is kept");
    }
    booted.session
}

/// Number of the file system's device.
fn device(trace: &Trace) -> Device {
    let mounts = trace.facts_json()["mounts"].as_array().expect("mounts");
    let mount = mounts.iter().find(|mount| mount["target"] == "/mnt").expect("the disk is mounted");
    mount["device"].as_str().and_then(Device::parse).expect("a device")
}

/// From a step's begin to its end.
fn span(session: &Session, step: &str) -> (u64, u64) {
    let step = session.step(step).expect("a step");
    assert_eq!(step.status, Some(0), "{}", String::from_utf8_lossy(&step.stderr));
    (step.begin_ns.expect("a begin"), step.end_ns.expect("an end"))
}

fn storage(trace: &Trace) -> Storage {
    let mut storage = Storage::new(Kernel::V6_1);
    storage.request_bytes = request_bytes(trace.facts(), device(trace)).expect("the queue's longest request");
    storage.io_pages = storage.request_bytes / 4096;
    storage
}

/// What was done in that time.
fn workload(trace: &Trace, (begin, end): (u64, u64)) -> Workload {
    let mut collector = Collector::new(trace.facts(), None);
    collector.keep_pages();
    let each = &mut |pair: flashscope_trace::Pair<'_>| {
        if (begin..=end).contains(&pair.time().0) {
            collector.pair(&pair);
        }
    };
    trace.for_each_pair(each).expect("a readable trace");
    let mut workload = collector.finish();
    let ours = Some(device(trace));
    workload.steps.retain(|step| step.file.device == ours);
    workload.pages.retain(|(file, _)| file.device == ours);
    workload
}

/// Pages that came too late, as a report of the same trace counts them.
fn late(trace: &Trace, (begin, end): (u64, u64)) -> Option<u64> {
    let mut accuracy = Accuracy::new();
    let each = &mut |event: &flashscope_trace::Event| {
        if (begin..=end).contains(&event.time.0) {
            accuracy.event(event);
        }
    };
    trace.for_each(each).expect("a readable trace");
    let found = accuracy.finish();
    assert_eq!(found.arrival_unknown, 0, "every bio came back");
    let ours = device(trace);
    found.files.iter().filter(|file| file.device == Some(ours)).map(|file| file.pages.ahead_late).sum()
}

fn sorted(mut pages: Vec<(FileId, u64)>) -> Vec<(FileId, u64)> {
    pages.sort_unstable();
    pages
}

#[test]
fn time_behind_a_block_queue_is_predicted_from_another_window() {
    let session = session();
    let trace = session.recording(0).expect("a recording");
    nothing_lost(&trace, "the recording");
    let storage = storage(&trace);
    println!("longest request: {} bytes", storage.request_bytes);
    let mut all = Vec::new();
    let mut of_window = BTreeMap::new();
    for what in WORKLOADS {
        let of = |kib: u64| workload(&trace, span(&session, &format!("{what}{kib}")));
        let recorded: Vec<(u64, Workload)> = WINDOWS_KIB.into_iter().map(|kib| (kib, of(kib))).collect();
        for (kib, measured) in &recorded {
            let own = Predictor::new(measured, storage.clone());
            assert_eq!(sorted(measured.pages.clone()), sorted(own.pages(*kib)), "{what}, {kib} KiB: pages");
            println!("{what}, {kib} KiB: {:?}", own.costs.queue.expect("calls wait for the disk"));
            let time: u64 = measured.calls.iter().filter_map(|call| call.duration_ns).sum();
            *of_window.entry(*kib).or_insert(0) += time;
            let reported = late(&trace, span(&session, &format!("{what}{kib}")));
            assert_eq!(reported, Some(measured.queued.pages_late), "{what}, {kib} KiB: late pages of the report");
            for (from_kib, from) in &recorded {
                let row = Predictor::new(from, storage.clone()).row(*kib, &|_| false);
                let asked = row.queue.expect("a queue");
                assert_eq!(measured.queued.requests, asked.requests, "{what}, {kib} KiB from {from_kib} KiB: requests");
                // Single pages tell nothing of longer requests; only the streams make such.
                let untold = *from_kib == 0 && *kib > 0 && ["sequential", "think"].contains(&what);
                assert_eq!(row.time_ns.is_none(), untold, "{what}, {kib} KiB from {from_kib} KiB: time");
                let Some(predicted) = row.time_ns else {
                    println!("{what:>10} {kib:>4} KiB from {from_kib:>3}: not told");
                    continue;
                };
                // Whether a page is there when its call begins is a matter of microseconds.
                let late = measured.queued.pages_late.abs_diff(asked.pages_late);
                assert!(late <= 2, "{what}, {kib} KiB from {from_kib} KiB: {late} more or fewer late pages");
                let off = (predicted / time as f64 - 1.0) * 100.0;
                println!(
                    "{what:>10} {kib:>4} KiB from {from_kib:>3}: {:8.2} ms measured, {:8.2} predicted, {off:+6.2} %; \
                     {} requests measured, {} predicted; late {} and {}",
                    time as f64 / 1e6,
                    predicted / 1e6,
                    measured.queued.requests,
                    asked.requests,
                    measured.queued.pages_late,
                    asked.pages_late
                );
                if from_kib != kib {
                    all.push((*from_kib, off.abs()));
                }
            }
        }
    }
    // Twelve programs one after the other, each four of them with another window: under one window for all they take three times what
    // they took with it.
    let whole = workload(&trace, (0, u64::MAX));
    for (kib, time) in of_window {
        let row = Predictor::new(&whole, storage.clone()).row(kib, &|_| false);
        let (predicted, measured) = (row.time_ns.expect("a time"), (WINDOWS_KIB.len() as u64 * time) as f64);
        let off = (predicted / measured - 1.0) * 100.0;
        println!("all, {kib} KiB: {:.2} ms measured, {:.2} predicted, {off:+.2} %", measured / 1e6, predicted / 1e6);
        assert!(off.abs() <= 10.0, "all, {kib} KiB: {off:+.2} %");
    }
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (median, worst) = (all[all.len() / 2].1, all[all.len() - 1].1);
    println!("time: median {median:.2} %, worst {worst:.2} %");
    assert!(median <= 5.0 && worst <= 10.0, "time: median {median:.2} %, worst {worst:.2} %");
}

/// A file that lies in pieces of six pages, between those of another one, read from its begin to its end.
#[test]
fn a_file_in_pieces_is_asked_for_piece_by_piece() {
    const BYTES: u64 = 3 << 20;
    let dir = TempDir::new("pieces");
    let mut plan = Plan::new("armv7-blk", "6.1");
    plan.files = vec![("/work", 0o755, work("armv7-blk", "readahead/queue.c", dir.path()))];
    let mut lines = vec!["run lay /work lay /mnt/pieces /mnt/other".to_owned(), "sleep 3000".to_owned()];
    lines.push("record-start --mode ring --events block,cache,syscall --ring 8192".to_owned());
    for kib in WINDOWS_KIB {
        lines.push(format!("write /sys/block/nullb0/queue/read_ahead_kb {kib}"));
        lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
        lines.push(format!("run whole{kib} /work whole /mnt/pieces"));
    }
    lines.push("record-stop".to_owned());
    plan.lines = lines;
    let session = plan.boot().session;
    let laid = &session.step("lay").expect("a step").stdout;
    assert_eq!(String::from_utf8_lossy(laid).trim(), (BYTES / (24 << 10)).to_string(), "pieces");
    let trace = session.recording(0).expect("a recording");
    nothing_lost(&trace, "the recording");
    let storage = storage(&trace);
    let of = |kib: u64| workload(&trace, span(&session, &format!("whole{kib}")));
    let recorded: Vec<(u64, Workload)> = WINDOWS_KIB.into_iter().map(|kib| (kib, of(kib))).collect();
    for (kib, measured) in &recorded {
        let own = Predictor::new(measured, storage.clone());
        assert_eq!(sorted(measured.pages.clone()), sorted(own.pages(*kib)), "{kib} KiB: pages");
        println!("in pieces, {kib} KiB: {:?}", own.costs.queue.expect("calls wait for the disk"));
        let time: u64 = measured.calls.iter().filter_map(|call| call.duration_ns).sum();
        for (from_kib, from) in &recorded {
            let row = Predictor::new(from, storage.clone()).row(*kib, &|_| false);
            let asked = row.queue.expect("a queue");
            let off = row.time_ns.map(|predicted| (predicted / time as f64 - 1.0) * 100.0);
            println!(
                "in pieces {kib:>4} KiB from {from_kib:>3}: {:8.2} ms measured, {off:+.2?} %; {} requests measured, {} predicted",
                time as f64 / 1e6,
                measured.queued.requests,
                asked.requests,
            );
            assert_eq!(measured.queued.requests, asked.requests, "{kib} KiB from {from_kib} KiB: requests");
            // Single pages tell nothing of longer requests, and bios that are nearly all of one length little of any other.
            let bar = if from_kib == kib { Some(2.5) } else { (*from_kib == 16).then_some(10.0) };
            assert_eq!(off.is_none(), *from_kib == 0 && *kib > 0, "{kib} KiB from {from_kib} KiB: time");
            if let Some((off, bar)) = off.zip(bar) {
                assert!(off.abs() <= bar, "{kib} KiB from {from_kib} KiB: {off:+.2} %");
            }
        }
    }
}
