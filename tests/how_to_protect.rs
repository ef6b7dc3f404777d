//! docs/how-to/protect-one-application.md: its commands, as they stand there, on this host with two small programs.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use flashscope_tests::{TempDir, cannot_record, flashscope, output, skip, stdout, top};
use serde_json::Value;

/// What the document says and a test cannot have: a board, a minute, a mounted device.
const HERE: [(&str, &str); 6] = [
    (" --on ssh://root@board", ""),
    ("sleep 60", "sh recorded.sh"),
    ("/mnt/data", "data"),
    ("writer.replay@6", "writer.replay@0.3"),
    ("strace -f", "strace --quiet=all -f"),
    ("--under /var/log", "--under \"$PWD/log\""),
];

/// The command of the document that begins so; there is one.
fn command(text: &str, begin: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| line.starts_with(begin)).collect();
    let [line] = lines[..] else { panic!("{} commands begin with {begin:?}: {lines:?}", lines.len()) };
    HERE.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
}

fn shell(dir: &Path, line: &str) -> Command {
    let mut command = Command::new("bash");
    let program = flashscope().get_program().to_owned();
    let function = "flashscope() { \"$PROGRAM\" \"$@\"; }";
    command
        .env("PROGRAM", program)
        .env("FLASHSCOPE_AGENTS", top().join("agent/build"))
        .current_dir(dir)
        .args(["-ec", &format!("{function}\n{line}")]);
    command
}

fn begin(dir: &Path, line: &str) -> Child {
    shell(dir, line).stdin(Stdio::null()).spawn().expect("bash")
}

/// What is recorded: until the programs have done their work.
const RECORDED: &str = "touch recording; until [ -e done ]; do sleep 0.1; done; sleep 0.2; rm recording done";
/// Called `player`, it reads a film; the other writes a log, from the moment when strace follows it.
const PLAYER: &str =
    "until [ -e recording ]; do sleep 0.1; done; ./player if=film of=/dev/null bs=64k count=40 status=none; touch done";
const WRITER: &str = "for _ in $(seq 100); do grep -q 'TracerPid:.0$' /proc/$$/status || break; sleep 0.1; done
exec dd if=/dev/zero of=log/file bs=64k count=32 conv=fsync status=none";

#[test]
fn the_commands_of_the_guide_lead_from_recordings_to_figures() {
    let lacks = ["strace", "jq"].into_iter().find(|program| Command::new(program).arg("--version").output().is_err());
    if let Some(why) = cannot_record().or(lacks) {
        return skip(why);
    }
    let text = std::fs::read_to_string(top().join("docs/how-to/protect-one-application.md")).expect("the document");
    let dir = TempDir::new("protect");
    let dir = dir.path();
    let run = |line: &str| stdout(&mut shell(dir, line));
    run("mkdir data log; cp \"$(command -v dd)\" player; head -c 4M /dev/urandom > film; sync");
    std::fs::write(dir.join("recorded.sh"), RECORDED).expect("a script");

    // Steps 1 and 2.
    assert!(text.contains("sync; echo 3 >\n   /proc/sys/vm/drop_caches"));
    for (name, beside) in
        [("alone.dat", ""), ("together.dat", "dd if=/dev/zero of=log/other bs=64k count=200 conv=fsync status=none &")]
    {
        run("sync; echo 3 > /proc/sys/vm/drop_caches");
        let mut player = begin(dir, &format!("{beside} {PLAYER}"));
        let line =
            text.lines().find(|line| line.contains("flashscope record") && line.contains(name)).expect("a command");
        run(&HERE.iter().fold(line.trim().to_owned(), |line, (from, to)| line.replace(from, to)));
        assert!(player.wait().expect("the player").success());
    }

    // Step 3.
    let alone = run(&command(&text, "flashscope report alone.dat --process player"));
    let together = run(&command(&text, "flashscope report together.dat --process player"));
    for report in [&alone, &together] {
        assert!(report.contains("Stages") && report.contains("Q2C") && report.contains("player ("), "{report}");
    }

    // Step 4.
    run(&command(&text, "flashscope bench replay alone.dat"));
    let script = std::fs::read_to_string(dir.join("player.replay")).expect("a script");
    assert!(script.contains("\ntask player\n"), "{script}");
    let reads = |from: u64| script.contains(&format!(" {from} 65536\n"));
    assert!((0..40).all(|read| reads(read * 65536)), "{script}");
    let mut writer = begin(dir, WRITER);
    run(&command(&text, "strace -f").replace("-p PID", &format!("-p {}", writer.id())));
    assert!(writer.wait().expect("the writer").success());
    run(&command(&text, "flashscope bench import-strace"));
    let script = std::fs::read_to_string(dir.join("writer.replay")).expect("a script");
    assert_eq!(script.lines().filter(|line| line.starts_with("write ")).count(), 32, "{script}");

    // Step 6, without a setting and with one.
    let replay = command(&text, "flashscope bench replay player.replay");
    let figures = command(&text, "jq -r");
    assert!(text.contains("` ionice=idle`"));
    for (name, change) in [("none", ""), ("idle", "sed -i '/^task /s/$/ ionice=idle/' writer.replay")] {
        run(change);
        run(&replay.replace("none.json", &format!("{name}.json")));
        let printed = run(&figures.replace("none.json", &format!("{name}.json")));
        let rows: Vec<Vec<&str>> = printed.lines().map(|line| line.split('\t').collect()).collect();
        let row = |task: &str| rows.iter().find(|row| row[0] == task).unwrap_or_else(|| panic!("no {task}: {printed}"));
        let number = |task: &str, column: usize| row(task)[column].parse::<f64>().expect("a number");
        assert!(number("player", 1) >= number("player", 2) && number("player", 2) > 0.0, "{printed}");
        assert_eq!((number("player", 3), number("dd", 3)), (0.0, f64::from(32 << 16)), "{printed}");
        let end = std::fs::read(dir.join(format!("{name}.json"))).expect("figures");
        let end: Value = serde_json::from_slice(&end).expect("JSON");
        assert_eq!(end["result"]["tasks"].as_array().map(Vec::len), Some(2));
        assert!(number("dd", 4) >= 0.3, "the other begins 0.3 s later: {printed}");
    }
    assert_eq!(std::fs::read_dir(dir.join("data")).expect("data").count(), 0, "the scripts' files are removed");

    // Step 8.
    run("cp together.dat after.dat");
    let line = text.lines().find_map(|line| line.split('`').find(|part| part.starts_with("flashscope diff")));
    let compared = output(&mut shell(dir, line.expect("flashscope diff")));
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stderr));
}
