//! The ssh target against OpenSSH's server on loopback: a private server with its own keys, configuration and port.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flashscope_targets::{Error, Job, OpenOptions, PutFile, PutSource, host_agent, open};

/// A private sshd; it ends, and its directory is removed, with the value.
struct Server {
    child: Child,
    port: u16,
    dir: PathBuf,
    options: OpenOptions,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

fn keygen(path: &Path) {
    let status = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status().unwrap();
    assert!(status.success());
}

/// Starts a server, or prints why it cannot. Its users' TMPDIR is in the server's own directory.
fn server(name: &str) -> Option<Server> {
    server_with_tmpdir(name, None)
}

fn server_with_tmpdir(name: &str, tmpdir: Option<&str>) -> Option<Server> {
    for program in ["/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen"] {
        if !Path::new(program).exists() {
            skip(&format!("{program} is missing; install openssh-server and openssh-client"));
            return None;
        }
    }
    if let Err(error) = host_agent() {
        skip(&error.to_string());
        return None;
    }
    // sshd needs this directory for privilege separation if it runs as root.
    if std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0) {
        std::fs::create_dir_all("/run/sshd").ok();
    }
    let dir = std::env::temp_dir().join(format!("flashscope-ssh-test-{}-{name}", std::process::id()));
    std::fs::create_dir_all(dir.join("tmp")).unwrap();
    keygen(&dir.join("host"));
    keygen(&dir.join("user"));
    keygen(&dir.join("stranger"));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::fs::copy(dir.join("user.pub"), dir.join("authorized")).unwrap();
    let at = |file: &str| dir.join(file).display().to_string();
    // SetEnv: the target's files go to a directory that the test can check.
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\nStrictModes no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nSetEnv TMPDIR={}\n",
        at("host"),
        at("authorized"),
        tmpdir.map_or_else(|| at("tmp"), str::to_owned)
    );
    std::fs::write(dir.join("sshd_config"), config).unwrap();
    let host_key = std::fs::read_to_string(dir.join("host.pub")).unwrap();
    std::fs::write(dir.join("known"), format!("[127.0.0.1]:{port} {host_key}")).unwrap();
    let options = OpenOptions { ssh_options: client(&dir, "user", "known"), ..OpenOptions::default() };
    let child = Command::new("/usr/sbin/sshd")
        .args(["-D", "-e", "-f", &at("sshd_config")])
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(dir.join("log")).unwrap())
        .spawn()
        .unwrap();
    let server = Server { child, port, dir, options };
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if began.elapsed() > Duration::from_secs(10) {
            let log = std::fs::read_to_string(server.dir.join("log")).unwrap_or_default();
            panic!("sshd does not listen: {log}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(server)
}

/// The client's options, without the user's own configuration.
fn client(dir: &Path, key: &str, known: &str) -> Vec<String> {
    let at = |file: &str| dir.join(file).display().to_string();
    vec![
        "-F".to_owned(),
        "none".to_owned(),
        "-o".to_owned(),
        format!("IdentityFile={}", at(key)),
        "-o".to_owned(),
        "IdentitiesOnly=yes".to_owned(),
        "-o".to_owned(),
        "IdentityAgent=none".to_owned(),
        "-o".to_owned(),
        format!("UserKnownHostsFile={}", at(known)),
        "-o".to_owned(),
        "GlobalKnownHostsFile=none".to_owned(),
        "-o".to_owned(),
        "StrictHostKeyChecking=yes".to_owned(),
    ]
}

impl Server {
    fn spec(&self) -> String {
        format!("ssh://127.0.0.1:{}", self.port)
    }

    fn left_behind(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.dir.join("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn wait_until_clean(&self) {
        let began = Instant::now();
        while !self.left_behind().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(10), "left behind: {:?}", self.left_behind());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn job(argv: &[&str]) -> Job {
    Job { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..Job::default() }
}

/// A command that takes half a minute without output before its end.
fn slow(file: &Path) -> Job {
    let file = file.display().to_string();
    job(&[
        "bench", "read", "--file", &file, "--create", "--size", "65536", "--contents", "zero", "--seed", "1",
        "--count", "300", "--request", "16", "--pattern", "sequential", "--interarrival-us", "100000", "--readahead",
        "keep",
    ])
}

/// Pids of the agents that were put into the server's directory.
fn agents(server: &Server) -> Vec<String> {
    let tmp = server.dir.join("tmp");
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe.starts_with(&tmp)))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn wait_for_agent(server: &Server) -> String {
    let began = Instant::now();
    loop {
        if let Some(pid) = agents(server).first() {
            return pid.clone();
        }
        assert!(began.elapsed() < Duration::from_secs(20), "the agent was not started");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_no_agent(server: &Server) {
    let began = Instant::now();
    while !agents(server).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10), "agents still run: {:?}", agents(server));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_command_runs_and_nothing_stays() {
    let Some(server) = server("run") else { return };
    let target = open(&server.spec(), &server.options).unwrap();
    let mut out = Vec::new();
    let outcome = target.run(&job(&["probe"]), &mut out).unwrap();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let facts: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(facts["kernel"]["machine"], std::env::consts::ARCH);
    assert_eq!(server.left_behind(), Vec::<PathBuf>::new());
}

#[test]
fn usage_errors_come_back_with_status_and_stderr() {
    let Some(server) = server("usage") else { return };
    let target = open(&server.spec(), &server.options).unwrap();
    let outcome = target.run(&job(&["nosuch;touch", "it's $HOME"]), &mut Vec::new()).unwrap();
    assert_eq!(outcome.status, 2);
    assert!(outcome.stderr.contains("nosuch;touch"), "{}", outcome.stderr);
}

#[test]
fn files_are_put_and_fetched_and_removed() {
    let Some(server) = server("files") else { return };
    let target = open(&server.spec(), &server.options).unwrap();
    let path = server.dir.join("it's a file").display().to_string();
    let bytes: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    let put = |source| PutFile { path: path.clone(), mode: 0o640, source };
    let mut with_file = job(&["probe"]);
    with_file.put = vec![put(PutSource::Bytes(bytes.clone()))];
    with_file.get = vec![path.clone(), "/proc/mounts".to_owned()];
    let outcome = target.run(&with_file, &mut Vec::new()).unwrap();
    assert!(outcome.files[1].1.metadata().unwrap().len() > 0, "files of /proc say 0 bytes and have some");
    assert_eq!(std::fs::read(&outcome.files[0].1).unwrap(), bytes);
    assert!(!Path::new(&path).exists(), "what was put is removed");

    std::fs::write(&path, "someone's own").unwrap();
    with_file.put = vec![put(PutSource::Path(server.dir.join("known")))];
    let error = target.run(&with_file, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::PutExists { .. }), "{error}");
    server.wait_until_clean();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "someone's own", "and is not removed either");

    let mut missing = job(&["probe"]);
    missing.get = vec!["/nonexistent/file".to_owned()];
    let error = target.run(&missing, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("cannot get /nonexistent/file") && error.lines().count() == 1, "{error}");
}

#[test]
fn refused_unknown_and_unauthorised_are_different_errors() {
    let Some(server) = server("errors") else { return };
    let error = |spec: &str, ssh_options: Vec<String>| {
        let options = OpenOptions { ssh_options, ..OpenOptions::default() };
        open(spec, &options).unwrap().run(&job(&["probe"]), &mut Vec::new()).unwrap_err()
    };
    let refused_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = error(&format!("ssh://127.0.0.1:{refused_port}"), server.options.ssh_options.clone());
    assert!(matches!(refused, Error::SshRefused { .. }), "{refused}");
    let stranger = error(&server.spec(), client(&server.dir, "stranger", "known"));
    assert!(matches!(stranger, Error::SshAuth { .. }), "{stranger}");
    let unknown = error(&server.spec(), client(&server.dir, "user", "nosuch"));
    assert!(matches!(unknown, Error::SshHostKey { .. }), "{unknown}");
    for error in [refused, stranger, unknown] {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}

#[test]
fn a_cut_connection_is_told_and_the_far_side_cleans_up() {
    let Some(server) = server("cut") else { return };
    let (spec, options) = (server.spec(), server.options.clone());
    let job = slow(&server.dir.join("data"));
    let running = std::thread::spawn(move || open(&spec, &options).unwrap().run(&job, &mut Vec::new()));
    let agent = wait_for_agent(&server);
    // The parent of the agent is the connection's own sshd.
    let stat = std::fs::read_to_string(format!("/proc/{agent}/stat")).unwrap();
    let parent = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().to_owned();
    assert!(Command::new("kill").args(["-KILL", &parent]).status().unwrap().success());
    let error = running.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::SshCut { .. }), "{error}");
    wait_for_no_agent(&server);
    server.wait_until_clean();
}

#[test]
fn asked_to_stop_the_agent_ends_in_good_order() {
    let Some(server) = server("stop") else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let options = OpenOptions { stop: Some(stop.clone()), ..server.options.clone() };
    let (spec, job) = (server.spec(), slow(&server.dir.join("data")));
    let running = std::thread::spawn(move || open(&spec, &options).unwrap().run(&job, &mut Vec::new()));
    wait_for_agent(&server);
    stop.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let outcome = running.join().unwrap().unwrap();
    assert_ne!(outcome.status, 0, "ended before its time: an outcome of its own, and no cut");
    assert!(began.elapsed() < Duration::from_secs(10));
    wait_for_no_agent(&server);
    server.wait_until_clean();
}

#[test]
fn a_killed_client_leaves_nothing_on_the_far_side() {
    let Some(server) = server("kill") else { return };
    let mut run = std::env::current_exe().unwrap();
    run.pop();
    run.pop();
    run.push("examples/run");
    if !run.is_file() {
        skip(&format!(
            "{} is not built: cargo test builds it, cargo test -p flashscope-targets --test outside does not",
            run.display()
        ));
        return;
    }
    // Before the agent starts, while it is sent, and while it runs.
    for wait_ms in [100, 200, 300, 500, 1500] {
        let mut command = Command::new(&run);
        for option in server.options.ssh_options.chunks(2).skip(1) {
            command.args(option);
        }
        let mut child = command
            .arg(server.spec())
            .args(slow(&server.dir.join(format!("data{wait_ms}"))).argv)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for_no_agent(&server);
        server.wait_until_clean();
    }
}

#[test]
fn what_a_killed_holder_left_is_swept_by_the_next() {
    let Some(server) = server("sweep") else { return };
    let tmp = server.dir.join("tmp");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap()[..8].to_owned();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
    let namespace = namespace.trim_start_matches("pid:[").trim_end_matches(']').to_owned();
    // A directory that names pid 1 (which runs, but did not start at that tick), with a list that names a file.
    let left = |start: u32, namespace: &str, boot: &str| {
        let dir = tmp.join(format!("flashscope_1_{start}_{namespace}_{boot}_00ff"));
        std::fs::create_dir(&dir).unwrap();
        chmod(&dir, 0o700);
        let named = server.dir.join(format!("named-{start}"));
        std::fs::write(&named, "x").unwrap();
        std::fs::write(dir.join("list"), format!("{}\n", named.display())).unwrap();
        chmod(&dir.join("list"), 0o600);
        std::fs::write(dir.join("flashscope-agent"), "x").unwrap();
        (dir, named)
    };
    let dead = left(1, &namespace, &boot);
    let of_another_boot = left(2, "4026539999", "ffffffff");
    // Not removed: directories of another PID namespace, writable by others, a link, and a user's own directory.
    let elsewhere = left(3, "4026539999", &boot);
    let open_to_all = left(4, &namespace, &boot);
    chmod(&open_to_all.0, 0o777);
    let link = tmp.join(format!("flashscope_1_5_{namespace}_{boot}_00ff"));
    std::os::unix::fs::symlink(&elsewhere.0, &link).unwrap();
    let mine = tmp.join("flashscope_notes_of_mine");
    std::fs::write(&mine, "x").unwrap();
    // Lists that other users may have written name nothing for removal: links, and files with more than one name.
    let linked = left(6, &namespace, &boot);
    std::fs::rename(linked.0.join("list"), server.dir.join("trap")).unwrap();
    std::os::unix::fs::symlink(server.dir.join("trap"), linked.0.join("list")).unwrap();
    let hard = left(7, &namespace, &boot);
    std::fs::hard_link(hard.0.join("list"), server.dir.join("second-name")).unwrap();
    let written = left(8, &namespace, &boot);
    chmod(&written.0.join("list"), 0o666);
    let mut strangers = vec![&elsewhere, &open_to_all];
    let owned_by_another = is_root().then(|| {
        let theirs = left(9, &namespace, &boot);
        std::os::unix::fs::chown(&theirs.0, Some(65534), Some(65534)).unwrap();
        theirs
    });
    strangers.extend(&owned_by_another);

    open(&server.spec(), &server.options).unwrap().run(&job(&["probe"]), &mut Vec::new()).unwrap();
    for (dir, named) in [&dead, &of_another_boot] {
        assert!(!dir.exists() && !named.exists(), "{}", dir.display());
    }
    for (dir, named) in [&linked, &hard, &written] {
        assert!(!dir.exists() && named.exists(), "{}", dir.display());
    }
    for (dir, named) in &strangers {
        assert!(dir.join("flashscope-agent").exists() && named.exists(), "{}", dir.display());
    }
    let mut kept: Vec<PathBuf> = strangers.iter().map(|(dir, _)| dir.clone()).chain([link, mine]).collect();
    kept.sort();
    let mut left = server.left_behind();
    left.sort();
    assert_eq!(left, kept);
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

/// Another user who puts a program in place of ours as fast as possible.
struct Attacker {
    child: Child,
    stop: PathBuf,
}

impl Attacker {
    fn start(server: &Server, directory: &Path, marker: &Path) -> Attacker {
        let stop = server.dir.join("stop");
        let evil = server.dir.join("evil");
        std::fs::write(&evil, format!("#!/bin/sh\nid -u >>{}\n", marker.display())).unwrap();
        chmod(&evil, 0o755);
        let script = format!(
            "cd {}; while [ ! -e {} ]; do for f in flashscope_*; do [ -e \"$f\" ] || continue; \
             if [ -d \"$f\" ]; then mv \"$f\" gone && mkdir \"$f\" && cp {evil} \"$f/flashscope-agent\"; \
             else rm -f \"$f\" && cp {evil} \"$f\"; fi; done; done",
            directory.display(),
            stop.display(),
            evil = evil.display()
        );
        let child = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", &script])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Attacker { child, stop }
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        std::fs::write(&self.stop, "").ok();
        self.child.wait().ok();
    }
}

#[test]
fn another_user_cannot_swap_the_agent_before_it_runs() {
    if !is_root() {
        return skip("root is needed to attack as another user");
    }
    for (mode, name) in [(0o777, "open"), (0o1777, "sticky"), (0o775, "group")] {
        let place = std::env::temp_dir().join(format!("flashscope-ssh-swap-{}-{name}", std::process::id()));
        std::fs::create_dir_all(place.join("below")).unwrap();
        // The directory itself, or the one above it, is writable by another user.
        std::os::unix::fs::chown(&place, Some(0), Some(65534)).unwrap();
        std::os::unix::fs::chown(place.join("below"), Some(0), Some(65534)).unwrap();
        chmod(&place.join("below"), mode);
        chmod(&place, mode);
        let Some(server) =
            server_with_tmpdir(&format!("swap-{name}"), Some(&place.join("below").display().to_string()))
        else {
            return;
        };
        let marker = server.dir.join("ran");
        std::fs::write(&marker, "").unwrap();
        chmod(&marker, 0o666);
        chmod(&server.dir, 0o755);
        let attacker = Attacker::start(&server, &place.join("below"), &marker);
        let target = open(&server.spec(), &server.options).unwrap();
        for _ in 0..3 {
            let outcome = target.run(&job(&["probe"]), &mut Vec::new()).unwrap();
            assert_eq!(outcome.status, 0, "{name}: {}", outcome.stderr);
        }
        drop(attacker);
        assert_eq!(std::fs::read_to_string(&marker).unwrap(), "", "{name}: the attacker's program ran");
        std::fs::remove_dir_all(&place).unwrap();
    }
}

#[test]
fn a_directory_that_takes_no_files_is_passed_over() {
    // No user can create a file there, root included.
    let Some(server) = server_with_tmpdir("dirs", Some("/proc/self")) else { return };
    let mut direct = Command::new("ssh");
    direct.args(&server.options.ssh_options).args(["-p", &server.port.to_string(), "127.0.0.1", "echo $TMPDIR"]);
    assert_eq!(direct.output().unwrap().stdout, b"/proc/self\n", "the server's setting is in force");
    let target = open(&server.spec(), &server.options).unwrap();
    assert_eq!(target.run(&job(&["probe"]), &mut Vec::new()).unwrap().status, 0);
}
