//! In no JSON a figure is 0 where it is unknown: every case, ours and the shared ones.

use super::{input, report};
use flashscope_tests::{flashscope, output, stdout, top};
use serde_json::{Value, json};

/// Calls with every object and its place.
fn objects(value: &Value, place: &str, each: &mut impl FnMut(&str, &serde_json::Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            each(place, fields);
            fields.iter().for_each(|(name, field)| objects(field, &format!("{place}.{name}"), each));
        }
        Value::Array(all) => all.iter().for_each(|one| objects(one, place, each)),
        _ => {}
    }
}

/// Reports of block I/O of all cases that are read.
fn reports() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for folder in [top().join("tests/cases"), top().join("../shared/cases")] {
        for case in std::fs::read_dir(folder).into_iter().flatten() {
            let input = case.expect("a case").path().join("input");
            let report =
                flashscope_tests::flashscope().args(["report", "--json"]).arg(&input).output().expect("it runs");
            if report.status.success() {
                let json: Value = serde_json::from_slice(&report.stdout).expect("JSON");
                if json["block"].is_object() {
                    found.push((input.display().to_string(), json));
                }
            }
        }
    }
    found
}

/// Figures that are numbers, of these that may not be.
fn numbers(block: &Value, figures: &[&str]) -> Vec<String> {
    let window =
        |name: &str| block["over_time"]["windows"].as_array().expect("windows").iter().any(|w| w[name].is_number());
    let is_number = |figure: &&&str| match figure.strip_prefix("windows/") {
        Some(name) => window(name),
        None => block.pointer(&format!("/{figure}")).is_some_and(Value::is_number),
    };
    figures.iter().filter(is_number).map(|figure| (*figure).to_owned()).collect()
}

const NEED_QUEUEING: &[&str] = &[
    "stages/bios_queued",
    "stages/bios_completed",
    "originators/written_one_bytes",
    "originators/written_shared_bytes",
    "originators/written_kernel_bytes",
    "originators/written_unknown_bytes",
    "originators/written_direct_bytes",
    "originators/mixed_bios",
    "over_time/most_in_flight",
    "windows/queued",
    "windows/in_flight_milli",
    "windows/most_in_flight",
    "flushes/empty_bios",
    "flushes/data_bios",
    "stages/bios_below",
    "stages/parts",
    "stages/without_issue",
    "errors/failed_below",
    "interference/shared_requests",
    "syncs/data_ns",
    "syncs/journal_ns",
    "syncs/rest_ns",
];
const NEED_COMPLETIONS: &[&str] = &[
    "stages/bios_completed",
    "stages/requests_completed",
    "stages/unfinished",
    "over_time/most_in_flight",
    "over_time/most_in_device",
    "windows/completed",
    "windows/read_bytes",
    "windows/written_bytes",
    "windows/in_flight_milli",
    "windows/in_device_milli",
    "flushes/requests_total_ns",
    "errors/failed",
    "errors/failed_below",
    "errors/retries",
    "errors/recovered",
    "syncs/data_ns",
    "syncs/journal_ns",
    "syncs/rest_ns",
];
const NEED_ISSUES: &[&str] = &[
    "over_time/sequential",
    "over_time/most_in_device",
    "windows/seeks",
    "windows/in_device_milli",
    "flushes/requests_total_ns",
    "stages/reissued",
    "stages/without_issue",
    "interference/shared_requests",
];
const NEED_CLARITY: &[&str] = &[
    "stages/bios_queued",
    "stages/bios_completed",
    "stages/unfinished",
    "originators/written_direct_bytes",
    "originators/mixed_bios",
    "over_time/sequential",
    "over_time/most_in_flight",
    "over_time/most_in_device",
];

#[test]
fn what_is_unknown_is_not_0_in_json() {
    let mut lacking = [0; 3];
    for (case, json) in reports() {
        let block = &json["block"];
        let why = |figure: &str| block["stages"][figure]["unknown"].as_str().unwrap_or_default();
        let queueing = why("bios_queued").contains("no bio being queued");
        let completions =
            why("bios_completed").contains("no completion (") || why("requests_completed").contains("no completion (");
        let unclear = !block["unclear"].as_array().expect("a list").is_empty();
        for (i, (lacks, figures)) in
            [(queueing, NEED_QUEUEING), (completions, NEED_COMPLETIONS), (unclear, NEED_CLARITY)]
                .into_iter()
                .enumerate()
        {
            lacking[i] += usize::from(lacks);
            if lacks {
                assert_eq!(numbers(block, figures), Vec::<String>::new(), "{case}");
            }
        }
        objects(&json, "", &mut |place, fields| {
            // Times of nothing have no mean and no maximum.
            if fields.get("n").is_some_and(|n| n == 0) && fields.contains_key("mean") {
                let numbers = fields.iter().filter(|(name, value)| *name != "n" && value.is_number());
                assert_eq!(numbers.count(), 0, "{case}: {place} {fields:?}");
            }
        });
    }
    // Every kind of lack is among the cases.
    assert!(lacking.iter().all(|&cases| cases > 0), "{lacking:?}");
}

#[test]
fn bios_without_requests_have_no_request_in_the_device() {
    let block = report("zram-alone")["block"].clone();
    assert_eq!(numbers(&block, NEED_ISSUES), Vec::<String>::new());
    assert_eq!(block["over_time"]["most_in_flight"], 1);
}

#[test]
fn a_second_boot_in_the_stream_ends_the_first() {
    let report = report("two-boots");
    let stages = &report["block"]["stages"];
    let of = |figure: &str| stages["all"][6][figure].as_u64();
    assert_eq!(
        ["bios_queued", "bios_completed", "unfinished"].map(|figure| stages[figure].as_u64()),
        [6, 5, 1].map(Some)
    );
    assert_eq!(["n", "min_ns", "mean_ns", "max_ns"].map(of), [5, 50_000, 70_000, 90_000].map(Some));
    assert_eq!(stages["all"][0]["n"], 4, "Q2Q of 3 and of 3 bios");
    let joined = report["losses"].as_array().expect("losses").iter().find(|loss| loss["name"] == "recordings_joined");
    assert_eq!(joined.expect("a loss")["count"], 1);
}

/// The second recording is of the same boot, or of another, with a header or without.
const RECORDINGS_OF_CALLS: [&str; 3] =
    ["two-recordings-calls", "two-recordings-calls-reboot", "two-recordings-calls-no-header"];

/// Calls by name, with number, least and most; how many are cut; pages requested, read ahead and used of these; unfinished bios.
fn calls_and_pages(report: &Value) -> Value {
    let calls = report["calls"]["by_call"].as_array().expect("calls").iter();
    let calls = calls.map(|one| json!([one["call"], one["ns"]["n"], one["ns"]["min"], one["ns"]["max"]]));
    let pages = ["requested", "ahead", "ahead_used"].map(|figure| report["readahead"]["total"][figure].clone());
    json!([calls.collect::<Vec<_>>(), report["calls"]["cut"], pages, report["block"]["stages"]["unfinished"]])
}

/// Neither a call, nor a page that was read ahead, nor a bio of the first recording ends in the second: alone, and merged with a trace of
/// another disk, whose I/O is complete.
#[test]
fn calls_and_pages_of_a_recording_end_with_it() {
    let right = json!([[["fsync", 2, 5_000_000, 7_000_000], ["pread64", 3, 100_000, 200_000]], 2, [2, 6, 0], 1]);
    for case in RECORDINGS_OF_CALLS {
        let found = report(case);
        assert_eq!(calls_and_pages(&found), right, "{case}");
        assert_eq!(found["block"]["syncs"]["durations"]["max"], 7_000_000, "{case}");
        let layers: Value =
            serde_json::from_str(&stdout(flashscope().args(["report", "--by", "layer", "--json"]).arg(input(case))))
                .expect("JSON");
        assert_eq!(layers["layers"]["sums"][0]["n"], 2, "{case}: {}", layers["layers"]["sums"]);
        // Number 6 is the fsync of 7 ms, which its own write holds up.
        let call: Value =
            serde_json::from_str(&stdout(flashscope().args(["report", "--call", "6", "--json"]).arg(input(case))))
                .expect("JSON");
        assert_eq!(call["call"]["duration_ns"], 7_000_000, "{case}: {call}");
    }
    let merged = stdout(
        flashscope()
            .args(["report", "--json", "--offset", "other=0"])
            .arg(input("two-recordings-calls"))
            .arg(top().join("tests/cases/two-recordings-calls/other")),
    );
    assert_eq!(calls_and_pages(&serde_json::from_str(&merged).expect("JSON")), right);
}

#[test]
fn recordings_without_a_clock_in_common_are_not_merged() {
    let other = top().join("tests/cases/two-recordings-calls/other");
    for case in ["two-recordings-calls-reboot", "two-recordings-calls-no-header"] {
        for inputs in [[&input(case), &other], [&other, &input(case)]] {
            let refused =
                output(flashscope().args(["report", "--offset", "other=0", "--offset", "input=0"]).args(inputs));
            assert_eq!(refused.status.code(), Some(1), "{case}");
            assert!(refused.stdout.is_empty(), "{case}");
            let why = String::from_utf8_lossy(&refused.stderr);
            assert!(why.contains("has several recordings, and the times of a later one are earlier"), "{case}: {why}");
        }
    }
}

/// A program that goes from one CPU to the other within its calls.
#[test]
fn calls_go_on_from_the_text_of_one_cpu_to_that_of_another() {
    for case in ["cpus-cat", "cpus-trace-cmd-report", "cpus-without-headers"] {
        let found = report(case);
        let fsync = &found["calls"]["by_call"][0];
        let times = ["n", "min", "max"].map(|figure| fsync["ns"][figure].as_u64());
        assert_eq!((times, &found["calls"]["cut"]), ([2, 4_000_000, 9_000_000].map(Some), &json!(0)), "{case}");
        let csv = stdout(flashscope().arg("export").arg(input(case)).args(["--to", "csv", "-o", "-"]));
        let times: Vec<u64> =
            csv.lines().skip(1).map(|line| line.split(',').next().expect("a time").parse().expect("a time")).collect();
        assert_eq!(times.len(), 13, "{case}");
        assert!(times.is_sorted(), "{case}: {times:?}");
    }
}

/// Reads that are issued on one CPU and end on the other; one CPU's text is there twice, or a terminal broke the lines.
#[test]
fn requests_go_on_from_the_text_of_one_cpu_to_that_of_another() {
    for (case, lost) in
        [("repeated-cpu", &["times_backwards 1", "events_repeated 13"][..]), ("cpus-broken-at-a-column", &[])]
    {
        let report = report(case);
        assert_eq!((super::count(&report, "bios_queued"), super::count(&report, "unfinished")), (20, 0), "{case}");
        assert_eq!(super::stage(&report, "Q2C"), [20, 1_000_000, 1_000_000], "{case}");
        assert_eq!(super::lost(&report), lost, "{case}");
    }
}

#[test]
fn nobody_is_alone_where_a_cpus_file_is_missing() {
    let path = top().join("tests/cases/cpu-file-missing");
    let report = report(&path);
    let owners = report["block"]["interference"]["owners"].as_array().expect("owners");
    assert_eq!(owners.len(), 2);
    for owner in owners {
        for figure in ["mean_alone_ns", "mean_device_excess_ns"] {
            assert!(owner[figure]["unknown"].as_str().is_some_and(|why| why.contains("CPU 1")), "{owner}");
        }
    }
    let text = flashscope_tests::stdout(flashscope_tests::flashscope().arg("report").arg(&path));
    assert!(text.contains("Who waits behind whom is unknown: the file of CPU 1 is missing"), "{text}");
    // What others are seen to have delayed is a lower bound.
    let rows = text.lines().filter(|line| line.ends_with("unknown  unknown"));
    assert_eq!(rows.filter(|row| row.contains("≥ 0 ns")).count(), 2, "{text}");
}

/// Ten reads whose completions are in the missing file, and ten writes that have theirs.
#[test]
fn what_ended_on_a_cpu_without_a_file_is_not_unfinished() {
    let dir = top().join("tests/cases/cpu-file-of-completions-missing");
    let report = report(dir.to_str().expect("UTF-8"));
    let block = &report["block"];
    assert_eq!(block["stages"]["bios_queued"], 20);
    for figure in ["bios_completed", "unfinished"] {
        assert!(block["stages"][figure]["unknown"].as_str().is_some_and(|why| why.contains("CPU 1")), "{figure}");
    }
    for figure in ["most_in_flight", "most_in_device"] {
        assert!(block["over_time"][figure]["unknown"].is_string(), "{figure}");
    }
    for figure in ["failed", "failed_below", "retries", "recovered"] {
        assert!(block["errors"][figure]["unknown"].as_str().is_some_and(|why| why.contains("CPU 1")), "{figure}");
    }
    let d2c = block["groups"][0]["stages"].as_array().expect("stages").iter().find(|one| one["stage"] == "D2C");
    assert_eq!(d2c.map(|one| (&one["ns"]["n"], &one["ns"]["min"])), Some((&10.into(), &200_000.into())));
    for rows in ["bios", "requests"] {
        let export = ["--rows", rows, "--to", "json", "-o", "-"];
        let text = flashscope_tests::stdout(flashscope_tests::flashscope().arg("export").arg(&dir).args(export));
        let status =
            |wanted: &str| text.lines().filter(|row| row.contains(&format!("\"status\":\"{wanted}\""))).count();
        assert_eq!([status("completed"), status("unknown"), status("unfinished")], [10, 10, 0], "{rows}");
    }
}

/// The end of one of three reads is lost; another one failed.
#[test]
fn what_failed_is_unknown_where_an_end_is_lost() {
    let report = report("lost-and-failed");
    let block = &report["block"];
    assert_eq!([&block["stages"]["bios_queued"], &block["stages"]["bios_completed"]], [3, 2]);
    let unknown = [
        "stages/unfinished",
        "over_time/most_in_flight",
        "over_time/most_in_device",
        "errors/failed",
        "errors/retries",
        "errors/recovered",
    ];
    for figure in unknown {
        let why = block.pointer(&format!("/{figure}/unknown")).and_then(Value::as_str);
        assert!(why.is_some_and(|why| why.starts_with("events were lost (")), "{figure}: {why:?}");
    }
    assert_eq!(block["errors"]["failures"].as_array().map(Vec::len), Some(1));
    assert_eq!(block["stages"]["all"][6]["mean_ns"], 90_000);
    assert!(block["missing"].as_array().is_none_or(Vec::is_empty), "the trace has completions");
    let input = input("lost-and-failed");
    let run = |args: &[&str]| flashscope_tests::flashscope().args(args).arg(&input).output().expect("it runs");
    let text = String::from_utf8_lossy(&run(&["report"]).stdout).into_owned();
    assert!(text.contains("At least 1 bio ended with an error (-5 EIO)"), "{text}");
    let rows = run(&["export", "--rows", "bios", "--to", "json", "-o", "-"]);
    let rows = String::from_utf8_lossy(&rows.stdout).into_owned();
    assert_eq!(["unknown", "unfinished"].map(|one| rows.matches(&format!("\"status\":\"{one}\"")).count()), [1, 0]);
    // One failure is certain, no more.
    for (condition, status) in [("errors > 0", 3), ("errors > 1", 1), ("errors < 1", 1), ("retries > 0", 1)] {
        assert_eq!(run(&["report", "--fail-if", condition]).status.code(), Some(status), "{condition}");
    }
}

/// A total that is unknown has a reason, not a list of other figures.
#[test]
fn a_condition_on_an_unknown_total_says_why() {
    for (case, condition, why) in [
        ("issue-complete-only", "bios > 1", "no bio being queued"),
        ("cpu-file-of-completions-missing", "errors > 0", "the file of CPU 1 is missing"),
        ("md-without-completions", "errors > 0", "no completion of 9:0"),
    ] {
        let case = top().join("tests/cases").join(case);
        let input = if case.join("input").exists() { case.join("input") } else { case };
        let mut command = flashscope_tests::flashscope();
        let output = command.arg("report").arg(&input).args(["--fail-if", condition]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && !said.contains("has no figure"), "{said}");
    }
}

/// Before Linux 4.12 md's bios had no end in a trace; those of its legs have.
#[test]
fn a_device_that_tells_no_end_leaves_completions_unknown() {
    let report = report("md-without-completions");
    let block = &report["block"];
    let stages = &block["stages"];
    assert_eq!([&stages["bios_queued"], &stages["bios_below"]], [5, 10]);
    for figure in ["bios_completed", "unfinished"] {
        assert!(stages[figure]["unknown"].as_str().is_some_and(|why| why.contains("9:0")), "{}", stages[figure]);
    }
    let needs = ["over_time/most_in_flight", "windows/completed", "windows/written_bytes", "windows/in_flight_milli"];
    assert_eq!(numbers(block, &needs), Vec::<String>::new());
    let d2c = |device: &str| {
        let devices = stages["devices"].as_array().expect("devices");
        let one = devices.iter().find(|one| one["device"] == device).expect("a device");
        [&one["all"][6]["n"], &one["all"][6]["mean_ns"]].map(Value::as_u64)
    };
    assert_eq!(
        [d2c("8:0"), d2c("8:16"), d2c("9:0")],
        [[Some(5), Some(100_000)], [Some(5), Some(150_000)], [Some(0), None]]
    );
    let text =
        flashscope_tests::stdout(flashscope_tests::flashscope().arg("report").arg(input("md-without-completions")));
    let text = text.replace("\n  ", " ");
    assert!(text.contains("5 bios queued; 45 block events") && !text.contains("No bio was completed"), "{text}");
    let why = "How many bios were completed is unknown: the trace has no completion of 9:0, whose driver takes bios without requests. \
               To know it, record with a newer kernel";
    assert!(text.contains(why), "{text}");
}

/// Names with spaces, colons, dashes, brackets, and sectors beyond 2 TiB, in each text and in blktrace's records.
#[test]
fn odd_names_and_far_sectors_are_the_same_in_every_format() {
    let names = [
        "(sd-pam) (35)", "Web Content (33)", "[foo] (36)", "a b c (31)", "a:b (37)", "kworker/u8:2 (32)", "x-y-12 (34)",
    ];
    for input in ["ftrace", "ftrace-plain", "perf", "blkparse", "blktrace"] {
        let path = top().join("tests/cases/odd-names").join(input);
        let report = report(&path);
        let block = &report["block"];
        let owners = block["originators"]["originators"].as_array().expect("owners");
        let owners: Vec<&str> = owners.iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(owners, names, "{input}");
        assert_eq!([&block["stages"]["bios_queued"], &block["stages"]["bios_completed"]], [7, 7], "{input}");
        let sectors =
            block["points"]["points"].as_array().expect("points").iter().map(|point| point["sector"].as_u64());
        assert_eq!(sectors.max(), Some(Some(1 << 40)), "{input}");
        let d2c = &block["stages"]["all"][6];
        assert_eq!([&d2c["n"], &d2c["min_ns"], &d2c["max_ns"]], [7, 100_000, 100_000], "{input}");
    }
}

/// A trace of the page cache alone says nothing of raw flash, of calls, of reads and of writes.
#[test]
fn what_the_page_cache_alone_does_not_show_is_not_0() {
    let dir = flashscope_tests::TempDir::new("page-cache-alone");
    let input = dir.path().join("input");
    let line = |at: u64| {
        format!(
            "             cat-77      [000] ..... {}.{:06}: mm_filemap_add_to_page_cache: dev 8:1 ino 1f pfn=0x12a ofs={} order=0\n",
            10,
            at,
            at * 4096
        )
    };
    std::fs::write(&input, "# tracer: nop\n#\n".to_owned() + &(0..5).map(line).collect::<String>()).expect("written");
    let report = report(input.to_str().expect("UTF-8"));
    for figure in ["counts", "wear"] {
        let why = report[figure]["unknown"].as_str().expect(figure);
        assert!(why.contains("no events of raw flash"), "{why}");
    }
    assert_eq!(report["amplification"], Value::Array(Vec::new()));
    assert!(["cut", "without_storage", "not_of_device"].iter().all(|count| report["calls"][count].is_null()));
    let file = &report["names"]["files"][0];
    assert_eq!([&file["read_bytes"], &file["written_bytes"]], [&Value::Null; 2]);
    assert_eq!(file["cached_bytes"], 5 * 4096);
}

/// Nobody is known not to have waited where no request is seen.
#[test]
fn without_issues_nobody_waits_0() {
    let dir = flashscope_tests::TempDir::new("without-issues");
    let input = dir.path().join("input");
    let whole = std::fs::read_to_string(super::input("two-direct-writers")).expect("read");
    let kept = whole
        .lines()
        .filter(|line| !["block_rq_issue", "block_getrq", "merge:"].iter().any(|step| line.contains(step)));
    std::fs::write(&input, kept.map(|line| line.to_owned() + "\n").collect::<String>()).expect("written");
    let block = report(input.to_str().expect("UTF-8"))["block"].clone();
    assert!(block["stages"]["bios_completed"].as_u64().is_some_and(|bios| bios > 0));
    assert_eq!(block["interference"]["owners"], Value::Array(Vec::new()));
    assert!(block["interference"]["unseen"]["unknown"].as_str().is_some_and(|why| why.contains("no issue")));
    assert_eq!(numbers(&block, &["stages/requeues", "windows/merges"]), Vec::<String>::new());
    assert_eq!(numbers(&block, NEED_ISSUES), Vec::<String>::new());
}
