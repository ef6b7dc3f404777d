//! What of read-ahead is used: where the kernel has kprobes, and where it has its own events alone.

use super::{input, report};
use flashscope_tests::{TempDir, flashscope, output, stdout};
use flashscope_trace::Trace;
use flashscope_trace::dat::write_filtered;
use serde_json::Value;
use std::path::Path;

/// Reads of one file, in order and not, whole pages and parts of them; a file that is copied, and read once more.
const WORK: &str = "cd /mnt; /bin/busybox dd if=/dev/urandom of=f bs=4096 count=200; sync; echo 3 > /proc/sys/vm/drop_caches; \
    /bin/busybox dd if=f of=/dev/shm/x bs=4096 count=9; /bin/busybox dd if=f of=/dev/shm/x bs=1000 skip=300 count=40; \
    /bin/busybox dd if=f of=/dev/shm/x bs=4096 skip=150 count=1; /bin/busybox cp f g; /bin/busybox dd if=g of=/dev/shm/x bs=8192";

/// Events of the group `cache`, by name: so no probe of ours is made.
const KERNELS: &str = "filemap:mm_filemap_add_to_page_cache,filemap:mm_filemap_delete_from_page_cache,\
    filemap:mm_filemap_get_pages,filemap:mm_filemap_fault,filemap:mm_filemap_map_pages,ext4:ext4_da_write_begin";

fn recorded(dir: &TempDir, kernel: &str, events: &str) -> String {
    let dat = dir.path().join(format!("{kernel}-{}.dat", events.len()));
    let mut record = flashscope();
    record.args(["-q", "record", "--on", "board:armv7-blk", "--kernel", kernel, "--events", events]);
    record.args(["--packages", "busybox-static", "-o"]).arg(&dat);
    stdout(record.args(["--", "/bin/busybox", "sh", "-c", &format!("mkdir -p /dev/shm; {WORK}")]));
    dat.to_str().expect("UTF-8").to_owned()
}

/// Of each file below /mnt: requested, ahead, used.
fn used(report: &Value) -> Vec<[u64; 4]> {
    let files = report["readahead"]["files"].as_array().unwrap_or_else(|| panic!("{}", report["readahead"]));
    let number = |file: &Value, name: &str| file[name].as_u64().expect("a number");
    let of = |f: &Value| [number(f, "inode"), number(f, "requested"), number(f, "ahead"), number(f, "ahead_used")];
    let mut all: Vec<_> = files.iter().map(of).filter(|file| file[1] + file[2] >= 50).collect();
    all.sort();
    all
}

#[test]
fn the_kernels_own_event_tells_what_our_probe_tells() {
    let dir = TempDir::new("readahead-use");
    for kernel in ["6.12", "newest"] {
        let probes = recorded(&dir, kernel, "block,cache,syscall");
        let alone = recorded(&dir, kernel, &format!("block,syscall,{KERNELS}"));
        let (with, without) = (used(&report(&probes)), used(&report(&alone)));
        // As on 6.5 to 6.11, whose kernels lack that event: `cp` reads by sendfile(), which a probe of its own shows.
        let older = dir.path().join(format!("{kernel}-older.dat"));
        let trace = Trace::open(Path::new(&probes)).expect("a trace");
        write_filtered(&trace, &older, &|record| record.schema.name != "mm_filemap_get_pages").expect("a trace.dat");
        let by_probe = used(&report(older.to_str().expect("UTF-8")));
        println!("{kernel}: with probes {with:?}, without {without:?}, by probes alone {by_probe:?}");
        assert_eq!(by_probe, with, "{kernel}: probes alone");
        assert!(!with.is_empty());
        assert_eq!(with, without, "{kernel}");
        let predicted = |trace: &str| stdout(flashscope().args(["predict", "--json", "--readahead", "0,128", trace]));
        for trace in [&probes, &alone] {
            let json: Value = serde_json::from_str(&predicted(trace)).expect("JSON");
            assert!(json.is_object());
        }
    }
}

#[test]
fn without_an_event_that_shows_reads_use_is_unknown() {
    let dir = TempDir::new("readahead-unknown");
    let events = "block,filemap:mm_filemap_add_to_page_cache,filemap:mm_filemap_delete_from_page_cache";
    let trace = recorded(&dir, "6.1", events);
    let json = report(&trace);
    assert!(json["readahead"]["unknown"].as_str().is_some_and(|why| why.contains("mm_filemap_get_pages")), "{json}");
    let text = stdout(flashscope().arg("report").arg(&trace));
    assert!(text.contains("Use of read-ahead is unknown"), "{text}");
    let refused = output(flashscope().args(["predict", &trace]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("does not say which part of which file was read"));
    assert!(refused.stdout.is_empty());
}

/// Sixteen pages in one go, and all of them used: each setting of read-ahead gives so many, and none is known to have been there.
#[test]
fn a_setting_that_nothing_shows_is_unknown() {
    let input = input("readahead-any-setting");
    let advise = |more: &[&str]| -> serde_json::Value {
        flashscope_tests::json(flashscope().args(["advise", "--json", "--kernel-model", "6.12"]).args(more).arg(&input))
    };
    let unknown = &advise(&[])["readahead_kib_now"];
    assert!(unknown["unknown"].as_str().is_some_and(|why| why.contains("several settings")), "{unknown}");
    assert!(unknown["next"].as_str().is_some_and(|next| next.contains("--now KIB")), "{unknown}");
    assert_eq!(advise(&["--now", "128"])["readahead_kib_now"], 128);
}

/// Three events of the page cache alone: no writes, no faults, no block device.
#[test]
fn pages_that_may_have_been_written_are_not_read_ahead() {
    let readahead = &report("readahead-writes-not-shown")["readahead"];
    let total = &readahead["total"];
    let number = |name: &str| total[name].as_u64().expect("a number");
    let counts = ["requested", "ahead", "ahead_used", "ahead_left_unused", "mapped", "origin_unknown"].map(number);
    assert_eq!(counts, [1, 3, 1, 0, 2, 17], "{readahead}");
    assert!(total["ahead_late"].is_null() && total["ahead_evicted_unused"] == 0, "{readahead}");
    let input = input("readahead-writes-not-shown");
    let text = stdout(flashscope().arg("report").arg(&input)).replace('\n', " ");
    for event in ["writeback:writeback_dirty_folio", "filemap:mm_filemap_fault"] {
        assert!(text.contains(event), "{event}: {text}");
    }
    // Without the reader nothing is known.
    let dir = TempDir::new("readahead-writes");
    let all = std::fs::read_to_string(&input).expect("a case");
    let others: String =
        all.lines().filter(|line| !line.contains("ino c pfn")).map(|line| format!("{line}\n")).collect();
    let alone = dir.path().join("alone");
    std::fs::write(&alone, others).expect("a file");
    let unknown = &report(alone.to_str().expect("UTF-8"))["readahead"];
    assert!(unknown["unknown"].as_str().is_some_and(|why| why.contains("writeback_dirty_folio")), "{unknown}");
}
