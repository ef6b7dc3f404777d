//! The read-ahead models against kernels: every page that came into the cache, page by page; flash reads and time predicted from
//! a recording at another window.

#[path = "readahead/cells.rs"]
mod cells;
#[path = "readahead/table.rs"]
mod table;
#[path = "readahead/validation.rs"]
mod validation;

use std::collections::BTreeMap;
use std::path::PathBuf;

use cells::Set;
use flashscope_tests::top;
use serde_json::Value;

/// What every run of the suite holds, with a part of the cells.
const BOUNDED: [&str; 4] = ["6.1 jffs2 reads", "6.1 squashfs-mtdblock reads", "6.1 jffs2 timed", "6.1 jffs2 races"];

/// All of it: `bench/readahead/validate`.
const WHOLE: [&str; 37] = [
    "6.1 jffs2 reads",
    "6.1 ubifs reads",
    "6.1 ubifs-bulk reads",
    "6.1 yaffs2 reads",
    "6.1 squashfs-mtdblock reads",
    "6.1 squashfs-ubiblock reads",
    "6.1 jffs2 races",
    "6.1 ubifs races",
    "6.1 ubifs-bulk races",
    "6.1 yaffs2 races",
    "5.10 jffs2 races",
    "newest jffs2 races",
    "newest jffs2 turned",
    "5.10 squashfs-mtdblock races",
    "6.1 jffs2 sqlite",
    "6.1 ubifs sqlite",
    "6.1 yaffs2 sqlite",
    "6.1 jffs2 postmark",
    "6.1 ubifs postmark",
    "6.1 yaffs2 postmark",
    "6.1 jffs2 postmarks",
    "6.1 yaffs2 postmarks",
    "6.1 jffs2 sizes",
    "6.1 yaffs2 sizes",
    "5.10 jffs2 reads",
    "6.12 jffs2 reads",
    "newest jffs2 reads",
    "newest jffs2 exec",
    "6.1 jffs2 exec",
    "5.10 squashfs-mtdblock reads",
    "6.12 squashfs-mtdblock reads",
    "6.1 ext4 reads",
    "6.1 squashfs-16k reads",
    "6.1 ubifs other",
    "6.1 ubifs-bulk other",
    "6.1 squashfs-16k other",
    "6.1 squashfs-mtdblock other",
];

/// A cell whose pages are not those of the kernel.
fn wrong(row: &Value) -> Option<String> {
    let (pages, differ) = (&row["pages"], row["differ"].as_u64()?);
    (differ > 0).then(|| {
        let [kernel, filesystem, study, workload] =
            ["kernel", "filesystem", "study", "workload"].map(|name| row[name].as_str().unwrap_or_default());
        format!(
            "{kernel} {filesystem} {study} {workload}, {} KiB: {pages} pages on the board, {} in the model, {differ} differ: {}",
            row["kib"], row["model_pages"], row["examples"]
        )
    })
}

/// The rows of all sets, in their order, and the sets of which some are missing.
fn by_set(rows: &[Value]) -> (Vec<Value>, Vec<&'static str>) {
    let by_key: BTreeMap<[String; 5], &Value> = rows.iter().map(|row| (table::key(row), row)).collect();
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    for text in WHOLE {
        let set = Set::parse(text, false);
        let cells = set.cells();
        assert!(!cells.is_empty(), "{text}: no cells");
        let of = |cell: &cells::Cell| {
            let (kernel, filesystem) = (&set.kernel, &set.filesystem);
            let named = serde_json::json!({
                "kernel": kernel, "filesystem": filesystem, "study": cell.study, "workload": cell.label, "kib": cell.kib,
            });
            by_key.get(&table::key(&named)).map(|&row| row.clone())
        };
        let of_set: Vec<Value> = cells.iter().filter_map(of).collect();
        if of_set.len() < cells.len() {
            missing.push(text);
        }
        all.extend(of_set);
    }
    (all, missing)
}

fn document_path() -> PathBuf {
    top().join("docs/readahead-validation.md")
}

fn bars_path() -> PathBuf {
    top().join("crates/analysis/src/readahead/validated.json")
}

/// Document and error bars of what a document says, with these rows in the places of its own.
fn written_anew(before: &str, rows: &[Value]) -> (String, String) {
    // As exactly as it prints them, all of them.
    let new = table::cells(&table::document(rows, &[], ""));
    let (all, missing) = by_set(&[table::cells(before), new].concat());
    let papers = table::document(rows, &[], before);
    let bars = serde_json::to_string_pretty(&table::error_bars(&all)).expect("bars") + "\n";
    (table::document(&all, &missing, &papers), bars)
}

/// The summary and the error bars are those of the cells below.
#[test]
fn the_document_says_what_its_cells_say() {
    let before = std::fs::read_to_string(document_path()).expect("the document");
    let (document, bars) = written_anew(&before, &[]);
    assert!(document == before, "docs/readahead-validation.md: not what bench/readahead/validate writes");
    let known = std::fs::read_to_string(bars_path()).expect("error bars");
    assert_eq!(known, bars, "crates/analysis/src/readahead/validated.json");
}

#[test]
fn the_models_add_the_pages_that_kernels_add_and_predict_what_they_cost() {
    let whole = std::env::var_os("FLASHSCOPE_TEST_WHOLE").is_some();
    let only = std::env::var("FLASHSCOPE_READAHEAD").unwrap_or_default();
    let all: Vec<&str> = if whole { WHOLE.to_vec() } else { BOUNDED.to_vec() };
    let asked: Vec<&str> = if only.is_empty() { all } else { only.split(',').collect() };
    // Recordings that were made before, so that what is made of them can be held again.
    let keep = std::env::var_os("FLASHSCOPE_READAHEAD_KEEP").map(PathBuf::from);
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for set in asked.iter().map(|text| Set::parse(text, !whole)) {
        let outcomes = validation::hold(&set, keep.as_deref());
        failed.extend(outcomes.iter().filter_map(wrong));
        rows.extend(outcomes);
    }
    println!("{}", table::document(&rows, &[], ""));
    if whole && cells::later_ms().is_none() {
        let before = std::fs::read_to_string(document_path()).unwrap_or_default();
        let (document, bars) = written_anew(&before, &rows);
        std::fs::write(document_path(), document).expect("the document");
        std::fs::write(bars_path(), bars).expect("error bars");
    }
    assert!(failed.is_empty(), "{failed:#?}");
    // Where the chip takes its time; what a mapping cannot tell is in the document of the whole.
    let timed: Vec<&Value> = rows.iter().filter(|row| row["timed"] == true && row["study"] != table::AGAIN).collect();
    if let Some((median, worst)) = table::spread(&timed, "time_ns", "predicted_ns").filter(|_| !whole) {
        println!("time: median {median:.1} %, worst {worst:.1} %");
        assert!(median <= 5.0 && worst <= 10.0, "time: median {median:.1} %, worst {worst:.1} %");
    }
    // Two processes: where bulk reads are none of it, what is predicted lies between two of the board's runs.
    let again = table::runs(&rows);
    // Of those that were made to begin with the other task, what other runs of this left is there as well.
    let document = if whole { std::fs::read_to_string(document_path()).expect("the document") } else { String::new() };
    let (known, _) = by_set(&[table::cells(&document), rows.clone()].concat());
    let all = table::runs(&known);
    let two = || again.iter().filter(|(key, _)| key[2].starts_with("two"));
    let within = |(key, runs): &([String; 4], Vec<&Value>)| table::within(runs, &table::turned(&all, key)).unwrap_or(0);
    let apart: Vec<_> = two()
        .filter(|of| of.0[1] != "ubifs-bulk" && within(of) < of.1.len())
        .map(|of| format!("{:?}: {} of {}", of.0, within(of), of.1.len()))
        .collect();
    assert!(apart.is_empty(), "predicted flash reads that lie between no two of the board's runs: {apart:#?}");
    // With bulk reads as often as the board's own runs lie between two others, but for one in a hundred.
    let bulk = || two().filter(|(key, _)| key[1] == "ubifs-bulk");
    let predicted: usize = bulk().map(within).sum();
    let board: usize = bulk().filter_map(|(_, runs)| table::as_others(runs)).sum();
    let runs: usize = bulk().map(|(_, runs)| runs.len()).sum();
    assert!(predicted + runs.div_ceil(100) >= board, "bulk reads: {predicted} of {runs}, the board {board}");
    if whole {
        let (told, of) = two()
            .filter(|(key, _)| key[1] != "ubifs-bulk")
            .fold((0, 0), |(told, of), one| (told + within(one), of + one.1.len()));
        println!(
            "two processes: {told} of {of} within the board's runs; with bulk reads {predicted} of {runs}, the board {board}"
        );
    }
}
