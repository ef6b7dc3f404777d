//! One body for each format: any bytes in, no panic, no overflow, work and memory in proportion to the input.
//!
//! The libFuzzer targets in `fuzz_targets/` and the bounded run of CI (`crates/trace/tests/fuzz.rs`) call the same bodies.
//! A new format needs: a body here and a line in `ALL`, three lines in `fuzz_targets/`, a `[[bin]]` in `Cargo.toml`, and
//! seeds in `crates/trace/tests/common/seeds.rs`.

use flashscope_trace::{
    Endian, Layout, Missed, Schema, Session, SessionOptions, TaskId, TimeNs, Trace, TraceKind, Value,
};
use std::path::Path;
use std::sync::Arc;

pub type Body = fn(&[u8]);

pub const ALL: [(&str, Body); 9] = [
    ("stream", stream),
    ("trace_dat", trace_dat),
    ("format", format),
    ("flashmon", flashmon),
    ("blktrace", blktrace),
    ("ftrace", ftrace),
    ("text", text),
    ("perfetto", perfetto),
    ("packed", packed),
];

/// Takes everything out of a trace that can be taken out.
fn drain(trace: &Trace, input: usize) {
    let mut records = 0;
    let counted = trace.for_each_record(&mut |r| {
        records += 1;
        for (_, value) in r.fields() {
            touch(value);
        }
        if records % 16 == 1 {
            std::hint::black_box(trace.comm(r.tid(), r.time));
        }
    });
    let most = most_records(trace.kind(), input);
    assert!(counted.is_err() || records <= most, "{records} records of {input} bytes, at most {most}");
    let _ = trace.for_each(&mut |e| {
        std::hint::black_box(e);
    });
    let losses = trace.losses();
    std::hint::black_box(losses.iter().map(|(_, n)| n).max());
}

fn most_records(kind: TraceKind, input: usize) -> usize {
    match kind {
        // Fixed parts do not lie in one another, whatever a PDU's length says.
        TraceKind::Blktrace => input / 48,
        // `0;R;0` and `0)|}` are the shortest lines; the last needs no end.
        TraceKind::FlashmonLog => (input + 1) / 6,
        TraceKind::FtraceText | TraceKind::BlkparseText | TraceKind::PerfScript => (input + 1) / 5,
        // A record takes at least its head; a zlib stream unpacks to at most 1032 times its size (zlib's technical
        // details), a zstd block of one repeated byte (four bytes of it) to 128 KiB (RFC 8878, 3.1.1.2.3).
        TraceKind::AgentStream | TraceKind::TraceDat => (input + 1) << 15,
        // A column of a compact bundle has a byte for each event; deflate packs 1032 of them into one.
        TraceKind::Perfetto => input * 1100,
    }
}

fn touch(value: Option<Value<'_>>) {
    match value {
        Some(Value::Array(a)) => {
            std::hint::black_box((a.get(0), a.get(a.len().wrapping_sub(1)), a.get(a.len())));
        }
        other => {
            std::hint::black_box(other);
        }
    }
}

/// The agent's stream. Checksums are made to fit in half of the inputs, or nearly all would end at the first.
pub fn stream(bytes: &[u8]) {
    let mut fixed = bytes.to_vec();
    if bytes.last().is_some_and(|b| b & 1 == 0) {
        fix_checksums(&mut fixed);
    }
    let options = SessionOptions { output_bytes_per_step: 1 << 10, output_bytes: 4 << 10, goes_on: false };
    let Ok(session) = Session::from_bytes(Path::new("fuzz"), fixed.into(), options) else { return };
    for i in 0..session.recordings.len().min(4) {
        if let Ok(trace) = session.recording(i) {
            drain(&trace, bytes.len());
        }
    }
    for file in session.steps.iter().flat_map(|s| &s.files).take(4) {
        let _ = session.read_file(file, 1 << 16);
    }
}

fn fix_checksums(b: &mut [u8]) {
    let mut at = 0;
    while at + 20 <= b.len() {
        let length = u32::from_le_bytes([b[at + 12], b[at + 13], b[at + 14], b[at + 15]]) as usize;
        if &b[at..at + 4] != b"FSC1" || length > b.len() - at - 20 {
            at += 1;
            continue;
        }
        let right = flashscope_trace::encode_frame(0, 0, 0, &b[at + 20..at + 20 + length]);
        b[at + 16..at + 20].copy_from_slice(&right[16..20]);
        at += 20 + length;
    }
}

/// trace.dat, versions 6 and 7. Of one input in 32 threads that read ahead must find what is found without them.
pub fn trace_dat(bytes: &[u8]) {
    let Ok(mut trace) = Trace::from_bytes(Path::new("fuzz"), bytes.into()) else { return };
    trace.set_threads(0);
    drain(&trace, bytes.len());
    if bytes.last().is_some_and(|b| b & 31 == 7) {
        let Ok(mut ahead) = Trace::from_bytes(Path::new("fuzz"), bytes.into()) else { return };
        ahead.set_threads(2);
        assert_eq!(fingerprint(&trace), fingerprint(&ahead));
        assert_eq!(trace.losses(), ahead.losses());
    }
}

/// Changes with every record, its place and what is missing before it.
fn fingerprint(trace: &Trace) -> (u64, u64, bool) {
    let (mut sum, mut records) = (0u64, 0);
    let ended = trace.for_each_record(&mut |r| {
        let missed = match r.missed {
            Missed::Nothing => 0,
            Missed::Events(n) => n.wrapping_add(1),
            Missed::Unknown => u64::MAX,
        };
        let bytes = r.data.iter().fold(u64::from(r.cpu), |sum, &b| sum.wrapping_mul(31).wrapping_add(b.into()));
        records += 1;
        sum = sum.wrapping_mul(0x100_0000_01b3) ^ r.time.0 ^ missed.rotate_left(17) ^ bytes;
    });
    (sum, records, ended.is_ok())
}

/// An event's format, the layout of a sub-buffer by the same text, and a record read by it.
pub fn format(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let endian = if first & 1 == 1 { Endian::Big } else { Endian::Little };
    let long = if first & 2 == 2 { 4 } else { 8 };
    let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
    let text = String::from_utf8_lossy(&rest[..end]);
    let record = rest.get(end + 1..).unwrap_or_default();
    let layout = Layout::parse(&text, endian, long, if first & 4 == 4 { 4096 } else { 0 });
    assert!(layout.data_offset <= 128 && (64..=1 << 20).contains(&layout.subbuf_size));
    if let Ok(schema) = Schema::parse("fuzz", &text, endian, long) {
        for field in &schema.fields {
            touch(schema.value(field, record));
            std::hint::black_box(schema.uint(field, record));
        }
    }
}

/// Flashmon's logs. What a mutation makes another format of is that format's to try.
pub fn flashmon(bytes: &[u8]) {
    if let Ok(trace) = Trace::from_bytes(Path::new("fuzz"), bytes.into())
        && trace.kind() == TraceKind::FlashmonLog
    {
        drain(&trace, bytes.len());
        std::hint::black_box(trace.comm(TaskId(1), TimeNs(0)));
    }
    let _ = flashscope_trace::flashmon::parse_spatial_view(Path::new("fuzz"), bytes);
}

/// blktrace's records: one stream, or the files of up to four CPUs, cut where a record begins.
pub fn blktrace(bytes: &[u8]) {
    let Some((&last, bytes)) = bytes.split_last() else { return };
    let cpus = usize::from(last & 3) + 1;
    if cpus == 1 {
        if let Ok(trace) = Trace::from_bytes(Path::new("fuzz"), bytes.into())
            && trace.kind() == TraceKind::Blktrace
        {
            drain(&trace, bytes.len());
        }
        return;
    }
    let mut parts: Vec<Arc<[u8]>> = vec![];
    let mut begin = 0;
    for part in 1..=cpus {
        let least = (bytes.len() * part / cpus).max(begin);
        let magic = |b: &[u8]| matches!(b, [7 | 8, b't', b'a', b'e'] | [b'e', b'a', b't', 7 | 8]);
        let end = bytes[least..].windows(4).position(magic).map_or(bytes.len(), |n| least + n);
        parts.push(bytes[begin..end].into());
        begin = end;
    }
    if let Ok(trace) = Trace::from_blktrace_parts(Path::new("fuzz"), &parts) {
        drain(&trace, bytes.len());
    }
}

/// Text that blkparse, perf script and systrace print, and what is refused for what it is.
pub fn text(bytes: &[u8]) {
    match Trace::from_bytes(Path::new("fuzz"), bytes.into()) {
        Ok(trace)
            if matches!(trace.kind(), TraceKind::BlkparseText | TraceKind::PerfScript | TraceKind::FtraceText) =>
        {
            drain(&trace, bytes.len());
        }
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// Perfetto's protobuf.
pub fn perfetto(bytes: &[u8]) {
    if let Ok(trace) = Trace::from_bytes(Path::new("fuzz"), bytes.into())
        && trace.kind() == TraceKind::Perfetto
    {
        drain(&trace, bytes.len());
    }
}

/// gzip, xz and zstd around a text.
pub fn packed(bytes: &[u8]) {
    // What unpacks far is a trace of as many lines as it has.
    if let Ok(trace) = Trace::from_bytes(Path::new("fuzz"), bytes.into()) {
        drain(&trace, (bytes.len() + 1) << 15);
    }
}

/// Text that ftrace prints.
pub fn ftrace(bytes: &[u8]) {
    if let Ok(trace) = Trace::from_bytes(Path::new("fuzz"), bytes.into())
        && trace.kind() == TraceKind::FtraceText
    {
        drain(&trace, bytes.len());
    }
}
