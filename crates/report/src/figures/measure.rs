//! A measured value over the number of requests, for each read-ahead: flash reads (figure 3-b of Olivier et al. (2014)), and the mean time
//! of a read() (figure 2). One panel per access pattern.

use super::{Figure, SHIFTED, StudyFigures, WIDTH};
use crate::svg::{LegendKey, Look, Panel, Rect, Scale, Series, Svg, legend, legend_height};
use crate::text::{duration, grouped, number};
use crate::view::{Facet, Readahead, Row};
use flashscope_study::{Cell, Group};

pub struct Measure {
    id: &'static str,
    title: &'static str,
    y_label: &'static str,
    caption: &'static str,
    of: fn(&Cell) -> f64,
    words: fn(&Cell) -> String,
}

pub const FLASH_READS: Measure = Measure {
    id: "flash-reads",
    title: "Flash reads by setting of read-ahead",
    y_label: "flash array reads (log₂)",
    caption: "Flash array reads (of a disk: requests to its driver) from the first read() to the last; reads in open() are counted separately. Compare figure 3-b of Olivier et al. (2014).",
    of: |cell| cell.flash_reads as f64,
    words: |cell| format!("{} flash reads", grouped(cell.flash_reads)),
};

pub const LATENCY: Measure = Measure {
    id: "latency",
    title: "Mean time of a read() by setting of read-ahead",
    y_label: "mean time of a read(), µs (log₂)",
    caption: "Mean time of a read(), microseconds. Compare figure 2 of Olivier et al. (2014).",
    of: |cell| cell.latency.mean as f64 / 1e3,
    words: |cell| format!("{} a read()", duration(cell.latency.mean)),
};

pub fn figure(
    study: &StudyFigures<'_>,
    measure: Measure,
    index: usize,
    facet: &Facet<'_>,
    rows: &[(&Group, Row<'_>)],
) -> Option<Figure> {
    let panels = panels(study, &measure, rows);
    let ys: Vec<f64> = panels.iter().flat_map(|(_, s)| s).flat_map(|s| &s.points).map(|p| p.1).collect();
    if ys.is_empty() {
        return None;
    }

    let mut items: Vec<(LegendKey, String)> = Vec::new();
    for series in panels.iter().flat_map(|(_, series)| series) {
        if !items.iter().any(|(_, label)| *label == series.label) {
            items.push((LegendKey::Line(series.look), series.label.clone()));
        }
    }
    let (left, right, gap) = (70.0, 20.0, 30.0);
    let columns = panels.len().clamp(1, 2);
    let width = (WIDTH - left - right - gap * (columns - 1) as f64) / columns as f64;
    let top = legend_height(WIDTH - left - right, &items) + 32.0;
    let (height, row_height) = (280.0, 280.0 + 76.0);
    let lines = panels.len().div_ceil(columns);
    let mut svg = Svg::new(WIDTH, top + row_height * lines as f64 - 26.0);
    legend(&mut svg, left, 2.0, WIDTH - left - right, &items);
    let x_ticks = study.x_ticks(rows);
    for (i, (pattern, series)) in panels.iter().enumerate() {
        let (column, line) = (i % columns, i / columns);
        let area = Rect { x: left + (width + gap) * column as f64, y: top + row_height * line as f64, width, height };
        let y = Scale::log2(ys.iter().copied(), (area.bottom(), area.y)).padded(0.04);
        let words = |at: f64| match at {
            _ if column > 0 => String::new(),
            at if at >= 1.0 => grouped(at as u64),
            at => number(at, 3),
        };
        let y_ticks: Vec<(f64, String)> = y.ticks(8).into_iter().map(|at| (at, words(at))).collect();
        Panel {
            area,
            x: Scale::log2(x_ticks.iter().map(|t| t.0), (area.x, area.right())).padded(0.04),
            y,
            x_ticks: &x_ticks,
            y_ticks: &y_ticks,
            x_label: study.x_label(),
            y_label: if column == 0 { measure.y_label } else { "" },
            heading: pattern,
            series,
            bands: &[],
        }
        .draw(&mut svg);
    }
    let id = format!("{}-{index}", measure.id);
    let title = study.title(measure.title, facet);
    let caption = format!(
        "{} {}. {SHIFTED} Source: this study's cells, one cold-cache run each.",
        measure.caption,
        facet.words()
    );
    Some(Figure { svg: svg.finish(&id, &title, &caption), id, title, caption })
}

/// One panel per pattern, with one line for each file system and read-ahead.
fn panels<'r>(study: &StudyFigures<'_>, measure: &Measure, rows: &[(&Group, Row<'r>)]) -> Vec<(&'r str, Vec<Series>)> {
    let mut patterns: Vec<&'r str> = Vec::new();
    let mut readaheads: Vec<Readahead<'_>> = Vec::new();
    for (_, row) in rows {
        if !patterns.contains(&row.setting.pattern) {
            patterns.push(row.setting.pattern);
        }
        readaheads.extend(row.cells.iter().flatten().map(|cell| Readahead::of(cell)));
    }
    readaheads.sort_unstable();
    readaheads.dedup();

    let mut panels: Vec<(&'r str, Vec<Series>)> = patterns.iter().map(|&p| (p, Vec::new())).collect();
    for (group, row) in rows {
        let Some((_, series)) = panels.iter_mut().find(|(p, _)| *p == row.setting.pattern) else { continue };
        for cell in row.cells.iter().flatten() {
            let dash = readaheads.iter().position(|r| *r == Readahead::of(cell)).unwrap_or(0);
            let look = Look { colour: study.looks.filesystem(&group.filesystem), dash };
            let label = format!("{}, {}", group.filesystem, Readahead::of(cell).words());
            let tip = format!("{label}, {}, {}: {}", row.setting.pattern, study.x_words(row), (measure.words)(cell));
            let point = (study.axis.value(&row.setting) as f64, (measure.of)(cell), tip);
            match series.iter_mut().find(|s| s.label == label) {
                Some(s) => s.points.push(point),
                None => series.push(Series {
                    shift: study.looks.shift(&group.filesystem),
                    label,
                    look,
                    points: vec![point],
                }),
            }
        }
    }
    for series in panels.iter_mut().flat_map(|(_, series)| series) {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    panels
}
