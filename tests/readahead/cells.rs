//! What the models are compared with: every cell of the studies that read, and workloads of tests/readahead/work.c.

use std::path::Path;

use flashscope_predict::FilesystemOptions;
use flashscope_study::runs::{RunsStudy, postmark_commands};
use flashscope_study::{Readahead, SQUASHFS_BLOCK, Study, groups, squashfs_image};
use flashscope_tests::{Booted, Plan, TempDir, top, work};
use flashscope_trace::Session;

/// Windows that the workloads of our own are read with, KiB.
pub const OWN_KIB: [u64; 6] = [0, 4, 16, 20, 128, 256];

/// How often cells are run that may not be the same twice: two processes in one file, and files that are made anew.
const TWO_TASKS_RUNS: u64 = 8;
/// What is predicted from a recording of another mount or image.
pub const OTHER: &str = "other mount";
/// Two processes that read one file at the same time.
pub const TWO_TASKS: &str = "two tasks";
const POSTMARKS: u64 = 4;

/// By how much later than usual the cells are to begin: guest time is exact, and a boot that is as the last one records the same.
pub fn later_ms() -> Option<u64> {
    let ms = std::env::var("FLASHSCOPE_READAHEAD_LATER").ok().filter(|ms| !ms.is_empty())?;
    Some(ms.parse().expect("FLASHSCOPE_READAHEAD_LATER: milliseconds"))
}

/// A disk behind a block queue, on a board of its own.
pub fn is_behind_queue(filesystem: &str) -> bool {
    filesystem == "ext4"
}

/// One run on a board.
#[derive(Clone)]
pub struct Cell {
    pub step: String,
    pub study: &'static str,
    /// Without its window.
    pub label: String,
    pub kib: u64,
    /// Window of the recording that this one is predicted from.
    pub from_kib: u64,
    /// Plan lines before it.
    before: Vec<String>,
    command: String,
}

/// A boot: one kernel, one file system, some cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    pub kernel: String,
    pub filesystem: String,
    /// `reads`, `timed`, `two-tasks`, `exec`, `sizes`, `sqlite`, `postmark` or
    /// `postmarks`; `other`: reads, predicted from those of another mount or image.
    pub what: String,
    /// Only so many of the cells: what every run of the suite has time for.
    pub bounded: bool,
}

impl Set {
    /// `6.1 jffs2 reads`
    pub fn parse(text: &str, bounded: bool) -> Set {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let [kernel, filesystem, what] = <[String; 3]>::try_from(words).expect("KERNEL FILESYSTEM CELLS");
        Set { kernel, filesystem, what, bounded }
    }

    pub fn id(&self) -> String {
        format!("{}-{}-{}", self.kernel, self.filesystem, self.what)
    }

    fn knob(&self) -> &'static str {
        match self.filesystem.as_str() {
            "jffs2" => "/sys/class/bdi/mtd-0/read_ahead_kb",
            "ubifs" | "ubifs-bulk" => "/sys/class/bdi/ubifs_0_0/read_ahead_kb",
            "squashfs-ubiblock" => "/sys/block/ubiblock0_0/queue/read_ahead_kb",
            "ext4" => "/sys/block/nullb0/queue/read_ahead_kb",
            _ => "/sys/block/mtdblock0/queue/read_ahead_kb",
        }
    }

    /// Whether the chip takes its time. What every run of the suite holds of squashfs is its pages.
    pub fn is_timed(&self) -> bool {
        !self.bounded || ["timed", "two-tasks"].contains(&self.what.as_str())
    }

    pub fn is_queue(&self) -> bool {
        is_behind_queue(&self.filesystem)
    }

    /// UBIFS mounted with `bulk_read`.
    fn is_bulk(&self) -> bool {
        self.filesystem == "ubifs-bulk"
    }

    fn is_squashfs(&self) -> bool {
        self.filesystem.starts_with("squashfs")
    }

    fn block_bytes(&self) -> u64 {
        if self.filesystem == "squashfs-16k" { 16 << 10 } else { SQUASHFS_BLOCK }
    }

    /// Reads of the same files under the other mount option, or in blocks of another size.
    pub fn counterpart(&self) -> Set {
        let filesystem = match self.filesystem.as_str() {
            "ubifs" => "ubifs-bulk",
            "ubifs-bulk" => "ubifs",
            "squashfs-16k" => "squashfs-mtdblock",
            "squashfs-mtdblock" => "squashfs-16k",
            other => panic!("{other}: ubifs, ubifs-bulk, squashfs-16k or squashfs-mtdblock"),
        };
        Set { filesystem: filesystem.to_owned(), ..self.reads() }
    }

    /// Whose recording a set of `other` is compared with.
    pub fn reads(&self) -> Set {
        Set { what: "reads".to_owned(), ..self.clone() }
    }

    /// What is made otherwise than in the counterpart.
    pub fn options(&self) -> FilesystemOptions {
        match self.is_squashfs() {
            true => FilesystemOptions { squashfs_block: Some(self.block_bytes()), ..FilesystemOptions::default() },
            false => FilesystemOptions { bulk_read: Some(self.is_bulk()), ..FilesystemOptions::default() },
        }
    }

    fn squashfs_mount(&self) -> Option<String> {
        let device = match self.filesystem.as_str() {
            "squashfs-mtdblock" | "squashfs-16k" => "mtdblock0",
            "squashfs-ubiblock" => "ubiblock0_0",
            _ => return None,
        };
        Some(format!("mount /dev/{device} /mnt squashfs ro"))
    }

    pub fn cells(&self) -> Vec<Cell> {
        if self.what == "other" {
            let own = self.reads().cells().into_iter().filter(|cell| cell.study == "own");
            return own.map(|cell| Cell { study: OTHER, from_kib: cell.kib, ..cell }).collect();
        }
        let mut cells = match self.what.as_str() {
            "reads" if self.bounded && self.is_bulk() => self.own(),
            "reads" => {
                let mut cells = self.of_study("readahead-reads", "reads");
                cells.extend(self.of_study("readahead-interarrival", "interarrival"));
                cells.extend(self.own());
                cells
            }
            "two-tasks" => Set::again(self.of(&["two"]), TWO_TASKS_RUNS)
                .into_iter()
                .map(|cell| Cell { study: TWO_TASKS, ..cell })
                .collect(),
            "postmarks" => {
                Set::again(self.postmark().into_iter().filter(|cell| cell.label != self.filesystem), POSTMARKS)
            }
            "exec" => self.mapped_programs(),
            "timed" => self.of_study("readahead-reads", "reads"),
            "sizes" => self.of_study("readahead-request-size", "request size"),
            "sqlite" => self.of_study("sqlite", "SQLite"),
            "postmark" => self.postmark(),
            other => panic!("{other}: reads, other, timed, two-tasks, exec, sizes, sqlite, postmark or postmarks"),
        };
        for (index, cell) in cells.iter_mut().enumerate() {
            cell.step = format!("cell-{index:05}");
            if let Some(mount) = self.squashfs_mount() {
                // Up to 5.10 squashfs keeps blocks that it unpacked where `drop_caches` does not reach: a mount of its own has none.
                cell.before.splice(0..0, ["umount /mnt".to_owned(), mount]);
            }
        }
        cells
    }

    fn of_study(&self, name: &str, label: &'static str) -> Vec<Cell> {
        let file = format!("{name}.toml");
        let text = std::fs::read_to_string(top().join("studies").join(&file)).expect("the study");
        let study = Study::parse(&file, &text).expect("the study");
        // Of UBIFS the studies know one kind: how it is mounted is this set's.
        let filesystem = self.filesystem.trim_end_matches("-bulk");
        let groups = groups(&study.definition.matrix).into_iter().filter(|g| g.filesystem.as_str() == filesystem);
        let mut cells = Vec::new();
        for group in groups {
            let apart_from_others = |command: String| command.replace(".db", &format!("-{}.db", group.contents));
            for cell in &group.cells {
                let Readahead::Kib(kib) = cell.readahead else { continue };
                let wanted = match label {
                    "reads" => [8, 256].contains(&cell.count),
                    "SQLite" => [10, 100].contains(&cell.count),
                    _ => false,
                };
                if self.bounded && !wanted {
                    continue;
                }
                let what = match label {
                    "SQLite" => format!("{} SELECTs, {}, {}", cell.count, group.contents, cell.pattern.as_str()),
                    _ => format!("{} × {} B {}", cell.count, cell.request_size.0, cell.pattern.as_str()),
                };
                let apart = match cell.interarrival_us {
                    0 => String::new(),
                    us => format!(", {us} µs apart"),
                };
                cells.push(Cell {
                    step: String::new(),
                    study: label,
                    label: what + &apart,
                    kib,
                    from_kib: if kib == 0 { 128 } else { 0 },
                    before: Vec::new(),
                    command: apart_from_others(group.command(cell)),
                });
            }
        }
        cells
    }

    /// Lines that make the databases, one of each kind in one file system, and where they lie.
    fn databases(&self) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(top().join("studies/sqlite.toml")).expect("the study");
        let study = Study::parse("sqlite.toml", &text).expect("the study");
        let groups = groups(&study.definition.matrix);
        let ours = groups.iter().filter(|group| group.filesystem.as_str() == self.filesystem);
        ours.map(|group| {
            let own = format!("-{}.db", group.contents);
            let create = group.create_command().expect("a database is made").replace(".db", &own);
            (format!("run create-{} {create}", group.contents), format!("/mnt/contacts{own}"))
        })
        .collect()
    }

    fn own(&self) -> Vec<Cell> {
        let whole = ["odd", "mixed", "backward", "strided", "large", "interleave", "end"];
        // Two tasks in one file have sets of their own; behind a queue each task's pauses are replayed.
        let two: &[&str] = if self.is_queue() { &["two"] } else { &[] };
        let mapped = ["mmap", "mmap-random", "mmap-sequential", "willneed", "fadvise"];
        self.of(&[&whole[..], two, &mapped].concat())
    }

    /// Of programs of tests/readahead/work.c.
    fn of(&self, programs: &[&str]) -> Vec<Cell> {
        let mut cells = Vec::new();
        for kib in OWN_KIB {
            if self.bounded && ![0, 4, 128].contains(&kib) {
                continue;
            }
            for &what in programs {
                for (file, size) in [("odd", 1_500_001), ("even", 1_228_800)] {
                    let mapped = what.starts_with("mmap");
                    if self.bounded && kib == 4 && !mapped {
                        continue;
                    }
                    if self.bounded && (file == "even") != ["end", "large", "mmap-sequential"].contains(&what) {
                        continue;
                    }
                    cells.push(Cell {
                        step: String::new(),
                        study: "own",
                        label: format!("{what}, {size} B"),
                        kib,
                        // A fault maps what is cached around it, and what is mapped leaves no trace: least is there with no
                        // window, next with the smallest.
                        from_kib: match (self.is_queue(), mapped, kib) {
                            (_, true, 0) => 4,
                            (false, true, _) | (false, false, 128) | (true, true, 4) => 0,
                            // Requests of one length tell nothing of others.
                            (true, true, 16) | (true, false, 128) => 20,
                            (true, true, _) => 16,
                            _ => 128,
                        },
                        before: vec![
                            format!("write {} {kib}", self.knob()),
                            "write /proc/sys/vm/drop_caches 3".to_owned(),
                        ],
                        command: format!("/work {what} /mnt/{file}"),
                    });
                }
            }
        }
        cells
    }

    /// Again and again: what differs though nothing was changed no prediction can tell.
    fn again(cells: impl IntoIterator<Item = Cell>, runs: u64) -> Vec<Cell> {
        let again = |cell: Cell| {
            let run = move |run| Cell { study: "again", label: format!("{}, run {run}", cell.label), ..cell.clone() };
            (1..=runs).map(run)
        };
        cells.into_iter().flat_map(again).collect()
    }

    /// Mappings with PROT_EXEC, and MADV_WILLNEED on others.
    fn mapped_programs(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for kib in OWN_KIB {
            for what in ["mmap-exec", "mmap-willneed"] {
                cells.push(Cell {
                    step: String::new(),
                    study: "own",
                    label: format!("{what}, 1500001 B"),
                    kib,
                    from_kib: if kib == 0 { 4 } else { 0 },
                    before: vec![format!("write {} {kib}", self.knob()), "write /proc/sys/vm/drop_caches 3".to_owned()],
                    command: format!("/work {what} /mnt/odd"),
                });
            }
        }
        cells
    }

    fn postmark(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for name in ["postmark-partial-reads", "postmark"] {
            let file = format!("{name}.toml");
            let text = std::fs::read_to_string(top().join("studies").join(&file)).expect("the study");
            let study = RunsStudy::parse(&file, &text).expect("the study");
            for case in postmark_commands(&study.definition.runs) {
                // What only mounts or writes back otherwise reads nothing else.
                if case.filesystem.as_str() != self.filesystem || case.options.is_some() || case.name.contains("held") {
                    continue;
                }
                if self.bounded && !case.name.contains("64K") {
                    continue;
                }
                // The study of the flash leaves read-ahead as it is: both are run here.
                let windows = match case.readahead {
                    Readahead::Kib(kib) => vec![(kib, case.command.clone())],
                    _ => [0, 128]
                        .map(|kib| (kib, case.command.replace("--readahead keep", &format!("--readahead {kib}"))))
                        .to_vec(),
                };
                for (kib, command) in windows {
                    cells.push(Cell {
                        step: String::new(),
                        study: "Postmark",
                        label: case.name.trim_end_matches(".ra0").trim_end_matches(".ra128").to_owned(),
                        kib,
                        from_kib: if kib == 0 { 128 } else { 0 },
                        before: Vec::new(),
                        command,
                    });
                }
            }
        }
        cells
    }

    /// What running every cell on the board left, recorded. With a directory the port's stream is kept there, and one that is
    /// there already is taken instead of a boot: what is made of recordings changes more often than what they show.
    pub fn session(&self, cells: &[Cell], kept: Option<&Path>) -> Session {
        let Some(path) = kept.map(|dir| dir.join(format!("{}.port", self.id()))) else {
            return self.boot(cells).session;
        };
        if !path.exists() {
            let booted = self.boot(cells);
            let part = path.with_extension("part");
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::copy(booted.outcome.port_file(), &part).expect("a recording is kept");
            std::fs::rename(&part, &path).expect("a recording is kept");
        }
        Session::open(&path).expect("a port file")
    }

    /// Boots the board and runs every cell, recorded.
    fn boot(&self, cells: &[Cell]) -> Booted {
        let there = |path: &str| format!("device-wait {path} 5000");
        // A disk is mounted as the board starts.
        let board = if self.is_queue() { "armv7-blk" } else { "armv7" };
        let mut lines = if self.is_queue() { Vec::new() } else { vec![there("/dev/mtd0"), "mkdir /mnt".to_owned()] };
        let volume =
            ["ubi-attach 0", "device-wait /dev/ubi0 5000", "ubi-mkvol 0 data all", "device-wait /dev/ubi0_0 5000"];
        let mount = |line: &str| vec![line.to_owned()];
        lines.extend(match self.filesystem.as_str() {
            "ext4" => Vec::new(),
            "jffs2" => mount("mount mtd0 /mnt jffs2 -"),
            "yaffs2" => vec![there("/dev/mtdblock0"), "mount /dev/mtdblock0 /mnt yaffs2 -".to_owned()],
            "squashfs-mtdblock" | "squashfs-16k" => ["nand-write 0 /image".to_owned(), there("/dev/mtdblock0")]
                .into_iter()
                .chain(self.squashfs_mount())
                .collect(),
            "squashfs-ubiblock" => volume
                .map(str::to_owned)
                .into_iter()
                .chain(["ubi-write /dev/ubi0_0 /image", "ubi-block /dev/ubi0_0"].map(str::to_owned))
                .chain([there("/dev/ubiblock0_0")])
                .chain(self.squashfs_mount())
                .collect(),
            _ => {
                let mounted = "mount ubi0:data /mnt ubifs -".to_owned();
                let bulk = self.is_bulk().then(|| "mount ubi0:data /mnt ubifs remount,bulk_read".to_owned());
                volume.map(str::to_owned).into_iter().chain([mounted]).chain(bulk).collect()
            }
        });
        let databases = if self.what == "sqlite" { self.databases() } else { Vec::new() };
        let files: Vec<(&str, u64, &str, u64)> = match self.what.as_str() {
            // An end in the middle of a page, and one at a page's end.
            "reads" | "timed" | "exec" | "two-tasks" => vec![
                ("data", 5 << 20, "printable", 1),
                ("odd", 1_500_001, "printable", 2),
                ("even", 1_228_800, "printable", 3),
            ],
            "sizes" => vec![("data", 32 << 20, "printable", 1)],
            _ => Vec::new(),
        };
        let mut plan = Plan::new(board, &self.kernel);
        let dir = TempDir::new("readahead");
        if self.is_squashfs() {
            plan.files.push(("/image", 0o644, squashfs_image(&files, self.block_bytes()).expect("mksquashfs")));
        } else {
            lines.extend(
                files.iter().map(|(name, size, what, seed)| format!("create /mnt/{name} {size} {what} {seed}")),
            );
        }
        plan.files.push(("/work", 0o755, work(board, "readahead/work.c", dir.path())));
        if self.what == "sqlite" {
            let program = flashscope_targets::companion_for("armhf", "flashscope-sqlite").expect("make sqlite");
            plan.files.push(("/flashscope/flashscope-sqlite", 0o755, std::fs::read(program).expect("a program")));
        }
        lines.extend(databases.iter().map(|(create, _)| create.clone()));
        match self.filesystem.as_str() {
            "jffs2" => lines.push("settle jffs2_gcd 200 600000".to_owned()),
            "yaffs2" => lines.push("settle yaffs2_gc 200 600000".to_owned()),
            "ext4" => lines.push("sleep 3000".to_owned()),
            _ => {}
        }
        lines.push(match self.is_queue() {
            // Read at the end: who drains it meanwhile takes the board's one processor, and that is no call's time.
            true => "record-start --mode ring --events block,cache,syscall --ring 32768".to_owned(),
            false => "record-start --events flash,cache,syscall,sched:sched_switch --ring 8192".to_owned(),
        });
        // Where a page lies no rule tells. Pages that are read one by one show it.
        let read =
            files.iter().map(|(name, ..)| format!("/mnt/{name}")).chain(databases.iter().map(|(_, at)| at.clone()));
        for (index, file) in read.enumerate().filter(|_| !self.is_queue()) {
            lines.push(format!(
                "run layout-{index} /flashscope/agent bench read --file {file} --pattern pages --readahead 0 --drop-caches"
            ));
        }
        lines.extend(later_ms().map(|ms| format!("sleep {ms}")));
        for cell in cells {
            lines.extend(cell.before.iter().cloned());
            lines.push(format!("run {} {}", cell.step, cell.command));
        }
        lines.push("record-stop".to_owned());
        if !self.is_timed() {
            plan.faults = "do_delays=0";
        }
        plan.parts = match self.what.as_str() {
            _ if self.is_queue() => &[],
            "sizes" => &[1536],
            _ => &[512],
        };
        plan.modules = match self.filesystem.as_str() {
            "ext4" => &[],
            "jffs2" => &["jffs2"],
            "yaffs2" => &["mtdblock", "yaffs2"],
            "squashfs-mtdblock" | "squashfs-16k" => &["mtdblock", "squashfs"],
            "squashfs-ubiblock" => &["ubi", "squashfs"],
            _ => &["ubi", "deflate", "lzo", "zstd", "ubifs"],
        };
        plan.lines = lines;
        plan.timeout = std::time::Duration::from_secs(if self.bounded { 600 } else { 3600 });
        plan.boot()
    }
}
