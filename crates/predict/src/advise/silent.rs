//! Requests that the kernel silently did not carry out, or applied to other devices too, each with its evidence from the trace.

use std::collections::BTreeMap;

use flashscope_cachesim::{Access, Kernel, PAGE_BYTES};
use flashscope_trace::{Facts, FileId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::prediction::Recorded;
use crate::prediction::Row;
use crate::workload::Workload;

/// A request that the kernel did not carry out, or not as it was meant, without an error.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "case")]
pub enum Silent {
    /// `POSIX_FADV_WILLNEED`, `readahead()` or `MADV_WILLNEED` with read-ahead at 0 read nothing and succeeded.
    WillNeedReadNothing { calls: u64, pages_asked: u64, file: FileId },
    /// These calls requested more than a window, and the kernel read one window.
    WillNeedCut { calls: u64, longest_pages: u64, window_pages: u64, file: FileId },
    /// Files that were open before the knob was changed keep their window.
    OldWindow { knob: String, knob_kib: u64, pages_as_kib: u64, pages: u64 },
    /// One knob applies to all that is mounted from MTD: these mounts and devices.
    SharedKnob { knob: String, mounts: Vec<String>, devices: u64 },
    /// The reader itself reads the pages ahead, and waits for them.
    InTheReader { pages_ahead: u64, pages: u64, ahead_ns: Option<f64>, time_ns: Option<f64> },
    /// UBIFS with `bulk_read` and a read-ahead window: each page of the window reads up to 32 nodes and keeps one.
    BulkReadInWindows { nodes: u64, pages: u64 },
}

/// Inputs besides the workload.
pub struct Seen<'a> {
    pub facts: &'a Facts,
    pub workload: &'a Workload,
    pub kernel: Kernel,
    /// Largest preferred request of the device, pages (`bdi->io_pages`).
    pub io_pages: u64,
    /// The recorded setting, as predicted by the model.
    pub now: &'a Row,
    pub recorded: Recorded,
    /// Cost of a page; `None` where none was fitted.
    pub page_ns: Option<f64>,
    /// Directories of /sys/class/bdi with the knobs of the files' devices.
    pub knobs: &'a [String],
    /// Reads read their pages themselves: JFFS2, UBIFS, YAFFS2.
    pub synchronous: bool,
}

/// `bdi->ra_pages` of JFFS2: one `mtd_bdi` serves all MTD devices (drivers/mtd/mtdcore.c `mtd_bdi_init`, taken by `mtd_get_sb` in
/// mtdsuper.c; Linux 6.1.192). UBIFS has one for each mount (fs/ubifs/super.c).
const SHARED_KNOB: &str = "mtd-0";

/// The first of these knobs (directories of /sys/class/bdi) that the facts have, and its value when the recording began, KiB.
pub fn recorded_knob<'a>(facts: &'a Facts, knobs: &[String]) -> Option<(&'a str, u64)> {
    knobs.iter().find_map(|knob| {
        let bdi = facts.bdi.iter().find(|bdi| bdi.name.as_ref() == Some(knob))?;
        Some((bdi.name.as_deref()?, bdi.read_ahead_kb?))
    })
}

pub fn silent(seen: &Seen<'_>) -> Vec<Silent> {
    let mut found = Vec::new();
    found.extend(will_need(seen));
    found.extend(old_window(seen));
    found.extend(shared_knob(seen));
    let tally = seen.now.tally;
    if seen.synchronous && tally.pages_ahead > 0 {
        found.push(Silent::InTheReader {
            pages_ahead: tally.pages_ahead,
            pages: tally.pages(),
            ahead_ns: seen.page_ns.map(|ns| ns * tally.pages_ahead as f64),
            time_ns: seen.now.time_ns,
        });
    }
    let bulk = seen.now.bulk;
    if bulk.nodes > 2 * bulk.pages {
        found.push(Silent::BulkReadInWindows { nodes: bulk.nodes, pages: bulk.pages });
    }
    found
}

/// `force_page_cache_ra` (mm/readahead.c) reads no more than the larger of the window and `io_pages`: nothing where both are 0, as on
/// MTD. Linux 2.6.37, the paper's kernel, had no such bound.
fn will_need(seen: &Seen<'_>) -> Option<Silent> {
    if seen.kernel == Kernel::V2_6_37 {
        return None;
    }
    let window = seen.io_pages.max(seen.now.readahead_kib * 1024 / PAGE_BYTES);
    // Calls, pages and longest call by file; only calls that were longer than the window.
    let mut short: BTreeMap<FileId, (u64, u64, u64)> = BTreeMap::new();
    for step in &seen.workload.steps {
        let Access::WillNeed { offset, length } = step.access else { continue };
        let size = seen.workload.sizes.get(&step.file).copied().unwrap_or(0);
        let end = if length == 0 { size } else { offset.saturating_add(length).min(size) };
        let pages = end.div_ceil(PAGE_BYTES).saturating_sub(offset / PAGE_BYTES);
        if pages > window {
            let (calls, sum, longest) = short.entry(step.file).or_default();
            *calls += 1;
            *sum = sum.saturating_add(pages);
            *longest = pages.max(*longest);
        }
    }
    let calls = short.values().map(|&(calls, ..)| calls).sum();
    let pages_asked = short.values().fold(0, |sum: u64, &(_, pages, _)| sum.saturating_add(pages));
    let (&file, &(.., longest_pages)) = short.iter().max_by_key(|&(_, &(_, pages, _))| pages)?;
    Some(match window {
        0 => Silent::WillNeedReadNothing { calls, pages_asked, file },
        window_pages => Silent::WillNeedCut { calls, longest_pages, window_pages, file },
    })
}

/// The pages show another window than the knob: `file_ra_state_init` (mm/readahead.c) copies the window when a file is opened.
fn old_window(seen: &Seen<'_>) -> Option<Silent> {
    let (knob, knob_kib) = recorded_knob(seen.facts, seen.knobs)?;
    let Recorded { pages, fits_readahead_kib, .. } = seen.recorded;
    let differs = seen.recorded.shows_another_than(knob_kib);
    differs.then_some(Silent::OldWindow { knob: knob.to_owned(), knob_kib, pages_as_kib: fits_readahead_kib, pages })
}

fn shared_knob(seen: &Seen<'_>) -> Option<Silent> {
    let knob = seen.knobs.iter().find(|&knob| knob == SHARED_KNOB)?;
    let on_it = seen.facts.mounts.iter().filter(|mount| mount.is("jffs2"));
    let mounts: Vec<String> = on_it.filter_map(|mount| mount.target.clone()).take(64).collect();
    let devices = seen.facts.mtd.len() as u64;
    // A device with one mount is not shared.
    (mounts.len() > 1 || devices > 1).then(|| Silent::SharedKnob { knob: knob.clone(), mounts, devices })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictor::Predictor;
    use crate::settings::Storage;
    use crate::workload::TaskAccess;
    use flashscope_cachesim::{NodeRuns, OpenId};
    use flashscope_trace::Device;
    use flashscope_trace::TaskId;
    use serde_json::{Value, json};

    const FILE: FileId = FileId { device: Some(Device(9)), inode: 3 };
    const PAGES: u64 = 200;

    fn workload(accesses: impl IntoIterator<Item = Access>) -> Workload {
        let step = |access| TaskAccess { tid: TaskId(7), file: FILE, open: OpenId(1), access, call: None };
        let steps = accesses.into_iter().map(step).collect();
        Workload { steps, sizes: [(FILE, PAGES * PAGE_BYTES)].into(), cache_seen: true, ..Workload::default() }
    }

    fn read(page: u64) -> Access {
        Access::Read { offset: page * PAGE_BYTES, length: PAGE_BYTES }
    }

    fn of(workload: &Workload, kernel: Kernel, now_kib: u64, facts: &Value, page_ns: Option<f64>) -> Vec<Silent> {
        let predictor = Predictor::new(workload, Storage { bulk_read: [Device(9)].into(), ..Storage::new(kernel) });
        let now = predictor.row(now_kib, &|_| false);
        let recorded = predictor.recorded(&[0, 16, 128]);
        let knobs = ["mtd-0".to_owned()];
        let synchronous = true;
        silent(&Seen {
            facts: &Facts::of(facts),
            workload,
            kernel,
            io_pages: 0,
            now: &now,
            recorded,
            page_ns,
            knobs: &knobs,
            synchronous,
        })
    }

    #[test]
    fn willneed_reads_nothing_without_read_ahead_and_a_window_at_most() {
        let asks = workload([
            Access::WillNeed { offset: 4096, length: 40_960 },
            Access::WillNeed { offset: 0, length: 0 },
            read(1),
        ]);
        let none = Value::Null;
        let silent = of(&asks, Kernel::V6_1, 0, &none, None);
        assert_eq!(silent, [Silent::WillNeedReadNothing { calls: 2, pages_asked: 210, file: FILE }]);
        let cut = &of(&asks, Kernel::V6_1, 128, &none, None)[0];
        assert_eq!(*cut, Silent::WillNeedCut { calls: 1, longest_pages: 200, window_pages: 32, file: FILE });
        // The whole file within the window; and a kernel that knew no bound.
        assert!(
            !of(&asks, Kernel::V6_1, 1024, &none, None).iter().any(|one| matches!(one, Silent::WillNeedCut { .. }))
        );
        let old = of(&asks, Kernel::V2_6_37, 0, &none, None);
        assert!(matches!(old[..], [Silent::InTheReader { pages_ahead: 200, .. }]), "{old:?}");
    }

    #[test]
    fn a_file_that_was_open_keeps_its_window() {
        let mut streams = workload((0..40).map(read));
        let predictor = Predictor::new(&streams, Storage::new(Kernel::V6_1));
        let pages = predictor.row(0, &|_| false).tally.pages();
        streams.pages_added = [(FILE, pages)].into();
        let facts =
            |kib: u64| json!({"bdi": [{"name": "8:0", "read_ahead_kb": 9}, {"name": "mtd-0", "read_ahead_kb": kib}]});
        let silent = of(&streams, Kernel::V6_1, 0, &facts(128), None);
        let knob = "mtd-0".to_owned();
        assert_eq!(silent, [Silent::OldWindow { knob, knob_kib: 128, pages_as_kib: 0, pages }]);
        assert_eq!(of(&streams, Kernel::V6_1, 0, &facts(0), None), []);
    }

    #[test]
    fn one_knob_is_that_of_all_mtd_devices() {
        let quiet = workload([read(100)]);
        let mount = |target: &str, kind: &str| json!({"target": target, "type": kind});
        let facts =
            json!({"mtd": [{}, {}], "mounts": [mount("/", "jffs2"), mount("/u", "ubifs"), mount("/data", "jffs2")]});
        let silent = of(&quiet, Kernel::V6_1, 0, &facts, None);
        let mounts = vec!["/".to_owned(), "/data".to_owned()];
        assert_eq!(silent, [Silent::SharedKnob { knob: "mtd-0".to_owned(), mounts, devices: 2 }]);
        let alone = json!({"mtd": [{}], "mounts": [mount("/", "jffs2")]});
        assert_eq!(of(&quiet, Kernel::V6_1, 0, &alone, None), []);
    }

    #[test]
    fn what_is_read_ahead_is_the_reader_s_own_time() {
        let head = workload((0..4).map(read));
        let silent = of(&head, Kernel::V6_1, 128, &Value::Null, Some(1000.0));
        let [Silent::InTheReader { pages_ahead, pages, ahead_ns, time_ns: None }] = silent[..] else {
            panic!("{silent:?}")
        };
        assert!(pages_ahead > 0 && pages > pages_ahead, "{silent:?}");
        assert_eq!(ahead_ns, Some(1000.0 * pages_ahead as f64));
        assert_eq!(of(&head, Kernel::V6_1, 0, &Value::Null, Some(1000.0)), []);
    }

    #[test]
    fn bulk_reads_in_a_window_read_nodes_again_and_again() {
        let mut stream = workload((0..PAGES).map(read));
        stream.nodes.runs.insert(FILE, NodeRuns::new(vec![], 30));
        let silent = of(&stream, Kernel::V6_1, 128, &Value::Null, None);
        let Some(&Silent::BulkReadInWindows { nodes, pages }) = silent.last() else { panic!("{silent:?}") };
        assert!(nodes > 3 * pages && pages <= PAGES, "{silent:?}");
        let silent = of(&stream, Kernel::V6_1, 0, &Value::Null, None);
        assert!(matches!(silent[..], [Silent::InTheReader { pages_ahead: 191, .. }]), "{silent:?}");
    }

    #[test]
    fn nonsense_is_no_panic() {
        let odd = workload([Access::WillNeed { offset: u64::MAX, length: u64::MAX }, read(0)]);
        for facts in [json!({"bdi": 5, "mtd": {}, "mounts": [3]}), json!({"bdi": [{"name": "mtd-0"}]})] {
            of(&odd, Kernel::V6_1, 0, &facts, None);
        }
    }
}
