//! A working directory that somebody else has filled: nothing in it, or in those above it, is run or read unless it was named.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flashscope_tests::{PrivateCache, TempDir, flashscope, is_root, output, skip};

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
    let traced = is_root() && Path::new("/sys/kernel/tracing/instances").exists();
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
