//! Time from power-on to the first command of a plan, and to power-off.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use flashscope_targets::board::{self, ImageBuilder, Run};
use flashscope_targets::{NoProgress, Progress};
use flashscope_trace::Session;
use serde_json::{Value, json};

const TIMES: usize = 3;

/// Notes the time of the first `run` on the board.
struct FirstCommand {
    began: Instant,
    at: Mutex<Option<Duration>>,
}

impl Progress for FirstCommand {
    fn step(&self, _text: &str) {}
    fn bytes(&self, _done: u64, _total: Option<u64>) {}
    fn plan_step(&self, name: &str) {
        if name == "first" {
            self.at.lock().expect("one thread").get_or_insert(self.began.elapsed());
        }
    }
}

pub fn run() -> Value {
    println!("Boot to first command (modules of the port and the NAND loaded), median of {TIMES}");
    println!("  board    kernel                      wall s   to power-off, wall s   guest s");
    let mut results = Vec::new();
    for (name, line) in boots() {
        let board = board::load(&name).expect("the board");
        let kernel = board.fetch(&line, &NoProgress).expect("the kernel");
        let (mut first, mut off, mut guest) = (Vec::new(), Vec::new(), Vec::new());
        let began = Instant::now();
        let mut image = ImageBuilder::new(&board).expect("an agent for the board");
        let mut lines = image.add_port_modules(&kernel).expect("the port's modules");
        lines.extend(image.add_nand(&kernel, &[]).expect("the NAND's modules"));
        lines.push("run first /flashscope/agent --version".to_owned());
        image.set_plan(&lines);
        let image = image.build().expect("a boot image");
        let image_wall = began.elapsed().as_secs_f64();
        for _ in 0..TIMES {
            let watch = FirstCommand { began: Instant::now(), at: Mutex::new(None) };
            let outcome = board::boot(&Run::new(&board, &kernel, &image), &watch).expect("a boot");
            let session = Session::open(&outcome.port_file()).expect("a port file");
            let step = session.step("first").expect("the first command");
            guest.push(step.begin_ns.expect("a begin"));
            first.push(watch.at.into_inner().expect("one thread").unwrap_or(outcome.wall).as_secs_f64());
            off.push(outcome.wall.as_secs_f64());
        }
        // Only armv7 repeats exactly: an x86 guest measures its clocks against each other when it boots.
        if name == "armv7" {
            assert!(
                guest.iter().all(|ns| *ns == guest[0]),
                "{name} {line}: guest times of one image differ: {guest:?}"
            );
        }
        println!(
            "  {name:<8} {:<24} {:>9.1} {:>22.1} {:>9.3}",
            format!("{line} ({})", kernel.release),
            median(&first),
            median(&off),
            guest[0] as f64 / 1e9
        );
        results.push(json!({
            "board": name, "kernel": line, "release": kernel.release,
            "package": format!("{} {}", kernel.package, kernel.version),
            "image_build_wall_s": image_wall, "first_command_wall_s": first, "power_off_wall_s": off,
            "first_command_guest_ns": guest,
            "definition": format!("boards/{name}.toml"), "definition_sha256": board.sha256,
        }));
    }
    json!({ "method": "power-on of a fresh board to the first `run` of its plan, three boots of one image", "boots": results })
}

/// All kernels of armv7, and the default kernels of the other, slower boards.
fn boots() -> impl Iterator<Item = (String, String)> {
    flashscope_tests::boards_and_kernels().into_iter().filter(|(name, line)| {
        name == "armv7" || board::load(name).is_ok_and(|b| b.kernels.iter().any(|k| k.default && k.name == *line))
    })
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
