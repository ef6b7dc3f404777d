//! The storage of a group's file system.

#[derive(Clone, Debug)]
pub(crate) enum Medium {
    Chip { name: String, page_bytes: u32 },
    Disk { name: String, device: String, bytes: u64 },
}

impl Medium {
    /// The chip's name, or the disk's name with its settings.
    pub fn name(&self) -> &str {
        match self {
            Medium::Chip { name, .. } | Medium::Disk { name, .. } => name,
        }
    }

    /// The device of a disk; `None` for a chip.
    pub fn device(&self) -> Option<&str> {
        match self {
            Medium::Chip { .. } => None,
            Medium::Disk { device, .. } => Some(device),
        }
    }
}
