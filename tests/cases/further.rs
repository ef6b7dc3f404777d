//! Further inputs of each kind: devices, names, kernels and line ends differ, the right figures are by hand.

use super::report;
use serde_json::Value;

/// Number, least and most of a stage, in nanoseconds.
type Stage = [u64; 3];

struct Case {
    name: &'static str,
    /// Bios queued, completed and below.
    bios: [u64; 3],
    d2c: Stage,
    q2c: Stage,
    /// Originators with bytes read and written, in order of their names.
    owners: &'static [(&'static str, u64, u64)],
    losses: &'static [(&'static str, u64)],
}

const KIB: u64 = 1 << 10;

const CASES: &[Case] = &[
    Case {
        name: "sync-waits-for-flush",
        bios: [20, 20, 0],
        d2c: [20, 200_000, 90_902_000],
        q2c: [20, 210_000, 90_912_000],
        owners: &[("postgres: wal w (2210)", 0, 80 * KIB)],
        losses: &[("lines_malformed", 1)],
    },
    Case {
        name: "sync-waits-for-data-f2fs",
        bios: [8, 8, 0],
        d2c: [8, 2_000_000, 352_000_000],
        q2c: [8, 2_020_000, 352_020_000],
        owners: &[("sqlite3 (main) (1402)", 0, 32 * KIB)],
        losses: &[],
    },
    Case {
        name: "latency-format-3.10",
        bios: [4, 4, 0],
        d2c: [4, 1_500_000, 1_800_000],
        q2c: [4, 1_530_000, 1_830_000],
        owners: &[("AudioOut_2 (812)", 64 * KIB, 0), ("Media Scanner (20331)", 64 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "latency-format-5.15-rt",
        bios: [2, 2, 0],
        d2c: [2, 700_000, 700_000],
        q2c: [2, 705_000, 705_000],
        owners: &[("cyclictest-log (1048570)", 0, 8 * KIB)],
        losses: &[],
    },
    Case {
        name: "boot-partition",
        bios: [10, 10, 0],
        d2c: [10, 3_000_000, 12_000_000],
        q2c: [10, 3_019_000, 12_010_000],
        owners: &[("fw_setenv (903)", 0, 16 * KIB), ("mediaserver (640)", 768 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "boot-partition-error",
        bios: [3, 3, 0],
        d2c: [3, 300_000, 2_000_000],
        q2c: [3, 330_000, 2_030_000],
        owners: &[("cat (701)", 4 * KIB, 0), ("dd (700)", 4 * KIB, 8 * KIB)],
        losses: &[],
    },
    Case {
        name: "ubiblock-squashfs",
        bios: [5, 5, 0],
        d2c: [5, 9_000_000, 9_000_000],
        q2c: [5, 9_011_000, 9_011_000],
        owners: &[("init (1)", 528 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "ubiblock-verity",
        bios: [7, 7, 6],
        d2c: [7, 500_000, 2_000_000],
        q2c: [7, 510_000, 3_000_000],
        owners: &[("kworker/0:2 (47)", 4 * KIB, 0), ("systemd (1)", 192 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "lost-completion-two-tasks",
        bios: [12, 11, 0],
        d2c: [10, 80_000, 91_000],
        q2c: [11, 90_000, 101_000],
        owners: &[("bg: aof (rw) (78)", 0, 12 * KIB), ("redis-server (77)", 0, 12 * KIB)],
        losses: &[("events_missed_at_gaps", 124)],
    },
    Case {
        name: "dm-thin-four-levels",
        bios: [6, 6, 18],
        d2c: [6, 100_000, 100_000],
        q2c: [6, 117_000, 117_000],
        owners: &[("mariadbd (1900)", 0, 24 * KIB)],
        losses: &[],
    },
    Case {
        name: "flush-by-f2fs-thread",
        bios: [12, 12, 0],
        d2c: [12, 400_000, 4_002_000],
        q2c: [12, 410_000, 4_012_000],
        owners: &[
            ("SQLite: wal (31)", 0, 16 * KIB),
            ("Signal (2) (32)", 0, 16 * KIB),
            ("f2fs flush [f2fs_flush-259:]", 0, 0),
        ],
        losses: &[],
    },
    Case {
        name: "text-writers-4.19-quoted",
        bios: [2, 2, 0],
        d2c: [2, 1_000_000, 2_000_000],
        q2c: [2, 2_790_000, 3_490_000],
        owners: &[("python3 -m http (502)", 0, 4 * KIB), ("syslog-ng (main (501)", 0, 8 * KIB)],
        losses: &[("lines_malformed", 2)],
    },
    Case {
        name: "perf-script-call-chains",
        bios: [3, 3, 0],
        d2c: [3, 500_000, 500_000],
        q2c: [3, 521_345, 521_345],
        owners: &[("dpkg-deb --extr (2204)", 384 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "reads-of-one-sector-end-together",
        bios: [6, 6, 0],
        d2c: [6, 78_000, 80_000],
        q2c: [6, 82_000, 83_000],
        owners: &[("fio (61)", 12 * KIB, 0), ("fio (62)", 12 * KIB, 0)],
        losses: &[],
    },
    Case {
        name: "readahead-part-used",
        bios: [2, 2, 0],
        d2c: [2, 400_000, 400_000],
        q2c: [2, 404_000, 404_000],
        owners: &[("grep (4410)", 68 * KIB, 0)],
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

#[test]
fn further_inputs_have_their_figures() {
    for case in CASES {
        let (name, report) = (case.name, report(case.name));
        let stages = &report["block"]["stages"];
        let bios = ["bios_queued", "bios_completed", "bios_below"].map(|count| stages[count].as_u64().expect(count));
        assert_eq!(bios, case.bios, "{name}");
        assert_eq!((stage(&report, "D2C"), stage(&report, "Q2C")), (case.d2c, case.q2c), "{name}");
        let owners = report["block"]["originators"]["originators"].as_array().expect("originators").iter();
        let owners = owners.map(|one| {
            let bytes = |moved: &str| one[moved].as_u64().expect("bytes");
            (one["name"].as_str().expect("a name"), bytes("read_bytes"), bytes("written_bytes"))
        });
        let mut owners: Vec<_> = owners.collect();
        owners.sort_unstable();
        let mut wanted = case.owners.to_vec();
        wanted.sort_unstable();
        assert_eq!(owners, wanted, "{name}");
        assert_eq!(losses(&report), case.losses, "{name}");
    }
}

/// Each call with what it waited for, and when the longest one was.
#[test]
fn a_long_sync_has_its_time_and_its_cause() {
    for (case, calls, longest, waits) in [
        ("sync-waits-for-flush", 10, [1_234_592_000_000_000, 91_200_000], [210_000, 0, 90_912_000, 78_000]),
        ("sync-waits-for-data-f2fs", 8, [78_000_000_000, 352_110_000], [352_020_000, 0, 0, 90_000]),
        ("flush-by-f2fs-thread", 8, [500_000_000_000, 4_700_000], [410_000, 0, 4_012_000, 278_000]),
    ] {
        let report = report(case);
        let syncs = &report["block"]["syncs"];
        assert_eq!(syncs["durations"]["n"], calls, "{case}");
        let call = &syncs["calls"][0];
        assert_eq!(["begin_ns", "duration_ns"].map(|figure| call[figure].as_u64()), longest.map(Some), "{case}");
        let times = ["data_ns", "journal_ns", "flush_ns", "rest_ns"].map(|figure| call["waits"][figure].as_u64());
        assert_eq!(times, waits.map(Some), "{case}");
    }
    let input = flashscope_tests::top().join("tests/cases/sync-waits-for-flush/input");
    let text =
        flashscope_tests::stdout(flashscope_tests::flashscope().arg("report").arg(input)).replace("\n     ", " ");
    let says = "but a call waited for them: postgres: wal w (2210) took 91.20 ms in ext4_sync_file, 90.91 ms of it for a flush";
    assert!(text.contains(says) && !text.contains("not the cause of slowness"), "{text}");
}

/// Pages of systrace, older and escaped: requests by who issued them, and no loss.
#[test]
fn further_pages_of_systrace() {
    for (case, d2c, owners) in [
        (
            "systrace-html-older",
            [2, 1_000_000, 2_500_000],
            &[("Jit thread pool (590)", 128 * KIB), ("PowerManagerS (401)", 4 * KIB)][..],
        ),
        (
            "systrace-html-escaped",
            [3, 90_000, 500_000],
            &[("RenderThread: 1 (11830)", 20 * KIB), ("f2fs checkpoint [f2fs_ckpt-259:3]", 8 * KIB)],
        ),
    ] {
        let report = report(case);
        assert_eq!((stage(&report, "D2C"), losses(&report)), (d2c, vec![]), "{case}");
        let groups = report["block"]["groups"].as_array().expect("groups").iter();
        let by = groups.filter(|group| group["by"] == "owner");
        let mut by: Vec<_> =
            by.map(|one| (one["name"].as_str().expect("a name"), one["bytes"].as_u64().expect("bytes"))).collect();
        by.sort_unstable();
        assert_eq!(by, owners, "{case}");
        assert!(report["block"]["stages"]["bios_queued"]["unknown"].is_string(), "{case}");
    }
    // A line that the page adds at time 0 is no part of the trace.
    let input = flashscope_tests::top().join("tests/cases/systrace-html-older/input");
    let text = flashscope_tests::stdout(flashscope_tests::flashscope().arg("report").arg(input));
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
