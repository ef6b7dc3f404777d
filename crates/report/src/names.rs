//! Replaces device and file numbers by names in tables, and adds names to a report's JSON.

use flashscope_analysis::block::{BlockReport, GroupBy, device_and_kind};
use flashscope_analysis::cache::AccuracyFindings;
use flashscope_analysis::calls::CallsFound;
use flashscope_analysis::{CallPath, Evidence, FileUse, FlashReport, NamesFound};
use serde_json::Value;

use crate::rows::Rows;
use crate::text::{grouped, number, size};

/// Keys with a device's number, and the key of the name beside it.
pub const BESIDE: [(&str, &str); 3] = [("device", "device_name"), ("upper", "upper_name"), ("lower", "lower_name")];

/// The report with names of devices and paths of files.
pub fn block_for_people(report: &BlockReport) -> BlockReport {
    let mut shown = report.clone();
    let names = &report.names;
    if names.is_empty() {
        return shown;
    }
    let name = |device: &mut String| {
        // Some entries are not numbers: "(further devices)".
        let found = names.device(device);
        if found != device {
            *device = found.to_owned();
        }
    };
    let found = &mut shown.found;
    for group in &mut found.groups {
        match group.by {
            GroupBy::File => {
                group.name = names.file(group.path.as_deref(), &group.name);
            }
            // `254:0 reads`
            GroupBy::Device => {
                if let Some((device, kind)) = device_and_kind(&group.name) {
                    group.name = format!("{} {}", names.device(device), kind.plural());
                }
            }
            _ => {}
        }
    }
    found.originators.files.iter_mut().for_each(|file| name(&mut file.device));
    found.interference.owners.iter_mut().for_each(|one| name(&mut one.device));
    found.interference.pairs.iter_mut().for_each(|one| name(&mut one.device));
    found.interference.own_work.iter_mut().for_each(|one| name(&mut one.device));
    found.errors.failures.iter_mut().for_each(|one| name(&mut one.device));
    found.stages.devices.iter_mut().for_each(|one| name(&mut one.device));
    for level in &mut found.stack {
        name(&mut level.upper);
        name(&mut level.lower);
    }
    found.points.devices.iter_mut().for_each(name);
    shown_calls(&mut shown.calls, names);
    shown_readahead(shown.readahead.as_mut(), names);
    shown
}

fn shown_calls(calls: &mut CallsFound, names: &NamesFound) {
    for group in &mut calls.by_file {
        group.name = names.file(group.path.as_deref(), &group.name);
    }
    for call in &mut calls.slowest {
        call.file = call.file.as_deref().map(|file| names.file(call.path.as_deref(), file));
    }
}

fn shown_readahead(found: Option<&mut Evidence<AccuracyFindings>>, names: &NamesFound) {
    for file in found.and_then(Evidence::known_mut).into_iter().flat_map(|found| &mut found.files) {
        if let (None, Some(device)) = (&file.path, file.device) {
            file.path = Some(names.unnamed(device, file.inode));
        }
    }
}

/// One call with names of devices and files.
pub fn call_for_people(path: &CallPath, names: &NamesFound) -> CallPath {
    let mut shown = path.clone();
    let devices =
        shown.held_up_by.iter_mut().map(|one| &mut one.device).chain(shown.bios.iter_mut().map(|one| &mut one.device));
    devices.for_each(|device| *device = names.device(device).to_owned());
    shown.call.file = shown.call.file.as_deref().map(|file| names.file(shown.call.path.as_deref(), file));
    shown
}

/// A flash report with names.
pub fn flash_for_people(report: &FlashReport) -> FlashReport {
    let mut shown = report.clone();
    for file in shown.found.wear.known_mut().into_iter().flat_map(|wear| &mut wear.by_file) {
        if let Some(device) = &mut file.device {
            *device = report.names.device(device).to_owned();
        }
    }
    shown_calls(&mut shown.calls, &report.names);
    shown_readahead(shown.readahead.as_mut(), &report.names);
    shown
}

/// Adds the names of devices to a report's JSON.
pub fn add_to_json(value: &mut Value, names: &NamesFound) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| add_to_json(one, names)),
        Value::Object(object) => {
            for (key, beside) in BESIDE {
                let found = object.get(key).and_then(Value::as_str).map(|device| (device, names.device(device)));
                if let Some((device, name)) = found
                    && name != device
                {
                    let name = name.to_owned();
                    object.insert(beside.to_owned(), name.into());
                }
            }
            // This object has the names already.
            object.iter_mut().filter(|(key, _)| *key != "names").for_each(|(_, value)| add_to_json(value, names));
        }
        _ => {}
    }
}

/// Use of files by task.
pub fn files(names: &NamesFound, most: usize) -> Rows {
    let heads = &["who", "file", "device", "read", "into the\ncache", "written"];
    let used: Vec<&FileUse> = names.files.iter().collect();
    let bytes = |known: Option<u64>| known.map_or_else(|| "unknown".to_owned(), size);
    Rows::new("tttnnn", heads, used.into_iter(), most, |file| {
        let path = file.path.clone().or_else(|| file.what.clone()).unwrap_or_else(|| format!("inode {}", file.inode));
        let who = if file.who.is_empty() { "not named".to_owned() } else { file.who.clone() };
        let device = names.device(&file.device).to_owned();
        vec![who, path, device, bytes(file.read_bytes), size(file.cached_bytes), bytes(file.written_bytes)]
    })
}

/// Sentences about devices that lie below others.
pub fn stacks(names: &NamesFound) -> Vec<String> {
    let stacked = names.devices.iter().filter(|device| !device.beneath.is_empty());
    stacked.map(|device| format!("{} on {}", device.name, device.beneath.join(" on "))).collect()
}

/// Devices whose writes to files are unknown; `None` where there is none.
fn writes_not_shown(names: &NamesFound) -> Option<String> {
    let devices: Vec<&str> = names.writes_not_shown.iter().map(|device| names.device(device)).collect();
    let all = devices.join(", ");
    (!all.is_empty())
        .then(|| format!(" Bytes written to files on {all} are unknown: no event of the trace shows them."))
}

/// Devices where bytes of files are unknown because of I/O past the page cache.
fn direct_not_shown(names: &NamesFound) -> Option<String> {
    let devices: Vec<&str> = names.direct_not_shown.iter().map(|device| names.device(device)).collect();
    let all = devices.join(", ");
    let why =
        "I/O went past the page cache (O_DIRECT), or may have, and no event of the trace shows its file or its call";
    (!all.is_empty()).then(|| format!(" Bytes of some files on {all} are unknown: {why}."))
}

/// The share of the files' bytes with a known path, and reasons for the rest.
pub fn coverage(names: &NamesFound) -> String {
    let found = &names.coverage;
    let mut text = match found.named_percent.known() {
        Some(percent) => format!("{} % of the bytes of files have a path.", number(*percent, 2)),
        None => match found.named_percent.why() {
            Some(why) => format!("Paths of files are unknown: {}; {}.", why.missing, why.next),
            None => String::new(),
        },
    };
    for one in &found.unnamed {
        let files = if one.files == 1 { "1 file".to_owned() } else { format!("{} files", grouped(one.files)) };
        text += &format!(" Without one: {} of {files}: {}.", size(one.bytes), why(&one.why));
    }
    if found.not_kept > 0 {
        text += &format!(" {} events of further files and users were too many to keep.", grouped(found.not_kept));
    }
    text += &writes_not_shown(names).unwrap_or_default();
    text += &direct_not_shown(names).unwrap_or_default();
    text
}

fn why(reason: &str) -> &str {
    match reason {
        "deleted" => "deleted before their path was seen",
        "metadata" => "the file system's own data, or the block device itself",
        "no_mount" => "their file system was not mounted at the end, or is in memory",
        "remote" => "on a network or FUSE file system, which is not searched because it may never answer",
        "not_reachable" => "in a part of their file system that is not mounted, or is hidden by another mount",
        "out_of_time" => "the search ended at its time limit (record with --paths walk to search without one)",
        "busy" => "events came too fast to look for them while they were there",
        "not_looked_for" => "the recording did not look for them (record with --paths walk)",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_analysis::NamedDevice;

    fn names() -> NamesFound {
        let device = NamedDevice {
            device: "7:0".into(),
            name: "loop0 (ext4, /mnt)".into(),
            filesystem: Some("ext4".into()),
            beneath: vec!["vda".into()],
        };
        let file = FileUse {
            who: "vlc".into(),
            device: "7:0".into(),
            inode: 12,
            path: Some("/mnt/a\u{1b}".into()),
            what: None,
            unnamed: None,
            read_bytes: Some(0),
            cached_bytes: 4096,
            written_bytes: Some(0),
        };
        NamesFound { devices: vec![device], files: vec![file], ..NamesFound::default() }
    }

    #[test]
    fn a_name_stands_beside_every_number() {
        let mut value = serde_json::json!({"a": [{"device": "7:0"}, {"device": "8:0", "upper": "7:0"}],
            "names": {"device": "7:0"}});
        add_to_json(&mut value, &names());
        assert_eq!(value["a"][0]["device_name"], "loop0 (ext4, /mnt)");
        assert_eq!(value["a"][1].get("device_name"), None);
        assert_eq!(value["a"][1]["upper_name"], "loop0 (ext4, /mnt)");
        assert_eq!(value["names"].get("device_name"), None);
    }

    #[test]
    fn tables_of_files_name_them() {
        let rows = files(&names(), 9);
        assert_eq!(rows.rows[0][..3], ["vlc".to_owned(), "/mnt/a\u{1b}".to_owned(), "loop0 (ext4, /mnt)".to_owned()]);
        assert_eq!(names().file(None, "0:3 inode 7340032"), "metadata of loop0 (ext4, /mnt)");
        assert_eq!(names().file(None, "7:0 inode 8"), "journal of loop0 (ext4, /mnt)");
        assert_eq!(names().file(None, "0:3 inode 12"), "inode 12 on 0:3");
        assert_eq!(stacks(&names()), ["loop0 (ext4, /mnt) on vda"]);
    }
}
