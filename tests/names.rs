//! Names in a report equal what a workload of 200 processes logged of itself (`names/workload.c`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use flashscope_tests::{TempDir, flashscope, output, stdout, top};
use flashscope_trace::Trace;
use serde_json::Value;

const PROCESSES: &str = "200";

/// Bytes written, by path and then by who wrote them.
type Written = BTreeMap<String, BTreeMap<String, u64>>;

fn written(trace: &Path, by: &str) -> Written {
    let report = stdout(flashscope().arg("report").arg(trace).args(["--by", by, "--json"]));
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let mut all = Written::new();
    for file in report["names"]["files"].as_array().expect("files") {
        if let (Some(path), Some(who)) = (file["path"].as_str(), file["who"].as_str()) {
            let bytes = file["written_bytes"].as_u64().expect("bytes");
            *all.entry(path.to_owned()).or_default().entry(who.to_owned()).or_default() += bytes;
        }
    }
    all
}

/// Whether the recorder read this process's control group and namespaces while it lived: on a busy machine it may come too late, and
/// then cannot tell the application.
fn was_read(trace: &Trace, one: &Value) -> bool {
    let number = format!(" {} ", one["number"]);
    let rows = trace.facts_json()["names"]["processes"].as_array().expect("processes");
    rows.iter().any(|row| {
        let command = row["command"].as_str().unwrap_or_default();
        let worker = command.split_once("--worker ").is_some_and(|(_, rest)| rest.contains(&number));
        worker && row["pid_ns"].is_u64() && (one["unit"] == false || row["cgroup"].is_string())
    })
}

/// What the workload logged of one file. Whether its first name is shown, where it lost it.
fn check(one: &Value, [thread, process, app]: &[Written; 3], was_read: bool) -> Option<bool> {
    let text = |key: &str| one[key].as_str().expect("text");
    let (path, later, bytes) = (text("path"), text("later"), one["bytes"].as_u64().expect("bytes"));
    let paths = match text("state") {
        "renamed" => vec![format!("{later} (was {path})"), later.to_owned()],
        "deleted" => vec![format!("{path} (deleted)")],
        "bound" => vec![path.to_owned(), later.to_owned()],
        _ => vec![path.to_owned()],
    };
    let loses_its_name = matches!(text("state"), "renamed" | "deleted");
    let Some(shown) = paths.iter().find(|path| thread.contains_key(*path)) else {
        assert!(text("state") == "deleted", "no path of {one}");
        return Some(false);
    };
    let of = |table: &Written, who: &str| table[shown].get(who).copied();
    assert_eq!(of(thread, text("thread")), Some(bytes), "{one}: {:?}", thread[shown]);
    assert_eq!(of(process, text("process")), Some(bytes), "{one}: {:?}", process[shown]);
    let wanted = match (one["unit"] == true, text("space")) {
        (true, _) => format!("unit-{}.service", one["number"]),
        (false, "") => return loses_its_name.then(|| shown.contains(path)),
        (false, space) => format!("container {space}"),
    };
    if was_read {
        assert_eq!(of(app, &wanted), Some(bytes), "{one}: {:?}", app[shown]);
    }
    loses_its_name.then(|| shown.contains(path))
}

#[test]
fn names_are_what_the_workload_logged() {
    let Some(dir) = TempDir::for_loops("names") else { return };
    let (image, mounted, program) = (dir.path().join("fs.img"), dir.path().join("mnt"), dir.path().join("workload"));
    stdout(Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(top().join("tests/names/workload.c")));
    std::fs::create_dir(&mounted).expect("a directory");
    // The test's own /proc: other recorders on this machine look at theirs, and the workload does not see it.
    let script = "set -e
        mount -t proc proc /proc
        truncate -s 256M \"$1\"
        mkfs.ext4 -q -F \"$1\"
        mount -o loop \"$1\" \"$2\"
        groups=-
        if [ -d /sys/fs/cgroup/systemd ]; then groups=/sys/fs/cgroup/systemd
        elif [ -f /sys/fs/cgroup/cgroup.procs ]; then groups=/sys/fs/cgroup; fi
        [ $groups = - ] || { groups=$groups/names-test-$$; mkdir $groups; }
        \"$3\" record -q --device \"$(basename \"$(findmnt -no SOURCE \"$2\")\")\" -o \"$4\" -- \"$5\" \"$2\" \"$6\" $groups
        umount -R \"$2\"
        [ $groups = - ] || rmdir $groups/*/ $groups";
    let trace = dir.path().join("t.dat");
    let command = flashscope();
    let mut run = Command::new("unshare");
    run.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
    run.args([image.as_os_str(), mounted.as_os_str(), command.get_program(), trace.as_os_str(), program.as_os_str()]);
    run.arg(PROCESSES).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = output(&mut run);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let log = String::from_utf8(ran.stdout).expect("UTF-8");
    let log: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(log.len().to_string(), PROCESSES);
    let tables = ["thread", "process", "app"].map(|by| written(&trace, by));
    let trace = Trace::open(&trace).expect("a trace");
    let read = log.iter().filter(|one| was_read(&trace, one)).count();
    let first: Vec<bool> = log.iter().filter_map(|one| check(one, &tables, was_read(&trace, one))).collect();
    let shown = first.iter().filter(|shown| **shown).count();
    println!("{read} of {PROCESSES} processes were read; {shown} of {} files had their first name", first.len());
    // On a busy machine the recorder comes too late for some.
    assert!(shown * 2 > first.len(), "{shown} of {}", first.len());
}
