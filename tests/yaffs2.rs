//! YAFFS2 of ours (`kernel/yaffs2/`): real work on boards, an independent reader, power cuts and damaged flash.

use std::process::Command;

use flashscope_tests::{Booted, Plan, TempDir, output, skip, stdout, top, work};

/// A boot with a script of tests/yaffs2 and programs compiled from there, on a chip without delays: nothing is timed here.
fn boot(board: &str, kernel: &str, parts: &[u64], packages: &[&str], programs: &[&str], script: &str) -> Booted {
    let mut plan = Plan::new(board, kernel);
    plan.parts = parts;
    plan.faults = "do_delays=0";
    plan.modules = &["mtdblock", "yaffs2"];
    plan.packages = packages;
    let names: Vec<String> = programs.iter().map(|name| format!("/{name}")).collect();
    let dir = TempDir::new("yaffs2");
    for (name, path) in programs.iter().zip(&names) {
        plan.files.push((path, 0o755, work(board, &format!("yaffs2/{name}.c"), dir.path())));
    }
    let (file, arguments) = script.split_once(' ').unwrap_or((script, ""));
    let text = std::fs::read(top().join("tests/yaffs2").join(file)).expect("a script");
    plan.files.push(("/script", 0o755, text));
    plan.lines = vec![
        "device-wait /dev/mtdblock0 5000".to_owned(),
        format!("-run script /bin/sh /script {arguments}").trim_end().to_owned(),
        "-run dmesg dmesg".to_owned(),
    ];
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
    for (board, kernel, arguments) in [
        ("armv7", "5.10", "/dev/mtdblock0 noatime make"),
        ("armv7", "6.1", "/dev/mtdblock0 noatime full make"),
        ("armv7", "6.12", "/dev/mtdblock0 noatime make"),
        ("armv7", "newest", "mtd0 noatime make"),
        ("x86_64", "newest", "/dev/mtdblock0 noatime make"),
        ("armv7", "6.1", "mtd0 inband-tags full make"),
        ("armv7", "6.1", "mtd0 no-cache,disable-summary,lazy-loading-off,tags-ecc-off make"),
    ] {
        let booted = boot(board, kernel, &[256], &["busybox"], &["work"], &format!("work.sh {arguments}"));
        let text = said(&booted, &format!("{board} {kernel} {arguments}"));
        assert!(text.contains("make: 0 failures") && text.contains("checkpoint valid"), "{text}");
        assert_eq!(text.matches("verify: 0 failures").count(), 4, "{text}");
        assert!(text.contains("unreadable 0;"), "{text}");
        println!("{board} {kernel} {arguments}: {} lines, no failure", text.lines().count());
    }
}

#[test]
fn a_power_cut_leaves_every_file_old_or_new() {
    let cuts = std::env::var("FLASHSCOPE_TEST_CUTS").unwrap_or_else(|_| "12".to_owned());
    let booted = boot("armv7", "6.1", &[48, 48], &["busybox"], &["cut"], &format!("cut.sh {cuts}"));
    let text = said(&booted, "power cuts");
    assert!(text.contains(&format!("{cuts} cuts,")) && text.contains(" 0 failures"), "{text}");
    println!("{text}");
}

#[test]
fn what_ecc_cannot_restore_is_an_error_and_never_other_data() {
    let booted = boot("armv7", "6.1", &[96], &["busybox"], &["damage"], "damage.sh");
    let text = said(&booted, "damaged flash");
    assert!(text.contains("all as it has to be"), "{text}");
    // What was restored was counted, and so was what the collector had to move.
    let moved = text.split("pages moved ").nth(1).and_then(|rest| rest.split(',').next()).expect("a count");
    assert_ne!(moved, "0", "{text}");
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
    for reason in
        ["nullb0 is no MTD device: mount mtdN or /dev/mtdblockN", "is no NAND flash", "are fixed while mounted"]
    {
        assert!(text.contains(reason), "{reason}: {text}");
    }
}
