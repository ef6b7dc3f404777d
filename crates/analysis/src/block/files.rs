//! Times of bios by stage and file.

use super::groups::{Group, GroupBy, Times};
use super::in_flight::Bio;
use super::watch::Watch;
use flashscope_trace::{FileId, RequestKind};
use foldhash::HashMap;

/// Most files in the result: those with most bytes; the bios of the others are one group.
const MAX_LISTED: usize = 256;
/// Most files with times of their own. With more, the half with least bytes so far is merged into the group of the others.
const MAX_TIMED: usize = 4096;
/// Most known files, including those in the group of the others.
const MAX_KNOWN: usize = 1 << 16;
/// Stands for all files without times of their own.
const FURTHER: usize = MAX_TIMED;
/// The group of the files that are not listed.
pub(crate) const FURTHER_FILES: &str = "(further files)";

#[derive(Default)]
struct OneFile {
    times: Times,
    read_bytes: u64,
    written_bytes: u64,
}

impl OneFile {
    fn queued(&mut self, bio: &Bio, now: u64) {
        self.times.queued(bio, now);
        let bytes = match bio.kind {
            RequestKind::Read => &mut self.read_bytes,
            RequestKind::Write => &mut self.written_bytes,
            _ => return,
        };
        *bytes += bio.bytes();
    }

    fn merge(&mut self, other: &OneFile) {
        self.times.merge(&other.times);
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }

    fn finish(&self, name: String) -> Group {
        let group = self.times.finish(GroupBy::File, name);
        Group { read_bytes: Some(self.read_bytes), written_bytes: Some(self.written_bytes), ..group }
    }
}

/// Times by file; costs nothing where no bio's file is known.
#[derive(Default)]
pub(super) struct Files {
    /// File of the bio that is queued next, where it is known.
    pub next: Option<FileId>,
    numbers: HashMap<FileId, usize>,
    files: Vec<OneFile>,
    further: OneFile,
    /// Files of bios in flight, by the bio's name.
    on_the_way: HashMap<u32, usize>,
}

impl Files {
    fn file(&mut self, number: usize) -> &mut OneFile {
        self.files.get_mut(number).unwrap_or(&mut self.further)
    }

    /// The number of a file that is not known yet.
    fn new_file(&mut self, file: FileId) -> usize {
        if self.files.len() == MAX_TIMED && self.numbers.len() < MAX_KNOWN {
            self.keep_largest(MAX_TIMED / 2);
        }
        let number = if self.files.len() < MAX_TIMED { self.files.len() } else { FURTHER };
        if number != FURTHER {
            self.files.push(OneFile::default());
        }
        if self.numbers.len() < MAX_KNOWN {
            self.numbers.insert(file, number);
        }
        number
    }

    /// Keeps the times of the `most` files with most bytes. The others stay in the group of the others, so every listed file is
    /// complete.
    fn keep_largest(&mut self, most: usize) {
        let mut by_size: Vec<usize> = (0..self.files.len()).collect();
        by_size.sort_by_key(|&number| std::cmp::Reverse(self.files[number].times.bytes));
        let mut renumbered = vec![FURTHER; self.files.len()];
        let mut old: Vec<Option<OneFile>> = std::mem::take(&mut self.files).into_iter().map(Some).collect();
        for (place, number) in by_size.into_iter().enumerate() {
            let Some(one) = old[number].take() else { continue };
            if place < most {
                renumbered[number] = self.files.len();
                self.files.push(one);
            } else {
                self.further.merge(&one);
            }
        }
        for number in self.numbers.values_mut().chain(self.on_the_way.values_mut()) {
            *number = renumbered.get(*number).copied().unwrap_or(FURTHER);
        }
    }

    /// Groups with most bytes first.
    pub fn finish(mut self) -> Vec<Group> {
        if self.files.len() > MAX_LISTED {
            self.keep_largest(MAX_LISTED);
        }
        let mut files: Vec<(&FileId, &OneFile)> =
            self.numbers.iter().filter_map(|(file, &number)| Some((file, self.files.get(number)?))).collect();
        files.sort_by_key(|(file, one)| (std::cmp::Reverse(one.times.bytes), **file));
        let mut groups: Vec<Group> = files.into_iter().map(|(file, one)| one.finish(file.to_string())).collect();
        if self.further.times.bios > 0 {
            groups.push(self.further.finish(FURTHER_FILES.to_owned()));
        }
        groups
    }
}

impl Watch for Files {
    fn queued(&mut self, at: u32, bio: &Bio, now: u64) {
        let Some(file) = self.next.take() else { return };
        let number = match self.numbers.get(&file) {
            Some(&number) => number,
            None => self.new_file(file),
        };
        self.on_the_way.insert(at, number);
        self.file(number).queued(bio, now);
    }

    fn ended(&mut self, at: u32, bio: &Bio, completed: u64) {
        if self.on_the_way.is_empty() {
            return;
        }
        if let Some(number) = self.on_the_way.remove(&at) {
            self.file(number).times.ended(bio, completed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_flight::InFlight;
    use super::*;
    use flashscope_trace::Device;
    use flashscope_trace::RequestFlags;

    fn bio(sectors: u32) -> Bio {
        InFlight::plain(0, RequestFlags::from_letters(b"R"), 0, sectors, 0, 100)
    }

    #[test]
    fn a_bio_is_its_files() {
        let mut files = Files::default();
        let disk = Device::new(8, 1);
        files.queued(7, &bio(8), 100);
        files.next = Some(FileId::on(disk, 12));
        files.queued(3, &bio(64), 100);
        // However many parts it had.
        files.part_ended(3, &bio(32), 150);
        files.ended(3, &bio(64), 250);
        files.ended(7, &bio(8), 200);
        // The name is another bio's now.
        files.queued(3, &bio(8), 300);
        files.ended(3, &bio(8), 400);
        assert!(files.on_the_way.is_empty());
        let groups = files.finish();
        assert_eq!(groups.len(), 1);
        let (group, q2c) = (&groups[0], groups[0].stages.iter().find(|stage| stage.stage == "Q2C").unwrap());
        assert_eq!((group.name.as_str(), group.bios, group.bytes), ("8:1 inode 12", 1, 64 * 512));
        assert_eq!((group.read_bytes, group.written_bytes), (Some(64 * 512), Some(0)));
        assert_eq!((q2c.ns.n, q2c.total_ns), (1, 150));
    }

    fn one_bio(files: &mut Files, name: u32, inode: u64, sectors: u32) {
        files.next = Some(FileId::on(Device(1), inode));
        files.queued(name, &bio(sectors), 100);
        files.ended(name, &bio(sectors), 200);
    }

    fn all_bios(groups: &[Group]) -> (u64, u64) {
        (groups.iter().map(|group| group.bios).sum(), groups.iter().map(|group| group.bytes).sum())
    }

    #[test]
    fn the_largest_of_many_files_are_listed() {
        let mut files = Files::default();
        for inode in 0..1000 {
            one_bio(&mut files, 1, inode, if inode >= 990 { 16 } else { 8 });
        }
        let groups = files.finish();
        assert_eq!(groups.len(), MAX_LISTED + 1);
        assert_eq!((groups[0].name.as_str(), groups[9].name.as_str()), ("0:1 inode 990", "0:1 inode 999"));
        let further = &groups[MAX_LISTED];
        assert_eq!((further.name.as_str(), further.bios), (FURTHER_FILES, 1000 - MAX_LISTED as u64));
        assert_eq!(all_bios(&groups), (1000, (990 * 8 + 10 * 16) * 512));
    }

    #[test]
    fn a_large_file_that_comes_late_is_listed_whole() {
        let mut files = Files::default();
        one_bio(&mut files, 1, 1, 800);
        // Its bio is on its way while others go.
        files.next = Some(FileId::on(Device(1), 2));
        files.queued(2, &bio(8), 100);
        for inode in 10..MAX_KNOWN as u64 + 10_000 {
            one_bio(&mut files, 3, inode, 8);
            if inode == 20_000 {
                one_bio(&mut files, 1, 5, 900);
            }
        }
        one_bio(&mut files, 1, 1, 800);
        files.ended(2, &bio(8), 900);
        let groups = files.finish();
        assert_eq!((groups[0].name.as_str(), groups[0].bios), ("0:1 inode 1", 2));
        assert_eq!((groups[1].name.as_str(), groups[1].bytes), ("0:1 inode 5", 900 * 512));
        let bios = 4 + MAX_KNOWN as u64 + 10_000 - 10;
        assert_eq!(all_bios(&groups), (bios, (2 * 800 + 900 + (bios - 3) * 8) * 512));
        let completed =
            |group: &Group| group.stages.iter().find(|stage| stage.stage == "Q2C").map_or(0, |stage| stage.ns.n);
        assert_eq!(groups.iter().map(completed).sum::<u64>(), bios);
    }
}
