//! Kernel threads of storage, by their names, and the owner of each one's work.
//!
//! A name alone is weak evidence, because a user's process may have any name. So these rules do not apply where the trace shows a user's
//! task (it made a system call, executed a program, or was cloned by another task than kthreadd). The kernel cuts names at 15
//! characters (`TASK_COMM_LEN`); a tracer may print a worker's queue behind its name (`kworker/u8:0-wri`).
//!
//! Each row names the kernel function that gives the name, and the version read; 6.1 where none is given.

use flashscope_trace::Layer;

/// What kind of work a kernel thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Work for another task, which the page, the file or the upper bio shows; else it is unknown.
    Others,
    /// A file system's own work: journals, garbage collectors, metadata.
    FileSystem(&'static str),
    /// A device's own work: data that a stacked device or a flash layer moves by itself.
    Device(&'static str),
    /// Memory reclaim: pages that are swapped out.
    Swap(&'static str),
}

use Work::{Device, FileSystem, Others, Swap};

/// Prefixes of names; the first match counts, so a longer prefix stands before a shorter one.
const THREADS: &[(&str, Work)] = &[
    // kernel/workqueue.c, create_worker(): "kworker/%s"; init_rescuer() of 6.9 and later: "kworker/R-%s"
    ("kworker/", Others),
    // kernel/sched/core.c, init_idle(): "swapper/%d"
    ("swapper", Others),
    // kernel/softirq.c, softirq_threads: "ksoftirqd/%u"
    ("ksoftirqd/", Others),
    // kernel/stop_machine.c, cpu_stop_threads: "migration/%u"
    ("migration/", Others),
    // kernel/irq/manage.c, setup_irq_thread(): "irq/%d-%s"
    ("irq/", Others),
    // mm/backing-dev.c, bdi_forker_thread() (2.6.36 to 3.8): "flush-%s"
    ("flush-", Others),
    // mm/backing-dev.c, default_bdi_init() (2.6.32 to 3.8)
    ("bdi-default", Others),
    // mm/pdflush.c, start_one_pdflush_thread() (2.6.31)
    ("pdflush", Others),
    // mm/backing-dev.c, default_bdi_init() (3.10 and later): the rescuer of workqueue "writeback" ("kworker/R-write" from 6.9 on)
    ("writeback", Others),
    // block/bio.c, bioset_init(): the rescuer of workqueue "bioset"; block/blk-throttle.c, throtl_init(): of "kthrotld"
    ("bioset", Others),
    ("kthrotld", Others),
    // fs/io-wq.c, create_io_worker() (5.5 to 5.11): "io_wqe_worker-%d/%d"; later ones have the name of their task
    ("io_wqe_worker-", Others),
    // fs/direct-io.c, sb_init_dio_done_wq(): the rescuer of workqueue "dio/%s"
    ("dio/", Others),
    // block/blk-core.c, blk_dev_init(): workqueue "kblockd"; one thread a CPU, "kblockd/0", before 2.6.36
    ("kblockd", Others),
    // drivers/block/nbd.c, nbd_dev_add(): workqueue "nbd%d-recv" (before 5.16 "knbd%d-recv", whose threads are kworkers); a thread
    // with the disk's name before 4.10
    ("nbd", Others),
    // block/blk-cgroup.c, blkcg_init(), later blkcg_punt_bio_init(): the rescuer of workqueue "blkcg_punt_bio"
    ("blkcg_punt_bio", Others),
    // drivers/mmc/card/queue.c, mmc_init_queue() (2.6.32 to 4.12): "mmcqd/%d%s", before 2.6.39 "mmcqd"
    ("mmcqd", Others),
    // drivers/mmc/card/queue.c, mmc_init_queue() (vendors' 3.18 to 4.14, in no mainline kernel): "mmc-cmdqd/%d%s"
    ("mmc-cmdqd/", Others),
    // drivers/mtd/mtd_blkdevs.c, add_mtd_blktrans_dev() (2.6.34 to 3.8): the name and number of the device; before that
    // register_mtd_blktrans(): "mtdblockd"
    ("mtdblock", Others),
    // drivers/usb/storage/usb.c, usb_stor_acquire_resources()
    ("usb-storage", Others),
    // drivers/scsi/hosts.c, scsi_host_alloc(): "scsi_eh_%d"
    ("scsi_eh_", Others),
    // the same function: the rescuer of workqueue "scsi_tmf_%d"
    ("scsi_tmf_", Others),
    // drivers/vhost/vhost.c, vhost_dev_set_owner(): "vhost-%d"
    ("vhost-", Others),
    // drivers/target/iscsi/iscsi_target_login.c, iscsit_start_kthreads(): "iscsi_trx"
    ("iscsi_trx", Others),
    // drivers/nvme/target/core.c, nvmet_init(): rescuers of workqueues "nvmet-wq" and "nvmet-buffered-io-wq"; tcp.c: "nvmet_tcp_wq"
    ("nvmet-", Others),
    ("nvmet_tcp_wq", Others),
    // fs/nfsd/nfssvc.c, nfsd_create_serv() with net/sunrpc/svc.c, svc_start_kthreads()
    ("nfsd", Others),
    // fs/smb/server/transport_tcp.c, ksmbd_tcp_new_connection() (5.15 and later): "ksmbd:%u", in newer kernels "ksmbd:%pI4"
    ("ksmbd:", Others),
    // fs/erofs/zdata.c, erofs_init_percpu_worker() (6.4 and later): "erofs_worker/%u"
    ("erofs_worker/", Others),
    // drivers/md/dm-vdo/vdo.c, vdo_make() (6.9 and later): MODULE_NAME, number and queue; RHEL's module before: "kvdo%u:"
    ("dm_vdo", Others),
    ("dm-vdo", Others),
    ("kvdo", Others),
    // drivers/md/dm-crypt.c, crypt_ctr(): thread "dmcrypt_write/%s" (before 4.20 "dmcrypt_write"), workqueues "kcryptd/%s",
    // "kcryptd_io/%s"
    ("dmcrypt_write", Others),
    ("kcryptd", Others),
    // drivers/md/dm.c, alloc_dev(): "kdmflush/%s"
    ("kdmflush", Others),
    // drivers/md/dm-thin.c, pool_create(): "dm-" DM_MSG_PREFIX
    ("dm-thin", Others),
    // drivers/md/dm-cache-target.c, cache_create(): "dm-" DM_MSG_PREFIX
    ("dm-cache", Others),
    // drivers/md/dm-clone-target.c, clone_ctr(), and dm-era-target.c, era_ctr(): "dm-" DM_MSG_PREFIX
    ("dm-clone", Others),
    ("dm-era", Others),
    // drivers/md/raid5.c, raid5_init(): the rescuer of workqueue "raid5wq"
    ("raid5wq", Others),
    // drivers/md/dm-raid1.c, mirror_ctr(): "kmirrord"
    ("kmirrord", Others),
    // drivers/md/dm-mpath.c, dm_multipath_init(): "kmpathd", "kmpath_handlerd"
    ("kmpath", Others),
    // drivers/md/dm-verity-target.c, verity_ctr(): "kverityd"
    ("kverityd", Others),
    // drivers/md/dm-integrity.c, dm_integrity_ctr(): "dm-integrity-*"; block/bio-integrity.c, bio_integrity_init(): "kintegrityd"
    ("dm-integrity", Others),
    ("kintegrityd", Others),
    // drivers/md/dm-writecache.c, writecache_ctr(): "writecache_endio", "dm_writecache_flush", workqueue "writecache-writeback"
    ("writecache", Others),
    ("dm_writecache_f", Others),
    // drivers/md/dm-snap-persistent.c, persistent_ctr(): "ksnaphd"
    ("ksnaphd", Device("snapshot metadata")),
    // drivers/md/dm-kcopyd.c, dm_kcopyd_client_create(): "kcopyd"
    ("kcopyd", Device("device-mapper copy")),
    // drivers/md/dm-bufio.c, dm_bufio_init(): "dm_bufio_cache"
    ("dm_bufio", Device("device-mapper metadata")),
    // drivers/md/bcache/writeback.c, bch_cached_dev_writeback_start(): "bcache_writeback"
    ("bcache_writebac", Others),
    // drivers/md/bcache/alloc.c, bch_cache_allocator_start(): "bcache_allocator"
    ("bcache_allocato", Device("bcache allocator")),
    // drivers/md/bcache/btree.c, bch_gc_thread_start(): "bcache_gc"
    ("bcache_gc", Device("bcache GC")),
    // drivers/md/bcache/super.c, bcache_init(): workqueue "bch_journal"
    ("bch_journal", Device("bcache journal")),
    // drivers/md/bcache/btree.c, bch_btree_init(): workqueue "bch_btree_io"
    ("bch_btree_io", Device("bcache metadata")),
    // drivers/block/drbd/drbd_main.c, drbd_thread_start(): "drbd_%c_%s"
    ("drbd_", Others),
    // OpenZFS 2.1, module/zfs/spa.c, spa_taskqs_init(): zio_taskqs names "z_rd_int", "z_wr_iss", …
    ("z_rd_", Others),
    ("z_wr_", Others),
    ("z_fr_", Others),
    ("z_cl_", Others),
    ("z_null_", Others),
    ("z_ioctl_", Others),
    ("z_trim_", Others),
    ("z_flush_", Others),
    // OpenZFS 2.1, module/os/linux/zfs/vdev_file.c, vdev_file_init()
    ("z_vdev_file", Others),
    // OpenZFS 2.1, module/os/linux/zfs/zvol_os.c, zvol_init(): "zvol"
    ("zvol", Others),
    // OpenZFS 2.1, module/zfs/txg.c, txg_sync_start(): "txg_sync", "txg_quiesce"
    ("txg_", FileSystem("ZFS transaction group")),
    // OpenZFS 2.1, module/zfs/dsl_pool.c, dsl_pool_open_impl(): "dp_sync_taskq", "dp_zil_clean_taskq"
    ("dp_sync_taskq", FileSystem("ZFS transaction group")),
    ("dp_zil_clean", FileSystem("ZFS intent log")),
    // OpenZFS 2.1, module/zfs/arc.c, l2arc_start(): "l2arc_feed"
    ("l2arc_feed", FileSystem("ZFS L2ARC")),
    // OpenZFS 2.1, module/zfs/mmp.c, mmp_thread_start(): "mmp"
    ("mmp", FileSystem("ZFS multihost")),
    // OpenZFS 2.1, module/zfs/vdev_trim.c, vdev_initialize.c and vdev_rebuild.c: a thread has the name of its function without
    // "_thread" (module/os/linux/spl/spl-thread.c, __thread_create())
    ("vdev_autotrim", FileSystem("ZFS trim")),
    ("vdev_trim", FileSystem("ZFS trim")),
    ("vdev_initialize", FileSystem("ZFS initialisation")),
    ("vdev_rebuild", FileSystem("ZFS rebuild")),
    // fs/jbd2/journal.c, jbd2_journal_start_thread(): "jbd2/%s"
    ("jbd2/", FileSystem("ext4 journal")),
    // fs/ext4/mmp.c, ext4_multi_mount_protect(): "kmmpd-%.*s"
    ("kmmpd-", FileSystem("ext4 multi-mount protection")),
    // fs/jbd/journal.c, journal_start_thread() (2.6.32 to 4.2): "kjournald"
    ("kjournald", FileSystem("ext3 journal")),
    // fs/ext4/super.c, ext4_run_lazyinit_thread(): "ext4lazyinit"; workqueue "ext4-rsv-conversion"
    ("ext4lazyinit", FileSystem("ext4 lazy initialisation")),
    ("ext4-rsv-conver", Others),
    // fs/btrfs/disk-io.c, open_ctree(): "btrfs-cleaner", "btrfs-transaction"
    ("btrfs-transacti", FileSystem("btrfs transaction")),
    ("btrfs-cleaner", FileSystem("btrfs cleaner")),
    // fs/btrfs/volumes.c, btrfs_resume_balance_async(): "btrfs-balance"; btrfs_create_uuid_tree(): "btrfs-uuid"
    ("btrfs-balance", FileSystem("btrfs balance")),
    ("btrfs-uuid", FileSystem("btrfs UUID tree")),
    // fs/btrfs/scrub.c, scrub_workers_get(): "btrfs-scrub"; disk-io.c, btrfs_init_workqueues(): "btrfs-qgroup-rescan", "btrfs-discard"
    ("btrfs-scrub", FileSystem("btrfs scrub")),
    ("btrfs-qgroup", FileSystem("btrfs quota rescan")),
    ("btrfs-discard", FileSystem("btrfs discard")),
    // fs/xfs/xfs_super.c, xfs_init_mount_workqueues(): "xfs-conv/%s"; fs/xfs/linux-2.6/xfs_buf.c, xfs_buf_init() (2.6.32):
    // "xfsdatad", "xfsconvertd"
    ("xfs-conv", Others),
    ("xfsdatad", Others),
    ("xfsconvertd", Others),
    // fs/xfs/xfs_trans_ail.c, xfs_trans_ail_init(): "xfsaild/%s"
    ("xfsaild", FileSystem("XFS log writeback")),
    // fs/xfs/xfs_super.c and xfs_log.c: "xfs-buf/%s", "xfs-cil/%s", "xfs-log/%s", "xfs-reclaim/%s", …; xfs_mru_cache.c. xfs_repair
    // and its kin are programs.
    ("xfs-", FileSystem("XFS")),
    ("xfs_mru_cache", FileSystem("XFS")),
    // fs/xfs/linux-2.6/xfs_buf.c, xfs_sync.c (2.6.32): "xfsbufd", "xfslogd", "xfssyncd"
    ("xfsbufd", FileSystem("XFS buffers")),
    ("xfslogd", FileSystem("XFS log")),
    ("xfssyncd", FileSystem("XFS")),
    // fs/f2fs/gc.c, f2fs_start_gc_thread(): "f2fs_gc-%u:%u"
    ("f2fs_gc", FileSystem("f2fs GC")),
    // fs/f2fs/segment.c, start_discard_thread(): "f2fs_discard-%u:%u"; f2fs_create_flush_cmd_control(): "f2fs_flush-%u:%u"
    ("f2fs_discard", FileSystem("f2fs discard")),
    ("f2fs_flush", FileSystem("f2fs flush")),
    // fs/f2fs/checkpoint.c, f2fs_start_ckpt_thread(): "f2fs_ckpt-%u:%u"
    ("f2fs_ckpt", FileSystem("f2fs checkpoint")),
    // fs/f2fs/data.c, f2fs_init_post_read_wq(): workqueue "f2fs_post_read_wq"
    ("f2fs_post_read_", Others),
    // fs/reiserfs/super.c, reiserfs_fill_super(): workqueue "reiserfs/%s"
    ("reiserfs/", FileSystem("ReiserFS journal")),
    // fs/bcachefs/journal_reclaim.c, bch2_journal_reclaim_start(): "bch-reclaim/%s"; movinggc.c, bch2_copygc_start():
    // "bch-copygc/%s"; rebalance.c, bch2_rebalance_start(): "bch-rebalance/%s" (6.7 to 6.17); after it left the kernel,
    // bch2_reconcile_start(): "bch-reconcile/%s"
    ("bch-reclaim", FileSystem("bcachefs journal")),
    ("bch-copygc", FileSystem("bcachefs GC")),
    ("bch-rebalance", FileSystem("bcachefs rebalance")),
    ("bch-reconcile", FileSystem("bcachefs rebalance")),
    // fs/bcachefs/super.c, bch2_fs_alloc(): workqueues "bcachefs_btree_io", "bcachefs_copygc", …; the user's program is "bcachefs"
    ("bcachefs_", FileSystem("bcachefs")),
    // fs/nilfs2/segment.c, nilfs_segctor_start_thread(): "segctord"
    ("segctord", FileSystem("NILFS2 segments")),
    // fs/jfs/super.c, init_jfs_fs(): "jfsIO", "jfsCommit", "jfsSync"
    ("jfsIO", FileSystem("JFS log")),
    ("jfsCommit", FileSystem("JFS journal")),
    ("jfsSync", FileSystem("JFS journal")),
    // fs/gfs2/ops_fstype.c, init_threads(): "gfs2_logd", "gfs2_quotad"
    ("gfs2_logd", FileSystem("GFS2 log")),
    ("gfs2_quotad", FileSystem("GFS2 quota")),
    // fs/ocfs2/journal.c, ocfs2_journal_load(): "ocfs2cmt-%s"
    ("ocfs2cmt", FileSystem("OCFS2 journal")),
    // fs/ocfs2/cluster/heartbeat.c, o2hb_region_dev_store(): "o2hb-%s"
    ("o2hb-", FileSystem("OCFS2 heartbeat")),
    // fs/jffs2/background.c, jffs2_start_garbage_collect_thread(): "jffs2_gcd_mtd%d"
    ("jffs2_gcd_mtd", FileSystem("jffs2 GC")),
    // fs/ubifs/super.c, mount_ubifs(): UBIFS_BGT_NAME_PATTERN "ubifs_bgt%d_%d"
    ("ubifs_bgt", FileSystem("UBIFS background")),
    // yaffs_vfs.c, yaffs_bg_start() (Aleph One's): "yaffs-bg-%d"; our kernel/yaffs2: "yaffs2_gc_mtd%d"
    ("yaffs-bg", FileSystem("YAFFS2 GC")),
    ("yaffs2_gc_mtd", FileSystem("YAFFS2 GC")),
    // drivers/mtd/ubi/build.c, ubi_attach_mtd_dev(): UBI_BGT_NAME_PATTERN "ubi_bgt%dd"
    ("ubi_bgt", Device("UBI wear levelling")),
    // mm/vmscan.c, kswapd_run(): "kswapd%d"
    ("kswapd", Swap("memory reclaim")),
    // mm/zswap.c, zswap_setup() (6.8 and later; before that zswap_pool_create()): the rescuer of workqueue "zswap-shrink"
    ("zswap-shrink", Swap("memory reclaim")),
    // mm/damon/core.c, __damon_start() (5.15 and later): "kdamond.%d"
    ("kdamond.", Swap("memory reclaim")),
    // mm/khugepaged.c, start_stop_khugepaged(): it reads what others' huge pages need
    ("khugepaged", Others),
];

/// Workers of btrfs behind `btrfs-` (fs/btrfs/disk-io.c, btrfs_init_workqueues() of 5.10 and 6.1; threads of their own before 3.15,
/// async-thread.c). Programs are called btrfs-convert, btrfs-image.
const BTRFS_WORKERS: &[&str] = &[
    "worker", "delalloc", "flush_delal", "cache", "submit", "fixup", "endio", "rmw", "freespace", "delayed",
    "readahead", "compressed", "genwork", "dio", "extent-refs", "raid56",
];

/// Ends of an md array's threads, behind its name and `_` (drivers/md/md.c, md_register_thread(): "%s_%s"): personalities
/// (raid1.c, raid5.c, …), raid5-cache.c's "reclaim", md.c's "resync", md-cluster.c's "cluster_recv" and "recover".
const MD_THREADS: &[(&str, Work)] = &[
    ("raid0", Others),
    ("raid1", Others),
    ("raid10", Others),
    ("raid4", Others),
    ("raid5", Others),
    ("raid6", Others),
    ("multipath", Others),
    ("recv", Others),
    ("rec", Others),
    ("recover", Device("RAID resync")),
    ("resync", Device("RAID resync")),
    ("reshape", Device("RAID reshape")),
    ("reclaim", Device("RAID journal")),
];

/// What the kernel leaves of a name.
const NAME_BYTES: usize = 15;

/// A name that has nothing but a number behind `head`.
fn numbered(name: &str, head: &str) -> bool {
    name.strip_prefix(head).is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

fn work(name: &str) -> Option<Work> {
    // drivers/block/loop.c, loop_prepare_queue() (5.10; from 5.14 on kworkers): "loop%d".
    if numbered(name, "loop") {
        return Some(Others);
    }
    if name.starts_with("md") {
        let (_, end) = name.rsplit_once('_')?;
        // A long name of the array leaves a part of the end, or nothing.
        let cut = |whole: &str| name.len() == NAME_BYTES && !end.is_empty() && whole.starts_with(end);
        return MD_THREADS.iter().find(|(whole, _)| *whole == end || cut(whole)).map(|(_, work)| *work);
    }
    if name.strip_prefix("btrfs-").is_some_and(|end| BTRFS_WORKERS.iter().any(|worker| end.starts_with(worker))) {
        return Some(Others);
    }
    let (head, work) = *THREADS.iter().find(|(head, _)| name.starts_with(head))?;
    let behind = &name[head.len()..];
    let fits = match head {
        // Programs begin so too; the kernel's have a number there.
        "mtdblock" if behind == "d" => true,
        "nbd" | "mtdblock" | "kswapd" | "vhost-" | "kdamond." | "kvdo" | "dm_vdo" | "dm-vdo" => {
            behind.starts_with(|c: char| c.is_ascii_digit())
        }
        "nfsd" | "mmp" | "writeback" | "bioset" | "kthrotld" | "khugepaged" => behind.is_empty(),
        "zvol" => behind.is_empty() || behind.starts_with("_tq"),
        _ => true,
    };
    fits.then_some(work)
}

/// Its work is for another task, or for none.
pub(crate) fn is_carrier(name: &str) -> bool {
    matches!(work(name), Some(Others))
}

/// A thread of the kernel's work queues.
pub(crate) fn is_worker(name: &str) -> bool {
    name.starts_with("kworker/")
}

/// What a thread with work of its own is.
pub(crate) fn role(name: &str) -> Option<&'static str> {
    match work(name)? {
        FileSystem(role) | Device(role) | Swap(role) => Some(role),
        Others => None,
    }
}

/// The layer in which a thread with work of its own runs.
pub(crate) fn home(name: &str) -> Option<Layer> {
    match work(name)? {
        FileSystem(_) => Some(Layer::FileSystem),
        Device(_) if name.starts_with("ubi_bgt") => Some(Layer::Ubi),
        Device(_) => Some(Layer::Block),
        Swap(_) | Others => None,
    }
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
        let file_system = Some(Layer::FileSystem);
        for (name, carrier, own, layer) in [
            ("kworker/0:1H", true, None, None),
            ("kworker/u8:0-wri", true, None, None),
            ("kworker/R-xfs-b", true, None, None),
            ("jbd2/nullb0-8", false, Some("ext4 journal"), file_system),
            ("jffs2_gcd_mtd3", false, Some("jffs2 GC"), file_system),
            ("loop0", true, None, None),
            ("loopback", false, None, None),
            ("iscsi_trx", true, None, None),
            ("writeback", true, None, None),
            ("writeback-bench", false, None, None),
            ("bioset", true, None, None),
            ("dio/sda1", true, None, None),
            ("ksmbd:445", true, None, None),
            ("ksmbd.mountd", false, None, None),
            ("erofs_worker/3", true, None, None),
            ("dm_vdo0:bioQ0", true, None, None),
            ("kdamond.0", false, Some("memory reclaim"), None),
            ("z_vdev_file", true, None, None),
            ("o2hb-5F8A1C2D3E", false, Some("OCFS2 heartbeat"), file_system),
            ("flush-8:0", true, None, None),
            ("dmcrypt_write/2", true, None, None),
            ("kcryptd/253:0", true, None, None),
            ("md0_raid1", true, None, None),
            ("md127_raid10", true, None, None),
            ("md_home_raid6", true, None, None),
            // Cut: "md_multimedia_raid5".
            ("md_multimedia_r", true, None, None),
            ("md0_resync", false, Some("RAID resync"), Some(Layer::Block)),
            ("md0_recover", false, Some("RAID resync"), Some(Layer::Block)),
            ("dm_writecache_f", true, None, None),
            ("mtdblockd", true, None, None),
            ("md5sum", false, None, None),
            ("mdadm", false, None, None),
            ("bcache_writebac", true, None, None),
            ("bcache_gc", false, Some("bcache GC"), Some(Layer::Block)),
            ("raid5wq", true, None, None),
            ("nvmet-buffered-", true, None, None),
            ("bcachefs", false, None, None),
            ("bcachefs_btree_", false, Some("bcachefs"), file_system),
            ("reiserfs/sda1", false, Some("ReiserFS journal"), file_system),
            ("bch-reconcile/s", false, Some("bcachefs rebalance"), file_system),
            ("bch-copygc/sda", false, Some("bcachefs GC"), file_system),
            ("mmp", false, Some("ZFS multihost"), file_system),
            ("mmpd", false, None, None),
            ("loop12", true, None, None),
            ("z_wr_iss", true, None, None),
            ("z_rd_int_1", true, None, None),
            ("txg_sync", false, Some("ZFS transaction group"), file_system),
            ("btrfs-transacti", false, Some("btrfs transaction"), file_system),
            ("btrfs-endio-wri", true, None, None),
            ("xfsaild/vda1", false, Some("XFS log writeback"), file_system),
            ("f2fs_flush-8:1", false, Some("f2fs flush"), file_system),
            ("ubi_bgt0d", false, Some("UBI wear levelling"), Some(Layer::Ubi)),
            ("mmcqd/0boot1", true, None, None),
            ("nbd0", true, None, None),
            ("nbd-server", false, None, None),
            ("nfsdcld", false, None, None),
            ("kswapd0", false, Some("memory reclaim"), None),
            ("drbd_w_r0", true, None, None),
            ("xfs_repair", false, None, None),
            ("btrfs-convert", false, None, None),
            ("zvol_id", false, None, None),
            ("cat", false, None, None),
            ("", false, None, None),
        ] {
            assert_eq!((is_carrier(name), role(name)), (carrier, own), "{name}");
            assert_eq!(is_of_storage(name), carrier || own.is_some(), "{name}");
            assert_eq!(home(name), layer, "{name}");
        }
    }

    #[test]
    fn no_row_is_hidden_by_an_earlier_one_or_longer_than_a_name() {
        for (at, (head, _)) in THREADS.iter().enumerate() {
            assert!(head.len() <= NAME_BYTES, "{head}");
            let earlier = THREADS[..at].iter().find(|(earlier, _)| head.starts_with(earlier));
            assert_eq!(earlier.map(|(earlier, _)| *earlier), None, "{head}");
        }
    }
}
