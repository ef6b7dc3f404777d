//! Neighbours of the other cases: each with its right figures, by hand, in a row of one table.

use super::report;
use serde_json::Value;

/// Bios queued, completed and below; lost completions and times that run backwards.
fn counts(report: &Value) -> [u64; 5] {
    let stages = &report["block"]["stages"];
    let given_up = &stages["given_up"];
    [
        &stages["bios_queued"],
        &stages["bios_completed"],
        &stages["bios_below"],
        &given_up["completion_lost"],
        &given_up["time_backwards"],
    ]
    .map(|count| count.as_u64().expect("a count"))
}

/// Number, least and most of a stage, of all I/O, in microseconds.
fn stage(report: &Value, name: &str) -> [u64; 3] {
    let [n, least, most] = super::stage(report, name);
    [n, least / 1000, most / 1000]
}

#[test]
fn neighbours_have_their_figures() {
    for (case, wanted, d2c, q2c) in [
        ("flush-after-data-lost", [6, 4, 0, 1, 0], [4, 1721, 1721], [4, 1725, 1725]),
        ("flush-before-data-lost", [5, 5, 0, 0, 0], [5, 908, 908], [5, 912, 912]),
        ("flush-fails", [4, 4, 0, 0, 0], [4, 802, 802], [4, 806, 806]),
        ("dm-flush-and-fua", [4, 4, 8, 0, 0], [4, 612, 612], [4, 625, 625]),
        ("md-flush-and-fua", [4, 4, 16, 0, 0], [4, 912, 912], [4, 925, 925]),
        ("dm-flush-without-cache", [5, 5, 5, 0, 0], [5, 200, 200], [5, 210, 210]),
        ("zone-append-two-sizes", [10, 9, 0, 1, 0], [9, 100, 200], [9, 105, 205]),
        ("zone-append-as-write", [4, 4, 0, 0, 0], [4, 100, 100], [4, 108, 108]),
        ("zone-append-through-dm", [4, 4, 4, 0, 0], [4, 100, 100], [4, 110, 110]),
        ("clock-set-back", [10, 9, 0, 0, 1], [9, 100, 100], [9, 105, 105]),
        ("perf-script-without-system", [2, 2, 0, 0, 0], [2, 11_266, 11_524], [2, 11_272, 11_529]),
        ("latency-format-4.14", [2, 2, 0, 0, 0], [2, 200, 300], [2, 210, 310]),
        ("latency-format-verbose", [4, 4, 0, 0, 0], [4, 62, 3877], [4, 82, 3883]),
        ("latency-format-blk", [1, 1, 0, 0, 0], [1, 200, 200], [1, 210, 210]),
        ("ext4-raw", [1, 1, 0, 0, 0], [1, 200, 200], [1, 209, 209]),
        ("ext4-device-in-parentheses", [1, 1, 0, 0, 0], [1, 200, 200], [1, 209, 209]),
        ("md-three-legs-one-lost", [5, 5, 15, 0, 0], [4, 300, 300], [5, 325, 325]),
        ("nvme-multipath-failover", [6, 6, 7, 0, 0], [5, 100, 100], [6, 108, 605]),
        ("crypt-on-linear-on-partition", [5, 5, 10, 0, 0], [5, 200, 200], [5, 250, 250]),
        ("raid0-split", [4, 4, 12, 0, 0], [4, 301, 301], [4, 312, 312]),
        ("raid0-remap-lost-late", [4, 4, 12, 0, 0], [4, 301, 301], [4, 312, 312]),
        ("raid0-part-lost-then-direct", [6, 6, 11, 0, 0], [6, 100, 301], [6, 102, 312]),
        ("lost-three-steps-blkparse", [20, 19, 0, 0, 0], [19, 200, 219], [19, 210, 229]),
        ("requeue-lost-issue", [6, 6, 0, 0, 0], [5, 100, 100], [6, 105, 1100]),
        ("splits-not-recorded", [5, 5, 0, 0, 0], [5, 201, 201], [5, 206, 206]),
        ("splits-not-recorded-any-order", [4, 4, 0, 0, 0], [4, 100, 3616], [4, 110, 4786]),
        ("issue-and-next-queue-lost", [6, 6, 0, 0, 0], [5, 30, 30], [6, 34, 34]),
        ("split-lost", [5, 5, 0, 0, 0], [5, 201, 201], [5, 206, 206]),
        ("short-request-of-no-split", [4, 2, 0, 0, 0], [2, 100, 100], [2, 105, 105]),
        ("dm-lost-remap-uncounted", [10, 10, 10, 0, 0], [10, 200, 200], [10, 213, 213]),
        ("merges-lost", [18, 18, 0, 0, 0], [18, 200, 200], [18, 204, 210]),
        ("lost-issue-and-completion", [14, 13, 0, 0, 0], [13, 200, 200], [13, 210, 210]),
        ("completions-lost-at-begin", [12, 7, 0, 5, 0], [7, 100, 100], [7, 110, 110]),
        ("zone-append-issue-lost", [12, 12, 0, 0, 0], [11, 100, 200], [12, 105, 202]),
        ("md-mirror-leg-queue-lost", [8, 8, 15, 0, 0], [7, 140, 140], [8, 150, 150]),
        ("crypt-md-partition-remap-lost", [6, 6, 18, 0, 0], [6, 112, 112], [6, 150, 150]),
        ("reads-of-one-sector-issue-lost", [16, 16, 0, 0, 0], [15, 98, 98], [16, 100, 100]),
        ("reads-of-one-sector-completion-lost", [16, 14, 0, 2, 0], [14, 98, 98], [14, 100, 100]),
        ("flush-end-and-next-queue-lost", [7, 6, 0, 1, 0], [6, 37, 37], [6, 47, 47]),
        ("flush-end-lost-written-again", [12, 11, 0, 1, 0], [11, 2000, 2000], [11, 2003, 2003]),
        ("rewrites-of-one-thread-completion-lost", [16, 14, 0, 2, 0], [14, 48, 400], [14, 50, 402]),
        ("older-end-and-newer-begin-lost", [13, 12, 0, 0, 0], [12, 98, 98], [12, 100, 100]),
        ("flush-before-issue-lost", [6, 6, 0, 0, 0], [5, 606, 606], [6, 611, 611]),
        ("raid1-on-partitions-by-its-thread", [5, 5, 10, 0, 0], [5, 210, 210], [5, 240, 240]),
        ("raid1-on-one-disk", [5, 5, 10, 0, 0], [5, 210, 210], [5, 240, 240]),
        ("loop-on-dm", [5, 5, 10, 0, 0], [5, 222, 222], [5, 225, 225]),
        ("dm-snapshot", [20, 20, 28, 0, 0], [20, 100, 100], [20, 107, 640]),
        ("dm-cache-answers", [14, 14, 6, 0, 0], [10, 100, 200], [14, 4, 207]),
        ("dm-linear-some-remaps", [10, 10, 10, 0, 0], [10, 200, 200], [10, 210, 210]),
        ("flush-of-two-owners", [6, 6, 0, 0, 0], [6, 501, 703], [6, 713, 917]),
        ("swap-zram-and-disk", [14, 14, 0, 0, 0], [5, 150, 1900], [14, 4, 1910]),
        ("merged-request-completion-lost", [32, 29, 0, 3, 0], [29, 100, 200], [29, 104, 210]),
    ] {
        let report = report(case);
        assert_eq!(counts(&report), wanted, "{case}");
        assert_eq!((stage(&report, "D2C"), stage(&report, "Q2C")), (d2c, q2c), "{case}");
    }
}

/// A lost completion costs its own request, also where later ones at its sector are longer and are completed in parts.
#[test]
fn parts_of_later_requests_are_no_end_of_one_that_lost_its_own() {
    let report = report("partial-after-lost");
    let stages = &report["block"]["stages"];
    let counts = ["requests", "requests_completed"].map(|name| stages[name].as_u64().expect(name));
    assert_eq!((counts, stage(&report, "D2C")), ([8, 7], [7, 100, 170]));
}

/// The first flush is the issue of a bio, whether or not its end is in the trace.
#[test]
fn a_bio_whose_last_step_is_lost_was_issued_with_its_first_flush() {
    assert_eq!(stage(&report("flush-after-data-lost"), "Q2D"), [6, 4, 4]);
}

/// Linux reports a failed flush to those who wait for it once; a later flush does not write what was lost.
#[test]
fn a_failed_flush_is_one_failure() {
    let report = report("flush-fails");
    let errors = &report["block"]["errors"];
    let counts = ["failed", "failed_below", "retries", "recovered"].map(|name| errors[name].as_u64().expect(name));
    assert_eq!(counts, [1, 0, 0, 0]);
    let failures = errors["failures"].as_array().expect("failures");
    let failure = |name: &str| failures[0][name].as_str().expect(name);
    assert_eq!((failures.len(), ["owner", "error", "kind"].map(failure)), (1, ["db (700)", "EIO", "flush"]));
}

/// Owners and bytes in order of their names.
fn sorted<'a>(wanted: &[(&'a str, u64)]) -> Vec<(&'a str, Option<u64>)> {
    let mut wanted: Vec<_> = wanted.iter().map(|&(owner, bytes)| (owner, Some(bytes))).collect();
    wanted.sort_unstable();
    wanted
}

#[test]
fn who_wrote_in_raw_fields_and_through_levels() {
    for (case, owner, bytes) in [
        ("splits-not-recorded", "app (10)", 5 * (192 << 10)),
        ("ext4-raw", "app (500)", 4096),
        ("ext4-device-in-parentheses", "app (500)", 4096),
        ("crypt-on-linear-on-partition", "db (700)", 20 << 10),
        ("md-three-legs-one-lost", "db (700)", 20 << 10),
    ] {
        let report = report(case);
        let owners = report["block"]["originators"]["originators"].as_array().expect("originators");
        let wrote: Vec<_> = owners.iter().map(|one| (one["name"].as_str(), one["written_bytes"].as_u64())).collect();
        assert_eq!(wrote, [(Some(owner), Some(bytes))], "{case}");
    }
    for (case, wanted) in [
        ("raid1-on-one-disk", &[("app (61)", 20 << 10)][..]),
        ("dm-snapshot", &[("app (61)", 32 << 10), ("kworker/0:2 (41)", 24 << 10)]),
        ("swap-zram-and-disk", &[("memory reclaim [kswapd0]", 276 << 10)]),
        ("text-xfs-writer", &[("photo (812)", 8 << 10), ("logd (300)", 4 << 10)]),
    ] {
        let report = report(case);
        let owners = report["block"]["originators"]["originators"].as_array().expect("originators");
        let wrote = owners.iter().map(|one| (one["name"].as_str().unwrap_or(""), one["written_bytes"].as_u64()));
        let mut wrote: Vec<_> = wrote.filter(|(_, bytes)| *bytes > Some(0)).collect();
        wrote.sort();
        assert_eq!(wrote, sorted(wanted), "{case}");
    }
    let report = report("kernel-carriers-newer");
    let written = |name: &str| report["block"]["originators"][name].as_u64().expect(name);
    assert_eq!(["written_direct_bytes", "written_kernel_bytes"].map(written), [0, 8192]);
}
