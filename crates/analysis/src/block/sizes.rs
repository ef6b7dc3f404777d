//! Sizes of pages and of file systems' blocks, from recordings.

use flashscope_trace::{Device, Facts};
use foldhash::{HashMap, HashMapExt as _};

/// The usual size, where no recording has one.
const USUAL: u64 = 4096;
const SECTOR: u64 = 512;

/// Bytes of a page and of each mounted file system's block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    page: u64,
    blocks: HashMap<Device, u64>,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { page: USUAL, blocks: HashMap::new() }
    }
}

impl Sizes {
    /// From the facts of recordings (`docs/reference/agent.md`, "Facts"); the page size is from the first one that has it.
    pub fn of_facts<'a>(facts: impl IntoIterator<Item = &'a Facts>) -> Sizes {
        let mut sizes = Sizes::default();
        let mut page = None;
        for facts in facts {
            page = page.or(facts.kernel.page_size.filter(|bytes| bytes.is_power_of_two()));
            for mount in &facts.mounts {
                if let (Some(device), Some(bytes)) = (mount.device(), mount.block_bytes) {
                    sizes = sizes.with_block(device, bytes);
                }
            }
        }
        sizes.page = page.unwrap_or(USUAL).max(SECTOR);
        sizes
    }

    /// Sets the block size of the file system on a device.
    pub fn with_block(mut self, device: Device, bytes: u64) -> Sizes {
        self.blocks.insert(device, bytes.max(SECTOR));
        self
    }

    pub fn page(&self) -> u64 {
        self.page
    }

    pub fn block(&self, device: Device) -> u64 {
        self.blocks.get(&device).copied().unwrap_or(USUAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_state_them_and_nonsense_does_not() {
        let facts = json!({
            "kernel": {"page_size": 16384},
            "mounts": [
                {"device": "254:0", "block_bytes": 1024},
                {"device": "254:1", "block_bytes": 0},
                {"device": "x", "block_bytes": 7},
                {"device": null, "block_bytes": null},
            ],
        });
        let sizes = Sizes::of_facts([&Facts::default(), &Facts::of(&facts)]);
        assert_eq!(
            (sizes.page(), sizes.block(Device::new(254, 0)), sizes.block(Device::new(254, 1))),
            (16384, 1024, 512)
        );
        assert_eq!(sizes.block(Device::new(8, 0)), 4096);
        assert_eq!(Sizes::of_facts([&Facts::of(&json!({"kernel": {"page_size": 3}, "mounts": 5}))]), Sizes::default());
    }
}
