//! Replay scripts that cannot be played: one line that says which and why, the exit status, and nothing left behind.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use flashscope_tests::{Plan, TempDir, flashscope, is_root, output, skip};

const HEAD: &str = "flashscope-replay 2\nfile 4096 a\ntask t\n";

/// What of this process's own runs may be left: files in the directory, mounts below it, cgroups.
fn left(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).expect("a directory").flatten();
    let mut found: Vec<String> = files.map(|file| file.path().display().to_string()).collect();
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let below = dir.to_str().expect("UTF-8");
    found.extend(mounts.lines().filter(|line| line.contains(below)).map(str::to_owned));
    found
}

/// Runs a script on this host in an empty directory; `limits` come before the command.
fn refused(script: &str, status: i32, words: &[&str]) {
    // Tests of this file run at the same time.
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    let place = TempDir::new(&format!("replay-refusals-{}", REFUSED.fetch_add(1, Ordering::Relaxed)));
    let (path, dir) = (place.path().join("x.replay"), place.path().join("dir"));
    std::fs::write(&path, script).expect("a script");
    std::fs::create_dir(&dir).expect("a directory");
    let mut command = flashscope();
    command.env("FLASHSCOPE_CACHE", place.path().join("cache")).args(["-q", "bench", "replay"]).arg(&path);
    let ran = output(command.arg("--dir").arg(&dir).stdin(Stdio::null()));
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(status), "{script}\n{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("flashscope")).collect();
    assert_eq!(lines.len(), 1, "one line: {said}");
    for word in words {
        assert!(lines[0].contains(word), "{word:?} is not in: {said}");
    }
    assert_eq!(left(&dir), Vec::<String>::new(), "{script}");
}

#[test]
fn a_script_that_cannot_be_is_refused_by_its_line() {
    let call = |line: &str| format!("{HEAD}{line}\n");
    for (script, words) in [
        ("flashscope-replay 3\n".to_owned(), ["x.replay:1: ", "version 3; versions 1 and 2 are known"]),
        (call("read -5 0 0 0 1"), ["x.replay:4: ", "whole numbers of 0 or more"]),
        (call("peek 5 0 0 0 1"), ["x.replay:4: ", "not a line of a replay script"]),
        (call("read 5 7 0 0 1"), ["x.replay:4: ", "a task or file that no line above declares"]),
        (call("read 5 0 0 0"), ["x.replay:4: ", "not `read TIME_NS TASK FILE OFFSET LENGTH`"]),
        (call("read 5 0 0 0 99999999999999999999"), ["x.replay:4: ", "whole numbers"]),
        (call("read 5 0 0 4090 100"), ["x.replay:4: ", "past the end of its file"]),
        (call("read 5 0 0 0 1\nread 4 0 0 0 1"), ["x.replay:5: ", "a time before that of the call above"]),
        ("flashscope-replay 2\nfile 1 a\ntask t ionice=fast\n".to_owned(), ["x.replay:3: ", "ionice= needs"]),
        ("flashscope-replay 2\nfile 1 a\ntask t ionice=idle:3\n".to_owned(), ["x.replay:3: ", "ionice= needs"]),
        (
            "flashscope-replay 2\ntask t start=1 nice=1 start=2\n".to_owned(),
            ["x.replay:2: ", "a task with start= twice"],
        ),
        (
            "flashscope-replay 2\ncgroup a\ncgroup a\n".to_owned(),
            ["x.replay:3: ", "a cgroup that a line above declares"],
        ),
        ("flashscope-replay 2\nfile 1 a\ntask t cgroup=x\n".to_owned(), ["x.replay:3: ", "cgroup"]),
    ] {
        refused(&script, 2, &words);
    }
}

#[test]
fn files_larger_than_the_device_are_refused_before_the_first_call() {
    refused(
        "flashscope-replay 2\nfile 70368744177664 a\ntask t\nread 0 0 0 0 1\n",
        1,
        &["x.replay: its files take 70368744177664 bytes and ", " are free there"],
    );
}

/// An ext4 of 4 MiB, mounted in a namespace of its own.
#[test]
fn a_device_that_is_too_small_is_left_as_it_was() {
    if !is_root() {
        return skip("needs root, to mount a file system");
    }
    let place = TempDir::new("replay-small");
    std::fs::File::create(place.path().join("image")).and_then(|file| file.set_len(4 << 20)).expect("a file");
    std::fs::write(place.path().join("x.replay"), "flashscope-replay 2\nfile 8388608 a\ntask t\nread 0 0 0 0 1\n")
        .expect("a script");
    let command = flashscope();
    let prepare = "cd \"$1\"; mkfs.ext4 -q image && mkdir dir && mount -o loop image dir || exit 99; \
        \"$2\" -q bench replay x.replay --dir dir; echo status $?; ls dir; umount dir";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", prepare, "sh"]).arg(place.path()).arg(command.get_program()).stdin(Stdio::null());
    command.get_envs().for_each(|(name, value)| _ = value.map(|value| shell.env(name, value)));
    shell.env("FLASHSCOPE_CACHE", place.path().join("cache"));
    let ran = output(&mut shell);
    let (said, printed) = (String::from_utf8_lossy(&ran.stderr), String::from_utf8_lossy(&ran.stdout));
    if ran.status.code() == Some(99) {
        return skip(&format!("no loop device or ext4 here: {said}"));
    }
    assert!(said.contains("flashscope: x.replay: its files take 8388608 bytes and "), "{said}");
    assert_eq!(printed, "status 1\nlost+found\n", "{said}");
    assert!(ran.status.success(), "it was unmounted: {said}");
}

/// A setting that this kernel, the mount of cgroup2 or the device cannot take names the option, and no cgroup stays.
#[test]
fn a_kernel_without_the_lever_says_which_option_it_lacks() {
    if !is_root() {
        return skip("needs root, to make a cgroup");
    }
    let script = "flashscope-replay 2\ncgroup x io.latency={device}%20target=10 io.nothing=1\nfile 1 a\ntask t cgroup=x\nread 0 0 0 0 1\n";
    refused(script, 1, &["cgroup x: io.", "CONFIG_"]);
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    for mounted in mounts.lines().filter(|line| line.split(' ').nth(2) == Some("cgroup2")) {
        let dir = mounted.split(' ').nth(1).expect("a directory");
        // Other tests' own cgroups carry their process id, which still runs; those of a process that has ended are left over.
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(rest) = name.strip_prefix("flashscope_") else { continue };
            let pid = rest.split('_').nth(1).unwrap_or_default();
            assert!(Path::new("/proc").join(pid).exists(), "{dir}/{name} is left of a run");
        }
    }
}

/// Plays a script on a board, where no cgroup2 is mounted, and prints what is there afterwards: controllers that are on for groups, groups,
/// files and mounts.
const ON_BOARD: &str = "\
busybox mount > /before
/flashscope/agent bench replay --script $1 --dir /mnt
status=$?
busybox mount | busybox cmp - /before
busybox mkdir -p /look
busybox mount -t cgroup2 none /look
echo $(busybox cat /look/cgroup.subtree_control) $(busybox ls /look | busybox grep -c flashscope_) $(busybox ls /mnt | busybox grep -vc lost)
busybox umount /look
exit $status
";

/// A 32-bit kernel within 300 s of its boot, which has no io.latency.
#[test]
fn a_board_refuses_a_lever_that_would_crash_it_or_that_it_lacks() {
    let cases = [
        ("io.max={device}%20wbps=4000000", "io.max: a 32-bit kernel crashes on it in the first 300 s after boot"),
        ("io.latency={device}%20target=10", ": it needs CONFIG_BLK_CGROUP_IOLATENCY; leave it out"),
        ("memory.nothing=1", ": it needs CONFIG_MEMCG; leave it out"),
    ];
    let mut plan = Plan::new("armv7-blk", "6.1");
    plan.packages = &["busybox"];
    let names: Vec<String> = (0..cases.len()).map(|at| format!("/script{at}")).collect();
    for (name, (setting, _)) in names.iter().zip(cases) {
        let script =
            format!("flashscope-replay 2\ncgroup x {setting}\nfile 4096 a\ntask t cgroup=x\nread 0 0 0 0 4096\n");
        plan.files.push((name, 0o644, script.into_bytes()));
        plan.lines.push(format!("-run refused{} busybox sh /on-board {name}", plan.lines.len()));
    }
    plan.files.push(("/on-board", 0o644, ON_BOARD.into()));
    let booted = plan.boot();
    for (at, (setting, words)) in cases.into_iter().enumerate() {
        let step = booted.step(&format!("refused{at}"));
        let said = String::from_utf8_lossy(&step.stderr).into_owned();
        println!("{setting}: {:?}, {said}", step.status);
        assert_eq!(step.status, Some(1), "{setting}: {said}");
        assert!(said.lines().count() == 1 && said.contains(words), "{setting}: {said}");
        assert_eq!(String::from_utf8_lossy(&step.stdout), "0 0\n", "left behind of {setting}");
    }
}
