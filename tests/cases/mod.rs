//! Traces like those that people post, each with the right answer: `cases/NAME` has the input, and where it is from.

mod block;
mod commands;
mod formats;
mod further;
mod levels;
mod neighbours;
mod nulls;
mod owners;
mod rare;
mod readahead;
mod unknown;

use flashscope_tests::{flashscope, stdout, top};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn input(case: impl AsRef<Path>) -> PathBuf {
    top().join("tests/cases").join(case).join("input")
}

/// The report of a case, or of another file, as JSON.
fn report(of: impl AsRef<Path>) -> Value {
    let of = of.as_ref();
    flashscope_tests::report(if of.is_absolute() { of.to_owned() } else { input(of) })
}

/// The report of a case, as it is printed.
fn text(case: &str) -> String {
    stdout(flashscope().arg("report").arg(input(case)))
}

/// The rows of a case that `export` writes.
fn rows(case: &str, of: &str) -> Vec<Value> {
    let text = stdout(flashscope().arg("export").arg(input(case)).args(["--rows", of, "--to", "json", "-o", "-"]));
    text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

/// Number, least and most of a stage, of all I/O, in nanoseconds.
fn stage(report: &Value, name: &str) -> [u64; 3] {
    let groups = report["block"]["groups"].as_array().expect("groups");
    let all = groups.iter().find(|group| group["by"] == "all").expect("a group of all");
    let times = all["stages"].as_array().expect("stages").iter().find(|one| one["stage"] == name);
    let ns = times.map_or(&Value::Null, |times| &times["ns"]);
    ["n", "min", "max"].map(|figure| ns[figure].as_u64().unwrap_or(0))
}

fn count(report: &Value, what: &str) -> u64 {
    report["block"]["stages"][what].as_u64().unwrap_or_else(|| panic!("no {what}"))
}

/// Losses that are not 0.
fn lost(report: &Value) -> Vec<String> {
    let losses = report["losses"].as_array().expect("losses").iter().filter(|loss| loss["count"] != 0);
    losses.map(|loss| format!("{} {}", loss["name"].as_str().expect("a name"), loss["count"])).collect()
}
