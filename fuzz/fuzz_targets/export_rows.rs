#![no_main]
#[allow(dead_code, reason = "a target calls one body")]
#[path = "../commands.rs"]
mod commands;
#[allow(dead_code, reason = "tests of memory write single events")]
#[path = "../structured.rs"]
mod structured;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| commands::export_rows(bytes));
