//! Files on overlayfs that are copied whole because a program opens them to write.

use super::{Finding, GroupBy, MeasureUnit, Remedy, Rule, Seen, Step, gain, groups, measure, percent};
use crate::calls::{CallGroup, FURTHER, opens};
use crate::units::{duration, grouped, size};

/// Fewest bytes: the copy of a smaller file takes a moment.
const MIN_BYTES: u64 = 1 << 20;
/// An `open()` that copies nothing may take longer than before, percent of the time in all.
const ROUGH_PERCENT: f64 = 10.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let overlays = &seen.storage.overlays;
    if overlays.is_empty() {
        return Vec::new();
    }
    // No other open() reads or writes data.
    let is_copy = |group: &&CallGroup| {
        opens(&group.call) && group.bytes >= MIN_BYTES && group.name != FURTHER && seen.matters(group.total_ns)
    };
    seen.calls.by_process.iter().filter(is_copy).map(|group| of_process(seen, overlays, group)).collect()
}

fn of_process(seen: &Seen<'_>, overlays: &[String], group: &CallGroup) -> Finding {
    let (place, directory) = match overlays {
        [one] => (format!("overlayfs ({one})"), format!("{}/DIRECTORY", one.trim_end_matches('/'))),
        _ => ("overlayfs".to_owned(), "/OVERLAY/DIRECTORY".to_owned()),
    };
    let files = seen.block.into_iter().flat_map(|block| groups(block, GroupBy::File));
    let most = files.filter_map(|file| Some((file.path.as_deref()?, file.read_bytes?))).max_by_key(|(_, bytes)| *bytes);
    let file = most.filter(|(_, bytes)| *bytes * 2 > group.bytes);
    let others_ns = group.ns.p50.saturating_mul(group.ns.n);
    let source = "syscalls:sys_enter_open*, sys_exit_*; events of the page cache within them";
    Finding {
        processes: vec![group.name.clone()],
        what: format!(
            "{} waits {} of {} in {}() on {place}: {} are copied before it can write.",
            group.name,
            duration(group.total_ns),
            duration(seen.span_ns),
            group.call,
            size(group.bytes),
        ),
        cause: format!(
            "overlayfs copies a whole file from the lower to the upper directory when it is first opened to be written, \
             however little is changed.{}",
            file.map_or(String::new(), |(path, _)| format!(" Most is of {path}."))
        ),
        evidence: vec![
            measure(&format!("time in {}()", group.call), group.total_ns as f64, MeasureUnit::Ns, source),
            measure("bytes copied", group.bytes as f64, MeasureUnit::Bytes, source),
            measure("calls", group.ns.n as f64, MeasureUnit::Count, source),
        ],
        lost_ns: group.total_ns.into(),
        lost_bytes: Some(group.bytes),
        advice: vec![Remedy {
            what: "Keep files that programs change in a directory of the writable file system, and mount it into the \
                   overlay"
                .to_owned(),
            steps: vec![Step::Run { command: "mount --bind /WRITABLE/DIRECTORY".to_owned(), names: vec![directory] }],
            gain: gain(
                format!("time in {}() of {}", group.call, group.name),
                [(100.0 - ROUGH_PERCENT - percent(others_ns, group.total_ns)).max(0.0), 100.0],
                format!(
                    "nothing is copied then; {} calls at the median of {} stay",
                    grouped(group.ns.n),
                    duration(group.ns.p50)
                ),
            ),
            risk: "files of the lower directory below it are hidden: copy them there before".to_owned(),
        }],
        ..Finding::of(Rule::CopyUp)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    /// Measured: a file of 200 MiB, to which a shell appends two bytes.
    #[test]
    fn a_large_file_that_is_copied_up_is_told() {
        for (is_overlay, bytes, ns, told) in [
            (true, 200 << 20, 380_000_000, true),
            (false, 200 << 20, 380_000_000, false),
            (true, 4096, 380_000_000, false),
            (true, 200 << 20, 2_000_000, false),
        ] {
            let mut work = Work::new(400_000_000);
            work.storage.overlays.extend(is_overlay.then(|| "/o".to_owned()));
            work.call("openat", "sh (7)", 3, ns, bytes);
            work.call("read", "dd (8)", 300, 350_000_000, bytes);
            let found = find(&work.seen());
            assert_eq!(found.len(), usize::from(told), "{is_overlay} {bytes} {ns}");
            if told {
                let finding = only(found);
                assert_eq!(
                    finding.what,
                    "sh (7) waits 380.00 ms of 400.00 ms in openat() on overlayfs (/o): 200 MiB are copied before it can write."
                );
                let gain = finding.advice[0].gain.known().expect("a range");
                assert_eq!((gain.least_percent, gain.most_percent), (90.0, 100.0));
            }
        }
    }
}
