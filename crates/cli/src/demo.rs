//! `demo`: the complete job on real input, from boot to verdict.

use flashscope_study::{Filesystem, Study};

use crate::args::{BoardOptions, DemoArgs};
use crate::failure::Failure;
use crate::progress::{StudyLines, Terminal};
use crate::study;

/// The file that `flashscope study` takes, without file systems that need a kernel module built first: the demo's boards use Debian's
/// kernels unchanged.
const STUDY: &str = include_str!("../../../studies/readahead-reads.toml");

pub fn run(args: &DemoArgs, quiet: bool) -> Result<(), Failure> {
    let mut parsed = Study::parse("readahead-reads.toml", STUDY)?;
    let definition = &mut parsed.definition;
    definition.matrix.filesystem.retain(|&filesystem| filesystem != Filesystem::Yaffs2);
    definition.published.retain(|published| published.filesystem != Filesystem::Yaffs2);
    let terminal = Terminal::new(quiet);
    let options = study::options(args.jobs, !args.resume, &BoardOptions::default())?;
    let result = study::measure(&parsed, &options, &StudyLines::new(&terminal, None))?;
    let page = study::write(&result, &args.output)?;
    out!("{}", flashscope_report::terminal::study(&result, &study::style()));
    outln!("\nReport: {}", page.display());
    Ok(())
}
