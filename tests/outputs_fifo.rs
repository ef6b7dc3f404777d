//! Inputs and outputs that are FIFOs: the command says that it waits for the other side, and a signal ends the wait.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use flashscope_tests::{Place, output, stdout, text};

use crate::outputs::{refused, trace};

/// Starts a command that waits. Its input is empty, and its output is nobody's.
fn start(place: &Place, argv: &[&str]) -> Child {
    let mut command = place.command(argv);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts")
}

fn signal(child: &Child, signal: &str) {
    output(Command::new("kill").args([signal, &child.id().to_string()]));
}

fn fifo(place: &Place) -> (PathBuf, String) {
    let fifo = place.at("fifo");
    stdout(Command::new("mkfifo").arg(&fifo));
    let path = text(&fifo);
    (fifo, path)
}

/// What a command says first, and from where it says more.
fn first_line_and_more(child: &mut Child) -> (String, impl std::io::Read + use<>) {
    use std::io::BufRead as _;
    let mut line = String::new();
    let mut stderr = std::io::BufReader::new(child.stderr.take().expect("a pipe"));
    stderr.read_line(&mut line).expect("a line");
    (line, stderr)
}

#[test]
fn a_fifo_that_nobody_writes_is_said_to_be_waited_for() {
    let place = Place::new("outputs-fifo-input");
    let t = text(&trace(&place, "t", "cat"));
    let (fifo, path) = fifo(&place);
    let reads = text(&flashscope_tests::top().join("tests/outputs/reads.stream"));
    let bytes = std::fs::read(&reads).expect("a trace");
    let waiting = format!("flashscope: {path}: this is a FIFO, and nobody writes to it: waiting for a writer\n");
    for (argv, trace) in [
        (&["report", &path][..], true),
        (&["export", &path, "--to", "csv", "-o", "-"], true),
        (&["diff", &t, &path], true),
        (&["report", &reads, "--anonymize-key", &path], true),
        (&["advise", &path], true),
        (&["predict", &path], true),
        (&["bench", "replay", &path, "--script", "-"], true),
        (&["study", &path], false),
        (&["board", "boot", &path], false),
    ] {
        for interrupted in [true, false] {
            let mut child = start(&place, argv);
            assert_eq!(first_line_and_more(&mut child).0, waiting, "{argv:?}");
            if interrupted {
                signal(&child, "-INT");
                assert!(!child.wait().expect("ends").success(), "{argv:?}");
            } else {
                std::fs::write(&fifo, &bytes).expect("a reader");
                assert_eq!(child.wait().expect("ends").success(), trace, "{argv:?}");
            }
        }
    }
}

#[test]
fn a_fifo_that_nobody_reads_is_said_to_be_waited_for() {
    let place = Place::new("outputs-fifo");
    let t = text(&trace(&place, "t", "cat"));
    let (fifo, path) = fifo(&place);
    let waiting = format!("flashscope: {path}: this is a FIFO, and nobody reads it: waiting for a reader\n");
    for argv in [
        &["export", &t, "--to", "csv", "-o", &path][..],
        &["export", &t, "--to", "perfetto", "-o", &path],
        &["report", &t, "--html", &path],
        &["report", &t, "--junit", &path, "--fail-if", "errors > 0"],
        &["diff", &t, &t, "--html", &path],
    ] {
        for interrupted in [true, false] {
            let mut child = start(&place, argv);
            assert_eq!(first_line_and_more(&mut child).0, waiting, "{argv:?}");
            if interrupted {
                signal(&child, "-INT");
                assert!(!child.wait().expect("ends").success(), "{argv:?}");
                continue;
            }
            let read = std::fs::read(&fifo).expect("what it writes");
            child.wait().expect("ends");
            assert!(read.len() > 100, "{argv:?}: {} bytes", read.len());
        }
    }
    // The reader of a pipe has gone: nobody comes in its place.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ran = output(place.command(&["export", &t, "--to", "csv", "-o", "/dev/stdout"]).stdout(writer));
    refused("/dev/stdout", &ran, "Broken pipe");
}

/// A recording has a handler of signals of its own; it ends at the first one all the same while it waits for a reader.
#[test]
fn a_recording_that_waits_for_a_reader_ends_at_the_first_signal() {
    let Some(place) = Place::to_record("outputs-fifo-record") else { return };
    let (_, path) = fifo(&place);
    for name in ["-INT", "-TERM", "-HUP"] {
        let argv = ["record", "--events", "task:task_newtask", "-o", &path, "--", "true"];
        let mut child = start(&place, &argv);
        let (first, mut stderr) = first_line_and_more(&mut child);
        assert!(first.contains("nobody reads it: waiting for a reader"), "{argv:?}: {first}");
        signal(&child, name);
        // Without an end the runner of the tests ends it, and says which test it was.
        assert_eq!(child.wait().expect("ends").code(), Some(125), "{name}: {argv:?}");
        let mut last = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut last).expect("text");
        let words = "a signal ended the wait for a reader of this FIFO; start its reader first, or name a file; ";
        assert!(
            last.starts_with(&format!("flashscope: {path}: {words}")) && last.lines().count() == 1,
            "{name}: {last}"
        );
    }
}
