//! All findings of a trace, with causes, sources, steps and risks.

use flashscope_analysis::findings::{Finding, Rule, Step};
use flashscope_output::quote;
use flashscope_report::findings_view;
use flashscope_report::terminal::text;
use flashscope_report::visible;
use flashscope_trace::Facts;

use super::{Printed, SCHEMA};
use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::report;
use crate::study::style;

/// Empty if the trace has no events for the rules.
pub fn of_trace(inputs: &Inputs) -> Result<Vec<Finding>, Failure> {
    let args = ReportArgs::default();
    if inputs.traces().any(report::is_of_block_io) {
        Ok(report::block_report(inputs, &args)?.findings)
    } else if inputs.traces().any(report::is_of_flash) {
        Ok(report::flash_report(inputs, &args)?.findings)
    } else {
        Ok(Vec::new())
    }
}

/// If read-ahead is off, the finding turns it on with a default window. A predicted window replaces that, so that a setting has one value.
pub fn with_window(found: &[Finding], kib: Option<u64>, facts: &Facts, knobs: &[String]) -> Vec<Finding> {
    let mut found = found.to_vec();
    let Some(kib) = kib else { return found };
    let is_known = |name: &str| {
        let number =
            facts.block.iter().find(|disk| disk.name.as_deref() == Some(name)).and_then(|disk| disk.device.as_ref());
        number.is_some_and(|number| knobs.contains(number))
    };
    let small_reads = found.iter_mut().filter(|finding| finding.rule == Rule::SmallReads);
    for step in small_reads.flat_map(|finding| &mut finding.advice).flat_map(|remedy| &mut remedy.steps) {
        if let Step::Set { path, value } = step
            && let Some(name) =
                path.strip_prefix("/sys/block/").and_then(|rest| rest.strip_suffix("/queue/read_ahead_kb"))
            && is_known(name)
        {
            *value = kib.to_string();
        }
    }
    found
}

/// Prints findings as text; prints nothing without findings.
pub fn print(findings: &[Finding]) -> Result<(), Failure> {
    let style = style();
    for (number, finding) in findings.iter().enumerate() {
        out!("{}", text(&format!("{}. {}", number + 1, finding.what), &style, 0, 3));
        let tell = |what: &str, said: &str| text(&format!("{what}: {said}"), &style, 3, 5);
        if !finding.cause.is_empty() {
            out!("{}", tell("Cause", &finding.cause));
        }
        for line in findings_view::sources(finding) {
            out!("{}", tell("Evidence", &line));
        }
        if let Some(why) = &finding.uncertain {
            out!("{}", tell("Uncertain", why));
        }
        for remedy in &finding.advice {
            out!("{}", tell("Do", &remedy.what));
            for step in &remedy.steps {
                // A command to type stays on one line.
                outln!("     {}", visible(&findings_view::step(step)));
            }
            out!("{}", tell("Gain", &findings_view::gain(remedy)));
            out!("{}", tell("Risk", &remedy.risk));
        }
        outln!();
    }
    Ok(())
}

/// Prints only the findings, for a trace without read-ahead events. Returns `why` if there is no finding.
pub fn print_only(findings: &[Finding], json: bool, why: Failure) -> Result<(), Failure> {
    if findings.is_empty() {
        return Err(why);
    }
    let note = format!("Read-ahead is not weighed: {why}");
    if json {
        let all = Printed { schema: SCHEMA, findings, advice: Vec::new(), notes: vec![note], readahead: None };
        out!("{}", flashscope_report::json::any(&all));
    } else {
        print(findings)?;
        out!("{}", text(&note, &style(), 0, 0));
    }
    Ok(())
}

/// The run-time changes that findings recommend: files below /sys with their values, mount points with their options. Only changes with a
/// known gain: others are not applied.
pub fn knobs(findings: &[Finding]) -> Vec<(String, String)> {
    let steps = findings.iter().flat_map(|finding| &finding.advice);
    let steps = steps.filter(|remedy| remedy.gain.known().is_some()).flat_map(|remedy| &remedy.steps);
    let mut knobs: Vec<(String, String)> = Vec::new();
    for step in steps {
        let knob = match step {
            // A value that is not offered as a command is not set either.
            Step::Set { path, value } if quote::sysfs_file(path).is_some() => (path, value),
            Step::Remount { target, options, .. } if quote::mount_point(target).is_some() => (target, options),
            _ => continue,
        };
        // Of two values for one file, the first counts; a mount may have several options.
        let is_same =
            |(path, value): &(String, String)| path == knob.0 && (matches!(step, Step::Set { .. }) || value == knob.1);
        if !knobs.iter().any(is_same) {
            knobs.push((knob.0.clone(), knob.1.clone()));
        }
    }
    knobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_analysis::Evidence;
    use flashscope_analysis::findings::{Remedy, Weight};

    #[test]
    fn a_setting_has_the_value_that_is_predicted() {
        let facts = Facts::of(
            &serde_json::json!({"block": [{"name": "loop1", "device": "7:1"}, {"name": "sda", "device": "8:0"}]}),
        );
        let of = |name: &str, kib| {
            let path = format!("/sys/block/{name}/queue/read_ahead_kb");
            let finding = Finding {
                rule: Rule::SmallReads,
                weight: Weight::Cost,
                processes: Vec::new(),
                what: String::new(),
                cause: String::new(),
                evidence: Vec::new(),
                lost_ns: Evidence::unknown("", ""),
                lost_bytes: None,
                advice: vec![Remedy {
                    what: String::new(),
                    steps: vec![Step::Set { path, value: "64".to_owned() }],
                    gain: Evidence::unknown("", ""),
                    risk: String::new(),
                }],
                uncertain: None,
            };
            let found = with_window(&[finding], kib, &facts, &["7:1".to_owned()]);
            match &found[0].advice[0].steps[0] {
                Step::Set { value, .. } => value.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!([of("loop1", Some(32)), of("loop1", None), of("sda", Some(32))], ["32", "64", "64"]);
    }
}
