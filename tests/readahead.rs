//! The read-ahead models against kernels: every page that came into the cache, page by page.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use flashscope_analysis::readahead::{Collector, Predictor, Workload};
use flashscope_readahead::{Access, FileId, Kernel, MapAdvice, OpenId, PAGE_BYTES, Settings, Simulator};
use flashscope_study::{Study, groups};
use flashscope_tests::{Booted, Plan, TempDir, top, work};
use flashscope_trace::{EventKind, FileStep, Trace, Value};

/// Bytes of the study's file.
const SIZE: u64 = 5 << 20;

/// One run on a board: what its data file is read with.
struct Cell {
    step: String,
    label: String,
    size: u64,
    readahead_kib: u64,
    /// `bdi->io_pages`: 255 sectors (`BLK_SAFE_MAX_SECTORS`) of a block device that sets no limit of its own; MTD has 0.
    io_pages: u64,
    advice: MapAdvice,
}

/// What came of a cell: pages that came in, on the board and in the model.
#[derive(Default)]
struct Outcome {
    reads: usize,
    board: Vec<u64>,
    model: Vec<u64>,
}

/// The file that is read most.
fn main_file(trace: &Trace) -> Option<FileId> {
    let mut bytes: HashMap<FileId, u64> = HashMap::new();
    trace
        .for_each(&mut |event| {
            if let EventKind::File(file) = &event.kind
                && file.step == FileStep::Read
            {
                *bytes.entry(FileId { device: file.device.map(|d| d.0), inode: file.inode }).or_default() += file.bytes;
            }
        })
        .ok()?;
    bytes.into_iter().max_by_key(|&(_, bytes)| bytes).map(|(file, _)| file)
}

/// Plays each cell's reads and faults through the model and notes what the kernel really did.
fn outcomes(
    booted: &Booted,
    trace: &Trace,
    kernel: Kernel,
    cells: &[Cell],
    wanted: impl Fn(&FileId) -> bool,
) -> Vec<Outcome> {
    let spans: Vec<(u64, u64)> = cells
        .iter()
        .map(|cell| {
            let step = booted.step(&cell.step);
            assert_eq!(step.status, Some(0), "{}: {}", cell.step, String::from_utf8_lossy(&step.stderr));
            (step.begin_ns.expect("a begin"), step.end_ns.expect("an end"))
        })
        .collect();
    let mut outcomes: Vec<Outcome> = cells.iter().map(|_| Outcome::default()).collect();
    let mut at = 0;
    let mut simulator: Option<Simulator> = None;
    trace
        .for_each(&mut |event| {
            let EventKind::File(step) = &event.kind else { return };
            let file = FileId { device: step.device.map(|d| d.0), inode: step.inode };
            while at < cells.len() && event.time.0 > spans[at].1 {
                at += 1;
                simulator = None;
            }
            if at == cells.len() || event.time.0 < spans[at].0 || !wanted(&file) {
                return;
            }
            let cell = &cells[at];
            let simulator = simulator.get_or_insert_with(|| {
                let settings = Settings {
                    readahead_pages: cell.readahead_kib / 4,
                    io_pages: cell.io_pages,
                    ..Settings::default()
                };
                Simulator::new(kernel, settings)
            });
            simulator.set_size(file, cell.size);
            let access = match step.step {
                FileStep::Read => Access::Read { offset: step.offset, length: step.bytes },
                FileStep::Fault => Access::Fault { page: step.offset / PAGE_BYTES, advice: cell.advice },
                FileStep::Cached => {
                    let first = step.offset / PAGE_BYTES;
                    outcomes[at].board.extend(first..first + step.bytes / PAGE_BYTES);
                    return;
                }
                _ => return,
            };
            outcomes[at].reads += 1;
            let model = &mut outcomes[at].model;
            simulator.apply(file, OpenId(u64::from(event.tid)), access, &mut |event| model.push(event.page));
        })
        .expect("a readable trace");
    outcomes
}

/// One line of the table, and whether the sets are equal.
fn line(table: &mut String, kernel: &str, filesystem: &str, cell: &Cell, outcome: &Outcome) -> bool {
    let set = |pages: &[u64]| pages.iter().copied().collect::<BTreeSet<_>>();
    let (board, model) = (set(&outcome.board), set(&outcome.model));
    let equal = outcome.board.len() == board.len() && outcome.model.len() == model.len() && board == model;
    let verdict = match equal {
        true => "equal".to_owned(),
        false => {
            let less: Vec<_> = board.difference(&model).take(6).collect();
            let more: Vec<_> = model.difference(&board).take(6).collect();
            format!("DIFFERS: only on the board {less:?}, only in the model {more:?}")
        }
    };
    let _ = writeln!(
        table,
        "| {kernel} | {filesystem} | {} | {} | {} | {} | {verdict} |",
        cell.label,
        outcome.reads,
        outcome.board.len(),
        outcome.model.len(),
    );
    equal
}

/// The cells of the study of reads, and the workloads of tests/readahead/work.c, on one file system.
fn boot(kernel: &str, filesystem: &str) -> (Booted, Vec<Cell>) {
    let text = std::fs::read_to_string(top().join("studies/readahead-reads.toml")).expect("the study");
    let study = Study::parse("readahead-reads.toml", &text).expect("the study");
    let group = groups(&study.definition.matrix).remove(0);
    let io_pages = if filesystem == "yaffs2" { 31 } else { 0 };
    let mut cells = Vec::new();
    let mut lines: Vec<String> = match filesystem {
        "jffs2" => {
            vec!["device-wait /dev/mtd0 5000".to_owned(), "mkdir /mnt".to_owned(), "mount mtd0 /mnt jffs2 -".to_owned()]
        }
        "yaffs2" => vec![
            "device-wait /dev/mtdblock0 5000".to_owned(),
            "mkdir /mnt".to_owned(),
            "mount /dev/mtdblock0 /mnt yaffs2 -".to_owned(),
        ],
        _ => {
            let mut lines = vec!["device-wait /dev/mtd0 5000".to_owned(), "mkdir /mnt".to_owned()];
            let volume =
                ["ubi-attach 0", "device-wait /dev/ubi0 5000", "ubi-mkvol 0 data all", "device-wait /dev/ubi0_0 5000"];
            lines.extend(volume.map(str::to_owned));
            lines.push("mount ubi0:data /mnt ubifs -".to_owned());
            lines
        }
    };
    lines.push(format!("create /mnt/data {SIZE} printable 1"));
    // An end in the middle of a page, and one at a page's end.
    lines.push("create /mnt/odd 1500001 printable 2".to_owned());
    lines.push("create /mnt/even 1228800 printable 3".to_owned());
    lines.push("settle cryptomgr_test 200 60000".to_owned());
    lines.push("record-start --events cache --ring 16384".to_owned());
    for (index, cell) in group.cells.iter().enumerate() {
        let step = format!("cell-{index:05}");
        let readahead = cell.readahead.argument();
        lines.push(format!(
            "run {step} /flashscope/agent bench read --file /mnt/data --count {} --request {} --pattern {} --seed {} --readahead {readahead} --drop-caches",
            cell.count, cell.request_size.0, cell.pattern.as_str(), cell.seed,
        ));
        cells.push(Cell {
            label: format!("{} × {} B {}, {readahead} KiB", cell.count, cell.request_size.0, cell.pattern.as_str()),
            step,
            size: SIZE,
            readahead_kib: readahead.parse().expect("KiB"),
            io_pages,
            advice: MapAdvice::Normal,
        });
    }
    let knob = match filesystem {
        "jffs2" => "/sys/class/bdi/mtd-0/read_ahead_kb",
        "yaffs2" => "/sys/block/mtdblock0/queue/read_ahead_kb",
        _ => "/sys/class/bdi/ubifs_0_0/read_ahead_kb",
    };
    for readahead in [0, 4, 16, 20, 128, 256] {
        lines.push(format!("write {knob} {readahead}"));
        for (what, advice) in [
            ("odd", MapAdvice::Normal),
            ("mixed", MapAdvice::Normal),
            ("backward", MapAdvice::Normal),
            ("strided", MapAdvice::Normal),
            ("large", MapAdvice::Normal),
            ("interleave", MapAdvice::Normal),
            ("end", MapAdvice::Normal),
            ("two", MapAdvice::Normal),
            ("mmap", MapAdvice::Normal),
            ("mmap-random", MapAdvice::Random),
            ("mmap-sequential", MapAdvice::Sequential),
        ] {
            for (file, size) in [("odd", 1_500_001), ("even", 1_228_800)] {
                let step = format!("{what}-{file}-{readahead}");
                lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
                lines.push(format!("run {step} /work {what} /mnt/{file}"));
                cells.push(Cell {
                    label: format!("{what}, {size} B, {readahead} KiB"),
                    step,
                    size,
                    readahead_kib: readahead,
                    io_pages,
                    advice,
                });
            }
        }
    }
    lines.push("record-stop".to_owned());
    let mut plan = Plan::new("armv7", kernel);
    plan.parts = &[512];
    plan.faults = "do_delays=0";
    plan.modules = match filesystem {
        "jffs2" => &["jffs2"],
        "yaffs2" => &["mtdblock", "yaffs2"],
        _ => &["ubi", "deflate", "lzo", "zstd", "ubifs"],
    };
    let dir = TempDir::new("readahead");
    plan.files.push(("/work", 0o755, work("armv7", "readahead/work.c", dir.path())));
    plan.lines = lines;
    (plan.boot(), cells)
}

/// Devices of the file system under /mnt: files of others are not the workload's.
fn validate(kernel: &str, filesystem: &str, table: &mut String, wrong: &mut Vec<String>) -> (usize, usize) {
    let (booted, cells) = boot(kernel, filesystem);
    let trace = booted.recording(0);
    let data = main_file(&trace).expect("a file that is read");
    let model = Kernel::nearest(kernel).expect("a model").kernel;
    let outcomes = outcomes(&booted, &trace, model, &cells, |file| file.device == data.device);
    let mut equal = 0;
    for (cell, outcome) in cells.iter().zip(&outcomes) {
        assert!(outcome.reads > 0, "{}: no read is seen", cell.label);
        let same = line(table, kernel, filesystem, cell, outcome);
        equal += usize::from(same);
        // Two processes in one file race for a page by microseconds, and the model takes reads one after the other: where the
        // image moves their times, a window may come out differently.
        let (board, model) = (outcome.board.len(), outcome.model.len());
        let raced = cell.label.starts_with("two,") && board.abs_diff(model) * 50 <= board;
        if !same && !raced {
            wrong.push(format!(
                "{kernel} {filesystem} {}: {board} pages on the board, {model} in the model",
                cell.label
            ));
        }
    }
    println!("{kernel} {filesystem}: {equal} of {} equal", cells.len());
    (equal, cells.len())
}

#[test]
fn the_model_of_6_1_adds_the_pages_that_the_kernel_adds() {
    let kernels = std::env::var("FLASHSCOPE_READAHEAD").unwrap_or_else(|_| "6.1 jffs2".to_owned());
    let mut table = String::new();
    let mut all = (0, 0);
    let mut wrong = Vec::new();
    for wanted in kernels.split(',') {
        let (kernel, filesystem) = wanted.split_once(' ').expect("KERNEL FILESYSTEM,…");
        let (equal, cells) = validate(kernel, filesystem, &mut table, &mut wrong);
        all = (all.0 + equal, all.1 + cells);
    }
    println!("{table}\n{} of {} cells equal", all.0, all.1);
    if let Ok(path) = std::env::var("FLASHSCOPE_READAHEAD_TABLE") {
        let head = "| kernel | file system | workload | reads | pages on the board | pages in the model | page by page |\n\
                    |---|---|---|---:|---:|---:|---|\n";
        std::fs::write(&path, format!("{head}{table}")).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Recorded with one setting, predicted for the other, and held against what the board does there.
#[test]
fn what_the_other_setting_costs_is_predicted() {
    let mut lines = vec![
        "device-wait /dev/mtd0 5000".to_owned(),
        "mkdir /mnt".to_owned(),
        "mount mtd0 /mnt jffs2 -".to_owned(),
        format!("create /mnt/data {SIZE} printable 1"),
        "settle jffs2_gcd 200 600000".to_owned(),
        "record-start --events flash,cache,syscall --ring 16384".to_owned(),
    ];
    let mut pairs = Vec::new();
    for pattern in ["sequential", "random"] {
        for count in [8, 256] {
            for kib in [0, 128] {
                lines.push(format!(
                    "run {pattern}-{count}-{kib} /flashscope/agent bench read --file /mnt/data --count {count} --request 4096 \
                     --pattern {pattern} --seed 1 --readahead {kib} --drop-caches"
                ));
            }
            pairs.push((pattern, count));
        }
    }
    lines.push("record-stop".to_owned());
    let mut plan = Plan::new("armv7", "6.1");
    plan.parts = &[512];
    plan.modules = &["jffs2"];
    plan.lines = lines;
    let booted = plan.boot();
    let trace = booted.recording(0);
    let workloads = |step: &str| -> Workload {
        let step = booted.step(step);
        let (begin, end) = (step.begin_ns.expect("a begin"), step.end_ns.expect("an end"));
        let mut collector = Collector::default();
        trace
            .for_each_pair(&mut |pair| {
                if let Some(record) = pair.record
                    && (begin..=end).contains(&record.time.0)
                    && record.schema.name.starts_with("sys_exit")
                {
                    let got = match record.get("ret") {
                        Some(Value::Signed(ret)) => u64::try_from(ret).ok(),
                        Some(Value::Unsigned(ret)) => Some(ret),
                        _ => None,
                    };
                    collector.returned(record.tid(), record.time.0, got);
                }
                if let Some(event) = pair.event
                    && (begin..=end).contains(&event.time.0)
                {
                    collector.event(event);
                }
            })
            .expect("a readable trace");
        collector.finish()
    };
    println!("| recorded | predicted | pages | board | flash reads | board | time ms | board | fit's residual % |");
    let mut off = Vec::new();
    for (pattern, count) in pairs {
        for (from, to) in [(0, 128), (128, 0)] {
            let mut recorded = workloads(&format!("{pattern}-{count}-{from}"));
            let really = workloads(&format!("{pattern}-{count}-{to}"));
            for (file, size) in &mut recorded.sizes {
                // The file's end is not met by these reads; its size is known here.
                if really.sizes.contains_key(file) {
                    *size = SIZE;
                }
            }
            let pages: u64 = really.pages_added.values().sum();
            let predictor = Predictor::new(&recorded, Kernel::V6_1, 0, 1 << 18);
            let row = predictor.row(to, &|_| false);
            let cost = predictor.cost().expect("a fit");
            let board_ns: u64 = really.calls.iter().filter_map(|call| call.duration_ns).sum();
            let (flash, time) = (row.flash_reads.expect("flash reads"), row.time_ns.expect("a time"));
            println!(
                "| {pattern} {count}, {from} KiB | {to} KiB | {} | {} | {flash:.0} | {} | {:.1} | {:.1} | {:.1} |",
                row.tally.pages(),
                pages,
                really.flash_reads,
                time / 1e6,
                board_ns as f64 / 1e6,
                cost.residual_percent,
            );
            assert_eq!(row.tally.pages(), pages, "{pattern} {count}: pages");
            off.push((
                (flash / really.flash_reads as f64 - 1.0).abs() * 100.0,
                (time / board_ns as f64 - 1.0).abs() * 100.0,
            ));
        }
    }
    let mut times: Vec<f64> = off.iter().map(|&(_, time)| time).collect();
    times.sort_by(f64::total_cmp);
    let mut flash: Vec<f64> = off.iter().map(|&(flash, _)| flash).collect();
    flash.sort_by(f64::total_cmp);
    println!("time: median {:.1} %, worst {:.1} %", times[times.len() / 2], times[times.len() - 1]);
    println!("flash reads: median {:.1} %, worst {:.1} %", flash[flash.len() / 2], flash[flash.len() - 1]);
    assert!(times[times.len() / 2] <= 5.0 && times[times.len() - 1] <= 10.0, "{times:?}");
}
