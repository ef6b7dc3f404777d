//! All kinds of refused files. The first match names the file: magic numbers first, then headings of tables, then weaker patterns.

use super::Is::{By, Columns, First, Has, Line, Magic, Most, MostOf};
use super::{Refused, any, find, has, is_archive, most, recognise as like};
use crate::formats::{blktrace::blkparse, ftrace, perf, text};

const OWN_COLUMNS: &str = "blkparse's output in a format of its own (`-f` or `-F`)";
const COLUMNS_UNKNOWN: &str = "its columns are not known; run `blkparse -i NAME` without -f and -F, or give the blktrace files (NAME.blktrace.0 and so on)";
const SUMS: &str = "it has sums and no requests; RECORD";
const COUNTS: &str = "it has counts and no requests; RECORD";
const MEANS: &str = "it has means of an interval and no requests; RECORD";
const CALLS: &str = "it has system calls and no requests; RECORD";
const NO_QUEUEING: &str = "it has no queueing events, and one line an I/O when it ended; RECORD";
const NO_REQUESTS: &str = "it has no requests; RECORD";
const NO_EVENTS: &str = "it has no events; RECORD";
const NO_STORAGE: &str = "it has no events of storage; RECORD";
const DRIVES_OWN: &str = "it has a drive's own counts and no requests; RECORD";
const FILES_USED: &str = "it says which files were used, and has no requests and no durations; RECORD";
const NO_FORM: &str = "its lines have no fixed form, so the steps of a request cannot be separated; RECORD";
const OF_A_BENCHMARK: &str =
    "it has sums of a benchmark and no requests; run fio under `flashscope record --events block,syscall -- fio JOB`";
const OTHER_SYSTEM: &str = "flashscope reads traces of Linux; RECORD";
const LISTS: &str = "it has no events; give the trace itself";
const OUR_OWN: &str = "reports and exports are written and not read; give the trace that it was made of";

pub(super) const ALL: &[Refused] = &[
    Refused {
        what: "text in UTF-16, as PowerShell's `>` writes it",
        why: "text of one byte a letter is read; convert it with `iconv -f UTF-16 -t UTF-8 FILE > FILE.txt`",
        is: &[Magic(b"\xff\xfe"), Magic(b"\xfe\xff")],
    },
    Refused {
        what: "text whose lines end with a carriage return alone",
        why: "lines end with a line feed; convert it with `tr '\\r' '\\n' < FILE > FILE.txt`",
        is: &[By(|head, _| text::has_lone_returns(head.bytes()))],
    },
    Refused {
        what: "a trace's text with decimal commas",
        why: "a time has a point before its decimals; print it again with LC_ALL=C, or convert it with `sed -E 's/([0-9]),([0-9]{6})/\\1.\\2/' FILE > FILE.txt`",
        is: &[By(|_, lines| text::has_decimal_commas(lines))],
    },
    Refused {
        what: "ftrace's text with counts instead of times (`trace-cmd report --raw-ts`, or the clock is counter or x86-tsc)",
        why: "it does not say how long a count is, so no duration follows; print it again without --raw-ts, or record again with another clock (trace-cmd: `-C mono`, else `echo mono > /sys/kernel/tracing/trace_clock`)",
        is: &[By(|_, lines| ftrace::of_raw_clock(lines))],
    },
    Refused {
        what: "trace-cmd report's text of several files (`-i` more than once)",
        why: "devices and threads of two machines have the same numbers; print each file alone, or give the trace.dat files",
        is: &[By(|_, lines| ftrace::of_several_files(lines))],
    },
    Refused {
        what: "perf script's text with times since the line before (`--deltatime`)",
        why: "they are rounded, and no duration of a request follows; print it with `perf script -F comm,pid,tid,cpu,time,event,trace`",
        is: &[By(|_, lines| perf::has_deltas(lines))],
    },
    Refused { what: OWN_COLUMNS, why: COLUMNS_UNKNOWN, is: &[By(|_, lines| blkparse::has_changed_columns(lines))] },
    Refused {
        what: "perf.data",
        why: "perf's binary file is not read; print it with `perf script -i FILE -F comm,pid,tid,cpu,time,event,trace > FILE.txt`, and read that",
        is: &[Magic(b"PERFILE2"), Magic(b"2ELIFREP"), Magic(b"PERFFILE")],
    },
    Refused {
        what: "a CTF trace of LTTng or babeltrace",
        why: "CTF is not read; RECORD",
        is: &[
            Magic(b"\xc1\x1f\xfc\xc1"),
            Magic(b"\xc1\xfc\x1f\xc1"),
            Magic(b"/* CTF 1."),
            Magic(b"\x75\xd1\x1d\x57"),
            Magic(b"\x57\x1d\xd1\x75"),
        ],
    },
    Refused {
        what: "a capture of packets (pcap)",
        why: NO_STORAGE,
        is: &[
            Magic(b"\xa1\xb2\xc3\xd4"),
            Magic(b"\xd4\xc3\xb2\xa1"),
            Magic(b"\xa1\xb2\x3c\x4d"),
            Magic(b"\x4d\x3c\xb2\xa1"),
            Magic(b"\x0a\x0d\x0d\x0a"),
        ],
    },
    Refused {
        what: "an image of a file system or of a disk",
        why: "it has what was stored and not how; RECORD",
        is: &[By(|head, _| like::is_disk_image(head.bytes()))],
    },
    Refused { what: "a Windows event trace (ETL)", why: OTHER_SYSTEM, is: &[By(|head, _| like::is_etl(head.bytes()))] },
    Refused {
        what: "a program or a library (ELF)",
        why: "a trace is needed; to record what a program does: `flashscope record --events block,syscall,cache -- PROGRAM`",
        is: &[Magic(b"\x7fELF")],
    },
    Refused {
        what: "an image",
        why: "it has no events; give the trace that it was drawn of",
        is: &[
            Magic(b"\x89PNG"),
            Magic(b"\xff\xd8\xff"),
            Magic(b"GIF8"),
            Magic(b"RIFF"),
            Magic(b"<svg"),
            Magic(b"%PDF"),
            By(|head, _| head.bytes().starts_with(b"<?xml") && find(head.bytes(), b"<svg").is_some()),
        ],
    },
    Refused {
        what: "an archive or a packed file of another kind",
        why: "gzip, xz and zstd around one trace are read; unpack it, and name the trace in it",
        is: &[By(|head, _| is_archive(head))],
    },
    Refused {
        what: "atrace's packed output (`atrace -z`)",
        why: "its text is read; record without -z, or unpack what follows TRACE: with zlib",
        is: &[Has(b"TRACE:\n\x78")],
    },
    Refused { what: "a database of SQLite", why: NO_EVENTS, is: &[Magic(b"SQLite format 3")] },
    Refused {
        what: "a Parquet table",
        why: "flashscope writes these and does not read them; give the trace that it was made of",
        is: &[Magic(b"PAR1")],
    },
    Refused {
        what: "nothing but zeros",
        why: "it was never written, its contents were lost, or it is an image of a disk that begins so; RECORD",
        is: &[By(|head, _| head.bytes().iter().all(|&byte| byte == 0))],
    },
    Refused {
        what: "a report of Android (dumpstate, bugreport)",
        why: "it has the state of the system and no steps of requests; record with `perfetto` or `atrace disk sched`, or RECORD",
        is: &[Line("^== dumpstate: ")],
    },
    Refused {
        what: "trace-cmd dump's output",
        why: "it describes a trace.dat and has none of its events; give the trace.dat itself",
        is: &[Line("^Tracing meta data in file ")],
    },
    Refused {
        what: "a dump in hexadecimal (hexdump, xxd, od, nanddump)",
        why: "it has bytes and no events; give the file that it was made of",
        is: &[MostOf(like::is_hex_dump)],
    },
    Refused { what: "LTTng's text (babeltrace)", why: "it is not read; RECORD", is: &[MostOf(like::is_babeltrace)] },
    Refused {
        what: "counts of a function's arguments (argdist, funccount)",
        why: COUNTS,
        is: &[Columns("COUNT EVENT"), Columns("FUNC COUNT")],
    },
    Refused {
        what: "a histogram (biolatency, biolatpcts, bpftrace)",
        why: COUNTS,
        is: &[Columns("p1 p50 p99"), First("^{'ts': ")],
    },
    Refused { what: "fio's output in JSON", why: OF_A_BENCHMARK, is: &[Has(b"\"fio version\" :")] },
    Refused {
        what: "DTrace's output",
        why: OTHER_SYSTEM,
        is: &[First("^dtrace: "), Line("CPU|ID|FUNCTION:NAME"), Columns("UID PID D BLOCK SIZE COMM PATHNAME")],
    },
    Refused { what: "fs_usage's output", why: OTHER_SYSTEM, is: &[Most(" D=0x| B=0x")] },
    Refused {
        what: "a Windows event trace as text (xperf, WPR, tracerpt, Process Monitor)",
        why: OTHER_SYSTEM,
        is: &[
            First("^BeginHeader$"),
            First("^Event Name,"),
            First("^\"Time of Day\",\"Process Name\""),
            First("Windows Performance Recorder"),
            Has(b"<WindowsPerformanceRecorder"),
        ],
    },
    Refused { what: "XML", why: "no trace in XML is read; RECORD", is: &[First("^<?xml")] },
    Refused { what: "metrics for Prometheus", why: SUMS, is: &[Line("^# TYPE "), Line("^# HELP ")] },
    Refused {
        what: "inotifywait's output",
        why: FILES_USED,
        is: &[Line("^Watches established.$"), MostOf(like::is_inotify)],
    },
    Refused {
        what: "SystemTap's output",
        why: NO_FORM,
        is: &[MostOf(like::is_systemtap), Columns("UID PID PPID CMD DEVICE")],
    },
    Refused {
        what: "nvme's output (smart-log, list)",
        why: DRIVES_OWN,
        is: &[First("^Smart Log for NVME"), Columns("Node SN Model")],
    },
    Refused {
        what: "counts of NFS (mountstats, nfsiostat, nfsstat)",
        why: SUMS,
        is: &[First("^device | mounted on "), Line("ops/s|rpc bklog"), Line("^Client rpc stats")],
    },
    Refused {
        what: "vmstat's output",
        why: SUMS,
        is: &[First("^disk- ---"), First("reads|read sectors|writes"), Line(" total reads$")],
    },
    Refused {
        what: "counts of memory (free, /proc/meminfo, /proc/vmstat, wss)",
        why: SUMS,
        is: &[Line("^MemTotal: "), Line("^nr_free_pages "), Columns("total used free"), Line("RSS(MB)|PSS(MB)")],
    },
    Refused { what: "zpool iostat's output", why: MEANS, is: &[Columns("capacity operations bandwidth")] },
    Refused {
        what: "a list of devices or mounts (lsblk, df, mount)",
        why: NO_EVENTS,
        is: &[Columns("NAME MAJ:MIN"), First("Filesystem|Use%"), Most(" on /| type | (")],
    },
    Refused {
        what: "the system's log (dmesg -T, syslog, journalctl, logcat)",
        why: NO_STORAGE,
        is: &[First("^-- |begin"), First("^--------- beginning of "), First("^__CURSOR="), MostOf(like::is_logged)],
    },
    Refused {
        what: "the description of an event (tracefs's `format` files)",
        why: LISTS,
        is: &[By(|_, lines| matches!(lines, [first, second, ..] if has(first, "^name: ") && has(second, "^ID: ")))],
    },
    Refused {
        what: "a list of trace-cmd's (events, functions, statistics, a profile)",
        why: "it has no events with times; print them with `trace-cmd report -i FILE > FILE.txt`, or give the trace.dat itself",
        is: &[
            Line("^Kernel buffer statistics:$"),
            Line("^file is little endian"),
            By(|_, lines| ["^task: ", "^Event: "].iter().all(|begin| any(lines, |line| has(line, begin)))),
            MostOf(like::is_symbol),
            By(|_, lines| {
                any(lines, |line| has(line, "^ftrace:") || has(line, "^block:")) && most(lines, like::is_event_name)
            }),
        ],
    },
    Refused { what: "perf sched's output", why: NO_REQUESTS, is: &[Line("wait time|sch delay|run time")] },
    Refused { what: "a program's help", why: LISTS, is: &[First("^Usage: "), First("^usage: ")] },
    Refused {
        what: "a script",
        why: "a trace is needed; to record what a script does: `flashscope record --events block,syscall,cache -- SCRIPT`",
        is: &[First("^#!/")],
    },
    Refused {
        what: "flashscope's own JSON",
        why: OUR_OWN,
        is: &[By(|head, lines| {
            let own: [&[u8]; 2] = [b"\"schema\":", b"\"time_ns\":"];
            like::begins_json(lines) && own.iter().any(|member| find(head.bytes(), member).is_some())
        })],
    },
    Refused {
        what: "JSON",
        why: "no trace in JSON is read (of Perfetto its protobuf is, of Chrome's tracing none); RECORD",
        is: &[By(|_, lines| like::begins_json(lines))],
    },
    Refused { what: "flashscope's own CSV", why: OUR_OWN, is: &[First("^time_ns,cpu,"), First("^source,time_ns,")] },
    Refused {
        what: "biosnoop's table",
        why: NO_QUEUEING,
        is: &[Line("TIME|COMM|DISK|LAT"), Line("TIME|COMM|DEV|LAT")],
    },
    Refused { what: "iosnoop's table (perf-tools)", why: NO_QUEUEING, is: &[Line("COMM|PID|TYPE|DEV|BLOCK|BYTES")] },
    Refused {
        what: "a table of slow file operations (ext4slower, fileslower and their kin)",
        why: "it has no requests, and only operations above a limit; RECORD",
        is: &[First("ENDTIME_us|TASK|LATENCY_us"), Line("TIME|COMM|LAT(ms)|FILENAME"), Line("^Tracing | slower than ")],
    },
    Refused {
        what: "a histogram (biolatency, iolatency, bitesize, bpftrace)",
        why: COUNTS,
        is: &[
            Line(": count|distribution"),
            Line(": I/O|Distribution"),
            By(|_, lines| any(lines, |line| line.ends_with(b"|") && line.contains(&b'@'))),
            Line("^@|]: |["),
            Most("^@|: "),
        ],
    },
    Refused { what: "bpftrace's output", why: NO_FORM, is: &[First("^Attaching | probe")] },
    Refused {
        what: "biotop's, filetop's or iotop's table",
        why: "it has sums of an interval and no requests; RECORD",
        is: &[
            Line("PID|COMM|DISK|Kbytes"),
            Line("TID|COMM|READS|WRITES"),
            Line("^Total DISK READ"),
            Line("TID|PRIO|DISK READ|COMMAND"),
            // `iotop -bqq` prints no heading.
            MostOf(|line| (has(line, " be/") || has(line, " rt/")) && has(line, "/s | % ")),
        ],
    },
    Refused {
        what: "btt's output",
        why: "it has sums and no requests; give the blktrace files that it was made of (NAME.blktrace.0 and so on)",
        is: &[Line("==== All Devices ===="), Line("^Q2C "), Line("^D2C "), First("^# Total System$")],
    },
    Refused {
        what: "blkparse's summary",
        why: "the lines of its steps are missing; run `blkparse -i NAME` without -q and -s, or give the blktrace files",
        is: &[Line("^Reads Queued:")],
    },
    Refused { what: "iostat's output", why: MEANS, is: &[Line("^Device|tps"), Line("^Device|r/s"), Line("^avg-cpu:")] },
    Refused { what: "sar's or pidstat's output", why: MEANS, is: &[Line("DEV|tps|await"), Line("UID|PID|kB_rd/s")] },
    Refused { what: "dstat's output", why: MEANS, is: &[Line("^----total"), Line("-dsk/")] },
    Refused {
        what: "a table of the page cache or of directories' names (cachestat, cachetop, vfsstat, dcstat)",
        why: "it has counts of an interval and no requests; RECORD",
        is: &[Line("HITS|MISSES|DIRTIES"), Line("READ/s|WRITE/s|CREATE/s"), Line("REFS/s|MISS/s")],
    },
    Refused { what: "biopattern's table", why: MEANS, is: &[Line("%RND|%SEQ")] },
    Refused { what: "a table of opened files (opensnoop)", why: NO_REQUESTS, is: &[Line("PID|COMM|FD|ERR|PATH")] },
    Refused {
        what: "perf trace's output",
        why: "its lines name no CPU, and their times count from the start of perf trace; record with `perf record -e 'block:*' -a`, print with `perf script -F comm,pid,tid,cpu,time,event,trace`, and read that",
        is: &[MostOf(like::is_perf_trace)],
    },
    Refused {
        what: "perf stat's output",
        why: COUNTS,
        is: &[Line("^Performance counter stats for"), MostOf(like::is_perf_stat_csv)],
    },
    Refused { what: "sysdig's output", why: CALLS, is: &[MostOf(like::is_sysdig)] },
    Refused {
        what: "ioping's output",
        why: "it has how long its own requests took and none of others; run it under `flashscope record --events block,syscall -- ioping …`",
        is: &[Line(": request=| time=")],
    },
    Refused {
        what: "a table of the kernel's own (an event histogram, or counts of functions)",
        why: "it has sums and no events; RECORD",
        is: &[Line("^# event histogram"), Line("Function|Hit|Time|Avg")],
    },
    Refused { what: "smartctl's output", why: DRIVES_OWN, is: &[First("^smartctl ")] },
    Refused { what: "vmstat's output", why: MEANS, is: &[First("^procs ---")] },
    Refused { what: "/proc/diskstats or a device's stat file", why: SUMS, is: &[MostOf(like::is_diskstats)] },
    Refused {
        what: "a log of fio's (latency, bandwidth or IOPS)",
        why: "it says when fio saw an I/O end and not what the kernel did; run fio under `flashscope record --events block,syscall -- fio JOB`",
        is: &[MostOf(like::is_fio_log)],
    },
    Refused {
        what: "fio's list of I/O (iolog)",
        why: "it says what fio is to request and not what the kernel does; replay it under `flashscope record --events block,syscall -- fio --read_iolog=FILE JOB`",
        is: &[By(|_, lines| lines.first().is_some_and(|line| line.starts_with(b"fio version ") && line.len() < 40))],
    },
    Refused { what: "fatrace's output", why: FILES_USED, is: &[MostOf(like::is_fatrace)] },
    Refused {
        what: "stacks with counts (perf script | stackcollapse, for flame graphs)",
        why: "they have no times and no requests; RECORD",
        is: &[MostOf(like::is_folded_stack)],
    },
    Refused {
        what: "perf report's output",
        why: "it has shares and no events; print the events of perf.data with `perf script -F comm,pid,tid,cpu,time,event,trace > FILE.txt`, and read that",
        is: &[Line("^# Samples: "), Line("# Overhead|Symbol")],
    },
    Refused { what: "the audit log", why: CALLS, is: &[Most("type=|msg=audit(")] },
    Refused {
        what: "what blktrace prints while it records",
        why: "the steps are in the files that it wrote; give those (NAME.blktrace.0 and so on)",
        is: &[Line(" events (dropped | KiB data")],
    },
    Refused {
        what: "a table of writes of md's flush (mdflush)",
        why: NO_REQUESTS,
        is: &[First("^TIME |PID|COMM|DEVICE")],
    },
    Refused {
        what: "the output of one of bcc's tools",
        why: "it has counts or calls of functions, and no steps of a request; RECORD",
        is: &[Line("^Tracing |Ctrl-C"), First("PID |TID |COMM |FUNC ")],
    },
    Refused {
        what: "atop's, top's or nmon's output",
        why: MEANS,
        is: &[Line("^ATOP - "), Line("^AAA,progname"), Line("^top - ")],
    },
    Refused { what: "a task's counts (/proc/PID/io)", why: SUMS, is: &[Line("^rchar: ")] },
    Refused {
        what: "a benchmark's output (dd, hdparm, sysbench, iozone, bonnie)",
        why: "it has sums and no requests; run it under `flashscope record --events block,syscall -- COMMAND`",
        is: &[
            Line(" records in$"),
            Line("^Timing buffered disk reads:"),
            Line("^Timing cached reads:"),
            Line("^sysbench "),
            Line("^Iozone: "),
            Line("Sequential Output|Sequential Input"),
        ],
    },
    Refused { what: "fio's output", why: OF_A_BENCHMARK, is: &[Line("rw=|ioengine=")] },
    Refused {
        what: "strace's output",
        why: "it has system calls and no requests; `flashscope bench import-strace FILE --under DIR` makes a replay script of it; RECORD",
        is: &[MostOf(like::is_strace), Line("% time|usecs/call|syscall")],
    },
    Refused {
        what: "the kernel's own lines about I/O (vm.block_dump, before Linux 5.13)",
        why: "they say when a bio was queued, and have no later step of it; RECORD",
        is: &[Line("): WRITE block | on "), Line("): READ block | on ")],
    },
    Refused { what: "the kernel's log (dmesg)", why: NO_STORAGE, is: &[MostOf(like::is_dmesg)] },
    Refused { what: OWN_COLUMNS, why: COLUMNS_UNKNOWN, is: &[By(|_, lines| blkparse::of_another_format(lines))] },
    Refused {
        what: "perf script's text without the columns that are needed",
        why: "each line needs a name, a pid, a time and an event; print it with `perf script -F comm,pid,tid,cpu,time,event,trace`",
        is: &[MostOf(|line| {
            ["block:block_", "syscalls:sys_", "ext4:ext4_"].iter().any(|event| has(line, event))
                || perf::lacks_event(line)
        })],
    },
    Refused {
        what: "events of ftrace without the columns in front of them",
        why: "each line needs a task, a CPU and a time, else no duration follows; give the trace with them, or RECORD",
        is: &[MostOf(like::is_event_alone)],
    },
    Refused {
        what: "a table of block requests (as SNIA, MSR, SPC, FIU and clouds publish them)",
        why: "it has a line a request, and no steps of it in the kernel, so none of its times follows; RECORD",
        is: &[MostOf(like::is_request_table)],
    },
    Refused {
        what: "three numbers a line",
        why: "that is Flashmon's spatial view (counts of each block, not events), or blocks with their sizes and times; neither says \
              which program did it, whether it was read or written, or when it ended; of Flashmon give its temporal log, else RECORD",
        is: &[MostOf(|line| like::count_numbers(line, b" ;\t") == Some(3))],
    },
    Refused {
        what: "a table of numbers (addresses, sizes, times?)",
        why: "it does not say which number is what, which program did it, or when it ended; RECORD",
        is: &[MostOf(|line| like::count_numbers(line, b" ,;\t").is_some_and(|n| n > 1))],
    },
];
