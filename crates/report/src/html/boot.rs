//! The page for a boot study.

use super::published::published;
use super::{figure, rows, studies};
use crate::boot_view::{flashed, heading, phases};
use crate::figures;
use flashscope_study::boot::{BootGroup, BootResult};

/// The whole page.
pub fn boot_study(result: &BootResult) -> String {
    let contents =
        [("figures", "What the flash does"), ("phases", "Phases"), ("published", "Published"), ("groups", "Boards")];
    let mut page = studies::open(&result.header, &contents);
    page.heading("figures", "What the flash does");
    for drawn in figures::boot_study(result) {
        page.add(&drawn.title, &figure(&drawn));
    }
    page.heading("phases", "Phases, found in the operations");
    for group in &result.groups {
        for boot in &group.boots {
            let table = rows(&heading(group, boot), &phases(&boot.phases, 0, Some(boot.prompt_ns)));
            page.add("a boot's phases", &table);
        }
    }
    page.heading("published", "Published values beside ours");
    page.add("the published values", &published(&result.published));
    page.heading("groups", "Boards");
    for group in &result.groups {
        page.add(&group.id, &of_group(group));
    }
    studies::finish(page, &result.header)
}

fn of_group(group: &BootGroup) -> String {
    let [kernel, board] = studies::measured_on(&group.inputs);
    let known = vec![
        ("flashed", flashed(group)),
        ("chip", group.chip.clone()),
        kernel,
        board,
        ("root", group.root.packages.join(", ")),
    ];
    studies::boot(&group.id, "", known, &group.losses)
}
