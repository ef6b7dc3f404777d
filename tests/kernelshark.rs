//! KernelShark's own library opens every kind of trace.dat that we write, and finds in it what our own export says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use flashscope_tests::{TempDir, flashscope, skip, stdout, top};
use flashscope_trace::{Session, TaskId, TimeNs, Trace, dat};
use serde_json::Value;

/// Where Debian's libkshark-dev puts its headers.
const HEADERS: &str = "/usr/include/kernelshark";

/// Compiles `tests/kernelshark/list.c`; `None` (and a word about it) where the library is not installed.
fn lister(into: &Path) -> Option<PathBuf> {
    for (header, package) in
        [(format!("{HEADERS}/libkshark.h"), "libkshark-dev"), ("/usr/include/json-c/json.h".into(), "libjson-c-dev")]
    {
        if !Path::new(&header).is_file() {
            assert!(std::env::var_os("CI").is_none(), "{header} is missing: `make test` installs {package}");
            skip(&format!("{header} is missing; install it (apt-get install {package}) to ask KernelShark's library"));
            return None;
        }
    }
    let program = into.join("list");
    stdout(
        Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-isystem", HEADERS, "-o"])
            .args([&program, &top().join("tests/kernelshark/list.c")])
            .arg("-lkshark"),
    );
    Some(program)
}

/// An entry: buffer, time, CPU, task's number and name, system/event, numbers by field. A gap's event is `missed_events`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    buffer: String,
    time: u64,
    cpu: u64,
    tid: u64,
    task: String,
    event: String,
    numbers: BTreeMap<String, i64>,
}

/// What KernelShark's library has.
fn theirs(program: &Path, file: &Path) -> Vec<Entry> {
    let printed = stdout(Command::new(program).arg(file));
    let entry = |line: &str| {
        let words: Vec<&str> = line.split('\t').collect();
        let [buffer, time, cpu, tid, task, event] = words[..6] else { panic!("{line:?}") };
        let number = |word: &str| {
            let (name, value) = word.split_once('=').unwrap_or_else(|| panic!("{word:?} in {line:?}"));
            (name.to_owned(), value.parse().unwrap_or_else(|e| panic!("{word:?}: {e}")))
        };
        let parse = |word: &str| word.parse().unwrap_or_else(|e| panic!("{word:?}: {e}"));
        Entry {
            buffer: buffer.to_owned(),
            time: parse(time),
            cpu: parse(cpu),
            tid: parse(tid),
            task: task.to_owned(),
            event: event.to_owned(),
            numbers: words[6..]
                .iter()
                .map(|word| number(word))
                .filter(|(name, _)| !name.starts_with("common_"))
                .collect(),
        }
    };
    printed.lines().map(entry).collect()
}

/// What the command's JSON export of the same file says, in KernelShark's form.
fn ours(file: &Path) -> Vec<Entry> {
    let trace = Trace::open(file).expect("a trace.dat");
    let printed = stdout(flashscope().args(["export", "-q", "--to", "json", "-o", "-"]).arg(file));
    let mut all = Vec::new();
    for line in printed.lines() {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let number = |key: &str| record[key].as_u64().unwrap_or_else(|| panic!("{key} of {line}"));
        let text = |key: &str| record[key].as_str().unwrap_or_else(|| panic!("{key} of {line}")).to_owned();
        let tid = number("tid");
        let fields = record["fields"].as_object().expect("fields");
        let entry = Entry {
            buffer: text("buffer"),
            time: number("time_ns"),
            cpu: number("cpu"),
            tid,
            // KernelShark has one name of a task, the last.
            task: trace.comm(TaskId(tid as u32), TimeNs(u64::MAX)).unwrap_or("<...>").to_owned(),
            event: format!("{}/{}", text("system"), text("event")),
            numbers: fields
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_i64().or(value.as_u64().map(|v| v as i64))?)))
                .collect(),
        };
        let gap = match &record["missed"] {
            Value::Bool(true) => Some(BTreeMap::new()),
            missed if missed.as_u64() != Some(0) && !missed.is_null() => {
                Some(BTreeMap::from([("missed_events".to_owned(), missed.as_i64().expect("a number"))]))
            }
            _ => None,
        };
        if let Some(numbers) = gap {
            // It shows a gap 10 ns before the event behind it.
            all.push(Entry { event: "missed_events".to_owned(), time: entry.time - 10, numbers, ..entry.clone() });
        }
        all.push(entry);
    }
    all
}

/// Each of our numbers is KernelShark's, which does not extend the sign of small ones. It has numbers of texts and arrays too.
fn same_numbers(ours: &Entry, theirs: &Entry) -> bool {
    ours.numbers.iter().all(|(name, ours)| {
        let theirs = theirs.numbers.get(name);
        theirs.is_some_and(|v| v == ours || [8, 16, 32].iter().any(|bits| *ours < 0 && *v == ours & ((1 << bits) - 1)))
    })
}

fn check(program: &Path, file: &Path, what: &str) {
    let (mut ours, mut theirs) = (ours(file), theirs(program, file));
    assert!(theirs.is_sorted_by_key(|entry| entry.time), "{what}: KernelShark's order is that of time");
    // Entries of one time have no order among them.
    ours.sort();
    theirs.sort();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let bare = |entry: &Entry| Entry { numbers: BTreeMap::new(), ..entry.clone() };
        assert_eq!(bare(ours), bare(theirs), "{what}");
        assert!(same_numbers(ours, theirs), "{what}: {ours:?} is {theirs:?}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let numbers: usize = ours.iter().map(|entry| entry.numbers.len()).sum();
    let gaps = theirs.iter().filter(|entry| entry.event == "missed_events").count();
    println!("{what}: {} entries, {numbers} numbers, {gaps} gaps as KernelShark's library has them", theirs.len());
}

fn export(args: &[&str], from: &[PathBuf], to: &Path) {
    stdout(flashscope().args(["export", "-q", "--to", "trace.dat", "-o"]).arg(to).args(args).args(from));
}

#[test]
fn what_we_write_kernelshark_s_library_reads() {
    let dir = TempDir::new("kernelshark");
    let Some(program) = lister(dir.path()) else { return };
    let data = |name: &str| top().join("crates/trace/tests/data").join(name);

    // Recorded on boards by the agent.
    let mut of_a_board = Vec::new();
    for board in ["armv7-5.10", "armv7-7.2", "x86_64-6.1"] {
        for index in ["0", "1"] {
            let file = dir.path().join(format!("{board}-{index}.dat"));
            export(&["--recording", index], &[data(&format!("stream/{board}.port"))], &file);
            check(&program, &file, &format!("{board}, recording {index}"));
            of_a_board.push(file);
        }
    }
    // Recorded by trace-cmd and written again by us: packed files, instances, function graphs, rings that overran.
    let file = dir.path().join("again.dat");
    for name in [
        "armv7-7.2-kinds", "x86_64-6.12-kinds", "armv7-7.2-v7-zlib", "armv7-6.1-v6-graph", "x86_64-7.2-lost",
        "armv7-6.1-lost",
    ] {
        export(&[], &[data(&format!("trace_dat/{name}.dat"))], &file);
        check(&program, &file, name);
    }
    // Two recordings of one boot merged; and with the kernel's events of another.
    export(&["--offset", "armv7-7.2-1.dat=0"], &of_a_board[2..4], &file);
    check(&program, &file, "merged");
    let other = data("trace_dat/armv7-6.1-v6.dat");
    export(&["--offset", "armv7-6.1-v6.dat=1000000000"], &[of_a_board[0].clone(), other], &file);
    check(&program, &file, "merged with another boot");
    // Filtered.
    let trace = Trace::open(&data("trace_dat/armv7-7.2-kinds.dat")).expect("a trace.dat");
    let written = dat::write_filtered(&trace, &file, &|r| r.schema.system == "block").expect("a trace.dat");
    assert!(written.records > 0 && written.left_out > written.records);
    check(&program, &file, "filtered");
    let session = Session::open(&data("stream/armv7-6.1.port")).expect("a stream");
    let trace = session.recording(0).expect("its recording");
    dat::write_filtered(&trace, &file, &|r| r.schema.name == "nand_read").expect("a trace.dat");
    check(&program, &file, "filtered, of a board");
}
