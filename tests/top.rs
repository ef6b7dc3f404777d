//! `top`: its figures against what programs did, and the terminal that it leaves behind.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use flashscope_tests::{TempDir, cannot_record, flashscope, output, skip, top as tree};
use serde_json::Value;

/// Whether this machine can record; says why not.
fn can_record() -> bool {
    cannot_record().map(skip).is_none()
}

/// 20 MiB directly, and 4 KiB that fsync writes.
const EXPECTED: f64 = (320 * 65536 + 4096) as f64;

#[test]
fn the_sum_of_all_intervals_is_what_was_written() {
    if !can_record() {
        return;
    }
    // Not a tmpfs: it has to reach a disk.
    let dir = tree().join("target/tmp/top");
    std::fs::create_dir_all(&dir).expect("made");
    let prometheus = TempDir::new("top");
    let metrics = prometheus.path().join("flashscope.prom");
    // A picture may come before the recorder is armed: it is once it shows what this one syncs.
    let sign = dir.join("sign");
    let script = format!("for i in $(seq 600); do echo >{0}; sync {0}; sleep 0.2; done", sign.display());
    let mut signs = Command::new("sh").args(["-c", &script]).spawn().expect("sh starts");
    let mut child = flashscope()
        .args(["top", "--json", "--interval", "1", "-d", "120", "--prometheus"])
        .arg(&metrics)
        .stdout(Stdio::piped())
        .spawn()
        .expect("flashscope starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let (mut written, mut syncs, mut peak) = (0.0, 0.0, 0.0_f64);
    let (mut work, mut pictures_after) = (None, 0);
    // Its programs by number: others on this machine may run dd, too.
    let numbers = prometheus.path().join("numbers");
    for line in lines {
        let top: Value = serde_json::from_str(&line.expect("text")).expect("an object a line");
        let rows = top["process"].as_array().expect("rows");
        let named = |row: &Value, name: &str| row["name"].as_str().is_some_and(|of| of.starts_with(name));
        if work.is_none() && rows.iter().any(|row| named(row, "sync ")) {
            signs.kill().ok();
            let file = dir.join("file");
            let script = format!(
                "run() {{ sh -c 'echo $$ >>{1}; exec \"$@\"' sh \"$@\"; }}; run dd if=/dev/zero of={0} bs=64k count=320 oflag=direct \
                 && run dd if=/dev/zero of={0} bs=4k count=1 conv=fsync; rm {0}",
                file.display(),
                numbers.display()
            );
            work = Some(Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).spawn().expect("sh starts"));
        }
        let interval = top["interval_s"].as_f64().expect("known");
        let numbers = std::fs::read_to_string(&numbers).unwrap_or_default();
        for row in rows {
            if numbers.lines().any(|number| row["name"] == format!("dd ({number})")) {
                written += row["written_bytes_per_s"].as_f64().unwrap_or(0.0) * interval;
                syncs += row["syncs_per_s"].as_f64().unwrap_or(0.0) * interval;
                peak = peak.max(row["times"]["p99_ns"].as_f64().unwrap_or(0.0));
            }
        }
        assert_eq!(top["dropped"], 0);
        // However long it takes: two pictures after the last of it was seen it is stopped.
        pictures_after += u32::from(written >= EXPECTED && syncs > 0.99);
        if pictures_after == 3 {
            output(Command::new("kill").args(["-INT", &child.id().to_string()]));
        }
    }
    signs.kill().ok();
    signs.wait().expect("ended");
    assert!(child.wait().expect("ended").success());
    work.expect("a picture came").wait().expect("ended");
    // The file system's own blocks come on top.
    assert!((EXPECTED..EXPECTED + 262_144.0).contains(&written), "{written} instead of {EXPECTED} bytes");
    assert!((syncs - 1.0).abs() < 0.01, "{syncs} fsyncs");
    assert!(peak > 0.0);
    let metrics = std::fs::read_to_string(&metrics).expect("kept");
    assert!(metrics.contains("# TYPE flashscope_written_bytes_per_second gauge\n"), "{metrics}");
    assert!(metrics.ends_with("flashscope_dropped_total 0\n"), "{metrics}");
    let sample = |line: &str| line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok());
    assert!(metrics.lines().all(|line| line.starts_with('#') || sample(line)), "{metrics}");
}

/// Devices, applications and open files have names while the recording goes on.
#[test]
fn rows_have_names() {
    if !can_record() {
        return;
    }
    let dir = tree().join("target/tmp/top-names");
    std::fs::create_dir_all(&dir).expect("made");
    let file = dir.join("open");
    // One process keeps it open, and the page cache has it.
    let script = "exec >>\"$1\"; for i in $(seq 600); do echo line; sync \"$1\"; sleep 0.1; done";
    let mut writer = Command::new("bash").args(["-c", script, "bash"]).arg(&file).spawn().expect("bash starts");
    let process = format!("bash ({})", writer.id());
    let mut child = flashscope()
        .args(["top", "--json", "-d", "60", "--events", "block,cache,syscall"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("flashscope starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut found = None;
    for line in lines {
        let top: Value = serde_json::from_str(&line.expect("text")).expect("an object a line");
        let rows = |by: &str| top[by].as_array().expect("rows").clone();
        let of_file = rows("file").into_iter().find(|row| row["label"].as_str() == file.to_str());
        let users = |row: &Value| row["processes"].as_array().is_some_and(|all| all.contains(&"bash".into()));
        if let Some(row) = of_file.filter(users) {
            found = Some((row, rows("device"), rows("app")));
            output(Command::new("kill").args(["-INT", &child.id().to_string()]));
            break;
        }
    }
    writer.kill().ok();
    writer.wait().expect("ended");
    child.wait().expect("ended");
    std::fs::remove_dir_all(&dir).ok();
    let (row, devices, apps) = found.expect("the file is named while it is open");
    assert!(row["written_bytes_per_s"].as_f64().is_some_and(|bytes| bytes > 0.0), "{row}");
    let on = row["name"].as_str().and_then(|name| name.split_once(" inode ")).expect("an inode").0;
    let device = devices.iter().find(|row| row["name"] == on).expect("its device");
    let mounts = std::fs::read_to_string("/proc/mounts").expect("readable");
    let label = device["label"].as_str().expect("a name");
    assert!(mounts.lines().any(|mount| mount.split(' ').nth(1).is_some_and(|at| label.contains(at))), "{device}");
    assert!(!apps.is_empty() && apps.iter().all(|row| row["name"] != process.as_str()), "{apps:?}");
}

/// A line for each interval, the last one at the end of the time, and all of them from the start of the recording on.
#[test]
fn each_interval_has_a_line_up_to_the_end_of_the_time() {
    if !can_record() {
        return;
    }
    for (args, intervals) in [
        (&["-d", "1"][..], &[1.0][..]),
        (&["-d", "0.3"], &[0.3]),
        (&["-d", "2.5"], &[1.0, 1.0, 0.5]),
        (&["-d", "1", "--interval", "3600"], &[1.0]),
    ] {
        let ran = output(flashscope().args(["top", "--json"]).args(args));
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
        // A picture may take longer than an interval on a busy machine: then one line is of the time of two, none is early.
        assert!((1..=intervals.len()).contains(&lines.len()), "{args:?}: {text}");
        let first = lines[0]["interval_s"].as_f64().expect("known");
        assert!(first >= intervals[0] - 0.01, "{args:?}: {first} instead of {} s", intervals[0]);
        let mut time = 0.0;
        for line in &lines {
            time += line["interval_s"].as_f64().expect("known");
            assert!((line["time_s"].as_f64().expect("known") - time).abs() < 1e-6, "{args:?}: {text}");
        }
        let asked: f64 = intervals.iter().sum();
        assert!(time >= asked - 0.01, "{args:?}: the last line is of {time} s");
    }
}

#[test]
fn the_terminal_is_put_back() {
    if !can_record() {
        return;
    }
    let dir = TempDir::new("top-terminal");
    let binary = flashscope().get_program().to_owned();
    let log = dir.path().join("typescript");
    // Interrupted once its screen is there, and again where that came before it listened. (The log begins with this command.)
    let interrupted = format!(
        "-d 120 & until grep -q '[?]1049h' {0}; do kill -0 $! || break; sleep 0.1; done; \
         for i in $(seq 30); do kill -INT $!; sleep 1; grep -q '[?]1049l' {0} && break; done; wait $!",
        log.display()
    );
    // A second signal ends it at once.
    let twice = format!(
        "-d 120 & until grep -q '[?]1049h' {0}; do kill -0 $! || break; sleep 0.1; done; sleep 1; kill $!; kill $!; wait $! || true",
        log.display()
    );
    let quit = interrupted.replace("-INT", "-QUIT");
    for (end, status) in [("-d 2", 0), (&interrupted, 0), (&quit, 0), (&twice, 0)] {
        let command = format!("{} top {end}", binary.display());
        // script gives it a terminal, and ends as it does.
        let ran = output(Command::new("script").args(["-qfec", &command]).arg(&log).stdin(Stdio::null()));
        let text = std::fs::read_to_string(&log).expect("a typescript");
        let (enter, leave) = (text.find("\u{1b}[?1049h"), text.rfind("\u{1b}[?1049l"));
        assert!(enter.is_some() && leave > enter, "{end}: {text:?}");
        assert_eq!(ran.status.code(), Some(status), "{end}: {text:?}");
    }
}

/// At no moment before the recorder is ready is a signal an error.
#[test]
fn it_can_be_ended_before_it_records() {
    if !can_record() {
        return;
    }
    for delay in [20, 50, 80, 120, 160, 200, 250, 300, 400] {
        let mut command = flashscope();
        command.args(["top", "--json", "-d", "60"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().expect("flashscope starts");
        std::thread::sleep(std::time::Duration::from_millis(delay));
        output(Command::new("kill").args(["-INT", &child.id().to_string()]));
        let ended = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        // None: it had no handler yet, and the signal itself ended it.
        assert!(matches!(ended.status.code(), Some(0) | None), "{delay} ms: {}: {stderr}", ended.status);
        assert_eq!(stderr, "", "{delay} ms");
    }
}

/// A window that is closed takes its terminal with it.
#[test]
fn it_ends_with_its_terminal() {
    if !can_record() {
        return;
    }
    let dir = TempDir::new("top-hangup");
    let (log, number) = (dir.path().join("typescript"), dir.path().join("number"));
    let binary = flashscope().get_program().to_owned();
    let command = format!("echo $$ >{}; exec {} top", number.display(), binary.display());
    let mut script =
        Command::new("script").args(["-qfec", &command]).arg(&log).stdin(Stdio::null()).spawn().expect("script");
    let until = |is: &dyn Fn() -> bool| {
        (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            is()
        })
    };
    assert!(until(&|| std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\u{1b}[?1049h"))), "no picture");
    script.kill().expect("killed");
    script.wait().expect("ended");
    let number = std::fs::read_to_string(&number).expect("its number");
    let running = format!("/proc/{}/exe", number.trim());
    let ended = until(&|| std::fs::read_link(&running).is_err());
    if !ended {
        output(Command::new("kill").args(["-KILL", number.trim()]));
    }
    assert!(ended, "it goes on without its terminal");
}

#[test]
fn what_cannot_be_is_said() {
    for (args, why) in [
        (&["top"][..], "standard output is not a terminal"),
        (&["top", "--json", "--on", "board:armv7"], "comes when it has ended"),
        (&["top", "--json", "--interval", "0"], "--interval: 0.1 to 3600"),
        (&["top", "--json", "-d", "-1"], ""),
        (&["top", "--json", "-d", "1e300"], "--duration: 0.1 to 1000000000 seconds"),
        (&["top", "--json", "-d", "nan"], "--duration: 0.1 to 1000000000 seconds"),
    ] {
        let ran = output(flashscope().args(args));
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(2) && said.contains(why), "{args:?}: {said}");
    }
}
