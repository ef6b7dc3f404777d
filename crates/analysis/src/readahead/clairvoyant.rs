//! What who knows all later reads would bring in: every page that is used, once, and no other.

use std::collections::{BTreeSet, HashMap};

use flashscope_readahead::{Access, FileId, PAGE_BYTES};
use serde::Serialize;

use super::workload::Workload;

/// A bound that no policy gets below, whatever it knows: Belady's choice of what to evict ("A study of replacement algorithms
/// for a virtual-storage computer", IBM Systems Journal 5, 1966), and only pages that are used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Clairvoyant {
    pub pages: u64,
    pub time_ns: f64,
    /// Least time that the longest read could take if pages were brought in by any read before the one that uses them.
    pub longest_ns: f64,
    pub energy_uj: Option<f64>,
}

/// Pages touched that are kept (8 bytes each, and what tells pages apart).
const MAX_TOUCHES: usize = 1 << 24;

struct Touch {
    page: u32,
    /// Touch after it of the same page that would find it cached.
    next: u32,
}

enum Step {
    /// This many touches, of a read or fault or (if not) of a write.
    Touches(u32, bool),
    Dropped(u32),
}

/// `None` where there are more touches than are kept. `costs`: of a call, a page in it, a fault, a page in it.
pub fn foresee(workload: &Workload, budget_pages: usize, costs: &[f64; 4]) -> Option<Clairvoyant> {
    let [call_ns, page_ns, fault_ns, fault_page_ns] = *costs;
    let mut numbers: HashMap<(FileId, u64), u32> = HashMap::new();
    let mut by_file: HashMap<FileId, Vec<u64>> = HashMap::new();
    let mut touches: Vec<Touch> = Vec::new();
    let mut steps: Vec<Step> = Vec::new();
    let mut sizes = workload.sizes.clone();
    sizes.retain(|file, _| !workload.created.contains(file));
    let mut kinds = Vec::new();
    for step in &workload.steps {
        let size = sizes.entry(step.file).or_default();
        let (first, end, reads) = match step.access {
            Access::Read { offset, length } => {
                (offset / PAGE_BYTES, offset.saturating_add(length).min(*size).div_ceil(PAGE_BYTES), true)
            }
            Access::Fault { page, .. } => (page, page.saturating_add(1), true),
            Access::Write { offset, length } => {
                *size = (*size).max(offset.saturating_add(length));
                (offset / PAGE_BYTES, offset.saturating_add(length).div_ceil(PAGE_BYTES), false)
            }
            Access::Resized { bytes } => {
                *size = bytes;
                continue;
            }
            Access::Brought { page } => (page, page.saturating_add(1), false),
            Access::Drop { page } => {
                if let Some(&number) = numbers.get(&(step.file, page)) {
                    steps.push(Step::Dropped(number));
                    kinds.push(None);
                }
                continue;
            }
            Access::DropAll => {
                for page in by_file.get(&step.file).into_iter().flatten() {
                    steps.push(Step::Dropped(numbers[&(step.file, *page)]));
                    kinds.push(None);
                }
                continue;
            }
            _ => continue,
        };
        let count = usize::try_from(end.saturating_sub(first)).ok()?;
        if touches.len().checked_add(count)? > MAX_TOUCHES || steps.len() > MAX_TOUCHES {
            return None;
        }
        for page in first..end {
            let next = numbers.len() as u32;
            let page_number = *numbers.entry((step.file, page)).or_insert(next);
            if page_number == next {
                by_file.entry(step.file).or_default().push(page);
            }
            touches.push(Touch { page: page_number, next: u32::MAX });
        }
        steps.push(Step::Touches(count as u32, reads));
        let fault = matches!(step.access, Access::Fault { .. });
        kinds.push(reads.then_some(fault));
    }

    // Backwards: when is each page touched next before it is dropped?
    let mut later = vec![u32::MAX; numbers.len()];
    let mut at = touches.len();
    for step in steps.iter().rev() {
        match *step {
            Step::Dropped(page) => later[page as usize] = u32::MAX,
            Step::Touches(count, _) => {
                for n in (at - count as usize..at).rev() {
                    let touch = &mut touches[n];
                    touch.next = std::mem::replace(&mut later[touch.page as usize], n as u32);
                }
                at -= count as usize;
            }
        }
    }

    // Forwards: what is cached, by its next touch; the farthest leaves.
    let mut cached: Vec<Option<u32>> = vec![None; numbers.len()];
    let mut order: BTreeSet<(u32, u32)> = BTreeSet::new();
    for &(file, page) in &workload.cached_before {
        if let Some(&number) = numbers.get(&(file, page)) {
            cached[number as usize] = Some(later[number as usize]);
            order.insert((later[number as usize], number));
        }
    }
    let (mut pages, mut time_ns, mut at) = (0u64, 0.0, 0);
    // Reads so far and pages needed up to them: a read brings in at least the mean of what it and those before it need.
    let (mut calls, mut needed, mut most) = (0u64, 0u64, 0u64);
    for (step, kind) in steps.iter().zip(&kinds) {
        match *step {
            Step::Dropped(page) => {
                if let Some(next) = cached[page as usize].take() {
                    order.remove(&(next, page));
                }
            }
            Step::Touches(count, reads) => {
                let mut missing = 0u64;
                for touch in &touches[at..at + count as usize] {
                    match cached[touch.page as usize].replace(touch.next) {
                        Some(old) => {
                            order.remove(&(old, touch.page));
                        }
                        None => missing += u64::from(reads),
                    }
                    order.insert((touch.next, touch.page));
                    while order.len() > budget_pages.max(1) {
                        let Some((_, farthest)) = order.pop_last() else { break };
                        cached[farthest as usize] = None;
                    }
                }
                at += count as usize;
                pages += missing;
                match kind {
                    Some(true) => time_ns += fault_ns + fault_page_ns * missing as f64,
                    Some(false) => time_ns += call_ns + page_ns * missing as f64,
                    None => {}
                }
                if kind.is_some() {
                    calls += 1;
                    needed += missing;
                    most = most.max(needed.div_ceil(calls));
                }
            }
        }
    }
    let longest_ns = if calls == 0 { 0.0 } else { call_ns + page_ns * most as f64 };
    Some(Clairvoyant { pages, time_ns, longest_ns, energy_uj: None })
}
