//! Paths of files that a recording on this host finds, and how long it may look for them.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use flashscope_tests::{TempDir, is_root, output, skip, stdout};
use flashscope_trace::Trace;
use serde_json::Value;

fn can_record() -> bool {
    if !is_root() || !Path::new("/dev/loop-control").exists() {
        skip("needs root and loop devices");
        return false;
    }
    true
}

/// What the agent alone finds: the facts' `names`, and how long all of it took.
fn names(dir: &Path, more: &[&str]) -> (Value, Duration) {
    let stream = dir.join("t.stream");
    let mut agent = Command::new(flashscope_targets::host_agent().expect("an agent"));
    agent.args(["record", "--events", "block,syscall,cache", "--paths", "auto", "-o"]).arg(&stream).args(more);
    let began = Instant::now();
    let ran = output(&mut agent);
    let took = began.elapsed();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let trace = Trace::open(&stream).expect("a stream");
    (trace.facts()["names"].clone(), took)
}

/// The search has a second after two seconds of recording: this host's file systems hold more than it can read in that time.
#[test]
fn a_recording_ends_in_time() {
    if !can_record() {
        return;
    }
    let dir = TempDir::new("paths-time");
    let (names, took) = names(dir.path(), &["-d", "2"]);
    let search = &names["search"][0];
    assert_eq!(search["limit_ms"], 1000, "{search}");
    let searched = search["took_ms"].as_u64().expect("a time");
    println!("-d 2 took {took:?}, {searched} ms of them for names");
    // What is found has to be written, and a busy machine may stand still.
    assert!(searched < 2000, "{search}");
    assert!(took < Duration::from_secs(7), "{took:?}");
    for file in names["files"].as_array().into_iter().flatten() {
        assert!(file["path"].is_string() || file["why"].is_string(), "{file}");
    }
    // Without -d as before.
    let (names, _) = self::names(dir.path(), &["--", "true"]);
    assert_eq!(names["search"][0]["limit_ms"], 5000);
    stdout(Command::new("rm").arg(dir.path().join("t.stream")));
}
