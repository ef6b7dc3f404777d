//! A study of runs on a terminal.

use super::table::paragraph;
use super::{Style, rows};
use crate::runs_view::views;
use crate::text::visible;
use flashscope_study::runs::RunsResult;

/// The whole text; ends in a newline.
pub fn runs_study(result: &RunsResult, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let mut out = paragraph(&visible(&result.header.title), width, 0, 0)
        + &paragraph(&visible(&result.header.question), width, 0, 0);
    for view in views(result) {
        out += &style.section(view.heading, &rows(&view.rows, width));
    }
    out += &super::published(&result.published, style);
    for group in &result.groups {
        let lost = group.losses.iter().filter(|loss| loss.count > 0);
        for loss in lost {
            let line = format!("{}: {} {}: {}", group.id, loss.name, loss.count, loss.meaning);
            out += &paragraph(&visible(&line), width, 2, 2);
        }
    }
    out
}
