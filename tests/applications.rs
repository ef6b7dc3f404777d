//! A cut of the study of applications: VLC alone and beside a writer, twice. The whole of it is `flashscope study applications`.

use std::path::Path;

use flashscope_tests::{TempDir, flashscope, output, stdout};
use serde_json::Value;

const CUT: &str = r#"
name = "cut"
title = "A player beside a writer"
question = "How long does the player wait?"

[replays]
kernel = ["6.1"]
disk.armv7-blk = { queue_depth = "1", completion_ns = "2500000", mbps = "40", size_mib = "128", scheduler = "none" }

[[replays.case]]
name = "alone"
board = "armv7-blk"
filesystem = "ext4"
scripts = ["vlc-single"]
film_s = 30.0
figure = true

[[replays.case]]
name = "beside"
board = "armv7-blk"
filesystem = "ext4"
scripts = ["vlc-single", "writer@6"]
film_s = 30.0
alone = "alone"
"#;

fn study(file: &Path, out: &Path) -> Value {
    let mut command = flashscope();
    stdout(command.args(["study", "-q", "--fresh"]).arg(file).arg("--output").arg(out));
    serde_json::from_slice(&std::fs::read(out.join("results.json")).expect("results")).expect("JSON")
}

#[test]
fn a_cut_of_the_study_repeats_and_tells_the_delay_that_it_measures() {
    let dir = TempDir::new("applications");
    let file = dir.path().join("cut.toml");
    std::fs::write(&file, CUT).expect("a study");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let result = study(&file, &first);
    study(&file, &second);
    let bytes = |out: &Path, name: &str| std::fs::read(out.join(name)).expect("a result");
    for name in ["results.json", "report.html"] {
        assert_eq!(bytes(&first, name), bytes(&second, name), "{name} has the same bytes twice");
    }
    let figure = |name: &str| result["figures"][name].as_f64().unwrap_or_else(|| panic!("no {name}"));
    println!("{}", result["figures"]);
    assert!(figure("alone.sequential_percent") >= 80.0);
    assert!(figure("alone.common_percent") >= 80.0);
    assert_eq!((figure("alone.breaks"), figure("alone.late_frames")), (0.0, 0.0));
    assert!(figure("alone.i2d_percent") < figure("alone.d2c_percent"), "an idle device takes a request at once");
    assert!(figure("beside.read_sum_ms") > figure("alone.read_sum_ms"), "the writer is in the way");
    assert!(figure("beside.others_mib_s") > 1.0);
    let (measured, told) = (figure("beside.delay_measured_us"), figure("beside.delay_told_us"));
    assert!((told - measured).abs() <= f64::max(20.0, measured * 0.05), "measured {measured}, told {told}");
}

#[test]
fn a_study_that_names_no_such_script_or_lever_is_refused() {
    let dir = TempDir::new("applications-refused");
    for (from, to, words) in [
        ("\"writer@6\"", "\"printer\"", "script 'printer': there are everything-reader"),
        ("\"writer@6\"", "\"writer@soon\"", "after the @ come seconds"),
        ("alone = \"alone\"", "alone = \"nobody\"", "there is no replays.case 'nobody'"),
        ("alone = \"alone\"", "lever = [\"crowbar\"]", "there is no replays.lever 'crowbar'"),
    ] {
        let file = dir.path().join("x.toml");
        std::fs::write(&file, CUT.replace(from, to)).expect("a study");
        let ran = output(flashscope().arg("study").arg(&file).arg("--output").arg(dir.path().join("out")));
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{words:?} is not in: {said}");
    }
}
