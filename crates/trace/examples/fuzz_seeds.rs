//! Writes the seed corpus of every format: `fuzz_seeds DIRECTORY` (DIRECTORY/FORMAT/NAME).

#[path = "../tests/common/mod.rs"]
mod common;

fn main() -> std::io::Result<()> {
    let directory = std::path::PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "fuzz/corpus".into()));
    for format in common::seeds::FORMATS {
        let into = directory.join(format);
        std::fs::create_dir_all(&into)?;
        let seeds = common::seeds::seeds(format);
        for (name, bytes) in &seeds {
            std::fs::write(into.join(name), bytes)?;
        }
        println!("{format}: {} seeds in {}", seeds.len(), into.display());
    }
    Ok(())
}
