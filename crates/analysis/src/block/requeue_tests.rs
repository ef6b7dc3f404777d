//! Requests that were given back and issued again, with and without their bios; the figures are by hand.

use super::{BlockAnalysis, BlockFound, Sizes};
use crate::Analysis as _;
use crate::testing::event;
use flashscope_trace::BlockAction::{self, *};
use flashscope_trace::{BlockDetail, BlockEvent, Device, EventKind, RequestFlags};

/// Time, thread, step, sector and sectors.
type Steps = &'static [(u64, u32, BlockAction, u64, u64)];

fn found(steps: Steps) -> BlockFound {
    let mut analysis = BlockAnalysis::new(|_, _| None::<&str>, Sizes::default());
    for &(time, tid, action, sector, sectors) in steps {
        let block = BlockEvent {
            action,
            device: Device::new(8, 0),
            flags: RequestFlags::WRITE,
            sector,
            bytes: sectors * 512,
            error: 0,
            cgroup: 0,
            detail: BlockDetail::None,
        };
        analysis.event(&event(time, tid, EventKind::Block(block)));
    }
    analysis.finish()
}

/// Number, least and most.
fn stage(found: &BlockFound, name: &str) -> [u64; 3] {
    let times = found.groups[0].stages.iter().find(|times| times.stage == name);
    times.map_or([0; 3], |times| [times.ns.n, times.ns.min, times.ns.max])
}

/// A name, its steps; requests, those completed, requeues and lost completions; sectors; D2C.
type Alone = (&'static str, Steps, [u64; 4], u64, [u64; 3]);

const ONE: [u64; 3] = [1, 100, 100];

const ALONE: &[Alone] = &[
    (
        "as it was",
        &[(10, 1, Issue, 50, 8), (20, 1, Requeue, 50, 8), (50, 1, Issue, 50, 8), (150, 0, Complete, 50, 8)],
        [1, 1, 1, 0],
        8,
        ONE,
    ),
    (
        "another merged behind it",
        &[(10, 1, Issue, 50, 8), (20, 1, Requeue, 50, 8), (50, 1, Issue, 50, 16), (150, 0, Complete, 50, 16)],
        [1, 1, 1, 0],
        16,
        ONE,
    ),
    (
        "another merged before it, by another thread",
        &[(10, 1, Issue, 58, 8), (20, 2, Requeue, 58, 8), (50, 3, Issue, 50, 16), (150, 0, Complete, 50, 16)],
        [1, 1, 1, 0],
        16,
        ONE,
    ),
    (
        "others merged on both sides",
        &[(10, 1, Issue, 58, 8), (20, 1, Requeue, 58, 8), (50, 1, Issue, 50, 24), (150, 0, Complete, 50, 24)],
        [1, 1, 1, 0],
        24,
        ONE,
    ),
    (
        "two and what lies between them",
        &[
            (10, 1, Issue, 50, 8),
            (12, 1, Issue, 66, 8),
            (20, 1, Requeue, 50, 8),
            (21, 1, Requeue, 66, 8),
            (50, 1, Issue, 50, 24),
            (150, 0, Complete, 50, 24),
        ],
        [1, 1, 2, 0],
        24,
        ONE,
    ),
    (
        "two side by side, of which a third request is between others",
        &[
            (10, 1, Issue, 50, 8),
            (12, 1, Issue, 58, 8),
            (20, 1, Requeue, 50, 8),
            (21, 1, Requeue, 58, 8),
            (30, 2, Issue, 90, 8),
            (50, 1, Issue, 50, 16),
            (130, 0, Complete, 90, 8),
            (150, 0, Complete, 50, 16),
        ],
        [2, 2, 2, 0],
        24,
        [2, 100, 100],
    ),
    (
        "split in two",
        &[
            (10, 1, Issue, 50, 16),
            (20, 1, Requeue, 50, 16),
            (50, 1, Issue, 50, 8),
            (60, 1, Issue, 58, 8),
            (150, 0, Complete, 50, 8),
            (170, 0, Complete, 58, 8),
        ],
        [2, 2, 1, 0],
        16,
        [2, 100, 110],
    ),
    (
        "split in two, the second part first",
        &[
            (10, 1, Issue, 50, 16),
            (20, 1, Requeue, 50, 16),
            (50, 1, Issue, 58, 8),
            (60, 1, Issue, 50, 8),
            (150, 0, Complete, 58, 8),
            (170, 0, Complete, 50, 8),
        ],
        [2, 2, 1, 0],
        16,
        [2, 100, 110],
    ),
    (
        "its second half, with another behind it",
        &[
            (10, 1, Issue, 50, 16),
            (20, 0, Complete, 50, 8),
            (21, 0, Requeue, 58, 8),
            (50, 1, Issue, 58, 16),
            (150, 0, Complete, 58, 16),
        ],
        [1, 1, 1, 0],
        24,
        ONE,
    ),
    (
        "twice, each time with one more",
        &[
            (10, 1, Issue, 50, 8),
            (20, 1, Requeue, 50, 8),
            (30, 1, Issue, 50, 16),
            (40, 2, Requeue, 50, 16),
            (50, 2, Issue, 42, 24),
            (150, 0, Complete, 42, 24),
        ],
        [1, 1, 2, 0],
        24,
        ONE,
    ),
    (
        "its completion is lost",
        &[(10, 1, Issue, 50, 8), (20, 1, Requeue, 50, 8), (50, 1, Issue, 50, 16)],
        [1, 0, 1, 0],
        16,
        [0; 3],
    ),
    (
        "its completion is lost, and its sectors come again",
        &[
            (10, 1, Issue, 50, 8),
            (20, 1, Requeue, 50, 8),
            (30, 1, Issue, 50, 16),
            (50, 1, Issue, 50, 16),
            (150, 0, Complete, 50, 16),
        ],
        [2, 1, 1, 1],
        32,
        ONE,
    ),
    (
        "not issued again, and its neighbour is another",
        &[(10, 1, Issue, 50, 8), (20, 1, Requeue, 50, 8), (50, 1, Issue, 58, 8), (150, 0, Complete, 58, 8)],
        [2, 1, 1, 0],
        16,
        ONE,
    ),
    (
        "its neighbour first",
        &[
            (10, 1, Issue, 50, 8),
            (20, 1, Requeue, 50, 8),
            (50, 1, Issue, 58, 8),
            (60, 1, Issue, 50, 8),
            (150, 0, Complete, 58, 8),
            (160, 0, Complete, 50, 8),
        ],
        [2, 2, 1, 0],
        16,
        [2, 100, 100],
    ),
];

#[test]
fn requests_alone_that_come_back_are_counted_once() {
    for &(name, steps, counts, sectors, d2c) in ALONE {
        let found = found(steps);
        let stages = &found.stages;
        let has = [&stages.requests, &stages.requests_completed, &stages.requeues].map(|count| count.known().copied());
        // Without any completion it is unknown how many were completed.
        let completed = Some(counts[1]).filter(|completed| *completed > 0);
        assert_eq!(has, [Some(counts[0]), completed, Some(counts[2])], "{name}");
        assert_eq!((stages.unmatched.sum(), stages.given_up.completion_lost), (0, counts[3]), "{name}");
        assert_eq!((found.groups[0].bytes, stage(&found, "D2C")), (sectors * 512, d2c), "{name}");
        let sizes = found.groups.iter().filter(|group| group.name.starts_with("to ")).map(|group| group.bios);
        assert_eq!(sizes.sum::<u64>(), counts[0], "{name}");
    }
}

/// A name, its steps; bios, those completed, requests without a bio, requeues; D2C and Q2C.
type WithBios = (&'static str, Steps, [u64; 4], [u64; 3], [u64; 3]);

const WITH_BIOS: &[WithBios] = &[
    (
        "another merged behind it",
        &[
            (0, 1, Queue, 50, 8),
            (1, 1, GetRq, 50, 8),
            (10, 1, Issue, 50, 8),
            (20, 1, Requeue, 50, 8),
            (30, 2, Queue, 58, 8),
            (31, 2, BackMerge, 58, 8),
            (50, 1, Issue, 50, 16),
            (150, 0, Complete, 50, 16),
        ],
        [2, 2, 0, 1],
        [2, 100, 100],
        [2, 120, 150],
    ),
    (
        "one merged behind it whose queueing is lost",
        &[
            (0, 1, Queue, 50, 8),
            (1, 1, GetRq, 50, 8),
            (10, 1, Issue, 50, 8),
            (20, 1, Requeue, 50, 8),
            (50, 1, Issue, 50, 16),
            (150, 0, Complete, 50, 16),
        ],
        [1, 1, 1, 1],
        [1, 100, 100],
        [1, 150, 150],
    ),
    (
        "half of it has no bio, and another merged behind that",
        &[
            (0, 1, Queue, 50, 8),
            (1, 1, GetRq, 50, 8),
            (10, 1, Issue, 50, 16),
            (20, 1, Requeue, 50, 16),
            (50, 1, Issue, 50, 24),
            (150, 0, Complete, 50, 24),
        ],
        [1, 1, 1, 1],
        [1, 100, 100],
        [1, 150, 150],
    ),
    (
        "half of it has no bio, and that of another behind it is known",
        &[
            (0, 1, Queue, 50, 8),
            (1, 1, GetRq, 50, 8),
            (10, 1, Issue, 50, 16),
            (20, 1, Requeue, 50, 16),
            (30, 1, Queue, 66, 8),
            (31, 1, BackMerge, 66, 8),
            (50, 1, Issue, 50, 24),
            (150, 0, Complete, 50, 24),
        ],
        [2, 2, 1, 1],
        [2, 100, 100],
        [2, 120, 150],
    ),
];

#[test]
fn bios_of_requests_that_come_back_keep_their_times() {
    for &(name, steps, counts, d2c, q2c) in WITH_BIOS {
        let found = found(steps);
        let stages = &found.stages;
        let has = [&stages.bios_queued, &stages.bios_completed, &stages.requests, &stages.requeues];
        assert_eq!(has.map(|count| count.known().copied()), counts.map(Some), "{name}");
        assert_eq!((stage(&found, "D2C"), stage(&found, "Q2C")), (d2c, q2c), "{name}");
    }
}
