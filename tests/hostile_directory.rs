//! A working directory that somebody else has filled: nothing in it, or in those above it, is run or read unless it was named.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flashscope_tests::{Place, PrivateCache, TempDir, cannot_record, flashscope, is_root, output, skip, stdout};

/// Every name that flashscope or QEMU could look for, with what would be noticed: a program that leaves a mark, or a text
/// that no reader takes.
fn plant(dir: &Path, mark: &Path) {
    let write = |name: &str, text: &str, mode: u32| {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("permissions");
    };
    let program = format!("#!/bin/sh\necho \"$0 $*\" >>{}\nexit 1\n", mark.display());
    // What told a source tree.
    write("agent/protocol.h", "", 0o644);
    for arch in ["x86_64", "aarch64", "armhf", "armel", "riscv64", "mipsel", "mips64el"] {
        write(&format!("agent/build/{arch}/flashscope-agent"), &program, 0o755);
        write(&format!("lib/flashscope/agents/{arch}/flashscope-agent"), &program, 0o755);
    }
    for name in ["flashscope-agent", "qemu-system-x86_64", "qemu-system-arm", "ssh", "setpriv", "gcc", "make"] {
        write(name, &program, 0o755);
    }
    for name in ["boards/armv7", "boards/x86_64", "boards/planted", "chips/micron-slc-256m", "disks/null-blk"] {
        write(&format!("{name}.toml"), "stray text", 0o644);
    }
    for name in ["power/omap3evm", "studies/planted", "kernel/flashmon/module", "kernel/yaffs2/module"] {
        write(&format!("{name}.toml"), "stray text", 0o644);
    }
    // What other programs read without being asked.
    for name in ["flashscope.toml", ".flashscope.toml", ".flashscope", ".flashscoperc", "flashscope/config.toml"] {
        write(name, "stray text", 0o644);
    }
    for name in ["boards/armv7", "boards/planted", "chips/micron-slc-256m", "studies/planted"] {
        for place in [".config/flashscope", "flashscope", ".local/share/flashscope"] {
            write(&format!("{place}/{name}.toml"), "stray text", 0o644);
        }
    }
    for place in ["flashscope", ".cache/flashscope", ".local/share/flashscope"] {
        write(&format!("{place}/agents/x86_64/flashscope-agent"), &program, 0o755);
    }
    // QEMU takes firmware from its working directory before its own.
    for name in ["bios.bin", "bios-256k.bin", "bios-microvm.bin", "linuxboot.bin", "linuxboot_dma.bin", "kvmvapic.bin"]
    {
        write(name, "stray text", 0o644);
    }
    for name in ["pvh.bin", "efi-virtio.rom", "vgabios-stdvga.bin"] {
        write(name, "stray text", 0o644);
    }
}

/// A directory three levels deep with all of that in each, and the mark.
struct Hostile {
    dir: TempDir,
    program: PathBuf,
}

impl Hostile {
    fn new(label: &str) -> Hostile {
        let dir = TempDir::new(label);
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("permissions");
        for level in ["a", "a/b", "a/b/c"] {
            plant(&dir.path().join(level), &dir.path().join("mark"));
        }
        // Where the program lies says nothing either: this copy has what looks like a source tree around it.
        let program = dir.path().join("a/b/c/flashscope-0.2");
        std::fs::copy(flashscope().get_program(), &program).expect("a copy");
        Hostile { dir, program }
    }

    fn command(&self, cache: &Path, argv: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let here = self.dir.path().join("a/b/c");
        command.args(argv).current_dir(&here).env("FLASHSCOPE_CACHE", cache);
        for name in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_DIRS"]
        {
            command.env(name, &here);
        }
        // An empty part is the working directory.
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        path.push(":");
        command.env("PATH", path);
        command.env_remove("FLASHSCOPE_AGENTS").env("NO_COLOR", "1").stdin(Stdio::null());
        command
    }

    /// Runs it; nothing planted may have run, or have been read.
    fn run(&self, mut command: Command) -> Output {
        let output = output(&mut command);
        if let Ok(mark) = std::fs::read_to_string(self.dir.path().join("mark")) {
            panic!("{command:?} ran what was planted: {mark}");
        }
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!said.contains("stray text") && !said.contains("TOML"), "{command:?} read what was planted:\n{said}");
        output
    }
}

fn says(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether this build has agents of its own; it has them if it was built with them.
fn carries() -> bool {
    let version = output(flashscope().arg("--version"));
    let carries = String::from_utf8_lossy(&version.stdout).contains("\nagents: x86_64");
    let asked = std::env::var_os("FLASHSCOPE_EMBED_AGENTS").is_some_and(|dir| !dir.is_empty());
    assert!(carries || !asked, "FLASHSCOPE_EMBED_AGENTS is set, and this build carries no agent");
    carries
}

/// What every build can be asked: with agents these succeed, without they say that there are none.
fn agent_commands(hostile: &Hostile, run: &dyn Fn(&[&str]) -> Output, recorded: bool) {
    let trace = hostile.dir.path().join("t.dat");
    let trace = trace.to_str().expect("UTF-8");
    let record = run(&["record", "--events", "block", "-o", trace, "--", "true"]);
    let doctor = run(&["doctor"]);
    if recorded {
        assert!(record.status.success(), "{}", says(&record));
        assert!(run(&["report", trace]).status.success());
        for command in ["advise", "predict", "policy"] {
            // There is nothing to advise on: it says so of the trace, and not of a planted file.
            assert!(run(&[command, trace]).status.code().is_some_and(|code| code < 3));
        }
    } else if !carries() {
        for (output, what) in [(record, "record"), (doctor, "doctor")] {
            assert_eq!(output.status.code(), Some(1), "{what}");
            assert!(says(&output).contains("carries no flashscope-agent for x86_64"), "{what}: {}", says(&output));
        }
    }
}

#[test]
fn nothing_of_the_working_directory_is_run_or_read() {
    let hostile = Hostile::new("hostile");
    let cache = PrivateCache::new("hostile-cache");
    let run = |argv: &[&str]| hostile.run(hostile.command(cache.path(), argv));
    let traced = cannot_record().is_none() && Path::new("/sys/kernel/tracing/instances").exists();
    agent_commands(&hostile, &run, traced && carries());

    let list = run(&["board", "list"]);
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.status.success() && text.contains("armv7"), "{text}");
    assert_eq!(run(&["board", "boot", "planted"]).status.code(), Some(2));
    // Every study is read before the first one runs, which without a cache never happens.
    let study = hostile.run(hostile.command(Path::new("/proc/nosuch"), &["study", "--all"]));
    assert!(says(&study).contains("the cache, /proc/nosuch"), "{}", says(&study));
}

/// `sudo -E`: whoever can change the cache can put a link in the place of one of its directories while root removes what is old there.
#[test]
fn root_changes_nothing_in_another_user_s_cache() {
    if !is_root() {
        return skip("needs root, to become somebody else");
    }
    let theirs = TempDir::new("hostile-theirs");
    let own = TempDir::new("hostile-own");
    let cache = theirs.path().join("flashscope");
    let (image, left) = (cache.join("images/old.cpio"), cache.join("tmp/1_1_0_left"));
    std::fs::create_dir_all(image.parent().expect("a directory")).expect("a directory");
    std::fs::create_dir_all(&left).expect("a directory");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3 * 24 * 3600);
    std::fs::File::create(&image).and_then(|file| file.set_modified(old)).expect("an old image");
    let run = |owner: u32, named: Option<&Path>| {
        for path in [theirs.path(), &cache] {
            std::os::unix::fs::chown(path, Some(owner), Some(owner)).expect("another owner");
        }
        let mut command = flashscope();
        command.args(["board", "list"]).env_remove("FLASHSCOPE_CACHE").stdin(Stdio::null());
        command.env("XDG_CACHE_HOME", theirs.path()).env("HOME", own.path());
        if let Some(cache) = named {
            command.env("FLASHSCOPE_CACHE", cache);
        }
        let ran = output(&mut command);
        assert!(ran.status.success(), "{}", says(&ran));
        (image.exists(), left.exists())
    };
    assert_eq!(run(65534, None), (true, true));
    assert_eq!(run(65534, Some(&cache)), (true, true));
    assert_eq!(run(0, None), (false, false), "its own");
}

/// A shell as another user, in a directory.
fn as_other(dir: &Path, script: &str) {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "/bin/sh", "-ec", script]);
    stdout(command.current_dir(dir));
}

/// What lies below a directory: names, kinds, owners, sizes and links.
fn listing(dir: &Path) -> String {
    stdout(Command::new("find").arg(dir).args(["-printf", "%p %y %U %m %s %l\n"]))
}

/// Links of others in, and on the way to, what a variable names: root writes nothing behind them.
#[test]
fn root_follows_nobody_s_link_to_a_cache() {
    if !is_root() {
        return skip("needs root, to become somebody else");
    }
    let place = Place::new("hostile-links");
    for (name, mode) in [("sticky", 0o1777), ("shared", 0o777), ("victim", 0o755), ("own", 0o700)] {
        std::fs::create_dir(place.at(name)).expect("a directory");
        std::fs::set_permissions(place.at(name), std::fs::Permissions::from_mode(mode)).expect("permissions");
    }
    std::fs::create_dir(place.at("victim/dir")).expect("a directory");
    as_other(
        &place.at("sticky"),
        "mkdir c1 c3; ln -s ../victim c2; ln -s ../../victim c3/flashscope; ln -s ../victim ../shared/x; \
         for name in tmp run images agents groups; do ln -s ../../victim/dir c1/$name; done",
    );
    let trace = place.file(
        "t",
        "# tracer: nop\n          cat-7       [000] .....     1.000000: nand_read: page=1 offset=0 length=2048 chip=0\n",
    );
    let (trace, out) = (trace.display().to_string(), place.at("out.csv").display().to_string());
    let before = listing(&place.at("victim")) + &listing(&place.at("sticky")) + &listing(&place.at("shared"));
    for (variable, value) in [
        ("FLASHSCOPE_CACHE", "sticky/c1"),
        ("FLASHSCOPE_CACHE", "sticky/c2"),
        ("FLASHSCOPE_CACHE", "sticky/c2/new"),
        ("FLASHSCOPE_CACHE", "shared/x"),
        ("FLASHSCOPE_CACHE", "shared/new"),
        ("XDG_CACHE_HOME", "sticky/c2"),
        ("XDG_CACHE_HOME", "sticky/c3"),
        ("XDG_CACHE_HOME", "shared/x"),
    ] {
        for argv in [&["export", &trace, "--to", "csv", "-o", &out][..], &["doctor"], &["board", "list"]] {
            let mut command = flashscope();
            command.args(argv).env_remove("FLASHSCOPE_CACHE").env("HOME", place.at("own")).stdin(Stdio::null());
            let ran = output(command.env(variable, place.at(value)));
            assert!(argv[0] == "doctor" || ran.status.success(), "{variable}={value}: {}", says(&ran));
            let is_told = says(&ran).contains("other users can change this directory, so root uses ");
            assert_eq!(is_told, variable == "FLASHSCOPE_CACHE", "{variable}={value}: {}", says(&ran));
        }
        let after = listing(&place.at("victim")) + &listing(&place.at("sticky")) + &listing(&place.at("shared"));
        assert_eq!(after, before, "{variable}={value}");
    }
    assert!(place.at("own/.cache/flashscope/tmp").is_dir(), "its own cache");
}

/// What another user can put where the agent keeps its notes, and where boards have directories for files: nothing is obeyed, followed,
/// removed or overwritten.
#[test]
fn nobody_else_s_notes_and_directories_are_obeyed() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let place = Place::new("hostile-notes");
    let script = r#"
set -e
for d in /tmp /var/tmp /run /dev/shm; do mount -t tmpfs -o mode=1777 t $d; done
mount -t tmpfs -o mode=755 t /mnt
mkdir -p /mnt/victim/dir
echo keep > /mnt/victim/file
cp "$1" /mnt/agent
NS=$(readlink /proc/self/ns/pid | tr -dc 0-9) BOOT=$(cat /proc/sys/kernel/random/boot_id)
export NS BOOT
setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec '
for t in /tmp /var/tmp /run /dev/shm; do
  mkdir -p $t/flashscope $t/flashscope-boot $t/flashscope-agents-0 $t/flashscope-cache-0/tmp/1_1_0-$NS-${BOOT%%-*}_recording
  printf "/mnt/victim/file\000/mnt/victim/out" > $t/flashscope-cache-0/tmp/1_1_0-$NS-${BOOT%%-*}_recording/recording
  for note in advice knobs_${NS}_1_1 cgroups_${NS}_1_1 recorder_${NS}_1_1; do
    printf "boot %s\nknob /sys/block/loop0/queue/read_ahead_kb 4096 128\ntemp /mnt/victim/dir/flashscope_${NS}_1_1 -\n" $BOOT > $t/flashscope/$note
  done
  for end in ${NS}_${BOOT%%-*}_aaaa ${NS}_ffffffff_bbbb; do
    mkdir -m 700 $t/flashscope_1_1_$end
    echo /mnt/victim/file > $t/flashscope_1_1_$end/list
    chmod 600 $t/flashscope_1_1_$end/list
  done
  ln -s /mnt/victim/dir $t/flashscope_1_1_${NS}_ffffffff_cccc
done'
mkdir /mnt/victim/dir/flashscope_${NS}_1_1
see() { find /mnt/victim /tmp/flashscope* /var/tmp/flashscope* /run/flashscope* /dev/shm/flashscope* -printf '%p %y %U %m %s %l\n' | sort; }
see > /mnt/before
/mnt/agent sweep
/mnt/agent record --events task:task_newtask -o /mnt/recorded -- true
/mnt/agent knob undo || :
/mnt/agent ctl status
/mnt/agent boot undo
see | diff /mnt/before - && echo unchanged
"#;
    let mut run = Command::new("unshare");
    run.args(["-m", "/bin/sh", "-c", script, "sh"]).arg(flashscope_targets::host_agent().expect("an agent"));
    let ran = output(run.stdin(Stdio::null()).current_dir(place.dir.path()));
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success()
            && text.ends_with(
                "unchanged
"
            ),
        "{text}
{}",
        says(&ran)
    );
}

#[test]
fn a_board_boots_the_same_from_a_hostile_directory() {
    let hostile = Hostile::new("hostile-board");
    let cache = PrivateCache::new("hostile-board-cache");
    if !carries() {
        return skip("this build carries no agents: FLASHSCOPE_EMBED_AGENTS (make build)");
    }
    // The one whose firmware QEMU loads from a file.
    let booted =
        hostile.run(hostile.command(cache.path(), &["board", "boot", "x86_64", "--", "/flashscope/agent", "probe"]));
    assert!(booted.status.success(), "{}", says(&booted));
    assert!(String::from_utf8_lossy(&booted.stdout).contains("\"protocol\":1"), "{}", says(&booted));
}

#[test]
fn nor_for_a_user_who_is_not_root() {
    if !is_root() {
        return skip("needs root, to become somebody else");
    }
    let hostile = Hostile::new("hostile-nobody");
    let cache = hostile.dir.path().join("cache");
    std::fs::create_dir(&cache).expect("a directory");
    std::os::unix::fs::chown(&cache, Some(65534), Some(65534)).expect("a directory of nobody's");
    let run = |argv: &[&str]| {
        let inner = hostile.command(&cache, argv);
        let mut outer = Command::new("setpriv");
        outer.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(inner.get_program());
        outer.args(inner.get_args()).current_dir(inner.get_current_dir().expect("set above"));
        outer.env_remove("FLASHSCOPE_AGENTS").env("FLASHSCOPE_CACHE", &cache).env("HOME", "/nonexistent");
        hostile.run({
            outer.stdin(Stdio::null());
            outer
        })
    };
    agent_commands(&hostile, &run, false);
    assert!(run(&["board", "list"]).status.success());
    assert_eq!(run(&["board", "boot", "planted"]).status.code(), Some(2));
}

#[test]
fn an_agent_of_ones_own_is_used_where_it_is_named() {
    let hostile = Hostile::new("hostile-named");
    let cache = PrivateCache::new("hostile-named-cache");
    let agents = hostile.dir.path().join("a/agent/build");
    let mark = hostile.dir.path().join("mark");
    let mut by_option = hostile.command(cache.path(), &["doctor", "--agent"]);
    by_option.arg(&agents);
    let mut by_variable = hostile.command(cache.path(), &["doctor"]);
    by_variable.env("FLASHSCOPE_AGENTS", &agents);
    for mut command in [by_option, by_variable] {
        assert!(!output(&mut command).status.success());
        let ran = std::fs::read_to_string(&mark).expect("it was named, so it ran");
        assert!(ran.contains("agent/build/x86_64/flashscope-agent probe"), "{ran}");
        std::fs::remove_file(&mark).expect("the mark");
    }
    let script = hostile.run({
        let mut command = hostile.command(cache.path(), &["doctor", "--agent"]);
        command.arg(agents.join("x86_64/flashscope-agent"));
        command
    });
    assert_eq!(script.status.code(), Some(2));
    assert!(says(&script).contains("not an ELF program"), "{}", says(&script));
}

/// What another user has put into every directory that the agent may use on a machine over ssh: files of dead owners, notes, links.
/// `$1`: the server's own directory, which stays where it is.
const PLANTED: &str = r##"
mount -t tmpfs -o mode=755 t /mnt
mkdir /mnt/keep
mount --bind "$1" /mnt/keep
for d in /tmp /var/tmp /run /dev/shm; do mount -t tmpfs -o mode=1777 t $d; done
mkdir -p "$1"
mount --bind /mnt/keep "$1"
mkdir -m 755 /run/sshd
mkdir -p /mnt/victim/dir/d
chmod 700 /mnt/victim/dir
echo keep > /mnt/victim/file
echo /mnt/victim/file > /mnt/victim/dir/list
chmod 600 /mnt/victim/dir/list
NS=$(readlink /proc/self/ns/pid | tr -dc 0-9) BOOT=$(cat /proc/sys/kernel/random/boot_id)
export NS BOOT
setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec '
for t in /tmp /var/tmp /run /dev/shm; do
  for end in ${NS}_${BOOT%%-*}_aaaa ${NS}_ffffffff_bbbb 0_ffffffff_dddd; do
    mkdir -m 700 $t/flashscope_1_1_$end
    echo /mnt/victim/file > $t/flashscope_1_1_$end/list
    chmod 600 $t/flashscope_1_1_$end/list
    printf "#!/bin/sh\necho ran >/mnt/victim/file\n" > $t/flashscope_1_1_$end/flashscope-agent
    chmod 700 $t/flashscope_1_1_$end/flashscope-agent
  done
  ln -s /mnt/victim/dir $t/flashscope_1_1_${NS}_ffffffff_cccc
  ln -s /mnt/victim/dir $t/flashscope_1_1_0_ffffffff_eeee
  mkdir -p $t/flashscope-boot $t/flashscope-agents-0 $t/flashscope-cache-0/tmp
  [ $t = /tmp ] && ln -s /mnt/victim/dir $t/flashscope || mkdir $t/flashscope
  for note in advice knobs_${NS}_1_1 cgroups_${NS}_1_1 recorder_${NS}_1_1; do
    [ -L $t/flashscope ] || printf "boot %s\nknob /sys/block/loop0/queue/read_ahead_kb 4096 128\ntemp /mnt/victim/dir/d -\n" $BOOT > $t/flashscope/$note
  done
done'
"##;

/// All of it, and what root has beside it.
const SEE: &str = "for d in /mnt/victim /tmp /var/tmp /run /dev/shm; do find $d -name 'flashscope-test-*' -prune -o -path '*flashscope*' \
     -printf '%p %y %U %m %s %l\\n' -o -path '/mnt/victim*' -printf '%p %y %U %m %s %l\\n'; done | sort; cat /mnt/victim/file";

#[test]
fn a_machine_over_ssh_obeys_nothing_that_others_planted() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    // The second time, the first directories are ones in which anybody can rename our files.
    for more in ["", "chmod 0777 /tmp; chmod 0777 /run"] {
        let Some(server) = crate::bad_input::Server::start_after(Some(&format!("{PLANTED}{more}"))) else { return };
        let cache = PrivateCache::new("hostile-ssh-cache");
        let place = Place::new("hostile-ssh");
        let out = place.at("t.dat").display().to_string();
        let before = server.inside(SEE);
        assert!(before.lines().count() > 60 && before.ends_with("keep\n"), "{before}");
        let spec = server.spec();
        let record = ["record", "--on", &spec, "--events", "task:task_newtask", "-o", &out, "--", "true"];
        for argv in [&["doctor", "--on", &spec][..], &record] {
            let ran = output(server.command(&cache, "user", argv).stdin(Stdio::null()));
            assert!(ran.status.success(), "{argv:?}: {}", says(&ran));
            assert_eq!(server.inside(SEE), before, "{argv:?}");
        }
        flashscope_trace::Trace::open(std::path::Path::new(&out)).expect("a trace");
    }
}
