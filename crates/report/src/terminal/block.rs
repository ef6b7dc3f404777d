//! A trace's block I/O on a terminal: where its time goes, whose it is, who waits behind whom.

use super::Style;
use super::table::{Table, paragraph};
use crate::block_view::{self, wait_stage};
use crate::text::{bytes, duration, grouped, visible};
use flashscope_analysis::block::{BlockFound, BlockReport, Group, GroupBy, OwnerKind, StageTimes};

/// Rows of a list; the JSON has all.
const MAX_ROWS: usize = 12;

/// The whole text; ends in a newline.
pub fn block(report: &BlockReport, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let found = &report.findings;
    let stages = &found.stages;
    let mut out = paragraph(&visible(&report.title), width, 0, 0);
    let line = format!(
        "{} bios queued, {} completed; {} block events in {}",
        grouped(stages.bios_queued),
        grouped(stages.bios_completed),
        grouped(stages.events),
        duration(stages.end_ns.saturating_sub(stages.begin_ns))
    );
    out += &paragraph(&line, width, 0, 0);
    out += &style.heading("Who slows whom down");
    for sentence in block_view::interference(found) {
        out += &paragraph(&visible(&sentence), width, 2, 4);
    }
    out += &style.heading("Stages, all devices");
    out += &stage_table(found.groups.first().map_or(&[], |all| &all.stages), width);
    out += &paragraph(
        "Q queued, G request got, M merged, I inserted, D issued to the driver, C completed; n counts bios, as btt does; share is of Q2C",
        width,
        2,
        2,
    );
    for (by, heading) in [
        (GroupBy::Device, "By device and direction"),
        (GroupBy::Flag, "By flag"),
        (GroupBy::Size, "By size"),
        (GroupBy::Owner, "By originator"),
    ] {
        out += &style.heading(heading);
        out += &groups(&found.groups, by, width);
    }
    out += &style.heading("Originators and carriers");
    out += &originators(found, width);
    out += &style.heading("Waits behind others");
    out += &waits(found, width);
    out += &style.heading("Load");
    out += &load(found, width);
    out += &style.heading("Not in the stages");
    out += &unmatched(found, width);
    out += &style.heading("Losses");
    out + &super::losses(report.losses.iter().map(|l| (l.name.as_str(), l.count, l.meaning.as_str())), width)
}

fn stage_table(stages: &[StageTimes], width: usize) -> String {
    let mut table = Table::new("tnnnnnnnnn");
    table.head(["stage", "n", "min", "mean", "p50", "p90", "p99", "p99.9", "max", "share"]);
    for s in stages {
        let mut row = vec![visible(&s.stage).into_owned(), grouped(s.ns.n)];
        row.extend([s.ns.min, s.ns.mean, s.ns.p50, s.ns.p90, s.ns.p99, s.ns.p999, s.ns.max].map(duration));
        row.push(s.share_percent.map_or(String::new(), |share| format!("{share:.2} %")));
        table.row(row);
    }
    match table.is_empty() {
        true => "  no stage was seen\n".to_owned(),
        false => table.render(width),
    }
}

fn groups(groups: &[Group], by: GroupBy, width: usize) -> String {
    let mut table = Table::new("tnnnnnnn");
    table.head(["", "bios", "bytes", "Q2D", "D2C", "Q2C", "Q2C", "Q2C"]);
    table.head(["", "", "", "mean", "mean", "mean", "p99", "max"]);
    let of: Vec<&Group> = groups.iter().filter(|group| group.by == by).collect();
    for group in of.iter().take(MAX_ROWS) {
        let stage = |name: &str| group.stages.iter().find(|s| s.stage == name).map(|s| s.ns);
        let time = |ns: Option<u64>| ns.map_or(String::new(), duration);
        let q2c = stage("Q2C");
        table.row([
            visible(&group.name).into_owned(),
            grouped(group.bios),
            bytes(group.bytes),
            time(stage("Q2D").map(|s| s.mean)),
            time(stage("D2C").map(|s| s.mean)),
            time(q2c.map(|s| s.mean)),
            time(q2c.map(|s| s.p99)),
            time(q2c.map(|s| s.max)),
        ]);
    }
    let mut out = match table.is_empty() {
        true => return "  none\n".to_owned(),
        false => table.render(width),
    };
    if of.len() > MAX_ROWS {
        out += &paragraph(&format!("and {} more: --json has all", of.len() - MAX_ROWS), width, 2, 2);
    }
    out
}

fn originators(found: &BlockFound, width: usize) -> String {
    let o = &found.originators;
    let mut table = Table::new("tnnt");
    table.head(["originator", "read", "written", "carried by"]);
    for one in o.originators.iter().take(MAX_ROWS) {
        let carriers: Vec<String> = one
            .carriers
            .iter()
            .take(3)
            .filter(|c| c.carrier != one.name)
            .map(|c| format!("{} {}", visible(&c.carrier), bytes(c.read_bytes + c.written_bytes)))
            .collect();
        let carriers = match (carriers.is_empty(), one.kind) {
            (false, _) => carriers.join(", "),
            (true, OwnerKind::Unknown) => "itself; for whom is not known".to_owned(),
            (true, _) => "itself".to_owned(),
        };
        table.row([visible(&one.name).into_owned(), bytes(one.read_bytes), bytes(one.written_bytes), carriers]);
    }
    let mut out = match table.is_empty() {
        true => "  no bio was queued\n".to_owned(),
        false => table.render(width),
    };
    out += &paragraph(&block_view::written(found), width, 2, 2);
    out
}

fn waits(found: &BlockFound, width: usize) -> String {
    let i = &found.interference;
    let mut out = String::new();
    let mut table = Table::new("ttnnnnn");
    table.head(["device", "originator", "bios", "Q2C", "behind", "device", "alone"]);
    table.head(["", "", "", "mean", "others", "excess", ""]);
    for o in i.owners.iter().take(MAX_ROWS) {
        let excess = o.mean_device_excess_ns.map_or("unknown".to_owned(), |ns| match ns {
            ns if ns < 0 => format!("-{}", duration(ns.unsigned_abs())),
            ns => duration(ns.unsigned_abs()),
        });
        table.row([
            o.device.clone(),
            visible(&o.owner).into_owned(),
            grouped(o.bios),
            duration(o.mean_q2c_ns),
            duration(o.mean_behind_ns),
            excess,
            duration(o.mean_alone_ns),
        ]);
    }
    if !table.is_empty() {
        out += &table.render(width);
    }
    let mut table = Table::new("tttnn");
    table.head(["who waits", "behind", "where", "served", "hand-over"]);
    for w in i.pairs.iter().take(MAX_ROWS) {
        table.row([
            visible(&w.victim).into_owned(),
            visible(&w.behind).into_owned(),
            wait_stage(w.stage).to_owned(),
            duration(w.served_ns),
            duration(w.handover_ns),
        ]);
    }
    if !table.is_empty() {
        out.push('\n');
        out += &table.render(width);
    }
    let notes = [
        (i.shared_requests, "requests had bios of several originators"),
        (i.not_measured, "bios whose wait was not measured: too many at one time"),
    ];
    for (n, what) in notes.into_iter().filter(|(n, _)| *n > 0) {
        out += &paragraph(&format!("{} {what}", grouped(n)), width, 2, 2);
    }
    if out.is_empty() { "  nobody waited\n".to_owned() } else { out }
}

fn load(found: &BlockFound, width: usize) -> String {
    let load = &found.over_time;
    let seeks = &load.seek_sectors;
    let merges: u64 = load.windows.iter().map(|w| w.merges).sum();
    let lines = [
        format!(
            "at most {} bios on their way, {} requests in the devices at one time; {} merges",
            grouped(load.most_in_flight),
            grouped(load.most_in_device),
            grouped(merges)
        ),
        format!(
            "{} requests began where the one before had ended; {} did not: {} sectors away in the median, {} on average, {} at most",
            grouped(load.sequential),
            grouped(seeks.n),
            grouped(seeks.p50),
            grouped(seeks.mean),
            grouped(seeks.max)
        ),
    ];
    lines.iter().map(|line| paragraph(line, width, 2, 2)).collect()
}

fn unmatched(found: &BlockFound, width: usize) -> String {
    let mut table = Table::new("tn");
    table.head(["what", "times"]);
    let (s, u) = (&found.stages, &found.stages.unmatched);
    let rows = [
        ("bios without data (flushes)", s.without_data),
        ("bios on their way when the trace ended", s.unfinished),
        ("bios given up: too many on their way", s.given_up),
        ("requests got without their bio", u.got),
        ("merges without their bio", u.merged),
        ("inserts without their bios", u.inserted),
        ("issues without their bios", u.issued),
        ("completions without their bios", u.completed),
        ("requeues without their bios", u.requeued),
        ("splits without their bio", u.split),
        ("dirty pages that were not followed: too many", found.originators.pages_given_up),
        ("extents that were not followed: too many", found.originators.extents_given_up),
    ];
    for (what, times) in rows.into_iter().filter(|(_, times)| *times > 0) {
        table.row([what.to_owned(), grouped(times)]);
    }
    match table.is_empty() {
        true => "  nothing: every step was matched\n".to_owned(),
        false => table.render(width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_analysis::block::BlockAnalysis;
    use flashscope_analysis::{Analysis, LossCount, SystemFacts};
    use std::collections::HashMap;

    #[test]
    fn names_are_made_visible_and_nothing_is_said_of_nothing() {
        let report = BlockReport {
            schema: 1,
            title: "a\u{1b}[2Jb".into(),
            system: SystemFacts::default(),
            losses: vec![LossCount { name: "data_cut".into(), count: 1, meaning: "it was cut".into() }],
            findings: BlockAnalysis::new(|_, _| None::<&str>, HashMap::new()).finish(),
        };
        let text = block(&report, &Style::default());
        assert!(!text.contains('\u{1b}'));
        assert!(text.contains("no stage was seen") && text.contains("every step was matched"), "{text}");
        assert!(text.contains("data_cut"));
    }
}
