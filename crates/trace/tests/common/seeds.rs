//! The inputs that fuzzing starts from: the checked-in goldens, and small files of the same kinds made from them. With small inputs a
//! fuzzer tries more inputs in the same time, and changes the important bytes more often.

use super::dat::{Packing, Parts, v6, v7};
use super::{PROGRAM, READ, Stream, data, example, format, nand_facts};
use flashscope_trace::{Encoder, Endian, Layout, Trace};

/// Names of the formats that have a seed corpus and a body in `fuzz/targets.rs`.
pub const FORMATS: [&str; 9] =
    ["stream", "trace_dat", "format", "flashmon", "blktrace", "ftrace", "text", "perfetto", "packed"];

/// The seeds of a format: name and bytes.
pub fn seeds(of: &str) -> Vec<(String, Vec<u8>)> {
    match of {
        "stream" => streams(),
        "trace_dat" => trace_dats(),
        "format" => formats(),
        "flashmon" => files("flashmon", "log"),
        "blktrace" => blktraces(),
        "ftrace" => texts(),
        "text" => files("text", "txt"),
        "perfetto" => files("perfetto", "pftrace"),
        "packed" => packed(),
        _ => panic!("no seeds of {of}"),
    }
}

/// Goldens with a file name extension.
pub fn files(directory: &str, ending: &str) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(data(directory))
        .unwrap()
        .map(|f| f.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == ending))
        .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&p).unwrap()))
        .collect();
    all.sort();
    assert!(!all.is_empty(), "no golden *.{ending} in {directory}");
    all
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn streams() -> Vec<(String, Vec<u8>)> {
    let mut out = files("stream", "port");
    // The first frames of each kind, with long ones cut: all kinds of frames in two kilobytes.
    for (name, bytes) in out.clone() {
        let (mut at, mut small, mut kinds) = (0, vec![], std::collections::HashMap::new());
        while at + 20 <= bytes.len() && &bytes[at..at + 4] == b"FSC1" {
            let (kind, length) = (u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]), u32_at(&bytes, at + 12));
            let source = u16::from_le_bytes([bytes[at + 6], bytes[at + 7]]);
            let seen: &mut u32 = kinds.entry(kind).or_default();
            *seen += 1;
            if *seen <= if kind == 6 { 3 } else { 2 } {
                let payload = &bytes[at + 20..at + 20 + length.min(if kind == 5 { 1200 } else { 300 })];
                small.extend(flashscope_trace::encode_frame(kind, source, *seen - 1, payload));
            }
            at += 20 + length;
        }
        out.push((format!("small-{name}"), small));
    }
    for (endian, long) in [(Endian::Little, 4), (Endian::Big, 8)] {
        let mut s = Stream::new(endian, long, 256);
        s.begin(0, 2, &nand_facts());
        s.tasks(0, &[(7, "sh")]);
        s.phase(0, 5, 0, "p");
        s.records(0, 0, 0, &[(6, s.nand(READ, 7, 1)), (9, s.nand(PROGRAM, 7, 2))]);
        s.records(0, 1, 0, &[(7, s.rename(7, "sh", "cat"))]);
        s.output(0, 1, b"out");
        s.file(0, "/f", 0, b"x");
        s.exit(0, 1, 2, 0);
        s.phase(0, 9, 1, "p");
        s.end(0, 0);
        out.push((format!("tiny-{endian:?}-{long}"), s.bytes));
    }
    out.push(("example".into(), example(Endian::Little, 4, 1024).bytes));
    out
}

/// Formats of a few events and some sub-buffers of them, for either byte order.
pub fn parts(endian: Endian, long: u8, subbuf: u32) -> Parts {
    let layout = Layout::of(endian, long, subbuf);
    let words = "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:char comm[8];\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] cmd;\toffset:32;\tsize:4;\tsigned:0;\n\
        \tfield:u16 args[2];\toffset:36;\tsize:4;\tsigned:0;\n";
    let formats = vec![("block".to_string(), format("block_rq_issue", 11, words, "\"%d\", REC->dev"))];
    let u32b = |v: u32| if endian == Endian::Big { v.to_be_bytes() } else { v.to_le_bytes() };
    let u16b = |v: u16| if endian == Endian::Big { v.to_be_bytes() } else { v.to_le_bytes() };
    let record = |id: u16, sector: u32| {
        let mut r = u16b(id).to_vec();
        r.extend([0, 0]);
        r.extend(u32b(20));
        r.extend(u32b(8 << 20));
        r.extend([0; 4]);
        r.extend(u32b(sector));
        r.extend([0; 4]);
        r.extend(b"cat\0\0\0\0\0");
        r.extend(u32b(4 << 16 | 40));
        r.extend([1, 2, 3, 4]);
        r.extend(b"abc\0");
        r
    };
    let cpus = (0..2)
        .map(|cpu| {
            let mut e = Encoder::new(layout);
            let mut pages = vec![];
            for i in 0..6u32 {
                let time = u64::from(1000 * i + cpu) << if i > 3 { 20 } else { 0 };
                pages.extend(e.record(time, &record(if i == 2 { 99 } else { 11 }, i)).unwrap());
            }
            pages.extend(e.finish());
            pages
        })
        .collect();
    Parts { layout, formats, cmdlines: "20 cat\n1 init\n".into(), cpus }
}

fn trace_dats() -> Vec<(String, Vec<u8>)> {
    let mut out = files("trace_dat", "dat");
    for (endian, long) in [(Endian::Little, 8), (Endian::Big, 4)] {
        let parts = parts(endian, long, 256);
        out.push((format!("tiny-v6-{endian:?}"), v6(&parts)));
        for packing in [Packing::None, Packing::Zlib, Packing::Zstd] {
            out.push((format!("tiny-v7-{endian:?}-{packing:?}"), v7(&parts, packing, 2)));
        }
    }
    out
}

/// Byte order, size of long, a format's text, a NUL, and a record: the input of `format` in `fuzz/targets.rs`.
fn formats() -> Vec<(String, Vec<u8>)> {
    let mut out = vec![];
    let mut add = |trace: &Trace| {
        for schema in trace.schemas() {
            let mut bytes = vec![u8::from(schema.endian == Endian::Big)];
            bytes.extend(schema.text.as_bytes());
            bytes.push(0);
            bytes.extend((0..schema.min_size.min(128)).map(|i| i as u8));
            out.push((format!("{}-{}", schema.system, schema.name), bytes));
        }
    };
    for (name, bytes) in files("trace_dat", "dat") {
        add(&Trace::from_bytes(name.as_ref(), bytes.into()).unwrap());
    }
    add(&Trace::from_bytes("big".as_ref(), v6(&parts(Endian::Big, 4, 256)).into()).unwrap());
    out.sort();
    out.dedup_by(|a, b| a.0 == b.0);
    for (size, long) in [(4096, 8), (256, 4)] {
        let page = super::dat::header_page(&Layout::of(Endian::Little, long, size));
        out.push((format!("header_page-{long}"), [b"\0", page.as_bytes(), b"\0"].concat()));
    }
    out
}

/// Records of the CPUs of one recording, one CPU after the other. The last byte is the number of CPUs for `blktrace` in `fuzz/targets.rs`.
fn blktraces() -> Vec<(String, Vec<u8>)> {
    let mut out = vec![];
    for (directory, name) in [
        ("armv7-5.10", "main"),
        ("armv7-6.1", "cgroup"),
        ("armv7-6.1", "dm-0"),
        ("armv7-newest", "main"),
        ("armv7-newest", "v8"),
        ("x86_64-6.1", "main"),
    ] {
        let cpus = ["0", "1"].map(|n| {
            let path = data("blktrace").join(directory).join(format!("{name}.blktrace.{n}"));
            block_records(&std::fs::read(path).unwrap())
        });
        let mut add = |kind: &str, records: &[&[Vec<u8>]]| {
            for (mode, last) in [("stream", 0), ("cpus", 1)] {
                let mut bytes: Vec<u8> = records.iter().flat_map(|r| r.concat()).collect();
                bytes.push(last);
                out.push((format!("{kind}-{directory}-{name}-{mode}"), bytes));
            }
        };
        add("whole", &[&cpus[0], &cpus[1]]);
        // Notes come first, requests later.
        for (kind, from) in [("first", 0), ("later", 40)] {
            let small = cpus.each_ref().map(|r| &r[from.min(r.len() - 1)..(from + 12).min(r.len())]);
            add(kind, &small);
            let big = small.map(|records| records.iter().map(|r| big_endian(r)).collect::<Vec<_>>());
            add(&format!("{kind}-big"), &[&big[0], &big[1]]);
        }
    }
    out
}

/// The separate records of a little-endian blktrace file.
fn block_records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut out = vec![];
    while !bytes.is_empty() {
        let (size, length) = if bytes[0] == 7 { (48, 46) } else { (64, 50) };
        let size = size + usize::from(u16::from_le_bytes([bytes[length], bytes[length + 1]]));
        out.push(bytes[..size].to_vec());
        bytes = &bytes[size..];
    }
    out
}

/// A record's fixed part in big-endian order (`struct blk_io_trace`, `struct blk_io_trace2`).
fn big_endian(record: &[u8]) -> Vec<u8> {
    let sizes: &[usize] =
        if record[0] == 7 { &[4, 4, 8, 8, 4, 4, 4, 4, 4, 2, 2] } else { &[4, 4, 8, 8, 4, 4, 8, 4, 4, 2, 2] };
    let mut out = record.to_vec();
    let mut at = 0;
    for size in sizes {
        out[at..at + size].reverse();
        at += size;
    }
    out
}

/// ftrace's and trace-cmd's texts, and a few lines of each.
/// A few lines, packed in each way.
fn packed() -> Vec<(String, Vec<u8>)> {
    let plain: Vec<_> = files("text", "txt");
    let mut out = files("text", "gz");
    out.extend(files("text", "xz"));
    out.extend(files("text", "zst"));
    out.extend(plain.into_iter().map(|(name, bytes)| {
        let packed = ruzstd::encoding::compress_to_vec(&bytes[..], ruzstd::encoding::CompressionLevel::Fastest);
        (format!("{name}.zst"), packed)
    }));
    out
}

fn texts() -> Vec<(String, Vec<u8>)> {
    let mut out = files("ftrace", "txt");
    out.extend(files("trace_dat", "txt"));
    for (name, bytes) in out.clone() {
        let lines: Vec<&[u8]> = bytes.split_inclusive(|&b| b == b'\n').collect();
        for (i, piece) in lines.chunks(12).step_by(lines.len().div_ceil(12 * 4).max(1)).enumerate() {
            out.push((format!("lines-{i}-{name}"), piece.concat()));
        }
    }
    out
}
