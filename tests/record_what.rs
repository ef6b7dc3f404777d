//! `record` keeps what was requested: devices, tasks, seconds; and the flight recorder writes when something happens.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flashscope_tests::{LoopDevice, Mounted, Running, TempDir, can_record_loops, flashscope, output, stdout};
use flashscope_trace::{Trace, Value};

/// A loop device of a new file of 16 MiB.
fn new_loop(dir: &Path, name: &str) -> LoopDevice {
    loop_of(dir, name, 16, &["--direct-io=on"])
}

fn loop_of(dir: &Path, name: &str, mib: u32, options: &[&str]) -> LoopDevice {
    let file = dir.join(name);
    // Written, so that its blocks are known.
    let of = format!("of={}", file.display());
    stdout(Command::new("dd").args([
        "if=/dev/zero",
        &of,
        "bs=1M",
        &format!("count={mib}"),
        "conv=fsync",
        "status=none",
    ]));
    LoopDevice::of(&file, options).expect("a loop device")
}

/// Makes a new file system.
fn ext4(device: &LoopDevice, options: &[&str]) {
    stdout(Command::new("mkfs.ext4").args(["-q", "-F"]).args(options).arg(&device.0));
}

/// Until it is so: that a minute is over says that it never will be.
fn wait_for(what: &str, so: impl Fn() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Requests that were issued and their sectors, by device.
fn issued(trace: &Trace) -> std::collections::BTreeMap<u64, (u64, u64)> {
    let mut by_device = std::collections::BTreeMap::<u64, (u64, u64)>::new();
    let mut each = |record: &flashscope_trace::Record| {
        if &*record.schema.name == "block_rq_issue"
            && let (Some(Value::Unsigned(device)), Some(Value::Unsigned(sectors))) =
                (record.get("dev"), record.get("nr_sector"))
        {
            let of = by_device.entry(device).or_default();
            *of = (of.0 + 1, of.1 + sectors);
        }
    };
    trace.for_each_record(&mut each).expect("a readable trace");
    by_device
}

#[test]
fn a_device_filter_keeps_that_device_and_its_file_alone() {
    let Some(dir) = TempDir::for_loops("record-device") else { return };
    let (wanted, other) = (new_loop(dir.path(), "a.img"), new_loop(dir.path(), "b.img"));
    let write = |device: &str| format!("dd if=/dev/zero of={device} bs=64k count=50 oflag=direct status=none");
    let noise = format!("while :; do {}; done", write(&other.0));
    let _busy = Running(Command::new("sh").args(["-c", &noise]).spawn().expect("a shell"));
    let path = dir.path().join("t.dat");
    let mut record = flashscope();
    record.args(["record", "-q", "--device", wanted.name(), "-o"]).arg(&path);
    let sync =
        format!("dd if=/dev/zero of={} bs=4k count=1 oflag=direct conv=notrunc,fsync status=none; sleep 0.2", wanted.0);
    stdout(record.args(["--", "sh", "-c", &format!("{}; {sync}", write(&wanted.0))]));
    let trace = Trace::open(&path).expect("a trace");
    let minor: u64 = wanted.name().trim_start_matches("loop").parse().expect("a number");
    let issued = issued(&trace);
    // 50 of 64 KiB: 128 sectors each.
    // And one that was synced.
    assert_eq!(issued.get(&(7 << 20 | minor)).map(|all| all.1), Some(6400 + 8), "{issued:?}");
    // The disk beneath it, of which only the file's blocks are kept; nothing of the other loop device.
    assert!(issued.keys().all(|device| device >> 20 != 7 || device & 0xfffff == minor), "{issued:?}");
    // Into how many requests a disk cuts them is its own matter; the bytes are the same.
    assert!(issued.values().all(|of| of.1 <= 6408), "other people's I/O was recorded: {issued:?}");
    let said = stdout(flashscope().arg("report").arg(&path));
    assert!(said.contains(&format!("Recorded with --device {}: other I/O", wanted.name())), "{said}");
    let json = stdout(flashscope().args(["report", "--json"]).arg(&path));
    assert!(
        json.contains("of calls only those that sync and rename were recorded, because calls do not name a device"),
        "{json}"
    );
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let calls: Vec<_> = json["calls"]["by_call"].as_array().expect("calls").iter().map(|one| &one["call"]).collect();
    assert_eq!(calls, ["fsync"], "{json}");
}

#[test]
fn tasks_seconds_and_filters_without_a_match() {
    let Some(dir) = TempDir::for_loops("record-tasks") else { return };
    let path = dir.path().join("t.dat");
    let record = |more: &[&str]| {
        let mut command = flashscope();
        command.args(["record", "--events", "syscall", "-d", "1", "-o"]).arg(&path).args(more);
        command
    };
    // Each program that they run writes its number down: children that did not live yet when the recording began.
    let (ours, others) = (dir.path().join("ours"), dir.path().join("others"));
    let shell = |log: &Path, pause: &str| {
        let script = format!("while :; do cat /proc/self/stat >>{}; {pause} done", log.display());
        Running(Command::new("sh").args(["-c", &script]).spawn().expect("a shell"))
    };
    let (busy, noise) = (shell(&ours, "sleep 0.05;"), shell(&others, ""));
    let numbers = |log: &Path| -> std::collections::BTreeSet<u32> {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        text.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
    };
    wait_for("both shells run programs", || [&ours, &others].iter().all(|log| !numbers(log).is_empty()));
    let before = numbers(&ours);
    let began = Instant::now();
    stdout(&mut record(&["--pid", &busy.0.id().to_string()]));
    assert!(began.elapsed() >= Duration::from_secs(1));
    let trace = Trace::open(&path).expect("a trace");
    let mut tasks = std::collections::BTreeSet::new();
    trace
        .for_each_record(&mut |record| {
            if record.buffer.is_empty() {
                tasks.insert(record.tid().0);
            }
        })
        .expect("a readable trace");
    assert!(tasks.contains(&busy.0.id()), "{tasks:?}");
    let born = &numbers(&ours) - &before;
    assert!(!tasks.is_disjoint(&born), "no program that the shell ran: {tasks:?} of {born:?}");
    let mut noisy = numbers(&others);
    noisy.insert(noise.0.id());
    assert!(tasks.is_disjoint(&noisy), "{:?}", &tasks & &noisy);

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
    let Some(dir) = TempDir::for_loops("record-flight") else { return };
    let (sign, into) = (dir.path().join("sign"), dir.path().join("captures"));
    let trigger = format!("run test -e {0} && rm {0}", sign.display());
    let more = ["--trigger", &trigger, "--before", "2", "--after", "1", "--captures", "3"];
    let mut recorder = armed("syscall", &into, &more);
    for n in 1..=3 {
        // Some of what happens before it.
        std::thread::sleep(Duration::from_secs(1));
        std::fs::write(&sign, "").expect("a sign");
        captures(&into, n);
    }
    assert!(recorder.0.wait().expect("the agent").success());
    let files = captures(&into, 3);
    assert_eq!(files.len(), 3, "{files:?}");
    for file in &files {
        let trace = Trace::open(file).expect("a capture");
        let facts = &trace.facts_json()["recording"]["trigger"];
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

#[test]
fn the_recorders_own_bios_are_counted_apart() {
    let Some(dir) = TempDir::for_loops("record-own") else { return };
    let device = new_loop(dir.path(), "own.img");
    ext4(&device, &[]);
    // Each write is on the device when it returns, so the writer queues the bios itself.
    let mounted = Mounted::new(&["-o", "sync"], &device.0, dir.path().join("mnt")).expect("mounted");
    let mount = &mounted.0;
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

    let json = flashscope_tests::report(&path);
    let trace = Trace::open(&path).expect("a trace");
    let own: Vec<u64> = trace.facts_json()["recording"]["own"]["tasks"]
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

/// A file system that the recorded command mounts and unmounts: its options are known, though it is gone at the end.
#[test]
fn a_mount_that_is_gone_at_the_end_has_its_options() {
    let Some(dir) = TempDir::for_loops("record-mounts") else { return };
    let device = new_loop(dir.path(), "mounted.img");
    let mount = dir.path().join("mnt");
    std::fs::create_dir(&mount).expect("a directory");
    ext4(&device, &[]);
    let path = dir.path().join("t.dat");
    // The mounts are looked at again after each drain, ten times a second.
    let work = "mount -o sync,commit=7 \"$0\" \"$1\" && sleep 1 && for i in 1 2 3 4 5 6 7 8 9; do \
        dd if=/dev/zero of=\"$1/f\" bs=4k count=20 conv=notrunc status=none; done; umount \"$1\"";
    let mut record = flashscope();
    record.args(["record", "-q", "-o"]).arg(&path).args(["--", "sh", "-c", work, &device.0]);
    stdout(record.arg(&mount));

    let trace = Trace::open(&path).expect("a trace");
    let target = mount.to_str();
    let mounted: Vec<_> = trace.facts().mounts.iter().filter(|one| one.target.as_deref() == target).collect();
    assert_eq!(mounted.len(), 1, "{mounted:?}");
    let options = mounted[0].options.as_deref().expect("options");
    assert!(["sync", "commit=7"].iter().all(|one| options.split(',').any(|option| option == *one)), "{options}");
    let json = flashscope_tests::report(&path);
    let rules: Vec<_> = json["findings"].as_array().expect("findings").iter().map(|one| &one["rule"]).collect();
    assert!(rules.iter().any(|rule| *rule == "sync_mount"), "{rules:?}");
    assert!(rules.iter().all(|rule| *rule != "small_sync_writes"), "{rules:?}");
}

/// The agent alone, armed with these triggers: it records once this returns.
fn armed(events: &str, captures: &Path, more: &[&str]) -> Running {
    let mut agent = Command::new("sh");
    agent.args(["-c", "exec \"$0\" record --ready-fd 3 \"$@\" 3>&1 >/dev/null"]);
    agent.arg(flashscope_targets::host_agent().expect("an agent"));
    agent.args(["--events", events]).args(more).arg("--directory").arg(captures);
    let mut agent = Running(agent.stdout(Stdio::piped()).spawn().expect("the agent"));
    let mut ready = [1];
    agent.0.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("an agent that records");
    agent
}

/// Whole captures, in order, once there are so many.
fn captures(dir: &Path, wanted: usize) -> Vec<PathBuf> {
    let whole = || -> Vec<PathBuf> {
        let all = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|file| file.path());
        all.filter(|path| path.extension().is_some_and(|end| end == "stream")).collect()
    };
    wait_for(&format!("{wanted} captures"), || whole().len() >= wanted);
    let mut whole = whole();
    whole.sort();
    whole
}

/// The longest request of a device in a capture: how long and since when, ns. One that has no end there lasts to the capture's.
fn longest(file: &Path, device: u64) -> (u64, u64) {
    let trace = Trace::open(file).expect("a capture");
    assert!(trace.losses().iter().all(|(_, count)| count == 0), "{}: events were lost", file.display());
    let (mut first, mut last) = (None, 0);
    let (mut open, mut longest) = (std::collections::BTreeMap::new(), (0, 0));
    let mut each = |record: &flashscope_trace::Record| {
        first.get_or_insert(record.time.0);
        last = record.time.0;
        let (Some(Value::Unsigned(dev)), Some(Value::Unsigned(sector))) = (record.get("dev"), record.get("sector"))
        else {
            return;
        };
        match &*record.schema.name {
            "block_rq_issue" if dev == device => drop(open.insert(sector, record.time.0)),
            "block_rq_complete" if dev == device => {
                if let Some(begun) = open.remove(&sector) {
                    longest = longest.max((record.time.0 - begun, begun));
                }
            }
            _ => {}
        }
    };
    trace.for_each_record(&mut each).expect("a readable capture");
    longest = open.values().map(|&begun| (last - begun, begun)).fold(longest, Ord::max);
    assert!(first.is_some_and(|first| first < longest.1), "{}: nothing before the stall", file.display());
    longest
}

/// Numbers of a file below a block device's in sysfs.
fn sysfs(device: &LoopDevice, name: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(format!("/sys/block/{}/{name}", device.name())).expect("a block device");
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

/// How long a stall lasts is this test's own doing: its device is in memory, whose own requests take no time, and what is waited
/// for is the device's state, not the clock. Each stall lasts for half a second after a request is known to be stuck.
#[test]
fn each_of_ten_stalls_is_captured_with_what_came_before_it() {
    let Some(dir) = TempDir::for_loops("record-stalls") else { return };
    const STALL_NS: u64 = 500_000_000;
    let memory = Mounted::new(&["-t", "tmpfs"], "nodev", dir.path().join("memory")).expect("mounted");
    let lower = loop_of(&memory.0, "lower.img", 32, &[]);
    ext4(&lower, &[]);
    let mounted = Mounted::new(&[], &lower.0, dir.path().join("mnt")).expect("mounted");
    let mount = &mounted.0;
    let device = loop_of(mount, "upper.img", 4, &["--direct-io=on"]);
    let work = format!(
        "while :; do dd if=/dev/zero of={} bs=4k count=20 oflag=direct status=none; sleep 0.02; done",
        device.0
    );
    let _busy = Running(Command::new("sh").args(["-c", &work]).spawn().expect("a shell"));
    let into = dir.path().join("captures");
    let minor: u64 = device.name().trim_start_matches("loop").parse().expect("a number");
    let more = ["--device", device.name(), "--before", "1", "--after", "1", "--trigger", "d2c>300ms"];
    let mut agent = armed("block", &into, &more);
    let (mut seen, mut own) = (0, 0);
    let mut stalls = std::collections::BTreeSet::new();
    for n in 1..=10 {
        // The writer goes on: five rounds of it are what comes before the stall.
        let written = sysfs(&device, "stat")[4] + 100;
        wait_for("writes", || sysfs(&device, "stat")[4] >= written);
        // Writes of the upper device wait until the file system beneath it thaws.
        stdout(Command::new("fsfreeze").arg("-f").arg(mount));
        wait_for("a write that is stuck", || sysfs(&device, "inflight")[1] > 0);
        std::thread::sleep(Duration::from_nanos(STALL_NS + 100_000_000));
        stdout(Command::new("fsfreeze").arg("-u").arg(mount));
        // A machine that stands still for 300 ms of itself is captured too, and is none of these.
        loop {
            let file = captures(&into, seen + 1).remove(seen);
            seen += 1;
            let (ns, since) = longest(&file, 7 << 20 | minor);
            if ns >= STALL_NS {
                assert!(stalls.insert(since), "stall {n}: two captures of one stall: {stalls:?}");
                break;
            }
            own += 1;
            assert!(own <= 5, "{}: no stall of {STALL_NS} ns: {ns}", file.display());
            println!("{}: a stall that nobody planted, {ns} ns", file.display());
        }
    }
    stdout(Command::new("kill").args(["-TERM", &agent.0.id().to_string()]));
    assert!(agent.0.wait().expect("the agent").success());
}

/// A journal's flushes are issued at one sector and end at another: none of them is a request that hangs.
#[test]
fn a_stall_is_captured_over_ssh_and_flushes_are_not() {
    let Some(dir) = TempDir::for_loops("record-ssh-stall") else { return };
    let Some(server) = crate::bad_input::Server::start() else { return };
    let cache = flashscope_tests::PrivateCache::new("record-ssh-stall-cache");
    let memory = Mounted::new(&["-t", "tmpfs"], "nodev", dir.path().join("memory")).expect("mounted");
    let lower = loop_of(&memory.0, "lower.img", 32, &[]);
    ext4(&lower, &["-E", "lazy_itable_init=0"]);
    let mounted = Mounted::new(&[], &lower.0, dir.path().join("mnt")).expect("mounted");
    let mount = &mounted.0;
    let device = loop_of(mount, "upper.img", 4, &["--direct-io=on"]);
    let (trace, log) = (dir.path().join("t.dat"), dir.path().join("log"));
    let text = trace.display().to_string();
    let on = server.spec();
    let argv = ["record", "--on", &on, "--events", "block", "--device", lower.name(), "--before", "3", "--after", "1"];
    let more = ["--trigger", "d2c>300ms", "--captures", "1", "-o", &text];
    let mut command = server.command(&cache, "user", &[&argv[..], &more[..]].concat());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log).expect("a log"));
    let mut recorder = Running(command.spawn().expect("flashscope starts"));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_for("an armed recorder", || said().contains("flight recorder armed"));
    // Longer than a request may take, and than the recorder waits for what is in flight.
    for n in 0..3 {
        std::fs::write(mount.join("journal"), n.to_string()).expect("a file");
        stdout(Command::new("sync").arg(mount.join("journal")));
        std::thread::sleep(Duration::from_millis(700));
    }
    stdout(Command::new("fsfreeze").arg("-f").arg(mount));
    let of = format!("of={}", device.0);
    let mut writer = Running(
        Command::new("dd")
            .args(["if=/dev/zero", &of, "bs=4k", "count=4", "oflag=direct", "status=none"])
            .spawn()
            .expect("dd"),
    );
    wait_for("a write that is stuck", || sysfs(&device, "inflight")[1] > 0);
    std::thread::sleep(Duration::from_millis(700));
    stdout(Command::new("fsfreeze").arg("-u").arg(mount));
    writer.0.wait().expect("dd");
    assert!(recorder.0.wait().expect("an end").success(), "{}", said());
    let capture = dir.path().join("t.0001.dat");
    let reason = format!("d2c>300ms: a request to 7:{} at sector", device.name().trim_start_matches("loop"));
    assert!(said().contains(&reason) && said().contains("1 capture was written"), "{}", said());
    let requests = issued(&Trace::open(&capture).expect("a capture"));
    let minor: u64 = lower.name().trim_start_matches("loop").parse().expect("a number");
    assert!(requests.get(&(7 << 20 | minor)).is_some_and(|of| of.0 >= 2), "no commit before it: {requests:?}");
}

/// Until then FIEMAP says that such blocks are at the begin of the disk, where other files lie.
#[test]
fn blocks_without_a_place_on_the_disk_are_no_other_ones() {
    let Some(dir) = TempDir::for_loops("record-delayed") else { return };
    let lower = new_loop(dir.path(), "lower.img");
    ext4(&lower, &["-E", "lazy_itable_init=0"]);
    let mounted = Mounted::new(&[], &lower.0, dir.path().join("mnt")).expect("mounted");
    let mount = &mounted.0;
    let file = mount.join("upper.img");
    std::fs::File::create(&file).and_then(|file| file.set_len(2 << 20)).expect("a file");
    let upper = LoopDevice::of(&file, &[]).expect("a loop device");
    // Not cut first: ext4 would write such a file out when it is closed.
    let mut written = std::fs::File::options().write(true).open(&file).expect("a file");
    written.write_all(&vec![1; 2 << 20]).expect("a file");
    let extents = String::from_utf8_lossy(&output(Command::new("filefrag").arg("-v").arg(&file)).stdout).into_owned();
    assert!(extents.contains("delalloc"), "written already: {extents}");
    let path = dir.path().join("t.dat");
    let mut record = flashscope();
    record.args(["record", "-q", "--events", "block", "--device", upper.name(), "-o"]).arg(&path);
    // The superblock is at sector 2.
    let work = format!(
        "dd if={} of=/dev/null bs=4k count=1 iflag=direct status=none; fsfreeze -f {1}; fsfreeze -u {1}",
        upper.0,
        mount.display()
    );
    stdout(record.args(["--", "sh", "-c", &work]));
    let issued = issued(&Trace::open(&path).expect("a trace"));
    let [upper, lower] =
        [&upper, &lower].map(|of| 7 << 20 | of.name().trim_start_matches("loop").parse::<u64>().expect("a number"));
    assert!(issued.contains_key(&upper) && !issued.contains_key(&lower), "{issued:?}");
}

/// Runs a shell whose `sync` of a file on the device hangs for more than a second: the file system beneath is frozen meanwhile.
fn stuck_sync(script: &str, file: &Path, lower_mount: &Path, device: &LoopDevice) {
    stdout(Command::new("fsfreeze").arg("-f").arg(lower_mount));
    let mut work = Running(Command::new("sh").args(["-c", script]).arg(file).spawn().expect("a shell"));
    let shell = work.0.id();
    wait_for("a sync that is stuck", || {
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap_or_default();
        let stat = |child: &str| std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        children.split(' ').any(|child| stat(child).contains("(sync) D")) && sysfs(device, "inflight")[1] > 0
    });
    std::thread::sleep(Duration::from_millis(1200));
    stdout(Command::new("fsfreeze").arg("-u").arg(lower_mount));
    work.0.wait().expect("a shell");
}

/// Though the process has ended when the capture is written, and the second file is deleted.
#[test]
fn a_capture_names_the_file_and_the_process_of_its_sync() {
    let Some(dir) = TempDir::for_loops("record-sync") else { return };
    let memory = Mounted::new(&["-t", "tmpfs"], "nodev", dir.path().join("memory")).expect("mounted");
    let lower = loop_of(&memory.0, "lower.img", 32, &[]);
    ext4(&lower, &[]);
    let lower_mounted = Mounted::new(&[], &lower.0, dir.path().join("lower")).expect("mounted");
    let lower_mount = &lower_mounted.0;
    let device = loop_of(lower_mount, "upper.img", 8, &["--direct-io=on"]);
    ext4(&device, &["-O", "^has_journal"]);
    let mounted = Mounted::new(&[], &device.0, dir.path().join("mnt")).expect("mounted");
    let mount = &mounted.0;
    let into = dir.path().join("captures");
    let more = ["--device", device.name(), "--before", "1", "--after", "1", "--trigger", "fsync>300ms"];
    let mut agent = armed("block,cache,syscall", &into, &more);
    let mut seen = 0;
    for (name, then, shown) in [("kept.db", ":", ""), ("gone.db", "rm \"$0\"", " (deleted)")] {
        let file = mount.join(name);
        let script = format!("head -c 300000 /dev/zero >\"$0\"; sync -d \"$0\"; {then}");
        // A sync of others on this machine may have fired already: then this one is no reason for a capture, and is tried again.
        let mut attempt = |_: u32| {
            stuck_sync(&script, &file, lower_mount, &device);
            seen += 1;
            let capture = &captures(&into, seen)[seen - 1];
            let report = stdout(flashscope().args(["report", "--json"]).arg(capture));
            let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
            let slowest = report["calls"]["slowest"][0].clone();
            println!("{}: {} {slowest}", capture.display(), report["system"]["captured"]);
            (slowest["call"] == "fdatasync").then_some(slowest)
        };
        let call = (0..5).find_map(&mut attempt).expect("a capture of this sync");
        let task = call["task"].as_str().expect("a task");
        assert!(task.starts_with("sync (") && task.contains(&call["tid"].to_string()), "{call}");
        assert_eq!(call["path"], format!("{}{shown}", file.display()), "{call}");
    }
    stdout(Command::new("kill").args(["-TERM", &agent.0.id().to_string()]));
    assert!(agent.0.wait().expect("the agent").success());
}

#[test]
fn a_failed_request_is_captured() {
    if !can_record_loops() || !Path::new("/proc/pressure/io").exists() {
        return;
    }
    let dir = TempDir::new("record-error");
    let device = new_loop(dir.path(), "cut.img");
    let into = dir.path().join("captures");
    let more = ["--device", device.name(), "--before", "1", "--after", "1", "--trigger", "error", "--captures", "1"];
    let _agent = armed("block", &into, &more);
    assert!(captures(&into, 0).is_empty());
    // Behind the file's end nothing can be read.
    let file = std::fs::File::options().write(true).open(dir.path().join("cut.img")).expect("a file");
    file.set_len(0).expect("an empty file");
    let read = output(Command::new("dd").args([&format!("if={}", device.0), "bs=4k", "count=1", "iflag=direct"]));
    assert!(!read.status.success(), "the read did not fail");
    let files = captures(&into, 1);
    assert_eq!(files.len(), 1);
    let trace = Trace::open(&files[0]).expect("a capture");
    let reason = trace.facts_json()["recording"]["trigger"]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains("error") || reason.contains("fail"), "{reason}");
}

#[test]
fn pressure_on_io_can_be_armed() {
    if !can_record_loops() || !Path::new("/proc/pressure/io").exists() {
        return;
    }
    let dir = TempDir::new("record-pressure");
    let device = new_loop(dir.path(), "p.img");
    let more = ["--device", device.name(), "--before", "1", "--after", "1", "--trigger", "psi-io>99%"];
    let mut agent = armed("block", &dir.path().join("captures"), &more);
    assert!(agent.0.try_wait().expect("the agent").is_none(), "the trigger was refused");
}

/// Who names a directory or a file in the place of a device is told its device; a device's numbers are a name of it.
#[test]
fn a_device_is_named_by_its_directory_and_found_by_its_numbers() {
    let Some(dir) = TempDir::for_loops("record-device-names") else { return };
    let device = new_loop(dir.path(), "disk.img");
    ext4(&device, &[]);
    let mounted = Mounted::new(&[], &device.0, dir.path().join("mnt")).expect("mounted");
    let file = mounted.0.join("file");
    std::fs::write(&file, "").expect("a file");
    let path = dir.path().join("t.dat");
    let record = |name: &str| {
        let mut command = flashscope();
        command.args(["record", "-q", "--events", "block", "--device", name, "-o"]).arg(&path);
        output(command.args(["--", "dd", "if=/dev/zero", "bs=64k", "count=1", "conv=fsync"]).arg({
            let mut of = std::ffi::OsString::from("of=");
            of.push(&file);
            of
        }))
    };
    for (at, kind) in [(&mounted.0, "directory"), (&file, "file")] {
        let refused = record(at.to_str().expect("UTF-8"));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(125), "{said}");
        assert!(said.contains(&format!("this is a {kind} on {0}: give --device {0}", device.name())), "{said}");
        assert!(!path.exists());
    }
    let nothing = record("nosuch");
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    let listed = said.split_once("this machine has ").expect("a list").1.split_once("; ").expect("an end").0;
    // sort -V of coreutils has the order of numbers, too.
    let loops: Vec<&str> = listed.split(", ").filter(|name| name.starts_with("loop")).collect();
    let mut sorted = loops.clone();
    sorted.sort_by_key(|name| name[4..].parse::<u32>().expect("a number"));
    assert!(loops.contains(&device.name()) && loops == sorted, "{said}");

    let numbers = std::fs::read_to_string(format!("/sys/class/block/{}/dev", device.name())).expect("numbers");
    let recorded = record(numbers.trim());
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let (major, minor) = numbers.trim().split_once(':').expect("two numbers");
    let number = major.parse::<u64>().expect("a number") << 20 | minor.parse::<u64>().expect("a number");
    let bytes = issued(&Trace::open(&path).expect("a trace"));
    assert!(bytes.get(&number).is_some_and(|of| of.1 >= 128), "{bytes:?}");
}

/// A file's name may have 255 bytes; a path that the kernel does not take is told before anything is recorded.
#[test]
fn long_names_of_the_output() {
    let Some(dir) = TempDir::for_loops("record-long-names") else { return };
    let record = |path: &Path| {
        output(flashscope().args(["record", "-q", "--events", "block", "-o"]).arg(path).args(["--", "true"]))
    };
    let longest = dir.path().join(format!("{}.dat", "\u{e4}".repeat(125)));
    let ran = record(&longest);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Trace::open(&longest).expect("a trace");
    let mut deep = dir.path().to_owned();
    while deep.as_os_str().len() < 4096 - 60 {
        deep.push("d".repeat(50));
    }
    std::fs::create_dir_all(&deep).expect("directories");
    let refused = record(&deep.join("t.dat"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(125), "{said}");
    assert!(said.contains("of at most 4095; name a file with a shorter path"), "{said}");
}
