#![no_main]
#[allow(dead_code, reason = "a target calls one body")]
#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::perfetto(bytes));
