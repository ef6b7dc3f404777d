//! Whether another squashfs block size suits a workload better: reading a page reads its whole block.

use flashscope_cachesim::{Access, PAGE_BYTES};

use crate::prediction::Row;
use crate::predictor::Predictor;
use crate::settings::FilesystemOptions;
use crate::workload::Workload;

/// Block sizes that `mksquashfs -b` accepts (4 KiB to 1 MiB; SQUASHFS_FILE_MAX_SIZE, fs/squashfs/squashfs_fs.h).
const SIZES: [u64; 9] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// The default of mksquashfs.
const USUAL: u64 = 128 << 10;
/// The largest block with at least this part of the best gain is chosen: smaller blocks compress worse, which is not predicted, so
/// the last per cents of gain are given up.
const ENOUGH: f64 = 0.75;

/// A smaller block size for random reads, and its row. `worth`: the least gain, in the unit of `value`.
pub fn smaller(predictor: &Predictor<'_>, now: &Row, value: &dyn Fn(&Row) -> f64, worth: f64) -> Option<(u64, Row)> {
    let block = predictor.costs.squashfs_block()?;
    if predictor.is_sequential() {
        return None;
    }
    let options = |bytes: u64| FilesystemOptions { squashfs_block: Some(bytes), ..FilesystemOptions::default() };
    let with = |bytes: u64| (bytes, predictor.light_row(now.readahead_kib, options(bytes)));
    let tried: Vec<(u64, Row)> = SIZES.into_iter().filter(|&bytes| bytes < block).map(with).collect();
    let gain = |row: &Row| value(now) - value(row);
    let most = tried.iter().map(|(_, row)| gain(row)).fold(0.0, f64::max);
    let enough = |row: &Row| gain(row) > worth && gain(row) >= ENOUGH * most;
    let (bytes, _) = tried.into_iter().rfind(|(_, row)| enough(row))?;
    Some((bytes, predictor.row_with(now.readahead_kib, options(bytes))))
}

/// The usual block size, where smaller blocks are read whole and in order: the same pages come in fewer blocks.
pub fn larger(predictor: &Predictor<'_>, workload: &Workload, now: &Row) -> Option<(u64, Row)> {
    let block = predictor.costs.squashfs_block().filter(|&block| block < USUAL)?;
    let options = FilesystemOptions { squashfs_block: Some(USUAL), ..FilesystemOptions::default() };
    let then = predictor.row_with(now.readahead_kib, options);
    let pages = now.tally.pages();
    // A block behind each file's end holds nothing and is not read (squashfs_readahead).
    let behind_ends = now.by_file.len() as u64 * (USUAL / PAGE_BYTES);
    let no_more = then.tally.pages() <= pages + pages / 100 + behind_ends;
    let worth_it = pages >= 4 * (USUAL / block) && reads_whole_files(workload);
    (predictor.is_sequential() && no_more && worth_it).then_some((USUAL, then))
}

/// Whether `read()` reads at least nine tenths of the files' bytes.
fn reads_whole_files(workload: &Workload) -> bool {
    let mut read = std::collections::BTreeMap::new();
    for step in &workload.steps {
        if let Access::Read { length, .. } = step.access {
            let sum: &mut u64 = read.entry(step.file).or_default();
            *sum = sum.saturating_add(length);
        }
    }
    let (mut whole, mut all) = (0_u128, 0_u128);
    for (file, &size) in &workload.sizes {
        whole += u128::from(size.min(read.get(file).copied().unwrap_or(0)));
        all += u128::from(size);
    }
    all > 0 && whole * 10 >= all * 9
}
