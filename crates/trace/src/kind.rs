//! Kinds of files that flashscope reads.

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// The agent's stream (`agent/protocol.h`).
    AgentStream,
    /// trace-cmd's file.
    TraceDat,
    /// Flashmon's temporal log.
    FlashmonLog,
    /// blktrace's records: files of each CPU, or a stream.
    Blktrace,
    /// Text that ftrace, trace-cmd or systrace printed: best effort.
    FtraceText,
    /// Text that blkparse printed.
    BlkparseText,
    /// Text that perf script printed of trace points: best effort.
    PerfScript,
    /// Perfetto's protobuf.
    Perfetto,
}
