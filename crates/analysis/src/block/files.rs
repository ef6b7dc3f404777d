//! Stages of bios by the file that they are of.

use super::groups::{Group, GroupBy, Times};
use super::in_flight::Bio;
use super::matching::Watch;
use flashscope_trace::{Device, RequestKind};
use std::collections::HashMap;

/// Files with times of their own, as they come; the bios of more go to one group for all of them.
const MAX_FILES: usize = 256;
/// Stands for all files that are too many.
const FURTHER: usize = MAX_FILES;

/// A file: device of its file system, and inode.
pub(super) type File = (u32, u64);

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
        *bytes += u64::from(bio.sectors) * 512;
    }

    fn finish(&self, name: String) -> Group {
        let group = self.times.finish(GroupBy::File, name);
        Group { read_bytes: Some(self.read_bytes), written_bytes: Some(self.written_bytes), ..group }
    }
}

/// Times by file. It costs nothing where no bio's file is known.
#[derive(Default)]
pub(super) struct Files {
    /// Of the bio that is queued next, where it is known.
    pub next: Option<File>,
    numbers: HashMap<File, usize>,
    files: Vec<OneFile>,
    further: OneFile,
    /// Files of bios on their way, by the bio's name.
    on_the_way: HashMap<u32, usize>,
}

impl Files {
    fn file(&mut self, number: usize) -> &mut OneFile {
        self.files.get_mut(number).unwrap_or(&mut self.further)
    }

    /// Most bytes first.
    pub fn finish(&self) -> Vec<Group> {
        let mut files: Vec<(&File, &OneFile)> =
            self.numbers.iter().filter_map(|(file, &number)| Some((file, self.files.get(number)?))).collect();
        files.sort_by_key(|(file, one)| (std::cmp::Reverse(one.times.bytes), **file));
        let name = |&(device, inode): &File| format!("{} inode {inode}", Device(device));
        let mut groups: Vec<Group> = files.into_iter().map(|(file, one)| one.finish(name(file))).collect();
        if self.further.times.bios > 0 {
            groups.push(self.further.finish("(further files)".to_owned()));
        }
        groups
    }
}

impl Watch for Files {
    fn queued(&mut self, at: u32, bio: &Bio, now: u64) {
        let Some(file) = self.next.take() else { return };
        let number = match self.numbers.get(&file) {
            Some(&number) => number,
            None if self.files.len() < MAX_FILES => {
                self.files.push(OneFile::default());
                self.numbers.insert(file, self.files.len() - 1);
                self.files.len() - 1
            }
            None => FURTHER,
        };
        self.on_the_way.insert(at, number);
        self.file(number).queued(bio, now);
    }

    fn gone(&mut self, at: u32, bio: &Bio, completed: u64) {
        if self.on_the_way.is_empty() {
            return;
        }
        if let Some(number) = self.on_the_way.remove(&at) {
            self.file(number).times.gone(bio, completed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_flight::InFlight;
    use super::*;
    use flashscope_trace::RequestFlags;

    fn bio(sectors: u32) -> Bio {
        InFlight::plain(0, RequestFlags::from_letters(b"R"), 0, sectors, 0, 100)
    }

    #[test]
    fn a_bio_is_its_files() {
        let mut files = Files::default();
        let disk = Device::new(8, 1).0;
        files.queued(7, &bio(8), 100);
        files.next = Some((disk, 12));
        files.queued(3, &bio(64), 100);
        // However many parts it had.
        files.part_gone(3, &bio(32), 150);
        files.gone(3, &bio(64), 250);
        files.gone(7, &bio(8), 200);
        // The name is another bio's now.
        files.queued(3, &bio(8), 300);
        files.gone(3, &bio(8), 400);
        assert!(files.on_the_way.is_empty());
        let groups = files.finish();
        assert_eq!(groups.len(), 1);
        let (group, q2c) = (&groups[0], groups[0].stages.iter().find(|stage| stage.stage == "Q2C").unwrap());
        assert_eq!((group.name.as_str(), group.bios, group.bytes), ("8:1 inode 12", 1, 64 * 512));
        assert_eq!((group.read_bytes, group.written_bytes), (Some(64 * 512), Some(0)));
        assert_eq!((q2c.ns.n, q2c.total_ns), (1, 150));
    }

    #[test]
    fn too_many_files_are_one_group() {
        let mut files = Files::default();
        for inode in 0..1000 {
            files.next = Some((1, inode));
            files.queued(inode as u32, &bio(if inode == 5 { 16 } else { 8 }), inode);
            files.gone(inode as u32, &bio(8), inode + 1);
        }
        let groups = files.finish();
        assert_eq!(groups.len(), MAX_FILES + 1);
        assert_eq!(groups[0].name, "0:1 inode 5");
        assert_eq!(
            (groups[MAX_FILES].name.as_str(), groups[MAX_FILES].bios),
            ("(further files)", 1000 - MAX_FILES as u64)
        );
    }
}
