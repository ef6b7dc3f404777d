//! `doctor`: shows what a target can record, what is missing, and how to add it.

use std::fmt::Write as _;
use std::sync::Arc;

use flashscope_report::visible;
use flashscope_trace::Facts;
use flashscope_trace::facts::{Absent, Group, Mtd, ProbePoint};

use crate::args::DoctorArgs;
use crate::failure::Failure;
use crate::progress::Terminal;
use crate::target;

pub fn run(args: &DoctorArgs, quiet: bool) -> Result<(), Failure> {
    let terminal = Arc::new(Terminal::new(quiet));
    let json = target::facts(&args.target, &["probe", "--trial"], &terminal)?;
    let facts = Facts::of(&json);
    if args.json {
        out!("{}", flashscope_report::json::any(&json));
    } else if args.verbose {
        out!("{}\n{}", summary(&facts, &args.target.target, true), advice(&facts));
    } else {
        out!("{}", summary(&facts, &args.target.target, false));
    }
    if capabilities(&facts).iter().all(|capability| capability.missing.is_some()) {
        return Err(Failure::reported(1));
    }
    Ok(())
}

/// At most ten lines: what can be recorded, best first, with the command for it.
fn summary(facts: &Facts, target: &str, verbose: bool) -> String {
    let mut out = format!("Linux {} on {}\n", text(&facts.kernel.release), text(&facts.kernel.machine));
    let capabilities = capabilities(facts);
    let some = capabilities.iter().any(|capability| capability.missing.is_none());
    let on = if target == "local" { String::new() } else { format!("--on {} ", shell(target)) };
    if some {
        // On a virtual board, a recording ends with its command.
        let end = if target.starts_with("board:") { "-- COMMAND" } else { "-d 10" };
        let _ = writeln!(out, "record with:  flashscope record {on}{end}");
    } else {
        let _ = writeln!(out, "nothing can be recorded here");
    }
    let mut reasons: Vec<&str> = Vec::new();
    for Capability { what, missing, .. } in &capabilities {
        match missing {
            None => {
                let _ = writeln!(out, "  yes  {what}");
            }
            // A common cause of several problems is printed once.
            Some((reason, _)) if reasons.contains(&reason.as_str()) => {
                let _ = writeln!(out, "  no   {what}: the same");
            }
            Some((reason, _)) => {
                let _ = writeln!(out, "  no   {what}: {reason}");
                reasons.push(reason);
            }
        }
    }
    match capabilities.iter().find_map(|capability| capability.missing.as_ref()) {
        Some((_, step)) if !some => {
            let uid = facts.access.as_ref().and_then(|access| access.uid);
            let sudo = target == "local" && uid.is_some_and(|uid| uid != 0) && step.starts_with("run as root");
            let _ = match sudo {
                true => writeln!(out, "next: sudo flashscope doctor ({step})"),
                false => writeln!(out, "next: {step}"),
            };
            let _ =
                writeln!(out, "without it, these still work: report, export, and virtual boards (--on board:armv7)");
        }
        _ => {}
    }
    if !verbose {
        let _ = writeln!(out, "details: flashscope doctor {on}-v");
    }
    out
}

/// The target as typed, quoted for a command.
fn shell(target: &str) -> String {
    flashscope_output::quote::shell(target).unwrap_or_else(|| "TARGET".to_owned())
}

/// A text in the facts, safe for a terminal.
fn text(said: &Option<String>) -> std::borrow::Cow<'_, str> {
    visible(said.as_deref().unwrap_or("?"))
}

/// A number in the facts, or "unknown".
fn number(said: Option<u64>) -> String {
    said.map_or_else(|| "?".to_owned(), |number| number.to_string())
}

/// The facts for people: first what works, then what does not, with the next step.
pub fn advice(facts: &Facts) -> String {
    let mut out = String::new();

    let kernel = &facts.kernel;
    let (release, machine) = (text(&kernel.release), text(&kernel.machine));
    let _ = writeln!(out, "Linux {release} on {machine}, agent {}", text(&facts.agent.version));

    let _ = writeln!(out, "\nFlash chips and partitions");
    for mtd in &facts.mtd {
        let kib = |bytes: Option<u64>| number(bytes.map(|bytes| bytes >> 10));
        let _ = writeln!(
            out,
            "  mtd{} chip {} {:?} {}: {} KiB, blocks of {} KiB, pages of {} bytes, spare {} bytes",
            number(mtd.index),
            number(mtd.chip),
            text(&mtd.name),
            text(&mtd.kind),
            kib(mtd.size),
            kib(mtd.erasesize),
            number(mtd.writesize),
            number(mtd.oobsize),
        );
    }
    if facts.mtd.is_empty() {
        let _ = writeln!(out, "  none");
    }

    let _ = writeln!(out, "\nProbe points");
    for point in &facts.probe_points {
        let chosen = if point.chosen == Some(true) { "*" } else { " " };
        let device = point.mtd.map(|mtd| format!("mtd{mtd}")).unwrap_or_default();
        let note = point.note.as_deref().unwrap_or_default();
        let _ = writeln!(
            out,
            " {chosen} {:<8} {:<24} {:<8} {device:<5} {}",
            text(&point.operation),
            text(&point.symbol),
            text(&point.status),
            visible(note)
        );
        if let Some(loses) = &point.loses {
            let _ = writeln!(out, "            does not see: {}", visible(loses));
        }
    }
    let _ = writeln!(
        out,
        "  * chosen: the lowest that fires exactly once for a page read; programs and erases are not tried but\n    cross-counted against MTD's own calls in every recording"
    );

    let _ = writeln!(out, "\nWhat can be recorded here");
    for Capability { what, group, missing } in capabilities(facts) {
        match missing {
            None => {
                let _ = writeln!(out, "  yes  {what}");
                for absent in absent_of(facts, group) {
                    let _ = writeln!(
                        out,
                        "       without {}: {}; it would show {}",
                        text(&absent.event),
                        text(&absent.why),
                        text(&absent.loses)
                    );
                }
            }
            Some((reason, step)) => {
                let _ = writeln!(out, "  no   {what}: {reason}\n       next: {step}");
            }
        }
    }
    out.push_str(&access(facts));
    out
}

/// The rights that each part of a recording needs, and whether this user has them.
fn access(facts: &Facts) -> String {
    let access = facts.access.clone().unwrap_or_default();
    let Some(needs) = access.needs else { return String::new() };
    let current = access.capabilities;
    let mut out = format!("\nAccess (user id {}, ", number(access.uid.map(u64::from)));
    let _ = match current.len() {
        0 => writeln!(out, "no capabilities)"),
        1..=8 => writeln!(out, "{})", current.iter().map(|name| visible(name)).collect::<Vec<_>>().join(", ")),
        count => writeln!(out, "{count} capabilities)"),
    };
    for need in needs {
        let there = if need.there == Some(true) { "yes" } else { "no" };
        let _ = writeln!(out, "  {there:<4} {}: {}", text(&need.what), text(&need.by));
    }
    if !access.keeps.is_empty() {
        out.push_str("  Once armed, the recorder gives up all capabilities but these:\n");
    }
    for keep in &access.keeps {
        let capability = text(&keep.capability).to_uppercase();
        let _ = writeln!(out, "       {capability} ({}): {}", text(&keep.when), text(&keep.why));
    }
    out.push_str(
        "  CAP_PERFMON, CAP_BPF and CAP_SYSLOG are not used.\n  Without root: docs/how-to/record-without-root.md\n",
    );
    out
}

/// Reason and next step.
type Missing = (String, String);

struct Capability {
    what: &'static str,
    /// The group's name in `record --events`.
    group: &'static str,
    missing: Option<Missing>,
}

fn capabilities(facts: &Facts) -> Vec<Capability> {
    let tracefs = &facts.tracefs;
    let no_tracefs = tracefs.path.is_none().then(|| {
        let why = tracefs.error.as_deref().unwrap_or("reason unknown");
        (
            format!("no tracefs ({})", visible(why)),
            match why.ends_with("reboot helps") {
                true => "reboot".to_owned(),
                false => "run as root, which mounts tracefs for itself (with CAP_SYS_ADMIN); if that fails, a kernel with CONFIG_FTRACE".to_owned(),
            },
        )
    });
    let no_instances = (tracefs.instances != Some(true)).then(|| {
        (
            "no tracing instances".to_owned(),
            "run as root; if that fails, a kernel with CONFIG_TRACING (instances/ in tracefs)".to_owned(),
        )
    });
    let no_kprobes = (tracefs.kprobe_events != Some(true)).then(|| {
        (
            "this kernel has no kprobe_events".to_owned(),
            "a kernel with CONFIG_KPROBES and CONFIG_KPROBE_EVENTS, not locked down".to_owned(),
        )
    });
    let no_nand = (!facts.mtd.iter().any(Mtd::is_nand)).then(|| {
        (
            "no raw NAND here".to_owned(),
            "a board with /dev/mtdN of type nand, or a virtual one: --on board:armv7".to_owned(),
        )
    });
    let proved = |mtd: &Mtd| {
        let is = |said: &Option<String>, what: &str| said.as_deref() == Some(what);
        facts
            .probe_points
            .iter()
            .any(|point| is(&point.operation, "read") && is(&point.status, "proved") && proves(point, mtd))
    };
    let unseen = facts.mtd.iter().find(|mtd| mtd.is_nand() && !proved(mtd)).map(|mtd| {
        (
            format!("no probe point sees a page read of mtd{}", number(mtd.index)),
            "run as root, so that it can be tried; then see the probe points above".to_owned(),
        )
    });
    let base = no_tracefs.or(no_instances);
    let no_disk = facts.block.is_empty();
    let no_disk = no_disk.then(|| ("no block device here".to_owned(), "none: there is nothing to record".to_owned()));
    let first = |reasons: [Option<Missing>; 3]| reasons.into_iter().flatten().next();
    let mut all = vec![
        Capability {
            what: "flash operations of raw NAND (--events flash)",
            group: "flash",
            missing: base.clone().or(no_nand).or(no_kprobes).or(unseen),
        },
        Capability {
            what: "block layer (--events block)",
            group: "block",
            missing: first([base.clone(), lacks(facts, "block"), no_disk]),
        },
        Capability {
            what: "calls that read, write, sync, open and map (--events syscall)",
            group: "syscall",
            missing: base.clone().or_else(|| lacks(facts, "syscall")),
        },
        Capability {
            what: "page cache, read-ahead, writeback, and which file at which offset (--events cache)",
            group: "cache",
            missing: base.clone().or_else(|| lacks(facts, "cache")),
        },
        Capability {
            what: "boundaries between layers (--events layers)",
            group: "layers",
            missing: base.or_else(|| lacks(facts, "layers")),
        },
    ];
    // Working capabilities come first; raw NAND, which few machines have, is the last of the others.
    all.sort_by_key(|capability| {
        (capability.missing.is_some(), capability.missing.is_some() && capability.group == "flash")
    });
    all
}

fn of_group<'a>(facts: &'a Facts, name: &str) -> Option<&'a Group> {
    facts.groups.iter().find(|group| group.group.as_deref() == Some(name))
}

/// The next step if the kernel has no event of a group.
fn lacks(facts: &Facts, name: &str) -> Option<(String, String)> {
    let step = of_group(facts, name)?.lacks.as_deref()?;
    Some(("this kernel has none of its events".to_owned(), visible(step).into_owned()))
}

/// Events of a group that a recording on this machine lacks.
fn absent_of<'a>(facts: &'a Facts, name: &str) -> impl Iterator<Item = &'a Absent> {
    of_group(facts, name).into_iter().flat_map(|group| &group.absent)
}

/// A point was proved on one MTD device, which stands for all partitions of its chip.
fn proves(point: &ProbePoint, mtd: &Mtd) -> bool {
    let same = |a: Option<u64>, b: Option<u64>| a.is_some() && a == b;
    same(point.mtd, mtd.index) || same(point.chip, mtd.chip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn advice(facts: &Value) -> String {
        super::advice(&Facts::of(facts))
    }

    fn summary(facts: &Value, target: &str) -> String {
        super::summary(&Facts::of(facts), target, false)
    }

    #[test]
    fn a_bare_machine_gets_a_next_step_for_everything() {
        let facts = json!({
            "agent": {"version": "0.1.0"}, "kernel": {"release": "6.1\u{1b}[31m", "machine": "armv7l"},
            "tracefs": {"path": null, "error": "not mounted", "instances": false, "kprobe_events": false},
            "probe_points": [], "mtd": [], "block": [], "bdi": [], "mounts": []
        });
        let advice = advice(&facts);
        assert!(advice.contains("no   flash operations of raw NAND (--events flash): no tracefs (not mounted)"));
        assert!(advice.contains("run as root, which mounts tracefs"), "{advice}");
        assert!(!advice.contains('\u{1b}'), "a kernel's text must not reach the terminal raw");
    }

    #[test]
    fn a_user_without_rights_gets_a_command_and_disks_come_before_raw_nand() {
        let mut facts = json!({
            "agent": {"version": "0.1.0"}, "kernel": {"release": "6.18", "machine": "x86_64"},
            "tracefs": {"path": null, "error": "not mounted", "instances": false, "kprobe_events": false},
            "probe_points": [], "mtd": [], "block": [{"name": "mmcblk0"}], "bdi": [], "mounts": [], "groups": [],
            "access": {"uid": 1000, "capabilities": [], "needs": [], "keeps": []}
        });
        let said = summary(&facts, "local");
        assert!(said.contains("\nnext: sudo flashscope doctor (run as root, which mounts tracefs"), "{said}");
        let at = |what: &str| said.find(what).unwrap_or_else(|| panic!("{what}: {said}"));
        assert!(
            at("block layer (--events block): no tracefs (not mounted)") < at("raw NAND (--events flash): the same")
        );
        assert!(said.lines().count() <= 10, "{said}");
        assert!(!summary(&facts, "ssh://me@board").contains("sudo"), "the board may have none");
        facts["access"]["uid"] = json!(0);
        assert!(!summary(&facts, "local").contains("sudo"));
    }

    #[test]
    fn the_answer_has_ten_lines_and_the_command_to_type() {
        let mut facts = json!({
            "agent": {"version": "0.1.0"}, "kernel": {"release": "6.18", "machine": "x86_64"},
            "tracefs": {"path": "/sys/kernel/tracing", "error": null, "instances": true, "kprobe_events": false},
            "probe_points": [], "mtd": [], "block": [{"name": "mmcblk0"}], "bdi": [], "mounts": [], "groups": []
        });
        let said = summary(&facts, "ssh://root@board");
        assert!(said.lines().count() <= 10, "{said}");
        assert!(said.contains("flashscope record --on ssh://root@board -d 10\n"), "{said}");
        let (yes, no) = (said.find("yes  block layer"), said.find("no   flash operations"));
        assert!(yes.is_some() && yes < no, "{said}");
        facts["tracefs"] = json!({"path": null, "error": "not mounted", "instances": false, "kprobe_events": false});
        let said = summary(&facts, "local");
        assert!(said.lines().count() <= 10 && said.contains("nothing can be recorded here\n"), "{said}");
        assert!(said.contains("report, export, and virtual boards"), "{said}");
    }

    #[test]
    fn access_is_listed_with_what_is_there() {
        let mut facts = json!({
            "agent": {"version": "0.1.0"}, "kernel": {"release": "6.1", "machine": "armv7l"},
            "tracefs": {"path": null, "error": "permission denied", "instances": false, "kprobe_events": false},
            "probe_points": [], "mtd": [], "block": [], "bdi": [], "mounts": [],
            "access": {"uid": 1000, "capabilities": [], "needs": [
                {"what": "drain in idle time", "by": "CAP_SYS_NICE", "there": false},
                {"what": "record", "by": "root", "there": true}
            ], "keeps": [{"capability": "cap_sys_nice", "when": "always", "why": "drain in idle time"}]}
        });
        let said = advice(&facts);
        assert!(said.contains("Access (user id 1000, no capabilities)\n"), "{said}");
        assert!(said.contains("  no   drain in idle time: CAP_SYS_NICE\n  yes  record: root\n"), "{said}");
        let kept = "gives up all capabilities but these:\n       CAP_SYS_NICE (always): drain in idle time\n";
        assert!(said.contains(kept), "{said}");
        facts["access"]["keeps"] = json!([]);
        assert!(!advice(&facts).contains("gives up"), "it has none");
        facts["access"]["capabilities"] = json!(["cap_sys_nice"]);
        assert!(advice(&facts).contains("Access (user id 1000, cap_sys_nice)\n"));
        facts["access"] = Value::Null;
        assert!(!advice(&facts).contains("Access"), "an older agent does not tell");
    }

    #[test]
    fn a_chip_that_no_probe_sees_is_said() {
        let facts = json!({
            "agent": {"version": "0.1.0"}, "kernel": {"release": "6.1", "machine": "armv7l"},
            "tracefs": {"path": "/sys/kernel/tracing", "error": null, "instances": true, "kprobe_events": true},
            "probe_points": [{"operation": "read", "symbol": "nand_read_page_op", "status": "silent", "mtd": 0, "note": ""}],
            "mtd": [{"index": 0, "chip": 0, "name": "n", "type": "nand", "size": 1048576, "erasesize": 131072, "writesize": 2048, "oobsize": 64}],
            "block": [{"name": "mmcblk0"}], "bdi": [], "mounts": []
        });
        let advice = advice(&facts);
        assert!(advice.contains("no probe point sees a page read of mtd0"), "{advice}");
        assert!(advice.contains("yes  block layer"), "{advice}");
    }

    #[test]
    fn what_a_group_lacks_is_said_with_what_it_would_show() {
        let facts = json!({
            "agent": {"version": "0.1.0"}, "kernel": {"release": "6.1", "machine": "armv7l"},
            "tracefs": {"path": "/sys/kernel/tracing", "error": null, "instances": true, "kprobe_events": false},
            "probe_points": [], "mtd": [], "block": [{"name": "mmcblk0"}], "bdi": [], "mounts": [],
            "groups": [
                {"group": "block", "events": 3, "probes": 0, "lacks": null, "absent": [
                    {"group": "block", "event": "block:block_rq_tag_wait", "why": "no such event", "loses": "waits for a tag"}
                ]},
                {"group": "syscall", "events": 0, "probes": 0, "lacks": "it needs CONFIG_FTRACE_SYSCALLS", "absent": []}
            ]
        });
        let advice = advice(&facts);
        assert!(
            advice.contains(
                "yes  block layer (--events block)\n       without block:block_rq_tag_wait: no such event; it would show waits for a tag\n"
            ),
            "{advice}"
        );
        assert!(
            advice.contains(
                "(--events syscall): this kernel has none of its events\n       next: it needs CONFIG_FTRACE_SYSCALLS"
            ),
            "{advice}"
        );
    }

    #[test]
    fn what_an_mtd_device_does_not_say_is_unknown() {
        let facts = json!({"mtd": [{"index": 4, "chip": null, "name": "u-boot", "type": "nor", "size": 65536, "writesize": 1}]});
        let advice = advice(&facts);
        let line = "  mtd4 chip ? \"u-boot\" nor: 64 KiB, blocks of ? KiB, pages of 1 bytes, spare ? bytes\n";
        assert!(advice.contains(line) && !advice.contains("null"), "{advice}");
    }
}
