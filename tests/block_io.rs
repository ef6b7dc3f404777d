//! Block I/O on a board against ground truth: whose it is, and what one task costs another.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::block::{BlockAnalysis, BlockFound, GroupBy, OwnerLoad, Sizes, Stage, StageStats};
use flashscope_tests::{Booted, Plan, TempDir, nothing_lost, null_block, stdout, top, work};
use flashscope_trace::{BlockAction, EventKind, Trace};

fn plan<'a>(board: &'a str, kernel: &'a str, dir: &TempDir, modules: &'a [&'a str]) -> Plan<'a> {
    let mut plan = Plan::new(board, kernel);
    plan.no_nand = true;
    plan.modules = modules;
    plan.files = vec![("/work", 0o755, work(board, "block_io/work.c", dir.path()))];
    plan
}

fn found(trace: &Trace) -> BlockFound {
    found_of(trace, None)
}

fn found_of(trace: &Trace, process: Option<&str>) -> BlockFound {
    let sizes = Sizes::of_facts([trace.facts()]);
    let mut analysis = BlockAnalysis::new(|tid, time| trace.comm(tid, time), sizes).only(process);
    trace.for_each(&mut |event| analysis.event(event)).expect("a readable trace");
    nothing_lost(trace, "the recording");
    analysis.finish()
}

fn load<'a>(found: &'a BlockFound, name: &str) -> &'a OwnerLoad {
    let of = |o: &&OwnerLoad| o.owner.starts_with(&format!("{name} ("));
    found.interference.owners.iter().find(of).unwrap_or_else(|| panic!("{name}: {:?}", found.interference.owners))
}

/// Two writers on a device that takes one request at a time and 100 µs for each: what the trace of both says one costs the
/// other is what one gains when it is alone.
#[test]
fn what_a_writer_costs_another_is_what_it_gains_alone() {
    let dir = TempDir::new("interference");
    for (board, kernel, scheduler) in
        [("armv7", "6.1", "none"), ("armv7", "6.1", "mq-deadline"), ("armv7", "newest", "mq-deadline")]
    {
        let mut plan = plan(board, kernel, &dir, &["null_blk nr_devices=0"]);
        plan.lines =
            null_block(&["size=64", "irqmode=2", "completion_nsec=100000", "hw_queue_depth=1", "submit_queues=1"]);
        plan.lines.extend(
            [
                &format!("write /sys/block/nullb0/queue/scheduler {scheduler}"),
                // What the boot has left to do would be in the way of one of the two.
                "sleep 3000",
                "record-start --mode ring --ring 8192 --events block:*",
                "run alone /work writes /dev/nullb0 player 0 500",
                "record-stop",
                "record-start --mode ring --ring 8192 --events block:*",
                "spawn other /work writes /dev/nullb0 logger 4096 700",
                "run both /work writes /dev/nullb0 player 0 500",
                // The rest of the other's writes find the device idle: from them the steps' own work is known.
                "sleep 300",
                "record-stop",
            ]
            .map(str::to_owned),
        );
        let booted = plan.boot();
        let alone = found(&booted.recording(0));
        let both = found(&booted.recording(1));
        let (a, b) = (load(&alone, "player"), load(&both, "player"));
        assert_eq!((a.bios, b.bios), (500, 500));
        assert_eq!(a.mean_behind_ns, 0, "nobody else was there: {a:?}");
        println!("longest alone {} ns, beside the other {} ns", a.longest_q2c_ns, b.longest_q2c_ns);
        let measured = b.mean_q2c_ns as f64 - a.mean_q2c_ns as f64;
        let predicted = b.mean_behind_ns as f64 + b.mean_device_excess_ns.known().copied().unwrap_or(0) as f64;
        println!(
            "{board} {kernel} {scheduler}: alone {} ns, beside the other {} ns: measured delay {measured} ns, predicted {predicted} ns ({:.2} %); it would take {:?} alone",
            a.mean_q2c_ns,
            b.mean_q2c_ns,
            (predicted / measured - 1.0) * 100.0,
            b.mean_alone_ns
        );
        for w in &both.interference.pairs {
            println!(
                "  {} behind {} {:?}: served {} ns, hand-over {} ns",
                w.victim, w.behind, w.stage, w.served_ns, w.handover_ns
            );
        }
        assert!(measured > 50_000.0, "the other is in the way");
        for w in &both.interference.own_work {
            println!(
                "  {}: {} waited, own work {} ns by {} that found the device idle",
                w.step, w.waited, w.own_ns, w.idle
            );
        }
        assert!((predicted / measured - 1.0).abs() <= 0.02, "predicted {predicted}, measured {measured}");
    }
}

/// Every way to write a file, and who wrote it.
#[test]
fn written_bytes_go_to_the_task_that_dirtied_them() {
    const PAGES: u64 = 64;
    let dir = TempDir::new("owners");
    for (board, kernel, mode) in [
        ("armv7", "6.1", "journal"),
        ("armv7", "5.10", "ordered"),
        ("armv7", "newest", "ordered"),
        ("x86_64", "6.1", "ordered"),
    ] {
        let mut plan = plan(board, kernel, &dir, &["null_blk nr_devices=0", "ext4"]);
        plan.packages = &["e2fsprogs"];
        plan.lines =
            null_block(&["size=64", "memory_backed=1", "irqmode=2", "completion_nsec=100000", "submit_queues=1"]);
        plan.lines.extend(
            [
                "run mkfs mkfs.ext4 -q -b 1024 -E lazy_itable_init=0,lazy_journal_init=0 /dev/nullb0",
                "mkdir /mnt",
                &format!("mount /dev/nullb0 /mnt ext4 data={mode}"),
                &format!("run old /work old /mnt {PAGES}"),
                "run sync /work sync",
                "record-start --mode ring --ring 8192 --events block,cache",
                &format!("run owners /work owners /mnt {PAGES}"),
                // Somebody else flushes what is left; a journal of data comes to its place with the unmount.
                "run flush /work sync",
                "umount /mnt",
                "record-stop",
            ]
            .map(str::to_owned),
        );
        let booted: Booted = plan.boot();
        let trace = booted.recording(0);
        let found = found(&trace);
        let o = &found.originators;
        let written = o.written().expect("all is in the trace");
        println!(
            "{board} {kernel} data={mode}: KiB written by who asked {}, for one dirtier {}, shared {}, file system's own {}, unknown {}",
            written.direct_bytes / 1024,
            written.one_bytes / 1024,
            written.shared_bytes / 1024,
            written.kernel_bytes / 1024,
            written.unknown_bytes / 1024
        );
        let said = String::from_utf8(booted.step("owners").stdout.clone()).expect("text");
        let mut worst = 1.0f64;
        for line in said.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [name, bytes, pid] = words.as_slice() else { panic!("{line}") };
            let bytes: u64 = bytes.parse().expect("a number");
            let one = o.originators.iter().find(|one| one.name == format!("{name} ({pid})"));
            let one = one.unwrap_or_else(|| panic!("{name}: nothing is its own"));
            let got = if name.starts_with("r-") { one.read_bytes } else { one.written_bytes };
            println!("  {name}: {got} of {bytes}");
            worst = worst.min(got as f64 / bytes as f64);
            // What it caused beyond its data (a directory's block, an inode) is little.
            assert!(got <= bytes + bytes / 5, "{name}: {got} of {bytes}");
        }
        assert!(worst >= 0.99, "{board} {kernel} data={mode}: {worst}");
        // One page of two tasks, in blocks of 1 KiB.
        assert_eq!(written.shared_bytes, 4096, "{board} {kernel} data={mode}");
        assert_eq!(written.unknown_bytes, 0, "{board} {kernel} data={mode}");
    }
}

/// The seed's modified btt (Hasegawa et al., section 4.2): of all events, those of one process, and the issues and
/// completions whose sectors hold one of its bios that is still on its way (equation 1).
fn of_process(trace: &Trace, process: &str, dir: &TempDir) -> std::path::PathBuf {
    let to = dir.path().join(process);
    let mut files: std::collections::BTreeMap<u16, Vec<u8>> = Default::default();
    // Bios that were queued and not yet issued, not yet completed.
    type Bios = Vec<(u64, bool)>;
    let (mut queued, mut issued) = (Bios::new(), Bios::new());
    trace
        .for_each_pair(&mut |pair| {
            let (Some(record), Some(event)) = (pair.record, pair.event) else { return };
            let keep = match &event.kind {
                EventKind::Block(b) if b.bytes > 0 => {
                    let write = b.flags.kind() as u8 > 0;
                    let own = trace.comm(event.tid, event.time) == Some(process);
                    let take = |from: &mut Bios| {
                        let before = from.len();
                        from.retain(|&(sector, w)| !(w == write && (b.sector..b.end()).contains(&sector)));
                        before > from.len()
                    };
                    match b.action {
                        BlockAction::Queue if own => {
                            queued.push((b.sector, write));
                            issued.push((b.sector, write));
                            true
                        }
                        BlockAction::Issue => take(&mut queued),
                        BlockAction::Complete => take(&mut issued),
                        BlockAction::Plug | BlockAction::Unplug | BlockAction::UnplugTimer => false,
                        // The scheduler's steps of a request: whoever runs them, they are its bios'.
                        _ => issued.iter().any(|&(sector, w)| w == write && (b.sector..b.end()).contains(&sector)),
                    }
                }
                EventKind::Block(_) => false,
                _ => true,
            };
            if keep {
                files.entry(record.cpu).or_default().extend_from_slice(&record.data[24..]);
            }
        })
        .expect("a readable trace");
    for (cpu, bytes) in files {
        std::fs::write(format!("{}.blktrace.{cpu}", to.display()), bytes).expect("a temporary directory");
    }
    to
}

/// What btt prints of all devices together.
pub struct Btt {
    /// Average in nanoseconds and N of each stage.
    pub stages: HashMap<String, (u64, u64)>,
    /// Bios that were queued.
    pub queued: u64,
    /// Sectors of the requests that were issued.
    pub sectors: u64,
}

fn btt(base: &Path, dir: &TempDir) -> HashMap<String, (u64, u64)> {
    let merged = dir.path().join("merged");
    let (parent, name) = (base.parent().expect("a directory"), base.file_name().expect("a name"));
    stdout(Command::new("blkparse").current_dir(parent).args(["-q", "-O", "-i"]).arg(name).arg("-d").arg(&merged));
    btt_of_dump(&merged).stages
}

/// Of a file that `blkparse -d` wrote.
pub fn btt_of_dump(dump: &Path) -> Btt {
    let out = dump.with_extension("btt");
    // It writes more files, into its directory.
    let dir = dump.parent().expect("a directory");
    stdout(Command::new("btt").current_dir(dir).arg("-i").arg(dump).arg("-o").arg(&out));
    let text = std::fs::read_to_string(out.with_extension("btt.avg")).expect("btt's averages");
    let ns = |word: &str| {
        let (seconds, decimals) = word.split_once('.').expect("seconds");
        seconds.parse::<u64>().expect("a number") * 1_000_000_000 + decimals.parse::<u64>().expect("a number")
    };
    let all = text.split("Device Overhead").next().expect("text");
    let row = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [stage, _, mean, _, n] if stage.as_bytes().get(1) == Some(&b'2') => {
            Some((stage.trim_end_matches("dm").to_owned(), (ns(mean), n.parse().expect("a number"))))
        }
        _ => None,
    };
    let stages = all.lines().filter_map(row).collect();
    // `(  7,  2) |  #Q  #D  Ratio |  BLKmin  BLKavg  BLKmax  Total`; with several devices a row of all is last.
    let merges = text.split("Device Merge Information").nth(1).expect("merges");
    let merges = merges.trim_start_matches([' ', '=']).split("====").next().expect("a table");
    let last = merges.lines().rfind(|line| line.matches('|').count() == 2 && !line.contains('-')).expect("a row");
    let columns: Vec<&str> = last.split('|').collect();
    let word = |column: usize, at: usize| columns[column].split_whitespace().nth(at).expect("a number");
    let number = |word: &str| word.parse().expect("a number");
    Btt { stages, queued: number(word(1, 0)), sectors: number(word(2, 3)) }
}

/// A board whose null_blk has this scheduler, on which blktrace and the agent record the same I/O.
fn recorded_together<'a>(kernel: &'a str, scheduler: &str, dir: &TempDir) -> Plan<'a> {
    let mut plan = plan("armv7", kernel, dir, &["null_blk nr_devices=0", "bfq", "kyber-iosched"]);
    plan.packages = &["blktrace", "busybox-static"];
    // blktrace's package depends on Python for a plotter.
    plan.only_packages = &["blktrace", "busybox", "libaio", "libc6", "libgcc"];
    plan.files.push((
        "/together.sh",
        0o755,
        std::fs::read(top().join("tests/block_io/together.sh")).expect("the script"),
    ));
    plan.lines = null_block(&[
        "size=64", "memory_backed=1", "irqmode=2", "completion_nsec=100000", "submit_queues=1", "hw_queue_depth=4",
    ]);
    plan.lines.extend(
        [
            &format!("write /sys/block/nullb0/queue/scheduler {scheduler}"),
            // No bio is so large that it is split: btt gets those wrong (crates/analysis/tests/btt.rs).
            "write /sys/block/nullb0/queue/read_ahead_kb 16",
            "record-start --mode ring --ring 8192 --events block",
            "run work busybox sh /together.sh",
            "record-stop",
            "get /out/main.blktrace.0",
        ]
        .map(str::to_owned),
    );
    plan
}

fn assert_same(a: &StageStats, mean: u64, n: u64, slack: u64, what: &str) {
    assert_eq!(a.n, n, "{what}: N");
    assert!(a.mean_ns.abs_diff(mean) <= slack, "{what}: {} and {mean}", a.mean_ns);
}

/// Stages of one process, as the seed's modified btt has them.
fn assert_stages_of_processes(recorded: &Trace, dir: &TempDir, what: &str) {
    // Names as blktrace knows them: it notes a task's once, where that task first does something.
    let mut processes = std::collections::BTreeSet::new();
    recorded
        .for_each(&mut |event| {
            if matches!(&event.kind, EventKind::Block(b) if b.action == BlockAction::Queue) {
                processes.extend(recorded.comm(event.tid, event.time).map(str::to_owned));
            }
        })
        .expect("a readable trace");
    assert!(processes.len() >= 2, "{processes:?}");
    for process in &processes {
        let ours = found_of(recorded, Some(process));
        let said = btt(&of_process(recorded, process, dir), dir);
        for stage in Stage::ALL {
            if let Some(&(mean, n)) = said.get(stage.name()) {
                assert_same(
                    &ours.stages.all[stage as usize],
                    mean,
                    n,
                    1,
                    &format!("{what} {process} {}", stage.name()),
                );
            }
        }
        println!(
            "  {process}: {} bios, as the modified btt has them",
            ours.stages.bios_queued.known().expect("a count")
        );
    }
}

/// What blktrace and the agent record of the same I/O at the same time has the same stages, and they are btt's; of one
/// process alone too.
#[test]
fn stages_are_btts_on_what_was_recorded_together() {
    if Command::new("btt").arg("-V").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "btt is missing");
        return flashscope_tests::skip("btt is missing: apt-get install blktrace");
    }
    let dir = TempDir::new("together");
    for (kernel, scheduler) in [("6.1", "mq-deadline"), ("newest", "bfq"), ("6.1", "kyber"), ("6.1", "none")] {
        let booted = recorded_together(kernel, scheduler, &dir).boot();
        let base = dir.path().join("main");
        for file in booted.session.steps.iter().flat_map(|step| &step.files) {
            let bytes = booted.session.read_file(file, 64 << 20).expect("a whole file");
            std::fs::write(dir.path().join("main.blktrace.0"), bytes).expect("a temporary directory");
        }
        let theirs_recorded = Trace::open(&base).unwrap_or_else(|error| panic!("{error}"));
        let (ours, theirs) = (found(&booted.recording(0)), found(&theirs_recorded));
        let said = btt(&base, &dir);
        let mut compared = Vec::new();
        for stage in Stage::ALL {
            let what = format!("{kernel} {scheduler} {}", stage.name());
            let (a, b) = (&ours.stages.all[stage as usize], &theirs.stages.all[stage as usize]);
            // The two take their times one after the other, some 2 to 5 µs apart.
            assert_same(a, b.mean_ns, b.n, 10_000, &format!("{what}, the agent's and blktrace's"));
            if let Some(&(mean, n)) = said.get(stage.name()) {
                assert_same(b, mean, n, 1, &format!("{what}, ours and btt's"));
                compared.push(format!("{} {n}", stage.name()));
            } else {
                assert!(b.n == 0 || stage == Stage::Q2d, "{what}: btt has none");
            }
        }
        println!("{kernel} {scheduler}: {}", compared.join(", "));
        assert!(compared.len() >= 5, "{compared:?}");
        assert_stages_of_processes(&theirs_recorded, &dir, &format!("{kernel} {scheduler}"));
        // Of all processes together it is the whole.
        let whole = &theirs.groups[0];
        for stage in whole.stages.iter().filter(|s| s.stage != "Q2Q") {
            let of = theirs.groups.iter().filter(|g| g.by == GroupBy::Owner).flat_map(|g| &g.stages);
            let (n, total) =
                of.filter(|s| s.stage == stage.stage).fold((0, 0), |sum, s| (sum.0 + s.ns.n, sum.1 + s.total_ns));
            assert_eq!((n, total), (stage.ns.n, stage.total_ns), "{kernel} {scheduler} {}", stage.stage);
        }
    }
}
