//! Paths of open and mapped files on this machine, from /proc.

use flashscope_report::top::TopRow;
use flashscope_trace::{Device, FileId};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

/// Limit for open and mapped files per snapshot. Further files are shown by inode.
const MOST_LOOKED_AT: usize = 1 << 16;

/// Gives files without a path the path under which a process has them open now. Earlier paths are not kept, because an inode number may
/// belong to another file by then.
pub fn name(rows: &mut [TopRow]) {
    let is_unnamed = |row: &TopRow| !row.label.as_deref().is_some_and(|label| label.starts_with('/'));
    let wanted: Vec<(&mut TopRow, FileId)> = rows
        .iter_mut()
        .filter(|row| is_unnamed(row))
        .filter_map(|row| FileId::parse(&row.name).map(|file| (row, file)))
        .collect();
    if wanted.is_empty() {
        return;
    }
    let paths = look(&wanted.iter().map(|(_, file)| *file).collect());
    for (row, file) in wanted {
        if let Some(path) = paths.get(&file) {
            row.label = Some(path.clone());
        }
    }
}

/// Makes no calls to the file systems themselves: one that hangs would block `top`.
fn look(wanted: &HashSet<FileId>) -> HashMap<FileId, String> {
    let mut paths = HashMap::new();
    let mut keep = |device: Device, inode: u64, path: &str| {
        let file = FileId::on(device, inode);
        if path.starts_with('/') && wanted.contains(&file) {
            paths.insert(file, path.to_owned());
        }
    };
    let mut left = MOST_LOOKED_AT;
    let mut mounts: HashMap<PathBuf, HashMap<u64, Device>> = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes.filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit()) {
        let process = process.path();
        let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { continue };
        let read = |file: &str| fs::read_to_string(process.join(file)).unwrap_or_default();
        let mounts = mounts.entry(namespace).or_insert_with(|| read("mountinfo").lines().filter_map(mount).collect());
        for descriptor in fs::read_dir(process.join("fd")).into_iter().flatten().flatten().take(left) {
            left -= 1;
            let Ok(path) = fs::read_link(descriptor.path()) else { continue };
            let info = fs::read_to_string(process.join("fdinfo").join(descriptor.file_name())).unwrap_or_default();
            if let Some((mount, inode)) = opened(&info)
                && let Some(&device) = mounts.get(&mount)
            {
                keep(device, inode, &path.to_string_lossy());
            }
        }
        for (device, inode, path) in read("maps").lines().filter_map(mapping).take(left) {
            left -= 1;
            keep(device, inode, path);
        }
    }
    paths
}

/// `7f00-7f10 r--p 00000000 fe:00 1234      /usr/lib/libc.so.6` (Documentation/filesystems/proc.rst).
fn mapping(line: &str) -> Option<(Device, u64, &str)> {
    let mut words = line.splitn(6, ' ');
    let device = words.nth(3)?;
    let inode = words.next()?.parse().ok()?;
    let path = words.next()?.trim_start();
    let (major, minor) = device.split_once(':')?;
    let number = |hex| u32::from_str_radix(hex, 16).ok();
    Some((Device::new(number(major)?, number(minor)?), inode, path))
}

/// Mount id and inode of a descriptor; the inode is there since Linux 5.14 (fs/proc/fd.c).
fn opened(info: &str) -> Option<(u64, u64)> {
    let value = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    Some((value("mnt_id:")?, value("ino:")?))
}

/// `28 1 254:0 / / rw,relatime - ext4 /dev/vda rw`: mount id and device.
fn mount(line: &str) -> Option<(u64, Device)> {
    let mut words = line.split(' ');
    let number = words.next()?.parse().ok()?;
    Some((number, Device::parse(words.nth(1)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_its_file() {
        let line = "7f00-7f10 r--p 00001000 fe:01 1234                       /usr/lib/a b.so (deleted)";
        assert_eq!(mapping(line), Some((Device::new(254, 1), 1234, "/usr/lib/a b.so (deleted)")));
        assert_eq!(mapping("7f00-7f10 rw-p 00000000 00:00 0"), None);
    }

    #[test]
    fn a_descriptor_has_its_file() {
        assert_eq!(opened("pos:\t0\nflags:\t0100000\nmnt_id:\t28\nino:\t7340\n"), Some((28, 7340)));
        assert_eq!(opened("pos:\t0\nmnt_id:\t28\n"), None);
        assert_eq!(mount("28 1 254:0 / / rw - ext4 /dev/vda rw"), Some((28, Device::new(254, 0))));
        assert_eq!(mount("28 1"), None);
    }

    #[test]
    fn an_open_file_gets_its_path() {
        use std::os::unix::fs::MetadataExt as _;
        // Mapped by this test, on any file system.
        let own = std::env::current_exe().expect("a path");
        let inode = fs::metadata(&own).expect("known").ino();
        let maps = fs::read_to_string("/proc/self/maps").expect("readable");
        let (device, ..) = maps.lines().filter_map(mapping).find(|(_, of, _)| *of == inode).expect("mapped");
        let row = |label: &str| TopRow {
            name: format!("{device} inode {inode}"),
            label: Some(label.to_owned()),
            ..TopRow::default()
        };
        let further = TopRow { name: "(further files)".to_owned(), ..TopRow::default() };
        let mut rows = [row("inode 1 on vda"), row("/data/a"), further];
        name(&mut rows);
        let labels = rows.each_ref().map(|row| row.label.as_deref());
        assert_eq!(labels, [own.to_str(), Some("/data/a"), None]);
    }
}
