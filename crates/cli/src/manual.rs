//! Writes completions, man pages and reference documents from the definition of the command line.

use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::args::Cli;
use crate::failure::{Failure, create_directory};
use crate::output;

pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    // To memory first, because clap's own writer panics if standard output fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "flashscope", &mut script);
    if shell == clap_complete::Shell::Bash {
        script = files_by_readline(&script);
    }
    Ok(flashscope_output::print_bytes(&script)?)
}

/// clap's bash functions put file names on the command line as they are, so a file called `x;touch${IFS}y` would be run at the next Enter.
/// Without a reply, `complete -o default` has readline complete file names, and it quotes them.
fn files_by_readline(script: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(script).replace(r#"COMPREPLY=($(compgen -f "${cur}"))"#, "COMPREPLY=()").into_bytes()
}

/// One page for each command and subcommand.
pub fn man_pages(directory: &Path) -> Result<(), Failure> {
    create_directory(directory, "name a directory that can be written")?;
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

/// `docs/reference/command-line.md`: every command and option, from the same definitions.
fn command_line() -> String {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut out = String::from(
        "# Command line\n\nEvery command and option of `flashscope`. For readers who look something up; guides are in \
         [how-to](../how-to/record-over-ssh.md). Generated from the definitions of the command line, as `--help` and the man pages \
         are.\n",
    );
    section(&command, &mut out);
    out
}

/// The generated documents in `docs/reference`: the command line, and the table of formats.
fn reference(directory: &Path) -> Result<[(PathBuf, String); 2], Failure> {
    let path = directory.join("formats.md");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure::new(format!("{}: {error}; name the folder docs/reference", path.display())))?;
    let formats = with_formats(&text)
        .ok_or_else(|| Failure::new(format!("{}: it has no table that begins with `| format |`", path.display())))?;
    Ok([(directory.join("command-line.md"), command_line()), (path, formats)])
}

/// A document with the current table of formats.
fn with_formats(text: &str) -> Option<String> {
    let (before, table) = text.split_once("\n| format |")?;
    let (_, after) = table.split_once("|\n\n")?;
    Some(format!("{before}\n{}\n{after}", flashscope_trace::formats_table()))
}

pub fn write_reference(directory: &Path) -> Result<(), Failure> {
    reference(directory)?.iter().try_for_each(|(path, text)| output::write(path, text.as_bytes(), &[], ""))
}

fn section(command: &clap::Command, out: &mut String) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    *out += &format!("\n## {name}\n\n{}\n\n    {}\n", sentence(&about), usage.trim_start_matches("Usage: ").trim());
    let top = name == "flashscope";
    let listed = |arg: &&clap::Arg| {
        !arg.is_hide_set() && (top || !arg.is_global_set()) && !BUILT_IN.contains(&arg.get_id().as_str())
    };
    let arguments: Vec<&clap::Arg> = command.get_arguments().filter(listed).collect();
    if !arguments.is_empty() {
        *out += "\n| argument | meaning |\n|---|---|\n";
        for argument in arguments {
            *out += &format!("| {} | {} |\n", spelling(argument), meaning(argument));
        }
    }
    if let Some(more) = command.get_after_help() {
        *out += "\n";
        for line in more.to_string().lines() {
            *out += &if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") };
        }
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        section(below, out);
    }
}

/// Options that every command has.
const BUILT_IN: [&str; 2] = ["help", "version"];

/// The text with a final full stop, which clap removes.
fn sentence(text: &str) -> String {
    if text.is_empty() || text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

/// `-o`, `--output FILE`
fn spelling(argument: &clap::Arg) -> String {
    let short = argument.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let takes = argument.get_num_args().is_some_and(|range| range.takes_values());
    let names: Vec<&str> =
        argument.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str).collect();
    let value = if takes { names.join(" ") } else { String::new() };
    match argument.get_long() {
        Some(long) if value.is_empty() => format!("{short}`--{long}`"),
        Some(long) => format!("{short}`--{long} {}`", value.replace('|', "\\|")),
        None => format!("`{}`", value.replace('|', "\\|")),
    }
}

fn meaning(argument: &clap::Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut out = sentence(help.trim());
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| {
            let help = value.get_help().map(|help| format!(" ({help})")).unwrap_or_default();
            format!("`{}`{help}", value.get_name())
        })
        .collect();
    let takes = argument.get_num_args().is_some_and(|range| range.takes_values());
    if takes && !values.is_empty() && !argument.is_hide_possible_values_set() {
        out += &format!(" Values: {}.", values.join(", "));
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if takes && !defaults.is_empty() {
        out += &format!(" Default: {}.", defaults.join(", "));
    }
    out.trim().replace('\n', " ").replace('|', "\\|")
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

    #[test]
    fn the_reference_is_what_the_definitions_say() {
        let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference"));
        for (path, text) in reference(directory).unwrap() {
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(written == text, "{} differs from the code; write it again with: make reference", path.display());
        }
    }

    #[test]
    fn the_table_of_formats_is_replaced_and_the_rest_stays() {
        let rows = flashscope_trace::formats_table();
        let old = "# Formats\n\n| format | read |\n|---|---|\n| gone | yes |\n\nMore, and | another |\n\n| table |\n";
        let want = format!("# Formats\n\n{rows}\nMore, and | another |\n\n| table |\n");
        assert_eq!(with_formats(old), Some(want));
        assert_eq!(rows.lines().count(), flashscope_trace::FORMATS.len() + 2);
        assert_eq!(with_formats("# Formats\n\nno table\n"), None);
    }
}
