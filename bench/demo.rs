//! Wall time of the demo by phase: in normal use, and with an empty cache.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use flashscope_tests::{TempDir, flashscope, top};
use serde_json::{Value, json};

pub fn run(cold: bool) -> Value {
    println!("\nThe demo, wall seconds");
    let warm = demo(&mut flashscope(), "kernel in the cache, command and agents built");
    let mut result = json!({ "warm": warm });
    if cold {
        result["cold"] = from_nothing();
    }
    result
}

/// Runs a command to its end; returns wall seconds.
fn timed(command: &mut Command) -> f64 {
    let began = Instant::now();
    let status = command.current_dir(top()).stdout(Stdio::null()).status().expect("the command starts");
    assert!(status.success(), "{command:?}: {status}");
    began.elapsed().as_secs_f64()
}

/// Runs `make demo` with an empty cache, without agents and target directory. Packages are not installed again, and cargo's registry keeps
/// its sources.
fn from_nothing() -> Value {
    let temp = TempDir::new("bench-cold");
    let (cache, target, agents) = (temp.path().join("cache"), temp.path().join("target"), temp.path().join("agents"));
    let agent = |arch: &str| {
        let mut make = Command::new("make");
        make.args(["-s", "-C", "agent", "one"]).arg(format!("ARCH={arch}")).arg(format!("BUILD={}", agents.display()));
        timed(&mut make)
    };
    let agents_s = agent("armhf") + agent("x86_64");
    let mut cargo = Command::new("tools/cargo");
    cargo.args(["build", "--quiet", "--release", "--locked", "-p", "flashscope"]).env("CARGO_TARGET_DIR", &target);
    let build_s = timed(&mut cargo);
    println!("  cold: agents {agents_s:.1}, flashscope {build_s:.1}");
    let mut command = Command::new(target.join("release/flashscope"));
    command.current_dir(top()).env("NO_COLOR", "1");
    command.env("FLASHSCOPE_AGENTS", &agents).env("XDG_CACHE_HOME", &cache);
    let demo = demo(&mut command, "empty cache: the kernel is fetched");
    let total = agents_s + build_s + demo["total_wall_s"].as_f64().expect("a number");
    println!("  cold, all: {total:.1}");
    json!({
        "commands": ["make -C agent one ARCH=armhf", "make -C agent one ARCH=x86_64",
                     "tools/cargo build --release --locked -p flashscope"],
        "agents_wall_s": agents_s, "build_wall_s": build_s, "demo": demo, "total_wall_s": total,
        "not_in_it": "Debian packages of the host; crate sources in cargo's registry, where they were there",
    })
}

/// Times of one group's figures, in seconds since the demo's start.
#[derive(Default)]
struct Group {
    image_built: Option<f64>,
    first_cell: Option<f64>,
    last_cell: Option<f64>,
    plan_complete: Option<f64>,
    finished: Option<f64>,
}

fn demo(command: &mut Command, what: &str) -> Value {
    let temp = TempDir::new("bench-demo");
    let began = Instant::now();
    command.args(["demo", "--output"]).arg(temp.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("flashscope starts");
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut log = Vec::new();
    for line in BufReader::new(child.stderr.take().expect("piped")).lines() {
        let at = began.elapsed().as_secs_f64();
        let line = line.expect("progress is text");
        // "[  0.1 s] GROUP: what": the time counts from the command's start; ours counts from the demo's start.
        let text = line.split_once("] ").map_or(line.as_str(), |(_, text)| text);
        log.push(json!([(at * 1000.0).round() / 1000.0, without_top(text)]));
        let Some((id, what)) = text.split_once(": ") else { continue };
        if what.starts_with("booting a fresh board") {
            groups.entry(id.to_owned()).or_default().image_built.get_or_insert(at);
        }
        let Some(group) = groups.get_mut(id) else { continue };
        if what.starts_with("cell ") {
            group.first_cell.get_or_insert(at);
            group.last_cell = Some(at);
        } else if what.contains("plan complete") {
            group.plan_complete = Some(at);
        } else if what.starts_with("finished in") {
            group.finished = Some(at);
        }
    }
    let status = child.wait().expect("flashscope ends");
    let total = began.elapsed().as_secs_f64();
    assert!(status.success(), "{command:?}: {status}");

    let until = |from: Option<f64>, to: Option<f64>| from.zip(to).map(|(from, to)| to - from);
    let prepared = groups.values().filter_map(|group| group.image_built).fold(f64::INFINITY, f64::min);
    let ended = groups.values().filter_map(|group| group.finished).fold(0.0, f64::max);
    println!("  {what}: {total:.1} in all; {prepared:.1} kernel and first image, {:.1} report", total - ended);
    println!("    group                                     boot, file system   cells   rest of the plan   evaluation");
    let mut results = Vec::new();
    for (id, group) in &groups {
        let boot = until(group.image_built, group.first_cell);
        let cells = until(group.first_cell, group.last_cell);
        let rest = until(group.last_cell, group.plan_complete);
        let evaluation = until(group.plan_complete, group.finished);
        let show = |value: Option<f64>| value.map_or("?".to_owned(), |value| format!("{value:.1}"));
        println!("    {id:<42} {:>16} {:>7} {:>18} {:>12}", show(boot), show(cells), show(rest), show(evaluation));
        results.push(json!({
            "group": id, "boot_and_file_system_wall_s": boot, "cells_wall_s": cells, "rest_of_the_plan_wall_s": rest,
            "evaluation_wall_s": evaluation,
        }));
    }
    json!({
        "command": "flashscope demo --output DIR", "what": what, "total_wall_s": total,
        "kernel_and_first_image_wall_s": prepared, "report_wall_s": total - ended,
        "groups_run_at_once": std::thread::available_parallelism().map_or(1, usize::from), "groups": results, "progress": log,
    })
}

/// Makes paths in a committed file relative to the top of the tree.
fn without_top(text: &str) -> String {
    text.replace(&*Path::new(&top()).to_string_lossy(), ".")
}
