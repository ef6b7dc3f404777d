//! The command line as typed: one definition for parsing, help, man pages and completions.
// Help text, in which [brackets] are the usual form of what may be left out, not links.
#![allow(rustdoc::broken_intra_doc_links)]

mod diff;
mod record;
mod replay;
mod top;

pub use diff::{DiffArgs, LimitArgs};
pub use record::{Mode, Paths, RecordArgs, Source};
pub use replay::{BenchImportStraceArgs, BenchReplayArgs};
pub use top::TopArgs;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use flashscope_analysis::SplitBy;
use flashscope_study::{Bytes, Pattern, Readahead};
use flashscope_trace::TimeNs;

/// Show which application reads and writes which file on which storage device, how long it takes, and who slows whom: on this
/// machine, on a board over ssh, or on a virtual board.
#[derive(Debug, Parser)]
#[command(
    name = "flashscope",
    version,
    long_version = crate::version::text(),
    max_term_width = 100,
    after_help = "\
TARGET is `local` (default), `ssh://user@host[:port]` or `board:NAME`, a virtual board.
Exit status: 0 done, 1 failure, 2 usage.

Examples:
  flashscope doctor                              what can be recorded here, and the command to type
  flashscope record -d 10                        record everything for ten seconds
  flashscope report trace.dat                    what happened, and what to do about it
  flashscope report trace.dat --html page.html   the same as a page, with figures
  flashscope record --on ssh://root@board -- cat /etc/services"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Print no progress on standard error.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Run this agent on the target instead of the one that flashscope carries: a flashscope-agent, or a directory with
    /// ARCH/flashscope-agent. FLASHSCOPE_AGENTS names such a directory too.
    #[arg(long, global = true, value_name = "PATH")]
    pub agent: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Boot virtual boards with raw NAND and show whether read-ahead helps or hurts there.
    Demo(DemoArgs),
    /// Record storage events of the kernel while a command runs, for some seconds, or until stopped.
    Record(RecordArgs),
    /// Show live who uses storage: by process, file and device.
    Top(TopArgs),
    /// Start, stop, pause or resume a recorder from another shell.
    Ctl(CtlArgs),
    /// Report on a trace: who used which storage, when, and for how long.
    Report(ReportArgs),
    /// Say what changed between two recordings or results.
    Diff(DiffArgs),
    /// Explain what costs time or wear in a trace, and recommend changes.
    Advise(AdviseArgs),
    /// Predict what a recorded workload would read with other read-ahead settings.
    Predict(PredictArgs),
    /// Removed in 0.2.0.
    #[command(hide = true, disable_help_flag = true)]
    Policy {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Run a study: measure a matrix of settings and compare it with published values.
    Study(StudyArgs),
    /// Run one benchmark under the tracer.
    Bench(BenchArgs),
    /// Write a trace in another format.
    Export(ExportArgs),
    /// Check what a target can record, what is missing, and how to add it.
    Doctor(DoctorArgs),
    /// List, fetch, boot or explore virtual boards.
    Board(BoardArgs),
    /// Print the JSON schema of a command's --json, or list the schemas.
    Schema(SchemaArgs),
    /// Print a shell's completion script.
    Completions {
        /// Shell that reads the script.
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory.
    Man {
        /// Directory for the man pages, one file a command.
        directory: PathBuf,
        /// Write the generated documents of docs/reference into the directory instead.
        #[arg(long, hide = true)]
        reference: bool,
    },
}

/// Which schema.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope schema                       the names, and which command prints each
  flashscope schema report-block > report-block.schema.json")]
pub struct SchemaArgs {
    /// Name of a schema; without it, all names.
    pub name: Option<String>,
}

/// Where a command runs.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Where to run: local, ssh://user@host[:port], board:NAME.
    #[arg(long = "on", value_name = "TARGET", default_value = "local")]
    pub target: String,
    #[command(flatten)]
    pub board: BoardOptions,
}

/// What a virtual board boots.
#[derive(Clone, Debug, Default, Args)]
pub struct BoardOptions {
    /// Kernel of a virtual board: a line of `flashscope board list`, or a directory with vmlinuz and lib/modules.
    #[arg(long, value_name = "NAME|DIR")]
    pub kernel: Option<String>,
    /// Debian packages of the board's architecture to unpack into its boot image.
    #[arg(long, value_name = "PACKAGE", value_delimiter = ',')]
    pub packages: Vec<String>,
    /// Kernel modules to load on a virtual board: the kernel's own, or one that flashscope builds for it (yaffs2, flashmon).
    #[arg(long, value_name = "MODULE", value_delimiter = ',')]
    pub modules: Vec<String>,
    /// Settings of a virtual board's disk (disks/*.toml): scheduler, size_mib, filesystem, queue_depth, completion_ns.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = disk_setting)]
    pub disk: Vec<(String, String)>,
}

fn disk_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("not NAME=VALUE, as scheduler=bfq")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashscope demo --output out/demo")]
pub struct DemoArgs {
    /// Directory for report.html, results.json and results.csv.
    #[arg(short, long, value_name = "DIR", default_value = "flashscope-demo")]
    pub output: PathBuf,
    /// Reuse groups that an earlier run with the same inputs has finished.
    #[arg(long)]
    pub resume: bool,
    /// Boards to boot at once (default: as many as cores).
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

#[derive(Debug, Args)]
pub struct CtlArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// What to do with the recorder; status prints its state.
    #[arg(value_enum)]
    pub action: CtlAction,
    /// Which recorder (default: the only one).
    pub name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CtlAction {
    Start,
    Stop,
    Pause,
    Resume,
    Status,
}

#[derive(Debug, Default, Args)]
#[command(after_help = with_formats("\
Examples:
  flashscope report trace.dat
  flashscope report trace.dat --fail-if 'p99(d2c, write, mmcblk0) > 20ms' --fail-if 'errors > 0'
  flashscope report trace.dat --html report.html --process sqlite3
  flashscope report trace.dat --by file --top 5
  flashscope report trace.dat --json | jq '.findings[0].what'
  flashscope report before.dat after.dat                   two recordings of one boot: one clock
  flashscope report board-a.dat board-b.dat --offset board-b.dat=-2500000

Times of several traces are those of the first. Recordings of one boot have one clock; others need
a marker that begins with flashscope-sync, once in each (echo flashscope-sync-1 into trace_marker),
or --offset.\n\nFormats that are read (docs/reference/formats.md says more):\n"))]
pub struct ReportArgs {
    /// A trace of any format below; several are taken together, in order of time.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    #[command(flatten)]
    pub clocks: ClockArgs,
    #[command(flatten)]
    pub anonymize: AnonymizeArgs,
    /// Write a self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the trace for ui.perfetto.dev, with findings, calls, and I/O by application and device. It has the whole trace: without
    /// --from, --to, --process and --call.
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Show only what began at this time or later, seconds after the first event.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub from: Option<f64>,
    /// Show only what began up to this time, seconds after the first event.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub to: Option<f64>,
    /// Not an option: for each CPU, the time up to which its events were shown before. Events of one CPU are in order of time; events of
    /// several CPUs are not.
    #[arg(skip)]
    pub shown_until: Vec<Option<TimeNs>>,
    /// Not an option: ignore queueing, so that requests are counted instead of bios.
    #[arg(skip)]
    pub requests_alone: bool,
    /// Not an option: the recorder was to record completions, so a trace without one had none.
    #[arg(skip)]
    pub records_completions: bool,
    /// Show only this process, by any of its names: the thread's, the process's, its program or command line, its systemd unit,
    /// container or Android package; or as a table has it: 'tar (500)'. A process that executed another program has the last one's name.
    #[arg(long, value_name = "NAME")]
    pub process: Option<String>,
    /// Rated erase cycles of a block, or a chip whose file states them (chips/*.toml): adds the remaining years.
    #[arg(long, value_name = "CYCLES|CHIP")]
    pub endurance: Option<String>,
    /// layer: the time of reads, writes and syncs by layer of the kernel (`record --events layers`, or trace-cmd's function_graph with
    /// block and syscall events). app, process, thread: what the tables of originators, tasks and files count I/O for; app is the
    /// systemd unit, container or Android package [default: thread]. file, device, call: only the tables by file, by device and
    /// operation (of raw flash: by chip), or by kind of call.
    #[arg(long, value_name = "WHAT")]
    pub by: Option<ReportBy>,
    /// Show one call, by its number in the tables of calls: its way through the layers, and what delayed it.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["by", "html", "from", "to", "process", "fail_if"])]
    pub call: Option<u64>,
    /// Rows of each table.
    #[arg(long, value_name = "N", value_parser = rows)]
    pub top: Option<usize>,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// Number of rows of a table: 1 or more.
fn rows(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&rows| rows > 0).ok_or_else(|| "not a number of rows, 1 or more".to_owned())
}

/// A help text followed by the formats that are read.
fn with_formats(text: &str) -> String {
    text.to_owned() + &flashscope_trace::formats_help()
}

/// Energy of predicted times.
#[derive(Debug, Args)]
pub struct PowerArgs {
    /// Add energy: predicted time multiplied by the mean power of a board (power/NAME.toml, or a path with a slash).
    #[arg(long, value_name = "NAME")]
    pub power: Option<String>,
    /// File system of the files [default: from the trace's mounts].
    #[arg(long, value_name = "NAME")]
    pub filesystem: Option<String>,
}

/// The kernel whose rules a recorded workload is run through again.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Use the read-ahead rules of this kernel: 2.6.37, 5.10, 6.1, 6.12, 7.2, or a release (default: the recording's).
    #[arg(long, value_name = "VERSION")]
    pub kernel_model: Option<String>,
    /// The device's largest request, KiB: queue/max_sectors_kb of a block device, 0 for MTD and UBI [default: from the
    /// trace's mounts].
    #[arg(long, value_name = "KIB", allow_negative_numbers = true)]
    pub io_kib: Option<u64>,
    /// A trace in which the same files were read page by page, without read-ahead: the cost of pages that the recording lacks.
    #[arg(long, value_name = "TRACE")]
    pub layout: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope record --on ssh://root@board --events flash,cache,syscall -o app.dat -- ./app
  flashscope predict app.dat
  flashscope predict app.dat --readahead 0,8,32 --kernel-model 2.6.37 --json
  flashscope predict app.dat --power omap3evm --html app.html
  flashscope predict app.dat --chip ./slower.toml --recorded-chip micron-slc-256m
  flashscope record --on ssh://root@board --events flash,cache,syscall -o data.dat -- flashscope-agent bench read \
      --file /data/app.db --pattern pages --readahead 0 --drop-caches
  flashscope predict app.dat --layout data.dat

Times are predicted on MTD and UBI, and behind a block queue (--events block,cache,syscall).
Without system calls (--events …,syscall) each task is assumed to open each file once.")]
pub struct PredictArgs {
    /// A trace with file reads and pages of the cache (record --events flash,cache,syscall).
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Settings of read-ahead to try, KiB (read_ahead_kb).
    #[arg(
        long,
        value_name = "KIB",
        value_delimiter = ',',
        default_value = "0,16,64,128",
        allow_negative_numbers = true
    )]
    pub readahead: Vec<u64>,
    /// Also with POSIX_FADV_RANDOM on all files.
    #[arg(long)]
    pub fadvise_random: bool,
    /// UBIFS: try every window also with the mount option bulk_read, or without it if the recording had it [default: only the
    /// smallest window].
    #[arg(long)]
    pub bulk_read: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    /// Predict times for this chip (chips/*.toml, or a file), which must have the same page size.
    #[arg(long, value_name = "NAME|FILE", requires = "recorded_chip")]
    pub chip: Option<String>,
    /// The chip that the trace was recorded on; "none" if its reads took no time.
    #[arg(long, value_name = "NAME|FILE", requires = "chip")]
    pub recorded_chip: Option<String>,
    /// Page cache size, MiB.
    #[arg(long, value_name = "MIB", default_value = "1024")]
    pub cache_mib: u64,
    #[command(flatten)]
    pub energy: PowerArgs,
    /// Write a page with table and figure.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope record --on ssh://root@board --events flash,cache,syscall -o app.dat -- ./app
  flashscope advise app.dat
  flashscope advise app.dat --apply --on ssh://root@board
  flashscope advise --undo --on ssh://root@board

Without --apply nothing is changed: the commands to type are printed. --apply asks first.")]
pub struct AdviseArgs {
    /// A trace of any format. Advice on read-ahead needs file reads and pages of the cache (record --events flash,cache,syscall).
    #[arg(value_name = "TRACE", required_unless_present = "undo")]
    pub trace: Option<PathBuf>,
    /// Apply the recommended run-time settings, after asking; --undo restores the old ones.
    #[arg(long, conflicts_with_all = ["undo", "json", "anonymize", "anonymize_key"])]
    pub apply: bool,
    /// Restore what --apply changed.
    #[arg(long, conflicts_with = "trace")]
    pub undo: bool,
    /// Apply without asking.
    #[arg(long, requires = "apply")]
    pub yes: bool,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Read-ahead during the recording, KiB (default: the one that explains its pages best).
    #[arg(long, value_name = "KIB")]
    pub now: Option<u64>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub anonymize: AnonymizeArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What a report is split by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportBy {
    Layer,
    App,
    Process,
    Thread,
    File,
    Device,
    Call,
}

impl ReportBy {
    /// The tables for this split, if only those are shown.
    pub fn split(self) -> Option<SplitBy> {
        match self {
            ReportBy::File => Some(SplitBy::File),
            ReportBy::Device => Some(SplitBy::Device),
            ReportBy::Call => Some(SplitBy::Call),
            ReportBy::Layer | ReportBy::App | ReportBy::Process | ReportBy::Thread => None,
        }
    }
}

/// What ties the clocks of several traces together.
#[derive(Clone, Debug, Default, Args)]
pub struct ClockArgs {
    /// Added to all times of the trace of this name (or path), in nanoseconds; may be negative.
    #[arg(long = "offset", value_name = "NAME=NANOSECONDS", value_parser = crate::inputs::offset)]
    pub offsets: Vec<crate::inputs::Offset>,
    /// Bytes of a logical block of the devices (`cat /sys/block/DEVICE/queue/logical_block_size`), for traces of a driver's commands alone:
    /// NVMe and SCSI count in blocks.
    #[arg(long, value_name = "BYTES", value_parser = crate::inputs::block_size)]
    pub block_size: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope study readahead-reads --output out/reads
  flashscope study ./mine.toml --json | jq '.verdicts'
  flashscope study --all --report docs/reproduction.md
An interrupted run continues where it stopped: finished parts are not measured again (--fresh measures all).")]
pub struct StudyArgs {
    /// Study files; a bare name (readahead-reads) is a study that comes with flashscope.
    #[arg(required_unless_present = "all", value_name = "FILE|NAME")]
    pub files: Vec<PathBuf>,
    /// Run every study that comes with flashscope.
    #[arg(long, conflicts_with = "files")]
    pub all: bool,
    /// Write a Markdown page that compares every published value with ours; figures go into a directory beside it.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Directory for report.html, results.json and results.csv (default: out/NAME).
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Leave text in results.csv unchanged that a spreadsheet could read as a formula.
    #[arg(long)]
    pub csv_raw: bool,
    /// Print the results as JSON.
    #[arg(long)]
    pub json: bool,
    /// Measure every group again, also those that an earlier run with the same inputs has finished.
    #[arg(long)]
    pub fresh: bool,
    /// Boards to boot at once (default: as many as cores).
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    pub board: BoardOptions,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub bench: Bench,
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Timed reads of one file from a cold cache, with the flash reads that they caused.
    Read(BenchReadArgs),
    /// Selections of records from a SQLite database of contacts, each run from a cold cache.
    Sqlite(BenchSqliteArgs),
    /// Katcher's PostMark: many small files, created, read, appended to and deleted.
    Postmark(BenchPostmarkArgs),
    /// Repeat the calls of recorded programs on another file system, board or setting, alone or beside others.
    Replay(BenchReplayArgs),
    /// Make a replay script from strace's output.
    ImportStrace(BenchImportStraceArgs),
}

/// Where a benchmark's files lie.
#[derive(Debug, Args)]
pub struct BenchPlaceArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// File system to make on a virtual board's NAND: jffs2, ubifs, yaffs2; on its disk ext4, f2fs.
    #[arg(long, value_name = "NAME")]
    pub filesystem: Option<flashscope_study::Filesystem>,
    /// Size of its NAND partition on a virtual board.
    #[arg(long, value_name = "SIZE", default_value = "50M")]
    pub partition: Bytes,
    /// Directory on your own board; the benchmark's files are made there, and removed (a database of sqlite stays).
    #[arg(long, value_name = "DIR")]
    pub dir: Option<String>,
    /// Read-ahead in KiB as in read_ahead_kb (suffixes allowed), or keep, fadvise-random, fadvise-sequential.
    #[arg(long, value_name = "KIB", default_value = "keep")]
    pub readahead: Readahead,
    /// Drop the page cache, dentries and inodes before the reads (on a virtual board always).
    #[arg(long)]
    pub drop_caches: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope bench sqlite --on board:armv7 --filesystem jffs2 --selects 1,10,100,1000 --pattern sequential,random --readahead 128
  flashscope bench sqlite --on ssh://root@board --dir /data/test --text 128 --selects 1000 --drop-caches --json

It needs flashscope-sqlite beside the agent: `make sqlite` builds it.")]
pub struct BenchSqliteArgs {
    #[command(flatten)]
    pub place: BenchPlaceArgs,
    /// Number of SELECTs in each run.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,10,100,1000")]
    pub selects: Vec<u64>,
    /// Order of the records: sequential, random.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "sequential,random", value_parser = crate::inputs::pattern)]
    pub pattern: Vec<Pattern>,
    /// Records of the database.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub records: u64,
    /// Bytes of each of a record's five texts; 64 and 128 make files of 518 KB and 1 MB.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub text: u64,
    /// Page size of the database; 1024 was SQLite's default until 3.12.0.
    #[arg(long, value_name = "SIZE", default_value = "1024")]
    pub page_size: Bytes,
    /// Seed of the records and of the random order.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope bench postmark --on board:armv7 --filesystem jffs2 --config flashmon
  flashscope bench postmark --on board:armv7-blk --filesystem ext4 --config flashmon --cold-reads --readahead 0 --json
  flashscope bench postmark --on ssh://root@board --dir /data/test --files 200 --transactions 1000")]
pub struct BenchPostmarkArgs {
    #[command(flatten)]
    pub place: BenchPlaceArgs,
    /// Defaults of the settings below: katcher (PostMark's own) or flashmon (800 files of 512 B to 10 KB, 3000 transactions).
    #[arg(long, default_value = "katcher")]
    pub config: String,
    /// Number of files before the transactions.
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// Number of transactions: one reads or appends, and one creates or deletes.
    #[arg(long, value_name = "N")]
    pub transactions: Option<u64>,
    /// Directories that the files are spread over; 0: all in one.
    #[arg(long, value_name = "N")]
    pub subdirectories: Option<u64>,
    /// Smallest size of a new file.
    #[arg(long, value_name = "SIZE")]
    pub size_min: Option<Bytes>,
    /// Largest size of a file.
    #[arg(long, value_name = "SIZE")]
    pub size_max: Option<Bytes>,
    /// Bytes of one read().
    #[arg(long, value_name = "SIZE")]
    pub read_request: Option<Bytes>,
    /// Bytes of one write().
    #[arg(long, value_name = "SIZE")]
    pub write_request: Option<Bytes>,
    /// Transactions of ten that read a file; the others append to one.
    #[arg(long, value_name = "N")]
    pub read_bias: Option<u64>,
    /// Transactions of ten that create a file; the others delete one.
    #[arg(long, value_name = "N")]
    pub create_bias: Option<u64>,
    /// Contents of the files: compressible, printable, random or zero.
    #[arg(long, default_value = "printable")]
    pub contents: String,
    /// Shares of a file, percent, at which read throughput is measured.
    #[arg(long, value_name = "PERCENT", default_value = "25,50,100")]
    pub shares: String,
    /// Drop the caches before each file that is read.
    #[arg(long)]
    pub cold_reads: bool,
    /// Seed of sizes, contents and order.
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope bench read --on board:armv7 --filesystem jffs2 --count 8 --size 4096 --pattern sequential --readahead 0 --json
  flashscope bench read --on ssh://root@board --file /data/test/film --count 64 --size 4K --readahead keep --drop-caches")]
pub struct BenchReadArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// File system to make on a virtual board: jffs2, ubifs, squashfs-mtdblock, squashfs-ubiblock, yaffs2; on its disk ext4, f2fs.
    #[arg(long, value_name = "NAME")]
    pub filesystem: Option<flashscope_study::Filesystem>,
    /// File to read on your own board; made there with --create.
    #[arg(long, value_name = "PATH")]
    pub file: Option<String>,
    /// Make the file first, if it is not there.
    #[arg(long)]
    pub create: bool,
    /// Size of the file.
    #[arg(long, value_name = "SIZE", default_value = "5M")]
    pub file_size: Bytes,
    /// Contents of the file: compressible, printable, random or zero.
    #[arg(long, default_value = "printable")]
    pub contents: String,
    /// Number of requests.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub count: u64,
    /// Size of one request.
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    pub size: Bytes,
    /// sequential or random.
    #[arg(long, default_value = "sequential", value_parser = crate::inputs::pattern)]
    pub pattern: Pattern,
    /// Read-ahead in KiB as in read_ahead_kb (suffixes allowed), or keep, fadvise-random, fadvise-sequential.
    #[arg(long, value_name = "KIB", default_value = "keep")]
    pub readahead: Readahead,
    /// Time between two requests, microseconds.
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub interarrival_us: u64,
    /// Seed of contents and of the random pattern.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Drop the page cache, dentries and inodes first (on a virtual board always).
    #[arg(long)]
    pub drop_caches: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope export trace.dat --to csv -o - | head
  flashscope export trace.dat --to perfetto -o trace.pftrace    open it at ui.perfetto.dev or with its trace processor
  flashscope export trace.dat --to parquet -o trace.parquet     see docs/how-to/query-a-trace.md for DuckDB and pandas
  flashscope export trace.dat --to flashmon -o log              writes log (temporal) and log.blocks (spatial)
  flashscope export a.dat b.dat --offset b.dat=-2500000 --to trace.dat -o both.dat

Several traces become csv, json, text or a trace.dat, in order of time; `flashscope report --help`
says how their clocks are aligned.")]
pub struct ExportArgs {
    /// A trace.dat, an agent's stream, a Flashmon log, or another format that `report` reads; several are merged.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    #[command(flatten)]
    pub clocks: ClockArgs,
    #[command(flatten)]
    pub anonymize: AnonymizeArgs,
    /// Format to write.
    #[arg(long, value_enum)]
    pub to: ExportFormat,
    /// Rows of csv, json and parquet: events, queued bios, or issued requests. Bios and requests have times, stages, owner, file and
    /// error.
    #[arg(long, value_enum, default_value_t = ExportRows::Events)]
    pub rows: ExportRows,
    /// File to write; - is standard output (csv, json, text, perfetto, parquet). Of flashmon this is the temporal log; the spatial
    /// view goes to FILE.blocks.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// CSV: leave text unchanged. Without it, text that a spreadsheet could read as a formula (it begins with =, +, - or @ and is
    /// not a number) gets a leading apostrophe.
    #[arg(long)]
    pub csv_raw: bool,
    /// Number of the recording, from 0, if a stream has several.
    #[arg(long, value_name = "N")]
    pub recording: Option<usize>,
    /// Chip to export if there are several (flashmon).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub chip: u16,
}

/// Pseudonyms instead of names.
#[derive(Clone, Debug, Default, Args)]
pub struct AnonymizeArgs {
    /// Replace names by pseudonyms: of files (each part of a path), tasks, command lines, cgroups, units, containers, mounts, volumes
    /// and models. Sizes, times, numbers, lengths of names, and names of the kernel's own threads and devices stay.
    #[arg(long)]
    pub anonymize: bool,
    /// The same with pseudonyms of a key of your own (a file of 16 bytes or more): traces with one key have the same pseudonyms.
    /// Anybody who has the key can check whether a guessed name is in the trace.
    #[arg(long, value_name = "FILE")]
    pub anonymize_key: Option<PathBuf>,
}

impl AnonymizeArgs {
    pub fn is_asked_for(&self) -> bool {
        self.anonymize || self.anonymize_key.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportRows {
    Events,
    Bios,
    Requests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Typed events, one a line.
    Csv,
    /// Every record with all its fields, one JSON object a line.
    Json,
    /// Every record with all its fields, one line of text each; the fastest, for reading and grep.
    Text,
    /// Tasks, operations and counters for ui.perfetto.dev.
    Perfetto,
    /// One table with typed columns.
    Parquet,
    Flashmon,
    #[value(name = "trace.dat")]
    TraceDat,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashscope doctor                           this machine: what can be recorded, and the command to type
  flashscope doctor --on ssh://root@board -v  all details: chips, probe points, missing events, access
Exit status: 0 something can be recorded, 1 nothing can.")]
pub struct DoctorArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Also devices, probe points, what each group lacks, and the rights that a recording needs.
    #[arg(short, long)]
    pub verbose: bool,
    /// Print the facts as JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct BoardArgs {
    #[command(subcommand)]
    pub action: BoardAction,
}

#[derive(Debug, Subcommand)]
pub enum BoardAction {
    /// List boards and their kernels, and which are in the cache.
    List {
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Fetch a board's kernel from Debian (needs no root, and changes no package of the host).
    Fetch {
        /// A board of `flashscope board list`.
        #[arg(default_value = "armv7")]
        board: String,
        #[command(flatten)]
        options: BoardOptions,
        /// Every kernel of the board.
        #[arg(long)]
        all: bool,
        /// Look in Debian's package index for a newer kernel.
        #[arg(long)]
        refresh: bool,
    },
    /// Boot a board, run a command on it, and print its output.
    Boot {
        /// A board of `flashscope board list`.
        #[arg(default_value = "armv7")]
        board: String,
        #[command(flatten)]
        options: BoardOptions,
        /// Command to run on the board (default: the agent's probe).
        #[arg(last = true, value_name = "CMD")]
        command: Vec<String>,
    },
    /// Open an interactive shell on the console of a board. Not for measuring.
    Shell {
        /// A board of `flashscope board list`.
        #[arg(default_value = "armv7")]
        board: String,
        #[command(flatten)]
        options: BoardOptions,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    /// A negative number is told as a wrong value. clap would take it for an option, and offer `-- -1`: to run `-1` as a command.
    #[test]
    fn a_negative_number_is_a_value() {
        let lines = ["record -d -1", "record --pid -3", "record --trigger error --before -1", "top -d -x"];
        for line in lines.into_iter().chain(["predict --readahead -4 t.dat", "predict --io-kib -1 t.dat"]) {
            let refused = Cli::try_parse_from(std::iter::once("flashscope").chain(line.split(' '))).expect_err(line);
            let expected = if line.ends_with('x') { ErrorKind::UnknownArgument } else { ErrorKind::ValueValidation };
            assert_eq!(refused.kind(), expected, "{line}");
        }
    }

    #[test]
    fn report_help_lists_the_formats_that_are_read() {
        let help = Cli::command().find_subcommand_mut("report").expect("report").render_help().to_string();
        let list: Vec<&str> =
            help.lines().skip_while(|line| !line.starts_with("Formats that are read")).skip(1).collect();
        let read = flashscope_trace::FORMATS.iter().filter(|format| format.read != "no");
        // Long lines are wrapped, so only the order of words is compared.
        let words = |text: &str| text.replace('`', "").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let want: Vec<String> = read
            .flat_map(|f| words(&if f.read == "yes" { f.name.to_owned() } else { format!("{} ({})", f.name, f.read) }))
            .collect();
        assert_eq!(words(&list.join(" ")), want);
    }

    #[test]
    fn every_command_is_sound_and_what_the_docs_show_is_taken() {
        Cli::command().debug_assert();
        for line in [
            "report t.dat --by layer --html t.html",
            "report t.dat --endurance micron-slc-256m",
            "report a b --offset b=-100",
            "bench sqlite --on board:armv7 --filesystem jffs2",
            "bench replay boot.dat --on board:armv7 --filesystem ubifs --readahead 128",
            "study studies/layers.toml --json",
            "study studies/postmark.toml studies/tracer-cost.toml",
        ] {
            let words = std::iter::once("flashscope").chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }
}
