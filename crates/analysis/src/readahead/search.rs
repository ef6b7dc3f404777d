//! Past the one window: which policy would have cost a recorded workload least, and how far that is from perfect foresight.
//!
//! A policy is a window, its first size and whether context counts ([`Policy`]): one for all files, one for each file, one for
//! each task. The models bring the pages in, the fitted cost makes time of them, and energy is time by a profile's powers.
//! Only policies whose longest read or fault stays within a bound are taken. Where files share no memory pressure they do
//! not touch each other, so that one run with a policy for all says what it does to each file; what is put together of them is
//! run again as a whole, and that run's figures are the ones given.

use std::collections::{BTreeMap, HashSet};

use flashscope_readahead::{Access, FileId, Initial, PAGE_BYTES, PageStep, Policy};
use serde::Serialize;

use super::clairvoyant::{self, Clairvoyant};
use super::predict::Predictor;

pub const SEARCH_SCHEMA: u32 = 1;

/// What is looked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Windows to try, KiB.
    pub windows_kib: Vec<u64>,
    /// The setting to compare with, KiB: the recording's own.
    pub stock_kib: u64,
    /// No read or fault may take longer; `None`: than under the stock setting.
    pub latency_ns: Option<f64>,
    /// Mean power without and with read-ahead, watts.
    pub watts: Option<(f64, f64)>,
    /// What bounds the search, said plainly: of the trace and the model.
    pub notes: Vec<String>,
}

/// Who has a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    All,
    File(FileId),
    Task(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Choice {
    pub owner: Owner,
    #[serde(flatten)]
    pub policy: Policy,
}

/// What policies cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spent {
    pub pages: u64,
    pub pages_unused: u64,
    pub time_ns: f64,
    /// Of the longest read or fault.
    pub longest_ns: f64,
    /// `None` without powers.
    pub energy_uj: Option<f64>,
}

impl Spent {
    /// Energy where there is one, else time, which is in proportion to it.
    fn cost(&self) -> f64 {
        self.energy_uj.unwrap_or(self.time_ns)
    }
}

/// One way to choose policies, at its best.
#[derive(Clone, Debug, Serialize)]
pub struct Best {
    /// "stock", "one window", "one policy", "a window for each file", …
    pub among: &'static str,
    #[serde(flatten)]
    pub spent: Spent,
    /// Its longest read is within the bound.
    pub in_bound: bool,
    pub choices: Vec<Choice>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Found {
    pub schema: u32,
    pub model: &'static str,
    pub latency_ns: f64,
    /// Policies that were run.
    pub tried: usize,
    pub best: Vec<Best>,
    /// `None` where there are more accesses than are kept for it.
    pub clairvoyant: Option<Clairvoyant>,
    pub notes: Vec<String>,
}

/// Owners that get a policy of their own; the rest keep the best common one.
const MAX_OWNERS: usize = 256;

enum Assigned {
    All(Policy),
    Files(Policy, BTreeMap<FileId, Policy>),
    Tasks(Policy, BTreeMap<u32, Policy>),
}

impl Assigned {
    fn of(&self, file: FileId, tid: u32) -> Policy {
        match self {
            Assigned::All(policy) => *policy,
            Assigned::Files(rest, files) => *files.get(&file).unwrap_or(rest),
            Assigned::Tasks(rest, tasks) => *tasks.get(&tid).unwrap_or(rest),
        }
    }

    fn choices(&self) -> Vec<Choice> {
        let all = |policy: &Policy| Choice { owner: Owner::All, policy: *policy };
        match self {
            Assigned::All(policy) => vec![all(policy)],
            Assigned::Files(rest, files) => {
                let files = files.iter().map(|(&file, &policy)| Choice { owner: Owner::File(file), policy });
                std::iter::once(all(rest)).chain(files).collect()
            }
            Assigned::Tasks(rest, tasks) => {
                let tasks = tasks.iter().map(|(&tid, &policy)| Choice { owner: Owner::Task(tid), policy });
                std::iter::once(all(rest)).chain(tasks).collect()
            }
        }
    }
}

/// A run: what it cost in all, and by whom.
#[derive(Default)]
struct Run {
    all: Spent,
    files: BTreeMap<FileId, Spent>,
    tasks: BTreeMap<u32, Spent>,
}

pub struct Search<'a> {
    predictor: &'a Predictor<'a>,
    wanted: Wanted,
    /// A call without pages, a page in it; a fault without pages, a page in it: ns.
    costs: [f64; 4],
}

impl<'a> Search<'a> {
    /// `None` where the trace gives no cost of time: nothing tells policies apart then.
    pub fn new(predictor: &'a Predictor<'a>, wanted: Wanted) -> Option<Search<'a>> {
        let costs = predictor.costs()?;
        Some(Search { predictor, wanted, costs })
    }

    /// Runs every policy; `progress` is told how many of how many are done.
    pub fn run(&self, progress: &mut dyn FnMut(usize, usize)) -> Found {
        let stock = Policy::of_kernel(self.wanted.stock_kib / (PAGE_BYTES / 1024));
        let stock_run = self.spend(&Assigned::All(stock));
        let latency_ns = self.wanted.latency_ns.unwrap_or(stock_run.all.longest_ns);
        let policies = self.policies();
        let mut runs = Vec::with_capacity(policies.len());
        for (done, &policy) in policies.iter().enumerate() {
            progress(done, policies.len());
            runs.push((policy, self.spend(&Assigned::All(policy))));
        }
        progress(policies.len(), policies.len());
        let is_window = |policy: &Policy| *policy == Policy::of_kernel(policy.window_pages);
        let windows: Vec<_> = runs.iter().filter(|(policy, _)| is_window(policy)).collect();
        let every: Vec<_> = runs.iter().collect();
        let mut best = vec![self.best("stock", Assigned::All(stock), latency_ns)];
        for (runs, names) in [
            (windows, ["one window", "a window for each file", "a window for each task"]),
            (every, ["one policy", "a policy for each file", "a policy for each task"]),
        ] {
            let Some(common) = choose(runs.iter().map(|(policy, run)| (*policy, run.all)), latency_ns) else {
                continue;
            };
            let files = owners(&runs, |run| &run.files, latency_ns);
            let tasks = owners(&runs, |run| &run.tasks, latency_ns);
            let whole = self.best(names[0], Assigned::All(common), latency_ns);
            best.push(whole.clone());
            for (name, apart) in
                [(names[1], Assigned::Files(common, files)), (names[2], Assigned::Tasks(common, tasks))]
            {
                let apart = self.best(name, apart, latency_ns);
                // Tasks share files, and files memory: what is best for each need not be best together.
                let better = apart.in_bound >= whole.in_bound && apart.spent.cost() <= whole.spent.cost();
                best.push(if better { apart } else { Best { among: name, ..whole.clone() } });
            }
        }
        let clairvoyant = clairvoyant::foresee(self.predictor.workload(), self.predictor.budget_pages(), &self.costs)
            .map(|mut c| {
                c.energy_uj = self.energy(0, c.time_ns);
                c
            });
        Found {
            schema: SEARCH_SCHEMA,
            model: self.predictor.kernel().name(),
            latency_ns,
            tried: policies.len(),
            best,
            clairvoyant,
            notes: self.wanted.notes.clone(),
        }
    }

    /// Without a window neither the first size nor context matters.
    fn policies(&self) -> Vec<Policy> {
        let mut windows: Vec<u64> = self.wanted.windows_kib.iter().map(|kib| kib / (PAGE_BYTES / 1024)).collect();
        windows.sort_unstable();
        windows.dedup();
        let mut policies = Vec::new();
        for window_pages in windows {
            policies.push(Policy::of_kernel(window_pages));
            for initial in [Initial::Kernel, Initial::Twice, Initial::Whole] {
                for context in [true, false] {
                    let policy = Policy { window_pages, initial, context };
                    if window_pages > 0 && policy != Policy::of_kernel(window_pages) {
                        policies.push(policy);
                    }
                }
            }
        }
        policies
    }

    fn energy(&self, window_pages: u64, time_ns: f64) -> Option<f64> {
        let (without, with) = self.wanted.watts?;
        Some(time_ns / 1000.0 * if window_pages > 0 { with } else { without })
    }

    fn best(&self, among: &'static str, assigned: Assigned, latency_ns: f64) -> Best {
        let spent = self.spend(&assigned).all;
        Best { among, spent, in_bound: within(&spent, latency_ns), choices: assigned.choices() }
    }

    fn spend(&self, assigned: &Assigned) -> Run {
        let workload = self.predictor.workload();
        let mut simulator = self.predictor.simulator(0, false);
        let mut run = Run::default();
        let mut opened = HashSet::new();
        let [call_ns, page_ns, fault_ns, fault_page_ns] = self.costs;
        for step in &workload.steps {
            let policy = assigned.of(step.file, step.tid);
            let open = step.open;
            if matches!(step.access, Access::Open) {
                opened.remove(&(step.file, open));
                simulator.apply(step.file, open, step.access, &mut |_| {});
            }
            if opened.insert((step.file, open)) {
                simulator.set_open_policy(step.file, open, policy);
            }
            let (mut pages, mut unused) = (0u64, 0u64);
            let files = &mut run.files;
            if !matches!(step.access, Access::Open) {
                simulator.apply(step.file, open, step.access, &mut |event| match event.step {
                    PageStep::Added { .. } => pages += u64::from(event.is_read()),
                    PageStep::Evicted { used: false }
                    | PageStep::Dropped { used: false }
                    | PageStep::TakenBack { used: false } => {
                        unused += 1;
                        files.entry(event.file).or_default().pages_unused += 1;
                    }
                    _ => {}
                });
            }
            let time_ns = match (step.access, step.call) {
                (Access::Fault { .. }, _) => fault_ns + fault_page_ns * pages as f64,
                (_, Some(_)) => call_ns + page_ns * pages as f64,
                // Pages that advice brings in are waited for as well: this storage works for its reader.
                _ => page_ns * pages as f64,
            };
            let energy = self.energy(policy.window_pages, time_ns);
            run.all.pages_unused += unused;
            let (file, task) = (run.files.entry(step.file).or_default(), run.tasks.entry(step.tid).or_default());
            for spent in [&mut run.all, file, task] {
                spent.pages += pages;
                spent.time_ns += time_ns;
                spent.longest_ns = spent.longest_ns.max(time_ns);
                spent.energy_uj = energy.map(|uj| uj + spent.energy_uj.unwrap_or(0.0));
            }
        }
        for (file, pages) in simulator.unused() {
            run.files.entry(file).or_default().pages_unused += pages;
            run.all.pages_unused += pages;
        }
        run
    }
}

fn within(spent: &Spent, latency_ns: f64) -> bool {
    spent.longest_ns <= latency_ns * (1.0 + 1e-9)
}

/// The cheapest that is in the bound, the smallest window of equals; where none is, the one whose longest read is shortest.
fn choose(runs: impl Iterator<Item = (Policy, Spent)>, latency_ns: f64) -> Option<Policy> {
    let order = |spent: &Spent| match within(spent, latency_ns) {
        true => (0, spent.cost(), 0.0),
        false => (1, spent.longest_ns, spent.cost()),
    };
    let mut best: Option<(Policy, (u8, f64, f64))> = None;
    for (policy, spent) in runs {
        let now = order(&spent);
        // Policies come by window, the kernel's own rules first.
        if best.as_ref().is_none_or(|(_, old)| now.partial_cmp(old) == Some(std::cmp::Ordering::Less)) {
            best = Some((policy, now));
        }
    }
    best.map(|(policy, _)| policy)
}

/// The best policy of each owner, of those that cost most.
fn owners<K: Ord + Copy>(
    runs: &[&(Policy, Run)],
    of: impl Fn(&Run) -> &BTreeMap<K, Spent>,
    latency_ns: f64,
) -> BTreeMap<K, Policy> {
    let mut most: BTreeMap<K, f64> = BTreeMap::new();
    for (owner, spent) in runs.iter().flat_map(|(_, run)| of(run)) {
        let most = most.entry(*owner).or_default();
        *most = most.max(spent.cost());
    }
    let mut by_cost: Vec<(K, f64)> = most.into_iter().collect();
    by_cost.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    by_cost.truncate(MAX_OWNERS);
    by_cost
        .into_iter()
        .filter_map(|(owner, _)| {
            let spent = runs.iter().filter_map(|(policy, run)| Some((*policy, *of(run).get(&owner)?)));
            Some((owner, choose(spent, latency_ns)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::predict::Storage;
    use super::super::workload::{Call, Step, Workload};
    use super::*;
    use flashscope_readahead::{Kernel, OpenId};

    const STREAM: FileId = FileId { device: None, inode: 1 };
    const POINTS: FileId = FileId { device: None, inode: 2 };
    const PAGE_NS: u64 = 1_000_000;
    const CALL_NS: u64 = 10_000;

    /// Task 1 reads a file from its begin to its end, task 2 five neighbours here and there; a call costs 10 µs and a page 1 ms.
    fn workload() -> Workload {
        let mut workload = Workload { cache_seen: true, flash_seen: true, ..Workload::default() };
        let mut read = |tid: u32, file: FileId, page: u64, pages: u64| {
            let access = Access::Read { offset: page * PAGE_BYTES, length: pages * PAGE_BYTES };
            let call = Some(workload.calls.len() as u32);
            workload.steps.push(Step { tid, file, open: OpenId(tid.into()), access, call });
            // What the fit is made of: no matter what was recorded, the costs are these.
            let brought = workload.calls.len() as u32 % 3;
            workload.calls.push(Call {
                pages_added: brought,
                flash_reads: brought * 2,
                duration_ns: Some(CALL_NS + PAGE_NS * u64::from(brought)),
                ..Call::new(tid, file, false, workload.calls.len() as u64 * 10_000_000)
            });
        };
        for page in 0..256 {
            read(1, STREAM, page, 1);
        }
        for spot in 0..20 {
            for near in 0..5 {
                read(2, POINTS, spot * 50 + near, 1);
            }
        }
        workload.sizes = [(STREAM, 1 << 20), (POINTS, 4 << 20)].into();
        workload
    }

    fn search(workload: &Workload, latency_ns: Option<f64>, budget_pages: usize) -> Found {
        let predictor = Predictor::new(workload, Storage { budget_pages, ..Storage::new(Kernel::V6_1) });
        let windows_kib = vec![0, 16, 64, 128];
        let wanted = Wanted { windows_kib, stock_kib: 128, latency_ns, watts: Some((0.2, 0.25)), notes: vec![] };
        Search::new(&predictor, wanted).unwrap().run(&mut |_, _| {})
    }

    fn best<'a>(found: &'a Found, among: &str) -> &'a Best {
        found.best.iter().find(|best| best.among == among).unwrap()
    }

    #[test]
    fn nothing_beats_foresight_and_each_freedom_helps() {
        let found = search(&workload(), None, 1 << 18);
        let clairvoyant = found.clairvoyant.unwrap();
        // 256 pages of the stream, 100 of the points, each once.
        assert_eq!(clairvoyant.pages, 356);
        assert!((clairvoyant.time_ns - (356 * PAGE_NS + 356 * CALL_NS) as f64).abs() < 1e3, "{clairvoyant:?}");
        assert!((clairvoyant.longest_ns - (PAGE_NS + CALL_NS) as f64).abs() < 1.0, "{clairvoyant:?}");
        let stock = best(&found, "stock");
        // Context makes streams of the points' neighbours: the window's pages that nobody asks for.
        assert!(stock.spent.pages_unused > 0 && stock.spent.pages == 356 + stock.spent.pages_unused, "{stock:?}");
        let cost = |among: &str| best(&found, among).spent.energy_uj.unwrap();
        assert!(cost("one window") <= cost("stock"));
        for among in ["one policy", "a window for each file", "a window for each task"] {
            assert!(cost(among) <= cost("one window"), "{among}");
            assert!(cost(among) >= clairvoyant.energy_uj.unwrap() - 1e-6, "{among}");
        }
        // Every page is waited for: with no read-ahead none is read for nothing.
        let off = &best(&found, "one window").choices[0].policy;
        assert_eq!(off.window_pages, 0);
        assert!((cost("one window") - clairvoyant.energy_uj.unwrap()).abs() < 1e-6);
    }

    #[test]
    fn no_read_takes_longer_than_the_bound() {
        let workload = workload();
        for pages in [1.5, 5.0, 9.0] {
            let found = search(&workload, Some(pages * PAGE_NS as f64), 1 << 18);
            for best in found.best.iter().filter(|best| best.among != "stock") {
                assert!(best.in_bound && best.spent.longest_ns <= pages * PAGE_NS as f64, "{pages}: {best:?}");
            }
        }
        // None is within a bound that a lone page breaks: the shortest that there is, and it is said.
        let found = search(&workload, Some(0.5 * PAGE_NS as f64), 1 << 18);
        assert!(found.best.iter().all(|best| !best.in_bound));
        assert_eq!(best(&found, "one window").choices[0].policy.window_pages, 0);
    }

    /// Round after round through more pages than there is room for: who evicts the one needed last keeps the others.
    #[test]
    fn foresight_keeps_what_comes_back_first() {
        let mut workload = workload();
        let template = workload.steps[0];
        workload.steps.clear();
        for _ in 0..4 {
            for page in 0..10u64 {
                let access = Access::Read { offset: page * PAGE_BYTES, length: PAGE_BYTES };
                workload.steps.push(Step { access, ..template });
            }
        }
        let found = search(&workload, None, 9);
        let off = best(&found, "one window");
        assert_eq!(off.spent.pages, 40, "least recently used: each is gone when it is wanted again");
        // Ten pages in nine frames, in turn: the best that can be done misses one of every nine after the first ten.
        assert_eq!(found.clairvoyant.unwrap().pages, 10 + 3);
    }

    #[test]
    fn without_times_there_is_nothing_to_tell_by() {
        let mut workload = workload();
        workload.calls.iter_mut().for_each(|call| call.duration_ns = None);
        let predictor = Predictor::new(&workload, Storage::new(Kernel::V6_1));
        let wanted = Wanted { windows_kib: vec![0], stock_kib: 0, latency_ns: None, watts: None, notes: vec![] };
        assert!(Search::new(&predictor, wanted).is_none());
    }
}
