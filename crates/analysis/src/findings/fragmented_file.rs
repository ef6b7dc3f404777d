//! A file that is read in order and lies in many pieces on the device.
//!
//! Reads of the file each begin where the one before ended, and bios of the reading program do not, although read-ahead would join
//! neighbours. The program has to read mainly such files: nothing else explains the places of its bios.

use super::{Disk, Finding, GroupBy, MeasureUnit, Remedy, Rule, Seen, Step, gain, groups, measure, percent, stage};
use crate::block::BlockFound;
use crate::calls::is_read;
use crate::total::Total as _;
use crate::units::{duration, grouped, size};
use crate::usage::{FileReads, TaskReads};
use flashscope_trace::Device;

/// Fewer pieces cost little.
const MIN_BIOS: u64 = 100;
/// For larger pieces the cost of each start hardly counts.
const MAX_BYTES: u64 = 32 << 10;
/// Read-ahead would join pieces only with a window of twice a piece.
const MIN_PIECES_A_WINDOW: u64 = 2;
/// Reads of the file in order, percent.
const IN_ORDER_PERCENT: f64 = 80.0;
/// Below this share of bios that begin where the one before ended, the file lies in pieces, per cent.
const MAX_JOINED_PERCENT: f64 = 50.0;
/// Share of these files in the bytes that the program reads from the device, per cent.
const OF_FILES_PERCENT: [f64; 2] = [80.0, 125.0];
/// Below this share of the recorded time it is not reported, per cent.
const MIN_SPAN_PERCENT: f64 = 5.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    // Below dm-crypt and other layers the same thread may carry its own reads.
    let is_below = |device: &str| found.stack.iter().any(|level| level.legs.iter().any(|leg| leg.device == device));
    let readers = seen.usage.readers.iter().filter(|reader| !is_below(&reader.device));
    readers.filter_map(|reader| of_reader(seen, found, reader)).collect()
}

/// Bios and bytes that a thread reads, without metadata.
fn data(reader: &TaskReads) -> (u64, u64) {
    (reader.bios.saturating_sub(reader.metadata_bios), reader.bytes.saturating_sub(reader.metadata_bytes))
}

/// The file that it reads most in order, if its bios are small pieces of such files only; with the disk.
pub(super) fn pieces<'a>(seen: &Seen<'a>, reader: &TaskReads) -> Option<(&'a FileReads, &'a Disk)> {
    let disk = seen.storage.disk(&reader.device)?;
    let (bios, bytes) = data(reader);
    let each = bytes.checked_div(bios)?;
    let window = disk.read_ahead_kib?.saturating_mul(1024);
    if bios < MIN_BIOS
        || each > MAX_BYTES
        || window < each.saturating_mul(MIN_PIECES_A_WINDOW)
        || percent(reader.sequential, reader.bios) > MAX_JOINED_PERCENT
    {
        return None;
    }
    let in_order = |file: &&FileReads| {
        file.device == reader.device
            && file.reads > 1
            && percent(file.sequential, file.reads - 1) >= IN_ORDER_PERCENT
            && file.covered_bytes >= window
    };
    let files = || seen.usage.files.iter().filter(in_order);
    let part = percent(files().map(|file| file.covered_bytes).total(), bytes);
    let largest = files().max_by_key(|file| file.covered_bytes)?;
    (OF_FILES_PERCENT[0]..=OF_FILES_PERCENT[1]).contains(&part).then_some((largest, disk))
}

fn of_reader(seen: &Seen<'_>, found: &BlockFound, reader: &TaskReads) -> Option<Finding> {
    let task = found.originators.task(reader.tid)?;
    let own = groups(found, GroupBy::Owner).find(|group| task.is_called(&group.name))?;
    let (file, disk) = pieces(seen, reader)?;
    let (bios, bytes) = data(reader);
    let q2c = stage(own, "Q2C")?;
    let mine = seen.calls.by_process.iter().filter(|group| group.name == own.name && is_read(&group.call));
    let waits = match mine.map(|group| group.total_ns).total() {
        // Many pieces are under way at once.
        0 => q2c.total_ns.min(reader.active_ns),
        ns => ns,
    };
    if seen.of_span(waits) < MIN_SPAN_PERCENT {
        return None;
    }
    // The path of a renamed or deleted file has a remark, which no command accepts.
    let path = Device::parse(&file.device).and_then(|device| seen.storage.file_names.display(device, file.inode));
    let path = path.filter(|path| path.starts_with('/') && !path.contains(" ("));
    let name = path.clone().unwrap_or_else(|| seen.storage.file_name(&file.device, file.inode));
    let kind = seen.storage.mounts_of(&file.device).next().map(|mount| mount.kind.as_str());
    let window = disk.read_ahead_kib.unwrap_or(0).saturating_mul(1024).max(1);
    let least_ns = bytes.div_ceil(window).saturating_mul(q2c.ns.min);
    let source =
        "reads of files (flashscope:file_read, filemap:mm_filemap_get_pages); block:block_bio_queue by the same thread";
    Some(Finding {
        processes: vec![own.name.clone()],
        what: format!(
            "{} reads {name} in order, but it lies in pieces: {} bios of {} on average, most of them not behind the one before.",
            own.name,
            grouped(bios),
            size(bytes / bios.max(1))
        ),
        cause: format!(
            "The file system had no room in one piece when the file was written. Its reads wait {} of {}; in one piece, read-ahead of {} \
             would take one request for many of these.",
            duration(waits),
            duration(seen.span_ns),
            size(window)
        ),
        evidence: vec![
            measure("bios of its data", bios as f64, MeasureUnit::Count, source),
            measure("of all where the one before ended", reader.sequential as f64, MeasureUnit::Count, source),
            measure("reads of the file", file.reads as f64, MeasureUnit::Count, source),
            measure("reads that begin where the one before ended", file.sequential as f64, MeasureUnit::Count, source),
        ],
        lost_ns: waits.min(seen.span_ns).into(),
        advice: vec![Remedy {
            what: "Have the file system store it in one piece, where so much room is free in one; and reserve the room before such a file \
                   is written: posix_fallocate()"
                .to_owned(),
            steps: steps(kind, path),
            gain: gain(
                format!("time in reads of {}", own.name),
                [0.0, 100.0 - percent(least_ns, waits).min(100.0)],
                format!(
                    "nothing where the device takes as long for the same bytes; at most all but {} requests of {}, each as long as the \
                     shortest one now",
                    grouped(bytes.div_ceil(window)),
                    size(window)
                ),
            ),
            risk: "all of the file is written once more".to_owned(),
        }],
        ..Finding::of(Rule::FragmentedFile)
    })
}

/// Commands of the file system's own program, or a copy.
fn steps(kind: Option<&str>, path: Option<String>) -> Vec<Step> {
    let Some(path) = path else { return Vec::new() };
    let run = |command: &str| Step::Run { command: command.to_owned(), names: vec![path.clone()] };
    let check = run("filefrag");
    match kind {
        Some("ext4") => vec![check, run("e4defrag")],
        Some("xfs") => vec![check, run("xfs_fsr")],
        Some("btrfs") => vec![check, run("btrfs filesystem defragment")],
        _ => vec![check],
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use flashscope_trace::TaskId;

    /// What is changed, and how.
    type Case = (&'static str, fn(&mut Work));

    /// `cat` of 4 MiB in pieces of 4 KiB.
    fn work() -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios_of("cat", 1000, "R", 1_000, 299_000);
        let (device, tid, bios, bytes) = ("8:0".to_owned(), TaskId(7), 1000, 1000 << 12);
        work.usage.readers.push(TaskReads { device, tid, bios, bytes, sequential: 40, ..TaskReads::default() });
        let (device, inode, size) = ("8:0".to_owned(), 12, Some(4 << 20));
        let (reads, sequential, covered_bytes) = (32, 31, 1000 << 12);
        work.usage.files.push(FileReads {
            device,
            inode,
            reads,
            sequential,
            covered_bytes,
            bytes: covered_bytes,
            size,
            ..FileReads::default()
        });
        let read_ahead_kib = Some(128);
        work.storage.disks.push(Disk { name: "sda".into(), device: "8:0".into(), read_ahead_kib, ..Disk::default() });
        work.call("read", "cat (7)", 32, 300_000_000, 4 << 20);
        work.mount("/data", "ext4", "rw");
        work.storage.file_names = flashscope_trace::FileNames::of_facts(&serde_json::json!({
            "names": {"files": [{"device": "8:0", "inode": 12, "path": "/data/film"}]}
        }));
        work
    }

    #[test]
    fn a_file_in_pieces_is_told_with_what_puts_it_together() {
        let finding = only(find(&work().seen()));
        assert_eq!(
            finding.what,
            "cat (7) reads /data/film in order, but it lies in pieces: 1,000 bios of 4 KiB on average, most of them not behind the \
             one before."
        );
        let step = Step::Run { command: "e4defrag".into(), names: vec!["/data/film".into()] };
        assert_eq!((finding.lost_ns, &finding.advice[0].steps[1]), (300_000_000.into(), &step));
        let gain = finding.advice[0].gain.known().expect("a range");
        // 32 requests of 300 us in place of 300 ms.
        assert_eq!((gain.least_percent, gain.most_percent.round()), (0.0, 97.0));
    }

    #[test]
    fn one_piece_other_files_and_random_reads_are_not() {
        let cases: [Case; 7] = [
            ("one piece", |work| work.usage.readers[0].sequential = 900),
            ("large pieces", |work| work.usage.readers[0].bytes = 1000 << 17),
            ("read at random", |work| work.usage.files[0].sequential = 3),
            ("most of it is of other files", |work| work.usage.files[0].covered_bytes = 2 << 20),
            ("few pieces", |work| work.usage.readers[0].bios = 90),
            ("without read-ahead", |work| work.storage.disks[0].read_ahead_kib = Some(4)),
            ("a moment of a long recording", |work| work.span_ns *= 100),
        ];
        for (name, change) in cases {
            let mut work = work();
            change(&mut work);
            assert!(find(&work.seen()).is_empty(), "{name}");
        }
    }
}
