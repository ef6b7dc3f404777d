//! `export --rows bios|requests`: the rows add up to what the report says of the same trace, and nothing is exported silently.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use flashscope_analysis::block::{BIO_COLUMNS, REQUEST_COLUMNS, ROWS_SCHEMA};
use flashscope_tests::{TempDir, flashscope, output, stdout, top};
use flashscope_trace::export::{Column, ColumnType};
use flashscope_trace::{Alignment, BlockAction, EventKind, MergedTrace, RequestFlags, Trace, dat, export};
use serde_json::Value;

/// Every case that is a trace of block I/O, and every recording of blktrace.
fn traces() -> Vec<PathBuf> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        paths
    };
    let cases = entries(&top().join("tests/cases")).into_iter().flat_map(|dir| {
        ["input", "input.blktrace.0"].map(|name| dir.join(name)).into_iter().filter(|path| path.is_file())
    });
    let blktrace = entries(&top().join("crates/trace/tests/data/blktrace")).into_iter().filter(|path| path.is_dir());
    let first = |path: &PathBuf| path.to_string_lossy().ends_with(".blktrace.0");
    cases.chain(blktrace.flat_map(|dir| entries(&dir).into_iter().filter(first))).collect()
}

/// The report of a trace of block I/O; `None` where the input is none.
fn report(path: &Path) -> Option<Value> {
    let ran = output(flashscope().args(["report", "--json"]).arg(path));
    let json: Value = serde_json::from_slice(&ran.stdout).ok()?;
    json["block"]["stages"].is_object().then_some(json)
}

/// The rows, or what the command says where there are none.
fn rows(path: &Path, of: &str) -> Result<Vec<Value>, String> {
    let ran = output(flashscope().arg("export").arg(path).args(["--rows", of, "--to", "json", "-o", "-"]));
    if ran.status.success() {
        let text = String::from_utf8(ran.stdout).expect("text");
        return Ok(text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect());
    }
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(1), 0), "{}", path.display());
    Err(String::from_utf8_lossy(&ran.stderr).into_owned())
}

fn own(rows: &[Value]) -> impl Iterator<Item = &Value> {
    rows.iter().filter(|row| row["below"] != true)
}

/// Numbers and sums of all stages.
fn add_up(path: &Path, report: &Value, rows: &[Value]) {
    let stages = &report["block"]["stages"];
    for (index, stage) in stages["stages"].as_array().expect("names").iter().enumerate() {
        let name = stage.as_str().expect("a name").to_lowercase();
        if name != "q2q" {
            let times: Vec<u64> = own(rows).filter_map(|row| row[format!("{name}_ns")].as_u64()).collect();
            let said = &stages["all"][index];
            assert_eq!(said["n"].as_u64(), Some(times.len() as u64), "{name} of {}", path.display());
            // No times have no sum.
            let sum = (!times.is_empty()).then(|| times.iter().sum::<u64>());
            assert_eq!(said["total_ns"].as_u64(), sum, "{name} of {}", path.display());
        }
    }
}

/// Bios and bytes of every owner.
fn by_owner(path: &Path, report: &Value, rows: &[Value]) {
    let mut sums = BTreeMap::<String, [u64; 2]>::new();
    for row in own(rows) {
        let who = ["owner", "carrier", "issuer"].into_iter().find(|who| row[*who].is_string()).expect("somebody");
        let name = row[who].as_str().expect("a name");
        let number = |column: &str| row[format!("{who}_{column}")].as_u64();
        let name = match (number("tid"), number("ordinal")) {
            _ if row["owner_kind"] == "kernel" || name.ends_with(']') => name.to_owned(),
            (Some(tid), None) => format!("{name} ({tid})"),
            (Some(tid), Some(2)) => format!("{name} ({tid}, 2nd)"),
            (Some(tid), Some(3)) => format!("{name} ({tid}, 3rd)"),
            _ => name.to_owned(),
        };
        let sum = sums.entry(name).or_default();
        *sum = [sum[0] + 1, sum[1] + row["bytes"].as_u64().expect("bytes")];
    }
    let groups = report["block"]["groups"].as_array().expect("groups").iter().filter(|group| group["by"] == "owner");
    let said: BTreeMap<String, [u64; 2]> = groups
        .map(|group| {
            let figures = ["bios", "bytes"].map(|figure| group[figure].as_u64().expect(figure));
            (group["name"].as_str().expect("a name").to_owned(), figures)
        })
        .collect();
    assert_eq!(sums, said, "{}", path.display());
}

fn count(rows: &[Value], status: &str) -> u64 {
    own(rows).filter(|row| row["status"] == status).count() as u64
}

#[test]
fn the_rows_add_up_to_the_report() {
    let (mut of_bios, mut of_requests) = (0, 0);
    for path in traces() {
        let Some(report) = report(&path) else { continue };
        let stages = &report["block"]["stages"];
        let figure = |name: &str| stages[name].as_u64().expect("a figure");
        // Without completions, or where totals are unknown, there is nothing to add up to.
        let totals = if stages["unit"] == "bio" { "unfinished" } else { "requests" };
        if stages[totals]["unknown"].is_string() {
            continue;
        }
        if stages["unit"] == "bio" {
            let rows = rows(&path, "bios").expect("rows");
            add_up(&path, &report, &rows);
            by_owner(&path, &report, &rows);
            assert_eq!(count(&rows, "completed"), figure("bios_completed"), "{}", path.display());
            assert_eq!(count(&rows, "unfinished"), figure("unfinished"), "{}", path.display());
            let given_up: u64 = stages["given_up"].as_object().expect("kinds").values().filter_map(Value::as_u64).sum();
            assert_eq!(count(&rows, "given up"), given_up, "{}", path.display());
            of_bios += rows.len();
        } else {
            let said = rows(&path, "bios").expect_err("no bios");
            assert!(said.contains("--rows requests"), "{said}");
            let rows = rows(&path, "requests").expect("rows");
            add_up(&path, &report, &rows);
            by_owner(&path, &report, &rows);
            assert!(rows.iter().all(|row| row["owner"].is_null() && row["queued_ns"].is_null()), "{}", path.display());
            of_requests += rows.len();
        }
    }
    assert!(of_bios > 1000 && of_requests >= 5, "{of_bios} {of_requests}");
}

/// A row for every issue that the driver did not give back, with its own sector and bytes.
#[test]
fn every_issue_is_a_request() {
    let mut seen = 0;
    for path in traces() {
        let Ok(trace) = Trace::open(&path) else { continue };
        let (mut issues, mut requeues) = (BTreeMap::<(u64, String, u64, u64), i64>::new(), 0);
        let mut put_back = BTreeSet::new();
        trace
            .for_each(&mut |event| {
                let EventKind::Block(block) = &event.kind else { return };
                if block.flags.has(RequestFlags::PASSTHROUGH) || block.is_command_without_data() {
                    return;
                }
                // A request that was put back, and whose next issue was lost, has a row without an issue.
                let place = (block.device, block.sector);
                match block.action {
                    BlockAction::Requeue => {
                        put_back.insert(place);
                    }
                    // It may be merged into one that begins before it.
                    BlockAction::Issue => {
                        let end = (block.device, block.sector.saturating_add(block.bytes.div_ceil(512).max(1)));
                        let again: Vec<_> = put_back.range(place..end).copied().collect();
                        requeues += again.iter().filter(|place| put_back.remove(*place)).count() as i64;
                    }
                    _ => {}
                }
                if block.action == BlockAction::Issue {
                    *issues.entry((event.time.0, block.device.to_string(), block.sector, block.bytes)).or_default() +=
                        1;
                }
            })
            .expect("events");
        if issues.is_empty() {
            continue;
        }
        let rows = rows(&path, "requests").expect("rows");
        let mut lost = 0;
        for row in &rows {
            if row["issued_ns"].is_null() {
                lost += 1;
                continue;
            }
            let number = |name: &str| row[name].as_u64().expect("a number");
            let device = row["device"].as_str().expect("a device").to_owned();
            let key = (number("issued_ns"), device, number("sector"), number("bytes"));
            *issues.get_mut(&key).unwrap_or_else(|| panic!("{}: {row}", path.display())) -= 1;
        }
        // A request that was issued again is one row, of its last issue.
        let again = report(&path).and_then(|report| report["block"]["stages"]["reissued"].as_i64());
        assert_eq!(issues.values().sum::<i64>(), requeues + again.unwrap_or(0) + lost, "{}", path.display());
        seen += rows.len();
    }
    assert!(seen > 1000, "{seen}");
}

#[test]
fn failures_have_their_errors_number_and_name() {
    let rows = rows(&top().join("tests/cases/io-errors/input"), "bios").expect("rows");
    let failed: Vec<&Value> = rows.iter().filter(|row| row["error"] != 0).collect();
    assert!(!failed.is_empty());
    for row in failed {
        assert!(
            row["error"].as_i64().expect("a number") < 0
                && row["error_name"].as_str().expect("a name").starts_with('E')
        );
    }
    assert!(rows.iter().filter(|row| row["error"] == 0).all(|row| row["error_name"].is_null()));
}

/// Perfetto's slices are the requests of the rows: as many are completed, or given back without their bios by a path that failed (a
/// completion of no bytes; the bios go on elsewhere, and the row is of no completed request).
#[test]
fn every_completion_with_an_issue_is_a_slice_in_perfetto() {
    let mut seen = 0;
    for path in traces() {
        let Ok(trace) = Trace::open(&path) else { continue };
        let Ok(rows) = rows(&path, "requests") else { continue };
        let written = export::perfetto(&trace, &mut std::io::sink()).expect("an export");
        let completed =
            rows.iter().filter(|row| row["status"] == "completed" && !row["d2c_ns"].is_null()).count() as u64;
        let place = |device: String, sector: u64| (device, sector);
        let unfinished: BTreeSet<_> = rows
            .iter()
            .filter(|row| row["status"] == "unfinished")
            .map(|row| {
                place(row["device"].as_str().expect("a device").to_owned(), row["sector"].as_u64().expect("a sector"))
            })
            .collect();
        let mut given_back = 0;
        trace
            .for_each(&mut |event| {
                let EventKind::Block(block) = &event.kind else { return };
                let ends = block.action == BlockAction::Complete && block.bytes == 0;
                given_back += u64::from(ends && unfinished.contains(&place(block.device.to_string(), block.sector)));
            })
            .expect("events");
        assert_eq!(written.requests, completed + given_back, "{}", path.display());
        seen += completed;
    }
    assert!(seen > 1000, "{seen}");
}

/// Each format of an export of nothing: it says so, exits with 1, writes nothing and leaves what was there.
#[test]
fn an_export_of_nothing_says_what_is_missing() {
    let dir = TempDir::new("rows-empty");
    let (log, silent) = (dir.path().join("flashmon.log"), dir.path().join("silent.dat"));
    std::fs::write(&log, "0.000001;R;64;cat\n").expect("a log");
    let trace = Trace::open(&top().join("crates/trace/tests/data/trace_dat/armv7-6.1-v6.dat")).expect("a trace");
    let merged = MergedTrace::new(vec![(trace, Alignment::Auto)]).expect("one trace");
    dat::write_merged(&merged, &silent, &|_, _| false).expect("a trace.dat without records");
    let there = dir.path().join("there");
    let no_block_io = ["csv", "json", "parquet"].map(|format| (&log, format, "bios", "no block I/O"));
    let no_events =
        ["csv", "json", "text", "parquet", "perfetto"].map(|format| (&silent, format, "events", "no events"));
    for (trace, format, rows, why) in no_block_io.into_iter().chain(no_events) {
        for to in [Path::new("-"), &there] {
            std::fs::write(&there, "as it was").expect("a file");
            let ran =
                output(flashscope().arg("export").arg(trace).args(["--to", format, "--rows", rows, "-o"]).arg(to));
            let said = String::from_utf8_lossy(&ran.stderr);
            assert_eq!((ran.status.code(), ran.stdout.len()), (Some(1), 0), "{format} {rows}: {said}");
            assert!(said.contains(&format!("nothing to export: the trace has {why}")), "{format} {rows}: {said}");
            assert_eq!(std::fs::read_to_string(&there).expect("the file"), "as it was");
        }
    }
    let ran = output(flashscope().arg("export").arg(&log).args(["--to", "perfetto", "--rows", "bios", "-o", "-"]));
    assert_eq!(ran.status.code(), Some(2), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// The same cells in all formats: what CSV leaves empty is null in JSON.
#[test]
fn csv_says_what_json_says() {
    let path = top().join("tests/cases/flush-fua-q2c/input");
    let rows = rows(&path, "bios").expect("rows");
    let csv = stdout(flashscope().arg("export").arg(&path).args(["--rows", "bios", "--to", "csv", "-o", "-"]));
    let mut lines = csv.lines();
    let head: Vec<&str> = lines.next().expect("a head").split(',').collect();
    assert_eq!(head, BIO_COLUMNS.iter().map(|column| column.name).collect::<Vec<_>>());
    for (line, row) in lines.zip(&rows) {
        for (name, cell) in head.iter().zip(line.split(',')) {
            let want = match &row[*name] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(cell, want, "{name}");
        }
    }
    assert_eq!(csv.lines().count(), rows.len() + 1);
}

/// docs/reference/formats.md has every column, in order, with its type.
#[test]
fn the_columns_are_documented() {
    let text = std::fs::read_to_string(top().join("docs/reference/formats.md")).expect("docs/reference/formats.md");
    let section = text.split("## Rows of bios and requests").nth(1).expect("the section");
    let section = section.split("\n## ").next().expect("its end");
    let documented: Vec<[String; 2]> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let of = cells[2].to_owned();
            cells[1].split(", ").map(|name| [name.trim_matches('`').to_owned(), of.clone()]).collect::<Vec<_>>()
        })
        .collect();
    let written = |columns: &[Column]| -> Vec<[String; 2]> {
        let of = |column: &Column| match column.of {
            ColumnType::Number | ColumnType::Signed => "number",
            ColumnType::Text => "text",
            ColumnType::Flag => "true, false",
        };
        let optional = |column: &Column| if column.required { "" } else { "?" };
        columns.iter().map(|column| [column.name.to_owned(), format!("{}{}", of(column), optional(column))]).collect()
    };
    let only = |other: &str| documented.iter().filter(|[name, _]| name != other).cloned().collect::<Vec<_>>();
    assert_eq!(only("bios"), written(BIO_COLUMNS));
    assert_eq!(only("parts"), written(REQUEST_COLUMNS));
    assert!(section.contains(&format!("This is version {ROWS_SCHEMA} of the table.")));
}
