//! A file that may hold the records of several CPUs: which lie in order of time as they are, and which have to be sorted.

use super::lane::{Lane, Run, Source};
use super::record::Raw;
use crate::losses::Losses;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// CPUs (of each device) whose records are distinguished.
const MAX_LANES: usize = 1024;
/// Pieces of all CPUs that are remembered: 32 MiB.
const MAX_RUNS: usize = 1 << 21;

/// What one pass over the fixed parts finds.
pub(super) struct Scanned {
    pub sources: Vec<Source>,
    pub highest_cpu: u32,
    /// Times count from the first step; those of notes do not.
    pub rebased: bool,
}

/// One source where the whole file is in order; else one for each device and CPU. A file in such small pieces that they
/// cannot be remembered stays one source: its times run backwards then, which is counted.
pub(super) fn scan(source: &Source) -> io::Result<(Scanned, Losses)> {
    let mut lane = Lane::new(source, 1);
    let mut runs: HashMap<(u32, u32), Vec<Run>> = HashMap::new();
    let mut order = Vec::new();
    let (mut pieces, mut fits, mut highest_cpu) = (0, true, 0);
    // In order of time: all records, and without notes.
    let (mut sorted, mut steps_sorted, mut last, mut last_step) = (true, true, 0, 0);
    let mut first_step = u64::MAX;
    let mut open: Option<((u32, u32), Run)> = None;
    lane.start()?;
    lane.hand_out(|_| true, &mut |raw: &Raw<'_>| {
        let head = &raw.header;
        highest_cpu = highest_cpu.max(head.cpu());
        sorted &= head.time() >= last;
        last = head.time();
        if !head.is_notify() {
            steps_sorted &= head.time() >= last_step;
            last_step = head.time();
            first_step = first_step.min(head.time());
        }
        let (begin, length) = (raw.position, head.total() as u64);
        let key = (head.device(), head.cpu());
        match &mut open {
            Some((k, run)) if *k == key && run.begin + run.length == begin => run.length += length,
            _ => {
                if let Some((k, run)) = open.replace((key, Run { begin, length })) {
                    pieces += 1;
                    fits &= keep(&mut runs, &mut order, k, run, pieces);
                }
            }
        }
    })?;
    if let Some((k, run)) = open {
        fits &= keep(&mut runs, &mut order, k, run, pieces + 1);
    }
    let mut losses = Losses::new();
    let rebased = first_step == 0;
    sorted |= rebased && steps_sorted;
    let mut sources = vec![Source { rebased, ..source.clone() }];
    if !sorted && fits && order.len() > 1 {
        // What lies between the pieces is read by no lane: it is counted here.
        super::count_losses(
            &mut losses,
            super::Counts { missing: 0, backwards: 0, malformed: lane.counts.malformed, ..lane.counts },
        );
        sources = order
            .iter()
            .map(|key| Source {
                runs: Some(runs.remove(key).unwrap_or_default().into()),
                input: Arc::clone(&source.input),
                endian: source.endian,
                rebased,
            })
            .collect();
    }
    Ok((Scanned { sources, highest_cpu, rebased }, losses))
}

/// False: there are too many of them.
fn keep(
    runs: &mut HashMap<(u32, u32), Vec<Run>>,
    order: &mut Vec<(u32, u32)>,
    key: (u32, u32),
    run: Run,
    pieces: usize,
) -> bool {
    if pieces > MAX_RUNS {
        return false;
    }
    if let Some(list) = runs.get_mut(&key) {
        list.push(run);
        return true;
    }
    if order.len() == MAX_LANES {
        return false;
    }
    order.push(key);
    runs.insert(key, vec![run]);
    true
}
