//! The page for a study of runs.

use super::{figure, published, rows, studies};
use crate::figures;
use crate::flash_view;
use crate::runs_view::{tracer, views};
use crate::text::bytes;
use flashscope_study::runs::{RunGroup, RunsResult};

pub fn runs_study(result: &RunsResult) -> String {
    let contents = [("figures", "Over time"), ("tables", "Tables"), ("published", "Published"), ("groups", "Boots")];
    let mut page = studies::open(&result.header, &contents);
    page.heading("published", "Published values beside ours");
    page.add("published values", &published(&result.published));
    page.heading("tables", "Tables");
    for view in views(result) {
        page.add(view.heading, &rows(view.heading, &view.rows));
    }
    page.heading("figures", "Over time");
    for drawn in figures::runs_study(result) {
        page.add(&drawn.title, &figure(&drawn));
    }
    page.heading("groups", "Boots");
    for group in &result.groups {
        page.add(&group.id, &of_group(group));
    }
    studies::finish(page, &result.header)
}

fn of_group(group: &RunGroup) -> String {
    let [kernel, board] = studies::measured_on(&group.inputs);
    let known = vec![
        ("chip", group.chip.clone()),
        ("partition", bytes(group.partition_bytes)),
        kernel,
        board,
        ("tracer", tracer(group.tracer).to_owned()),
    ];
    let by_task = rows("By task", &flash_view::tasks(&group.by_task, usize::MAX));
    studies::boot(&group.id, &by_task, known, &group.losses)
}
