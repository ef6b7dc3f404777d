//! What the kernel, fio, perf, blkparse and btt say of a mixed workload on a loop device of this host, and what the report counts.

use std::path::Path;
use std::process::Command;

use flashscope_analysis::block::Stage;
use flashscope_tests::{LoopDisk, cannot_record, flashscope, output, skip, stdout};
use serde_json::Value;

use crate::block_io::btt_of_dump;

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

/// A file to read and to write: no bio of what is recorded is so large that it is split (btt gets those wrong).
const FILE: &str = "dd if=/dev/zero of=m/f bs=64k count=256 conv=fsync 2> dd.log; sync; sleep 1";

/// Reads and writes, direct and buffered, flushes and discards.
const MIXED: &str = r#"set -e
cat /sys/block/$1/stat > before
fio --name=peer --directory=m --filename=f --size=16M --rw=randrw --bs=4k --direct=1 --ioengine=psync --number_ios=1500 > fio.log
for i in 1 2 3 4; do dd if=/dev/zero of=m/d$i bs=64k count=8 conv=fsync 2> dd.log; done
echo 3 > /proc/sys/vm/drop_caches
cat m/d1 m/d3 > /dev/null
rm m/d2; sync -f m; fstrim m; sync -f m
sleep 0.3
cat /sys/block/$1/stat > after"#;

/// The same, written at the same time by the kernel's blk tracer as blktrace's records: it needs no debugfs, which blktrace does. A
/// tracer is left only when nobody reads the pipe.
const BY_BLK_TRACER: &str = r#"set -e
t=/sys/kernel/tracing
[ "$(cat $t/current_tracer)" = nop ] && [ -z "$(cat $t/set_event)" ]
leave() {
    kill $pipe; wait $pipe 2> /dev/null || true
    echo nop > $t/current_tracer; echo nobin > $t/trace_options; echo context-info > $t/trace_options
    echo 0 > /sys/block/$1/trace/enable
}
echo 1 > /sys/block/$1/trace/enable
echo blk > $t/current_tracer; echo bin > $t/trace_options; echo nocontext-info > $t/trace_options
cat $t/trace_pipe > kernel.blktrace & pipe=$!
trap 'leave "$1"' EXIT
sleep 0.5
sh mixed.sh $1
sleep 1"#;

/// What a file's counts grew by; `skipped` words come before them.
fn grown(dir: &Path, before: &str, after: &str, skipped: usize) -> Vec<u64> {
    let read = |name: &str| -> Vec<u64> {
        let text = std::fs::read_to_string(dir.join(name)).expect("the kernel's counts");
        text.split_whitespace().skip(skipped).map(|word| word.parse().expect("a number")).collect()
    };
    read(after).iter().zip(read(before)).map(|(after, before)| after.wrapping_sub(before)).collect()
}

/// A new file system on a loop device.
fn mounted(label: &str) -> Option<LoopDisk> {
    let disk = LoopDisk::ext4(label, 256, "", &["--direct-io=on"], "no_prefetch_block_bitmaps")?;
    disk.sh("sync; sleep 1");
    Some(disk)
}

/// Why nothing can be compared here.
fn lacking(tools: &[(&str, &str)]) -> bool {
    cannot_record().is_some()
        || !Path::new("/sys/kernel/tracing/instances").is_dir()
        || tools.iter().any(|(tool, version)| Command::new(tool).arg(version).output().is_err())
}

#[test]
fn the_kernels_counts_and_fios_are_the_reports() {
    if lacking(&[("fio", "-v")]) {
        return skip("peers_agree: root, a mounted tracefs and fio are needed");
    }
    let Some(disk) = mounted("peers") else { return };
    let (dir, name) = (disk.path(), disk.device.name());
    let mut record = flashscope();
    stdout(
        record
            .current_dir(dir)
            .args(["record", "--events", "block", "-o", "t.dat", "--", "sh", "-c", WORK, "sh", name]),
    );
    let said = flashscope_tests::report(dir.join("t.dat"));
    let device = disk.device.number();
    let group = |wanted: &dyn Fn(&str) -> bool| {
        let mut groups = said["block"]["groups"].as_array().expect("groups").iter();
        let group = groups.find(|group| wanted(group["name"].as_str().expect("a name"))).expect("a group");
        (group["bios"].as_u64().expect("a count"), group["bytes"].as_u64().expect("bytes"))
    };
    let of = |kind: &str| group(&|name| name == format!("{} {kind}", &device));
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

/// The report of a trace that has lost nothing.
fn whole(trace: &Path) -> Value {
    let said = flashscope_tests::report(trace);
    let lost = said["losses"].as_array().expect("losses").iter().filter(|loss| loss["count"] != 0);
    assert_eq!(lost.collect::<Vec<_>>(), Vec::<&Value>::new(), "{}", trace.display());
    said
}

/// Bios and bytes of each group of this device.
fn groups_of(said: &Value, device: &str) -> Vec<(String, u64, u64)> {
    let groups = said["block"]["groups"].as_array().expect("groups").iter();
    let number = |value: &Value| value.as_u64().expect("a number");
    let group = |group: &Value| {
        let kind = group["name"].as_str()?.strip_prefix(device)?.strip_prefix(' ')?;
        Some((kind.to_owned(), number(&group["bios"]), number(&group["bytes"])))
    };
    groups.filter_map(group).collect()
}

/// The kernel's own records of the run go through btt and blkparse. btt lacks flushes without data, and ends a bio with FUA at its
/// data; so its stages are compared where no flush is.
#[test]
fn btts_and_blkparses_counts_are_the_reports() {
    if lacking(&[("fio", "-v"), ("btt", "-V")]) {
        return skip("peers_agree: root, a mounted tracefs, fio and blktrace's package are needed");
    }
    let Some(disk) = mounted("peers-btt") else { return };
    let (dir, name) = (disk.path(), disk.device.name());
    stdout(Command::new("sh").current_dir(dir).args(["-ec", FILE]));
    std::fs::write(dir.join("mixed.sh"), MIXED).expect("a script");
    let mut record = flashscope();
    let recorded = output(
        record
            .current_dir(dir)
            .args(["record", "--events", "block", "-o", "t.dat", "--", "sh", "-c", BY_BLK_TRACER, "sh", name]),
    );
    if std::fs::metadata(dir.join("kernel.blktrace")).map_or(0, |file| file.len()) == 0 {
        return skip(&format!("peers_agree: no blk tracer: {}", String::from_utf8_lossy(&recorded.stderr)));
    }
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let records = std::fs::File::open(dir.join("kernel.blktrace")).expect("the records");
    let text = stdout(Command::new("blkparse").current_dir(dir).args(["-i", "-", "-d", "dump"]).stdin(records));
    let btt = btt_of_dump(&dir.join("dump"));

    let device = disk.device.number();
    let report = |file: &str| whole(&dir.join(file));
    let said = report("kernel.blktrace");
    let groups = groups_of(&said, &device);
    println!("{groups:?}; btt: {} bios, {} sectors, {:?}", btt.queued, btt.sectors, btt.stages);
    assert_eq!(groups_of(&report("t.dat"), &device), groups, "our own recording");
    assert_eq!(groups.iter().map(|group| &group.0[..]).collect::<Vec<_>>(), ["reads", "writes", "discards", "flushes"]);

    let sum = |wanted: &[&str]| {
        let groups = groups.iter().filter(|group| wanted.contains(&&group.0[..]));
        groups.fold((0, 0), |sum, group| (sum.0 + group.1, sum.1 + group.2))
    };
    // To blkparse, discards and flushes are writes; it counts in KiB.
    for (kinds, heading) in [(&["reads"][..], "Reads"), (&["writes", "discards", "flushes"], "Writes")] {
        let (bios, bytes) = sum(kinds);
        assert_eq!(blkparse_sum(&text, &format!("{heading} Queued:")), (bios, bytes / 1024), "{heading}");
        assert_eq!(blkparse_sum(&text, &format!("{heading} Completed:")).1, bytes / 1024, "{heading}");
    }
    let (bios, bytes) = sum(&["reads", "writes", "discards"]);
    assert!(bios >= 1500 && sum(&["flushes"]).0 >= 1, "{groups:?}");
    assert_eq!((btt.queued, btt.sectors * 512), (bios, bytes), "btt");
    let stages = &said["block"]["stages"];
    assert_eq!(stages["parts"], 0, "split bios");
    // Reads, writes and discards have requests, merges and sectors; an empty flush counts as a write, and each step of a flush as one.
    let stat = grown(dir, "before", "after", 0);
    for (at, kinds) in [(0, &["reads"][..]), (4, &["writes", "flushes"]), (11, &["discards"])] {
        assert_eq!(sum(kinds), (stat[at] + stat[at + 1], stat[at + 2] * 512), "{kinds:?} and {stat:?}");
    }
    assert_eq!(said["block"]["flushes"]["requests"]["n"], stat[15], "flushes");
    let stage = |name: &str| {
        let at = Stage::ALL.iter().position(|stage| stage.name() == name).expect("a stage");
        let stage = &stages["all"][at];
        (stage["mean_ns"].as_u64().expect("a mean"), stage["n"].as_u64().expect("a number"))
    };
    assert_eq!(btt.stages["Q2C"].1, bios, "btt's Q2C");
    for name in ["Q2Q", "Q2M", "M2D"] {
        let (ours, theirs) = (stage(name), btt.stages[name]);
        assert!(ours.0.abs_diff(theirs.0) <= 1 && ours.1 == theirs.1, "{name}: {ours:?} and {theirs:?}");
    }
}

/// `Reads Queued:          79,     1488KiB` of all CPUs, which is the last of these: the number and the KiB.
fn blkparse_sum(text: &str, heading: &str) -> (u64, u64) {
    let rest = &text[text.rfind(heading).expect("a sum") + heading.len()..];
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    let mut next = || numbers.next().expect("a number").parse().expect("a number");
    (next(), next())
}

/// Counts and bytes are the same. Stages are not compared: two or three reads of 740 lack D2C in perf's recording. Their completions
/// interrupted threads of process 1, of which perf.data has no sample and no mark of a loss (Linux 6.18); the kernel's ring has them.
#[test]
fn what_perf_recorded_is_what_flashscope_recorded() {
    if lacking(&[("fio", "-v"), ("perf", "version")]) {
        return skip("peers_agree: root, a mounted tracefs, fio and perf are needed");
    }
    let Some(disk) = mounted("peers-perf") else { return };
    let (dir, name) = (disk.path(), disk.device.name());
    std::fs::write(dir.join("work.sh"), WORK).expect("a script");
    let mut record = flashscope();
    let recorded = output(
        record
            .current_dir(dir)
            .args(["record", "--events", "block", "-o", "t.dat", "--", "sh", "-c", BY_PERF, "sh", name]),
    );
    if !dir.join("perf.txt").exists() {
        return skip(&format!("peers_agree: perf records nothing here: {}", String::from_utf8_lossy(&recorded.stderr)));
    }
    let device = disk.device.number();
    let groups = |file: &str| -> Vec<Value> {
        let said = whole(&dir.join(file));
        let of_device = |name: &str| name.starts_with(&format!("{} ", &device));
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
