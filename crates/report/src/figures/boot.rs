//! Boots of root file systems: figure 2 of Olivier et al. (2013).

use super::{Figure, Shape, timeline};
use crate::boot_view::{heading, spans};
use flashscope_analysis::flash::Timeline;
use flashscope_study::boot::BootResult;

/// Each boot's flash operations over time, with its phases below.
pub fn boot_study(result: &BootResult) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (i, group) in result.groups.iter().enumerate() {
        let shape = Shape { chip: 0, pages_per_block: group.pages_per_block, blocks: 0, page_bytes: group.page_bytes };
        for (j, boot) in group.boots.iter().enumerate() {
            let marked = Timeline { spans: spans(boot), ..boot.timeline.clone() };
            let words = heading(group, boot);
            if let Some(mut drawn) = timeline::figure(&format!("g{i}-{j}"), &words, &shape, &marked) {
                drawn.title = words;
                figures.push(drawn);
            }
        }
    }
    figures
}
