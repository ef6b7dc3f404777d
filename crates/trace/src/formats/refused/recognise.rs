//! Patterns for single lines and for heads of files.

use super::find;
use crate::bytes::Endian;

pub(super) fn begins_json(lines: &[&[u8]]) -> bool {
    let first = lines.first().copied().unwrap_or_default();
    matches!(first, [b'{'] | [b'['] | [b'[', b'{' | b'"' | b']', ..] | [b'{', b'"' | b' ' | b'}', ..])
}

/// `WMI_BUFFER_HEADER`, then `SYSTEM_TRACE_HEADER`: a size, and a marker of version 2 with the flags 0xc0.
pub(super) fn is_etl(head: &[u8]) -> bool {
    let le = Endian::Little;
    let size = le.u32(head, 0).unwrap_or(0);
    let marker = head.get(0x48..0x4c);
    size.is_power_of_two() && size >= 1024 && marker.is_some_and(|m| matches!(m, [2, 0, 1 | 2, 0xc0]))
}

/// The number of numbers in a line; `None` if it has anything else.
pub(super) fn count_numbers(line: &[u8], separators: &[u8]) -> Option<usize> {
    let mut count = 0;
    let line = line.strip_prefix(b"[").and_then(|l| l.strip_suffix(b"]")).unwrap_or(line);
    for word in line.split(|b| separators.contains(b)).filter(|w| !w.is_empty()) {
        let digits = word.iter().filter(|b| b.is_ascii_digit()).count();
        if digits == 0 || !word.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-')) {
            return None;
        }
        count += 1;
    }
    (count > 0).then_some(count)
}

/// `128166372003061629,hm,1,Read,383496192,32768,413` and similar: a word for reading or writing, and three numbers.
pub(super) fn is_request_table(line: &[u8]) -> bool {
    let words: Vec<&[u8]> = line.split(|b| b" ,;\t".contains(b)).filter(|word| !word.is_empty()).collect();
    let number = |word: &&&[u8]| word.first().is_some_and(u8::is_ascii_digit) && count_numbers(word, b" ") == Some(1);
    let directions: &[&[u8]] = &[b"r", b"w", b"read", b"write", b"rs", b"ws"];
    let direction = |word: &&&[u8]| directions.iter().any(|known| word.eq_ignore_ascii_case(known));
    words.iter().filter(direction).count() == 1 && words.iter().filter(number).count() >= 3 && words.len() <= 12
}

/// `TIME, VALUE, DIRECTION, SIZE[, OFFSET[, PRIORITY]]`: the direction is 0, 1 or 2.
pub(super) fn is_fio_log(line: &[u8]) -> bool {
    let parts: Vec<&[u8]> = line.split(|&b| b == b',').map(<[u8]>::trim_ascii).collect();
    let number = |p: &&[u8]| !p.is_empty() && p.iter().all(|b| b.is_ascii_hexdigit() || *b == b'x');
    let size = |p: &[u8]| std::str::from_utf8(p).ok()?.parse::<u64>().ok();
    let fits = (4..=8).contains(&parts.len()) && parts.iter().all(number) && matches!(parts[2], b"0" | b"1" | b"2");
    fits && size(parts[3]).is_some_and(|bytes| bytes % 512 == 0)
}

/// `8 0 sda 1234 …`: eleven sums after a name, or eleven alone.
pub(super) fn is_diskstats(line: &[u8]) -> bool {
    let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).collect();
    let number = |w: &&[u8]| w.iter().all(u8::is_ascii_digit);
    let of_all = words.len() >= 14 && number(&words[0]) && number(&words[1]) && !number(&words[2]);
    of_all && words[3..].iter().all(number) || matches!(words.len(), 11 | 15 | 17) && words.iter().all(number)
}

/// `openat(AT_FDCWD, "x", O_RDONLY) = 3`, with or without a pid and a time before it.
pub(super) fn is_strace(line: &[u8]) -> bool {
    let Some(open) = line.iter().position(|&b| b == b'(') else {
        return line.starts_with(b"+++ ") || line.starts_with(b"--- SIG");
    };
    let name = line[..open].rsplit(|&b| b == b' ').next().unwrap_or_default();
    let called = !name.is_empty() && name.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_');
    called && (find(line, b") = ").is_some() || find(line, b")  ").is_some() || line.ends_with(b"<unfinished ...>"))
}

/// `firefox(1234): CWO /home/u/x`, with or without a time before it.
pub(super) fn is_fatrace(line: &[u8]) -> bool {
    let Some(end) = find(line, b"): ") else { return false };
    let Some(open) = line[..end].iter().rposition(|&b| b == b'(') else { return false };
    let pid = &line[open + 1..end];
    let mut rest = line[end + 3..].splitn(2, |&b| b == b' ');
    let (flags, path) = (rest.next().unwrap_or_default(), rest.next().unwrap_or_default().trim_ascii());
    let is_flag = |b: &u8| b"ROWC+D<>".contains(b);
    !pid.is_empty() && pid.iter().all(u8::is_ascii_digit) && flags.iter().all(is_flag) && path.starts_with(b"/")
}

/// `fio;entry_SYSCALL_64;vfs_read 12`
pub(super) fn is_folded_stack(line: &[u8]) -> bool {
    let Some(space) = line.iter().rposition(|&b| b == b' ') else { return false };
    let (stack, count) = (&line[..space], &line[space + 1..]);
    let frames = stack.split(|&b| b == b';').count();
    frames >= 3 && !count.is_empty() && count.iter().all(u8::is_ascii_digit) && !stack[0].is_ascii_digit()
}

/// `[    1.234567] text`
pub(super) fn is_dmesg(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"[") else { return false };
    let Some(end) = rest.iter().position(|&b| b == b']') else { return false };
    let time = rest[..end].trim_ascii();
    time.contains(&b'.') && time.iter().all(|b| b.is_ascii_digit() || *b == b'.')
}

/// `0.000 ( 0.005 ms): fio/900 pread64(…) = 4096`, or `0.010 fio/900 block:block_rq_issue(…)`: milliseconds, the duration of a call, and
/// the caller (`trace__fprintf_entry_head` of tools/perf/builtin-trace.c).
pub(super) fn is_perf_trace(line: &[u8]) -> bool {
    let end = line.iter().position(|&b| b == b' ').unwrap_or(line.len());
    let (time, rest) = (&line[..end], line[end..].trim_ascii());
    let parts: Vec<&[u8]> = time.split(|&b| b == b'.').collect();
    let digits = |part: &&[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if !(time == b"?" || parts.len() == 2 && parts.iter().all(digits) && parts[1].len() == 3) {
        return false;
    }
    if let Some(took) = rest.strip_prefix(b"(") {
        let took = find(took, b"): ").map(|end| took[..end].trim_ascii());
        return took.is_some_and(|took| took.is_empty() || took.ends_with(b" ms"));
    }
    // An event without a call: `SYSTEM:EVENT(` or `SYSTEM:EVENT:` after a name and a number.
    rest.split(|&b| b == b' ').skip_while(|word| !is_task(word)).nth(1).is_some_and(|word| {
        let name = word.split(|&b| b == b'(').next().unwrap_or_default();
        let name = name.strip_suffix(b":").unwrap_or(name);
        name.split(|&b| b == b':').count() == 2
            && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':'))
    })
}

/// `fio/900`
pub(super) fn is_task(word: &[u8]) -> bool {
    let slash = word.iter().rposition(|&b| b == b'/');
    slash.is_some_and(|at| at > 0 && at + 1 < word.len() && word[at + 1..].iter().all(u8::is_ascii_digit))
}

/// `1 12:00:00.0 0 fio (900) > pread fd=3`
pub(super) fn is_sysdig(line: &[u8]) -> bool {
    let words: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    words.len() > 6
        && words[0].iter().all(u8::is_ascii_digit)
        && words[1].contains(&b':')
        && words.iter().any(|w| matches!(*w, b">" | b"<"))
}

/// More than one control character that text never has in 32 bytes. Captures of a serial console have some.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    let bytes = &bytes[..bytes.len().min(1 << 12)];
    let control = |b: &&u8| b.is_ascii_control() && !b"\t\n\r\x08\x0c\x1b".contains(b);
    bytes.iter().filter(control).count() * 32 > bytes.len()
}

/// Magic numbers of file systems at their place in an image (fs/*/super.c, include/uapi/linux/magic.h), or a partition table.
pub(super) fn is_disk_image(bytes: &[u8]) -> bool {
    const MAGIC: &[(usize, &[u8])] = &[
        (0x438, b"\x53\xef"),
        (0x400, b"\x10\x20\xf5\xf2"),
        (0, b"XFSB"),
        (0, b"hsqs"),
        (0, b"UBI#"),
        (0, b"\x31\x18\x10\x06"),
        (0, b"\x85\x19"),
        (0, b"ANDR"),
        (0x200, b"EFI PART"),
        (0x400, b"\xe2\xe1\xf5\xe0"),
    ];
    let has = |&(at, magic): &(usize, &[u8])| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
    is_binary(bytes) && (MAGIC.iter().any(has) || bytes.get(510..512) == Some(b"\x55\xaa"))
}

/// `12,,block:block_rq_issue,1000,100.00,,` (perf stat -x,): a count or `<not counted>`, a unit, an event, and two numbers.
pub(super) fn is_perf_stat_csv(line: &[u8]) -> bool {
    let parts: Vec<&[u8]> = line.split(|&b| b == b',').collect();
    let number = |word: &[u8]| count_numbers(word, b" ") == Some(1);
    line.starts_with(b"# started on ")
        || parts.len() >= 5
            && (number(parts[0]) || parts[0].starts_with(b"<not "))
            && parts[2].len() > 2
            && parts[2].first().is_some_and(u8::is_ascii_alphabetic)
            && number(parts[3])
            && number(parts[4])
            && parts[4].contains(&b'.')
}

/// `00000010: 85 19 03 20`, `0000010 1985 2003`, `0x00000000: 85 19`: an address, and groups of two, four or eight digits.
pub(super) fn is_hex_dump(line: &[u8]) -> bool {
    let mut words = words(line);
    let is_hex = |word: &[u8]| word.iter().all(u8::is_ascii_hexdigit);
    let Some(address) = words.next() else { return false };
    let digits = address.strip_suffix(b":").unwrap_or(address);
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    let groups: Vec<&[u8]> = words.take(4).collect();
    let is_group = |word: &&[u8]| matches!(word.len(), 2 | 4 | 8) && is_hex(word);
    digits.len() >= 7 && is_hex(digits) && digits.starts_with(b"0") && groups.len() > 1 && groups.iter().all(is_group)
}

pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Whether the line has these words, in this order.
pub(super) fn has_words(line: &[u8], wanted: &str) -> bool {
    let mut words = words(line);
    wanted.split(' ').all(|wanted| words.any(|word| word == wanted.as_bytes()))
}

fn is_number(word: &[u8]) -> bool {
    !word.is_empty() && word.iter().all(u8::is_ascii_digit)
}

/// `[12:00:00.123456789] (+0.000100000) host event: { … }, { … }`. babeltrace 2 may print the trace's name first; with `--no-names`,
/// LTTng's text has the packet's context there.
pub(super) fn is_babeltrace(line: &[u8]) -> bool {
    let begins = [&b"["[..], b"Trace ", b"{ 0x"].iter().any(|begin| line.starts_with(begin));
    begins && line.ends_with(b"}") && find(line, b": { ").is_some()
}

/// `/tmp/ CLOSE_WRITE,CLOSE a`
pub(super) fn is_inotify(line: &[u8]) -> bool {
    const EVENTS: &[&[u8]] = &[
        b"ACCESS", b"MODIFY", b"ATTRIB", b"OPEN", b"CREATE", b"DELETE", b"MOVED_FROM", b"MOVED_TO", b"CLOSE_WRITE",
        b"CLOSE_NOWRITE",
    ];
    let mut words = words(line);
    let path = words.next().is_some_and(|path| path.contains(&b'/'));
    path && words.next().is_some_and(|events| events.split(|&b| b == b',').any(|event| EVENTS.contains(&event)))
}

/// `12 tail(1234): read(3, 4096) = 4096` (strace.stp) and `825946 3364 (NetworkManager) iotime /sys/x time: 9` (iotime.stp).
pub(super) fn is_systemtap(line: &[u8]) -> bool {
    let mut words = words(line);
    let (Some(first), Some(second)) = (words.next(), words.next()) else { return false };
    if !is_number(first) {
        return false;
    }
    if is_number(second) {
        return words.any(|word| word == b"access" || word == b"iotime");
    }
    let pid = second.strip_suffix(b"):").and_then(|task| task.rsplit(|&b| b == b'(').next());
    pid.is_some_and(is_number) && words.next().is_some_and(|call| call.contains(&b'('))
}

/// `[Thu Nov 26 12:00:00 2026] …`, `Nov 26 12:00:00 host …`, `2026-11-26T12:00:00… host …`, `11-26 12:00:00.123  1234  1245 I …`
pub(super) fn is_logged(line: &[u8]) -> bool {
    const MONTHS: &[&[u8]] =
        &[b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let is_clock = |word: &[u8]| {
        let parts: Vec<&[u8]> = word.split(|&b| b == b':').collect();
        parts.len() == 3
            && parts[..2].iter().all(|part| is_number(part))
            && parts[2].first().is_some_and(u8::is_ascii_digit)
    };
    let is_month = |word: &[u8]| MONTHS.contains(&word);
    let of: Vec<&[u8]> = words(line).take(4).collect();
    match of[..] {
        [day, month, date, clock] if day.starts_with(b"[") => is_month(month) && is_number(date) && is_clock(clock),
        [month, date, clock, _] if is_month(month) => is_number(date) && is_clock(clock),
        [date, clock, pid, tid] if is_number(pid) && is_number(tid) => {
            count_numbers(date, b"-").is_some() && is_clock(clock)
        }
        [stamp, ..] => match stamp.iter().position(|&b| b == b'T') {
            Some(at) => {
                at == 10 && is_clock(stamp[at + 1..].split(|b| b"+-Z.,".contains(b)).next().unwrap_or_default())
            }
            None => false,
        },
        [] => false,
    }
}

/// `00000000c0300044 cpu_v7_reset`; a letter between them and a module after them are optional.
pub(super) fn is_symbol(line: &[u8]) -> bool {
    let of: Vec<&[u8]> = words(line).take(5).collect();
    let is_name = |word: &[u8]| {
        !word.is_empty() && !is_number(word) && word.iter().all(|b| b.is_ascii_alphanumeric() || b"_.$".contains(b))
    };
    let is_address = |word: &[u8]| word.len() >= 8 && word.iter().all(u8::is_ascii_hexdigit);
    match of[..] {
        [address, name] => is_address(address) && is_name(name),
        [address, kind, name, ..] => is_address(address) && kind.len() == 1 && is_name(name),
        _ => false,
    }
}

/// `block:block_rq_issue`
pub(super) fn is_event_name(line: &[u8]) -> bool {
    let mut parts = line.split(|&b| b == b':');
    let is_name = |part: &[u8]| !part.is_empty() && part.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    parts.next().is_some_and(is_name) && parts.next().is_some_and(is_name) && parts.next().is_none()
}

/// `block_rq_issue: 8,0 WS 4096 () 16573296 + 8 [fio]`: a storage event with nothing before it.
pub(super) fn is_event_alone(line: &[u8]) -> bool {
    let groups = ["block_", "ext4_", "f2fs_", "jbd2_", "xfs_", "btrfs_", "mm_filemap_", "writeback_", "scsi_", "mmc_"];
    let word = line.split(u8::is_ascii_whitespace).next().and_then(|word| word.strip_suffix(b":"));
    word.is_some_and(|event| groups.iter().any(|group| event.starts_with(group.as_bytes())))
}
