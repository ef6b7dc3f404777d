//! Traces made of arbitrary sequences of events, written as an agent would: what is inside a trace is arbitrary, and its framing is
//! whole, so that every input gets as far as the analyses.
//!
//! The bytes of an input choose facts, events, tasks, times and fields (`arbitrary::Unstructured`). Fields are small numbers and
//! those at the ends of their range more often than others.

use arbitrary::{Result, Unstructured};
use flashscope_trace::{Encoder, Endian, Layout, encode_frame};
use serde_json::json;

/// System, name and fields of the kinds of events that analyses read; a field is its type and its name.
const EVENTS: &[(&str, &str, &str)] = &[
    ("block", "block_bio_queue", "u32 dev;u64 sector;u32 nr_sector;char rwbs[8]"),
    ("block", "block_getrq", "u32 dev;u64 sector;u32 nr_sector;char rwbs[8]"),
    ("block", "block_bio_backmerge", "u32 dev;u64 sector;u32 nr_sector;char rwbs[8]"),
    ("block", "block_bio_frontmerge", "u32 dev;u64 sector;u32 nr_sector;char rwbs[8]"),
    ("block", "block_rq_insert", "u32 dev;u64 sector;u32 nr_sector;u32 bytes;char rwbs[8]"),
    ("block", "block_rq_issue", "u32 dev;u64 sector;u64 nr_sector;u32 bytes;char rwbs[8]"),
    ("block", "block_rq_requeue", "u32 dev;u64 sector;u32 nr_sector;char rwbs[8]"),
    ("block", "block_rq_complete", "u32 dev;u64 sector;u32 nr_sector;s32 error;char rwbs[8]"),
    ("block", "block_split", "u32 dev;u64 sector;u64 new_sector;char rwbs[8]"),
    ("block", "block_bio_remap", "u32 dev;u64 sector;u32 nr_sector;u32 old_dev;u64 old_sector;char rwbs[8]"),
    ("block", "block_unplug", "u32 nr_rq"),
    ("flashscope", "nand_read", "u32 page;u32 offset;u32 length;u16 chip"),
    ("flashscope", "nand_program", "u32 page;u16 chip"),
    ("flashscope", "nand_erase", "u64 block;u16 chip"),
    ("flashscope", "nand_read_done", "u32 result"),
    ("flashscope", "nand_program_done", "u32 result"),
    ("flashscope", "mtd_write", "u64 mtd;u64 address;u64 length"),
    ("flashscope", "mtd_erase", "u64 mtd;u64 address;u64 length"),
    ("flashscope", "file_read", "u32 dev;u64 ino;u64 size;u64 pos;u64 count"),
    ("flashscope", "file_write", "u32 dev;u64 ino;u64 pos;u64 count"),
    ("flashscope", "file_fault", "u32 dev;u64 ino;u64 size;u64 page"),
    ("flashscope", "file_fault_end", "u32 dev;u64 ino;u64 size;u64 page"),
    ("filemap", "mm_filemap_add_to_page_cache", "u64 pfn;u64 i_ino;u64 index;u32 s_dev;u8 order"),
    ("filemap", "mm_filemap_delete_from_page_cache", "u64 pfn;u64 i_ino;u64 index;u32 s_dev;u8 order"),
    ("filemap", "mm_filemap_get_pages", "u64 i_ino;u32 s_dev;u64 index;u64 last_index"),
    ("filemap", "mm_filemap_fault", "u64 i_ino;u32 s_dev;u64 index"),
    ("writeback", "writeback_dirty_folio", "char name[16];u64 ino;u64 index"),
    ("writeback", "writeback_single_inode_start", "char name[16];u64 ino"),
    ("writeback", "writeback_single_inode", "char name[16];u64 ino"),
    ("ext4", "ext4_da_write_begin", "u32 dev;u64 ino;u64 pos;u32 len"),
    ("ext4", "ext4_writepages", "u32 dev;u64 ino"),
    ("ext4", "ext4_writepages_result", "u32 dev;u64 ino"),
    ("ext4", "ext4_ext_map_blocks_exit", "u32 dev;u64 ino;u64 pblk;u64 lblk;u32 len;u32 mflags;s32 ret"),
    ("f2fs", "f2fs_map_blocks", "u32 dev;u64 ino;u64 m_lblk;u64 m_pblk;u32 m_len;s32 ret"),
    ("f2fs", "f2fs_submit_page_write", "u32 dev;u64 ino;u64 index;u64 old_blkaddr;u64 new_blkaddr"),
    ("syscalls", "sys_enter_read", "s32 nr;u64 fd;u64 buf;u64 count"),
    ("syscalls", "sys_exit_read", "s32 nr;s64 ret"),
    ("syscalls", "sys_enter_write", "s32 nr;u64 fd;u64 buf;u64 count"),
    ("syscalls", "sys_exit_write", "s32 nr;s64 ret"),
    ("syscalls", "sys_enter_fsync", "s32 nr;u64 fd"),
    ("syscalls", "sys_exit_fsync", "s32 nr;s64 ret"),
    ("syscalls", "sys_enter_openat", "s32 nr;u64 dfd;u64 filename;u64 flags"),
    ("syscalls", "sys_exit_openat", "s32 nr;s64 ret"),
    ("syscalls", "sys_enter_lseek", "s32 nr;u64 fd;u64 offset;u64 whence"),
    ("syscalls", "sys_enter_mmap", "s32 nr;u64 addr;u64 len;u64 prot;u64 flags;u64 fd;u64 off"),
    ("syscalls", "sys_exit_mmap", "s32 nr;s64 ret"),
    ("syscalls", "sys_enter_madvise", "s32 nr;u64 start;u64 len_in;u64 behavior"),
    ("syscalls", "sys_enter_readahead", "s32 nr;u64 fd;u64 offset;u64 count"),
    ("syscalls", "sys_enter_fadvise64", "s32 nr;u64 fd;u64 offset;u64 len;u64 advice"),
    ("sched", "sched_switch", "char prev_comm[16];s32 prev_pid;s64 prev_state;char next_comm[16];s32 next_pid"),
    ("task", "task_newtask", "s32 pid;char comm[16]"),
    ("task", "task_rename", "s32 pid;char oldcomm[16];char newcomm[16]"),
    ("flashscope", "enter_filemap_read", "u64 __probe_ip"),
    ("flashscope", "leave_filemap_read", "u64 __probe_ip"),
    ("flashscope", "enter_submit_bio", "u64 __probe_ip"),
    ("flashscope", "leave_submit_bio", "u64 __probe_ip"),
    ("irq", "irq_handler_entry", "s32 irq"),
    ("irq", "irq_handler_exit", "s32 irq"),
];

const NAMES: [&str; 10] = [
    "cat", "app", "kworker/u2:1", "jbd2/nullb0-8", "ubi_bgt0d", "jffs2_gcd_mtd0", "yaffs-bg-1", "8:0", "mtd-0",
    "\u{1b}[2J",
];
const RWBS: [&str; 12] = ["R", "RA", "RM", "W", "WS", "WM", "WSM", "FF", "FWFS", "D", "N", "WFS"];
const RELEASES: [&str; 6] = ["6.1.0-50-armmp", "5.10.0-1", "2.6.37", "6.12.1", "7.2.0", "nothing"];
const OPTIONS: [&str; 5] =
    ["ro", "rw,relatime", "rw,sync,strictatime", "rw,discard,commit=1", "rw,data=journal,commit=99999999999"];
/// First number of the formats.
const FIRST_ID: u16 = 100;
/// Most events of one trace: bytes that say more say nothing.
const MOST_EVENTS: usize = 4096;

/// A number that code is likely to stumble over.
pub fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=11_u8)? {
        0..=4 => u64::from(u.arbitrary::<u8>()? % 32),
        5 => u64::from(u.arbitrary::<u8>()?) << 12,
        6 | 7 => u64::from(u.arbitrary::<u16>()?),
        8 => 1_u64 << (u.arbitrary::<u8>()? % 64),
        9 => (1_u64 << (u.arbitrary::<u8>()? % 64)).wrapping_sub(1),
        10 => 0_u64.wrapping_sub(u64::from(u.arbitrary::<u8>()?)),
        _ => u.arbitrary()?,
    })
}

/// One field's bytes.
fn field(u: &mut Unstructured<'_>, kind: &str, name: &str) -> Result<Vec<u8>> {
    if let Some((_, size)) = name.split_once('[') {
        let size = size.trim_end_matches(']').parse().unwrap_or(8);
        let text = if name.starts_with("rwbs") { *u.choose(&RWBS)? } else { *u.choose(&NAMES)? };
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(size, 0);
        return Ok(bytes);
    }
    let value = match name {
        // A few devices, chips and tasks, so that events meet.
        "dev" | "s_dev" | "old_dev" => u64::from(u.arbitrary::<u8>()? % 3) | 8 << 20,
        "pid" | "prev_pid" | "next_pid" => u64::from(u.arbitrary::<u8>()? % 6),
        "order" => u64::from(u.arbitrary::<u8>()? % 20),
        _ => number(u)?,
    };
    Ok(value.to_le_bytes()[..size_of(kind)].to_vec())
}

fn size_of(kind: &str) -> usize {
    match kind {
        "u8" => 1,
        "u16" => 2,
        "u32" | "s32" => 4,
        _ => 8,
    }
}

fn fields(spec: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    spec.split(';').filter_map(|field| field.split_once(' '))
}

/// The format's text, as tracefs has it.
fn format(name: &str, id: u16, spec: &'static str) -> String {
    let mut text = format!(
        "name: {name}\nID: {id}\nformat:\n\
         \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    );
    let mut offset = 8;
    for (kind, name) in fields(spec) {
        let size = match name.split_once('[') {
            Some((_, size)) => size.trim_end_matches(']').parse().unwrap_or(8),
            None => size_of(kind),
        };
        let signed = u8::from(kind.starts_with('s'));
        text += &format!("\tfield:{kind} {name};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n");
        offset += size;
    }
    text + "\nprint fmt: \"\"\n"
}

/// Writes a stream of one recorder.
pub struct Writer {
    pub bytes: Vec<u8>,
    frames: u32,
    encoder: Encoder,
    layout: Layout,
}

impl Writer {
    /// A stream with these facts, which knows the formats of all events; or only of those that `with` takes.
    pub fn new(facts: &serde_json::Value, mut with: impl FnMut(&str, &str) -> bool) -> Writer {
        let layout = Layout::of(Endian::Little, 8, 4096);
        let mut writer = Writer { bytes: Vec::new(), frames: 0, encoder: Encoder::new(layout), layout };
        let mut hello = vec![1, 0, 0, 8];
        for value in [4096_u32, layout.subbuf_size, 1] {
            hello.extend(value.to_le_bytes());
        }
        hello.extend(b"0.1.0");
        writer.frame(1, &hello);
        writer.frame(2, facts.to_string().as_bytes());
        let page = format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
             \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
             \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
             \tfield: char data;\toffset:{};\tsize:{};\tsigned:0;\n",
            layout.data_offset,
            layout.subbuf_size - layout.data_offset
        );
        writer.frame(3, page.as_bytes());
        for (id, (system, name, spec)) in (FIRST_ID..).zip(EVENTS) {
            if with(system, name) {
                writer.frame(5, format!("{system}\0{name}\0{}", format(name, id, spec)).as_bytes());
            }
        }
        writer
    }

    fn frame(&mut self, kind: u16, payload: &[u8]) {
        self.bytes.extend(encode_frame(kind, 0, self.frames, payload));
        self.frames += 1;
    }

    /// Names of devices, files and processes (`FS_NAMES`).
    pub fn names(&mut self, names: &serde_json::Value) {
        self.frame(17, names.to_string().as_bytes());
    }

    fn page(&mut self, page: &[u8]) {
        let payload = [&[0; 4][..], page].concat();
        self.frame(6, &payload);
    }

    fn put(&mut self, id: u16, tid: u32, time: u64, fields: &[u8]) {
        let mut data = id.to_le_bytes().to_vec();
        data.extend([0, 0]);
        data.extend(tid.to_le_bytes());
        data.extend(fields);
        if let Ok(Some(page)) = self.encoder.record(time, &data) {
            self.page(&page);
        }
    }

    /// One event by its name: `values` are its fields in order, those of text left out (they are empty, `rwbs` is `R` or `W`).
    pub fn event(&mut self, name: &str, tid: u32, time: u64, values: &[u64]) {
        self.event_rwbs(name, tid, time, values, "R");
    }

    pub fn event_rwbs(&mut self, name: &str, tid: u32, time: u64, values: &[u64], rwbs: &str) {
        let texts = |field: &str| if field == "rwbs" { rwbs.as_bytes() } else { b"" };
        self.event_texts(name, tid, time, values, texts);
    }

    /// `texts`: what a field of text holds, by its name; a longer one is cut.
    pub fn event_texts<'t>(
        &mut self,
        name: &str,
        tid: u32,
        time: u64,
        values: &[u64],
        texts: impl Fn(&str) -> &'t [u8],
    ) {
        let (id, (.., spec)) =
            (FIRST_ID..).zip(EVENTS).find(|(_, (_, known, _))| *known == name).expect("a known event");
        let data = data(spec, values, texts);
        self.put(id, tid, time, &data);
    }

    /// The kernel's own counts at the end, all of them this one.
    pub fn statistics(&mut self, count: u64) {
        let cpu = json!({"cpu": 0, "overrun": count, "dropped": count, "commit_overrun": count, "entries": count});
        let mtd = |index| json!({"index": index, "corrected_bits": count, "ecc_failures": count, "bad_blocks": count});
        let stats = json!({
            "instances": [{"instance": 0, "cpu": [cpu]}],
            "probes": [{"event": "nand_read", "misses": count}],
            "mtd": [mtd(0), mtd(1)],
        });
        self.frame(9, stats.to_string().as_bytes());
    }

    /// The stream is whole.
    pub fn finish(mut self) -> Vec<u8> {
        if let Some(page) = self.encoder.finish() {
            self.page(&page);
        }
        let mut end = 0_u32.to_le_bytes().to_vec();
        end.extend(self.frames.to_le_bytes());
        self.frame(15, &end);
        debug_assert_eq!(self.layout.subbuf_size, 4096);
        self.bytes
    }
}

/// Fields of a kind of event from numbers in their order, and from texts by their names.
fn data<'t>(spec: &'static str, values: &[u64], texts: impl Fn(&str) -> &'t [u8]) -> Vec<u8> {
    let (mut data, mut values) = (Vec::new(), values.iter());
    for (kind, name) in fields(spec) {
        match name.split_once('[') {
            Some((name, size)) => {
                let begin = data.len();
                data.extend_from_slice(texts(name));
                data.resize(begin + size.trim_end_matches(']').parse::<usize>().unwrap_or(8), 0);
            }
            None => data.extend(&values.next().copied().unwrap_or(0).to_le_bytes()[..size_of(kind)]),
        }
    }
    data
}

fn facts(u: &mut Unstructured<'_>) -> Result<serde_json::Value> {
    let release = *u.choose(&RELEASES)?;
    let filesystem = *u.choose(&["squashfs", "ubifs", "ext4", "jffs2", "f2fs"])?;
    let options = *u.choose(&OPTIONS)?;
    let plain = u.ratio(3, 4)?;
    let mut size = |usual: u64| if plain { Ok(usual) } else { number(u) };
    let (pages, block) = (size(2048)?, size(131_072)?);
    let (offset, whole) = (size(0)?, size(8 << 20)?);
    let block_bytes = size(4096)?;
    let (free, limit) = (size(1 << 20)?, size(1 << 26)?);
    Ok(json!({
        "kernel": {"release": release, "version": "#1", "machine": "armv7l", "page_size": size(4096)?},
        "mtd": [
            {"index": 0, "type": "nand", "size": whole, "erasesize": block, "writesize": pages, "offset": offset, "chip": 0},
            {"index": 1, "type": "nand", "size": 1 << 20, "erasesize": 131_072, "writesize": 2048, "offset": 0, "chip": 1}],
        "ubi": [{"mtd_num": 0, "ubi_num": 0, "max_ec": size(3)?, "min_io_size": pages, "eraseblock_size": block}],
        "mounts": [{"source": "/dev/a", "target": "/a", "type": filesystem, "device": "8:0", "block_bytes": block_bytes,
                    "options": options, "size_bytes": 1 << 30, "free_bytes": free}],
        "block": [{"name": "a", "device": "8:0", "size_bytes": 1_u64 << 32, "scheduler": "none [bfq]", "read_ahead_kb": size(128)?,
                   "max_sectors_kb": size(128)?, "nr_requests": size(2)?, "write_cache": "write back"}],
        "swaps": [{"device": "8:2"}],
        "vm": {"dirty_bytes": limit, "dirty_ratio": 20, "available_bytes": size(1 << 28)?},
        "bdi": [{"name": "8:0", "read_ahead_kb": size(128)?}],
        "recording": {"name": "fuzz", "clock": "mono"},
    }))
}

/// The stream that an input stands for. Half of them have block I/O and no raw flash, so that they are reports of that. One in eight
/// has the format of every event, the others of what they hold: reading formats would be most of what an execution takes.
pub fn stream(bytes: &[u8]) -> Vec<u8> {
    let mut u = Unstructured::new(bytes);
    let of_block_io = u.ratio(1, 2).unwrap_or(false);
    let facts = facts(&mut u).unwrap_or_default();
    let mut events = Vec::new();
    let mut time = 1_000_000_000;
    while events.len() < MOST_EVENTS && !u.is_empty() {
        let taken = match u.ratio(1, 16) {
            Ok(true) => steps(&mut u, &mut time, &mut events),
            Ok(false) => one(&mut u, &mut time).map(|event| events.push(event)),
            Err(error) => Err(error),
        };
        if taken.is_err() {
            break;
        }
    }
    let all = bytes.first().is_none_or(|first| first >> 5 == 0);
    let mut held = [all; EVENTS.len()];
    events.iter().for_each(|event| held[event.kind] = true);
    for (held, (_, name, _)) in held.iter_mut().zip(EVENTS) {
        if name.starts_with("nand_") {
            *held = !of_block_io;
        }
    }
    let mut held_of = held.iter();
    let mut writer = Writer::new(&facts, |_, _| *held_of.next().expect("one for each event"));
    for event in events.iter().filter(|event| held[event.kind]) {
        writer.put(FIRST_ID + event.kind as u16, event.tid, event.time, &event.fields);
    }
    writer.statistics(time);
    writer.finish()
}

/// An event of a place in [`EVENTS`].
struct Event {
    kind: usize,
    tid: u32,
    time: u64,
    fields: Vec<u8>,
}

fn one(u: &mut Unstructured<'_>, time: &mut u64) -> Result<Event> {
    let kind = u.int_in_range(0..=EVENTS.len() - 1)?;
    let (.., spec) = EVENTS[kind];
    let tid = u32::from(u.arbitrary::<u8>()? % 6);
    let step = match u.int_in_range(0..=7_u8)? {
        0..=5 => u64::from(u.arbitrary::<u8>()?),
        6 => number(u)? >> 20,
        _ => number(u)?,
    };
    *time = time.saturating_add(step);
    let mut data = Vec::new();
    for (kind, name) in fields(spec) {
        data.extend(field(u, kind, name)?);
    }
    Ok(Event { kind, tid, time: *time, fields: data })
}

/// What a thread does several times, as a kernel reports it: rules look for what happens often. One event in 64 has a field with any number.
fn steps(u: &mut Unstructured<'_>, time: &mut u64, events: &mut Vec<Event>) -> Result<()> {
    let tid = u32::from(u.arbitrary::<u8>()? % 6);
    let (device, inode, what) =
        (8 << 20 | u.int_in_range(0..=2_u64)?, u.int_in_range(1..=9_u64)?, u.arbitrary::<u8>()? % 8);
    let (pages, stride, ns) =
        (u64::from(u.arbitrary::<u8>()?), u64::from(u.arbitrary::<u16>()?), u.int_in_range(1..=40_u64)?);
    for n in 0..u64::from(u.arbitrary::<u8>()? % 32) {
        let mut put = |name: &str, later: u64, values: &[u64], rwbs: &'static str| -> Result<()> {
            let kind = EVENTS.iter().position(|(_, known, _)| *known == name).expect("a known event");
            let mut values = values.to_vec();
            if u.ratio(1, 64)? {
                let at = u.choose_index(values.len())?;
                values[at] = number(u)?;
            }
            *time = time.saturating_add(later);
            let text = |field: &str| if field == "rwbs" { rwbs.as_bytes() } else { b"8:0" };
            events.push(Event { kind, tid, time: *time, fields: data(EVENTS[kind].2, &values, text) });
            Ok(())
        };
        let (sector, pos, bytes) = ((n * stride + 1) * 8, n * stride * 4096, (pages % 16) * 4096);
        let mut bio = |rwbs: &'static str, sector: u64, bytes: u64| -> Result<()> {
            put("block_bio_queue", 1_000, &[device, sector, bytes / 512], rwbs)?;
            put("block_rq_issue", 1_000, &[device, sector, bytes / 512, bytes], rwbs)?;
            put("block_rq_complete", ns * 250_000, &[device, sector, bytes / 512, 0], rwbs)
        };
        match what {
            0 => {
                bio("WS", sector, bytes.max(4096))?;
                bio("FF", 0, 0)?;
            }
            1 => {
                put("file_read", 1_000, &[device, inode, 1 << 30, pos, pages], "")?;
                put("sys_enter_read", 1_000, &[0, 3, 0, pages], "")?;
                put("mm_filemap_add_to_page_cache", 10, &[1, inode, pos / 4096, device, 0], "")?;
                put("sys_exit_read", ns * 100_000, &[0, pages], "")?;
            }
            2 => {
                put("file_write", 1_000, &[device, inode, pos, 512], "")?;
                put("sys_enter_write", 1_000, &[1, 3, 0, 512], "")?;
                put("sys_exit_write", 10_000, &[1, 512], "")?;
                put("sys_enter_fsync", 1_000, &[74, 3], "")?;
                put("block_bio_queue", 1_000, &[device, sector, 8], "WS")?;
                put("block_rq_issue", 1_000, &[device, sector, 8, 4096], "WS")?;
                put("block_rq_complete", ns * 250_000, &[device, sector, 8, 0], "WS")?;
                put("sys_exit_fsync", ns * 250_000, &[74, 0], "")?;
            }
            3 => bio("D", sector, 1 << 30)?,
            4 => bio(["R", "RM", "RA", "WM"][usize::from(pages as u8 % 4)], sector, bytes.max(4096))?,
            5 => {
                put("nand_read", 1_000, &[n * stride, 0, 2048, 0], "")?;
                put("nand_read_done", ns * 10_000, &[0], "")?;
            }
            6 => put("nand_program", ns * 10_000, &[n * stride, 0], "")?,
            _ => put("nand_erase", ns * 100_000, &[n * stride % 64, 0], "")?,
        }
    }
    Ok(())
}
