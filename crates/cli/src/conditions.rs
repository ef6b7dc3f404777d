//! `--fail-if`: the results of conditions as lines, exit status and JUnit XML.

use std::path::PathBuf;

use flashscope_analysis::Evidence;
use flashscope_analysis::comparison::{Checked, Condition, RunFigures};
use flashscope_report::visible;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::args::LimitArgs;
use crate::failure::Failure;
use crate::output;

/// A condition holds.
const CONDITION_HOLDS: u8 = 3;

/// Refuses conditions with names if names are replaced (`anonymize`).
pub fn without_names(limits: &LimitArgs, anonymize: bool) -> Result<(), Failure> {
    match limits.fail_if.iter().find(|condition| anonymize && condition.names_somebody()) {
        Some(named) => Err(Failure::usage(format!(
            "--fail-if '{}': with --anonymize nothing in the report has this name, and the JUnit file would show it; check it in a \
             run without --anonymize",
            named.text()
        ))),
        None => Ok(()),
    }
}

/// Refuses conditions that cannot be checked with one report, before the report is made. `anonymize`: names in it are replaced.
pub fn of_one_report(limits: &LimitArgs, anonymize: bool) -> Result<(), Failure> {
    without_names(limits, anonymize)?;
    match limits.fail_if.iter().find(|condition| condition.is_of_a_change()) {
        Some(change) => Err(Failure::usage(format!(
            "--fail-if '{}': regress compares two recordings; type flashscope diff BEFORE AFTER --fail-if …",
            change.text()
        ))),
        None => Ok(()),
    }
}

/// Checks the conditions with one report.
pub fn checked(limits: &LimitArgs, run: &RunFigures) -> Vec<Checked> {
    limits.fail_if.iter().for_each(|condition| of_nobody(condition, run));
    limits.fail_if.iter().map(|condition| condition.check(run)).collect()
}

/// Prints a note if no originator has the name in a condition: its bytes are 0, and the name may be misspelt.
pub fn of_nobody(condition: &Condition, run: &RunFigures) {
    if let Some(name) = condition.missing_name(run) {
        flashscope_output::note(&format!(
            "--fail-if '{}': the recording has no I/O of anybody called {name}; check the spelling",
            condition.text()
        ));
    }
}

/// Writes the JUnit XML.
pub fn write(limits: &LimitArgs, checked: &[Checked], inputs: &[PathBuf]) -> Result<(), Failure> {
    match &limits.junit {
        Some(path) => output::write(path, junit(checked)?.as_bytes(), &output::inputs(inputs), "--junit"),
        None => Ok(()),
    }
}

/// Prints the results. Ends the command with 3 if a condition holds, and with 1 if one could not be checked.
pub fn end(checked: &[Checked]) -> Result<(), Failure> {
    let mut status = 0;
    for one in checked {
        match &one.met {
            Evidence::Known(false) => {}
            Evidence::Known(true) => {
                status = CONDITION_HOLDS;
                flashscope_output::note(&format!("--fail-if '{}' holds: {}", one.condition, seen(one)));
            }
            Evidence::Unknown(why) => {
                status = if status == 0 { 1 } else { status };
                flashscope_output::note(&format!("--fail-if '{}' cannot be checked: {}", one.condition, why.missing));
            }
        }
    }
    if status == 0 { Ok(()) } else { Err(Failure::reported(status)) }
}

/// The figures that exceed the limit.
fn seen(checked: &Checked) -> String {
    let seen = checked.seen.iter().filter(|one| one.met).map(flashscope_report::outcome);
    seen.collect::<Vec<_>>().join(", ")
}

fn junit(checked: &[Checked]) -> Result<String, Failure> {
    let mut suite = TestSuite::new("flashscope");
    for one in checked {
        let status = match &one.met {
            Evidence::Known(false) => TestCaseStatus::success(),
            Evidence::Known(true) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(visible(&seen(one)));
                status
            }
            Evidence::Unknown(why) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                status.set_message(visible(&why.missing));
                status
            }
        };
        suite.add_test_case(TestCase::new(visible(&one.condition).into_owned(), status));
    }
    let mut report = Report::new("flashscope --fail-if");
    report.add_test_suite(suite);
    report.to_string().map_err(|error| Failure::new(format!("--junit: {error}")))
}
