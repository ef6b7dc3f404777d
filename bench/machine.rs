//! Describes the machine of a measurement: enough to judge wall times, without identifying the machine.

use std::process::Command;

use serde_json::{Value, json};

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first line `NAME<separator>VALUE`.
fn field(text: &str, name: &str, separator: char) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

/// First line of a command's output.
fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).current_dir(flashscope_tests::top()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().filter(|_| output.status.success()).map(|line| line.trim().to_owned())
}

/// Today's date in UTC.
pub fn today() -> String {
    first_line("date", &["-u", "+%F"]).unwrap_or_else(|| "undated".to_owned())
}

pub fn load() -> Value {
    json!(text("/proc/loadavg").split(' ').take(3).filter_map(|n| n.parse::<f64>().ok()).collect::<Vec<_>>())
}

pub fn describe() -> Value {
    json!({
        "cpu": field(&text("/proc/cpuinfo"), "model name", ':'),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_kib": field(&text("/proc/meminfo"), "MemTotal", ':')
            .and_then(|value| value.split(' ').next().and_then(|n| n.parse::<u64>().ok())),
        "system": field(&text("/etc/os-release"), "PRETTY_NAME", '='),
        // Only the version: the rest may name its builder.
        "kernel": text("/proc/sys/kernel/osrelease").trim().split('-').next(),
    })
}

pub fn versions() -> Value {
    json!({
        "flashscope": env!("CARGO_PKG_VERSION"),
        "commit": first_line("git", &["rev-parse", "HEAD"]),
        "changed_since_commit": first_line("git", &["status", "--porcelain", "--untracked-files=no"]).is_some(),
        "qemu": first_line("qemu-system-arm", &["--version"]),
        "cargo": first_line("tools/cargo", &["--version"]),
        "gcc_armhf": first_line("arm-linux-gnueabihf-gcc", &["--version"]),
    })
}
