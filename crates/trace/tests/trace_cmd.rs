//! What we write, Debian's trace-cmd reads: the same events, names, times and fields, and not one warning.

mod common;

use common::*;
use flashscope_trace::{Encoder, Endian, Missed, Session, Trace, Value, dat};
use std::path::Path;
use std::process::Command;

/// trace-cmd's output, or `None` (and a word about it) where there is none. CI has it: `make test` installs it.
fn trace_cmd(args: &[&str], file: &Path) -> Option<String> {
    let run = Command::new("trace-cmd").arg("report").args(args).arg(file).env("TRACECMD_TEMPDIR", "/tmp").output();
    let out = match run {
        Ok(out) => out,
        Err(e) => {
            assert!(std::env::var_os("CI").is_none(), "trace-cmd: {e}");
            eprintln!("skipped: trace-cmd: {e}; install it (apt-get install trace-cmd) to compare with it");
            return None;
        }
    };
    assert_eq!(String::from_utf8_lossy(&out.stderr), "", "trace-cmd warns about {}", file.display());
    assert!(out.status.success());
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// One line of `trace-cmd report -R -t`.
#[derive(Debug)]
struct Line {
    buffer: String,
    comm: String,
    tid: u32,
    cpu: u16,
    time: u64,
    event: String,
    fields: String,
}

fn parse(line: &str) -> Line {
    let bracket = (0..line.len())
        .find(|&i| line[i..].starts_with(" [") && line.get(i + 5..i + 6) == Some("]"))
        .unwrap_or_else(|| panic!("no CPU in {line:?}"));
    let (head, rest) = (&line[..bracket], &line[bracket + 6..]);
    let (task, tid) = head.trim_end().rsplit_once('-').unwrap();
    let (buffer, comm) = task.trim_start().split_once(": ").unwrap_or(("", task));
    let (time, rest) = rest.trim_start().split_once(": ").unwrap_or_else(|| panic!("no time in {line:?}"));
    // trace-cmd 3.4 prints flags before the time.
    let time = time.split_whitespace().last().unwrap();
    let (seconds, decimals) = time.split_once('.').unwrap();
    assert_eq!(decimals.len(), 9, "{line:?}");
    let (event, fields) = rest.split_once(':').unwrap();
    Line {
        buffer: buffer.to_string(),
        comm: comm.trim_start().to_string(),
        tid: tid.parse().unwrap(),
        cpu: line[bracket + 2..bracket + 5].parse().unwrap(),
        time: seconds.parse::<u64>().unwrap() * 1_000_000_000 + decimals.parse::<u64>().unwrap(),
        event: event.trim().to_string(),
        fields: format!(" {}", fields.trim_start()),
    }
}

/// Whether trace-cmd's text says this value; it prints numbers as the event's print format does, decimal or hex.
fn says(text: &str, value: &Value<'_>, size: u32) -> bool {
    let mask = if size >= 8 { u64::MAX } else { (1 << (size * 8)) - 1 };
    let number = |v: u64| {
        let hex = text.strip_prefix("0x").unwrap_or(text);
        text.parse::<i64>().is_ok_and(|t| t as u64 & mask == v & mask)
            || text.parse::<u64>().is_ok_and(|t| t & mask == v & mask)
            || u64::from_str_radix(hex, 16).is_ok_and(|t| t & mask == v & mask)
    };
    match value {
        Value::Unsigned(v) => number(*v),
        Value::Signed(v) => number(*v as u64),
        Value::Text(t) => text == String::from_utf8_lossy(t),
        // Byte by byte, whatever the elements are.
        Value::Array(a) => {
            let bytes: Vec<String> = a.bytes().iter().map(|b| format!("{b:02x}")).collect();
            text == format!("ARRAY[{}]", bytes.join(", "))
        }
        Value::Bytes(_) => panic!("no event of these tests has opaque bytes"),
    }
}

/// Compares a file event by event, field by field. Returns how many there were.
fn compare(trace: &Trace, file: &Path) -> Option<usize> {
    Some(compare_text(trace, &trace_cmd(&["-R", "-t"], file)?))
}

fn compare_text(trace: &Trace, text: &str) -> usize {
    // trace-cmd joins the two events of a function that calls no other: no line for each of them.
    let joined = |event: &str| event.starts_with("funcgraph_");
    let lines = text.lines().filter(|l| !l.starts_with("cpus=") && !l.contains("EVENTS DROPPED"));
    let mut lines = lines.map(parse).filter(|l| !joined(&l.event));
    let mut tids = std::collections::BTreeSet::new();
    trace.for_each_record(&mut |r| _ = tids.insert(r.tid())).unwrap();
    let end = flashscope_trace::TimeNs(u64::MAX);
    let last_names: std::collections::BTreeMap<u32, &str> =
        tids.into_iter().filter_map(|tid| Some((tid, trace.comm(tid, end)?))).collect();
    let mut count = 0;
    trace
        .for_each_record(&mut |r| {
            if joined(&r.schema.name) {
                return;
            }
            count += 1;
            let line = lines.next().unwrap_or_else(|| panic!("trace-cmd has no event {count}: {}", r.schema.name));
            assert_eq!(
                (line.buffer.as_str(), line.time, line.cpu, line.event.as_str(), line.tid),
                (r.buffer, r.time.0, r.cpu, r.schema.name.as_str(), r.tid()),
                "event {count}"
            );
            // trace-cmd knows one name of a task, the last.
            assert_eq!(line.comm, last_names.get(&r.tid()).map_or("<...>", |n| n), "event {count}");
            let own: Vec<_> = r.fields().filter(|(f, _)| !f.common).collect();
            for (i, (field, value)) in own.iter().enumerate() {
                let begin = format!(" {}=", field.name);
                let at = line.fields.find(&begin).unwrap_or_else(|| panic!("no{begin} in {line:?}")) + begin.len();
                let end = match own.get(i + 1) {
                    Some((next, _)) => {
                        at + line.fields[at..].find(&format!(" {}=", next.name)).expect("the next field")
                    }
                    None => line.fields.len(),
                };
                let value = value.unwrap_or_else(|| panic!("{}: cut", field.name));
                assert!(
                    says(line.fields[at..end].trim_end(), &value, field.size),
                    "event {count}, {}: {:?} against {value:?}",
                    field.name,
                    &line.fields[at..end]
                );
            }
        })
        .unwrap();
    assert_eq!(lines.next().map(|l| l.event), None, "trace-cmd has more");
    count
}

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
            if let Some(count) = compare(&trace, &file) {
                assert_eq!(count, want, "{board}, recording {i}");
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
        ("armv7-6.1-v6-graph", 52),
        ("armv7-6.1-v7-none", 30),
        ("armv7-6.1-v7-zstd", 359),
    ] {
        let file = data(&format!("trace_dat/{name}.dat"));
        let trace = Trace::open(&file).unwrap();
        if let Some(count) = compare(&trace, &file) {
            assert_eq!(count, want, "{name}");
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

/// Files that Debian 12's trace-cmd cannot read, beside what the one that wrote them printed.
#[test]
fn files_with_their_own_report() {
    let dir = TempDir::new("trace-cmd-report");
    for (name, want) in [("armv7-7.2-v7-zlib", 320), ("armv7-7.2-v7-subbuf16k", 315)] {
        let trace = Trace::open(&data(&format!("trace_dat/{name}.dat"))).unwrap();
        let text = std::fs::read_to_string(data(&format!("trace_dat/{name}.txt"))).unwrap();
        assert_eq!(compare_text(&trace, &text), want, "{name}");
        let again = dir.0.join("again.dat");
        dat::write(&trace, &again).unwrap();
        let rewritten = Trace::open(&again).unwrap();
        assert_eq!(compare_text(&rewritten, &text), want, "{name}");
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
                if let Some(count) = compare(&trace, &file) {
                    assert_eq!(count, 600 + 307 + 3, "{endian:?} {long} {subbuf}");
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
