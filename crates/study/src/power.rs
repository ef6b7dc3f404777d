//! Adds modelled energy to a study's cells, from a power profile.

use flashscope_analysis::energy::{Activity, PowerProfile, Work};
use flashscope_targets::board;

use crate::definition::Workload;
use crate::error::StudyError;
use crate::result::{Cell, Group};

/// Loads a profile by name, or by path if the name contains a slash.
pub fn load(name: &str) -> Result<PowerProfile, StudyError> {
    let (path, text) = board::power_profile(name)?;
    let profile: PowerProfile = toml::from_str(&text).map_err(|error| StudyError::Power {
        path: path.clone(),
        problem: error.to_string().trim().replace('\n', " "),
    })?;
    profile.check().map_err(|problem| StudyError::Power { path, problem })?;
    Ok(profile)
}

/// Adds energy to every cell whose work the profile covers.
pub fn add_energy(groups: &mut [Group], profile: &PowerProfile) {
    for group in groups {
        for cell in &mut group.cells {
            let work = Work {
                activity: match group.workload {
                    Workload::Read => Activity::Read,
                    Workload::Sqlite => Activity::Sqlite,
                },
                filesystem: &group.filesystem,
                pattern: &cell.pattern,
                readahead: reads_ahead(cell),
            };
            cell.energy = profile.energy(work, cell.total_ns);
        }
    }
}

/// Whether the cell reads ahead: `fadvise-random` switches it off for the file, whatever the bdi's setting.
fn reads_ahead(cell: &Cell) -> bool {
    cell.readahead_kib > 0 && cell.readahead != "fadvise-random"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_profile_is_sound() {
        let profile = load("omap3evm").unwrap();
        let work = Work { activity: Activity::Read, filesystem: "jffs2", pattern: "sequential", readahead: true };
        // Table 2: 0.223 + 0.029 W.
        assert_eq!(profile.energy(work, 1_000_000_000).unwrap().uj, 252_000.0);
        assert_eq!(profile.power.len(), 12);
        let error = load("omap4").unwrap_err().to_string();
        assert!(error.contains("power profile omap4: unknown; there are omap3evm"), "{error}");
    }
}
