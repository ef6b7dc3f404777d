//! Paths of files, by device and inode number.

use super::apps::container;
use crate::events::TimeNs;
use crate::facts::{rows, text};
use crate::ids::{Device, FileId};
use foldhash::{HashMap, HashMapExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// How a path was found, and whether it was still true at the end of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameState {
    /// True at the end of the recording.
    Named,
    /// True at the end of the recording; the file had another path before.
    Renamed,
    /// The file was deleted; this is its last path.
    Deleted,
    /// A process had the file open under this path; the path was not checked at the end.
    Seen,
    /// The path in another mount namespace: the file system is not mounted in the recorder's namespace.
    Elsewhere,
    /// The file was deleted and another file got its inode number: both are counted as one.
    Again,
}

/// A file's path, or the reason why it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileName {
    Path {
        path: String,
        state: NameState,
        was: Option<String>,
        /// The path is in an overlay: the place of the overlay's mount.
        overlay: Option<String>,
        /// btrfs: a file of another subvolume, or that subvolume, with the same inode number. Events do not distinguish them.
        other: Option<String>,
    },
    /// `deleted`, `metadata`, `no_mount`, `remote`, `not_reachable`, `out_of_time`, `busy`, `not_looked_for`.
    Unnamed { why: String },
}

impl FileName {
    /// The path with notes: `/data/a (deleted)`, `/data/b (was /data/a)`.
    pub fn display(&self) -> Option<String> {
        let FileName::Path { path, state, was, overlay, other } = self else { return None };
        if let Some(other) = other {
            let deleted = if *state == NameState::Deleted { "deleted, " } else { "" };
            return Some(format!("{path} ({deleted}or {other}: same inode number in another subvolume)"));
        }
        if let Some(overlay) = overlay {
            let deleted = if *state == NameState::Deleted { ", deleted" } else { "" };
            return Some(format!("{path} ({overlay}{deleted})"));
        }
        Some(match (state, was) {
            (NameState::Deleted, _) => format!("{path} (deleted)"),
            (NameState::Again, Some(was)) => format!("{path} (and before it {was}, deleted)"),
            (NameState::Renamed, Some(was)) => format!("{path} (was {was})"),
            (NameState::Elsewhere, _) => format!("{path} (in a container)"),
            _ => path.clone(),
        })
    }

    /// The path without notes.
    pub fn path(&self) -> Option<&str> {
        match self {
            FileName::Path { path, .. } => Some(path),
            FileName::Unnamed { .. } => None,
        }
    }
}

/// A file's label for a sentence or a column: `/data/film (inode 12 on mmcblk0p2 (ext4, /data))`, `inode 12 on mmcblk0p2 (ext4, /data)`.
/// All other code uses this function for it. `path`: from [`FileName::display`]; `device`: name or number.
pub fn file_label(path: Option<&str>, inode: u64, device: &str) -> String {
    match path {
        Some(path) => format!("{path} (inode {inode} on {device})"),
        None => format!("inode {inode} on {device}"),
    }
}

/// The role and the device of an inode that is in no directory: a block device's page cache, which holds the file system's metadata, or an
/// inode for a file system's own data. `filesystem` returns the type of a device's file system: `None` if the device is unknown, `Some("")`
/// if it has none.
pub fn own_data<'d>(
    device: Device,
    inode: u64,
    filesystem: impl Fn(Device) -> Option<&'d str>,
) -> Option<(&'static str, Device)> {
    // block/bdev.c: the inode number of a block device's page cache is its dev_t, on the kernel's own file system that is mounted nowhere.
    let cached = u32::try_from(inode).ok().map(Device).filter(|cached| cached.major() > 0);
    if let Some(cached) =
        cached.filter(|cached| *cached == device || device.major() == 0 && filesystem(device).is_none())
        && let Some(kind) = filesystem(cached)
    {
        return Some((if kind.is_empty() { "block device" } else { "metadata of" }, cached));
    }
    let what = match (filesystem(device)?, inode) {
        // fs/ext4/ext4.h: EXT4_JOURNAL_INO 8; below EXT4_FIRST_INO 11, all inodes but the root, 2, are the file system's own.
        ("ext3" | "ext4", 8) => "journal of",
        ("ext2" | "ext3" | "ext4", 1 | 3..=10) => "metadata of",
        // include/linux/f2fs_fs.h: F2FS_NODE_INO 1, F2FS_META_INO 2; fs/btrfs/btrfs_inode.h: BTRFS_BTREE_INODE_OBJECTID 1.
        ("f2fs", 1 | 2) | ("btrfs", 1) => "metadata of",
        _ => return None,
    };
    Some((what, device))
}

/// Names of containers, by mount namespace.
fn containers(facts: &Value) -> HashMap<u64, &str> {
    let mut names = HashMap::new();
    for row in rows(facts, "processes") {
        if let Some(namespace) = row["mnt_ns"].as_u64()
            && let Some(name) = text(&row["cgroup"]).and_then(container)
        {
            names.entry(namespace).or_insert(name);
        }
    }
    names
}

/// The place of an overlay mount: another `namespace` than the recorder's is a container.
fn overlay(containers: &HashMap<u64, &str>, namespace: Option<u64>) -> String {
    let Some(namespace) = namespace else { return "in an overlay".to_owned() };
    let name = containers.get(&namespace);
    name.map_or_else(|| format!("in container mnt:[{namespace}]"), |name| format!("in container {name}"))
}

/// A deleted file whose path was never read.
pub const NAMELESS: &str = "a file without a name";

/// One of the files that had the same inode number one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Turn {
    /// After this time the number belongs to the next file.
    until: u64,
    name: FileName,
}

/// The files of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileNames {
    /// In order of time; the last one's `until` is [`u64::MAX`].
    files: HashMap<FileId, Vec<Turn>>,
    /// Whether the recording included paths.
    pub looked_for: bool,
}

impl FileNames {
    /// From a trace's facts; empty if they have no names.
    pub fn of_facts(facts: &Value) -> FileNames {
        let mut names = FileNames {
            files: HashMap::new(),
            looked_for: rows(facts, "search").any(|search| search["paths"] != "none"),
        };
        let containers = containers(facts);
        // By file and time: of two rows with the same time, the later row counts.
        let mut found = BTreeMap::new();
        for row in rows(facts, "files") {
            let (Some(device), Some(inode)) = (text(&row["device"]).and_then(Device::parse), row["inode"].as_u64())
            else {
                continue;
            };
            let was = text(&row["was"]).map(str::to_owned);
            let name = match text(&row["path"]) {
                Some(path) => {
                    let state = serde_json::from_value(row["state"].clone()).unwrap_or(NameState::Named);
                    let overlay = text(&row["layer"]).map(|_| overlay(&containers, row["mnt_ns"].as_u64()));
                    let others = if row["or_others"] == true { " or others" } else { "" };
                    let other = text(&row["or"]).map(|other| format!("{other}{others}"));
                    FileName::Path { path: path.to_owned(), state, was, overlay, other }
                }
                None => FileName::Unnamed { why: text(&row["why"]).unwrap_or("not_looked_for").to_owned() },
            };
            let until = row["until_ns"].as_u64().unwrap_or(u64::MAX);
            found.insert((FileId::on(device, inode), until), name);
        }
        for ((file, until), name) in found {
            names.files.entry(file).or_default().push(Turn { until, name });
        }
        names
    }

    /// How many files had this inode number before the file that has it at this time.
    pub fn turn(&self, device: Device, inode: u64, time: TimeNs) -> u32 {
        let turns = self.files.get(&FileId::on(device, inode));
        turns.map_or(0, |turns| turns.partition_point(|turn| turn.until < time.0) as u32)
    }

    /// The file for an index from [`FileNames::turn`].
    pub fn of_turn(&self, device: Device, inode: u64, turn: u32) -> Option<&FileName> {
        self.files.get(&FileId::on(device, inode))?.get(turn as usize).map(|turn| &turn.name)
    }

    /// The path with notes; `None` if there is none. If several files had the number, all are named, because the figures are their sum: `/c
    /// (same inode number before: /b, /a)`.
    pub fn display(&self, device: Device, inode: u64) -> Option<String> {
        const MOST: usize = 2;
        let (last, before) = self.files.get(&FileId::on(device, inode))?.split_last()?;
        fn name(turn: &Turn) -> &str {
            turn.name.path().unwrap_or(NAMELESS)
        }
        // Each path once, the latest first. A file that was recreated under its old path counts as one file.
        let mut known = std::collections::HashSet::from([name(last)]);
        let mut others: Vec<&str> = before.iter().rev().map(name).filter(|path| known.insert(path)).collect();
        if others.is_empty() {
            return last.name.display();
        }
        let more = others.len().saturating_sub(MOST);
        others.truncate(MOST);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let before = format!("same inode number before: {}{more}", others.join(", "));
        Some(match &last.name {
            FileName::Path { path, state: NameState::Deleted, overlay: None, other: None, .. } => {
                format!("{path} (deleted; {before})")
            }
            name => format!("{} ({before})", name.display().unwrap_or_else(|| NAMELESS.to_owned())),
        })
    }

    /// Only the numbers that several files with different names had.
    pub fn reused(&self) -> FileNames {
        let several = |turns: &&Vec<Turn>| turns.iter().any(|turn| turn.name.path() != turns[0].name.path());
        let files = self.files.iter().filter(|(_, turns)| several(turns)).map(|(file, turns)| (*file, turns.clone()));
        FileNames { files: files.collect(), looked_for: self.looked_for }
    }

    /// The file that had this number at a time: `/a (deleted)`. `None`: the number is unknown.
    pub fn display_at(&self, file: FileId, time: TimeNs) -> Option<String> {
        let device = file.device?;
        let turns = self.files.get(&file)?;
        let turn = turns.get(self.turn(device, file.inode, time) as usize)?;
        Some(match &turn.name {
            FileName::Path { path, .. } if turn.until != u64::MAX => format!("{path} (deleted)"),
            name => name.display().unwrap_or_else(|| NAMELESS.to_owned()),
        })
    }

    /// Whether one of the files that had this number had this path.
    pub fn had_path(&self, file: FileId, path: &str) -> bool {
        let turns = self.files.get(&file).map_or(&[][..], Vec::as_slice);
        turns.iter().any(|turn| turn.name.path() == Some(path))
    }

    /// Whether it is known to be a directory: another file's path lies below it.
    pub fn is_directory(&self, file: FileId) -> bool {
        let turns = self.files.get(&file).map_or(&[][..], Vec::as_slice);
        let mut all = self.files.values().flatten().filter_map(|turn| turn.name.path());
        all.any(|path| {
            turns.iter().filter_map(|turn| turn.name.path()).any(|directory| {
                path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/') && rest.len() > 1)
            })
        })
    }

    /// How many files with this number were deleted during the recording.
    pub fn deleted(&self, file: FileId) -> u64 {
        let is_deleted = |turn: &&Turn| match &turn.name {
            _ if turn.until != u64::MAX => true,
            FileName::Path { state, .. } => *state == NameState::Deleted,
            FileName::Unnamed { why } => why == "deleted",
        };
        let turns = self.files.get(&file).map_or(&[][..], Vec::as_slice);
        turns.iter().filter(is_deleted).count() as u64
    }

    /// The same names with all times shifted by `ns`.
    pub fn later_by(mut self, ns: i64) -> FileNames {
        for turn in self.files.values_mut().flatten().filter(|turn| turn.until != u64::MAX) {
            turn.until = turn.until.saturating_add_signed(ns);
        }
        self
    }

    /// Adds what another trace knows and this one does not.
    pub fn extend(&mut self, other: FileNames) {
        self.looked_for |= other.looked_for;
        for (file, turns) in other.files {
            self.files.entry(file).or_insert(turns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_file_systems_own_data_is_named() {
        let of = |device: Device| match (device.major(), device.minor()) {
            (254, 0) => Some("ext4"),
            (254, 1) => Some("f2fs"),
            (7, 0) => Some(""),
            (0, 30) => Some("tmpfs"),
            _ => None,
        };
        let (vda, vdb, loop0) = (Device::new(254, 0), Device::new(254, 1), Device::new(7, 0));
        for (device, inode, own) in [
            (Device::new(0, 3), 254 << 20, Some(("metadata of", vda))),
            (Device::new(0, 3), 7 << 20, Some(("block device", loop0))),
            (Device::new(0, 3), 7 << 20 | 1, None),
            (vda, 254 << 20, Some(("metadata of", vda))),
            // A file system with inodes of 64 bits, or many files.
            (Device::new(0, 30), 254 << 20, None),
            (vda, 7 << 20, None),
            (vda, 8, Some(("journal of", vda))),
            (vda, 7, Some(("metadata of", vda))),
            (vda, 2, None),
            (vda, 11, None),
            (vdb, 1, Some(("metadata of", vdb))),
            (vdb, 8, None),
            (loop0, 8, None),
        ] {
            assert_eq!(own_data(device, inode, of), own, "{device} {inode}");
        }
    }

    #[test]
    fn paths_say_what_became_of_them() {
        let facts = json!({"names": {"search": [{"paths": "default"}], "files": [
            {"device": "7:0", "inode": 12, "path": "/mnt/a"},
            {"device": "7:0", "inode": 13, "path": "/mnt/b", "state": "renamed", "was": "/mnt/old"},
            {"device": "7:0", "inode": 14, "path": "/mnt/c", "state": "deleted"},
            {"device": "7:0", "inode": 15, "why": "deleted"},
            {"device": "7:0", "inode": 16, "path": "/x", "state": "elsewhere"},
            {"device": "7:0", "inode": 17, "path": "/y", "state": "again", "was": "/z"},
            {"device": "7:0", "inode": 18, "path": "/e"},
            {"device": "7:0", "inode": 19, "path": "/m/a", "layer": "/up/a", "state": "deleted"},
            {"device": "7:0", "inode": 20, "path": "/app/a", "layer": "/up/app/a", "mnt_ns": 77},
            {"device": "7:0", "inode": 21, "path": "/app/b", "layer": "/up/app/b", "mnt_ns": 78},
            {"device": "7:0", "inode": 18, "path": "/f", "state": "deleted", "until_ns": 200},
            {"device": "7:0", "inode": 18, "why": "deleted", "until_ns": 100},
            {"device": "7:0", "inode": 22, "path": "/db-journal", "state": "deleted", "until_ns": 100},
            {"device": "7:0", "inode": 22, "path": "/db-journal", "state": "deleted", "until_ns": 200},
            {"device": "7:0", "inode": 22, "path": "/db-journal", "state": "deleted"},
            {"device": "7:0", "inode": 23, "path": "/a", "state": "deleted", "until_ns": 100},
            {"device": "7:0", "inode": 23, "path": "/b", "state": "deleted", "until_ns": 200},
            {"device": "7:0", "inode": 23, "path": "/c", "state": "deleted", "until_ns": 300},
            {"device": "7:0", "inode": 23, "path": "/d", "state": "deleted"},
            {"device": "7:0", "inode": 24, "path": "/a", "state": "deleted", "until_ns": 100},
            {"device": "7:0", "inode": 24, "why": "deleted"},
            {"device": "7:0", "inode": 25, "why": "deleted", "until_ns": 100},
            {"device": "7:0", "inode": 25, "why": "deleted"},
            {"device": "7:0", "inode": 26, "path": "/a/f", "or": "/b/g"},
            {"device": "7:0", "inode": 27, "path": "/a/f", "or": "/b/g", "or_others": true},
            {"device": "7", "inode": 16, "path": "/mnt/d"}, {"inode": 16}, 7],
            "processes": [{"pid": 1, "mnt_ns": 77, "cgroup": "/lxc/web"}]}});
        let names = FileNames::of_facts(&facts);
        let of = |inode| names.display(Device::new(7, 0), inode);
        assert_eq!(of(12).as_deref(), Some("/mnt/a"));
        assert_eq!(of(13).as_deref(), Some("/mnt/b (was /mnt/old)"));
        assert_eq!(of(14).as_deref(), Some("/mnt/c (deleted)"));
        assert_eq!(of(15), None);
        assert_eq!(of(16).as_deref(), Some("/x (in a container)"));
        assert_eq!(of(19).as_deref(), Some("/m/a (in an overlay, deleted)"));
        assert_eq!(of(20).as_deref(), Some("/app/a (in container web)"));
        assert_eq!(of(21).as_deref(), Some("/app/b (in container mnt:[78])"));
        assert_eq!(file_label(of(12).as_deref(), 12, "mtd3"), "/mnt/a (inode 12 on mtd3)");
        assert_eq!(file_label(None, 12, "mtd3"), "inode 12 on mtd3");
        assert_eq!(of(17).as_deref(), Some("/y (and before it /z, deleted)"));
        let deleted = FileName::Unnamed { why: "deleted".to_owned() };
        assert_eq!(names.of_turn(Device::new(7, 0), 15, 0), Some(&deleted));
        let turn = |names: &FileNames, time| names.turn(Device::new(7, 0), 18, TimeNs(time));
        assert_eq!([50, 100, 101, 200, 201, 900].map(|time| turn(&names, time)), [0, 0, 1, 1, 2, 2]);
        let path = |turn| names.of_turn(Device::new(7, 0), 18, turn).and_then(FileName::path);
        assert_eq!([0, 1, 2, 3].map(path), [None, Some("/f"), Some("/e"), None]);
        assert_eq!(of(18).as_deref(), Some("/e (same inode number before: /f, a file without a name)"));
        assert_eq!(of(22).as_deref(), Some("/db-journal (deleted)"));
        assert_eq!(of(23).as_deref(), Some("/d (deleted; same inode number before: /c, /b and 1 more)"));
        assert_eq!(of(24).as_deref(), Some("a file without a name (same inode number before: /a)"));
        assert_eq!(of(25), None);
        assert_eq!(of(26).as_deref(), Some("/a/f (or /b/g: same inode number in another subvolume)"));
        assert_eq!(of(27).as_deref(), Some("/a/f (or /b/g or others: same inode number in another subvolume)"));
        assert_eq!(turn(&names.clone().later_by(50), 150), 0);
        assert_eq!(names.turn(Device::new(7, 1), 18, TimeNs(0)), 0);
        assert!(names.looked_for && !FileNames::of_facts(&json!({})).looked_for);
    }

    /// Of the rows of one file and time the last counts; a hundred thousand of one file take no longer than of as many.
    #[test]
    fn many_files_that_had_one_number() {
        let row = |n: u64| json!({"device": "7:0", "inode": 18, "path": format!("/{n}"), "until_ns": n / 2, "layer": "/up", "mnt_ns": n});
        let process = |n: u64| json!({"pid": n, "mnt_ns": n, "cgroup": format!("/lxc/c{n}")});
        let (files, processes): (Vec<_>, Vec<_>) = (0..100_000).rev().map(|n| (row(n ^ 1), process(n))).unzip();
        let names = FileNames::of_facts(&json!({"names": {"files": files, "processes": processes}}));
        let at = |turn| names.of_turn(Device::new(7, 0), 18, turn).and_then(FileName::display);
        assert_eq!(
            (at(0).as_deref(), at(49_999).as_deref()),
            (Some("/1 (in container c1)"), Some("/99999 (in container c99999)"))
        );
        assert_eq!((at(50_000), names.turn(Device::new(7, 0), 18, TimeNs(77))), (None, 77));
    }
}
