//! Wear that the storage reports itself: UBI's erase counters, an eMMC's life time.

use flashscope_trace::Facts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most devices of each kind.
const MAX_DEVICES: usize = 64;

/// As it stood when the recording began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OwnWear {
    /// `/sys/class/ubi/ubiN` (drivers/mtd/ubi/build.c).
    Ubi {
        device: String,
        mtd: Option<u64>,
        /// Erases of the most worn block.
        max_erases: u64,
        bad_blocks: Option<u64>,
        /// Blocks that are kept for more bad ones.
        reserved_blocks: Option<u64>,
    },
    /// `/sys/block/mmcblkN/device` (drivers/mmc/core/mmc.c): EXT_CSD bytes 268, 269 and 267 (JEDEC JESD84-B51, 7.4.43 to 7.4.45).
    Emmc {
        device: String,
        /// DEVICE_LIFE_TIME_EST_TYP_A and _B, of two kinds of the device's memory: tenths of its life, counted from 1; 11 is past
        /// its end, 0 not said.
        life_time: [u16; 2],
        /// PRE_EOL_INFO: 1 normal, 2 and 3 where 80 and 90 % of the spare blocks are used; 0 not said.
        pre_end_of_life: u16,
    },
}

impl OwnWear {
    /// `facts` of a recording (docs/reference/agent.md, "Facts"). Devices without wear data are left out.
    pub fn of_facts(facts: &Facts) -> Vec<OwnWear> {
        let name = |of: &Option<String>| of.as_deref().unwrap_or("?").chars().take(64).collect::<String>();
        let ubi = facts.ubi.iter().filter_map(|ubi| {
            Some(OwnWear::Ubi {
                device: name(&ubi.name),
                mtd: ubi.mtd_num,
                max_erases: ubi.max_ec?,
                bad_blocks: ubi.bad_peb_count,
                reserved_blocks: ubi.reserved_for_bad,
            })
        });
        let emmc = facts.block.iter().filter_map(|disk| {
            let life_time = match bytes(&disk.life_time).as_slice() {
                &[a, b] => [a, b],
                _ => [0; 2],
            };
            let pre_end_of_life = bytes(&disk.pre_eol_info).first().copied().unwrap_or(0);
            let said = life_time != [0; 2] || pre_end_of_life != 0;
            said.then(|| OwnWear::Emmc { device: name(&disk.name), life_time, pre_end_of_life })
        });
        ubi.take(MAX_DEVICES).chain(emmc.take(MAX_DEVICES)).collect()
    }

    pub fn sentence(&self) -> String {
        match self {
            OwnWear::Ubi { device, mtd, max_erases, bad_blocks, reserved_blocks } => {
                let on = mtd.map_or_else(String::new, |mtd| format!(" on mtd{mtd}"));
                let bad = match (bad_blocks, reserved_blocks) {
                    (Some(bad), Some(reserved)) => format!("; {bad} blocks are bad, {reserved} are kept for more"),
                    (Some(bad), None) => format!("; {bad} blocks are bad"),
                    _ => String::new(),
                };
                format!("{device}{on} counts {max_erases} erases of its most worn block before this recording{bad}.")
            }
            OwnWear::Emmc { device, life_time: [a, b], pre_end_of_life } => {
                let life = match (used(*a), used(*b)) {
                    (None, None) => "does not say how much of its life is used".to_owned(),
                    (Some(a), Some(b)) => format!("says that {a} of its life is used by type A memory, {b} by type B"),
                    (Some(one), None) | (None, Some(one)) => format!("says that {one} of its life is used"),
                };
                let end = match pre_end_of_life {
                    0 => "",
                    1 => "; spare blocks: normal",
                    2 => "; spare blocks: 80 % are used (warning)",
                    3 => "; spare blocks: 90 % are used (urgent)",
                    _ => "; spare blocks: a value that the standard reserves",
                };
                format!("{device} {life}{end}.")
            }
        }
    }
}

/// "0x01 0x0b" as the kernel prints them.
fn bytes(said: &Option<String>) -> Vec<u16> {
    let words = said.as_deref().unwrap_or_default().split_ascii_whitespace().take(4);
    words.filter_map(|word| u8::from_str_radix(word.strip_prefix("0x")?, 16).ok().map(u16::from)).collect()
}

fn used(tenths: u16) -> Option<String> {
    match tenths {
        0 => None,
        1..=10 => Some(format!("{} to {} %", (tenths - 1) * 10, tenths * 10)),
        11 => Some("more than 100 %".to_owned()),
        _ => Some("a part that the standard does not define".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn said(facts: &Value) -> Vec<String> {
        let all = OwnWear::of_facts(&Facts::of(facts));
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Vec<OwnWear>>(&text).unwrap(), all);
        all.iter().map(OwnWear::sentence).collect()
    }

    #[test]
    fn ubi_and_emmc_say_their_wear() {
        let facts = json!({
            "ubi": [{ "name": "ubi0", "mtd_num": 3, "bad_peb_count": 2, "reserved_for_bad": 38, "max_ec": 41 }],
            "block": [
                { "name": "mtdblock0", "life_time": null, "pre_eol_info": null },
                { "name": "mmcblk0", "life_time": "0x02 0x0b", "pre_eol_info": "0x02" },
                // An SD card.
                { "name": "mmcblk1", "life_time": null, "pre_eol_info": null },
            ],
        });
        assert_eq!(
            said(&facts),
            [
                "ubi0 on mtd3 counts 41 erases of its most worn block before this recording; 2 blocks are bad, 38 are kept for more.",
                "mmcblk0 says that 10 to 20 % of its life is used by type A memory, more than 100 % by type B; spare blocks: 80 % \
                 are used (warning).",
            ]
        );
    }

    #[test]
    fn what_is_not_said_or_makes_no_sense_is_no_figure() {
        for (life, end, says) in [
            ("0x00 0x00", "0x01", "mmcblk0 does not say how much of its life is used; spare blocks: normal."),
            ("0x03 0x00", "0x00", "mmcblk0 says that 20 to 30 % of its life is used."),
            (
                "0xff 0x00",
                "0x7f",
                "mmcblk0 says that a part that the standard does not define of its life is used; spare blocks: a value \
              that the standard reserves.",
            ),
        ] {
            let facts = json!({ "block": [{ "name": "mmcblk0", "life_time": life, "pre_eol_info": end }] });
            assert_eq!(said(&facts), [says]);
        }
        let nothing = ["0x", "1 2", "0x100 0x1ff", "\u{1b}[2J"].map(|life| json!({ "name": "m", "life_time": life }));
        assert_eq!(said(&json!({ "block": nothing, "ubi": [{ "name": "ubi0" }] })), Vec::<String>::new());
        assert_eq!(said(&json!({ "block": 7, "ubi": "x" })), Vec::<String>::new());
    }
}
