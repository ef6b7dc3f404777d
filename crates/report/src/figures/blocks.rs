//! A map of a chip's erase blocks with reads, programs and erases of each (the spatial view of Flashmon v2, §3.3).

use super::{Figure, Shape, WIDTH};
use crate::svg::{Anchor, Rect, Svg, n};
use crate::text::grouped;
use flashscope_analysis::flash::{BlockCounts, FlashOp, OpCounts};
use std::fmt::Write;

/// Largest number of cells in a map; on larger chips a cell is several blocks.
const MAX_CELLS: u64 = 1024;
const COLUMNS: u64 = 128;
const CELL_HEIGHT: f64 = 12.0;
/// Height of a map without any operation.
const EMPTY_HEIGHT: f64 = 26.0;
/// Number of shades above zero.
pub(super) const LEVELS: u64 = 5;

/// `None` if the chip had no operation.
pub fn figure(id: &str, name: &str, shape: &Shape, blocks: &[BlockCounts]) -> Option<Figure> {
    let of_chip = || blocks.iter().filter(|b| b.chip == shape.chip);
    let last = u64::from(of_chip().map(|b| b.block).max()?);
    let total = u64::from(shape.blocks).max(last + 1);
    // Blocks after the last used one are not drawn: a partition may be a small part of its chip.
    let drawn = (last + 1).next_multiple_of(COLUMNS).min(total);
    let per_cell = drawn.div_ceil(MAX_CELLS);
    let cells = drawn.div_ceil(per_cell);
    let columns = COLUMNS.min(cells);
    let rows = cells.div_ceil(columns);
    let mut map = vec![OpCounts::default(); cells as usize];
    for block in of_chip() {
        map[(u64::from(block.block) / per_cell) as usize] += block.counts;
    }

    let (left, right, gap) = (78.0, 20.0, 54.0);
    let cell_width = ((WIDTH - left - right) / columns as f64).min(24.0);
    let height = rows as f64 * CELL_HEIGHT;
    let maps =
        [(FlashOp::Read, "reads"), (FlashOp::Program, "programs"), (FlashOp::Erase, "erases")].map(|(op, name)| {
            let counts: Vec<u64> = map.iter().map(|c| c.of(op)).collect();
            let touched = of_chip().filter(|b| b.counts.of(op) > 0).count() as u64;
            (name, counts, touched)
        });
    let filled = maps.iter().filter(|(_, _, touched)| *touched > 0).count() as f64;
    let mut svg = Svg::new(WIDTH, 6.0 + filled * (height + gap) + (3.0 - filled) * EMPTY_HEIGHT);
    let mut top = 26.0;
    for (name, counts, touched) in &maps {
        if *touched == 0 {
            svg.text(left, top - 8.0, "heading", Anchor::Start, &format!("{name}: none"));
            top += EMPTY_HEIGHT;
            continue;
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        let area = Rect { x: left, y: top, width: columns as f64 * cell_width, height };
        top += height + gap;
        let sum = grouped(counts.iter().sum());
        let heading = format!("{name}: {sum} in {} of {} blocks", grouped(*touched), grouped(total));
        svg.text(left, area.y - 8.0, "heading", Anchor::Start, &heading);
        for row in 0..rows {
            let y = area.y + (row as f64 + 0.75) * CELL_HEIGHT;
            svg.text(left - 8.0, y, "small", Anchor::End, &grouped(row * columns * per_cell));
        }
        shades(&mut svg, name, counts, most, columns, area, cell_width);
        // The last row may be shorter than the others.
        svg.path("frame", &outline(area, cells, columns, cell_width));
        scale(&mut svg, name, most, left, area.bottom() + 6.0);
    }
    let unit = if per_cell == 1 {
        "one erase block".to_owned()
    } else {
        format!("{} neighbouring erase blocks", grouped(per_cell))
    };
    let rest = if drawn < total {
        format!(" Blocks {} to {} saw none and are not drawn.", grouped(drawn), grouped(total - 1))
    } else {
        String::new()
    };
    let title = "Flash operations by erase block".to_owned();
    let caption = format!(
        "A cell is {unit}, in rows of {} from the first block; the number before a row is its first block. Darker cells have more operations, in five steps that each double; empty cells have none.{rest} Counted over the whole recording. Source: the recorded events.",
        grouped(columns)
    );
    let id = format!("blocks-{id}");
    Some(Figure::new(svg, id, name, title, caption))
}

/// The shade of a count, from 0 (none) to [`LEVELS`]. The darkest is for more than half of `most`; each lighter shade covers half as much;
/// the lightest covers the rest.
pub(super) fn level(count: u64, most: u64) -> u64 {
    if count == 0 {
        return 0;
    }
    (1..LEVELS).rev().find(|step| count > most >> (LEVELS - step)).map_or(1, |step| step + 1)
}

/// One path per shade; adjacent cells of a row are one run.
fn shades(svg: &mut Svg, class: &str, counts: &[u64], most: u64, columns: u64, area: Rect, cell_width: f64) {
    let mut paths = vec![String::new(); LEVELS as usize + 1];
    for (row, line) in counts.chunks(columns as usize).enumerate() {
        let mut column = 0;
        for run in line.chunk_by(|a, b| level(*a, most) == level(*b, most)) {
            let shade = level(run[0], most);
            if shade > 0 {
                let x = area.x + column as f64 * cell_width;
                let y = area.y + row as f64 * CELL_HEIGHT;
                let width = n(run.len() as f64 * cell_width);
                _ = write!(paths[shade as usize], "M{} {}h{width}v{CELL_HEIGHT}h-{width}z", n(x), n(y));
            }
            column += run.len();
        }
    }
    for (shade, path) in paths.iter().enumerate().skip(1) {
        svg.path(&format!("{class} h{shade}"), path);
    }
}

fn outline(area: Rect, cells: u64, columns: u64, cell_width: f64) -> String {
    let in_last = match cells % columns {
        0 => columns,
        rest => rest,
    };
    let (right, notch) = (n(area.right()), n(area.x + in_last as f64 * cell_width));
    let (bottom, above) = (n(area.bottom()), n(area.bottom() - CELL_HEIGHT));
    format!("M{x} {y}H{right}V{above}H{notch}V{bottom}H{x}z", x = n(area.x), y = n(area.y),)
}

/// The legend of the shades.
fn scale(svg: &mut Svg, class: &str, most: u64, x: f64, y: f64) {
    let mut x = x;
    let mut from = 1;
    for shade in 1..=LEVELS {
        let to = most >> (LEVELS - shade);
        if to < from {
            continue; // too few operations for this step
        }
        let label = if from == to { grouped(to) } else { format!("{}–{}", grouped(from), grouped(to)) };
        svg.rect(&format!("{class} h{shade}"), Rect { x, y: y + 1.0, width: 14.0, height: 10.0 }, None);
        svg.rect("frame", Rect { x, y: y + 1.0, width: 14.0, height: 10.0 }, None);
        svg.text(x + 19.0, y + 10.0, "small", Anchor::Start, &label);
        x += 19.0 + crate::svg::text_width(&label) + 14.0;
        from = to + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_up_to_the_most() {
        // For 64: 1–4, 5–8, 9–16, 17–32, 33–64.
        let steps: Vec<u64> = [0, 1, 4, 5, 8, 9, 16, 17, 32, 33, 64].iter().map(|&c| level(c, 64)).collect();
        assert_eq!(steps, [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        // For 1 there is one step: the darkest.
        assert_eq!((level(0, 1), level(1, 1)), (0, 5));
        assert_eq!((level(1, 2), level(2, 2)), (4, 5));
    }

    #[test]
    fn a_chip_of_a_million_blocks_stays_small() {
        let blocks: Vec<BlockCounts> = (0..1_000_000)
            .map(|block| BlockCounts {
                chip: 0,
                block,
                counts: OpCounts { reads: u64::from(block % 977), programs: u64::from(block % 89), erases: 1 },
            })
            .collect();
        let shape = Shape { chip: 0, pages_per_block: 64, blocks: 1_000_000, page_bytes: 2048 };
        let figure = figure("x", "big", &shape, &blocks).unwrap();
        assert!(figure.svg.len() < 100_000, "{}", figure.svg.len());
        assert!(figure.caption.contains("977 neighbouring erase blocks"), "{}", figure.caption);
    }
}
