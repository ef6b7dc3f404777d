//! Progress of long steps.

/// Called from the thread that does the work.
pub trait Progress {
    /// A step begins: "fetching linux-image-6.1.0-50-armmp".
    fn step(&self, text: &str);
    /// Progress of a step in bytes; `total` if it is known.
    fn bytes(&self, done: u64, total: Option<u64>);
    /// A board begins a step of its plan: its verb, or the name of a `run`.
    fn plan_step(&self, _name: &str) {}
}

/// Reports nothing.
pub struct NoProgress;

impl Progress for NoProgress {
    fn step(&self, _text: &str) {}
    fn bytes(&self, _done: u64, _total: Option<u64>) {}
}
