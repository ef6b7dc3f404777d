//! Stacked devices without remaps, events that are there twice, and traces that lack a kind of event.

use super::{report, stage, text};
use flashscope_tests::{flashscope, top};
use serde_json::Value;

fn counts<const N: usize>(report: &Value, names: [&str; N]) -> [Option<u64>; N] {
    names.map(|name| report["block"]["stages"][name].as_u64())
}

fn why(report: &Value, name: &str) -> String {
    report["block"]["stages"][name]["unknown"].as_str().unwrap_or("known").to_owned()
}

fn loss(report: &Value, name: &str) -> u64 {
    let losses = report["losses"].as_array().expect("losses");
    losses.iter().find(|one| one["name"] == name).and_then(|one| one["count"].as_u64()).expect("a count")
}

/// Sentences in one line each.
fn joined(text: &str) -> String {
    text.replace("\n  ", " ")
}

#[test]
fn levels_without_remaps_are_inferred_from_their_bios() {
    for (path, bios, below, levels) in [
        ("dm-linear-no-remap", 10, 10, &["252:0 8:0"][..]),
        ("dm-crypt-no-remap", 10, 10, &["252:0 8:0"]),
        ("md-mirror-no-remap", 12, 18, &["9:0 8:0, 8:16"]),
        ("three-levels-no-remap", 10, 20, &["252:1 252:0", "252:0 8:0"]),
        ("dm-linear-and-other", 16, 10, &["252:0 8:0"]),
        ("zram-beside-disk", 40, 0, &[]),
    ] {
        let report = report(path);
        let names = ["bios_queued", "bios_completed", "bios_below"];
        assert_eq!(counts(&report, names), [Some(bios), Some(bios), Some(below)], "{path}");
        let found: Vec<String> = report["block"]["stack"]
            .as_array()
            .expect("levels")
            .iter()
            .map(|level| {
                assert_eq!(level["inferred"], true, "{path}");
                format!("{} {}", level["upper"].as_str().unwrap(), level["lower"].as_str().unwrap())
            })
            .collect();
        assert_eq!(found, levels, "{path}");
        let sum: u64 = report["block"]["groups"]
            .as_array()
            .expect("groups")
            .iter()
            .filter(|group| group["by"] == "owner")
            .map(|group| group["bios"].as_u64().unwrap())
            .sum();
        assert_eq!(sum, bios, "{path}");
    }
    assert!(text("dm-linear-no-remap").contains("(inferred"));
}

#[test]
fn a_level_that_bios_do_not_show_leaves_totals_unknown() {
    let report = report("dm-stripe-no-remap");
    for name in ["bios_queued", "bios_completed", "unfinished"] {
        assert!(why(&report, name).contains("no block:block_bio_remap of 252:0"), "{name}");
    }
    let groups = report["block"]["groups"].as_array().expect("groups");
    let of = |by: &str| groups.iter().filter(|group| group["by"] == by).count();
    assert_eq!((of("all"), of("owner"), of("size"), of("device")), (0, 0, 0, 3));
    assert_eq!(report["missing"][0]["event"], "block:block_bio_remap");
    let text = text("dm-stripe-no-remap");
    let why = "\n80 block events in 90.30 ms\nHow many bios were queued and completed is unknown: the trace has no \
               block:block_bio_remap of 252:0, which may lie on 8:0, 8:16";
    assert!(joined(&text).contains(why) && !text.contains("unknown completed"), "{text}");
}

#[test]
fn a_flush_before_the_first_remap_is_below_too() {
    let report = report("dm-preflush");
    assert_eq!(counts(&report, ["bios_queued", "bios_completed", "bios_below"]), [Some(3), Some(3), Some(6)]);
    let all = &report["block"]["groups"][0];
    let mean = |stage: &str| {
        let stages = all["stages"].as_array().expect("stages");
        stages.iter().find(|one| one["stage"] == stage).map(|one| one["ns"]["mean"].clone())
    };
    assert_eq!((mean("D2C"), mean("Q2C")), (Some(1_112_000.into()), Some(1_123_000.into())));
}

#[test]
fn what_a_file_has_twice_is_counted_once() {
    for (path, repeated) in [("repeated-twice", 15), ("repeated-lines", 15), ("repeated-overlap", 3)] {
        let report = report(path);
        assert_eq!(
            counts(&report, ["events", "bios_queued", "bios_completed"]),
            [Some(15), Some(5), Some(5)],
            "{path}"
        );
        assert_eq!(loss(&report, "events_repeated"), repeated, "{path}");
        assert!(text(path).contains("events_repeated"), "{path}");
    }
}

#[test]
fn texts_without_a_copy_lose_nothing_to_it() {
    let mut texts = 0;
    for case in std::fs::read_dir(top().join("tests/cases")).expect("the cases") {
        let path = case.expect("a case").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if !path.join("input").is_file() || name.starts_with("repeated-") || name == "blk-tracer-text" {
            continue;
        }
        let output = flashscope().args(["report", "--json"]).arg(path.join("input")).output().expect("it runs");
        if output.status.success() {
            let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!(loss(&report, "events_repeated"), 0, "{name}");
            texts += 1;
        }
    }
    assert!(texts > 40, "{texts}");
}

#[test]
fn completions_alone_list_what_failed() {
    let report = report("completions-alone");
    for name in ["bios_queued", "bios_completed", "requests", "requests_completed", "unfinished"] {
        assert_ne!(why(&report, name), "known", "{name}");
    }
    let failures = report["block"]["errors"]["failures"].as_array().expect("failures");
    let found: Vec<_> = failures
        .iter()
        .map(|one| {
            assert_eq!(
                (&one["device"], &one["error"], &one["owner"]),
                (&"8:0".into(), &"EIO".into(), &"unknown".into())
            );
            assert!(one["took_ns"]["unknown"].is_string() && one["begin_ns"]["unknown"].is_string());
            (one["sector"].as_u64(), one["bytes"].as_u64(), one["end_ns"].as_u64())
        })
        .collect();
    assert_eq!(
        found,
        [(72, 50_010_202_000), (88, 50_030_202_000)].map(|(sector, end)| (Some(sector), Some(4096), Some(end)))
    );
    let text = text("completions-alone");
    let why = "\n4 block events in 30.00 ms\nHow many requests were issued and completed is unknown: the trace has only \
               completions, which show no requests, durations and owners. To know it, record block_bio_queue and \
               block_rq_issue too";
    assert!(joined(&text).contains(why) && text.contains("EIO"), "{text}");
}

#[test]
fn without_completions_how_many_there_were_is_unknown() {
    for (path, begun, events) in [("issues-alone", "requests", 4), ("queued-and-issued", "bios_queued", 8)] {
        let report = report(path);
        assert_eq!(counts(&report, [begun]), [Some(4)], "{path}");
        for name in ["bios_completed", "requests_completed", "unfinished"] {
            assert_ne!(why(&report, name), "known", "{path} {name}");
        }
        let (unit, did) = begun.split_once('_').unwrap_or((begun, "issued"));
        let why = format!(
            "\n4 {unit} {did}; {events} block events in 30.00 ms\nHow many {unit} were completed is unknown: the trace has no completion \
             (block_rq_complete, block_bio_complete, blktrace's C). To know it, record them too"
        );
        let text = joined(&text(path));
        assert!(
            !text.contains("being issued and completed") && !text.contains("issues and completions only"),
            "{text}"
        );
        assert!(text.contains(&why) && !text.contains("unknown completed"), "{path}: {text}");
    }
}

#[test]
fn a_failure_of_a_stack_is_one_failure_of_the_program() {
    let listed = |path: &str| {
        let errors = report(path)["block"]["errors"].clone();
        let counts = ["failed", "failed_below", "retries"].map(|name| errors[name].as_u64().expect(name));
        let failures = errors["failures"].as_array().expect("failures").iter();
        let failures: Vec<(String, u64, bool)> = failures
            .map(|one| {
                let device = one["device"].as_str().expect("a device").to_owned();
                (device, one["sector"].as_u64().expect("a sector"), one["below"] == true)
            })
            .collect();
        (counts, failures)
    };
    let (counts, mut failures) = listed("dm-errors");
    failures.sort();
    let wanted = |device: &str, sectors: [u64; 3], below| sectors.map(|sector| (device.to_owned(), sector, below));
    assert_eq!(counts, [3, 3, 0]);
    let both = [wanted("253:0", [1000, 1008, 1016], false), wanted("8:0", [3048, 3056, 3064], true)];
    assert_eq!(failures, both.concat());
    assert_eq!(listed("md-mirror-failed-leg"), ([0, 1, 0], vec![("8:16".to_owned(), 4148, true)]));
    assert!(text("md-mirror-failed-leg").contains("No bio of a program, but 1 at lower levels"));
}

#[test]
fn what_a_split_leaves_is_no_other_bio() {
    let report = report("split-queued-again");
    assert_eq!(counts(&report, ["bios_queued", "bios_completed", "unfinished"]), [Some(3), Some(3), Some(0)]);
    assert_eq!(report["block"]["stages"]["given_up"]["issue_lost"], 0);
    let all = &report["block"]["groups"][0];
    assert_eq!((&all["by"], &all["bytes"]), (&"all".into(), &(3u64 * 512 * 1024).into()));
    assert_eq!(stage(&report, "D2C"), [3, 400_000, 400_000]);
    assert_eq!(stage(&report, "Q2C"), [3, 430_000, 430_000]);
    assert_eq!(report["block"]["originators"]["originators"][0]["read_bytes"], 3 * 512 * 1024);
}

#[test]
fn a_flush_below_ends_with_its_upper_bio() {
    let report = report("dm-fua-blkparse");
    assert_eq!(counts(&report, ["bios_queued", "bios_completed", "bios_below"]), [Some(3), Some(3), Some(6)]);
    assert_eq!(stage(&report, "Q2D"), [3, 4_000, 4_000]);
    assert_eq!(stage(&report, "D2C"), [3, 1_111_000, 1_111_000]);
    assert_eq!(stage(&report, "Q2C"), [3, 1_120_000, 1_120_000]);
}

#[test]
fn what_did_not_end_below_leaves_the_time_below_unknown() {
    let report = report("dm-lost-completion-below");
    assert_eq!(stage(&report, "Q2C"), [6, 212_000, 212_000]);
    assert_eq!(stage(&report, "D2C"), [5, 200_000, 200_000]);
    let level = &report["block"]["stack"][0];
    let means =
        ["upper_bios", "mean_down_ns", "mean_below_ns", "mean_up_ns", "mean_q2c_ns"].map(|name| level[name].as_u64());
    assert_eq!(means, [5, 3_000, 207_000, 2_000, 212_000].map(Some));
}

#[test]
fn halves_of_a_mirror_that_do_the_same_at_one_time_are_two() {
    let report = report("md-mirror-same-times");
    assert_eq!(counts(&report, ["bios_queued", "bios_completed", "bios_below"]), [Some(3), Some(3), Some(6)]);
    assert_eq!((loss(&report, "events_repeated"), stage(&report, "D2C")), (0, [3, 100_000, 100_000]));
    assert_eq!(report["block"]["stack"][0]["lower_bytes"], 6 * 4096);
}

#[test]
fn a_request_of_an_upper_device_ends_with_its_own_completion() {
    let report = report("dm-multipath-requests");
    assert_eq!(counts(&report, ["bios_queued", "bios_completed", "bios_below"]), [Some(4), Some(4), Some(4)]);
    assert_eq!(stage(&report, "D2C"), [4, 207_000, 207_000]);
    assert_eq!(stage(&report, "Q2C"), [4, 212_000, 212_000]);
    assert_eq!(report["block"]["stages"]["unmatched"]["completed"], 0);
    let level = &report["block"]["stack"][0];
    let means = ["mean_down_ns", "mean_below_ns", "mean_up_ns"].map(|name| level[name].as_u64());
    assert_eq!(means, [6_000, 202_000, 4_000].map(Some));
}

#[test]
fn legs_of_a_bio_whose_queueing_is_missing_count_once() {
    let report = report("md-mirror-lost-queue");
    assert_eq!(counts(&report, ["bios_queued", "bios_below"]), [Some(4), Some(7)]);
    assert_eq!(report["block"]["groups"][0]["bytes"], 4 * 4096);
    assert_eq!(report["block"]["originators"]["originators"][0]["written_bytes"], 4 * 4096);
}

/// Before 5.14 a loop device has a thread of its own: what it does is the device's, wherever the file lies.
#[test]
fn what_a_loop_devices_thread_does_counts_once() {
    let report = report("loop-thread");
    assert_eq!(counts(&report, ["bios_queued", "bios_completed", "bios_below"]), [Some(5), Some(5), Some(5)]);
    assert_eq!(report["block"]["groups"][0]["bytes"], 5 * 4096);
    assert_eq!(stage(&report, "D2C"), [5, 217_000, 217_000]);
    assert_eq!(stage(&report, "Q2C"), [5, 220_000, 220_000]);
    assert_eq!(report["block"]["originators"]["originators"][0]["read_bytes"], 5 * 4096);
    assert!(!text("loop-thread").contains("counts as I/O of its own"));
}

/// Later kernels' workers carry it: one read alone of a size shows whose it is.
#[test]
fn what_a_loop_devices_worker_does_counts_once_where_one_alone_is_there() {
    let report = report("loop-worker");
    assert_eq!(counts(&report, ["bios_queued", "bios_completed", "bios_below"]), [Some(9), Some(9), Some(5)]);
    let owners = report["block"]["originators"]["originators"].as_array().expect("originators");
    let read: Vec<_> = owners.iter().map(|one| (one["tid"].as_u64(), one["read_bytes"].as_u64())).collect();
    assert_eq!(read, [(Some(90), Some(7 * 4096)), (Some(77), Some(2 * 4096))]);
    let level = &report["block"]["stack"][0];
    let number = |name: &str| level[name].as_u64().expect(name);
    assert_eq!(["upper_bios", "lower_bytes", "mean_q2c_ns"].map(number), [5, 5 * 4096, 220_000]);
}

/// Since Linux 4.14 the remap to a partition names the disk, with the partition's sector.
#[test]
fn what_lies_on_partitions_counts_once() {
    let report = report("stack-on-partition");
    assert_eq!(counts(&report, ["bios_queued", "bios_completed", "bios_below"]), [Some(7), Some(7), Some(7)]);
    assert_eq!(report["block"]["groups"][0]["bytes"], 7 * 4096);
    assert_eq!((stage(&report, "Q2C"), stage(&report, "D2C")[0]), ([7, 102_000, 330_000], 7));
    let bytes = |owner: &str, what: &str| {
        let owners = report["block"]["originators"]["originators"].as_array().expect("originators");
        owners.iter().find(|one| one["name"] == owner).expect(owner)[what].as_u64()
    };
    assert_eq!(
        [bytes("app (700)", "written_bytes"), bytes("cat (701)", "read_bytes")],
        [Some(5 * 4096), Some(2 * 4096)]
    );
    let levels = report["block"]["stack"].as_array().expect("levels");
    let level = |one: &Value| (one["upper"].to_string(), one["upper_bios"].as_u64(), one["lower_bios"].as_u64());
    let mut levels: Vec<_> = levels.iter().map(level).collect();
    levels.sort();
    assert_eq!(levels, [("\"254:0\"".to_owned(), Some(3), Some(3)), ("\"9:0\"".to_owned(), Some(2), Some(4))]);
}

/// A worker sends some of a cache's bios on, without a remap and to any place: nothing shows which bios below are theirs.
#[test]
fn bios_without_a_remap_beside_others_with_one_leave_totals_unknown() {
    let report = report("dm-cache-worker");
    for figure in ["bios_queued", "bios_completed", "unfinished"] {
        let why = why(&report, figure);
        assert!(why.contains("some bios of 253:0 have no block:block_bio_remap") && why.contains("8:0"), "{why}");
    }
    assert_eq!(report["block"]["unclear"], serde_json::json!(["253:0"]));
    let missing = &report["missing"][0];
    assert!(missing["why"].as_str().is_some_and(|why| why.contains("their driver traces none")), "{missing}");
    // Figures of one device are known.
    let groups = report["block"]["groups"].as_array().expect("groups");
    let q2c = |device: &str| {
        let one = groups.iter().find(|group| group["name"] == *device).expect("a group");
        let times = one["stages"].as_array().expect("stages").iter().find(|one| one["stage"] == "Q2C");
        ["n", "min", "max"].map(|figure| times.expect("Q2C")["ns"][figure].as_u64().expect("a figure"))
    };
    assert_eq!(["253:0 reads", "8:0 reads"].map(q2c), [[10, 210_000, 210_000], [10, 205_000, 205_000]]);
    assert!(text("dm-cache-worker").contains("unknown"));
}

/// An append begins where the device wrote it, not where its zone does.
#[test]
fn distances_to_a_zone_append_are_to_where_it_was_written() {
    for (case, sequential, distances) in
        [("zone-append", 1, [523_280, 523_280]), ("zone-append-interleaved", 4, [520_048, 524_924])]
    {
        let load = &report(case)["block"]["over_time"];
        assert_eq!(load["sequential"], sequential, "{case}");
        let seeks = ["min", "max"].map(|figure| load["seek_sectors"][figure].as_u64().expect(figure));
        assert_eq!(seeks, distances, "{case}");
        let windows = load["windows"].as_array().expect("windows").iter().filter_map(|window| window["seeks"].as_u64());
        assert_eq!(windows.sum::<u64>(), load["seek_sectors"]["n"].as_u64().expect("n"), "{case}");
    }
}
