//! Failed I/O: device, error, owner and retries.

use super::in_flight::{Bio, NEVER, NONE};
use super::lacks::{Lacks, known};
use super::watch::Watch;
use crate::Evidence;
use flashscope_trace::{Device, RequestKind};
use foldhash::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How to record the events that a failure's times need.
const AGAIN: &str = "record block_bio_queue and block_rq_issue too (flashscope record --events block)";
/// Most failures in the list; further ones are counted. Those that are no fault take a quarter of it at most, those of programs and those
/// below each.
const MAX_FAILURES: usize = 256;
/// Errors that are no fault of storage. EOPNOTSUPP: a device without an operation, for example discards. EAGAIN: I/O that must not wait
/// (REQ_NOWAIT of io_uring and RWF_NOWAIT) found no room, and ended before it reached the device (`bio_wouldblock_error`,
/// include/linux/bio.h).
const NO_FAULT: [i32; 2] = [-95, -11];
/// Most failed sectors whose next I/O is awaited.
const MAX_SECTORS: usize = 1 << 14;

/// One bio (or request, where the trace shows no bios) that ended with an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Failure {
    pub device: String,
    /// First sector of its first part that failed.
    pub sector: u64,
    pub bytes: u64,
    pub kind: RequestKind,
    /// The kernel's negative number; below: its name in errno.h.
    pub errno: i32,
    pub error: String,
    /// `unknown` where the trace has only its completion.
    pub owner: String,
    /// Time of its queueing, or of its issue where no queueing was recorded.
    pub begin_ns: Evidence<u64>,
    /// Time of the failure.
    #[serde(default)]
    pub end_ns: u64,
    /// From its begin to its end.
    pub took_ns: Evidence<u64>,
    /// 1; 2 where the same operation on the same sector had failed once before; and so on.
    pub attempt: u64,
    /// At a lower level of a stack, for an I/O that is counted above.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub below: bool,
}

/// Owner of a failure that has only a completion in the trace.
const NO_OWNER: &str = "unknown";

impl Failure {
    /// Whether it is a fault of storage.
    pub fn is_fault(&self) -> bool {
        !NO_FAULT.contains(&self.errno)
    }

    pub fn known_owner(&self) -> Option<String> {
        (self.owner != NO_OWNER).then(|| self.owner.clone())
    }

    /// Its owner in a sentence.
    pub fn for_whom(&self) -> &str {
        if self.owner == NO_OWNER { "an unknown owner" } else { &self.owner }
    }
}

/// Counts of failures and retries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct ErrorsFound {
    /// All failures of what programs requested; their times are in the stages.
    pub failed: Evidence<u64>,
    /// Failures at lower levels of a stack; an upper level may have corrected them.
    #[serde(default)]
    pub failed_below: Evidence<u64>,
    /// Of these the ones that are no fault of storage: an operation that the device does not have (EOPNOTSUPP), or I/O that must not wait and
    /// would have had to (EAGAIN).
    #[serde(default)]
    pub no_fault: u64,
    #[serde(default)]
    pub no_fault_below: u64,
    /// Failures of a sector at which the same operation had failed before.
    pub retries: Evidence<u64>,
    /// I/O that succeeded where the same operation had failed before.
    pub recovered: Evidence<u64>,
    /// The first ones, in order of completion.
    pub failures: Vec<Failure>,
}

impl ErrorsFound {
    /// The number of failures at this level, and whether it is only a lower bound: then those in the list count.
    pub fn seen(&self, below: bool) -> (u64, bool) {
        match if below { &self.failed_below } else { &self.failed } {
            Evidence::Known(n) => (*n, false),
            Evidence::Unknown(_) => {
                let faults = self.failures.iter().filter(|one| one.below == below && one.is_fault()).count() as u64;
                (faults + if below { self.no_fault_below } else { self.no_fault }, true)
            }
        }
    }
}

struct Failed {
    bio: Bio,
    /// The part that failed: first sector, number of sectors.
    part: (u64, u64),
    completed: u64,
    attempt: u64,
}

/// Watches for errors; costs nothing where there are none.
#[derive(Default)]
pub(super) struct Errors {
    failed: u64,
    failed_below: u64,
    /// No faults, of programs and below.
    no_fault: [u64; 2],
    retries: u64,
    recovered: u64,
    failures: Vec<Failed>,
    /// Number of failed attempts, by device, kind and sector.
    sectors: BTreeMap<(u16, RequestKind, u64), u64>,
    /// By device, the last flush request that failed: the bio that waits for it has the same error.
    flushes: BTreeMap<u16, Failed>,
    /// Failed parts of bios in flight, by the bio's name and time.
    parts: HashMap<(u32, u64), (u64, u64)>,
}

impl Watch for Errors {
    #[cold]
    fn failed_part(&mut self, at: u32, bio: &Bio, sectors: u64) {
        if self.parts.len() < MAX_SECTORS {
            self.parts.entry((at, bio.queued)).or_insert((bio.sector, sectors));
        }
    }

    #[cold]
    fn failed_alone(&mut self, bio: &Bio, now: u64) {
        self.outcome(bio, (bio.sector, u64::from(bio.sectors)), now);
    }

    #[inline(always)]
    fn ended(&mut self, at: u32, bio: &Bio, completed: u64) {
        if bio.error != 0 || !self.sectors.is_empty() || !self.parts.is_empty() {
            let part = if self.parts.is_empty() { None } else { self.parts.remove(&(at, bio.queued)) };
            if completed != NEVER {
                // An empty flush lies at an internal number of the matching.
                let own = if bio.kind == RequestKind::Flush { (0, 0) } else { (bio.sector, u64::from(bio.sectors)) };
                self.outcome(bio, part.unwrap_or(own), completed);
            }
        }
    }
}

impl Errors {
    #[cold]
    fn outcome(&mut self, bio: &Bio, part: (u64, u64), completed: u64) {
        if bio.flush && bio.error != 0 {
            self.flushes.remove(&bio.device);
        }
        if bio.kind == RequestKind::Flush {
            if bio.error != 0 {
                self.flush_failed(Failed { bio: *bio, part, completed, attempt: 1 });
            }
            return;
        }
        let key = |sector| (bio.device, bio.kind, sector);
        // Of a stack's levels the highest one is what the program got.
        let counts = bio.shown && !bio.below;
        if bio.error == 0 {
            let begin = bio.end().saturating_sub(u64::from(bio.whole_sectors));
            let failed = self.sectors.range(key(begin)..key(bio.end().max(begin + 1)));
            let failed: Vec<_> = failed.map(|(&key, _)| key).collect();
            self.recovered += u64::from(!failed.is_empty() && counts);
            self.sectors.retain(|key, _| !failed.contains(key));
            return;
        }
        let key = key(part.0);
        let attempt = self.sectors.get(&key).copied().unwrap_or(0) + 1;
        if attempt > 1 || self.sectors.len() < MAX_SECTORS {
            self.sectors.insert(key, attempt);
        }
        self.retries += u64::from(attempt > 1 && counts);
        self.add(Failed { bio: *bio, part, completed, attempt });
    }

    fn add(&mut self, failed: Failed) {
        if !failed.bio.shown {
            return;
        }
        *if failed.bio.below { &mut self.failed_below } else { &mut self.failed } += 1;
        let is_fault = !NO_FAULT.contains(&failed.bio.error);
        let no_fault = &mut self.no_fault[usize::from(failed.bio.below)];
        *no_fault += u64::from(!is_fault);
        if self.failures.len() < MAX_FAILURES && (is_fault || *no_fault <= MAX_FAILURES as u64 / 4) {
            self.failures.push(failed);
        }
    }

    /// Another flush is no second attempt of this one, and its success does not restore lost data.
    fn flush_failed(&mut self, failed: Failed) {
        let before = match failed.bio.is_request() {
            true => self.flushes.insert(failed.bio.device, failed),
            false => Some(failed),
        };
        before.into_iter().for_each(|before| self.add(before));
    }

    /// `owner` returns an owner's name.
    pub fn finish(&mut self, lacks: &Lacks, devices: &[Device], owner: impl Fn(u32) -> String) -> ErrorsFound {
        // Flushes that no bio of this trace waited for.
        std::mem::take(&mut self.flushes).into_values().for_each(|one| self.add(one));
        let Lacks { queueing, completions, ends, files, failures: [of_programs, of_below], .. } = lacks;
        let known_count = |count| known(count, &[completions, ends, files, of_programs]);
        let failed_below = known(self.failed_below, &[queueing, completions, files, of_below]);
        let failure = |one: &Failed| {
            let begin = if one.bio.is_request() { one.bio.issued } else { one.bio.queued };
            let known = |ns: u64| match begin {
                NEVER => Evidence::unknown("the trace has neither the queueing nor the issue of this request", AGAIN),
                _ => Evidence::Known(ns),
            };
            Failure {
                device: devices[usize::from(one.bio.device)].to_string(),
                sector: one.part.0,
                bytes: one.part.1 * 512,
                kind: one.bio.kind,
                errno: one.bio.error,
                error: errno_name(one.bio.error).to_owned(),
                owner: if one.bio.owner == NONE { NO_OWNER.to_owned() } else { owner(one.bio.owner) },
                begin_ns: known(begin),
                end_ns: one.completed,
                took_ns: known(one.completed.saturating_sub(begin)),
                attempt: one.attempt,
                below: one.bio.below,
            }
        };
        ErrorsFound {
            failed: known_count(self.failed),
            failed_below,
            no_fault: self.no_fault[0],
            no_fault_below: self.no_fault[1],
            retries: known_count(self.retries),
            recovered: known_count(self.recovered),
            failures: self.failures.iter().map(failure).collect(),
        }
    }
}

/// Errors of block requests (`blk_errors` in block/blk-core.c), and further ones of drivers and older kernels; numbers of
/// include/uapi/asm-generic/errno.h.
const NAMES: [(i32, &str); 33] = [
    (1, "EPERM"),
    (5, "EIO"),
    (6, "ENXIO"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (16, "EBUSY"),
    (19, "ENODEV"),
    (22, "EINVAL"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (30, "EROFS"),
    (32, "EPIPE"),
    (34, "ERANGE"),
    (52, "EBADE"),
    (61, "ENODATA"),
    (62, "ETIME"),
    (67, "ENOLINK"),
    (71, "EPROTO"),
    (74, "EBADMSG"),
    (75, "EOVERFLOW"),
    (84, "EILSEQ"),
    (95, "EOPNOTSUPP"),
    (107, "ENOTCONN"),
    (108, "ESHUTDOWN"),
    (110, "ETIMEDOUT"),
    (112, "EHOSTDOWN"),
    (117, "EUCLEAN"),
    (121, "EREMOTEIO"),
    (123, "ENOMEDIUM"),
    (124, "EMEDIUMTYPE"),
    (125, "ECANCELED"),
];

pub(super) fn errno_name(error: i32) -> &'static str {
    NAMES.iter().find(|(number, _)| *number == error.saturating_neg()).map_or("unknown error", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::super::in_flight::InFlight;
    use super::*;
    use flashscope_trace::RequestFlags;

    #[test]
    fn a_flush_that_fails_is_one_failure_and_no_attempt_of_another() {
        let mut errors = Errors::default();
        let bio = |error: i32, queued: u64, flush: bool| {
            let plain = InFlight::plain(0, RequestFlags::FLUSH, 0, 0, 3, queued);
            Bio { error, flush, kind: RequestKind::Flush, issued: 10, ..plain }
        };
        // The device's flush and the bio that waits for it, twice; one that succeeds; a flush without a waiting bio.
        for (error, queued, flush) in [(-5, NEVER, false), (-5, 5, true), (-5, NEVER, false), (-5, 8, true)] {
            errors.ended(0, &bio(error, queued, flush), 50);
        }
        errors.ended(0, &bio(0, 60, true), 70);
        errors.ended(0, &bio(-5, NEVER, false), 90);
        let found = errors.finish(&Lacks::default(), &[Device::new(8, 0)], |owner| format!("task {owner}"));
        assert_eq!([found.failed, found.retries, found.recovered], [3, 0, 0].map(Evidence::Known));
        let attempts: Vec<(u64, u64)> = found.failures.iter().map(|one| (one.attempt, one.end_ns)).collect();
        assert_eq!(attempts, [(1, 50), (1, 50), (1, 90)]);
    }

    /// Many refusals of I/O that must not wait, then one failure of the device.
    #[test]
    fn what_is_no_fault_leaves_room_for_what_is() {
        let mut errors = Errors::default();
        for at in 0..400 {
            let error = if at == 399 { -5 } else { -11 };
            errors.ended(0, &Bio { error, ..InFlight::plain(0, RequestFlags::READ, at * 8, 8, 3, at) }, at + 3);
        }
        let found = errors.finish(&Lacks::default(), &[Device::new(8, 0)], |owner| format!("task {owner}"));
        assert_eq!((found.failed.clone(), found.no_fault, found.no_fault_below), (400.into(), 399, 0));
        let faults: Vec<u64> = found.failures.iter().filter(|one| one.is_fault()).map(|one| one.sector).collect();
        assert_eq!(faults, [399 * 8]);
        assert_eq!(found.seen(false), (400, false));
    }

    #[test]
    fn a_retry_is_told_from_a_first_failure_and_from_a_success() {
        let mut errors = Errors::default();
        let mut end = |sector: u64, error: i32, at: u64| {
            let bio = Bio { error, ..InFlight::plain(0, RequestFlags::READ, sector, 8, 3, at) };
            errors.ended(0, &bio, at + 50);
        };
        for (sector, error, at) in
            [(8, 0, 0), (16, -5, 100), (16, -5, 200), (24, -110, 300), (16, 0, 400), (16, -5, 500)]
        {
            end(sector, error, at);
        }
        let found = errors.finish(&Lacks::default(), &[Device::new(8, 0)], |owner| format!("task {owner}"));
        let counts = [found.failed, found.retries, found.recovered];
        assert_eq!(counts, [4, 1, 1].map(Evidence::Known));
        let attempts: Vec<u64> = found.failures.iter().map(|one| one.attempt).collect();
        assert_eq!(attempts, [1, 2, 1, 1]);
        let second = &found.failures[1];
        assert_eq!((second.error.as_str(), second.sector, second.took_ns.clone()), ("EIO", 16, 50.into()));
        assert_eq!((found.failures[2].error.as_str(), errno_name(-4095)), ("ETIMEDOUT", "unknown error"));
        assert_eq!((errno_name(-34), errno_name(-107), errno_name(-123)), ("ERANGE", "ENOTCONN", "ENOMEDIUM"));
    }
}
