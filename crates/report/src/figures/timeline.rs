//! Flash operations over time by address and kind, as in figures 2 and 3 of Olivier et al. (2013).

use super::{Figure, Shape, WIDTH, axes};
use crate::svg::{Anchor, LegendKey, Rect, Scale, Svg, legend, legend_height, n, text_width};
use crate::text::{duration, grouped};
use flashscope_analysis::flash::{FlashOp, OpCounts, Span, Timeline};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Largest number of rows of spans below the figure; deeper ones are only in the table of phases.
const LANES: usize = 4;
/// Up to this number, marks are drawn larger than their bins, to be visible.
const FEW: usize = 500;
const LANE_HEIGHT: f64 = 17.0;

/// `None` if the chip had no operation.
pub fn figure(id: &str, name: &str, shape: &Shape, timeline: &Timeline) -> Option<Figure> {
    let points = || timeline.points.iter().filter(|p| p.chip == shape.chip);
    let mut counts = OpCounts::default();
    for point in points() {
        match point.op {
            FlashOp::Read => counts.reads += u64::from(point.count),
            FlashOp::Program => counts.programs += u64::from(point.count),
            FlashOp::Erase => counts.erases += u64::from(point.count),
        }
    }
    let half_bin = u64::from(timeline.bin_pages / 2);
    let low = points().map(|p| p.page.saturating_sub(half_bin)).min()?;
    let high = points().map(|p| p.page.saturating_add(half_bin).saturating_add(1)).max()?;

    let items = [
        (LegendKey::Mark("read", "M-6 0h4M-1 0h4M4 0h3"), format!("read ({})", grouped(counts.reads))),
        (LegendKey::Mark("program", "M-4 0h8M0 -4v8"), format!("program ({})", grouped(counts.programs))),
        (LegendKey::Mark("erase", "M-4 -4l8 8M4 -4l-8 8"), format!("erase ({})", grouped(counts.erases))),
    ];
    let (left, right) = (78.0, 20.0);
    let width = WIDTH - left - right;
    let top = legend_height(width, &items) + 10.0;
    let area = Rect { x: left, y: top, width, height: 320.0 };
    let lanes = lanes(&timeline.spans);
    let lanes_top = area.bottom() + 26.0;
    let lanes_height = lanes.iter().map(|(lane, _)| lane + 1).max().unwrap_or(0) as f64 * LANE_HEIGHT;
    let mut svg = Svg::new(WIDTH, lanes_top + lanes_height + 26.0);
    legend(&mut svg, left, 2.0, width, &items);

    let span_ns = timeline.end_ns.saturating_sub(timeline.begin_ns);
    let x = Scale::linear((0.0, span_ns as f64), (area.x, area.right()));
    let at = |time_ns: u64| x.at(time_ns.saturating_sub(timeline.begin_ns) as f64);
    let y = Scale::linear((low as f64, high as f64), (area.bottom(), area.y)).padded(0.02);

    for tick in y.ticks(6).into_iter().filter(|&t| t >= 0.0) {
        svg.line("grid", area.x, y.at(tick), area.right(), y.at(tick));
        svg.text(area.x - 8.0, y.at(tick) + 4.0, "tick", Anchor::End, &grouped(tick as u64));
    }
    let unit = axes::time_unit(span_ns);
    axes::time_ticks(&mut svg, area, &x, unit, true);
    svg.vertical_text(area.x - 62.0, area.y + area.height / 2.0, "label", "page of the chip");

    marks(&mut svg, points().map(|p| (p.op, at(p.time_ns), y.at(p.page as f64))), timeline, &x, &y);
    svg.rect("frame", area, None);

    for (lane, span) in &lanes {
        let y = lanes_top + *lane as f64 * LANE_HEIGHT;
        let (from, to) = (at(span.begin_ns), at(span.end_ns));
        let tip = format!("{}: {}", span.name, duration(span.end_ns.saturating_sub(span.begin_ns)));
        let bar = Rect { x: from, y: y + 1.0, width: (to - from).max(1.0), height: LANE_HEIGHT - 3.0 };
        svg.rect("span", bar, Some(&tip));
        let name = crate::text::visible(&span.name);
        if text_width(&name) + 6.0 < to - from {
            svg.text((from + to) / 2.0, y + 12.0, "small", Anchor::Middle, &name);
        }
    }
    let label = format!("time from the first moment shown, {}", unit.name);
    svg.text(area.x + width / 2.0, lanes_top + lanes_height + 16.0, "label", Anchor::Middle, &label);

    let title = "Flash operations over time, by address and kind".to_owned();
    let binned = if timeline.bin_ns > 1 || timeline.bin_pages > 1 {
        format!(
            "A mark represents all operations of its kind in {} and {} page{}.",
            duration(timeline.bin_ns),
            grouped(timeline.bin_pages.into()),
            if timeline.bin_pages == 1 { "" } else { "s" }
        )
    } else {
        "A mark is one operation.".to_owned()
    };
    let known = if shape.pages_per_block > 0 {
        let bytes = grouped(shape.page_bytes.into());
        format!(" ({bytes} bytes a page, {} pages a block)", grouped(shape.pages_per_block.into()))
    } else {
        String::new()
    };
    let bars = if lanes.is_empty() { "" } else { " Bars below: phases of the run." };
    let caption = format!(
        "Each page read, page program and block erase by time and page number of the chip{known}. An erase is drawn at the first page of its block. {binned}{bars} Source: the recorded events. Compare figures 2 and 3 of Olivier et al. (2013)."
    );
    let id = format!("timeline-{id}");
    Some(Figure::new(svg, id, name, title, caption))
}

/// One path per operation: reads are dashes with a bin's width, programs +, erases ×. Marks on one pixel are drawn once, so that the size
/// of a figure is bounded.
fn marks(svg: &mut Svg, points: impl Iterator<Item = (FlashOp, f64, f64)>, timeline: &Timeline, x: &Scale, y: &Scale) {
    let seen: BTreeSet<(FlashOp, i64, i64)> =
        points.map(|(op, x, y)| (op, x.round() as i64, y.round() as i64)).collect();
    let least = if seen.len() <= FEW { 4.0 } else { 2.0 };
    let bin_width = (x.at(timeline.bin_ns as f64) - x.at(0.0)).clamp(least, 12.0);
    let bin_height = (y.at(0.0) - y.at(f64::from(timeline.bin_pages))).abs().clamp(least, 8.0);
    let mut paths = [String::new(), String::new(), String::new()];
    for (op, x, y) in seen {
        let path = &mut paths[op as usize];
        _ = match op {
            FlashOp::Read => write!(path, "M{} {y}h{}", n(x as f64 - bin_width / 2.0), n(bin_width)),
            FlashOp::Program => write!(path, "M{} {y}h5M{x} {}v5", n(x as f64 - 2.5), n(y as f64 - 2.5)),
            FlashOp::Erase => {
                let (left, top) = (n(x as f64 - 3.0), n(y as f64 - 3.0));
                write!(path, "M{left} {top}l6 6m-6 0l6 -6")
            }
        };
    }
    let [reads, programs, erases] = paths;
    if !reads.is_empty() {
        svg.raw(&format!("<path class=\"read\" stroke-width=\"{}\" d=\"{reads}\"/>", n(bin_height)));
    }
    svg.path("program", &programs);
    svg.path("erase", &erases);
}

/// Places each span in the first lane that is free at its beginning; outer spans come before inner ones.
fn lanes(spans: &[Span]) -> Vec<(usize, &Span)> {
    let mut free_from = [0u64; LANES];
    let mut placed = Vec::new();
    for span in spans {
        if let Some(lane) = free_from.iter().position(|&free| free <= span.begin_ns) {
            free_from[lane] = span.end_ns.max(span.begin_ns);
            placed.push((lane, span));
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_spans_go_below_and_neighbours_share_a_lane() {
        let span = |name: &str, begin_ns, end_ns| Span { name: name.into(), begin_ns, end_ns };
        let spans = [span("cells", 10, 50), span("a", 10, 20), span("b", 20, 30), span("after", 50, 60)];
        let placed: Vec<(usize, &str)> = lanes(&spans).into_iter().map(|(l, s)| (l, s.name.as_str())).collect();
        assert_eq!(placed, [(0, "cells"), (1, "a"), (1, "b"), (0, "after")]);
    }

    #[test]
    fn endless_spans_end_with_the_lanes() {
        let spans: Vec<Span> = (0..100).map(|i| Span { name: "x".into(), begin_ns: i, end_ns: 1000 }).collect();
        assert_eq!(lanes(&spans).len(), LANES);
    }
}
