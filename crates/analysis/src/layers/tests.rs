use super::bios::MAX_BIOS;
use super::*;
use crate::testing::event;
use CallKind::{Read, Sync, Write};
use Crossing::{Call, Enter, Leave, Returned, Sleeps, Wakes};
use Layer::{Driver, FileSystem, Interrupt, PageCache, Vfs};
use flashscope_trace::{BlockAction, SleepSource, TaskId};

fn block(time: u64, tid: TaskId, action: BlockAction) -> Step {
    let block = crate::testing::block(action, flashscope_trace::Device::new(8, 0), "R", 0, 4096);
    Step::Block(event(time, tid.0, EventKind::Block(block)))
}

enum Step {
    Block(Event),
    Crossing(u64, Crossing),
}

fn run(sleep: SleepSource, events: &[Step]) -> LayersFound {
    let mut layers = Layers::new(
        |tid, _| match tid {
            TaskId(1) => Some("app"),
            TaskId(9) => Some("kworker/0:1H"),
            _ => None,
        },
        sleep,
    );
    for step in events {
        match step {
            Step::Block(event) => layers.event(event),
            Step::Crossing(time, crossing) => layers.crossing(*crossing, TaskId(1), TimeNs(*time)),
        }
    }
    layers.finish()
}

fn at(time: u64, crossing: Crossing) -> Step {
    Step::Crossing(time, crossing)
}

/// A cold read, from the call down to the device and back; every nanosecond is somebody's.
#[test]
fn a_cold_read_by_hand() {
    let found = run(
        SleepSource::Switches,
        &[
            at(100, Call(Read, None)),
            at(101, Enter(Vfs)),
            at(110, Enter(PageCache)),
            at(130, Enter(FileSystem)),
            at(150, Enter(Layer::Block)),
            block(155, TaskId(1), BlockAction::Queue),
            at(165, Enter(Driver)),
            block(166, TaskId(1), BlockAction::Issue),
            at(170, Leave(Driver)),
            at(175, Leave(Layer::Block)),
            at(180, Leave(FileSystem)),
            at(190, Sleeps { runnable: false }),
            block(266, TaskId(0), BlockAction::Complete),
            at(280, Wakes),
            at(300, Leave(PageCache)),
            at(309, Leave(Vfs)),
            at(310, Returned(Read, 4096)),
        ],
    );
    let call = &found.calls[0];
    let of = |layer| call.layers.iter().find(|t| t.layer == layer).map_or(0, |t| t.ns);
    assert_eq!((call.total_ns, call.unattributed_ns, call.result, call.task.as_str()), (210, 0, 4096, "app"));
    assert_eq!(
        [Layer::Call, Vfs, PageCache, FileSystem, Layer::Block, Driver, Layer::Device, Interrupt].map(of),
        [2, 18, 50, 25, 20, 5, 76, 14]
    );
    // From the issue to its sleep the task and the device both worked.
    assert_eq!(call.overlap_ns, 24);
    assert_eq!(call.layers.iter().map(|t| t.ns).sum::<u64>() + call.unattributed_ns, call.total_ns);
    assert_eq!((found.calls_cut, found.boundaries_unmatched), (0, 0));
    assert_eq!(found.slept_ns, Evidence::Known(90));
}

#[test]
fn without_the_schedulers_events_a_wait_is_what_the_device_says() {
    let found = run(
        SleepSource::Nothing,
        &[
            at(0, Call(Read, None)),
            at(0, Enter(PageCache)),
            block(10, TaskId(1), BlockAction::Queue),
            block(20, TaskId(9), BlockAction::Issue),
            block(120, TaskId(0), BlockAction::Complete),
            at(130, Leave(PageCache)),
            at(130, Returned(Read, 1)),
        ],
    );
    let times: Vec<(Layer, u64)> = found.calls[0].layers.iter().map(|t| (t.layer, t.ns)).collect();
    // From the completion on it may have waited for a CPU as well: that time is no layer's.
    assert_eq!(times, [(PageCache, 10), (Layer::Block, 10), (Layer::Device, 100)]);
    assert_eq!(found.calls[0].unattributed_ns, 10);
    let why = found.slept_ns.why().expect("unknown");
    assert!(why.missing.contains("sched:sched_switch") && why.next.contains("--events layers"), "{why:?}");
}

/// A bio of 2 MiB goes in two requests: it is in the device from the first issue to the second completion, and not after it.
#[test]
fn a_split_bio_ends_with_its_last_request() {
    let part = |time, tid, action, sector, bytes| {
        let device = flashscope_trace::Device::new(8, 0);
        Step::Block(event(time, tid, EventKind::Block(crate::testing::block(action, device, "W", sector, bytes))))
    };
    let call = |begin, end| {
        [
            at(begin, Call(Sync, None)),
            at(begin, Enter(PageCache)),
            at(begin, Sleeps { runnable: false }),
            at(end, Wakes),
            at(end, Leave(PageCache)),
            at(end, Returned(Sync, 0)),
        ]
    };
    let bio = [
        part(20, 9, BlockAction::Queue, 64, 2 << 20),
        part(30, 9, BlockAction::Issue, 64, 1 << 20),
        part(50, 9, BlockAction::Issue, 64 + 2048, 1 << 20),
        part(60, 0, BlockAction::Complete, 64, 1 << 20),
        part(90, 0, BlockAction::Complete, 64 + 2048, 1 << 20),
    ];
    let [first, second] = [call(0, 100), call(200, 300)];
    let mut events: Vec<Step> = first.into();
    events.splice(3..3, bio);
    events.extend(second);
    let found = run(SleepSource::Switches, &events);
    let of =
        |call: usize, layer| found.calls[call].layers.iter().find(|time| time.layer == layer).map_or(0, |time| time.ns);
    assert_eq!([of(0, Layer::Block), of(0, Layer::Device)], [10, 60]);
    assert_eq!([of(1, Layer::Block), of(1, Layer::Device)], [0, 0]);
}

/// Bios of a mapped device, whose ends are not recorded, and their parts on the disk below.
#[test]
fn a_bio_of_a_device_that_ends_none_is_not_waited_for() {
    let of = |time, tid, action, minor| {
        let device = flashscope_trace::Device::new(8, minor);
        Step::Block(event(time, tid, EventKind::Block(crate::testing::block(action, device, "R", 64, 4096))))
    };
    let read = |at_ns| {
        [
            at(at_ns, Call(Read, None)),
            at(at_ns, Enter(PageCache)),
            of(at_ns + 10, 1, BlockAction::Queue, 16),
            of(at_ns + 20, 1, BlockAction::Queue, 0),
            at(at_ns + 30, Sleeps { runnable: false }),
            of(at_ns + 40, 9, BlockAction::Issue, 0),
            of(at_ns + 90, 0, BlockAction::Complete, 0),
            at(at_ns + 95, Wakes),
            at(at_ns + 100, Returned(Read, 1)),
        ]
    };
    let found = run(SleepSource::Switches, &(0..5).flat_map(|n| read(n * 1000)).collect::<Vec<_>>());
    let times = |call: usize| found.calls[call].layers.iter().map(|time| (time.layer, time.ns)).collect::<Vec<_>>();
    // Three bios without an end may be in a queue; four are not.
    assert_eq!(times(2), [(PageCache, 35), (Layer::Block, 15), (Layer::Device, 50)]);
    assert_eq!(times(4), [(PageCache, 35), (Layer::Block, 10), (Layer::Device, 50), (Interrupt, 5)]);
}

/// The second call's flush waits for the first request, which does not serve it. Where no request of a flush was seen, nobody waits.
#[test]
fn a_flush_waits_for_its_own_request() {
    let flush = |time, tid, action, letters| {
        let device = flashscope_trace::Device::new(8, 0);
        Step::Block(event(time, tid, EventKind::Block(crate::testing::block(action, device, letters, 0, 0))))
    };
    let found = run(
        SleepSource::Switches,
        &[
            flush(1, 5, BlockAction::Queue, "FWS"),
            flush(2, 9, BlockAction::Issue, "FF"),
            flush(12, 0, BlockAction::Complete, "FF"),
            flush(15, 5, BlockAction::Queue, "FWS"),
            flush(20, 9, BlockAction::Issue, "FF"),
            at(100, Call(Sync, None)),
            flush(110, 1, BlockAction::Queue, "FWS"),
            at(120, Sleeps { runnable: false }),
            flush(130, 0, BlockAction::Complete, "FF"),
            flush(140, 9, BlockAction::Issue, "FF"),
            flush(170, 0, BlockAction::Complete, "FF"),
            at(190, Wakes),
            at(200, Returned(Sync, 0)),
        ],
    );
    let times: Vec<(Layer, u64)> = found.calls[0].layers.iter().map(|time| (time.layer, time.ns)).collect();
    assert_eq!(times, [(Layer::Call, 30), (Layer::Block, 20), (Layer::Device, 30), (Interrupt, 20)]);
    let found = run(
        SleepSource::Switches,
        &[
            at(100, Call(Sync, None)),
            flush(110, 1, BlockAction::Queue, "FWS"),
            at(120, Sleeps { runnable: false }),
            at(190, Wakes),
            at(200, Returned(Sync, 0)),
        ],
    );
    assert_eq!(found.calls[0].unattributed_ns, 70);
}

/// A kernel thread writes pages of other programs while a task sleeps in a call.
#[test]
fn a_read_does_not_wait_for_what_a_kernel_thread_writes() {
    let write = |time, tid, action| {
        let device = flashscope_trace::Device::new(8, 0);
        let block = crate::testing::block(action, device, "W", 64, 4096);
        Step::Block(event(time, tid, EventKind::Block(block)))
    };
    let events = |kind| {
        [
            at(0, Call(kind, None)),
            at(0, Enter(PageCache)),
            at(10, Sleeps { runnable: false }),
            write(20, 9, BlockAction::Queue),
            write(30, 9, BlockAction::Issue),
            write(90, 0, BlockAction::Complete),
            at(95, Wakes),
            at(100, Leave(PageCache)),
            at(100, Returned(kind, 1)),
        ]
    };
    let in_device = |found: &LayersFound| {
        found.calls[0].layers.iter().find(|time| time.layer == Layer::Device).map_or(0, |time| time.ns)
    };
    assert_eq!(in_device(&run(SleepSource::Switches, &events(Read))), 0);
    assert_eq!(in_device(&run(SleepSource::Switches, &events(Write))), 60);
}

/// Functions that wait for a page and for the journal are not every sleep, and say nothing of other tasks.
#[test]
fn only_the_schedulers_event_tells_how_long_tasks_slept() {
    let events = [
        at(0, Call(Read, None)),
        at(0, Enter(PageCache)),
        block(10, TaskId(1), BlockAction::Queue),
        at(20, Sleeps { runnable: false }),
        at(70, Wakes),
        at(80, Leave(PageCache)),
        at(90, Returned(Read, 1)),
    ];
    assert_eq!(run(SleepSource::Switches, &events).slept_ns, Evidence::Known(50));
    for (sleep, seen) in [(SleepSource::Waits, "pages"), (SleepSource::Functions, "`schedule`")] {
        let found = run(sleep, &events);
        let why = found.slept_ns.why().expect("unknown");
        assert!(why.missing.contains("sched:sched_switch") && why.missing.contains(seen), "{why:?}");
        assert_eq!(found.sums[0].total_ns, 90);
    }
}

/// A kworker that takes the CPU to do the driver's work.
#[test]
fn who_runs_in_a_tasks_place_works_for_it() {
    let lookup = |tid: TaskId, _| Some(["", "app", "", "", "", "other", "", "", "", "kworker/0:1H"][tid.0 as usize]);
    let mut layers = Layers::new(lookup, SleepSource::Switches);
    for (time, tid, crossing) in [
        (0, 1, Call(Read, None)),
        (10, 1, Enter(PageCache)),
        (20, 1, Sleeps { runnable: true }),
        (20, 9, Wakes),
        (30, 9, Enter(Driver)),
        (70, 9, Leave(Driver)),
        (75, 9, Sleeps { runnable: false }),
        (75, 1, Wakes),
        (80, 1, Leave(PageCache)),
        // And one that does something else.
        (82, 1, Sleeps { runnable: true }),
        (82, 5, Wakes),
        (86, 5, Sleeps { runnable: false }),
        (86, 1, Wakes),
        (94, 1, Returned(Read, 1)),
    ] {
        layers.crossing(crossing, TaskId(tid), TimeNs(time));
    }
    let found = layers.finish();
    let times: Vec<(Layer, u64)> = found.calls[0].layers.iter().map(|t| (t.layer, t.ns)).collect();
    // The kworker outside of every layer is a task like others.
    assert_eq!(times, [(Layer::Call, 20), (PageCache, 15), (Driver, 40), (Layer::OtherTasks, 19)]);
}

/// After the completion other programs keep the CPU that the task gets; or the CPU was idle.
#[test]
fn a_task_that_waits_for_a_busy_cpu_waits_for_other_tasks() {
    let of = |other| {
        let lookup = |tid: TaskId, _| Some(["swapper/0", "app", "", "", "", "other", "third"][tid.0 as usize]);
        let mut layers = Layers::new(lookup, SleepSource::Switches);
        let block = |layers: &mut Layers<_>, time, tid, action| {
            let block = crate::testing::block(action, flashscope_trace::Device::new(8, 0), "R", 0, 4096);
            layers.event(&event(time, tid, EventKind::Block(block)));
        };
        layers.crossing(Call(Read, None), TaskId(1), TimeNs(0));
        layers.crossing(Enter(PageCache), TaskId(1), TimeNs(0));
        block(&mut layers, 10, 1, BlockAction::Queue);
        block(&mut layers, 10, 1, BlockAction::Issue);
        layers.crossing(Sleeps { runnable: false }, TaskId(1), TimeNs(20));
        layers.crossing(Wakes, TaskId(if other == 0 { 0 } else { 6 }), TimeNs(20));
        block(&mut layers, 100, 0, BlockAction::Complete);
        if other != 0 {
            layers.crossing(Sleeps { runnable: true }, TaskId(6), TimeNs(120));
            layers.crossing(Wakes, TaskId(other), TimeNs(120));
        }
        layers.crossing(Sleeps { runnable: true }, TaskId(other), TimeNs(150));
        layers.crossing(Wakes, TaskId(1), TimeNs(150));
        layers.crossing(Returned(Read, 1), TaskId(1), TimeNs(160));
        let call = layers.finish().calls.remove(0);
        assert_eq!(call.slices.iter().map(|slice| slice.end_ns - slice.begin_ns).sum::<u64>(), 160);
        let last = call.slices.iter().rev().nth(1).expect("a slice before the last").layer;
        (call.layers.iter().map(|time| (time.layer, time.ns)).collect::<Vec<_>>(), last)
    };
    let before = [(PageCache, 30), (Layer::Device, 80)];
    assert_eq!(of(5), ([&before[..], &[(Layer::OtherTasks, 50)]].concat(), Some(Layer::OtherTasks)));
    assert_eq!(of(0), ([&before[..], &[(Interrupt, 50)]].concat(), Some(Interrupt)));
}

/// The journal's thread runs for whoever syncs, also before and after what is probed of it; asleep it does nothing.
#[test]
fn a_thread_of_the_file_system_works_there() {
    let lookup = |tid: TaskId, _| Some(if tid.0 == 1 { "app" } else { "jbd2/nullb0-8" });
    let mut layers = Layers::new(lookup, SleepSource::Switches);
    for (time, tid, crossing) in [
        (0, 9, Sleeps { runnable: false }),
        (100, 1, Call(Sync, Some(3))),
        (110, 1, Sleeps { runnable: false }),
        (130, 9, Wakes),
        (140, 9, Enter(FileSystem)),
        (150, 9, Leave(FileSystem)),
        (155, 9, Sleeps { runnable: false }),
        (170, 1, Wakes),
        (180, 1, Returned(Sync, 0)),
    ] {
        layers.crossing(crossing, TaskId(tid), TimeNs(time));
    }
    let found = layers.finish();
    let times: Vec<(Layer, u64)> = found.calls[0].layers.iter().map(|t| (t.layer, t.ns)).collect();
    assert_eq!((times, found.calls[0].unattributed_ns), (vec![(Layer::Call, 20), (FileSystem, 25)], 35));
}

#[test]
fn what_is_missing_is_counted() {
    let found = run(
        SleepSource::Nothing,
        &[
            at(0, Returned(Read, 0)),
            at(1, Call(Read, None)),
            at(2, Leave(Vfs)),
            at(3, Enter(PageCache)),
            at(4, Returned(Read, 0)),
            at(5, Call(Read, None)),
        ],
    );
    assert_eq!((found.calls_cut, found.boundaries_unmatched, found.calls.len()), (2, 2, 1));
}

#[test]
fn endless_calls_stay_bounded() {
    let mut layers = Layers::new(|_, _| None::<&str>, SleepSource::Switches);
    for i in 0..40_000u32 {
        layers.crossing(Enter(Vfs), TaskId(i), TimeNs(u64::from(i)));
        layers.crossing(Leave(Vfs), TaskId(i), TimeNs(u64::from(i)));
    }
    assert!(layers.tasks.len() <= MAX_TASKS);
    assert_eq!(layers.finish().events_not_followed, 0);
}

/// Tasks that stay in their calls, and bios that never end.
#[test]
fn what_is_given_up_is_counted() {
    let mut layers = Layers::new(|_, _| None::<&str>, SleepSource::Switches);
    for i in 0..20_000u32 {
        layers.crossing(Call(Read, None), TaskId(i), TimeNs(u64::from(i)));
    }
    assert!(layers.tasks.len() <= MAX_TASKS);
    let found = layers.finish();
    assert_eq!(found.events_not_followed, 20_000 - MAX_TASKS as u64);

    let mut layers = Layers::new(|_, _| None::<&str>, SleepSource::Switches);
    // The trace shows requests of the device.
    let Step::Block(issue) = block(0, TaskId(1), BlockAction::Issue) else { unreachable!() };
    layers.event(&issue);
    for i in 0..20_000 {
        let Step::Block(mut event) = block(i, TaskId(1), BlockAction::Queue) else { unreachable!() };
        if let EventKind::Block(block) = &mut event.kind {
            block.sector = i * 8;
        }
        layers.event(&event);
    }
    assert_eq!((layers.bios.len(), layers.places.len()), (MAX_BIOS, MAX_BIOS));
    assert_eq!(layers.tasks[&TaskId(1)].queued, MAX_BIOS);
    let found = layers.finish();
    let losses: Vec<u64> = found.losses().iter().map(|loss| loss.count).collect();
    assert_eq!(losses, [0, 20_000 - MAX_BIOS as u64, 0]);
}

#[test]
fn a_write_and_its_sync_are_one_operation() {
    let write = |at: u64, fd: u32| {
        [
            Step::Crossing(at, Call(Write, Some(fd))),
            Step::Crossing(at + 1, Enter(Vfs)),
            Step::Crossing(at + 4, Leave(Vfs)),
            Step::Crossing(at + 5, Returned(Write, 4096)),
        ]
    };
    let sync = |at: u64, fd: u32| {
        [at, at + 100].map(|time| match time == at {
            true => Step::Crossing(time, Call(Sync, Some(fd))),
            false => Step::Crossing(time, Returned(Sync, 0)),
        })
    };
    let mut steps: Vec<Step> = Vec::new();
    steps.extend(write(0, 3));
    steps.extend(write(10, 3));
    steps.extend(sync(20, 3));
    // Another file's sync, and none.
    steps.extend(write(200, 3));
    steps.extend(sync(210, 4));
    let found = run(SleepSource::Switches, &steps);
    let all: Vec<(Operation, u32, u64, u64, i64)> =
        found.calls.iter().map(|c| (c.call, c.calls, c.begin_ns, c.total_ns, c.result)).collect();
    assert_eq!(
        all,
        [
            (Operation::WriteSync, 3, 0, 110, 8192),
            (Operation::Write, 1, 200, 5, 4096),
            (Operation::Sync, 1, 210, 100, 0)
        ]
    );
    let times: Vec<(Layer, u64, u64)> = found.calls[0].layers.iter().map(|t| (t.layer, t.ns, t.stretches)).collect();
    assert_eq!(times, [(Layer::Call, 104, 5), (Vfs, 6, 2)]);
    assert_eq!(found.calls[0].slices.len(), 7);
    assert_eq!(
        found.sums.iter().map(|sum| (sum.call, sum.n)).collect::<Vec<_>>(),
        [(Operation::Write, 1), (Operation::Sync, 1), (Operation::WriteSync, 1)]
    );
}

/// Also of more operations than are listed.
#[test]
fn one_process_alone_is_summed_up_whole() {
    let name = |tid: TaskId, _| Some(if tid.0 == 1 { "app" } else { "other" });
    let mut layers = Layers::new(name, SleepSource::Switches).only(Some("app"));
    let n = MAX_CALLS as u64 + 10;
    for i in 0..2 * n {
        let tid = 1 + (i % 2) as u32;
        layers.crossing(Call(Read, None), TaskId(tid), TimeNs(10 * i));
        layers.crossing(Enter(PageCache), TaskId(tid), TimeNs(10 * i + 1));
        layers.crossing(Leave(PageCache), TaskId(tid), TimeNs(10 * i + 2));
        layers.crossing(Returned(Read, 1), TaskId(tid), TimeNs(10 * i + 5));
    }
    let found = layers.finish();
    assert_eq!((found.sums[0].n, found.sums[0].total_ns, found.calls.len()), (n, 5 * n, MAX_CALLS));
    assert_eq!(found.calls_not_listed, 10);
    assert!(found.calls.iter().all(|call| call.task == "app"));
}

/// A pipe's read waits for whoever writes into it, and touches no storage; the next one does.
#[test]
fn only_calls_that_touched_storage_count() {
    let found = run(
        SleepSource::Switches,
        &[
            at(0, Call(Read, None)),
            at(1, Enter(Vfs)),
            at(2, Sleeps { runnable: false }),
            at(900, Wakes),
            at(901, Leave(Vfs)),
            at(902, Returned(Read, 10)),
            at(1000, Call(Read, None)),
            at(1001, Enter(PageCache)),
            at(1005, Leave(PageCache)),
            at(1006, Returned(Read, 10)),
            at(2000, Call(Read, None)),
            block(2001, TaskId(1), BlockAction::Queue),
            at(2009, Returned(Read, 10)),
        ],
    );
    assert_eq!((found.calls.len(), found.calls_without_storage, found.sums[0].total_ns), (2, 1, 6 + 9));
    // Where the trace has no boundaries of the page cache, of a write alone nothing is known.
    let found = run(SleepSource::Switches, &[at(0, Call(Write, None)), at(5, Returned(Write, 10))]);
    assert_eq!((found.calls.len(), found.calls_without_storage), (1, 0));
}
