//! Says what a board sent over a stream: steps, recordings, logs, losses: `session FILE`.

use flashscope_trace::Session;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: session FILE")?;
    let session = Session::open(path.as_ref())?;
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
