//! Load over time: bios in flight, requests in the devices, throughput, merges and seeks.

use super::axes::{grid, thousands, time_ticks, time_unit};
use super::{Figure, WIDTH};
use crate::svg::{Anchor, LegendKey, Look, Rect, Scale, Svg, legend, legend_height, n};
use crate::text::{digits, duration, grouped, size};
use flashscope_analysis::block::{BlockReport, BlockWindow};
use std::fmt::Write;

/// Largest number of columns; with more windows, neighbours are combined.
const MAX_COLUMNS: usize = 512;
const HEIGHT: f64 = 92.0;
const LEFT: f64 = 78.0;
const MAIN: Look = Look { colour: 0, dash: 0 };
const BESIDE: Look = Look { colour: 1, dash: 1 };
const MOST: Look = Look { colour: 5, dash: 2 };

/// A line of a panel: look, name, and value in each column. `None` if the trace lacks the events for it.
type Line = (Look, &'static str, Option<Vec<f64>>);

/// One or several windows, with their time.
struct Column {
    begin_ns: u64,
    end_ns: u64,
    sum: BlockWindow,
}

/// `None` if the trace has no event.
pub fn figure(report: &BlockReport) -> Option<Figure> {
    let columns = columns(report);
    let (begin_ns, end_ns) = (columns.first()?.begin_ns, columns.last()?.end_ns);
    let values = |f: &dyn Fn(&Column) -> Option<f64>| columns.iter().map(f).collect::<Option<Vec<f64>>>();
    let of = |f: fn(&BlockWindow) -> Option<u64>| values(&|c: &Column| Some(f(&c.sum)? as f64));
    let milli = |f: fn(&BlockWindow) -> Option<u64>| values(&|c: &Column| Some(f(&c.sum)? as f64 / 1e3));
    let rate = |bytes: fn(&BlockWindow) -> Option<u64>| {
        values(&|c: &Column| Some(bytes(&c.sum)? as f64 * 1e9 / (c.end_ns - c.begin_ns).max(1) as f64))
    };
    let (reads, writes) = (rate(|w| w.read_bytes), rate(|w| w.written_bytes));
    let fastest = reads.iter().chain(&writes).flatten().copied().fold(0.0, f64::max);
    let (unit, per) = if fastest >= 1048576.0 { ("MiB/s", 1048576.0) } else { ("KiB/s", 1024.0) };
    let scaled = |rates: Option<Vec<f64>>| Some(rates?.into_iter().map(|rate| rate / per).collect::<Vec<f64>>());
    let width_ns = columns.iter().map(|c| c.end_ns - c.begin_ns).max().unwrap_or(0);
    let panels: [(String, Vec<Line>); 4] = [
        (
            "Bios in flight, from Q to C".to_owned(),
            vec![(MAIN, "mean", milli(|w| w.in_flight_milli)), (MOST, "most", of(|w| w.most_in_flight))],
        ),
        (
            "Requests in the devices, from D to C".to_owned(),
            vec![(MAIN, "mean", milli(|w| w.in_device_milli)), (MOST, "most", of(|w| w.most_in_device))],
        ),
        (format!("Completed, {unit}"), vec![(MAIN, "reads", scaled(reads)), (BESIDE, "writes", scaled(writes))]),
        (
            format!("Merges and seeks in {}", duration(width_ns)),
            vec![(MAIN, "merges", of(|w| w.merges)), (BESIDE, "seeks", of(|w| w.seeks))],
        ),
    ];

    let width = WIDTH - LEFT - 20.0;
    let span = end_ns - begin_ns;
    let x = Scale::linear((0.0, span as f64), (LEFT, LEFT + width));
    let at = |ns: u64| x.at((ns - begin_ns) as f64);
    let (row, top) = (HEIGHT + 56.0, 4.0);
    let mut svg = Svg::new(WIDTH, top + row * panels.len() as f64 + 36.0);
    let unit_of_time = time_unit(span);
    for (i, (heading, lines)) in panels.iter().enumerate() {
        let y = top + row * i as f64;
        let known = lines.iter().any(|(.., values)| values.is_some());
        let heading = if known { heading.clone() } else { format!("{heading}: unknown") };
        svg.text(LEFT, y + 14.0, "heading", Anchor::Start, &heading);
        let items: Vec<(LegendKey, String)> = lines
            .iter()
            .map(|(look, name, _)| {
                let drawn = format!("<path class=\"{}\" d=\"M-14 0h28\"/>", look.line_class());
                (LegendKey::Drawn(drawn), (*name).to_owned())
            })
            .collect();
        debug_assert!(legend_height(300.0, &items) <= 20.0);
        legend(&mut svg, LEFT + width - 230.0, y + 2.0, 300.0, &items);
        let area = Rect { x: LEFT, y: y + 26.0, width, height: HEIGHT };
        let most = lines.iter().flat_map(|l| &l.2).flatten().copied().fold(0.0, f64::max);
        let scale = Scale::linear((0.0, most * 1.05), (area.bottom(), area.y));
        grid(&mut svg, area, &scale, &scale.ticks(3), thousands);
        // The first line is drawn last, so it is on top.
        for (look, _, values) in lines.iter().rev() {
            if let Some(values) = values {
                svg.path(&look.line_class(), &steps(&columns, values, &at, &scale));
            }
        }
        svg.rect("frame", area, None);
        time_ticks(&mut svg, area, &x, unit_of_time, i + 1 == panels.len());
    }
    let height = row * (panels.len() - 1) as f64 + HEIGHT;
    for c in &columns {
        let r = Rect { x: at(c.begin_ns), y: top + 26.0, width: at(c.end_ns) - at(c.begin_ns), height };
        svg.rect("hit", r, Some(&words(c, begin_ns)));
    }
    let label = format!("time from the first block event, {}", unit_of_time.name);
    svg.text(LEFT + width / 2.0, top + 26.0 + height + 40.0, "label", Anchor::Middle, &label);

    let title = "Load over time, all devices".to_owned();
    let caption = format!(
        "Each step of a line is {}. Mean: over that time; most: the highest value in it. A seek is a request that does not begin where the device's previous request ended. {} Source: the recorded block events.",
        duration(width_ns),
        crate::block_view::load(&report.found).join(" ")
    );
    Some(Figure::new(svg, "load".to_owned(), &report.title, title, caption))
}

/// The windows from the first event to the last one.
fn columns(report: &BlockReport) -> Vec<Column> {
    let (load, stages) = (&report.found.over_time, &report.found.stages);
    let together = load.windows.len().div_ceil(MAX_COLUMNS).max(1);
    let mut columns: Vec<Column> = Vec::new();
    for (i, windows) in load.windows.chunks(together).enumerate() {
        let at = |window: usize| load.begin_ns.saturating_add((window as u64).saturating_mul(load.window_ns));
        let (begin, end) = (at(i * together), at(i * together + windows.len()));
        let begin_ns = begin.max(stages.begin_ns.min(end));
        let end_ns = if i == 0 || stages.end_ns > begin { end.min(stages.end_ns.max(begin_ns)) } else { end };
        let all = |of: fn(&BlockWindow) -> Option<u64>, put: fn(u64, u64) -> u64| {
            windows.iter().try_fold(0, |all, window| Some(put(all, of(window)?)))
        };
        let mean = |of| all(of, u64::saturating_add).map(|all| all / windows.len() as u64);
        let sum = BlockWindow {
            queued: all(|w| w.queued, u64::saturating_add),
            completed: all(|w| w.completed, u64::saturating_add),
            read_bytes: all(|w| w.read_bytes, u64::saturating_add),
            written_bytes: all(|w| w.written_bytes, u64::saturating_add),
            merges: all(|w| w.merges, u64::saturating_add),
            seeks: all(|w| w.seeks, u64::saturating_add),
            in_flight_milli: mean(|w| w.in_flight_milli),
            in_device_milli: mean(|w| w.in_device_milli),
            most_in_flight: all(|w| w.most_in_flight, u64::max),
            most_in_device: all(|w| w.most_in_device, u64::max),
        };
        columns.push(Column { begin_ns, end_ns, sum });
    }
    columns
}

/// A step line over the columns; equal neighbours are one step.
fn steps(columns: &[Column], values: &[f64], at: &impl Fn(u64) -> f64, y: &Scale) -> String {
    let mut d = String::new();
    let mut level = None;
    for (column, &value) in columns.iter().zip(values) {
        let (from, height) = (n(at(column.begin_ns)), n(y.at(value)));
        match &level {
            None => d = format!("M{from} {height}"),
            Some(before) if *before != height => _ = write!(d, "H{from}V{height}"),
            Some(_) => continue,
        }
        level = Some(height);
    }
    if let Some(last) = columns.last() {
        _ = write!(d, "H{}", n(at(last.end_ns)));
    }
    d
}

fn words(c: &Column, begin_ns: u64) -> String {
    let w = &c.sum;
    let of = |n: Option<u64>, shown: fn(u64) -> String| n.map_or_else(|| "unknown".to_owned(), shown);
    let milli = |n: Option<u64>| of(n, |n| digits(n as f64 / 1e3));
    format!(
        "from {}: {} bios in flight (most {}), {} requests in the devices (most {}), {} read, {} written, {} merges, {} seeks",
        duration(c.begin_ns - begin_ns),
        milli(w.in_flight_milli),
        of(w.most_in_flight, grouped),
        milli(w.in_device_milli),
        of(w.most_in_device, grouped),
        of(w.read_bytes, size),
        of(w.written_bytes, size),
        of(w.merges, grouped),
        of(w.seeks, grouped)
    )
}
