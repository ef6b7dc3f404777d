//! What must hold of every renderer, whatever it is given.

use crate::{csv, figures, html, json, synthetic, terminal};
use flashscope_analysis::FlashReport;
use flashscope_analysis::block::{BlockReport, GroupBy, IoPoint, RequestKind, StackLevel};
use flashscope_study::StudyResult;
use serde_json::Value;

pub(crate) const NASTY: &str =
    "</title><script>alert(1)</script><img src=x onerror=y>\"' & ]]> \u{1b}[31m\u{9b}2J\r\n\u{202e}\u{7}";

/// Names that are ours: of operations, groups, directions, stages, kinds of owners, sources of figures, workloads, layers, units.
const OURS: [&str; 9] = ["how", "op", "by", "kind", "stage", "basis", "workload", "layer", "unit"];

/// Every string and every integer of a document, changed; [`OURS`] stay.
pub(crate) fn changed(value: &mut Value, text: &dyn Fn(&str) -> String, number: Option<u64>) {
    match value {
        Value::String(s) => *s = text(s),
        Value::Number(n) if n.is_u64() => {
            if let Some(number) = number {
                *n = number.into();
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|v| changed(v, text, number)),
        Value::Object(all) => {
            all.iter_mut().filter(|(k, _)| !OURS.contains(&k.as_str())).for_each(|(_, v)| changed(v, text, number))
        }
        _ => {}
    }
}

fn documents(text: &dyn Fn(&str) -> String, number: Option<u64>) -> (StudyResult, FlashReport, BlockReport) {
    let mut study = serde_json::to_value(synthetic::study()).unwrap();
    let mut flash = serde_json::to_value(synthetic::flash()).unwrap();
    let mut block = serde_json::to_value(synthetic::block()).unwrap();
    for document in [&mut study, &mut flash, &mut block] {
        changed(document, text, number);
    }
    (
        serde_json::from_value(study).unwrap(),
        serde_json::from_value(flash).unwrap(),
        serde_json::from_value(block).unwrap(),
    )
}

fn all_outputs(study: &StudyResult, flash: &FlashReport, block: &BlockReport) -> Vec<(String, String)> {
    let mut outputs = vec![
        ("study.html".to_owned(), html::study(study)),
        ("flash.html".to_owned(), html::flash(flash)),
        ("block.html".to_owned(), html::block(block)),
        ("study.json".to_owned(), json::any(study)),
        ("flash.json".to_owned(), json::named(flash, &flash.names)),
        ("block.json".to_owned(), json::named(block, &block.names)),
        ("study.csv".to_owned(), csv::study(study, false)),
    ];
    for width in [0, 40, 80, 200] {
        let style = terminal::Style { width, top: None, colour: false };
        outputs.push((format!("study {width}"), terminal::study(study, &style)));
        outputs.push((format!("flash {width}"), terminal::flash(flash, &style)));
        outputs.push((format!("block {width}"), terminal::block(block, &style)));
    }
    let drawn = figures::study(study)
        .into_iter()
        .chain(figures::group(0, &study.groups[0]))
        .chain(figures::flash(flash))
        .chain(figures::block(block));
    outputs.extend(drawn.map(|f| (format!("{}.svg", f.id), f.standalone())));
    outputs.into_iter().map(|(name, text)| (name, html::without_scripts(&text))).collect()
}

/// Elements open and close in order, attributes are quoted, and text holds no bare markup character.
pub(crate) fn assert_well_formed(name: &str, xml: &str) {
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
    let (study, flash, block) = documents(&|_| NASTY.to_owned(), None);
    for (name, text) in all_outputs(&study, &flash, &block) {
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
        let (mut study, mut flash, mut block) = documents(&str::to_owned, Some(number));
        for (name, text) in all_outputs(&study, &flash, &block) {
            assert!(!text.contains("NaN") && !text.contains("inf "), "{name} at {number}");
        }
        for group in &mut block.found.groups {
            for times in &mut group.stages {
                (times.ns.max, times.total_ns) = (u64::MAX, u64::MAX);
                times.share_percent = Some(f64::INFINITY);
            }
            for range in group.distributions.iter_mut().flat_map(|d| &mut d.ranges) {
                (range.to_ns, range.n) = (u64::MAX, u64::MAX);
            }
        }
        for point in &mut block.found.points.points {
            (point.time_ns, point.sector, point.bytes) = (u64::MAX, u64::MAX, u64::MAX);
        }
        for window in &mut block.found.over_time.windows {
            (window.read_bytes, window.in_flight_milli, window.merges) =
                (Some(u64::MAX), Some(u64::MAX), Some(u64::MAX));
        }
        for pair in &mut block.found.interference.pairs {
            (pair.served_ns, pair.handover_ns) = (u64::MAX, u64::MAX);
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
        flash.found.timeline.points.truncate(1);
        for (name, text) in all_outputs(&study, &flash, &block) {
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
    for (name, text) in all_outputs(&study, &synthetic::flash(), &synthetic::block()) {
        assert!(!text.is_empty(), "{name}");
    }
    study.verdicts.clear();
    study.groups.clear();
    assert_well_formed("empty", &html::without_scripts(&html::study(&study)));
    assert!(terminal::study(&study, &terminal::Style::default()).contains("not known"));
}

#[test]
fn pages_need_nothing_from_outside() {
    let block = html::block(&synthetic::block());
    for page in [html::study(&synthetic::study()), html::flash(&synthetic::flash()), block] {
        let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-";
        let allowed = page.split_once(policy).expect("a policy").1;
        assert!(
            allowed.split_once('\'').is_some_and(|(hash, rest)| hash.len() == 44 && rest.starts_with("\">")),
            "one script"
        );
        let script = page.rsplit_once("<script>").expect("a script").1;
        assert!(
            !["fetch(", "XMLHttpRequest", "import(", "eval(", "innerHTML", "document.write"]
                .iter()
                .any(|call| script.contains(call))
        );
        let page = html::without_scripts(&page);
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
    let page = html::without_scripts(&html::study(&study));
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert!(page.contains("Left out of this page"));
    // The parts that come late are there all the same.
    assert!(page.contains("<td class=\"key\">G</td>"));
    assert!(page.contains("<code>ring_overrun</code>"));
    assert_well_formed("big", &page);
}

#[test]
fn the_same_result_gives_the_same_bytes() {
    let all = || all_outputs(&synthetic::study(), &synthetic::flash(), &synthetic::block());
    assert_eq!(all(), all());
}

#[test]
fn the_page_says_the_verdict_first_and_every_loss() {
    let study = synthetic::study();
    let page = html::without_scripts(&html::study(&study));
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
    let text = terminal::study(&synthetic::study(), &terminal::Style { width: 100, top: None, colour: false });
    assert!(text.ends_with("\n      echo 0 > /sys/block/mtdblock0/queue/read_ahead_kb\n"), "{text}");
    assert!(
        text.contains("  sequential         8      4.39      8     15.19       28     71.1 %     71.4 %     71.7 %\n"),
        "{text}"
    );
    for line in text.lines().filter(|l| !l.trim_start().starts_with("none needed")) {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let bold = terminal::study(&synthetic::study(), &terminal::Style { width: 100, top: None, colour: true });
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
    assert_eq!(ids, ["time-saved-0", "reads-saved-0", "energy-saved-0", "flash-reads-0", "latency-0"]);
    let page = html::without_scripts(&html::study(&study));
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
    let page = html::without_scripts(&html::study(&study));
    for head in ["read-ahead off", "read-ahead 128 KiB", "read-ahead fadvise-random (128 KiB)"] {
        assert!(page.contains(&format!("<th class=\"span\" colspan=\"3\">{head}</th>")), "{head}");
    }
    assert!(!page.contains("<td class=\"num\">–</td><td class=\"num\">–</td>"), "a cell has lost its column");
    // Of the file system that the power profile knows, and of the others.
    assert!(page.contains("<th class=\"span\" colspan=\"3\">off saves</th>"));
    assert!(page.contains("<th class=\"span\" colspan=\"2\">off saves</th>"));
    assert!(page.contains("model, not measured: a board (tables 2 and 3)"));
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
    assert_eq!(figures.len(), 8);
    assert!(figures[0].title.contains("4 KiB a request") && figures[4].title.contains("32 KiB a request"));
}

#[test]
fn a_page_of_block_io_says_who_waits_first_and_shows_every_part() {
    let report = synthetic::block();
    let page = html::without_scripts(&html::block(&report));
    let verdict = page.find("writer (20) on 8:0: of ").expect("a verdict");
    assert!(verdict < page.find("<figure").unwrap());
    let ids: Vec<String> = figures::block(&report).into_iter().map(|f| f.id).collect();
    let want = ["io-0", "io-1", "stages-devices", "stages-owners", "spread-0", "spread-1", "load", "waits-0"];
    assert_eq!(ids, want);
    for part in ["<code>data_cut</code>", "ext4 journal [jbd2/sda1-8]", "<td>Q2C</td>", "<caption>8:0 writes</caption>"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("Left out of this page"));
}

/// `--top 1`: each table of a report of raw flash has one row and says how many more there are.
#[test]
fn a_report_of_raw_flash_has_as_many_rows_as_were_asked_for() {
    let report = synthetic::flash();
    let text = terminal::flash(&report, &terminal::Style { top: Some(1), ..terminal::Style::default() });
    for (heading, all) in [
        ("By task", report.found.by_task.len()),
        ("By phase", report.found.phases.phases.len()),
        ("Busiest blocks", report.found.blocks.blocks.len()),
    ] {
        let section = text.split_once(&format!("\n{heading}\n")).expect(heading).1;
        let lines: Vec<&str> = section.lines().take_while(|line| !line.is_empty()).collect();
        assert!(all > 1, "{heading}: one row tells nothing");
        assert_eq!(lines.len(), 4, "{heading}: a head, a rule, a row and what is left out: {lines:?}");
        assert!(lines[3].contains(&format!("and {} more: --top N", all - 1)), "{lines:?}");
    }
}

/// Late pages are told where the trace shows the device, and nowhere else; what is in no count is said.
#[test]
fn what_read_ahead_brought_in_is_shown_of_flash_and_of_block_io() {
    let flash = terminal::flash(&synthetic::flash(), &terminal::Style::default());
    let block = terminal::block(&synthetic::block(), &terminal::Style::default());
    let row = |text: &str| {
        let line = text.lines().find(|line| line.contains("inode 12 on 8:1")).expect("a file");
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let [flash_row, block_row] = [row(&flash), row(&block)];
    assert_eq!(flash_row[4..], ["40", "2,000", "1,500", "(75", "%)", "–", "100", "300", "100"]);
    assert_eq!(block_row[4..], ["40", "2,000", "1,500", "(75", "%)", "3", "100", "300", "100"]);
    for (name, text, late) in
        [("flash", &flash, "on MTD the reader"), ("block", &block, "Late: not arrived from the device")]
    {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [
            late,
            "7 pages were read in no call of the trace",
            "The arrival of 2 pages was not seen",
            "5 pages beyond the limit",
        ] {
            assert!(text.contains(said), "{name}: {said}: {text}");
        }
    }
    let page = html::without_scripts(&html::block(&synthetic::block()));
    assert!(page.contains("id=\"readahead\"") && page.contains("inode 12 on 8:1"));
}

#[test]
fn a_page_of_a_trace_with_no_block_io_says_so() {
    let page = html::without_scripts(&html::block(&synthetic::empty_block()));
    assert_well_formed("empty", &page);
    assert!(page.contains("No bio was completed in this trace.") && !page.contains("<h2 id=\"stages\""));
    assert!(!page.contains("<figure"));
    let text = terminal::block(&synthetic::empty_block(), &terminal::Style::default());
    for output in [&page, &text] {
        let words = output.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("No block I/O was recorded: "), "{output}");
        assert!(words.contains("flashscope record -- COMMAND") && !words.contains("0 block events"), "{output}");
    }
    // A report from before there were distributions.
    let mut old = serde_json::to_value(synthetic::block()).unwrap();
    for group in old["block"]["groups"].as_array_mut().unwrap() {
        group.as_object_mut().unwrap().remove("distributions");
    }
    let old: BlockReport = serde_json::from_value(old).unwrap();
    assert!(figures::block(&old).iter().all(|figure| !figure.id.starts_with("spread")));
}

#[test]
fn stages_that_were_not_seen_are_open_parts() {
    let mut report = synthetic::block();
    for group in &mut report.found.groups {
        group.stages.retain(|times| times.stage == "Q2C");
    }
    let figures = figures::block(&report);
    let stages = figures.iter().find(|figure| figure.id == "stages-owners").expect("a figure of stages");
    assert!(stages.svg.contains("no stage was seen") && stages.svg.contains("no stage seen, 100.0 % of Q2C"));
    assert!(!stages.svg.contains("D2C: in the device"));
}

#[test]
fn a_million_points_of_thousands_of_owners_stay_under_2_mb() {
    let mut report = synthetic::block();
    let found = &mut report.found;
    let long = |i: u64| format!("{} ({i})", "&".repeat(200));
    found.points.owners = (0..4000).map(long).collect();
    found.points.devices = (0..4).map(|i| format!("8:{i}")).collect();
    found.points.points = (0..1_000_000u64)
        .map(|i| IoPoint {
            time_ns: found.stages.begin_ns + i * 7919 % 1_000_003,
            sector: i * 104_729 % 30_000_001,
            device: (i % 4) as u16,
            kind: [RequestKind::Read, RequestKind::Write, RequestKind::Discard][(i % 3) as usize],
            owner: (i % 4000) as u16,
            below: i % 5 == 0,
            bios: 1,
            bytes: 512 << (i % 11),
            q2c_ns: i,
            longest_q2c_ns: i,
        })
        .collect();
    found.over_time.windows = found.over_time.windows.iter().copied().cycle().take(100_000).collect();
    let group = found.groups.iter().find(|g| g.by == GroupBy::Owner).expect("an owner").clone();
    let pair = found.interference.pairs[0].clone();
    let (owner, originator) = (found.interference.owners[0].clone(), found.originators.originators[0].clone());
    for i in 0..4000 {
        found.groups.push(flashscope_analysis::block::Group { name: long(i), ..group.clone() });
        let (victim, behind) = (long(i), long(i * 7 % 4000));
        found.interference.pairs.push(flashscope_analysis::block::WaitBehind { victim, behind, ..pair.clone() });
        found.interference.owners.push(flashscope_analysis::block::OwnerLoad { owner: long(i), ..owner.clone() });
        found
            .originators
            .originators
            .push(flashscope_analysis::block::Originator { name: long(i), ..originator.clone() });
    }
    let page = html::without_scripts(&html::block(&report));
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert!(!page.contains("Left out of this page"), "{} bytes", page.len());
    assert_well_formed("big", &page);
    // All of them are there, most summed up.
    assert!(page.contains("(further owners) (249,250 bios, "));
}

/// A recording that only reads wears nothing out, and meets errors all the same.
#[test]
fn errors_of_the_flash_are_told_where_nothing_was_written() {
    use flashscope_analysis::flash::Health;
    let mut report = synthetic::flash();
    let wear = report.found.wear.known_mut().expect("wear");
    (wear.programmed_pages, wear.erased_blocks) = (0, 0);
    report.health = vec![
        Health { mtd: 0, corrected_bits: 4, ecc_failures: 0, blocks_gone_bad: 0, bad_blocks: 0 },
        Health { mtd: 1, corrected_bits: 1, ecc_failures: 2, blocks_gone_bad: 0, bad_blocks: 3 },
    ];
    let line =
        "Errors of the flash: 2 reads that error correction could not restore, 5 bits restored by error correction.";
    assert_eq!(crate::wear_view::failed(&report).as_deref(), Some(line));
    let text = terminal::flash(&report, &terminal::Style { width: 120, top: None, colour: false });
    assert!(text.lines().any(|l| l.split_whitespace().eq(["mtd1", "2", "0", "1", "3"])), "{text}");
    assert!(html::flash(&report).contains(line));
    report.health = vec![Health { mtd: 1, corrected_bits: 0, ecc_failures: 0, blocks_gone_bad: 0, bad_blocks: 3 }];
    // Blocks that were bad before are no errors of this recording.
    assert_eq!(crate::wear_view::failed(&report), None);
}

/// A loop device without direct I/O: the page cache writes its bytes later.
#[test]
fn a_level_without_bios_has_no_mean_times() {
    let mut found = synthetic::block().found;
    let level = StackLevel { upper: "7:0".into(), cached_bytes: 1 << 20, ..StackLevel::default() };
    let one = StackLevel { upper_bios: 1, mean_q2c_ns: Some(5000), ..level.clone() };
    let (mean_down_ns, mean_up_ns, mean_below_ns) = (Some(0), Some(0), Some(0));
    found.stack = vec![level, StackLevel { mean_down_ns, mean_up_ns, mean_below_ns, ..one }];
    let rows = crate::block_view::stack(&found, 10).rows;
    assert_eq!(rows[0][2..], ["0", "0 B", "0", "0 B", "1 MiB", "", "", "", ""]);
    assert_eq!(rows[1][7..], ["0 ns", "0 ns", "0 ns", "5.0 µs"]);
}
