//! Storage that fails under a benchmark: full, corrupt, pulled out, worn. Each is told by one line that names it, or by the result.

use flashscope_study::StudyResult;
use flashscope_tests::{Booted, Plan, TempDir, flashscope, stdout, top};

fn agent(name: &str) -> Vec<u8> {
    let path = top().join("agent/build/armhf").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; make agents sqlite", path.display()))
}

/// A step that failed, with its status and one line that has all these words.
fn failed(booted: &Booted, name: &str, says: &[&str]) {
    let step = booted.step(name);
    let stderr = String::from_utf8_lossy(&step.stderr);
    println!("{name}: {}", stderr.trim_end());
    assert_eq!(step.status, Some(1), "{name}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{name}: {stderr}");
    assert!(says.iter().all(|words| stderr.contains(words)), "{name}: {stderr}");
}

#[test]
fn a_full_chip_and_a_corrupt_database_are_told() {
    let mut plan = Plan::new("armv7", "6.1");
    plan.parts = &[24];
    plan.modules = &["jffs2"];
    plan.packages = &["busybox-static"];
    plan.files = vec![("/flashscope/flashscope-sqlite", 0o755, agent("flashscope-sqlite"))];
    let database = "/flashscope/flashscope-sqlite --file /tmp/contacts.db --records 200 --text 64 --page-size 1024";
    plan.lines = [
        "mkdir /mnt",
        "mount mtd0 /mnt jffs2 -",
        "-run postmark-full /flashscope/agent bench postmark --dir /mnt --files 400 --transactions 10 --size-min 10000 --size-max 20000 --contents random",
        "-run sqlite-full /flashscope/flashscope-sqlite --file /mnt/contacts.db --records 20000 --text 128 --create",
        &format!("run make-database {database} --create"),
        // The header stays, everything behind the first page does not.
        "run spoil /usr/bin/busybox dd if=/dev/urandom of=/tmp/contacts.db bs=1024 seek=1 count=60 conv=notrunc",
        &format!("-run corrupt-pages {database} --selects 100 --pattern random"),
        "run spoil-all /usr/bin/busybox dd if=/dev/urandom of=/tmp/contacts.db bs=1024 count=60 conv=notrunc",
        &format!("-run corrupt-header {database} --selects 100 --pattern random"),
    ]
    .map(str::to_owned)
    .into();
    let booted = plan.boot();
    failed(&booted, "postmark-full", &["No space left", "larger partition"]);
    failed(&booted, "sqlite-full", &["/mnt/contacts.db", "no space left"]);
    failed(&booted, "corrupt-pages", &["/tmp/contacts.db", "malformed"]);
    failed(&booted, "corrupt-header", &["/tmp/contacts.db", "not a database"]);
}

#[test]
fn a_card_that_vanishes_fails_what_reads_it_and_not_the_recording() {
    let mut plan = Plan::new("armv7-sd", "6.1");
    plan.lines = [
        "create /mnt/data 4194304 printable 1",
        "record-start --events block",
        "spawn reader /flashscope/agent bench read --file /mnt/data --count 1000 --request 4096 --pattern sequential --interarrival-us 2000 --drop-caches --readahead fadvise-random",
        "sleep 500",
        "write /sys/bus/mmc/drivers/mmcblk/unbind mmc0:4567",
        "sleep 3000",
        "record-stop",
    ]
    .map(str::to_owned)
    .into();
    let booted = plan.boot();
    failed(&booted, "reader", &["/mnt/data", "Input/output error"]);
    let trace = booted.recording(0);
    let (mut completed, mut last) = (0u64, 0);
    flashscope_tests::events(&trace, |event| {
        completed += 1;
        last = event.time.0;
    });
    println!("{completed} events, the last {} ms after the reader began", {
        last.saturating_sub(booted.step("reader").begin_ns.expect("a begin")) / 1_000_000
    });
    assert!(completed > 100, "what was recorded before is there");
}

/// Bits that flip, pages that wear out and bad blocks: the study ends, and says which of its figures they are in.
#[test]
fn results_on_a_worn_chip_say_which_figures_are_affected() {
    let dir = TempDir::new("worn");
    let chip = std::fs::read_to_string(top().join("chips/micron-slc-256m.toml")).expect("the chip");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(
        path("worn.toml"),
        format!("{chip}\n[faults]\nbit_flips = 1\nbad_blocks = [3, 40]\nweak_pages = [[1000, 1]]\n"),
    )
    .expect("a chip");
    std::fs::write(
        path("board.toml"),
        format!(
            "name = \"worn\"\ninherits = \"armv7\"\ndescription = \"armv7 with a worn chip\"\nchip = \"{}\"\n",
            path("worn.toml").display()
        ),
    )
    .expect("a board");
    std::fs::write(
        path("study.toml"),
        format!(
            "name = \"worn\"\ntitle = \"Worn\"\nquestion = \"What does wear do?\"\n[matrix]\nboard = [\"{}\"]\nkernel = [\"6.1\"]\n\
             filesystem = [\"ubifs\"]\ncontents = [\"printable\"]\nfile_size = [\"4M\"]\nrequest_size = [\"4K\"]\ncount = [1024]\n\
             pattern = [\"sequential\"]\nreadahead = [\"0\", \"64K\", \"128K\"]\n",
            path("board.toml").display()
        ),
    )
    .expect("a study");
    let json = stdout(
        flashscope().arg("study").arg(path("study.toml")).args(["--quiet", "--json", "--output"]).arg(path("out")),
    );
    let result: StudyResult = serde_json::from_str(&json).expect("a result");
    let group = &result.groups[0];
    let health = group.health.first().expect("something to be said of the chip");
    for sentence in health.sentences() {
        println!("{sentence}");
    }
    assert_eq!(health.bad_blocks, 2, "{health:?}");
    assert!(health.corrected_bits > 0, "{health:?}");
    assert_eq!(health.ecc_failures, 0, "one flipped bit a page can be restored: {health:?}");
    // What was read is right all the same.
    assert!(group.cells.windows(2).all(|two| two[0].crc32 == two[1].crc32));
    let page = std::fs::read_to_string(path("out").join("report.html")).expect("the page");
    assert!(page.contains("error correction restored") && page.contains("blocks are bad"));
}
