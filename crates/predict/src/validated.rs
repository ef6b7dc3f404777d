//! Errors of predictions in comparisons with real kernels: the source of the error bars.

use flashscope_cachesim::Kernel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Written by `bench/readahead/validate` from bench/readahead/cells.csv: reads and faults of one kernel on one
/// file system, predicted from recordings at another window.
const VALIDATED: &str = include_str!("validated.json");

/// Errors of predictions, measured on a board.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct ErrorBar {
    pub kernel: String,
    pub filesystem: String,
    /// Another recording shows the layout of the files.
    #[serde(default)]
    pub layout: bool,
    /// Predicted from a recording with another mount option or another block size. Mapped files are left out: uses of their mapped pages
    /// leave no event.
    #[serde(default)]
    pub other_options: bool,
    /// Behind a block queue. `flash_worst_percent` is then of its requests.
    #[serde(default)]
    pub queue: bool,
    /// Calls of several tasks overlap on one file. Their order under another window is unknown.
    #[serde(default)]
    pub overlap: bool,
    /// Comparisons whose time was predicted.
    pub cells: u64,
    pub flash_worst_percent: f64,
    pub time_median_percent: f64,
    pub time_worst_percent: f64,
    /// Measured with the same kernel and file system as the recording.
    #[serde(default)]
    pub exact: bool,
}

impl ErrorBar {
    /// The bar of a kernel's model on a file system, with the files' layout or without. Where that was not validated: the widest of those
    /// with the same file system, else the widest of all. `None`: there is none.
    pub fn of(kernel: Kernel, filesystem: &str, layout: bool) -> Option<ErrorBar> {
        ErrorBar::where_they(
            |bar| bar.layout == layout && !bar.queue && !bar.other_options && !bar.overlap,
            kernel,
            filesystem,
        )
    }

    /// The bar of workloads in which tasks' calls of one file overlap; else as [`ErrorBar::of`].
    pub fn of_overlap(kernel: Kernel, filesystem: &str, layout: bool) -> Option<ErrorBar> {
        ErrorBar::where_they(|bar| bar.layout == layout && bar.overlap, kernel, filesystem)
    }

    /// The bar of a kernel's model where a file system lies behind a block queue.
    pub fn of_queue(kernel: Kernel, filesystem: &str) -> Option<ErrorBar> {
        ErrorBar::where_they(|bar| bar.queue, kernel, filesystem)
    }

    /// The bar of another mount option than the recorded one (`ubifs`, `ubifs-bulk`), or of another block size (`squashfs`, the widest
    /// of those).
    pub fn of_other_options(kernel: Kernel, filesystem: &str, layout: bool) -> Option<ErrorBar> {
        let is_of = |bar: &ErrorBar| {
            bar.filesystem == filesystem || filesystem == "squashfs" && bar.filesystem.starts_with(filesystem)
        };
        let widest = |of_kernel: bool| {
            let is_so = |bar: &ErrorBar| {
                bar.other_options && bar.layout == layout && is_of(bar) && (bar.kernel == kernel.name()) == of_kernel
            };
            Some(ErrorBar { exact: of_kernel, ..ErrorBar::where_they(is_so, kernel, filesystem)? })
        };
        widest(true).or_else(|| widest(false))
    }

    fn where_they(are: impl Fn(&ErrorBar) -> bool, kernel: Kernel, filesystem: &str) -> Option<ErrorBar> {
        // A file of this crate: the test below finds it broken.
        let mut all: Vec<ErrorBar> = serde_json::from_str(VALIDATED).unwrap_or_default();
        all.retain(are);
        ErrorBar::among(&all, kernel.name(), filesystem)
    }

    fn among(all: &[ErrorBar], kernel: &str, filesystem: &str) -> Option<ErrorBar> {
        let of_filesystem = || all.iter().filter(|bar| bar.filesystem == filesystem);
        if let Some(bar) = of_filesystem().find(|bar| bar.kernel == kernel) {
            return Some(ErrorBar { exact: true, ..bar.clone() });
        }
        let widest = |a: &&ErrorBar, b: &&ErrorBar| a.time_worst_percent.total_cmp(&b.time_worst_percent);
        of_filesystem().max_by(widest).or_else(|| all.iter().max_by(widest)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_validated_is_read() {
        let all: Vec<ErrorBar> = serde_json::from_str(VALIDATED).expect("validated.json");
        assert!(all.iter().all(|bar| bar.time_worst_percent >= bar.time_median_percent && bar.cells > 0), "{all:?}");
        assert!(ErrorBar::of_queue(Kernel::V6_1, "f2fs").is_some_and(|bar| bar.queue && !bar.exact));
        assert!(ErrorBar::of(Kernel::V6_1, "ext4", false).is_some_and(|bar| !bar.queue && !bar.exact));
        for filesystem in ["ubifs", "ubifs-bulk", "squashfs"] {
            let bar = ErrorBar::of_other_options(Kernel::V6_1, filesystem, true);
            assert!(
                bar.is_some_and(|bar| bar.other_options && bar.exact && bar.filesystem.starts_with(filesystem)),
                "{filesystem}"
            );
            let borrowed = ErrorBar::of_other_options(Kernel::V5_10, filesystem, true);
            assert!(borrowed.is_some_and(|bar| bar.other_options && !bar.exact), "{filesystem}");
        }
        assert_eq!(ErrorBar::of_other_options(Kernel::V6_1, "jffs2", true), None);
    }

    #[test]
    fn what_was_not_validated_gets_the_widest_bar() {
        let bar = |kernel: &str, filesystem: &str, worst| ErrorBar {
            kernel: kernel.into(),
            filesystem: filesystem.into(),
            layout: false,
            other_options: false,
            queue: false,
            overlap: false,
            cells: 8,
            flash_worst_percent: 1.0,
            time_median_percent: 0.1,
            time_worst_percent: worst,
            exact: false,
        };
        let all = [bar("6.1", "jffs2", 1.0), bar("6.1", "ubifs", 3.0), bar("6.12", "jffs2", 2.0)];
        let of = |kernel, filesystem| {
            let bar = ErrorBar::among(&all, kernel, filesystem).unwrap();
            (bar.time_worst_percent, bar.exact)
        };
        assert_eq!(of("6.1", "jffs2"), (1.0, true));
        assert_eq!(of("5.10", "jffs2"), (2.0, false));
        assert_eq!(of("5.10", "ext4"), (3.0, false));
        assert_eq!(ErrorBar::among(&[], "6.1", "jffs2"), None);
    }
}
