//! Sentences above a report about the recording: its limits, and the reason of a capture.

use flashscope_analysis::SystemFacts;
use flashscope_analysis::calls::{CallsFound, is_sync};

/// All these sentences, in order.
pub fn lines(system: &SystemFacts, calls: &CallsFound) -> Vec<String> {
    [limited_to(&system.limited_to), captured(&system.captured, calls)].concat()
}

/// The limits of the recordings, so that nobody takes a part for the whole.
fn limited_to(limits: &[String]) -> Vec<String> {
    let sentence = |limit: &String| {
        let beneath = match limit.contains("--device loop") || limit.contains("--device /dev/loop") {
            true => " Of the disk beneath a loop device it has only blocks that the file had when it began.",
            false => "",
        };
        format!("Recorded with {limit}: other I/O is not in the trace.{beneath}")
    };
    limits.iter().map(sentence).collect()
}

/// Why a flight recorder wrote each of these recordings, and how to see the causes of the call's wait.
fn captured(reasons: &[String], calls: &CallsFound) -> Vec<String> {
    let sentence = |reason: &String| {
        let task = reason.split_once(" of task ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u32>().ok());
        let told = reason.split_once(" took ").or_else(|| reason.split_once(" has taken "));
        let told_ms = told.and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
        // The task's longest call triggered the capture; a shorter one is another call, whose end the capture contains.
        let is_it =
            |tid: u32, ns: u64| told_ms.is_some_and(|told| ns as f64 / 1e6 + 0.1 >= told) && tid == task.unwrap_or(0);
        let call = calls.slowest.iter().find(|call| is_sync(&call.call) && is_it(call.tid.0, call.duration_ns));
        let call = call.map_or(String::new(), |call| {
            let file = call.path.as_ref().or(call.file.as_ref()).map_or(String::new(), |file| format!(" of {file}"));
            format!(
                " It is {}(){file} by {}. What it waited for: flashscope report TRACE --call {}",
                call.call, call.task, call.number
            )
        });
        format!("Captured because of {reason}.{call}")
    };
    reasons.iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_analysis::TaskId;
    use flashscope_analysis::calls::SlowCall;

    #[test]
    fn a_part_is_no_whole() {
        let said = limited_to(&["--comm dd".to_owned(), "--device loop0".to_owned()]);
        assert_eq!(said[0], "Recorded with --comm dd: other I/O is not in the trace.");
        assert!(said[1].ends_with("only blocks that the file had when it began."), "{said:?}");
        assert!(limited_to(&[]).is_empty());
    }

    #[test]
    fn a_capture_says_why_and_which_call_it_was() {
        let call = |number: u64, call: &str, tid: u32| SlowCall {
            number,
            call: call.to_owned(),
            task: format!("dd ({tid})"),
            tid: TaskId(tid),
            begin_ns: 0,
            duration_ns: 18_700_000,
            file: Some("8:0 inode 12".to_owned()),
            path: Some("/data/y".to_owned()),
            bytes: 0,
        };
        let calls = CallsFound {
            slowest: vec![call(3, "write", 7), call(5, "fsync", 8), call(9, "fsync", 7), call(11, "fsync", 7)],
            ..CallsFound::default()
        };
        let reasons = [
            "fsync>5ms: a sync of task 7 (dd) took 18.7 ms",
            "error: a request to 8:0 at sector 3 ended with -5",
            "fsync>5ms: a sync of task 8 (dd) has taken 270.1 ms and is not done",
        ];
        let said = captured(&reasons.map(str::to_owned), &calls);
        assert_eq!(
            said,
            [
                "Captured because of fsync>5ms: a sync of task 7 (dd) took 18.7 ms. It is fsync() of /data/y by dd (7). What it \
                 waited for: flashscope report TRACE --call 9",
                "Captured because of error: a request to 8:0 at sector 3 ended with -5.",
                "Captured because of fsync>5ms: a sync of task 8 (dd) has taken 270.1 ms and is not done."
            ]
        );
    }
}
