//! All tests of this crate from outside in one program, which links once; `-- boards::` runs those of boards.rs.

mod boards;
mod ssh;
