//! `--fail-if`: what conditions came to, as lines, exit status and JUnit XML.

use std::path::{Path, PathBuf};

use flashscope_analysis::Evidence;
use flashscope_analysis::comparison::{Checked, RunFigures};
use flashscope_output::FileId;
use flashscope_report::visible;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::args::LimitArgs;
use crate::failure::Failure;
use crate::output;

/// A condition holds.
const CONDITION_HOLDS: u8 = 3;

/// The other files of the command: none of them may become the JUnit XML.
pub struct Files<'a> {
    pub inputs: &'a [PathBuf],
    pub page: Option<&'a Path>,
}

/// Looks at one report.
pub fn check(limits: &LimitArgs, run: &RunFigures, files: &Files<'_>) -> Result<(), Failure> {
    if let Some(change) = limits.fail_if.iter().find(|condition| condition.is_of_a_change()) {
        return Err(Failure::usage(format!(
            "--fail-if '{}': regress compares two recordings; type flashscope diff BEFORE AFTER --fail-if …",
            change.text()
        )));
    }
    let checked: Vec<Checked> = limits.fail_if.iter().map(|condition| condition.check(run)).collect();
    end(limits, &checked, files)
}

/// Says what they came to, and ends the command with 3 where one holds, 1 where one could not be checked.
pub fn end(limits: &LimitArgs, checked: &[Checked], files: &Files<'_>) -> Result<(), Failure> {
    if let Some(path) = &limits.junit {
        let is_the_page = |page: &Path| FileId::of(path).is_some_and(|file| FileId::of(page) == Some(file));
        if files.page.is_some_and(is_the_page) && path.is_file() {
            return Err(Failure::usage(format!("{}: --html and --junit name the same file; name two", path.display())));
        }
        output::write(path, junit(checked)?.as_bytes(), &output::inputs(files.inputs), "--junit")?;
    }
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
    if status == 0 { Ok(()) } else { Err(Failure::told(status)) }
}

/// The figures that break the limit.
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
