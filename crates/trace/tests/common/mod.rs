//! Streams as an agent would write them, built in memory.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod dat;
pub mod report;
pub mod seeds;

use flashscope_trace::{Encoder, Endian, Event, EventKind, Layout, Missed, Trace, encode_frame};
use std::path::{Path, PathBuf};

/// Small deterministic generator (xorshift64*, Vigna 2016).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// A directory that is removed with its contents.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("flashscope-trace-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

pub fn format(name: &str, id: u16, fields: &str, print: &str) -> String {
    format!("name: {name}\nID: {id}\nformat:\n{COMMON}{fields}\nprint fmt: {print}\n")
}

pub const READ: u16 = 1401;
pub const PROGRAM: u16 = 1402;
pub const ERASE: u16 = 1403;
pub const READ_DONE: u16 = 1404;
pub const MTD_WRITE: u16 = 1405;
pub const MTD_ERASE: u16 = 1406;
pub const RENAME: u16 = 204;
pub const NEWTASK: u16 = 205;

/// Writes one stream.
pub struct Stream {
    pub endian: Endian,
    pub long: u8,
    pub layout: Layout,
    pub bytes: Vec<u8>,
    seq: std::collections::HashMap<u16, u32>,
    pub frames: Vec<usize>,
}

impl Stream {
    pub fn new(endian: Endian, long: u8, subbuf: u32) -> Stream {
        Stream {
            endian,
            long,
            layout: Layout::of(endian, long, subbuf),
            bytes: vec![],
            seq: Default::default(),
            frames: vec![],
        }
    }

    pub fn frame(&mut self, kind: u16, source: u16, payload: &[u8]) {
        let seq = self.seq.entry(source).or_default();
        self.frames.push(self.bytes.len());
        self.bytes.extend(encode_frame(kind, source, *seq, payload));
        *seq += 1;
    }

    /// FS_HELLO, facts, header_page and all formats of a recorder.
    pub fn begin(&mut self, source: u16, cpus: u32, facts: &serde_json::Value) {
        let mut hello = vec![1, 0, u8::from(self.endian == Endian::Big), self.long];
        for v in [4096, self.layout.subbuf_size, cpus] {
            hello.extend(u32::to_le_bytes(v));
        }
        hello.extend(b"0.1.0");
        self.frame(1, source, &hello);
        self.frame(2, source, facts.to_string().as_bytes());
        let l = self.layout;
        let page = format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
             \tfield: local_t commit;\toffset:8;\tsize:{};\tsigned:1;\n\
             \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
             \tfield: char data;\toffset:{};\tsize:{};\tsigned:0;\n",
            self.long,
            l.data_offset,
            l.subbuf_size - l.data_offset
        );
        self.frame(3, source, page.as_bytes());
        let ip = format!("\tfield:unsigned long __probe_ip;\toffset:8;\tsize:{};\tsigned:0;\n", self.long);
        let after = 8 + u32::from(self.long);
        let ret = format!(
            "\tfield:unsigned long __probe_func;\toffset:8;\tsize:{0};\tsigned:0;\n\
             \tfield:unsigned long __probe_ret_ip;\toffset:{after};\tsize:{0};\tsigned:0;\n",
            self.long
        );
        let u32_field = |name: &str| format!("{ip}\tfield:u32 {name};\toffset:{after};\tsize:4;\tsigned:0;\n");
        let mtd = format!(
            "{ip}\tfield:u64 address;\toffset:{after};\tsize:8;\tsigned:0;\n\
             \tfield:u64 length;\toffset:{};\tsize:8;\tsigned:0;\n",
            after + 8
        );
        let print = |n: &str| format!("\"(%lx) {n}=%u\", REC->__probe_ip, REC->{n}");
        let mtd_print = "\"(%lx) address=%llu length=%llu\", REC->__probe_ip, REC->address, REC->length";
        for (system, name, text) in [
            ("flashscope", "nand_read", format("nand_read", READ, &u32_field("page"), &print("page"))),
            ("flashscope", "nand_program", format("nand_program", PROGRAM, &u32_field("page"), &print("page"))),
            ("flashscope", "nand_erase", format("nand_erase", ERASE, &u32_field("block"), &print("block"))),
            (
                "flashscope",
                "nand_read_done",
                format("nand_read_done", READ_DONE, &ret, "\"(%lx <- %lx)\", REC->__probe_func, REC->__probe_ret_ip"),
            ),
            ("flashscope", "mtd_write", format("mtd_write", MTD_WRITE, &mtd, mtd_print)),
            ("flashscope", "mtd_erase", format("mtd_erase", MTD_ERASE, &mtd, mtd_print)),
            (
                "task",
                "task_rename",
                format(
                    "task_rename",
                    RENAME,
                    "\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\
                     \tfield:char oldcomm[16];\toffset:12;\tsize:16;\tsigned:0;\n\
                     \tfield:char newcomm[16];\toffset:28;\tsize:16;\tsigned:0;\n",
                    "\"pid=%d oldcomm=%s newcomm=%s\", REC->pid, REC->oldcomm, REC->newcomm",
                ),
            ),
            (
                "task",
                "task_newtask",
                format(
                    "task_newtask",
                    NEWTASK,
                    "\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\
                     \tfield:char comm[16];\toffset:12;\tsize:16;\tsigned:0;\n",
                    "\"pid=%d comm=%s\", REC->pid, REC->comm",
                ),
            ),
        ] {
            self.frame(5, source, format!("{system}\0{name}\0{text}").as_bytes());
        }
    }

    fn u16(&self, v: u16) -> [u8; 2] {
        if self.endian == Endian::Big { v.to_be_bytes() } else { v.to_le_bytes() }
    }

    fn u32(&self, v: u32) -> [u8; 4] {
        if self.endian == Endian::Big { v.to_be_bytes() } else { v.to_le_bytes() }
    }

    fn u64(&self, v: u64) -> [u8; 8] {
        if self.endian == Endian::Big { v.to_be_bytes() } else { v.to_le_bytes() }
    }

    fn head(&self, id: u16, tid: u32) -> Vec<u8> {
        let mut r = self.u16(id).to_vec();
        r.extend([0, 0]);
        r.extend(self.u32(tid));
        r
    }

    fn ip(&self, r: &mut Vec<u8>, value: u64) {
        if self.long == 4 {
            r.extend(self.u32(value as u32));
        } else {
            r.extend(self.u64(value));
        }
    }

    /// nand_read, nand_program or nand_erase.
    pub fn nand(&self, id: u16, tid: u32, address: u32) -> Vec<u8> {
        let mut r = self.head(id, tid);
        self.ip(&mut r, 0xc045_1234);
        r.extend(self.u32(address));
        r
    }

    pub fn done(&self, tid: u32) -> Vec<u8> {
        let mut r = self.head(READ_DONE, tid);
        self.ip(&mut r, 0xc045_1234);
        self.ip(&mut r, 0xc045_5678);
        r
    }

    pub fn mtd(&self, id: u16, tid: u32, address: u64, length: u64) -> Vec<u8> {
        let mut r = self.head(id, tid);
        self.ip(&mut r, 0xc045_9999);
        r.extend(self.u64(address));
        r.extend(self.u64(length));
        r
    }

    pub fn rename(&self, tid: u32, old: &str, new: &str) -> Vec<u8> {
        let mut r = self.head(RENAME, tid);
        r.extend(self.u32(tid));
        r.extend(comm(old));
        r.extend(comm(new));
        r
    }

    pub fn newtask(&self, parent: u32, tid: u32, name: &str) -> Vec<u8> {
        let mut r = self.head(NEWTASK, parent);
        r.extend(self.u32(tid));
        r.extend(comm(name));
        r
    }

    /// Records of one CPU as FS_DATA frames.
    pub fn records(&mut self, source: u16, instance: u16, cpu: u16, records: &[(u64, Vec<u8>)]) {
        let mut encoder = Encoder::new(self.layout);
        let mut pages = vec![];
        for (time, data) in records {
            pages.extend(encoder.record(*time, data).unwrap());
        }
        pages.extend(encoder.finish());
        for page in pages {
            self.page(source, instance, cpu, &page);
        }
    }

    pub fn page(&mut self, source: u16, instance: u16, cpu: u16, page: &[u8]) {
        let mut payload = cpu.to_le_bytes().to_vec();
        payload.extend(instance.to_le_bytes());
        payload.extend(page);
        self.frame(6, source, &payload);
    }

    pub fn tasks(&mut self, source: u16, tasks: &[(u32, &str)]) {
        let mut payload = vec![];
        for (tid, name) in tasks {
            payload.extend(tid.to_le_bytes());
            payload.extend(tid.to_le_bytes());
            payload.extend(comm(name));
        }
        self.frame(7, source, &payload);
    }

    pub fn phase(&mut self, source: u16, time: u64, kind: u32, name: &str) {
        let mut payload = time.to_le_bytes().to_vec();
        payload.extend(kind.to_le_bytes());
        payload.extend(0u32.to_le_bytes());
        payload.extend(name.as_bytes());
        self.frame(8, source, &payload);
    }

    pub fn output(&mut self, source: u16, fd: u32, bytes: &[u8]) {
        let mut payload = fd.to_le_bytes().to_vec();
        payload.extend(bytes);
        self.frame(10, source, &payload);
    }

    pub fn exit(&mut self, source: u16, begin: u64, end: u64, status: i32) {
        let mut payload = begin.to_le_bytes().to_vec();
        payload.extend(end.to_le_bytes());
        payload.extend(status.to_le_bytes());
        payload.extend([0; 4]);
        self.frame(11, source, &payload);
    }

    pub fn file(&mut self, source: u16, path: &str, offset: u64, bytes: &[u8]) {
        let mut payload = offset.to_le_bytes().to_vec();
        payload.extend(0o644u32.to_le_bytes());
        payload.extend((path.len() as u32).to_le_bytes());
        payload.extend(path.as_bytes());
        payload.push(0);
        payload.extend(bytes);
        self.frame(13, source, &payload);
    }

    pub fn end(&mut self, source: u16, reason: u32) {
        let frames = self.seq.get(&source).copied().unwrap_or(0);
        let mut payload = reason.to_le_bytes().to_vec();
        payload.extend(frames.to_le_bytes());
        self.frame(15, source, &payload);
    }
}

fn comm(name: &str) -> [u8; 16] {
    let mut out = [0; 16];
    out[..name.len()].copy_from_slice(name.as_bytes());
    out
}

pub fn nand_facts() -> serde_json::Value {
    serde_json::json!({
        "kernel": {"release": "6.1.0-test", "version": "#1 SMP", "machine": "armv7l"},
        "mtd": [{"index": 0, "type": "nand", "size": 8388608, "erasesize": 131072, "writesize": 2048,
                 "offset": 0, "chip": 0}],
        "recording": {"name": "one", "clock": "mono"},
    })
}

/// A recorder on two CPUs, with task names and a phase, for most tests.
pub fn example(endian: Endian, long: u8, subbuf: u32) -> Stream {
    let mut s = Stream::new(endian, long, subbuf);
    s.begin(0, 2, &nand_facts());
    s.tasks(0, &[(7, "sh"), (9, "jffs2_gcd_mtd0")]);
    s.phase(0, 1_000_000, 0, "read it");
    let tasks = vec![
        (1_000_100, s.newtask(7, 20, "sh")),
        (1_000_200, s.rename(20, "sh", "cat")),
        (3_000_000, s.newtask(7, 21, "sh")),
    ];
    let (mut zero, mut one) = (vec![], vec![]);
    for i in 0..300u32 {
        let at = 1_000_150 + u64::from(i) * 10_000;
        zero.push((at, s.nand(READ, 20, 4096 + i)));
        zero.push((at + 145, s.done(20)));
        one.push((at + 70, s.nand(PROGRAM, 9, 64 * i)));
        if i % 100 == 0 {
            one.push((at + 80, s.mtd(MTD_ERASE, 9, u64::from(i) * 131_072, 2 * 131_072)));
            one.push((at + 90, s.nand(ERASE, 9, i)));
        }
    }
    one.push((5_000_000, s.mtd(MTD_WRITE, 9, 2048 * 10, 2048 * 302)));
    s.records(0, 0, 0, &zero);
    s.records(0, 0, 1, &one);
    s.records(0, 1, 0, &tasks);
    s.phase(0, 4_000_500, 1, "read it");
    let stats = serde_json::json!({"instances": [
        {"instance": 0, "cpu": [
            {"cpu": 0, "entries": 0, "overrun": 0, "commit_overrun": 0, "dropped": 0, "read": 600, "bytes": 1},
            {"cpu": 1, "entries": 0, "overrun": 11, "commit_overrun": 0, "dropped": 0, "read": 310, "bytes": null}]},
        {"instance": 1, "cpu": [{"cpu": 0, "entries": 0, "overrun": 0, "dropped": 0, "read": 3}]}],
        "probes": [{"event": "nand_read", "hits": 300, "misses": 2}]});
    s.frame(9, 0, stats.to_string().as_bytes());
    s.end(0, 0);
    s
}

pub fn events(trace: &Trace) -> Vec<Event> {
    let mut all = vec![];
    trace.for_each(&mut |e| all.push(e.clone())).unwrap();
    all
}

/// All parts of every record, as text.
pub fn records(trace: &Trace) -> Vec<String> {
    let mut all = vec![];
    trace
        .for_each_record(&mut |r| {
            let missed = if r.missed == Missed::Nothing { String::new() } else { format!(" {:?}", r.missed) };
            all.push(format!(
                "{} {} {} {} {}:{} {}{missed}",
                r.buffer,
                r.time.0,
                r.cpu,
                trace.comm(r.tid(), r.time).unwrap_or("<...>"),
                r.schema.system,
                r.schema.name,
                r.data.escape_ascii()
            ));
        })
        .unwrap();
    all
}

pub fn flash_count(events: &[Event]) -> usize {
    events.iter().filter(|e| matches!(e.kind, EventKind::Flash(_))).count()
}
