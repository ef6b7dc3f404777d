//! All tests of this crate from outside in one program, which links once; `-- threads::` runs those of threads.rs.

mod blktrace;
mod boards;
mod bombs;
mod common;
mod dat_records;
mod export;
mod flashmon;
mod formats;
mod ftrace_text;
mod full_disk;
mod fuzz;
mod memory;
mod merged;
mod perfetto;
mod perfetto_read;
mod stream;
mod text;
mod threads;
mod trace_cmd;
