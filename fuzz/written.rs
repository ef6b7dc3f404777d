//! Bodies of what `export` writes besides one trace as it is: rows of bios and requests, several traces together, pseudonyms.

use super::{in_memory, trace};
use flashscope_analysis::block::{IoRows, RowsOf, Sizes};
use flashscope_trace::dat::{self, Key};
use flashscope_trace::export::{self, TableWriter, TextTable};
use flashscope_trace::{Alignment, MergedTrace, Trace};
use std::hint::black_box;

/// `export --rows bios|requests --to csv|json`.
pub fn export_rows(bytes: &[u8]) {
    let Some(trace) = trace(bytes) else { return };
    for (of, raw) in [(RowsOf::Bios, true), (RowsOf::Bios, false), (RowsOf::Requests, false)] {
        let mut out = Vec::new();
        let mut table: Box<dyn TableWriter> = match raw {
            true => Box::new(TextTable::csv(of.columns(), raw, &mut out)),
            false => Box::new(TextTable::json_lines(of.columns(), &mut out)),
        };
        let mut rows = IoRows::new(of, |tid, time| trace.comm(tid, time), Sizes::of_facts([trace.facts()]));
        let _ = trace.for_each(&mut |event| rows.event(event, &mut |row| row.cells(|cells| table.row(cells))));
        rows.losses(&trace.losses());
        let found = rows.finish(&mut |row| row.cells(|cells| table.row(cells)));
        let written = table.finish(&[]).expect("memory takes all");
        assert!(written.rows <= found.events, "{} rows of {} events", written.rows, found.events);
        black_box(out);
    }
}

/// `export A B --offset B=NS` in every form that several traces become.
pub fn export_merged(bytes: &[u8]) {
    let Some((offset, rest)) = bytes.split_first_chunk() else { return };
    let (first, second) = rest.split_at(rest.len() / 2);
    let (Some(first), Some(second)) = (trace(first), trace(second)) else { return };
    // Half of the offsets are short, so that the traces overlap.
    let offset = i64::from_le_bytes(*offset);
    let offset = if offset % 2 == 0 { offset } else { offset >> 32 };
    let Ok(merged) = MergedTrace::new(vec![(first, Alignment::Auto), (second, Alignment::OffsetNs(offset))]) else {
        return;
    };
    let mut out = Vec::new();
    let events = export::csv_merged_as(&merged, false, &mut out).is_ok();
    black_box((events, export::json_lines_merged(&merged, &mut out).is_ok()));
    black_box(export::text_merged(&merged, &mut out).is_ok());
    in_memory("merged", |path| {
        if dat::write_merged(&merged, path, &|_, _| true).is_ok() {
            Trace::open(path).expect("what was written can be read");
        }
    });
}

/// `record`, `report` and `export` with `--anonymize`: as many records as before.
pub fn anonymize(bytes: &[u8]) {
    let Some(trace) = trace(bytes) else { return };
    in_memory("anonymous", |path| {
        if dat::write_anonymized(&trace, path, Default::default(), &Key::of(bytes)).is_err() {
            return;
        }
        let again = Trace::open(path).expect("what was written can be read");
        let count = |trace: &Trace| {
            let mut records = 0;
            trace.for_each_record(&mut |_| records += 1).map(|()| records).ok()
        };
        assert_eq!(count(&again), count(&trace));
    });
}
