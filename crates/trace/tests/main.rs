//! All tests of this crate from outside in one program, which links once; `-- ahead::` runs those of ahead.rs.

mod ahead;
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
mod trace_cmd;
