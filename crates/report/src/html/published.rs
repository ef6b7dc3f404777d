//! Published values beside measured ones.

use super::{body, table};
use crate::text::{escape, letter, number, published as interval};
use flashscope_study::{How, Row};
use std::fmt::Write;

pub fn published(all: &[Row]) -> String {
    if all.is_empty() {
        return "<p>This study names no published values.</p>\n".to_owned();
    }
    let head = "<tr><th></th><th>statement</th><th class=\"num\">published</th><th class=\"num\">ours</th><th>ours is</th><th>note</th></tr>\n";
    let mut rows = String::new();
    for (i, row) in all.iter().enumerate() {
        let (class, is) = match row.within {
            Some(true) => ("within", "within"),
            Some(false) => ("outside", "outside"),
            None => ("none", "not measured"),
        };
        let ours = row.ours.map_or("–".to_owned(), |ours| format!("{} {}", number(ours, 2), escape(&row.unit)));
        let model = if row.how == How::Modelled { ", modelled" } else { "" };
        let of = if row.of.is_empty() { String::new() } else { format!("{}; ", escape(&row.of)) };
        _ = writeln!(
            rows,
            "<tr><td class=\"key\">{}</td><td>{}<br><span class=\"note\">{of}{}</span></td><td class=\"num\">{}</td><td class=\"num\">{ours}</td><td class=\"{class}\">{is}{model}</td><td class=\"note\">{}</td></tr>",
            letter(i),
            escape(&row.statement),
            escape(&row.source),
            escape(&interval(row.published_min, row.published_max, &row.unit)),
            escape(&row.note)
        );
    }
    table("", head, &body(&rows))
}
