//! Fetches kernels of a board and boots each once with a trivial plan: `boot [BOARD [KERNEL…]]`.
//! Prints the host time from QEMU's start to the first command and to the plan's end.

use std::cell::Cell;
use std::time::Instant;

use flashscope_targets::board::{self, ImageBuilder, Run};
use flashscope_targets::{Error, Progress};

#[derive(Default)]
struct Watch {
    began: Cell<Option<Instant>>,
    /// Host seconds until the plan's first `run`.
    first_command: Cell<Option<f64>>,
}

impl Progress for Watch {
    fn step(&self, text: &str) {
        self.began.set(Some(Instant::now()));
        eprintln!("{text}");
    }
    fn bytes(&self, _done: u64, _total: Option<u64>) {}
    fn plan_step(&self, name: &str) {
        if name == "probe" {
            self.first_command.set(self.began.get().map(|began| began.elapsed().as_secs_f64()));
        }
    }
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
        let watch = Watch::default();
        let kernel = board.fetch(&name, &watch)?;
        let mut image = ImageBuilder::new(&board)?;
        let mut lines = image.add_port_modules(&kernel)?;
        lines.extend(image.add_nand(&kernel, &[])?);
        for path in image.add_module_closure(&kernel, &["jffs2", "ubifs", "mtdblock", "squashfs"])? {
            lines.push(format!("module {path}"));
        }
        lines.push("run probe /flashscope/agent probe".to_owned());
        image.set_plan(&lines);
        let image = image.build()?;
        match board::boot(&Run::new(&board, &kernel, &image), &watch) {
            Ok(outcome) => println!(
                "{} {} {} {}: first command after {:.2} s, end after {:.2} s, {} bytes of port, image {}",
                board.name,
                kernel.name,
                kernel.package,
                kernel.version,
                watch.first_command.get().unwrap_or(f64::NAN),
                outcome.wall.as_secs_f64(),
                outcome.port_file().metadata().map_or(0, |meta| meta.len()),
                &image.sha256[..12],
            ),
            Err(error) => println!("{} {}: {error}", board.name, kernel.name),
        }
    }
    Ok(())
}
