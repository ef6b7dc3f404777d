//! The text export against the plainest printer of the same, on every golden.

use crate::common::*;
use flashscope_trace::{Endian, FieldKind, Missed, Record, Session, Trace, Value, export};
use std::fmt::Write;

fn plain(trace: &Trace) -> String {
    let mut out = String::new();
    trace.for_each_record(&mut |r| line(&mut out, trace, r).unwrap()).unwrap();
    out
}

fn line(out: &mut String, trace: &Trace, r: &Record<'_>) -> std::fmt::Result {
    match r.missed {
        Missed::Nothing => {}
        Missed::Events(n) => writeln!(out, "CPU:{} [{n} EVENTS DROPPED]", r.cpu)?,
        Missed::Unknown => writeln!(out, "CPU:{} [EVENTS DROPPED]", r.cpu)?,
    }
    if !r.buffer.is_empty() {
        write!(out, "{}: ", r.buffer)?;
    }
    let comm = trace.comm(r.tid(), r.time).unwrap_or("<...>");
    let (s, ns) = (r.time.0 / 1_000_000_000, r.time.0 % 1_000_000_000);
    write!(out, "{}-{} [{:03}] {s}.{ns:09}: {}:", comm.as_bytes().escape_ascii(), r.tid(), r.cpu, r.schema.name)?;
    for (field, value) in r.fields().filter(|(f, _)| !f.common) {
        write!(out, " {}=", field.name)?;
        let hex =
            field.kind == FieldKind::Int && (field.type_text.ends_with('*') || field.type_text == "unsigned long");
        match value {
            None => out.push('?'),
            Some(Value::Unsigned(v)) if hex => write!(out, "{v:#x}")?,
            Some(Value::Signed(v)) if hex && field.size == 4 => write!(out, "{:#x}", v as u32)?,
            Some(Value::Signed(v)) if hex => write!(out, "{v:#x}")?,
            Some(Value::Unsigned(v)) => write!(out, "{v}")?,
            Some(Value::Signed(v)) => write!(out, "{v}")?,
            Some(Value::Text(t)) => match t.iter().all(|b| (32..127).contains(b) && *b != b'\\') {
                true => out.push_str(std::str::from_utf8(t).unwrap()),
                false => write!(out, "{}", t.escape_ascii())?,
            },
            Some(Value::Array(a)) => {
                let numbers = (0..a.len()).map(|i| match a.get(i).unwrap() {
                    Value::Unsigned(v) => v.to_string(),
                    Value::Signed(v) => v.to_string(),
                    other => panic!("{other:?}"),
                });
                write!(out, "[{}]", numbers.collect::<Vec<_>>().join(","))?;
            }
            Some(Value::Bytes(b)) => {
                out.push('<');
                b.iter().try_for_each(|b| write!(out, "{b:02x}"))?;
                out.push('>');
            }
        }
    }
    out.push('\n');
    Ok(())
}

fn check(trace: &Trace) -> usize {
    let mut got = Vec::new();
    let lines = export::text(trace, &mut got).unwrap();
    let (got, want) = (String::from_utf8(got).unwrap(), plain(trace));
    for (g, w) in got.lines().zip(want.lines()) {
        assert_eq!(g, w, "{}", trace.path().display());
    }
    assert_eq!(got, want);
    assert_eq!(lines as usize, got.lines().filter(|l| !l.ends_with("EVENTS DROPPED]")).count());
    lines as usize
}

#[test]
fn every_golden_prints_as_the_plainest_printer_does() {
    let mut lines = 0;
    for (name, bytes) in seeds::seeds("trace_dat") {
        lines += check(&Trace::from_bytes(name.as_ref(), bytes.into()).unwrap());
    }
    for (name, _) in seeds::files("stream", "port") {
        let session = Session::open(&data(&format!("stream/{name}"))).unwrap();
        for i in 0..session.recordings.len() {
            lines += check(&session.recording(i).unwrap());
        }
    }
    assert!(lines > 1500, "{lines}");
}

#[test]
fn every_layout_lost_events_and_unknown_formats() {
    for (endian, long) in [(Endian::Little, 4), (Endian::Little, 8), (Endian::Big, 4), (Endian::Big, 8)] {
        let mut s = example(endian, long, 1024);
        // An event without a format, one too short for its own, a name of a task that no terminal should see.
        let odd = vec![(6_000_000, s.nand(7777, 20, 1)), (6_000_001, s.nand(READ, 20, 2)[..10].to_vec())];
        s.records(0, 0, 0, &odd);
        let renamed = vec![(6_000_000, s.rename(20, "cat", "a\x1b[2J\n\\"))];
        s.records(0, 1, 0, &renamed);
        assert_eq!(check(&Trace::from_bytes("s".as_ref(), s.bytes.into()).unwrap()), 600 + 307 + 3 + 3);
    }
}
