//! `make bench`: measures boots, the demo and the tracer. A table on stdout, raw results in bench/runs/.
//!
//! Guest times are exact and repeat anywhere. Wall times depend on the machine and its load, which the raw file states.

mod armed;
mod boots;
mod bytes;
mod cost;
mod demo;
mod machine;
mod overhead;
mod peers;
mod same_work;
mod same_work_page;
mod stalls;
mod tracer;

use std::path::PathBuf;
use std::process::ExitCode;

use flashscope_tests::top;
use serde_json::json;

const PARTS: [&str; 9] = ["boots", "demo", "tracer", "bytes", "peers", "same-work", "stalls", "overhead", "armed"];
const LOAD_NOTE: &str = "Over 1, 5 and 15 minutes. Above 0 before the start: other work shared the cores, and wall times are \
                         high. Guest times do not depend on it.";
const USAGE: &str = "usage: bench/run [--cold] [--only boots,demo,tracer,bytes,peers,same-work,stalls,overhead,armed] [--reads N] [--rounds N] [--date YYYY-MM-DD] \
                     [--what NAME] [--output DIR] [--places FS,…] [--resume] [--page FILE]";

struct Options {
    cold: bool,
    only: Vec<String>,
    /// Number of page reads for each tracer setting.
    reads: u64,
    /// Number of rounds of `overhead`.
    rounds: usize,
    date: String,
    what: String,
    output: PathBuf,
    /// File systems of `same-work`; empty: all.
    places: Vec<String>,
    /// Keep the results of `same-work` for places that are in the raw file.
    resume: bool,
    /// Path of the page of `same-work`.
    page: Option<PathBuf>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        cold: false,
        only: PARTS.map(str::to_owned).to_vec(),
        reads: 6000,
        rounds: 7,
        date: machine::today(),
        what: "bench".to_owned(),
        output: top().join("bench/runs"),
        places: Vec::new(),
        resume: false,
        page: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg}: a value is missing; {USAGE}"));
        match arg.as_str() {
            "--cold" => options.cold = true,
            "--places" => options.places = value()?.split(',').map(str::to_owned).collect(),
            "--resume" => options.resume = true,
            "--only" => {
                options.only = value()?.split(',').map(str::to_owned).collect();
                if let Some(unknown) = options.only.iter().find(|part| !PARTS.contains(&part.as_str())) {
                    return Err(format!("--only {unknown}: no such part; {}", PARTS.join(", ")));
                }
            }
            "--reads" => {
                let text = value()?;
                options.reads = text
                    .parse()
                    .ok()
                    .filter(|reads| (100..=100_000).contains(reads))
                    .ok_or_else(|| format!("--reads {text}: not a number from 100 to 100000"))?;
            }
            "--rounds" => {
                let text = value()?;
                let number = text.parse().ok().filter(|rounds| (1..=1000).contains(rounds));
                options.rounds = number.ok_or_else(|| format!("--rounds {text}: not a number from 1 to 1000"))?;
            }
            "--date" => options.date = file_word("--date", value()?)?,
            "--what" => options.what = file_word("--what", value()?)?,
            "--output" => options.output = value()?.into(),
            "--page" => options.page = Some(value()?.into()),
            _ => return Err(format!("{arg}: no such option; {USAGE}")),
        }
    }
    Ok(options)
}

/// A word that becomes part of a file's name.
fn file_word(option: &str, text: String) -> Result<String, String> {
    match !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.') {
        true => Ok(text),
        false => Err(format!("{option} {text}: letters, digits, '-' and '.' only")),
    }
}

/// The command line without paths of this machine.
fn command() -> String {
    let mut words = vec!["bench/run".to_owned()];
    for arg in std::env::args().skip(1) {
        let path = words.last().is_some_and(|word| word == "--output");
        words.push(if path { "DIR".to_owned() } else { arg });
    }
    words.join(" ")
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("bench/run: {error}");
            return ExitCode::from(2);
        }
    };
    let load_before = machine::load();
    let mut file = json!({
        "schema": "flashscope-bench 1",
        "date": options.date,
        "command": command(),
        "machine": machine::describe(),
        "versions": machine::versions(),
    });
    let path = options.output.join(format!("{}-{}.json", options.date, options.what));
    let earlier = std::fs::read(&path).ok().filter(|_| options.resume);
    let earlier: serde_json::Value = earlier.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    for part in PARTS.into_iter().filter(|part| options.only.iter().any(|only| only == part)) {
        file[part] = match part {
            "boots" => boots::run(),
            "demo" => demo::run(options.cold),
            "tracer" => tracer::run(options.reads),
            "bytes" => bytes::run(),
            "same-work" => same_work::run(&earlier["same-work"], &options.places),
            "stalls" => stalls::run(),
            "overhead" => overhead::run(options.rounds),
            "armed" => armed::run(),
            _ => peers::run(),
        };
        file["load_average"] = json!({ "before": load_before, "after": machine::load(), "note": LOAD_NOTE });
        if let (Some(page), "same-work") = (&options.page, part)
            && let Err(error) = std::fs::write(page, same_work_page::page(&file[part], &command()))
        {
            eprintln!("bench/run: {}: {error}; name another file with --page", page.display());
            return ExitCode::FAILURE;
        }
        // Written after each part, so that results stay if a later part fails.
        let written =
            std::fs::create_dir_all(&options.output).and_then(|()| std::fs::write(&path, format!("{file:#}\n")));
        if let Err(error) = written {
            eprintln!("bench/run: {}: {error}; name another directory with --output", path.display());
            return ExitCode::FAILURE;
        }
    }
    println!("\nRaw results: {}", path.strip_prefix(top()).unwrap_or(&path).display());
    ExitCode::SUCCESS
}
