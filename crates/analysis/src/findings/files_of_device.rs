//! What a recording of one device shows of programs that write many small files, or copy a file on overlayfs: which calls make them is
//! not in it.
//!
//! Input: pages that become dirty, bios by file. Limit: the time in calls is unknown, so none is named.

use super::{
    Finding, Group, GroupBy, MIN_SPAN_PERCENT, MeasureUnit, Remedy, Rule, Seen, Step, Weight, groups, measure, stage,
};
use crate::Evidence;
use crate::block::{BlockFound, Originator, OwnerKind};
use crate::units::{grouped, size};
use crate::usage::TaskFiles;

/// Least number of files; below: largest size of a small one, bytes. As where calls show them (`small_files`).
const MIN_FILES: u64 = 500;
const MAX_BYTES: u64 = 16 << 10;
/// Fewest bytes of a copied file.
const MIN_COPIED_BYTES: u64 = 1 << 20;
/// Largest difference of what is read and written of a copied file, percent: its end is not a whole block.
const MAX_DIFFERENCE_PERCENT: u64 = 5;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block.filter(|_| seen.storage.lacks_calls) else { return Vec::new() };
    let many = seen.usage.written_files.iter().filter_map(|task| small_files(seen, found, task)).next();
    many.into_iter().chain(copied(seen, found)).collect()
}

/// A cost where bios are under way for a good part of the time; else nothing shows that anybody waits.
fn weight(seen: &Seen<'_>, found: &BlockFound) -> Weight {
    let all = groups(found, GroupBy::All).find_map(|group| stage(group, "Q2C")).map_or(0, |q2c| q2c.total_ns);
    if seen.of_span(all) >= MIN_SPAN_PERCENT { Weight::Cost } else { Weight::Overview }
}

/// How to see the calls.
fn record_calls(what: &str) -> Remedy {
    Remedy {
        what: format!("Record the calls too, to see {what}"),
        steps: vec![Step::Run {
            command: "flashscope record --events block,cache,syscall".to_owned(),
            names: Vec::new(),
        }],
        gain: Evidence::unknown("how long the program waits in its calls is not in a recording of one device", ""),
        risk: "none to look; the calls of all programs make the recording larger".to_owned(),
    }
}

fn lost() -> Evidence<u64> {
    Evidence::unknown(
        "the time in calls is not in a recording of one device",
        "record with --events block,cache,syscall",
    )
}

fn small_files(seen: &Seen<'_>, found: &BlockFound, task: &TaskFiles) -> Option<Finding> {
    let owner = found.originators.task(task.tid)?;
    let group = groups(found, GroupBy::Owner).find(|group| owner.is_called(&group.name))?;
    if task.files < MIN_FILES || task.bytes / task.files > MAX_BYTES {
        return None;
    }
    let at_least = if task.at_least { "at least " } else { "" };
    let kernel = found.originators.originators.iter().filter(|one| one.kind == OwnerKind::Kernel);
    let metadata = kernel.fold(0u64, |sum, one| sum.saturating_add(one.written_bytes));
    let beside = match metadata {
        0 => String::new(),
        bytes => format!(" Of the journal and metadata {} are written beside them.", size(bytes)),
    };
    let source = "writeback:writeback_dirty_folio";
    Some(Finding {
        weight: weight(seen, found),
        processes: vec![group.name.clone()],
        what: format!(
            "{} writes {at_least}{} files of {} on average on {}.",
            group.name,
            grouped(task.files),
            size(task.bytes / task.files),
            seen.storage.device_name(&task.device)
        ),
        cause: format!(
            "Each file takes a block of its own, an inode and an entry of a directory, however little is in it.{beside} How long \
             it waits for them is in its calls, which a recording of one device leaves out."
        ),
        evidence: vec![
            measure("files that it wrote", task.files as f64, MeasureUnit::Count, source),
            measure("pages of them", task.bytes as f64, MeasureUnit::Bytes, source),
            measure("journal and metadata", metadata as f64, MeasureUnit::Bytes, "block:block_bio_queue"),
        ],
        lost_ns: lost(),
        lost_bytes: Some(metadata),
        advice: vec![record_calls("what open, write and close of so many files cost")],
        ..Finding::of(Rule::SmallFiles)
    })
}

/// A file that is read, and another one of its name that is written with as many bytes.
fn copied(seen: &Seen<'_>, found: &BlockFound) -> Option<Finding> {
    let overlay = seen.storage.overlays.first()?;
    let files = || groups(found, GroupBy::File).filter_map(|group| Some((group, group.path.as_deref()?)));
    let written = files().filter_map(|(to, path)| Some((to, path, to.written_bytes?)));
    let written = written.filter(|(.., bytes)| *bytes >= MIN_COPIED_BYTES);
    let is_from = |to: &Group, path: &str, bytes: u64, from: &Group, source: &str| {
        let read = from.read_bytes.unwrap_or(0);
        from.name != to.name
            && name_of(source) == name_of(path)
            && read.abs_diff(bytes) <= (bytes / 100).saturating_mul(MAX_DIFFERENCE_PERCENT)
    };
    let pairs = written.filter_map(|(to, path, bytes)| {
        let (_, source) = files().find(|(from, source)| is_from(to, path, bytes, from, source))?;
        Some((source, path, bytes))
    });
    let (source, path, bytes) = pairs.max_by_key(|(.., bytes)| *bytes)?;
    let most = bytes - (bytes / 100).saturating_mul(MAX_DIFFERENCE_PERCENT);
    let is_who = |one: &&Originator| one.kind == OwnerKind::Task && one.read_bytes.min(one.written_bytes) >= most;
    let who = found.originators.originators.iter().find(is_who)?;
    let group = groups(found, GroupBy::Owner).find(|group| who.is_called(&group.name))?;
    let of = "block:block_bio_queue, and the task that made the page dirty";
    Some(Finding {
        weight: weight(seen, found),
        processes: vec![group.name.clone()],
        what: format!("{} reads {} of {source} and writes as much to {path}.", group.name, size(bytes)),
        cause: format!(
            "overlayfs, which is mounted at {overlay}, copies a whole file like this when it is first opened to be written. A \
             program that copies the file itself does the same: the calls tell which it is, and a recording of one device leaves \
             them out."
        ),
        evidence: vec![measure("bytes copied", bytes as f64, MeasureUnit::Bytes, of)],
        lost_ns: lost(),
        lost_bytes: Some(bytes),
        advice: vec![record_calls("whether an open() waits for this copy")],
        ..Finding::of(Rule::CopyUp)
    })
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use flashscope_trace::TaskId;

    fn work() -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios_of("tar", 100, "W", 1_000, 999_000);
        work.storage.lacks_calls = true;
        work
    }

    #[test]
    fn many_small_files_are_told_without_calls() {
        let of = |files, bytes| {
            let mut work = work();
            let (device, tid) = ("8:0".to_owned(), TaskId(7));
            work.usage.written_files.push(TaskFiles { device, tid, files, bytes, at_least: false });
            work
        };
        let mut tar = of(1200, 1200 * 4096);
        let finding = only(find(&tar.seen()));
        assert_eq!(finding.what, "tar (7) writes 1,200 files of 4 KiB on average on 8:0.");
        assert!(finding.lost_ns.why().is_some() && finding.weight == Weight::Cost);
        // Hardly anything is under way.
        tar.span_ns = 60_000_000_000;
        assert_eq!(only(find(&tar.seen())).weight, Weight::Overview);
        // With calls another rule has the time.
        tar.storage.lacks_calls = false;
        assert!(find(&tar.seen()).is_empty());
        for (files, bytes) in [(400, 400 * 4096), (1200, 1200 << 20)] {
            assert!(find(&of(files, bytes).seen()).is_empty(), "{files} {bytes}");
        }
    }

    #[test]
    fn a_file_that_is_copied_beside_an_overlay_is_told() {
        let of = |from: &str, to: &str, read: u64, overlays: &[&str]| {
            let mut work = work();
            work.storage.overlays = overlays.iter().map(|&target| target.to_owned()).collect();
            work.owner("tar", OwnerKind::Task, read, 60 << 20);
            let one = work.block().groups[0].clone();
            for (name, path, read, written) in
                [("8:0 inode 12", from, Some(read), None), ("8:0 inode 13", to, None, Some(60 << 20))]
            {
                let (name, path) = (name.to_owned(), Some(path.to_owned()));
                let (by, read_bytes, written_bytes) = (GroupBy::File, read, written);
                work.block().groups.push(Group { by, name, path, read_bytes, written_bytes, ..one.clone() });
            }
            find(&work.seen())
        };
        let finding = only(of("/lower/a", "/upper/a", 60 << 20, &["/o"]));
        assert_eq!(finding.what, "tar (7) reads 60 MiB of /lower/a and writes as much to /upper/a.");
        assert!(finding.cause.contains("mounted at /o"), "{}", finding.cause);
        assert!(of("/lower/a", "/upper/a", 60 << 20, &[]).is_empty());
        assert!(of("/lower/a", "/upper/b", 60 << 20, &["/o"]).is_empty());
        assert!(of("/lower/a", "/upper/a", 20 << 20, &["/o"]).is_empty());
    }
}
