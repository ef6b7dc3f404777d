//! Figures of `top`, `predict`, `advise` and `diff` that the trace does not show: null, or unknown with the reason, and never 0.

use std::path::{Path, PathBuf};

use super::input;
use flashscope_tests::{TempDir, cannot_record, flashscope, json, output, skip, stdout, top};
use serde_json::Value;

/// A case without the lines that have one of these words.
fn without(dir: &TempDir, case: &str, words: &[&str]) -> PathBuf {
    let whole = std::fs::read_to_string(input(case)).expect("the input");
    let kept = whole.lines().filter(|line| !words.iter().any(|word| line.contains(word)));
    let path = dir.path().join(format!("{case}-{}", words.join("-").replace(':', "")));
    std::fs::write(&path, kept.map(|line| line.to_owned() + "\n").collect::<String>()).expect("written");
    path
}

const QUEUEING: &[&str] = &["block_bio_queue:", "block_bio_remap:", "block_getrq:"];
const ISSUES: &[&str] = &["block_rq_issue:", "block_getrq:"];
const COMPLETIONS: &[&str] = &["block_rq_complete:"];

/// Figures that `diff` has values for, and those that one side alone has.
fn compared(before: &Path, after: &Path) -> (Vec<String>, Vec<String>) {
    let json = json(flashscope().args(["diff", "--json"]).args([before, after]));
    let name = |one: &Value| one.as_str().expect("a name").to_owned();
    let changes = json["changes"].as_array().expect("changes").iter();
    // 0 before has no change in percent.
    let changes = changes.inspect(|one| assert!(one["before"] != 0.0 || one["percent"].is_null(), "{one}"));
    let changes = changes.map(|one| name(&one["figure"])).collect();
    (changes, json["only_before"].as_array().expect("a list").iter().map(name).collect())
}

#[test]
fn diff_compares_what_both_traces_show() {
    let dir = TempDir::new("nulls-diff");
    let whole = input("sync-waits-for-data-f2fs");
    let case = "sync-waits-for-data-f2fs";
    for (words, lacks, has) in [
        (
            QUEUEING,
            &["bios", "mean(q2c)", "max(q2d)", "bytes(app=sqlite3 (main))"][..],
            &["mean(d2c)", "calls(fsync)"][..],
        ),
        (ISSUES, &["mean(d2c)", "max(q2d)", "mean(q2g)"], &["bios", "mean(q2c)", "errors"]),
        (COMPLETIONS, &["mean(d2c)", "mean(q2c)", "errors", "retries"], &["bios", "mean(q2d)", "bytes"]),
    ] {
        let (both, only_before) = compared(&whole, &without(&dir, case, words));
        for figure in lacks {
            assert!(!both.iter().any(|one| one == figure), "{words:?}: {figure} is in {both:?}");
            assert!(only_before.iter().any(|one| one == figure), "{words:?}: {figure} is not in {only_before:?}");
        }
        assert!(has.iter().all(|figure| both.iter().any(|one| one == figure)), "{words:?}: {both:?}");
    }
    // Of block I/O nothing is left: the time in the calls is all that both show.
    let (both, only_before) = compared(&whole, &without(&dir, case, &["block_"]));
    assert!(!both.is_empty() && both.iter().all(|one| one.starts_with("time(fsync")), "{both:?}");
    assert!(["bios", "mean(d2c)", "mean(fsync)"].iter().all(|figure| only_before.iter().any(|one| one == figure)));
    // Without the calls nothing is left.
    let refused =
        output(flashscope().args(["diff", "--json"]).arg(&whole).arg(without(&dir, case, &["block_", "sys_"])));
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no figure in common"));
}

/// Pairs of bios of 4 KiB, of which the second is merged into the first one's request. Beside the same trace without queueing its requests
/// are compared.
#[test]
fn diff_compares_requests_where_one_trace_has_no_queueing() {
    let dir = TempDir::new("nulls-diff-requests");
    let text = |has_queueing: bool| {
        let mut text = String::new();
        let mut line = |us: u64, task: &str, event: &str, of: String| {
            if has_queueing || event.starts_with("block_rq_") {
                text += &format!("{task:>16} [000] ..... {:5}.{:06}: {event}: {of}\n", us / 1_000_000, us % 1_000_000);
            }
        };
        for n in 0..6 {
            let (us, sector) = (9_000_000 + n * 1000, 800 + n * 64);
            line(us, "cp-7", "block_bio_queue", format!("8,0 W {sector} + 8 [cp]"));
            line(us + 1, "cp-7", "block_getrq", format!("8,0 W {sector} + 8 [cp]"));
            line(us + 3, "cp-7", "block_bio_queue", format!("8,0 W {} + 8 [cp]", sector + 8));
            line(us + 4, "cp-7", "block_bio_backmerge", format!("8,0 W {} + 8 [cp]", sector + 8));
            line(us + 9, "cp-7", "block_rq_issue", format!("8,0 W 8192 () {sector} + 16 [cp]"));
            line(us + 109 + n, "<idle>-0", "block_rq_complete", format!("8,0 W () {sector} + 16 [0]"));
        }
        text
    };
    let file = |name: &str, text: String| {
        std::fs::write(dir.path().join(name), text).expect("written");
        dir.path().join(name)
    };
    let (whole, without) = (file("whole", text(true)), file("without", text(false)));
    for (before, after, only) in [(&whole, &without, "only_before"), (&without, &whole, "only_after")] {
        let json = json(flashscope().args(["diff", "--json"]).args([before, after]));
        let changes = json["changes"].as_array().expect("changes");
        for change in changes {
            assert_eq!(change["before"], change["after"], "{change}");
        }
        let of = |figure: &str| changes.iter().find(|one| one["figure"] == figure).map(|one| one["before"].as_f64());
        assert_eq!(of("requests"), Some(Some(6.0)), "{changes:?}");
        assert_eq!((of("bytes"), of("max(d2c)")), (Some(Some(49_152.0)), Some(Some(105_000.0))));
        assert!(
            json[only].to_string().contains("\"bios\"") && json[only].to_string().contains("max(q2c)"),
            "{}",
            json[only]
        );
        assert_eq!(
            (json["as_requests"].as_array().map(Vec::len), &json["findings"]),
            (Some(1), &serde_json::json!([]))
        );
        let text = stdout(flashscope().arg("diff").args([before, after])).replace("\n", " ");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("requests are compared with requests"), "{text}");
    }
    // Two traces with queueing are compared by their bios.
    let json = json(flashscope().args(["diff", "--json"]).args([&whole, &whole]));
    assert!(json["as_requests"].is_null() && json["changes"].to_string().contains("\"bios\""));
    // A kept result has no requests.
    let kept = file("kept.json", stdout(flashscope().args(["report", "--json"]).arg(&whole)));
    let refused = output(flashscope().args(["diff", "--json"]).args([&kept, &without]));
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("give the trace instead"), "{refused:?}");
}

#[test]
fn advise_names_no_time_that_the_trace_does_not_show() {
    let dir = TempDir::new("nulls-advise");
    let case = "sync-waits-for-data-f2fs";
    for (words, says) in
        [(QUEUEING, Some("how long bios wait in front of the device is unknown")), (ISSUES, None), (COMPLETIONS, None)]
    {
        let json = json(flashscope().args(["advise", "--json"]).arg(without(&dir, case, words)));
        let findings = json["findings"].as_array().expect("findings");
        for finding in findings {
            let lost = &finding["lost_ns"];
            assert!(lost["unknown"].as_str().is_some_and(|why| !why.is_empty()), "{words:?}: {finding}");
            let evidence = finding["evidence"].as_array().expect("evidence").iter();
            assert_eq!(evidence.filter(|one| one["value"] == 0.0).count(), 0, "{words:?}: {finding}");
            let what = finding["what"].as_str().expect("text");
            assert!(!what.contains("0 ns") && !what.contains("not the cause"), "{words:?}: {what}");
        }
        let overview = findings.iter().find(|finding| finding["rule"] == "where_time_goes");
        assert_eq!(overview.is_some(), says.is_some(), "{words:?}");
        assert_eq!(
            overview.and_then(|one| one["cause"].as_str()).map(|cause| says.is_some_and(|s| cause.contains(s))),
            says.map(|_| true)
        );
        assert!(json["notes"][0].as_str().is_some_and(|note| note.contains("which part of which file was read")));
    }
    let refused = output(flashscope().args(["advise", "--json"]).arg(without(&dir, case, &["block_"])));
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
}

#[test]
fn predict_has_no_time_and_no_faults_that_the_trace_does_not_show() {
    let dir = TempDir::new("nulls-predict");
    let predict = |trace: &Path| {
        json(flashscope().args(["predict", "--json", "--kernel-model", "6.12", "--readahead", "0,64"]).arg(trace))
    };
    for words in [&["no such line"][..], QUEUEING, ISSUES, COMPLETIONS, &["block_"]] {
        let json = predict(&without(&dir, "readahead-part-used", words));
        let recorded = &json["recorded"];
        assert_eq!([&recorded["pages"], &recorded["timed_calls"]], [17, 0], "{words:?}");
        for (figure, why) in [
            ("flash_reads", "raw NAND"),
            ("time_ns", "no system calls"),
            ("faults", "filemap:mm_filemap_fault"),
            ("cpu_wait_ns", "sched:sched_switch"),
        ] {
            let says = recorded[figure]["unknown"].as_str().unwrap_or_default();
            assert!(says.contains(why), "{words:?} {figure}: {}", recorded[figure]);
        }
        for row in json["rows"].as_array().expect("rows") {
            for figure in ["time_ns", "flash_reads", "queue", "energy_uj"] {
                assert!(row[figure].is_null(), "{words:?} {figure}: {row}");
            }
            let by_task = row["by_task"].as_object().expect("tasks").values();
            let tallies = by_task.chain(row["by_file"].as_array().expect("files")).chain([&row["tally"]]);
            for tally in tallies {
                assert!(tally["faults"].is_null() && tally["pages_in_faults"].is_null(), "{words:?}: {tally}");
            }
        }
        let notes = json["notes"].to_string();
        assert!(notes.contains("Times are unknown") && notes.contains("Faults of mapped files are not in"), "{notes}");
        assert!(["cost", "queue", "error"].iter().all(|figure| json[figure].is_null()), "{words:?}");
    }
    // An event that shows faults, and none of this file: then there were none.
    let shown = without(&dir, "readahead-part-used", &["no such line either"]);
    let mut text = std::fs::read_to_string(&shown).expect("read");
    text += "             cat-9       [000] .....    70.000000: mm_filemap_fault: dev=8:17 ino=99 ofs=0\n";
    std::fs::write(&shown, text).expect("written");
    let json = predict(&shown);
    assert_eq!(json["recorded"]["faults"], 1);
    let of_grep = &json["rows"][0]["by_task"]["4410"];
    assert_eq!([&of_grep["faults"], &of_grep["pages_in_faults"]], [0, 0], "{}", json["rows"][0]["by_task"]);
    let text = stdout(
        flashscope()
            .args(["advise", "--kernel-model", "6.12", "--now", "64"])
            .arg(without(&dir, "readahead-part-used", QUEUEING)),
    );
    assert!(!text.contains("pages are read ahead and not used"), "{text}");
}

/// One interval of `top` with these events, in which a program writes directly.
fn interval(dir: &Path, events: &str) -> Vec<Value> {
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of={0} bs=64k count=4 oflag=direct 2>/dev/null; sleep 0.2; done; rm {0}",
        dir.join("file").display()
    );
    let mut work = std::process::Command::new("sh").args(["-c", &script]).spawn().expect("sh starts");
    let text = stdout(flashscope().args(["-q", "top", "--json", "-d", "1", "--events", events]));
    work.wait().expect("it ends");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn top_has_null_for_what_was_not_recorded() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    // Not a tmpfs: it has to reach a disk.
    let dir = top().join("target/tmp/nulls-top");
    std::fs::create_dir_all(&dir).expect("made");
    let always: &[&str] = &["syncs_per_s", "erases_per_s"];
    for (events, process, device, in_flight) in [
        (
            "block:block_rq_issue,block:block_rq_complete",
            &["read_bytes_per_s", "written_bytes_per_s", "waits_behind", "waits_ns_per_s"][..],
            &[][..],
            "no bio being queued",
        ),
        (
            "block:block_bio_queue",
            &["times", "errors", "waits_behind", "waits_ns_per_s"],
            &["times", "errors"],
            "no completion",
        ),
        (
            "block:block_rq_issue",
            &["read_bytes_per_s", "written_bytes_per_s", "times", "errors", "waits_behind"],
            &["times", "errors"],
            "no bio being queued",
        ),
        ("block:block_bio_queue,block:block_rq_complete", &["waits_behind", "waits_ns_per_s"], &[], ""),
        ("syscall", &[], &[], "neither block I/O nor raw NAND"),
    ] {
        for line in interval(&dir, events) {
            let rows = |table: &str| line[table].as_array().expect("rows").clone();
            let tables = [("process", process), ("app", process), ("device", device)];
            for (row, figures) in
                tables.into_iter().flat_map(|(table, of)| rows(table).into_iter().map(move |row| (row, of)))
            {
                for figure in figures.iter().chain(always) {
                    assert!(row[figure].is_null(), "{events} {figure}: {row}");
                }
            }
            // Where completions are there, a device without a failure has none.
            if events.contains("complete") {
                assert!(rows("device").iter().all(|row| row["errors"].is_u64()), "{events}: {line}");
            }
            let why = line["most_in_flight"]["unknown"].as_str();
            let idle = why.is_some_and(|why| why.contains("no event in this interval"));
            assert!(idle || why.map_or(in_flight.is_empty(), |why| why.contains(in_flight)), "{events}: {line}");
            let why = line["readahead_unused"]["unknown"].as_str();
            assert!(idle || why.is_some_and(|why| why.contains("mm_filemap_add_to_page_cache")), "{events}: {line}");
        }
    }
}

/// Rows, and the counter of requests in flight, of traces without completions, without those of one device, and with them.
#[test]
fn how_io_ended_is_unknown_without_completions() {
    let dir = TempDir::new("nulls-ends");
    let out = dir.path().join("trace.pftrace");
    for (case, rows, wanted, counter) in [
        ("issues-alone", "requests", &["unknown"; 4][..], false),
        ("issue-complete-only", "requests", &["completed"; 4], true),
        ("latency-cut", "bios", &["completed", "unfinished"], true),
    ] {
        let input = input(case);
        let text = stdout(flashscope().arg("export").arg(&input).args(["--rows", rows, "--to", "json", "-o", "-"]));
        let status = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["status"].clone();
        assert_eq!(text.lines().map(status).collect::<Vec<_>>(), wanted, "{case}");
        stdout(flashscope().arg("export").arg(&input).args(["--to", "perfetto", "-o"]).arg(&out));
        let written = std::fs::read(&out).expect("written");
        let name = b" in flight";
        assert_eq!(written.windows(name.len()).any(|bytes| bytes == name), counter, "{case}");
    }
}
