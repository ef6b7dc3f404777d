//! Savings by switching read-ahead off, over the number of requests: time as in figure 3-a of Olivier et al. (2014), and flash reads in the
//! same way, with the published values as boxes.

use super::{Figure, SHIFTED, StudyFigures, WIDTH};
use crate::svg::{Band, LegendKey, Look, Panel, Rect, Scale, Series, Svg, legend, legend_height};
use crate::text::{number, percent, published};
use crate::view::{Axis, Facet, Readahead, Row, compared};
use flashscope_study::{GainPoint, Group};

pub struct Quantity {
    id: &'static str,
    /// The name in `Comparison::quantity`.
    name: &'static str,
    what: &'static str,
    of: fn(&GainPoint) -> Option<f64>,
}

pub const TIME: Quantity = Quantity {
    id: "time-saved",
    name: "time_saved_percent",
    what: "time",
    of: |gain| Some(gain.off_saves_time_percent),
};

pub const READS: Quantity = Quantity {
    id: "reads-saved",
    name: "reads_saved_percent",
    what: "flash reads",
    of: |gain| Some(gain.off_saves_reads_percent),
};

/// From the model of figure 4-b of Olivier et al. (2014).
pub const ENERGY: Quantity = Quantity {
    id: "energy-saved",
    name: "energy_saved_percent",
    what: "energy (model)",
    of: |gain| gain.off_saves_energy_percent,
};

/// `None` if no two cells differ in read-ahead only.
pub fn figure(
    study: &StudyFigures<'_>,
    quantity: Quantity,
    index: usize,
    facet: &Facet<'_>,
    rows: &[(&Group, Row<'_>)],
) -> Option<Figure> {
    let (least, most) =
        compared(rows.iter().flat_map(|(_, row)| row.cells.iter().flatten()).map(|c| Readahead::of(c)))?;
    let mut series: Vec<Series> = Vec::new();
    for (group, row) in rows {
        let Some(gain) = &row.gain else { continue };
        let Some(y) = (quantity.of)(gain).filter(|y| y.is_finite()) else { continue };
        let label = format!("{}, {}", group.filesystem, row.setting.pattern);
        let tip = format!("{label}, {}: {} of the {} saved", study.x_words(row), percent(y), quantity.what);
        let point = (study.axis.value(&row.setting) as f64, y, tip);
        match series.iter_mut().find(|s| s.label == label) {
            Some(s) => s.points.push(point),
            None => series.push(Series {
                shift: study.looks.shift(&group.filesystem),
                look: Look {
                    colour: study.looks.filesystem(&group.filesystem),
                    dash: study.looks.pattern(row.setting.pattern),
                },
                label,
                points: vec![point],
            }),
        }
    }
    if series.is_empty() {
        return None;
    }
    for s in &mut series {
        s.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }

    let x_ticks = study.x_ticks(rows);
    let bands = bands(study, &quantity, rows, &x_ticks);
    let ys = || {
        let lines = series.iter().flat_map(|s| &s.points).map(|p| p.1);
        lines.chain(bands.iter().flat_map(|b| [b.y.0, b.y.1])).filter(|y| y.is_finite())
    };
    // A saving ends at 100 %. A loss has no limit: below -300 % it is drawn at the edge. A loss below 1 % is on the zero line.
    let low = match ys().fold(0.0, f64::min) {
        loss if loss > -1.0 => 0.0,
        loss => (loss / 10.0).floor().max(-30.0) * 10.0,
    };
    let high = ((ys().fold(10.0, f64::max) / 10.0).ceil() * 10.0).min(100.0);

    let mut items: Vec<(LegendKey, String)> =
        series.iter().map(|s| (LegendKey::Line(s.look), s.label.clone())).collect();
    if !bands.is_empty() {
        items.push((LegendKey::Band, "published value: see its letter in the table".to_owned()));
    }
    let (left, right) = (70.0, 20.0);
    let top = legend_height(WIDTH - left - right, &items) + 22.0;
    let area = Rect { x: left, y: top, width: WIDTH - left - right, height: 330.0 };
    let y = Scale::linear((low, high), (area.bottom(), area.y));
    let y_ticks: Vec<(f64, String)> = y.ticks(7).into_iter().map(|t| (t, format!("{} %", number(t, 1)))).collect();
    let mut svg = Svg::new(WIDTH, area.bottom() + 50.0);
    legend(&mut svg, left, 2.0, area.width, &items);
    Panel {
        area,
        x: Scale::log2(x_ticks.iter().map(|t| t.0), (area.x, area.right())).padded(0.03),
        y,
        x_ticks: &x_ticks,
        y_ticks: &y_ticks,
        x_label: study.x_label(),
        y_label: &format!("{} saved with {}", quantity.what, least.words()),
        heading: "",
        series: &series,
        bands: &bands,
    }
    .draw(&mut svg);

    let title = study.title(&format!("{} saved with {}", capital(quantity.what), least.words()), facet);
    let id = format!("{}-{index}", quantity.id);
    let beside = match (bands.is_empty(), quantity.name) {
        (true, _) => "",
        (_, "energy_saved_percent") => {
            " Compare figure 4-b of Olivier et al. (2014): a model, time by mean power. Boxes: what they state in words."
        }
        (_, "time_saved_percent") => " Compare figure 3-a of Olivier et al. (2014). Boxes: what they state in words.",
        _ => " Compare figure 3-b of Olivier et al. (2014). Boxes: what they state in words.",
    };
    let caption = format!(
        "Percent of the {} that {} saves, compared with {}. Negative values are a loss. {}.{beside} {SHIFTED} Source: this study's cells, one cold-cache run each.",
        if quantity.what == "time" {
            "summed read() time"
        } else {
            "flash array reads (of a disk: requests to its driver) from the first read() to the last"
        },
        least.words(),
        most.words(),
        capital(&facet.words()),
    );
    Some(Figure { svg: svg.finish(&id, &title, &caption), id, title, caption })
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// Published values of this quantity as boxes; values with one box share it. A published statement is about numbers of requests. So it is
/// shown only if these are the x axis and the study has one size of requests (a comparison does not name its size).
fn bands(
    study: &StudyFigures<'_>,
    quantity: &Quantity,
    rows: &[(&Group, Row<'_>)],
    x_ticks: &[(f64, String)],
) -> Vec<Band> {
    let cells = || study.result.groups.iter().flat_map(|g| &g.cells).map(|c| c.request_bytes);
    let (Some(first), Some(last)) = (x_ticks.first(), x_ticks.last()) else { return Vec::new() };
    if study.axis != Axis::Count || cells().min() != cells().max() {
        return Vec::new();
    }
    let mut bands: Vec<Band> = Vec::new();
    for (i, c) in study.result.comparisons.iter().enumerate() {
        let here = |(g, row): &&(&Group, Row<'_>)| g.filesystem == c.filesystem && row.setting.pattern == c.pattern;
        let has_place = c.published_min.is_finite() && c.published_max.is_finite();
        if c.quantity != quantity.name || !has_place || !rows.iter().any(|r| here(&r)) {
            continue;
        }
        let x = (c.count[0] as f64).clamp(first.0, last.0)..=(c.count[1] as f64).clamp(first.0, last.0);
        let (x, y) = ((*x.start(), *x.end()), (c.published_min, c.published_max));
        let letter = study.letter(i);
        let tip = format!(
            "{letter}: {} ({}, {}): {}; {}",
            published(c.published_min, c.published_max, &c.unit),
            c.filesystem,
            c.pattern,
            c.statement,
            c.source
        );
        match bands.iter_mut().find(|b| b.x == x && b.y == y) {
            Some(band) => {
                band.letters = format!("{} {letter}", band.letters);
                band.tip = format!("{}. {tip}", band.tip);
            }
            None => bands.push(Band { letters: letter, x, y, tip }),
        }
    }
    bands
}
