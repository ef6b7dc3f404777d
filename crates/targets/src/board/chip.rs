//! A NAND chip defined by a file (`chips/*.toml`), and its parameters for the kernel's simulator.

use serde::Deserialize;

use super::files;
use crate::error::Error;

/// Geometry, timing and endurance of a chip.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "ChipFile")]
pub struct Chip {
    /// "Micron SLC 256 MiB"
    pub name: String,
    /// Source of the figures.
    pub source: String,
    pub page_bytes: u32,
    /// Out-of-band bytes per page.
    pub spare_bytes: u32,
    pub pages_per_block: u32,
    /// Number of erase blocks.
    pub blocks: u32,
    /// Time from the array to the page register, without the transfer.
    pub read_array_us: u32,
    pub program_us: u32,
    pub erase_ms: u32,
    /// Time of one byte on the bus.
    pub cycle_ns: u32,
    /// Rated program/erase cycles of a block.
    pub erase_cycles: u32,
    id_bytes: [u8; 4],
    do_delays: bool,
    faults: Faults,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChipFile {
    name: String,
    source: String,
    geometry: Geometry,
    timing: Timing,
    endurance: Endurance,
    nandsim: Nandsim,
    #[serde(default)]
    faults: Faults,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Geometry {
    page_bytes: u32,
    spare_bytes: u32,
    pages_per_block: u32,
    blocks: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Timing {
    read_array_us: u32,
    program_us: u32,
    erase_ms: u32,
    cycle_ns: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Endurance {
    erase_cycles: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nandsim {
    id_bytes: [u8; 4],
    do_delays: bool,
}

/// Faults that nandsim simulates (drivers/mtd/nand/raw/nandsim.c).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Largest number of wrong bits when a page is read; only some reads have them.
    pub bit_flips: u32,
    /// Erase blocks that are bad from the beginning.
    pub bad_blocks: Vec<u32>,
    /// `[block, erases]`: erasing fails after this number of erases.
    pub weak_blocks: Vec<[u32; 2]>,
    /// `[page, programs]`: programming fails after this number of programs.
    pub weak_pages: Vec<[u32; 2]>,
    /// `[page, reads]`: reads return wrong data after this number of reads.
    pub grave_pages: Vec<[u32; 2]>,
}

impl Faults {
    fn params(&self) -> Vec<String> {
        let mut params = Vec::new();
        let mut list = |name: &str, all: Vec<String>| {
            if !all.is_empty() {
                params.push(format!("{name}={}", all.join(",")));
            }
        };
        let pairs = |all: &[[u32; 2]]| all.iter().map(|[what, after]| format!("{what}:{after}")).collect();
        list("badblocks", self.bad_blocks.iter().map(u32::to_string).collect());
        list("weakblocks", pairs(&self.weak_blocks));
        list("weakpages", pairs(&self.weak_pages));
        list("gravepages", pairs(&self.grave_pages));
        if self.bit_flips > 0 {
            params.push(format!("bitflips={}", self.bit_flips));
        }
        params
    }
}

impl TryFrom<ChipFile> for Chip {
    type Error = String;

    /// Refuses figures that no computation can use: zero sizes, and erase blocks of 4 GiB and more.
    fn try_from(file: ChipFile) -> Result<Chip, String> {
        let Geometry { page_bytes, pages_per_block, blocks, .. } = file.geometry;
        let block_bytes = page_bytes.checked_mul(pages_per_block).filter(|&bytes| bytes > 0 && blocks > 0);
        if block_bytes.is_none() {
            return Err("[geometry]: page_bytes, pages_per_block and blocks are 1 or more, and an erase block has less than 4 GiB".into());
        }
        if file.timing.read_array_us == 0 && file.timing.cycle_ns == 0 {
            return Err("[timing]: a page read takes time: read_array_us or cycle_ns is 1 or more".into());
        }
        if file.endurance.erase_cycles == 0 {
            return Err("[endurance]: erase_cycles is 1 or more".into());
        }
        Ok(Chip {
            name: file.name,
            source: file.source,
            page_bytes: file.geometry.page_bytes,
            spare_bytes: file.geometry.spare_bytes,
            pages_per_block: file.geometry.pages_per_block,
            blocks: file.geometry.blocks,
            read_array_us: file.timing.read_array_us,
            program_us: file.timing.program_us,
            erase_ms: file.timing.erase_ms,
            cycle_ns: file.timing.cycle_ns,
            erase_cycles: file.endurance.erase_cycles,
            id_bytes: file.nandsim.id_bytes,
            do_delays: file.nandsim.do_delays,
            faults: file.faults,
        })
    }
}

impl Chip {
    /// Loads a chip by name, or from a file if the name contains a slash.
    pub fn load(name: &str) -> Result<Chip, Error> {
        let file = files::CHIPS.find(name)?;
        files::parse(&file.path, &file.text)
    }

    /// Time to read a page, transfer included, without spare bytes (as in the paper, section 4.1.1).
    pub fn page_read_ns(&self) -> u64 {
        u64::from(self.read_array_us) * 1000 + u64::from(self.page_bytes) * u64::from(self.cycle_ns)
    }

    /// Size of an erase block in bytes, without spare bytes.
    pub fn block_bytes(&self) -> u32 {
        self.page_bytes * self.pages_per_block
    }

    /// Size of the chip in bytes, without spare bytes.
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.block_bytes()) * u64::from(self.blocks)
    }

    /// nandsim's parameters for the chip with partitions of this many erase blocks (the rest of the chip becomes one more partition).
    pub fn nandsim_params(&self, parts: &[u64]) -> Vec<String> {
        // The four separate parameters are marked obsolete but work on every kernel; `id_bytes` takes the same bytes.
        let mut params: Vec<String> = ["first", "second", "third", "fourth"]
            .iter()
            .zip(self.id_bytes)
            .map(|(which, byte)| format!("{which}_id_byte={byte:#04x}"))
            .collect();
        params.push(format!("access_delay={}", self.read_array_us));
        // This is the spelling in nandsim.c.
        params.push(format!("programm_delay={}", self.program_us));
        params.push(format!("erase_delay={}", self.erase_ms));
        params.push(format!("output_cycle={}", self.cycle_ns));
        params.push(format!("input_cycle={}", self.cycle_ns));
        params.push(format!("do_delays={}", u8::from(self.do_delays)));
        params.extend(self.faults.params());
        if !parts.is_empty() {
            let blocks: Vec<String> = parts.iter().map(u64::to_string).collect();
            params.push(format!("parts={}", blocks.join(",")));
        }
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_chip_has_its_geometry_and_its_130_us_page_read() {
        let chip = Chip::load("micron-slc-256m").unwrap();
        assert_eq!(chip.size_bytes(), 256 << 20);
        assert_eq!(chip.block_bytes(), 128 << 10);
        let read_us = chip.page_read_ns() as f64 / 1000.0;
        assert!((read_us - 130.0).abs() < 3.0, "{read_us}");
        assert_eq!(
            chip.nandsim_params(&[272, 8]).join(" "),
            "first_id_byte=0x2c second_id_byte=0xda third_id_byte=0x90 fourth_id_byte=0x95 access_delay=25 \
             programm_delay=250 erase_delay=2 output_cycle=50 input_cycle=50 do_delays=1 parts=272,8"
        );
    }

    #[test]
    fn a_chip_with_faults_is_a_file_with_a_table_more() {
        let sound = files::CHIPS.find("micron-slc-256m").unwrap();
        let text = format!(
            "{}\n[faults]\nbit_flips = 1\nbad_blocks = [3, 9]\nweak_pages = [[640, 2]]\ngrave_pages = [[64, 1], [65, 1]]\n",
            sound.text
        );
        let chip: Chip = files::parse(&sound.path, &text).unwrap();
        let params = chip.nandsim_params(&[]).join(" ");
        assert!(
            params.ends_with("do_delays=1 badblocks=3,9 weakpages=640:2 gravepages=64:1,65:1 bitflips=1"),
            "{params}"
        );
    }
}
