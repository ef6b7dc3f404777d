//! Whose a write is.

use std::process::Command;

use super::report;
use flashscope_tests::{TempDir, flashscope, output, skip, stdout};
use serde_json::Value;

/// Owners with their written bytes, most first.
fn written(report: &Value) -> Vec<(String, u64)> {
    let owners = report["block"]["originators"]["originators"].as_array().expect("originators");
    let of = |owner: &Value| Some((owner["name"].as_str()?.to_owned(), owner["written_bytes"].as_u64()?));
    owners.iter().map(|owner| of(owner).expect("an owner")).filter(|(_, bytes)| *bytes > 0).collect()
}

fn owners(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|&(name, bytes)| (name.to_owned(), bytes)).collect()
}

#[test]
fn lines_of_files_lead_from_a_write_to_its_owner() {
    let of = |case| {
        let report = report(case);
        let files = report["block"]["originators"]["files"].as_array().expect("files");
        let files = files.iter().map(|file| (file["inode"].as_u64(), file["written_bytes"].as_u64())).collect();
        (written(&report), files)
    };
    let (who, files): (_, Vec<_>) = of("text-buffered-writer");
    assert_eq!(who, owners(&[("logd (23293)", 36 << 10)]));
    assert_eq!(files, [(Some(22), Some(36 << 10))]);
    let (who, files) = of("text-f2fs-writer");
    assert_eq!(who, owners(&[("camera (812)", 8 << 10), ("(metadata)", 4 << 10), ("logd (300)", 4 << 10)]));
    assert_eq!(files, [(Some(7), Some(8 << 10)), (Some(9), Some(4 << 10))]);
    let (who, files) = of("text-two-writers");
    assert_eq!(who, owners(&[("(shared page)", 4 << 10), ("logger (701)", 4 << 10)]));
    assert_eq!(files, [(Some(31), Some(8 << 10))]);
}

/// Written bytes by what the report knows of them: the task that asked, one that dirtied the page, the kernel's own, nobody known.
fn shares(case: &str) -> [u64; 4] {
    let found = &report(case)["block"]["originators"];
    ["direct", "one", "kernel", "unknown"]
        .map(|kind| found[format!("written_{kind}_bytes")].as_u64().expect("bytes") >> 10)
}

#[test]
fn kernel_threads_are_never_who_asked() {
    assert_eq!(shares("kernel-carriers"), [0, 0, 12, 24]);
    let mut own: Vec<String> = written(&report("kernel-carriers")).into_iter().map(|(name, _)| name).collect();
    own.retain(|name| name.contains('['));
    assert_eq!(
        own,
        ["XFS log writeback [xfsaild/vda1]", "ZFS transaction group [txg_sync]", "btrfs transaction [btrfs-transacti]"]
    );
    assert_eq!(shares("kernel-carriers-older"), [0, 0, 24, 40]);
    for case in ["kernel-carriers-long-names", "kernel-carriers-perf"] {
        assert_eq!(shares(case), [0, 0, 28, 32], "{case}");
    }
}

#[test]
fn a_program_with_the_name_of_a_kernel_thread_asked_for_itself() {
    assert_eq!(shares("user-named-like-a-thread"), [20, 0, 4, 4]);
    assert_eq!(
        written(&report("user-named-like-a-thread")),
        owners(&[
            ("md0_raid1 (701)", 8 << 10),
            ("ZFS transaction group [txg_sync]", 4 << 10),
            ("loop0 (700)", 4 << 10),
            ("loop0 (702)", 4 << 10),
            ("loop0 (710)", 4 << 10),
            ("txg_sync (703)", 4 << 10),
        ])
    );
}

/// An `exec` gives a process another name, and it is the same process: one row. A number that is used again is another one.
#[test]
fn a_process_that_executes_another_program_is_one() {
    let of = report("exec-renames");
    assert_eq!(
        written(&of),
        owners(&[("sh (18)", 16 << 10), ("dd (18)", 12 << 10), ("first (19)", 4 << 10), ("second (19)", 4 << 10)])
    );
    let input = concat!(env!("CARGO_MANIFEST_DIR"), "/cases/exec-renames/input");
    let text = stdout(flashscope().args(["report", input]));
    assert!(text.contains("dd (18), before: sh"), "{text}");
    // 4 KiB of the 12 are the shell's, whose name the task had then.
    assert!(text.contains("dd (18), before: sh (wrote 4 KiB)"), "{text}");
    assert!(text.contains("2 tasks named sh write most: 20 KiB of 36 KiB"), "{text}");
    let json = flashscope_tests::report(input);
    let originators = json["block"]["originators"]["originators"].as_array().expect("originators");
    let dd = originators.iter().find(|one| one["name"] == "dd (18)").expect("dd");
    let former = serde_json::json!([{"name": "sh", "read_bytes": 0, "written_bytes": 4096}]);
    assert_eq!(dd["under_former_names"], former);
    let of_dd = stdout(flashscope().args(["report", input, "--process", "dd"]));
    assert!(of_dd.starts_with("input\n2 bios queued"), "{of_dd}");
    let of_sh = stdout(flashscope().args(["report", input, "--process", "sh"]));
    assert!(of_sh.starts_with("input\n1 bio queued"), "{of_sh}");
}

/// A number is given again: the second task of that name is another one, where clones or ends of tasks show it.
#[test]
fn a_number_that_is_given_again_is_another_tasks() {
    let wrote = written(&report("pid-used-again"));
    assert_eq!(
        wrote,
        owners(&[
            ("tar (500)", 16 << 10),
            ("dd (700)", 8 << 10),
            ("tar (500, 3rd)", 8 << 10),
            ("gzip (500)", 4 << 10),
            ("tar (500, 2nd)", 4 << 10),
        ])
    );
    assert_eq!(written(&report("pid-used-again-not-shown")), owners(&[("tar (500)", 28 << 10)]));
    let input = concat!(env!("CARGO_MANIFEST_DIR"), "/cases/pid-used-again/input");
    for (process, bios, waits) in
        [("tar", 4, 3), ("tar (500)", 2, 1), ("tar (500, 2nd)", 1, 1), ("pool (601, 2nd)", 1, 1), ("dd", 2, 1)]
    {
        let text = stdout(flashscope().args(["report", "--json", input, "--process", process]));
        let json: Value = serde_json::from_str(&text).expect("JSON");
        let owners = json["block"]["interference"]["owners"].as_array().expect("owners");
        assert_eq!((&json["block"]["stages"]["bios_queued"], owners.len()), (&bios.into(), waits), "{process}");
    }
    let dir = TempDir::new("owners-number");
    let rows = dir.path().join("rows");
    stdout(flashscope().args(["export", "--rows", "bios", "--to", "json", "-o"]).arg(&rows).arg(input));
    let rows = std::fs::read_to_string(rows).expect("rows");
    let ordinals = rows.lines().filter_map(|row| {
        let row: Value = serde_json::from_str(row).expect("JSON");
        (row["owner"] == "tar" && row["owner_tid"] == 500).then(|| row["owner_ordinal"].as_u64())
    });
    assert_eq!(ordinals.collect::<Vec<_>>(), [None, None, Some(2), Some(3)]);
}

/// Perfetto has a track for each of them, and `--by layer` names each in its own calls.
#[test]
fn tracks_and_layers_tell_tasks_of_one_number_apart() {
    let dir = TempDir::new("owners-tracks");
    let input = concat!(env!("CARGO_MANIFEST_DIR"), "/cases/pid-used-again/input");
    let tracks = dir.path().join("tracks");
    stdout(flashscope().args(["export", "--to", "perfetto", "-o"]).arg(&tracks).arg(input));
    let bytes = std::fs::read(tracks).expect("tracks");
    let times = |name: &str| bytes.windows(name.len()).filter(|part| *part == name.as_bytes()).count();
    assert_eq!(["tar (500, 2nd)", "tar (500, 3rd)", "pool (601, 2nd)", "tar (500)"].map(times), [1, 1, 1, 0]);
    // One task reads twice, and one of its number and name after it.
    let mut text = "# tracer: nop\n#\n".to_owned();
    let mut line = |name: &str, tid: u32, at: u32, event: &str| {
        text += &format!("{name:>16}-{tid:<7} [000] ..... {:12.6}: {event}\n", 10.0 + f64::from(at) / 1e6);
    };
    for (task, at) in [(0, 0), (0, 1000), (1, 3000)] {
        if task == 1 {
            line("cat", 500, 2000, "sched_process_exit: comm=cat pid=500 prio=120");
            line("sh", 17, 2100, "task_newtask: pid=500 comm=cat clone_flags=1200000 oom_score_adj=0");
            line("sh", 17, 2102, "sched_process_fork: comm=sh pid=17 child_comm=cat child_pid=500");
        }
        line("cat", 500, at, "sys_read(fd: 3, buf: 7f00, count: 1000)");
        line("cat", 500, at + 10, &format!("block_bio_queue: 8,0 R {} + 8 [cat]", 8 + at));
        line("cat", 500, at + 20, &format!("block_rq_issue: 8,0 R 4096 () {} + 8 none,0,0 [cat]", 8 + at));
        line("<idle>", 0, at + 220, &format!("block_rq_complete: 8,0 R () {} + 8 none,0,0 [0]", 8 + at));
        line("cat", 500, at + 230, "sys_read -> 0x1000");
    }
    let calls = dir.path().join("calls");
    std::fs::write(&calls, text).expect("written");
    let found: Value =
        serde_json::from_str(&stdout(flashscope().args(["report", "--json", "--by", "layer"]).arg(&calls)))
            .expect("JSON");
    let calls_of = found["layers"]["calls"].as_array().expect("calls").iter();
    let mut ordinals: Vec<_> = calls_of.map(|call| (call["begin_ns"].as_u64(), call["ordinal"].as_u64())).collect();
    ordinals.sort_unstable();
    assert_eq!(ordinals.iter().map(|one| one.1).collect::<Vec<_>>(), [None, None, Some(2)]);
    let text = stdout(flashscope().args(["report", "--by", "layer"]).arg(&calls));
    assert!(text.contains("cat (500, 2nd)"), "{text}");
}

/// The same recording, as trace.dat and as trace-cmd prints it: the same owners, files and carriers.
#[test]
fn text_of_a_recording_gives_the_owners_of_the_recording() {
    if Command::new("trace-cmd").arg("--version").output().is_err() {
        return skip("trace-cmd is not installed");
    }
    let dir = TempDir::new("owners-text");
    for (file_system, kernel) in [("ext4", "6.1"), ("ext4", "newest"), ("f2fs", "6.1"), ("f2fs", "6.12")] {
        let dat = dir.path().join(format!("{file_system}-{kernel}.dat"));
        let script = "mkdir /mnt/d; /bin/busybox dd if=/dev/urandom of=/mnt/d/a bs=5000 count=20; \
                      (/bin/busybox dd if=/dev/urandom of=/mnt/d/b bs=4096 count=9); sync; \
                      echo 3 > /proc/sys/vm/drop_caches; /bin/busybox cat /mnt/d/a > /mnt/c; sync";
        let mut record = flashscope();
        record.args(["-q", "record", "--on", "board:armv7-blk", "--kernel", kernel, "--events", "block,cache"]);
        record.args(["--disk", &format!("filesystem={file_system}"), "--packages", "busybox-static", "-o"]).arg(&dat);
        stdout(record.args(["--", "/bin/busybox", "sh", "-c", script]));
        let printed = output(Command::new("trace-cmd").args(["report", "-t"]).arg(&dat));
        let text = dir.path().join("text");
        std::fs::write(&text, printed.stdout).expect("a file");
        let findings = |path: &std::path::Path| report(path)["block"].clone();
        let (binary, text) = (findings(&dat), findings(&text));
        assert!(binary["originators"]["files"].as_array().is_some_and(|files| files.len() >= 3), "{binary}");
        for part in ["written_one_bytes", "written_shared_bytes", "written_kernel_bytes", "written_unknown_bytes"] {
            assert_eq!(binary["originators"][part], text["originators"][part], "{file_system} {kernel} {part}");
        }
        // A text has the numbers of devices and files, and no names for them.
        let files = |findings: &Value| -> Vec<[Value; 3]> {
            let files = findings["originators"]["files"].as_array().expect("files");
            files.iter().map(|file| ["device", "inode", "written_bytes"].map(|figure| file[figure].clone())).collect()
        };
        assert_eq!(files(&binary), files(&text), "{file_system} {kernel} files");
        assert_eq!(moved(&binary), moved(&text), "{file_system} {kernel}");
    }
}

/// Bytes read and written by thread and kind: trace-cmd's text has one name for a thread, whatever it executed meanwhile.
fn moved(findings: &Value) -> Vec<(u64, String, u64, u64)> {
    let owners = findings["originators"]["originators"].as_array().expect("originators");
    let number = |owner: &Value, name: &str| owner[name].as_u64().expect("a number");
    let of = |o: &Value| (number(o, "tid"), o["kind"].to_string(), number(o, "read_bytes"), number(o, "written_bytes"));
    let mut moved: Vec<_> = owners.iter().map(of).collect();
    moved.sort();
    moved
}

/// UBI is formatted, attached and scrubbed on a board without any YAFFS2; then a YAFFS2 is mounted there.
#[test]
fn a_yaffs2_is_told_only_where_one_is_mounted() {
    let dir = TempDir::new("owners-ubi");
    let run = |name: &str, modules: &str, script: &str| {
        let dat = dir.path().join(name);
        let mut record = flashscope();
        record.args(["-q", "record", "--on", "board:armv7", "--modules", modules, "--packages", "busybox-static"]);
        record.args(["--packages", "mtd-utils", "-o"]).arg(&dat);
        stdout(record.args(["--", "/bin/busybox", "sh", "-c", script]));
        let json = report(dat.to_str().expect("UTF-8"));
        (json, stdout(flashscope().arg("report").arg(&dat)))
    };
    let reads = |findings: &Value, task: &str| -> u64 {
        let tasks = findings["by_task"].as_array().expect("tasks");
        let of = tasks.iter().filter(|of| of["task"] == task).filter_map(|of| of["counts"]["reads"].as_u64());
        of.sum()
    };
    let (found, text) = run(
        "ubi.dat",
        "ubi",
        "/usr/sbin/ubiformat /dev/mtd0 -y -q; /usr/sbin/ubiattach -m 0; /usr/sbin/ubimkvol /dev/ubi0 -N data -s 20MiB; \
         /usr/sbin/ubihealthd -d /dev/ubi0 -i 1 -f & H=$!; sleep 6; kill $H",
    );
    assert!(found.get("yaffs2").is_none() && !text.contains("YAFFS2"), "{text}");
    let scrubbed = reads(&found, "ubihealthd");
    assert!(scrubbed > 0 && scrubbed.is_multiple_of(64), "{scrubbed} reads of whole blocks");
    let (found, text) = run(
        "raw.dat",
        "ubi",
        "/usr/sbin/flash_erase -q /dev/mtd0 0 40; /bin/busybox dd if=/dev/zero of=/f bs=2048 count=70; \
         /usr/sbin/nandwrite -q /dev/mtd0 /f; /usr/sbin/nanddump -q -l 262144 -f /g /dev/mtd0; \
         /usr/sbin/flash_erase -q /dev/mtd0 0 2",
    );
    assert!(found.get("yaffs2").is_none() && !text.contains("YAFFS2"), "{text}");
    let (found, text) = run(
        "yaffs2.dat",
        "mtdblock,yaffs2",
        "mkdir -p /m; mount -t yaffs2 /dev/mtdblock0 /m; /bin/busybox dd if=/dev/urandom of=/m/f bs=2048 count=300; \
         umount /m; mount -t yaffs2 /dev/mtdblock0 /m; /bin/busybox rm /m/f; umount /m",
    );
    assert!(found.get("yaffs2").is_some() && text.contains("YAFFS2's own operations"), "{text}");
}
