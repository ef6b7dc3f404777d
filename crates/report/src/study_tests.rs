//! What must hold of the renderers of studies of runs and of booting, whatever their names and numbers are.

use crate::tests::{NASTY, assert_well_formed, changed};
use crate::{figures, html, json, reproduction, synthetic_studies, terminal};
use flashscope_study::boot::BootResult;
use flashscope_study::runs::RunsResult;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A document with every string and number changed but the names of kinds.
fn of<T: Serialize + DeserializeOwned>(document: &T, text: &dyn Fn(&str) -> String, number: Option<u64>) -> T {
    let mut value = serde_json::to_value(document).unwrap();
    let before = value.clone();
    changed(&mut value, text, number);
    // How a run is recorded is one of a few words.
    for list in ["groups", "costs", "spreads"] {
        for (at, one) in before[list].as_array().into_iter().flatten().enumerate() {
            if let Some(tracer) = one.get("tracer") {
                value[list][at]["tracer"] = tracer.clone();
            }
        }
    }
    serde_json::from_value(value).unwrap()
}

fn outputs(runs: &RunsResult, boot: &BootResult) -> Vec<(String, String)> {
    let mut outputs = vec![
        ("runs.html".to_owned(), html::without_scripts(&html::runs_study(runs))),
        ("boot.html".to_owned(), html::without_scripts(&html::boot_study(boot))),
        ("runs.json".to_owned(), json::any(runs)),
        ("boot.json".to_owned(), json::any(boot)),
        ("runs.md".to_owned(), reproduction::runs(runs)),
    ];
    for width in [0, 40, 80, 200] {
        let style = terminal::Style { width, top: None, colour: false };
        outputs.push((format!("runs {width}"), terminal::runs_study(runs, &style)));
        outputs.push((format!("boot {width}"), terminal::boot_study(boot, &style)));
    }
    let drawn = figures::runs_study(runs).into_iter().chain(figures::boot_study(boot));
    outputs.extend(drawn.map(|figure| (format!("{}.svg", figure.id), figure.standalone())));
    outputs
}

#[test]
fn nothing_of_runs_and_boots_that_is_shown_acts() {
    let text = |_: &str| NASTY.to_owned();
    let runs = of(&synthetic_studies::runs(), &text, None);
    let boot = of(&synthetic_studies::boot(), &text, None);
    let all = outputs(&runs, &boot);
    let figures: Vec<&String> = all.iter().map(|(name, _)| name).filter(|name| name.ends_with("svg")).collect();
    assert!(figures.len() >= 4, "figures are drawn");
    // They become names of files.
    assert!(figures.iter().all(|name| !name.contains(['/', '\n', ' '])), "{figures:?}");
    for (name, text) in all {
        for c in text.chars().filter(|&c| c != '\n') {
            assert!(!crate::text::acts(c), "{name}: {c:?} in {:?}", around(&text, c));
        }
        if name.ends_with("html") || name.ends_with("svg") {
            assert!(!text.contains("<script") && !text.contains("<img"), "{name}");
            assert!(text.contains("&lt;script&gt;alert(1)"), "{name}: the name is not shown at all");
            assert_well_formed(&name, &text);
        }
        if name.ends_with("md") {
            assert!(!text.contains("<script") && !text.contains("<img") && text.contains("&lt;script&gt;"), "{text}");
        }
    }
}

#[test]
fn odd_numbers_of_runs_and_boots_break_nothing() {
    for number in [0, 1, 65_535] {
        let keep = |value: &str| value.to_owned();
        let mut runs: RunsResult = of(&synthetic_studies::runs(), &keep, Some(number));
        let mut boot: BootResult = of(&synthetic_studies::boot(), &keep, Some(number));
        for (name, text) in outputs(&runs, &boot) {
            assert!(!text.contains("NaN") && !text.contains("inf "), "{name} at {number}");
        }
        for group in &mut runs.groups {
            group.total_ns = u64::MAX;
            for part in &mut group.parts {
                (part.begin_ns, part.end_ns) = (u64::MAX, 0);
            }
            group.timelines.iter_mut().for_each(|timeline| timeline.points.truncate(1));
        }
        for row in runs.published.iter_mut().chain(&mut boot.published) {
            (row.published_max, row.ours) = (f64::INFINITY, Some(f64::NAN));
        }
        for boot in boot.groups.iter_mut().flat_map(|group| &mut group.boots) {
            (boot.begin_ns, boot.mounted_ns, boot.prompt_ns) = (u64::MAX, u64::MAX, 0);
            boot.timeline.points.clear();
        }
        for (name, text) in outputs(&runs, &boot) {
            assert!(!text.contains("NaN"), "{name} at {number}");
            if name.ends_with("svg") || name.ends_with("html") {
                assert_well_formed(&name, &text);
            }
        }
    }
}

#[test]
fn runs_and_boots_with_nothing_in_them_are_documents() {
    let (mut runs, mut boot) = (synthetic_studies::runs(), synthetic_studies::boot());
    runs.groups.clear();
    runs.costs.clear();
    runs.spreads.clear();
    runs.published.clear();
    boot.groups[0].boots.clear();
    boot.published.clear();
    for (name, text) in outputs(&runs, &boot) {
        assert!(!text.is_empty() || name == "runs.md", "{name}");
    }
    let without: Value = serde_json::from_str(&json::any(&runs)).unwrap();
    assert_eq!(without["groups"], serde_json::json!([]));
}

/// Where a character first stands.
fn around(text: &str, c: char) -> String {
    let before = text.split(c).next().unwrap_or_default();
    before.chars().rev().take(80).collect::<Vec<_>>().into_iter().rev().collect()
}
