//! Figures, each with a caption that names its source and units.

mod axes;
mod bars;
mod blocks;
mod boot;
mod gain;
mod io;
mod layers;
mod load;
mod measure;
mod prediction;
mod replays;
mod runs;
mod spread;
mod stages;
mod timeline;
mod waits;

pub use boot::boot_study;
pub use layers::{layers, layers_study};
pub use prediction::figure as prediction;
pub use replays::replays_study;
pub use runs::runs_study;

use crate::svg::{STYLE, Svg};
use crate::text::{bytes, grouped, letter};
use crate::view::{Axis, Facet, Row, facets, group_words};
use flashscope_analysis::FlashReport;
use flashscope_analysis::block::BlockReport;
use flashscope_analysis::flash::BlockCounts;
use flashscope_study::{Group, StudyResult};

/// Largest number of chips with figures.
const MAX_CHIPS: usize = 16;
/// Largest number of block devices with a figure of each kind; those with most data are taken.
const MAX_DEVICES: usize = 4;
/// Width of every figure, pixels at 100 %.
const WIDTH: f64 = 920.0;

/// A figure for a page; with [`Figure::standalone`], a file.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Unique in its document; chosen by this crate.
    pub id: String,
    /// Plain text, untrusted.
    pub title: String,
    /// Content, units and source; plain text, untrusted.
    pub caption: String,
    /// The SVG element, with the classes of `figure.css`.
    pub svg: String,
}

impl Figure {
    /// `of` is the figure's subject, for screen readers. An id from a group's name is reduced to a word that can neither end an attribute
    /// nor lead to another directory.
    fn new(svg: Svg, id: String, of: &str, title: String, caption: String) -> Self {
        let harmless = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
        let id: String = id.chars().map(harmless).collect();
        Self { svg: svg.finish(&id, &format!("{title}: {of}"), &caption), id, title, caption }
    }

    /// The figure with its style inside.
    pub fn standalone(&self) -> String {
        match self.svg.split_once('\n') {
            Some((open, rest)) => format!("{open}\n<style>{STYLE}</style>\n{rest}"),
            None => self.svg.clone(),
        }
    }
}

/// Figures about all groups of a study: savings (figure 3-a of Olivier et al. (2014)) and flash reads (3-b).
pub fn study(result: &StudyResult) -> Vec<Figure> {
    let axis = Axis::of(result);
    let facets = facets(result, axis);
    let study = StudyFigures { result, axis, alone: facets.len() == 1, looks: Looks::of(result) };
    let mut figures = Vec::new();
    for (i, (facet, rows)) in facets.iter().enumerate() {
        figures.extend(gain::figure(&study, gain::TIME, i, facet, rows));
        figures.extend(gain::figure(&study, gain::READS, i, facet, rows));
        figures.extend(gain::figure(&study, gain::ENERGY, i, facet, rows));
        figures.extend(measure::figure(&study, measure::FLASH_READS, i, facet, rows));
        if axis == Axis::Interarrival {
            figures.extend(measure::figure(&study, measure::LATENCY, i, facet, rows));
        }
    }
    figures
}

/// One group's flash operations, over time and by block. `index`: index of the group, for the figures' ids.
pub fn group(index: usize, group: &Group) -> Vec<Figure> {
    let chip = &group.chip;
    let shape = Shape {
        chip: 0,
        pages_per_block: chip.block_bytes.checked_div(chip.page_bytes).unwrap_or(0),
        blocks: chip.blocks,
        page_bytes: chip.page_bytes,
    };
    of_chip(&format!("g{index}"), &group_words(group), &shape, &group.timeline, &group.blocks)
}

/// A trace's flash operations, by chip.
pub fn flash(report: &FlashReport) -> Vec<Figure> {
    let found = &report.found;
    let mut shapes: Vec<(Shape, &str)> = Vec::new();
    for chip in &report.chips {
        let shape = Shape {
            chip: chip.chip,
            pages_per_block: chip.pages_per_block,
            blocks: chip.blocks,
            page_bytes: chip.page_bytes,
        };
        shapes.push((shape, &chip.name));
    }
    // Chips with operations but without a description.
    for point in &found.timeline.points {
        if shapes.iter().all(|(shape, _)| shape.chip != point.chip) {
            shapes.push((Shape { chip: point.chip, pages_per_block: 0, blocks: 0, page_bytes: 0 }, "shape not known"));
        }
    }
    let several = shapes.len() > 1;
    let mut figures = Vec::new();
    for (shape, name) in shapes.iter().take(MAX_CHIPS) {
        let id = format!("chip{}", shape.chip);
        let mut drawn = of_chip(&id, &report.title, shape, &found.timeline, &found.blocks.blocks);
        if several {
            for figure in &mut drawn {
                figure.title = format!("{}: chip {}, {name}", figure.title, shape.chip);
            }
        }
        figures.extend(drawn);
    }
    figures
}

/// A trace's block I/O: sectors over time, time by stage, distribution of times, load, and waits behind others.
pub fn block(report: &BlockReport) -> Vec<Figure> {
    let mut figures = io::figures(report);
    figures.extend(stages::figures(report));
    figures.extend(spread::figures(report));
    figures.extend(load::figure(report));
    figures.extend(waits::figures(report));
    figures
}

/// A chip's geometry; 0 for unknown numbers.
struct Shape {
    chip: u16,
    pages_per_block: u32,
    blocks: u32,
    page_bytes: u32,
}

fn of_chip(
    id: &str,
    name: &str,
    shape: &Shape,
    timeline: &flashscope_analysis::flash::Timeline,
    blocks: &[BlockCounts],
) -> Vec<Figure> {
    [timeline::figure(id, name, shape, timeline), blocks::figure(id, name, shape, blocks)]
        .into_iter()
        .flatten()
        .collect()
}

/// Colours and dashes by meaning, equal in all figures of a document.
struct Looks<'a> {
    filesystems: Vec<&'a str>,
    patterns: Vec<&'a str>,
}

impl<'a> Looks<'a> {
    fn of(result: &'a StudyResult) -> Self {
        let mut looks = Self { filesystems: Vec::new(), patterns: Vec::new() };
        for group in &result.groups {
            if !looks.filesystems.contains(&group.filesystem.as_str()) {
                looks.filesystems.push(&group.filesystem);
            }
            for cell in &group.cells {
                if !looks.patterns.contains(&cell.pattern.as_str()) {
                    looks.patterns.push(&cell.pattern);
                }
            }
        }
        looks
    }

    fn filesystem(&self, name: &str) -> usize {
        self.filesystems.iter().position(|&f| f == name).unwrap_or(0)
    }

    /// Horizontal shift of a file system's lines, pixels.
    fn shift(&self, filesystem: &str) -> f64 {
        let middle = (self.filesystems.len() as f64 - 1.0) / 2.0;
        (self.filesystem(filesystem) as f64 - middle) * (24.0 / self.filesystems.len() as f64).min(7.0)
    }

    fn pattern(&self, name: &str) -> usize {
        self.patterns.iter().position(|&p| p == name).unwrap_or(0)
    }
}

/// For captions of figures with shifted lines.
const SHIFTED: &str = "Points of one column stand a little beside one another, so that none hides another.";

/// Data that all figures of a study share.
struct StudyFigures<'a> {
    result: &'a StudyResult,
    axis: Axis,
    /// There is only one facet: titles need not name it.
    alone: bool,
    looks: Looks<'a>,
}

impl StudyFigures<'_> {
    fn title(&self, what: &str, facet: &Facet<'_>) -> String {
        if self.alone { what.to_owned() } else { format!("{what}: {}", facet.words()) }
    }

    fn x_label(&self) -> &'static str {
        match self.axis {
            Axis::Count => "number of requests (log₂)",
            Axis::RequestBytes => "size of a request (log₂)",
            Axis::Interarrival => "time between requests, µs (log₂; 0 at the left end)",
        }
    }

    fn x_ticks(&self, rows: &[(&Group, Row<'_>)]) -> Vec<(f64, String)> {
        let mut values: Vec<u64> = rows.iter().map(|(_, row)| self.axis.value(&row.setting)).collect();
        values.sort_unstable();
        values.dedup();
        let label = |v| if self.axis == Axis::RequestBytes { bytes(v) } else { grouped(v) };
        values.into_iter().map(|v| (v as f64, label(v))).collect()
    }

    /// "8 requests", "4 KiB", "100 µs apart"
    fn x_words(&self, row: &Row<'_>) -> String {
        let value = self.axis.value(&row.setting);
        match self.axis {
            Axis::Count => format!("{} requests", grouped(value)),
            Axis::RequestBytes => format!("requests of {}", bytes(value)),
            Axis::Interarrival => format!("{} µs apart", grouped(value)),
        }
    }

    /// The letter of a published value, as in the table of comparisons.
    fn letter(&self, index: usize) -> String {
        letter(index)
    }
}
