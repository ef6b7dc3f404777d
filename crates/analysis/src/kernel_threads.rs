//! Kernel threads, by the heads of their names: those that carry others' work, and those with work of their own.

use flashscope_trace::Layer;

/// Whose work a kernel thread does.
#[derive(Clone, Copy)]
enum Work {
    /// Another's, or nobody's.
    Others,
    /// Its own: what it is.
    Own(&'static str),
}

const THREADS: [(&str, Work); 16] = [
    ("kworker/", Work::Others),
    ("swapper/", Work::Others),
    ("ksoftirqd/", Work::Others),
    ("flush-", Work::Others),
    ("kswapd", Work::Others),
    ("migration/", Work::Others),
    ("irq/", Work::Others),
    ("jbd2/", Work::Own("ext4 journal")),
    ("jffs2_gcd_mtd", Work::Own("jffs2 GC")),
    ("ubi_bgt", Work::Own("UBI wear levelling")),
    ("ubifs_bgt", Work::Own("UBIFS background")),
    ("yaffs-bg", Work::Own("YAFFS2 GC")),
    ("f2fs_gc", Work::Own("f2fs GC")),
    ("f2fs_discard", Work::Own("f2fs discard")),
    ("f2fs_ckpt", Work::Own("f2fs checkpoint")),
    ("ext4lazyinit", Work::Own("ext4 lazy initialisation")),
];

fn work(name: &str) -> Option<Work> {
    // A loop device's thread (before 5.14, drivers/block/loop.c) has nothing but its number behind its head.
    if name.strip_prefix("loop").is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit())) {
        return Some(Work::Others);
    }
    THREADS.iter().find(|(head, _)| name.starts_with(head)).map(|(_, work)| *work)
}

/// What it does is another's, or nobody's.
pub(crate) fn is_carrier(name: &str) -> bool {
    matches!(work(name), Some(Work::Others))
}

/// What a thread with work of its own is.
pub(crate) fn role(name: &str) -> Option<&'static str> {
    match work(name)? {
        Work::Own(role) => Some(role),
        Work::Others => None,
    }
}

/// The layer in which a thread with work of its own runs.
pub(crate) fn home(name: &str) -> Option<Layer> {
    role(name).map(|_| if name.starts_with("ubi_bgt") { Layer::Ubi } else { Layer::FileSystem })
}

/// A kernel thread of storage, of either kind: a task that waits may be waiting for what it does.
pub(crate) fn is_of_storage(name: &str) -> bool {
    work(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_one_kind_of_work() {
        for (name, carrier, own) in [
            ("kworker/0:1H", true, None),
            ("jbd2/nullb0-8", false, Some("ext4 journal")),
            ("jffs2_gcd_mtd3", false, Some("jffs2 GC")),
            ("loop0", true, None),
            ("loopback", false, None),
            ("cat", false, None),
            ("", false, None),
        ] {
            assert_eq!((is_carrier(name), role(name)), (carrier, own), "{name}");
            assert_eq!(is_of_storage(name), carrier || own.is_some(), "{name}");
            assert_eq!(home(name), own.map(|_| Layer::FileSystem), "{name}");
        }
    }
}
