//! `report --by file|device|call` on a terminal: only the tables for that split.

use super::table::paragraph;
use super::{Style, losses, names_section, rows};
use crate::block_view;
use crate::calls_view;
use crate::flash_view;
use crate::rows::Rows;
use crate::text::visible;
use crate::wear_view;
use flashscope_analysis::block::{BlockReport, GroupBy};
use flashscope_analysis::calls::CallsFound;
use flashscope_analysis::{ChipOps, FlashReport, LossCount, SplitBy, SplitReport};

/// Largest number of rows in a table; the JSON has all.
const MAX_ROWS: usize = 40;

/// Tables of block I/O; ends in a newline.
pub fn block_by(report: &BlockReport, by: SplitBy, style: &Style) -> String {
    let report = &crate::names::block_for_people(report);
    let (found, most) = (&report.found, style.rows(MAX_ROWS));
    let mut tables = match by {
        SplitBy::File => section("By file", &block_view::groups(found, GroupBy::File, most), style),
        SplitBy::Device => {
            section("By device and operation", &block_view::groups(found, GroupBy::Device, most), style)
                + &section("Stacked devices", &block_view::stack(found, most), style)
        }
        SplitBy::Call => String::new(),
    };
    if by == SplitBy::File {
        tables += &names_section(&report.names, style, most);
    }
    tables += &of_calls(&report.calls, by, found.stages.begin_ns, style);
    if by == SplitBy::Call {
        tables += &section("What fsync and similar calls waited for", &block_view::syncs(found, most), style);
    }
    around(&report.title, &tables, &report.losses, style)
}

/// Tables of raw flash.
pub fn flash_by(report: &FlashReport, by: SplitBy, style: &Style) -> String {
    let report = &crate::names::flash_for_people(report);
    let most = style.rows(MAX_ROWS);
    let mut tables = String::new();
    if by == SplitBy::File {
        if let Some(wear) = report.found.wear.known() {
            tables += &section("Programmed for which file", &wear_view::files(wear, most), style);
        }
        tables += &names_section(&report.names, style, most);
    }
    let chips = SplitReport::of_flash(report, by).chips;
    if !chips.is_empty() {
        let name = |one: &ChipOps| one.chip.map_or_else(|| "(unknown)".to_owned(), |chip| chip.to_string());
        let rows = Rows::new("tnnn", &["chip", "reads", "programs", "erases"], chips.iter(), most, |one| {
            flash_view::named(name(one), Some(&one.counts))
        });
        tables += &section("By chip", &rows, style);
    }
    tables += &of_calls(&report.calls, by, report.found.begin_ns, style);
    around(&report.title, &tables, &report.losses, style)
}

fn of_calls(calls: &CallsFound, by: SplitBy, begin_ns: u64, style: &Style) -> String {
    let most = style.rows(MAX_ROWS);
    match by {
        SplitBy::File => section("Calls, by file", &calls_view::by_file(calls, most), style),
        SplitBy::Device => String::new(),
        SplitBy::Call => {
            section("Calls", &calls_view::by_call(calls, most), style)
                + &section("Calls, by process", &calls_view::by_process(calls, most), style)
                + &section("The slowest calls", &calls_view::slowest(calls, begin_ns, most), style)
        }
    }
}

fn section(heading: &str, table: &Rows, style: &Style) -> String {
    style.section(heading, &rows(table, style.width()))
}

fn around(title: &str, tables: &str, lost: &[LossCount], style: &Style) -> String {
    let lost = losses(lost.iter().map(|l| (l.name.as_str(), l.count, l.meaning.as_str())), style.width());
    paragraph(&visible(title), style.width(), 0, 0) + tables + &style.section("Losses", &lost)
}
