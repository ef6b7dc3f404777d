//! The findings of a trace: costs in time or bytes, with the evidence, the cause, and the command to type next.
//!
//! One rule per file. A rule makes a finding only where its threshold is exceeded and the trace has the evidence; else it makes
//! none. Faults come first, then costs by their time, then the overview.

mod atime;
mod behind_another;
mod code;
mod copy_up;
mod copy_up_of_device;
mod databases;
mod deep_queue;
mod dirty_limit;
mod discard_stalls;
mod errors;
mod few_requests;
mod flash_amplification;
mod flush_stalls;
mod fragmented_file;
mod fsync_advice;
mod fsync_storm;
mod full_device;
mod garbage_collection;
mod known_programs;
mod layered_device;
mod lost_events;
mod mapped_readahead;
mod metadata;
mod metadata_reads;
mod of_device;
mod random_reads;
mod read_again;
mod read_before_write;
mod read_together;
mod readahead_wasted;
mod short_commit;
mod small_files;
mod small_files_of_device;
mod small_journal;
mod small_reads;
mod small_requests;
mod small_sync_writes;
mod squashfs_blocks;
mod storage;
mod swap;
mod sync_mount;
mod syncs_beside;
mod tiny_calls;
mod top_io;
mod waits_outside;
mod wear;
mod where_time_goes;

pub use crate::finding::{Finding, Gain, Measure, MeasureUnit, Remedy, Rule, Step, Weight};
pub use code::is_run_by_python;
pub use storage::{DirtyLimit, Disk, Mount, StorageFacts};

use crate::block::{BlockFound, Group, GroupBy, StageTimes};
use crate::cache::AccuracyFindings;
use crate::calls::CallsFound;
use crate::flash::Life;
use crate::usage::UsageFound;
use crate::{Evidence, FlashFindings, LossCount, OwnWear};
use flashscope_trace::split_task_label;

/// Input of the rules. Parts that the trace lacks are `None` or empty.
pub struct Seen<'a> {
    pub storage: &'a StorageFacts,
    pub block: Option<&'a BlockFound>,
    pub flash: Option<&'a FlashFindings>,
    /// Life time of each chip; below: wear that devices report themselves.
    pub life: &'a [Life],
    pub own_wear: &'a [OwnWear],
    pub readahead: Option<&'a AccuracyFindings>,
    pub calls: &'a CallsFound,
    pub usage: &'a UsageFound,
    pub losses: &'a [LossCount],
    /// Only the I/O of one program is shown (`--process`).
    pub is_of_process: bool,
    /// From the first shown event to the last.
    pub span_ns: u64,
}

/// Below this share of the recorded time a cost does not matter, per cent. Below: the least share where the cost is most of the time in calls.
const MIN_SPAN_PERCENT: f64 = 5.0;
const MIN_SPAN_OF_MOST_PERCENT: f64 = 1.0;
const MOST_PERCENT: f64 = 50.0;
/// Most processes that one finding lists.
const MAX_NAMED: usize = 16;

impl Seen<'_> {
    /// Share of the recorded time, per cent. A recording that formats and mounts raw flash first is of what comes then.
    fn of_span(&self, ns: u64) -> f64 {
        let setup_ns = self.flash.map_or(0, |flash| flash.activities.setup_ns());
        percent(ns, self.span_ns.saturating_sub(setup_ns))
    }

    /// Whether time in calls matters: it is a good part of the recorded time; or, in a recording that is mostly idle, a
    /// part of it that is most of the time of all calls with storage.
    fn matters(&self, ns: u64) -> bool {
        let calls = self.calls.by_process.iter().fold(0u64, |sum, group| sum.saturating_add(group.total_ns));
        self.of_span(ns) >= MIN_SPAN_PERCENT
            || self.of_span(ns) >= MIN_SPAN_OF_MOST_PERCENT && percent(ns, calls) >= MOST_PERCENT
    }

    /// The group of a device and direction: "8:0 writes".
    fn device_group(&self, device: &str, what: &str) -> Option<&Group> {
        let name = format!("{device} {what}");
        groups(self.block?, GroupBy::Device).find(|group| group.name == name)
    }

    /// Whether the trace has bios of the device.
    fn is_used(&self, device: &str) -> bool {
        let of = |group: &Group| group.name.strip_prefix(device).is_some_and(|rest| rest.starts_with(' '));
        self.block.is_some_and(|block| groups(block, GroupBy::Device).any(of))
    }

    fn programs_flash(&self) -> bool {
        self.flash.and_then(|flash| flash.wear.known()).is_some_and(|wear| wear.programmed_pages > 0)
    }

    /// Number, time and bytes of calls on files of a device.
    fn calls_on(&self, device: &str, is: impl Fn(&str) -> bool) -> (u64, u64, u64) {
        let head = format!("{device} inode ");
        let of = self.calls.by_file.iter().filter(|group| is(&group.call) && group.name.starts_with(&head));
        let add = |sum: u64, one: u64| sum.saturating_add(one);
        of.fold((0, 0, 0), |(n, ns, bytes), group| (n + group.ns.n, add(ns, group.total_ns), add(bytes, group.bytes)))
    }

    /// Time of the device for this many bytes, at the mean of this trace's `reads` or `writes`.
    fn cost_of(&self, block: &BlockFound, what: &str, bytes: u64) -> Evidence<u64> {
        let all = groups(block, GroupBy::Device).filter(|group| group.name.rsplit(' ').next() == Some(what));
        let (ns, moved) = all.fold((0u64, 0u64), |(ns, moved), group| {
            (ns.saturating_add(stage(group, "D2C").map_or(0, |d2c| d2c.total_ns)), moved.saturating_add(group.bytes))
        });
        match moved {
            0 => Evidence::unknown(
                format!("the trace has no {what} of a device"),
                "record with --events block,cache,syscall",
            ),
            // Several requests at once take more in sum than the time that passes.
            moved => ((ns as f64 / moved as f64 * bytes as f64) as u64).min(self.span_ns).into(),
        }
    }
}

fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 * 100.0 }
}

fn measure(name: &str, value: impl Into<f64>, unit: MeasureUnit, source: &str) -> Measure {
    Measure { name: name.to_owned(), value: value.into(), unit, source: source.to_owned() }
}

/// `fall`: the range in per cent; `basis`: where it comes from.
fn gain(of: impl Into<String>, fall: [f64; 2], basis: impl Into<String>) -> Evidence<Gain> {
    Gain { of: of.into(), least_percent: fall[0], most_percent: fall[1], basis: basis.into() }.into()
}

fn stage<'a>(group: &'a Group, name: &str) -> Option<&'a StageTimes> {
    group.stages.iter().find(|one| one.stage == name)
}

/// Sum and mean of Q2C of a task's bios on one device: its group has those on all of them.
fn q2c_on(block: &BlockFound, own: &Group, device: &str) -> Option<(u64, u64)> {
    let all = stage(own, "Q2C")?;
    let load = block.interference.owners.iter().find(|load| load.device == device && load.owner == own.name);
    let on_it = load.map(|load| (load.mean_q2c_ns.saturating_mul(load.bios).min(all.total_ns), load.mean_q2c_ns));
    Some(on_it.unwrap_or((all.total_ns, all.ns.mean)))
}

fn groups(block: &BlockFound, by: GroupBy) -> impl Iterator<Item = &Group> {
    block.groups.iter().filter(move |group| group.by == by)
}

/// All that the trace answers, what matters most first.
pub fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let rules: &[fn(&Seen<'_>) -> Vec<Finding>] = &[
        errors::find,
        full_device::find,
        wear::find,
        sync_mount::find,
        fsync_storm::find,
        short_commit::find,
        small_journal::find,
        atime::find,
        small_sync_writes::find,
        read_before_write::find,
        behind_another::find,
        syncs_beside::find,
        copy_up::find,
        read_together::find,
        dirty_limit::find,
        discard_stalls::find,
        flush_stalls::find,
        readahead_wasted::find,
        squashfs_blocks::find,
        mapped_readahead::find,
        read_again::find,
        random_reads::find,
        fragmented_file::find,
        small_reads::find,
        small_files::find,
        small_files_of_device::find,
        copy_up_of_device::find,
        few_requests::find,
        small_requests::find,
        deep_queue::find,
        metadata_reads::find,
        swap::find,
        tiny_calls::find,
        waits_outside::find,
        layered_device::find,
        flash_amplification::find,
        garbage_collection::find,
        metadata::find,
        where_time_goes::find,
        top_io::find,
    ];
    let mut all: Vec<Finding> = rules.iter().flat_map(|rule| rule(seen)).collect();
    let lost = |finding: &Finding| finding.lost_ns.known().copied().unwrap_or(0);
    all.sort_by_key(|finding| (finding.weight, std::cmp::Reverse((lost(finding), finding.lost_bytes)), finding.rule));
    // Small writes that are synced one by one: the syncs are the cause of the wear, and gathering the records mends both.
    let place = |rule: Rule| all.iter().position(|finding| finding.rule == rule);
    if let Some((storm, flash)) = place(Rule::FsyncStorm).zip(place(Rule::FlashAmplification))
        && storm < flash
    {
        all[storm..=flash].rotate_right(1);
    }
    // Files that are synced one by one take that time in one file, too: the syncs are the cause.
    let place = |rule: Rule| all.iter().position(|finding| finding.rule == rule);
    if let Some((files, storm)) = place(Rule::SmallFiles).zip(place(Rule::FsyncStorm))
        && files < storm
        && small_files::is_by_syncs(&all[files], &all[storm])
    {
        all[files..=storm].rotate_right(1);
    }
    // Each commit of a journal flushes: where few others sync, fewer commits are the advice, and that is given already.
    let commits = |finding: &Finding| matches!(finding.rule, Rule::SmallJournal | Rule::ShortCommit);
    if all.iter().any(commits) && !flush_stalls::is_by_syncs(seen) {
        all.retain(|finding| finding.rule != Rule::FlushStalls);
    }
    // Flushes are what syncs and synchronous writes cause: who asks for them comes first.
    let place = |rule: Rule| all.iter().position(|finding| finding.rule == rule);
    let asks = [Rule::FsyncStorm, Rule::SmallSyncWrites, Rule::SmallJournal].into_iter().filter_map(place).min();
    if let Some((flushes, who)) = place(Rule::FlushStalls).zip(asks)
        && flushes < who
    {
        all[flushes..=who].rotate_right(1);
    }
    // Who writes more than the device takes holds up others: they come first.
    if let Some(writer) = all.iter().position(|finding| finding.rule == Rule::DirtyLimit) {
        let name = all[writer].processes.first();
        let is_behind = |one: &Finding| one.rule == Rule::BehindAnother && one.processes.get(1) == name;
        if let Some(place) = all.iter().position(is_behind).filter(|place| *place > writer) {
            all[writer..=place].rotate_right(1);
        }
    }
    command_first(seen, &mut all);
    all.iter_mut().for_each(known_programs::adapt);
    all.iter_mut().for_each(|finding| code::adapt(seen, finding));
    let lost = lost_events::find(seen);
    if !lost.is_empty() {
        let why = "events were lost, and figures may be too low";
        all.iter_mut().for_each(|finding| finding.uncertain = Some(why.to_owned()));
    }
    all.extend(lost);
    all
}

/// With `record -- CMD` the question is about CMD: what other programs do comes after what costs CMD time, faults excepted. A finding
/// that names no process, or the server of CMD alone, keeps its place.
fn command_first(seen: &Seen<'_>, all: &mut [Finding]) {
    // `None`: it is no cost, or names no process.
    let is_of_command = |finding: &Finding| {
        let tid = split_task_label(finding.processes.first()?)?.1;
        (finding.weight == Weight::Cost).then(|| seen.storage.command_threads.contains(&tid))
    };
    for at in (0..all.len()).rev().filter(|at| is_of_command(&all[*at]) == Some(false)).collect::<Vec<_>>() {
        let own = all.iter().rposition(|one| is_of_command(one) == Some(true));
        if let Some(own) = own.filter(|own| *own > at) {
            all[at..=own].rotate_left(1);
        }
    }
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use super::testing::Work;
    use flashscope_trace::TaskId;

    /// Two programs sync; the one that costs more was not asked about.
    #[test]
    fn costs_of_the_command_come_before_those_of_its_neighbours() {
        let mut work = Work::new(10_000_000_000);
        work.call("fsync", "cc (5)", 900, 6_000_000_000, 0);
        work.call("fsync", "git (6)", 900, 5_000_000_000, 0);
        work.call("fsync", "logger (7)", 300, 2_000_000_000, 0);
        let order = |work: &Work| -> Vec<String> {
            super::find(&work.seen()).iter().flat_map(|one| one.processes.first().cloned()).collect()
        };
        assert_eq!(order(&work)[..3], ["cc (5)", "git (6)", "logger (7)"]);
        work.storage.command_threads.insert(TaskId(7));
        assert_eq!(order(&work)[..3], ["logger (7)", "cc (5)", "git (6)"]);
    }
}
