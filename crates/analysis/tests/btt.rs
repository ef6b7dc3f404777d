//! Stage statistics against Debian's btt, on recordings from boards (crates/trace/tests/data/blktrace, origin there).

use flashscope_analysis::Analysis as _;
use flashscope_analysis::block::{Stage, StageStats, Stages, StagesFound};
use flashscope_trace::{BlockAction, EventKind, Trace, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::Dir;

const RECORDED: [&str; 5] = ["armv7-5.10", "armv7-6.1", "armv7-6.12", "armv7-newest", "x86_64-6.1"];
/// What each request of the recorded device takes at least (`completion_nsec`).
const SERVICE_NS: u64 = 100_000;

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/blktrace").join(name).join("main")
}

fn stages(path: &Path) -> StagesFound {
    let trace = Trace::open(path).unwrap();
    let mut stages = Stages::new();
    trace.for_each(&mut |event| stages.event(event)).unwrap();
    stages.finish()
}

/// Minimum, average, maximum in nanoseconds and N of each stage that btt prints; `None` (and a word about it) without btt.
fn btt(base: &Path) -> Option<BTreeMap<String, (u64, u64, u64, u64)>> {
    let said = crate::common::btt(base)?;
    let text = said.tables.split("All Devices").nth(1).unwrap();
    let all = text.split("Device Overhead").next().unwrap();
    let ns = |word: &str| {
        let (seconds, decimals) = word.split_once('.').unwrap();
        seconds.parse::<u64>().unwrap() * 1_000_000_000 + decimals.parse::<u64>().unwrap()
    };
    Some(
        all.lines()
            .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                // The number of a null block device is one that btt takes for device mapper's: "Q2Qdm".
                [stage, min, mean, max, n] if stage.as_bytes()[1] == b'2' => {
                    let figures = (ns(min), ns(mean), ns(max), n.parse().unwrap());
                    Some((stage.trim_end_matches("dm").to_string(), figures))
                }
                _ => None,
            })
            .collect(),
    )
}

fn agree(ours: &StageStats, theirs: (u64, u64, u64, u64)) -> bool {
    // btt's averages are rounded, ours are cut.
    (ours.min_ns, ours.max_ns, ours.n) == (theirs.0, theirs.2, theirs.3) && ours.mean_ns.abs_diff(theirs.1) <= 1
}

/// The trace without I/O that btt gets wrong: bios that were split, and those whose sectors any other bio has as well;
/// and without what was queued before it began.
fn plain_io(path: &Path, dir: &Dir) -> PathBuf {
    let trace = Trace::open(path).unwrap();
    let (mut bios, mut unclear) = (Vec::new(), Vec::new());
    trace
        .for_each(&mut |event| {
            if let EventKind::Block(b) = event.kind {
                match b.action {
                    BlockAction::Queue if b.bytes > 0 => bios.push((b.sector, b.end())),
                    BlockAction::Split => unclear.push((b.sector, b.end())),
                    // Queued before the recording began.
                    BlockAction::Issue | BlockAction::Complete
                        if !bios.iter().any(|&(begin, end)| begin < b.end() && b.sector < end) =>
                    {
                        unclear.push((b.sector, b.end()));
                    }
                    _ => {}
                }
            }
        })
        .unwrap();
    let meet = |a: &(u64, u64), b: &(u64, u64)| a.0 < b.1 && b.0 < a.1;
    for (i, bio) in bios.iter().enumerate() {
        let others = bios.iter().enumerate().any(|(j, other)| i != j && meet(bio, other));
        if others || unclear.iter().any(|u| meet(bio, u)) {
            unclear.push(*bio);
        }
    }
    // A request holds several bios: one that is unclear takes the others with it.
    let mut requests = Vec::new();
    trace
        .for_each(&mut |event| {
            if let EventKind::Block(b) = event.kind
                && b.bytes > 0
            {
                requests.push((b.sector, b.end()));
            }
        })
        .unwrap();
    loop {
        let before = unclear.len();
        for request in &requests {
            if unclear.iter().any(|u| meet(u, request)) && !unclear.contains(request) {
                unclear.push(*request);
            }
        }
        if unclear.len() == before {
            break;
        }
    }
    let to = dir.0.join("plain");
    let mut files: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    trace
        .for_each_pair(&mut |pair| {
            let Some(record) = pair.record else { return };
            let keep = match pair.event.map(|e| &e.kind) {
                Some(EventKind::Block(b)) if b.bytes > 0 => {
                    let range = (b.sector, b.end());
                    !unclear.iter().any(|u| meet(u, &range)) && bios.iter().any(|bio| meet(bio, &range))
                }
                // btt passes over flushes; here they are bios.
                Some(EventKind::Block(_)) => false,
                _ => true,
            };
            assert!(matches!(record.get("magic"), Some(Value::Unsigned(_))));
            if keep {
                files.entry(record.cpu).or_default().extend_from_slice(&record.data[24..]);
            }
        })
        .unwrap();
    for (cpu, bytes) in files {
        std::fs::write(format!("{}.blktrace.{cpu}", to.display()), bytes).unwrap();
    }
    to
}

#[test]
fn every_stage_of_plain_io_is_what_btt_says() {
    for name in RECORDED {
        let dir = Dir::new(name);
        let plain = plain_io(&recorded(name), &dir);
        let found = stages(&plain);
        assert_eq!((found.unmatched.sum(), found.unfinished.known()), (0, Some(&0)), "{name}: {:?}", found.unmatched);
        let Some(theirs) = btt(&plain) else { return };
        let mut compared = Vec::new();
        for stage in Stage::ALL {
            let ours = &found.all[stage as usize];
            match theirs.get(stage.name()) {
                Some(&theirs) => {
                    assert!(agree(ours, theirs), "{name} {}: {ours:?}, btt {theirs:?}", stage.name());
                    compared.push(format!("{} {}", stage.name(), ours.n));
                }
                // btt has no table of Q2D.
                None => assert!(ours.n == 0 || stage == Stage::Q2d, "{name}: btt has no {}", stage.name()),
            }
        }
        assert!(compared.len() >= 6, "{name}: {compared:?}");
        println!("{name}: {}", compared.join(", "));
    }
}

/// On all of the I/O, where stages differ, it is for one of btt's faults:
/// - a bio that is queued at the sector of one on its way is dropped: fewer bios in every stage but Q2Q;
/// - reads and writes of one sector are not distinguished: times run from the one to the other;
/// - splits are ignored: a split bio's parts match nothing, and it stays where later I/O of its sectors finds it.
#[test]
fn where_stages_of_all_io_differ_btt_is_wrong() {
    for name in RECORDED {
        let found = stages(&recorded(name));
        let ours = |stage: Stage| found.all[stage as usize];
        assert_eq!(found.bios_queued, found.bios_completed, "{name}");
        // Every bio was on the device once, and no shorter than the device takes.
        assert_eq!(Some(&ours(Stage::D2c).n), found.bios_queued.known(), "{name}");
        assert!(ours(Stage::D2c).min_ns >= SERVICE_NS, "{name}: {:?}", ours(Stage::D2c));
        let Some(theirs) = btt(&recorded(name)) else { return };
        for stage in [Stage::Q2q, Stage::Q2m, Stage::M2d] {
            let theirs = theirs[stage.name()];
            assert!(agree(&ours(stage), theirs), "{name} {}: {:?}, btt {theirs:?}", stage.name(), ours(stage));
        }
        for stage in [Stage::Q2g, Stage::G2i, Stage::I2d, Stage::D2c, Stage::Q2c] {
            let theirs = theirs[stage.name()];
            // btt has a time for each part of a split bio whose sectors happen to fit; here a bio has one.
            assert!(
                theirs.3 <= ours(stage).n + found.parts.known().unwrap_or(&0),
                "{name} {}: btt has more",
                stage.name()
            );
        }
        let (shortest, n) = (theirs["D2C"].0, theirs["D2C"].3);
        println!(
            "{name}: D2C of {} bios from {} ns; btt {n} from {shortest} ns",
            ours(Stage::D2c).n,
            ours(Stage::D2c).min_ns
        );
    }
    // What gives it away: on this device nothing takes less than 100 us.
    let Some(theirs) = btt(&recorded("x86_64-6.1")) else { return };
    assert!(theirs["D2C"].0 < SERVICE_NS, "{theirs:?}");
}
