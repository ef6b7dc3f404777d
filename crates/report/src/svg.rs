//! A small SVG writer: elements, scales, and panels with axes. Colours are classes, so that a page can follow light mode, dark mode and
//! print. Series also differ in marker or dash, so that they can be read without colour.

use crate::text::{escape, number, visible};
use std::fmt::Write;

/// Fill and stroke of all elements, as variables, so that a page can change the colours of an embedded figure.
pub const STYLE: &str = include_str!("figures/figure.css");

/// A coordinate with at most one decimal.
pub fn n(value: f64) -> String {
    number(value, 1)
}

/// Mean width of a character at the figures' 12 px: digits and lower case in common sans-serif fonts are about 0.55 em.
const CHAR_WIDTH: f64 = 6.7;

/// Estimated width of text.
pub fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHAR_WIDTH
}

/// The part of a name that fits a width, with control characters escaped; ends with "…" if it is cut.
pub fn fit(name: &str, width: f64) -> String {
    let name = visible(name);
    if text_width(&name) <= width {
        return name.into_owned();
    }
    let mut cut: String = name.chars().take(((width / CHAR_WIDTH) as usize).saturating_sub(1)).collect();
    cut.truncate(cut.trim_end().len());
    cut.push('…');
    cut
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn attribute(self) -> &'static str {
        match self {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        }
    }
}

pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    pub fn raw(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    /// `text` is untrusted.
    pub fn text(&mut self, x: f64, y: f64, class: &str, anchor: Anchor, text: &str) {
        _ = writeln!(
            self.body,
            "<text x=\"{}\" y=\"{}\" class=\"{class}\"{}>{}</text>",
            n(x),
            n(y),
            anchor.attribute(),
            escape(text)
        );
    }

    /// A name cut to a width; hovering shows the whole name. `name` is untrusted.
    pub fn name(&mut self, x: f64, y: f64, class: &str, anchor: Anchor, name: &str, width: f64) {
        let shown = fit(name, width);
        if shown == name {
            return self.text(x, y, class, anchor, name);
        }
        _ = writeln!(
            self.body,
            "<text x=\"{}\" y=\"{}\" class=\"{class}\"{}>{}<title>{}</title></text>",
            n(x),
            n(y),
            anchor.attribute(),
            escape(&shown),
            escape(name)
        );
    }

    /// A name that rises to the right, cut to a length.
    pub fn rising_name(&mut self, x: f64, y: f64, class: &str, name: &str, length: f64) {
        _ = writeln!(
            self.body,
            "<text transform=\"translate({} {}) rotate(-45)\" class=\"{class}\">{}<title>{}</title></text>",
            n(x),
            n(y),
            escape(&fit(name, length)),
            escape(name)
        );
    }

    pub fn vertical_text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        _ = writeln!(
            self.body,
            "<text transform=\"translate({} {}) rotate(-90)\" class=\"{class}\" text-anchor=\"middle\">{}</text>",
            n(x),
            n(y),
            escape(text)
        );
    }

    pub fn line(&mut self, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        _ = writeln!(self.body, "<path class=\"{class}\" d=\"M{} {}L{} {}\"/>", n(x1), n(y1), n(x2), n(y2));
    }

    /// A path with a text on hovering. `tip` is untrusted.
    pub fn tipped_path(&mut self, class: &str, d: &str, tip: &str) {
        if !d.is_empty() {
            _ = writeln!(self.body, "<path class=\"{class}\" d=\"{d}\"><title>{}</title></path>", escape(tip));
        }
    }

    pub fn path(&mut self, class: &str, d: &str) {
        if !d.is_empty() {
            _ = writeln!(self.body, "<path class=\"{class}\" d=\"{d}\"/>");
        }
    }

    pub fn rect(&mut self, class: &str, r: Rect, tip: Option<&str>) {
        let tip = tip.map(|tip| format!("<title>{}</title>", escape(tip))).unwrap_or_default();
        _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">{tip}</rect>",
            n(r.x),
            n(r.y),
            n(r.width),
            n(r.height)
        );
    }

    /// The whole element. `id` is trusted; title and description are untrusted.
    pub fn finish(self, id: &str, title: &str, description: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\n<title id=\"{id}-t\">{}</title>\n<desc id=\"{id}-d\">{}</desc>\n{}</svg>\n",
            escape(title),
            escape(description),
            self.body,
            w = n(self.width),
            h = n(self.height),
        )
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Rect {
    pub fn right(&self) -> f64 {
        self.x + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }
}

/// Maps values to pixels.
#[derive(Clone, Debug)]
pub struct Scale {
    from: (f64, f64),
    to: (f64, f64),
    /// The smallest positive value of a logarithmic scale; 0 is drawn one octave below it.
    log_floor: Option<f64>,
}

impl Scale {
    pub fn linear(from: (f64, f64), to: (f64, f64)) -> Self {
        let from = if from.0 < from.1 { from } else { (from.0, from.0 + 1.0) };
        Self { from, to, log_floor: None }
    }

    /// Base 2. The range covers `values`.
    pub fn log2(values: impl Iterator<Item = f64> + Clone, to: (f64, f64)) -> Self {
        let floor = values.clone().filter(|&v| v > 0.0).fold(f64::INFINITY, f64::min);
        let floor = if floor.is_finite() { floor } else { 1.0 };
        let mut scale = Self { from: (0.0, 1.0), to, log_floor: Some(floor) };
        let low = values.clone().map(|v| scale.log(v)).fold(f64::INFINITY, f64::min);
        let high = values.map(|v| scale.log(v)).fold(f64::NEG_INFINITY, f64::max);
        if low.is_finite() && high.is_finite() {
            scale.from = if low < high { (low, high) } else { (low - 1.0, high + 1.0) };
        }
        scale
    }

    /// Adds room at both ends, as a share of the range.
    pub fn padded(mut self, share: f64) -> Self {
        let room = (self.from.1 - self.from.0) * share;
        self.from = (self.from.0 - room, self.from.1 + room);
        self
    }

    /// The same scale with pixels multiplied by `by`, then shifted by `further`.
    pub fn scaled(&self, by: f64, further: f64) -> Self {
        Self { to: (self.to.0 * by + further, self.to.1 * by + further), ..self.clone() }
    }

    fn log(&self, value: f64) -> f64 {
        match self.log_floor {
            Some(floor) if value <= 0.0 => floor.log2() - 1.0,
            Some(_) => value.log2(),
            None => value,
        }
    }

    pub fn at(&self, value: f64) -> f64 {
        let share = (self.log(value) - self.from.0) / (self.from.1 - self.from.0);
        self.to.0 + share.clamp(0.0, 1.0) * (self.to.1 - self.to.0)
    }

    /// About `about` round values in the range: 1, 2 or 5 times a power of ten, or powers of two.
    pub fn ticks(&self, about: usize) -> Vec<f64> {
        let (low, high) = self.from;
        if self.log_floor.is_some() {
            let step = ((high - low) / about as f64).ceil().max(1.0);
            let first = (low / step).ceil() * step;
            return (0..64).map(|i| first + f64::from(i) * step).take_while(|&t| t <= high).map(f64::exp2).collect();
        }
        let rough = (high - low) / about as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&s| s >= rough).unwrap_or(rough);
        let first = (low / step).ceil();
        (0..200).map(|i| (first + f64::from(i)) * step).take_while(|&t| t <= high + step * 1e-9).collect()
    }
}

/// The look of a line: `colour` and marker show one property, `dash` and a hollow marker another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub colour: usize,
    pub dash: usize,
}

/// Number of distinct colours (and markers), and of dashes, in figure.css.
pub const COLOURS: usize = 6;
const DASHES: usize = 4;

impl Look {
    pub fn line_class(self) -> String {
        format!("ln c{} d{}", self.colour % COLOURS, self.dash % DASHES)
    }

    fn is_full(self) -> bool {
        self.dash.is_multiple_of(2)
    }

    pub fn marker(self, x: f64, y: f64, tip: &str) -> String {
        let (hollow, radius) = if self.is_full() { ("", 3.8) } else { (" hollow", 5.2) };
        let tip = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
        format!(
            "<path class=\"mk c{}{hollow}\" d=\"{}\">{tip}</path>",
            self.colour % COLOURS,
            shape(self.colour, x, y, radius)
        )
    }
}

fn polygon(points: &[(f64, f64)]) -> String {
    let corners: Vec<String> = points.iter().map(|(x, y)| format!("{} {}", n(*x), n(*y))).collect();
    format!("M{}z", corners.join("L"))
}

/// One of six shapes, distinct without colour.
fn shape(which: usize, x: f64, y: f64, r: f64) -> String {
    match which % COLOURS {
        0 => format!("M{} {}a{r} {r} 0 1 0 {} 0a{r} {r} 0 1 0 {} 0z", n(x - r), n(y), n(2.0 * r), n(-2.0 * r)),
        1 => polygon(&[(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)]),
        2 => polygon(&[(x, y - 1.3 * r), (x + 1.2 * r, y + r), (x - 1.2 * r, y + r)]),
        3 => polygon(&[(x, y - 1.4 * r), (x + 1.4 * r, y), (x, y + 1.4 * r), (x - 1.4 * r, y)]),
        4 => polygon(&[(x - 1.2 * r, y - r), (x + 1.2 * r, y - r), (x, y + 1.3 * r)]),
        _ => polygon(&[
            (x - 1.5 * r, y - 0.5 * r),
            (x + 1.5 * r, y - 0.5 * r),
            (x + 1.5 * r, y + 0.5 * r),
            (x - 1.5 * r, y + 0.5 * r),
        ]),
    }
}

/// A mark for points, distinct without colour: six filled shapes, six hollow ones, and a cross for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dot(pub usize);

impl Dot {
    /// Number of kinds with their own mark.
    pub const KINDS: usize = 2 * COLOURS;

    pub fn class(self) -> String {
        match self.0 {
            of if of < COLOURS => format!("pt c{of}"),
            of if of < Self::KINDS => format!("pt c{} hollow", of - COLOURS),
            _ => "pt rest".to_owned(),
        }
    }

    pub fn path(self, x: f64, y: f64, radius: f64) -> String {
        if self.0 < Self::KINDS {
            return shape(self.0, x, y, radius);
        }
        let (side, across) = (n(2.0 * radius), n(-2.0 * radius));
        format!("M{} {}l{side} {side}m{across} 0l{side} {across}", n(x - radius), n(y - radius))
    }
}

pub struct Series {
    pub label: String,
    pub look: Look,
    /// Shift to the right in pixels, so that lines with equal values do not cover one another.
    pub shift: f64,
    /// Points along x, each with its text on hovering.
    pub points: Vec<(f64, f64, String)>,
}

/// A published value: a box of x and y with its letter.
pub struct Band {
    pub letters: String,
    pub x: (f64, f64),
    pub y: (f64, f64),
    pub tip: String,
}

pub struct Panel<'a> {
    pub area: Rect,
    pub x: Scale,
    pub y: Scale,
    pub x_ticks: &'a [(f64, String)],
    pub y_ticks: &'a [(f64, String)],
    pub x_label: &'a str,
    /// Label left of the panel; empty if a neighbour shows it.
    pub y_label: &'a str,
    pub heading: &'a str,
    pub series: &'a [Series],
    pub bands: &'a [Band],
}

impl Panel<'_> {
    pub fn draw(&self, svg: &mut Svg) {
        let a = self.area;
        for (value, label) in self.y_ticks {
            let y = self.y.at(*value);
            svg.line(if *value == 0.0 { "zero" } else { "grid" }, a.x, y, a.right(), y);
            if !label.is_empty() {
                svg.text(a.x - 8.0, y + 4.0, "tick", Anchor::End, label);
            }
        }
        svg.line("axis", a.x, a.bottom(), a.right(), a.bottom());
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in self.x_ticks {
            let x = self.x.at(*value);
            svg.line("axis", x, a.bottom(), x, a.bottom() + 5.0);
            let half = text_width(label) / 2.0;
            if x - half >= free_from {
                svg.text(x, a.bottom() + 19.0, "tick", Anchor::Middle, label);
                free_from = x + half + 4.0;
            }
        }
        svg.text(a.x + a.width / 2.0, a.bottom() + 38.0, "label", Anchor::Middle, self.x_label);
        if !self.y_label.is_empty() {
            svg.vertical_text(a.x - 48.0, a.y + a.height / 2.0, "label", self.y_label);
        }
        if !self.heading.is_empty() {
            svg.text(a.x + a.width / 2.0, a.y - 8.0, "heading", Anchor::Middle, self.heading);
        }
        for (i, band) in self.bands.iter().enumerate() {
            // Labels of narrow bands at one x are stacked.
            let above = self.bands[..i].iter().filter(|b| b.is_narrow(&self.x) && b.x == band.x).count();
            self.band(svg, band, above);
        }
        for series in self.series {
            let corners: Vec<String> = series
                .points
                .iter()
                .map(|(x, y, _)| format!("{} {}", n(self.x.at(*x) + series.shift), n(self.y.at(*y))))
                .collect();
            if corners.len() > 1 {
                svg.path(&series.look.line_class(), &format!("M{}", corners.join("L")));
            }
        }
        // A filled marker is smaller than a hollow one and drawn after it: at equal values both are visible.
        let (full, hollow): (Vec<_>, Vec<_>) = self.series.iter().partition(|series| series.look.is_full());
        for series in hollow.into_iter().chain(full) {
            for (x, y, tip) in &series.points {
                svg.raw(&series.look.marker(self.x.at(*x) + series.shift, self.y.at(*y), tip));
            }
        }
    }

    /// A wide band has its letters on its top edge (in its right corner, if there is no room above). A narrow band has them at the panel's
    /// top, away from the data, with a line down to it.
    fn band(&self, svg: &mut Svg, band: &Band, above: usize) {
        let (x1, x2) = (self.x.at(band.x.0) - 12.0, self.x.at(band.x.1) + 12.0);
        let (top, bottom) = (self.y.at(band.y.1), self.y.at(band.y.0));
        let height = (bottom - top).max(3.0);
        svg.rect("band", Rect { x: x1, y: top, width: x2 - x1, height }, Some(&band.tip));
        let width = text_width(&band.letters) + 10.0;
        let (x, y) = if band.is_narrow(&self.x) {
            let y = self.area.y + above as f64 * 18.0;
            svg.line("leader", (x1 + x2) / 2.0, top, (x1 + x2) / 2.0, y + 16.0);
            ((x1 + x2 - width) / 2.0, y)
        } else if top - 17.0 >= self.area.y {
            (x1, top - 17.0)
        } else {
            (x2 - width, top)
        };
        let x = x.min(self.area.right() - width);
        svg.rect("tag", Rect { x, y, width, height: 16.0 }, Some(&band.tip));
        svg.text(x + width / 2.0, y + 12.0, "tagtext", Anchor::Middle, &band.letters);
    }
}

impl Band {
    fn is_narrow(&self, x: &Scale) -> bool {
        x.at(self.x.1) - x.at(self.x.0) < 40.0
    }
}

/// Draws a legend in rows from the left; returns its height. `items`: a symbol in a 30 × 14 box, and the label.
pub fn legend(svg: &mut Svg, area_x: f64, y: f64, width: f64, items: &[(LegendKey, String)]) -> f64 {
    let (mut x, mut row) = (area_x, y);
    for (key, label) in items {
        let needs = 38.0 + text_width(label) + 16.0;
        if x + needs > area_x + width && x > area_x {
            x = area_x;
            row += 20.0;
        }
        let middle = row + 8.0;
        match key {
            LegendKey::Line(look) => {
                svg.line(&look.line_class(), x, middle, x + 32.0, middle);
                svg.raw(&look.marker(x + 16.0, middle, ""));
            }
            LegendKey::Band => svg.rect("band", Rect { x: x + 2.0, y: row + 1.0, width: 28.0, height: 14.0 }, None),
            LegendKey::Mark(class, d) => svg.raw(&format!(
                "<path class=\"{class}\" transform=\"translate({} {})\" d=\"{d}\"/>",
                n(x + 16.0),
                n(middle)
            )),
            LegendKey::Drawn(markup) => {
                svg.raw(&format!("<g transform=\"translate({} {})\">{markup}</g>", n(x + 16.0), n(middle)));
            }
        }
        svg.text(x + 38.0, middle + 4.0, "legend", Anchor::Start, label);
        x += needs;
    }
    row + 20.0 - y
}

pub enum LegendKey {
    Line(Look),
    Band,
    /// Class, and a path around the origin.
    Mark(&'static str, &'static str),
    /// Trusted markup around the origin, 32 wide and 14 high.
    Drawn(String),
}

/// The height of a legend.
pub fn legend_height(width: f64, items: &[(LegendKey, String)]) -> f64 {
    legend(&mut Svg::new(0.0, 0.0), 0.0, 0.0, width, items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_by_hand() {
        let linear = Scale::linear((0.0, 10.0), (100.0, 200.0));
        assert_eq!([0.0, 5.0, 10.0, 99.0].map(|v| linear.at(v)), [100.0, 150.0, 200.0, 200.0]);
        let log = Scale::log2([8.0, 1024.0].into_iter(), (0.0, 70.0));
        assert_eq!([8.0, 16.0, 1024.0].map(|v| log.at(v)), [0.0, 10.0, 70.0]);
        // 0 has its place, one octave below the least value.
        let with_zero = Scale::log2([0.0, 100.0, 200.0, 400.0].into_iter(), (0.0, 30.0));
        assert_eq!([0.0, 100.0, 400.0].map(|v| with_zero.at(v).round()), [0.0, 10.0, 30.0]);
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Scale::linear((0.0, 80.0), (0.0, 1.0)).ticks(4), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(Scale::linear((-12.0, 71.0), (0.0, 1.0)).ticks(5), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(Scale::log2([8.0, 1024.0].into_iter(), (0.0, 1.0)).ticks(4), [16.0, 64.0, 256.0, 1024.0]);
    }

    #[test]
    fn scales_survive_what_they_are_given() {
        for scale in [
            Scale::linear((5.0, 5.0), (0.0, 1.0)),
            Scale::log2(std::iter::empty(), (0.0, 1.0)),
            Scale::log2([0.0].into_iter(), (0.0, 1.0)),
            Scale::log2([7.0].into_iter(), (0.0, 1.0)).padded(0.05),
        ] {
            assert!(scale.at(7.0).is_finite());
            assert!(scale.ticks(5).len() < 100);
        }
    }

    #[test]
    fn every_marker_differs() {
        let shapes: Vec<String> = (0..COLOURS).map(|i| shape(i, 0.0, 0.0, 4.0)).collect();
        for (i, s) in shapes.iter().enumerate() {
            assert!(!shapes[..i].contains(s));
        }
        let dots: Vec<_> = (0..=Dot::KINDS).map(|i| (Dot(i).class(), Dot(i).path(0.0, 0.0, 2.0))).collect();
        for (i, dot) in dots.iter().enumerate() {
            assert!(!dots[..i].contains(dot));
        }
    }

    #[test]
    fn a_name_fits_or_is_cut() {
        assert_eq!(fit("work (99)", 70.0), "work (99)");
        assert_eq!(fit("a name of many letters", 67.0), "a name of…");
        assert_eq!(fit("\u{1b}[2J", 70.0), "\\x1b[2J");
    }

    #[test]
    fn untrusted_text_stays_text() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text(0.0, 0.0, "tick", Anchor::Start, "</text><script>");
        let done = svg.finish("f", "<b>", "\u{1b}");
        assert!(!done.contains("<script") && !done.contains("<b>") && !done.contains('\u{1b}'));
    }
}
