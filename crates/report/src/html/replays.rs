//! The page for a study of replays.

use super::{figure, published, rows, studies};
use crate::figures;
use crate::replays_view::{recommendations, views};
use crate::text::{duration, escape};
use flashscope_study::replays::{ReplayGroup, ReplaysResult};

pub fn replays_study(result: &ReplaysResult) -> String {
    let contents = [("published", "Published"), ("tables", "Tables"), ("figures", "Figures"), ("groups", "Boots")];
    let mut page = studies::open(&result.header, &contents);
    page.heading("published", "Published values beside ours");
    page.add("published values", &published(&result.published));
    page.heading("tables", "Tables");
    for said in recommendations(&result.levers) {
        page.add("what to use", &format!("<p>{}</p>\n", escape(&said)));
    }
    for view in views(result) {
        page.add(view.heading, &rows(view.heading, &view.rows));
    }
    page.heading("figures", "Figures");
    for drawn in figures::replays_study(result) {
        page.add(&drawn.title, &figure(&drawn));
    }
    page.heading("groups", "Boots");
    for group in &result.groups {
        page.add(&group.id, &of_group(group));
    }
    studies::finish(page, &result.header)
}

fn of_group(group: &ReplayGroup) -> String {
    let [kernel, board] = studies::measured_on(&group.inputs);
    let known = vec![
        ("storage", format!("{}, {}", group.medium, group.filesystem)),
        kernel,
        board,
        ("duration", duration(group.duration_ns)),
    ];
    studies::boot(&group.id, "", known, &group.losses)
}
