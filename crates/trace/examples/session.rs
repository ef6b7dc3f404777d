//! Says what a board sent over a stream: steps, recordings, logs, losses: `session FILE`; with a path of the board as
//! second argument, writes that stored file to stdout.

use flashscope_trace::Session;
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = args.next().ok_or("usage: session FILE [PATH]")?;
    let session = Session::open(path.as_ref())?;
    if let Some(wanted) = args.next() {
        let mut files = session.steps.iter().flat_map(|s| &s.files);
        let file = files.find(|f| *f.path == *wanted).ok_or("no such file in the stream")?;
        std::io::stdout().write_all(&session.read_file(file, 1 << 30)?)?;
        return Ok(());
    }
    println!("complete: {}", session.complete);
    for s in &session.steps {
        let ms = s.begin_ns.zip(s.end_ns).map(|(b, e)| (e - b) / 1_000_000);
        println!(
            "step {} {}: status {:?}, {:?} ms, {} bytes out, {} bytes err, {} files",
            s.source,
            s.name.escape_debug(),
            s.status,
            ms,
            s.stdout.len(),
            s.stderr.len(),
            s.files.len()
        );
    }
    for r in &session.recordings {
        println!("recording {r:?}");
    }
    for p in session.phases() {
        println!("phase {p:?}");
    }
    for l in &session.logs {
        println!("log {} {}: {}", l.source, l.level, l.text.escape_debug());
    }
    for (loss, count) in session.losses.iter().filter(|&(_, n)| n > 0) {
        println!("lost {}: {count} ({})", loss.name(), loss.meaning());
    }
    Ok(())
}
