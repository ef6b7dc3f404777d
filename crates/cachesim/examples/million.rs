//! How long a million reads take to simulate, on one core: half of them sequential, half at random in a file of 1 GiB; and how much
//! memory that takes, of a model in a process of its own (`million MODEL [PAGES]`: the cache's budget).
//! `bench/readahead/run`

use std::time::Instant;

use flashscope_cachesim::{Access, Kernel, OpenId, PAGE_BYTES, Settings, Simulator};
use flashscope_trace::{Device, FileId};

const READS: u64 = 1_000_000;
const FILE_PAGES: u64 = 1 << 18;

/// The most memory that this process has had, KiB.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok())
}

fn main() {
    let mut args = std::env::args().skip(1);
    let only = args.next();
    let budget_pages = args.next().map_or(1 << 16, |pages| pages.parse().expect("a number of pages"));
    for kernel in Kernel::ALL.into_iter().filter(|kernel| only.as_deref().is_none_or(|only| only == kernel.name())) {
        let mut simulator =
            Simulator::new(kernel, Settings { readahead_pages: 32, budget_pages, ..Settings::default() });
        let (a, b) = (FileId { device: Some(Device(1)), inode: 1 }, FileId { device: Some(Device(1)), inode: 2 });
        for file in [a, b] {
            simulator.set_size(file, FILE_PAGES * PAGE_BYTES);
        }
        let (mut state, mut pages) = (1_u64, 0_u64);
        let began = Instant::now();
        for n in 0..READS / 2 {
            let mut read = |file, page| {
                let access = Access::Read { offset: page * PAGE_BYTES, length: PAGE_BYTES };
                simulator.apply(file, OpenId(1), access, &mut |event| pages += u64::from(event.is_read()));
            };
            read(a, n % FILE_PAGES);
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            read(b, (state >> 33) % FILE_PAGES);
        }
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{{\"model\": \"{}\", \"reads\": {READS}, \"pages_read\": {pages}, \
             \"budget_pages\": {budget_pages}, \
             \"seconds\": {seconds:.3}, \"peak_kib\": {}}}",
            kernel.name(),
            peak_kib().map_or("null".to_owned(), |kib| kib.to_string())
        );
    }
}
