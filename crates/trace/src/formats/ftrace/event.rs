//! Parses an event's text to fields. Best effort: the whole text is always one field (`text`).
//!
//! Most events print `key=value`. The other events that matter here (block, syscalls, the function tracer, marks; files' events in
//! [`super::files`]) are parsed by the forms in `include/trace/events/block.h`, `syscalls.h` and `kernel/trace/trace_output.c` (Linux 6.1).

use super::fields::{device, find, pairs, value_of, words};
use super::{blk, commands, files, tools};
use crate::formats::parsed::{Parsed, Value};

/// Parses the text after the time. `None` if it has no event name.
pub(super) fn parse(text: &[u8]) -> Option<Parsed<'_>> {
    if let Some(event) = blk::line(text) {
        return Some(event);
    }
    let end =
        text.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))).unwrap_or(text.len());
    let name = std::str::from_utf8(&text[..end]).ok().filter(|n| !n.is_empty() && n.len() <= 128)?;
    let rest = &text[end..];
    let mut out = Parsed { system: "text", name: name.to_string(), fields: Vec::new() };
    if let Some(rest) = rest.strip_prefix(b":") {
        return event(&mut out, rest.trim_ascii()).then_some(out);
    }
    if text.starts_with(b"<stack trace>") {
        return None;
    }
    // The function tracer: "ksys_dup3 <-ret_fast_syscall", either with its module in brackets.
    if let Some(at) = find(text, b" <-") {
        out = Parsed { system: "ftrace", name: "function".to_string(), fields: Vec::new() };
        out.fields.push(("ip", Value::Text(text[..at].trim_ascii())));
        out.fields.push(("parent_ip", Value::Text(text[at + 3..].trim_ascii())));
        return Some(out);
    }
    // Syscalls' own events: "sys_openat(dfd: …)" and "sys_openat -> 0x3".
    if let Some(call) = name.strip_prefix("sys_") {
        out.system = "syscalls";
        if rest.starts_with(b"(") {
            out.name = format!("sys_enter_{call}");
            return Some(out);
        }
        if let Some(value) = rest.trim_ascii().strip_prefix(b"->") {
            out.name = format!("sys_exit_{call}");
            out.fields.push(("ret", value_of(value.trim_ascii())));
            return Some(out);
        }
    }
    None
}

/// Parses the text after an event's name, if the text gave the system. `None` for a step of the block layer or a driver's command that is
/// cut or does not have the kernel's form.
pub(crate) fn of_event<'a>(system: &'a str, name: &str, rest: &'a [u8]) -> Option<Parsed<'a>> {
    let mut out = Parsed { system, name: name.to_string(), fields: Vec::new() };
    let read = event(&mut out, rest);
    out.system = system;
    read.then_some(out)
}

fn event<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    out.system = system(&out.name);
    // The forms of trace-cmd and perf.
    let of_tools = match out.system {
        "syscalls" => tools::call(out, rest),
        "sched" if out.name == "sched_switch" => tools::switch(out, rest),
        _ => false,
    };
    if of_tools {
        return true;
    }
    match out.name.as_str() {
        // The message of a program is not parsed.
        "tracing_mark_write" => {
            out.name = "print".to_string();
            out.fields.push(("buf", Value::Text(rest)));
        }
        "sys_enter" | "sys_exit" => syscall(out, rest),
        _ if out.system == "block" => return block(out, rest),
        _ => {
            if commands::system(&out.name).is_some() {
                return commands::read(out, rest);
            }
            if !files::read(out, rest) {
                out.fields.clear();
                pairs(out, rest);
            }
        }
    }
    true
}

/// The system of an event; the text does not contain it.
pub(crate) fn system(name: &str) -> &'static str {
    let flash =
        |rest: &str| matches!(rest.strip_suffix("_done").unwrap_or(rest), "read" | "program" | "write" | "erase");
    match name.split_once('_') {
        Some(("nand" | "mtd", rest)) if flash(rest) => "flashscope",
        Some(("sched", _)) => "sched",
        Some(("block", _)) => "block",
        Some(("task", _)) => "task",
        Some(("tracing", "mark_write")) => "ftrace",
        Some(("sys", "enter" | "exit")) => "raw_syscalls",
        Some(("sys", rest)) if rest.starts_with("enter_") || rest.starts_with("exit_") => "syscalls",
        _ => files::system(name).or_else(|| commands::system(name)).unwrap_or("text"),
    }
}

/// `NR 6 (3, 1, …)`, `NR 6 = 0`
fn syscall<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) {
    let Some(rest) = rest.strip_prefix(b"NR ") else { return };
    let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
    out.fields.push(("id", value_of(&rest[..end])));
    let rest = rest[end..].trim_ascii();
    if let Some(ret) = rest.strip_prefix(b"=") {
        out.fields.push(("ret", value_of(ret.trim_ascii())));
    } else {
        out.fields.push(("args", Value::Text(rest)));
    }
}

/// `8,0 WS 4096 () 1234 + 8 [cat]` and similar. Returns false if a step that needs a range has none, or is cut.
fn block<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let is_step = ["block_bio_", "block_rq_", "block_split", "block_getrq", "block_sleeprq"];
    let is_step = is_step.iter().any(|begin| out.name.starts_with(begin));
    let all: Vec<&[u8]> = words(rest).take(32).collect();
    let Some(dev) = all.first().and_then(|w| device(w)) else {
        pairs(out, rest);
        // Raw fields, as `trace-cmd report -R` prints them.
        return !is_step || ["dev", "sector"].iter().all(|name| out.fields.iter().any(|(key, _)| key == name));
    };
    out.fields.push(("dev", Value::Unsigned(dev)));
    let Some(plus) = all.iter().position(|w| matches!(*w, b"+" | b"/")).filter(|&at| at >= 3) else { return !is_step };
    let number = |word: Option<&&'a [u8]>| match word.map(|w| value_of(w)) {
        Some(Value::Unsigned(n)) => Some(n),
        _ => None,
    };
    let (Some(sector), Some(after)) = (number(all.get(plus - 1)), number(all.get(plus + 1))) else { return !is_step };
    out.fields.push(("rwbs", Value::Text(all[1])));
    out.fields.push(("sector", Value::Unsigned(sector)));
    if all[plus] == b"/" {
        out.fields.push(("new_sector", Value::Unsigned(after)));
    } else {
        out.fields.push(("nr_sector", Value::Unsigned(after)));
    }
    if plus > 3
        && let Some(bytes) = number(all.get(2))
    {
        out.fields.push(("bytes", Value::Unsigned(bytes)));
    }
    // Before 4.11, a driver's own command is in round brackets.
    let command = all[..plus - 1].iter().position(|w| w.starts_with(b"(") && w.len() > 1 && *w != b"()");
    if let Some(command) = command.filter(|&at| at > 1) {
        out.fields.push(("cmd", Value::Text(all[command])));
    }
    // The origin of a remap: "<- (8,1) 1234".
    if all.get(plus + 2) == Some(&&b"<-"[..])
        && let Some(old) = all.get(plus + 3).and_then(|w| device(w.strip_prefix(b"(")?.strip_suffix(b")")?))
        && let Some(sector) = number(all.get(plus + 4))
    {
        out.fields.push(("old_dev", Value::Unsigned(old)));
        out.fields.push(("old_sector", Value::Unsigned(sector)));
        return true;
    }
    // The last bracket is an error in a completion, else a task's name. perf may print more after it.
    let bracketed = find(rest, b" [").and_then(|open| {
        let inside = &rest[open + 2..];
        inside.strip_suffix(b"]").or_else(|| Some(&inside[..find(inside, b"] ")?]))
    });
    if let Some(inside) = bracketed {
        let ends = out.name.ends_with("complete") || out.name.ends_with("requeue") || out.name.ends_with("_error");
        match value_of(inside) {
            Value::Text(_) | Value::Signed(_) | Value::Unsigned(_) if !ends => {
                out.fields.push(("comm", Value::Text(inside)))
            }
            Value::Unsigned(n) => out.fields.push(("error", Value::Signed(n as i64))),
            Value::Signed(n) => out.fields.push(("error", Value::Signed(n))),
            Value::Text(_) => return !is_step,
        }
        return true;
    }
    !is_step
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str) -> String {
        let Some(p) = parse(text.as_bytes()) else { return "none".to_string() };
        let fields = p.fields.iter().map(|(k, v)| match v {
            Value::Signed(n) => format!(" {k}={n}"),
            Value::Unsigned(n) => format!(" {k}={n}u"),
            Value::Text(t) => format!(" {k}='{}'", t.escape_ascii()),
        });
        format!("{}:{}{}", p.system, p.name, fields.collect::<String>())
    }

    #[test]
    fn inode_numbers_of_xfs_are_hexadecimal() {
        let event = show("xfs_file_fsync: dev 7:1 ino 0x6004a6 iflags 0x0");
        assert_eq!(event, "xfs:xfs_file_fsync dev=7340033u ino=6292646u iflags=0u");
        // Linux 5.10, and 6.1.
        for (size, offset, count) in [("size", "offset", "count"), ("disize", "pos", "bytecount")] {
            let event =
                show(&format!("xfs_file_buffered_write: dev 7:1 ino 0x83 {size} 0x10 {offset} 0x1000 {count} 0x200"));
            let want = "xfs:xfs_file_buffered_write dev=7340033u ino=131u size=16u offset=4096u count=512u";
            assert_eq!(event, want);
        }
    }

    #[test]
    fn events_of_all_kinds() {
        for (text, want) in [
            (
                "sched_switch: prev_comm=my prog-7 prev_pid=77 prev_prio=120 prev_state=R+ ==> next_comm=1 next_pid=15",
                "sched:sched_switch prev_comm='my prog-7' prev_pid=77u prev_prio=120u prev_state='R+' next_comm='1' next_pid=15u",
            ),
            ("sys_enter: NR 6 (3, 6)", "raw_syscalls:sys_enter id=6u args='(3, 6)'"),
            ("sys_exit: NR 192 = -1225834496", "raw_syscalls:sys_exit id=192u ret=-1225834496"),
            ("sys_openat(dfd: ffffff9c)", "syscalls:sys_enter_openat"),
            ("sys_openat -> 0x3", "syscalls:sys_exit_openat ret=3u"),
            ("ksys_dup3 <-ret_fast_syscall", "ftrace:function ip='ksys_dup3' parent_ip='ret_fast_syscall'"),
            ("a [m] <-b [n]", "ftrace:function ip='a [m]' parent_ip='b [n]'"),
            ("tracing_mark_write: a mark: key=1 two", "ftrace:print buf='a mark: key=1 two'"),
            ("nand_read: (nand_read_page_op+0x0/0x10) page=0x1f offset=-1", "flashscope:nand_read page=31u offset=-1"),
            (
                "block_rq_issue: 254,0 RA 16384 () 0 + 32 [busy box]",
                "block:block_rq_issue dev=266338304u rwbs='RA' sector=0u nr_sector=32u bytes=16384u comm='busy box'",
            ),
            (
                "block_rq_issue: 8,0 WS 4096 () 1234 + 8 none,0,0 [7]",
                "block:block_rq_issue dev=8388608u rwbs='WS' sector=1234u nr_sector=8u bytes=4096u comm='7'",
            ),
            (
                "block_rq_complete: 8,0 W () 1234 + 8 [-5]",
                "block:block_rq_complete dev=8388608u rwbs='W' sector=1234u nr_sector=8u error=-5",
            ),
            (
                "block_rq_complete: 8,0 W () 1234 + 8 [0]",
                "block:block_rq_complete dev=8388608u rwbs='W' sector=1234u nr_sector=8u error=0",
            ),
            (
                "block_bio_queue: 8,1 R 96 + 128 [cat]",
                "block:block_bio_queue dev=8388609u rwbs='R' sector=96u nr_sector=128u comm='cat'",
            ),
            (
                "block_bio_remap: 8,0 R 2144 + 8 <- (8,1) 96",
                "block:block_bio_remap dev=8388608u rwbs='R' sector=2144u nr_sector=8u old_dev=8388609u old_sector=96u",
            ),
            ("block_plug: [cat]", "block:block_plug"),
            ("x: a=1 a=2 text=3 9b=4 c=", "text:x a=1u c=''"),
            (
                "writeback_dirty_folio: bdi 7:3: ino=22 index=8",
                "writeback:writeback_dirty_folio name='7:3' ino=22u index=8u",
            ),
            (
                "writeback_dirty_page: bdi mtd-0: ino=2 index=0",
                "writeback:writeback_dirty_page name='mtd-0' ino=2u index=0u",
            ),
            (
                "ext4_da_write_begin: dev 7,3 ino 22 pos 0 len 120",
                "ext4:ext4_da_write_begin dev=7340035u ino=22u pos=0u len=120u",
            ),
            (
                "ext4_es_lookup_extent_exit: dev 7,3 ino 22 found 1 [4/32) 9029 UR",
                "ext4:ext4_es_lookup_extent_exit dev=7340035u ino=22u found=1u lblk=4u len=32u pblk=9029u",
            ),
            (
                "ext4_es_insert_extent: dev 7,3 ino 22 es [0/4) mapped 9025 status W",
                "ext4:ext4_es_insert_extent dev=7340035u ino=22u lblk=0u len=4u pblk=9025u",
            ),
            // No flags: nothing stands between their name and the next one.
            (
                "ext4_ext_map_blocks_exit: dev 7,3 ino 22 flags  lblk 4 pblk 9029 len 32 mflags NM ret -5",
                "ext4:ext4_ext_map_blocks_exit dev=7340035u ino=22u lblk=4u pblk=9029u len=32u ret=-5",
            ),
            (
                "mm_filemap_add_to_page_cache: dev 7:3 ino 1f pfn=0x12a ofs=8192 order=2",
                "filemap:mm_filemap_add_to_page_cache s_dev=7340035u i_ino=31u pfn=298u index=2u order=2u",
            ),
            (
                "mm_filemap_get_pages: dev=7:3 ino=1f ofs=4096-12287",
                "filemap:mm_filemap_get_pages s_dev=7340035u i_ino=31u index=1u last_index=2u",
            ),
            ("mm_filemap_fault: dev=7:3 ino=10 ofs=4096", "filemap:mm_filemap_fault s_dev=7340035u i_ino=16u index=1u"),
            (
                "page_cache_sync_ra: dev=7:3 ino=10 index=0 req_count=1",
                "readahead:page_cache_sync_ra s_dev=7340035u i_ino=16u index=0u req_count=1u",
            ),
            (
                "f2fs_write_begin: dev = (254,0), ino = 5, pos = 4096, len = 100",
                "f2fs:f2fs_write_begin dev=266338304u ino=5u pos=4096u len=100u",
            ),
            (
                "f2fs_map_blocks: dev = (254,0), ino = 5, file offset = 3, start blkaddr = 0x1000, len = 0x10, flags = 2, err = 0",
                "f2fs:f2fs_map_blocks dev=266338304u ino=5u m_lblk=3u m_pblk=4096u m_len=16u ret=0u",
            ),
            (
                "f2fs_submit_page_write: dev = (254,0), ino = 5, page_index = 0x3, oldaddr = 0xffffffff, newaddr = 0x1201, rw = WRITE(), type = WARM_DATA",
                "f2fs:f2fs_submit_page_write dev=266338304u ino=5u index=3u old_blkaddr=4294967295u new_blkaddr=4609u rw='WRITE()' type='WARM_DATA'",
            ),
            // Not of the kernel's form.
            ("ext4_mark: a=1", "ext4:ext4_mark a=1u"),
            ("mm_filemap_fault: dev=x ino=zz ofs=1", "filemap:mm_filemap_fault dev='x' ino='zz' ofs=1u"),
            ("<stack trace>", "none"),
            ("=> sym", "none"),
            ("", "none"),
        ] {
            assert_eq!(show(text), want, "{text}");
        }
    }
}
