//! Traces like those that people post, each with the right answer: `cases/NAME` has the input, and where it is from.

mod block;
mod formats;
mod further;
mod levels;
mod neighbours;
mod nulls;
mod owners;
mod rare;
mod readahead;
mod unknown;

use flashscope_tests::top;

/// The report of a case, or of another file, as JSON.
fn report(path: &str) -> serde_json::Value {
    let path = if path.starts_with('/') {
        std::path::PathBuf::from(path)
    } else {
        top().join("tests/cases").join(path).join("input")
    };
    flashscope_tests::report(path)
}
