//! Completions and man pages, from the same definitions as the command line itself.

use std::path::Path;

use clap::CommandFactory;

use crate::args::Cli;
use crate::failure::Failure;

pub fn completions(shell: clap_complete::Shell) {
    clap_complete::generate(shell, &mut Cli::command(), "flashscope", &mut std::io::stdout());
}

pub fn man_pages(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Cli::command(), directory)).map_err(
        |error| Failure::new(format!("{}: {error}; name a directory that can be written", directory.display())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent_and_every_command_has_a_page() {
        Cli::command().debug_assert();
        let dir = std::env::temp_dir().join(format!("flashscope-man-{}", std::process::id()));
        man_pages(&dir).unwrap();
        let pages: Vec<String> =
            std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        std::fs::remove_dir_all(&dir).unwrap();
        for page in ["flashscope.1", "flashscope-record.1", "flashscope-bench-read.1", "flashscope-board-boot.1"] {
            assert!(pages.iter().any(|name| name == page), "{page} is missing from {pages:?}");
        }
    }
}
