//! Predictions of read-ahead, on a terminal.

use flashscope_analysis::readahead::Prediction;
use flashscope_readahead::FileId;

use super::Style;
use super::table::{Table, paragraph};
use crate::text::{bytes, duration, grouped, number, visible};

/// Files that are listed for the largest window.
const MAX_FILES: usize = 8;

/// The whole text; ends in a newline. `name` is what a file is called.
pub fn prediction(prediction: &Prediction, name: &dyn Fn(FileId) -> String, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let head = format!("Model: Linux {} ({})", prediction.model, prediction.model_source);
    let mut out = paragraph(&head, width, 0, 0);
    for warning in prediction.notes.iter().filter(|note| is_warning(note)) {
        out += &paragraph(&style.bold(&visible(warning)), width, 0, 2);
    }
    let recorded = &prediction.recorded;
    let text = format!(
        "Recorded: {} pages came by reads and faults. The model gives {} with {} KiB of read-ahead, the nearest of those tried \
         ({}).",
        grouped(recorded.pages),
        grouped(recorded.predicted_pages),
        recorded.fits_readahead_kib,
        difference(recorded.predicted_pages, recorded.pages),
    );
    out += &paragraph(&text, width, 0, 0);
    if let Some(cost) = prediction.cost {
        let text = format!(
            "Cost, fitted to {} reads: {} a read and {} a page of {} flash reads; the reads differ from it by {} % in the mean{}.",
            grouped(cost.calls),
            duration(cost.call_ns as u64),
            duration(cost.page_ns as u64),
            number(cost.flash_reads_per_page, 2),
            number(cost.residual_percent, 1),
            if cost.degenerate {
                " (all brought the same number of pages: a read's own cost is in the page's)"
            } else {
                ""
            },
        );
        out += &paragraph(&text, width, 0, 0);
    }
    out += &style.heading("What other settings would have brought");
    let mut table = Table::new("tnnnnnn");
    table.head(["read-ahead", "pages", "asked for", "ahead", "unused", "flash reads", "time in reads"]);
    for row in &prediction.rows {
        let setting = format!("{} KiB{}", row.readahead_kib, if row.random { ", FADV_RANDOM" } else { "" });
        table.row([
            setting,
            grouped(row.tally.pages()),
            grouped(row.tally.pages_requested),
            grouped(row.tally.pages_ahead),
            format!("{} ({})", grouped(row.tally.pages_unused), bytes(row.wasted_bytes)),
            row.flash_reads.map_or("–".to_owned(), |reads| grouped(reads.round() as u64)),
            row.time_ns.map_or("–".to_owned(), |ns| duration(ns as u64)),
        ]);
    }
    out += &table.render(width);
    if let Some(widest) = prediction.rows.iter().filter(|row| !row.random).max_by_key(|row| row.readahead_kib) {
        out += &style.heading(&format!("Files, with {} KiB", widest.readahead_kib));
        let mut files: Vec<_> = widest.by_file.iter().filter(|(_, tally)| tally.pages() > 0).collect();
        files.sort_by_key(|(file, tally)| (std::cmp::Reverse(tally.pages()), **file));
        let mut table = Table::new("tnnnn");
        table.head(["file", "reads", "pages", "ahead", "unused"]);
        for (file, tally) in files.iter().take(MAX_FILES) {
            table.row([
                visible(&name(**file)).into_owned(),
                grouped(tally.calls),
                grouped(tally.pages()),
                grouped(tally.pages_ahead),
                grouped(tally.pages_unused),
            ]);
        }
        out += &table.render(width);
        if files.len() > MAX_FILES {
            let more = format!("and {} more: --json has all", grouped((files.len() - MAX_FILES) as u64));
            out += &paragraph(&more, width, 2, 2);
        }
    }
    for note in prediction.notes.iter().filter(|note| !is_warning(note)) {
        out += &paragraph(&visible(note), width, 0, 2);
    }
    out
}

/// What has to be read before the figures.
fn is_warning(note: &str) -> bool {
    note.starts_with("WARNING")
}

fn difference(model: u64, board: u64) -> String {
    match (model, board) {
        _ if model == board => "the same number".to_owned(),
        (_, 0) => "none came".to_owned(),
        _ => format!("{} %", number((model as f64 - board as f64) / board as f64 * 100.0, 1)),
    }
}
