//! Studies of runs and of booting for tests, from the same simple model: not measurements.

use crate::synthetic;
use flashscope_analysis::FlashReport;
use flashscope_analysis::flash::{Geometry, OpCounts};
use flashscope_study::boot::{BOOT_SCHEMA, Boot, BootGroup, BootResult, RootFs};
use flashscope_study::runs::{
    Cost, Part, PostmarkFacts, RUNS_SCHEMA, RingUse, RunGroup, RunsResult, Share, Spread, Tracer,
};
use flashscope_study::{Figures, Group, Header, How, Inputs, Row};

fn inputs() -> (Inputs, Group) {
    let group = synthetic::study().groups.remove(0);
    (group.inputs.clone(), group)
}

/// One that holds, one that does not, one that was not measured.
fn published() -> Vec<Row> {
    [(Some(1.5), Some(true)), (Some(9.0), Some(false)), (None, None)]
        .into_iter()
        .enumerate()
        .map(|(i, (ours, within))| Row {
            id: format!("statement-{i}"),
            source: "a paper, table 1".into(),
            statement: "it writes twice as much".into(),
            of: "jffs2".into(),
            published_min: 1.0,
            published_max: 2.0,
            unit: "1".into(),
            how: How::Measured,
            ours,
            within,
            note: "why it is so".into(),
        })
        .collect()
}

pub fn runs() -> RunsResult {
    let (inputs, of) = inputs();
    let counts = OpCounts { reads: 100, programs: 50, erases: 2 };
    let part = |name: &str, begin_ns: u64| Part {
        name: name.into(),
        begin_ns,
        end_ns: begin_ns + 1_000_000_000,
        counts: Some(counts),
        last_ns: Some(begin_ns + 900_000_000),
        last_erase_ns: Some(begin_ns + 800_000_000),
    };
    let group = |tracer: Tracer, id: &str| RunGroup {
        id: id.into(),
        name: "jffs2".into(),
        case: "jffs2".into(),
        inputs: inputs.clone(),
        tracer,
        chip: "a chip".into(),
        geometry: Geometry { page_bytes: 2048, pages_per_block: 64 },
        chip_blocks: 2048,
        partition_bytes: 50 << 20,
        postmark: Some(PostmarkFacts {
            filesystem: "jffs2".into(),
            options: Some("compr=none".into()),
            readahead: "keep".into(),
            readahead_kib: Some(0),
            size_min_bytes: 512,
            size_max_bytes: 10_240,
            contents: "random".into(),
            created: 800,
            read: 700,
            appended: 600,
            bytes_read: 9 << 20,
            bytes_written: 14 << 20,
            read_ns: 1_000_000_000,
            write_ns: 2_000_000_000,
            shares: vec![Share { percent: 25, bytes: 1 << 20, read_ns: 500_000_000 }],
            crc32: 7,
        }),
        total_ns: 2_000_000_000,
        busy_ns: (tracer == Tracer::None).then_some(1_500_000_000),
        parts: vec![part("create", 0), part("transactions", 1_000_000_000)],
        all: Some(counts),
        by_task: of.by_task.clone(),
        timelines: vec![of.timeline.clone(), of.timeline.clone()],
        ring: Some(RingUse { events: 152, bytes: 8192 }),
        losses: of.losses.clone(),
    };
    RunsResult {
        header: Header {
            schema: RUNS_SCHEMA,
            study: "runs".into(),
            title: "Runs".into(),
            question: "What does a run cost?".into(),
            clock: "guest time".into(),
            flashscope: "0.1.0".into(),
            study_sha256: "ab".into(),
        },
        groups: vec![group(Tracer::None, "armv7-none"), group(Tracer::Ring, "armv7-ring")],
        costs: vec![Cost {
            name: "jffs2".into(),
            part: "create".into(),
            tracer: Tracer::Ring,
            without_ns: 1_000_000,
            with_ns: 1_010_000,
            events: 100,
        }],
        spreads: vec![Spread {
            name: "jffs2".into(),
            part: "busy".into(),
            tracer: Tracer::FlashmonRing,
            seeds: 3,
            percent: 1.25,
            least_percent: 1.0,
            most_percent: 1.5,
            us_an_event: Some(0.5),
        }],
        figures: Figures::from([("jffs2.programs".to_owned(), 50.0)]),
        published: published(),
    }
}

pub fn boot() -> BootResult {
    let (inputs, of) = inputs();
    let FlashReport { found: findings, .. } = synthetic::flash();
    let boot = |name: &str| Boot {
        name: name.into(),
        begin_ns: 5_000_000_000,
        duration_ns: 9_000_000_000,
        mounted_ns: 1_000_000_000,
        prompt_ns: 8_000_000_000,
        keys_ns: Some([6_000_000_000, 7_000_000_000]),
        counts: OpCounts { reads: 100, programs: 50, erases: 2 },
        by_task: of.by_task.clone(),
        phases: findings.activities.clone(),
        timeline: of.timeline.clone(),
    };
    BootResult {
        header: Header {
            schema: BOOT_SCHEMA,
            study: "boot".into(),
            title: "Boot".into(),
            question: "What does a boot do?".into(),
            clock: "guest time".into(),
            flashscope: "0.1.0".into(),
            study_sha256: "ab".into(),
        },
        groups: vec![BootGroup {
            id: "armv7-jffs2".into(),
            inputs,
            filesystem: "jffs2".into(),
            chip: "a chip".into(),
            page_bytes: 4096,
            pages_per_block: 64,
            partition_pages: [0, 12_800],
            root: RootFs {
                image_bytes: 10 << 20,
                image_blocks: 40,
                files: 300,
                files_bytes: 9 << 20,
                filler_bytes: 1 << 20,
                packages: vec!["busybox-static 1:1.35".into()],
            },
            boots: vec![boot("first"), boot("second")],
            losses: of.losses.clone(),
        }],
        figures: Figures::from([("jffs2.first.reads".to_owned(), 100.0)]),
        published: published(),
    }
}
