use super::*;
use flashscope_trace::{Device, Facts, FileEvent, FileId, TaskId, TimeNs};

const FILE: FileId = FileId { device: Some(Device(25)), inode: 5 };

fn event(time: u64, step: FileStep, offset: u64, bytes: u64) -> Event {
    let file = FileEvent { step, device: Some(Device(25)), inode: 5, offset, bytes, size: None, block: 0, got: None };
    Event { time: TimeNs(time), cpu: 0, tid: TaskId(7), kind: EventKind::File(file) }
}

/// A read of new pages, from its begin to its return two nanoseconds later.
fn read(collector: &mut Collector, time: u64, offset: u64, bytes: u64, got: u64) {
    collector.event(&event(time, FileStep::Read, offset, bytes));
    // squashfs brings in blocks, here of two pages.
    collector.event(&event(time + 1, FileStep::Cached, offset, bytes.next_multiple_of(8192)));
    collector.returned(TaskId(7), time + 2, Some(got));
}

#[test]
fn calls_have_their_pages_and_times_and_a_short_one_ends_the_file() {
    let mut collector = Collector::default();
    collector.event(&event(100, FileStep::Read, 0, 8192));
    collector.event(&event(110, FileStep::Cached, 0, 4096));
    // The second page is read and never comes: it was there.
    collector.returned(TaskId(7), 150, Some(5000));
    collector.event(&event(200, FileStep::Uncached, 0, 4096));
    collector.event(&event(210, FileStep::Uncached, 4096, 4096));
    collector.event(&event(220, FileStep::Write, 8192, 10));
    collector.event(&event(221, FileStep::Cached, 8192, 4096));
    collector.returned(TaskId(7), 230, Some(10));
    collector.event(&event(300, FileStep::Read, 0, 100));
    let workload = collector.finish();
    assert_eq!(workload.calls.len(), 2);
    assert_eq!((workload.calls[0].pages_added, workload.calls[0].duration_ns), (1, Some(50)));
    assert_eq!((workload.calls[1].duration_ns, workload.without_end), (None, 1));
    assert_eq!(workload.cached_before, [(FILE, 1..2)]);
    assert_eq!(workload.pages_added[&FILE], 1, "what is written is no read");
    assert_eq!((workload.sizes[&FILE], workload.open_ended.len()), (5000, 0));
    let accesses: Vec<Access> = workload.steps.iter().map(|step| step.access).collect();
    assert_eq!(accesses[1..3], [Access::Drop { page: 0, pages: 1 }, Access::DropAll]);
}

#[test]
fn what_too_many_tasks_do_at_once_is_counted() {
    let (mut collector, most) = (Collector::default(), MAX_TASKS as u32);
    let of = |tid: u32, step: FileStep| Event { tid: TaskId(tid), ..event(100, step, 0, 4096) };
    // The writer without room takes those before it away, a write more of the same task nothing.
    (1..=most).chain([1, 0]).for_each(|tid| collector.event(&of(tid, FileStep::Write)));
    assert_eq!(collector.workload.forgotten, u64::from(most));
    // A reader without room is not followed.
    (0..=most).for_each(|tid| collector.event(&of(tid, FileStep::Read)));
    assert_eq!(collector.workload.forgotten, u64::from(most) + 1);
    // What came for calls that are over takes room and is no loss.
    for tid in 2 * most..2 * most + 10 {
        collector.returned(TaskId(4), 110, Some(4096));
        collector.event(&of(tid, FileStep::Read));
        collector.returned(TaskId(tid), 120, Some(4096));
    }
    assert!(collector.inside.len() <= MAX_TASKS, "{}", collector.inside.len());
    assert_eq!(collector.finish().forgotten, u64::from(most) + 1);
}

/// Its task was preempted after 20 of 100 ns, and another ran for 50.
#[test]
fn a_call_does_not_last_while_others_run() {
    let mut collector = Collector::default();
    collector.event(&event(100, FileStep::Read, 0, 4096));
    collector.event(&event(110, FileStep::Cached, 0, 4096));
    collector.cpu_wait.switched(120, Some(TaskId(7)), TaskId(9), collector.inside.len());
    collector.cpu_wait.switched(170, None, TaskId(7), collector.inside.len());
    collector.returned(TaskId(7), 200, Some(4096));
    collector.event(&event(300, FileStep::Read, 4096, 4096));
    collector.returned(TaskId(7), 310, Some(4096));
    let workload = collector.finish();
    let [waited, free] = workload.calls[..] else { panic!("two calls") };
    assert_eq!((waited.duration_ns, waited.cpu_wait_ns, waited.ended_ns()), (Some(50), 50, Some(200)));
    assert_eq!((free.duration_ns, free.clock_began_ns(), free.ended_ns()), (Some(10), 250, Some(310)));
    assert_eq!(workload.cpu_wait_ns, 50);
}

/// As `cat` reads a file whose size is a multiple of its buffer's.
#[test]
fn a_read_of_nothing_says_that_the_file_ended() {
    let reads = |got: Option<u64>, offset: u64| {
        let mut collector = Collector::default();
        read(&mut collector, 10, 0, 8192, 8192);
        collector.event(&event(20, FileStep::Read, offset, 8192));
        collector.returned(TaskId(7), 21, got);
        let workload = collector.finish();
        (workload.sizes[&FILE], workload.open_ended.len())
    };
    assert_eq!(reads(Some(0), 8192), (8192, 0));
    // It is no evidence of what lies before it.
    assert_eq!(reads(Some(0), 65536), (8192, 0));
    // An error says nothing, and one before what was there is of a file that was cut.
    assert_eq!(reads(None, 8192), (8192, 1));
    assert_eq!(reads(Some(0), 4096), (8192, 1));
}

#[test]
fn where_a_file_ends_another_recording_shows() {
    let reads = |up_to: u64, got: u64| {
        let mut collector = Collector::default();
        read(&mut collector, 10, 0, up_to, got);
        collector.finish()
    };
    let learned = |layout: &Workload| {
        let mut workload = reads(8192, 8192);
        workload.learn(layout);
        (workload.sizes[&FILE], workload.open_ended.len())
    };
    assert_eq!(learned(&reads(16384, 16384)), (16384, 1), "no read met the end there either");
    assert_eq!(learned(&reads(16384, 13000)), (13000, 0));
    assert_eq!(learned(&reads(4096, 4096)), (8192, 1));
    assert_eq!(learned(&reads(12288, 12288)), (12288, 1));
    assert_eq!(learned(&Workload::default()), (8192, 1));
    // Where it ends here was seen.
    let mut ended = reads(8192, 5000);
    ended.learn(&reads(16384, 16384));
    assert_eq!((ended.sizes[&FILE], ended.open_ended.len()), (5000, 0));
}

/// A file that is made, grows and is made anew: its size is what was written by then.
#[test]
fn a_file_that_changes_its_size_is_followed() {
    let mut collector = Collector::default();
    collector.event(&event(10, FileStep::Write, 0, 8192));
    collector.event(&event(11, FileStep::Cached, 0, 8192));
    collector.returned(TaskId(7), 12, Some(8192));
    collector.event(&event(20, FileStep::Read, 0, 4096));
    collector.returned(TaskId(7), 21, Some(4096));
    collector.event(&event(30, FileStep::Write, 8192, 40960));
    collector.returned(TaskId(7), 31, Some(40960));
    let workload = collector.finish();
    assert!(workload.created.contains(&FILE), "{workload:?}");
    assert_eq!(workload.sizes[&FILE], 49152);
    // One that was there: written from its begin on, and read behind what was written.
    let mut collector = Collector::default();
    collector.event(&event(10, FileStep::Write, 0, 100));
    collector.event(&event(20, FileStep::Read, 40960, 4096));
    collector.event(&event(21, FileStep::Cached, 40960, 4096));
    assert!(!collector.finish().created.contains(&FILE));
}

/// Reads that say how long their file is.
#[test]
fn a_file_is_as_long_as_its_reads_say() {
    let sized = |time: u64, step: FileStep, offset: u64, size: u64| {
        let mut event = event(time, step, offset, 4096);
        let EventKind::File(file) = &mut event.kind else { panic!() };
        file.size = Some(size);
        event
    };
    let resized = |workload: &Workload| {
        let steps = workload.steps.iter();
        let of = |step: &TaskAccess| match step.access {
            Access::Resized { bytes } => Some(bytes),
            _ => None,
        };
        steps.filter_map(of).collect::<Vec<_>>()
    };
    // Its end is known though no read met it. What is written makes it longer; what else does, and cuts, is a step of its own.
    let mut collector = Collector::default();
    collector.event(&sized(10, FileStep::Read, 0, 99_000));
    collector.event(&event(11, FileStep::Cached, 0, 4096));
    collector.returned(TaskId(7), 12, Some(4096));
    collector.event(&event(20, FileStep::Write, 98_000, 4096));
    collector.returned(TaskId(7), 21, Some(4096));
    collector.event(&sized(30, FileStep::Fault, 4096, 102_096));
    collector.event(&sized(40, FileStep::Read, 8192, 9000));
    collector.returned(TaskId(7), 41, Some(808));
    collector.event(&sized(50, FileStep::Read, 0, 20_000));
    let workload = collector.finish();
    assert_eq!((workload.sizes[&FILE], workload.open_ended.len()), (99_000, 0));
    assert_eq!(resized(&workload), [9000, 20_000]);
    // One that is made in the trace.
    let mut collector = Collector::default();
    collector.event(&event(10, FileStep::Write, 0, 8192));
    collector.returned(TaskId(7), 11, Some(8192));
    collector.event(&sized(20, FileStep::Read, 0, 8192));
    collector.returned(TaskId(7), 21, Some(4096));
    let workload = collector.finish();
    assert!(workload.created.contains(&FILE) && resized(&workload).is_empty(), "{workload:?}");
}

/// JFFS2 collects garbage: in a thread of its own, and in the call of a task that writes.
#[test]
fn what_comes_for_no_call_is_the_file_systems_own() {
    let mut collector = Collector::default();
    collector.keep_pages();
    collector.event(&event(10, FileStep::Read, 0, 4096));
    collector.event(&event(11, FileStep::Cached, 0, 4096));
    let mut of_thread = event(12, FileStep::Cached, 4096, 4096);
    of_thread.tid = TaskId(99);
    collector.event(&of_thread);
    collector.returned(TaskId(7), 20, Some(4096));
    collector.event(&event(30, FileStep::Write, 0, 100));
    let mut of_writer = event(31, FileStep::Cached, 8192, 4096);
    let EventKind::File(file) = &mut of_writer.kind else { panic!() };
    file.inode += 1;
    collector.event(&of_writer);
    let workload = collector.finish();
    assert_eq!((workload.pages_added.values().sum::<u64>(), workload.pages.len(), workload.pages_brought), (1, 1, 2));
    let brought = workload.steps.iter().filter(|step| matches!(step.access, Access::Brought { .. }));
    assert_eq!(brought.map(|step| step.tid.0).collect::<Vec<_>>(), [99, 7]);
}

/// A trace that ends in the middle of a read, and one that begins in it.
#[test]
fn a_trace_that_is_cut_says_so() {
    let mut collector = Collector::default();
    collector.returned(TaskId(7), 5, Some(4096));
    collector.event(&event(8, FileStep::Cached, 4096, 4096));
    collector.event(&event(10, FileStep::Read, 0, 4096));
    let workload = collector.finish();
    assert_eq!((workload.calls.len(), workload.without_end, workload.open_ended.len()), (1, 1, 1));
}

#[test]
fn nothing_says_when_a_fault_ends() {
    let mut collector = Collector::default();
    let flash = |time: u64| Event {
        time: TimeNs(time),
        cpu: 0,
        tid: TaskId(7),
        kind: EventKind::Flash(flashscope_trace::FlashAccess {
            op: FlashOp::Read,
            page: 3,
            offset_bytes: None,
            length_bytes: None,
            chip: 0,
        }),
    };
    collector.event(&event(100, FileStep::Fault, 4096, 0));
    collector.event(&event(101, FileStep::Cached, 4096, 4096));
    collector.event(&flash(110));
    collector.event(&flash(150));
    collector.event(&event(500, FileStep::Fault, 8192, 0));
    let workload = collector.finish();
    // To its last read, 50, and the mean of one, 40, more; the second fault read none.
    let durations: Vec<_> = workload.calls.iter().map(|call| call.duration_ns).collect();
    assert_eq!(durations, [Some(90), Some(0)]);
    assert_eq!((workload.faults, workload.flash_reads, workload.without_end), (2, 2, 0));
}

#[test]
fn a_fault_ends_where_its_probe_says() {
    let mut collector = Collector::default();
    collector.event(&event(100, FileStep::Fault, 4096, 0));
    collector.event(&event(101, FileStep::Cached, 4096, 4096));
    collector.fault_over(TaskId(7), 180);
    // Neither another fault's begin nor a call's end is taken for this one's.
    collector.fault_over(TaskId(7), 190);
    collector.returned(TaskId(7), 200, None);
    let workload = collector.finish();
    assert_eq!(workload.calls[0].duration_ns, Some(80));
}

/// Pages that advice asks for are its own, and the first of them says of which file it was.
#[test]
fn advice_is_a_call_of_its_own() {
    let mut collector = Collector::default();
    collector.begin_advice(TaskId(7), 50);
    collector.event(&event(60, FileStep::Cached, 8192, 8192));
    collector.returned(TaskId(7), 90, Some(0));
    collector.event(&event(100, FileStep::Read, 8192, 4096));
    collector.returned(TaskId(7), 110, Some(4096));
    let workload = collector.finish();
    let [advice] = workload.advice[..] else { panic!("{:?}", workload.advice) };
    assert_eq!((advice.file, advice.pages_added, advice.duration_ns), (FILE, 2, Some(40)));
    assert_eq!((workload.calls.len(), workload.calls[0].pages_added), (1, 0));
}

/// A damaged result says that far more was read than was requested.
#[test]
fn a_read_brings_no_more_than_it_asked_for() {
    let mut collector = Collector::default();
    collector.event(&event(10, FileStep::Read, 0, 8192));
    collector.returned(TaskId(7), 20, Some(1 << 40));
    assert_eq!(collector.finish().cached_before, vec![(FILE, 0..2)]);
}

#[test]
fn nonsense_is_no_panic() {
    let mut collector = Collector::new(&Facts::default(), [Device(31)]);
    for step in [FileStep::Read, FileStep::Write, FileStep::Fault, FileStep::Cached, FileStep::Uncached] {
        for (offset, bytes) in [(u64::MAX, u64::MAX), (0, 0), (4095, 2), (u64::MAX - 4096, 8192)] {
            collector.event(&event(5, step, offset, bytes));
            collector.returned(TaskId(7), 0, Some(1 << 26));
            collector.returned(TaskId(9), 0, None);
        }
    }
    collector.finish();
}
