//! What came by read-ahead and what of it was used, as the trace has it, against the kernel's own marks in /proc/kpageflags: page by
//! page, on every kernel, with large folios, and where memory is short.

use std::collections::{BTreeMap, BTreeSet};

use flashscope_analysis::Analysis as _;
use flashscope_analysis::cache::{Accuracy, Brought, PageThere, Use};
use flashscope_tests::{Booted, Plan, TempDir, events, nothing_lost, work};
use flashscope_trace::{Device, EventKind, FileStep, Step, Trace};

/// include/uapi/linux/kernel-page-flags.h
const KPF_COMPOUND_HEAD: u64 = 1 << 15;
const KPF_COMPOUND_TAIL: u64 = 1 << 16;

/// Files that are read, with an end within a page.
const FILE: &str = "/mnt/file";
const FILE_BYTES: u64 = 1_500_001;

/// Ways to read it (tests/readahead/work.c); those that map it leave open what they used.
const WAYS: [&str; 11] =
    ["part", "odd", "mixed", "strided", "end", "large", "two", "willneed", "fadvise", "again", "mmap"];

/// A file's pages as /proc/kpageflags has them.
#[derive(Default)]
struct Kernel {
    inode: u64,
    /// Page, whether it was accessed, its flags.
    pages: BTreeMap<u64, (bool, u64)>,
    /// Cached behind the file's end.
    beyond: BTreeSet<u64>,
}

impl Kernel {
    fn cached(&self) -> BTreeSet<u64> {
        self.pages.keys().chain(&self.beyond).copied().collect()
    }
}

fn kernel_says(booted: &Booted, name: &str) -> Kernel {
    let step = done(booted, name);
    let text = String::from_utf8(step.stdout.clone()).expect("text");
    let mut says = Kernel::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{name}: {line}"));
        match words[..] {
            ["inode", inode] => says.inode = number(inode),
            [page, "beyond"] => {
                says.beyond.insert(number(page));
            }
            [page, mark @ ("accessed" | "untouched"), flags] => {
                let flags = u64::from_str_radix(flags, 16).expect("flags");
                says.pages.insert(number(page), (mark == "accessed", flags));
            }
            _ => panic!("{name}: {line}"),
        }
    }
    says
}

fn done<'a>(booted: &'a Booted, name: &str) -> &'a Step {
    let step = booted.step(name);
    assert_eq!(step.status, Some(0), "{name}: {}", String::from_utf8_lossy(&step.stderr));
    step
}

fn span(step: &Step) -> (u64, u64) {
    (step.begin_ns.expect("a begin"), step.end_ns.expect("an end"))
}

/// The file system that the files lie on.
fn device(trace: &Trace) -> Device {
    let mounts = trace.facts_json()["mounts"].as_array().expect("mounts");
    let mount = mounts.iter().find(|mount| mount["target"] == "/mnt").expect("a mount");
    mount["device"].as_str().and_then(Device::parse).expect("a device")
}

/// What the trace says of one file.
struct Followed {
    accuracy: Accuracy,
    /// Page to the first of its folio and their number.
    folios: BTreeMap<u64, (u64, u64)>,
    /// Pages that left.
    gone: u64,
    /// How long the file is, as reads and faults have it.
    sizes: BTreeSet<Option<u64>>,
    device: Device,
    inode: u64,
}

impl Followed {
    fn new(trace: &Trace, inode: u64) -> Followed {
        let (folios, sizes) = (BTreeMap::new(), BTreeSet::new());
        Followed { accuracy: Accuracy::new(), folios, gone: 0, sizes, device: device(trace), inode }
    }

    fn follow(&mut self, trace: &Trace, (begin, end): (u64, u64)) {
        events(trace, |event| {
            if !(begin..=end).contains(&event.time.0) {
                return;
            }
            self.accuracy.event(event);
            let EventKind::File(file) = &event.kind else { return };
            if (file.device, file.inode) != (Some(self.device), self.inode) {
                return;
            }
            let (first, pages) = (file.offset / 4096, file.bytes / 4096);
            match file.step {
                FileStep::Cached => self.folios.extend((first..first + pages).map(|page| (page, (first, pages)))),
                FileStep::Uncached => self.gone += pages,
                FileStep::Read | FileStep::Fault => {
                    self.sizes.insert(file.size);
                }
                _ => {}
            }
        });
    }

    fn there(&self) -> BTreeMap<u64, PageThere> {
        let ours = |page: &PageThere| (page.device, page.inode) == (Some(self.device), self.inode);
        self.accuracy.pages().filter(ours).map(|page| (page.page, page)).collect()
    }

    fn brought(self) -> Brought {
        let ours = |device, inode| (device, inode) == (Some(self.device), self.inode);
        let found = self.accuracy.finish();
        found.files.iter().find(|file| ours(file.device, file.inode)).map(|file| file.pages).unwrap_or_default()
    }
}

/// Everything in which the two disagree. A folio has one mark for all its pages.
fn disagreements(followed: &Followed, kernel: &Kernel) -> Vec<String> {
    let there = followed.there();
    let mut wrong = Vec::new();
    let (cached, traced): (_, BTreeSet<u64>) = (kernel.cached(), there.keys().copied().collect());
    wrong.extend(cached.difference(&traced).map(|page| format!("{page} is cached, and not in the trace")));
    wrong.extend(traced.difference(&cached).map(|page| format!("{page} is in the trace, and not cached")));
    let sizes = followed.sizes.iter().filter(|&&size| size != Some(FILE_BYTES));
    wrong.extend(sizes.map(|size| format!("a read or a fault says that the file has {size:?} bytes")));
    for (page, &(accessed, flags)) in &kernel.pages {
        let Some(&(first, pages)) = followed.folios.get(page) else { continue };
        let folio =
            |of: &dyn Fn(Use) -> bool| (first..first + pages).any(|p| there.get(&p).is_some_and(|p| of(p.used)));
        let (used, unknown) = (folio(&|used| used == Use::Used), folio(&|used| used == Use::Unknown));
        if accessed != used && !(accessed && unknown) {
            wrong.push(format!("{page}: accessed {accessed}, used {used} of folio {first}+{pages}, flags {flags:x}"));
        }
        let head = pages > 1 && *page == first;
        let tail = pages > 1 && *page != first;
        if head != (flags & KPF_COMPOUND_HEAD != 0) || tail != (flags & KPF_COMPOUND_TAIL != 0) {
            wrong.push(format!("{page}: of folio {first}+{pages}, flags {flags:x}"));
        }
    }
    wrong
}

/// A boot that reads the file in every way, each followed by what the kernel says of it.
fn boot(board: &str, kernel: &str) -> Booted {
    let dir = TempDir::new(&format!("accuracy-{board}-{kernel}"));
    let mut plan = Plan::new(board, kernel);
    let of_disk = board.ends_with("-blk");
    let mut lines = Vec::new();
    if !of_disk {
        // What is asked is no matter of time.
        (plan.modules, plan.faults, plan.parts) = (&["jffs2"], "do_delays=0", &[128]);
        lines.extend(["mkdir /mnt", "mount mtd0 /mnt jffs2 -"].map(str::to_owned));
    }
    lines.push(format!("create {FILE} {FILE_BYTES} printable 1"));
    if !of_disk {
        lines.push("settle jffs2_gcd 200 60000".to_owned());
        lines.push("write /sys/class/bdi/mtd-0/read_ahead_kb 128".to_owned());
    }
    lines.push("record-start --events cache,syscall --ring 8192".to_owned());
    for way in WAYS {
        lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
        lines.push(format!("run {way} /work {way} {FILE}"));
        lines.push(format!("run flags-{way} /pageflags {FILE}"));
    }
    // Pages that a file leaves behind go as memory is needed, and at last all of them.
    lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
    lines.push(format!("run filled /work mixed {FILE}"));
    lines.push(format!("run flags-filled /pageflags {FILE}"));
    lines.push(format!("run evicted /pageflags {FILE} evict"));
    lines.push(format!("run flags-evicted /pageflags {FILE}"));
    lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
    lines.push(format!("run flags-dropped /pageflags {FILE}"));
    lines.push("record-stop".to_owned());
    plan.lines = lines;
    plan.files.push(("/work", 0o755, work(board, "readahead/work.c", dir.path())));
    plan.files.push(("/pageflags", 0o755, work(board, "readahead/pageflags.c", dir.path())));
    plan.boot()
}

/// Pages that came ahead, by what the kernel says of them.
fn ahead(followed: &Followed, kernel: &Kernel, accessed: bool) -> BTreeSet<u64> {
    let marked = |page: &u64| kernel.pages.get(page).is_some_and(|&(mark, _)| mark == accessed);
    followed.there().into_values().filter(|page| page.ahead).map(|page| page.page).filter(marked).collect()
}

fn hold(board: &str, kernel: &str) -> bool {
    let booted = boot(board, kernel);
    let trace = booted.recording(0);
    nothing_lost(&trace, "the recording");
    println!(
        "{board} {kernel}: pages there, asked for, ahead, used, unused, use unknown; of folios of more than one page"
    );
    let mut failed = Vec::new();
    let mut large = false;
    for way in WAYS {
        let says = kernel_says(&booted, &format!("flags-{way}"));
        let mut followed = Followed::new(&trace, says.inode);
        followed.follow(&trace, span(done(&booted, way)));
        failed.extend(disagreements(&followed, &says).into_iter().map(|wrong| format!("{way}: {wrong}")));
        let in_folios = followed.there().keys().filter(|page| followed.folios[page].1 > 1).count();
        large |= in_folios > 0;
        let (used, unused) = (ahead(&followed, &says, true).len() as u64, ahead(&followed, &says, false).len() as u64);
        let there = says.cached().len();
        let brought = followed.brought();
        println!(
            "{way:>10}: {there:4} {:4} {:4} {:4} {:4} {:4}; {in_folios:4}; {used:4}",
            brought.requested,
            brought.ahead,
            brought.ahead_used,
            brought.ahead_unused(),
            brought.mapped
        );
        assert_eq!(
            brought.ahead,
            brought.ahead_used + brought.ahead_unused() + brought.mapped,
            "{way}: all that came ahead is in one of the counts"
        );
        // By count, where a page is a folio and none left.
        let left = brought.ahead_left_unused;
        if in_folios == 0
            && brought.ahead_evicted_unused == Some(0)
            && brought.mapped == 0
            && (used, unused) != (brought.ahead_used, left)
        {
            failed.push(format!("{way}: {used} used and {unused} unused by the kernel, {brought:?}"));
        }
    }
    assert!(failed.is_empty(), "{board} {kernel}: {failed:#?}");
    hold_evictions(&booted, &trace);
    large
}

/// What left unused, by what the kernel had of it before and after.
fn hold_evictions(booted: &Booted, trace: &Trace) {
    let [filled, evicted, dropped] =
        ["filled", "evicted", "dropped"].map(|name| kernel_says(booted, &format!("flags-{name}")));
    let mut followed = Followed::new(trace, filled.inode);
    followed.follow(trace, span(done(booted, "filled")));
    let wrong = disagreements(&followed, &filled);
    assert!(wrong.is_empty(), "filled: {wrong:#?}");
    // Where a folio is a page these are the ahead ones that the kernel did not mark.
    let unused: BTreeSet<u64> = followed
        .there()
        .into_values()
        .filter(|page| page.ahead && page.used == Use::Unused)
        .map(|page| page.page)
        .collect();
    followed.follow(trace, span(done(booted, "evicted")));
    let (there, still) = (filled.cached(), evicted.cached());
    let (pages, gone) = (there.len(), there.difference(&still).count());
    let left_unused = unused.difference(&still).count();
    let traced = followed.gone;
    assert!(gone * 3 >= pages && gone as u64 == traced, "{gone} of {pages} left, {traced} in the trace");
    assert_eq!(followed.there().into_keys().collect::<BTreeSet<u64>>(), still, "what memory's want has left");
    // All of it leaves.
    let (_, evicted_end) = span(done(booted, "flags-evicted"));
    let (dropped_begin, _) = span(done(booted, "flags-dropped"));
    let mut whole = Followed::new(trace, filled.inode);
    for span in [span(done(booted, "filled")), span(done(booted, "evicted")), (evicted_end, dropped_begin)] {
        whole.follow(trace, span);
    }
    assert_eq!((whole.there().len(), dropped.cached().len()), (0, 0), "nothing is left");
    let (brought, all) = (followed.brought(), whole.brought());
    println!(
        "   evicted: {gone} of {pages} pages left for want of memory, {:?} of them ahead and unused; {:?} when all were dropped",
        brought.ahead_evicted_unused, all.ahead_evicted_unused
    );
    assert!(left_unused > 0, "no unused page left for want of memory");
    assert_eq!(brought.ahead_evicted_unused, Some(left_unused as u64), "evicted unused");
    assert_eq!(brought.ahead_left_unused, (unused.len() - left_unused) as u64, "left unused");
    assert_eq!((all.ahead_evicted_unused, all.ahead_left_unused), (Some(unused.len() as u64), 0), "dropped unused");
}

/// JFFS2 has no large folios on any kernel.
fn hold_jffs2(kernel: &str) {
    assert!(!hold("armv7", kernel));
}

#[test]
fn used_is_what_linux_5_10_marked() {
    hold_jffs2("5.10");
}

#[test]
fn used_is_what_linux_6_1_marked() {
    hold_jffs2("6.1");
}

#[test]
fn used_is_what_linux_6_12_marked() {
    hold_jffs2("6.12");
}

#[test]
fn used_is_what_the_newest_linux_marked() {
    hold_jffs2("newest");
}

#[test]
fn large_folios_count_with_all_their_pages() {
    assert!(hold("x86_64-blk", "newest"), "ext4 has large folios there");
}
