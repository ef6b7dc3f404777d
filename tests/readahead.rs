//! The read-ahead models against kernels: every page that came into the cache, page by page; flash reads and time predicted from
//! a recording at another window.

#[path = "readahead/cells.rs"]
mod cells;
#[path = "readahead/table.rs"]
mod table;
#[path = "readahead/validation.rs"]
mod validation;

use std::path::PathBuf;

use cells::Set;
use flashscope_tests::top;
use serde_json::Value;

/// What every run of the suite holds, with a part of the cells.
const BOUNDED: [&str; 3] = ["6.1 jffs2 reads", "6.1 squashfs-mtdblock reads", "6.1 jffs2 timed"];

/// All of it: `bench/readahead/validate`.
const WHOLE: [&str; 23] = [
    "6.1 jffs2 reads",
    "6.1 ubifs reads",
    "6.1 ubifs-bulk reads",
    "6.1 yaffs2 reads",
    "6.1 squashfs-mtdblock reads",
    "6.1 squashfs-ubiblock reads",
    "6.1 jffs2 sqlite",
    "6.1 ubifs sqlite",
    "6.1 yaffs2 sqlite",
    "6.1 jffs2 postmark",
    "6.1 ubifs postmark",
    "6.1 yaffs2 postmark",
    "6.1 jffs2 sizes",
    "6.1 ubifs sizes",
    "6.1 yaffs2 sizes",
    "6.1 squashfs-mtdblock sizes",
    "5.10 jffs2 reads",
    "6.12 jffs2 reads",
    "newest jffs2 reads",
    "newest jffs2 exec",
    "6.1 jffs2 exec",
    "5.10 squashfs-mtdblock reads",
    "6.12 squashfs-mtdblock reads",
];

/// A cell whose pages are not those of the kernel.
fn wrong(row: &Value, raced: bool) -> Option<String> {
    let (pages, differ) = (&row["pages"], row["differ"].as_u64()?);
    // Two processes in one file race for a page by microseconds, and the model takes reads one after the other: where the image
    // moves their times, one window may come out differently.
    let allowed = if raced { row["kib"].as_u64()? / 4 } else { 0 };
    (differ > allowed).then(|| {
        let [kernel, filesystem, study, workload] =
            ["kernel", "filesystem", "study", "workload"].map(|name| row[name].as_str().unwrap_or_default());
        format!(
            "{kernel} {filesystem} {study} {workload}, {} KiB: {pages} pages on the board, {} in the model, {differ} differ: {}",
            row["kib"], row["model_pages"], row["examples"]
        )
    })
}

#[test]
fn the_models_add_the_pages_that_kernels_add_and_predict_what_they_cost() {
    let whole = std::env::var_os("FLASHSCOPE_TEST_WHOLE").is_some();
    let only = std::env::var("FLASHSCOPE_READAHEAD").unwrap_or_default();
    let all: Vec<&str> = if whole { WHOLE.to_vec() } else { BOUNDED.to_vec() };
    // "kept": only the document is written again, of the rows that are kept.
    let asked: Vec<&str> = match only.as_str() {
        "" => all,
        "kept" => Vec::new(),
        only => only.split(',').collect(),
    };
    // Rows of sets that were held before, so that one set can be held again.
    let keep = std::env::var_os("FLASHSCOPE_READAHEAD_KEEP").map(PathBuf::from);
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for set in asked.iter().map(|text| Set::parse(text, !whole)) {
        let outcomes = validation::hold(&set, keep.as_deref());
        failed.extend(outcomes.iter().filter_map(|outcome| wrong(&outcome.row, outcome.raced)));
        let of_set: Vec<Value> = outcomes.into_iter().map(|outcome| outcome.row).collect();
        if let Some(keep) = &keep {
            std::fs::create_dir_all(keep).expect("a directory");
            let text = serde_json::to_string_pretty(&of_set).expect("rows");
            std::fs::write(keep.join(format!("{}.json", set.id())), text).expect("rows are kept");
        }
        rows.extend(of_set);
    }
    println!("{}", table::document(&rows, &[]));
    if let (Some(keep), true) = (&keep, whole) {
        let (mut kept, mut missing) = (Vec::new(), Vec::new());
        for set in WHOLE {
            let path = keep.join(format!("{}.json", Set::parse(set, false).id()));
            match std::fs::read_to_string(path) {
                Ok(text) => kept.extend(serde_json::from_str::<Vec<Value>>(&text).expect("kept rows")),
                Err(_) => missing.push(set),
            }
        }
        let document = table::document(&kept, &missing);
        std::fs::write(top().join("docs/readahead-validation.md"), document).expect("the document");
        let bars = serde_json::to_string_pretty(&table::error_bars(&kept)).expect("bars") + "\n";
        std::fs::write(top().join("crates/analysis/src/readahead/validated.json"), bars).expect("error bars");
        if asked.is_empty() {
            return;
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    // Where the chip takes its time; what a mapping cannot tell is in the document of the whole.
    let timed: Vec<&Value> = rows.iter().filter(|row| row["timed"] == true).collect();
    if let Some((median, worst)) = table::spread(&timed, "time_ns", "predicted_ns").filter(|_| !whole) {
        println!("time: median {median:.1} %, worst {worst:.1} %");
        assert!(median <= 5.0 && worst <= 10.0, "time: median {median:.1} %, worst {worst:.1} %");
    }
}
