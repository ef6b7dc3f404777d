//! Axes that several figures share.

use crate::svg::{Anchor, Rect, Scale, Svg};
use crate::text::{grouped, number};

/// The unit of an axis of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeUnit {
    pub name: &'static str,
    pub ns: f64,
}

/// The unit for this length of time.
pub fn time_unit(span_ns: u64) -> TimeUnit {
    let (name, ns) = match span_ns {
        0..2_000 => ("ns", 1.0),
        2_000..2_000_000 => ("µs", 1e3),
        2_000_000..2_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    TimeUnit { name, ns }
}

/// Time ticks below a panel; labels only if `labelled`.
pub fn time_ticks(svg: &mut Svg, area: Rect, x: &Scale, unit: TimeUnit, labelled: bool) {
    for tick in x.ticks(8) {
        svg.line("axis", x.at(tick), area.bottom(), x.at(tick), area.bottom() + 5.0);
        if labelled {
            svg.text(x.at(tick), area.bottom() + 19.0, "tick", Anchor::Middle, &thousands(tick / unit.ns));
        }
    }
}

/// Horizontal grid lines at round values, with labels on the left.
pub fn grid(svg: &mut Svg, area: Rect, y: &Scale, ticks: &[f64], label: impl Fn(f64) -> String) {
    for &tick in ticks {
        svg.line("grid", area.x, y.at(tick), area.right(), y.at(tick));
        svg.text(area.x - 8.0, y.at(tick) + 4.0, "tick", Anchor::End, &label(tick));
    }
}

/// "1,234", "0.5"
pub fn thousands(value: f64) -> String {
    if value >= 1000.0 { grouped(value.round() as u64) } else { number(value, 3) }
}

/// Round times from `low` to `high`, ns: powers of ten, with 2 and 5 times these if there are few.
pub fn decades(low: f64, high: f64) -> Vec<(f64, String)> {
    let few = high / low.max(1.0) < 300.0;
    let mut ticks = Vec::new();
    for power in 0..20 {
        for digit in [1u64, 2, 5] {
            let ns = digit as f64 * 10f64.powi(power);
            if (low..=high).contains(&ns) && (digit == 1 || few) {
                let unit = ["ns", "µs", "ms", "s"][(power as usize / 3).min(3)];
                let ns_a_unit = 1000f64.powi((power / 3).min(3));
                ticks.push((ns, format!("{} {unit}", thousands(ns / ns_a_unit))));
            }
        }
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_are_round_times_in_the_range() {
        let labels = |low, high| decades(low, high).into_iter().map(|t| t.1).collect::<Vec<_>>();
        assert_eq!(labels(300.0, 2e6), ["1 µs", "10 µs", "100 µs", "1 ms"]);
        assert_eq!(labels(9e5, 6e6), ["1 ms", "2 ms", "5 ms"]);
        assert_eq!(labels(0.0, 60e12).last().map(String::as_str), Some("10,000 s"));
    }
}
