//! Advice that can be checked: situations whose best answer is known are recorded on a board one by one, the command is
//! asked for advice on each, a second boot follows it, and what that gained is held against what was expected.

use std::path::{Path, PathBuf};

use flashscope_tests::{Booted, Plan, TempDir, flashscope, stdout, work};
use flashscope_trace::dat::write_filtered;
use serde_json::Value;

const BOARD: &str = "armv7";
const KERNEL: &str = "6.1";
const KNOB: &str = "/sys/class/bdi/mtd-0/read_ahead_kb";
/// What is gained may be off by so much of the time that was recorded.
const BAR_PERCENT: f64 = 10.0;
/// A change that gains no more than this is not worth advising (crates/analysis, readahead/advise.rs).
const WORTH_PERCENT: f64 = 3.0;

/// The best answer.
#[derive(Clone, Copy, PartialEq)]
enum Best {
    Off,
    /// Nothing; not even this setting of the knob, KiB.
    NotEven(u64),
}

struct Situation {
    name: &'static str,
    /// Program of tests/readahead/situations.c, and its files.
    program: &'static str,
    files: &'static str,
    knob_kib: u64,
    best: Best,
    /// A note that the advice has to give.
    note: Option<&'static str>,
}

const FILM: &str = "/mnt/film";
const BIG: &str = "/mnt/big";
const MANY: &str = "/mnt/a /mnt/b /mnt/c /mnt/d /mnt/e /mnt/f /mnt/g /mnt/h";
const SMALL: &str = "/mnt/s /mnt/t /mnt/u /mnt/v /mnt/w /mnt/x";

/// On flash that the reader reads itself no window beats none, and what is read ahead in vain costs.
const SITUATIONS: [Situation; 11] = [
    Situation {
        name: "a whole file",
        program: "whole",
        files: FILM,
        knob_kib: 128,
        best: Best::NotEven(0),
        note: None,
    },
    Situation {
        name: "random reads",
        program: "random",
        files: BIG,
        knob_kib: 128,
        best: Best::NotEven(0),
        note: None,
    },
    Situation {
        name: "first pages of many files",
        program: "head",
        files: MANY,
        knob_kib: 128,
        best: Best::Off,
        note: None,
    },
    Situation { name: "every fourth page", program: "strided", files: BIG, knob_kib: 128, best: Best::Off, note: None },
    Situation {
        name: "a database's pages",
        program: "database",
        files: BIG,
        knob_kib: 128,
        best: Best::Off,
        note: None,
    },
    Situation {
        name: "a mapping, at random",
        program: "mapped",
        files: BIG,
        knob_kib: 128,
        best: Best::Off,
        note: None,
    },
    Situation {
        name: "small files",
        program: "whole",
        files: SMALL,
        knob_kib: 128,
        best: Best::NotEven(0),
        note: None,
    },
    Situation {
        name: "two programs",
        program: "two",
        files: "/mnt/film /mnt/big",
        knob_kib: 128,
        best: Best::Off,
        note: None,
    },
    Situation {
        name: "WILLNEED that reads nothing",
        program: "willneed",
        files: BIG,
        knob_kib: 0,
        best: Best::NotEven(128),
        note: Some("WILLNEED"),
    },
    Situation {
        name: "first pages, off already",
        program: "head",
        files: MANY,
        knob_kib: 0,
        best: Best::NotEven(128),
        note: None,
    },
    Situation {
        name: "a whole file, off already",
        program: "whole",
        files: FILM,
        knob_kib: 0,
        best: Best::NotEven(128),
        note: None,
    },
];

/// How each situation is run: the knob, and which files are advised.
#[derive(Clone, Copy)]
struct Way {
    kib: u64,
    advice: &'static str,
}

/// A recorder for each group: it notes what the knob says when it begins.
fn boot(groups: &[&[(&Situation, Way)]]) -> Booted {
    let dir = TempDir::new("advice");
    let mut plan = Plan::new(BOARD, KERNEL);
    let mut lines = vec!["mkdir /mnt".to_owned(), "mount mtd0 /mnt jffs2 -".to_owned()];
    let sizes = [(BIG, 3 << 20), (FILM, 600_000)].into_iter();
    let many = MANY.split(' ').map(|file| (file, 100_000)).chain(SMALL.split(' ').map(|file| (file, 7_000)));
    lines.extend(
        sizes.chain(many).zip(1..).map(|((file, size), seed)| format!("create {file} {size} printable {seed}")),
    );
    lines.push("settle jffs2_gcd 200 600000".to_owned());
    let mut index = 0;
    for group in groups {
        lines.push(format!("write {KNOB} {}", group[0].1.kib));
        lines.push("record-start --events flash,cache,syscall --ring 8192".to_owned());
        for (situation, way) in *group {
            lines.push(format!("write {KNOB} {}", way.kib));
            lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
            let Situation { program, files, .. } = situation;
            lines.push(format!("run situation-{index} /situations {program} {} {files}", way.advice));
            index += 1;
        }
        lines.push("record-stop".to_owned());
    }
    (plan.modules, plan.parts, plan.lines) = (&["jffs2"], &[256], lines);
    plan.files.push(("/situations", 0o755, work(BOARD, "readahead/situations.c", dir.path())));
    plan.boot()
}

/// What was recorded of each situation, as a file for the command.
fn traces(booted: &Booted, groups: &[&[(&Situation, Way)]], dir: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for (recording, group) in groups.iter().enumerate() {
        let trace = booted.recording(recording);
        assert_eq!(trace.losses().iter().map(|(_, count)| count).sum::<u64>(), 0, "the recording is whole");
        for _ in *group {
            let step = booted.step(&format!("situation-{}", paths.len()));
            assert_eq!(step.status, Some(0), "{}", String::from_utf8_lossy(&step.stderr));
            let span = step.begin_ns.expect("a begin")..=step.end_ns.expect("an end");
            let path = dir.join(format!("{}.dat", paths.len()));
            write_filtered(&trace, &path, &|record| span.contains(&record.time.0)).expect("a trace.dat");
            paths.push(path);
        }
    }
    paths
}

fn json(command: &str, trace: &Path, more: &[&str]) -> Value {
    serde_json::from_str(&stdout(flashscope().arg(command).arg(trace).arg("--json").args(more))).expect("JSON")
}

/// Time in reads, flash reads.
fn measured(prediction: &Value) -> (f64, f64) {
    let of = |name: &str| prediction["recorded"][name].as_f64().expect("a figure");
    (of("time_ns"), of("flash_reads"))
}

#[test]
fn advice_gains_what_it_says() {
    let (before_dir, after_dir) = (TempDir::new("advice-before"), TempDir::new("advice-after"));
    let first: Vec<_> =
        SITUATIONS.iter().map(|situation| (situation, Way { kib: situation.knob_kib, advice: "normal" })).collect();
    let off_already = first.partition_point(|(_, way)| way.kib > 0);
    let groups = [&first[..off_already], &first[off_already..]];
    let before = traces(&boot(&groups), &groups, before_dir.path());
    let advice: Vec<Value> = before.iter().map(|trace| json("advise", trace, &[])).collect();
    let mut failed = Vec::new();
    let mut then = Vec::new();
    for (situation, said) in SITUATIONS.iter().zip(&advice) {
        let name = situation.name;
        let list = said["advice"].as_array().expect("a list");
        let changes: Vec<&Value> = list.iter().map(|one| &one["advice"]).collect();
        let off = |change: &Value| change["change"] == "set_readahead" && change["kib"] == 0;
        let right = match situation.best {
            Best::Off => changes.len() == 1 && off(changes[0]),
            Best::NotEven(_) => changes.is_empty(),
        };
        if !right || said["readahead_kib_now"] != situation.knob_kib {
            failed.push(format!("{name}, now {}: {changes:?}", said["readahead_kib_now"]));
        }
        let notes = said["notes"].as_array().expect("notes");
        let is_told = |note: &str| notes.iter().any(|told| told.as_str().is_some_and(|told| told.contains(note)));
        if let Some(note) = situation.note.filter(|note| !is_told(note)) {
            failed.push(format!("{name}: no note of {note}: {notes:?}"));
        }
        // What is advised is done; where nothing is, what should not be better.
        let kib = changes.iter().find_map(|change| change["kib"].as_u64());
        let other = if let Best::NotEven(kib) = situation.best { kib } else { situation.knob_kib };
        then.push((situation, Way { kib: kib.unwrap_or(other), advice: "normal" }));
    }
    // Of two programs with opposite needs one file can be advised instead of the knob: no better where a window gains nothing.
    let two = SITUATIONS.iter().position(|situation| situation.program == "two").expect("two programs");
    then.push((&SITUATIONS[two], Way { kib: 128, advice: "random-second" }));
    let after = traces(&boot(&[&then]), &[&then], after_dir.path());
    println!("gain in time in reads, and in flash reads: expected, measured; in per cent of what was recorded");
    for (index, &(situation, way)) in then.iter().enumerate() {
        let name = situation.name;
        let windows = format!("{},{}", situation.knob_kib, way.kib);
        let of = if way.advice == "normal" { index } else { two };
        let old = json("predict", &before[of], &["--readahead", &windows]);
        let new = json("predict", &after[index], &["--readahead", "0"]);
        let ((time, flash), (time_after, flash_after)) = (measured(&old), measured(&new));
        let gained = [percent(time - time_after, time), percent(flash - flash_after, flash)];
        if way.advice != "normal" {
            println!("{name:>28}: one file advised instead:     {:6.1},        {:6.1}", gained[0], gained[1]);
            let knob = percent(time - measured(&json("predict", &after[two], &["--readahead", "0"])).0, time);
            if gained[0] > knob + WORTH_PERCENT {
                failed.push(format!("{name}: {:.1} % with one file advised, {knob:.1} % by the knob", gained[0]));
            }
            continue;
        }
        let expected = |figure: &str, of: f64| {
            let row = |row: usize| old["rows"][row][figure].as_f64().expect("a prediction");
            percent(row(0) - row(1), of)
        };
        let wanted = [expected("time_ns", time), expected("flash_reads", flash)];
        println!(
            "{name:>28}: {:3} to {:3} KiB: {:6.1} {:6.1}, {:6.1} {:6.1}  ({:.1} ms, {flash} reads)",
            situation.knob_kib,
            way.kib,
            wanted[0],
            gained[0],
            wanted[1],
            gained[1],
            time / 1e6
        );
        match advice[index]["advice"].as_array().and_then(|list| list.first()) {
            Some(change) => {
                let told = change["advice"]["gain_percent"].as_f64().expect("a gain");
                if (told - gained[0]).abs() > BAR_PERCENT {
                    failed.push(format!("{name}: told {told:.1} %, gained {:.1} %", gained[0]));
                }
            }
            None if gained[0] > WORTH_PERCENT => {
                failed.push(format!("{name}: nothing advised, and {} KiB gains {:.1} %", way.kib, gained[0]));
            }
            None => {}
        }
        // A trace without read-ahead does not show what there was to read ahead: more of it is not predicted from there.
        let less = way.kib < situation.knob_kib;
        if less && wanted.iter().zip(gained).any(|(wanted, gained)| (wanted - gained).abs() > BAR_PERCENT) {
            failed.push(format!("{name}: expected {wanted:.1?} %, gained {gained:.1?} %"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn percent(gain: f64, of: f64) -> f64 {
    gain / of * 100.0
}
