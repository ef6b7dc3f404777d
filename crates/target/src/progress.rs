//! What long steps tell while they go on.

/// Called from the thread that does the work.
pub trait Progress {
    /// A step begins: "fetching linux-image-6.1.0-50-armmp".
    fn step(&self, text: &str);
    /// How far the step is; `total` where it is known.
    fn bytes(&self, done: u64, total: Option<u64>);
}

/// Tells nobody.
pub struct NoProgress;

impl Progress for NoProgress {
    fn step(&self, _text: &str) {}
    fn bytes(&self, _done: u64, _total: Option<u64>) {}
}
