//! The schema of the agent's benchmark output, written in C (docs/reference/agent.md, "Benchmark results"). It is `result` in the JSON of
//! `bench sqlite`, `bench postmark` and `bench replay`. These types are only for the schema: a test validates the agents' output with it.
#![allow(dead_code)]

use schemars::JsonSchema;
use serde::Deserialize;

/// Times on the clock of the trace.
#[derive(Deserialize, JsonSchema)]
struct Span {
    begin_ns: u64,
    end_ns: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Readahead {
    /// As it was requested: `128`, `keep`, `fadvise-random`.
    requested: String,
    /// Path of the knob.
    knob: Option<String>,
    before_kib: Option<u64>,
    effective_kib: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
struct Latency {
    min_ns: u64,
    mean_ns: f64,
    max_ns: u64,
}

/// `bench sqlite`
#[derive(Deserialize, JsonSchema)]
pub struct Sqlite {
    bench: String,
    /// Version of SQLite.
    sqlite: String,
    file: String,
    size_bytes: u64,
    page_bytes: u64,
    records: u64,
    text_bytes: u64,
    seed: u64,
    create: Option<Span>,
    dropped_caches: bool,
    readahead: Readahead,
    runs: Vec<SqliteRun>,
}

#[derive(Deserialize, JsonSchema)]
struct SqliteRun {
    pattern: String,
    selects: u64,
    open: Span,
    measured: Span,
    total_ns: u64,
    /// CRC-32
    checksum: u32,
    latencies_ns: Vec<u64>,
}

/// `bench postmark`
#[derive(Deserialize, JsonSchema)]
pub struct Postmark {
    bench: String,
    dir: String,
    config: String,
    contents: String,
    seed: u64,
    files: u64,
    transactions: u64,
    subdirectories: u64,
    size_min_bytes: u64,
    size_max_bytes: u64,
    read_request_bytes: u64,
    write_request_bytes: u64,
    read_bias: i64,
    create_bias: i64,
    dropped_caches: bool,
    cold_reads: bool,
    readahead: Readahead,
    measured: Span,
    phases: PostmarkPhases,
    total_ns: u64,
    created: u64,
    created_in_transactions: u64,
    deleted: u64,
    deleted_in_transactions: u64,
    read: u64,
    appended: u64,
    appended_nothing: u64,
    bytes_read: u64,
    bytes_written: u64,
    reads: u64,
    read_ns: u64,
    writes: u64,
    write_ns: u64,
    read_latency: Latency,
    shares: Vec<Share>,
    checksum: u32,
}

#[derive(Deserialize, JsonSchema)]
struct PostmarkPhases {
    create: Span,
    transactions: Span,
    delete: Span,
}

#[derive(Deserialize, JsonSchema)]
struct Share {
    percent: f64,
    files: u64,
    bytes: u64,
    read_ns: u64,
    bytes_per_s: f64,
    mean_of_files_bytes_per_s: f64,
}

/// `bench replay`
#[derive(Deserialize, JsonSchema)]
pub struct Replay {
    bench: String,
    script: String,
    dir: String,
    timing: String,
    contents: Option<String>,
    seed: u64,
    files: u64,
    file_bytes: u64,
    calls: u64,
    reads: u64,
    dropped_caches: bool,
    readahead: Readahead,
    start_ns: u64,
    measured: Span,
    total_ns: u64,
    bytes_read: u64,
    bytes_written: u64,
    tasks: Vec<ReplayedTask>,
}

#[derive(Deserialize, JsonSchema)]
struct ReplayedTask {
    label: u64,
    name: Option<String>,
    reads: u64,
    bytes_read: u64,
    short_reads: u64,
    total_ns: u64,
    open_ns: u64,
    end_ns: u64,
    bytes_written: u64,
    writes: ReplayedCalls,
    syncs: ReplayedCalls,
    others: ReplayedCalls,
    max_late_ns: Option<u64>,
    checksum: u32,
    begins_ns: Vec<u64>,
    latencies_ns: Vec<u64>,
}

#[derive(Deserialize, JsonSchema)]
struct ReplayedCalls {
    calls: u64,
    total_ns: u64,
    longest_ns: u64,
}
