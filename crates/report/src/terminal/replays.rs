//! A study of replays on a terminal.

use super::table::paragraph;
use super::{Style, rows};
use crate::replays_view::{recommendations, views};
use crate::text::visible;
use flashscope_study::replays::ReplaysResult;

/// The whole text; ends in a newline.
pub fn replays_study(result: &ReplaysResult, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let mut out = super::head(&result.header, width);
    for said in recommendations(&result.levers) {
        out += &paragraph(&visible(&said), width, 0, 2);
    }
    for view in views(result) {
        out += &style.section(view.heading, &rows(&view.rows, width));
    }
    out += &super::published(&result.published, style);
    for group in &result.groups {
        out += &super::lost_of_group(&group.id, &group.losses, width);
    }
    out
}
