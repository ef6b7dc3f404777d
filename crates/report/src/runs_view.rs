//! A study of runs as tables, for every renderer.

use crate::rows::Rows;
use crate::text::{bytes, duration, grouped, number};
use flashscope_analysis::flash::OpCounts;
use flashscope_study::runs::{Part, PostmarkFacts, RunGroup, RunsResult, Tracer};

/// A table with its heading.
pub struct View {
    pub heading: &'static str,
    pub rows: Rows,
}

/// All tables, in order.
pub fn views(result: &RunsResult) -> Vec<View> {
    let all = [
        ("Time and flash operations", operations(result)),
        ("What Postmark did", postmark(result)),
        ("Read throughput where a part of each file is read, MiB/s of read()", shares(result)),
        ("The tracer's cost", costs(result)),
        ("The tracer's cost over several seeds", spreads(result)),
        ("The ring", ring(result)),
    ];
    all.into_iter().filter(|(_, rows)| !rows.rows.is_empty()).map(|(heading, rows)| View { heading, rows }).collect()
}

/// The run's name, with its way of tracing if that differs.
fn name(result: &RunsResult, group: &RunGroup) -> String {
    match result.groups.iter().any(|other| other.tracer != group.tracer) {
        true => format!("{}, {}", group.name, tracer(group.tracer)),
        false => group.name.clone(),
    }
}

pub fn tracer(tracer: Tracer) -> &'static str {
    match tracer {
        Tracer::None => "not traced",
        Tracer::Ring => "ring",
        Tracer::Stream => "stream",
        Tracer::FlashmonRing => "flashmon, ring",
        Tracer::FlashmonStream => "flashmon, stream",
    }
}

fn operations(result: &RunsResult) -> Rows {
    let mut rows = Rows {
        kinds: "ttnnnnn",
        heads: &["run", "part", "time", "page\nreads", "page\nprograms", "block\nerases", "last erase\nafter"],
        rows: Vec::new(),
        more: 0,
    };
    // The parts of a sweep would hide its result; they are in the JSON.
    let parts = result.groups.len() <= 12;
    for group in &result.groups {
        let name = name(result, group);
        let mut row = |part: &str, ns: u64, counts: Option<OpCounts>, erase: String| {
            let counts = counts.map(|c| [c.reads, c.programs, c.erases].map(grouped));
            let [reads, programs, erases] = counts.unwrap_or_else(|| ["–"; 3].map(str::to_owned));
            rows.rows.push(vec![name.clone(), part.to_owned(), duration(ns), reads, programs, erases, erase]);
        };
        for part in group.parts.iter().filter(|_| parts) {
            row(&part.name, part.duration_ns(), part.counts, last_erase(part));
        }
        row("all", group.total_ns, group.all, String::new());
    }
    rows
}

fn last_erase(part: &Part) -> String {
    part.last_erase_ns.map_or_else(String::new, |at| duration(at.saturating_sub(part.begin_ns)))
}

fn with_postmark(result: &RunsResult) -> impl Iterator<Item = (&RunGroup, &PostmarkFacts)> {
    result.groups.iter().filter_map(|group| Some((group, group.postmark.as_ref()?)))
}

fn postmark(result: &RunsResult) -> Rows {
    let mib = |n: u64| number(n as f64 / f64::from(1 << 20), 2);
    let rows = with_postmark(result).map(|(group, did)| {
        let mut on = did.filesystem.clone();
        if let Some(options) = &did.options {
            on += &format!(" ({options})");
        }
        let sizes = match did.size_min_bytes == did.size_max_bytes {
            true => bytes(did.size_min_bytes),
            false => format!("{} to {}", bytes(did.size_min_bytes), bytes(did.size_max_bytes)),
        };
        let ahead = did.readahead_kib.map_or_else(|| "–".to_owned(), |kib| kib.to_string());
        vec![
            name(result, group),
            on,
            sizes,
            ahead,
            grouped(did.created),
            mib(did.bytes_read),
            mib(did.bytes_written),
            duration(did.read_ns),
            duration(did.write_ns),
        ]
    });
    Rows {
        kinds: "tttnnnnnn",
        heads: &[
            "run", "on", "files of", "read-ahead\nKiB", "files\ncreated", "MiB\nread", "MiB\nwritten",
            "time in\nread()", "time in\nwrite()",
        ],
        rows: rows.collect(),
        more: 0,
    }
}

/// Only if files were read with different read-ahead; otherwise most pages come from the page cache.
fn shares(result: &RunsResult) -> Rows {
    let mut heads: &'static [&'static str] = &["run", "25 %", "50 %", "100 %"];
    let mut rows = Vec::new();
    let ahead = |of: &PostmarkFacts| of.readahead_kib;
    let several = with_postmark(result).any(|(_, a)| with_postmark(result).any(|(_, b)| ahead(a) != ahead(b)));
    for (group, did) in with_postmark(result).filter(|_| several) {
        let mut row = vec![name(result, group)];
        row.extend(did.shares.iter().map(|share| number(share.mib_per_s(), 2)));
        if did.shares.iter().map(|share| share.percent).ne([25, 50, 100]) {
            heads = &["run", "first share", "second", "third"];
        }
        row.resize(4, String::new());
        rows.push(row);
    }
    Rows { kinds: "tnnn", heads, rows, more: 0 }
}

fn costs(result: &RunsResult) -> Rows {
    let row = |cost: &flashscope_study::runs::Cost| {
        vec![
            if cost.part.is_empty() { cost.name.clone() } else { format!("{}: {}", cost.name, cost.part) },
            tracer(cost.tracer).to_owned(),
            duration(cost.without_ns),
            duration(cost.with_ns),
            grouped(cost.events),
            number(cost.percent(), 2),
            cost.us_an_event().map_or_else(|| "–".to_owned(), |us| number(us, 2)),
        ]
    };
    let heads: &'static [&'static str] = &["run", "traced to", "without", "with", "events", "cost\n%", "µs an\nevent"];
    Rows::new("ttnnnnn", heads, result.costs.iter(), usize::MAX, row)
}

fn spreads(result: &RunsResult) -> Rows {
    let row = |spread: &flashscope_study::runs::Spread| {
        vec![
            if spread.part.is_empty() { spread.name.clone() } else { format!("{}: {}", spread.name, spread.part) },
            tracer(spread.tracer).to_owned(),
            spread.seeds.to_string(),
            number(spread.percent, 2),
            number(spread.least_percent, 2),
            number(spread.most_percent, 2),
            spread.us_an_event.map_or_else(|| "–".to_owned(), |us| number(us, 2)),
        ]
    };
    let heads: &'static [&'static str] =
        &["run", "traced to", "seeds", "median\n%", "least\n%", "most\n%", "µs an\nevent"];
    Rows::new("ttnnnnn", heads, result.spreads.iter(), usize::MAX, row)
}

fn ring(result: &RunsResult) -> Rows {
    let used = result.groups.iter().filter_map(|group| Some((group, group.ring?)));
    let rows = used.filter(|_| !result.costs.is_empty()).map(|(group, ring)| {
        let each = ring.bytes as f64 / ring.events.max(1) as f64;
        vec![name(result, group), grouped(ring.events), grouped(ring.bytes), number(each, 1)]
    });
    Rows { kinds: "tnnn", heads: &["run", "events", "bytes", "bytes an\nevent"], rows: rows.collect(), more: 0 }
}
