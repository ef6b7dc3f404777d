//! The validation's rows as a document.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// By how many per cent a predicted value is off; `None` where there is nothing to be off from.
pub fn off(row: &Value, real: &str, predicted: &str) -> Option<f64> {
    let (real, predicted) = (row[real].as_f64()?, row[predicted].as_f64()?);
    (real > 0.0).then(|| (predicted / real - 1.0) * 100.0)
}

/// Median and worst of what is off, without signs.
pub fn spread(rows: &[&Value], real: &str, predicted: &str) -> Option<(f64, f64)> {
    let mut all: Vec<f64> = rows.iter().filter_map(|row| off(row, real, predicted)).map(f64::abs).collect();
    all.sort_by(f64::total_cmp);
    Some((*all.get(all.len() / 2)?, *all.last()?))
}

fn percent(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:+.1}"))
}

fn pair(value: Option<(f64, f64)>) -> String {
    value.map_or("–".to_owned(), |(median, worst)| format!("{median:.1} / {worst:.1}"))
}

/// Rows by kernel, file system and study.
pub fn groups(rows: &[Value]) -> BTreeMap<[String; 3], Vec<&Value>> {
    let mut groups: BTreeMap<[String; 3], Vec<&Value>> = BTreeMap::new();
    for row in rows {
        let key = ["kernel", "filesystem", "study"].map(|name| row[name].as_str().unwrap_or_default().to_owned());
        groups.entry(key).or_default().push(row);
    }
    groups
}

const HEAD: &str = "# Read-ahead models against kernels: every cell

Written by `bench/readahead/validate` ([readahead.md](readahead.md)) on `board:armv7`; no cell is left out. \"Differ\": pages, each
counted as often as it came, that came on the board and not in the model, or the other way round, where the model plays the
accesses of the cell itself. \"Predicted\": from the recording of the same workload at another window; what pages, flash reads and
time in reads and faults are off by. A dash: nothing was read, or the recording that it is predicted from read no flash.

| kernel | file system | study | cells | equal | pages | pages that differ | predicted pages off %, median / worst | flash reads | time |
|---|---|---|---:|---:|---:|---:|---:|---:|---:|
";

const CELLS: &str = "
| kernel | file system | study | workload | KiB | accesses | pages | in the model | differ | predicted from KiB | pages % | flash reads | % | time ms | % |
|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
";

pub fn document(rows: &[Value]) -> String {
    let mut text = HEAD.to_owned();
    for ([kernel, filesystem, study], rows) in groups(rows) {
        let sum = |name: &str| rows.iter().filter_map(|row| row[name].as_u64()).sum::<u64>();
        let equal = rows.iter().filter(|row| row["differ"] == 0).count();
        let _ = writeln!(
            text,
            "| {kernel} | {filesystem} | {study} | {} | {equal} | {} | {} | {} | {} | {} |",
            rows.len(),
            sum("pages"),
            sum("differ"),
            pair(spread(&rows, "pages", "predicted_pages")),
            pair(spread(&rows, "flash", "predicted_flash")),
            pair(spread(&rows, "time_ns", "predicted_ns")),
        );
    }
    text += CELLS;
    for row in rows {
        let text_of = |name: &str| match &row[name] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let cells = [
            "kernel",
            "filesystem",
            "study",
            "workload",
            "kib",
            "accesses",
            "pages",
            "model_pages",
            "differ",
            "from_kib",
        ]
        .map(text_of);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.1} | {} |",
            cells.join(" | "),
            percent(off(row, "pages", "predicted_pages")),
            row["flash"],
            percent(off(row, "flash", "predicted_flash")),
            row["time_ns"].as_f64().unwrap_or_default() / 1e6,
            percent(off(row, "time_ns", "predicted_ns")),
        );
    }
    text
}
