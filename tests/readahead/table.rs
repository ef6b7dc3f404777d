//! The validation's rows as a document.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::cells::{OTHER, is_behind_queue};

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

fn percent(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:+.1}"))
}

fn pair(value: Option<(f64, f64)>) -> String {
    value.map_or("–".to_owned(), |(median, worst)| format!("{median:.1} / {worst:.1}"))
}

/// What error bars are made of (crates/analysis/src/readahead/validated.rs).
pub fn error_bars(rows: &[Value]) -> Vec<Value> {
    let mut groups: BTreeMap<(&str, &str, bool), Vec<&Value>> = BTreeMap::new();
    for row in rows {
        let name = |name: &str| row[name].as_str().unwrap_or_default();
        // What is run again is among the others once. Where processes race, a row of `predict` has the least and the most of several
        // orders instead of a bar.
        // What a mapping touched leaves no event: of another mount or image it is not predicted, and `advise` says so.
        let is_unseen = row["study"] == OTHER && name("workload").starts_with("mmap");
        if row["study"] != AGAIN && !name("workload").starts_with("two,") && !is_unseen {
            groups.entry((name("kernel"), name("filesystem"), row["study"] == OTHER)).or_default().push(row);
        }
    }
    let both = [false, true].into_iter().flat_map(|layout| groups.iter().map(move |group| (layout, group)));
    let bars = both.filter_map(|(layout, (&(kernel, filesystem, made), rows))| {
        let [flash, ns] = if layout { LEARNED } else { PREDICTED };
        let (_, flash) = spread(rows, "flash", flash)?;
        let (median, worst) = spread(rows, "time_ns", ns)?;
        let cells = rows.iter().filter(|row| off(row, "time_ns", ns).is_some()).count();
        let kernel = if kernel == "newest" { "7.2" } else { kernel };
        let round = |value: f64| (value * 100.0).round() / 100.0;
        Some(serde_json::json!({
            "kernel": kernel, "filesystem": filesystem, "layout": layout, "made": made, "queue": is_behind_queue(filesystem), "cells": cells,
            "flash_worst_percent": round(flash), "time_median_percent": round(median), "time_worst_percent": round(worst),
        }))
    });
    bars.collect()
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

Written by `bench/readahead/validate` ([readahead.md](explanation/readahead.md)) on `board:armv7`; no cell is left out. \"Differ\": pages, each
counted as often as it came, that came on the board and not in the model, or the other way round, where the model plays the
accesses of the cell itself. \"Predicted\": from the recording of the same workload at another window; what pages, flash reads and
time (in which any task is in a read, a fault or advice) are off by. \"Laid out\": flash reads and time predicted from that recording
and one more, in which each page of the files was read by itself (`predict --layout`). A dash: nothing was read, the recording that
it is predicted from read no flash, or there is no other (Postmark makes its files as it runs). \"Began\": which of several tasks came
first, and which in the recording that the cell is predicted from.

| kernel | file system | study | cells | equal | pages | pages that differ | predicted pages off %, median / worst | flash reads | time | laid out: flash reads | time |
|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
";

const CELLS: &str = "
| kernel | file system | study | workload | KiB | accesses | pages | in the model | differ | predicted from KiB | pages % | flash reads | % | time ms | % | laid out: flash reads % | time % | began |
|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|
";

/// Figure 6 of the paper with the rules of its kernel.
fn papers_selects(rows: &[Value]) -> String {
    let mut groups: BTreeMap<(String, String, String), Vec<f64>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row["paper"].is_object()) {
        let workload = row["workload"].as_str().unwrap_or_default();
        let pattern = workload.rsplit(", ").next().unwrap_or_default().to_owned();
        let filesystem = row["filesystem"].as_str().unwrap_or_default().to_owned();
        for model in ["2.6.37", "6.1"] {
            if let Some(saved) = row["paper"][model]["time_saved_percent"].as_f64() {
                groups.entry((filesystem.clone(), pattern.clone(), model.to_owned())).or_default().push(saved);
            }
        }
    }
    let mut text = String::new();
    for ((filesystem, pattern, model), saved) in groups {
        let mean = saved.iter().sum::<f64>() / saved.len() as f64;
        let most = saved.iter().copied().fold(f64::MIN, f64::max);
        let _ = writeln!(text, "| {filesystem} | {pattern} | {model} | {} | {mean:.1} | {most:.1} |", saved.len());
    }
    text
}

const PAPER: &str = "
## SELECTs of the paper, under the rules of its kernel (model)

Time that no read-ahead saves against 128 KiB, per cent, over all numbers of SELECTs and both sizes of texts: the SELECTs' reads
were recorded on the board without read-ahead and played under each kernel's rules; what a page costs is the recording's own fit.
The paper (section 4.3.1, figure 6) has on JFFS2 9.5 in the mean for sequential SELECTs, 44 in the mean and 70 at most for random ones;
on YAFFS2 5, 25 and 50.

| file system | SELECTs | rules of | cells | mean | most |
|---|---|---|---:|---:|---:|
";

/// The study whose cells are run again and again.
pub const AGAIN: &str = "again";

const RUNS: &str = "
## Again and again

Cells that are not the same twice on the board itself, several runs of one boot under the same window. `two`: one process reads on in
a file, another anywhere, 120 times each, and each sleeps for half a millisecond between two reads; which call comes first hinges on
microseconds, and so does what the next one finds. Postmark on JFFS2: each run makes its files, whose nodes come to lie anywhere.
\"Apart\": the most reads of flash of any run against the least. Predicted: each run from the recording of another under another window
(`two`: laid out). \"Within\": predictions that lie between two of the board's runs, give or take 1 %; what is predicted of a recording
that began with another task than all runs of its cell, between two of those of `two-turned` that began so. \"The board\": of its own runs, those that lie so between two of
its others. What the board does not do again no prediction can tell nearer.

| kernel | file system | workload | KiB | runs | pages | reads of flash | apart % | predicted reads of flash | within | the board |
|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
";

/// Least and most.
fn ends(rows: &[&Value], of: impl Fn(&Value) -> Option<f64>) -> Option<(f64, f64)> {
    let values: Vec<f64> = rows.iter().map(|row| of(row)).collect::<Option<_>>()?;
    Some((values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?))
}

/// Predicted reads of flash, laid out where there is a layout.
fn predicted(row: &Value) -> Option<f64> {
    row[LEARNED[0]].as_f64().or(row[PREDICTED[0]].as_f64())
}

/// How many of a workload's runs are predicted as it may be on the board. `turned`: runs of the same that were made to begin with the
/// other task. A recording that began as no run of its cell did is held against those of them that did.
pub fn within(runs: &[&Value], turned: &[&Value]) -> Option<usize> {
    let flash = |row: &Value| row["flash"].as_f64();
    let of_cell = ends(runs, flash)?;
    let is_within = |row: &&&Value| {
        let began_so = |run: &&Value| run["first"] == row["from_first"];
        let of_turned = || {
            let like: Vec<&Value> = turned.iter().copied().filter(began_so).collect();
            ends(&like, flash).filter(|_| !runs.iter().any(began_so))
        };
        predicted(row)
            .is_some_and(|reads| is_between(reads, of_cell) || of_turned().is_some_and(|ends| is_between(reads, ends)))
    };
    Some(runs.iter().filter(is_within).count())
}

/// Give or take 1 %.
fn is_between(reads: f64, (least, most): (f64, f64)) -> bool {
    (least * 0.99..=most * 1.01).contains(&reads)
}

/// How many of a workload's runs are as its others, by the same measure.
pub fn as_others(runs: &[&Value]) -> Option<usize> {
    ends(runs, |row| row["flash"].as_f64())?;
    let as_others = |&(at, run): &(usize, &&Value)| {
        let others = runs.iter().enumerate().filter(|&(other, _)| other != at);
        let others: Vec<&Value> = others.map(|(_, row)| *row).collect();
        let ends = ends(&others, |row| row["flash"].as_f64());
        run["flash"].as_f64().zip(ends).is_some_and(|(reads, ends)| is_between(reads, ends))
    };
    Some(runs.iter().enumerate().filter(as_others).count())
}

/// Runs by what was run: kernel, file system, workload and window.
pub fn runs(rows: &[Value]) -> Vec<([String; 4], Vec<&Value>)> {
    let mut all: Vec<([String; 4], Vec<&Value>)> = Vec::new();
    for row in rows.iter().filter(|row| row["study"] == AGAIN) {
        let [kernel, filesystem, _, run, kib] = key(row);
        let workload = run.rsplit_once(", run ").map_or(run.clone(), |(workload, _)| workload.to_owned());
        let key = [kernel, filesystem, workload, kib];
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, runs)) => runs.push(row),
            None => all.push((key, vec![row])),
        }
    }
    all
}

/// Of all runs those of a cell that were made to begin with the other task; none where it is such a cell itself.
pub fn turned<'a>(all: &[([String; 4], Vec<&'a Value>)], key: &[String; 4]) -> Vec<&'a Value> {
    let [kernel, filesystem, workload, kib] = key;
    let turned = workload.replacen("two,", "two-turned,", 1);
    let other = [kernel.clone(), filesystem.clone(), turned, kib.clone()];
    let of = all.iter().find(|(known, _)| *known == other && known != key);
    of.map_or(Vec::new(), |(_, runs)| runs.clone())
}

fn runs_lines(rows: &[Value]) -> String {
    let mut text = String::new();
    let span = |ends: Option<(f64, f64)>| match ends {
        Some((least, most)) if least.round() == most.round() => format!("{least:.0}"),
        Some((least, most)) => format!("{least:.0} to {most:.0}"),
        None => "–".to_owned(),
    };
    let all = runs(rows);
    for (key, runs) in &all {
        let apart = ends(runs, |row| row["flash"].as_f64()).map(|(least, most)| (most / least - 1.0) * 100.0);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            key.join(" | "),
            runs.len(),
            span(ends(runs, |row| row["pages"].as_f64())),
            span(ends(runs, |row| row["flash"].as_f64())),
            apart.map_or("–".to_owned(), |apart| format!("{apart:.1}")),
            span(ends(runs, predicted)),
            within(runs, &turned(&all, key)).map_or("–".to_owned(), |count| count.to_string()),
            as_others(runs).map_or("–".to_owned(), |count| count.to_string()),
        );
    }
    text
}

/// What names a cell of the document.
pub fn key(row: &Value) -> [String; 5] {
    ["kernel", "filesystem", "study", "workload", "kib"].map(|name| match &row[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

/// The cells of a document, as exactly as it prints them.
pub fn cells(document: &str) -> Vec<Value> {
    let of = |line: &str| {
        let fields: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [
            kernel,
            filesystem,
            study,
            workload,
            kib,
            accesses,
            pages,
            model,
            differ,
            from,
            of_pages,
            flash,
            of_flash,
            ms,
            of_time,
            learned_flash,
            learned_time,
            began,
        ] = fields[..]
        else {
            return None;
        };
        let count = |text: &str| text.parse::<u64>().ok();
        let (first, from_first) = began.split_once(" ← ").map_or((None, None), |(of, from)| (count(of), count(from)));
        let ns = ms.parse::<f64>().ok()? * 1e6;
        let predicted = |real: f64, percent: &str| Some(real * (1.0 + percent.parse::<f64>().ok()? / 100.0));
        Some(serde_json::json!({
            "kernel": kernel, "filesystem": filesystem, "study": study, "workload": workload, "kib": count(kib)?,
            "accesses": count(accesses)?, "pages": count(pages)?, "model_pages": count(model)?, "differ": count(differ)?,
            "from_kib": count(from)?, "predicted_pages": predicted(pages.parse().ok()?, of_pages), "flash": count(flash)?,
            "predicted_flash": predicted(flash.parse().ok()?, of_flash), "time_ns": ns, "predicted_ns": predicted(ns, of_time),
            "learned_flash": predicted(flash.parse().ok()?, learned_flash), "learned_ns": predicted(ns, learned_time),
            "first": first, "from_first": from_first,
        }))
    };
    document.lines().filter_map(of).collect()
}

/// A document's lines of the paper's SELECTs, by what they are of.
fn papers_lines(text: &str) -> BTreeMap<String, &str> {
    let of = |line: &str| line.starts_with("| ").then(|| line.split(" | ").take(3).collect::<Vec<_>>().join(" | "));
    text.lines().filter_map(|line| Some((of(line)?, line))).filter(|(name, _)| !name.contains("rules of")).collect()
}

/// `missing`: sets that have not been run. `before`: a document whose lines of the paper's SELECTs hold where these rows have none.
pub fn document(rows: &[Value], missing: &[&str], before: &str) -> String {
    let mut text = HEAD.to_owned();
    for ([kernel, filesystem, study], rows) in groups(rows) {
        let sum = |name: &str| rows.iter().filter_map(|row| row[name].as_u64()).sum::<u64>();
        let equal = rows.iter().filter(|row| row["differ"] == 0).count();
        let _ = writeln!(
            text,
            "| {kernel} | {filesystem} | {study} | {} | {equal} | {} | {} | {} | {} | {} | {} | {} |",
            rows.len(),
            sum("pages"),
            sum("differ"),
            pair(spread(&rows, "pages", "predicted_pages")),
            pair(spread(&rows, "flash", "predicted_flash")),
            pair(spread(&rows, "time_ns", "predicted_ns")),
            pair(spread(&rows, "flash", LEARNED[0])),
            pair(spread(&rows, "time_ns", LEARNED[1])),
        );
    }
    if !missing.is_empty() {
        let _ = writeln!(text, "\nSets that have not been run: {}.", missing.join(", "));
    }
    let papers = papers_selects(rows);
    let known = before.split_once(PAPER).and_then(|(_, rest)| rest.split("\n## ").next()).unwrap_or_default();
    let mut lines = papers_lines(known);
    lines.extend(papers_lines(&papers));
    if !lines.is_empty() {
        text += PAPER;
        lines.values().for_each(|line| text += &format!("{line}\n"));
    }
    let runs = runs_lines(rows);
    if !runs.is_empty() {
        text += RUNS;
        text += &runs;
    }
    text += "\n## Every cell\n";
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
        let began = match (row["first"].as_u64(), row["from_first"].as_u64()) {
            (Some(first), Some(from)) => format!("{first} ← {from}"),
            _ => "–".to_owned(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.1} | {} | {} | {} | {began} |",
            cells.join(" | "),
            percent(off(row, "pages", "predicted_pages")),
            row["flash"],
            percent(off(row, "flash", "predicted_flash")),
            row["time_ns"].as_f64().unwrap_or_default() / 1e6,
            percent(off(row, "time_ns", "predicted_ns")),
            percent(off(row, "flash", LEARNED[0])),
            percent(off(row, "time_ns", LEARNED[1])),
        );
    }
    text
}
