//! Exports in the tools that they are for: DuckDB and pandas run docs/how-to/query-a-trace.md, Perfetto reads its own format.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use flashscope_tests::{TempDir, flashscope, output, skip, stdout, top};
use flashscope_trace::{EventKind, Session, Trace, dat, export};
use serde_json::{Value, json};

/// A python with these packages, in the build directory; why not, where they cannot be had.
fn python() -> Result<PathBuf, String> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let make = || {
        let venv = top().join("target/python-exports");
        let python = venv.join("bin/python");
        let whole = venv.join("whole");
        if whole.is_file() {
            return Ok(python);
        }
        let run = |command: &mut Command| match command.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(stderr.lines().last().unwrap_or("it failed").to_owned())
            }
            Err(error) => Err(error.to_string()),
        };
        std::fs::remove_dir_all(&venv).ok();
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv)).map_err(|e| format!("python3 -m venv: {e}"))?;
        let packages = ["duckdb", "pandas", "pyarrow", "perfetto", "protobuf"];
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(packages))
        .map_err(|e| format!("PyPI: {e}"))?;
        std::fs::write(whole, "").map_err(|e| e.to_string())?;
        Ok(python)
    };
    PYTHON.get_or_init(make).clone()
}

/// Runs a python program in a directory; what it printed, which is JSON.
fn run(python: &Path, program: &str, dir: &Path) -> Value {
    let printed = stdout(Command::new(python).args(["-c", program]).current_dir(dir));
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

fn recording(index: usize) -> Trace {
    let session = Session::open(&top().join("crates/trace/tests/data/stream/armv7-6.1.port")).expect("a golden stream");
    session.recording(index).expect("its recording")
}

/// The fenced blocks of docs/how-to/query-a-trace.md in one language, by their first line (a comment that names them).
fn recipes(language: &str) -> Vec<(String, String)> {
    let text =
        std::fs::read_to_string(top().join("docs/how-to/query-a-trace.md")).expect("docs/how-to/query-a-trace.md");
    let fence = format!("```{language}\n");
    let blocks = text.split(&fence).skip(1).map(|rest| rest.split("```").next().expect("a block ends"));
    blocks
        .map(|block| {
            let name = block.lines().next().unwrap_or_default().trim_start_matches(['-', '#', ' ']);
            (name.to_owned(), block.to_owned())
        })
        .collect()
}

/// trace.dat, and what docs/how-to/query-a-trace.md makes of it with the command.
fn tables(trace: &Trace, dir: &Path) {
    dat::write(trace, &dir.join("trace.dat")).expect("a trace.dat");
    let (_, commands) = recipes("sh").into_iter().next().expect("the commands");
    let mut formats = Vec::new();
    for line in commands.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], "flashscope", "{line}");
        let ran = output(flashscope().args(&words[1..]).current_dir(dir));
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
        formats.push(words[4]);
    }
    assert_eq!(formats, ["parquet", "csv", "json"]);
}

/// What the recipes should answer, from the trace itself.
struct Want {
    by_process: Value,
    durations: BTreeMap<&'static str, Vec<u64>>,
    blocks: BTreeMap<u64, [u64; 3]>,
    by_phase: Value,
    by_event: BTreeMap<(String, String), u64>,
    execs: BTreeMap<String, u64>,
}

fn want(trace: &Trace) -> Want {
    let mut by_process = BTreeMap::<(String, &str), u64>::new();
    let mut durations = BTreeMap::<_, Vec<u64>>::new();
    let mut blocks = BTreeMap::<u64, [u64; 3]>::new();
    let mut by_phase = BTreeMap::<(String, &str), u64>::new();
    trace
        .for_each(&mut |event| match &event.kind {
            EventKind::Flash(access) => {
                let comm = trace.comm(event.tid, event.time).expect("a name").to_owned();
                *by_process.entry((comm, access.op.name())).or_default() += 1;
                blocks.entry(access.page / 64).or_default()[access.op as usize] += 1;
                for phase in trace.phases() {
                    if (phase.begin_ns..=phase.end_ns.expect("an end")).contains(&event.time.0) {
                        *by_phase.entry((phase.name.clone(), access.op.name())).or_default() += 1;
                    }
                }
            }
            EventKind::FlashDone { op, duration_ns } => durations.entry(op.name()).or_default().push(*duration_ns),
            _ => {}
        })
        .expect("a pass");
    let (mut by_event, mut execs) = (BTreeMap::<_, u64>::new(), BTreeMap::<_, u64>::new());
    trace
        .for_each_record(&mut |record| {
            *by_event.entry((record.schema.system.clone(), record.schema.name.clone())).or_default() += 1;
            if record.schema.name == "sched_process_exec" {
                let Some(flashscope_trace::Value::Text(file)) = record.get("filename") else { panic!("a file") };
                *execs.entry(String::from_utf8_lossy(file).into_owned()).or_default() += 1;
            }
        })
        .expect("a pass");
    let mut rows: Vec<_> = by_process.into_iter().collect();
    rows.sort_by_key(|((comm, op), n)| (std::cmp::Reverse(*n), comm.clone(), *op));
    durations.values_mut().for_each(|all| all.sort_unstable());
    Want {
        by_process: rows.into_iter().map(|((comm, op), n)| json!([comm, op, n])).collect(),
        durations,
        blocks,
        by_phase: by_phase.into_iter().map(|((phase, op), n)| json!([phase, op, n])).collect(),
        by_event,
        execs,
    }
}

#[test]
fn the_recipes_for_duckdb_and_pandas_give_flashscope_s_own_answers() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skip(&why),
    };
    for index in [0, 1] {
        let dir = TempDir::new(&format!("recipes-{index}"));
        let trace = recording(index);
        tables(&trace, dir.path());
        let want = want(&trace);
        let duckdb = |sql: &str| {
            let program = format!("import duckdb, json\nprint(json.dumps(duckdb.sql({}).fetchall()))", json!(sql));
            run(&python, &program, dir.path())
        };
        let sql = recipes("sql");
        assert_eq!(sql.len(), 8);
        for (name, code) in &sql {
            let rows = duckdb(code);
            println!("recording {index}, {name}: {rows}");
            match name.as_str() {
                "operations by process" | "csv" => assert_eq!(rows, want.by_process, "{name}"),
                "durations" => {
                    let all: Value = want
                        .durations
                        .iter()
                        .map(|(op, all)| {
                            let rank = |q: f64| all[((all.len() as f64 * q).ceil() as usize).max(1) - 1];
                            json!([op, all.len(), all[0], rank(0.5), rank(0.99), all.iter().sum::<u64>()])
                        })
                        .collect();
                    assert_eq!(rows, all);
                }
                "blocks" => {
                    let all: BTreeMap<u64, [u64; 3]> = rows
                        .as_array()
                        .expect("rows")
                        .iter()
                        .map(|row| {
                            let n = |at: usize| row[at].as_u64().expect("a number");
                            (n(1), [n(2), n(3), n(4)])
                        })
                        .collect();
                    assert_eq!(all, want.blocks);
                }
                "phases" => assert_eq!(rows, want.by_phase),
                "fields" => {
                    let all: Value = want.execs.iter().map(|(f, n)| json!(["sched_process_exec", f, n])).collect();
                    assert_eq!(rows, all);
                    assert!(!want.execs.is_empty());
                }
                "losses" => assert_eq!(rows, json!([["{}"]]), "the golden streams lack nothing"),
                "json" => {
                    let all: BTreeMap<(String, String), u64> = rows
                        .as_array()
                        .expect("rows")
                        .iter()
                        .map(|row| {
                            let text = |at: usize| row[at].as_str().expect("text").to_owned();
                            ((text(0), text(1)), row[2].as_u64().expect("a number"))
                        })
                        .collect();
                    assert_eq!(all, want.by_event);
                }
                other => panic!("docs/how-to/query-a-trace.md: {other} has no expected answer here"),
            }
        }
        let recipes = recipes("python");
        assert_eq!(recipes.len(), 3);
        for (name, code) in recipes {
            let program = format!("{code}\nprint(result.to_json(orient='values'))");
            let mut rows = run(&python, &program, dir.path());
            println!("recording {index}, pandas {name}: {rows}");
            match name.as_str() {
                "operations by process" | "csv" => {
                    let rows = rows.as_array_mut().expect("rows");
                    rows.sort_by_key(|row| (std::cmp::Reverse(row[2].as_u64()), row.to_string()));
                    assert_eq!(Value::from(rows.clone()), want.by_process);
                }
                "durations" => {
                    for (row, (op, all)) in rows.as_array().expect("rows").iter().zip(&want.durations) {
                        let number = |at: usize| row[at].as_f64().expect("a number");
                        assert_eq!(row[0], *op);
                        let ends = [all.len() as u64, all[0], *all.last().expect("one")].map(|n| n as f64);
                        assert_eq!([number(1), number(2), number(4)], ends);
                        let middle = (all[(all.len() - 1) / 2] + all[all.len() / 2]) as f64 / 2.0;
                        assert_eq!(number(3), middle);
                    }
                    assert_eq!(rows.as_array().map(Vec::len), Some(want.durations.len()));
                }
                other => panic!("docs/how-to/query-a-trace.md: {other} has no expected answer here"),
            }
        }
    }
}

/// The columns are the documented ones, in the order and with the types that other tools see.
#[test]
fn the_parquet_table_has_the_documented_columns() {
    let text = std::fs::read_to_string(top().join("docs/reference/formats.md")).expect("docs/reference/formats.md");
    let section = text.split("## Parquet").nth(1).expect("the section");
    let documented: Vec<(String, String)> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
        })
        .collect();
    let written: Vec<(String, String)> = export::PARQUET_COLUMNS
        .lines()
        .filter(|line| line.starts_with("  "))
        .map(|line| {
            let line = line.trim().trim_end_matches(';');
            let words: Vec<&str> = line.split(' ').collect();
            let kind = match (words[1], words.get(3)) {
                ("binary", _) => "text",
                ("int64", None) => "INT64",
                ("int32", None) => "INT32",
                ("int32", Some(&"(INTEGER(16,false))")) => "UINT16",
                ("int32", Some(&"(INTEGER(32,false))")) => "UINT32",
                other => panic!("{other:?}"),
            };
            let optional = if words[0] == "optional" { "?" } else { "" };
            (words[2].to_owned(), format!("{kind}{optional}"))
        })
        .collect();
    assert_eq!(documented, written);
    assert!(section.contains(&format!("This is version {}.", export::PARQUET_SCHEMA)));
}

/// pandas reads the rows that JSON lines have, from Parquet.
#[test]
fn rows_of_bios_and_requests_are_read_back_from_parquet() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skip(&why),
    };
    let dir = TempDir::new("rows-parquet");
    let trace = top().join("crates/trace/tests/data/blktrace/armv7-6.1/main.blktrace.0");
    for rows in ["bios", "requests"] {
        for format in ["json", "parquet"] {
            let mut export = flashscope();
            export
                .arg("export")
                .arg(&trace)
                .args(["--rows", rows, "--to", format, "-o", format])
                .current_dir(dir.path());
            stdout(&mut export);
        }
        let program = "import json, pyarrow.parquet as p; print(json.dumps(p.read_table('parquet').to_pylist()))";
        let json = std::fs::read_to_string(dir.path().join("json")).expect("lines");
        let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        assert!(lines.len() > 100, "{}", lines.len());
        assert_eq!(run(&python, program, dir.path()), Value::Array(lines), "{rows}");
    }
}

fn perfetto(trace: &Trace, dir: &Path) -> export::PerfettoWritten {
    let mut file = std::fs::File::create(dir.join("trace.pftrace")).expect("a file");
    export::perfetto(trace, &mut file).expect("an export")
}

/// Perfetto's own definitions decode what was written, and know every field of it. (tests/perfetto.rs asks its trace processor.)
#[test]
fn perfetto_s_own_definitions_decode_the_export() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skip(&why),
    };
    let decode = "
import json
from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
trace = pb.Trace()
trace.ParseFromString(open('trace.pftrace', 'rb').read())
unknown = 0
def count(message):
    global unknown
    unknown += len(unknown_fields.UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in (value if hasattr(value, 'append') or hasattr(value, 'add') else [value]):
                count(inner)
count(trace)
kinds, threads, counters, flash = {}, {}, {}, []
for packet in trace.packet:
    if packet.HasField('track_descriptor'):
        track = packet.track_descriptor
        if track.HasField('thread'): threads[track.thread.tid] = track.thread.thread_name
        if track.HasField('counter'): counters[track.uuid] = track.name
    if packet.HasField('track_event'):
        event = packet.track_event
        name = pb.TrackEvent.Type.Name(event.type)
        kinds[name] = kinds.get(name, 0) + 1
        if list(event.categories) == ['flash']:
            page = [a.uint_value for a in event.debug_annotations if a.name == 'page']
            flash.append([packet.timestamp, event.name, page[0]])
clock = [p.clock_snapshot.primary_trace_clock for p in trace.packet if p.HasField('clock_snapshot')]
print(json.dumps({'unknown': unknown, 'kinds': kinds, 'threads': threads, 'counters': sorted(counters.values()),
                  'flash': flash, 'monotonic': clock == [pb.BUILTIN_CLOCK_MONOTONIC]}))
";
    for index in [0, 1] {
        let dir = TempDir::new(&format!("perfetto-{index}"));
        let trace = recording(index);
        let written = perfetto(&trace, dir.path());
        let read = run(&python, decode, dir.path());
        assert_eq!(read["unknown"], 0);
        assert_eq!(read["monotonic"], true);
        assert_eq!(read["kinds"]["TYPE_COUNTER"], written.counts);
        assert_eq!(read["kinds"]["TYPE_SLICE_BEGIN"], written.slices);
        assert_eq!(read["kinds"]["TYPE_SLICE_END"], written.slices);
        assert_eq!(read["kinds"]["TYPE_INSTANT"].as_u64().unwrap_or(0), written.instants);
        assert_eq!(read["threads"]["1"], "init");
        let mut flash = Vec::new();
        trace
            .for_each(&mut |event| {
                if let EventKind::Flash(access) = &event.kind {
                    flash.push(json!([event.time.0, access.op.name(), access.page]));
                }
            })
            .expect("a pass");
        assert_eq!(read["flash"], Value::from(flash));
        println!("recording {index}: {written:?}, counters {}", read["counters"]);
    }
}
