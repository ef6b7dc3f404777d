//! Distributions of the durations of bios, Q2C and D2C, for reads and writes separately.

use super::axes::{decades, grid};
use super::{Figure, MAX_DEVICES, WIDTH};
use crate::svg::{Anchor, LegendKey, Look, Rect, Scale, Svg, legend, legend_height, n};
use crate::text::{bios, duration, grouped, number, percent};
use flashscope_analysis::LatencyRange;
use flashscope_analysis::block::{BlockReport, Group, GroupBy};
use std::fmt::Write;

/// Directions, by the names of the device groups, with the looks of their lines.
const KINDS: [(&str, Look); 3] = [
    ("reads", Look { colour: 0, dash: 0 }),
    ("writes", Look { colour: 1, dash: 1 }),
    ("discards", Look { colour: 3, dash: 2 }),
];
const PANELS: [(&str, &str); 2] =
    [("Q2C", "Q2C: from queueing to completion"), ("D2C", "D2C: in the device, from issue to completion")];
/// A direction with fewer bios gets no distribution beside one with more.
const MIN_BIOS: u64 = 20;
const HEIGHT: f64 = 150.0;
const LINE: f64 = 15.0;

/// One figure per device, those with most bios first.
pub fn figures(report: &BlockReport) -> Vec<Figure> {
    let mut devices: Vec<(&str, Vec<(usize, &Group)>)> = Vec::new();
    for group in report.found.groups.iter().filter(|g| g.by == GroupBy::Device && !g.distributions.is_empty()) {
        let Some((device, kind)) = group.name.rsplit_once(' ') else { continue };
        let Some(kind) = KINDS.iter().position(|(name, _)| *name == kind) else { continue };
        match devices.iter_mut().find(|(known, _)| *known == device) {
            Some((_, kinds)) => kinds.push((kind, group)),
            None => devices.push((device, vec![(kind, group)])),
        }
    }
    devices.sort_by_key(|(_, kinds)| std::cmp::Reverse(kinds.iter().map(|(_, group)| group.bios).sum::<u64>()));
    devices.iter().take(MAX_DEVICES).enumerate().map(|(i, (device, kinds))| figure(report, i, device, kinds)).collect()
}

fn ranges<'a>(group: &'a Group, stage: &str) -> &'a [LatencyRange] {
    group.distributions.iter().find(|d| d.stage == stage).map_or(&[], |d| &d.ranges)
}

fn figure(report: &BlockReport, index: usize, device: &str, kinds: &[(usize, &Group)]) -> Figure {
    let all = || kinds.iter().flat_map(|(_, group)| PANELS.iter().flat_map(|(stage, _)| ranges(group, stage)));
    let low = all().map(|r| r.from_ns.max(1)).min().unwrap_or(1) as f64;
    let high = all().map(|r| r.to_ns).max().unwrap_or(2) as f64;

    let mut items: Vec<(LegendKey, String)> = kinds
        .iter()
        .map(|(kind, group)| {
            let (name, look) = KINDS[*kind];
            let drawn = format!("<path class=\"area {}\" d=\"M-16 6v-10h32v10z\"/>", classes(look));
            (LegendKey::Drawn(drawn), format!("{name} ({})", bios(group.bios)))
        })
        .collect();
    let whisker = "<path class=\"axis\" d=\"M-16 0h32M6 -4v8M11 -4v8\"/><path class=\"rest\" d=\"M-3 -5v10\" stroke-width=\"3\"/>";
    items.push((LegendKey::Drawn(whisker.to_owned()), "least to most; median (thick), p90 and p99".to_owned()));
    let (left, width) = (70.0, WIDTH - 90.0);
    let top = legend_height(width, &items) + 30.0;
    let lines = kinds.len() as f64 * LINE;
    let panel_height = lines + 8.0 + HEIGHT + 60.0;
    let mut svg = Svg::new(WIDTH, top + panel_height * PANELS.len() as f64 - 8.0);
    legend(&mut svg, left, 2.0, width, &items);
    for (i, (stage, heading)) in PANELS.iter().enumerate() {
        let y = top + panel_height * i as f64;
        let area = Rect { x: left, y: y + lines + 8.0, width, height: HEIGHT };
        let x = Scale::log2([low, high].into_iter(), (area.x, area.right())).padded(0.01);
        svg.text(left, y - 8.0, "heading", Anchor::Start, heading);
        panel(&mut svg, area, &x, y, stage, kinds);
        for (ns, label) in decades(low, high) {
            svg.line("axis", x.at(ns), area.bottom(), x.at(ns), area.bottom() + 5.0);
            svg.text(x.at(ns), area.bottom() + 19.0, "tick", Anchor::Middle, &label);
        }
    }
    let label = "time (logarithmic)";
    svg.text(left + width / 2.0, top + panel_height * PANELS.len() as f64 - 20.0, "label", Anchor::Middle, label);

    let title = format!("How long bios of {device} take");
    let caption = format!(
        "Share of the completed bios of each direction in ranges of a quarter of an octave (each 19 % longer than the one before). The lines above show shortest, longest and percentiles by nearest rank. A direction with fewer than {MIN_BIOS} bios beside one with more has only its line. Source: the recorded block events."
    );
    Figure::new(svg, format!("spread-{index}"), &report.title, title, caption)
}

fn classes(look: Look) -> String {
    format!("c{} d{}", look.colour, look.dash)
}

fn panel(svg: &mut Svg, area: Rect, x: &Scale, top: f64, stage: &str, kinds: &[(usize, &Group)]) {
    let share = |r: &LatencyRange, of: u64| r.n as f64 / of.max(1) as f64 * 100.0;
    let count = |ranges: &[LatencyRange]| ranges.iter().fold(0u64, |sum, r| sum.saturating_add(r.n));
    let mut most = 0.0f64;
    let many = kinds.iter().map(|(_, group)| count(ranges(group, stage))).max().unwrap_or(0);
    let drawn = |group: &Group| count(ranges(group, stage)) >= MIN_BIOS.min(many);
    for (_, group) in kinds.iter().filter(|(_, group)| drawn(group)) {
        let ranges = ranges(group, stage);
        let of = count(ranges);
        most = ranges.iter().map(|r| share(r, of)).fold(most, f64::max);
    }
    if most == 0.0 {
        svg.text(area.x + 8.0, area.y + HEIGHT / 2.0, "small", Anchor::Start, "none was seen");
        svg.rect("frame", area, None);
        return;
    }
    let y = Scale::linear((0.0, most * 1.05), (area.bottom(), area.y));
    grid(svg, area, &y, &y.ticks(4), |tick| format!("{} %", number(tick, 1)));
    let mut hits: Vec<(u64, u64, String)> = Vec::new();
    for (line, (kind, group)) in kinds.iter().enumerate() {
        let (name, look) = KINDS[*kind];
        let ranges = ranges(group, stage);
        let of = count(ranges);
        let mut d = String::new();
        for (i, r) in ranges.iter().enumerate() {
            let (from, to, up) = (n(x.at(r.from_ns as f64)), n(x.at(r.to_ns as f64)), n(y.at(share(r, of))));
            let ground = n(area.bottom());
            if i == 0 || ranges[i - 1].to_ns != r.from_ns {
                _ = write!(d, "M{from} {ground}");
            }
            _ = write!(d, "V{up}H{to}");
            if ranges.get(i + 1).is_none_or(|next| next.from_ns != r.to_ns) {
                _ = write!(d, "V{ground}");
            }
            let words = format!("{name} {}, {}", grouped(r.n), percent(share(r, of)));
            match hits.iter_mut().find(|hit| hit.0 == r.from_ns) {
                Some(hit) => hit.2 += &format!("; {words}"),
                None => hits.push((r.from_ns, r.to_ns, words)),
            }
        }
        if drawn(group) {
            svg.path(&format!("area {}", classes(look)), &d);
        }
        if let Some(times) = group.stages.iter().find(|s| s.stage == stage).map(|s| &s.ns) {
            let middle = top + (line as f64 + 0.5) * LINE;
            let at = |ns: u64| x.at(ns.max(1) as f64);
            let tip = format!(
                "{name}, {stage}: least {}, median {}, p90 {}, p99 {}, p99.9 {}, most {}; mean {}",
                duration(times.min),
                duration(times.p50),
                duration(times.p90),
                duration(times.p99),
                duration(times.p999),
                duration(times.max),
                duration(times.mean)
            );
            svg.text(area.x - 8.0, middle + 4.0, "small", Anchor::End, name);
            let colour = format!("thin c{}", look.colour);
            svg.line(&colour, at(times.min), middle, at(times.max).max(at(times.min) + 1.0), middle);
            for ns in [times.min, times.max, times.p90, times.p99] {
                svg.line(&colour, at(ns), middle - 4.0, at(ns), middle + 4.0);
            }
            svg.rect(
                &format!("fl c{}", look.colour),
                Rect { x: at(times.p50) - 2.0, y: middle - 5.0, width: 4.0, height: 10.0 },
                None,
            );
            svg.rect("hit", Rect { x: area.x, y: middle - LINE / 2.0, width: area.width, height: LINE }, Some(&tip));
        }
    }
    svg.rect("frame", area, None);
    for (from_ns, to_ns, words) in hits {
        let (from, to) = (x.at(from_ns as f64), x.at(to_ns as f64));
        let tip = format!("{stage} from {} to {}: {words}", duration(from_ns), duration(to_ns));
        svg.rect("hit", Rect { x: from, width: to - from, ..area }, Some(&tip));
    }
}
