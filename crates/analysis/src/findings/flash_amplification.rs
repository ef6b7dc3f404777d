//! Raw flash that is programmed with many times what programs write.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure};
use crate::Evidence;
use crate::units::{digits, size};

/// Bytes programmed for each byte written.
const MIN_TIMES: f64 = 3.0;
/// Less is not worth a word.
const MIN_BYTES: u64 = 256 << 10;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(wear) = seen.flash.and_then(|flash| flash.wear.known()) else { return Vec::new() };
    let (Some(written), Some(programmed)) = (wear.written_bytes, wear.programmed_bytes) else { return Vec::new() };
    let times = programmed as f64 / written.max(1) as f64;
    if written == 0 || programmed < MIN_BYTES || times < MIN_TIMES {
        return Vec::new();
    }
    let first = wear.by_task.iter().filter(|task| task.written_bytes > 0).max_by_key(|task| task.written_bytes);
    let spends =
        first.map_or(String::new(), |task| format!(" Most is written by {}: {}.", task.task, size(task.written_bytes)));
    let source = "flashscope:nand_program, flashscope:file_write";
    vec![Finding {
        rule: Rule::FlashAmplification,
        weight: Weight::Cost,
        processes: Vec::new(),
        what: format!(
            "{} written by programs become {} programmed on the flash: {} times as much.",
            size(written),
            size(programmed),
            digits(times)
        ),
        cause: format!(
            "Writes smaller than a page that are synced one by one each fill a page, and each moves the index.{spends}"
        ),
        evidence: vec![
            measure("written by programs", written as f64, MeasureUnit::Bytes, source),
            measure("programmed", programmed as f64, MeasureUnit::Bytes, source),
            measure("erased", wear.erased_bytes.unwrap_or(0) as f64, MeasureUnit::Bytes, "flashscope:nand_erase"),
        ],
        lost_ns: Evidence::unknown(
            "durations of programs are recorded with --detail duration only",
            "record with --detail duration",
        ),
        lost_bytes: Some(programmed.saturating_sub(written)),
        advice: vec![Remedy {
            what: "Gather records to a page (2 or 4 KiB) or more before they are synced".to_owned(),
            steps: vec![Step::Code {
                line: "if (++records % 50 == 0) { fflush(file); fsync(fileno(file)); }".to_owned(),
            }],
            gain: super::Gain {
                of: "bytes programmed on the flash".to_owned(),
                least_percent: (1.0 - 2.0 / times).max(0.0) * 25.0,
                most_percent: (1.0 - 1.0 / (2.0 * times)) * 100.0,
                basis: "as many bytes as are written stay, and up to three quarters of the rest: mounts, formatting, the file system's own work".to_owned(),
            }
            .into(),
            risk: "a power cut loses the records that were gathered".to_owned(),
        }],
        uncertain: None,
    }]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    fn work(written: u64, programmed: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        let wear = work.flash().wear.known_mut().expect("wear");
        (wear.written_bytes, wear.programmed_bytes) = (Some(written), Some(programmed));
        work
    }

    #[test]
    fn tiny_writes_are_told() {
        let finding = only(find(&work(20_000, 1 << 20).seen()));
        assert!(
            finding.what.starts_with("19.5 KiB written by programs become 1 MiB programmed on the flash: 52.4 times")
        );
        let gain = finding.advice[0].gain.known().expect("a range");
        assert!(gain.least_percent > 20.0 && gain.most_percent < 100.0, "{gain:?}");
    }

    #[test]
    fn large_writes_and_little_of_it_are_not() {
        for (written, programmed) in [(1 << 20, 2 << 20), (1_000, 100_000), (0, 1 << 20)] {
            assert!(find(&work(written, programmed).seen()).is_empty());
        }
    }
}
