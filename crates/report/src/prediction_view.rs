//! Tables of read-ahead predictions, shared by the terminal and the HTML page.

use flashscope_analysis::{FileId, TaskId};
use flashscope_predict::{ErrorBar, FilesystemOptions, Prediction, QueueCost, Row, Tally};

use crate::rows::Rows;
use crate::text::{bytes, duration, grouped, number};

const DASH: &str = "–";

pub fn setting(row: &Row) -> String {
    let bulk = match row.options.bulk_read {
        Some(true) => ", bulk_read",
        Some(false) => ", no_bulk_read",
        None => "",
    };
    format!("{} KiB{}{bulk}", row.readahead_kib, if row.random { ", FADV_RANDOM" } else { "" })
}

/// One row per setting.
pub fn settings(prediction: &Prediction) -> Rows {
    let of = |row: &Row| {
        let bar = bar_of(prediction, row);
        let within =
            |percent: Option<f64>| percent.map_or(String::new(), |percent| format!(" ± {} %", number(percent, 1)));
        let mut cells = vec![
            setting(row),
            grouped(row.tally.pages()),
            grouped(row.tally.pages_ahead),
            format!("{} ({})", grouped(row.tally.pages_unused), bytes(row.wasted_bytes)),
        ];
        match row.queue {
            Some(asked) => {
                cells.push(grouped(asked.pages_late));
                let off = within(bar.map(|bar| bar.flash_worst_percent));
                cells.push(format!("{}{off} ({})", grouped(asked.requests), bytes(asked.kib.saturating_mul(1024))));
            }
            None => cells.push(row.flash_reads.map_or(DASH.to_owned(), |reads| {
                grouped(reads.round() as u64) + &within(bar.map(|bar| bar.flash_worst_percent))
            })),
        }
        cells.push(
            row.time_ns
                .map_or(DASH.to_owned(), |ns| duration(ns as u64) + &within(bar.map(|bar| bar.time_worst_percent))),
        );
        if prediction.power.is_some() {
            cells.push(row.energy_uj.map_or(DASH.to_owned(), |uj| format!("{} mJ", number(uj / 1e3, 2))));
        }
        cells
    };
    const FLASH: &[&str] =
        &["read-ahead", "pages", "ahead", "unused", "flash reads", "time in reads", "energy\n(model)"];
    const QUEUE: &[&str] =
        &["read-ahead", "pages", "ahead", "unused", "late", "requests", "time in reads", "energy\n(model)"];
    let heads = if prediction.queue.is_some() { QUEUE } else { FLASH };
    let shown = heads.len() - usize::from(prediction.power.is_none());
    // The setting is text, all other columns are numbers.
    let (kinds, heads) = (&"tnnnnnnn"[..shown], &heads[..shown]);
    Rows::new(kinds, heads, prediction.rows.iter(), prediction.rows.len(), of)
}

const OF_ONE: &[&str] = &["", "reads", "faults", "pages", "ahead", "unused"];

fn of_one(name: String, tally: &Tally, unused: bool) -> Vec<String> {
    let unused = if unused { grouped(tally.pages_unused) } else { DASH.to_owned() };
    vec![
        name,
        grouped(tally.calls),
        tally.faults.map_or(DASH.to_owned(), grouped),
        grouped(tally.pages()),
        grouped(tally.pages_ahead),
        unused,
    ]
}

/// Files of one setting, those with most pages first.
pub fn files(row: &Row, name: &dyn Fn(FileId) -> String, most: usize) -> Rows {
    let mut files: Vec<_> = row.by_file.iter().filter(|(_, tally)| tally.pages() > 0).collect();
    files.sort_by_key(|(file, tally)| (std::cmp::Reverse(tally.pages()), **file));
    Rows::new("tnnnnn", OF_ONE, files.into_iter(), most, |(file, tally)| of_one(name(*file), tally, true))
}

/// Tasks of one setting, by the pages that they brought in. Tasks that use pages of another task are not distinguished.
pub fn tasks(row: &Row, name: &dyn Fn(TaskId) -> String, most: usize) -> Rows {
    let mut tasks: Vec<_> = row.by_task.iter().filter(|(_, tally)| tally.pages() > 0).collect();
    tasks.sort_by_key(|(tid, tally)| (std::cmp::Reverse(tally.pages()), **tid));
    Rows::new("tnnnnn", OF_ONE, tasks.into_iter(), most, |(tid, tally)| of_one(name(*tid), tally, false))
}

/// The widest window, except the setting by advice.
pub fn widest(prediction: &Prediction) -> Option<&Row> {
    prediction
        .rows
        .iter()
        .filter(|row| !row.random && row.options == FilesystemOptions::default())
        .max_by_key(|row| row.readahead_kib)
}

/// The costs of the device behind a block queue, and of the processor.
pub fn queue_cost(queue: &QueueCost) -> String {
    let (device, cpu) = (&queue.device, &queue.processor);
    let us = |ns: f64| number(ns / 1e3, 1);
    let of_length = match device.degenerate {
        true => {
            format!("{} µs a request of {}, the only length seen", us(device.request_ns), bytes(device.largest_bytes))
        }
        false => format!("{} µs a request and {} µs a KiB", us(device.request_ns), number(device.kib_ns / 1e3, 2)),
    };
    format!(
        "device: {of_length}, {} at once, fitted to {} requests, which differ from it by {} % in the mean; processor: {} µs a call, \
         {} µs a page brought in, {} µs a bio, {} µs a page in it, {} µs a wait, {} µs a page read, {} µs a page in the driver, {} µs a bio and {} µs a \
         page that come back, fitted to {} parts of calls (root mean square {} % of their mean)",
        device.depth,
        grouped(device.requests),
        number(device.residual_percent, 1),
        us(cpu.call_ns),
        us(cpu.added_ns),
        us(cpu.bio_ns),
        us(cpu.bio_page_ns),
        us(cpu.wait_ns),
        us(cpu.page_ns),
        us(cpu.driver_page_ns),
        us(cpu.done_ns),
        us(cpu.done_page_ns),
        grouped(cpu.calls),
        number(cpu.residual_percent, 1),
    )
}

/// The error bar of a row.
pub fn bar_of<'a>(prediction: &'a Prediction, row: &Row) -> Option<&'a ErrorBar> {
    if row.options == FilesystemOptions::default() {
        prediction.error.as_ref()
    } else {
        prediction.error_other_options.as_ref()
    }
}

/// Sentences that explain the error bars.
pub fn error_bars(prediction: &Prediction) -> impl Iterator<Item = String> {
    let has_other_options = prediction.rows.iter().any(|row| row.options != FilesystemOptions::default());
    let other = prediction.error_other_options.as_ref().filter(|_| has_other_options);
    let said = |bar: &ErrorBar| {
        let of = if bar.other_options { " of another mount" } else { "" };
        format!("±{of} is {}", worst(bar, prediction.model))
    };
    prediction.error.iter().chain(other).map(said)
}

/// The largest error of predictions.
pub fn worst(bar: &ErrorBar, model: &str) -> String {
    let of = if bar.exact {
        String::new()
    } else {
        format!(" {model} on this file system was not validated: the error may be larger.")
    };
    let layout = if bar.layout { ", with the files' layout," } else { "" };
    let from = if bar.other_options { " from recordings of another mount or image" } else { "" };
    let unit = if bar.queue { "requests" } else { "flash reads" };
    format!(
        "the worst of {} predictions of {} on {}{from}{layout} against a virtual board, in none of which two processes read one file at \
         once: {unit} {} %, time {} % (median {} %); docs/reference/readahead-validation.md.{of}",
        grouped(bar.cells),
        bar.kernel,
        bar.filesystem,
        number(bar.flash_worst_percent, 1),
        number(bar.time_worst_percent, 1),
        number(bar.time_median_percent, 1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_what_it_is_of() {
        let bar = |other_options, layout, exact| ErrorBar {
            kernel: "6.1".into(),
            filesystem: "ubifs-bulk".into(),
            layout,
            other_options,
            queue: false,
            overlap: false,
            cells: 108,
            flash_worst_percent: 0.1,
            time_median_percent: 0.4,
            time_worst_percent: 1.8,
            exact,
        };
        let told = worst(&bar(true, true, true), "6.1");
        let begins = "the worst of 108 predictions of 6.1 on ubifs-bulk from recordings of another mount or image, with the files' layout,";
        assert!(told.starts_with(begins) && told.contains("time 1.8 %") && !told.contains("may be larger"), "{told}");
        let told = worst(&bar(false, false, false), "5.10");
        assert!(
            told.starts_with("the worst of 108 predictions of 6.1 on ubifs-bulk against")
                && told.contains("5.10 on this file system was not validated"),
            "{told}"
        );
    }
}
