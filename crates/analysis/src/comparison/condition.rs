//! Conditions on figures, as `--fail-if` takes them: `p99(d2c, write, mmcblk0) > 20ms`.

use super::change::{Change, Comparison, RunFigures};
use super::figures::{Better, Figure, FigureUnit, UnknownFigure};
use crate::Evidence;
use crate::block::Unit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The syntax of a condition.
pub const GRAMMAR: &str = "\
FIGURE > VALUE or FIGURE < VALUE, where FIGURE is
  mean|p50|p90|p99|p999|max(STAGE[, read|write|discard, DEVICE])   STAGE: q2c, d2c, q2d, i2d, …
  mean|p50|p90|p99|p999|max(fsync|flush)
  mean|p50|p90|p99|p999|max(q2c|d2c, app=NAME)
  time(CALL[, app=NAME])                                           all calls together: read, fsync, openat, …
  bytes([read|write, DEVICE]), bytes([read|write,] app=NAME), bios, errors, retries
  reads, programs, erases, each also (app=NAME)                    raw NAND
  regress or regress(WHAT, …)                                      diff: a time or error count that grew
and VALUE is a number with ns, us, ms, s, B, KiB, MiB, GiB, kB, MB, GB or %, and /s, /min or /h for a rate.
Examples: 'p99(d2c, write, mmcblk0) > 20ms'  'bytes(app=logd) > 1MiB/min'  'errors > 0'  'regress > 10%'";

/// Most figures that a message lists.
const MOST_LISTED: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Time,
    Bytes,
    Percent,
    Plain,
}

/// A condition on a figure. It is met where there is a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    function: String,
    /// Key (or empty) and name.
    arguments: Vec<(String, String)>,
    above: bool,
    limit: f64,
    unit: Quantity,
    /// For a rate: the seconds of its limit.
    per_seconds: Option<f64>,
}

/// The result of a condition.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Checked {
    pub condition: String,
    /// Whether it is met, which means failure; or why that is unknown.
    pub met: Evidence<bool>,
    /// The figures that were checked, worst first.
    pub seen: Vec<Outcome>,
}

/// Unit of a checked figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeUnit {
    Figure(FigureUnit),
    PerSecond(FigureUnit),
    /// Growth in per cent.
    Percent,
}

/// A figure that a condition checked.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Outcome {
    pub figure: String,
    pub unit: OutcomeUnit,
    pub value: f64,
    pub met: bool,
}

impl Condition {
    /// Parses a condition. The error names the wrong part.
    pub fn parse(text: &str) -> Result<Condition, String> {
        // The last one: a task without a name is shown as <...>.
        let at = text.rfind(['<', '>']).ok_or("a > or < is missing")?;
        let (figure, rest) = text.split_at(at);
        let (above, value) = (rest.starts_with('>'), rest[1..].trim());
        let value = value.strip_prefix('=').map_or(Ok(value), |_| Err("compare by > or <"))?;
        let figure = figure.trim();
        let (function, arguments) = match figure.split_once('(') {
            None => (figure, ""),
            Some((function, rest)) => {
                (function.trim(), rest.strip_suffix(')').ok_or_else(|| format!("the ) of {figure} is missing"))?)
            }
        };
        if function.is_empty() || !function.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(format!("\"{function}\" is not the name of a figure"));
        }
        let arguments: Vec<(String, String)> =
            between_commas(arguments).map(str::trim).filter(|one| !one.is_empty()).map(argument).collect();
        let (limit, unit, per_seconds) = limit(value)?;
        let regress = function.eq_ignore_ascii_case("regress");
        if regress && (unit != Quantity::Percent || per_seconds.is_some() || !above) {
            return Err("regress is compared as > with a percentage".into());
        }
        if !regress && unit == Quantity::Percent {
            return Err(format!("{function} is not a percentage"));
        }
        Ok(Condition {
            text: text.trim().to_owned(),
            function: function.to_owned(),
            arguments,
            above,
            limit,
            unit,
            per_seconds,
        })
    }

    /// The condition as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it compares two sides.
    pub fn is_of_a_change(&self) -> bool {
        self.function.eq_ignore_ascii_case("regress")
    }

    /// Whether it names an application or a process.
    pub fn names_somebody(&self) -> bool {
        self.arguments.iter().any(|(key, _)| matches!(key.as_str(), "app" | "process"))
    }

    /// The name in a condition on bytes, if the recording has none of that name. An owner that did nothing has 0 bytes; a misspelled name
    /// looks the same.
    pub fn missing_name(&self, run: &RunFigures) -> Option<&str> {
        let is_there = run.figures.iter().any(|figure| figure.is_asked_for(&self.function, &self.arguments));
        let named = self.arguments.iter().find(|(key, _)| matches!(key.as_str(), "app" | "process"));
        named.map(|(_, name)| name.as_str()).filter(|_| !is_there && self.function.eq_ignore_ascii_case("bytes"))
    }

    /// Checks one recording.
    pub fn check(&self, run: &RunFigures) -> Checked {
        let figures: Vec<&Figure> =
            run.figures.iter().filter(|figure| figure.is_asked_for(&self.function, &self.arguments)).collect();
        if figures.is_empty()
            && !(self.names_somebody() && self.function == "bytes" && run.unattributed_bytes.is_some())
        {
            return self.unknown_figure(run).unwrap_or_else(|| self.unknown(self.no_such_figure(run)));
        }
        if let Some(wrong) = figures.iter().find(|figure| !self.fits(figure.unit)) {
            return self.unknown(format!("{} is {}", wrong.name(), its_unit(wrong.unit)));
        }
        let per_second = |value: f64| match (self.per_seconds, run.seconds) {
            (None, _) => Some(value),
            (Some(_), seconds) if seconds > 0.0 => Some(value / seconds),
            _ => None,
        };
        let mut values: Vec<(String, f64)> = figures.iter().map(|figure| (figure.name(), figure.value)).collect();
        let sums = figures.iter().all(|figure| figure.is_a_sum());
        if sums {
            // Several owners of that name, or none.
            values = vec![(self.figure_name(), values.iter().map(|(_, value)| value).sum())];
        }
        let unit = figures.first().map_or(FigureUnit::Bytes, |figure| figure.unit);
        let unit = if self.per_seconds.is_some() { OutcomeUnit::PerSecond(unit) } else { OutcomeUnit::Figure(unit) };
        let mut seen = Vec::new();
        for (figure, value) in values {
            let Some(value) = per_second(value) else {
                return self.unknown("a rate needs events at different times".into());
            };
            seen.push(Outcome { figure, unit, value, met: self.is_met(value) });
        }
        seen.sort_by(|a, b| b.value.total_cmp(&a.value));
        let met = seen.iter().any(|one| one.met);
        if self.names_somebody()
            && self.above
            && !met
            && let Some(more) = run.unattributed_bytes.filter(|&bytes| bytes > 0 && self.unit == Quantity::Bytes)
            && let Some(at_most) = per_second(
                seen.first().map_or(0.0, |one| one.value * run.seconds_or_one(self.per_seconds)) + more as f64,
            )
            && self.is_met(at_most)
        {
            let why = format!("{more} bytes of unknown owners may be its own");
            return Checked { seen, ..self.unknown(why) };
        }
        Checked { condition: self.text.clone(), met: Evidence::Known(met), seen }
    }

    /// Checks a comparison: `regress` checks the changes for the worse, all others the later side.
    pub fn check_change(&self, comparison: &Comparison, after: &RunFigures) -> Checked {
        if !self.is_of_a_change() {
            return self.check(after);
        }
        let is_asked_for = |change: &&Change| {
            let figure = after.figures.iter().find(|figure| figure.name() == change.figure);
            change.better == Better::Lower && figure.is_some_and(|figure| figure.has(&self.arguments))
        };
        let (few, enough): (Vec<&Change>, Vec<&Change>) =
            comparison.changes.iter().filter(is_asked_for).partition(|change| change.is_of_too_few());
        if enough.is_empty()
            && let Some(change) = few.first()
        {
            return self.unknown(format!(
                "{} is a tail of too few times to be compared: record for longer, or each side three times or more",
                change.figure
            ));
        }
        if enough.is_empty() {
            return self.unknown(self.no_such_change(comparison));
        }
        let mut seen: Vec<Outcome> = enough
            .into_iter()
            .filter(|change| change.is_beyond_variation())
            .map(|change| match change.percent {
                Some(value) => Outcome {
                    figure: change.figure.clone(),
                    unit: OutcomeUnit::Percent,
                    value,
                    met: value > self.limit,
                },
                // From 0 there is no percentage.
                None => Outcome {
                    figure: change.figure.clone(),
                    unit: OutcomeUnit::Figure(change.unit),
                    value: change.after,
                    met: change.after > 0.0,
                },
            })
            .collect();
        seen.sort_by(|a, b| b.met.cmp(&a.met).then(b.value.total_cmp(&a.value)));
        seen.truncate(MOST_LISTED);
        let met = seen.iter().any(|one| one.met);
        Checked { condition: self.text.clone(), met: Evidence::Known(met), seen }
    }

    fn is_met(&self, value: f64) -> bool {
        let limit = self.limit / self.per_seconds.unwrap_or(1.0);
        if self.above { value > limit } else { value < limit }
    }

    fn fits(&self, unit: FigureUnit) -> bool {
        match unit {
            FigureUnit::Nanoseconds => self.unit == Quantity::Time && self.per_seconds.is_none(),
            FigureUnit::Bytes => matches!(self.unit, Quantity::Bytes),
            FigureUnit::Count | FigureUnit::Number => self.unit == Quantity::Plain,
        }
    }

    fn figure_name(&self) -> String {
        self.text.rsplit_once(['<', '>']).map_or("", |(figure, _)| figure).trim().to_owned()
    }

    fn unknown(&self, why: String) -> Checked {
        Checked { condition: self.text.clone(), met: Evidence::unknown(why, ""), seen: Vec::new() }
    }

    /// For a figure that this trace cannot show: its reason, unless its lower bound already decides.
    fn unknown_figure(&self, run: &RunFigures) -> Option<Checked> {
        let of_all =
            |figure: &&Figure| figure.has(&[(String::new(), self.function.clone())]) && figure.has(&self.arguments);
        let is_named =
            |one: &&UnknownFigure| one.name.eq_ignore_ascii_case(&self.function) && self.arguments.is_empty();
        let Some(unknown) = run.unknown.iter().find(is_named) else {
            // Totals of times are unknown for the same reason as the number of bios.
            let total = run.unknown.iter().find(|one| one.name == "bios" && run.unit == Some(Unit::Bio))?;
            run.figures.iter().find(of_all)?;
            return Some(self.unknown(total.why.missing.clone()));
        };
        let value = unknown.at_least as f64;
        if self.above && self.fits(FigureUnit::Count) && self.per_seconds.is_none() && self.is_met(value) {
            let figure = format!("{} (at least)", unknown.name);
            let seen = vec![Outcome { figure, unit: OutcomeUnit::Figure(FigureUnit::Count), value, met: true }];
            return Some(Checked { condition: self.text.clone(), met: Evidence::Known(true), seen });
        }
        Some(self.unknown(unknown.why.missing.clone()))
    }

    fn no_such_change(&self, comparison: &Comparison) -> String {
        let lower = comparison.changes.iter().filter(|change| change.better == Better::Lower);
        let names: Vec<String> = lower.map(|change| change.figure.clone()).collect();
        match names.is_empty() {
            true => "the two sides have no time and no error count in common".into(),
            false => format!("the two sides have no {} in common; they have {}", self.figure_name(), listed(names)),
        }
    }

    fn no_such_figure(&self, run: &RunFigures) -> String {
        let close = |figure: &&Figure| figure.has(&[(String::new(), self.function.clone())]);
        let mut names: Vec<String> = run.figures.iter().filter(close).map(Figure::name).collect();
        if names.is_empty() {
            names = run.figures.iter().map(Figure::name).collect();
        }
        match names.is_empty() {
            true => "this trace has no figures".into(),
            false => format!("this trace has no figure {}; it has {}", self.figure_name(), listed(names)),
        }
    }
}

/// The unit of a figure, and the form of its limit.
fn its_unit(unit: FigureUnit) -> &'static str {
    match unit {
        FigureUnit::Nanoseconds => "a time: give the limit in ns, us, ms or s, without a rate",
        FigureUnit::Bytes => "a number of bytes: give the limit in B, kB, MB, GB, KiB, MiB or GiB",
        FigureUnit::Count | FigureUnit::Number => "a number: give the limit without a unit",
    }
}

fn listed(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(MOST_LISTED);
    names.truncate(MOST_LISTED);
    let further = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &further
}

/// Parts between commas, except commas within brackets of a name: `mmcblk0p2 (ext4, /data)`.
fn between_commas(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// `app=logd`, or a name alone.
fn argument(text: &str) -> (String, String) {
    match text.split_once('=') {
        Some((key, name)) => (key.trim().to_ascii_lowercase(), name.trim().to_owned()),
        None => (String::new(), text.to_owned()),
    }
}

/// `20ms`, `1MiB/min`, `10%`.
fn limit(text: &str) -> Result<(f64, Quantity, Option<f64>), String> {
    let (value, per) = match text.split_once('/') {
        Some((value, per)) => (value.trim(), Some(per.trim())),
        None => (text, None),
    };
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let number: f64 = number.parse().map_err(|_| format!("\"{text}\" is not a value"))?;
    let (factor, unit) = match unit.trim() {
        "" => (1.0, Quantity::Plain),
        "%" => (1.0, Quantity::Percent),
        "ns" => (1.0, Quantity::Time),
        "us" | "µs" => (1e3, Quantity::Time),
        "ms" => (1e6, Quantity::Time),
        "s" => (1e9, Quantity::Time),
        "B" => (1.0, Quantity::Bytes),
        "kB" | "KB" => (1e3, Quantity::Bytes),
        "MB" => (1e6, Quantity::Bytes),
        "GB" => (1e9, Quantity::Bytes),
        "KiB" => (1024.0, Quantity::Bytes),
        "MiB" => (1_048_576.0, Quantity::Bytes),
        "GiB" => (1_073_741_824.0, Quantity::Bytes),
        unit => return Err(format!("\"{unit}\" is not a unit")),
    };
    let per = match per {
        None => None,
        Some("s") => Some(1.0),
        Some("min") => Some(60.0),
        Some("h") => Some(3600.0),
        Some(per) => return Err(format!("\"/{per}\" is not a rate; rates are /s, /min and /h")),
    };
    Ok((number * factor, unit, per))
}
