//! Staged situations: one planted cause each. The first finding names it; what it says to do is done, and the gain lies in the range that
//! was printed. Where no range is printed, what is advised does not make it worse.

use std::collections::HashMap;
use std::process::Command;

use flashscope_tests::{
    LoopDevice, Plan, TempDir, cannot_record, flashscope, null_block_device, output, skip, stdout, work,
};
use flashscope_trace::dat::write_filtered;
use serde_json::Value;

use super::findings::{first_is, gained, on_board, time};

/// A job: its name, what comes before the recording, and what is recorded.
type Job = (&'static str, &'static str, &'static str);

/// Reports of jobs, by name, in one boot.
fn boot(dir: &TempDir, mut plan: Plan<'_>, jobs: &[Job]) -> HashMap<&'static str, Value> {
    plan.files.push(("/work", 0o755, work("armv7-blk", "findings/work.c", dir.path())));
    for (job, before, script) in jobs {
        for (kind, text) in [("before", before), ("job", script)] {
            plan.files.push((Box::leak(format!("/{kind}-{job}").into_boxed_str()), 0o755, (*text).into()));
        }
        plan.lines.extend([
            format!("run before-{job} busybox sh /before-{job}"),
            format!("run sync-{job} busybox sync"),
            "write /proc/sys/vm/drop_caches 3".to_owned(),
            "record-start --events block,cache,syscall --mode ring --ring 16384".to_owned(),
            format!("run {job} busybox sh /job-{job}"),
            "record-stop".to_owned(),
        ]);
    }
    let booted = plan.boot();
    let report = |(i, (job, ..)): (usize, &Job)| {
        for step in [format!("before-{job}"), (*job).to_owned()] {
            let step = booted.step(&step);
            assert_eq!(step.status, Some(0), "{job}: {}", String::from_utf8_lossy(&step.stderr));
        }
        let trace = dir.path().join(format!("{job}.dat"));
        write_filtered(&booted.recording(i), &trace, &|_| true).expect("a trace.dat");
        (*job, flashscope_tests::report(&trace))
    };
    jobs.iter().enumerate().map(report).collect()
}

/// A plan for the board's own disk, with these settings.
fn plan<'a>(disk: &'a [(&'a str, &'a str)]) -> Plan<'a> {
    let mut plan = Plan::new("armv7-blk", "6.1");
    plan.packages = &["busybox-static"];
    plan.disk = disk;
    plan
}

/// Total of a stage of the groups whose name has this in it.
fn stage_ns(report: &Value, by: &str, name: &str, stage: &str) -> f64 {
    let all = report["block"]["groups"].as_array().expect("groups").iter();
    let of = all.filter(|one| one["by"] == by && one["name"].as_str().is_some_and(|group| group.contains(name)));
    let stages = of.flat_map(|one| one["stages"].as_array().expect("stages"));
    stages.filter(|one| one["stage"] == stage).map(|one| one["total_ns"].as_f64().expect("a time")).sum()
}

fn own_ns(report: &Value) -> f64 {
    stage_ns(report, "owner", "work (", "Q2C")
}

fn bytes_read(report: &Value) -> f64 {
    let all = report["block"]["originators"]["originators"].as_array().expect("originators").iter();
    all.filter(|one| one["name"].as_str().is_some_and(|name| name.starts_with("work")))
        .map(|one| one["read_bytes"].as_f64().expect("bytes"))
        .sum()
}

fn whole(finding: &Value) -> String {
    format!("{} {}", finding["what"], finding["cause"])
}

/// A disk that takes one request at a time, 1.5 ms each: a backup beside a player; 2 MiB of read-ahead for bytes here and there of a
/// mapped file; small files, small reads in order and at random; two readers side by side; parts of blocks that are written.
#[test]
fn readers_on_a_slow_disk() {
    const SLOW: [(&str, &str); 2] = [("completion_ns", "1500000"), ("queue_depth", "1")];
    const MAKE: &str = "b=busybox; $b dd if=/dev/zero of=/mnt/film bs=64k count=96; \
                        $b dd if=/dev/zero of=/mnt/photos bs=64k count=160";
    const BACKUP: &str = "busybox dd if=/mnt/photos of=/mnt/backup bs=64k conv=fsync & /work play 150 /mnt/film; wait";
    let dir = TempDir::new("situations-slow");
    let said = boot(
        &dir,
        plan(&SLOW),
        &[
            ("backup", MAKE, BACKUP),
            ("alone", "busybox rm /mnt/backup", "/work play 150 /mnt/film"),
            (
                "together",
                "busybox true",
                "busybox cat /mnt/film > /dev/null & busybox cat /mnt/photos > /dev/null; wait",
            ),
            ("one-after", "busybox true", "busybox cat /mnt/film > /dev/null; busybox cat /mnt/photos > /dev/null"),
            (
                "mapped",
                "busybox rm /mnt/film /mnt/photos; busybox dd if=/dev/zero of=/mnt/map bs=64k count=700; \
                 echo 2048 > /sys/block/nullb0/queue/read_ahead_kb",
                "/work map 12 /mnt/map",
            ),
            ("mapped-128", "echo 128 > /sys/block/nullb0/queue/read_ahead_kb", "/work map 12 /mnt/map"),
            (
                "all-of-it",
                "busybox dd if=/dev/zero of=/mnt/small bs=64k count=64; echo 2048 > /sys/block/nullb0/queue/read_ahead_kb",
                "/work map 400 /mnt/small",
            ),
            (
                "files",
                "busybox rm /mnt/map; busybox mkdir /mnt/many; /work many 800 /mnt/many",
                "/work thumbs 800 0 /mnt/many",
            ),
            ("files-ahead", "busybox true", "/work thumbs 800 16 /mnt/many"),
            ("in-order", "busybox true", "/work direct 1000 4096 seq /mnt/small"),
            ("in-order-64", "busybox true", "/work direct 63 65536 seq /mnt/small"),
            ("random", "busybox true", "/work direct 2000 4096 random /mnt/small"),
            ("parts", "busybox true", "/work parts 150 200 /mnt/small"),
            ("whole", "busybox true", "/work parts 150 4096 /mnt/small"),
        ],
    );
    let backup = first_is(&said["backup"], "behind_another");
    assert!(whole(&backup).contains("behind busybox (") && whole(&backup).contains("work ("), "{backup:#}");
    // What it waits behind the backup is what it takes less without it, as near as the device's own mean is known.
    let (with, without) = (own_ns(&said["backup"]), own_ns(&said["alone"]));
    let price = backup["lost_ns"].as_f64().expect("a price");
    assert!((price - (with - without)).abs() < with * 0.15, "{price} of {with}, {without} alone: {backup:#}");
    assert!(!said["alone"]["findings"].to_string().contains("behind_another"));

    let together = first_is(&said["together"], "behind_another");
    assert!(whole(&together).contains("at the same time and wait for one another"), "{together:#}");
    let both_ns =
        |report: &Value| stage_ns(report, "owner", "busybox (", "Q2C") + stage_ns(report, "owner", "cat (", "Q2C");
    gained(&together, both_ns(&said["together"]), both_ns(&said["one-after"]));
    assert!(!said["one-after"]["findings"].to_string().contains("behind_another"));

    let mapped = first_is(&said["mapped"], "readahead_wasted");
    gained(&mapped, bytes_read(&said["mapped"]), bytes_read(&said["mapped-128"]));
    assert!(own_ns(&said["mapped-128"]) < own_ns(&said["mapped"]));
    // All of a file is read by large windows around faults: smaller ones would take longer.
    assert!(
        !said["all-of-it"]["findings"].to_string().contains("readahead_wasted"),
        "{:#}",
        said["all-of-it"]["findings"]
    );

    let files = &said["files"]["findings"][0];
    assert!(files["rule"] == "small_reads" && whole(files).contains("in 800 files"), "{files:#}");
    let calls = |report: &Value| -> f64 {
        let all = report["calls"]["by_process"].as_array().expect("calls").iter();
        all.filter(|one| one["name"].as_str().is_some_and(|name| name.starts_with("work (")))
            .map(|one| one["total_ns"].as_f64().expect("a time"))
            .sum()
    };
    assert!(
        calls(&said["files-ahead"]) < calls(&said["files"]) * 1.05,
        "{} {}",
        calls(&said["files-ahead"]),
        calls(&said["files"])
    );

    // Several at once are no longer one after another.
    assert!(!said["files-ahead"]["findings"].to_string().contains("small_reads"));

    let in_order = first_is(&said["in-order"], "small_reads");
    assert!(whole(&in_order).contains(", in order,"), "{in_order:#}");
    gained(&in_order, own_ns(&said["in-order"]), own_ns(&said["in-order-64"]));
    assert!(!said["in-order-64"]["findings"].to_string().contains("small_reads"));
    let random = first_is(&said["random"], "small_reads");
    assert!(whole(&random).contains("at random, and of nearly all"), "{random:#}");
    gained(&random, own_ns(&said["random"]), own_ns(&said["in-order-64"]));

    let parts = first_is(&said["parts"], "read_before_write");
    let in_writes = |report: &Value| time(report, "pwrite64");
    gained(&parts, in_writes(&said["parts"]), in_writes(&said["whole"]));
    assert!(!said["whole"]["findings"].to_string().contains("read_before_write"));
}

/// A disk that takes 64 requests at once, 1.5 ms each: twelve readers with a queue of four requests; a search of a tree.
#[test]
fn a_short_queue_and_a_search() {
    const WIDE: [(&str, &str); 2] = [("completion_ns", "1500000"), ("queue_depth", "64")];
    const READERS: &str = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do /work direct 100 4096 random /mnt/film & done; wait";
    const TREE: &str =
        "i=0; while [ $i -lt 80 ]; do busybox mkdir /mnt/d$i; /work many 40 /mnt/d$i; i=$((i + 1)); done";
    let dir = TempDir::new("situations-queue");
    let said = boot(
        &dir,
        plan(&WIDE),
        &[
            (
                "few",
                "busybox dd if=/dev/zero of=/mnt/film bs=64k count=64; echo 4 > /sys/block/nullb0/queue/nr_requests",
                READERS,
            ),
            ("enough", "echo 64 > /sys/block/nullb0/queue/nr_requests", READERS),
            ("search", TREE, "busybox du /mnt > /dev/null"),
        ],
    );
    let few = first_is(&said["few"], "few_requests");
    let reads = |report: &Value| stage_ns(report, "device", " reads", "Q2C");
    gained(&few, reads(&said["few"]), reads(&said["enough"]));
    assert!(!said["enough"]["findings"].to_string().contains("few_requests"));
    let search = first_is(&said["search"], "metadata_reads");
    assert!(whole(&search).contains("busybox (") && whole(&search).contains("are metadata"), "{search:#}");
    assert!(!said["search"]["findings"].to_string().contains("small_reads"), "{:#}", said["search"]["findings"]);
}

/// 20 MiB into the page cache, where 1 MiB of changed memory are allowed, and where as much is allowed as is advised.
#[test]
fn a_small_limit_of_changed_memory() {
    const WRITE: &str = "/work write 5000 /mnt/file";
    let run = |dir: &TempDir, limit: &'static str| {
        boot(dir, plan(&[("completion_ns", "4000000"), ("queue_depth", "1")]), &[("writer", limit, WRITE)])
    };
    let dir = TempDir::new("situations-dirty");
    let before = run(&dir, "echo 1048576 > /proc/sys/vm/dirty_bytes");
    let finding = first_is(&before["writer"], "dirty_limit");
    assert!(whole(&finding).contains("vm.dirty_bytes=1048576"), "{finding:#}");
    let command = finding["advice"][0]["steps"][1]["command"].as_str().expect("a command");
    let set = command.replace("sysctl vm.dirty_bytes=", "echo ") + " > /proc/sys/vm/dirty_bytes";
    let after = run(&dir, Box::leak(set.into_boxed_str()));
    gained(&finding, time(&before["writer"], "write"), time(&after["writer"], "write"));
    assert!(!after["writer"]["findings"].to_string().contains("dirty_limit"));
}

/// Reads of 4 KiB here and there of a file on squashfs, with blocks of 1 MiB and of 16 KiB.
#[test]
fn small_reads_of_large_blocks() {
    let dir = TempDir::new("situations-squashfs");
    let run = |block: &str| {
        let script = format!(
            "b=/bin/busybox; mkdir /tmp/d; $b dd if=/dev/urandom of=/tmp/d/f bs=64k count=256 2> /dev/null; \
             /usr/bin/mksquashfs /tmp/d /mnt/s -b {block} > /dev/null; sync; rm /tmp/d/f; mkdir -p /m; \
             mount -t squashfs -o loop,ro /mnt/s /m || exit 1; echo 3 > /proc/sys/vm/drop_caches; \
             i=0; while [ $i -lt 60 ]; do \
             $b dd if=/m/f of=/dev/null bs=4k count=1 skip=$(((i * 1877) % 4096)) 2> /dev/null; i=$((i + 1)); done; true"
        );
        let tools = ["--modules", "squashfs,loop", "--packages", "squashfs-tools"];
        let disk = ["--disk", "completion_ns=500000,queue_depth=1", "--events", "block,cache,syscall"];
        on_board(&dir, "board:armv7-blk", &[&tools[..], &disk[..]].concat(), &script)
    };
    let brought_in = |report: &Value| -> f64 {
        let mut files = report["readahead"]["files"].as_array().expect("files").iter();
        let file = files.find(|file| file["path"] == "/m/f").expect("the file");
        ["ahead", "requested"].map(|part| file[part].as_f64().expect("pages")).iter().sum()
    };
    let large = run("1M");
    let finding = first_is(&large, "readahead_wasted");
    assert!(whole(&finding).contains("Squashfs unpacks a complete block"), "{finding:#}");
    let small = run("16K");
    gained(&finding, brought_in(&large), brought_in(&small));
    assert!(!small["findings"].to_string().contains("readahead_wasted"), "{:#}", small["findings"]);
}

/// A file system of the host's tools, for a disk that is made on the board.
fn ext4(dir: &TempDir) -> Option<Vec<u8>> {
    let script = "dd if=/dev/zero of=disk bs=1M count=60 2> log; \
                  mkfs.ext4 -q -m 0 -O ^metadata_csum_seed,^orphan_file -E lazy_itable_init=0,lazy_journal_init=0 disk \
                  || mkfs.ext4 -q -m 0 -E lazy_itable_init=0,lazy_journal_init=0 disk; gzip -n disk";
    let made = output(Command::new("sh").current_dir(dir.path()).args(["-c", script]));
    made.status.success().then(|| std::fs::read(dir.path().join("disk.gz")).expect("a file system"))
}

/// The mount option `discard` on a device that takes 5 ms for a request.
#[test]
fn discards_of_a_slow_device() {
    let dir = TempDir::new("situations-discard");
    let Some(disk) = ext4(&dir) else { return skip("situations: no ext4 could be made") };
    let mut plan = plan(&[]);
    plan.files.push(("/disk.gz", 0o644, disk));
    plan.lines = null_block_device(
        "nullb1",
        &[
            "size=64",
            "memory_backed=1",
            "submit_queues=1",
            "hw_queue_depth=1",
            "irqmode=2",
            "completion_nsec=5000000",
            "discard=1",
        ],
    );
    let make = "busybox zcat /disk.gz > /dev/nullb1; busybox mkdir /d; \
                busybox mount -t ext4 -o discard,noatime,commit=1 /dev/nullb1 /d; busybox mkdir /d/x";
    let said = boot(
        &dir,
        plan,
        &[
            ("discard", make, "/work remove 40 /d/x"),
            ("nodiscard", "busybox mount -o remount,nodiscard /d", "/work remove 40 /d/x"),
        ],
    );
    let finding = first_is(&said["discard"], "discard_stalls");
    assert_eq!(finding["advice"][0]["steps"][0]["options"], "nodiscard", "{finding:#}");
    let discards = |report: &Value| stage_ns(report, "device", " discards", "Q2C");
    gained(&finding, discards(&said["discard"]), discards(&said["nodiscard"]));
    assert!(!said["nodiscard"]["findings"].to_string().contains("discard_stalls"));
}

/// A database that reads here and there, on dm-crypt; and the same on a slow device, where the encryption hardly counts.
#[test]
fn a_database_on_dm_crypt() {
    const TABLE: &str = "0 131072 crypt aes-xts-plain64 \
                         0000000000000000000000000000000000000000000000000000000000000001 0 /dev/nullb1 0";
    let dir = TempDir::new("situations-crypt");
    let Some(disk) = ext4(&dir) else { return skip("situations: no ext4 could be made") };
    let mut plan = plan(&[]);
    plan.packages = &["busybox-static", "dmsetup"];
    plan.modules = &["dm-crypt", "xts", "aes_generic", "ecb"];
    plan.files.push(("/disk.gz", 0o644, disk));
    let common = ["size=64", "memory_backed=1", "submit_queues=1", "irqmode=2"];
    let device = |name, depth, ns| null_block_device(name, &[&common[..], &[depth, ns]].concat());
    plan.lines = device("nullb1", "hw_queue_depth=64", "completion_nsec=100000");
    plan.lines.extend(device("nullb2", "hw_queue_depth=1", "completion_nsec=5000000"));
    let dm = |name: &str, table: &str| {
        format!(
            "/sbin/dmsetup create --noudevsync --noudevrules -u CRYPT-PLAIN-{name} {name} --table \"{table}\"; \
             /sbin/dmsetup mknodes; busybox zcat /disk.gz > /dev/mapper/{name}; busybox mkdir /{name}; \
             busybox mount -t ext4 /dev/mapper/{name} /{name}; "
        )
    };
    let db = "busybox dd if=/dev/zero of=/secret/db bs=64k count=256";
    let make = Box::leak((dm("secret", TABLE) + db).into_boxed_str());
    let mend = format!(
        "/sbin/dmsetup suspend secret; /sbin/dmsetup reload secret --table \"{TABLE} 2 no_read_workqueue no_write_workqueue\"; \
         /sbin/dmsetup resume secret"
    );
    let slow = Box::leak(dm("slow", &TABLE.replace("nullb1", "nullb2")).into_boxed_str());
    let said = boot(
        &dir,
        plan,
        &[
            ("crypt", make, "/work direct 600 8192 random /secret/db"),
            ("refreshed", Box::leak(mend.into_boxed_str()), "/work direct 600 8192 random /secret/db"),
            ("slow", slow, "/work log 100 1 /slow/log"),
        ],
    );
    let finding = first_is(&said["crypt"], "layered_device");
    assert!(whole(&finding).contains("Encryption (dm-crypt)"), "{finding:#}");
    gained(&finding, own_ns(&said["crypt"]), own_ns(&said["refreshed"]));
    // Bios that wait for a device of one request at a time do so in the layer above it: that is no price of the encryption.
    let slow = first_is(&said["slow"], "fsync_storm");
    assert!(whole(&slow).contains("work ("), "{slow:#}");
}

/// A loop device and a group of processes, which are gone with the value, also where a test fails.
struct Limited {
    device: LoopDevice,
    group: std::path::PathBuf,
}

impl Drop for Limited {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.group).ok();
    }
}

/// A loop device, and a limit of its reads in the group of the reader: the device is not what is slow.
#[test]
fn a_limit_of_a_cgroup_is_no_slow_device() {
    let blkio = std::path::Path::new("/sys/fs/cgroup/blkio");
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    if !blkio.join("blkio.throttle.read_iops_device").exists() {
        return skip("situations: limits need the controller blkio of cgroup v1");
    }
    let dir = TempDir::new("situations-limit");
    work("x86_64", "findings/work.c", dir.path());
    let sh = |script: &str| output(Command::new("sh").current_dir(dir.path()).args(["-ec", script]));
    let group = blkio.join(format!("flashscope-test-{}", std::process::id()));
    sh("dd if=/dev/zero of=image bs=1M count=32 2> log; sync -f image");
    let device = match LoopDevice::of(&dir.path().join("image"), &["--direct-io=on"]) {
        Ok(device) => device,
        Err(why) => return skip(&format!("situations: no loop device: {why}")),
    };
    let limited = Limited { device, group };
    let (device, group) = (&limited.device.0, &limited.group);
    std::fs::create_dir(group).expect("a cgroup");
    let number = limited.device.number();
    let limit = group.join("blkio.throttle.read_iops_device");
    std::fs::write(&limit, format!("{number} 200")).expect("a limit");
    let report = |into: &str| -> Value {
        let script = format!("{into} exec ./work direct 600 4096 random {device}");
        let mut record = flashscope();
        // Not with --device: a read that waits outside has no event of the device in it, and is left out there.
        record.current_dir(dir.path()).args(["-q", "record", "--events", "block,cache,syscall"]);
        stdout(record.args(["-o", "t.dat", "--", "sh", "-c", &script]));
        flashscope_tests::report(dir.path().join("t.dat"))
    };
    let slow = report(&format!("echo $$ > {}/cgroup.procs;", group.display()));
    let free = report("");
    // A worker of the kernel queues most of the bios that waited, or the reader itself: both are told.
    let finding = first_is(&slow, "waits_outside");
    assert!(whole(&finding).contains("work (") && whole(&finding).contains("io.max"), "{finding:#}");
    // Without it no limit is named; on busy processors these reads wait for one, and that may be said.
    assert!(!free["findings"].to_string().contains("io.max"), "{:#}", free["findings"]);
}

/// One transaction a row with a rollback journal, and with the write-ahead log that is advised.
#[test]
fn sqlite_with_a_rollback_journal() {
    let dir = TempDir::new("situations-sqlite");
    let run = |mode: &str| {
        let script = format!(
            "(echo 'pragma synchronous=FULL;'; i=0; while [ $i -lt 150 ]; do \
             echo \"insert into t values($i, 'some text of a row');\"; i=$((i+1)); done) > /rows; \
             sqlite3 /mnt/db 'pragma journal_mode={mode}; create table t(a, b);'; busybox sync; \
             exec sqlite3 /mnt/db < /rows"
        );
        let more = ["--packages", "sqlite3", "--events", "block,cache,syscall"];
        on_board(&dir, "board:armv7-blk", &more, &format!("PATH=/bin:/usr/bin; {script}"))
    };
    let [before, after] = &["delete", "wal"].map(run);
    let finding = first_is(before, "fsync_storm");
    assert!(finding["what"].as_str().is_some_and(|what| what.starts_with("sqlite3 (")), "{finding:#}");
    // A journal lives for a millisecond: it is known by its name, or by its deletion.
    let advice = &finding["advice"][0];
    assert!(advice["what"].as_str().is_some_and(|what| what.contains("write-ahead log")), "{finding:#}");
    assert_eq!(advice["steps"][0]["line"], "PRAGMA journal_mode=WAL;");
    let of_syncs = |report: &Value, figure: &str| -> f64 {
        let all = report["calls"]["by_process"].as_array().expect("calls").iter();
        let of = all.filter(|one| {
            let is_it = one["ns"]["n"].as_u64() > Some(100);
            is_it
                && one["call"] == "fdatasync"
                && one["name"].as_str().is_some_and(|name| name.starts_with("sqlite3 ("))
        });
        of.map(|one| one.pointer(figure).and_then(Value::as_f64).expect("a figure")).sum()
    };
    // Two of the journal, one of the database and one of the directory for each row.
    assert_eq!(of_syncs(before, "/ns/n"), 600.0);
    assert!((150.0..170.0).contains(&of_syncs(after, "/ns/n")), "{}", of_syncs(after, "/ns/n"));
    gained(&finding, of_syncs(before, "/total_ns"), of_syncs(after, "/total_ns"));
}
