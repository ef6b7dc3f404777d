//! kill -9 of agent, command and QEMU at random moments: after the next command nothing is left, and what was recorded
//! is kept and readable.
//!
//! `FLASHSCOPE_KILLS` says how many (100); `FLASHSCOPE_SEED` repeats a run's moments (each test prints its seed).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flashscope_tests::{Plan, PrivateCache, TempDir, cannot_record, flashscope, output, skip};
use flashscope_trace::{Session, Trace};

/// Every process that a round starts inherits this variable: that is how one is found that was left.
const MARK: &str = "FLASHSCOPE_TEST_ROUND";
/// How long what was told to end may take to do so.
const PATIENCE: Duration = Duration::from_secs(10);

fn kills() -> u64 {
    std::env::var("FLASHSCOPE_KILLS").map_or(100, |text| text.parse().expect("FLASHSCOPE_KILLS is a number"))
}

fn kills_on_boards() -> u64 {
    kills() * 60 / 100
}

fn kills_of_recordings() -> u64 {
    kills() * 25 / 100
}

fn kills_of_boots() -> u64 {
    kills() - kills_on_boards() - kills_of_recordings()
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014, figure 12).
struct Random(u64);

impl Random {
    /// The run's seed, made different for each test.
    fn new(test: &str) -> Random {
        let seed = match std::env::var("FLASHSCOPE_SEED") {
            Ok(text) => text.parse().expect("FLASHSCOPE_SEED is a number"),
            Err(_) => std::time::UNIX_EPOCH.elapsed().expect("a clock").as_micros() as u64,
        };
        println!("{test}: FLASHSCOPE_SEED={seed} FLASHSCOPE_KILLS={} repeats these moments", kills());
        Random(seed.wrapping_add(test.bytes().map(u64::from).sum()))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// What there is to kill on a board, and for how long it runs there in guest time, microseconds.
const ON_BOARDS: [(&str, u64); 7] = [
    ("stream", 2_000_000),
    ("command", 3_500_000),
    ("ring", 1_500_000),
    ("knob", 700_000),
    ("probe", 300_000),
    ("create", 250_000),
    ("sweep", 60_000),
];

/// A boot takes some seconds; the time limit of one is ten minutes.
const ROUNDS_PER_BOOT: u64 = 60;

#[test]
fn agents_killed_on_boards() {
    let mut random = Random::new("agents_killed_on_boards");
    let total = kills_on_boards();
    let boots = total.div_ceil(ROUNDS_PER_BOOT).max(2);
    let (mut kept, mut events) = (0, 0);
    let mut left = Vec::new();
    let mut seen = BTreeSet::new();
    let (mut rounds, mut traces) = (0, 0);
    for boot in 0..boots {
        let kernel = if boot % 2 == 0 { "6.1" } else { "newest" };
        let mut table = String::new();
        let numbers: Vec<u64> = (boot..total).step_by(boots as usize).collect();
        for number in &numbers {
            let (kind, longest) = random.pick(&ON_BOARDS);
            let next = random.pick(&["probe", "status", "sweep", "record"]);
            writeln!(table, "{number} {kind} {} {next}", random.below(longest)).expect("a string");
        }
        let mut plan = Plan::new("armv7", kernel);
        plan.parts = &[64];
        plan.modules = &["jffs2"];
        plan.packages = &["busybox-static"];
        plan.files = vec![
            ("/kills.sh", 0o755, include_bytes!("kills.sh").to_vec()),
            ("/rounds", 0o644, table.clone().into_bytes()),
        ];
        plan.lines = [
            "device-wait /dev/mtd0 10000",
            "mkdir /kept",
            "mount mtd0 /mnt jffs2 -",
            "create /mnt/data 262144 printable 1",
            "-run kills busybox sh /kills.sh",
        ]
        .map(str::to_owned)
        .to_vec();
        // Those that were killed before their file was made have none.
        plan.lines.extend(numbers.iter().map(|number| format!("-get /kept/{number}")));
        let booted = plan.boot();
        let step = booted.step("kills");
        let said = String::from_utf8_lossy(&step.stdout);
        for line in said.lines().filter(|line| line.ends_with(" clean")) {
            rounds += 1;
            traces += u64::from(line.contains(" traces "));
            seen.insert(line.split(' ').nth(2).unwrap_or_default().to_owned());
        }
        if said.lines().any(|line| !line.ends_with(" clean")) || said.lines().count() != numbers.len() {
            left.push(format!("armv7 {kernel}:\n{said}{}", String::from_utf8_lossy(&step.stderr)));
        }
        let dir = TempDir::new("kept");
        for file in booted.session.steps.iter().flat_map(|step| &step.files) {
            let bytes = booted.session.read_file(file, 64 << 20).expect("a file of the stream");
            let path = dir.path().join("stream");
            std::fs::write(&path, &bytes).expect("a temporary file");
            if !bytes.is_empty() {
                kept += 1;
                events += events_of_stream(&path).unwrap_or_else(|error| panic!("{kernel} {}: {error}", file.path));
            }
        }
    }
    assert!(left.is_empty(), "left behind, or not run to the end:\n{}", left.join("\n"));
    assert_eq!(rounds, total);
    println!(
        "{rounds} kills on boards ({}): {traces} had left something, nothing after the next command; {kept} cut streams \
         read, {events} events in them",
        seen.into_iter().collect::<Vec<_>>().join(", ")
    );
    if total >= 30 {
        assert!(traces > total / 10, "the moments are badly chosen: hardly a kill left anything to sweep");
        assert!(kept > 0 && events > 0, "the moments are badly chosen: no stream had begun");
    }
}

/// What is left of a killed replay's cgroups: controllers that are on in the root, groups, and notes.
#[test]
fn a_killed_replay_leaves_no_cgroup_and_no_controller() {
    let mut plan = Plan::new("armv7", "6.1");
    plan.packages = &["busybox-static"];
    plan.files = vec![("/kills.sh", 0o755, include_bytes!("kills_replay.sh").to_vec())];
    plan.lines = vec!["-run kills busybox sh /kills.sh".to_owned()];
    let booted = plan.boot();
    let step = booted.step("kills");
    let said = String::from_utf8_lossy(&step.stdout).into_owned();
    println!("{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 16, "{said}{}", String::from_utf8_lossy(&step.stderr));
    for mounted in ["no", "yes"] {
        let of: Vec<&&str> = lines.iter().filter(|line| line.starts_with(&format!("{mounted} "))).collect();
        let killed: Vec<_> =
            of.iter().filter_map(|line| line.split_once(" killed: ")?.1.split_once("; swept: ")).collect();
        assert_eq!(killed.len(), 6, "{said}");
        assert!(killed.iter().all(|(_, swept)| *swept == "0 0"), "left behind: {said}");
        let had = killed.iter().filter(|(left, _)| left.contains("memory") && left.ends_with(" 1 1")).count();
        assert!(had > 0, "the moments are badly chosen: no kill left a controller on: {said}");
        let line = |what: &str| of.iter().find_map(|line| line.split_once(what)).expect("a line").1;
        let beside = line(" beside: ");
        assert!(beside.contains("memory") && beside.ends_with(" 1 2"), "the living one keeps its own: {said}");
        assert_eq!(line(" after: "), "0 0", "{said}");
    }
}

/// Events of a stream that a killed recorder has left; a stream without a whole frame of ring data has none.
fn events_of_stream(path: &Path) -> Result<u64, String> {
    let bytes = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    // Shorter than a frame's header and the HELLO.
    if bytes < 36 {
        return Ok(0);
    }
    let session = Session::open(path).map_err(|error| error.to_string())?;
    let mut events = 0;
    for index in 0..session.recordings.len() {
        events += events_of(&session.recording(index).map_err(|error| error.to_string())?)?;
    }
    Ok(events)
}

fn events_of(trace: &Trace) -> Result<u64, String> {
    let mut events = 0;
    trace.for_each_record(&mut |_| events += 1).map_err(|error| error.to_string())?;
    Ok(events)
}

/// Processes of a round.
fn marked(round: &str) -> Vec<u32> {
    let mark = format!("{MARK}={round}");
    std::fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()))
        })
        .collect()
}

fn runs(pid: u32, program: &str) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe"))
        .is_ok_and(|exe| exe.file_name().is_some_and(|name| name.to_string_lossy().starts_with(program)))
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:\t")?.parse().ok())
}

/// Of a round's processes, the one that runs this program. A recorder's child, which reads names of processes, runs
/// the same one, and may have the lower number.
fn running(round: &str, program: &str) -> Option<u32> {
    marked(round).into_iter().find(|&pid| runs(pid, program) && parent(pid).is_some_and(|of| !runs(of, program)))
}

fn kill(pid: u32) {
    // It may have ended by itself a moment ago.
    Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status().expect("kill");
}

/// Waits until nothing is said to be wrong.
fn settle(mut wrong: impl FnMut() -> Vec<String>) -> Vec<String> {
    let began = Instant::now();
    loop {
        let now = wrong();
        if now.is_empty() || began.elapsed() > PATIENCE {
            return now;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `…_<pid>_<starttime>…` of somebody who no longer lives (agent/undo/sweep.h).
fn of_the_dead(name: &str) -> bool {
    let name = name.split('.').next().unwrap_or_default();
    let mut parts = name.rsplit('_');
    let (Some(start), Some(pid)) = (parts.next(), parts.next()) else { return false };
    let (Ok(start), Ok(pid)) = (start.parse::<u64>(), pid.parse::<u32>()) else { return false };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let now = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19)?.parse().ok());
    now != Some(start)
}

/// What dead agents have left on this host.
fn left_on_this_host() -> Vec<String> {
    let mut left = Vec::new();
    for dir in ["/sys/kernel/tracing/instances", "/run/flashscope"] {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if of_the_dead(&entry.file_name().to_string_lossy()) {
                left.push(entry.path().display().to_string());
            }
        }
    }
    let probes = std::fs::read_to_string("/sys/kernel/tracing/kprobe_events").unwrap_or_default();
    for line in probes.lines() {
        let group = line.split_once(':').and_then(|(_, rest)| rest.split('/').next()).unwrap_or_default();
        if group.starts_with("flashscope_") && of_the_dead(group) {
            left.push(line.to_owned());
        }
    }
    left
}

/// The error of a command that was not killed itself: its last line, apart from a board's console.
fn the_error(stderr: &str) -> &str {
    let errors: Vec<&str> =
        stderr.lines().filter(|line| !line.starts_with('[') && !line.starts_with("    | ")).collect();
    assert_eq!(errors.len(), 1, "one line says what was wrong:\n{stderr}");
    assert!(errors[0].starts_with("flashscope: "), "{stderr}");
    errors[0]
}

fn command(cache: &PrivateCache, round: &str) -> Command {
    let mut command = flashscope();
    command.env("FLASHSCOPE_CACHE", cache.path()).env(MARK, round).stdin(Stdio::null());
    if let Some(agents) = std::env::var_os("FLASHSCOPE_AGENTS") {
        command.env("FLASHSCOPE_AGENTS", agents);
    }
    command
}

fn start(command: &mut Command, stderr: &Path) -> Child {
    let stderr = std::fs::File::create(stderr).expect("a temporary file");
    command.stdout(Stdio::null()).stderr(stderr).spawn().expect("flashscope starts")
}

fn wait(child: &mut Child, what: &str) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("wait") {
            return status.code();
        }
        if began.elapsed() > Duration::from_secs(60) {
            child.kill().ok();
            panic!("{what}: it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The command that runs next. It has to succeed whatever lies about.
fn next_command(cache: &PrivateCache, round: &str) {
    let listed = output(command(cache, round).args(["board", "list"]));
    assert!(listed.status.success(), "round {round}: {}", String::from_utf8_lossy(&listed.stderr));
}

/// Something for a recorder to see: processes that start, blocks that are written.
struct Activity {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Activity {
    fn new(dir: &Path) -> Activity {
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, path) = (Arc::clone(&stop), dir.join("written"));
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                Command::new("/bin/true").status().expect("/bin/true");
                let file = std::fs::write(&path, [7; 8192]).and_then(|()| std::fs::File::open(&path));
                file.and_then(|file| file.sync_all()).expect("a file to write");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Activity { stop, thread: Some(thread) }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Cli,
    Agent,
    /// The command, and then the next command while it mends what the first has left.
    CliThenRecovery,
    Qemu,
}

/// The stream of a recording that has no trace.dat yet.
fn stream_of(dir: &Path, name: &str) -> Option<PathBuf> {
    let begins = format!("{name}.");
    std::fs::read_dir(dir).expect("a directory").flatten().map(|entry| entry.path()).find(|path| {
        path.file_name()
            .and_then(|file| file.to_str())
            .is_some_and(|file| file.starts_with(&begins) && file.ends_with(".stream"))
    })
}

#[test]
fn recordings_killed_on_this_host() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    if !Path::new("/sys/kernel/tracing/instances").exists() {
        return skip("needs tracefs: mount -t tracefs nodev /sys/kernel/tracing");
    }
    let mut random = Random::new("recordings_killed_on_this_host");
    let cache = PrivateCache::new("kills-cache");
    let work = TempDir::new("kills-record");
    let errors = work.path().join("errors");
    let activity = TempDir::new("kills-activity");
    let _activity = Activity::new(activity.path());
    let (mut readable, mut events, mut traces) = (0, 0, 0);
    for number in 0..kills_of_recordings() {
        let victim = random.pick(&[Victim::Cli, Victim::Agent, Victim::CliThenRecovery]);
        // Half of them while the recorder arms, half while it records.
        let recording = random.below(2) == 0;
        let moment = Duration::from_micros(random.below(1_000_000));
        let recovery = Duration::from_micros(random.below(60_000));
        let detached = random.below(2) == 0;
        let round = format!("{}-record-{number}", std::process::id());
        let what =
            format!("round {number} ({victim:?} after {moment:?}, recording: {recording}, recovery {recovery:?})");
        let dir = work.path().join(number.to_string());
        std::fs::create_dir(&dir).expect("a temporary directory");
        let trace = dir.join("t.dat");
        let mut record = command(&cache, &round);
        record.args(["record", "--events", "block,task:task_newtask", "-o"]).arg(&trace);
        if !detached {
            record.args(["--", "sleep", "30"]);
        }
        let mut child = start(&mut record, &errors);
        let began = Instant::now();
        while recording && stream_of(&dir, "t.dat").is_none_or(|path| path.metadata().map_or(0, |meta| meta.len()) == 0)
        {
            assert!(began.elapsed() < PATIENCE, "{what}: nothing is recorded");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(moment);
        let agent = (victim == Victim::Agent).then(|| wait_for(&round, "flashscope-agent", &what));
        // What has come by now must be there in the end.
        let before = stream_of(&dir, "t.dat").map_or(0, |stream| {
            let copy = work.path().join("copy");
            // The stream may be renamed or converted meanwhile only where the recorder ended by itself.
            std::fs::copy(&stream, &copy).expect("a readable stream");
            if std::fs::metadata(&copy).map_or(0, |meta| meta.len()) == 0 { 0 } else { 1 + count(&copy, &what) }
        });
        match agent {
            Some(agent) => {
                kill(agent);
                let status = wait(&mut child, &what);
                let said = std::fs::read_to_string(&errors).expect("a file");
                let ours = if detached { 1 } else { 125 };
                assert_eq!(status, Some(ours), "{what}: a failure of ours, not a crash:\n{said}");
                the_error(&said);
            }
            None => {
                child.kill().expect("kill");
                wait(&mut child, &what);
            }
        }
        traces += u64::from(!left_on_this_host().is_empty() || !cache.scratch().is_empty());
        if victim == Victim::CliThenRecovery {
            let mut recovering = start(command(&cache, &round).args(["board", "list"]), &errors);
            std::thread::sleep(recovery);
            recovering.kill().ok();
            wait(&mut recovering, &what);
        }
        next_command(&cache, &round);

        let wrong = settle(|| {
            let mut wrong = left_on_this_host();
            wrong.extend(marked(&round).iter().map(|pid| format!("process {pid}")));
            wrong.extend(cache.scratch().iter().map(|path| path.display().to_string()));
            wrong
        });
        assert!(wrong.is_empty(), "{what}: left behind: {wrong:?}");
        let mut files: Vec<String> = std::fs::read_dir(&dir)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let known = [vec![], vec!["t.dat".to_owned()], vec!["t.dat.stream".to_owned()]];
        assert!(known.contains(&files), "{what}: {files:?}");
        let after = files.first().map_or(0, |name| 1 + count(&dir.join(name), &what));
        assert!(after >= before, "{what}: {before} events were there, {after} are kept");
        readable += u64::from(after > 0);
        events += after.saturating_sub(1);
        std::fs::remove_dir_all(&dir).expect("a directory");
    }
    println!(
        "{} kills of recordings: {traces} had left something, nothing after the next command; {readable} traces readable, \
         {events} events in them",
        kills_of_recordings()
    );
    if kills_of_recordings() >= 20 {
        assert!(readable > 4 && events > 0, "the moments are badly chosen: nothing had been recorded");
    }
}

/// Where a recovery is killed after the trace has its name and before the stream is gone, the next one makes no second trace.
#[test]
fn what_a_killed_recovery_made_is_not_made_again() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let cache = PrivateCache::new("recovered-cache");
    let work = TempDir::new("recovered");
    let (dir, copy, errors) = (work.path().join("d"), work.path().join("copy"), work.path().join("errors"));
    std::fs::create_dir(&dir).expect("a directory");
    let trace = dir.join("t.dat");
    let mut record = command(&cache, "recovered");
    record.args(["record", "--events", "block", "-o"]).arg(&trace);
    let mut child = start(&mut record, &errors);
    let began = Instant::now();
    // From then on it says when and by whom it was begun.
    let has_facts = |path: PathBuf| Trace::open(&path).is_ok_and(|trace| trace.facts_json()["recording"].is_object());
    while !stream_of(&dir, "t.dat").is_some_and(has_facts) {
        assert!(began.elapsed() < PATIENCE, "nothing is recorded");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("kill");
    wait(&mut child, "record");
    let stream = stream_of(&dir, "t.dat").expect("a stream");
    std::fs::copy(&stream, &copy).expect("a copy");
    let written = stream.metadata().and_then(|meta| meta.modified()).expect("its time");
    next_command(&cache, "recovered");
    let again = || {
        std::fs::copy(&copy, &stream).expect("a copy");
        std::fs::File::options()
            .append(true)
            .open(&stream)
            .and_then(|file| file.set_modified(written))
            .expect("its time");
        // As of a process that is dead: nobody has this number.
        let note = cache.path().join("tmp/4194305_1_0_recording");
        std::fs::DirBuilder::new().mode(0o700).create(&note).expect("a note");
        std::fs::write(note.join("recording"), format!("{}\0{}", stream.display(), trace.display())).expect("a note");
        next_command(&cache, "recovered");
        let files = std::fs::read_dir(&dir).expect("a directory").flatten();
        files.map(|file| file.file_name().into_string().expect("UTF-8")).collect::<BTreeSet<_>>()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(again(), names(&["t.dat"]));
    // One that was there before the recording is another one, as alike as boots of a virtual board are.
    let earlier = written - Duration::from_secs(60);
    std::fs::File::options().append(true).open(&trace).and_then(|file| file.set_modified(earlier)).expect("its time");
    assert_eq!(again(), names(&["t.dat", "t.dat.incomplete"]));
    assert_eq!(again(), names(&["t.dat", "t.dat.incomplete"]));
}

fn wait_for(round: &str, program: &str, what: &str) -> u32 {
    let began = Instant::now();
    loop {
        if let Some(pid) = running(round, program) {
            return pid;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{what}: {program} was not started");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Events of a trace.dat, or of a stream that may have been cut anywhere.
fn count(path: &Path, what: &str) -> u64 {
    let counted = match path.extension().is_some_and(|extension| extension == "dat") {
        true => Trace::open(path).map_err(|error| error.to_string()).and_then(|trace| events_of(&trace)),
        false => events_of_stream(path),
    };
    counted.unwrap_or_else(|error| panic!("{what}: {}: {error}", path.display()))
}

/// A signal that can be handled leaves nothing for the next command to remove, and costs one line.
#[test]
fn boots_ended_by_a_signal() {
    flashscope_tests::stdout(flashscope().args(["board", "fetch", "armv7"]));
    let cache = PrivateCache::new("signal-boot-cache");
    let work = TempDir::new("signal-boot");
    let errors = work.path().join("errors");
    // `timeout` signals its child, and then the group that both are in: that is one request, not two.
    let signals = [&["-INT"][..], &["-TERM"], &["-HUP"], &["-TERM", "-TERM"]];
    for (number, signals) in signals.into_iter().enumerate() {
        let signal = &signals.join(" ");
        let round = format!("{}-signal-{number}", std::process::id());
        let words =
            ["board", "boot", "--", "/flashscope/agent", "record", "--events", "block", "-d", "600", "-o", "/t"];
        let mut child = start(command(&cache, &round).args(words), &errors);
        wait_for(&round, "qemu-system", signal);
        std::thread::sleep(Duration::from_millis(500));
        for signal in signals {
            output(Command::new("kill").args([*signal, &child.id().to_string()]));
        }
        assert_eq!(wait(&mut child, signal), Some(1), "{signal}");
        let said = std::fs::read_to_string(&errors).expect("a file");
        assert!(the_error(&said).ends_with("stopped by a signal before the plan's end"), "{signal}: {said}");
        assert!(!said.contains("    | "), "{signal}: {said}");
        let wrong = settle(|| marked(&round).iter().map(|pid| format!("process {pid}")).collect());
        assert!(wrong.is_empty(), "{signal}: still runs: {wrong:?}");
        assert_eq!(cache.scratch(), Vec::<PathBuf>::new(), "{signal}: left behind");
    }
}

#[test]
fn boots_killed_with_their_command_or_their_qemu() {
    let mut random = Random::new("boots_killed_with_their_command_or_their_qemu");
    // Whatever has to be fetched is there before the clock runs.
    flashscope_tests::stdout(flashscope().args(["board", "fetch", "armv7"]));
    let cache = PrivateCache::new("kills-boot-cache");
    let work = TempDir::new("kills-boot");
    let errors = work.path().join("errors");
    let (mut ended, mut traces) = (0, 0);
    let bench: &[&str] = &[
        "bench", "read", "--on", "board:armv7", "--filesystem", "jffs2", "--file-size", "256K", "--count", "8",
        "--readahead", "128",
    ];
    for number in 0..kills_of_boots() {
        let victim = random.pick(&[Victim::Cli, Victim::Qemu]);
        let argv = random.pick(&[&["board", "boot"], bench]);
        let moment = Duration::from_micros(random.below(5_000_000));
        let round = format!("{}-boot-{number}", std::process::id());
        let what = format!("round {number} ({victim:?} after {moment:?} of {})", argv.join(" "));
        let mut child = start(command(&cache, &round).args(argv), &errors);
        let qemu = match victim {
            // Its own time begins when it runs.
            Victim::Qemu => Some(wait_for(&round, "qemu-system", &what)),
            _ => None,
        };
        std::thread::sleep(moment);
        match qemu {
            Some(qemu) => {
                kill(qemu);
                let status = wait(&mut child, &what);
                let said = std::fs::read_to_string(&errors).expect("a file");
                // The board may have come to its end before.
                if status == Some(0) {
                    ended += 1;
                } else {
                    assert_eq!(status, Some(1), "{what}:\n{said}");
                    let error = the_error(&said);
                    // A round may meet QEMU while it only says its version, before the boot.
                    let known = ["QEMU ended before the plan: signal: 9", "qemu-system-arm: signal: 9"];
                    assert!(known.iter().any(|known| error.contains(known)), "{what}: {error}");
                }
            }
            None => {
                child.kill().expect("kill");
                wait(&mut child, &what);
                traces += u64::from(!cache.scratch().is_empty());
            }
        }
        // QEMU and all else end with the command, without another one's help.
        let wrong = settle(|| marked(&round).iter().map(|pid| format!("process {pid}")).collect());
        assert!(wrong.is_empty(), "{what}: still runs: {wrong:?}");
        next_command(&cache, &round);
        assert_eq!(cache.scratch(), Vec::<PathBuf>::new(), "{what}: left behind");
        for entry in std::fs::read_dir(cache.path().join("groups")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            assert!(name.to_string_lossy().ends_with(".json"), "{what}: left behind: {}", name.display());
        }
        // A group that was finished would be reused from now on.
        std::fs::remove_dir_all(cache.path().join("groups")).ok();
    }
    println!(
        "{} kills of boots ({ended} boards had ended by then): {traces} had left something, nothing after the next command",
        kills_of_boots()
    );
}
