//! A board of one's own, over ssh: dropbear, BusyBox, a read-only root, raw NAND with JFFS2. What flashscope does there,
//! what it leaves there (nothing), and that it gets along with another user of tracefs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flashscope_targets::NoProgress;
use flashscope_targets::board::{self, Board, ImageBuilder, Kernel, Run};
use flashscope_tests::{TempDir, flashscope, output, report, skip, stdout};
use serde_json::{Value, json};

/// A running board that listens on a port of this host.
struct Remote {
    dir: TempDir,
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Whether this host has an ssh to reach boards with.
pub fn has_ssh() -> bool {
    for program in ["/usr/bin/ssh", "/usr/bin/ssh-keygen"] {
        if !Path::new(program).exists() {
            skip(&format!("{program} is missing: no board is reached over ssh"));
            return false;
        }
    }
    true
}

/// A key, and an `ssh` in `bin/` that takes it.
pub fn client(dir: &Path) -> PathBuf {
    let key = dir.join("key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    assert!(made.expect("ssh-keygen").success());
    // The command takes the user's own ssh; the test's user has an own configuration, with one connection for all: agreeing
    // on keys takes an emulated processor seconds (crates/targets/tests/ssh.rs has a connection for each).
    let wrapper = dir.join("bin/ssh");
    std::fs::create_dir(dir.join("bin")).expect("a directory");
    std::fs::write(
        &wrapper,
        format!(
            "#!/bin/sh\nexec /usr/bin/ssh -F none -o IdentityFile={0}/key -o IdentitiesOnly=yes -o IdentityAgent=none \
             -o UserKnownHostsFile={0}/known -o StrictHostKeyChecking=accept-new \
             -o ControlMaster=auto -o ControlPath={0}/mux -o ControlPersist=yes \"$@\"\n",
            dir.display()
        ),
    )
    .expect("a wrapper");
    Command::new("chmod").arg("+x").arg(&wrapper).status().expect("chmod");
    key
}

/// What a board needs to be reached over ssh with that key: dropbear, BusyBox, root's account; and a place for `/data`.
pub fn ssh_server(image: &mut ImageBuilder, board: &Board, kernel: &Kernel, key: &Path) {
    let packages = ["dropbear-bin", "busybox"].map(str::to_owned);
    let packages = board.fetch_packages(kernel, &packages, &NoProgress).expect("packages");
    image.add_packages(&packages).expect("packages");
    image.add_file("/etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n".to_vec());
    image.add_file("/etc/shells", 0o644, b"/bin/sh\n".to_vec());
    let public = std::fs::read(key.with_extension("pub")).expect("a key");
    image.add_file("/root/.ssh/authorized_keys", 0o600, public);
    image.add_file("/data/.keep", 0o600, Vec::new());
}

impl Remote {
    fn start() -> Option<Remote> {
        if !has_ssh() {
            return None;
        }
        let dir = TempDir::new("remote");
        let key = client(dir.path());
        let board = board::load("armv7").expect("the board");
        let kernel = board.fetch("", &NoProgress).expect("the kernel");
        let mut image = ImageBuilder::new(&board).expect("an agent");
        let mut lines = image.add_port_modules(&kernel).expect("modules");
        lines.extend(image.add_net_modules(&kernel).expect("modules"));
        lines.extend(image.add_nand(&kernel, &[64]).expect("modules"));
        for path in image.add_module_closure(&kernel, &["jffs2"]).expect("modules") {
            lines.push(format!("module {path}"));
        }
        ssh_server(&mut image, &board, &kernel, &key);
        lines.extend(
            [
                "mount mtd0 /data jffs2 -",
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
        let image = image.build().expect("an image");
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let run = Run {
                    icount: false,
                    hostfwd: Some(port),
                    stop: Some(&stop),
                    timeout: Duration::from_secs(3600),
                    ..Run::new(&board, &kernel, &image)
                };
                // It is stopped, never done.
                let _ = board::boot(&run, &NoProgress);
            })
        };
        let remote = Remote { dir, port, stop, thread: Some(thread) };
        let began = Instant::now();
        while remote.sh("true").is_none() {
            assert!(began.elapsed() < Duration::from_secs(600), "the board does not answer");
            std::thread::sleep(Duration::from_millis(500));
        }
        Some(remote)
    }

    fn path(&self) -> String {
        format!("{}:{}", self.dir.path().join("bin").display(), std::env::var("PATH").unwrap_or_default())
    }

    /// A command on the board, by ssh itself; `None` where it fails.
    fn sh(&self, script: &str) -> Option<String> {
        let mut ssh = Command::new(self.dir.path().join("bin/ssh"));
        ssh.args(["-o", "ConnectTimeout=5", "-p", &self.port.to_string(), "root@127.0.0.1", script]);
        let output = ssh.stderr(Stdio::null()).output().expect("ssh");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A subcommand that goes to the board; its other arguments follow.
    fn flashscope(&self, subcommand: &[&str]) -> Command {
        let mut command = flashscope();
        command.env("PATH", self.path()).args(subcommand);
        command.args(["--quiet", "--on", &format!("ssh://root@127.0.0.1:{}", self.port)]);
        command
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What a tracer could leave behind.
    fn traces(&self) -> String {
        self.sh("cd /sys/kernel/tracing; cat kprobe_events; ls instances; cat /sys/class/bdi/mtd-0/read_ahead_kb; \
             ls -A /run/flashscope 2>/dev/null; ls /tmp; ps | grep -c '[f]lashscope-agent'; true")
            .expect("the board answers")
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let mut shared = Command::new(self.dir.path().join("bin/ssh"));
        shared.args(["-O", "exit", "root@127.0.0.1"]).stderr(Stdio::null()).status().ok();
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < Duration::from_secs(600), "{what}: not within ten minutes");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn end_of(mut child: Child) {
    let status = child.wait().expect("an end");
    assert!(status.success(), "a recorder ended with {status}");
}

#[test]
fn a_board_over_ssh_is_measured_recorded_and_left_as_it_was() {
    let Some(remote) = Remote::start() else { return };
    // Another user of tracefs, before and after.
    remote.sh("mkdir -p /sys/kernel/tracing/instances/theirs").expect("an instance of theirs");
    remote.sh("echo 'p:theirs/sync ksys_sync' >> /sys/kernel/tracing/kprobe_events").expect("a probe of theirs");
    let before = remote.traces();
    assert!(before.contains("theirs"), "{before}");

    let doctor = stdout(&mut remote.flashscope(&["doctor"]));
    assert!(doctor.contains("yes  flash operations of raw NAND"), "{doctor}");
    assert_eq!(remote.traces(), before, "doctor left something");

    // The bench makes the one file that it is told to, reads it, and counts what the flash did.
    let bench = |readahead: &str| -> Value {
        let args = [
            "--file", "/data/film", "--create", "--file-size", "256K", "--count", "8", "--readahead", readahead,
            "--drop-caches", "--json",
        ];
        flashscope_tests::json(remote.flashscope(&["bench", "read"]).args(args))
    };
    let (off, on) = (bench("0"), bench("128"));
    let reads = |result: &Value| result["flash_reads"]["measured"].as_u64().unwrap_or_else(|| panic!("{result}"));
    assert_eq!(off["crc32"], on["crc32"]);
    assert_eq!(off["filesystem"], "jffs2");
    assert_eq!(on["readahead_kib"], 128);
    assert!(reads(&off) > 0 && reads(&on) > 2 * reads(&off), "off {} on {}", reads(&off), reads(&on));
    println!("over ssh: 8 sequential reads cost {} flash reads without read-ahead, {} with", reads(&off), reads(&on));
    assert_eq!(remote.traces(), before, "bench left something");

    // A command under trace, as a trace.dat that trace-cmd reads to the same events.
    let trace = remote.file("cat.dat");
    let mut record = remote.flashscope(&["record"]);
    record.arg("--output").arg(&trace);
    record.args(["--", "sh", "-c", "echo 3 > /proc/sys/vm/drop_caches; cat /data/film > /dev/null"]);
    stdout(&mut record);
    let found = report(&trace);
    let reads = found["counts"]["total"]["reads"].as_u64().expect("a count");
    assert!(reads > 64, "{reads} reads of a 256 KiB file");
    assert!(found["by_task"].as_array().is_some_and(|tasks| tasks.iter().any(|task| task["task"] == "cat")), "{found}");
    match Command::new("trace-cmd").arg("report").arg(&trace).output() {
        Ok(peer) => {
            let lines =
                String::from_utf8_lossy(&peer.stdout).lines().filter(|line| line.contains(" nand_read:")).count();
            assert_eq!(lines as u64, reads, "trace-cmd report sees another number of reads");
        }
        Err(_) => skip("trace-cmd is missing: its report was not compared"),
    }
    assert_eq!(remote.traces(), before, "record left something");

    replay(&remote);
    assert_eq!(remote.traces(), before, "bench replay left something");
    advice_is_applied_and_undone(&remote);
    assert_eq!(remote.traces(), before, "advice left something");

    two_recorders(&remote);
    assert_eq!(remote.traces(), before, "two recorders left something");
}

/// What a command reads, recorded over ssh and done again there: as much, of a file of its own, which is gone afterwards.
fn replay(remote: &Remote) {
    let trace = remote.file("film.dat");
    let mut record = remote.flashscope(&["record"]);
    record.args(["--events", "cache,syscall,flash", "--output"]).arg(&trace);
    record.args(["--", "sh", "-c", "echo 3 > /proc/sys/vm/drop_caches; cat /data/film > /dev/null"]);
    stdout(&mut record);
    let there = || remote.sh("ls -A /data; df /data | tail -n 1 | wc -w").expect("the board answers");
    let before = there();
    let replayed = |more: &[&str]| -> Value {
        let mut replay = remote.flashscope(&["bench", "replay"]);
        replay.args(["--process", "cat", "--dir", "/data", "--drop-caches", "--json"]).args(more).arg(&trace);
        flashscope_tests::json(&mut replay)
    };
    let asap = replayed(&[]);
    let recorded = replayed(&["--timing", "recorded", "--readahead", "128"]);
    for (name, done) in [("at once", &asap), ("at recorded times", &recorded)] {
        let (result, reads) = (&done["result"], &done["operations"][0]["reads"]);
        println!(
            "replay over ssh {name}: {} reads of {} bytes cost {reads} flash reads",
            result["reads"], result["bytes_read"]
        );
        assert_eq!(done["filesystem"], "jffs2", "{done}");
        assert_eq!((&result["bytes_read"], &result["files"]), (&json!(262_144), &json!(1)), "{result}");
        assert_eq!(done["operations_of"], "flash operations");
        // A file of printable bytes: 6.6 bits of each on the flash, of 2 KiB pages.
        assert!(reads.as_u64().is_some_and(|reads| reads >= 262_144 * 6 / 8 / 2048), "{done}");
    }
    assert_eq!(asap["result"]["tasks"][0]["checksum"], recorded["result"]["tasks"][0]["checksum"]);
    assert!(recorded["result"]["tasks"][0]["max_late_ns"].is_u64(), "{recorded}");
    assert_eq!(there(), before, "the replayed file is gone");
    // A directory that is not there is a failure (crates/cli/src/target.rs holds which line tells it).
    let mut nowhere = remote.flashscope(&["bench", "replay"]);
    let nowhere = output(nowhere.args(["--dir", "/nonexistent"]).arg(&trace));
    let said = String::from_utf8_lossy(&nowhere.stderr);
    assert_eq!(nowhere.status.code(), Some(1), "{said}");
}

/// The first pages of a file, read with 128 KiB of read-ahead: advised to be turned off, turned off, and as before again.
fn advice_is_applied_and_undone(remote: &Remote) {
    const KNOB: &str = "/sys/class/bdi/mtd-0/read_ahead_kb";
    let knob = || remote.sh(&format!("cat {KNOB}")).expect("the knob").trim().to_owned();
    let before = knob();
    remote.sh(&format!("echo 128 > {KNOB}")).expect("a knob");
    let trace = remote.file("head.dat");
    let mut record = remote.flashscope(&["record"]);
    record.arg("--output").arg(&trace).args(["--events", "flash,cache,syscall"]);
    record.args([
        "--",
        "sh",
        "-c",
        "echo 3 > /proc/sys/vm/drop_caches; dd if=/data/film of=/dev/null bs=4096 count=2 2>/dev/null",
    ]);
    stdout(&mut record);
    let advise = |more: &[&str]| {
        let mut command = remote.flashscope(&["advise"]);
        if !more.contains(&"--undo") {
            command.arg(&trace);
        }
        command.args(more).stdin(Stdio::null());
        command
    };
    let asked = output(&mut advise(&["--apply"]));
    assert_eq!(
        (asked.status.code(), knob().as_str()),
        (Some(2), "128"),
        "without a terminal nothing is asked, or changed"
    );
    let applied = stdout(&mut advise(&["--apply", "--yes"]));
    assert!(applied.contains("Turn read-ahead off") && applied.contains("was 128"), "{applied}");
    assert_eq!(knob(), "0");
    // Ended in between: noted, and not set yet.
    remote.sh("echo 'knob /sys/class/bdi/mtd-0/read_ahead_kb 0' >> /run/flashscope/advice").expect("a note");
    let undone = stdout(&mut advise(&["--undo"]));
    assert!(undone.contains("Settings restored"), "{undone}");
    assert_eq!(knob(), "128", "what it was before the first change");
    assert!(stdout(&mut advise(&["--undo"])).contains("Nothing was applied"));
    remote.sh(&format!("echo {before} > {KNOB}; rmdir /run/flashscope 2>/dev/null; true")).expect("as before");
}

/// Two recorders at once, started, paused, resumed and stopped from other shells.
fn two_recorders(remote: &Remote) {
    let start = |name: &str, more: &[&str]| {
        let mut command = remote.flashscope(&["record"]);
        command.args(["--name", name, "--output"]).arg(remote.file(&format!("{name}.dat"))).args(more);
        command.stdout(Stdio::null()).spawn().expect("a recorder")
    };
    let ctl = |words: &[&str]| output(remote.flashscope(&["ctl"]).args(words));
    let (mut first, mut second) = (start("first", &[]), start("second", &["--paused"]));
    let status = || String::from_utf8_lossy(&ctl(&["status"]).stdout).into_owned();
    wait_for("two recorders", || {
        for (name, child) in [("first", &mut first), ("second", &mut second)] {
            if let Some(ended) = child.try_wait().expect("a recorder") {
                let log = remote.sh("dmesg | tail -n 40").unwrap_or_else(|| "no answer".to_owned());
                panic!("{name} ended with {ended}; the kernel's log: {log}");
            }
        }
        let status = status();
        // Named is not yet armed: probes warm up before a recorder traces.
        let state = |name: &str, state: &str| {
            status.lines().any(|line| {
                line.contains(&format!("\"name\":\"{name}\"")) && line.contains(&format!("\"state\":\"{state}\""))
            })
        };
        state("first", "recording") && state("second", "paused")
    });
    let cold_read = || {
        remote.sh("echo 3 > /proc/sys/vm/drop_caches; cat /data/film > /dev/null").expect("a read");
    };
    cold_read(); // first sees it; second is armed only
    assert!(ctl(&["start", "second"]).status.success());
    cold_read(); // both
    assert!(ctl(&["pause", "first"]).status.success());
    cold_read(); // second
    assert!(ctl(&["resume", "first"]).status.success());
    assert!(ctl(&["stop", "first"]).status.success());
    end_of(first);
    cold_read(); // second
    assert!(ctl(&["stop", "second"]).status.success());
    end_of(second);
    let reads = |name: &str| {
        let found = report(remote.file(&format!("{name}.dat")));
        found["counts"]["total"]["reads"].as_u64().expect("a count")
    };
    let (first, second) = (reads("first"), reads("second"));
    println!("recorders at once: first saw 2 cold reads of the file ({first}), second 3 ({second})");
    // The same cold read costs the same commands each time, give or take what JFFS2's collector checks beside it.
    let one = first as f64 / 2.0;
    assert!((second as f64 - 3.0 * one).abs() < 0.25 * one, "first {first}, second {second}");
    let unknown = ctl(&["stop", "nobody"]);
    assert_eq!(unknown.status.code(), Some(1), "{}", String::from_utf8_lossy(&unknown.stderr));
}
