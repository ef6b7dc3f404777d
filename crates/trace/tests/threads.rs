//! Threads that read ahead change nothing: the same records in the same order with the same gaps, and the same losses.

use crate::common::dat::{Packing, Parts, v6, v7};
use crate::common::*;
use flashscope_trace::{Encoder, Endian, Layout, Missed, Session, SessionOptions, Trace};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// All traces of a file that is in memory.
fn traces(bytes: &[u8]) -> Vec<Trace> {
    match Session::from_bytes(Path::new("t"), bytes.into(), SessionOptions::default()) {
        Ok(session) => (0..session.recordings.len().min(3)).map(|i| session.recording(i).unwrap()).collect(),
        Err(_) => Trace::from_bytes(Path::new("t"), bytes.into()).into_iter().collect(),
    }
}

/// Everything of a pass: records, events, losses.
fn read(bytes: &[u8], threads: usize) -> Vec<(Vec<String>, usize, String)> {
    traces(bytes)
        .into_iter()
        .map(|mut trace| {
            trace.set_threads(threads);
            (records(&trace), events(&trace).len(), format!("{:?}", trace.losses()))
        })
        .collect()
}

fn same(name: &str, bytes: &[u8]) -> usize {
    let want = read(bytes, 0);
    for threads in [1, 2, 7] {
        assert!(read(bytes, threads) == want, "{name}: {threads} threads read something else");
    }
    want.iter().map(|(records, ..)| records.len()).sum()
}

#[test]
fn every_golden_and_seed() {
    for kind in ["stream", "trace_dat"] {
        let read: usize = crate::common::seeds::seeds(kind).iter().map(|(name, bytes)| same(name, bytes)).sum();
        assert!(read > 500, "{kind}: {read} records");
    }
}

/// Several CPUs with many sub-buffers each, gaps between them, and equal times on all.
fn many(cpus: u32, subbuf: u32) -> Parts {
    let layout = Layout::of(Endian::Little, 8, subbuf);
    let mut parts = crate::common::seeds::parts(Endian::Little, 8, subbuf);
    let record = [&11u16.to_le_bytes()[..], &[0; 2], &7u32.to_le_bytes(), &[1; 36]].concat();
    parts.cpus = (0..cpus)
        .map(|cpu| {
            let (mut e, mut pages) = (Encoder::new(layout), vec![]);
            for i in 0..8_000u64 {
                if (i + u64::from(cpu)) % 1200 == 0 {
                    e.missed(if cpu % 2 == 0 { Missed::Events(i) } else { Missed::Unknown });
                }
                pages.extend(e.record(i / 3 * u64::from(1 + cpu % 3), &record).unwrap());
            }
            pages.extend(e.finish());
            pages
        })
        .collect();
    parts.layout = layout;
    parts
}

#[test]
fn many_cpus_gaps_and_every_packing() {
    for (cpus, subbuf) in [(1, 4096), (5, 256), (40, 4096), (3, 65_536)] {
        let parts = many(cpus, subbuf);
        let gaps = |trace: &Trace| {
            let mut n = 0;
            trace.for_each_record(&mut |r| n += u64::from(r.missed != Missed::Nothing)).unwrap();
            n
        };
        assert!(gaps(&Trace::from_bytes(Path::new("t"), v6(&parts).into()).unwrap()) >= u64::from(cpus) * 6);
        assert_eq!(same("v6", &v6(&parts)), cpus as usize * 8_000);
        for packing in [Packing::None, Packing::Zlib, Packing::Zstd] {
            if cpus < 40 {
                assert_eq!(same(&format!("{packing:?}"), &v7(&parts, packing, 10)), cpus as usize * 8_000);
            }
        }
    }
}

#[test]
fn damage_is_counted_alike() {
    let mut rng = Rng(0xa4ead);
    let whole = [v6(&many(3, 256)), v7(&many(2, 4096), Packing::Zstd, 2), example(Endian::Big, 8, 256).bytes];
    for bytes in whole {
        for _ in 0..12 {
            let mut b = bytes.clone();
            for _ in 0..20 {
                let at = rng.below(b.len());
                b[at] = rng.next() as u8;
            }
            b.truncate(b.len() - rng.below(b.len() / 4));
            same("damaged", &b);
        }
    }
}

#[test]
fn who_takes_the_records_may_panic() {
    let mut trace = Trace::from_bytes(Path::new("t"), v6(&many(5, 4096)).into()).unwrap();
    trace.set_threads(2);
    let mut n = 0;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        trace.for_each_record(&mut |_| {
            n += 1;
            assert!(n < 1234, "enough");
        })
    }));
    assert!(ended.is_err() && n == 1234);
    // And the trace can be read again.
    assert_eq!(records(&trace).len(), 40_000);
}
