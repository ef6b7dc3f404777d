//! Completions and man pages, from the same definitions as the command line itself.

use std::path::Path;

use clap::CommandFactory;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output;

pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    // In memory first: clap's own writer panics where standard output fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "flashscope", &mut script);
    Ok(flashscope_output::print_bytes(&script)?)
}

/// One page of each command, and of each below it.
pub fn man_pages(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| {
        Failure::new(format!("{}: {error}; name a directory that can be written", directory.display()))
    })?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages(&command, directory)
}

fn pages(command: &clap::Command, directory: &Path) -> Result<(), Failure> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, directory)?;
    }
    let man = clap_mangen::Man::new(command.clone());
    let path = directory.join(man.get_filename());
    let mut page = Vec::new();
    man.render(&mut page).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    output::write(&path, &page, &[], "")
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
