//! The time of a trace's calls by layer, on a terminal.

use super::Style;
use super::table::{Table, paragraph};
use crate::layers_view::{call_name, layer_name};
use crate::text::{duration, grouped, visible};
use flashscope_analysis::layers::{CallLayers, CallSum, LayerTime, LayersReport};
use flashscope_analysis::{Evidence, task_label};
use flashscope_study::layers::LayersResult;

/// Number of calls in the list; the JSON has all.
const MAX_CALLS: usize = 12;

/// The whole text; ends in a newline.
pub fn layers(report: &LayersReport, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let found = &report.found;
    let mut out = paragraph(&visible(&report.title), width, 0, 0);
    out += &sums(&found.sums, style);
    if found.sums.is_empty() {
        out += "no read, write or sync began and ended in this trace\n";
    }
    out += &style.section("The longest calls", &longest(&found.calls, width));
    let mut notes = Vec::new();
    match &found.slept_ns {
        Evidence::Known(ns) => notes.push(format!("tasks slept {} in these calls", duration(*ns))),
        Evidence::Unknown(why) => notes.push(format!("{}; {}", why.missing, why.next)),
    }
    for (n, what) in [
        (found.calls_without_storage, "calls touched no storage (pipes, sockets, /proc): they are in no sum"),
        (found.calls_cut, "calls had begun before the trace, or had not ended"),
        (found.boundaries_unmatched, "boundaries were left or entered without the other side"),
    ] {
        if n > 0 {
            notes.push(format!("{} {what}", grouped(n)));
        }
    }
    for note in notes {
        out += &paragraph(&note, width, 2, 2);
    }
    out += &style.heading("Losses");
    out + &super::lost(&report.losses, width)
}

/// A study, by group.
pub fn layers_study(result: &LayersResult, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let mut out = super::head(&result.header, width);
    for group in &result.groups {
        let about = format!("{}, Linux {}: {}", group.id, group.inputs.kernel_release, group.medium);
        out += &style.heading(&visible(&about));
        out += &sums(&group.sums, style);
        out += &super::lost(&group.losses, width);
    }
    out + &super::published(&result.published, style)
}

/// The mean of each kind of operation.
fn sums(sums: &[CallSum], style: Style) -> String {
    let width = style.width();
    let mut out = String::new();
    for sum in sums {
        let mean = sum.total_ns / sum.n.max(1);
        out += &style.heading(&format!("{} of {}: {} each", grouped(sum.n), call_name(sum.call), duration(mean)));
        let mut table = Table::new("tnn");
        table.head(["layer", "mean", "share"]);
        let share = |ns: u64| format!("{:.2} %", ns as f64 / sum.total_ns.max(1) as f64 * 100.0);
        for time in &sum.layers {
            table.row([layer_name(time.layer).to_owned(), duration(time.ns / sum.n.max(1)), share(time.ns)]);
        }
        table.row([
            "unattributed".to_owned(),
            duration(sum.unattributed_ns / sum.n.max(1)),
            share(sum.unattributed_ns),
        ]);
        out += &table.render(width);
        let events = sum.layers.iter().map(|time| time.stretches).sum::<u64>() / sum.n.max(1);
        let line = format!(
            "{} events recorded in each; what that costs (docs/explanation/block-io.md) is in the times",
            grouped(events)
        );
        out += &paragraph(&line, width, 2, 2);
        if sum.overlap_ns > 0 {
            let overlap = duration(sum.overlap_ns / sum.n.max(1));
            let line = format!("{overlap} of that the device worked while the task ran as well");
            out += &paragraph(&line, width, 2, 2);
        }
    }
    out
}

fn longest(calls: &[CallLayers], width: usize) -> String {
    let mut longest: Vec<&CallLayers> = calls.iter().collect();
    longest.sort_by_key(|call| (std::cmp::Reverse(call.total_ns), call.begin_ns));
    let mut table = Table::new("ttnnt");
    table.head(["task", "call", "result", "total", "layers"]);
    for call in longest.into_iter().take(MAX_CALLS) {
        let part = |time: &LayerTime| format!("{} {}", layer_name(time.layer), duration(time.ns));
        let mut parts: Vec<String> = call.layers.iter().map(part).collect();
        if call.unattributed_ns > 0 {
            parts.push(format!("unattributed {}", duration(call.unattributed_ns)));
        }
        table.row([
            visible(&task_label(&call.task, call.tid, call.ordinal.unwrap_or(1))).into_owned(),
            call_name(call.call).to_owned(),
            call.result.to_string(),
            duration(call.total_ns),
            parts.join(", "),
        ]);
    }
    table.render(width)
}
