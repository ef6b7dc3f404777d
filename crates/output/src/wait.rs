//! Waits for files that may never answer: prints a message, and lets a signal end the wait.
//!
//! A file system in user space (FUSE) or of another machine (NFS) may never answer. The system call then ends with the process
//! alone. Limit: the message covers the search for a path and the creation of a file, not its writes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// After waiting this long for a file, a message is printed.
pub(crate) const SAID_AFTER: Duration = Duration::from_secs(1);
/// Interval between checks.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// The exit status in a shell after Ctrl-C.
const ENDED_BY_A_SIGNAL: i32 = 130;
/// Stack of the thread that prints the message.
const STACK: usize = 64 << 10;

/// The flag that the command's signal handler sets, if it has one.
static ASKED_TO_STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// A set `flag` ends a wait for a file. The command's signal handler sets it instead of ending the command.
pub fn ends_waits(flag: &Arc<AtomicBool>) {
    ASKED_TO_STOP.get_or_init(|| Arc::clone(flag));
}

pub(crate) fn is_asked_to_stop() -> bool {
    ASKED_TO_STOP.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Runs `call`, which creates or finds `path`. If it takes long, a message is printed, and a signal ends the process: no thread can end
/// another one's system call. A signal that ended the recording before does not.
pub(crate) fn answering<T>(path: &Path, call: impl FnOnce() -> T) -> T {
    let (done, wait) = channel::<()>();
    let text = format!("{}: its file system does not answer", path.display());
    let watch = move || {
        let asked_before = is_asked_to_stop();
        if wait.recv_timeout(SAID_AFTER) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        crate::note(&format!("{text}: waiting for it"));
        while wait.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            if !asked_before && is_asked_to_stop() {
                crate::note(&format!("{text}: ended by a signal; name another file"));
                std::process::exit(ENDED_BY_A_SIGNAL);
            }
        }
    };
    // Without a thread there is no message.
    let watching = std::thread::Builder::new().stack_size(STACK).spawn(watch);
    let answer = call();
    drop(done);
    let _ = watching.map(std::thread::JoinHandle::join);
    answer
}
