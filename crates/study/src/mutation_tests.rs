//! Thousands of mutants of every built-in definition: each is refused with one line, or every computation with it ends.

use std::path::{Path, PathBuf};

use flashscope_analysis::energy::{Activity, Work};
use flashscope_targets::board::{self, Chip};

use crate::replays::Script;
use crate::{Study, StudyFile, groups, load_power, modules, plan};

const MUTANTS: u64 = 600;

/// xorshift64* (Vigna 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most.max(1)
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

const NUMBERS: &[&str] = &[
    "0", "1", "-1", "2", "255", "65536", "4294967295", "4294967296", "9223372036854775807", "-9223372036854775808",
    "18446744073709551615", "1e308", "-0.0", "nan", "inf", "0x7fffffff",
];
/// Line feeds in texts are escaped when an error is printed (`flashscope_output::note`). There are none here, so an error is one line.
const VALUES: &[&str] = &[
    "\"\"",
    "\"0\"",
    "[]",
    "[[]]",
    "{}",
    "true",
    "\"../../etc\"",
    "\"\\u001b[2J\"",
    "\"18446744073709551615\"",
    "\"16777216G\"",
    "\"0K\"",
    "[0, 0]",
    "[4294967295]",
    "1979-05-27",
];

/// One or several changes.
fn mutant(text: &str, random: &mut Random) -> String {
    let mut text = text.to_owned();
    for _ in 0..1 + random.below(3) {
        let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        let at = random.below(lines.len());
        let other = lines[random.below(lines.len())].clone();
        match random.below(9) {
            0 | 1 => {
                // Replaces a number anywhere in a line.
                let line = &lines[at];
                if let Some(begin) = line.find(|c: char| c.is_ascii_digit()) {
                    let end = line[begin..].find(|c: char| !c.is_ascii_digit()).map_or(line.len(), |n| begin + n);
                    lines[at] = format!("{}{}{}", &line[..begin], random.of(NUMBERS), &line[end..]);
                }
            }
            2 | 3 => {
                if let Some((key, _)) = lines[at].split_once('=') {
                    let value = if random.below(2) == 0 { random.of(NUMBERS) } else { random.of(VALUES) };
                    lines[at] = format!("{key}= {value}");
                }
            }
            4 => _ = lines.remove(at),
            5 => lines.insert(at, other),
            6 => lines[at] = other,
            7 => {
                let place = random.below(lines[at].chars().count() + 1);
                let byte = char::from(random.below(128) as u8);
                lines[at] =
                    lines[at].chars().take(place).chain([byte]).chain(lines[at].chars().skip(place + 1)).collect();
            }
            _ => lines.truncate(at),
        }
        text = lines.join("\n");
    }
    text
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `uses` computes with a definition as far as possible, or returns its error.
fn mutate(folder: &str, ending: &str, uses: impl Fn(&str, &Path) -> Result<(), String>) {
    let file =
        std::env::temp_dir().join(format!("flashscope-mutants-{}-{}", std::process::id(), folder.replace('/', "-")));
    let (mut taken, mut refused) = (0, 0);
    for entry in std::fs::read_dir(top().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|is| is != ending) {
            continue;
        }
        // The beginning of a long definition has everything that matters.
        let text: String = std::fs::read_to_string(&path).unwrap().split_inclusive('\n').take(200).collect();
        let mut random = Random(0x5eed);
        for number in 0..MUTANTS {
            let mutant = mutant(&text, &mut random);
            std::fs::write(&file, &mutant).unwrap();
            let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| uses(&mutant, &file)));
            let tried = tried.unwrap_or_else(|_| panic!("mutant {number} of {} panics:\n{mutant}", path.display()));
            match tried {
                Ok(()) => taken += 1,
                Err(error) => {
                    refused += 1;
                    assert!(error.lines().count() == 1, "mutant {number} of {}: {error:?}\n{mutant}", path.display());
                }
            }
        }
    }
    std::fs::remove_file(&file).unwrap();
    // Both outcomes occurred.
    assert!(taken > 10 && refused > 100, "{folder}: {taken} taken, {refused} refused");
}

/// Computes a figure for 2^40 bytes.
fn use_chip(chip: &Chip) {
    assert!(chip.page_read_ns() > 0 && chip.size_bytes() >= u64::from(chip.block_bytes()));
    assert!(plan::partition_blocks(crate::Bytes(1 << 40), chip.block_bytes()) > 0);
    assert!(chip.erase_cycles > 0 && !chip.nandsim_params(&[1, 2]).is_empty());
}

#[test]
fn boards() {
    mutate("boards", "toml", |_, file| {
        let board = board::load(file.to_str().unwrap()).map_err(|error| error.to_string())?;
        if let Some(chip) = board.chip() {
            use_chip(chip);
        }
        let settings = board.disk_settings(&[]).map_err(|error| error.to_string())?;
        let _ = settings.map(|settings| settings.size_bytes());
        board.default_kernel();
        assert!(board.memory_mib > 0 && board.memory_mib.checked_mul(1 << 20).is_some());
        Ok(())
    });
}

#[test]
fn chips() {
    mutate("chips", "toml", |_, file| {
        Chip::load(file.to_str().unwrap()).map(|chip| use_chip(&chip)).map_err(|error| error.to_string())
    });
}

#[test]
fn power_profiles() {
    mutate("power", "toml", |_, file| {
        let profile = load_power(file.to_str().unwrap()).map_err(|error| error.to_string())?;
        for activity in [Activity::Read, Activity::Sqlite] {
            for filesystem in ["jffs2", "ubifs"] {
                let work = Work { activity, filesystem, pattern: "sequential", readahead: true };
                let energy = profile.energy(work, u64::MAX);
                assert!(energy.is_none_or(|energy| energy.uj.is_finite() && energy.uj >= 0.0));
            }
        }
        Ok(())
    });
}

fn use_study(study: &Study) {
    for group in groups(&study.definition.matrix) {
        assert!(!modules(group.filesystem).is_empty() || plan::disk_mib(group.file_size) > 0);
        assert!(plan::partition_blocks(group.file_size, 131_072) > 0 && !group.id().is_empty());
    }
}

#[test]
fn studies() {
    mutate("studies", "toml", |text, _| {
        if let StudyFile::Matrix(study) = StudyFile::parse("mutant", text).map_err(|error| error.to_string())? {
            use_study(&study);
        }
        Ok(())
    });
}

#[test]
fn replay_scripts() {
    mutate("studies/applications", "replay", |text, _| {
        let mut script = Script::parse("mutant", text).map_err(|error| error.to_string())?;
        script.beside(script.clone(), u64::MAX);
        assert!(script.duration_ns() >= script.calls[0].time_ns && script.file_bytes() < u64::MAX);
        assert!(!script.text().is_empty());
        Ok(())
    });
}
