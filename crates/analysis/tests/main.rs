//! All tests of this crate from outside in one program, which links once; `-- btt::` runs those of btt.rs.

mod blkparse_sums;
mod btt;
mod btt_defects;
mod common;
