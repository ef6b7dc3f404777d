//! Builds small trace.dat files in memory, byte by byte: valid ones, and ones that trace-cmd would never write.

use flashscope_trace::{Endian, Layout};

/// How parts of a version 7 file are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    None,
    Zlib,
    Zstd,
}

impl Packing {
    fn name(self) -> &'static [u8] {
        match self {
            Packing::None => b"none",
            Packing::Zlib => b"zlib",
            Packing::Zstd => b"zstd",
        }
    }

    pub fn pack(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Packing::None => bytes.to_vec(),
            Packing::Zlib => miniz_oxide::deflate::compress_to_vec_zlib(bytes, 6),
            Packing::Zstd => ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest),
        }
    }
}

/// The contents of a file.
pub struct Parts {
    pub layout: Layout,
    /// System and format text.
    pub formats: Vec<(String, String)>,
    pub cmdlines: String,
    /// Sub-buffers by CPU, each padded to its size.
    pub cpus: Vec<Vec<Vec<u8>>>,
}

pub struct Out {
    pub bytes: Vec<u8>,
    endian: Endian,
}

impl Out {
    pub fn new(endian: Endian) -> Out {
        Out { bytes: vec![], endian }
    }

    pub fn u16(&mut self, v: u16) {
        self.bytes.extend(if self.endian == Endian::Big { v.to_be_bytes() } else { v.to_le_bytes() });
    }

    pub fn u32(&mut self, v: u32) {
        self.bytes.extend(if self.endian == Endian::Big { v.to_be_bytes() } else { v.to_le_bytes() });
    }

    pub fn u64(&mut self, v: u64) {
        self.bytes.extend(if self.endian == Endian::Big { v.to_be_bytes() } else { v.to_le_bytes() });
    }

    pub fn text8(&mut self, text: &[u8]) {
        self.u64(text.len() as u64);
        self.bytes.extend(text);
    }

    fn put_u64(&mut self, at: usize, v: u64) {
        let b = if self.endian == Endian::Big { v.to_be_bytes() } else { v.to_le_bytes() };
        self.bytes[at..at + 8].copy_from_slice(&b);
    }
}

pub fn header_page(l: &Layout) -> String {
    format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
         \tfield: local_t commit;\toffset:8;\tsize:{};\tsigned:1;\n\
         \tfield: char data;\toffset:{};\tsize:{};\tsigned:0;\n",
        l.long_size,
        l.data_offset,
        l.subbuf_size - l.data_offset
    )
}

fn begin(parts: &Parts, version: &[u8]) -> Out {
    let l = &parts.layout;
    let mut o = Out::new(l.endian);
    o.bytes.extend(b"\x17\x08\x44tracing");
    o.bytes.extend(version);
    o.bytes.extend([0, u8::from(l.endian == Endian::Big), l.long_size]);
    o.u32(l.subbuf_size);
    o
}

fn header_info(o: &mut Out, l: &Layout) {
    o.bytes.extend(b"header_page\0");
    o.text8(header_page(l).as_bytes());
    o.bytes.extend(b"header_event\0");
    o.text8(b"# compressed entry header\n");
}

fn systems(o: &mut Out, formats: &[(String, String)]) {
    let mut names: Vec<&String> = formats.iter().map(|(s, _)| s).collect();
    names.dedup();
    o.u32(names.len() as u32);
    for name in names {
        o.bytes.extend(name.as_bytes());
        o.bytes.push(0);
        let of: Vec<_> = formats.iter().filter(|(s, _)| s == name).collect();
        o.u32(of.len() as u32);
        for (_, text) in of {
            o.text8(text.as_bytes());
        }
    }
}

pub fn v6(parts: &Parts) -> Vec<u8> {
    let l = &parts.layout;
    let mut o = begin(parts, b"6");
    header_info(&mut o, l);
    o.u32(0);
    systems(&mut o, &parts.formats);
    o.u32(0);
    o.u32(0);
    o.text8(parts.cmdlines.as_bytes());
    o.u32(parts.cpus.len() as u32);
    o.bytes.extend(b"options  \0");
    o.u16(4);
    o.u32(0);
    o.u16(0);
    o.bytes.extend(b"flyrecord\0");
    let table = o.bytes.len();
    o.bytes.resize(table + 16 * parts.cpus.len(), 0);
    o.text8(b"local [mono]\n");
    for (cpu, pages) in parts.cpus.iter().enumerate() {
        let at = o.bytes.len();
        for page in pages {
            let end = o.bytes.len() + l.subbuf_size as usize;
            o.bytes.extend(page);
            o.bytes.resize(end, 0);
        }
        let size = o.bytes.len() - at;
        o.put_u64(table + 16 * cpu, at as u64);
        o.put_u64(table + 16 * cpu + 8, size as u64);
    }
    o.bytes
}

/// Writes a section of version 7; returns its offset.
fn section(o: &mut Out, id: u16, packing: Packing, body: &[u8]) -> u64 {
    let at = o.bytes.len() as u64;
    o.u16(id);
    o.u16(u16::from(packing != Packing::None));
    o.u32(0);
    if packing == Packing::None {
        o.text8(body);
    } else {
        let packed = packing.pack(body);
        o.u64(packed.len() as u64 + 8);
        o.u32(packed.len() as u32);
        o.u32(body.len() as u32);
        o.bytes.extend(packed);
    }
    at
}

/// `chunk`: sub-buffers per packed chunk of CPU data.
pub fn v7(parts: &Parts, packing: Packing, chunk: usize) -> Vec<u8> {
    v7_of_buffers(parts, packing, chunk, &[""])
}

/// The same with several named buffers, which all have the same events.
pub fn v7_of_buffers(parts: &Parts, packing: Packing, chunk: usize, buffers: &[&str]) -> Vec<u8> {
    let l = &parts.layout;
    let mut o = begin(parts, b"7");
    o.bytes.extend(packing.name());
    o.bytes.extend(b"\x001\0");
    let first = o.bytes.len();
    o.u64(0);
    let part = |fill: &dyn Fn(&mut Out)| {
        let mut body = Out::new(l.endian);
        fill(&mut body);
        body.bytes
    };
    let mut places = vec![];
    for (id, body) in [
        (16, part(&|b| header_info(b, l))),
        (17, part(&|b| b.u32(0))),
        (18, part(&|b| systems(b, &parts.formats))),
        (21, part(&|b| b.text8(parts.cmdlines.as_bytes()))),
    ] {
        places.push((id, section(&mut o, id, packing, &body)));
    }
    let data = o.bytes.len() as u64;
    o.u16(3);
    o.u16(u16::from(packing != Packing::None));
    o.u32(0);
    o.u64(0);
    let mut table = vec![];
    for pages in &parts.cpus {
        let at = o.bytes.len() as u64;
        let whole: Vec<Vec<u8>> = pages
            .iter()
            .map(|p| {
                let mut p = p.clone();
                p.resize(l.subbuf_size as usize, 0);
                p
            })
            .collect();
        if packing == Packing::None {
            o.bytes.extend(whole.concat());
            table.push((at, o.bytes.len() as u64 - at));
        } else {
            o.u32(whole.len().div_ceil(chunk) as u32);
            for pages in whole.chunks(chunk) {
                let body = pages.concat();
                let packed = packing.pack(&body);
                o.u32(packed.len() as u32);
                o.u32(body.len() as u32);
                o.bytes.extend(packed);
            }
            // Like trace-cmd 3.1.6: without the four bytes of the count.
            table.push((at, o.bytes.len() as u64 - at - 4));
        }
    }
    let options = part(&|b| {
        for &(id, at) in &places {
            b.u16(id);
            b.u32(8);
            b.u64(at);
        }
        for name in buffers {
            let buffer = part(&|b| {
                b.u64(data);
                b.bytes.extend(name.as_bytes());
                b.bytes.extend(b"\0mono\0");
                b.u32(l.subbuf_size);
                b.u32(table.len() as u32);
                for (cpu, (at, size)) in table.iter().enumerate() {
                    b.u32(cpu as u32);
                    b.u64(*at);
                    b.u64(*size);
                }
            });
            b.u16(3);
            b.u32(buffer.len() as u32);
            b.bytes.extend(buffer);
        }
        b.u16(0);
        b.u32(8);
        b.u64(0);
    });
    let at = section(&mut o, 0, packing, &options);
    o.put_u64(first, at);
    o.bytes
}
