//! What must hold of every renderer, whatever it is given.

use crate::{csv, figures, html, json, synthetic, terminal};
use flashscope_analysis::FlashReport;
use flashscope_study::StudyResult;
use serde_json::Value;

const NASTY: &str =
    "</title><script>alert(1)</script><img src=x onerror=y>\"' & ]]> \u{1b}[31m\u{9b}2J\r\n\u{202e}\u{7}";

/// Every string and every integer of a document, changed. Names of operations stay: they are ours.
fn changed(value: &mut Value, text: &dyn Fn(&str) -> String, number: Option<u64>) {
    match value {
        Value::String(s) => *s = text(s),
        Value::Number(n) if n.is_u64() => {
            if let Some(number) = number {
                *n = number.into();
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|v| changed(v, text, number)),
        Value::Object(all) => all.iter_mut().filter(|(k, _)| *k != "op").for_each(|(_, v)| changed(v, text, number)),
        _ => {}
    }
}

fn documents(text: &dyn Fn(&str) -> String, number: Option<u64>) -> (StudyResult, FlashReport) {
    let mut study = serde_json::to_value(synthetic::study()).unwrap();
    let mut flash = serde_json::to_value(synthetic::flash()).unwrap();
    changed(&mut study, text, number);
    changed(&mut flash, text, number);
    (serde_json::from_value(study).unwrap(), serde_json::from_value(flash).unwrap())
}

fn all_outputs(study: &StudyResult, flash: &FlashReport) -> Vec<(String, String)> {
    let mut outputs = vec![
        ("study.html".to_owned(), html::study(study)),
        ("flash.html".to_owned(), html::flash(flash)),
        ("study.json".to_owned(), json::study(study)),
        ("flash.json".to_owned(), json::flash(flash)),
        ("study.csv".to_owned(), csv::study(study)),
        ("flash.csv".to_owned(), csv::flash(flash)),
    ];
    for width in [0, 40, 80, 200] {
        let style = terminal::Style { width, colour: false };
        outputs.push((format!("study {width}"), terminal::study(study, &style)));
        outputs.push((format!("flash {width}"), terminal::flash(flash, &style)));
    }
    let drawn =
        figures::study(study).into_iter().chain(figures::group(0, &study.groups[0])).chain(figures::flash(flash));
    outputs.extend(drawn.map(|f| (format!("{}.svg", f.id), f.standalone())));
    outputs
}

/// Elements open and close in order, attributes are quoted, and text holds no bare markup character.
fn assert_well_formed(name: &str, xml: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "{name}: bare '>' in {:?}", &rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.find('>').unwrap_or_else(|| panic!("{name}: unclosed tag"));
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let element = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        let void = matches!(element, "!DOCTYPE" | "meta" | "br") || tag.ends_with('/');
        assert!(tag.matches('"').count().is_multiple_of(2), "{name}: quotes in {tag:?}");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(element), "{name}: closing");
        } else if !void {
            open.push(element);
        }
        if element == "style" && !tag.starts_with('/') {
            rest = &rest[rest.find("</style>").unwrap()..];
        }
    }
    assert!(open.is_empty(), "{name}: left open: {open:?}");
}

#[test]
fn nothing_that_is_shown_acts() {
    let (study, flash) = documents(&|_| NASTY.to_owned(), None);
    for (name, text) in all_outputs(&study, &flash) {
        for c in text.chars().filter(|&c| c != '\n') {
            assert!(!crate::text::acts(c), "{name}: {c:?}");
        }
        if name.ends_with("html") || name.ends_with("svg") {
            assert!(!text.contains("<script") && !text.contains("<img"), "{name}");
            assert!(text.contains("&lt;script&gt;alert(1)"), "{name}: the name is not shown at all");
            assert_well_formed(&name, &text);
        }
    }
}

#[test]
fn odd_numbers_break_nothing() {
    for number in [0, 1, 65_535] {
        let (mut study, mut flash) = documents(&str::to_owned, Some(number));
        for (name, text) in all_outputs(&study, &flash) {
            assert!(!text.contains("NaN") && !text.contains("inf "), "{name} at {number}");
        }
        for comparison in &mut study.comparisons {
            comparison.published_max = f64::INFINITY;
            comparison.ours = Some(f64::NAN);
        }
        for group in &mut study.groups {
            group.tracer.ns_per_event = f64::NEG_INFINITY;
            for cell in &mut group.cells {
                cell.total_ns = u64::MAX;
                cell.count = u64::MAX;
            }
            group.timeline.end_ns = u64::MAX;
            group.timeline.points[0].time_ns = u64::MAX;
            group.timeline.points[0].page = u64::MAX;
            group.blocks[0].block = u32::MAX;
        }
        flash.chips.clear();
        flash.findings.timeline.points.truncate(1);
        for (name, text) in all_outputs(&study, &flash) {
            assert!(!text.contains("NaN"), "{name} at {number}");
            if name.ends_with("svg") {
                assert_well_formed(&name, &text);
            }
        }
    }
}

#[test]
fn a_study_with_nothing_in_it_is_a_document() {
    let mut study = synthetic::study();
    study.comparisons.clear();
    study.groups.iter_mut().for_each(|group| {
        group.cells.clear();
        group.blocks.clear();
        group.timeline.points.clear();
        group.losses.clear();
    });
    for (name, text) in all_outputs(&study, &synthetic::flash()) {
        assert!(!text.is_empty(), "{name}");
    }
    study.verdicts.clear();
    study.groups.clear();
    assert_well_formed("empty", &html::study(&study));
    assert!(terminal::study(&study, &terminal::Style::default()).contains("not known"));
}

#[test]
fn pages_need_nothing_from_outside() {
    for page in [html::study(&synthetic::study()), html::flash(&synthetic::flash())] {
        assert!(page.contains(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        ));
        let without_names = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for outside in ["http:", "https:", "//", "src=", "@import", "url(", "<script", "<link"] {
            assert!(!without_names.contains(outside), "{outside}");
        }
        assert_well_formed("page", &page);
        for (i, id) in page.split(" id=\"").skip(1).map(|s| &s[..s.find('"').unwrap()]).enumerate() {
            assert_eq!(page.matches(&format!(" id=\"{id}\"")).count(), 1, "id {i}: {id}");
        }
    }
}

#[test]
fn a_page_stays_under_2_mb_whatever_the_study() {
    let ordinary = synthetic::study();
    assert!(html::study(&ordinary).len() < 300_000);

    // Many groups with many cells, long names and as many points as anyone likes.
    let mut study = ordinary;
    let mut group = study.groups[0].clone();
    group.timeline.points = (0..200_000u64)
        .map(|i| {
            let mut point = group.timeline.points[0];
            point.time_ns = i * 7919 % group.timeline.end_ns;
            point.page = i * 104_729 % 1_000_003;
            point
        })
        .collect();
    let bytes = html::study(&StudyResult { groups: vec![group.clone()], ..study.clone() }).len();
    assert!(bytes < 2_000_000, "{bytes}");
    group.timeline.points.truncate(3000);
    for i in 0..150 {
        let mut group = group.clone();
        group.id = format!("group {i} {}", "x".repeat(3000));
        group.inputs.kernel_release = format!("6.{i}");
        study.groups.push(group);
    }
    study.verdicts = (0..2000).map(|_| study.verdicts[0].clone()).collect();
    let page = html::study(&study);
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert!(page.contains("Left out of this page"));
    // The parts that come late are there all the same.
    assert!(page.contains("<td class=\"key\">G</td>"));
    assert!(page.contains("<code>ring_overrun</code>"));
    assert_well_formed("big", &page);
}

#[test]
fn the_same_result_gives_the_same_bytes() {
    let (study, flash) = (synthetic::study(), synthetic::flash());
    assert_eq!(all_outputs(&study, &flash), all_outputs(&study.clone(), &flash.clone()));
}

#[test]
fn the_page_says_the_verdict_first_and_every_loss() {
    let study = synthetic::study();
    let page = html::study(&study);
    let verdict = page.find("Today read-ahead is on at 128 KiB for squashfs-mtdblock").unwrap();
    assert!(verdict < page.find("<figure").unwrap());
    assert!(page.contains("<code>echo 0 &gt; /sys/block/mtdblock0/queue/read_ahead_kb</code>"));
    // Zero losses too, and those of three groups added up.
    assert!(page.contains("<code>ring_overrun</code></td><td class=\"num\">0</td>"));
    assert!(page.contains("<code>probe_misses</code></td><td class=\"num lost\">9</td>"));
    // Published values by letter, in the table and in the figure; the one not measured says so.
    assert!(page.contains("class=\"tagtext\" text-anchor=\"middle\">A B</text>"));
    assert!(page.contains("<td class=\"key\">G</td>") && page.contains(">not measured</td>"));
    for fact in
        ["QEMU emulator version 7.2.22", "6.1.0-50-armmp", "guest time", "nand_erase_op", "1.4 %", &"cd".repeat(32)]
    {
        assert!(page.contains(fact), "{fact}");
    }
}

#[test]
fn the_terminal_ends_with_the_verdict_and_fits_its_width() {
    let text = terminal::study(&synthetic::study(), &terminal::Style { width: 100, colour: false });
    assert!(text.ends_with("\n      echo 0 > /sys/block/mtdblock0/queue/read_ahead_kb\n"), "{text}");
    assert!(
        text.contains("  sequential         8      4.39      8     15.19       28     71.1 %     71.4 %\n"),
        "{text}"
    );
    for line in text.lines().filter(|l| !l.trim_start().starts_with("none needed")) {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let bold = terminal::study(&synthetic::study(), &terminal::Style { width: 100, colour: true });
    assert_eq!(bold.replace("\u{1b}[1m", "").replace("\u{1b}[0m", ""), text);
}

#[test]
fn settings_that_vary_have_their_axis_and_columns() {
    let mut study = synthetic::study();
    for group in &mut study.groups {
        group.cells.retain(|c| c.count == 64);
        let cells = std::mem::take(&mut group.cells);
        for us in [0, 100, 1000] {
            group.cells.extend(cells.iter().cloned().map(|mut c| {
                c.interarrival_us = us;
                c
            }));
        }
    }
    let ids: Vec<String> = figures::study(&study).into_iter().map(|f| f.id).collect();
    assert_eq!(ids, ["time-saved-0", "reads-saved-0", "flash-reads-0", "latency-0"]);
    let page = html::study(&study);
    assert!(page.contains("time between requests, µs") && page.contains(">µs apart</th>"));
    // A published value is about numbers of requests: it has no place on this axis, only in the table.
    assert!(!page.contains("class=\"tagtext\""));
}

#[test]
fn settings_of_one_size_are_columns_of_their_own() {
    let mut study = synthetic::study();
    for group in &mut study.groups {
        let mut more = group.cells.clone();
        more.retain(|c| c.readahead_kib == 128);
        more.iter_mut().for_each(|c| c.readahead = "fadvise-random".into());
        group.cells.extend(more);
    }
    let page = html::study(&study);
    for head in ["read-ahead off", "read-ahead 128 KiB", "read-ahead fadvise-random (128 KiB)"] {
        assert!(page.contains(&format!("<th class=\"span\" colspan=\"3\">{head}</th>")), "{head}");
    }
    assert!(!page.contains("<td class=\"num\">–</td><td class=\"num\">–</td>"), "a cell has lost its column");
    assert!(page.contains("<th class=\"span\" colspan=\"2\">off saves</th>"));
}

#[test]
fn request_sizes_get_a_figure_each() {
    let mut study = synthetic::study();
    for group in &mut study.groups {
        let mut more = group.cells.clone();
        more.iter_mut().for_each(|c| c.request_bytes = 32 << 10);
        group.cells.extend(more);
    }
    let figures = figures::study(&study);
    assert_eq!(figures.len(), 6);
    assert!(figures[0].title.contains("4 KiB a request") && figures[3].title.contains("32 KiB a request"));
}
