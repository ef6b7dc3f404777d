//! `predict`: what a recorded workload would have read under other settings of read-ahead, without running it again.

use std::collections::HashSet;

use flashscope_analysis::readahead::{Collector, PREDICTION_SCHEMA, Prediction, Predictor, Workload};
use flashscope_readahead::Kernel;
use flashscope_trace::{Trace, Value};

use crate::args::PredictArgs;
use crate::failure::Failure;
use crate::study::style;

/// Windows that a recording is tried with to find which it was made with, KiB.
pub const TRIED_KIB: [u64; 10] = [0, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

pub fn run(args: &PredictArgs) -> Result<(), Failure> {
    let trace = Trace::open(&args.trace)?;
    let workload = workload(&trace)?;
    let (kernel, exact) = model(&trace, args.kernel_model.as_deref())?;
    let pages = usize::try_from(args.cache_mib.saturating_mul(256)).unwrap_or(usize::MAX);
    let predictor = Predictor::new(&workload, kernel, args.io_kib / 4, pages);
    let mut tried: Vec<u64> = args.readahead.iter().copied().chain(TRIED_KIB).collect();
    tried.sort_unstable();
    tried.dedup();
    let mut rows: Vec<_> = args.readahead.iter().map(|&kib| predictor.row(kib, &|_| false)).collect();
    if args.fadvise_random {
        let mut row = predictor.row(args.readahead.iter().copied().max().unwrap_or(0), &|_| true);
        row.random = true;
        rows.push(row);
    }
    let prediction = Prediction {
        schema: PREDICTION_SCHEMA,
        model: kernel.name(),
        model_source: kernel.source(),
        model_exact: exact,
        recorded: predictor.recorded(&tried),
        cost: predictor.cost(),
        notes: notes(&workload, &trace, kernel, exact),
        rows,
    };
    if args.json {
        print!("{}", flashscope_report::json::prediction(&prediction));
    } else {
        let file = |file: flashscope_readahead::FileId| file_name(file);
        print!("{}", flashscope_report::terminal::prediction(&prediction, &file, &style()));
    }
    Ok(())
}

pub fn file_name(file: flashscope_readahead::FileId) -> String {
    let device = file.device.map(flashscope_trace::Device);
    device.map_or_else(
        || format!("inode {}", file.inode),
        |d| format!("{}:{} inode {}", d.major(), d.minor(), file.inode),
    )
}

/// The accesses of a trace. An error says what is missing from it and what to record.
pub fn workload(trace: &Trace) -> Result<Workload, Failure> {
    let in_ram: HashSet<String> = crate::replay::devices_in_ram(trace);
    let in_ram = in_ram.iter().filter_map(|text| {
        let (major, minor) = text.split_once(':')?;
        Some(flashscope_trace::Device::new(major.parse().ok()?, minor.parse().ok()?).0)
    });
    let mut collector = Collector::new(in_ram.collect::<Vec<_>>());
    trace.for_each_pair(&mut |pair| {
        if let Some(record) = pair.record
            && record.schema.name.starts_with("sys_exit")
        {
            let got = match record.get("ret") {
                Some(Value::Signed(ret)) => Some(u64::try_from(ret).unwrap_or(0)),
                // 32-bit kernels' `long`, and formats that call it unsigned: an error is above every length.
                Some(Value::Unsigned(ret)) => Some(if ret > u64::from(u32::MAX) - 4096 { 0 } else { ret }),
                _ => None,
            };
            collector.returned(record.tid(), record.time.0, got);
        }
        if let Some(event) = pair.event {
            collector.event(event);
        }
    })?;
    let workload = collector.finish();
    let path = trace.path().display();
    if workload.calls.is_empty() && workload.faults == 0 {
        return Err(Failure::new(format!(
            "{path}: it holds no file reads with device, inode, offset and length; record with --events flash,cache,syscall"
        )));
    }
    if !workload.cache_seen {
        return Err(Failure::new(format!(
            "{path}: it does not say which pages came into the page cache, so that nothing holds a prediction against what \
             happened; record with --events flash,cache,syscall"
        )));
    }
    Ok(workload)
}

/// The model that is asked for, or the one of the recording's kernel; and whether it is of that kernel's line.
pub fn model(trace: &Trace, asked: Option<&str>) -> Result<(Kernel, bool), Failure> {
    let names = || Kernel::ALL.map(Kernel::name).join(", ");
    if let Some(asked) = asked {
        let choice = Kernel::nearest(asked)
            .ok_or_else(|| Failure::usage(format!("--kernel-model {asked}: no version of Linux; {}", names())))?;
        return Ok((choice.kernel, choice.exact));
    }
    let release = trace.facts()["kernel"]["release"].as_str().unwrap_or_default();
    match Kernel::nearest(release) {
        Some(choice) => Ok((choice.kernel, choice.exact)),
        None => Err(Failure::usage(format!(
            "{}: it does not say which kernel it is of; name one with --kernel-model: {}",
            trace.path().display(),
            names()
        ))),
    }
}

/// What bounds the prediction, said plainly.
pub fn notes(workload: &Workload, trace: &Trace, kernel: Kernel, exact: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if !exact {
        let release = trace.facts()["kernel"]["release"].as_str().unwrap_or("unknown");
        notes.push(format!(
            "WARNING: there is no model of the recording's kernel ({release}) or of the one that was asked for; the nearest, {}, \
             was taken",
            kernel.name()
        ));
    }
    if workload.open_ended > 0 {
        notes.push(format!(
            "{} files end where the trace last saw them: no read met their end, and larger windows may read further there",
            workload.open_ended
        ));
    }
    if !workload.flash_seen {
        notes.push(
            "no time and no flash reads are predicted: the trace has no reads of flash (--events flash,cache,syscall)"
                .into(),
        );
    } else if workload.without_end > 0 {
        notes.push(format!(
            "the trace does not show the end of {} of {} reads: they are not in the fit of time (--events …,syscall)",
            workload.without_end,
            workload.calls.len()
        ));
    }
    if workload.faults > 0 {
        notes.push(format!(
            "{} faults of mapped files: what a fault maps around it leaves no event, and its pages' use is not known",
            workload.faults
        ));
    }
    if !workload.cached_before.is_empty() {
        notes.push(format!("{} pages were cached before the recording began", workload.cached_before.len()));
    }
    if workload.left_out > 0 {
        notes.push(format!("WARNING: {} accesses beyond the first 4,000,000 are left out", workload.left_out));
    }
    let losses: u64 = trace.losses().iter().map(|(_, n)| n).sum();
    if losses > 0 {
        notes.push(
            "WARNING: the trace is not whole (flashscope report says what is lost): figures are of what is left".into(),
        );
    }
    notes
}
