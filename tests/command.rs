//! `record -- CMD` as a user of the command sees it: stdin, stdout, stderr and the exit status are CMD's.

use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use flashscope_tests::{PrivateCache, TempDir, cannot_record, flashscope, output, skip, stdout};

use crate::bad_input::Server;

/// Longer than any of these takes; what hangs fails.
const TIMEOUT: Duration = Duration::from_secs(60);

fn records_here() -> bool {
    let able = Path::new("/sys/kernel/tracing/instances").is_dir();
    if !able {
        skip("commands under trace: a mounted tracefs is needed");
    }
    able && cannot_record().map(skip).is_none()
}

/// Runs `record OPTIONS -- CMD` with `input` on stdin.
fn run(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || {
        // What does not read says so by closing.
        stdin.write_all(&input).ok();
    });
    let id = child.id().to_string();
    let (done, waits) = std::sync::mpsc::channel();
    let watchdog = std::thread::spawn(move || {
        if waits.recv_timeout(TIMEOUT).is_err() {
            Command::new("kill").args(["-KILL", &id]).status().ok();
        }
    });
    let output = child.wait_with_output().expect("an end");
    done.send(()).ok();
    watchdog.join().expect("the watchdog");
    feeder.join().expect("the feeder");
    output
}

const EVENTS: [&str; 4] = ["record", "--quiet", "--events", "task:task_newtask"];

/// The same on this host and over ssh, by what makes a command of a trace's name and of CMD.
fn what_a_command_says_is_its_own(record: &dyn Fn(&str, &[&str]) -> Command, dir: &Path, place: &str) {
    let text: Vec<u8> = (0..300_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let ran = run(&mut record("a", &["sh", "-c", "cat; echo told >&2; exit 3"]), &text);
    assert_eq!(ran.status.code(), Some(3), "{place}: {}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.stdout == text, "{place}: {} of {} bytes came back", ran.stdout.len(), text.len());
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "told\n", "{place}");
    let report = stdout(flashscope().args(["export", "--to", "json", "-o", "-"]).arg(dir.join("a")));
    assert!(report.starts_with('{'), "{place}: the recording beside it is whole");

    for (command, status, says) in [
        (&["true"][..], 0, ""),
        (&["sh", "-c", "kill -9 $$"], 137, ""),
        (&["/etc/passwd"], 126, "cannot be run: Permission denied"),
        (&["/nonexistent/program"], 127, "cannot be run: No such file"),
    ] {
        let ran = run(&mut record("b", command), b"");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(status), "{place}: {command:?}: {stderr}");
        assert!(stderr.contains(says) && stderr.lines().count() == usize::from(!says.is_empty()), "{place}: {stderr}");
        // What never ran has no recording, which would take the name of an earlier one.
        assert_eq!(says.is_empty(), std::fs::remove_file(dir.join("b")).is_ok(), "{place}: {command:?}");
        assert!(says.is_empty() || stderr.contains("; nothing was recorded"), "{place}: {stderr}");
    }

    let began = Instant::now();
    let ran = run(&mut record("c", &["sh", "-c", "sleep 50 & echo begun"]), b"");
    assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(0), &b"begun\n"[..]), "{place}");
    assert!(began.elapsed() < Duration::from_secs(30), "{place}: a daemon that keeps stdout open was waited for");
}

#[test]
fn a_command_on_this_host_has_our_stdin_stdout_stderr_and_status() {
    if !records_here() {
        return;
    }
    let dir = TempDir::new("command-local");
    let record = |name: &str, command: &[&str]| {
        let mut record = flashscope();
        record.args(EVENTS).arg("-o").arg(dir.path().join(name)).arg("--").args(command);
        // A daemon would hold the pipes of this test, so the shell puts files in their place.
        if !command.contains(&"sleep 50 & echo begun") {
            return record;
        }
        let out = flashscope_tests::text(&dir.path().join("out"));
        let script = "f=$1; shift; \"$@\" >$f 2>&1; s=$?; cat $f; exit $s";
        flashscope_tests::behind(&["sh", "-c", script, "sh", &out], &record)
    };
    what_a_command_says_is_its_own(&record, dir.path(), "local");

    let own = output(flashscope().args(EVENTS).args(["-o", "/nosuch/t.dat", "--", "true"]));
    assert_eq!(own.status.code(), Some(125), "a failure of ours beside a command");
    let usage = output(flashscope().args(["record", "--nosuch", "--", "true"]));
    assert_eq!(usage.status.code(), Some(125), "a usage error beside a command");
    let usage = output(flashscope().args(["record", "--nosuch"]));
    assert_eq!(usage.status.code(), Some(2), "and without one");
    let closed = output(
        Command::new("sh")
            .args(["-c", "exec \"$@\" <&-", "sh"])
            .arg(flashscope().get_program())
            .args(EVENTS)
            .env("FLASHSCOPE_AGENTS", flashscope_tests::top().join("agent/build"))
            .arg("-o")
            .arg(dir.path().join("d"))
            .args(["--", "cat"]),
    );
    assert_eq!(closed.status.code(), Some(0), "{}", String::from_utf8_lossy(&closed.stderr));
}

#[test]
fn a_command_runs_as_the_user_that_is_named() {
    if !records_here() {
        return;
    }
    let dir = TempDir::new("command-user");
    let record = |user: &str, command: &str| {
        let mut record = flashscope();
        record.args(EVENTS).args(["--user", user, "-o"]).arg(dir.path().join(user)).args(["--", "sh", "-c", command]);
        run(&mut record, b"input")
    };
    let ran = record("nobody", "cat; echo; id -un; id -G; echo $USER $LOGNAME; kill -0 $PPID 2>/dev/null || exit 4");
    let said = String::from_utf8_lossy(&ran.stdout);
    let groups = stdout(Command::new("id").args(["-G", "nobody"]));
    assert_eq!(said, format!("input\nnobody\n{groups}nobody nobody\n"));
    assert_eq!(ran.status.code(), Some(4), "it has no right to the recorder: {}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(String::from_utf8_lossy(&record("4321", "id -u").stdout), "4321\n");
    let unknown = record("nosuch", "true");
    let says = String::from_utf8_lossy(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(125), "{says}");
    assert!(says.contains("--user nosuch: no such user"), "{says}");
}

#[test]
fn an_interrupted_command_has_time_to_end_and_its_status_is_ours() {
    if !records_here() {
        return;
    }
    let dir = TempDir::new("command-int");
    let ready = dir.path().join("ready");
    let script =
        format!("trap 'sleep 0.3; echo took leave; exit 9' INT; : >{}; while :; do sleep 0.05; done", ready.display());
    let mut record = Command::new("setsid");
    record
        .arg(flashscope().get_program())
        .args(EVENTS)
        .arg("-o")
        .arg(dir.path().join("t"))
        .args(["--", "sh", "-c", &script]);
    record.env("FLASHSCOPE_AGENTS", flashscope_tests::top().join("agent/build"));
    let child = record.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("setsid");
    let began = Instant::now();
    while !ready.exists() {
        assert!(began.elapsed() < TIMEOUT, "the command does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    // setsid makes it the leader of its own group.
    let group = format!("-{}", child.id());
    assert!(Command::new("/bin/kill").args(["-INT", "--", &group]).status().expect("kill").success());
    let ended = child.wait_with_output().expect("an end");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "took leave\n");
    assert_eq!(ended.status.code(), Some(9), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(dir.path().join("t").exists(), "what was recorded is kept");
}

#[test]
fn a_command_over_ssh_has_our_stdin_stdout_stderr_and_status() {
    if !records_here() {
        return;
    }
    let Some(server) = Server::start() else { return };
    let cache = PrivateCache::new("command-ssh-cache");
    let dir = TempDir::new("command-ssh");
    let spec = server.spec();
    let record = |name: &str, command: &[&str]| {
        let file = dir.path().join(name).display().to_string();
        let words = [&EVENTS[..], &["--on", &spec, "-o", &file, "--"], command].concat();
        server.command(&cache, "user", &words)
    };
    what_a_command_says_is_its_own(&record, dir.path(), "ssh");
}

#[test]
fn a_command_on_a_board_has_our_stdin_stdout_stderr_and_status() {
    let dir = TempDir::new("command-board");
    let cache = PrivateCache::new("command-board-cache");
    // 1 MiB with every byte in it, NUL and line ends too.
    let input: Vec<u8> = (0..1u32 << 20).map(|n| (n ^ (n >> 8)) as u8).collect();
    let record = |name: &str| {
        let mut record = flashscope();
        record.env("FLASHSCOPE_CACHE", cache.path());
        record.args(["record", "--on", "board:armv7", "--events", "flash", "-o"]).arg(dir.path().join(name));
        record.args(["--packages", "busybox", "--user", "1234", "--", "/bin/busybox", "sh", "-c"]);
        record.arg("/bin/busybox id; cat; echo told >&2; exit 5");
        record
    };
    let whole = |name: &str| {
        let ran = run(&mut record(name), &input);
        let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(5), "{stderr}");
        let after = ran.stdout.iter().position(|byte| *byte == b'\n').expect("a line of id") + 1;
        let said = String::from_utf8_lossy(&ran.stdout[..after]);
        assert!(said.starts_with("uid=1234 gid=1234"), "{said}{stderr}");
        assert!(ran.stdout[after..] == input, "{} of {} bytes came back", ran.stdout.len() - after, input.len());
        assert!(stderr.contains("told\n") && !stderr.contains("stdin"), "{stderr}");
    };
    whole("t");
    whole("again");
    // stdin is an input of the run as all others are: it does not change the time of anything.
    let export =
        |name: &str| stdout(flashscope().args(["export", "--to", "csv", "-o", "-"]).arg(dir.path().join(name)));
    assert!(export("t") == export("again"), "two boots with one stdin");
    let images: Vec<_> = std::fs::read_dir(cache.path().join("images")).into_iter().flatten().collect();
    assert!(images.is_empty(), "stdin stays in no image of the cache: {images:?}");

    let none = output(&mut record("none"));
    let said = String::from_utf8_lossy(&none.stdout);
    assert_eq!((none.status.code(), said.lines().count()), (Some(5), 1), "{said}");
}

/// Nothing of these boots: they end before.
#[test]
fn stdin_for_a_board_is_bounded_and_waited_for_in_words() {
    let dir = TempDir::new("command-stdin");
    let record = || {
        let mut record = flashscope();
        record.args(["record", "--quiet", "--on", "board:armv7", "-o"]).arg(dir.path().join("t")).args(["--", "cat"]);
        record
    };
    let nothing_is_left = || assert!(std::fs::read_dir(dir.path()).expect("it is there").next().is_none());
    let zero = std::fs::File::open("/dev/zero").expect("it is there");
    let ran = output(record().stdin(zero));
    let says = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(125), "{says}");
    assert!(says.contains("stdin: more than 16 MiB") && says.lines().count() == 1, "{says}");
    nothing_is_left();
    let ran = output(record().stdin(std::fs::File::open(dir.path()).expect("it is there")));
    let says = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(125), "{says}");
    assert!(says.contains("stdin: Is a directory") && says.lines().count() == 1, "{says}");
    nothing_is_left();

    let mut child = record().stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("flashscope");
    let held = child.stdin.take();
    let mut stderr = std::io::BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line");
    assert!(line.contains("waiting for the end of stdin") && line.contains("</dev/null"), "{line}");
    assert!(Command::new("/bin/kill").args(["-INT", &child.id().to_string()]).status().expect("kill").success());
    let ended = child.wait().expect("an end");
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("text");
    assert_eq!(ended.code(), Some(130), "{rest}");
    assert!(rest.contains("ended by a signal") && rest.lines().count() == 1, "{rest}");
    drop(held);
    nothing_is_left();

    // As a script's command inherits it: a pipe that nobody writes to.
    let mut record = flashscope();
    record.args(["record", "--quiet", "--on", "board:armv7", "--packages", "busybox", "-o"]).arg(dir.path().join("t"));
    record.args(["--", "/bin/busybox", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = record.spawn().expect("flashscope");
    let held = child.stdin.take();
    let ran = child.wait_with_output().expect("an end");
    let says = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && ran.stdout.is_empty(), "{says}");
    assert!(says.contains("nothing came on stdin within 10 s"), "{says}");
    drop(held);
}

/// tracefs as docs/how-to/record-without-root.md lends it, to a user that nobody else is.
struct Lent;

const BORROWER: u32 = 43_210;

impl Lent {
    fn lend() -> Lent {
        Lent::set(&format!("gid={BORROWER},mode=750"), &format!("{BORROWER}:0"), "770");
        Lent
    }

    fn set(options: &str, owner: &str, mode: &str) {
        let tracing = "/sys/kernel/tracing";
        let instances = "/sys/kernel/tracing/instances";
        stdout(Command::new("mount").args(["-o", &format!("remount,{options}"), tracing]));
        stdout(Command::new("chown").args([owner, instances]));
        stdout(Command::new("chmod").args([mode, instances]));
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        Lent::set("gid=0,mode=700", "0:0", "750");
    }
}

#[test]
fn a_user_to_whom_tracefs_is_lent_records_without_root() {
    if !records_here() {
        return;
    }
    let dir = TempDir::new("command-lent");
    let theirs = dir.path().join("theirs");
    std::fs::create_dir(&theirs).expect("a directory");
    std::os::unix::fs::chown(&theirs, Some(BORROWER), Some(BORROWER)).expect("chown");
    // The checkout may lie where that user cannot look.
    let program = dir.path().join("flashscope");
    std::fs::copy(flashscope().get_program(), &program).expect("a copy");
    let agents = dir.path().join("agents");
    stdout(Command::new("cp").arg("-r").arg(flashscope_tests::top().join("agent/build")).arg(&agents));
    let as_them = |words: &[&str]| {
        let id = BORROWER.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(&program).args(words);
        command.env("FLASHSCOPE_AGENTS", &agents).env("FLASHSCOPE_CACHE", theirs.join("cache")).current_dir(&theirs);
        command
    };
    let trace = theirs.join("t.dat").display().to_string();
    let record = ["record", "--events", "block,task:task_newtask", "-o", &trace, "--", "sh"];
    let script = "grep CapEff /proc/$PPID/status; /bin/true; exit 6";
    let refused = output(&mut as_them(&[&record[..], &["-c", script]].concat()));
    let says = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(125), "{says}");
    assert!(says.contains("permission denied; run as root, or let an administrator lend it"), "{says}");

    let lent = Lent::lend();
    let ran = output(&mut as_them(&[&record[..], &["-c", script]].concat()));
    let doctor = stdout(&mut as_them(&["doctor", "-v"]));
    drop(lent);
    let says = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(6), "{says}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "CapEff:\t0000000000000000\n", "no capability is needed");
    assert!(doctor.contains("Access (user id 43210, no capabilities)"), "{doctor}");
    assert!(doctor.contains("  yes  record: make an instance in tracefs"), "{doctor}");
    let left: Vec<_> = std::fs::read_dir("/sys/kernel/tracing/instances").expect("instances").flatten().collect();
    let theirs: Vec<_> = left.iter().filter(|e| e.metadata().is_ok_and(|m| m.uid() == BORROWER)).collect();
    assert!(theirs.is_empty(), "{theirs:?}");
    let report = stdout(flashscope().args(["export", "--to", "json", "-o", "-", &trace]));
    assert!(report.starts_with('{'), "root reads it, too");
    // What belongs to another is read as well where its mode allows.
    std::fs::set_permissions(&trace, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("chmod");
    std::os::unix::fs::chown(&trace, Some(0), Some(0)).expect("chown");
    assert!(stdout(&mut as_them(&["export", "--to", "json", "-o", "-", &trace])).starts_with('{'));
}

#[test]
fn a_recording_over_ssh_that_is_stopped_ends_its_command_and_leaves_nothing() {
    if !records_here() {
        return;
    }
    let Some(server) = Server::start() else { return };
    let cache = PrivateCache::new("command-stop-cache");
    let dir = TempDir::new("command-stop");
    let (spec, file) = (server.spec(), dir.path().join("t").display().to_string());
    let ready = dir.path().join("ready");
    let script = format!("echo $$ >{}; echo begun; exec sleep 300", ready.display());
    let words = [&EVENTS[..], &["--on", &spec, "-o", &file, "--", "sh", "-c", &script]].concat();
    let mut record = server.command(&cache, "user", &words);
    let child =
        record.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("flashscope starts");
    let began = Instant::now();
    while std::fs::read_to_string(&ready).unwrap_or_default().is_empty() {
        assert!(began.elapsed() < TIMEOUT, "the command does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = std::fs::read_to_string(&ready).expect("a pid").trim().to_owned();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill").success());
    let stopped = Instant::now();
    let ended = child.wait_with_output().expect("an end");
    let says = String::from_utf8_lossy(&ended.stderr);
    assert!(stopped.elapsed() < Duration::from_secs(15), "it took {:?}: {says}", stopped.elapsed());
    assert_eq!((ended.status.code(), &ended.stdout[..]), (Some(143), &b"begun\n"[..]), "{says}");
    assert!(!Path::new("/proc").join(&pid).exists(), "the command still runs");
    assert!(stdout(flashscope().args(["export", "--to", "json", "-o", "-", &file])).starts_with('{'));
}

/// What the recorder holds while the command runs, against what `doctor` says it keeps.
#[test]
fn the_recorder_keeps_what_doctor_says() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let facts: serde_json::Value =
        serde_json::from_slice(&output(flashscope().args(["doctor", "--json"])).stdout).expect("JSON");
    let keeps = facts["access"]["keeps"].as_array().expect("a list");
    assert!(keeps.iter().all(|keep| keep["why"].as_str().is_some_and(|why| why.len() > 10)), "{keeps:?}");
    // Numbers of include/uapi/linux/capability.h.
    let numbers = [("cap_sys_nice", 23), ("cap_kill", 5), ("cap_sys_ptrace", 19), ("cap_dac_read_search", 2)];
    let dir = TempDir::new("command-keeps");
    for (options, when) in [
        (&[][..], &["always", "without --paths none"][..]),
        (&["--paths", "none"], &["always"]),
        (&["--paths", "none", "--user", "nobody"], &["always", "with --user"]),
    ] {
        let mut command = flashscope();
        command.args(["record", "--events", "task:task_newtask", "-o"]).arg(dir.path().join("t")).args(options);
        let ran = output(command.args(["--", "sh", "-c", "grep -E 'CapEff|CapPrm|CapBnd' /proc/$PPID/status"]));
        let held: u64 = keeps
            .iter()
            .filter(|keep| when.iter().any(|when| keep["when"] == **when))
            .map(|keep| numbers.iter().find(|(name, _)| keep["capability"] == *name).expect("a known one").1)
            .fold(0, |held, number| held | 1 << number);
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let want = ["CapPrm", "CapEff", "CapBnd"].map(|set| format!("{set}:\t{held:016x}\n")).concat();
        assert_eq!(said, want, "{options:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}
