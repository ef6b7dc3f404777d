//! `ctl`: controls a recorder that was started in another shell.

use std::sync::Arc;

use clap::ValueEnum;

use crate::args::CtlArgs;
use crate::failure::Failure;
use crate::progress::Terminal;
use crate::target;

pub fn run(args: &CtlArgs, quiet: bool) -> Result<(), Failure> {
    let action = args.action.to_possible_value().expect("no action is hidden").get_name().to_owned();
    let argv = ["ctl".to_owned(), action].into_iter().chain(args.name.clone()).collect();
    target::print(&target::output(&args.target, argv, &Arc::new(Terminal::new(quiet)))?)
}
