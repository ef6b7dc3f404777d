//! Arguments of `diff`, and of conditions.

use super::{AnonymizeArgs, Args, PathBuf};
use flashscope_analysis::comparison::Condition;

/// Limits that a figure must keep.
#[derive(Clone, Debug, Default, Args)]
pub struct LimitArgs {
    /// End with status 3 where this holds; repeatable. `--fail-if help` shows the grammar.
    #[arg(long, value_name = "CONDITION", value_parser = condition)]
    pub fail_if: Vec<Condition>,
    /// Write the result of each --fail-if as JUnit XML.
    #[arg(long, value_name = "FILE", requires = "fail_if")]
    pub junit: Option<PathBuf>,
}

fn condition(text: &str) -> Result<Condition, String> {
    let grammar = flashscope_analysis::comparison::GRAMMAR;
    Condition::parse(text)
        .map_err(|why| if text == "help" { format!("\n{grammar}") } else { format!("{why}\n{grammar}") })
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope diff before.dat after.dat
  flashscope diff old-1.dat old-2.dat old-3.dat --against new-1.dat new-2.dat new-3.dat
  flashscope diff before.dat after.dat --html change.html
  flashscope diff old.json new.json --fail-if 'regress > 10%' --junit storage.xml
  flashscope diff before.dat after.dat --json | jq '.changes[] | select(.percent > 10) | .figure'

A side is a trace, or a JSON result that flashscope wrote (report --json, a study's results.json, a benchmark's). With two
or more recordings of the same work on each side, a change is separated from run-to-run variation (95 % confidence,
Welch's t). With one on each side that is unknown.

Exit status: 0 done, 1 a file could not be read or a condition could not be checked, 2 usage, 3 a --fail-if holds.")]
pub struct DiffArgs {
    /// Before and after; with --against, all of them are before.
    #[arg(required = true, value_name = "BEFORE")]
    pub before: Vec<PathBuf>,
    /// The later side.
    #[arg(long, value_name = "AFTER", num_args = 1..)]
    pub against: Vec<PathBuf>,
    /// Figures that the terminal lists.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Write a self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Bytes of a logical block of the devices (`cat /sys/block/DEVICE/queue/logical_block_size`), for traces of a driver's commands alone:
    /// NVMe and SCSI count in blocks.
    #[arg(long, value_name = "BYTES", value_parser = crate::inputs::block_size)]
    pub block_size: Option<u64>,
    #[command(flatten)]
    pub anonymize: AnonymizeArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}
