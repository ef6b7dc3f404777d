//! Failed I/O.

use super::lost_events::capital;
use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure};
use crate::Evidence;
use crate::block::{Failure, Unit};
use crate::total::Total as _;
use crate::units::{counted, grouped};

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let errors = &found.errors;
    let real = || errors.failures.iter().filter(|one| one.is_fault());
    let known = |count: &Evidence<u64>| count.known().copied().unwrap_or(0);
    let count = |below: bool| {
        let (n, is_least) = errors.seen(below);
        let no_fault = if below { errors.no_fault_below } else { errors.no_fault };
        (n.saturating_sub(no_fault), if is_least { "at least " } else { "" })
    };
    let ((failed, at_least), (below, at_least_below)) = (count(false), count(true));
    let Some(first) = real().find(|one| !one.below) else {
        return real().next().map(|first| put_right(seen, first, (at_least_below, below))).into_iter().collect();
    };
    let device = seen.storage.device_name(&first.device);
    let source = "block:block_rq_complete, block_bio_complete (their error)";
    // The time of a failure with only a completion is unknown; so is the sum.
    let unknown = real().filter(|one| !one.below).find_map(|one| one.took_ns.why());
    let took = real().filter(|one| !one.below).filter_map(|one| one.took_ns.known());
    let took = took.fold(0_u64, |sum, ns| sum.saturating_add(*ns));
    let lost_ns = unknown.map_or(Evidence::Known(took), |why| Evidence::Unknown(why.clone()));
    let mut evidence = vec![measure("failures", failed as f64, MeasureUnit::Count, source)];
    if lost_ns.known().is_some() {
        evidence.push(measure("time in failed I/O", took as f64, MeasureUnit::Ns, source));
    }
    let unit = if found.stages.unit == Unit::Bio { "bio" } else { "request" };
    let (retries, recovered) = (known(&errors.retries), known(&errors.recovered));
    let mut cause = match retries + recovered {
        0 if errors.retries.known().is_none() => "Whether they were tried again is unknown.".to_owned(),
        // A device above may have corrected it, where the trace does not show what was queued.
        0 if errors.failed_below.known().is_none() => "None of them was tried again in the trace.".to_owned(),
        0 => "None of them was tried again: the program got the error.".to_owned(),
        _ => tried_again(retries, recovered),
    };
    if let Some(lower) = real().find(|one| one.below) {
        cause += &format!(
            " Below them {at_least_below}{} of {} failed, the first at sector {}.",
            grouped(below),
            seen.storage.device_name(&lower.device),
            lower.sector
        );
    }
    vec![Finding {
        rule: Rule::Errors,
        weight: Weight::Fault,
        processes: first.known_owner().into_iter().collect(),
        what: format!(
            "{}{} of {device} failed with {}: the first at sector {}, {} for {}.",
            capital(at_least),
            counted(failed, unit),
            first.error,
            first.sector,
            first.kind.plural(),
            first.for_whom()
        ),
        cause,
        evidence,
        lost_ns,
        lost_bytes: Some(real().filter(|one| !one.below).map(|one| one.bytes).total()),
        advice: vec![save_the_data()],
        uncertain: None,
    }]
}

/// Failures only at lower levels: no program got an error.
fn put_right(seen: &Seen<'_>, first: &Failure, (at_least, below): (&str, u64)) -> Finding {
    let source = "block:block_rq_complete, block_bio_complete (their error)";
    let is_known = seen.block.is_some_and(|found| found.errors.failed.known().is_some());
    Finding {
        weight: Weight::Fault,
        processes: first.known_owner().into_iter().collect(),
        what: format!(
            "{}{} of {} failed with {} {}: the first at sector {}, {} for {}.",
            capital(at_least),
            counted(below, "bio"),
            seen.storage.device_name(&first.device),
            first.error,
            if is_known { "below a device that corrected it" } else { "at a lower level" },
            first.sector,
            first.kind.plural(),
            first.for_whom()
        ),
        cause: match is_known {
            true => "No program got the error: the level above has another copy, or tried again.".to_owned(),
            false => "Whether a program got the error is unknown: the end of some I/O is lost.".to_owned(),
        },
        evidence: vec![measure("failures at lower levels", below as f64, MeasureUnit::Count, source)],
        lost_ns: Evidence::unknown("the cost of the failures is not measured", ""),
        advice: vec![save_the_data()],
        ..Finding::of(Rule::Errors)
    }
}

fn tried_again(retries: u64, recovered: u64) -> String {
    let again = match retries {
        0 => String::new(),
        1 => "1 of these failures was at a place that had failed before. ".to_owned(),
        n => format!("{} of these failures were at places that had failed before. ", grouped(n)),
    };
    match recovered {
        0 => again + "No later try succeeded.",
        n => again + &format!("The same operation succeeded later at {}.", counted(n, "place")),
    }
}

fn save_the_data() -> Remedy {
    Remedy {
        what: "Save the data, and read the driver's messages about the device".to_owned(),
        steps: vec![Step::Run { command: "dmesg --level=err,warn".to_owned(), names: Vec::new() }],
        gain: Evidence::unknown("no setting repairs a failing device", ""),
        risk: "each further read of a failing device may be its last".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use flashscope_trace::RequestKind;

    fn failure(errno: i32) -> Failure {
        Failure {
            device: "8:0".into(),
            sector: 4096,
            bytes: 4096,
            kind: RequestKind::Read,
            errno,
            error: "EIO".into(),
            owner: "reader (7)".into(),
            begin_ns: 5.into(),
            end_ns: 30_000_005,
            took_ns: 30_000_000.into(),
            attempt: 1,
            below: false,
        }
    }

    #[test]
    fn a_failing_sector_is_the_first_thing_said() {
        let mut work = Work::new(1_000_000_000);
        work.bios(10, "R", 1_000, 1_000_000);
        (work.block().errors.failed, work.block().errors.no_fault) = (2.into(), 1);
        work.block().errors.failures = vec![failure(-95), failure(-5)];
        let finding = only(find(&work.seen()));
        assert_eq!((finding.weight, finding.rule), (Weight::Fault, Rule::Errors));
        assert_eq!(finding.what, "1 bio of 8:0 failed with EIO: the first at sector 4096, reads for reader (7).");
        assert_eq!(super::super::find(&work.seen())[0].rule, Rule::Errors);
    }

    #[test]
    fn what_a_level_above_put_right_is_no_programs_failure() {
        let mut work = Work::new(1_000_000_000);
        work.bios(10, "R", 1_000, 1_000_000);
        let below = || Failure { device: "8:16".into(), below: true, ..failure(-5) };
        work.block().errors.failed_below = 1.into();
        work.block().errors.failures = vec![below()];
        let finding = only(find(&work.seen()));
        assert!(finding.what.starts_with("1 bio of 8:16 failed with EIO below a device"), "{}", finding.what);
        work.block().errors.failed = 1.into();
        work.block().errors.failures = vec![below(), failure(-5)];
        let finding = only(find(&work.seen()));
        assert!(finding.what.starts_with("1 bio of 8:0 failed with EIO: the first"), "{}", finding.what);
        assert!(finding.cause.ends_with("Below them 1 of 8:16 failed, the first at sector 4096."), "{}", finding.cause);
        assert_eq!(finding.lost_bytes, Some(4096));
    }

    #[test]
    fn tries_are_counted_as_what_they_were() {
        for (retries, recovered, told) in [
            (0, 0, "None of them was tried again: the program got the error."),
            (1, 0, "1 of these failures was at a place that had failed before. No later try succeeded."),
            (0, 1, "The same operation succeeded later at 1 place."),
            (
                2,
                2,
                "2 of these failures were at places that had failed before. The same operation succeeded later at 2 places.",
            ),
        ] {
            let mut work = Work::new(1_000_000_000);
            work.bios(10, "R", 1_000, 1_000_000);
            let errors = &mut work.block().errors;
            (errors.failed, errors.retries, errors.recovered) = (3.into(), retries.into(), recovered.into());
            errors.failures = vec![failure(-5)];
            assert_eq!(only(find(&work.seen())).cause, told);
        }
    }

    #[test]
    fn failures_without_a_begin_have_no_time_of_zero() {
        let mut work = Work::new(1_000_000_000);
        work.bios(10, "R", 1_000, 1_000_000);
        work.block().errors.failed = 1.into();
        let took_ns = Evidence::unknown("the trace has neither the queueing nor the issue of this request", "");
        work.block().errors.failures = vec![Failure { took_ns, ..failure(-5) }];
        let finding = only(find(&work.seen()));
        assert!(finding.lost_ns.known().is_none());
        assert!(finding.evidence.iter().all(|one| one.name != "time in failed I/O"));
    }

    #[test]
    fn no_failure_and_no_support_are_none() {
        let mut work = Work::new(1_000_000_000);
        work.bios(10, "R", 1_000, 1_000_000);
        assert!(find(&work.seen()).is_empty());
        work.block().errors.failed = 1.into();
        work.block().errors.failures = vec![failure(-95)];
        assert!(find(&work.seen()).is_empty());
    }
}
