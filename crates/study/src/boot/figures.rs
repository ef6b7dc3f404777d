//! Figures of all boots' phases, by name.
//!
//! `FS.BOOT.PHASE.WHAT`, such as `jffs2.first.mount_scan.reads`, in a study with one kernel; else `KERNEL.FS.BOOT.PHASE.WHAT`.

use super::result::{Boot, BootGroup};
use crate::statement::Figures;
use flashscope_analysis::flash::{Activity, ActivityKind, OpCounts};

pub(super) fn figures(groups: &[BootGroup]) -> Figures {
    let several = groups.iter().any(|group| group.inputs.kernel != groups[0].inputs.kernel);
    let mut figures = Figures::new();
    for group in groups {
        let kernel = if several { format!("{}.", group.inputs.kernel) } else { String::new() };
        let of = format!("{kernel}{}", group.filesystem);
        let pages = group.root.image_blocks * u64::from(group.pages_per_block);
        let mut set = |name: &str, value: f64| figures.insert(format!("{of}.{name}"), value);
        set("image_bytes", group.root.image_bytes as f64);
        set("image_mib", group.root.image_bytes as f64 / f64::from(1 << 20));
        set("image_end_page", (group.partition_pages[0] + pages) as f64);
        set("files", group.root.files as f64);
        for boot in &group.boots {
            of_boot(boot, &mut |name, value| {
                figures.insert(format!("{of}.{}.{name}", boot.name), value);
            });
        }
        let prompt = |name: &str| group.boots.iter().find(|boot| boot.name == name).map(|boot| boot.prompt_ns);
        if let (Some(first), Some(second)) = (prompt("first"), prompt("second")) {
            let earlier = seconds(first) - seconds(second);
            figures.insert(format!("{of}.prompt_earlier_s"), earlier);
            let keys = group.boots.iter().find(|boot| boot.name == "first").and_then(|boot| boot.keys_ns);
            if let Some([begin, end]) = keys.filter(|_| earlier > 0.0) {
                figures.insert(format!("{of}.prompt_earlier.keys_share"), seconds(end.saturating_sub(begin)) / earlier);
            }
        }
    }
    figures
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn of_boot(boot: &Boot, set: &mut dyn FnMut(&str, f64)) {
    set("prompt_s", seconds(boot.prompt_ns));
    set("mounted_s", seconds(boot.mounted_ns));
    for kind in [
        ActivityKind::MountScan,
        ActivityKind::Formatting,
        ActivityKind::BackgroundCheck,
        ActivityKind::GarbageCollection,
        ActivityKind::Programs,
    ] {
        let found: Vec<&Activity> = boot.phases.phases.iter().filter(|phase| phase.kind == kind).collect();
        let name = key(kind);
        let mut counts = OpCounts::default();
        found.iter().for_each(|phase| counts += phase.counts);
        for (what, count) in [("reads", counts.reads), ("programs", counts.programs), ("erases", counts.erases)] {
            set(&format!("{name}.{what}"), count as f64);
        }
        set(&format!("{name}.phases"), found.len() as f64);
        if let (Some(first), Some(last)) = (found.first(), found.iter().map(|phase| phase.end_ns).max()) {
            set(&format!("{name}.begin_s"), seconds(first.begin_ns));
            set(&format!("{name}.end_s"), seconds(last));
            set(&format!("{name}.seconds"), seconds(last.saturating_sub(first.begin_ns)));
        }
        if let Some(scan) = found.first().and_then(|phase| phase.scan) {
            set(&format!("{name}.pages"), scan.pages as f64);
            set(&format!("{name}.blocks"), scan.blocks as f64);
            set(&format!("{name}.whole_blocks"), scan.whole_blocks as f64);
        }
    }
    // Init scripts: programs that ran before the prompt.
    let mut init = OpCounts::default();
    for phase in &boot.phases.phases {
        if phase.kind == ActivityKind::Programs && phase.begin_ns < boot.prompt_ns {
            init += phase.counts;
        }
    }
    set("init.reads", init.reads as f64);
    set("init.programs", init.programs as f64);
    let one = |kind| boot.phases.phases.iter().find(|phase| phase.kind == kind);
    let end = |kind| one(kind).map(|phase| phase.end_ns);
    if let (Some(check), Some(scan)) = (one(ActivityKind::BackgroundCheck), end(ActivityKind::MountScan)) {
        set("background_check.after_scan_s", (check.begin_ns as f64 - scan as f64) / 1e9);
    }
    if let Some(formatting) = one(ActivityKind::Formatting) {
        let after = |of: u64| (formatting.begin_ns as f64 - of as f64) / 1e9;
        set("formatting.after_prompt_s", after(boot.prompt_ns));
        if let Some(scan) = end(ActivityKind::MountScan) {
            set("formatting.after_scan_s", after(scan));
        }
        if let Some(check) = end(ActivityKind::BackgroundCheck) {
            set("formatting.after_check_s", after(check));
        }
        let background: u64 = formatting
            .tasks
            .iter()
            .filter(|task| ["jffs2_gcd", "ubi_bgt"].iter().any(|name| task.task.starts_with(name)))
            .map(|task| task.counts.erases)
            .sum();
        if formatting.counts.erases > 0 {
            set("formatting.background_share", background as f64 / formatting.counts.erases as f64);
        }
    }
}

fn key(kind: ActivityKind) -> &'static str {
    match kind {
        ActivityKind::MountScan => "mount_scan",
        ActivityKind::Formatting => "formatting",
        ActivityKind::BackgroundCheck => "background_check",
        ActivityKind::GarbageCollection => "garbage_collection",
        ActivityKind::Programs => "programs",
        // Only YAFFS2 has it; no boot of these studies does.
        ActivityKind::CheckpointWrite => "checkpoint_write",
        ActivityKind::CheckpointRead => "checkpoint_read",
        ActivityKind::CheckpointErase => "checkpoint_erase",
        ActivityKind::SummaryWrite => "summary_write",
        ActivityKind::SummaryRead => "summary_read",
        ActivityKind::CollectionByThread => "collection_by_thread",
        ActivityKind::CollectionByWriter => "collection_by_writer",
    }
}
