//! `flashscope schema`: every JSON output is what its schema says, and nothing else. The validator is not ours.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use flashscope_tests::{TempDir, cannot_record, flashscope, is_root, output, skip, stdout, top, valid};
use serde_json::{Value, json};

/// Inputs of the repository that a command may read, of every format.
fn traces() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for below in ["tests/cases", "crates/trace/tests/data"] {
        files(&top().join(below), &mut found);
    }
    found.sort();
    let is_trace = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("input") && !name.ends_with(".blktrace.1")
            || [".dat", ".pftrace", ".log", ".blktrace.0"].iter().any(|ending| name.ends_with(ending))
    };
    found.retain(is_trace);
    assert!(found.len() > 60, "{found:?}");
    found
}

fn files(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).expect("a directory").flatten() {
        if entry.path().is_dir() { files(&entry.path(), found) } else { found.push(entry.path()) }
    }
}

/// What a command prints; `None` where it has no result.
fn printed(args: &[&str], trace: &Path) -> Option<Value> {
    let ran = output(flashscope().args(args).arg("--json").arg(trace));
    let has = matches!(ran.status.code(), Some(0 | 3));
    assert!(has || ran.stdout.is_empty(), "{args:?} {}: a failure prints a result", trace.display());
    has.then(|| serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{args:?} {}: {e}", trace.display())))
}

/// What every command says of one trace, by the name of its schema.
fn of_trace(trace: &Path) -> Vec<(&'static str, Value)> {
    let mut found = Vec::new();
    if let Some(report) = printed(&["report"], trace) {
        if let Some(number) = report["calls"]["slowest"][0]["number"].as_u64() {
            let call = printed(&["report", "--call", &number.to_string()], trace).expect("a call that is listed");
            found.push(("report-call", call));
        }
        found.push((if report["block"].is_object() { "report-block" } else { "report-flash" }, report));
    }
    for (args, name) in [
        (&["report", "--by", "layer"][..], "report-layers"),
        (&["report", "--by", "file"], "report-by"),
        (&["report", "--by", "device"], "report-by"),
        (&["report", "--by", "call"], "report-by"),
        (&["advise"], "advise"),
        (&["predict"], "predict"),
    ] {
        found.extend(printed(args, trace).map(|one| (name, one)));
    }
    found
}

#[test]
fn what_is_printed_of_every_trace_is_valid() {
    let mut traces = traces();
    let dir = TempDir::new("schemas-flash");
    // Flash of boards, with phases, and with durations.
    for (board, index) in [("armv7-7.2", "0"), ("armv7-7.2", "1"), ("x86_64-6.1", "1")] {
        let to = dir.path().join(format!("{board}-{index}.dat"));
        let stream = top().join(format!("crates/trace/tests/data/stream/{board}.port"));
        let mut export = flashscope();
        export.args(["export", "-q", "--to", "trace.dat", "--recording", index, "-o"]).arg(&to);
        stdout(export.arg(stream));
        traces.push(to);
    }
    let of = |part: &[PathBuf]| part.iter().flat_map(|trace| of_trace(trace)).collect::<Vec<_>>();
    let (one, other) = traces.split_at(traces.len() / 2);
    let mut documents: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let all = std::thread::scope(|scope| {
        let other = scope.spawn(|| of(other));
        [of(one), other.join().expect("no panic")].concat()
    });
    for (name, document) in all {
        documents.entry(name).or_default().push(document);
    }
    let asked: Vec<(&str, &[Value])> = documents.iter().map(|(name, all)| (*name, &all[..])).collect();
    let wrong: Vec<String> = flashscope_tests::errors(&asked).into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for name in ["report-block", "report-flash", "report-layers", "report-by", "report-call", "advise"] {
        assert!(documents.contains_key(name), "no trace has a {name}: {:?}", documents.keys());
    }
}

#[test]
fn what_commands_print_without_a_trace_is_valid() {
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let doctor = output(flashscope().args(["doctor", "--json"]));
    assert_eq!(doctor.status.success(), cannot_record().is_none(), "its status says whether anything can be recorded");
    valid("doctor", &parse(std::str::from_utf8(&doctor.stdout).expect("UTF-8")));
    valid("board-list", &parse(&stdout(flashscope().args(["board", "list", "--json"]))));
    let [a, b] = ["emmc-fsync-spike", "io-errors"].map(|case| top().join("tests/cases").join(case));
    valid("diff", &parse(&stdout(flashscope().args(["diff", "--json"]).args([a.join("input"), b.join("input")]))));
    if !is_root() {
        return skip("bench on this host is run as root");
    }
    let dir = TempDir::new("schemas");
    let mut postmark = flashscope();
    postmark.args(["bench", "postmark", "-q", "--json", "--files", "5", "--transactions", "5", "--dir"]);
    valid("bench-postmark", &parse(&stdout(postmark.arg(dir.path()))));
    let mut read = flashscope();
    read.args(["bench", "read", "-q", "--json", "--create", "--file-size", "64K", "--count", "4", "--size", "4K"]);
    valid("bench-read", &parse(&stdout(read.args(["--readahead", "keep", "--file"]).arg(dir.path().join("file")))));
}

/// Of a schema, each object that names members refuses others.
#[test]
fn a_new_member_cannot_be_forgotten() {
    let names = stdout(flashscope().arg("schema"));
    let names: Vec<&str> = names.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() >= 19, "{names:?}");
    let reference = std::fs::read_to_string(top().join("docs/reference/json.md")).expect("the reference");
    for name in &names {
        assert!(reference.contains(&format!("`{name}`")), "docs/reference/json.md has no {name}");
        let text = stdout(flashscope().args(["schema", name]));
        let document: Value = serde_json::from_str(&text).expect("JSON");
        closed(name, &document, true);
    }
    let trace = top().join("tests/cases/emmc-fsync-spike/input");
    let report = printed(&["report"], &trace).expect("a report");
    let mut others = Vec::new();
    for at in ["", "/block", "/findings/0", "/block/stages", "/losses/0"] {
        let mut more = report.clone();
        let object = more.pointer_mut(at).unwrap_or_else(|| panic!("{at} is missing"));
        object.as_object_mut().expect("an object").insert("new".to_owned(), json!(1));
        others.push(more);
    }
    let mut less = report.clone();
    less.as_object_mut().expect("an object").remove("findings");
    let mut other_version = report;
    other_version["schema"] = json!(99);
    others.extend([less, other_version]);
    for (error, other) in flashscope_tests::errors(&[("report-block", &others)]).into_iter().zip(&others) {
        assert!(error.is_some(), "this passes: {other:#}");
    }
    let unknown = output(flashscope().args(["schema", "nothing"]));
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no such schema; the schemas are report-block"));
}

fn closed(name: &str, schema: &Value, is_whole: bool) {
    match schema {
        Value::Object(object) => {
            let shut = ["additionalProperties", "unevaluatedProperties"].iter().any(|key| object.contains_key(*key));
            assert!(!is_whole || shut || !object.contains_key("properties"), "{name} has an open object: {schema:#}");
            for (key, value) in object {
                // The parts of an object that is closed as a whole.
                let is_whole = !(shut && ["oneOf", "anyOf", "allOf"].contains(&key.as_str()));
                if key != "properties" {
                    closed(name, value, is_whole);
                    continue;
                }
                value.as_object().expect("members").values().for_each(|one| closed(name, one, true));
            }
        }
        Value::Array(all) => all.iter().for_each(|one| closed(name, one, is_whole)),
        _ => {}
    }
}

/// Columns of a terminal that a line takes: combining marks take none, wide characters of the fixtures do not occur.
fn columns(line: &str) -> usize {
    line.chars().filter(|c| !('\u{300}'..='\u{36f}').contains(c)).count()
}

/// Nothing is wider than the terminal, but what is to be typed: a command stays in one line.
#[test]
fn no_line_is_wider_than_the_terminal() {
    let traces: Vec<PathBuf> =
        traces().into_iter().filter(|path| !path.to_string_lossy().contains("graph.dat")).collect();
    let ways: [&[&str]; 3] = [&["report"], &["report", "--by", "layer"], &["advise"]];
    let check = |path: &PathBuf| {
        let mut lines = 0;
        for args in ways {
            let said = |width: &str| {
                let ran = output(flashscope().env("COLUMNS", width).args(args).arg(path));
                String::from_utf8(ran.stdout).expect("UTF-8")
            };
            for (width, text) in [(80, said("80")), (200, said("200"))] {
                for line in text.lines().filter(|line| args[0] != "advise" || !line.starts_with("     ")) {
                    assert!(columns(line) <= width, "{args:?} {}: {} columns: {line}", path.display(), columns(line));
                    lines += 1;
                }
            }
        }
        lines
    };
    let (one, other) = traces.split_at(traces.len() / 2);
    let lines: usize = std::thread::scope(|scope| {
        let other = scope.spawn(|| other.iter().map(check).sum::<usize>());
        one.iter().map(check).sum::<usize>() + other.join().expect("no line is too wide")
    });
    assert!(lines > 5000, "{lines} lines");
}

/// Each line of help that pipes JSON into jq prints something.
#[test]
fn examples_with_jq_work() {
    if Command::new("jq").arg("--version").output().is_err() {
        return skip("jq is not installed: the examples of the help were not run");
    }
    let dir = TempDir::new("jq");
    let case = |name: &str| top().join("tests/cases").join(name).join("input");
    for (name, file) in [
        ("trace.dat", case("emmc-fsync-spike")),
        ("before.dat", case("emmc-fsync-spike")),
        ("after.dat", case("io-errors")),
    ] {
        std::fs::copy(file, dir.path().join(name)).expect("copied");
    }
    let commands = std::fs::read_to_string(top().join("docs/reference/command-line.md")).expect("the reference");
    let (mut run, mut left) = (0, Vec::new());
    for line in commands.lines().filter(|line| line.contains("| jq")) {
        let line = line.trim();
        // A study takes a board, and the live view does not end: their JSON is held in study.rs and top.rs.
        if line.starts_with("flashscope study") || line.starts_with("flashscope top") {
            left.push(line);
            continue;
        }
        let line = line.split("  ").next().unwrap_or(line);
        let program = flashscope().get_program().to_owned();
        let script = line.replacen("flashscope", "\"$0\"", 1);
        let ran = output(Command::new("sh").current_dir(dir.path()).args(["-c", &script]).arg(program));
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(!said.trim().is_empty() && said.trim() != "null", "{line} prints {said:?}");
        run += 1;
    }
    assert!(run >= 2 && left.len() == 2, "{run} examples were run, and these not: {left:?}");
}
