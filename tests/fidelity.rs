//! `bench replay` of everything a program asks of its files, recorded by strace on a board and done again there: the device
//! gets the same requests in the same order, and it takes as long.

use flashscope_tests::{Booted, Plan, TempDir, events, flashscope, stdout};
use flashscope_trace::{BlockAction, EventKind, RequestFlags, RequestKind};

const AGENT: &str = "/flashscope/agent";
const FILM_BYTES: u64 = 4 << 20;
const CALLS: &str = "read,pread64,write,pwrite64,_llseek,openat,open,close,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,ftruncate64,ftruncate";

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

/// Programs of all lengths and orders, the same for the same number: reads of a film in and out of order, settings that are renamed
/// into place, synced logs, and pauses.
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
        text += &match draw(4) {
            0 => format!("busybox dd if=/mnt/film of=/dev/null bs=64k skip={} count={}", draw(40), 1 + draw(20)),
            1 => format!("busybox dd if=/mnt/film of=/dev/null bs=4k skip={} count={}", draw(900), 1 + draw(60)),
            2 => format!("busybox dd if=/dev/zero of=/mnt/log{step} bs={}k count=8 conv=fsync", 4 << draw(4)),
            _ => format!(
                "busybox dd if=/dev/zero of=/mnt/conf.tmp bs=4k count={} conv=fsync\nbusybox mv /mnt/conf.tmp /mnt/conf",
                1 + draw(3)
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
    if std::env::var_os("FLASHSCOPE_TEST_WHOLE").is_some() {
        all.extend((4..=20).map(|number| (format!("program {number}"), program(number))));
    }
    all
}

/// Requests for data that went to the driver, in order: reads or writes, and bytes. The journal's and the directory's blocks
/// are marked as metadata: where those lie is another file's business.
fn requests(booted: &Booted, since_ns: u64) -> Vec<(RequestKind, u64)> {
    let mut found = Vec::new();
    events(&booted.recording(0), |event| {
        if let EventKind::Block(block) = &event.kind
            && block.action == BlockAction::Issue
            && block.bytes > 0
            && event.time.0 >= since_ns
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

fn plan(lines: &[&str], files: Vec<(&'static str, u32, Vec<u8>)>) -> Plan<'static> {
    let mut plan = Plan::new("armv7-blk", "6.1");
    plan.packages = &["busybox", "strace"];
    plan.files = files;
    plan.lines = lines.iter().map(|&line| line.to_owned()).collect();
    plan
}

#[test]
fn a_replay_asks_the_device_for_the_same_in_the_same_time() {
    let dir = TempDir::new("fidelity");
    for (name, program) in programs() {
        let film = format!("create /mnt/film {FILM_BYTES} random 1");
        let traced = format!(
            "run traced strace --quiet=all -f -ttt -T -y -Y -s 0 -e trace={CALLS} -o /tmp/strace busybox sh /program"
        );
        let recorded = plan(
            &[
                &film,
                "run sync busybox sync",
                "write /proc/sys/vm/drop_caches 3",
                "record-start --events block --mode ring --ring 8192",
                &traced,
                "run settle busybox sync",
                "record-stop",
                "get /tmp/strace",
            ],
            vec![("/program", 0o644, program.as_bytes().to_vec())],
        )
        .boot();
        assert_eq!(
            recorded.step("traced").status,
            Some(0),
            "{}",
            String::from_utf8_lossy(&recorded.step("traced").stderr)
        );
        let copy = recorded.session.steps.iter().flat_map(|step| &step.files).find(|file| file.path == "/tmp/strace");
        let strace = recorded.session.read_file(copy.expect("a copy"), 16 << 20).expect("its bytes");
        let path = dir.path().join("strace");
        std::fs::write(&path, strace).expect("a file");
        let text = stdout(flashscope().args(["bench", "import-strace", "-q", "--under", "/mnt"]).arg(&path));
        // The board's film is not on this host: its size is what was read of it.
        let script: String = text
            .lines()
            .map(|line| match line.strip_suffix(" film") {
                Some(_) => format!("file {FILM_BYTES} film\n"),
                None => format!("{line}\n"),
            })
            .collect();
        let duration = flashscope_study::replays::Script::parse("script", &script).expect("a script").duration_ns();

        let replay = format!(
            "run replay {AGENT} bench replay --script /script --dir /mnt --contents random --drop-caches --timing pauses"
        );
        let again = plan(
            &["record-start --events block --mode ring --ring 8192", &replay, "run settle busybox sync", "record-stop"],
            vec![("/script", 0o644, script.clone().into_bytes())],
        );
        let again = again.boot();
        let result = again.json("replay");
        let took = result["measured"]["end_ns"].as_u64().expect("a time")
            - result["measured"]["begin_ns"].as_u64().expect("a time");
        let (before, after) = (requests(&recorded, 0), requests(&again, result["start_ns"].as_u64().expect("a time")));
        let same = common(&before, &after);
        println!(
            "{name}: {} requests recorded, {} replayed, {same} the same in the same order; {duration} ns recorded, {took} ns replayed",
            before.len(),
            after.len()
        );
        assert!(before.len() >= 8, "{before:?}");
        assert!(same * 100 >= 99 * before.len().max(after.len()), "{name}: {before:?}\n{after:?}\n{script}");
        assert!((took as f64 / duration as f64 - 1.0).abs() <= 0.02, "{name}: {took} ns, recorded {duration} ns");
    }
}
