//! Size of an event in the kernel's ring, in the stream, and in trace.dat.

use serde_json::{Value, json};

use crate::cost::{DEFAULTS, measure};
use crate::tracer::to_json;

/// Enough reads that data written once (facts, formats) is a small part.
const READS: u64 = 20_000;

pub fn run() -> Value {
    println!("\nBytes an event, {READS} page reads (what is written once, facts and formats, included in the files)");
    println!("  kernel                     mode     in the ring   stream file   trace.dat");
    let mut results = Vec::new();
    for (board, kernel) in flashscope_tests::boards_and_kernels().into_iter().filter(|(board, _)| board == "armv7") {
        let measured = measure(&board, &kernel, READS, DEFAULTS);
        for one in &measured.settings {
            let each = |bytes: u64| bytes as f64 / one.count as f64;
            println!(
                "  {:<26} {:<8} {:>11.2} {:>13.2} {:>11.2}",
                format!("{kernel} ({})", measured.release),
                one.name,
                each(one.stream.events),
                each(one.stream.total),
                each(one.trace_dat_bytes)
            );
        }
        results.push(to_json(&measured));
    }
    json!({ "reads": READS, "kernels": results })
}
