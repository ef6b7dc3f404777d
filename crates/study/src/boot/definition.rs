//! The definition of a boot study, as in its file.

use crate::definition::{Checked, Define, Filesystem};
use crate::size::Bytes;
use crate::statement::Statement;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootDefinition {
    pub name: String,
    pub title: String,
    pub question: String,
    pub boot: Boots,
    #[serde(default)]
    pub published: Vec<Statement>,
}

/// Each root file system with each kernel is a group: one board, on which it boots twice.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boots {
    pub board: String,
    pub kernel: Vec<String>,
    /// The partition: its first erase block on the chip, and its number of erase blocks.
    pub first_block: u64,
    pub blocks: u64,
    /// Contents of the root file system: Debian packages of the board's architecture, including busybox-static.
    pub packages: Vec<String>,
    /// Types of the keys that its SSH server generates at the first boot, by dropbearkey's names.
    #[serde(default)]
    pub host_keys: Vec<String>,
    /// Guest time that is recorded after the login prompt, seconds.
    pub after_prompt_s: u64,
    pub root: Vec<Root>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    pub filesystem: Filesystem,
    /// Size of the image: a file of random bytes fills the rest. `None`: the size of the packages.
    pub image: Option<Bytes>,
}

/// A boot study that was read and checked.
pub type BootStudy = Checked<BootDefinition>;

/// The root file system's shell, which also makes the image.
const NEEDED: &str = "busybox-static";
const KEYS: [&str; 3] = ["rsa", "ecdsa", "ed25519"];
const LONGEST_WATCH_S: u64 = 3600;

impl Define for BootDefinition {
    fn check(&self) -> Result<(), String> {
        check(&self.boot)
    }
}

fn check(boots: &Boots) -> Result<(), String> {
    if boots.kernel.is_empty() || boots.root.is_empty() {
        return Err("boot.kernel or boot.root is empty: name at least one".to_owned());
    }
    if boots.blocks == 0 {
        return Err("boot.blocks is 0: a partition has at least one erase block".to_owned());
    }
    if boots.packages.iter().all(|package| package != NEEDED) {
        return Err(format!("boot.packages lacks {NEEDED}: its shell runs the root file system's scripts"));
    }
    if let Some(key) = boots.host_keys.iter().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("boot.host_keys: '{key}' is none that dropbearkey makes: take {}", KEYS.join(", ")));
    }
    if boots.after_prompt_s > LONGEST_WATCH_S {
        return Err(format!("boot.after_prompt_s is {}: take up to {LONGEST_WATCH_S}", boots.after_prompt_s));
    }
    for root in &boots.root {
        if !matches!(root.filesystem, Filesystem::Jffs2 | Filesystem::Ubifs) {
            let name = root.filesystem.as_str();
            return Err(format!("boot.root: no image of {name} can be made; use jffs2 or ubifs"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIPPED: &str = include_str!("../../../../studies/boot.toml");

    #[test]
    fn the_shipped_study_is_the_papers_partition() {
        let boots = BootStudy::parse("boot.toml", SHIPPED).unwrap().definition.boot;
        assert_eq!((boots.first_block * 64, (boots.first_block + boots.blocks) * 64), (4096, 29_696));
        assert_eq!(boots.root.len(), 2);
    }

    #[test]
    fn slips_are_named() {
        for (from, to, said) in [
            ("blocks = 400", "blocks = 0", "boot.blocks is 0"),
            ("blocks = 400", "blocks = 400\nblocs = 1", "line 1"),
            ("\"busybox-static\", ", "", "lacks busybox-static"),
            ("after_prompt_s = 60", "after_prompt_s = 6000", "after_prompt_s is 6000"),
            ("host_keys = [\"rsa\"]", "host_keys = [\"dss; reboot\"]", "is none that dropbearkey makes"),
            ("kernel = [\"6.1\"]", "kernel = []", "is empty"),
            ("\"jffs2\"", "\"squashfs-mtdblock\"", "use jffs2 or ubifs"),
        ] {
            let error = BootStudy::parse("boot.toml", &SHIPPED.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with("study boot.toml") && error.contains(said), "{error}");
        }
    }
}
