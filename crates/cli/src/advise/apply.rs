//! `advise --apply` and `--undo`: settings of devices and options of mounts on a target, by the agent there, which notes what they
//! were.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::Arc;

use crate::args::AdviseArgs;
use crate::failure::Failure;
use crate::progress::Terminal;
use crate::target;

/// Runs `knob` there; what it printed.
fn knob(args: &AdviseArgs, quiet: bool, words: Vec<String>) -> Result<serde_json::Value, Failure> {
    let on = &args.target.target;
    if on.starts_with("board:") {
        return Err(Failure::usage(format!(
            "--on {on}: a virtual board keeps no settings after a run; name local or ssh://"
        )));
    }
    let argv = std::iter::once("knob".to_owned()).chain(words).collect();
    let out = target::output(&args.target, argv, &Arc::new(Terminal::new(quiet)))?;
    serde_json::from_slice(&out)
        .map_err(|error| Failure::new(format!("{on}: the agent's output cannot be read: {error}")))
}

/// Sets knobs (files below /sys and their values, mount points and an option), having asked.
pub fn apply(args: &AdviseArgs, quiet: bool, knobs: &[(String, String)]) -> Result<(), Failure> {
    let on = &args.target.target;
    outln!();
    if knobs.is_empty() {
        outln!(
            "Nothing to apply: no setting that can be changed at run time is recommended. Programs are changed by hand."
        );
        return Ok(());
    }
    for (path, value) in knobs {
        let (path, value) = (flashscope_report::visible(path), flashscope_report::visible(value));
        let on = flashscope_report::visible(on);
        match path.starts_with("/sys/") {
            true => outln!("To be set on {on}: {path} to {value}"),
            false => outln!("To be mounted again on {on}: {path} with {value}"),
        }
    }
    if !args.yes && !agreed()? {
        outln!("Nothing is changed.");
        return Ok(());
    }
    let pairs = knobs.iter().flat_map(|(path, value)| [path.clone(), value.clone()]);
    let said = knob(args, quiet, std::iter::once("set".to_owned()).chain(pairs).collect())?;
    for one in said["knobs"].as_array().into_iter().flatten() {
        let text = |name: &str| flashscope_report::visible(one[name].as_str().unwrap_or("?")).into_owned();
        let kib = if text("path").ends_with("read_ahead_kb") { " KiB" } else { "" };
        outln!("{}: {}{kib}, was {}", text("path"), text("now"), text("before"));
    }
    let on = flashscope_output::quote::shell(on).unwrap_or_else(|| "TARGET".to_owned());
    if knobs.iter().any(|(path, _)| path.ends_with("/read_ahead_kb")) {
        outln!("Files that are open keep their window: start the program again.");
    }
    outln!("It lasts until the next boot. Undo: flashscope advise --undo --on {on}");
    Ok(())
}

/// Asks on the terminal.
fn agreed() -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage("--apply asks before it changes anything, and there is no terminal: add --yes"));
    }
    out!("Set it? [y/N] ");
    std::io::stdout().flush().ok();
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(|error| Failure::new(format!("the answer cannot be read: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

pub fn undo(args: &AdviseArgs, quiet: bool) -> Result<(), Failure> {
    let said = knob(args, quiet, vec!["undo".to_owned()])?;
    match said["undone"].as_u64() {
        Some(0) => outln!("Nothing was applied, so there is nothing to restore."),
        Some(knobs) => outln!("Settings restored: {knobs}"),
        None => return Err(Failure::new("the agent did not report which settings it restored")),
    }
    Ok(())
}
