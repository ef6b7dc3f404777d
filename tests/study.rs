//! The main job: a study's findings, its repeatability, its resume, and the page in a real browser.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flashscope_study::StudyResult;
use flashscope_tests::{Running, TempDir, flashscope, output, skip, stdout};

fn result(dir: &Path) -> StudyResult {
    let bytes = std::fs::read(dir.join("results.json")).expect("results.json");
    flashscope_tests::valid("study", &serde_json::from_slice(&bytes).expect("JSON"));
    serde_json::from_slice(&bytes).expect("a study's result")
}

/// Processes that take every core in turns until dropped: each that wakes up preempts another, which one that always runs seldom does.
fn load() -> Vec<Running> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let turns = "while :; do i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); done; sleep 0.03; done";
    (0..cores).map(|_| Running(Command::new("sh").args(["-c", turns]).spawn().expect("sh"))).collect()
}

#[test]
fn the_demo_finds_what_holds_and_repeats_to_the_byte_under_load_and_without_network() {
    let dir = TempDir::new("demo");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let said = stdout(flashscope().args(["demo", "--quiet", "--output"]).arg(&first));
    let found = result(&first);

    // It ends with a verdict per file system and the page's path.
    for filesystem in ["jffs2", "ubifs", "squashfs-mtdblock"] {
        let verdict = found.verdicts.iter().find(|verdict| verdict.filesystem == filesystem).expect("a verdict");
        assert!(verdict.sentence.starts_with("Today read-ahead is "), "{}", verdict.sentence);
        // Mainline ships 0 for MTD and UBIFS, the block layer's 128 KiB for mtdblock.
        assert_eq!(verdict.today_kib, if filesystem == "squashfs-mtdblock" { 128 } else { 0 });
        assert!(verdict.command.contains("read_ahead_kb"), "{}", verdict.command);
    }
    assert!(said.trim_end().ends_with("report.html"), "{said}");

    for group in &found.groups {
        let gain = |pattern: &str, count: u64| {
            let gains = flashscope_study::gains(group);
            let gain = gains.iter().find(|gain| gain.pattern == pattern && gain.count == count);
            gain.unwrap_or_else(|| panic!("{}: no {pattern} {count}", group.id)).clone()
        };
        println!(
            "{}: off saves {} % at 8, {} % at 1280; {:.1} ns an event, {} %",
            group.id,
            gain("sequential", 8).off_saves_time_percent,
            gain("sequential", 1280).off_saves_time_percent,
            group.tracer.ns_per_event,
            group.tracer.percent_of_page_read
        );
        assert!(group.tracer.percent_of_page_read <= 2.0, "{}: {:?}", group.id, group.tracer);
        // A tracer that cost nothing was not there.
        assert!(group.tracer.percent_of_page_read > 0.1, "{}: {:?}", group.id, group.tracer);
        for loss in &group.losses {
            assert_eq!(loss.count, 0, "{}: {}", group.id, loss.name);
        }
        // The whole file: nothing is prefetched in vain.
        assert!(gain("sequential", 1280).off_saves_time_percent.abs() < 3.0, "{}", group.id);
        if group.filesystem != "squashfs-mtdblock" {
            let saved = gain("sequential", 8).off_saves_time_percent;
            assert!((65.0..=75.0).contains(&saved), "{}: {saved}", group.id);
            for count in [8, 16, 32] {
                let saved = gain("sequential", count).off_saves_reads_percent;
                assert!(saved > 50.0, "{} at {count}: {saved}", group.id);
            }
        }
        // The settings read the same bytes, on this file system and on the others.
        for cell in &group.cells {
            let twin = found.groups[0]
                .cells
                .iter()
                .find(|twin| (twin.count, &twin.pattern) == (cell.count, &cell.pattern))
                .expect("the same matrix");
            assert_eq!(cell.crc32, twin.crc32, "{}: {} {}", group.id, cell.pattern, cell.count);
            assert_eq!(cell.bytes_read, cell.count * cell.request_bytes);
        }
    }
    // What differs from the paper is stated with its cause.
    for comparison in found.comparisons.iter().filter(|comparison| comparison.within != Some(true)) {
        assert!(comparison.note.len() > 40, "{}: no cause is given", comparison.id);
    }

    // Again: interrupted by others on every core, and no network to fetch anything from.
    let load = load();
    let mut again = match Command::new("unshare").args(["-n", "true"]).status() {
        Ok(status) if status.success() => flashscope_tests::behind(&["unshare", "-n"], &flashscope()),
        _ => flashscope(),
    };
    stdout(again.args(["demo", "--quiet", "--output"]).arg(&second));
    drop(load);
    for file in ["results.json", "results.csv", "report.html"] {
        let read = |dir: &Path| std::fs::read(dir.join(file)).expect(file);
        assert!(read(&first) == read(&second), "{file} differs between two runs");
    }
    let page = std::fs::read_to_string(first.join("report.html")).expect("the page");
    for text in [std::fs::read_to_string(first.join("results.json")).expect("results"), page.clone()] {
        assert!(!text.contains(&*dir.path().to_string_lossy()), "a path of this host");
        assert!(!text.contains(&*flashscope_tests::top().to_string_lossy()), "a path of this host");
    }
    assert!(page.len() < 2 << 20, "{} bytes", page.len());
    in_a_browser(&first.join("report.html"), dir.path());
}

/// The page as a real browser has it: the text is there, the figures are drawn, printing gives pages.
fn in_a_browser(page: &Path, dir: &Path) {
    let Ok(version) = Command::new("chromium").arg("--version").output() else {
        return skip("chromium is not installed: the page was not looked at");
    };
    println!("{}", String::from_utf8_lossy(&version.stdout).trim());
    let chromium = |more: &[&str]| {
        let mut command = Command::new("chromium");
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--window-size=1100,3000",
        ]);
        command.arg(format!("--user-data-dir={}", dir.join("profile").display()));
        command.args(more).arg(format!("file://{}", page.display()));
        output(&mut command)
    };
    let dom = chromium(&["--dump-dom"]);
    let dom = String::from_utf8_lossy(&dom.stdout).into_owned();
    assert!(dom.contains("Today read-ahead is on at 128 KiB for squashfs-mtdblock"), "the verdict is not on the page");
    let figures = dom.matches("<svg").count();
    assert!(figures >= 4, "{figures} figures");

    let shot = dir.join("page.png");
    chromium(&[&format!("--screenshot={}", shot.display())]);
    let png = std::fs::read(&shot).expect("a screenshot");
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    // A blank page of this size compresses to some 10 KB.
    assert!(png.len() > 60_000, "the page looks empty: {} bytes", png.len());

    let pdf = dir.join("page.pdf");
    chromium(&["--no-pdf-header-footer", &format!("--print-to-pdf={}", pdf.display())]);
    if let Ok(text) = Command::new("pdftotext").arg(&pdf).arg("-").output() {
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("Today read-ahead is off for jffs2"), "the print lacks the verdict");
    } else {
        skip("pdftotext is not installed: the print was not read");
    }
}

#[test]
fn an_interrupted_study_goes_on_where_it_stopped() {
    let dir = TempDir::new("resume");
    let study = dir.path().join("two.toml");
    // Sizes that no other test uses, so that nothing is finished before.
    let seed = std::process::id();
    std::fs::write(
        &study,
        format!(
            "name = \"two\"\ntitle = \"t\"\nquestion = \"q\"\n[matrix]\nboard = [\"armv7\"]\nkernel = [\"6.1\"]\n\
             filesystem = [\"jffs2\", \"ubifs\"]\ncontents = [\"random\"]\nfile_size = [\"256K\"]\nrequest_size = [\"4K\"]\n\
             count = [8]\npattern = [\"sequential\"]\nreadahead = [0, 128]\nseed = [{seed}]\n"
        ),
    )
    .expect("a study");
    let out = dir.path().join("out");
    let run = || {
        let mut command = flashscope();
        command.args(["study", "--jobs", "1"]).arg(&study).arg("--output").arg(&out);
        command
    };

    // Ctrl-C while the second group runs.
    let mut child = run().stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("flashscope");
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().expect("piped")).lines() {
        let line = line.expect("text");
        let finished = line.contains("(1 of 2 groups)");
        said.push_str(&line);
        said.push('\n');
        if finished {
            Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
        }
    }
    let status = child.wait().expect("an end");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("1 of 2 groups are finished and kept"), "{said}");
    assert!(!out.join("results.json").exists(), "half a result was written");

    let again = output(&mut run());
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success(), "{said}");
    assert_eq!(said.matches("reused").count(), 1, "{said}");
    let resumed = std::fs::read(out.join("results.json")).expect("results");

    let fresh = output(run().arg("--fresh"));
    assert!(fresh.status.success());
    assert!(!String::from_utf8_lossy(&fresh.stderr).contains("reused"));
    assert!(
        std::fs::read(out.join("results.json")).expect("results") == resumed,
        "a resumed run differs from a fresh one"
    );
}

/// What prepares a board can take minutes, and nobody waits for it after a signal.
#[test]
fn a_signal_ends_a_study_that_waits_for_a_kernel() {
    let dir = TempDir::new("study-signal");
    let (bin, begun) = (dir.path().join("bin"), dir.path().join("begun"));
    std::fs::create_dir(&bin).expect("a directory");
    let slow = format!("#!/bin/sh\n: >'{}'\nexec sleep 120\n", begun.display());
    std::fs::write(bin.join("apt-get"), slow).expect("a script");
    stdout(Command::new("chmod").arg("755").arg(bin.join("apt-get")));
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("PATH"));
    let mut command = flashscope();
    command.args(["study", "readahead-reads", "--output"]).arg(dir.path().join("out"));
    command.env("PATH", path).env("FLASHSCOPE_CACHE", dir.path().join("cache"));
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("flashscope");
    for _ in 0..1200 {
        if begun.exists() || child.try_wait().expect("a child").is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let signalled = Instant::now();
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    let status = child.wait().expect("an end");
    let took = signalled.elapsed();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("piped"), &mut said).expect("text");
    assert!(begun.exists(), "{said}");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(took < Duration::from_secs(20), "{took:?}: {said}");
    assert!(said.contains("interrupted before the first board ran; nothing was measured"), "{said}");
}

#[test]
fn bench_read_prints_one_object_with_counts_by_phase() {
    let said = stdout(flashscope().args([
        "bench", "read", "--on", "board:armv7", "--filesystem", "jffs2", "--count", "8", "--size", "4096", "--pattern",
        "sequential", "--readahead", "0", "--file-size", "512K", "--json", "--quiet",
    ]));
    assert_eq!(said.trim().lines().count(), 1);
    let found: serde_json::Value = serde_json::from_str(&said).expect("one object");
    flashscope_tests::valid("bench-read", &found);
    assert_eq!(found["latency_ns"]["n"], 8);
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {found}"));
    assert!(number(&found["total_ns"]) >= number(&found["flash_reads"]["measured"]) * 145_000);
    assert!(number(&found["flash_reads"]["measured"]) >= 8);
    // JFFS2 reads every node header of the file when it opens it.
    assert!(number(&found["flash_reads"]["open"]) > number(&found["flash_reads"]["measured"]));
    assert!(number(&found["flash_reads"]["mount"]) > 0);
    assert!(found["inputs"]["kernel_sha256"].as_str().is_some_and(|hash| hash.len() == 64));
    assert!(found["losses"].as_array().is_some_and(|losses| losses.iter().all(|loss| loss["count"] == 0)));
}
