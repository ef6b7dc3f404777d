//! Attacks on what acts for the user: replay scripts, name look-ups, second outputs, notes of killed commands, JSON results.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use flashscope_tests::{Place, behind, cannot_record, flashscope, output, said, skip, stdout, text, top};
use flashscope_trace::Trace;

/// Runs it in a mount namespace of its own, behind a shell's preparations; `$dir` of these is the place.
fn unshared(place: &Place, prepare: &str, inner: &Command) -> Output {
    let script = format!("set -e; dir=$1; shift; {prepare}");
    let dir = text(place.dir.path());
    output(behind(&["unshare", "-m", "/bin/sh", "-c", &script, "sh", &dir], inner).stdin(Stdio::null()))
}

/// Status and one line that holds these words.
fn refused(ran: &Output, status: i32, words: &str) {
    assert_eq!(ran.status.code(), Some(status), "{}", said(ran));
    assert!(said(ran).contains(words), "{words:?} is not in: {}", said(ran));
}

fn agent() -> PathBuf {
    let arch = if cfg!(target_arch = "x86_64") { "x86_64" } else { "aarch64" };
    top().join("agent/build").join(arch).join("flashscope-agent")
}

/// Two tasks' writes, as ftrace prints them.
fn block_trace(place: &Place, name: &str, tasks: &[&str]) -> PathBuf {
    let mut trace = String::from("# tracer: nop\n");
    for (i, task) in tasks.iter().enumerate() {
        for k in 0..3 {
            let (sector, at) = (1000 * i + 8 * k, 100.0 + i as f64 + k as f64 / 100.0);
            let tid = 100 + i;
            for (event, begin, end, later) in [
                ("block_bio_queue", "WS", format!("[{task}]"), 0.0),
                ("block_rq_issue", "WS 4096 ()", format!("[{task}]"), 0.0001),
                ("block_rq_complete", "WS ()", "[0]".to_owned(), 0.0003),
            ] {
                trace += &format!(
                    "{task:>16}-{tid:<5} [000] .... {:.6}: {event}: 8,0 {begin} {sector} + 8 {end}\n",
                    at + later
                );
            }
        }
    }
    place.file(name, &trace)
}

/// A script limits its own cgroups. It moves and ends no process that is not its own.
#[test]
fn a_replay_script_says_nothing_about_other_processes() {
    let place = Place::new("attack-cgroup");
    let mut victim = Command::new("sleep").arg("600").spawn().expect("sleep");
    let head = format!("flashscope-replay 2\ncgroup x cgroup.procs={} ", victim.id());
    let dir = text(place.dir.path());
    for settings in ["cgroup.kill=1", "memory.max=0", "cgroup.freeze=1"] {
        let path = text(
            &place.file("x.replay", &format!("{head}{settings}\nfile 4096 a\ntask t cgroup=x\nread 0 0 0 0 4096\n")),
        );
        let ran = output(Command::new(agent()).args(["bench", "replay", "--script", &path, "--dir", &dir]));
        refused(&ran, 2, "x.replay:2: a cgroup's setting of a file that is none of io.*, memory.*, cpu.* and pids.*");
        refused(&place.run(&["bench", "replay", &path, "--dir", &dir]), 2, "none of io.*, memory.*, cpu.* and pids.*");
    }
    assert!(victim.try_wait().expect("a child").is_none(), "a script ended another process");
    victim.kill().expect("a child");
    victim.wait().expect("a child");
}

/// 256 tasks that each write 256 MiB at once want 64 GiB of buffers; zeros want as much of a disk as anything else.
#[test]
fn a_short_replay_script_takes_neither_all_memory_nor_all_of_a_disk() {
    let place = Place::new("attack-replay-size");
    let mut script = String::from("flashscope-replay 2\nfile - a\n");
    (0..256).for_each(|n| script += &format!("task t{n}\n"));
    (0..256).for_each(|n| script += &format!("create {n} {n} 0 write\nwrite {n} {n} 0 0 268435456\n"));
    let path = text(&place.file("memory.replay", &script));
    let dir = text(place.dir.path());
    let agent = |path: &str, more: &[&str]| {
        output(Command::new(agent()).args(["bench", "replay", "--script", path, "--dir", &dir]).args(more))
    };
    refused(&agent(&path, &[]), 1, "need 65536 MiB for parallel reads and writes");
    let path = text(&place.file("disk.replay", "flashscope-replay 2\nfile 70368744177664 a\ntask t\nread 0 0 0 0 1\n"));
    for contents in ["printable", "zero", "compressible"] {
        refused(&agent(&path, &["--contents", contents]), 1, "its files take 70368744177664 bytes and ");
    }
    let left: Vec<_> = std::fs::read_dir(&dir).expect("a directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "only the scripts: {left:?}");
}

/// Mounts a FUSE file system that never answers on its first argument, and runs the rest.
const NEVER: &str = r#"
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("/dev/fuse", os.O_RDWR)
user = os.environ.get("FUSE_USER", "0")
options = f"fd={fd},rootmode=40000,user_id={user},group_id={user},allow_other".encode()
if libc.mount(b"never", sys.argv[1].encode(), b"fuse", 0, options):
    sys.exit("cannot mount FUSE: " + os.strerror(ctypes.get_errno()))
sys.exit(subprocess.run(sys.argv[2:]).returncode)
"#;

/// The search for names enters no other mount: a FUSE file system may never answer, one of automount would mount something,
/// and a bind mount may lead back to where the search came from.
#[test]
fn the_search_for_names_enters_no_mount() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let there = |program: &str| {
        Command::new("sh").args(["-c", &format!("command -v {program} >/dev/null")]).status().is_ok_and(|s| s.success())
    };
    if !Path::new("/dev/fuse").exists() || !there("python3") || !there("mkfs.ext4") {
        return skip("needs /dev/fuse, python3 and mkfs.ext4, to have a file system that never answers");
    }
    let place = Place::new("attack-walk");
    let image = std::fs::File::create(place.at("image")).expect("a file");
    image.set_len(16 << 20).expect("a size");
    let script = text(&place.file("never.py", NEVER));
    let out = text(&place.at("t.dat"));
    // The file is gone at the end: all of its file system is searched for it.
    let work = format!("cat {0}/z/file >{0}/copy; rm {0}/z/file", text(&place.at("fs")));
    let argv = ["record", "--events", "block,cache,syscall", "--paths", "walk", "-o", &out, "--", "sh", "-c", &work];
    let prepare = format!(
        "mkfs.ext4 -q $dir/image; mkdir $dir/fs; mount -o loop $dir/image $dir/fs || exit 99; \
         mkdir $dir/fs/never $dir/fs/again $dir/fs/z; head -c 65536 /dev/zero >$dir/fs/z/file; mount --bind $dir/fs $dir/fs/again; \
         python3 {script} $dir/fs/never timeout -s KILL 120 \"$@\""
    );
    let ran = unshared(&place, &prepare, &place.command(&argv));
    if ran.status.code() == Some(99) || said(&ran).contains("cannot mount FUSE") {
        return skip(&format!("no loop device or FUSE here: {}", said(&ran)));
    }
    assert!(ran.status.success(), "{:?}: {}", ran.status, said(&ran));
    let report = stdout(&mut place.command(&["report", "--json", &out]));
    assert!(report.contains("/fs/copy\""), "a name of the same file system is found");
    assert!(!report.contains("/fs/again/"), "by its own path, not by that of a second mount");
}

/// The kernel lets no signal end a call that a file system in user space has taken and does not answer. So none of another user's is
/// written to; on one's own, the wait is said, and a signal ends it where the kernel lets it.
#[test]
fn an_output_on_a_file_system_that_never_answers() {
    let Some(place) = Place::to_record("attack-fuse-output") else { return };
    let python = Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !Path::new("/dev/fuse").exists() || !python {
        return skip("needs /dev/fuse and python3, to have a file system that never answers");
    }
    let trace = text(&block_trace(&place, "t", &["a", "b"]));
    let script = text(&place.file("never.py", NEVER));
    std::fs::create_dir_all(place.at("fs/m")).expect("a directory");
    std::os::unix::fs::symlink("fs/m", place.at("link")).expect("a link");
    let run = |user: &str, limit: &str, argv: &[&str]| {
        let prepare = format!(
            "export FUSE_USER={user}; python3 {script} $dir/fs/m timeout --foreground -k 20 -s INT {limit} \"$@\"; exit $?; :"
        );
        unshared(&place, &prepare, &place.command(argv))
    };
    for name in ["fs/m/out", "link/out", "fs/m/sub/../out", "fs/m/../x"] {
        let out = text(&place.at(name));
        for argv in [
            &["export", &trace, "--to", "csv", "-o", &out][..],
            &["report", &trace, "--html", &out],
            &["record", "--events", "task:task_newtask", "-o", &out, "--", "true"],
            &["man", &out],
        ] {
            let ran = run("65534", "60", argv);
            if said(&ran).contains("cannot mount FUSE") {
                return skip(&format!("no FUSE here: {}", said(&ran)));
            }
            refused(
                &ran,
                if argv[0] == "record" { 125 } else { 1 },
                "user 65534 has mounted a file system in user space",
            );
            assert_eq!(said(&ran).lines().count(), 1, "{argv:?}: {}", said(&ran));
        }
    }
    let out = text(&place.at("fs/m/out"));
    let ran = run("0", "3", &["export", &trace, "--to", "csv", "-o", &out]);
    refused(&ran, 124, "its file system does not answer: waiting for it");
    let ran = run("0", "3", &["record", "--events", "task:task_newtask", "-o", &out, "--", "true"]);
    refused(&ran, 124, "its file system does not answer: ended by a signal; name another file");

    // The agent by itself ends at the first signal, too, and has no instance to leave.
    let prepare = format!("python3 {script} $dir/fs/m timeout --foreground -k 20 -s INT 3 \"$@\"; exit $?; :");
    let mut command = Command::new(agent());
    command.args(["record", "--events", "task:task_newtask", "-o", &out, "--", "true"]);
    let began = std::time::Instant::now();
    let ran = unshared(&place, &prepare, &command);
    refused(&ran, 124, "/fs/m/out: waiting for its file system, or for the reader of a FIFO");
    refused(&ran, 124, "/fs/m/out: ended by a signal while waiting for it to open; choose another -o");
    assert!(began.elapsed() < Duration::from_secs(18), "not by SIGKILL: {:?}", began.elapsed());

    let captures = text(&place.at("fs/m/captures"));
    let mut command = Command::new(agent());
    command.args(["record", "--events", "block", "--trigger", "error", "--directory", &captures]);
    let began = std::time::Instant::now();
    let ran = unshared(&place, &prepare, &command);
    refused(&ran, 124, "/fs/m/captures: waiting for its file system");
    refused(&ran, 124, "/fs/m/captures: ended by a signal while waiting for it; name another");
    assert!(began.elapsed() < Duration::from_secs(18), "not by SIGKILL: {:?}", began.elapsed());
}

/// Paths of more than 4 KiB, which no system call takes: a message of one line that ends with the reason.
#[test]
fn a_path_that_no_system_call_takes() {
    let Some(place) = Place::to_record("attack-long-path") else { return };
    let trace = text(&block_trace(&place, "t", &["a", "b"]));
    let long = format!("{}/{}x", text(place.dir.path()), "nothing/".repeat(700));
    let one_line = |ran: &Output, status: i32, reason: &str| {
        assert_eq!(ran.status.code(), Some(status), "{}", said(ran));
        assert_eq!(said(ran).lines().count(), 1, "{}", said(ran));
        assert!(said(ran).trim_end().contains(reason), "{reason:?} is not in: {}", said(ran));
    };
    for argv in [
        &["report", &long][..],
        &["report", "--json", &long],
        &["predict", &long],
        &["advise", &long],
        &["diff", &trace, &long],
        &["export", &long, "--to", "csv", "-o", &text(&place.at("out"))],
        &["bench", "replay", &long],
    ] {
        one_line(&place.run(argv), 1, "File name too long");
    }
    for argv in [
        &["export", &trace, "--to", "csv", "-o", &long][..],
        &["export", &trace, "--to", "perfetto", "-o", &long],
        &["report", &trace, "--html", &long],
        &["report", &trace, "--fail-if", "errors > 0", "--junit", &long],
    ] {
        one_line(&place.run(argv), 1, "No such file or directory");
    }
    let record = ["record", "--events", "task:task_newtask", "-o", &long, "--", "true"];
    one_line(&place.run(&record), 125, "No such file or directory");
    one_line(&output(Command::new(agent()).args(record)), 125, "File name too long; choose another -o");
}

/// What is written besides: no input, and not the page of the same command.
#[test]
fn a_second_output_is_no_input_either() {
    let place = Place::new("attack-junit");
    let trace = text(&block_trace(&place, "t", &["a", "b"]));
    let before = std::fs::read(&trace).expect("the trace");
    std::os::unix::fs::symlink("t", place.at("soft")).expect("a link");
    std::fs::hard_link(&trace, place.at("hard")).expect("a link");
    for name in ["t", "soft", "hard"] {
        let out = text(&place.at(name));
        for argv in [
            &["report", &trace, "--fail-if", "errors > 0", "--junit", &out][..],
            &["diff", &trace, &trace, "--fail-if", "errors > 0", "--junit", &out],
        ] {
            refused(&place.run(argv), 1, "it is an input of this command");
            assert_eq!(std::fs::read(&trace).expect("the trace"), before, "{argv:?}");
        }
    }
    let page = text(&place.at("page"));
    let ran = place.run(&["report", &trace, "--html", &page, "--fail-if", "errors > 0", "--junit", &page]);
    refused(&ran, 2, "--html and --junit name the same file");
    assert!(!Path::new(&page).exists(), "nothing is written by a command line that cannot be");

    let script = "flashscope-replay 2\nfile 4096 a\ntask t\nread 0 0 0 0 4096\n";
    let (one, two) = (text(&place.file("one", script)), text(&place.file("two", script)));
    for (beside, out) in [(two.clone(), &one), (two.clone(), &two), (format!("{two}@5"), &two)] {
        refused(&place.run(&["bench", "replay", &one, "--beside", &beside, "--script", out]), 1, "it is an input");
        assert_eq!(std::fs::read_to_string(out).expect("a script"), script);
    }
}

/// Of a recording that its disk has no room for, what there is is kept beside the good one: each such recording by itself. Nor does a page
/// that has no room take an earlier one's place.
#[test]
fn what_was_there_stays_where_the_disk_is_full() {
    let Some(place) = Place::to_record("attack-full-twice") else { return };
    std::fs::create_dir(place.at("full")).expect("a directory");
    let trace = text(&block_trace(&place, "t", &["a", "b"]));
    let (page, out) = (text(&place.at("full/page")), text(&place.at("full/t.dat")));
    let prepare = "mount -t tmpfs -o size=16k none $dir/full; echo old >$dir/full/page; code=0; \"$@\" || code=$?; \
                   cat $dir/full/page; ls -A $dir/full; exit $code";
    let ran = unshared(&place, prepare, &place.command(&["report", &trace, "--html", &page]));
    refused(&ran, 1, "No space left on device");
    assert!(String::from_utf8_lossy(&ran.stdout).ends_with("old\npage\n"), "{}", said(&ran));

    let argv = [
        "record", "--events", "raw_syscalls:sys_enter", "--ring", "256K", "-o", &out, "--", "dd", "if=/dev/zero",
        "of=/dev/null", "bs=1", "count=200000",
    ];
    // The recorder may see the little space in time. Then the recording is whole, and has the name.
    let prepare = "mount -t tmpfs -o size=200k none $dir/full; echo good >$dir/full/t.dat; \"$@\" || :; \
                   failed() { [ -e $1 ] || { echo in time; cat $dir/full/t.dat.old; exit 0; }; }; \
                   failed $dir/full/t.dat.incomplete; first=$(sha256sum <$dir/full/t.dat.incomplete); \
                   mount -o remount,size=400k $dir/full; code=0; \"$@\" || code=$?; \
                   failed $dir/full/t.dat.incomplete.2; \
                   [ \"$first\" = \"$(sha256sum <$dir/full/t.dat.incomplete)\" ] && echo same; \
                   cat $dir/full/t.dat; ls -A $dir/full; exit $code";
    for _ in 0..20 {
        let ran = unshared(&place, prepare, &place.command(&argv));
        let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
        if printed.contains("in time\n") {
            assert!(ran.status.success() && printed.ends_with("in time\ngood\n"), "{printed}{}", said(&ran));
            continue;
        }
        refused(&ran, 125, "the data recorded so far is in ");
        let left = "same\ngood\nt.dat\nt.dat.incomplete\nt.dat.incomplete.2\n";
        assert!(printed.ends_with(left), "{ran:?}");
        return;
    }
    panic!("the recorder always saw the little space in time");
}

/// A disk of 16 KiB: the message names the file that has no room, and nothing of it stays.
#[test]
fn a_full_disk_is_named_by_the_file_that_it_has_no_room_for() {
    let Some(place) = Place::to_record("attack-full") else { return };
    let names: Vec<String> = (0..200).map(|n| format!("task{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let trace = text(&block_trace(&place, "t", &names));
    let full = text(&place.at("full/out"));
    std::fs::create_dir(place.at("full")).expect("a directory");
    let exports = ["csv", "json", "text", "perfetto"];
    let mut forms: Vec<Vec<&str>> =
        exports.iter().map(|to| vec!["export", &trace, "--to", to, "--output", &full]).collect();
    forms.push(vec!["export", &trace, "--rows", "bios", "--to", "csv", "--output", &full]);
    forms.push(vec!["report", &trace, "--html", &full]);
    forms.push(vec!["report", &trace, "--perfetto", &full]);
    forms.push(vec!["diff", &trace, &trace, "--html", &full]);
    let strace = text(&crate::outputs::strace(&place, "s"));
    forms.push(vec!["bench", "import-strace", &strace, "--under", "/films", "--output", &full]);
    for argv in forms {
        // The directory's contents go to the end of standard output, behind the command's own.
        let prepare =
            "mount -t tmpfs -o size=16k none $dir/full; \"$@\" || code=$?; echo; ls -A $dir/full; exit $code; :";
        let ran = unshared(&place, prepare, &place.command(&argv));
        refused(&ran, 1, &format!("flashscope: {full}: "));
        let next = format!(
            "No space left on device (os error 28); free some space or name another file with {}\n",
            argv[argv.len() - 2]
        );
        assert!(said(&ran).ends_with(&next), "{argv:?}: {}", said(&ran));
        assert_eq!(said(&ran).lines().count(), 1, "{argv:?}: {}", said(&ran));
        let listed = String::from_utf8_lossy(&ran.stdout);
        assert!(!listed.lines().any(|line| line == "out" || line.starts_with(".out.")), "{argv:?}: {listed}");
    }
}

/// What became of the earlier file is said of the file that it is: a link leads to it, and nothing is kept of what is written through.
#[test]
fn an_earlier_recording_is_where_the_message_says() {
    let Some(place) = Place::to_record("attack-earlier") else { return };
    let record = |out: &str| place.command(&["record", "--events", "task:task_newtask", "-o", out, "--", "true"]);
    std::fs::create_dir(place.at("far")).expect("a directory");
    let real = place.file("far/real", "the first");
    std::os::unix::fs::symlink("far/real", place.at("link")).expect("a link");
    let ran = output(&mut record(&text(&place.at("link"))));
    assert!(ran.status.success(), "{}", said(&ran));
    let old = place.at("far/real.old");
    assert!(said(&ran).contains(&format!("is kept as {}", text(&old))), "{}", said(&ran));
    assert_eq!(std::fs::read_to_string(&old).expect("the earlier file"), "the first");
    Trace::open(&real).expect("a trace");
    assert!(place.at("link").is_symlink());

    // As `> FILE` and `>> FILE` of a shell: nothing is replaced, so nothing is kept.
    let open = std::fs::File::create(place.at("open")).expect("a file");
    let ran = output(record("/proc/self/fd/1").stdout(open));
    assert!(ran.status.success() && !said(&ran).contains(".old"), "{}", said(&ran));
    Trace::open(&place.at("open")).expect("a trace");
    assert!(!place.at("open.old").exists());
}

/// A path may hold a line feed. The note of a killed recording must not be read as one of another file.
#[test]
fn a_killed_recording_s_note_leads_to_no_other_file() {
    let Some(place) = Place::to_record("attack-note") else { return };
    for content in ["", "mine"] {
        let mine = place.file("mine", content);
        let out = text(&place.at("mine\nsecond"));
        let argv = ["record", "--events", "task:task_newtask", "-o", &out, "--", "sleep", "60"];
        let mut child = place.command(&argv).stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("a recorder");
        let begun = || {
            let entries = std::fs::read_dir(place.dir.path()).expect("a directory").flatten();
            let mut streams = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".stream"));
            streams.any(|entry| entry.metadata().is_ok_and(|meta| meta.len() > 0))
        };
        for _ in 0..6000 {
            if begun() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().expect("kill");
        child.wait().expect("it ended");
        let next = place.run(&["board", "list"]);
        assert_eq!(std::fs::read_to_string(&mine).expect("the file"), content, "{}", said(&next));
        assert!(said(&next).contains("mine\\nsecond"), "{}", said(&next));
    }
}

/// Without room for a second copy the recording is kept as it came, whole, and not ended early for the copy's sake.
#[test]
fn a_recording_needs_its_own_size_once() {
    let Some(place) = Place::to_record("attack-room") else { return };
    std::fs::create_dir(place.at("small")).expect("a directory");
    let out = text(&place.at("small/t.dat"));
    // 1.3 times what is recorded, which the margin that is left free lies in.
    let argv = [
        "record", "--events", "raw_syscalls:sys_enter", "--max-size", "12M", "--ring", "64K", "-o", &out, "--", "dd",
        "if=/dev/zero", "of=/dev/null", "bs=1",
    ];
    let prepare = "mount -t tmpfs -o size=16m none $dir/small; status=0; timeout -k 5 100 \"$@\" || status=$?; \
                   cp -a $dir/small/. $dir; exit $status";
    let ran = unshared(&place, prepare, &place.command(&argv));
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    assert!(said(&ran).contains("this is the agent's stream, which flashscope reads as well"), "{}", said(&ran));
    assert!(said(&ran).contains("has reached --max-size"), "{}", said(&ran));
    let kept = place.at("t.dat");
    assert!(kept.metadata().expect("the recording").len() >= 12 << 20);
    let mut events = 0;
    Trace::open(&kept).expect("a trace").for_each_record(&mut |_| events += 1).expect("all of it");
    assert!(events > 100_000, "{events}");
    // And what it says to type works.
    let dat = text(&place.at("whole.dat"));
    stdout(&mut place.command(&["export", &text(&kept), "--to", "trace.dat", "-o", &dat]));
    assert!(std::fs::read(&dat).expect("a trace.dat").starts_with(b"\x17\x08\x44tracing"));
}

/// A name of 500 kB in front of 40,000 numbers is 20 GB of names.
#[test]
fn a_json_result_takes_no_more_memory_than_it_has_figures() {
    let place = Place::new("attack-json");
    let numbers: Vec<String> = (0..40_000).map(|n| format!("\"a{n}\":{n}")).collect();
    let json = format!("{{\"{}\":{{{}}},\"total_ns\":5}}", "k".repeat(500_000), numbers.join(","));
    let path = text(&place.file("r.json", &json));
    let diff = place.command(&["diff", &path, &path]);
    let said = stdout(&mut behind(&["sh", "-c", "ulimit -d 131072 && exec \"$@\"", "sh"], &diff));
    assert!(said.contains("No figure of 1 changed"), "{said}");
}

/// Names that act in a terminal, a page, XML or a table: in every form of a comparison and a condition.
#[test]
fn names_act_in_no_form_of_a_result() {
    let place = Place::new("attack-names");
    let names = ["</script><b>", "=cmd()|x", "\u{1b}[2J", "a\"b\\c", "\u{202e}evil", "]]>&<'"];
    let trace = text(&block_trace(&place, "t", &names));
    let (page, change, xml) = (place.at("page"), place.at("change"), place.at("xml"));
    let acts = |what: &str, text: &str| {
        for bad in ["\u{1b}", "\u{202e}", "</script><b>"] {
            assert!(!text.contains(bad), "{what} holds {bad:?}");
        }
    };
    let condition = "p99(d2c, app=\"nosuch\u{202e}\") > 1ms";
    let ran = place.run(&[
        "report",
        &trace,
        "--html",
        &text(&page),
        "--fail-if",
        condition,
        "--fail-if",
        "d2c > 1us",
        "--junit",
        &text(&xml),
    ]);
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    acts("standard error", &said(&ran).replace("</script><b>", ""));
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(shown.contains("</script><b>"), "a terminal shows it as it is");
    acts("standard output", &shown.replace("</script><b>", ""));
    acts("the page", &std::fs::read_to_string(&page).expect("the page"));
    let xml = std::fs::read_to_string(&xml).expect("XML");
    acts("the XML", &xml);
    assert!(xml.contains("app=&quot;nosuch\\u{202e}&quot;"), "{xml}");
    let ran = place.run(&["diff", &trace, &trace, "--html", &text(&change), "--json"]);
    acts("the page of changes", &std::fs::read_to_string(&change).expect("the page"));
    let json = String::from_utf8_lossy(&ran.stdout).into_owned();
    acts("JSON", &json.replace("</script><b>", ""));
}

/// Captures are files. A device's directory is no place for them.
#[test]
fn captures_are_not_written_beside_a_device() {
    let place = Place::new("attack-capture");
    let ran = place.run(&["record", "--trigger", "error", "-o", "/dev/null"]);
    refused(&ran, 2, "each capture needs its own file");
    assert!(!Path::new("/dev/null.0001").exists());
    for wrong in [
        "psi-io>4294967297%",
        "psi-io>0%",
        "psi-io>101%",
        "psi-io> 5%",
        "psi-io>5%%",
        "psi-io>5",
        "d2c>99999999999999999999s",
        "run  ",
    ] {
        let ran = output(Command::new(agent()).args(["record", "--trigger", wrong, "--directory", "/nosuch"]));
        refused(&ran, 2, "is not understood");
    }
}

/// `--cgroup` takes cgroups: not a directory with files of the same names, however its path goes there.
#[test]
fn a_cgroup_is_one_of_the_kernel_s() {
    let Some(place) = Place::to_record("attack-cgroup-path") else { return };
    std::fs::create_dir(place.at("fake")).expect("a directory");
    for name in ["fake/cgroup.procs", "fake/tasks"] {
        place.file(name, "1\n");
    }
    let fake = text(&place.at("fake"));
    let out = text(&place.at("out"));
    for path in [format!("../../..{fake}"), format!("/sys/fs/cgroup/../../..{fake}"), format!("/sys/../{fake}")] {
        let ran = output(Command::new(agent()).args(["record", "--cgroup", &path, "-d", "1", "-o", &out]));
        refused(&ran, 1, "no such cgroup");
    }
}

/// The agent's own files, where others can write: nothing of theirs is followed or written to, nothing waits for them.
#[test]
fn the_agent_s_output_is_nobody_else_s_file() {
    let Some(place) = Place::to_record("attack-agent") else { return };
    let shared = place.at("shared");
    std::fs::create_dir(&shared).expect("a directory");
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).expect("permissions");
    let victim = place.file("victim", "root's own");
    std::fs::hard_link(&victim, shared.join("hard")).expect("a link");
    let mut plant = Command::new("setpriv");
    plant.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "/bin/sh", "-c"]);
    stdout(plant.arg("ln -s ../victim soft; ln -s .. way; mkfifo fifo; echo theirs >file").current_dir(&shared));
    for name in ["hard", "soft", "way/victim", "fifo", "file"] {
        let out = text(&shared.join(name));
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60"]).arg(agent());
        let ran = output(command.args(["record", "--events", "task:task_newtask", "-o", &out, "--", "true"]));
        assert_eq!(ran.status.code(), Some(125), "{name}: {}", said(&ran));
        assert!(said(&ran).contains("cannot be written"), "{name}: {}", said(&ran));
        assert_eq!(std::fs::read_to_string(&victim).expect("the file"), "root's own", "{name}");
    }
    assert_eq!(std::fs::read_to_string(shared.join("file")).expect("the file"), "theirs\n");
    let out = shared.join("own");
    let ran = output(
        Command::new(agent()).args(["record", "--events", "task:task_newtask", "-o"]).arg(&out).args(["--", "true"]),
    );
    assert!(ran.status.success(), "{}", said(&ran));
    assert_eq!(out.metadata().expect("a stream").permissions().mode() & 0o777, 0o600);

    // Root's own links lead where they lead.
    std::os::unix::fs::symlink("shared/../private", place.at("link")).expect("a link");
    std::fs::create_dir(place.at("private")).expect("a directory");
    let through = place.at("link/own");
    let ran = output(
        Command::new(agent())
            .args(["record", "--events", "task:task_newtask", "-o"])
            .arg(&through)
            .args(["--", "true"]),
    );
    assert!(ran.status.success() && place.at("private/own").is_file(), "{}", said(&ran));

    // Captures: what lies under the name of the next one is not written to, and not waited for.
    std::fs::hard_link(&victim, shared.join("flashscope-0001.stream.partial")).expect("a link");
    let watch = ["record", "--events", "task:task_newtask", "--trigger", "run true", "--directory"];
    let ran = output(Command::new(agent()).args(watch).arg(shared.join("way")));
    refused(&ran, 1, "cannot be written");
    let dir = text(&shared);
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60"]).arg(agent());
    command.args([
        "record", "--events", "task:task_newtask", "--trigger", "run true", "--after", "0", "--captures", "1",
        "--directory", &dir,
    ]);
    let ran = output(&mut command);
    assert!(ran.status.success(), "{}", said(&ran));
    assert_eq!(std::fs::read_to_string(&victim).expect("the file"), "root's own");
    assert!(shared.join("flashscope-0001.stream").is_file());
}

/// Whoever gives a program the path and the name of the recorder of a boot is not collected from, and gets no signals.
#[test]
fn nobody_else_s_process_is_the_recorder_of_a_boot() {
    let Some(place) = Place::to_record("attack-boot") else { return };
    let folder = place.at("flashscope-boot");
    std::fs::create_dir(&folder).expect("a directory");
    for name in ["flashscope-boot", "flashscope-kept"] {
        std::fs::copy("/bin/sleep", folder.join(name)).expect("a program");
        let mut fake = Command::new("setpriv");
        fake.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(folder.join(name)).arg("600");
        let mut fake = fake.stdout(std::fs::File::open("/etc/hostname").expect("a file")).spawn().expect("a process");
        let comm = format!("/proc/{}/comm", fake.id());
        while std::fs::read_to_string(&comm).is_ok_and(|comm| comm.trim() != name) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let collected = output(Command::new(agent()).args(["boot", "collect"]));
        let undone = output(Command::new(agent()).args(["boot", "undo"]));
        let runs = fake.try_wait().expect("a child").is_none();
        fake.kill().and_then(|()| fake.wait()).expect("a child");
        refused(&collected, 1, "this machine is not prepared");
        assert!(collected.stdout.is_empty() && runs, "{name}");
        assert_eq!(
            String::from_utf8_lossy(&undone.stdout),
            "nothing to undo: this machine is not prepared\n",
            "{name}"
        );
    }
}

/// As the kernel's `protected_symlinks` has it: in a sticky directory nobody else can exchange root's links, and those of others lead
/// nowhere.
#[test]
fn the_agent_follows_root_s_links_in_a_sticky_directory() {
    let Some(place) = Place::to_record("attack-sticky") else { return };
    let victim = place.file("victim", "root's own");
    std::fs::create_dir(place.at("private")).expect("a directory");
    let (sticky, shared) = (place.at("sticky"), place.at("shared"));
    for (dir, mode) in [(&sticky, 0o1777), (&shared, 0o777)] {
        std::fs::create_dir(dir).expect("a directory");
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).expect("permissions");
        std::os::unix::fs::symlink("../private", dir.join("mine")).expect("a link");
    }
    std::fs::hard_link(sticky.join("mine"), place.at("second")).expect("a second name");
    std::fs::rename(place.at("second"), sticky.join("twice")).expect("a second name");
    std::os::unix::fs::symlink("../private", sticky.join("once")).expect("a link");
    let mut plant = Command::new("setpriv");
    plant.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "/bin/sh", "-c"]);
    stdout(plant.arg("ln -s ../victim theirs; ln -s .. way").current_dir(&sticky));
    for (out, is_written) in [
        (sticky.join("once/sticky"), true),
        (sticky.join("twice/linked"), false),
        (sticky.join("theirs"), false),
        (sticky.join("way/victim"), false),
        (shared.join("mine/shared"), false),
    ] {
        let mut command = Command::new(agent());
        command.args(["record", "--events", "task:task_newtask", "-o"]).arg(&out).args(["--", "true"]);
        let ran = output(&mut command);
        assert_eq!(ran.status.success(), is_written, "{}: {}", out.display(), said(&ran));
        assert_eq!(std::fs::read_to_string(&victim).expect("the file"), "root's own", "{}", out.display());
    }
    let written: Vec<_> = std::fs::read_dir(place.at("private")).expect("a directory").flatten().collect();
    assert_eq!(written.iter().map(|entry| entry.file_name()).collect::<Vec<_>>(), ["sticky"]);
    let watch = ["record", "--events", "task:task_newtask", "--trigger", "run true", "--directory"];
    refused(&output(Command::new(agent()).args(watch).arg(sticky.join("way"))), 1, "cannot be written");
}

/// Where `/proc` hides others' processes (hidepid), what a running recorder of root owns is no leftover: not for another user who may
/// use tracefs, and not from another PID namespace. Root still removes what ended.
#[test]
fn a_recorder_that_proc_hides_is_alive() {
    let Some(place) = Place::to_record("attack-hidepid") else { return };
    let script = r#"
set -e
[ -d /sys/kernel/tracing/instances ] || mount -t tracefs t /sys/kernel/tracing
mount -t proc -o hidepid=2 p /proc
number() { readlink /proc/$1/ns/pid | tr -dc 0-9; }
name() { echo /sys/kernel/tracing/instances/flashscope_$(number $1)_$2_$(cut -d' ' -f22 /proc/$1/stat); }
sleep 60 & here=$!
unshare -p -f sleep 60 & other=$!
inner=
while [ -z "$inner" ]; do inner=$(cat /proc/$other/task/$other/children); done
while [ "$(number $inner)" = "$(number $here)" ]; do :; done
a=$(name $here $here) b=$(name $inner 1)
mkdir $a $b
cp "$1" "$2/agent"
chmod 711 "$2"
setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override "$2/agent" sweep || echo failed
ls -d $a $b > /dev/null && echo both are there
kill -9 $inner $here
wait || :
"$1" sweep > /dev/null
ls -d $a $b 2> /dev/null || echo none is left
"#;
    let mut run = Command::new("unshare");
    run.args(["-m", "/bin/sh", "-c", script, "sh"]).arg(agent()).arg(place.dir.path()).stdin(Stdio::null());
    let ran = output(&mut run);
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(text.contains("both are there") && text.contains("none is left"), "{text}\n{}", said(&ran));
    let _ = std::fs::remove_dir("/tmp/flashscope-65534");
}

/// The command as a shell starts it that has closed or redirected some of its files.
fn with_files(place: &Place, files: &str, command: &Command) -> Output {
    let script = format!("exec \"$@\" {files}");
    output(behind(&["/bin/sh", "-c", &script, "sh"], command).current_dir(place.dir.path()).stdin(Stdio::null()))
}

/// What cannot be printed is an error, as of coreutils: nobody is told that all went well.
#[test]
fn a_closed_standard_output_is_an_error() {
    let place = Place::new("attacks-closed");
    block_trace(&place, "t.txt", &["one"]);
    for argv in [
        &["report", "t.txt"][..],
        &["report", "t.txt", "--json"],
        &["report", "t.txt", "--by", "process"],
        &["diff", "t.txt", "t.txt"],
        &["export", "t.txt", "--to", "csv", "-o", "-"],
        &["board", "list"],
        &["schema"],
        &["completions", "bash"],
        &["--version"],
        &["report", "--help"],
    ] {
        for files in [">&-", "<&- >&-", "1</dev/null"] {
            let ran = with_files(&place, files, &place.command(argv));
            refused(&ran, 1, "standard output: it is not open for writing");
        }
        for files in ["<&-", "2>&-", ">/dev/null", "1<>/dev/null"] {
            let ran = with_files(&place, files, &place.command(argv));
            assert_eq!(ran.status.code(), Some(0), "{argv:?} {files}: {}", said(&ran));
        }
    }
    for argument in ["--help", "--version", "sweep"] {
        let ran = with_files(&place, ">&-", Command::new(agent()).arg(argument));
        refused(&ran, 1, "stdout: Bad file descriptor");
    }
}

/// A file that is opened takes the lowest free number: messages would be written into a trace that has number 1 or 2.
#[test]
fn no_output_gets_the_number_of_a_closed_standard_file() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let place = Place::new("attacks-numbers");
    let look = "for n in 0 1 2; do readlink /proc/$PPID/fd/$n; done >links";
    for (at, (files, closed)) in [("<&-", 1), (">&-", 1), ("2>&-", 1), ("<&- >&- 2>&-", 3)].into_iter().enumerate() {
        for (mut record, name) in
            [(place.command(&["record"]), format!("{at}.dat")), (Command::new(agent()), format!("{at}.stream"))]
        {
            if name.ends_with("stream") {
                record.arg("record");
            }
            record.args(["--events", "block", "-o", &name, "--", "/bin/sh", "-c", look]);
            let ran = with_files(&place, files, &record);
            assert_eq!(ran.status.code(), Some(0), "{name}, {files}: {}", said(&ran));
            let links = std::fs::read_to_string(place.at("links")).expect("three links");
            let null = links.lines().filter(|link| *link == "/dev/null").count();
            let stream = |link: &str| link.contains(&format!("/{at}.dat.")) && link.ends_with(".stream");
            let ours = links.lines().enumerate().filter(|&(number, link)| {
                link.contains("pipe:") || link == "/dev/null" || (number == 1 && stream(link))
            });
            let ours = ours.count();
            // An agent that flashscope starts has pipes, and the recording as its output.
            assert!((null >= closed || name.ends_with("dat")) && ours == 3, "{name}, {files}: {links}");
            Trace::open(&place.at(&name)).expect("a trace");
        }
    }
}

/// bash puts on the command line what a completion function replies, as it is: a name of a file would be run at the next Enter.
#[test]
fn completions_put_no_file_name_on_a_command_line() {
    let place = Place::new("attacks-completions");
    for name in ["x;touch${IFS}ran", "x$(touch ran)", "x`touch ran`", "x y", "x*"] {
        place.file(name, "");
    }
    let script = output(&mut place.command(&["completions", "bash"]));
    place.file("script", std::str::from_utf8(&script.stdout).expect("UTF-8"));
    let ask = r#"
        . ./script
        for words in "report" "report --html" "report --junit" "record --output" "record -o" "record --user" "export --output" \
            "study --output" "bench replay --beside" "top --prometheus" "--agent"; do
            COMP_WORDS=(flashscope $words x); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _flashscope flashscope x "${COMP_WORDS[COMP_CWORD-1]}"
            for reply in "${COMPREPLY[@]}"; do [ -z "$reply" ] || echo "$words: $reply"; done
        done
        complete -p flashscope"#;
    let ran = output(Command::new("bash").args(["--norc", "-c", ask]).current_dir(place.dir.path()));
    let replies = String::from_utf8_lossy(&ran.stdout).into_owned();
    // Then readline completes names of files, and quotes them.
    assert!(replies.starts_with("complete ") && replies.contains("-o default"), "{replies}{}", said(&ran));
    assert!(!place.at("ran").exists());
}

/// A replay script is printed on the terminal; a forged file of strace has what it likes in its names.
#[test]
fn a_replay_script_has_no_control_characters_of_names() {
    let place = Place::new("attacks-script");
    let strace = "1 1600000000.000001 openat(AT_FDCWD</>, \"/films/a\x1b[31m\x07\", O_RDONLY) = 3</films/a\x1b[31m\x07> <0.000010>\n\
        1 1600000000.000101 read(3</films/a\x1b[31m\x07>, \"\"..., 4096) = 4096 <0.000020>\n";
    place.file("s", strace);
    let ran = output(&mut place.command(&["bench", "import-strace", &text(&place.at("s")), "--under", "/films"]));
    let script = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(script.contains(" a?[31m?\n"), "{script:?}{}", said(&ran));
    assert!(!script.contains(|c: char| c.is_control() && c != '\n'), "{script:?}");
}

/// Where another process of root removes the recorder's instance while one of its options is set, the kernel must hold it: below
/// `options/` it does not (before 7.x), and the write crashes with the locks of all tracing held. Each write is delayed for the other.
#[test]
fn an_instance_is_held_while_an_option_is_set() {
    const REMOVED: &str = r#"cd /sys/kernel/tracing
        [ -d instances ] || busybox mount -t tracefs t /sys/kernel/tracing && cd /sys/kernel/tracing
        (while :; do
            for p in $(busybox pidof agent flashscope-agent); do
                case "$(busybox ls -l /proc/$p/fd 2>/dev/null)" in *options*) busybox rmdir instances/flashscope_*;; esac
            done
        done) 2>/tmp/refused &
        strace -f -o /tmp/calls -e trace=write -e inject=write:delay_enter=50000 \
            /flashscope/agent record --events block -d 1 -o /tmp/t
        echo status $?; kill $!
        busybox grep -m1 -o 'resource busy' /tmp/refused; busybox dmesg | busybox grep -cE 'Oops|BUG|Unable to handle'
        busybox mkdir instances/x && echo tracing answers"#;
    let words = [
        "board", "boot", "-q", "armv7-blk", "--kernel", "6.1", "--packages", "busybox-static", "--packages", "strace",
        "--",
    ];
    let mut boot = flashscope();
    boot.args(words).args(["busybox", "sh", "-c", REMOVED]);
    let board = output(behind(&["timeout", "-k", "5", "200"], &boot).stdin(Stdio::null()));
    let printed = String::from_utf8_lossy(&board.stdout);
    assert_eq!(printed, "status 1\nresource busy\n0\ntracing answers\n", "{}", said(&board));
}
