//! Boots: real kernels under QEMU. Where QEMU, a kernel or the agent is missing and cannot be had, a test says so.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flashscope_targets::board::{self, Board, BootFailureKind, BootOutcome, Image, ImageBuilder, Kernel, Run};
use flashscope_targets::{Error, Job, NoProgress, OpenOptions, PutFile, PutSource, ScratchDir, agent_for, open};

/// A board with what it takes to boot it, or a reason on stderr.
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

/// QEMU's main loop once skipped idle time before the processor's last instructions were counted, and guest time was off by them:
/// one boot in forty on a busy host, each boot with threads as late as these.
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
fn the_ways_to_fail_are_different_errors() {
    let Some((board, kernel)) = ready("armv7", "6.1") else { return };

    let (kind, text) = failure(boot(&board, &kernel, &["mkdir /x", "mount nothing /x nosuchfs -"], |_| {}));
    let BootFailureKind::PlanFailed { step, line, .. } = kind else { panic!("{text}") };
    assert!(step >= 2 && line == "mount nothing /x nosuchfs -", "{text}");

    let error = boot(&board, &kernel, &["write /proc/sysrq-trigger c"], |_| {}).unwrap_err();
    let tail = error.console_tail();
    assert!(tail.iter().any(|line| line.contains("Kernel panic")), "the console's last lines are kept: {tail:?}");
    let (kind, text) = failure(Err(error));
    assert!(matches!(kind, BootFailureKind::Panic(_)), "{text}");

    // No emulated kernel is up within a fifth of a second; a fast host needs less than one. (A sleep would not do: idle guest time
    // passes at once.)
    let short = Duration::from_millis(200);
    let (kind, text) = failure(boot(&board, &kernel, &["sleep 1"], |run| run.timeout = short));
    assert_eq!(kind, BootFailureKind::Timeout(short), "{text}");

    let (kind, text) =
        failure(boot(&board, &kernel, &["sleep 1"], |run| run.args = vec!["-device".to_owned(), "nosuch".to_owned()]));
    let BootFailureKind::QemuDied { said, .. } = kind else { panic!("{text}") };
    assert!(said.contains("nosuch"), "{text}");

    let mut no_qemu = board.clone();
    no_qemu.name = "elsewhere".to_owned();
    let file = std::env::temp_dir().join(format!("flashscope-board-{}.toml", std::process::id()));
    let text = include_str!("../../../boards/armv7.toml").replace("\"qemu-system-arm\"", "\"qemu-system-none\"");
    std::fs::write(&file, text).unwrap();
    let board = board::load(file.to_str().unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let error = boot(&board, &kernel, &["sleep 1"], |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "qemu-system-none: not found; install the Debian package qemu-system-none");
}

#[test]
fn a_plan_without_a_port_is_told() {
    let Some((board, kernel)) = ready("armv7", "6.1") else { return };
    let mut image = ImageBuilder::new(&board).unwrap();
    image.set_plan(&["sleep 1"]);
    let image = image.build().unwrap();
    let (kind, text) = failure(board::boot(&Run::new(&board, &kernel, &image), &NoProgress));
    // Either PID 1 refuses to go on without its port, or it says that the plan is complete and nothing came.
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
        timeout: None,
        pass_stdio: false,
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
fn a_command_that_fails_is_an_outcome_and_no_error() {
    let Some(_) = ready("armv7", "6.1") else { return };
    let target = open("board:armv7", &OpenOptions::default()).unwrap();
    let job = Job { argv: vec!["nosuch".to_owned()], ..Job::default() };
    let outcome = target.run(&job, &mut Vec::new()).unwrap();
    assert_eq!(outcome.status, 2);
    assert!(outcome.stderr.contains("nosuch"), "{}", outcome.stderr);
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
fn a_killed_run_takes_its_qemu_with_it_and_the_next_sweeps_its_files() {
    let Some(_) = ready("armv7", "6.1") else { return };
    let mut run = std::env::current_exe().unwrap();
    run.pop();
    run.pop();
    run.push("examples/run");
    if !run.is_file() {
        eprintln!("skipped: {} is not built: cargo test builds it", run.display());
        return;
    }
    for wait_ms in [30, 300, 1000] {
        let mut child = Command::new(&run)
            .args(["board:armv7", "probe"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let owner = format!("/{}_", child.id());
        std::thread::sleep(Duration::from_millis(wait_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        // Its QEMU names the run's directory in its arguments.
        let began = Instant::now();
        loop {
            let left = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
                let cmdline = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&cmdline).contains(&format!("run{owner}"))
            });
            if !left {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(5), "QEMU outlived its run");
            std::thread::sleep(Duration::from_millis(20));
        }
        flashscope_targets::sweep().unwrap();
        let cache = flashscope_targets::cache_dir().unwrap();
        for dir in ["run", "tmp"] {
            for entry in std::fs::read_dir(cache.join(dir)).into_iter().flatten().flatten() {
                let path = entry.path().display().to_string();
                assert!(!path.contains(&owner), "left behind: {path}");
            }
        }
    }
}

#[test]
fn packages_are_unpacked_with_what_they_need_and_run() {
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
    let mut image = ImageBuilder::new(&board).unwrap();
    let mut lines = image.add_port_modules(&kernel).unwrap();
    lines.extend(image.add_nand(&kernel, &[]).unwrap());
    image.add_packages(&packages).unwrap();
    lines.extend(["device-wait /dev/mtd0 5000", "run mtdinfo mtdinfo /dev/mtd0"].map(str::to_owned));
    image.set_plan(&lines);
    let image = image.build().unwrap();
    let outcome = board::boot(&Run::new(&board, &kernel, &image), &NoProgress).unwrap();
    let port = std::fs::read(outcome.port_file()).unwrap();
    let said = String::from_utf8_lossy(&port);
    assert!(said.contains("2048 (268435456 bytes, 256.0 MiB)"), "{said}");

    let error = board.fetch_packages(&kernel, &["no-such-package".to_owned()], &NoProgress).unwrap_err();
    assert_eq!(error.to_string(), "no-such-package: not in bookworm; check its name");
}

/// A board that runs dropbear and BusyBox, and whose root is read-only once its host key is made.
fn dropbear_image(board: &Board, kernel: &Kernel, packages: &[board::Package], public: Vec<u8>) -> Image {
    let mut image = ImageBuilder::new(board).unwrap();
    let mut lines = image.add_port_modules(kernel).unwrap();
    lines.extend(image.add_net_modules(kernel).unwrap());
    lines.extend(image.add_nand(kernel, &[]).unwrap());
    image.add_packages(packages).unwrap();
    image.add_file("/etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n".to_vec());
    image.add_file("/etc/shells", 0o644, b"/bin/sh\n".to_vec());
    image.add_file("/root/.ssh/authorized_keys", 0o600, public);
    lines.extend(
        [
            "net lo 127.0.0.1/8",
            "net eth0 10.0.2.15/24",
            "mkdir /dev/pts",
            "run key /usr/bin/dropbearkey -t ed25519 -f /run/hostkey",
            "mount none / none remount,ro",
            "spawn sshd /usr/sbin/dropbear -F -E -s -r /run/hostkey -p 22",
            "sleep 3600000",
        ]
        .map(str::to_owned),
    );
    image.set_plan(&lines);
    image.build().unwrap()
}

fn ssh_options(key: &Path, scratch: &ScratchDir) -> Vec<String> {
    let option = |text: String| ["-o".to_owned(), text];
    let mut ssh_options = vec!["-F".to_owned(), "none".to_owned()];
    ssh_options.extend(option(format!("IdentityFile={}", key.display())));
    ssh_options.extend(option(format!("UserKnownHostsFile={}", scratch.path().join("known").display())));
    ssh_options.extend(
        ["IdentitiesOnly=yes", "IdentityAgent=none", "StrictHostKeyChecking=accept-new"]
            .map(str::to_owned)
            .into_iter()
            .flat_map(option),
    );
    ssh_options
}

/// A busybox for everything, dropbear for the rest, nothing writable but /run and /tmp: as small boards are.
#[test]
fn a_board_with_dropbear_busybox_and_a_read_only_root_is_reached_over_ssh() {
    let Some((board, kernel)) = ready("armv7", "6.1") else { return };
    if !Path::new("/usr/bin/ssh").exists() {
        eprintln!("skipped: ssh is missing; install openssh-client");
        return;
    }
    let names = ["dropbear-bin", "busybox"].map(str::to_owned);
    let packages = match board.fetch_packages(&kernel, &names, &NoProgress) {
        Ok(packages) => packages,
        Err(error @ (Error::IndexUnavailable { .. } | Error::Download { .. })) => {
            eprintln!("skipped: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let scratch = ScratchDir::new("dropbear").unwrap();
    let key = scratch.path().join("user");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().unwrap();
    assert!(made.success());
    let public = std::fs::read(key.with_extension("pub")).unwrap();

    let image = dropbear_image(&board, &kernel, &packages, public);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let stop = AtomicBool::new(false);

    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut run = Run::new(&board, &kernel, &image);
            (run.icount, run.hostfwd, run.stop) = (false, Some(port), Some(&stop));
            run.timeout = Duration::from_secs(180);
            board::boot(&run, &NoProgress)
        });
        let ssh_options = ssh_options(&key, &scratch);
        let options = OpenOptions { ssh_options, ..OpenOptions::default() };
        let target = open(&format!("ssh://root@127.0.0.1:{port}"), &options).unwrap();
        let job = Job {
            argv: vec!["probe".to_owned()],
            put: vec![PutFile { path: "/run/put".to_owned(), mode: 0o600, source: PutSource::Bytes(vec![1; 50_000]) }],
            get: vec!["/run/put".to_owned(), "/proc/mounts".to_owned()],
            timeout: None,
            pass_stdio: false,
        };
        let began = Instant::now();
        // Until dropbear listens, QEMU's forwarder takes the connection and closes it.
        let result = loop {
            let mut out = Vec::new();
            match target.run(&job, &mut out) {
                Ok(outcome) => break Ok((outcome, out)),
                Err(error) if began.elapsed() > Duration::from_secs(90) || running.is_finished() => break Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(500)),
            }
        };
        let left = result.is_ok().then(|| {
            let mut list = Command::new("ssh");
            list.args(&options.ssh_options).args(["-p", &port.to_string(), "root@127.0.0.1"]);
            list.arg("echo /tmp/* /run/*; touch /etc/x || echo read-only");
            String::from_utf8(list.output().unwrap().stdout).unwrap()
        });
        stop.store(true, Ordering::Relaxed);
        let ended = running.join().unwrap();
        let (outcome, out) =
            result.unwrap_or_else(|error| panic!("{error}; the board: {:?}", ended.as_ref().map(|_| ())));
        let Err(Error::Boot(failure)) = ended else { panic!("the board was stopped before its plan ended") };
        assert_eq!(failure.kind, BootFailureKind::Stopped);

        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        let facts: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(facts["kernel"]["machine"], "armv7l");
        assert_eq!(std::fs::read(&outcome.files[0].1).unwrap(), vec![1; 50_000]);
        assert!(outcome.files[1].1.metadata().unwrap().len() > 0, "files of /proc say 0 bytes and have some");
        let left = left.unwrap();
        assert!(left.contains("read-only"), "{left}");
        assert!(!left.contains("flashscope_") && !left.contains("/run/put"), "left behind: {left}");
    });
}
