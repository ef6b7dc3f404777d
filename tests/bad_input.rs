//! What is wrong is said in one line that names the thing and the next step; usage ends with 2, failure with 1; what was
//! recorded so far is kept and readable.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flashscope_targets::board::{self, BootFailureKind, ImageBuilder, Run};
use flashscope_targets::{Error, NoProgress};
use flashscope_tests::{
    PrivateCache, Running, TempDir, behind, cannot_record, flashscope, is_root, json, output, skip, stdout, top,
};
use flashscope_trace::{Session, Trace};

/// A command that has to fail in a certain way.
struct Case {
    what: &'static str,
    command: Command,
    status: i32,
    says: Vec<String>,
}

fn case(what: &'static str, command: &mut Command, status: i32, says: &[&str]) -> Case {
    let command = std::mem::replace(command, Command::new("false"));
    Case { what, command, status, says: says.iter().map(|&word| word.to_owned()).collect() }
}

impl Case {
    /// Runs it; the error's line.
    fn check(mut self) -> String {
        let output = output(self.command.stdin(Stdio::null()));
        let stderr = String::from_utf8_lossy(&output.stderr);
        let error = one_error(self.what, &stderr);
        assert_eq!(output.status.code(), Some(self.status), "{}:\n{stderr}", self.what);
        for words in &self.says {
            assert!(error.contains(words.as_str()), "{}: {words:?} is not in: {error}", self.what);
        }
        println!("{}: {error} [{}]", self.what, self.status);
        error
    }
}

/// The one line that is neither progress nor a board's console.
fn one_error(what: &str, stderr: &str) -> String {
    let lines: Vec<&str> =
        stderr.lines().filter(|line| !line.starts_with('[') && !line.starts_with("    | ")).collect();
    assert_eq!(lines.len(), 1, "{what}: not one line:\n{stderr}");
    assert!(lines[0].starts_with("flashscope: "), "{what}: {stderr}");
    lines[0].to_owned()
}

fn command(cache: &PrivateCache, argv: &[&str]) -> Command {
    let mut command = flashscope();
    command.env("FLASHSCOPE_CACHE", cache.path()).args(argv);
    command
}

/// The command in a mount namespace of its own, after a script.
fn in_namespace(script: &str, command: &Command) -> Command {
    behind(&["unshare", "-m", "/bin/sh", "-ec", &format!("{script}\nexec \"$@\""), "sh"], command)
}

fn events(path: &Path) -> u64 {
    let trace = Trace::open(path).unwrap_or_else(|error| panic!("what was recorded is not readable: {error}"));
    let mut events = 0;
    trace.for_each_record(&mut |_| events += 1).unwrap_or_else(|error| panic!("{error}"));
    events
}

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("a temporary file");
    path.display().to_string()
}

/// A copy of a shipped file with something else in it.
fn altered(file: &str, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(flashscope_tests::top().join(file)).expect(file);
    assert!(text.contains(from), "{file} has no {from:?}");
    text.replacen(from, to, 1)
}

#[test]
fn names_and_files_that_are_wrong() {
    let cache = PrivateCache::new("bad-names");
    let dir = TempDir::new("bad-names-files");
    let at = |name: &str| dir.path().join(name);
    let run = |argv: &[&str]| command(&cache, argv);
    let trace = at("t.dat").display().to_string();
    let short = write(&at("short"), "1000 bytes are not here");
    let study = |name: &str, from: &str, to: &str| write(&at(name), &altered("studies/readahead-reads.toml", from, to));
    let no_board_at_once = output(&mut run(&["study", "--jobs", "0", "sqlite"]));
    assert_eq!(no_board_at_once.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&no_board_at_once.stderr).contains("invalid value '0' for '--jobs <N>'"));
    let syntax = study("syntax.toml", "title = ", "title : ");
    let unknown_key = study("unknown.toml", "title = ", "titel = ");
    let binary = at("binary.toml");
    std::fs::write(&binary, b"\x17\x08\x44tracing6\0\xff\xfe").expect("written");
    let binary = binary.display().to_string();
    let unknown_board = study("board.toml", "\"armv7\"", "\"armv9\"");
    let broken_board = write(&at("my-board.toml"), &altered("boards/armv7.toml", "[qemu]", "[qemu"));
    let without_qemu = write(
        &at("no-qemu.toml"),
        &altered("boards/armv7.toml", "binary = \"qemu-system-arm\"", "binary = \"qemu-nosuch\""),
    );
    let not_a_trace = write(&at("letter.txt"), "Dear reader, this is no trace.");

    let boards = std::fs::read_dir(top().join("boards")).expect("boards").map(|entry| entry.expect("an entry").path());
    let mut boards: Vec<_> = boards.map(|path| path.file_stem().expect("a name").display().to_string()).collect();
    boards.sort();
    let boards = boards.join(", ");

    for case in [
        case(
            "unknown target",
            &mut run(&["record", "--on", "ftp://board", "-o", &trace]),
            2,
            &["ftp://board", "ssh://"],
        ),
        case("unknown board", &mut run(&["board", "boot", "armv9"]), 2, &["armv9", &boards]),
        case("unknown board as a target", &mut run(&["doctor", "--on", "board:armv9"]), 2, &["armv9", &boards]),
        case("unknown board in a study", &mut run(&["study", &unknown_board]), 2, &["armv9", &boards]),
        case("unknown kernel", &mut run(&["board", "boot", "--kernel", "2.4"]), 2, &["2.4", "5.10, 6.1, 6.12, newest"]),
        case(
            "a kernel directory without a kernel",
            &mut run(&["board", "boot", "--kernel", "studies/"]),
            2,
            &["studies/", "vmlinuz"],
        ),
        case("broken TOML", &mut run(&["study", &syntax]), 2, &["syntax.toml", "line ", "column "]),
        case(
            "a key that a study does not have",
            &mut run(&["study", &unknown_key]),
            2,
            &["titel", "line ", "column 1"],
        ),
        case("a trace as a study", &mut run(&["study", &binary]), 2, &["binary.toml", "it is no text"]),
        case("no study", &mut run(&["study", "nosuch.toml"]), 2, &["nosuch.toml", "studies/*.toml"]),
        case("broken TOML of a board", &mut run(&["board", "boot", &broken_board]), 2, &["my-board.toml:", ":6: "]),
        case(
            "QEMU missing",
            &mut run(&["board", "boot", &without_qemu]),
            1,
            &["qemu-nosuch", "install", "qemu-system-arm"],
        ),
        case("no trace there", &mut run(&["report", "nosuch.dat"]), 1, &["nosuch.dat", "No such file"]),
        case("not a trace", &mut run(&["report", &not_a_trace]), 1, &["letter.txt", "trace.dat"]),
        case(
            "a file smaller than the reads",
            &mut run(&["bench", "read", "--file", &short, "--count", "8"]),
            1,
            &["short", "23 bytes", "32768", "fewer or smaller requests"],
        ),
        case("no file", &mut run(&["bench", "read", "--file", "/nosuch"]), 1, &["/nosuch", "--create"]),
        case(
            "a file larger than the chip",
            &mut run(&["bench", "read", "--on", "board:armv7", "--filesystem", "jffs2", "--file-size", "300M"]),
            1,
            &["2048", "smaller files"],
        ),
        case(
            "reads beyond a board's file",
            &mut run(&[
                "bench", "read", "--on", "board:armv7", "--filesystem", "jffs2", "--file-size", "16K", "--count", "8",
            ]),
            2,
            &["4096", "16384"],
        ),
        case(
            "a board without a file system",
            &mut run(&["bench", "read", "--on", "board:armv7"]),
            2,
            &["--filesystem"],
        ),
        case(
            "a kernel for a machine that has one",
            &mut run(&["doctor", "--kernel", "6.1"]),
            2,
            &["--kernel", "local"],
        ),
        case(
            "an endless recording on a board",
            &mut run(&["record", "--on", "board:armv7", "-o", &trace]),
            2,
            &["needs an end", "--"],
        ),
        case(
            "output that cannot be written",
            &mut run(&["record", "-o", "/nosuch/t.dat", "--", "true"]),
            125,
            &["/nosuch/t.dat", "--output"],
        ),
    ] {
        case.check();
    }
    assert!(!Path::new(&trace).exists(), "nothing was recorded, so there is no trace");
    assert_eq!(cache.scratch(), Vec::<PathBuf>::new());
}

/// A recording of blktrace's: two processes `player`, one `spinner` (crates/analysis/tests/data/btt, origin there).
const RECORDED: &str = "crates/analysis/tests/data/btt/names.blktrace.0";

/// It again, of records that are kept and with other names of the same length.
fn blktrace_with(to: &Path, keep: impl Fn(u32) -> bool, name: &[u8; 6]) -> String {
    let bytes = std::fs::read(top().join(RECORDED)).expect("the recording");
    let (mut at, mut out) = (0, Vec::new());
    while at < bytes.len() {
        let end = at + 48 + usize::from(u16::from_le_bytes([bytes[at + 46], bytes[at + 47]]));
        let action = u32::from_le_bytes([bytes[at + 28], bytes[at + 29], bytes[at + 30], bytes[at + 31]]);
        if keep(action) {
            let mut record = bytes[at..end].to_vec();
            if let Some(place) = record.windows(6).position(|window| window == b"player") {
                record[place..place + 6].copy_from_slice(name);
            }
            out.extend(record);
        }
        at = end;
    }
    std::fs::write(to, out).expect("a writable directory");
    to.display().to_string()
}

/// Block I/O of which a trace lacks something, or says something that a terminal or a browser would obey.
#[test]
fn traces_of_block_io_that_lack_something() {
    let cache = PrivateCache::new("bad-block");
    let dir = TempDir::new("bad-block-files");
    let recorded = top().join(RECORDED).display().to_string();
    for (what, name) in [("a process that never appears", "nosuch"), ("and one with an escape", "no\u{1b}[2Jsuch")] {
        case(
            what,
            &mut command(&cache, &["report", &recorded, "--process", name]),
            1,
            &["--process no", "no bio of a task with that name", "player (101)", "player (102)"],
        )
        .check();
    }

    // BLK_TA_QUEUE is 1.
    let unqueued = blktrace_with(&dir.path().join("unqueued.blktrace.0"), |action| action & 0xffff != 1, b"player");
    let text = stdout(&mut command(&cache, &["report", &unqueued]));
    assert!(text.contains("50 requests issued, 50 completed"), "{text}");
    let text: Vec<&str> = text.split_whitespace().collect();
    let text = text.join(" ");
    for says in
        ["no bio being queued (block_bio_queue, blktrace's Q)", "times in the device (D2C)", "Record queueing too"]
    {
        assert!(text.contains(says), "no {says}: {text}");
    }

    let named = blktrace_with(&dir.path().join("named.blktrace.0"), |_| true, b"<b>\x1b[7");
    let page = dir.path().join("named.html");
    let shown = stdout(&mut command(&cache, &["report", &named, "--html", &page.display().to_string()]));
    assert!(shown.contains("<b>") && !shown.contains('\u{1b}'), "{shown}");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains("&lt;b&gt;"), "the name is on the page");
    // The page's own bold text is not empty; the name would open one behind it.
    assert!(!page.contains("<b>\u{1b}") && !page.contains("<b>\u{241b}") && !page.contains('\u{1b}'));
    let json = json(&mut command(&cache, &["report", &named, "--json"]));
    let groups = json["block"]["groups"].as_array().expect("groups");
    assert!(groups.iter().any(|g| g["name"].as_str().is_some_and(|name| name.starts_with("<b>\u{1b}[7 ("))));
}

#[test]
fn kernels_without_what_is_needed() {
    let cache = PrivateCache::new("bad-kernel");
    let dir = TempDir::new("bad-kernel-tree");
    let kernel = board::load("armv7").and_then(|board| board.fetch("6.1", &NoProgress)).expect("a kernel");
    let modules = dir.path().join("lib/modules").join(&kernel.release);
    std::fs::create_dir_all(modules.parent().expect("a parent")).expect("a directory");
    std::fs::copy(&kernel.vmlinuz, dir.path().join("vmlinuz")).expect("a kernel image");
    let copied = Command::new("cp").arg("-r").arg(&kernel.modules_root).arg(&modules).status().expect("cp");
    assert!(copied.success());
    let own = dir.path().display().to_string();
    let without = |module: &str| {
        let found =
            Command::new("find").arg(&modules).args(["-name", module, "-print", "-delete"]).output().expect("find");
        assert!(!found.stdout.is_empty(), "this kernel has no {module} at all");
    };
    let bench = ["bench", "read", "--on", "board:armv7", "--filesystem", "jffs2", "--kernel", &own];
    without("jffs2.ko*");
    case("kernel without JFFS2", &mut command(&cache, &bench), 1, &["jffs2", "CONFIG_JFFS2_FS"]).check();
    without("nandsim.ko*");
    case(
        "kernel without nandsim",
        &mut command(&cache, &["board", "boot", "--kernel", &own]),
        1,
        &["nandsim", "CONFIG_MTD_NAND_NANDSIM"],
    )
    .check();
}

/// What the host's tracefs can be made to miss.
#[test]
fn hosts_that_cannot_record() {
    if !is_root() {
        return skip("needs root, to take tracefs away in a mount namespace");
    }
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    if !Path::new("/sys/kernel/tracing/instances").exists() {
        return skip("needs tracefs: mount -t tracefs nodev /sys/kernel/tracing");
    }
    let cache = PrivateCache::new("bad-host");
    let dir = TempDir::new("bad-host-files");
    let trace = dir.path().join("t.dat").display().to_string();
    let record = |events: &str| command(&cache, &["record", "--events", events, "-o", &trace, "--", "true"]);

    // An empty file system over each place: there is no tracefs. The agent mounts one for itself, where it may.
    let masked =
        "umount -a -t tracefs; for d in /sys/kernel/tracing /sys/kernel/debug; do mount -t tmpfs none $d; done";
    stdout(&mut in_namespace(masked, &record("block")));
    std::fs::remove_file(&trace).expect("a recording");
    let without = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", "--"];
    let unmountable = behind(&without, &record("block"));
    case("no tracefs", &mut in_namespace(masked, &unmountable), 125, &["tracefs", "mount -t tracefs", "CAP_SYS_ADMIN"])
        .check();
    let without_probes =
        "f=/sys/kernel/tracing/kprobe_events; [ ! -e $f ] || { mount --bind $f $f; mount -o remount,ro,bind $f; }";
    case(
        "no kprobe events",
        &mut in_namespace(without_probes, &record("flash")),
        125,
        &["kprobe events", "CONFIG_KPROBE_EVENTS", "--events"],
    )
    .check();

    let theirs = TempDir::new("bad-host-nobody");
    std::fs::set_permissions(theirs.path(), std::fs::Permissions::from_mode(0o777)).expect("permissions");
    let theirs_at = |name: &str| theirs.path().join(name).display().to_string();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    // A copy that others may run, wherever the tree lies.
    let program = theirs.path().join("flashscope");
    std::fs::copy(flashscope().get_program(), &program).expect("a copy");
    let agents = theirs.path().join("agents/x86_64");
    std::fs::create_dir_all(&agents).expect("a directory");
    let agent = flashscope_targets::host_agent().expect("the agent: make agents");
    std::fs::copy(agent, agents.join("flashscope-agent")).expect("a copy");
    let as_nobody = |cache: &str, output: &str| {
        let mut command = Command::new(&program);
        command.args(["record", "--events", "block", "-o", output, "--", "true"]);
        command.env("FLASHSCOPE_CACHE", cache).env("FLASHSCOPE_AGENTS", theirs_at("agents"));
        let mut command = behind(&nobody, &command);
        command.current_dir("/");
        command
    };
    case(
        "no permission",
        &mut as_nobody(&theirs_at("cache"), &theirs_at("t.dat")),
        125,
        &["permission denied", "run as root"],
    )
    .check();
    case(
        "a cache of somebody else",
        &mut as_nobody("/root/cache", &theirs_at("t.dat")),
        125,
        &["/root/cache", "FLASHSCOPE_CACHE"],
    )
    .check();
    let unwritable = dir.path().join("theirs.dat").display().to_string();
    case(
        "a directory of somebody else",
        &mut as_nobody(&theirs_at("cache"), &unwritable),
        125,
        &["theirs.dat", "--output"],
    )
    .check();

    let unknown = record("nosuch:event");
    case("an event that the kernel does not have", &mut { unknown }, 125, &["nosuch:event", "available_events"])
        .check();
    case("a group that there is not", &mut record("nosuch"), 125, &["nosuch", "flash, block"]).check();
    assert!(!Path::new(&trace).exists() && !Path::new(&theirs_at("t.dat")).exists(), "nothing was recorded");
}

#[test]
fn a_full_disk_under_the_trace() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    if !Path::new("/sys/kernel/tracing/instances").exists() {
        return skip("needs tracefs: mount -t tracefs nodev /sys/kernel/tracing");
    }
    let cache = PrivateCache::new("bad-disk");
    let dir = TempDir::new("bad-disk-files");
    let small = dir.path().join("small");
    std::fs::create_dir(&small).expect("a directory");
    let kept = dir.path().join("kept");
    std::fs::create_dir(&kept).expect("a directory");
    // A shell with a name of its own: what else runs on this host must not decide how much there is.
    let shell = dir.path().join("fills-a-disk");
    std::os::unix::fs::symlink("/bin/sh", &shell).expect("a link");
    let busy = "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done";
    let record = |at: &Path| {
        let output = at.join("t.dat").display().to_string();
        let events = "task:task_newtask,task:task_rename,sched:sched_process_fork,sched:sched_process_exec,sched:sched_process_exit";
        let shell = shell.display().to_string();
        command(
            &cache,
            &["record", "--comm", "fills-a-disk", "--events", events, "-o", &output, "--", &shell, "-c", busy],
        )
    };
    // What it takes where there is room.
    flashscope_tests::stdout(&mut record(dir.path()));
    let whole = std::fs::metadata(dir.path().join("t.dat")).expect("a trace").len() / 1024;
    // Room for a part of the stream; room for the stream, and not for the trace.dat that is made of it: the stream is whole, and a
    // trace as well.
    let kinds = [("full disk under the stream", whole / 4, 125), ("full disk under the trace.dat", whole * 6 / 5, 0)];
    for (what, kib, status) in kinds {
        // The mount goes with the namespace: what is on it is copied out by the same shell.
        let script = format!(
            "mount -t tmpfs -o size={kib}k none {0}; status=0; \"$@\" || status=$?; cp -a {0}/. {1}; exit $status",
            small.display(),
            kept.display()
        );
        let mut command = behind(&["unshare", "-m", "/bin/sh", "-c", &script, "sh"], &record(&small));
        let ran = output(&mut command);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        let files: Vec<PathBuf> = std::fs::read_dir(&kept).expect("a directory").flatten().map(|e| e.path()).collect();
        println!("{what} ({kib} of {whole} KiB): {stderr} [{:?}]", ran.status.code());
        assert_eq!(ran.status.code(), Some(status), "{what}: {stderr}");
        assert_eq!(files.len(), 1, "{what}: {files:?}: {stderr}");
        let name = files[0].file_name().expect("a name").to_string_lossy().into_owned();
        let kept_as = small.join(&name).display().to_string();
        if status == 0 {
            assert!(stderr.contains(&format!("{kept_as}: a trace.dat needs")), "{what}: {stderr}");
            assert!(stderr.contains("--to trace.dat"), "{what}: {stderr}");
        } else {
            // Before it a line may say that the stream is kept as it is.
            let error = stderr.lines().rfind(|line| line.starts_with("flashscope: ")).unwrap_or_default();
            assert!(error.to_lowercase().contains("no space left"), "{what}: {error}");
            assert!(error.ends_with(&kept_as), "{what}: the error leads to {name}: {error}");
        }
        assert!(events(&files[0]) > 0, "{what}: nothing readable in {name}");
        std::fs::remove_file(&files[0]).expect("a file");
    }
}

/// A stream as the agent of this tree writes it, from this host.
fn some_stream(dir: &Path) -> Vec<u8> {
    let path = dir.join("some.stream");
    let agent = flashscope_targets::host_agent().expect("the agent: make agents");
    let recorded = output(
        Command::new(agent).args(["record", "--events", "task:task_newtask", "-o"]).arg(&path).args(["--", "true"]),
    );
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    std::fs::read(path).expect("a stream")
}

#[test]
fn an_agent_of_another_version() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let cache = PrivateCache::new("bad-version");
    let dir = TempDir::new("bad-version-files");
    let mut stream = some_stream(dir.path());
    // The first frame is FS_HELLO: 20 bytes of header with its length at 12 and its CRC at 16; the payload begins with
    // the version (agent/protocol.h).
    assert_eq!(stream[4..6], [1, 0], "FS_HELLO comes first");
    let length = u32::from_le_bytes(stream[12..16].try_into().expect("4 bytes")) as usize;
    stream[20..22].copy_from_slice(&7u16.to_le_bytes());
    let crc = crc32fast::hash(&stream[20..20 + length]);
    stream[16..20].copy_from_slice(&crc.to_le_bytes());
    let other = dir.path().join("other.stream");
    std::fs::write(&other, &stream).expect("a stream");
    let says = ["protocol 7", "1", "agent"];
    let error = Trace::open(&other).map(drop).expect_err("another protocol").to_string();
    assert!(says.iter().all(|word| error.contains(word)) && error.lines().count() == 1, "{error}");
    let other_path = other.display().to_string();
    case("a stream of another version", &mut command(&cache, &["report", &other_path]), 1, &says).check();

    // The same from an agent that is found where ours should be.
    let agents = dir.path().join("agents/x86_64");
    std::fs::create_dir_all(&agents).expect("a directory");
    let agent = agents.join("flashscope-agent");
    write(&agent, &format!("#!/bin/sh\n[ \"$1\" = record ] || exit 0\nexec cat {other_path}\n"));
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    let trace = dir.path().join("t.dat");
    let mut record =
        command(&cache, &["record", "--events", "block", "-o", &trace.display().to_string(), "--", "true"]);
    record.env("FLASHSCOPE_AGENTS", dir.path().join("agents"));
    // It does not say which build it is; that line comes first.
    let ran = output(record.stdin(Stdio::null()));
    let stderr = String::from_utf8_lossy(&ran.stderr);
    let (build, error): (Vec<&str>, Vec<&str>) =
        stderr.lines().partition(|line| line.contains("of another build (unknown)"));
    assert_eq!((build.len(), ran.status.code()), (1, Some(125)), "{stderr}");
    let error = one_error("an agent of another version", &error.join("\n"));
    assert!(says.iter().all(|word| error.contains(word)), "{error}");
    let kept = dir.path().join("t.dat.stream");
    assert!(error.contains(&kept.display().to_string()), "{error}");
    assert_eq!(std::fs::read(kept).expect("what it sent is kept"), stream);
}

/// A private sshd on loopback, and an `ssh` in a directory of its own that knows the key to it.
pub(crate) struct Server {
    child: Running,
    port: u16,
    dir: TempDir,
}

impl Server {
    pub(crate) fn start() -> Option<Server> {
        Server::start_after(None)
    }

    /// The same in a mount namespace of its own, after a script; `$1` of it is the server's directory.
    pub(crate) fn start_after(script: Option<&str>) -> Option<Server> {
        for program in ["/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen"] {
            if !Path::new(program).exists() {
                skip(&format!("{program} is missing; install openssh-server and openssh-client"));
                return None;
            }
        }
        // Where sshd as root separates its privileges.
        std::fs::create_dir_all("/run/sshd").ok();
        // Several tests have one, each a directory of its own.
        static SERVERS: AtomicUsize = AtomicUsize::new(0);
        let dir = TempDir::new(&format!("sshd-{}", SERVERS.fetch_add(1, Ordering::Relaxed)));
        let at = |name: &str| dir.path().join(name).display().to_string();
        for key in ["host", "user", "stranger"] {
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]).status();
            assert!(made.expect("ssh-keygen").success());
        }
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n",
            at("host"),
            at("user.pub")
        );
        let config = write(&dir.path().join("sshd_config"), &config);
        let host_key = std::fs::read_to_string(at("host.pub")).expect("a key");
        write(&dir.path().join("known"), &format!("[127.0.0.1]:{port} {host_key}"));
        for key in ["user", "stranger"] {
            let bin = dir.path().join(format!("bin-{key}"));
            std::fs::create_dir(&bin).expect("a directory");
            let ssh = bin.join("ssh");
            let options = format!(
                "-F none -o IdentityFile={} -o IdentitiesOnly=yes -o IdentityAgent=none -o UserKnownHostsFile={} \
                 -o GlobalKnownHostsFile=none -o StrictHostKeyChecking=yes",
                at(key),
                at("known")
            );
            write(&ssh, &format!("#!/bin/sh\nexec /usr/bin/ssh {options} \"$@\"\n"));
            std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        }
        let mut sshd = Command::new("/usr/sbin/sshd");
        sshd.args(["-D", "-e", "-f", &config]);
        if let Some(script) = script {
            let script = format!("set -e\n{script}\nshift\nexec \"$@\"");
            let here = dir.path().display().to_string();
            sshd = behind(&["unshare", "-m", "/bin/sh", "-c", &script, "sh", &here], &sshd);
        }
        let child =
            sshd.stdin(Stdio::null()).stderr(std::fs::File::create(at("log")).expect("a log")).spawn().expect("sshd");
        let server = Server { child: Running(child), port, dir };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "sshd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    /// Runs a shell's script in the server's mount namespace.
    pub(crate) fn inside(&self, script: &str) -> String {
        let pid = self.child.0.id().to_string();
        stdout(Command::new("nsenter").args(["-t", &pid, "-m", "/bin/sh", "-ec", script]))
    }

    pub(crate) fn spec(&self) -> String {
        format!("ssh://127.0.0.1:{}", self.port)
    }

    pub(crate) fn command(&self, cache: &PrivateCache, key: &str, argv: &[&str]) -> Command {
        let mut command = command(cache, argv);
        let bin = self.dir.path().join(format!("bin-{key}"));
        command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default()));
        command
    }
}

#[test]
fn ssh_refused_and_cut() {
    let Some(server) = Server::start() else { return };
    let cache = PrivateCache::new("bad-ssh-cache");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let closed = format!("ssh://127.0.0.1:{free}");
    let doctor = |spec: &str, key: &str| server.command(&cache, key, &["doctor", "--on", spec]);
    case("ssh refused", &mut doctor(&closed, "user"), 1, &[&closed, "refused", "sshd"]).check();
    case("ssh without a key", &mut doctor(&server.spec(), "stranger"), 1, &["Permission denied", "ssh-copy-id"])
        .check();
    case("not a host", &mut doctor("ssh://a b", "user"), 2, &["a b", "ssh://"]).check();

    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let trace = server.dir.path().join("t.dat");
    let argv = ["record", "--on", &server.spec(), "--events", "task:task_newtask", "-o", &trace.display().to_string()];
    let child = server
        .command(&cache, "user", &argv)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("flashscope starts");
    let began = Instant::now();
    let stream = loop {
        assert!(began.elapsed() < Duration::from_secs(20), "nothing comes");
        Command::new("/bin/true").status().expect("/bin/true");
        let found = std::fs::read_dir(server.dir.path()).expect("a directory").flatten().map(|entry| entry.path());
        let stream = found.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "stream"));
        if let Some(stream) = stream
            && Trace::open(&stream).is_ok_and(|trace| {
                let mut events = 0;
                trace.for_each_record(&mut |_| events += 1).is_ok() && events > 0
            })
        {
            break stream;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let came = events(&stream);
    // Every connection of this server: its children.
    let server_pid = server.child.0.id().to_string();
    assert!(Command::new("pkill").args(["-KILL", "-P", &server_pid]).status().expect("pkill").success());
    let ended = child.wait_with_output().expect("an end");
    let error = one_error("ssh cut in the middle", &String::from_utf8_lossy(&ended.stderr));
    println!("ssh cut in the middle: {error} [{:?}]", ended.status.code());
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.contains("cut after") && error.contains(&trace.display().to_string()), "{error}");
    assert!(events(&trace) >= came, "{came} events had come, {} are kept", events(&trace));
}

/// A boot with a plan of the test's own that may fail; no NAND unless it is requested.
fn boot(
    nand: bool,
    modules: &[&str],
    lines: &[&str],
    change: impl FnOnce(&mut Run),
) -> Result<board::BootOutcome, Error> {
    let board = board::load("armv7").expect("the board");
    let kernel = board.fetch("6.1", &NoProgress).expect("the kernel");
    let mut image = ImageBuilder::new(&board).expect("an agent for the board: make agents");
    let mut plan = image.add_port_modules(&kernel).expect("the port's modules");
    if nand {
        plan.extend(image.add_nand(&kernel, &[64]).expect("the NAND's modules"));
    }
    for path in image.add_module_closure(&kernel, modules).expect("modules") {
        plan.push(format!("module {path}"));
    }
    image.add_file("/garbage", 0o644, vec![0x5a; 64 * 1024]);
    plan.extend(lines.iter().map(|&line| line.to_owned()));
    image.set_plan(&plan);
    let image = image.build().expect("a boot image");
    let mut run = Run { timeout: Duration::from_secs(300), ..Run::new(&board, &kernel, &image) };
    change(&mut run);
    board::boot(&run, &NoProgress)
}

/// Steps of one boot that fail, each with its status and its words.
#[test]
fn what_is_wrong_on_a_board() {
    let outcome = boot(
        false,
        &[],
        &[
            "-run no-nand /flashscope/agent record --events flash -o /tmp/t",
            "-run small-file /flashscope/agent bench read --file /garbage --count 100 --request 4096",
            "-run no-device /flashscope/agent bench raw --mtd 0 --count 1 --length 2048",
            "mkdir /small",
            "mount none /small tmpfs size=96k",
            "-run full-disk /flashscope/agent record --events sched:sched_switch -o /small/t -- /flashscope/agent bench read --file /garbage --count 4000 --request 16 --interarrival-us 100",
            "get /small/t",
        ],
        |_| {},
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let session = Session::open(&outcome.port_file()).expect("a port file");
    for (name, status, says) in [
        ("no-nand", 1, &["NAND", "load its driver", "--events"] as &[&str]),
        ("small-file", 1, &["/garbage", "65536", "409600", "fewer or smaller"]),
        ("no-device", 1, &["mtd0"]),
        ("full-disk", 125, &["/small/t", "No space left", "readable", "free space"]),
    ] {
        let step = session.step(name).unwrap_or_else(|| panic!("no step {name}"));
        let stderr = String::from_utf8_lossy(&step.stderr);
        let lines: Vec<&str> = stderr.lines().collect();
        println!("{name}: {stderr}");
        assert_eq!(step.status, Some(status), "{name}: {stderr}");
        assert_eq!(lines.len(), 1, "{name}: {stderr}");
        assert!(says.iter().all(|words| lines[0].contains(words)), "{name}: {stderr}");
    }
    let file = session.steps.iter().flat_map(|step| &step.files).next().expect("the trace so far");
    let dir = TempDir::new("bad-board");
    let path = dir.path().join("t");
    std::fs::write(&path, session.read_file(file, 1 << 20).expect("a file")).expect("a file");
    assert!(events(&path) > 0, "what was recorded on the full disk is readable");
}

/// Panic, time-out, failure of a step: different errors, each with the console's last lines.
#[test]
fn boots_that_fail() {
    let failed = |what: &str, outcome: Result<board::BootOutcome, Error>, says: &[&str]| {
        let error = outcome.map(drop).expect_err(what);
        let text = error.to_string();
        println!("{what}: {text}");
        assert!(says.iter().all(|words| text.contains(words)), "{what}: {text}");
        assert_eq!(text.lines().count(), 1, "{what}: {text}");
        let Error::Boot(failure) = error else { panic!("{what}: {text}") };
        failure
    };
    let mount = boot(
        true,
        &["mtdblock", "squashfs"],
        &["nand-write 0 /garbage", "device-wait /dev/mtdblock0 5000", "mount /dev/mtdblock0 /mnt squashfs ro"],
        |_| {},
    );
    let failure = failed(
        "a file system that does not mount",
        mount,
        &["mount /dev/mtdblock0 /mnt squashfs ro", "Invalid argument", "correct that step"],
    );
    let of_step = |step: usize, line: &str| step >= 3 && line == "mount /dev/mtdblock0 /mnt squashfs ro";
    assert!(
        matches!(&failure.kind, BootFailureKind::PlanFailed { step, line, .. } if of_step(*step as usize, line)),
        "{:?}",
        failure.kind
    );
    assert!(!failure.console_tail.is_empty(), "the kernel's own words");

    let late = boot(false, &[], &["sleep 100000000"], |run| run.timeout = Duration::from_secs(1));
    let failure = failed("time-out", late, &["no end after 1 s", "time limit"]);
    assert_eq!(failure.kind, BootFailureKind::Timeout(Duration::from_secs(1)));

    let panicked = boot(false, &[], &["write /proc/sysrq-trigger c"], |_| {});
    let failure = failed("kernel panic", panicked, &["kernel panic", "sysrq triggered crash", "another kernel line"]);
    assert!(matches!(failure.kind, BootFailureKind::Panic(_)), "{:?}", failure.kind);
    assert!(failure.console_tail.iter().any(|line| line.contains("Kernel panic")), "{:?}", failure.console_tail);

    // The same as the command says it.
    let cache = PrivateCache::new("bad-boot");
    let crash =
        ["board", "boot", "--packages", "busybox-static", "--", "busybox", "sh", "-c", "echo c >/proc/sysrq-trigger"];
    case("kernel panic of a board", &mut command(&cache, &crash), 1, &["kernel panic", "sysrq triggered crash"])
        .check();
}

/// Boards with too little memory: it is told before anything is taken. Of 74 MiB 29 are available, but 15 of them are CMA's, which the
/// kernel's rings and files cannot have.
#[test]
fn a_board_without_memory_is_told_so_and_lives() {
    let cache = PrivateCache::new("bad-memory");
    let dir = TempDir::new("bad-memory-files");
    let trace = dir.path().join("t.dat").display().to_string();
    let board = |mib: u32| {
        let text = format!("name = \"small\"\ninherits = \"armv7\"\ndescription = \"small\"\nmemory_mib = {mib}\n");
        format!("board:{}", write(&dir.path().join(format!("small{mib}.toml")), &text))
    };
    for mib in [74, 80] {
        let on = board(mib);
        let argv = ["record", "--on", &on, "-o", &trace, "--", "/flashscope/agent", "--version"];
        let said = case("little memory", &mut command(&cache, &argv), 125, &["are available to the kernel"]).check();
        assert!(!said.contains("panic") && said.contains("end something first") && !said.contains("is kept"), "{said}");
        let left = std::fs::read_dir(dir.path()).expect("a directory").flatten().map(|entry| entry.file_name());
        assert!(left.into_iter().all(|name| name.to_string_lossy().ends_with(".toml")), "a file is left");
    }
    let on = board(74);
    let says = ["are available to the kernel, and a trial of probes takes"];
    case("little memory", &mut command(&cache, &["doctor", "-q", "--on", &on]), 1, &says).check();
}

/// A command that fails on a board: its events are kept.
#[test]
fn a_recording_whose_command_fails() {
    let cache = PrivateCache::new("bad-command");
    let dir = TempDir::new("bad-command-files");
    let trace = dir.path().join("t.dat");
    let argv = [
        "record",
        "--on",
        "board:armv7",
        "-o",
        &trace.display().to_string(),
        "--",
        "/flashscope/agent",
        "bench",
        "read",
        "--file",
        "/nosuch",
        "--count",
        "1",
        "--request",
        "1",
    ];
    let output = output(command(&cache, &argv).stdin(Stdio::null()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    // The command says itself what is wrong, and its status is passed on: flashscope adds nothing to it.
    let says: Vec<&str> = stderr.lines().filter(|line| !line.starts_with('[')).collect();
    assert!(says.len() == 1 && says[0].contains("/nosuch") && says[0].contains("--create"), "{stderr}");
    Trace::open(&trace).expect("what was recorded is kept and readable");
}

/// A typo in each part of a trigger shows the whole grammar; in a filter, what is accepted, and nothing is written.
#[test]
fn typos_of_triggers_and_filters() {
    let cache = PrivateCache::new("typos");
    let dir = TempDir::new("typos-out");
    let path = dir.path().join("t.dat").display().to_string();
    let record = |option: &str, value: &str| command(&cache, &["record", option, value, "-d", "1", "-o", &path]);
    // Name, sign, number, unit, range, and what is behind it.
    let triggers = [
        "",
        " ",
        "d2c",
        "d3c>5ms",
        "D2C>5ms",
        "write>1ms",
        "errors",
        "psi>20%",
        "d2c<5ms",
        "d2c>=5ms",
        "d2c>>5ms",
        "d2c >5ms",
        "d2c>",
        "d2c>-5ms",
        "d2c>0.5ms",
        "d2c>99999999999999999999ms",
        "fsync>0ms",
        "fsync>1",
        "d2c>5parsec",
        "d2c>5MS",
        "d2c>1h",
        "psi-io>20",
        "psi-io>0%",
        "psi-io>101%",
        "psi-io",
        "d2c>5ms x",
        "d2c>5ms,error",
        "error>1",
        "run",
        "run ",
    ];
    let grammar =
        ["is not understood", "'d2c>TIME'", "'fsync>TIME'", "'error'", "'psi-io>N%'", "'run CMD'", "us, ms or s"];
    for trigger in triggers {
        let error = case("a trigger with a typo", &mut record("--trigger", trigger), 2, &grammar).check();
        assert!(error.contains(&format!("--trigger {trigger}: ")), "{error}");
    }
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    for (option, value, status, says) in [
        ("--pid", "0", 2, "give a number from 1 to 4194304"),
        ("--comm", "", 2, "none empty"),
        ("--device", "", 2, "none empty"),
        ("--device", "nosuch", 1, "no such device; this machine has "),
        ("--device", "/dev/null", 1, "no such device; this machine has "),
        ("--cgroup", "nosuch", 1, "no such cgroup below "),
        ("--cgroup", "../..", 1, "no such cgroup below "),
        ("--events", "block,", 2, "separate names by one comma"),
        ("--events", "", 2, "separate names by one comma"),
    ] {
        case("a filter with a typo", &mut record(option, value), status, &[option, says]).check();
        assert!(
            std::fs::read_dir(dir.path()).expect("a directory").next().is_none(),
            "{option} {value}: a file is left"
        );
    }
}
