//! JSON output: complete and stable, for other programs and for archives.

use flashscope_analysis::NamesFound;
use serde::Serialize;
use std::borrow::Cow;

pub use crate::names::BESIDE as NAMES_BESIDE;

/// A report with device names beside device numbers.
pub fn named(report: &impl Serialize, names: &NamesFound) -> String {
    if names.is_empty() {
        return any(report);
    }
    // Plain data cannot fail, as below.
    let mut value = serde_json::to_value(report).expect("plain data serialises");
    crate::names::add_to_json(&mut value, names);
    any(&value)
}

/// Indented JSON with a final newline. Characters that act on a terminal are escaped.
pub fn any(value: &impl Serialize) -> String {
    // Both documents are structs with string keys and plain values: serde_json cannot fail on them.
    let json = serde_json::to_string_pretty(value).expect("plain data serialises");
    let mut json = match flashscope_output::escaped_json(&json) {
        Cow::Borrowed(_) => json,
        Cow::Owned(escaped) => escaped,
    };
    json.push('\n');
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;
    use flashscope_analysis::FlashReport;
    use flashscope_analysis::block::BlockReport;
    use flashscope_study::StudyResult;

    #[test]
    fn json_reads_back_as_it_was() {
        let result = synthetic::study();
        assert_eq!(serde_json::from_str::<StudyResult>(&any(&result)).unwrap(), result);
        let report = synthetic::flash();
        assert_eq!(serde_json::from_str::<FlashReport>(&named(&report, &report.names)).unwrap(), report);
        let report = synthetic::block();
        assert_eq!(serde_json::from_str::<BlockReport>(&named(&report, &report.names)).unwrap(), report);
    }

    #[test]
    fn nothing_in_it_acts_on_a_terminal() {
        // Text that is passed through unchanged has no such characters.
        assert!((b' '..=b'~').all(|byte| !crate::text::acts(char::from(byte))));
        assert_eq!(any(&["\u{7f}~ é"]), "[\n  \"\\u007f~ é\"\n]\n");
        assert_eq!(any(&["\t~ "]), "[\n  \"\\t~ \"\n]\n");
        let mut result = synthetic::study();
        result.header.title = "\u{1b}[2J\u{9b}31m\u{202e}\u{e0001}".into();
        let json = any(&result);
        assert!(!json.chars().any(|c| c != '\n' && crate::text::acts(c)), "{json}");
        assert_eq!(serde_json::from_str::<StudyResult>(&json).unwrap(), result);
    }
}
