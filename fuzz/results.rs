//! Bodies of what is asked about a report (`--call`, `--by`, `--top`, `diff`, `--fail-if`), and of scripts of `bench replay`.

use super::{block_report, flash_report, is_of_flash, trace};
use flashscope_analysis::block::{BIO_COLUMNS, IoRows, RowsOf, Sizes};
use flashscope_analysis::calls::Calls;
use flashscope_analysis::comparison::{Comparison, Condition, RunFigures, run_of_json};
use flashscope_analysis::layers::Layers;
use flashscope_analysis::{Analysis as _, Evidence, NamesFound, PathBio, call_path, path_bios};
use flashscope_report::terminal::{self, Style};
use flashscope_report::{html, json};
use flashscope_study::replays::Script;
use flashscope_trace::export::Cell;
use flashscope_trace::{Device, Trace};
use std::hint::black_box;

/// `report --call`, of each of the slowest calls.
pub fn report_call(bytes: &[u8]) {
    let Some(trace) = trace(bytes) else { return };
    let mut calls = Calls::new(|tid, time| trace.comm(tid, time));
    let _ = trace.for_each(&mut |event| calls.event(event));
    let found = calls.finish();
    for call in found.slowest.iter().take(3) {
        let mut rows = IoRows::new(RowsOf::Bios, |tid, time| trace.comm(tid, time), Sizes::of_facts([trace.facts()]));
        let mut bios = Vec::new();
        let mut take = |cells: &[Cell<'_>]| bios.extend(bio(cells));
        let _ = trace.for_each(&mut |event| rows.event(event, &mut |row| row.cells(&mut take)));
        rows.finish(&mut |row| row.cells(&mut take));
        let bios = path_bios(call, bios);
        let own = bios.own.iter().filter_map(|bio| Some((Device::parse(&bio.device)?, bio.sector, bio.queued_ns)));
        let crossings = trace.crossings();
        let layers = Layers::new(|tid, time| trace.comm(tid, time), crossings.sleep());
        let mut layers = layers.waits_for(own.collect());
        let _ = trace.for_each_pair(&mut |pair| {
            if let Some(event) = pair.event {
                layers.event(event);
            }
            if let Some(record) = pair.record {
                crossings.read(record, &mut |tid, crossing| layers.crossing(crossing, tid, record.time));
            }
        });
        let layers = layers.finish().calls.into_iter().find(|one| one.tid == call.tid);
        let layers = match layers {
            Some(one) => (one.layers, one.unattributed_ns).into(),
            None => Evidence::unknown("no layers", "record them"),
        };
        let path = call_path(call.clone(), layers, bios);
        black_box((terminal::call(&path, &NamesFound::default(), 0, &Style::default()), json::any(&path)));
    }
}

fn bio(cells: &[Cell<'_>]) -> Option<PathBio> {
    let cell = |name: &str| BIO_COLUMNS.iter().position(|column| column.name == name).and_then(|at| cells.get(at));
    let number = |name: &str| match cell(name) {
        Some(Cell::Number(number)) => Some(*number),
        _ => None,
    };
    let text = |name: &str| match cell(name) {
        Some(Cell::Text(text)) => (*text).to_owned(),
        _ => String::new(),
    };
    Some(PathBio {
        device: text("device"),
        sector: number("sector")?,
        bytes: number("bytes")?,
        kind: text("kind"),
        flags: text("flags"),
        owner: text("owner"),
        owner_tid: number("owner_tid").unwrap_or(u64::MAX),
        carrier_tid: number("carrier_tid").unwrap_or(u64::MAX),
        of_kernel: text("owner_kind") == "kernel",
        queued_ns: number("queued_ns")?,
        issued_ns: number("issued_ns"),
        completed_ns: number("completed_ns")?,
    })
}

/// `report --by` and `--top`: tasks that share a name, tables of any length.
pub fn report_by(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let Some(trace) = trace(rest) else { return };
    let style = Style { top: Some(usize::from(first & 31)), width: usize::from(first) * 2, colour: first & 1 == 1 };
    if is_of_flash(&trace) {
        black_box(terminal::flash(&flash_report(&trace), &style));
        return;
    }
    let report = block_report(&trace, |tid, time| match tid.0 % 3 {
        0 => Some("a.service"),
        1 => trace.comm(tid, time),
        _ => None,
    });
    black_box((terminal::block(&report, &style), json::named(&report, &report.names)));
}

fn figures(trace: &Trace) -> RunFigures {
    match is_of_flash(trace) {
        true => RunFigures::of_flash(&flash_report(trace)),
        false => RunFigures::of_block(&block_report(trace, |tid, time| trace.comm(tid, time))),
    }
}

/// `diff` of two traces, and of what `report --json` says of the first and any JSON.
pub fn diff(bytes: &[u8]) {
    let (a, b) = bytes.split_at(bytes.len() / 2);
    let (Some(a), Some(b)) = (trace(a), trace(b)) else { return };
    let mut sides = [vec![figures(&a)], vec![figures(&b)]];
    if bytes.len() % 2 == 1 {
        let report = block_report(&a, |_, _| None);
        let document = json::named(&report, &report.names);
        // Once as a report, once as a result of another kind.
        let other = format!("{{\"results\": [{document}]}}");
        for text in [&document, &other] {
            sides.iter_mut().for_each(|side| side.extend(run_of_json("a", text.as_bytes()).expect("few values")));
        }
    }
    let comparison = Comparison::new(&sides[0], &sides[1]);
    let conditions = ["regress > 10%", "p99(d2c) > 1ms", "bytes(write) > 1MiB/min", "errors > 0"];
    let checked: Vec<_> = conditions
        .iter()
        .map(|text| Condition::parse(text).expect("a condition").check_change(&comparison, &sides[1][0]))
        .collect();
    black_box((
        terminal::comparison(&comparison, 20, &Style::default()),
        html::comparison(&comparison, &checked),
        json::any(&comparison),
    ));
}

/// What bytes select of a grammar's words and of odd characters: most of it is nearly right.
fn sentence(bytes: &[u8], words: &[&str]) -> String {
    bytes.iter().map(|&byte| words[usize::from(byte) % words.len()]).collect()
}

/// The grammar of `--fail-if`, checked against a report.
pub fn fail_if(bytes: &[u8]) {
    const WORDS: [&str; 40] = [
        "p99", "p50", "max", "mean", "bytes", "errors", "regress", "waits", "unattributed", "(", ")", ",", " ", "=",
        ">", "<", "d2c", "q2c", "read", "write", "app", "dev", "8:0", "\"", "'", "10", "0", "1e308", "1e999", "-5",
        "ms", "us", "%", "MiB", "/min", "/s", ".", "\u{202e}", "\0", "fsync",
    ];
    let (text, rest) = bytes.split_at(bytes.len().min(24));
    let [function, key, op, limit, unit, ..] = *text else { return };
    let of = |byte: u8, words: &[&'static str]| words[usize::from(byte) % words.len()];
    let right = format!(
        "{}{} {} {}{}",
        of(function, &["p99", "p50", "max", "bytes", "errors", "regress", "flush", "bios", "calls", "reads"]),
        of(
            key,
            &["", "(d2c)", "(q2c, write)", "(write, app=cat)", "(fsync)", "(d2c, write, 8:0)", "(app=\"\u{1b}[2J\")"]
        ),
        of(op, &[">", "<"]),
        of(limit, &["0", "1", "10.5", "1e308", "0.000001", "18446744073709551615"]),
        of(unit, &["", "ms", "us", "s", "%", "MiB", "B/s", "MiB/min", "/s"]),
    );
    let texts = [String::from_utf8_lossy(text).into_owned(), sentence(text, &WORDS), right];
    for text in texts {
        let Ok(condition) = Condition::parse(&text) else { continue };
        assert_eq!(Condition::parse(condition.text()), Ok(condition.clone()), "its text is the condition");
        let Some(trace) = trace(rest) else { continue };
        let run = figures(&trace);
        black_box((
            condition.check(&run),
            condition.check_change(&Comparison::new(std::slice::from_ref(&run), std::slice::from_ref(&run)), &run),
        ));
    }
}

/// A script of `bench replay`: what is read can be written, and is then read as the same.
pub fn replay_script(bytes: &[u8]) {
    const WORDS: [&str; 44] = [
        "\nfile ", "\ntask ", "\ncgroup ", "\nread ", "\nwrite ", "\nfsync ", "\nopen ", "\ncreate ", "\nclose ",
        "\nunlink ", "\nrename ", "\ntruncate ", "\nfault ", "\nfault-write ", " ", "0", "1", "2", "7", "-", "+", "=",
        "%", "20", "%00", "4096", "70368744177664", "18446744073709551615", "268435456", "start=", "nice=", "ionice=",
        "cgroup=", "io.max=", "cgroup.kill=", "rt:", "idle", "read,write", "direct", "a", "..", "/", "\u{1b}", "#",
    ];
    let head = "flashscope-replay 2\nfile 4096 a\nfile - b\ntask t";
    for text in [String::from_utf8_lossy(bytes).into_owned(), head.to_owned() + &sentence(bytes, &WORDS)] {
        let Ok(mut script) = Script::parse("fuzz", &text) else { continue };
        let written = script.text();
        let again = Script::parse("fuzz", &written).unwrap_or_else(|error| panic!("{error}: {written:?}"));
        assert_eq!(again.text(), written, "what is written is read as the same");
        black_box((script.duration_ns(), script.file_bytes()));
        script.beside(again, u64::from(bytes.len() as u32) << 32);
        black_box((script.text(), script.duration_ns()));
    }
}
