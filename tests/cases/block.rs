//! Times of bios and requests: what was lost, flushes, operations of other kinds, failures.

use super::{count, input, report};
use flashscope_tests::{flashscope, top};
use serde_json::Value;

/// Number, minimum, mean and maximum of a stage, of the group with this heading and name.
fn stage(report: &Value, by: &str, name: &str, stage: &str) -> [u64; 4] {
    let groups = report["block"]["groups"].as_array().expect("groups");
    let group = groups.iter().find(|group| group["by"] == by && group["name"] == name);
    let group = group.unwrap_or_else(|| panic!("no {name}: {groups:?}"));
    let times = group["stages"].as_array().expect("stages").iter().find(|one| one["stage"] == stage);
    let ns = times.map_or(&Value::Null, |times| &times["ns"]);
    ["n", "min", "mean", "max"].map(|figure| ns[figure].as_u64().unwrap_or(0))
}

fn all(report: &Value, of: &str) -> [u64; 4] {
    stage(report, "all", "all", of)
}

/// Loss marks by kind: completion lost, issue lost, time backwards.
fn given_up(report: &Value) -> [u64; 3] {
    let given_up = &report["block"]["stages"]["given_up"];
    ["completion_lost", "issue_lost", "time_backwards"].map(|kind| given_up[kind].as_u64().expect(kind))
}

/// Why a count is unknown.
fn unknown(report: &Value, what: &str) -> String {
    let why = &report["block"]["stages"][what]["unknown"];
    why.as_str().unwrap_or_else(|| panic!("{what} is known: {}", report["block"]["stages"][what])).to_owned()
}

#[test]
fn a_lost_completion_costs_one_bio_and_no_later_one() {
    for (path, bios, lost, d2c, q2c) in [
        ("lost-completion", 20, 1, 1_000_000, 1_010_000),
        ("lost-completion-blktrace", 20, 1, 40_000, 50_000),
        ("lost-completion-uncounted", 20, 1, 1_000_000, 1_010_000),
        ("lost-completion-unmarked", 40, 2, 200_000, 202_000),
    ] {
        let report = report(path);
        let n = bios - lost;
        assert_eq!(all(&report, "D2C"), [n, d2c, d2c, d2c], "{path}");
        assert_eq!(all(&report, "Q2C"), [n, q2c, q2c, q2c], "{path}");
        assert_eq!(given_up(&report), [lost, 0, 0], "{path}");
        assert_eq!((count(&report, "bios_queued"), count(&report, "unfinished")), (bios, 0), "{path}");
    }
}

#[test]
fn a_completion_before_its_queueing_costs_one_bio() {
    for path in ["early-completion", "early-completion-after-queue"] {
        let report = report(path);
        assert_eq!(all(&report, "D2C"), [19, 1_000_000, 1_000_000, 1_000_000], "{path}");
        assert_eq!(all(&report, "Q2C"), [19, 1_010_000, 1_010_000, 1_010_000], "{path}");
        assert_eq!(given_up(&report), [0, 0, 1], "{path}");
        assert_eq!(report["block"]["stages"]["unmatched"]["completed"], 0, "{path}");
    }
}

#[test]
fn a_lost_issue_leaves_the_time_from_the_queueing() {
    let report = report("lost-issue");
    assert_eq!(all(&report, "Q2C"), [30, 202_000, 202_000, 202_000]);
    assert_eq!(all(&report, "D2C"), [29, 200_000, 200_000, 200_000]);
    assert_eq!((count(&report, "without_issue"), given_up(&report)), (1, [0; 3]));
}

#[test]
fn a_request_that_is_issued_again_costs_no_time() {
    let report = report("issued-again");
    assert_eq!(all(&report, "Q2C"), [6, 202_000, 368_666, 1_202_000]);
    assert_eq!(all(&report, "D2C"), [6, 200_000, 200_000, 200_000]);
    assert_eq!((count(&report, "reissued"), count(&report, "requests"), given_up(&report)), (1, 0, [0; 3]));
}

#[test]
fn bios_of_one_sector_at_once_are_all_timed() {
    let report_of = report("two-direct-writers");
    assert_eq!(all(&report_of, "D2C"), [100, 200_000, 200_000, 200_000]);
    assert_eq!((given_up(&report_of), count(&report_of, "bios_completed")), ([0; 3], 100));
    // Four threads with ten direct reads each of one page (crates/trace/tests/data/blktrace/ORIGIN.md).
    let recorded = top().join("crates/trace/tests/data/blktrace/armv7-6.1/cgroup");
    let report = report(recorded.to_str().expect("UTF-8"));
    assert_eq!((given_up(&report), count(&report, "bios_completed")), ([0; 3], 40));
}

#[test]
fn a_bio_that_flushes_lives_until_its_last_step() {
    let report_of = report("flush-fua-q2c");
    assert_eq!(stage(&report_of, "owner", "ext4 journal [jbd2/loop3-8]", "Q2C"), [1, 1_765_049, 1_765_049, 1_765_049]);
    assert_eq!(stage(&report_of, "device", "7:3 flushes", "Q2C"), [1, 1_817_432, 1_817_432, 1_817_432]);
    assert_eq!(stage(&report_of, "owner", "dbd (23294)", "Q2C"), [2, 106_658, 962_045, 1_817_432]);
    let flushes = &report_of["block"]["flushes"];
    assert_eq!((&flushes["requests_total_ns"], &flushes["requests"]["n"]), (&3_526_105.into(), &3.into()));
    let steps = ["before_data", "data", "after_data"].map(|step| flushes[step]["max"].as_u64().expect(step));
    assert_eq!(steps, [818_556, 19_329, 899_241]);
}

#[test]
fn a_flush_of_a_stacked_device_is_counted_once() {
    for (path, bios, below, flushes) in
        [("dm-flush", 6, 6, 5), ("dm-flush-remapped", 5, 5, 5), ("md-flush", 12, 16, 12)]
    {
        let report = report(path);
        assert_eq!((count(&report, "bios_queued"), count(&report, "bios_completed")), (bios, bios), "{path}");
        assert_eq!(count(&report, "bios_below"), below, "{path}");
        assert_eq!(report["block"]["flushes"]["requests"]["n"], flushes, "{path}");
    }
    let report_of = report("dm-flush");
    assert_eq!(stage(&report_of, "device", "253:0 flushes", "Q2C"), [5, 1_012_000, 1_012_000, 1_012_000]);
    assert_eq!(stage(&report_of, "device", "8:0 flushes", "Q2C"), [5, 1_009_000, 1_009_000, 1_009_000]);
    assert_eq!(report_of["block"]["flushes"]["empty_bios"], 5);
    // A flush that another program asks of one half is its own.
    let report = report("md-flush");
    assert_eq!(stage(&report, "owner", "other (95)", "Q2C"), [4, 511_000, 511_000, 511_000]);
    assert_eq!(stage(&report, "device", "9:0 flushes", "Q2C"), [4, 1_030_000, 1_030_000, 1_030_000]);
}

#[test]
fn other_operations_are_kinds_of_their_own() {
    let report = report("zone-append");
    for (kind, n, q2c) in [
        ("zone appends", 2, 105_000),
        ("zone resets", 1, 3_105_000),
        ("discards", 1, 5_005_000),
        ("flushes", 1, 12_006_000),
    ] {
        assert_eq!(stage(&report, "device", &format!("8:0 {kind}"), "Q2C"), [n, q2c, q2c, q2c], "{kind}");
    }
    assert_eq!((count(&report, "bios_completed"), given_up(&report)), (5, [0; 3]));
}

#[test]
fn issues_and_completions_alone_give_requests() {
    let report = report("issue-complete-only");
    assert_eq!(all(&report, "D2C"), [4, 300_000, 1_900_000, 5_000_000]);
    assert_eq!(report["block"]["stages"]["unit"], "request");
    assert_eq!(count(&report, "requests_completed"), 4);
    assert!(unknown(&report, "bios_queued").contains("block_bio_queue"));
    for (issuer, n, d2c) in [
        ("Binder:640_4 (2066)", 1, 2_000_000),
        ("com.app.gallery (3001)", 2, 300_000),
        ("ext4 journal [jbd2/mmcblk0p9]", 1, 5_000_000),
    ] {
        assert_eq!(stage(&report, "owner", issuer, "D2C"), [n, d2c, d2c, d2c], "{issuer}");
        // What was not recorded is no time of 0.
        assert_eq!(stage(&report, "owner", issuer, "Q2C"), [0; 4], "{issuer}");
    }
}

#[test]
fn failures_have_a_place_an_error_an_owner_and_their_attempt() {
    let report = report("io-errors");
    let errors = &report["block"]["errors"];
    assert_eq!((&errors["failed"], &errors["retries"], &errors["recovered"]), (&2.into(), &1.into(), &0.into()));
    let failures = errors["failures"].as_array().expect("failures");
    for (attempt, failure) in failures.iter().enumerate() {
        let text = |name: &str| failure[name].as_str().unwrap_or_default().to_owned();
        assert_eq!([text("device"), text("error"), text("owner")], ["179:0", "EIO", "cat (901)"]);
        let number = |name: &str| failure[name].as_i64().expect("a number");
        assert_eq!([number("errno"), number("sector"), number("took_ns")], [-5, 4104, 900_010_000]);
        assert_eq!(number("attempt"), attempt as i64 + 1);
    }
    assert_eq!((count(&report, "bios_completed"), failures.len()), (3, 2));
}

#[test]
fn a_call_of_fsync_shows_what_it_waited_for() {
    let report = report("emmc-fsync-spike");
    let syncs = &report["block"]["syncs"];
    assert_eq!(syncs["durations"]["n"], 12);
    let calls = syncs["calls"].as_array().expect("calls");
    let worst = &calls[0];
    let of = |call: &Value| (call["number"].as_u64().expect("a number"), call["duration_ns"].as_u64().expect("a time"));
    assert_eq!(of(worst), (9, 273_840_000));
    // Of 274 ms, 270 are the device's, for the journal's block.
    let waits = &worst["waits"];
    let longest = &waits["longest"];
    assert_eq!((longest["how"].as_str(), longest["d2c_ns"].as_u64()), (Some("journal"), Some(269_700_000)));
    assert_eq!((longest["bytes"].as_u64(), longest["flags"].as_str()), (Some(4096), Some("FWFS")));
    assert_eq!(waits["journal_ns"].as_u64().expect("a time"), 269_750_000 + 1_560_000);
    assert_eq!(waits["data_ns"].as_u64().expect("a time"), 2_046_000);
    // The others: 5.5 ms.
    assert!(calls[1..].iter().all(|call| of(call).1 == 5_540_000), "{calls:?}");
}

#[test]
fn an_io_through_a_stack_is_counted_once() {
    let report = report("dm-double-count");
    assert_eq!((count(&report, "bios_queued"), count(&report, "bios_completed")), (10, 10));
    assert_eq!(count(&report, "bios_below"), 10);
    let owners = report["block"]["originators"]["originators"].as_array().expect("originators");
    let read: Vec<_> = owners.iter().map(|one| (one["name"].as_str(), one["read_bytes"].as_u64())).collect();
    assert_eq!(read, [(Some("sqlite3 (500)"), Some(40 << 10))]);
    assert_eq!(all(&report, "D2C"), [10, 200_000, 200_000, 200_000]);
    assert_eq!(all(&report, "Q2C"), [10, 212_000, 212_000, 212_000]);
    // The disk's own figures are there as well, once.
    assert_eq!(stage(&report, "device", "8:0 reads", "Q2C"), [10, 206_000, 206_000, 206_000]);
    let stack = report["block"]["stack"].as_array().expect("levels");
    let level = &stack[0];
    assert_eq!((stack.len(), level["upper"].as_str(), level["lower"].as_str()), (1, Some("253:0"), Some("8:0")));
    let number = |name: &str| level[name].as_u64().expect("a number");
    assert_eq!([number("upper_bytes"), number("lower_bytes")], [40 << 10, 40 << 10]);
    assert_eq!([number("mean_down_ns"), number("mean_below_ns"), number("mean_up_ns")], [4_000, 206_000, 2_000]);
}

/// The filters choose what is shown. Who waits for whom, and when a bio ends, does not depend on them.
#[test]
fn filters_show_a_part_of_what_all_bios_tell() {
    let input = input("waits-behind-another");
    let shown = |filters: &[&str]| -> Value {
        flashscope_tests::json(flashscope().args(["report", "--json"]).args(filters).arg(&input))
    };
    let waited = |report: &Value| -> Vec<(String, String, u64)> {
        let pairs = report["block"]["interference"]["pairs"].as_array().expect("pairs");
        let text = |pair: &Value, side: &str| pair[side].as_str().expect("an owner").to_owned();
        let ns =
            |pair: &Value| pair["served_ns"].as_u64().expect("a time") + pair["handover_ns"].as_u64().expect("one");
        pairs.iter().map(|pair| (text(pair, "victim"), text(pair, "behind"), ns(pair))).collect()
    };
    let behind = |ns| vec![("dd (901)".to_owned(), "fio (900)".to_owned(), ns)];
    let owners = |report: &Value| -> Vec<(String, u64)> {
        let owners = report["block"]["interference"]["owners"].as_array().expect("owners");
        let one = |o: &Value| {
            (o["owner"].as_str().expect("a name").to_owned(), o["mean_behind_ns"].as_u64().expect("a time"))
        };
        owners.iter().map(one).collect()
    };
    let dd = shown(&["--process", "dd"]);
    assert_eq!((waited(&dd), owners(&dd)), (behind(5_952_000), vec![("dd (901)".to_owned(), 496_000)]));
    assert_eq!(all(&dd, "Q2C"), [12, 202_000, 698_000, 1_194_000]);
    // What is left out was lost to nobody.
    assert_eq!(dd["block"]["stages"]["unmatched"], shown(&[])["block"]["stages"]["unmatched"]);
    let fio = shown(&["--process", "fio"]);
    assert_eq!((waited(&fio), owners(&fio)), (behind(5_952_000), vec![("fio (900)".to_owned(), 0)]));
    assert_eq!(all(&fio, "Q2C"), [6, 1_002_000, 1_002_000, 1_002_000]);
    let early = shown(&["--process", "dd", "--to", "0.0101"]);
    assert_eq!((waited(&early), owners(&early)), (behind(1_984_000), vec![("dd (901)".to_owned(), 661_333)]));
    assert_eq!(all(&early, "Q2C"), [3, 202_000, 863_333, 1_194_000]);
    assert_eq!((count(&early, "bios_queued"), count(&early, "unfinished"), count(&early, "events")), (3, 0, 17));
    // From the middle of dd's second wait on: what a step takes anyway is still known from before.
    let late = shown(&["--from", "0.0505", "--process", "dd"]);
    assert_eq!((waited(&late), all(&late, "Q2C")), (vec![], [1, 202_000, 202_000, 202_000]));
}

#[test]
fn failures_of_other_kinds_and_what_became_of_them() {
    type Failed = (String, String, u64, u64);
    let listed = |name: &str| -> (Vec<u64>, Vec<Failed>) {
        let errors = &report(name)["block"]["errors"];
        let counts = ["failed", "retries", "recovered"].map(|count| errors[count].as_u64().expect("a count"));
        let one = |f: &Value| {
            let text = |field: &str| f[field].as_str().expect("text").to_owned();
            let number = |field: &str| f[field].as_u64().expect("a number");
            (text("error"), text("owner"), number("attempt"), number("took_ns"))
        };
        (counts.to_vec(), errors["failures"].as_array().expect("failures").iter().map(one).collect())
    };
    let failure = |error: &str, owner: &str, attempt, took| (error.to_owned(), owner.to_owned(), attempt, took);
    let (counts, failures) = listed("errors-discard-timeout");
    let wanted = [failure("ENODATA", "fstrim (31)", 1, 1_005_000), failure("ETIMEDOUT", "cat (32)", 1, 30_005_000)];
    assert_eq!((counts, failures), (vec![2, 0, 1], wanted.to_vec()));
    let (counts, failures) = listed("errors-retry-recovers");
    let wanted = [("cat (32)", 1), ("cat (32)", 2), ("dd (33)", 1)];
    let wanted = wanted.map(|(owner, attempt)| failure("EIO", owner, attempt, 105_000));
    assert_eq!((counts, failures), (vec![3, 1, 1], wanted.to_vec()));
}

#[test]
fn a_device_with_fua_of_its_own_ends_a_bio_once() {
    let report = report("flush-fua-alone");
    assert_eq!(
        (all(&report, "Q2C"), all(&report, "D2C")),
        ([2, 505_000, 555_000, 605_000], [2, 500_000, 550_000, 600_000])
    );
    let flushes = &report["block"]["flushes"];
    assert_eq!([&flushes["data_bios"], &flushes["empty_bios"], &flushes["requests"]["n"]], [2, 0, 0]);
    assert_eq!((count(&report, "unfinished"), given_up(&report)), (0, [0; 3]));
}

#[test]
fn merged_and_halved_requests_without_their_bios() {
    let report = report("issue-only-merged");
    assert_eq!((all(&report, "D2C"), all(&report, "Q2C")), ([3, 100_000, 266_666, 400_000], [0; 4]));
    assert_eq!(report["block"]["groups"][0]["bytes"], 28 << 10);
}

#[test]
fn two_levels_and_a_mirror_are_one_bio_each() {
    let levels = report("dm-two-levels");
    assert_eq!(
        (all(&levels, "Q2C"), all(&levels, "D2C")),
        ([1, 217_000, 217_000, 217_000], [1, 200_000, 200_000, 200_000])
    );
    let stack = levels["block"]["stack"].as_array().expect("a stack");
    let added = |level: &Value| ["mean_down_ns", "mean_up_ns"].map(|time| level[time].as_u64().expect(time));
    let mut added: Vec<_> = stack.iter().map(added).collect();
    added.sort_unstable();
    assert_eq!(added, [[3_000, 3_000], [3_000, 4_000]]);
    let mirror = report("md-mirror");
    assert_eq!(
        (all(&mirror, "Q2C"), all(&mirror, "D2C")),
        ([1, 155_000, 155_000, 155_000], [1, 140_000, 140_000, 140_000])
    );
    let level = &mirror["block"]["stack"][0];
    assert_eq!((level["upper"].as_str(), level["lower"].as_str()), (Some("9:0"), Some("8:0, 8:16")));
    assert_eq!([&level["upper_bytes"], &level["lower_bytes"]], [4096, 8192]);
    for leg in level["legs"].as_array().expect("legs") {
        assert_eq!([&leg["bios"], &leg["bytes"]], [1, 4096], "{leg}");
    }
    for (disk, q2c) in [("8:0 writes", 107_000), ("8:16 writes", 144_000)] {
        assert_eq!(stage(&mirror, "device", disk, "Q2C"), [1, q2c, q2c, q2c], "{disk}");
    }
}

#[test]
fn flushes_end_with_what_the_trace_shows_of_them() {
    assert_eq!(all(&report("fua-without-preflush"), "Q2C"), [1, 2_125_000, 2_125_000, 2_125_000]);
    let two = report("empty-flush-of-two");
    assert_eq!(stage(&two, "owner", "a (1)", "Q2C"), [1, 5_200_000, 5_200_000, 5_200_000]);
    assert_eq!(stage(&two, "owner", "b (2)", "Q2C"), [1, 5_100_000, 5_100_000, 5_100_000]);
    // A flush whose completion is not known takes no other flush's, and costs none: the third has all its events.
    let clocks = report("flush-clocks");
    assert_eq!(all(&clocks, "Q2C"), [2, 5_100_000, 5_100_000, 5_100_000]);
    assert_eq!((count(&clocks, "bios_queued"), given_up(&clocks)), (3, [1, 0, 0]));
}

#[test]
fn a_part_with_impossible_times_costs_its_bio_and_is_counted() {
    let report = report("split-clocks");
    assert_eq!(all(&report, "Q2C"), [2, 300_000, 300_000, 300_000]);
    assert_eq!((given_up(&report), count(&report, "bios_queued")), ([0, 0, 1], 3));
}

#[test]
fn io_below_an_array_or_another_path_is_counted_once() {
    let array = report("raid5-parity");
    assert_eq!((count(&array, "bios_queued"), all(&array, "Q2C")), (4, [4, 510_000, 510_000, 510_000]));
    let level = &array["block"]["stack"][0];
    assert_eq!((&level["upper_bytes"], &level["lower_bytes"]), (&16_384.into(), &32_768.into()));
    let path = report("nvme-multipath");
    assert_eq!(all(&path, "Q2C"), [4, 210_000, 210_000, 210_000]);
    assert_eq!(stage(&path, "device", "259:0 reads", "D2C"), [4, 200_000, 200_000, 200_000]);
    assert_eq!((count(&path, "bios_queued"), count(&path, "bios_completed"), count(&path, "unfinished")), (4, 4, 0));
    assert_eq!(path["block"]["stages"]["unmatched"]["issued"], 0);
}

#[test]
fn a_failure_names_the_part_that_failed_and_a_command_ends() {
    let failed = report("failed-part");
    let errors = &failed["block"]["errors"];
    assert_eq!((&errors["failed"], &errors["recovered"]), (&1.into(), &1.into()));
    let failure = &errors["failures"][0];
    assert_eq!((&failure["sector"], &failure["bytes"]), (&1008.into(), &4096.into()));
    let commands = report("driver-commands");
    assert_eq!((count(&commands, "requests"), count(&commands, "requests_completed")), (2, 2));
    assert_eq!(commands["block"]["stages"]["unmatched"]["completed"], 0);
}
