//! Predicted time by read-ahead window, or predicted pages if there is no time.

use super::{Figure, WIDTH};
use crate::prediction_view::{bar_of, error_bars, setting};
use crate::svg::{Anchor, Rect, Scale, Svg};
use crate::text::{duration, grouped};
use flashscope_predict::{Prediction, Row};

const LEFT: f64 = 70.0;
const TOP: f64 = 16.0;
const HEIGHT: f64 = 240.0;

/// `None` without predictions.
pub fn figure(prediction: &Prediction) -> Option<Figure> {
    let rows = &prediction.rows;
    let timed = rows.iter().all(|row| row.time_ns.is_some());
    let value = |row: &Row| match timed {
        true => row.time_ns.unwrap_or_default() / 1e6,
        false => row.tally.pages() as f64,
    };
    // A whisker down to zero tells nothing: the caption has its length.
    let off = |row: &Row| {
        let worst = bar_of(prediction, row).filter(|_| timed).map(|bar| bar.time_worst_percent / 100.0);
        worst.filter(|&off| off < 1.0).unwrap_or(0.0)
    };
    let most = rows.iter().map(|row| value(row) * (1.0 + off(row))).fold(0.0, f64::max);
    if rows.is_empty() || most <= 0.0 {
        return None;
    }
    let area = Rect { x: LEFT, y: TOP, width: WIDTH - LEFT - 20.0, height: HEIGHT };
    let y = Scale::linear((0.0, most * 1.05), (area.bottom(), area.y));
    let mut svg = Svg::new(WIDTH, area.bottom() + 48.0);
    for tick in y.ticks(6) {
        svg.line(if tick == 0.0 { "zero" } else { "grid" }, area.x, y.at(tick), area.right(), y.at(tick));
        svg.text(area.x - 8.0, y.at(tick) + 4.0, "tick", Anchor::End, &grouped(tick as u64));
    }
    let step = area.width / rows.len() as f64;
    let width = (step * 0.6).min(90.0);
    for (n, row) in rows.iter().enumerate() {
        let middle = area.x + step * (n as f64 + 0.5);
        let top = y.at(value(row));
        let words = match row.time_ns.filter(|_| timed) {
            Some(ns) => format!("{} in reads, {} pages", duration(ns as u64), grouped(row.tally.pages())),
            None => format!("{} pages", grouped(row.tally.pages())),
        };
        let tip = format!("{}: {words}, {} of them unused", setting(row), grouped(row.tally.pages_unused));
        let bar = Rect { x: middle - width / 2.0, y: top, width, height: area.bottom() - top };
        svg.rect("f0", bar, Some(&tip));
        let off = off(row);
        if off > 0.0 {
            let (low, high) = (y.at(value(row) * (1.0 - off)), y.at(value(row) * (1.0 + off)));
            svg.line("axis", middle, high, middle, low);
            svg.line("axis", middle - 5.0, high, middle + 5.0, high);
            svg.line("axis", middle - 5.0, low, middle + 5.0, low);
        }
        svg.name(middle, area.bottom() + 19.0, "tick", Anchor::Middle, &setting(row), step);
    }
    let what = if timed { "Predicted time in reads, milliseconds" } else { "Predicted pages read" };
    svg.text(area.x + area.width / 2.0, area.bottom() + 40.0, "label", Anchor::Middle, "largest window of read-ahead");
    let title = format!("{what}, by read-ahead");
    let mut caption = format!("{what}, under the rules of Linux {}.", prediction.model);
    for bar in error_bars(prediction).filter(|_| timed) {
        caption += &format!(" {bar}");
    }
    Some(Figure::new(svg, "prediction".to_owned(), prediction.model, title, caption))
}
