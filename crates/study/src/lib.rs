//! Studies: a file names the settings to measure; each is run on virtual boards and compared with published values.

mod boards;
pub mod boot;
mod collect;
mod definition;
mod error;
mod evaluate;
mod file;
mod kind;
mod lab;
pub mod layers;
mod medium;
mod modelled;
#[cfg(test)]
mod mutation_tests;
mod not_measured;
mod options;
mod plan;
mod power;
pub mod replays;
mod result;
mod run;
pub mod runs;
mod size;
mod statement;

pub use boards::{Boards, Interrupted};
pub use collect::losses;
pub use definition::{
    Checked, Define, Definition, DefinitionError, Filesystem, Fold, Matrix, Pattern, Published, Quantity, Readahead,
    Study, Workload,
};
pub use error::StudyError;
pub use evaluate::{compare, gains, verdict};
pub use file::{SHIPPED, StudyFile};
pub use lab::on_nand;
pub use modelled::random_slots;
pub use not_measured::{NotMeasurable, NotMeasured};
pub use options::{Options, RunProgress};
pub use plan::{CellSpec, GroupSpec, groups, modules};
pub use power::load as load_power;
pub use result::*;
pub use run::{SQUASHFS_BLOCK, run, squashfs_image};
pub use size::Bytes;
pub use statement::{Figures, How, Row, Statement, rows};
