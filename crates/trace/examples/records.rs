//! Prints every record of a trace with all its fields, and what was lost on stderr: `records FILE [RECORDING]`.

use flashscope_trace::{Session, Trace, Value};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = args.next().ok_or("usage: records FILE [RECORDING]")?;
    let trace = match args.next() {
        None => Trace::open(path.as_ref())?,
        Some(index) => Session::open(path.as_ref())?.recording(index.to_string_lossy().parse()?)?,
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut failed = None;
    trace.for_each_record(&mut |r| {
        let mut line = || -> std::io::Result<()> {
            let comm = trace.comm(r.tid(), r.time).unwrap_or("<...>");
            let (s, ns) = (r.time.0 / 1_000_000_000, r.time.0 % 1_000_000_000);
            if !r.buffer.is_empty() {
                write!(out, "{}: ", r.buffer.escape_debug())?;
            }
            write!(
                out,
                "{}-{} [{:03}] {s}.{ns:09}: {}:",
                comm.escape_debug(),
                r.tid(),
                r.cpu,
                r.schema.name.escape_debug()
            )?;
            for (field, value) in r.fields().filter(|(f, _)| !f.common) {
                write!(out, " {}=", field.name)?;
                match value {
                    None => write!(out, "?")?,
                    Some(Value::Unsigned(v)) => write!(out, "{v}")?,
                    Some(Value::Signed(v)) => write!(out, "{v}")?,
                    Some(Value::Text(t)) => write!(out, "{}", t.escape_ascii())?,
                    Some(Value::Array(a)) => write!(out, "{:x?}", a.bytes())?,
                    Some(Value::Bytes(b)) => write!(out, "{b:x?}")?,
                }
            }
            writeln!(out)
        };
        if failed.is_none() {
            failed = line().err();
        }
    })?;
    out.flush()?;
    for (loss, count) in trace.losses().iter().filter(|&(_, n)| n > 0) {
        eprintln!("{}: {count} ({})", loss.name(), loss.meaning());
    }
    failed.map_or(Ok(()), |e| Err(e.into()))
}
