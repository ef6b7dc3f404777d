//! `top`: shows current storage activity as a changing table, as lines of JSON, or as a file for Prometheus.
//!
//! The agent records like for `record`. Its data is kept for a few seconds, and at each interval analysed like in `report`, so that every
//! figure has the same meaning.

mod open_files;
mod screen;

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use flashscope_analysis::block::begins_sync;
use flashscope_report::top::{TopSnapshot, prometheus};
use flashscope_targets::{Job, OpenOptions};
use flashscope_trace::{Event, EventKind, Session, SessionOptions, StreamWindow, TimeNs};

use crate::args::{ReportArgs, ReportBy, TopArgs};
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::progress::Terminal;
use crate::{output, report, stop, target};
use screen::Screen;

/// Number of analysed intervals: the one before is needed for I/O that was in flight at its end.
const INTERVALS: u32 = 2;
/// Largest delay until the agent sends events from its rings.
const DRAINED_LATE: Duration = Duration::from_millis(300);
/// Limit for kept events, bytes.
const MOST_BYTES: usize = 64 << 20;
/// Longest recording, about 30 years: its end must fit the clock.
const MOST_SECONDS: f64 = 1e9;
/// Shortest interval of a snapshot.
const SHORTEST: Duration = Duration::from_millis(100);
/// Interval for checking keys and signals.
const LOOK: Duration = Duration::from_millis(50);

/// Data that the recorder's thread and the display share.
struct Shared {
    window: Mutex<StreamWindow>,
    began: Instant,
}

/// Receives the agent's bytes.
struct Feed(Arc<Shared>);

impl Write for Feed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0.window).push(bytes, self.0.began.elapsed());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Stops the recorder on drop, like Ctrl-C, so that its probes are removed however the display ends.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn lock(window: &Mutex<StreamWindow>) -> std::sync::MutexGuard<'_, StreamWindow> {
    window.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub fn run(args: &TopArgs, quiet: bool) -> Result<(), Failure> {
    check(args)?;
    let asked_to_stop = if args.json { stop::flag()? } else { stop::flag_of_screen(screen::put_back)? };
    let terminal = Arc::new(Terminal::new(quiet || !args.json));
    let target = target::open_with(&args.target, &terminal, OpenOptions::default())?;
    let interval = Duration::from_secs_f64(args.interval);
    let window = StreamWindow::new(interval * INTERVALS + DRAINED_LATE, MOST_BYTES);
    let shared = Arc::new(Shared { window: Mutex::new(window), began: Instant::now() });
    let argv = ["record", "--events", &args.events.join(","), "--ring", &args.ring.0.div_ceil(1024).to_string()];
    let job = Job { argv: argv.map(str::to_owned).to_vec(), ..Job::default() };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let picture = scope.spawn({
            let (shared, ended, asked_to_stop) = (Arc::clone(&shared), &ended, Arc::clone(&asked_to_stop));
            move || {
                let _stop = StopAtEnd(&asked_to_stop);
                look(args, interval, &shared, ended, &asked_to_stop)
            }
        });
        let ran = target.run(&job, &mut Feed(Arc::clone(&shared)));
        let stopped = asked_to_stop.load(Ordering::Relaxed);
        ended.store(true, Ordering::Relaxed);
        let looked = picture.join().unwrap_or_else(|_| Err(Painter::failure()));
        let outcome = ran?;
        // The recorder was stopped before it handled signals, so it had set nothing up.
        let ended_early = outcome.status == 128 + 15 && lock(&shared.window).described().is_none();
        if outcome.status != 0 && !(ended_early && stopped) {
            return Err(target::agent_failure(&outcome.stderr, outcome.status));
        }
        if !stopped && lock(&shared.window).described().is_none() {
            let target = &args.target.target;
            let typed = flashscope_output::quote::shell(target).unwrap_or_else(|| "TARGET".to_owned());
            return Err(Failure::new(format!(
                "{target}: the recorder ended before it sent any event format; run it again, or see what can be recorded: \
                 flashscope doctor --on {typed}"
            )));
        }
        looked
    })
}

fn check(args: &TopArgs) -> Result<(), Failure> {
    use std::io::IsTerminal as _;
    if args.target.target.starts_with("board:") {
        return Err(Failure::usage(format!(
            "{}: what a virtual board records comes when it has ended; record it, and see it with flashscope report",
            args.target.target
        )));
    }
    let positive = |seconds: f64| seconds.is_finite() && (SHORTEST.as_secs_f64()..=3600.0).contains(&seconds);
    if !positive(args.interval) {
        return Err(Failure::usage("--interval: 0.1 to 3600 seconds"));
    }
    if args.duration.is_some_and(|seconds| !(SHORTEST.as_secs_f64()..=MOST_SECONDS).contains(&seconds)) {
        return Err(Failure::usage("--duration: 0.1 to 1000000000 seconds"));
    }
    if !args.json && !std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "standard output is not a terminal; use --json, which prints one line for each interval",
        ));
    }
    Ok(())
}

/// Whether these events show the file of a bio: only page cache events do.
fn shows_files(events: &[String]) -> bool {
    events.iter().any(|event| event == "cache" || event.contains(':'))
}

/// Shows a snapshot each interval, until the user, a signal, `--duration` or the recorder's end stops it.
fn look(
    args: &TopArgs,
    interval: Duration,
    shared: &Arc<Shared>,
    ended: &AtomicBool,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut screen = if args.json { None } else { Some(Screen::open(&args.target.target, shows_files(&args.events))?) };
    let goes_on = || !ended.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed);
    let mut begun = None;
    while begun.is_none() && goes_on() {
        begun = lock(&shared.window).described();
        match &mut screen {
            Some(screen) => {
                if screen.keys(LOOK)?.is_break() {
                    return Ok(());
                }
            }
            None => std::thread::sleep(LOOK),
        }
    }
    // Times count from here, when recording began.
    let Some(begun) = begun else { return Ok(()) };
    let until = args.duration.map(|seconds| begun.saturating_add(Duration::from_secs_f64(seconds)));
    let mut next = begun + interval;
    // The recorder looks up paths at its end. On this machine, paths of open files are looked up during the recording.
    let painter = Painter::begin(Arc::clone(shared), args.target.target == "local");
    let shown = |snapshot: TopSnapshot, screen: &mut Option<Screen>| {
        if let Some(path) = &args.prometheus {
            keep(path, &snapshot)?;
        }
        if args.json {
            let line = serde_json::to_string(&snapshot).expect("plain data serialises");
            outln!("{}", flashscope_output::escaped_json(&line));
            flashscope_output::flush()?;
        } else if let Some(screen) = screen {
            screen.show(snapshot)?;
        }
        Ok::<_, Failure>(())
    };
    let with_apps = |screen: &Option<Screen>| screen.as_ref().is_none_or(Screen::shows_apps);
    let (mut last, mut is_asked) = (begun, false);
    while goes_on() {
        let now = shared.began.elapsed();
        if until.is_some_and(|until| now >= until) {
            break;
        }
        if now >= next && !is_asked {
            next += interval;
            if next < now {
                // The analysis took longer than the interval: skipped intervals are not made up for.
                next = now + interval;
            }
            painter.ask(Ask { now, time: now - begun, interval: now - last, with_apps: with_apps(&screen) })?;
            (last, is_asked) = (now, true);
        }
        if is_asked && let Some(snapshot) = if screen.is_some() { painter.finished()? } else { Some(painter.wait()?) } {
            is_asked = false;
            shown(snapshot, &mut screen)?;
        }
        match &mut screen {
            Some(screen) => {
                if screen.keys(LOOK)?.is_break() {
                    break;
                }
            }
            None => {
                std::thread::sleep(LOOK.min(next.min(until.unwrap_or(next)).saturating_sub(shared.began.elapsed())))
            }
        }
    }
    // Leave the screen at once, whatever is being drawn.
    let had_apps = with_apps(&screen);
    drop(screen.take());
    if !args.json && args.prometheus.is_none() {
        return Ok(());
    }
    if is_asked {
        shown(painter.wait()?, &mut screen)?;
    }
    // A last snapshot, unless the time is too short for useful rates.
    let now = shared.began.elapsed();
    if now - last >= SHORTEST {
        painter.ask(Ask { now, time: now - begun, interval: now - last, with_apps: had_apps })?;
        shown(painter.wait()?, &mut screen)?;
    }
    Ok(())
}

/// The range of a snapshot.
struct Ask {
    now: Duration,
    time: Duration,
    interval: Duration,
    with_apps: bool,
}

/// Makes snapshots in its own thread. On a busy machine one takes seconds; keys must not wait for it. An unfinished snapshot ends with the
/// program.
struct Painter {
    requests: mpsc::Sender<Ask>,
    pictures: mpsc::Receiver<Result<TopSnapshot, Failure>>,
}

impl Painter {
    fn begin(shared: Arc<Shared>, is_local: bool) -> Painter {
        let (requests, received) = mpsc::channel::<Ask>();
        let (results, pictures) = mpsc::channel();
        std::thread::spawn(move || {
            let mut shown_until = Vec::new();
            for Ask { now, time, interval, with_apps } in received {
                let mut snapshot = snapshot(&shared, now, (time, interval), with_apps, &mut shown_until);
                if is_local && let Ok(snapshot) = &mut snapshot {
                    open_files::name(&mut snapshot.file);
                }
                if results.send(snapshot).is_err() {
                    return;
                }
            }
        });
        Painter { requests, pictures }
    }

    fn ask(&self, what: Ask) -> Result<(), Failure> {
        self.requests.send(what).map_err(|_| Painter::failure())
    }

    /// The requested snapshot, if it is finished.
    fn finished(&self) -> Result<Option<TopSnapshot>, Failure> {
        match self.pictures.try_recv() {
            Ok(snapshot) => snapshot.map(Some),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err(Painter::failure()),
        }
    }

    fn wait(&self) -> Result<TopSnapshot, Failure> {
        self.pictures.recv().unwrap_or_else(|_| Err(Painter::failure()))
    }

    fn failure() -> Failure {
        Failure::new("the picture could not be made")
    }
}

/// A snapshot of I/O queued since the previous one, so that each bio is in exactly one. `shown_until`: for each CPU, the time up to which
/// its events were shown. The recorder reads one CPU after the other, so an event of one CPU may come after later events of another.
fn snapshot(
    shared: &Shared,
    now: Duration,
    (time, interval): (Duration, Duration),
    with_apps: bool,
    shown_until: &mut Vec<Option<TimeNs>>,
) -> Result<TopSnapshot, Failure> {
    let (stream, dropped, damaged) = {
        let mut window = lock(&shared.window);
        (window.stream(now), window.dropped(), window.damaged())
    };
    let (time_s, interval_s) = (time.as_secs_f64(), interval.as_secs_f64());
    let nothing = || Ok(TopSnapshot { dropped, ..TopSnapshot::empty(time_s, interval_s) });
    let Some(stream) = stream else { return nothing() };
    // A recording that has lost nothing only has not ended yet.
    let options = SessionOptions { goes_on: dropped + damaged == 0, ..SessionOptions::default() };
    let session = Session::from_bytes(Path::new("the recording"), stream.into(), options)?;
    if session.recordings.is_empty() {
        return nothing();
    }
    let inputs = Inputs::one(session.recording(0)?)?;
    let shows = |is: fn(&str) -> bool| inputs.traces().any(|trace| trace.schemas().any(|schema| is(&schema.name)));
    let shows_cache = shows(|name| name == "mm_filemap_add_to_page_cache");
    // The stream has the formats of the events that are recorded.
    let records_completions = shows(|name| name == "block_rq_complete");
    let args = ReportArgs { shown_until: shown_until.clone(), records_completions, ..ReportArgs::default() };
    let mut any = false;
    inputs.for_each(&mut |_, event| any |= is_new(shown_until, event))?;
    if !any {
        return nothing();
    }
    let snapshot = if inputs.traces().any(report::is_of_block_io) {
        let by_app = with_apps.then_some(ReportBy::App);
        let (by_process, by_app) = report::block_report_and(&inputs, &args, by_app)?;
        TopSnapshot::of_block(&by_process, by_app.as_ref(), shows(begins_sync), time_s, interval_s)
    } else {
        TopSnapshot::of_flash(&report::flash_report(&inputs, &args)?, time_s, interval_s)
    };
    Ok(TopSnapshot { dropped, ..snapshot.lacking(shows_cache) })
}

/// Marks an event as shown. Returns whether it was new.
fn is_new(shown_until: &mut Vec<Option<TimeNs>>, event: &Event) -> bool {
    // Marks are separate from the CPUs' events and come before events that have not been read yet.
    if matches!(event.kind, EventKind::PhaseBegin { .. } | EventKind::PhaseEnd { .. } | EventKind::Mark { .. }) {
        return false;
    }
    let cpu = usize::from(event.cpu);
    if shown_until.len() <= cpu {
        shown_until.resize(cpu + 1, None);
    }
    let is_new = shown_until[cpu].is_none_or(|until| event.time > until);
    if is_new {
        shown_until[cpu] = Some(event.time);
    }
    is_new
}

/// Replaces the file by rename, so that the collector never reads an incomplete one.
fn keep(path: &Path, snapshot: &TopSnapshot) -> Result<(), Failure> {
    output::write(path, prometheus(snapshot).as_bytes(), &[], "--prometheus")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::{Encoder, Endian, Layout, encode_frame};

    const PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
    const QUEUE: &str = "block\0block_bio_queue\0name: block_bio_queue\nID: 100\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:u32 dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:u32 nr_sector;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:u64 sector;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:char rwbs[8];\toffset:24;\tsize:8;\tsigned:0;\n\nprint fmt: \"\"\n";

    /// The descriptions of a recording of bios.
    fn descriptions() -> Vec<u8> {
        let mut hello = vec![1, 0, 0, 8];
        [4096_u32, 4096, 2].iter().for_each(|value| hello.extend(value.to_le_bytes()));
        hello.extend(b"0.1.0");
        let facts: &[u8] = br#"{"recording": {"name": "top", "clock": "mono"}}"#;
        let frames = [(1, &hello[..]), (2, facts), (3, PAGE.as_bytes()), (5, QUEUE.as_bytes())];
        (0..).zip(frames).flat_map(|(n, (kind, payload))| encode_frame(kind, 0, n, payload)).collect()
    }

    /// The records of a CPU: a bio of 4 KiB at each of these times.
    fn bios(cpu: u8, times: &[u64]) -> Vec<u8> {
        let mut encoder = Encoder::new(Layout::of(Endian::Little, 8, 4096));
        for &time in times {
            let mut event = vec![100, 0, 0, 0, 7, 0, 0, 0];
            [8_u32 << 20, 8].iter().for_each(|value| event.extend(value.to_le_bytes()));
            event.extend((time * 8).to_le_bytes());
            event.extend(b"W\0\0\0\0\0\0\0");
            assert!(encoder.record(time, &event).expect("times go forward").is_none());
        }
        let page = encoder.finish().expect("events");
        encode_frame(6, 0, 0, &[&[cpu, 0, 0, 0][..], &page].concat())
    }

    /// The recorder reads CPU 0, then CPU 1. Events on CPU 0 in between come one round later, after later events of CPU 1.
    #[test]
    fn each_bio_is_in_one_picture_however_its_cpu_is_read() {
        let second = Duration::from_secs;
        let shared = Shared { window: Mutex::new(StreamWindow::new(second(9), MOST_BYTES)), began: Instant::now() };
        lock(&shared.window).push(&descriptions(), second(0));
        let mut shown_until = Vec::new();
        let mut written = Vec::new();
        for (now, rounds) in [(1, [bios(0, &[100]), bios(1, &[90, 300])]), (2, [bios(0, &[200, 310]), bios(1, &[305])])]
        {
            rounds.iter().for_each(|bytes| lock(&shared.window).push(bytes, second(now)));
            // And again without new events.
            for _ in 0..2 {
                let top = snapshot(&shared, second(now), (second(now), second(1)), false, &mut shown_until)
                    .expect("a picture");
                written.push(top.process.iter().filter_map(|row| row.written_bytes_per_s).sum::<f64>());
            }
        }
        assert_eq!(written, [3.0 * 4096.0, 0.0, 3.0 * 4096.0, 0.0]);
    }

    /// While a snapshot is being made (here it cannot lock the window), keys are handled.
    #[test]
    fn a_picture_in_the_making_keeps_nobody_waiting() {
        let second = Duration::from_secs;
        let window = StreamWindow::new(second(9), MOST_BYTES);
        let shared = Arc::new(Shared { window: Mutex::new(window), began: Instant::now() });
        lock(&shared.window).push(&[descriptions(), bios(0, &[100])].concat(), second(0));
        let painter = Painter::begin(Arc::clone(&shared), false);
        let busy = lock(&shared.window);
        painter.ask(Ask { now: second(1), time: second(1), interval: second(1), with_apps: false }).expect("asked");
        std::thread::sleep(LOOK);
        assert!(painter.finished().expect("a painter").is_none());
        drop(busy);
        assert_eq!(painter.wait().expect("a picture").process[0].written_bytes_per_s, Some(4096.0));
    }
}
