//! A machine over ssh that is none of ours: what an `ssh` in PATH sends in its place is bounded, acts on no terminal, and ends the
//! command with one line and a status.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use flashscope_tests::{PrivateCache, TempDir, flashscope, output};

/// The holder's answer, a program of x86_64; then the agent is taken, and a recording does what `$1` says.
fn board(recording: &str) -> String {
    format!(
        "case $last in\n\
         *'flashscope ok'*) printf 'flashscope ok x86_64 \\002\\001 /nosuch/d\\n'; exec >&-; cat >/dev/null; exit 0;;\n\
         *'set -C; if'*) cat >/dev/null; exit 0;;\n\
         esac\n{recording}\n"
    )
}

#[test]
fn a_far_side_that_sends_anything_ends_with_one_line() {
    let dir = TempDir::new("remote-hostile");
    let cache = PrivateCache::new("remote-hostile-cache");
    let ssh = dir.path().join("ssh");
    let trace = dir.path().join("t.dat").display().to_string();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap_or_default());
    let doctor = &["doctor", "--on", "ssh://far"][..];
    let top = &["top", "--on", "ssh://far", "--json", "-d", "1"][..];
    let record = &["record", "--on", "ssh://far", "-d", "1", "-o", &trace][..];
    let cases = [
        ("much on stderr before any answer", "head -c 16000000 /dev/zero >&2; exit 255".to_owned(), doctor, "far"),
        ("a line without an end", "head -c 300000 /dev/zero | tr '\\0' y >&2; exit 255".to_owned(), doctor, "yyy"),
        ("escapes", "printf '\\033[2J\\342\\200\\256no\\n' >&2; exit 255".to_owned(), doctor, "no"),
        ("no directory, and no end", "echo flashscope nodir; while echo y; do :; done".to_owned(), doctor, "TMPDIR"),
        ("no answer of an agent", board("exit 0"), doctor, "cannot be read"),
        ("an answer without an end", board("while echo yyyyyyyyyyyyyyyyyyyyyyyyyyy; do :; done"), doctor, "16 MiB"),
        ("no answer, and no end", "sleep 60".to_owned(), doctor, "did not answer within 45 s"),
        ("no recording, live", board("exit 0"), top, "ended before it sent"),
        ("no stream, live", board("echo nonsense; exit 0"), top, "ended before it sent"),
        ("no recording", board("exit 0"), record, "the recorder ended before it sent anything"),
    ];
    for (what, script, argv, says) in cases {
        std::fs::write(&ssh, format!("#!/bin/sh\nfor last; do :; done\n{script}\n")).expect("a script");
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        let began = Instant::now();
        let ran = output(flashscope().env("FLASHSCOPE_CACHE", cache.path()).env("PATH", &path).args(argv));
        let stderr = String::from_utf8_lossy(&ran.stderr);
        println!("{what}: {:.1} s: {stderr}", began.elapsed().as_secs_f64());
        let lines: Vec<&str> = stderr.lines().filter(|line| !line.starts_with('[')).collect();
        assert_eq!((ran.status.code(), lines.len()), (Some(1), 1), "{what}: {stderr}");
        assert!(lines[0].starts_with("flashscope: ") && lines[0].contains(says), "{what}: {stderr}");
        assert!(lines[0].len() < 1000 && !lines[0].contains(['\u{1b}', '\u{202e}', '\0']), "{what}: {stderr:?}");
        assert!(ran.stdout.is_empty() && began.elapsed() < Duration::from_secs(60), "{what}: {:?}", began.elapsed());
    }
    assert!(!dir.path().join("t.dat").exists());
}
