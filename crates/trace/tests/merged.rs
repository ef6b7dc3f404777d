//! Several traces in one order, and only where their clocks are tied together.

use crate::common::*;
use flashscope_trace::{Alignment, Endian, Error, Event, EventKind, MergedTrace, SYNC, Session, TaskId, Trace, export};
use std::path::Path;

/// A trace of reads every `step` ns, with a marker.
fn recorded(dir: &TempDir, name: &str, begin: u64, step: u64, marker: Option<(&str, u64)>) -> std::path::PathBuf {
    let mut s = Stream::new(Endian::Little, 8, 4096);
    s.begin(0, 1, &nand_facts());
    s.tasks(0, &[(7, name)]);
    let records: Vec<_> = (0..2000u32).map(|i| (begin + u64::from(i) * step, s.nand(READ, 7, i))).collect();
    s.records(0, 0, 0, &records);
    if let Some((text, time)) = marker {
        s.phase(0, time, 2, text);
    }
    s.end(0, 0);
    dir.file(name, &s.bytes)
}

fn merged(m: &MergedTrace) -> Vec<(usize, Event)> {
    let mut all = vec![];
    m.for_each(&mut |source, event| all.push((source, event.clone()))).unwrap();
    all
}

fn open_many(inputs: &[(&Path, Alignment)]) -> Result<MergedTrace, Error> {
    let traces = inputs.iter().map(|(path, alignment)| Ok((Trace::open(path)?, alignment.clone())));
    MergedTrace::new(traces.collect::<Result<_, Error>>()?)
}

#[test]
fn times_of_other_clocks_are_refused_without_a_marker_or_an_offset() {
    let dir = TempDir::new("merged-refused");
    let a = recorded(&dir, "a", 1_000, 10, Some(("phase one", 5)));
    let b = recorded(&dir, "b", 900_000, 10, Some(("phase one", 6)));
    let error = open_many(&[(&a, Alignment::Auto), (&b, Alignment::Auto)]).unwrap_err().to_string();
    assert!(
        error.starts_with(b.to_str().unwrap())
            && error.contains("a: nothing connects their clocks")
            && error.contains(SYNC),
        "{error}"
    );
}

#[test]
fn an_offset_or_a_shared_marker_puts_them_in_one_order() {
    let dir = TempDir::new("merged");
    let marker = format!("{SYNC}-1");
    let a = recorded(&dir, "a", 1_000, 10, Some((&marker, 500)));
    let b = recorded(&dir, "b", 901_003, 10, Some((&marker, 900_500)));
    for alignment in [Alignment::OffsetNs(-900_000), Alignment::Auto] {
        let m = open_many(&[(&a, Alignment::Auto), (&b, alignment)]).unwrap();
        assert_eq!((m.sources()[1].offset_ns, m.sources()[1].spread_ns), (-900_000, 0));
        let all = merged(&m);
        assert!(all.windows(2).all(|w| w[0].1.time <= w[1].1.time));
        let flash: Vec<_> = all.iter().filter(|(_, e)| matches!(e.kind, EventKind::Flash(_))).collect();
        assert_eq!(flash.len(), 4000);
        // Every read of b comes 3 ns after one of a.
        for (i, (source, event)) in flash.iter().enumerate() {
            assert_eq!(*source, i % 2);
            assert_eq!(event.time.0, 1_000 + (i as u64 / 2) * 10 + 3 * (i as u64 % 2));
            assert_eq!(m.comm(*source, TaskId(7), event.time), Some(["a", "b"][*source]));
        }
        let marks: Vec<_> =
            all.iter().filter(|(_, e)| matches!(e.kind, EventKind::Mark { .. })).map(|(_, e)| e.time.0).collect();
        assert_eq!(marks, [500, 500]);
        // Records come in the same order, with their bytes.
        let mut records = vec![];
        m.for_each_record(&mut |source, r| records.push((source, r.time, format!("{:?}", r.get("page").unwrap()))))
            .unwrap();
        assert_eq!(records.len(), 4000);
        for ((source, event), (s, time, page)) in flash.iter().zip(&records) {
            let EventKind::Flash(access) = &event.kind else { unreachable!() };
            assert_eq!((source, event.time), (s, *time));
            assert_eq!(*page, format!("Unsigned({})", access.page));
        }
        assert_eq!(m.losses().get(flashscope_trace::Loss::StatisticsMissing), 2);
    }
}

#[test]
fn recordings_of_one_stream_have_one_clock() {
    let session = Session::open(&data("stream/armv7-6.1.port")).unwrap();
    let both = [1, 0].map(|i| (session.recording(i).unwrap(), Alignment::Auto));
    let m = MergedTrace::new(both.into()).unwrap();
    let flash = merged(&m).into_iter().filter(|(_, e)| matches!(e.kind, EventKind::Flash(_)));
    let flash: Vec<_> = flash.collect();
    assert_eq!(flash.len(), 21 + 6);
    assert!(flash.windows(2).all(|w| w[0].1.time <= w[1].1.time));
    assert_eq!((flash[0].0, flash[26].0), (1, 0));
    // The same boot in another file is not known to be one.
    let dir = TempDir::new("merged-boots");
    let copy = dir.file("copy", &std::fs::read(data("trace_dat/armv7-6.1-v6.dat")).unwrap());
    let other = (Trace::open(&copy).unwrap(), Alignment::Auto);
    assert!(MergedTrace::new(vec![(session.recording(0).unwrap(), Alignment::Auto), other]).is_err());
}

#[test]
fn markers_written_into_the_ring_serve_too() {
    let dir = TempDir::new("merged-print");
    let head = "# tracer: nop\n";
    let line = |t: &str, rest: &str| format!("         task-1       [000] .....     {t}: {rest}\n");
    let a =
        [head.to_string(), line("1.000000", "tracing_mark_write: flashscope-sync x"), line("2.5", "e: k=1")].concat();
    let b =
        [head.to_string(), line("7.000000", "tracing_mark_write: flashscope-sync x"), line("8.0", "e: k=2")].concat();
    let (a, b) = (dir.file("a", a.as_bytes()), dir.file("b", b.as_bytes()));
    let m = open_many(&[(&a, Alignment::Auto), (&b, Alignment::Auto)]).unwrap();
    assert_eq!(m.sources()[1].offset_ns, -6_000_000_000);
    let times: Vec<_> = merged(&m).iter().map(|(s, e)| (*s, e.time.0 / 1_000_000)).collect();
    assert_eq!(times, [(0, 1000), (1, 1000), (1, 2000), (0, 2500)]);
}

#[test]
fn recordings_of_one_boot_have_one_clock() {
    let dir = TempDir::new("merged-boot");
    let of_boot = |name: &str, boot: serde_json::Value, clock: &str, begin: u64| {
        let mut s = Stream::new(Endian::Little, 8, 4096);
        let mut facts = nand_facts();
        facts["kernel"]["boot_id"] = boot;
        facts["recording"]["clock"] = clock.into();
        s.begin(0, 1, &facts);
        s.records(0, 0, 0, &[(begin, s.nand(READ, 7, 1)), (begin + 10, s.nand(READ, 7, 2))]);
        s.end(0, 0);
        dir.file(name, &s.bytes)
    };
    let a = of_boot("a", "3609a4e8".into(), "mono", 1000);
    let b = of_boot("b", "3609a4e8".into(), "mono", 1005);
    let m = open_many(&[(&a, Alignment::Auto), (&b, Alignment::Auto)]).unwrap();
    let times: Vec<_> = merged(&m).iter().map(|(s, e)| (*s, e.time.0)).collect();
    assert_eq!(times, [(0, 1000), (1, 1005), (0, 1010), (1, 1015)]);
    // Another boot, another clock of this boot, and unknown boots (a virtual board's) are refused.
    let refused = |a: &std::path::PathBuf, b: &std::path::PathBuf| {
        open_many(&[(a, Alignment::Auto), (b, Alignment::Auto)]).is_err()
    };
    assert!(refused(&a, &of_boot("other", "9999".into(), "mono", 1005)));
    assert!(refused(&a, &of_boot("local", "3609a4e8".into(), "local", 1005)));
    let unknown = ["c", "d"].map(|name| of_boot(name, serde_json::Value::Null, "mono", 1005));
    assert!(refused(&unknown[0], &unknown[1]));
}

#[test]
fn exports_of_several_are_those_of_each_in_one_order() {
    let dir = TempDir::new("merged-export");
    let marker = format!("{SYNC}-1");
    // Two threads of one id and another name, on clocks that differ.
    let a = recorded(&dir, "a", 1_000, 10, Some((&marker, 500)));
    let b = recorded(&dir, "b", 901_003, 10, Some((&marker, 900_500)));
    let m = open_many(&[(&a, Alignment::Auto), (&b, Alignment::Auto)]).unwrap();
    let lines = |write: &dyn Fn(&mut Vec<u8>) -> u64, head: usize| {
        let mut out = vec![];
        let n = write(&mut out);
        let lines: Vec<String> = String::from_utf8(out).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(n as usize + head, lines.len());
        lines
    };
    let (name_a, name_b) = (a.display().to_string(), b.display().to_string());
    for (i, line) in lines(&|out| export::text_merged(&m, out).unwrap(), 0).iter().enumerate() {
        let (name, comm) = [(&name_a, "a"), (&name_b, "b")][i % 2];
        let ns = 1_000 + i / 2 * 10 + 3 * (i % 2);
        let want = format!("{name}: {comm}-7 [000] 0.{ns:09}: nand_read: ");
        assert!(line.starts_with(&want) && line.ends_with(&format!(" page={}", i / 2)), "{line}");
    }
    let csv = lines(&|out| export::csv_merged_as(&m, false, out).unwrap(), 1);
    assert_eq!(csv[0], format!("{},source", export::CSV_COLUMNS.join(",")));
    assert_eq!(csv[1..3], [format!("500,0,0,<idle>,mark,,,,,,,,{marker},{name_a}"), csv[1].replace(&name_a, &name_b)]);
    assert_eq!(csv[4], format!("1003,0,7,b,flash,read,0,,,0,,,,{name_b}"));
    // On a clock that is its own, each line is what the trace alone gives, and the source.
    let alone = lines(&|out| export::json_lines(&m.sources()[0].trace, out).unwrap(), 0);
    let merged = lines(&|out| export::json_lines_merged(&m, out).unwrap(), 0);
    let of_a: Vec<&String> = merged.iter().step_by(2).collect();
    assert_eq!(alone.len(), of_a.len());
    for (alone, merged) in alone.iter().zip(of_a) {
        assert_eq!(*merged, format!("{},\"source\":\"{name_a}\"}}", alone.strip_suffix('}').unwrap()));
    }
    assert!(merged[1].contains("\"time_ns\":1003,") && merged[1].contains("\"comm\":\"b\""), "{}", merged[1]);
}
