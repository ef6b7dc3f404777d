//! Published statements beside what was measured: the rows of docs/reproduction.md.
//!
//! A study of any kind but the matrix gives its figures by name; its file's `[[published]]` tables name the one they are about.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::Comparison;

/// Bytes of a MiB.
pub const MIB: f64 = (1u64 << 20) as f64;

/// What was published, as a study file has it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    pub id: String,
    /// Paper and section, table or figure.
    pub source: String,
    pub statement: String,
    /// A figure of the study by name, or `A / B`: the first in units of the second.
    pub quantity: String,
    pub min: f64,
    pub max: f64,
    pub unit: String,
    #[serde(default)]
    pub how: How,
    /// Why ours may differ, and what was read into the text.
    pub note: String,
}

/// Where a figure of ours comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    #[default]
    Measured,
    /// Calculated from what was measured and constants that were published.
    Modelled,
}

/// A published statement and ours.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Row {
    pub id: String,
    pub source: String,
    pub statement: String,
    /// What of ours it is compared with, in words: "jffs2, sequential, 8 to 1,024 requests"; may be empty.
    #[serde(default)]
    pub of: String,
    pub published_min: f64,
    pub published_max: f64,
    pub unit: String,
    pub how: How,
    /// `None` where it was not measured; `note` says why.
    pub ours: Option<f64>,
    pub within: Option<bool>,
    pub note: String,
}

impl Row {
    /// Ours in units of the middle of what was published.
    pub fn ratio(&self) -> Option<f64> {
        let middle = (self.published_min + self.published_max) / 2.0;
        self.ours.filter(|_| middle != 0.0).map(|ours| ours / middle)
    }
}

/// Figures of a study by name.
pub type Figures = BTreeMap<String, f64>;

/// Each statement with the figure that it names.
pub fn rows(statements: &[Statement], figures: &Figures) -> Vec<Row> {
    statements
        .iter()
        .map(|statement| {
            let found = find(&statement.quantity, figures);
            let ours = found.as_ref().ok().copied();
            Row {
                id: statement.id.clone(),
                source: statement.source.clone(),
                statement: statement.statement.clone(),
                of: String::new(),
                published_min: statement.min,
                published_max: statement.max,
                unit: statement.unit.clone(),
                how: statement.how,
                ours,
                within: ours.map(|ours| (statement.min..=statement.max).contains(&ours)),
                note: found.err().unwrap_or_else(|| statement.note.clone()),
            }
        })
        .collect()
}

/// The figure of this name, or of `A / B`; else why there is none.
fn find(quantity: &str, figures: &Figures) -> Result<f64, String> {
    let one = |name: &str| {
        let name = name.trim();
        figures.get(name).copied().ok_or_else(|| format!("not measured: this run has no figure '{name}'"))
    };
    let value = match quantity.split_once('/') {
        None => one(quantity)?,
        Some((of, by)) => match (one(of)?, one(by)?) {
            (_, 0.0) => return Err(format!("not measured: {} is 0", by.trim())),
            (of, by) => of / by,
        },
    };
    // Four digits are more than any statement here needs, and keep the JSON readable.
    let scale = 10f64.powf(3.0 - value.abs().max(1e-300).log10().floor());
    Ok(if value == 0.0 { 0.0 } else { (value * scale).round() / scale })
}

impl From<&Comparison> for Row {
    fn from(comparison: &Comparison) -> Row {
        Row {
            id: comparison.id.clone(),
            source: comparison.source.clone(),
            statement: comparison.statement.clone(),
            of: {
                let count = match comparison.count {
                    [from, to] if from == to => from.to_string(),
                    [from, to] => format!("{from} to {to}"),
                };
                let model = comparison.kernel_model.as_ref().map(|kernel| format!(", model of Linux {kernel}"));
                let model = model.unwrap_or_default();
                format!("{}, {}, {count}{model}", comparison.filesystem, comparison.pattern)
            },
            published_min: comparison.published_min,
            published_max: comparison.published_max,
            unit: comparison.unit.clone(),
            how: match (comparison.quantity.as_str(), &comparison.kernel_model) {
                ("energy_saved_percent", _) | (_, Some(_)) => How::Modelled,
                _ => How::Measured,
            },
            ours: comparison.ours,
            within: comparison.within,
            note: comparison.note.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(quantity: &str) -> Statement {
        Statement {
            id: "id".to_owned(),
            source: "paper".to_owned(),
            statement: "twice".to_owned(),
            quantity: quantity.to_owned(),
            min: 1.5,
            max: 2.5,
            unit: "×".to_owned(),
            how: How::Measured,
            note: "a cause".to_owned(),
        }
    }

    #[test]
    fn a_figure_or_a_ratio_of_two_is_held_against_the_interval() {
        let figures = Figures::from([("a.writes".to_owned(), 20_000.0), ("b.writes".to_owned(), 9_000.0)]);
        let asked = ["a.writes / b.writes", "a.writes", "a.writes / c.writes"].map(statement);
        let rows = rows(&asked, &figures);
        assert_eq!((rows[0].ours, rows[0].within, rows[0].note.as_str()), (Some(2.222), Some(true), "a cause"));
        assert_eq!(rows[0].ratio(), Some(1.111));
        assert_eq!((rows[1].ours, rows[1].within), (Some(20_000.0), Some(false)));
        assert_eq!((rows[2].ours, rows[2].within), (None, None));
        assert_eq!(rows[2].note, "not measured: this run has no figure 'c.writes'");
    }

    #[test]
    fn zero_is_a_figure_and_no_divisor() {
        let figures = Figures::from([("a".to_owned(), 0.0), ("b".to_owned(), 3.0)]);
        assert_eq!(find("a", &figures), Ok(0.0));
        assert_eq!(find("a / b", &figures), Ok(0.0));
        assert_eq!(find("b / a", &figures), Err("not measured: a is 0".to_owned()));
    }
}
