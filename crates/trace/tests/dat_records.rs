//! trace.dat written from records: filtered, and of several traces.

use crate::common::*;
use flashscope_trace::{Alignment, Endian, Event, Loss, MergedTrace, Record, Session, TaskId, Trace, dat};
use std::collections::BTreeMap;

/// Everything of a record that does not depend on how events are numbered.
fn show(r: &Record<'_>) -> String {
    let fields: Vec<_> =
        r.fields().filter(|(f, _)| f.name != "common_type").map(|(f, v)| format!("{}={v:?}", f.name)).collect();
    format!("{} {} {}:{} {:?} {}", r.time.0, r.cpu, r.schema.system, r.schema.name, r.missed, fields.join(" "))
}

fn shown(trace: &Trace) -> Vec<String> {
    let mut all = vec![];
    trace.for_each_record(&mut |r| all.push(format!("{} {}", r.buffer, show(r)))).unwrap();
    all
}

/// Events as trace-cmd counts them in its own report; `None` where it is not installed.
fn trace_cmd(path: &std::path::Path) -> Option<BTreeMap<String, u64>> {
    let printed = report::trace_cmd(&["-i"], path)?;
    let mut counts = BTreeMap::new();
    for line in printed.lines() {
        let mut words =
            line.split_whitespace().skip_while(|w| !w.ends_with(':') || !w.starts_with(|c: char| c.is_ascii_digit()));
        if words.next().is_some()
            && let Some(event) = words.next()
        {
            *counts.entry(event.trim_end_matches(':').to_string()).or_default() += 1;
        }
    }
    Some(counts)
}

fn count<'a>(shown: impl Iterator<Item = &'a String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in shown {
        let event = line.split(' ').find(|w| w.contains(':')).unwrap();
        *counts.entry(event.split(':').nth(1).unwrap().to_string()).or_default() += 1;
    }
    counts
}

#[test]
fn a_filtered_trace_has_what_was_wanted_and_says_what_is_not_there() {
    let dir = TempDir::new("dat-filtered");
    for (name, wanted) in [
        ("armv7-6.1-v6", "sched_switch"),
        ("armv7-7.2-v7-subbuf16k", "sys_enter"),
        ("armv7-6.1-v7-zstd", "block_rq_issue"),
    ] {
        let trace = Trace::open(&data(&format!("trace_dat/{name}.dat"))).unwrap();
        let path = dir.0.join(name);
        let written = dat::write_filtered(&trace, &path, &|r| r.schema.name == wanted).unwrap();
        let want: Vec<_> = shown(&trace).into_iter().filter(|l| l.contains(&format!(":{wanted} "))).collect();
        let all = shown(&trace).len();
        assert!(!want.is_empty());
        assert_eq!((written.records as usize, written.left_out as usize), (want.len(), all - want.len()));
        assert_eq!(written.bytes, std::fs::metadata(&path).unwrap().len());
        let back = Trace::open(&path).unwrap();
        assert_eq!(shown(&back), want, "{name}");
        assert_eq!(back.facts_json()["written_from"]["records_left_out"], written.left_out);
        assert_eq!(back.clock(), trace.clock());
        if let Some(counts) = trace_cmd(&path) {
            assert_eq!(counts, count(want.iter()), "{name}");
        }
    }
}

#[test]
fn everything_kept_is_the_same_trace_with_its_names_phases_and_losses() {
    let dir = TempDir::new("dat-all");
    let s = example(Endian::Big, 4, 4096);
    let trace = Trace::open(&dir.file("s", &s.bytes)).unwrap();
    let path = dir.0.join("all.dat");
    let written = dat::write_filtered(&trace, &path, &|_| true).unwrap();
    let back = Trace::open(&path).unwrap();
    assert_eq!(written.left_out + written.too_large, 0);
    assert_eq!(records(&back), records(&trace));
    assert_eq!(events(&back), events(&trace));
    assert_eq!(back.phases(), trace.phases());
    for (loss, n) in trace.losses().iter() {
        assert_eq!(back.losses().get(loss), n, "{}", loss.name());
    }
    // Names come from events that are always kept.
    let path = dir.0.join("none.dat");
    dat::write_filtered(&trace, &path, &|r| r.schema.name == "nand_read").unwrap();
    let back = Trace::open(&path).unwrap();
    assert_eq!(back.comm(TaskId(20), flashscope_trace::TimeNs(2_000_000)), Some("cat"));
    assert_eq!(flash_count(&events(&back)), 300);
}

/// Of a recording by task in which no task began, all events are there: 2 in the main buffer and 3 requests.
#[test]
fn no_event_is_lost_where_no_task_began() {
    let dir = TempDir::new("dat-no-task-events");
    let mut s = Stream::new(Endian::Little, 8, 4096);
    s.begin(0, 1, &nand_facts());
    let main = vec![(10, s.nand(READ, 7, 1)), (20, s.nand(READ, 7, 2))];
    let requests = vec![(30, s.nand(PROGRAM, 7, 3)), (40, s.nand(PROGRAM, 7, 4)), (50, s.nand(PROGRAM, 7, 5))];
    s.records(0, 0, 0, &main);
    s.records(0, 2, 0, &requests);
    let cpu = |read: u64| serde_json::json!([{"cpu": 0, "entries": 0, "overrun": 0, "dropped": 0, "read": read}]);
    let stats = serde_json::json!({"instances": [
        {"instance": 0, "cpu": cpu(2)}, {"instance": 1, "cpu": cpu(0)}, {"instance": 2, "cpu": cpu(3)}],
        "probes": []});
    s.frame(9, 0, stats.to_string().as_bytes());
    s.end(0, 0);
    let trace = Trace::open(&dir.file("s", &s.bytes)).unwrap();
    assert_eq!((events(&trace).len(), trace.losses().get(Loss::EventsNotDelivered)), (5, 0));
    let (path, filtered) = (dir.0.join("t.dat"), dir.0.join("filtered.dat"));
    dat::write(&trace, &path).unwrap();
    dat::write_filtered(&trace, &filtered, &|_| true).unwrap();
    for path in [path, filtered] {
        let back = Trace::open(&path).unwrap();
        assert_eq!((events(&back).len(), back.losses().get(Loss::EventsNotDelivered)), (5, 0), "{}", path.display());
        if let Some(counts) = trace_cmd(&path) {
            assert_eq!(counts.values().sum::<u64>(), 5, "{}", path.display());
        }
    }
}

#[test]
fn gaps_before_records_that_are_left_out_stay() {
    let dir = TempDir::new("dat-gaps");
    let mut s = Stream::new(Endian::Little, 8, 4096);
    s.begin(0, 1, &nand_facts());
    let mut encoder = flashscope_trace::Encoder::new(s.layout);
    encoder.missed(flashscope_trace::Missed::Events(7));
    let mut pages = vec![];
    for (time, record) in [(10, s.nand(READ, 7, 1)), (20, s.nand(ERASE, 7, 2))] {
        pages.extend(encoder.record(time, &record).unwrap());
    }
    pages.extend(encoder.finish());
    for page in pages {
        s.page(0, 0, 0, &page);
    }
    s.end(0, 0);
    let trace = Trace::open(&dir.file("s", &s.bytes)).unwrap();
    let path = dir.0.join("dat");
    dat::write_filtered(&trace, &path, &|r| r.schema.name == "nand_erase").unwrap();
    let back = Trace::open(&path).unwrap();
    let mut missed = vec![];
    back.for_each_record(&mut |r| missed.push(r.missed)).unwrap();
    assert_eq!(missed, [flashscope_trace::Missed::Events(7)]);
    assert_eq!(back.losses().get(Loss::EventsMissedAtGaps), 7);
}

#[test]
fn merged_traces_are_one_file_in_one_order() {
    let dir = TempDir::new("dat-merged");
    // Kernel events of another boot, whose numbers are other events' in the stream; and two recordings of one boot.
    let session = Session::open(&data("stream/armv7-6.1.port")).unwrap();
    let m = MergedTrace::new(vec![
        (session.recording(0).unwrap(), Alignment::Auto),
        (session.recording(1).unwrap(), Alignment::Auto),
        (Trace::open(&data("trace_dat/armv7-6.1-v6.dat")).unwrap(), Alignment::OffsetNs(1_000_000_000)),
    ])
    .unwrap();
    let path = dir.0.join("merged.dat");
    let written = dat::write_merged(&m, &path, &|_, _| true).unwrap();
    let back = Trace::open(&path).unwrap();
    let mut want = vec![];
    m.for_each_record(&mut |source, r| {
        let buffer = match (source, r.buffer) {
            (0, name) => name.to_string(),
            (n, "") => format!("trace{n}"),
            (n, name) => format!("trace{n}-{name}"),
        };
        want.push(format!("{buffer} {}", show(r)));
    })
    .unwrap();
    assert_eq!(written.records as usize, want.len());
    let mut got = shown(&back);
    // Of one time the order is that of the buffers.
    got.sort();
    want.sort();
    assert_eq!(got, want);
    let times: Vec<u64> = shown(&back).iter().map(|l| l.split(' ').nth(1).unwrap().parse().unwrap()).collect();
    assert!(times.is_sorted());
    // Typed too: the flash operations of both recordings.
    assert_eq!(flash_count(&events(&back)), 21 + 6);
    let mut typed = 0;
    m.for_each(&mut |_, e: &Event| typed += u64::from(matches!(e.kind, flashscope_trace::EventKind::FlashDone { .. })))
        .unwrap();
    assert_eq!(typed, 6);
    assert_eq!(back.facts_json()["written_from"]["merged_with"][1]["offset_ns"], 1_000_000_000);
    if let Some(counts) = trace_cmd(&path) {
        assert_eq!(counts, count(want.iter()));
    }
}

#[test]
fn traces_that_cannot_be_one_file_are_refused() {
    let dir = TempDir::new("dat-refused");
    let open = |name: &str, s: Stream| Trace::open(&dir.file(name, &s.bytes)).unwrap();
    let m = MergedTrace::new(vec![
        (open("little", example(Endian::Little, 8, 4096)), Alignment::Auto),
        (open("big", example(Endian::Big, 8, 4096)), Alignment::OffsetNs(0)),
    ])
    .unwrap();
    let path = dir.0.join("out.dat");
    let error = dat::write_merged(&m, &path, &|_, _| true).unwrap_err().to_string();
    assert!(error.contains("another byte order"), "{error}");
    assert!(!path.exists());
    let log = Trace::open(&data("flashmon/paper.log")).unwrap();
    assert!(dat::write_filtered(&log, &path, &|_| true).unwrap_err().to_string().contains("no ring-buffer data"));
}
