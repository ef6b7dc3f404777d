//! `report --call NUMBER`: one call, its time by layer, and the causes of its delay.

use std::cell::Cell as Current;
use std::rc::Rc;

use flashscope_analysis::block::{BIO_COLUMNS, IoRows, RowsOf};
use flashscope_analysis::calls::{Calls, SlowCall};
use flashscope_analysis::layers::{LayerTime, Layers};
use flashscope_analysis::{Analysis as _, Evidence, NamesFound, PathBio, call_path, name_calls, path_bios};
use flashscope_trace::export::Cell;
use flashscope_trace::{Device, Event, EventKind, FileNames, Trace};

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::study::style;

pub fn run(inputs: &Inputs, args: &ReportArgs, number: u64) -> Result<(), Failure> {
    let (files, devices) = inputs.names();
    let (call, recording, begin_ns) = find(inputs, number, &files)?;
    let bios = path_bios(&call, bios(inputs, &call, recording)?);
    let layers = match inputs.only() {
        Some(trace) => layers(trace, &call, recording, &bios.own)?,
        None => Evidence::unknown("layers are followed in one trace at a time", "give the trace alone"),
    };
    let path = call_path(call, layers, bios);
    let names = NamesFound::of_devices(&devices);
    if args.json {
        out!("{}", flashscope_report::json::named(&path, &names));
    } else {
        out!("{}", flashscope_report::terminal::call(&path, &names, begin_ns, &style()));
    }
    Ok(())
}

/// Counts the recordings in a text: the times of two of them may be the same.
#[derive(Default)]
struct Recordings(u64);

impl Recordings {
    /// The number of the event's recording.
    fn of(&mut self, event: &Event) -> u64 {
        self.0 += u64::from(event.kind == EventKind::Recording);
        self.0
    }
}

/// The call with this number, the number of its recording, and the beginning of the trace.
fn find(inputs: &Inputs, number: u64, files: &FileNames) -> Result<(SlowCall, u64, u64), Failure> {
    let at = Current::new(0);
    let (recording, of_call) = (Rc::new(Current::new(0)), Rc::new(Current::new(0)));
    let (now, found_in) = (Rc::clone(&recording), Rc::clone(&of_call));
    let each = Box::new(move |call: SlowCall| {
        if call.number == number {
            found_in.set(now.get());
        }
    });
    let mut recordings = Recordings::default();
    let mut calls = Calls::new(|tid, time| inputs.thread(at.get(), tid, time))
        .wanted(number)
        .files(files)
        .of_device(inputs.is_of_device())
        .each(each);
    let (mut first, mut begun) = (None, 0);
    inputs.for_each(&mut |source, event| {
        first.get_or_insert(event.time.0);
        at.set(source);
        recording.set(recordings.of(event));
        if inputs.machine(source) == 0 {
            calls.event(event);
            begun += 1;
        }
    })?;
    let mut found = calls.finish();
    name_calls(&mut found, files);
    let Some(call) = found.wanted else {
        return Err(Failure::new(match found.is_empty() {
            true => format!(
                "{}: has no calls; record them with `flashscope record --events block,cache,syscall`",
                inputs.title()
            ),
            false => format!(
                "--call {number}: the trace has no call with this number that ended and touched storage; the slowest are {}",
                found.slowest.iter().take(5).map(|one| one.number.to_string()).collect::<Vec<_>>().join(", ")
            ),
        }));
    };
    Ok((call, of_call.get(), first.unwrap_or(0)))
}

/// All bios that were in flight during the call.
fn bios(inputs: &Inputs, call: &SlowCall, recording: u64) -> Result<Vec<PathBio>, Failure> {
    let at = Current::new(0);
    let lookup = |tid, time| inputs.thread(at.get(), tid, time);
    let mut rows = IoRows::new(RowsOf::Bios, lookup, crate::export::rows::setup_of(inputs)?);
    let mut bios = Vec::new();
    let mut take = |cells: &[Cell<'_>]| bios.extend(bio(cells, call));
    let mut recordings = Recordings::default();
    inputs.for_each(&mut |source, event| {
        at.set(source);
        // Several traces are merged by time, so their recordings do not overlap.
        if recordings.of(event) != recording && inputs.only().is_some() {
            return;
        }
        rows.event(event, &mut |row| row.cells(&mut take));
    })?;
    rows.finish(&mut |row| row.cells(&mut take));
    Ok(bios)
}

/// Numbers and texts in a bio's row, by column name.
pub fn by_name<'a>(cells: &'a [Cell<'_>]) -> (impl Fn(&str) -> Option<u64> + 'a, impl Fn(&str) -> String + 'a) {
    let cell = move |name: &str| BIO_COLUMNS.iter().position(|column| column.name == name).and_then(|at| cells.get(at));
    let number = move |name: &str| match cell(name) {
        Some(Cell::Number(number)) => Some(*number),
        _ => None,
    };
    let text = move |name: &str| match cell(name) {
        Some(Cell::Text(text)) => (*text).to_owned(),
        _ => String::new(),
    };
    (number, text)
}

fn bio(cells: &[Cell<'_>], call: &SlowCall) -> Option<PathBio> {
    let (number, text) = by_name(cells);
    let (queued_ns, completed_ns) = (number("queued_ns")?, number("completed_ns")?);
    if completed_ns < call.begin_ns || queued_ns > call.begin_ns + call.duration_ns {
        return None;
    }
    let name = |who: &str| match (text(who), number(&format!("{who}_tid"))) {
        (name, Some(tid)) if !name.is_empty() => format!("{name} ({tid})"),
        (name, _) => name,
    };
    let owner = Some(name("owner")).filter(|owner| !owner.is_empty()).unwrap_or_else(|| name("carrier"));
    Some(PathBio {
        device: text("device"),
        sector: number("sector")?,
        bytes: number("bytes")?,
        kind: text("kind"),
        flags: text("flags"),
        owner,
        owner_tid: number("owner_tid").unwrap_or(u64::MAX),
        carrier_tid: number("carrier_tid").unwrap_or(u64::MAX),
        of_kernel: text("owner_kind") == "kernel",
        queued_ns,
        issued_ns: number("issued_ns"),
        completed_ns,
    })
}

/// The layers of the call, if the trace has boundaries. Of other threads' bios only those in `own` count as waited for.
fn layers(
    trace: &Trace,
    call: &SlowCall,
    recording: u64,
    own: &[PathBio],
) -> Result<Evidence<(Vec<LayerTime>, u64)>, Failure> {
    let unknown = |why: &str| Evidence::unknown(why, "record with `flashscope record --events layers`");
    let crossings = trace.crossings();
    if !crossings.are_there() {
        return Ok(unknown("the trace has no boundaries of layers"));
    }
    let own = own.iter().filter_map(|bio| Some((Device::parse(&bio.device)?, bio.sector, bio.queued_ns)));
    let mut layers = Layers::new(|tid, time| trace.last_name(tid, time), crossings.sleep()).waits_for(own.collect());
    let end = call.begin_ns + call.duration_ns;
    let mut recordings = Recordings::default();
    trace.for_each_pair(&mut |pair| {
        if pair.event.map_or(recordings.0, |event| recordings.of(event)) != recording {
            return;
        }
        // I/O in flight at the call's beginning also uses the device. Boundaries of earlier calls would be joined with this call.
        if let Some(event) = pair.event
            && event.time.0 <= end
        {
            layers.event(event);
        }
        if let Some(record) = pair.record
            && (call.begin_ns..=end).contains(&record.time.0)
        {
            crossings.read(record, &mut |tid, crossing| layers.crossing(crossing, tid, record.time));
        }
    })?;
    let found = layers.finish().calls.into_iter().find(|one| one.tid == call.tid && one.begin_ns == call.begin_ns);
    Ok(match found {
        Some(one) => (one.layers, one.unattributed_ns).into(),
        None => unknown("the trace has no boundaries of layers of this kind of call"),
    })
}
