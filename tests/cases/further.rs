//! Further inputs of each kind: devices, names, kernels and line ends differ, the right figures are by hand.

use super::report;
use crate::perfetto::{ask, processor};
use flashscope_tests::{TempDir, flashscope, skip, stdout, top};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Number, least and most of a stage, in nanoseconds.
type Stage = [u64; 3];

struct Case {
    name: &'static str,
    counts: Counts,
    d2c: Stage,
    /// Originators with bytes read and written; without queueing who issued requests.
    owners: &'static [(&'static str, u64, u64)],
    losses: &'static [(&'static str, u64)],
}

enum Counts {
    /// Bios queued, completed and below, and their Q2C.
    Bios([u64; 3], Stage),
    /// Requests issued and completed, without queueing.
    Requests([u64; 2]),
}

use Counts::{Bios, Requests};

const KIB: u64 = 1 << 10;

/// Each case's ORIGIN says what it is made of.
const CASES: &[Case] = &[
    Case {
        name: "sync-waits-for-flush",
        counts: Bios([20, 20, 0], [20, 210_000, 90_912_000]),
        d2c: [20, 200_000, 90_902_000],
        owners: &[("postgres: wal w (2210)", 0, 80 * KIB)],
        losses: &[("lines_malformed", 1)],
    },
    Case {
        name: "sync-waits-for-data-f2fs",
        counts: Bios([8, 8, 0], [8, 2_020_000, 352_020_000]),
        d2c: [8, 2_000_000, 352_000_000],
        owners: &[("sqlite3 (main) (1402)", 0, 32 * KIB)],
        losses: &[],
    },
    Case {
        name: "latency-format-3.10",
        counts: Bios([4, 4, 0], [4, 1_530_000, 1_830_000]),
        d2c: [4, 1_500_000, 1_800_000],
        owners: &[("AudioOut_2 (812)", 64 * KIB, 0), ("Media Scanner (20331)", 64 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "latency-format-5.15-rt",
        counts: Bios([2, 2, 0], [2, 705_000, 705_000]),
        d2c: [2, 700_000, 700_000],
        owners: &[("cyclictest-log (1048570)", 0, 8 * KIB)],
        losses: &[],
    },
    Case {
        name: "boot-partition",
        counts: Bios([10, 10, 0], [10, 3_019_000, 12_010_000]),
        d2c: [10, 3_000_000, 12_000_000],
        owners: &[("fw_setenv (903)", 0, 16 * KIB), ("mediaserver (640)", 768 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "boot-partition-error",
        counts: Bios([3, 3, 0], [3, 330_000, 2_030_000]),
        d2c: [3, 300_000, 2_000_000],
        owners: &[("cat (701)", 4 * KIB, 0), ("dd (700)", 4 * KIB, 8 * KIB)],
        losses: &[],
    },
    Case {
        name: "ubiblock-squashfs",
        counts: Bios([5, 5, 0], [5, 9_011_000, 9_011_000]),
        d2c: [5, 9_000_000, 9_000_000],
        owners: &[("init (1)", 528 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "ubiblock-verity",
        counts: Bios([7, 7, 6], [7, 510_000, 3_000_000]),
        d2c: [7, 500_000, 2_000_000],
        owners: &[("kworker/0:2 (47)", 4 * KIB, 0), ("systemd (1)", 192 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "lost-completion-two-tasks",
        counts: Bios([12, 11, 0], [11, 90_000, 101_000]),
        d2c: [10, 80_000, 91_000],
        owners: &[("bg: aof (rw) (78)", 0, 12 * KIB), ("redis-server (77)", 0, 12 * KIB)],
        losses: &[("events_missed_at_gaps", 124)],
    },
    Case {
        name: "dm-thin-four-levels",
        counts: Bios([6, 6, 18], [6, 117_000, 117_000]),
        d2c: [6, 100_000, 100_000],
        owners: &[("mariadbd (1900)", 0, 24 * KIB)],
        losses: &[],
    },
    Case {
        name: "flush-by-f2fs-thread",
        counts: Bios([12, 12, 0], [12, 410_000, 4_012_000]),
        d2c: [12, 400_000, 4_002_000],
        owners: &[
            ("SQLite: wal (31)", 0, 16 * KIB),
            ("Signal (2) (32)", 0, 16 * KIB),
            ("f2fs flush [f2fs_flush-259:]", 0, 0),
        ],
        losses: &[],
    },
    Case {
        name: "text-writers-4.19-quoted",
        counts: Bios([2, 2, 0], [2, 2_790_000, 3_490_000]),
        d2c: [2, 1_000_000, 2_000_000],
        owners: &[("python3 -m http (502)", 0, 4 * KIB), ("syslog-ng (main (501)", 0, 8 * KIB)],
        losses: &[("lines_malformed", 2)],
    },
    Case {
        name: "perf-script-call-chains",
        counts: Bios([3, 3, 0], [3, 521_345, 521_345]),
        d2c: [3, 500_000, 500_000],
        owners: &[("dpkg-deb --extr (2204)", 384 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "reads-of-one-sector-end-together",
        counts: Bios([6, 6, 0], [6, 82_000, 83_000]),
        d2c: [6, 78_000, 80_000],
        owners: &[("fio (61)", 12 * KIB, 0), ("fio (62)", 12 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "readahead-part-used",
        counts: Bios([2, 2, 0], [2, 404_000, 404_000]),
        d2c: [2, 400_000, 400_000],
        owners: &[("grep (4410)", 68 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "systrace-html-older",
        counts: Requests([2, 2]),
        d2c: [2, 1_000_000, 2_500_000],
        owners: &[("Jit thread pool (590)", 128 * KIB, 0), ("PowerManagerS (401)", 4 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "systrace-html-escaped",
        counts: Requests([3, 3]),
        d2c: [3, 90_000, 500_000],
        owners: &[("RenderThread: 1 (11830)", 20 * KIB, 0), ("f2fs checkpoint [f2fs_ckpt-259:3]", 8 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "perf-4-no-cpu",
        counts: Bios([3, 3, 0], [3, 207_000, 209_000]),
        d2c: [3, 200_000, 202_000],
        owners: &[("Web Content: (2 (2003)", 24 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "perf-6-ns-task-events",
        counts: Bios([4, 4, 0], [4, 1_004_250, 1_004_250]),
        d2c: [4, 1_000_000, 1_000_000],
        owners: &[("[io] my-app (1990)", 0, 16 * KIB)],
        losses: &[],
    },
    Case {
        name: "perf-latency",
        counts: Bios([3, 3, 0], [3, 403_000, 403_000]),
        d2c: [3, 400_000, 400_000],
        owners: &[("tar (801)", 12 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "perf-forum",
        counts: Bios([2, 2, 0], [2, 89_000, 89_000]),
        d2c: [2, 80_000, 80_000],
        owners: &[("müsli-späher (4410)", 0, 8 * KIB)],
        losses: &[("lines_malformed", 2)],
    },
    Case {
        name: "perf-issue-only-ns",
        counts: Requests([3, 3]),
        d2c: [3, 333_000, 333_000],
        owners: &[("nginx: w (1203)", 12 * KIB, 0)],
        losses: &[("lines_malformed", 1)],
    },
    Case {
        name: "dmesg-prefix",
        counts: Bios([3, 3, 0], [3, 305_000, 305_000]),
        d2c: [3, 300_000, 300_000],
        owners: &[("fsck.ext4 (212)", 12 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "lost-two-in-a-row",
        counts: Bios([15, 13, 0], [13, 253_000, 253_000]),
        d2c: [13, 250_000, 250_000],
        owners: &[("pg: wal writer (900)", 0, 60 * KIB)],
        losses: &[("events_missed_at_gaps", 7)],
    },
    Case {
        name: "flush-vda-5.4",
        counts: Bios([2, 2, 0], [2, 2_117_000, 3_008_000]),
        d2c: [2, 2_112_000, 3_002_000],
        owners: &[("ext4 journal [jbd2/vda1-8]", 0, 4 * KIB), ("mysqld: redo (77)", 0, 0)],
        losses: &[],
    },
    Case {
        name: "dm-on-md-on-nvme",
        counts: Bios([4, 4, 12], [4, 226_000, 226_000]),
        d2c: [4, 202_000, 202_000],
        owners: &[("dockerd (main) (640)", 0, 16 * KIB)],
        losses: &[],
    },
    Case {
        name: "latency-dm-forum",
        counts: Bios([3, 3, 3], [3, 130_000, 130_000]),
        d2c: [3, 120_000, 120_000],
        owners: &[("my (db) x (3301)", 12 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "zone-and-others",
        counts: Bios([4, 4, 0], [4, 102_000, 702_000]),
        d2c: [4, 100_000, 700_000],
        owners: &[
            ("f2fs checkpoint [f2fs_ckpt-259:1]", 0, 8 * KIB),
            ("rocksdb:low0 (70)", 0, 4 * KIB),
            ("mkfs.f2fs (71)", 0, 0),
            ("blkdiscard (72)", 0, 0),
        ],
        losses: &[],
    },
    Case {
        name: "requeue-then-merge",
        counts: Bios([7, 7, 0], [7, 110_000, 150_000]),
        d2c: [7, 100_000, 100_000],
        owners: &[("rsync (50)", 0, 28 * KIB)],
        losses: &[],
    },
    Case {
        name: "buffered-tabs-mmcblk1p2",
        counts: Bios([1, 1, 0], [1, 2_008_000, 2_008_000]),
        d2c: [1, 2_000_000, 2_000_000],
        owners: &[("Cam: rec (hd) (4100)", 0, 8 * KIB)],
        losses: &[],
    },
    Case {
        name: "cpus-one-after-the-other",
        counts: Bios([4, 4, 0], [4, 202_000, 202_000]),
        d2c: [4, 200_000, 200_000],
        owners: &[("a-1 [2] b (61)", 16 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "blkparse-forum",
        counts: Bios([3, 3, 0], [3, 509_000, 509_000]),
        d2c: [3, 500_000, 500_000],
        owners: &[("find (x) (901)", 12 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "emmc-fua-spike",
        counts: Bios([6, 6, 0], [6, 5_010_000, 180_010_000]),
        d2c: [6, 5_000_000, 180_000_000],
        owners: &[("sqlite3 (db) (71)", 0, 24 * KIB)],
        losses: &[],
    },
    Case {
        name: "dump-of-four-cpus",
        counts: Bios([7, 7, 0], [7, 94_000, 156_000]),
        d2c: [7, 90_000, 150_000],
        owners: &[("a: b (c) (4002)", 8 * KIB, 0), ("dd (4001)", 0, 24 * KIB)],
        losses: &[],
    },
    Case {
        name: "dump-big-endian-lost",
        counts: Bios([8, 7, 0], [7, 82_500, 82_500]),
        d2c: [7, 80_000, 80_000],
        owners: &[("nginx: worker (301)", 32 * KIB, 0), ("nginx: worker (302)", 32 * KIB, 0)],
        losses: &[("records_missing", 1)],
    },
    Case {
        name: "zst-dump",
        counts: Bios([7, 7, 0], [7, 94_000, 156_000]),
        d2c: [7, 90_000, 150_000],
        owners: &[("a: b (c) (4002)", 8 * KIB, 0), ("dd (4001)", 0, 24 * KIB)],
        losses: &[],
    },
    Case {
        name: "perfetto-compact-two-cpus",
        counts: Bios([4, 4, 0], [4, 305_000, 305_000]),
        d2c: [4, 300_000, 300_000],
        owners: &[("Binder:2066_1 (2070)", 16 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "perfetto-issue-only-global",
        counts: Requests([2, 2]),
        d2c: [2, 400_000, 1_000_000],
        owners: &[("Chrome_IO (x) (702)", 128 * KIB, 0), ("kworker/u16:5 (701)", 4 * KIB, 0)],
        losses: &[("gaps_of_unknown_size", 1)],
    },
    Case {
        name: "perfetto-dm",
        counts: Bios([3, 3, 3], [3, 109_000, 109_000]),
        d2c: [3, 100_000, 100_000],
        owners: &[("my app (41)", 0, 12 * KIB)],
        losses: &[("packets_of_other_machines", 1)],
    },
    Case {
        name: "gz-cut",
        counts: Bios([5, 4, 0], [4, 253_000, 253_000]),
        d2c: [4, 250_000, 250_000],
        owners: &[("pg: wal writer (900)", 0, 20 * KIB)],
        losses: &[("lines_malformed", 1), ("data_cut", 1)],
    },
    Case {
        name: "systrace-three-texts",
        counts: Requests([3, 3]),
        d2c: [3, 90_000, 90_000],
        owners: &[("com.foo.bar: ui (12345)", 192 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "systrace-html-upper-case",
        counts: Requests([1, 1]),
        d2c: [1, 420_000, 420_000],
        owners: &[("SQLite (w) (7003)", 4 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "systrace-atrace-text",
        counts: Requests([2, 2]),
        d2c: [2, 800_000, 3_000_000],
        owners: &[("Binder:55_2 (612)", 16 * KIB, 0), ("ThreadPoolForeg (9001)", 128 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "latency-quoted",
        counts: Requests([2, 2]),
        d2c: [2, 250_000, 640_000],
        owners: &[("DB: wal (1) (4021)", 12 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "latency-cut",
        counts: Bios([2, 1, 0], [1, 1_510_000, 1_510_000]),
        d2c: [1, 1_500_000, 1_500_000],
        owners: &[("tar (512)", 256 * KIB, 0)],
        losses: &[("lines_malformed", 2)],
    },
    Case {
        name: "flush-4.14-jbd2",
        counts: Bios([2, 2, 0], [2, 2_012_000, 5_531_000]),
        d2c: [2, 2_002_000, 5_521_000],
        owners: &[("ext4 journal [jbd2/mmcblk0p]", 0, 4 * KIB), ("db (sync: 1) (300)", 0, 0)],
        losses: &[],
    },
    Case {
        name: "ext4-14-bytes-6.6",
        counts: Bios([4, 4, 0], [4, 100_000, 120_000]),
        d2c: [4, 90_000, 100_000],
        owners: &[("ext4 journal [jbd2/loop8-8]", 0, 8 * KIB), ("bash (900)", 0, 4 * KIB), ("umount (902)", 0, KIB)],
        losses: &[],
    },
    Case {
        name: "requests-requeued",
        counts: Requests([7, 7]),
        d2c: [7, 90_000, 90_000],
        owners: &[("kworker/2:1H (142)", 68 * KIB, 0)],
        losses: &[],
    },
];

fn stage(report: &Value, name: &str) -> Stage {
    let stages = report["block"]["groups"][0]["stages"].as_array().expect("stages");
    let times = stages.iter().find(|one| one["stage"] == name).map_or(&Value::Null, |times| &times["ns"]);
    ["n", "min", "max"].map(|figure| times[figure].as_u64().unwrap_or(0))
}

fn losses(report: &Value) -> Vec<(&str, u64)> {
    let all = report["losses"].as_array().expect("losses").iter();
    let of = all.map(|loss| (loss["name"].as_str().expect("a name"), loss["count"].as_u64().expect("a count")));
    of.filter(|(_, count)| *count > 0).collect()
}

fn input(case: &str) -> PathBuf {
    top().join("tests/cases").join(case).join("input")
}

fn rows(case: &str, of: &str) -> Vec<Value> {
    let text = stdout(flashscope().arg("export").arg(input(case)).args(["--rows", of, "--to", "json", "-o", "-"]));
    text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

/// Number, least and most of what rows have.
fn of_rows(rows: &[Value], column: &str) -> Stage {
    let times: Vec<u64> =
        rows.iter().filter(|row| row["below"] != true).filter_map(|row| row[column].as_u64()).collect();
    [times.len() as u64, *times.iter().min().unwrap_or(&0), *times.iter().max().unwrap_or(&0)]
}

/// Owners with bytes read and written. Without queueing requests have an issuer, and bytes in one sum.
fn owners<'a>(report: &'a Value, counts: &Counts) -> Vec<(&'a str, u64, u64)> {
    let (all, by) = match counts {
        Bios(..) => (&report["block"]["originators"]["originators"], None),
        Requests(_) => (&report["block"]["groups"], Some("owner")),
    };
    let all = all.as_array().expect("owners").iter().filter(|one| by.is_none_or(|by| one["by"] == by));
    let of = all.map(|one| {
        let bytes = |moved: &str| one[moved].as_u64().unwrap_or(0);
        let name = one["name"].as_str().expect("a name");
        if by.is_some() { (name, bytes("bytes"), 0) } else { (name, bytes("read_bytes"), bytes("written_bytes")) }
    });
    let mut owners: Vec<_> = of.collect();
    owners.sort_unstable();
    owners
}

#[test]
fn further_inputs_have_their_figures() {
    for case in CASES {
        let (name, report) = (case.name, report(case.name));
        let stages = &report["block"]["stages"];
        let count = |count: &str| stages[count].as_u64().unwrap_or_else(|| panic!("{name} {count}: {}", stages[count]));
        let rows = match case.counts {
            Bios(bios, q2c) => {
                assert_eq!(["bios_queued", "bios_completed", "bios_below"].map(count), bios, "{name}");
                assert_eq!(stage(&report, "Q2C"), q2c, "{name}");
                let rows = rows(name, "bios");
                assert_eq!(of_rows(&rows, "q2c_ns"), q2c, "{name}");
                rows
            }
            Requests(requests) => {
                assert_eq!(["requests", "requests_completed"].map(count), requests, "{name}");
                assert!(stages["bios_queued"]["unknown"].is_string(), "{name}");
                rows(name, "requests")
            }
        };
        assert_eq!((stage(&report, "D2C"), of_rows(&rows, "d2c_ns")), (case.d2c, case.d2c), "{name}");
        let mut wanted = case.owners.to_vec();
        wanted.sort_unstable();
        assert_eq!(owners(&report, &case.counts), wanted, "{name}");
        assert_eq!(losses(&report), case.losses, "{name}");
    }
}

/// Of those that are tested with Perfetto's trace processor, which takes two seconds each: several requests of a place, flushes, levels.
const IN_PERFETTO: &[&str] = &[
    "lost-two-in-a-row",
    "reads-of-one-sector-end-together",
    "requeue-then-merge",
    "requests-requeued",
    "zone-and-others",
    "flush-vda-5.4",
    "dm-on-md-on-nvme",
    "dump-big-endian-lost",
    "perfetto-issue-only-global",
];

/// A slice for each request's row, with its time, as Perfetto's trace processor has them.
#[test]
fn slices_of_further_inputs_are_their_requests() {
    let processor = match processor() {
        Ok(processor) => processor,
        Err(why) => return skip(&why),
    };
    let dir = TempDir::new("further-perfetto");
    let path = dir.path().join("trace.pftrace");
    for name in IN_PERFETTO {
        stdout(flashscope().arg("export").arg(input(name)).args(["--to", "perfetto", "-o"]).arg(&path));
        let query = "select s.ts, s.dur, extract_arg(s.arg_set_id, 'debug.sector') from slice s join track k on s.track_id = k.id \
                     where k.name = 'requests'";
        let mut slices = ask(&processor, &path, &[query]).remove(0);
        let row = |row: &Value| {
            let d2c = row["d2c_ns"].as_u64().map_or(json!(-1), Value::from);
            vec![row["issued_ns"].clone(), d2c, row["sector"].clone()]
        };
        let rows = rows(name, "requests");
        let mut requests: Vec<_> = rows.iter().filter(|row| row["issued_ns"].is_u64()).map(row).collect();
        // A try that the driver gave back is a slice, too.
        let tries = rows.iter().filter_map(|row| row["requeues"].as_u64()).sum::<u64>() as usize;
        let plain = |rows: &mut Vec<Vec<Value>>| {
            let mut all: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
            all.sort();
            all
        };
        let (slices, requests) = (plain(&mut slices), plain(&mut requests));
        let missing: Vec<_> = requests.iter().filter(|one| !slices.contains(one)).collect();
        assert!(missing.is_empty(), "{}: {missing:?} of {slices:?}", name);
        assert_eq!(slices.len(), requests.len() + tries, "{}: {slices:?} {requests:?}", name);
    }
}

/// Each call with what it waited for, and when the longest one was.
#[test]
fn a_long_sync_has_its_time_and_its_cause() {
    for (case, calls, longest, waits) in [
        ("sync-waits-for-flush", 10, [1_234_592_000_000_000, 91_200_000], [210_000, 0, 90_912_000, 78_000]),
        ("sync-waits-for-data-f2fs", 8, [78_000_000_000, 352_110_000], [352_020_000, 0, 0, 90_000]),
        ("flush-by-f2fs-thread", 8, [500_000_000_000, 4_700_000], [410_000, 0, 4_012_000, 278_000]),
        ("emmc-fua-spike", 6, [904_000_000_000, 180_090_000], [180_010_000, 0, 0, 80_000]),
    ] {
        let report = report(case);
        let syncs = &report["block"]["syncs"];
        assert_eq!(syncs["durations"]["n"], calls, "{case}");
        let call = &syncs["calls"][0];
        assert_eq!(["begin_ns", "duration_ns"].map(|figure| call[figure].as_u64()), longest.map(Some), "{case}");
        let times = ["data_ns", "journal_ns", "flush_ns", "rest_ns"].map(|figure| call["waits"][figure].as_u64());
        assert_eq!(times, waits.map(Some), "{case}");
    }
    let input = input("sync-waits-for-flush");
    let text = stdout(flashscope().arg("report").arg(input)).replace("\n     ", " ");
    let says = "but a call waited for them: postgres: wal w (2210) took 91.20 ms in ext4_sync_file, 90.91 ms of it for a flush";
    assert!(text.contains(says) && !text.contains("not the cause of slowness"), "{text}");
}

/// A line that older pages of systrace add at time 0 is no part of the trace.
#[test]
fn an_older_page_of_systrace_begins_with_its_first_event() {
    let input = input("systrace-html-older");
    let text = stdout(flashscope().arg("report").arg(input));
    assert!(text.contains("4 block events in 11.00 ms"), "{text}");
}

/// Hardware partitions of one eMMC are devices side by side.
#[test]
fn a_boot_partition_is_no_level_of_the_disk() {
    let report = report("boot-partition");
    assert_eq!(report["block"]["stack"], Value::Array(Vec::new()));
    let devices = report["block"]["stages"]["devices"].as_array().expect("devices").iter();
    let d2c = devices.map(|one| (one["device"].as_str().expect("a name"), one["all"][6]["mean_ns"].as_u64()));
    assert_eq!(d2c.collect::<Vec<_>>(), [("179:0", Some(3_000_000)), ("179:8", Some(12_000_000))]);
    let failures = &super::report("boot-partition-error")["block"]["errors"]["failures"];
    let failure = &failures[0];
    assert_eq!(failures.as_array().map(Vec::len), Some(1));
    assert_eq!(
        [&failure["device"], &failure["sector"], &failure["error"], &failure["owner"], &failure["took_ns"]],
        [&Value::from("179:16"), &2048.into(), &"EIO".into(), &"dd (700)".into(), &2_030_000.into()]
    );
}

#[test]
fn rescuers_carry_or_do_their_own() {
    let report = report("kernel-carriers-rescuers");
    let found = &report["block"]["originators"];
    let kib = ["direct", "one", "kernel", "unknown"]
        .map(|kind| found[format!("written_{kind}_bytes")].as_u64().expect("bytes") >> 10);
    assert_eq!(kib, [0, 0, 12, 24]);
    assert!(found.to_string().contains("kworker/u16:3-flush-8:0 (301)"), "{found}");
}

#[test]
fn pages_read_ahead_of_which_part_is_used() {
    let total = &report("readahead-part-used")["readahead"]["total"];
    let counts = ["requested", "ahead", "ahead_used", "mapped", "ahead_left_unused"].map(|count| total[count].as_u64());
    assert_eq!(counts, [2, 15, 9, 6, 0].map(Some));
    assert!(total["ahead_evicted_unused"].is_null());
}

/// Whether a device above queued a request is known from its bios only. 2.000 and 5.000 ms of flushes: 7.000 ms.
#[test]
fn requests_without_their_bios_do_not_say_whether_a_device_above_queued_them() {
    for (case, requests) in [("issue-complete-only", 4), ("dm-flush-of-two-disks", 2)] {
        let rows = rows(case, "requests");
        assert_eq!(rows.len(), requests, "{case}");
        assert!(rows.iter().all(|row| row["below"].is_null()), "{case}: {rows:?}");
    }
    assert!(rows("dm-flush-of-two-disks", "bios").iter().all(|row| row["below"] == false));
    let text = stdout(flashscope().arg("report").arg(input("dm-flush-of-two-disks")));
    assert!(text.contains("2 flush requests for 7.00 ms in all"), "{text}");
    assert!(text.contains("no issued request beside flushes of devices"), "{text}");
}
