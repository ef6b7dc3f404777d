//! A study of runs on a terminal.

use super::{Style, rows};
use crate::runs_view::views;
use flashscope_study::runs::RunsResult;

/// The whole text; ends in a newline.
pub fn runs_study(result: &RunsResult, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let mut out = super::head(&result.header, width);
    for view in views(result) {
        out += &style.section(view.heading, &rows(&view.rows, width));
    }
    out += &super::published(&result.published, style);
    for group in &result.groups {
        out += &super::lost_of_group(&group.id, &group.losses, width);
    }
    out
}
