//! Stage statistics of block I/O in a trace, as JSON: `cargo run --release --example block_stages -- TRACE`.

use flashscope_analysis::{Analysis as _, block::Stages};
use flashscope_trace::Trace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: block_stages TRACE")?;
    let trace = Trace::open(path.as_ref())?;
    let mut stages = Stages::new();
    trace.for_each(&mut |event| stages.event(event))?;
    println!("{}", serde_json::to_string_pretty(&stages.finish())?);
    Ok(())
}
