//! Findings that can be checked: a fault is planted, the first finding about it has to name it, what it says to do is done, and the
//! gain has to lie in the range that was printed.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flashscope_tests::{TempDir, flashscope, is_root, output, skip, stdout, work};
use serde_json::Value;

/// A loop device with ext4 at `m`, taken away with the value.
struct Disk {
    dir: TempDir,
    device: String,
    /// What one test does is in the recordings of the others.
    _alone: MutexGuard<'static, ()>,
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Drop for Disk {
    fn drop(&mut self) {
        output(Command::new("umount").arg(self.dir.path().join("m")));
        output(Command::new("losetup").args(["-d", &self.device]));
    }
}

impl Disk {
    fn new(label: &str, mib: u32, options: &str) -> Option<Disk> {
        if !is_root() {
            skip(&format!("{label}: loop devices need root"));
            return None;
        }
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = TempDir::new(label);
        work("x86_64", "findings/work.c", dir.path());
        let make = format!(
            "dd if=/dev/zero of=image bs=1M count={mib} 2> log; mkdir m; \
             mkfs.ext4 -q -m 0 -E lazy_itable_init=0,lazy_journal_init=0 image; sync -f image"
        );
        let sh = |script: &str| output(Command::new("sh").current_dir(dir.path()).args(["-ec", script]));
        let made = sh(&format!("{make}; losetup -f --show --direct-io=on image"));
        let device = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        let disk = Disk { dir, device, _alone };
        let mounted = disk.sh(&format!("mount -o noinit_itable,{options} {} m", disk.device));
        if !made.status.success() || !mounted {
            skip(&format!("{label}: no loop device with ext4"));
            return None;
        }
        Some(disk)
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn sh(&self, script: &str) -> bool {
        output(Command::new("sh").current_dir(self.path()).args(["-ec", script])).status.success()
    }

    /// The report of a command that runs under the recorder.
    fn report(&self, script: &str) -> Value {
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
        let name = self.device.trim_start_matches("/dev/").to_owned();
        let about = |finding: &&Value| {
            let text = format!("{} {}", finding["what"], finding["cause"]);
            finding["weight"] != "overview"
                && (text.contains(&mount) || text.contains(&name) || text.contains("work ("))
        };
        let all = report["findings"].as_array().expect("findings");
        all.iter().find(about).unwrap_or_else(|| panic!("nothing is found: {all:#?}")).clone()
    }
}

/// The gain that was seen lies in the range that the first advice of a finding has.
fn gained(finding: &Value, before: f64, after: f64) {
    let gain = &finding["advice"][0]["gain"];
    let [least, most] = ["least_percent", "most_percent"].map(|end| gain[end].as_f64().expect("a range"));
    let seen = (before - after) / before * 100.0;
    assert!((least..=most).contains(&seen), "{seen:.1} % is not {least} to {most}: {before} to {after}; {finding:#}");
    println!("{}: {seen:.1} % of {least:.1} to {most:.1}", finding["rule"]);
}

/// Time of a kind of call by the program, nanoseconds.
fn time(report: &Value, call: &str) -> f64 {
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

#[test]
fn a_logger_that_syncs_each_line() {
    let Some(disk) = Disk::new("findings-log", 128, "noatime") else { return };
    let before = disk.report("./work log 300 1 m/log");
    let finding = disk.first(&before);
    assert_eq!(finding["rule"], "fsync_storm", "{finding:#}");
    let after = disk.report("./work log 300 10 m/log");
    gained(&finding, time(&before, "fsync"), time(&after, "fsync"));
    // What syncs once at its end has no storm.
    let rare = disk.report("./work log 300 300 m/log");
    let all = rare["findings"].as_array().expect("findings");
    assert!(
        !all.iter().any(|one| one["rule"] == "fsync_storm" && one["what"].to_string().contains("work (")),
        "{all:#?}"
    );
}

#[test]
fn a_mount_with_sync() {
    let Some(disk) = Disk::new("findings-sync", 128, "noatime,sync") else { return };
    let before = disk.report("./work write 200 m/file");
    let finding = disk.first(&before);
    assert_eq!(finding["rule"], "sync_mount", "{finding:#}");
    let step = &finding["advice"][0]["steps"][0];
    assert!(disk.sh(&format!("mount -o remount,{} m", step["options"].as_str().expect("options"))));
    let after = disk.report("./work write 200 m/file");
    gained(&finding, time(&before, "write"), time(&after, "write"));
    assert!(!after["findings"].to_string().contains("sync_mount"));
}

#[test]
fn a_journal_that_commits_each_second() {
    let Some(disk) = Disk::new("findings-commit", 128, "noatime,commit=1") else { return };
    let before = disk.report("./work trickle 15000 m");
    let finding = disk.first(&before);
    assert_eq!(finding["rule"], "short_commit", "{finding:#}");
    let step = &finding["advice"][0]["steps"][0];
    assert!(
        disk.sh(&format!("rm m/file*; sync -f m; mount -o remount,{} m", step["options"].as_str().expect("options")))
    );
    let after = disk.report("./work trickle 15000 m");
    let journal = |report: &Value| {
        let name = disk.device.trim_start_matches("/dev/").to_owned();
        bytes(report, "owner", &format!("ext4 journal [jbd2/{name}"))
    };
    gained(&finding, journal(&before), journal(&after));
}

#[test]
fn a_job_that_only_reads_with_times_of_access() {
    let Some(disk) = Disk::new("findings-atime", 128, "strictatime") else { return };
    let prepare =
        "for i in $(seq 200); do ./work write 4 m/$i; done; sync -f m; sleep 1; echo 3 > /proc/sys/vm/drop_caches";
    assert!(disk.sh(prepare));
    let job = "./work read m/1* m/2*; sync -f m";
    let device = std::fs::read_to_string(format!("/sys/block/{}/dev", &disk.device[5..])).expect("its number");
    let before = disk.report(job);
    let groups = before["calls"]["by_process"].as_array().expect("calls");
    let changes = |one: &&Value| {
        ["unlink", "unlinkat", "rename", "renameat", "renameat2"].iter().any(|name| one["call"] == *name)
    };
    if let Some(other) = groups.iter().find(changes) {
        return skip(&format!("findings: {} changed files meanwhile, and the rule is silent then", other["name"]));
    }
    let finding = disk.first(&before);
    assert_eq!(finding["rule"], "atime", "{finding:#}");
    assert!(disk.sh("mount -o remount,noatime m; sync -f m; echo 3 > /proc/sys/vm/drop_caches"));
    let after = disk.report(job);
    let written = |report: &Value| bytes(report, "device", &format!("{} writes", device.trim()));
    gained(&finding, written(&before), written(&after));
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

/// Sectors behind the end of a loop device's file: each read of them fails.
#[test]
fn a_failing_sector() {
    let Some(disk) = Disk::new("findings-error", 64, "noatime") else { return };
    assert!(disk.sh("umount m; truncate -s 32M image"));
    let report =
        disk.report(&format!("./work sector {} 50331648; ./work sector {} 4096 || true", disk.device, disk.device));
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
fn on_board(dir: &TempDir, board: &str, more: &[&str], script: &str) -> Value {
    let trace = dir.path().join("t.dat");
    let mut record = flashscope();
    record.args(["-q", "record", "--on", board, "--kernel", "6.1", "--packages", "busybox-static"]).args(more);
    stdout(record.arg("-o").arg(&trace).args(["--", "/bin/busybox", "sh", "-c", script]));
    serde_json::from_str(&stdout(flashscope().args(["report", "--json"]).arg(&trace))).expect("JSON")
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

/// Lines of 40 bytes on UBIFS, each synced; and all of them synced once.
#[test]
fn tiny_writes_on_ubifs() {
    let dir = TempDir::new("findings-ubifs");
    let run = |each: &str, once: &str| {
        let script = format!(
            "/usr/sbin/ubiformat /dev/mtd0 -y -q; /usr/sbin/ubiattach -m 0; /usr/sbin/ubimkvol /dev/ubi0 -N data -s 20MiB; \
             mkdir -p /m; mount -t ubifs ubi0:data /m; i=0; while [ $i -lt 200 ]; do \
             echo a line of forty bytes or so, a log has > /tmp/line; cat /tmp/line >> /m/log; {each} i=$((i+1)); done; {once}"
        );
        let more = ["--modules", "ubi,ubifs", "--packages", "mtd-utils", "--events", "flash,cache,syscall"];
        on_board(&dir, "board:armv7", &more, &script)
    };
    let programmed = |report: &Value| report["wear"]["programmed_bytes"].as_f64().expect("bytes");
    let before = run("sync;", "");
    let finding = &before["findings"][0];
    assert_eq!(finding["rule"], "flash_amplification", "{:#}", before["findings"]);
    // 50 lines at once, as the advice says.
    let after = run("[ $((i % 50)) != 49 ] || sync;", "sync");
    gained(finding, programmed(&before), programmed(&after));
}

/// A scheduler is a knob as read-ahead is: set with a note of the old value, and put back. Whichever this kernel chose for a loop
/// device, another one is set.
#[test]
fn a_scheduler_is_put_back() {
    let Some(disk) = Disk::new("findings-knob", 16, "noatime") else { return };
    let knob = format!("/sys/block/{}/queue/scheduler", &disk.device[5..]);
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
    let said = set(other);
    assert!(said.status.success() && now().contains(&format!("[{other}]")), "{said:?}");
    let undone = undo();
    assert!(undone.status.success() && now() == before, "{undone:?} {}", now());
    assert_eq!(undone.stdout, b"{\"undone\":1}\n");
    assert_eq!(set("none; reboot").status.code(), Some(2));
}
