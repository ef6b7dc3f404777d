//! The tracer's cost per event, by kernel and option, in guest time.

use serde_json::{Value, json};

use crate::cost::{Measured, PAGE, Reads, Setting, measure};

const fn flash(name: &'static str, options: &'static str) -> Setting {
    Setting { name, options, flash: true }
}

const SETTINGS: &[Setting] = &[
    flash("ring", "--mode ring"),
    flash("stream", "--mode stream"),
    flash("ring+offset", "--mode ring --detail offset"),
    flash("ring+chip", "--mode ring --detail chip"),
    flash("ring+duration", "--mode ring --detail duration"),
    flash("stream+all", "--mode stream --detail offset,duration,chip"),
    // The recorder without a flash probe: its timer, its empty rings, and the instance with task names.
    Setting { name: "names-only", options: "--mode stream --events task:task_newtask", flash: false },
];

pub fn run(reads: u64) -> Value {
    println!("\nTracer cost per event, guest time, {reads} reads of {PAGE} bytes");
    let mut results = Vec::new();
    for (board, kernel) in flashscope_tests::boards_and_kernels().into_iter().filter(|(board, _)| board == "armv7") {
        let measured = measure(&board, &kernel, reads, SETTINGS);
        println!(
            "  {board} {kernel} ({}): a page read takes {:.1} us",
            measured.release,
            measured.page_read_ns() / 1e3
        );
        for one in measured.settings.iter().chain([&measured.untraced, &measured.untraced_again]) {
            println!(
                "    {:<16} {:>7.0} ns an event {:>6.2} %   worst read {:>6.1} us",
                one.name,
                measured.cost_ns(one),
                measured.cost_percent(one),
                one.max_ns as f64 / 1e3
            );
        }
        results.push(to_json(&measured));
    }
    json!({
        "method": "cost is (whole interval traced - the shorter of the two untraced) / reads; percent is of the untraced page read",
        "reads": reads, "bytes_a_read": PAGE, "kernels": results,
    })
}

pub fn to_json(measured: &Measured) -> Value {
    let reads = |reads: &Reads| {
        json!({
            "name": reads.name, "record_options": reads.options, "reads": reads.count,
            "interval_ns": reads.interval_ns, "inside_reads_ns": reads.read_ns, "min_ns": reads.min_ns, "max_ns": reads.max_ns,
            "cost_ns_an_event": measured.cost_ns(reads), "cost_percent": measured.cost_percent(reads),
            "events_seen": reads.seen, "lost": reads.lost,
            "stream_bytes": reads.stream.total, "stream_data_bytes": reads.stream.data,
            "sub_buffers": reads.stream.sub_buffers, "sub_buffers_drained_while_reading": reads.stream.drained,
            "ring_event_bytes": reads.stream.events, "trace_dat_bytes": reads.trace_dat_bytes,
        })
    };
    json!({
        "board": measured.board, "kernel": measured.kernel, "release": measured.release,
        "page_read_ns": measured.page_read_ns(), "untraced_spread_percent": measured.baseline_spread_percent(),
        "untraced": reads(&measured.untraced), "untraced_again": reads(&measured.untraced_again),
        "settings": measured.settings.iter().map(reads).collect::<Vec<_>>(),
    })
}
