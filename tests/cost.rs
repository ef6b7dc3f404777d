//! Tracing, draining included, costs at most 2 % of a 2 KB raw page read. Guest time is a function of executed
//! instructions, so a figure repeats to the nanosecond: one that is above the bound is a regression, never noise.

#[path = "../bench/cost.rs"]
#[allow(dead_code, reason = "`make bench` prints what this test has no use for")]
mod bench;

use bench::{DEFAULTS, measure};
use flashscope_tests::boards_and_kernels;

/// About a second of reads: ten drains of the default timer.
const READS: u64 = 6000;
const MOST_PERCENT: f64 = 2.0;

#[test]
fn tracing_costs_at_most_two_percent_of_a_page_read_on_every_kernel() {
    let mut dear = Vec::new();
    for (board, kernel) in boards_and_kernels().into_iter().filter(|(board, _)| board == "armv7") {
        let measured = measure(&board, &kernel, READS, DEFAULTS);
        let page_us = measured.page_read_ns() / 1e3;
        // The chip's page read: a much shorter one would not be the workload that the bound is about.
        assert!((130.0..160.0).contains(&page_us), "{board} {kernel}: a page read takes {page_us:.1} us");
        for reads in &measured.settings {
            let (us, percent) = (measured.cost_ns(reads) / 1e3, measured.cost_percent(reads));
            println!(
                "{board} {kernel} ({}): {}: {us:.2} us an event, {percent:.2} % of {page_us:.1} us",
                measured.release, reads.name
            );
            // What is cheap because it does not record, or because it records and drains later, is not cheap.
            assert_eq!((reads.seen, reads.lost), (READS, 0), "{board} {kernel} {}: events", reads.name);
            let drained = reads.stream.drained * 10 / reads.stream.sub_buffers;
            match reads.name.as_str() {
                "stream" => assert!(drained >= 8, "{board} {kernel}: {:?} drained while reading", reads.stream),
                _ => assert_eq!(drained, 0, "{board} {kernel}: {:?} not drained while reading", reads.stream),
            }
            assert!(us > 0.0, "{board} {kernel} {}: {us} us: a probe that costs nothing is not there", reads.name);
            if percent > MOST_PERCENT {
                dear.push(format!("{board} {kernel} {}: {percent:.2} %", reads.name));
            }
        }
        // A recorder that has ended costs nothing: its probes are gone. And a baseline that holds other work of the
        // kernel would hide what tracing costs.
        let spread = measured.baseline_spread_percent();
        println!("{board} {kernel}: untraced before and after: {spread:.2} % apart");
        assert!(spread < 0.5, "{board} {kernel}: reads before and after the recorders are {spread:.2} % apart");
    }
    assert!(dear.is_empty(), "above {MOST_PERCENT} %: {}", dear.join("; "));
}
