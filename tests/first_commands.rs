//! What README tells a newcomer to type, typed: three commands to an answer.

use std::process::{Command, Stdio};

use flashscope_tests::{TempDir, cannot_record, flashscope, output, skip, top};

/// The words of README's first block, without sudo and comments; of its alternatives the first.
fn commands() -> Vec<Vec<String>> {
    let readme = std::fs::read_to_string(top().join("README.md")).expect("README");
    let block = readme.split_once("## Three commands").expect("a heading").1;
    let lines = block.lines().skip_while(|line| !line.starts_with("    ")).take_while(|line| line.starts_with("    "));
    let words = |line: &str| line.split('#').next().unwrap_or("").split_whitespace().map(str::to_owned).collect();
    lines.map(words).collect()
}

#[test]
fn they_name_who_wrote_and_where() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let commands = commands();
    assert_eq!(commands.len(), 3, "{commands:?}");
    let dir = TempDir::new("first-commands");
    // On a disk, not in memory.
    let data = top().join("target/tmp/first-commands");
    std::fs::create_dir_all(&data).expect("made");
    let file = data.join("written-by-dd");
    // Over and over until it is told to end: whenever the recording begins, it is in it.
    let go = data.join("go");
    std::fs::write(&go, "").expect("made");
    let script = format!(
        "for i in $(seq 200); do [ -e {} ] || break; dd if=/dev/zero of={} bs=1M count=16 conv=fsync; sleep 1; done",
        go.display(),
        file.display()
    );
    let mut work = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).spawn().expect("sh starts");
    let mut said = String::new();
    for words in &commands {
        assert_eq!(words[..2], ["sudo", "flashscope"], "{words:?}");
        let ran = output(flashscope().args(&words[2..]).current_dir(dir.path()));
        assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
        said = String::from_utf8_lossy(&ran.stdout).into_owned();
    }
    std::fs::remove_file(&go).expect("made");
    work.wait().expect("ended");
    std::fs::remove_file(&file).expect("dd has written it");
    // The report: who (dd), what (its file), and the findings before all tables.
    let headings = said.lines().zip(said.lines().skip(1)).filter(|(_, next)| next.trim_start().starts_with("---"));
    let table = headings.map(|(heading, _)| heading).next().unwrap_or_else(|| panic!("no table: {said}"));
    let at = |wanted: &str| said.lines().position(|line| line.trim() == wanted.trim());
    assert!(at("Findings").is_some() && at("Findings") < at(table), "{said}");
    assert!(said.contains("dd (") || said.contains("dd ["), "{said}");
    assert!(said.contains("written-by-dd"), "{said}");
}

/// A copy of this machine's agent with another text at that place, of the same length.
fn changed(from: &str, to: &str) -> Vec<u8> {
    let agent = flashscope_targets::host_agent().expect("this machine's agent");
    let mut bytes = std::fs::read(agent).expect("read");
    assert_eq!(from.len(), to.len());
    let places: Vec<usize> =
        bytes.windows(from.len()).enumerate().filter(|(_, here)| *here == from.as_bytes()).map(|(at, _)| at).collect();
    assert_eq!(places.len(), 1, "{from}");
    bytes[places[0]..places[0] + from.len()].copy_from_slice(to.as_bytes());
    bytes
}

#[test]
fn an_agent_of_another_build_is_told_and_of_another_stream_refused() {
    let dir = TempDir::new("another-build");
    let agent = dir.path().join("flashscope-agent");
    let doctor = |bytes: Vec<u8>| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(&agent, bytes).expect("an agent");
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).expect("executable");
        let ran = output(flashscope().args(["doctor", "--json", "--agent"]).arg(&agent));
        (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned(), ran.stdout)
    };
    let (_, said, facts) = doctor(std::fs::read(flashscope_targets::host_agent().expect("an agent")).expect("read"));
    assert!(!said.contains("build"), "{said}");
    let facts: serde_json::Value = serde_json::from_slice(&facts).expect("JSON");
    let build = facts["agent"]["build"].as_str().expect("a build").to_owned();
    assert!(build.len() == 16 && build.bytes().all(|c| c.is_ascii_hexdigit()), "{build}");

    let other = format!("stream version 1, build {}", "0".repeat(16));
    let (status, said, facts) = doctor(changed(&format!("stream version 1, build {build}"), &other));
    assert_eq!(said.lines().count(), 1, "{said}");
    let words = format!("the agent is of another build ({}) than this flashscope ({build})", "0".repeat(16));
    assert!(said.starts_with(&format!("flashscope: {}: ", agent.display())) && said.contains(&words), "{said}");
    assert!(matches!(status, Some(0 | 1)) && !facts.is_empty(), "it is used all the same: {status:?}");

    let (status, said, facts) = doctor(changed("stream version 1, build", "stream version 7, build"));
    assert!(status == Some(2) && facts.is_empty() && said.lines().count() == 1, "{status:?}: {said}");
    assert!(said.contains("the agent writes stream version 7, and this flashscope reads version 1"), "{said}");

    // An agent of before says no build.
    let (_, said, _) = doctor(changed(", build ", ", bauld "));
    assert!(said.contains("of another build (unknown)"), "{said}");
}
