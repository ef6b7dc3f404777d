//! Predictions of read-ahead, as terminal and page show them.

use flashscope_analysis::readahead::{ErrorBar, Prediction, Row, Tally};
use flashscope_readahead::FileId;

use crate::rows::Rows;
use crate::text::{bytes, duration, grouped, number};

const DASH: &str = "–";

pub fn setting(row: &Row) -> String {
    format!("{} KiB{}", row.readahead_kib, if row.random { ", FADV_RANDOM" } else { "" })
}

/// The rows of all settings.
pub fn settings(prediction: &Prediction) -> Rows {
    let bar = prediction.error.as_ref();
    let of = |row: &Row| {
        let within =
            |percent: Option<f64>| percent.map_or(String::new(), |percent| format!(" ± {} %", number(percent, 1)));
        let mut cells = vec![
            setting(row),
            grouped(row.tally.pages()),
            grouped(row.tally.pages_ahead),
            format!("{} ({})", grouped(row.tally.pages_unused), bytes(row.wasted_bytes)),
            row.flash_reads.map_or(DASH.to_owned(), |reads| {
                grouped(reads.round() as u64) + &within(bar.map(|bar| bar.flash_worst_percent))
            }),
            row.time_ns
                .map_or(DASH.to_owned(), |ns| duration(ns as u64) + &within(bar.map(|bar| bar.time_worst_percent))),
        ];
        if prediction.power.is_some() {
            cells.push(row.energy_uj.map_or(DASH.to_owned(), |uj| format!("{} mJ", number(uj / 1e3, 2))));
        }
        cells
    };
    let (kinds, heads): (_, &[&str]) = match prediction.power.is_some() {
        true => {
            ("tnnnnnn", &["read-ahead", "pages", "ahead", "unused", "flash reads", "time in reads", "energy\n(model)"])
        }
        false => ("tnnnnn", &["read-ahead", "pages", "ahead", "unused", "flash reads", "time in reads"]),
    };
    Rows::new(kinds, heads, prediction.rows.iter(), prediction.rows.len(), of)
}

const OF_ONE: &[&str] = &["", "reads", "faults", "pages", "ahead", "unused"];

fn of_one(name: String, tally: &Tally, unused: bool) -> Vec<String> {
    let unused = if unused { grouped(tally.pages_unused) } else { DASH.to_owned() };
    vec![name, grouped(tally.calls), grouped(tally.faults), grouped(tally.pages()), grouped(tally.pages_ahead), unused]
}

/// Files of one setting, most pages first.
pub fn files(row: &Row, name: &dyn Fn(FileId) -> String, most: usize) -> Rows {
    let mut files: Vec<_> = row.by_file.iter().filter(|(_, tally)| tally.pages() > 0).collect();
    files.sort_by_key(|(file, tally)| (std::cmp::Reverse(tally.pages()), **file));
    Rows::new("tnnnnn", OF_ONE, files.into_iter(), most, |(file, tally)| of_one(name(*file), tally, true))
}

/// Tasks of one setting, by what they brought in; who used a page of another is not told apart.
pub fn tasks(row: &Row, name: &dyn Fn(u32) -> String, most: usize) -> Rows {
    let mut tasks: Vec<_> = row.by_task.iter().filter(|(_, tally)| tally.pages() > 0).collect();
    tasks.sort_by_key(|(tid, tally)| (std::cmp::Reverse(tally.pages()), **tid));
    Rows::new("tnnnnn", OF_ONE, tasks.into_iter(), most, |(tid, tally)| of_one(name(*tid), tally, false))
}

/// The widest window that is not the one of advice.
pub fn widest(prediction: &Prediction) -> Option<&Row> {
    prediction.rows.iter().filter(|row| !row.random).max_by_key(|row| row.readahead_kib)
}

/// What the bars stand for.
pub fn error_bar(bar: &ErrorBar, model: &str) -> String {
    let of = if bar.exact {
        String::new()
    } else {
        format!(" {model} on this file system was not validated: the bar is borrowed.")
    };
    format!(
        "± is the worst of {} predictions of {} on {} against a virtual board: flash reads {} %, time {} % (median {} %); \
         docs/readahead-validation.md.{of}",
        grouped(bar.cells),
        bar.kernel,
        bar.filesystem,
        number(bar.flash_worst_percent, 1),
        number(bar.time_worst_percent, 1),
        number(bar.time_median_percent, 1),
    )
}
