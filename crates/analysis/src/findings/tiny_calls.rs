//! A program that reads or writes a file a few bytes a call: the page cache has the data, and the calls take the time.

use super::{Finding, GroupBy, MeasureUnit, Remedy, Rule, Seen, code, gain, groups, measure, percent, stage};
use crate::calls::{CallGroup, is_read, is_sync, is_write};
use crate::units::{duration, grouped, size};
use flashscope_trace::FileId;

const MIN_CALLS: u64 = 2000;
/// Most bytes of such a call: a line of text is shorter.
const MAX_BYTES: u64 = 256;
/// Below this share of the recorded time it is not reported, per cent.
const MIN_SPAN_PERCENT: f64 = 5.0;
/// The buffer of the C library (`BUFSIZ` of musl), and a page.
const BUFFERS: [u64; 2] = [1024, 4096];
/// With a sync for this many calls, the calls are not what takes the time.
const CALLS_A_SYNC: u64 = 100;
/// With this share of their time in the device, per cent, the data is not in memory: small calls are not what takes the time.
const MAX_DEVICE_PERCENT: f64 = 20.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let groups = seen.calls.by_process.iter().filter(|group| is_read(&group.call) || is_write(&group.call));
    groups.filter_map(|group| of_calls(seen, group)).collect()
}

fn of_calls(seen: &Seen<'_>, group: &CallGroup) -> Option<Finding> {
    let (n, ns) = (group.ns.n, group.total_ns);
    if n < MIN_CALLS || group.bytes == 0 || group.bytes / n > MAX_BYTES || seen.of_span(ns) < MIN_SPAN_PERCENT {
        return None;
    }
    let mine = || seen.calls.by_process.iter().filter(|other| other.name == group.name);
    let syncs: u64 = mine().filter(|other| is_sync(&other.call)).map(|other| other.ns.n).sum();
    let own = seen.block.and_then(|block| groups(block, GroupBy::Owner).find(|one| one.name == group.name));
    if percent(own.and_then(|own| stage(own, "Q2C")).map_or(0, |q2c| q2c.total_ns), ns) > MAX_DEVICE_PERCENT {
        return None;
    }
    // Many small files need as many calls: it is one file that is read or written so. Calls by file are those of all processes: what
    // the others cannot have made of them is this one's.
    let same = seen.calls.by_process.iter().filter(|other| other.call == group.call);
    let of_others = same.map(|other| other.ns.n).sum::<u64>().saturating_sub(n);
    let of_file = |file: &&CallGroup| file.call == group.call && file.ns.n.saturating_sub(of_others) * 2 >= n;
    let file = seen.calls.by_file.iter().filter(of_file).max_by_key(|file| file.ns.n)?;
    if syncs * CALLS_A_SYNC > n {
        return None;
    }
    let id = FileId::parse(&file.name)?;
    let name = seen.storage.file_name(&id.device?.to_string(), id.inode);
    let each = (group.bytes / n).max(1);
    let opens: u64 = mine().filter(|other| other.call.starts_with("open")).map(|other| other.ns.n).sum();
    let reopens = opens * 2 >= n;
    let verb = if is_read(&group.call) { "reads" } else { "writes" };
    let source = "syscalls:sys_enter_*, sys_exit_*; bytes from the events of the page cache";
    let mut evidence = vec![
        measure(&format!("calls of {}()", group.call), n as f64, MeasureUnit::Count, source),
        measure("time in them, the recorder's part included", ns as f64, MeasureUnit::Ns, source),
        measure("bytes", group.bytes as f64, MeasureUnit::Bytes, source),
    ];
    let mut cause = "The data is in memory: each call takes its time for itself, not for the device.".to_owned();
    if reopens {
        evidence.push(measure("files opened", opens as f64, MeasureUnit::Count, source));
        cause += &format!(" It opens a file for {} of these calls, too.", if opens >= n { "each" } else { "most" });
    }
    let (open, buffer) = (if reopens { "Open the file once, and " } else { "" }, size(BUFFERS[1]));
    let line = match verb {
        "reads" => code::BUFFER_READS,
        _ => code::BUFFER_TINY_WRITES,
    };
    let fewer = |buffer: u64| 100.0 - (each as f64 / buffer as f64 * 100.0).min(100.0);
    Some(Finding {
        processes: vec![group.name.clone()],
        what: format!(
            "{} {verb} {each} bytes a call: {} calls of {}() take {} of {}, most of them on {name}.",
            group.name,
            grouped(n),
            group.call,
            duration(ns),
            duration(seen.span_ns)
        )
        .replace(" 1 bytes ", " 1 byte "),
        cause,
        evidence,
        lost_ns: ns.into(),
        advice: vec![Remedy {
            what: match (verb, open.is_empty()) {
                ("reads", true) => format!("Read {buffer} at once, and take the bytes from memory"),
                ("writes", true) => format!("Gather {buffer}, and write them at once"),
                ("reads", _) => format!("{open}read {buffer} at once"),
                _ => format!("{open}write {buffer} at once"),
            },
            steps: vec![line.with(BUFFERS[1])],
            gain: gain(
                format!("number of calls of {}() by {}", group.call, group.name),
                [fewer(BUFFERS[0]), 100.0],
                format!("a buffer of {} or more in place of {}", size(BUFFERS[0]), size(each)),
            ),
            risk: match verb {
                "reads" => "data that another program changes meanwhile is seen later".to_owned(),
                _ => format!("if the program dies, it loses up to {buffer} that it had not written"),
            },
        }],
        ..Finding::of(Rule::TinyCalls)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    fn work(n: u64, bytes: u64, of_one_file: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.call("read", "counter (7)", n, 300_000_000, bytes);
        work.file_call("read", "8:0 inode 12", of_one_file, 200_000_000);
        work
    }

    #[test]
    fn a_byte_a_call_is_told() {
        let finding = only(find(&work(100_000, 100_000, 100_000).seen()));
        assert_eq!(
            finding.what,
            "counter (7) reads 1 byte a call: 100,000 calls of read() take 300.00 ms of 1.00 s, most of them on inode 12 on 8:0."
        );
        let gain = finding.advice[0].gain.known().expect("a gain");
        // 4096 bytes at once: 25 calls.
        assert!(gain.least_percent < 99.975 && gain.most_percent >= 99.975, "{gain:?}");
    }

    #[test]
    fn a_file_opened_for_each_line_is_told() {
        let mut work = Work::new(1_000_000_000);
        work.call("write", "logger (7)", 5000, 100_000_000, 400_000);
        work.call("openat", "logger (7)", 5000, 60_000_000, 0);
        work.file_call("write", "8:0 inode 12", 5000, 100_000_000);
        let finding = only(find(&work.seen()));
        assert!(finding.what.starts_with("logger (7) writes 80 bytes a call: 5,000 calls"), "{}", finding.what);
        assert!(finding.cause.contains("opens a file for each of these calls"), "{}", finding.cause);
        assert!(finding.advice[0].what.starts_with("Open the file once"), "{}", finding.advice[0].what);
    }

    #[test]
    fn what_others_do_with_a_file_and_what_the_device_takes_is_not() {
        // A search of many small files, beside a program that reads one file as often.
        let mut two = work(10_000, 10_000, 9_000);
        two.call("read", "other (8)", 10_000, 1_000_000, 10_000 << 12);
        assert!(find(&two.seen()).is_empty());
        // Its own calls are most of what is left.
        two.calls.by_process[1].ns.n = 2_000;
        only(find(&two.seen()));
        // The device has the time of the calls.
        let mut slow = work(10_000, 10_000, 10_000);
        slow.bios_of("counter", 100, "R", 1_000, 2_000_000);
        assert!(find(&slow.seen()).is_empty());
    }

    #[test]
    fn many_small_files_large_calls_and_synced_lines_are_not() {
        assert!(find(&work(100_000, 100_000, 30).seen()).is_empty());
        assert!(find(&work(100_000, 100_000 * 300, 100_000).seen()).is_empty());
        assert!(find(&work(1_000, 1_000, 1_000).seen()).is_empty());
        let mut synced = work(100_000, 100_000, 100_000);
        synced.call("fsync", "counter (7)", 2_000, 1_000_000, 0);
        assert!(find(&synced.seen()).is_empty());
    }
}
