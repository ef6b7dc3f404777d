//! The cells of a study, the groups that share one boot, and the plan in a group's boot image.

use crate::definition::{Filesystem, Matrix, Pattern, RECORDS, Readahead, Workload, text_bytes};
use crate::lab::{MOUNT_POINT, Mount};
use crate::medium::Medium;
use crate::size::Bytes;

/// Cells that share one fresh boot. A resume reuses whole groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    pub workload: Workload,
    pub board: String,
    pub kernel: String,
    pub filesystem: Filesystem,
    pub contents: String,
    pub file_size: Bytes,
    pub cells: Vec<CellSpec>,
}

/// One setting to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellSpec {
    pub request_size: Bytes,
    pub count: u64,
    pub pattern: Pattern,
    pub readahead: Readahead,
    pub interarrival_us: u64,
    pub seed: u64,
}

impl GroupSpec {
    /// A readable name that is also a valid file name: `armv7-6.1-jffs2-printable-5M`.
    pub fn id(&self) -> String {
        format!("{}-{}-{}-{}-{}", self.board, self.kernel, self.filesystem.as_str(), self.contents, self.file_size)
    }
}

/// Every group of a matrix, in the order of its axes.
pub fn groups(matrix: &Matrix) -> Vec<GroupSpec> {
    let mut groups = Vec::new();
    for board in &matrix.board {
        for kernel in &matrix.kernel {
            for &filesystem in &matrix.filesystem {
                for contents in &matrix.contents {
                    for &file_size in &matrix.file_size {
                        groups.push(GroupSpec {
                            workload: matrix.workload,
                            board: board.clone(),
                            kernel: kernel.clone(),
                            filesystem,
                            contents: contents.clone(),
                            file_size,
                            cells: cells(matrix),
                        });
                    }
                }
            }
        }
    }
    groups
}

fn cells(matrix: &Matrix) -> Vec<CellSpec> {
    let mut cells = Vec::new();
    for &seed in &matrix.seed {
        for &request_size in &matrix.request_size {
            for &pattern in &matrix.pattern {
                for &interarrival_us in &matrix.interarrival_us {
                    for &count in &matrix.count {
                        for &readahead in &matrix.readahead {
                            cells.push(CellSpec { request_size, count, pattern, readahead, interarrival_us, seed });
                        }
                    }
                }
            }
        }
    }
    cells
}

/// Paths in the guest.
pub const AGENT: &str = "/flashscope/agent";
pub const SQLITE: &str = "/flashscope/flashscope-sqlite";
const DATABASE: &str = "/mnt/contacts.db";
const DATA_FILE: &str = "/mnt/data";

/// Raw page reads for the tracer's cost: enough to see 1 ns of it; they take 30 ms of guest time.
pub const CALIBRATION_READS: u64 = 200;

/// Names of the plan's calibration steps.
pub const STEP_UNTRACED: &str = "raw-untraced";
pub const STEP_TRACED: &str = "raw-traced";

/// A step that is run like a cell but not measured.
const STEP_WARM_UP: &str = "warm-up";

/// The name of a cell's step in the plan, by its index in the group.
pub fn cell_step(index: usize) -> String {
    format!("cell-{index:05}")
}

/// The index of the cell for a step's name; `None` for other steps.
pub fn cell_of_step(name: &str) -> Option<usize> {
    name.strip_prefix("cell-")?.parse().ok()
}

/// Erase blocks of the file system's partition: twice the data, and space that UBI and UBIFS need (UBI reserves 20 blocks per 1024 of the
/// chip for bad blocks; UBIFS needs a journal, an index, orphans).
pub fn partition_blocks(file_size: Bytes, block_bytes: u32) -> u64 {
    let data = file_size.0.div_ceil(u64::from(block_bytes));
    data * 2 + 192
}

/// Kernel modules of a group besides the chip's own, in any order.
pub fn modules(filesystem: Filesystem) -> &'static [&'static str] {
    match filesystem {
        Filesystem::Jffs2 => &["jffs2"],
        // UBIFS requests its compressors by name from the crypto layer, so modules.dep lacks them.
        Filesystem::Ubifs => &["ubi", "deflate", "lzo", "zstd", "ubifs"],
        Filesystem::SquashfsMtdblock => &["mtdblock", "squashfs"],
        Filesystem::SquashfsUbiblock => &["ubi", "squashfs"],
        Filesystem::Yaffs2 => &["mtdblock", "yaffs2"],
        // The board's disk brings its modules.
        Filesystem::Ext4 | Filesystem::F2fs => &[],
    }
}

/// Size of a disk for twice the data and the file system's own data, MiB; a power of two, like memory cards.
pub fn disk_mib(file_size: Bytes) -> u64 {
    (file_size.0.div_ceil(1 << 20) * 2 + 32).next_power_of_two()
}

/// Size of the requests for the tracer's cost on a disk: random reads of one file-system block.
pub const DISK_BLOCK_BYTES: u64 = 4096;

/// The measured part of the plan, once the chip or the disk exists.
pub(crate) fn plan(spec: &GroupSpec, medium: &Medium, file_seed: u64) -> Vec<String> {
    let mut lines = match medium {
        Medium::Chip { .. } => vec!["device-wait /dev/mtd0 5000".to_owned(), format!("mkdir {MOUNT_POINT}")],
        Medium::Disk { .. } => vec![format!("mkdir {MOUNT_POINT}")],
    };
    let mounting = Mount::new(spec.filesystem, medium.device());
    lines.extend(mounting.prepare.iter().cloned());
    let mount = mounting.mount.clone();
    if spec.filesystem.is_written() {
        lines.push(mount.clone());
        lines.push(match spec.workload {
            Workload::Read => format!("create {DATA_FILE} {} {} {file_seed}", spec.file_size.0, spec.contents),
            Workload::Sqlite => format!("run create-database {}", spec.create_command().unwrap_or_default()),
        });
        lines.push(format!("umount {MOUNT_POINT}"));
    }
    let mode = recording_mode(spec);
    match medium {
        Medium::Chip { page_bytes, .. } => {
            let raw = |step: &str| {
                format!("run {step} {AGENT} bench raw --mtd 0 --count {CALIBRATION_READS} --length {page_bytes}")
            };
            lines.push(raw(STEP_UNTRACED));
            lines.push(format!("record-start --events flash --mode {mode} --ring {RING_KIB}"));
            lines.push(raw(STEP_TRACED));
        }
        Medium::Disk { .. } => {
            let read = |step: &str| {
                format!(
                    "run {step} {AGENT} bench read --file {DATA_FILE} --count {CALIBRATION_READS} \
                     --request {DISK_BLOCK_BYTES} --pattern random --readahead fadvise-random --drop-caches"
                )
            };
            lines.extend([mount.clone(), read(STEP_UNTRACED)]);
            lines.push(format!("record-start --events block --mode {mode} --ring {RING_KIB}"));
            lines.extend([read(STEP_TRACED), format!("umount {MOUNT_POINT}")]);
        }
    }
    lines.push("phase-begin mount".to_owned());
    lines.push(mount);
    lines.push("phase-end mount".to_owned());
    // The measurement starts when the collector is idle.
    if let Some(settle) = mounting.settle() {
        lines.push("phase-begin settle".to_owned());
        lines.push(settle);
        lines.push("phase-end settle".to_owned());
    }
    // A program's first run on a fresh boot also loads its own pages and UBIFS's index, which is not the cost of a setting.
    if let Some(first) = spec.cells.first() {
        lines.push(format!("run {STEP_WARM_UP} {}", measure(spec, first)));
    }
    for (index, cell) in spec.cells.iter().enumerate() {
        lines.push(format!("run {} {}", cell_step(index), measure(spec, cell)));
    }
    lines.push("record-stop".to_owned());
    lines
}

impl GroupSpec {
    /// The command of a cell in the group's plan, with the mount point `/mnt`.
    pub fn command(&self, cell: &CellSpec) -> String {
        measure(self, cell)
    }

    /// The command that creates the cells' input; `None` if the plan's `create` does it (a data file for `bench read`).
    pub fn create_command(&self) -> Option<String> {
        (self.workload == Workload::Sqlite).then(|| format!("{} --create", sqlite(self)))
    }
}

/// The command of a cell.
fn measure(spec: &GroupSpec, cell: &CellSpec) -> String {
    let (count, pattern, readahead) = (cell.count, cell.pattern.as_str(), cell.readahead.argument());
    match spec.workload {
        Workload::Sqlite => {
            format!("{} --selects {count} --pattern {pattern} --readahead {readahead} --drop-caches", sqlite(spec))
        }
        Workload::Read => format!(
            "{AGENT} bench read --file {DATA_FILE} --count {count} --request {} --pattern {pattern} --seed {} \
             --interarrival-us {} --readahead {readahead} --drop-caches",
            cell.request_size.0, cell.seed, cell.interarrival_us,
        ),
    }
}

/// The program with its database: the part of the command that is equal in all cells of a group.
fn sqlite(spec: &GroupSpec) -> String {
    let text = text_bytes(&spec.contents).unwrap_or_default();
    let (page, seed) = spec.cells.first().map_or((1024, 1), |cell| (cell.request_size.0, cell.seed));
    format!("{SQLITE} --file {DATABASE} --records {RECORDS} --text {text} --page-size {page} --seed {seed}")
}

/// Holds half a million events of 20 bytes, in a tenth of the smallest board's RAM. A group with the paper's 5 MB makes about 10,000 to
/// 200,000.
pub(crate) const RING_KIB: u32 = 12 * 1024;
const RING_EVENTS: u64 = 500_000;
/// Most array reads for a page of data, as measured: JFFS2 nodes of printable data take 3.4.
const EVENTS_A_PAGE: u64 = 4;
const PAGE_BYTES: u64 = 2048;

/// A ring that is read once at the end costs least. If the events may not fit, they are drained during the recording.
fn recording_mode(spec: &GroupSpec) -> &'static str {
    let each = spec.file_size.0.div_ceil(PAGE_BYTES) * EVENTS_A_PAGE;
    if each.saturating_mul(spec.cells.len() as u64) <= RING_EVENTS { "ring" } else { "stream" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Study;

    #[test]
    fn the_shipped_studies_expand_to_their_matrix() {
        let text = include_str!("../../../studies/readahead-reads.toml");
        let study = Study::parse("readahead-reads.toml", text).unwrap();
        let groups = groups(&study.definition.matrix);
        assert_eq!(groups.len(), 4);
        assert!(groups.iter().all(|group| group.cells.len() == 9 * 2 * 2));
        assert_eq!(groups[0].id(), "armv7-6.1-jffs2-printable-5M");
        for other in [
            include_str!("../../../studies/readahead-request-size.toml"),
            include_str!("../../../studies/readahead-interarrival.toml"),
        ] {
            Study::parse("study", other).unwrap();
        }
    }

    fn chip() -> Medium {
        Medium::Chip { name: "slc".to_owned(), page_bytes: 2048 }
    }

    #[test]
    fn a_plan_mounts_under_the_recorder_and_measures_every_cell() {
        let study = Study::parse("s", include_str!("../../../studies/readahead-reads.toml")).unwrap();
        let group = &groups(&study.definition.matrix)[0];
        let lines = plan(group, &chip(), 1);
        let at = |needle: &str| lines.iter().position(|line| line.starts_with(needle)).unwrap();
        assert!(at("umount") < at("record-start") && at("record-start") < at("phase-begin mount"));
        assert!(at("settle") < at("run cell-00000"));
        assert_eq!(lines.iter().filter(|line| line.starts_with("run cell-")).count(), 36);
        assert_eq!(lines.last().unwrap(), "record-stop");
    }

    #[test]
    fn selects_are_cells_of_their_own_from_one_database() {
        let study = Study::parse("s", include_str!("../../../studies/sqlite.toml")).unwrap();
        let group = &groups(&study.definition.matrix)[0];
        let lines = plan(group, &chip(), 1);
        let at = |needle: &str| lines.iter().position(|line| line.starts_with(needle)).unwrap();
        assert!(at("run create-database") < at("record-start") && at("settle") < at("run cell-00000"));
        assert!(lines[at("run create-database")].ends_with("--text 64 --page-size 1024 --seed 1 --create"));
        let cell = &lines[at("run cell-00000")];
        assert!(cell.contains("--selects 1 --pattern sequential --readahead 0 --drop-caches"), "{cell}");
    }

    #[test]
    fn a_disk_is_mounted_once_more_under_the_recorder() {
        let study = Study::parse("s", include_str!("../../../studies/readahead-reads.toml")).unwrap();
        let group = GroupSpec { filesystem: Filesystem::Ext4, ..groups(&study.definition.matrix)[0].clone() };
        let disk = Medium::Disk { name: "null".to_owned(), device: "/dev/nullb0".to_owned(), bytes: 64 << 20 };
        let lines = plan(&group, &disk, 1);
        let mounts: Vec<usize> = (0..lines.len()).filter(|&n| lines[n] == "mount /dev/nullb0 /mnt ext4 -").collect();
        let at = |needle: &str| lines.iter().position(|line| line.starts_with(needle)).unwrap();
        assert_eq!(mounts.len(), 3);
        assert!(at("create") < mounts[1] && mounts[1] < at("record-start"));
        assert!(at("phase-begin mount") < mounts[2] && mounts[2] < at("run cell-00000"));
        assert_eq!(lines.iter().filter(|line| line.starts_with("umount")).count(), 2);
        assert_eq!(disk_mib(Bytes(5 << 20)), 64);
        assert_eq!(disk_mib(Bytes(17 << 20)), 128);
    }
}
