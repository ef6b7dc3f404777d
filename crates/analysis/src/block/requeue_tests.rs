//! Requests that were given back and issued again, with and without their bios; the figures are by hand.

use super::{BlockAnalysis, BlockFound, BlockSetup, Sizes};
use crate::Analysis as _;
use crate::testing::steps;

fn found(ios: &str) -> BlockFound {
    let mut analysis = BlockAnalysis::new(|_, _| None::<&str>, Sizes::default());
    steps(ios).iter().for_each(|event| analysis.event(event));
    analysis.finish()
}

/// Number, least and most.
fn stage(found: &BlockFound, name: &str) -> [u64; 3] {
    let times = found.groups[0].stages.iter().find(|times| times.stage == name);
    times.map_or([0; 3], |times| [times.ns.n, times.ns.min, times.ns.max])
}

/// A name, its steps; requests, those completed, requeues and lost completions; sectors; D2C.
type Alone = (&'static str, &'static str, [u64; 4], u64, [u64; 3]);

const ONE: [u64; 3] = [1, 100, 100];

const ALONE: &[Alone] = &[
    ("as it was", "W 50+8: D10 R20 D50 C150/0", [1, 1, 1, 0], 8, ONE),
    ("another merged behind it", "W 50+8: D10 R20; W 50+16: D50 C150/0", [1, 1, 1, 0], 16, ONE),
    ("another merged before it, by another thread", "W 58+8: D10 R20/2; W 50+16: D50/3 C150/0", [1, 1, 1, 0], 16, ONE),
    ("others merged on both sides", "W 58+8: D10 R20; W 50+24: D50 C150/0", [1, 1, 1, 0], 24, ONE),
    ("two and what lies between them", "W 50+8: D10 R20; W 66+8: D12 R21; W 50+24: D50 C150/0", [1, 1, 2, 0], 24, ONE),
    (
        "two side by side, of which a third request is between others",
        "W 50+8: D10 R20; W 58+8: D12 R21; W 90+8: D30/2 C130/0; W 50+16: D50 C150/0",
        [2, 2, 2, 0],
        24,
        [2, 100, 100],
    ),
    ("split in two", "W 50+16: D10 R20; W 50+8: D50 C150/0; W 58+8: D60 C170/0", [2, 2, 1, 0], 16, [2, 100, 110]),
    (
        "split in two, the second part first",
        "W 50+16: D10 R20; W 58+8: D50 C150/0; W 50+8: D60 C170/0",
        [2, 2, 1, 0],
        16,
        [2, 100, 110],
    ),
    (
        "its second half, with another behind it",
        "W 50+16: D10; W 50+8: C20/0; W 58+8: R21/0; W 58+16: D50 C150/0",
        [1, 1, 1, 0],
        24,
        ONE,
    ),
    (
        "twice, each time with one more",
        "W 50+8: D10 R20; W 50+16: D30 R40/2; W 42+24: D50/2 C150/0",
        [1, 1, 2, 0],
        24,
        ONE,
    ),
    ("its completion is lost", "W 50+8: D10 R20; W 50+16: D50", [1, 0, 1, 0], 16, [0; 3]),
    (
        "its completion is lost, and its sectors come again",
        "W 50+8: D10 R20; W 50+16: D30 D50 C150/0",
        [2, 1, 1, 1],
        32,
        ONE,
    ),
    ("not issued again, and its neighbour is another", "W 50+8: D10 R20; W 58+8: D50 C150/0", [2, 1, 1, 0], 16, ONE),
    ("its neighbour first", "W 50+8: D10 R20 D60 C160/0; W 58+8: D50 C150/0", [2, 2, 1, 0], 16, [2, 100, 100]),
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

/// Issues and completions alone, without a requeue: a trace that has lost nothing has as many completions as requests.
#[test]
fn an_issue_without_its_own_completion_is_the_same_request_again() {
    for (name, steps, counts, d2c) in [
        ("again", "W 50+8: D10 D50/2 C150/0", [1, 1, 1], ONE),
        ("twice again", "W 50+8: D10 D30/2 D50/2 C150/0 D200 C300/0", [2, 2, 2], [2, 100, 100]),
        // The two are the same to the trace: their times are 100 and 110, or 90 and 120.
        ("two at once", "W 50+8: D10 D20/2 C110/0 C130/0", [2, 2, 0], [2, 90, 120]),
    ] {
        let found = found(steps);
        let stages = &found.stages;
        let has = [&stages.requests, &stages.requests_completed, &stages.reissued];
        assert_eq!(has.map(|count| count.known().copied()), counts.map(Some), "{name}");
        assert_eq!(stage(&found, "D2C"), d2c, "{name}");
        let losses = (stages.unmatched.sum(), stages.given_up.sum(), stages.unfinished.known().copied());
        assert_eq!(losses, (0, 0, Some(0)), "{name}");
        assert_eq!(stages.requeues.known().is_none(), counts[2] > 0, "{name}");
    }
}

/// The same where losses are not counted: the request in the device is one, or one and another whose completion was lost. After that
/// completion none is in the device, or it is not known how many are.
#[test]
fn a_request_that_may_have_ended_is_not_in_the_device() {
    let steps = steps("W 50+8: D10 D50/2 C150/0; W 58+8: D200 C300/0; W 50+8: D400 C500/0");
    let setup = BlockSetup { drops_are_uncounted: true, ..BlockSetup::from(Sizes::default()) };
    let mut analysis = BlockAnalysis::new(|_, _| None::<&str>, setup);
    steps.iter().for_each(|event| analysis.event(event));
    let found = analysis.finish();
    assert_eq!(found.stages.given_up.completion_lost, 1);
    assert!(found.over_time.most_in_device.known().is_none(), "{:?}", found.over_time.most_in_device);
}

/// Two readers of one sector, and no event is lost: 2 in the device from 20 to 110, then 1, and 2 again from 120.
#[test]
fn one_of_two_that_ended_is_not_in_the_device() {
    let steps = steps("W 50+8: Q0 G1 D10 Q11/2 G12/2 D20/2 C110/0 C130/0; W 90+8: Q111/3 G112/3 D120/3 C220/0");
    let setup = BlockSetup { events_are_missing: true, ..BlockSetup::from(Sizes::default()) };
    let mut analysis = BlockAnalysis::new(|_, _| None::<&str>, setup);
    steps.iter().for_each(|event| analysis.event(event));
    let found = analysis.finish();
    let over_time = &found.over_time;
    assert_eq!([&over_time.most_in_device, &over_time.most_in_flight].map(|most| most.known().copied()), [Some(2); 2]);
}

/// The last completion of a bio that flushed has no sectors. Where no queueing was recorded, its bio is not known.
#[test]
fn the_end_of_a_flush_without_its_queueing_is_no_loss() {
    let steps = "W 50+8: D10 C110/0 D200 C300/0; W 58+0: C120/0; W 0+0: C310/0";
    let stages = found(steps).stages;
    let has = [&stages.requests, &stages.requests_completed, &stages.unfinished];
    assert_eq!(has.map(|count| count.known().copied()), [2, 2, 0].map(Some));
    assert_eq!((stages.unmatched.sum(), stages.given_up.sum()), (0, 0));
}

/// A name, its steps; bios, those completed, requests without a bio, requeues; D2C and Q2C.
type WithBios = (&'static str, &'static str, [u64; 4], [u64; 3], [u64; 3]);

const WITH_BIOS: &[WithBios] = &[
    (
        "another merged behind it",
        "W 50+8: Q0 G1 D10 R20; W 58+8: Q30/2 M31/2; W 50+16: D50 C150/0",
        [2, 2, 0, 1],
        [2, 100, 100],
        [2, 120, 150],
    ),
    (
        "one merged behind it whose queueing is lost",
        "W 50+8: Q0 G1 D10 R20; W 50+16: D50 C150/0",
        [1, 1, 1, 1],
        ONE,
        [1, 150, 150],
    ),
    (
        "half of it has no bio, and another merged behind that",
        "W 50+8: Q0 G1; W 50+16: D10 R20; W 50+24: D50 C150/0",
        [1, 1, 1, 1],
        ONE,
        [1, 150, 150],
    ),
    (
        "half of it has no bio, and that of another behind it is known",
        "W 50+8: Q0 G1; W 50+16: D10 R20; W 66+8: Q30 M31; W 50+24: D50 C150/0",
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
