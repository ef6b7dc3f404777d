//! `advise --apply` and `--undo`: changes device settings and mount options on a target. The agent there does it and notes the old values.
//! Only the recorded machine is changed.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::Arc;

use flashscope_output::quote;
use flashscope_trace::Facts;

use crate::args::AdviseArgs;
use crate::failure::Failure;
use crate::progress::Terminal;
use crate::target;

/// Runs `knob` on the target; returns its output.
fn knob(args: &AdviseArgs, quiet: bool, words: Vec<String>) -> Result<serde_json::Value, Failure> {
    let on = &args.target.target;
    if on.starts_with("board:") {
        return Err(Failure::usage(format!(
            "--on {on}: a virtual board keeps no settings after a run; name local or ssh://"
        )));
    }
    let argv = std::iter::once("knob".to_owned()).chain(words).collect();
    let out = target::output(&args.target, argv, &Arc::new(Terminal::new(quiet)))?;
    serde_json::from_slice(&out)
        .map_err(|error| Failure::new(format!("{on}: the agent's output cannot be read: {error}")))
}

/// Sets knobs (files below /sys with their values, mount points with an option) on the recorded machine, after asking the user.
pub fn apply(args: &AdviseArgs, quiet: bool, recorded: &Facts, knobs: &[(String, String)]) -> Result<(), Failure> {
    let on = &args.target.target;
    outln!();
    if knobs.is_empty() {
        outln!(
            "Nothing to apply: no setting that can be changed at run time is recommended. Programs are changed by hand."
        );
        return Ok(());
    }
    let terminal = Arc::new(Terminal::new(quiet));
    let there = Facts::of(&target::facts(&args.target, &["probe"], &terminal)?);
    if let Some(difference) = another_machine(recorded, &there, knobs) {
        return Err(Failure::new(format!(
            "nothing is applied: {} is not known to be the machine of the recording: {}; name that machine with --on ssh://HOST, or \
             record on this one",
            flashscope_report::visible(on),
            flashscope_report::visible(&difference)
        )));
    }
    for (path, value) in knobs {
        let (path, value) = (flashscope_report::visible(path), flashscope_report::visible(value));
        let on = flashscope_report::visible(on);
        match path.starts_with("/sys/") {
            true => outln!("To be set on {on}: {path} to {value}"),
            false => outln!("To be mounted again on {on}: {path} with {value}"),
        }
    }
    if !args.yes && !agreed()? {
        outln!("Nothing is changed.");
        return Ok(());
    }
    let pairs = knobs.iter().flat_map(|(path, value)| [path.clone(), value.clone()]);
    let said = knob(args, quiet, std::iter::once("set".to_owned()).chain(pairs).collect())?;
    for one in said["knobs"].as_array().into_iter().flatten() {
        let text = |name: &str| flashscope_report::visible(one[name].as_str().unwrap_or("?")).into_owned();
        let kib = if text("path").ends_with("read_ahead_kb") { " KiB" } else { "" };
        outln!("{}: {}{kib}, was {}", text("path"), text("now"), text("before"));
    }
    let on = quote::shell(on).unwrap_or_else(|| "TARGET".to_owned());
    if knobs.iter().any(|(path, _)| path.ends_with("/read_ahead_kb")) {
        outln!("Files that are open keep their window: start the program again.");
    }
    outln!("It lasts until the next boot. Undo: flashscope advise --undo --on {on}");
    Ok(())
}

/// Asks on the terminal.
fn agreed() -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage("--apply asks before it changes anything, and there is no terminal: add --yes"));
    }
    out!("Set it? [y/N] ");
    std::io::stdout().flush().ok();
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(|error| Failure::new(format!("the answer cannot be read: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Restores the old values. A setting that was changed since stays; a line then tells how to restore it by hand.
pub fn undo(args: &AdviseArgs, quiet: bool) -> Result<(), Failure> {
    let said = knob(args, quiet, vec!["undo".to_owned()])?;
    let left: Vec<String> = said["left"].as_array().into_iter().flatten().map(left_alone).collect();
    for line in &left {
        outln!("{line}");
    }
    match said["undone"].as_u64() {
        Some(0) if left.is_empty() => outln!("Nothing was applied, so there is nothing to restore."),
        Some(knobs) => outln!("Settings restored: {knobs}"),
        None => return Err(Failure::new("the agent did not report which settings it restored")),
    }
    Ok(())
}

/// The line for a setting that somebody changed after it was applied.
fn left_alone(one: &serde_json::Value) -> String {
    let [path, before, now] = ["path", "before", "now"].map(|name| one[name].as_str().unwrap_or("?"));
    let command = quote::argument(before).and_then(|before| match path.starts_with("/sys/") {
        true => Some(format!("; to restore it: echo {before} > {}", quote::sysfs_file(path)?)),
        false => Some(format!("; to restore it: mount -o remount,{before} {}", quote::mount_point(path)?)),
    });
    let [path, before, now] = [path, before, now].map(flashscope_report::visible);
    let command = command.unwrap_or_default();
    format!("{path}: left at {now}, because it was changed after it was applied; it was {before} before{command}")
}

/// How a machine differs from the recorded one; `None` if the facts show no difference. In the recorded boot, a device may have been
/// replaced since: a card, or the file of a loop device. A device that the recording does not describe counts as unchanged in the same
/// boot, and as unknown after another boot.
fn another_machine(recorded: &Facts, there: &Facts, knobs: &[(String, String)]) -> Option<String> {
    let boots = recorded.kernel.boot_id.as_ref().zip(there.kernel.boot_id.as_ref());
    if boots.is_some_and(|(then, now)| then == now) {
        return knobs.iter().find_map(|(path, _)| another_device(recorded, there, path)?.seen());
    }
    match (&recorded.kernel.machine, &there.kernel.machine) {
        (Some(then), Some(now)) if then != now => return Some(format!("that was {then}, and this is {now}")),
        (Some(_), Some(_)) => {}
        _ => return Some("the recording does not say what it was".to_owned()),
    }
    knobs.iter().find_map(|(path, _)| another_device(recorded, there, path).map(Difference::into_text))
}

/// Why a knob's device does not count as the recorded one.
enum Difference {
    Seen(String),
    /// Facts that would decide are missing.
    NotKnown(String),
}

impl Difference {
    fn seen(self) -> Option<String> {
        match self {
            Difference::Seen(text) => Some(text),
            Difference::NotKnown(_) => None,
        }
    }

    fn into_text(self) -> String {
        match self {
            Difference::Seen(text) | Difference::NotKnown(text) => text,
        }
    }
}

/// A value that the recording lacks cannot differ.
fn is_changed<T: PartialEq>(then: &Option<T>, now: &Option<T>) -> bool {
    then.is_some() && then != now
}

/// How the device of a knob differs.
fn another_device(recorded: &Facts, there: &Facts, path: &str) -> Option<Difference> {
    use Difference::{NotKnown, Seen};
    // By name or by number.
    let of_disk = |name: &str| {
        let identity = |facts: &Facts| {
            let is = |known: &Option<String>| known.as_deref() == Some(name);
            let disk = facts.block.iter().find(|disk| is(&disk.name) || is(&disk.device))?;
            let file = (disk.of_loop.backing_file.clone(), disk.of_loop.inode);
            Some((disk.size_bytes, disk.name.clone(), disk.dm_uuid.clone(), file))
        };
        let (then, now) = match (identity(recorded), identity(there)) {
            (Some(then), Some(now)) => (then, now),
            (None, _) => return Some(NotKnown(format!("the recording does not describe {name}"))),
            (_, None) => return Some(Seen(format!("it has no {name}"))),
        };
        if let (Some(then), Some(now)) = (then.0, now.0)
            && then != now
        {
            return Some(Seen(format!("its {name} had {then} bytes, and has {now}")));
        }
        let (file, file_now) = (&then.3, &now.3);
        let changed = is_changed(&then.0, &now.0)
            || is_changed(&then.1, &now.1)
            || is_changed(&then.2, &now.2)
            || is_changed(&file.0, &file_now.0)
            || is_changed(&file.1, &file_now.1);
        let another = format!("its {name} was another one");
        match changed {
            true => Some(Seen(another)),
            false => (then != now || then.0.is_none()).then_some(NotKnown(another)),
        }
    };
    if let Some(name) = path.strip_prefix("/sys/block/").and_then(|rest| rest.split('/').next()) {
        return of_disk(name);
    }
    if let Some(name) = path.strip_prefix("/sys/class/bdi/").and_then(|rest| rest.split('/').next()) {
        if name.contains(':') {
            return of_disk(name);
        }
        // The bdi of an MTD device, or of a file system on it: the chips identify the machine.
        let chips = |facts: &Facts| -> Vec<_> {
            facts.mtd.iter().map(|mtd| (mtd.index, mtd.name.clone(), mtd.size, mtd.erasesize)).collect()
        };
        let same = chips(recorded) == chips(there) && !recorded.mtd.is_empty();
        return (!same).then(|| NotKnown(format!("the flash behind {name} was another one")));
    }
    let mount = |facts: &Facts| {
        let mount = facts.mounts.iter().rfind(|mount| mount.target.as_deref() == Some(path))?;
        Some((mount.source.clone(), mount.kind.clone(), mount.size_bytes))
    };
    match (mount(recorded), mount(there)) {
        (Some(then), Some(now)) if then == now => None,
        (_, None) => Some(Seen(format!("nothing is mounted at {path}"))),
        (None, _) => Some(NotKnown(format!("the recording does not describe {path}"))),
        (Some(then), Some(now))
            if !is_changed(&then.0, &now.0) && !is_changed(&then.1, &now.1) && !is_changed(&then.2, &now.2) =>
        {
            Some(NotKnown(format!("the recording does not describe {path} completely")))
        }
        _ => Some(Seen(format!("another file system was mounted at {path}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn machine(boot: Value, size: u64, source: &str) -> Facts {
        Facts::of(&json!({
            "kernel": {"machine": "armv7l", "boot_id": boot},
            "block": [{"name": "mmcblk0", "device": "179:0", "size_bytes": size}, {"name": "sda", "device": "8:0"}],
            "mounts": [{"target": "/data", "source": source, "type": "ext4", "size_bytes": 1000}],
            "mtd": [{"index": 0, "name": "root", "size": size, "erasesize": 131_072}],
        }))
    }

    #[test]
    fn a_setting_that_was_changed_since_is_told_with_its_command() {
        let line = |path: &str, before: &str| left_alone(&json!({"path": path, "before": before, "now": "512"}));
        assert_eq!(
            line("/sys/block/sda/queue/read_ahead_kb", "128"),
            "/sys/block/sda/queue/read_ahead_kb: left at 512, because it was changed after it was applied; it was 128 before; to \
             restore it: echo 128 > /sys/block/sda/queue/read_ahead_kb"
        );
        assert!(line("/data; reboot", "noatime").ends_with("mount -o remount,noatime '/data; reboot'"));
        for (path, before) in [
            ("/data\u{1b}[2J", "noatime"),
            ("/sys/block/../../etc/x/read_ahead_kb", "128"),
            ("/sys/block/sda/queue/read_ahead_kb", "-n"),
            ("data", "noatime"),
            ("/data/../etc", "noatime"),
        ] {
            assert!(line(path, before).ends_with(&format!("it was {before} before")), "{path}");
        }
    }

    /// Detached and attached again: the file decides whether it is the same device.
    #[test]
    fn a_loop_device_is_its_file() {
        let with = |inode: Option<u64>| {
            let size = inode.map_or(0, |_| 4096);
            let file = inode.map_or(json!({}), |inode| json!({"backing_file": "/data/img", "inode": inode}));
            let disk = json!({"name": "loop1", "device": "7:1", "size_bytes": size, "loop": file});
            Facts::of(&json!({"kernel": {"machine": "x86_64", "boot_id": "a"}, "block": [disk]}))
        };
        let knobs = [("/sys/block/loop1/queue/read_ahead_kb".to_owned(), "128".to_owned())];
        let recorded = with(Some(7));
        assert_eq!(another_machine(&recorded, &with(Some(7)), &knobs), None);
        assert_eq!(another_machine(&recorded, &with(Some(8)), &knobs).as_deref(), Some("its loop1 was another one"));
        assert!(another_machine(&recorded, &with(None), &knobs).is_some());
    }

    #[test]
    fn knobs_are_of_the_machine_that_was_recorded() {
        let recorded = machine(json!("a"), 4096, "/dev/mmcblk0p2");
        let of = |there: &Facts, path: &str| another_machine(&recorded, there, &[(path.to_owned(), "128".to_owned())]);
        const SCHEDULER: &str = "/sys/block/mmcblk0/queue/scheduler";
        const WINDOW: &str = "/sys/class/bdi/179:0/read_ahead_kb";
        // The same boot: a card or a file system that was replaced meanwhile, and a device that the recording does not describe.
        let replaced = machine(json!("a"), 8192, "/dev/sda1");
        assert_eq!(of(&replaced, SCHEDULER).as_deref(), Some("its mmcblk0 had 4096 bytes, and has 8192"));
        assert_eq!(of(&replaced, "/data").as_deref(), Some("another file system was mounted at /data"));
        assert!(of(&replaced, "/sys/block/nvme0n1/queue/scheduler").is_none());
        assert!(of(&machine(json!("a"), 4096, "/dev/mmcblk0p2"), SCHEDULER).is_none());
        // Another boot of the machine, and a machine without a boot id.
        for boot in [json!("b"), Value::Null] {
            let same = machine(boot.clone(), 4096, "/dev/mmcblk0p2");
            let other = machine(boot, 8192, "/dev/sda1");
            for path in [SCHEDULER, WINDOW, "/sys/class/bdi/mtd-0/read_ahead_kb", "/data"] {
                assert_eq!(of(&same, path), None, "{path}");
                assert!(of(&other, path).is_some(), "{path}");
            }
            // Devices that cannot be compared, or do not exist.
            for path in ["/sys/block/sda/queue/scheduler", "/sys/block/vda/queue/scheduler", "/other"] {
                assert!(of(&same, path).is_some(), "{path}");
            }
        }
        let mut x86 = machine(json!("b"), 4096, "/dev/mmcblk0p2");
        x86.kernel.machine = Some("x86_64".to_owned());
        assert_eq!(of(&x86, SCHEDULER).as_deref(), Some("that was armv7l, and this is x86_64"));
        assert!(another_machine(&Facts::default(), &recorded, &[]).is_some_and(|why| why.contains("does not say")));
    }
}
