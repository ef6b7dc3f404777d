//! Operations in each phase that the recording names.

use super::OpCounts;
use crate::clip::clip;
use crate::{Analysis, Evidence, Unknown};
use flashscope_trace::{Event, EventKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most phases; further ones are only counted.
pub const MAX_PHASES: usize = 10_000;
/// Most nested phases; deeper ones are only counted.
const MAX_OPEN: usize = 64;

/// A phase and all flash commands between its begin and its end, those of phases inside it included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct PhaseOps {
    pub name: String,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// False where the recording stopped inside the phase: `end_ns` is then the time of its last event.
    pub ended: bool,
    /// Unknown where the trace would not show any operation of raw flash.
    pub counts: Evidence<OpCounts>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct PhasesFound {
    /// In order of begin.
    pub phases: Vec<PhaseOps>,
    /// Ends without a begin: the recording started inside the phase.
    pub ends_without_begin: u64,
    /// Phases beyond the limits on number and nesting.
    pub not_kept: u64,
}

impl PhasesFound {
    /// The trace does not show operations of raw flash.
    pub(crate) fn has_no_counts(&mut self, why: &Unknown) {
        self.phases.iter_mut().for_each(|phase| phase.counts = Evidence::Unknown(why.clone()));
    }
}

/// Counts by phase. Reads events in order of time.
#[derive(Debug, Default)]
pub struct Phases {
    found: PhasesFound,
    /// Indexes of phases that have begun and not ended.
    open: Vec<usize>,
    last_ns: u64,
}

impl Phases {
    fn begin(&mut self, time_ns: u64, name: &str) {
        if self.found.phases.len() >= MAX_PHASES || self.open.len() >= MAX_OPEN {
            self.found.not_kept += 1;
            return;
        }
        self.open.push(self.found.phases.len());
        self.found.phases.push(PhaseOps {
            name: clip(name).to_owned(),
            begin_ns: time_ns,
            end_ns: time_ns,
            ended: false,
            counts: OpCounts::default().into(),
        });
    }

    /// Ends the innermost open phase of that name.
    fn end(&mut self, time_ns: u64, name: &str) {
        let phases = &mut self.found.phases;
        let Some(at) = self.open.iter().rposition(|&i| phases[i].name == clip(name)) else {
            self.found.ends_without_begin += 1;
            return;
        };
        let phase = &mut phases[self.open.remove(at)];
        phase.end_ns = time_ns;
        phase.ended = true;
    }
}

impl Analysis for Phases {
    type Output = PhasesFound;

    fn event(&mut self, event: &Event) {
        self.last_ns = self.last_ns.max(event.time.0);
        match &event.kind {
            EventKind::PhaseBegin { name } => self.begin(event.time.0, name),
            EventKind::PhaseEnd { name } => self.end(event.time.0, name),
            EventKind::Flash(access) => {
                for &i in &self.open {
                    if let Some(counts) = self.found.phases[i].counts.known_mut() {
                        counts.add(access.op);
                    }
                }
            }
            _ => {}
        }
    }

    fn finish(mut self) -> PhasesFound {
        for &i in &self.open {
            self.found.phases[i].end_ns = self.last_ns;
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{access, begin, end, flash};
    use flashscope_trace::FlashOp::{Erase, Read};

    fn fold(events: &[Event]) -> PhasesFound {
        let mut fold = Phases::default();
        events.iter().for_each(|e| fold.event(e));
        fold.finish()
    }

    #[test]
    fn nested_phases_count_what_is_inside() {
        let found = fold(&[
            flash(1, 1, access(Read, 0)),
            begin(2, "cells"),
            flash(3, 1, access(Read, 1)),
            begin(4, "cell 1"),
            flash(5, 1, access(Read, 2)),
            flash(6, 1, access(Erase, 64)),
            end(7, "cell 1"),
            end(9, "cells"),
            flash(10, 1, access(Read, 3)),
        ]);
        let counts = |reads, erases| OpCounts { reads, programs: 0, erases };
        let [outer, inner] = &found.phases[..] else {
            panic!("{found:?}");
        };
        assert_eq!((outer.begin_ns, outer.end_ns, outer.ended), (2, 9, true));
        assert_eq!(outer.counts, counts(2, 1).into());
        assert_eq!((inner.begin_ns, inner.end_ns, inner.ended), (4, 7, true));
        assert_eq!(inner.counts, counts(1, 1).into());
    }

    #[test]
    fn one_name_twice_is_two_phases() {
        let found = fold(&[
            begin(1, "mount"),
            end(2, "mount"),
            begin(3, "mount"),
            flash(4, 1, access(Read, 0)),
            end(5, "mount"),
        ]);
        let reads: Vec<u64> = found.phases.iter().filter_map(|p| Some(p.counts.known()?.reads)).collect();
        assert_eq!(reads, [0, 1]);
    }

    #[test]
    fn a_cut_recording_keeps_its_open_phase() {
        let found = fold(&[end(1, "before"), begin(2, "mount"), flash(8, 1, access(Read, 0))]);
        assert_eq!(found.ends_without_begin, 1);
        assert!(!found.phases[0].ended);
        assert_eq!(found.phases[0].end_ns, 8);
    }

    #[test]
    fn a_name_of_a_whole_frame_is_clipped_and_still_ends() {
        let name = "é".repeat(500_000);
        let found = fold(&[begin(1, &name), end(2, &name)]);
        assert_eq!(found.phases[0].name, "é".repeat(100));
        assert!(found.phases[0].ended);
    }

    #[test]
    fn endless_begins_stay_bounded() {
        let mut fold = Phases::default();
        for i in 0..1000 {
            fold.event(&begin(i, "again"));
        }
        let found = fold.finish();
        assert_eq!(found.phases.len(), MAX_OPEN);
        assert_eq!(found.not_kept, 1000 - MAX_OPEN as u64);
    }
}
