//! What a call does, by its name.

pub fn is_sync(call: &str) -> bool {
    matches!(call, "fsync" | "fdatasync" | "sync" | "syncfs" | "msync" | "sync_file_range" | "sync_file_range2")
}

/// Whether a recording of one device has this call (agent/record/groups.c, `FS_GROUP_SYNCS`): such a trace shows no reads, writes or
/// opens.
pub fn syncs_or_renames(call: &str) -> bool {
    is_sync(call) || matches!(call, "rename" | "renameat" | "renameat2")
}

pub fn is_write(call: &str) -> bool {
    matches!(call, "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2")
}

/// Whether it reads one file and writes another.
pub fn is_copy(call: &str) -> bool {
    call == "copy_file_range"
}

pub fn opens(call: &str) -> bool {
    matches!(call, "open" | "openat" | "openat2" | "creat")
}

/// A read or write that names its offset: of a file or a device, never of a pipe, a socket or a terminal (pread(2): ESPIPE).
pub fn is_at_offset(call: &str) -> bool {
    matches!(call, "pread64" | "preadv" | "pwrite64" | "pwritev")
}

pub fn is_read(call: &str) -> bool {
    matches!(call, "read" | "pread64" | "readv" | "preadv" | "preadv2")
}

/// Name of a fault of a mapped file in the tables of calls.
pub const FAULT: &str = "page fault";

/// Whether calls of this name are followed.
pub(super) fn followed(call: &str) -> bool {
    let names = ["open", "openat", "openat2", "creat", "unlink", "unlinkat", "rename", "renameat", "renameat2"];
    let more = ["truncate", "ftruncate", "fallocate", "sendfile", "sendfile64", "splice", "copy_file_range"];
    is_read(call) || is_write(call) || is_sync(call) || names.contains(&call) || more.contains(&call)
}

/// Whether it submits I/O and does not wait for it.
pub(super) fn submits(call: &str) -> bool {
    matches!(call, "io_uring_enter" | "io_submit")
}

/// Whether calls of this name may be on a pipe or a socket.
pub(super) fn may_be_elsewhere(call: &str) -> bool {
    is_read(call) || is_write(call) || matches!(call, "sendfile" | "sendfile64" | "splice")
}
