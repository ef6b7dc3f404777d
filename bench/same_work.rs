//! Compares our benchmarks with other programs that do the same work on the same board: fio for reads and writes of a file, Debian's
//! sqlite3 for SELECTs and for filling a table, Debian's postmark. One recorder counts their storage operations below the file system, from
//! the beginning of the work until all of its data is written.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use flashscope_tests::{Booted, Plan, events, top};
use flashscope_trace::{BlockAction, EventKind, FlashOp, RequestKind};
use serde_json::{Value, json};

const AGENT: &str = "/flashscope/agent";
const KERNEL: &str = "6.1";
const FILE_BYTES: u64 = 2 << 20;
const REQUEST: u64 = 4096;
pub const READS: u64 = 128;
const SEED: u64 = 1;
const WRITE_REQUEST: u64 = 64 << 10;
const RECORDS: u64 = 1000;
const SELECTS: [u64; 2] = [20, RECORDS];
const POSTMARK: [u64; 2] = [100, 400];

/// A file system and its storage.
struct Place {
    board: &'static str,
    filesystem: &'static str,
    modules: &'static [&'static str],
    mount: &'static [&'static str],
    /// Kernel threads that work after a benchmark, as arguments of `settle`.
    settle: &'static str,
    events: &'static str,
}

const PLACES: [Place; 3] = [
    Place {
        board: "armv7",
        filesystem: "jffs2",
        modules: &["jffs2"],
        mount: &["mkdir /mnt", "mount mtd0 /mnt jffs2 -"],
        settle: "settle jffs2_gcd 200 60000",
        events: "flash",
    },
    Place {
        board: "armv7",
        filesystem: "ubifs",
        modules: &["ubi", "deflate", "lzo", "zstd", "ubifs"],
        mount: &[
            "mkdir /mnt",
            "ubi-attach 0",
            "device-wait /dev/ubi0 5000",
            "ubi-mkvol 0 data all",
            "device-wait /dev/ubi0_0 5000",
            "mount ubi0:data /mnt ubifs -",
        ],
        settle: "settle ubi_bgt 200 60000",
        events: "flash",
    },
    Place {
        board: "armv7-blk",
        filesystem: "ext4",
        modules: &[],
        mount: &[],
        settle: "settle kworker 200 60000",
        events: "block:block_rq_issue",
    },
];

/// One side of a row.
#[derive(Clone, Copy)]
enum Who {
    Ours,
    Theirs,
}

impl Who {
    const BOTH: [Who; 2] = [Who::Ours, Who::Theirs];

    fn name(self) -> &'static str {
        match self {
            Who::Ours => "ours",
            Who::Theirs => "theirs",
        }
    }

    fn command(self, work: &Work) -> &str {
        match self {
            Who::Ours => &work.ours,
            Who::Theirs => &work.peer,
        }
    }
}

/// The same work with our benchmark and with the other program.
struct Work {
    name: &'static str,
    what: String,
    theirs: &'static str,
    /// Commands without the step's name. `None`: a verb of the plan instead of a program.
    ours: String,
    peer: String,
    /// Reads a program's own count of calls, their bytes, and their total time from its output.
    own: fn(&Value, Who) -> Own,
}

/// A program's own figures.
#[derive(Default)]
struct Own {
    bytes_read: Option<u64>,
    bytes_written: Option<u64>,
    /// Total time of the read() calls.
    ns: Option<u64>,
}

fn fio(more: &str) -> String {
    format!(
        "fio --name=job --ioengine=psync --thread --clocksource=clock_gettime --disk_util=0 --invalidate=0 --fadvise_hint=0 \
         --fallocate=none --output-format=json {more}"
    )
}

fn works() -> Vec<Work> {
    let read = |pattern: &str| {
        format!(
            "{AGENT} bench read --file /mnt/read --count {READS} --request {REQUEST} --pattern {pattern} --seed {SEED}"
        )
    };
    let total = READS * REQUEST;
    let mut works = vec![
        Work {
            name: "read-sequential",
            what: format!("{READS} sequential reads of {REQUEST} bytes"),
            theirs: "fio",
            ours: read("sequential"),
            peer: fio(&format!("--filename=/mnt/read --rw=read --bs={REQUEST} --size={FILE_BYTES} --io_size={total}")),
            own: own_reads,
        },
        Work {
            name: "read-random",
            what: format!("{READS} random reads of {REQUEST} bytes, the same offsets"),
            theirs: "fio",
            ours: read("random"),
            peer: fio("--read_iolog=/iolog --replay_no_stall=1"),
            own: own_reads,
        },
        Work {
            name: "write",
            what: format!("a new file of {FILE_BYTES} bytes, by {WRITE_REQUEST}, random bytes, then fsync"),
            theirs: "fio",
            ours: format!("create /mnt/written {FILE_BYTES} random 7"),
            peer: fio(&format!(
                "--filename=/mnt/written-by-fio --rw=write --bs={WRITE_REQUEST} --size={FILE_BYTES} --end_fsync=1 --refill_buffers"
            )),
            own: own_written,
        },
        Work {
            name: "sqlite-fill",
            what: format!("{RECORDS} records into a new table, one transaction"),
            theirs: "sqlite3",
            ours: format!("flashscope-sqlite --file /mnt/ours.db --create --records {RECORDS} --selects 1"),
            peer: "sqlite3 /mnt/theirs.db .read%20/fill.sql".to_owned(),
            own: |_, _| Own::default(),
        },
    ];
    for selects in SELECTS {
        works.push(Work {
            name: if selects == SELECTS[0] { "sqlite-few" } else { "sqlite-all" },
            what: format!("{selects} SELECTs by key in one database"),
            theirs: "sqlite3",
            ours: format!("flashscope-sqlite --file /mnt/ours.db --records {RECORDS} --selects {selects}"),
            peer: format!("sqlite3 -readonly /mnt/ours.db .read%20/select-{selects}.sql"),
            own: |_, _| Own::default(),
        });
    }
    works.push(Work {
        name: "postmark",
        what: format!("{} files, {} transactions, the same settings", POSTMARK[0], POSTMARK[1]),
        theirs: "postmark",
        ours: format!(
            "{AGENT} bench postmark --dir /mnt --config flashmon --files {} --transactions {} --contents printable",
            POSTMARK[0], POSTMARK[1]
        ),
        peer: "postmark /postmark".to_owned(),
        own: own_postmark,
    });
    works
}

fn own_reads(said: &Value, who: Who) -> Own {
    match who {
        Who::Ours => Own { bytes_read: said["bytes_read"].as_u64(), ns: said["total_ns"].as_u64(), ..Own::default() },
        Who::Theirs => {
            let read = &said["jobs"][0]["read"];
            let ns = read["lat_ns"]["mean"].as_f64().zip(read["total_ios"].as_u64());
            Own {
                bytes_read: read["io_bytes"].as_u64(),
                ns: ns.map(|(mean, calls)| (mean * calls as f64).round() as u64),
                ..Own::default()
            }
        }
    }
}

fn own_written(said: &Value, who: Who) -> Own {
    let bytes = match who {
        Who::Ours => said["bytes"].as_u64(),
        Who::Theirs => said["jobs"][0]["write"]["io_bytes"].as_u64(),
    };
    Own { bytes_written: bytes, ..Own::default() }
}

fn own_postmark(said: &Value, who: Who) -> Own {
    match who {
        Who::Ours => Own {
            bytes_read: said["bytes_read"].as_u64(),
            bytes_written: said["bytes_written"].as_u64(),
            ns: said["total_ns"].as_u64(),
        },
        Who::Theirs => {
            let report = said.as_str().unwrap_or_default();
            // "1.23 megabytes read (…)": units of 2^20 bytes, with two decimals.
            let bytes = |what: &str| {
                let line = report.lines().find(|line| line.contains(what))?;
                let mut words = line.split_whitespace();
                let number: f64 = words.next()?.parse().ok()?;
                let unit = match words.next()? {
                    "megabytes" => 1_048_576.0,
                    "kilobytes" => 1024.0,
                    _ => 1.0,
                };
                Some((number * unit).round() as u64)
            };
            Own { bytes_read: bytes("bytes read"), bytes_written: bytes("bytes written"), ns: None }
        }
    }
}

/// Boots once and runs these works with these programs.
fn boot(place: &Place, works: &[&Work], sides: &[Who]) -> Booted {
    let mut plan = Plan::new(place.board, KERNEL);
    plan.parts = &[512];
    plan.modules = place.modules;
    plan.packages = &["fio", "sqlite3", "postmark", "busybox-static"];
    // Without Python, which only fio's plotters need.
    plan.only_packages = &["fio", "sqlite3", "postmark", "busybox", "lib", "zlib1g"];
    let sqlite = std::fs::read(top().join("agent/build/armhf/flashscope-sqlite")).expect("make sqlite");
    let mut iolog = "fio version 2 iolog\n/mnt/read add\n/mnt/read open\n".to_owned();
    for slot in flashscope_study::random_slots(SEED, READS, FILE_BYTES / REQUEST) {
        writeln!(iolog, "/mnt/read read {} {REQUEST}", slot * REQUEST).expect("a string");
    }
    iolog += "/mnt/read close\n";
    let select = |count: u64| -> Vec<u8> {
        (1..=count).map(|key| format!("SELECT * FROM contacts WHERE id = {key};\n")).collect::<String>().into_bytes()
    };
    plan.files = vec![
        ("/flashscope/flashscope-sqlite", 0o755, sqlite),
        ("/iolog", 0o644, iolog.into_bytes()),
        ("/fill.sql", 0o644, include_bytes!("same_work/fill.sql").to_vec()),
        ("/select-20.sql", 0o644, select(SELECTS[0])),
        ("/select-1000.sql", 0o644, select(SELECTS[1])),
        (
            "/postmark",
            0o644,
            format!(
                "set location /mnt\nset number {}\nset transactions {}\nset size 512 10240\nset subdirectories 10\nset read 4096\n\
                 set write 4096\nset buffering false\nset bias read 5\nset bias create 5\nrun\nquit\n",
                POSTMARK[0], POSTMARK[1]
            )
            .into_bytes(),
        ),
    ];
    plan.lines = place.mount.iter().map(|&line| line.to_owned()).collect();
    plan.lines.push(format!("create /mnt/read {FILE_BYTES} printable {SEED}"));
    // The records that both write are made once, in memory.
    plan.lines.push(format!("run same flashscope-sqlite --file /tmp/same.db --create --records {RECORDS} --selects 1"));
    // Twice: a second commit writes what the first one left.
    let sync = "run sync busybox sync";
    let quiet = [sync, place.settle, sync, "write /proc/sys/vm/drop_caches 3", place.settle].map(str::to_owned);
    plan.lines.extend(quiet.clone());
    plan.lines.push(format!("record-start --events {} --mode ring --ring 16384", place.events));
    for work in works {
        for &who in sides {
            let (command, who) = (who.command(work), who.name());
            plan.lines.push(format!("run begin-{}-{who} busybox true", work.name));
            plan.lines.push(match command.starts_with("create ") {
                true => command.to_owned(),
                false => format!("run {}-{who} {command}", work.name),
            });
            plan.lines.extend(quiet.clone());
            plan.lines.push(format!("run end-{}-{who} busybox true", work.name));
        }
    }
    plan.lines.push("record-stop".to_owned());
    plan.boot()
}

/// Storage operations of one program.
#[derive(Default)]
struct Done {
    reads: u64,
    programs: u64,
    erases: u64,
    bytes_read: u64,
    bytes_written: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    /// Operations by task name.
    by_task: BTreeMap<String, [u64; 3]>,
}

fn done(booted: &Booted, name: &str, who: &str, page_bytes: u64) -> Done {
    let begin = booted.step(&format!("begin-{name}-{who}")).end_ns.expect("an end");
    let end = booted.step(&format!("end-{name}-{who}")).begin_ns.expect("a begin");
    let mut done = Done::default();
    let trace = booted.recording(0);
    events(&trace, |event| {
        if !(begin..end).contains(&event.time.0) {
            return;
        }
        let (op, bytes) = match &event.kind {
            EventKind::Flash(access) => (access.op, page_bytes),
            EventKind::Block(block) if block.action == BlockAction::Issue && block.bytes > 0 => {
                let op = match block.flags.kind() {
                    RequestKind::Read => FlashOp::Read,
                    RequestKind::Discard | RequestKind::SecureErase => FlashOp::Erase,
                    _ => FlashOp::Program,
                };
                (op, block.bytes)
            }
            _ => return,
        };
        let task = trace.comm(event.tid, event.time).unwrap_or("?").to_owned();
        let of_task = done.by_task.entry(task).or_default();
        match op {
            FlashOp::Read => {
                (done.reads, done.bytes_read, of_task[0]) = (done.reads + 1, done.bytes_read + bytes, of_task[0] + 1)
            }
            FlashOp::Program => {
                (done.programs, done.bytes_written, of_task[1]) =
                    (done.programs + 1, done.bytes_written + bytes, of_task[1] + 1);
            }
            FlashOp::Erase => (done.erases, of_task[2]) = (done.erases + 1, of_task[2] + 1),
        }
        done.first_ns.get_or_insert(event.time.0);
        done.last_ns = event.time.0;
    });
    done
}

/// A step's output: an object, a text, or nothing for a verb of the plan.
fn said(booted: &Booted, work: &Work, who: Who) -> Value {
    let name = format!("{}-{}", work.name, if matches!(who, Who::Ours) { "ours" } else { "theirs" });
    let step = match (who, work.ours.starts_with("create ")) {
        (Who::Ours, true) => {
            let mut made = booted.session.steps.iter().filter(|step| step.name == "create");
            made.next_back().expect("the file that was written")
        }
        _ => booted.step(&name),
    };
    assert_eq!(step.status, Some(0), "{name}: {}", String::from_utf8_lossy(&step.stderr));
    let text = String::from_utf8_lossy(&step.stdout).into_owned();
    // Skips fio's text before its object.
    let object = text.find('{').and_then(|at| serde_json::from_str(&text[at..]).ok());
    object.unwrap_or(Value::String(text))
}

/// `earlier`: places that are not measured again. `wanted`: file systems; empty: all.
pub fn run(earlier: &Value, wanted: &[String]) -> Value {
    let works = works();
    let mut places = Vec::new();
    for place in PLACES.iter().filter(|place| wanted.is_empty() || wanted.iter().any(|name| name == place.filesystem)) {
        let mut known = earlier["places"].as_array().into_iter().flatten();
        if let Some(known) = known.find(|known| known["filesystem"] == place.filesystem) {
            places.push(known.clone());
            continue;
        }
        let mut rows: Vec<Value> =
            works.iter().map(|work| json!({ "work": work.name, "what": work.what, "peer": work.theirs })).collect();
        let mut kernel = Value::Null;
        // On JFFS2, garbage that postmark leaves would be collected during the next program, so each has its own boot.
        let alone = |work: &&Work| work.name == "postmark" && place.filesystem == "jffs2";
        let (alone, together): (Vec<&Work>, Vec<&Work>) = works.iter().partition(alone);
        for (works, sides) in [(&together, &Who::BOTH[..]), (&alone, &[Who::Ours]), (&alone, &[Who::Theirs])] {
            if works.is_empty() {
                continue;
            }
            let booted = boot(place, works, sides);
            let recording = booted.recording(0);
            kernel = json!(recording.facts().kernel.release);
            let page_bytes = recording.facts().mtd.first().and_then(|mtd| mtd.writesize).unwrap_or(0);
            for (loss, count) in recording.losses().iter() {
                assert_eq!(count, 0, "{}: {}", place.filesystem, loss.name());
            }
            for work in works {
                let row = rows.iter_mut().find(|row| row["work"] == work.name).expect("a row of each work");
                for &who in sides {
                    row[who.name()] = side(&booted, work, who, page_bytes);
                    println!("{} {} {}: {}", place.filesystem, work.name, who.name(), row[who.name()]);
                }
            }
        }
        places.push(json!({ "board": place.board, "filesystem": place.filesystem, "kernel": kernel, "rows": rows }));
    }
    json!({ "places": places })
}

fn side(booted: &Booted, work: &Work, who: Who, page_bytes: u64) -> Value {
    let done = done(booted, work.name, who.name(), page_bytes);
    let own = (work.own)(&said(booted, work, who), who);
    json!({
        "command": who.command(work),
        "reads": done.reads, "programs": done.programs, "erases": done.erases,
        "device_bytes_read": done.bytes_read, "device_bytes_written": done.bytes_written,
        "device_ns": done.first_ns.map_or(0, |first| done.last_ns - first),
        "bytes_read": own.bytes_read, "bytes_written": own.bytes_written, "calls_ns": own.ns,
        "by_task": done.by_task,
    })
}
