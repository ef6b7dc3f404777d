use super::super::matching::Matching;
use super::*;
use crate::testing::{block, steps, steps_from};
use BlockAction::*;
use flashscope_trace::{Device, Event, EventKind, TaskId};

fn run(events: &[Event]) -> InterferenceFound {
    let mut matching = Matching::new(Interference::new());
    for event in events {
        let EventKind::Block(block) = &event.kind else { panic!("{event:?}") };
        matching.block(block, (event.tid.0, event.tid), event.time.0, || event.tid.0);
    }
    let (interference, devices, ..) = matching.finish();
    interference.finish(&devices, |owner| format!("task {owner}"), |_| true)
}

/// One request at a time, 100 each; whoever comes second waits for the rest of the first and for the hand-over.
#[test]
fn a_wait_belongs_to_whom_the_device_serves() {
    // The request is free at 103; the waiter runs ten later.
    let found = run(&steps("W 0+8 t1: Q0 G2 D3 C103; W 64+8 t2: Q10 G113 D114 C214"));
    let [pair] = found.pairs.as_slice() else { panic!("{:?}", found.pairs) };
    assert_eq!((pair.victim.as_str(), pair.behind.as_str(), pair.stage), ("task 2", "task 1", WaitStage::Request));
    // From 10 to 103 the device served task 1; of the ten until the request was got, two are what it takes anyway.
    assert_eq!((pair.served_ns, pair.handover_ns), (93, 8));
    let [own] = found.own_work.as_slice() else { panic!("{:?}", found.own_work) };
    assert_eq!((own.step.as_str(), own.waited, own.idle, own.own_ns, own.shortest_ns), ("Q2G", 1, 1, 2, 2));
    let of = |name: &str| found.owners.iter().find(|o| o.owner == name).expect("an owner");
    let second = of("task 2");
    assert_eq!((second.mean_q2c_ns, second.mean_behind_ns), (204, 101));
    assert_eq!(second.mean_device_excess_ns, Evidence::Known(0));
    assert_eq!(second.mean_alone_ns, Evidence::Known(103));
    assert_eq!((of("task 1").mean_q2c_ns, of("task 1").mean_behind_ns), (103, 0));
    assert_eq!((found.not_measured, found.shared_requests), (0, 0.into()));
}

/// bfq keeps the device idle for task 1, whose request was the last; task 2's request is in the scheduler meanwhile. Alone, it is issued
/// after 3.
#[test]
fn an_idle_device_that_is_kept_for_another_is_a_wait_behind_it() {
    const MS: u64 = 1_000_000;
    let mut steps: Vec<Event> = (0..7)
        .flat_map(|round| steps_from(round * MS, &format!("W {}+8 t2: Q0 G2 I4 D7 C107", round * 1000)))
        .collect();
    steps.extend(steps_from(
        100 * MS,
        "W 90000+8 t1: Q0 G2 I4 D7 C107; W 500000+8 t2: Q200 G202 I204 D8000207 C8000307",
    ));
    let found = run(&steps);
    let [pair] = found.pairs.as_slice() else { panic!("{:?}", found.pairs) };
    assert_eq!((pair.victim.as_str(), pair.behind.as_str(), pair.stage), ("task 2", "task 1", WaitStage::Scheduler));
    assert_eq!((pair.served_ns, pair.handover_ns), (0, 8 * MS));
    let reader = found.owners.iter().find(|o| o.owner == "task 2").expect("the reader");
    assert_eq!((reader.mean_behind_ns, &reader.mean_alone_ns), (MS, &Evidence::Known(107)));
    // After its own request the same wait is its own.
    steps.retain(|event| event.tid == TaskId(2));
    assert_eq!(run(&steps).owners[0].mean_behind_ns, 0);
}

/// Task 2's last request is in the scheduler of an idle device for 2 ms. Task 1 computes meanwhile, as its events every 100 µs show. They are on
/// processor 0, the issue on the one that is given.
#[test]
fn an_idle_device_while_another_has_the_processor_is_a_wait_behind_it() {
    const US: u64 = 1000;
    let found = |issued_on: u16, computing: TaskId| {
        let mut matching = Matching::new(Interference::new());
        let mut step = |time: u64, action, owner: u32, sector| {
            let block = block(action, Device::new(8, 0), "W", sector, 4096);
            matching.watch.task = TaskId(owner);
            matching.watch.processors.current = if action == Issue { issued_on } else { 0 };
            if action == Unplug {
                matching.watch.processors.seen(0, TaskId(owner), time, false);
            } else {
                matching.block(&block, (owner, TaskId(owner)), time, || owner);
            }
        };
        // Task 1's own request first, then task 2's: the device served task 2 last.
        for (at, owner) in [(0, 1), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2), (7, 2)] {
            let (at, sector) = (at * 10_000 * US, at * 1000);
            let late = if at == 70_000 * US { 2000 * US } else { 0 };
            step(at, Queue, owner, sector);
            step(at + 2, GetRq, owner, sector);
            step(at + 4, Insert, owner, sector);
            (0..late / (100 * US)).for_each(|n| step(at + 10 * US + n * 100 * US, Unplug, computing.0, 0));
            step(at + 7 + late, Issue, owner, sector);
            step(at + 107 + late, Complete, owner, sector);
        }
        let (interference, devices, ..) = matching.finish();
        interference.finish(&devices, |owner| format!("task {owner}"), |_| true)
    };
    let found_idle = found(0, TaskId(1));
    let [pair] = found_idle.pairs.as_slice() else { panic!("{:?}", found_idle.pairs) };
    assert_eq!((pair.victim.as_str(), pair.behind.as_str(), pair.stage), ("task 2", "task 1", WaitStage::Scheduler));
    assert_eq!((pair.served_ns, pair.handover_ns), (0, 2000 * US));
    assert_eq!(found(1, TaskId(1)).pairs, [], "nothing shows who had the processor that handed the request over");
    assert_eq!(found(0, TaskId(2)).pairs, [], "it had the processor itself");
    assert_eq!(found(0, TaskId(9)).pairs, [], "a task that does not use the device is no originator");
}

#[test]
fn ones_own_queue_is_no_interference() {
    let found = run(&steps("W 0+8: Q0 D1 C100; W 64+8: Q2 D101 C200"));
    assert_eq!(found.pairs, []);
    assert_eq!(found.owners[0].mean_behind_ns, 0);
}

#[test]
fn a_device_with_two_requests_gives_each_half_of_its_time() {
    let found = run(&steps("W 0+8 t1: Q0 D0 C100; W 64+8 t2: Q0 D0 C150; W 128+8 t3: Q0 D100 C200"));
    let of = |behind: &str| found.pairs.iter().filter(|p| p.behind == behind).map(|p| p.served_ns).sum::<u64>();
    assert_eq!((of("task 1"), of("task 2")), (50, 50));
    // None was ever alone in the device, so nothing says how long they take alone.
    let unknown = |o: &OwnerLoad| o.mean_device_excess_ns.known().is_none() && o.mean_alone_ns.known().is_none();
    assert!(found.owners.iter().all(unknown), "{:?}", found.owners);
}

/// A reader of 4 KiB behind a bio of 12 KiB that is split into three requests: each part waits for the one before it,
/// which is the writer's own work, and says nothing about what a step takes anyway.
#[test]
fn parts_of_a_bio_that_wait_for_each_other_are_no_own_work() {
    let mut steps = Vec::new();
    for round in 0..20 {
        let [first, second, third, reader] = [0, 8, 16, 64].map(|after| round * 1000 + after);
        let ios = format!(
            "W {first}+8 t1: Q0 G2 D3 C1003; W {second}+8 t1: Q3 G1005 D1006 C2006; \
             W {third}+8 t1: Q4 G2008 D2009 C3009; W {reader}+8 t2: Q5 G3011 D3012 C4012"
        );
        steps.extend(steps_from(round * 10_000, &ios));
    }
    let found = run(&steps);
    let reader = found.owners.iter().find(|o| o.owner == "task 2").expect("the reader");
    // Queued at 5, its request came at 3011; two of that it takes anyway.
    assert_eq!((reader.mean_q2c_ns, reader.mean_behind_ns), (4007, 3004));
    assert_eq!((&reader.mean_alone_ns, &reader.mean_device_excess_ns), (&Evidence::Known(1003), &Evidence::Known(0)));
}

#[test]
fn nobody_to_compare_with_is_said() {
    let found = run(&steps("W 0+8: Q0 D1 C100"));
    let one = &found.owners[0];
    assert_eq!(one.mean_behind_ns, 0);
    assert!(one.mean_alone_ns.why().is_some() && one.mean_device_excess_ns.why().is_some(), "{one:?}");
}

/// Each of 200 waits for the 199 before it: all are measured, and those that share a row are counted.
#[test]
fn no_owner_is_too_many() {
    let io = |i: u32| format!("W {}+8 t{i}: Q{i} D{} C{};", i * 8, 1000 + i * 100, 1100 + i * 100);
    let found = run(&steps(&(0..200).map(io).collect::<String>()));
    assert_eq!((found.owners.len(), found.not_measured, found.further_owners), (200, 0, 137));
    let of = |i: u32| found.owners.iter().find(|o| o.owner == format!("task {i}")).expect("an owner");
    // The first one waited idle only.
    assert_eq!(of(0).mean_behind_ns, 0);
    assert_eq!(of(199).mean_behind_ns, 1000 + 19_900 - 199 - 1000);
    let pairs: u64 = found.pairs.iter().map(|p| p.served_ns + p.handover_ns).sum();
    let owners: u64 = found.owners.iter().map(|o| o.mean_behind_ns * o.bios).sum();
    assert!(pairs.abs_diff(owners) <= found.pairs.len() as u64, "{pairs} {owners}");
}

/// 200 short-lived tasks come before the two that wait for one another: those have rows, and the sums of the others' waits stay.
#[test]
fn who_waits_most_has_a_row_however_late_it_comes() {
    let mut steps = Vec::new();
    for i in 0..200 {
        let (at, other) = (i * 1000, i + 300);
        steps.extend(steps_from(at, &format!("W {at}+8 t{i}: Q0 D1 C11; W {}+8 t{other}: Q0 D12 C22", at + 8)));
    }
    for round in 0..10 {
        let (at, sector) = (1_000_000 + round * 10_000, 500_000 + round * 100);
        let ios = format!("W {sector}+8 t1000: Q0 D1 C5001; W {}+8 t1001: Q0 D5002 C6002", sector + 8);
        steps.extend(steps_from(at, &ios));
    }
    let found = run(&steps);
    let longest = &found.pairs[0];
    assert_eq!((longest.victim.as_str(), longest.behind.as_str()), ("task 1001", "task 1000"));
    assert!(longest.served_ns.abs_diff(10 * 5000) <= 20, "{longest:?}");
    assert_eq!(found.further_owners, 402 - TOLD_APART as u64);
    let pairs: u64 = found.pairs.iter().map(|p| p.served_ns + p.handover_ns).sum();
    let owners: u64 = found.owners.iter().map(|o| o.mean_behind_ns * o.bios).sum();
    assert!(pairs.abs_diff(owners) <= owners / 100, "{pairs} {owners}");
}

/// A bio of two parts, each 1000 in the device. Beside another's request the first part is issued, put back because the device is
/// throttled, and issued again 500 later, when the device has long been idle.
#[test]
fn a_split_bio_beside_others_waits_for_the_throttled_device_too() {
    let mut steps = Vec::new();
    for round in 0..5 {
        let (first, second) = (round * 1000, round * 1000 + 4);
        let ios =
            format!("W {first}+8 t2: Q0; W {first}+4 t2: X1>{second} G5 D8 C1008; W {second}+4 t2: G1018 D1021 C2021");
        steps.extend(steps_from(round * 10_000, &ios));
    }
    steps.extend(steps_from(
        100_000,
        "W 90000+8 t1: Q0 G1 D2 C1002; W 10000+8 t2: Q10; W 10000+4 t2: X11>10004 G1015 D1018 R1021 D1521 C2521; \
         W 10004+4 t2: G2531 D2534 C3534",
    ));
    let found = run(&steps);
    let reader = found.owners.iter().find(|o| o.owner == "task 2").expect("the reader");
    // Alone 2021, of which the steps take 5, 3, 10 and 3. Beside the other 3524: its steps take 1005, 3, 3, 500, 10 and 3, and to
    // issue it takes 3 each of four times.
    assert_eq!((reader.bios, reader.mean_q2c_ns), (6, (2021 * 5 + 3524) / 6));
    let behind: u64 = 1524 - 5 - 10 - 4 * 3;
    assert_eq!((reader.mean_behind_ns, &reader.mean_alone_ns), (behind.div_ceil(6), &Evidence::Known(2022)));
}

/// A device that serves one request at a time, with a bio of two parts, each 1000 in the device. Beside another's request the second
/// part gets its own 245 after the first was issued: it would have waited for the first in any case.
#[test]
fn a_wait_beside_its_own_request_costs_nothing_in_a_device_that_serves_one() {
    let mut steps = Vec::new();
    for round in 0..5 {
        let (first, second) = (round * 1000, round * 1000 + 4);
        let ios =
            format!("W {first}+8 t2: Q0; W {first}+4 t2: X1>{second} G5 D8 C1008; W {second}+4 t2: G10 D1011 C2011");
        steps.extend(steps_from(round * 10_000, &ios));
    }
    steps.extend(steps_from(
        100_000,
        "W 90000+8 t1: Q0 G1 D2 C1002; W 10000+8 t2: Q10; W 10000+4 t2: X11>10004 G15 D1005 C2005; \
         W 10004+4 t2: G1250 D2008 C3008",
    ));
    let found = run(&steps);
    let reader = found.owners.iter().find(|o| o.owner == "task 2").expect("the reader");
    assert_eq!((reader.bios, reader.mean_q2c_ns), (6, (2011 * 5 + 2998) / 6));
    // 987 more than alone, over six bios.
    assert!((reader.mean_behind_ns * 6).abs_diff(987) <= 30, "{reader:?}");
    let alone = *reader.mean_alone_ns.known().expect("a time alone");
    assert!(alone.abs_diff(2011) <= 5, "{reader:?}");
}

/// Steps beside others that take less than usual make up for those that take more: the sum is what counts.
#[test]
fn shorter_steps_beside_others_make_up_for_longer_ones() {
    let mut waits = device::Waits::default();
    for (ns, hindered) in [(10, None), (10, None), (10, None), (4, Some(true)), (26, Some(true))] {
        waits.add(ns, hindered, None);
    }
    assert_eq!(waits.behind(10.0), 10.0);
    assert_eq!(waits.behind(20.0), -10.0);
}
