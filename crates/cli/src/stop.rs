//! Ctrl-C and SIGTERM as a flag: what runs comes to an orderly end, a second signal ends at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::failure::Failure;

/// What a shell says of a command that Ctrl-C ended.
const ENDED_AT_ONCE: i32 = 130;

const SIGNALS: [i32; 3] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The flag that SIGINT, SIGTERM and SIGHUP set, installed at its first use.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    if let Some(flag) = FLAG.get() {
        return Ok(Arc::clone(flag));
    }
    let (flag, second) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in SIGNALS {
        // Order matters. The flag comes first: a signal between two of these is not lost. The first one finds `second` down, so only
        // the next one exits.
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register_conditional_shutdown(signal, ENDED_AT_ONCE, Arc::clone(&second)))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&second)))
            .map_err(|error| Failure::new(format!("signal {signal}: {error}")))?;
    }
    Ok(installed(flag))
}

/// The same flag for a command that has changed the terminal: SIGQUIT sets it too, and before a second signal ends the command,
/// `put_back` is called.
pub fn flag_of_screen(put_back: fn()) -> Result<Arc<AtomicBool>, Failure> {
    let all = SIGNALS.into_iter().chain([signal_hook::consts::SIGQUIT]);
    let mut signals =
        signal_hook::iterator::Signals::new(all).map_err(|error| Failure::new(format!("signals: {error}")))?;
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if raised.swap(true, Ordering::Relaxed) {
                put_back();
                std::process::exit(ENDED_AT_ONCE);
            }
        }
    });
    Ok(installed(flag))
}

fn installed(flag: Arc<AtomicBool>) -> Arc<AtomicBool> {
    let flag = FLAG.get_or_init(|| flag);
    flashscope_output::ends_waits(flag);
    Arc::clone(flag)
}

/// Where a file may be no larger (`ulimit -f`), SIGXFSZ ends a program at once: with a handler the write itself fails (EFBIG). What a
/// command was writing is put away then, and what it was recording stays.
pub fn limit_of_files_is_an_error() -> Result<(), Failure> {
    let signal = signal_hook::consts::SIGXFSZ;
    let ignored = signal_hook::flag::register(signal, Arc::default());
    ignored.map(|_| ()).map_err(|error| Failure::new(format!("signal {signal}: {error}")))
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
