//! The paper's random reads under each kernel's rules: what 4 KB reads of a 5 MB file bring in with 128 KiB of read-ahead and
//! without it ("Revisiting Read-ahead Efficiency for Raw NAND Flash Storage in Embedded Linux", section 4.1.2).

use crate::{Access, FileId, Kernel, OpenId, PAGE_BYTES, Settings, Simulator};

const FILE: FileId = FileId { device: None, inode: 1 };
const FILE_PAGES: u64 = 1280;

/// The offsets of `flashscope-agent bench read` in pages: agent/prng.c (SplitMix64) and agent/bench_read.c.
fn random_pages(seed: u64, count: u64) -> impl Iterator<Item = u64> {
    let mut state = seed ^ 0x0070_6174_7465_726e;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let mask = (FILE_PAGES - 1).next_power_of_two().max(2048) - 1;
    (0..count).map(move |_| {
        loop {
            let page = next() & mask;
            if page < FILE_PAGES {
                return page;
            }
        }
    })
}

fn pages_read(kernel: Kernel, readahead_pages: u64, requests: impl Iterator<Item = u64>) -> u64 {
    let mut simulator = Simulator::new(kernel, Settings { readahead_pages, ..Settings::default() });
    simulator.set_size(FILE, FILE_PAGES * PAGE_BYTES);
    let mut read = 0;
    for page in requests {
        let access = Access::Read { offset: page * PAGE_BYTES, length: PAGE_BYTES };
        simulator.apply(FILE, OpenId(0), access, &mut |event| read += u64::from(event.is_read()));
    }
    read
}

/// Pages that read-ahead off saves, in per cent of those with 128 KiB: mean of seeds.
fn saved(kernel: Kernel, count: u64, seeds: std::ops::RangeInclusive<u64>) -> f64 {
    let of = |seed| {
        let with = pages_read(kernel, 32, random_pages(seed, count)) as f64;
        let without = pages_read(kernel, 0, random_pages(seed, count)) as f64;
        (with - without) / with * 100.0
    };
    let number = (seeds.end() - seeds.start() + 1) as f64;
    seeds.map(of).sum::<f64>() / number
}

#[test]
fn sequential_reads_save_what_the_board_measures() {
    for kernel in [Kernel::V2_6_37, Kernel::V6_1] {
        for count in [8, 32, 64, 256] {
            let with = pages_read(kernel, 32, 0..count) as f64;
            println!("{kernel:?} sequential {count}: {:.1}", (with - count as f64) / with * 100.0);
        }
    }
}

#[test]
fn random_reads_prefetched_on_the_papers_kernel() {
    for kernel in Kernel::ALL {
        for count in [8, 16, 32, 64, 128, 256, 512, 1024] {
            println!(
                "{kernel:?} random {count}: {:.1} (seed 1: {:.1})",
                saved(kernel, count, 1..=100),
                saved(kernel, count, 1..=1)
            );
        }
    }
}
