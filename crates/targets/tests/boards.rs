//! Boots real kernels under QEMU. A test prints a message if QEMU, a kernel or the agent cannot be had.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use flashscope_targets::board::{self, Board, BootFailureKind, BootOutcome, Image, ImageBuilder, Kernel, Run};
use flashscope_targets::{Error, Job, NoProgress, OpenOptions, PutFile, PutSource, ScratchDir, agent_for, open};

/// A board with all that is needed to boot it, or a reason on stderr.
fn ready(name: &str, line: &str) -> Option<(Board, Kernel)> {
    let board = board::load(name).unwrap();
    let found = board.qemu_version().and_then(|_| agent_for(&board.agent)).and_then(|_| board.fetch(line, &NoProgress));
    match found {
        Ok(kernel) => Some((board, kernel)),
        Err(
            error @ (Error::ProgramMissing { .. }
            | Error::AgentMissing { .. }
            | Error::IndexUnavailable { .. }
            | Error::Download { .. }
            | Error::NoMirror),
        ) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn image(board: &Board, kernel: &Kernel, plan: &[&str]) -> Image {
    let mut image = ImageBuilder::new(board).unwrap();
    let mut lines = image.add_port_modules(kernel).unwrap();
    lines.extend(plan.iter().map(|line| (*line).to_owned()));
    image.set_plan(&lines);
    image.build().unwrap()
}

fn boot(board: &Board, kernel: &Kernel, plan: &[&str], change: impl FnOnce(&mut Run)) -> Result<BootOutcome, Error> {
    let image = image(board, kernel, plan);
    let mut run = Run::new(board, kernel, &image);
    change(&mut run);
    board::boot(&run, &NoProgress)
}

fn failure(result: Result<BootOutcome, Error>) -> (BootFailureKind, String) {
    match result.unwrap_err() {
        Error::Boot(failure) => (failure.kind.clone(), failure.to_string()),
        other => panic!("{other}"),
    }
}

#[test]
fn two_boots_of_one_image_give_the_same_bytes() {
    let Some((board, kernel)) = ready("armv7", "6.1") else { return };
    let plan = ["run probe /flashscope/agent probe", "get /proc/uptime"];
    let (first, second) = (image(&board, &kernel, &plan), image(&board, &kernel, &plan));
    assert_eq!(first.sha256, second.sha256);
    let port = |image: &Image| {
        let outcome = board::boot(&Run::new(&board, &kernel, image), &NoProgress).unwrap();
        std::fs::read(outcome.port_file()).unwrap()
    };
    let bytes = port(&first);
    assert!(bytes.starts_with(b"FSC1"));
    assert!(bytes == port(&second), "the port's bytes, times included, differ between two boots of one image");
}

/// QEMU's main loop once skipped idle time before the last instructions of the processor were counted, so guest time was wrong: in one boot
/// of forty on a busy host, and in each boot with threads as late as these.
#[test]
fn a_boot_whose_threads_are_late_gives_the_same_bytes() {
    let Some((board, kernel)) = ready("armv7", "6.1") else { return };
    let dir = ScratchDir::new("late").unwrap();
    let (library, qemu, file) = (dir.path().join("late.so"), dir.path().join("qemu"), dir.path().join("board.toml"));
    let flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"];
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/late.c");
    match Command::new("gcc").args(flags).arg(&library).arg(source).arg("-ldl").status() {
        Err(error) => return eprintln!("skipped: gcc: {error}"),
        Ok(status) => assert!(status.success(), "gcc: {status}"),
    }
    let script = format!("#!/bin/sh\nLD_PRELOAD={} exec qemu-system-arm \"$@\"\n", library.display());
    std::fs::write(&qemu, script).unwrap();
    std::fs::set_permissions(&qemu, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = include_str!("../../../boards/armv7.toml");
    std::fs::write(
        &file,
        text.replace("\"qemu-system-arm\"\npackage", &format!("{:?}\npackage", qemu.display().to_string())),
    )
    .unwrap();
    let late = board::load(file.to_str().unwrap()).unwrap();

    let plan: Vec<String> = (0..200).map(|number| format!("sleep {}", number % 7)).collect();
    let mut plan: Vec<&str> = plan.iter().map(String::as_str).collect();
    plan.push("get /proc/uptime");
    let image = image(&board, &kernel, &plan);
    let port = |board: &Board| {
        let outcome = board::boot(&Run::new(board, &kernel, &image), &NoProgress).unwrap();
        std::fs::read(outcome.port_file()).unwrap()
    };
    let bytes = port(&board);
    for _ in 0..2 {
        assert!(bytes == port(&late), "guest time depends on the host's scheduler");
    }
}

#[test]
fn what_qemu_says_before_it_ends_is_the_error() {
    let Some((board, kernel)) = ready("armv7", "6.1") else { return };
    let (kind, text) =
        failure(boot(&board, &kernel, &["sleep 1"], |run| run.args = vec!["-device".to_owned(), "nosuch".to_owned()]));
    let BootFailureKind::QemuDied { said, .. } = kind else { panic!("{text}") };
    assert!(said.contains("nosuch"), "{text}");
}

#[test]
fn a_plan_without_a_port_is_told() {
    let Some((board, kernel)) = ready("armv7", "6.1") else { return };
    let mut image = ImageBuilder::new(&board).unwrap();
    image.set_plan(&["sleep 1"]);
    let image = image.build().unwrap();
    let (kind, text) = failure(board::boot(&Run::new(&board, &kernel, &image), &NoProgress));
    // Either PID 1 refuses to continue without its port, or the plan is complete and no data came.
    assert!(matches!(kind, BootFailureKind::NoPort | BootFailureKind::PlanFailed { .. }), "{text}");
}

#[test]
fn a_missing_module_is_told_before_the_boot() {
    let Some((board, kernel)) = ready("armv7", "6.1") else { return };
    let error = ImageBuilder::new(&board).unwrap().add_module_closure(&kernel, &["nosuch"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("kernel {} has no nosuch; name another kernel (flashscope board list)", kernel.release)
    );
}

#[test]
fn a_board_with_an_sd_card_has_its_file_system_mounted() {
    let Some(_) = ready("armv7-sd", "6.1") else { return };
    let disk = vec![("scheduler".to_owned(), "none".to_owned()), ("size_mib".to_owned(), "32".to_owned())];
    let target = open("board:armv7-sd", &OpenOptions { disk, ..OpenOptions::default() }).unwrap();
    let mut out = Vec::new();
    let job = Job { argv: vec!["probe".to_owned()], ..Job::default() };
    let outcome = target.run(&job, &mut out).unwrap();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let facts: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let card = facts["block"].as_array().unwrap().iter().find(|disk| disk["name"] == "mmcblk0").unwrap();
    assert_eq!(card["size_bytes"], 32 << 20);
    assert!(card["scheduler"].as_str().unwrap().contains("[none]"), "{card}");
    let mount = facts["mounts"].as_array().unwrap().iter().find(|mount| mount["target"] == "/mnt").unwrap();
    assert_eq!((mount["source"].as_str(), mount["type"].as_str()), (Some("/dev/mmcblk0"), Some("ext4")));
    assert_eq!(facts["mtd"].as_array().map(Vec::len), Some(0), "no raw NAND beside it");
}

#[test]
fn an_agent_command_runs_on_a_board_with_its_files() {
    let Some(_) = ready("armv7", "6.1") else { return };
    let target = open("board:armv7", &OpenOptions { parts: vec![64], ..OpenOptions::default() }).unwrap();
    let job = Job {
        argv: vec!["probe".to_owned()],
        put: vec![PutFile { path: "/srv/a file".to_owned(), mode: 0o644, source: PutSource::Bytes(vec![7; 100_000]) }],
        get: vec!["/srv/a file".to_owned()],
        ..Job::default()
    };
    let mut out = Vec::new();
    let outcome = target.run(&job, &mut out).unwrap();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_eq!(std::fs::read(&outcome.files[0].1).unwrap(), vec![7; 100_000]);
    let facts: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(facts["kernel"]["machine"], "armv7l");
    let mtd = facts["mtd"].as_array().unwrap();
    let sizes: Vec<u64> = mtd.iter().filter(|m| m["parent"].is_null()).map(|m| m["size"].as_u64().unwrap()).collect();
    assert!(sizes.iter().sum::<u64>() <= 256 << 20, "{sizes:?}");
    assert!(mtd.iter().any(|m| m["size"] == 64 * (128 << 10)), "the partition of 64 erase blocks: {mtd:?}");
}

#[test]
fn a_kernel_of_ones_own_boots_and_its_directory_is_not_touched() {
    let Some((board, kernel)) = ready("armv7", "6.1") else { return };
    let scratch = ScratchDir::new("own-kernel").unwrap();
    let dir = scratch.path().join("kernel");
    let modules = dir.join("lib/modules").join(&kernel.release);
    std::fs::create_dir_all(&modules).unwrap();
    std::fs::copy(&kernel.vmlinuz, dir.join("zImage")).unwrap();
    for name in ["kernel", "modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        std::os::unix::fs::symlink(kernel.modules_root.join(name), modules.join(name)).unwrap();
    }
    let listing = |dir: &Path| -> Vec<_> {
        let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = listing(&modules);
    let own = board.fetch(dir.to_str().unwrap(), &NoProgress).unwrap();
    assert_eq!((own.release.as_str(), own.package.as_str()), (kernel.release.as_str(), "user's own"));
    assert_eq!(own.sha256, kernel.sha256);
    assert_eq!(listing(&modules), before);
    let outcome = boot(&board, &own, &["run probe /flashscope/agent probe"], |_| {}).unwrap();
    assert!(outcome.port_file().metadata().unwrap().size() > 0);

    let error = board.fetch("/nonexistent/kernel", &NoProgress).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/kernel: no such directory; a kernel of your own is"), "{error}");
    let error = board.fetch("4.4", &NoProgress).unwrap_err().to_string();
    assert!(error.starts_with("board armv7: no kernel 4.4; there are 5.10, 6.1, 6.12, newest"), "{error}");
}

#[test]
fn packages_come_with_what_they_need() {
    let Some((board, kernel)) = ready("armv7", "6.1") else { return };
    let packages = match board.fetch_packages(&kernel, &["mtd-utils".to_owned()], &NoProgress) {
        Ok(packages) => packages,
        Err(error @ (Error::IndexUnavailable { .. } | Error::Download { .. })) => {
            eprintln!("skipped: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    assert!(names.contains(&"mtd-utils") && names.contains(&"libc6"), "{names:?}");
    let error = board.fetch_packages(&kernel, &["no-such-package".to_owned()], &NoProgress).unwrap_err();
    assert_eq!(error.to_string(), "no-such-package: not in bookworm; check its name");
}
