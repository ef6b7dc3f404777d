//! YAFFS2 of ours (`kernel/yaffs2/`): real work on boards, an independent reader, power cuts and damaged flash.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flashscope_target::NoProgress;
use flashscope_target::board;
use flashscope_tests::{Booted, Plan, TempDir, output, skip, stdout, top, work};

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

/// nandsim's faults: a bit that flips in one read of a thousand, and of a partition's blocks, told apart by fifths, one that is
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
    // minutes: the core retires a block after its fourth page with a bit to restore, and at nandsim's rate no chip lives for long.
    let all = number("FLASHSCOPE_TEST_TORTURE_S", 2);
    let long = all > 60;
    let seconds = all.min(120);
    let blocks = if long { 160 } else { 32 };
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
        plan.cpus = if long || own.is_some() { 2 } else { 1 };
        plan.timeout = Duration::from_secs(1800);
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
    // What was restored was counted, and so was what the collector had to move.
    let moved = text.split("pages moved ").nth(1).and_then(|rest| rest.split(',').next()).expect("a count");
    assert_ne!(moved, "0", "{text}");
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
fn sleuthkit_reads_what_the_module_wrote() {
    if Command::new("fls").arg("-V").output().is_err() {
        return skip("fls is missing: install sleuthkit");
    }
    let mut plan = Plan::new("armv7", "6.1");
    plan.parts = &[64];
    plan.faults = "do_delays=0";
    plan.modules = &["mtdblock", "yaffs2"];
    plan.packages = &["busybox", "mtd-utils"];
    let text = std::fs::read(top().join("tests/yaffs2/image.sh")).expect("a script");
    plan.files.push(("/script", 0o755, text));
    plan.lines = ["run script /bin/sh /script", "get /image", "get /sums"].map(str::to_owned).to_vec();
    let booted = plan.boot();
    let dir = TempDir::new("sleuthkit");
    let image = dir.path().join("image");
    let file = |name: &str| {
        let mut files = booted.session.steps.iter().flat_map(|step| &step.files);
        let file = files.find(|file| file.path == name).expect("a file");
        booted.session.read_file(file, 64 << 20).expect("its bytes")
    };
    std::fs::write(&image, file("/image")).expect("an image");
    // NAME SUM lines, by the board's own tools from the mounted file system.
    let sums = String::from_utf8(file("/sums")).expect("UTF-8");
    let listed = stdout(Command::new("fls").args(["-f", "yaffs2", "-r", "-F", "-u", "-p"]).arg(&image));
    let mut read = 0;
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ./").expect("a sum and a name");
        let inode = listed
            .lines()
            .find_map(|entry| entry.split_once(":\t").filter(|(_, path)| *path == name))
            .map(|(entry, _)| entry.rsplit(' ').next().expect("an inode").to_owned())
            .unwrap_or_else(|| panic!("{name} is not listed:\n{listed}"));
        let bytes = output(Command::new("icat").args(["-f", "yaffs2"]).arg(&image).arg(&inode)).stdout;
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

/// The module of tests/yaffs2/driver for the board `armv7`, with whose headers yaffs2 was built.
fn dying_chip(dir: &Path) -> Vec<u8> {
    let board = board::load("armv7").expect("the board");
    let kernel = board.fetch("6.1", &NoProgress).expect("the kernel");
    board.prepare_modules(&kernel, &["yaffs2"], &NoProgress).expect("yaffs2");
    let headers = flashscope_target::cache_dir()
        .expect("a cache")
        .join(format!("headers/{}/{}_{}/root/usr/src/linux-headers-{1}", board.arch, kernel.release, kernel.version));
    for file in ["Kbuild", "dying.c"] {
        std::fs::copy(top().join("tests/yaffs2/driver").join(file), dir.join(file)).expect("a copy");
    }
    let mut make = Command::new("make");
    make.env_remove("MAKEFLAGS").arg("-C").arg(headers).arg(format!("M={}", dir.display()));
    make.args(["ARCH=arm", "CROSS_COMPILE=arm-linux-gnueabihf-", "CC=arm-linux-gnueabihf-gcc"]);
    stdout(make.args(["CONFIG_DEBUG_INFO=", "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"]));
    std::fs::read(dir.join("dying.ko")).expect("a module")
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
