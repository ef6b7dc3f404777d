//! trace-cmd on boards, live: every event, field and time of what it records there is what it says itself.

use std::path::Path;
use std::time::Duration;

use flashscope_targets::NoProgress;
use flashscope_targets::board::{self, ImageBuilder, Run};
use flashscope_tests::{boards_and_kernels, top};
use flashscope_trace::{Session, Trace};

#[path = "../crates/trace/tests/common/report.rs"]
#[allow(dead_code, reason = "this host's own trace-cmd is not asked here")]
mod report;

/// One recording: its name, trace.dat, and what the trace-cmd that made it reports of it.
struct Recorded {
    name: String,
    dat: Vec<u8>,
    report: String,
}

/// Boots and makes the recordings of these names. Gives them with the kernel's release and trace-cmd's version.
fn record(board: &str, kernel: &str, names: &[&str], cpus: u32) -> (Vec<Recorded>, String, String) {
    let board = board::load(board).expect("the board");
    let kernel = board.fetch(kernel, &NoProgress).expect("the kernel");
    let wanted = ["trace-cmd", "busybox-static", "e2fsprogs"].map(str::to_owned);
    let packages = board.fetch_packages(&kernel, &wanted, &NoProgress).expect("the packages");
    let version = packages.iter().find(|p| p.name == "trace-cmd").expect("what was asked for").version.clone();
    let mut image = ImageBuilder::new(&board).expect("an agent for the board: make agents");
    let mut lines = image.add_port_modules(&kernel).expect("the port's modules");
    for path in image.add_module_closure(&kernel, &["null_blk", "ext4"]).expect("modules") {
        let none = if path.contains("null_blk") { " nr_devices=0" } else { "" };
        lines.push(format!("module {path}{none}"));
    }
    image.add_packages(&packages).expect("packages");
    image.add_file("/work.sh", 0o755, std::fs::read(top().join("tests/trace_cmd/work.sh")).expect("the script"));
    lines.push(format!("run work timeout 300 busybox sh /work.sh {}", names.join(" ")));
    for name in names {
        lines.push(format!("get /out/{name}.dat"));
        lines.push(format!("get /out/{name}.txt"));
    }
    image.set_plan(&lines);
    let image = image.build().expect("a boot image");
    let run = Run {
        timeout: Duration::from_secs(600),
        args: vec!["-smp".to_owned(), cpus.to_string()],
        // With two CPUs and -icount armv7 does not come to an end (QEMU 7.2); without it Linux 7.2 at times panics on x86_64.
        icount: cpus == 1 || board.name == "x86_64",
        ..Run::new(&board, &kernel, &image)
    };
    let outcome = board::boot(&run, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
    let session = Session::open(&outcome.port_file()).expect("a port file");
    print!("{}", String::from_utf8_lossy(&session.step("work").expect("the workload's step").stdout));
    let file = |path: &str| {
        let file = session.steps.iter().flat_map(|step| &step.files).find(|file| file.path == path);
        session.read_file(file.unwrap_or_else(|| panic!("no {path}")), 64 << 20).expect("a whole file")
    };
    let recorded = names.iter().map(|name| Recorded {
        name: (*name).to_owned(),
        dat: file(&format!("/out/{name}.dat")),
        report: String::from_utf8_lossy(&file(&format!("/out/{name}.txt"))).into_owned(),
    });
    (recorded.collect(), kernel.release.clone(), version)
}

fn compare(recorded: &Recorded) -> report::Compared {
    let trace = Trace::from_bytes(recorded.name.as_ref(), recorded.dat.clone().into()).expect("a trace.dat");
    report::compare_text(&trace, &recorded.report)
}

#[test]
fn what_trace_cmd_records_on_a_board_is_what_it_says_of_it() {
    for (board, kernel) in [("armv7", "newest"), ("x86_64", "6.1")] {
        let (recordings, release, version) = record(board, kernel, &["io", "kinds"], 1);
        for recorded in recordings {
            let done = compare(&recorded);
            let (name, kinds) = (&recorded.name, &done.kinds);
            println!(
                "{board}, Linux {release}, trace-cmd {version}: {name}: {} events, {} fields as trace-cmd has them, {} kinds, {} gaps",
                done.events,
                done.fields,
                kinds.len(),
                done.gaps
            );
            let expected: &[&str] = match name.as_str() {
                "io" => &["sys_enter_openat", "sys_exit_read", "sys_enter_write", "sys_exit_fsync", "block_rq_issue"],
                _ => &["fields", "back", "ext4_sync_file_enter", "sched_switch", "timer_start", "block_rq_complete"],
            };
            for kind in expected {
                assert!(kinds.contains(*kind), "{name}: no {kind}: {kinds:?}");
            }
        }
    }
}

/// Makes crates/trace/tests/data/trace_dat anew: FLASHSCOPE_KEEP=DIR cargo test --workspace --test end-to-end -- --ignored
/// record_the_golden_files
#[test]
#[ignore = "records the golden files, on every board with every kernel"]
fn record_the_golden_files() {
    let keep = std::env::var_os("FLASHSCOPE_KEEP").expect("FLASHSCOPE_KEEP names a directory");
    for (board, kernel) in boards_and_kernels() {
        let (recordings, release, version) = record(&board, &kernel, &["io", "kinds", "graph", "lost"], 2);
        let line: Vec<&str> = release.split('.').take(2).collect();
        println!("{board}: Linux {release}, trace-cmd {version}");
        for recorded in recordings {
            println!("{}: {} bytes, {:?}", recorded.name, recorded.dat.len(), compare(&recorded));
            let path = Path::new(&keep).join(format!("{board}-{}-{}.dat", line.join("."), recorded.name));
            std::fs::write(path, recorded.dat).expect("a place to keep it");
        }
    }
}
