//! Memory that is written to swap and read back.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure, stage};
use crate::block::BlockFound;
use crate::units::{duration, size};
use crate::{Evidence, split_task_label, task_label};

const MIN_BYTES: u64 = 1 << 20;
/// Below this share of the recorded time it does not matter, percent.
const MIN_PERCENT: f64 = 2.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    seen.storage.swaps.iter().filter_map(|device| of_device(seen, found, device)).collect()
}

fn of_device(seen: &Seen<'_>, found: &BlockFound, device: &str) -> Option<Finding> {
    let [reads, writes] = ["reads", "writes"].map(|what| seen.device_group(device, what));
    let bytes = |group: Option<&crate::block::Group>| group.map_or(0, |group| group.bytes);
    let time = reads.and_then(|group| stage(group, "Q2C"));
    // Many are under way at once: together they take more than the time in which programs wait for them.
    let waited = time.map_or(0, |q2c| q2c.total_ns).min(seen.span_ns);
    if bytes(reads) + bytes(writes) < MIN_BYTES || seen.of_span(waited) < MIN_PERCENT {
        return None;
    }
    let task = |tid| found.originators.task(tid);
    let readers = seen.usage.readers.iter().filter(|reader| reader.device == device);
    let first = readers.filter_map(|reader| Some((task(reader.tid)?, reader.bytes))).max_by_key(|(_, bytes)| *bytes);
    let thread = first.map(|(one, _)| match split_task_label(&one.name) {
        Some(_) => one.name.clone(),
        None => task_label(&one.name, one.tid, 1),
    });
    let whose = match (&thread, first) {
        (Some(name), Some((_, read))) => format!(" {name} reads {} of it back.", size(read)),
        _ => String::new(),
    };
    let source = "block:block_bio_queue, block_rq_complete; /proc/swaps";
    Some(Finding {
        rule: Rule::Swap,
        weight: Weight::Cost,
        processes: thread.iter().cloned().collect(),
        what: format!(
            "Memory is swapped: {} are written to {} and {} read back.{whose}",
            size(bytes(writes)),
            seen.storage.device_name(device),
            size(bytes(reads))
        ),
        cause: format!(
            "Programs need more memory than there is, or than their cgroup may have. Each page that was swapped out has to be read \
             when it is used: {} on average.",
            duration(time.map_or(0, |q2c| q2c.ns.mean))
        ),
        evidence: vec![
            measure("written to swap", bytes(writes) as f64, MeasureUnit::Bytes, source),
            measure("read back", bytes(reads) as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: waited.into(),
        lost_bytes: Some(bytes(reads).saturating_add(bytes(writes))),
        advice: vec![Remedy {
            what: "Give the program more memory (a higher memory.max, or memory.limit_in_bytes, of its cgroup), or have it use less"
                .to_owned(),
            steps: vec![Step::Run {
                command: "grep -r . /sys/fs/cgroup --include=memory.max --include=memory.limit_in_bytes; free -m".to_owned(),
                names: Vec::new(),
            }],
            gain: Evidence::unknown(
                "how much memory the program needs is not in the trace",
                "record again with more, and compare: flashscope diff",
            ),
            risk: "other programs have less memory".to_owned(),
        }],
        uncertain: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::usage::TaskReads;
    use flashscope_trace::TaskId;

    #[test]
    fn a_device_that_is_swap_is_told_with_its_program() {
        let mut work = Work::new(1_000_000_000);
        work.bios(400, "R", 1_000, 999_000);
        work.usage.readers.push(TaskReads {
            device: "8:0".into(),
            tid: TaskId(7),
            bytes: 400 << 12,
            ..TaskReads::default()
        });
        assert!(find(&work.seen()).is_empty());
        work.storage.swaps.push("8:0".into());
        let finding = only(find(&work.seen()));
        assert_eq!(
            finding.what,
            "Memory is swapped: 0 B are written to 8:0 and 1.56 MiB read back. task (7) reads 1.56 MiB of it back."
        );
        assert_eq!(finding.lost_ns, 400_000_000.into());
        work.span_ns *= 100;
        assert!(find(&work.seen()).is_empty());
    }
}
