//! What is set for an open file beside the kernel's one knob: windows of its own, and rules that no kernel lets one set.

use serde::Serialize;

/// How an open file is read ahead of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Policy {
    /// Largest window, pages: what `read_ahead_kb` is for a device.
    pub window_pages: u64,
    pub initial: Initial,
    /// Reads that follow pages in the cache are taken for a stream (`try_context_readahead`).
    pub context: bool,
}

/// The first window of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Initial {
    /// `get_init_ra_size`: two or four times the request, by the window's size.
    #[default]
    Kernel,
    /// Twice the request.
    Twice,
    /// The largest window at once.
    Whole,
}

impl Policy {
    /// The kernel's own rules with this window.
    pub fn of_kernel(window_pages: u64) -> Policy {
        Policy { window_pages, initial: Initial::Kernel, context: true }
    }
}
