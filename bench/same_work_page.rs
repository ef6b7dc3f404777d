//! docs/explanation/benchmarks.md, of what `bench/run --only same-work` found.

use std::fmt::Write as _;

use serde_json::Value;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

fn ms(value: &Value) -> String {
    value.as_u64().map_or_else(|| "–".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e6))
}

fn bytes(value: &Value) -> String {
    value.as_u64().map_or_else(|| "–".to_owned(), grouped)
}

/// `command`: that writes it again.
pub fn page(found: &Value, command: &str) -> String {
    let mut out = format!(
        "# Our benchmarks and fio, sqlite3, postmark\n\nWritten by `{command}`; nothing here is typed by hand. Each pair does the \
         same work on the same board, in one boot (postmark on JFFS2: a boot each), with empty caches, and one recorder counts below the \
         file system what the storage did for it: from its begin until a sync after it has ended and nothing of it is left to \
         write. Times are guest time, exact and the same on any host. Programs: fio, sqlite3 and postmark as Debian packages \
         them for armhf.\n\n- *asked*: bytes that the program says it read and wrote.\n- *reads, programs, erases*: of the NAND \
         chip; on ext4 requests to the disk's driver.\n- *device bytes*: of whole pages; on ext4 the requests' own.\n- *in \
         calls*: the sum of the calls' times as the program tells it, where it does.\n- *device busy from, to*: first to last \
         operation; what the program does between its calls is in it.\n"
    );
    for place in found["places"].as_array().into_iter().flatten() {
        _ = write!(
            out,
            "\n## {} on board {} (Linux {})\n\n| work | by | asked, bytes read / written | reads | programs | erases | device bytes \
             read / written | in calls, ms | device busy from, to, ms |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n",
            place["filesystem"].as_str().unwrap_or_default(),
            place["board"].as_str().unwrap_or_default(),
            place["kernel"].as_str().unwrap_or_default(),
        );
        let mut notes = String::new();
        for row in place["rows"].as_array().into_iter().flatten() {
            let text = |name: &str| row[name].as_str().unwrap_or_default();
            for (by, side) in [("flashscope", &row["ours"]), (text("peer"), &row["theirs"])] {
                _ = writeln!(
                    out,
                    "| {} | {by} | {} / {} | {} | {} | {} | {} / {} | {} | {} |",
                    if by == "flashscope" { text("what") } else { "" },
                    bytes(&side["bytes_read"]),
                    bytes(&side["bytes_written"]),
                    grouped(number(&side["reads"])),
                    grouped(number(&side["programs"])),
                    grouped(number(&side["erases"])),
                    bytes(&side["device_bytes_read"]),
                    bytes(&side["device_bytes_written"]),
                    ms(&side["calls_ns"]),
                    ms(&side["device_ns"]),
                );
            }
            _ = writeln!(notes, "- **{}** {}", text("work"), note(row));
        }
        _ = write!(out, "\n{notes}");
    }
    out
}

/// What is the same, what differs, and why.
fn note(row: &Value) -> String {
    let (ours, theirs) = (&row["ours"], &row["theirs"]);
    let mut said = Vec::new();
    let mut differ = Vec::new();
    for (name, what) in [("reads", "reads"), ("programs", "programs"), ("erases", "erases")] {
        let (a, b) = (number(&ours[name]), number(&theirs[name]));
        if a != b {
            differ.push(format!("{what} by {} ({})", a as i64 - b as i64, tasks(ours, theirs, name)));
        }
    }
    said.push(match differ.is_empty() {
        true => "The storage did exactly the same.".to_owned(),
        false => format!("Ours less theirs: {}.", differ.join("; ")),
    });
    if let (Some(a), Some(b)) = (ours["calls_ns"].as_u64(), theirs["calls_ns"].as_u64()) {
        let calls = crate::same_work::READS;
        let more = (b as f64 - a as f64) / calls as f64 / 1e3;
        said.push(format!(
            "In its calls fio is {more:.1} µs a call longer: it reads the clock and keeps its books within them."
        ));
    }
    let wrote = |side: &Value| side["bytes_written"].as_u64().filter(|&bytes| bytes > 0);
    if let (Some(a), Some(b)) = (wrote(ours), wrote(theirs)) {
        let times = |side: &Value, bytes: u64| number(&side["device_bytes_written"]) as f64 / bytes as f64;
        said.push(format!(
            "A byte that was written became {:.3} and {:.3} bytes on the device.",
            times(ours, a),
            times(theirs, b)
        ));
    }
    said.push(
        match row["work"].as_str().unwrap_or_default() {
            "read-sequential" => "Between open() and the first read fio sets its job up, which the time from the first to the last operation holds.",
            "read-random" => "fio takes our offsets from a log of reads (`--read_iolog`).",
            "write" => "Ours is the plan's verb `create`, done by init; names differ in length, and the node or block of metadata that a name and a time stand in may be one more.",
            "sqlite-fill" => "Ours makes the database under another name and gives it its own when it is whole (a link and a sync of the directory), and the two libraries are of different versions.",
            "sqlite-few" | "sqlite-all" => "Both read ours.db. sqlite3 prints each row between its reads, which takes the time.",
            "postmark" => "Files, sizes and what is done to them are drawn at random, each by its own generator, so bytes and operations differ within that randomness (tests/benches.rs holds many seeds within four standard errors). What a collector reads afterwards is of the blocks that the last files leave, which differ as the files do.",
            _ => "",
        }
        .to_owned(),
    );
    said.join(" ")
}

/// "agent 971, jffs2_gcd_mtd0 77; postmark 948, …": who did it.
fn tasks(ours: &Value, theirs: &Value, name: &str) -> String {
    let column = ["reads", "programs", "erases"].iter().position(|one| *one == name).unwrap_or(0);
    let list = |side: &Value| {
        let of = side["by_task"].as_object().into_iter().flatten();
        let some = of.filter(|(_, counts)| number(&counts[column]) > 0);
        let all: Vec<String> = some.map(|(task, counts)| format!("`{task}` {}", number(&counts[column]))).collect();
        if all.is_empty() { "nobody".to_owned() } else { all.join(", ") }
    };
    format!("ours {}; theirs {}", list(ours), list(theirs))
}
