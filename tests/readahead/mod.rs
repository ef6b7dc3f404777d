//! The read-ahead models against kernels: every page that came into the cache, page by page; flash reads and time predicted from
//! a recording at another window.

mod cells;
mod table;
mod validation;

use std::collections::BTreeMap;
use std::path::PathBuf;

use cells::Set;
use flashscope_cachesim::Kernel;
use flashscope_predict::ErrorBar;
use flashscope_tests::top;
use serde_json::Value;

/// What every run of the suite holds, with a part of the cells.
const BOUNDED: [&str; 4] = ["6.1 jffs2 reads", "6.1 squashfs-mtdblock reads", "6.1 jffs2 timed", "6.1 jffs2 two-tasks"];

/// All of it: `bench/readahead/validate`.
const WHOLE: [&str; 36] = [
    "6.1 jffs2 reads",
    "6.1 ubifs reads",
    "6.1 ubifs-bulk reads",
    "6.1 yaffs2 reads",
    "6.1 squashfs-mtdblock reads",
    "6.1 squashfs-ubiblock reads",
    "6.1 jffs2 two-tasks",
    "6.1 ubifs two-tasks",
    "6.1 ubifs-bulk two-tasks",
    "6.1 yaffs2 two-tasks",
    "5.10 jffs2 two-tasks",
    "newest jffs2 two-tasks",
    "5.10 squashfs-mtdblock two-tasks",
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

/// A cell whose pages are not those of the kernel. Of two tasks in one file no recording shows how far each had come.
fn wrong(row: &Value) -> Option<String> {
    let (pages, differ) = (&row["pages"], row["differ"].as_u64()?);
    (differ > 0 && row["study"] != cells::TWO_TASKS).then(|| {
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

/// What the validation writes: every cell, the SELECTs of the paper, the summary, the error bars.
struct Written {
    cells: String,
    papers: String,
    document: String,
    bars: String,
}

impl Written {
    fn paths() -> [PathBuf; 4] {
        [
            "bench/readahead/cells.csv",
            "bench/readahead/paper-selects.csv",
            "docs/reference/readahead-validation.md",
            "crates/predict/src/validated.json",
        ]
        .map(|path| top().join(path))
    }

    fn read() -> Written {
        let [cells, papers, document, bars] =
            Written::paths().map(|path| std::fs::read_to_string(path).unwrap_or_default());
        Written { cells, papers, document, bars }
    }

    /// With these rows in the places of its own.
    fn anew(&self, rows: &[Value]) -> Written {
        // As exactly as it prints them, all of them.
        let new = table::cells(&table::csv(rows));
        let (all, missing) = by_set(&[table::cells(&self.cells), new].concat());
        let papers = table::papers_selects(rows, &self.papers);
        let document = table::document(&all, &missing, &papers);
        let bars = serde_json::to_string_pretty(&table::error_bars(&all)).expect("bars") + "\n";
        Written { cells: table::csv(&all), papers, document, bars }
    }

    fn write(&self) {
        let texts = [&self.cells, &self.papers, &self.document, &self.bars];
        for (path, text) in Written::paths().iter().zip(texts) {
            std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

/// The summary and the error bars are those of the cells.
#[test]
fn the_document_says_what_its_cells_say() {
    let before = Written::read();
    let written = before.anew(&[]);
    let said = "not what bench/readahead/validate writes of bench/readahead/cells.csv";
    assert!(!before.cells.is_empty() && before.cells == written.cells, "bench/readahead/cells.csv: {said}");
    assert!(before.papers == written.papers, "bench/readahead/paper-selects.csv: {said}");
    assert!(before.document == written.document, "docs/reference/readahead-validation.md: {said}");
    assert!(
        before.document.lines().count() <= 60,
        "docs/reference/readahead-validation.md: a summary has 60 lines at most"
    );
    assert_eq!(before.bars, written.bars, "validated.json: {said}");
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
        Written::read().anew(&rows).write();
    }
    assert!(failed.is_empty(), "{failed:#?}");
    if !whole {
        let two_tasks: Vec<&Value> = rows.iter().filter(|row| row["study"] == cells::TWO_TASKS).collect();
        within_their_bounds(&two_tasks);
    }
    // Where the chip takes its time; what a mapping cannot tell is in the cells of the whole.
    let is_one =
        |row: &&Value| row["timed"] == true && row["study"] != table::AGAIN && row["study"] != cells::TWO_TASKS;
    let timed: Vec<&Value> = rows.iter().filter(is_one).collect();
    if let Some((median, worst)) = table::spread(&timed, "time_ns", "predicted_ns").filter(|_| !whole) {
        println!("time: median {median:.1} %, worst {worst:.1} %");
        assert!(median <= 5.0 && worst <= 10.0, "time: median {median:.1} %, worst {worst:.1} %");
    }
}

/// What is predicted of two tasks in one file lies within the bound that `predict` prints of them.
fn within_their_bounds(rows: &[&Value]) {
    for row in rows {
        let kernel = Kernel::nearest(row["kernel"].as_str().unwrap_or_default()).expect("a model").kernel;
        let filesystem = row["filesystem"].as_str().unwrap_or_default();
        for (layout, flash, ns) in [(false, "predicted_flash", "predicted_ns"), (true, "learned_flash", "learned_ns")] {
            let bar = ErrorBar::of_overlap(kernel, filesystem, layout).expect("a bound of two tasks");
            for (real, predicted, worst) in
                [("flash", flash, bar.flash_worst_percent), ("time_ns", ns, bar.time_worst_percent)]
            {
                // A boot of another day is not the same to the microsecond.
                let off = table::off(row, real, predicted).map_or(0.0, f64::abs);
                assert!(
                    off <= worst + 2.0,
                    "{:?}: {real} is off by {off:.1} %, the bound is {worst} %",
                    table::key(row)
                );
            }
        }
    }
}
