//! Time of calls by layer: mean times of all calls as stacked bars, and single calls as timelines.

use super::axes::{time_ticks, time_unit};
use super::bars::{Texture, open_key, panels};
use super::{Figure, WIDTH};
use crate::layers_view::{call_name, layer_name};
use crate::svg::{Anchor, LegendKey, Rect, Scale, Svg, legend, legend_height, text_width};
use crate::text::{duration, grouped, percent};
use flashscope_analysis::layers::{CallLayers, CallSum, Layer, LayersReport, Operation};
use flashscope_study::layers::LayersResult;

/// Largest number of bars in one figure.
const MAX_BARS: usize = 40;
const ROW: f64 = 26.0;
const LEFT: f64 = 190.0;

/// Colour and texture of a layer.
fn look(layer: Layer) -> (&'static str, Texture) {
    match layer {
        Layer::Call => ("c5", Texture::None),
        Layer::Vfs => ("c3", Texture::Level),
        Layer::PageCache => ("c4", Texture::Upright),
        Layer::FileSystem => ("c2", Texture::Falling),
        Layer::Ubi => ("c3", Texture::Rising),
        Layer::Block => ("c0", Texture::Rising),
        Layer::Mtd => ("c0", Texture::Level),
        Layer::Driver => ("c5", Texture::Crossed),
        Layer::Device => ("c1", Texture::None),
        Layer::Interrupt => ("c3", Texture::Crossed),
        Layer::OtherTasks => ("c4", Texture::Rising),
    }
}

/// Figures of a trace: all operations by kind, then one operation of each kind, with the median time.
pub fn layers(report: &LayersReport) -> Vec<Figure> {
    let found = &report.found;
    let bars: Vec<(String, &CallSum)> = found.sums.iter().map(|sum| (call_name(sum.call).to_owned(), sum)).collect();
    let mut figures: Vec<Figure> = stacked("layers", &report.title, &bars).into_iter().collect();
    figures.extend(timelines("call", &report.title, "", &found.calls));
    figures
}

/// Figures of a study: the operations of all groups in one figure, then one call for each group and kind.
pub fn layers_study(result: &LayersResult) -> Vec<Figure> {
    let bars: Vec<(String, &CallSum)> = result
        .groups
        .iter()
        .flat_map(|group| {
            group.sums.iter().map(move |sum| {
                let inputs = &group.inputs;
                (format!("{}, {}, {}: {}", inputs.board, inputs.kernel, group.filesystem, call_name(sum.call)), sum)
            })
        })
        .collect();
    let mut figures: Vec<Figure> = stacked("layers", &result.header.title, &bars).into_iter().collect();
    for (i, group) in result.groups.iter().enumerate() {
        figures.extend(timelines(&format!("g{i}"), &group.id, &format!(" on {}", group.id), &group.calls));
    }
    figures
}

/// The operation with the median time of each kind, among those with known slices.
fn timelines(id: &str, of: &str, place: &str, calls: &[CallLayers]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for kind in [Operation::Read, Operation::WriteSync, Operation::Write, Operation::Sync] {
        let mut all: Vec<&CallLayers> =
            calls.iter().filter(|call| call.call == kind && !call.slices.is_empty()).collect();
        all.sort_by_key(|call| (call.total_ns, call.begin_ns));
        if let Some(call) = all.get(all.len() / 2) {
            let id = format!("{id}-{}", call_name(kind).replace([' ', '+'], ""));
            figures.extend(timeline(&id, of, place, call, all.len()));
        }
    }
    figures
}

/// Each bar is the mean of an operation: shares on the left, times on the right.
fn stacked(id: &str, of: &str, bars: &[(String, &CallSum)]) -> Option<Figure> {
    let bars = &bars[..bars.len().min(MAX_BARS)];
    let mean = |sum: &CallSum, ns: u64| ns as f64 / sum.n.max(1) as f64;
    let longest = bars.iter().map(|(_, sum)| mean(sum, sum.total_ns)).fold(0.0, f64::max);
    if longest <= 0.0 {
        return None;
    }
    let mut items: Vec<(LegendKey, String)> = Vec::new();
    for layer in Layer::ALL {
        if bars.iter().any(|(_, sum)| sum.layers.iter().any(|time| time.layer == layer)) {
            let (class, texture) = look(layer);
            items.push((texture.key(class), layer_name(layer).to_owned()));
        }
    }
    if bars.iter().any(|(_, sum)| sum.unattributed_ns > 0) {
        items.push((open_key(), "unattributed".to_owned()));
    }
    let top = legend_height(WIDTH - 40.0, &items) + 34.0;
    let bottom = top + ROW * bars.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 28.0);
    legend(&mut svg, 20.0, 2.0, WIDTH - 40.0, &items);
    let left = if bars.iter().any(|(name, _)| text_width(name) > LEFT - 16.0) { 290.0 } else { LEFT };
    let shares = Rect { x: left, y: top, width: 300.0, height: bottom - top };
    let times = Rect { x: shares.right() + 40.0, width: WIDTH - shares.right() - 40.0 - 80.0, ..shares };
    let [share, time] = panels(&mut svg, (shares, "share"), (times, "mean time"), longest);
    for (i, (name, sum)) in bars.iter().enumerate() {
        let y = top + ROW * i as f64 + 4.0;
        svg.name(left - 8.0, y + 13.0, "legend", Anchor::End, name, left - 16.0);
        let total = sum.total_ns.max(1) as f64;
        bar(&mut svg, name, sum, y, |ns| share.at(ns as f64 / total * 100.0));
        bar(&mut svg, name, sum, y, |ns| time.at(mean(sum, ns)));
        let end = time.at(mean(sum, sum.total_ns));
        svg.text(end + 6.0, y + 13.0, "legend", Anchor::Start, &duration(mean(sum, sum.total_ns) as u64));
    }
    let caption = "Each bar is the time from the begin of an operation to its end, for all operations of a row. Left: the \
                   shares; right: the mean time of one operation (at the bar's end). From left to right: the layers from the \
                   call down to the device and back. Time that no probe covers is open. The times include the cost of \
                   recording. Source: the recorded boundaries; the tables below have the numbers.";
    Some(Figure::new(svg, id.to_owned(), of, "Where the time of calls goes, by layer".to_owned(), caption.to_owned()))
}

fn bar(svg: &mut Svg, name: &str, sum: &CallSum, y: f64, at: impl Fn(u64) -> f64) {
    let total = sum.total_ns.max(1) as f64;
    let tip = |what: &str, ns: u64| {
        let share = percent(ns as f64 / total * 100.0);
        format!("{name}: {what} {share}, {} each", duration(ns / sum.n.max(1)))
    };
    let height = ROW - 8.0;
    let mut before = 0u64;
    for time in &sum.layers {
        let (from, to) = (at(before), at(before.saturating_add(time.ns)));
        before = before.saturating_add(time.ns);
        let (class, texture) = look(time.layer);
        let r = Rect { x: from, y, width: (to - from).max(0.3), height };
        svg.rect(&format!("fl {class}"), r, Some(&tip(layer_name(time.layer), time.ns)));
        svg.path("tx", &texture.lines(r));
    }
    if sum.unattributed_ns > 0 {
        let (from, to) = (at(before), at(before.saturating_add(sum.unattributed_ns)));
        let r = Rect { x: from, y: y + 1.0, width: (to - from).max(0.3), height: height - 2.0 };
        svg.rect("open hit", r, Some(&tip("unattributed", sum.unattributed_ns)));
    }
}

/// One operation: a row for each layer, from the call down to the device. A bar marks the time in that layer.
fn timeline(id: &str, of: &str, place: &str, call: &CallLayers, among: usize) -> Option<Figure> {
    let (begin, end) = (call.slices.first()?.begin_ns, call.slices.last()?.end_ns);
    let mut rows: Vec<Option<Layer>> = call.slices.iter().map(|slice| slice.layer).collect();
    // Unattributed time comes last.
    rows.sort_by_key(|layer| (layer.is_none(), *layer));
    rows.dedup();
    let area = Rect { x: 130.0, y: 10.0, width: WIDTH - 130.0 - 90.0, height: ROW * rows.len() as f64 };
    let unit = time_unit(end - begin);
    let x = Scale::linear((0.0, (end - begin).max(1) as f64), (area.x, area.right()));
    let mut svg = Svg::new(WIDTH, area.bottom() + 46.0);
    for tick in x.ticks(8) {
        svg.line("grid", x.at(tick), area.y, x.at(tick), area.bottom());
    }
    for (row, layer) in rows.iter().enumerate() {
        let y = area.y + ROW * row as f64;
        let name = layer.map_or("unattributed", layer_name);
        svg.text(area.x - 8.0, y + 17.0, "legend", Anchor::End, name);
        let mut sum = 0;
        for slice in call.slices.iter().filter(|slice| slice.layer == *layer) {
            let (from, to) = ((slice.begin_ns - begin) as f64, (slice.end_ns.max(slice.begin_ns) - begin) as f64);
            let r = Rect { x: x.at(from), y: y + 4.0, width: (x.at(to) - x.at(from)).max(0.6), height: ROW - 8.0 };
            let tip = format!("{name}: {} from {} on", duration((to - from) as u64), duration(from as u64));
            sum += slice.end_ns - slice.begin_ns;
            match layer {
                Some(layer) => {
                    let (class, texture) = look(*layer);
                    svg.rect(&format!("fl {class}"), r, Some(&tip));
                    svg.path("tx", &texture.lines(r));
                }
                None => svg.rect("open hit", r, Some(&tip)),
            }
        }
        svg.text(area.right() + 8.0, y + 17.0, "legend", Anchor::Start, &duration(sum));
    }
    svg.line("axis", area.x, area.bottom(), area.right(), area.bottom());
    time_ticks(&mut svg, area, &x, unit, true);
    let label = format!("time since the call, {}", unit.name);
    svg.text(area.x + area.width / 2.0, area.bottom() + 38.0, "label", Anchor::Middle, &label);
    let what = call_name(call.call);
    let calls = if call.calls > 1 { format!(" of {} system calls", call.calls) } else { String::new() };
    let gaps = if call.calls > 1 { " Between the calls nothing is drawn." } else { "" };
    let caption = format!(
        "One {what}{calls} of {} ({}), {} in all; the median of {} such operations. Each bar is time of one layer: while the \
         task runs, the innermost layer that it has entered; while it sleeps, the layer that works for it. At the right is the \
         sum of each layer.{gaps} Source: the recorded boundaries.",
        call.task,
        call.tid,
        duration(call.total_ns),
        grouped(among as u64)
    );
    Some(Figure::new(svg, format!("timeline-{id}"), of, format!("One {what}{place}, layer by layer"), caption))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn a_trace_has_its_bars_and_one_operation_of_each_kind() {
        let report = synthetic::layers();
        let figures = layers(&report);
        let ids: Vec<&str> = figures.iter().map(|figure| figure.id.as_str()).collect();
        assert_eq!(ids, ["layers", "timeline-call-read", "timeline-call-writesync"]);
        assert!(figures[1].svg.contains("page cache") && figures[2].svg.contains("unattributed"));
        let page = crate::html::layers(&report);
        let text = crate::terminal::layers(&report, &crate::terminal::Style::default());
        assert!(page.contains("&lt;script&gt;") && text.contains("write + sync"), "{text}");
        for drawn in figures.iter().map(Figure::standalone).chain([page, text]) {
            assert!(!drawn.contains('\u{1b}'));
        }
        let markup =
            figures.iter().map(Figure::standalone).chain([crate::html::without_scripts(&crate::html::layers(&report))]);
        assert!(markup.into_iter().all(|drawn| !drawn.contains("<script")));
    }

    #[test]
    fn layers_differ_without_colour() {
        let looks: Vec<_> = Layer::ALL.into_iter().map(look).collect();
        for (i, one) in looks.iter().enumerate() {
            assert!(looks[..i].iter().all(|other| other != one), "{one:?}");
        }
    }
}
