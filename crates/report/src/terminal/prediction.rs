//! Predictions of read-ahead, on a terminal.

use flashscope_analysis::{FileId, TaskId};
use flashscope_predict::Prediction;

use super::Style;
use super::table::{Table, paragraph};
use crate::prediction_view::{error_bars, files, queue_cost, setting, settings, tasks, widest};
use crate::rows::Rows;
use crate::text::{duration, grouped, number, visible};

/// Number of files and tasks in the list for the largest window.
const MAX_ROWS: usize = 8;

/// The whole text; ends in a newline. `name` returns a file's name, `task` a task's name.
pub fn prediction(
    prediction: &Prediction,
    name: &dyn Fn(FileId) -> String,
    task: &dyn Fn(TaskId) -> String,
    style: &Style,
) -> String {
    let style = *style;
    let width = style.width();
    let head = format!("Model: Linux {} ({})", prediction.model, prediction.model_source);
    let mut out = paragraph(&head, width, 0, 0);
    for warning in prediction.notes.iter().filter(|note| is_warning(note)) {
        out += &style.bold_lines(&paragraph(&visible(warning), width, 0, 2));
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
    if let Some(queue) = &prediction.queue {
        out += &paragraph(&format!("Cost behind the block queue: {}.", queue_cost(queue)), width, 0, 0);
    }
    for bar in error_bars(prediction) {
        out += &paragraph(&bar, width, 0, 0);
    }
    out += &style.section("What other settings would have brought", &table(&settings(prediction), width));
    if let Some(widest) = widest(prediction) {
        let (files, tasks) = (files(widest, name, MAX_ROWS), tasks(widest, task, MAX_ROWS));
        out += &style.section(&format!("Files, {}", setting(widest)), &table(&files, width));
        out += &style.section(&format!("Tasks, {}", setting(widest)), &table(&tasks, width));
    }
    for note in prediction.notes.iter().filter(|note| !is_warning(note)) {
        out += &paragraph(&visible(note), width, 0, 2);
    }
    out
}

fn table(rows: &Rows, width: usize) -> String {
    let mut table = Table::new(rows.kinds);
    table.head(rows.heads.iter().map(|head| head.replace('\n', " ")));
    for row in &rows.rows {
        table.row(row.iter().map(|cell| visible(cell).into_owned()));
    }
    let mut out = table.render(width);
    if rows.more > 0 {
        out += &paragraph(&format!("and {} more: --json has all", grouped(rows.more as u64)), width, 2, 2);
    }
    out
}

/// Whether a note must be read before the figures.
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
