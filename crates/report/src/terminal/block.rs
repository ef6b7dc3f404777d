//! A trace's block I/O on a terminal: the stages that btt prints.

use super::Style;
use super::table::{Table, paragraph};
use crate::text::{duration, grouped, visible};
use flashscope_analysis::block::{BlockReport, StageStats, StagesFound};

/// Devices with a table of their own; the JSON has all.
const MAX_DEVICES: usize = 8;

/// The whole text; ends in a newline.
pub fn block(report: &BlockReport, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let found = &report.findings;
    let mut out = paragraph(&visible(&report.title), width, 0, 0);
    let line = format!(
        "{} bios queued, {} completed; {} block events in {}",
        grouped(found.bios_queued),
        grouped(found.bios_completed),
        grouped(found.events),
        duration(found.end_ns.saturating_sub(found.begin_ns))
    );
    out += &paragraph(&line, width, 0, 0);
    out += &style.heading("Stages, all devices");
    out += &stages(found, &[("", &found.all)], width);
    for device in found.devices.iter().take(MAX_DEVICES) {
        out += &style.heading(&format!("Stages of device {}", visible(&device.device)));
        let parts = [("reads", &device.reads), ("writes", &device.writes), ("discards", &device.discards)];
        out += &stages(found, &parts.map(|(name, list)| (name, list.as_slice())), width);
    }
    if found.devices.len() > MAX_DEVICES {
        let more = found.devices.len() - MAX_DEVICES;
        out += &paragraph(&format!("and {more} more devices: --json has all"), width, 2, 2);
    }
    out += &paragraph(
        "Q queued, G request got, M merged, I inserted, D issued to the driver, C completed; N counts bios, as btt does",
        width,
        2,
        2,
    );
    out += &style.heading("Not in the stages");
    let mut table = Table::new("tn");
    table.head(["what", "times"]);
    let u = &found.unmatched;
    let rows = [
        ("bios without data (flushes)", found.without_data),
        ("bios on their way when the trace ended", found.unfinished),
        ("bios given up: too many on their way", found.given_up),
        ("requests got without their bio", u.got),
        ("merges without their bio", u.merged),
        ("inserts without their bios", u.inserted),
        ("issues without their bios", u.issued),
        ("completions without their bios", u.completed),
        ("requeues without their bios", u.requeued),
        ("splits without their bio", u.split),
    ];
    for (what, times) in rows.into_iter().filter(|(_, times)| *times > 0) {
        table.row([what.to_owned(), grouped(times)]);
    }
    out += &match table.is_empty() {
        true => "  nothing: every step was matched\n".to_owned(),
        false => table.render(width),
    };
    out += &style.heading("Losses");
    out + &super::losses(report.losses.iter().map(|l| (l.name.as_str(), l.count, l.meaning.as_str())), width)
}

fn stages(found: &StagesFound, parts: &[(&str, &[StageStats])], width: usize) -> String {
    let mut table = Table::new("ttnnnn");
    table.head(["stage", "", "n", "min", "mean", "max"]);
    for (i, name) in found.stages.iter().enumerate() {
        for (part, list) in parts {
            let Some(s) = list.get(i).filter(|s| s.n > 0) else { continue };
            let mut row = vec![visible(name).into_owned(), (*part).to_owned(), grouped(s.n)];
            row.extend([s.min_ns, s.mean_ns, s.max_ns].map(duration));
            table.row(row);
        }
    }
    match table.is_empty() {
        true => "  no stage was seen\n".to_owned(),
        false => table.render(width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_analysis::block::Stages;
    use flashscope_analysis::{Analysis, LossCount, SystemFacts};

    #[test]
    fn names_are_made_visible_and_nothing_is_said_of_nothing() {
        let report = BlockReport {
            schema: 1,
            title: "a\u{1b}[2Jb".into(),
            system: SystemFacts::default(),
            losses: vec![LossCount { name: "data_cut".into(), count: 1, meaning: "it was cut".into() }],
            findings: Stages::new().finish(),
        };
        let text = block(&report, &Style::default());
        assert!(!text.contains('\u{1b}'));
        assert!(text.contains("no stage was seen") && text.contains("every step was matched"), "{text}");
        assert!(text.contains("data_cut"));
    }
}
