//! Peak memory does not grow with a trace's size, nor with the sizes that a crafted trace states. Each case runs in a process of its own,
//! and uses the kernel's count of its peak.

use crate::common::dat::{Packing, v6, v7, v7_of_buffers};
use crate::common::seeds::parts;
use crate::common::*;
use flashscope_trace::{Encoder, Endian, Layout, Loss, Session, Trace, encode_frame};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// The product's limit for anonymous memory; file pages of the test binary are subtracted.
const MOST: u64 = 64 << 20;

/// Runs `child` for a file in another process. Returns its peak of anonymous memory, and what it counted.
fn peak(file: &Path) -> (u64, u64, u64) {
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::child", "--ignored", "--nocapture"])
        .env("FLASHSCOPE_MEMORY_FILE", file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let numbers = text.lines().find_map(|l| l.split("measured: ").nth(1)).unwrap_or_else(|| panic!("{text}"));
    let n: Vec<u64> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
    (n[0], n[1], n[2])
}

#[test]
#[ignore = "the other process of these tests"]
fn child() {
    let Some(file) = std::env::var_os("FLASHSCOPE_MEMORY_FILE") else { return };
    let (mut records, mut lost) = (0u64, 0);
    let mut all = |trace: Trace| {
        trace.for_each_record(&mut |r| records += u64::from(!r.data.is_empty())).unwrap();
        lost += trace.losses().iter().map(|(_, n)| n).sum::<u64>();
    };
    match Session::open(file.as_ref()) {
        Ok(session) => (0..session.recordings.len().min(3)).for_each(|i| all(session.recording(i).unwrap())),
        Err(_) => {
            if let Ok(trace) = Trace::open(file.as_ref()) {
                all(trace);
            } else if let Ok(view) = flashscope_trace::flashmon::read_spatial(file.as_ref()) {
                records = view.len() as u64;
            }
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = |key: &str| {
        let line = status.lines().find(|l| l.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    // The peak includes pages of files (the binary, libc): the resident ones are subtracted.
    println!("measured: {} {records} {lost}", (kib("VmHWM:") - kib("RssFile:")) << 10);
}

/// A stream of `frames` tiny frames of ring data that alternate between two CPUs, so that each one is a run of its own.
fn tiny_frames(path: &Path, frames: u32) {
    let mut s = Stream::new(Endian::Little, 4, 4096);
    s.begin(0, 2, &nand_facts());
    let first = s.frames.len() as u32;
    let mut out = BufWriter::new(std::fs::File::create(path).unwrap());
    out.write_all(&s.bytes).unwrap();
    // A sub-buffer without events: only its header. CPU 0 has one event in each.
    let mut payloads = [[0u8; 4 + 12 + 24]; 2];
    payloads[1][0] = 1;
    for payload in &mut payloads {
        payload[12] = 24;
        payload[16] = 5;
        payload[20..22].copy_from_slice(&READ.to_le_bytes());
    }
    let mut frame = [encode_frame(6, 0, 0, &payloads[0]), encode_frame(6, 0, 0, &payloads[1])];
    for i in 0..frames {
        let f = &mut frame[i as usize % 2];
        f[8..12].copy_from_slice(&(first + i).to_le_bytes());
        out.write_all(f).unwrap();
    }
    out.flush().unwrap();
}

#[test]
fn an_index_of_tiny_frames_goes_into_a_temporary_file() {
    let dir = TempDir::new("memory-tiny");
    let path = dir.0.join("s");
    // Two bytes of index per frame: more than the 4 MiB that stay in memory.
    let frames = 2_500_000;
    tiny_frames(&path, frames);
    let (bytes, records, _) = peak(&path);
    assert_eq!(records, u64::from(frames), "every event is there, from memory and from the file");
    println!("{frames} frames: peak {} KiB", bytes >> 10);
    assert!(bytes < 12 << 20, "{frames} frames: {bytes} bytes");
}

/// The file may have any size, because the rest is a hole: its sub-buffers are zeros.
#[test]
fn a_trace_dat_of_twenty_gibibytes_takes_what_one_of_two_takes() {
    let dir = TempDir::new("memory-sparse");
    let mut peaks = vec![];
    for gib in [1u64, 10] {
        // Without optimisation zeros take longer: use a tenth.
        let bytes = if cfg!(debug_assertions) { gib << 27 } else { gib << 31 };
        let mut p = parts(Endian::Little, 8, 4096);
        p.cpus.truncate(1);
        let head = v6(&p);
        let path = dir.file("t.dat", &head);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        // The table entry of the only CPU; its size is the second number after "flyrecord".
        let table = head.windows(10).rposition(|w| w == b"flyrecord\0").unwrap() + 10;
        let offset = u64::from_le_bytes(head[table..table + 8].try_into().unwrap());
        file.write_all_at(&bytes.to_le_bytes(), table as u64 + 8).unwrap();
        file.set_len(offset + bytes).unwrap();
        // One more sub-buffer with events at the very end.
        let last = offset + bytes - 4096;
        file.write_all_at(&p.cpus[0][0], last).unwrap();
        let (peak, records, _) = peak(&path);
        assert_eq!(records, 12, "both ends were read");
        assert!(peak < MOST, "{bytes} bytes: {peak}");
        println!("{bytes} bytes: peak {} KiB", peak >> 10);
        peaks.push(peak);
    }
    assert!(peaks[1] < peaks[0] + (2 << 20), "{peaks:?}: it does not grow");
}

/// A sub-buffer full of flash reads, and their number.
fn full(layout: Layout) -> (Vec<u8>, u64) {
    let s = Stream::new(layout.endian, layout.long_size, layout.subbuf_size);
    let mut e = Encoder::new(layout);
    for n in 0.. {
        if let Some(mut page) = e.record(n * 10, &s.nand(READ, 7, n as u32)).unwrap() {
            page.resize(layout.subbuf_size as usize, 0);
            return (page, n);
        }
    }
    unreachable!()
}

/// Events from the first byte to the last: a trace.dat and a stream of 2 GiB, and ten times that.
#[test]
#[ignore = "writes and reads 44 GiB; cargo test --release -p flashscope-trace --test outside -- --ignored --nocapture memory::dense"]
fn dense_traces_of_twenty_gibibytes_take_what_those_of_two_take() {
    let dir = TempDir::new("memory-dense");
    let mut peaks = vec![];
    for gib in [2u64, 20] {
        let pages = (gib << 30) / 4096;
        let mut p = parts(Endian::Little, 8, 4096);
        let (mut page, events) = full(p.layout);
        let fields = "\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n\
            \tfield:u32 page;\toffset:16;\tsize:4;\tsigned:0;\n";
        p.formats = vec![("flashscope".into(), format("nand_read", READ, fields, "\"%u\", REC->page"))];
        p.cpus = vec![vec![page.clone()]];
        let head = v6(&p);
        let path = dir.0.join("t.dat");
        let file = std::fs::File::create(&path).unwrap();
        let mut out = BufWriter::with_capacity(1 << 20, &file);
        out.write_all(&head[..head.len() - 4096]).unwrap();
        for i in 0..pages {
            page[..8].copy_from_slice(&(i * events * 10).to_le_bytes());
            out.write_all(&page).unwrap();
        }
        out.flush().unwrap();
        drop(out);
        let table = head.windows(10).rposition(|w| w == b"flyrecord\0").unwrap() + 10;
        file.write_all_at(&(pages * 4096).to_le_bytes(), table as u64 + 8).unwrap();
        let begin = std::time::Instant::now();
        let (dat, records, lost) = peak(&path);
        println!(
            "trace.dat of {} bytes: {records} events in {:.1} s, peak {} KiB",
            file.metadata().unwrap().len(),
            begin.elapsed().as_secs_f64(),
            dat >> 10
        );
        // The file has no kernel counts of lost events.
        assert_eq!((records, lost), (pages * events, 1));
        std::fs::remove_file(&path).unwrap();

        let mut s = Stream::new(Endian::Little, 8, 4096);
        s.begin(0, 1, &nand_facts());
        let path = dir.0.join("s");
        let file = std::fs::File::create(&path).unwrap();
        let mut out = BufWriter::with_capacity(1 << 20, &file);
        out.write_all(&s.bytes).unwrap();
        let first = s.frames.len() as u32;
        for i in 0..pages {
            page[..8].copy_from_slice(&(i * events * 10).to_le_bytes());
            let payload = [&[0; 4][..], &page].concat();
            out.write_all(&encode_frame(6, 0, first + i as u32, &payload)).unwrap();
        }
        out.flush().unwrap();
        drop(out);
        let begin = std::time::Instant::now();
        let (stream, records, _) = peak(&path);
        println!(
            "stream of {} bytes: {records} events in {:.1} s, peak {} KiB",
            file.metadata().unwrap().len(),
            begin.elapsed().as_secs_f64(),
            stream >> 10
        );
        assert_eq!(records, pages * events);
        std::fs::remove_file(&path).unwrap();
        assert!(dat < MOST && stream < MOST, "{dat} {stream}");
        peaks.push((dat, stream));
    }
    assert!(peaks[1].0 < peaks[0].0 + (2 << 20) && peaks[1].1 < peaks[0].1 + (2 << 20), "{peaks:?}: it does not grow");
}

/// Packed data that unpacks to far more than its size: sections and chunks state the size, and no more is unpacked.
#[test]
fn bombs_do_not_go_off() {
    let dir = TempDir::new("memory-bomb");
    for packing in [Packing::Zlib, Packing::Zstd] {
        let p = parts(Endian::Little, 8, 256);
        let whole = v7(&p, packing, 2);
        let bomb = packing.pack(&vec![0; 80 << 20]);
        // The bomb is put after every packed size in the file, one at a time: sections and chunks of CPU data.
        let mut places = 0;
        for at in 60..whole.len() - 12 {
            let packed = u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
            let unpacked = u32::from_le_bytes(whole[at + 4..at + 8].try_into().unwrap());
            let magic = if packing == Packing::Zlib {
                &whole[at + 8..at + 9] == b"\x78"
            } else {
                &whole[at + 8..at + 12] == b"\x28\xb5\x2f\xfd"
            };
            if !magic || packed == 0 || at + 8 + packed > whole.len() || unpacked > 1 << 16 {
                continue;
            }
            places += 1;
            for says in [unpacked, 80 << 20, u32::MAX] {
                let mut b = whole.clone();
                b[at..at + 4].copy_from_slice(&(bomb.len() as u32).to_le_bytes());
                b[at + 4..at + 8].copy_from_slice(&says.to_le_bytes());
                b.splice(at + 8..at + 8 + packed, bomb.iter().copied());
                let (peak, ..) = peak(&dir.file("b.dat", &b));
                assert!(peak < MOST, "{packing:?}, place {at}, says {says}: {peak} bytes");
            }
        }
        assert!(places >= 4, "{packing:?}: {places}");
    }
}

/// The memory for a stream's descriptions is a bounded multiple of their size: JSON of empty values, formats, tasks, producers, CPUs.
#[test]
fn what_a_stream_says_of_itself_is_bounded() {
    let dir = TempDir::new("memory-says");
    let begin = || {
        let mut s = Stream::new(Endian::Little, 4, 4096);
        s.begin(0, 1, &nand_facts());
        s
    };
    let mut cases: Vec<(&str, Vec<u8>, Loss)> = vec![];

    let mut s = begin();
    for _ in 0..20 {
        s.frame(2, 0, format!("[{}0]", "0,".repeat(500_000)).as_bytes());
    }
    cases.push(("facts of many values", s.bytes, Loss::FramesMalformed));

    let mut s = begin();
    for i in 0..60u32 {
        let task = [&i.to_le_bytes()[..], &[b'x'; 20]].concat();
        s.frame(7, 0, &task.repeat(40_000));
    }
    cases.push(("tasks", s.bytes, Loss::NamesDropped));

    let mut s = begin();
    for cpu in 0..8192u16 {
        for instance in 0..2u16 {
            s.page(0, instance, cpu, &[0; 20]);
        }
    }
    cases.push(("CPUs", s.bytes, Loss::FramesMalformed));

    let mut s = begin();
    for source in 1..=u16::MAX {
        s.frame(14, source, b"step");
    }
    cases.push(("producers", s.bytes, Loss::FramesMalformed));

    for (name, bytes, loss) in cases {
        let path = dir.file("s", &bytes);
        let session = Session::open(&path).unwrap();
        assert!(session.losses.get(loss) > 0, "{name}: what is beyond is counted as {}", loss.name());
        drop(session);
        let (peak, ..) = peak(&path);
        println!("{name}: {} bytes, peak {} MiB", bytes.len(), peak >> 20);
        assert!(peak < MOST, "{name}: {peak} bytes");
    }
}

/// A format with a short text for its number of fields: names of one letter.
fn of_many_fields(id: u32, fields: usize) -> String {
    let field = "field:u8 a;offset:0;size:1;\n";
    format!("name: e{id}\nID: {id}\nformat:\n{}\nprint fmt: \"\"\n", field.repeat(fields))
}

/// Formats with more fields than a kernel has, in each kind of file that contains or implies formats.
#[test]
fn what_formats_say_is_bounded() {
    let dir = TempDir::new("memory-formats");
    // The largest number of fields in one text, and many smaller texts: 14 MiB of either.
    for (formats, fields) in [(125, 4096), (16_000, 30)] {
        let texts: Vec<String> = (0..formats).map(|id| of_many_fields(id, fields)).collect();
        let mut p = parts(Endian::Little, 8, 256);
        p.cmdlines = (0..200_000).map(|tid| format!("{tid} t{tid}\n")).collect();
        p.formats.extend(texts.iter().map(|t| ("lie".to_string(), t.clone())));
        let mut cases = vec![("v6", v6(&p)), ("v7", v7(&p, Packing::Zstd, 2))];
        let mut s = Stream::new(Endian::Little, 8, 4096);
        s.begin(0, 1, &nand_facts());
        s.begin(1, 1, &nand_facts());
        for (i, text) in texts.iter().enumerate() {
            s.frame(5, i as u16 % 2, format!("lie\0e\0{text}").as_bytes());
        }
        cases.push(("stream", s.bytes));
        for (name, bytes) in cases {
            let path = dir.file("f", &bytes);
            let losses = match Session::open(&path) {
                Ok(session) => session.recording(1).unwrap().losses(),
                Err(_) => Trace::open(&path).unwrap().losses(),
            };
            let (peak, ..) = peak(&path);
            let dropped = losses.get(Loss::FormatsDropped);
            println!("{formats} formats of {fields} fields, {name}: peak {} MiB, {dropped} left out", peak >> 20);
            assert!(dropped > 0, "{name}: what is beyond is counted");
            assert!(peak < MOST, "{name}: {peak} bytes");
        }
    }
}

/// A text whose lines are all of different kinds, with the largest number of fields.
#[test]
fn what_lines_of_text_suggest_is_bounded() {
    let dir = TempDir::new("memory-lines");
    let mut text = String::from("# tracer: nop\n");
    for line in 0..5000 {
        text += &format!("         task-1       [000] .....     {line}.000000: e{line}: ");
        for field in 0..48 {
            text += &format!("{}{line}_{field}=1 ", "k".repeat(50));
        }
        text.push('\n');
    }
    let path = dir.file("t", text.as_bytes());
    let (peak, records, _) = peak(&path);
    let losses = Trace::open(&path).unwrap().losses();
    println!("5000 kinds of lines: peak {} MiB, {} without fields", peak >> 20, losses.get(Loss::FieldsNotRead));
    assert!(peak < MOST, "{peak} bytes");
    assert_eq!(records, 5000, "none is left out");
    assert!(losses.get(Loss::FieldsNotRead) > 1000);
}

/// Counts of as many CPUs as there may be options.
#[test]
fn counts_of_cpus_that_nobody_has_are_bounded() {
    let dir = TempDir::new("memory-cpustat");
    let bytes = v6(&parts(Endian::Little, 8, 256));
    let at = bytes.windows(10).position(|w| w == b"options  \0").unwrap() + 10;
    let text = b"CPU:1\noverrun:1\ncommit overrun:1\ndropped events:1\n\0";
    let one = [&2u16.to_le_bytes()[..], &(text.len() as u32).to_le_bytes(), text].concat();
    let cut = [&bytes[..at], &one.repeat(130_000), &bytes[at..]].concat();
    let path = dir.file("c.dat", &cut);
    let losses = Trace::open(&path).unwrap().losses();
    let (peak, ..) = peak(&path);
    println!("130000 CPUs' counts: peak {} MiB, {} left out", peak >> 20, losses.get(Loss::StatisticsMissing));
    assert!(losses.get(Loss::StatisticsMissing) > 100_000);
    assert!(losses.get(Loss::EventsOverwritten) > 1000);
    assert!(peak < MOST, "{peak} bytes");
}

/// The number of blocks of a chip is bounded: one more line is an error.
#[test]
fn a_spatial_view_is_bounded() {
    let dir = TempDir::new("memory-spatial");
    let most = 1 << 20;
    let line = b"18446744073709551615 0 3\n";
    let path = dir.file("v", &line.repeat(most));
    let (bytes, blocks, _) = peak(&path);
    println!("{most} blocks: peak {} MiB", bytes >> 20);
    assert_eq!(blocks, most as u64);
    assert!(bytes < MOST, "{bytes} bytes");
    let path = dir.file("v", &line.repeat(4 * most));
    let error = flashscope_trace::flashmon::read_spatial(&path).unwrap_err().to_string();
    assert!(error.contains("expected at most 1048576 blocks, found more"), "{error}");
    let (bytes, blocks, _) = peak(&path);
    println!("{} blocks: peak {} MiB", 4 * most, bytes >> 20);
    assert_eq!(blocks, 0);
    assert!(bytes < MOST, "{bytes} bytes");
}

/// Counts and lengths of 4 GiB and more, everywhere in a header. They give an error or less data; an allocation of that size would abort
/// the test.
#[test]
fn lying_lengths_allocate_nothing() {
    let files = [v6(&parts(Endian::Little, 8, 256)), v7(&parts(Endian::Big, 4, 256), Packing::None, 2)];
    for bytes in files {
        for at in 12..bytes.len() - 8 {
            for lie in
                [&u32::MAX.to_le_bytes()[..], &u64::MAX.to_le_bytes(), &(1u64 << 32).to_le_bytes(), &[0, 0, 0, 1]]
            {
                let mut b = bytes.clone();
                b[at..at + lie.len()].copy_from_slice(lie);
                if let Ok(trace) = Trace::from_bytes("lie".as_ref(), b.clone().into()) {
                    let mut n = 0;
                    trace.for_each_record(&mut |_| n += 1).unwrap();
                    assert!(n <= b.len());
                }
            }
        }
    }
}

#[test]
fn what_several_buffers_have_is_one_event() {
    let p = parts(Endian::Little, 8, 4096);
    let read = |buffers: &[&str]| {
        let bytes = v7_of_buffers(&p, Packing::None, 2, buffers);
        let trace = Trace::from_bytes(Path::new("several.dat"), bytes.into()).expect("a trace.dat");
        let mut records = Vec::new();
        trace.for_each_record(&mut |r| records.push((r.time.0, r.cpu, r.data.to_vec()))).expect("read");
        trace.for_each(&mut |_| {}).expect("read");
        (records, trace.losses().get(Loss::EventsRepeated))
    };
    let (one, none) = read(&[""]);
    let (several, copies) = read(&["", "a", "b"]);
    assert_eq!((one.len(), none), (12, 0));
    assert_eq!((several, copies), (one, 24));
}
