//! Energy by a model: the time of a run, times the mean power measured on a board under the same kind of work.
//!
//! E = t · (P_CPU + P_memory): Olivier, Boukhobza, Senn, "Revisiting Read-ahead Efficiency for Raw NAND Flash Storage in
//! Embedded Linux", section 4.2. The powers come from a profile (`power/`), above idle; the time is the run's own. Every figure from
//! the model says so.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Mean powers of a board under known loads, with their source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerProfile {
    pub name: String,
    pub title: String,
    pub source: String,
    pub power: Vec<Power>,
}

/// Mean power above idle during one kind of work.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    pub activity: Activity,
    pub filesystem: String,
    /// Of reads: "sequential" or "random"; without it, the entry holds for both.
    pub pattern: Option<String>,
    /// Whether the kernel reads ahead; without it, the entry holds for both.
    pub readahead: Option<bool>,
    pub cpu_w: f64,
    pub memory_w: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// Reads of a file.
    Read,
    /// SELECTs of SQLite.
    Sqlite,
}

/// Where a figure of energy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Time by a profile's powers.
    Model,
    /// A board's sensors.
    Measured,
}

/// Energy of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Energy {
    pub basis: Basis,
    /// Microjoules above idle.
    pub uj: f64,
    /// Mean power above idle, watts.
    pub cpu_w: f64,
    pub memory_w: f64,
}

/// The kind of work of a run.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    pub activity: Activity,
    pub filesystem: &'a str,
    pub pattern: &'a str,
    pub readahead: bool,
}

impl PowerProfile {
    /// Checks the values of a profile; the error names the wrong one.
    pub fn check(&self) -> Result<(), String> {
        for (at, one) in self.power.iter().enumerate() {
            if ![one.cpu_w, one.memory_w].iter().all(|watts| watts.is_finite() && (0.0..1e6).contains(watts)) {
                return Err(format!("power entry {}: give watts, 0 or more", at + 1));
            }
        }
        match self.power.is_empty() {
            true => Err("no power entry; at least one is needed".to_owned()),
            false => Ok(()),
        }
    }

    /// The first matching entry; `None`: such work was not measured.
    pub fn of(&self, work: Work<'_>) -> Option<&Power> {
        self.power.iter().find(|one| {
            one.activity == work.activity
                && one.filesystem == work.filesystem
                && one.pattern.as_deref().is_none_or(|pattern| pattern == work.pattern)
                && one.readahead.is_none_or(|readahead| readahead == work.readahead)
        })
    }

    /// The energy of a run of this duration.
    pub fn energy(&self, work: Work<'_>, time_ns: u64) -> Option<Energy> {
        let power = self.of(work)?;
        Some(Energy {
            basis: Basis::Model,
            // Watts times nanoseconds are nanojoules; three decimals of a microjoule are kept.
            uj: (time_ns as f64 * (power.cpu_w + power.memory_w)).round() / 1e3,
            cpu_w: power.cpu_w,
            memory_w: power.memory_w,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> PowerProfile {
        let power = |pattern: Option<&str>, readahead, cpu_w| Power {
            activity: Activity::Read,
            filesystem: "jffs2".into(),
            pattern: pattern.map(str::to_owned),
            readahead,
            cpu_w,
            memory_w: 0.029,
        };
        PowerProfile {
            name: "t".into(),
            title: "t".into(),
            source: "t".into(),
            power: vec![power(Some("sequential"), Some(true), 0.223), power(None, Some(false), 0.2)],
        }
    }

    #[test]
    fn energy_is_time_times_both_powers() {
        let work = Work { activity: Activity::Read, filesystem: "jffs2", pattern: "sequential", readahead: true };
        let energy = profile().energy(work, 2_000_000).unwrap();
        assert_eq!((energy.uj, energy.basis), (504.0, Basis::Model));
        // Any pattern.
        let off = profile().energy(Work { pattern: "random", readahead: false, ..work }, 1_000_000).unwrap();
        assert_eq!(off.uj, 229.0);
    }

    #[test]
    fn work_that_was_not_measured_has_no_energy() {
        let work = Work { activity: Activity::Read, filesystem: "ubifs", pattern: "sequential", readahead: true };
        assert_eq!(profile().energy(work, 1), None);
        assert_eq!(profile().energy(Work { filesystem: "jffs2", pattern: "random", ..work }, 1), None);
        assert_eq!(profile().energy(Work { filesystem: "jffs2", activity: Activity::Sqlite, ..work }, 1), None);
    }

    #[test]
    fn nonsense_is_refused() {
        let mut bad = profile();
        bad.power[1].cpu_w = f64::NAN;
        assert!(bad.check().unwrap_err().contains("entry 2"));
        bad.power.clear();
        assert!(bad.check().is_err());
        assert_eq!(profile().check(), Ok(()));
    }
}
