//! The bounded run of fuzzing: every seed and every input that once found a fault, then so many mutations of them that a
//! generator with a fixed seed makes. The long runs and their figures: docs/explanation/fuzzing.md.

#[path = "../../../fuzz/targets.rs"]
mod targets;

use crate::common::Rng;
use std::path::Path;
use std::time::{Duration, Instant};

/// Mutations a format; fewer where the time is up, which is then said. `FLASHSCOPE_MUTATIONS` asks for more.
const MUTATIONS: u32 = 20_000;
const TIME: Duration = Duration::from_secs(6);

/// Inputs that once found a fault: `fuzz/regressions/FORMAT/NAME`.
fn regressions(format: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions").join(format);
    let Ok(entries) = std::fs::read_dir(directory) else { return vec![] };
    let mut all: Vec<_> = entries
        .map(|e| e.unwrap().path())
        .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(p).unwrap()))
        .collect();
    all.sort();
    all
}

fn mutate(rng: &mut Rng, base: &[u8], other: &[u8]) -> Vec<u8> {
    let mut b = base.to_vec();
    for _ in 0..1 + rng.below(5) {
        if b.is_empty() {
            b.push(rng.next() as u8);
        }
        let at = rng.below(b.len());
        match rng.below(8) {
            0 => b[at] = rng.next() as u8,
            1 => b[at] ^= 1 << rng.below(8),
            // Numbers that lie, of two to eight bytes.
            2 | 3 => {
                let size = [2, 4, 8][rng.below(3)];
                let lies = [0, 1, 0x7fff_ffff, 0xffff_ffff, u64::MAX, 1 << 31, (b.len() - at) as u64, rng.next()];
                let lie = lies[rng.below(lies.len())].to_le_bytes();
                let end = (at + size).min(b.len());
                b[at..end].copy_from_slice(&lie[..end - at]);
            }
            4 => b.truncate(at),
            5 => drop(b.drain(at..(at + 1 + rng.below(40)).min(at + 1).min(b.len()))),
            6 => {
                let piece = b[at..(at + rng.below(64)).min(b.len())].to_vec();
                b.splice(at..at, piece);
            }
            _ if other.is_empty() => {}
            _ => {
                let from = rng.below(other.len());
                let piece = &other[from..(from + rng.below(200)).min(other.len())];
                b.splice(at..at, piece.iter().copied());
            }
        }
    }
    b
}

fn run(format: &str) {
    let (_, body) = targets::ALL.into_iter().find(|(name, _)| *name == format).expect("a body of this format");
    let mut inputs = crate::common::seeds::seeds(format);
    inputs.extend(regressions(format));
    for (_, bytes) in &inputs {
        body(bytes);
    }
    let wanted = std::env::var("FLASHSCOPE_MUTATIONS").map_or(MUTATIONS, |n| n.parse().expect("a number"));
    let time = if wanted > MUTATIONS { Duration::MAX } else { TIME };
    let begin = Instant::now();
    let mut rng = Rng(0x0f1a_5c09 + format.len() as u64);
    // Most of them small: large goldens cost the time of a hundred small inputs.
    let small: Vec<usize> = (0..inputs.len()).filter(|&i| inputs[i].1.len() < 4096).collect();
    let mut done = 0;
    // A thousand at least, however slow the machine is.
    while done < wanted && (done < 1000 || done % 16 != 0 || begin.elapsed() < time) {
        let i =
            if done % 64 == 0 || small.is_empty() { rng.below(inputs.len()) } else { small[rng.below(small.len())] };
        let other = rng.below(inputs.len());
        let bytes = mutate(&mut rng, &inputs[i].1, &inputs[other].1);
        body(&bytes);
        done += 1;
    }
    println!("{format}: {} inputs, {done} mutations in {:.1} s", inputs.len(), begin.elapsed().as_secs_f64());
    assert!(done >= wanted.min(1000), "{format}: only {done} mutations in {time:?}");
}

#[test]
fn every_format_has_a_body_and_seeds() {
    let bodies: Vec<&str> = targets::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(bodies, crate::common::seeds::FORMATS);
    let manifest = include_str!("../../../fuzz/Cargo.toml");
    for name in bodies {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} has no libFuzzer target");
    }
}

#[test]
fn stream() {
    run("stream");
}

#[test]
fn trace_dat() {
    run("trace_dat");
}

#[test]
fn format() {
    run("format");
}

#[test]
fn flashmon() {
    run("flashmon");
}

#[test]
fn blktrace() {
    run("blktrace");
}

#[test]
fn ftrace() {
    run("ftrace");
}

#[test]
fn text() {
    run("text");
}

#[test]
fn perfetto() {
    run("perfetto");
}

#[test]
fn packed() {
    run("packed");
}
