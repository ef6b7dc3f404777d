//! stdin of a command on a virtual board. It is read to its end before the boot and is part of the boot image: nothing enters a board while
//! it runs, because the time of a run would then depend on the host.

use std::io::{IsTerminal as _, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::stop;

/// It lies in the board's RAM twice while the image is unpacked; the smallest board has 128 MiB.
const MOST: usize = 16 << 20;
/// After waiting this long, a message is printed.
const SAID_AFTER: Duration = Duration::from_secs(1);
/// A pipe that is still empty then is one that a script inherited, and nobody writes to it.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);
/// The exit status in a shell after Ctrl-C.
const ENDED_BY_A_SIGNAL: i32 = 130;

/// All of stdin; empty for a terminal, and for a pipe that stays open and empty.
pub fn read(target: &str) -> Result<Vec<u8>, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(Vec::new());
    }
    let stop = stop::flag()?;
    let (ended, end) = channel();
    // A thread of its own: a signal does not end a read, and must end the command.
    let some = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&some);
    std::thread::spawn(move || {
        let (mut bytes, mut stdin) = (Vec::new(), stdin.lock());
        let first = stdin.by_ref().take(1).read_to_end(&mut bytes);
        begun.store(true, Ordering::Relaxed);
        let read = first.and_then(|_| stdin.take(MOST as u64).read_to_end(&mut bytes));
        ended.send(read.map(|_| bytes)).ok();
    });
    let began = Instant::now();
    let mut said = false;
    loop {
        match end.recv_timeout(LOOK) {
            Ok(Ok(bytes)) if bytes.len() > MOST => {
                return Err(Failure::new(format!(
                    "stdin: more than {} MiB, the most that a command on a virtual board gets: put less into it, or record on local \
                     or ssh:// targets",
                    MOST >> 20
                )));
            }
            Ok(Ok(bytes)) => return Ok(bytes),
            Ok(Err(error)) => {
                return Err(Failure::new(format!("stdin: {error}; if the command needs none, type </dev/null")));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("stdin: it was not read; run it again")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.load(Ordering::Relaxed) {
            flashscope_output::note("stdin: ended by a signal before the boot; nothing was recorded");
            return Err(Failure::of_command(ENDED_BY_A_SIGNAL));
        }
        if !said && began.elapsed() >= SAID_AFTER {
            flashscope_output::note(&format!(
                "{target}: waiting for the end of stdin, because a board gets all of it before its boot; if the command needs none, type </dev/null"
            ));
            said = true;
        }
        if !some.load(Ordering::Relaxed) && began.elapsed() >= GIVEN_UP_AFTER {
            flashscope_output::note(&format!(
                "{target}: nothing came on stdin within {} s: the command's stdin is empty",
                GIVEN_UP_AFTER.as_secs()
            ));
            return Ok(Vec::new());
        }
    }
}
