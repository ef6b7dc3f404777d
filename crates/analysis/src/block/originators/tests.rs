use super::*;
use crate::testing;
use flashscope_trace::BlockAction;

const DISK: Device = Device(0xfe0_0000);

fn names(tid: TaskId, _: TimeNs) -> Option<&'static str> {
    match tid {
        TaskId(1) => Some("app"),
        TaskId(2) => Some("other"),
        TaskId(7) => Some("kworker/u2:1"),
        TaskId(8) => Some("jbd2/nullb0-8"),
        _ => None,
    }
}

type Lookup = fn(TaskId, TimeNs) -> Option<&'static str>;

fn fold() -> Originators<Lookup> {
    Originators::new(names as Lookup, Sizes::default().with_block(DISK, 1024))
}

fn file(step: FileStep, offset: u64, bytes: u64, block: u64) -> FileEvent {
    FileEvent { block, ..testing::file(step, Some(DISK), 12, offset, bytes) }
}

fn bio(rwbs: &str, sector: u64, bytes: u64) -> BlockEvent {
    testing::block(BlockAction::Queue, DISK, rwbs, sector, bytes)
}

#[test]
fn a_page_leads_to_who_dirtied_it() {
    let mut fold = fold();
    let t = TimeNs(0);
    fold.file(&file(FileStep::Write, 0, 8192, 0), TaskId(1), t);
    fold.file(&file(FileStep::Write, 4096, 100, 0), TaskId(2), t);
    fold.file(&file(FileStep::Write, 8192, 4096, 0), TaskId(2), t);
    // Twelve blocks of 1 KiB from block 100 on.
    fold.file(&file(FileStep::Extent, 0, 12, 100), TaskId(7), t);
    let owner = fold.queue(&bio("W", 200, 12288), TaskId(7), t);
    assert_eq!(fold.name(owner), "(several)");
    let found = fold.finish();
    let written = found.written().expect("known");
    assert_eq!((written.one_bytes, written.shared_bytes, written.mixed_bios), (8192, 4096, 1));
    let of = |name: &str| found.originators.iter().find(|o| o.name == name).map_or(0, |o| o.written_bytes);
    assert_eq!((of("app (1)"), of("other (2)"), of("(shared page)")), (4096, 4096, 4096));
    assert_eq!(found.originators[0].carriers[0].carrier, "kworker/u2:1 (7)");
    assert_eq!(found.files, [FileBytes { device: "254:0".into(), inode: 12, path: None, written_bytes: 12288 }]);
}

#[test]
fn a_discard_moves_no_bytes() {
    let mut fold = fold();
    // A read, a discard, a secure erase, a write of zeroes, a zone append.
    for (rwbs, bytes) in [("R", 4096), ("D", 1 << 30), ("DE", 1 << 20), ("WZ", 1 << 16), ("ZA", 8192)] {
        fold.queue(&bio(rwbs, 8, bytes), TaskId(1), TimeNs(0));
    }
    let found = fold.finish();
    let app = &found.originators[0];
    let covered = (1 << 30) + (1 << 20) + (1 << 16);
    assert_eq!((app.read_bytes, app.written_bytes, app.covered_bytes), (4096, 8192, covered));
}

#[test]
fn without_extents_the_file_being_written_back_names_them() {
    let mut fold = fold();
    let t = TimeNs(0);
    fold.file(&file(FileStep::Dirtied, 0, 4096, 0), TaskId(1), t);
    fold.file(&file(FileStep::WritebackBegin, 0, 0, 0), TaskId(7), t);
    let owner = fold.queue(&bio("W", 8, 4096), TaskId(7), t);
    assert_eq!(fold.name(owner), "app (1)");
    fold.file(&file(FileStep::WritebackEnd, 0, 0, 0), TaskId(7), t);
    let owner = fold.queue(&bio("W", 8, 4096), TaskId(7), t);
    assert_eq!(fold.name(owner), "kworker/u2:1 (7)");
    let written = fold.finish().written().expect("known");
    assert_eq!((written.one_bytes, written.unknown_bytes), (4096, 4096));
}

#[test]
fn a_bio_is_of_the_file_that_lies_there_or_that_its_thread_handles() {
    let mut fold = fold();
    let t = TimeNs(0);
    assert_eq!(fold.file_of(&bio("R", 8, 4096), TaskId(1)), None);
    let here = file(FileStep::Read, 0, 4096, 0);
    let this = Some(here.file());
    fold.file(&here, TaskId(1), t);
    assert_eq!(fold.file_of(&bio("R", 8, 4096), TaskId(1)), this);
    assert_eq!(fold.file_of(&bio("R", 8, 4096), TaskId(2)), None, "another thread");
    assert_eq!(fold.file_of(&bio("RM", 8, 4096), TaskId(1)), None, "metadata");
    assert_eq!(fold.file_of(&bio("W", 8, 4096), TaskId(1)), None, "it reads");
    assert_eq!(fold.file_of(&bio("DS", 8, 4096), TaskId(1)), None, "blocks of another file, which was deleted");
    fold.file(&file(FileStep::WritebackBegin, 0, 0, 0), TaskId(7), t);
    assert_eq!(fold.file_of(&bio("W", 8, 4096), TaskId(7)), this);
    fold.file(&file(FileStep::WritebackEnd, 0, 0, 0), TaskId(7), t);
    assert_eq!(fold.file_of(&bio("W", 8, 4096), TaskId(7)), None);
    let elsewhere = FileEvent { device: Some(Device::new(0, 2)), ..here };
    fold.file(&elsewhere, TaskId(1), t);
    assert_eq!(fold.file_of(&bio("R", 8, 4096), TaskId(1)), None, "a file of another device");
}

#[test]
fn reads_direct_writes_and_journals_are_their_carriers() {
    let mut fold = fold();
    let t = TimeNs(0);
    let reader = fold.queue(&bio("RA", 8, 4096), TaskId(2), t);
    let direct = fold.queue(&bio("WS", 8, 4096), TaskId(1), t);
    let journal = fold.queue(&bio("WS", 8, 4096), TaskId(8), t);
    assert_eq!(
        [reader, direct, journal].map(|o| fold.name(o)),
        ["other (2)", "app (1)", "ext4 journal [jbd2/nullb0-8]"]
    );
    let written = fold.finish().written().expect("known");
    assert_eq!((written.direct_bytes, written.kernel_bytes), (4096, 4096));
    let metadata = fold.queue(&bio("WM", 8, 4096), TaskId(7), t);
    assert_eq!(fold.name(metadata), "(metadata)");
}

#[test]
fn blocks_that_are_given_out_anew_belong_to_the_new_file() {
    let mut fold = fold();
    let t = TimeNs(0);
    fold.file(&file(FileStep::Extent, 0, 16, 100), TaskId(7), t);
    fold.file(&FileEvent { inode: 99, ..file(FileStep::Extent, 0, 4, 104) }, TaskId(7), t);
    let at = |block: u64| match fold.at(DISK, block * 1024) {
        At::File(file, byte, left) => Some((file.inode, byte, left)),
        At::Unknown(_) => None,
    };
    assert_eq!((at(100), at(104), at(108)), (Some((12, 0, 4096)), Some((99, 0, 4096)), Some((12, 8192, 8192))));
    assert_eq!((at(99), at(116)), (None, None));
}

#[test]
fn what_is_too_much_to_remember_is_counted() {
    let mut fold = fold();
    for i in 0..MAX_FILES as u64 + 10 {
        fold.file(&FileEvent { inode: i, ..file(FileStep::Dirtied, 0, 1, 0) }, TaskId(1), TimeNs(i));
    }
    for tid in 0..MAX_CARRIERS as u32 + 5 {
        fold.file(&file(FileStep::WritebackBegin, 0, 0, 0), TaskId(10_000 + tid), TimeNs(0));
        // The same again is not one more.
        fold.file(&file(FileStep::WritebackBegin, 0, 0, 0), TaskId(10_000), TimeNs(0));
    }
    for i in 0..MAX_PARTITIONS as u32 + 3 {
        fold.remapped(DISK, Device(i), 100, 10);
    }
    assert_eq!(fold.finish().files_given_up, 18);
}

/// Ranges, not their pages, are what is worked on and remembered: this would take for ever.
#[test]
fn ranges_of_any_length_are_one_piece() {
    let mut fold = fold();
    let t = TimeNs(0);
    for tid in 0..1000 {
        fold.file(&file(FileStep::Write, 0, u64::MAX, 0), TaskId(20 + tid), t);
        fold.file(&file(FileStep::Extent, 0, u64::MAX, u64::from(tid)), TaskId(7), t);
        let unmapped = bio("W", 1 << 40, u64::MAX / 2);
        fold.queue(&BlockEvent { device: Device(3), ..unmapped }, TaskId(7), t);
        fold.queue(&unmapped, TaskId(7), t);
    }
    let found = fold.finish();
    // What is on its way is dirtied anew by the next one.
    assert_eq!((found.written_one_bytes.known(), found.pages_given_up), (Some(&u64::MAX), 0));
}

#[test]
fn a_write_in_too_many_pieces_is_unknown_beyond_them() {
    let mut fold = fold();
    let t = TimeNs(0);
    fold.file(&file(FileStep::Extent, 0, 1 << 20, 0), TaskId(7), t);
    for page in 0..4000 {
        fold.file(&file(FileStep::Write, page * 8192, 4096, 0), TaskId(1), t);
    }
    let owner = fold.queue(&bio("W", 0, 4000 * 8192), TaskId(7), t);
    assert_eq!(fold.name(owner), "(several)");
    let found = fold.finish();
    // A run and the gap before the next one are 2 pages.
    let followed = MOST_PIECES as u64;
    assert_eq!(found.written_one_bytes.known(), Some(&(followed * 4096)));
    assert_eq!(found.pages_given_up, 8000 - (2 * followed - 1));
}

/// Dirty pages that were never seen written: the oldest are forgotten, one by one.
#[test]
fn the_oldest_dirty_pages_make_room() {
    let mut fold = fold();
    let t = TimeNs(0);
    for page in 0..MAX_RUNS as u64 + 100 {
        fold.file(&file(FileStep::Dirtied, page * 8192, 4096, 0), TaskId(1), t);
    }
    fold.file(&file(FileStep::Extent, 0, 1 << 40, 0), TaskId(7), t);
    let newest = fold.queue(&bio("W", (MAX_RUNS as u64 + 99) * 16, 4096), TaskId(7), t);
    assert_eq!((fold.name(newest).as_str(), fold.finish().pages_given_up), ("app (1)", 100));
}

#[test]
fn a_partition_is_found_by_its_bios_way_down() {
    let mut fold = fold();
    let part = Device(DISK.0 + 1);
    let on_part = FileEvent { device: Some(part), ..file(FileStep::Extent, 0, 4, 10) };
    fold.file(&on_part, TaskId(7), TimeNs(0));
    fold.remapped(DISK, part, 2048 + 80, 80);
    assert!(matches!(fold.at(DISK, (2048 * 512) + 10 * 4096), At::File(FileId { inode: 12, .. }, ..)));
}

/// ext4 with `nodelalloc` allocates each block when it is written.
#[test]
fn extents_of_one_block_each_are_one_where_they_continue() {
    let mut fold = fold();
    let t = TimeNs(0);
    for block in 0..4 * MOST_PIECES as u64 {
        fold.file(&file(FileStep::Extent, block, 1, block), TaskId(7), t);
        fold.file(&file(FileStep::Write, block * 1024, 1024, 0), TaskId(1), t);
    }
    let owner = fold.queue(&bio("W", 0, 4 * MOST_PIECES as u64 * 1024), TaskId(7), t);
    assert_eq!(fold.name(owner), "app (1)");
    assert_eq!(fold.finish().pages_given_up, 0);
}

/// `cp` writes two pages, which an `fsync` writes back; another program then writes the same pages with `O_DIRECT`.
#[test]
fn a_direct_write_over_clean_pages_is_its_own() {
    let mut fold = fold();
    let t = TimeNs(0);
    fold.file(&file(FileStep::Dirtied, 0, 8192, 0), TaskId(1), t);
    fold.file(&file(FileStep::Extent, 0, 8, 100), TaskId(1), t);
    fold.call("sys_enter_fsync", TaskId(1));
    let written_back = fold.queue(&bio("WS", 200, 8192), TaskId(1), t);
    fold.call("sys_exit_fsync", TaskId(1));
    fold.call("sys_enter_pwrite64", TaskId(2));
    let direct = fold.queue(&bio("WS", 200, 8192), TaskId(2), t);
    fold.call("sys_exit_pwrite64", TaskId(2));
    assert_eq!([written_back, direct].map(|owner| fold.name(owner)), ["app (1)", "other (2)"]);
    let found = fold.finish();
    assert_eq!(found.files, [FileBytes { device: "254:0".into(), inode: 12, path: None, written_bytes: 8192 }]);
    let bytes = DirectBytes { written: 8192, ..DirectBytes::default() };
    assert_eq!(fold.direct(|_| true), [DirectUse { who: "other".into(), device: DISK, inode: Some(12), bytes }]);
    assert!(fold.direct(|owner| owner != direct).is_empty(), "not shown");
}

#[test]
fn what_goes_past_the_page_cache_is_known_by_its_call() {
    let here = file(FileStep::Cached, 0, 4096, 0);
    let sums = |read, written, may_read, may_write| DirectBytes { read, written, may_read, may_write };
    // The call, a step of the file in it, the bio: in a file's extent or not.
    for (call, step, rwbs, sector, expected) in [
        (Some("pread64"), None, "R", 200, Some((Some(12), sums(4096, 0, false, false)))),
        (Some("pread64"), Some(here), "R", 200, None),
        (Some("io_submit"), None, "WS", 200, Some((Some(12), sums(0, 4096, false, false)))),
        (Some("pwrite64"), None, "WS", 8, Some((None, sums(0, 4096, false, false)))),
        // Metadata, and another file.
        (
            Some("pread64"),
            Some(FileEvent { device: Some(Device(3)), ..here }),
            "R",
            200,
            Some((Some(12), sums(4096, 0, false, false))),
        ),
        (
            Some("pread64"),
            Some(FileEvent { inode: 13, ..here }),
            "R",
            200,
            Some((Some(12), sums(4096, 0, false, false))),
        ),
        (Some("pread64"), Some(FileEvent { inode: 13, ..here }), "R", 8, None),
        (Some("pwrite64"), None, "R", 200, None),
        (Some("pwrite64"), None, "RM", 8, None),
        (Some("fsync"), None, "WS", 200, None),
        // No call is recorded: a direct write, or pages that became dirty before the trace.
        (None, None, "WS", 200, Some((Some(12), sums(0, 0, false, true)))),
        (None, None, "WS", 8, None),
        (None, None, "R", 200, Some((Some(12), sums(0, 0, true, false)))),
        (None, Some(here), "R", 200, None),
    ] {
        let mut fold = fold();
        fold.file(&file(FileStep::Extent, 0, 8, 100), TaskId(1), TimeNs(0));
        if let Some(call) = call {
            fold.call(&format!("sys_enter_{call}"), TaskId(1));
        }
        if let Some(step) = step {
            fold.file(&step, TaskId(1), TimeNs(0));
        }
        fold.queue(&bio(rwbs, sector, 4096), TaskId(1), TimeNs(0));
        let found = fold.direct(|_| true);
        let found = found.first().map(|one| (one.inode, one.bytes));
        assert_eq!(found, expected, "{call:?} {rwbs} {sector}");
    }
}

/// A loop device's worker wrote one of two pages that one bio writes back: its bytes counted at the loop device.
#[test]
fn only_the_part_of_a_loop_device_counts_there() {
    let mut fold = fold();
    let t = TimeNs(0);
    let owner = fold.task(TaskId(2), t).0;
    fold.file(&file(FileStep::Dirtied, 0, 4096, 0), TaskId(1), t);
    fold.dirtied_for(&file(FileStep::Dirtied, 4096, 4096, 0), owner);
    fold.file(&file(FileStep::Extent, 0, 8, 100), TaskId(7), t);
    fold.queue(&bio("W", 200, 8192), TaskId(7), t);
    let all: Vec<_> = fold.finish().originators.into_iter().map(|one| (one.name, one.written_bytes)).collect();
    assert_eq!(all, [("app (1)".to_owned(), 4096)]);
}

/// A direct write first writes back the dirty pages of its range: those bytes are of the program that wrote them.
#[test]
fn a_direct_write_over_dirty_pages_writes_them_back_first() {
    let mut fold = fold();
    let t = TimeNs(0);
    fold.file(&file(FileStep::Dirtied, 0, 8192, 0), TaskId(1), t);
    fold.file(&file(FileStep::Extent, 0, 8, 100), TaskId(2), t);
    fold.call("sys_enter_pwrite64", TaskId(2));
    let owners = [(); 2].map(|()| fold.queue(&bio("WS", 200, 8192), TaskId(2), t));
    fold.call("sys_exit_pwrite64", TaskId(2));
    assert_eq!(owners.map(|owner| fold.name(owner)), ["app (1)", "other (2)"]);
    let bytes = DirectBytes { written: 8192, ..DirectBytes::default() };
    assert_eq!(fold.direct(|_| true), [DirectUse { who: "other".into(), device: DISK, inode: Some(12), bytes }]);
}
