//! What `packaging/flight-recorder/` offers for a board: its systemd unit and its init script, run on this host.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flashscope_tests::{Mounted, Running, TempDir, output, skip, stdout, top};
use flashscope_trace::Trace;

fn offered(name: &str, replaced: &[(&str, &str)]) -> String {
    let text = std::fs::read_to_string(top().join("packaging/flight-recorder").join(name)).expect("a file");
    replaced.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{name} has no {from}");
        text.replace(from, to)
    })
}

fn agent() -> String {
    flashscope_targets::host_agent().expect("the agent: make agents").display().to_string()
}

/// Until a file says it; what it says then.
fn says(file: &Path, words: &str) -> String {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if text.contains(words) {
            return text;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {words}: {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Recorders of this agent with this directory.
fn running(directory: &Path) -> usize {
    let directory = directory.display().to_string();
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let is = |path: PathBuf| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|&byte| byte == 0).collect();
        // Its child that names files has the same command line.
        let parent = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let parent = parent.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap_or_default().to_owned();
        let of_parent = std::fs::read(format!("/proc/{parent}/cmdline")).unwrap_or_default();
        words.contains(&directory.as_bytes()) && words.contains(&b"record".as_slice()) && of_parent != line
    };
    all.filter(|entry| is(entry.path())).count()
}

#[test]
fn the_unit_is_one_and_its_command_records_until_it_is_stopped() {
    let Some(dir) = TempDir::for_loops("flight-unit") else { return };
    let (agent, into) = (agent(), dir.path().join("captures"));
    let unit = offered(
        "flashscope-flight.service",
        &[("/usr/bin/flashscope-agent", &agent), ("/var/lib/flashscope\n", &format!("{}\n", into.display()))],
    );
    let file = dir.path().join("flashscope-flight.service");
    std::fs::write(&file, &unit).expect("a unit");
    if Path::new("/usr/bin/systemd-analyze").exists() {
        let verified = output(Command::new("systemd-analyze").arg("verify").arg(&file));
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(verified.status.success() && !said.contains("flashscope-flight"), "{said}");
    } else {
        skip("systemd-analyze is missing; install systemd");
    }
    // As systemd does: words between blanks, no shell.
    let unit = unit.replace("\\\n", " ");
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let words: Vec<&str> = command.split_whitespace().collect();
    let log = dir.path().join("log");
    let mut recorder = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).expect("a log"))
        .spawn()
        .expect("the agent");
    says(&log, "flight recorder armed");
    stdout(Command::new("kill").args(["-TERM", &recorder.id().to_string()]));
    assert!(recorder.wait().expect("the agent").success(), "{}", says(&log, ""));
}

#[test]
fn the_init_script_starts_one_recorder_and_ends_it() {
    let Some(dir) = TempDir::for_loops("flight-init") else { return };
    let (agent, into, log) = (agent(), dir.path().join("captures"), dir.path().join("logs/log"));
    let script = offered(
        "S95flashscope",
        &[
            ("AGENT=/usr/bin/flashscope-agent", &format!("AGENT={agent}")),
            ("DIRECTORY=/var/lib/flashscope", &format!("DIRECTORY={}", into.display())),
            ("LOG=/var/log/flashscope-flight.log", &format!("LOG={}", log.display())),
            ("NAME=flight", &format!("NAME=flight-{}", std::process::id())),
        ],
    );
    let file = dir.path().join("S95flashscope");
    std::fs::write(&file, script).expect("a script");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    let run = |word: &str| output(Command::new(&file).arg(word).stdin(Stdio::null())).status.code();
    assert_eq!(run("start"), Some(0));
    let first = says(&log, "flight recorder armed");
    // A second one would be refused, and its log is the first one's.
    assert_eq!(run("start"), Some(0));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!((running(&into), says(&log, "")), (1, first));
    std::fs::write(&log, "").expect("a log");
    assert_eq!(run("restart"), Some(0));
    says(&log, "flight recorder armed");
    assert_eq!(running(&into), 1);
    assert_eq!(run("stop"), Some(0));
    assert_eq!(running(&into), 0, "it still runs after `stop`");
    assert_ne!(run("stop"), Some(0));
    assert_eq!(run("enable"), Some(2));
}

fn start(into: &Path, sign: &Path, log: &Path) -> Running {
    let trigger = format!("run test -e {0} && rm {0}", sign.display());
    let child = Command::new(agent())
        .args(["record", "--events", "block", "--trigger", &trigger, "--before", "1", "--after", "1", "--directory"])
        .arg(into)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(log).expect("a log"))
        .spawn()
        .expect("the agent");
    says(log, "flight recorder armed");
    Running(child)
}

#[test]
fn captures_go_on_after_a_full_disk_and_after_a_power_cut() {
    let Some(dir) = TempDir::for_loops("flight-full") else { return };
    let (into, sign, log) = (dir.path().join("captures"), dir.path().join("sign"), dir.path().join("log"));
    let options = ["-t", "tmpfs", "-o", "size=16m,mode=700"];
    let _mounted = Mounted::new(&options, "nodev", into.clone()).expect("mounted");
    let filler = into.join("filler");
    output(Command::new("dd").args(["if=/dev/zero", &format!("of={}", filler.display()), "bs=1M"]));
    let recorder = start(&into, &sign, &log);
    std::fs::write(&sign, "").expect("a sign");
    let said = says(&log, "capture 1 (run test -e");
    assert!(said.contains("is lost: ") && said.contains("No space left on device"), "{said}");
    let names = || -> Vec<String> {
        let all = std::fs::read_dir(&into).expect("a directory").flatten();
        let mut names: Vec<_> = all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["filler"], "a part of a capture was left");
    std::fs::remove_file(&filler).expect("a file");
    std::fs::write(&sign, "").expect("a sign");
    says(&log, "flashscope-0001.stream: run test");
    let lost = |name: &str| {
        let trace = Trace::open(&into.join(name)).expect("a capture");
        trace.facts_json()["recording"]["trigger"]["captures_lost"].as_u64()
    };
    assert_eq!(lost("flashscope-0001.stream"), Some(1));
    // The power is cut while the next one is written.
    drop(recorder);
    std::fs::write(into.join("flashscope-0002.stream.partial"), "half").expect("a file");
    let _recorder = start(&into, &sign, &log);
    assert_eq!(names(), ["flashscope-0001.stream"]);
    std::fs::write(&sign, "").expect("a sign");
    says(&log, "flashscope-0002.stream: run test");
    assert_eq!((names().len(), lost("flashscope-0002.stream")), (2, Some(0)));
}

/// Each would remove the other's capture that is not whole yet, and both would use the same numbers.
#[test]
fn a_directory_of_captures_has_one_recorder() {
    let Some(dir) = TempDir::for_loops("flight-two") else { return };
    let (into, log) = (dir.path().join("captures"), dir.path().join("log"));
    let record = || {
        let mut record = Command::new(agent());
        record.args(["record", "--events", "block", "--trigger", "error", "--directory"]).arg(&into);
        record
    };
    let mut first = record().stderr(std::fs::File::create(&log).expect("a log")).spawn().expect("the agent");
    says(&log, "armed");
    let second = output(&mut record());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    stdout(Command::new("kill").args(["-TERM", &first.id().to_string()]));
    assert!(first.wait().expect("an end").success(), "{}", says(&log, ""));
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("another recorder writes its captures there") && said.lines().count() == 1, "{said}");
    // And the next one after it has the directory.
    let mut third = record().stderr(std::fs::File::create(&log).expect("a log")).spawn().expect("the agent");
    says(&log, "armed");
    stdout(Command::new("kill").args(["-TERM", &third.id().to_string()]));
    assert!(third.wait().expect("an end").success(), "{}", says(&log, ""));
}
