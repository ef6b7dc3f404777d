//! `record --events block,syscall,cache,layers` against a program whose I/O is known: on a board's timed disk, and on a loop
//! device of this host.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::block::{BlockAnalysis, GroupBy, Sizes};
use flashscope_tests::{
    Booted, LoopDisk, Plan, TempDir, cannot_record, events, flashscope, output, skip, stdout, top, work,
};
use flashscope_trace::{Device, Loss, Record, Session, TaskId, Trace, Value, dat};
use serde_json::Value as Json;

const PAGE: u64 = 4096;
/// What `work read` reads, in its order: byte and length.
const READS: [(u64, u64); 6] = [
    (3 * PAGE + 100, 512),
    (100, 512),
    (7 * PAGE + 100, 512),
    (12 * PAGE + 100, 512),
    (5 * PAGE + 100, 512),
    ((5 << 30) - 32, 64),
];
/// Reads while the ring is too small; each is a request at least, as few pages are read twice.
const FLOOD_READS: u64 = 200;
/// What `work map` touches.
const TOUCHED: [u64; 2] = [9, 14];

const WORK: &str = "block_record/work.c";

/// One event with its numbers, by their names.
struct Seen {
    event: String,
    tid: TaskId,
    time_ns: u64,
    numbers: BTreeMap<String, u64>,
    rwbs: Vec<u8>,
}

impl Seen {
    fn of(record: &Record) -> Seen {
        let numbers = record.fields().filter_map(|(field, value)| {
            let number = match value? {
                Value::Unsigned(number) => number,
                Value::Signed(number) => number as u64,
                _ => return None,
            };
            Some((field.name.clone(), number))
        });
        let rwbs = match record.get("rwbs") {
            Some(Value::Text(text)) => text.to_vec(),
            _ => Vec::new(),
        };
        Seen {
            event: format!("{}:{}", record.schema.system, record.schema.name),
            tid: record.tid(),
            time_ns: record.time.0,
            numbers: numbers.collect(),
            rwbs,
        }
    }

    fn get(&self, name: &str) -> u64 {
        *self.numbers.get(name).unwrap_or_else(|| panic!("{}: no {name} in {:?}", self.event, self.numbers))
    }
}

fn records(trace: &Trace) -> Vec<Seen> {
    let mut seen = Vec::new();
    trace.for_each_record(&mut |record| seen.push(Seen::of(record))).expect("a readable trace");
    seen
}

/// What a process of the workload says of itself and its file.
struct Program {
    tid: TaskId,
    device: Device,
    inode: u64,
}

impl Program {
    fn of(said: &Json) -> Program {
        Program {
            tid: TaskId(said["pid"].as_u64().expect("a pid") as u32),
            device: said["device"].as_str().and_then(Device::parse).expect("a device"),
            inode: said["inode"].as_u64().expect("an inode"),
        }
    }

    /// Events of this process, by their name.
    fn events<'a>(&self, seen: &'a [Seen], event: &str) -> Vec<&'a Seen> {
        seen.iter().filter(|seen| seen.tid == self.tid && seen.event == event).collect()
    }

    /// Of those, the ones that name the program's own file.
    fn of_file<'a>(&self, seen: &'a [Seen], event: &str) -> Vec<&'a Seen> {
        let same = |seen: &&Seen| {
            let of = |names: [&str; 2]| names.iter().find_map(|&name| seen.numbers.get(name)).copied();
            of(["dev", "s_dev"]) == Some(u64::from(self.device.0)) && of(["ino", "i_ino"]) == Some(self.inode)
        };
        self.events(seen, event).into_iter().filter(same).collect()
    }

    /// Pages of its file that came into the page cache in its name.
    fn cached(&self, seen: &[Seen]) -> Vec<u64> {
        let added = self.of_file(seen, "filemap:mm_filemap_add_to_page_cache");
        let mut pages: Vec<u64> = added.iter().map(|event| event.get("index")).collect();
        pages.sort_unstable();
        pages
    }

    /// Reads of data (not of the file system's own blocks) that its device got while it ran, in sectors.
    fn device_reads(&self, seen: &[Seen], event: &str) -> Vec<u64> {
        let own: Vec<u64> = seen.iter().filter(|seen| seen.tid == self.tid).map(|seen| seen.time_ns).collect();
        let (first, last) = (own[0], own[own.len() - 1]);
        seen.iter()
            .filter(|seen| seen.event == event && (first..=last).contains(&seen.time_ns))
            .filter(|seen| seen.rwbs.starts_with(b"R") && !seen.rwbs.contains(&b'M'))
            .map(|seen| seen.get("nr_sector"))
            .collect()
    }
}

/// Pages of the file that `work read` needs, the last but one a hole.
fn pages_read() -> Vec<u64> {
    vec![0, 3, 5, 7, 12, (5 << 30) / PAGE - 1, (5 << 30) / PAGE]
}

/// The absent events of a recording, by name.
fn absent(facts: &Json) -> Vec<&str> {
    let all = facts["recording"]["absent"].as_array().expect("absent events");
    for one in all {
        assert!(["group", "event", "why", "loses"].iter().all(|key| one[key].as_str().is_some_and(|t| !t.is_empty())));
    }
    all.iter().filter_map(|one| one["event"].as_str()).collect()
}

fn nothing_lost(trace: &Trace, but: &[Loss]) {
    for (loss, count) in trace.losses().iter() {
        assert!(count == 0 || but.contains(&loss), "{}: {count}", loss.name());
    }
}

/// None of the recorder's own calls, files or faults is in the recording.
fn own_calls_are_left_out(seen: &[Seen], facts: &Json) {
    let own = facts["recording"]["own"]["pid"].as_u64().expect("the recorder's pid") as u32;
    let left_out: Vec<&str> =
        facts["recording"]["own"]["left_out_of"].as_array().expect("events").iter().filter_map(Json::as_str).collect();
    assert!(left_out.contains(&"syscalls") && left_out.contains(&"filemap"), "{left_out:?}");
    for event in seen.iter().filter(|event| event.tid == TaskId(own)) {
        let system = event.event.split(':').next().unwrap_or_default();
        let named = left_out.iter().any(|&name| name == system || name == event.event);
        assert!(!named && system != "flashscope", "{} of the recorder's own", event.event);
    }
}

fn board_plan<'a>(kernel: &'a str, work: &[u8], recorders: &[&str]) -> Plan<'a> {
    let mut plan = Plan::new("armv7-blk", kernel);
    plan.files = vec![("/work", 0o755, work.to_vec())];
    let mut lines = Vec::new();
    for (index, events) in recorders.iter().enumerate() {
        lines.push(format!("record-start --events {events} --mode ring --ring 8192"));
        lines.push(format!("run write{index} /work write /mnt/file{index}"));
        for step in ["read", "map"] {
            lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
            lines.push(format!("run {step}{index} /work {step} /mnt/file{index}"));
        }
        lines.push("record-stop".to_owned());
    }
    // More than a ring of two sub-buffers holds.
    lines.push("record-start --events block --mode ring --ring 8".to_owned());
    lines.push(format!(
        "run flood /flashscope/agent bench read --file /mnt/flood --create --size {} --contents zero --count {FLOOD_READS} --request 4096 \
         --pattern random --readahead fadvise-random --drop-caches",
        4 << 20
    ));
    lines.push("record-stop".to_owned());
    lines.push("run sweep /flashscope/agent sweep".to_owned());
    lines.push("get /sys/kernel/tracing/kprobe_events".to_owned());
    plan.lines = lines;
    plan
}

/// What `write`, `read` and `map` do must be in the recording, each exactly once, in numbers that stat and the program know.
fn the_programs_io_is_there(booted: &Booted, trace: &Trace, kernel: &str) {
    let seen = records(trace);
    own_calls_are_left_out(&seen, trace.facts_json());
    let of = |event: &&Seen| (event.get("pos"), event.get("count"));

    let write = Program::of(&booted.json("write0"));
    let written: Vec<_> = write.of_file(&seen, "flashscope:file_write").iter().map(of).collect();
    let expected: Vec<_> = (0..16).map(|n| (n * PAGE, PAGE)).chain([(5 << 30, 1)]).collect();
    // Before 5.18 a 32-bit probe cannot join the two registers of the position.
    assert_eq!(written, expected, "{kernel}");
    assert_eq!(write.events(&seen, "syscalls:sys_enter_fsync").len(), 2, "{kernel}");
    assert_eq!(write.events(&seen, "syscalls:sys_exit_fsync").len(), 2, "{kernel}");
    assert_eq!(write.events(&seen, "syscalls:sys_enter_write").len(), 16 + 1, "{kernel}: and its own line of output");

    let read = Program::of(&booted.json("read0"));
    assert_eq!((read.device, read.inode), (write.device, write.inode), "{kernel}: one file");
    let reads: Vec<_> = read.of_file(&seen, "flashscope:file_read").iter().map(of).collect();
    assert_eq!(reads, READS, "{kernel}");
    assert_eq!(read.cached(&seen), pages_read(), "{kernel}");
    // One request of one page each: the hole is not read.
    assert_eq!(read.device_reads(&seen, "block:block_rq_issue"), vec![8; pages_read().len() - 1], "{kernel}");
    assert_eq!(read.device_reads(&seen, "block:block_rq_complete").len(), pages_read().len() - 1, "{kernel}");
    assert_eq!(read.events(&seen, "syscalls:sys_enter_pread64").len(), READS.len(), "{kernel}");

    let map = Program::of(&booted.json("map0"));
    let faults: Vec<u64> = map.of_file(&seen, "flashscope:file_fault").iter().map(|event| event.get("page")).collect();
    assert_eq!(faults, TOUCHED, "{kernel}");
    assert_eq!(map.cached(&seen), TOUCHED, "{kernel}");
}

/// Entries and returns of one task nest; the reads of the program go from the call down to the driver and come back.
fn layers_nest(booted: &Booted, trace: &Trace, kernel: &str) {
    let seen = records(trace);
    let misses: u64 =
        trace.stats()["probes"].as_array().into_iter().flatten().filter_map(|probe| probe["misses"].as_u64()).sum();
    let mut stacks: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut broken = 0;
    let mut deepest: Vec<String> = Vec::new();
    let read = Program::of(&booted.json("read1"));
    for event in &seen {
        let Some(name) = event.event.strip_prefix("flashscope:") else { continue };
        let stack = stacks.entry(event.tid.0).or_default();
        if let Some(symbol) = name.strip_prefix("enter_") {
            stack.push(symbol.to_owned());
            if event.tid == read.tid && stack.len() > deepest.len() {
                deepest.clone_from(stack);
            }
        } else if let Some(symbol) = name.strip_prefix("leave_") {
            match stack.iter().rposition(|open| open == symbol) {
                Some(at) => {
                    broken += (stack.len() - at - 1) as u64;
                    stack.truncate(at);
                }
                // It was entered before the recording began.
                None if stack.is_empty() => {}
                None => broken += 1,
            }
        }
    }
    assert!(broken <= misses, "{kernel}: {broken} entries without return, {misses} were missed");
    for (below, above) in [
        ("vfs_read", "filemap_read"),
        ("filemap_read", "ext4_mpage_readpages"),
        ("ext4_mpage_readpages", "submit_bio_noacct"),
    ] {
        let place = |symbol: &str| deepest.iter().position(|open| open == symbol);
        assert!(place(below).is_some() && place(below) < place(above), "{kernel}: {below}, {above} in {deepest:?}");
    }
    let boundaries = trace.facts_json()["recording"]["boundaries"].as_array().expect("boundaries");
    let mut layers: Vec<&str> = boundaries.iter().filter_map(|boundary| boundary["layer"].as_str()).collect();
    layers.dedup();
    for layer in [
        "user", "vfs", "cache", "wait", "filesystem", "journal", "block", "driver", "device", "interrupt", "completion",
    ] {
        assert!(layers.contains(&layer), "{kernel}: no {layer} in {layers:?}");
    }
    // Every boundary that the facts name and the program passes has events.
    let count = |event: &str| seen.iter().filter(|seen| seen.event == event).count();
    for event in
        ["enter_vfs_read", "leave_vfs_read", "enter_ext4_sync_file", "leave_ext4_sync_file", "enter_null_queue_rq"]
    {
        assert!(count(&format!("flashscope:{event}")) > 0, "{kernel}: no {event}");
    }
    println!("{kernel}: {} events, {misses} boundaries missed; deepest {}", seen.len(), deepest.join(" > "));
}

#[test]
fn a_boards_recording_has_the_files_and_offsets_of_a_known_program() {
    let dir = TempDir::new("block-record");
    let work = work("armv7-blk", WORK, dir.path());
    for kernel in ["6.1", "newest"] {
        let booted = board_plan(kernel, &work, &["block,syscall,cache", "layers"]).boot();
        let trace = booted.recording(0);
        nothing_lost(&trace, &[]);
        let recording = &trace.facts_json()["recording"];
        for (name, offset) in recording["layout"].as_object().expect("a layout") {
            assert_eq!(offset.is_i64(), name != "missing", "{kernel}: {name}: {offset}");
        }
        let missing = absent(trace.facts_json());
        assert_eq!(missing.contains(&"readahead:page_cache_sync_ra"), kernel == "6.1", "{missing:?}");
        assert!(!missing.iter().any(|event| event.starts_with("flashscope:")), "{missing:?}");
        the_programs_io_is_there(&booted, &trace, kernel);
        println!("{kernel}: absent {missing:?}");
        bytes_of_the_file(&booted, &trace, kernel);
        // The report says what cannot be told for want of them.
        let said = report(&trace, dir.path()).split_whitespace().collect::<Vec<_>>().join(" ");
        let told = said.contains("read-ahead decisions") && said.contains("readahead:page_cache_sync_ra");
        assert_eq!(told, kernel == "6.1", "{said}");

        let layers = booted.recording(1);
        // A probe met inside another's handler is missed, and counted.
        nothing_lost(&layers, &[Loss::ProbeMisses]);
        layers_nest(&booted, &layers, kernel);

        small_ring_is_told(&booted, dir.path());

        let swept = String::from_utf8_lossy(&booted.step("sweep").stdout).into_owned();
        assert_eq!(swept, "removed: 0 instances, 0 probes, 0 files; knobs put back: 0; failed: 0\n", "{kernel}");
        let left = booted.session.steps.iter().flat_map(|step| &step.files).map(|file| file.size).sum::<u64>();
        assert_eq!(left, 0, "{kernel}: probes are left");
    }
}

/// Stages by file: what the programs wrote to and read from their one file, no more and no less.
fn bytes_of_the_file(booted: &Booted, trace: &Trace, kernel: &str) {
    let program = Program::of(&booted.json("write0"));
    let sizes = Sizes::of_facts([trace.facts()]);
    let mut analysis = BlockAnalysis::new(|tid, time| trace.comm(tid, time), sizes);
    events(trace, |event| analysis.event(event));
    let found = analysis.finish();
    let name = format!("{} inode {}", program.device, program.inode);
    let group = found.groups.iter().find(|group| group.by == GroupBy::File && group.name == name);
    let group = group.unwrap_or_else(|| panic!("{kernel}: no {name}"));
    // 16 pages and the far one were written; `read` needs all but the hole, `map` what it touches.
    let pages = 16 + 1 + (pages_read().len() - 1) + TOUCHED.len();
    assert_eq!(group.bytes, pages as u64 * PAGE, "{kernel}: {name}");
    let done = group.stages.iter().find(|stage| stage.stage == "Q2C").expect("they were completed");
    assert_eq!(done.ns.n, group.bios, "{kernel}: {name}");
}

/// What `flashscope report` says, in one line.
fn report(trace: &Trace, dir: &Path) -> String {
    let path = dir.join("reported.dat");
    dat::write(trace, &path).expect("a trace.dat");
    let said = stdout(flashscope().arg("report").arg(&path));
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A ring that is too small: what is missing is counted, and the report says so and what to do.
fn small_ring_is_told(booted: &Booted, dir: &Path) {
    let trace = booted.recording(2);
    let lost = trace.losses().get(Loss::EventsOverwritten);
    let cpu = &trace.stats()["instances"][0]["cpu"][0];
    assert_eq!(cpu["overrun"].as_u64(), Some(lost), "{cpu}");
    let seen = records(&trace);
    let issued = seen.iter().filter(|seen| seen.event == "block:block_rq_issue").count() as u64;
    // Queued, got, issued, completed: four events a request, of which some are there.
    assert!(issued < FLOOD_READS && issued > 0, "{issued}");
    assert!(seen.len() as u64 + lost >= 4 * FLOOD_READS, "{} and {lost}", seen.len());
    let said = report(&trace, dir);
    assert!(said.contains(&format!("events_overwritten {}", grouped(lost))), "{lost}: {said}");
    assert!(said.contains("use a larger --ring"), "{said}");
}

/// 1234: "1,234".
fn grouped(number: u64) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", grouped(number / 1000), number % 1000) }
}

/// Instances and probes of anyone's, as a recording must leave them.
fn left(tracing: &Path) -> (Vec<String>, String) {
    let mut instances: Vec<String> = std::fs::read_dir(tracing.join("instances"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("flashscope_"))
        .collect();
    instances.sort();
    (instances, std::fs::read_to_string(tracing.join("kprobe_events")).unwrap_or_default())
}

#[test]
fn this_hosts_recording_has_the_offsets_of_a_known_program() {
    let tracing = Path::new("/sys/kernel/tracing");
    if !tracing.join("instances").is_dir() {
        return skip("block_record on this host: a mounted tracefs is needed");
    }
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    if std::env::consts::ARCH != "x86_64" {
        return skip("block_record on this host: its calls are read as x86-64 has them");
    }
    let Some(disk) = LoopDisk::ext4("block-record-host", 64, "-b 4096", &[], "defaults") else { return };
    let dir = &disk.dir;
    work("", WORK, dir.path());
    let work = dir.path().join("work");
    let file = disk.mounted.0.join("file");
    let agent = top().join("agent/build/x86_64/flashscope-agent");
    let before = left(tracing);
    stdout(Command::new(&work).arg("write").arg(&file));
    let mut programs = Vec::new();
    let mut traces = Vec::new();
    for (step, events) in [("read", "block,syscall,cache"), ("map", "block,syscall,cache,layers")] {
        let stream = dir.path().join(step);
        stdout(&mut Command::new("sync"));
        drop_pages(&file);
        let mut command = Command::new(&agent);
        command.args(["record", "--events", events, "--capture", "-o"]).arg(&stream).arg("--");
        stdout(command.arg(&work).arg(step).arg(&file));
        let session = Session::open(&stream).expect("a stream");
        assert!(session.complete, "{:?}", session.losses);
        let said = session.steps.iter().map(|step| &step.stdout).find(|out| !out.is_empty()).expect("its output");
        programs.push(Program::of(&serde_json::from_slice(said).expect("one JSON object")));
        traces.push(session.recording(0).expect("a recording"));
    }
    assert_eq!(left(tracing), before, "instances or probes are left");

    let (read, trace) = (&programs[0], &traces[0]);
    nothing_lost(trace, &[]);
    let seen = records(trace);
    own_calls_are_left_out(&seen, trace.facts_json());
    let called: Vec<_> = read
        .events(&seen, "syscalls:sys_enter_pread64")
        .iter()
        .map(|event| (event.get("pos"), event.get("count")))
        .collect();
    assert_eq!(called, READS);
    assert_eq!(read.cached(&seen), pages_read());
    let issued: Vec<u64> = seen
        .iter()
        .filter(|seen| seen.event == "block:block_bio_queue" && seen.get("dev") == u64::from(read.device.0))
        .filter(|seen| seen.tid == read.tid && !seen.rwbs.contains(&b'M'))
        .map(|seen| seen.get("nr_sector"))
        .collect();
    assert_eq!(issued, vec![8; pages_read().len() - 1]);

    let (map, trace) = (&programs[1], &traces[1]);
    nothing_lost(trace, &[Loss::ProbeMisses]);
    let seen = records(trace);
    assert_eq!(map.cached(&seen), TOUCHED);
    // Without kprobes what they would tell is named as missing.
    let kprobes = trace.facts_json()["tracefs"]["kprobe_events"] == true;
    let missing = absent(trace.facts_json());
    assert_eq!(missing.contains(&"flashscope:file_read"), !kprobes, "{missing:?}");
    assert_eq!(missing.contains(&"flashscope:enter_* of layer vfs"), !kprobes, "{missing:?}");
    if kprobes {
        let faults: Vec<u64> =
            map.of_file(&seen, "flashscope:file_fault").iter().map(|event| event.get("page")).collect();
        assert_eq!(faults, TOUCHED);
    }
    println!("this host: kprobes {kprobes}, absent {missing:?}");
}

/// Lets go of a file's pages in the page cache, as posix_fadvise(POSIX_FADV_DONTNEED) does for dd.
fn drop_pages(file: &Path) {
    let mut dd = Command::new("dd");
    dd.arg(format!("if={}", file.display())).args(["iflag=nocache", "count=0", "status=none"]);
    let output = output(&mut dd);
    assert!(output.status.success(), "{dd:?}: {}", String::from_utf8_lossy(&output.stderr));
}
