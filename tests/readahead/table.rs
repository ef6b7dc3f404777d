//! The validation's cells as CSV, what error bars are made of, and the summary in words.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cells::{OTHER, TWO_TASKS, is_behind_queue};

/// Reads of flash and time: from a recording alone, and with another one that shows how its files lie.
const PREDICTED: [&str; 2] = ["predicted_flash", "predicted_ns"];
const LEARNED: [&str; 2] = ["learned_flash", "learned_ns"];

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

fn pair(value: Option<(f64, f64)>) -> String {
    value.map_or("–".to_owned(), |(median, worst)| format!("{median:.1} / {worst:.1}"))
}

fn name<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_default()
}

/// What error bars are made of (validated.rs of the prediction).
pub fn error_bars(rows: &[Value]) -> Vec<Value> {
    let mut groups: BTreeMap<(&str, &str, bool, bool), Vec<&Value>> = BTreeMap::new();
    for row in rows {
        let (overlap, other) = (row["study"] == TWO_TASKS, row["study"] == OTHER);
        // What is run again is among the others once.
        // What a mapping touched leaves no event: of another mount or image it is not predicted, and `advise` says so.
        // Behind a queue two tasks are replayed one beside the other: no bar is theirs.
        let left_out =
            row["study"] == AGAIN || name(row, "workload").starts_with("two,") && !overlap || other && is_mapped(row);
        if !left_out {
            let key = (name(row, "kernel"), name(row, "filesystem"), other, overlap);
            groups.entry(key).or_default().push(row);
        }
    }
    let both = [false, true].into_iter().flat_map(|layout| groups.iter().map(move |group| (layout, group)));
    let bars = both.filter_map(|(layout, (&(kernel, filesystem, other, overlap), rows))| {
        let [flash, ns] = if layout { LEARNED } else { PREDICTED };
        let (_, flash) = spread(rows, "flash", flash)?;
        let (median, worst) = spread(rows, "time_ns", ns)?;
        let cells = rows.iter().filter(|row| off(row, "time_ns", ns).is_some()).count();
        let kernel = if kernel == "newest" { "7.2" } else { kernel };
        let round = |value: f64| (value * 100.0).round() / 100.0;
        let mut bar = json!({
            "kernel": kernel, "filesystem": filesystem, "layout": layout, "other_options": other, "queue": is_behind_queue(filesystem), "cells": cells,
            "flash_worst_percent": round(flash), "time_median_percent": round(median), "time_worst_percent": round(worst),
        });
        if overlap {
            bar["overlap"] = json!(true);
        }
        Some(bar)
    });
    bars.collect()
}

fn is_mapped(row: &Value) -> bool {
    name(row, "workload").starts_with("mmap")
}

/// The study whose cells are run again and again.
pub const AGAIN: &str = "again";

/// What names a cell.
pub fn key(row: &Value) -> [String; 5] {
    ["kernel", "filesystem", "study", "workload", "kib"].map(|name| match &row[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

const COLUMNS: &str = "kernel,filesystem,study,workload,kib,accesses,pages,model_pages,differ,from_kib,pages_off_percent,\
    flash_reads,flash_reads_off_percent,time_ms,time_off_percent,layout_flash_reads_off_percent,layout_time_off_percent";

/// A value of a line of CSV; one with a comma is in quotes.
fn quoted(value: &str) -> String {
    if value.contains(',') { format!("\"{value}\"") } else { value.to_owned() }
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut in_quotes) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => in_quotes = !in_quotes,
            ',' if !in_quotes => fields.push(String::new()),
            other => fields.last_mut().expect("one at least").push(other),
        }
    }
    fields
}

/// Every cell, a line each. A field is empty where nothing was read, the recording that it is predicted from read no flash, or there
/// is no other recording.
pub fn csv(rows: &[Value]) -> String {
    let mut text = format!("{COLUMNS}\n");
    let percent = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:+.1}"));
    for row in rows {
        let mut cells: Vec<String> = key(row).to_vec();
        cells.extend(["accesses", "pages", "model_pages", "differ", "from_kib"].map(|name| row[name].to_string()));
        cells.push(percent(off(row, "pages", "predicted_pages")));
        cells.push(row["flash"].to_string());
        cells.push(percent(off(row, "flash", PREDICTED[0])));
        cells.push(format!("{:.1}", row["time_ns"].as_f64().unwrap_or_default() / 1e6));
        cells.push(percent(off(row, "time_ns", PREDICTED[1])));
        cells.push(percent(off(row, "flash", LEARNED[0])));
        cells.push(percent(off(row, "time_ns", LEARNED[1])));
        let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
        let _ = writeln!(text, "{}", cells.join(","));
    }
    text
}

/// The cells of such a file, as exactly as it has them.
pub fn cells(csv: &str) -> Vec<Value> {
    let of = |line: &str| {
        let fields = fields(line);
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let [kernel, filesystem, study, workload, counts @ ..] = &fields[..] else { return None };
        let [kib, accesses, pages, model, differ, from, of_pages, flash, of_flash, ms, of_ms, layout_flash, layout_ms] =
            counts
        else {
            return None;
        };
        let count = |text: &str| text.parse::<u64>().ok();
        let ns = ms.parse::<f64>().ok()? * 1e6;
        let predicted = |real: f64, percent: &str| Some(real * (1.0 + percent.parse::<f64>().ok()? / 100.0));
        let (pages_read, flash_read) = (pages.parse().ok()?, flash.parse().ok()?);
        Some(json!({
            "kernel": kernel, "filesystem": filesystem, "study": study, "workload": workload, "kib": count(kib)?,
            "accesses": count(accesses)?, "pages": count(pages)?, "model_pages": count(model)?, "differ": count(differ)?,
            "from_kib": count(from)?, "predicted_pages": predicted(pages_read, of_pages), "flash": count(flash)?,
            "predicted_flash": predicted(flash_read, of_flash), "time_ns": ns, "predicted_ns": predicted(ns, of_ms),
            "learned_flash": predicted(flash_read, layout_flash), "learned_ns": predicted(ns, layout_ms),
        }))
    };
    csv.lines().skip(1).filter_map(of).collect()
}

/// Figure 6 of the paper with the rules of its kernel: file system, pattern, rules, cells, mean, most.
pub fn papers_selects(rows: &[Value], before: &str) -> String {
    let mut groups: BTreeMap<[String; 3], Vec<f64>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row["paper"].is_object()) {
        let pattern = name(row, "workload").rsplit(", ").next().unwrap_or_default();
        for model in ["2.6.37", "6.1"] {
            if let Some(saved) = row["paper"][model]["time_saved_percent"].as_f64() {
                let key = [name(row, "filesystem"), pattern, model].map(str::to_owned);
                groups.entry(key).or_default().push(saved);
            }
        }
    }
    let of = |line: &str| Some((line.split(',').take(3).collect::<Vec<_>>().join(","), line.to_owned()));
    let mut lines: BTreeMap<String, String> = before.lines().skip(1).filter_map(of).collect();
    for (key, saved) in groups {
        let mean = saved.iter().sum::<f64>() / saved.len() as f64;
        let most = saved.iter().copied().fold(f64::MIN, f64::max);
        let key = key.join(",");
        lines.insert(key.clone(), format!("{key},{},{mean:.1},{most:.1}", saved.len()));
    }
    let head = "filesystem,pattern,rules_of,cells,mean_time_saved_percent,most_time_saved_percent".to_owned();
    std::iter::once(head).chain(lines.into_values()).fold(String::new(), |text, line| text + &line + "\n")
}

const HEAD: &str = "# Read-ahead prediction: validation

How far predictions are off on `board:armv7`, by kernel and file system. `predict` and `advise` print these figures as error bounds.
Read this page to know how far to trust them; [readahead.md](../explanation/readahead.md) says how the prediction works.

`bench/readahead/validate` records every workload at several windows and predicts each window from the recording of another one. It
writes this page, `bench/readahead/cells.csv` (one line a cell) and the error bounds of the program. No cell is left out.

- Equal: cells in which the model brings in exactly the pages that the kernel brought in, at the recorded window.
- Off: difference between prediction and measurement in per cent, median / worst, of flash reads and of time in reads.
- Laid out: predicted with a second recording that reads each page by itself (`predict --layout`).
- Other mount: predicted from a recording of another mount option or block size. Two tasks: both read one file at the same time. The
  order of their calls under another window is not known, so calls are replayed in the recorded order.
- A dash: no prediction, because nothing was read or there is no such recording.

| kernel | file system | predicted | cells | equal | flash reads off % | time off % | laid out: flash reads | time |
|---|---|---|---:|---:|---:|---:|---:|---:|
";

const PAPER: &str = "
## SELECTs of SQLite under the rules of Linux 2.6.37 and 6.1

Time that no read-ahead saves against 128 KiB, mean / most, in per cent: reads that were recorded without read-ahead, played under each
kernel's rules. Published for 2.6.37: JFFS2 9.5 (sequential, mean), 44 / 70 (random); YAFFS2 5, 25 / 50.

| file system | SELECTs | cells | 2.6.37 | 6.1 |
|---|---|---:|---:|---:|
";

/// The summary. `missing`: sets that have not been run. `papers`: lines of [`papers_selects`].
pub fn document(rows: &[Value], missing: &[&str], papers: &str) -> String {
    let mut groups: BTreeMap<[&str; 3], Vec<&Value>> = BTreeMap::new();
    for row in rows {
        let kind = match name(row, "study") {
            study @ (OTHER | TWO_TASKS) => study,
            _ => "another window",
        };
        groups.entry([name(row, "kernel"), name(row, "filesystem"), kind]).or_default().push(row);
    }
    let mut text = HEAD.to_owned();
    for ([kernel, filesystem, kind], rows) in groups {
        let equal = rows.iter().filter(|row| row["differ"] == 0).count();
        let _ = writeln!(
            text,
            "| {kernel} | {filesystem} | {kind} | {} | {equal} | {} | {} | {} | {} |",
            rows.len(),
            pair(spread(&rows, "flash", PREDICTED[0])),
            pair(spread(&rows, "time_ns", PREDICTED[1])),
            pair(spread(&rows, "flash", LEARNED[0])),
            pair(spread(&rows, "time_ns", LEARNED[1])),
        );
    }
    if !missing.is_empty() {
        let _ = writeln!(text, "\nSets that have not been run: {}.", missing.join(", "));
    }
    let lines: Vec<Vec<&str>> = papers.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let pairs = lines.chunks(2).filter_map(|two| match two {
        [old, new] => Some(format!(
            "| {} | {} | {} | {} / {} | {} / {} |\n",
            old[0], old[1], old[3], old[4], old[5], new[4], new[5]
        )),
        _ => None,
    });
    let pairs: String = pairs.collect();
    if !pairs.is_empty() {
        text += PAPER;
        text += &pairs;
    }
    text
}
