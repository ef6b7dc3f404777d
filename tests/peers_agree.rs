//! What the kernel, fio and perf say of a mixed workload on a loop device of this host, and what the report counts.

use std::path::Path;
use std::process::Command;

use flashscope_tests::{TempDir, flashscope, is_root, output, skip, stdout};
use serde_json::Value;

/// Before and after the workload: the kernel's counts. What the recording sees before and after is nothing.
const WORK: &str = r#"set -e
cat /sys/block/$1/stat > before; grep " $1 " /proc/diskstats > disks-before
fio --name=peer --directory=m --filename=f --size=16M --rw=randrw --bs=4k --direct=1 --ioengine=psync --number_ios=1500 \
    --output-format=json --output=fio.json
dd if=/dev/zero of=m/d bs=64k count=32 conv=fsync 2> dd.log
sync -f m
sleep 0.3
cat /sys/block/$1/stat > after; grep " $1 " /proc/diskstats > disks-after"#;

/// The same, recorded by perf at the same time.
const BY_PERF: &str = r#"set -e
perf record -q -m 2048 -a -e block:block_bio_queue,block:block_getrq,block:block_split,block:block_bio_backmerge,block:block_rq_insert \
    -e block:block_rq_issue,block:block_rq_requeue,block:block_rq_complete -o perf.data -- sh work.sh "$1" 2> perf.log
perf script -i perf.data -F comm,pid,tid,cpu,time,event,trace > perf.txt 2>> perf.log"#;

/// The loop device, taken away with the value.
struct Disk<'a>(String, &'a Path);

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        output(Command::new("umount").arg(self.1.join("m")));
        output(Command::new("losetup").args(["-d", &self.0]));
    }
}

/// What a file's counts grew by; `skipped` words come before them.
fn grown(dir: &Path, before: &str, after: &str, skipped: usize) -> Vec<u64> {
    let read = |name: &str| -> Vec<u64> {
        let text = std::fs::read_to_string(dir.join(name)).expect("the kernel's counts");
        text.split_whitespace().skip(skipped).map(|word| word.parse().expect("a number")).collect()
    };
    read(after).iter().zip(read(before)).map(|(after, before)| after.wrapping_sub(before)).collect()
}

/// A new file system on a loop device, mounted on `m`, and the device's name.
fn mounted(dir: &Path) -> Option<(Disk<'_>, String)> {
    let sh = |script: &str| output(Command::new("sh").current_dir(dir).args(["-ec", script]));
    sh("truncate -s 256M image; mkdir m; mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 image");
    let made = sh("losetup -f --show --direct-io=on image");
    let disk = Disk(String::from_utf8_lossy(&made.stdout).trim().to_owned(), dir);
    let name = disk.0.trim_start_matches("/dev/").to_owned();
    let mount = format!("mount -o noinit_itable,no_prefetch_block_bitmaps {} m; sync; sleep 1", disk.0);
    (made.status.success() && sh(&mount).status.success()).then_some((disk, name))
}

/// Why nothing can be compared here.
fn lacking(tools: &[(&str, &str)]) -> bool {
    !is_root()
        || !Path::new("/sys/kernel/tracing/instances").is_dir()
        || tools.iter().any(|(tool, version)| Command::new(tool).arg(version).output().is_err())
}

#[test]
fn the_kernels_counts_and_fios_are_the_reports() {
    if lacking(&[("fio", "-v")]) {
        return skip("peers_agree: root, a mounted tracefs and fio are needed");
    }
    let dir = TempDir::new("peers");
    let dir = dir.path();
    let Some((_disk, name)) = mounted(dir) else { return skip("peers_agree: no loop device with ext4") };
    let mut record = flashscope();
    stdout(
        record
            .current_dir(dir)
            .args(["record", "--events", "block", "-o", "t.dat", "--", "sh", "-c", WORK, "sh", &name]),
    );
    let said = stdout(flashscope().current_dir(dir).args(["report", "--json", "t.dat"]));
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let device = std::fs::read_to_string(format!("/sys/block/{name}/dev")).expect("its number");
    let group = |wanted: &dyn Fn(&str) -> bool| {
        let mut groups = said["block"]["groups"].as_array().expect("groups").iter();
        let group = groups.find(|group| wanted(group["name"].as_str().expect("a name"))).expect("a group");
        (group["bios"].as_u64().expect("a count"), group["bytes"].as_u64().expect("bytes"))
    };
    let of = |kind: &str| group(&|name| name == format!("{} {kind}", device.trim()));
    let (reads, writes) = (of("reads"), of("writes"));
    let stat = grown(dir, "before", "after", 0);
    let disks = grown(dir, "disks-before", "disks-after", 3);
    println!("report: {reads:?} {writes:?}; stat: {stat:?}");
    for counts in [&stat, &disks] {
        // Requests and merges are the bios, where none is split; sectors have 512 bytes.
        assert_eq!(reads, (counts[0] + counts[1], counts[2] * 512), "reads and {counts:?}");
        assert_eq!(writes.1, counts[6] * 512, "writes and {counts:?}");
    }
    let fio: Value = serde_json::from_slice(&std::fs::read(dir.join("fio.json")).expect("fio's")).expect("JSON");
    let sum =
        |key: &str| ["read", "write"].iter().map(|way| fio["jobs"][0][way][key].as_u64().expect(key)).sum::<u64>();
    let bios = group(&|name| name.starts_with("fio (") && group(&|other| other == name).0 == sum("total_ios"));
    assert_eq!(bios, (sum("total_ios"), sum("io_bytes")), "fio");
}

/// Counts and bytes are the same. Stages are not compared: two or three reads of 740 lack D2C in perf's recording. Their completions
/// interrupted threads of process 1, of which perf.data has no sample and no mark of a loss (Linux 6.18); the kernel's ring has them.
#[test]
fn what_perf_recorded_is_what_flashscope_recorded() {
    if lacking(&[("fio", "-v"), ("perf", "version")]) {
        return skip("peers_agree: root, a mounted tracefs, fio and perf are needed");
    }
    let dir = TempDir::new("peers-perf");
    let dir = dir.path();
    let Some((_disk, name)) = mounted(dir) else { return skip("peers_agree: no loop device with ext4") };
    std::fs::write(dir.join("work.sh"), WORK).expect("a script");
    let mut record = flashscope();
    let recorded = output(
        record
            .current_dir(dir)
            .args(["record", "--events", "block", "-o", "t.dat", "--", "sh", "-c", BY_PERF, "sh", &name]),
    );
    if !dir.join("perf.txt").exists() {
        return skip(&format!("peers_agree: perf records nothing here: {}", String::from_utf8_lossy(&recorded.stderr)));
    }
    let device = std::fs::read_to_string(format!("/sys/block/{name}/dev")).expect("its number");
    let groups = |file: &str| -> Vec<Value> {
        let said = stdout(flashscope().current_dir(dir).args(["report", "--json", file]));
        let said: Value = serde_json::from_str(&said).expect("JSON");
        let lost = said["losses"].as_array().expect("losses").iter().filter(|loss| loss["count"] != 0);
        assert_eq!(lost.collect::<Vec<_>>(), Vec::<&Value>::new(), "{file}");
        let of_device = |name: &str| name.starts_with(&format!("{} ", device.trim()));
        let groups = said["block"]["groups"].as_array().expect("groups").iter();
        groups.filter(|group| of_device(group["name"].as_str().expect("a name"))).cloned().collect()
    };
    let (ours, theirs) = (groups("t.dat"), groups("perf.txt"));
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        for figure in ["name", "bios", "bytes"] {
            assert_eq!(ours[figure], theirs[figure], "{figure}");
        }
        println!("{}: {} bios, {} bytes", ours["name"], ours["bios"], ours["bytes"]);
    }
    assert!(ours.iter().any(|group| group["bios"].as_u64() >= Some(500)), "{ours:?}");
}
