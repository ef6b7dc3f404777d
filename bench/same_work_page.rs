//! Writes docs/explanation/benchmarks.md from the results of `bench/run --only same-work`.

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

/// `command`: the command that writes the page again.
pub fn page(found: &Value, command: &str) -> String {
    let mut out = format!(
        "# The benchmarks compared with fio, sqlite3 and postmark\n\nThis document compares our benchmarks with fio, sqlite3 and postmark, for readers who want to know \
         whether they do the same work. `{command}` writes it. Each pair does the same work on the same board, in one boot (postmark on \
         JFFS2: one boot each), with empty caches. One recorder counts the operations of the storage below the file system. It \
         counts from the begin of a program until its data is written by a sync after its end. Times are guest time, exact and the \
         same on any host. fio, sqlite3 and postmark are Debian's packages for armhf.\n\n- *asked*: bytes read and written as reported by the program.\n- *reads, programs, erases*: operations of the \
         NAND chip; on ext4 requests to the driver of the disk.\n- *device bytes*: bytes of whole pages; on ext4 of the requests.\n- *in \
         calls*: the sum of the times of calls, if the program reports it.\n- *device busy from, to*: from the first to the last \
         operation, including the program's own work between calls.\n"
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

/// Equal figures, different figures, and the reasons.
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
        true => "The storage operations are identical.".to_owned(),
        false => format!("Ours minus theirs: {}.", differ.join("; ")),
    });
    if let (Some(a), Some(b)) = (ours["calls_ns"].as_u64(), theirs["calls_ns"].as_u64()) {
        let calls = crate::same_work::READS;
        let more = (b as f64 - a as f64) / calls as f64 / 1e3;
        said.push(format!(
            "fio takes {more:.1} µs longer for each call, because it reads the clock and keeps statistics within the call."
        ));
    }
    let wrote = |side: &Value| side["bytes_written"].as_u64().filter(|&bytes| bytes > 0);
    if let (Some(a), Some(b)) = (wrote(ours), wrote(theirs)) {
        let times = |side: &Value, bytes: u64| number(&side["device_bytes_written"]) as f64 / bytes as f64;
        said.push(format!("Write amplification is {:.3} and {:.3}.", times(ours, a), times(theirs, b)));
    }
    said.push(
        match row["work"].as_str().unwrap_or_default() {
            "read-sequential" => "Between open() and the first read fio sets up its job; the time from the first to the last operation includes that.",
            "read-random" => "fio reads at our offsets, from a log of reads (`--read_iolog`).",
            "write" => "Ours is the verb `create` of the boot plan, run by init. File names differ in length, so there may be one more node or block of metadata.",
            "sqlite-fill" => "Ours writes the database under another name and renames it when it is complete (a link and a sync of the directory). The two libraries have different versions.",
            "sqlite-few" | "sqlite-all" => "Both read ours.db. sqlite3 prints each row between its reads, which takes time.",
            "postmark" => "Files, sizes and operations are random, from different generators, so bytes and operations differ within that randomness (tests/benches.rs checks that many seeds agree within four standard errors). What a collector reads afterwards depends on the blocks of the last files, which differ too.",
            _ => "",
        }
        .to_owned(),
    );
    said.join(" ")
}

/// "agent 971, jffs2_gcd_mtd0 77; postmark 948, …": operations by task.
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
