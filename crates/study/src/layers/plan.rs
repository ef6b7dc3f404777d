//! The groups of a layers study, and the plan of each boot.

use super::definition::{Cases, MeasuredStorage};
use crate::lab::{MOUNT_POINT, Mount};
use crate::plan::AGENT;

/// One fresh boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayersSpec {
    pub storage: MeasuredStorage,
    pub kernel: String,
    pub calls: u64,
    pub bytes: u64,
}

impl LayersSpec {
    /// `armv7-6.1-jffs2`
    pub fn id(&self) -> String {
        format!("{}-{}-{}", self.storage.board, self.kernel, self.storage.filesystem.as_str())
    }

    /// Size of the file that is read, bytes.
    pub fn file_bytes(&self) -> u64 {
        self.calls * self.bytes
    }
}

pub(super) fn groups(cases: &Cases) -> Vec<LayersSpec> {
    let of = |kernel: &String, storage: &MeasuredStorage| LayersSpec {
        storage: storage.clone(),
        kernel: kernel.clone(),
        calls: cases.calls,
        bytes: cases.bytes.0,
    };
    cases.kernel.iter().flat_map(|kernel| cases.storage.iter().map(move |storage| of(kernel, storage))).collect()
}

pub(super) const STEP_READ: &str = "read";
/// The last step before the measured writes; its name is unique.
pub(super) const STEP_WRITE: &str = "write";

/// The plan once the storage exists. `device`: a formatted disk.
pub(super) fn plan(spec: &LayersSpec, device: Option<&str>) -> Vec<String> {
    let mounting = Mount::new(spec.storage.filesystem, device);
    let mut lines = vec![format!("mkdir {MOUNT_POINT}")];
    lines.extend(mounting.prepare.iter().cloned());
    lines.push(mounting.mount.clone());
    let create = |name: &str, bytes: u64, seed: u64| format!("create /mnt/{name} {bytes} printable {seed}");
    lines.push(create("data", spec.file_bytes(), 1));
    // Work that only a first write causes (blocks for a directory, the first use of an inode table) is not measured.
    lines.push(create("first", spec.bytes, 2));
    lines.extend(mounting.settle());
    lines.push(format!("record-start --events block,layers --mode ring --ring {RING_KIB}"));
    // Each read must go to the device, so read-ahead is off.
    lines.push(format!(
        "run {STEP_READ} {AGENT} bench read --file /mnt/data --count {} --request {} --pattern sequential \
         --readahead fadvise-random --drop-caches",
        spec.calls, spec.bytes
    ));
    lines.push(format!("phase-begin {STEP_WRITE}"));
    lines.extend((0..spec.calls).map(|call| create(&format!("written-{call}"), spec.bytes, 3 + call)));
    lines.push(format!("phase-end {STEP_WRITE}"));
    lines.push("record-stop".to_owned());
    lines
}

/// About 40 bytes per event, and 200 events per call.
const RING_KIB: u32 = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::LayersStudy;

    #[test]
    fn calls_are_made_under_the_recorder_from_a_cold_cache() {
        let text = include_str!("../../../../studies/layers.toml");
        let specs = groups(&LayersStudy::parse("layers.toml", text).unwrap().definition.layers);
        let ids: Vec<String> = specs.iter().map(LayersSpec::id).collect();
        assert_eq!(ids, ["armv7-blk-6.1-ext4", "armv7-sd-6.1-ext4", "armv7-6.1-jffs2", "armv7-6.1-ubifs"]);
        for spec in &specs {
            let device = spec.storage.filesystem.on_disk().then_some("/dev/nullb0");
            let lines = plan(spec, device);
            let at = |head: &str| lines.iter().position(|line| line.starts_with(head)).unwrap();
            assert!(at("mount") < at("create /mnt/data") && at("create /mnt/first") < at("record-start"));
            assert!(at("record-start") < at("run read") && at("run read") < at("create /mnt/written-0"));
            assert!(lines[at("run read")].contains("--drop-caches"));
            assert_eq!(lines.iter().filter(|line| line.starts_with("create /mnt/written-")).count(), 4);
            assert_eq!(lines.last().unwrap(), "record-stop");
        }
    }
}
