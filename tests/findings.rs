//! Findings that can be checked: a fault is planted, the first finding about it has to name it, what it says to do is done, and the
//! gain has to lie in the range that was printed.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flashscope_tests::{LoopDisk, Plan, TempDir, flashscope, output, skip, stdout, work};
use flashscope_trace::dat::write_filtered;
use serde_json::Value;

/// A loop device with ext4 at `m`, taken away with the value.
pub struct Disk {
    disk: LoopDisk,
    /// What one test does is in the recordings of the others.
    _alone: MutexGuard<'static, ()>,
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Disk {
    pub fn new(label: &str, mib: u32, options: &str) -> Option<Disk> {
        Disk::made_with("", label, mib, options)
    }

    /// `mkfs`: options of mkfs.ext4.
    fn made_with(mkfs: &str, label: &str, mib: u32, options: &str) -> Option<Disk> {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = LoopDisk::ext4(label, mib, &format!("-m 0 {mkfs}"), &["--direct-io=on"], options)?;
        work("x86_64", "findings/work.c", disk.path());
        Some(Disk { disk, _alone })
    }

    fn path(&self) -> &Path {
        self.disk.path()
    }

    pub fn sh(&self, script: &str) -> bool {
        self.disk.sh(script).status.success()
    }

    /// The report of a command that runs under the recorder.
    pub fn report(&self, script: &str) -> Value {
        let mut record = flashscope();
        record.current_dir(self.path()).args(["-q", "record", "--events", "block,cache,syscall", "-o", "t.dat", "--"]);
        stdout(record.args(["sh", "-c", script]));
        let said = stdout(flashscope().current_dir(self.path()).args(["report", "--json", "t.dat"]));
        let text = stdout(flashscope().current_dir(self.path()).args(["report", "t.dat"]));
        assert!(text.contains("\nFindings\n  1. "), "{text}");
        serde_json::from_str(&said).expect("JSON")
    }

    /// The first finding that is about this disk or the program on it: others use the machine at the same time.
    fn first(&self, report: &Value) -> Value {
        let mount = self.path().join("m").display().to_string();
        let name = self.disk.device.name();
        let about = |finding: &&Value| {
            let text = format!("{} {}", finding["what"], finding["cause"]);
            finding["weight"] != "overview" && (text.contains(&mount) || text.contains(name) || text.contains("work ("))
        };
        let all = report["findings"].as_array().expect("findings");
        all.iter().find(about).unwrap_or_else(|| panic!("nothing is found: {all:#?}")).clone()
    }
}

/// The gain that was seen lies in the range that the first advice of a finding has.
pub fn gained(finding: &Value, before: f64, after: f64) {
    let gain = &finding["advice"][0]["gain"];
    let [least, most] = ["least_percent", "most_percent"].map(|end| gain[end].as_f64().expect("a range"));
    let seen = (before - after) / before * 100.0;
    assert!((least..=most).contains(&seen), "{seen:.1} % is not {least} to {most}: {before} to {after}; {finding:#}");
    println!("{}: {seen:.1} % of {least:.1} to {most:.1}", finding["rule"]);
}

/// Time of a kind of call by the program, nanoseconds.
pub fn time(report: &Value, call: &str) -> f64 {
    let all = report["calls"]["by_process"].as_array().expect("calls").iter();
    let of =
        all.filter(|one| one["call"] == call && one["name"].as_str().is_some_and(|name| name.starts_with("work (")));
    of.map(|one| one["total_ns"].as_f64().expect("a time")).sum()
}

/// Bytes of the groups whose name begins so.
fn bytes(report: &Value, by: &str, name: &str) -> f64 {
    let all = report["block"]["groups"].as_array().expect("groups").iter();
    let of = all.filter(|one| one["by"] == by && one["name"].as_str().is_some_and(|group| group.starts_with(name)));
    of.map(|one| one["bytes"].as_f64().expect("bytes")).sum()
}

/// What is planted on a board's disk: on a machine that others use, what is gained in time, or in a journal's bytes of fifteen
/// seconds, is theirs too. Each with how the disk is mounted, and the job.
const PLANTED: [(&str, &str, &str); 5] = [
    ("log", "relatime,commit=30", "/work log 300 1 /mnt/log1"),
    ("rare", "relatime,commit=30", "/work log 300 300 /mnt/log2"),
    ("sync", "relatime,commit=30,sync", "/work write 200 /mnt/file"),
    ("commit", "async,commit=1", "/work trickle 15000 /mnt/trickle"),
    ("atime", "commit=30,strictatime", "/work read /mnt/many/*; busybox sync"),
];

/// Reports of these jobs, by name, in one boot.
fn on_the_disk(dir: &TempDir, name: &str, jobs: &[(&str, &str, &str)]) -> HashMap<String, Value> {
    let mut plan = Plan::new("armv7-blk", "6.1");
    plan.packages = &["busybox-static"];
    let make =
        "cd /mnt; busybox mkdir trickle many; i=0; while [ $i -lt 200 ]; do /work write 4 many/$i; i=$((i + 1)); done";
    plan.files = vec![("/work", 0o755, work("armv7-blk", "findings/work.c", dir.path()))];
    plan.files.push(("/make.sh", 0o755, make.into()));
    plan.lines = vec!["run make busybox sh /make.sh".to_owned()];
    for (job, options, script) in jobs {
        plan.files.push((Box::leak(format!("/{job}.sh").into_boxed_str()), 0o755, (*script).into()));
        plan.lines.extend([
            format!("run mount-{job} busybox mount -o remount,{options} /mnt"),
            format!("run sync-{job} busybox sync"),
            "write /proc/sys/vm/drop_caches 3".to_owned(),
            "record-start --events block,cache,syscall --mode ring --ring 16384".to_owned(),
            format!("run {job} busybox sh /{job}.sh"),
            "record-stop".to_owned(),
        ]);
    }
    let booted = plan.boot();
    let report = |(i, (job, ..)): (usize, &(&str, &str, &str))| {
        assert_eq!(booted.step(job).status, Some(0), "{job}");
        let trace = dir.path().join(format!("{name}-{job}.dat"));
        write_filtered(&booted.recording(i), &trace, &|_| true).expect("a trace.dat");
        let text = stdout(flashscope().arg("report").arg(&trace));
        let said = flashscope_tests::report(&trace);
        let any = said["findings"].as_array().is_some_and(|all| !all.is_empty());
        assert_eq!(text.contains("\nFindings\n  1. "), any, "{text}");
        ((*job).to_owned(), said)
    };
    jobs.iter().enumerate().map(report).collect()
}

/// The first finding that is no overview: of this rule.
pub fn first_is(report: &Value, rule: &str) -> Value {
    let all = report["findings"].as_array().expect("findings");
    let first =
        all.iter().find(|one| one["weight"] != "overview").unwrap_or_else(|| panic!("nothing is found: {all:#?}"));
    assert_eq!(first["rule"], rule, "{all:#?}");
    first.clone()
}

/// A logger that syncs each line, a mount with `sync`, a journal that commits each second, a job that only reads with times of
/// access: each is found first, what is advised is done in a second boot, and the gain is in the range that was printed.
#[test]
fn faults_on_a_disk_are_found_and_mended() {
    let dir = TempDir::new("findings-disk");
    let before = on_the_disk(&dir, "before", &PLANTED);
    let rules = [("log", "fsync_storm"), ("sync", "sync_mount"), ("commit", "short_commit"), ("atime", "atime")];
    let found = rules.map(|(job, rule)| first_is(&before[job], rule));
    let options = |finding: &Value| finding["advice"][0]["steps"][0]["options"].as_str().expect("options").to_owned();
    let [sync, commit, atime] = [1, 2, 3].map(|i| options(&found[i]));
    let mended = [
        ("log", PLANTED[0].1, "/work log 300 10 /mnt/log1"),
        ("sync", &sync, PLANTED[2].2),
        ("commit", &commit, PLANTED[3].2),
        ("atime", &atime, PLANTED[4].2),
    ];
    let after = on_the_disk(&dir, "after", &mended);
    let written = |report: &Value| -> f64 {
        let all = report["block"]["groups"].as_array().expect("groups").iter();
        let of = all
            .filter(|one| one["by"] == "device" && one["name"].as_str().is_some_and(|name| name.ends_with(" writes")));
        of.map(|one| one["bytes"].as_f64().expect("bytes")).sum()
    };
    let journal = |report: &Value| bytes(report, "owner", "ext4 journal [jbd2/nullb0");
    let figures: [&dyn Fn(&Value) -> f64; 4] = [&|of| time(of, "fsync"), &|of| time(of, "write"), &journal, &written];
    for (((job, rule), finding), figure) in rules.iter().zip(&found).zip(figures) {
        gained(finding, figure(&before[*job]), figure(&after[*job]));
        assert!(*job == "log" || !after[*job]["findings"].to_string().contains(rule), "{job}");
    }
    // What syncs once at its end has no storm.
    assert!(!before["rare"]["findings"].to_string().contains("fsync_storm"), "{:#}", before["rare"]["findings"]);
}

/// A journal of 1 MiB for 2,000 new directories, and one as large as is advised.
#[test]
fn a_journal_that_is_full_again_and_again() {
    let Some(disk) = Disk::made_with("-b 1024 -i 4096 -J size=1", "findings-journal", 128, "noatime") else { return };
    let commits = || {
        let text = stdout(flashscope().current_dir(disk.path()).args(["export", "--to", "text", "-o", "-", "t.dat"]));
        let thread = format!("jbd2/{}-", disk.disk.device.name());
        text.lines().filter(|line| line.contains("jbd2_start_commit") && line.contains(&thread)).count() as f64
    };
    let job = "mkdir m/d; cd m/d; seq 2000 | xargs mkdir";
    let found = disk.first(&disk.report(job));
    assert_eq!(found["rule"], "small_journal", "{found:#}");
    let before = commits();
    assert!(disk.sh("rm -r m/d"));
    for step in found["advice"][0]["steps"].as_array().expect("steps") {
        let names = step["names"].as_array().expect("names").iter();
        let names: Vec<_> = names.map(|name| name.as_str().expect("a name")).collect();
        let command = format!("{} {}", step["command"].as_str().expect("a command"), names.join(" "));
        assert!(disk.sh(&command), "{command}");
    }
    let report = disk.report(job);
    assert!(!report["findings"].to_string().contains("small_journal"), "{:#}", report["findings"]);
    gained(&found, before, commits());
}

#[test]
fn a_full_file_system() {
    let Some(disk) = Disk::new("findings-full", 32, "noatime") else { return };
    disk.sh("dd if=/dev/zero of=m/fill bs=64k count=9999 2> log || true; truncate -s -256k m/fill; sync -f m");
    let report = disk.report("./work write 10 m/file; sync -f m");
    let finding = disk.first(&report);
    assert_eq!((&finding["rule"], &finding["weight"]), (&"full_device".into(), &"fault".into()), "{finding:#}");
    assert!(disk.sh("rm m/fill; sync -f m"));
    let after = disk.report("./work write 10 m/file; sync -f m");
    assert!(!after["findings"].to_string().contains("full_device"));
}

/// A file system that had room when the recording began.
#[test]
fn a_file_system_that_fills_up() {
    let Some(disk) = Disk::new("findings-fills", 32, "noatime") else { return };
    let fill = "dd if=/dev/zero of=m/fill bs=64k 2> log || true";
    let report = disk.report(fill);
    let finding = disk.first(&report);
    assert_eq!((&finding["rule"], &finding["weight"]), (&"full_device".into(), &"fault".into()), "{finding:#}");
    let what = finding["what"].as_str().expect("a sentence");
    assert!(what.starts_with("A call of write() by dd (") && what.contains("failed with ENOSPC on /"), "{what}");
    assert!(disk.sh("rm m/fill; sync -f m"));
    let after = disk.report(&fill.replace("64k", "64k count=9"));
    assert!(!after["findings"].to_string().contains("ENOSPC"), "{:#}", after["findings"]);
}

/// Sectors behind the end of a loop device's file: each read of them fails.
#[test]
fn a_failing_sector() {
    let Some(disk) = Disk::new("findings-error", 64, "noatime") else { return };
    assert!(disk.sh("umount m; truncate -s 32M image"));
    let report = disk.report(&format!(
        "./work sector {} 50331648; ./work sector {} 4096 || true",
        disk.disk.device.0, disk.disk.device.0
    ));
    let finding = disk.first(&report);
    assert_eq!((&finding["rule"], &finding["weight"]), (&"errors".into(), &"fault".into()), "{finding:#}");
    assert!(finding["what"].as_str().is_some_and(|what| what.contains("sector 98304")), "{finding:#}");
    let text = stdout(flashscope().current_dir(disk.path()).args(["advise", "t.dat"]));
    assert!(text.starts_with("1. ") && text.contains("failed with EIO") && text.contains("Risk: "), "{text}");
}

/// A range in which nothing happened, and a process that is not there, end with status 1 and say so.
#[test]
fn a_range_without_events_says_so() {
    let trace = flashscope_tests::top().join("tests/cases/emmc-fsync-spike/input");
    let said = output(flashscope().arg("report").arg(&trace).args(["--from", "90000", "--to", "90001"]));
    let stderr = String::from_utf8_lossy(&said.stderr);
    assert_eq!((said.status.code(), said.stdout.len()), (Some(1), 0), "{stderr}");
    assert!(stderr.contains("no event is within --from 90000 --to 90001"), "{stderr}");
}

/// What a board's recording of a script says.
pub fn on_board(dir: &TempDir, board: &str, more: &[&str], script: &str) -> Value {
    let trace = dir.path().join("t.dat");
    let mut record = flashscope();
    record.args(["-q", "record", "--on", board, "--kernel", "6.1", "--packages", "busybox-static"]).args(more);
    stdout(record.arg("-o").arg(&trace).args(["--", "/bin/busybox", "sh", "-c", script]));
    flashscope_tests::report(&trace)
}

/// Reads of 4 KiB beside four writers, on a disk that takes one request at a time. What a scheduler brings is not promised: with
/// mq-deadline these reads take longer.
#[test]
fn a_greedy_writer_without_a_scheduler() {
    let dir = TempDir::new("findings-greedy");
    let script = "b=/bin/busybox; $b dd if=/dev/zero of=/mnt/a bs=64k count=16; sync; $b sleep 1; \
                  for i in 1 2 3 4; do $b dd if=/dev/zero of=/mnt/b$i bs=64k count=150 oflag=direct & done; \
                  $b dd if=/mnt/a of=/dev/null bs=4k count=200 iflag=direct; wait";
    let disk = ["--disk", "scheduler=none,queue_depth=1,completion_ns=1500000"];
    let report = on_board(&dir, "board:armv7-blk", &[&["--events", "block,cache,syscall"], &disk[..]].concat(), script);
    let finding = &report["findings"][0];
    assert_eq!(finding["rule"], "behind_another", "{:#}", report["findings"]);
    assert!(finding["cause"].to_string().contains("the scheduler none"), "{finding:#}");
    assert!(finding["advice"][0]["gain"]["unknown"].is_string(), "{finding:#}");
}

/// Lines of 40 bytes on UBIFS, each synced; all of them synced once; and with the mount option `sync`. The file system
/// is made and mounted within the recording.
#[test]
fn tiny_writes_on_ubifs() {
    let dir = TempDir::new("findings-ubifs");
    let run = |options: &str, each: &str, once: &str| {
        let script = format!(
            "/usr/sbin/ubiformat /dev/mtd0 -y -q; /usr/sbin/ubiattach -m 0; /usr/sbin/ubimkvol /dev/ubi0 -N data -s 20MiB; \
             mkdir -p /m; mount -t ubifs -o {options} ubi0:data /m; i=0; while [ $i -lt 200 ]; do \
             echo a line of forty bytes or so, a log has > /tmp/line; cat /tmp/line >> /m/log; {each} i=$((i+1)); done; {once}"
        );
        let more = ["--modules", "ubi,ubifs", "--packages", "mtd-utils", "--events", "flash,cache,syscall"];
        on_board(&dir, "board:armv7", &more, &script)
    };
    let programmed = |report: &Value| report["wear"]["programmed_bytes"].as_f64().expect("bytes");
    let before = run("rw", "sync;", "");
    let finding = &before["findings"][0];
    assert_eq!(finding["rule"], "flash_amplification", "{:#}", before["findings"]);
    // 50 lines at once, as the advice says.
    let after = run("rw", "[ $((i % 50)) != 49 ] || sync;", "sync");
    gained(finding, programmed(&before), programmed(&after));
    let mounted = first_is(&run("sync", "", "true"), "sync_mount");
    assert_eq!(mounted["advice"][0]["steps"][0]["target"], "/m", "{mounted:#}");
}

/// A scheduler is a knob as read-ahead is: set with a note of the old value, and put back. Whichever this kernel chose for a loop
/// device, another one is set.
#[test]
fn a_scheduler_is_put_back() {
    let Some(disk) = Disk::new("findings-knob", 16, "noatime") else { return };
    let knob = format!("/sys/block/{}/queue/scheduler", disk.disk.device.name());
    let now = || std::fs::read_to_string(&knob).expect("a scheduler");
    let before = now();
    let agent = flashscope_tests::top().join("agent/build/x86_64/flashscope-agent");
    let set = |value: &str| output(Command::new(&agent).args(["knob", "set", &knob, value]));
    let undo = || output(Command::new(&agent).args(["knob", "undo"]));
    let Some(other) = before.split_whitespace().find(|name| !name.starts_with('[')) else {
        return skip("findings: this loop device has no other scheduler");
    };
    // What others have left noted is no part of this test.
    assert!(undo().status.success());
    assert_eq!(set("none; reboot").status.code(), Some(2));
    let said = set(other);
    assert!(said.status.success() && now().contains(&format!("[{other}]")), "{said:?}");
    let undone = undo();
    assert!(undone.status.success() && now() == before, "{undone:?} {}", now());
    assert_eq!(undone.stdout, b"{\"left\":[],\"undone\":1}\n");
    // Somebody chose another one since: it stays, and what it was is told.
    assert!(set(other).status.success());
    let chosen = before.split(['[', ']']).nth(1).expect("the chosen one");
    std::fs::write(&knob, chosen).expect("a scheduler");
    assert_eq!(undo().stdout, b"{\"left\":[],\"undone\":0}\n", "as it was: nothing to put back, nothing to tell");
    let window = format!("/sys/block/{}/queue/read_ahead_kb", disk.disk.device.name());
    let was = std::fs::read_to_string(&window).expect("a window").trim().to_owned();
    let set = |kib: &str| output(Command::new(&agent).args(["knob", "set", &window, kib]));
    // 33 KiB are eight pages: the kernel says 32.
    for (applied, by_hand, stands) in [("33", None, was.as_str()), ("64", Some("512"), "512")] {
        assert!(set("16").status.success() && set(applied).status.success());
        if let Some(kib) = by_hand {
            std::fs::write(&window, kib).expect("a window");
        }
        let undone = undo();
        assert_eq!(std::fs::read_to_string(&window).expect("a window").trim(), stands, "{undone:?}");
        let said: serde_json::Value = serde_json::from_slice(&undone.stdout).expect("JSON");
        let left = match by_hand {
            Some(kib) => serde_json::json!([{"path": window, "before": was, "now": kib}]),
            None => serde_json::json!([]),
        };
        assert_eq!(said["left"], left);
    }
}

/// Options of a mount are set while it is mounted, the others stay, and all are put back; what a file system does not change so is
/// refused, and nothing is changed.
#[test]
fn options_of_a_mount_are_put_back() {
    let Some(disk) = Disk::new("findings-mount", 16, "commit=1,sync,nosuid,strictatime") else { return };
    let mount = disk.path().join("m").display().to_string();
    let options = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        let of = |line: &&str| line.split(' ').nth(1) == Some(&mount);
        let line = mounts.lines().find(of).expect("the mount").to_owned();
        line.split(' ').nth(3).expect("options").replace(",noinit_itable", "")
    };
    let agent = flashscope_tests::top().join("agent/build/x86_64/flashscope-agent");
    let knob = |words: &[&str]| output(Command::new(&agent).arg("knob").args(words));
    let set = |option: &str| knob(&["set", &mount, option]);
    let before = options();
    assert_eq!(before, "rw,sync,nosuid,commit=1");
    assert!(knob(&["undo"]).status.success());
    for (option, after) in [
        ("noatime", "rw,sync,nosuid,noatime,commit=1"),
        ("commit=5", "rw,sync,nosuid,noatime"),
        ("async", "rw,nosuid,noatime"),
        ("discard", "rw,nosuid,noatime,discard"),
    ] {
        let said = set(option);
        assert!(said.status.success() && options() == after, "{option}: {said:?} {}", options());
    }
    // All or nothing: the second one is refused.
    assert_eq!(knob(&["set", &mount, "relatime", "/proc", "commit=5"]).status.code(), Some(2));
    assert_eq!(options(), "rw,nosuid,noatime,discard");
    for (target, option) in
        [(mount.as_str(), "data=journal"), (&mount, "commit=-1"), (&mount, "noatime,suid"), ("/nowhere", "noatime")]
    {
        assert_eq!(knob(&["set", target, option]).status.code(), Some(2), "{target} {option}");
    }
    let undone = knob(&["undo"]);
    assert!(undone.stdout == b"{\"left\":[],\"undone\":4}\n" && options() == before, "{undone:?} {}", options());
    // One of the options was changed since: it stays as it is.
    assert!(set("noatime").status.success() && set("commit=30").status.success());
    assert!(disk.sh("mount -o remount,commit=9 m"));
    let said: serde_json::Value = serde_json::from_slice(&knob(&["undo"]).stdout).expect("JSON");
    assert_eq!(said["left"], serde_json::json!([{"path": mount, "before": "commit=1", "now": "commit=9"}]));
    assert!(said["undone"] == 1 && options() == before.replace("commit=1", "commit=9"), "{}", options());
    // What is mounted there later is another file system.
    assert!(set("noatime").status.success() && disk.sh("umount m; mount -t tmpfs -o strictatime none m"));
    let undone = knob(&["undo"]);
    assert_eq!(undone.stdout, b"{\"left\":[],\"undone\":0}\n", "{undone:?}");
    assert!(disk.sh("mount -o remount,ro m") && set("noatime").status.code() == Some(2));
}
