//! Time of a bio by stage: shares of Q2C and mean times, side by side.

use super::bars::{Texture, open_key, panels};
use super::{Figure, WIDTH};
use crate::svg::{Anchor, LegendKey, Rect, Svg, legend, legend_height, text_width};
use crate::text::{duration, grouped, percent};
use flashscope_analysis::block::{BlockReport, Group, GroupBy};

/// Largest number of bars in one figure; the rest becomes one bar.
const MAX_BARS: usize = 14;
/// The stages in their order, for a bio with its own request and for a merged bio.
const PARTS: [Part; 6] = [
    Part { name: "Q2G", what: "until it has a request", class: "c0", texture: Texture::Rising },
    Part { name: "G2I", what: "until it is in the scheduler", class: "c4", texture: Texture::Upright },
    Part { name: "I2D", what: "until the driver has it", class: "c2", texture: Texture::Falling },
    Part { name: "Q2M", what: "until it is merged", class: "c3", texture: Texture::Level },
    Part {
        name: "M2D",
        what: "in the merged request, until the driver has it",
        class: "c5",
        texture: Texture::Crossed,
    },
    Part { name: "D2C", what: "in the device", class: "c1", texture: Texture::None },
];

struct Part {
    name: &'static str,
    what: &'static str,
    class: &'static str,
    texture: Texture,
}

/// The bios of one or several groups, and their time by stage.
#[derive(Clone, Default)]
struct Bar {
    name: String,
    /// Completed bios.
    bios: u64,
    q2c_ns: u64,
    parts_ns: [u64; PARTS.len()],
}

impl Bar {
    fn of(group: &Group) -> Self {
        let total = |name: &str| group.stages.iter().find(|s| s.stage == name).map_or((0, 0), |s| (s.ns.n, s.total_ns));
        let (bios, q2c_ns) = total("Q2C");
        Self { name: group.name.clone(), bios, q2c_ns, parts_ns: PARTS.map(|part| total(part.name).1) }
    }

    fn add(&mut self, other: &Bar) {
        self.bios = self.bios.saturating_add(other.bios);
        self.q2c_ns = self.q2c_ns.saturating_add(other.q2c_ns);
        for (a, b) in self.parts_ns.iter_mut().zip(other.parts_ns) {
            *a = a.saturating_add(b);
        }
    }

    fn covered_ns(&self) -> u64 {
        self.parts_ns.iter().fold(0, |sum, &ns| sum.saturating_add(ns))
    }

    /// Q2C, or the sum of the stages if it is larger, because of bios that were not completed.
    fn whole_ns(&self) -> u64 {
        self.q2c_ns.max(self.covered_ns())
    }

    /// The part of Q2C outside of all stages.
    fn open_ns(&self) -> u64 {
        self.q2c_ns.saturating_sub(self.covered_ns())
    }

    fn mean(&self, ns: u64) -> f64 {
        if self.bios == 0 { 0.0 } else { ns as f64 / self.bios as f64 }
    }
}

/// By device and direction, and by originator.
pub fn figures(report: &BlockReport) -> Vec<Figure> {
    let groups = &report.found.groups;
    let of = |by: GroupBy| groups.iter().filter(move |g| g.by == by).map(Bar::of).collect::<Vec<_>>();
    let mut devices = of(GroupBy::All);
    devices.iter_mut().for_each(|bar| bar.name = "all devices".to_owned());
    devices.extend(most(of(GroupBy::Device), "devices and directions"));
    let owners = most(of(GroupBy::Owner), "originators");
    let figure = |id: &str, title: &str, bars: &[Bar]| figure(report, id, title, bars);
    figure("stages-devices", "Where the time of a bio goes, by device and direction", &devices)
        .into_iter()
        .chain(figure("stages-owners", "Where the time of a bio goes, by originator", &owners))
        .collect()
}

/// The bars with the longest total times; the others become one bar, at the end.
fn most(mut bars: Vec<Bar>, what: &str) -> Vec<Bar> {
    if bars.len() <= MAX_BARS {
        return bars;
    }
    bars.sort_by_key(|bar| std::cmp::Reverse(bar.whole_ns()));
    let others = bars.split_off(MAX_BARS - 1);
    let mut sum = Bar { name: format!("{} other {what}", grouped(others.len() as u64)), ..Bar::default() };
    others.iter().for_each(|bar| sum.add(bar));
    bars.push(sum);
    bars
}

const LEFT: f64 = 190.0;
const SHARES: f64 = 360.0;
const ROW: f64 = 26.0;

fn figure(report: &BlockReport, id: &str, title: &str, bars: &[Bar]) -> Option<Figure> {
    bars.iter().find(|bar| bar.whole_ns() > 0)?;
    let mut items: Vec<(LegendKey, String)> = Vec::new();
    for (i, part) in PARTS.iter().enumerate() {
        if bars.iter().any(|bar| bar.parts_ns[i] > 0) {
            items.push((part.texture.key(part.class), format!("{}: {}", part.name, part.what)));
        }
    }
    if bars.iter().any(|bar| bar.open_ns() > 0) {
        items.push((open_key(), "no stage was seen".to_owned()));
    }
    let top = legend_height(WIDTH - 40.0, &items) + 34.0;
    let bottom = top + ROW * bars.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 28.0);
    legend(&mut svg, 20.0, 2.0, WIDTH - 40.0, &items);

    let shares = Rect { x: LEFT, y: top, width: SHARES, height: bottom - top };
    let times = Rect { x: shares.right() + 40.0, width: WIDTH - shares.right() - 40.0 - 76.0, ..shares };
    let longest = bars.iter().map(|bar| bar.mean(bar.whole_ns())).fold(0.0, f64::max);
    let [share, time] = panels(&mut svg, (shares, "share of Q2C"), (times, "mean time of a bio"), longest);
    for (i, bar) in bars.iter().enumerate() {
        let y = top + ROW * i as f64 + 4.0;
        svg.name(LEFT - 8.0, y + 13.0, "legend", Anchor::End, &bar.name, LEFT - 16.0);
        if bar.bios == 0 {
            svg.text(LEFT + 6.0, y + 13.0, "small", Anchor::Start, "none was completed");
            continue;
        }
        let whole = bar.whole_ns().max(1) as f64;
        row(&mut svg, bar, y, |ns| share.at(ns as f64 / whole * 100.0), true);
        row(&mut svg, bar, y, |ns| time.at(bar.mean(ns)), false);
        let end = time.at(bar.mean(bar.whole_ns()));
        let mean = bar.q2c_ns.checked_div(bar.bios).unwrap_or(0);
        svg.text(end + 6.0, y + 13.0, "legend", Anchor::Start, &duration(mean));
    }

    let over = if bars.iter().any(|bar| bar.covered_ns() > bar.q2c_ns) {
        " Where the stages' sum is longer than Q2C, some bios had not been completed; shares are then of the stages."
    } else {
        ""
    };
    let caption = format!(
        "Each bar is the time from the queueing of a bio (Q) to its completion (C), for all bios of a row. Left: the shares; right: the mean time of one bio (mean Q2C at the bar's end). Open parts are times between steps that are not in the trace.{over} Source: the recorded block events; the tables below have the numbers."
    );
    Some(Figure::new(svg, id.to_owned(), &report.title, title.to_owned(), caption))
}

/// Draws one bar: parts from the left, with widths from `at`.
fn row(svg: &mut Svg, bar: &Bar, y: f64, at: impl Fn(u64) -> f64, labelled: bool) {
    let height = ROW - 8.0;
    let whole = bar.whole_ns().max(1) as f64;
    let words = |name: &str, ns: u64| {
        format!(
            "{}: {name} {} of Q2C, {} a bio",
            bar.name,
            percent(ns as f64 / whole * 100.0),
            duration(bar.mean(ns) as u64)
        )
    };
    let mut before = 0u64;
    for (part, &ns) in PARTS.iter().zip(&bar.parts_ns).filter(|(_, ns)| **ns > 0) {
        let (from, to) = (at(before), at(before.saturating_add(ns)));
        before = before.saturating_add(ns);
        let r = Rect { x: from, y, width: (to - from).max(0.3), height };
        svg.rect(&format!("fl {}", part.class), r, Some(&words(part.name, ns)));
        svg.path("tx", &part.texture.lines(r));
        let share = format!("{} {}", part.name, percent(ns as f64 / whole * 100.0));
        let label = if text_width(&share) + 4.0 < r.width { &share } else { part.name };
        let width = text_width(label) + 4.0;
        if labelled && width < r.width {
            let plate = Rect { x: from + (r.width - width) / 2.0, y: y + 2.0, width, height: height - 4.0 };
            svg.rect("plate", plate, None);
            svg.text(from + r.width / 2.0, y + 13.0, "on", Anchor::Middle, label);
        }
    }
    if bar.open_ns() > 0 {
        let (from, to) = (at(before), at(bar.q2c_ns));
        let r = Rect { x: from, y: y + 1.0, width: (to - from).max(0.3), height: height - 2.0 };
        svg.rect("open hit", r, Some(&words("no stage seen,", bar.open_ns())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn textures_stay_within_their_rectangle() {
        let r = Rect { x: 10.0, y: 20.0, width: 31.0, height: 18.0 };
        for texture in [Texture::Upright, Texture::Level, Texture::Rising, Texture::Falling, Texture::Crossed] {
            let d = texture.lines(r);
            assert!(!d.is_empty());
            for line in d.split('M').skip(1) {
                let numbers: Vec<f64> =
                    line.split([' ', 'v', 'h', 'l']).map(|number| number.parse().expect("a number")).collect();
                let (dx, dy) = match (numbers.as_slice(), line.contains('v')) {
                    ([_, _, dy], true) => (0.0, *dy),
                    ([_, _, dx], false) => (*dx, 0.0),
                    ([_, _, dx, dy], _) => (*dx, *dy),
                    other => panic!("{other:?}"),
                };
                for (x, y) in [(numbers[0], numbers[1]), (numbers[0] + dx, numbers[1] + dy)] {
                    assert!((9.9..=41.1).contains(&x) && (19.9..=38.1).contains(&y), "{x} {y}");
                }
            }
        }
    }

    #[test]
    fn what_stages_do_not_tell_is_open_and_nothing_is_lost_in_a_sum() {
        let bar =
            |ns: u64| Bar { name: "x".into(), bios: 2, q2c_ns: 100 * ns, parts_ns: [10 * ns, 0, 0, 0, 0, 60 * ns] };
        assert_eq!((bar(1).open_ns(), bar(1).whole_ns()), (30, 100));
        let bars = most((1..=20).map(bar).collect(), "originators");
        assert_eq!((bars.len(), bars[0].q2c_ns, bars[13].name.as_str()), (14, 2000, "7 other originators"));
        assert_eq!((bars[13].bios, bars[13].q2c_ns, bars[13].open_ns()), (14, 2800, 840));
        // With bios that were not completed, the stages may be longer than Q2C together.
        let over = Bar { q2c_ns: 50, ..bar(1) };
        assert_eq!((over.open_ns(), over.whole_ns()), (0, 70));
    }
}
