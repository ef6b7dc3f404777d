//! `record`: its options.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use flashscope_study::Bytes;

use super::{AnonymizeArgs, TargetArgs};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope record -d 10                                  all that can be recorded here
  flashscope record -d 40 --device mmcblk0                 one device, and its stack
  flashscope record --pid 812 --pid 813                    two processes and their children
  flashscope record --cgroup system.slice/media.service    a service
  flashscope record --comm sqlite3                         every task of that name
  flashscope record -- dd if=/data/film of=/dev/null bs=4k count=8
  flashscope record --detail offset,duration -- sqlite3 contacts.db 'select * from people'
  flashscope record --user media --events block -- sh -c 'wc -l' <list.txt
On a board:
  flashscope record --on ssh://root@board -o boot.dat --mtd 3 --name cam
  flashscope ctl stop cam --on ssh://root@board            end that recording
  flashscope record --on ssh://root@board --source flashmon -- sync        without tracefs
  flashscope record --on ssh://root@board --trigger 'd2c>50ms' --trigger error
  flashscope record --boot --on ssh://root@board                   prepare; then reboot the board
  flashscope record --boot --collect --on ssh://root@board -o boot.dat

The result is a trace.dat: `flashscope report`, `trace-cmd report` and KernelShark open it.
An existing file is kept as FILE.old. Then a recording that is interrupted, or that a full disk ends, is called
FILE.incomplete.
A recording ends before the disk is full: its data is kept, and the exit status is 1
(125 if a command was recorded).")]
pub struct RecordArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Trace file to write.
    #[arg(short, long, value_name = "FILE", default_value = "trace.dat")]
    pub output: PathBuf,
    /// Stop after this amount of data; events still in the rings are added. A plain number is bytes.
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<Bytes>,
    /// Keep the agent's stream. Without this option it is converted to a trace.dat at the end. Where there is no room for that
    /// copy, the stream is kept.
    #[arg(long, conflicts_with_all = ["anonymize", "anonymize_key"])]
    pub no_convert: bool,
    /// End after this many seconds. A command continues unrecorded.
    #[arg(short = 'd', long = "duration", value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    pub duration: Option<u64>,
    /// Event groups: auto, flash, block, syscall, cache, layers, or SYSTEM:EVENT [default: auto: those of flash, block, syscall and
    /// cache that the target has; with --mtd, --detail or --source flashmon: flash].
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    pub events: Vec<String>,
    /// Only this device: a name (mmcblk0, sda1, dm-0, loop3, mtd2), its numbers (254:0) or /dev/PATH. Devices that are stacked on it
    /// (partitions, dm, md, loop devices) and those beneath it are included. Calls name no device: those that sync and rename are
    /// recorded of all processes, others with `--events …,syscall` alone. A report leaves out those in which nothing happened on this
    /// device.
    #[arg(long, value_name = "NAME")]
    pub device: Vec<String>,
    /// Only this process, all its threads, and its children from now on. Requests are recorded of all processes, because the kernel
    /// issues and completes them in the name of other tasks (add --device).
    #[arg(long, value_name = "PID", allow_negative_numbers = true)]
    pub pid: Vec<u32>,
    /// Only the processes of this cgroup (v1 or v2): a path below /sys/fs/cgroup, as /proc/PID/cgroup has it. Requests are
    /// recorded of all processes, as with --pid.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<String>,
    /// Only tasks of this name (15 characters; * matches any characters). Requests are recorded of all processes, as with --pid.
    #[arg(long, value_name = "NAME")]
    pub comm: Vec<String>,
    /// Source of flash events: the kernel's tracefs, or the module flashmon, which must be loaded (a virtual board loads it).
    #[arg(long, value_enum, default_value_t = Source::Tracefs)]
    pub source: Source,
    /// Flight recorder: keep the last seconds in memory on the target, and write them each time this happens: `d2c>50ms`,
    /// `fsync>100ms`, `error`, `psi-io>20%`, or `run CMD` (CMD ends with 0; run once a second). Until Ctrl-C or -d.
    #[arg(long, value_name = "TRIGGER", conflicts_with_all = ["command", "paused", "max_size", "mode"])]
    pub trigger: Vec<String>,
    /// Seconds to keep before the trigger (of a request or sync: before it began), as far as the ring holds them [default: 5].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, requires = "trigger")]
    pub before: Option<u64>,
    /// Seconds to record after the trigger [default: 2].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, requires = "trigger")]
    pub after: Option<u64>,
    /// End after this many captures [default: no end].
    #[arg(long, value_name = "N", requires = "trigger")]
    pub captures: Option<u64>,
    /// Prepare a machine over ssh so that its next boots are recorded, from the start of init for 60 seconds (or -d). It says what it
    /// changed. Reboot the machine yourself, then use --collect, or --undo.
    #[arg(long, conflicts_with_all = ["command", "paused", "max_size", "trigger", "source"])]
    pub boot: bool,
    /// Fetch the recording of the present boot, which is in the machine's memory, and undo the preparation.
    #[arg(long, requires = "boot", conflicts_with = "undo")]
    pub collect: bool,
    /// Undo the preparation, and discard a recording that was not collected.
    #[arg(long, requires = "boot")]
    pub undo: bool,
    /// Extra fields, each with a cost: offset, duration, chip.
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub detail: Vec<String>,
    /// Only these MTD devices.
    #[arg(long, value_name = "N")]
    pub mtd: Vec<u32>,
    /// Size of the ring per CPU; a plain number is bytes [default: 4M; in stream mode up to 16M where there is
    /// much memory; less where there is little].
    #[arg(long, value_name = "SIZE")]
    pub ring: Option<Bytes>,
    /// stream: events are sent continuously; ring: the newest events that fit are kept and read once at the end.
    #[arg(long, value_enum, default_value_t = Mode::Stream)]
    pub mode: Mode,
    /// How paths of files are found. seen: among the open and mapped files of processes; walk: also by a search of the used file
    /// systems, without a time limit; none: neither paths nor command lines. [default: as walk, limited to 5 seconds; with -d to a fifth of its seconds, at least 1]
    #[arg(long, value_name = "HOW")]
    pub paths: Option<Paths>,
    /// The same as --paths none, for a trace that you give away.
    #[arg(long, conflicts_with = "paths")]
    pub no_paths: bool,
    #[command(flatten)]
    pub anonymize: AnonymizeArgs,
    /// Name for `flashscope ctl`.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Prepare the recording, but start tracing only at `flashscope ctl start`.
    #[arg(long)]
    pub paused: bool,
    /// Run the command as this user (a name of the target's /etc/passwd, or a number); needs root there.
    #[arg(long, value_name = "NAME", requires = "command")]
    pub user: Option<String>,
    /// Command to run under the trace; without one, until stopped. It has this command's stdin, stdout and stderr, and its exit
    /// status becomes this command's (125: flashscope failed, 126: CMD cannot be run, 127: CMD is not there). On a virtual board, stdin (at
    /// most 16 MiB) is read to its end before the boot.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
    seconds.ok_or_else(|| format!("give whole seconds, from 1 to {MOST_SECONDS}"))
}

/// A hundred years.
const MOST_SECONDS: u64 = 100 * 365 * 24 * 3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    Stream,
    Ring,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paths {
    Walk,
    Seen,
    None,
}

impl Paths {
    /// The value of the agent's option.
    pub fn word(self) -> &'static str {
        match self {
            Paths::Walk => "walk",
            Paths::Seen => "seen",
            Paths::None => "none",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    Tracefs,
    Flashmon,
}
