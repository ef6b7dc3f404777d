//! The pages about layers, for a trace and for a study.

use super::page::{Header, Page};
use super::{facts, figure, lost, rows, studies, summary, system};
use crate::figures;
use crate::layers_view::{call_name, layer_name};
use crate::rows::Rows;
use crate::text::{duration, escape, grouped};
use flashscope_analysis::layers::{CallLayers, CallSum, LayersReport};
use flashscope_analysis::{Evidence, task_label};
use flashscope_study::layers::{LayersGroup, LayersResult};

/// Largest number of operations in one table; the longest are shown.
const MAX_ROWS: usize = 30;

/// The page for a trace.
pub fn layers(report: &LayersReport) -> String {
    let found = &report.found;
    let n: u64 = found.sums.iter().map(|sum| sum.n).sum();
    let question = format!("Where the time of {} reads, writes and syncs goes", grouped(n));
    let contents = [("figures", "Layers"), ("calls", "Calls"), ("recorded-on", "Recorded on")];
    let mut page = Page::new(&Header { title: &report.title, question: &question, clock: "", contents: &contents });
    let recorded_on = format!(
        "<div class=\"box\">\n{}<h3>Losses</h3>\n{}</div>\n",
        facts(system(&report.system)),
        lost(&report.losses)
    );
    page.reserve(recorded_on.len());
    page.heading("figures", "Where the time goes");
    let means: Vec<(String, &str)> =
        found.sums.iter().map(|sum| (duration(sum.total_ns / sum.n.max(1)), call_name(sum.call))).collect();
    page.add("the summary", &summary(&means));
    for drawn in figures::layers(report) {
        page.add(&drawn.title, &figure(&drawn));
    }
    page.heading("calls", "Calls");
    page.add("the layers of each kind of call", &sums(&found.sums));
    page.add("the longest calls", &calls(&found.calls));
    let slept = match &found.slept_ns {
        Evidence::Known(ns) => format!("Tasks slept {} in these calls", duration(*ns)),
        Evidence::Unknown(why) => escape(&format!("{}; {}", why.missing, why.next)),
    };
    page.add("how long tasks slept", &format!("<p class=\"note\">{slept}.</p>\n"));
    page.heading("recorded-on", "Recorded on");
    page.release(recorded_on.len());
    page.add("the box with system and losses", &recorded_on);
    page.finish(&format!("Written by flashscope; report schema {}.", report.schema))
}

/// The page for a study.
pub fn layers_study(result: &LayersResult) -> String {
    let contents = [("figures", "Layers"), ("published", "Published values"), ("groups", "Boards")];
    let mut page = studies::open(&result.header, &contents);
    page.heading("figures", "Where the time goes");
    for drawn in figures::layers_study(result) {
        page.add(&drawn.title, &figure(&drawn));
    }
    page.heading("published", "Published values beside ours");
    page.add("the table of published values", &super::published(&result.published));
    page.heading("groups", "Boards");
    for group in &result.groups {
        page.add(&group.id, &of_group(group));
    }
    studies::finish(page, &result.header)
}

fn of_group(group: &LayersGroup) -> String {
    let [kernel, board] = studies::measured_on(&group.inputs);
    let boundaries: Vec<String> = group.boundaries.iter().map(|one| format!("{} ({})", one.what, one.layer)).collect();
    let known = vec![("medium", group.medium.clone()), kernel, board, ("boundaries", boundaries.join(", "))];
    studies::boot(&group.id, &(sums(&group.sums) + &calls(&group.calls)), known, &group.losses)
}

fn sums(sums: &[CallSum]) -> String {
    let mut table = Rows { kinds: "ttnn", heads: &["call", "layer", "mean", "share"], rows: Vec::new(), more: 0 };
    for sum in sums {
        let share = |ns: u64| format!("{:.2} %", ns as f64 / sum.total_ns.max(1) as f64 * 100.0);
        let mut row = |name: &str, ns: u64| {
            table.rows.push(vec![
                format!("{} of {}", grouped(sum.n), call_name(sum.call)),
                name.to_owned(),
                duration(ns / sum.n.max(1)),
                share(ns),
            ]);
        };
        sum.layers.iter().for_each(|time| row(layer_name(time.layer), time.ns));
        row("unattributed", sum.unattributed_ns);
        row("all", sum.total_ns);
    }
    rows("Each kind of call, on average", &table)
}

fn calls(calls: &[CallLayers]) -> String {
    let mut longest: Vec<&CallLayers> = calls.iter().collect();
    longest.sort_by_key(|call| (std::cmp::Reverse(call.total_ns), call.begin_ns));
    let mut table = Rows {
        kinds: "ttnnnt",
        heads: &["task", "call", "result", "total", "unattributed", "layers"],
        rows: Vec::new(),
        more: longest.len().saturating_sub(MAX_ROWS),
    };
    for call in longest.into_iter().take(MAX_ROWS) {
        let parts: Vec<String> =
            call.layers.iter().map(|time| format!("{} {}", layer_name(time.layer), duration(time.ns))).collect();
        table.rows.push(vec![
            task_label(&call.task, call.tid, call.ordinal.unwrap_or(1)),
            call_name(call.call).to_owned(),
            call.result.to_string(),
            duration(call.total_ns),
            duration(call.unattributed_ns),
            parts.join(", "),
        ]);
    }
    rows("The longest calls", &table)
}
