//! What is no trace that is read, by what it is: each with what it lacks and what to do instead.

mod other_tools;

use super::{Head, blktrace::blkparse, ftrace, perf, text};
use crate::bytes::Endian;

/// What a file is or looks like, and how it is recognised.
struct Refused {
    /// Behind "looks like".
    what: &'static str,
    /// What is missing, and what to type.
    why: &'static str,
    is: fn(&Head, &[&[u8]]) -> bool,
}

const RECORD: &str = "record with `flashscope record --events block,syscall,cache -- COMMAND` or `blktrace -d DEVICE`";

const OWN_COLUMNS: &str = "blkparse's output in a format of its own (`-f` or `-F`)";
const COLUMNS_UNKNOWN: &str = "its columns are not known; run `blkparse -i NAME` without -f and -F, or give the blktrace files (NAME.blktrace.0 and so on)";

/// The line of an error about a file that is not read; `None`: its kind is unknown.
pub(crate) fn refusal(head: &Head) -> Option<String> {
    if head.bytes().is_empty() {
        return Some("is empty".to_string());
    }
    let mut lines: Vec<&[u8]> = head.lines().into_iter().map(<[u8]>::trim_ascii).filter(|l| !l.is_empty()).collect();
    // What a tool prints is text: lines of a binary file resemble it by chance.
    if other_tools::is_binary(head.bytes()) {
        lines.clear();
    } else if lines.is_empty() {
        return Some(format!("is a text of empty lines: nothing was recorded, or its contents were lost; {RECORD}"));
    }
    let found = ALL.iter().chain(other_tools::ALL).chain(MORE).find(|refused| (refused.is)(head, &lines))?;
    Some(format!("looks like {}: {}", found.what, found.why.replace("RECORD", RECORD)))
}

/// Magic numbers, and traces with something that is not read.
const ALL: &[Refused] = &[
    Refused {
        what: "text in UTF-16, as PowerShell's `>` writes it",
        why: "text of one byte a letter is read; convert it with `iconv -f UTF-16 -t UTF-8 FILE > FILE.txt`",
        is: |head, _| starts(head, &[b"\xff\xfe", b"\xfe\xff"]),
    },
    Refused {
        what: "text whose lines end with a carriage return alone",
        why: "lines end with a line feed; convert it with `tr '\\r' '\\n' < FILE > FILE.txt`",
        is: |head, _| text::has_lone_returns(head.bytes()),
    },
    Refused {
        what: "a trace's text with decimal commas",
        why: "a time has a point before its decimals; print it again with LC_ALL=C, or convert it with `sed -E 's/([0-9]),([0-9]{6})/\\1.\\2/' FILE > FILE.txt`",
        is: |_, lines| text::has_decimal_commas(lines),
    },
    Refused {
        what: "ftrace's text with counts instead of times (`trace-cmd report --raw-ts`, or the clock is counter or x86-tsc)",
        why: "it does not say how long a count is, so no duration follows; print it again without --raw-ts, or record again with another clock (trace-cmd: `-C mono`, else `echo mono > /sys/kernel/tracing/trace_clock`)",
        is: |_, lines| ftrace::of_raw_clock(lines),
    },
    Refused {
        what: "trace-cmd report's text of several files (`-i` more than once)",
        why: "devices and threads of two machines have the same numbers; print each file alone, or give the trace.dat files",
        is: |_, lines| ftrace::of_several_files(lines),
    },
    Refused {
        what: "perf script's text with times since the line before (`--deltatime`)",
        why: "they are rounded, and no duration of a request follows; print it with `perf script -F comm,pid,tid,cpu,time,event,trace`",
        is: |_, lines| perf::has_deltas(lines),
    },
    Refused { what: OWN_COLUMNS, why: COLUMNS_UNKNOWN, is: |_, lines| blkparse::has_changed_columns(lines) },
    Refused {
        what: "perf.data",
        why: "perf's binary file is not read; print it with `perf script -i FILE -F comm,pid,tid,cpu,time,event,trace > FILE.txt`, and read that",
        is: |head, _| starts(head, &[b"PERFILE2", b"2ELIFREP", b"PERFFILE"]),
    },
    Refused {
        what: "a CTF trace of LTTng or babeltrace",
        why: "CTF is not read; RECORD",
        is: |head, _| {
            starts(
                head,
                &[b"\xc1\x1f\xfc\xc1", b"\xc1\xfc\x1f\xc1", b"/* CTF 1.", b"\x75\xd1\x1d\x57", b"\x57\x1d\xd1\x75"],
            )
        },
    },
    Refused {
        what: "a capture of packets (pcap)",
        why: "it has no events of storage; RECORD",
        is: |head, _| {
            starts(
                head,
                &[
                    b"\xa1\xb2\xc3\xd4",
                    b"\xd4\xc3\xb2\xa1",
                    b"\xa1\xb2\x3c\x4d",
                    b"\x4d\x3c\xb2\xa1",
                    b"\x0a\x0d\x0d\x0a",
                ],
            )
        },
    },
    Refused {
        what: "an image of a file system or of a disk",
        why: "it has what was stored and not how; RECORD",
        is: |head, _| other_tools::is_disk_image(head.bytes()),
    },
    Refused {
        what: "a Windows event trace (ETL)",
        why: "flashscope reads traces of Linux; RECORD",
        is: |head, _| is_etl(head.bytes()),
    },
    Refused {
        what: "a program or a library (ELF)",
        why: "a trace is needed; to record what a program does: `flashscope record --events block,syscall,cache -- PROGRAM`",
        is: |head, _| starts(head, &[b"\x7fELF"]),
    },
    Refused {
        what: "an image",
        why: "it has no events; give the trace that it was drawn of",
        is: |head, _| {
            starts(head, &[b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"<svg", b"%PDF"])
                || starts(head, &[b"<?xml"]) && find(head.bytes(), b"<svg").is_some()
        },
    },
    Refused {
        what: "an archive or a packed file of another kind",
        why: "gzip, xz and zstd around one trace are read; unpack it, and name the trace in it",
        is: |head, _| is_archive(head),
    },
    Refused {
        what: "atrace's packed output (`atrace -z`)",
        why: "its text is read; record without -z, or unpack what follows TRACE: with zlib",
        is: |head, _| find(head.bytes(), b"TRACE:\n\x78").is_some(),
    },
    Refused {
        what: "a database of SQLite",
        why: "it has no events; RECORD",
        is: |head, _| starts(head, &[b"SQLite format 3"]),
    },
    Refused {
        what: "a Parquet table",
        why: "flashscope writes these and does not read them; give the trace that it was made of",
        is: |head, _| starts(head, &[b"PAR1"]),
    },
];

/// Tables by their heads, then what only looks so.
const MORE: &[Refused] = &[
    Refused {
        what: "flashscope's own JSON",
        why: "reports and exports are written and not read; give the trace that it was made of",
        is: |head, lines| {
            begins_json(lines)
                && (find(head.bytes(), b"\"schema\":").is_some() || find(head.bytes(), b"\"time_ns\":").is_some())
        },
    },
    Refused {
        what: "JSON",
        why: "no trace in JSON is read (of Perfetto its protobuf is, of Chrome's tracing none); RECORD",
        is: |_, lines| begins_json(lines),
    },
    Refused {
        what: "flashscope's own CSV",
        why: "exports are written and not read; give the trace that it was made of",
        is: |_, lines| first(lines, |l| l.starts_with(b"time_ns,cpu,") || l.starts_with(b"source,time_ns,")),
    },
    Refused {
        what: "biosnoop's table",
        why: "it has no queueing events, and one line an I/O when it ended; RECORD",
        is: |_, lines| {
            any(lines, |l| {
                all_in(l, &[b"TIME", b"COMM", b"DISK", b"LAT"]) || all_in(l, &[b"TIME", b"COMM", b"DEV", b"LAT"])
            })
        },
    },
    Refused {
        what: "iosnoop's table (perf-tools)",
        why: "it has no queueing events, and one line an I/O when it ended; RECORD",
        is: |_, lines| any(lines, |l| all_in(l, &[b"COMM", b"PID", b"TYPE", b"DEV", b"BLOCK", b"BYTES"])),
    },
    Refused {
        what: "a table of slow file operations (ext4slower, fileslower and their kin)",
        why: "it has no requests, and only operations above a limit; RECORD",
        is: |_, lines| {
            first(lines, |l| all_in(l, &[b"ENDTIME_us", b"TASK", b"LATENCY_us"]))
                || any(lines, |l| all_in(l, &[b"TIME", b"COMM", b"LAT(ms)", b"FILENAME"]))
                || any(lines, |l| l.starts_with(b"Tracing ") && find(l, b" slower than ").is_some())
        },
    },
    Refused {
        what: "a histogram (biolatency, iolatency, bitesize, bpftrace)",
        why: "it has counts and no requests; RECORD",
        is: |_, lines| {
            any(lines, |l| all_in(l, &[b": count", b"distribution"]) || all_in(l, &[b": I/O", b"Distribution"]))
                || any(lines, |l| l.ends_with(b"|") && l.contains(&b'@') && find(l, b"|").is_some())
                || any(lines, |l| l.starts_with(b"@") && find(l, b"]: ").is_some() && l.contains(&b'['))
                || most(lines, |l| l.starts_with(b"@") && find(l, b": ").is_some())
        },
    },
    Refused {
        what: "bpftrace's output",
        why: "its lines have no fixed form, so the steps of a request cannot be separated; RECORD",
        is: |_, lines| first(lines, |l| l.starts_with(b"Attaching ") && find(l, b" probe").is_some()),
    },
    Refused {
        what: "biotop's, filetop's or iotop's table",
        why: "it has sums of an interval and no requests; RECORD",
        is: |_, lines| {
            any(lines, |l| all_in(l, &[b"PID", b"COMM", b"DISK", b"Kbytes"]))
                || any(lines, |l| all_in(l, &[b"TID", b"COMM", b"READS", b"WRITES"]))
                || any(lines, |l| l.starts_with(b"Total DISK READ"))
                || any(lines, |l| all_in(l, &[b"TID", b"PRIO", b"DISK READ", b"COMMAND"]))
                // `iotop -bqq` has no head.
                || most(lines, |l| (all_in(l, &[b" be/"]) || all_in(l, &[b" rt/"])) && all_in(l, &[b"/s ", b" % "]))
        },
    },
    Refused {
        what: "btt's output",
        why: "it has sums and no requests; give the blktrace files that it was made of (NAME.blktrace.0 and so on)",
        is: |_, lines| {
            any(lines, |l| {
                find(l, b"==== All Devices ====").is_some() || l.starts_with(b"Q2C ") || l.starts_with(b"D2C ")
            }) || first(lines, |l| l == b"# Total System")
        },
    },
    Refused {
        what: "blkparse's summary",
        why: "the lines of its steps are missing; run `blkparse -i NAME` without -q and -s, or give the blktrace files",
        is: |_, lines| any(lines, |l| l.starts_with(b"Reads Queued:")),
    },
    Refused {
        what: "iostat's output",
        why: "it has means of an interval and no requests; RECORD",
        is: |_, lines| {
            any(lines, |l| {
                l.starts_with(b"Device") && (find(l, b"tps").is_some() || find(l, b"r/s").is_some())
                    || l.starts_with(b"avg-cpu:")
            })
        },
    },
    Refused {
        what: "sar's or pidstat's output",
        why: "it has means of an interval and no requests; RECORD",
        is: |_, lines| {
            any(lines, |l| all_in(l, &[b"DEV", b"tps", b"await"]) || all_in(l, &[b"UID", b"PID", b"kB_rd/s"]))
        },
    },
    Refused {
        what: "dstat's output",
        why: "it has means of an interval and no requests; RECORD",
        is: |_, lines| any(lines, |l| l.starts_with(b"----total") || all_in(l, &[b"-dsk/"])),
    },
    Refused {
        what: "a table of the page cache or of directories' names (cachestat, cachetop, vfsstat, dcstat)",
        why: "it has counts of an interval and no requests; RECORD",
        is: |_, lines| {
            any(lines, |l| {
                all_in(l, &[b"HITS", b"MISSES", b"DIRTIES"])
                    || all_in(l, &[b"READ/s", b"WRITE/s", b"CREATE/s"])
                    || all_in(l, &[b"REFS/s", b"MISS/s"])
            })
        },
    },
    Refused {
        what: "biopattern's table",
        why: "it has shares of an interval and no requests; RECORD",
        is: |_, lines| any(lines, |l| all_in(l, &[b"%RND", b"%SEQ"])),
    },
    Refused {
        what: "a table of opened files (opensnoop)",
        why: "it has no requests; RECORD",
        is: |_, lines| any(lines, |l| all_in(l, &[b"PID", b"COMM", b"FD", b"ERR", b"PATH"])),
    },
    Refused {
        what: "perf trace's output",
        why: "its lines name no CPU, and their times count from the start of perf trace; record with `perf record -e 'block:*' -a`, print with `perf script -F comm,pid,tid,cpu,time,event,trace`, and read that",
        is: |_, lines| most(lines, is_perf_trace),
    },
    Refused {
        what: "perf stat's output",
        why: "it has counts and no requests; RECORD",
        is: |_, lines| {
            any(lines, |l| l.starts_with(b"Performance counter stats for"))
                || most(lines, other_tools::is_perf_stat_csv)
        },
    },
    Refused {
        what: "sysdig's output",
        why: "it has system calls and no requests; RECORD",
        is: |_, lines| most(lines, is_sysdig),
    },
    Refused {
        what: "ioping's output",
        why: "it has how long its own requests took and none of others; run it under `flashscope record --events block,syscall -- ioping …`",
        is: |_, lines| any(lines, |l| all_in(l, &[b": request=", b" time="])),
    },
    Refused {
        what: "a table of the kernel's own (an event histogram, or counts of functions)",
        why: "it has sums and no events; RECORD",
        is: |_, lines| {
            any(lines, |l| l.starts_with(b"# event histogram") || all_in(l, &[b"Function", b"Hit", b"Time", b"Avg"]))
        },
    },
    Refused {
        what: "smartctl's output",
        why: "it has a drive's own counts and no requests; RECORD",
        is: |_, lines| first(lines, |l| l.starts_with(b"smartctl ")),
    },
    Refused {
        what: "vmstat's output",
        why: "it has means of an interval and no requests; RECORD",
        is: |_, lines| first(lines, |l| l.starts_with(b"procs ---")),
    },
    Refused {
        what: "/proc/diskstats or a device's stat file",
        why: "it has sums since boot and no requests; RECORD",
        is: |_, lines| most(lines, is_diskstats),
    },
    Refused {
        what: "a log of fio's (latency, bandwidth or IOPS)",
        why: "it says when fio saw an I/O end and not what the kernel did; run fio under `flashscope record --events block,syscall -- fio JOB`",
        is: |_, lines| most(lines, is_fio_log) || first(lines, |l| l.starts_with(b"fio version ") && l.len() < 40),
    },
    Refused {
        what: "fatrace's output",
        why: "it says which files were used, and has no requests and no durations; RECORD",
        is: |_, lines| most(lines, is_fatrace),
    },
    Refused {
        what: "stacks with counts (perf script | stackcollapse, for flame graphs)",
        why: "they have no times and no requests; RECORD",
        is: |_, lines| most(lines, is_folded_stack),
    },
    Refused {
        what: "perf report's output",
        why: "it has shares and no events; print the events of perf.data with `perf script -F comm,pid,tid,cpu,time,event,trace > FILE.txt`, and read that",
        is: |_, lines| any(lines, |l| l.starts_with(b"# Samples: ") || all_in(l, &[b"# Overhead", b"Symbol"])),
    },
    Refused {
        what: "the audit log",
        why: "it has system calls and no requests; RECORD",
        is: |_, lines| most(lines, |l| all_in(l, &[b"type=", b"msg=audit("])),
    },
    Refused {
        what: "what blktrace prints while it records",
        why: "the steps are in the files that it wrote; give those (NAME.blktrace.0 and so on)",
        is: |_, lines| any(lines, |l| all_in(l, &[b" events (dropped ", b" KiB data"])),
    },
    Refused {
        what: "a table of writes of md's flush (mdflush)",
        why: "it has no requests; RECORD",
        is: |_, lines| first(lines, |l| l.starts_with(b"TIME ") && all_in(l, &[b"PID", b"COMM", b"DEVICE"])),
    },
    Refused {
        what: "the output of one of bcc's tools",
        why: "it has counts or calls of functions, and no steps of a request; RECORD",
        is: |_, lines| {
            any(lines, |l| l.starts_with(b"Tracing ") && find(l, b"Ctrl-C").is_some())
                || first(lines, |l| all_in(l, &[b"PID ", b"TID ", b"COMM ", b"FUNC "]))
        },
    },
    Refused {
        what: "atop's, top's or nmon's output",
        why: "it has means of an interval and no requests; RECORD",
        is: |_, lines| {
            any(lines, |l| l.starts_with(b"ATOP - ") || l.starts_with(b"AAA,progname") || l.starts_with(b"top - "))
        },
    },
    Refused {
        what: "a task's counts (/proc/PID/io)",
        why: "it has sums since the task began and no requests; RECORD",
        is: |_, lines| any(lines, |l| l.starts_with(b"rchar: ")),
    },
    Refused {
        what: "a benchmark's output (dd, hdparm, sysbench, iozone, bonnie)",
        why: "it has sums and no requests; run it under `flashscope record --events block,syscall -- COMMAND`",
        is: |_, lines| {
            any(lines, |l| {
                l.ends_with(b" records in")
                    || l.starts_with(b"Timing buffered disk reads:")
                    || l.starts_with(b"Timing cached reads:")
                    || l.starts_with(b"sysbench ")
                    || l.starts_with(b"Iozone: ")
                    || all_in(l, &[b"Sequential Output", b"Sequential Input"])
            })
        },
    },
    Refused {
        what: "fio's output",
        why: "it has sums of a benchmark and no requests; run fio under `flashscope record --events block,syscall -- fio JOB`",
        is: |_, lines| any(lines, |l| find(l, b"rw=").is_some() && find(l, b"ioengine=").is_some()),
    },
    Refused {
        what: "strace's output",
        why: "it has system calls and no requests; `flashscope bench import-strace FILE --under DIR` makes a replay script of it; RECORD",
        is: |_, lines| most(lines, is_strace) || any(lines, |l| all_in(l, &[b"% time", b"usecs/call", b"syscall"])),
    },
    Refused {
        what: "the kernel's own lines about I/O (vm.block_dump, before Linux 5.13)",
        why: "they say when a bio was queued, and have no later step of it; RECORD",
        is: |_, lines| {
            any(lines, |l| {
                (find(l, b"): WRITE block ").or_else(|| find(l, b"): READ block "))).is_some()
                    && find(l, b" on ").is_some()
            })
        },
    },
    Refused {
        what: "the kernel's log (dmesg)",
        why: "it has no events of storage; RECORD",
        is: |_, lines| most(lines, is_dmesg),
    },
    Refused { what: OWN_COLUMNS, why: COLUMNS_UNKNOWN, is: |_, lines| blkparse::of_another_format(lines) },
    Refused {
        what: "perf script's text without the columns that are needed",
        why: "each line needs a name, a pid, a time and an event; print it with `perf script -F comm,pid,tid,cpu,time,event,trace`",
        is: |_, lines| {
            most(lines, |l| {
                [&b"block:block_"[..], b"syscalls:sys_", b"ext4:ext4_"].iter().any(|e| find(l, e).is_some())
                    || perf::lacks_event(l)
            })
        },
    },
    Refused {
        what: "a table of block requests (as SNIA, MSR, SPC, FIU and clouds publish them)",
        why: "it has a line a request, and no steps of it in the kernel, so none of its times follows; RECORD",
        is: |_, lines| most(lines, is_request_table),
    },
    Refused {
        what: "three numbers a line",
        why: "that is Flashmon's spatial view (counts of each block, not events), or blocks with their sizes and times; neither says \
              which program did it, whether it was read or written, or when it ended; of Flashmon give its temporal log, else RECORD",
        is: |_, lines| most(lines, |l| count_numbers(l, b" ;\t") == Some(3)),
    },
    Refused {
        what: "a table of numbers (addresses, sizes, times?)",
        why: "it does not say which number is what, which program did it, or when it ended; RECORD",
        is: |_, lines| most(lines, |l| count_numbers(l, b" ,;\t").is_some_and(|n| n > 1)),
    },
];

/// An archive, or a packed file that is not unpacked here.
pub(crate) fn is_archive(head: &Head) -> bool {
    let packed: &[&[u8]] =
        &[b"PK\x03\x04", b"BZh", b"\x04\x22\x4d\x18", b"7z\xbc\xaf", b"Rar!", b"LZIP", b"\x5d\x00\x00"];
    starts(head, packed) || head.bytes().get(257..262) == Some(b"ustar")
}

fn starts(head: &Head, with: &[&[u8]]) -> bool {
    with.iter().any(|bytes| head.bytes().starts_with(bytes))
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

fn all_in(line: &[u8], words: &[&[u8]]) -> bool {
    words.iter().all(|word| find(line, word).is_some())
}

fn first(lines: &[&[u8]], is: impl Fn(&[u8]) -> bool) -> bool {
    lines.first().is_some_and(|line| is(line))
}

/// One of the first lines: tables have titles and rulers before their heads.
fn any(lines: &[&[u8]], is: impl Fn(&[u8]) -> bool) -> bool {
    lines.iter().take(40).any(|line| is(line))
}

/// Most of the first lines.
fn most(lines: &[&[u8]], is: impl Fn(&[u8]) -> bool) -> bool {
    let first = &lines[..lines.len().min(40)];
    let like = first.iter().filter(|line| is(line)).count();
    like > 0 && like * 3 >= first.len() * 2
}

fn begins_json(lines: &[&[u8]]) -> bool {
    first(lines, |l| matches!(l, [b'{'] | [b'['] | [b'[', b'{' | b'"' | b']', ..] | [b'{', b'"' | b' ' | b'}', ..]))
}

/// `WMI_BUFFER_HEADER`, then `SYSTEM_TRACE_HEADER`: a size, and a marker of version 2 with the flags 0xc0.
fn is_etl(head: &[u8]) -> bool {
    let le = Endian::Little;
    let size = le.u32(head, 0).unwrap_or(0);
    let marker = head.get(0x48..0x4c);
    size.is_power_of_two() && size >= 1024 && marker.is_some_and(|m| matches!(m, [2, 0, 1 | 2, 0xc0]))
}

/// How many numbers a line is made of; `None`: there is something else in it.
fn count_numbers(line: &[u8], separators: &[u8]) -> Option<usize> {
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

/// `128166372003061629,hm,1,Read,383496192,32768,413` and its kin: a word for reading or writing, and three numbers.
fn is_request_table(line: &[u8]) -> bool {
    let words: Vec<&[u8]> = line.split(|b| b" ,;\t".contains(b)).filter(|word| !word.is_empty()).collect();
    let number = |word: &&&[u8]| word.first().is_some_and(u8::is_ascii_digit) && count_numbers(word, b" ") == Some(1);
    let directions: &[&[u8]] = &[b"r", b"w", b"read", b"write", b"rs", b"ws"];
    let direction = |word: &&&[u8]| directions.iter().any(|known| word.eq_ignore_ascii_case(known));
    words.iter().filter(direction).count() == 1 && words.iter().filter(number).count() >= 3 && words.len() <= 12
}

/// `TIME, VALUE, DIRECTION, SIZE[, OFFSET[, PRIORITY]]`: the direction is 0, 1 or 2.
fn is_fio_log(line: &[u8]) -> bool {
    let parts: Vec<&[u8]> = line.split(|&b| b == b',').map(<[u8]>::trim_ascii).collect();
    let number = |p: &&[u8]| !p.is_empty() && p.iter().all(|b| b.is_ascii_hexdigit() || *b == b'x');
    let size = |p: &[u8]| std::str::from_utf8(p).ok()?.parse::<u64>().ok();
    let fits = (4..=8).contains(&parts.len()) && parts.iter().all(number) && matches!(parts[2], b"0" | b"1" | b"2");
    fits && size(parts[3]).is_some_and(|bytes| bytes % 512 == 0)
}

/// `8 0 sda 1234 …`: eleven sums behind a name, or eleven alone.
fn is_diskstats(line: &[u8]) -> bool {
    let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).collect();
    let number = |w: &&[u8]| w.iter().all(u8::is_ascii_digit);
    let of_all = words.len() >= 14 && number(&words[0]) && number(&words[1]) && !number(&words[2]);
    of_all && words[3..].iter().all(number) || matches!(words.len(), 11 | 15 | 17) && words.iter().all(number)
}

/// `openat(AT_FDCWD, "x", O_RDONLY) = 3`, perhaps behind a pid and a time.
fn is_strace(line: &[u8]) -> bool {
    let Some(open) = line.iter().position(|&b| b == b'(') else {
        return line.starts_with(b"+++ ") || line.starts_with(b"--- SIG");
    };
    let name = line[..open].rsplit(|&b| b == b' ').next().unwrap_or_default();
    let called = !name.is_empty() && name.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_');
    called && (find(line, b") = ").is_some() || find(line, b")  ").is_some() || line.ends_with(b"<unfinished ...>"))
}

/// `firefox(1234): CWO /home/u/x`, perhaps behind a time.
fn is_fatrace(line: &[u8]) -> bool {
    let Some(end) = find(line, b"): ") else { return false };
    let Some(open) = line[..end].iter().rposition(|&b| b == b'(') else { return false };
    let pid = &line[open + 1..end];
    let mut rest = line[end + 3..].splitn(2, |&b| b == b' ');
    let (flags, path) = (rest.next().unwrap_or_default(), rest.next().unwrap_or_default().trim_ascii());
    let is_flag = |b: &u8| b"ROWC+D<>".contains(b);
    !pid.is_empty() && pid.iter().all(u8::is_ascii_digit) && flags.iter().all(is_flag) && path.starts_with(b"/")
}

/// `fio;entry_SYSCALL_64;vfs_read 12`
fn is_folded_stack(line: &[u8]) -> bool {
    let Some(space) = line.iter().rposition(|&b| b == b' ') else { return false };
    let (stack, count) = (&line[..space], &line[space + 1..]);
    let frames = stack.split(|&b| b == b';').count();
    frames >= 3 && !count.is_empty() && count.iter().all(u8::is_ascii_digit) && !stack[0].is_ascii_digit()
}

/// `[    1.234567] text`
fn is_dmesg(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"[") else { return false };
    let Some(end) = rest.iter().position(|&b| b == b']') else { return false };
    let time = rest[..end].trim_ascii();
    time.contains(&b'.') && time.iter().all(|b| b.is_ascii_digit() || *b == b'.')
}

/// `0.000 ( 0.005 ms): fio/900 pread64(…) = 4096`, or `0.010 fio/900 block:block_rq_issue(…)`: milliseconds, how long a call
/// took, and who called (`trace__fprintf_entry_head` of tools/perf/builtin-trace.c).
fn is_perf_trace(line: &[u8]) -> bool {
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
    // An event alone: `SYSTEM:EVENT(` or `SYSTEM:EVENT:` behind a name and a number.
    rest.split(|&b| b == b' ').skip_while(|word| !is_task(word)).nth(1).is_some_and(|word| {
        let name = word.split(|&b| b == b'(').next().unwrap_or_default();
        let name = name.strip_suffix(b":").unwrap_or(name);
        name.split(|&b| b == b':').count() == 2
            && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':'))
    })
}

/// `fio/900`
fn is_task(word: &[u8]) -> bool {
    let slash = word.iter().rposition(|&b| b == b'/');
    slash.is_some_and(|at| at > 0 && at + 1 < word.len() && word[at + 1..].iter().all(u8::is_ascii_digit))
}

/// `1 12:00:00.0 0 fio (900) > pread fd=3`
fn is_sysdig(line: &[u8]) -> bool {
    let words: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    words.len() > 6
        && words[0].iter().all(u8::is_ascii_digit)
        && words[1].contains(&b':')
        && words.iter().any(|w| matches!(*w, b">" | b"<"))
}
