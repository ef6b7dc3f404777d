//! The page of a study of booting.

use super::page::{Header, Page};
use super::published::published;
use super::{facts, figure, losses, rows};
use crate::boot_view::{flashed, heading, phases};
use crate::figures;
use crate::text::escape;
use flashscope_study::boot::{BootGroup, BootResult};

/// The whole page.
pub fn boot_study(result: &BootResult) -> String {
    let contents =
        [("figures", "What the flash does"), ("phases", "Phases"), ("published", "Published"), ("groups", "Boards")];
    let header = Header {
        title: &result.header.title,
        question: &result.header.question,
        clock: &result.header.clock,
        contents: &contents,
    };
    let mut page = Page::new(&header);
    page.heading("figures", "What the flash does");
    for drawn in figures::boot_study(result) {
        page.add(&drawn.title, &figure(&drawn));
    }
    page.heading("phases", "Phases, found in the operations");
    for group in &result.groups {
        for boot in &group.boots {
            let table =
                rows(&heading(group, boot), &phases(&boot.phases, 0, Some(boot.prompt_ns)), "No flash operation.");
            page.add("a boot's phases", &table);
        }
    }
    page.heading("published", "Published values beside ours");
    page.add("the published values", &published(&result.published));
    page.heading("groups", "Boards");
    for group in &result.groups {
        page.add(&group.id, &of_group(group));
    }
    page.finish(&format!("Written by flashscope {}; schema {}.", result.header.flashscope, result.header.schema))
}

fn of_group(group: &BootGroup) -> String {
    let inputs = &group.inputs;
    let known = vec![
        ("flashed", flashed(group)),
        ("chip", group.chip.clone()),
        ("kernel", format!("{} ({})", inputs.kernel_release, inputs.kernel_package)),
        ("board", format!("{}, {}", inputs.board, inputs.qemu)),
        ("root", group.root.packages.join(", ")),
    ];
    format!(
        "<h3>{}</h3>\n<div class=\"box\">\n{}<h3>Losses</h3>\n{}</div>\n",
        escape(&group.id),
        facts(known),
        losses(group.losses.iter().map(|l| (l.name.as_str(), l.count, String::new(), l.meaning.as_str())))
    )
}
