//! Ctrl-C and SIGTERM as a flag: the first signal asks for an orderly end, a second one ends the command at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// The exit status in a shell after Ctrl-C.
const ENDED_AT_ONCE: i32 = 130;

const SIGNALS: [i32; 3] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];

/// Signals within this time are one request: `timeout` signals its child, and then the whole group with it.
const ONE_REQUEST: Duration = Duration::from_millis(300);

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The flag that SIGINT, SIGTERM and SIGHUP set; the handlers are installed at the first use.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    if let Some(flag) = FLAG.get() {
        return Ok(Arc::clone(flag));
    }
    let (flag, second) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in SIGNALS {
        // The flag comes first, so that a signal between two registrations is not lost.
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register_conditional_shutdown(signal, ENDED_AT_ONCE, Arc::clone(&second)))
            .map_err(|error| Failure::new(format!("signal {signal}: {error}")))?;
    }
    let mut signals = signals_of(&SIGNALS)?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            std::thread::sleep(ONE_REQUEST);
            second.store(true, Ordering::Relaxed);
        }
    });
    Ok(installed(flag))
}

/// The same flag for a command that has changed the terminal: SIGQUIT sets it too, and `put_back` is called before a second signal ends the
/// command.
pub fn flag_of_screen(put_back: fn()) -> Result<Arc<AtomicBool>, Failure> {
    let [int, term, hup] = SIGNALS;
    let mut signals = signals_of(&[int, term, hup, signal_hook::consts::SIGQUIT])?;
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    std::thread::spawn(move || {
        let mut first = None;
        for _ in signals.forever() {
            raised.store(true, Ordering::Relaxed);
            if first.get_or_insert_with(Instant::now).elapsed() >= ONE_REQUEST {
                put_back();
                std::process::exit(ENDED_AT_ONCE);
            }
        }
    });
    Ok(installed(flag))
}

fn signals_of(numbers: &[i32]) -> Result<signal_hook::iterator::Signals, Failure> {
    signal_hook::iterator::Signals::new(numbers).map_err(|error| Failure::new(format!("signals: {error}")))
}

fn installed(flag: Arc<AtomicBool>) -> Arc<AtomicBool> {
    let flag = FLAG.get_or_init(|| flag);
    flashscope_output::ends_waits(flag);
    Arc::clone(flag)
}

/// With a limit on file sizes (`ulimit -f`), SIGXFSZ would end the program at once. With a handler, the write fails (EFBIG): incomplete
/// output is removed, and a recording is kept.
pub fn limit_of_files_is_an_error() -> Result<(), Failure> {
    let signal = signal_hook::consts::SIGXFSZ;
    let ignored = signal_hook::flag::register(signal, Arc::default());
    ignored.map(|_| ()).map_err(|error| Failure::new(format!("signal {signal}: {error}")))
}

/// Stack of the command's thread: as large as the main thread's.
const STACK: usize = 8 << 20;
/// After a signal, a command ends within this time where files answer and little is left to write.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Runs a command that catches signals in a thread of its own. The kernel gives a signal to the main thread first, which only waits: it takes
/// a second signal also where a file that the command writes never answers.
pub fn beside_signals(run: impl FnOnce() -> Result<(), Failure> + Send) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let work = move || {
            let ended = run();
            drop(done);
            ended
        };
        let work = std::thread::Builder::new()
            .name("main".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, work)
            .map_err(|error| Failure::new(format!("thread: {error}")))?;
        let mut asked: Option<Instant> = None;
        let mut said = false;
        while wait.recv_timeout(Duration::from_secs(1)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            if asked.is_none() && FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                asked = Some(Instant::now());
            }
            if !said && asked.is_some_and(|asked| asked.elapsed() >= ENDS_WITHIN) {
                flashscope_output::note(
                    "still ending: a disk is slow, or does not answer; a second Ctrl-C ends this at once",
                );
                said = true;
            }
        }
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// After a signal, a board ends within moments; fetching, building and packing do not.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Ends the command a few seconds after the signal, if it is still running; then prints `last`. For commands that lose nothing: their files
/// are complete or absent, and their boards end with them.
pub fn end_soon(last: impl FnOnce() -> String + Send + 'static) -> Result<(), Failure> {
    let flag = flag()?;
    std::thread::spawn(move || {
        while !flag.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
        }
        std::thread::sleep(END_TIMEOUT);
        flashscope_output::note(&last());
        std::process::exit(1);
    });
    Ok(())
}
