//! Events of files and their pages: reads, dirtied pages, cached pages, and where files lie on the device.
//!
//! Sources (Linux 5.10, 6.1, 6.12 and 7.2): `include/trace/events/filemap.h`, `writeback.h`, `ext4.h`, `f2fs.h`; and the agent's own
//! `file_read` (`docs/reference/agent-protocol.md`).

use crate::ids::{Device, FileId};
use crate::ring::schema::{Field, Schema, Value};

/// One step on the way between a file and its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEvent {
    pub step: FileStep,
    /// Device of the file system; `None` if the event names no device with a number (an MTD device's cache).
    pub device: Option<Device>,
    pub inode: u64,
    /// Offset in the file, bytes; 0 if the step concerns the whole file.
    pub offset: u64,
    /// For a read: bytes requested. 0 if the event does not have it.
    pub bytes: u64,
    /// Size of the file, bytes; `None` if the event does not have it.
    pub size: Option<u64>,
    /// For a read that got less than it requested: the return value of its call, if the trace has it.
    pub got: Option<u64>,
    /// For [`FileStep::Extent`]: first block on the device, in blocks of the file system.
    pub block: u64,
}

impl FileEvent {
    pub fn file(&self) -> FileId {
        FileId { device: self.device, inode: self.inode }
    }

    /// Bytes that a read got: it may request more than the file has. All requested bytes if neither the file's size nor the call's return
    /// value is known.
    pub fn bytes_read(&self) -> u64 {
        let there = self.size.map_or(self.bytes, |size| self.bytes.min(size.saturating_sub(self.offset)));
        self.got.map_or(there, |got| got.min(there))
    }
}

impl FileStep {
    /// A write or a part of one.
    pub fn writes(self) -> bool {
        matches!(self, FileStep::Write | FileStep::WriteBegin)
    }
}

macro_rules! steps {
    ($( $(#[$doc:meta])* $variant:ident = $name:literal; )*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FileStep { $( $(#[$doc])* $variant, )* }

        impl FileStep {
            /// The name in exports.
            pub fn name(self) -> &'static str {
                match self { $( FileStep::$variant => $name, )* }
            }
        }
    };
}

steps! {
    /// A task requests bytes through the page cache.
    Read = "read";
    /// A task touches a page of a mapped file that is not yet mapped.
    Fault = "fault";
    /// Cached pages around a fault were mapped: no event shows which of them are touched.
    Mapped = "mapped";
    /// A task is about to copy bytes into the page cache.
    Write = "write";
    /// A file system prepares a page for such a copy: a part of a write, which [`FileStep::Write`] may show whole.
    WriteBegin = "write_begin";
    /// A clean page became dirty.
    Dirtied = "dirtied";
    /// Pages entered the page cache.
    Cached = "cached";
    /// Pages left the page cache.
    Uncached = "uncached";
    /// The running task begins to write back dirty pages of a file.
    WritebackBegin = "writeback_begin";
    WritebackEnd = "writeback_end";
    /// A task syncs a file.
    Synced = "synced";
    /// A range of a file lies at these blocks; offset and bytes are in blocks of the file system.
    Extent = "extent";
}

/// How to read one kind of event.
pub(crate) struct FilePlan {
    pub(super) step: FileStep,
    device: Option<Field>,
    /// The device as text, `MAJOR:MINOR`.
    bdi: Option<Field>,
    inode: Field,
    offset: Option<Field>,
    /// Upper half of the offset, if an argument came in two registers.
    offset_high: Option<Field>,
    bytes: Option<Field>,
    size: Option<Field>,
    block: Option<Field>,
    /// The offset is in pages.
    pages: bool,
    /// Number of pages, as a power of two.
    order: Option<Field>,
    /// The last page, if the event gives a range.
    last: Option<Field>,
    /// The event counts only if this field is not 0.
    only: Option<Field>,
    /// f2fs: the event counts only for pages of files: `DATA` (0) of `enum page_type` (fs/f2fs/f2fs.h), in text a word that ends in it.
    page_type: Option<Field>,
}

/// Bits above `pblk` give the type of an extent (`EXTENT_STATUS_*`, fs/ext4/extents_status.h).
const BLOCK_BITS: u64 = (1 << 48) - 1;

/// `COMPRESS_ADDR` and `NEW_ADDR` (include/linux/f2fs_fs.h): no block is allocated yet.
const F2FS_NO_BLOCK: u64 = 0xffff_fffe;

pub(crate) fn plan(schema: &Schema) -> Option<FilePlan> {
    let ours = schema.system == "flashscope" || schema.system.starts_with("flashscope_");
    let (step, pages) = match (schema.system.as_str(), schema.name.as_str()) {
        (_, "file_read" | "file_splice_read") if ours => (FileStep::Read, false),
        (_, "file_write") if ours => (FileStep::Write, false),
        (_, "file_fault") if ours => (FileStep::Fault, true),
        ("filemap", "mm_filemap_add_to_page_cache") => (FileStep::Cached, true),
        ("filemap", "mm_filemap_delete_from_page_cache") => (FileStep::Uncached, true),
        ("writeback", "writeback_dirty_folio" | "writeback_dirty_page") => (FileStep::Dirtied, true),
        ("writeback", "writeback_single_inode_start") => (FileStep::WritebackBegin, false),
        ("writeback", "writeback_single_inode") => (FileStep::WritebackEnd, false),
        ("ext4", "ext4_writepages") => (FileStep::WritebackBegin, false),
        ("ext4", "ext4_writepages_result") => (FileStep::WritebackEnd, false),
        ("ext4", "ext4_write_begin" | "ext4_da_write_begin") => (FileStep::WriteBegin, false),
        (
            "ext4",
            "ext4_es_insert_extent"
            | "ext4_es_cache_extent"
            | "ext4_es_lookup_extent_exit"
            | "ext4_ext_map_blocks_exit"
            | "ext4_ind_map_blocks_exit",
        ) => (FileStep::Extent, false),
        ("f2fs", "f2fs_write_begin") => (FileStep::WriteBegin, false),
        // A whole write. A probe of ours may show it, too.
        ("xfs", "xfs_file_buffered_write") => (FileStep::WriteBegin, false),
        ("xfs", "xfs_file_fsync" | "xfs_dir_fsync") => (FileStep::Synced, false),
        // f2fs allocates a page's block when it submits the page.
        ("f2fs", "f2fs_map_blocks" | "f2fs_submit_page_write" | "f2fs_submit_folio_write") => (FileStep::Extent, false),
        ("f2fs", "f2fs_submit_page_bio" | "f2fs_submit_folio_bio") => (FileStep::Extent, false),
        _ => return None,
    };
    let field = |names: &[&str]| names.iter().find_map(|name| schema.field(name)).cloned();
    let whole = matches!(step, FileStep::WritebackBegin | FileStep::WritebackEnd | FileStep::Synced);
    let plan = FilePlan {
        step,
        device: field(&["dev", "s_dev"]),
        bdi: field(&["name"]),
        inode: field(&["ino", "i_ino"])?,
        offset: match schema.system.as_str() {
            _ if whole => None,
            "xfs" => field(&["offset"]),
            _ => field(&["lblk", "m_lblk", "pos", "index", "page"]),
        },
        offset_high: if whole { None } else { field(&["pos_high"]) },
        bytes: if whole { None } else { field(&["len", "m_len", "count"]) },
        // In other tools' events a field of that name means something else.
        size: if ours { field(&["size"]) } else { None },
        block: field(&["pblk", "m_pblk", "new_blkaddr"]),
        pages,
        order: field(&["order"]),
        last: field(&["last_index"]),
        only: if step == FileStep::Extent { field(&["found"]) } else { None },
        page_type: if schema.system == "f2fs" { field(&["type"]) } else { None },
    };
    // An extent without a block is ignored.
    (step != FileStep::Extent || plan.block.is_some()).then_some(plan)
}

/// `254:0`.
fn device_of(text: &[u8]) -> Option<Device> {
    Device::parse(std::str::from_utf8(text).ok()?)
}

impl FilePlan {
    /// Whether the event names the device of its backing device info, which all partitions of a disk share.
    pub fn is_by_disk(&self) -> bool {
        self.device.is_none()
    }

    /// `None`: the record is too short. `Some(None)`: the event has no information (an extent that was not found).
    pub fn read(&self, schema: &Schema, data: &[u8], page_bytes: u64) -> Option<Option<FileEvent>> {
        let number = |field: &Option<Field>| match field {
            Some(f) => schema.uint(f, data),
            None => Some(0),
        };
        if self.only.is_some() && number(&self.only)? & 0xff == 0 {
            return Some(None);
        }
        if let Some(page_type) = &self.page_type {
            match schema.value(page_type, data)? {
                Value::Text(text) if text.ends_with(b"DATA") => {}
                Value::Text(_) => return Some(None),
                _ if schema.uint(page_type, data)? != 0 => return Some(None),
                _ => {}
            }
        }
        let device = match (&self.device, &self.bdi) {
            (Some(f), _) => Some(Device(schema.uint(f, data)? as u32)),
            (None, Some(f)) => match schema.value(f, data)? {
                Value::Text(text) => device_of(text),
                _ => None,
            },
            (None, None) => None,
        };
        let inode = schema.uint(&self.inode, data)?;
        let (mut offset, mut bytes) = (number(&self.offset)?, number(&self.bytes)?);
        if self.offset_high.is_some() {
            offset = offset & 0xffff_ffff | number(&self.offset_high)? << 32;
        }
        if self.pages {
            let pages = match &self.last {
                Some(last) => schema.uint(last, data)?.saturating_sub(offset).saturating_add(1),
                None => 1u64.checked_shl(number(&self.order)? as u32 & 0x1f).unwrap_or(1),
            };
            // Folios are aligned to their size; events give the index of their first page.
            bytes = pages.saturating_mul(page_bytes);
            offset = offset.saturating_mul(page_bytes);
        }
        let size = match &self.size {
            Some(f) => Some(schema.uint(f, data)?),
            None => None,
        };
        let block = number(&self.block)? & BLOCK_BITS;
        if self.page_type.is_some() && self.bytes.is_none() && self.step == FileStep::Extent {
            bytes = 1;
        }
        if schema.system == "f2fs" && block >= F2FS_NO_BLOCK {
            return Some(None);
        }
        if self.step == FileStep::Extent && (block == 0 || block == BLOCK_BITS || bytes == 0) {
            // A hole, or blocks that are not allocated yet.
            return Some(None);
        }
        Some(Some(FileEvent { step: self.step, device, inode, offset, bytes, size, block, got: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_a_cache() {
        assert_eq!(device_of(b"254:0"), Some(Device::new(254, 0)));
        assert_eq!(device_of(b"mtd-0"), None);
        assert_eq!(device_of(b"ubifs_0_0"), None);
        assert_eq!(device_of(b"4096:0"), None);
        assert_eq!(device_of(b"8:1048576"), None);
    }
}
