//! Sentences and tables about a comparison, shared by the terminal and the HTML page.

use crate::text::{counted, duration, grouped};
use flashscope_analysis::Evidence;
use flashscope_analysis::comparison::{Better, Change, Comparison, FigureUnit, FindingOnSides, Outcome, OutcomeUnit};

pub struct Head<'a> {
    /// The main change, in one sentence.
    pub answer: String,
    pub notes: Vec<String>,
    /// Changed figures, largest effect first: changes beyond the variation, or all changes if the variation is unknown. A figure that says
    /// nearly the same as its neighbour is left out.
    pub changed: Vec<&'a Change>,
    /// The command to type next.
    pub next: Option<&'a str>,
}

pub fn head(comparison: &Comparison) -> Head<'_> {
    let changed: Vec<&Change> = comparison.changes.iter().filter(|change| change.is_beyond_variation()).collect();
    let all = comparison.changes.len() as u64;
    let repeated = comparison.changes.iter().all(|change| change.confidence.known().is_some());
    let of_times = changed.iter().filter(|change| change.better == Better::Lower);
    let (worse, better): (Vec<&Change>, Vec<&Change>) =
        of_times.copied().partition(|change| change.after > change.before);
    let how = if repeated { "beyond run-to-run variation" } else { "(run-to-run variation unknown)" };
    let mut answer = match changed.len() as u64 {
        0 => format!("No figure of {} changed {how}.", grouped(all)),
        n => format!(
            "{} of {} changed {how}: {} worse, {} better, {} of how much was done.",
            counted(n, "figure"),
            grouped(all),
            worse.len(),
            better.len(),
            n as usize - worse.len() - better.len()
        ),
    };
    let longest = |changes: &[&Change]| changes.iter().find(|change| change.percent.is_some()).copied().cloned();
    for (word, change) in [("Worst", longest(&worse)), ("Best", longest(&better))] {
        if let Some(change) = change {
            answer += &format!(
                " {word}: {} {} → {} ({}).",
                change.figure,
                figure_value(change.unit, change.before),
                figure_value(change.unit, change.after),
                percent(&change)
            );
        }
    }
    let in_calls = |change: &&&Change| change.figure.starts_with("time(") && change.figure.contains("app=");
    if let Some(change) = changed.iter().find(in_calls) {
        answer += &format!(
            " In calls: {} {} → {} ({}).",
            change.figure,
            figure_value(change.unit, change.before),
            figure_value(change.unit, change.after),
            percent(change)
        );
    }
    let mut notes = vec![format!(
        "before: {} ({:.2} s), after: {} ({:.2} s)",
        comparison.before.join(", "),
        comparison.before_seconds,
        comparison.after.join(", "),
        comparison.after_seconds
    )];
    if !comparison.as_requests.is_empty() {
        notes.push(format!(
            "not every recording has queueing, so requests are compared with requests, from issue to completion, by who issued \
             them; queueing and findings of {} are left out",
            comparison.as_requests.join(", ")
        ));
    }
    let (short, long) = (
        comparison.before_seconds.min(comparison.after_seconds),
        comparison.before_seconds.max(comparison.after_seconds),
    );
    if long > short * MOST_LONGER {
        notes.push("one side is much longer than the other: compare its times, not its bytes and counts".to_owned());
    }
    if comparison.lost > 0 {
        notes.push(format!(
            "these recordings are not complete (their losses: {}): some figures may be of fewer I/Os than there were",
            grouped(comparison.lost)
        ));
    }
    for (side, only) in [("before", &comparison.only_before), ("after", &comparison.only_after)] {
        if !only.is_empty() {
            notes.push(format!("{} only {side}, for example {}", counted(only.len() as u64, "figure"), only[0]));
        }
    }
    let next = comparison.changes.iter().find_map(|change| change.confidence.why()).map(|why| why.next.as_str());
    let changed = changed.into_iter().filter(|change| !is_between(&change.figure)).collect();
    Head { answer, notes, changed, next }
}

/// Where a finding occurs.
pub fn sides(finding: &FindingOnSides) -> &'static str {
    match (finding.before.is_empty(), finding.after.is_empty()) {
        (false, true) => "only before",
        (true, false) => "only after",
        _ => "on both sides",
    }
}

/// All sentences of one side.
pub fn joined(sentences: &[String]) -> String {
    if sentences.is_empty() { "nothing".to_owned() } else { sentences.join(" ") }
}

/// A recording that is longer than the other by more than this factor contains other work.
const MOST_LONGER: f64 = 1.2;

/// Percentiles between p50, p99 and the longest value, which are shown anyway.
fn is_between(figure: &str) -> bool {
    figure.starts_with("p90(") || figure.starts_with("p999(")
}

/// The value in units for readers.
pub fn figure_value(unit: FigureUnit, value: f64) -> String {
    /// The limit up to which an f64 represents every integer (2⁵³): larger values have no exact digits.
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    if value.abs() >= WHOLE {
        let unit = match unit {
            FigureUnit::Nanoseconds => " ns",
            FigureUnit::Bytes => " bytes",
            FigureUnit::Count | FigureUnit::Number => "",
        };
        return format!("{value:.3e}{unit}");
    }
    match unit {
        FigureUnit::Nanoseconds => duration(value.max(0.0).round() as u64),
        FigureUnit::Bytes => crate::text::size(value.max(0.0).round() as u64),
        FigureUnit::Count if value.fract() == 0.0 && value >= 0.0 => grouped(value as u64),
        FigureUnit::Count | FigureUnit::Number => {
            format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

pub fn percent(change: &Change) -> String {
    change.percent.map_or_else(|| "from 0".to_owned(), |percent| format!("{percent:+.1} %"))
}

/// The interval of the change; "unknown" without repetitions.
pub fn interval(change: &Change) -> String {
    match &change.confidence {
        Evidence::Known(range) => {
            let signed = |value: f64| {
                format!("{}{}", if value < 0.0 { "−" } else { "+" }, figure_value(change.unit, value.abs()))
            };
            format!("{} to {}", signed(range.from), signed(range.to))
        }
        Evidence::Unknown(_) => "unknown".to_owned(),
    }
}

/// The figure of a condition: "p99(fsync) is 240.00 ms".
pub fn outcome(outcome: &Outcome) -> String {
    let value = match outcome.unit {
        OutcomeUnit::Figure(unit) => figure_value(unit, outcome.value),
        OutcomeUnit::PerSecond(unit) => format!("{}/s", figure_value(unit, outcome.value)),
        OutcomeUnit::Percent => format!("{:+.1} %", outcome.value),
    };
    format!("{} is {value}", outcome.figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_for_digits_has_an_exponent() {
        for (unit, value, shown) in [
            (FigureUnit::Number, 1e308, "1.000e308"),
            (FigureUnit::Number, -1e308, "-1.000e308"),
            (FigureUnit::Count, 1e300, "1.000e300"),
            (FigureUnit::Nanoseconds, 1e30, "1.000e30 ns"),
            (FigureUnit::Bytes, 1e30, "1.000e30 bytes"),
            (FigureUnit::Count, 1234.0, "1,234"),
            (FigureUnit::Number, 0.5, "0.5"),
        ] {
            assert_eq!(figure_value(unit, value), shown);
        }
    }
}
