//! Builds a kernel module of ours for a board's kernels: `module NAME [BOARD [KERNEL…]]`, and says where it lies.

use flashscope_targets::{Error, Progress, board};

struct Tell;

impl Progress for Tell {
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
    let name = args.next().unwrap_or_else(|| "yaffs2".to_owned());
    let board = board::load(&args.next().unwrap_or_else(|| "armv7".to_owned()))?;
    let mut kernels: Vec<String> = args.collect();
    if kernels.is_empty() {
        kernels = board.kernels.iter().map(|line| line.name.clone()).collect();
    }
    for name_of_kernel in kernels {
        let kernel = board.fetch(&name_of_kernel, &Tell)?;
        match board.build_module(&kernel, &name, &Tell) {
            Ok(module) => println!("{} {}: {}", board.name, kernel.release, module.path.display()),
            Err(error) => println!("{} {}: {error}", board.name, kernel.release),
        }
    }
    Ok(())
}
