//! A matrix of waits: originators in rows wait behind those in columns.

use super::blocks::{LEVELS, level};
use super::{Figure, MAX_DEVICES, WIDTH};
use crate::block_view::{wait_stage, waited};
use crate::svg::{Anchor, Rect, Svg, text_width};
use crate::text::{digits, duration, grouped, number, percent, visible};
use flashscope_analysis::block::{BlockReport, WaitBehind};
use std::collections::HashMap;

/// Largest number of originators in a matrix; the others are summed in one more row and column.
const MAX_OWNERS: usize = 12;
const ROW: f64 = 36.0;
/// Largest height of a name above a column, pixels.
const MAX_RISE: f64 = 150.0;
const LEFT: f64 = 206.0;

/// One figure per device, those with the longest waits first.
pub fn figures(report: &BlockReport) -> Vec<Figure> {
    let mut devices: Vec<(&str, u64, Vec<&WaitBehind>)> = Vec::new();
    for pair in &report.found.interference.pairs {
        match devices.iter_mut().find(|(device, ..)| *device == pair.device) {
            Some((_, sum, pairs)) => {
                *sum = sum.saturating_add(waited(pair));
                pairs.push(pair);
            }
            None => devices.push((&pair.device, waited(pair), vec![pair])),
        }
    }
    devices.retain(|(_, sum, _)| *sum > 0);
    devices.sort_by_key(|(_, sum, _)| std::cmp::Reverse(*sum));
    devices
        .iter()
        .take(MAX_DEVICES)
        .enumerate()
        .map(|(i, (device, _, pairs))| Matrix::of(report, device, pairs).draw(report, i, device))
        .collect()
}

#[derive(Clone, Default)]
struct Cell {
    ns: u64,
    /// Waits by stage, as text.
    parts: Vec<String>,
}

struct Matrix {
    /// Names of rows and columns; the last one may stand for several originators.
    names: Vec<String>,
    /// Total Q2C of each.
    q2c_ns: Vec<u64>,
    /// Cells by waiting owner, then by the owner it waits behind.
    cells: Vec<Vec<Cell>>,
    /// The last row and column are a sum.
    others: bool,
}

impl Matrix {
    fn of(report: &BlockReport, device: &str, pairs: &[&WaitBehind]) -> Self {
        // Ranked by the sum of waits suffered and caused.
        let mut sums: HashMap<&str, u64> = HashMap::new();
        for pair in pairs {
            for name in [&pair.victim, &pair.behind] {
                let sum = sums.entry(name).or_default();
                *sum = sum.saturating_add(waited(pair));
            }
        }
        let mut ranked: Vec<(&str, u64)> = sums.into_iter().collect();
        ranked.sort_by_key(|&(name, sum)| (std::cmp::Reverse(sum), name));
        // A single remaining owner gets its own row.
        let own = if ranked.len() > MAX_OWNERS + 1 { MAX_OWNERS } else { ranked.len() };
        let place: HashMap<&str, usize> = ranked.iter().enumerate().map(|(i, &(name, _))| (name, i.min(own))).collect();
        let mut names: Vec<String> = ranked[..own].iter().map(|(name, _)| (*name).to_owned()).collect();
        let others = own < ranked.len();
        if others {
            names.push(format!("{} others", grouped((ranked.len() - own) as u64)));
        }
        let mut q2c_ns = vec![0u64; names.len()];
        for load in report.found.interference.owners.iter().filter(|load| load.device == device) {
            if let Some(&at) = place.get(load.owner.as_str()) {
                q2c_ns[at] = q2c_ns[at].saturating_add(load.mean_q2c_ns.saturating_mul(load.bios));
            }
        }
        let mut cells = vec![vec![Cell::default(); names.len()]; names.len()];
        for pair in pairs {
            let cell = &mut cells[place[pair.victim.as_str()]][place[pair.behind.as_str()]];
            cell.ns = cell.ns.saturating_add(waited(pair));
            // For the summed row and column, the total is enough.
            if place[pair.victim.as_str()].max(place[pair.behind.as_str()]) < own {
                cell.parts.push(format!(
                    "{} {} (served {}, hand-over {})",
                    duration(waited(pair)),
                    wait_stage(pair.stage),
                    duration(pair.served_ns),
                    duration(pair.handover_ns)
                ));
            }
        }
        Self { names, q2c_ns, cells, others }
    }

    fn draw(&self, report: &BlockReport, index: usize, device: &str) -> Figure {
        let count = self.names.len();
        let longest = self.names.iter().map(|name| text_width(&visible(name))).fold(0.0, f64::max).min(MAX_RISE);
        // Names rise at 45 degrees; those of the last columns need room on the right.
        let rise = longest.max(text_width("all together")) * std::f64::consts::FRAC_1_SQRT_2;
        let top = rise + 44.0;
        let column = ((WIDTH - LEFT - 58.0) / (count + 1) as f64).min(76.0);
        let bottom = top + ROW * (count + 1) as f64;
        let mut svg = Svg::new(WIDTH, bottom + 16.0);
        svg.text(LEFT, 16.0, "heading", Anchor::Start, "behind whom");
        svg.text(LEFT - 10.0, top - 8.0, "heading", Anchor::End, "who waits");
        let cells = || self.cells.iter().flatten();
        let most = cells().map(|cell| cell.ns).max().unwrap_or(0);
        let x = |at: usize| LEFT + at as f64 * column + if at == count { 8.0 } else { 0.0 };
        let y = |at: usize| top + at as f64 * ROW + if at == count { 8.0 } else { 0.0 };
        for (i, name) in self.names.iter().map(String::as_str).chain(["all together"]).enumerate() {
            svg.rising_name(x(i) + column / 2.0, top - 8.0, "legend", name, MAX_RISE);
            svg.name(LEFT - 10.0, y(i) + 22.0, "legend", Anchor::End, name, LEFT - 20.0);
        }
        let all = self.q2c_ns.iter().fold(0u64, |sum, &ns| sum.saturating_add(ns));
        let mut whole = 0u64;
        for (i, line) in self.cells.iter().enumerate() {
            let mut sum = 0u64;
            for (j, cell) in line.iter().enumerate() {
                let r = Rect { x: x(j), y: y(i), width: column, height: ROW };
                sum = sum.saturating_add(cell.ns);
                let alone = i == j && !(self.others && i == count - 1);
                if alone {
                    svg.rect("frame", r, None);
                    svg.line("grid", r.x, r.bottom(), r.right(), r.y);
                    continue;
                }
                let tip = format!("{} behind {}: {}", self.names[i], self.names[j], cell.words());
                let shade = match level(cell.ns, most) {
                    0 => "hit".to_owned(),
                    step => format!("wait h{step}"),
                };
                svg.rect(&shade, r, Some(&tip));
                svg.rect("frame", r, None);
                numbers(&mut svg, r, cell.ns, self.q2c_ns[i]);
            }
            whole = whole.saturating_add(sum);
            numbers(&mut svg, Rect { x: x(count), y: y(i), width: column, height: ROW }, sum, self.q2c_ns[i]);
        }
        for j in 0..count {
            let sum = self.cells.iter().fold(0u64, |sum, line| sum.saturating_add(line[j].ns));
            numbers(&mut svg, Rect { x: x(j), y: y(count), width: column, height: ROW }, sum, all);
        }
        numbers(&mut svg, Rect { x: x(count), y: y(count), width: column, height: ROW }, whole, all);

        let title = format!("Who waits behind whom on {device}");
        let caption = format!(
            "Each row is an originator whose bios waited; each column is the originator they waited behind. A cell has the sum of the waits in milliseconds, and below it their share of Q2C (in the last row: of all Q2C), from 0.05 % on. Stronger colours are longer waits, in {LEVELS} steps that each double; 0 is below half a microsecond. A wait is the time in which the device served the other, and the hand-over from it. Waits behind one's own requests and times within the device (D2C) are not counted. Source: the recorded block events."
        );
        Figure::new(svg, format!("waits-{index}"), &report.title, title, caption)
    }
}

impl Cell {
    fn words(&self) -> String {
        match (self.ns, self.parts.as_slice()) {
            (0, _) => "no wait".to_owned(),
            (ns, []) => duration(ns),
            (_, parts) => parts.join("; "),
        }
    }
}

fn numbers(svg: &mut Svg, r: Rect, ns: u64, of: u64) {
    if ns == 0 {
        svg.text(r.x + r.width / 2.0, r.y + 22.0, "small", Anchor::Middle, "–");
        return;
    }
    let share = if of > 0 { ns as f64 / of as f64 * 100.0 } else { 0.0 };
    let shown = share >= 0.05;
    let line = r.y + if shown { 16.0 } else { 22.0 };
    svg.text(r.x + r.width / 2.0, line, "on halo", Anchor::Middle, &digits(ns as f64 / 1e6));
    if shown {
        let share = if share < 9.95 { percent(share) } else { format!("{} %", number(share, 0)) };
        svg.text(r.x + r.width / 2.0, r.y + 30.0, "on halo", Anchor::Middle, &share);
    }
}
