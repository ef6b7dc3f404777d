//! Tables of raw flash operations, shared by the terminal and the HTML page.

use crate::rows::Rows;
use crate::text::{duration, grouped};
use flashscope_analysis::OpDurations;
use flashscope_analysis::flash::{KindCounts, OpCounts, PhaseOps, TaskOps};
use flashscope_study::PhaseCounts;

/// Sizes of commands, with the numbers of reads and programs.
pub fn kinds(r: &KindCounts, p: &KindCounts) -> Rows {
    let all = [
        ("full page", r.full_page, p.full_page),
        ("part of a page", r.partial, p.partial),
        ("spare area (OOB)", r.oob, p.oob),
        ("command only, data moved apart", r.command_only, p.command_only),
        ("columns not recorded (--detail offset)", r.not_recorded, p.not_recorded),
        ("of these, immediate repeats (retries, if columns are recorded)", r.repeats, p.repeats),
    ];
    let heads = &["what a command moved", "reads", "programs"];
    Rows::new("tnn", heads, all.into_iter(), usize::MAX, |(name, reads, programs)| {
        vec![name.to_owned(), grouped(reads), grouped(programs)]
    })
}

/// Durations of commands; percentiles by nearest rank.
pub fn times(of: &[OpDurations]) -> Rows {
    let heads = &["operation", "n", "min", "mean", "p50", "p90", "p99", "max"];
    Rows::new("tnnnnnnn", heads, of.iter(), usize::MAX, |d| {
        let l = &d.latency_ns;
        let mut cells = vec![d.op.name().to_owned(), grouped(l.n)];
        cells.extend([l.min, l.mean, l.p50, l.p90, l.p99, l.max].map(duration));
        cells
    })
}

pub fn tasks(of: &[TaskOps], most: usize) -> Rows {
    let heads = &["task", "reads", "programs", "erases"];
    Rows::new("tnnn", heads, of.iter(), most, |t| named(t.task.clone(), Some(&t.counts)))
}

pub fn phases(of: &[PhaseOps], most: usize) -> Rows {
    Rows::new("tnnnn", PHASE, of.iter(), most, |p| {
        let lasted = duration(p.end_ns.saturating_sub(p.begin_ns));
        phase(&p.name, if p.ended { lasted } else { format!("{lasted}, cut") }, p.counts.known())
    })
}

/// Phases of a study.
pub fn study_phases(of: &[PhaseCounts], most: usize) -> Rows {
    Rows::new("tnnnn", PHASE, of.iter(), most, |p| phase(&p.phase, duration(p.duration_ns), Some(&p.counts)))
}

const PHASE: &[&str] = &["phase", "lasted", "reads", "programs", "erases"];

fn phase(name: &str, lasted: String, counts: Option<&OpCounts>) -> Vec<String> {
    let mut cells = named(name.to_owned(), counts);
    cells.insert(1, lasted);
    cells
}

/// A name and its operations.
pub fn named(name: String, counts: Option<&OpCounts>) -> Vec<String> {
    let numbers =
        counts.map_or_else(|| [(); 3].map(|()| "unknown".to_owned()), |c| [c.reads, c.programs, c.erases].map(grouped));
    std::iter::once(name).chain(numbers).collect()
}
