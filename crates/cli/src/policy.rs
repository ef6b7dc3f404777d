//! `policy`: which read-ahead policy would have cost a recorded workload least.

use std::io::IsTerminal;

use flashscope_analysis::readahead::{Predictor, Search, TRIED_KIB, Wanted};
use flashscope_trace::Trace;

use crate::args::PolicyArgs;
use crate::failure::Failure;
use crate::predict::{file_name, filesystem, model, notes, storage, watts, workload};
use crate::study::style;

/// Windows beyond are none that a device has.
const MAX_WINDOW_KIB: u64 = 1 << 20;

pub fn run(args: &PolicyArgs) -> Result<(), Failure> {
    if let Some(&kib) = args.windows.iter().find(|&&kib| kib > MAX_WINDOW_KIB || kib % 4 != 0) {
        return Err(Failure::usage(format!(
            "--windows {kib}: multiples of 4 KiB, a page, up to {MAX_WINDOW_KIB} are wanted"
        )));
    }
    if let Some(ms) = args.latency_ms.filter(|ms| !(ms.is_finite() && *ms > 0.0)) {
        return Err(Failure::usage(format!("--latency-ms {ms}: a time above 0 is wanted")));
    }
    let trace = Trace::open(&args.trace)?;
    let workload = workload(&trace, &args.model)?;
    let (kernel, exact) = model(&trace, args.model.kernel_model.as_deref())?;
    let mut storage = storage(&trace, &workload, kernel, args.model.io_kib);
    storage.budget_pages = usize::try_from(args.cache_mib.saturating_mul(256)).unwrap_or(usize::MAX);
    let on_squashfs = !storage.squashfs.is_empty();
    let predictor = Predictor::new(&workload, storage);
    let recorded = predictor.recorded(&TRIED_KIB);
    let filesystem = filesystem(&args.energy, &trace, &workload);
    let watts = args.energy.power.as_ref().map(|name| watts(name, &filesystem, &predictor)).transpose()?;
    let mut notes = notes(&workload, &trace, kernel, exact);
    if on_squashfs {
        notes.push("files on squashfs come by whole blocks: no policy reaches what perfect foresight gives".into());
    }
    if let Some(overlap) = predictor.overlap() {
        notes.push(format!(
            "calls of {} tasks overlap: here they are played one after the other, as they began when they were recorded (`predict` \
             plays them in virtual time)",
            overlap.tasks
        ));
    }
    let wanted = Wanted {
        windows_kib: args.windows.clone(),
        stock_kib: args.now.unwrap_or(recorded.fits_readahead_kib),
        latency_ns: args.latency_ms.map(|ms| ms * 1e6),
        watts,
        notes,
    };
    let Some(search) = Search::new(&predictor, wanted) else {
        return Err(Failure::new(format!(
            "{}: it has no timed reads that read flash, so that nothing tells policies apart; record with \
             --events flash,cache,syscall",
            args.trace.display()
        )));
    };
    let shows = std::io::stderr().is_terminal();
    let found = search.run(&mut |done, of| {
        if shows {
            eprint!("\r{done} of {of} policies{}", if done == of { "\n" } else { "" });
        }
    });
    if args.json {
        print!("{}", flashscope_report::json::policies(&found));
    } else {
        print!("{}", flashscope_report::terminal::policies(&found, &file_name, &style()));
    }
    Ok(())
}
