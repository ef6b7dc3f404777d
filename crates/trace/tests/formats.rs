//! What is refused, by its name; packed traces.

use flashscope_trace::{Crossing, EventKind, Loss, SleepSource, TaskId, Trace, TraceKind};

fn of(bytes: &[u8]) -> Result<Trace, String> {
    Trace::from_bytes("given".as_ref(), bytes.into()).map_err(|e| e.to_string())
}

/// What each kind of file is called that is no trace, and what it is said to lack.
const REFUSED: &[(&[u8], &[&str])] = &[
    (b"", &["is empty"]),
    (b"PERFILE2\x68\0\0\0", &["perf.data", "perf script -i FILE -F"]),
    (b"\xc1\x1f\xfc\xc1rest", &["CTF"]),
    (b"\xd4\xc3\xb2\xa1\x02\0\x04\0", &["pcap"]),
    (b"PK\x03\x04\x14\0", &["archive", "unpack"]),
    (b"\x7fELF\x02\x01\x01", &["ELF", "-- PROGRAM"]),
    (b"\x89PNG\r\n\x1a\n", &["image"]),
    (b"TRACE:\n\x78\x9c\x01\x02", &["atrace -z", "without -z"]),
    (b"{\n  \"fio version\" : \"fio-3.33\",\n", &["fio's output in JSON", "-- fio JOB"]),
    (b"fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda read 0 4096\n", &["fio's list of I/O", "--read_iolog=FILE"]),
    (b"fio version 3 iolog\r\n0 /dev/nvme0n1 add\r\n2 /dev/nvme0n1 write 4096 8192\r\n", &["fio's list of I/O"]),
    (b"{\"schema\": 3, \"title\": \"x\"}", &["flashscope's own JSON"]),
    (b"{\"traceEvents\": []}", &["JSON", "protobuf"]),
    (b"[\n{\"a\": 1}]", &["JSON"]),
    (b"time_ns,cpu,tid,comm,kind\n1,0,1,a,b\n", &["flashscope's own CSV"]),
    (
        b"TIME(s)     COMM           PID     DISK    T SECTOR     BYTES  LAT(ms)\n0.000000    jbd2/sda-8     297     sda     W 12345      4096      0.33\n",
        &["biosnoop's table", "no queueing events", "flashscope record"],
    ),
    (
        b"Tracing block I/O. Ctrl-C to end.\nCOMM         PID    TYPE DEV      BLOCK        BYTES     LATms\nsupervise    1809   W    202,1    17039968     4096       1.32\n",
        &["iosnoop's table", "no queueing events"],
    ),
    (
        b"Tracing ext4 operations slower than 10 ms\nTIME     COMM           PID    T BYTES   OFF_KB   LAT(ms) FILENAME\n06:35:01 cron           16464  R 1249    0          16.05 common-auth\n",
        &["ext4slower", "no requests"],
    ),
    (
        b"Tracing block device I/O... Hit Ctrl-C to end.\n     usecs           : count     distribution\n         0 -> 1      : 0        |      |\n",
        &["histogram", "biolatency"],
    ),
    (b"Attaching 2 probes...\n\n@usecs: \n[64, 128)     3 |@@@@|\n", &["bpftrace"]),
    (b"==================== All Devices ====================\n\n            ALL           MIN\n", &["btt's output", "NAME.blktrace.0"]),
    (b"CPU0 (8,0):\n Reads Queued:           5,       20KiB\n", &["blkparse's summary", "blktrace files"]),
    (b"Linux 6.1.0 (host)  01/01/24  _x86_64_ (4 CPU)\n\navg-cpu:  %user   %nice\n", &["iostat"]),
    (b"Device            r/s     rkB/s   rrqm/s\nsda              1.00      4.00     0.00\n", &["iostat"]),
    (b"   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0\n", &["/proc/diskstats"]),
    (b"0, 95, 0, 4096, 0\n1, 83, 0, 4096, 4096\n2, 87, 1, 4096, 8192\n", &["fio's (latency", "-- fio JOB"]),
    (b"seq: (g=0): rw=read, bs=(R) 4096B-4096B, ioengine=psync, iodepth=1\n", &["fio's output"]),
    (
        b"execve(\"/bin/cat\", [\"cat\"], 0x7ffd /* 20 vars */) = 0\nopenat(AT_FDCWD, \"/etc/services\", O_RDONLY) = 3\n",
        &["strace's output", "no requests"],
    ),
    (b"1234 10:20:30.5 read(3, \"x\"..., 4096) = 4096\n", &["strace's output", "bench import-strace FILE --under DIR"]),
    (b"[    0.000000] Linux version 6.1\n[    0.100000] sda: ok\n", &["dmesg"]),
    (b"8,0 1 0.000001 Q W 1000\n8,0 1 0.000009 D W 1000\n", &["`-f`", "blkparse -i NAME"]),
    (b"0.000001;8,16;C;R;1000;8\n", &["`-f`"]),
    (b"    0.000000000, 102, work, Q, 2208\n    0.000285920, 102, work, G, 2208\n", &["`-f`"]),
    (b"Q RS 2208 8\nG RS 2208 8\n", &["`-f`"]),
    // blkparse's own heads with less behind them, other numbers behind them, a name where a completion has its error, times
    // without leading zeros, and completions alone of another form.
    (b"8,0    0        1     0.000000000   102  Q  RS\n8,0    0        2     0.000285920   102  C  RS\n", &["`-f`"]),
    (b"8,0    0        1     0.000000000   102  Q  RS 2208 8\n", &["`-f`"]),
    (
        b"8,0    0        1     0.000000000   102  Q  RS 2208 + 8 [work]\n8,0    0        2     0.000285920     0  C  RS 2208 + 8 [swapper]\n8,0    0        3     0.000285920     0  C  RS 2208 + 8 [swapper]\n",
        &["`-F`", "without -f and -F"],
    ),
    (b"8,0    0        1     0.0   102  Q  RS 2208 + 8 [work]\n8,0    0        1     0.285920   102  Q  RS 2208 + 8 [work]\n", &["`-f`"]),
    (b"8,0    0        1     0.000000000   102  Q  RS\nCPU0 (8,0):\n Reads Queued:           5,       20KiB\n", &["`-f`"]),
    (b">=(ms) .. <(ms)   : I/O      |Distribution                          |\n     0 -> 1       : 2104     |######|\n", &["histogram", "iolatency"]),
    (b"ENDTIME_us,TASK,PID,TYPE,BYTES,OFFSET_b,LATENCY_us,FILE\n1234,fio,900,R,4096,0,12000,data\n", &["ext4slower", "no requests"]),
    (b"@reads: 12\n@writes: 3\n", &["histogram", "bpftrace"]),
    (b"@bytes[fio]: 4096\n", &["bpftrace"]),
    (b"@[fio, 8388608]: count 5, average 4096, total 20480\n", &["bpftrace"]),
    (b"    HITS   MISSES  DIRTIES HITRATIO   BUFFERS_MB  CACHED_MB\n    1132        0        4  100.00%            8         900\n", &["cachestat"]),
    (b"TIME     DISK     %RND  %SEQ    COUNT     KBYTES\n19:02:06 vdb        62    37        8        160\n", &["biopattern"]),
    (b"cat block:block_rq_issue: 8,0 R 4096 () 0 + 8 [cat]\n", &["perf script", "-F comm,pid"]),
    (b"     cat    77 [000] 5120.900000: 8,0 R 4096 () 0 + 8 [cat]\n", &["perf script", "an event"]),
    (b"2048, 8, 0\n4096, 16, 120\n1048576, 256, 431\n", &["table of numbers", "which program did it"]),
    (b"[2048, 8, 0]\n[4096, 16, 120]\n", &["table of numbers"]),
    (b"LBA,SIZE,TIME\n2048,8,0.5\n4096,16,120.25\n1,2,3\n", &["table of numbers"]),
    (b"\xff\xfe#\0 \0t\0", &["UTF-16", "iconv"]),
    (
        b"# tracer: nop\n             fio-900     [001] d..1.    1024: block_rq_issue: 8,0 R 4096 () 0 + 8 [fio]\n",
        &["counts instead of times", "trace_clock", "trace-cmd report --raw-ts"],
    ),
    (b"TID     COMM             READS  WRITES R_Kb    W_Kb    T FILE\n900     fio              10     0      40      0       R data\n", &["filetop"]),
    (b"PID    COMM               FD ERR PATH\n900    fio                 3   0 /data/x\n", &["opensnoop", "no requests"]),
    (b" Performance counter stats for 'system wide':\n\n 300 block:block_rq_issue\n", &["perf stat's output"]),
    (b"4 KiB <<< . (ext4 /dev/sda1): request=1 time=89.5 us\n", &["ioping"]),
    (b"DEV       tps     rkB/s     wkB/s   await\nsda      1.00      4.00      0.00    0.50\n", &["sar's or pidstat's"]),
    (b"UID       PID   kB_rd/s   kB_wr/s Command\n0         900     40.00      0.00 fio\n", &["sar's or pidstat's"]),
    (b"----total-usage---- -dsk/total-\nusr sys idl wai stl| read  writ\n", &["dstat"]),
    (b"0.000 ( 0.005 ms): fio/900 read(fd: 3) = 4096\n0.010 ( 0.005 ms): fio/900 read(fd: 3) = 4096\n", &["perf trace", "perf script -F"]),
    (b"     0.000 my fio/900 block:block_rq_issue(dev: 8388608, sector: 8, nr_sector: 8)\n", &["perf trace"]),
    (b"     0.010 (         ): block:block_rq_issue:8,0 R 4096 () 0 + 8 [fio]\n", &["perf trace"]),
    // Times, slashes and brackets in another order are no perf trace's.
    (b"0.010 /dev/sda (disk):x\n0.020 /dev/sdb (disk):y\n", &["not a trace that flashscope reads"]),
    (b"0.5 a/b (c) d:e\n", &["not a trace that flashscope reads"]),
    (b"[10:00:00.000000001] (+0.000000100) vm block_rq_issue: { cpu_id = 0 }, { dev = 8388608 }\n", &["LTTng"]),
    (b"1 12:00:00.000000001 0 fio (900) > read fd=3 size=4096\n", &["sysdig"]),
    (b"# event histogram\n#\n{ common_pid: 900 } hitcount: 3\n", &["event histogram"]),
    (b"\n\n", &["empty lines", "flashscope record"]),
    // Of three of them the first two are the beginning of a packet of Perfetto.
    (b"\n\n\n", &["empty lines"]),
    (&[b'\n'; 40], &["empty lines"]),
    (b"========\n== dumpstate: 2026-11-27 12:00:00\n========\nBuild: AOSP\n", &["Android", "atrace"]),
    (
        b"\n Tracing meta data in file trace.dat:\n\t[Initial format]\n\t\t7\t[Version]\n",
        &["trace-cmd dump", "trace.dat itself"],
    ),
    (b"0x00000000: 85 19 03 20 0c 00 00 00 b1 b0 1e e4\n", &["hexadecimal"]),
    (b"0000000 1985 2003 000c 0000\n0000010 b0b1 e41e 0000 0000\n0000020\n", &["hexadecimal"]),
    (b"# Total System\n#     Total System : q activity\n  0.000000000   0.0\n", &["btt's output"]),
    (
        b"# started on Fri Nov 27 12:00:00 2026\n\n12,,block:block_rq_issue,1001,100.00,,\n<not counted>,,block:x,0,0.00,,\n",
        &["perf stat"],
    ),
    (b"__CURSOR=s=abc;i=1\n__REALTIME_TIMESTAMP=17\nMESSAGE=hello\n", &["system's log", "journalctl"]),
    (b"XFSB\0\0\x10\0\0\0\0\0\0\x01\0\0", &["image of a file system", "flashscope record"]),
    (b"\x01\x02@[\x03\0]: \x04\n@x\x05|\x06\0", &["not a trace that flashscope reads"]),
    (b"smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.1.0] (local build)\n", &["smartctl"]),
    (
        b"[12:00:01]\np::__vfs_read(struct file *file, void *buf, size_t count):size_t:count\n\tCOUNT      EVENT\n\t12         count = 4096\n",
        &["argdist", "counts"],
    ),
    (
        b"nvme0n1    p1    p5   p10   p16   p25   p50   p75   p84   p90   p95   p99  p100\nread     95us 175us 305us 515us 895us  985us 995us 1.5ms 2.5ms 3.5ms 4.5ms  10ms\nwrite     5us   5us   5us  15us  25us 135us 765us 855us 885us 895us 965us 1.5ms\ndiscard   5us   5us   5us   5us 135us 145us 165us 205us 385us 875us 1.5ms 2.5ms\n",
        &["biolatpcts"],
    ),
    (
        b"{'ts': '2020-12-30 14:33:03', 'val_type': 'usecs', 'data': [{'interval-start': 0, 'interval-end': 1, 'count': 0}]}\n",
        &["histogram"],
    ),
    (
        b"fio: this platform does not support process shared mutexes, forcing use of threads.\n{\n  \"fio version\" : \"fio-3.33\",\n  \"jobs\" : [ ]\n",
        &["fio's output in JSON"],
    ),
    (
        b"dtrace: script './iosnoop.d' matched 4 probes\nCPU     ID                    FUNCTION:NAME\n  0   1234                       bdev_strategy:start sd0 4096\n  1   1235                       biodone:done sd0 4096\n",
        &["DTrace"],
    ),
    (
        b"  UID   PID D    BLOCK   SIZE       COMM PATHNAME\n    0   337 W  1234567   4096     launchd /private/var/x\n  501   400 R  1234588   8192     Finder ??/a\n",
        &["DTrace", "traces of Linux"],
    ),
    (
        b"12:00:01.123456  RdData[A]       D=0x0123456  B=0x1000   /dev/disk1s1  /Users/u/x         0.000345 W Finder.1234\n12:00:01.123556  WrData[A]       D=0x0123457  B=0x1000   /dev/disk1s1  /Users/u/x         0.000145 W Finder.1234\n",
        &["fs_usage"],
    ),
    (
        b"BeginHeader\n            DiskRead,  TimeStamp,     Process Name ( PID),   ThreadID,             IrpPtr,   ByteOffset,     IOSize, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, I/O Pri,  VolSnap,         FileObject, FileName\nEndHeader\n            DiskRead,     123456,     svchost.exe (1234),       5678, 0xffffe00012345678, 0x0012345000, 0x00001000,         345,        0, 0x060043,         340, Normal, , 0xffffe00012345000, \"C:\\x\"\n",
        &["Windows event trace as text"],
    ),
    (
        b"Event Name,       Type,   Event ID,    Version,    Channel,      Level,     Opcode,       Task,            Keyword,        PID,        TID, Processor Number, Instance ID, Parent Instance ID, Activity ID, Related Activity ID,          Clock-Time,      Kernel(ms),        User(ms),  User Data\nDiskIo, Read, 0, 3, 0, 0, 10, 0, 0x0, 1234, 5678, 0, , , , , 133500000000000000, 0, 0, 0, 4096\n",
        &["Windows event trace as text"],
    ),
    (
        b"\"Time of Day\",\"Process Name\",\"PID\",\"Operation\",\"Path\",\"Result\",\"Detail\"\n\"12:00:01.1234567 PM\",\"explorer.exe\",\"1234\",\"ReadFile\",\"C:\\x\",\"SUCCESS\",\"Offset: 0, Length: 4,096\"\n",
        &["Windows event trace as text"],
    ),
    (
        b"Microsoft Windows Performance Recorder Version 10.0.19041 (CoreSystem)\nCopyright (c) 2019 Microsoft Corporation. All rights reserved.\n\nWPR recording is in progress...\n",
        &["Windows event trace as text"],
    ),
    (
        b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<WindowsPerformanceRecorder Version=\"1.0\"><Profiles></Profiles></WindowsPerformanceRecorder>\n",
        &["Windows event trace as text"],
    ),
    (
        b"# HELP ebpf_exporter_bio_latency_seconds Block IO latency histogram\n# TYPE ebpf_exporter_bio_latency_seconds histogram\nebpf_exporter_bio_latency_seconds_bucket{device=\"sda\",operation=\"read\",le=\"1e-06\"} 0\n",
        &["Prometheus"],
    ),
    (
        b"Setting up watches.  Beware: since -r was given, this may take a while!\nWatches established.\n/tmp/ CREATE a\n/tmp/ OPEN a\n",
        &["inotifywait's"],
    ),
    (
        b"/tmp/ CREATE a\n/tmp/ OPEN a\n/tmp/ CLOSE_WRITE,CLOSE a\n",
        &["inotifywait's"],
    ),
    (
        b"0 tail(1234): open(\"/etc/passwd\", O_RDONLY) \n12 tail(1234): read(3, 4096) = 4096\n",
        &["SystemTap's"],
    ),
    (
        b"825946 3364 (NetworkManager) access /sys/class/net/eth0/carrier read: 8190 write: 0\n825955 3364 (NetworkManager) iotime /sys/class/net/eth0/carrier time: 9\n",
        &["SystemTap's"],
    ),
    (
        b"\nThu Nov 26 12:00:00 2026 , Average:   0Kb/sec, Read:       7Kb, Write:      0Kb\n\n     UID      PID     PPID                       CMD   DEVICE    T        BYTES\n",
        &["SystemTap's"],
    ),
    (
        b"Smart Log for NVME device:nvme0n1 namespace-id:ffffffff\ncritical_warning\t\t\t: 0\ntemperature\t\t\t\t: 38 C (311 Kelvin)\navailable_spare\t\t\t\t: 100%\n",
        &["nvme's output"],
    ),
    (
        b"Node                  SN                   Model                                    Namespace Usage                      Format           FW Rev  \n--------------------- -------------------- ---------------------------------------- --------- -------------------------- ---------------- --------\n/dev/nvme0n1          S1                   X                                        1          10.00  GB /  20.00  GB    512   B +  0 B   1\n",
        &["nvme's output"],
    ),
    (
        b"device rootfs mounted on / with fstype rootfs\ndevice proc mounted on /proc with fstype proc\ndevice 10.0.0.1:/export mounted on /mnt with fstype nfs4 statvers=1.1\n\topts:\trw,vers=4.2\n",
        &["NFS"],
    ),
    (
        b"\n10.0.0.1:/export mounted on /mnt:\n\n           ops/s       rpc bklog\n",
        &["NFS"],
    ),
    (
        b"disk- ------------reads------------ ------------writes----------- -----IO------\n       total merged sectors      ms  total merged sectors      ms    cur    sec\nsda     1234     10   98765    1000   2345     20   87654    2000      0      3\nloop0      0      0       0       0      0      0       0       0      0      0\n",
        &["vmstat's"],
    ),
    (
        b"           10 disks\n            2 partitions\n         1234 total reads\n           10 merged reads\n",
        &["vmstat's"],
    ),
    (
        b"sda1          reads   read sectors  writes    requested writes\n                1234       98765       2345       87654\n",
        &["vmstat's"],
    ),
    (
        b"               total        used        free      shared  buff/cache   available\nMem:         1000000      100000      800000           0      100000      850000\nSwap:              0           0           0\n",
        &["counts of memory"],
    ),
    (
        b"MemTotal:        1000000 kB\nMemFree:          800000 kB\n",
        &["counts of memory"],
    ),
    (
        b"              capacity     operations     bandwidth \npool        alloc   free   read  write   read  write\n----------  -----  -----  -----  -----  -----  -----\ntank        1.00G  10.0G      1      2  4.00K  8.00K\n",
        &["zpool iostat"],
    ),
    (
        b"NAME        MAJ:MIN RM  SIZE RO TYPE MOUNTPOINTS\nmmcblk0     179:0    0 14.6G  0 disk \n",
        &["lsblk"],
    ),
    (
        b"[Thu Nov 26 12:00:00 2026] Booting Linux on physical CPU 0x0\n[Thu Nov 26 12:00:01 2026] mmc0: new high speed SD card\n[Thu Nov 26 12:00:02 2026] blk_update_request: I/O error, dev sda, sector 1234\n",
        &["the system's log"],
    ),
    (
        b"Nov 26 12:00:00 board kernel: [    0.000000] Booting Linux on physical CPU 0x0\nNov 26 12:00:01 board kernel: [    1.234567] mmc0: new high speed SD card\nNov 26 12:00:02 board systemd[1]: Started x.\n",
        &["the system's log"],
    ),
    (
        b"-- Journal begins at Thu 2026-11-26 12:00:00 UTC. --\nNov 26 12:00:00 board kernel: Booting Linux on physical CPU 0x0\nNov 26 12:00:02 board systemd[1]: Started x.\n",
        &["the system's log"],
    ),
    (
        b"--------- beginning of main\n11-26 12:00:00.123  1234  1245 I ActivityManager: Start proc 1\n11-26 12:00:00.223  1234  1245 D Zygote  : x\n",
        &["the system's log"],
    ),
    (
        b"name: block_rq_issue\nID: 1234\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n",
        &["description of an event"],
    ),
    (
        b"            time    cpu  task name                       wait time  sch delay   run time\n                         [tid/pid]                          (msec)     (msec)     (msec)\n--------------- ------  ------------------------------  ---------  ---------  ---------\n   12345.678901 [0000]  dd[1234]                            0.000      0.000      0.123\n",
        &["perf sched's"],
    ),
    (
        b"Usage: blktrace version 2.0.0\n-d <dev>             | --dev=<dev>\n",
        &["a program's help"],
    ),
    (
        b"#!/bin/sh\nblktrace -d /dev/sda -o - | blkparse -i -\n",
        &["a script", "-- SCRIPT"],
    ),
    (
        b"Trace 0, stream 0, [12:00:00.123456789] block_rq_issue: { cpu_id = 0 }, { dev = 8388608, sector = 100 }\nTrace 0, stream 0, [12:00:00.123556789] block_rq_complete: { cpu_id = 0 }, { dev = 8388608 }\n",
        &["LTTng"],
    ),
    (
        b"{ 0x1000, 0x0, 200 } 12:00:00.123456789 block_rq_issue: { dev = 8388608, sector = 100 }\n",
        &["LTTng"],
    ),
    (b"Kernel buffer statistics:\n  Note: \"entries\" are the entries left in the kernel ring buffer\n", &["a list of trace-cmd's", "trace-cmd report -i FILE"]),
    (b"cpus=2\n\ntask: <idle>-0\n  Event: block_rq_complete:0xfe00000 (2)\n", &["a list of trace-cmd's"]),
    (b"00000000c0300044 cpu_v7_reset\n00000000c0300048 cpu_v7_switch_mm\n", &["a list of trace-cmd's"]),
    (b"block:block_rq_issue\nblock:block_rq_complete\n", &["a list of trace-cmd's"]),
    (b"\0\0\0\0\0\0\0\0", &["nothing but zeros"]),
    (b"<?xml version=\"1.0\"?>\n<svg width=\"1\"/>\n", &["an image"]),
    (b"<?xml version=\"1.0\"?>\n<a/>\n", &["XML"]),
    // JSON that looks a little like LTTng's text, and a list that is of no tracer.
    (b"{ \"a\": { \"b\": 1 } }\n", &["JSON"]),
    (b"key:value\nother:value\n", &["not a trace that flashscope reads"]),
    (
        b"# tracer: nop\r#\r   fio-900 [001] d..1. 1.024000: block_rq_issue: 8,0 R 4096 () 0 + 8 [fio]\r",
        &["a carriage return alone", "tr '\\r'"],
    ),
    (
        b"# tracer: nop\n   fio-900 [001] d..1. 1,024000: block_rq_issue: 8,0 R 4096 () 0 + 8 [fio]\n",
        &["decimal commas", "LC_ALL=C", "sed -E"],
    ),
    (b"  8,0    0        1     0,000000000   102  Q  RS 2208 + 8 [work]\n", &["decimal commas"]),
    (
        b"block_bio_queue: 8,32 R 86925864 + 2144 [Thread-51]\nblock_split: 8,32 R 86925864 / 86926888 [Thread-51]\n",
        &["events of ftrace without the columns", "a task, a CPU and a time"],
    ),
    (
        b"f2fs_submit_write_bio: dev = (259,0)/(259,0), rw = WRITE(S), DATA, sector = 53256, size = 4096\n",
        &["events of ftrace without the columns"],
    ),
    (b"fio 900 [001] 1,024000: block:block_rq_issue: 8,0 R 4096 () 0 + 8 [fio]\n", &["decimal commas"]),
    (b"64 0 3\n1 2 0\n", &["three numbers a line", "spatial view", "blocks with their sizes and times"]),
    (b"Dear reader, this is no trace.\n", &["not a trace that flashscope reads", "report --help"]),
    (b"\xfe\xfd\x00\x01\x02", &["not a trace that flashscope reads"]),
];

/// Refused files whose heads are longer than one cares to write out.
fn refused_with_long_heads() -> Vec<(Vec<u8>, &'static [&'static str])> {
    let mut etl = vec![0u8; 200];
    etl[..4].copy_from_slice(&0x1_0000u32.to_le_bytes());
    etl[0x48..0x4c].copy_from_slice(&[2, 0, 2, 0xc0]);
    let mut tar = vec![0u8; 512];
    tar[..8].copy_from_slice(b"sda.dump");
    tar[257..262].copy_from_slice(b"ustar");
    // A whole trace behind the archive's head of 512 bytes.
    let tar_with_trace = [&tar, ONE_ISSUE].concat();
    let mut ext4 = vec![0u8; 0x440];
    ext4[0x438..0x43a].copy_from_slice(&0xef53u16.to_le_bytes());
    vec![
        (ext4, &["image of a file system"]),
        (etl, &["Windows", "ETL"]),
        (tar, &["archive"]),
        (tar_with_trace, &["archive", "unpack"]),
    ]
}

#[test]
fn what_is_refused_is_called_by_its_name() {
    let long = refused_with_long_heads();
    let long = long.iter().map(|(bytes, words)| (bytes.as_slice(), *words));
    for (bytes, words) in REFUSED.iter().copied().chain(long) {
        let error = of(bytes).expect_err(&bytes.escape_ascii().to_string());
        for word in words {
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
        assert!(!error.contains('\n') && !error.contains("RECORD"), "{error}");
        // The same inside of a packed file.
        if !bytes.is_empty() {
            let packed = of(&gzip(bytes)).expect_err("packed");
            assert_eq!(packed, error);
        }
    }
}

const ONE_ISSUE: &[u8] =
    b"# tracer: nop\n             fio-900     [001] d..1.     1.024000: block_rq_issue: 8,0 R 4096 () 0 + 8 [fio]\n";

/// The byte order mark of an editor is no line of its own and costs none.
#[test]
fn a_byte_order_mark_is_passed_over() {
    let line = ONE_ISSUE.split_inclusive(|&b| b == b'\n').nth(1).expect("a line");
    let plain = of(line).expect("a trace");
    let marked = of(&[b"\xef\xbb\xbf", line].concat()).expect("a trace");
    assert_eq!(blocks(&plain).len(), 1);
    assert_eq!(blocks(&marked), blocks(&plain));
    let malformed =
        |trace: &Trace| trace.losses().iter().find(|(loss, _)| *loss == Loss::LinesMalformed).map(|(_, n)| n);
    assert_eq!(malformed(&marked), malformed(&plain));
}

/// Gzip without a compressor: stored blocks.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let pieces = bytes.chunks(60_000).count();
    for (n, piece) in bytes.chunks(60_000).enumerate() {
        out.push(u8::from(n + 1 == pieces));
        out.extend((piece.len() as u16).to_le_bytes());
        out.extend((!(piece.len() as u16)).to_le_bytes());
        out.extend(piece);
    }
    let crc = bytes.iter().fold(!0u32, |crc, &b| {
        (0..8).fold(crc ^ u32::from(b), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    });
    out.extend((!crc).to_le_bytes());
    out.extend((bytes.len() as u32).to_le_bytes());
    out
}

/// Every block event as one line.
fn blocks(trace: &Trace) -> Vec<String> {
    let mut out = vec![];
    trace
        .for_each(&mut |e: &flashscope_trace::Event| {
            if let EventKind::Block(b) = &e.kind {
                let name = trace.comm(e.tid, e.time).unwrap_or("?");
                out.push(format!(
                    "{} {} {} {} {} {}+{} {name} {}",
                    e.time.0,
                    e.cpu,
                    b.action.letters(),
                    b.device,
                    b.flags,
                    b.sector,
                    b.bytes / 512,
                    b.error
                ));
            }
        })
        .unwrap();
    out
}

#[test]
fn blkparse_prints_steps_messages_and_sums() {
    let text = b"Input file sda.blktrace.0 added\n\
        \x20 8,16   1        1     0.000000000  5529  Q  WS 274432 + 8 [my fio]\n\
        \x20 8,16   1        3     0.000008102  5529  P   N [my fio]\n\
        \x20 8,16   1        0     0.000008500     0  m   N bfq put_queue\n\
        \x20 8,16   1        6     0.000010951  5529  D  WS 274432 + 8 [my fio]\n\
        \x20 8,16   0        1     0.000110951     0  C  WS 274432 + 8 [65531]\n\
        this is no step\n\
        CPU0 (8,16):\n Reads Queued:           0,        0KiB\t Writes Queued:           0,        0KiB\n\
        Events (8,16): 4 entries\nSkips: 0 forward (0 -   0.0%)\n";
    let trace = of(text).unwrap();
    assert_eq!((trace.kind(), trace.clock(), trace.cpus()), (TraceKind::BlkparseText, "blkparse", 2));
    assert_eq!(
        blocks(&trace),
        [
            "0 1 Q 8:16 WS 274432+8 my fio 0",
            "8102 1 P 8:16 N 0+0 my fio 0",
            "10951 1 D 8:16 WS 274432+8 my fio 0",
            "110951 0 C 8:16 WS 274432+8 <idle> -5",
        ]
    );
    // Number 2, and 4 and 5.
    let lost: Vec<_> = trace.losses().iter().filter(|&(_, n)| n > 0).collect();
    assert_eq!(lost, [(Loss::RecordsMissing, 3), (Loss::LinesMalformed, 1)]);
    // The classic form of the kernel's tracer has no numbers.
    let classic = b"# tracer: blk\n#\n  7,4   0  1229.632769000  7164  Q  RM 15942 + 2 [dd]\n  7,4   0  1229.635190000    14  C  RM 15942 + 2 [0]\n";
    let trace = of(classic).unwrap();
    assert_eq!(blocks(&trace)[0], "1229632769000 0 Q 7:4 RM 15942+2 dd 0");
    assert_eq!(trace.losses().get(Loss::LinesMalformed), 0);
    // A paste of a terminal: what stands around the steps is counted.
    let paste =
        b"root@board:~# blkparse -i sda\n\nHello,\nhere it is:\n  8,0   0   1  0.000000001  7  Q  R 0 + 8 [cat]\n";
    assert_eq!(of(paste).unwrap().losses().get(Loss::LinesMalformed), 3);
}

#[test]
fn perf_script_with_chains_periods_and_commas_in_calls() {
    let text = b"# ========\n# captured on: today\n#\n\
        my prog 2  12/13 [001] 5120.859875:          1      block:block_bio_queue: 8,32 WFS 8208 + 4 [my prog 2]\n\
        \tffffffff811c248d submit_bio+0x1d ([kernel.kallsyms])\n\
        \tffffffff811c2400 ext4_io_submit+0x4 ([kernel.kallsyms])\n\n\
        swapper     0 [000] 5120.862053:          1    block:block_rq_complete: 8,32 WS () 8208 + 4 [0]\n\
        cat    77 [000] 5120.900000: raw_syscalls:sys_enter: NR 0 (3, 7f, 1000)\n\
        nonsense between\n";
    let trace = of(text).unwrap();
    assert_eq!(trace.kind(), TraceKind::PerfScript);
    assert_eq!(
        blocks(&trace),
        ["5120859875000 1 Q 8:32 WFS 8208+4 my prog 2 0", "5120862053000 0 C 8:32 WS 8208+4 <idle> 0"]
    );
    let lost: Vec<_> = trace.losses().iter().filter(|&(_, n)| n > 0).collect();
    assert_eq!(lost, [(Loss::LinesMalformed, 1)]);
    let mut calls = 0;
    trace
        .for_each_record(&mut |r| calls += u32::from(r.schema.system == "raw_syscalls" && r.get("id").is_some()))
        .unwrap();
    assert_eq!(calls, 1);
}

#[test]
fn pages_of_systrace_old_and_new() {
    let lines = " com.app-3001  ( 3001) [001] .... 100.010000: block_rq_issue: 179,0 R 4096 () 5000 + 8 [com.app]\n\
        \x20         <idle>-0     (-----) [000] d.h2 100.010300: block_rq_complete: 179,0 R () 5000 + 8 [0]\n";
    let want = ["100010000000 1 D 179:0 R 5000+8 com.app 0", "100010300000 0 C 179:0 R 5000+8 <idle> 0"];
    let script = "x".repeat(100_000);
    let new = format!(
        "<!DOCTYPE html>\n<html><head><script>{script}\n var trace_data = 1;</script></head><body>\n<!-- BEGIN TRACE -->\n  \
         <script class=\"trace-data\" type=\"application/text\">\n# tracer: nop\n#\n{lines}  </script>\n  \
         <script class=\"trace-data\" type=\"application/text\">\nPROCESS DUMP\nUSER PID PPID\nroot 1 0\n  </script>\n</body></html>\n"
    );
    let old = format!(
        "<!DOCTYPE HTML>\n<html><body>\n<script>\n  var linuxPerfData = \"\\\n# tracer: nop\\n\\\n{}\";\n</script></body></html>\n",
        lines.replace('\n', "\\n\\\n")
    );
    for page in [new, old, format!("capturing trace... done\nTRACE:\n# tracer: nop\n{lines}")] {
        let trace = of(page.as_bytes()).unwrap();
        assert_eq!(blocks(&trace), want, "{}", &page[..80]);
        assert_eq!(trace.kind(), TraceKind::FtraceText);
        assert!(trace.losses().get(Loss::LinesMalformed) <= 2);
    }
    let error = of(b"<html><body>hello</body></html>").unwrap_err();
    assert!(error.contains("systrace's page"), "{error}");
}

#[test]
fn latency_format_and_a_text_without_an_event() {
    let text =
        b"# tracer: nop\n#\n# nop latency trace v1.1.5 on 6.18\n# latency: 0 us, #2/2, CPU#0\n#    -----------------\n\
        #  cmd     pid     |||||| time  |   caller\n\
        kworker/-10979     1...1. 1734315018us : block_rq_issue: 254,0 WS 4096 () 324490400 + 8 be,0,4 [kworker/u8:2]\n\
        flashsco-16370     1..s.. 1734315099us+: block_rq_complete: 254,0 WS () 324490400 + 8 be,0,4 [0]\n";
    let trace = of(text).unwrap();
    assert_eq!(blocks(&trace).len(), 2);
    assert_eq!(blocks(&trace)[0], "1734315018000 1 D 254:0 WS 324490400+8 kworker/u8:2 0");
    assert_eq!(trace.losses().get(Loss::LinesMalformed), 0);
    for (text, words) in [
        (&b"# tracer: nop\n#\n# entries-in-buffer/entries-written: 0/0   #P:1\n#\n"[..], "without an event"),
        (b"# tracer: nop\n#\nthis is\nnot one\n", "none of its 2 lines"),
    ] {
        let error = of(text).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

/// One record of blktrace, version 7: a step, or a note of a name.
fn step(number: u32, time: u64, sector: u64, action: u32, pid: u32, (device, cpu): (u32, u32), pdu: &[u8]) -> Vec<u8> {
    let mut b = vec![];
    b.extend(0x6561_7407u32.to_le_bytes());
    b.extend(number.to_le_bytes());
    b.extend(time.to_le_bytes());
    b.extend(sector.to_le_bytes());
    let bytes = if action & 0xff == 9 || !pdu.is_empty() { 0u32 } else { 4096 };
    [bytes, action, pid, device, cpu].into_iter().for_each(|n| b.extend(n.to_le_bytes()));
    b.extend(0u16.to_le_bytes());
    b.extend((pdu.len() as u16).to_le_bytes());
    b.extend(pdu);
    b
}

const NOTE: u32 = 1 << 26;
const READ: u32 = 1 << 16;

/// Q, P, D and C of ten reads on two CPUs, each with the name of its process before it. `-d` counts times from the first
/// step, but not those of the names.
fn two_cpus(device: u32, begin: u64, notes: u64) -> [Vec<u8>; 2] {
    let mut files = [vec![], vec![]];
    let mut numbers = [0, 0];
    for n in 0..10u64 {
        let cpu = (n % 2) as usize;
        let (pid, at) = (100 + n as u32, begin + n * 1_000_000);
        let mut push = |file: usize, time, action, pid| {
            numbers[file] += 1;
            files[file].extend(step(numbers[file], time, n * 8, action | READ, pid, (device, file as u32), &[]));
        };
        push(cpu, at, 1, pid);
        push(cpu, at + 500, 9, pid);
        push(cpu, at + 1000, 7, pid);
        push(1 - cpu, at + 101_000, 8, 0);
        let name = format!("reader{n}\0\0\0\0\0\0\0\0\0");
        let note = step(0, notes + n * 1_000_000, 0, NOTE, pid, (0, cpu as u32), &name.as_bytes()[..16]);
        let end = files[cpu].len() - 48 * 3;
        files[cpu].splice(end..end, note);
    }
    files
}

#[test]
fn a_dump_of_blkparse_counts_names_from_elsewhere() {
    let absolute = 14_788_116_130;
    let whole = blocks(
        &Trace::from_blktrace_parts("x".as_ref(), &two_cpus(8 << 20, absolute, absolute).map(Into::into)).unwrap(),
    );
    assert_eq!(whole.len(), 40);
    assert_eq!(whole[1], format!("{} 0 P 8:0 N 0+0 reader0 0", absolute + 500));
    // As blkparse -d writes it: one stream in order of the steps' times, which begin at 0.
    let [a, b] = two_cpus(8 << 20, 0, absolute);
    for dump in [
        // The CPUs' files one after the other: to be sorted.
        [a.clone(), b.clone()].concat(),
        sorted(&[a, b].concat()),
    ] {
        let trace = of(&dump).unwrap();
        assert_eq!(trace.clock(), "blkparse");
        assert_eq!(trace.losses().iter().filter(|&(_, n)| n > 0).collect::<Vec<_>>(), []);
        let times_off = |line: &String| {
            let (time, rest) = line.split_once(' ').unwrap();
            format!("{} {rest}", time.parse::<u64>().unwrap() - absolute)
        };
        assert_eq!(blocks(&trace), whole.iter().map(times_off).collect::<Vec<_>>());
    }
}

/// Steps in order of time, each behind the note before it.
fn sorted(stream: &[u8]) -> Vec<u8> {
    let (mut at, mut notes, mut steps) = (0, vec![], vec![]);
    while at < stream.len() {
        let u = |from: usize| u64::from_le_bytes(stream[at + from..at + from + 8].try_into().unwrap());
        let total = 48 + usize::from(u16::from_le_bytes([stream[at + 46], stream[at + 47]]));
        let record = stream[at..at + total].to_vec();
        match u(28) as u32 & NOTE {
            0 => steps.push((u(8), std::mem::take(&mut notes), record)),
            _ => notes.extend(record),
        }
        at += total;
    }
    steps.sort_by_key(|(time, ..)| *time);
    steps.into_iter().flat_map(|(_, notes, step)| [notes, step].concat()).collect()
}

#[test]
fn files_of_one_run_named_one_by_one() {
    let dir = crate::common::TempDir::new("one-by-one");
    let write = |name: &str, bytes: &[u8]| {
        dir.file(name, bytes);
        dir.0.join(name)
    };
    let [a, b] = two_cpus(8 << 20, 1000, 1000);
    let [c, d] = two_cpus(8 << 20 | 16, 1000, 1000);
    let [e, _] = two_cpus(8 << 20, 1000, 1000);
    let sda = [write("sda.blktrace.0", &a), write("sda.blktrace.1", &b)];
    let sdb = [write("sdb.blktrace.0.gz", &gzip(&c)), write("sdb.blktrace.1.gz", &gzip(&d))];
    let again = write("again.blktrace.0", &e);
    let text = write("t.txt", b"  8,0   0   1  0.000000001  7  Q  R 0 + 8 [cat]\n");
    assert_eq!(Trace::sets(&sda), [vec![0, 1]]);
    let all = [&sda[..], &sdb].concat();
    assert_eq!(Trace::sets(&all), [vec![0, 1, 2, 3]]);
    // The same device once more is another run; a text is a trace of its own.
    let more = [&[text][..], &all, &[again]].concat();
    assert_eq!(Trace::sets(&more), [vec![0], vec![1, 2, 3, 4], vec![5]]);
    let one = Trace::open_set(&sda).unwrap();
    assert_eq!(blocks(&one), blocks(&Trace::open(&sda[0]).unwrap()));
    assert_eq!(one.path(), dir.0.join("sda"));
    let both = Trace::open_set(&all).unwrap();
    assert_eq!((blocks(&both).len(), both.path()), (80, &*dir.0));
    assert_eq!(blocks(&Trace::open(&sdb[1]).unwrap()).len(), 40);
}

/// A CPU whose file is not there is a loss by its number, whichever file is named; one that did nothing has an empty file.
#[test]
fn a_missing_file_of_a_set_is_a_loss() {
    let dir = crate::common::TempDir::new("missing-file");
    let [a, b] = two_cpus(8 << 20, 1000, 1000);
    let [c, d] = two_cpus(8 << 20 | 16, 1000, 1000);
    dir.file("first.blktrace.1", &b);
    dir.file("middle.blktrace.0", &a);
    dir.file("middle.blktrace.3", &b);
    dir.file("whole.blktrace.0", &c);
    dir.file("whole.blktrace.1", b"");
    dir.file("whole.blktrace.2", &d);
    for (names, cpus, events) in [
        (&["first"][..], &[0][..], 20),
        (&["first.blktrace.1"], &[0], 20),
        (&["middle.blktrace.0"], &[1, 2], 40),
        (&["whole"], &[], 40),
        (&["middle", "whole"], &[1, 2], 80),
    ] {
        let paths: Vec<_> = names.iter().map(|name| dir.0.join(name)).collect();
        let trace = Trace::open_set(&paths).unwrap();
        assert_eq!(trace.facts().blktrace.cpus_missing, cpus, "{names:?}");
        assert_eq!(trace.losses().get(Loss::CpuFilesMissing), cpus.len() as u64, "{names:?}");
        assert_eq!(trace.may_miss_events(), !cpus.is_empty(), "{names:?}");
        assert_eq!(blocks(&trace).len(), events, "{names:?}");
    }
    // A packed copy beside its file is the same file.
    dir.file("whole.blktrace.0.gz", &gzip(&c));
    assert_eq!(blocks(&Trace::open(&dir.0.join("whole")).unwrap()).len(), 40);
}

/// Lines as people have them: names of any kind, call chains of any kind, modifiers of an event.
#[test]
fn names_and_chains_of_any_kind_cost_no_event() {
    for name in ["a b", "[x]", "foo-bar-12", "->", "#a", "a -> b", "1.0: z", "CPU:0", "a [0] 1.0", "12"] {
        let ftrace = format!(
            "# tracer: nop\n{name:>16}-900     [001] d..1.     1.000000: block_bio_queue: 8,0 R 8 + 8 [{name}]\n\
             {name:>16}-900     [001] d..1.     1.000010: block_rq_issue: 8,0 R 4096 () 8 + 8 none,0,0 [{name}]\n"
        );
        let perf = format!(
            "{name:>16}   900 [001]     1.000000:          1 block:block_bio_queue:k: 8,0 R 8 + 8 [{name}]\n\
             \t             7f1 [unknown] (/usr/bin/fio)\n\t                 __submit_bio (inlined)\n\t   0 [unknown] ([unknown])\n\n\
             {name:>16}   900 [001]     1.000010: block:block_rq_issue: 8,0 R 4096 () 8 + 8 none,0,0 [{name}]\n"
        );
        for text in [ftrace, perf] {
            let trace = of(text.as_bytes()).unwrap();
            let want = ["1000000000 1 Q", "1000010000 1 D"].map(|step| format!("{step} 8:0 R 8+8 {name} 0"));
            assert_eq!(blocks(&trace), want, "{text}");
            assert_eq!(trace.losses().iter().filter(|&(_, n)| n > 0).collect::<Vec<_>>(), [], "{text}");
        }
    }
}

/// A step that is not as the kernel prints it, or not all there, or larger than any, is counted and is no I/O.
#[test]
fn a_step_without_its_parts_is_counted() {
    let line = |rest: &str| format!("             fio-900     [001] d..1.     1.000000: {rest}\n");
    let whole = line("block_rq_issue: 8,0 R 4096 () 8 + 8 [fio]");
    for (rest, loss) in [
        ("block_rq_issue: nothing here", Loss::LinesMalformed),
        ("block_rq_issue: 8,0 R 4096 () 8 + 8", Loss::LinesMalformed),
        ("block_rq_issue: 8,0 R 4096 () 8 + 8 [fi", Loss::LinesMalformed),
        ("block_rq_issue: 4096,0 R 4096 () 8 + 8 [fio]", Loss::LinesMalformed),
        ("block_rq_complete: 8,0 R () 8 + 8 [EIO]", Loss::LinesMalformed),
        ("block_bio_queue: 8,0 R 18446744073709551616 + 8 [fio]", Loss::LinesMalformed),
        ("block_bio_queue: 8,0 R 18446744073709551608 + 8 [fio]", Loss::RecordsMalformed),
        ("block_bio_queue: 8,0 R 8 + 8388609 [fio]", Loss::RecordsMalformed),
        ("block_bio_queue: dev=8388608 rwbs=R", Loss::LinesMalformed),
    ] {
        let trace = of(format!("{whole}{}", line(rest)).as_bytes()).unwrap();
        assert_eq!(blocks(&trace).len(), 1, "{rest}");
        assert_eq!(trace.losses().iter().filter(|&(_, n)| n > 0).collect::<Vec<_>>(), [(loss, 1)], "{rest}");
    }
    // A flush may have the sector -1; a plug has no place; 4 GiB is the most.
    for rest in [
        "block_rq_issue: 8,0 FF 0 () 18446744073709551615 + 0 [fio]",
        "block_plug: [fio]",
        "block_rq_complete: 8,0 R () 8 + 8 [0] ffffffff811c248d submit_bio+0x1d ([kernel.kallsyms])",
        "block_bio_queue: 8,0 D 8 + 8388608 [fio]",
        "block_rq_issue: dev=8388608 sector=8 nr_sector=8 bytes=4096 rwbs=R comm=fio",
    ] {
        let trace = of(format!("{whole}{}", line(rest)).as_bytes()).unwrap();
        assert_eq!(trace.losses().iter().filter(|&(_, n)| n > 0).collect::<Vec<_>>(), [], "{rest}");
    }
}

/// What -s and -t add to the lines, and a step that is cut.
#[test]
fn blkparse_with_sums_of_programs_times_of_requests_and_a_cut_end() {
    let text = b"  8,0    1        1     0.000000000  5529  Q  WS 274432 + 8 [a [b] c]\n\
        \x20 8,0    1        2     0.000010951  5529  G  WS 274432 + 8 [a [b] c]\n\
        \x20 8,0    1        3     0.000020951  5529  D  WS 274432 + 8 (   20951) [a [b] c]\n\
        \x20 8,0    1        4     0.000110951     0  C  WS 274432 + 8 (   90000) [0]\n\
        \x20 8,0    1        5     0.000120951  5529  D   R 36 [a [b] c]\n\
        \x20 8,0    1        6     0.000130951     0  C   R [0]\n\
        kworker/0:1H (42)\n Reads Queued:           0,        0KiB\t Writes Queued:           0,        0KiB\n\
        \x20Allocation wait:        0        \t Allocation wait:         0\n\
        my [x] (1, 2)\n Reads Queued:           0,        0KiB\n\n";
    let trace = of(text).unwrap();
    assert_eq!(trace.losses().iter().filter(|&(_, n)| n > 0).collect::<Vec<_>>(), []);
    let all = blocks(&trace);
    assert_eq!(all[2], "20951 1 D 8:0 WS 274432+8 a [b] c 0");
    // A driver's own command has bytes and no place, and no read's letter: its completion is found by that.
    assert_eq!(all[4..], ["120951 1 D 8:0 N 0+0 a [b] c 0", "130951 1 C 8:0 N 0+0 <idle> 0"]);
    let cut = text.windows(8).rposition(|w| w == b"274432 +").unwrap() + 10;
    let trace = of(&text[..cut]).unwrap();
    assert_eq!(trace.losses().get(Loss::LinesMalformed), 1);
    assert_eq!(blocks(&trace), all[..3]);
}

#[test]
fn a_packed_trace_reads_as_what_is_in_it() {
    let plain = Trace::open(&crate::common::data("text/blkparse.txt")).unwrap();
    for ending in ["gz", "xz", "zst"] {
        let bytes = std::fs::read(crate::common::data(&format!("text/blkparse.{ending}"))).unwrap();
        let packed = of(&bytes).unwrap();
        assert_eq!(blocks(&packed), blocks(&plain), "{ending}");
        assert_eq!(packed.losses(), plain.losses());
        // Twice is once too often; half of it is as much as comes out.
        let error = of(&gzip(&bytes)).unwrap_err();
        assert!(error.contains("packed twice"), "{error}");
        if let Ok(cut) = of(&bytes[..bytes.len() - 20]) {
            assert_eq!(cut.losses().get(Loss::DataCut), 1, "{ending}");
        }
    }
    let gz = std::fs::read(crate::common::data("text/blkparse.gz")).unwrap();
    assert!(of(&gz[..gz.len() - 20]).is_ok());
}

/// A trace.dat that was cut anywhere gives the events before the cut, and says that it was; in front of its first event it
/// says that nothing is left.
#[test]
fn a_trace_dat_cut_anywhere_gives_what_came_before() {
    let records = |trace: &Trace| {
        let mut out = vec![];
        trace.for_each_record(&mut |r| out.push((r.time.0, r.tid(), r.schema.name.clone()))).unwrap();
        out
    };
    for name in ["armv7-6.1-v6", "armv7-6.1-v7-none", "armv7-6.1-v7-zstd", "armv7-7.2-v7-zlib", "x86_64-6.1-io"] {
        let whole = std::fs::read(crate::common::data(&format!("trace_dat/{name}.dat"))).unwrap();
        let all: std::collections::HashSet<_> = records(&of(&whole).unwrap()).into_iter().collect();
        let (mut read, mut refused) = (0, 0);
        for cut in (1..60).map(|n| whole.len() * n / 60) {
            match of(&whole[..cut]) {
                Ok(trace) => {
                    let some = records(&trace);
                    assert!(some.iter().all(|r| all.contains(r)), "{name} {cut}: an event that was not recorded");
                    let said = trace.losses().get(Loss::DataCut) + trace.losses().get(Loss::SubBuffersDamaged);
                    assert!(said > 0 || some.len() == all.len(), "{name} {cut}: {} of {}", some.len(), all.len());
                    read += usize::from(!some.is_empty());
                }
                Err(error) => {
                    assert!(error.contains("cut"), "{name} {cut}: {error}");
                    refused += 1;
                }
            }
        }
        assert!(read > 3 && refused > 3, "{name}: {read} read, {refused} refused");
    }
}

/// `trace-cmd report` prints one trace in its forms: the same steps, tasks, CPUs and values in each.
#[test]
fn every_form_of_trace_cmds_report() {
    let file = crate::common::data("trace_dat/x86_64-6.1-io.dat");
    let want = blocks(&Trace::open(&file).unwrap());
    // Text has microseconds without -t. With -l a name is cut to eight bytes, but in a step's own text.
    let known = |line: &String| line.split(' ').skip(1).map(str::to_owned).collect::<Vec<_>>();
    for options in [&[][..], &["-t"], &["-l"], &["-l", "-t"], &["-R"], &["-R", "-t"]] {
        let output = std::process::Command::new("trace-cmd").arg("report").args(options).arg("-i").arg(&file).output();
        let Ok(output) = output else {
            println!("skipped: trace-cmd is not here");
            return;
        };
        let trace = of(&output.stdout).unwrap();
        let got = blocks(&trace);
        assert_eq!(
            got.iter().map(known).collect::<Vec<_>>(),
            want.iter().map(known).collect::<Vec<_>>(),
            "{options:?}"
        );
        if options.contains(&"-t") {
            assert_eq!(got, want, "{options:?}");
        }
        assert_eq!(trace.losses().get(Loss::LinesMalformed), 0, "{options:?}");
        let mut returns = 0;
        trace
            .for_each_record(&mut |r| returns += u32::from(r.schema.system == "syscalls" && r.get("ret").is_some()))
            .unwrap();
        assert!(returns > 20, "{options:?}: {returns} returns of calls");
    }
}

#[test]
fn a_switch_in_text_tells_sleep_from_preemption() {
    let text = b"# tracer: nop\n#\n\
        a-77 [000] d.... 3.280203: sched_switch: prev_comm=a prev_pid=77 prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=15 next_prio=0\n\
        b-15 [000] d.... 3.280210: sched_switch: prev_comm=b prev_pid=15 prev_prio=0 prev_state=R ==> next_comm=a next_pid=77 next_prio=120\n\
        a-77 [000] d.... 3.280593: sched_switch: prev_comm=a prev_pid=77 prev_prio=120 prev_state=D ==> next_comm=b next_pid=15 next_prio=0\n";
    let trace = of(text).unwrap();
    let crossings = trace.crossings();
    assert_eq!(crossings.sleep(), SleepSource::Switches);
    let mut found = Vec::new();
    let mut take = |tid: TaskId, crossing| {
        if let Crossing::Sleeps { runnable } = crossing {
            found.push((tid.0, runnable));
        }
    };
    trace.for_each_record(&mut |record| crossings.read(record, &mut take)).unwrap();
    assert_eq!(found, [(77, true), (15, true), (77, false)]);
}
