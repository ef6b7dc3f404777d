//! blktrace against Debian's tools, live: every board's kernel records block I/O of every kind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::block::Stages;
use flashscope_targets::NoProgress;
use flashscope_targets::board::{self, ImageBuilder, Run};
use flashscope_tests::{Plan, TempDir, null_block, top, work};
use flashscope_trace::{Session, Trace};

/// Records come from more than one CPU.
const CPUS: usize = 2;

/// Boots, runs `script` with `words`, and keeps what it left in /out.
fn record(board: &str, kernel: &str, script: &str, words: &str, into: &Path) -> Vec<PathBuf> {
    let board = board::load(board).expect("the board");
    let kernel = board.fetch(kernel, &NoProgress).expect("the kernel");
    let wanted = ["blktrace", "busybox-static", "dmsetup"].map(str::to_owned);
    let mut packages = board.fetch_packages(&kernel, &wanted, &NoProgress).expect("the packages");
    // blktrace's package depends on Python for a plotter.
    packages.retain(|p| {
        ["blktrace", "busybox", "dmsetup", "lib"].iter().any(|n| p.name.starts_with(n)) && !p.name.contains("python")
    });
    let mut image = ImageBuilder::new(&board).expect("an agent for the board: make agents");
    let mut lines = image.add_port_modules(&kernel).expect("the port's modules");
    for path in image.add_module_closure(&kernel, &["null_blk", "dm-mod"]).expect("modules") {
        let none = if path.contains("null_blk") { " nr_devices=0" } else { "" };
        lines.push(format!("module {path}{none}"));
    }
    image.add_packages(&packages).expect("packages");
    image.add_file("/work", 0o755, work(&board.name, "blktrace/work.c", into));
    let script = std::fs::read(top().join("tests/blktrace").join(script)).expect("the script");
    image.add_file("/work.sh", 0o755, script);
    lines.push(format!("-run work timeout 300 busybox sh /work.sh {words}"));
    for name in ["main", "cgroup", "nullb0", "dm-0", "v8"] {
        for cpu in 0..CPUS {
            lines.push(format!("-get /out/{name}.blktrace.{cpu}"));
        }
    }
    image.set_plan(&lines);
    let image = image.build().expect("a boot image");
    let run = Run {
        timeout: Duration::from_secs(600),
        args: vec!["-smp".to_owned(), CPUS.to_string()],
        icount: false,
        ..Run::new(&board, &kernel, &image)
    };
    let outcome = board::boot(&run, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
    let session = Session::open(&outcome.port_file()).expect("a port file");
    let step = session.step("work").expect("the workload's step");
    println!("{}\n{}", String::from_utf8_lossy(&step.stdout), String::from_utf8_lossy(&step.stderr));
    assert_eq!(step.status, Some(0));
    let mut kept = Vec::new();
    for file in session.steps.iter().flat_map(|step| &step.files) {
        let path = into.join(file.path.rsplit('/').next().expect("a name"));
        std::fs::write(&path, session.read_file(file, 64 << 20).expect("a whole file")).expect("a writable directory");
        kept.push(path);
    }
    kept
}

#[test]
fn what_blktrace_records_on_a_board_is_read_whole() {
    let dir = TempDir::new("blktrace");
    let kept = record("armv7", "newest", "work.sh", "40", dir.path());
    // The files of crates/trace/tests/data/blktrace are made so.
    if let Some(keep) = std::env::var_os("FLASHSCOPE_KEEP") {
        for path in &kept {
            std::fs::copy(path, Path::new(&keep).join(path.file_name().expect("a name"))).expect("a place to keep it");
        }
    }
    for name in ["main", "cgroup", "nullb0", "dm-0", "v8"] {
        let trace = Trace::open(&dir.path().join(name)).unwrap_or_else(|error| panic!("{error}"));
        let mut stages = Stages::new();
        trace.for_each(&mut |event| stages.event(event)).expect("a readable trace");
        let (found, losses) = (stages.finish(), trace.losses());
        assert!(losses.is_empty(), "{name}: {losses:?}");
        println!(
            "{name}: {} bios, {} completed, unmatched {:?}",
            found.bios_queued.known().expect("a count"),
            found.bios_completed.known().expect("a count"),
            found.unmatched
        );
        assert_eq!(found.bios_queued, found.bios_completed, "{name}: {found:?}");
    }
    // Four threads, ten direct reads each.
    let trace = Trace::open(&dir.path().join("cgroup")).expect("a trace");
    let mut stages = Stages::new();
    trace.for_each(&mut |event| stages.event(event)).expect("a readable trace");
    assert_eq!(stages.finish().bios_queued, 40.into());
}

/// What btt counts wrongly, each alone in a recording; `FLASHSCOPE_KEEP=DIR cargo test --workspace --test end-to-end --
/// --ignored record_the_defects_of_btt` makes crates/analysis/tests/data/btt anew.
#[test]
#[ignore = "records the golden files"]
fn record_the_defects_of_btt() {
    let keep = std::env::var_os("FLASHSCOPE_KEEP").expect("FLASHSCOPE_KEEP names a directory");
    let dir = TempDir::new("defects");
    let mut plan = Plan::new("armv7", "6.1");
    plan.no_nand = true;
    plan.modules = &["null_blk nr_devices=0"];
    plan.packages = &["blktrace", "busybox-static"];
    // blktrace's package depends on Python for a plotter.
    plan.only_packages = &["blktrace", "busybox", "libaio", "libc6", "libgcc"];
    plan.files = vec![
        ("/work", 0o755, work("armv7", "blktrace/defects.c", dir.path())),
        ("/work.sh", 0o755, std::fs::read(top().join("tests/blktrace/defects.sh")).expect("the script")),
    ];
    plan.lines = null_block(&["size=64", "irqmode=2", "completion_nsec=100000", "submit_queues=1", "hw_queue_depth=8"]);
    plan.lines.push("run work busybox sh /work.sh".to_owned());
    for name in ["jumps", "same", "mixed", "names", "split"] {
        plan.lines.push(format!("get /out/{name}.blktrace.0"));
        plan.lines.push(format!("get /out/{name}.truth"));
    }
    let booted = plan.boot();
    for file in booted.session.steps.iter().flat_map(|step| &step.files) {
        let bytes = booted.session.read_file(file, 64 << 20).expect("a whole file");
        let name = file.path.rsplit('/').next().expect("a name");
        println!("{name}: {} bytes", bytes.len());
        std::fs::write(Path::new(&keep).join(name), bytes).expect("a place to keep it");
    }
}
