//! What a group's file system lies on.

#[derive(Clone, Debug)]
pub(crate) enum Medium {
    Chip { name: String, page_bytes: u32 },
    Disk { name: String, device: String, bytes: u64 },
}

impl Medium {
    /// The chip, or the disk with its settings.
    pub fn name(&self) -> &str {
        match self {
            Medium::Chip { name, .. } | Medium::Disk { name, .. } => name,
        }
    }

    /// Of a disk.
    pub fn device(&self) -> Option<&str> {
        match self {
            Medium::Chip { .. } => None,
            Medium::Disk { device, .. } => Some(device),
        }
    }
}
