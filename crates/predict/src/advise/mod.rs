//! Changes that a recorded workload would gain from: few, each with its evidence and its gain.

pub mod block_size;
pub mod silent;

use flashscope_cachesim::{BulkReads, PAGE_BYTES};
use flashscope_trace::{FileId, TaskId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::prediction::Row;
use crate::predictor::Predictor;
use crate::settings::FilesystemOptions;

/// Windows that are compared, KiB.
const WEIGHED_KIB: [u64; 8] = [0, 4, 8, 16, 32, 64, 128, 256];
/// Most recommendations.
pub const MOST: usize = 5;
/// A change has to gain more than this in per cent of the whole, and more than the fit's residual in a sum (a hundredth of it, since
/// errors of single reads cancel): predictions of time were within 1.1 % of the board (docs/explanation/readahead.md).
const WORTH_PERCENT: f64 = 3.0;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Change {
    /// The knob of the file system's device.
    SetReadahead { kib: u64 },
    /// UBIFS's mount option `bulk_read`, and the window that goes with it.
    BulkRead { on: bool, kib: u64 },
    /// A squashfs image with other blocks: `mksquashfs -b`.
    SquashfsBlock { from_bytes: u64, bytes: u64 },
    /// `posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM)` after the file is opened.
    AdviseRandom { file: FileId },
}

impl Change {
    /// Whether it needs another mount option or another image.
    pub fn changes_options(self) -> bool {
        matches!(self, Change::BulkRead { .. } | Change::SquashfsBlock { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Advice {
    #[serde(flatten)]
    pub change: Change,
    /// Pages that read-ahead brings in now and that nothing uses, of the files that the change affects.
    pub unused_pages_now: u64,
    /// Pages that come into the page cache now.
    pub pages_now: u64,
    /// Pages of `pages_now` that came with faults of mapped files. Later uses of a mapped page leave no event.
    /// `None` if the trace does not show faults.
    pub pages_in_faults_now: Option<u64>,
    /// Pages that come into the page cache after the change.
    pub pages_then: u64,
    /// Time in reads now. `None` if the trace has no cost to fit; the gain is then in pages.
    pub time_now_ns: Option<f64>,
    /// Time in reads after the change; `None` as in `time_now_ns`.
    pub time_then_ns: Option<f64>,
    /// Flash reads now; `None` if the trace has no flash reads to fit.
    pub flash_reads_now: Option<f64>,
    /// Flash reads after the change; `None` as in `flash_reads_now`.
    pub flash_reads_then: Option<f64>,
    /// Bulk reads of UBIFS now.
    pub bulk_now: BulkReads,
    /// Bulk reads of UBIFS after the change.
    pub bulk_then: BulkReads,
    /// Gain in time in reads, or in pages if the time is unknown. For larger squashfs blocks, whose pages stay the same: in blocks.
    pub gain_percent: f64,
    /// Range of the gain in time, from least to most. It covers the errors found in validation, any order of overlapping calls, and uses
    /// of mapped pages, which leave no event. `None` if the gain is not in time, or if times of such a change were not validated.
    pub gain_between_percent: Option<[f64; 2]>,
    /// The file with most unused pages.
    pub file: Option<FileId>,
    /// The task with most pages read ahead.
    pub task: Option<TaskId>,
}

fn value(row: &Row) -> f64 {
    row.time_ns.unwrap_or(row.tally.pages() as f64)
}

/// The range of a setting's time, if predicted times are off by up to `off_percent`. `touches_ns`: further time for touches of mapped
/// pages, which left no event.
fn ends(row: &Row, off_percent: f64, touches_ns: f64) -> Option<[f64; 2]> {
    let time_ns = row.time_ns?;
    let off = off_percent / 100.0;
    Some([time_ns * (1.0 - off), time_ns * (1.0 + off) + touches_ns])
}

/// The time of the recorded setting has no error where costs are fitted to the sum of its calls. Behind a block queue they are fitted to
/// single requests and calls, and the replay of the recording itself can be off: then the time lies between both.
fn ends_of_recorded(predictor: &Predictor<'_>, row: &Row) -> Option<[f64; 2]> {
    let time_ns = row.time_ns?;
    let recorded_ns = predictor.costs.recorded_behind_queue_ns().unwrap_or(time_ns);
    Some([time_ns.min(recorded_ns), time_ns.max(recorded_ns)])
}

/// Most time for touches of `pages` that faults no longer bring in around theirs, if each page is touched. Without a window each is a
/// fault of its own. Else a fault reads half of its window behind it (`do_sync_mmap_readahead`, mm/filemap.c, Linux 6.1).
fn touches_ns(pages: u64, row: &Row, [fault_ns, page_ns]: [f64; 2]) -> f64 {
    let window = if row.random { 0 } else { row.readahead_kib * 1024 / PAGE_BYTES };
    pages.div_ceil((window / 2).max(1)) as f64 * fault_ns + pages as f64 * page_ns
}

/// Largest error of predicted times in validation, per cent; `None` where they were not validated.
#[derive(Clone, Copy, Debug, Default)]
pub struct ErrorPercents {
    /// Under another window.
    pub window: Option<f64>,
    /// With another mount option or image.
    pub options: Option<f64>,
}

impl ErrorPercents {
    fn of(self, change: Change) -> Option<f64> {
        // An error bound of 100 % or more is not reported.
        if change.changes_options() { self.options.filter(|&percent| percent < 100.0) } else { self.window }
    }
}

/// Compares settings with `now_kib`. Empty: no change gains enough.
pub fn advise(predictor: &Predictor<'_>, now_kib: u64, errors: ErrorPercents) -> Vec<Advice> {
    let now = predictor.row(now_kib, &|_| false);
    let worst_file = |row: &Row| {
        let wasted = row.by_file.iter().filter(|(_, tally)| tally.pages_unused > 0);
        wasted.max_by_key(|(_, tally)| tally.pages_unused).map(|(file, _)| *file)
    };
    let first_task = |row: &Row| {
        let ahead = row.by_task.iter().filter(|(_, tally)| tally.pages_ahead > 0);
        ahead.max_by_key(|(_, tally)| tally.pages_ahead).map(|(task, _)| *task)
    };
    let all = value(&now);
    if all <= 0.0 {
        return Vec::new();
    }
    let gain = |then: f64, from: f64| (from - then) / all * 100.0;
    let best = best_window(predictor, &now);
    let mut advice = Vec::new();
    let of_faults = predictor.costs.of_faults().unwrap_or_default();
    let pages_in_faults = |row: &Row| row.tally.pages_in_faults.unwrap_or(0);
    let between = |change: Change, from: &Row, then: &Row| {
        let off_percent = errors.of(change).filter(|_| from.time_ns.is_some())?;
        let around = pages_in_faults(from).saturating_sub(pages_in_faults(then));
        let touches_ns = touches_ns(around, then, of_faults);
        let is_recorded = from.readahead_kib == now_kib && !from.random;
        let from = if is_recorded { ends_of_recorded(predictor, from)? } else { ends(from, errors.window?, 0.0)? };
        let then = ends(then, off_percent, touches_ns)?;
        Some([gain(then[1], from[0]), gain(then[0], from[1])])
    };
    let one = |change: Change, from: &Row, then: &Row| Advice {
        change,
        unused_pages_now: from.tally.pages_unused,
        pages_now: from.tally.pages(),
        pages_in_faults_now: from.tally.pages_in_faults,
        pages_then: then.tally.pages(),
        time_now_ns: from.time_ns,
        time_then_ns: then.time_ns,
        flash_reads_now: from.flash_reads,
        flash_reads_then: then.flash_reads,
        bulk_now: from.bulk,
        bulk_then: then.bulk,
        gain_percent: gain(value(then), value(from)),
        gain_between_percent: between(change, from, then),
        file: worst_file(from),
        task: first_task(from),
    };
    let mut base = now.clone();
    let bulk = other_mount(predictor, now_kib).filter(|(_, row)| {
        // The time of one cannot be compared with the pages of the other.
        let least = best.as_ref().map_or(all, |best| value(best).min(all));
        row.time_ns.is_some() == now.time_ns.is_some() && gain(value(row), least) > WORTH_PERCENT
    });
    if let Some((on, row)) = bulk {
        advice.push(one(Change::BulkRead { on, kib: row.readahead_kib }, &now, &row));
        // Advice for single files needs a recording of the other mount.
        return advice;
    }
    if let Some(best) = best.filter(|best| gain(value(best), all) > WORTH_PERCENT) {
        let best = predictor.row(best.readahead_kib, &|_| false);
        advice.push(one(Change::SetReadahead { kib: best.readahead_kib }, &now, &best));
        base = best;
    }
    if let Some(from_bytes) = predictor.costs.squashfs_block() {
        let worth = all * WORTH_PERCENT / 100.0;
        if let Some((bytes, row)) = block_size::smaller(predictor, &base, &value, worth) {
            advice.push(one(Change::SquashfsBlock { from_bytes, bytes }, &base, &row));
        } else if let Some((bytes, row)) = block_size::larger(predictor, predictor.costs.workload, &base) {
            let gain_percent = (1.0 - from_bytes as f64 / bytes as f64) * 100.0;
            let change = Change::SquashfsBlock { from_bytes, bytes };
            advice.push(Advice { gain_percent, gain_between_percent: None, ..one(change, &base, &row) });
        }
    }
    // Files that gain from advice of their own under the chosen window, the worst first.
    let mut files: Vec<(FileId, u64)> = base
        .by_file
        .iter()
        .map(|(&file, tally)| (file, tally.pages_unused))
        .filter(|&(_, unused)| unused > 0)
        .collect();
    files.sort_by_key(|&(file, unused)| (std::cmp::Reverse(unused), file));
    for (file, unused) in files.into_iter().take(2 * MOST) {
        let then = predictor.row(base.readahead_kib, &|of| of == file);
        if advice.len() < MOST
            && then.time_ns.is_some() == base.time_ns.is_some()
            && gain(value(&then), value(&base)) > WORTH_PERCENT
        {
            let of_file = Advice {
                unused_pages_now: unused,
                file: Some(file),
                ..one(Change::AdviseRandom { file }, &base, &then)
            };
            advice.push(of_file);
        }
    }
    advice
}

/// The best window of those compared, other than the current one; without files and tasks.
fn best_window(predictor: &Predictor<'_>, now: &Row) -> Option<Row> {
    let kib = WEIGHED_KIB.into_iter().filter(|&kib| kib != now.readahead_kib);
    let rows = kib.map(|kib| predictor.light_row(kib, FilesystemOptions::default()));
    // Only time with time, or pages with pages, can be compared.
    best(rows.filter(|row| row.time_ns.is_some() == now.time_ns.is_some()), now.readahead_kib)
}

/// Of two equal windows: 0, the kernel's default on MTD, else the one that changes less.
fn best(rows: impl Iterator<Item = Row>, now_kib: u64) -> Option<Row> {
    let near = |row: &Row| (row.readahead_kib > 0, row.readahead_kib.abs_diff(now_kib));
    rows.min_by(|a, b| value(a).total_cmp(&value(b)).then_with(|| near(a).cmp(&near(b))))
}

/// The best window with UBIFS mounted the other way, and whether that is with `bulk_read`. Without a time `bulk_read` is not
/// recommended: it brings in no page that read-ahead would not.
fn other_mount(predictor: &Predictor<'_>, now_kib: u64) -> Option<(bool, Row)> {
    let on = !predictor.costs.on_ubifs()?;
    let options = FilesystemOptions { bulk_read: Some(on), ..FilesystemOptions::default() };
    let best = best(WEIGHED_KIB.into_iter().map(|kib| predictor.light_row(kib, options)), now_kib)?;
    (!on || best.time_ns.is_some()).then(|| (on, predictor.row_with(best.readahead_kib, options)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{DeviceCost, ProcessorCost, QueueCost};
    use crate::settings::Storage;
    use crate::workload::{Call, TaskAccess, Workload};
    use flashscope_cachesim::{Access, Kernel, MapAdvice, NodeRuns, OpenId};
    use flashscope_trace::Device;

    const A: FileId = FileId { device: Some(Device(1)), inode: 1 };
    const B: FileId = FileId { device: Some(Device(1)), inode: 2 };
    const FILE_PAGES: u64 = 1280;

    fn workload(accesses: impl IntoIterator<Item = (FileId, Access)>) -> Workload {
        let mut workload = Workload { cache_seen: true, flash_seen: true, ..Workload::default() };
        workload.sizes = [(A, FILE_PAGES * PAGE_BYTES), (B, FILE_PAGES * PAGE_BYTES)].into();
        for (file, access) in accesses {
            let read = matches!(access, Access::Read { .. });
            let call = read.then_some(workload.calls.len() as u32);
            workload.steps.push(TaskAccess { tid: TaskId(7), file, open: OpenId(7), access, call });
            if read {
                // Half of the calls brought a page in, at 1 ms, a call itself takes 10 us.
                let pages_added = workload.calls.len() as u32 % 2;
                let duration_ns = Some(10_000 + 1_000_000 * u64::from(pages_added));
                workload.calls.push(Call {
                    pages_added,
                    flash_reads: 3 * pages_added,
                    duration_ns,
                    ..Call::new(TaskId(7), file, false, workload.calls.len() as u64 * 10_000_000)
                });
            }
        }
        workload
    }

    fn page(file: FileId, page: u64) -> (FileId, Access) {
        (file, Access::Read { offset: page * PAGE_BYTES, length: PAGE_BYTES })
    }

    fn scattered(count: u64) -> impl Iterator<Item = u64> {
        // Steps of a prime that is far from any small distance: no two neighbours.
        (0..count).map(|n| 3 + n * 463 % (FILE_PAGES - 3))
    }

    fn changes(workload: &Workload, kernel: Kernel, now_kib: u64) -> Vec<Change> {
        let predictor = Predictor::new(workload, Storage::new(kernel));
        advise(&predictor, now_kib, ErrorPercents::default()).into_iter().map(|advice| advice.change).collect()
    }

    fn off(percent: f64) -> ErrorPercents {
        ErrorPercents { window: Some(percent), options: Some(percent) }
    }

    const OFF: Change = Change::SetReadahead { kib: 0 };

    /// Situations with a best answer that is known, on flash that is read by the reader itself.
    #[test]
    fn the_known_best_answer_is_picked_each_time() {
        let head = workload((0..8).map(|n| page(A, n)));
        let whole = workload((0..FILE_PAGES).map(|n| page(A, n)));
        let random = workload(scattered(100).map(|n| page(A, n)));
        // 1: the first pages of a file: all that is read ahead is wasted.
        assert_eq!(changes(&head, Kernel::V6_1, 128), [OFF]);
        // 2: the same where it is off already.
        assert_eq!(changes(&head, Kernel::V6_1, 0), []);
        // 3: a whole file: nothing is wasted.
        assert_eq!(changes(&whole, Kernel::V6_1, 128), []);
        // 4: and turning it on where the reader reads ahead itself gains nothing.
        assert_eq!(changes(&whole, Kernel::V6_1, 0), []);
        // 5: scattered reads bring nothing else in on a kernel of today.
        assert_eq!(changes(&random, Kernel::V6_1, 128), []);
        // 6: random reads that meet neighbours did on the paper's kernel (constants of C's example of rand()).
        let mut state: u64 = 1;
        let dense = workload((0..256).map(|_| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            page(A, 1 + (state >> 33) % (FILE_PAGES - 1))
        }));
        assert_eq!(changes(&dense, Kernel::V2_6_37, 128), [OFF]);
        // 7: all of it was cached.
        let mut cached = workload((0..8).map(|n| page(A, n)));
        cached.cached_before = vec![(A, 0..64)];
        assert_eq!(changes(&cached, Kernel::V6_1, 128), []);
        // 8: the heads of two files.
        let two = workload((0..8).flat_map(|n| [page(A, n), page(B, n)]));
        assert_eq!(changes(&two, Kernel::V6_1, 128), [OFF]);
        // 9: a window that is small as it is and used up.
        let short = workload((0..64).map(|n| page(A, n)));
        assert_eq!(changes(&short, Kernel::V6_1, 4), []);
        // 10: not read.
        assert_eq!(changes(&workload([]), Kernel::V6_1, 128), []);
    }

    /// Reads on UBIFS whose nodes of 2 pages of flash lie in one LEB of 30 nodes after the other: 100 us a read of flash, three for
    /// a page that is read alone.
    fn on_ubifs(pages: impl Iterator<Item = u64>) -> Workload {
        let mut workload = workload(pages.map(|n| page(A, n)));
        for call in &mut workload.calls {
            (call.pages_added, call.flash_reads, call.duration_ns) = (1, 3, Some(300_000));
        }
        workload.nodes.runs.insert(A, NodeRuns::new(vec![(0, 30)], 30));
        workload.nodes.flash_pages = Some(2.0);
        workload
    }

    #[test]
    fn bulk_read_is_advised_where_it_saves_reads_of_flash() {
        let whole = on_ubifs(0..FILE_PAGES);
        let predictor = Predictor::new(&whole, Storage::new(Kernel::V6_1));
        let advice = advise(&predictor, 0, off(5.0));
        assert_eq!(advice.len(), 1);
        assert_eq!(advice[0].change, Change::BulkRead { on: true, kib: 0 });
        // Two pages of flash for a page instead of three, and one for the begin of each bulk read.
        assert!((25.0..33.0).contains(&advice[0].gain_percent), "{advice:?}");
        assert_eq!((advice[0].bulk_now.reads, advice[0].bulk_then.pages), (0, FILE_PAGES - 2));
        let [least, most] = advice[0].gain_between_percent.expect("from and to");
        assert!(least < advice[0].gain_percent && advice[0].gain_percent < most && most - least < 10.0, "{advice:?}");
        let unsure = advise(&predictor, 0, ErrorPercents { options: Some(805.0), ..off(5.0) });
        assert_eq!(unsure[0].gain_between_percent, None);
        // Scattered pages are never three in a row.
        assert_eq!(changes(&on_ubifs(scattered(100)), Kernel::V6_1, 0), []);
        // Where nodes lie unknown it has no time.
        let mut unknown = on_ubifs(0..FILE_PAGES);
        unknown.nodes.flash_pages = None;
        assert_eq!(changes(&unknown, Kernel::V6_1, 0), []);
    }

    #[test]
    fn bulk_read_is_advised_against_where_it_reads_what_nobody_wants() {
        // Three pages at each of many places.
        let threes = on_ubifs((0..FILE_PAGES / 40).flat_map(|n| [n * 40 + 5, n * 40 + 6, n * 40 + 7]));
        let mounted = || Storage { bulk_read: [Device(1)].into(), ..Storage::new(Kernel::V6_1) };
        let advice = advise(&Predictor::new(&threes, mounted()), 0, ErrorPercents::default());
        assert_eq!(advice[0].change, Change::BulkRead { on: false, kib: 0 });
        assert!(advice[0].unused_pages_now > 300 && advice[0].gain_percent > 50.0, "{advice:?}");
        // With a window each page of it is a bulk read of its own: the window goes, or the mount.
        let whole = on_ubifs(0..FILE_PAGES);
        let advice = advise(&Predictor::new(&whole, mounted()), 128, ErrorPercents::default());
        assert_eq!(advice[0].change, OFF, "{advice:?}");
        assert!(advice[0].bulk_now.nodes > 3 * advice[0].bulk_now.pages, "{advice:?}");
    }

    fn on_squashfs(workload: &Workload, block: u64, now_kib: u64) -> Vec<Advice> {
        let storage = Storage { squashfs: [(Device(1), block)].into(), io_pages: 31, ..Storage::new(Kernel::V6_1) };
        advise(&Predictor::new(workload, storage), now_kib, ErrorPercents::default())
    }

    #[test]
    fn smaller_blocks_are_advised_for_reads_here_and_there() {
        let few = || workload(scattered(40).map(|n| page(A, n)));
        let advice = on_squashfs(&few(), 256 << 10, 0);
        let Change::SquashfsBlock { from_bytes, bytes } = advice[0].change else { panic!("{advice:?}") };
        assert_eq!(from_bytes, 256 << 10);
        assert!((4 << 10..=64 << 10).contains(&bytes), "{advice:?}");
        assert!(advice[0].pages_then * 3 < advice[0].pages_now && advice[0].gain_percent > 60.0, "{advice:?}");
        assert!(advice[0].unused_pages_now > advice[0].pages_now / 2, "{advice:?}");
        // Blocks of a page bring in nothing else.
        assert!(on_squashfs(&few(), 4 << 10, 0).is_empty());
    }

    #[test]
    fn larger_blocks_are_advised_for_whole_files_in_small_ones() {
        let mut whole = workload((0..FILE_PAGES).map(|n| page(A, n)));
        whole.sizes.remove(&B);
        let advice = on_squashfs(&whole, 16 << 10, 128);
        assert_eq!(advice.len(), 1, "{advice:?}");
        assert_eq!(advice[0].change, Change::SquashfsBlock { from_bytes: 16 << 10, bytes: 128 << 10 });
        assert!((advice[0].gain_percent - 87.5).abs() < 1e-9, "an eighth of the blocks: {advice:?}");
        assert!(on_squashfs(&whole, 128 << 10, 128).is_empty(), "the usual size");
        // The first half of it alone.
        let mut half = workload((0..FILE_PAGES / 2).map(|n| page(A, n)));
        half.sizes.remove(&B);
        assert!(on_squashfs(&half, 16 << 10, 0).is_empty());
    }

    /// The first eight pages of a file, of which 128 KiB brings in 32, a page at 1 ms and a call at 10 us.
    #[test]
    fn a_gain_lies_between_what_predictions_were_off_by() {
        let head = workload((0..8).map(|n| page(A, n)));
        let predictor = Predictor::new(&head, Storage::new(Kernel::V6_1));
        let advice = |off| advise(&predictor, 128, off)[0].clone();
        assert_eq!(advice(ErrorPercents::default()).gain_between_percent, None);
        let Advice { gain_percent, gain_between_percent, time_then_ns, time_now_ns, .. } = advice(off(10.0));
        let [least, most] = gain_between_percent.unwrap();
        let off = time_then_ns.unwrap() / time_now_ns.unwrap() * 10.0;
        assert!(
            (gain_percent - least - off).abs() < 1e-9 && (most - gain_percent - off).abs() < 1e-9,
            "{least} {most}"
        );
        assert!((1.0..4.0).contains(&off), "{off}");
    }

    /// Faults here and there; `ended`: the pages and flash reads of each, and its time.
    fn faulted(count: u64, ended: impl Fn(u32) -> (u32, u32, Option<u64>)) -> Workload {
        let mut mapped = workload([]);
        for (call, page) in (0..).zip(scattered(count)) {
            let access = Access::Fault { page, advice: MapAdvice::Normal };
            mapped.steps.push(TaskAccess { tid: TaskId(7), file: A, open: OpenId(7), access, call: Some(call) });
            let (pages_added, flash_reads, duration_ns) = ended(call);
            let call = Call::new(TaskId(7), A, true, u64::from(call) * 100_000_000);
            mapped.calls.push(Call { pages_added, flash_reads, duration_ns, ..call });
        }
        mapped
    }

    /// Faults that bring in what is around them: what of it was touched is not known.
    #[test]
    fn what_was_touched_without_an_event_is_no_sure_gain() {
        let mapped = faulted(20, |_| (32, 96, Some(32_000_000)));
        let predictor = Predictor::new(&mapped, Storage::new(Kernel::V6_1));
        let advice = &advise(&predictor, 128, off(10.0))[0];
        assert_eq!(advice.change, OFF);
        let [least, most] = advice.gain_between_percent.unwrap();
        assert!(advice.gain_percent > 90.0 && most > advice.gain_percent && least < 1.0, "{advice:?}");
    }

    /// Each of those pages may have been touched, and without read-around each touch is a fault of its own: 400 us, and 100 us a page.
    #[test]
    fn a_page_that_is_not_read_around_may_cost_a_fault() {
        let mapped = faulted(40, |call| {
            let pages = if call % 2 == 0 { 32 } else { 1 };
            (pages, pages, Some(400_000 + 100_000 * u64::from(pages)))
        });
        let predictor = Predictor::new(&mapped, Storage::new(Kernel::V6_1));
        let off = &advise(&predictor, 128, off(0.0))[0];
        assert_eq!(off.change, OFF);
        // What is not read around any more, each page of it a fault.
        let more = (off.pages_in_faults_now.unwrap() - 40) as f64 * 500_000.0;
        let (now, then) = (off.time_now_ns.unwrap(), off.time_then_ns.unwrap());
        let least = (now - then - more) / now * 100.0;
        assert!(least < -50.0 && (off.gain_between_percent.unwrap()[0] - least).abs() < 0.5, "{least} {off:?}");
    }

    /// Forty faults behind a block queue, whose requests take 200 us, and 5 us a KiB.
    fn behind_a_queue(duration_ns: Option<u64>) -> Workload {
        let mut mapped = faulted(40, |_| (0, 0, duration_ns));
        let device = DeviceCost {
            request_ns: 200_000.0,
            kib_ns: 5_000.0,
            depth: 1,
            requests: 40,
            largest_bytes: 128 << 10,
            ..DeviceCost::default()
        };
        mapped.queued.cost =
            Some(QueueCost { device, processor: ProcessorCost { calls: 1_000, ..ProcessorCost::default() } });
        mapped
    }

    /// The replay of the recording itself takes longer, or less, than the recording did: the gain is smaller, or larger, by that.
    #[test]
    fn a_gain_behind_a_queue_covers_what_the_replay_is_off_by() {
        let range = |duration_ns| {
            let mapped = behind_a_queue(duration_ns);
            let advice = &advise(&Predictor::new(&mapped, Storage::new(Kernel::V6_1)), 128, off(5.0))[0];
            (advice.gain_between_percent.unwrap(), advice.time_now_ns.unwrap())
        };
        let ([least, most], now_ns) = range(None);
        let each_ns = (now_ns / 40.0) as u64;
        let ([shorter, same], _) = range(Some(each_ns * 9 / 10));
        assert!((least - shorter - 10.0).abs() < 0.1 && (same - most).abs() < 0.1, "{least} {most} {shorter} {same}");
        let ([same, longer], _) = range(Some(each_ns * 11 / 10));
        assert!((longer - most - 10.0).abs() < 0.1 && (same - least).abs() < 0.1, "{least} {most} {longer} {same}");
    }

    /// Behind a block queue as well, where each touch waits for a request. A window of 16 pages is read 8 behind.
    #[test]
    fn what_was_touched_without_an_event_costs_requests_behind_a_queue() {
        let mapped = behind_a_queue(None);
        let predictor = Predictor::new(&mapped, Storage::new(Kernel::V6_1));
        let off = &advise(&predictor, 128, off(0.0))[0];
        let (now, then) = (off.time_now_ns.unwrap(), off.time_then_ns.unwrap());
        let more = (off.pages_in_faults_now.unwrap() - 40) as f64 * 220_000.0;
        let least = (now - then - more) / now * 100.0;
        assert!(off.change == OFF && off.gain_percent > 30.0 && least < -100.0, "{least} {off:?}");
        assert!((off.gain_between_percent.unwrap()[0] - least).abs() < 0.5, "{least} {off:?}");
        let window = predictor.row(64, &|_| false);
        let of_faults = predictor.costs.of_faults().unwrap();
        assert_eq!(touches_ns(80, &window, of_faults), 10.0 * 200_000.0 + 80.0 * 20_000.0);
        assert_eq!(touches_ns(81, &window, of_faults), 11.0 * 200_000.0 + 81.0 * 20_000.0);
    }

    /// Without a cost, pages count: a mapping that is touched here and there reads around each fault.
    #[test]
    fn faults_that_read_around_are_weighed_in_pages() {
        let mut mapped = faulted(60, |_| (0, 0, None));
        mapped.calls.clear();
        mapped.steps.iter_mut().for_each(|step| step.call = None);
        assert_eq!(changes(&mapped, Kernel::V6_1, 128), [OFF]);
        let predictor = Predictor::new(&mapped, Storage::new(Kernel::V6_1));
        let advice = &advise(&predictor, 128, off(5.0))[0];
        assert_eq!(
            (advice.pages_then, advice.time_then_ns, advice.file, advice.task),
            (60, None, Some(A), Some(TaskId(7)))
        );
        assert!(advice.gain_percent > 50.0 && advice.unused_pages_now > 100);
    }
}
