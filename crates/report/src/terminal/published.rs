//! Published values beside measured ones.

use super::Style;
use super::table::paragraph;
use crate::text::{letter, number, published as interval, visible};
use flashscope_study::Row;

/// The table with its heading; empty without rows.
pub fn published(rows: &[Row], style: Style) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let width = style.width();
    let mut out = style.heading("Published values beside ours");
    for (i, row) in rows.iter().enumerate() {
        let is = match row.within {
            Some(true) => "within",
            Some(false) => "OUTSIDE",
            None => "not measured",
        };
        let ours = row.ours.map_or("–".to_owned(), |ours| format!("{} {}", number(ours, 2), row.unit));
        let of = if row.of.is_empty() { String::new() } else { format!(" ({})", row.of) };
        let line = format!(
            "{:<2} {is:<12}  ours {ours}, published {}{of}: {}",
            letter(i),
            interval(row.published_min, row.published_max, &row.unit),
            row.statement
        );
        out += &paragraph(&visible(&line), width, 2, 19);
        out += &paragraph(&visible(&row.source), width, 19, 19);
        if row.within != Some(true) && !row.note.is_empty() {
            out += &paragraph(&visible(&row.note), width, 19, 19);
        }
    }
    out
}
