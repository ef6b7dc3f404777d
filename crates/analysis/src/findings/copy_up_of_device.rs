//! A file that overlayfs copies, in a recording of one device: which call copies it is not in it.
//!
//! Input: bios by file: a file that is read, and another one of its name that is written with as many bytes. Limit: the time in calls is
//! unknown, so none is named.

use super::of_device::{lost, record_calls, weight};
use super::{Finding, Group, GroupBy, MeasureUnit, Rule, Seen, groups, measure};
use crate::block::{BlockFound, Originator, OwnerKind};
use crate::units::size;

/// Fewest bytes of a copied file.
const MIN_COPIED_BYTES: u64 = 1 << 20;
/// Largest difference of what is read and written of a copied file, percent: its end is not a whole block.
const MAX_DIFFERENCE_PERCENT: u64 = 5;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let found = seen.block.filter(|_| seen.storage.lacks_calls);
    found.and_then(|found| copied(seen, found)).into_iter().collect()
}

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
    use super::super::of_device::testing as work;
    use super::super::testing::only;
    use super::*;

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
