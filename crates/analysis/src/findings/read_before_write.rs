//! Writes of parts of blocks that are not cached: the kernel reads each block before it changes it.
//!
//! Input: calls and bios of one thread that makes no reads which would explain its bios.

use super::{Finding, GroupBy, MeasureUnit, Remedy, Rule, Seen, code, gain, groups, measure, percent, stage};
use crate::block::OwnerKind;
use crate::calls::{CallGroup, is_read, is_write};
use crate::units::{duration, grouped, size};
use crate::usage::TaskReads;

const MIN_WRITES: u64 = 50;
/// Block size of nearly all file systems, bytes. A write of whole blocks needs no read.
const BLOCK_BYTES: u64 = 4096;
/// Least share of its writes with a bio that reads, per cent.
const MIN_READ_PERCENT: f64 = 50.0;
/// Most reads that its own read() calls and faults may explain, per cent of its bios.
const MAX_ASKED_PERCENT: f64 = 25.0;
/// Least share of these reads in the time of the writes, per cent.
const MIN_WAITED_PERCENT: f64 = 40.0;
/// The mean time of a device's reads holds for a thread that made at least this share of them, per cent of their bytes.
const MIN_OWN_PERCENT: f64 = 80.0;
/// Least gain, per cent of the reads' time: waking the program takes time, too, and other writes share blocks.
const SURE_PERCENT: f64 = 80.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    // Without events of faults, reads through a mapping beside its writes look the same.
    if seen.readahead.is_none_or(|found| found.faults_not_shown) {
        return Vec::new();
    }
    let writes = seen.calls.by_process.iter().filter(|group| is_write(&group.call));
    writes.filter_map(|call| Some(finding(seen, call, &of_call(seen, call)?))).collect()
}

/// The reads that the writes of a call wait for.
pub(super) struct Reads<'a> {
    reader: &'a TaskReads,
    total_ns: u64,
}

/// `None`: these writes do not wait for such reads.
pub(super) fn of_call<'a>(seen: &Seen<'a>, call: &CallGroup) -> Option<Reads<'a>> {
    let found = seen.block?;
    let n = call.ns.n;
    let each = call.bytes / n.max(1);
    if n < MIN_WRITES || each == 0 || each >= BLOCK_BYTES {
        return None;
    }
    let tasks = found.originators.originators.iter().filter(|one| one.kind == OwnerKind::Task);
    let mut tasks = tasks.filter(|one| one.is_called(&call.name));
    let tid = found.originators.task(tasks.next()?.tid).filter(|one| one.is_called(&call.name))?.tid;
    let reader = seen.usage.readers.iter().filter(|one| one.tid == tid).max_by_key(|one| one.bios)?;
    let data = reader.bios.saturating_sub(reader.metadata_bios);
    // Reads of files on that device, and faults there, by any program.
    let of_device = |device: &str| device == reader.device;
    let asked: u64 = seen.usage.files.iter().filter(|file| of_device(&file.device)).map(|file| file.reads).sum();
    let faults = seen.usage.file_faults.iter().filter(|((device, _), _)| of_device(device));
    let asked = asked.saturating_add(faults.map(|(_, of)| of.faults).sum());
    // For direct I/O only the call shows a read.
    let own = seen.calls.by_process.iter().filter(|group| group.name == call.name && is_read(&group.call));
    let own: u64 = own.map(|group| group.ns.n).sum();
    if percent(data, n) < MIN_READ_PERCENT || percent(asked.max(own), data) > MAX_ASKED_PERCENT {
        return None;
    }
    let group = groups(found, GroupBy::Device).find(|group| group.name == format!("{} reads", reader.device))?;
    if percent(reader.bytes, group.bytes) < MIN_OWN_PERCENT {
        return None;
    }
    let total_ns = stage(group, "Q2C")?.ns.mean.saturating_mul(data).min(call.total_ns);
    (percent(total_ns, call.total_ns) >= MIN_WAITED_PERCENT)
        .then_some(Reads { reader, total_ns })
        .filter(|_| seen.matters(call.total_ns))
}

fn finding(seen: &Seen<'_>, call: &CallGroup, reads: &Reads<'_>) -> Finding {
    let Reads { reader, total_ns } = reads;
    let source = "syscalls:sys_enter_*, sys_exit_*; block:block_bio_queue, block_rq_complete by the same thread";
    let device = seen.storage.device_name(&reader.device);
    Finding {
        processes: vec![call.name.clone()],
        what: format!(
            "{} waits {} in {} calls of {}() of {}, and {} of that for {} reads from {device}.",
            call.name,
            duration(call.total_ns),
            grouped(call.ns.n),
            call.call,
            size(call.bytes / call.ns.n.max(1)),
            duration(*total_ns),
            grouped(reader.bios)
        ),
        cause: "A write of a part of a block that is not in memory has the kernel read the block before: it reads here to be able to write."
            .to_owned(),
        evidence: vec![
            measure("writes", call.ns.n as f64, MeasureUnit::Count, source),
            measure("time in them", call.total_ns as f64, MeasureUnit::Ns, source),
            measure("reads by the same thread", reader.bios as f64, MeasureUnit::Count, source),
            measure("their time", *total_ns as f64, MeasureUnit::Ns, source),
        ],
        lost_ns: (*total_ns).into(),
        lost_bytes: Some(reader.bytes),
        advice: vec![Remedy {
            what: format!("Write whole blocks: {BLOCK_BYTES} bytes, at an offset that is a multiple of it; or append"),
            steps: vec![code::WRITE_BLOCK.with(BLOCK_BYTES)],
            gain: gain(
                format!("time in {}() of {}", call.call, call.name),
                [percent(*total_ns, call.total_ns) * SURE_PERCENT / 100.0, 100.0],
                "a whole block is not read before; the rest of the time in these calls stays, or goes with the wait",
            ),
            risk: "more bytes are written, if only a part of each block changes".to_owned(),
        }],
        ..Finding::of(Rule::ReadBeforeWrite)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::super::{small_sync_writes, top_io};
    use super::*;
    use crate::cache::AccuracyFindings;
    use crate::usage::{FileFaults, FileReads};
    use flashscope_trace::TaskId;

    /// What is changed, and how.
    type Case = (&'static str, fn(&mut Work));

    /// 400 writes of 200 bytes, each of which has a block read, 1 ms each.
    fn work() -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios_of("db", 400, "R", 1_000, 999_000);
        work.call("pwrite64", "db (7)", 400, 500_000_000, 80_000);
        let (device, tid, bios, bytes) = ("8:0".into(), TaskId(7), 400, 400 << 12);
        work.usage.readers.push(TaskReads { device, tid, bios, bytes, ..TaskReads::default() });
        work.readahead = Some(AccuracyFindings::default());
        work
    }

    #[test]
    fn a_block_that_is_read_to_change_a_part_is_told() {
        let finding = only(find(&work().seen()));
        assert_eq!(
            finding.what,
            "db (7) waits 500.00 ms in 400 calls of pwrite64() of 200 B, and 400.00 ms of that for 400 reads from 8:0."
        );
        let gain = finding.advice[0].gain.known().expect("a range");
        assert_eq!((gain.least_percent.round(), gain.most_percent), (64.0, 100.0));
        assert!(small_sync_writes::find(&work().seen()).is_empty(), "it has no O_SYNC");
        assert!(!top_io::find(&work().seen()).is_empty());
    }

    #[test]
    fn whole_blocks_readers_and_synchronous_writes_are_not() {
        let cases: [Case; 8] = [
            ("whole blocks", |work| work.calls.by_process[0].bytes = 400 << 12),
            ("it reads files", |work| {
                let (device, inode, reads) = ("8:0".into(), 12, 400);
                work.usage.files.push(FileReads { device, inode, reads, ..FileReads::default() });
            }),
            ("it reads past the page cache", |work| work.call("pread64", "db (7)", 400, 400_000_000, 400 << 12)),
            ("its mapped files are read", |work| {
                let of = FileFaults { faults: 400, elsewhere: 400, extent_bytes: 1 << 30, mapped_bytes: 0 };
                work.usage.file_faults.insert(("8:0".into(), 12), of);
            }),
            ("no event shows faults", |work| work.readahead.as_mut().expect("pages").faults_not_shown = true),
            ("no event shows the page cache", |work| work.readahead = None),
            ("the file system's own", |work| work.usage.readers[0].metadata_bios = 390),
            ("the writes take longer, for something else", |work| work.calls.by_process[0].total_ns = 4_000_000_000),
        ];
        for (name, change) in cases {
            let mut work = work();
            change(&mut work);
            assert!(find(&work.seen()).is_empty(), "{name}");
        }
    }
}
