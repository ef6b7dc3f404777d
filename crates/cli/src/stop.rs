//! Ctrl-C and SIGTERM as a flag: what runs comes to an orderly end, a second signal ends at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::failure::Failure;

/// The flag that SIGINT and SIGTERM set, installed at its first use.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(flag) = FLAG.get() {
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        // Order matters: the first signal finds the flag down, so only the second one exits.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| Failure::new(format!("signal {signal}: {error}")))?;
    }
    let flag = FLAG.get_or_init(|| flag);
    flashscope_output::ends_waits(flag);
    Ok(Arc::clone(flag))
}

/// After a signal a board ends within moments; what is fetched, built or packed for one does not.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);

/// Ends the command some seconds after the signal, if it has not come to its end. `last` is what is then said. For commands that lose
/// nothing by it: their files are whole or absent, and their boards end with them.
pub fn end_soon(last: impl FnOnce() -> String + Send + 'static) -> Result<(), Failure> {
    let flag = flag()?;
    std::thread::spawn(move || {
        while !flag.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(PATIENCE);
        flashscope_output::note(&last());
        std::process::exit(1);
    });
    Ok(())
}
