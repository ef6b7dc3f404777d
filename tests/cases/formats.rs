//! Traces in the forms that people have: each with the figures that it holds, and what is no trace by its name.

use super::{count, input, lost, report, stage};
use flashscope_tests::{TempDir, flashscope, output, stdout, top};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

fn mean(report: &Value, name: &str) -> Option<String> {
    let groups = report["block"]["groups"].as_array().expect("groups");
    let stages = groups.iter().find(|group| group["by"] == "all")?["stages"].as_array()?;
    Some(stages.iter().find(|one| one["stage"] == name)?["ns"]["mean"].to_string())
}

fn bios(report: &Value) -> [u64; 2] {
    ["bios_queued", "bios_completed"].map(|what| count(report, what))
}

fn originators(report: &Value) -> Vec<&str> {
    let all = report["block"]["originators"]["originators"].as_array().expect("originators");
    all.iter().map(|one| one["name"].as_str().expect("a name")).collect()
}

#[test]
fn texts_of_blkparse_perf_and_the_kernels_own_forms() {
    for (case, counts, d2c, q2c, name) in [
        ("blkparse-text", [2, 2], [2, 80_000, 100_000], [2, 83_000, 110_951], "fio (5529)"),
        ("perf-script-text", [2, 2], [2, 11_266_000, 11_524_000], [2, 11_272_000, 11_529_000], "dmcrypt_write (4711)"),
        ("blk-tracer-text", [6, 2], [2, 32_000, 2_236_000], [2, 44_000, 2_421_000], "dd (7164)"),
        ("latency-format", [3, 2], [2, 43_000, 79_000], [2, 46_000, 86_000], "fio (16353)"),
    ] {
        let report = report(case);
        assert_eq!(bios(&report), counts, "{case}");
        assert_eq!((stage(&report, "D2C"), stage(&report, "Q2C")), (d2c, q2c), "{case}");
        // The tracer printed its first line twice; its G, D and C come once.
        let twice: &[&str] = if case == "blk-tracer-text" { &["events_repeated 1"] } else { &[] };
        assert_eq!(lost(&report), twice, "{case}");
        assert!(originators(&report).contains(&name), "{case}: {:?}", originators(&report));
    }
}

/// Android's category disk has no queueing: one request with its time in the device, and who issued it.
#[test]
fn a_page_of_systrace() {
    let report = report("systrace-html");
    assert_eq!(stage(&report, "D2C"), [1, 300_000, 300_000]);
    assert_eq!(report["block"]["stages"]["requests"], 1);
    let groups = report["block"]["groups"].as_array().expect("groups");
    let by = groups.iter().find(|g| g["by"] == "owner").expect("a group by owner");
    assert_eq!(by["name"], "com.app.gallery (3001)");
    assert_eq!(by["bytes"], 4096);
}

#[test]
fn packed_cut_and_pasted_ones_hold_the_same() {
    let dir = TempDir::new("formats-packed");
    let input = input("blkparse-text");
    let whole = stdout(flashscope().args(["report", "--json"]).arg(&input));
    for (packer, argv) in [("gzip", &["-c"][..]), ("xz", &["-c"]), ("zstd", &["-qc"])] {
        let Ok(packed) = Command::new(packer).args(argv).arg(&input).output() else {
            println!("skipped: {packer} is not here");
            continue;
        };
        let path = dir.path().join("input");
        std::fs::write(&path, packed.stdout).expect("a file");
        assert_eq!(stdout(flashscope().args(["report", "--json"]).arg(&path)), whole, "{packer}");
    }
    // Three lines of a terminal stand around it.
    let paste = format!("$ blkparse -i sdb\nhello,\n{}\nbye\n", std::fs::read_to_string(&input).expect("the input"));
    let path = dir.path().join("paste");
    std::fs::write(&path, paste).expect("a file");
    let report = report(&path);
    assert_eq!((bios(&report), lost(&report)), ([2, 2], vec!["lines_malformed 2".to_owned()]));
}

/// blkparse itself writes dumps and text of a recorded set; the set's own files say what is right.
#[test]
fn one_recording_as_files_as_a_dump_and_as_text() {
    let dir = TempDir::new("formats-ways");
    let data = top().join("crates/trace/tests/data/blktrace");
    for board in ["x86_64-6.1", "armv7-6.1", "x86_64-6.12"] {
        let set = data.join(board).join("main");
        let (dump, text) = (dir.path().join("dump"), dir.path().join("text"));
        let Ok(printed) = Command::new("blkparse").args(["-q", "-i"]).arg(&set).arg("-d").arg(&dump).output() else {
            println!("skipped: blkparse is not here");
            return;
        };
        std::fs::write(&text, printed.stdout).expect("a file");
        let [of_files, of_dump, of_text] = [&set, &dump, &text].map(report);
        for (way, other) in [("-d", &of_dump), ("text", &of_text)] {
            assert_eq!(bios(other), bios(&of_files), "{board} {way}");
            for name in ["Q2G", "D2C", "Q2C", "Q2D"] {
                // Of requests for one sector at one time the files' control groups say whose completion it was; text has
                // none of them: the sum is the same, and not always who had the least.
                let [n, least, most] = stage(other, name);
                let [of_n, of_least, of_most] = stage(&of_files, name);
                assert_eq!(
                    (n, mean(other, name), most),
                    (of_n, mean(&of_files, name), of_most),
                    "{board} {way} {name}"
                );
                assert!(way == "text" || least == of_least, "{board} {way} {name}");
            }
            assert_eq!(originators(other), originators(&of_files), "{board} {way}");
        }
        assert!(bios(&of_files)[1] > 20, "{board}");
    }
}

/// As the shell's `*` names them.
#[test]
fn files_of_one_run_named_one_by_one() {
    let data = top().join("crates/trace/tests/data/blktrace/x86_64-6.1");
    let files = |names: &[&str]| -> Vec<PathBuf> { names.iter().map(|name| data.join(name)).collect() };
    let json =
        |files: &[PathBuf]| -> Value { flashscope_tests::json(flashscope().args(["report", "--json"]).args(files)) };
    let one = json(&files(&["main"]));
    let each = json(&files(&["main.blktrace.0", "main.blktrace.1"]));
    assert_eq!(each["block"], one["block"]);
    assert_eq!(each["title"], one["title"]);
}

#[test]
fn what_is_no_trace_is_called_by_its_name_and_writes_nothing() {
    let dir = TempDir::new("formats-refused");
    let lba = input("lba-size-time");
    let mut cases = vec![(lba, "table of numbers")];
    for (name, text, says) in [
        (
            "lba-header",
            "lba,io_size,time\n2048,8,0.000\n4096,16,0.120\n1048576,256,0.431\n2056,8,0.900\n",
            "a table of numbers",
        ),
        (
            "lba-indented",
            "\t2048 4096 R 0.000100\n\t4096 8192 W 0.000220\n\t1048576 131072 R 0.000431\n",
            "a table of block requests",
        ),
        (
            "snoop",
            "TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)\n0.0 a 1 sda R 1 4096 0.1\n",
            "biosnoop's table",
        ),
        ("fio", "1, 4096, 0, 4096, 0, 0\n2, 4096, 1, 4096, 0, 0\n", "log of fio's"),
        ("custom", "8,0 1 0.5 C R 1000 8\n8,0 1 0.6 C R 1000 8\n", "`-f`"),
        ("empty", "# tracer: nop\n#\n", "without an event"),
        ("none", "# tracer: nop\n#\nno line is one\n", "none of its 1 lines"),
        (
            "starts",
            "# tracer: nop\n#\n  fio-5 [000] d..1. 5.000000: block_io_start: 8,0 R 4096 () 96 + 8 none,0,0 [fio]\n  \
             fio-5 [000] d..1. 5.100000: block_io_done: 8,0 R 0 () 104 + 0 none,0,0 [fio]\n",
            "has block_io_start and block_io_done alone",
        ),
        (
            "errors",
            "# tracer: nop\n#\n  <idle>-0 [000] d..1. 5.000000: block_rq_error: 179,0 R () 4104 + 8 [-5]\n",
            "has block_rq_error alone",
        ),
        (
            "deltas",
            "cat 7 [000] 0.000000: block:block_bio_queue: 8,0 R 96 + 8 [cat]\n\
             cat 7 [000] 0.000005: block:block_rq_issue: 8,0 R 4096 () 96 + 8 [cat]\n\
             swapper 0 [000] 0.000200: block:block_rq_complete: 8,0 R () 96 + 8 [0]\n\
             cat 7 [000] 0.000100: block:block_bio_queue: 8,0 R 104 + 8 [cat]\n",
            "--deltatime",
        ),
        ("csv", "0.000000000,Q,R,2000,8,md0_raid1\n0.000003000,D,R,2000,8,md0_raid1\n", "`-f`"),
        (
            "in-bytes",
            "8,0 1 1 0.000000000 100 Q R 1000 + 4096 [cat]\n8,0 1 2 0.100000000 100 Q R 1008 + 4096 [cat]\n\
             8,0 1 3 0.200000000 100 Q R 1016 + 4096 [cat]\n",
            "`-f`",
        ),
        (
            "names-for-errors",
            "8,0 1 1 0.000000000 100 Q R 1000 + 8 [cat]\n8,0 1 2 0.000100000 0 C R 1000 + 8 [swapper/0]\n\
             8,0 1 3 0.100000000 100 Q R 1008 + 8 [cat]\n8,0 1 4 0.100100000 0 C R 1008 + 8 [swapper/0]\n",
            "`-f`",
        ),
        ("msr", "128166372003061629,hm,1,Read,383496192,32768,413\n", "a table of block requests"),
        ("spc", "0,20941264,8192,W,0.551706\n0,20939840,8192,r,0.554041\n", "a table of block requests"),
        ("cloud", "419,W,8792731648,16384,1577808144360767\n", "a table of block requests"),
        (
            "sched",
            "# tracer: nop\n#\n  app-30 [000] d..2. 5.000000: sched_switch: prev_comm=app prev_pid=30 prev_prio=120 prev_state=S \
             ==> next_comm=swapper/0 next_pid=0 next_prio=120\n",
            "sched_switch. Record a disk",
        ),
        (
            "ext4",
            "# tracer: nop\n#\n  app-30 [000] ..... 5.000000: ext4_sync_file_enter: dev 8,1 ino 12 parent 2 datasync 0 \n  \
             app-30 [000] ..... 5.100000: ext4_sync_file_exit: dev 8,1 ino 12 ret 0\n",
            "no events of block I/O (block:block_bio_queue",
        ),
        // A CPU that did nothing, and another whose file is not there.
        ("quiet.blktrace.0", "", "no step of block I/O"),
        ("half.blktrace.1", "", "cpu_files_missing 1"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        cases.push((path, says));
    }
    for (path, says) in cases {
        let page = dir.path().join("page.html");
        let output = output(flashscope().arg("report").arg(&path).arg("--html").arg(&page));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(says) && stderr.lines().count() == 1, "{says:?} is not in: {stderr}");
        assert!(output.stdout.is_empty() && !page.exists(), "{}: something was written", path.display());
    }
}

/// An export of nothing fails, whatever its format, and leaves no file.
#[test]
fn an_export_of_nothing_fails_in_every_format() {
    let dir = TempDir::new("formats-nothing");
    let input = input("blkparse-text");
    let path = dir.path().join("log");
    let output = output(flashscope().args(["export", "--to", "flashmon", "-o"]).arg(&path).arg(&input));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no flash operations") && stderr.contains("--events flash"), "{stderr}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_quotation_in_a_mail_is_read() {
    let report = report("quoted-in-a-mail");
    assert_eq!(report["block"]["stages"]["bios_completed"], 5);
    let owners = &report["block"]["originators"]["originators"];
    assert_eq!((&owners[0]["name"], owners.as_array().map(Vec::len)), (&"app (61)".into(), Some(1)));
}

/// What a terminal of so many columns makes of a text.
fn broken_at(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut rest = line;
        while rest.len() > width {
            let (piece, next) = rest.split_at(width);
            out += &format!("{}\n", piece.trim_end());
            rest = next;
        }
        out += &format!("{rest}\n");
    }
    out
}

/// What a mail makes of it.
fn broken_between_words(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut rest = line;
        while let Some(space) = rest.get(..width).filter(|_| rest.len() > width).and_then(|piece| piece.rfind(' ')) {
            if rest[..space].trim().is_empty() {
                break;
            }
            out += &format!("{}\n", rest[..space].trim_end());
            rest = &rest[space + 1..];
        }
        out += &format!("{rest}\n");
    }
    out
}

#[test]
fn lines_that_were_broken_are_joined() {
    let dir = TempDir::new("formats-broken");
    for case in ["broken-at-a-column", "broken-between-words"] {
        let report = report(case);
        assert_eq!((bios(&report), lost(&report)), ([6, 6], vec![]), "{case}");
        assert_eq!(stage(&report, "D2C"), [6, 200_000, 200_000], "{case}");
        assert_eq!(stage(&report, "Q2C"), [6, 205_000, 205_000], "{case}");
        assert_eq!(originators(&report), ["fio-worker-name (50012)"], "{case}");
    }
    // Of the last three, lines without their last fields are events all the same.
    for case in [
        "scsi-commands-3.10", "perf-script-text", "blkparse-text", "text-buffered-writer", "external-journal",
        "readahead-part-used",
    ] {
        let text = std::fs::read_to_string(input(case)).expect("the input");
        // Sums behind the steps are no lines of the trace.
        let text: String =
            text.lines().take_while(|line| !line.starts_with("CPU")).map(|line| format!("{line}\n")).collect();
        let of = |text: &str| {
            let path = dir.path().join("input");
            std::fs::write(&path, text).expect("a file");
            let report = report(&path);
            [report["block"].clone(), report["readahead"].clone(), report["calls"].clone(), report["names"].clone()]
        };
        let whole = of(&text);
        for width in [52, 60, 66, 72, 80, 90] {
            assert_eq!(of(&broken_at(&text, width)), whole, "{case} at {width}");
            // A mail never breaks a line between its task and its time.
            if width > 52 || case != "text-buffered-writer" {
                assert_eq!(of(&broken_between_words(&text, width)), whole, "{case} between words, {width}");
            }
        }
    }
}

/// A mail with a trace in it: prose around it, marks where lines are left out, and lines of a file system that are events without
/// their last fields.
#[test]
fn a_trace_in_a_mail_is_read_between_its_prose() {
    let dir = TempDir::new("formats-mail");
    let trace = "\
     reader-of-pages-77  [002]    10.000010: xfs_file_buffered_read: dev 8:16 ino 0x86 size 0x10000000 offset 0x6f40000 count 0x10000
     reader-of-pages-77  [002]    10.000015: iomap_readahead:      dev 8:16 ino 0x86 nr_pages 16
     reader-of-pages-77  [002]    10.000020: block_bio_queue:      8,16 RA 1800896 + 128 [reader-of-pages]
....
     reader-of-pages-77  [002]    10.000031: xfs_file_buffered_read: dev 8:16 ino 0x86 size 0x10000000 offset 0x6f40000 count 0x10000
     reader-of-pages-77  [002]    10.000035: xfs_file_buffered_read: dev 8:16 ino 0x86 size 0x10000000 offset 0x6f50000 count 0x10000
     other-reader-5      [003]    10.000920: block_rq_complete:    8,16 RA () 1800896 + 128 [0]
....
";
    let mail = format!(
        "Reads race with read-ahead here.\n\nThis is the sequence:\n\n{}\nThe read is there again at once.\n",
        broken_between_words(trace, 79)
    );
    for (name, text) in [("mail", mail.clone()), ("reply", mail.lines().map(|line| format!("> {line}\n")).collect())] {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        let found = report(&path);
        assert_eq!((bios(&found), stage(&found, "Q2C")), ([1, 1], [1, 900_000, 900_000]), "{name}");
        assert_eq!(originators(&found), ["reader-of-pages (77)"], "{name}");
    }
}

/// What a pager, a table, the kernel's log or `cat -n` puts before a line is no part of a task's name.
#[test]
fn what_stands_before_a_line_is_no_name() {
    let dir = TempDir::new("formats-before");
    let whole = report("scsi-commands-3.10");
    let text = std::fs::read_to_string(input("scsi-commands-3.10")).expect("the input");
    assert!(originators(&whole).contains(&"dd (500)"));
    for (way, before) in [("cat -n", "     7\t"), ("a table", "| "), ("grep -n", "12:"), ("the log", "[   20.000001] ")]
    {
        let lines =
            text.lines().enumerate().map(|(at, line)| format!("{}{line}\n", before.replace('7', &at.to_string())));
        let path = dir.path().join("input");
        std::fs::write(&path, lines.collect::<String>()).expect("a file");
        let found = report(&path);
        assert_eq!((bios(&found), originators(&found)), (bios(&whole), originators(&whole)), "{way}");
    }
}

#[test]
fn what_other_kernels_and_tools_print_beside_the_steps() {
    let unmatched = |report: &Value| report["block"]["stages"]["unmatched"]["completed"].as_u64();
    let kernel_3 = report("scsi-commands-3.10");
    assert_eq!((bios(&kernel_3), unmatched(&kernel_3)), ([3, 3], Some(0)));
    assert_eq!(stage(&kernel_3, "D2C"), [3, 200_000, 200_000]);
    assert_eq!(kernel_3["block"]["stages"]["without_data"], 1);
    let perf = report("perf-lost-chunks");
    assert_eq!((bios(&perf), lost(&perf)), ([5, 4], vec!["gaps_of_unknown_size 2".to_owned()]));
    assert_eq!(stage(&perf, "Q2C"), [4, 205_000, 205_000]);
    let nvme = report("nvme-error-6.18");
    assert_eq!((bios(&nvme), stage(&nvme, "D2C")), ([4, 4], [4, 200_000, 200_000]));
    let failures = nvme["block"]["errors"]["failures"].as_array().expect("failures");
    assert_eq!((failures.len(), &failures[0]["error"], &failures[0]["sector"]), (1, &"ENODATA".into(), &1128.into()));
}
