//! The page for a prediction.

use super::page::{Header, Page};
use super::{MAX_ROWS, facts, figure, rows};
use crate::figures;
use crate::prediction_view::{error_bars, files, queue_cost, setting, settings, tasks, widest};
use crate::text::{escape, grouped, number};
use flashscope_analysis::{FileId, TaskId};
use flashscope_predict::Prediction;

/// The whole page. `of`: the recording; `file` and `task` return names.
pub fn prediction(
    prediction: &Prediction,
    of: &str,
    file: &dyn Fn(FileId) -> String,
    task: &dyn Fn(TaskId) -> String,
) -> String {
    let title = format!("Read-ahead of {of}");
    let contents = [("settings", "Settings"), ("files", "Files and tasks"), ("model", "Model")];
    let question = "What would other settings of read-ahead have cost?";
    let mut page = Page::new(&Header { title: &title, question, clock: "", contents: &contents });
    page.heading("settings", "Settings");
    for note in prediction.notes.iter().filter(|note| note.starts_with("WARNING")) {
        page.add("a warning", &format!("<p><strong>{}</strong></p>\n", escape(note)));
    }
    if let Some(drawn) = figures::prediction(prediction) {
        page.add(&drawn.title, &figure(&drawn));
    }
    page.add("the settings", &rows("", &settings(prediction)));
    page.heading("files", "Files and tasks");
    if let Some(row) = widest(prediction) {
        let of = setting(row);
        page.add("the files", &rows(&format!("Files, {of}"), &files(row, file, MAX_ROWS)));
        page.add("the tasks", &rows(&format!("Tasks, {of}"), &tasks(row, task, MAX_ROWS)));
    }
    page.heading("model", "Model");
    let recorded = &prediction.recorded;
    let mut known = vec![
        ("model", format!("Linux {} ({})", prediction.model, prediction.model_source)),
        (
            "recorded",
            format!(
                "{} pages; the model gives {} with {} KiB, the nearest of those tried",
                grouped(recorded.pages),
                grouped(recorded.predicted_pages),
                recorded.fits_readahead_kib
            ),
        ),
    ];
    if let Some(cost) = prediction.cost {
        let words = format!(
            "{} µs a read and {} µs a page of {} flash reads, fitted to {} reads; they differ from it by {} % in the mean",
            number(cost.call_ns / 1e3, 1),
            number(cost.page_ns / 1e3, 1),
            number(cost.flash_reads_per_page, 2),
            grouped(cost.calls),
            number(cost.residual_percent, 1)
        );
        known.push(("cost", words));
    }
    if let Some(queue) = &prediction.queue {
        known.push(("cost behind the block queue", queue_cost(queue)));
    }
    known.extend(error_bars(prediction).map(|bar| ("error bars", bar)));
    if let Some(power) = &prediction.power {
        known.push(("energy", format!("model: time by the mean powers of power profile {power}")));
    }
    page.add("the model", &facts(known));
    for note in prediction.notes.iter().filter(|note| !note.starts_with("WARNING")) {
        page.add("a note", &format!("<p class=\"note\">{}</p>\n", escape(note)));
    }
    page.finish(&format!("Written by flashscope {}; schema {}.", env!("CARGO_PKG_VERSION"), prediction.schema))
}
