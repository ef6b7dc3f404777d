//! What the command writes: no device, no input and no file of somebody else's is harmed, a file is whole or as it was, and
//! standard output that ends or is full ends the command in good order.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use flashscope_tests::{Place, Running, behind, cannot_record, is_root, output, said, skip, stdout, text};
use flashscope_trace::Trace;

use crate::outputs_matrix::OPTIONS;

/// The user that plants links: nobody, in no group of root's.
const OTHER: &str = "65534";

/// A trace of flash reads by a task of that name, as ftrace prints it.
pub fn trace(place: &Place, name: &str, task: &str) -> PathBuf {
    let line = |i| format!("         {task}-7       [000] .....     {}.000000: nand_read: page={i}\n", 10 + i);
    place.file(name, &format!("# tracer: nop\n{}", (0..200).map(line).collect::<String>()))
}

/// Reads below /films, as strace prints them; their script has more than 16 KiB.
pub fn strace(place: &Place, name: &str) -> PathBuf {
    let read = |i| format!("7<a> 100.{i:06} pread64(3</films/b>, \"\"..., 4096, {}) = 4096 <0.000001>\n", i * 8192);
    place.file(name, &(0..1000).map(read).collect::<String>())
}

/// A shell of the other user.
fn other(place: &Place, script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", OTHER, "--regid", OTHER, "--clear-groups", "/bin/sh", "-c", script]);
    command.current_dir(place.dir.path());
    command
}

/// One line that names the thing, exit status 1 or 2, no panic.
pub fn refused(what: &str, output: &Output, words: &str) {
    let said = said(output);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{what}: {:?}\n{said}", output.status);
    assert_eq!(said.lines().count(), 1, "{what}: {said}");
    assert!(said.starts_with("flashscope: ") && said.contains(words), "{what}: {words:?} is not in: {said}");
}

#[test]
fn an_input_is_never_an_output() {
    let place = Place::new("outputs-input");
    let trace = trace(&place, "t", "cat");
    let before = std::fs::read(&trace).expect("the trace");
    std::fs::hard_link(&trace, place.at("hard")).expect("a link");
    symlink("t", place.at("soft")).expect("a link");
    let t = text(&trace);
    for name in ["t", "hard", "soft"] {
        let out = text(&place.at(name));
        for argv in [
            &["export", &t, "--to", "csv", "-o", &out][..],
            &["export", &t, "--to", "json", "-o", &out],
            &["export", &t, "--to", "perfetto", "-o", &out],
            &["export", &t, "--to", "flashmon", "-o", &out],
            &["report", &t, "--html", &out],
            &["export", &out, &t, "--offset", &format!("{t}=0"), "--to", "csv", "-o", &out],
        ] {
            let ran = place.run(argv);
            assert_ne!(ran.status.code(), Some(0), "{argv:?}");
            assert_eq!(std::fs::read(&trace).expect("the trace"), before, "{argv:?}: {}", said(&ran));
        }
        refused(name, &place.run(&["export", &t, "--to", "csv", "-o", &out]), "it is an input of this command");
        refused(name, &place.run(&["report", &t, "--html", &out]), "it is an input of this command");
    }
    assert!(place.at("soft").is_symlink(), "links stay links");
    // blktrace's files are inputs of the command that names one of them.
    let data = flashscope_tests::top().join("crates/trace/tests/data/blktrace/x86_64-6.1");
    let golden = std::fs::read_dir(data).expect("golden files").flatten().map(|entry| entry.path());
    let golden = golden.filter(|path| text(path).contains(".blktrace.")).min().expect("one of blktrace's files");
    let parts: Vec<PathBuf> = (0..2).map(|n| place.at(&format!("d.blktrace.{n}"))).collect();
    parts.iter().for_each(|part| _ = std::fs::copy(&golden, part).expect("a copy"));
    let other = text(&parts[1]);
    refused("a part", &place.run(&["report", &text(&parts[0]), "--html", &other]), "it is an input");
}

#[test]
fn links_are_followed_and_fifos_written_through() {
    let place = Place::new("outputs-through");
    let t = text(&trace(&place, "t", "cat"));
    symlink("real", place.at("soft")).expect("a link");
    let csv = stdout(&mut place.command(&["export", &t, "--to", "csv", "-o", "-"]));
    assert_eq!(csv.lines().count(), 201);
    assert!(place.run(&["export", &t, "--to", "csv", "-o", &text(&place.at("soft"))]).status.success());
    assert!(place.at("soft").is_symlink());
    assert_eq!(std::fs::read_to_string(place.at("real")).expect("the link's target"), csv);

    let fifo = place.at("fifo");
    stdout(Command::new("mkfifo").arg(&fifo));
    let reader = Command::new("cat").arg(&fifo).stdout(Stdio::piped()).spawn().expect("cat");
    assert!(place.run(&["export", &t, "--to", "csv", "-o", &text(&fifo)]).status.success());
    let read = reader.wait_with_output().expect("cat ends");
    assert_eq!(String::from_utf8_lossy(&read.stdout), csv);
    assert!(std::fs::symlink_metadata(&fifo).expect("the FIFO").file_type().is_fifo());
    // What the shell has opened, as it was opened.
    let through = stdout(&mut place.command(&["export", &t, "--to", "csv", "-o", "/dev/stdout"]));
    assert_eq!(through, csv);
}

/// What `bench import-strace` and `record` write: onto no input, behind links that lead to a file or to nothing, through a FIFO, and in
/// place of one name of a file that has two.
#[test]
fn scripts_and_recordings_go_where_other_outputs_do() {
    let place = Place::new("outputs-two");
    let s = text(&strace(&place, "s"));
    let import = |out: &str| place.command(&["bench", "import-strace", &s, "--under", "/films", "-o", out]);
    let record = |out: &str| place.command(&["record", "--events", "task:task_newtask", "-o", out, "--", "true"]);
    let script = stdout(&mut import("-"));
    let before = std::fs::read(&s).expect("strace's text");
    std::fs::hard_link(&s, place.at("hard")).expect("a link");
    symlink("s", place.at("soft")).expect("a link");
    for name in ["s", "hard", "soft"] {
        refused(name, &output(&mut import(&text(&place.at(name)))), "it is an input of this command");
        assert_eq!(std::fs::read(&s).expect("strace's text"), before, "{name}");
    }
    let is_script = |path: &Path| std::fs::read_to_string(path).is_ok_and(|text| text == script);
    let is_trace = |path: &Path| Trace::open(path).is_ok();
    type Kind<'k> = (&'k str, &'k dyn Fn(&str) -> Command, &'k dyn Fn(&Path) -> bool);
    let mut kinds: Vec<Kind<'_>> = vec![("script", &import, &is_script)];
    match cannot_record() {
        None => kinds.push(("trace", &record, &is_trace)),
        Some(why) => skip(why),
    }
    for (kind, command, is_whole) in kinds {
        let at = |name: &str| place.at(&format!("{kind}-{name}"));
        let written = |to: &Path| {
            let ran = output(&mut command(&text(to)));
            assert!(ran.status.success(), "{}: {}", to.display(), said(&ran));
        };
        symlink(format!("{kind}-real"), at("link")).expect("a link");
        for what in ["a link to nothing", "a link to a file"] {
            written(&at("link"));
            assert!(at("link").is_symlink() && is_whole(&at("real")), "{kind}: {what}");
        }
        stdout(Command::new("mkfifo").arg(at("fifo")));
        let read = std::fs::File::create(at("read")).expect("a file");
        let mut reader = Command::new("cat").arg(at("fifo")).stdout(read).spawn().expect("cat");
        written(&at("fifo"));
        assert!(reader.wait().expect("it ends").success() && is_whole(&at("read")), "{kind}: a FIFO");
        assert!(std::fs::symlink_metadata(at("fifo")).expect("the FIFO").file_type().is_fifo(), "{kind}");
        std::fs::write(at("first"), "the first").expect("a file");
        std::fs::hard_link(at("first"), at("second")).expect("a link");
        written(&at("second"));
        assert!(is_whole(&at("second")), "{kind}: a second name");
        assert_eq!(std::fs::read_to_string(at("first")).expect("the file"), "the first", "{kind}");
    }
}

#[test]
fn devices_stay_devices() {
    if !is_root() {
        return skip("needs root, to make a device node in a mount namespace of its own");
    }
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let place = Place::new("outputs-devices");
    let t = text(&trace(&place, "t", "cat"));
    let stream = text(&flashscope_tests::top().join("crates/trace/tests/data/stream/armv7-6.1.port"));
    let scratch = place.at("dev");
    std::fs::create_dir(&scratch).expect("a directory");
    // Each command writes to the node; then it has to be one still, and the only thing there.
    let script = "mount -t tmpfs none \"$1\"; mknod \"$1/null\" c 1 3; mknod \"$1/full\" c 1 7; dir=$1; shift; \
                  \"$@\"; status=$?; [ -c \"$dir/null\" ] || echo REPLACED; ls -A \"$dir\"; exit $status";
    let null = text(&scratch.join("null"));
    let full = text(&scratch.join("full"));
    let strace = text(&strace(&place, "s"));
    let import = |out| vec!["bench", "import-strace", &strace, "--under", "/films", "-o", out];
    let dat = ["export", &stream, "--recording", "0", "--to", "trace.dat", "-o", &null];
    let mut cases: Vec<(Vec<&str>, i32)> = vec![
        (vec!["export", &t, "--to", "csv", "-o", &null], 0),
        (vec!["export", &t, "--to", "perfetto", "-o", &null], 0),
        (vec!["report", &t, "--html", &null], 0),
        (dat.to_vec(), 0),
        (vec!["export", &t, "--to", "flashmon", "-o", &null], 2),
        (vec!["export", &t, "--to", "csv", "-o", &full], 1),
        (import(&null), 0),
        (import(&full), 1),
    ];
    if Path::new("/sys/kernel/tracing/instances").exists() {
        for (out, status) in [(&null, 0), (&full, 125)] {
            cases.push((vec!["record", "--events", "task:task_newtask", "-o", out, "--", "true"], status));
        }
    }
    for (argv, status) in cases {
        let dir = text(&scratch);
        let unshare = ["unshare", "-m", "/bin/sh", "-c", script, "sh", &dir];
        let ran = output(&mut behind(&unshare, &place.command(&argv)));
        let listed = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(!listed.contains("REPLACED"), "{argv:?}: the device became a file\n{}", said(&ran));
        let there: Vec<&str> = listed.lines().rev().take(2).collect();
        assert_eq!(there, ["null", "full"], "{argv:?}: {listed}{}", said(&ran));
        assert_eq!(ran.status.code(), Some(status), "{argv:?}: {}", said(&ran));
    }
}

#[test]
fn a_directory_that_another_user_writes_to() {
    if !is_root() {
        return skip("needs root, to run as two users");
    }
    for mode in [0o777, 0o1777] {
        let place = Place::new(&format!("outputs-hostile-{mode:o}"));
        let t = text(&trace(&place, "t", "cat"));
        let csv = stdout(&mut place.command(&["export", &t, "--to", "csv", "-o", "-"]));
        let victim = place.at("victim");
        std::fs::write(&victim, "root's own").expect("a file");
        std::fs::create_dir(place.at("private")).expect("a directory");
        let shared = place.at("shared");
        std::fs::create_dir(&shared).expect("a directory");
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(mode)).expect("permissions");
        let unharmed = |what: &str| {
            assert_eq!(std::fs::read_to_string(&victim).expect("the file"), "root's own", "{mode:o}: {what}");
            let private = std::fs::read_dir(place.at("private")).expect("a directory").count();
            assert_eq!(private, 0, "{mode:o}: {what}: a link to a directory was followed");
        };

        stdout(&mut other(&place, "ln -s ../victim shared/link; ln -s ../private shared/way; mkfifo shared/fifo"));
        for (name, words) in [
            ("link", "symbolic link in a directory that others can write to"),
            ("way/out", "symbolic link in a directory that others can write to"),
            ("fifo", "somebody else put this FIFO"),
        ] {
            let out = text(&shared.join(name));
            refused(name, &place.run(&["export", &t, "--to", "csv", "-o", &out]), words);
            refused(name, &place.run(&["report", &t, "--html", &out]), words);
            unharmed(name);
        }

        // Names that could be foreseen: those of the processes that come next.
        let plant = "i=$(($1 - 50)); while [ $i -lt $(($1 + 2000)) ]; do ln -s ../victim shared/.out.partial-$i; \
                     i=$((i + 1)); done";
        let mut planting = other(&place, plant);
        stdout(planting.arg("sh").arg(std::process::id().to_string()));
        for _ in 0..5 {
            let out = shared.join("out");
            assert!(place.run(&["export", &t, "--to", "csv", "-o", &text(&out)]).status.success());
            unharmed("a foreseen name");
            assert_eq!(std::fs::read_to_string(&out).expect("the file"), csv);
            assert_eq!(out.metadata().expect("the file").uid(), 0);
        }

        // The name is now a link, now a file, now nothing, as fast as a shell can.
        let race = "while :; do ln -sfn ../victim shared/race; rm -f shared/race; : >shared/race; rm -f shared/race; \
                    for f in shared/.race.*; do [ -e \"$f\" ] && ln -sfn ../victim \"$f\"; done; done 2>/dev/null";
        let racing = Running(other(&place, race).stderr(Stdio::null()).spawn().expect("a shell"));
        std::thread::sleep(Duration::from_millis(100));
        let out = text(&shared.join("race"));
        for _ in 0..40 {
            let ran = place.run(&["export", &t, "--to", "csv", "-o", &out]);
            assert!(matches!(ran.status.code(), Some(0 | 1)), "{:?}\n{}", ran.status, said(&ran));
            unharmed("a race");
        }
        drop(racing);
        unharmed("a race");
    }
}

/// A command that runs under a tracer of this host, where there is one.
fn record(place: &Place, more: &[&str], out: &Path) -> Output {
    let out = text(out);
    let mut argv = vec!["record", "--events", "task:task_newtask", "-o", &out];
    argv.extend(more);
    argv.extend(["--", "true"]);
    place.run(&argv)
}

#[test]
fn a_good_recording_is_kept_when_another_takes_its_name() {
    let Some(place) = Place::to_record("outputs-record") else { return };
    let out = place.at("t.dat");
    std::fs::write(&out, "the first").expect("a file");
    let ran = record(&place, &[], &out);
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(said(&ran).contains("t.dat.old"), "{}", said(&ran));
    assert_eq!(std::fs::read_to_string(place.at("t.dat.old")).expect("the old file"), "the first");
    Trace::open(&out).expect("a trace");
    let mode = out.metadata().expect("the trace").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "root's traces are root's to read");
    let names: Vec<_> = std::fs::read_dir(place.dir.path()).expect("a directory").flatten().collect();
    assert_eq!(names.len(), 3, "the trace, the old one and the cache: {names:?}");
}

#[test]
fn a_killed_recording_takes_no_good_one_s_place() {
    let Some(place) = Place::to_record("outputs-killed") else { return };
    let out = place.at("t.dat");
    std::fs::write(&out, "good").expect("a file");
    for round in ["t.dat.incomplete", "t.dat.incomplete.2"] {
        let path = text(&out);
        let argv = ["record", "--events", "task:task_newtask", "-o", &path, "--", "sleep", "60"];
        let mut child = place.command(&argv).stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("a recorder");
        let streams = || {
            let entries = std::fs::read_dir(place.dir.path()).expect("a directory").flatten();
            entries.map(|entry| entry.path()).find(|path| text(path).ends_with(".stream"))
        };
        let begun = || streams().is_some_and(|path| path.metadata().is_ok_and(|meta| meta.len() > 0));
        let waited = std::time::Instant::now();
        while !begun() {
            assert!(waited.elapsed() < Duration::from_secs(60), "nothing is recorded");
            std::thread::sleep(Duration::from_millis(10));
        }
        let stream = streams().expect("a stream");
        assert_eq!(stream.metadata().expect("it").permissions().mode() & 0o777, 0o600);
        child.kill().expect("kill");
        child.wait().expect("it ended");
        let next = place.run(&["board", "list"]);
        assert!(said(&next).contains(round), "{}", said(&next));
        assert_eq!(std::fs::read_to_string(&out).expect("the good file"), "good");
        Trace::open(&place.at(round)).expect("what was recorded");
        assert!(streams().is_none(), "the stream became a trace");
    }
}

/// A command that makes events for as long as it is let.
const BUSY: [&str; 4] = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1"];

fn events(path: &Path) -> u64 {
    let trace = Trace::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut events = 0;
    trace.for_each_record(&mut |_| events += 1).expect("a readable trace");
    events
}

#[test]
fn a_recording_ends_at_its_size() {
    let Some(place) = Place::to_record("outputs-size") else { return };
    for more in [&[][..], &["--no-convert"]] {
        let out = place.at("t.dat");
        let path = text(&out);
        let mut argv =
            vec!["record", "--events", "raw_syscalls:sys_enter", "--max-size", "2M", "--ring", "256K", "-o", &path];
        argv.extend(more);
        argv.push("--");
        argv.extend(BUSY);
        let timeout = ["timeout", "-k", "5", "60"];
        let ran = output(behind(&timeout, &place.command(&argv)).stdin(Stdio::null()));
        assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
        assert!(said(&ran).contains("has reached --max-size"), "{}", said(&ran));
        let size = out.metadata().expect("the recording").len();
        assert!((2 << 20..16 << 20).contains(&size), "{size} bytes for 2 MiB and the rings");
        assert!(events(&out) > 10_000);
        let stream = std::fs::read(&out).expect("the recording").starts_with(b"\x17\x08\x44tracing");
        assert_eq!(stream, more.is_empty(), "a trace.dat, or the agent's stream");
        let extra: Vec<String> = std::fs::read_dir(place.dir.path())
            .expect("a directory")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.ends_with(".stream"))
            .collect();
        assert!(extra.is_empty(), "{extra:?}");
    }
}

#[test]
fn a_recording_ends_before_its_disk_is_full() {
    let Some(place) = Place::to_record("outputs-disk") else { return };
    let (small, kept) = (place.at("small"), place.at("kept"));
    for dir in [&small, &kept] {
        std::fs::create_dir(dir).expect("a directory");
    }
    for (more, least) in [(&[][..], 12 << 20), (&["--no-convert"], 12 << 20)] {
        let path = text(&small.join("t.dat"));
        let mut argv = vec!["record", "--events", "raw_syscalls:sys_enter", "--ring", "512K", "-o", &path];
        argv.extend(more);
        argv.push("--");
        argv.extend(BUSY);
        // The mount goes with the namespace: what is on it is copied out by the same shell.
        let script = format!(
            "mount -t tmpfs -o size=32m none {0}; status=0; timeout -k 5 100 \"$@\" || status=$?; cp -a {0}/. {1}; exit $status",
            small.display(),
            kept.display()
        );
        let unshare = ["unshare", "-m", "/bin/sh", "-c", &script, "sh"];
        let ran = output(behind(&unshare, &place.command(&argv)).stdin(Stdio::null()));
        // flashscope's own failure, where the status is else the command's.
        assert_eq!(ran.status.code(), Some(125), "{}", said(&ran));
        assert!(said(&ran).contains("there is no space left for a longer recording"), "{}", said(&ran));
        let names: Vec<_> = std::fs::read_dir(&kept).expect("a directory").flatten().collect();
        assert_eq!(names.len(), 1, "only the recording: {names:?}");
        let size = kept.join("t.dat").metadata().expect("the recording").len();
        assert!(size > least, "{size} bytes of a disk of 32 MiB");
        assert!(events(&kept.join("t.dat")) > 10_000);
        std::fs::remove_file(kept.join("t.dat")).expect("the recording");
    }
}

/// Two recordings on a full disk: with one `.old` alone, the second would remove the good one.
#[test]
fn a_full_disk_takes_no_good_recording_away() {
    let Some(place) = Place::to_record("outputs-disk-good") else { return };
    let (small, kept) = (place.at("small"), place.at("kept"));
    for dir in [&small, &kept] {
        std::fs::create_dir(dir).expect("a directory");
    }
    let path = text(&small.join("t.dat"));
    let argv = ["record", "--events", "raw_syscalls:sys_enter", "--ring", "512K", "-o", &path, "--"];
    let script = format!(
        "mount -t tmpfs -o size=32m none {0}; echo good >{0}/t.dat; for n in 1 2; do timeout -k 5 100 \"$@\"; \
         echo status $? >&2; done; cp -a {0}/. {1}",
        small.display(),
        kept.display()
    );
    let unshare = ["unshare", "-m", "/bin/sh", "-c", &script, "sh"];
    let ran = output(behind(&unshare, &place.command(&[&argv[..], &BUSY].concat())).stdin(Stdio::null()));
    assert_eq!(said(&ran).matches("status 125\n").count(), 2, "{}", said(&ran));
    assert!(said(&ran).contains("t.dat is unchanged, and the recorded data is in "), "{}", said(&ran));
    assert_eq!(std::fs::read(kept.join("t.dat")).expect("the good one"), b"good\n");
    assert!(!kept.join("t.dat.old").exists());
    assert!(events(&kept.join("t.dat.incomplete")) > 10_000);
    assert!(kept.join("t.dat.incomplete.2").exists(), "{}", said(&ran));
}

/// Commands that print; each has something to say to the trace.
fn printing(place: &Place) -> Vec<Vec<String>> {
    let t = text(&trace(place, "t", "cat"));
    let reads = text(&flashscope_tests::top().join("tests/outputs/reads.stream"));
    [
        "report T",
        "report T --json",
        "predict READS",
        "advise READS",
        "export T --to csv -o -",
        "export T --to json -o -",
        "export T --to text -o -",
        "export T --to perfetto -o -",
        "doctor",
        "doctor --json",
        "board list",
        "board list --json",
        "completions bash",
        "completions zsh",
        "--help",
        "--version",
        "help record",
        "report --help",
    ]
    .iter()
    .map(|line| line.split(' ').map(|word| word.replace("READS", &reads)).collect::<Vec<_>>())
    .map(|line| line.into_iter().map(|word| if word == "T" { t.clone() } else { word }).collect())
    .collect()
}

#[test]
fn a_reader_that_goes_and_a_disk_that_is_full() {
    let place = Place::new("outputs-stdout");
    for argv in printing(&place) {
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ran = output(place.command(&argv).stdin(Stdio::null()).stdout(writer));
        assert_eq!((ran.status.code(), said(&ran).as_str()), (Some(0), ""), "{argv:?} into a pipe without a reader");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let ran = output(place.command(&argv).stdin(Stdio::null()).stdout(full));
        assert_eq!(ran.status.code(), Some(1), "{argv:?} > /dev/full: {}", said(&ran));
        refused(&format!("{argv:?}"), &ran, "standard output: No space left on device");
        if argv[1..].iter().any(|word| word.ends_with("reads.stream")) {
            // It has much to work out, and its progress is like the others'.
            continue;
        }
        // Nobody can be told; still no crash.
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let ran = output(place.command(&argv).stdin(Stdio::null()).stdout(Stdio::null()).stderr(full));
        // Its status says whether anything can be recorded.
        let nothing = argv[0] == "doctor" && cannot_record().is_some();
        assert_eq!(ran.status.code(), Some(i32::from(nothing)), "{argv:?} 2> /dev/full");
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let ran = output(place.command(&["report", "nosuch"]).stderr(full));
    assert_eq!(ran.status.code(), Some(1), "an error that cannot be told is an error");
}

/// SIGXFSZ ended a command without a word, whatever it was writing.
#[test]
fn a_limit_of_the_size_of_files_is_an_error() {
    let place = Place::new("outputs-limit");
    let t = text(&trace(&place, "t", "app"));
    let page = text(&place.at("page.html"));
    let limited = |argv: &[&str]| behind(&["/bin/sh", "-c", "ulimit -f 1; exec \"$@\"", "sh"], &place.command(argv));
    assert!(place.run(&["report", &t, "--html", &page]).status.success());
    std::fs::write(&page, "old").expect("a file");
    let names = || {
        let entries = std::fs::read_dir(place.dir.path()).expect("a directory");
        entries.flatten().map(|entry| entry.file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();
    let ran = output(limited(&["report", &t, "--html", &page]).stdin(Stdio::null()));
    assert_eq!(ran.status.code(), Some(1), "{}", ran.status);
    refused("report --html", &ran, "File too large");
    assert_eq!(std::fs::read_to_string(&page).expect("kept"), "old");
    assert_eq!(names(), before, "left behind");
    let file = std::fs::File::create(place.at("stdout")).expect("a file");
    let ran = output(limited(&["report", &t, "--json"]).stdin(Stdio::null()).stdout(file));
    assert_eq!(ran.status.code(), Some(1), "{}", ran.status);
    refused("report --json", &ran, "standard output: File too large");
}

#[test]
fn names_of_others_act_nowhere() {
    let place = Place::new("outputs-names");
    let t = text(&trace(&place, "t", "=cmd\u{202e}\u{1b}[2J"));
    let csv = stdout(&mut place.command(&["export", &t, "--to", "csv", "-o", "-"]));
    assert!(csv.contains(",\"'=cmd\\u{202e}\\u{1b}[2J\","), "{}", csv.lines().nth(1).unwrap_or_default());
    let raw = stdout(&mut place.command(&["export", &t, "--to", "csv", "--csv-raw", "-o", "-"]));
    assert!(raw.contains(",=cmd\\u{202e}"), "{}", raw.lines().nth(1).unwrap_or_default());
    let page = place.at("page.html");
    let shown = stdout(&mut place.command(&["report", &t, "--html", &text(&page)]));
    let html = std::fs::read_to_string(&page).expect("the page");
    for (what, text) in [("csv", &csv), ("terminal", &shown), ("page", &html)] {
        assert!(!text.chars().any(|c| c != '\n' && flashscope_output::acts(c)), "{what}");
    }
    // Names of files, in errors, in progress and in clap's own.
    let evil = "a\u{202e}\u{2066}\u{200f}\u{61c}\u{1b}[2J\u{9b}b\nflashscope: all is well";
    let out = text(&place.at(evil));
    for argv in [
        &["report", evil][..],
        &["export", evil, "--to", "csv", "-o", "-"],
        &["export", &t, "--to", "csv", "-o", &out],
        &["report", &t, evil],
        &["study", evil],
        &["bench", "read", "--on", evil],
        &["doctor", "--on", evil],
        &["report", &format!("--{evil}")],
        &[evil],
    ] {
        let ran = place.run(argv);
        let said = said(&ran);
        assert!(!said.is_empty(), "{argv:?}");
        assert!(!said.chars().any(|c| c != '\n' && flashscope_output::acts(c)), "{argv:?}: {said:?}");
        assert!(!said.lines().any(|line| line == "flashscope: all is well"), "{argv:?}: {said}");
    }
}

#[test]
fn what_has_no_end_is_not_read_to_its_end() {
    let place = Place::new("outputs-endless");
    let run =
        |argv: &[&str], stdin: Stdio| output(behind(&["timeout", "-k", "1", "20"], &place.command(argv)).stdin(stdin));
    for argv in [
        &["report", "/dev/zero"][..],
        &["export", "/dev/zero", "--to", "csv", "-o", "-"],
        &["export", "/dev/zero", "--recording", "0", "--to", "csv", "-o", "-"],
        &["predict", "/dev/zero"],
        &["advise", "/dev/zero"],
        &["bench", "replay", "/dev/zero", "--script", "-"],
        &["study", "/dev/zero"],
        &["board", "boot", "/dev/zero"],
    ] {
        let ran = run(argv, Stdio::null());
        refused(&format!("{argv:?}"), &ran, "/dev/zero");
    }
    let zero = std::fs::File::open("/dev/zero").expect("/dev/zero");
    refused("zeros on standard input", &run(&["report", "-"], zero.into()), "-: looks like nothing but zeros");
    if !is_root() {
        return skip("needs root, to mount a small file system for what a pipe brings");
    }
    // Lines of a trace for ever, into a small disk.
    let small = place.at("small");
    std::fs::create_dir(&small).expect("a directory");
    let script = "mount -t tmpfs -o size=16m none \"$1\"; export TMPDIR=$1; shift; \
                  { echo '# tracer: nop'; yes '         cat-7       [000] .....     1.000000: nand_read: page=1'; } | \
                  timeout -k 1 60 \"$@\"";
    let unshare = ["unshare", "-m", "/bin/sh", "-c", script, "sh", &text(&small)];
    let ran = output(&mut behind(&unshare, &place.command(&["report", "-"])));
    refused("an endless pipe", &ran, "bytes came through the pipe");
}

/// Options that name a file, where the command cannot end well here, or takes long; words as in [`OPTIONS`].
const FURTHER: [(&str, &str); 3] = [
    ("--html", "report T --json --html FILE"),
    ("--output", "bench replay READS --dir /nonexistent -o FILE"),
    ("--report", "study readahead-reads --report FILE"),
];

#[test]
fn a_destination_that_cannot_be_written_is_refused_before_anything_is_printed() {
    let place = Place::new("outputs-destinations");
    let (t, u) = (text(&trace(&place, "t", "cat")), text(&trace(&place, "u", "dog")));
    let reads = text(&flashscope_tests::top().join("tests/outputs/reads.stream"));
    std::fs::create_dir(place.at("dir")).expect("a directory");
    symlink("loop", place.at("loop")).expect("a link");
    let missing = place.at("missing/file");
    let under_a_file = place.at("t/file");
    let s = text(&strace(&place, "s"));
    for (option, line) in OPTIONS.into_iter().chain(FURTHER) {
        for (destination, words) in [
            (missing.as_path(), "No such file or directory"),
            (&under_a_file, "Not a directory"),
            (&place.at("dir"), "this is a directory"),
            (&place.at("loop"), "Too many levels of symbolic links"),
            (Path::new("/proc/version"), ""),
        ] {
            let file = text(destination);
            let word = |word: &str| match word {
                "T" => t.clone(),
                "U" => u.clone(),
                "S" => s.clone(),
                "READS" => reads.clone(),
                "FILE" => file.clone(),
                other => other.to_owned(),
            };
            let argv: Vec<String> = line.split(' ').map(word).collect();
            let ran = place.run(&argv.iter().map(String::as_str).collect::<Vec<_>>());
            let said = said(&ran);
            assert!(matches!(ran.status.code(), Some(1 | 2 | 125)), "{argv:?}: {:?}\n{said}", ran.status);
            assert_eq!(ran.stdout, b"", "{argv:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{argv:?}: {said}");
            assert!(said.starts_with(&format!("flashscope: {file}: ")) && said.contains(words), "{argv:?}: {said}");
            assert!(said.ends_with(&format!("with {option}\n")) || words.contains("directory"), "{argv:?}: {said}");
        }
    }
    // A study's directory is made where there is none.
    for directory in [place.at("t/out"), place.at("t"), Path::new("/proc/out/deep").to_owned()] {
        let ran = place.run(&["study", "readahead-reads", "-o", &text(&directory)]);
        refused("study", &ran, "cannot create");
        assert_eq!(ran.stdout, b"");
    }
    let left: Vec<_> = std::fs::read_dir(place.dir.path()).expect("listed").flatten().map(|e| e.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("flashscope-")), "{left:?}");
}

#[test]
fn two_options_do_not_name_one_file() {
    let place = Place::new("outputs-twice");
    let t = text(&trace(&place, "t", "cat"));
    std::fs::write(place.at("there"), "before").expect("a file");
    symlink("there", place.at("soft")).expect("a link");
    let (there, soft, new) = (text(&place.at("there")), text(&place.at("soft")), text(&place.at("new")));
    let dotted = text(&place.at("./new"));
    for (first, second) in [(&there, &there), (&there, &soft), (&new, &new), (&new, &dotted)] {
        for options in [["--html", "--perfetto"], ["--html", "--junit"], ["--perfetto", "--junit"]] {
            let argv = ["report", &t, "--fail-if", "errors > 0", options[0], first, options[1], second];
            let ran = place.run(&argv);
            refused(&format!("{argv:?}"), &ran, "name the same file; name two");
            assert_eq!((ran.stdout.len(), ran.status.code()), (0, Some(2)), "{argv:?}");
        }
    }
    assert_eq!(std::fs::read_to_string(there).expect("the file"), "before");
    let null = ["report", &t, "--html", "/dev/null", "--perfetto", "/dev/null"];
    assert!(place.run(&null).status.success(), "a device takes both");
}

/// Where `-` is not standard output, it is no file's name either.
#[test]
fn a_dash_makes_no_file() {
    let place = Place::new("outputs-dash");
    let t = text(&trace(&place, "t", "cat"));
    let run = |argv: &[&str]| output(place.command(argv).current_dir(place.dir.path()));
    for (argv, option) in [
        (&["report", &t, "--html", "-"][..], "--html"),
        (&["report", &t, "--perfetto", "-"], "--perfetto"),
        (&["report", &t, "--fail-if", "errors > 0", "--junit", "-"], "--junit"),
        (&["diff", &t, &t, "--html", "-"], "--html"),
        (&["predict", &t, "--html", "-"], "--html"),
        (&["top", "--json", "--prometheus", "-"], "--prometheus"),
        (&["record", "-d", "1", "-o", "-"], "--output"),
    ] {
        let ran = run(argv);
        refused(&format!("{argv:?}"), &ran, &format!("{option} -: this is not written to standard output"));
        assert_eq!((ran.stdout.len(), ran.status.code()), (0, Some(2)), "{argv:?}");
        assert!(!place.at("-").exists(), "{argv:?}");
    }
    // By its path it is a file as any other.
    assert!(run(&["report", &t, "--html", "./-"]).status.success());
    assert!(place.at("-").is_file());
}

/// What root has recorded, read without sudo: the message has the next step.
#[test]
fn a_trace_of_somebody_else_s_says_how_it_is_read() {
    if !is_root() {
        return skip("needs root, to run as another user");
    }
    let place = Place::new("outputs-owner");
    let t = trace(&place, "t", "cat");
    std::fs::set_permissions(&t, std::fs::Permissions::from_mode(0o600)).expect("permissions");
    for command in ["report", "advise", "predict"] {
        let mut ours = place.command(&[command, &text(&t)]);
        ours.current_dir(place.dir.path());
        let as_other = ["setpriv", "--reuid", OTHER, "--regid", OTHER, "--clear-groups"];
        let ran = output(behind(&as_other, &ours).current_dir(place.dir.path()));
        if said(&ran).contains("failed to execute") {
            return skip("the other user may not run a program of this directory");
        }
        refused(command, &ran, "with sudo), or give the file away with chown");
    }
}

#[test]
fn limits_that_cannot_be_checked_are_refused_before_the_report() {
    let place = Place::new("outputs-limits");
    let t = text(&trace(&place, "t", "cat"));
    for (argv, words) in [
        (&["report", &t, "--fail-if", "regress > 5%"][..], "regress compares two recordings"),
        (&["report", &t, "--by", "layer", "--fail-if", "errors > 0"], "--by layer has none of these figures"),
        (&["report", &t, "--call", "1", "--fail-if", "errors > 0"], "cannot be used with"),
    ] {
        let ran = place.run(argv);
        assert_eq!((ran.stdout.len(), ran.status.code()), (0, Some(2)), "{argv:?}: {}", said(&ran));
        assert!(said(&ran).contains(words), "{argv:?}: {}", said(&ran));
    }
}

/// What is no place for a recording is refused before it begins; a file of another user is kept beside it, as it was.
#[test]
fn a_recording_onto_what_is_not_its_own() {
    let Some(place) = Place::to_record("outputs-record-onto") else { return };
    std::fs::create_dir(place.at("dir")).expect("a directory");
    for (link, target) in [("a", "b"), ("b", "a")] {
        std::os::unix::fs::symlink(target, place.at(link)).expect("a link");
    }
    for (name, words) in [("dir", "this is a directory"), ("a", "cannot follow the links"), ("no/t", "cannot create")] {
        let ran = record(&place, &[], &place.at(name));
        assert_eq!(ran.status.code(), Some(125), "{name}: {}", said(&ran));
        assert!(said(&ran).contains(words) && said(&ran).lines().count() == 1, "{name}: {}", said(&ran));
    }
    if !is_root() {
        return skip("only root has files of two users");
    }
    let sticky = place.at("sticky");
    std::fs::create_dir(&sticky).expect("a directory");
    std::fs::set_permissions(&sticky, std::fs::Permissions::from_mode(0o1777)).expect("a mode");
    let out = sticky.join("t");
    std::fs::write(&out, "theirs").expect("a file");
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o666)).expect("a mode");
    std::os::unix::fs::chown(&out, Some(65534), Some(65534)).expect("another user");
    let ran = record(&place, &[], &out);
    assert!(ran.status.success(), "{}", said(&ran));
    let meta = out.metadata().expect("the recording");
    assert_eq!((meta.uid(), meta.mode() & 0o777), (0, 0o600));
    let kept = sticky.join("t.old");
    assert_eq!(std::fs::read_to_string(&kept).expect("what was there"), "theirs");
    assert_eq!(kept.metadata().expect("it").uid(), 65534);
}
