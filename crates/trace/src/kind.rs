//! Kinds of files that flashscope reads.

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// The agent's stream (`agent/protocol.h`).
    AgentStream,
    /// A trace.dat of trace-cmd.
    TraceDat,
    /// Flashmon's temporal log.
    FlashmonLog,
    /// blktrace's records: per-CPU files, or one stream.
    Blktrace,
    /// Text that ftrace, trace-cmd or systrace printed: best effort.
    FtraceText,
    /// Text that blkparse printed.
    BlkparseText,
    /// The text of perf script for trace points: best effort.
    PerfScript,
    /// Perfetto's protobuf.
    Perfetto,
}
