//! Traces that lie: names that are commands, escapes or ways to other files, facts that no machine has, times of any order. Whole commands
//! end well, what they print does not act on a terminal, and what they print to be typed runs nothing else.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::bounds::structured::Writer;
use flashscope_output::acts;
use flashscope_tests::{TempDir, flashscope, output, said};
use serde_json::{Value, json};

/// Numbers of a fixed seed (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8) % most
    }

    fn of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// The number that a machine would have, or in one case of four one that code stumbles over.
    fn or_extreme(&mut self, usual: u64) -> u64 {
        const EXTREMES: [u64; 12] =
            [0, 1, 7, 511, 1 << 20, (1 << 31) - 1, 1 << 32, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, u64::MAX];
        if self.below(4) == 0 { *self.of(&EXTREMES) } else { usual }
    }

    fn name(&mut self) -> String {
        let long = self.below(3) as usize * 2000 + 255;
        match self.below(NAMES.len() as u64 + 2) as usize {
            at if at < NAMES.len() => NAMES[at].to_owned(),
            at if at == NAMES.len() => "x".repeat(long),
            _ => "'; touch marked; '".repeat(long / 18),
        }
    }

    /// The kernel's name, or any.
    fn or_name(&mut self, usual: &str) -> String {
        if self.below(3) == 0 { usual.to_owned() } else { self.name() }
    }
}

/// Each that is run as a command makes a file `marked`.
const NAMES: [&str; 30] = [
    "a b",
    "it's",
    "a\"b",
    "; touch marked; ",
    "$(touch marked)",
    "`touch marked`",
    "x\ntouch marked\n",
    "&& touch marked",
    "| touch marked",
    "' ; touch marked ; '",
    "\" ; touch marked ; \"",
    "\u{1b}[2J\u{1b}]0;owned\u{7}",
    "txt\u{202e}gpj",
    "\u{9b}2J",
    "-rf",
    "--help",
    "../../../tmp/marked",
    "..",
    ".",
    "",
    "%n%s",
    "a\tb",
    "<script>alert(1)</script>",
    "]]>&lt;\"",
    "=1+1",
    "é 漢 \u{200b}",
    "a\\nb\\",
    "*?[a",
    "touch marked",
    "x  touch  marked",
];

const DISK: u64 = 8 << 20;

fn facts(n: &mut Numbers) -> Value {
    let kinds = ["ext4", "btrfs", "f2fs", "xfs", "ubifs", "jffs2", "squashfs", "overlay", "\u{1b}"];
    let options =
        ["rw,sync", "rw,discard", "rw,commit=1", "rw,relatime", "data=journal", "rw,commit=99999999999999999999"];
    let mounts: Vec<Value> = (0..6)
        .map(|at| {
            let (source, target) = (format!("/dev/{}", n.or_name("sda")), format!("/mnt/{}", n.name()));
            let target = if n.below(4) == 0 { n.name() } else { target };
            let mut option = (*n.of(&options)).to_owned();
            if n.below(4) == 0 {
                option += &format!(",{}", n.name());
            }
            json!({"source": source, "target": target, "type": n.of(&kinds), "device": format!("8:{}", at % 4), "options": option,
                   "block_bytes": n.or_extreme(4096), "size_bytes": n.or_extreme(1 << 30), "free_bytes": n.or_extreme(1 << 20)})
        })
        .collect();
    let disks: Vec<Value> = (0..4)
        .map(|at| {
            json!({"name": n.or_name(&format!("sd{at}")), "device": format!("8:{at}"), "size_bytes": n.or_extreme(1 << 40),
                   "read_ahead_kb": n.or_extreme(0), "max_sectors_kb": n.or_extreme(4), "nr_requests": n.or_extreme(4),
                   "scheduler": n.of(&["none", "bfq", "mq-deadline", "x y"]), "write_cache": "write back",
                   "dm_name": n.name(), "dm_uuid": n.of(&["CRYPT-LUKS2-x", "LVM-x", "\n"]),
                   "life_time": n.of(&["0x01 0x0b", "0xffffffffffffffffff 0x", "-1"]), "pre_eol_info": "0x03",
                   "loop": {"backing_file": format!("/mnt/{}/x", n.name()), "inode": n.or_extreme(5), "offset": n.or_extreme(0)}})
        })
        .collect();
    json!({
        "kernel": {"release": n.of(&["6.1.0", "5.10.0", "6.18.1", "2.6.37", "\u{1b}[31m", "99999999999999999999.1"]),
                   "machine": n.or_name("armv7l"), "page_size": n.or_extreme(4096)},
        "mtd": [{"index": 0, "type": "nand", "name": n.name(), "size": n.or_extreme(8 << 20), "erasesize": n.or_extreme(131_072),
                 "writesize": n.or_extreme(2048), "offset": n.or_extreme(0), "chip": 0, "ecc_failures": n.or_extreme(3)},
                {"index": 1, "type": "nand", "name": n.name(), "size": n.or_extreme(8 << 20), "erasesize": n.or_extreme(131_072),
                 "writesize": n.or_extreme(2048), "offset": n.or_extreme(8 << 20), "chip": n.or_extreme(0)}],
        "ubi": [{"mtd_num": 0, "ubi_num": 0, "name": n.name(), "max_ec": n.or_extreme(9), "bad_peb_count": n.or_extreme(1),
                 "reserved_for_bad": n.or_extreme(2), "eraseblock_size": n.or_extreme(126_976)}],
        "mounts": mounts,
        "block": disks,
        "bdi": [{"name": n.or_name("8:0"), "read_ahead_kb": n.or_extreme(128)}, {"name": n.or_name("ubifs_0_0"), "read_ahead_kb": 0}],
        "swaps": [{"path": n.name(), "device": "8:3"}],
        "recording": {"name": n.name(), "clock": n.or_name("mono"), "filter": {"comm": [n.name()]},
                      "trigger": {"reason": n.name(), "captures_lost": n.or_extreme(0)},
                      "absent": [{"group": n.name(), "event": n.name(), "why": n.name(), "loses": n.name()}]},
    })
}

fn names(n: &mut Numbers) -> Value {
    let path = |n: &mut Numbers| format!("/mnt/{}", n.name());
    let processes: Vec<Value> = (1..9)
        .map(|pid| {
            json!({"at_ns": n.or_extreme(0), "pid": pid, "parent": n.or_extreme(pid), "uid": n.or_extreme(0), "name": n.name(),
                   "command": n.name(), "cgroup": format!("/system.slice/{}.service", n.name()), "mnt_ns": n.below(3), "pid_ns": 1})
        })
        .collect();
    // Each above the next one, and the last above the first.
    let devices: Vec<Value> = (0..4)
        .map(|at| {
            json!({"device": format!("8:{at}"), "name": format!("sd{at}"), "dm": n.name(), "file": path(n), "model": n.name(),
                   "below": [format!("sd{}", (at + 1) % 4)]})
        })
        .collect();
    let files: Vec<Value> = (0..20)
        .map(|inode| {
            json!({"device": format!("8:{}", inode % 4), "inode": inode, "path": path(n), "was": path(n), "or": path(n),
                   "until_ns": n.or_extreme(1 << 40), "state": n.of(&["deleted", "named", "nonsense"])})
        })
        .collect();
    let mounts: Vec<Value> = (0..4)
        .map(|at| json!({"device": format!("8:{at}"), "root": "/", "point": path(n), "type": n.or_name("ext4"), "source": path(n)}))
        .collect();
    json!({"processes": processes, "threads": [[9, 1], [1, 9]], "devices": devices, "files": files, "mounts": mounts,
           "volumes": [{"volume": "ubi0_0", "name": n.name()}], "packages": [{"uid": 0, "name": n.name()}]})
}

/// Time that passes from event to event.
#[derive(Clone, Copy)]
enum Clock {
    Usual,
    Years,
    AnyOrder,
}

struct Work {
    writer: Writer,
    n: Numbers,
    now: u64,
    clock: Clock,
}

impl Work {
    fn tick(&mut self, usual: u64) -> u64 {
        match self.clock {
            Clock::Usual => self.now += usual,
            Clock::Years => self.now = self.now.saturating_add(usual << 32),
            Clock::AnyOrder => self.now = self.n.or_extreme(self.now.saturating_add(usual)),
        }
        self.now
    }

    fn event(&mut self, name: &str, tid: u32, usual: u64, values: &[u64], rwbs: &str) {
        let time = self.tick(usual);
        let values: Vec<u64> =
            values.iter().map(|&value| if self.n.below(8) == 0 { self.n.or_extreme(value) } else { value }).collect();
        let texts = |field: &str| if field == "rwbs" { rwbs.as_bytes() } else { b"8:0" };
        self.writer.event_texts(name, tid, time, &values, texts);
    }

    fn bio(&mut self, tid: u32, device: u64, sector: u64, sectors: u64, rwbs: &str) {
        self.event("block_bio_queue", tid, 1_000, &[device, sector, sectors], rwbs);
        self.event("block_rq_issue", tid, 1_000, &[device, sector, sectors, sectors * 512], rwbs);
        let error = if self.n.below(9) == 0 { -5_i64 as u64 } else { 0 };
        self.event("block_rq_complete", 0, 3_000_000, &[device, sector, sectors, error], rwbs);
    }

    fn call(&mut self, call: &str, tid: u32, ns: u64, count: u64) {
        self.event(&format!("sys_enter_{call}"), tid, 1_000, &[3, 3, 0, count], "");
        self.event(&format!("sys_exit_{call}"), tid, ns, &[3, count], "");
    }

    /// What one thread does at a time, on one of four disks that lie on each other, or on flash.
    fn step(&mut self, at: u64, of_flash: bool) {
        let (tid, device, inode) = ((1 + at % 8) as u32, DISK + self.n.below(4), self.n.below(20));
        let sector = self.n.below(1 << 20) * 8;
        match self.n.below(if of_flash { 10 } else { 7 }) {
            0 => {
                self.event("file_write", tid, 1_000, &[device, inode, 0, 512], "");
                self.call("write", tid, 100_000, 512);
                self.event("sys_enter_fsync", tid, 1_000, &[3, 3], "");
                self.bio(tid, device, sector, 8, "WS");
                self.bio(tid, device, 0, 0, "FF");
                self.event("sys_exit_fsync", tid, 1_000, &[3, 0], "");
            }
            1 => {
                self.event("file_read", tid, 1_000, &[device, inode, 1 << 20, sector * 512 % (1 << 20), 4096], "");
                self.bio(tid, device, sector, 8, "R");
                self.event("mm_filemap_add_to_page_cache", tid, 10, &[1, inode, sector / 8 % 256, device, 0], "");
                self.call("read", tid, 5_000_000, 4096);
            }
            2 => self.bio(tid, device, sector, 1 << 23, "D"),
            3 => {
                let below = DISK + (device - DISK + 1) % 4;
                self.event("block_bio_queue", tid, 1_000, &[device, sector, 8], "W");
                self.event("block_bio_remap", tid, 1_000, &[below, sector, 8, device, sector], "W");
                self.event("block_rq_issue", tid, 1_000, &[below, sector, 8, 4096], "W");
                self.event("block_rq_complete", 0, 2_000_000, &[below, sector, 8, 0], "W");
            }
            4 => {
                self.bio(tid, device, sector, u64::from(u32::MAX), "W");
                self.event("block_split", tid, 10, &[device, sector, sector + 8], "W");
            }
            5 => {
                self.event("writeback_dirty_folio", tid, 10, &[inode, 0], "");
                self.event("ext4_writepages", tid, 10, &[device, inode], "");
                self.bio(tid, device, sector, 8, "WM");
            }
            6 => {
                let comm = self.n.name();
                let time = self.tick(10);
                self.writer.event_texts("task_rename", tid, time, &[u64::from(tid)], |_| comm.as_bytes());
            }
            7 => self.event("nand_read", tid, 130_000, &[sector % 4096, 0, 2048, 0], ""),
            8 => self.event("nand_program", tid, 250_000, &[sector % 4096, 0], ""),
            _ => self.event("nand_erase", tid, 2_000_000, &[sector % 64, 0], ""),
        }
    }
}

fn trace(seed: u64) -> Vec<u8> {
    let mut n = Numbers::new(seed);
    let of_flash = seed % 3 == 2;
    let facts = facts(&mut n);
    let mut writer = Writer::new(&facts, |_, name| of_flash || !name.starts_with("nand_"));
    writer.names(&names(&mut n));
    let clock = [Clock::Usual, Clock::Usual, Clock::Years, Clock::AnyOrder][(seed / 3 % 4) as usize];
    let mut work = Work { writer, n, now: 1_000_000_000, clock };
    (0..400).for_each(|at| work.step(at, of_flash));
    let count = work.n.or_extreme(0);
    work.writer.statistics(count);
    work.writer.finish()
}

/// A result, or one line and a failure. Nothing of it acts on a terminal.
fn ends_well(ran: &Output, what: &str) {
    let stderr = said(ran);
    let refused = stderr.lines().count() == 1 && stderr.starts_with("flashscope: ");
    assert!(
        ran.status.success() || matches!(ran.status.code(), Some(1 | 2)) && refused,
        "{what}: {}\n{stderr}",
        ran.status
    );
    let stdout = String::from_utf8_lossy(&ran.stdout);
    for text in [&*stderr, &*stdout] {
        let acting = text.lines().find(|line| line.chars().any(acts));
        assert!(acting.is_none(), "{what}: {acting:?}");
    }
}

/// The lines that `advise` prints to be typed, as a shell takes them: there is no program but touch.
fn runs_nothing(dir: &Path, text: &str, what: &str) {
    let commands =
        ["echo ", "mount ", "umount ", "tune2fs ", "cryptsetup ", "fstrim ", "df ", "du ", "ionice ", "mkfs"];
    let typed = text.lines().map(|line| line.trim_start().trim_start_matches("now:").trim_start());
    for line in typed.filter(|line| commands.iter().any(|command| line.starts_with(command))) {
        // Nothing is written below /sys.
        let line = line.replace("/sys/", "/nosuch/");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &line]).current_dir(dir.join("cwd")).env("PATH", dir.join("bin")).stdin(Stdio::null());
        output(&mut shell);
        let left: Vec<_> = std::fs::read_dir(dir.join("cwd")).expect("a directory").flatten().collect();
        assert!(left.is_empty(), "{what}: {line}: {left:?}");
    }
}

#[test]
fn commands_end_well_and_run_nothing_whatever_a_trace_says() {
    let dir = TempDir::new("lies");
    for name in ["bin", "cwd"] {
        std::fs::create_dir(dir.path().join(name)).expect("a directory");
    }
    std::os::unix::fs::symlink("/usr/bin/touch", dir.path().join("bin/touch")).expect("a link");
    let path = dir.path().join("lies.stream");
    let (text, page) = (path.display().to_string(), dir.path().join("page").display().to_string());
    let seeds = std::env::var("FLASHSCOPE_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let first: u64 = std::env::var("FLASHSCOPE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds {
        std::fs::write(&path, trace(seed)).expect("a trace");
        for arguments in [
            &["report"][..],
            &["report", "--json"],
            &["report", "--html", &page],
            &["report", "--perfetto", &page],
            &["report", "--call", "1"],
            &["report", "--by", "app"],
            &["report", "--by", "layer"],
            &["report", "--by", "file", "--top", "1000000"],
            &["report", "--fail-if", "errors > 0", "--fail-if", "p99(d2c, app=it's) > 1ms", "--junit", &page],
            &["advise"],
            &["advise", "--json"],
            &["predict"],
            &["diff", &text],
            &["export", "--to", "csv", "-o", "-"],
            &["export", "--to", "json", "-o", "-"],
            &["export", "--to", "text", "-o", "-"],
            &["export", "--to", "perfetto", "-o", &page],
            &["export", "--to", "trace.dat", "-o", &page],
            &["export", "--to", "flashmon", "-o", &page],
            &["export", "--rows", "bios", "--to", "csv", "-o", "-"],
        ] {
            let what = format!("seed {seed}, {arguments:?}");
            let ran = output(flashscope().arg(arguments[0]).arg(&path).args(&arguments[1..]).stdin(Stdio::null()));
            if arguments.contains(&"--fail-if") {
                assert!(ran.status.code().is_some_and(|code| code <= 3), "{what}: {}", said(&ran));
                continue;
            }
            ends_well(&ran, &what);
            if matches!(arguments, ["advise"] | ["report"]) {
                runs_nothing(dir.path(), &String::from_utf8_lossy(&ran.stdout), &what);
            }
        }
    }
}
