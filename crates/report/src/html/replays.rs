//! The page of a study of replays.

use super::page::{Header, Page};
use super::{facts, figure, losses, published, rows};
use crate::figures;
use crate::replays_view::{recommendations, views};
use crate::text::{duration, escape};
use flashscope_study::replays::{ReplayGroup, ReplaysResult};

pub fn replays_study(result: &ReplaysResult) -> String {
    let contents = [("published", "Published"), ("tables", "Tables"), ("figures", "Figures"), ("groups", "Boots")];
    let header = Header {
        title: &result.header.title,
        question: &result.header.question,
        clock: &result.header.clock,
        contents: &contents,
    };
    let mut page = Page::new(&header);
    page.heading("published", "Published values beside ours");
    page.add("published values", &published(&result.published));
    page.heading("tables", "Tables");
    for said in recommendations(result) {
        page.add("what to use", &format!("<p>{}</p>\n", escape(&said)));
    }
    for view in views(result) {
        page.add(view.heading, &rows(view.heading, &view.rows, "None."));
    }
    page.heading("figures", "Figures");
    for drawn in figures::replays_study(result) {
        page.add(&drawn.title, &figure(&drawn));
    }
    page.heading("groups", "Boots");
    for group in &result.groups {
        page.add(&group.id, &of_group(group));
    }
    page.finish(&format!("Written by flashscope {}; schema {}.", result.header.flashscope, result.header.schema))
}

fn of_group(group: &ReplayGroup) -> String {
    let inputs = &group.inputs;
    let known = vec![
        ("storage", format!("{}, {}", group.medium, group.filesystem)),
        ("kernel", format!("{} ({})", inputs.kernel_release, inputs.kernel_package)),
        ("board", format!("{}, {}", inputs.board, inputs.qemu)),
        ("duration", duration(group.duration_ns)),
    ];
    let lost = losses(group.losses.iter().map(|l| (l.name.as_str(), l.count, String::new(), l.meaning.as_str())));
    format!("<h3>{}</h3>\n<div class=\"box\">\n{}<h3>Losses</h3>\n{lost}</div>\n", escape(&group.id), facts(known))
}
