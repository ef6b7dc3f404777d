//! The same bytes read from the device again: the page cache is too small for them, or is passed by.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure, percent};
use crate::Evidence;
use crate::block::OwnerKind;
use crate::units::size;
use crate::usage::DeviceUse;

/// Less is not worth a word.
const MIN_BYTES: u64 = 4 << 20;
/// Below this part of all that is read, percent.
const MIN_PERCENT: f64 = 25.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(block) = seen.block else { return Vec::new() };
    // What lies beneath a loop device or an array does what programs ask for there.
    let by_program = |device: &DeviceUse| {
        let is_task =
            |tid| block.originators.originators.iter().any(|one| one.tid == tid && one.kind == OwnerKind::Task);
        seen.usage.readers.iter().any(|reader| reader.device == device.device && is_task(reader.tid))
    };
    let devices = seen.usage.devices.iter();
    let Some(device) = devices.max_by_key(|device| (device.read_again_bytes, by_program(device))) else {
        return Vec::new();
    };
    let (again, all) = (device.read_again_bytes, device.read_bytes);
    if again < MIN_BYTES || percent(again, all) < MIN_PERCENT {
        return Vec::new();
    }
    let source = "block:block_bio_queue: sectors that were read before in this trace";
    vec![Finding {
        rule: Rule::ReadAgain,
        weight: Weight::Cost,
        what: format!(
            "{} of the {} read from {} were read before ({:.0} %).",
            size(again),
            size(all),
            seen.storage.device_name(&device.device),
            percent(again, all)
        ),
        cause: "The page cache no longer had them (it is too small, or was emptied), or O_DIRECT passes it by."
            .to_owned(),
        evidence: vec![
            measure("read", all as f64, MeasureUnit::Bytes, source),
            measure("read again", again as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: seen.read_cost(block, again),
        lost_bytes: Some(again),
        advice: vec![Remedy {
            what: "See how much memory is left for the cache, and which programs take the rest".to_owned(),
            steps: vec![Step::Run { command: "free -m; cat /proc/pressure/memory".to_owned(), names: Vec::new() }],
            gain: Evidence::unknown("how much memory the cache had is not in the trace", ""),
            risk: "none to look".to_owned(),
        }],
        uncertain: None,
    }]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::usage::TaskReads;

    fn work(read_bytes: u64, read_again_bytes: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios(10, "R", 1_000, 1_000_000);
        work.usage.devices.push(DeviceUse { device: "8:0".into(), read_bytes, read_again_bytes });
        work
    }

    #[test]
    fn what_is_read_again_is_told() {
        let finding = only(find(&work(100 << 20, 60 << 20).seen()));
        assert_eq!(finding.what, "60 MiB of the 100 MiB read from 8:0 were read before (60 %).");
    }

    #[test]
    fn the_device_that_a_program_reads_is_named() {
        let mut work = work(100 << 20, 60 << 20);
        let below = DeviceUse { device: "254:0".into(), read_bytes: 100 << 20, read_again_bytes: 60 << 20 };
        work.usage.devices.push(below);
        work.usage.readers.push(TaskReads { device: "8:0".into(), tid: 7, ..TaskReads::default() });
        assert!(only(find(&work.seen())).what.contains("read from 8:0"));
    }

    #[test]
    fn little_of_it_is_not() {
        assert!(find(&work(100 << 20, 10 << 20).seen()).is_empty());
        assert!(find(&work(2 << 20, 1 << 20).seen()).is_empty());
    }
}
