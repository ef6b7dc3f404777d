//! Work of the error correction during a recording, and the figures that it affects.

use foldhash::HashMap;

use flashscope_trace::Facts;
use flashscope_trace::facts::Mtd;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A NAND device by the kernel's own counters (`/sys/class/mtd/mtdN`), at the recording's start and end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Health {
    /// `mtdN`.
    pub mtd: u64,
    /// Bits corrected during the recording.
    pub corrected_bits: u64,
    /// Reads during the recording whose data could not be corrected.
    pub ecc_failures: u64,
    /// Blocks that became bad during the recording.
    pub blocks_gone_bad: u64,
    /// Bad blocks at the end.
    pub bad_blocks: u64,
}

/// Most devices.
const MAX_DEVICES: usize = 64;

impl Health {
    /// `facts` and `stats` of a recording (docs/reference/agent-protocol.md). Left out are devices without errors and bad blocks, and devices
    /// whose kernel does not report them.
    pub fn of_recording(facts: &Facts, stats: &Value) -> Vec<Health> {
        let unknown = Mtd::default();
        let mut found = Vec::new();
        // The first entry of each number.
        let begins: HashMap<_, _> = facts.mtd.iter().rev().map(|mtd| (mtd.index, mtd)).collect();
        for end in Facts::of(stats).mtd {
            let Some(mtd) = end.index else { continue };
            let begin = begins.get(&end.index).copied().unwrap_or(&unknown);
            let grown = |of: fn(&Mtd) -> Option<u64>| {
                let [from, to] = [begin, &end].map(of);
                to.unwrap_or(0).saturating_sub(from.or(to).unwrap_or(0))
            };
            let health = Health {
                mtd,
                corrected_bits: grown(|mtd| mtd.corrected_bits),
                ecc_failures: grown(|mtd| mtd.ecc_failures),
                blocks_gone_bad: grown(|mtd| mtd.bad_blocks),
                bad_blocks: end.bad_blocks.unwrap_or(0),
            };
            let nothing = Health { mtd, corrected_bits: 0, ecc_failures: 0, blocks_gone_bad: 0, bad_blocks: 0 };
            if health != nothing && found.len() < MAX_DEVICES {
                found.push(health);
            }
        }
        found
    }

    /// The errors, and the figures that they affect; a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let mtd = self.mtd;
        let mut out = Vec::new();
        if self.corrected_bits > 0 {
            out.push(format!(
                "mtd{mtd}: error correction restored {} bits while this was recorded: the reads of such pages, and what the file \
                 system or UBI does for them (reading again, moving the block), are in the counts, times and wear.",
                self.corrected_bits
            ));
        }
        if self.ecc_failures > 0 {
            out.push(format!(
                "mtd{mtd}: {} reads gave data that error correction could not restore: bytes read, their checksums and all that \
                 follows from a failed read (repeats, errors of programs) are not those of a sound chip.",
                self.ecc_failures
            ));
        }
        if self.blocks_gone_bad > 0 {
            out.push(format!(
                "mtd{mtd}: {} blocks became bad while this was recorded: the programs that failed, and those that copied what the \
                 block had, are in counts, times, wear and amplification.",
                self.blocks_gone_bad
            ));
        }
        if self.bad_blocks > 0 {
            out.push(format!(
                "mtd{mtd}: {} blocks are bad: nothing is written there, so spread of erases and years of life are of the others.",
                self.bad_blocks
            ));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_happened_while_it_ran_counts() {
        let facts = json!({"mtd": [
            {"index": 0, "corrected_bits": 5, "ecc_failures": 0, "bad_blocks": 2},
            {"index": 1, "corrected_bits": 7, "ecc_failures": 1, "bad_blocks": 0},
            {"index": 2, "corrected_bits": null, "ecc_failures": null, "bad_blocks": null},
        ]});
        let stats = json!({"mtd": [
            {"index": 0, "corrected_bits": 9, "ecc_failures": 1, "bad_blocks": 3},
            {"index": 1, "corrected_bits": 7, "ecc_failures": 1, "bad_blocks": 0},
            {"index": 2, "corrected_bits": null, "ecc_failures": null, "bad_blocks": null},
        ]});
        let found = Health::of_recording(&Facts::of(&facts), &stats);
        let only = Health { mtd: 0, corrected_bits: 4, ecc_failures: 1, blocks_gone_bad: 1, bad_blocks: 3 };
        assert_eq!(found, [only]);
        let said = found[0].sentences();
        assert_eq!(said.len(), 4);
        assert!(said.iter().all(|sentence| sentence.starts_with("mtd0: ")));
    }

    #[test]
    fn a_recording_that_does_not_say_has_none() {
        assert!(Health::of_recording(&Facts::default(), &Value::Null).is_empty());
        assert!(
            Health::of_recording(&Facts::of(&json!({"mtd": 3})), &json!({"mtd": [{"corrected_bits": 4}, 5]}))
                .is_empty()
        );
        // A device that came later: what it had before is not known.
        let late = json!({"mtd": [{"index": 4, "corrected_bits": 9, "ecc_failures": 0, "bad_blocks": 0}]});
        assert!(Health::of_recording(&Facts::default(), &late).is_empty());
    }
}
