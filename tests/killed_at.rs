//! SIGKILL before each system call by which a command makes, names and removes its files: strace injects it, one call after the
//! other. Random moments (`kills.rs`) seldom hit the microseconds between two of them.

use std::collections::BTreeSet;

use flashscope_tests::{Place, behind, output, skip, text};

/// The calls; `rename`, `unlink` and `mkdir` are of paths of the cache.
const CALLS: [&str; 8] = ["flock", "linkat", "renameat", "unlinkat", "fsync", "write", "rename", "mkdir"];

fn names(place: &Place) -> BTreeSet<String> {
    let entries = std::fs::read_dir(place.dir.path()).expect("a directory");
    let names = entries.map(|entry| entry.expect("a name").file_name().to_string_lossy().into_owned());
    names.filter(|name| !["cache", "strace", "t", "out"].contains(&name.as_str())).collect()
}

/// Runs the command until it is killed before call number `n`. `false`: it makes fewer.
fn is_killed(place: &Place, argv: &[&str], call: &str, n: u32) -> bool {
    let (log, inject) = (text(&place.at("strace")), format!("inject={call}:signal=KILL:when={n}"));
    let strace = ["strace", "-f", "-qq", "-o", &log, "-e", &format!("trace={call}"), "-e", &inject];
    output(&mut behind(&strace, &place.command(argv)));
    std::fs::read_to_string(log).expect("strace's log").contains("killed by SIGKILL")
}

#[test]
fn a_command_that_is_killed_at_a_call_leaves_its_output_whole_or_as_it_was() {
    let place = Place::new("killed-at");
    let log = text(&place.at("strace"));
    if !std::process::Command::new("strace").args(["-o", &log, "true"]).status().is_ok_and(|status| status.success()) {
        return skip("needs strace, and the right to trace a process");
    }
    let trace = text(&crate::outputs::trace(&place, "t", "cat"));
    let out = text(&place.at("out"));
    for argv in [&["export", &trace, "--to", "csv", "-o", &out][..], &["report", &trace, "--html", &out]] {
        assert!(place.run(argv).status.success());
        let whole = std::fs::read(&out).expect("the output");
        let mut kills = 0;
        for (call, earlier) in CALLS.iter().flat_map(|call| [(call, false), (call, true)]) {
            for n in 1..100 {
                std::fs::remove_dir_all(place.at("cache")).ok();
                std::fs::remove_file(&out).ok();
                if earlier {
                    std::fs::write(&out, "earlier").expect("a file");
                }
                if !is_killed(&place, argv, call, n) {
                    break;
                }
                kills += 1;
                let at = format!("{argv:?}, an earlier file: {earlier}, before {call} number {n}");
                let found = std::fs::read(&out).ok();
                let as_it_was = found.as_deref() == earlier.then_some(&b"earlier"[..]);
                assert!(as_it_was || found.as_deref() == Some(&whole), "{at}: neither whole nor as it was");
                // A new name is given in one call; in place of an earlier file, in two.
                assert!(names(&place).is_empty() || earlier && call == &"renameat", "{at}: {:?}", names(&place));
                place.run(&["schema"]);
                assert_eq!(names(&place), BTreeSet::new(), "{at}: after the next command");
            }
        }
        println!("{} is killed before {kills} calls", argv[0]);
        assert!(kills > 20, "{kills}");
    }
}
