//! Runs over time (Flashmon v2, figure 3): the workload and an equal time after it, and the whole observed time.

use super::{Figure, Shape, timeline};
use flashscope_study::runs::RunsResult;

/// Largest number of runs with figures: larger sweeps have only tables.
const MAX_RUNS: usize = 12;

pub fn runs_study(result: &RunsResult) -> Vec<Figure> {
    if result.groups.len() > MAX_RUNS {
        return Vec::new();
    }
    let mut figures = Vec::new();
    for group in &result.groups {
        let shape = Shape {
            chip: 0,
            pages_per_block: group.geometry.pages_per_block,
            blocks: group.chip_blocks,
            page_bytes: group.geometry.page_bytes,
        };
        for (index, of) in group.timelines.iter().enumerate() {
            let id = if index == 0 { group.id.clone() } else { format!("{}-whole", group.id) };
            let what = if index == 0 { "" } else { ", until the end of watching" };
            figures.extend(timeline::figure(&id, &group.id, &shape, of).map(|mut figure| {
                figure.title = format!("{}: {}{what}", figure.title, group.id);
                figure
            }));
        }
    }
    figures
}
