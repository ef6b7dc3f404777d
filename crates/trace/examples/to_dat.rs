//! Converts a trace to a trace.dat: `to_dat FILE OUT`.

use flashscope_trace::{Trace, dat};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        return Err("usage: to_dat FILE OUT".into());
    };
    let written = dat::write(&Trace::open(from.as_ref())?, to.as_ref())?;
    println!("{} bytes, {} sub-buffers", written.bytes, written.sub_buffers);
    Ok(())
}
