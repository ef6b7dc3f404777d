//! What a trace of block I/O says in sentences: the same in the terminal and on the page.

use crate::text::{bytes, duration, percent};
use flashscope_analysis::block::{BlockFound, OwnerLoad, WaitBehind, WaitStage};

/// Sentences at most.
const MAX_SENTENCES: usize = 4;

pub fn wait_stage(stage: WaitStage) -> &'static str {
    match stage {
        WaitStage::Request => "for a request",
        WaitStage::Scheduler => "in the scheduler",
        WaitStage::Merged => "in a merged request",
    }
}

fn waited(w: &WaitBehind) -> u64 {
    w.served_ns + w.handover_ns
}

/// Who slows whom down, worst first; one sentence where nobody does. Names are as recorded: whoever prints them escapes.
pub fn interference(found: &BlockFound) -> Vec<String> {
    let i = &found.interference;
    let mut out = Vec::new();
    let total = |o: &OwnerLoad| o.mean_q2c_ns.saturating_mul(o.bios);
    for o in i.owners.iter().filter(|o| o.mean_behind_ns > 0).take(MAX_SENTENCES) {
        let behind = |w: &&WaitBehind| w.victim == o.owner && w.device == o.device;
        let of: Vec<&WaitBehind> = i.pairs.iter().filter(behind).collect();
        let all: u64 = of.iter().map(|w| waited(w)).sum();
        // By culprit, whatever the stage.
        let mut culprits: Vec<(&str, u64)> = Vec::new();
        for w in &of {
            match culprits.iter_mut().find(|(name, _)| *name == w.behind) {
                Some((_, ns)) => *ns += waited(w),
                None => culprits.push((&w.behind, waited(w))),
            }
        }
        culprits.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let Some((worst, ns)) = culprits.first() else { continue };
        let stage = of.iter().filter(|w| w.behind == *worst).max_by_key(|w| waited(w)).map(|w| wait_stage(w.stage));
        let share = |ns: u64, of: u64| if of == 0 { 0.0 } else { ns as f64 / of as f64 * 100.0 };
        out.push(format!(
            "{} on {}: of {} a bio, {} ({}) passed behind others; {} of that behind {}, mostly {}. Alone it would take {}.",
            o.owner,
            o.device,
            duration(o.mean_q2c_ns),
            duration(o.mean_behind_ns),
            percent(share(o.mean_behind_ns.saturating_mul(o.bios), total(o))),
            percent(share(*ns, all)),
            worst,
            stage.unwrap_or("waiting"),
            duration(o.mean_alone_ns)
        ));
    }
    if out.is_empty() {
        out.push(match found.stages.bios_completed {
            0 => "No bio was completed in this trace.".to_owned(),
            _ => "Nobody waited behind another's request.".to_owned(),
        });
    }
    out
}

/// What was written for whom, in one sentence.
pub fn written(found: &BlockFound) -> String {
    let o = &found.originators;
    format!(
        "Written: {} by the task that asked, {} for one task that dirtied the page, {} of pages that several dirtied, {} of the \
         file systems' own (journal, metadata, garbage collection), {} by carriers for nobody known; {} bios had several originators.",
        bytes(o.written_direct_bytes),
        bytes(o.written_one_bytes),
        bytes(o.written_shared_bytes),
        bytes(o.written_kernel_bytes),
        bytes(o.written_unknown_bytes),
        crate::text::grouped(o.mixed_bios)
    )
}
