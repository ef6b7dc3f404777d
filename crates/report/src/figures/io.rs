//! The I/O distribution: sectors and sizes over time, for reads and writes separately, by originator. bno_plot draws the same, with the
//! size as an axis of its own.

use super::axes::{TimeUnit, grid, thousands, time_ticks, time_unit};
use super::{Figure, MAX_DEVICES, WIDTH};
use crate::svg::{Anchor, Dot, LegendKey, Rect, Scale, Svg, fit, legend, legend_height};
use crate::text::{bios, bytes, duration, grouped, size};
use flashscope_analysis::block::{BlockReport, IoPoint, RequestKind};

/// Largest number of marks in all these figures together; with more, neighbours become one mark.
const MAX_MARKS: usize = 16_000;
/// Up to this number, marks have descriptions on hovering.
const FEW: usize = 400;
/// Kinds with sectors; all but the first two are rare.
const KINDS: [(RequestKind, &str); 6] = [
    (RequestKind::Read, "reads"),
    (RequestKind::Write, "writes"),
    (RequestKind::Discard, "discards"),
    (RequestKind::ZoneAppend, "zone appends"),
    (RequestKind::WriteZeroes, "writes of zeroes"),
    (RequestKind::SecureErase, "secure erases"),
];

/// One figure per device, those with most bios first.
pub fn figures(report: &BlockReport) -> Vec<Figure> {
    let found = &report.found.points;
    let mut devices: Vec<(u16, u64)> = Vec::new();
    for point in &found.points {
        match devices.iter_mut().find(|(device, _)| *device == point.device) {
            Some((_, bios)) => *bios += u64::from(point.bios),
            None => devices.push((point.device, point.bios.into())),
        }
    }
    devices.sort_by_key(|&(device, bios)| (std::cmp::Reverse(bios), device));
    devices.truncate(MAX_DEVICES);
    let mut figures: Vec<OneDevice<'_>> = devices.iter().map(|&(device, _)| OneDevice::of(report, device)).collect();
    let mut step = 1;
    while figures.iter().map(|one| one.marks.len()).sum::<usize>() > MAX_MARKS {
        step *= 2;
        figures.iter_mut().for_each(|one| one.coarsen(step));
    }
    figures.iter().map(|one| one.draw(report)).collect()
}

/// The mark of an owner: the first owners, which have most bios, have marks of their own.
fn dot(owner: u16) -> u8 {
    owner.min(Dot::KINDS as u16) as u8
}

/// The bios of one mark.
#[derive(Clone, Copy, Default)]
struct Sum {
    bios: u64,
    bytes: u64,
    /// The lowest and the highest owner number.
    owners: Option<(u16, u16)>,
}

impl Sum {
    fn add(&mut self, point: &IoPoint) {
        self.bios += u64::from(point.bios);
        self.bytes = self.bytes.saturating_add(point.bytes);
        let (first, last) = self.owners.unwrap_or((point.owner, point.owner));
        self.owners = Some((first.min(point.owner), last.max(point.owner)));
    }

    fn words(&self, names: &[String]) -> String {
        let name = match self.owners {
            Some((first, last)) if first == last => name(names, first),
            _ => "(further owners)",
        };
        format!("{} ({}, {})", fit(name, 200.0), bios(self.bios), size(self.bytes))
    }
}

fn name(names: &[String], owner: u16) -> &str {
    names.get(usize::from(owner)).map_or("?", |name| name)
}

/// A mark before drawing: panel, the owner's mark, and its position in the panel in pixels.
type Mark = (u8, u8, i16, i16);

struct OneDevice<'a> {
    device: u16,
    points: Vec<&'a IoPoint>,
    /// The kinds of [`KINDS`] that occur: index, number of bios, bytes.
    kinds: Vec<(usize, u64, u64)>,
    sectors: Scale,
    bytes: Scale,
    time: Scale,
    begin_ns: u64,
    /// The bios of each mark.
    sums: Vec<Sum>,
    marks: Vec<Mark>,
}

const LEFT: f64 = 112.0;
const PLOT: f64 = WIDTH - LEFT - 20.0;
const SECTORS_HEIGHT: f64 = 180.0;
const BYTES_HEIGHT: f64 = 84.0;

/// Height of a kind's panels: discards are few.
fn height(kind: usize) -> f64 {
    if matches!(KINDS[kind].0, RequestKind::Read | RequestKind::Write) { 1.0 } else { 0.55 }
}

fn bin_sectors(report: &BlockReport, device: u16) -> u64 {
    report.found.points.bin_sectors.get(usize::from(device)).copied().unwrap_or(1)
}

/// Mean size of a point's bios, bytes. At least one page in either direction.
fn bytes_each(point: &IoPoint) -> f64 {
    point.bytes as f64 / f64::from(point.bios.max(1))
}

impl<'a> OneDevice<'a> {
    fn of(report: &'a BlockReport, device: u16) -> Self {
        let found = &report.found;
        let points: Vec<&IoPoint> = found.points.points.iter().filter(|p| p.device == device).collect();
        let mut kinds = Vec::new();
        for (i, (kind, _)) in KINDS.iter().enumerate() {
            let of_kind = points.iter().filter(|p| p.kind == *kind);
            let (bios, sum) =
                of_kind.fold((0, 0), |(n, sum): (u64, u64), p| (n + u64::from(p.bios), sum.saturating_add(p.bytes)));
            if bios > 0 {
                kinds.push((i, bios, sum));
            }
        }
        let mut sums = vec![Sum::default(); Dot::KINDS + 1];
        points.iter().for_each(|point| sums[usize::from(dot(point.owner))].add(point));
        // At least a page either way.
        let half = (bin_sectors(report, device) / 2).max(8);
        let low = points.iter().map(|p| p.sector.saturating_sub(half)).min().unwrap_or(0);
        let high = points.iter().map(|p| p.sector.saturating_add(half)).max().unwrap_or(0);
        let first = points.iter().map(|p| p.time_ns).min().unwrap_or(0);
        let last = points.iter().map(|p| p.time_ns).max().unwrap_or(0);
        let (begin_ns, end) = (found.stages.begin_ns.min(first), found.stages.end_ns.max(last));
        let mut one = Self {
            device,
            kinds,
            sectors: Scale::linear((low as f64, high as f64), (SECTORS_HEIGHT, 0.0)).padded(0.03),
            bytes: Scale::log2(points.iter().map(|p| bytes_each(p)), (BYTES_HEIGHT, 0.0)).padded(0.1),
            time: Scale::linear((0.0, (end - begin_ns) as f64), (0.0, PLOT)).padded(0.005),
            begin_ns,
            points,
            sums,
            marks: Vec::new(),
        };
        let mut marks = Vec::with_capacity(one.points.len() * 2);
        for point in &one.points {
            let Some(row) = one.row(point.kind) else { continue };
            let (x, sector, bytes) = one.place(point);
            marks.push((2 * row, dot(point.owner), x.round() as i16, sector.round() as i16));
            marks.push((2 * row + 1, dot(point.owner), x.round() as i16, bytes.round() as i16));
        }
        marks.sort_unstable();
        marks.dedup();
        one.marks = marks;
        one
    }

    /// The row of panels for a kind.
    fn row(&self, kind: RequestKind) -> Option<u8> {
        self.kinds.iter().position(|(k, ..)| KINDS[*k].0 == kind).map(|row| row as u8)
    }

    /// Position in the panels: x, y by sector, y by size.
    fn place(&self, point: &IoPoint) -> (f64, f64, f64) {
        let x = self.time.at(point.time_ns.saturating_sub(self.begin_ns) as f64);
        let high = KINDS.iter().position(|(kind, _)| *kind == point.kind).map_or(1.0, height);
        (x, self.sectors.at(point.sector as f64) * high, self.bytes.at(bytes_each(point)) * high)
    }

    fn coarsen(&mut self, step: i16) {
        for (_, _, x, y) in &mut self.marks {
            (*x, *y) = (*x / step * step, *y / step * step);
        }
        self.marks.sort_unstable();
        self.marks.dedup();
    }

    fn draw(&self, report: &BlockReport) -> Figure {
        let found = &report.found.points;
        let items: Vec<(LegendKey, String)> = self
            .sums
            .iter()
            .enumerate()
            .filter(|(_, sum)| sum.owners.is_some())
            .map(|(dot, sum)| {
                let drawn = format!("<path class=\"{}\" d=\"{}\"/>", Dot(dot).class(), Dot(dot).path(0.0, 0.0, 4.0));
                (LegendKey::Drawn(drawn), sum.words(&found.owners))
            })
            .collect();
        let top = legend_height(WIDTH - 40.0, &items) + 30.0;
        let heights = self.kinds.iter().map(|&(kind, ..)| (SECTORS_HEIGHT + BYTES_HEIGHT) * height(kind) + 52.0);
        let mut svg = Svg::new(WIDTH, top + heights.sum::<f64>() + 8.0);
        legend(&mut svg, 20.0, 2.0, WIDTH - 40.0, &items);
        let unit = time_unit(report.found.stages.end_ns.saturating_sub(self.begin_ns));
        let time = self.time.scaled(1.0, LEFT);
        let (mut areas, mut y) = (Vec::new(), top);
        for (row, &(kind, n, sum)) in self.kinds.iter().enumerate() {
            let high = height(kind);
            let area = Rect { x: LEFT, y, width: PLOT, height: SECTORS_HEIGHT * high };
            let below = Rect { y: area.bottom() + 10.0, height: BYTES_HEIGHT * high, ..area };
            y = below.bottom() + 42.0;
            let heading = format!("{}: {}, {}", KINDS[kind].1, bios(n), size(sum));
            svg.text(LEFT, area.y - 8.0, "heading", Anchor::Start, &heading);
            let ticks: Vec<f64> = self
                .sectors
                .ticks((5.0 * high) as usize)
                .into_iter()
                .filter(|t| *t >= 0.0 && t.fract() == 0.0)
                .collect();
            grid(&mut svg, area, &self.sectors.scaled(high, area.y), &ticks, thousands);
            grid(&mut svg, below, &self.bytes.scaled(high, below.y), &self.bytes.ticks((4.0 * high) as usize), |t| {
                bytes(t as u64)
            });
            svg.vertical_text(16.0, area.y + area.height / 2.0, "label", "first sector");
            svg.vertical_text(16.0, below.y + below.height / 2.0, "label", "size");
            time_ticks(&mut svg, below, &time, unit, row + 1 == self.kinds.len());
            areas.extend([area, below]);
        }
        self.dots(&mut svg, &areas, &found.owners, unit);
        areas.iter().for_each(|area| svg.rect("frame", *area, None));
        if let Some(lowest) = areas.last() {
            let label = format!("time of completion from the first block event, {}", unit.name);
            svg.text(LEFT + PLOT / 2.0, lowest.bottom() + 38.0, "label", Anchor::Middle, &label);
        }

        let device = found.devices.get(usize::from(self.device)).map_or("?", |name| name);
        let title = format!("Which sectors of {device}, and how much at once, by originator");
        let sectors = bin_sectors(report, self.device);
        let binned = if found.bin_ns > 1 || sectors > 1 {
            format!(
                "A mark represents all bios of its originator and direction in {} and {} sectors; its size is their mean.",
                duration(found.bin_ns),
                grouped(sectors)
            )
        } else {
            "A mark is one bio, or several that fall on one place.".to_owned()
        };
        let caption = format!(
            "Completed bios by time of completion: first sector (512 bytes each) above, bytes of the bio (log₂) below; reads and writes apart. {binned} Mark and colour: the originator. Source: the recorded block events. Compare bno_plot of blktrace."
        );
        Figure::new(svg, format!("io-{}", self.device), &report.title, title, caption)
    }

    /// One path for each owner and panel; or one for each bio, if they are few.
    fn dots(&self, svg: &mut Svg, areas: &[Rect], names: &[String], unit: TimeUnit) {
        if self.points.len() <= FEW {
            for point in &self.points {
                let Some(row) = self.row(point.kind) else { continue };
                let (x, sector, bytes) = self.place(point);
                let tip = format!(
                    "{}: sector {}, {} in {}, at {} {}",
                    name(names, point.owner),
                    grouped(point.sector),
                    size(point.bytes),
                    bios(point.bios.into()),
                    thousands(point.time_ns.saturating_sub(self.begin_ns) as f64 / unit.ns),
                    unit.name
                );
                let kind = Dot(dot(point.owner).into());
                for (panel, y) in [(2 * row, sector), (2 * row + 1, bytes)] {
                    let area = areas[usize::from(panel)];
                    svg.tipped_path(&kind.class(), &kind.path(area.x + x, area.y + y, 3.2), &tip);
                }
            }
            return;
        }
        let radius = if self.marks.len() > 3000 { 1.6 } else { 2.2 };
        // The largest owner is drawn first, so that it covers no other: marks are sorted by panel and owner.
        for marks in self.marks.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (panel, dot) = (marks[0].0, marks[0].1);
            let (area, kind) = (areas[usize::from(panel)], Dot(dot.into()));
            let path: String =
                marks.iter().map(|m| kind.path(area.x + f64::from(m.2), area.y + f64::from(m.3), radius)).collect();
            svg.tipped_path(&kind.class(), &path, &self.sums[usize::from(dot)].words(names));
        }
    }
}
