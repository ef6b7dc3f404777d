//! `record --boot`: a board that keeps its card is prepared over ssh, booted, collected from, and as it was before.
//!
//! The card's init finds nothing mounted but its read-only root, as a kernel without an initramfs starts it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flashscope_targets::NoProgress;
use flashscope_targets::board::{self, Board, Image, ImageBuilder, Kernel, Run};
use flashscope_tests::{Plan, TempDir, flashscope, null_block, output, stdout};
use flashscope_trace::Trace;
use serde_json::Value;

use crate::remote::{client, has_ssh, ssh_server};

const FIRST: &[u8] = include_bytes!("at_boot/first.sh");
const INIT: &[u8] = include_bytes!("at_boot/init.sh");

/// A board with a card of its own, between its boots.
struct Card {
    dir: TempDir,
    board: Board,
    kernel: Kernel,
    image: Image,
}

/// One boot of it.
struct Boot<'a> {
    card: &'a Card,
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Card {
    fn new() -> Card {
        let dir = TempDir::new("at-boot");
        let key = client(dir.path());
        let board = board::load("armv7").expect("the board");
        let kernel = board.fetch("", &NoProgress).expect("the kernel");
        let mut image = ImageBuilder::new(&board).expect("an agent");
        let mut lines = image.add_net_modules(&kernel).expect("modules");
        lines.iter_mut().for_each(|line| *line = line.trim_start_matches("module ").to_owned());
        for path in image.add_module_closure(&kernel, &["sdhci-pci", "mmc_block", "ext4"]).expect("modules") {
            lines.push(path);
        }
        ssh_server(&mut image, &board, &kernel, &key);
        image.add_file("/modules", 0o644, (lines.join("\n") + "\n").into_bytes());
        image.add_file("/first.sh", 0o755, FIRST.to_vec());
        image.add_file("/init.sh", 0o755, INIT.to_vec());
        image.set_plan(&[] as &[&str]);
        let image = image.build().expect("an image");
        let file = dir.path().join("card");
        std::fs::File::create(&file).and_then(|file| file.set_len(64 << 20)).expect("a card");
        stdout(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&file));
        Card { dir, board, kernel, image }
    }

    fn boot(&self) -> Boot<'_> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let stop = Arc::new(AtomicBool::new(false));
        let (board, kernel, image) = (self.board.clone(), self.kernel.clone(), self.image.clone());
        let drive = format!("if=none,id=card,format=raw,file={}", self.dir.path().join("card").display());
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let args = ["-device", "sdhci-pci", "-drive", &drive, "-device", "sd-card,drive=card"];
                let run = Run {
                    icount: false,
                    hostfwd: Some(port),
                    stop: Some(&stop),
                    timeout: Duration::from_secs(3600),
                    cmdline: "rdinit=/first.sh".to_owned(),
                    args: args.map(str::to_owned).to_vec(),
                    ..Run::new(&board, &kernel, &image)
                };
                // It is stopped, never done.
                let said = board::boot(&run, &NoProgress).map(|_| ()).unwrap_err().to_string();
                println!("{said}");
                assert!(!said.contains("mounted already"), "init found what it does not find without us");
            })
        };
        let boot = Boot { card: self, port, stop, thread: Some(thread) };
        let began = Instant::now();
        while boot.sh("true").is_none() {
            assert!(
                began.elapsed() < Duration::from_secs(300)
                    && boot.thread.as_ref().is_some_and(|thread| !thread.is_finished()),
                "the board does not answer"
            );
            std::thread::sleep(Duration::from_millis(500));
        }
        boot
    }
}

impl Boot<'_> {
    fn ssh(&self, script: &str) -> Command {
        let mut ssh = Command::new(self.card.dir.path().join("bin/ssh"));
        ssh.args(["-o", "ConnectTimeout=5", "-p", &self.port.to_string(), "root@127.0.0.1", script]);
        ssh.stdin(Stdio::null()).stderr(Stdio::null());
        ssh
    }

    /// A command on the board; `None` where it fails.
    fn sh(&self, script: &str) -> Option<String> {
        let output = self.ssh(script).output().expect("ssh");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn record(&self, words: &[&str]) -> Command {
        let path =
            format!("{}:{}", self.card.dir.path().join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut command = flashscope();
        command.env("PATH", path).args(["record", "--boot"]).args(words);
        command.args(["--on", &format!("ssh://root@127.0.0.1:{}", self.port)]);
        command
    }

    /// What fails says this.
    fn refused(&self, words: &[&str], why: &str) {
        let output = output(&mut self.record(words));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(why), "{:?}: {said}", output.status.code());
    }

    /// All that lies on the card: names, modes, times, inodes, contents. Directories' own times change when a name in them does.
    fn files(&self) -> String {
        let script = "cd /; find . -xdev ! -type d | sort | xargs ls -ldin; find . -xdev -type d | sort; \
                      find . -xdev -type f | sort | xargs sha256sum";
        self.sh(script).expect("the board answers")
    }

    /// Switched off without a warning, as by its plug.
    fn unplug(mut self) {
        self.off();
    }

    fn off(&mut self) {
        let mut shared = Command::new(self.card.dir.path().join("bin/ssh"));
        shared.args(["-O", "exit", "root@127.0.0.1"]).stderr(Stdio::null()).status().ok();
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the boot");
        }
    }
}

impl Drop for Boot<'_> {
    fn drop(&mut self) {
        self.off();
    }
}

/// Bytes that were read of a file, by who read them.
fn read_of(trace: &Path, path: &str) -> Vec<(String, u64)> {
    let report = flashscope_tests::report(trace);
    let files = report["names"]["files"].as_array().expect("files");
    let of = files.iter().filter(|file| file["path"] == path);
    of.map(|file| (file["who"].as_str().unwrap_or_default().to_owned(), file["read_bytes"].as_u64().unwrap_or(0)))
        .collect()
}

/// Refusals and an undo without a boot in between: nothing on the card is another.
fn prepared_and_undone(boot: &Boot, before: &str) {
    boot.refused(&["--collect"], "is not prepared");
    assert!(stdout(&mut boot.record(&["--undo"])).contains("nothing to undo"));
    boot.sh("mount -o remount,ro /").expect("a read-only root");
    boot.refused(&[], "it is mounted read-only: mount -o remount,rw /");
    boot.sh("mount -o remount,rw /; dd if=/dev/zero of=/data/full bs=65536; true").expect("a full card");
    boot.refused(&[], "are needed there for the agent");
    boot.sh("rm /data/full; sync").expect("room");
    assert_eq!(boot.files(), before, "a refused preparation left something");

    let said = stdout(&mut boot.record(&["-q"]));
    assert!(said.contains("made /sbin/flashscope-boot: ") && said.contains("(link to ../lib/board/init)"), "{said}");
    assert!(said.contains("replaced /sbin/init: it starts the agent, then runs /usr/lib/board/init"), "{said}");
    assert_ne!(boot.files(), before);
    boot.refused(&[], "is prepared already");
    boot.refused(&["--collect"], "there is no recording of this boot: reboot");
    let said = stdout(&mut boot.record(&["--undo"]));
    assert!(said.contains("put back /sbin/init (link to ../lib/board/init)\nremoved /sbin/flashscope-boot"), "{said}");
    assert_eq!(boot.files(), before, "undo left something");
}

#[test]
fn a_boards_own_boot_is_recorded_from_inits_start() {
    if !has_ssh() {
        return;
    }
    let card = Card::new();
    let boot = card.boot();
    let before = boot.files();
    prepared_and_undone(&boot, &before);
    stdout(&mut boot.record(&["-q", "-d", "600", "--events", "block,cache,syscall"]));
    // What was prepared is on the card: its plug may be pulled now.
    boot.unplug();

    let boot = card.boot();
    let began = boot.sh("cat /run/began; ls -A /run /tmp").expect("the board answers");
    let trace = card.dir.path().join("boot.dat");
    let said = output(&mut boot.record(&["--collect", "-o", &trace.display().to_string()]));
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    println!("{words}");
    assert!(said.status.success() && words.contains("put back /sbin/init"), "{words}");
    assert_eq!(boot.files(), before, "collecting left something");
    let left =
        "ls /sys/kernel/tracing/instances 2>/dev/null; pidof flashscope-agent; ls -A /run/flashscope 2>/dev/null; true";
    assert_eq!(boot.sh(left).as_deref(), Some(""), "something runs on");
    boot.refused(&["--collect"], "is not prepared");
    boot.unplug();

    // Ground truth: init's own clock at its first line, and the file that it read.
    let began: f64 = began.lines().next().and_then(|line| line.trim().parse().ok()).expect("seconds");
    let mut first = u64::MAX;
    let opened = Trace::open(&trace).expect("a trace");
    opened.for_each_record(&mut |record| first = first.min(record.time.0)).expect("records");
    println!("init began at {began} s, the recording at {:.2} s", first as f64 / 1e9);
    assert!((first as f64 / 1e9) < began, "init began at {began} s, the recording at {first} ns");
    assert_eq!(read_of(&trace, "/data/big"), [("dd".to_owned(), 1 << 20)]);

    // And it boots as ever, with no recorder.
    let boot = card.boot();
    assert_eq!(boot.files(), before);
    assert!(boot.sh("pidof flashscope-agent").is_none());
}

/// The kernel's own recording, which its command line starts (docs/how-to/record-at-boot.md): its text has the mount of a file system
/// before there is a recorder, and the reads of a file.
#[test]
fn what_the_kernels_command_line_records_is_read() {
    let mut plan = Plan::new("armv7", "6.1");
    plan.no_nand = true;
    plan.cmdline = "trace_event=block:* trace_clock=mono trace_buf_size=4M".to_owned();
    plan.modules = &["null_blk nr_devices=0", "ext4"];
    plan.packages = &["busybox-static", "e2fsprogs"];
    plan.only_packages = &["busybox", "e2fsprogs", "lib"];
    plan.lines = null_block(&["memory_backed=1", "irqmode=2", "completion_nsec=100000", "size=64"]);
    let work = [
        "run mkfs mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nullb0",
        "mkdir /mnt",
        "mount /dev/nullb0 /mnt ext4 -",
        "run write /bin/busybox dd if=/dev/urandom of=/mnt/file bs=4096 count=64 conv=fsync",
        "write /proc/sys/vm/drop_caches 3",
        "run read /bin/busybox dd if=/mnt/file of=/dev/null bs=4096",
        "write /sys/kernel/tracing/tracing_on 0",
        "run trace /bin/busybox cat /sys/kernel/tracing/trace",
    ];
    plan.lines.extend(work.map(str::to_owned));
    let booted = plan.boot();
    let dir = TempDir::new("at-boot-command-line");
    let text = dir.path().join("boot.txt");
    std::fs::write(&text, &booted.step("trace").stdout).expect("a file");
    let report = stdout(flashscope().args(["report", "--json"]).arg(&text));
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let groups = report["block"]["groups"].as_array().expect("groups");
    let reads: u64 = groups
        .iter()
        .filter(|group| group["by"] == "device" && group["name"].as_str().is_some_and(|name| name.ends_with(" reads")))
        .filter_map(|group| group["bytes"].as_u64())
        .sum();
    println!("{reads} bytes read");
    // The file, and the super block and inodes that its mount read.
    assert!(reads >= 64 * 4096, "{reads}");
}
