//! `record` keeps what was asked for: devices, tasks, seconds; and the flight recorder writes when something happens.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use flashscope_tests::{TempDir, flashscope, is_root, output, skip, stdout};
use flashscope_trace::{Trace, Value};

/// A loop device over a file of its own.
struct Loop(String);

impl Loop {
    fn new(dir: &Path, name: &str) -> Loop {
        Loop::sized(dir, name, 16)
    }

    fn sized(dir: &Path, name: &str, mib: u32) -> Loop {
        let file = dir.join(name);
        // Written, so that its blocks are known.
        stdout(
            Command::new("dd")
                .args(["if=/dev/zero", "bs=1M", &format!("count={mib}"), "conv=fsync", "status=none"])
                .arg({
                    let mut of = std::ffi::OsString::from("of=");
                    of.push(&file);
                    of
                }),
        );
        Loop(stdout(Command::new("losetup").args(["-f", "--show", "--direct-io=on"]).arg(&file)).trim().to_owned())
    }

    fn name(&self) -> &str {
        self.0.trim_start_matches("/dev/")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        output(Command::new("losetup").args(["-d", &self.0]));
    }
}

/// Ends with the test.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn can_record() -> bool {
    if !is_root() || !Path::new("/dev/loop-control").exists() {
        skip("needs root and loop devices");
        return false;
    }
    true
}

/// Requests that were issued, by device.
fn issued(trace: &Trace) -> std::collections::BTreeMap<u64, u64> {
    let mut by_device = std::collections::BTreeMap::new();
    let mut each = |record: &flashscope_trace::Record| {
        if &*record.schema.name == "block_rq_issue"
            && let Some(Value::Unsigned(device)) = record.get("dev")
        {
            *by_device.entry(device).or_default() += 1;
        }
    };
    trace.for_each_record(&mut each).expect("a readable trace");
    by_device
}

#[test]
fn a_device_filter_keeps_that_device_and_its_file_alone() {
    if !can_record() {
        return;
    }
    let dir = TempDir::new("record-device");
    let (wanted, other) = (Loop::new(dir.path(), "a.img"), Loop::new(dir.path(), "b.img"));
    let write = |device: &str| format!("dd if=/dev/zero of={device} bs=64k count=50 oflag=direct status=none");
    let noise = format!("while :; do {}; done", write(&other.0));
    let _busy = Busy(Command::new("sh").args(["-c", &noise]).spawn().expect("a shell"));
    let path = dir.path().join("t.dat");
    let mut record = flashscope();
    record.args(["record", "-q", "--device", wanted.name(), "-o"]).arg(&path);
    stdout(record.args(["--", "sh", "-c", &format!("{}; sleep 0.2", write(&wanted.0))]));
    let trace = Trace::open(&path).expect("a trace");
    let minor: u64 = wanted.name().trim_start_matches("loop").parse().expect("a number");
    let issued = issued(&trace);
    assert_eq!(issued.get(&(7 << 20 | minor)), Some(&50), "{issued:?}");
    // The disk beneath it, of which only the file's blocks are kept; nothing of the other loop device.
    assert!(issued.keys().all(|device| device >> 20 != 7 || device & 0xfffff == minor), "{issued:?}");
    assert!(issued.values().sum::<u64>() <= 50 + 60, "other people's I/O was recorded: {issued:?}");
}

#[test]
fn tasks_seconds_and_filters_without_a_match() {
    if !can_record() {
        return;
    }
    let dir = TempDir::new("record-tasks");
    let path = dir.path().join("t.dat");
    let record = |more: &[&str]| {
        let mut command = flashscope();
        command.args(["record", "--events", "syscall", "-d", "1", "-o"]).arg(&path).args(more);
        command
    };
    // A child that did not live yet when the recording began.
    let script = "sleep 0.5; while :; do cat /etc/passwd >/dev/null; sleep 0.05; done";
    let busy = Busy(Command::new("sh").args(["-c", script]).spawn().expect("a shell"));
    let _noise =
        Busy(Command::new("sh").args(["-c", "while :; do cat /etc/group >/dev/null; done"]).spawn().expect("a shell"));
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    stdout(&mut record(&["--pid", &busy.0.id().to_string()]));
    assert!(began.elapsed() >= Duration::from_secs(1));
    let trace = Trace::open(&path).expect("a trace");
    let mut tasks = std::collections::BTreeSet::new();
    trace
        .for_each_record(&mut |record| {
            if record.buffer.is_empty() {
                tasks.insert(record.tid());
            }
        })
        .expect("a readable trace");
    // The shell and the programs that it ran: some twenty, and none of the other shell's hundreds.
    assert!((2..60).contains(&tasks.len()), "{tasks:?}");

    std::fs::remove_file(&path).expect("a trace");
    let nothing = output(&mut record(&["--comm", "nosuchtask"]));
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert_eq!(nothing.status.code(), Some(1), "{said}");
    assert!(said.contains("no event matched --comm nosuchtask") && said.contains("no file was written"), "{said}");
    assert!(!path.exists(), "an empty file was left");
    for (more, says) in [
        (["--pid", "4194000"], "no such process"),
        (["--device", "nosuchdisk"], "no such device; this machine has"),
        (["--cgroup", "nosuchgroup"], "no such cgroup"),
        (["--trigger", "d2c=50"], "d2c>TIME"),
    ] {
        let refused = output(&mut record(&more));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(says), "{more:?}: {said}");
    }
}

#[test]
fn the_flight_recorder_writes_a_capture_each_time_its_command_succeeds() {
    if !can_record() {
        return;
    }
    let dir = TempDir::new("record-flight");
    let (sign, captures) = (dir.path().join("sign"), dir.path().join("captures"));
    let agent = flashscope_targets::host_agent().expect("an agent");
    let trigger = format!("run test -e {0} && rm {0}", sign.display());
    let mut command = Command::new(agent);
    command.args([
        "record",
        "--events",
        "syscall",
        "--trigger",
        &trigger,
        "--before",
        "2",
        "--after",
        "1",
        "--captures",
        "3",
    ]);
    let mut recorder = Busy(command.arg("--directory").arg(&captures).spawn().expect("the agent"));
    let count = || std::fs::read_dir(&captures).map_or(0, |all| all.flatten().count());
    for n in 1..=3 {
        std::thread::sleep(Duration::from_secs(2));
        std::fs::write(&sign, "").expect("a sign");
        let began = Instant::now();
        while count() < n && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert!(recorder.0.wait().expect("the agent").success());
    let mut files: Vec<_> = std::fs::read_dir(&captures).expect("captures").flatten().map(|file| file.path()).collect();
    files.sort();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in &files {
        let trace = Trace::open(file).expect("a capture");
        let facts = &trace.facts()["recording"]["trigger"];
        assert!(facts["reason"].as_str().is_some_and(|reason| reason.starts_with("run test -e")), "{facts}");
        let fired = facts["fired_ns"].as_u64().expect("a time");
        let (mut first, mut last) = (u64::MAX, 0);
        trace
            .for_each_record(&mut |record| {
                first = first.min(record.time.0);
                last = last.max(record.time.0);
            })
            .expect("a readable capture");
        assert!(first < fired && fired < last, "{first} {fired} {last}");
        assert!(trace.losses().iter().all(|(_, count)| count == 0), "an overwritten ring is no loss");
    }
}

/// A file system that is mounted while the test runs.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        output(Command::new("umount").arg(&self.0));
    }
}

#[test]
fn the_recorders_own_bios_are_counted_apart() {
    if !can_record() {
        return;
    }
    let dir = TempDir::new("record-own");
    let device = Loop::new(dir.path(), "own.img");
    let mount = dir.path().join("mnt");
    std::fs::create_dir(&mount).expect("a directory");
    stdout(Command::new("mkfs.ext4").args(["-q", "-F", &device.0]));
    // Each write is on the device when it returns, so the writer queues the bios itself.
    stdout(Command::new("mount").args(["-o", "sync", &device.0]).arg(&mount));
    let _mounted = Mounted(mount.clone());
    let (path, file) = (mount.join("t.dat"), mount.join("f"));
    let work = format!(
        "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of={} bs=64k count=8 oflag=direct status=none; sleep 0.3; done",
        file.display()
    );
    let mut record = flashscope();
    record.args(["record", "-q", "--events", "block", "--device", device.name(), "-o"]).arg(&path);
    stdout(record.args(["--", "sh", "-c", &work]));
    let text = stdout(flashscope().arg("report").arg(&path));
    let lines: Vec<_> = text.lines().filter(|line| line.contains("of them are flashscope's own recording (")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    let count: u64 = lines[0].split(' ').next().expect("a count").replace(',', "").parse().expect("a count");
    assert!(count > 0, "{text}");

    let json: serde_json::Value =
        serde_json::from_str(&stdout(flashscope().args(["report", "--json"]).arg(&path))).expect("JSON");
    let trace = Trace::open(&path).expect("a trace");
    let own: Vec<u64> = trace.facts()["recording"]["own"]["tasks"]
        .as_array()
        .expect("tasks")
        .iter()
        .filter_map(|task| task.as_u64())
        .collect();
    let originators = json["block"]["originators"]["originators"].as_array().expect("originators");
    let (theirs, others): (Vec<_>, Vec<_>) = originators
        .iter()
        .partition(|one| one["name"].as_str().is_some_and(|name| name.starts_with("flashscope's own recording")));
    assert!(theirs.len() == 1 && theirs[0]["written_bytes"].as_u64() > Some(0), "{originators:?}");
    assert!(others.iter().all(|one| !own.contains(&one["tid"].as_u64().unwrap_or(0))), "{originators:?}");
    for finding in json["findings"].as_array().expect("findings") {
        let what = finding["what"].as_str().expect("a text");
        assert!(!what.contains("own recording"), "{finding}");
        assert!(!what.starts_with("flashscope ("), "{finding}");
    }
}

/// The agent alone, armed with these triggers on one device.
fn armed(device: &Loop, captures: &Path, more: &[&str]) -> Busy {
    let mut agent = Command::new(flashscope_targets::host_agent().expect("an agent"));
    agent.args(["record", "--events", "block", "--device", device.name(), "--before", "1", "--after", "1"]);
    let agent = Busy(agent.args(more).arg("--directory").arg(captures).spawn().expect("the agent"));
    std::thread::sleep(Duration::from_secs(2));
    agent
}

/// Whole captures, in order, once there are so many; or what there is after ten seconds.
fn captures(dir: &Path, wanted: usize) -> Vec<std::path::PathBuf> {
    let began = Instant::now();
    loop {
        let all = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|file| file.path());
        let mut whole: Vec<_> = all.filter(|path| path.extension().is_some_and(|end| end == "stream")).collect();
        whole.sort();
        if whole.len() >= wanted || began.elapsed() > Duration::from_secs(10) {
            return whole;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn each_of_ten_stalls_is_captured_with_what_came_before_it() {
    if !can_record() {
        return;
    }
    let dir = TempDir::new("record-stalls");
    let lower = Loop::sized(dir.path(), "lower.img", 32);
    let mount = dir.path().join("mnt");
    std::fs::create_dir(&mount).expect("a directory");
    stdout(Command::new("mkfs.ext4").args(["-q", "-F", &lower.0]));
    stdout(Command::new("mount").arg(&lower.0).arg(&mount));
    let _mounted = Mounted(mount.clone());
    let device = Loop::sized(&mount, "upper.img", 4);
    let work = format!(
        "while :; do dd if=/dev/zero of={} bs=4k count=20 oflag=direct status=none; sleep 0.02; done",
        device.0
    );
    let _busy = Busy(Command::new("sh").args(["-c", &work]).spawn().expect("a shell"));
    let into = dir.path().join("captures");
    let mut agent = armed(&device, &into, &["--trigger", "d2c>300ms", "--captures", "10"]);
    for n in 1..=10 {
        // Writes of the upper device wait until the file system beneath it thaws.
        stdout(Command::new("fsfreeze").arg("-f").arg(&mount));
        std::thread::sleep(Duration::from_millis(700));
        stdout(Command::new("fsfreeze").arg("-u").arg(&mount));
        assert_eq!(captures(&into, n).len(), n, "stall {n}");
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(agent.0.wait().expect("the agent").success());
    let minor: u64 = device.name().trim_start_matches("loop").parse().expect("a number");
    let mut stalls = std::collections::BTreeSet::new();
    for file in captures(&into, 10) {
        let trace = Trace::open(&file).expect("a capture");
        let (mut first, mut open, mut longest) = (None, std::collections::BTreeMap::new(), (0, 0));
        let mut each = |record: &flashscope_trace::Record| {
            first.get_or_insert(record.time.0);
            let (Some(Value::Unsigned(dev)), Some(Value::Unsigned(sector))) = (record.get("dev"), record.get("sector"))
            else {
                return;
            };
            match &*record.schema.name {
                "block_rq_issue" if dev == (7 << 20 | minor) => drop(open.insert(sector, record.time.0)),
                "block_rq_complete" if dev == (7 << 20 | minor) => {
                    if let Some(begun) = open.remove(&sector) {
                        longest = longest.max((record.time.0 - begun, begun));
                    }
                }
                _ => {}
            }
        };
        trace.for_each_record(&mut each).expect("a readable capture");
        assert!(longest.0 >= 500_000_000, "{}: no stall: {longest:?}", file.display());
        assert!(first.is_some_and(|first| first < longest.1), "{}: nothing before the stall", file.display());
        assert!(trace.losses().iter().all(|(_, count)| count == 0), "{}: events were lost", file.display());
        stalls.insert(longest.1);
    }
    assert_eq!(stalls.len(), 10, "two captures of one stall: {stalls:?}");
}

#[test]
fn a_failed_request_is_captured() {
    if !can_record() || !Path::new("/proc/pressure/io").exists() {
        return;
    }
    let dir = TempDir::new("record-error");
    let device = Loop::new(dir.path(), "cut.img");
    let into = dir.path().join("captures");
    let _agent = armed(&device, &into, &["--trigger", "error", "--captures", "1"]);
    assert!(captures(&into, 0).is_empty());
    // Behind the file's end nothing can be read.
    let file = std::fs::File::options().write(true).open(dir.path().join("cut.img")).expect("a file");
    file.set_len(0).expect("an empty file");
    let read = output(Command::new("dd").args([&format!("if={}", device.0), "bs=4k", "count=1", "iflag=direct"]));
    assert!(!read.status.success(), "the read did not fail");
    let files = captures(&into, 1);
    assert_eq!(files.len(), 1);
    let trace = Trace::open(&files[0]).expect("a capture");
    let reason = trace.facts()["recording"]["trigger"]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains("error") || reason.contains("fail"), "{reason}");
}

#[test]
fn pressure_on_io_can_be_armed() {
    if !can_record() || !Path::new("/proc/pressure/io").exists() {
        return;
    }
    let dir = TempDir::new("record-pressure");
    let device = Loop::new(dir.path(), "p.img");
    let mut agent = armed(&device, &dir.path().join("captures"), &["--trigger", "psi-io>99%"]);
    assert!(agent.0.try_wait().expect("the agent").is_none(), "the trigger was refused");
}
