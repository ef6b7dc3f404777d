//! `--anonymize`: no name of the recorded machine is in what is written, and the figures are the same.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flashscope_tests::{TempDir, cannot_record, flashscope, output, skip, stdout};
use serde_json::Value;

/// In every name that the workload gives.
const PLANTED: [&str; 7] = ["Xylophon", "Quetzal", "Wombat", "Zeppelin", "Marzipan", "Jalousie", "Kohlrabi"];

/// Files, directories, a task, a thread, a command line, a mount, a renamed and a deleted file with planted names.
const WORK: &str = "set -e
cp \"$(command -v dd)\" $m/XylophonTask
mkdir -p $m/QuetzalDirectory
cd $m/QuetzalDirectory
for n in 1 2 3; do $m/XylophonTask if=/dev/zero of=Wombat$n.dat bs=64k count=4 conv=fsync status=none; done
sleep 0.5
mv Wombat2.dat ZeppelinRenamed.dat
rm Wombat3.dat
mkdir MarzipanMount
mount -t tmpfs JalousieSource MarzipanMount
sh -c 'exec -a KohlrabiProgram sleep 0.5' 2>/dev/null || bash -c 'exec -a KohlrabiProgram sleep 0.5'
$m/XylophonTask if=Wombat1.dat of=/dev/null bs=4k iflag=direct status=none";

fn found_in(path: &Path) -> Vec<&'static str> {
    let bytes = std::fs::read(path).expect("a file");
    let has = |name: &&&str| bytes.windows(name.len()).any(|window| window.eq_ignore_ascii_case(name.as_bytes()));
    PLANTED.iter().filter(has).copied().collect()
}

/// Every number of a report: names and what is sorted by them aside, that is all there is.
fn numbers(value: &Value, all: &mut Vec<String>) {
    match value {
        Value::Number(number) => all.push(number.to_string()),
        Value::Array(values) => values.iter().for_each(|value| numbers(value, all)),
        Value::Object(values) => values.values().for_each(|value| numbers(value, all)),
        _ => {}
    }
}

fn figures(trace: &Path) -> Vec<String> {
    let report = stdout(flashscope().arg("report").arg(trace).arg("--json"));
    let mut all = Vec::new();
    let mut report: Value = serde_json::from_str(&report).expect("JSON");
    // How long a finding's sentence is depends on names.
    report.as_object_mut().expect("an object").remove("system");
    numbers(&report, &mut all);
    all.sort();
    all
}

fn recorded(dir: &Path) -> PathBuf {
    let (image, mount, trace) = (dir.join("fs.img"), dir.join("mnt"), dir.join("t.dat"));
    std::fs::create_dir(&mount).expect("a directory");
    stdout(Command::new("truncate").args(["-s", "64M"]).arg(&image));
    stdout(Command::new("mkfs.ext4").args(["-q", "-F", "-L", "Kohlrabi"]).arg(&image));
    stdout(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mount));
    let device = stdout(Command::new("findmnt").args(["-no", "SOURCE"]).arg(&mount));
    let device = device.trim().trim_start_matches("/dev/").to_owned();
    let mut record = flashscope();
    record.args(["record", "-q", "--events", "block,cache,syscall", "--device", &device, "-o"]).arg(&trace);
    let ran = output(record.args(["--", "sh", "-c", WORK]).env("m", &mount));
    output(Command::new("umount").arg("-R").arg(&mount));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    trace
}

#[test]
fn no_name_is_left_and_the_figures_are_the_same() {
    let Some(dir) = TempDir::for_loops("anonymize") else { return };
    let trace = recorded(dir.path());
    assert_eq!(found_in(&trace), PLANTED, "the recording has what was planted");
    let key = dir.path().join("key");
    std::fs::write(&key, [7; 32]).expect("a key");
    let mut written = Vec::new();
    for to in ["trace.dat", "csv", "json", "text", "perfetto", "parquet"] {
        let file = dir.path().join(format!("anonymous.{to}"));
        stdout(flashscope().arg("export").arg(&trace).args(["--to", to, "--anonymize", "-o"]).arg(&file));
        written.push(file);
    }
    for (name, options) in [("report.txt", &[][..]), ("report.json", &["--json"])] {
        let file = dir.path().join(name);
        let text = stdout(flashscope().arg("report").arg(&trace).arg("--anonymize").args(options));
        std::fs::write(&file, text).expect("a file");
        written.push(file);
    }
    for (name, words) in
        [("advise.txt", &["advise"][..]), ("advise.json", &["advise", "--json"]), ("diff.json", &["diff", "--json"])]
    {
        let file = dir.path().join(name);
        let mut command = flashscope();
        command.args(words).arg("--anonymize").arg(&trace);
        if words[0] == "diff" {
            command.arg(&trace);
        }
        let text = stdout(&mut command);
        // One key for both sides: what is in one recording is in itself.
        if words[0] == "diff" {
            let said: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!((&said["only_before"], &said["only_after"]), (&Value::Array(vec![]), &Value::Array(vec![])));
        }
        std::fs::write(&file, text).expect("a file");
        written.push(file);
    }
    let page = dir.path().join("report.html");
    stdout(flashscope().arg("report").arg(&trace).arg("--anonymize").arg("--html").arg(&page));
    written.push(page);
    for file in &written {
        assert!(std::fs::metadata(file).expect("a file").len() > 1000, "{}", file.display());
        assert_eq!(found_in(file), [""; 0], "{}", file.display());
    }
    assert_eq!(figures(&trace), figures(&written[0]));

    // The same key, the same pseudonyms; another run has others.
    let with = |name: &str, options: &[&str]| {
        let file = dir.path().join(name);
        stdout(flashscope().arg("export").arg(&trace).args(["--to", "trace.dat", "-o"]).arg(&file).args(options));
        std::fs::read(&file).expect("a file")
    };
    let key = key.to_str().expect("UTF-8");
    let first = with("one.dat", &["--anonymize-key", key]);
    assert!(first == with("two.dat", &["--anonymize-key", key]));
    assert!(first != with("three.dat", &["--anonymize"]));
}

#[test]
fn a_recording_is_anonymous_from_the_start() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let dir = TempDir::new("anonymize-record");
    let trace = dir.path().join("t.dat");
    let mut record = flashscope();
    record.args(["record", "-q", "--events", "syscall", "--anonymize", "-o"]).arg(&trace);
    stdout(record.args(["--", "bash", "-c", "exec -a KohlrabiProgram sleep 0.5"]));
    assert_eq!(found_in(&trace), [""; 0]);
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).expect("a directory").flatten().map(|file| file.file_name()).collect();
    assert_eq!(left, ["t.dat"], "the stream with names is gone");
    let refused = output(flashscope().args(["record", "--anonymize", "--no-convert", "-d", "1"]));
    assert_eq!(refused.status.code(), Some(2));
    let short = dir.path().join("short");
    std::fs::write(&short, "secret").expect("a file");
    let refused = output(flashscope().arg("report").arg(&trace).arg("--anonymize-key").arg(&short));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("holds less than 16 bytes"));
}

/// A limit for somebody by name: no pseudonym is called so, and the limit would seem to be kept.
#[test]
fn a_limit_that_names_somebody_is_refused() {
    let dir = TempDir::new("anonymize-limits");
    let trace = flashscope_tests::top().join("tests/cases/emmc-fsync-spike/input");
    for (limit, refused) in
        [("bytes(app=KohlrabiApp) > 1MiB", true), ("bytes(process=cat) > 1", true), ("errors > 0", false)]
    {
        let junit = dir.path().join("limits.xml");
        let mut report = flashscope();
        report.arg("report").arg(&trace).args(["--anonymize", "--fail-if", limit, "--junit"]).arg(&junit);
        let ran = output(&mut report);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(said.contains("with --anonymize nothing in the report has this name"), refused, "{limit}: {said}");
        assert_eq!(ran.status.code() == Some(2), refused, "{limit}: {said}");
        assert!(!refused || !junit.exists(), "{limit}");
    }
}

/// What a killed recording had gets the pseudonyms of the key that it was given.
#[test]
fn a_killed_recording_keeps_its_key() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let dir = TempDir::new("anonymize-killed");
    let key = dir.path().join("key");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef").expect("a key");
    // Its own cache: a command of a test beside it would put the killed recording right, and say so there.
    let here = || {
        let mut command = flashscope();
        command.env("FLASHSCOPE_CACHE", dir.path().join("cache")).current_dir(dir.path());
        command
    };
    let record = |name: &str, seconds: &str| {
        let mut record = here();
        record.args(["record", "-q", "--events", "block", "-d", seconds, "--anonymize-key", "key", "-o", name]);
        record
    };
    let first_process = |name: &str| {
        let trace = flashscope_trace::Trace::open(&dir.path().join(name)).expect("a trace");
        let rows = trace.facts_json()["names"]["processes"].as_array().expect("processes").clone();
        rows.into_iter().find(|row| row["pid"] == 1).expect("process 1")["command"].clone()
    };
    stdout(&mut record("whole.dat", "1"));
    let mut killed = record("killed.dat", "60").spawn().expect("a recording");
    let begun = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.ends_with(".stream") && entry.metadata().is_ok_and(|meta| meta.len() > 100_000)
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !std::fs::read_dir(dir.path()).expect("a directory").flatten().any(begun) {
        assert!(std::time::Instant::now() < until, "nothing is recorded");
        // On a machine where nobody else does I/O.
        for _ in 0..20 {
            let mut work = std::fs::File::create(dir.path().join("work")).expect("a file");
            work.write_all(&[0; 4096]).and_then(|()| work.sync_all()).expect("written");
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    killed.kill().expect("to kill it");
    killed.wait().expect("its end");
    // Any command puts it right.
    let said = output(here().args(["report", "whole.dat"]));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("an earlier recording was killed; its data is in"), "{said}");
    let pseudonym = first_process("whole.dat");
    assert!(
        pseudonym.is_string() && pseudonym == first_process("killed.dat"),
        "{pseudonym} {}",
        first_process("killed.dat")
    );
}
