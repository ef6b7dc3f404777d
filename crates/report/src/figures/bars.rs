//! Stacked bars in two panels side by side: shares in percent, and mean times.

use super::axes::{thousands, time_unit};
use crate::svg::{Anchor, LegendKey, Rect, Scale, Svg, n};
use std::fmt::Write;

/// Patterns that distinguish parts without colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Texture {
    None,
    Upright,
    Level,
    Rising,
    Falling,
    Crossed,
}

impl Texture {
    /// The pattern's lines over a rectangle.
    pub(super) fn lines(self, r: Rect) -> String {
        const APART: f64 = 6.0;
        let mut d = String::new();
        let marks =
            |from: f64, to: f64| (0..2000).map(move |i| from + f64::from(i) * APART).take_while(move |&at| at < to);
        match self {
            Texture::None => {}
            Texture::Upright => {
                for x in marks(r.x + 3.0, r.right()) {
                    _ = write!(d, "M{} {}v{}", n(x), n(r.y), n(r.height));
                }
            }
            Texture::Level => {
                for y in marks(r.y + 2.5, r.bottom()) {
                    _ = write!(d, "M{} {}h{}", n(r.x), n(y), n(r.width));
                }
            }
            Texture::Rising | Texture::Falling => {
                for x in marks(r.x - r.height + 3.0, r.right()) {
                    // The part of the line inside the rectangle.
                    let (from, to) = ((r.x - x).max(0.0), (r.right() - x).min(r.height));
                    if to > from {
                        let (begin, down) =
                            if self == Texture::Rising { (r.bottom() - from, -1.0) } else { (r.y + from, 1.0) };
                        _ = write!(d, "M{} {}l{} {}", n(x + from), n(begin), n(to - from), n((to - from) * down));
                    }
                }
            }
            Texture::Crossed => d = Texture::Rising.lines(r) + &Texture::Falling.lines(r),
        }
        d
    }
    /// A part's symbol in the legend.
    pub(super) fn key(self, class: &str) -> LegendKey {
        let r = Rect { x: -14.0, y: -7.0, width: 28.0, height: 14.0 };
        LegendKey::Drawn(format!(
            "<path class=\"fl {class}\" d=\"M-14 -7h28v14h-28z\"/><path class=\"tx\" d=\"{}\"/>",
            self.lines(r)
        ))
    }
}

/// The legend's symbol for time without a part.
pub(super) fn open_key() -> LegendKey {
    LegendKey::Drawn("<path class=\"open\" d=\"M-14 -6h28v12h-28z\"/>".to_owned())
}

/// Draws headings, grids and axes of both panels. Returns their scales: shares in percent, and times up to `longest_ns`.
pub(super) fn panels(
    svg: &mut Svg,
    (shares, share): (Rect, &str),
    (times, time): (Rect, &str),
    longest_ns: f64,
) -> [Scale; 2] {
    let unit = time_unit(longest_ns as u64);
    let panels = [
        (shares, Scale::linear((0.0, 100.0), (shares.x, shares.right())), 1.0, format!("{share}, %")),
        (times, Scale::linear((0.0, longest_ns), (times.x, times.right())), unit.ns, format!("{time}, {}", unit.name)),
    ];
    for (area, scale, per, heading) in &panels {
        svg.text(area.x, area.y - 10.0, "heading", Anchor::Start, heading);
        for tick in scale.ticks(4) {
            svg.line("grid", scale.at(tick), area.y, scale.at(tick), area.bottom());
            svg.text(scale.at(tick), area.bottom() + 18.0, "tick", Anchor::Middle, &thousands(tick / per));
        }
        svg.line("axis", area.x, area.y, area.x, area.bottom());
    }
    panels.map(|(_, scale, ..)| scale)
}
