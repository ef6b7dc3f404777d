//! Arguments of `top`.

use super::{Args, Bytes, PathBuf, TargetArgs};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope top                                     who uses this machine's storage, and who waits for whom
  flashscope top --on ssh://root@board
  flashscope top --json | jq -c '.process[0]'        one line a second, for programs
  flashscope top --prometheus /var/lib/node_exporter/flashscope.prom --json >/dev/null

Keys: g rows by process, app, file or device; s sort; / filter; Enter the files of the row's process, Esc all; p pause; q quit.")]
pub struct TopArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Event groups to record.
    #[arg(long, value_name = "GROUP", value_delimiter = ',', default_value = "block,syscall")]
    pub events: Vec<String>,
    /// Seconds between two updates; each shows the time since the last one.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value_t = 1.0)]
    pub interval: f64,
    /// End after this many seconds.
    #[arg(short = 'd', long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub duration: Option<f64>,
    /// Print one JSON object a line for each interval instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Keep the newest figures in this file for the textfile collector of Prometheus's node exporter; it is replaced by a rename.
    #[arg(long, value_name = "FILE")]
    pub prometheus: Option<PathBuf>,
    /// Memory of the ring per CPU; a bare number is bytes.
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    pub ring: Bytes,
}
