//! All kinds of losses of a trace. Each has a name and a text that says what it means.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

macro_rules! losses {
    ($( $(#[$doc:meta])* $variant:ident => $name:literal, $severity:ident, $meaning:literal; )*) => {
        /// A kind of loss.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Loss { $( $(#[$doc])* $variant, )* }

        impl Loss {
            pub const ALL: &'static [Loss] = &[ $( Loss::$variant, )* ];

            /// Stable name, used in results and files.
            pub fn name(self) -> &'static str {
                match self { $( Loss::$variant => $name, )* }
            }

            /// Explains a count above zero and what to do about it.
            pub fn meaning(self) -> &'static str {
                match self { $( Loss::$variant => $meaning, )* }
            }

            pub fn severity(self) -> Severity {
                match self { $( Loss::$variant => Severity::$severity, )* }
            }

            pub fn from_name(name: &str) -> Option<Loss> {
                match name { $( $name => Some(Loss::$variant), )* _ => None }
            }
        }
    };
}

/// How far a loss touches the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Events or times are missing or wrong: counts are too low.
    Data,
    /// Something beside the events is missing: names, output, a statistic.
    Context,
}

losses! {
    StreamCut => "stream_cut", Data,
        "the stream ends inside a frame; what came before was kept";
    SourcesUnfinished => "sources_unfinished", Data,
        "producers without an end mark: the board stopped, or the connection broke";
    SourcesFailed => "sources_failed", Context,
        "recorders, or process 1 of a board, that ended with a failure; the log says why";
    FramesMissing => "frames_missing", Data,
        "frames that a producer numbered and that are not in the stream";
    FramesBadCrc => "frames_bad_crc", Data,
        "frames with a wrong checksum; left out";
    FramesMalformed => "frames_malformed", Data,
        "frames with a right checksum and invalid contents; left out";
    FramesUnknownType => "frames_unknown_type", Context,
        "frames of a newer agent that this version does not know; update flashscope";
    BytesSkipped => "bytes_skipped", Data,
        "bytes between frames or records that belong to none";
    OutputBytesDropped => "output_bytes_dropped", Context,
        "bytes of a step's output beyond what is kept in memory";
    FormatsDropped => "formats_dropped", Data,
        "event formats that could not be read, or are more than is kept in memory: their events are counted as records_of_unknown_type";
    EventsOverwritten => "events_overwritten", Data,
        "events that newer ones overwrote in the ring (the kernel's count); use a larger --ring";
    EventsDropped => "events_dropped", Data,
        "events lost because the ring was full (the kernel's count); use a larger --ring";
    CommitOverruns => "commit_overruns", Data,
        "events lost to nesting deeper than the ring can hold (the kernel's count)";
    EventsNotDrained => "events_not_drained", Data,
        "events left in the ring when the recording ended (the kernel's count)";
    ProbeMisses => "probe_misses", Data,
        "times a probe was hit and could not record (the kernel's count)";
    EventsMissedAtGaps => "events_missed_at_gaps", Data,
        "events that the kernel marked as missing between two sub-buffers; the same events as events_overwritten, seen from the data";
    GapsOfUnknownSize => "gaps_of_unknown_size", Data,
        "places where the kernel marked events as missing without saying how many";
    EventsNotDelivered => "events_not_delivered", Data,
        "events that were read from the ring on the board and are not in the trace";
    StatisticsMissing => "statistics_missing", Context,
        "recordings without the kernel's final counts, so its losses are unknown";
    SubBuffersDamaged => "sub_buffers_damaged", Data,
        "ring sub-buffers that are cut or invalid; their rest was left out";
    RecordsOfUnknownType => "records_of_unknown_type", Data,
        "events without a known format; they are in the trace and cannot be read";
    RecordsMalformed => "records_malformed", Data,
        "events shorter than their format says";
    RecordsMissing => "records_missing", Data,
        "blktrace records missing by their sequence numbers; records that blktrace itself dropped have no number";
    CpuFilesMissing => "cpu_files_missing", Data,
        "CPUs without a blktrace file, although a higher CPU has one: their events are missing, unless they were offline; copy all of NAME.blktrace.*";
    TimesBackwards => "times_backwards", Data,
        "events older than the one before them on the same CPU";
    ClocksOfCpus => "clocks_of_cpus", Context,
        "CPUs with clocks of their own (the trace's clock is local): times from one CPU to another, as of an issue and its completion, are wrong by as much as these differ; record with the clock mono (trace-cmd record -C mono)";
    RecordingsJoined => "recordings_joined", Context,
        "places where another recording begins in the same file (times fall back by more than a second, or a text has a further header): requests in flight before are unfinished, and the time in between is unknown";
    EventsRepeated => "events_repeated", Data,
        "duplicate events (text pasted twice, overlapping captures, instances with the same events): counted once";
    TimesImpossible => "times_impossible", Data,
        "events whose time is 2^63 ns (292 years) or more, which no kernel clock gives: damaged; left out";
    TimesMissing => "times_missing", Data,
        "events whose text has no time: they have time 0, in the order of the file";
    ProgramsNotSeen => "programs_not_seen", Data,
        "pages that MTD writes spanned beyond the program commands seen: the probe point does not see all of them";
    ErasesNotSeen => "erases_not_seen", Data,
        "blocks that MTD erases spanned beyond the erase commands seen: the probe point does not see all of them";
    ReturnsUnmatched => "returns_unmatched", Data,
        "returns of an operation whose beginning was not recorded: no duration";
    ReadsNotFollowed => "reads_not_followed", Context,
        "reads and faults beyond the most that are kept (4,000,000), and reads and descriptors of more tasks at once than are followed (65,536): the figures of the files that they read are too low, or at another offset";
    NamesDropped => "names_dropped", Context,
        "task names beyond what is kept in memory";
    FileReportsDropped => "file_reports_dropped", Context,
        "deleted files without a path: fanotify may have reported them, and the recorder forgot them for newer ones (it keeps 8,192), or had no time to look up their directory";
    FileReportsLost => "file_reports_lost", Context,
        "times that the kernel's queue of fanotify was full: files that were deleted then may have no path";
    TaskEventsLost => "task_events_lost", Context,
        "starts and renames of tasks lost because their own ring was full (the kernel's count): some tasks have no name or an old one; no other event is lost";
    PhasesUnmatched => "phases_unmatched", Context,
        "ends of a phase without its beginning";
    LinesMalformed => "lines_malformed", Data,
        "lines of a text log that are not in its format, or that are cut where the file ends";
    FieldsNotRead => "fields_not_read", Context,
        "lines of a text whose fields were not parsed, because there are too many kinds of lines; their text is complete";
    CommandsWithoutSize => "commands_without_size", Data,
        "drivers' reads, writes and discards whose event has no size (discards of NVMe and SCSI, READ(16) and WRITE(16) of UFS): not counted; \
         record block events too";
    OwnSectionDamaged => "own_section_damaged", Context,
        "the part of a trace.dat with flashscope's facts, phases and losses cannot be read";
    OtherMachines => "packets_of_other_machines", Context,
        "packets of other machines (guests of a virtual machine): only the machine that recorded is read";
    DataCut => "data_cut", Data,
        "per-CPU data that is missing from the file although its header lists it: the file was cut";
}

/// Where events were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostIn {
    /// In the buffers of the recording.
    Ring,
    /// Between the recording and this file.
    File,
    /// In reading: they are in the file, and were not understood.
    Reading,
}

impl Loss {
    /// For a kind that may have taken any event between the first one and the last one, also the end of an I/O: where. The end of the
    /// data of one CPU is such a place: other CPUs' data reaches further.
    pub fn of_events(self) -> Option<LostIn> {
        match self {
            Loss::EventsOverwritten
            | Loss::EventsDropped
            | Loss::CommitOverruns
            | Loss::EventsMissedAtGaps
            | Loss::GapsOfUnknownSize
            | Loss::EventsNotDrained
            | Loss::RecordsMissing => Some(LostIn::Ring),
            Loss::StreamCut
            | Loss::FramesMissing
            | Loss::FramesBadCrc
            | Loss::FramesMalformed
            | Loss::BytesSkipped
            | Loss::EventsNotDelivered
            | Loss::SubBuffersDamaged
            | Loss::RecordsMalformed
            | Loss::CpuFilesMissing
            | Loss::TimesImpossible
            | Loss::DataCut => Some(LostIn::File),
            Loss::FormatsDropped | Loss::RecordsOfUnknownType | Loss::LinesMalformed => Some(LostIn::Reading),
            _ => None,
        }
    }
}

/// The largest count that is kept. A trace may state any number; with this limit the sum of all counts cannot overflow.
const MOST: u64 = 1 << 53;

/// Counts of all losses, zero counts included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Losses {
    counts: Vec<u64>,
    /// Of the malformed lines: those that may be the end of an I/O.
    lines_of_ends: u64,
}

impl Default for Losses {
    fn default() -> Self {
        Losses { counts: vec![0; Loss::ALL.len()], lines_of_ends: 0 }
    }
}

impl Losses {
    pub fn new() -> Losses {
        Losses::default()
    }

    pub fn get(&self, loss: Loss) -> u64 {
        self.counts[loss as usize]
    }

    pub fn add(&mut self, loss: Loss, count: u64) {
        let c = &mut self.counts[loss as usize];
        *c = c.saturating_add(count).min(MOST);
    }

    pub fn set(&mut self, loss: Loss, count: u64) {
        self.counts[loss as usize] = count.min(MOST);
    }

    /// All counts, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (Loss, u64)> + '_ {
        Loss::ALL.iter().map(|&l| (l, self.get(l)))
    }

    /// True where every count is zero.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|&c| c == 0)
    }

    /// So many of the malformed lines may be the end of an I/O.
    pub(crate) fn add_lines_of_ends(&mut self, lines: u64) {
        self.lines_of_ends = self.lines_of_ends.saturating_add(lines).min(MOST);
    }

    /// Counts of the kinds that may have taken the end of an I/O ([`Loss::of_events`]), and where.
    pub fn of_ends(&self) -> impl Iterator<Item = (Loss, LostIn, u64)> + '_ {
        self.iter().filter_map(|(loss, count)| {
            let count = if loss == Loss::LinesMalformed { self.lines_of_ends } else { count };
            loss.of_events().filter(|_| count > 0).map(|lost_in| (loss, lost_in, count))
        })
    }

    pub fn merge(&mut self, other: &Losses) {
        self.add_lines_of_ends(other.lines_of_ends);
        for (loss, count) in other.iter() {
            self.add(loss, count);
        }
    }
}

/// Serialized as an object from name to count.
impl Serialize for Losses {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.iter().map(|(l, c)| (l.name(), c)))
    }
}

/// Unknown names are ignored.
impl<'de> Deserialize<'de> for Losses {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let map = BTreeMap::<String, u64>::deserialize(d)?;
        let mut losses = Losses::new();
        for (name, count) in map {
            if let Some(loss) = Loss::from_name(&name) {
                losses.set(loss, count);
            }
            if name == Loss::LinesMalformed.name() {
                losses.add_lines_of_ends(count);
            }
        }
        Ok(losses)
    }
}

pub(crate) fn stats_by_cpu(stats: &Value) -> impl Iterator<Item = (u64, &Value)> {
    stats["instances"].as_array().into_iter().flatten().flat_map(|i| {
        let number = i["instance"].as_u64().unwrap_or(0);
        i["cpu"].as_array().into_iter().flatten().map(move |c| (number, c))
    })
}

/// The ring buffer instance of our recordings that has task names only (`FS_INSTANCE_TASKS`).
pub(crate) const TASKS: u64 = 1;

/// Converts the kernel's own counts to losses.
pub(crate) fn count_statistics(stats: &Value, losses: &mut Losses) {
    for (instance, cpu) in stats_by_cpu(stats) {
        let n = |name: &str| cpu[name].as_u64().unwrap_or(0);
        if instance == TASKS {
            let lost = ["overrun", "dropped", "commit_overrun", "entries"].map(n);
            losses.add(Loss::TaskEventsLost, lost.into_iter().fold(0, u64::saturating_add));
            continue;
        }
        losses.add(Loss::EventsOverwritten, n("overrun"));
        losses.add(Loss::EventsDropped, n("dropped"));
        losses.add(Loss::CommitOverruns, n("commit_overrun"));
        losses.add(Loss::EventsNotDrained, n("entries"));
    }
    for probe in stats["probes"].as_array().into_iter().flatten() {
        losses.add(Loss::ProbeMisses, probe["misses"].as_u64().unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_together_do_not_overflow() {
        let mut losses = Losses::new();
        for &loss in Loss::ALL {
            losses.set(loss, u64::MAX);
            losses.add(loss, u64::MAX);
        }
        losses.merge(&losses.clone());
        assert_eq!(losses.iter().map(|(_, count)| count).sum::<u64>(), MOST * Loss::ALL.len() as u64);
    }

    #[test]
    fn serialises_zero_counts_too_and_comes_back() {
        let mut l = Losses::new();
        l.add(Loss::FramesBadCrc, 3);
        l.add(Loss::FramesBadCrc, u64::MAX);
        let json = serde_json::to_value(&l).unwrap();
        assert_eq!(json.as_object().unwrap().len(), Loss::ALL.len());
        assert_eq!(json["frames_bad_crc"], MOST);
        assert_eq!(json["stream_cut"], 0);
        assert_eq!(serde_json::from_value::<Losses>(json).unwrap(), l);
        for &loss in Loss::ALL {
            assert_eq!(Loss::from_name(loss.name()), Some(loss));
        }
    }

    /// A full ring of tasks' names takes nothing from the events of I/O.
    #[test]
    fn lost_names_are_no_lost_events() {
        let cpu = |lost: u64| serde_json::json!([{ "cpu": 0, "overrun": lost, "commit_overrun": 0, "dropped": 7 * lost, "entries": 0 }]);
        let stats = |main: u64, tasks: u64| serde_json::json!({ "instances": [{ "instance": 0, "cpu": cpu(main) }, { "instance": 1, "cpu": cpu(tasks) }] });
        let mut l = Losses::new();
        count_statistics(&stats(0, 10), &mut l);
        assert_eq!(
            (l.get(Loss::EventsDropped), l.get(Loss::EventsOverwritten), l.get(Loss::TaskEventsLost)),
            (0, 0, 80)
        );
        count_statistics(&stats(1, 0), &mut l);
        assert_eq!(
            (l.get(Loss::EventsDropped), l.get(Loss::EventsOverwritten), l.get(Loss::TaskEventsLost)),
            (7, 1, 80)
        );
    }
}
