//! Output of tools that count, list or log, and of other systems' tracers: none of it has the steps of a request.

use super::{Refused, all_in, any, count_numbers, find, first, most};
use crate::formats::Head;

const SUMS: &str = "it has sums and no requests; RECORD";
const MEANS: &str = "it has means of an interval and no requests; RECORD";
const OTHER_SYSTEM: &str = "flashscope reads traces of Linux; RECORD";
const LISTS: &str = "it has no events; give the trace itself";

/// Recognised by their heads; the first that fits names the file.
pub(super) const ALL: &[Refused] = &[
    Refused {
        what: "nothing but zeros",
        why: "it was never written, its contents were lost, or it is an image of a disk that begins so; RECORD",
        is: |head, _| is_zeros(head),
    },
    Refused {
        what: "a report of Android (dumpstate, bugreport)",
        why: "it has the state of the system and no steps of requests; record with `perfetto` or `atrace disk sched`, or RECORD",
        is: |_, lines| any(lines, |l| l.starts_with(b"== dumpstate: ")),
    },
    Refused {
        what: "trace-cmd dump's output",
        why: "it describes a trace.dat and has none of its events; give the trace.dat itself",
        is: |_, lines| any(lines, |l| l.starts_with(b"Tracing meta data in file ")),
    },
    Refused {
        what: "a dump in hexadecimal (hexdump, xxd, od, nanddump)",
        why: "it has bytes and no events; give the file that it was made of",
        is: |_, lines| most(lines, is_hex_dump),
    },
    Refused {
        what: "LTTng's text (babeltrace)",
        why: "it is not read; RECORD",
        is: |_, lines| most(lines, is_babeltrace),
    },
    Refused {
        what: "counts of a function's arguments (argdist, funccount)",
        why: "it has counts and no requests; RECORD",
        is: |_, lines| any(lines, |l| has_words(l, &[b"COUNT", b"EVENT"]) || has_words(l, &[b"FUNC", b"COUNT"])),
    },
    Refused {
        what: "a histogram (biolatency, biolatpcts, bpftrace)",
        why: "it has counts and no requests; RECORD",
        is: |_, lines| {
            any(lines, |l| has_words(l, &[b"p1", b"p50", b"p99"])) || first(lines, |l| l.starts_with(b"{'ts': "))
        },
    },
    Refused {
        what: "fio's output in JSON",
        why: "it has sums of a benchmark and no requests; run fio under `flashscope record --events block,syscall -- fio JOB`",
        is: |head, _| find(head.bytes(), b"\"fio version\" :").is_some(),
    },
    Refused {
        what: "DTrace's output",
        why: OTHER_SYSTEM,
        is: |_, lines| {
            first(lines, |l| l.starts_with(b"dtrace: "))
                || any(lines, |l| {
                    all_in(l, &[b"CPU", b"ID", b"FUNCTION:NAME"])
                        || has_words(l, &[b"UID", b"PID", b"D", b"BLOCK", b"SIZE", b"COMM", b"PATHNAME"])
                })
        },
    },
    Refused {
        what: "fs_usage's output",
        why: OTHER_SYSTEM,
        is: |_, lines| most(lines, |l| find(l, b" D=0x").is_some() && find(l, b" B=0x").is_some()),
    },
    Refused {
        what: "a Windows event trace as text (xperf, WPR, tracerpt, Process Monitor)",
        why: OTHER_SYSTEM,
        is: |head, lines| {
            first(lines, |l| {
                l == b"BeginHeader"
                    || l.starts_with(b"Event Name,")
                    || l.starts_with(b"\"Time of Day\",\"Process Name\"")
                    || find(l, b"Windows Performance Recorder").is_some()
            }) || find(head.bytes(), b"<WindowsPerformanceRecorder").is_some()
        },
    },
    Refused {
        what: "XML",
        why: "no trace in XML is read; RECORD",
        is: |_, lines| first(lines, |l| l.starts_with(b"<?xml")),
    },
    Refused {
        what: "metrics for Prometheus",
        why: SUMS,
        is: |_, lines| any(lines, |l| l.starts_with(b"# TYPE ") || l.starts_with(b"# HELP ")),
    },
    Refused {
        what: "inotifywait's output",
        why: "it says which files were used, and has no requests and no durations; RECORD",
        is: |_, lines| any(lines, |l| l == b"Watches established.") || most(lines, is_inotify),
    },
    Refused {
        what: "SystemTap's output",
        why: "its lines have no fixed form, so the steps of a request cannot be separated; RECORD",
        is: |_, lines| {
            most(lines, is_systemtap) || any(lines, |l| has_words(l, &[b"UID", b"PID", b"PPID", b"CMD", b"DEVICE"]))
        },
    },
    Refused {
        what: "nvme's output (smart-log, list)",
        why: "it has a drive's own counts and no requests; RECORD",
        is: |_, lines| {
            first(lines, |l| l.starts_with(b"Smart Log for NVME") || has_words(l, &[b"Node", b"SN", b"Model"]))
        },
    },
    Refused {
        what: "counts of NFS (mountstats, nfsiostat, nfsstat)",
        why: SUMS,
        is: |_, lines| {
            first(lines, |l| l.starts_with(b"device ") && find(l, b" mounted on ").is_some())
                || any(lines, |l| all_in(l, &[b"ops/s", b"rpc bklog"]) || l.starts_with(b"Client rpc stats"))
        },
    },
    Refused {
        what: "vmstat's output",
        why: SUMS,
        is: |_, lines| {
            first(lines, |l| l.starts_with(b"disk- ---") || all_in(l, &[b"reads", b"read sectors", b"writes"]))
                || any(lines, |l| l.ends_with(b" total reads"))
        },
    },
    Refused {
        what: "counts of memory (free, /proc/meminfo, /proc/vmstat, wss)",
        why: SUMS,
        is: |_, lines| {
            any(lines, |l| {
                l.starts_with(b"MemTotal: ")
                    || l.starts_with(b"nr_free_pages ")
                    || has_words(l, &[b"total", b"used", b"free"])
                    || all_in(l, &[b"RSS(MB)", b"PSS(MB)"])
            })
        },
    },
    Refused {
        what: "zpool iostat's output",
        why: MEANS,
        is: |_, lines| any(lines, |l| has_words(l, &[b"capacity", b"operations", b"bandwidth"])),
    },
    Refused {
        what: "a list of devices or mounts (lsblk, df, mount)",
        why: "it has no events; RECORD",
        is: |_, lines| {
            first(lines, |l| has_words(l, &[b"NAME", b"MAJ:MIN"]) || all_in(l, &[b"Filesystem", b"Use%"]))
                || most(lines, |l| all_in(l, &[b" on /", b" type ", b" ("]))
        },
    },
    Refused {
        what: "the system's log (dmesg -T, syslog, journalctl, logcat)",
        why: "it has no events of storage; RECORD",
        is: |_, lines| {
            first(lines, |l| {
                l.starts_with(b"-- ") && find(l, b"begin").is_some()
                    || l.starts_with(b"--------- beginning of ")
                    || l.starts_with(b"__CURSOR=")
            }) || most(lines, is_logged)
        },
    },
    Refused {
        what: "the description of an event (tracefs's `format` files)",
        why: LISTS,
        is: |_, lines| {
            first(lines, |l| l.starts_with(b"name: ")) && lines.get(1).is_some_and(|l| l.starts_with(b"ID: "))
        },
    },
    Refused {
        what: "a list of trace-cmd's (events, functions, statistics, a profile)",
        why: "it has no events with times; print them with `trace-cmd report -i FILE > FILE.txt`, or give the trace.dat itself",
        is: |_, lines| {
            any(lines, |l| l == b"Kernel buffer statistics:" || l.starts_with(b"file is little endian"))
                || any(lines, |l| l.starts_with(b"task: ")) && any(lines, |l| l.starts_with(b"Event: "))
                || most(lines, is_symbol)
                || any(lines, |l| l.starts_with(b"ftrace:") || l.starts_with(b"block:")) && most(lines, is_event_name)
        },
    },
    Refused {
        what: "perf sched's output",
        why: "it has no requests; RECORD",
        is: |_, lines| any(lines, |l| all_in(l, &[b"wait time", b"sch delay", b"run time"])),
    },
    Refused {
        what: "a program's help",
        why: LISTS,
        is: |_, lines| first(lines, |l| l.starts_with(b"Usage: ") || l.starts_with(b"usage: ")),
    },
    Refused {
        what: "a script",
        why: "a trace is needed; to record what a script does: `flashscope record --events block,syscall,cache -- SCRIPT`",
        is: |_, lines| first(lines, |l| l.starts_with(b"#!/")),
    },
];

fn is_zeros(head: &Head) -> bool {
    !head.bytes().is_empty() && head.bytes().iter().all(|&b| b == 0)
}

/// Control characters that no text has: more than one in 32 bytes. Captures of a serial console have some.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    let bytes = &bytes[..bytes.len().min(1 << 12)];
    let control = |b: &&u8| b.is_ascii_control() && !b"\t\n\r\x08\x0c\x1b".contains(b);
    bytes.iter().filter(control).count() * 32 > bytes.len()
}

/// Magic numbers of file systems where they stand in an image (fs/*/super.c, include/uapi/linux/magic.h), and a table of partitions.
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
fn is_hex_dump(line: &[u8]) -> bool {
    let mut words = words(line);
    let is_hex = |word: &[u8]| word.iter().all(u8::is_ascii_hexdigit);
    let Some(address) = words.next() else { return false };
    let digits = address.strip_suffix(b":").unwrap_or(address);
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    let groups: Vec<&[u8]> = words.take(4).collect();
    let is_group = |word: &&[u8]| matches!(word.len(), 2 | 4 | 8) && is_hex(word);
    digits.len() >= 7 && is_hex(digits) && digits.starts_with(b"0") && groups.len() > 1 && groups.iter().all(is_group)
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Whether the line has these words, in this order.
fn has_words(line: &[u8], wanted: &[&[u8]]) -> bool {
    let mut words = words(line);
    wanted.iter().all(|wanted| words.any(|word| word == *wanted))
}

fn is_number(word: &[u8]) -> bool {
    !word.is_empty() && word.iter().all(u8::is_ascii_digit)
}

/// `[12:00:00.123456789] (+0.000100000) host event: { … }, { … }`; babeltrace 2 may name the trace first, and LTTng's
/// `--no-names` has the packet's context there.
fn is_babeltrace(line: &[u8]) -> bool {
    let begins = [&b"["[..], b"Trace ", b"{ 0x"].iter().any(|begin| line.starts_with(begin));
    begins && line.ends_with(b"}") && find(line, b": { ").is_some()
}

/// `/tmp/ CLOSE_WRITE,CLOSE a`
fn is_inotify(line: &[u8]) -> bool {
    const EVENTS: &[&[u8]] = &[
        b"ACCESS",
        b"MODIFY",
        b"ATTRIB",
        b"OPEN",
        b"CREATE",
        b"DELETE",
        b"MOVED_FROM",
        b"MOVED_TO",
        b"CLOSE_WRITE",
        b"CLOSE_NOWRITE",
    ];
    let mut words = words(line);
    let path = words.next().is_some_and(|path| path.contains(&b'/'));
    path && words.next().is_some_and(|events| events.split(|&b| b == b',').any(|event| EVENTS.contains(&event)))
}

/// `12 tail(1234): read(3, 4096) = 4096` (strace.stp) and `825946 3364 (NetworkManager) iotime /sys/x time: 9` (iotime.stp).
fn is_systemtap(line: &[u8]) -> bool {
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
fn is_logged(line: &[u8]) -> bool {
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

/// `00000000c0300044 cpu_v7_reset`, perhaps with a letter between and a module behind.
fn is_symbol(line: &[u8]) -> bool {
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
fn is_event_name(line: &[u8]) -> bool {
    let mut parts = line.split(|&b| b == b':');
    let is_name = |part: &[u8]| !part.is_empty() && part.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    parts.next().is_some_and(is_name) && parts.next().is_some_and(is_name) && parts.next().is_none()
}
