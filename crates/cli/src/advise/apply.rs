//! `advise --apply` and `--undo`: knobs of read-ahead on a target, by the agent there, which notes what they were.

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
            "--on {on}: a virtual board is gone after each run, and its knobs with it; name local or ssh://"
        )));
    }
    let argv = std::iter::once("knob".to_owned()).chain(words).collect();
    let out = target::output(&args.target, argv, &Arc::new(Terminal::new(quiet)))?;
    serde_json::from_slice(&out)
        .map_err(|error| Failure::new(format!("{on}: the agent's answer cannot be read: {error}")))
}

/// Sets the knobs (names of /sys/class/bdi) to what is recommended, having asked.
pub fn apply(args: &AdviseArgs, quiet: bool, kib: Option<u64>, knobs: &[String]) -> Result<(), Failure> {
    let on = &args.target.target;
    outln!();
    let Some(kib) = kib else {
        outln!("Nothing to apply: no run-time setting is recommended.");
        return Ok(());
    };
    if knobs.is_empty() {
        return Err(Failure::new(
            "nothing is applied: the trace does not say which read-ahead setting belongs to its file system",
        ));
    }
    let paths: Vec<String> = knobs.iter().map(|name| format!("/sys/class/bdi/{name}/read_ahead_kb")).collect();
    for path in &paths {
        outln!("To be set on {}: {} to {kib}", flashscope_report::visible(on), flashscope_report::visible(path));
    }
    if !args.yes && !agreed()? {
        outln!("Nothing is changed.");
        return Ok(());
    }
    let pairs = paths.into_iter().flat_map(|path| [path, kib.to_string()]);
    let said = knob(args, quiet, std::iter::once("set".to_owned()).chain(pairs).collect())?;
    for one in said["knobs"].as_array().into_iter().flatten() {
        let text = |name: &str| flashscope_report::visible(one[name].as_str().unwrap_or("?")).into_owned();
        outln!("{}: {} KiB, was {}", text("path"), text("now"), text("before"));
    }
    let on = flashscope_output::quote::shell(on).unwrap_or_else(|| "TARGET".to_owned());
    outln!("Files that are open keep their window: start the program again. Undo: flashscope advise --undo --on {on}");
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
        Some(0) => outln!("Nothing was applied: no setting is put back."),
        Some(knobs) => outln!("Settings put back: {knobs}"),
        None => return Err(Failure::new("the agent does not say what it put back")),
    }
    Ok(())
}
