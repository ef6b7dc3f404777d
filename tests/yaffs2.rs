//! YAFFS2 of ours (`kernel/yaffs2/`): real work on boards, an independent reader, power cuts and damaged flash.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::flash::{ActivityKind, OpCounts, Yaffs2Fold};
use flashscope_targets::NoProgress;
use flashscope_targets::board;
use flashscope_tests::{Booted, Plan, TempDir, build_modules_like, events, geometry, output, skip, stdout, top, work};

/// A boot with a script of tests/yaffs2 and programs compiled from there, on a chip without delays: nothing is timed here.
fn boot(board: &str, kernel: &str, parts: &[u64], packages: &[&str], programs: &[&str], script: &str) -> Booted {
    let mut plan = Plan::new(board, kernel);
    plan.parts = parts;
    plan.faults = "do_delays=0";
    plan.packages = packages;
    run(plan, programs, script)
}

/// The same of a plan that says the rest; lines of its own come after the script.
fn run<'a>(mut plan: Plan<'a>, programs: &[&'a str], script: &str) -> Booted {
    let board = plan.board;
    plan.modules = &["mtdblock", "yaffs2"];
    let dir = TempDir::new("yaffs2");
    for name in programs {
        plan.files.push((name, 0o755, work(board, &format!("yaffs2{name}.c"), dir.path())));
    }
    let (file, arguments) = script.split_once(' ').unwrap_or((script, ""));
    let text = std::fs::read(top().join("tests/yaffs2").join(file)).expect("a script");
    plan.files.push(("/script", 0o755, text));
    let more = std::mem::take(&mut plan.lines);
    plan.lines = vec![
        "device-wait /dev/mtdblock0 5000".to_owned(),
        format!("-run script /bin/sh /script {arguments}").trim_end().to_owned(),
        "-run dmesg dmesg".to_owned(),
    ];
    plan.lines.extend(more);
    plan.boot()
}

/// What a script printed; it has to have gone well, and the kernel has to have had nothing to complain of.
fn said(booted: &Booted, what: &str) -> String {
    let step = booted.step("script");
    let text = String::from_utf8_lossy(&step.stdout).into_owned();
    let log = String::from_utf8_lossy(&booted.step("dmesg").stdout).into_owned();
    let told: String =
        log.lines().filter(|line| line.contains("yaffs2")).fold(String::new(), |all, line| all + line + "\n");
    assert_eq!(step.status, Some(0), "{what}: {text}\n{}\n{told}", String::from_utf8_lossy(&step.stderr));
    for sign in ["WARNING:", "BUG:", "Oops", "Call trace", "inconsistency noticed", "blocked for more than"] {
        assert!(!log.contains(sign), "{what}: {sign} in the kernel's log:\n{log}");
    }
    text
}

#[test]
fn what_is_written_is_kept_on_every_kernel() {
    let mut all = vec![
        ("armv7", "5.10", "/dev/mtdblock0 noatime make"),
        ("armv7", "6.1", "/dev/mtdblock0 noatime full make"),
        ("armv7", "newest", "mtd0 noatime make"),
        ("x86_64", "6.12", "/dev/mtdblock0 noatime make"),
        ("x86_64", "newest", "/dev/mtdblock0 noatime make"),
        ("armv7", "6.1", "mtd0 inband-tags full make"),
        ("armv7", "6.1", "mtd0 no-cache,disable-summary,lazy-loading-off,tags-ecc-off make"),
    ];
    // The others of both boards, where somebody has the time: each version is among those above.
    if number("FLASHSCOPE_TEST_ALL_KERNELS", 0) > 0 {
        all.push(("armv7", "6.12", "/dev/mtdblock0 noatime make"));
        all.push(("x86_64", "5.10", "/dev/mtdblock0 noatime make"));
        all.push(("x86_64", "6.1", "/dev/mtdblock0 noatime make"));
    }
    for (board, kernel, arguments) in all {
        let booted = boot(board, kernel, &[256], &["busybox"], &["/work"], &format!("work.sh {arguments}"));
        let text = said(&booted, &format!("{board} {kernel} {arguments}"));
        assert!(text.contains("make: 0 failures") && text.contains("checkpoint valid"), "{text}");
        assert_eq!(text.matches("verify: 0 failures").count(), 4, "{text}");
        assert!(text.contains("unreadable 0;"), "{text}");
        println!("{board} {kernel} {arguments}: {} lines, no failure", text.lines().count());
    }
}

#[test]
fn a_power_cut_leaves_every_file_old_or_new() {
    // Boots of so many, each with a seed of its own: FLASHSCOPE_TEST_SEED is the first, to go on where a run was ended.
    let (all, a_boot) = (number("FLASHSCOPE_TEST_CUTS", 12), 50);
    let first = number("FLASHSCOPE_TEST_SEED", 1);
    for boot in 0..all.div_ceil(a_boot) {
        let (cuts, seed) = (a_boot.min(all - boot * a_boot), first + boot);
        // Both partitions have bad blocks; what wears out is of the first, which is written to.
        let faults = faults(seed, 36, &[36 + seed % 18, 54 + seed % 17]);
        let mut plan = Plan::new("armv7", "6.1");
        plan.parts = &[36, 36];
        plan.faults = &faults;
        plan.packages = &["busybox"];
        plan.timeout = Duration::from_secs(3600);
        let booted = run(plan, &["/cut"], &format!("cut.sh {cuts} {seed}"));
        let text = said(&booted, &format!("power cuts of seed {seed} ({faults})"));
        assert!(text.contains(&format!("{cuts} cuts of seed {seed},")) && text.contains(" 0 failures"), "{text}");
        println!("{faults}: {text}");
    }
}

/// nandsim's faults: a bit that flips in one read of a thousand, and of a partition's blocks, distinguished by fifths, one that is
/// bad from the start, two with a page that wears out after a few programs, two that wear out after a few erases. What `more`
/// names is bad as well.
fn faults(seed: u64, blocks: u64, more: &[u64]) -> String {
    let at = |n: u64, of: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(n as u32 * 11) >> 16) % of;
    let block = |n: u64| n * (blocks / 5) + at(n, blocks / 5);
    let page = |n: u64| block(n) * 64 + at(n + 5, 64);
    let bad: Vec<String> = [block(0)].iter().chain(more).map(u64::to_string).collect();
    format!(
        "do_delays=0 bitflips=1 badblocks={} weakpages={}:1,{}:2 weakblocks={}:1,{}:2",
        bad.join(","),
        page(1),
        page(2),
        block(3),
        block(4)
    )
}

#[test]
fn torture_leaves_what_was_written() {
    // In CI on one processor, in exact time; for as long as somebody asks on two, in the host's, with a fresh chip every two
    // minutes: a block is retired after its fourth page with a bit to restore while there are others to spare, and at nandsim's rate
    // no chip lives for long. 160 blocks hold what the workers want to keep, with fewer the device is full nearly all the time.
    let all = number("FLASHSCOPE_TEST_TORTURE_S", 2);
    let long = all > 60;
    let seconds = all.min(120);
    let blocks = number("FLASHSCOPE_TEST_BLOCKS", if long { 160 } else { 32 });
    let (kernel, source) = if long { ("newest", "/dev/mtdblock0") } else { ("6.1", "mtd0") };
    // A kernel of one's own, for amd64, with this module in it: one that checks more than Debian's.
    let own = std::env::var("FLASHSCOPE_TEST_KERNEL").ok();
    let (board, kernel) = own.as_deref().map_or(("armv7", kernel), |dir| ("x86_64", dir));
    let first = number("FLASHSCOPE_TEST_SEED", 1);
    for seed in first..first + all.div_ceil(seconds) {
        let (parts, faults) = ([blocks], faults(seed, blocks, &[]));
        let mut plan = Plan::new(board, kernel);
        plan.parts = &parts;
        plan.faults = &faults;
        plan.packages = &["busybox"];
        // QEMU's threads for two processors of x86-64 do not bear a kernel that patches its code (tests/flashmon.rs).
        plan.cpus = if long && own.is_none() { 2 } else { 1 };
        plan.in_host_time = own.is_some();
        plan.timeout = Duration::from_secs(if own.is_some() { 3600 } else { 1800 });
        let booted = run(plan, &["/torture"], &format!("torture.sh {source} noatime {seconds} {seed}"));
        let text = said(&booted, &format!("torture ({faults})"));
        assert!(text.contains("torture: 0 failures") && text.matches("verify: 0 failures").count() == 2, "{text}");
        println!("torture of seed {seed}, {seconds} s, {faults}: {text}");
        assert!(long || text.matches(", 0 without room").count() < 4, "the device was not full");
    }
}

/// How many, where somebody asks for more than CI has time for.
fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |value| value.parse().unwrap_or_else(|_| panic!("{variable}={value}?")))
}

#[test]
fn what_ecc_cannot_restore_is_an_error_and_never_other_data() {
    let booted = boot("armv7", "6.1", &[96, 64], &["busybox"], &["/damage", "/image"], "damage.sh");
    let text = said(&booted, "damaged flash");
    assert!(text.contains("all as it has to be") && !text.contains("FAILED"), "{text}");
    println!("{text}");
}

#[test]
fn reclaim_does_not_wait_for_the_lock() {
    let mut plan = Plan::new("armv7", "6.1");
    plan.parts = &[48];
    // Pages take 2 ms.
    plan.faults = "programm_delay=2000";
    plan.packages = &["busybox"];
    let text = said(&run(plan, &[], "reclaim.sh"), "reclaim");
    assert!(text.contains("200 inodes were evicted while it was written") && text.contains("all as it has"), "{text}");
    println!("{text}");
}

#[test]
fn the_same_core_on_the_host_and_sleuthkit_read_what_the_module_wrote() {
    let dir = TempDir::new("image");
    // The core here is of 64 bits: a board of 64 takes its checkpoint, and it the board's; one of 32 is scanned, both ways.
    for (board, checkpoint) in [("armv7", false), ("x86_64", true)] {
        images_are_exchanged(board, checkpoint, &dir);
    }
}

fn images_are_exchanged(board: &str, checkpoint: bool, dir: &TempDir) {
    let mut plan = Plan::new(board, "6.1");
    // Less than 60 blocks have no checkpoint.
    plan.parts = &[64, 64];
    plan.packages = &["busybox", "mtd-utils"];
    plan.faults = "do_delays=0";
    // What a script that failed did not make is missed after what it said.
    plan.lines = ["made.list", "changed", "changed.list", "image", "image.list", "sums"]
        .map(|name| format!("-get /{name}"))
        .to_vec();
    let core = core_on_host(board, dir);
    let made = dir.path().join("made");
    stdout(Command::new(&core).arg("make").arg(&made).arg("64"));
    plan.files.push(("/made", 0o644, std::fs::read(&made).expect("an image")));
    let booted = run(plan, &["/image"], "image.sh");
    let text = said(&booted, "images");
    println!("{board}: {}", text.trim());
    assert_eq!(!text.contains("checkpoint pages read 0"), checkpoint, "{board}: {text}");
    let log = String::from_utf8_lossy(&booted.step("dmesg").stdout).into_owned();
    assert_eq!(!log.contains("its checkpoint is of another word size"), checkpoint, "{board}: {log}");

    let file = |name: &str| -> Vec<u8> {
        let mut files = booted.session.steps.iter().flat_map(|step| &step.files);
        let file = files.find(|file| file.path == name).unwrap_or_else(|| panic!("no {name}"));
        booted.session.read_file(file, 128 << 20).expect("its bytes")
    };
    let sorted = |text: Vec<u8>| {
        let text = String::from_utf8(text).expect("UTF-8");
        // It is on no flash: each mount makes its own, at its own time.
        let kept = |line: &&str| !line.starts_with("/lost+found ");
        let mut lines: Vec<String> = text.lines().filter(kept).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for (image, list) in [("/made", "/made.list"), ("/changed", "/changed.list"), ("/image", "/image.list")] {
        let path = dir.path().join("here");
        let theirs = image != "/made";
        std::fs::write(&path, if theirs { file(image) } else { std::fs::read(&made).expect("an image") })
            .expect("an image");
        let by_core = output(Command::new(&core).arg("list").arg(&path));
        let told = String::from_utf8_lossy(&by_core.stderr).trim().to_owned();
        assert!(by_core.status.success(), "{board}: {image}: {told}");
        // Its own it takes, wherever it was made for.
        assert_eq!(told, if checkpoint || !theirs { "checkpoint read" } else { "scanned" }, "{board}: {image}");
        let by_core = sorted(by_core.stdout);
        assert!(by_core.len() > 100, "{board}: {image}: {by_core:?}");
        assert_eq!(by_core, sorted(file(list)), "{board}: {image}");
        println!(
            "{board}: {image}: {} names, the same by the module and by the core on the host; {told}",
            by_core.len()
        );
    }
    let image = dir.path().join("image");
    std::fs::write(&image, file("/image")).expect("an image");
    sleuthkit_reads(dir, &image, &String::from_utf8(file("/sums")).expect("UTF-8"));
}

/// The YAFFS2 core's files, which the module's build fetches.
fn core_files(board: &str) -> PathBuf {
    let board = board::load(board).expect("the board");
    let kernel = board.fetch("6.1", &NoProgress).expect("the kernel");
    board.prepare_modules(&kernel, &["yaffs2"], &NoProgress).expect("yaffs2");
    flashscope_targets::cache_dir().expect("a cache").join("sources/yaffs2")
}

/// The core with a glue over an image in a file.
fn core_on_host(board: &str, dir: &TempDir) -> PathBuf {
    let sources = core_files(board);
    let here = top().join("tests/yaffs2");
    let binary = dir.path().join("core");
    let entries = std::fs::read_dir(&sources).expect("the core's files");
    let files =
        entries.map(|entry| entry.expect("a file").path()).filter(|path| path.extension() == Some("c".as_ref()));
    let include = |path: &Path| format!("-I{}", path.display());
    let flags = [include(&here.join("core")), include(&here), include(&sources)];
    // The core's own files are not held to our warnings.
    let mut gcc = Command::new("gcc");
    stdout(gcc.args(["-O1", "-w"]).args(flags).arg("-o").arg(&binary).arg(here.join("core.c")).args(files));
    binary
}

fn sleuthkit_reads(dir: &TempDir, image: &Path, sums: &str) {
    if Command::new("fls").arg("-V").output().is_err() {
        return skip("fls is missing: install sleuthkit");
    }
    // NAME SUM lines, by the board's own tools from the mounted file system.
    let listed = stdout(Command::new("fls").args(["-f", "yaffs2", "-r", "-F", "-u", "-p"]).arg(image));
    let mut read = 0;
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ./").expect("a sum and a name");
        let inode = listed
            .lines()
            .find_map(|entry| entry.split_once(":\t").filter(|(_, path)| *path == name))
            .map(|(entry, _)| entry.rsplit(' ').next().expect("an inode").to_owned())
            .unwrap_or_else(|| panic!("{name} is not listed:\n{listed}"));
        let bytes = output(Command::new("icat").args(["-f", "yaffs2"]).arg(image).arg(&inode)).stdout;
        let path = dir.path().join("file");
        std::fs::write(&path, bytes).expect("a file");
        let found = stdout(Command::new("md5sum").arg(&path));
        assert_eq!(found.split(' ').next(), Some(sum), "{name}");
        read += 1;
    }
    assert_eq!(read, 205, "{sums}");
    println!("{read} files, each with the bytes that the module gave");
}

#[test]
fn a_link_whose_file_is_lost_is_an_error_and_can_be_removed() {
    let text = said(&boot("armv7", "6.1", &[36], &["busybox"], &["/lost"], "lost.sh"), "a lost file");
    println!("{text}");
    assert!(text.contains("all as it has to be") && !text.contains("FAILED"), "{text}");
}

#[test]
fn hostile_images_are_errors_and_no_oopses() {
    if !cfg!(target_arch = "x86_64") {
        return skip("User-mode Linux is built for x86_64 hosts");
    }
    // Each image is made of its number alone: FLASHSCOPE_TEST_SEED is the first.
    let (first, count) = (number("FLASHSCOPE_TEST_SEED", 1), number("FLASHSCOPE_TEST_IMAGES", 200));
    let mut command = Command::new(top().join("tests/yaffs2/hostile/run"));
    command.env("CORE", core_files("armv7")).args([first.to_string(), count.to_string()]);
    let text = stdout(&mut command);
    println!("{text}");
    assert!(text.ends_with(&format!("all {count} images\n")), "{text}");
    // Mutations that no mount survives would test nothing behind it.
    let mounted = text.lines().find_map(|line| line.strip_prefix("mounted ")?.split(' ').next()?.parse::<u64>().ok());
    assert!(mounted.is_some_and(|mounted| mounted * 10 > count * 9), "{text}");
    for error in ["EIO", "EUCLEAN"] {
        assert!(text.contains(error), "no image gave {error}: {text}");
    }
}

#[test]
fn a_chip_that_stops_to_answer_loses_nothing() {
    let dir = TempDir::new("dying");
    let mut plan = Plan::new("armv7", "6.1");
    // Whoever cannot write a page retires a block with every attempt.
    plan.parts = &[100];
    plan.faults = "do_delays=0";
    plan.packages = &["busybox"];
    plan.files.push(("/dying.ko", 0o644, dying_chip(dir.path())));
    let text = said(&run(plan, &["/syncfs"], "dying.sh"), "a dying chip");
    println!("{text}");
    assert!(text.contains("all as it has to be") && !text.contains("FAILED"), "{text}");
}

/// The module of tests/yaffs2/driver.
fn dying_chip(dir: &Path) -> Vec<u8> {
    for file in ["Kbuild", "dying.c"] {
        std::fs::copy(top().join("tests/yaffs2/driver").join(file), dir.join(file)).expect("a copy");
    }
    build_modules_like("yaffs2", dir);
    std::fs::read(dir.join("dying.ko")).expect("a module")
}

#[test]
fn a_trace_names_what_yaffs2_does_of_its_own() {
    let dir = TempDir::new("phases");
    let mut plan = Plan::new("armv7", "6.1");
    plan.parts = &[64];
    plan.faults = "do_delays=0";
    plan.packages = &["busybox"];
    plan.modules = &["mtdblock", "yaffs2"];
    plan.files.push(("/over", 0o755, work("armv7", "yaffs2/over.c", dir.path())));
    plan.files.push(("/script", 0o755, std::fs::read(top().join("tests/yaffs2/phases.sh")).expect("a script")));
    plan.lines =
        ["record-start --mode ring --ring 8192", "-run script /bin/sh /script", "record-stop", "-run dmesg dmesg"]
            .map(str::to_owned)
            .to_vec();
    let booted = plan.boot();
    let text = said(&booted, "phases");
    assert!(text.ends_with("all as it has to be\n"), "{text}");
    let trace = booted.recording(0);
    assert!(trace.losses().is_empty(), "{:?}", trace.losses());
    let mut fold = Yaffs2Fold::new(&[(0, geometry(&trace))], &[(0, 0, 64)], |tid, time| trace.comm(tid, time));
    events(&trace, |event| fold.event(event));
    let found = fold.finish();
    let counts = |kind: ActivityKind| {
        let mut sum = OpCounts::default();
        found.phases.iter().filter(|one| one.kind == kind).for_each(|one| sum += one.counts);
        sum
    };
    for one in &found.phases {
        let tasks: Vec<&str> = one.tasks.iter().map(|task| task.task.as_str()).collect();
        println!("{}: {:?} by {}", one.kind.as_str(), one.counts, tasks.join(", "));
    }
    println!("{text}");
    let [checkpoint_read, checkpoint_written, summary_read, summary_written] = sums(&text, "checkpoint pages read");
    assert_eq!(counts(ActivityKind::CheckpointRead).reads, checkpoint_read);
    assert_eq!(counts(ActivityKind::CheckpointWrite).programs, checkpoint_written);
    assert_eq!(counts(ActivityKind::SummaryRead).reads, summary_read);
    assert_eq!(counts(ActivityKind::SummaryWrite).programs, summary_written);
    assert!([checkpoint_read, checkpoint_written, summary_read, summary_written].iter().all(|&n| n > 0));
    let (thread, writers) = (counts(ActivityKind::CollectionByThread), counts(ActivityKind::CollectionByWriter));
    let [.., erased, _] = sums::<4>(&text, "pages read");
    assert_eq!(thread.erases + writers.erases + counts(ActivityKind::CheckpointErase).erases, erased);
    let [_, _, moved, _] = sums(&text, "blocks collected");
    println!("moved: {moved} by the mounts' count, {} and {} by the trace", thread.programs, writers.programs);
    assert!(thread.programs > 0 && writers.programs > 0);
    // The thread writes the root directory's header as well, once in each of the eight mounts at most.
    assert!((moved..=moved + 8).contains(&(thread.programs + writers.programs)));
}

/// The sums of the numbers in all lines that begin so.
fn sums<const N: usize>(text: &str, begin: &str) -> [u64; N] {
    let mut sums = [0; N];
    for line in text.lines().filter(|line| line.trim_start().starts_with(begin)) {
        let numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u64>().ok());
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
    }
    sums
}

#[test]
fn what_cannot_be_mounted_is_refused_with_a_reason() {
    let noise: Vec<u8> = (0u32..2112 * 256).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut plan = Plan::new("x86_64", "6.1");
    plan.parts = &[64, 16];
    plan.faults = "do_delays=0";
    plan.modules = &["mtdblock", "yaffs2", "null_blk gb=1", "mtdram total_size=1024 erase_size=64"];
    plan.packages = &["busybox", "mtd-utils"];
    plan.files.push(("/noise", 0o644, noise));
    plan.files.push(("/script", 0o755, std::fs::read(top().join("tests/yaffs2/refused.sh")).expect("a script")));
    plan.lines = ["device-wait /dev/mtdblock0 5000", "-run script /bin/sh /script", "-run dmesg dmesg"]
        .map(str::to_owned)
        .to_vec();
    let text = said(&plan.boot(), "refusals");
    println!("{text}");
    assert!(!text.contains("FAILED"), "{text}");
    for reason in [
        "nullb0 is no MTD device: mount mtdN or /dev/mtdblockN",
        "is no NAND flash",
        "are fixed while mounted",
        "of something else: mount with or without inband-tags or tags-ecc-off, or erase it",
        "have 512 bytes, YAFFS2 needs 1024",
        "tags-ecc-off: 20000 bytes are there",
        "inband-tags: 20000 bytes are there",
    ] {
        assert!(text.contains(reason), "{reason}: {text}");
    }
}
