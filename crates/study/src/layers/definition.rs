//! The definition of a layers study, as in its file.

use crate::definition::{Checked, Define, Filesystem};
use crate::size::Bytes;
use crate::statement::Statement;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayersDefinition {
    pub name: String,
    pub title: String,
    pub question: String,
    pub layers: Cases,
    #[serde(default)]
    pub published: Vec<Statement>,
}

/// Each storage with each kernel is a group: one fresh boot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    pub kernel: Vec<String>,
    /// Number of cold reads, and of writes with a sync, in each group.
    pub calls: u64,
    /// Size of one read or write.
    pub bytes: Bytes,
    pub storage: Vec<MeasuredStorage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredStorage {
    pub board: String,
    pub filesystem: Filesystem,
}

/// A layers study that was read and checked.
pub type LayersStudy = Checked<LayersDefinition>;

/// Largest number of calls in a group, so that their events fit into the ring.
const MOST_CALLS: u64 = 64;
/// Largest size of one call, bytes: the agent's `create` writes pieces of this size.
const MOST_BYTES: u64 = 65_536;

impl Define for LayersDefinition {
    fn check(&self) -> Result<(), String> {
        check(self)
    }
}

fn check(definition: &LayersDefinition) -> Result<(), String> {
    let cases = &definition.layers;
    if cases.kernel.is_empty() || cases.storage.is_empty() {
        return Err("layers.kernel or layers.storage is empty: name at least one".to_owned());
    }
    if !(1..=MOST_CALLS).contains(&cases.calls) {
        return Err(format!("layers.calls is {}: take 1 to {MOST_CALLS}", cases.calls));
    }
    if !(1..=MOST_BYTES).contains(&cases.bytes.0) {
        return Err(format!("layers.bytes is {}: take 1 to {MOST_BYTES}", cases.bytes.0));
    }
    for storage in &cases.storage {
        if !matches!(storage.filesystem, Filesystem::Jffs2 | Filesystem::Ubifs | Filesystem::Ext4 | Filesystem::F2fs) {
            let name = storage.filesystem.as_str();
            return Err(format!("layers.storage: {name} cannot be written here: take jffs2, ubifs, ext4 or f2fs"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIPPED: &str = include_str!("../../../../studies/layers.toml");

    #[test]
    fn the_shipped_study_is_read() {
        let study = LayersStudy::parse("layers.toml", SHIPPED).unwrap();
        assert_eq!(study.definition.layers.storage.len(), 4);
        assert_eq!(study.definition.layers.bytes.0, 4096);
    }

    #[test]
    fn slips_are_named() {
        for (from, to, said) in [
            ("calls = 4", "calls = 0", "layers.calls is 0"),
            ("calls = 4", "calls = 4\ncolls = 4", "line 11"),
            ("bytes = \"4K\"", "bytes = \"1M\"", "layers.bytes is 1048576"),
            ("kernel = [\"6.1\"]", "kernel = []", "is empty"),
            ("\"jffs2\"", "\"squashfs-mtdblock\"", "cannot be written"),
        ] {
            let error = LayersStudy::parse("layers.toml", &SHIPPED.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with("study layers.toml") && error.contains(said), "{error}");
        }
    }
}
