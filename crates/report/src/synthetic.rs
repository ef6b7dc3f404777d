//! Documents for tests, made from a simple model of what such a study finds: not measurements.

use flashscope_analysis::Analysis;
use flashscope_analysis::block::{BLOCK_REPORT_SCHEMA, BlockAnalysis, BlockReport};
use flashscope_analysis::cache::{AccuracyFindings, Brought, FileBrought, TaskBrought};
use flashscope_analysis::flash::{
    BlockCounts, EraseSpread, FileWear, FlashOp, Health, LatencyNs, LayerBytes, Life, OpCounts, Span, TaskOps,
    TaskWear, Timeline, TimelinePoint, Wear, WriteLayer,
};
use flashscope_analysis::layers::{
    CallLayers, LAYERS_REPORT_SCHEMA, Layer, LayerTime, LayersFound, LayersReport, Operation, SleepSource, Slice,
};
use flashscope_analysis::{
    ChipShape, FLASH_REPORT_SCHEMA, FlashFindings, FlashReport, LossCount, OpDurations, OwnWear, ProbeFacts,
    SystemFacts,
};
use flashscope_study::*;
use flashscope_trace::{BlockAction, BlockDetail, BlockEvent, Device, Event, EventKind, RequestFlags, TaskId, TimeNs};

const PAGE_READ_NS: u64 = 145_200;

/// Read-ahead reads up to 60 pages of the cache in vain; a random reader meets what it has read before.
fn cell(pattern: &str, count: u64, readahead_kib: u64, read_ns: u64, pages_per_read: u64) -> Cell {
    let reads = match (pattern, readahead_kib) {
        ("sequential", 0) => count,
        ("sequential", _) => (count + (count * 5 / 2).min(50 + 5 * pages_per_read)).min(1280),
        (_, 0) => count - count * count / 8192,
        (_, _) => count - count * count / 8192 + pages_per_read * count / 128,
    } * pages_per_read;
    let total_ns = reads * read_ns + count * 9_000;
    Cell {
        count,
        request_bytes: 4096,
        pattern: pattern.into(),
        readahead: readahead_kib.to_string(),
        readahead_kib,
        crc32: 0x1234_abcd,
        interarrival_us: 0,
        seed: 1,
        total_ns,
        latency: LatencyNs {
            n: count,
            min: 9_000,
            mean: total_ns / count,
            p50: total_ns / count,
            p90: total_ns / count * 2,
            p99: total_ns / count * 5,
            p999: total_ns / count * 5,
            max: total_ns / count * 9,
        },
        bytes_read: count * 4096,
        flash_reads: reads,
        flash_reads_open: 499,
        open_ns: 76_000_000,
        energy: None,
    }
}

fn group(filesystem: &str, knob: &str, default_kib: u64, read_ns: u64) -> Group {
    let mut cells = Vec::new();
    for pattern in ["sequential", "random"] {
        for count in [8, 16, 32, 64, 128, 256, 512, 1024] {
            for readahead_kib in [0, 128] {
                let mut cell = cell(pattern, count, readahead_kib, read_ns, 580_000 / read_ns);
                let power = if readahead_kib > 0 { 0.252 } else { 0.247 };
                cell.energy = (filesystem == "jffs2").then(|| flashscope_analysis::energy::Energy {
                    basis: flashscope_analysis::energy::Basis::Model,
                    uj: cell.total_ns as f64 * power / 1e3,
                    cpu_w: power,
                    memory_w: 0.0,
                });
                cells.push(cell);
            }
        }
    }
    Group {
        id: format!("{filesystem}-printable-5M"),
        inputs: Inputs {
            board: "armv7".into(),
            board_sha256: "ab".repeat(32),
            kernel: "6.1".into(),
            kernel_release: "6.1.0-50-armmp".into(),
            kernel_package: "linux-image-6.1.0-50-armmp 6.1.176-1".into(),
            kernel_sha256: "cd".repeat(32),
            qemu: "QEMU emulator version 7.2.22".into(),
            agent: "0.1.0".into(),
            agent_sha256: "ef".repeat(32),
            image_sha256: format!("{:0<64}", filesystem.len()),
        },
        workload: Workload::Read,
        filesystem: filesystem.into(),
        contents: "printable".into(),
        file_size_bytes: 5 << 20,
        default: DefaultReadahead { knob: knob.into(), kib: default_kib },
        chip: ChipFacts {
            name: "micron-mt29f2g08".into(),
            page_bytes: 2048,
            block_bytes: 131_072,
            blocks: 512,
            page_read_ns_measured: PAGE_READ_NS,
        },
        probes: [("read", "nand_read_page_op"), ("program", "nand_prog_page_begin_op"), ("erase", "nand_erase_op")]
            .map(|(operation, symbol)| ProbeUsed {
                operation: operation.into(),
                symbol: symbol.into(),
                how_chosen: if operation == "read" { "proved" } else { "present" }.into(),
                loses: "nothing known on this driver".into(),
            })
            .into(),
        tracer: TracerCost {
            reads: 4096,
            untraced_ns: 4096 * PAGE_READ_NS,
            traced_ns: 4096 * (PAGE_READ_NS + 2_030),
            ns_per_event: 2030.0,
            percent_of_page_read: 1.4,
        },
        phases: [("create", 6.1, 120, 2700, 0), ("mount", 0.4, 2048, 0, 3), ("settle", 1.3, 3490, 0, 12)]
            .map(|(phase, seconds, reads, programs, erases)| PhaseCounts {
                phase: phase.into(),
                duration_ns: (seconds * 1e9) as u64,
                counts: OpCounts { reads, programs, erases },
            })
            .into(),
        by_task: [("flashscope-agent", 25_000, 2700, 0), ("jffs2_gcd_mtd0", 3490, 20, 12), ("swapper/0", 3, 0, 0)]
            .map(|(task, reads, programs, erases)| TaskOps {
                task: task.into(),
                counts: OpCounts { reads, programs, erases },
            })
            .into(),
        timeline: timeline(),
        blocks: blocks(),
        health: Vec::new(),
        losses: losses(),
        cells,
    }
}

fn losses() -> Vec<LossCount> {
    [
        ("ring_overrun", 0, "events that the kernel's ring wrote over before they were read"),
        ("probe_misses", 3, "times that a probe was hit while it could not run"),
        ("frames_missing", 0, "frames of the agent's stream that did not arrive"),
    ]
    .map(|(name, count, meaning)| LossCount { name: name.into(), count, meaning: meaning.into() })
    .into()
}

/// Creation (programs upward), mount scan, settling reads, cells, and erases at the end.
fn timeline() -> Timeline {
    let second = 1_000_000_000u64;
    let mut points = Vec::new();
    let mut add = |ns: u64, page: u64, op, count| points.push(TimelinePoint { time_ns: ns, page, op, count, chip: 0 });
    for i in 0..600u64 {
        add(i * second / 100, i * 5, FlashOp::Program, 5);
        if i % 9 == 0 {
            add(i * second / 100, i * 5 / 2, FlashOp::Read, 2);
        }
    }
    for i in 0..512u64 {
        add(6 * second + i * second / 1200, i * 64, FlashOp::Read, 4);
    }
    for i in 0..400u64 {
        add(7 * second + i * second / 300, i * 7, FlashOp::Read, 7);
    }
    for i in 0..900u64 {
        let page = if i % 60 < 30 { i % 60 * 60 } else { i * 7919 % 2800 };
        add(9 * second + i * second / 200, page, FlashOp::Read, 3);
    }
    for i in 0..24u64 {
        add(8 * second + i * second / 30, 3008 + i * 64, FlashOp::Erase, 1);
    }
    points.sort_by_key(|p| (p.time_ns, p.page, p.op));
    let span = |name: &str, from: u64, to: u64| Span {
        name: name.into(),
        begin_ns: from * second / 10,
        end_ns: to * second / 10,
    };
    Timeline {
        begin_ns: 0,
        end_ns: 14 * second,
        bin_ns: 1 << 24,
        bin_pages: 8,
        points,
        spans: vec![span("create", 0, 60), span("mount", 60, 65), span("settle", 65, 90), span("cells", 90, 136)],
    }
}

fn blocks() -> Vec<BlockCounts> {
    (0..512u32)
        .map(|block| BlockCounts {
            chip: 0,
            block,
            counts: OpCounts {
                reads: 4 + if block < 46 { 700 - u64::from(block) * 12 } else { 0 },
                programs: if block < 46 { 64 } else { 0 },
                erases: u64::from((47..71).contains(&block)) + u64::from(block == 47),
            },
        })
        .collect()
}

pub fn study() -> StudyResult {
    let mtd = "/sys/class/bdi/mtd-0/read_ahead_kb";
    let groups = vec![
        group("jffs2", mtd, 0, 540_000),
        group("ubifs", "/sys/class/bdi/ubifs_0_0/read_ahead_kb", 0, 290_000),
        group("squashfs-mtdblock", "/sys/block/mtdblock0/queue/read_ahead_kb", 128, 190_000),
    ];
    let compare =
        |id: &str, quantity: &str, fs: &str, pattern: &str, count, (min, max): (f64, f64), ours: Option<f64>| {
            Comparison {
                id: id.into(),
                source: "Olivier et al. 2014, section 4.1.2 (figure 3-a)".into(),
                statement: "disabling read-ahead improves sequential reads by up to 70 %".into(),
                quantity: quantity.into(),
                kernel_model: None,
                filesystem: fs.into(),
                pattern: pattern.into(),
                count,
                request_bytes: None,
                published_min: min,
                published_max: max,
                unit: "%".into(),
                ours,
                within: ours.map(|o| o >= min && o <= max),
                note: "Since commit 2cad40180197 a lone random read fetches exactly itself.".into(),
            }
        };
    let (time, reads) = ("time_saved_percent", "reads_saved_percent");
    StudyResult {
        header: Header {
            schema: SCHEMA,
            study: "readahead-reads".into(),
            title: "Read-ahead on raw NAND: number of requests".into(),
            question: "Does read-ahead help or hurt 4 KB reads of a 5 MB file on raw NAND?".into(),
            clock: "guest time: executed instructions at 2 ns each".into(),
            flashscope: "0.1.0".into(),
            study_sha256: "12".repeat(32),
        },
        power: Some(PowerUsed { name: "p".into(), title: "a board".into(), source: "tables 2 and 3".into() }),
        verdicts: groups.iter().map(verdict).collect(),
        groups,
        comparisons: vec![
            compare("abstract-sequential", time, "jffs2", "sequential", [8, 1024], (65.0, 75.0), Some(70.61)),
            compare("abstract-sequential-ubifs", time, "ubifs", "sequential", [8, 1024], (65.0, 75.0), Some(74.4)),
            compare("figure-3a-whole-file", time, "jffs2", "sequential", [1024, 1024], (0.0, 5.0), Some(0.0)),
            compare("figure-3b-reads-halved", reads, "jffs2", "sequential", [8, 63], (50.0, 100.0), Some(0.0)),
            compare("figure-3a-random-small", time, "jffs2", "random", [8, 32], (15.0, 25.0), Some(0.4)),
            compare("figure-3a-random-large", time, "jffs2", "random", [256, 256], (45.0, 55.0), Some(0.0)),
            compare("yaffs2", time, "yaffs2", "sequential", [8, 1024], (65.0, 75.0), None),
        ],
    }
}

fn amplification(tasks: &[TaskOps]) -> Vec<LayerBytes> {
    let programs: u64 = tasks.iter().map(|t| t.counts.programs).sum();
    vec![
        LayerBytes { layer: WriteLayer::Calls, bytes: programs * 1500, times: None },
        LayerBytes { layer: WriteLayer::Flash, bytes: programs * 2048, times: Some(1.365) },
    ]
}

/// Every task writes a file of its own.
fn wear(tasks: &[TaskOps], blocks: &[BlockCounts]) -> Wear {
    let all = |of: &dyn Fn(&OpCounts) -> u64| tasks.iter().map(|t| of(&t.counts)).sum::<u64>();
    let (programs, erases) = (all(&|c| c.programs), all(&|c| c.erases));
    Wear {
        written_bytes: Some(programs * 1500),
        programmed_pages: programs,
        programmed_bytes: Some(programs * 2048),
        erased_blocks: erases,
        erased_bytes: Some(erases * 131_072),
        program_amplification: Some(1.365),
        erase_amplification: Some(1.1),
        by_task: tasks
            .iter()
            .map(|t| TaskWear {
                task: t.task.clone(),
                written_bytes: t.counts.programs * 1500,
                programmed_pages: t.counts.programs,
                erased_blocks: t.counts.erases,
            })
            .collect(),
        by_file: (0..tasks.len() as u64)
            .map(|i| FileWear {
                device: Some("31:0".into()),
                inode: i + 2,
                path: None,
                written_bytes: 1500,
                programmed_pages: 1,
            })
            .collect(),
        pages_of_no_file: programs.saturating_sub(tasks.len() as u64),
        spread: vec![EraseSpread {
            chip: 0,
            blocks: 512,
            erased_blocks: blocks.iter().filter(|b| b.counts.erases > 0).count() as u64,
            erases,
            most_of_a_block: blocks.iter().map(|b| b.counts.erases).max().unwrap_or(0),
            mean: erases as f64 / 512.0,
            standard_deviation: 0.25,
        }],
        span_ns: 1_000_000_000,
        ..Wear::default()
    }
}

pub fn flash() -> FlashReport {
    let group = group("jffs2", "/sys/class/bdi/mtd-0/read_ahead_kb", 0, 540_000);
    let mut phases = flashscope_analysis::flash::PhasesFound::default();
    let mut begin_ns = 0;
    for phase in &group.phases {
        phases.phases.push(flashscope_analysis::flash::PhaseOps {
            name: phase.phase.clone(),
            begin_ns,
            end_ns: begin_ns + phase.duration_ns,
            ended: true,
            counts: phase.counts.into(),
        });
        begin_ns += phase.duration_ns;
    }
    let mut counts = flashscope_analysis::flash::LabelledCounts::default();
    for point in &group.timeline.points {
        for _ in 0..point.count {
            counts.total.add(point.op);
        }
    }
    counts.reads.full_page = counts.total.reads - 120;
    counts.reads.oob = 120;
    counts.reads.repeats = 2;
    counts.programs.not_recorded = counts.total.programs;
    FlashReport {
        names: Default::default(),
        schema: FLASH_REPORT_SCHEMA,
        title: "boot.dat".into(),
        system: SystemFacts {
            kernel_release: "6.1.0-50-armmp".into(),
            machine: "armv7l".into(),
            cpus: 1,
            agent_version: "0.1.0".into(),
            clock: "mono".into(),
            mounts: vec!["jffs2 on mtd0 at /mnt".into()],
            wear: vec![
                OwnWear::Ubi {
                    device: "ubi0<script>\u{1b}[2J".into(),
                    mtd: Some(0),
                    max_erases: 12,
                    bad_blocks: Some(3),
                    reserved_blocks: Some(37),
                },
                OwnWear::Emmc { device: "mmcblk0".into(), life_time: [2, 1], pre_end_of_life: 1 },
            ],
            captured: vec!["fsync>5ms: a sync of task 12 took 18.7 ms<script>\u{1b}[2J".into()],
            limited_to: vec!["--comm dd<script>\u{1b}[2J".into()],
        },
        chips: vec![ChipShape {
            chip: 0,
            name: "NAND simulator".into(),
            page_bytes: 2048,
            pages_per_block: 64,
            blocks: 512,
        }],
        life: vec![Life {
            chip: 0,
            endurance_cycles: 100_000,
            used_cycles: 12,
            even_years: 31.4,
            worst_block_years: 2.7,
        }],
        probes: vec![ProbeFacts {
            event: "nand_read".into(),
            operation: "read".into(),
            symbol: "nand_read_page_op".into(),
            level: "nand".into(),
            loses: "nothing known on this driver".into(),
        }],
        health: vec![Health { mtd: 0, corrected_bits: 4, ecc_failures: 1, blocks_gone_bad: 1, bad_blocks: 3 }],
        losses: losses(),
        readahead: Some(readahead(None).into()),
        findings: Vec::new(),
        calls: Default::default(),
        found: FlashFindings {
            events: counts.total.sum() + 6,
            begin_ns: 0,
            end_ns: group.timeline.end_ns,
            counts: counts.into(),
            by_task: group
                .by_task
                .iter()
                .map(|t| flashscope_analysis::flash::TaskOps { task: t.task.clone(), counts: t.counts })
                .collect(),
            phases,
            activities: activities(),
            yaffs2: flashscope_analysis::flash::Activities::default(),
            timeline: group.timeline,
            amplification: amplification(&group.by_task),
            wear: wear(&group.by_task, &group.blocks).into(),
            blocks: flashscope_analysis::flash::BlockMap { blocks: group.blocks, not_placed: OpCounts::default() },
            durations: vec![OpDurations {
                op: FlashOp::Read,
                latency_ns: LatencyNs::from_unsorted((0..1000).map(|i| 145_000 + i * 37 % 4000).collect()),
            }],
        },
    }
}

/// Two files, one of them without a known name.
fn readahead(late: Option<u64>) -> AccuracyFindings {
    let pages = Brought {
        requested: 40,
        ahead: 2_000,
        ahead_used: 1_500,
        ahead_late: late,
        ahead_evicted_unused: Some(100),
        ahead_left_unused: 300,
        ahead_awaited: 50,
        mapped: 100,
        origin_unknown: 0,
    };
    AccuracyFindings {
        total: pages,
        files: vec![
            FileBrought { device: Some(Device::new(8, 1)), inode: 12, path: None, pages },
            FileBrought { device: None, inode: 0, path: None, pages: Brought::default() },
        ],
        tasks: vec![TaskBrought { tid: TaskId(10), name: Some("player".to_owned()), pages }],
        file_systems_own: 7,
        not_followed: 5,
        tasks_forgotten: 3,
        arrival_unknown: 2,
        faults_not_shown: false,
        folded: true,
    }
}

/// No block event at all.
pub fn empty_block() -> BlockReport {
    block_report(Vec::new())
}

/// A reader of much, a writer of little behind it, and the journal on one device; a second device that shows no more than
/// queueing and completion.
pub fn block() -> BlockReport {
    use BlockAction::{BackMerge, Complete, GetRq, Insert, Issue, Queue};
    let mut steps: Vec<(u64, BlockAction, u32, &str, u64, u64, Device)> = Vec::new();
    let (disk, simple) = (Device::new(8, 0), Device::new(252, 1));
    let mut free = 1_000_000u64;
    for i in 0..120u64 {
        let (tid, letters, sector, sectors) = match i % 6 {
            0..3 => (10, "R", i * 256, 256),
            3 => (20, "WS", 900_000 + i * 8, 8),
            4 => (20, "W", 2_000_000 - i * 640, 64),
            _ => (30, "WSM", 500_000 + i * 16, 16),
        };
        let queued = 1_000_000 + i * 400_000;
        let (got, begin) = (queued + 2_000 + i % 7 * 900, (queued + 30_000).max(free));
        let mut bios = vec![(sector, sectors)];
        steps.push((queued, Queue, tid, letters, sector, sectors, disk));
        steps.push((got, GetRq, tid, letters, sector, sectors, disk));
        steps.push((got + 3_000, Insert, tid, letters, sector, sectors, disk));
        if i % 6 == 4 {
            let next = sector + sectors;
            steps.push((got + 5_000, Queue, tid, letters, next, sectors, disk));
            steps.push((got + 6_500, BackMerge, tid, letters, next, sectors, disk));
            bios.push((next, sectors));
        }
        let all: u64 = bios.iter().map(|(_, sectors)| sectors).sum();
        free = begin + 80_000 + all * 1_500 + i * i % 13 * 9_000;
        steps.push((begin, Issue, tid, letters, sector, all, disk));
        steps.push((free, Complete, 0, letters, sector, all, disk));
        if i % 10 == 0 {
            steps.push((queued + 50, Queue, 40, "R", i * 8, 8, simple));
            steps.push((queued + 90_000 + i * 1000, Complete, 0, "R", i * 8, 8, simple));
        }
    }
    steps.sort_by_key(|step| step.0);
    let events = steps.into_iter().map(|(time, action, tid, letters, sector, sectors, device)| Event {
        time: TimeNs(time),
        cpu: 0,
        tid: TaskId(tid),
        kind: EventKind::Block(BlockEvent {
            action,
            device,
            flags: RequestFlags::from_letters(letters.as_bytes()),
            sector,
            bytes: sectors * 512,
            error: 0,
            cgroup: 0,
            detail: BlockDetail::None,
        }),
    });
    block_report(events.collect())
}

fn block_report(events: Vec<Event>) -> BlockReport {
    let names = |TaskId(tid): TaskId, _| match tid {
        10 => Some("reader"),
        20 => Some("writer"),
        30 => Some("jbd2/sda1-8"),
        40 => Some("other"),
        _ => None,
    };
    let mut analysis = BlockAnalysis::new(names, flashscope_analysis::block::Sizes::default());
    events.iter().for_each(|event| analysis.event(event));
    BlockReport {
        names: Default::default(),
        schema: BLOCK_REPORT_SCHEMA,
        title: "disk.blktrace.0".into(),
        system: flash().system,
        losses: vec![LossCount { name: "data_cut".into(), count: 1, meaning: "the file ends inside a record".into() }],
        missing: Vec::new(),
        readahead: Some(readahead(Some(3)).into()),
        findings: Vec::new(),
        calls: Default::default(),
        found: analysis.finish(),
    }
}

/// A scan and what followed, with names that want to act.
fn activities() -> flashscope_analysis::flash::Activities {
    use flashscope_analysis::flash::{Activities, Activity, ActivityKind, OpCounts, Scanned, TaskOps};
    let phase = |kind, begin_ns, counts, scan, task: &str| Activity {
        kind,
        chip: 0,
        begin_ns,
        end_ns: begin_ns + 1_000_000_000,
        counts,
        first_page: 4096,
        last_page: 29_695,
        scan,
        tasks: vec![TaskOps { task: task.to_owned(), counts }],
    };
    let reads = OpCounts { reads: 6425, ..OpCounts::default() };
    let erases = OpCounts { reads: 0, programs: 340, erases: 340 };
    let scan = Scanned { pages: 5539, blocks: 400, whole_blocks: 59 };
    Activities {
        phases: vec![
            phase(ActivityKind::MountScan, 1_000_000, reads, Some(scan), "mount"),
            phase(ActivityKind::Formatting, 2_000_000_000, erases, None, "<script>\u{1b}[2J"),
        ],
        not_told: OpCounts::default(),
    }
}

/// A trace of two kinds of operations, by a task whose name is hostile.
pub fn layers() -> LayersReport {
    let slice = |layer, begin_ns, end_ns| Slice { layer, begin_ns, end_ns };
    let time = |layer, ns| LayerTime { layer, ns, stretches: 1 };
    let call = |call, begin_ns: u64, slices: Vec<Slice>, layers: Vec<LayerTime>| CallLayers {
        call,
        task: "<script>\u{1b}[2J".to_owned(),
        tid: TaskId(7),
        ordinal: None,
        begin_ns,
        total_ns: 1000,
        calls: if call == Operation::Read { 1 } else { 2 },
        result: 4096,
        layers,
        unattributed_ns: 100,
        overlap_ns: 10,
        overlap_stretches: 1,
        slices,
    };
    let read = call(
        Operation::Read,
        50,
        vec![slice(Some(Layer::Call), 50, 100), slice(Some(Layer::PageCache), 100, 950), slice(None, 950, 1050)],
        vec![time(Layer::Call, 50), time(Layer::PageCache, 850)],
    );
    let write = call(
        Operation::WriteSync,
        2000,
        vec![slice(Some(Layer::Device), 2000, 2900), slice(None, 3000, 3100)],
        vec![time(Layer::Device, 900)],
    );
    let calls = vec![read, write];
    let sums = flashscope_analysis::layers::sums(&calls);
    let findings = LayersFound { sums, calls, ..LayersFound::new(SleepSource::Switches) };
    let FlashReport { title, system, losses, .. } = flash();
    LayersReport { schema: LAYERS_REPORT_SCHEMA, title, system, losses, found: findings }
}
