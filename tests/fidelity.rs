//! `bench replay` of everything a program asks of its files, recorded on a board and done again there: the device gets the same
//! requests in the same order, and it takes as long. strace records calls, and a trace the faults of mapped files.

use std::ops::RangeBounds;

use flashscope_tests::{Booted, Plan, TempDir, events, flashscope, stdout, work};
use flashscope_trace::{BlockAction, EventKind, RequestFlags, RequestKind};

const AGENT: &str = "/flashscope/agent";
const FILM_BYTES: u64 = 4 << 20;
/// Programs of one boot: a boot with 20 takes longer than it may.
const AT_ONCE: usize = 5;
const CALLS: &str = "dup,dup2,dup3,fcntl64,read,pread64,write,pwrite64,_llseek,openat,open,close,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,ftruncate64,ftruncate";

/// Programs that read and write as a player and a log do: their calls on /mnt, in this order.
const PROGRAMS: [(&str, &str); 3] = [
    ("a film beside its settings", "
busybox dd if=/mnt/film of=/dev/null bs=64k count=16
busybox usleep 200000
busybox dd if=/dev/zero of=/mnt/conf.tmp bs=4k count=1 conv=fsync
busybox mv /mnt/conf.tmp /mnt/conf
busybox dd if=/mnt/film of=/dev/null bs=4k skip=600 count=40
busybox usleep 100000
busybox dd if=/mnt/film of=/dev/null bs=100k skip=20 count=10"),
    ("a log that is synced", "
for i in 1 2 3 4; do busybox dd if=/dev/zero of=/mnt/log$i bs=16k count=8 conv=fsync; busybox usleep 50000; done
busybox rm /mnt/log2"),
    ("reads here and there", "
for i in 9 700 3 512 40 41 42 900 20; do busybox dd if=/mnt/film of=/dev/null bs=4k skip=$i count=3; busybox usleep 20000; done"),
];

/// Programs of all lengths and orders, the same for the same number: reads of a film in and out of order, past the page cache and by
/// two processes at once, settings that are renamed into place, logs that are synced or opened with O_SYNC, O_DSYNC or O_DIRECT,
/// files that are cut, and pauses.
fn program(number: u64) -> String {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut draw = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut text = String::new();
    for step in 0..6 + draw(6) {
        text += &match draw(8) {
            0 => format!("busybox dd if=/mnt/film of=/dev/null bs=64k skip={} count={}", draw(40), 1 + draw(20)),
            1 => format!("busybox dd if=/mnt/film of=/dev/null bs=4k skip={} count={}", draw(900), 1 + draw(60)),
            2 => format!("busybox dd if=/dev/zero of=/mnt/log{step} bs={}k count=8 conv=fsync", 4 << draw(4)),
            3 => format!(
                "busybox dd if=/dev/zero of=/mnt/conf.tmp bs=4k count={} conv=fsync\nbusybox mv /mnt/conf.tmp /mnt/conf",
                1 + draw(3)
            ),
            4 => format!(
                "/bin/dd if=/dev/zero of=/mnt/log{step} bs={}k count={} oflag={}",
                4 << draw(4),
                2 + draw(6),
                ["sync", "dsync", "direct"][draw(3) as usize]
            ),
            5 => format!(
                "/bin/dd if=/mnt/film of=/dev/null bs=32k skip={} count={} iflag=direct",
                draw(80),
                1 + draw(20)
            ),
            6 => format!(
                "busybox dd if=/dev/zero of=/mnt/cut{step} bs=16k count=8 conv=fsync\n/usr/bin/truncate -s {} /mnt/cut{step}\n\
                 /bin/dd if=/dev/zero of=/mnt/cut{step} bs=4k count=2 conv=notrunc,fsync",
                draw(100_000)
            ),
            _ => format!(
                "busybox dd if=/mnt/film of=/dev/null bs=16k skip={} count=12 &\nbusybox usleep {}\n\
                 busybox dd if=/mnt/film of=/dev/null bs=4k skip={} count=20\nwait",
                draw(200),
                20_000 + draw(40_000),
                draw(900)
            ),
        };
        text += &format!("\nbusybox usleep {}\n", 10_000 + draw(200_000));
    }
    text
}

/// FLASHSCOPE_TEST_WHOLE=1: 20 recordings.
fn programs() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        PROGRAMS.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let last = if std::env::var_os("FLASHSCOPE_TEST_WHOLE").is_some() { 20 } else { 4 };
    all.extend((4..=last).map(|number| (format!("program {number}"), program(number))));
    all
}

/// Requests for data that went to the driver, in order: reads or writes, and bytes. The journal's and the directory's blocks
/// are marked as metadata: where those lie is another file's business.
fn requests(booted: &Booted, recording: usize, times: impl RangeBounds<u64>) -> Vec<(RequestKind, u64)> {
    let mut found = Vec::new();
    events(&booted.recording(recording), |event| {
        if let EventKind::Block(block) = &event.kind
            && block.action == BlockAction::Issue
            && block.bytes > 0
            && times.contains(&event.time.0)
            && !block.flags.has(RequestFlags::META)
        {
            found.push((block.flags.kind(), block.bytes));
        }
    });
    found
}

/// How many of both are the same in the same order.
fn common<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    let mut row = vec![0; b.len() + 1];
    for x in a {
        let mut diagonal = 0;
        for (at, y) in b.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if x == y { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    row[b.len()]
}

/// What all programs of a boot leave, so that the next one's files lie where the replay's will.
const CLEAN: &str = "busybox rm -rf /mnt/*\nbusybox sync\n";

fn plan(lines: Vec<String>, mut files: Vec<(String, String)>) -> Booted {
    files.push(("/clean".to_owned(), CLEAN.to_owned()));
    let mut plan = Plan::new("armv7-blk", "6.1");
    plan.packages = &["busybox", "strace", "coreutils"];
    plan.files = files.iter().map(|(path, text)| (path.as_str(), 0o644, text.clone().into_bytes())).collect();
    plan.lines = lines;
    plan.boot()
}

/// All programs in one boot, one after the other, each recorded by itself.
fn record(programs: &[(String, String)]) -> Booted {
    let (mut lines, mut files) = (Vec::new(), Vec::new());
    for (at, (_, program)) in programs.iter().enumerate() {
        files.push((format!("/program{at}"), program.clone()));
        lines.extend([
            format!("create /mnt/film {FILM_BYTES} random 1"),
            format!("run sync{at} busybox sync"),
            "write /proc/sys/vm/drop_caches 3".to_owned(),
            "record-start --events block --mode ring --ring 8192".to_owned(),
            format!(
                "run traced{at} strace --quiet=all -f -ttt -T -y -Y -s 0 -e trace={CALLS} -o /tmp/strace{at} busybox sh /program{at}"
            ),
            format!("run settle{at} busybox sync"),
            "record-stop".to_owned(),
            format!("get /tmp/strace{at}"),
            format!("run clean{at} busybox sh /clean"),
        ]);
    }
    plan(lines, files)
}

/// The replay script of a recorded program.
fn script(dir: &TempDir, recorded: &Booted, at: usize) -> String {
    let name = format!("/tmp/strace{at}");
    let copy = recorded.session.steps.iter().flat_map(|step| &step.files).find(|file| file.path == name);
    let strace = recorded.session.read_file(copy.expect("a copy"), 16 << 20).expect("its bytes");
    let path = dir.path().join("strace");
    std::fs::write(&path, strace).expect("a file");
    let text = stdout(flashscope().args(["bench", "import-strace", "-q", "--under", "/mnt"]).arg(&path));
    // The board's film is not on this host: its size is what was read of it.
    text.lines()
        .map(|line| match line.strip_suffix(" film") {
            Some(_) => format!("file {FILM_BYTES} film\n"),
            None => format!("{line}\n"),
        })
        .collect()
}

#[test]
fn a_replay_asks_the_device_for_the_same_in_the_same_time() {
    println!("recording,requests recorded,requests replayed,same in the same order,recorded ns,replayed ns");
    let apart: Vec<String> = programs().chunks(AT_ONCE).flat_map(compare).collect();
    assert!(apart.is_empty(), "{}", apart.join("\n\n"));
}

/// Records these programs in one boot and replays them in another. What is not the same comes back as text.
fn compare(programs: &[(String, String)]) -> Vec<String> {
    let dir = TempDir::new("fidelity");
    let booted = record(programs);
    let recorded = programs.iter().enumerate().map(|(at, (name, _))| Recorded {
        name: name.clone(),
        script: script(&dir, &booted, at),
        requests: requests(&booted, at, ..),
    });
    replayed(&recorded.collect::<Vec<_>>(), "pauses")
}

/// A program as it was recorded.
struct Recorded {
    name: String,
    script: String,
    requests: Vec<(RequestKind, u64)>,
}

/// Replays these in one boot. What is not the same comes back as text.
fn replayed(recorded: &[Recorded], timing: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for at in 0..recorded.len() {
        lines.extend([
            "record-start --events block --mode ring --ring 8192".to_owned(),
            format!(
                "run replay{at} {AGENT} bench replay --script /script{at} --dir /mnt --contents random --drop-caches --timing {timing}"
            ),
            format!("run settle{at} busybox sync"),
            "record-stop".to_owned(),
            format!("run clean{at} busybox sh /clean"),
        ]);
    }
    let files = recorded.iter().enumerate().map(|(at, one)| (format!("/script{at}"), one.script.clone())).collect();
    let again = plan(lines, files);

    let mut apart = Vec::new();
    for (at, Recorded { name, script, requests: before }) in recorded.iter().enumerate() {
        let duration = flashscope_study::replays::Script::parse("script", script).expect("a script").duration_ns();
        let result = again.json(&format!("replay{at}"));
        let time = |value: &serde_json::Value| value.as_u64().expect("a time");
        let took = time(&result["measured"]["end_ns"]) - time(&result["measured"]["begin_ns"]);
        let after = requests(&again, at, time(&result["start_ns"])..);
        let same = common(before, &after);
        println!("{name},{},{},{same},{duration},{took}", before.len(), after.len());
        assert!(before.len() >= 8, "{before:?}");
        if same * 100 < 99 * before.len().max(after.len()) || (took as f64 / duration as f64 - 1.0).abs() > 0.02 {
            apart.push(format!(
                "{name}: {took} ns, recorded {duration} ns; {same} the same of\n{before:?}\n{after:?}\n{script}"
            ));
        }
    }
    apart
}

/// Seeds of the programs that use mapped files alone.
const MAPPED: [u64; 4] = [1, 2, 3, 4];
const SETTINGS_BYTES: u64 = 1 << 18;

/// strace does not see faults. A trace has them, and `bench replay TRACE --script` makes the script. One recording has all programs, each
/// of which has a name of its own. Pages that a program has changed are written long after it, when a replay's files are gone.
#[test]
fn a_replay_of_faults_asks_the_device_for_the_same_in_the_same_time() {
    let dir = TempDir::new("fidelity-mapped");
    let binary = work("armv7", "fidelity/mapped.c", dir.path());
    let mut plan = Plan::new("armv7-blk", "6.1");
    plan.packages = &["busybox"];
    let paths: Vec<String> = (0..MAPPED.len()).map(|at| format!("/map{at}")).collect();
    plan.files = paths.iter().map(|path| (path.as_str(), 0o755, binary.clone())).collect();
    plan.lines.push("record-start --events block,cache,syscall --mode stream --ring 8192".to_owned());
    for (at, seed) in MAPPED.iter().enumerate() {
        plan.lines.extend([
            format!("create /mnt/film{at} {FILM_BYTES} random 1"),
            format!("create /mnt/settings{at} {SETTINGS_BYTES} random 2"),
            "run sync busybox sync".to_owned(),
            "write /proc/sys/vm/drop_caches 3".to_owned(),
            format!("run mapped{at} /map{at} /mnt/film{at} /mnt/settings{at} {seed}"),
            format!("run clean{at} busybox rm /mnt/film{at} /mnt/settings{at}"),
        ]);
    }
    plan.lines.push("record-stop".to_owned());
    let booted = plan.boot();
    let recorded = (0..MAPPED.len()).map(|at| {
        let program = booted.step(&format!("mapped{at}"));
        assert_eq!(program.status, Some(0), "{}", String::from_utf8_lossy(&program.stderr));
        let mut import = flashscope();
        import.args(["bench", "replay", "-q", "--script", "-", "--process", &format!("map{at}")]);
        let script = stdout(import.arg(booted.outcome.port_file()));
        for line in [format!("file {FILM_BYTES} "), format!("file {SETTINGS_BYTES} "), "fault-write ".to_owned()] {
            assert!(script.contains(&line), "{line}: {script}");
        }
        let times = program.begin_ns.expect("a begin")..program.end_ns.expect("an end");
        Recorded { name: format!("mapped files {at}"), script, requests: requests(&booted, 0, times) }
    });
    let apart = replayed(&recorded.collect::<Vec<_>>(), "recorded");
    assert!(apart.is_empty(), "{}", apart.join("\n\n"));
}
