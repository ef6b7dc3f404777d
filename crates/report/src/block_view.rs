//! Sentences and tables about block I/O, shared by the terminal and the HTML page.

use crate::rows::Rows;
use crate::text::{bios, counted, duration, grouped, percent, size};
use crate::waits_together::together;
use flashscope_analysis::block::{
    BlockFound, BlockReport, FormerName, Group, GroupBy, LongestWait, Originator, OwnerKind, OwnerLoad, StageTimes,
    SyncTimes, SyncWait, TOLD_APART, Unit, WaitBehind, WaitStage,
};
use flashscope_analysis::{Evidence, OWN_RECORDING, Unknown};

/// Largest number of sentences.
const MAX_SENTENCES: usize = 4;
/// Originators whose waits behind others are below this percentage of their time get no sentence, only a row in the table.
const MIN_WAIT_PERCENT: f64 = 1.0;
/// From this share of a group's bytes on, an earlier name of its task is named.
const MIN_FORMER_PERCENT: u64 = 10;

pub fn wait_stage(stage: WaitStage) -> &'static str {
    match stage {
        WaitStage::Request => "for a request",
        WaitStage::Scheduler => "in the scheduler",
        WaitStage::Merged => "in a merged request",
    }
}

/// Total time waited behind another originator, in ns.
pub fn waited(w: &WaitBehind) -> u64 {
    w.served_ns.saturating_add(w.handover_ns)
}

/// A note on the recorded unit if the trace does not show queued bios; `None` if it does.
pub fn unit_note(found: &BlockFound) -> Option<String> {
    let stages = &found.stages;
    let queueing = "no bio being queued (block_bio_queue, blktrace's Q)";
    let note = match (stages.requests.known(), stages.requests_completed.known()) {
        _ if stages.unit != Unit::Request => return None,
        (None, _) => format!(
            "The trace shows completions, {queueing} and no request being issued: what failed is known, and no time. Record \
             queueing and issues too."
        ),
        (Some(&n), None) => format!(
            "The trace shows {} being issued, {queueing} and no completion: bytes and issuers are known, and no time. Record \
             queueing and completions too.",
            counted(n, "request")
        ),
        (Some(&n), Some(_)) => format!(
            "The trace shows {} being issued and completed, and {queueing}: times in the device (D2C), bytes and issuers are \
             known; how long anything waited before, and for whom a request was made, is not. Record queueing too.",
            counted(n, "request")
        ),
    };
    Some(note)
}

/// The counted unit, and the numbers that began and ended, each with its word.
fn counts(found: &BlockFound) -> (&'static str, [(&Evidence<u64>, &'static str); 2]) {
    let s = &found.stages;
    match s.unit {
        Unit::Bio => ("bio", [(&s.bios_queued, "queued"), (&s.bios_completed, "completed")]),
        Unit::Request => ("request", [(&s.requests, "issued"), (&s.requests_completed, "completed")]),
    }
}

/// A count, or "unknown".
pub fn count(count: &Evidence<u64>) -> String {
    count.known().map_or("unknown".to_owned(), |&n| grouped(n))
}

/// Whether the trace has no event of block I/O at all.
pub const fn is_empty(found: &BlockFound) -> bool {
    found.stages.events == 0
}

/// What is said of such a trace, and what to try.
pub const NOTHING_RECORDED: &str = "No block I/O was recorded: the trace has no event of it. What the page cache answers, and what it has not \
     written back yet, reaches no device. Record while the application runs, as `flashscope record -- COMMAND`; for longer, with -d \
     SECONDS; or without --device, --pid, --comm and --cgroup.";

/// The known counts: `16 bios queued, 16 completed`.
pub fn known_counts(found: &BlockFound) -> Vec<String> {
    let (unit, counts) = counts(found);
    let known = counts.iter().filter_map(|(count, did)| Some((count.known()?, did)));
    known
        .enumerate()
        .map(
            |(at, (&n, did))| {
                if at == 0 { format!("{} {did}", counted(n, unit)) } else { format!("{} {did}", grouped(n)) }
            },
        )
        .collect()
}

/// Sentences about unknown counts, one for each reason.
pub fn unknown_counts(found: &BlockFound) -> Vec<String> {
    let (unit, [begun, done]) = counts(found);
    let sentence = |did: &str, why: &Unknown| {
        // The sentence already names the completions.
        let missing = why.missing.strip_suffix(": how many were completed, and when").unwrap_or(&why.missing);
        format!("How many {unit}s were {did} is unknown: {missing}. To know it, {}.", why.next)
    };
    let mut sentences: Vec<String> = match (begun.0.why(), done.0.why()) {
        (Some(why), Some(other)) if why == other => vec![sentence(&format!("{} and {}", begun.1, done.1), why)],
        (why, other) => {
            let of = [(begun.1, why), (done.1, other)].into_iter();
            of.filter_map(|(did, why)| Some(sentence(did, why?))).collect()
        }
    };
    let failed = found.errors.failed.why().filter(|why| ![begun.0.why(), done.0.why()].contains(&Some(why)));
    sentences.extend(failed.map(|why| {
        let missing = why.missing.strip_suffix(": how much was in flight at the end, and what failed");
        format!("How many {unit}s failed is unknown: {}. To know it, {}.", missing.unwrap_or(&why.missing), why.next)
    }));
    sentences
}

/// The number of failures, in one line; `None` without failures.
pub fn failed(found: &BlockFound) -> Option<String> {
    let e = &found.errors;
    let first = e.failures.first()?;
    let unit = if found.stages.unit == Unit::Bio { "bio" } else { "request" };
    let known = |count: &Evidence<u64>| count.known().copied().unwrap_or(0);
    let ((failed, is_least), (below, below_is_least)) = (e.seen(false), e.seen(true));
    let at_least = |is_least: bool| if is_least { "at least " } else { "" };
    let below_it = format!("{}{}", at_least(below_is_least), grouped(below));
    let failed_it = format!("{}{}", if is_least { "At least " } else { "" }, counted(failed, unit));
    let what = match (failed, below) {
        (_, 0) => failed_it,
        (0, _) if is_least => format!("{} at lower levels", counted(below, unit)),
        (0, _) => format!("No {unit} of a program, but {below_it} at lower levels"),
        _ => format!("{failed_it}, and {below_it} below at lower levels,"),
    };
    let mut line = format!(
        "{what} ended with an error ({} {}), the first at {} sector {} for {}",
        first.errno,
        first.error,
        first.device,
        first.sector,
        first.for_whom()
    );
    for (n, what) in [(&e.retries, "were retries of what had failed"), (&e.recovered, "succeeded when tried again")] {
        let n = known(n);
        if n > 0 {
            line += &format!("; {} {what}", grouped(n));
        }
    }
    Some(line + ".")
}

/// One row per failure.
pub fn failures(found: &BlockFound, most: usize) -> Rows {
    let heads = &["device", "sector", "what", "bytes", "error", "for", "at", "took", "attempt"];
    let begin = found.stages.begin_ns;
    Rows::new("tntnttnnn", heads, found.errors.failures.iter(), most, |one| {
        vec![
            one.device.clone(),
            one.sector.to_string(),
            one.kind.plural().to_owned(),
            size(one.bytes),
            format!("{} {}", one.errno, one.error),
            one.owner.clone(),
            format!("+{}", duration(one.begin_ns.known().unwrap_or(&one.end_ns).saturating_sub(begin))),
            one.took_ns.known().map_or("unknown".to_owned(), |&ns| duration(ns)),
            grouped(one.attempt),
        ]
    })
}

/// Durations of flushes of the device's cache.
pub fn flushes(found: &BlockFound) -> Vec<String> {
    let f = &found.flushes;
    let mut lines = Vec::new();
    if f.requests.n > 0 {
        lines.push(format!(
            "The devices had {} for {} in all: {} on average, {} at most.",
            counted(f.requests.n, "flush request"),
            f.requests_total_ns.known().map_or("unknown".to_owned(), |&ns| duration(ns)),
            duration(f.requests.mean),
            duration(f.requests.max)
        ));
    }
    if let (Some(&empty), Some(&data)) = (f.empty_bios.known(), f.data_bios.known())
        && empty + data > 0
    {
        lines.push(format!(
            "Bios that only flush: {}; bios with data that flush before or after it: {}.",
            grouped(empty),
            grouped(data)
        ));
    }
    let steps = [("flush before", f.before_data), ("data", f.data), ("flush after", f.after_data)];
    let steps: Vec<String> = steps
        .iter()
        .filter(|(_, times)| times.n > 0)
        .map(|(name, times)| format!("{name} {} (n {})", duration(times.mean), grouped(times.n)))
        .collect();
    if !steps.is_empty() {
        lines.push(format!("Steps of bios with data, on average: {}.", steps.join(", ")));
    }
    lines
}

/// The waits of fsync and similar calls, in one line; `None` without such calls.
pub fn syncs_line(found: &BlockFound) -> Option<String> {
    let s = &found.syncs;
    (s.durations.n > 0).then(|| {
        let known = s.data_ns.known().is_some();
        let time = |ns: &Evidence<u64>| ns.known().map_or("an unknown part of that".to_owned(), |&ns| duration(ns));
        let waited = format!(
            " They waited {} for their own data, {} for the journal, {} for flushes of the device; {} were for no bio.",
            time(&s.data_ns),
            time(&s.journal_ns),
            time(&s.flush_ns),
            time(&s.rest_ns)
        );
        let longest = s.calls.first().and_then(|call| {
            let wait = longest_wait(call.waits.known()?.longest.as_ref()?);
            Some(format!(" The longest is {} {}: it waited longest for {wait}.", call.call, grouped(call.number)))
        });
        let why = s.data_ns.why();
        format!(
            "{} took {} on average, {} in the median, {} at most.{}",
            counted(s.durations.n, "call"),
            duration(s.durations.mean),
            duration(s.durations.p50),
            duration(s.durations.max),
            if known {
                waited + &longest.unwrap_or_default()
            } else {
                why.map_or(String::new(), |why| format!(" {}; {}.", why.missing, why.next))
            }
        )
    })
}

fn longest_wait(w: &LongestWait) -> String {
    let how = match w.how {
        SyncWait::Data => "its data",
        SyncWait::Journal => "the journal",
        SyncWait::Flush => "a flush",
    };
    let in_device = w.d2c_ns.map_or("unknown".to_owned(), duration);
    format!(
        "{how}, {} of {} at {} sector {}: {}, of which {in_device} in the device",
        w.flags,
        size(w.bytes),
        w.device,
        w.sector,
        duration(w.q2c_ns)
    )
}

/// The longest fsync and similar calls.
pub fn syncs(found: &BlockFound, most: usize) -> Rows {
    let heads = &["call", "of", "begins", "took", "data", "journal", "flush", "rest"];
    let begin = found.stages.begin_ns;
    let unknown = || "unknown".to_owned();
    Rows::new("ttnnnnnn", heads, found.syncs.calls.iter(), most, |one| {
        let known = one.waits.known();
        let time = |of: fn(&SyncTimes) -> u64| known.map_or_else(unknown, |times| duration(of(times)));
        let flush = known.and_then(|times| times.flush_ns.known());
        vec![
            format!("{} {}", one.call, grouped(one.number)),
            one.task.clone(),
            format!("+{}", duration(one.begin_ns.saturating_sub(begin))),
            duration(one.duration_ns),
            time(|times| times.data_ns),
            time(|times| times.journal_ns),
            flush.map_or_else(unknown, |&ns| duration(ns)),
            time(|times| times.rest_ns),
        ]
    })
}

/// Stacked devices, and the time that each layer adds.
pub fn stack(found: &BlockFound, most: usize) -> Rows {
    let heads = &[
        "device", "on", "bios", "bytes", "bios\nbelow", "bytes\nbelow", "by the\ncache", "way\ndown", "below",
        "way\nback", "Q2C",
    ];
    Rows::new("ttnnnnnnnnn", heads, found.stack.iter(), most, |one| {
        let lower = match &one.file {
            None if one.inferred => format!("{} (inferred from their bios; no block_bio_remap)", one.lower),
            Some(file) => format!("{file} on {}", one.lower),
            None => one.lower.clone(),
        };
        let mut row = vec![one.upper.clone(), lower, grouped(one.upper_bios), size(one.upper_bytes)];
        row.extend([grouped(one.lower_bios), size(one.lower_bytes), size(one.cached_bytes)]);
        let means = [one.mean_down_ns, one.mean_below_ns, one.mean_up_ns, one.mean_q2c_ns];
        row.extend(means.map(|mean| mean.map(duration).unwrap_or_default()));
        row
    })
}

/// One sentence for each loop device whose place on a disk is unknown.
pub fn loops(found: &BlockFound) -> Vec<String> {
    let why = found.loops.iter().filter_map(|one| one.backing.why());
    why.map(|why| format!("Unknown: {}. Record with: {}.", why.missing, why.next)).collect()
}

/// Sentences about waits behind other originators, worst first; tasks with one name are combined. One sentence if no wait is known. Names
/// are as recorded: the caller escapes them.
pub fn interference(found: &BlockFound) -> Vec<String> {
    let (owners, pairs) = together(&found.interference);
    let (mut out, mut short) = (Vec::new(), 0);
    let total = |o: &OwnerLoad| o.mean_q2c_ns.saturating_mul(o.bios);
    for o in owners.iter().filter(|o| o.mean_behind_ns > 0).take(MAX_SENTENCES) {
        let behind = |w: &&WaitBehind| w.victim == o.owner && w.device == o.device;
        let of: Vec<&WaitBehind> = pairs.iter().filter(behind).collect();
        let all = of.iter().fold(0u64, |sum, w| sum.saturating_add(waited(w)));
        // By originator that causes waits, over all stages.
        let mut culprits: Vec<(&str, u64)> = Vec::new();
        for w in &of {
            match culprits.iter_mut().find(|(name, _)| *name == w.behind) {
                Some((_, ns)) => *ns = ns.saturating_add(waited(w)),
                None => culprits.push((&w.behind, waited(w))),
            }
        }
        culprits.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let share = |ns: u64, of: u64| if of == 0 { 0.0 } else { ns as f64 / of as f64 * 100.0 };
        if share(o.mean_behind_ns, o.mean_q2c_ns) < MIN_WAIT_PERCENT {
            short += 1;
            continue;
        }
        let behind_whom = match culprits.first() {
            Some((worst, ns)) => {
                let stage = of.iter().filter(|w| w.behind == *worst).max_by_key(|w| waited(w));
                let stage = stage.map_or("somewhere", |w| wait_stage(w.stage));
                format!("{} of that behind {worst}, mostly waiting {stage}", percent(share(*ns, all)))
            }
            None => format!("behind whom is unknown: only {TOLD_APART} originators of a device are distinguished"),
        };
        out.push(format!(
            "{} on {}: of {} a bio, {} ({}) passed behind others; {behind_whom}. {}",
            o.owner,
            o.device,
            duration(o.mean_q2c_ns),
            duration(o.mean_behind_ns),
            percent(share(o.mean_behind_ns.saturating_mul(o.bios), total(o))),
            alone(o)
        ));
    }
    if let Some(why) = &found.interference.unseen {
        out.push(match out.is_empty() {
            true => format!("Who waits behind whom is unknown: {}.", why.missing),
            false => format!("These waits are at least so long: {}.", why.missing),
        });
        return out;
    }
    if out.is_empty() && short > 0 {
        return vec![format!("Nobody waited behind another's request for {MIN_WAIT_PERCENT} % of their time or more.")];
    }
    if out.is_empty()
        && let Some(note) = unit_note(found)
    {
        return vec![note];
    }
    if out.is_empty() {
        let issued = found.groups.iter().flat_map(|g| &g.stages).any(|s| s.stage == "D2C");
        let stages = &found.stages;
        out.push(match (stages.bios_completed.known(), issued) {
            (None, _) => "Who waits behind whom is unknown: see above what the trace lacks.".to_owned(),
            (Some(0), _) if stages.bios_queued.known() == Some(&0) && stages.events > 0 => {
                "The trace has block events but no bio being queued (block_bio_queue, blktrace's Q): without those no stage, \
                 no originator and no wait is known. Record them too."
                    .to_owned()
            }
            (Some(0), _) => "No bio was completed in this trace.".to_owned(),
            (_, false) if found.flushes.requests.n > 0 => {
                "Who waits behind whom is unknown: the trace shows no issued request beside flushes of devices.".to_owned()
            }
            (_, false) => "Who waits behind whom is unknown: the trace shows no issued request.".to_owned(),
            (_, true) => "Nobody waited behind another's request.".to_owned(),
        });
    }
    out
}

/// The estimated time of an originator's bios without the others.
fn alone(o: &OwnerLoad) -> String {
    let alone = match &o.mean_alone_ns {
        Evidence::Known(ns) => duration(*ns),
        Evidence::Unknown(why) => return format!("What it would take alone is unknown: {}.", why.missing),
    };
    match &o.mean_device_excess_ns {
        Evidence::Unknown(why) => {
            format!(
                "Without that it would take {alone}; whether the device itself took longer is unknown: {}.",
                why.missing
            )
        }
        Evidence::Known(0) => format!("Alone it would take {alone}."),
        Evidence::Known(ns) => format!(
            "In the device it took {} {} than without requests of others: alone it would take {alone}.",
            duration(ns.unsigned_abs()),
            if *ns > 0 { "longer" } else { "less" }
        ),
    }
}

/// Heading above [`missing`].
pub const MISSING: &str = "Events that the trace does not have";

/// Events that the kernel or the trace lacks, one line for each reason, with the figures that need them.
pub fn missing(report: &BlockReport) -> Vec<String> {
    /// An unknown figure, and the events that would show it.
    type Lost<'a> = (&'a str, Vec<&'a str>);
    let mut reasons: Vec<(&str, Vec<Lost<'_>>)> = Vec::new();
    for one in &report.missing {
        let of_reason = entry(&mut reasons, &one.why);
        entry(of_reason, &one.loses).push(&one.event);
    }
    let lost = |(loses, events): &Lost<'_>| format!("{loses} ({})", events.join(", "));
    let line = |(why, all): &(&str, Vec<Lost<'_>>)| {
        format!("{why}. Not known for it: {}", all.iter().map(lost).collect::<Vec<_>>().join("; "))
    };
    reasons.iter().map(line).collect()
}

/// The entry with this name; appended if new, so the order of first use stays.
fn entry<'a, 'b, T: Default>(all: &'b mut Vec<(&'a str, T)>, name: &'a str) -> &'b mut T {
    let place = all.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
        all.push((name, T::default()));
        all.len() - 1
    });
    &mut all[place].1
}

/// The I/O that the recorder itself queued, which is not the workload; `None` if none is known.
pub fn own_recording(found: &BlockFound) -> Option<String> {
    let own = || found.groups.iter().filter(|g| g.by == GroupBy::Owner && g.name.starts_with(OWN_RECORDING));
    let (bios, bytes) = own().fold((0, 0), |(bios, bytes), g| (bios + g.bios, bytes + g.bytes));
    (bios > 0).then(|| format!("{} of them are {OWN_RECORDING} ({})", grouped(bios), size(bytes)))
}

/// Written bytes by originator, in one sentence.
pub fn written(found: &BlockFound) -> String {
    let Some(o) = found.originators.written() else {
        return "How much was written for whom is unknown: see above what the trace lacks.".to_owned();
    };
    let parts = [
        (o.direct_bytes, "by the task that asked"),
        (o.one_bytes, "for one task that dirtied the page"),
        (o.shared_bytes, "of pages that several dirtied"),
        (o.kernel_bytes, "of the kernel's own (journals, metadata, garbage collection, resync, swap)"),
        (o.unknown_bytes, "by kernel threads, owner unknown"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(bytes, _)| *bytes > 0).map(|(bytes, what)| format!("{} {what}", size(*bytes))).collect();
    let written = if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
    let mixed = match o.mixed_bios {
        0 => String::new(),
        mixed => format!("; {} had several originators", bios(mixed)),
    };
    format!("Written: {written}{mixed}.")
}

/// Queue depth and seek distances.
pub fn load(found: &BlockFound) -> Vec<String> {
    let load = &found.over_time;
    let merges = load.windows.iter().try_fold(0u64, |sum, w| Some(sum.saturating_add(w.merges?)));
    let merges = merges.filter(|_| !load.windows.is_empty());
    let most = [
        load.most_in_flight.known().map(|&most| format!("{} in flight", bios(most))),
        load.most_in_device.known().map(|&most| format!("{} in the devices", counted(most, "request"))),
    ];
    let known: Vec<&str> = most.iter().filter_map(Option::as_deref).collect();
    let mut lines = Vec::new();
    if !known.is_empty() {
        lines.push(format!("At most {} at one time.", known.join(" and ")));
    }
    if let (Some(merges), Some(line)) = (merges, lines.last_mut()) {
        *line += &format!(" Merges: {}.", grouped(merges));
    }
    let moved = load.seek_sectors.known().zip(load.sequential.known());
    let unknown = [
        (most[0].is_none(), "how many bios are in flight"),
        (most[1].is_none(), "how many requests are in the devices"),
        (merges.is_none(), "merges"),
        (moved.is_none(), "how far the devices had to move"),
    ];
    let unknown: Vec<&str> = unknown.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect();
    if !unknown.is_empty() {
        lines.push(format!("Not in the trace: {}.", unknown.join(", ")));
    }
    let Some((seeks, &sequential)) = moved else { return lines };
    if seeks.n > 0 {
        lines.push(format!(
            "Sequential: {}. {} began elsewhere: {} sectors away in the median, {} on average, {} at most.",
            counted(sequential, "request"),
            grouped(seeks.n),
            grouped(seeks.p50),
            grouped(seeks.mean),
            grouped(seeks.max)
        ));
    } else if sequential > 0 {
        lines.push(format!("Sequential: all {} requests.", grouped(sequential)));
    }
    lines
}

/// Explains the letters of the stages.
pub const STAGE_NAMES: &str = "Q queued, G request allocated, M merged, I inserted, D issued to the driver, C completed; n counts bios, as btt does: one that was split is one, from its first step to its last completion; share is of Q2C.";

pub fn stages(stages: &[StageTimes]) -> Rows {
    let heads = &["stage", "n", "min", "mean", "p50", "p90", "p99", "p99.9", "max", "share"];
    Rows::new("tnnnnnnnnn", heads, stages.iter(), usize::MAX, |s| {
        let mut row = vec![s.stage.clone(), grouped(s.ns.n)];
        row.extend([s.ns.min, s.ns.mean, s.ns.p50, s.ns.p90, s.ns.p99, s.ns.p999, s.ns.max].map(duration));
        row.push(s.share_percent.map_or(String::new(), |share| format!("{share:.2} %")));
        row
    })
}

/// Headings of the groups.
pub const GROUPS: [(GroupBy, &str); 6] = [
    (GroupBy::Device, "By device and operation"),
    (GroupBy::Flag, "By flag"),
    (GroupBy::Size, "By size"),
    (GroupBy::Owner, "By originator"),
    (GroupBy::File, "By file"),
    (GroupBy::Parts, "Parts of split bios"),
];

pub fn groups(found: &BlockFound, by: GroupBy, most: usize) -> Rows {
    let of: Vec<&Group> = found.groups.iter().filter(|group| group.by == by).collect();
    let heads = &["", "bios", "bytes", "Q2D\nmean", "D2C\nmean", "Q2C\nmean", "Q2C\np99", "Q2C\nmax"];
    Rows::new("tnnnnnnn", heads, of.into_iter(), most, |group| {
        let stage = |name: &str| group.stages.iter().find(|s| s.stage == name).map(|s| s.ns);
        let time = |ns: Option<u64>| ns.map_or(String::new(), duration);
        let q2c = stage("Q2C");
        vec![
            in_groups(found, group),
            grouped(group.bios),
            size(group.bytes),
            time(stage("Q2D").map(|s| s.mean)),
            time(stage("D2C").map(|s| s.mean)),
            time(q2c.map(|s| s.mean)),
            time(q2c.map(|s| s.p99)),
            time(q2c.map(|s| s.max)),
        ]
    })
}

pub fn originators(found: &BlockFound, most: usize) -> Rows {
    let heads = &["originator", "read", "written", "carried by"];
    Rows::new("tnnt", heads, found.originators.originators.iter(), most, |one| {
        vec![called(one), size(one.read_bytes), size(one.written_bytes), carried(one)]
    })
}

/// The originator's name with its earlier names, and what it read and wrote under these.
fn called(one: &Originator) -> String {
    let under = |name: &String| match one.under_former_names.iter().find(|former| former.name == *name) {
        Some(former) => format!("{name} ({})", moved(former)),
        None => name.clone(),
    };
    match one.former_names[..] {
        [] => one.name.clone(),
        _ => format!("{}, before: {}", one.name, one.former_names.iter().map(under).collect::<Vec<_>>().join(", ")),
    }
}

fn moved(one: &FormerName) -> String {
    match (one.read_bytes, one.written_bytes) {
        (read, 0) => format!("read {}", size(read)),
        (0, written) => format!("wrote {}", size(written)),
        (read, written) => format!("read {}, wrote {}", size(read), size(written)),
    }
}

/// A group of a task's I/O with the earlier names under which it did much of it. A shell does little before it executes a program.
fn in_groups(found: &BlockFound, group: &Group) -> String {
    let tasks =
        found.originators.originators.iter().filter(|one| group.by == GroupBy::Owner && one.is_called(&group.name));
    let is_much = |former: &&FormerName| {
        let bytes = former.read_bytes.saturating_add(former.written_bytes);
        bytes.saturating_mul(100) >= group.bytes.saturating_mul(MIN_FORMER_PERCENT)
    };
    let former = tasks.flat_map(|one| &one.under_former_names).filter(is_much);
    let names: Vec<&str> = former.map(|former| former.name.as_str()).collect();
    match names[..] {
        [] => group.name.clone(),
        _ => format!("{}, before: {}", group.name, names.join(", ")),
    }
}

/// Largest number of carriers that are named.
const MAX_CARRIERS: usize = 3;

fn carried(one: &Originator) -> String {
    let all: Vec<String> = one
        .carriers
        .iter()
        .filter(|c| c.carrier != one.name)
        .map(|c| format!("{} {}", c.carrier, size(c.read_bytes.saturating_add(c.written_bytes))))
        .collect();
    match (all.len(), one.kind) {
        (0, OwnerKind::Unknown) => "itself; owner unknown".to_owned(),
        (0, _) => "itself".to_owned(),
        (n, _) if n > MAX_CARRIERS => {
            format!("{} and {} more", all[..MAX_CARRIERS].join(", "), grouped((n - MAX_CARRIERS) as u64))
        }
        _ => all.join(", "),
    }
}

pub fn files(found: &BlockFound, most: usize) -> Rows {
    let heads = &["device", "inode", "file", "written back"];
    Rows::new("tntn", heads, found.originators.files.iter(), most, |file| {
        vec![
            file.device.clone(),
            file.inode.to_string(),
            file.path.clone().unwrap_or_default(),
            size(file.written_bytes),
        ]
    })
}

/// The time of each originator's bios, and the estimate without the others.
pub fn owner_loads(found: &BlockFound, most: usize) -> Rows {
    let heads = &["device", "originator", "bios", "Q2C\nmean", "behind\nothers", "device\nexcess", "alone"];
    // Other I/O was in flight but not recorded.
    let at_least = if found.interference.unseen.is_some() { "≥ " } else { "" };
    Rows::new("ttnnnnn", heads, found.interference.owners.iter(), most, |o| {
        let unknown = || "unknown".to_owned();
        let excess = o
            .mean_device_excess_ns
            .known()
            .map_or_else(unknown, |ns| format!("{}{}", if *ns < 0 { "-" } else { "" }, duration(ns.unsigned_abs())));
        vec![
            o.device.clone(),
            o.owner.clone(),
            grouped(o.bios),
            duration(o.mean_q2c_ns),
            format!("{at_least}{}", duration(o.mean_behind_ns)),
            excess,
            o.mean_alone_ns.known().map_or_else(unknown, |ns| duration(*ns)),
        ]
    })
}

/// Whether the trace would show waits behind others but has none, and no owner's bios took twice as long as alone.
pub fn nobody_waited(found: &BlockFound) -> bool {
    let doubled = |one: &OwnerLoad| match (one.mean_device_excess_ns.known(), one.mean_alone_ns.known()) {
        (Some(&excess), Some(&alone)) => i128::from(excess) > i128::from(alone),
        _ => false,
    };
    let waits = &found.interference;
    let none = |one: &OwnerLoad| one.mean_behind_ns == 0 && !doubled(one);
    waits.unseen.is_none() && waits.pairs.is_empty() && waits.owners.iter().all(none)
}

/// Waits by victim, cause and stage.
pub fn pairs(found: &BlockFound, most: usize) -> Rows {
    let heads = &["device", "who waits", "behind", "in", "served", "hand-over"];
    Rows::new("ttttnn", heads, found.interference.pairs.iter(), most, |w| {
        vec![
            w.device.clone(),
            w.victim.clone(),
            w.behind.clone(),
            match w.stage {
                WaitStage::Request => "Q2G",
                WaitStage::Scheduler => "G2I, I2D",
                WaitStage::Merged => "Q2M, M2D",
            }
            .to_owned(),
            duration(w.served_ns),
            duration(w.handover_ns),
        ]
    })
}

/// Sentences about waits that are not in the table; empty if there are none.
pub fn wait_notes(found: &BlockFound) -> Vec<String> {
    /// A median of fewer values is not reliable.
    const ENOUGH: u64 = 30;
    let i = &found.interference;
    let counted = [
        (i.shared_requests.known().copied().unwrap_or(0), "requests had bios of several originators."),
        (i.not_measured, "bios whose wait was not measured: there are too many originators."),
        (
            i.further_owners,
            "originators have no row in the table of who waits behind whom; their totals are in the load table.",
        ),
    ]
    .into_iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!("{} {what}", grouped(n)));
    let unsure = i.own_work.iter().filter(|own| own.idle < ENOUGH).map(|own| {
        format!(
            "{}, {}: what the step takes anyway ({}, taken off {} waits) is known from {} bios that found the device idle; \
             record some time with less load to be sure of it.",
            own.device,
            own.step,
            duration(own.own_ns),
            grouped(own.waited),
            grouped(own.idle)
        )
    });
    counted.chain(unsure).collect()
}

/// Steps and bios outside of all stages, without zero counts.
pub fn unmatched(found: &BlockFound) -> Rows {
    let (s, u) = (&found.stages, &found.stages.unmatched);
    // Without bios and requeues in the trace, one request may have been issued twice.
    let completion_lost =
        match s.bios_queued.known().is_none() && s.requeues.known().is_none_or(|&requeues| requeues == 0) {
            true => "issued again before a completion: a completion was lost, or the driver gave the request back",
            false => "completion lost: the same sectors were queued again",
        };
    let rows: Vec<(&str, u64)> = [
        ("commands of the driver itself", s.without_data),
        ("bios in flight when the trace ended", s.unfinished.known().copied().unwrap_or(0)),
        (completion_lost, s.given_up.completion_lost),
        ("issue and completion lost: the same sectors were queued again", s.given_up.issue_lost),
        ("completed before they were queued or issued: clocks of two CPUs differ", s.given_up.time_backwards),
        ("bios given up: too many in flight", s.given_up.too_many),
        ("bios completed without an issue (D2C unknown)", s.without_issue.known().copied().unwrap_or(0)),
        (
            "repeated issues of a request in the device, without a requeue (D2C is from the last)",
            s.reissued.known().copied().unwrap_or(0),
        ),
        ("requests allocated without their bio", u.got),
        ("merges without their bio", u.merged),
        ("inserts without their bios", u.inserted),
        ("issues without their bios", u.issued),
        ("completions without their bios", u.completed),
        ("requeues without their bios", u.requeued),
        ("splits without their bio", u.split),
        ("events whose bios were not all examined: they are too many", s.steps_given_up),
        (
            "remaps forgotten before their bio came, which then counts as an I/O of its own: too many",
            s.remaps_forgotten,
        ),
        ("zone appends to further zones: too many to remember", s.appends_of_further_zones),
        ("events of further devices: too many to distinguish", s.of_further_devices),
        ("completed bios that the figure lacks: too many devices", found.points.of_further_devices),
        ("dirty pages that were not followed: too many", found.originators.pages_given_up),
        ("extents that were not followed: too many", found.originators.extents_given_up),
        ("files and carriers that were not followed: too many", found.originators.files_given_up),
    ]
    .into_iter()
    .filter(|(_, times)| *times > 0)
    .collect();
    Rows::new("tn", &["what", "times"], rows.into_iter(), usize::MAX, |(what, times)| {
        vec![what.to_owned(), grouped(times)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_analysis::Analysis as _;
    use flashscope_analysis::block::{BlockAnalysis, Sizes};

    /// Owners without a row in the table of waits waited as well.
    #[test]
    fn who_waits_behind_nobody_known_is_said_to_wait() {
        let mut found = BlockAnalysis::new(|_, _| None::<&str>, Sizes::default()).finish();
        found.interference.owners.push(OwnerLoad {
            device: "8:0".to_owned(),
            owner: "git (7)".to_owned(),
            bios: 10,
            mean_q2c_ns: 2_000_000,
            mean_behind_ns: 1_500_000,
            mean_device_excess_ns: Evidence::Known(0),
            mean_alone_ns: Evidence::Known(500_000),
            longest_q2c_ns: 2_000_000,
            longest_behind_ns: 1_500_000,
        });
        assert_eq!(
            interference(&found),
            [
                "git (7) on 8:0: of 2.00 ms a bio, 1.50 ms (75.0 %) passed behind others; behind whom is unknown: only 63 \
              originators of a device are distinguished. Alone it would take 500.0 µs."
            ]
        );
    }
}
