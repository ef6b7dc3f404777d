//! Scans a file with the records of several CPUs for parts that are in order of time, and parts that must be sorted.

use super::lane::{Lane, Part, Run};
use super::record::Raw;
use crate::losses::Losses;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Largest number of CPUs (of each device) that are distinguished.
const MAX_LANES: usize = 1024;
/// Largest number of pieces of all CPUs: 32 MiB.
const MAX_RUNS: usize = 1 << 21;

/// The result of one pass over the fixed parts.
pub(super) struct Scanned {
    pub sources: Vec<Part>,
    pub highest_cpu: u32,
    /// Times of steps count from the first step; times of notes do not.
    pub rebased: bool,
}

/// Times of one CPU increase. If they fall back by this much, another recording begins.
const BACK_NS: u64 = 1_000_000_000;

/// Recording, device and CPU of a piece.
type Key = (u32, u32, u32);

/// One pass over a file.
struct Pass {
    lane: Lane,
    runs: HashMap<Key, Vec<Run>>,
    order: Vec<Key>,
    /// The number of pieces is within the limit.
    fits: bool,
    highest_cpu: u32,
    /// All records, and all records except notes, are in order of time.
    sorted: bool,
    steps_sorted: bool,
    first_step: u64,
    /// Times fall back by more than the clocks of CPUs may differ. A CPU's records may also be written late.
    falls: bool,
}

/// One source if the whole file is in order; otherwise one for each recording, device and CPU. A file with too many pieces stays one
/// source: its times then run backwards, which is counted.
pub(super) fn scan(source: &Part) -> io::Result<(Scanned, Losses)> {
    let mut pass = pass(source, &[])?;
    if pass.falls {
        let begins = recordings(source)?;
        if !begins.is_empty() {
            pass = self::pass(source, &begins)?;
        }
    }
    let mut losses = Losses::new();
    let rebased = pass.first_step == 0;
    let sorted = pass.sorted || rebased && pass.steps_sorted;
    let mut sources = vec![Part { rebased, ..source.clone() }];
    if !sorted && pass.fits && pass.order.len() > 1 {
        // Bytes between the pieces are in no lane, so they are counted here.
        let counts = pass.lane.counts;
        super::count_losses(
            &mut losses,
            super::Counts { missing: 0, backwards: 0, malformed: counts.malformed, ..counts },
        );
        let of = |key: &Key| Part {
            runs: Some(pass.runs.remove(key).unwrap_or_default().into()),
            input: Arc::clone(&source.input),
            endian: source.endian,
            rebased,
            recording: key.0,
        };
        sources = pass.order.iter().map(of).collect();
    }
    Ok((Scanned { sources, highest_cpu: pass.highest_cpu, rebased }, losses))
}

/// `begins`: offsets of further recordings in the file.
fn pass(source: &Part, begins: &[u64]) -> io::Result<Pass> {
    let mut lane = Lane::new(source, 1);
    let mut runs: HashMap<Key, Vec<Run>> = HashMap::new();
    let mut order = Vec::new();
    let (mut pieces, mut fits, mut highest_cpu) = (0, true, 0);
    let (mut sorted, mut steps_sorted, mut falls, mut last, mut last_step) = (true, true, false, 0, 0);
    let (mut first_step, mut recording) = (u64::MAX, 0);
    let mut open: Option<(Key, Run)> = None;
    lane.start()?;
    lane.hand_out(|_| true, &mut |raw: &Raw<'_>| {
        let head = &raw.header;
        highest_cpu = highest_cpu.max(head.cpu());
        sorted &= head.time() >= last;
        last = head.time();
        if !head.is_notify() {
            steps_sorted &= head.time() >= last_step;
            falls |= head.time().saturating_add(BACK_NS) < last_step;
            last_step = head.time();
            first_step = first_step.min(head.time());
        }
        let (begin, length) = (raw.position, head.total() as u64);
        while begins.get(recording).is_some_and(|&at| begin >= at) {
            recording += 1;
        }
        let key = (recording as u32, head.device(), head.cpu());
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
    Ok(Pass { lane, runs, order, fits, highest_cpu, sorted, steps_sorted, first_step, falls })
}

/// Offsets of further recordings in the file: at the notes before the first step of a device and CPU whose time is earlier than the
/// previous step's.
fn recordings(source: &Part) -> io::Result<Vec<u64>> {
    let mut lane = Lane::new(source, 1);
    let mut last: HashMap<(u32, u32), u64> = HashMap::new();
    let mut begins = Vec::new();
    let mut notes: Option<u64> = None;
    lane.start()?;
    lane.hand_out(|_| true, &mut |raw: &Raw<'_>| {
        let head = &raw.header;
        if head.is_notify() {
            notes.get_or_insert(raw.position);
            return;
        }
        let (key, time) = ((head.device(), head.cpu()), head.time());
        if last.get(&key).is_some_and(|&before| time.saturating_add(BACK_NS) < before) {
            begins.push(notes.unwrap_or(raw.position));
            last.clear();
        }
        if last.len() < MAX_LANES || last.contains_key(&key) {
            last.insert(key, time);
        }
        notes = None;
    })?;
    Ok(begins)
}

/// Returns false if there are too many pieces.
fn keep(runs: &mut HashMap<Key, Vec<Run>>, order: &mut Vec<Key>, key: Key, run: Run, pieces: usize) -> bool {
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
