//! Fetches kernels of a board and boots each once with a trivial plan: `boot [BOARD [KERNEL…]]`.
//! Prints the host time from QEMU's start to the plan's end.

use flashscope_target::board::{self, ImageBuilder, Run};
use flashscope_target::{Error, Progress};

struct Stderr;

impl Progress for Stderr {
    fn step(&self, text: &str) {
        eprintln!("{text}");
    }
    fn bytes(&self, _done: u64, _total: Option<u64>) {}
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let board = board::load(&args.next().unwrap_or_else(|| "armv7".to_owned()))?;
    let mut names: Vec<String> = args.collect();
    if names.is_empty() {
        names = board.kernels.iter().map(|line| line.name.clone()).collect();
    }
    for name in names {
        let kernel = board.fetch(&name, &Stderr)?;
        let mut image = ImageBuilder::new(&board)?;
        let mut lines = image.add_port_modules(&kernel)?;
        lines.extend(image.add_nand(&kernel, &[])?);
        for path in image.add_module_closure(&kernel, &["jffs2", "ubifs", "mtdblock", "squashfs"])? {
            lines.push(format!("module {path}"));
        }
        lines.push("run probe /flashscope/agent probe".to_owned());
        image.set_plan(&lines);
        let image = image.build()?;
        match board::boot(&Run::new(&board, &kernel, &image), &Stderr) {
            Ok(outcome) => println!(
                "{} {} {} {}: {:.2} s, {} bytes of port, image {}",
                board.name,
                kernel.name,
                kernel.package,
                kernel.version,
                outcome.wall.as_secs_f64(),
                outcome.port_file().metadata().map_or(0, |meta| meta.len()),
                &image.sha256[..12],
            ),
            Err(error) => println!("{} {}: {error}", board.name, kernel.name),
        }
    }
    Ok(())
}
