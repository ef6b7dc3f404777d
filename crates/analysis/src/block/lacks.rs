//! Events that a trace of block I/O lacks, and the figures that are unknown without them.

use super::counts::MatchCounts;
use crate::units::grouped;
use crate::{Evidence, Unknown};
use flashscope_trace::{Device, Losses, LostIn};

/// Why a trace does not show the number of bios.
fn no_queueing() -> Unknown {
    let next = "record block_bio_queue too (flashscope record --events block, blktrace without -a)";
    Unknown::new("the trace shows no bio being queued (block_bio_queue, blktrace's Q)", next)
}

pub(super) fn no_completions() -> Unknown {
    let missing = "the trace has no completion (block_rq_complete, block_bio_complete, blktrace's C): how many were completed, and when";
    Unknown::new(missing, "record them too (flashscope record --events block, blktrace without -a)")
}

fn no_requests() -> Unknown {
    let missing = "the trace has no issue (block_rq_issue, blktrace's D): requests in the devices, and how far these move, are unknown";
    Unknown::new(missing, "record them too (flashscope record --events block); a driver that takes bios has none")
}

fn no_splits() -> Unknown {
    let missing = "the trace has no event of splits (block_split, blktrace's X): into how many parts bios were split";
    Unknown::new(missing, "record it too (flashscope record --events block, blktrace without -a)")
}

fn no_requeues() -> Unknown {
    let missing = "the trace has no event of requeues (block_rq_requeue, blktrace's R): how many requests came back from the driver";
    Unknown::new(missing, "record it too (flashscope record --events block, blktrace without -a)")
}

fn no_ends(device: Device) -> Unknown {
    let missing = format!(
        "the trace has no completion of {device}, whose driver takes bios without requests: how many were completed, and when"
    );
    Unknown::new(
        missing,
        "record with a newer kernel: before Linux 4.12 only device mapper and raid5 traced the end of a bio",
    )
}

fn no_issues() -> Unknown {
    let missing = "the trace has only completions, which show no requests, durations and owners";
    Unknown::new(missing, "record block_bio_queue and block_rq_issue too (flashscope record --events block)")
}

fn no_files(cpus: &[u64]) -> Unknown {
    let missing = format!(
        "{}, and what did not end in the others may have ended there: how many were completed, and when",
        missing_files(cpus)
    );
    Unknown::new(missing, COPY_ALL)
}

/// Kinds of loss that may have taken the end of an I/O; none where only the I/O itself shows that events are lost.
#[derive(Default)]
pub(super) struct LostEnds {
    /// `records_missing 3, …`
    names: String,
    /// Where the first ones were lost.
    lost_in: Option<LostIn>,
}

impl LostEnds {
    pub fn of(losses: &Losses) -> LostEnds {
        let names: Vec<String> =
            losses.of_ends().map(|(loss, _, count)| format!("{} {}", loss.name(), grouped(count))).collect();
        let any = |wanted| losses.of_ends().any(|(_, lost_in, _)| lost_in == wanted).then_some(wanted);
        let lost_in = any(LostIn::Ring).or(any(LostIn::File)).or(any(LostIn::Reading));
        LostEnds { names: names.join(", "), lost_in }
    }

    fn are_known(&self) -> bool {
        self.lost_in.is_some()
    }

    fn unknown(&self) -> Unknown {
        let names = if self.are_known() { format!(" ({})", self.names) } else { String::new() };
        let missing = format!(
            "events were lost{names}, and the end of some I/O may be among them: how much was in flight at the end, and what failed"
        );
        let next = match self.lost_in {
            Some(LostIn::File) => "copy the whole trace again; if it is no longer there, record again",
            Some(LostIn::Reading) => "take the whole trace as its tool wrote it",
            _ => "record again with a larger buffer (flashscope record --ring, trace-cmd record -b, blktrace -b)",
        };
        Unknown::new(missing, next)
    }
}

/// For a set of files of blktrace.
pub(super) fn missing_files(cpus: &[u64]) -> String {
    let cpus: Vec<String> = cpus.iter().map(u64::to_string).collect();
    format!("the file of CPU {} is missing", cpus.join(", "))
}

pub(super) const COPY_ALL: &str = "copy all of NAME.blktrace.*";

/// Events that a trace lacks, each with the reason: figures that need them are unknown.
#[derive(Default)]
pub(super) struct Lacks {
    pub queueing: Option<Unknown>,
    pub completions: Option<Unknown>,
    /// One of its devices completes nothing.
    pub ends: Option<Unknown>,
    /// The file of a CPU is missing, with completions that may be in it.
    pub files: Option<Unknown>,
    /// Events are lost, and some I/O has no end: it may be in flight when the trace ends.
    pub lost: Option<Unknown>,
    /// The same, or an end is lost: some I/O may have failed. That of programs, and that below.
    pub failures: [Option<Unknown>; 2],
    /// It has only completions.
    pub issues: Option<Unknown>,
    /// It has bios, but no request.
    pub requests: Option<Unknown>,
    /// It shows no requeue; or it has issues, and would show a requeue as a second issue.
    pub requeues: Option<Unknown>,
    /// It shows neither splits nor the requests of all bios.
    pub splits: Option<Unknown>,
    /// One I/O may be two bios in it.
    pub unclear: Option<Unknown>,
}

impl Lacks {
    pub fn of(counts: &MatchCounts, unclear: Option<&Unknown>, missing_cpus: &[u64], losses: &LostEnds) -> Lacks {
        let (any, queued) = (counts.events > 0, counts.all_queued > 0);
        let files = (counts.unfinished > 0 && !missing_cpus.is_empty()).then(|| no_files(missing_cpus));
        let [lost, lost_below] = counts.open.map(|open| open && losses.are_known());
        let no_end = |is_lost: bool| is_lost.then(|| losses.unknown());
        Lacks {
            queueing: (any && !queued).then(no_queueing),
            completions: (any && !counts.completions && (queued || counts.issues)).then(no_completions),
            ends: counts.endless.filter(|_| counts.completions).map(no_ends),
            lost: no_end(lost),
            failures: [
                no_end(lost || counts.ends_lost[0]),
                no_end(lost_below || counts.ends_lost[1] && losses.are_known()),
            ],
            files,
            issues: (any && !queued && !counts.issues).then(no_issues),
            requests: (queued && !counts.issues).then(no_requests),
            requeues: (counts.requeues == 0 && (!counts.issues || counts.reissued > 0)).then(no_requeues),
            splits: counts.parts_unknown.then(no_splits),
            unclear: unclear.cloned(),
        }
    }
}

/// A figure that needs these events: unknown for the first one that is missing.
pub(super) fn known<T>(figure: T, lacks: &[&Option<Unknown>]) -> Evidence<T> {
    match lacks.iter().find_map(|lack| lack.as_ref()) {
        Some(why) => Evidence::Unknown(why.clone()),
        None => Evidence::Known(figure),
    }
}
