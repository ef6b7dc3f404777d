//! A loop device of this host, and the disk beneath it: each I/O of a program counts once where it was requested, and once where
//! the disk did it.

use flashscope_tests::{LoopDisk, cannot_record, flashscope, skip, stdout};
use serde_json::Value;

/// 1 MiB of direct reads, 40 KiB of direct writes, 80 KiB through the page cache. The program has a name that no other one has: a dd of
/// somebody else writes to the same disk.
const WORK: &str = r#"set -e
./workdd if=m/f of=/dev/null bs=64k count=16 iflag=direct 2> dd.log
./workdd if=/dev/zero of=m/g bs=4k count=10 oflag=direct conv=notrunc 2> dd.log
./workdd if=/dev/zero of=m/h bs=4k count=20 conv=fsync,notrunc 2> dd.log
sync -f image
sleep 0.2"#;

/// Bytes of the rows that `wanted` likes, by kind of operation.
fn bytes(rows: &[Value], kind: &str, wanted: &dyn Fn(&Value) -> bool) -> u64 {
    let rows = rows.iter().filter(|row| row["kind"] == kind && wanted(row));
    rows.map(|row| row["bytes"].as_u64().expect("bytes")).sum()
}

fn check(direct: &str) {
    let losetup = format!("--direct-io={direct}");
    let Some(disk) = LoopDisk::ext4("loops", 64, "", &[&losetup], "defaults") else { return };
    let dir = disk.path();
    let ready = disk.sh("for f in f g h; do dd if=/dev/urandom of=m/$f bs=64k count=16 conv=fsync; done; sync -f m; \
         cp $(command -v dd) workdd; sync workdd; sync image; dd of=image oflag=nocache conv=notrunc,fdatasync count=0");
    assert!(ready.status.success(), "{ready:?}");
    let device = disk.device.number();
    let mut record = flashscope();
    record.current_dir(dir).args(["record", "--events", "block,cache,syscall", "-o", "t.dat", "--", "sh", "-c", WORK]);
    stdout(&mut record);
    let said = flashscope_tests::report(dir.join("t.dat"));
    let found = &said["block"];
    let backing = &found["loops"].as_array().expect("loops").iter().find(|one| one["device"] == device.as_str());
    let backing = &backing.expect("the loop device")["backing"];
    if backing["unknown"].is_string() && !backing["unknown"].as_str().expect("a reason").contains("backing file") {
        return skip(&format!("loops: the image does not lie on ext4 or f2fs: {backing}"));
    }
    let image = dir.join("image");
    assert_eq!(backing["file"].as_str(), image.to_str(), "{direct}: {backing}");

    let rows =
        stdout(flashscope().current_dir(dir).args(["export", "t.dat", "--to", "json", "--rows", "bios", "-o", "-"]));
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of_dd = |row: &Value| row["owner"] == "workdd";
    let asked = |row: &Value| of_dd(row) && row["device"] == device.as_str();
    let done = |row: &Value| of_dd(row) && row["device"] != device.as_str() && row["below"] == true;
    let kinds = ["read", "write"].map(|kind| [bytes(&rows, kind, &asked), bytes(&rows, kind, &done)]);
    println!("direct {direct}: asked for and done, reads and writes: {kinds:?}; {}", found["stack"]);
    let [[read, disk_read], [written, disk_written]] = kinds;
    // Beside the data, little of the file system's own that dd waited for.
    assert!((1 << 20..(1 << 20) + (64 << 10)).contains(&read), "{read}");
    assert!((120 << 10..184 << 10).contains(&written), "{written}");
    assert!(disk_read >= read, "{direct}: what was asked for comes from the disk: {read} {disk_read}");
    // A page of the backing file that two wrote to is shared.
    let through = |row: &Value| row["below"] == true && row["device"] != device.as_str();
    assert!(disk_written >= 120 << 10 || bytes(&rows, "write", &through) >= written, "{direct}: {disk_written}");
    // Nothing of the disk's that was done for the loop device is a program's once more.
    assert!(rows.iter().all(|row| row["device"] != device.as_str() || row["below"] == false));
    let queued = rows.iter().filter(|row| row["below"] == false).count() as u64;
    assert_eq!(found["stages"]["bios_queued"].as_u64(), Some(queued));
    let originators = found["originators"]["originators"].as_array().expect("originators");
    let of = |name: &str| -> u64 {
        let of_work =
            originators.iter().filter(|one| one["name"].as_str().is_some_and(|one| one.starts_with("workdd (")));
        of_work.map(|one| one[name].as_u64().expect("bytes")).sum()
    };
    let others = |row: &Value| of_dd(row) && row["device"] != device.as_str() && row["below"] == false;
    assert_eq!(of("written_bytes"), written + bytes(&rows, "write", &others), "{direct}: counted once");
    assert_eq!(of("read_bytes"), read + bytes(&rows, "read", &others), "{direct}: counted once");

    let stack = found["stack"].as_array().expect("a stack");
    let level = stack.iter().find(|level| level["upper"] == device.as_str()).expect("the loop device's level");
    assert_eq!(level["file"].as_str(), image.to_str());
    let number = |name: &str| level[name].as_u64().expect("a number");
    assert!(number("lower_bytes") + number("cached_bytes") >= disk_read, "{level}");
    assert_eq!(number("cached_bytes") > 0, direct == "off", "{level}");
    let parts = ["mean_down_ns", "mean_below_ns", "mean_up_ns"].map(number);
    assert!(parts.iter().all(|&ns| ns > 0) && parts.iter().sum::<u64>() <= number("mean_q2c_ns") + 3, "{level}");
}

#[test]
fn a_loop_device_is_seen_through_to_its_file_and_the_disk() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    for direct in ["on", "off"] {
        check(direct);
    }
}

/// 256 KiB through the page cache, 512 KiB past it over the same place, and 192 KiB read past it; 128 KiB of a new file past it.
const DIRECT: &str = r#"set -e
dd if=/dev/zero of=m/f bs=64k count=4 conv=fsync,notrunc 2> dd.log
dd if=/dev/zero of=m/f bs=64k count=8 oflag=direct conv=notrunc 2> dd.log
dd if=m/f of=/dev/null bs=64k count=3 iflag=direct 2> dd.log
dd if=/dev/zero of=m/g bs=64k count=2 oflag=direct 2> dd.log"#;

#[test]
fn files_have_the_bytes_that_went_past_the_page_cache() {
    if let Some(why) = flashscope_tests::cannot_record() {
        return skip(why);
    }
    let Some(disk) = LoopDisk::ext4("past-cache", 16, "", &[], "defaults") else { return };
    // Not in the cache: then the first write asks where its blocks lie, which the trace shows.
    let made =
        "dd if=/dev/urandom of=m/f bs=64k count=8; sync -f m; dd of=m/f oflag=nocache conv=notrunc,fdatasync count=0";
    assert!(disk.sh(made).status.success());
    let mut record = flashscope();
    record.current_dir(disk.path()).args(["record", "-o", "t.dat", "--", "sh", "-c", DIRECT]);
    stdout(&mut record);
    let said = flashscope_tests::report(disk.path().join("t.dat"));
    let rows = said["names"]["files"].as_array().expect("files");
    let of = |name: &str| {
        let path = disk.path().join(name);
        let row = rows.iter().find(|row| row["who"] == "dd" && row["path"].as_str() == path.to_str());
        row.map(|row| ["read_bytes", "written_bytes"].map(|what| row[what].as_u64().map(|bytes| bytes >> 10)))
    };
    assert_eq!((of("m/f"), of("m/g")), (Some([Some(192), Some(768)]), Some([Some(0), Some(128)])));
    let written_back = said["block"]["originators"]["files"].as_array().expect("files");
    let device = disk.device.number();
    let written_back = written_back.iter().filter(|one| one["device"] == device.as_str());
    assert_eq!(written_back.map(|one| one["written_bytes"].as_u64()).collect::<Vec<_>>(), [Some(256 << 10)]);
}
