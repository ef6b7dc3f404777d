//! What the kernel and fio count of a mixed workload on a loop device of this host, and what the report counts.

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

#[test]
fn the_kernels_counts_and_fios_are_the_reports() {
    if !is_root()
        || !Path::new("/sys/kernel/tracing/instances").is_dir()
        || Command::new("fio").arg("-v").output().is_err()
    {
        return skip("peers_agree: root, a mounted tracefs and fio are needed");
    }
    let dir = TempDir::new("peers");
    let dir = dir.path();
    let sh = |script: &str| output(Command::new("sh").current_dir(dir).args(["-ec", script]));
    sh("truncate -s 256M image; mkdir m; mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 image");
    let made = sh("losetup -f --show --direct-io=on image");
    let disk = Disk(String::from_utf8_lossy(&made.stdout).trim().to_owned(), dir);
    let name = disk.0.trim_start_matches("/dev/").to_owned();
    let mount = format!("mount -o noinit_itable,no_prefetch_block_bitmaps {} m; sync; sleep 1", disk.0);
    if !made.status.success() || !sh(&mount).status.success() {
        return skip("peers_agree: no loop device with ext4");
    }
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
