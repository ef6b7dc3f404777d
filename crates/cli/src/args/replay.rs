//! Arguments of `bench replay` and `bench import-strace`.

use clap::ValueEnum;

use super::{Args, BenchPlaceArgs, Bytes, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope record --events cache,syscall -o boot.dat -- /usr/bin/app
  flashscope bench replay boot.dat --on board:armv7 --filesystem ubifs --readahead 128
  flashscope bench replay boot.dat --process app --script app.replay        to look at, or to change by hand
  flashscope bench replay app.replay --on ssh://root@board --dir /data/test --timing recorded --drop-caches
  flashscope bench replay player.replay --beside log.replay@6 --on board:armv7-blk --timing recorded -o both.dat

The script's grammar: docs/reference/replay-script.md. `bench import-strace` makes a script from strace's output.")]
pub struct BenchReplayArgs {
    #[command(flatten)]
    pub place: BenchPlaceArgs,
    /// A trace recorded with `--events cache` (and `syscall`, for the length of each read), or a script.
    pub trace: PathBuf,
    /// Another script to run at the same time, SECONDS later (repeatable).
    #[arg(long, value_name = "SCRIPT[@SECONDS]")]
    pub beside: Vec<String>,
    /// Write the script to a file (- is standard output) instead of running it.
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    pub script: Option<PathBuf>,
    /// Record during the replay, and write the trace to this file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Events of that recording, as `record --events` has them (default: block,cache,syscall, and flash where there is raw NAND).
    #[arg(long, value_name = "EVENTS", value_delimiter = ',', requires = "output")]
    pub events: Vec<String>,
    /// Only reads of processes of this name.
    #[arg(long, value_name = "NAME")]
    pub process: Option<String>,
    /// Only files of this device.
    #[arg(long, value_name = "MAJOR:MINOR")]
    pub device: Option<String>,
    /// Bytes to add to a file's size if the trace does not show its end.
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    pub beyond: Bytes,
    /// asap: no pauses between the calls of a task; recorded: at the times of the script; pauses: the recorded pause after the
    /// return of each call.
    #[arg(long, value_enum, default_value_t = Timing::Asap)]
    pub timing: Timing,
    /// Contents of the files: compressible, printable, random or zero.
    #[arg(long, default_value = "printable")]
    pub contents: String,
    /// Seed of the contents.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Timing {
    Asap,
    Recorded,
    Pauses,
}

impl Timing {
    /// The value of the agent's option.
    pub fn as_str(self) -> &'static str {
        match self {
            Timing::Asap => "asap",
            Timing::Recorded => "recorded",
            Timing::Pauses => "pauses",
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  strace -f -ttt -T -y -Y -o player.strace -e trace=desc,file vlc film.mp4
  flashscope bench import-strace player.strace --under /mnt/films --under /home/player -o player.replay
  flashscope bench import-strace vlc=a.strace navit=b.strace --under /mnt -o both.replay

Each thread that calls is a task. Its name is the one that strace prints (-Y), else NAME of NAME=FILE.")]
pub struct BenchImportStraceArgs {
    /// Output of strace; NAME= in front of it names its tasks. All begin at the same time.
    #[arg(required = true, value_name = "[NAME=]FILE")]
    pub files: Vec<String>,
    /// Only files below this directory (repeatable).
    #[arg(long, required = true, value_name = "DIR")]
    pub under: Vec<String>,
    /// Only the first SECONDS.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub first: Option<f64>,
    /// Join reads of a task that follow each other in a file and in time, with at most this pause, up to 128 KiB.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    pub join: u64,
    /// Script to write (- is standard output).
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}
