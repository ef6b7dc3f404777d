//! `bench replay` on UBIFS, page by page: the flash reads of a run and of its replay differ by where the nodes lie, and by
//! nothing else. What the flash holds is read from a copy of it, by what `fs/ubifs/ubifs-media.h` and `drivers/mtd/ubi/ubi-media.h`
//! say of its layout (Linux 6.1).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use flashscope_tests::{Plan, events};
use flashscope_trace::EventKind;
use serde_json::Value;

const AGENT: &str = "/flashscope/agent";
const FILE_BYTES: u64 = 1 << 19;
const REQUEST: u64 = 4096;
const SEED: u64 = 3;
const COUNT: u64 = 24;
/// Of these UBI keeps 40 to replace bad ones.
const BLOCKS: u64 = 112;
const PAGE: usize = 2048;
const PEB: usize = 128 << 10;
/// Behind the two headers of UBI, which share a page (a subpage has 512 bytes).
const LEB_BEGIN: usize = 2048;
const VID_HEADER: usize = 512;

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    le32(bytes, at).swap_bytes()
}

/// A file system of the first UBI volume.
struct Ubifs<'a> {
    flash: &'a [u8],
    /// Logical blocks to where their bytes begin.
    blocks: BTreeMap<u32, usize>,
    /// The index's root as of the last commit.
    root: Node,
}

/// Where a node lies on the flash, and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    at: usize,
    length: usize,
}

impl Node {
    /// Pages that reading it reads.
    fn pages(self) -> std::ops::RangeInclusive<usize> {
        self.at / PAGE..=(self.at + self.length - 1) / PAGE
    }
}

impl<'a> Ubifs<'a> {
    fn new(flash: &'a [u8]) -> Ubifs<'a> {
        let mut newest: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
        for block in (0..flash.len()).step_by(PEB) {
            let header = &flash[block + VID_HEADER..];
            if header.starts_with(b"UBI!") && be32(header, 8) == 0 {
                let (leb, sequence) = (be32(header, 12), le64(header, 40).swap_bytes());
                let known = newest.entry(leb).or_default();
                *known = (*known).max((sequence, block + LEB_BEGIN));
            }
        }
        let blocks: BTreeMap<u32, usize> = newest.into_iter().map(|(leb, (_, at))| (leb, at)).collect();
        // Master nodes are written one behind the other, in the second logical block and in the third.
        let begin = blocks[&1];
        let masters = (begin..begin - LEB_BEGIN + PEB).step_by(8).filter(|&at| node_type(flash, at) == Some(7));
        let master = masters.max_by_key(|&at| le64(flash, at + 8)).expect("a master node");
        let found = (le32(flash, master + 48), le32(flash, master + 52), le32(flash, master + 56));
        let root = Node { at: blocks[&found.0] + found.1 as usize, length: found.2 as usize };
        Ubifs { flash, blocks, root }
    }

    /// Index nodes on the way to a 4 KiB block of a file, from the root, and its data node.
    fn path(&self, inode: u64, block: u64) -> (Vec<Node>, Node) {
        let key = (inode as u32, 1 << 29 | block as u32);
        let (mut node, mut above) = (self.root, Vec::new());
        loop {
            assert_eq!(node_type(self.flash, node.at), Some(9), "an index node");
            above.push(node);
            let counts = le32(self.flash, node.at + 24);
            let (children, level) = ((counts & 0xffff) as usize, counts >> 16);
            let branch = |child: usize| node.at + 28 + 20 * child;
            let key_of = |child: usize| (le32(self.flash, branch(child) + 12), le32(self.flash, branch(child) + 16));
            let child = (0..children).rev().find(|&child| key_of(child) <= key).unwrap_or(0);
            let at = branch(child);
            let block = self.blocks[&le32(self.flash, at)];
            let offset = le32(self.flash, at + 4) as usize;
            let next = Node { at: block + offset, length: le32(self.flash, at + 8) as usize };
            if level == 0 {
                assert_eq!((key_of(child), node_type(self.flash, next.at)), (key, Some(1)), "a data node");
                return (above, next);
            }
            node = next;
        }
    }
}

fn node_type(flash: &[u8], at: usize) -> Option<u8> {
    (le32(flash, at) == 0x0610_1831).then(|| flash[at + 20])
}

/// How often each page is read.
type Reads = BTreeMap<usize, u64>;

#[test]
fn on_ubifs_a_replay_reads_the_pages_on_which_its_nodes_lie() {
    let slots: Vec<u64> = flashscope_study::random_slots(SEED, COUNT, FILE_BYTES / REQUEST);
    let mut script = format!("flashscope-replay 1\nfile {FILE_BYTES}\ntask\n");
    for slot in &slots {
        writeln!(script, "read 0 0 0 {} {REQUEST}", slot * REQUEST).expect("a string");
    }
    let reads = format!(
        "--size {FILE_BYTES} --contents printable --seed {SEED} --count {COUNT} --request {REQUEST} --pattern random"
    );
    let run = format!("{AGENT} bench read --file /mnt/data {reads} --drop-caches");
    let replay = format!("{AGENT} bench replay --script /script --dir /mnt --seed {SEED} --drop-caches");
    let mut plan = Plan::new("armv7", "6.1");
    plan.parts = &[BLOCKS];
    plan.modules = &["ubi", "deflate", "lzo", "zstd", "ubifs"];
    plan.files = vec![("/script", 0o644, script.into_bytes())];
    plan.lines = [
        "mkdir /mnt",
        "ubi-attach 0",
        "device-wait /dev/ubi0 5000",
        "ubi-mkvol 0 data all",
        "device-wait /dev/ubi0_0 5000",
        "mount ubi0:data /mnt ubifs -",
        "record-start --events flash --mode ring --ring 8192",
        &format!("run create {run} --create"),
        &format!("run replay {replay}"),
        // Its file is gone, but not yet from the flash: nothing is committed, and no block erased.
        "get /dev/mtd0",
        &format!("run again {run}"),
        "record-stop",
    ]
    .map(str::to_owned)
    .into();
    let booted = plan.boot();
    let copy = booted.session.steps.iter().flat_map(|step| &step.files).find(|file| file.path == "/dev/mtd0");
    let flash = booted.session.read_file(copy.expect("a copy"), BLOCKS * PEB as u64).expect("its bytes");
    assert_eq!(flash.len() as u64, BLOCKS * PEB as u64);
    let trace = booted.recording(0);
    let pages = |span: &Value| -> Reads {
        let (begin, end) = (span["begin_ns"].as_u64().expect("a time"), span["end_ns"].as_u64().expect("a time"));
        let mut reads = Reads::new();
        events(&trace, |event| {
            if let EventKind::Flash(access) = &event.kind
                && (begin..end).contains(&event.time.0)
            {
                *reads.entry(access.page as usize).or_default() += 1;
            }
        });
        reads
    };
    let (first, replay, again) = (booted.json("create"), booted.json("replay"), booted.json("again"));
    assert_eq!(replay["tasks"][0]["checksum"], first["checksum"], "the same bytes");
    let total = |reads: &Reads| reads.values().sum::<u64>();
    let counts = [&first, &replay, &again].map(|result| total(&pages(&result["measured"])));
    println!("flash reads of the run, of its replay, of the run again: {counts:?}");
    // One file's reads are the same each time: what differs is another file's place.
    assert_eq!(counts[0], counts[2]);

    let ubifs = Ubifs::new(&flash);
    let blocks: BTreeSet<u64> = slots.into_iter().collect();
    let inodes = inodes_with_data(&flash);
    assert_eq!(inodes.len(), 2, "{inodes:?}");
    for (name, inode, span) in [("run", inodes[0], &first["measured"]), ("replay", inodes[1], &replay["measured"])] {
        let (mut index, mut data, mut lengths) = (BTreeSet::new(), Reads::new(), 0);
        for &block in &blocks {
            let (above, node) = ubifs.path(inode, block);
            index.extend(above);
            lengths += node.length;
            node.pages().for_each(|page| *data.entry(page).or_default() += 1);
        }
        let found = pages(span);
        let of_data: Reads = found.iter().filter(|(page, _)| data.contains_key(page)).map(|(&p, &n)| (p, n)).collect();
        let of_index: u64 = index.iter().map(|node| node.pages().count() as u64).sum();
        println!(
            "{name}: {} blocks in nodes of {} bytes on average lie on {} pages; {} index nodes above them on {of_index}, of which {} were \
             read, the rest while the file was opened",
            blocks.len(),
            lengths / blocks.len(),
            total(&data),
            index.len(),
            total(&found) - total(&of_data),
        );
        assert_eq!(of_data, data, "{name}: each page of each data node, once for each node on it");
        // The run's index was written again when the replay's file came, so its pages are the replay's question only.
        let others = total(&found) - total(&of_data);
        assert!(others <= of_index && of_index - others <= 4, "{name}: {others} of {of_index}");
        if name == "replay" {
            let index: BTreeSet<usize> = index.iter().flat_map(|node| node.pages()).collect();
            assert!(found.keys().all(|page| data.contains_key(page) || index.contains(page)), "{found:?}");
        }
    }
}

/// Files that have data nodes on the flash, in the order of their numbers.
fn inodes_with_data(flash: &[u8]) -> Vec<u64> {
    let nodes = (0..flash.len() - 48).step_by(8).filter(|&at| node_type(flash, at) == Some(1));
    nodes.map(|at| u64::from(le32(flash, at + 24))).collect::<BTreeSet<u64>>().into_iter().collect()
}
