//! Calls of several tasks by turns: a window is added run by run, up to each page that is there already, and each run is read page by
//! page before the next is added (`page_cache_ra_unbounded` and `read_pages`, mm/readahead.c). Where reads bring their pages in
//! themselves, others run meanwhile, and what they add is there when the next run is. A call goes on when all of its window is read
//! ([`Reading`]); it waits for what another has yet to read. 2.6.37 adds each page when it is read.

use std::collections::{BTreeMap, VecDeque};

use crate::kernel::Reading;
use crate::mapping::Mapping;
use crate::{squashfs, ubifs};

/// What is left to do of a call.
#[derive(Clone, Copy, Debug)]
pub struct Later {
    pub file: u32,
    pub open: u64,
    /// [`Mapping::asked`] of the call.
    pub asked: (u64, u64),
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
pub enum What {
    /// The missing pages of a range, of which one may be marked.
    Add {
        from: u64,
        end: u64,
        marked: Option<u64>,
    },
    Read {
        page: u64,
    },
    /// It is read in.
    There {
        page: u64,
    },
    /// A bulk read has read its nodes from flash: those of these pages become pages.
    Fill {
        next: u64,
        end: u64,
    },
    /// The block of squashfs that begins with this page, by way of the buffer that squashfs keeps (`kept`) or not.
    Block {
        first: u64,
        kept: bool,
    },
    /// It is unpacked.
    Unpacked,
    /// Another task has yet to read it.
    Wait {
        page: u64,
    },
    /// The call itself goes on.
    GoOn(Reading),
}

/// What is left to do, by task.
#[derive(Debug, Default)]
pub struct Turns {
    pub left: BTreeMap<u32, VecDeque<Later>>,
    /// Whose turn it is, with which open file.
    pub task: u32,
    pub open: u64,
    /// Pages that each task has locked for the block of squashfs that it reads.
    locked: BTreeMap<u32, (u32, Vec<u64>)>,
    /// Who fills the buffer that squashfs keeps.
    pub has_buffer: Option<u32>,
}

impl Turns {
    /// Whether a bulk read of the file is under way (`ui_mutex` is held).
    pub fn fills(&self, file: u32) -> bool {
        let mut left = self.left.values().flatten();
        left.any(|later| later.file == file && matches!(later.what, What::Fill { .. }))
    }

    /// Whether something is left to do before the call goes on.
    pub fn has_left(&self) -> bool {
        self.left.get(&self.task).is_some_and(|left| !left.is_empty())
    }

    /// The next thing that a task left.
    pub fn take(&mut self, task: u32) -> Option<Later> {
        self.left.get_mut(&task)?.pop_front()
    }

    fn who_reads(&self, file: u32, wanted: u64) -> Option<u32> {
        let reads = |later: &Later| {
            later.file == file && matches!(later.what, What::Read { page } | What::There { page } if page == wanted)
        };
        let yet_to = self.left.iter().find(|(_, left)| left.iter().any(reads)).map(|(&task, _)| task);
        let locks = |(_, (of, pages)): &(&u32, &(u32, Vec<u64>))| *of == file && pages.contains(&wanted);
        yet_to.or_else(|| self.locked.iter().find(locks).map(|(&task, _)| task))
    }

    pub fn lock(&mut self, file: u32, pages: Vec<u64>) {
        self.locked.insert(self.task, (file, pages));
    }

    /// What it has locked, and it has the buffer no longer.
    pub fn unlock(&mut self) -> Vec<u64> {
        self.has_buffer = self.has_buffer.filter(|&task| task != self.task);
        self.locked.remove(&self.task).map_or(Vec::new(), |(_, pages)| pages)
    }
}

/// Adds a range up to the end of the first run of missing pages; where pages are not locked window by window, the first of them.
pub fn add_range(m: &mut Mapping, from: u64, end: u64, marked: Option<u64>) {
    let Some(first) = (from..end).find(|&page| !m.has(page)) else { return };
    let most = if m.bulk.is_none_or(|bulk| bulk.windows_locked) { end } else { first + 1 };
    let mut at = first;
    while at < most && !m.has(at) {
        m.add(at, marked == Some(at));
        m.cache.set_empty(m.file, at, true);
        at += 1;
    }
    (first..at).for_each(|page| later(m, What::Read { page }));
    if at < end {
        later(m, What::Add { from: at, end, marked });
    }
}

/// What is to be done behind all that is left of what is done now.
pub fn later(m: &mut Mapping, what: What) {
    let (file, asked) = (m.file, m.asked);
    if let Some(turns) = &mut m.turns {
        let open = turns.open;
        turns.left.entry(turns.task).or_default().push_back(Later { file, open, asked, what });
    }
}

/// A page that is used: one that is missing is added, and read later; one that another has yet to read is waited for.
pub fn bring(m: &mut Mapping, page: u64) {
    let Some(flags) = m.flags(page) else {
        m.add(page, false);
        m.cache.set_empty(m.file, page, true);
        later(m, What::Read { page });
        return;
    };
    let Some(turns) = m.turns.as_deref().filter(|_| flags.empty) else { return };
    match turns.who_reads(m.file, page) {
        Some(task) if task == turns.task => {}
        Some(_) => later(m, What::Wait { page }),
        None => later(m, What::Read { page }),
    }
}

/// What another has to do before a page is there is done.
fn wait_for(m: &mut Mapping, page: u64) {
    let Some(own) = m.turns.as_ref().map(|turns| turns.task) else { return };
    while m.flags(page).is_some_and(|flags| flags.empty)
        && let Some(task) = m.turns.as_ref().and_then(|turns| turns.who_reads(m.file, page)).filter(|&task| task != own)
        && let Some(later) = m.turns.as_mut().and_then(|turns| turns.take(task))
    {
        go_on(m, task, later);
    }
    if let Some(turns) = &mut m.turns {
        turns.task = own;
    }
}

/// One thing of what a task left, which may leave others to be done next.
pub fn go_on(m: &mut Mapping, task: u32, Later { asked, what, .. }: Later) {
    let Some(behind) = m.turns.as_mut().map(|turns| {
        turns.task = task;
        std::mem::take(turns.left.entry(task).or_default())
    }) else {
        return;
    };
    let own = std::mem::replace(&mut m.asked, asked);
    match what {
        What::Add { from, end, marked } => add_range(m, from, end, marked),
        What::Read { page } if m.squashfs.is_some_and(|squashfs| squashfs.by_page()) => {
            let next = squashfs::lock_block(m, page);
            later(m, next);
        }
        What::Block { first, kept } => {
            squashfs::get_block(m, first, kept);
            later(m, What::Unpacked);
        }
        What::Unpacked => squashfs::unlock_block(m),
        What::Read { page } => {
            later(m, What::There { page });
            if m.bulk.is_some() {
                ubifs::read_folio(m, page);
            }
        }
        What::There { page } => m.cache.set_empty(m.file, page, false),
        What::Fill { next, end } => {
            if let Some(next) = ubifs::fill(m, next, end) {
                later(m, What::Fill { next, end });
            }
        }
        // A page that left before it was read in is missed when the call goes on.
        What::Wait { page } => wait_for(m, page),
        What::GoOn(_) => {}
    }
    m.asked = own;
    if let Some(turns) = &mut m.turns {
        turns.left.entry(task).or_default().extend(behind);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Access, FileId, Kernel, Next, NodeRuns, OpenId, PageEvent, Settings, Simulator};

    const FILE: FileId = FileId { device: Some(1), inode: 1 };

    fn simulator(readahead_pages: u64) -> Simulator {
        let mut simulator = Simulator::new(Kernel::V6_1, Settings { readahead_pages, ..Settings::default() });
        simulator.set_size(FILE, 300 * 4096);
        simulator
    }

    fn read(simulator: &mut Simulator, task: u32, page: u64) -> Vec<u64> {
        let mut came = Vec::new();
        let access = Access::Read { offset: page * 4096, length: 4096 };
        let open = OpenId(task.into());
        simulator.turn(task, FILE, open, access, &mut |event: PageEvent| came.push(event.page));
        came
    }

    fn go_on(simulator: &mut Simulator, task: u32) -> Vec<u64> {
        let mut came = Vec::new();
        simulator.go_on(task, &mut |event| came.push(event.page));
        came
    }

    /// All that is left.
    fn finish(simulator: &mut Simulator, task: u32) -> Vec<u64> {
        let mut came = Vec::new();
        while simulator.go_on(task, &mut |event| came.push(event.page)) {}
        came
    }

    fn whole(simulator: &mut Simulator, task: u32, page: u64) -> Vec<u64> {
        [read(simulator, task, page), finish(simulator, task)].concat()
    }

    /// Task 1's window meets a page that is there, and task 2 comes before the rest is added.
    #[test]
    fn what_others_add_meanwhile_is_there_when_the_next_run_is() {
        let window = |with_turns: bool| {
            let mut s = simulator(32);
            s.preload(FILE, 10);
            if with_turns {
                s.take_turns();
            }
            s
        };
        let mut at_once = window(false);
        assert_eq!(read(&mut at_once, 1, 0), (0..4).collect::<Vec<_>>());
        assert_eq!(read(&mut at_once, 1, 1), [4, 5, 6, 7, 8, 9, 11]);

        let mut s = window(true);
        assert_eq!(read(&mut s, 1, 0), (0..4).collect::<Vec<_>>(), "its window is there");
        for page in 0..4 {
            assert_eq!(s.next_of(1), Some(Next::Read { file: FILE, page }));
            assert!(s.is_coming(FILE, page));
            assert_eq!(go_on(&mut s, 1), []);
            assert_eq!(s.next_of(1), Some(Next::There { file: FILE, page }));
            assert_eq!(go_on(&mut s, 1), []);
            assert!(!s.is_coming(FILE, page));
        }
        assert_eq!((s.next_of(1), go_on(&mut s, 1)), (Some(Next::Look), vec![]), "the call goes on");
        assert_eq!(s.next_of(1), None);
        assert_eq!(read(&mut s, 1, 1), (4..10).collect::<Vec<_>>(), "up to the page that is there");
        assert_eq!(read(&mut s, 2, 11)[..2], [11, 12]);
        (4..10).for_each(|_| assert_eq!([go_on(&mut s, 1), go_on(&mut s, 1)], [[], []]));
        assert_eq!(s.next_of(1), Some(Next::Look));
        assert_eq!(go_on(&mut s, 1), [], "it came with the other's");
        assert_eq!((finish(&mut s, 1), s.next_of(1)), (vec![], None));
    }

    /// What a call finds at its next mark is there when all before it is read: a bulk read has brought in what the mark asks for.
    #[test]
    fn a_call_goes_on_when_its_window_is_read() {
        let mut s = simulator(5);
        s.set_bulk_read(FILE, NodeRuns::new(vec![(0, 300)], 300));
        s.take_turns();
        let mut at_once = simulator(5);
        at_once.set_bulk_read(FILE, NodeRuns::new(vec![(0, 300)], 300));
        let three = |s: &mut Simulator, page: u64| {
            let mut came = Vec::new();
            let access = Access::Read { offset: page * 4096, length: 3 * 4096 };
            s.turn(1, FILE, OpenId(1), access, &mut |event: PageEvent| came.push(event.page));
            [came, finish(s, 1)].concat()
        };
        for page in (0..120).step_by(2) {
            assert_eq!(three(&mut s, page), three(&mut at_once, page), "{page}");
        }
        assert_eq!(s.bulk_reads(), at_once.bulk_reads());
        assert!(s.bulk_reads().reads > 1);
    }

    #[test]
    fn alone_a_task_reads_what_it_reads_at_once() {
        for kernel in Kernel::ALL {
            let on = ["jffs2", "ubifs", "squashfs"];
            for (readahead_pages, on) in [0, 1, 4, 5, 32, 64].into_iter().flat_map(|pages| on.map(|on| (pages, on))) {
                let settings = Settings { readahead_pages, ..Settings::default() };
                let [mut turns, mut at_once] = [settings; 2].map(|settings| Simulator::new(kernel, settings));
                for s in [&mut turns, &mut at_once] {
                    s.set_size(FILE, 300 * 4096 - 100);
                    match on {
                        "ubifs" => s.set_bulk_read(FILE, NodeRuns::new(vec![(0, 300)], 60)),
                        "squashfs" => s.set_squashfs_block(FILE, 128 << 10),
                        _ => {}
                    }
                    s.tell_blocks();
                }
                turns.take_turns();
                let mut number = 7_u64;
                for _ in 0..100 {
                    number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let (offset, length) = (number >> 33 & 0xf_ffff, (number >> 53) * 20);
                    let access = Access::Read { offset, length };
                    let (mut came, mut expected) = (Vec::new(), Vec::new());
                    turns.turn(1, FILE, OpenId(1), access, &mut |event: PageEvent| came.push(event));
                    while turns.go_on(1, &mut |event| came.push(event)) {}
                    at_once.apply(FILE, OpenId(1), access, &mut |event| expected.push(event));
                    assert_eq!(came, expected, "{kernel:?} {readahead_pages} {on} {access:?}");
                }
                assert_eq!(turns.bulk_reads(), at_once.bulk_reads(), "{kernel:?} {readahead_pages}");
            }
        }
    }

    #[test]
    fn while_one_reads_in_bulk_others_read_alone() {
        let mut s = simulator(0);
        s.set_bulk_read(FILE, NodeRuns::new(vec![(0, 300)], 300));
        s.take_turns();
        assert_eq!([0, 1].map(|page| whole(&mut s, 1, page)), [[0], [1]]);
        assert_eq!(read(&mut s, 1, 2), [2]);
        assert_eq!((go_on(&mut s, 1), s.next_of(1)), (vec![], Some(Next::There { file: FILE, page: 2 })));
        go_on(&mut s, 1);
        assert_eq!(s.next_of(1), Some(Next::Fill { is_last: true, is_over: false }), "its nodes are on their way");
        // In a row, but not counted: `ui_mutex` is held.
        assert_eq!([100, 101, 102].map(|page| whole(&mut s, 2, page)), [[100], [101], [102]]);
        assert_eq!((s.next_of(2), s.bulk_reads().reads), (None, 1));
        assert_eq!([go_on(&mut s, 1), go_on(&mut s, 1)], [[3], [4]], "a page at a time");
        assert_eq!(finish(&mut s, 1), (5..34).collect::<Vec<_>>());
        assert_eq!(whole(&mut s, 2, 103), [103], "the row is the other's");
        assert_eq!(whole(&mut s, 1, 34), [34], "and now nobody's");
    }

    #[test]
    fn a_page_that_another_has_yet_to_read_is_waited_for() {
        let mut s = simulator(32);
        s.set_bulk_read(FILE, NodeRuns::new(vec![(0, 300)], 300));
        s.take_turns();
        assert_eq!(read(&mut s, 1, 0), (0..4).collect::<Vec<_>>());
        assert_eq!(s.next_of(1), Some(Next::Read { file: FILE, page: 0 }));
        assert_eq!(read(&mut s, 2, 2), []);
        assert_eq!(s.next_of(2), Some(Next::Wait { file: FILE, page: 2 }));
        assert!(s.is_coming(FILE, 2));
        go_on(&mut s, 2);
        assert!(!s.is_coming(FILE, 2) && s.is_coming(FILE, 3));
        assert_eq!(s.next_of(1), Some(Next::Fill { is_last: false, is_over: true }), "page 2 was the third in a row");
        finish(&mut s, 2);
        assert_eq!(finish(&mut s, 1).first(), Some(&4), "what its last bulk read makes of its nodes");
        assert!(!s.go_on(7, &mut |_| {}), "nobody");
    }

    /// squashfs up to 5.19: each page of a window goes through the one buffer, which another's block may be in by then.
    #[test]
    fn a_block_that_another_s_took_the_place_of_is_read_again() {
        let mut s = Simulator::new(Kernel::V5_10, Settings { readahead_pages: 4, ..Settings::default() });
        s.set_size(FILE, 300 * 4096);
        s.set_squashfs_block(FILE, 128 << 10);
        s.tell_blocks();
        s.take_turns();
        let block = |first, waits| Some(Next::Block { file: FILE, first, waits });
        let lock = |page| Some(Next::Lock { file: FILE, page });
        let some = |s: &mut Simulator, task: u32, page: u64, pages: u64| {
            let mut came = Vec::new();
            let access = Access::Read { offset: page * 4096, length: pages * 4096 };
            s.turn(task, FILE, OpenId(task.into()), access, &mut |event| came.push(event.page));
            came
        };
        assert_eq!(some(&mut s, 1, 0, 4), [0, 1, 2, 3]);
        assert_eq!((s.next_of(1), go_on(&mut s, 1)), (lock(0), (4..32).collect()), "what can be had of its block");
        assert_eq!((s.next_of(1), go_on(&mut s, 1)), (block(0, false), vec![0]));
        assert_eq!(some(&mut s, 2, 40, 1), [40]);
        go_on(&mut s, 2);
        assert_eq!(s.next_of(2), block(32, false), "all could be had: no buffer");
        assert_eq!([go_on(&mut s, 2), go_on(&mut s, 2)], [vec![32], vec![]]);
        finish(&mut s, 2);
        // Another window: its block has to wait for the buffer, and a page of the first for that block.
        assert_eq!(some(&mut s, 2, 70, 2), [70, 71]);
        go_on(&mut s, 2);
        assert_eq!(s.next_of(2), block(64, true));
        assert_eq!(read(&mut s, 3, 20), []);
        assert_eq!(s.next_of(3), Some(Next::Wait { file: FILE, page: 20 }));
        assert!(s.is_coming(FILE, 20));
        assert_eq!((s.next_of(1), go_on(&mut s, 1)), (Some(Next::Unpacked), vec![]));
        assert!(!s.is_coming(FILE, 20) && s.is_coming(FILE, 1) && !s.is_coming(FILE, 0));
        assert_eq!((s.next_of(2), go_on(&mut s, 2)), (block(64, false), vec![64]));
        // The first's next page finds the other's block there.
        assert_eq!((s.next_of(1), go_on(&mut s, 1)), (lock(1), vec![]));
        assert_eq!(s.next_of(1), block(0, true));
        go_on(&mut s, 2);
        assert_eq!((s.next_of(1), go_on(&mut s, 1)), (block(0, false), vec![0]));
        go_on(&mut s, 1);
        assert_eq!(finish(&mut s, 2), [64], "and its second page the first's");
        assert_eq!((finish(&mut s, 1), s.found_in_buffer()), (vec![0], 1), "page 2; page 3 finds it");
        assert_eq!(finish(&mut s, 3), [], "it was there");
    }
}
