//! Where the time of a cold read and of a write and its sync goes: covered by layers, and as function_graph has it.

use std::path::Path;
use std::process::Command;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::layers::{CallLayers, Layer, Layers, LayersFound, Operation};
use flashscope_study::layers::LayersResult;
use flashscope_tests::{Booted, Plan, TempDir, flashscope, nothing_lost, stdout, top};
use flashscope_trace::{Record, TaskId, Trace, Value};

const LAYERS: usize = Layer::ALL.len();
const PAGES: u32 = 96;
/// What the board's disk is set to.
const COMPLETION_NS: f64 = 100_000.0;

fn work(into: &Path) -> Vec<u8> {
    let binary = into.join("work");
    stdout(
        Command::new("arm-linux-gnueabihf-gcc")
            .args(["-std=c11", "-static", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&binary)
            .arg(top().join("tests/block_io/work.c")),
    );
    std::fs::read(binary).expect("a compiled workload")
}

/// Of that task alone.
fn seen(trace: &Trace, cold: u32) -> LayersFound {
    let crossings = trace.crossings();
    let mut layers = Layers::new(|tid, time| trace.comm(tid, time), crossings.sleep());
    trace
        .for_each_pair(&mut |pair| {
            if let Some(event) = pair.event {
                layers.event(event);
            }
            if let Some(record) = pair.record {
                crossings.read(record, &mut |tid, crossing| layers.crossing(crossing, tid, record.time));
            }
        })
        .expect("a readable trace");
    nothing_lost(trace, "the recording");
    let mut found = layers.finish();
    for loss in found.losses() {
        assert_eq!(loss.count, 0, "{}", loss.name);
    }
    found.calls.retain(|call| call.tid == TaskId(cold));
    found
}

/// One operation, ns: of each figure the median.
struct Medians {
    total: f64,
    layers: [f64; LAYERS],
    /// Between two recorded events, and those of them in which the device works as well.
    stretches: [f64; LAYERS],
    overlap_stretches: f64,
    unattributed: f64,
    overlap: f64,
}

/// Such operations of one trace: cold reads, or writes and their syncs.
fn operations(found: &LayersFound, operation: Operation) -> Vec<&CallLayers> {
    let calls: Vec<&CallLayers> =
        found.calls.iter().filter(|call| call.call == operation && call.result > 4000).collect();
    assert_eq!(calls.len(), PAGES as usize, "such operations");
    calls
}

/// Stretches of each layer, and of the overlap: calls with the same ones have taken the same course.
fn course(call: &CallLayers) -> (Vec<(Layer, u64)>, u64) {
    (call.layers.iter().map(|time| (time.layer, time.stretches)).collect(), call.overlap_stretches)
}

/// What else runs in the midst of a call is a matter of the run, and differs between two of them: on 7.2 the kernel's monitor of
/// memory (`kdamond`) runs in about each fourth sync, and goes on for a while after an interrupt that comes meanwhile. So calls are
/// compared that have gone through the same boundaries as often in both traces, with no other task in between: of the most
/// frequent course that both have. Returns of those calls of either the third that took least time: the kernel's tick lengthens
/// a call by 15 us, and where such calls come in step with it, it lies in the same layer of most of them.
fn of_one_course<'a>(a: Vec<&'a CallLayers>, b: Vec<&'a CallLayers>) -> [Vec<&'a CallLayers>; 2] {
    let others = |call: &&&CallLayers| call.layers.iter().any(|time| time.layer == Layer::OtherTasks && time.ns > 0);
    let like = |calls: &[&'a CallLayers], one: &CallLayers| -> Vec<&'a CallLayers> {
        calls.iter().filter(|call| course(call) == course(one)).copied().collect()
    };
    let courses = a.iter().filter(|call| !others(call)).map(|one| [like(&a, one), like(&b, one)]);
    let mut most = courses.max_by_key(|[a, b]| a.len().min(b.len())).expect("an operation without another task");
    assert!(
        most.iter().all(|calls| calls.len() >= 8),
        "{} and {} operations of one course",
        most[0].len(),
        most[1].len()
    );
    for calls in &mut most {
        calls.sort_by_key(|call| call.total_ns);
        calls.truncate(calls.len().div_ceil(3));
    }
    most
}

impl Medians {
    fn of(calls: &[&CallLayers]) -> Medians {
        let median = |of: &dyn Fn(&CallLayers) -> u64| {
            let mut all: Vec<u64> = calls.iter().map(|call| of(call)).collect();
            all.sort_unstable();
            all[all.len() / 2] as f64
        };
        let layer = |call: &CallLayers, layer| call.layers.iter().find(|time| time.layer == layer).copied();
        Medians {
            total: median(&|call| call.total_ns),
            layers: Layer::ALL.map(|of| median(&|call| layer(call, of).map_or(0, |time| time.ns))),
            stretches: Layer::ALL.map(|of| median(&|call| layer(call, of).map_or(0, |time| time.stretches))),
            overlap_stretches: median(&|call| call.overlap_stretches),
            unattributed: median(&|call| call.unattributed_ns),
            overlap: median(&|call| call.overlap_ns),
        }
    }

    /// What recording an event costs, from what the same operation takes alone. What is recorded while the device works costs
    /// no time: the wait for it is shorter by as much.
    fn price(&self, alone: f64) -> f64 {
        (self.total - alone) / (self.stretches.iter().sum::<f64>() - self.overlap_stretches)
    }
}

/// A boot on the timed disk: the same work alone, under our probes, under function_graph, and once more under ours with the
/// kernel's events of timers.
fn boot(kernel: &str, work: Vec<u8>) -> Booted {
    let mut plan = Plan::new("armv7-blk", kernel);
    plan.packages = &["trace-cmd", "busybox-static"];
    let graph = std::fs::read(top().join("tests/layers/graph.sh")).expect("the script");
    plan.files = vec![("/work", 0o755, work), ("/graph.sh", 0o755, graph)];
    let dirs = ["warm", "alone", "ours", "graph", "timer"];
    let mut lines = vec!["write /sys/block/nullb0/queue/read_ahead_kb 0".to_owned()];
    lines.extend(
        dirs.iter()
            .flat_map(|dir| [format!("mkdir /mnt/{dir}"), format!("run old-{dir} /work old /mnt/{dir} {PAGES}")]),
    );
    lines.push("run sync /work sync".to_owned());
    for dir in dirs {
        lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
        let cold = format!("/work cold /mnt/{dir} {PAGES}");
        let record = "record-start --mode ring --ring 8192 --events block,layers";
        match dir {
            "ours" => {
                // The names are requested while the probes are there.
                lines.extend([record.to_owned(), "run names busybox sh /graph.sh names".to_owned()]);
                lines.extend([format!("run {dir} {cold}"), "record-stop".to_owned()]);
            }
            "timer" => {
                // The ring is emptied after the work: an interrupt in the midst of a probe makes the probe miss others.
                let timers = "timer:hrtimer_start,timer:hrtimer_expire_entry";
                lines.push(format!("{record},{timers} --interval-ms 60000"));
                lines.extend([format!("run {dir} {cold}"), "record-stop".to_owned()]);
            }
            "graph" => {
                lines.extend([format!("run {dir} busybox sh /graph.sh record {cold}"), "get /graph.dat".to_owned()])
            }
            _ => lines.push(format!("run {dir} {cold}")),
        }
    }
    plan.lines = lines;
    plan.boot()
}

fn graph(booted: &Booted) -> Trace {
    let file = booted.session.steps.iter().flat_map(|step| &step.files).find(|file| file.path == "/graph.dat");
    let dat = booted.session.read_file(file.expect("a trace.dat"), 64 << 20).expect("a whole file");
    Trace::from_bytes("graph.dat".as_ref(), dat.into()).expect("a trace.dat")
}

/// What `cold` says of itself: its number, and the median ns of a read, and of a write and its sync.
fn says(booted: &Booted, step: &str) -> (u32, [f64; 2]) {
    let text = String::from_utf8_lossy(&booted.step(step).stdout).into_owned();
    // It says it last.
    let words: Vec<u64> = text
        .lines()
        .last()
        .into_iter()
        .flat_map(str::split_whitespace)
        .map(|word| word.parse().expect("a number"))
        .collect();
    (words[0] as u32, [words[1] as f64, words[2] as f64])
}

/// Layers cover the calls, and are what function_graph says.
///
/// Both recorders follow the same functions and record the same events of the kernel, and what that costs is in their
/// figures. The price of an event is known for each of them, from the same work with no recorder; where it lies is not: before
/// a function's entry and after its return (whoever calls it then has it), or between the two. So function_graph's figure for
/// a layer, at the price of our probes, lies between what it says (none of the difference is in this layer) and that less the
/// difference for each stretch between two events (as in all others); ours is held to 10 % of that.
#[test]
fn layers_cover_calls_and_are_what_function_graph_says() {
    let dir = TempDir::new("layers");
    let work = work(dir.path());
    let mut wrong = Vec::new();
    for kernel in ["6.1", "newest"] {
        let booted = boot(kernel, work.clone());
        let of = |trace: &Trace, step: &str| seen(trace, says(&booted, step).0);
        let (ours, graph) = (of(&booted.recording(0), "ours"), of(&graph(&booted), "graph"));
        let compared = [(Operation::Read, "a cold read"), (Operation::WriteSync, "a write and its sync")];
        for ((operation, what), alone) in compared.into_iter().zip(says(&booted, "alone").1) {
            let alike = of_one_course(operations(&ours, operation), operations(&graph, operation));
            let [a, b] = [0, 1].map(|i| Medians::of(&alike[i]));
            let dearer = b.price(alone) - a.price(alone);
            println!(
                "Linux {kernel}, {what} ({} and {} calls): {alone:.0} ns alone, {:.0} under our probes ({:.0} an event), {:.0} under \
                 function_graph ({:.0}); unattributed {:.0} ({:.2} %) and {:.0}, overlap {:.0} and {:.0}",
                alike[0].len(),
                alike[1].len(),
                a.total,
                a.price(alone),
                b.total,
                b.price(alone),
                a.unattributed,
                a.unattributed / a.total * 100.0,
                b.unattributed,
                a.overlap,
                b.overlap
            );
            println!("  layer            ours    graph           at our price");
            assert!(a.unattributed / a.total <= 0.01, "{kernel}, {what}: {} of {}", a.unattributed, a.total);
            for layer in Layer::ALL {
                let i = layer as usize;
                let (x, raw) = (a.layers[i], b.layers[i]);
                if (x, raw) == (0.0, 0.0) {
                    continue;
                }
                let priced = raw - b.stretches[i] * dearer;
                let off = |y: f64| (x / y - 1.0) * 100.0;
                println!(
                    "  {:12} {x:8.0} {raw:8.0} {:+6.1} %  {priced:8.0} {:+6.1} %",
                    layer.name(),
                    off(raw),
                    off(priced)
                );
                if x < 0.9 * raw.min(priced) || x > 1.1 * raw.max(priced) {
                    wrong.push(format!(
                        "Linux {kernel}, {what}, {}: {x:.0} against {raw:.0} and {priced:.0}",
                        layer.name()
                    ));
                }
            }
        }
        timer(&booted, kernel);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The device has a request for what its timer is set to, and for what the kernel needs to set the timer and to come back
/// from it; the kernel's own events of that timer say how long both are.
fn timer(booted: &Booted, kernel: &str) {
    let trace = booted.recording(1);
    let found = seen(&trace, says(booted, "timer").0);
    let reads = Medians::of(&operations(&found, Operation::Read));
    let of = |call: &&CallLayers| call.call == Operation::Read && call.result > 4000;
    let begin = found.calls.iter().find(of).expect("a read").begin_ns;
    let number = |record: &Record<'_>, name: &str| match record.get(name) {
        Some(Value::Unsigned(n)) => n,
        Some(Value::Signed(n)) => n as u64,
        _ => panic!("{}: no {name}", record.schema.name),
    };
    // Issue to setting, what it is set to, how late it is, and from there to the completion.
    let mut parts: Vec<[f64; 4]> = Vec::new();
    let (mut issued, mut started, mut expires, mut expired, mut timer) = (0, 0, 0, 0, 0);
    trace
        .for_each_record(&mut |record| {
            let at = record.time.0;
            match record.schema.name.as_str() {
                "block_rq_issue" if at >= begin => (issued, timer) = (at, 0),
                // The request's own timer is the first that is set while the driver has it.
                "hrtimer_start" if issued > 0 && timer == 0 => {
                    (started, expires, timer) = (at, number(record, "expires"), number(record, "hrtimer"));
                }
                "hrtimer_expire_entry" if timer != 0 && number(record, "hrtimer") == timer => expired = at,
                "block_rq_complete" if expired > started && parts.len() < PAGES as usize => {
                    let ends = [issued, started, expires, expired, at];
                    parts.push([0, 1, 2, 3].map(|i| ends[i + 1] as f64 - ends[i] as f64));
                    issued = 0;
                }
                _ => {}
            }
        })
        .expect("a readable trace");
    assert_eq!(parts.len(), PAGES as usize, "{kernel}: a timer for each read");
    let [before, set, late, after] = [0, 1, 2, 3].map(|i| {
        parts.sort_by(|a, b| a[i].total_cmp(&b[i]));
        parts[parts.len() / 2][i]
    });
    let device = reads.layers[Layer::Device as usize] + reads.overlap;
    println!(
        "Linux {kernel}: the device has a read's request for {device:.0} ns ({:.0} of it while the task runs as well): the \
         timer is set after {before:.0} ns, to {set:.0}; it comes {late:.0} late, and the request is completed {after:.0} after \
         that",
        reads.overlap
    );
    let own = before + late + after;
    assert!((set / COMPLETION_NS - 1.0).abs() <= 0.02, "{kernel}: a timer of {COMPLETION_NS} is set to {set}");
    assert!(
        ((device - own) / COMPLETION_NS - 1.0).abs() <= 0.02,
        "{kernel}: {device} less {own} is not {COMPLETION_NS}"
    );
}

/// What `flashscope study FILE --json --kernel KERNEL` prints.
fn study(file: &Path, kernel: &str, into: &Path) -> String {
    let mut command = flashscope();
    command.arg("study").arg(file).args(["--quiet", "--json", "--kernel", kernel, "--output"]).arg(into);
    stdout(&mut command)
}

/// Every call is covered, by the layers that it goes through on such a storage.
fn covered(text: &str) -> LayersResult {
    flashscope_tests::valid("study-layers", &serde_json::from_str(text).expect("JSON"));
    let result: LayersResult = serde_json::from_str(text).expect("a study's result");
    for group in &result.groups {
        let expected: &[Layer] = match (group.inputs.board.as_str(), group.filesystem.as_str()) {
            (_, "jffs2") => &[Layer::Mtd, Layer::Driver, Layer::Device],
            (_, "ubifs") => &[Layer::Ubi, Layer::Mtd, Layer::Driver, Layer::Device],
            ("armv7-blk", _) => &[Layer::Block, Layer::Driver, Layer::Device, Layer::Interrupt],
            // The card answers while its driver still runs; on 5.10 the reader sleeps meanwhile.
            _ => &[Layer::Block, Layer::Interrupt],
        };
        let mut worst = 0.0f64;
        for call in &group.calls {
            let of = |layer| call.layers.iter().find(|time| time.layer == layer).map_or(0, |time| time.ns);
            for layer in [Layer::Call, Layer::Vfs, Layer::PageCache, Layer::FileSystem].iter().chain(expected) {
                assert!(of(*layer) > 0, "{}: {:?} without {}", group.id, call.call, layer.name());
            }
            let sum = call.layers.iter().map(|time| time.ns).sum::<u64>() + call.unattributed_ns;
            assert_eq!(sum, call.total_ns, "{}: {:?}", group.id, call.call);
            worst = worst.max(call.unattributed_ns as f64 / call.total_ns as f64);
        }
        let count = |of| group.calls.iter().filter(|call| call.call == of).count();
        println!(
            "{} (Linux {}): {} cold reads, {} writes with their syncs, at most {:.2} % of one unattributed",
            group.id,
            group.inputs.kernel_release,
            count(Operation::Read),
            count(Operation::WriteSync),
            worst * 100.0
        );
        assert!(count(Operation::Read) > 0 && count(Operation::Read) == count(Operation::WriteSync));
        assert!(worst <= 0.01, "{}: {worst}", group.id);
    }
    result
}

#[test]
fn the_study_of_layers_covers_its_calls_on_every_kernel_and_repeats() {
    let dir = TempDir::new("layers-study");
    let shipped = top().join("studies/layers.toml");
    let first = study(&shipped, "6.1", &dir.path().join("first"));
    assert_eq!(covered(&first).groups.len(), 4);
    assert_eq!(first, study(&shipped, "6.1", &dir.path().join("second")), "two runs differ");
    // Where the boundaries' names differ: raw NAND and MMC.
    let text = std::fs::read_to_string(&shipped).expect("the study");
    let (timed, others) =
        (text.find("# 100 µs a request").expect("its disk"), text.find("# The whole MMC").expect("MMC"));
    let less = dir.path().join("less.toml");
    std::fs::write(&less, format!("{}{}", &text[..timed], &text[others..])).expect("a file");
    for kernel in ["5.10", "6.12", "newest"] {
        assert_eq!(covered(&study(&less, kernel, &dir.path().join(kernel))).groups.len(), 3);
    }
}
