//! Converts a trace to a trace.dat: `to_dat FILE OUT [RECORDING]`.

use flashscope_trace::{Session, Trace, dat};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        return Err("usage: to_dat FILE OUT [RECORDING]".into());
    };
    let trace = match args.next() {
        None => Trace::open(from.as_ref())?,
        Some(index) => Session::open(from.as_ref())?.recording(index.to_string_lossy().parse()?)?,
    };
    let written = dat::write(&trace, to.as_ref())?;
    println!("{} bytes, {} sub-buffers", written.bytes, written.sub_buffers);
    Ok(())
}
