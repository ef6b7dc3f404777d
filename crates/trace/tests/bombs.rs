//! Small files that say they are large: packed well beyond what a recording packs to, or one part of a file used many times.
//! Each ends at once, with one message.

use crate::common::dat::{Out, Packing, v6, v7};
use crate::common::seeds::parts;
use flashscope_trace::{Endian, Trace};
use std::io::Write as _;

/// The message that these bytes end with.
fn refused(what: &str, bytes: Vec<u8>) -> String {
    assert!(bytes.len() < 1 << 20, "{what}: {} bytes", bytes.len());
    let Err(error) = Trace::from_bytes("given".as_ref(), bytes.into()) else { panic!("{what} opens") };
    error.to_string()
}

/// One member of a gzip file.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// Lines of every text format that is read: gigabytes of them, packed.
#[test]
fn text_that_unpacks_to_gigabytes() {
    let lines: [(&str, &str, &str); 5] = [
        (
            "ftrace",
            "# tracer: nop\n#\n",
            " app-31 [001] .... 100.000000: block_rq_issue: 179,0 R 4096 () 5000 + 8 [app]\n",
        ),
        (
            "the blk tracer",
            "# tracer: blk\n#\n",
            "     dd-716 [000] d..1.  1229.632769:   7,4    Q  RM 15942 + 2 [dd]\n",
        ),
        ("blkparse", "", "  8,16   1        1     0.000000000  5529  Q   R 274432 + 8 [fio]\n"),
        ("perf script", "", "   dmc  4711 [004] 5120.859875:      block:block_bio_queue: 8,32 R 8208 + 4 [dmc]\n"),
        (
            "systrace",
            "<!DOCTYPE html>\n<html>\n<body>\n  <script class=\"trace-data\" type=\"application/text\">\n# tracer: nop\n#\n",
            " app-31  ( 3001) [001] .... 100.010000: block_rq_issue: 179,0 R 4096 () 5000 + 8 [app]\n",
        ),
    ];
    for (what, head, line) in lines {
        // A member of 4 MiB takes some kilobytes: 64 of them would be 256 MiB.
        let begin = format!("{head}{}", line.repeat(1000));
        assert!(Trace::from_bytes("given".as_ref(), gzip(begin.as_bytes()).into()).is_ok(), "{what} is read");
        let member = line.repeat((4 << 20) / line.len());
        let packs: [fn(&str) -> Vec<u8>; 2] =
            [|text| gzip(text.as_bytes()), |text| Packing::Zstd.pack(text.as_bytes())];
        for pack in packs.into_iter().take(if what == "ftrace" { 2 } else { 1 }) {
            let bomb = [pack(&begin), pack(&member).repeat(32)].concat();
            let said = refused(what, bomb);
            assert!(said.contains("unpacks to more than 64 MiB"), "{what}: {said}");
            assert!(said.contains("-dc FILE >TRACE) and give what comes out"), "{what}: {said}");
        }
    }
}

/// The data of two thousand CPUs is the same 256 KiB.
#[test]
fn cpus_that_share_their_data() {
    let mut p = parts(Endian::Little, 8, 4096);
    let page = p.cpus[0][0].clone();
    p.cpus = vec![vec![]; 2000];
    p.cpus[0] = vec![page; 64];
    let mut bytes = v6(&p);
    let table = bytes.windows(10).rposition(|w| w == b"flyrecord\0").unwrap() + 10;
    let first = bytes[table..table + 16].to_vec();
    // Some may: a buffer of another name has the same events.
    bytes.splice(table + 16..table + 32, first.iter().copied());
    assert!(Trace::from_bytes("given".as_ref(), bytes.clone().into()).is_ok());
    for cpu in 0..2000 {
        bytes[table + 16 * cpu..table + 16 * cpu + 16].copy_from_slice(&first);
    }
    let said = refused("shared data", bytes);
    assert!(said.contains("has CPUs whose data is the same part of the file"), "{said}");
}

#[test]
fn chunks_of_a_trace_dat_that_unpack_to_too_much() {
    for packing in [Packing::Zlib, Packing::Zstd] {
        let mut p = parts(Endian::Little, 8, 4096);
        let page = vec![0; 4096];
        p.cpus = vec![vec![page.clone(); 40]];
        let mut bytes = v7(&p, packing, 1);
        assert!(Trace::from_bytes("given".as_ref(), bytes.clone().into()).is_ok());
        let chunk = packing.pack(&page);
        let at: Vec<usize> = (0..bytes.len() - chunk.len()).filter(|&at| bytes[at..].starts_with(&chunk)).collect();
        assert_eq!(at.len(), 40);
        // Each says that it is 4 MiB.
        for at in at {
            bytes[at - 4..at].copy_from_slice(&(4_u32 << 20).to_le_bytes());
        }
        let said = refused("chunks", bytes);
        assert!(said.contains("unpacks to more than"), "{said}");
    }
}

/// A section of options of 16 MiB, which says that it comes next: a thousand times.
#[test]
fn sections_of_a_trace_dat_that_unpack_to_too_much() {
    let mut head = b"\x17\x08\x44tracing7\0\0\x08".to_vec();
    head.extend(4096_u32.to_le_bytes());
    head.extend(b"zlib\x001\0");
    let here = head.len() as u64 + 8;
    head.extend(here.to_le_bytes());
    let mut options = Out::new(Endian::Little);
    options.u16(0);
    options.u32(8);
    options.u64(here);
    options.bytes.resize(16 << 20, 0);
    let packed = Packing::Zlib.pack(&options.bytes);
    let mut section = Out::new(Endian::Little);
    section.u16(0);
    section.u16(1);
    section.u32(0);
    section.u64(packed.len() as u64 + 8);
    section.u32(packed.len() as u32);
    section.u32(16 << 20);
    let said = refused("sections", [head, section.bytes, packed].concat());
    assert!(said.contains("sections that unpack to at most 67108864 bytes"), "{said}");
}

/// Perfetto packs packets itself; what a packed file unpacks to is measured by the file that was given.
#[test]
fn packets_of_perfetto_that_unpack_to_too_much() {
    let varint = |mut n: usize| {
        let mut out = Vec::new();
        while n >= 0x80 {
            out.push(n as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
        out
    };
    let packet = |field: &[u8], inner: &[u8]| {
        let body = [field, &varint(inner.len()), inner].concat();
        [&[0x0a][..], &varint(body.len()), &body].concat()
    };
    // Empty packets.
    let zlib = miniz_oxide::deflate::compress_to_vec_zlib(&[0x0a, 0].repeat(4 << 20), 6);
    // Field 50: compressed_packets.
    let one = packet(&[0x92, 0x03], &zlib);
    let said = refused("packets", one.repeat(12));
    assert!(said.contains("unpacks to more than"), "{said}");
    // Packed once more: the bytes that were given count.
    let packed = gzip(&one.repeat(200));
    let said = refused("packets in gzip", packed);
    assert!(said.contains("unpacks to more than 64 MiB"), "{said}");
}
