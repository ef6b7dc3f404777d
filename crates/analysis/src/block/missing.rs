//! Events that a recording could not have because its kernel lacks them.

use super::analysis::BlockFound;
use super::counts::Unit;
use super::lacks::no_completions;
use crate::calls::syncs_or_renames;
use flashscope_trace::{Commands, Facts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most events taken from a recording's facts; the table that they come from has fewer.
const MAX_MISSING: usize = 256;

/// Events that were requested and that the recorded kernel does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct MissingEvent {
    /// `SYSTEM:EVENT`; alternatives of which one would do are joined by `|`.
    pub event: String,
    pub why: String,
    /// The figures that are unknown without it.
    pub loses: String,
}

impl MissingEvent {
    /// Missing events of block I/O and the page cache, from a recording's facts (`recording.absent`).
    pub fn of_facts(facts: &Facts) -> Vec<MissingEvent> {
        let text = |said: &Option<String>| said.clone().unwrap_or_default();
        let absent = facts.recording.absent.iter();
        absent
            .filter(|one| matches!(one.group.as_deref(), Some("block" | "cache")))
            .map(|one| MissingEvent { event: text(&one.event), why: text(&one.why), loses: text(&one.loses) })
            .take(MAX_MISSING)
            .collect()
    }

    /// `record --device` leaves most calls out: `calls` are those that the recording has events of.
    pub fn of_calls<'a>(facts: &Facts, mut calls: impl Iterator<Item = &'a str>) -> Option<MissingEvent> {
        let left_out = !facts.recording.filter.device.is_empty() && calls.all(syncs_or_renames);
        left_out.then(|| MissingEvent {
            event: "syscalls:sys_enter_*".to_owned(),
            why: "of calls only those that sync and rename were recorded, because calls do not name a device and \
                  --device was given: add --events auto,syscall, which records the calls of all processes"
                .to_owned(),
            loses: "which reads, writes and opens waited, for which file, and how long".to_owned(),
        })
    }
}

impl MissingEvent {
    /// The steps of the block layer, in a trace whose requests are drivers' commands.
    pub fn of_commands(commands: &Commands) -> MissingEvent {
        MissingEvent {
            event: "block:block_rq_issue|block:block_rq_complete".to_owned(),
            why: format!(
                "the requests are the commands of a driver ({}): each from when it was sent until its response; record block events too",
                commands.events.join(", ")
            ),
            loses: "number and name of the block device, flags of requests (read-ahead, metadata), and every step before the driver"
                .to_owned(),
        }
    }

    /// Events whose lack leaves figures unknown, found from the trace's own events.
    pub fn of_findings(found: &BlockFound) -> Vec<MissingEvent> {
        let stages = &found.stages;
        let no_issues = stages.requests.known().is_none();
        let queueing = (stages.unit == Unit::Request && !no_issues).then(|| MissingEvent {
            event: "block:block_bio_queue".to_owned(),
            why: match stages.requests_completed.known() {
                Some(_) => {
                    "the trace has issues and completions only; record queueing too (blktrace without -a issue -a complete)"
                }
                None => "the trace has issues only; record queueing too (blktrace without -a)",
            }
            .to_owned(),
            loses: "queueing: every time before the issue, Q2C, and the owner of requests that kernel threads made"
                .to_owned(),
        });
        let issue = no_issues.then(|| MissingEvent {
            event: "block:block_bio_queue|block:block_rq_issue".to_owned(),
            why: "the trace has completions only; record queueing and issues too".to_owned(),
            loses: "number and owner of requests, and every time; failures are listed without an owner".to_owned(),
        });
        let completion =
            (!no_issues && found.errors.recovered.why() == Some(&no_completions())).then(|| MissingEvent {
                event: "block:block_rq_complete|block:block_bio_complete".to_owned(),
                why: "the trace has no completion; record them too (blktrace without -a)".to_owned(),
                loses: "how many were completed, D2C and Q2C".to_owned(),
            });
        let has_remaps = |device: &String| found.stack.iter().any(|level| level.upper == *device);
        let remap = (!found.unclear.is_empty()).then(|| MissingEvent {
            event: "block:block_bio_remap".to_owned(),
            why: match found.unclear.iter().all(has_remaps) {
                true => format!("some bios of {} have no remap: their driver traces none of these", found.unclear.join(", ")),
                false => {
                    format!("the trace has no remap of {}; record it too (blktrace without -a)", found.unclear.join(", "))
                }
            },
            loses: "which bios of the devices beneath do their work: all totals over devices; figures of one device are known"
                .to_owned(),
        });
        [queueing, issue, completion, remap].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_recording_of_one_device_has_calls_that_sync_and_rename_alone() {
        let facts = Facts::of(&json!({"recording": {"filter": {"device": ["loop3"]}}}));
        let of = |calls: &[&'static str]| MissingEvent::of_calls(&facts, calls.iter().copied()).is_some();
        assert_eq!([of(&[]), of(&["fsync", "renameat2"]), of(&["fsync", "pread64"])], [true, true, false]);
        assert!(MissingEvent::of_calls(&Facts::default(), [].into_iter()).is_none());
    }

    #[test]
    fn events_of_the_groups_that_the_report_rests_on() {
        let facts = json!({"recording": {"absent": [
            {"group": "block", "event": "block:block_split", "why": "no such event", "loses": "bios that were cut"},
            {"group": "syscall", "event": "syscalls:read", "why": "", "loses": "read()"},
            {"group": 3}, "x",
        ]}});
        let found = MissingEvent::of_facts(&Facts::of(&facts));
        assert_eq!(found.iter().map(|one| one.event.as_str()).collect::<Vec<_>>(), ["block:block_split"]);
        assert_eq!(found[0].loses, "bios that were cut");
        assert!(MissingEvent::of_facts(&Facts::default()).is_empty());
        let many = json!({"recording": {"absent": vec![json!({"group": "cache"}); 1000]}});
        assert_eq!(MissingEvent::of_facts(&Facts::of(&many)).len(), MAX_MISSING);
    }
}
