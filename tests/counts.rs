//! One event is one array command: against a ground truth that does not come from the tracer, on every board and kernel.

use flashscope_tests::{Booted, Plan, boards_and_kernels, events, raw};
use flashscope_trace::{EventKind, FlashOp, Loss};

const PAGE: u64 = 2048;
const PAGES_PER_BLOCK: u64 = 64;

/// Steps of one verb, in plan order.
fn verb<'a>(booted: &'a Booted, name: &str) -> Vec<&'a flashscope_trace::Step> {
    booted.session.steps.iter().filter(|step| step.name == name).collect()
}

/// In one boot: whole, and with the ring too small, where what is seen and what is lost make the whole.
#[test]
fn page_reads_programs_and_erases_are_exactly_counted_on_every_kernel() {
    const MANY: u64 = 6000;
    for (board, kernel) in boards_and_kernels() {
        // 3 blocks and a bit: a last page that is not full, a block that is not full.
        let image: Vec<u8> = (0..3 * PAGES_PER_BLOCK * PAGE + 5 * PAGE + 100).map(|n| ((n * 31) >> 3) as u8).collect();
        let pages = (image.len() as u64).div_ceil(PAGE);
        let mut plan = Plan::new(&board, &kernel);
        plan.parts = &[256];
        plan.files = vec![("/data", 0o644, image)];
        plan.lines = [
            "record-start --mode ring",
            "nand-erase 0 0 17",
            "nand-write 0 /data",
            &raw("reads", 300, PAGE, ""),
            &raw("long", 4, 16 * PAGE, ""),
            "record-stop",
            "record-start --mode ring --ring 16",
            &raw("many", MANY, PAGE, ""),
            "record-stop",
        ]
        .map(str::to_owned)
        .to_vec();
        let booted = plan.boot();
        let trace = booted.recording(0);

        let erase = booted.counts_of(&trace, verb(&booted, "nand-erase")[0]).total;
        assert_eq!((erase.reads, erase.programs, erase.erases), (0, 0, 17), "{board} {kernel}: erase 17 blocks");
        let write = booted.counts_of(&trace, verb(&booted, "nand-write")[0]).total;
        assert_eq!(
            (write.reads, write.programs, write.erases),
            (0, pages, 0),
            "{board} {kernel}: program {pages} pages"
        );
        let reads = booted.counts_of(&trace, booted.step("reads")).total;
        assert_eq!((reads.reads, reads.programs, reads.erases), (300, 0, 0), "{board} {kernel}: read 300 pages");
        // What the kernel's own bench says it requested.
        assert_eq!(booted.json("reads")["pages_touched"], 300);
        let long = booted.counts_of(&trace, booted.step("long")).total;
        assert_eq!(long.reads, 64, "{board} {kernel}: 4 reads of 16 pages");

        // Nothing was lost, by the kernel's counts and by the cross-count at the MTD layer.
        let losses = trace.losses();
        for (loss, count) in losses.iter() {
            assert_eq!(count, 0, "{board} {kernel}: {}", loss.name());
        }
        let check = &trace.stats()["crosscheck"];
        assert_eq!(check["programs_expected"], pages, "{board} {kernel}: {check}");
        assert_eq!(check["programs_seen"], pages, "{board} {kernel}: {check}");
        assert_eq!(check["erases_expected"], 17, "{board} {kernel}: {check}");
        println!("{board} {kernel}: 17 erases, {pages} programs, 364 reads: exact");

        let trace = booted.recording(1);
        let seen = booted.counts_of(&trace, booted.step("many")).total.reads;
        let lost = trace.losses().get(Loss::EventsOverwritten);
        assert!(lost > 0, "{board} {kernel}: a ring of 16 KiB cannot hold {MANY} events");
        assert_eq!(seen + lost, MANY, "{board} {kernel}: seen {seen}, lost {lost}");
        println!("{board} {kernel}: seen {seen} + lost {lost} = {MANY}");
    }
}

#[test]
fn partial_spare_area_and_repeated_reads_are_counted_apart() {
    for (board, kernel) in [("armv7", "6.1"), ("armv7", "newest"), ("x86_64", "6.1")] {
        let mut plan = Plan::new(board, kernel);
        plan.parts = &[64];
        plan.files = vec![("/data", 0o644, (0..40 * PAGE).map(|n| (n % 251) as u8).collect())];
        plan.lines = [
            "nand-write 0 /data",
            "record-start --mode ring --detail offset",
            &raw("full", 40, PAGE, ""),
            &raw("partial", 100, 512, " --stride 512"),
            &raw("oob", 30, 64, &format!(" --stride {PAGE} --oob")),
            &raw("same", 10, PAGE, " --stride 0"),
            "record-stop",
        ]
        .map(str::to_owned)
        .to_vec();
        let booted = plan.boot();
        let trace = booted.recording(0);
        let of = |step: &str| booted.counts_of(&trace, booted.step(step)).reads;

        let full = of("full");
        assert_eq!((full.full_page, full.partial, full.oob, full.repeats), (40, 0, 0, 0), "{board} {kernel}: {full:?}");
        // Software ECC reads a part of a page by commands of its own: 512 bytes are at least one array read.
        let partial = of("partial");
        assert_eq!((partial.full_page, partial.oob, partial.not_recorded), (0, 0, 0), "{board} {kernel}: {partial:?}");
        assert!(partial.partial >= 100, "{board} {kernel}: {partial:?}");
        let oob = of("oob");
        assert_eq!((oob.full_page, oob.partial, oob.oob), (0, 0, 30), "{board} {kernel}: {oob:?}");
        // Ten reads of one page: nine of them repeat the one before, as a driver's retry would.
        let same = of("same");
        assert_eq!((same.full_page, same.repeats), (10, 9), "{board} {kernel}: {same:?}");
        println!("{board} {kernel}: full {full:?}, partial {partial:?}, oob {oob:?}, same {same:?}");
    }
}

/// UBI reads again what ECC could not correct: `ubi_io_read` tries three times more (`UBI_IO_RETRIES`, drivers/mtd/ubi/ubi.h,
/// the same from 5.10 to 7.2). It looks for two headers in an erase block: at its begin, and at the next sub-page.
#[test]
fn retries_of_the_kernel_are_events_and_labelled() {
    const RETRIES: u64 = 3;
    const HEADERS: u64 = 2;
    const BLOCK: u64 = 5;
    for (board, kernel) in [("armv7", "6.1"), ("armv7", "newest"), ("x86_64", "6.1")] {
        // The first page of a block is programmed; whatever reads it gets bytes that fit no ECC.
        let page = BLOCK * PAGES_PER_BLOCK;
        let faults = format!("gravepages={page}:0");
        let mut plan = Plan::new(board, kernel);
        plan.parts = &[64];
        plan.faults = &faults;
        plan.modules = &["ubi"];
        plan.files = vec![("/data", 0o644, vec![0xa5; PAGE as usize])];
        plan.lines = [
            &format!("nand-write 0 /data {}", page * PAGE),
            "record-start --mode ring --detail offset",
            "ubi-attach 0",
            "record-stop",
        ]
        .map(str::to_owned)
        .to_vec();
        let booted = plan.boot();
        let trace = booted.recording(0);
        let mut reads = Vec::new();
        events(&trace, |event| {
            if let EventKind::Flash(access) = event.kind
                && access.op == FlashOp::Read
                && access.page == page
            {
                reads.push(access.offset_bytes.expect("a column"));
            }
        });
        let expected = [vec![0; 1 + RETRIES as usize], vec![512; 1 + RETRIES as usize]].concat();
        assert_eq!(reads, expected, "{board} {kernel}: columns of the bad page's reads");
        let attach = booted.counts_of(&trace, verb(&booted, "ubi-attach")[0]).reads;
        assert_eq!(attach.repeats, HEADERS * RETRIES, "{board} {kernel}: {attach:?}");
        println!("{board} {kernel}: {HEADERS} headers, each read once and {RETRIES} times again: {attach:?}");
    }
}
