//! The tracer's cost per raw page read of 2 KB, in guest time: one boot, the same reads without the tracer and with each setting.
//!
//! The interval is the whole time from the beginning of the first read to the end of the last one. So the recorder's work between reads
//! (draining, writing frames) counts too. `tests/cost.rs` compares these figures with the promised bound, and `make bench` prints them;
//! both use this file.

use flashscope_tests::{Plan, TempDir, raw};
use flashscope_trace::dat;

/// Size of a page of the boards' chip (`chips/`), bytes.
pub const PAGE: u64 = 2048;

/// A recorder's options, and their name in results.
#[derive(Clone, Copy)]
pub struct Setting {
    pub name: &'static str,
    pub options: &'static str,
    /// Its events include flash reads.
    pub flash: bool,
}

/// Both modes with default options, for which the bound is promised.
pub const DEFAULTS: &[Setting] = &[
    Setting { name: "ring", options: "--mode ring", flash: true },
    Setting { name: "stream", options: "--mode stream", flash: true },
];

/// One series of reads.
#[derive(Clone, Debug)]
pub struct Reads {
    pub name: String,
    /// `None`: no recorder ran.
    pub options: Option<String>,
    pub count: u64,
    /// Time from the beginning of the first read to the end of the last one.
    pub interval_ns: u64,
    /// Time inside the reads only.
    pub read_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    /// Flash reads of this interval in the trace.
    pub seen: u64,
    /// Losses of the recording, of any kind.
    pub lost: u64,
    pub stream: StreamBytes,
    /// Size of the recording as a trace.dat.
    pub trace_dat_bytes: u64,
}

/// Sizes in a recorder's stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamBytes {
    /// All frames, headers included.
    pub total: u64,
    /// Frames with ring sub-buffers of events, headers included.
    pub data: u64,
    pub sub_buffers: u64,
    /// Committed bytes in them: the events (and the ring's time marks) without sub-buffer headers.
    pub events: u64,
    /// Sub-buffers that were sent before the reads ended.
    pub drained: u64,
}

/// The measurements of one boot.
#[derive(Clone, Debug)]
pub struct Measured {
    pub board: String,
    pub kernel: String,
    pub release: String,
    pub untraced: Reads,
    /// The same reads after every recorder has ended, which shows lasting effects of recorders.
    pub untraced_again: Reads,
    pub settings: Vec<Reads>,
}

impl Measured {
    /// The shorter of the two untraced runs: other work of the kernel during a run would reduce the tracer's cost.
    pub fn baseline(&self) -> &Reads {
        std::cmp::min_by_key(&self.untraced, &self.untraced_again, |reads| reads.interval_ns)
    }

    /// Time of an untraced page read, inside the read only.
    pub fn page_read_ns(&self) -> f64 {
        self.baseline().read_ns as f64 / self.baseline().count as f64
    }

    /// Difference of the two untraced runs, percent of a page read.
    pub fn baseline_spread_percent(&self) -> f64 {
        (self.cost_percent(&self.untraced) - self.cost_percent(&self.untraced_again)).abs()
    }

    /// Additional time of one page read compared with untraced, for any reason.
    pub fn cost_ns(&self, reads: &Reads) -> f64 {
        (reads.interval_ns as f64 - self.baseline().interval_ns as f64) / reads.count as f64
    }

    /// The same in percent of an untraced page read (not of the interval, which includes the benchmark's own work).
    pub fn cost_percent(&self, reads: &Reads) -> f64 {
        100.0 * self.cost_ns(reads) / self.page_read_ns()
    }
}

/// Boots once and reads `count` pages: untraced, with each setting, and untraced again.
pub fn measure(board: &str, kernel: &str, count: u64, settings: &[Setting]) -> Measured {
    let mut plan = Plan::new(board, kernel);
    // 7.2 works in the background some seconds after boot; a baseline with that work would hide the tracer's cost. Idle time on a board
    // passes at once. The first run loads programs, so it is not measured.
    plan.lines = vec![raw("warm", 200, PAGE, ""), "sleep 10000".to_owned(), raw("untraced", count, PAGE, "")];
    for setting in settings {
        plan.lines.push(format!("record-start {}", setting.options));
        plan.lines.push(raw(setting.name, count, PAGE, ""));
        plan.lines.push("record-stop".to_owned());
    }
    plan.lines.push(raw("untraced-again", count, PAGE, ""));
    let booted = plan.boot();

    let reads = |name: &str| {
        let json = booted.json(name);
        let number = |value: &serde_json::Value| value.as_u64().expect("a number");
        assert_eq!(number(&json["pages_touched"]), count, "{board} {kernel}: {name}");
        Reads {
            name: name.to_owned(),
            options: None,
            count,
            interval_ns: number(&json["measured"]["end_ns"]) - number(&json["measured"]["begin_ns"]),
            read_ns: number(&json["total_ns"]),
            min_ns: number(&json["latency"]["min_ns"]),
            max_ns: number(&json["latency"]["max_ns"]),
            seen: 0,
            lost: 0,
            stream: StreamBytes::default(),
            trace_dat_bytes: 0,
        }
    };
    let temp = TempDir::new("cost");
    let port = std::fs::read(booted.outcome.port_file()).expect("the port's file");
    let traced = settings.iter().enumerate().map(|(index, setting)| {
        let trace = booted.recording(index);
        let step = booted.step(setting.name);
        let seen = match setting.flash {
            true => booted.counts_of(&trace, step).total.reads,
            false => 0,
        };
        Reads {
            options: Some(setting.options.to_owned()),
            seen,
            lost: trace.losses().iter().map(|(_, count)| count).sum(),
            trace_dat_bytes: dat::write(&trace, &temp.path().join("trace.dat")).expect("a trace.dat").bytes,
            stream: stream_bytes(&port, booted.session.recordings[index].source, step.source),
            ..reads(setting.name)
        }
    });
    Measured {
        board: board.to_owned(),
        kernel: kernel.to_owned(),
        release: booted.recording(0).facts().kernel.release.clone().unwrap_or_default(),
        untraced: reads("untraced"),
        untraced_again: reads("untraced-again"),
        settings: traced.collect(),
    }
}

/// Adds up the frames of the source `recorder` in a port's file. The output of the step `reader` comes right after the step's end, so it
/// separates the data drained before from the rest.
fn stream_bytes(port: &[u8], recorder: u16, reader: u16) -> StreamBytes {
    // agent/protocol.h: sizeof(struct fs_frame), FS_DATA_FOLDED, FS_OUTPUT, sizeof(struct fs_data).
    const HEADER: usize = 20;
    const DATA: u16 = 16;
    const OUTPUT: u16 = 10;
    const DATA_HEAD: usize = 4;
    // kernel/trace/ring_buffer.c, struct buffer_data_page: a 64-bit time, then `commit`, whose low 20 bits are the used bytes after the
    // header (the boards are little-endian).
    const COMMIT: usize = 8;
    const COMMIT_MASK: u32 = 0xf_ffff;

    let u16_at = |at: usize| u16::from_le_bytes([port[at], port[at + 1]]);
    let u32_at = |at: usize| u32::from_le_bytes([port[at], port[at + 1], port[at + 2], port[at + 3]]);
    let mut bytes = StreamBytes::default();
    let mut reading = true;
    let mut at = 0;
    while at + HEADER <= port.len() {
        let (kind, source, length) = (u16_at(at + 4), u16_at(at + 6), u32_at(at + 12) as usize);
        let payload = at + HEADER;
        let frame = (HEADER + length) as u64;
        reading &= !(source == reader && kind == OUTPUT);
        if source == recorder {
            bytes.total += frame;
            // Instance 0 has the events (FS_INSTANCE_MAIN); another one has task names.
            if kind == DATA && u16_at(payload + 2) == 0 {
                bytes.data += frame;
                bytes.sub_buffers += 1;
                bytes.drained += u64::from(reading);
                bytes.events += u64::from(u32_at(payload + DATA_HEAD + COMMIT) & COMMIT_MASK);
            }
        }
        at = payload + length;
    }
    bytes
}
