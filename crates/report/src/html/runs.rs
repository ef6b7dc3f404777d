//! The page of a study of runs.

use super::page::{Header, Page};
use super::{facts, figure, losses, operations, published, rows, table};
use crate::figures;
use crate::runs_view::{tracer, views};
use crate::text::{bytes, escape};
use flashscope_study::runs::{RunGroup, RunsResult};

pub fn runs_study(result: &RunsResult) -> String {
    let contents = [("figures", "Over time"), ("tables", "Tables"), ("published", "Published"), ("groups", "Boots")];
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
    for view in views(result) {
        page.add(view.heading, &rows(view.heading, &view.rows, "None."));
    }
    page.heading("figures", "Over time");
    for drawn in figures::runs_study(result) {
        page.add(&drawn.title, &figure(&drawn));
    }
    page.heading("groups", "Boots");
    for group in &result.groups {
        page.add(&group.id, &of_group(group));
    }
    page.finish(&format!("Written by flashscope {}; schema {}.", result.header.flashscope, result.header.schema))
}

fn of_group(group: &RunGroup) -> String {
    let inputs = &group.inputs;
    let known = vec![
        ("chip", group.chip.clone()),
        ("partition", bytes(group.partition_bytes)),
        ("kernel", format!("{} ({})", inputs.kernel_release, inputs.kernel_package)),
        ("board", format!("{}, {}", inputs.board, inputs.qemu)),
        ("tracer", tracer(group.tracer).to_owned()),
    ];
    let tasks = group.by_task.iter().map(|task| (task.task.as_str(), None, &task.counts));
    let head = "<tr><th>task</th><th class=\"num\">reads</th><th class=\"num\">programs</th><th class=\"num\">erases</th></tr>\n";
    let by_task = match group.by_task.is_empty() {
        true => String::new(),
        false => table("By task", head, &operations(tasks)),
    };
    let lost = losses(group.losses.iter().map(|l| (l.name.as_str(), l.count, String::new(), l.meaning.as_str())));
    format!(
        "<h3>{}</h3>\n{by_task}<div class=\"box\">\n{}<h3>Losses</h3>\n{lost}</div>\n",
        escape(&group.id),
        facts(known)
    )
}
