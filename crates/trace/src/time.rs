//! Times of a trace.

/// Nanoseconds of the trace clock. flashscope records on `CLOCK_MONOTONIC`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, schemars::JsonSchema, serde::Deserialize,
)]
#[serde(transparent)]
pub struct TimeNs(pub u64);

impl TimeNs {
    /// The last one: the kernel's times are signed (`KTIME_MAX`, include/linux/ktime.h), so that this is 292 years.
    pub const MAX: TimeNs = TimeNs(i64::MAX as u64);

    /// Whether a kernel clock can have this value.
    pub fn is_possible(self) -> bool {
        self <= TimeNs::MAX
    }

    /// The time shifted by `by_ns`, limited to 0..=[`TimeNs::MAX`].
    pub fn shifted(self, by_ns: i64) -> TimeNs {
        TimeNs(self.0.saturating_add_signed(by_ns)).min(TimeNs::MAX)
    }
}
