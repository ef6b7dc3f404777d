//! `board`: lists, fetches and boots virtual boards, and opens a shell on them.

use std::io::Write;
use std::sync::Arc;

use flashscope_output::{quote, visible};
use flashscope_targets::Progress as _;
use flashscope_targets::board::{self, Board, ImageBuilder, Kernel, Run};
use flashscope_trace::Session;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::{BoardAction, BoardArgs, BoardOptions};
use crate::failure::Failure;
use crate::progress::Terminal;
use crate::stop;

pub fn run(args: &BoardArgs, quiet: bool) -> Result<(), Failure> {
    let terminal = Arc::new(Terminal::new(quiet));
    match &args.action {
        BoardAction::List { json } => list(*json),
        BoardAction::Fetch { board, options, all, refresh } => fetch(board, options, *all, *refresh, &terminal),
        BoardAction::Boot { board, options, command } => boot(board, options, command, &terminal),
        BoardAction::Shell { board, options } => shell(board, options, &terminal),
    }
}

/// A board in the JSON of `board list`.
#[derive(Serialize, JsonSchema)]
pub struct Listed {
    name: String,
    description: String,
    arch: String,
    /// The board that `--on board` selects.
    default: bool,
    clock: String,
    /// Its NAND chip, or null.
    chip: Option<String>,
    /// Its disk, or null.
    disk: Option<String>,
    kernels: Vec<ListedKernel>,
}

#[derive(Serialize, JsonSchema)]
pub struct ListedKernel {
    name: String,
    suites: Vec<String>,
    package: String,
    default: bool,
    /// Release of the fetched kernel; null if none is fetched.
    cached: Option<String>,
}

impl Listed {
    fn of(board: &Board) -> Listed {
        let kernel = |line: &board::KernelLine| ListedKernel {
            name: line.name.clone(),
            suites: line.suites.clone(),
            package: line.package.clone(),
            default: line.default,
            cached: board.cached_release(line),
        };
        Listed {
            name: board.name.clone(),
            description: board.description.clone(),
            arch: board.arch.clone(),
            default: board.default,
            clock: board.clock.clone(),
            chip: board.chip().map(|chip| chip.name.clone()),
            disk: board.disk().map(|disk| disk.name.clone()),
            kernels: board.kernels.iter().map(kernel).collect(),
        }
    }
}

fn list(as_json: bool) -> Result<(), Failure> {
    let boards = board::list().into_iter().collect::<Result<Vec<Board>, _>>()?;
    if as_json {
        let listed: Vec<Listed> = boards.iter().map(Listed::of).collect();
        out!("{}", flashscope_report::json::any(&listed));
        return Ok(());
    }
    for board in boards {
        let default = if board.default { " (default)" } else { "" };
        outln!("{}{default}: {}", visible(&board.name), visible(&board.description));
        for line in &board.kernels {
            let cached = match board.cached_release(line) {
                Some(release) => format!("cached: {release}"),
                None => {
                    let word = |name: &str| quote::shell(name).unwrap_or_else(|| "NAME".to_owned());
                    format!("not fetched: flashscope board fetch {} --kernel {}", word(&board.name), word(&line.name))
                }
            };
            let default = if line.default { " (default)" } else { "" };
            outln!("  kernel {}{default}: {} of {}; {cached}", line.name, line.package, line.suites.join(", "));
        }
    }
    Ok(())
}

fn fetch(
    name: &str,
    options: &BoardOptions,
    all: bool,
    refresh: bool,
    terminal: &Arc<Terminal>,
) -> Result<(), Failure> {
    let board = board::load(name)?;
    let lines: Vec<String> = match (all, &options.kernel) {
        (true, Some(_)) => return Err(Failure::usage("--all and --kernel exclude each other")),
        (true, None) => board.kernels.iter().map(|line| line.name.clone()).collect(),
        (false, kernel) => vec![kernel.clone().unwrap_or_default()],
    };
    for line in lines {
        let kernel = match refresh {
            true => board.fetch_refresh(&line, terminal.as_ref())?,
            false => board.fetch(&line, terminal.as_ref())?,
        };
        if !options.packages.is_empty() {
            board.fetch_packages(&kernel, &options.packages, terminal.as_ref())?;
        }
        outln!("{}: kernel {} is {} {}", board.name, kernel.name, kernel.package, kernel.version);
    }
    Ok(())
}

/// The kernel and the image for a boot; the image has the chip and the packages.
struct Prepared {
    board: Board,
    kernel: Kernel,
    builder: ImageBuilder,
    lines: Vec<String>,
}

fn prepare(name: &str, options: &BoardOptions, terminal: &Terminal) -> Result<Prepared, Failure> {
    let board = board::load(name)?;
    let kernel = board.fetch(options.kernel.as_deref().unwrap_or_default(), terminal)?;
    let packages = board.fetch_packages(&kernel, &options.packages, terminal)?;
    let mut builder = ImageBuilder::new(&board)?;
    let mut lines = builder.add_port_modules(&kernel)?;
    let settings = board.disk_settings(&options.disk)?;
    lines.extend(builder.add_storage(&kernel, &[], settings.as_ref())?);
    let modules: Vec<&str> = options.modules.iter().map(String::as_str).collect();
    board.prepare_modules(&kernel, &modules, terminal)?;
    lines.extend(builder.add_module_closure(&kernel, &modules)?.into_iter().map(|path| format!("module {path}")));
    builder.add_packages(&packages)?;
    Ok(Prepared { board, kernel, builder, lines })
}

fn boot(name: &str, options: &BoardOptions, command: &[String], terminal: &Arc<Terminal>) -> Result<(), Failure> {
    let Prepared { board, kernel, mut builder, mut lines } = prepare(name, options, terminal)?;
    // Not earlier: the preparation may wait for something that the flag does not end, such as a FIFO without a writer.
    let stop = stop::flag()?;
    let words = match command.is_empty() {
        true => "/flashscope/agent probe".to_owned(),
        false => command
            .iter()
            .map(|word| board::plan_word(word).ok_or_else(|| Failure::usage("an argument is empty: leave it out")))
            .collect::<Result<Vec<_>, _>>()?
            .join(" "),
    };
    lines.push(format!("-run command {words}"));
    builder.set_plan(&lines);
    let image = builder.build()?;
    let outcome = board::boot(&Run { stop: Some(&*stop), ..Run::new(&board, &kernel, &image) }, terminal.as_ref())?;
    let session = Session::open(&outcome.port_file())?;
    let Some(step) = session.step("command") else {
        return Err(Failure::new(
            "the board returned no result of the command; try the command by hand: flashscope board shell",
        ));
    };
    flashscope_output::print_bytes(&step.stdout)?;
    std::io::stderr().write_all(&step.stderr).ok();
    terminal.step(&format!("the board ran for {:.1} s of host time", outcome.wall.as_secs_f64()));
    match step.status {
        Some(0) => Ok(()),
        Some(status) => Err(Failure::new(format!("the command ended with status {status} on the board"))),
        None => Err(Failure::new("the command did not end on the board")),
    }
}

fn shell(name: &str, options: &BoardOptions, terminal: &Arc<Terminal>) -> Result<(), Failure> {
    let mut options = options.clone();
    if !options.packages.iter().any(|package| package.starts_with("busybox")) {
        options.packages.push("busybox".to_owned());
    }
    let Prepared { board, kernel, mut builder, mut lines } = prepare(name, &options, terminal)?;
    let more = builder.add_module_closure(&kernel, &["jffs2", "ubi", "ubifs", "mtdblock", "squashfs"])?;
    lines.extend(more.into_iter().map(|path| format!("module {path}")));
    lines.push("-shell".to_owned());
    builder.set_plan(&lines);
    let image = builder.build()?;
    terminal
        .line("a shell on the board's console; `exit` or Ctrl-A X leaves it. Not for measuring: what is typed enters.");
    let stop = stop::flag()?;
    let run = Run { interactive: true, icount: false, stop: Some(&*stop), ..Run::new(&board, &kernel, &image) };
    board::boot(&run, terminal.as_ref())?;
    Ok(())
}
