//! `report --perfetto`: writes the trace for Perfetto with the report's results: findings, calls, and bios by owner and device.

use std::cell::{Cell as Current, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::Path;
use std::rc::Rc;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::block::{BlockSetup, IoRows, RowsOf};
use flashscope_analysis::calls::{Calls, SlowCall};
use flashscope_analysis::findings::Finding;
use flashscope_analysis::name_call;
use flashscope_report::findings_view;
use flashscope_trace::export::{Cell, PerfettoNote as Note, PerfettoSlice, PerfettoTracks, perfetto_with};
use flashscope_trace::{BlockAction, EventKind, TaskId, Trace};

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::output;

/// Largest number of flows from calls to their bios: bios that are in flight at one time.
const MOST_FLOWS: usize = 1 << 16;
/// Largest number of bios with flows from one call.
const MOST_OF_A_CALL: usize = 256;
/// Largest number of windows of the byte counters, for all devices together.
const MOST_WINDOWS: usize = 1 << 18;

/// Writes the file. `findings`: those of the whole report.
pub fn write(path: &Path, inputs: &Inputs, args: &ReportArgs, findings: &[Finding]) -> Result<(), Failure> {
    let Some(trace) = inputs.only() else {
        return Err(Failure::usage("--perfetto: takes one trace"));
    };
    let ids = output::inputs(&args.traces);
    let mut file = output::Noted::create(path, &ids, "--perfetto")?;
    perfetto_with(trace, &mut file.file, &mut |tracks| {
        let (begin, end) = add_io(tracks, inputs, trace)?;
        for (number, finding) in findings.iter().enumerate() {
            add_finding(tracks, number + 1, finding, begin, end);
        }
        Ok(())
    })
    .map_err(|error| output::not_exported(path, error, "--perfetto"))?;
    file.publish().map(drop)
}

/// A finding concerns the whole trace: a slice over the whole trace.
fn add_finding(tracks: &mut PerfettoTracks<'_, '_>, number: usize, finding: &Finding, begin_ns: u64, end_ns: u64) {
    let evidence = findings_view::sources(finding).join("; ");
    let rule =
        serde_json::to_value(finding.rule).ok().and_then(|rule| rule.as_str().map(str::to_owned)).unwrap_or_default();
    let weight = format!("{:?}", finding.weight).to_lowercase();
    let advice: Vec<String> = finding
        .advice
        .iter()
        .map(|remedy| {
            let steps: Vec<String> = remedy.steps.iter().map(findings_view::step).collect();
            format!("{} {} Gain: {}. Risk: {}", remedy.what, steps.join("; "), findings_view::gain(remedy), remedy.risk)
        })
        .collect();
    let (advice, uncertain) = (advice.join("\n"), finding.uncertain.clone().unwrap_or_default());
    let mut notes = vec![
        Note::Number("number", number as u64),
        Note::Text("rule", &rule),
        Note::Text("weight", &weight),
        Note::Text("cause", &finding.cause),
        Note::Text("evidence", &evidence),
    ];
    let more = [("advice", &advice), ("uncertain", &uncertain)];
    notes.extend(more.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| Note::Text(name, text)));
    let slice = PerfettoSlice {
        begin_ns,
        end_ns,
        category: "finding",
        name: &finding.what,
        notes: &notes,
        flows: &[],
        flows_end: &[],
    };
    tracks.slice(&["findings"], &slice);
}

/// Id of the flow to a bio.
type Flow = u64;

fn flow(device: &str, sector: u64, queued_ns: u64) -> Flow {
    use std::hash::{Hash as _, Hasher as _};
    let mut hasher = std::hash::DefaultHasher::new();
    (device, sector, queued_ns).hash(&mut hasher);
    hasher.finish()
}

/// Calls on the tracks of their threads, bios on tracks by owner and device, flows between them, and bytes per second.
fn add_io(
    tracks: &mut PerfettoTracks<'_, '_>,
    inputs: &Inputs,
    trace: &Trace,
) -> Result<(u64, u64), flashscope_trace::Error> {
    let ended: Rc<RefCell<VecDeque<SlowCall>>> = Rc::default();
    let sink = Rc::clone(&ended);
    let (files, _) = inputs.names();
    let mut calls = Calls::new(|tid, time| inputs.thread(0, tid, time))
        .files(&files)
        .of_device(inputs.is_of_device())
        .each(Box::new(move |call| sink.borrow_mut().push_back(call)));
    let setup = BlockSetup::of([trace].into_iter());
    let mut rows = IoRows::new(RowsOf::Bios, |tid, time| inputs.comm(0, tid, time), setup);
    let mut queued: HashMap<TaskId, VecDeque<(u64, Flow)>> = HashMap::new();
    let (first, last) = (Current::new(u64::MAX), Current::new(0));
    let mut bios = Bios::default();
    trace.for_each(&mut |event| {
        let time = event.time.0;
        first.set(first.get().min(time));
        last.set(last.get().max(time));
        if let EventKind::Block(block) = &event.kind
            && block.action == BlockAction::Queue
        {
            let list = queued.entry(event.tid).or_default();
            list.push_back((time, flow(&block.device.to_string(), block.sector, time)));
            if list.len() > MOST_OF_A_CALL {
                list.pop_front();
            }
        }
        calls.event(event);
        while let Some(mut call) = ended.borrow_mut().pop_front() {
            name_call(&mut call, &files);
            let own: Vec<Flow> = queued
                .remove(&call.tid)
                .into_iter()
                .flatten()
                .filter(|&(time, _)| time >= call.begin_ns)
                .map(|(_, id)| id)
                .collect();
            add_call(tracks, &call, &own);
            bios.of_calls(&own);
        }
        // A bio may end before the call that queued it: it waits for that call.
        rows.event(event, &mut |row| row.cells(&mut |cells: &[Cell<'_>]| bios.ended(cells)));
        bios.write_old(tracks, time);
    })?;
    rows.finish(&mut |row| row.cells(&mut |cells: &[Cell<'_>]| bios.ended(cells)));
    calls.finish();
    bios.write_old(tracks, u64::MAX);
    bios.write_counters(tracks);
    Ok((first.get().min(last.get()), last.get()))
}

fn add_call(tracks: &mut PerfettoTracks<'_, '_>, call: &SlowCall, flows: &[Flow]) {
    let mut notes = vec![Note::Number("number", call.number), Note::Number("bytes", call.bytes)];
    notes.extend(call.file.as_deref().map(|file| Note::Text("file", file)));
    notes.extend(call.path.as_deref().map(|path| Note::Text("path", path)));
    let end_ns = call.begin_ns + call.duration_ns;
    let (begin_ns, name) = (call.begin_ns, &*call.call);
    let slice = PerfettoSlice { begin_ns, end_ns, category: "call", name, notes: &notes, flows, flows_end: &[] };
    tracks.of_thread(call.tid, &slice);
}

/// A completed bio.
struct Ended {
    device: String,
    owner: String,
    flags: String,
    sector: u64,
    bytes: u64,
    begin_ns: u64,
    end_ns: u64,
    issued_ns: Option<u64>,
    error: String,
}

/// Completed bios that are not yet written, and their sums.
#[derive(Default)]
struct Bios {
    waiting: VecDeque<Ended>,
    flows: HashSet<Flow>,
    /// Bytes read and written by device and window.
    windows: BTreeMap<(String, u64), [u64; 2]>,
    /// log2 of a window's width in ns.
    shift: u32,
}

/// How long a completed bio waits for the call that queued it: a longer call has no flow to it.
const FLOW_WAIT_NS: u64 = 1_000_000_000;

impl Bios {
    fn of_calls(&mut self, flows: &[Flow]) {
        if self.flows.len() < MOST_FLOWS {
            self.flows.extend(flows);
        }
    }

    fn ended(&mut self, cells: &[Cell<'_>]) {
        let (number, text) = crate::call::by_name(cells);
        let (Some(begin_ns), Some(end_ns)) = (number("queued_ns"), number("completed_ns")) else { return };
        let owner = [text("owner"), text("carrier")].into_iter().find(|name| !name.is_empty());
        let bio = Ended {
            device: text("device"),
            owner: owner.unwrap_or_else(|| "unknown".to_owned()),
            flags: text("flags"),
            sector: number("sector").unwrap_or(0),
            bytes: number("bytes").unwrap_or(0),
            begin_ns,
            end_ns,
            issued_ns: number("issued_ns"),
            error: text("error_name"),
        };
        if matches!(bio.flags.chars().find(|flag| "RWD".contains(*flag)), Some('R' | 'W')) {
            let at = (bio.device.clone(), end_ns >> self.shift.max(20));
            self.windows.entry(at).or_default()[usize::from(bio.flags.contains('W'))] += bio.bytes;
            self.bound();
        }
        self.waiting.push_back(bio);
    }

    /// Doubles the width of windows if there are too many.
    fn bound(&mut self) {
        if self.windows.len() <= MOST_WINDOWS {
            return;
        }
        self.shift = self.shift.max(20) + 1;
        for ((device, at), [read, written]) in std::mem::take(&mut self.windows) {
            let sum = self.windows.entry((device, at >> 1)).or_default();
            sum[0] += read;
            sum[1] += written;
        }
    }

    fn write_old(&mut self, tracks: &mut PerfettoTracks<'_, '_>, now: u64) {
        while let Some(bio) = self.waiting.pop_front() {
            if now.saturating_sub(bio.end_ns) < FLOW_WAIT_NS && self.waiting.len() < MOST_FLOWS {
                self.waiting.push_front(bio);
                return;
            }
            let id = flow(&bio.device, bio.sector, bio.begin_ns);
            let flows: &[Flow] = if self.flows.remove(&id) { &[id] } else { &[] };
            let mut notes = vec![Note::Number("sector", bio.sector), Note::Number("bytes", bio.bytes)];
            notes.extend(bio.issued_ns.map(|issued| Note::Number("q2d_ns", issued.saturating_sub(bio.begin_ns))));
            notes.extend(bio.issued_ns.map(|issued| Note::Number("d2c_ns", bio.end_ns.saturating_sub(issued))));
            notes.extend((!bio.error.is_empty()).then_some(Note::Text("error", &bio.error)));
            let slice = PerfettoSlice {
                begin_ns: bio.begin_ns,
                end_ns: bio.end_ns,
                category: "bio",
                name: &bio.flags,
                notes: &notes,
                flows: &[],
                flows_end: flows,
            };
            tracks.slice(&["I/O by application", &bio.owner, &bio.device], &slice);
        }
    }

    /// Bytes per second at the beginning of each window, and 0 after a window without a successor.
    fn write_counters(&self, tracks: &mut PerfettoTracks<'_, '_>) {
        let shift = self.shift.max(20);
        let per_second = |bytes: u64| ((u128::from(bytes) * 1_000_000_000) >> shift).try_into().unwrap_or(u64::MAX);
        for ((device, at), sums) in &self.windows {
            for (bytes, what) in sums.iter().zip(["read", "written"]) {
                let name = format!("{device} bytes {what} a second");
                tracks.counter(&name, at << shift, per_second(*bytes));
                if !self.windows.contains_key(&(device.clone(), at + 1)) {
                    tracks.counter(&name, (at + 1) << shift, 0);
                }
            }
        }
    }
}
