//! Every field of every record as text on stdout, as `flashscope export --to text` prints it: `text FILE`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: text FILE")?;
    let trace = flashscope_trace::Trace::open(path.as_ref())?;
    flashscope_trace::export::text(&trace, &mut std::io::stdout().lock())?;
    Ok(())
}
