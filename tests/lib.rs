//! What the end-to-end tests share: boards with plans of their own, the command, and honest skips.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::flash::{Counts, Geometry, LabelledCounts};
use flashscope_targets::NoProgress;
use flashscope_targets::board::{self, BootOutcome, ImageBuilder, Run};
use flashscope_trace::{Event, Session, Step, Trace};
use serde_json::Value;

mod guards;
pub use guards::{LoopDevice, LoopDisk, Mounted, Running};

/// Boards with raw NAND, and their kernels, that the tests cover; what a board lists is what is tested. A board that is
/// another at another speed is not tested on its own.
pub fn boards_and_kernels() -> Vec<(String, String)> {
    board::list()
        .into_iter()
        .map(|board| board.expect("a shipped board parses"))
        .filter(|board| board.chip().is_some() && !board.inherits_kernels())
        .flat_map(|board| {
            let name = board.name.clone();
            board.kernels.into_iter().map(move |line| (name.clone(), line.name))
        })
        .collect()
}

/// The top of the source tree.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the tree").to_owned()
}

/// The command, of the same build as this program. `tools/run-tests` builds both.
pub fn flashscope() -> Command {
    let me = std::env::current_exe().expect("this program");
    let beside = me.parent().expect("a directory");
    // Tests lie in deps/ below it.
    let built = if beside.ends_with("deps") { beside.parent().expect("a directory") } else { beside };
    let path = built.join("flashscope");
    assert!(
        path.is_file(),
        "{} is missing: build it with `tools/cargo build --workspace --bin flashscope`",
        path.display()
    );
    let mut command = Command::new(path);
    command.env("FLASHSCOPE_AGENTS", top().join("agent/build")).env("NO_COLOR", "1").current_dir(top());
    // A command on a virtual board gets all of stdin, and would wait for the end of what these tests inherit.
    command.stdin(std::process::Stdio::null());
    command
}

/// Why nothing can be recorded on this host, if so.
pub fn cannot_record() -> Option<&'static str> {
    match () {
        () if !is_root() => Some("needs root, to record on this host"),
        // The recorder mounts tracefs for itself where nobody has.
        () if !Path::new("/sys/kernel/tracing").exists() => Some("needs tracefs, which this kernel lacks"),
        () if !tracefs_answers() => {
            Some("tracefs of this kernel does not answer: a task died with its locks (dmesg tells which); reboot")
        }
        () => None,
    }
}

/// Whether tracefs gives an answer within 10 s. A process that it gives none cannot be killed, so that one of an earlier test is
/// looked for first.
fn tracefs_answers() -> bool {
    static ANSWERS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ANSWERS.get_or_init(|| {
        let before = in_tracefs();
        if !before.is_empty() {
            std::thread::sleep(Duration::from_secs(1));
        }
        if before.intersection(&in_tracefs()).next().is_some() {
            return false;
        }
        let mut cat = Command::new("cat");
        cat.arg("/sys/kernel/tracing/trace_clock").stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut cat) = cat.spawn() else { return true };
        let began = std::time::Instant::now();
        while matches!(cat.try_wait(), Ok(None)) {
            if began.elapsed() > Duration::from_secs(10) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    })
}

/// Processes that wait in tracefs, with how often they have waited.
fn in_tracefs() -> BTreeSet<(String, String)> {
    let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    processes
        .filter(|process| {
            let waits_in = text(process.join("wchan"));
            waits_in.starts_with("tracing_") || waits_in.starts_with("instance_")
        })
        .map(|process| {
            let status = text(process.join("status"));
            let waits = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"));
            (process.display().to_string(), waits.unwrap_or_default().to_owned())
        })
        .collect()
}

/// Whether files of loop devices can be recorded on this host; says why not.
pub fn can_record_loops() -> bool {
    if !Path::new("/dev/loop-control").exists() {
        skip("needs loop devices");
        return false;
    }
    cannot_record().map(skip).is_none()
}

/// Runs a command to its end.
pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Runs a command that has to succeed; its stdout.
pub fn stdout(command: &mut Command) -> String {
    let output = output(command);
    let [printed, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{command:?}: {}\n{printed}\n{stderr}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What a command that has to succeed prints as JSON.
pub fn json(command: &mut Command) -> Value {
    serde_json::from_str(&stdout(command)).expect("JSON")
}

/// `report --json` of a trace.
pub fn report(trace: impl AsRef<std::ffi::OsStr>) -> Value {
    json(flashscope().args(["report", "--json"]).arg(trace))
}

/// What a command said on standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// The command behind another one (`unshare`, `timeout`, a shell), with its directory and environment.
pub fn behind(wrapper: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(wrapper[0]);
    outer.args(&wrapper[1..]).arg(command.get_program()).args(command.get_args());
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer.current_dir(command.get_current_dir().map_or_else(top, Path::to_owned));
    outer
}

/// What a command printed is what `flashscope schema NAME` says.
pub fn valid(name: &str, printed: &Value) {
    valid_all(name, std::slice::from_ref(printed));
}

pub fn valid_all(name: &str, printed: &[Value]) {
    let wrong: Vec<String> = errors(&[(name, printed)]).into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
}

fn validator() -> PathBuf {
    top().join("tests/schemas/validate.py")
}

/// Why documents are not what the schemas of these names say: the first error of each. Nothing where there is no validator, which is
/// said.
pub fn errors(documents: &[(&str, &[Value])]) -> Vec<Option<String>> {
    // Looked for once: it takes longer to start than a document to be read.
    static PYTHON: LazyLock<Option<&str>> = LazyLock::new(|| {
        let has = |python: &&str| {
            Command::new(python).arg(validator()).arg("there").output().is_ok_and(|o| o.status.success())
        };
        ["python3", "/usr/bin/python3"].into_iter().find(has)
    });
    let Some(python) = *PYTHON else {
        skip("python3-jsonschema is not installed: no JSON was validated");
        return Vec::new();
    };
    let schema = |name: &str| json(flashscope().args(["schema", name]));
    let asked: Vec<(Value, &[Value])> = documents.iter().map(|(name, all)| (schema(name), *all)).collect();
    let mut child = Command::new(python)
        .arg(validator())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    serde_json::to_writer(child.stdin.take().expect("a pipe"), &asked).expect("python3 reads");
    let ran = child.wait_with_output().expect("python3 ends");
    assert!(ran.status.success(), "the validator failed");
    let found: Vec<Vec<Option<String>>> = serde_json::from_slice(&ran.stdout).expect("a list of errors");
    found.into_iter().flatten().collect()
}

/// A test that cannot run here says why; `tools/run-tests` counts these lines.
pub fn skip(why: &str) {
    println!("skipped: {why}");
}

/// The loop device that `losetup --show` named. It takes over settings that it had with another file: without a write cache it has no
/// flushes.
fn with_write_cache(shown: &[u8]) -> String {
    let device = String::from_utf8_lossy(shown).trim().to_owned();
    let name = device.trim_start_matches("/dev/");
    std::fs::write(format!("/sys/block/{name}/queue/write_cache"), "write back").ok();
    device
}

pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// An empty directory of this test, removed with the value.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(label: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("flashscope-test-{}-{label}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).expect("a temporary directory");
        TempDir(path)
    }

    /// `None` where this host has no loop devices for a test, which is said.
    pub fn for_loops(label: &str) -> Option<TempDir> {
        can_record_loops().then(|| TempDir::new(label))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A directory of the test's own, with a cache for the command.
pub struct Place {
    pub dir: TempDir,
}

impl Place {
    pub fn new(label: &str) -> Place {
        let place = Place { dir: TempDir::new(label) };
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(place.dir.path(), mode).expect("permissions");
        place
    }

    /// `None` where this host cannot record, which is said.
    pub fn to_record(label: &str) -> Option<Place> {
        cannot_record().inspect(|why| skip(why)).is_none().then(|| Place::new(label))
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.at(name), text).expect("a file");
        self.at(name)
    }

    pub fn command(&self, argv: &[&str]) -> Command {
        let mut command = flashscope();
        command.env("FLASHSCOPE_CACHE", self.at("cache")).env("TMPDIR", self.dir.path());
        command.args(argv).stdin(Stdio::null());
        command
    }

    pub fn run(&self, argv: &[&str]) -> Output {
        output(&mut self.command(argv))
    }
}

/// A cache of the test's own, with the kernels and packages of the real one.
pub struct PrivateCache(TempDir);

impl PrivateCache {
    pub fn new(label: &str) -> PrivateCache {
        let dir = TempDir::new(label);
        let real = flashscope_targets::cache_dir().expect("a cache");
        for name in ["kernels", "packages", "apt", "headers", "sources", "modules"] {
            std::fs::create_dir_all(real.join(name)).expect("a cache");
            std::os::unix::fs::symlink(real.join(name), dir.path().join(name)).expect("a link");
        }
        PrivateCache(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Scratch directories, of living and of dead owners.
    pub fn scratch(&self) -> Vec<PathBuf> {
        ["tmp", "run"]
            .iter()
            .filter_map(|name| std::fs::read_dir(self.path().join(name)).ok())
            .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
            .collect()
    }
}

/// A boot with a plan of the test's own, on a chip that is cut into partitions, or on a board's disk.
pub struct Plan<'a> {
    pub board: &'a str,
    pub kernel: &'a str,
    /// Erase blocks of each partition; the rest of the chip becomes one more.
    pub parts: &'a [u64],
    /// More parameters of nandsim, such as its faults.
    pub faults: &'a str,
    /// The board has no chip.
    pub no_nand: bool,
    /// Longer than any test's board takes; what is requested by an environment variable may take more.
    pub timeout: Duration,
    /// With more than one, guest time follows the host's on armv7, where QEMU's -icount then comes to no end.
    pub cpus: u32,
    /// Guest time follows the host's on every board: what takes no times is emulated on a thread a processor, and faster.
    pub in_host_time: bool,
    /// More for the kernel's command line.
    pub cmdline: String,
    /// Kernel modules beside the chip's own, each with its parameters.
    pub modules: &'a [&'a str],
    pub packages: &'a [&'a str],
    /// Of the packages and what they depend on, those whose name begins so; empty: all.
    pub only_packages: &'a [&'a str],
    /// Settings of the board's disk that are not its own: `("completion_ns", "1500000")`.
    pub disk: &'a [(&'a str, &'a str)],
    /// Files of the image.
    pub files: Vec<(&'a str, u32, Vec<u8>)>,
    pub lines: Vec<String>,
}

impl<'a> Plan<'a> {
    pub fn new(board: &'a str, kernel: &'a str) -> Plan<'a> {
        Plan {
            board,
            kernel,
            parts: &[],
            faults: "",
            no_nand: false,
            timeout: Duration::from_secs(600),
            cpus: 1,
            in_host_time: false,
            cmdline: String::new(),
            modules: &[],
            packages: &[],
            only_packages: &[],
            disk: &[],
            files: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Boots; every step of the plan has to succeed.
    pub fn boot(self) -> Booted {
        let board = board::load(self.board).expect("the board");
        let kernel = board.fetch(self.kernel, &NoProgress).expect("the kernel");
        let packages: Vec<String> = self.packages.iter().map(|&name| name.to_owned()).collect();
        let mut packages = board.fetch_packages(&kernel, &packages, &NoProgress).expect("the packages");
        packages.retain(|p| self.only_packages.is_empty() || self.only_packages.iter().any(|n| p.name.starts_with(n)));
        let mut image = ImageBuilder::new(&board).expect("an agent for the board: make agents");
        let mut lines = image.add_port_modules(&kernel).expect("the port's modules");
        let disk: Vec<_> = self.disk.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        if let Some(settings) = board.disk_settings(&disk).expect("settings of a disk") {
            lines.extend(image.add_storage(&kernel, &[], Some(&settings)).expect("the disk"));
        } else if !self.no_nand {
            lines.extend(image.add_nand(&kernel, self.parts).expect("the NAND's modules"));
        }
        if !self.faults.is_empty() {
            let nandsim = lines.last_mut().expect("a line of nandsim's");
            nandsim.push(' ');
            nandsim.push_str(self.faults);
        }
        for module in self.modules {
            let (name, params) = module.split_once(' ').unwrap_or((module, ""));
            for path in image.add_module_closure(&kernel, &[name]).expect("modules") {
                let own = path.ends_with(&format!("/{name}.ko"));
                lines.push(format!("module {path} {}", if own { params } else { "" }).trim_end().to_owned());
            }
        }
        image.add_packages(&packages).expect("packages");
        for (path, mode, bytes) in self.files {
            image.add_file(path, mode, bytes);
        }
        lines.extend(self.lines);
        image.set_plan(&lines);
        let image = image.build().expect("a boot image");
        let mut run = Run { timeout: self.timeout, cmdline: self.cmdline, ..Run::new(&board, &kernel, &image) };
        if self.cpus > 1 {
            run.args = vec!["-smp".to_owned(), self.cpus.to_string()];
            run.icount = board.name != "armv7";
        }
        run.icount &= !self.in_host_time;
        let outcome = board::boot(&run, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
        let session = Session::open(&outcome.port_file()).expect("a port file");
        assert!(session.complete, "the stream is not complete: {:?}", session.losses);
        Booted { outcome, session }
    }
}

/// What a boot left.
pub struct Booted {
    pub outcome: BootOutcome,
    pub session: Session,
}

impl Booted {
    pub fn step(&self, name: &str) -> &Step {
        self.session.step(name).unwrap_or_else(|| panic!("no step {name}"))
    }

    /// The JSON object that a step printed.
    pub fn json(&self, name: &str) -> serde_json::Value {
        let step = self.step(name);
        assert_eq!(step.status, Some(0), "{name}: {}", String::from_utf8_lossy(&step.stderr));
        serde_json::from_slice(&step.stdout).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn recording(&self, index: usize) -> Trace {
        self.session.recording(index).expect("a recording")
    }

    /// Flash commands of the time between a step's begin and its end.
    pub fn counts_of(&self, trace: &Trace, step: &Step) -> LabelledCounts {
        let (begin, end) = (step.begin_ns.expect("a begin"), step.end_ns.expect("an end"));
        let mut counts = Counts::new(&[(0, geometry(trace))]);
        events(trace, |event| {
            if (begin..=end).contains(&event.time.0) {
                counts.event(event);
            }
        });
        counts.finish()
    }
}

pub fn geometry(trace: &Trace) -> Geometry {
    let mtd = &trace.facts_json()["mtd"][0];
    let page = mtd["writesize"].as_u64().expect("a page size");
    let block = mtd["erasesize"].as_u64().expect("a block size");
    Geometry { page_bytes: page as u32, pages_per_block: (block / page) as u32 }
}

/// A recording is whole.
pub fn nothing_lost(trace: &Trace, what: &str) {
    let lost: Vec<_> = trace.losses().iter().filter(|(_, count)| *count > 0).collect();
    assert!(lost.is_empty(), "{what}: {lost:?}");
}

pub fn events(trace: &Trace, mut each: impl FnMut(&Event)) {
    trace.for_each(&mut |event| each(event)).expect("a readable trace");
}

/// `bench raw` as a plan line.
pub fn raw(name: &str, count: u64, length: u64, more: &str) -> String {
    format!("run {name} /flashscope/agent bench raw --mtd 0 --count {count} --length {length}{more}")
}

/// Compiles a workload, a C file below tests/, for a board ("" is this host); static, so that it needs nothing there.
pub fn work(board: &str, source: &str, into: &Path) -> Vec<u8> {
    let compiler = if board.starts_with("armv7") { "arm-linux-gnueabihf-gcc" } else { "gcc" };
    let binary = into.join("work");
    let flags =
        ["-std=c11", "-D_FILE_OFFSET_BITS=64", "-static", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"];
    stdout(Command::new(compiler).args(flags).arg(&binary).arg(top().join("tests").join(source)));
    std::fs::read(binary).expect("a compiled workload")
}

/// Builds a test's own modules, whose sources and Kbuild lie in `dir`, for `armv7` with 6.1: against the headers that a module of ours
/// was built with.
pub fn build_modules_like(ours: &str, dir: &Path) {
    let board = board::load("armv7").expect("the board");
    let kernel = board.fetch("6.1", &NoProgress).expect("the kernel");
    board.prepare_modules(&kernel, &[ours], &NoProgress).expect("a module of ours");
    let headers = flashscope_targets::cache_dir()
        .expect("a cache")
        .join(format!("headers/{}/{}_{}/root/usr/src/linux-headers-{1}", board.arch, kernel.release, kernel.version));
    let mut make = Command::new("make");
    make.env_remove("MAKEFLAGS").arg("-C").arg(headers).arg(format!("M={}", dir.display()));
    make.args(["ARCH=arm", "CROSS_COMPILE=arm-linux-gnueabihf-", "CC=arm-linux-gnueabihf-gcc"]);
    stdout(make.args(["CONFIG_DEBUG_INFO=", "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"]));
}

/// Lines of a plan that make /dev/nullb0: `settings` are null_blk's, by configfs. Its module is to have been loaded with
/// `nr_devices=0`. The boards `armv7-blk` and `x86_64-blk` have such a device of their own, with a file system on it.
pub fn null_block(settings: &[&str]) -> Vec<String> {
    let mut lines = vec!["mount configfs /sys/kernel/config configfs -".to_owned()];
    lines.extend(null_block_device("nullb0", settings));
    lines
}

/// One more of them, where configfs is mounted.
pub fn null_block_device(name: &str, settings: &[&str]) -> Vec<String> {
    let at = format!("/sys/kernel/config/nullb/{name}");
    let mut lines = vec![format!("mkdir {at}")];
    for setting in settings.iter().chain(&["power=1"]) {
        let (key, value) = setting.split_once('=').expect("a setting");
        lines.push(format!("write {at}/{key} {value}"));
    }
    lines.push(format!("device-wait /dev/{name} 2000"));
    lines
}
